/* SPDX-License-Identifier: Apache-2.0 */
/* How the OTLP exporters handle responses: which errors mean that a request is too large, which
 * ones ask for a delay, and how many requests follow. */
#include "base/log.h"
#include "base/mem.h"
#include "egress/call.h"
#include "pipeline/exporter.h"
#include "tests/support/fake_sink.h"
#include "tests/support/node_rig.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_otlp_exporter;
extern const struct br_component br_otlphttp_exporter;

struct fixture {
    struct node_rig rig;
    struct br_retry_config config;
    struct br_retry *retry;
    struct br_consumer exporter;
    struct fake_tally tally;
};

static void on_item(struct br_consumer *self, struct br_item *item)
{
    struct fixture *f = br_container_of(self, struct fixture, exporter);
    f->rig.node.component->consume(&f->rig.node, item);
}

static struct fake_answer on_exchange(const struct br_exchange *x, void *arg)
{
    (void)x;
    return *(const struct fake_answer *)arg;
}

static void start(struct fixture *f, const struct br_component *component,
                  const struct fake_answer *answer)
{
    *f = (struct fixture){.exporter.consume = on_item};
    f->config = (struct br_retry_config){.enabled = true,
                                         .initial_interval = 5000000000,
                                         .max_interval = 30000000000,
                                         .max_elapsed_time = 300000000000,
                                         .multiplier = 1.5};
    node_rig_begin(&f->rig, component, "{endpoint: \"http://localhost:1\"}");
    f->rig.h->answer = on_exchange;
    f->rig.h->answer_arg = (void *)(uintptr_t)answer;
    f->rig.node.in_pipeline[BR_TRACES] = true;
    rig_node_start(&f->rig.node);
    f->retry = br_retry_new(&f->rig.node, &f->config, &f->exporter);
}

static void send(struct fixture *f, uint32_t n)
{
    br_consume(br_retry_input(f->retry),
               fake_tally_item(&f->tally, &f->rig.h->host, BR_TRACES, 0, n));
    fake_host_iterate(f->rig.h);
}

static void end(struct fixture *f)
{
    br_retry_free(f->retry);
    fake_host_iterate(f->rig.h);
    node_rig_end(&f->rig);
}

/* Messages from the source code of the servers. */
static void size_errors_are_recognised(void **state)
{
    static const char *const size[] = {
        "grpc: received message larger than max (5242880 vs. 4194304)", /* grpc-go */
        "grpc: received message after decompression larger than max (5242880 vs. 4194304)",
        "grpc: received message after decompression larger than max 4194304",
        "grpc: message after decompression larger than max (5242880 vs. 4194304)",
        "grpc: received message larger than max length allowed on current machine (9 vs. 8)",
        "Received message larger than max (5242880 vs. 4194304)", /* grpc's core: C++, Python */
        "SERVER: Received message larger than max (5242880 vs. 4194304)",
        "Received message larger than max (10485832 vs 4194304)", /* grpc-js */
        "gRPC message exceeds maximum size 4194304: 5242880",     /* grpc-java */
        "Decompressed gRPC message exceeds maximum size 4194304",
        "Compressed gRPC message exceeds maximum size 4194304: 5242880 bytes read",
        "Error, message length too large: found 24732228 bytes, the limit is: 20971520 bytes",
        "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes", /* tonic */
        "Received message exceeds the maximum configured message size.", /* grpc-dotnet */
        "message size 5242880 is larger than configured max 4194304",    /* connect-go */
        "message is larger than configured max 4194304 - unable to determine message size: EOF",
        /* Mimir */
        ("the incoming push request has been rejected because its message size of 104857601 bytes "
         "is larger than the allowed limit of 104857600 bytes"),
        "http: request body too large", /* net/http, which the Collector uses, too */
        "413 Request Entity Too Large", /* nginx */
        "Payload Too Large",            /* Envoy */
        "Content Too Large",
        "the request is larger than 67108864 bytes", /* Braid */
        "decompresses to more than 67108864 bytes",
    };
    static const char *const other[] = {
        "",
        "no message",
        ("RATE_LIMITED: ingestion rate limit (local: 15000000 bytes/s, global: 0 bytes/s, burst: "
         "20000000 bytes) exceeded while adding 5242880 bytes for user single-tenant."), /* Tempo */
        ("TRACE_TOO_LARGE: max size of trace (5000000) exceeded while adding 387 bytes to trace "
         "a0fbd6f9ac5e2077d90a19551dd67b6f for tenant single-tenant"),
        ("LIVE_TRACES_EXCEEDED: max live traces exceeded for tenant single-tenant: per-user traces "
         "limit (local: 10000 global: 0 actual local: 10000) exceeded"),
        "data refused due to high memory usage", /* the Collector's memory_limiter */
        /* a message of Azure Cosmos DB with the status 429 */
        "request rate is too large",
        ("the request was rejected because the tenant exceeded the request rate limit, set to 1000 "
         "requests/s across all distributors"), /* Mimir */
        "Received message larger than the quota that is left",
        "too many requests in flight, larger than max",
        "sending queue is full",
        "out of memory: request too large for what is left of it",
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(size); i++)
        if (!br_call_is_too_large(size[i]))
            fail_msg("not about size: %s", size[i]);
    for (size_t i = 0; i < BR_COUNT(other); i++)
        if (br_call_is_too_large(other[i]))
            fail_msg("about size: %s", other[i]);
}

/* An overloaded backend receives one request per delay, which is 13 requests in 300 s. */
static void rate_limit_delays_requests(void **state)
{
    const struct fake_answer answer = {.grpc_status = BR_STATUS_RESOURCE_EXHAUSTED,
                                       .grpc_message =
                                           "RATE_LIMITED: ingestion rate limit (15000000 "
                                           "bytes) exceeded while adding 5242880 bytes"};
    struct fixture f;
    (void)state;
    start(&f, &br_otlp_exporter, &answer);
    send(&f, 8192);
    assert_int_equal(f.rig.h->n_exchanges, 1);
    fake_host_advance(f.rig.h, 4999);
    assert_int_equal(f.rig.h->n_exchanges, 1);
    fake_host_advance(f.rig.h, 600000);
    assert_int_equal(f.rig.h->n_exchanges, 13);
    assert_int_equal(f.tally.n_retry, 1);
    end(&f);
}

static void too_large_request_is_split(void **state)
{
    static const struct fake_answer answers[] = {
        {.grpc_status = BR_STATUS_RESOURCE_EXHAUSTED,
         .grpc_message = "grpc: received message larger than max (5242880 vs. 4194304)"},
        {.grpc_status = BR_STATUS_OUT_OF_RANGE,
         .grpc_message = "Error, decoded message length too large: found 5242880 bytes, the limit "
                         "is: 4194304 bytes"},
        {.http_status = 413, .grpc_status = -1}, /* from a proxy without gRPC support */
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(answers); i++) {
        struct fixture f;
        start(&f, &br_otlp_exporter, &answers[i]);
        send(&f, 2);
        assert_int_equal(f.rig.h->n_exchanges, 3);
        assert_int_equal(f.tally.n_reject, 1);
        assert_int_equal(f.tally.last.status, BR_STATUS_RESOURCE_EXHAUSTED);
        end(&f);
    }
}

static void too_large_request_is_split_over_http(void **state)
{
    static const struct {
        struct fake_answer answer;
        unsigned n_exchanges;
    } cases[] = {
        {{.http_status = 413}, 3},
        {{.http_status = 400,
          .type = "text/plain",
          .body = "http: request body too large",
          .len = 28},
         3},
        {{.http_status = 400, .type = "text/plain", .body = "malformed", .len = 9}, 1},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fixture f;
        start(&f, &br_otlphttp_exporter, &cases[i].answer);
        send(&f, 2);
        assert_int_equal(f.rig.h->n_exchanges, cases[i].n_exchanges);
        assert_int_equal(f.tally.n_reject, 1);
        end(&f);
    }
}

/* A response that is not gRPC is a permanent error, and its message names the right port. */
static void web_server_is_reported(void **state)
{
    static const struct {
        struct fake_answer answer;
        const char *words;
    } cases[] = {
        {{.http_status = 308, .grpc_status = -1, .location = "https://tempo.test/"},
         "HTTP 308 is not followed (gRPC does not define redirects); Location: "
         "https://tempo.test/"},
        {{.http_status = 301, .grpc_status = -1}, "Location: none"},
        {{.http_status = 404, .grpc_status = -1}, "use the server's gRPC port (OTLP: 4317)"},
        {{.http_status = 415, .grpc_status = -1}, "use the server's gRPC port (OTLP: 4317)"},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fixture f;
        start(&f, &br_otlp_exporter, &cases[i].answer);
        send(&f, 2);
        assert_int_equal(f.rig.h->n_exchanges, 1);
        assert_int_equal(f.tally.n_reject, 1);
        assert_non_null(strstr(f.tally.last.text, cases[i].words));
        end(&f);
    }
}

/* Returns partial_success { rejected_spans = 2 }, compressed as a server does it. */
static struct br_buf *make_packed(struct fixture *f, enum br_encoding encoding)
{
    static const uint8_t partial[] = {0x0a, 0x02, 0x08, 0x02};
    struct br_codec *codec = br_codec_new();
    struct br_buf *plain = br_buf_new(f->rig.h->host.pool, sizeof partial), *packed = NULL;
    struct br_rope rope = {0};
    assert_int_equal(br_buf_append(&plain, partial, sizeof partial, sizeof partial), 0);
    assert_int_equal(br_rope_add(&rope, plain, plain->data, plain->len), 0);
    assert_int_equal(br_compress(codec, encoding, 0, &rope, 0, f->rig.h->host.pool, &packed), 0);
    br_rope_release(&rope);
    br_buf_unref(plain);
    br_codec_free(codec);
    return packed;
}

static void compressed_response_is_read(void **state)
{
    static const struct {
        const char *content_encoding;
        uint32_t n_rejected;
        enum br_encoding encoding;
    } cases[] = {
        {"gzip", 2, BR_ENCODING_GZIP},       {"x-gzip", 2, BR_ENCODING_GZIP},
        {"deflate", 2, BR_ENCODING_DEFLATE}, {"zstd", 2, BR_ENCODING_ZSTD},
        {"snappy", 0, BR_ENCODING_GZIP},     {"zstd", 0, BR_ENCODING_GZIP},
    };
    static const struct br_component *const components[] = {&br_otlp_exporter,
                                                            &br_otlphttp_exporter};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases) * BR_COUNT(components); i++) {
        struct fake_answer answer = {.encoding = cases[i / 2].content_encoding};
        struct fixture f;
        start(&f, components[i % 2], &answer);
        struct br_buf *packed = make_packed(&f, cases[i / 2].encoding);
        answer.body = packed->data;
        answer.len = packed->len;
        send(&f, 5);
        assert_int_equal(f.rig.h->n_exchanges, 1);
        assert_int_equal(f.tally.n_done, 1);
        assert_int_equal(f.tally.last.n_rejected, cases[i / 2].n_rejected);
        br_buf_unref(packed);
        end(&f);
    }
}

/* After a request without a response the client is asked to reconnect; queued items are sent
 * once it has a connection. */
static void queued_items_are_sent_after_reconnect(void **state)
{
    static const struct br_component *const components[] = {&br_otlp_exporter,
                                                            &br_otlphttp_exporter};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(components); i++) {
        struct fake_answer answer = {.error = BR_EIO};
        struct fixture f;
        start(&f, components[i], &answer);
        send(&f, 2);
        send(&f, 2);
        fake_host_advance(f.rig.h, 5000);
        assert_int_equal(f.rig.h->n_exchanges, 4);
        assert_int_equal(f.rig.h->n_wanted, 4);
        answer = (struct fake_answer){0};
        f.rig.h->on_reachable(f.rig.h->on_reachable_arg);
        fake_host_advance(f.rig.h, 1000);
        assert_int_equal(f.tally.n_done, 2);
        assert_int_equal(f.rig.h->n_wanted, 4);
        end(&f);
    }
}

SUITE(otlp_exporter)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_errors_are_recognised),
        cmocka_unit_test(rate_limit_delays_requests),
        cmocka_unit_test(too_large_request_is_split),
        cmocka_unit_test(too_large_request_is_split_over_http),
        cmocka_unit_test(web_server_is_reported),
        cmocka_unit_test(compressed_response_is_read),
        cmocka_unit_test(queued_items_are_sent_after_reconnect),
    };
    br_log_setup(BR_LOG_ERROR, false, 2);
    return RUN(tests, NULL, NULL);
}
