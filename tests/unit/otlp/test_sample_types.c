/* SPDX-License-Identifier: Apache-2.0 */
/* Counts samples by the sample type of their Profile. The names are those of the Collector's
 * receivers (receiverhelper/xreceiverhelper, ProfileSampleCountsByType). */
#include "base/err.h"
#include "base/str.h"
#include "otlp/sample_types.h"
#include "otlp/walk/walk.h"
#include "tests/support/fake_host.h"
#include "tests/support/otlp_text.h"
#include "tests/support/test.h"
#include "tests/support/wire.h"

#define PROFILES_MAX 8

/* A Profile that is the only one in its resource: its sample type (as string indices) and number of
 * samples. */
struct given {
    unsigned type, unit, n_samples;
};

/* Appends a request of the profiles and strings. The profiles end with one of all zeros, the
 * strings with NULL. */
static void request_put(struct br_str *out, const struct given *given, const char *const *strings)
{
    br_str_puts(out, "{'resourceProfiles': [");
    for (unsigned i = 0; given[i].type || given[i].unit || given[i].n_samples; i++) {
        br_str_printf(out,
                      "%s{'scopeProfiles': [{'profiles': [{'sampleType': {'typeStrindex': %u, "
                      "'unitStrindex': %u}, 'samples': [",
                      i ? ", " : "", given[i].type, given[i].unit);
        for (unsigned k = 0; k < given[i].n_samples; k++)
            br_str_printf(out, "%s{'values': ['1']}", k ? ", " : "");
        br_str_puts(out, "]}]}]}");
    }
    br_str_puts(out, "], 'dictionary': {'stringTable': [''");
    for (unsigned i = 0; strings[i]; i++)
        br_str_printf(out, ", '%s'", strings[i]);
    br_str_puts(out, "]}}");
}

static void expect_same(const struct br_sample_types *some, const struct br_sample_types *others)
{
    assert_int_equal(some->count, others->count);
    for (unsigned i = 0; i < some->count; i++) {
        assert_string_equal(some->rows[i].name, others->rows[i].name);
        assert_int_equal(some->rows[i].n_samples, others->rows[i].n_samples);
    }
}

static void add(struct br_sample_types *types, const struct given *given,
                const char *const *strings)
{
    struct fake_host *h = fake_host_new();
    struct br_str text = {0};
    request_put(&text, given, strings);
    struct br_item *item = br_item_new(&h->host, BR_PROFILES);
    struct br_buf *buf = otlp_text(h->host.pool, BR_PROFILES, text.data);
    struct br_sample_types walked = {0}, scanned = {0};
    struct br_walk_options options = {.types = &walked};
    struct br_err err = {0};
    uint32_t repaired;
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err))
        fail_msg("%s", err.text);
    br_sample_types_add(&scanned, item);
    expect_same(&walked, &scanned); /* the walk and a later scan agree */
    br_sample_types_add(types, item);
    br_str_release(&text);
    br_buf_unref(buf);
    br_item_free(item);
    fake_host_free(h);
}

/* "name=samples name=samples" */
static void expect(const struct br_sample_types *types, const char *want)
{
    char text[1024] = "";
    for (unsigned i = 0; i < types->count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%u", i ? " " : "",
                       types->rows[i].name, types->rows[i].n_samples);
    assert_string_equal(text, want);
}

static void each_type_has_a_row(void **state)
{
    (void)state;
    static const struct {
        struct given given[PROFILES_MAX];
        const char *strings[PROFILES_MAX], *want;
    } cases[] = {
        {{{0}}, {NULL}, ""},
        {{{1, 2, 2}}, {"cpu", "nanoseconds"}, "cpu:nanoseconds=2"},
        /* Equal names share a row even if their string indices differ. */
        {{{1, 2, 1}, {3, 4, 1}, {1, 2, 2}, {5, 2, 1}},
         {"cpu", "nanoseconds", "samples", "count", "cpu"},
         "cpu:nanoseconds=4 samples:count=1"},
        /* Index 0 means unset; an empty text at another index is a text. */
        {{{0, 0, 1}, {1, 0, 1}, {2, 1, 1}}, {"cpu", ""}, "<unset>:<unset>=1 cpu:<unset>=1 :cpu=1"},
        /* A Profile without samples does not count as a type. */
        {{{1, 1, 0}, {2, 2, 1}}, {"a", "b"}, "b:b=1"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_sample_types types = {0};
        add(&types, cases[i].given, cases[i].strings);
        expect(&types, cases[i].want);
    }
}

/* The counts of several requests, and of the pieces of one request, add up. */
static void requests_add_up(void **state)
{
    (void)state;
    struct br_sample_types types = {0};
    add(&types, (const struct given[]){{1, 2, 1}, {0}}, (const char *const[]){"a", "b", NULL});
    add(&types, (const struct given[]){{2, 1, 1}, {1, 2, 1}, {0}},
        (const char *const[]){"b", "a", NULL});
    expect(&types, "a:b=2 b:a=1");
}

/* If a part has a Resource in two fields, the walk restarts the part. If a string is invalid, it
 * restarts the request. Each sample still counts once. */
static void samples_count_once(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    struct br_str text = {0};
    struct br_sample_types types = {0};
    struct br_walk_options options = {.types = &types};
    struct br_err err = {0};
    struct wire w = {0};
    uint32_t repaired;
    request_put(&text, (const struct given[]){{1, 2, 3}, {0}},
                (const char *const[]){"a", "b", NULL});
    struct br_buf *buf = otlp_text(h->host.pool, BR_PROFILES, text.data);
    /* The fields of the only ResourceProfiles follow its tag and length. */
    size_t resource = wire_open(&w, 1);
    for (int i = 0; i < 2; i++) {
        size_t empty = wire_open(&w, 1);
        size_t attribute = wire_open(&w, 1);
        wire_str(&w, 1, i ? "x" : "bad \xff");
        wire_close(&w, attribute);
        wire_close(&w, empty);
    }
    assert_int_equal(buf->data[0], 10);
    assert_true(buf->data[1] < 0x80);
    wire_raw(&w, buf->data + 2, buf->data[1]);
    wire_close(&w, resource);
    wire_raw(&w, buf->data + 2 + buf->data[1], buf->len - 2 - buf->data[1]);
    struct br_item *item = br_item_new(&h->host, BR_PROFILES);
    struct br_buf *twice = br_buf_new(h->host.pool, w.len);
    memcpy(twice->data, w.data, w.len);
    twice->len = (uint32_t)w.len;
    if (br_walk(item, twice, twice->data, twice->len, &options, &repaired, &err))
        fail_msg("%s", err.text);
    assert_int_equal(repaired, 1);
    expect(&types, "a:b=3");
    wire_free(&w);
    br_str_release(&text);
    br_buf_unref(buf);
    br_buf_unref(twice);
    br_item_free(item);
    fake_host_free(h);
}

/* The number of rows and the length of names are bounded, because senders choose them. */
static void types_are_bounded(void **state)
{
    (void)state;
    struct br_sample_types types = {0};
    struct given given[32] = {{0}};
    const char *strings[32] = {NULL};
    char texts[30][8];
    for (unsigned i = 0; i < 30; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "t%u", i);
        strings[i] = texts[i];
        given[i] = (struct given){i + 1, i + 1, 1};
    }
    add(&types, given, strings);
    expect(&types, "t0:t0=1 t1:t1=1 t2:t2=1 t3:t3=1 t4:t4=1 t5:t5=1 t6:t6=1 _other=23");
    struct br_sample_types long_names = {0};
    add(&long_names, (const struct given[]){{1, 2, 1}, {3, 3, 1}, {0}},
        (const char *const[]){
            "1234567890123456789012345678901234567890", "123456789012345678901234567890",
            "12345678901234567890123456789012345678901234567890123456789012345", NULL});
    expect(&long_names, "_other=2");
}

SUITE(sample_types)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_type_has_a_row),
        cmocka_unit_test(requests_add_up),
        cmocka_unit_test(samples_count_once),
        cmocka_unit_test(types_are_bounded),
    };
    return RUN(tests, NULL, NULL);
}
