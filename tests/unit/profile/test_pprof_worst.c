/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worst-case pprofs: the reader takes a limited number of steps per byte, whatever the size, and at
 * most the memory of one request. The limit of steps is calculated. Texts that the reader composes
 * have at most four times the size of the body plus 64 KiB. Each byte of them and of the body is
 * checked, hashed and compared once.
 */
#include "base/steps.h"
#include "core/host.h"
#include "profile/profile.h"
#include "receivers/pprof/delta.h"
#include "tests/support/mem_meter.h"
#include "tests/support/test.h"
#include "tests/support/wire.h"
#include "tests/support/worst.h"

#define MIB ((size_t)1 << 20)
#define READ_STEPS 16 /* per byte */
/* COMPARE_STEPS: steps per byte when two profiles are compared. A label of two bytes is hashed as
 * five numbers. An id of one byte is hashed as two numbers and looked up by one. */
#define COMPARE_STEPS 32

/* Fields of pprof's Profile. */
enum { TYPE = 1, SAMPLE, MAPPING, LOCATION, FUNCTION, STRING, COMMENT = 13 };

enum { EMPTY, KEY, VALUE, SPAN_ID, TRACE_ID, FIRST }; /* strings of every profile */

struct shape {
    const char *name;
    void (*make)(struct wire *w, size_t size);
    const char *spy;
};

/* --- Building blocks -------------------------------------------------------------------------- */

static void message(struct wire *w, uint32_t field, const struct wire *body)
{
    wire_len(w, field, body->data, body->len);
}

static void type(struct wire *w, uint64_t name)
{
    struct wire m = {0};
    wire_varint(&m, 1, name);
    wire_varint(&m, 2, VALUE);
    message(w, TYPE, &m);
    wire_free(&m);
}

static void text(struct wire *w, char letter, size_t len)
{
    char *bytes = malloc(len + 1);
    assert_non_null(bytes);
    memset(bytes, letter, len);
    wire_len(w, STRING, bytes, len);
    free(bytes);
}

/* Appends a sample type, and the strings that every profile has. */
static void begin(struct wire *w)
{
    static const char *const texts[] = {"", "key", "value", "span_id", "trace_id"};
    type(w, KEY);
    for (size_t i = 0; i < BR_COUNT(texts); i++)
        wire_str(w, STRING, texts[i]);
}

static void label(struct wire *sample, uint64_t key, uint64_t value)
{
    struct wire m = {0};
    wire_varint(&m, 1, key);
    wire_varint(&m, 2, value);
    message(sample, 3, &m);
    wire_free(&m);
}

/* Appends a sample with a label, and with a second label if `key2` is not 0. The arguments are
 * indices of strings. */
static void labelled(struct wire *w, uint64_t key, uint64_t value, uint64_t key2, uint64_t value2)
{
    struct wire m = {0};
    wire_varint(&m, 2, 1);
    label(&m, key, value);
    if (key2)
        label(&m, key2, value2);
    message(w, SAMPLE, &m);
    wire_free(&m);
}

static void numbers(struct wire *w, uint32_t field, uint64_t id, uint32_t a, uint64_t x, uint32_t b,
                    uint64_t y)
{
    struct wire m = {0};
    wire_varint(&m, 1, id);
    if (a)
        wire_varint(&m, a, x);
    if (b)
        wire_varint(&m, b, y);
    message(w, field, &m);
    wire_free(&m);
}

static void fill(struct wire *w, size_t size, const char *bytes, size_t len)
{
    while (w->len < size)
        wire_raw(w, bytes, len);
}

static void unlabelled(struct wire *w)
{
    wire_raw(w, "\x12\x02\x10\x01", 4);
}

/* --- Many references to a long text ----------------------------------------------------------- */

static void two_of_one_key(struct wire *w, size_t size)
{
    begin(w);
    text(w, 'x', size / 2);
    while (w->len < size)
        labelled(w, KEY, FIRST, KEY, FIRST);
}

/* Samples whose two labels form many different lists. */
static void changing_lists(struct wire *w, size_t size)
{
    begin(w);
    text(w, 'x', size / 2);
    unsigned n = (unsigned)(size / 256);
    for (unsigned i = 0; i < n; i++)
        text(w, 'y', 1);
    for (unsigned i = 0; w->len < size; i++)
        labelled(w, KEY, FIRST, KEY, FIRST + i % n);
}

/* Labels with the same text under more different keys than the reader remembers. */
static void many_keys(struct wire *w, size_t size)
{
    begin(w);
    text(w, 'x', size / 2);
    unsigned n = (unsigned)(size / 256);
    for (unsigned i = 0; i < n; i++)
        wire_str(w, STRING, "key");
    for (unsigned i = 0; w->len < size; i++)
        labelled(w, FIRST + 1 + i % n, FIRST, 0, 0);
}

/* Many keys, and many equal long texts at different indices. Each sample has a new pair of a key
 * and a text. */
static void equal_texts(struct wire *w, size_t size)
{
    begin(w);
    for (unsigned i = 0; i < 100; i++)
        text(w, 'x', size / 200);
    for (unsigned i = 0; i < 400; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "%u", i);
        wire_str(w, STRING, key);
    }
    for (unsigned i = 0; w->len < size; i++)
        labelled(w, FIRST + 100 + i / 100 % 400, FIRST + i % 100, 0, 0);
}

/* Each sample also has a label that no other sample has. The label with the long text is therefore
 * not among the most recent labels. */
static void alternating_labels(struct wire *w, size_t size)
{
    begin(w);
    text(w, 'x', size / 2);
    for (unsigned i = 0; w->len < size; i++) {
        struct wire m = {0};
        wire_varint(&m, 2, 1);
        wire_varint(&m, 3 << 3, 0); /* unknown */
        label(&m, KEY, FIRST);
        struct wire number = {0};
        wire_varint(&number, 1, VALUE);
        wire_varint(&number, 3, i);
        message(&m, 3, &number);
        message(w, SAMPLE, &m);
        wire_free(&number);
        wire_free(&m);
    }
}

static void bad_texts(struct wire *w, size_t size)
{
    begin(w);
    text(w, '\xff', size / 2);
    while (w->len < size)
        labelled(w, KEY, FIRST, VALUE, FIRST);
}

static void blank_ids(struct wire *w, size_t size)
{
    begin(w);
    text(w, ' ', size / 2);
    unsigned n = (unsigned)(size / 256);
    for (unsigned i = 0; i < n; i++) {
        char id[20];
        (void)snprintf(id, sizeof id, "%016x", i + 1);
        wire_str(w, STRING, id);
    }
    for (unsigned i = 0; w->len < size; i++)
        labelled(w, SPAN_ID, i % 2 ? FIRST : FIRST + 1 + i % n, TRACE_ID,
                 i % 2 ? FIRST + 1 + i % n : FIRST);
}

static void build_ids(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    text(w, 'x', size / 2);
    for (unsigned i = 1; w->len < size; i++)
        numbers(w, MAPPING, i, 2, i, 6, FIRST);
}

static void comments(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    text(w, 'x', size / 2);
    while (w->len < size)
        wire_varint(w, COMMENT, FIRST);
}

static void names(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    text(w, 'x', size / 2);
    for (unsigned i = 1; w->len < size; i++)
        numbers(w, FUNCTION, i, 2, FIRST, 4, VALUE);
}

static void type_names(struct wire *w, size_t size)
{
    struct wire m = {0};
    begin(w);
    text(w, 'x', size / 2);
    for (unsigned i = 0; w->len < size; i++)
        type(w, FIRST);
    unlabelled(w);
    wire_free(&m);
}

static void few_type_names(struct wire *w, size_t size)
{
    type(w, FIRST);
    for (unsigned i = 0; i < 61; i++)
        type(w, FIRST);
    begin(w);
    text(w, 'x', size - 10000);
    wire_raw(w, "\x12\x41\x12\x3f", 4);
    for (unsigned i = 0; i < 63; i++)
        wire_number(w, 1);
}

/* --- Empty messages, very often --------------------------------------------------------------- */

static void empty_strings(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    fill(w, size, "\x32\x00", 2);
}

static void empty_samples(struct wire *w, size_t size)
{
    begin(w);
    fill(w, size, "\x12\x00", 2);
}

static void small_samples(struct wire *w, size_t size)
{
    begin(w);
    fill(w, size, "\x12\x02\x10\x01", 4);
}

static void empty_mappings(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    fill(w, size, "\x1a\x00", 2);
}

static void empty_locations(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    fill(w, size, "\x22\x00", 2);
}

static void empty_functions(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    fill(w, size, "\x2a\x00", 2);
}

static void empty_types(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    fill(w, size, "\x0a\x00", 2);
}

static void empty_comments(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    size_t list = wire_open(w, COMMENT);
    fill(w, size, "\x00", 1);
    wire_close(w, list);
}

static void unknown_fields(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    fill(w, size, "\xa0\x06\x00", 3);
}

/* Appends one message that contains `head`, and `each` as often as possible. */
static void one_large_message(struct wire *w, size_t size, uint32_t field, const char *head,
                              const char *each, size_t len)
{
    begin(w);
    size_t m = wire_open(w, field);
    wire_raw(w, head, strlen(head));
    fill(w, size, each, len);
    wire_close(w, m);
    if (field != SAMPLE)
        unlabelled(w);
}

static void empty_lines(struct wire *w, size_t size)
{
    one_large_message(w, size, LOCATION, "\x08\x01", "\x22\x00", 2);
}

static void empty_labels(struct wire *w, size_t size)
{
    one_large_message(w, size, SAMPLE, "\x10\x01", "\x1a\x00", 2);
}

static void equal_labels(struct wire *w, size_t size)
{
    one_large_message(w, size, SAMPLE, "\x10\x01", "\x1a\x04\x08\x01\x10\x02", 6);
}

static void numbered_labels(struct wire *w, size_t size)
{
    one_large_message(w, size, SAMPLE, "\x10\x01", "\x1a\x02\x18\x01", 4);
}

/* --- Tables and stacks ------------------------------------------------------------------------ */

static void deep(struct wire *w, size_t size, bool packed, uint64_t id)
{
    begin(w);
    numbers(w, LOCATION, id, 0, 0, 0, 0);
    size_t m = wire_open(w, SAMPLE), list;
    wire_varint(w, 2, 1);
    list = packed ? wire_open(w, 1) : 0;
    while (w->len < size)
        if (packed)
            wire_number(w, id);
        else
            wire_varint(w, 1, id);
    if (packed)
        wire_close(w, list);
    wire_close(w, m);
}

static void deep_packed(struct wire *w, size_t size)
{
    deep(w, size, true, 1);
}

static void deep_unpacked(struct wire *w, size_t size)
{
    deep(w, size, false, 1);
}

static void deep_odd(struct wire *w, size_t size)
{
    deep(w, size, true, 100);
}

static void large_ids(struct wire *w, size_t size)
{
    begin(w);
    unlabelled(w);
    for (uint64_t i = 1; w->len < size; i++)
        numbers(w, LOCATION, i << 20, 3, i, 0, 0);
}

static void small_stacks(struct wire *w, size_t size)
{
    begin(w);
    for (unsigned i = 1; i <= 127; i++)
        numbers(w, LOCATION, i, 3, i, 0, 0);
    for (unsigned i = 0; w->len < size; i++) {
        const char sample[] = {0x12,
                               7,
                               0x0a,
                               3,
                               (char)(1 + i % 127),
                               (char)(1 + i / 127 % 127),
                               (char)(1 + i / 16129 % 127),
                               0x10,
                               1};
        wire_raw(w, sample, sizeof sample);
    }
}

/* Many types. The samples, with all their labels, are repeated for each type. */
static void types_and_labels(struct wire *w, size_t size)
{
    for (unsigned i = 0; i < 30; i++)
        type(w, KEY);
    begin(w);
    for (unsigned k = 0; w->len < size; k++) {
        size_t m = wire_open(w, SAMPLE);
        for (unsigned i = 0; i < 31; i++)
            wire_varint(w, 2, 1);
        for (unsigned i = 0; i < 16; i++) {
            size_t l = wire_open(w, 3);
            wire_varint(w, 1, 1);
            wire_varint(w, 3, i + 1);
            wire_varint(w, 4, i);
            wire_close(w, l);
        }
        wire_close(w, m);
    }
}

/* --- Reading ---------------------------------------------------------------------------------- */

struct cost {
    uint64_t steps;
    size_t peak;
    int rc;
};

static struct cost read_one(const struct shape *shape, const struct wire *w)
{
    static const struct br_host_ops ops = {0};
    mem_meter = (struct mem_meter){0};
    struct br_host host;
    assert_int_equal(br_host_init(&host, &ops, br_pool_new(0)), 0);
    struct br_arena arena = {.max = (size_t)1 << 30};
    struct br_build *b = br_build_new(&host, BR_BUF_MAX);
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    assert_true(b && item);
    struct br_profile_source source = {
        .data = w->data, .len = w->len, .from_pyroscope = true, .spy_name = shape->spy};
    struct br_err err = {0};
    struct cost c = {.steps = br_steps()};
    c.rc = br_profile_read(b, BR_FORMAT_PPROF, &source, &arena, &err);
    assert_true(c.rc == 0 || strlen(err.text) > 0);
    br_arena_release(&arena);
    if (!c.rc)
        c.rc = br_build_take(b, item);
    c.steps = br_steps() - c.steps;
    c.peak = mem_meter.peak;
    br_item_free(item);
    br_build_free(b);
    br_host_release(&host);
    br_pool_free(host.pool);
    return c;
}

/* Compares a profile with itself, as the scraper compares successive profiles. */
static struct cost compare_one(const struct wire *w)
{
    mem_meter = (struct mem_meter){0};
    struct br_arena arena = {.max = (size_t)1 << 30};
    struct pprof_delta *d = pprof_delta_new();
    assert_non_null(d);
    struct cost c = {.steps = br_steps()};
    for (int i = 0; i < 2; i++) {
        struct br_err err = {0};
        const uint8_t *difference;
        size_t len, before = mem_meter.live;
        mem_meter.peak = before;
        c.rc = pprof_delta_next(d, w->data, w->len, &arena, &difference, &len, &err);
        assert_true(c.rc == 0 || strlen(err.text) > 0);
        c.peak = c.peak > mem_meter.peak - before ? c.peak : mem_meter.peak - before;
    }
    c.steps = (br_steps() - c.steps) / 2;
    pprof_delta_free(d);
    br_arena_release(&arena);
    return c;
}

static const struct shape shapes[] = {
    {"two labels of one key", two_of_one_key, NULL},
    {"changing lists", changing_lists, NULL},
    {"many keys", many_keys, NULL},
    {"equal texts", equal_texts, NULL},
    {"returning", alternating_labels, NULL},
    {"bad texts", bad_texts, NULL},
    {"blank ids", blank_ids, NULL},
    {"build ids", build_ids, NULL},
    {"comments", comments, NULL},
    {"names", names, NULL},
    {"names of scripts", names, "pyspy"},
    {"type names", type_names, NULL},
    {"few type names", few_type_names, NULL},
    {"few type names of .NET", few_type_names, "dotnetspy"},
    {"empty strings", empty_strings, NULL},
    {"empty samples", empty_samples, NULL},
    {"small samples", small_samples, NULL},
    {"empty mappings", empty_mappings, NULL},
    {"empty locations", empty_locations, NULL},
    {"empty functions", empty_functions, NULL},
    {"empty types", empty_types, NULL},
    {"empty comments", empty_comments, NULL},
    {"unknown fields", unknown_fields, NULL},
    {"empty lines", empty_lines, NULL},
    {"empty labels", empty_labels, NULL},
    {"equal labels", equal_labels, NULL},
    {"numbered labels", numbered_labels, NULL},
    {"a deep stack", deep_packed, NULL},
    {"a deep stack, not packed", deep_unpacked, NULL},
    {"a deep stack of another id", deep_odd, NULL},
    {"large ids", large_ids, NULL},
    {"small stacks", small_stacks, NULL},
    {"types and labels", types_and_labels, NULL},
};

static void check_cost(const char *what, const struct shape *shape, struct cost c, size_t len,
                       size_t steps)
{
    if (c.steps > steps * len + MIB / 4)
        fail_msg("%s %s: %llu steps for %zu bytes", what, shape->name, (unsigned long long)c.steps,
                 len);
    if (c.peak > 4 * len + MIB)
        fail_msg("%s %s: %zu bytes of memory for %zu", what, shape->name, c.peak, len);
}

static void check(const struct shape *shape, size_t size)
{
    struct wire w = {0};
    shape->make(&w, size);
    check_cost("read", shape, read_one(shape, &w), w.len, READ_STEPS);
    check_cost("compare", shape, compare_one(&w), w.len, COMPARE_STEPS);
    wire_free(&w);
}

static void test_small(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(shapes); i++)
        check(&shapes[i], MIB / 64);
}

static void test_large(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(shapes); i++)
        for (size_t size = MIB; size <= worst_mib_max() * MIB; size *= 2)
            check(&shapes[i], size);
}

SUITE(pprof_worst)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small), cmocka_unit_test(test_large)};
    br_mem_set_hooks(&mem_meter_hooks);
    return RUN(tests, NULL, NULL);
}
