/* SPDX-License-Identifier: Apache-2.0 */
/* pprofs that are malformed, too large, or read without memory. */
#include "tests/support/pprof_rig.h"
#include "tests/support/test.h"

static struct message *without_types(struct message *m)
{
    return join(m, join(nest(SAMPLE, END), all_strings()));
}

static void test_invalid(void **state)
{
    (void)state;
    const struct {
        struct message *m;
        const char *want;
    } cases[] = {
        {around(nest(SAMPLE, number(1, 7), bytes(2, "\1\2", 2), END)),
         "sample 0: location 7 is not"},
        {around(nest(SAMPLE, number(1, 0), bytes(2, "\1\2", 2), END)), "location 0 is not"},
        {around(nest(SAMPLE, number(1, 1ull << 50), bytes(2, "\1\2", 2), END)),
         "location 1125899906842624"},
        {around(nest(SAMPLE, number(2, 1), END)), "sample 0 has 1 value for 2 sample types"},
        {around(nest(SAMPLE, bytes(2, "\1\2\3", 3), END)), "more than 2 values for 2 sample types"},
        {around(nest(SAMPLE, END)), "sample 0 has 0 values for 2 sample types"},
        {around(nest(SAMPLE, bytes(2, "\1\2", 2), text(3, "\x0a\x05"), END)),
         "sample 0 is malformed"},
        {around(nest(SAMPLE, bytes(2, "\1\2", 2), bytes(1, "\xff", 1), END)),
         "sample 0 is malformed"},
        {around(nest(SAMPLE, bytes(2, "\xff", 1), END)), "sample 0 is malformed"},
        {around(sample(text(3, "\x0a"))), "sample 0 is malformed"},
        {around(sample(label(99, MAIN, 0, 0))), "label: string 99 is not in the table of 23"},
        {around(sample(label(USER, 99, 0, 0))), "label: string 99"},
        {around(sample(label(BYTES, 0, 1, UINT64_MAX))), "label: string -1"},
        {around(sample(join(label(USER, 1, 0, 0), label(USER, 99, 0, 0)))), "label: string 99"},
        {without_types(new_message(0)), "there are samples but no sample types"},
        {without_types(type(99, 0)), "sample type: string 99"},
        {without_types(type(0, 99)), "sample type: string 99"},
        {without_types(text(TYPE, "\x0a")), "value type is malformed"},
        {join(around(sample(NULL)), nest(PLOCATION, text(4, "\x0a"), END)), "line is malformed"},
        {join(around(sample(NULL)), nest(PLOCATION, number(4, 1), END)), "location is malformed"},
        {join(around(sample(NULL)), text(PLOCATION, "\x08")), "location is malformed"},
        {join(around(sample(NULL)), text(PFUNCTION, "\x08")), "function is malformed"},
        {join(around(sample(NULL)), text(PMAPPING, "\x08")), "mapping is malformed"},
        {join(around(sample(NULL)), bytes(COMMENT, "\1\xff", 2)), "comments are malformed"},
        {join(around(sample(NULL)), number(SAMPLE, 1)), "field 2 has the wrong wire type"},
        {join(around(sample(NULL)), text(TIME, "")), "field 9 has the wrong wire type"},
        {join(around(sample(NULL)), bytes(99, "\1", 1)), NULL},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct read r = {0};
        int rc = read_message(&r, cases[i].m);
        if (cases[i].want && (rc != BR_EINVAL || !strstr(r.err.text, cases[i].want)))
            fail_msg("case %zu: %d \"%s\", not \"%s\"", i, rc, r.err.text, cases[i].want);
        if (!cases[i].want)
            assert_int_equal(rc, 0);
        if (r.request)
            free_unpacked(r.request, NULL);
    }
    /* If a profile is cut at any place, reading it fails or returns a shorter profile. */
    struct message *m =
        around(sample(join(label(SPAN_ID, SPAN, 0, 0), label(BYTES, 0, 1, KILOBYTES))));
    for (size_t len = m->len; len-- > 0;) {
        struct read r = {0};
        struct message *cut = bytes(1, m->data, len);
        size_t head = cut->len - len;
        memmove(cut->data, cut->data + head, len);
        cut->len = len;
        int rc = read_message(&r, cut);
        assert_true(rc == 0 || rc == BR_EINVAL);
        if (r.request)
            free_unpacked(r.request, NULL);
    }
    free_messages();
}

/* Only the invalid samples are dropped, as in github.com/grafana/pyroscope (pkg/pprof,
 * sanitizeProfile). An invalid entry that no sample uses causes no loss. */
static void test_invalid_samples_are_dropped_alone(void **state)
{
    (void)state;
    const struct {
        struct message *m;
        const char *want;
    } cases[] = {
        {nest(SAMPLE, number(1, 7), bytes(2, "\1\2", 2), END), "location 7 is not"},
        {nest(SAMPLE, number(1, 0), bytes(2, "\1\2", 2), END), "location 0 is not"},
        {nest(SAMPLE, bytes(1, "\1\7", 2), bytes(2, "\1\2", 2), END), "location 7 is not"},
        {nest(SAMPLE, number(2, 1), END), "has 1 value for 2"},
        {nest(SAMPLE, bytes(2, "\1\2\3", 3), END), "more than 2 values"},
        {sample(label(99, MAIN, 0, 0)), "string 99"},
        {sample(join(label(USER, 1, 0, 0), label(USER, 99, 0, 0))), "string 99"},
        {join(nest(SAMPLE, number(1, 3), bytes(2, "\1\2", 2), END),
              nest(PLOCATION, number(1, 3), number(2, 9), END)),
         "location 3: mapping 9"},
        {join(nest(SAMPLE, number(1, 3), bytes(2, "\1\2", 2), END),
              nest(PLOCATION, number(1, 3), nest(4, number(1, 9), END), END)),
         "function 9 is not"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_profile_lost lost = {0};
        struct read r = {.source = {.lost = &lost}};
        struct message *good = sample(label(USER, MAIN, 0, 0));
        assert_int_equal(read_message(&r, around(join(join(good, cases[i].m), sample(NULL)))), 0);
        if (lost.count != 1 || !strstr(lost.first.text, cases[i].want))
            fail_msg("case %zu: %u \"%s\"", i, lost.count, lost.first.text);
        assert_int_equal(r.err.code, 0);
        assert_int_equal(profile_at(&r, 0)->n_samples, 2);
        assert_int_equal(profile_at(&r, 1)->n_samples, 2);
        free_unpacked(r.request, NULL);
    }
    /* An invalid location that no sample refers to is not counted as a loss. */
    struct br_profile_lost lost = {0};
    struct read r = {.source = {.lost = &lost}};
    assert_int_equal(read_message(&r, around(join(sample(NULL), nest(PLOCATION, number(1, 3),
                                                                     number(2, 9), END)))),
                     0);
    assert_int_equal(lost.count, 0);
    done(&r);
}

/* If a reference is invalid, only the text or the entry that contains the reference is dropped, and
 * the loss is counted. If several entries have the same id, the last entry is used, as in
 * github.com/grafana/pyroscope (2.x). */
static void test_invalid_references(void **state)
{
    (void)state;
    const struct {
        struct message *m;
        const char *want; /* NULL: no message */
        uint32_t count;
    } cases[] = {
        {nest(PFUNCTION, number(1, 2), number(2, 99), number(3, 98), number(4, 97), END),
         "function: string 99", 3},
        {nest(PMAPPING, number(1, 2), number(5, 99), END), "mapping: string 99", 1},
        {nest(PMAPPING, number(1, 2), number(6, 99), END), "build id: string 99", 1},
        {number(DEFAULT_TYPE, 99), "default_sample_type: string 99", 1},
        {number(DOC_URL, 99), "doc_url: string 99", 1},
        {number(COMMENT, 99), "comment: string 99", 1},
        {bytes(COMMENT, "\1\x63\1", 3), "comment: string 99", 1},
        {nest(PERIOD_TYPE, number(1, 99), number(2, 98), END), "period type: string 99", 2},
        {nest(PMAPPING, number(1, 1), END), "two mappings have the id 1", 1},
        {nest(PFUNCTION, number(1, 1), END), "two functions have the id 1", 1},
        {nest(PLOCATION, number(1, 1), END), "two locations have the id 1", 1},
        {join(nest(PFUNCTION, number(1, 1ull << 40), END),
              nest(PFUNCTION, number(1, 1ull << 40), END)),
         "two functions have the id 1099511627776", 1},
        {nest(PFUNCTION, END), NULL, 0},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_profile_lost lost = {0};
        struct read r = {.source = {.lost = &lost}};
        int rc = read_message(&r, join(around(sample(NULL)), cases[i].m));
        if (rc || lost.strays != cases[i].count ||
            (cases[i].want && !strstr(lost.first_stray.text, cases[i].want)))
            fail_msg("case %zu: %d \"%s\", %u \"%s\"", i, rc, r.err.text, lost.strays,
                     lost.first_stray.text);
        assert_int_equal(lost.count, 0);
        assert_int_equal(profile_at(&r, 0)->n_samples, 1);
        free_unpacked(r.request, NULL);
    }
    free_messages();
}

static void test_last_of_two_entries_counts(void **state)
{
    (void)state;
    struct read r = {0};
    struct message *again = nest(PFUNCTION, number(1, 1), number(2, USER), END);
    assert_int_equal(read_message(&r, join(around(sample(NULL)), again)), 0);
    const Opentelemetry__Proto__Profiles__V1development__ProfilesDictionary *dictionary =
        r.request->dictionary;
    int32_t stack = profile_at(&r, 0)->samples[0]->stack_index;
    int32_t location = dictionary->stack_table[stack]->location_indices[0];
    int32_t function = dictionary->location_table[location]->lines[0]->function_index;
    assert_string_equal(string_at(&r, dictionary->function_table[function]->name_strindex), "user");
    done(&r);
}

/* If all locations of a stack are unknown, the stack takes no memory for them. */
static void test_unknown_stack(void **state)
{
    (void)state;
    struct br_profile_lost lost = {0};
    struct read r = {.source = {.lost = &lost}};
    char locations[4000];
    memset(locations, 7, sizeof locations);
    struct message *bad =
        nest(SAMPLE, bytes(1, locations, sizeof locations), bytes(2, "\1\2", 2), END);
    assert_int_equal(read_message(&r, around(join(bad, sample(NULL)))), 0);
    assert_int_equal(lost.count, 1);
    assert_non_null(strstr(lost.first.text, "location 7 is not"));
    assert_int_equal(profile_at(&r, 0)->n_samples, 1);
    done(&r);
}

/* In a table whose first string is not empty, index 0 refers to that string. */
static void test_first_string(void **state)
{
    (void)state;
    struct read r = {0};
    struct message *m = join(text(PSTRING, "cpu"), text(PSTRING, "nanoseconds"));
    m = join(m, nest(TYPE, number(2, 1), END)); /* the type has the default index 0 */
    m = join(m, nest(SAMPLE, bytes(2, "\5", 1), nest(3, number(1, 1), END), END));
    assert_int_equal(read_message(&r, m), 0);
    const Profile *p = profile_at(&r, 0);
    assert_string_equal(string_at(&r, p->sample_type->type_strindex), "cpu");
    assert_string_equal(string_at(&r, p->sample_type->unit_strindex), "nanoseconds");
    assert_int_equal(p->samples[0]->n_attribute_indices, 1);
    int32_t at = p->samples[0]->attribute_indices[0];
    assert_string_equal(string_at(&r, r.request->dictionary->attribute_table[at]->key_strindex),
                        "nanoseconds");
    assert_string_equal(r.request->dictionary->attribute_table[at]->value->string_value, "cpu");
    assert_int_equal(p->n_attribute_indices, 0); /* no drop_frames or keep_frames */
    done(&r);
}

/* Thousands of types without values must not take memory for the values. */
static void test_missing_values(void **state)
{
    (void)state;
    struct message *types = new_message(0), *m = new_message(ROOM);
    struct message *one = nest(SAMPLE, END);
    for (unsigned i = 0; i < 64; i++)
        types = join(types, type(1, 2));
    for (unsigned i = 0; i < 40000; i++) {
        memcpy(m->data + m->len, one->data, one->len);
        m->len += one->len;
    }
    struct read r = {0};
    m = join(join(types, m), all_strings());
    assert_int_equal(read_message(&r, m), BR_EINVAL);
    assert_non_null(strstr(r.err.text, "too few values"));
    assert_int_equal(read_message(&r, join(m, type(1, 2))), BR_EINVAL);
    assert_non_null(strstr(r.err.text, "more than 64 sample types"));
    r.build_max = 2000;
    assert_int_equal(read_message(&r, around(sample(NULL))), BR_EFULL);
    r.build_max = 0;
    r.arena_max = 100;
    assert_int_equal(read_message(&r, around(sample(NULL))), BR_ENOMEM);
    done(&r);
}

static int read_without_memory(void *arg)
{
    struct read r = {.source = {.from_pyroscope = true, .spy_name = "pyspy"}};
    int rc = read_message(&r, arg);
    if (r.request)
        free_unpacked(r.request, NULL);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct message *labels = join(label(SPAN_ID, SPAN, 0, 0), label(BYTES, 0, 1, KILOBYTES));
    labels = join(labels, join(label(USER, MAIN, 0, 0), label(USER, CPU, 0, 0)));
    struct message *m = around(sample(labels));
    m = join(m, join(number(COMMENT, A_COMMENT), nest(PLOCATION, number(1, 1ull << 40), END)));
    with_failures(read_without_memory, m);
    free_messages();
}

SUITE(pprof_errors)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_invalid_references),
        cmocka_unit_test(test_last_of_two_entries_counts),
        cmocka_unit_test(test_invalid_samples_are_dropped_alone),
        cmocka_unit_test(test_unknown_stack),
        cmocka_unit_test(test_first_string),
        cmocka_unit_test(test_missing_values),
        cmocka_unit_test(test_no_memory),
    };
    return RUN(tests, request_setup, request_teardown);
}
