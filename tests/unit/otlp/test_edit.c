/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares edited requests with protobuf-c. The decoded edited bytes must equal the decoded
 * original bytes after protobuf-c has merged each addition into its span or sample.
 */
#include "base/err.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "otlp/edit/edit.h"
#include "otlp/json/json.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/gen.h"
#include "tests/support/items.h"
#include "tests/support/otlp_text.h"
#include "tests/support/test.h"

typedef Opentelemetry__Proto__Collector__Trace__V1__ExportTraceServiceRequest Traces;
typedef Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
    Profiles;

static int setup(void **state)
{
    *state = fake_host_new();
    return 0;
}

static int teardown(void **state)
{
    fake_host_free(*state);
    return 0;
}

/* --- Expected results from protobuf-c --------------------------------------------------------- */

/* Replaces a message with a copy that has the addition's bytes appended. */
static void merge(void *slot, const struct br_addition *a)
{
    ProtobufCMessage **m = slot;
    if (!a->len)
        return;
    struct wire w = gen_encode(*m);
    wire_raw(&w, a->data, a->len);
    const ProtobufCMessageDescriptor *d = (*m)->descriptor;
    protobuf_c_message_free_unpacked(*m, NULL);
    *m = gen_decode(d, w.data, w.len);
    wire_free(&w);
}

static uint32_t merge_traces(Traces *r, const struct br_addition *a)
{
    uint32_t n = 0;
    for (size_t i = 0; i < r->n_resource_spans; i++)
        for (size_t k = 0; k < r->resource_spans[i]->n_scope_spans; k++)
            for (size_t s = 0; s < r->resource_spans[i]->scope_spans[k]->n_spans; s++)
                merge(&r->resource_spans[i]->scope_spans[k]->spans[s], &a[n++]);
    return n;
}

static uint32_t merge_profiles(Profiles *r, const struct br_addition *a)
{
    uint32_t n = 0;
    for (size_t i = 0; i < r->n_resource_profiles; i++) {
        Opentelemetry__Proto__Profiles__V1development__ResourceProfiles *rp =
            r->resource_profiles[i];
        for (size_t k = 0; k < rp->n_scope_profiles; k++)
            for (size_t p = 0; p < rp->scope_profiles[k]->n_profiles; p++)
                for (size_t s = 0; s < rp->scope_profiles[k]->profiles[p]->n_samples; s++)
                    merge(&rp->scope_profiles[k]->profiles[p]->samples[s], &a[n++]);
    }
    return n;
}

static struct wire expected(enum br_signal signal, const struct wire *original,
                            const struct br_addition *a, uint32_t n)
{
    void *m = gen_decode(br_otlp_request(signal), original->data, original->len);
    assert_int_equal(signal == BR_TRACES ? merge_traces(m, a) : merge_profiles(m, a), n);
    struct wire w = gen_encode(m);
    protobuf_c_message_free_unpacked(m, NULL);
    return w;
}

static void check_same(enum br_signal signal, const struct wire *want, struct br_item *item)
{
    struct wire bytes = gen_written(item);
    void *m = gen_decode(br_otlp_request(signal), bytes.data, bytes.len);
    struct wire got = gen_encode(m);
    assert_int_equal(got.len, want->len);
    if (got.len)
        assert_memory_equal(got.data, want->data, got.len);
    protobuf_c_message_free_unpacked(m, NULL);
    wire_free(&bytes);
    wire_free(&got);
}

/* --- Additions -------------------------------------------------------------------------------- */

static struct br_addition random_addition(struct gen *g, struct br_arena *arena)
{
    static const char value[] = "0123456789012345678901234567890123456789012345678901234567890123";
    struct br_addition a = {0};
    if (g->signal == BR_TRACES) {
        for (unsigned n = gen_below(g, 4); n > 0; n--) {
            if (gen_below(g, 2))
                assert_int_equal(br_add_string(arena, &a, 9, "pyroscope.profile.id", value,
                                               gen_below(g, sizeof value)),
                                 0);
            else
                assert_int_equal(br_add_int(arena, &a, 9, "profile.sample_count",
                                            (int64_t)fake_random(&g->random)),
                                 0);
        }
        return a;
    }
    struct wire w = {0};
    if (gen_below(g, 2)) {
        size_t list = wire_open(&w, 2);
        for (unsigned n = 1 + gen_below(g, 20); n > 0; n--)
            wire_number(&w, gen_below(g, 1000));
        wire_close(&w, list);
    }
    if (gen_below(g, 2))
        wire_varint(&w, 3, gen_below(g, 100000));
    uint8_t *copy = br_arena_alloc(arena, w.len);
    assert_non_null(copy);
    if (w.len)
        memcpy(copy, w.data, w.len);
    a = (struct br_addition){copy, w.len};
    wire_free(&w);
    return a;
}

static void append_all(struct br_item *item, const struct br_addition *a)
{
    for (uint32_t i = 0; i < item->n_parts; i++) {
        struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        assert_int_equal(br_part_append(item, part, a), 0);
        a += part->n_records;
    }
    assert_null(item->spans);
}

static void random_edits(struct fake_host *h, enum br_signal signal, uint64_t seed)
{
    struct wire w = {0};
    struct gen g = {.w = &w, .random = seed, .signal = signal};
    struct br_arena arena;
    br_arena_init(&arena, 0);
    gen_request(&g);
    struct br_item *item = items_walk(&h->host, signal, w.data, w.len);
    uint32_t n = item->n_records;
    struct br_addition *a = br_arena_calloc(&arena, (size_t)n + 1, sizeof *a);
    assert_non_null(a);
    for (uint32_t i = 0; i < n; i++)
        a[i] = random_addition(&g, &arena);
    struct wire want = expected(signal, &w, a, n);
    append_all(item, a);
    assert_int_equal(item->n_records, n);
    check_same(signal, &want, item);
    br_item_free(item);
    wire_free(&want);
    wire_free(&w);
    br_arena_release(&arena);
}

static void edited_traces_contain_the_additions(void **state)
{
    for (uint64_t seed = 1; seed <= 600; seed++)
        random_edits(*state, BR_TRACES, seed);
}

static void edited_profiles_contain_the_additions(void **state)
{
    for (uint64_t seed = 1; seed <= 600; seed++)
        random_edits(*state, BR_PROFILES, seed);
}

/* If an addition sets a scalar that is already set, the value of the addition counts. */
static void the_last_link_index_counts(void **state)
{
    struct fake_host *h = *state;
    struct wire w = {0};
    items_profiles(&w, 1, 1, 1);
    struct br_item *item = items_walk(&h->host, BR_PROFILES, w.data, w.len);
    static const uint8_t link[] = {0x18, 2};
    struct br_addition a = {link, sizeof link};
    for (uint32_t i = 0; i < item->n_parts; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            assert_int_equal(br_part_append(item, &item->parts[i], &a), 0);
    struct wire bytes = gen_written(item);
    Profiles *m = gen_decode(br_otlp_request(BR_PROFILES), bytes.data, bytes.len);
    const Opentelemetry__Proto__Profiles__V1development__Sample *s =
        m->resource_profiles[0]->scope_profiles[0]->profiles[0]->samples[0];
    assert_int_equal(s->link_index, 2);
    assert_int_equal(s->n_values, 1);
    protobuf_c_message_free_unpacked(&m->base, NULL);
    wire_free(&bytes);
    wire_free(&w);
    br_item_free(item);
}

static void a_replaced_resource_is_kept(void **state)
{
    struct fake_host *h = *state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct wire w = {0}, bytes;
        struct gen g = {.w = &w, .random = seed, .signal = BR_TRACES};
        struct br_arena arena;
        br_arena_init(&arena, 0);
        gen_request(&g);
        struct br_item *item = items_walk(&h->host, BR_TRACES, w.data, w.len);
        struct br_buf *buf = otlp_text_service(h->host.pool, "other");
        for (uint32_t i = 0; i < item->n_parts; i++)
            if (item->parts[i].kind == BR_PART_RESOURCE)
                br_item_set_resource(item, &item->parts[i], buf, buf->data, buf->len);
        /* The edit must keep the item's current wire format. */
        bytes = gen_written(item);
        uint32_t n = item->n_records;
        struct br_addition *a = br_arena_calloc(&arena, (size_t)n + 1, sizeof *a);
        assert_non_null(a);
        for (uint32_t i = 0; i < n; i++)
            a[i] = random_addition(&g, &arena);
        struct wire want = expected(BR_TRACES, &bytes, a, n);
        append_all(item, a);
        check_same(BR_TRACES, &want, item);
        for (uint32_t i = 0; i < item->n_parts; i++) {
            size_t len;
            const uint8_t *r = br_part_resource(&item->parts[i], &len);
            if (item->parts[i].kind != BR_PART_RESOURCE)
                continue;
            assert_int_equal(len, buf->len);
            assert_memory_equal(r, buf->data, len);
        }
        br_item_free(item);
        br_arena_release(&arena);
        wire_free(&want);
        wire_free(&bytes);
        br_buf_unref(buf);
        wire_free(&w);
    }
}

/* Pointers into the item's bytes must be valid after an edit, so that another edit can follow. */
static void edits_can_follow_each_other(void **state)
{
    struct fake_host *h = *state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct wire w = {0};
        struct gen g = {.w = &w, .random = seed, .signal = BR_PROFILES};
        struct br_arena arena;
        br_arena_init(&arena, 0);
        gen_request(&g);
        struct br_item *item = items_walk(&h->host, BR_PROFILES, w.data, w.len);
        for (unsigned round = 0; round < 3; round++) {
            uint32_t n = item->n_records;
            struct br_addition *a = br_arena_calloc(&arena, (size_t)n + 1, sizeof *a);
            assert_non_null(a);
            for (uint32_t i = 0; i < n; i++)
                a[i] = random_addition(&g, &arena);
            struct wire before = gen_written(item), want = expected(BR_PROFILES, &before, a, n);
            append_all(item, a);
            check_same(BR_PROFILES, &want, item);
            for (uint32_t i = 0; i < item->n_parts; i++) {
                const struct br_part *part = &item->parts[i];
                size_t len;
                (void)br_part_resource(part, &len);
                assert_int_equal(part->res_len > 0, len > 0);
            }
            wire_free(&before);
            wire_free(&want);
        }
        br_item_free(item);
        br_arena_release(&arena);
        wire_free(&w);
    }
}

static void a_part_with_a_wrong_count_is_rejected(void **state)
{
    struct fake_host *h = *state;
    struct wire w = {0};
    items_traces(&w, 1, 3, 1);
    for (int wrong = -1; wrong <= 1; wrong += 2) {
        static const uint8_t byte[] = {0x30, 1};
        struct br_addition a[4] = {{byte, 2}, {byte, 2}, {byte, 2}, {byte, 2}};
        struct br_item *item = items_walk(&h->host, BR_TRACES, w.data, w.len);
        item->parts[0].n_records = (uint32_t)(3 + wrong);
        assert_int_equal(br_part_append(item, &item->parts[0], a), BR_EINVAL);
        struct wire after = gen_written(item);
        assert_int_equal(after.len, w.len);
        assert_memory_equal(after.data, w.data, w.len);
        wire_free(&after);
        br_item_free(item);
    }
    wire_free(&w);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void without_memory_the_item_is_unchanged(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    struct wire w = {0};
    static const uint8_t link[] = {0x18, 1};
    struct br_addition a[64];
    for (unsigned i = 0; i < 64; i++)
        a[i] = (struct br_addition){link, sizeof link};
    items_profiles(&w, 1, 64, 1);
    unsigned n_failed = 0;
    for (unsigned long n = 1; n <= 8; n++) {
        struct br_item *item = items_walk(&h->host, BR_PROFILES, w.data, w.len);
        fault_nth(n);
        int rc = br_part_append(item, &item->parts[0], a);
        (void)fault_nth_stop();
        assert_true(rc == 0 || rc == BR_ENOMEM);
        struct wire after = gen_written(item);
        if (rc) {
            n_failed++;
            assert_int_equal(after.len, w.len);
            assert_memory_equal(after.data, w.data, w.len);
        } else {
            assert_true(after.len > w.len);
        }
        wire_free(&after);
        br_item_free(item);
        br_pool_trim(h->host.pool);
    }
    /* the allocations of the sizes, and the allocation of the buffer */
    assert_in_range(n_failed, 2, 7);
    wire_free(&w);
    fake_host_free(h);
}

static void additions_without_memory_fail(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct br_arena arena;
        struct br_addition a = {0};
        br_arena_init(&arena, 64);
        assert_int_equal(i ? br_add_string(&arena, &a, 9, "key", "a text of some length", 20)
                           : br_add_int(&arena, &a, 9, "a key of some length", 5),
                         0);
        struct br_addition before = a;
        assert_int_equal(i ? br_add_string(&arena, &a, 9, "key", "a text of some length", 20)
                           : br_add_int(&arena, &a, 9, "a key of some length", 5),
                         BR_ENOMEM);
        assert_ptr_equal(a.data, before.data);
        assert_int_equal(a.len, before.len);
        br_arena_release(&arena);
    }
}

SUITE(edit)
{
    const struct CMUnitTest tests[] = {
        TEST(edited_traces_contain_the_additions),
        TEST(edited_profiles_contain_the_additions),
        TEST(the_last_link_index_counts),
        TEST(a_replaced_resource_is_kept),
        TEST(edits_can_follow_each_other),
        TEST(a_part_with_a_wrong_count_is_rejected),
        cmocka_unit_test(without_memory_the_item_is_unchanged),
        cmocka_unit_test(additions_without_memory_fail),
    };
    return RUN(tests, NULL, NULL);
}
