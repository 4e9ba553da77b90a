/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP profiles that are the most expensive to write as pprof for their size. The caller limits the
 * bytes that are read from the dictionary and written. This suite uses the limits of the pyroscope
 * exporter, in the worker and in a thread.
 */
#include "base/steps.h"
#include "core/host.h"
#include "exporters/pyroscope/pyroscope.h"
#include "otlp/walk/walk.h"
#include "profile/pprof/write.h"
#include "tests/support/mem_meter.h"
#include "tests/support/test.h"
#include "tests/support/wire.h"
#include "tests/support/worst.h"

#define MIB ((size_t)1 << 20)
#define GROWTH 4
#define SMALLEST (MIB / 16)
#define PPROF_MAX (4 * MIB) /* bytes; the exporter's limit for one pprof */

/* Tables of the dictionary. */
enum { MAPPING = 1, LOCATION, FUNCTION, LINK, STRING, ATTRIBUTE, STACK };

struct parts {
    struct wire profiles;   /* fields of ScopeProfiles */
    struct wire dictionary; /* contains entry 0 of each table, and an empty stack 1 */
    size_t size;
};

static size_t size_of(const struct parts *p)
{
    return p->profiles.len + p->dictionary.len;
}

/* --- Parts of profiles ------------------------------------------------------------------------ */

/* Writes an attribute with a key (index of a string) and a text. */
static void attribute(struct parts *p, uint64_t key, char letter, size_t len)
{
    struct wire *d = &p->dictionary;
    char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, letter, len);
    size_t m = wire_open(d, ATTRIBUTE), value;
    wire_varint(d, 1, key);
    value = wire_open(d, 2);
    wire_len(d, 1, text, len);
    wire_close(d, value);
    wire_close(d, m);
    free(text);
}

static void sample(struct wire *w, uint64_t stack)
{
    struct wire s = {0};
    wire_varint(&s, 1, stack);
    wire_varint(&s, 4, 1);
    wire_len(w, 2, s.data, s.len);
    wire_free(&s);
}

/* Writes a Profile with one sample. */
static void profile(struct parts *p, uint64_t attribute_index, uint64_t stack)
{
    struct wire m = {0};
    sample(&m, stack);
    if (attribute_index)
        wire_varint(&m, 11, attribute_index);
    wire_len(&p->profiles, 2, m.data, m.len);
    wire_free(&m);
}

/* Writes a Profile with samples of one stack, until the item is full. */
static void samples(struct parts *p, uint64_t attribute_index, uint64_t stack)
{
    struct wire m = {0};
    if (attribute_index)
        wire_varint(&m, 11, attribute_index);
    while (size_of(p) + m.len < p->size)
        sample(&m, stack);
    wire_len(&p->profiles, 2, m.data, m.len);
    wire_free(&m);
}

static void fill(struct wire *w, size_t len, const char *bytes, size_t n)
{
    for (size_t end = w->len + len; w->len < end;)
        wire_raw(w, bytes, n);
}

/* --- Shapes ----------------------------------------------------------------------------------- */

static void profiles_with_a_comment(struct parts *p)
{
    wire_str(&p->dictionary, STRING, "pprof.profile.comment");
    attribute(p, 1, 'x', p->size / 2);
    while (size_of(p) < p->size)
        profile(p, 1, 1);
}

/* Each sample alone is too large, and its pprof would contain the comment. */
static void samples_with_a_comment(struct parts *p)
{
    wire_str(&p->dictionary, STRING, "pprof.profile.comment");
    attribute(p, 1, 'x', PPROF_MAX < p->size / 2 ? PPROF_MAX : p->size / 2);
    samples(p, 1, 1);
}

/* The key is repeated many times. */
static void one_attribute_often(struct parts *p)
{
    struct wire *d = &p->dictionary;
    size_t m = wire_open(d, ATTRIBUTE);
    fill(d, p->size / 2, "\x08\x01", 2);
    wire_close(d, m);
    wire_str(d, STRING, "key");
    struct wire w = {0};
    sample(&w, 1);
    size_t list = wire_open(&w, 11);
    fill(&w, p->size / 2, "\x01", 1);
    wire_close(&w, list);
    wire_len(&p->profiles, 2, w.data, w.len);
    wire_free(&w);
}

/* Each pprof contains the function's name, which is half of the item. */
static void profiles_of_a_long_name(struct parts *p)
{
    struct wire *d = &p->dictionary;
    char *name = malloc(p->size / 2 + 1);
    assert_non_null(name);
    memset(name, 'x', p->size / 2);
    wire_len(d, STRING, name, p->size / 2);
    free(name);
    wire_raw(d, "\x1a\x02\x08\x01", 4);         /* a function with that name */
    wire_raw(d, "\x12\x04\x1a\x02\x08\x01", 6); /* a location with the function */
    wire_raw(d, "\x3a\x03\x0a\x01\x01", 5);     /* a stack with the location */
    while (size_of(p) < p->size)
        profile(p, 0, 2);
}

/* Writes a stack that is half of the item. */
static void put_long_stack(struct parts *p)
{
    struct wire *d = &p->dictionary;
    wire_raw(d, "\x12\x02\x10\x01", 4); /* a location */
    size_t stack = wire_open(d, STACK), list = wire_open(d, 1);
    fill(d, p->size / 2, "\x01", 1);
    wire_close(d, list);
    wire_close(d, stack);
}

/* Each pprof contains the stack. */
static void profiles_of_a_long_stack(struct parts *p)
{
    put_long_stack(p);
    while (size_of(p) < p->size)
        profile(p, 0, 2);
}

/* Writes lists: each value becomes a label, in each sample; `n` times each. */
static void put_lists(struct parts *p, unsigned n)
{
    struct wire *d = &p->dictionary, w = {0};
    wire_str(d, STRING, "span_id");
    size_t m = wire_open(d, ATTRIBUTE);
    wire_varint(d, 1, 1);
    size_t value = wire_open(d, 2), list = wire_open(d, 5);
    fill(d, p->size / 2,
         "\x0a\x04\x0a\x02"
         "ab",
         6);
    wire_close(d, list);
    wire_close(d, value);
    wire_close(d, m);
    while (size_of(p) + w.len < p->size) {
        struct wire s = {0};
        size_t indices = wire_open(&s, 2);
        fill(&s, n, "\x01", 1);
        wire_close(&s, indices);
        wire_varint(&s, 4, 1);
        wire_len(&w, 2, s.data, s.len);
        wire_free(&s);
    }
    wire_len(&p->profiles, 2, w.data, w.len);
    wire_free(&w);
}

static void lists_of_texts(struct parts *p)
{
    put_lists(p, 1);
}

static void lists_of_texts_often(struct parts *p)
{
    put_lists(p, BR_PPROF_LABELS_MAX);
}

static void build_ids(struct parts *p)
{
    struct wire *d = &p->dictionary, list = {0}, stack = {0};
    wire_str(d, STRING, "process.executable.build_id.gnu");
    attribute(p, 1, 'x', p->size / 2);
    for (unsigned i = 1; size_of(p) + list.len < p->size; i++) {
        struct wire m = {0};
        wire_varint(&m, 1, i);
        wire_varint(&m, 5, 1);
        wire_len(d, MAPPING, m.data, m.len);
        wire_clear(&m);
        wire_varint(&m, 1, i);
        wire_len(d, LOCATION, m.data, m.len);
        wire_free(&m);
        wire_number(&list, i);
    }
    wire_len(&stack, 1, list.data, list.len);
    wire_len(d, STACK, stack.data, stack.len);
    wire_free(&list);
    wire_free(&stack);
    profile(p, 0, 2);
}

static void long_stacks(struct parts *p)
{
    put_long_stack(p);
    samples(p, 0, 2);
}

static void labels_without_end(struct parts *p)
{
    wire_str(&p->dictionary, STRING, "key");
    attribute(p, 1, 'x', 1);
    struct wire w = {0}, s = {0};
    wire_varint(&s, 4, 1);
    size_t list = wire_open(&s, 2);
    fill(&s, p->size, "\x01", 1);
    wire_close(&s, list);
    wire_len(&w, 2, s.data, s.len);
    wire_len(&p->profiles, 2, w.data, w.len);
    wire_free(&s);
    wire_free(&w);
}

static void small_profiles(struct parts *p)
{
    fill(&p->profiles, p->size, "\x12\x04\x12\x02\x20\x01", 6);
}

static void empty_profiles(struct parts *p)
{
    fill(&p->profiles, p->size, "\x12\x00", 2);
}

static void empty_lines(struct parts *p)
{
    struct wire *d = &p->dictionary;
    size_t m = wire_open(d, LOCATION);
    fill(d, p->size, "\x1a\x00", 2);
    wire_close(d, m);
    wire_raw(d, "\x3a\x03\x0a\x01\x01", 5); /* a stack with the location */
    profile(p, 0, 2);
}

/* The lookup tables are several times larger than the strings. */
static void short_strings(struct parts *p)
{
    struct wire *d = &p->dictionary, list = {0}, stack = {0};
    for (unsigned i = 1; size_of(p) + list.len < p->size; i++) {
        char text[24];
        (void)snprintf(text, sizeof text, "function %09u", i);
        struct wire m = {0};
        wire_str(d, STRING, text);
        wire_varint(&m, 1, i);
        wire_len(d, FUNCTION, m.data, m.len);
        wire_clear(&m);
        size_t line = wire_open(&m, 3);
        wire_varint(&m, 1, i);
        wire_close(&m, line);
        wire_len(d, LOCATION, m.data, m.len);
        wire_free(&m);
        wire_number(&list, i);
    }
    wire_len(&stack, 1, list.data, list.len);
    wire_len(d, STACK, stack.data, stack.len);
    wire_free(&list);
    wire_free(&stack);
    profile(p, 0, 2);
}

/* Each link is written as two texts. */
static void links(struct parts *p)
{
    struct wire w = {0};
    for (unsigned i = 1; size_of(p) + w.len < p->size; i++) {
        uint8_t id[16] = {1, 2, 3, 4, (uint8_t)i, (uint8_t)(i >> 8), (uint8_t)(i >> 16)};
        size_t link = wire_open(&p->dictionary, LINK);
        wire_len(&p->dictionary, 1, id, 16);
        wire_len(&p->dictionary, 2, id, 8);
        wire_close(&p->dictionary, link);
        struct wire s = {0};
        wire_varint(&s, 3, i);
        wire_varint(&s, 4, 1);
        wire_len(&w, 2, s.data, s.len);
        wire_free(&s);
    }
    wire_len(&p->profiles, 2, w.data, w.len);
    wire_free(&w);
}

/* Samples with LONG_TEXTS attributes of LONG_TEXT bytes each: the same for all samples, or
 * different ones. */
#define LONG_TEXTS 16
#define LONG_TEXT 4096

static void put_long_texts(struct parts *p, bool own)
{
    struct wire w = {0};
    wire_str(&p->dictionary, STRING, "key");
    for (unsigned n = 1; size_of(p) + w.len < p->size; n += own ? LONG_TEXTS : 0) {
        struct wire s = {0};
        size_t list = wire_open(&s, 2);
        for (unsigned i = 0; i < LONG_TEXTS; i++) {
            if (own || w.len == 0)
                attribute(p, 1, (char)('a' + i), LONG_TEXT + (own ? n + i : i));
            wire_number(&s, n + i);
        }
        wire_close(&s, list);
        wire_varint(&s, 4, 1);
        wire_len(&w, 2, s.data, s.len);
        wire_free(&s);
    }
    wire_len(&p->profiles, 2, w.data, w.len);
    wire_free(&w);
}

static void long_texts(struct parts *p)
{
    put_long_texts(p, false);
}

static void different_long_texts(struct parts *p)
{
    put_long_texts(p, true);
}

/* --- Writing them ----------------------------------------------------------------------------- */

/* br_walk already rejects dictionaries of empty entries (see the suite worst). */
static const struct shape {
    const char *name;
    void (*make)(struct parts *p);
} shapes[] = {
    {"profiles with a comment", profiles_with_a_comment},
    {"samples with a comment", samples_with_a_comment},
    {"one attribute often", one_attribute_often},
    {"profiles of a long name", profiles_of_a_long_name},
    {"profiles of a long stack", profiles_of_a_long_stack},
    {"lists of texts", lists_of_texts},
    {"lists of texts, often", lists_of_texts_often},
    {"build ids", build_ids},
    {"long stacks", long_stacks},
    {"labels without end", labels_without_end},
    {"small profiles", small_profiles},
    {"empty profiles", empty_profiles},
    {"empty lines", empty_lines},
    {"short strings", short_strings},
    {"links", links},
    {"long texts of all samples", long_texts},
    {"long texts of each sample", different_long_texts},
};

static struct br_item *item_of(struct br_host *host, const struct parts *p)
{
    static const struct br_walk_options options = {0};
    struct wire w = {0};
    struct br_err err = {0};
    uint32_t repaired;
    size_t resource = wire_open(&w, 1), scope = wire_open(&w, 2);
    wire_raw(&w, p->profiles.data, p->profiles.len);
    wire_close(&w, scope);
    wire_close(&w, resource);
    wire_len(&w, 2, p->dictionary.data, p->dictionary.len);
    struct br_buf *buf = br_buf_new(host->pool, w.len);
    struct br_item *item = br_item_new(host, BR_PROFILES);
    assert_true(buf && item);
    memcpy(buf->data, w.data, w.len);
    buf->len = (uint32_t)w.len;
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err))
        fail_msg("%s", err.text);
    br_buf_unref(buf);
    wire_free(&w);
    return item;
}

#ifdef BR_COUNT_FIELDS
#define PASSES 8u
#else
#define PASSES 1u
#endif

static int on_pprof(const struct br_pprof_out *p, void *arg)
{
    size_t *size = arg;
    *size += p->buf->len;
    return 0;
}

static void check(const struct shape *shape, size_t size, bool in_worker)
{
    static const struct br_host_ops ops = {0};
    struct br_host host;
    struct parts p = {.size = size};
    for (unsigned table = MAPPING; table <= STACK; table++)
        wire_len(&p.dictionary, table, "", 0);
    wire_len(&p.dictionary, STACK, "", 0);
    shape->make(&p);
    assert_int_equal(br_host_init(&host, &ops, br_pool_new(0)), 0);
    struct br_item *item = item_of(&host, &p);
    struct br_pprof_writer *w = br_pprof_writer_new(&host);
    assert_non_null(w);
    size_t written = 0, most = pyroscope_writing_work(item, in_worker), before = mem_meter.live;
    size_t room = in_worker ? MIB : 8 * MIB; /* as documented in docs/operating/limits.md */
    assert_int_equal(most, GROWTH * item->size + room);
    const struct br_pprof_options options = {
        .max_samples = 16000, .max_bytes = PPROF_MAX, .max_work = most};
    mem_meter.peak = before;
    uint64_t steps = br_steps();
    int rc = br_pprof_write(w, item, &options, on_pprof, &written);
    steps = br_steps() - steps;
    assert_true(rc == 0 || rc == BR_ETOOBIG);
    /* Each text is read once more for the lookup, and each field a few times. */
    if (written > most || steps > most + written + PASSES * item->size)
        fail_msg("%s: %zu bytes and %llu steps for %zu", shape->name, written,
                 (unsigned long long)steps, item->size);
    /* Memory for the index, and for buffers that exist twice while they are assembled or grow. */
    size_t peak = mem_meter.peak - before;
    if (peak > GROWTH * item->size + MIB + 4 * (PPROF_MAX < most ? PPROF_MAX : most))
        fail_msg("%s: %zu bytes of memory for %zu", shape->name, peak, item->size);
    br_item_free(item);
    br_pprof_writer_free(w);
    br_host_release(&host);
    br_pool_free(host.pool);
    wire_free(&p.profiles);
    wire_free(&p.dictionary);
}

static void test_worst(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(shapes); i++)
        for (size_t size = SMALLEST; size <= worst_mib_max() * MIB; size *= 2)
            check(&shapes[i], size, size <= PYROSCOPE_WRITING_NOW);
}

SUITE(pprof_write_worst)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_worst)};
    br_mem_set_hooks(&mem_meter_hooks);
    return RUN(tests, NULL, NULL);
}
