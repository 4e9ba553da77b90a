/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of items, in every order of fields that protobuf allows. */
#include "otlp/groups.h"
#include "tests/support/fake_host.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

static void check(const struct br_groups *g, uint32_t part, uint32_t n_items, const char *scope)
{
    assert_int_equal(g->part, part);
    assert_int_equal(g->n_items, n_items);
    if (!scope) {
        assert_null(g->scope);
        return;
    }
    assert_int_equal(g->scope_len, 2 + strlen(scope));
    assert_memory_equal(g->scope + 2, scope, strlen(scope));
}

static void put_scope(struct wire *w, const char *name)
{
    size_t scope = wire_open(w, 1);
    wire_str(w, 1, name);
    wire_close(w, scope);
}

static void put_item(struct wire *w)
{
    size_t item = wire_open(w, 2);
    wire_varint(w, 4, 1); /* a sample's value; no field of a span's that is read here */
    wire_close(w, item);
}

static void put_span(struct wire *w)
{
    size_t span = wire_open(w, 2);
    wire_str(w, 5, "s");
    wire_close(w, span);
}

/* One part: a scope behind its two spans, one without spans, one without a scope between spans;
 * another part: a schema in front. */
static void spans(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    struct wire w = {0};
    struct br_groups g;
    size_t part = wire_open(&w, 1), group = wire_open(&w, 2);
    put_span(&w);
    put_span(&w);
    put_scope(&w, "a");
    wire_close(&w, group);
    group = wire_open(&w, 2);
    put_scope(&w, "empty");
    wire_close(&w, group);
    group = wire_open(&w, 2);
    put_span(&w);
    wire_close(&w, group);
    wire_close(&w, part);
    part = wire_open(&w, 1);
    wire_str(&w, 3, "schema");
    group = wire_open(&w, 2);
    put_scope(&w, "b");
    put_span(&w);
    wire_close(&w, group);
    wire_close(&w, part);
    struct br_item *item = items_walk(&h->host, BR_TRACES, w.data, w.len);
    br_groups_init(&g, item);
    assert_true(br_groups_at_item(&g, 0));
    check(&g, 0, 2, "a");
    assert_false(br_groups_at_item(&g, 1));
    assert_true(br_groups_at_item(&g, 2));
    check(&g, 0, 1, NULL);
    assert_true(br_groups_at_item(&g, 3));
    check(&g, 1, 1, "b");
    assert_false(br_groups_at_item(&g, 4)); /* the end */
    br_item_free(item);
    free(w.data);
    fake_host_free(h);
}

/* Profiles with 1, 0 and 2 samples in a scope that comes last, and one with 1 in another part. */
static void profiles(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    struct wire w = {0};
    struct br_groups g;
    static const uint32_t n[] = {1, 0, 2};
    wire_str(&w, 2, ""); /* the dictionary, which is no group's part */
    size_t part = wire_open(&w, 1), scope = wire_open(&w, 2);
    for (size_t i = 0; i < 3; i++) {
        size_t profile = wire_open(&w, 2);
        for (uint32_t k = 0; k < n[i]; k++)
            put_item(&w);
        wire_close(&w, profile);
    }
    put_scope(&w, "last");
    wire_close(&w, scope);
    wire_close(&w, part);
    part = wire_open(&w, 1);
    scope = wire_open(&w, 2);
    size_t profile = wire_open(&w, 2);
    put_item(&w);
    wire_close(&w, profile);
    wire_close(&w, scope);
    wire_close(&w, part);
    struct br_item *item = items_walk(&h->host, BR_PROFILES, w.data, w.len);
    br_groups_init(&g, item);
    assert_true(br_groups_at_item(&g, 0));
    check(&g, 1, 1, "last");
    assert_false(br_groups_at_profile(&g, 0));
    assert_true(br_groups_at_profile(&g, 1));
    check(&g, 1, 0, "last");
    assert_true(br_groups_at_item(&g, 1));
    check(&g, 1, 2, "last");
    assert_false(br_groups_at_item(&g, 2));
    assert_false(br_groups_at_profile(&g, 2));
    assert_true(br_groups_at_item(&g, 3));
    check(&g, 2, 1, NULL);
    assert_false(br_groups_at_profile(&g, 3));
    assert_false(br_groups_at_profile(&g, 4));
    br_item_free(item);
    free(w.data);
    fake_host_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spans), cmocka_unit_test(profiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
