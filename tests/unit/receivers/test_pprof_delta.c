/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the differences between successive profiles. Every expected value is a subtraction that was
 * done by hand. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"
#include "pprof/profile.pb-c.h"
#include "receivers/pprof/delta.h"
#include "tests/support/fault.h"
#include "tests/support/pprof_wire.h"
#include "tests/support/test.h"

struct fixture {
    struct pprof_delta *delta;
    struct br_arena arena;
    struct br_err err;
    struct br_str text; /* the last difference, in the form of describe() */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->delta = pprof_delta_new();
    br_arena_init(&f->arena, BR_BUF_MAX);
    assert_non_null(f->delta);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    pprof_delta_free(f->delta);
    br_arena_release(&f->arena);
    br_str_release(&f->text);
    free(f);
    return 0;
}

/* Writes each sample with its values, as in "a 1 2; b 3 4; ", and the duration if the profile has
 * one. */
static void describe(struct br_str *out, const uint8_t *data, size_t len)
{
    Perftools__Profiles__Profile *p = perftools__profiles__profile__unpack(NULL, len, data);
    assert_non_null(p);
    for (size_t i = 0; i < p->n_sample; i++) {
        const Perftools__Profiles__Sample *s = p->sample[i];
        for (size_t k = 0; k < p->n_function; k++)
            if (p->function[k]->id == s->location_id[0])
                br_str_printf(out, "%s", p->string_table[p->function[k]->name]);
        for (size_t k = 0; k < s->n_value; k++)
            br_str_printf(out, " %lld", (long long)s->value[k]);
        br_str_puts(out, "; ");
    }
    if (p->duration_nanos)
        br_str_printf(out, "in %lld", (long long)p->duration_nanos);
    perftools__profiles__profile__free_unpacked(p, NULL);
}

static int take_bytes(struct fixture *f, const struct wire *w)
{
    const uint8_t *data = NULL;
    size_t len = 1;
    br_str_clear(&f->text);
    int rc = pprof_delta_next(f->delta, w->data, w->len, &f->arena, &data, &len, &f->err);
    if (rc == 0 && len > 0)
        describe(&f->text, data, len);
    else if (rc == 0)
        br_str_puts(&f->text, "first");
    return rc;
}

static int take(struct fixture *f, const struct pprof_wire *p)
{
    struct wire w = {0};
    pprof_wire_write(&w, p);
    int rc = take_bytes(f, &w);
    wire_free(&w);
    return rc;
}

static void expect(struct fixture *f, const struct pprof_wire *p, const char *text)
{
    assert_int_equal(take(f, p), 0);
    assert_string_equal(f->text.data, text);
}

#define MUTEX .types = {{"contentions", "count"}, {"delay", "nanoseconds"}}, .n_types = 2
#define HEAP                                                                                       \
    .types = {{"alloc_objects", "count"},                                                          \
              {"alloc_space", "bytes"},                                                            \
              {"inuse_objects", "count"},                                                          \
              {"inuse_space", "bytes"}},                                                           \
    .n_types = 4

static void test_differences(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 100}, 0}, {"b", {2, 200}, 0}}},
           "first");
    expect(f,
           &(struct pprof_wire){
               MUTEX, .samples = {{"a", {4, 150}, 0}, {"b", {2, 200}, 0}, {"c", {7, 9}, 0}}},
           "a 3 50; c 7 9; ");
    expect(f,
           &(struct pprof_wire){
               MUTEX, .samples = {{"a", {4, 150}, 0}, {"b", {2, 200}, 0}, {"c", {7, 9}, 0}}},
           "");
}

static void test_ids_and_strings_may_change(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 1}, 0}, {"b", {2, 2}, 0}}},
           "first");
    expect(f,
           &(struct pprof_wire){MUTEX, .samples = {{"b", {3, 9}, 0}, {"a", {1, 1}, 0}},
                                .more_id = 900, .padded = true},
           "b 1 7; ");
}

static void test_labels_are_part_of_a_stack(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 1}, 16}, {"a", {5, 5}, 32}}},
           "first");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {2, 2}, 16}, {"a", {7, 7}, 32}}},
           "a 1 1; a 2 2; ");
}

static void test_equal_stacks_add_up(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 1}, 0}, {"a", {2, 2}, 0}}},
           "first");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 1}, 0}, {"a", {5, 6}, 0}}},
           "a 3 4; "); /* sums of the equal stacks: 6 - 3 and 7 - 3 */
}

static void test_values_in_use_are_not_subtracted(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){HEAP, .samples = {{"a", {9, 90, 5, 50}, 0}}}, "first");
    expect(f, &(struct pprof_wire){HEAP, .samples = {{"a", {9, 90, 2, 20}, 0}}}, "a 0 0 2 20; ");
    expect(f, &(struct pprof_wire){HEAP, .samples = {{"a", {9, 90, 0, 0}, 0}}}, "");
    expect(f, &(struct pprof_wire){HEAP, .samples = {{"a", {10, 95, 1, 5}, 0}}}, "a 1 5 1 5; ");
}

static void test_a_restarted_program_counts_from_zero(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {5, 50}, 0}, {"b", {5, 50}, 0}}},
           "first");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {4, 60}, 0}, {"b", {6, 60}, 0}}},
           "a 4 60; b 6 60; ");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {5, 70}, 0}, {"b", {6, 60}, 0}}},
           "a 1 10; ");
}

/* Go converts sampled delays with a clock rate, whose measurement becomes more exact over time. A
 * converted total may therefore be smaller than the previous one. */
static void test_a_scaled_value_may_shrink(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {5, 1000}, 0}, {"b", {1, 10}, 0}}},
           "first");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {5, 999}, 0}, {"b", {2, 30}, 0}}},
           "b 1 20; ");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {6, 1009}, 0}, {"b", {2, 30}, 0}}},
           "a 1 10; ");
}

static void test_any_type_shows_a_restart_without_counts(void **state)
{
    struct fixture *f = *state;
#define DELAY .types = {{"delay", "nanoseconds"}}, .n_types = 1
    expect(f, &(struct pprof_wire){DELAY, .samples = {{"a", {5}, 0}, {"b", {5}, 0}}}, "first");
    expect(f, &(struct pprof_wire){DELAY, .samples = {{"a", {4}, 0}, {"b", {7}, 0}}}, "a 4; b 7; ");
}

static void test_a_change_of_types_is_a_restart(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {5, 50}, 0}}}, "first");
    expect(f, &(struct pprof_wire){HEAP, .samples = {{"a", {6, 60, 1, 10}, 0}}}, "a 6 60 1 10; ");
    expect(f,
           &(struct pprof_wire){.types = {{"alloc_objects", "count"},
                                          {"alloc_space", "bytes"},
                                          {"inuse_space", "bytes"},
                                          {"inuse_objects", "count"}},
                                .n_types = 4,
                                .samples = {{"a", {7, 70, 1, 10}, 0}}},
           "a 7 70 1 10; ");
}

static void test_durations(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 1}, 0}}, .time_ns = 1000}, "first");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {2, 2}, 0}}, .time_ns = 1600},
           "a 1 1; in 600");
    expect(f,
           &(struct pprof_wire){MUTEX, .samples = {{"a", {3, 3}, 0}}, .time_ns = 1700,
                                .duration_ns = 5},
           "a 1 1; in 5");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {4, 4}, 0}}, .time_ns = 1650},
           "a 1 1; "); /* the clock was set back */
}

static void test_clear(void **state)
{
    struct fixture *f = *state;
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 1}, 0}}, .time_ns = 10}, "first");
    pprof_delta_clear(f->delta);
    pprof_delta_clear(NULL);
    pprof_delta_free(NULL);
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {3, 3}, 0}}, .time_ns = 20}, "first");
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {5, 9}, 0}}, .time_ns = 30},
           "a 2 6; in 10");
}

/* A rejected profile does not replace the base, the profile with which the next profile is
 * compared. */
static void test_refused(void **state)
{
    struct fixture *f = *state;
    static const struct pprof_wire bad[] = {
        {.n_types = 0, .samples = {{"a", {0}, 0}}},
        {.types = {{"", "count"}}, .n_types = 1, .samples = {{"a", {1}, 0}}},
        {MUTEX, .samples = {{"a", {-1, 1}, 0}}},
        {MUTEX, .samples = {{"a", {INT64_MAX, 1}, 0}, {"a", {1, 1}, 0}}},
    };
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 1}, 0}}}, "first");
    for (size_t i = 0; i < BR_COUNT(bad); i++) {
        f->err = (struct br_err){0};
        assert_int_equal(take(f, &bad[i]), BR_EINVAL);
        assert_memory_equal(f->err.text, "pprof: ", 7);
    }
    struct wire w = {0};
    wire_tag(&w, 1, 2);
    wire_number(&w, 100);
    assert_int_equal(take_bytes(f, &w), BR_EINVAL);
    wire_clear(&w);
    size_t m = wire_open(&w, 1);
    wire_varint(&w, 1, 1);
    wire_close(&w, m);
    m = wire_open(&w, 2); /* a sample without values */
    wire_varint(&w, 1, 1);
    wire_close(&w, m);
    wire_str(&w, 6, "");
    wire_str(&w, 6, "contentions");
    assert_int_equal(take_bytes(f, &w), BR_EINVAL);
    wire_free(&w);
    expect(f, &(struct pprof_wire){MUTEX, .samples = {{"a", {3, 4}, 0}}}, "a 2 3; ");
}

static void test_many_stacks(void **state)
{
    struct fixture *f = *state;
    struct wire w = {0};
    size_t m = wire_open(&w, 1);
    wire_varint(&w, 1, 1);
    wire_varint(&w, 2, 2);
    wire_close(&w, m);
    for (unsigned i = 0; i < PPROF_DELTA_STACKS_MAX + 1; i++) {
        m = wire_open(&w, 2);
        wire_varint(&w, 1, i + 1);
        wire_varint(&w, 2, 1);
        wire_close(&w, m);
    }
    wire_str(&w, 6, "");
    wire_str(&w, 6, "contentions");
    wire_str(&w, 6, "count");
    assert_int_equal(take_bytes(f, &w), BR_EFULL);
    wire_free(&w);
}

static uint64_t steps_with_equal_ids(struct fixture *f, unsigned n)
{
    struct wire w = {0};
    size_t m = wire_open(&w, 1);
    wire_varint(&w, 1, 1);
    wire_varint(&w, 2, 2);
    wire_close(&w, m);
    for (unsigned i = 0; i < n; i++) {
        m = wire_open(&w, 4);
        wire_varint(&w, 1, 7);
        wire_close(&w, m);
    }
    wire_str(&w, 6, "");
    wire_str(&w, 6, "contentions");
    wire_str(&w, 6, "count");
    uint64_t before = br_steps();
    assert_int_equal(take_bytes(f, &w), 0);
    wire_free(&w);
    return br_steps() - before;
}

static void test_equal_ids_are_linear(void **state)
{
    struct fixture *f = *state;
    uint64_t some = steps_with_equal_ids(f, 1000);
    assert_true(steps_with_equal_ids(f, 4000) < 5 * some + 1000);
}

static void without_memory(void *arg)
{
    struct wire first = {0}, second = {0};
    struct br_arena arena = {0};
    const uint8_t *data;
    size_t len = 0;
    (void)arg;
    pprof_wire_write(&first, &(struct pprof_wire){MUTEX, .samples = {{"a", {1, 1}, 0}}});
    pprof_wire_write(&second,
                     &(struct pprof_wire){MUTEX, .samples = {{"a", {2, 3}, 0}}, .more_id = 9});
    fault_start();
    struct pprof_delta *d = pprof_delta_new();
    int rc = d ? pprof_delta_next(d, first.data, first.len, &arena, &data, &len, NULL) : BR_ENOMEM;
    if (rc == 0)
        rc = pprof_delta_next(d, second.data, second.len, &arena, &data, &len, NULL);
    fault_stop();
    assert_true(fault_failed() ? rc != 0 : rc == 0 && len > 0);
    pprof_delta_free(d);
    br_arena_release(&arena);
    wire_free(&first);
    wire_free(&second);
}

static void test_no_memory(void **state)
{
    (void)state;
    fault_each("delta", without_memory, NULL);
}

SUITE(pprof_delta)
{
    const struct CMUnitTest tests[] = {
        TEST(test_differences),
        TEST(test_ids_and_strings_may_change),
        TEST(test_labels_are_part_of_a_stack),
        TEST(test_equal_stacks_add_up),
        TEST(test_equal_ids_are_linear),
        TEST(test_values_in_use_are_not_subtracted),
        TEST(test_a_restarted_program_counts_from_zero),
        TEST(test_a_scaled_value_may_shrink),
        TEST(test_any_type_shows_a_restart_without_counts),
        TEST(test_a_change_of_types_is_a_restart),
        TEST(test_durations),
        TEST(test_clear),
        TEST(test_refused),
        TEST(test_many_stacks),
        TEST(test_no_memory),
    };
    return RUN(tests, NULL, NULL);
}
