/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of fields does not change the meaning of a request. Requests with rising, falling and
 * shuffled fields give the same list of spans, merged and split requests, pprofs, JSON and query
 * results of a store. Messages are compared in rising order; the bytes of pprofs are equal.
 */
#include <inttypes.h>

#include "base/mem.h"
#include "otlp/json/json.h"
#include "otlp/walk/walk.h"
#include "profile/pprof/write.h"
#include "query/flame_output.h"
#include "tests/support/fake_host.h"
#include "tests/support/gen.h"
#include "tests/support/items.h"
#include "tests/support/join_rig.h"
#include "tests/support/store_rig.h"
#include "tests/support/test.h"

#define SEEDS 60
#define STORED_SEEDS 6 /* number of seeds; it is small because a store waits for the disk */

/* --- Requests --------------------------------------------------------------------------------- */

static struct wire copy_of(const struct wire *w)
{
    struct wire copy = {0};
    wire_raw(&copy, w->data, w->len);
    return copy;
}

/* Creates request number `seed`: random fields, typical requests of profilers and SDKs, or a
 * span with thread attributes. */
static void make_request(struct wire *w, enum br_signal signal, uint64_t seed)
{
    struct gen g = {.w = w, .random = seed, .signal = signal};
    wire_clear(w);
    if (seed % 3 == 0) {
        gen_request(&g);
    } else if (seed % 3 == 1 || signal == BR_PROFILES) {
        items_request(w, signal, seed, (uint32_t)(1 + seed % 20), 2);
    } else {
        struct open o = open_resource(w, "shop", "1", "host.id", "h");
        put_span(w, &(struct span_in){.ids = join_ids(seed, seed + 1),
                                      .name = "a",
                                      .kind = 2,
                                      .status = 2,
                                      .start_ns = 5,
                                      .end_ns = 7,
                                      .attributes = {"a", "b", "thread.id", "9", "c", "d"}});
        close_resource(w, o);
    }
}

typedef void check_fn(struct fake_host *h, const struct wire *plain, const struct wire *ordered,
                      enum br_signal signal);

static void each_request_of(enum br_signal signal, uint64_t n_seeds, check_fn *check)
{
    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        struct wire w = {0};
        make_request(&w, signal, seed);
        for (unsigned order = REORDER_RISING; order < REORDERS; order++) {
            struct fake_host *h = fake_host_new();
            struct wire other = copy_of(&w);
            uint64_t random = seed;
            reorder_request(&other, signal, (enum reorder)order, &random);
            check(h, &w, &other, signal);
            wire_free(&other);
            fake_host_free(h);
        }
        wire_free(&w);
    }
}

static void each_request(enum br_signal signal, check_fn *check)
{
    each_request_of(signal, SEEDS, check);
}

static void assert_same_request(const struct wire *a, const struct wire *b, enum br_signal signal)
{
    struct wire x = copy_of(a), y = copy_of(b);
    uint64_t random = 0;
    reorder_request(&x, signal, REORDER_RISING, &random);
    reorder_request(&y, signal, REORDER_RISING, &random);
    assert_int_equal(x.len, y.len);
    if (x.len)
        assert_memory_equal(x.data, y.data, x.len);
    wire_free(&x);
    wire_free(&y);
}

static struct br_item *walk(struct fake_host *h, const struct wire *w, enum br_signal signal)
{
    return items_walk(&h->host, signal, w->data, w->len);
}

/* --- Comparison of the results ---------------------------------------------------------------- */

static bool same_bytes(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    return a_len == b_len && (!a_len || memcmp(a, b, a_len) == 0);
}

static void check_spans(struct fake_host *h, const struct wire *plain, const struct wire *ordered,
                        enum br_signal signal)
{
    struct br_item *a = walk(h, plain, signal), *b = walk(h, ordered, signal);
    assert_int_equal(a->n_records, b->n_records);
    assert_int_equal(a->n_parts, b->n_parts);
    for (uint32_t i = 0; signal == BR_TRACES && i < a->n_records; i++) {
        const struct br_span *x = &a->spans[i], *y = &b->spans[i];
        assert_memory_equal(&x->head, &y->head, sizeof x->head);
        assert_true(same_bytes(x->name, x->name_len, y->name, y->name_len));
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->status, y->status);
        assert_int_equal(x->thread_id != NULL, y->thread_id != NULL);
        assert_int_equal(x->thread_name != NULL, y->thread_name != NULL);
        assert_int_equal(x->body_len, y->body_len);
    }
    br_item_free(a);
    br_item_free(b);
}

static void the_lists_of_spans_are_equal(void **state)
{
    (void)state;
    each_request(BR_TRACES, check_spans);
    each_request(BR_PROFILES, check_spans);
}

static int add_pprof(const struct br_pprof_out *p, void *arg)
{
    wire_len(arg, 1, p->buf->data, p->buf->len);
    wire_str(arg, 2, p->name);
    wire_varint(arg, 3, p->time_ns);
    return 0;
}

static struct wire pprofs(struct fake_host *h, const struct wire *w)
{
    struct wire out = {0};
    struct br_pprof_writer *writer = br_pprof_writer_new(&h->host);
    struct br_item *item = walk(h, w, BR_PROFILES);
    assert_int_equal(br_item_inline_references(item), 0);
    assert_int_equal(br_pprof_write(writer, item, NULL, add_pprof, &out), 0);
    br_item_free(item);
    br_pprof_writer_free(writer);
    return out;
}

/* Compares two requests by their pprofs, because dictionary entries are numbered in the order of
 * use. */
static void assert_same_pprofs(struct fake_host *h, const struct wire *plain,
                               const struct wire *ordered)
{
    struct wire a = pprofs(h, plain), b = pprofs(h, ordered);
    assert_true(same_bytes(a.data, a.len, b.data, b.len));
    wire_free(&a);
    wire_free(&b);
}

static struct wire merged(struct fake_host *h, const struct wire *w)
{
    struct br_merge *m = br_merge_new(&h->host, 64u << 20);
    struct br_item *item = walk(h, w, BR_PROFILES), *into = br_item_new(&h->host, BR_PROFILES);
    assert_int_equal(br_merge_add(m, item), 0);
    assert_int_equal(br_merge_take(m, into), 0);
    struct wire out = gen_written(into);
    br_item_free(item);
    br_item_free(into);
    br_merge_free(m);
    return out;
}

static void check_merged(struct fake_host *h, const struct wire *plain, const struct wire *ordered,
                         enum br_signal signal)
{
    struct wire a = merged(h, plain), b = merged(h, ordered);
    (void)signal;
    assert_same_pprofs(h, &a, &b);
    wire_free(&a);
    wire_free(&b);
}

static void merged_requests_are_equal(void **state)
{
    (void)state;
    each_request(BR_PROFILES, check_merged);
}

/* Appends a piece. The pieces of a trace request form one message again; a piece of profiles is
 * appended as pprof. */
static int take_piece(struct br_item *piece, void *arg)
{
    struct wire out = gen_written(piece);
    if (piece->signal == BR_TRACES) {
        wire_raw(arg, out.data, out.len);
    } else {
        struct wire pprof = pprofs((struct fake_host *)(void *)piece->host, &out);
        wire_raw(arg, pprof.data, pprof.len);
        wire_free(&pprof);
    }
    wire_free(&out);
    br_item_free(piece);
    return 0;
}

static struct wire cut(struct fake_host *h, const struct wire *w, enum br_signal signal)
{
    struct br_item *item = walk(h, w, signal);
    struct wire out = {0};
    assert_int_equal(signal == BR_TRACES ? br_traces_split(item, 3, 0, take_piece, &out)
                                         : br_profiles_split(item, 3, 0, take_piece, &out),
                     0);
    br_item_free(item);
    return out;
}

static void check_pieces(struct fake_host *h, const struct wire *plain, const struct wire *ordered,
                         enum br_signal signal)
{
    struct wire a = cut(h, plain, signal), b = cut(h, ordered, signal);
    if (signal == BR_TRACES)
        assert_same_request(&a, &b, signal);
    else
        assert_true(same_bytes(a.data, a.len, b.data, b.len));
    wire_free(&a);
    wire_free(&b);
}

static void split_requests_are_equal(void **state)
{
    (void)state;
    each_request(BR_TRACES, check_pieces);
    each_request(BR_PROFILES, check_pieces);
}

static void check_pprofs(struct fake_host *h, const struct wire *plain, const struct wire *ordered,
                         enum br_signal signal)
{
    (void)signal;
    assert_same_pprofs(h, plain, ordered);
}

static void pprofs_are_equal(void **state)
{
    (void)state;
    each_request(BR_PROFILES, check_pprofs);
}

/* Converts to JSON and back. JSON drops unknown fields. */
static struct wire through_json(struct fake_host *h, const struct wire *w, enum br_signal signal)
{
    struct br_str text = {0};
    struct br_err err = {0};
    struct br_buf *buf = NULL;
    struct wire out = {0};
    assert_int_equal(br_json_encode(br_otlp_request(signal), w->data, w->len, &text), 0);
    assert_int_equal(br_json_decode(br_otlp_request(signal), text.data, text.len, 64, 1u << 24,
                                    h->host.pool, &buf, &err),
                     0);
    wire_raw(&out, buf->data, buf->len);
    br_buf_unref(buf);
    br_str_release(&text);
    return out;
}

static void check_json(struct fake_host *h, const struct wire *plain, const struct wire *ordered,
                       enum br_signal signal)
{
    struct wire a = through_json(h, plain, signal), b = through_json(h, ordered, signal);
    assert_same_request(&a, &b, signal);
    wire_free(&a);
    wire_free(&b);
}

static void json_is_equal(void **state)
{
    (void)state;
    each_request(BR_TRACES, check_json);
    each_request(BR_PROFILES, check_json);
}

/* --- Query results of a store ----------------------------------------------------------------- */

struct results {
    char *lines[4096];
    size_t count;
};

static void add_line(struct results *results, struct br_str *line)
{
    assert_true(results->count < BR_COUNT(results->lines) && line->data);
    results->lines[results->count++] = strdup(line->data);
    br_str_release(line);
}

static bool on_span(const struct br_stored_span *span, void *arg)
{
    struct br_str line = {0};
    br_str_printf(&line, "span ");
    for (size_t i = 0; i < sizeof span->trace_id; i++)
        br_str_printf(&line, "%02x", span->trace_id[i]);
    br_str_printf(&line,
                  " %" PRIx64 " below %" PRIx64 " %" PRIu64 "-%" PRIu64 " %s: %s kind %u status %u",
                  span->span_id, span->parent_id, span->start_ns, span->end_ns, span->service,
                  span->name, span->kind, span->status);
    add_line(arg, &line);
    return true;
}

static bool on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct br_str line = {0};
    br_str_printf(&line, "samples %" PRIx64 " at %" PRIu64 ": %" PRIu64 " of %" PRId64,
                  samples->span_id, samples->time_ns, samples->count, samples->value);
    for (size_t i = 0; i < samples->series->n_labels; i++)
        br_str_printf(&line, " %s=%s", samples->series->labels[i].name,
                      samples->series->labels[i].value);
    add_line(arg, &line);
    return true;
}

static bool on_key(const char *name, uint64_t count, void *arg)
{
    struct br_str line = {0};
    (void)count;
    br_str_printf(&line, "key %s", name);
    add_line(arg, &line);
    return true;
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Writes the request to a new store and returns its query results as sorted lines. */
static void query_store(const struct wire *w, enum br_signal signal, struct results *ret)
{
    struct store_rig rig = {0};
    struct wire request = copy_of(w);
    struct br_flame flame;
    struct br_str folded = {0};
    store_rig_init(&rig, 0);
    assert_int_equal(store_rig_write(&rig, signal, &request), 0);
    struct br_store_query *query = store_rig_ask(&rig);
    const struct br_span_filter spans = {0};
    const struct br_sample_filter samples = {0};
    assert_int_equal(br_store_spans(query, &spans, on_span, ret, &rig.err), 0);
    assert_int_equal(br_store_span_keys(query, BR_KEYS_OF_SPANS, 0, 0, on_key, ret, &rig.err), 0);
    assert_int_equal(br_store_span_keys(query, BR_KEYS_OF_RESOURCES, 0, 0, on_key, ret, &rig.err),
                     0);
    assert_int_equal(br_store_samples(query, &samples, 0, on_samples, ret, &rig.err), 0);
    assert_int_equal(br_flame_init(&flame, 10000), 0);
    assert_int_equal(br_store_flame(query, &samples, &flame, &rig.err), 0);
    br_flame_total(&flame);
    br_flame_folded(&folded, &flame);
    for (char *line = folded.data ? strtok(folded.data, "\n") : NULL; line;
         line = strtok(NULL, "\n")) {
        struct br_str copy = {0};
        br_str_printf(&copy, "stack %s", line);
        add_line(ret, &copy);
    }
    br_str_release(&folded);
    br_flame_release(&flame);
    store_rig_answered(&rig);
    store_rig_release(&rig);
    wire_free(&request);
    qsort(ret->lines, ret->count, sizeof *ret->lines, compare_lines);
}

static size_t n_results; /* number of lines that the test compared; it must not be 0 */

static void check_stored(struct fake_host *h, const struct wire *plain, const struct wire *ordered,
                         enum br_signal signal)
{
    struct results *both = calloc(2, sizeof *both);
    (void)h;
    assert_non_null(both);
    query_store(plain, signal, &both[0]);
    query_store(ordered, signal, &both[1]);
    assert_int_equal(both[0].count, both[1].count);
    n_results += both[0].count;
    for (size_t i = 0; i < both[0].count; i++) {
        assert_string_equal(both[0].lines[i], both[1].lines[i]);
        free(both[0].lines[i]);
        free(both[1].lines[i]);
    }
    free(both);
}

static void query_results_are_equal(void **state)
{
    static const enum br_signal signals[] = {BR_TRACES, BR_PROFILES};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(signals); i++) {
        n_results = 0;
        each_request_of(signals[i], STORED_SEEDS, check_stored);
        assert_true(n_results > 50);
    }
}

SUITE(field_order)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lists_of_spans_are_equal),
        cmocka_unit_test(merged_requests_are_equal),
        cmocka_unit_test(split_requests_are_equal),
        cmocka_unit_test(pprofs_are_equal),
        cmocka_unit_test(json_is_equal),
        cmocka_unit_test(query_results_are_equal),
    };
    return RUN(tests, NULL, NULL);
}
