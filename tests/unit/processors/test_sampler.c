/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling decisions. The expected values come from the tests of the Collector's
 * probabilisticsamplerprocessor (v0.155), W3C Trace Context, OpenTelemetry's tracestate handling,
 * and arithmetic.
 */
#include <math.h>

#include "base/mem.h"
#include "base/str.h"
#include "otlp/trace_id.h"
#include "processors/probabilistic_sampler/sampler.h"
#include "tests/support/fake_sink.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_probabilistic_sampler_processor;

/* --- Tracestate ------------------------------------------------------------------------------ */

#define A16 "aaaaaaaaaaaaaaaa"
#define A256 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16
#define M8 "k=1,k=1,k=1,k=1,k=1,k=1,k=1,k=1"

/* Each row: a tracestate, and how it is written after parsing; NULL: it is invalid. */
static void tracestates(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"a=b", "a=b"},
        {"ot=th:8", "ot=th:8"},
        {"a=b,ot=th:8;rv:12341234123412,c=d", "ot=rv:12341234123412;th:8,a=b,c=d"},
        {"ot=x:1;th:c;y:2", "ot=th:c;x:1;y:2"},
        {" a=b \t, ,\tot=th:8 ", "ot=th:8,a=b"},
        {"t@s=1,1@s=2,a_-*/0=3", "t@s=1,1@s=2,a_-*/0=3"},
        {"a=!#$ :;<>~", "a=!#$ :;<>~"},
        {"ot=rv:FD70A3D70A3D71", "ot=rv:FD70A3D70A3D71"},
        {"ot=x:", "ot=x:"},
        {"a=" A256, "a=" A256},
        {M8 "," M8 "," M8 "," M8, M8 "," M8 "," M8 "," M8},
        {M8 "," M8 "," M8 "," M8 ",k=1", NULL}, /* a tracestate may have at most 32 members */
        {"a=" A256 "a", NULL},
        {A256 "a=1", NULL},
        {"ot=x:" A256, NULL},
        {"a=" A256 ",b=" A256 ",c=" A256 ",d=" A256, NULL}, /* longer than 1024 bytes */
        {"a", NULL},
        {"=b", NULL},
        {"a=", NULL},
        {"A=b", NULL},
        {"1=b", NULL},
        {"@s=1", NULL},
        {"t@=1", NULL},
        {"t@1=1", NULL},
        {"t@abcdefghijklmno=1", NULL}, /* the system in a key may have at most 14 characters */
        {"a=b=c", NULL},
        {"a=\x7f", NULL},
        {"ot=;th:8", NULL},
        {"ot=th:8;", NULL},
        {"ot=th", NULL},
        {"ot=:8", NULL},
        {"ot=TH:8", NULL},
        {"ot=th:", NULL},
        {"ot=th:g", NULL},
        {"ot=th:-1", NULL},
        {"ot=th:abababababababab", NULL},
        {"ot=rv:abababababababab", NULL},
        {"ot=rv:1234123412341", NULL},
        {"ot=rv:abcdefgabcdefg", NULL},
        {"ot=rv:", NULL},
        {"ot=x:a b", NULL},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_tracestate t;
        char out[BR_TRACESTATE_ROOM];
        bool valid = br_tracestate_read(&t, cases[i][0], strlen(cases[i][0]));
        if (valid != (cases[i][1] != NULL))
            fail_msg("\"%s\" is %svalid", cases[i][0], valid ? "" : "not ");
        if (!valid)
            continue;
        out[br_tracestate_write(&t, out)] = '\0';
        assert_string_equal(out, cases[i][1]);
    }
}

/* The buffer has room for all possible members of `ot`, and for th and rv. */
static void tracestates_fit_the_buffer(void **state)
{
    (void)state;
    char text[BR_TRACESTATE_MAX + 1] = "ot=", out[BR_TRACESTATE_ROOM];
    struct br_tracestate t;
    size_t n = 3;
    while (n + 3 <= 3 + BR_TRACESTATE_OT_MAX)
        n += (size_t)sprintf(text + n, "%sx:", n > 3 ? ";" : "");
    while (n + 5 < BR_TRACESTATE_MAX && n < 3 + BR_TRACESTATE_OT_MAX + 24 * 4)
        n += (size_t)sprintf(text + n, ",k=1");
    assert_true(br_tracestate_read(&t, text, n));
    br_tracestate_set_threshold(&t, 1);
    br_tracestate_set_randomness(&t, 1);
    size_t len = br_tracestate_write(&t, out);
    assert_int_equal(len, n + strlen("rv:00000000000001;th:00000000000001;"));
    assert_true(br_tracestate_read(&t, out, len) || len > BR_TRACESTATE_OT_MAX);
}

/* --- The hash -------------------------------------------------------------------------------- */

static void hash_decisions(void **state)
{
    (void)state;
    static const struct {
        uint32_t seed;
        const char *id;
        bool sampled;
    } cases[] = {
        {653, "474a03c76d75951a4b4c537ced8f1122", true},
        {563, "53a518291e91307e43cd8467bb06f986", true},
        {904, "4e40762d3ee97a1c0932e4fa584f89a8", false},
        {445, "5224507db93db513f0ea2a4b4e0578c8", true},
        {38, "0c8717ced36216037af657e9d7f8b35b", true},
        {561, "2a8aa76c18d08e1e8be935541f9318c7", false},
        {757, "9e3d0f9481dc422cb613ea550897ae71", false},
        {22, "66a66c516ac22054673e5da5e6492545", false},
        {172, "84a1ce7bcea3e66194e72b4aa2694e31", true},
        {552, "a811a7def34ca4b98d8e320afd115fad", false},
        {546, "e3a345cc8dbb6f014bfa1edad3981820", true},
        {315, "a71effb50e28d27cbdc9892f3765b8c2", false},
        {790, "7629ecbea89398bfd9752a2f51c2c137", true},
        {963, "20cb3dcebe2cf8abe6102f4a2e548245", false},
        {666, "3ee60b013303bcfda06be89071b90bd1", true},
        {839, "89bc498feb21d969cf0eabf916aa621a", false},
        {92, "eb60d98b8f8fe22d8970f44f0e2b6bad", true},
        {936, "62dda24e4be24f5198e4d8dd4010c811", true},
        {6, "d6a68b47c66d1f94eed46b8ddc72faf4", false},
        {568, "030e14c2954e3f08134b355f33414ba9", false},
        {965, "022315846d42a38322d6fd26250444b3", true},
        {512, "b3ba1ed226288dede87ac1f2ba88de2b", true},
        {16, "2533c732bed8c1ba4721c25a1205f06c", false},
        {773, "988481445600bb91bbe23e3103034bcd", true},
        {928, "f1813835ac0f456721ef3aac39c0269a", true},
        {235, "1999920085682c007eb3a6984d2a7f05", true},
        {460, "60c3b9a2dde734d71ba5cca7eb164bce", true},
        {961, "eed247645e510ded87bd9afcf1d3e237", false},
        {816, "4bbfffab5b5975c1b007ebc518bf416d", false},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct sampler s;
        struct sampler_verdict v;
        uint8_t id[16];
        assert_int_equal(br_hex_decode(cases[i].id, 32, id, sizeof id), 16);
        sampler_init(&s, SAMPLER_HASH_SEED, 50, cases[i].seed, 4, true);
        sampler_span(&s, &(struct sampler_span){.trace_id = id}, &v);
        assert_int_equal(v.sampled, cases[i].sampled);
        assert_int_equal(sampler_id(&s, id), cases[i].sampled);
    }
}

/* A trace id of 16 zero bytes with the seed 0 hashes to bucket 0x2455 of 0x4000. It is sampled if
 * the percentage is above 56.77. */
static void hash_bucket(void **state)
{
    (void)state;
    static const uint8_t zeros[16];
    struct sampler s;
    sampler_init(&s, SAMPLER_HASH_SEED, 100.0 * 0x2455 / 0x4000, 0, 4, true);
    assert_false(sampler_id(&s, zeros));
    sampler_init(&s, SAMPLER_HASH_SEED, 100.0 * 0x2456 / 0x4000, 0, 4, true);
    assert_true(sampler_id(&s, zeros));
}

/* The sampling percentage has fourteen bits, so the threshold `th` of 10 % is written as e668, not
 * e666. The written fields are consistent: the randomness `rv` is not below `th`. */
static void hash_tracestate(void **state)
{
    (void)state;
    static const struct {
        double percentage;
        const char *th;
    } cases[] = {{100, "0"}, {75, "4"},    {50, "8"},
                 {25, "c"},  {10, "e668"}, {(double)(100.0f / 3), "aaac"}};
    uint64_t seed = 7;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct sampler s;
        unsigned found = 0;
        sampler_init(&s, SAMPLER_HASH_SEED, cases[i].percentage, 4312, 4, true);
        while (found < 20) {
            uint64_t halves[2] = {fake_random(&seed), fake_random(&seed)};
            uint8_t id[16];
            struct sampler_verdict v;
            struct br_tracestate again;
            char out[BR_TRACESTATE_ROOM];
            memcpy(id, halves, sizeof id);
            sampler_span(&s, &(struct sampler_span){.trace_id = id}, &v);
            if (!v.sampled)
                continue;
            found++;
            assert_true(v.rewrite);
            size_t len = br_tracestate_write(&v.state, out);
            assert_true(br_tracestate_read(&again, out, len));
            assert_int_equal(again.th.len, strlen(cases[i].th));
            assert_memory_equal(again.th.data, cases[i].th, again.th.len);
            assert_int_equal(again.rv.len, 14);
            assert_true(again.randomness >= again.threshold);
        }
    }
}

/* --- Consistent sampling --------------------------------------------------------------------- */

/* a trace id that is sampled at 50 %, but not at 49 % */
#define HALF_ID "fefefefefefefefefe80000000000000"
#define ALWAYS_ID "111111111111111111ffffffffffffff"
#define FAIL_CLOSED 1
#define NOT NULL

struct example {
    double percentage;
    unsigned precision; /* 0: the default, 14 */
    const char *id, *tracestate;
    const char *equalizing, *proportional; /* tracestate of a sampled span; NULL: not sampled */
    enum sampler_priority priority;
    bool fail_closed;
};

static const struct example examples[] = {
    {100, 0, HALF_ID, "", "ot=th:0", "ot=th:0", 0, 0},
    {50, 0, HALF_ID, "", "ot=th:8", "ot=th:8", 0, 0},
    {49, 0, HALF_ID, "", NOT, NOT, 0, 0},
    {25, 0, "ddddddddddddddddddc0000000000000", "", "ot=th:c", "ot=th:c", 0, 0},
    {25, 0, "ddddddddddddddddddb0000000000000", "", NOT, NOT, 0, 0},
    {1, 0, HALF_ID, "ot=rv:FD70A3D70A3D71", "ot=rv:FD70A3D70A3D71;th:fd70a3d70a3d71",
     "ot=rv:FD70A3D70A3D71;th:fd70a3d70a3d71", 0, 0},
    {1, 4, HALF_ID, "ot=rv:FD70A3D70A3D71", "ot=rv:FD70A3D70A3D71;th:fd70a",
     "ot=rv:FD70A3D70A3D71;th:fd70a", 0, 0},
    {1, 3, HALF_ID, "ot=rv:FD70A3D70A3D71", NOT, NOT, 0, 0},
    {1, 0, HALF_ID, "ot=rv:FD70A3D70A3D70", NOT, NOT, 0, 0},
    {1, 0, HALF_ID, "ot=rv:fd70B000000000", "ot=rv:fd70B000000000;th:fd70a3d70a3d71",
     "ot=rv:fd70B000000000;th:fd70a3d70a3d71", 0, 0},
    {1, 4, "a0a0a0a0a0a0a0a0a0fe000000000000", "", "ot=th:fd70a", "ot=th:fd70a", 0, 0},
    {1, 0, HALF_ID, "", "ot=th:0", "ot=th:0", SAMPLER_PRIORITY_KEEP, 0},
    {99, 0, HALF_ID, "", NOT, NOT, SAMPLER_PRIORITY_DROP, 0},
    /* spans that arrive with th and rv */
    {50, 0, HALF_ID, "ot=rv:90000000000000;th:80000000000000", "ot=rv:90000000000000;th:8", NOT, 0,
     0},
    {25, 0, HALF_ID, "ot=th:8", NOT, NOT, 0, 0},
    {25, 0, "ffffffffffffffffffffffffffffffff", "ot=th:8", "ot=th:c", "ot=th:e", 0, 0},
    {50, 0, HALF_ID, "ot=rv:c0000000000000;th:8", "ot=rv:c0000000000000;th:8",
     "ot=rv:c0000000000000;th:c", 0, 0},
    {40, 3, HALF_ID, "ot=rv:a0000000000000", "ot=rv:a0000000000000;th:99a",
     "ot=rv:a0000000000000;th:99a", 0, 0},
    {40, 6, "a0a0a0a0a0a0a0a0a0d0000000000000", "ot=th:8", "ot=th:99999a", "ot=th:cccccd", 0, 0},
    {40, 3, "a0a0a0a0a0a0a0a0a0b0000000000000", "ot=th:8", "ot=th:99a", NOT, 0, 0},
    {40, 3, "a0a0a0a0a0a0a0a0a080000000000000", "ot=th:8", NOT, NOT, 0, 0},
    {200, 0, HALF_ID, "", "ot=th:0", "ot=th:0", 0, 0},
    {100 * 0x1p-14, 0, ALWAYS_ID, "ot=th:fffc", "ot=th:fffc", "ot=th:fffffff", 0, 0},
    {(double)(float)((1 - 8e-7) * 100), 10, ALWAYS_ID, "", "ot=th:00000cccccccd",
     "ot=th:00000cccccccd", 0, 0},
    {0x1p-4, 0, ALWAYS_ID, "ot=th:fffffffffffff8", "ot=th:fffffffffffff8", NOT, 0, 0},
    /* Every mode keeps a received probability that is lower than the configured one. */
    {25, 4, "ffffffffffffffffffffffffffffffff", "ot=th:e", "ot=th:e", "ot=th:f8", 0, 0},
    {25, 4, "ffffffffffffffffffffffffffffffff", "ot=th:e", "ot=th:e", "ot=th:e",
     SAMPLER_PRIORITY_KEEP, 0},
    /* The received threshold is above the span's randomness, so the span cannot have passed it. */
    {100, 0, HALF_ID, "ot=rv:40000000000000;th:8", "ot=rv:40000000000000;th:0",
     "ot=rv:40000000000000;th:0", 0, 0},
    {1, 0, HALF_ID, "ot=rv:40000000000000;th:8", NOT, NOT, 0, FAIL_CLOSED},
    {100, 0, "ffffffffffffffffff70000000000000", "ot=th:8", NOT, NOT, 0, FAIL_CLOSED},
    {100, 0, HALF_ID, "ot=th:8;rv:70000000000000", NOT, NOT, 0, FAIL_CLOSED},
    /* These spans do not contain enough information for a decision. */
    {100, 0, NULL, "", NOT, NOT, 0, FAIL_CLOSED},
    {100, 0, "00000000000000000000000000000000", "", NOT, NOT, 0, FAIL_CLOSED},
    {1, 0, NULL, "", "ot=th:0", "ot=th:0", 0, 0},
    {100, 0, HALF_ID, "ot=rv:abababababababab", NOT, NOT, 0, FAIL_CLOSED},
    {100, 0, HALF_ID, "ot=th:abababababababab", NOT, NOT, 0, FAIL_CLOSED},
    {100, 0, HALF_ID, "ot=th:-1", NOT, NOT, 0, FAIL_CLOSED},
    {1, 0, HALF_ID, "ot=th:-1", "ot=th:-1", "ot=th:-1", 0, 0},
    {1, 0, HALF_ID, "ot=th:-1", "ot=th:-1", "ot=th:-1", SAMPLER_PRIORITY_KEEP, FAIL_CLOSED},
    {0, 0, ALWAYS_ID, "", NOT, NOT, 0, 0},
    {0, 0, ALWAYS_ID, "a=b", "ot=th:0,a=b", "ot=th:0,a=b", SAMPLER_PRIORITY_KEEP, 0},
    {0, 0, NULL, "", NOT, NOT, 0, 0},
};

static void run_example(const struct example *e, enum sampler_mode mode)
{
    const char *expected = mode == SAMPLER_EQUALIZING ? e->equalizing : e->proportional;
    struct sampler s;
    struct sampler_verdict v;
    uint8_t id[16];
    char out[BR_TRACESTATE_ROOM];
    if (e->id)
        assert_int_equal(br_hex_decode(e->id, 32, id, sizeof id), 16);
    struct sampler_span span = {.trace_id = e->id ? id : NULL,
                                .tracestate = (const uint8_t *)e->tracestate,
                                .tracestate_len = strlen(e->tracestate),
                                .priority = e->priority};
    sampler_init(&s, mode, e->percentage, 0, e->precision ? e->precision : 14, e->fail_closed);
    sampler_span(&s, &span, &v);
    if (v.sampled != (expected != NULL))
        fail_msg("%g %% of %s \"%s\" in mode %d: sampled is %d", e->percentage, e->id ? e->id : "-",
                 e->tracestate, mode, v.sampled);
    if (!expected)
        return;
    (void)snprintf(out, sizeof out, "%s", e->tracestate);
    if (v.rewrite)
        out[br_tracestate_write(&v.state, out)] = '\0';
    assert_string_equal(out, expected);
}

static void consistent(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(examples); i++) {
        run_example(&examples[i], SAMPLER_EQUALIZING);
        run_example(&examples[i], SAMPLER_PROPORTIONAL);
    }
}

/* The hash mode does not make decisions for spans whose tracestate already has a member `ot`. Such
 * spans are dropped if fail_closed is true, and kept otherwise. */
static void hash_ignores_consistently_sampled_spans(void **state)
{
    (void)state;
    static const char *const in_use[] = {"ot=th:0", "ot=rv:ffffffffffffff", "ot=x"};
    static const uint8_t id[16] = {1};
    for (size_t i = 0; i < BR_COUNT(in_use); i++) {
        for (int closed = 0; closed < 2; closed++) {
            struct sampler s;
            struct sampler_verdict v;
            sampler_init(&s, SAMPLER_HASH_SEED, 100, 0, 4, closed);
            sampler_span(&s,
                         &(struct sampler_span){.trace_id = id,
                                                .tracestate = (const uint8_t *)in_use[i],
                                                .tracestate_len = strlen(in_use[i])},
                         &v);
            assert_int_equal(v.sampled, !closed);
            assert_false(v.rewrite);
        }
    }
}

/* A span without a trace id is dropped if fail_closed is true. Otherwise it is kept, unless the
 * sampling percentage is 0. */
static void missing_randomness(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        for (int percentage = 0; percentage <= 100; percentage += 50) {
            for (int closed = 0; closed < 2; closed++) {
                struct sampler s;
                struct sampler_verdict v;
                sampler_init(&s, (enum sampler_mode)mode, percentage, 4312, 4, closed);
                sampler_span(&s, &(struct sampler_span){0}, &v);
                assert_int_equal(v.sampled, !closed && percentage > 0);
            }
        }
    }
}

/* --- The processor --------------------------------------------------------------------------- */

#define COUNT "otelcol_processor_probabilistic_sampler_count_traces_sampled"
#define COUNT_SAMPLES "otelcol_processor_probabilistic_sampler_count_profile_samples_sampled"

static const char *span(const char *id, const char *state_and_attributes)
{
    static char text[2048];
    (void)snprintf(text, sizeof text,
                   "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"traceId\":\"%s\","
                   "\"spanId\":\"0000000000000001\"%s,\"name\":\"a\",\"kind\":2}]}]}]}",
                   id, state_and_attributes);
    return text;
}

/* The columns of a line of collector.tsv. */
enum { CONFIG, TRACE_ID, PRIORITY, TRACESTATE, RESULT, COLUMNS };

static void check_collector_line(char *column[COLUMNS])
{
    char more[1024], expected[512] = "";
    size_t n = (size_t)snprintf(more, sizeof more, ",\"traceState\":\"%s\"", column[TRACESTATE]);
    if (*column[PRIORITY])
        (void)snprintf(more + n, sizeof more - n,
                       ",\"attributes\":[{\"key\":\"sampling.priority\",\"value\":{\"intValue\":"
                       "\"%s\"}}]",
                       column[PRIORITY]);
    if (*column[RESULT])
        (void)snprintf(expected, sizeof expected, ",\"traceState\":\"%s\",", column[RESULT]);
    struct rig *r = rig_new(&br_probabilistic_sampler_processor, column[CONFIG]);
    const char *got = rig_run(r, BR_TRACES, span(column[TRACE_ID], more));
    bool kept = strcmp(column[RESULT], "dropped") != 0;
    bool fails = *got != '\0';
    if (kept)
        fails = !strstr(got, *expected ? expected : "\"name\"");
    if (fails)
        fail_msg("%s: %s with \"%s\" is not \"%s\" but %s", column[CONFIG], column[TRACE_ID],
                 column[TRACESTATE], column[RESULT], got);
    if (kept && !*expected)
        assert_null(strstr(got, "traceState"));
    rig_free(r);
}

/* The Collector's own processor gave these results for the same spans. */
static void results_of_the_collector(void **state)
{
    (void)state;
    char line[2048];
    size_t n = 0;
    FILE *f = fopen("tests/data/sampler/collector.tsv", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char *column[COLUMNS], *at = line;
        if (*line == '#')
            continue;
        line[strcspn(line, "\n")] = '\0';
        for (int i = 0; i < COLUMNS; i++) {
            assert_non_null(at);
            column[i] = at;
            at = strchr(at, '\t');
            if (at)
                *at++ = '\0';
        }
        check_collector_line(column);
        n++;
    }
    (void)fclose(f);
    assert_int_equal(n, 778);
}

static void rewritten_span(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_probabilistic_sampler_processor, "{sampling_percentage: 50, mode: equalizing}");
    static const char *const cases[][2] = {
        {"", ",\"traceState\":\"ot=th:8\""},
        {",\"traceState\":\"v=1, ot=x:1;th:4\"", ",\"traceState\":\"ot=th:8;x:1,v=1\""},
    };
    for (size_t i = 0; i < 2; i++) {
        (void)rig_run(r, BR_TRACES, span(HALF_ID, cases[i][0]));
        assert_string_equal(r->out.data, span(HALF_ID, cases[i][1]));
    }
    assert_string_equal(rig_run(r, BR_TRACES, span("fefefefefefefefefe70000000000000", "")), "");
    assert_int_equal(r->outcome.verdict, BR_DONE);
    assert_int_equal(
        rig_metric(r, COUNT,
                   "processor=\"probabilistic_sampler\",policy=\"trace_id_w3c\",sampled=\"true\""),
        2);
    assert_int_equal(
        rig_metric(r, COUNT,
                   "processor=\"probabilistic_sampler\",policy=\"trace_id_w3c\",sampled=\"false\""),
        1);
    assert_int_equal(rig_dropped(r, BR_TRACES, "sampled"), 1);
    rig_free(r);
}

/* OpenTracing's attribute sampling.priority, in each type that clients send. */
static void priorities(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int priority; /* 1 keep, 0 drop, -1 missing */
    } cases[] = {
        {"{\"intValue\":\"2\"}", 1},        {"{\"doubleValue\":1}", 1},
        {"{\"stringValue\":\"1\"}", 1},     {"{\"intValue\":\"0\"}", 0},
        {"{\"doubleValue\":0}", 0},         {"{\"stringValue\":\"0\"}", 0},
        {"{\"stringValue\":\"0.0\"}", 0},   {"{\"stringValue\":\"0.5\"}", 1},
        {"{\"stringValue\":\"-0.5\"}", -1}, {"{\"stringValue\":\"NaN\"}", -1},
        {"{\"stringValue\":\"high\"}", -1}, {"{\"intValue\":\"-1\"}", -1},
        {"{\"doubleValue\":-0.5}", -1},     {"{\"boolValue\":true}", -1},
        {"{\"doubleValue\":\"NaN\"}", -1},
    };
    for (int percentage = 0; percentage <= 100; percentage += 100) {
        for (size_t i = 0; i < BR_COUNT(cases); i++) {
            char yaml[64], attribute[256];
            (void)snprintf(yaml, sizeof yaml, "{sampling_percentage: %d, hash_seed: 4312}",
                           percentage);
            (void)snprintf(attribute, sizeof attribute,
                           ",\"attributes\":[{\"key\":\"sampling.prioritY\",\"value\":{"
                           "\"intValue\":\"%d\"}},{\"key\":\"sampling.priority\",\"value\":%s}]",
                           percentage ? 0 : 1, cases[i].value);
            struct rig *r = rig_new(&br_probabilistic_sampler_processor, yaml);
            (void)rig_run(r, BR_TRACES, span(HALF_ID, attribute));
            assert_int_equal(r->n_out, cases[i].priority < 0 ? percentage > 0 : cases[i].priority);
            rig_free(r);
        }
    }
}

/* Samples 1 to n of a profile. Link 1 and label 3 have HALF_ID. Link 2 and label 2 have another
 * trace id, which is not sampled. Label 1 does not contain a trace id, the value of label 4 is not
 * an id, and label 5 has the second label name. */
#define OTHER_ID "fefefefefefefefefe7fffffffffffff"
static const char *profile(const char *id, const char *samples)
{
    static char text[4096];
    (void)snprintf(
        text, sizeof text,
        "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":[%s]%s%s%s}]}]}],"
        "\"dictionary\":{\"linkTable\":[{},{\"traceId\":\"" HALF_ID "\",\"spanId\":"
        "\"0000000000000001\"},{\"traceId\":\"" OTHER_ID "\",\"spanId\":\"0000000000000001\"}],"
        "\"stringTable\":[\"\",\"thread\",\"trace_id\",\"process.context.label.trace_id\"],"
        "\"attributeTable\":[{},{\"keyStrindex\":1,\"value\":{\"stringValue\":\"" OTHER_ID "\"}},"
        "{\"keyStrindex\":2,\"value\":{\"stringValue\":\"" OTHER_ID "\"}},"
        "{\"keyStrindex\":2,\"value\":{\"stringValue\":\"" HALF_ID "\"}},"
        "{\"keyStrindex\":2,\"value\":{\"stringValue\":\"none\"}},"
        "{\"keyStrindex\":3,\"value\":{\"stringValue\":\"" OTHER_ID "\"}}]}}",
        samples, id ? ",\"profileId\":\"" : "", id ? id : "", id ? "\"" : "");
    return text;
}

#define LINKED(n, link) "{\"linkIndex\":" link ",\"values\":[\"" n "\"]}"
#define LABELLED(n, labels) "{\"attributeIndices\":[" labels "],\"values\":[\"" n "\"]}"
#define PLAIN(n) "{\"values\":[\"" n "\"]}"

static void samples_of_traces(void **state)
{
    (void)state;
    static const char in[] =
        LINKED("1", "1") "," LINKED("2", "2") "," LABELLED("3", "1,3") "," LABELLED(
            "4", "2,1") "," LABELLED("5", "4") "," LABELLED("6",
                                                            "5,3") "," LABELLED("7",
                                                                                "5") "," PLAIN("8");
    static const char kept[] = LINKED("1", "1") "," LABELLED("3", "1,3") "," LABELLED("6", "5,3");
    static const char with_unlinked[] = LINKED("1", "1") "," LABELLED("3", "1,3") "," LABELLED(
        "5", "4") "," LABELLED("6", "5,3") "," PLAIN("8");
    char expected[4096];
    static const char *const modes[] = {"equalizing", "proportional"};
    for (size_t i = 0; i < 2; i++) {
        char yaml[128];
        (void)snprintf(yaml, sizeof yaml, "{sampling_percentage: 50, mode: %s}", modes[i]);
        struct rig *r = rig_new(&br_probabilistic_sampler_processor, yaml);
        (void)snprintf(expected, sizeof expected, "%s", profile(NULL, with_unlinked));
        assert_string_equal(rig_run(r, BR_PROFILES, profile(NULL, in)), expected);
        assert_int_equal(rig_dropped(r, BR_PROFILES, "sampled"), 3);
        assert_int_equal(rig_metric(r, COUNT_SAMPLES,
                                    "processor=\"probabilistic_sampler\",policy=\"unlinked\","
                                    "sampled=\"true\""),
                         2);
        rig_free(r);
        (void)snprintf(yaml, sizeof yaml, "{sampling_percentage: 50, mode: %s, unlinked: drop}",
                       modes[i]);
        r = rig_new(&br_probabilistic_sampler_processor, yaml);
        (void)snprintf(expected, sizeof expected, "%s", profile(NULL, kept));
        assert_string_equal(rig_run(r, BR_PROFILES, profile(NULL, in)), expected);
        rig_free(r);
    }
}

static void unlinked_by_profile_id(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        bool closed, kept;
    } cases[] = {{HALF_ID, true, true},    {OTHER_ID, true, false},
                 {OTHER_ID, false, false}, {NULL, true, false},
                 {NULL, false, true},      {"00000000000000000000000000000000", true, false}};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char yaml[128];
        (void)snprintf(yaml, sizeof yaml,
                       "{sampling_percentage: 50, mode: proportional, unlinked: by_profile_id, "
                       "fail_closed: %s}",
                       cases[i].closed ? "true" : "false");
        struct rig *r = rig_new(&br_probabilistic_sampler_processor, yaml);
        (void)rig_run(r, BR_PROFILES, profile(cases[i].id, PLAIN("1")));
        assert_int_equal(r->n_out, cases[i].kept);
        rig_free(r);
    }
}

/* Sends spans of random traces, and samples that are linked to these spans. In every mode, the
 * spans and the samples of a trace get the same decision. */
static void traces_and_samples_get_the_same_decision(void **state)
{
    (void)state;
    static const char *const modes[] = {"hash_seed", "equalizing", "proportional"};
    uint64_t seed = 99;
    for (size_t m = 0; m < 3; m++) {
        char yaml[128];
        unsigned n_kept = 0;
        (void)snprintf(yaml, sizeof yaml, "{sampling_percentage: 30, mode: %s, hash_seed: %s}",
                       modes[m], m ? "0" : "22");
        struct rig *r = rig_new(&br_probabilistic_sampler_processor, yaml);
        for (int i = 0; i < 400; i++) {
            char id[33], text[1024];
            (void)snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)fake_random(&seed),
                           (unsigned long long)fake_random(&seed));
            unsigned before = r->n_out;
            (void)rig_run(r, BR_TRACES, span(id, ""));
            bool kept = r->n_out > before;
            (void)snprintf(text, sizeof text,
                           "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":"
                           "[{\"linkIndex\":1,\"values\":[\"1\"]}]}]}]}],\"dictionary\":{"
                           "\"linkTable\":[{},{\"traceId\":\"%s\",\"spanId\":"
                           "\"0000000000000001\"}]}}",
                           id);
            before = r->n_out;
            (void)rig_run(r, BR_PROFILES, text);
            assert_int_equal(r->n_out > before, kept);
            n_kept += kept;
        }
        /* of 400 draws at 30 %, 120 are expected; the standard deviation is 9.2, and the limits are
         * about five of them away */
        assert_in_range(n_kept, 75, 165);
        rig_free(r);
    }
}

static void configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{sampling_percentage: 15.3, mode: proportional}", ""},
        {"{sampling_percentage: 15.3, hash_seed: 22}", ""},
        {"{sampling_percentage: 0}", ""},
        {"{}",
         "warning: test.yaml:1:1: x: sampling_percentage is not set and defaults to 0: no trace is "
         "kept\n"},
        {"{sampling_percentage: .inf}",
         "test.yaml:1:23: x::sampling_percentage: must be a number, got \".inf\"\n"},
        {"{sampling_percentage: -15.3}",
         "test.yaml:1:23: x::sampling_percentage: must not be negative\n"},
        {"{sampling_percentage: .000000000000001}",
         "test.yaml:1:23: x::sampling_percentage: is too small; must be 0 or at least "
         "2^-56 of the traces\n"},
        {"{sampling_percentage: 15.3, sampling_precision: 0}",
         "test.yaml:1:49: x::sampling_precision: must be a whole number from 1 to 14, got \"0\"\n"},
        {"{sampling_percentage: 50, sampling_precision: 15}",
         "test.yaml:1:47: x::sampling_precision: must be a whole number from 1 to 14, got "
         "\"15\"\n"},
        {"{sampling_percentage: 50, mode: odd}",
         "test.yaml:1:33: x::mode: must be one of hash_seed, proportional, equalizing, got "
         "\"odd\"\n"},
        {"{sampling_percentage: 50, hash_seed: 4294967296}",
         "test.yaml:1:38: x::hash_seed: must be a whole number from 0 to 4294967295, got "
         "\"4294967296\"\n"},
        {"{sampling_percentage: 50, hash_seed: -1}",
         "test.yaml:1:38: x::hash_seed: must be a whole number from 0 to 4294967295, got \"-1\"\n"},
        {"{sampling_percentage: 50, attribute_source: record}",
         "warning: test.yaml:1:27: x::attribute_source: is read and has no effect: "
         "option of the Collector for logs\n"},
        {"{unlinked: maybe}",
         "test.yaml:1:12: x::unlinked: must be one of keep, by_profile_id, drop, got \"maybe\"\n"},
    };
    rig_expect_errors(&br_probabilistic_sampler_processor, cases, BR_COUNT(cases));
}

/* --- Memory ---------------------------------------------------------------------------------- */

static unsigned without_memory(enum br_signal signal, const char *in, const char *expected)
{
    return rig_run_short(&(struct rig_shortage){&br_probabilistic_sampler_processor,
                                                "{sampling_percentage: 50, mode: equalizing}",
                                                signal, in, .expected = expected});
}

static void no_memory(void **state)
{
    (void)state;
    char in[4096], out[4096];
    static const char priority[] =
        ",\"attributes\":[{\"key\":\"sampling.priority\",\"value\":{\"stringValue\":\"1\"}}]";
    (void)snprintf(in, sizeof in, "%s", span(HALF_ID, priority));
    char both[512];
    (void)snprintf(both, sizeof both, ",\"traceState\":\"ot=th:0\"");
    (void)snprintf(out, sizeof out,
                   "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"traceId\":\"" HALF_ID "\","
                   "\"spanId\":\"0000000000000001\"%s,\"name\":\"a\",\"kind\":2%s}]}]}]}",
                   both, priority);
    assert_in_range(without_memory(BR_TRACES, in, out), 2, 50);
    (void)snprintf(in, sizeof in, "%s", profile(NULL, LINKED("1", "1") "," LINKED("2", "2")));
    (void)snprintf(out, sizeof out, "%s", profile(NULL, LINKED("1", "1")));
    assert_in_range(without_memory(BR_PROFILES, in, out), 2, 50);
}

SUITE(sampler)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tracestates),
        cmocka_unit_test(tracestates_fit_the_buffer),
        cmocka_unit_test(hash_decisions),
        cmocka_unit_test(hash_bucket),
        cmocka_unit_test(hash_tracestate),
        cmocka_unit_test(consistent),
        cmocka_unit_test(hash_ignores_consistently_sampled_spans),
        cmocka_unit_test(missing_randomness),
        cmocka_unit_test(results_of_the_collector),
        cmocka_unit_test(rewritten_span),
        cmocka_unit_test(priorities),
        cmocka_unit_test(samples_of_traces),
        cmocka_unit_test(unlinked_by_profile_id),
        cmocka_unit_test(traces_and_samples_get_the_same_decision),
        cmocka_unit_test(configs),
        cmocka_unit_test(no_memory),
    };
    return RUN_VARIANTS(tests, rig_order);
}
