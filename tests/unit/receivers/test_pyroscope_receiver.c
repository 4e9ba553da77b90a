/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiver pyroscope on a fake host, for all paths: routes, outcomes, limits, tenants. Expected
 * responses are from Pyroscope's source (pkg/ingester/pyroscope, pkg/distributor) and
 * connectrpc.com/docs/protocol.
 */
#include "base/mem.h"
#include "tests/support/fault.h"
#include "tests/support/pyroscope_rig.h"
#include "tests/support/test.h"

/* --- The port --------------------------------------------------------------------------------- */

static void test_otlp(void **state)
{
    struct fixture *f = *state;
    static const char json[] = "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"key\":"
                               "\"service.name\",\"value\":{\"stringValue\":\"o\"}}]}}]}";
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = OTLP, .type = "application/json; charset=utf-8"},
                           json),
        200);
    assert_string_equal(pyroscope_last.body, "{}");
    pyroscope_expect_attribute(f, "service.name", "o");
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = OTLP, .type = "application/protobuf"}, ""), 200);
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = OTLP, .type = "application/x-protobuf"}, ""),
        200);
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = OTLP, .type = "text/plain"}, ""),
                     415);
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = OTLP, .type = "application/x-protobuf"}, "\xff"),
        400);
    (void)pyroscope_ask_text(f, (struct ask){.path = EXPORT, .type = "application/grpc"}, "");
    assert_true(pyroscope_last.grpc);
    assert_int_equal(pyroscope_last.grpc_status, 0);
    /* this receiver does not accept traces */
    (void)pyroscope_ask_text(
        f,
        (struct ask){.path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                     .type = "application/grpc"},
        "");
    assert_int_equal(pyroscope_last.grpc_status, 12);
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = "/v1/traces", .type = "application/x-protobuf"},
                           ""),
        404);
    assert_int_equal(f->n, 4);
}

static void test_routes(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *method, *path, *type;
        unsigned status;
    } cases[] = {
        {"GET", "/ready", NULL, 200},
        {"GET", "/ingest", NULL, 405},
        {"PUT", "/ingest", NULL, 405},
        {"GET", PUSH, "application/proto", 405},
        {"GET", OTLP, NULL, 405},
        {"POST", PUSH, "application/x-protobuf", 415},
        {"POST", PUSH, "application/connect+proto", 415},
        {"POST", PUSH, "application/grpc+thrift", 415},
        {"POST", PUSH, NULL, 415},
        {"POST", "/v1/profiles", "application/json", 404},
        {"POST", "/v1development/profiles/", "application/json", 404},
        {"POST", "/ingest/", NULL, 404},
        {"GET", "/", NULL, 404},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct ask a = {.path = cases[i].path, .type = cases[i].type, .method = cases[i].method};
        assert_int_equal(pyroscope_ask_text(f, a, ""), cases[i].status);
        assert_true((cases[i].status == 405) ==
                    (strstr(pyroscope_last.headers, "allow: POST") != NULL));
    }
    assert_int_equal(f->n, 0);
}

static void test_ready_while_draining(void **state)
{
    struct fixture *f = *state;
    f->node.draining = f->node.host->draining = true;
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = "/ready", .method = "GET"}, ""),
                     503);
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = INGEST}, "main 1\n"), 503);
    assert_non_null(strstr(pyroscope_last.headers, "retry-after: 1\n"));
}

/* Tests each outcome of an item, and the response of each protocol to this outcome. */
static void test_outcomes(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum br_verdict verdict;
        enum br_status status;
        uint32_t delay_ms;
        unsigned ingest, connect, grpc;
        const char *code, *retry_after;
    } cases[] = {
        {BR_DONE, BR_STATUS_OK, 0, 200, 200, 0, NULL, NULL},
        {BR_RETRY, BR_STATUS_UNAVAILABLE, 0, 503, 503, 14, "unavailable", "retry-after: 1\n"},
        {BR_RETRY, BR_STATUS_UNAVAILABLE, 2500, 503, 503, 14, "unavailable", "retry-after: 3\n"},
        {BR_RETRY, BR_STATUS_RESOURCE_EXHAUSTED, 9000, 429, 429, 8, "resource_exhausted",
         "retry-after: 9\n"},
        {BR_REJECT, BR_STATUS_INVALID_ARGUMENT, 0, 400, 400, 3, "invalid_argument", NULL},
        {BR_REJECT, BR_STATUS_RESOURCE_EXHAUSTED, 0, 413, 413, 8, "resource_exhausted", NULL},
        {BR_REJECT, BR_STATUS_UNKNOWN, 0, 422, 400, 2, "unknown", NULL},
        {BR_REJECT, BR_STATUS_UNIMPLEMENTED, 0, 404, 404, 12, "unimplemented", NULL},
        /* the status is not 401, and not one on which SDKs retry */
        {BR_REJECT, BR_STATUS_UNAUTHENTICATED, 0, 400, 400, 16, "failed_precondition", NULL},
        {BR_REJECT, BR_STATUS_PERMISSION_DENIED, 0, 400, 400, 7, "failed_precondition", NULL},
        {BR_REJECT, BR_STATUS_INTERNAL, 0, 400, 400, 13, "failed_precondition", NULL},
        {BR_REJECT, BR_STATUS_UNAVAILABLE, 0, 400, 400, 14, "failed_precondition", NULL},
    };
    pyroscope_put_push(f, &f->body);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        f->outcome = (struct br_outcome){.verdict = cases[i].verdict,
                                         .status = cases[i].status,
                                         .delay_ms = cases[i].delay_ms,
                                         .text = "be\"cause"};
        char want[128] = "";
        if (cases[i].code)
            (void)snprintf(want, sizeof want, "{\"code\":\"%s\",\"message\":\"be\\\"cause\"}",
                           cases[i].code);
        assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = INGEST}, "main 1\n"),
                         cases[i].ingest);
        assert_string_equal(pyroscope_last.body, want);
        assert_true(!cases[i].retry_after == !strstr(pyroscope_last.headers, "retry-after"));
        assert_true(!cases[i].retry_after || strstr(pyroscope_last.headers, cases[i].retry_after));
        assert_int_equal(pyroscope_ask_wire(
                             f, (struct ask){.path = PUSH, .type = "application/proto"}, &f->body),
                         cases[i].connect);
        assert_string_equal(pyroscope_last.body, want);
        assert_true(!cases[i].retry_after || strstr(pyroscope_last.headers, cases[i].retry_after));
        (void)pyroscope_ask_wire(f, (struct ask){.path = PUSH, .type = "application/grpc"},
                                 &f->body);
        assert_int_equal(pyroscope_last.grpc_status, cases[i].grpc);
    }
}

static void test_no_pipeline(void **state)
{
    struct fixture *f = *state;
    f->node.next[BR_PROFILES] = NULL;
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = INGEST}, "main 1\n"), 404);
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = PUSH, .type = "application/proto"}, ""), 404);
    (void)pyroscope_ask_text(f, (struct ask){.path = PUSH, .type = "application/grpc"}, "");
    assert_int_equal(pyroscope_last.grpc_status, 12);
}

/* A body is rejected if it exceeds the limit as received, after the decoding of Content-Encoding,
 * or after the decompression of a part. */
static void test_too_large(void **state)
{
    struct fixture *f = *state;
    struct wire zeros = {0}, pushed = {0};
    static uint8_t none[LIMIT + 1];
    wire_raw(&zeros, none, sizeof none);
    assert_int_equal(pyroscope_ask_wire(f, (struct ask){.path = INGEST}, &zeros), 413);
    assert_int_equal(
        pyroscope_ask_wire(f, (struct ask){.path = PUSH, .type = "application/proto"}, &zeros),
        413);
    pyroscope_gzip(f, &zeros);
    assert_int_equal(
        pyroscope_ask_wire(f, (struct ask){.path = INGEST, .encoding = "gzip"}, &zeros), 413);
    assert_int_equal(pyroscope_ask_wire(f, (struct ask){.path = PPROF}, &zeros), 413);
    assert_int_equal(
        pyroscope_ask_wire(
            f, (struct ask){.path = PUSH, .type = "application/proto", .encoding = "gzip"}, &zeros),
        413);
    pyroscope_put_field(&f->body, "profile", &zeros);
    wire_raw(&f->body, "--x--", 5);
    assert_int_equal(pyroscope_ask_wire(f, (struct ask){.path = INGEST, .type = FORM}, &f->body),
                     413);
    size_t series = wire_open(&pushed, 1);
    pyroscope_put_label(&pushed, "__name__", "x");
    size_t sample = wire_open(&pushed, 2);
    wire_len(&pushed, 1, zeros.data, zeros.len);
    wire_close(&pushed, sample);
    wire_close(&pushed, series);
    assert_int_equal(
        pyroscope_ask_wire(f, (struct ask){.path = PUSH, .type = "application/proto"}, &pushed),
        413);
    assert_non_null(strstr(pyroscope_last.body, "\"resource_exhausted\""));
    (void)pyroscope_ask_wire(f, (struct ask){.path = PUSH, .type = "application/grpc"}, &pushed);
    assert_int_equal(pyroscope_last.grpc_status, 8);
    assert_int_equal(f->n, 0);
    wire_free(&zeros);
    wire_free(&pushed);
}

/* The limit applies to the sum of all decompressed parts of a request. */
static void test_too_large_together(void **state)
{
    struct fixture *f = *state;
    struct wire text = {0};
    for (int i = 0; i < 20000; i++)
        /* empty comments, which take 40,000 bytes of a pprof in total */
        wire_raw(&text, "\x6a\x00", 2);
    pyroscope_gzip(f, &text);
    for (unsigned n = 1; n <= 2; n++) {
        wire_clear(&f->body);
        size_t series = wire_open(&f->body, 1);
        pyroscope_put_label(&f->body, "__name__", "x");
        for (unsigned i = 0; i < n; i++) {
            size_t sample = wire_open(&f->body, 2);
            wire_len(&f->body, 1, text.data, text.len);
            wire_close(&f->body, sample);
        }
        wire_close(&f->body, series);
        unsigned status = pyroscope_ask_wire(
            f, (struct ask){.path = PUSH, .type = "application/proto"}, &f->body);
        assert_true(n == 1 ? status != 413 : status == 413);
    }
    wire_free(&text);
}

static void test_disconnected_client(void **state)
{
    struct fixture *f = *state;
    struct fake_request *r = fake_request_new(f->h, "pyroscope", PPROF);
    fake_request_begin(r);
    fake_request_gone(r);
    fake_request_free(r);
    r = fake_request_new(f->h, "pyroscope", INGEST);
    fake_request_send(r, "main 1\n", 7);
    /* the client disconnects while the item of its request is in the pipeline */
    fake_request_gone(r);
    fake_host_iterate(f->h);
    fake_request_free(r);
    assert_int_equal(f->n, 1);
    r = fake_request_new(f->h, "pyroscope", INGEST);
    fake_request_fail(r, BR_BODY_NO_MEMORY);
    assert_int_equal(fake_request_reply(r)->status, 503);
    fake_request_free(r);
}

/* --- Tenants ---------------------------------------------------------------------------------- */

static void test_tenant(void **state)
{
    static const char *keys[] = {"X-Scope-OrgID", "other"};
    static const struct {
        const char *yaml, *header, *want;
    } cases[] = {
        {"", "x-scope-orgid", "X-Scope-OrgID=blue;"},
        {"", "x-org", ""},
        {"", "other", "other=blue;"},
        {"{tenant_header: X-Org}", "x-org", "X-Scope-OrgID=blue;"},
        {"{tenant_header: X-Org}", "x-scope-orgid", ""},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fixture f;
        pyroscope_start(&f, cases[i].yaml);
        f.keys = (struct br_strings){keys, BR_COUNT(keys)};
        f.node.metadata_keys = &f.keys;
        struct ask a = {.path = INGEST, .header = cases[i].header, .value = "blue"};
        assert_int_equal(pyroscope_ask_text(&f, a, "main 1\n"), 200);
        assert_string_equal(f.metadata.data ? f.metadata.data : "", cases[i].want);
        assert_null(strstr(f.json.data, "blue"));
        pyroscope_end(&f);
    }
}

static void test_config(void **state)
{
    const struct br_component *c = &br_pyroscope_receiver;
    static const struct {
        const char *yaml;
        int rc;
    } cases[] = {
        {"", 0},
        {"{protocols: {http: {endpoint: \"0.0.0.0:4041\"}}}", 0},
        {"{protocols: {http: {endpoint: /run/x, transport: unix}}}", 0},
        {"{protocols: {http: {endpoint: nowhere}}}", BR_EINVAL},
        {"{protocols: {http: {transport: udp}}}", BR_EINVAL},
        {"{tenant_header: \"\"}", BR_EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_errs errs = {0};
        struct br_arena arena;
        struct br_yaml *tree;
        br_arena_init(&arena, 0);
        void *config = br_arena_calloc(&arena, 1, c->config_size);
        assert_int_equal(
            br_yaml_parse(cases[i].yaml, strlen(cases[i].yaml), "t", &arena, &tree, &errs), 0);
        assert_int_equal(br_options_read(c->options, tree, "x", config, &arena, &errs), 0);
        assert_int_equal(c->check(config, tree, "x", &arena, &errs), cases[i].rc);
        br_errs_release(&errs);
        br_arena_release(&arena);
    }
}

/* --- Without memory --------------------------------------------------------------------------- */

static struct wire fault_form, fault_push, fault_partly;

/* Every request gets a response when an allocation fails: success or a retryable error. */
static void scenario(void *arg)
{
    const struct {
        struct ask ask;
        const struct wire *body;
    } requests[] = {
        {{.path = INGEST, .type = FORM}, &fault_form},
        {{.path = PUSH, .type = "application/proto"}, &fault_push},
        {{.path = INGEST "&spyName=a%20b"}, NULL},
        {{.path = PUSH, .type = "application/proto"}, &fault_partly},
    };
    size_t which = *(size_t *)arg;
    struct fixture f;
    pyroscope_start(&f, "");
    f.quiet = true;
    const struct wire text = {(uint8_t *)(uintptr_t) "main;a 1\n", 9, 9};
    const struct wire *body = requests[which].body ? requests[which].body : &text;
    fault_start();
    struct fake_request *r = fake_request_new(f.h, "pyroscope", requests[which].ask.path);
    if (requests[which].ask.type)
        fake_request_header(r, "content-type", requests[which].ask.type);
    fake_request_send(r, body->data, body->len);
    fake_host_iterate(f.h);
    fault_stop();
    unsigned status = fake_request_reply(r)->status;
    unsigned good = which == 3 ? 400 : 200;
    if (status != good && !(fault_failed() && status == 503))
        print_error("request %zu: %u %s\n", which, status, fake_request_reply(r)->body);
    assert_true(status == good || (fault_failed() && status == 503));
    fake_request_free(r);
    pyroscope_end(&f);
}

static void test_faults(void **state)
{
    static const char config[] = "{\"cpu\":{\"units\":\"samples\"}}";
    struct fixture *f = *state;
    struct wire pprof = {0}, json = {0};
    pyroscope_put_pprof(&pprof, "cpu", "nanoseconds");
    pyroscope_gzip(f, &pprof);
    wire_raw(&json, config, sizeof config - 1);
    pyroscope_put_field(&fault_form, "profile", &pprof);
    pyroscope_put_field(&fault_form, "sample_type_config", &json);
    wire_raw(&fault_form, "--x--", 5);
    pyroscope_put_push(f, &fault_push);
    size_t series = wire_open(&fault_partly, 1);
    pyroscope_put_label(&fault_partly, "__name__", "x");
    pyroscope_put_bad_sample(&fault_partly);
    pyroscope_put_sample(f, &fault_partly, true, ID);
    wire_close(&fault_partly, series);
    for (size_t which = 0; which < 4; which++)
        fault_each("a request", scenario, &which);
    wire_free(&pprof);
    wire_free(&json);
    wire_free(&fault_form);
    wire_free(&fault_push);
    wire_free(&fault_partly);
}

SUITE(pyroscope_receiver)
{
    const struct CMUnitTest tests[] = {
        PYROSCOPE_TEST(test_otlp),
        PYROSCOPE_TEST(test_routes),
        PYROSCOPE_TEST(test_ready_while_draining),
        PYROSCOPE_TEST(test_outcomes),
        PYROSCOPE_TEST(test_no_pipeline),
        PYROSCOPE_TEST(test_too_large),
        PYROSCOPE_TEST(test_too_large_together),
        PYROSCOPE_TEST(test_disconnected_client),
        cmocka_unit_test(test_tenant),
        cmocka_unit_test(test_config),
        PYROSCOPE_TEST(test_faults),
    };
    int rc = RUN(tests, NULL, NULL);
    free(pyroscope_last.body);
    return rc;
}
