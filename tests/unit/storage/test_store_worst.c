/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the work of the store for worst-case requests of 1 MiB and more. Each request contains a
 * long text, and as many records as possible that refer to this text or belong to a service with
 * this name. Work is counted in steps (base/steps.h), which include each byte that is written
 * before compression. The number of steps may grow only in proportion to the request. The limit is
 * STEPS_MAX for each byte of the request and of the FREE bytes.
 */
#include "base/steps.h"
#include "storage/chunks.h"
#include "storage/flame.h"
#include "storage/stacks.h"
#include "tests/support/store_rig.h"
#include "tests/support/test.h"
#include "tests/support/worst.h"

#define MIB ((size_t)1 << 20)
#define STEPS_MAX 64
#define FREE (4 * MIB) /* BR_CHUNKS_ROOM */
#define START_NS 1767225600000000000u

enum { MAPPING = 1, LOCATION, FUNCTION, LINK, STRING, ATTRIBUTE, STACK, TABLES };

/* --- Spans ------------------------------------------------------------------------------------ */

static void put_span(struct wire *w, uint64_t number, const char *name)
{
    uint8_t id[16] = {1};
    memcpy(id + 8, &number, 8);
    size_t span = wire_open(w, 2);
    wire_len(w, 1, id, 16);
    wire_len(w, 2, id + 8, 8);
    if (*name)
        wire_str(w, 5, name);
    wire_i64(w, 7, START_NS);
    wire_i64(w, 8, START_NS + 1000);
    wire_close(w, span);
}

static void put_spans(struct wire *w, size_t size)
{
    for (uint64_t i = 1; w->len < size; i++)
        put_span(w, i, "");
}

static void put_numbered(struct wire *w, uint32_t field, size_t size)
{
    char key[16];
    for (unsigned i = 0; w->len < size; i++) {
        (void)snprintf(key, sizeof key, "k%u", i);
        wire_attribute_of(w, field, key, "v", 1);
    }
}

/* Returns text that does not compress. */
static char *new_text(size_t len)
{
    char *text = malloc(len);
    uint64_t x = 88172645463325252u;
    assert_non_null(text);
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        text[i] = (char)('!' + x % 90);
    }
    return text;
}

static void long_resource(struct wire *w, size_t size, const char *text)
{
    size_t resource = wire_open(w, 1);
    wire_attribute_of(w, 1, "k", text, size / 2);
    wire_close(w, resource);
    size_t scope = wire_open(w, 2);
    put_spans(w, size);
    wire_close(w, scope);
}

static void many_attributes(struct wire *w, size_t size, const char *text)
{
    (void)text;
    size_t resource = wire_open(w, 1);
    put_numbered(w, 1, size / 2);
    wire_close(w, resource);
    size_t scope = wire_open(w, 2);
    put_spans(w, size);
    wire_close(w, scope);
}

static void long_scope(struct wire *w, size_t size, const char *text)
{
    size_t scopes = wire_open(w, 2), scope = wire_open(w, 1);
    wire_len(w, 1, text, size / 2);
    wire_close(w, scope);
    put_spans(w, size);
    wire_close(w, scopes);
}

static void scopes_of_a_long_resource(struct wire *w, size_t size, const char *text)
{
    size_t resource = wire_open(w, 1);
    wire_attribute_of(w, 1, "k", text, size / 2);
    wire_close(w, resource);
    for (uint64_t i = 1; w->len < size; i++) {
        size_t scope = wire_open(w, 2);
        put_span(w, i, "");
        wire_close(w, scope);
    }
}

/* Each span has a different name, so each span adds an operation to the service. The name of the
 * service is long. */
static void operations_of_a_long_service(struct wire *w, size_t size, const char *text)
{
    char name[16];
    size_t resource = wire_open(w, 1);
    wire_attribute_of(w, 1, "service.name", text, size / 2);
    wire_close(w, resource);
    size_t scope = wire_open(w, 2);
    for (uint64_t i = 1; w->len < size; i++) {
        (void)snprintf(name, sizeof name, "%u", (unsigned)i);
        put_span(w, i, name);
    }
    wire_close(w, scope);
}

/* --- Samples ---------------------------------------------------------------------------------- */

/* A request that is being built. String 1 is the key of labels, and string 2 is the long text. */
struct shape {
    size_t size;
    const char *text;
    size_t text_len;
    struct wire tables[TABLES], samples;
};

static bool more(const struct shape *s)
{
    size_t len = s->samples.len + s->text_len;
    for (int t = 1; t < TABLES; t++)
        len += s->tables[t].len;
    return len < s->size;
}

static void put_number(struct wire *w, uint32_t table, uint32_t field, uint64_t value)
{
    size_t entry = wire_open(w, table);
    wire_varint(w, field, value);
    wire_close(w, entry);
}

static void put_stack(struct shape *s, uint64_t number, uint64_t location)
{
    put_number(&s->tables[STACK], STACK, 1, location);
    size_t sample = wire_open(&s->samples, 2);
    wire_varint(&s->samples, 1, number);
    wire_varint(&s->samples, 4, 1);
    wire_close(&s->samples, sample);
}

/* Stacks of two locations, the first of which has very many lines. */
static void many_lines(struct shape *s)
{
    struct wire *w = &s->tables[LOCATION];
    put_number(&s->tables[FUNCTION], FUNCTION, 1, 1);
    size_t entry = wire_open(w, LOCATION);
    while (w->len < s->size / 2)
        put_number(w, 3, 1, 1);
    wire_close(w, entry);
    for (uint64_t i = 1; more(s); i++)
        put_stack(s, i, 1);
}

/* Locations without lines, in a mapping whose name is the long text. */
static void long_mapping(struct shape *s)
{
    s->text_len = s->size / 2;
    put_number(&s->tables[MAPPING], MAPPING, 4, 2);
    for (uint64_t i = 1; more(s); i++) {
        size_t entry = wire_open(&s->tables[LOCATION], LOCATION);
        wire_varint(&s->tables[LOCATION], 1, 1);
        wire_varint(&s->tables[LOCATION], 2, i);
        wire_close(&s->tables[LOCATION], entry);
        put_stack(s, i, i);
    }
}

static void functions_of_one_name(struct shape *s)
{
    s->text_len = s->size / 2;
    for (uint64_t i = 1; more(s); i++) {
        struct wire *w = &s->tables[LOCATION];
        put_number(&s->tables[FUNCTION], FUNCTION, 1, 2);
        size_t entry = wire_open(w, LOCATION), line = wire_open(w, 3);
        wire_varint(w, 1, i);
        wire_close(w, line);
        wire_close(w, entry);
        put_stack(s, i, i);
    }
}

static void put_text(struct shape *s, const char *text, size_t len)
{
    struct wire *w = &s->tables[ATTRIBUTE];
    size_t entry = wire_open(w, ATTRIBUTE);
    wire_varint(w, 1, 1);
    size_t any = wire_open(w, 2);
    wire_len(w, 1, text, len);
    wire_close(w, any);
    wire_close(w, entry);
}

static void put_labelled(struct shape *s, uint64_t one, uint64_t other)
{
    size_t sample = wire_open(&s->samples, 2), list = wire_open(&s->samples, 2);
    wire_number(&s->samples, one);
    wire_number(&s->samples, other);
    wire_close(&s->samples, list);
    wire_varint(&s->samples, 4, 1);
    wire_close(&s->samples, sample);
}

#define LABEL_LEN 60000 /* length in bytes of the largest label that a series may have */

/* Samples with two labels, one of which is long. The list of labels is always the same. */
static void one_list(struct shape *s)
{
    put_text(s, s->text, LABEL_LEN);
    put_text(s, "v", 1);
    while (more(s))
        put_labelled(s, 1, 2);
}

/* Samples with different lists of labels. */
static void many_lists(struct shape *s)
{
    put_text(s, s->text, LABEL_LEN);
    for (unsigned i = 0; i < 5000; i++) {
        char text[16];
        put_text(s, text, (size_t)snprintf(text, sizeof text, "v%u", i));
    }
    for (unsigned i = 0; more(s); i++)
        put_labelled(s, 1, 2 + i % 5000);
}

static void deep_stack(struct shape *s)
{
    put_number(&s->tables[FUNCTION], FUNCTION, 1, 1);
    size_t entry = wire_open(&s->tables[LOCATION], LOCATION);
    put_number(&s->tables[LOCATION], 3, 1, 1);
    wire_close(&s->tables[LOCATION], entry);
    entry = wire_open(&s->tables[STACK], STACK);
    size_t list = wire_open(&s->tables[STACK], 1);
    while (s->tables[STACK].len < s->size / 2)
        wire_number(&s->tables[STACK], 1);
    wire_close(&s->tables[STACK], list);
    wire_close(&s->tables[STACK], entry);
    for (uint64_t i = 2; more(s); i++)
        put_stack(s, i - 1, 1);
}

static void put_dictionary(struct wire *w, struct shape *s)
{
    size_t dictionary = wire_open(w, 2);
    for (uint32_t t = 1; t < TABLES; t++) {
        wire_len(w, t, "", 0);
        wire_raw(w, s->tables[t].data, s->tables[t].len);
        if (t == STRING)
            wire_str(w, t, "span_name");
        if (t == STRING && s->text_len)
            wire_len(w, t, s->text, s->text_len);
        wire_free(&s->tables[t]);
    }
    wire_close(w, dictionary);
}

/* --- Writing ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*spans)(struct wire *w, size_t size, const char *text);
    void (*samples)(struct shape *s);
} shapes[] = {
    {"a long resource", long_resource, NULL},
    {"a resource of many attributes", many_attributes, NULL},
    {"a long scope", long_scope, NULL},
    {"scopes of a long resource", scopes_of_a_long_resource, NULL},
    {"operations of a long service", operations_of_a_long_service, NULL},
    {"a location of many lines", NULL, many_lines},
    {"locations of a long mapping", NULL, long_mapping},
    {"functions of one long name", NULL, functions_of_one_name},
    {"one list of labels", NULL, one_list},
    {"many lists of labels", NULL, many_lists},
    {"a deep stack", NULL, deep_stack},
};

static void make_shape(struct wire *w, size_t i, size_t size, const char *text)
{
    size_t part = wire_open(w, 1);
    struct shape s = {.size = size, .text = text};
    if (shapes[i].spans) {
        shapes[i].spans(w, size, text);
        wire_close(w, part);
        return;
    }
    shapes[i].samples(&s);
    size_t scope = wire_open(w, 2), profile = wire_open(w, 2);
    wire_raw(w, s.samples.data, s.samples.len);
    wire_close(w, profile);
    wire_close(w, scope);
    wire_close(w, part);
    put_dictionary(w, &s);
    wire_free(&s.samples);
}

/* Writes the request to a new store, which must accept it. Returns the number of steps. */
static uint64_t write_shape(size_t i, size_t size, const char *text)
{
    struct store_rig rig;
    struct wire w = {0};
    store_rig_init(&rig, 0);
    make_shape(&w, i, size, text);
    const struct br_item *item =
        store_rig_item(&rig, shapes[i].spans ? BR_TRACES : BR_PROFILES, &w);
    uint64_t before = br_steps();
    int rc = br_store_write(rig.store, &item, 1, &rig.err);
    uint64_t steps = br_steps() - before;
    if (rc)
        fail_msg("%s of %zu bytes: %s", shapes[i].name, size, rig.err.text);
    br_item_free((struct br_item *)(uintptr_t)item);
    wire_free(&w);
    store_rig_release(&rig);
    return steps;
}

static void work_is_proportional_to_bytes(void **state)
{
    (void)state;
    char *text = new_text(worst_mib_max() * MIB / 2);
    for (size_t i = 0; i < BR_COUNT(shapes); i++) {
        for (size_t size = MIB; size <= worst_mib_max() * MIB; size *= 2) {
            uint64_t steps = write_shape(i, size, text);
            if (getenv("BOUNDS_PRINT"))
                print_message("%s: %zu MiB, %llu steps\n", shapes[i].name, size / MIB,
                              (unsigned long long)steps);
            if (steps > STEPS_MAX * (size + FREE))
                fail_msg("%s of %zu bytes takes %llu steps", shapes[i].name, size,
                         (unsigned long long)steps);
        }
    }
    free(text);
}

/* The tree is a chain: the parent of each node is the node with the previous number. With some
 * secrets, a weak hash would map these consecutive numbers to few slots. */
static void deep_stacks_are_found_with_any_secret(void **state)
{
    (void)state;
    const uint32_t n_nodes = 5000;
    uint64_t x = 88172645463325252u;
    for (unsigned i = 0; i < 200; i++) {
        struct br_stack_tree stacks;
        uint32_t node = 0;
        br_stack_tree_init(&stacks);
        for (unsigned k = 0; k < 2; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            stacks.nodes_index.secret[k] = x;
        }
        uint64_t before = br_steps();
        for (uint32_t k = 0; k < n_nodes; k++)
            assert_int_equal(br_stack_tree_node(&stacks, node, 1, &node), 0);
        uint64_t steps = br_steps() - before;
        if (steps > 8 * (uint64_t)n_nodes)
            fail_msg("with secret %u the look-ups take %llu steps", i, (unsigned long long)steps);
        br_stack_tree_release(&stacks);
    }
}

/* Returns the total of the samples of a store, and the number of nodes of their flame graph. */
static void read_flame(struct store_rig *rig, int64_t *ret_total, uint32_t *ret_nodes)
{
    struct br_sample_filter all = {.n_matchers = 0};
    struct br_store_query *query = store_rig_ask(rig);
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 4u << 20), 0);
    assert_int_equal(br_store_flame(query, &all, &flame, &rig->err), 0);
    store_rig_answered(rig);
    br_flame_total(&flame);
    *ret_total = flame.nodes[0].total[0];
    *ret_nodes = flame.n_nodes;
    br_flame_release(&flame);
}

/* If the stacks of a request need more nodes than the limit for this request, the stacks are cut,
 * but their values are kept. */
static void stacks_are_cut_and_values_kept(void **state)
{
    static void (*const makes[])(struct shape * s) = {deep_stack, many_lines};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(makes); i++) {
        struct store_rig rig;
        struct wire w = {0};
        int64_t total;
        uint32_t n_nodes;
        struct br_store_usage usage;
        store_rig_init(&rig, 0);
        for (size_t k = 0; k < BR_COUNT(shapes); k++)
            if (shapes[k].samples == makes[i])
                make_shape(&w, k, 8 * MIB, "");
        const struct br_item *item = store_rig_item(&rig, BR_PROFILES, &w);
        assert_int_equal(br_store_write(rig.store, &item, 1, &rig.err), 0);
        read_flame(&rig, &total, &n_nodes);
        br_store_usage(rig.store, &usage);
        assert_int_equal(usage.n_shortened, 1);
        assert_int_equal(total, item->n_records);
        size_t most = makes[i] == deep_stack
                          ? BR_CHUNKS_DEPTH_MAX
                          : item->size / BR_CHUNKS_NODE_BYTES + BR_CHUNKS_NODES_FREE;
        assert_in_range(n_nodes, 2, most + 1); /* the limit, and one node for the root */
        br_item_free((struct br_item *)(uintptr_t)item);
        wire_free(&w);
        store_rig_release(&rig);
    }
}

/* Existing nodes are found even if the limit does not allow new ones. */
static void the_limit_of_nodes_is_kept(void **state)
{
    (void)state;
    struct br_stack_tree stacks;
    uint32_t first, second, node;
    br_stack_tree_init(&stacks);
    br_stack_tree_allow(&stacks, 2);
    assert_int_equal(br_stack_tree_node(&stacks, 0, 1, &first), 0);
    assert_int_equal(br_stack_tree_node(&stacks, first, 1, &second), 0);
    assert_int_equal(br_stack_tree_node(&stacks, second, 1, &node), BR_EFULL);
    assert_int_equal(br_stack_tree_node(&stacks, first, 1, &node), 0);
    assert_int_equal(node, second);
    br_stack_tree_allow(&stacks, 1);
    assert_int_equal(br_stack_tree_node(&stacks, second, 1, &node), 0);
    assert_int_equal(br_stack_tree_node(&stacks, node, 1, &node), BR_EFULL);
    br_stack_tree_release(&stacks);
}

SUITE(store_worst)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(work_is_proportional_to_bytes),
                                       cmocka_unit_test(deep_stacks_are_found_with_any_secret),
                                       cmocka_unit_test(stacks_are_cut_and_values_kept),
                                       cmocka_unit_test(the_limit_of_nodes_is_kept)};
    return RUN(tests, NULL, NULL);
}
