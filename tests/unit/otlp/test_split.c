/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/profiles_request.h"
#include "tests/support/test.h"

/* tests/conformance/test_dictionary.py has random requests and another reader. */

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
    struct message *d =
        nest(2, zero_entries(), nest(LOCATION, number(2, 1), END),
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
        assert_int_equal(p.v[i]->n_records, i < 2 ? 4 : 2);
        assert_int_equal(p.v[i]->n_pending, 0);
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
    assert_int_equal(p.v[0]->n_records, 10);
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
        n += p.v[i]->n_records;
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
    assert_int_equal(p.v[0]->n_records, 2);
    assert_int_equal(p.v[1]->n_records, 1);
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
        n += p.v[i]->n_records;
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

SUITE(split)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),           cmocka_unit_test(test_split_bytes),
        cmocka_unit_test(test_split_stops),     cmocka_unit_test(test_split_traces),
        cmocka_unit_test(test_no_memory_split),
    };
    return RUN(tests, request_setup, request_teardown);
}
