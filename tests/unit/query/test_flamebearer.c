/* SPDX-License-Identifier: Apache-2.0 */
#include "query/flame_output.h"

#include "base/err.h"
#include "pprof/profile.pb-c.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"

/* Adds a value to each of the two profiles of a comparison, `left` and `right`, for a stack such as
 * `main;read;parse`. */
static void add_stack(struct br_flame *flame, const char *stack, int64_t left, int64_t right)
{
    char text[200], *unread = text;
    uint32_t node = 0, name;
    (void)snprintf(text, sizeof text, "%s", stack);
    for (char *part; (part = strsep(&unread, ";"));) {
        char *file = strchr(part, '@');
        if (file)
            *file++ = '\0';
        assert_int_equal(br_flame_name(flame, part, file, &name), 0);
        assert_int_equal(br_flame_child(flame, node, name, &node), 0);
    }
    flame->side = 0;
    br_flame_add(flame, node, left);
    flame->side = 1;
    br_flame_add(flame, node, right);
    flame->side = 0;
}

static void json_is(struct br_flame *flame, uint32_t max_nodes, bool diff, const char *expected)
{
    struct br_arena arena = {0};
    struct br_flamebearer flamebearer;
    struct br_str json = {0};
    br_flame_total(flame);
    assert_int_equal(br_flamebearer_make(flame, max_nodes, diff, &arena, &flamebearer), 0);
    br_flamebearer_json(&json, &flamebearer, false);
    assert_string_equal(json.data, expected);
    br_str_release(&json);
    br_arena_release(&arena);
}

/* The example in Pyroscope's documentation of the format: main calls foo, which takes 50 and calls
 * bar, which takes 100. */
static void a_row_of_bars_for_each_depth(void **state)
{
    (void)state;
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    add_stack(&flame, "main;foo", 50, 0);
    add_stack(&flame, "main;foo;bar", 100, 0);
    json_is(&flame, 0, false,
            "{\"names\":[\"total\",\"main\",\"foo\",\"bar\"],\"levels\":[[0,150,0,0],[0,150,0,1],"
            "[0,150,50,2],[50,100,100,3]],\"numTicks\":150,\"maxSelf\":100}");
    br_flame_release(&flame);
}

/* The total is 111: a has 11 (b 10, self 1) and c has 100 (self 30, d 50, b 20). Children are
 * sorted by name and begin after the self value of their parent. Under a, b begins at 1 and ends at
 * 11. The children of c begin at 11 + 30 = 41, which is 30 after the end of the previous bar. First
 * comes b, and then d, which ends at 41 + 20 + 50. */
static void offsets_start_at_the_end_of_the_previous_bar(void **state)
{
    (void)state;
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    add_stack(&flame, "c;d", 50, 0);
    add_stack(&flame, "c", 30, 0);
    add_stack(&flame, "c;b", 20, 0);
    add_stack(&flame, "a;b", 10, 0);
    add_stack(&flame, "a", 1, 0);
    json_is(&flame, 0, false,
            "{\"names\":[\"total\",\"a\",\"c\",\"b\",\"d\"],\"levels\":[[0,111,0,0],"
            "[0,11,1,1,0,100,30,2],[1,10,10,3,30,20,20,3,0,50,50,4]],"
            "\"numTicks\":111,\"maxSelf\":50}");
    br_flame_release(&flame);
}

/* A sum outside of the range of int64_t becomes the nearest value in the range. */
static void extreme_values_do_not_wrap(void **state)
{
    (void)state;
    struct br_flame flame;
    struct br_arena arena = {0};
    struct br_flamebearer made;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    add_stack(&flame, "a;b", INT64_MIN, INT64_MAX);
    add_stack(&flame, "a", INT64_MIN, INT64_MAX);
    add_stack(&flame, "c;d", INT64_MAX, INT64_MIN);
    add_stack(&flame, "e;f", INT64_MIN, INT64_MIN);
    add_stack(&flame, "g;h", INT64_MAX, INT64_MAX);
    br_flame_total(&flame);
    for (unsigned diff = 0; diff < 2; diff++)
        assert_int_equal(br_flamebearer_make(&flame, 0, diff, &arena, &made), 0);
    br_arena_release(&arena);
    br_flame_release(&flame);
}

/* Four nodes below the root: a 60, b 30, c 8, d 2. The two largest stay; c and d become "other"
 * with 10. */
static void small_nodes_become_other(void **state)
{
    (void)state;
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    add_stack(&flame, "a", 60, 0);
    add_stack(&flame, "b", 30, 0);
    add_stack(&flame, "c", 8, 0);
    add_stack(&flame, "d", 2, 0);
    json_is(&flame, 2, false,
            "{\"names\":[\"total\",\"a\",\"b\",\"other\"],\"levels\":[[0,100,0,0],"
            "[0,60,60,1,0,30,30,2,0,10,10,3]],\"numTicks\":100,\"maxSelf\":60}");
    json_is(&flame, 4, false,
            "{\"names\":[\"total\",\"a\",\"b\",\"c\",\"d\"],\"levels\":[[0,100,0,0],"
            "[0,60,60,1,0,30,30,2,0,8,8,3,0,2,2,4]],\"numTicks\":100,\"maxSelf\":60}");
    /* a node with the same value as the smallest node that is kept is kept, too */
    add_stack(&flame, "d", 6, 0);
    json_is(&flame, 3, false,
            "{\"names\":[\"total\",\"a\",\"b\",\"c\",\"d\"],\"levels\":[[0,106,0,0],"
            "[0,60,60,1,0,30,30,2,0,8,8,3,0,8,8,4]],\"numTicks\":106,\"maxSelf\":60}");
    /* a function named "other" is merged into the bar of the omitted nodes, as in Pyroscope */
    add_stack(&flame, "other;x", 40, 0);
    json_is(&flame, 0, false,
            "{\"names\":[\"total\",\"a\",\"b\",\"c\",\"d\",\"other\"],\"levels\":[[0,146,0,0],"
            "[0,60,60,1,0,30,30,2,0,8,8,3,0,8,8,4,0,40,40,5]],\"numTicks\":146,\"maxSelf\":60}");
    br_flame_release(&flame);
}

static void empty_nodes_are_left_out(void **state)
{
    (void)state;
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    json_is(&flame, 8192, false,
            "{\"names\":[\"total\"],\"levels\":[[0,0,0,0]],\"numTicks\":0,\"maxSelf\":0}");
    add_stack(&flame, "a;b", 0, 0);
    add_stack(&flame, "c", 1, 0);
    json_is(&flame, 8192, false,
            "{\"names\":[\"total\",\"c\"],\"levels\":[[0,1,0,0],[0,1,1,1]],"
            "\"numTicks\":1,\"maxSelf\":1}");
    br_flame_release(&flame);
}

/* left profile: a 10 (self 4, b 6); right profile: a 3 (b 3), c 7 */
static void a_difference_has_both_sides(void **state)
{
    (void)state;
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    add_stack(&flame, "a", 4, 0);
    add_stack(&flame, "a;b", 6, 3);
    add_stack(&flame, "c", 0, 7);
    json_is(&flame, 0, true,
            "{\"names\":[\"total\",\"a\",\"c\",\"b\"],\"levels\":[[0,10,0,0,10,0,0],"
            "[0,10,4,0,3,0,1,0,0,0,0,7,7,2],[4,6,6,0,3,3,3]],"
            "\"numTicks\":20,\"maxSelf\":7,\"leftTicks\":10,\"rightTicks\":10}");
    br_flame_release(&flame);
}

/* --- Functions -------------------------------------------------------------------------------- */

/* f calls g, which calls f again. The total of f is 1 + 2 + 4, because the value of the inner f is
 * counted only once. */
static void recursion_counts_once(void **state)
{
    (void)state;
    struct br_flame flame;
    struct br_arena arena = {0};
    struct br_function *functions;
    uint32_t count;
    assert_int_equal(br_flame_init(&flame, 100), 0);
    add_stack(&flame, "f", 1, 0);
    add_stack(&flame, "f;g", 2, 0);
    add_stack(&flame, "f;g;f", 4, 0);
    add_stack(&flame, "f;f;f", 8, 0);
    add_stack(&flame, "h;g", 16, 40);
    br_flame_total(&flame);
    assert_int_equal(br_functions_make(&flame, BR_FUNCTIONS_BY_SELF, &arena, &functions, &count),
                     0);
    assert_int_equal(count, 3);
    assert_string_equal(flame.names[functions[0].name], "g");
    assert_int_equal(functions[0].self[0], 18);
    assert_int_equal(functions[0].total[0], 2 + 4 + 16);
    assert_string_equal(flame.names[functions[1].name], "f");
    assert_int_equal(functions[1].self[0], 13);
    assert_int_equal(functions[1].total[0], 15);
    assert_string_equal(flame.names[functions[2].name], "h");
    assert_int_equal(functions[2].self[0], 0);
    assert_int_equal(functions[2].total[0], 16);
    assert_int_equal(br_functions_make(&flame, BR_FUNCTIONS_BY_TOTAL, &arena, &functions, &count),
                     0);
    assert_int_equal(functions[0].total[0], 22);
    assert_int_equal(functions[1].total[0], 16);
    /* differences of self values: g 40 - 18 = 22, f 0 - 13, h 0 */
    assert_int_equal(br_functions_make(&flame, BR_FUNCTIONS_BY_DELTA, &arena, &functions, &count),
                     0);
    assert_string_equal(flame.names[functions[0].name], "g");
    assert_string_equal(flame.names[functions[1].name], "f");
    br_arena_release(&arena);
    br_flame_release(&flame);
}

/* --- Other formats ---------------------------------------------------------------------------- */

static void shop(struct br_flame *flame)
{
    assert_int_equal(br_flame_init(flame, 100), 0);
    add_stack(flame, "main@main.go;read;x\"y", 3, 0);
    add_stack(flame, "main@main.go", 1, 0);
    add_stack(flame, "a;b\nc", 5, 0);
    br_flame_total(flame);
}

static void folded_lines_have_self_values(void **state)
{
    (void)state;
    struct br_flame flame;
    struct br_str out = {0};
    uint32_t name, node;
    shop(&flame);
    assert_int_equal(br_flame_name(&flame, "std::pair<a;b>", NULL, &name), 0);
    assert_int_equal(br_flame_child(&flame, 0, name, &node), 0);
    br_flame_add(&flame, node, 2);
    br_flame_folded(&out, &flame);
    assert_string_equal(out.data, "main 1\nmain;read;x\"y 3\na;b c 5\nstd::pair<a,b> 2\n");
    br_str_release(&out);
    br_flame_release(&flame);
}

static void speedscope_has_a_stack_for_each_weight(void **state)
{
    (void)state;
    struct br_flame flame;
    struct br_str out = {0};
    shop(&flame);
    assert_int_equal(br_flame_speedscope(&out, &flame, "cpu of shop", "nanoseconds"), 0);
    assert_string_equal(
        out.data,
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{"
        "\"frames\":[{\"name\":\"total\"},{\"name\":\"main\",\"file\":\"main.go\"},"
        "{\"name\":\"read\"},{\"name\":\"x\\\"y\"},{\"name\":\"a\"},{\"name\":\"b\\nc\"}]},"
        "\"profiles\":[{\"type\":\"sampled\",\"name\":\"cpu of shop\",\"unit\":\"nanoseconds\","
        "\"startValue\":0,\"samples\":[[1],[1,2,3],[4,5]],\"weights\":[1,3,5],\"endValue\":9}],"
        "\"activeProfileIndex\":0,\"name\":\"cpu of shop\",\"exporter\":\"braid\"}");
    br_str_release(&out);
    br_flame_release(&flame);
}

static void a_tree_is_nested_objects(void **state)
{
    (void)state;
    struct br_flame flame;
    struct br_str out = {0};
    shop(&flame);
    assert_int_equal(br_flame_tree(&out, &flame), 0);
    assert_string_equal(
        out.data, "{\"name\":\"total\",\"self\":0,\"total\":9,\"children\":["
                  "{\"name\":\"a\",\"self\":0,\"total\":5,\"children\":["
                  "{\"name\":\"b\\nc\",\"self\":5,\"total\":5,\"children\":[]}]},"
                  "{\"name\":\"main\",\"file\":\"main.go\",\"self\":1,\"total\":4,\"children\":["
                  "{\"name\":\"read\",\"self\":0,\"total\":3,\"children\":["
                  "{\"name\":\"x\\\"y\",\"self\":3,\"total\":3,\"children\":[]}]}]}]}");
    br_str_release(&out);
    br_flame_release(&flame);
}

static void a_tree_that_is_too_deep_is_rejected(void **state)
{
    (void)state;
    struct br_flame flame;
    struct br_str out = {0};
    uint32_t name, node = 0;
    assert_int_equal(br_flame_init(&flame, 2000), 0);
    assert_int_equal(br_flame_name(&flame, "f", NULL, &name), 0);
    for (unsigned i = 0; i < BR_FLAME_TREE_DEPTH_MAX; i++)
        assert_int_equal(br_flame_child(&flame, node, name, &node), 0);
    br_flame_add(&flame, node, 1);
    br_flame_total(&flame);
    assert_int_equal(br_flame_tree(&out, &flame), 0);
    assert_int_equal(br_flame_child(&flame, node, name, &node), 0);
    br_flame_add(&flame, node, 1);
    br_flame_total(&flame);
    assert_int_equal(br_flame_tree(&out, &flame), BR_ETOOBIG);
    br_str_release(&out);
    br_flame_release(&flame);
}

static const char *pprof_string(const Perftools__Profiles__Profile *profile, int64_t index)
{
    assert_true(index >= 0 && (size_t)index < profile->n_string_table);
    return profile->string_table[index];
}

/* Returns the function of the location's only line. */
static const Perftools__Profiles__Function *
pprof_function(const Perftools__Profiles__Profile *profile, uint64_t location)
{
    for (size_t i = 0; i < profile->n_location; i++)
        for (size_t j = 0; profile->location[i]->id == location && j < profile->n_function; j++)
            if (profile->function[j]->id == profile->location[i]->line[0]->function_id)
                return profile->function[j];
    fail();
    return NULL;
}

static void a_pprof_can_be_read_back(void **state)
{
    (void)state;
    static const char *const stacks[] = {"main", "x\"y<read<main", "b\nc<a"};
    static const int64_t values[] = {1, 3, 5};
    struct br_flame flame;
    struct br_str out = {0};
    shop(&flame);
    assert_int_equal(br_flame_pprof(&out, &flame,
                                    &(struct br_flame_about){"cpu", "nanoseconds", "wall", "ms",
                                                             1700000000000000000, 10000000000}),
                     0);
    Perftools__Profiles__Profile *profile =
        perftools__profiles__profile__unpack(NULL, out.len, (const uint8_t *)out.data);
    assert_non_null(profile);
    assert_string_equal(pprof_string(profile, 0), "");
    assert_int_equal(profile->n_sample_type, 1);
    assert_string_equal(pprof_string(profile, profile->sample_type[0]->type), "cpu");
    assert_string_equal(pprof_string(profile, profile->sample_type[0]->unit), "nanoseconds");
    assert_string_equal(pprof_string(profile, profile->period_type->type), "wall");
    assert_string_equal(pprof_string(profile, profile->period_type->unit), "ms");
    assert_int_equal(profile->time_nanos, 1700000000000000000);
    assert_int_equal(profile->duration_nanos, 10000000000);
    assert_int_equal(profile->n_sample, 3);
    for (size_t i = 0; i < 3; i++) {
        char stack[100] = "";
        const Perftools__Profiles__Sample *sample = profile->sample[i];
        for (size_t j = 0; j < sample->n_location_id; j++) {
            const Perftools__Profiles__Function *function =
                pprof_function(profile, sample->location_id[j]);
            (void)strncat(stack, j ? "<" : "", sizeof stack - strlen(stack) - 1);
            (void)strncat(stack, pprof_string(profile, function->name),
                          sizeof stack - strlen(stack) - 1);
        }
        assert_string_equal(stack, stacks[i]);
        assert_int_equal(sample->n_value, 1);
        assert_int_equal(sample->value[0], values[i]);
    }
    const Perftools__Profiles__Function *leaf =
        pprof_function(profile, profile->sample[0]->location_id[0]);
    assert_string_equal(pprof_string(profile, leaf->filename), "main.go");
    perftools__profiles__profile__free_unpacked(profile, NULL);
    br_str_release(&out);
    br_flame_release(&flame);
}

static void written_without_memory(void *arg)
{
    (void)arg;
    struct br_flame flame;
    struct br_arena arena = {0};
    struct br_flamebearer flamebearer;
    struct br_function *functions;
    uint32_t count;
    struct br_str outs[5] = {{0}};
    shop(&flame);
    fault_start();
    int rc[5];
    rc[0] = br_flamebearer_make(&flame, 2, true, &arena, &flamebearer);
    if (!rc[0])
        br_flamebearer_json(&outs[0], &flamebearer, true);
    rc[1] = br_functions_make(&flame, BR_FUNCTIONS_BY_SELF, &arena, &functions, &count);
    br_flame_folded(&outs[1], &flame);
    rc[2] = br_flame_speedscope(&outs[2], &flame, "x", "bytes");
    rc[3] = br_flame_tree(&outs[3], &flame);
    rc[4] = br_flame_pprof(
        &outs[4], &flame,
        &(struct br_flame_about){.type = "", .unit = "", .period_type = "", .period_unit = ""});
    fault_stop();
    for (size_t i = 0; i < 5; i++) {
        assert_true(rc[i] == 0 || (rc[i] == BR_ENOMEM && fault_failed()));
        assert_true(!outs[i].failed || fault_failed());
        br_str_release(&outs[i]);
    }
    br_arena_release(&arena);
    br_flame_release(&flame);
}

static void every_format_reports_lack_of_memory(void **state)
{
    (void)state;
    fault_each("flame graphs", written_without_memory, NULL);
}

SUITE(flamebearer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_of_bars_for_each_depth),
        cmocka_unit_test(offsets_start_at_the_end_of_the_previous_bar),
        cmocka_unit_test(extreme_values_do_not_wrap),
        cmocka_unit_test(small_nodes_become_other),
        cmocka_unit_test(empty_nodes_are_left_out),
        cmocka_unit_test(a_difference_has_both_sides),
        cmocka_unit_test(recursion_counts_once),
        cmocka_unit_test(folded_lines_have_self_values),
        cmocka_unit_test(speedscope_has_a_stack_for_each_weight),
        cmocka_unit_test(a_tree_is_nested_objects),
        cmocka_unit_test(a_tree_that_is_too_deep_is_rejected),
        cmocka_unit_test(a_pprof_can_be_read_back),
        cmocka_unit_test(every_format_reports_lack_of_memory),
    };
    return RUN(tests, NULL, NULL);
}
