/* SPDX-License-Identifier: Apache-2.0 */
/* The control extension on a fake host, with an overridable that records its overrides. */
#include "app/config.h"
#include "base/mem.h"
#include "pipeline/override.h"
#include "tests/support/fault.h"
#include "tests/support/node_rig.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_control_extension;

#define TOKEN "0123456789abcdef"
#define CONFIG "token: " TOKEN
#define PATH "/v1/profiling"
#define NODE "extension=\"control\""

/* An overridable that accepts overrides for the service "checkout", or for all services if
 * `all`. */
struct recorder {
    struct br_overridable overridable;
    int answer; /* result of apply; an error if negative */
    bool all;
    uint64_t id, until_ms, interval_ms, slow_ns;
    double percentage;
    bool keep;
    char service[64], target[64], types[128];
    unsigned n_applied, n_withdrawn, n_rows;
};

struct fixture {
    struct node_rig rig;
    struct recorder t;
};

static int apply(struct br_overridable *overridable, const struct br_override *override,
                 struct br_err *err)
{
    struct recorder *t = br_container_of(overridable, struct recorder, overridable);
    size_t at = 0;
    if (!t->all && strcmp(override->service, "checkout") != 0)
        return 0;
    if (t->answer < 0)
        return br_err_set(err, t->answer, "it is full");
    if (t->answer == 0)
        return 0;
    t->id = override->id;
    t->until_ms = override->until_ms;
    t->interval_ms = override->interval_ms;
    t->keep = override->keep;
    t->percentage = override->sampling_percentage;
    t->slow_ns = override->slow_threshold_ns;
    (void)snprintf(t->service, sizeof t->service, "%s", override->service);
    (void)snprintf(t->target, sizeof t->target, "%s", override->target ? override->target : "-");
    t->types[0] = '\0';
    for (size_t i = 0; i < override->n_types; i++)
        at += (size_t)snprintf(t->types + at, sizeof t->types - at, "%s ", override->types[i]);
    t->n_applied++;
    return t->answer;
}

static void withdraw(struct br_overridable *overridable, uint64_t id)
{
    struct recorder *t = br_container_of(overridable, struct recorder, overridable);
    t->n_withdrawn += id == t->id;
    if (id == t->id)
        t->id = 0;
}

static void list(const struct br_overridable *overridable, br_collected_fn *fn, void *arg)
{
    const struct recorder *t = br_container_of(overridable, struct recorder, overridable);
    char target[64];
    for (unsigned i = 0; i < t->n_rows; i++) {
        (void)snprintf(target, sizeof target, "http://%u", i);
        fn(&(struct br_collected){.component = "pprof/a\"b",
                                  .service = "checkout",
                                  .target = target,
                                  .type = "cpu",
                                  .interval_ms = 1500,
                                  .state = "ok",
                                  .override = i ? 0 : t->id,
                                  .until_ms = t->until_ms},
           arg);
    }
}

static const struct br_overridable_ops ops = {apply, withdraw, list};

static void begin(struct fixture *f, const char *yaml)
{
    *f = (struct fixture){.t = {.overridable.ops = &ops, .answer = 1}};
    node_rig_begin(&f->rig, &br_control_extension, yaml);
    br_overridable_register(&f->t.overridable, &f->rig.h->host);
}

static void start(struct fixture *f, const char *yaml)
{
    begin(f, yaml);
    rig_node_start(&f->rig.node);
}

static void release(struct fixture *f)
{
    f->rig.node.component->destroy(&f->rig.node);
    br_overridable_unregister(&f->t.overridable);
    br_free(f->rig.node.state);
    br_arena_release(&f->rig.arena);
    fake_host_free(f->rig.h);
}

static void end(struct fixture *f)
{
    node_rig_drain(&f->rig);
    release(f);
}

/* Sends a request with the token. Its answer may still be outstanding. */
static struct fake_request *send_request(struct fixture *f, const char *method, const char *path,
                                         const char *json)
{
    struct fake_request *r = fake_request_new(f->rig.h, "control", path);
    fake_request_method(r, method);
    fake_request_header(r, "authorization", "Bearer " TOKEN);
    if (json)
        fake_request_header(r, "content-type", "application/json; charset=utf-8");
    fake_request_send(r, json, json ? strlen(json) : 0);
    return r;
}

/* Sends a request with the token, and checks the status and a part of the body of its answer. */
static void expect_answer(struct fixture *f, const char *method, const char *path, const char *json,
                          unsigned status, const char *piece)
{
    struct fake_request *r = send_request(f, method, path, json);
    fake_host_iterate(f->rig.h);
    const struct fake_reply *reply = fake_request_reply(r);
    assert_true(reply->came);
    if (reply->status != status || !strstr(reply->body, piece))
        fail_msg("%s %s %s\ngave %u %s\nnot  %u %s", method, path, json ? json : "", reply->status,
                 reply->body, status, piece);
    assert_string_equal(reply->type, "application/json");
    assert_non_null(strstr(reply->headers, "cache-control: no-store\n"));
    fake_request_free(r);
}

/* --- Authentication --------------------------------------------------------------------------- */

static void the_token_is_required(void **state)
{
    static const struct {
        const char *value;
        bool right;
    } values[] = {
        {NULL, false},
        {"", false},
        {"Bearer", false},
        {"Bearer ", false},
        {"Basic " TOKEN, false},
        {TOKEN, false},
        {"Bearer 0123456789abcde", false},
        {"Bearer 0123456789abcdeF", false},
        {"Bearer 1123456789abcdef", false},
        {"Bearer " TOKEN "0", false},
        /* a comparison that repeats the token would accept this value */
        {"Bearer " TOKEN TOKEN, false},
        {"Bearer " TOKEN " ", false},
        {"Bearer " TOKEN, true},
        {"bearer " TOKEN, true}, /* RFC 9110 section 11.1: the scheme is case-insensitive */
        {"BEARER   " TOKEN, true},
    };
    struct fixture f;
    double refused = 0;
    (void)state;
    start(&f, CONFIG);
    for (size_t i = 0; i < BR_COUNT(values); i++) {
        struct fake_request *r = fake_request_new(f.rig.h, "control", i % 2 ? PATH : "/elsewhere");
        fake_request_method(r, "GET");
        if (values[i].value)
            fake_request_header(r, "authorization", values[i].value);
        fake_request_send(r, NULL, 0);
        fake_host_iterate(f.rig.h);
        const struct fake_reply *reply = fake_request_reply(r);
        assert_true(reply->came);
        if (values[i].right != (reply->status != 401))
            fail_msg("%s gave %u", values[i].value ? values[i].value : "nothing", reply->status);
        if (!values[i].right) {
            assert_non_null(strstr(reply->headers, "www-authenticate: Bearer\n"));
            assert_null(strstr(reply->body, TOKEN));
            refused++;
        }
        fake_request_free(r);
        fake_host_advance(f.rig.h, 1000);
    }
    assert_true(fake_host_metric(f.rig.h, "braid_control_unauthorized", NODE) == refused);
    assert_true(fake_host_metric(f.rig.h, "braid_control_throttled", NODE) == 0);
    end(&f);
}

static unsigned status_with(struct fixture *f, const char *authorization)
{
    struct fake_request *r = fake_request_new(f->rig.h, "control", PATH);
    fake_request_method(r, "GET");
    fake_request_header(r, "authorization", authorization);
    fake_request_send(r, NULL, 0);
    fake_host_iterate(f->rig.h);
    const struct fake_reply *reply = fake_request_reply(r);
    assert_true(reply->came);
    unsigned status = reply->status;
    assert_int_equal(status == 429, strstr(reply->headers, "retry-after: 1\n") != NULL);
    fake_request_free(r);
    return status;
}

/* Ten failures are allowed at once, and then one failure per second. Requests with the right token
 * are not limited. */
static void failed_authentications_are_limited(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 30; i++) {
            assert_int_equal(status_with(&f, "Bearer wrong"), i < 10 ? 401 : 429);
            assert_int_equal(status_with(&f, "Bearer " TOKEN), 200);
        }
        for (int i = 0; i < 5; i++) {
            fake_host_advance(f.rig.h, 999);
            assert_int_equal(status_with(&f, "Bearer wrong"), 429);
            fake_host_advance(f.rig.h, 1);
            assert_int_equal(status_with(&f, "Bearer wrong"), 401);
            assert_int_equal(status_with(&f, "Bearer wrong"), 429);
        }
        fake_host_advance(f.rig.h, 3600000);
    }
    assert_true(fake_host_metric(f.rig.h, "braid_control_unauthorized", NODE) == 90);
    assert_true(fake_host_metric(f.rig.h, "braid_control_throttled", NODE) == 60);
    end(&f);
}

static void foreign_hosts_are_rejected(void **state)
{
    static const char *const hosts[] = {"evil.example:13134", "localhost:13134", "braid.example"};
    struct fixture f;
    (void)state;
    start(&f, CONFIG "\nallowed_hosts: [braid.example]");
    for (size_t i = 0; i < BR_COUNT(hosts); i++) {
        struct fake_request *r = fake_request_new(f.rig.h, "control", PATH);
        fake_request_method(r, "GET");
        fake_request_host(r, hosts[i]);
        fake_request_header(r, "authorization", "Bearer " TOKEN);
        fake_request_send(r, NULL, 0);
        fake_host_iterate(f.rig.h);
        assert_int_equal(fake_request_reply(r)->status, i ? 200 : 403);
        assert_true(i || strstr(fake_request_reply(r)->body, "add the name to allowed_hosts"));
        fake_request_free(r);
    }
    end(&f);
}

static void paths_and_methods(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    expect_answer(&f, "GET", "/", NULL, 404, "the API is at /v1/profiling");
    expect_answer(&f, "GET", "/v1/profilings", NULL, 404, "the API is at");
    expect_answer(&f, "GET", "/v1/profiling/", NULL, 404, "the API is at");
    expect_answer(&f, "GET", "/v1/profiling/1", NULL, 404, "the API is at");
    expect_answer(&f, "GET", "/v1/profiling/0000000000000000", NULL, 404, "the API is at");
    expect_answer(&f, "GET", "/v1/profiling/00000000000000001", NULL, 404, "the API is at");
    expect_answer(&f, "GET", "/v1/profiling/000000000000000x", NULL, 404, "the API is at");
    expect_answer(&f, "GET", "/v1/profiling/0000000000000001", NULL, 404,
                  "no override has this id");
    expect_answer(&f, "DELETE", "/v1/profiling/0000000000000001", NULL, 404,
                  "no override has this id");
    expect_answer(&f, "PUT", PATH, "{}", 405, "does not support the method");
    expect_answer(&f, "POST", "/v1/profiling/0000000000000001", "{}", 405,
                  "does not support the method");
    expect_answer(&f, "POST", PATH, NULL, 415, "application/json");
    end(&f);
}

static void bodies_have_a_maximum(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    for (int i = 0; i < 2; i++) {
        struct fake_request *r = fake_request_new(f.rig.h, "control", PATH);
        fake_request_header(r, "authorization", "Bearer " TOKEN);
        fake_request_header(r, "content-type", "application/json");
        fake_request_begin(r);
        fake_request_fail(r, i ? BR_BODY_TOO_BIG : BR_BODY_NO_MEMORY);
        assert_int_equal(fake_request_reply(r)->status, i ? 413 : 503);
        assert_true(!i || strstr(fake_request_reply(r)->body, "8192 bytes"));
        fake_request_free(r);
    }
    end(&f);
}

/* A filter that cannot be parsed must not match everything. */
static void wrong_queries(void **state)
{
    static const struct {
        const char *method, *path, *field, *message;
    } queries[] = {
        {"DELETE", PATH "?service=%zz", "service",
         "has a % that two hexadecimal digits do not follow"},
        {"DELETE", PATH "?service=%4", "service",
         "has a % that two hexadecimal digits do not follow"},
        {"DELETE", PATH "?service=checkout%", "service",
         "has a % that two hexadecimal digits do not follow"},
        {"DELETE", PATH "?service=", "service", "must not be empty"},
        {"DELETE", PATH "?service", "service", "must not be empty"},
        {"DELETE", PATH "?service=a%00b", "service", "control characters"},
        {"DELETE", PATH "?service=a%0ab", "service", "control characters"},
        {"DELETE", PATH "?service=a%7f", "service", "control characters"},
        {"DELETE", PATH "?service=%ff", "service", "must be UTF-8"},
        {"DELETE", PATH "?service=a&service=b", "service", "occurs more than once"},
        {"DELETE", PATH "?service=a&%73ervice=a", "service", "occurs more than once"},
        {"DELETE", PATH "?sevice=a", NULL, "unknown query parameter \\\"sevice\\\""},
        {"DELETE", PATH "?Service=a", NULL, "unknown query parameter"},
        {"DELETE", PATH "?service=a&x=1", NULL, "unknown query parameter \\\"x\\\""},
        {"DELETE", PATH "?service=a&", NULL, "unknown query parameter \\\"\\\""},
        {"DELETE", PATH "?&service=a", NULL, "unknown query parameter"},
        {"DELETE", PATH "?=a", NULL, "unknown query parameter"},
        {"DELETE", PATH "?%zz=a", NULL, "unknown query parameter"},
        {"DELETE", PATH "/0000000000000001?service=a", NULL, "unknown query parameter"},
        {"GET", PATH "?service=a", NULL, "unknown query parameter \\\"service\\\""},
        {"GET", PATH "/0000000000000001?x", NULL, "unknown query parameter"},
        {"POST", PATH "?service=a", NULL, "unknown query parameter"},
    };
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    expect_answer(&f, "POST", PATH, "{\"service\":\"checkout\",\"duration\":\"1m\"}", 201,
                  "\"id\"");
    for (size_t i = 0; i < BR_COUNT(queries); i++) {
        char field[64] = "{\"error\":{\"status\":400,\"message\":";
        const char *body = strcmp(queries[i].method, "POST") == 0 ? "{}" : NULL;
        if (queries[i].field)
            (void)snprintf(field, sizeof field, "{\"error\":{\"status\":400,\"field\":\"%s\",",
                           queries[i].field);
        expect_answer(&f, queries[i].method, queries[i].path, body, 400, field);
        expect_answer(&f, queries[i].method, queries[i].path, body, 400, queries[i].message);
    }
    assert_int_equal(f.t.n_withdrawn, 0);
    expect_answer(&f, "DELETE", PATH "?service=another", NULL, 200, "{\"ended\":0}");
    expect_answer(&f, "GET", PATH "?", NULL, 200, "\"service\":\"checkout\"");
    expect_answer(&f, "DELETE", PATH "?%73ervice=check%6fut", NULL, 200, "{\"ended\":1}");
    assert_int_equal(f.t.n_withdrawn, 1);
    end(&f);
}

/* --- Bodies ----------------------------------------------------------------------------------- */

static void wrong_overrides(void **state)
{
    static const struct {
        const char *json, *field, *message;
    } bodies[] = {
        {"", NULL, "the body must be a JSON object"},
        {"{", NULL, "not JSON"},
        {"[]", NULL, "must be a JSON object"},
        {"null", NULL, "must be a JSON object"},
        {"{\"a\":[[[1]]]}", NULL, "nests deeper than 3"},
        {"{}", "service", "is missing"},
        {"{\"service\":\"a\"}", "duration", "is missing: every override ends"},
        {"{\"service\":\"a\",\"duration\":\"1m\",\"sevice\":1}", NULL,
         "unknown field \\\"sevice\\\"; did you mean \\\"service\\\"?"},
        {"{\"service\":\"a\",\"duration\":\"1m\",\"zzz\":1}", NULL, "unknown field"},
        {"{\"service\":\"a\",\"service\":\"b\"}", "service", "is defined more than once"},
        {"{\"service\":1}", "service", "must be a string"},
        {"{\"service\":\"\"}", "service", "must have 1 to 255 bytes, got 0"},
        {"{\"service\":\"a\\u0000b\"}", "service", "control characters"},
        {"{\"service\":\"a\\nb\"}", "service", "control characters"},
        {"{\"duration\":5}", "duration", "must be a duration in a string, such as \\\"5m\\\""},
        {"{\"duration\":\"5 minutes\"}", "duration", "must be a duration in a string"},
        {"{\"duration\":\"-5m\"}", "duration", "must be a duration in a string"},
        {"{\"duration\":\"0\"}", "duration", "must be from 1s to 3600s"},
        {"{\"duration\":\"999ms\"}", "duration", "must be from 1s to 3600s"},
        {"{\"duration\":\"1h0m1s\"}", "duration",
         "must be from 1s to 3600s, which is max_duration"},
        {"{\"interval\":\"1ms\"}", "interval", "must be from 1s"},
        {"{\"profile_types\":\"cpu\"}", "profile_types", "must be a list of 1 to 16 strings"},
        {"{\"profile_types\":[]}", "profile_types", "must be a list of 1 to 16 strings"},
        {"{\"profile_types\":[1]}", "profile_types", "must be a string"},
        {"{\"profile_types\":[\"\"]}", "profile_types", "must have 1 to 64 bytes"},
        {"{\"profile_types\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", "profile_types",
         "must be a list of 1 to 16 strings"},
        {"{\"sampling_percentage\":0}", "sampling_percentage", "greater than 0 and at most 100"},
        {"{\"sampling_percentage\":100.1}", "sampling_percentage",
         "greater than 0 and at most 100"},
        {"{\"sampling_percentage\":1e99}", "sampling_percentage", "greater than 0 and at most 100"},
        {"{\"sampling_percentage\":\"10\"}", "sampling_percentage", "must be a number"},
        {"{\"sampling_percentage\":10000000000000000000000000000000000000000}",
         "sampling_percentage", "must be a number"},
        {"{\"slow_threshold\":500}", "slow_threshold", "such as \\\"500ms\\\""},
        {"{\"slow_threshold\":\"0\"}", "slow_threshold", "must be greater than 0"},
        {"{\"service\":\"a\",\"duration\":\"1m\",\"slow_threshold\":\"1s\","
         "\"sampling_percentage\":10}",
         "slow_threshold", "exclude each other"},
    };
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    for (size_t i = 0; i < BR_COUNT(bodies); i++) {
        char field[64] = "{\"error\":{\"status\":400,\"message\":";
        if (bodies[i].field)
            (void)snprintf(field, sizeof field, "{\"error\":{\"status\":400,\"field\":\"%s\",",
                           bodies[i].field);
        expect_answer(&f, "POST", PATH, bodies[i].json, 400, field);
        expect_answer(&f, "POST", PATH, bodies[i].json, 400, bodies[i].message);
    }
    char longest[300] = "{\"duration\":\"1m\",\"service\":\"";
    size_t at = strlen(longest);
    memset(longest + at, 'a', 256);
    memcpy(longest + at + 256, "\"}", 3);
    expect_answer(&f, "POST", PATH, longest, 400, "must have 1 to 255 bytes, got 256");
    memcpy(longest + at + 255, "\"}", 3);
    f.t.all = true;
    expect_answer(&f, "POST", PATH, longest, 201, "\"id\"");
    end(&f);
}

/* --- The lifetime of an override -------------------------------------------------------------- */

static void overrides_reach_the_overridables(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    expect_answer(
        &f, "POST", PATH,
        "{\"service\":\"check\\u006fut\",\"profile_types\":[\"cpu\",\"heap\"],"
        "\"duration\":\"1m30s\",\"target\":\"http://x\",\"interval\":\"5s\"}",
        201,
        "\"service\":\"checkout\",\"target\":\"http://x\",\"profile_types\":[\"cpu\",\"heap\"],"
        "\"interval\":\"5s\",\"duration\":\"90s\",\"since\":\"2026-01-01T00:00:00.000Z\","
        "\"until\":\"2026-01-01T00:01:30.000Z\",\"seconds_left\":90}\n");
    assert_string_equal(f.t.service, "checkout");
    assert_string_equal(f.t.target, "http://x");
    assert_string_equal(f.t.types, "cpu heap ");
    assert_int_equal(f.t.until_ms, f.rig.h->now_ms + 90000);
    assert_int_equal(f.t.interval_ms, 5000);
    assert_false(f.t.keep);

    expect_answer(&f, "POST", PATH,
                  "{\"service\":\"checkout\",\"duration\":\"1h\",\"sampling_percentage\":12.5}",
                  201, "\"sampling_percentage\":12.5,\"duration\":\"3600s\"");
    assert_true(f.t.keep && f.t.percentage == 12.5 && f.t.slow_ns == 0);
    assert_string_equal(f.t.types, "");
    assert_string_equal(f.t.target, "-");
    expect_answer(&f, "POST", PATH,
                  "{\"service\":\"checkout\",\"duration\":\"1s\",\"slow_threshold\":\"2.5ms\"}",
                  201, "\"slow_threshold\":\"2500000ns\",\"duration\":\"1s\"");
    assert_true(f.t.keep && f.t.percentage == 0 && f.t.slow_ns == 2500000);
    end(&f);
}

static void path_of(const struct recorder *t, char out[64])
{
    (void)snprintf(out, 64, PATH "/%016llx", (unsigned long long)t->id);
}

#define MINUTE "{\"service\":\"checkout\",\"duration\":\"1m\"}"

static void overrides_end_at_their_time(void **state)
{
    struct fixture f;
    char path[64];
    (void)state;
    start(&f, CONFIG);
    struct fake_request *r = send_request(&f, "POST", PATH, MINUTE);
    fake_host_iterate(f.rig.h);
    path_of(&f.t, path);
    assert_non_null(strstr(fake_request_reply(r)->headers, path));
    fake_request_free(r);
    fake_host_advance(f.rig.h, 59500);
    expect_answer(&f, "GET", path, NULL, 200, "\"seconds_left\":1}");
    expect_answer(&f, "GET", PATH, NULL, 200, "\"overrides\":[{\"id\"");
    fake_host_advance(f.rig.h, 499);
    expect_answer(&f, "GET", path, NULL, 200, "\"seconds_left\":1}");
    fake_host_advance(f.rig.h, 1);
    expect_answer(&f, "GET", path, NULL, 404, "no override has this id");
    expect_answer(&f, "GET", PATH, NULL, 200, "\"overrides\":[]");
    expect_answer(&f, "DELETE", path, NULL, 404, "no override has this id");
    assert_int_equal(f.t.n_withdrawn, 0); /* the overridable ends the override by its own clock */
    end(&f);
}

/* When the time of an override is over, the override is freed without another request. */
static void test_is_freed_at_its_end(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    f.t.all = true;
    expect_answer(&f, "POST", PATH, "{\"service\":\"a\",\"duration\":\"2m\"}", 201, "");
    expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    for (int minute = 1; minute <= 2; minute++) {
        fake_host_advance(f.rig.h, 59999);
        size_t live = br_mem_live();
        fake_host_advance(f.rig.h, 1);
        assert_true(br_mem_live() < live);
    }
    end(&f);
}

static void overrides_can_be_withdrawn(void **state)
{
    struct fixture f;
    char path[64];
    (void)state;
    start(&f, CONFIG);
    f.t.all = true;
    expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    path_of(&f.t, path);
    expect_answer(&f, "DELETE", path, NULL, 200, "{\"ended\":1}\n");
    assert_int_equal(f.t.n_withdrawn, 1);
    expect_answer(&f, "DELETE", path, NULL, 404, "no override has this id");
    expect_answer(&f, "GET", path, NULL, 404, "no override has this id");
    for (int i = 0; i < 3; i++)
        expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    expect_answer(&f, "POST", PATH, "{\"service\":\"a b\",\"duration\":\"1m\"}", 201, "");
    expect_answer(&f, "DELETE", PATH "?service=b", NULL, 200, "{\"ended\":0}\n");
    expect_answer(&f, "DELETE", PATH "?service=a%20b%00", NULL, 400, "control characters");
    expect_answer(&f, "DELETE", PATH "?service=a%20b", NULL, 200, "{\"ended\":1}\n");
    assert_int_equal(f.t.n_withdrawn, 2);
    expect_answer(&f, "DELETE", PATH, NULL, 200, "{\"ended\":3}\n");
    expect_answer(&f, "GET", PATH, NULL, 200, "\"overrides\":[]");
    end(&f);
}

static void the_number_of_overrides_is_limited(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "{" CONFIG ", max_overrides: 2}");
    expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    fake_host_advance(f.rig.h, 10500);
    expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    struct fake_request *r = send_request(&f, "POST", PATH, MINUTE);
    assert_int_equal(fake_request_reply(r)->status, 429);
    assert_non_null(strstr(fake_request_reply(r)->headers, "retry-after: 50\n"));
    fake_request_free(r);
    assert_int_equal(f.t.n_applied, 2);
    fake_host_advance(f.rig.h, 49500);
    expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    end(&f);
}

/* Overrides that are not applied yet count. */
static void overrides_in_progress_count(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "{" CONFIG ", max_overrides: 1}");
    struct fake_request *one = send_request(&f, "POST", PATH, MINUTE),
                        *two = send_request(&f, "POST", PATH, MINUTE);
    assert_false(fake_request_reply(one)->came);
    assert_int_equal(fake_request_reply(two)->status, 429);
    assert_non_null(strstr(fake_request_reply(two)->headers, "retry-after: 1\n"));
    fake_host_iterate(f.rig.h);
    assert_int_equal(fake_request_reply(one)->status, 201);
    fake_request_free(one);
    fake_request_free(two);
    end(&f);
}

static void the_number_of_calls_is_limited(void **state)
{
    struct fixture f;
    struct fake_request *r[65];
    (void)state;
    start(&f, CONFIG);
    for (size_t i = 0; i < BR_COUNT(r); i++)
        r[i] = send_request(&f, "GET", PATH, NULL);
    assert_int_equal(fake_request_reply(r[64])->status, 503);
    fake_host_iterate(f.rig.h);
    for (size_t i = 0; i < BR_COUNT(r); i++) {
        assert_int_equal(fake_request_reply(r[i])->status, i < 64 ? 200 : 503);
        fake_request_free(r[i]);
    }
    expect_answer(&f, "GET", PATH, NULL, 200, "");
    end(&f);
}

static void overrides_that_no_component_applies_are_errors(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "{" CONFIG ", max_overrides: 1}");
    for (int i = 0; i < 3; i++) /* rejected overrides do not count */
        expect_answer(&f, "POST", PATH, "{\"service\":\"other\",\"duration\":\"1m\"}", 422,
                      "no component can do that");
    f.t.answer = BR_EFULL;
    for (int i = 0; i < 3; i++)
        expect_answer(&f, "POST", PATH, MINUTE, 503, "it is full");
    f.t.answer = 1;
    expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    end(&f);
}

static void collected_profile_types_are_listed(void **state)
{
    struct fixture f;
    char want[512];
    (void)state;
    start(&f, CONFIG);
    expect_answer(
        &f, "GET", PATH, NULL, 200,
        "{\"collected\":[],\"overrides\":[],\"shedding\":{\"step\":0,\"what\":\"nothing is shed\"},"
        "\"truncated\":false}\n");
    f.t.n_rows = 2;
    expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    f.rig.h->host.shed.cpu_step = 2;
    (void)snprintf(want, sizeof want,
                   "{\"collected\":[{\"component\":\"pprof/a\\\"b\",\"profile_type\":\"cpu\","
                   "\"service\":\"checkout\",\"target\":\"http://0\",\"interval\":\"1500ms\","
                   "\"state\":\"ok\",\"because\":\"override\",\"override\":\"%016llx\"},"
                   "{\"component\":\"pprof/a\\\"b\",\"profile_type\":\"cpu\","
                   "\"service\":\"checkout\",\"target\":\"http://1\",\"interval\":\"1500ms\","
                   "\"state\":\"ok\",\"because\":\"config\"}],\"overrides\":[{\"id\":\"%016llx\"",
                   (unsigned long long)f.t.id, (unsigned long long)f.t.id);
    expect_answer(&f, "GET", PATH, NULL, 200, want);
    expect_answer(&f, "GET", PATH, NULL, 200, "\"shedding\":{\"step\":2,\"what\":\"three of four");
    f.t.n_rows = 4096;
    expect_answer(&f, "GET", PATH, NULL, 200, "\"truncated\":false");
    f.t.n_rows = 4097;
    expect_answer(&f, "GET", PATH, NULL, 200, "\"truncated\":true");
    end(&f);
}

/* Equal rows of two workers are listed once. */
static void equal_rows_are_listed_once(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    struct recorder twin = {.overridable.ops = &ops, .n_rows = 1};
    br_overridable_register(&twin.overridable, &f.rig.h->host);
    f.t.n_rows = 1;
    struct fake_request *r = send_request(&f, "GET", PATH, NULL);
    fake_host_iterate(f.rig.h);
    const char *body = fake_request_reply(r)->body;
    const char *first = strstr(body, "\"component\"");
    assert_non_null(first);
    assert_null(strstr(first + 1, "\"component\""));
    fake_request_free(r);
    br_overridable_unregister(&twin.overridable);
    end(&f);
}

/* --- Disconnects and shutdown ----------------------------------------------------------------- */

static void clients_may_disconnect(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    static const char *const methods[] = {"GET", "POST", "DELETE"};
    for (size_t i = 0; i < BR_COUNT(methods); i++) {
        struct fake_request *r = send_request(&f, methods[i], PATH, i == 1 ? MINUTE : NULL);
        fake_request_gone(r);
        fake_host_iterate(f.rig.h);
        fake_request_free(r);
        assert_int_equal(f.t.n_applied, i >= 1); /* the override applies nevertheless */
    }
    assert_int_equal(f.t.n_withdrawn, 1);
    end(&f);
}

static void destroyed_with_requests(void **state)
{
    struct fixture f;
    struct fake_request *r[3];
    (void)state;
    start(&f, CONFIG);
    expect_answer(&f, "POST", PATH, MINUTE, 201, "");
    r[0] = send_request(&f, "GET", PATH, NULL);
    r[1] = send_request(&f, "POST", PATH, MINUTE);
    r[2] = send_request(&f, "DELETE", PATH, NULL);
    release(&f);
    for (size_t i = 0; i < BR_COUNT(r); i++)
        fake_request_free(r[i]);
}

static void requests_during_shutdown_are_rejected(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, CONFIG);
    struct fake_request *r = send_request(&f, "POST", PATH, MINUTE);
    f.rig.h->host.draining = true;
    fake_host_iterate(f.rig.h);
    assert_int_equal(fake_request_reply(r)->status, 503);
    fake_request_free(r);
    expect_answer(&f, "GET", PATH, NULL, 503, "shutting down");
    end(&f);
}

/* --- Without memory --------------------------------------------------------------------------- */

static void scenario(void *arg)
{
    struct fixture f;
    struct br_err err = {0};
    struct fake_request *r[4];
    static const char *const methods[] = {"POST", "GET", "GET", "DELETE"};
    (void)arg;
    begin(&f, CONFIG);
    f.t.n_rows = 3;
    fault_start();
    int rc = f.rig.node.component->create(&f.rig.node, &err);
    if (!rc)
        rc = f.rig.node.component->start(&f.rig.node, &err);
    fault_stop();
    assert_true(rc == 0 || fault_failed());
    for (size_t i = 0; rc == 0 && i < BR_COUNT(methods); i++) {
        fault_start();
        r[i] =
            send_request(&f, methods[i], i == 2 ? PATH "/0000000000000001" : PATH,
                         i == 0 ? "{\"service\":\"checkout\",\"duration\":\"1m\",\"target\":\"t\","
                                  "\"profile_types\":[\"cpu\"],\"slow_threshold\":\"1s\"}"
                                : NULL);
        fake_host_iterate(f.rig.h);
        fault_stop();
        const struct fake_reply *reply = fake_request_reply(r[i]);
        static const unsigned good[] = {201, 200, 404, 200};
        assert_true(reply->came);
        if (reply->status != good[i] && (!fault_failed() || reply->status != 503))
            fail_msg("%s gave %u %s", methods[i], reply->status, reply->body);
        fake_request_free(r[i]);
    }
    release(&f);
}

static void without_memory(void **state)
{
    (void)state;
    fault_each("control", scenario, NULL);
}

/* --- Config ----------------------------------------------------------------------------------- */

#define NOT_LOOPBACK "x::endpoint: is not a loopback address; set allow_remote: true"

static void wrong_configs(void **state)
{
    static const char *const configs[][2] = {
        {"", "x::token: must be set, to 16 characters or more"},
        {"token: 0123456789abcde", "test.yaml:1:8: x::token: must be set, to 16 characters"},
        {"token: '0123456789 abcdef'", "x::token: must be printable ASCII without spaces"},
        {"{" CONFIG ", endpoint: '0.0.0.0:1'}", NOT_LOOPBACK},
        {"{" CONFIG ", endpoint: ':1'}", NOT_LOOPBACK},
        {"{" CONFIG ", endpoint: '[::]:1'}", NOT_LOOPBACK},
        {"{" CONFIG ", endpoint: '192.0.2.1:1'}", NOT_LOOPBACK},
        {"{" CONFIG ", endpoint: 'localhost.example.com:1'}", NOT_LOOPBACK},
        {"{" CONFIG ", endpoint: '127.example.com:1'}", NOT_LOOPBACK},
        {"{" CONFIG ", endpoint: localhost}", "x::endpoint: must be host:port"},
        {"{" CONFIG ", transport: udp}", "x::transport: must be tcp or unix"},
        {"{" CONFIG ", max_overrides: 0}", "x::max_overrides: must be a whole number from 1 to 64"},
        {"{" CONFIG ", max_overrides: 65}",
         "x::max_overrides: must be a whole number from 1 to 64"},
        {"{" CONFIG ", max_duration: 999ms}", "x::max_duration: must be from 1s to 24h"},
        {"{" CONFIG ", endpoint: '0.0.0.0:0', allow_remote: true}",
         "warning: test.yaml:1:64: x::allow_remote: the token is sent over the network "
         "unencrypted"},
        {"{" CONFIG ", max_duration: 24h1s}", "x::max_duration: must be from 1s to 24h"},
    };
    static const char *const right[] = {
        "{" CONFIG ", endpoint: '127.0.0.1:0'}",
        "{" CONFIG ", endpoint: '127.255.0.3:0'}",
        "{" CONFIG ", endpoint: '[::1]:0'}",
        "{" CONFIG ", endpoint: 'LOCALHOST:0'}",
        "{" CONFIG ", endpoint: '0.0.0.0:0', allow_remote: true, tls: {cert_file: a, key_file: b}}",
        "{" CONFIG ", endpoint: '127.0.0.1:0', allow_remote: true}",
        "{" CONFIG ", endpoint: '/run/control', transport: unix}",
        "{" CONFIG ", max_duration: 24h, max_overrides: 64}",
    };
    (void)state;
    rig_expect_errors_in(&br_control_extension, configs, BR_COUNT(configs));
    for (size_t i = 0; i < BR_COUNT(configs); i++)
        assert_null(strstr(rig_errors(&br_control_extension, configs[i][0]), "0123456789"));
    for (size_t i = 0; i < BR_COUNT(right); i++)
        assert_string_equal(rig_errors(&br_control_extension, right[i]), "");
}

static void the_token_is_not_printed(void **state)
{
    static const char yaml[] = "extensions: {control: {token: " TOKEN ", max_overrides: 3}}";
    struct br_errs errs = {0};
    struct br_arena arena;
    struct br_yaml *tree;
    struct br_str out = {0};
    (void)state;
    br_arena_init(&arena, 0);
    assert_int_equal(br_yaml_parse(yaml, strlen(yaml), "t", &arena, &tree, &errs), 0);
    assert_int_equal(br_config_print(tree, br_components, &out), 0);
    assert_null(strstr(out.data, TOKEN));
    assert_non_null(strstr(out.data, "[REDACTED]"));
    assert_non_null(strstr(out.data, "max_overrides: 3"));
    br_str_release(&out);
    br_arena_release(&arena);
}

static void cannot_listen(void **state)
{
    struct fixture f;
    struct br_err err = {0};
    (void)state;
    begin(&f, CONFIG);
    assert_int_equal(f.rig.node.component->create(&f.rig.node, &err), 0);
    f.rig.h->refuse_serve = true;
    assert_int_equal(f.rig.node.component->start(&f.rig.node, &err), BR_EIO);
    end(&f);
}

SUITE(control)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_token_is_required),
        cmocka_unit_test(failed_authentications_are_limited),
        cmocka_unit_test(foreign_hosts_are_rejected),
        cmocka_unit_test(paths_and_methods),
        cmocka_unit_test(bodies_have_a_maximum),
        cmocka_unit_test(wrong_queries),
        cmocka_unit_test(wrong_overrides),
        cmocka_unit_test(overrides_reach_the_overridables),
        cmocka_unit_test(overrides_end_at_their_time),
        cmocka_unit_test(overrides_can_be_withdrawn),
        cmocka_unit_test(the_number_of_overrides_is_limited),
        cmocka_unit_test(overrides_in_progress_count),
        cmocka_unit_test(the_number_of_calls_is_limited),
        cmocka_unit_test(overrides_that_no_component_applies_are_errors),
        cmocka_unit_test(collected_profile_types_are_listed),
        cmocka_unit_test(equal_rows_are_listed_once),
        cmocka_unit_test(clients_may_disconnect),
        cmocka_unit_test(destroyed_with_requests),
        cmocka_unit_test(requests_during_shutdown_are_rejected),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(wrong_configs),
        cmocka_unit_test(the_token_is_not_printed),
        cmocka_unit_test(cannot_listen),
        cmocka_unit_test(test_is_freed_at_its_end),
    };
    return RUN(tests, NULL, NULL);
}
