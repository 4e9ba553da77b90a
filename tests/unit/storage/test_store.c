/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the store: every kind of query finds the spans that were written. */
#include "storage/store.h"

#include <unistd.h>

#include "otlp/keyvalue.h"
#include "storage/slice.h"
#include "tests/support/items.h"
#include "tests/support/store_rig.h"
#include "tests/support/test.h"

#define BEGAN 1767225600000000000u /* start of span 0 of items.h */

struct found {
    struct br_stored_span spans[4096];
    size_t count, stop_at;
};

static bool on_span(const struct br_stored_span *span, void *arg)
{
    struct found *found = arg;
    assert_true(found->count < BR_COUNT(found->spans));
    found->spans[found->count++] = *span;
    return found->count != found->stop_at;
}

static uint64_t number_of(const struct br_stored_span *span)
{
    return __builtin_bswap64(span->span_id);
}

static int setup(void **state)
{
    struct store_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    store_rig_init(rig, 300);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    store_rig_release(*state);
    free(*state);
    return 0;
}

/* Writes spans 0 to 999 in ten requests. They fill four partitions. */
static void write_thousand(struct store_rig *rig)
{
    struct wire w = {0};
    for (uint64_t first = 0; first < 1000; first += 100) {
        items_traces(&w, first, 100, 2);
        if (store_rig_write(rig, BR_TRACES, &w))
            fail_msg("%s", rig->err.text);
    }
    wire_free(&w);
}

static void test_trace(void **state)
{
    struct store_rig *rig = *state;
    struct found *found = calloc(1, sizeof *found);
    write_thousand(rig);
    for (int round = 0; round < 2; round++) {
        struct br_store_query *query = store_rig_ask(rig);
        for (uint64_t trace = 0; trace < 250; trace++) {
            uint8_t id[16] = {1};
            id[15] = (uint8_t)trace;
            found->count = 0;
            assert_int_equal(br_store_trace(query, id, on_span, found, &rig->err), 0);
            assert_int_equal(found->count, 4);
            for (size_t i = 0; i < 4; i++) {
                const struct br_stored_span *span = &found->spans[i];
                uint64_t n = number_of(span);
                assert_int_equal(n, 4 * trace + i);
                assert_memory_equal(span->trace_id, id, 16);
                assert_int_equal(span->start_ns, BEGAN + n);
                assert_int_equal(span->duration_ns, 1000);
                assert_int_equal(span->kind, n % 6);
                assert_string_equal(span->name, n % 3 ? "GET /" : "POST /checkout");
                assert_string_equal(span->service, n % 100 < 50 ? "service-0" : "service-1");
            }
        }
        assert_null(query->cut);
        store_rig_answered(rig);
        assert_int_equal(store_rig_reopen(rig), 0);
    }
    free(found);
}

static void test_spans(void **state)
{
    struct store_rig *rig = *state;
    struct found *found = calloc(1, sizeof *found);
    write_thousand(rig);
    struct br_store_query *query = store_rig_ask(rig);
    /* The newest ten spans of a service. */
    struct br_span_filter filter = {.service = "service-0", .limit = 10};
    assert_int_equal(br_store_spans(query, &filter, on_span, found, &rig->err), 0);
    assert_int_equal(found->count, 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(number_of(&found->spans[i]), 949 - i);
    /* All spans in a range of times. */
    filter = (struct br_span_filter){.from_ns = BEGAN + 95, .until_ns = BEGAN + 505};
    found->count = 0;
    assert_int_equal(br_store_spans(query, &filter, on_span, found, &rig->err), 0);
    assert_int_equal(found->count, 410);
    /* A filter for an attribute lets all spans pass that have the attribute. */
    struct br_span_needle needle = {.key = "http.route", .value = "/a"};
    filter = (struct br_span_filter){.needles = &needle, .n_needles = 1, .name = "POST /checkout"};
    found->count = 0;
    assert_int_equal(br_store_spans(query, &filter, on_span, found, &rig->err), 0);
    assert_true(found->count >= 167);
    /* The Bloom filter has ten bits for each value. Its rate of false positives is therefore about
     * 1 %. */
    size_t n_let_through = 0;
    for (int i = 0; i < 100; i++) {
        char value[16];
        (void)snprintf(value, sizeof value, "/%d", i);
        needle.value = value;
        found->count = 0;
        assert_int_equal(br_store_spans(query, &filter, on_span, found, &rig->err), 0);
        n_let_through += found->count;
    }
    assert_true(n_let_through < 100 * 334 / 10);
    store_rig_answered(rig);
    free(found);
}

struct facts {
    struct br_store_query *query;
    uint8_t seen[1000];
    size_t count, n_blocks, stop_at;
    /* location of a span, by its number */
    struct {
        uint32_t partition, index;
        int64_t block;
    } places[1000];
    bool with_ids;
};

static bool on_facts(const struct br_span_facts *all, void *arg)
{
    struct facts *facts = arg;
    const char *service, *name;
    assert_int_equal(all->span_id != NULL, facts->with_ids);
    assert_int_equal(all->parent_id != NULL, facts->with_ids);
    for (uint32_t i = 0; i < all->count; i++) {
        uint64_t n = all->start_ns[i] - BEGAN;
        assert_true(n < BR_COUNT(facts->seen));
        facts->seen[n]++;
        facts->count++;
        facts->places[n].partition = all->partition;
        facts->places[n].block = all->block;
        facts->places[n].index = all->index[i];
        assert_int_equal(all->duration_ns[i], 1000);
        if (all->span_id && all->parent_id) {
            assert_int_equal(__builtin_bswap64(all->span_id[i]), n);
            assert_int_equal(all->root[i], !all->parent_id[i]);
        }
        assert_true(br_store_operation(facts->query, all, all->operation[i], &service, &name));
        assert_string_equal(name, n % 3 ? "GET /" : "POST /checkout");
        assert_string_equal(service, n % 100 < 50 ? "service-0" : "service-1");
    }
    return ++facts->n_blocks != facts->stop_at;
}

/* Each span of the range is passed once, and is at its location. The range begins and ends within
 * blocks. */
static void check_span_facts(struct store_rig *rig, bool with_ids)
{
    struct br_store_query *query = store_rig_ask(rig);
    static struct facts facts;
    facts = (struct facts){.query = query, .with_ids = with_ids};
    assert_int_equal(
        br_store_span_facts(query, BEGAN + 95, BEGAN + 505, with_ids, on_facts, &facts, &rig->err),
        0);
    assert_int_equal(facts.count, 410);
    for (size_t i = 0; i < BR_COUNT(facts.seen); i++)
        assert_int_equal(facts.seen[i], i >= 95 && i < 505);
    for (size_t i = 95; i < 505; i++) {
        struct br_stored_span span;
        bool found;
        assert_int_equal(br_store_span_at(query, facts.places[i].partition, facts.places[i].block,
                                          facts.places[i].index, &span, &found, &rig->err),
                         0);
        assert_true(found);
        assert_int_equal(__builtin_bswap64(span.span_id), i);
        assert_int_equal(span.start_ns, BEGAN + i);
        assert_int_equal(span.end_ns, BEGAN + i + 1000);
    }
    assert_null(query->cut);
    facts = (struct facts){.query = query, .with_ids = with_ids, .stop_at = 2};
    assert_int_equal(
        br_store_span_facts(query, 0, UINT64_MAX, with_ids, on_facts, &facts, &rig->err), 0);
    assert_int_equal(facts.n_blocks, 2);
    store_rig_answered(rig);
}

static void test_span_facts(void **state)
{
    struct store_rig *rig = *state;
    write_thousand(rig);
    check_span_facts(rig, false);
    check_span_facts(rig, true);
    struct br_store_query *query = store_rig_ask(rig);
    uint64_t count;
    assert_int_equal(br_store_count_spans(query, BEGAN + 95, BEGAN + 505, &count, &rig->err), 0);
    assert_true(count >= 410 && count <= 600); /* a block has at most the 100 spans of a write */
    assert_int_equal(br_store_count_spans(query, 0, UINT64_MAX, &count, &rig->err), 0);
    assert_int_equal(count, 1000);
    store_rig_answered(rig);
}

static void test_bytes(void **state)
{
    struct store_rig *rig = *state;
    struct found *found = calloc(1, sizeof *found);
    write_thousand(rig);
    struct br_store_query *query = store_rig_ask(rig);
    struct br_span_filter filter = {.order = BR_SPANS_NEWEST};
    assert_int_equal(br_store_spans(query, &filter, on_span, found, &rig->err), 0);
    assert_int_equal(found->count, 1000);
    for (size_t i = 0; i < found->count; i++) {
        struct br_span_bytes bytes;
        struct br_keyvalue at;
        uint64_t n = number_of(&found->spans[i]);
        assert_int_equal(br_store_span_bytes(query, &found->spans[i], &bytes, &rig->err), 0);
        assert_non_null(br_keyvalue_next(bytes.span, bytes.span + bytes.span_len, 9, &at));
        assert_int_equal(at.key_len, strlen("http.route"));
        struct br_any any = br_any_read(at.value);
        assert_memory_equal(any.data, n % 2 ? "/a" : "/b", 2);
        assert_non_null(
            br_keyvalue_next(bytes.resource, bytes.resource + bytes.resource_len, 1, &at));
        any = br_any_read(at.value);
        assert_memory_equal(any.data, n % 100 < 50 ? "service-0" : "service-1", 9);
        assert_int_equal(bytes.scope_len, 0);
    }
    store_rig_answered(rig);
    free(found);
}

struct names {
    char text[8][64];
    uint64_t counts[8];
    size_t count;
};

static bool on_name(const char *name, uint64_t count, void *arg)
{
    struct names *names = arg;
    assert_true(names->count < BR_COUNT(names->text));
    names->counts[names->count] = count;
    (void)snprintf(names->text[names->count++], sizeof names->text[0], "%s", name);
    return true;
}

static void test_names(void **state)
{
    struct store_rig *rig = *state;
    write_thousand(rig);
    struct br_store_query *query = store_rig_ask(rig);
    struct names names = {.count = 0};
    assert_int_equal(br_store_services(query, 0, 0, on_name, &names, &rig->err), 0);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.text[0], "service-0");
    assert_int_equal(names.counts[0], 500);
    assert_int_equal(names.counts[1], 500);
    /* The range contains spans 10 to 49 and 100 to 109 of service-0. */
    names.count = 0;
    assert_int_equal(br_store_services(query, BEGAN + 10, BEGAN + 110, on_name, &names, &rig->err),
                     0);
    assert_int_equal(names.counts[0], 50);
    assert_int_equal(names.counts[1], 50);
    names.count = 0;
    assert_int_equal(br_store_operations(query, "service-1", 0, 0, on_name, &names, &rig->err), 0);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.text[1], "POST /checkout");
    assert_int_equal(names.counts[0] + names.counts[1], 500);
    names.count = 0;
    assert_int_equal(br_store_span_keys(query, BR_KEYS_OF_SPANS, 0, 0, on_name, &names, &rig->err),
                     0);
    assert_int_equal(names.count, 1);
    assert_string_equal(names.text[0], "http.route");
    names.count = 0;
    assert_int_equal(
        br_store_span_values(query, "http.route", false, 0, 0, on_name, &names, &rig->err), 0);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.text[1], "/b");
    names.count = 0;
    assert_int_equal(
        br_store_span_values(query, "service.name", true, 0, 0, on_name, &names, &rig->err), 0);
    assert_int_equal(names.count, 2);
    store_rig_answered(rig);
    struct br_store_usage usage;
    br_store_usage(rig->store, &usage);
    assert_int_equal(usage.n_spans, 1000);
    assert_int_equal(usage.n_partitions, 4);
    assert_int_equal(usage.spans.oldest_ns, BEGAN);
    assert_int_equal(usage.spans.newest_ns, BEGAN + 999);
}

static bool on_samples(const struct br_stored_samples *samples, void *arg)
{
    uint64_t *count = arg;
    (void)samples;
    ++*count;
    return true;
}

/* Ranges are [from, until). A partition that ends exactly at `from` contributes to the result,
 * and one that begins exactly at `until` does not. The first partition ends with span 299, of
 * service-1. */
static void test_boundaries_of_partitions(void **state)
{
    struct store_rig *rig = *state;
    const uint64_t from = BEGAN + 299, until = BEGAN + 300;
    write_thousand(rig);
    struct br_store_query *query = store_rig_ask(rig);
    struct found *found = calloc(1, sizeof *found);
    struct br_span_filter filter = {.from_ns = from, .until_ns = until};
    assert_int_equal(br_store_spans(query, &filter, on_span, found, &rig->err), 0);
    assert_int_equal(found->count, 1);
    assert_int_equal(number_of(&found->spans[0]), 299);
    free(found);
    struct names names = {.count = 0};
    assert_int_equal(br_store_services(query, from, until, on_name, &names, &rig->err), 0);
    assert_int_equal(names.count, 1);
    assert_string_equal(names.text[0], "service-1");
    names.count = 0;
    assert_int_equal(
        br_store_operations(query, "service-1", from, until, on_name, &names, &rig->err), 0);
    assert_int_equal(names.count, 1);
    assert_int_equal(names.counts[0], 1);
    names.count = 0;
    assert_int_equal(
        br_store_span_keys(query, BR_KEYS_OF_SPANS, from, until, on_name, &names, &rig->err), 0);
    assert_int_equal(names.count, 1);
    store_rig_answered(rig);
    struct br_slice_saved saved;
    char path[256];
    store_rig_path(rig, "slice", path);
    assert_int_equal(br_slice_save(rig->directory, from, until, path, &saved, &rig->err), 0);
    assert_int_equal(saved.n_partitions, 1);
    assert_int_equal(unlink(path), 0);
}

static void test_a_partition_of_one_span(void **state)
{
    struct store_rig *rig = *state;
    struct names names = {.count = 0};
    assert_int_equal(store_rig_items(rig, BR_TRACES, 7, 1), 0);
    struct br_store_query *query = store_rig_ask(rig);
    assert_int_equal(br_store_services(query, 0, 0, on_name, &names, &rig->err), 0);
    assert_int_equal(names.count, 1);
    assert_int_equal(names.counts[0], 1);
    store_rig_answered(rig);
}

static void test_the_last_sample_of_a_partition(void **state)
{
    struct store_rig *rig = *state;
    char path[256];
    struct br_slice_saved saved;
    uint64_t count = 0;
    assert_int_equal(store_rig_items(rig, BR_PROFILES, 0, 10), 0);
    struct br_store_usage usage = store_rig_usage(rig);
    const uint64_t from = usage.samples.newest_ns;
    struct br_sample_filter filter = {.from_ns = from, .until_ns = from + 1, .each = true};
    struct br_store_query *query = store_rig_ask(rig);
    assert_int_equal(br_store_samples(query, &filter, 0, on_samples, &count, &rig->err), 0);
    assert_int_equal(count, 10); /* all ten samples have the same time */
    store_rig_answered(rig);
    store_rig_path(rig, "slice", path);
    assert_int_equal(br_slice_save(rig->directory, from, from + 1, path, &saved, &rig->err), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(br_slice_save(rig->directory, 1, usage.samples.oldest_ns, path, &saved, NULL),
                     BR_ENOTFOUND);
}

SUITE(store)
{
    const struct CMUnitTest tests[] = {TEST(test_trace),
                                       TEST(test_spans),
                                       TEST(test_span_facts),
                                       TEST(test_bytes),
                                       TEST(test_names),
                                       TEST(test_boundaries_of_partitions),
                                       TEST(test_a_partition_of_one_span),
                                       TEST(test_the_last_sample_of_a_partition)};
    return RUN(tests, NULL, NULL);
}
