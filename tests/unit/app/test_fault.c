/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation fails in turn: those of the walk, of items, and of requests that pass through
 * a whole pipeline. Other modules have similar tests in their own suites: config, json, http1,
 * compression, tls, fanout, retry, queue, batch, graph, h2, and the create function of every
 * component (contract). */
#include <fcntl.h>

#include "app/config.h"
#include "app/graph.h"
#include "base/mem.h"
#include "otlp/walk/walk.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

/* --- Walk ------------------------------------------------------------------------------------- */

/* Walks a request for which the walk allocates every kind of memory: it has many parts, spans, two
 * Resource fields, and strings to repair. */
static void walk_scenario(void *arg)
{
    const enum br_signal signal = *(const enum br_signal *)arg;
    static struct br_walk_memo memo;
    const struct br_walk_options options = {.spans = true,
                                            .memo = signal == BR_PROFILES ? &memo : NULL};
    struct fake_host *h = fake_host_new();
    struct wire w = {0};
    for (uint64_t i = 0; i < 10; i++)
        items_request(&w, signal, i * 20, 20, 2);
    size_t rs = wire_open(&w, 1);
    for (int i = 0; i < 2; i++) {
        size_t resource = wire_open(&w, 1);
        wire_attribute(&w, 1, "k", "bad \xff");
        wire_close(&w, resource);
    }
    wire_close(&w, rs);
    struct br_buf *buf = br_buf_new(h->host.pool, w.len);
    memcpy(buf->data, w.data, w.len);
    buf->len = (uint32_t)w.len;
    fault_start();
    for (int i = 0; i < 2; i++) {
        struct br_err err = {0};
        uint32_t repaired = 0;
        struct br_item *item = br_item_new(&h->host, signal);
        int rc =
            item ? br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err) : BR_ENOMEM;
        assert_true(rc == 0 || (rc == BR_ENOMEM && fault_failed()));
        if (rc == 0) {
            assert_int_equal(repaired, 2);
            assert_int_equal(item->n_records, 200);
        }
        br_item_free(item);
    }
    fault_stop();
    br_walk_memo_release(&memo);
    br_buf_unref(buf);
    wire_free(&w);
    fake_host_free(h);
}

static void the_walk(void **state)
{
    (void)state;
    for (enum br_signal s = BR_TRACES; s <= BR_PROFILES; s++)
        fault_each("walk", walk_scenario, &s);
}

/* --- Items ------------------------------------------------------------------------------------ */

static void on_attempt(struct br_item *item, void *arg)
{
    unsigned *n = arg;
    (void)item;
    ++*n;
}

static void set_resources(struct br_item *item)
{
    struct br_buf *buf = br_buf_new(item->host->pool, 10);
    if (!buf)
        return;
    memset(buf->data, 0, 10);
    buf->len = 10;
    for (uint32_t i = 0; i < item->n_parts; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            br_item_set_resource(item, &item->parts[i], buf, buf->data, 10);
    br_buf_unref(buf);
}

static void item_scenario(void *arg)
{
    const enum br_signal signal = *(const enum br_signal *)arg;
    struct fake_host *h = fake_host_new();
    struct fake_tally tally = {0};
    struct br_rope rope = {0};
    unsigned n = 0, n_tries = 0;
    struct br_item *a = fake_tally_item(&tally, &h->host, signal, 0, 5);
    struct br_item *b = fake_tally_item(&tally, &h->host, signal, 5, 5);
    fault_start();
    struct br_item *into = br_item_new(&h->host, signal);
    if (into && (br_item_absorb(into, a) || br_item_absorb(into, b)))
        assert_true(fault_failed());
    br_item_done(a);
    br_item_done(b);
    if (into) {
        set_resources(into);
        int rc = br_item_write(into, &rope);
        assert_true(rc == 0 ? rope.len == into->size : rc == BR_ENOMEM && fault_failed());
        struct br_item *attempt = br_item_attempt(into, on_attempt, &n_tries);
        n += attempt != NULL;
        if (attempt)
            br_item_retry(attempt, BR_STATUS_UNAVAILABLE, 0, "x");
        fake_host_iterate(h);
        for (int i = 0; i < 3; i++) {
            struct br_item *child = items_child(into);
            if (child)
                br_item_done(child);
        }
        br_item_release_parent(into);
    }
    fake_host_iterate(h);
    fault_stop();
    br_rope_release(&rope);
    assert_int_equal(tally.n, 2);
    assert_int_equal(n_tries, n);
    fake_host_check_ledger(h);
    fake_host_free(h);
}

static void items(void **state)
{
    (void)state;
    for (enum br_signal s = BR_TRACES; s <= BR_PROFILES; s++)
        fault_each("item", item_scenario, &s);
}

/* --- A whole pipeline ------------------------------------------------------------------------- */

struct plan {
    const char *exporter; /* settings of the exporter */
    bool http;
    enum br_signal signal;
};

static void on_drained(void *arg)
{
    bool *drained = arg;
    *drained = true;
}

static struct br_config *load(const char *exporter)
{
    char yaml[1024];
    const char *uris[] = {yaml};
    struct br_config_sources sources = {.uris = uris, .n_uris = 1};
    struct br_config *config = NULL;
    struct br_errs errs = {0};
    int name = (int)strcspn(exporter, ":");
    (void)snprintf(yaml, sizeof yaml,
                   "yaml:{receivers: {otlp: {protocols: {grpc: , http: }}}, "
                   "processors: {batch: {send_batch_size: 8, send_batch_max_size: 8}}, "
                   "exporters: {%s}, service: {pipelines: {"
                   "traces: {receivers: [otlp], processors: [batch], exporters: [%.*s]}, "
                   "profiles: {receivers: [otlp], processors: [batch], exporters: [%.*s]}}}}",
                   exporter, name, exporter, name, exporter);
    if (br_config_load(&sources, br_components, &config, &errs))
        fail_msg("%s", errs.errors[0].text);
    br_errs_release(&errs);
    return config;
}

static struct fake_request *send_request(struct fake_host *h, const struct plan *plan,
                                         uint64_t first)
{
    static const char *const grpc[] = {
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"};
    static const char *const http[] = {"/v1/traces", "/v1development/profiles"};
    struct wire w = {0};
    struct fake_request *r = fake_request_new(h, plan->http ? "http" : "grpc",
                                              plan->http ? http[plan->signal] : grpc[plan->signal]);
    if (!r)
        return NULL;
    fake_request_header(r, "content-type",
                        plan->http ? "application/x-protobuf" : "application/grpc");
    items_request(&w, plan->signal, first, 5, 2);
    fake_request_send(r, w.data, w.len);
    wire_free(&w);
    return r;
}

static void pipeline_scenario(void *arg)
{
    const struct plan *plan = arg;
    struct fake_host *h = fake_host_new();
    struct br_config *config = load(plan->exporter);
    struct br_graph *graph = NULL;
    struct fake_request *requests[4] = {0};
    struct br_err err = {0};
    bool drained = false;
    unsigned n_ok = 0;
    fault_start();
    int rc = br_graph_new(config, &h->host, &graph, &err);
    if (!rc && !br_graph_start(graph, &err)) {
        for (uint64_t i = 0; i < 4; i++)
            requests[i] = send_request(h, plan, i * 5);
        fake_host_advance(h, 5000);
    }
    fault_stop();
    if (graph)
        br_graph_drain(graph, 60000, on_drained, &drained);
    fake_host_advance(h, 600000); /* memory is available again, so all items finish */
    assert_true(rc || drained);
    for (int i = 0; i < 4; i++) {
        if (!requests[i])
            continue;
        const struct fake_reply *reply = fake_request_reply(requests[i]);
        assert_true(reply->came);
        bool ok = reply->status == 200 && reply->grpc_status == 0;
        bool later =
            reply->grpc ? reply->grpc_status == BR_STATUS_UNAVAILABLE : reply->status == 503;
        assert_true(ok || (later && fault_failed()));
        n_ok += ok;
        fake_request_free(requests[i]);
    }
    /* Every accepted record is sent, or dropped because memory was exhausted. None is rejected. */
    double *sent = h->host.ledger.sent[plan->signal];
    assert_true(*sent + fake_host_dropped(h, plan->signal, NULL) == n_ok * 5.0);
    assert_true(fault_failed() || n_ok == 4);
    br_graph_free(graph);
    br_config_free(config);
    fake_host_check_ledger(h);
    fake_host_free(h);
}

static void requests_through_a_pipeline(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct plan plan = {
            .exporter = i & 4 ? "otlphttp: {endpoint: 'http://localhost:4318', compression: none, "
                                "sending_queue: {enabled: false}}"
                              : "otlp: {endpoint: 'localhost:4317', sending_queue: {batch: {}}}",
            .http = i & 2,
            .signal = i & 1 ? BR_PROFILES : BR_TRACES,
        };
        fault_each("pipeline", pipeline_scenario, &plan);
    }
}

/* --- Reload ----------------------------------------------------------------------------------- */

struct change {
    const char *before, *after; /* settings of the exporters */
};

static void reload_scenario(void *arg)
{
    const struct change *change = arg;
    const struct plan plan = {.signal = BR_TRACES};
    struct fake_host *h = fake_host_new();
    struct br_config *before = load(change->before), *after = load(change->after);
    struct br_graph *old = NULL, *new = NULL;
    struct fake_request *requests[2];
    struct br_err err = {0};
    bool drained = false, retired = false;
    assert_int_equal(br_graph_new(before, &h->host, &old, &err), 0);
    assert_int_equal(br_graph_start(old, &err), 0);
    requests[0] = send_request(h, &plan, 0);
    h->host.generation++;
    fault_start();
    int rc = br_graph_prepare(old, after, &new, &err);
    if (!rc)
        rc = br_graph_start_new(new, old, &err);
    fault_stop();
    assert_true(rc == 0 || fault_failed());
    if (rc && new)
        br_graph_cancel(new, old);
    if (!rc) {
        br_graph_commit(new, old);
        br_graph_retire(old, 60000, on_drained, &retired);
    }
    fake_host_advance(h, 5000);
    requests[1] = send_request(h, &plan, 5);
    fake_host_advance(h, 600000);
    assert_true(rc || retired);
    struct br_graph *used = rc ? old : new;
    if (!rc)
        br_graph_leave(old, new);
    br_graph_drain(used, 60000, on_drained, &drained);
    fake_host_advance(h, 600000);
    assert_true(drained);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fake_request_reply(requests[i])->grpc_status, 0);
        fake_request_free(requests[i]);
    }
    assert_true(*h->host.ledger.sent[BR_TRACES] == 10.0);
    br_graph_free(used);
    br_config_free(before);
    br_config_free(after);
    fake_host_check_ledger(h);
    fake_host_free(h);
}

static void a_reload(void **state)
{
    static const struct change changes[] = {
        {"otlp: {endpoint: 'localhost:4317'}", "otlp: {endpoint: 'localhost:4317'}"},
        {"otlp: {endpoint: 'localhost:4317'}", "otlp: {endpoint: 'localhost:4317', timeout: 6s}"},
        {"otlp: {endpoint: 'localhost:4317'}", "otlphttp: {endpoint: 'http://localhost:4318'}"},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(changes); i++) {
        struct change change = changes[i];
        fault_each("reload", reload_scenario, &change);
    }
}

SUITE(fault)
{
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_walk),
        cmocka_unit_test(items),
        cmocka_unit_test(requests_through_a_pipeline),
        cmocka_unit_test(a_reload),
    };
    return RUN(tests, NULL, NULL);
}
