/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "otlp/dictionary.h"
#include "otlp/intern.h"
#include "otlp/walk.h"
#include "pipeline/host.h"
#include "wire/protobuf.h"

/* Requests are written here field by field, after profiles.proto; what comes out is read by hand or
 * by the walk. tests/conformance/test_dictionary.py has the random ones and another reader. */

static struct br_host host;

static int setup(void **state)
{
    static const struct br_host_ops ops = {0};
    (void)state;
    return br_host_init(&host, &ops, br_pool_new(1 << 20));
}

static int teardown(void **state)
{
    (void)state;
    br_host_release(&host);
    br_pool_free(host.pool); /* asserts that no buffer is left */
    return 0;
}

/* --- Writing requests ----------------------------------------------------------------------- */

#define ROOM (1u << 20)

struct message {
    size_t len;
    uint8_t data[];
};

/* Messages of one test, freed with it. */
static struct message *made[4096];
static size_t n_made;

static struct message *new_message(size_t room)
{
    assert_true(n_made < sizeof made / sizeof made[0]);
    struct message *m = malloc(sizeof *m + room);
    assert_non_null(m);
    m->len = 0;
    made[n_made++] = m;
    return m;
}

static void free_messages(void)
{
    while (n_made)
        free(made[--n_made]);
}

static struct message *number(uint32_t field, uint64_t v)
{
    struct message *m = new_message(2 * BR_VARINT_MAX);
    uint8_t *p = br_put_varint(m->data, BR_TAG(field, BR_WIRE_VARINT));
    m->len = (size_t)(br_put_varint(p, v) - m->data);
    return m;
}

static struct message *bytes(uint32_t field, const void *data, size_t len)
{
    struct message *m = new_message(len + 2 * BR_VARINT_MAX);
    m->len = (size_t)(br_put_len(m->data, field, data, len) - m->data);
    return m;
}

static struct message *text(uint32_t field, const char *s)
{
    return bytes(field, s, strlen(s));
}

#define END ((struct message *)NULL)

/* A field whose message is the fields given, in this order. */
static struct message *nest(uint32_t field, ...)
{
    struct message *body = new_message(ROOM);
    struct message *m;
    va_list ap;
    va_start(ap, field);
    while ((m = va_arg(ap, struct message *))) {
        assert_true(body->len + m->len <= ROOM);
        memcpy(body->data + body->len, m->data, m->len);
        body->len += m->len;
    }
    va_end(ap);
    return bytes(field, body->data, body->len);
}

static struct message *join(struct message *a, struct message *b)
{
    struct message *m = new_message(a->len + b->len);
    memcpy(m->data, a->data, a->len);
    memcpy(m->data + a->len, b->data, b->len);
    m->len = a->len + b->len;
    return m;
}

static struct br_item *walked(enum br_signal signal, const struct message *m)
{
    struct br_buf *buf = br_buf_new(host.pool, m->len);
    assert_non_null(buf);
    memcpy(buf->data, m->data, m->len);
    buf->len = (uint32_t)m->len;
    struct br_item *item = br_item_new(&host, signal);
    struct br_walk_options options = {0};
    struct br_err err = {0};
    uint32_t repaired;
    assert_non_null(item);
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err))
        fail_msg("%s", err.text);
    br_buf_unref(buf);
    return item;
}

/* Field numbers of ProfilesDictionary. */
enum { MAPPING = 1, LOCATION, FUNCTION, LINK, STRING, ATTRIBUTE, STACK };

static struct message *zero_entries(void)
{
    struct message *m = new_message(0);
    for (uint32_t t = MAPPING; t <= STACK; t++)
        m = join(m, bytes(t, "", 0));
    return m;
}

/* One sample of one function, "main" in "main.go" with a file mapping and an attribute
 * thread=worker, linked to a span; `strings` other strings stand in front. */
static struct message *small_request(unsigned strings, const char *function)
{
    struct message *d = zero_entries();
    for (unsigned i = 0; i < strings; i++) {
        char s[32];
        (void)snprintf(s, sizeof s, "orphan%u", i);
        d = join(d, text(STRING, s));
    }
    const char *const names[] = {function, "main.go", "/bin/app", "thread", "cpu"};
    for (size_t i = 0; i < 5; i++)
        d = join(d, text(STRING, names[i]));
    uint64_t s = strings + 1;
    d = join(d, nest(FUNCTION, number(1, s), number(3, s + 1), number(4, 7), END));
    d = join(d, nest(MAPPING, number(1, 4096), number(4, s + 2), END));
    d = join(d, nest(ATTRIBUTE, number(1, s + 3), nest(2, text(1, "worker"), END), END));
    d = join(d, nest(LOCATION, number(1, 1), number(2, 4100), nest(3, number(1, 1), number(2, 9), END), END));
    d = join(d, nest(STACK, bytes(1, "\1", 1), END));
    d = join(d, nest(LINK, bytes(1, "0123456789abcdef", 16), bytes(2, "01234567", 8), END));
    struct message *sample =
        nest(2, number(1, 1), bytes(2, "\1", 1), number(3, 1), bytes(4, "\5", 1), END);
    struct message *profile = nest(2, nest(1, number(1, s + 4), END), sample, END);
    struct message *scope = nest(2, nest(1, text(1, "profiler"), END), profile, END);
    struct message *resource =
        nest(1, nest(1, text(1, "service.name"), nest(2, text(1, "shop"), END), END), END);
    return join(nest(1, resource, scope, END), nest(2, d, END));
}

static struct br_item *small_item(unsigned strings, const char *function)
{
    struct br_item *item = walked(BR_PROFILES, small_request(strings, function));
    free_messages();
    return item;
}

/* --- Reading results ------------------------------------------------------------------------ */

struct flat {
    struct br_buf *buf;
    const uint8_t *data;
    size_t len;
};

static struct flat flatten(const struct br_item *item)
{
    struct br_rope rope = {0};
    struct flat f;
    assert_int_equal(br_item_write(item, &rope), 0);
    assert_int_equal(rope.len, item->size);
    f.len = rope.len;
    f.buf = br_rope_flat(&rope, host.pool, &f.data);
    assert_non_null(f.buf);
    br_rope_release(&rope);
    return f;
}

/* Frees `item`; it must be the bytes of `m`. */
static void assert_is(struct br_item *item, const struct message *m)
{
    struct flat f = flatten(item);
    assert_int_equal(f.len, m->len);
    assert_memory_equal(f.data, m->data, m->len);
    br_buf_unref(f.buf);
    br_item_free(item);
}

static struct br_item *take(struct br_merge *m)
{
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    assert_non_null(item);
    assert_int_equal(br_merge_take(m, item), 0);
    return item;
}

static void tables_are(const struct br_item *item, const uint32_t n[BR_TABLES])
{
    struct br_arena arena = {0};
    struct br_dictionary_view v;
    assert_int_equal(br_dictionary_index(item, &arena, &v), 0);
    for (size_t t = 0; t < BR_TABLES; t++) {
        assert_int_equal(v.n[t], n[t]);
        assert_int_equal(v.tables[t][0].len, 0);
    }
    br_arena_release(&arena);
}

/* --- The view ------------------------------------------------------------------------------- */

static void test_index(void **state)
{
    (void)state;
    struct message *m = nest(2, text(STRING, ""), text(STRING, "a"), bytes(STACK, "", 0), END);
    m = join(m, nest(2, text(STRING, "bc"), number(9, 1), END));
    struct br_item *item = walked(BR_PROFILES, m);
    struct br_arena arena = {0};
    struct br_dictionary_view v;
    assert_int_equal(br_dictionary_index(item, &arena, &v), 0);
    assert_int_equal(v.n[BR_TABLE_STRING], 3);
    assert_int_equal(v.n[BR_TABLE_STACK], 1);
    assert_int_equal(v.n[BR_TABLE_LINK], 0);
    struct br_entry s = br_dictionary_string(&v, 2);
    assert_int_equal(s.len, 2);
    assert_memory_equal(s.data, "bc", 2);
    assert_int_equal(br_dictionary_string(&v, 3).len, 0);
    assert_int_equal(br_dictionary_string(&v, UINT32_MAX).len, 0);
    br_arena_release(&arena);
    br_arena_init(&arena, 1);
    assert_int_equal(br_dictionary_index(item, &arena, &v), BR_ENOMEM);
    br_arena_release(&arena);
    br_item_free(item);
    free_messages();
}

/* --- Merging -------------------------------------------------------------------------------- */

static void test_merge(void **state)
{
    (void)state;
    struct br_merge *m = br_merge_new(&host, 1 << 20);
    struct br_item *a = small_item(3, "main"), *b = small_item(200, "main"),
                   *c = small_item(0, "other");
    assert_int_equal(br_merge_size(m), 0);
    assert_int_equal(br_merge_add(m, a), 0);
    assert_int_equal(br_merge_add(m, b), 0);
    assert_int_equal(br_merge_items(m), 2);
    struct br_item *same = take(m);
    const uint32_t one[BR_TABLES] = {2, 2, 2, 2, 6, 2, 2};
    tables_are(same, one);
    assert_int_equal(same->n_items, 2);
    assert_int_equal(same->n_parts, 3);
    /* Both say the same, so their parts are the same bytes. */
    assert_int_equal(same->parts[0].raw_len, same->parts[1].raw_len);
    assert_memory_equal(same->parts[0].raw, same->parts[1].raw, same->parts[0].raw_len);
    assert_int_equal(br_merge_items(m), 0);
    assert_int_equal(br_merge_size(m), 0);
    assert_int_equal(br_merge_add(m, c), 0);
    assert_int_equal(br_merge_add(m, a), 0);
    assert_true(br_merge_size(m) > 0);
    struct br_item *other = take(m);
    const uint32_t two[BR_TABLES] = {2, 3, 3, 2, 7, 2, 3};
    tables_are(other, two);
    br_item_free(same);
    br_item_free(other);
    br_item_free(a);
    br_item_free(b);
    br_item_free(c);
    br_merge_free(m);
}

/* The whole output, by hand: entries in order of first use, entry 0 first, defaults left out. */
static void test_merge_bytes(void **state)
{
    (void)state;
    struct br_merge *m = br_merge_new(&host, 1 << 20);
    struct br_item *a = small_item(2, "main");
    assert_int_equal(br_merge_add(m, a), 0);
    struct message *sample =
        nest(2, bytes(2, "\1", 1), bytes(4, "\5", 1), number(1, 1), number(3, 1), END);
    struct message *profile = nest(2, nest(1, number(1, 1), END), sample, END);
    struct message *scope = nest(2, nest(1, text(1, "profiler"), END), profile, END);
    struct message *resource =
        nest(1, nest(1, text(1, "service.name"), nest(2, text(1, "shop"), END), END), END);
    struct message *d = nest(
        2, bytes(MAPPING, "", 0), nest(MAPPING, number(1, 4096), number(4, 5), END),
        bytes(LOCATION, "", 0),
        nest(LOCATION, nest(3, number(1, 1), number(2, 9), END), number(1, 1), number(2, 4100), END),
        bytes(FUNCTION, "", 0), nest(FUNCTION, number(1, 3), number(3, 4), number(4, 7), END),
        bytes(LINK, "", 0),
        nest(LINK, bytes(1, "0123456789abcdef", 16), bytes(2, "01234567", 8), END),
        text(STRING, ""), text(STRING, "cpu"), text(STRING, "thread"), text(STRING, "main"),
        text(STRING, "main.go"), text(STRING, "/bin/app"), bytes(ATTRIBUTE, "", 0),
        nest(ATTRIBUTE, number(1, 2), nest(2, text(1, "worker"), END), END), bytes(STACK, "", 0),
        nest(STACK, bytes(1, "\1", 1), END), END);
    assert_is(take(m), join(nest(1, resource, scope, END), d));
    free_messages();
    br_item_free(a);
    br_merge_free(m);
}

/* A link and an attribute in both orders of fields, padded and not, are one entry each. */
static void test_equal_entries(void **state)
{
    (void)state;
    struct message *trace = bytes(1, "0123456789abcdef", 16), *span = bytes(2, "01234567", 8);
    struct message *key = number(1, 1), *value = nest(2, text(1, "x"), END);
    struct message *padded = bytes(ATTRIBUTE, "\x92\x80\x00\x83\x80\x00\x0a\x01x\x08\x81\x00", 12);
    struct message *d =
        nest(2, zero_entries(), text(STRING, "k"), nest(LINK, trace, span, END),
             nest(LINK, span, trace, END), nest(ATTRIBUTE, key, value, END),
             nest(ATTRIBUTE, value, key, END), padded, END);
    struct message *first = nest(2, bytes(2, "\1\2\3", 3), number(3, 1), number(4, 1), END);
    struct message *second = nest(2, number(2, 3), number(2, 1), number(3, 2), number(4, 1), END);
    struct message *m = join(nest(1, nest(2, nest(2, first, second, END), END), END), d);
    struct br_item *item = walked(BR_PROFILES, m);
    struct br_merge *merge = br_merge_new(&host, 1 << 20);
    assert_int_equal(br_merge_add(merge, item), 0);
    struct br_item *merged = take(merge);
    const uint32_t n[BR_TABLES] = {1, 1, 1, 2, 2, 2, 1};
    tables_are(merged, n);
    br_item_free(merged);
    br_item_free(item);
    br_merge_free(merge);
    free_messages();
}

/* Illegal, but seen: entry 0 is not zero. Nothing may refer to what it says. */
static void test_entry_zero_means_none(void **state)
{
    (void)state;
    struct message *d = nest(2, text(STRING, "not empty"), text(STRING, "k"),
                             nest(STACK, bytes(1, "\1", 1), END),
                             nest(LOCATION, number(2, 1), END), nest(LOCATION, number(2, 2), END),
                             nest(FUNCTION, number(1, 1), END), END);
    struct message *profile = nest(2, nest(2, number(1, 0), number(4, 3), END), END);
    struct br_item *item = walked(BR_PROFILES, join(nest(1, nest(2, profile, END), END), d));
    struct br_merge *merge = br_merge_new(&host, 1 << 20);
    assert_int_equal(br_merge_add(merge, item), 0);
    struct br_item *merged = take(merge);
    const uint32_t n[BR_TABLES] = {1, 1, 1, 1, 1, 1, 1};
    tables_are(merged, n);
    br_item_free(merged);
    br_item_free(item);
    br_merge_free(merge);
    free_messages();
}

/* A request without dictionary still gets one, with entry 0 in every table; an unknown field of the
 * request stays; a replaced Resource is the one that is written. */
static void test_parts(void **state)
{
    (void)state;
    struct message *profile = nest(2, nest(2, number(4, 3), END), END);
    struct message *m = join(text(77, "later"), nest(1, nest(2, profile, END), nest(1, END), END));
    struct br_item *item = walked(BR_PROFILES, m);
    struct br_buf *buf = br_buf_new(host.pool, 16);
    struct message *attribute = nest(1, text(1, "k"), END);
    memcpy(buf->data, attribute->data, attribute->len);
    br_item_set_resource(item, &item->parts[1], buf, buf->data, attribute->len);
    br_buf_unref(buf);
    struct br_merge *merge = br_merge_new(&host, 1 << 20);
    assert_int_equal(br_merge_add(merge, item), 0);
    struct message *expected = nest(1, nest(1, attribute, END), nest(2, profile, END), END);
    expected = join(join(text(77, "later"), expected), nest(2, zero_entries(), END));
    struct br_item *merged = take(merge);
    size_t len;
    const uint8_t *resource = br_part_resource(&merged->parts[1], &len);
    assert_int_equal(len, attribute->len);
    assert_memory_equal(resource, attribute->data, len);
    assert_is(merged, expected);
    br_item_free(item);
    br_merge_free(merge);
    free_messages();
}

static void test_nothing(void **state)
{
    (void)state;
    struct br_merge *m = br_merge_new(&host, 1 << 20);
    struct br_item *item = br_item_new(&host, BR_PROFILES), *merged = take(m);
    assert_int_equal(merged->n_parts, 0);
    assert_int_equal(br_merge_add(m, item), 0);
    assert_int_equal(br_merge_take(m, merged), 0);
    assert_int_equal(merged->n_parts, 0);
    br_item_free(merged);
    br_item_free(item);
    br_merge_free(m);
    br_merge_free(NULL);
}

/* Not in line: gcc would suppose lengths that these short messages cannot have. */
static __attribute__((noinline)) void append(struct message *m, uint32_t field, const void *data,
                                             size_t len)
{
    m->len = (size_t)(br_put_len(m->data + m->len, field, data, len) - m->data);
}

/* `n` strings, each a frame of one stack: indices of one, two and three bytes. */
static struct br_item *wide_item(unsigned n)
{
    struct message *strings = new_message(16u * n), *stack = new_message(4u * n);
    struct message *locations = new_message(16u * n), *functions = new_message(16u * n);
    struct message *line = new_message(64);
    for (unsigned i = 1; i <= n; i++) {
        char name[16];
        uint8_t index[2 * BR_VARINT_MAX];
        append(strings, STRING, name, (size_t)snprintf(name, sizeof name, "f%u", i));
        uint8_t *p = br_put_varint(index, BR_TAG(1, BR_WIRE_VARINT));
        p = br_put_varint(p, i); /* Function.name_strindex, and Line.function_index */
        append(functions, FUNCTION, index, (size_t)(p - index));
        line->len = 0;
        append(line, 3, index, (size_t)(p - index));
        append(locations, LOCATION, line->data, line->len);
        p = br_put_varint(stack->data + stack->len, i);
        stack->len = (size_t)(p - stack->data);
    }
    struct message *d = nest(2, zero_entries(), strings, functions, locations,
                             nest(STACK, bytes(1, stack->data, stack->len), END), END);
    struct message *profile = nest(2, nest(2, number(1, 1), number(4, 1), END), END);
    struct br_item *item = walked(BR_PROFILES, join(nest(1, nest(2, profile, END), END), d));
    free_messages();
    return item;
}

static void test_wide_indices(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct br_item *item = wide_item(N), *again = wide_item(N);
    struct br_merge *m = br_merge_new(&host, 64u << 20);
    assert_int_equal(br_merge_add(m, item), 0);
    assert_int_equal(br_merge_add(m, again), 0);
    struct br_item *merged = take(m);
    const uint32_t n[BR_TABLES] = {1, N + 1, N + 1, 1, N + 1, 1, 2};
    tables_are(merged, n);
    /* In order of first use, so every entry keeps its number: the stacks are the same bytes. */
    struct br_arena arena = {0};
    struct br_dictionary_view before, after;
    assert_int_equal(br_dictionary_index(item, &arena, &before), 0);
    assert_int_equal(br_dictionary_index(merged, &arena, &after), 0);
    struct br_entry a = before.tables[BR_TABLE_STACK][1], b = after.tables[BR_TABLE_STACK][1];
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    br_arena_release(&arena);
    br_item_free(merged);
    br_item_free(item);
    br_item_free(again);
    br_merge_free(m);
}

static void test_full(void **state)
{
    (void)state;
    struct br_item *small = small_item(0, "main"), *large = wide_item(5000);
    struct br_merge *m = br_merge_new(&host, 100000);
    assert_int_equal(br_merge_add(m, large), BR_EFULL);
    assert_int_equal(br_merge_add(m, small), 0);
    size_t size = br_merge_size(m);
    assert_int_equal(br_merge_add(m, large), BR_EFULL);
    assert_int_equal(br_merge_items(m), 1);
    assert_int_equal(br_merge_size(m), size);
    assert_int_equal(br_merge_add(m, small), 0);
    assert_int_equal(br_merge_items(m), 2);
    struct br_item *merged = take(m);
    const uint32_t n[BR_TABLES] = {2, 2, 2, 2, 6, 2, 2};
    tables_are(merged, n);
    br_item_free(merged);
    br_merge_free(m);
    m = br_merge_new(&host, 10);
    assert_int_equal(br_merge_add(m, small), BR_EFULL);
    br_item_free(small);
    br_item_free(large);
    br_merge_free(m);
}

/* A merger that one batch made large in some tables has room for a batch of another shape. */
static void test_shapes(void **state)
{
    (void)state;
    struct br_item *few = small_item(0, "main"), *wide = wide_item(500);
    struct br_merge *m = br_merge_new(&host, 200000);
    assert_int_equal(br_merge_add(m, wide), 0);
    br_item_free(take(m));
    unsigned n = 0;
    while (br_merge_add(m, few) == 0)
        n++;
    assert_true(n > 500);
    struct br_item *merged = take(m);
    assert_int_equal(merged->n_items, n);
    br_item_free(merged);
    assert_int_equal(br_merge_add(m, wide), 0);
    br_item_free(few);
    br_item_free(wide);
    br_merge_free(m);
}

/* What no walk has accepted is refused, and nothing of it stays. */
static void test_malformed(void **state)
{
    (void)state;
    struct br_item *good = small_item(0, "main");
    struct br_merge *m = br_merge_new(&host, 1 << 20);
    assert_int_equal(br_merge_add(m, good), 0);
    struct flat f = flatten(good);
    size_t size = br_merge_size(m);
    unsigned refused = 0;
    for (size_t i = 0; i < f.len; i++) {
        struct br_item *bad = br_item_new(&host, BR_PROFILES);
        struct br_buf *buf = br_buf_new(host.pool, f.len);
        for (uint32_t k = 0; k < good->n_parts; k++) {
            struct br_part part = good->parts[k];
            size_t at = k == 0 ? 0 : good->parts[0].raw_len;
            memcpy(buf->data + at, part.raw, part.raw_len);
            part.buf = buf;
            part.raw = buf->data + at;
            assert_int_equal(br_item_add_part(bad, &part), 0);
        }
        if (i >= good->parts[0].body_at &&
            (i < good->parts[0].raw_len || i >= good->parts[0].raw_len + good->parts[1].body_at))
            buf->data[i] = 0xff;
        int rc = br_merge_add(m, bad);
        assert_true(rc == 0 || rc == BR_EINVAL);
        refused += rc == BR_EINVAL;
        if (rc)
            assert_int_equal(br_merge_size(m), size);
        size = br_merge_size(m);
        br_item_free(bad);
        br_buf_unref(buf);
    }
    assert_true(refused > 20);
    br_buf_unref(f.buf);
    br_item_free(good);
    br_merge_free(m);
}

/* --- Splitting ------------------------------------------------------------------------------ */

struct pieces {
    struct br_item *v[64];
    unsigned n, stop_after;
};

static int on_piece(struct br_item *piece, void *arg)
{
    struct pieces *p = arg;
    assert_true(p->n < 64);
    p->v[p->n++] = piece;
    return p->n == p->stop_after ? BR_ECLOSED : 0;
}

static void free_pieces(struct pieces *p)
{
    while (p->n)
        br_item_free(p->v[--p->n]);
}

/* A profile of `n` samples with a payload; sample i has the value i. */
static struct br_item *long_item(unsigned n)
{
    struct message *profile = join(text(9, "pprof"), text(10, "the original"));
    for (unsigned i = 0; i < n; i++)
        profile = join(profile, nest(2, number(1, i % 3), number(4, i), END));
    struct message *d = nest(2, zero_entries(), nest(LOCATION, number(2, 1), END),
                             nest(STACK, bytes(1, "\1", 1), END), nest(STACK, bytes(1, "\1\1", 2), END), END);
    struct message *rest = join(number(6, 99), bytes(7, "0123456789abcdef", 16));
    struct message *r = nest(1, nest(1, END), nest(2, nest(2, profile, rest, END), END), END);
    struct br_item *item = walked(BR_PROFILES, join(r, d));
    free_messages();
    return item;
}

static bool contains(const struct br_item *item, const char *what)
{
    struct flat f = flatten(item);
    bool found = memmem(f.data, f.len, what, strlen(what)) != NULL;
    br_buf_unref(f.buf);
    return found;
}

static void test_split(void **state)
{
    (void)state;
    struct br_item *item = long_item(10);
    struct pieces p = {0};
    assert_int_equal(br_profiles_split(item, 4, 0, on_piece, &p), 0);
    assert_int_equal(p.n, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(p.v[i]->n_items, i < 2 ? 4 : 2);
        assert_int_equal(p.v[i]->n_held, 0);
        assert_true(contains(p.v[i], "0123456789abcdef"));
        assert_int_equal(contains(p.v[i], "the original"), i == 0);
        assert_int_equal(contains(p.v[i], "pprof"), i == 0);
    }
    const uint32_t all[BR_TABLES] = {1, 2, 1, 1, 1, 1, 3};
    tables_are(p.v[0], all);
    const uint32_t last[BR_TABLES] = {1, 2, 1, 1, 1, 1, 2};
    tables_are(p.v[2], last); /* samples 8 and 9: stacks 2 and 0 */
    free_pieces(&p);
    assert_int_equal(br_profiles_split(item, 0, 0, on_piece, &p), 0);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.v[0]->n_items, 10);
    free_pieces(&p);
    br_item_free(item);
}

static void test_split_bytes(void **state)
{
    (void)state;
    struct br_item *item = long_item(60);
    struct pieces p = {0};
    assert_int_equal(br_profiles_split(item, 0, 200, on_piece, &p), 0);
    uint32_t n = 0;
    for (unsigned i = 0; i < p.n; i++) {
        assert_true(p.v[i]->size <= 200);
        n += p.v[i]->n_items;
    }
    assert_int_equal(n, 60);
    assert_in_range(p.n, 2, 10);
    free_pieces(&p);
    assert_int_equal(br_profiles_split(item, 0, 1, on_piece, &p), 0);
    assert_int_equal(p.n, 60);
    free_pieces(&p);
    br_item_free(item);
}

static void test_split_stops(void **state)
{
    (void)state;
    struct br_item *item = long_item(10);
    struct pieces p = {.stop_after = 2};
    assert_int_equal(br_profiles_split(item, 3, 0, on_piece, &p), BR_ECLOSED);
    assert_int_equal(p.n, 2);
    free_pieces(&p);
    br_item_free(item);
}

static struct message *span(const char *name)
{
    return nest(2, bytes(1, "0123456789abcdef", 16), bytes(2, "01234567", 8), text(5, name), END);
}

static void test_split_traces(void **state)
{
    (void)state;
    struct message *resource = nest(1, nest(1, text(1, "k"), END), END);
    struct message *scope = nest(1, text(1, "lib"), END), *url = text(3, "schema");
    struct message *first = nest(2, scope, span("a"), span("b"), url, END);
    struct message *second = nest(2, span("c"), END);
    struct br_item *item =
        walked(BR_TRACES, nest(1, first, second, resource, text(3, "outer"), END));
    struct pieces p = {0};
    assert_int_equal(br_traces_split(item, 2, 0, on_piece, &p), 0);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.v[0]->n_items, 2);
    assert_int_equal(p.v[1]->n_items, 1);
    struct message *head = join(resource, text(3, "outer"));
    assert_is(p.v[0], nest(1, head, nest(2, scope, url, span("a"), span("b"), END), END));
    assert_is(p.v[1], nest(1, head, nest(2, span("c"), END), END));
    p.n = 0;
    assert_int_equal(br_traces_split(item, 0, 10, on_piece, &p), 0);
    assert_int_equal(p.n, 3);
    free_pieces(&p);
    br_item_free(item);
    free_messages();
}

/* --- References ----------------------------------------------------------------------------- */

/* Attributes of a Resource or scope (`field`), by reference and not, and what they should become. */
static struct message *referring(uint32_t field)
{
    struct message *list = nest(5, nest(1, number(8, 2), END), END);
    struct message *map = nest(6, nest(1, number(3, 1), nest(2, number(8, 0), END), END), END);
    return join(join(nest(field, number(3, 1), nest(2, number(8, 2), END), END),
                     nest(field, text(1, "inline"), number(3, 2), nest(2, list, END), END)),
                join(nest(field, nest(2, map, END), number(3, 2), END),
                     nest(field, text(1, "plain"), nest(2, number(3, 5), END), END)));
}

static struct message *resolved(uint32_t field)
{
    struct message *list = nest(5, nest(1, text(1, "value"), END), END);
    struct message *map = nest(6, nest(1, text(1, "key"), nest(2, text(1, ""), END), END), END);
    return join(join(nest(field, text(1, "key"), nest(2, text(1, "value"), END), END),
                     nest(field, text(1, "inline"), nest(2, list, END), END)),
                join(nest(field, text(1, "value"), nest(2, map, END), END),
                     nest(field, text(1, "plain"), nest(2, number(3, 5), END), END)));
}

static struct message *reference_request(struct message *resource, struct message *scope,
                                         struct message *value)
{
    struct message *profile = nest(2, number(6, 1), nest(2, number(4, 1), END), END);
    struct message *attribute = nest(ATTRIBUTE, number(1, 1), nest(2, value, END), END);
    struct message *d = nest(2, text(STRING, ""), text(STRING, "key"), text(STRING, "value"),
                             bytes(ATTRIBUTE, "", 0), attribute, END);
    return join(nest(1, nest(2, profile, nest(1, text(1, "lib"), scope, END), END),
                     nest(1, resource, number(2, 1), END), END),
                d);
}

static void test_references(void **state)
{
    (void)state;
    struct message *none = new_message(0), *string = text(1, "value");
    for (unsigned which = 0; which < 8; which++) {
        struct message *resource = which & 1 ? referring(1) : none;
        struct message *scope = which & 2 ? referring(3) : none;
        struct message *value = which & 4 ? number(8, 2) : string;
        struct br_item *item = walked(BR_PROFILES, reference_request(resource, scope, value));
        assert_int_equal(br_item_has_references(item), which != 0);
        assert_int_equal(br_item_inline_references(item), 0);
        assert_false(br_item_has_references(item));
        assert_int_equal(br_item_inline_references(item), 0);
        /* The Resource, once replaced, is written first. */
        struct message *expected = reference_request(which & 1 ? resolved(1) : none,
                                                     which & 2 ? resolved(3) : none, string);
        struct br_item *again = walked(BR_PROFILES, expected);
        assert_int_equal(item->size, again->size);
        size_t a_len, b_len;
        const uint8_t *a = br_part_resource(&item->parts[0], &a_len);
        const uint8_t *b = br_part_resource(&again->parts[0], &b_len);
        assert_int_equal(a_len, b_len);
        assert_memory_equal(a, b, a_len);
        assert_int_equal(item->parts[1].raw_len, again->parts[1].raw_len);
        assert_memory_equal(item->parts[1].raw, again->parts[1].raw, again->parts[1].raw_len);
        if (!(which & 1))
            assert_is(item, expected);
        else
            br_item_free(item);
        br_item_free(again);
    }
    free_messages();
}

static void test_references_of_traces(void **state)
{
    (void)state;
    struct message *resource = nest(1, nest(1, text(1, "k"), nest(2, number(8, 0), END), END), END);
    struct br_item *item = walked(BR_TRACES, nest(1, resource, END));
    assert_false(br_item_has_references(item));
    assert_int_equal(br_item_inline_references(item), 0);
    br_item_free(item);
    free_messages();
}

/* --- The table ------------------------------------------------------------------------------ */

/* Every length up to 300 twice, differing in one byte only; then a truncation. */
static void test_intern(void **state)
{
    (void)state;
    struct br_budget budget = {0, 1 << 20};
    struct br_intern t = {0};
    uint32_t hash;
    uint8_t body[300];
    assert_int_equal(br_intern_init(&t, &budget, 5), 0);
    uint32_t half = 0, half_len = 0;
    for (size_t len = 1; len <= sizeof body; len++) {
        for (unsigned flip = 0; flip < 2; flip++) {
            memset(body, 'x', sizeof body);
            body[len * 7 % len] = flip ? 'y' : 'x';
            body[(len * 5 + 3) % len] ^= (uint8_t)(flip * 2);
            assert_int_equal(br_intern_find(&t, body, len, 0, &hash), BR_INTERN_NONE);
            assert_int_equal(br_intern_reserve(&t, &budget, len), 0);
            memcpy(br_intern_body(&t), body, len);
            uint32_t i = br_intern_append(&t, len, hash);
            assert_int_equal(i, (len - 1) * 2 + flip + 1);
            assert_int_equal(br_intern_find(&t, body, len, UINT32_MAX, &hash), i);
            assert_int_equal(br_intern_find(&t, body, len, i, &hash), i);
        }
        if (len == 150) {
            half = t.n;
            half_len = t.len;
        }
    }
    br_intern_truncate(&t, half, half_len);
    memset(body, 'x', sizeof body);
    assert_int_equal(br_intern_find(&t, body, 151, UINT32_MAX, &hash), BR_INTERN_NONE);
    assert_int_not_equal(br_intern_find(&t, body, 150, UINT32_MAX, &hash), BR_INTERN_NONE);
    br_intern_clear(&t);
    assert_int_equal(t.n, 1);
    assert_int_equal(br_intern_find(&t, body, 0, UINT32_MAX, &hash), 0);
    assert_int_equal(br_intern_reserve(&t, &budget, 2 << 20), BR_EFULL);
    br_intern_release(&t, &budget);
    assert_int_equal(budget.used, 0);
}

/* --- No memory ------------------------------------------------------------------------------ */

static long countdown; /* allocations that still succeed */

static void *failing_alloc(size_t size)
{
    return countdown-- > 0 ? malloc(size) : NULL;
}

static void *failing_resize(void *p, size_t size)
{
    return countdown-- > 0 ? realloc(p, size) : NULL;
}

static const struct br_mem_hooks failing = {failing_alloc, failing_resize, free};

typedef int work_fn(void *arg);

/* Lets every allocation fail once; afterwards the work must succeed. */
static void with_failures(work_fn *work, void *arg)
{
    int rc = BR_ENOMEM;
    long n = 0;
    for (; n < 10000 && rc; n++) {
        br_pool_trim(host.pool);
        br_mem_set_hooks(&failing);
        countdown = n;
        rc = work(arg);
        br_mem_set_hooks(NULL);
        assert_true(rc == 0 || rc == BR_ENOMEM);
    }
    assert_int_equal(rc, 0);
    assert_true(n > 1);
}

struct merging {
    struct br_item *first, *second;
    struct message *expected;
};

/* A failed step leaves the merger as it was: the same step, repeated, gives the whole result. */
static int work_merge(void *arg)
{
    struct merging *w = arg;
    struct br_merge *m = br_merge_new(&host, 1 << 20);
    struct br_item *into = br_item_new(&host, BR_PROFILES);
    int failed = m && into ? 0 : BR_ENOMEM;
    for (int i = 0; i < 2 && m && into; i++) {
        uint32_t items = br_merge_items(m);
        size_t size = br_merge_size(m);
        int rc = br_merge_add(m, i ? w->second : w->first);
        if (rc) {
            assert_int_equal(rc, BR_ENOMEM);
            assert_int_equal(br_merge_items(m), items);
            assert_int_equal(br_merge_size(m), size);
            countdown = 1000;
            failed = rc;
            assert_int_equal(br_merge_add(m, i ? w->second : w->first), 0);
        }
    }
    if (m && into && br_merge_take(m, into)) {
        assert_int_equal(into->n_parts, 0);
        assert_int_equal(br_merge_items(m), 2);
        countdown = 1000;
        failed = BR_ENOMEM;
        assert_int_equal(br_merge_take(m, into), 0);
    }
    if (m && into && w->expected) {
        countdown = 1000;
        assert_is(into, w->expected);
        into = NULL;
    } else if (m && into) {
        struct flat f = flatten(into);
        w->expected = bytes(1, f.data, f.len);
        w->expected->len = f.len;
        memcpy(w->expected->data, f.data, f.len);
        br_buf_unref(f.buf);
    }
    br_item_free(into);
    br_merge_free(m);
    return failed;
}

static void test_no_memory_merge(void **state)
{
    (void)state;
    struct merging w = {small_item(0, "main"), wide_item(300), NULL};
    assert_int_equal((countdown = 1000, work_merge(&w)), 0);
    with_failures(work_merge, &w);
    br_item_free(w.first);
    br_item_free(w.second);
    free_messages();
}

static int work_split(void *arg)
{
    struct pieces p = {0};
    int rc = br_profiles_split(arg, 4, 0, on_piece, &p);
    if (!rc)
        assert_int_equal(p.n, 3);
    free_pieces(&p);
    return rc;
}

static int work_split_bytes(void *arg)
{
    struct pieces p = {0};
    int rc = br_profiles_split(arg, 0, 150, on_piece, &p);
    uint32_t n = 0;
    for (unsigned i = 0; i < p.n; i++)
        n += p.v[i]->n_items;
    assert_true(rc ? n <= 10 : n == 10);
    free_pieces(&p);
    return rc;
}

static void test_no_memory_split(void **state)
{
    (void)state;
    struct br_item *item = long_item(10);
    with_failures(work_split, item);
    with_failures(work_split_bytes, item);
    br_item_free(item);
}

/* Started anew until it works, on one item: what was done before a failure stays good. */
static int work_inline(void *arg)
{
    struct br_item *item = *(struct br_item **)arg;
    int rc = br_item_inline_references(item);
    countdown = 1000;
    assert_int_equal(br_item_has_references(item), rc != 0);
    struct flat f = flatten(item);
    br_buf_unref(f.buf);
    return rc;
}

static void test_no_memory_references(void **state)
{
    (void)state;
    struct br_item *item =
        walked(BR_PROFILES, reference_request(referring(1), referring(3), number(8, 2)));
    with_failures(work_inline, &item);
    struct br_item *again =
        walked(BR_PROFILES, reference_request(resolved(1), resolved(3), text(1, "value")));
    assert_int_equal(item->size, again->size);
    br_item_free(item);
    br_item_free(again);
    free_messages();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_merge_bytes),
        cmocka_unit_test(test_equal_entries),
        cmocka_unit_test(test_entry_zero_means_none),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_wide_indices),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_bytes),
        cmocka_unit_test(test_split_stops),
        cmocka_unit_test(test_split_traces),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_references_of_traces),
        cmocka_unit_test(test_intern),
        cmocka_unit_test(test_no_memory_merge),
        cmocka_unit_test(test_no_memory_split),
        cmocka_unit_test(test_no_memory_references),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
