/* SPDX-License-Identifier: Apache-2.0 */
/* Tests uploads to the receiver pprof, and the errors in its config. */
#include "base/mem.h"
#include "receivers/pprof/pprof.h"
#include "tests/support/fault.h"
#include "tests/support/pprof_wire.h"
#include "tests/support/receiver_rig.h"
#include "tests/support/test.h"
#include "wire/compression.h"

extern const struct br_component br_pprof_receiver;

#define UPLOAD "/v1/profiles/upload"
#define FOLDED "main;work 3\n"
#define CPU .types = {{"samples", "count"}, {"cpu", "nanoseconds"}}, .n_types = 2

static int setup(void **state)
{
    struct receiver_rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    receiver_rig_start(r, &br_pprof_receiver, "http: {max_request_body_size: 4096}");
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    return receiver_rig_teardown(state);
}

/* Posts the body. Returns the HTTP status and copies the response body to `text`. */
static unsigned post(struct receiver_rig *r, const char *path, const void *body, size_t len,
                     char text[256])
{
    struct fake_request *q = fake_request_new(r->h, "pprof http", path);
    assert_non_null(q);
    fake_request_send(q, body, len);
    fake_host_iterate(r->h);
    const struct fake_reply *reply = fake_request_reply(q);
    assert_true(reply->came);
    unsigned status = reply->status;
    if (text)
        (void)snprintf(text, 256, "%.*s", (int)reply->body_len, reply->body);
    fake_request_free(q);
    return status;
}

static unsigned post_text(struct receiver_rig *r, const char *path, const char *body)
{
    return post(r, path, body, strlen(body), NULL);
}

/* --- Formats ---------------------------------------------------------------------------------- */

static void test_folded(void **state)
{
    struct receiver_rig *r = *state;
    assert_int_equal(post_text(r, UPLOAD "?name=shop&labels=env%3Dprod%2Cregion%3Deu", FOLDED),
                     200);
    receiver_rig_expect_in(r, "env=prod region=eu service.name=shop");
    receiver_rig_expect_in(r, "main;work 30000000\n");
    assert_true(fake_host_metric(
                    r->h, "otelcol_receiver_accepted_profile_samples",
                    "receiver=\"pprof\",sample_type=\"cpu:nanoseconds\",transport=\"http\"") == 1);
}

static void test_the_name_contains_the_type_and_labels(void **state)
{
    struct receiver_rig *r = *state;
    assert_int_equal(post_text(r,
                               UPLOAD "?name=shop.alloc_space%7Ba%3Db%7D&labels=c%3Dd"
                                      "&from=1767225600&until=1767225610",
                               FOLDED),
                     200);
    receiver_rig_expect_in(r, "a=b c=d service.name=shop");
    receiver_rig_expect_in(r, "profile alloc_space bytes");
    receiver_rig_expect_in(r, "time 1767225600000000000 duration 10000000000");
    receiver_rig_expect_in(r, "main;work 3\n");
}

static void test_until_without_from(void **state)
{
    struct receiver_rig *r = *state;
    assert_int_equal(post_text(r, UPLOAD "?name=shop&until=1767225610", FOLDED), 200);
    receiver_rig_expect_in(r, "time 1767225610000000000 duration 0");
    br_str_clear(&r->text);
    assert_int_equal(post_text(r, UPLOAD "?name=shop&format=perf&until=1767225610",
                               "shop 1/2 100.5: 10 cpu-clock: \n\tff work (shop)\n\n"
                               "shop 1/2 102.5: 10 cpu-clock: \n\tff work (shop)\n\n"),
                     200);
    receiver_rig_expect_in(r, "time 1767225608000000000 duration 2000000000");
}

static void test_labels_without_a_name(void **state)
{
    struct receiver_rig *r = *state;
    assert_int_equal(post_text(r, UPLOAD "?labels=a%3Db", FOLDED), 200);
    receiver_rig_expect_in(r, "resource a=b\n");
    br_str_clear(&r->text);
    assert_int_equal(post_text(r, UPLOAD, FOLDED), 200);
    receiver_rig_expect_in(r, "resource\n");
}

static void test_pprof(void **state)
{
    struct receiver_rig *r = *state;
    struct wire w = {0};
    pprof_wire_write(&w, &(struct pprof_wire){CPU, .samples = {{"work", {3, 30}, 0}}});
    assert_int_equal(post(r, UPLOAD "?name=shop.cpu", w.data, w.len, NULL), 200);
    /* the type at the end of the name is removed */
    receiver_rig_expect_in(r, "service.name=shop\n");
    receiver_rig_expect_in(r, "work 30\n");
    wire_free(&w);
}

static void test_gzip_by_its_magic(void **state)
{
    struct receiver_rig *r = *state;
    struct br_codec *codec = br_codec_new();
    struct br_rope rope = {0};
    struct br_buf *out;
    assert_int_equal(br_rope_add(&rope, NULL, FOLDED, strlen(FOLDED)), 0);
    assert_int_equal(br_compress(codec, BR_ENCODING_GZIP, 0, &rope, 0, r->h->host.pool, &out), 0);
    assert_int_equal(post(r, UPLOAD, out->data, out->len, NULL), 200);
    receiver_rig_expect_in(r, "main;work 30000000\n");
    br_buf_unref(out);
    br_rope_release(&rope);
    br_codec_free(codec);
}

static void test_format_and_rate_parameters(void **state)
{
    struct receiver_rig *r = *state;
    assert_int_equal(post_text(r, UPLOAD "?format=lines&sampleRate=1000", "a;b\na;b\n"), 200);
    receiver_rig_expect_in(r, "a;b 2000000\n");
}

static void test_a_profile_without_samples_is_accepted(void **state)
{
    struct receiver_rig *r = *state;
    assert_int_equal(post_text(r, UPLOAD, ""), 200);
    struct wire w = {0};
    pprof_wire_write(&w, &(struct pprof_wire){CPU});
    assert_int_equal(post(r, UPLOAD, w.data, w.len, NULL), 200);
    wire_free(&w);
}

/* --- Rejected uploads ------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    struct receiver_rig *r = *state;
    static const struct {
        const char *path, *body, *why;
        unsigned status;
    } cases[] = {
        {UPLOAD, "{\"a\": 1}", "not a speedscope file", 400},
        {UPLOAD, "\x01\x02", "unknown format: not pprof, JFR", 400},
        {UPLOAD "?format=pprof", "\xff\xff", "pprof: ", 400},
        {UPLOAD "?format=jfr", "nothing", "", 400},
        {UPLOAD "?format=svg", FOLDED, "format must be pprof, jfr,", 400},
        {UPLOAD "?sampleRate=0", FOLDED, "sampleRate must be", 400},
        {UPLOAD "?sampleRate=1e9", FOLDED, "sampleRate must be", 400},
        {UPLOAD "?sampleRate=nan", FOLDED, "sampleRate must be", 400},
        {UPLOAD, "\x1f\x8b\x08\x00 cut", "damaged or truncated", 400},
        {"/v1/profiles", FOLDED, "", 404},
    };
    char text[256];
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        assert_int_equal(post(r, cases[i].path, cases[i].body, strlen(cases[i].body), text),
                         cases[i].status);
        if (!strstr(text, cases[i].why))
            fail_msg("%s is not in %s", cases[i].why, text);
    }
    assert_int_equal(r->n, 0);
}

static void test_methods(void **state)
{
    struct receiver_rig *r = *state;
    struct fake_request *q = fake_request_new(r->h, "pprof http", UPLOAD);
    fake_request_method(q, "GET");
    fake_request_begin(q);
    assert_int_equal(fake_request_reply(q)->status, 405);
    fake_request_free(q);
}

static void test_encodings(void **state)
{
    struct receiver_rig *r = *state;
    struct fake_request *q = fake_request_new(r->h, "pprof http", UPLOAD);
    fake_request_header(q, "content-encoding", "br");
    fake_request_begin(q);
    assert_int_equal(fake_request_reply(q)->status, 415);
    fake_request_free(q);
}

/* A body that is small on the wire may be too large when decompressed. */
static void test_too_large(void **state)
{
    struct receiver_rig *r = *state;
    static char text[8192];
    memset(text, 'x', sizeof text - 3);
    memcpy(text + sizeof text - 3, " 1\n", 3);
    assert_int_equal(post(r, UPLOAD, text, sizeof text, NULL), 413);
    struct br_codec *codec = br_codec_new();
    struct br_rope rope = {0};
    struct br_buf *out;
    assert_int_equal(br_rope_add(&rope, NULL, text, sizeof text), 0);
    assert_int_equal(br_compress(codec, BR_ENCODING_GZIP, 0, &rope, 0, r->h->host.pool, &out), 0);
    assert_true(out->len < 4096);
    assert_int_equal(post(r, UPLOAD, out->data, out->len, NULL), 413);
    br_buf_unref(out);
    br_rope_release(&rope);
    br_codec_free(codec);
    assert_int_equal(r->n, 0);
}

static void test_outcomes_of_the_pipeline(void **state)
{
    struct receiver_rig *r = *state;
    char text[256];
    r->outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "full");
    assert_int_equal(post(r, UPLOAD, FOLDED, strlen(FOLDED), text), 503);
    assert_string_equal(text, "full\n");
    r->outcome = br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "no");
    assert_int_equal(post(r, UPLOAD, FOLDED, strlen(FOLDED), text), 400);
}

static void without_memory(void *arg)
{
    struct receiver_rig r;
    (void)arg;
    if (!receiver_rig_try(&r, &br_pprof_receiver, "http:")) {
        assert_true(fault_failed());
        return;
    }
    r.quiet = true;
    fault_start();
    unsigned status =
        post(&r, UPLOAD "?name=shop.cpu%7Ba%3Db%7D&labels=c%3Dd", FOLDED, strlen(FOLDED), NULL);
    fault_stop();
    assert_true(status == 200 || (status == 503 && fault_failed()));
    receiver_rig_drain(&r);
    assert_true(r.drained);
    receiver_rig_end(&r);
}

static void test_no_memory(void **state)
{
    (void)state;
    fault_each("an upload", without_memory, NULL);
}

/* --- The config ------------------------------------------------------------------------------- */

static void test_config(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *error; /* NULL: no error */
    } cases[] = {
        {"{}", "1:1: x: targets, file or http is required"},
        {"http:", NULL},
        {"targets: [{}]", "c:1:11: x::targets[0]::endpoint: is required"},
        {"targets: [{endpoint: ''}]", "c:1:22: x::targets[0]::endpoint: is required"},
        {"targets: [{endpoint: 'http://a:1'}, {endpoint: 'ftp://a'}]",
         "c:1:48: x::targets[1]::endpoint: \"ftp://a\" must be a URL that starts with http:// or "
         "https://"},
        {"targets: [{endpoint: 'http://a:1', labels: [a]}]",
         "1:44: x::targets[0]::labels: must be a map of strings"},
        {"targets: [{endpoint: 'http://a:1', labels: {a: [b]}}]",
         "1:44: x::targets[0]::labels: must be a map of strings"},
        {"{targets: [{endpoint: 'http://a:1'}], scrape_interval: 1s}",
         "1:56: x::scrape_interval: must be at least 2s if cpu or fgprof profiles are"},
        {"{targets: [{endpoint: 'http://a:1'}], scrape_interval: 1ms, profiles: {cpu: {enabled: "
         "false}}}",
         "1:56: x::scrape_interval: must be at least 100ms"},
        {"{targets: [{endpoint: 'http://a:1'}], scrape_timeout: 0}",
         "1:55: x::scrape_timeout: must be more than 0"},
        {"{targets: [{endpoint: 'http://a:1'}], profiles: {heap: {enabled: true, seconds: 15}}}",
         "1:81: x::profiles::heap::seconds: must be less than scrape_interval"},
        {"{targets: [{endpoint: 'http://a:1'}], profiles: {cpu: {path: debug}}}",
         "1:62: x::profiles::cpu::path: must start with a slash"},
        {"{http: , profiles: {custom: [{path: /p}]}}",
         "x::profiles::custom[0]::name: must consist of letters"},
        {"{http: , profiles: {custom: [{name: a b, path: /p}]}}",
         "x::profiles::custom[0]::name: must consist of letters"},
        {"{http: , profiles: {custom: [{name: heap, path: /p}]}}",
         "x::profiles::custom[0]::name: must consist of letters"},
        {"{http: , profiles: {custom: [{name: a, path: /p}, {name: a, path: /q}]}}",
         "x::profiles::custom[1]::name: must consist of letters"},
        {"{http: , profiles: {custom: [{name: a, path: p}]}}",
         "x::profiles::custom[0]::path: must start with a slash"},
        {"{http: , profiles: {custom: [{name: a}]}}",
         "x::profiles::custom[0]::path: must start with a slash"},
        {"{http: , profiles: {custom: [{name: a, path: /p, seconds: 15}]}}",
         "x::profiles::custom[0]::seconds: must be less than scrape_interval"},
        {"{http: , profiles: {custom: [{name: a1, path: /p}, {name: b_, path: /q}]}}", NULL},
        {"{http: , basic_auth: {username: a}, bearer_token: b}",
         "1:22: x::basic_auth: cannot be combined with bearer_token"},
        {"{http: , basic_auth: {password: a}}", "1:22: x::basic_auth::username: is required"},
        {"{http: , basic_auth: {username: 'a:b'}}",
         "1:33: x::basic_auth::username: must not contain a colon"},
        {"{http: , bearer_token: \"a\\nb\"}",
         "1:24: x::bearer_token: contains a character that is not allowed in a header"},
        {"file:", "1:6: x::file::path: is required"},
        {"file: {path: a, poll_interval: 1ms}",
         "1:32: x::file::poll_interval: must be at least 10ms"},
        {"file: {path: a, after: move}", "1:7: x::file::move_to: is required with after: move"},
        {"file: {path: a, after: move, move_to: a}",
         "1:39: x::file::move_to: must be a directory other than path"},
        {"file: {path: a, labels: [b]}", "1:25: x::file::labels: must be a map of strings"},
        {"http: {endpoint: nowhere}", "1:18: x::http::endpoint: must be host:port"},
    };
    const struct br_component *c = &br_pprof_receiver;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_errs errs = {0};
        struct br_arena arena = {0};
        struct br_yaml *tree;
        char text[1024] = "";
        const char *yaml = cases[i].yaml;
        void *config = calloc(1, c->config_size);
        assert_int_equal(br_yaml_parse(yaml, strlen(yaml), "c", &arena, &tree, &errs), 0);
        assert_int_equal(br_options_read(c->options, tree, "x", config, &arena, &errs), 0);
        int rc = c->check(config, tree, "x", &arena, &errs);
        if (errs.n_errors)
            (void)br_err_format(&errs.errors[0], text, sizeof text);
        if (cases[i].error ? !strstr(text, cases[i].error) || rc != BR_EINVAL : rc != 0)
            fail_msg("%s: %s", yaml, text);
        br_errs_release(&errs);
        br_arena_release(&arena);
        free(config);
    }
}

/* Checks which kinds of profiles are scraped, and the warnings about them. */
static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        /* `kinds` has a digit for each value of enum pprof_kind: 1 if the kind is enabled */
        const char *profiles, *kinds;
        const char *warning; /* NULL: no warning */
    } cases[] = {
        {"{}", "10111100000", NULL},
        {"{heap: {enabled: true}, allocs: {enabled: false}}", "11011100000", NULL},
        {"{heap: {enabled: true}}", "11111100000",
         "1:49: x::profiles::allocs: contains the same values as heap, which is also enabled"},
        {"{godeltaprof_mutex: {enabled: true}}", "10111100100",
         "1:49: x::profiles::godeltaprof_mutex: contains the same values as mutex"},
        {"{godeltaprof_block: {enabled: true}, block: {enabled: false}}", "10110101000", NULL},
        {"{threadcreate: {}, fgprof: {}}", "10111100011", NULL},
        {"{godeltaprof: {enabled: true}}", "10010011100", NULL},
        {"{godeltaprof: {enabled: true}, heap: {enabled: true}}", "10010011100", NULL},
    };
    const struct br_component *c = &br_pprof_receiver;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_errs errs = {0};
        struct br_arena arena = {0};
        struct br_yaml *tree;
        char yaml[256], text[1024] = "", kinds[PPROF_CUSTOM + 1] = "";
        struct pprof_config *config = calloc(1, c->config_size);
        (void)snprintf(yaml, sizeof yaml, "{targets: [{endpoint: 'http://a:1'}], profiles: %s}",
                       cases[i].profiles);
        assert_int_equal(br_yaml_parse(yaml, strlen(yaml), "c", &arena, &tree, &errs), 0);
        assert_int_equal(br_options_read(c->options, tree, "x", config, &arena, &errs), 0);
        assert_int_equal(c->check(config, tree, "x", &arena, &errs), 0);
        for (int k = 0; k < PPROF_CUSTOM; k++)
            kinds[k] = pprof_profile_config(config, (enum pprof_kind)k)->enabled ? '1' : '0';
        assert_string_equal(kinds, cases[i].kinds);
        assert_int_equal(errs.n_warnings, cases[i].warning != NULL);
        if (errs.n_warnings)
            (void)br_err_format(&errs.warnings[0], text, sizeof text);
        if (cases[i].warning && !strstr(text, cases[i].warning))
            fail_msg("%s: %s", yaml, text);
        br_errs_release(&errs);
        br_arena_release(&arena);
        free(config);
    }
}

SUITE(pprof_upload)
{
    const struct CMUnitTest tests[] = {
        TEST(test_folded),
        TEST(test_the_name_contains_the_type_and_labels),
        TEST(test_until_without_from),
        TEST(test_labels_without_a_name),
        TEST(test_pprof),
        TEST(test_gzip_by_its_magic),
        TEST(test_format_and_rate_parameters),
        TEST(test_a_profile_without_samples_is_accepted),
        TEST(test_refused),
        TEST(test_methods),
        TEST(test_encodings),
        TEST(test_too_large),
        TEST(test_outcomes_of_the_pipeline),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_kinds),
    };
    return RUN(tests, NULL, NULL);
}
