/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiver pyroscope on a fake host. What is expected of answers comes from Pyroscope's source
 * (pkg/ingester/pyroscope, pkg/distributor), connectrpc.com/docs/protocol and
 * grpc/doc/PROTOCOL-WEB.md; of names and labels from pkg/og/convert.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants the four above */
#include <cmocka.h>

#include "base/mem.h"
#include "otlp/json.h"
#include "pipeline/component.h"
#include "support/fake_host.h"
#include "support/fault.h"
#include "support/wire.h"
#include "wire/compression.h"

extern const struct br_component br_pyroscope_receiver;

#define PUSH "/push.v1.PusherService/Push"
#define EXPORT "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
#define OTLP "/v1development/profiles"
#define INGEST "/ingest?name=app&from=1767225600&until=1767225610"
#define PPROF INGEST "&format=pprof"
#define FORM "multipart/form-data; boundary=x"
#define LIMIT 65536

struct fixture {
    struct fake_host *h;
    struct br_arena arena;
    struct br_node node;
    struct br_consumer sink;
    struct br_outcome outcome; /* what items end with */
    struct br_strings keys;
    struct br_codec *codec;
    bool drained;
    bool quiet; /* keep nothing of what comes */
    unsigned n; /* items that came */
    struct br_str json, metadata;
    struct wire body;
};

static struct fixture *the;

static void on_item(struct br_consumer *self, struct br_item *item)
{
    struct fixture *f = br_container_of(self, struct fixture, sink);
    struct br_rope rope = {0};
    const uint8_t *data;
    f->n++;
    if (!f->quiet) {
        assert_int_equal(br_item_write(item, &rope), 0);
        struct br_buf *flat = br_rope_flat(&rope, item->host->pool, &data);
        br_str_clear(&f->json);
        assert_int_equal(br_json_encode(br_otlp_request(BR_PROFILES), data, rope.len, &f->json), 0);
        br_buf_unref(flat);
        br_str_clear(&f->metadata);
        for (const char *p = item->metadata; p && *p;) {
            const char *value = p + strlen(p) + 1;
            br_str_printf(&f->metadata, "%s=%s;", p, value);
            p = value + strlen(value) + 1;
        }
    }
    br_rope_release(&rope);
    br_item_finish(item, &f->outcome);
}

static void on_drained(struct br_node *node, void *arg)
{
    (void)node;
    ((struct fixture *)arg)->drained = true;
}

static void start(struct fixture *f, const char *yaml)
{
    const struct br_component *c = &br_pyroscope_receiver;
    struct br_errs errs = {0};
    struct br_err err = {0};
    struct br_yaml *tree;
    *f = (struct fixture){.h = fake_host_new(), .sink.consume = on_item};
    the = f;
    f->codec = br_codec_new();
    br_arena_init(&f->arena, 0);
    void *config = br_arena_calloc(&f->arena, 1, c->config_size);
    assert_int_equal(br_yaml_parse(yaml, strlen(yaml), "test.yaml", &f->arena, &tree, &errs), 0);
    assert_int_equal(br_options_read(c->options, tree, "x", config, &f->arena, &errs), 0);
    assert_int_equal(c->check(config, tree, "x", &f->arena, &errs), 0);
    br_errs_release(&errs);
    f->node = (struct br_node){.component = c,
                               .id = "pyroscope",
                               .config = config,
                               .state = calloc(1, c->state_size),
                               .host = &f->h->host,
                               .next[BR_PROFILES] = &f->sink,
                               .on_drained = on_drained,
                               .on_drained_arg = f};
    assert_int_equal(c->create(&f->node, &err), 0);
    assert_int_equal(c->start(&f->node, &err), 0);
}

static void end(struct fixture *f)
{
    const struct br_component *c = &br_pyroscope_receiver;
    f->node.draining = true;
    c->drain(&f->node);
    fake_host_turn(f->h);
    assert_true(f->drained);
    c->destroy(&f->node);
    free(f->node.state);
    br_arena_release(&f->arena);
    br_codec_free(f->codec);
    br_str_release(&f->json);
    br_str_release(&f->metadata);
    wire_free(&f->body);
    fake_host_check_ledger(f->h);
    fake_host_free(f->h);
}

static int setup(void **state)
{
    static struct fixture f;
    start(&f, "{protocols: {http: {max_request_body_size: 65536}}}");
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    end(*state);
    return 0;
}

/* --- Requests --------------------------------------------------------------------------------- */

struct ask {
    const char *path, *type, *encoding, *method;
    const char *header, *value; /* one more */
};

static struct fake_reply last;

/* Sends and waits for the answer, which is kept in `last`; returns its HTTP status. */
static unsigned ask(struct fixture *f, struct ask a, const void *body, size_t len)
{
    struct fake_request *r = fake_request_new(f->h, "pyroscope http", a.path);
    if (a.method)
        fake_request_method(r, a.method);
    if (a.type)
        fake_request_header(r, "content-type", a.type);
    if (a.encoding)
        fake_request_header(r, "content-encoding", a.encoding);
    if (a.header)
        fake_request_header(r, a.header, a.value);
    fake_request_send(r, body, len);
    fake_host_turn(f->h);
    const struct fake_reply *reply = fake_request_reply(r);
    free(last.body);
    last = *reply;
    last.body = malloc(reply->body_len + 1);
    memcpy(last.body, reply->body ? reply->body : "", reply->body_len + !!reply->body);
    last.body[reply->body_len] = '\0';
    fake_request_free(r);
    assert_true(last.came);
    return last.status;
}

static unsigned ask_text(struct fixture *f, struct ask a, const char *body)
{
    return ask(f, a, body, strlen(body));
}

static unsigned ask_wire(struct fixture *f, struct ask a, const struct wire *w)
{
    return ask(f, a, w->data, w->len);
}

static void expect_out(struct fixture *f, const char *text)
{
    if (!f->json.data || !strstr(f->json.data, text))
        print_error("not in it: %s\n%s\n", text, f->json.data ? f->json.data : "(nothing)");
    assert_non_null(f->json.data);
    assert_non_null(strstr(f->json.data, text));
}

static void expect_attribute(struct fixture *f, const char *key, const char *value)
{
    char text[256];
    (void)snprintf(text, sizeof text, "{\"key\":\"%s\",\"value\":{\"stringValue\":\"%s\"}}", key,
                   value);
    expect_out(f, text);
}

static void expect_no_key(struct fixture *f, const char *key)
{
    char text[128];
    (void)snprintf(text, sizeof text, "\"key\":\"%s\"", key);
    assert_null(strstr(f->json.data, text));
}

static void gzip(struct fixture *f, struct wire *w)
{
    struct br_rope rope = {0};
    struct br_buf *out;
    assert_int_equal(br_rope_add(&rope, NULL, w->data, w->len), 0);
    assert_int_equal(br_compress(f->codec, BR_ENCODING_GZIP, 0, &rope, 0, f->h->host.pool, &out),
                     0);
    wire_clear(w);
    wire_raw(w, out->data, out->len);
    br_buf_unref(out);
    br_rope_release(&rope);
}

/* A pprof with one sample of 10 ms in `main`. */
static void put_pprof(struct wire *w, const char *type, const char *unit)
{
    const char *const texts[] = {"", type, unit, "main", "thread", "worker-1"};
    size_t m = wire_open(w, 1);
    wire_varint(w, 1, 1);
    wire_varint(w, 2, 2);
    wire_close(w, m);
    m = wire_open(w, 2);
    wire_varint(w, 1, 1);
    wire_varint(w, 2, 10000000);
    size_t label = wire_open(w, 3);
    wire_varint(w, 1, 4);
    wire_varint(w, 2, 5);
    wire_close(w, label);
    wire_close(w, m);
    m = wire_open(w, 4);
    wire_varint(w, 1, 1);
    size_t line = wire_open(w, 4);
    wire_varint(w, 1, 1);
    wire_close(w, line);
    wire_close(w, m);
    m = wire_open(w, 5);
    wire_varint(w, 1, 1);
    wire_varint(w, 2, 3);
    wire_close(w, m);
    for (size_t i = 0; i < BR_COUNT(texts); i++)
        wire_str(w, 6, texts[i]);
    wire_varint(w, 9, 1767225601000000000);
}

static void put_label(struct wire *w, const char *name, const char *value)
{
    size_t label = wire_open(w, 1);
    wire_str(w, 1, name);
    wire_str(w, 2, value);
    wire_close(w, label);
}

#define ID "00112233-4455-6677-8899-aabbccddeeff"

static void put_sample(struct fixture *f, struct wire *w, bool packed, const char *id)
{
    struct wire pprof = {0};
    put_pprof(&pprof, "cpu", "nanoseconds");
    if (packed)
        gzip(f, &pprof);
    size_t sample = wire_open(w, 2);
    wire_len(w, 1, pprof.data, pprof.len);
    wire_str(w, 2, id);
    wire_close(w, sample);
    wire_free(&pprof);
}

/* A PushRequest of two series; the first has two samples. */
static void put_push(struct fixture *f, struct wire *w)
{
    size_t series = wire_open(w, 1);
    put_label(w, "__name__", "process_cpu");
    put_label(w, "service_name", "shop");
    put_label(w, "k8s.pod", "p-1");
    put_sample(f, w, true, ID);
    put_sample(f, w, false, "");
    wire_close(w, series);
    series = wire_open(w, 1);
    put_label(w, "__name__", "memory");
    put_sample(f, w, false, "no uuid");
    wire_close(w, series);
}

/* --- /ingest ---------------------------------------------------------------------------------- */

static void test_ingest_pprof(void **state)
{
    struct fixture *f = *state;
    put_pprof(&f->body, "cpu", "nanoseconds");
    struct ask a = {
        .path = "/ingest?name=shop.api%7Benv%3Dprod%2Cotel.scope.name%3Dx%7D&from=1767225600"
                "&until=1767225610&format=pprof&spyName=nodespy&sampleRate=97",
        .type = "application/octet-stream"};
    assert_int_equal(ask_wire(f, a, &f->body), 200);
    assert_int_equal(last.body_len, 0);
    assert_int_equal(f->n, 1);
    expect_attribute(f, "service.name", "shop.api"); /* the suffix is no type here */
    expect_attribute(f, "env", "prod");
    expect_attribute(f, "otel.scope.name", "x");
    expect_attribute(f, "pyroscope_spy", "nodespy");
    expect_attribute(f, "__delta__", "false");
    expect_attribute(f, "pyroscope.name", "process_cpu");
    expect_out(f, "\"values\":[\"10000000\"]");
    expect_out(f, "\"timeUnixNano\":\"1767225601000000000\"");
    expect_out(f, "\"worker-1\"");
    assert_float_equal(fake_host_metric(f->h, "otelcol_receiver_accepted_profile_samples",
                                        "receiver=\"pyroscope\",transport=\"http\""),
                       1, 0);
}

/* gzip by its magic, by Content-Encoding, and both; a header alone is not believed. */
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
        put_pprof(&f->body, "cpu", "nanoseconds");
        for (unsigned k = 0; k < cases[i].layers; k++)
            gzip(f, &f->body);
        br_str_clear(&f->json);
        assert_int_equal(
            ask_wire(f, (struct ask){.path = PPROF, .encoding = cases[i].encoding}, &f->body), 200);
        expect_out(f, "\"values\":[\"10000000\"]");
    }
    wire_clear(&f->body);
    wire_raw(&f->body, "main;work 3\n", 12);
    gzip(f, &f->body);
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .encoding = "gzip"}, &f->body), 200);
    expect_out(f, "\"values\":[\"30000000\"]"); /* 3 at 100 Hz */
    f->body.data[f->body.len - 5] ^= 1;         /* the check sum */
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .encoding = "gzip"}, &f->body), 422);
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .encoding = "zstd"}, &f->body), 422);
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .encoding = "snail"}, &f->body), 415);
}

static void put_field(struct wire *w, const char *name, const struct wire *data)
{
    char head[256];
    int n = snprintf(head, sizeof head,
                     "--x\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s.bin\"\r\n"
                     "Content-Type: application/octet-stream\r\n\r\n",
                     name, name);
    wire_raw(w, head, (size_t)n);
    wire_raw(w, data->data, data->len);
    wire_raw(w, "\r\n", 2);
}

static void test_ingest_form(void **state)
{
    struct fixture *f = *state;
    static const char config[] =
        "{\"contentions\":{\"units\":\"lock_samples\",\"Display-Name\":\"block_count\","
        "\"aggregation\":null,\"cumulative\":false,\"unknown\":[1]},\"other\":null}";
    struct wire pprof = {0}, json = {0};
    put_pprof(&pprof, "contentions", "count");
    gzip(f, &pprof);
    wire_raw(&json, config, sizeof config - 1);
    put_field(&f->body, "profile", &pprof);
    put_field(&f->body, "sample_type_config", &json);
    wire_raw(&f->body, "--x--\r\n", 7);
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .type = FORM}, &f->body), 200);
    expect_attribute(f, "pyroscope.name", "block");
    assert_int_equal(ask_wire(f, (struct ask){.path = PPROF, .type = FORM}, &f->body), 200);
    expect_attribute(f, "pyroscope.name", "block");
    /* without the config Pyroscope's own mapping counts, whose contentions are a mutex's */
    wire_clear(&f->body);
    put_field(&f->body, "profile", &pprof);
    wire_raw(&f->body, "--x--\r\n", 7);
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .type = FORM}, &f->body), 200);
    expect_attribute(f, "pyroscope.name", "mutex");
    wire_free(&pprof);
    wire_free(&json);
}

static void test_ingest_bad_forms(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *query, *body, *why;
    } cases[] = {
        {INGEST, "--x--", "no field profile"},
        {INGEST, "no form", "there is no form"},
        {INGEST, "--x\r\nContent-Disposition: form-data; name=profile\r\n\r\n1", "cut off"},
        {INGEST, "--x\r\nContent-Disposition: form-data; name=prev_profile\r\n\r\n1\r\n--x--",
         "unsupported client version"},
        {INGEST "&format=jfr", "--x--", "no field jfr"},
        {INGEST "&format=jfr", "--x\r\nContent-Disposition: form-data; name=jfr\r\n\r\n\r\n--x--",
         "no field jfr"},
        {INGEST, "--x\r\nContent-Disposition: form-data; name=profile\r\n\r\n\x1f\x8b\r\n--x--",
         "field profile: "},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        assert_int_equal(
            ask_text(f, (struct ask){.path = cases[i].query, .type = FORM}, cases[i].body), 422);
        assert_non_null(strstr(last.body, cases[i].why));
        assert_non_null(strstr(last.body, "{\"code\":\"unknown\",\"message\":\""));
        assert_string_equal(last.type, "application/json");
    }
    assert_int_equal(ask_text(f, (struct ask){.path = INGEST, .type = "multipart/form-data"}, "x"),
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
    put_pprof(&pprof, "cpu", "nanoseconds");
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct wire json = {0};
        wire_raw(&json, cases[i].config, strlen(cases[i].config));
        wire_clear(&f->body);
        put_field(&f->body, "profile", &pprof);
        put_field(&f->body, "sample_type_config", &json);
        wire_raw(&f->body, "--x--\r\n", 7);
        assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .type = FORM}, &f->body),
                         cases[i].status);
        wire_free(&json);
    }
    wire_free(&pprof);
}

/* What is said how, and what is then made of the body. */
static void test_ingest_formats(void **state)
{
    struct fixture *f = *state;
    static const char speedscope[] =
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
        "\"shared\":{\"frames\":[{\"name\":\"main\"}]},\"profiles\":[{\"type\":\"sampled\","
        "\"name\":\"p\",\"unit\":\"nanoseconds\",\"startValue\":0,\"endValue\":5,"
        "\"samples\":[[0]],\"weights\":[5]}]}";
    /* a trie as Pyroscope's transporttrie writes it: name, value, children */
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
        unsigned status = ask(f, (struct ask){.path = path, .type = cases[i].type}, cases[i].body,
                              cases[i].len ? cases[i].len : strlen(cases[i].body));
        if (status != 200)
            print_error("%s: %u %s\n", cases[i].query, status, last.body);
        assert_int_equal(status, 200);
        expect_out(f, cases[i].value);
        expect_attribute(f, "pyroscope.name", "process_cpu");
    }
    static const char empty[] = "";
    assert_int_equal(ask_text(f, (struct ask){.path = PPROF}, empty), 200);
    assert_int_equal(ask_text(f, (struct ask){.path = INGEST}, empty), 200);
}

/* The type in the name's suffix; the label service_name and the name side by side. */
static void test_ingest_names(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(
        ask_text(f, (struct ask){.path = "/pyroscope/ingest?name=shop.alloc_space&from=now-1h"},
                 "main 5\n"),
        200);
    expect_attribute(f, "service.name", "shop");
    expect_attribute(f, "pyroscope.name", "memory");
    expect_attribute(f, "pyroscope_spy", "unknown");
    expect_out(f, "\"values\":[\"5\"]");
    assert_int_equal(
        ask_text(f, (struct ask){.path = "/ingest?name=old%7Bservice_name%3Dnew%7D"}, "main 5\n"),
        200);
    expect_attribute(f, "service.name", "new");
    expect_attribute(f, "app_name", "old");
    wire_clear(&f->body);
    put_pprof(&f->body, "cpu", "nanoseconds");
    assert_int_equal(
        ask_wire(f, (struct ask){.path = "/ingest?format=pprof&name=old%7Bservice_name%3Dnew%7D"},
                 &f->body),
        200);
    expect_attribute(f, "service.name", "new");
    expect_no_key(f, "app_name");
}

static void test_ingest_bad_names(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ask_text(f, (struct ask){.path = "/ingest"}, "main 5\n"), 400);
    assert_string_equal(last.body, "{\"code\":\"invalid_argument\","
                                   "\"message\":\"name: service name is required\"}");
    assert_int_equal(ask_text(f, (struct ask){.path = "/ingest?name=%7Ba%3Db%7D"}, "main 5\n"),
                     400);
    assert_int_equal(ask_text(f, (struct ask){.path = "/ingest?name=my.weird.app"}, "main 5\n"),
                     400);
    assert_non_null(strstr(last.body, "unknown profile type: app"));
    assert_int_equal(ask_text(f, (struct ask){.path = PPROF}, "main 5\n"), 422);
    assert_int_equal(ask_text(f, (struct ask){.path = INGEST "&format=jfr"}, "main 5\n"), 422);
    assert_int_equal(f->n, 0);
}

/* --- push.v1 ---------------------------------------------------------------------------------- */

static void expect_pushed(struct fixture *f)
{
    assert_int_equal(f->n, 1);
    expect_attribute(f, "service.name", "shop");
    expect_attribute(f, "k8s.pod", "p-1");
    expect_attribute(f, "service.name", "unknown_service");
    expect_attribute(f, "pyroscope.name", "process_cpu");
    expect_attribute(f, "pyroscope.name", "memory");
    expect_no_key(f, "__name__");
    expect_no_key(f, "service_name");
    expect_out(f, "\"profileId\":\"00112233445566778899aabbccddeeff\"");
    size_t n = 0;
    for (const char *p = f->json.data; (p = strstr(p, "\"values\":[\"10000000\"]")); p++)
        n++;
    assert_int_equal(n, 3);
    f->n = 0;
    br_str_clear(&f->json);
}

static void test_push_connect(void **state)
{
    struct fixture *f = *state;
    put_push(f, &f->body);
    struct ask a = {.path = PUSH,
                    .type = "application/proto",
                    .header = "connect-protocol-version",
                    .value = "1"};
    assert_int_equal(ask_wire(f, a, &f->body), 200);
    assert_int_equal(last.body_len, 0);
    assert_string_equal(last.type, "application/proto");
    expect_pushed(f);
    gzip(f, &f->body);
    a.encoding = "gzip";
    assert_int_equal(ask_wire(f, a, &f->body), 200);
    expect_pushed(f);
    a.encoding = "br";
    assert_int_equal(ask_wire(f, a, &f->body), 501);
    assert_non_null(strstr(last.body, "\"unimplemented\""));
    a.encoding = NULL;
    a.value = "2";
    assert_int_equal(ask_wire(f, a, &f->body), 400);
}

/* The same with names as ProtoJSON and the schema write them; what is unknown is skipped. */
static void test_push_json(void **state)
{
    struct fixture *f = *state;
    static const char *const keys[] = {"rawProfile", "raw_profile"};
    struct br_str json = {0};
    struct wire pprof = {0};
    put_pprof(&pprof, "cpu", "nanoseconds");
    for (size_t i = 0; i < BR_COUNT(keys); i++) {
        br_str_clear(&json);
        br_str_printf(&json,
                      "{\"series\":[{\"labels\":[{\"name\":\"__name__\",\"value\":"
                      "\"process_cpu\"},{\"name\":\"service_name\",\"value\":\"s\"}],"
                      "\"samples\":[{\"%s\":\"",
                      keys[i]);
        br_str_base64(&json, pprof.data, pprof.len);
        br_str_puts(&json, "\",\"ID\":\"" ID "\",\"later\":1}],\"annotations\":[{}]}]}");
        struct ask a = {.path = PUSH, .type = "application/json; charset=utf-8"};
        assert_int_equal(ask(f, a, json.data, json.len), 200);
        assert_string_equal(last.body, "{}");
        assert_string_equal(last.type, "application/json");
        expect_attribute(f, "pyroscope.name", "process_cpu");
        expect_attribute(f, "service.name", "s");
        expect_out(f, "\"profileId\":\"00112233445566778899aabbccddeeff\"");
        br_str_clear(&f->json);
    }
    assert_int_equal(
        ask_text(f, (struct ask){.path = PUSH, .type = "application/json"}, "{\"series\":1}"), 400);
    assert_non_null(strstr(last.body, "{\"code\":\"invalid_argument\""));
    wire_free(&pprof);
    br_str_release(&json);
}

static void test_push_grpc(void **state)
{
    struct fixture *f = *state;
    put_push(f, &f->body);
    (void)ask_wire(f, (struct ask){.path = PUSH, .type = "application/grpc+proto"}, &f->body);
    assert_true(last.grpc);
    assert_int_equal(last.grpc_status, 0);
    expect_pushed(f);
    assert_float_equal(fake_host_metric(f->h, "otelcol_receiver_accepted_profile_samples",
                                        "receiver=\"pyroscope\",transport=\"grpc\""),
                       3, 0);
    (void)ask_text(f, (struct ask){.path = PUSH, .type = "application/grpc"}, "\xff");
    assert_int_equal(last.grpc_status, 3);
    (void)ask_text(
        f,
        (struct ask){
            .path = PUSH, .type = "application/grpc", .header = "grpc-encoding", .value = "br"},
        "");
    assert_int_equal(last.grpc_status, 12);
    (void)ask_text(f, (struct ask){.path = "/other.Service/Method", .type = "application/grpc"},
                   "");
    assert_int_equal(last.grpc_status, 12);
}

static void put_frame(struct wire *w, unsigned flags, const struct wire *message)
{
    wire_byte(w, flags);
    for (int shift = 24; shift >= 0; shift -= 8)
        wire_byte(w, (unsigned)(message->len >> shift) & 0xff);
    wire_raw(w, message->data, message->len);
}

/* A frame of length 0, then the trailers in a frame with flag 0x80. */
static void test_push_web(void **state)
{
    struct fixture *f = *state;
    static const char ok[] = "\0\0\0\0\0\x80\0\0\0\x10grpc-status: 0\r\n";
    struct wire message = {0};
    put_push(f, &message);
    put_frame(&f->body, 0, &message);
    struct ask a = {.path = PUSH, .type = "application/grpc-web+proto"};
    assert_int_equal(ask_wire(f, a, &f->body), 200);
    assert_string_equal(last.type, "application/grpc-web+proto");
    assert_int_equal(last.body_len, sizeof ok - 1);
    assert_memory_equal(last.body, ok, sizeof ok - 1);
    expect_pushed(f);
    gzip(f, &message);
    wire_clear(&f->body);
    put_frame(&f->body, 1, &message);
    a.header = "grpc-encoding";
    a.value = "gzip";
    assert_int_equal(ask_wire(f, a, &f->body), 200);
    expect_pushed(f);
    a.value = "br";
    assert_int_equal(ask_wire(f, a, &f->body), 200);
    assert_memory_equal(last.body, "\x80\0\0\0", 4);
    assert_non_null(strstr(last.body + 5, "grpc-status: 12\r\n"));
    wire_free(&message);
}

static void test_push_web_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *body;
        size_t len;
    } cases[] = {
        {"", 0},           {"\0\0\0\0", 4},     {"\0\0\0\0\1", 5},     {"\0\0\0\0\0x", 6},
        {"\1\0\0\0\0", 5}, {"\x80\0\0\0\0", 5}, {"\0\0\0\0\1\xff", 6},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct ask a = {.path = PUSH, .type = "application/grpc-web"};
        assert_int_equal(ask(f, a, cases[i].body, cases[i].len), 200);
        assert_int_equal((uint8_t)last.body[0], 0x80);
        assert_non_null(strstr(last.body + 5, "grpc-status: 3\r\ngrpc-message: "));
    }
    assert_int_equal(
        ask_text(f, (struct ask){.path = PUSH, .type = "application/grpc-web-text"}, ""), 415);
    assert_int_equal(f->n, 0);
}

static void put_bad_sample(struct wire *w)
{
    size_t at = wire_open(w, 2);
    wire_str(w, 1, "no pprof");
    wire_close(w, at);
}

static void test_push_refused(void **state)
{
    struct fixture *f = *state;
    struct wire sample = {0}, bad = {0};
    put_sample(f, &sample, false, ID);
    put_bad_sample(&bad);
    static const struct {
        const char *names[3], *why;
        bool bad, none;
    } cases[] = {
        {{NULL}, "at least one label", false, false},
        {{"service_name"}, "invalid metric name", false, false},
        {{"__name__", "a", "a"}, "duplicate label name: a", false, false},
        {{"__name__", ""}, "a label has no name", false, false},
        {{"__name__"}, "no profiles received", false, true},
        {{"__name__"}, "series[0].samples[0]: ", true, false},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        wire_clear(&f->body);
        size_t series = wire_open(&f->body, 1);
        for (int k = 0; k < 3 && cases[i].names[k]; k++)
            put_label(&f->body, cases[i].names[k], "v");
        if (!cases[i].none)
            wire_raw(&f->body, cases[i].bad ? bad.data : sample.data,
                     cases[i].bad ? bad.len : sample.len);
        wire_close(&f->body, series);
        assert_int_equal(
            ask_wire(f, (struct ask){.path = PUSH, .type = "application/proto"}, &f->body), 400);
        assert_non_null(strstr(last.body, cases[i].why));
        assert_non_null(strstr(last.body, "{\"code\":\"invalid_argument\""));
        assert_string_equal(last.type, "application/json");
    }
    assert_int_equal(ask_text(f, (struct ask){.path = PUSH, .type = "application/proto"}, ""), 400);
    assert_int_equal(ask_text(f, (struct ask){.path = PUSH, .type = "application/proto"}, "\xff"),
                     400);
    assert_int_equal(f->n, 0);
    wire_free(&sample);
    wire_free(&bad);
}

static double metric(struct fixture *f, const char *what)
{
    char name[96];
    (void)snprintf(name, sizeof name, "otelcol_receiver_%s_profile_samples", what);
    return fake_host_metric(f->h, name, "receiver=\"pyroscope\",transport=\"http\"");
}

/* As with Pyroscope, what is good goes on and the answer says what was not; and when the good is to
 * come once more, or is refused, that is the answer. */
static void test_push_partly(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum br_verdict verdict;
        enum br_status status;
        unsigned want;
        const char *says;
    } cases[] = {
        {BR_DONE, BR_STATUS_OK, 400,
         "{\"code\":\"invalid_argument\",\"message\":\"4 of the profiles left out, the others "
         "taken: series[0].samples[1]: "},
        {BR_RETRY, BR_STATUS_UNAVAILABLE, 503, "\"unavailable\""},
        {BR_REJECT, BR_STATUS_PERMISSION_DENIED, 400, "\"failed_precondition\""},
    };
    size_t series = wire_open(&f->body, 1);
    put_label(&f->body, "__name__", "process_cpu");
    put_label(&f->body, "service_name", "shop");
    put_sample(f, &f->body, true, ID);
    put_bad_sample(&f->body);
    put_sample(f, &f->body, false, "");
    put_bad_sample(&f->body);
    wire_close(&f->body, series);
    series = wire_open(&f->body, 1);
    put_label(&f->body, "service_name", "without a name");
    put_sample(f, &f->body, false, "");
    put_sample(f, &f->body, false, "");
    wire_close(&f->body, series);
    series = wire_open(&f->body, 1);
    wire_close(&f->body, series); /* nothing in it to be good or bad */
    series = wire_open(&f->body, 1);
    put_label(&f->body, "__name__", "memory");
    put_label(&f->body, "k8s.pod", "p-1");
    put_sample(f, &f->body, false, "");
    wire_close(&f->body, series);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        f->outcome = (struct br_outcome){.verdict = cases[i].verdict, .status = cases[i].status};
        struct ask a = {.path = PUSH, .type = "application/proto"};
        assert_int_equal(ask_wire(f, a, &f->body), cases[i].want);
        assert_non_null(strstr(last.body, cases[i].says));
        assert_null(strstr(f->json.data, "without a name"));
        expect_pushed(f);
    }
    assert_float_equal(metric(f, "accepted"), 3, 0);
    assert_float_equal(metric(f, "refused"), 3, 0);
    assert_float_equal(metric(f, "failed"), 4 * 3 + 3, 0);
    f->outcome = BR_OUTCOME_DONE;
    (void)ask_wire(f, (struct ask){.path = PUSH, .type = "application/grpc"}, &f->body);
    assert_int_equal(last.grpc_status, 3);
    expect_pushed(f);
}

/* --- The rest of the port --------------------------------------------------------------------- */

static void test_otlp(void **state)
{
    struct fixture *f = *state;
    static const char json[] = "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"key\":"
                               "\"service.name\",\"value\":{\"stringValue\":\"o\"}}]}}]}";
    assert_int_equal(
        ask_text(f, (struct ask){.path = OTLP, .type = "application/json; charset=utf-8"}, json),
        200);
    assert_string_equal(last.body, "{}");
    expect_attribute(f, "service.name", "o");
    assert_int_equal(ask_text(f, (struct ask){.path = OTLP, .type = "application/protobuf"}, ""),
                     200);
    assert_int_equal(ask_text(f, (struct ask){.path = OTLP, .type = "application/x-protobuf"}, ""),
                     200);
    assert_int_equal(ask_text(f, (struct ask){.path = OTLP, .type = "text/plain"}, ""), 415);
    assert_int_equal(
        ask_text(f, (struct ask){.path = OTLP, .type = "application/x-protobuf"}, "\xff"), 400);
    (void)ask_text(f, (struct ask){.path = EXPORT, .type = "application/grpc"}, "");
    assert_true(last.grpc);
    assert_int_equal(last.grpc_status, 0);
    /* traces have no place here */
    (void)ask_text(
        f,
        (struct ask){.path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                     .type = "application/grpc"},
        "");
    assert_int_equal(last.grpc_status, 12);
    assert_int_equal(
        ask_text(f, (struct ask){.path = "/v1/traces", .type = "application/x-protobuf"}, ""), 404);
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
        assert_int_equal(ask_text(f, a, ""), cases[i].status);
        assert_true((cases[i].status == 405) == (strstr(last.headers, "allow: POST") != NULL));
    }
    assert_int_equal(f->n, 0);
}

static void test_ready_while_draining(void **state)
{
    struct fixture *f = *state;
    f->node.draining = true;
    assert_int_equal(ask_text(f, (struct ask){.path = "/ready", .method = "GET"}, ""), 503);
    assert_int_equal(ask_text(f, (struct ask){.path = INGEST}, "main 1\n"), 503);
    assert_non_null(strstr(last.headers, "retry-after: 1\n"));
}

/* How an item ends, and what each protocol makes of it. */
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
        {BR_RETRY, BR_STATUS_RESOURCE_EXHAUSTED, 9000, 429, 429, 14, "resource_exhausted",
         "retry-after: 9\n"},
        {BR_REJECT, BR_STATUS_INVALID_ARGUMENT, 0, 400, 400, 3, "invalid_argument", NULL},
        {BR_REJECT, BR_STATUS_RESOURCE_EXHAUSTED, 0, 413, 413, 8, "resource_exhausted", NULL},
        {BR_REJECT, BR_STATUS_UNKNOWN, 0, 422, 400, 2, "unknown", NULL},
        {BR_REJECT, BR_STATUS_UNIMPLEMENTED, 0, 404, 404, 12, "unimplemented", NULL},
        /* never 401, nor what SDKs would repeat on */
        {BR_REJECT, BR_STATUS_UNAUTHENTICATED, 0, 400, 400, 16, "failed_precondition", NULL},
        {BR_REJECT, BR_STATUS_PERMISSION_DENIED, 0, 400, 400, 7, "failed_precondition", NULL},
        {BR_REJECT, BR_STATUS_INTERNAL, 0, 400, 400, 13, "failed_precondition", NULL},
        {BR_REJECT, BR_STATUS_UNAVAILABLE, 0, 400, 400, 14, "failed_precondition", NULL},
    };
    put_push(f, &f->body);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        f->outcome = (struct br_outcome){.verdict = cases[i].verdict,
                                         .status = cases[i].status,
                                         .delay_ms = cases[i].delay_ms,
                                         .text = "be\"cause"};
        char want[128] = "";
        if (cases[i].code)
            (void)snprintf(want, sizeof want, "{\"code\":\"%s\",\"message\":\"be\\\"cause\"}",
                           cases[i].code);
        assert_int_equal(ask_text(f, (struct ask){.path = INGEST}, "main 1\n"), cases[i].ingest);
        assert_string_equal(last.body, want);
        assert_true(!cases[i].retry_after == !strstr(last.headers, "retry-after"));
        assert_true(!cases[i].retry_after || strstr(last.headers, cases[i].retry_after));
        assert_int_equal(
            ask_wire(f, (struct ask){.path = PUSH, .type = "application/proto"}, &f->body),
            cases[i].connect);
        assert_string_equal(last.body, want);
        assert_true(!cases[i].retry_after || strstr(last.headers, cases[i].retry_after));
        (void)ask_wire(f, (struct ask){.path = PUSH, .type = "application/grpc"}, &f->body);
        assert_int_equal(last.grpc_status, cases[i].grpc);
    }
}

static void test_no_pipeline(void **state)
{
    struct fixture *f = *state;
    f->node.next[BR_PROFILES] = NULL;
    assert_int_equal(ask_text(f, (struct ask){.path = INGEST}, "main 1\n"), 404);
    assert_int_equal(ask_text(f, (struct ask){.path = PUSH, .type = "application/proto"}, ""), 404);
    (void)ask_text(f, (struct ask){.path = PUSH, .type = "application/grpc"}, "");
    assert_int_equal(last.grpc_status, 12);
}

/* Over the limit as it comes, after its encoding, and after gzip wherever that is. */
static void test_too_large(void **state)
{
    struct fixture *f = *state;
    struct wire zeros = {0}, pushed = {0};
    static uint8_t none[LIMIT + 1];
    wire_raw(&zeros, none, sizeof none);
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST}, &zeros), 413);
    assert_int_equal(ask_wire(f, (struct ask){.path = PUSH, .type = "application/proto"}, &zeros),
                     413);
    gzip(f, &zeros);
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .encoding = "gzip"}, &zeros), 413);
    assert_int_equal(ask_wire(f, (struct ask){.path = PPROF}, &zeros), 413);
    assert_int_equal(
        ask_wire(f, (struct ask){.path = PUSH, .type = "application/proto", .encoding = "gzip"},
                 &zeros),
        413);
    put_field(&f->body, "profile", &zeros);
    wire_raw(&f->body, "--x--", 5);
    assert_int_equal(ask_wire(f, (struct ask){.path = INGEST, .type = FORM}, &f->body), 413);
    size_t series = wire_open(&pushed, 1);
    put_label(&pushed, "__name__", "x");
    size_t sample = wire_open(&pushed, 2);
    wire_len(&pushed, 1, zeros.data, zeros.len);
    wire_close(&pushed, sample);
    wire_close(&pushed, series);
    assert_int_equal(ask_wire(f, (struct ask){.path = PUSH, .type = "application/proto"}, &pushed),
                     413);
    assert_non_null(strstr(last.body, "\"resource_exhausted\""));
    (void)ask_wire(f, (struct ask){.path = PUSH, .type = "application/grpc"}, &pushed);
    assert_int_equal(last.grpc_status, 8);
    assert_int_equal(f->n, 0);
    wire_free(&zeros);
    wire_free(&pushed);
}

/* All that a request unpacks counts together. */
static void test_too_large_together(void **state)
{
    struct fixture *f = *state;
    struct wire text = {0};
    for (int i = 0; i < 20000; i++)
        wire_raw(&text, "\x6a\x00", 2); /* comments 0, 40000 bytes of a pprof */
    gzip(f, &text);
    for (unsigned n = 1; n <= 2; n++) {
        wire_clear(&f->body);
        size_t series = wire_open(&f->body, 1);
        put_label(&f->body, "__name__", "x");
        for (unsigned i = 0; i < n; i++) {
            size_t sample = wire_open(&f->body, 2);
            wire_len(&f->body, 1, text.data, text.len);
            wire_close(&f->body, sample);
        }
        wire_close(&f->body, series);
        unsigned status =
            ask_wire(f, (struct ask){.path = PUSH, .type = "application/proto"}, &f->body);
        assert_true(n == 1 ? status != 413 : status == 413);
    }
    wire_free(&text);
}

static void test_gone(void **state)
{
    struct fixture *f = *state;
    struct fake_request *r = fake_request_new(f->h, "pyroscope", PPROF);
    fake_request_begin(r);
    fake_request_gone(r);
    fake_request_free(r);
    r = fake_request_new(f->h, "pyroscope", INGEST);
    fake_request_send(r, "main 1\n", 7);
    fake_request_gone(r); /* with its item on the way */
    fake_host_turn(f->h);
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
        start(&f, cases[i].yaml);
        f.keys = (struct br_strings){keys, BR_COUNT(keys)};
        f.node.metadata_keys = &f.keys;
        struct ask a = {.path = INGEST, .header = cases[i].header, .value = "blue"};
        assert_int_equal(ask_text(&f, a, "main 1\n"), 200);
        assert_string_equal(f.metadata.data ? f.metadata.data : "", cases[i].want);
        assert_null(strstr(f.json.data, "blue"));
        end(&f);
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

/* Whatever fails, the request is answered: taken, or to be sent again. */
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
    start(&f, "");
    f.quiet = true;
    const struct wire text = {(uint8_t *)(uintptr_t) "main;a 1\n", 9, 9};
    const struct wire *body = requests[which].body ? requests[which].body : &text;
    fault_start();
    struct fake_request *r = fake_request_new(f.h, "pyroscope", requests[which].ask.path);
    if (requests[which].ask.type)
        fake_request_header(r, "content-type", requests[which].ask.type);
    fake_request_send(r, body->data, body->len);
    fake_host_turn(f.h);
    fault_stop();
    unsigned status = fake_request_reply(r)->status;
    unsigned good = which == 3 ? 400 : 200;
    if (status != good && !(fault_failed() && status == 503))
        print_error("request %zu: %u %s\n", which, status, fake_request_reply(r)->body);
    assert_true(status == good || (fault_failed() && status == 503));
    fake_request_free(r);
    end(&f);
}

static void test_faults(void **state)
{
    static const char config[] = "{\"cpu\":{\"units\":\"samples\"}}";
    struct fixture *f = *state;
    struct wire pprof = {0}, json = {0};
    put_pprof(&pprof, "cpu", "nanoseconds");
    gzip(f, &pprof);
    wire_raw(&json, config, sizeof config - 1);
    put_field(&fault_form, "profile", &pprof);
    put_field(&fault_form, "sample_type_config", &json);
    wire_raw(&fault_form, "--x--", 5);
    put_push(f, &fault_push);
    size_t series = wire_open(&fault_partly, 1);
    put_label(&fault_partly, "__name__", "x");
    put_bad_sample(&fault_partly);
    put_sample(f, &fault_partly, true, ID);
    wire_close(&fault_partly, series);
    for (size_t which = 0; which < 4; which++)
        fault_each("a request", scenario, &which);
    wire_free(&pprof);
    wire_free(&json);
    wire_free(&fault_form);
    wire_free(&fault_push);
    wire_free(&fault_partly);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_ingest_pprof),
        TEST(test_ingest_gzip),
        TEST(test_ingest_form),
        TEST(test_ingest_bad_forms),
        TEST(test_sample_type_config),
        TEST(test_ingest_formats),
        TEST(test_ingest_names),
        TEST(test_ingest_bad_names),
        TEST(test_push_connect),
        TEST(test_push_json),
        TEST(test_push_grpc),
        TEST(test_push_web),
        TEST(test_push_web_refused),
        TEST(test_push_refused),
        TEST(test_push_partly),
        TEST(test_otlp),
        TEST(test_routes),
        TEST(test_ready_while_draining),
        TEST(test_outcomes),
        TEST(test_no_pipeline),
        TEST(test_too_large),
        TEST(test_too_large_together),
        TEST(test_gone),
        cmocka_unit_test(test_tenant),
        cmocka_unit_test(test_config),
        TEST(test_faults),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    free(last.body);
    return rc;
}
