/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of items, in every order of fields that protobuf allows. */
#include "otlp/groups.h"
#include "tests/support/fake_host.h"
#include "tests/support/items.h"
#include "tests/support/otlp_text.h"
#include "tests/support/reorder.h"
#include "tests/support/test.h"

static void check(const struct br_groups *g, uint32_t part, uint32_t n_records, const char *scope)
{
    assert_int_equal(g->part, part);
    assert_int_equal(g->n_records, n_records);
    if (!scope) {
        assert_null(g->scope);
        return;
    }
    assert_int_equal(g->scope_len, 2 + strlen(scope));
    assert_memory_equal(g->scope + 2, scope, strlen(scope));
}

/* The text's request, its fields in that order at every depth. */
static struct br_item *item_of(struct fake_host *h, enum br_signal signal, enum reorder order,
                               const char *text)
{
    struct wire w = {0};
    uint64_t random = 1;
    struct br_buf *buf = otlp_text(h->host.pool, signal, text);
    wire_raw(&w, buf->data, buf->len);
    br_buf_unref(buf);
    reorder_request(&w, signal, order, &random);
    struct br_item *item = items_walk(&h->host, signal, w.data, w.len);
    wire_free(&w);
    return item;
}

/* One part: a scope with two spans, one without spans, spans without a scope; another part, with a
 * schema. Falling, scopes come behind their spans and the schema is in front. */
static void spans(enum reorder order)
{
    struct fake_host *h = fake_host_new();
    struct br_groups g;
    struct br_item *item =
        item_of(h, BR_TRACES, order,
                "{'resourceSpans': [{'scopeSpans': ["
                "{'scope': {'name': 'a'}, 'spans': [{'name': 's'}, {'name': 's'}]},"
                "{'scope': {'name': 'empty'}}, {'spans': [{'name': 's'}]}]},"
                "{'schemaUrl': 'schema', 'scopeSpans': ["
                "{'scope': {'name': 'b'}, 'spans': [{'name': 's'}]}]}]}");
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
    fake_host_free(h);
}

/* Profiles with 1, 0 and 2 samples in a scope, and one with 1 in another part. Falling, the
 * dictionary, which is no group's part, is in front, and the scope comes last. */
static void profiles(enum reorder order)
{
    struct fake_host *h = fake_host_new();
    struct br_groups g;
    const uint32_t first = order == REORDER_FALLING ? 1 : 0;
    struct br_item *item =
        item_of(h, BR_PROFILES, order,
                "{'dictionary': {}, 'resourceProfiles': [{'scopeProfiles': ["
                "{'scope': {'name': 'last'}, 'profiles': [{'samples': [{'values': ['1']}]}, {},"
                "{'samples': [{'values': ['1']}, {'values': ['1']}]}]}]},"
                "{'scopeProfiles': [{'profiles': [{'samples': [{'values': ['1']}]}]}]}]}");
    assert_int_equal(item->parts[0].kind == BR_PART_DICTIONARY, first);
    br_groups_init(&g, item);
    assert_true(br_groups_at_item(&g, 0));
    check(&g, first, 1, "last");
    assert_false(br_groups_at_profile(&g, 0));
    assert_true(br_groups_at_profile(&g, 1));
    check(&g, first, 0, "last");
    assert_true(br_groups_at_item(&g, 1));
    check(&g, first, 2, "last");
    assert_false(br_groups_at_item(&g, 2));
    assert_false(br_groups_at_profile(&g, 2));
    assert_true(br_groups_at_item(&g, 3));
    check(&g, first + 1, 1, NULL);
    assert_false(br_groups_at_profile(&g, 3));
    assert_false(br_groups_at_profile(&g, 4));
    br_item_free(item);
    fake_host_free(h);
}

static void test_spans(void **state)
{
    (void)state;
    for (unsigned order = REORDER_RISING; order < REORDERS; order++)
        spans((enum reorder)order);
}

static void test_profiles(void **state)
{
    (void)state;
    profiles(REORDER_RISING);
    profiles(REORDER_FALLING);
}

SUITE(groups)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spans),
                                       cmocka_unit_test(test_profiles)};
    return RUN(tests, NULL, NULL);
}
