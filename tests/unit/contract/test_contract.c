/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of every component in br_components, run in a real graph over a fake host: receiver
 * under test -> sink; source -> processor under test -> sink; source -> exporter under test.
 *
 * Every item finishes exactly once and is delivered at most once. If every destination accepts
 * items, all of them are delivered. No item is forwarded after the drain. At the end the ledger
 * balances, without held records, and all memory is released. New components are found in the
 * registry. If one has required settings or needs special requests, add a row to `settings` or
 * `drivers`.
 */
#include <fcntl.h>

#include "app/config.h"
#include "app/graph.h"
#include "base/mem.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

#define ITEMS 12 /* items of each signal in one run */
#define SIZE 5   /* records in each item */
#define SEEDS 12
#define LONG_MS 1200000 /* longer than any retry */

/* storage settings with a directory of this run; the suite sets them */
static char storage_yaml[96];

static const struct {
    enum br_kind kind;
    const char *name, *yaml;
} settings[] = {
    {BR_RECEIVER, "jaeger",
     "protocols: {grpc: , thrift_http: , thrift_compact: , thrift_binary: }"},
    {BR_RECEIVER, "otlp", "protocols: {grpc: , http: }"},
    {BR_RECEIVER, "pprof", "{targets: [{endpoint: 'http://localhost:6060'}], http: }"},
    {BR_PROCESSOR, "attributes", "actions: [{key: a, value: x, action: upsert}]"},
    {BR_PROCESSOR, "k8s_attributes", "{passthrough: true}"},
    {BR_PROCESSOR, "memory_limiter", "{check_interval: 1s, limit_mib: 64}"},
    {BR_PROCESSOR, "probabilistic_sampler", "{sampling_percentage: 100, fail_closed: false}"},
    {BR_PROCESSOR, "profile_limits", "{max_samples: 2, max_label_values: 1}"},
    {BR_PROCESSOR, "redaction", "{blocked_values: [a], function_names: {words: [b]}}"},
    {BR_PROCESSOR, "resource", "attributes: [{key: a, value: x, action: upsert}]"},
    {BR_PROCESSOR, "tail_sampling", "policies: [{name: all, type: always_sample}]"},
    {BR_PROCESSOR, "span", "status: {code: Ok}"},
    {BR_CONNECTOR, "failover", "priority_levels: [[traces/out, profiles/out]]"},
    {BR_CONNECTOR, "routing",
     "{table: [{condition: 'attributes[\"a\"] == 1', pipelines: [traces/out, profiles/out]}], "
     "default_pipelines: [traces/out, profiles/out]}"},
    {BR_EXPORTER, "debug", "{verbosity: detailed, output_paths: /dev/null}"},
    {BR_EXPORTER, "file", "path: /dev/null"},
    {BR_EXPORTER, "load_balancing",
     "{resolver: {static: {hostnames: ['localhost:1', 'localhost:2', 'localhost:3']}}}"},
    {BR_EXPORTER, "otlp", "endpoint: localhost:4317"},
    {BR_EXPORTER, "otlphttp", "endpoint: http://localhost:4318"},
    {BR_EXPORTER, "pyroscope", "endpoints: [\"http://localhost:4040\", \"http://localhost:4041\"]"},
    {BR_EXTENSION, "basicauth", "htpasswd: {inline: 'a:b'}"},
    {BR_EXTENSION, "bearertokenauth", "token: a"},
    {BR_EXTENSION, "control", "token: 0123456789abcdef"},
    {BR_EXTENSION, "file_storage", storage_yaml},
    {BR_EXTENSION, "headers_setter", "headers: [{key: a, value: b}]"},
    {BR_EXTENSION, "oauth2client",
     "{client_id: a, client_secret: b, token_url: 'http://localhost/token'}"},
};

/* Returns true for exporters that connect to their backend with a library, so that the test bed
 * cannot replace the backend. tests/e2e/test_kafka.py tests their deliveries. */
static bool has_real_backend(const struct br_component *c)
{
    return c->kind == BR_EXPORTER && strcmp(c->name, "kafka") == 0;
}

struct bed {
    const struct br_component *component;
    struct fake_host *h;
    struct br_arena arena;
    struct br_errs errs;
    struct br_instance source, under_test, sink_instance;
    struct br_instance *receivers[1], *processors[1], *exporters[1], *extensions[1];
    struct br_pipeline pipelines[2 * BR_SIGNALS];
    struct br_config config;
    struct br_graph *graph;
    struct fake_sink sink;
    struct br_node *source_node;
    enum fake_verdict verdict; /* the answer that the fake clients give to requests */
    uint64_t seed;
    uint64_t next[BR_SIGNALS]; /* for each signal: number of the next item */
    unsigned n_sent, n_back, n_done, n_drained;
    uint8_t *n_finished; /* for each item: how often it finished */
};

static struct bed *the_bed;

/* --- The neighbours in the graph -------------------------------------------------------------- */

static const struct br_option no_options[] = {BR_OPT_END};

static int source_create(struct br_node *node, struct br_err *err)
{
    (void)err;
    the_bed->source_node = node;
    return 0;
}

static const struct br_component source = {.name = "source",
                                           .kind = BR_RECEIVER,
                                           .signals = BR_BOTH_SIGNALS,
                                           .options = no_options,
                                           .state_size = 1,
                                           .create = source_create};

static void sink_consume(struct br_node *node, struct br_item *item)
{
    (void)node;
    br_consume(&the_bed->sink.consumer, item);
}

/* Exporters are drained last, so an item that arrives later was forwarded after its sender's
 * drain. */
static void sink_drain(struct br_node *node)
{
    the_bed->sink.closed = true;
    br_node_drained(node);
}

static void sink_destroy(struct br_node *node)
{
    (void)node;
    fake_sink_release(&the_bed->sink, FAKE_RETRY);
}

static const struct br_component sink = {.name = "sink",
                                         .kind = BR_EXPORTER,
                                         .signals = BR_BOTH_SIGNALS,
                                         .options = no_options,
                                         .state_size = 1,
                                         .consume = sink_consume,
                                         .drain = sink_drain,
                                         .destroy = sink_destroy};

/* Answers the requests that an exporter under test sends. */
static struct fake_answer answer(const struct br_exchange *x, void *arg)
{
    struct bed *b = arg;
    enum fake_verdict v = b->verdict;
    struct fake_answer a = {0};
    if (v == FAKE_RANDOM) {
        static const enum fake_verdict any[] = {FAKE_DONE, FAKE_LATE, FAKE_RETRY, FAKE_REJECT};
        v = any[fake_random(&b->seed) % 4];
    }
    a.never = v == FAKE_HOLD;
    a.delay_ms = v == FAKE_LATE ? 50 : 0;
    if (v == FAKE_RETRY || v == FAKE_REJECT) {
        a.grpc_status = v == FAKE_RETRY ? BR_STATUS_UNAVAILABLE : BR_STATUS_INVALID_ARGUMENT;
        unsigned http_status = v == FAKE_RETRY ? 503 : 400;
        a.http_status = x->grpc ? 200 : http_status;
    }
    return a;
}

/* --- The test bed ----------------------------------------------------------------------------- */

static const char *yaml_of(const struct br_component *c)
{
    for (size_t i = 0; i < BR_COUNT(settings); i++)
        if (settings[i].kind == c->kind && strcmp(settings[i].name, c->name) == 0)
            return settings[i].yaml;
    return "";
}

/* Reads the smallest configuration that the component accepts. The test fails if it is invalid. */
static const void *read_config(struct bed *b)
{
    const struct br_component *c = b->component;
    const char *yaml = yaml_of(c);
    struct br_yaml *tree = NULL;
    assert_int_equal(br_yaml_parse(yaml, strlen(yaml), "contract", &b->arena, &tree, &b->errs), 0);
    void *config = br_arena_calloc(&b->arena, 1, c->config_size);
    int rc = c->config_size
                 ? br_options_read(c->options, tree, c->name, config, &b->arena, &b->errs)
                 : 0;
    if (!rc && c->check)
        rc = c->check(config, tree, c->name, &b->arena, &b->errs);
    if (rc)
        fail_msg("%s %s cannot run with `%s` (is a row missing in `settings` of " __FILE__ "?): %s",
                 c->name, br_kind_name(c->kind), yaml,
                 b->errs.n_errors ? b->errs.errors[0].text : "");
    b->under_test.node = tree;
    return config;
}

static bool has_signal(const struct br_component *c, int s)
{
    return c->signals & BR_SIGNAL_BIT(s);
}

/* Adds a second pipeline, which receives the output of the connector under test. */
static void connect_second(struct bed *b, int s)
{
    struct br_pipeline *first = &b->pipelines[b->config.n_pipelines - 1];
    struct br_pipeline *second = &b->pipelines[b->config.n_pipelines++];
    *second = *first;
    second->id = s == BR_TRACES ? "traces/out" : "profiles/out";
    first->exporters = second->receivers = b->processors;
}

static void connect_pipelines(struct bed *b)
{
    enum br_kind kind = b->component->kind;
    b->receivers[0] = kind == BR_RECEIVER ? &b->under_test : &b->source;
    b->processors[0] = &b->under_test;
    b->exporters[0] = kind == BR_EXPORTER ? &b->under_test : &b->sink_instance;
    for (int s = 0; s < BR_SIGNALS; s++) {
        if (kind != BR_EXTENSION && !has_signal(b->component, s))
            continue;
        b->pipelines[b->config.n_pipelines++] =
            (struct br_pipeline){.id = s == BR_TRACES ? "traces" : "profiles",
                                 .signal = (enum br_signal)s,
                                 .receivers = b->receivers,
                                 .n_receivers = 1,
                                 .processors = b->processors,
                                 .n_processors = kind == BR_PROCESSOR || b->component->observes,
                                 .exporters = b->exporters,
                                 .n_exporters = 1};
        if (kind == BR_CONNECTOR && !b->component->observes)
            connect_second(b, s);
    }
    b->config.pipelines = b->pipelines;
    b->extensions[0] = &b->under_test;
    b->config.extensions = b->extensions;
    b->config.n_extensions = kind == BR_EXTENSION;
    b->config.workers = 1;
}

static struct bed *bed_new(const struct br_component *c)
{
    fault_watch();
    struct bed *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->n_finished = calloc(1, FAKE_SINK_NUMBERS);
    the_bed = b;
    b->component = c;
    b->h = fake_host_new();
    b->h->answer = answer;
    b->h->answer_arg = b;
    br_arena_init(&b->arena, 0);
    fake_sink_init(&b->sink, &b->h->host);
    b->source = (struct br_instance){.component = &source, .id = "source", .used = true};
    b->sink_instance = (struct br_instance){.component = &sink, .id = "sink", .used = true};
    b->under_test = (struct br_instance){.component = c, .id = c->name, .used = true};
    b->under_test.config = read_config(b);
    connect_pipelines(b);
    return b;
}

static void make_graph(struct bed *b)
{
    struct br_err err = {0};
    if (br_graph_new(&b->config, &b->h->host, &b->graph, &err))
        fail_msg("%s", err.text);
}

static void start_graph(struct bed *b)
{
    struct br_err err = {0};
    make_graph(b);
    if (br_graph_start(b->graph, &err))
        fail_msg("%s", err.text);
    fake_host_iterate(b->h);
}

static void free_graph(struct bed *b)
{
    br_graph_free(b->graph);
    b->graph = NULL;
    fake_host_iterate(b->h);
}

/* Checks the invariants that hold at the end of a run, and frees the test bed. */
static void bed_free(struct bed *b)
{
    free_graph(b);
    assert_int_equal(b->n_back, b->n_sent);
    for (unsigned i = 0; i < b->n_sent; i++)
        assert_int_equal(b->n_finished[i], 1);
    for (int s = 0; s < BR_SIGNALS; s++)
        assert_int_equal(fake_sink_twice(&b->sink, (enum br_signal)s), 0);
    fake_host_check_ledger(b->h);
    fake_sink_free(&b->sink);
    br_errs_release(&b->errs);
    br_arena_release(&b->arena);
    fake_host_free(b->h);
    free(b->n_finished);
    free(b);
    assert_int_equal(fault_alive(), 0);
    fault_unwatch();
}

static void on_back(struct br_item *item, void *arg)
{
    struct bed *b = the_bed;
    b->n_finished[(uintptr_t)arg]++;
    b->n_back++;
    b->n_done += item->outcome.verdict == BR_DONE;
}

static void send_item(struct bed *b, enum br_signal s)
{
    struct br_item *item = items_new(&b->h->host, s, b->next[s], SIZE);
    b->next[s] += SIZE;
    item->done = on_back;
    item->done_arg = (void *)(uintptr_t)b->n_sent++;
    br_node_forward(b->source_node, item);
}

static void send_items(struct bed *b)
{
    for (int i = 0; i < ITEMS; i++) {
        for (int s = 0; s < BR_SIGNALS; s++)
            if (has_signal(b->component, s))
                send_item(b, (enum br_signal)s);
        if (i % 3 == 2)
            fake_host_advance(b->h, 10);
    }
}

static void on_drained(void *arg)
{
    struct bed *b = arg;
    b->n_drained++;
}

static void drain(struct bed *b, uint64_t ms)
{
    /* If a neighbour is slow, the timeout of the drain is 1 ms. */
    br_graph_drain(b->graph, 1, on_drained, b);
    for (uint64_t at = 0; at < ms && !b->n_drained; at += 1000)
        fake_host_advance(b->h, 1000);
}

/* --- Receivers' requests ---------------------------------------------------------------------- */

struct session {
    struct fake_request *requests[64];
    unsigned n;
    unsigned n_answered, n_success;
};

/* Sends one OTLP request to each of the two listeners. */
static void drive_otlp(struct bed *b, struct session *session)
{
    static const char *const grpc_paths[] = {
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"};
    static const char *const http_paths[] = {"/v1/traces", "/v1development/profiles"};
    for (int s = 0; s < BR_SIGNALS; s++) {
        for (int http = 0; http < 2; http++) {
            struct wire w = {0};
            items_request(&w, (enum br_signal)s, b->next[s], SIZE, 2);
            b->next[s] += SIZE;
            struct fake_request *r = fake_request_new(b->h, http ? "http" : "grpc",
                                                      http ? http_paths[s] : grpc_paths[s]);
            assert_non_null(r);
            fake_request_header(r, "content-type",
                                http ? "application/x-protobuf" : "application/grpc");
            fake_request_send(r, w.data, w.len);
            session->requests[session->n++] = r;
            wire_free(&w);
        }
    }
}

static void drive_spans(struct bed *b, struct session *session, const char *server,
                        const char *path, const char *type, const void *data, size_t len)
{
    struct fake_request *r = fake_request_new(b->h, server, path);
    assert_non_null(r);
    fake_request_header(r, "content-type", type);
    fake_request_send(r, data, len);
    session->requests[session->n++] = r;
}

/* Sends one span to each listener. The last byte of the span's id is the number of the record. */
static void drive_jaeger(struct bed *b, struct session *session)
{
    /* a PostSpansRequest, and a Batch */
    static const char proto[] = "\x0a\x1e\x0a\x1c\x0a\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01"
                                "\x12\x08\0\0\0\0\0\0\0";
    static const char thrift[] = "\x0f\0\x02\x0c\0\0\0\x01\x0a\0\x01\0\0\0\0\0\0\0\x01"
                                 "\x0a\0\x03\0\0\0\0\0\0\0";
    struct wire w = {0};
    wire_raw(&w, proto, sizeof proto - 1);
    wire_byte(&w, (unsigned)++b->next[BR_TRACES]);
    drive_spans(b, session, "grpc", "/jaeger.api_v2.CollectorService/PostSpans", "application/grpc",
                w.data, w.len);
    w.len = 0;
    wire_raw(&w, thrift, sizeof thrift - 1);
    wire_byte(&w, (unsigned)++b->next[BR_TRACES]);
    wire_raw(&w, "\0", 2); /* ends the span and the batch */
    drive_spans(b, session, "thrift_http", "/api/traces", "application/x-thrift", w.data, w.len);
    wire_free(&w);
}

static void drive_zipkin(struct bed *b, struct session *session)
{
    char json[64];
    int len = snprintf(json, sizeof json, "[{\"traceId\":\"1\",\"id\":\"%x\"}]",
                       (unsigned)++b->next[BR_TRACES]);
    drive_spans(b, session, "http", "/api/v2/spans", "application/json", json, (size_t)len);
}

static const struct {
    const char *name;
    void (*drive)(struct bed *b, struct session *session);
} drivers[] = {
    {"jaeger", drive_jaeger},
    {"otlp", drive_otlp},
    {"zipkin", drive_zipkin},
};

/* Sends the requests of the component's row in `drivers`, if the component has a row. */
static void send_requests(struct bed *b, struct session *session)
{
    for (size_t i = 0; i < BR_COUNT(drivers); i++)
        if (strcmp(drivers[i].name, b->component->name) == 0)
            for (int k = 0; k < 4; k++)
                drivers[i].drive(b, session);
}

static void end_requests(struct session *session)
{
    for (unsigned i = 0; i < session->n; i++) {
        const struct fake_reply *reply = fake_request_reply(session->requests[i]);
        session->n_answered += reply->came;
        session->n_success += reply->came && reply->status / 100 == 2 && reply->grpc_status == 0;
        fake_request_free(session->requests[i]);
    }
}

/* --- The rules -------------------------------------------------------------------------------- */

static void check_options(const struct br_option *o, const char *path)
{
    char below[256];
    for (; o->name; o++) {
        if (!o->help || !o->help[0])
            fail_msg("%s::%s has no help", path, o->name);
        (void)snprintf(below, sizeof below, "%.120s::%.100s", path, o->name);
        if (o->sub)
            check_options(o->sub, below);
    }
}

static void is_described(void **state)
{
    const struct br_component *c = *state;
    assert_non_null(c->name);
    assert_true(c->help && c->help[0]);
    assert_true(c->stability && c->stability[0]);
    assert_non_null(c->options);
    check_options(c->options, c->name);
    assert_ptr_equal(br_component_find(br_components, c->kind, c->name), c);
    assert_true(c->kind == BR_EXTENSION ? c->signals == 0 : c->signals != 0);
    bool takes_items = c->kind == BR_PROCESSOR || c->kind == BR_EXPORTER || c->kind == BR_CONNECTOR;
    assert_int_equal(c->consume != NULL, takes_items);
}

static void is_created_and_destroyed(void **state)
{
    struct bed *b = bed_new(*state);
    make_graph(b);
    bed_free(b);
}

static void an_idle_graph_drains(void **state)
{
    struct bed *b = bed_new(*state);
    start_graph(b);
    fake_host_advance(b->h, 5000);
    drain(b, 60000);
    assert_int_equal(b->n_drained, 1);
    bed_free(b);
}

static void drains_before_the_start(void **state)
{
    struct bed *b = bed_new(*state);
    make_graph(b);
    drain(b, 60000);
    assert_int_equal(b->n_drained, 1);
    bed_free(b);
}

static void count_drained(struct br_node *node, void *arg)
{
    unsigned *n = arg;
    (void)node;
    ++*n;
}

static void a_second_drain_reports_once(void **state)
{
    struct bed *b = bed_new(*state);
    const struct br_component *c = b->component;
    unsigned n = 0;
    struct br_node node = {.component = c,
                           .id = c->name,
                           .config = b->under_test.config,
                           .host = &b->h->host,
                           .log.name = c->name,
                           .on_drained = count_drained,
                           .on_drained_arg = &n};
    node.state = br_calloc(1, c->state_size);
    for (int s = 0; s < BR_SIGNALS; s++) {
        node.in_pipeline[s] = has_signal(c, s);
        node.next[s] = has_signal(c, s) && c->kind != BR_EXPORTER ? &b->sink.consumer : NULL;
    }
    assert_int_equal(c->create ? c->create(&node, NULL) : 0, 0);
    assert_int_equal(c->start ? c->start(&node, NULL) : 0, 0);
    for (int i = 0; i < 2 && c->drain; i++) {
        node.draining = true;
        c->drain(&node);
        c->drain(&node);
        fake_host_advance(b->h, 5000);
        assert_int_equal(n, 1);
    }
    if (c->destroy)
        c->destroy(&node);
    br_free(node.state);
    bed_free(b);
}

static void a_graph_drained_twice_ends_well(void **state)
{
    if (has_real_backend(*state))
        return;
    struct bed *b = bed_new(*state);
    start_graph(b);
    if (b->source_node)
        send_items(b);
    br_graph_drain(b->graph, 60000, on_drained, b);
    drain(b, 60000);
    assert_true(b->n_drained >= 1);
    drain(b, 60000);
    bed_free(b);
}

static void failed_starts_release_everything(void **state)
{
    struct bed *b = bed_new(*state);
    struct br_err err = {0};
    make_graph(b);
    b->h->refuse_serve = b->h->refuse_connect = true;
    int rc = br_graph_start(b->graph, &err);
    assert_true(rc == 0 || (rc == BR_EIO && err.text[0]));
    bed_free(b);
}

/* Sends items to a destination that may give any answer, but answers in the end. */
static struct bed *run(const struct br_component *c, enum fake_verdict verdict, uint64_t seed)
{
    struct bed *b = bed_new(c);
    b->verdict = b->sink.verdict = verdict;
    b->seed = b->sink.seed = seed;
    start_graph(b);
    send_items(b);
    fake_host_advance(b->h, 1000);
    drain(b, LONG_MS);
    return b;
}

static void check_all_delivered(struct bed *b)
{
    assert_int_equal(b->n_drained, 1);
    assert_int_equal(b->n_back, b->n_sent);
    assert_int_equal(b->n_done, b->n_sent);
    for (int s = 0; s < BR_SIGNALS && b->component->kind != BR_EXPORTER; s++)
        assert_int_equal(fake_sink_once(&b->sink, (enum br_signal)s, 0, b->next[s]), b->next[s]);
}

static void accepting_destinations_receive_everything(void **state)
{
    if (has_real_backend(*state))
        return;
    struct bed *b = run(*state, FAKE_DONE, 0);
    check_all_delivered(b);
    bed_free(b);
}

static void late_answers_deliver_everything(void **state)
{
    if (has_real_backend(*state))
        return;
    struct bed *b = run(*state, FAKE_LATE, 0);
    check_all_delivered(b);
    bed_free(b);
}

static void rejected_items_end(void **state)
{
    if (has_real_backend(*state))
        return;
    struct bed *b = run(*state, FAKE_REJECT, 0);
    assert_int_equal(b->n_drained, 1);
    bed_free(b);
}

static void temporarily_failed_items_end(void **state)
{
    bed_free(run(*state, FAKE_RETRY, 0));
}

static void temporary_failures_deliver_everything(void **state)
{
    const struct br_component *c = *state;
    struct bed *b = bed_new(c);
    b->sink.first_fail = 3;
    start_graph(b);
    send_items(b);
    fake_host_advance(b->h, 1000);
    drain(b, LONG_MS);
    assert_int_equal(b->n_drained, 1);
    /* A rejected item was either returned to its sender, or kept and delivered later; never
     * both. */
    uint64_t delivered = 0;
    for (int s = 0; s < BR_SIGNALS; s++)
        delivered += fake_sink_once(&b->sink, (enum br_signal)s, 0, b->next[s]);
    assert_int_equal(delivered, (uint64_t)b->n_done * SIZE);
    bed_free(b);
}

static void random_answers_keep_the_invariants(void **state)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct bed *b = run(*state, FAKE_RANDOM, seed);
        if (!b->n_drained && b->component->kind != BR_EXPORTER)
            fail_msg("seed %llu: not drained", (unsigned long long)seed);
        bed_free(b);
    }
}

static void destroying_ends_items_in_progress(void **state)
{
    struct bed *b = bed_new(*state);
    b->verdict = b->sink.verdict = FAKE_HOLD;
    start_graph(b);
    send_items(b);
    fake_host_advance(b->h, 1000);
    send_items(b);
    bed_free(b);
    /* a component that is drained and cannot deliver */
    b = bed_new(*state);
    b->verdict = b->sink.verdict = FAKE_HOLD;
    start_graph(b);
    send_items(b);
    drain(b, 2000);
    bed_free(b);
}

static void answers_every_request(void **state)
{
    const struct br_component *c = *state;
    static const enum fake_verdict verdicts[] = {FAKE_DONE, FAKE_LATE, FAKE_RETRY, FAKE_REJECT,
                                                 FAKE_RANDOM};
    for (size_t i = 0; i < BR_COUNT(verdicts); i++) {
        struct session session = {0};
        struct bed *b = bed_new(c);
        b->sink.verdict = verdicts[i];
        start_graph(b);
        send_requests(b, &session);
        drain(b, 60000);
        assert_int_equal(b->n_drained, 1);
        end_requests(&session);
        assert_int_equal(session.n_answered, session.n);
        unsigned n_expected = 0;
        if (verdicts[i] == FAKE_DONE || verdicts[i] == FAKE_LATE)
            n_expected = session.n;
        else if (verdicts[i] == FAKE_RANDOM)
            n_expected = b->sink.n_done;
        assert_int_equal(session.n_success, n_expected);
        bed_free(b);
    }
}

static void clients_may_disconnect(void **state)
{
    const struct br_component *c = *state;
    struct session session = {0};
    struct bed *b = bed_new(c);
    b->sink.verdict = FAKE_LATE;
    start_graph(b);
    send_requests(b, &session);
    end_requests(&session);
    drain(b, 60000);
    assert_int_equal(b->n_drained, 1);
    bed_free(b);
}

static void requests_under_way_end_when_destroyed(void **state)
{
    const struct br_component *c = *state;
    struct session session = {0};
    struct bed *b = bed_new(c);
    b->sink.verdict = FAKE_HOLD;
    start_graph(b);
    send_requests(b, &session);
    drain(b, 2000);
    free_graph(b);
    end_requests(&session);
    bed_free(b);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void create_without_memory(void *arg)
{
    struct bed *b = calloc(1, sizeof *b);
    struct br_err err = {0};
    assert_non_null(b);
    the_bed = b;
    b->component = arg;
    b->h = fake_host_new();
    br_arena_init(&b->arena, 0);
    b->source = (struct br_instance){.component = &source, .id = "source"};
    b->sink_instance = (struct br_instance){.component = &sink, .id = "sink"};
    b->under_test = (struct br_instance){.component = arg, .id = b->component->name};
    b->under_test.config = read_config(b);
    fake_sink_init(&b->sink, &b->h->host);
    connect_pipelines(b);
    fault_start();
    int rc = br_graph_new(&b->config, &b->h->host, &b->graph, &err);
    assert_true(rc == 0 || (rc == BR_ENOMEM && fault_failed()));
    if (!rc) {
        rc = br_graph_start(b->graph, &err);
        assert_true(rc == 0 || fault_failed());
        fake_host_iterate(b->h);
        br_graph_free(b->graph);
    }
    fault_stop();
    fake_host_iterate(b->h);
    fake_sink_free(&b->sink);
    br_errs_release(&b->errs);
    br_arena_release(&b->arena);
    fake_host_free(b->h);
    free(b);
}

static void is_created_or_not_without_memory(void **state)
{
    const struct br_component *c = *state;
    fault_each(c->name, create_without_memory, *state);
}

/* --- Every rule for every component ----------------------------------------------------------- */

/* The kinds of component that a rule applies to. */
enum {
    RECEIVERS = 1u << BR_RECEIVER,
    PROCESSORS = 1u << BR_PROCESSOR | 1u << BR_CONNECTOR,
    CONSUMERS = PROCESSORS | 1u << BR_EXPORTER,
    ALL = ~0u >> 1,
};

static const struct {
    const char *name;
    unsigned kinds;
    CMUnitTestFunction fn;
} rules[] = {
#define RULE(kinds, fn)                                                                            \
    {                                                                                              \
#fn, kinds, fn                                                                             \
    }
    RULE(ALL, is_described),
    RULE(ALL, is_created_and_destroyed),
    RULE(ALL, an_idle_graph_drains),
    RULE(ALL, drains_before_the_start),
    RULE(ALL, a_second_drain_reports_once),
    RULE(ALL, a_graph_drained_twice_ends_well),
    RULE(ALL, failed_starts_release_everything),
    RULE(CONSUMERS, accepting_destinations_receive_everything),
    RULE(CONSUMERS, late_answers_deliver_everything),
    RULE(PROCESSORS, temporary_failures_deliver_everything),
    RULE(CONSUMERS, rejected_items_end),
    RULE(CONSUMERS, temporarily_failed_items_end),
    RULE(CONSUMERS, random_answers_keep_the_invariants),
    RULE(CONSUMERS, destroying_ends_items_in_progress),
    RULE(RECEIVERS, answers_every_request),
    RULE(RECEIVERS, clients_may_disconnect),
    RULE(RECEIVERS, requests_under_way_end_when_destroyed),
    RULE(ALL, is_created_or_not_without_memory),
};

SUITE(contract)
{
    size_t n = 0, n_components = 0;
    char data[] = "/tmp/test_contract.XXXXXX", command[64]; /* the directory of `store` */
    if (!mkdtemp(data) || setenv("XDG_DATA_HOME", data, 1))
        return 1;
    (void)snprintf(storage_yaml, sizeof storage_yaml,
                   "{directory: %s/queue, create_directory: true}", data);
    while (br_components[n_components])
        n_components++;
    struct CMUnitTest *tests = calloc(n_components * BR_COUNT(rules), sizeof *tests);
    char(*names)[128] = calloc(n_components * BR_COUNT(rules), sizeof *names);
    if (!tests || !names)
        return 1;
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    for (size_t i = 0; i < n_components; i++) {
        for (size_t k = 0; k < BR_COUNT(rules); k++) {
            const struct br_component *c = br_components[i];
            if (!(rules[k].kinds & 1u << c->kind))
                continue;
            (void)snprintf(names[n], sizeof names[n], "%s %s %s", c->name, br_kind_name(c->kind),
                           rules[k].name);
            tests[n] = (struct CMUnitTest){
                .name = names[n], .test_func = rules[k].fn, .initial_state = (void *)(uintptr_t)c};
            n++;
        }
    }
    int failed = test_run(tests, n, NULL, NULL, NULL);
    free(tests);
    free(names);
    (void)snprintf(command, sizeof command, "rm -r %s", data);
    return system(command) ? 1 : failed;
}
