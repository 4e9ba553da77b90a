/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/divide/divide.h"
#include "tests/support/profiles_request.h"
#include "tests/support/test.h"

/* tests/conformance/test_dictionary.py divides random requests and reads them independently. */

struct groups {
    struct br_item *v[16]; /* by bucket */
    unsigned n;
    unsigned n_traces, n_keys; /* number of calls of each routing function */
    char key[64];              /* the last key */
    size_t key_len;
};

/* Returns the last byte of the id as bucket. */
static uint32_t of_trace(void *arg, const uint8_t trace_id[16])
{
    struct groups *g = arg;
    g->n_traces++;
    return trace_id[15];
}

static uint32_t of_key(void *arg, const uint8_t *key, size_t len)
{
    struct groups *g = arg;
    g->n_keys++;
    g->key_len = len < sizeof g->key ? len : sizeof g->key;
    memcpy(g->key, key, g->key_len);
    return 9;
}

static uint32_t of_nothing(void *arg, const uint8_t *key, size_t len)
{
    (void)arg, (void)key, (void)len;
    return BR_BUCKET_NONE;
}

static int on_group(struct br_item *group, uint32_t bucket, void *arg)
{
    struct groups *g = arg;
    assert_true(bucket < BR_COUNT(g->v) && !g->v[bucket]);
    g->v[bucket] = group;
    g->n++;
    return 0;
}

static void free_groups(struct groups *g)
{
    for (size_t i = 0; i < BR_COUNT(g->v); i++)
        if (g->v[i])
            br_item_free(g->v[i]);
    memset(g, 0, sizeof *g);
}

static struct br_routing routing_to(struct groups *g)
{
    return (struct br_routing){.max_buckets = 16, .of_trace = of_trace, .of_key = of_key, .arg = g};
}

static struct message *id(uint8_t last)
{
    uint8_t all[16] = {[0] = 7, [15] = last};
    return bytes(1, all, sizeof all);
}

static struct message *pair(const char *key, const char *value)
{
    return nest(1, text(1, key), nest(2, text(1, value), END), END);
}

/* Spans of trace 1 and 2 under two scopes, with the fields in the order of Go's pdata: the last
 * field first. */
static void test_divide_traces(void **state)
{
    (void)state;
    struct groups g = {0};
    struct message *resource = nest(1, pair("k", "v"), END), *lib = nest(1, text(1, "lib"), END);
    struct message *a = nest(2, text(5, "a"), id(1), END), *b = nest(2, text(5, "b"), id(2), END);
    struct message *c = nest(2, text(5, "c"), id(1), END), *d = nest(2, text(5, "d"), END);
    struct message *one = nest(2, a, b, lib, END), *two = nest(2, c, d, END);
    struct br_item *item = walked(BR_TRACES, nest(1, text(3, "url"), one, two, resource, END));
    const struct br_routing routing = routing_to(&g);
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), 0);
    assert_int_equal(g.n, 3);
    struct message *head = join(resource, text(3, "url"));
    assert_is(g.v[1], nest(1, head, nest(2, lib, a, END), nest(2, c, END), END));
    assert_is(g.v[2], nest(1, head, nest(2, lib, b, END), END));
    assert_is(g.v[0], nest(1, head, nest(2, d, END), END)); /* no trace id */
    assert_int_equal(g.n_keys, 0);
    memset(&g, 0, sizeof g);
    br_item_free(item);
    free_messages();
}

/* Returns a profile whose sample i has the value 1 << i and the link `links[i]`. Links 1 and 2
 * are valid; link 3 has no trace id. */
static struct br_item *linked_item(struct message *resource, const char *links)
{
    struct message *profile = text(10, "the original");
    for (unsigned i = 0; links[i]; i++)
        profile =
            join(profile, nest(2, number(4, 1ull << i), number(3, (uint64_t)links[i] - '0'), END));
    struct message *r = nest(1, nest(2, nest(2, profile, END), END), resource, END);
    struct message *d = nest(2, zero_entries(), nest(LINK, bytes(2, "01234567", 8), id(1), END),
                             nest(LINK, id(2), bytes(2, "01234567", 8), END),
                             nest(LINK, bytes(2, "01234567", 8), END),
                             text(STRING, "service.instance.id"), text(STRING, "pod-7"), END);
    struct br_item *item = walked(BR_PROFILES, join(r, d));
    free_messages();
    return item;
}

/* Returns the sum of the values of a group that has one profile. */
static uint64_t sum_of(const struct br_item *group)
{
    uint64_t sum = 0;
    const struct br_part *part = &group->parts[0];
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    for (unsigned level = 0; level < 2; level++) { /* ScopeProfiles, Profile */
        while ((p = br_field_next(p, end, &field)) && field.number != 2)
            ;
        assert_non_null(p);
        end = p;
        p = field.data;
    }
    while (p && p < end && (p = br_field_next(p, end, &field))) {
        struct br_field value;
        if (field.number != 2)
            continue;
        for (const uint8_t *q = field.data; q && q < p && (q = br_field_next(q, p, &value));)
            sum += value.number == 4 ? value.value : 0;
    }
    return sum;
}

static void test_divide_profiles(void **state)
{
    (void)state;
    struct groups g = {0};
    struct br_item *item =
        linked_item(nest(1, pair("service.instance.id", "pod-6"), END), "1210312");
    const struct br_routing routing = routing_to(&g);
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), 0);
    assert_int_equal(g.n, 3);
    assert_int_equal(g.n_traces, 2); /* once for each link, not for each sample */
    assert_int_equal(g.n_keys, 1);
    assert_int_equal(sum_of(g.v[1]), 1 + 4 + 32);
    assert_int_equal(sum_of(g.v[2]), 2 + 64);
    assert_int_equal(sum_of(g.v[9]), 8 + 16);
    assert_int_equal(g.key_len, 5);
    assert_memory_equal(g.key, "pod-6", 5);
    const uint32_t one_link[BR_TABLES] = {1, 1, 1, 2, 1, 1, 1};
    tables_are(g.v[1], one_link);
    tables_are(g.v[2], one_link);
    unsigned with_payload = 0;
    for (unsigned i = 0; i < BR_COUNT(g.v); i++) {
        struct flat f = g.v[i] ? flatten(g.v[i]) : (struct flat){0};
        with_payload += f.len && memmem(f.data, f.len, "the original", 12);
        if (g.v[i])
            br_buf_unref(f.buf);
    }
    assert_int_equal(with_payload, 1);
    free_groups(&g);
    br_item_free(item);
}

/* The key and the value of the attribute are references into the string table. */
static void test_divide_references(void **state)
{
    (void)state;
    struct groups g = {0};
    struct message *by_index = nest(1, nest(2, number(8, 2), END), number(3, 1), END);
    struct br_item *item = linked_item(nest(1, by_index, END), "00");
    const struct br_routing routing = routing_to(&g);
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), 0);
    assert_int_equal(g.key_len, 5);
    assert_memory_equal(g.key, "pod-7", 5);
    assert_int_equal(sum_of(g.v[9]), 3);
    free_groups(&g);
    br_item_free(item);
}

static void test_divide_service(void **state)
{
    (void)state;
    struct groups g = {0};
    struct message *attributes =
        join(pair("service.instance.id", "pod-6"), pair("service.name", "shop"));
    struct br_item *item = linked_item(nest(1, attributes, END), "120");
    struct br_routing routing = routing_to(&g);
    routing.route = BR_ROUTE_SERVICE;
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), 0);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.key_len, 4);
    assert_memory_equal(g.key, "shop", 4);
    assert_int_equal(sum_of(g.v[9]), 7);
    free_groups(&g);
    br_item_free(item);
}

/* Without attributes the key is the encoded Resource. */
static void test_divide_bare_resource(void **state)
{
    (void)state;
    struct groups g = {0};
    struct message *attribute = pair("a", "b");
    char expected[64];
    size_t len = attribute->len;
    memcpy(expected, attribute->data, len);
    struct br_item *item = linked_item(nest(1, attribute, END), "0");
    const struct br_routing routing = routing_to(&g);
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), 0);
    assert_int_equal(g.key_len, len);
    assert_memory_equal(g.key, expected, len);
    free_groups(&g);
    br_item_free(item);
}

static void test_divide_limits(void **state)
{
    (void)state;
    struct groups g = {0};
    struct br_item *item = linked_item(nest(1, pair("a", "b"), END), "12");
    struct br_routing routing = routing_to(&g);
    routing.max_buckets = 2; /* buckets 0 and 1 */
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), BR_EINVAL);
    assert_int_equal(g.n, 0);
    routing.max_buckets = 16;
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), 0);
    routing.max_bytes = g.v[1]->size + g.v[2]->size;
    free_groups(&g);
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), 0);
    free_groups(&g);
    routing.max_bytes--;
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), BR_EFULL);
    assert_int_equal(g.n, 1);
    free_groups(&g);
    br_item_free(item);
    item = linked_item(nest(1, pair("a", "b"), END), "0");
    routing.of_key = of_nothing;
    assert_int_equal(br_item_divide(item, &routing, on_group, &g), BR_ENOMEM);
    assert_int_equal(g.n, 0);
    br_item_free(item);
}

static int work_divide(void *arg)
{
    struct groups g = {0};
    const struct br_routing routing = routing_to(&g);
    int rc = br_item_divide(arg, &routing, on_group, &g);
    if (!rc)
        assert_int_equal(g.n, 3);
    free_groups(&g);
    return rc;
}

static void test_no_memory_divide(void **state)
{
    (void)state;
    struct br_item *item = linked_item(nest(1, pair("a", "b"), END), "1203");
    with_failures(work_divide, item);
    br_item_free(item);
}

SUITE(divide)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divide_traces),        cmocka_unit_test(test_divide_profiles),
        cmocka_unit_test(test_divide_references),    cmocka_unit_test(test_divide_service),
        cmocka_unit_test(test_divide_bare_resource), cmocka_unit_test(test_divide_limits),
        cmocka_unit_test(test_no_memory_divide),
    };
    return RUN(tests, request_setup, request_teardown);
}
