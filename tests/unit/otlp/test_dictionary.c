/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/profiles_request.h"

#include "otlp/dictionary/intern.h"
#include "otlp/edit/edit.h"
#include "tests/support/test.h"

/* tests/conformance/test_dictionary.py tests random requests with an independent reader. */

/* Returns a request with one sample of one function, "main" in "main.go". The sample has a file
 * mapping, the attribute thread=worker and a link to a span. `strings` other strings come first
 * in the string table. */
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
    d = join(d, nest(LOCATION, number(1, 1), number(2, 4100),
                     nest(3, number(1, 1), number(2, 9), END), END));
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

static struct br_item *take(struct br_merge *m)
{
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    assert_non_null(item);
    assert_int_equal(br_merge_take(m, item), 0);
    return item;
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
    assert_int_equal(v.count[BR_TABLE_STRING], 3);
    assert_int_equal(v.count[BR_TABLE_STACK], 1);
    assert_int_equal(v.count[BR_TABLE_LINK], 0);
    struct br_entry s = br_dictionary_string(&v, 2);
    assert_int_equal(s.len, 2);
    assert_memory_equal(s.data, "bc", 2);
    assert_int_equal(br_dictionary_string(&v, 3).len, 0);
    assert_int_equal(br_dictionary_string(&v, UINT32_MAX).len, 0);
    br_arena_release(&arena);
    br_arena_init(&arena, 1);
    assert_int_equal(br_dictionary_index(item, &arena, &v), BR_EFULL);
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
    assert_int_equal(br_merge_records(m), 2);
    struct br_item *same = take(m);
    const uint32_t one[BR_TABLES] = {2, 2, 2, 2, 6, 2, 2};
    tables_are(same, one);
    assert_int_equal(same->n_records, 2);
    assert_int_equal(same->n_parts, 3);
    /* Both parts have the same content, so their bytes are equal. */
    assert_int_equal(same->parts[0].raw_len, same->parts[1].raw_len);
    assert_memory_equal(same->parts[0].raw, same->parts[1].raw, same->parts[0].raw_len);
    assert_int_equal(br_merge_records(m), 0);
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

/* Reading the tables of a merged dictionary with its outline gives the same result as reading
 * them from its bytes, for every combination of tables. Replacing the bytes removes the outline. */
static void test_outline(void **state)
{
    (void)state;
    struct br_merge *m = br_merge_new(&host, 1 << 20);
    struct br_item *a = small_item(200, "main"), *c = small_item(0, "other");
    assert_int_equal(br_merge_add(m, a), 0);
    assert_int_equal(br_merge_add(m, c), 0);
    struct br_item *item = take(m);
    struct br_part *part = &item->parts[item->n_parts - 1];
    struct br_arena arena = {0};
    assert_int_equal(part->kind, BR_PART_DICTIONARY);
    uint32_t outline_at = part->outline_at;
    assert_true(outline_at >= part->raw_len);
    for (unsigned tables = 1; tables < 1u << BR_TABLES; tables++) {
        struct br_dictionary_view with, without;
        part->outline_at = outline_at;
        assert_int_equal(br_dictionary_index_some(item, tables, &arena, &with), 0);
        assert_false(br_item_has_references(item));
        part->outline_at = 0;
        assert_int_equal(br_dictionary_index_some(item, tables, &arena, &without), 0);
        for (int t = 0; t < BR_TABLES; t++) {
            assert_int_equal(with.count[t], without.count[t]);
            assert_int_equal(with.count[t] > 0, tables >> t & 1);
            for (uint32_t i = 0; i < with.count[t]; i++) {
                assert_ptr_equal(with.tables[t][i].data, without.tables[t][i].data);
                assert_int_equal(with.tables[t][i].len, without.tables[t][i].len);
            }
        }
    }
    for (int outlined = 0; outlined < 2; outlined++) {
        struct br_dictionary_view all, late;
        part->outline_at = outlined ? outline_at : 0;
        assert_int_equal(br_dictionary_index(item, &arena, &all), 0);
        assert_int_equal(br_dictionary_index_lazy(item, 0, &arena, &late), 0);
        assert_int_equal(late.count[BR_TABLE_STRING], all.count[BR_TABLE_STRING]);
        for (uint32_t i = 0; i <= all.count[BR_TABLE_STRING]; i++) {
            uint32_t there_and_back = i % 2 ? i / 2 : i;
            assert_ptr_equal(br_dictionary_string(&late, there_and_back).data,
                             br_dictionary_string(&all, there_and_back).data);
            assert_int_equal(br_dictionary_string(&late, there_and_back).len,
                             br_dictionary_string(&all, there_and_back).len);
        }
    }
    part->outline_at = outline_at;
    struct br_buf *copy = br_buf_new(host.pool, part->raw_len);
    assert_non_null(copy);
    memcpy(copy->data, part->raw, copy->len = part->raw_len);
    br_part_set_bytes(item, part, copy);
    assert_int_equal(part->outline_at, 0);
    br_arena_release(&arena);
    br_item_free(item);
    br_item_free(a);
    br_item_free(c);
    br_merge_free(m);
}

/* Compares the whole output with bytes written by hand: entry 0 first, then entries in the order
 * of their first use, without default values. */
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
    struct message *d =
        nest(2, bytes(MAPPING, "", 0), nest(MAPPING, number(1, 4096), number(4, 5), END),
             bytes(LOCATION, "", 0),
             nest(LOCATION, nest(3, number(1, 1), number(2, 9), END), number(1, 1), number(2, 4100),
                  END),
             bytes(FUNCTION, "", 0), nest(FUNCTION, number(1, 3), number(3, 4), number(4, 7), END),
             bytes(LINK, "", 0),
             nest(LINK, bytes(1, "0123456789abcdef", 16), bytes(2, "01234567", 8), END),
             text(STRING, ""), text(STRING, "cpu"), text(STRING, "thread"), text(STRING, "main"),
             text(STRING, "main.go"), text(STRING, "/bin/app"), bytes(ATTRIBUTE, "", 0),
             nest(ATTRIBUTE, number(1, 2), nest(2, text(1, "worker"), END), END),
             bytes(STACK, "", 0), nest(STACK, bytes(1, "\1", 1), END), END);
    assert_is(take(m), join(nest(1, resource, scope, END), d));
    free_messages();
    br_item_free(a);
    br_merge_free(m);
}

/* Equal links and equal attributes become one entry each, whatever the order of their fields and
 * the padding of their lengths. */
static void test_equal_entries(void **state)
{
    (void)state;
    struct message *trace = bytes(1, "0123456789abcdef", 16), *span = bytes(2, "01234567", 8);
    struct message *key = number(1, 1), *value = nest(2, text(1, "x"), END);
    struct message *padded = bytes(ATTRIBUTE, "\x92\x80\x00\x83\x80\x00\x0a\x01x\x08\x81\x00", 12);
    struct message *d = nest(2, zero_entries(), text(STRING, "k"), nest(LINK, trace, span, END),
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

/* Some senders write an entry 0 that is not empty, although that is illegal. References to entry
 * 0 still mean "none", so its content is not merged. */
static void test_entry_zero_means_none(void **state)
{
    (void)state;
    struct message *d =
        nest(2, text(STRING, "not empty"), text(STRING, "k"), nest(STACK, bytes(1, "\1", 1), END),
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

/* A merged request without a dictionary gets one with entry 0 in every table. Unknown fields of
 * the request are kept, and a replaced Resource is the one that is written. */
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

static void test_empty_merger(void **state)
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

/* Not inline, because gcc would warn about lengths that these short messages cannot have. */
static __attribute__((noinline)) void append(struct message *m, uint32_t field, const void *data,
                                             size_t len)
{
    m->len = (size_t)(br_put_len(m->data + m->len, field, data, len) - m->data);
}

/* Returns a request with `n` strings, each the name of one frame of a stack. Their indices take
 * one, two and three bytes. */
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
    /* The entries are already in the order of their first use, so the merge neither renumbers them
     * nor changes the bytes of the stacks. */
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
    assert_int_equal(br_merge_records(m), 1);
    assert_int_equal(br_merge_size(m), size);
    assert_int_equal(br_merge_add(m, small), 0);
    assert_int_equal(br_merge_records(m), 2);
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

/* After a batch with large tables, the merger still has room for a batch with other proportions. */
static void test_batches_of_other_proportions(void **state)
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
    assert_int_equal(merged->n_records, n);
    br_item_free(merged);
    assert_int_equal(br_merge_add(m, wide), 0);
    br_item_free(few);
    br_item_free(wide);
    br_merge_free(m);
}

/* Requests that the walk would not accept are rejected, and no part of them remains. */
static void test_malformed(void **state)
{
    (void)state;
    struct br_item *good = small_item(0, "main");
    struct br_merge *m = br_merge_new(&host, 1 << 20);
    assert_int_equal(br_merge_add(m, good), 0);
    struct flat f = flatten(good);
    size_t size = br_merge_size(m);
    unsigned n_rejected = 0;
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
        n_rejected += rc == BR_EINVAL;
        if (rc)
            assert_int_equal(br_merge_size(m), size);
        size = br_merge_size(m);
        br_item_free(bad);
        br_buf_unref(buf);
    }
    assert_true(n_rejected > 20);
    br_buf_unref(f.buf);
    br_item_free(good);
    br_merge_free(m);
}

/* --- The table ------------------------------------------------------------------------------ */

static uint32_t enter(struct br_intern *t, struct br_budget *budget, const uint8_t *body,
                      size_t len, uint32_t guess)
{
    assert_int_equal(br_intern_reserve(t, budget, len), 0);
    memcpy(br_intern_body(t), body, len);
    return br_intern_enter(t, len, guess);
}

/* Each text is entered once, even if the guessed index is wrong, and is stored in its wire format.
 */
static void test_intern_enter(void **state)
{
    (void)state;
    struct br_budget budget = {.max = 1 << 20};
    struct br_intern t = {0};
    uint8_t body[300];
    assert_int_equal(br_intern_init(&t, &budget, 5), 0);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t len = 1; len <= sizeof body; len++) {
            memset(body, 'x', len);
            body[len / 2] = (uint8_t)len;
            uint32_t before = t.len, i = enter(&t, &budget, body, len, UINT32_MAX);
            assert_int_equal(i, len);
            if (round) {
                assert_int_equal(t.len, before);
            } else {
                assert_int_equal(t.len - before, 1 + br_varint_size(len) + len);
                assert_int_equal(t.bytes[before], BR_TAG(5, BR_WIRE_LEN));
                assert_memory_equal(t.bytes + t.len - len, body, len);
            }
            assert_int_equal(enter(&t, &budget, body, len, i), i);
            assert_int_equal(enter(&t, &budget, body, len, i - 1), i);
        }
    }
    assert_int_equal(t.count, 301);
    assert_int_equal(enter(&t, &budget, body, 0, UINT32_MAX), 0);
    br_intern_release(&t, &budget);
    assert_int_equal(budget.used, 0);
}

/* Enters texts of every length up to 300, two per length that differ in one byte, then truncates
 * the table. */
static void test_intern(void **state)
{
    (void)state;
    struct br_budget budget = {.max = 1 << 20};
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
            half = t.count;
            half_len = t.len;
        }
    }
    br_intern_truncate(&t, half, half_len);
    memset(body, 'x', sizeof body);
    assert_int_equal(br_intern_find(&t, body, 151, UINT32_MAX, &hash), BR_INTERN_NONE);
    assert_int_not_equal(br_intern_find(&t, body, 150, UINT32_MAX, &hash), BR_INTERN_NONE);
    br_intern_clear(&t);
    assert_int_equal(t.count, 1);
    assert_int_equal(br_intern_find(&t, body, 0, UINT32_MAX, &hash), 0);
    assert_int_equal(br_intern_reserve(&t, &budget, 2 << 20), BR_EFULL);
    br_intern_release(&t, &budget);
    assert_int_equal(budget.used, 0);
}

/* br_intern_find_many returns the same indices as single lookups. This holds for missing texts
 * and for texts that share a slot with earlier ones. */
static void test_intern_find_many(void **state)
{
    (void)state;
    struct br_budget budget = {.max = 1 << 20};
    struct br_intern t = {0};
    char texts[600][40];
    uint32_t hash;
    assert_int_equal(br_intern_init(&t, &budget, 5), 0);
    for (uint32_t i = 0; i < 600; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "%.*s%u", (int)(i % 30),
                       "abcdefghijklmnopqrstuvwxyzabcdef", i);
        if (i % 3 == 0)
            continue;
        size_t len = strlen(texts[i]);
        assert_int_equal(br_intern_find(&t, (uint8_t *)texts[i], len, 0, &hash), BR_INTERN_NONE);
        assert_int_equal(br_intern_reserve(&t, &budget, len), 0);
        memcpy(br_intern_body(&t), texts[i], len);
        br_intern_append(&t, len, hash);
    }
    for (uint32_t i = 0; i < 600; i += 3) {
        uint32_t n = 1 + i % BR_INTERN_MANY, places[BR_INTERN_MANY];
        struct br_intern_text many[BR_INTERN_MANY];
        for (uint32_t k = 0; k < n; k++) {
            const char *text = texts[(i + k) % 600];
            many[k] = (struct br_intern_text){(const uint8_t *)text, strlen(text)};
        }
        br_intern_find_many(&t, many, n, places);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(places[k],
                             br_intern_find(&t, many[k].data, many[k].len, BR_INTERN_NONE, &hash));
            assert_int_equal(places[k] == BR_INTERN_NONE, (i + k) % 600 % 3 == 0);
        }
    }
    br_intern_release(&t, &budget);
}

/* Truncation removes every trace of the later entries: only the remaining ones occupy slots. */
static void test_intern_truncate(void **state)
{
    (void)state;
    struct br_budget budget = {.max = 1 << 20};
    struct br_intern t = {0};
    uint32_t hash, seed = 1, lens[3001];
    assert_int_equal(br_intern_init(&t, &budget, 5), 0);
    for (unsigned round = 0; round < 200; round++) {
        uint32_t most = round == 100 ? 3000 : 300;
        for (uint32_t i = t.count; i < most; i++) {
            assert_int_equal(br_intern_find(&t, (uint8_t *)&i, sizeof i, 0, &hash), BR_INTERN_NONE);
            assert_int_equal(br_intern_reserve(&t, &budget, sizeof i), 0);
            memcpy(br_intern_body(&t), &i, sizeof i);
            lens[i] = t.len;
            assert_int_equal(br_intern_append(&t, sizeof i, hash), i);
        }
        seed = seed * 1103515245 + 12345;
        uint32_t n = 1 + (seed >> 16) % 299;
        br_intern_truncate(&t, n, lens[n]);
        assert_int_equal(t.count, n);
        for (uint32_t i = 1; i < most; i++)
            assert_int_equal(br_intern_find(&t, (uint8_t *)&i, sizeof i, UINT32_MAX, &hash),
                             i < n ? i : BR_INTERN_NONE);
        uint32_t n_used = 0;
        for (uint32_t i = 0; i < t.n_slots; i++)
            n_used += t.slots[i].index != 0;
        assert_int_equal(n_used, n);
    }
    br_intern_release(&t, &budget);
}

/* --- No memory ------------------------------------------------------------------------------ */

struct merging {
    struct br_item *first, *second;
    struct message *expected;
};

/* A failed step leaves the merger unchanged: repeating the step gives the complete result. */
static int work_merge(void *arg)
{
    struct merging *w = arg;
    struct br_merge *m = br_merge_new(&host, 1 << 20);
    struct br_item *into = br_item_new(&host, BR_PROFILES);
    int failed = m && into ? 0 : BR_ENOMEM;
    for (int i = 0; i < 2 && m && into; i++) {
        uint32_t items = br_merge_records(m);
        size_t size = br_merge_size(m);
        int rc = br_merge_add(m, i ? w->second : w->first);
        if (rc) {
            assert_int_equal(rc, BR_ENOMEM);
            assert_int_equal(br_merge_records(m), items);
            assert_int_equal(br_merge_size(m), size);
            countdown = 1000;
            failed = rc;
            assert_int_equal(br_merge_add(m, i ? w->second : w->first), 0);
        }
    }
    if (m && into && br_merge_take(m, into)) {
        assert_int_equal(into->n_parts, 0);
        assert_int_equal(br_merge_records(m), 2);
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

SUITE(dictionary)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_outline),
        cmocka_unit_test(test_merge_bytes),
        cmocka_unit_test(test_equal_entries),
        cmocka_unit_test(test_entry_zero_means_none),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_empty_merger),
        cmocka_unit_test(test_wide_indices),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_batches_of_other_proportions),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_intern),
        cmocka_unit_test(test_intern_enter),
        cmocka_unit_test(test_intern_find_many),
        cmocka_unit_test(test_intern_truncate),
        cmocka_unit_test(test_no_memory_merge),
    };
    return RUN(tests, request_setup, request_teardown);
}
