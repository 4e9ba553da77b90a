/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tests/support/node_rig.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_health_check_extension;

static void begin(struct node_rig *f, const char *yaml)
{
    node_rig_start(f, &br_health_check_extension, yaml);
}

static void end(struct node_rig *f)
{
    node_rig_drain(f);
    node_rig_end(f);
}

static void expect_answer(struct node_rig *f, const char *path, unsigned status, const char *type,
                          const char *body)
{
    struct fake_request *r = fake_request_new(f->h, "health_check", path);
    fake_request_method(r, "GET");
    fake_request_begin(r);
    const struct fake_reply *reply = fake_request_reply(r);
    assert_true(reply->came);
    assert_int_equal(reply->status, status);
    assert_string_equal(reply->type, type);
    assert_string_equal(reply->body, body);
    fake_request_free(r);
}

#define JSON "application/json"
#define TEXT "text/plain; charset=utf-8"
#define UP(uptime)                                                                                 \
    "{\"status\":\"Server "                                                                        \
    "available\",\"upSince\":\"2026-01-01T00:00:00.000Z\",\"uptime\":\"" uptime "\"}"
#define DOWN                                                                                       \
    "{\"status\":\"Server not available\",\"upSince\":\"0001-01-01T00:00:00Z\",\"uptime\":\"\"}"

/* Bodies have the format of the Collector's health_check. Uptimes have the format of Go's
 * durations. */
static void answers_like_the_collector(void **state)
{
    static const struct {
        uint64_t ms;
        const char *want;
    } uptimes[] = {{0, UP("0s")},           {4, UP("4ms")},          {1000, UP("1s")},
                   {1500, UP("1.5s")},      {61004, UP("1m1.004s")}, {61040, UP("1m1.04s")},
                   {3600000, UP("1h0m0s")}, {3723000, UP("1h2m3s")}};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(uptimes); i++) {
        struct node_rig f;
        begin(&f, "");
        fake_host_advance(f.h, uptimes[i].ms);
        expect_answer(&f, "/", 200, JSON, uptimes[i].want);
        end(&f);
    }
}

static void unavailable_while_draining(void **state)
{
    struct node_rig f;
    (void)state;
    begin(&f, "");
    f.h->host.draining = true;
    expect_answer(&f, "/", 503, JSON, DOWN);
    end(&f);
}

static void foreign_hosts_are_rejected(void **state)
{
    static const struct {
        const char *yaml, *host;
        unsigned status;
    } cases[] = {
        {"", "localhost:13133", 200},
        {"", "evil.example:13133", 403},
        {"endpoint: 0.0.0.0:13133", "evil.example:13133", 200},
        {"{endpoint: '0.0.0.0:13133', allowed_hosts: braid.example}", "evil.example:13133", 403},
        {"{endpoint: '0.0.0.0:13133', allowed_hosts: braid.example}", "braid.example:13133", 200},
        {"{endpoint: '0.0.0.0:13133', allowed_hosts: braid.example}", "10.0.0.7:13133", 200},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct node_rig f;
        begin(&f, cases[i].yaml);
        struct fake_request *r = fake_request_new(f.h, "health_check", "/");
        fake_request_method(r, "GET");
        fake_request_host(r, cases[i].host);
        fake_request_begin(r);
        assert_int_equal(fake_request_reply(r)->status, cases[i].status);
        fake_request_free(r);
        end(&f);
    }
}

static void texts(void **state)
{
    struct node_rig f;
    (void)state;
    begin(&f, "response_body: {healthy: all is well, unhealthy: going}");
    expect_answer(&f, "/", 200, TEXT, "all is well");
    f.h->host.draining = true;
    expect_answer(&f, "/", 503, TEXT, "going");
    end(&f);
    begin(&f, "response_body:");
    expect_answer(&f, "/", 200, TEXT, "");
    end(&f);
}

/* The options of contrib's healthcheckv2: the path is http::status::path, by default /status. */
static void options_of_healthcheckv2(void **state)
{
    struct node_rig f;
    (void)state;
    begin(&f, "{use_v2: true, component_health: {recovery_duration: 5m}, http: {endpoint: "
              "'localhost:13133'}, grpc: {endpoint: 'localhost:13132'}}");
    expect_answer(&f, "/status", 200, JSON, UP("0s"));
    expect_answer(&f, "/", 404, TEXT, "404 page not found\n");
    end(&f);
    begin(&f, "{path: /old, http: {status: {path: /ready}, config: {enabled: true}}}");
    expect_answer(&f, "/ready", 200, JSON, UP("0s"));
    end(&f);
    begin(&f, "{use_v2: false, path: /old, http: {status: {path: /ready}}}");
    expect_answer(&f, "/old", 200, JSON, UP("0s"));
    end(&f);
}

/* Paths match as in Go's ServeMux, which the Collector uses. */
static void paths(void **state)
{
    struct node_rig f;
    (void)state;
    begin(&f, "");
    expect_answer(&f, "/anything", 200, JSON, UP("0s"));
    end(&f);
    begin(&f, "path: /health");
    expect_answer(&f, "/health", 200, JSON, UP("0s"));
    expect_answer(&f, "/health/x", 404, TEXT, "404 page not found\n");
    expect_answer(&f, "/", 404, TEXT, "404 page not found\n");
    end(&f);
    begin(&f, "path: /health/");
    expect_answer(&f, "/health/x", 200, JSON, UP("0s"));
    expect_answer(&f, "/health", 404, TEXT, "404 page not found\n");
    end(&f);
}

static void headers(void **state)
{
    struct node_rig f;
    (void)state;
    begin(&f, "response_headers: {x-a: b}");
    struct fake_request *r = fake_request_new(f.h, "health_check", "/");
    fake_request_begin(r);
    assert_string_equal(fake_request_reply(r)->headers, "x-a: b\n");
    fake_request_free(r);
    end(&f);
}

static void wrong_configs(void **state)
{
    static const char *const configs[][2] = {
        {"endpoint: localhost", "x::endpoint: must be host:port"},
        {"transport: udp", "x::transport: must be tcp or unix, got \"udp\""},
        {"path: health", "x::path: must start with a slash"},
        {"path: ''", "x::path: must start with a slash"},
        {"check_collector_pipeline: {enabled: true}", "warning: "},
    };
    (void)state;
    rig_expect_errors_in(&br_health_check_extension, configs, BR_COUNT(configs));
    assert_string_equal(
        rig_errors(&br_health_check_extension, "{transport: unix, endpoint: /run/x}"), "");
}

static void cannot_listen(void **state)
{
    struct node_rig f;
    struct br_err err = {0};
    (void)state;
    begin(&f, "");
    const struct br_component *c = &br_health_check_extension;
    c->destroy(&f.node);
    memset(f.node.state, 0, c->state_size);
    assert_int_equal(c->create(&f.node, &err), 0);
    f.h->refuse_serve = true;
    assert_int_equal(c->start(&f.node, &err), BR_EIO);
    end(&f);
}

SUITE(health_check)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_like_the_collector),
        cmocka_unit_test(unavailable_while_draining),
        cmocka_unit_test(foreign_hosts_are_rejected),
        cmocka_unit_test(texts),
        cmocka_unit_test(paths),
        cmocka_unit_test(options_of_healthcheckv2),
        cmocka_unit_test(headers),
        cmocka_unit_test(wrong_configs),
        cmocka_unit_test(cannot_listen),
    };
    return RUN(tests, NULL, NULL);
}
