/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiver pyroscope: /ingest. Expected responses are from Pyroscope's source
 * (pkg/ingester/pyroscope), names and labels from pkg/og/convert.
 */
#include "base/mem.h"
#include "tests/support/pyroscope_rig.h"
#include "tests/support/test.h"

static void test_ingest_pprof(void **state)
{
    struct fixture *f = *state;
    pyroscope_put_pprof(&f->body, "cpu", "nanoseconds");
    struct ask a = {
        .path = "/ingest?name=shop.api%7Benv%3Dprod%2Cotel.scope.name%3Dx%7D&from=1767225600"
                "&until=1767225610&format=pprof&spyName=nodespy&sampleRate=97",
        .type = "application/octet-stream"};
    assert_int_equal(pyroscope_ask_wire(f, a, &f->body), 200);
    assert_int_equal(pyroscope_last.body_len, 0);
    assert_int_equal(f->n, 1);
    /* the suffix of the name is not the name of a type, so it is kept */
    pyroscope_expect_attribute(f, "service.name", "shop.api");
    pyroscope_expect_attribute(f, "env", "prod");
    pyroscope_expect_attribute(f, "otel.scope.name", "x");
    pyroscope_expect_attribute(f, "pyroscope_spy", "nodespy");
    pyroscope_expect_attribute(f, "__delta__", "false");
    pyroscope_expect_attribute(f, "pyroscope.name", "process_cpu");
    pyroscope_expect_out(f, "\"values\":[\"10000000\"]");
    pyroscope_expect_out(f, "\"timeUnixNano\":\"1767225601000000000\"");
    pyroscope_expect_out(f, "\"worker-1\"");
    assert_float_equal(fake_host_metric(f->h, "otelcol_receiver_accepted_profile_samples",
                                        "receiver=\"pyroscope\",sample_type=\"cpu:nanoseconds\","
                                        "transport=\"http\""),
                       1, 0);
}

/* A gzip body is recognized by its magic bytes, with and without the header Content-Encoding. If
 * the body is not gzip, the header has no effect. */
static void test_ingest_gzip(void **state)
{
    struct fixture *f = *state;
    static const struct {
        unsigned layers;
        const char *encoding;
    } cases[] = {{0, NULL},   {0, "gzip"}, {1, NULL},  {1, "gzip"},
                 {2, "gzip"}, {2, NULL},   {3, "gzip"}};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        wire_clear(&f->body);
        pyroscope_put_pprof(&f->body, "cpu", "nanoseconds");
        for (unsigned k = 0; k < cases[i].layers; k++)
            pyroscope_gzip(f, &f->body);
        br_str_clear(&f->json);
        assert_int_equal(
            pyroscope_ask_wire(f, (struct ask){.path = PPROF, .encoding = cases[i].encoding},
                               &f->body),
            200);
        pyroscope_expect_out(f, "\"values\":[\"10000000\"]");
    }
    wire_clear(&f->body);
    wire_raw(&f->body, "main;work 3\n", 12);
    pyroscope_gzip(f, &f->body);
    assert_int_equal(
        pyroscope_ask_wire(f, (struct ask){.path = INGEST, .encoding = "gzip"}, &f->body), 200);
    /* the count 3 at 100 Hz, in nanoseconds */
    pyroscope_expect_out(f, "\"values\":[\"30000000\"]");
    f->body.data[f->body.len - 5] ^= 1; /* damages the checksum */
    assert_int_equal(
        pyroscope_ask_wire(f, (struct ask){.path = INGEST, .encoding = "gzip"}, &f->body), 422);
    assert_int_equal(
        pyroscope_ask_wire(f, (struct ask){.path = INGEST, .encoding = "zstd"}, &f->body), 422);
    assert_int_equal(
        pyroscope_ask_wire(f, (struct ask){.path = INGEST, .encoding = "snail"}, &f->body), 415);
}

static void test_ingest_form(void **state)
{
    struct fixture *f = *state;
    static const char config[] =
        "{\"contentions\":{\"units\":\"lock_samples\",\"Display-Name\":\"block_count\","
        "\"aggregation\":null,\"cumulative\":false,\"unknown\":[1]},\"other\":null}";
    struct wire pprof = {0}, json = {0};
    pyroscope_put_pprof(&pprof, "contentions", "count");
    pyroscope_gzip(f, &pprof);
    wire_raw(&json, config, sizeof config - 1);
    pyroscope_put_field(&f->body, "profile", &pprof);
    pyroscope_put_field(&f->body, "sample_type_config", &json);
    wire_raw(&f->body, "--x--\r\n", 7);
    assert_int_equal(pyroscope_ask_wire(f, (struct ask){.path = INGEST, .type = FORM}, &f->body),
                     200);
    pyroscope_expect_attribute(f, "pyroscope.name", "block");
    assert_int_equal(pyroscope_ask_wire(f, (struct ask){.path = PPROF, .type = FORM}, &f->body),
                     200);
    pyroscope_expect_attribute(f, "pyroscope.name", "block");
    /* the upload does not contain a config, so Pyroscope's mapping applies, in which contentions
     * belong to a mutex */
    wire_clear(&f->body);
    pyroscope_put_field(&f->body, "profile", &pprof);
    wire_raw(&f->body, "--x--\r\n", 7);
    assert_int_equal(pyroscope_ask_wire(f, (struct ask){.path = INGEST, .type = FORM}, &f->body),
                     200);
    pyroscope_expect_attribute(f, "pyroscope.name", "mutex");
    wire_free(&pprof);
    wire_free(&json);
}

static void test_ingest_bad_forms(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *query, *body, *why;
    } cases[] = {
        {INGEST, "--x--", "no field \\\"profile\\\""},
        {INGEST, "no form", "contains no form"},
        {INGEST, "--x\r\nContent-Disposition: form-data; name=profile\r\n\r\n1", "truncated"},
        {INGEST, "--x\r\nContent-Disposition: form-data; name=prev_profile\r\n\r\n1\r\n--x--",
         "unsupported client version"},
        {INGEST "&format=jfr", "--x--", "no field \\\"jfr\\\""},
        {INGEST "&format=jfr", "--x\r\nContent-Disposition: form-data; name=jfr\r\n\r\n\r\n--x--",
         "no field \\\"jfr\\\""},
        {INGEST, "--x\r\nContent-Disposition: form-data; name=profile\r\n\r\n\x1f\x8b\r\n--x--",
         "field profile: "},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = cases[i].query, .type = FORM},
                                            cases[i].body),
                         422);
        assert_non_null(strstr(pyroscope_last.body, cases[i].why));
        assert_non_null(strstr(pyroscope_last.body, "{\"code\":\"unknown\",\"message\":\""));
        assert_string_equal(pyroscope_last.type, "application/json");
    }
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = INGEST, .type = "multipart/form-data"}, "x"),
        422);
    assert_int_equal(f->n, 0);
    assert_float_equal(fake_host_metric(f->h, "otelcol_receiver_failed_profile_samples",
                                        "receiver=\"pyroscope\",transport=\"http\""),
                       (double)BR_COUNT(cases) + 1, 0);
}

static void test_sample_type_config(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *config;
        unsigned status;
    } cases[] = {
        {"{}", 200},
        {"null", 200},
        {"{\"a\":{}}", 200},
        {"{\"a\":null}", 200},
        {"{\"a\":{\"sampled\":true,\"cumulative\":null,\"units\":\"x\"}}", 200},
        {"[]", 422},
        {"{", 422},
        {"{\"a\":1}", 422},
        {"{\"a\":{\"units\":1}}", 422},
        {"{\"a\":{\"sampled\":\"yes\"}}", 422},
        {"{\"a\\u0000b\":{}}", 422},
    };
    struct wire pprof = {0};
    pyroscope_put_pprof(&pprof, "cpu", "nanoseconds");
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct wire json = {0};
        wire_raw(&json, cases[i].config, strlen(cases[i].config));
        wire_clear(&f->body);
        pyroscope_put_field(&f->body, "profile", &pprof);
        pyroscope_put_field(&f->body, "sample_type_config", &json);
        wire_raw(&f->body, "--x--\r\n", 7);
        assert_int_equal(
            pyroscope_ask_wire(f, (struct ask){.path = INGEST, .type = FORM}, &f->body),
            cases[i].status);
        wire_free(&json);
    }
    wire_free(&pprof);
}

/* Tests all ways in which a request can name the format of its body. */
static void test_ingest_formats(void **state)
{
    struct fixture *f = *state;
    static const char speedscope[] =
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
        "\"shared\":{\"frames\":[{\"name\":\"main\"}]},\"profiles\":[{\"type\":\"sampled\","
        "\"name\":\"p\",\"unit\":\"nanoseconds\",\"startValue\":0,\"endValue\":5,"
        "\"samples\":[[0]],\"weights\":[5]}]}";
    /* a trie in the format of Pyroscope's transporttrie: name, value, children */
    static const char trie[] = "\x00\x00\x01\x04main\x07\x00";
    static const struct {
        const char *query, *type, *body;
        size_t len;
        const char *value;
    } cases[] = {
        {"", NULL, "main;work 3\n", 0, "\"values\":[\"30000000\"]"},
        {"&format=groups", NULL, "main;work 3\n", 0, "\"values\":[\"30000000\"]"},
        {"&format=folded", NULL, "main;work 3\n", 0, "\"values\":[\"30000000\"]"},
        {"&format=whatever", "text/plain", "main;work 3\n", 0, "\"values\":[\"30000000\"]"},
        {"&sampleRate=50", NULL, "main;work 3\n", 0, "\"values\":[\"60000000\"]"},
        {"&sampleRate=bad", NULL, "main;work 3\n", 0, "\"values\":[\"30000000\"]"},
        {"&sampleRate=-5", NULL, "main;work 3\n", 0, "\"values\":[\"30000000\"]"},
        {"&sampleRate=0", NULL, "main;work 3\n", 0, "\"values\":[\"3\"]"},
        {"&format=lines", NULL, "main;work\nmain;work\n", 0, "\"values\":[\"20000000\"]"},
        {"&format=trie", NULL, trie, sizeof trie - 1, "\"values\":[\"70000000\"]"},
        {"", "binary/octet-stream+trie", trie, sizeof trie - 1, "\"values\":[\"70000000\"]"},
        {"&format=speedscope", NULL, speedscope, 0, "\"values\":[\"5\"]"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s%s", INGEST, cases[i].query);
        br_str_clear(&f->json);
        unsigned status =
            pyroscope_ask(f, (struct ask){.path = path, .type = cases[i].type}, cases[i].body,
                          cases[i].len ? cases[i].len : strlen(cases[i].body));
        if (status != 200)
            print_error("%s: %u %s\n", cases[i].query, status, pyroscope_last.body);
        assert_int_equal(status, 200);
        pyroscope_expect_out(f, cases[i].value);
        pyroscope_expect_attribute(f, "pyroscope.name", "process_cpu");
    }
    static const char empty[] = "";
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = PPROF}, empty), 200);
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = INGEST}, empty), 200);
}

/* The suffix of the name may be the type. A name may also have the label service_name, which
 * replaces the name of the service. */
static void test_ingest_names(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(
        pyroscope_ask_text(
            f, (struct ask){.path = "/pyroscope/ingest?name=shop.alloc_space&from=now-1h"},
            "main 5\n"),
        200);
    pyroscope_expect_attribute(f, "service.name", "shop");
    pyroscope_expect_attribute(f, "pyroscope.name", "memory");
    pyroscope_expect_attribute(f, "pyroscope_spy", "unknown");
    pyroscope_expect_out(f, "\"values\":[\"5\"]");
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = "/ingest?name=old%7Bservice_name%3Dnew%7D"},
                           "main 5\n"),
        200);
    pyroscope_expect_attribute(f, "service.name", "new");
    pyroscope_expect_attribute(f, "app_name", "old");
    wire_clear(&f->body);
    pyroscope_put_pprof(&f->body, "cpu", "nanoseconds");
    assert_int_equal(
        pyroscope_ask_wire(
            f, (struct ask){.path = "/ingest?format=pprof&name=old%7Bservice_name%3Dnew%7D"},
            &f->body),
        200);
    pyroscope_expect_attribute(f, "service.name", "new");
    pyroscope_expect_no_key(f, "app_name");
}

static void test_ingest_bad_names(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = "/ingest"}, "main 5\n"), 400);
    assert_string_equal(pyroscope_last.body, "{\"code\":\"invalid_argument\","
                                             "\"message\":\"name: service name is required\"}");
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = "/ingest?name=%7Ba%3Db%7D"}, "main 5\n"), 400);
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = "/ingest?name=my.weird.app"}, "main 5\n"), 400);
    assert_non_null(strstr(pyroscope_last.body, "unknown profile type: app"));
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = PPROF}, "main 5\n"), 422);
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = INGEST "&format=jfr"}, "main 5\n"),
                     422);
    assert_int_equal(f->n, 0);
}

SUITE(pyroscope_ingest)
{
    const struct CMUnitTest tests[] = {
        PYROSCOPE_TEST(test_ingest_pprof),       PYROSCOPE_TEST(test_ingest_gzip),
        PYROSCOPE_TEST(test_ingest_form),        PYROSCOPE_TEST(test_ingest_bad_forms),
        PYROSCOPE_TEST(test_sample_type_config), PYROSCOPE_TEST(test_ingest_formats),
        PYROSCOPE_TEST(test_ingest_names),       PYROSCOPE_TEST(test_ingest_bad_names),
    };
    int rc = RUN(tests, NULL, NULL);
    free(pyroscope_last.body);
    return rc;
}
