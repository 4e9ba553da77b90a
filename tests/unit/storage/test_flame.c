/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/flame.h"

#include "tests/support/fault.h"
#include "tests/support/test.h"

/* Returns the node at the end of a path of names. Adds missing nodes. */
static uint32_t path_node(struct br_flame *flame, const char *const *path, size_t n_path)
{
    uint32_t node = 0, name;
    for (size_t i = 0; i < n_path; i++) {
        assert_int_equal(br_flame_name(flame, path[i], NULL, &name), 0);
        assert_int_equal(br_flame_child(flame, node, name, &node), 0);
    }
    return node;
}

#define PATH(flame, ...)                                                                           \
    path_node(flame, (const char *const[]){__VA_ARGS__},                                           \
              sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *))

static void totals_are_sums_of_self_values(void **state)
{
    (void)state;
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    assert_int_equal(flame.n_nodes, 1);
    assert_string_equal(flame.names[flame.nodes[0].name], "total");
    uint32_t main_node = PATH(&flame, "main"), read = PATH(&flame, "main", "read");
    uint32_t parse = PATH(&flame, "main", "read", "parse"), idle = PATH(&flame, "idle");
    assert_int_equal(PATH(&flame, "main", "read"), read);
    assert_int_equal(flame.n_nodes, 5);
    br_flame_add(&flame, main_node, 1);
    br_flame_add(&flame, read, 10);
    br_flame_add(&flame, parse, 100);
    br_flame_add(&flame, parse, 200);
    br_flame_add(&flame, idle, 1000);
    flame.side = 1;
    br_flame_add(&flame, parse, 7);
    for (int again = 0; again < 2; again++) {
        br_flame_total(&flame);
        assert_int_equal(flame.nodes[parse].total[0], 300);
        assert_int_equal(flame.nodes[read].total[0], 310);
        assert_int_equal(flame.nodes[main_node].total[0], 311);
        assert_int_equal(flame.nodes[idle].total[0], 1000);
        assert_int_equal(flame.nodes[0].total[0], 1311);
        assert_int_equal(flame.nodes[0].total[1], 7);
        assert_int_equal(flame.nodes[idle].total[1], 0);
        assert_int_equal(flame.nodes[read].self[0], 10);
    }
    br_flame_release(&flame);
    br_flame_release(&flame);
}

static void children_are_listed_once_after_their_parent(void **state)
{
    (void)state;
    struct br_flame flame;
    bool seen[7] = {false};
    assert_int_equal(br_flame_init(&flame, 100), 0);
    PATH(&flame, "a", "b", "c");
    PATH(&flame, "a", "d");
    PATH(&flame, "b", "a"); /* the names of existing nodes, in another place of the tree */
    assert_int_equal(flame.n_nodes, 7);
    assert_int_equal(flame.n_names, 5);
    for (uint32_t parent = 0; parent < flame.n_nodes; parent++)
        for (uint32_t i = flame.nodes[parent].first_child; i; i = flame.nodes[i].next) {
            assert_int_equal(flame.nodes[i].parent, parent);
            assert_true(i > parent);
            assert_false(seen[i]);
            seen[i] = true;
        }
    for (uint32_t i = 1; i < flame.n_nodes; i++)
        assert_true(seen[i]);
    br_flame_release(&flame);
}

static void functions_are_distinguished_by_name_and_file(void **state)
{
    (void)state;
    struct br_flame flame;
    uint32_t plain, empty, one, two, joined;
    char name[] = "run", file[] = "one.go";
    assert_int_equal(br_flame_init(&flame, 100), 0);
    assert_int_equal(br_flame_name(&flame, name, NULL, &plain), 0);
    assert_int_equal(br_flame_name(&flame, name, "", &empty), 0);
    assert_int_equal(br_flame_name(&flame, name, file, &one), 0);
    memcpy(file, "two.go", sizeof file);
    assert_int_equal(br_flame_name(&flame, name, file, &two), 0);
    assert_int_equal(br_flame_name(&flame, "runone.go", NULL, &joined), 0);
    memset(name, 'x', sizeof name - 1);
    memset(file, 'x', sizeof file - 1);
    assert_int_equal(plain, empty);
    assert_int_equal(flame.n_names, 5); /* including "total" */
    assert_string_equal(flame.names[one], "run");
    assert_string_equal(flame.files[one], "one.go");
    assert_string_equal(flame.files[two], "two.go");
    assert_string_equal(flame.files[plain], "");
    assert_string_equal(flame.names[joined], "runone.go");
    br_flame_release(&flame);
}

static void the_number_of_nodes_is_limited(void **state)
{
    (void)state;
    struct br_flame flame;
    uint32_t first, name, node = 77;
    assert_int_equal(br_flame_init(&flame, 3), 0);
    assert_int_equal(br_flame_name(&flame, "a", NULL, &first), 0);
    assert_int_equal(br_flame_name(&flame, "b", NULL, &name), 0);
    assert_int_equal(br_flame_name(&flame, "c", NULL, &node), BR_EFULL);
    assert_int_equal(br_flame_child(&flame, 0, first, &node), 0);
    assert_int_equal(br_flame_child(&flame, node, first, &node), 0);
    uint32_t last = node;
    assert_int_equal(br_flame_child(&flame, 0, name, &node), BR_EFULL);
    assert_int_equal(node, last);
    /* existing nodes are still found */
    assert_int_equal(br_flame_child(&flame, 1, first, &node), 0);
    assert_int_equal(flame.n_nodes, 3);
    br_flame_release(&flame);

    size_t long_len = BR_FLAME_TEXTS_MAX(3);
    char *text = malloc(long_len + 1);
    assert_non_null(text);
    memset(text, 'x', long_len);
    text[long_len] = '\0';
    assert_int_equal(br_flame_init(&flame, 3), 0);
    assert_int_equal(br_flame_name(&flame, text, NULL, &name), BR_EFULL);
    br_flame_release(&flame);
    free(text);
}

static void sums_saturate(void **state)
{
    (void)state;
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 10), 0);
    uint32_t first = PATH(&flame, "a"), second = PATH(&flame, "b");
    br_flame_add(&flame, first, INT64_MAX - 1);
    br_flame_add(&flame, first, 5);
    br_flame_add(&flame, second, 1);
    br_flame_total(&flame);
    assert_true(flame.nodes[first].self[0] == INT64_MAX);
    assert_true(flame.nodes[0].total[0] == INT64_MAX);
    br_flame_release(&flame);
}

/* A child is found without a search through all children. The test looks up a million times among
 * 50,000 children of one parent, which would take too long otherwise. */
#define WIDE 50000u
static void a_child_is_found_among_many(void **state)
{
    (void)state;
    struct br_flame flame;
    char text[16];
    uint32_t name, node;
    assert_int_equal(br_flame_init(&flame, WIDE + 1), 0);
    for (unsigned round = 0; round < 20; round++)
        for (uint32_t i = 1; i <= WIDE; i++) {
            (void)snprintf(text, sizeof text, "f%u", i);
            assert_int_equal(br_flame_name(&flame, text, NULL, &name), 0);
            assert_int_equal(name, i);
            assert_int_equal(br_flame_child(&flame, 0, name, &node), 0);
            assert_int_equal(node, i);
            br_flame_add(&flame, node, 1);
        }
    br_flame_total(&flame);
    assert_int_equal(flame.nodes[0].total[0], 20 * WIDE);
    assert_int_equal(flame.n_nodes, WIDE + 1);
    br_flame_release(&flame);
}

static void tree_without_memory(void *arg)
{
    (void)arg;
    struct br_flame flame;
    uint32_t name, node = 0, made = 0;
    char text[16];
    fault_start();
    int rc = br_flame_init(&flame, 1000);
    for (uint32_t i = 0; !rc && i < 300; i++) {
        (void)snprintf(text, sizeof text, "f%u", i);
        if (br_flame_name(&flame, text, "file.c", &name) ||
            br_flame_child(&flame, node, name, &node)) {
            assert_true(fault_failed());
            continue;
        }
        made++;
        br_flame_add(&flame, node, 1);
    }
    fault_stop();
    if (rc) {
        assert_int_equal(rc, BR_ENOMEM);
        assert_true(fault_failed());
        assert_null(flame.impl);
        return;
    }
    br_flame_total(&flame);
    assert_int_equal(flame.nodes[0].total[0], made);
    assert_true(fault_failed() || made == 300);
    br_flame_release(&flame);
}

/* Pruning keeps the largest nodes and their ancestors. The total of each of the two compared
 * profiles does not change. */
static void pruning_keeps_sums(void **state)
{
    (void)state;
    struct br_flame flame;
    uint32_t *map;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    uint32_t hot = PATH(&flame, "main", "hot"), cold = PATH(&flame, "main", "cold"),
             below = PATH(&flame, "main", "cold", "below"), late = PATH(&flame, "main", "late"),
             alone = PATH(&flame, "alone");
    br_flame_add(&flame, hot, 100);
    br_flame_add(&flame, cold, 3);
    br_flame_add(&flame, below, 4);
    br_flame_add(&flame, alone, 5);
    flame.side = 1;
    br_flame_add(&flame, late, 90);
    br_flame_add(&flame, below, 1);
    /* the remaining nodes: root, main, hot, late */
    assert_int_equal(br_flame_prune(&flame, 4, &map), 0);
    br_flame_total(&flame);
    assert_int_equal(flame.nodes[0].total[0], 112);
    assert_int_equal(flame.nodes[0].total[1], 91);
    assert_int_equal(flame.n_nodes, 6);
    assert_int_equal(map[hot], PATH(&flame, "main", "hot"));
    assert_int_equal(map[cold], PATH(&flame, "main", BR_FLAME_OTHER));
    assert_int_equal(map[below], map[cold]);
    assert_int_equal(map[alone], PATH(&flame, BR_FLAME_OTHER));
    assert_int_equal(map[late], PATH(&flame, "main", "late"));
    assert_int_equal(flame.nodes[map[cold]].self[0], 7);
    assert_int_equal(flame.nodes[map[cold]].self[1], 1);
    assert_int_equal(flame.nodes[map[hot]].self[0], 100);
    assert_int_equal(flame.side, 1);
    assert_int_equal(flame.n_nodes, 6);
    br_free(map);
    br_flame_release(&flame);
}

static void prune_without_memory(void *arg)
{
    struct br_flame flame;
    uint32_t *map = NULL;
    (void)arg;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    br_flame_add(&flame, PATH(&flame, "a", "b"), 5);
    fault_start();
    int rc = br_flame_prune(&flame, 1, &map);
    fault_stop();
    assert_true(rc == 0 || (rc == BR_ENOMEM && flame.n_nodes == 3 && !map));
    br_flame_total(&flame);
    assert_int_equal(flame.nodes[0].total[0], 5);
    br_free(map);
    br_flame_release(&flame);
}

static void pruning_without_memory_changes_nothing(void **state)
{
    (void)state;
    fault_each("prune", prune_without_memory, NULL);
}

static void existing_nodes_are_kept_without_memory(void **state)
{
    (void)state;
    fault_each("flame", tree_without_memory, NULL);
}

SUITE(flame)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_sums_of_self_values),
        cmocka_unit_test(children_are_listed_once_after_their_parent),
        cmocka_unit_test(functions_are_distinguished_by_name_and_file),
        cmocka_unit_test(the_number_of_nodes_is_limited),
        cmocka_unit_test(sums_saturate),
        cmocka_unit_test(a_child_is_found_among_many),
        cmocka_unit_test(pruning_keeps_sums),
        cmocka_unit_test(pruning_without_memory_changes_nothing),
        cmocka_unit_test(existing_nodes_are_kept_without_memory),
    };
    return RUN(tests, NULL, NULL);
}
