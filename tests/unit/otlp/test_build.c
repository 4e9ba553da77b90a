/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares built requests with requests written by hand after the .proto files. The walk over the
 * bytes must find the same parts as the builder recorded.
 */
#include "tests/support/profiles_request.h"

#include "base/arena.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "otlp/build/build.h"
#include "otlp/build/internal.h"
#include "otlp/json/json.h"
#include "tests/support/fake_sink.h"
#include "tests/support/gen.h"
#include "tests/support/test.h"

typedef Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
    Request;

static const uint8_t trace[] = "0123456789abcdef", span[] = "01234567", id[] = "fedcba9876543210";

static uint32_t string(struct br_build *b, const char *s)
{
    return br_build_string(b, s, strlen(s));
}

/* Builds every kind of entry and message, with every field. */
static void build_all(struct br_build *b)
{
    struct br_arena arena = {0};
    struct br_addition resource = {0}, scope = {0};
    const int64_t order[] = {1, 0, 300};
    const struct br_addition comments[] = {{(const uint8_t *)"one", 3}, {NULL, 0}};
    int rc = br_add_string(&arena, &resource, 1, "service.name", "shop", 4);
    rc |= br_add_int(&arena, &scope, 3, "yes", 1);
    rc |= br_add_ints(&arena, &scope, 3, "order", order, 3);
    rc |= br_add_texts(&arena, &scope, 3, "comments", comments, 2);
    if (rc)
        br_merger_fail(&b->merge, BR_ENOMEM);

    static const char *const names[] = {"thread",  "bytes",    "By",         "folded",
                                        "notes",   "/bin/app", "main",       "_main",
                                        "main.go", "cpu",      "nanoseconds"};
    uint32_t s[BR_COUNT(names)];
    for (size_t i = 0; i < BR_COUNT(names); i++)
        s[i] = string(b, names[i]);
    const uint32_t attributes[] = {
        br_build_attribute_text(b, s[0], "worker", 6), br_build_attribute_int(b, s[1], -1, s[2]),
        br_build_attribute_bool(b, s[3], false), br_build_attribute_texts(b, s[4], comments, 2)};
    const struct br_build_mapping mapping = {.memory_start = 4096,
                                             .memory_limit = 8192,
                                             .file_offset = 1,
                                             .filename = s[5],
                                             .attributes = attributes,
                                             .n_attributes = 1};
    uint32_t function = br_build_function(b, s[6], s[7], s[8], 7);
    const struct br_build_line lines[] = {{function, 9, 2}, {0, -1, 0}};
    const struct br_build_location location = {.mapping = br_build_mapping(b, &mapping),
                                               .address = 4100,
                                               .lines = lines,
                                               .n_lines = 2,
                                               .attributes = attributes + 2,
                                               .n_attributes = 1};
    const uint32_t stack[] = {br_build_location(b, &location), 0};
    const int64_t values[] = {5, -1};
    const uint64_t times[] = {1, 2};
    const struct br_build_sample sample = {.stack = br_build_stack(b, stack, 2),
                                           .link = br_build_link(b, trace, span),
                                           .attributes = attributes,
                                           .n_attributes = 4,
                                           .values = values,
                                           .n_values = 2,
                                           .times_ns = times,
                                           .n_times = 2};
    const struct br_build_sample other = {.values = values, .n_values = 1};
    const struct br_build_profile profile = {.type = s[9],
                                             .unit = s[10],
                                             .period_type = s[9],
                                             .period = 10,
                                             .time_ns = 1000,
                                             .duration_ns = 99,
                                             .profile_id = id,
                                             .attributes = attributes,
                                             .n_attributes = 1};
    const struct br_build_profile bare = {.type = profile.type};
    br_build_resource(b, &resource);
    br_build_scope(b, "pprof", "1.0", &scope);
    br_build_profile(b, &profile);
    br_build_sample(b, &sample);
    br_build_sample(b, &other);
    br_build_profile(b, &bare);
    br_build_scope(b, NULL, "", NULL);
    br_build_resource(b, NULL);
    br_build_scope(b, NULL, NULL, NULL);
    br_build_profile(b, &bare);
    br_build_sample(b, &other);
    br_arena_release(&arena);
}

static struct message *pair(uint32_t field, const char *key, struct message *value)
{
    return nest(field, text(1, key), value, END);
}

static struct message *fixed64(uint32_t field, uint64_t v)
{
    struct message *m = new_message(9);
    *m->data = (uint8_t)BR_TAG(field, BR_WIRE_I64);
    memcpy(m->data + 1, &v, 8);
    m->len = 9;
    return m;
}

/* Returns the scope that build_all writes. */
static struct message *whole_scope(void)
{
    struct message *order = nest(5, nest(1, number(3, 1), END), nest(1, number(3, 0), END),
                                 nest(1, number(3, 300), END), END);
    struct message *comments =
        nest(5, nest(1, text(1, "one"), END), nest(1, text(1, ""), END), END);
    return nest(1, text(1, "pprof"), text(2, "1.0"), pair(3, "yes", nest(2, number(3, 1), END)),
                pair(3, "order", nest(2, order, END)), pair(3, "comments", nest(2, comments, END)),
                END);
}

static struct message *whole_profiles(void)
{
    struct message *sample = nest(2, number(1, 1), bytes(2, "\1\2\3\4", 4), number(3, 1),
                                  bytes(4, "\5\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 11),
                                  bytes(5, "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16), END);
    struct message *other = nest(2, bytes(4, "\5", 1), END);
    struct message *profile = nest(2, nest(1, number(1, 10), number(2, 11), END), fixed64(3, 1000),
                                   number(4, 99), nest(5, number(1, 10), END), number(6, 10),
                                   bytes(7, id, 16), bytes(11, "\1", 1), sample, other, END);
    struct message *type = nest(1, number(1, 10), END);
    struct message *resource = nest(1, pair(1, "service.name", nest(2, text(1, "shop"), END)), END);
    struct message *first =
        nest(1, resource, nest(2, whole_scope(), profile, nest(2, type, END), END), bytes(2, "", 0),
             END);
    return join(first, nest(1, nest(2, nest(2, type, other, END), END), END));
}

static struct message *whole_dictionary(void)
{
    static const char *const strings[] = {"thread",  "bytes",    "By",         "folded",
                                          "notes",   "/bin/app", "main",       "_main",
                                          "main.go", "cpu",      "nanoseconds"};
    struct message *d =
        join(bytes(MAPPING, "", 0), nest(MAPPING, number(1, 4096), number(2, 8192), number(3, 1),
                                         number(4, 6), bytes(5, "\1", 1), END));
    d = join(d, bytes(LOCATION, "", 0));
    d = join(d, nest(LOCATION, number(1, 1), number(2, 4100),
                     nest(3, number(1, 1), number(2, 9), number(3, 2), END),
                     nest(3, number(2, UINT64_MAX), END), bytes(4, "\3", 1), END));
    d = join(d, bytes(FUNCTION, "", 0));
    d = join(d, nest(FUNCTION, number(1, 7), number(2, 8), number(3, 9), number(4, 7), END));
    d = join(d, bytes(LINK, "", 0));
    d = join(d, nest(LINK, bytes(1, trace, 16), bytes(2, span, 8), END));
    d = join(d, bytes(STRING, "", 0));
    for (size_t i = 0; i < BR_COUNT(strings); i++)
        d = join(d, text(STRING, strings[i]));
    d = join(d, bytes(ATTRIBUTE, "", 0));
    d = join(d, nest(ATTRIBUTE, number(1, 1), nest(2, text(1, "worker"), END), END));
    d = join(d,
             nest(ATTRIBUTE, number(1, 2), nest(2, number(3, UINT64_MAX), END), number(3, 3), END));
    d = join(d, nest(ATTRIBUTE, number(1, 4), nest(2, number(2, 0), END), END));
    d = join(
        d, nest(ATTRIBUTE, number(1, 5),
                nest(2, nest(5, nest(1, text(1, "one"), END), nest(1, text(1, ""), END), END), END),
                END));
    d = join(d, bytes(STACK, "", 0));
    return nest(2, join(d, nest(STACK, bytes(1, "\1\0", 2), END)), END);
}

static struct br_item *take(struct br_build *b)
{
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    assert_non_null(item);
    assert_int_equal(br_build_take(b, item), 0);
    return item;
}

/* Asserts that the walk finds the item's parts in the item's bytes. */
static void check_parts(const struct br_item *item)
{
    struct flat f = flatten(item);
    struct br_item *other = br_item_new(&host, BR_PROFILES);
    struct br_walk_options options = {.utf8 = BR_UTF8_REJECT};
    struct br_err err = {0};
    uint32_t repaired;
    if (br_walk(other, f.buf, f.data, f.len, &options, &repaired, &err))
        fail_msg("%s", err.text);
    assert_int_equal(item->n_records, other->n_records);
    assert_int_equal(item->n_parts, other->n_parts);
    assert_int_equal(item->size, other->size);
    for (uint32_t i = 0; i < item->n_parts; i++) {
        struct br_part a = item->parts[i], b = other->parts[i];
        assert_int_equal(a.raw_len, b.raw_len);
        assert_memory_equal(a.raw, b.raw, a.raw_len);
        a.buf = b.buf;
        a.raw = b.raw;
        assert_int_equal(a.kind, b.kind);
        assert_int_equal(a.additions, b.additions);
        assert_int_equal(a.n_records, b.n_records);
        assert_int_equal(a.body_at, b.body_at);
        assert_int_equal(a.res_at, b.res_at);
        assert_int_equal(a.res_len, b.res_len);
        assert_int_equal(a.res_body_at, b.res_body_at);
        assert_null(a.new_resource);
    }
    br_item_free(other);
    br_buf_unref(f.buf);
}

static void test_bytes(void **state)
{
    (void)state;
    struct br_build *b = br_build_new(&host, 1 << 20);
    for (unsigned round = 0; round < 3; round++) {
        build_all(b);
        assert_int_equal(br_build_rc(b), 0);
        assert_int_equal(br_build_records(b), 3);
        if (round == 1) { /* data that was cleared is not in the output */
            br_build_clear(b);
            assert_int_equal(br_build_records(b), 0);
            build_all(b);
        }
        struct br_item *item = take(b);
        check_parts(item);
        assert_is(item, join(whole_profiles(), whole_dictionary()));
        free_messages();
    }
    br_build_free(b);
}

/* Adds many entries of each kind under a resource that stays open. */
static void build_more(struct br_build *b)
{
    const int64_t value = 1;
    br_build_resource(b, NULL);
    br_build_scope(b, "more", NULL, NULL);
    br_build_profile(b, &(struct br_build_profile){0});
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t text = br_build_string(b, &i, sizeof i);
        struct br_build_line line = {.function = br_build_function(b, text, 0, 0, i)};
        uint32_t location = br_build_location(
            b, &(struct br_build_location){.address = i + 1, .lines = &line, .n_lines = 1});
        uint32_t stack = br_build_stack(b, &location, 1);
        br_build_sample(b,
                        &(struct br_build_sample){.stack = stack, .values = &value, .n_values = 1});
    }
}

/* Data that was undone is not in the output, even after a failure. Entries that are built later
 * have the same numbers as without it. */
static void test_undo(void **state)
{
    (void)state;
    struct br_build *b = br_build_new(&host, 1 << 20);
    const int failures[] = {0, BR_EINVAL, BR_EFULL};
    for (size_t i = 0; i < BR_COUNT(failures); i++) {
        br_build_mark(b);
        build_more(b);
        br_build_undo(b);
        build_all(b);
        br_build_mark(b);
        build_more(b);
        if (failures[i])
            br_merger_fail(&b->merge, failures[i]);
        br_build_undo(b);
        assert_int_equal(br_build_rc(b), 0);
        assert_int_equal(br_build_records(b), 3);
        assert_int_equal(string(b, "nanoseconds"), 11); /* the index in whole_dictionary */
        struct br_item *item = take(b);
        check_parts(item);
        assert_is(item, join(whole_profiles(), whole_dictionary()));
        free_messages();
    }
    br_build_undo(b); /* taking the item removed the mark */
    assert_int_equal(br_build_records(b), 0);
    br_merger_fail(&b->merge, BR_EINVAL);
    br_build_mark(b);
    br_build_undo(b);
    assert_int_equal(br_build_rc(b), BR_EINVAL);
    br_build_clear(b);
    assert_true(br_build_memory(b) > 0 && br_build_memory(b) <= 1 << 20);
    br_build_free(b);
}

/* Equal entries share one index, and empty entries have index 0. An empty builder gives an empty
 * item. */
static void test_equal_entries(void **state)
{
    (void)state;
    struct br_build *b = br_build_new(&host, 1 << 20);
    struct br_item *none = take(b);
    assert_int_equal(none->n_parts, 0);
    br_item_free(none);
    assert_int_equal(br_build_string(b, "", 0), 0);
    assert_int_equal(br_build_string(b, NULL, 0), 0);
    assert_int_equal(br_build_function(b, 0, 0, 0, 0), 0);
    assert_int_equal(br_build_mapping(b, &(struct br_build_mapping){0}), 0);
    assert_int_equal(br_build_location(b, &(struct br_build_location){0}), 0);
    assert_int_equal(br_build_stack(b, NULL, 0), 0);
    assert_int_equal(br_build_link(b, NULL, (const uint8_t[8]){0}), 0);
    assert_int_equal(br_build_link(b, NULL, span), 1);
    assert_int_equal(br_build_link(b, (const uint8_t[16]){0}, span), 1);
    assert_int_equal(br_build_link(b, trace, span), 2);
    build_all(b);
    build_all(b);
    struct br_item *item = take(b);
    const uint32_t n[BR_TABLES] = {2, 2, 2, 3, 12, 5, 2};
    tables_are(item, n);
    assert_int_equal(item->n_records, 6);
    check_parts(item);
    br_item_free(item);
    br_build_free(b);
}

/* Builds 3,000 samples of a thousand stacks, so that lengths take one, two and three bytes, and
 * some messages turn out longer than the builder first assumed. protobuf-c reads the result. */
static void test_many_samples(void **state)
{
    (void)state;
    struct br_build *b = br_build_new(&host, 32 << 20);
    char name[200];
    br_build_resource(b, NULL);
    br_build_scope(b, NULL, NULL, NULL);
    br_build_profile(b, &(struct br_build_profile){0});
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t stack[300];
        uint32_t n = i % 1000 < 300 ? i % 1000 : 1;
        memset(name, 'x', sizeof name);
        int len = snprintf(name, sizeof name, "%u", i % 1000);
        name[len] = 'x';
        uint32_t s = br_build_string(b, name, i % sizeof name < 10 ? 10 : i % sizeof name);
        const struct br_build_line line = {br_build_function(b, s, 0, 0, i % 1000), 1, 0};
        uint32_t l =
            br_build_location(b, &(struct br_build_location){.lines = &line, .n_lines = 1});
        for (uint32_t k = 0; k < n; k++)
            stack[k] = l;
        const int64_t value = i;
        br_build_sample(b, &(struct br_build_sample){.stack = br_build_stack(b, stack, n),
                                                     .values = &value,
                                                     .n_values = 1});
    }
    struct br_item *item = take(b);
    check_parts(item);
    struct flat f = flatten(item);
    Request *r = gen_decode(br_otlp_request(BR_PROFILES), f.data, f.len);
    assert_non_null(r);
    assert_int_equal(r->dictionary->n_function_table, 1001);
    assert_int_equal(r->resource_profiles[0]->scope_profiles[0]->profiles[0]->n_samples, 3000);
    for (uint32_t i = 0; i < 3000; i++) {
        Opentelemetry__Proto__Profiles__V1development__Sample *s =
            r->resource_profiles[0]->scope_profiles[0]->profiles[0]->samples[i];
        Opentelemetry__Proto__Profiles__V1development__Stack *stack =
            r->dictionary->stack_table[s->stack_index];
        assert_int_equal(s->values[0], i);
        assert_int_equal(stack->n_location_indices, i % 1000 < 300 ? i % 1000 : 1);
        if (!stack->n_location_indices)
            continue;
        Opentelemetry__Proto__Profiles__V1development__Location *l =
            r->dictionary->location_table[stack->location_indices[0]];
        assert_int_equal(r->dictionary->function_table[l->lines[0]->function_index]->start_line,
                         i % 1000);
    }
    protobuf_c_message_free_unpacked(&r->base, NULL);
    br_buf_unref(f.buf);
    br_item_free(item);
    br_build_free(b);
}

/* Adds `total` locations, whose indices are 1 to `total`. */
static void add_locations(struct br_build *b, uint32_t total)
{
    for (uint32_t i = 1; i <= total; i++)
        assert_int_equal(br_build_location(b, &(struct br_build_location){.address = i}), i);
}

/* Compares br_build_stack_packed with br_build_stack of the same numbers. The packed list ends
 * at the end of readable memory. */
static void check_packed(struct br_build *b, const uint32_t *numbers, size_t n,
                         const uint32_t *places, uint32_t n_places)
{
    uint8_t memory[1024], *o = memory + 1;
    uint32_t indices[64], got = UINT32_MAX;
    bool representable = true;
    memory[0] = 0x7f;
    for (size_t i = 0; i < n; i++) {
        o = br_put_varint(o, numbers[i]);
        bool known =
            numbers[i] > 0 && numbers[i] < n_places &&
            (places ? places[numbers[i]] != 0 && numbers[i] < 1 << 14 : numbers[i] < 1 << 14);
        indices[i] = known ? numbers[i] : 0;
        if (known && places)
            indices[i] = places[numbers[i]] - 1;
        representable = representable && known;
    }
    size_t len = (size_t)(o - memory - 1);
    uint8_t *exact = malloc(1 + len + 16);
    assert_non_null(exact);
    memcpy(exact, memory, 1 + len);
    memset(exact + 1 + len, 0x80 | (int)(n & 1), 16);
    bool ok = br_build_stack_packed(b, exact + 1, len, places, n_places, &got);
    if (ok != representable)
        fail_msg("%zu numbers from %u: %d", n, n ? numbers[0] : 0, ok);
    if (ok)
        assert_int_equal(got, br_build_stack(b, indices, n));
    free(exact);
}

static void test_packed(void **state)
{
    (void)state;
    struct br_build *b = br_build_new(&host, 64 << 20);
    static uint32_t places[20001];
    uint64_t random = 1;
    add_locations(b, 20000);
    for (uint32_t i = 1; i <= 20000; i++)
        places[i] = i % 50 == 49 ? 0 : 20001 - i + 1;
    for (unsigned round = 0; round < 20000; round++) {
        uint32_t numbers[64], n = (uint32_t)(fake_random(&random) % 64);
        uint32_t below = (uint32_t[]){2, 100, 300, 16384, 20000}[round % 5];
        for (uint32_t i = 0; i < n; i++)
            numbers[i] = 1 + (uint32_t)(fake_random(&random) % (below - 1));
        if (n && round % 3 == 0)
            numbers[fake_random(&random) % n] =
                (uint32_t[]){0, below, 127, 128, 16383, 16384}[round % 6];
        check_packed(b, numbers, n, NULL, below);
        check_packed(b, numbers, n, places, below);
    }
    /* Numbers of the list are cut off, overlong, or larger than the number of locations. */
    static const uint8_t cut[33] = {1, 5, 0x80}, overlong[33] = {1, 0x81, 0x00},
                         wide[33] = {1, 0x81, 0x80, 0x01};
    uint32_t got;
    assert_false(br_build_stack_packed(b, cut + 1, 2, NULL, 20001, &got));
    assert_false(br_build_stack_packed(b, cut + 1, 2, places, 20001, &got));
    assert_false(br_build_stack_packed(b, overlong + 1, 2, NULL, 20001, &got));
    assert_false(br_build_stack_packed(b, wide + 1, 3, NULL, 20001, &got));
    assert_false(br_build_stack_packed(b, wide + 1, 3, places, 20001, &got));
    assert_false(br_build_stack_packed(b, cut + 1, 1, NULL, 20002, &got));
    assert_true(br_build_stack_packed(b, overlong + 1, 2, places, 20001, &got)); /* decoded as 1 */
    assert_int_equal(got, br_build_stack(b, (const uint32_t[]){20000}, 1));
    assert_int_equal(br_build_rc(b), 0);
    br_build_free(b);
}

/* In every string, each byte that is not part of a valid sequence becomes U+FFFD. */
static void test_utf8(void **state)
{
    (void)state;
    struct br_build *b = br_build_new(&host, 1 << 20);
    struct br_arena arena = {0};
    struct br_addition resource = {0}, scope = {0};
    const struct br_addition texts[] = {{(const uint8_t *)"\xff", 1}, {(const uint8_t *)"ok", 2}};
    assert_int_equal(br_add_string(&arena, &resource, 1, "k\xff", "a\xc3", 2), 0);
    assert_int_equal(br_add_texts(&arena, &scope, 3, "k", texts, 2), 0);
    uint32_t s = br_build_string(b, "a\xe2\x82z", 4);
    assert_int_equal(s, br_build_string(b, "a\xef\xbf\xbd\xef\xbf\xbdz", 8));
    assert_int_equal(br_build_attribute_text(b, s, "\xfe", 1),
                     br_build_attribute_text(b, s, "\xef\xbf\xbd", 3));
    uint32_t a = br_build_attribute_texts(b, s, texts, 2);
    const int64_t value = 1;
    br_build_resource(b, &resource);
    br_build_scope(b, "\x80", "\xc0\x80", &scope);
    br_build_profile(b, &(struct br_build_profile){.attributes = &a, .n_attributes = 1});
    br_build_sample(b, &(struct br_build_sample){.values = &value, .n_values = 1});
    struct br_item *item = take(b);
    check_parts(item); /* the walk rejects invalid strings */
    struct message *list =
        nest(5, nest(1, text(1, "\xef\xbf\xbd"), END), nest(1, text(1, "ok"), END), END);
    struct message *r =
        nest(1, pair(1, "k\xef\xbf\xbd", nest(2, text(1, "a\xef\xbf\xbd"), END)), END);
    struct message *sc = nest(1, text(1, "\xef\xbf\xbd"), text(2, "\xef\xbf\xbd\xef\xbf\xbd"),
                              pair(3, "k", nest(2, list, END)), END);
    struct message *profile = nest(2, bytes(11, "\2", 1), nest(2, bytes(4, "\1", 1), END), END);
    struct message *want = nest(1, r, nest(2, sc, profile, END), END);
    assert_int_equal(item->parts[0].raw_len, want->len);
    assert_memory_equal(item->parts[0].raw, want->data, want->len);
    br_item_free(item);
    br_arena_release(&arena);
    br_build_free(b);
    free_messages();
}

/* An invalid message sets the builder's error to BR_EINVAL, which stays set. */
static void test_invalid(void **state)
{
    (void)state;
    struct br_build *b = br_build_new(&host, 1 << 20);
    const int64_t values[] = {1, 2};
    const uint64_t time = 1;
    const struct br_build_sample samples[] = {
        {0},
        {.values = values, .n_values = 2, .times_ns = &time, .n_times = 1},
        {.values = values, .n_values = 1, .stack = 1},
        {.values = values, .n_values = 1, .link = 1},
        {.values = values, .n_values = 1, .attributes = (const uint32_t[]){1}, .n_attributes = 1}};
    for (size_t i = 0; i < BR_COUNT(samples); i++) {
        br_build_resource(b, NULL);
        br_build_scope(b, NULL, NULL, NULL);
        br_build_profile(b, &(struct br_build_profile){0});
        assert_int_equal(br_build_rc(b), 0);
        br_build_sample(b, &samples[i]);
        assert_int_equal(br_build_rc(b), BR_EINVAL);
        struct br_item *item = br_item_new(&host, BR_PROFILES);
        assert_int_equal(br_build_take(b, item), BR_EINVAL);
        assert_int_equal(item->n_parts, 0);
        br_item_free(item);
        br_build_clear(b);
    }
    const struct br_build_line line = {.function = 1};
    const struct br_addition broken = {(const uint8_t *)"\x0a\x05", 2};
    const struct br_addition dangling = {(const uint8_t *)"\x0a\x02\x18\x07", 4};
    for (unsigned i = 0; i < 12; i++) {
        const uint32_t one = 1;
        switch (i) {
        case 0:
            br_build_scope(b, NULL, NULL, NULL); /* without an open resource */
            break;
        case 1:
            br_build_resource(b, NULL);
            br_build_profile(b, &(struct br_build_profile){0});
            break;
        case 2:
            br_build_resource(b, NULL);
            br_build_scope(b, NULL, NULL, NULL);
            br_build_sample(b, &(struct br_build_sample){.values = values, .n_values = 1});
            break;
        case 3:
            br_build_function(b, 0, 0, 1, 0);
            break;
        case 4:
            br_build_mapping(b, &(struct br_build_mapping){.filename = 1});
            break;
        case 5:
            br_build_location(b, &(struct br_build_location){.mapping = 1});
            break;
        case 6:
            br_build_location(b, &(struct br_build_location){.lines = &line, .n_lines = 1});
            break;
        case 7:
            br_build_stack(b, &one, 1);
            break;
        case 8:
            br_build_attribute_int(b, 0, 1, 1);
            break;
        case 9:
            br_build_attribute_text(b, 1, "", 0);
            break;
        case 10:
            br_build_resource(b, &broken);
            break;
        default:
            br_build_resource(b, &dangling);
        }
        assert_int_equal(br_build_rc(b), BR_EINVAL);
        assert_int_equal(string(b, "more"), 0);
        br_merger_fail(&b->merge, BR_ENOMEM);
        assert_int_equal(br_build_rc(b), BR_EINVAL);
        br_build_clear(b);
    }
    assert_int_equal(string(b, "more"), 1);
    br_build_free(b);
}

/* The size limit applies to every kind of data. After br_build_clear, the builder works again. */
static void test_size_limit(void **state)
{
    (void)state;
    struct br_build *b = br_build_new(&host, 64 << 10);
    for (unsigned what = 0; what < 3; what++) {
        const int64_t value = 1;
        char big[20000];
        br_build_resource(b, NULL);
        br_build_scope(b, NULL, NULL, NULL);
        br_build_profile(b, &(struct br_build_profile){0});
        for (uint32_t i = 0; i < 100000 && !br_build_rc(b); i++) {
            memset(big, (int)('a' + i % 26), sizeof big);
            if (what == 0)
                (void)br_build_function(b, 0, 0, 0, i + 1);
            else if (what == 1)
                br_build_sample(b, &(struct br_build_sample){.values = &value, .n_values = 1});
            else
                (void)br_build_string(b, big, sizeof big);
        }
        assert_int_equal(br_build_rc(b), BR_EFULL);
        assert_int_equal(br_build_function(b, 0, 0, 0, 1), 0);
        struct br_item *item = br_item_new(&host, BR_PROFILES);
        assert_int_equal(br_build_take(b, item), BR_EFULL);
        assert_int_equal(item->n_parts, 0);
        br_item_free(item);
        br_build_clear(b);
        build_all(b);
        br_item_free(take(b));
    }
    br_build_free(b);
    b = br_build_new(&host, 10);
    assert_int_equal(string(b, "a"), 0);
    assert_int_equal(br_build_rc(b), BR_EFULL);
    br_build_free(b);
}

static int build_without_memory(void *arg)
{
    (void)arg;
    struct br_build *b = br_build_new(&host, 1 << 20);
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    int rc = BR_ENOMEM;
    if (b && item) {
        build_all(b);
        rc = br_build_take(b, item);
        assert_int_equal(item->n_parts, rc ? 0 : 3);
        if (rc) { /* once cleared, the builder works as soon as memory is available */
            assert_int_equal(br_build_rc(b), rc);
            br_build_clear(b);
            assert_int_equal(br_build_rc(b), 0);
        }
    }
    if (item)
        br_item_free(item);
    br_build_free(b);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    with_failures(build_without_memory, NULL);
}

SUITE(build)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_equal_entries),
        cmocka_unit_test(test_many_samples), cmocka_unit_test(test_packed),
        cmocka_unit_test(test_utf8),         cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_size_limit),   cmocka_unit_test(test_undo),
        cmocka_unit_test(test_no_memory),
    };
    return RUN(tests, request_setup, request_teardown);
}
