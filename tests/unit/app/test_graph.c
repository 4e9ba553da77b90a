/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>

#include "app/graph.h"
#include "base/mem.h"
#include "pipeline/exporter.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

/* --- Components that record their life cycle -------------------------------------------------- */

struct config {
    bool fail_create, fail_start;
    struct br_exporter_config common;
};

static const struct br_option options[] = {
    BR_BOOL(struct config, fail_create, false, "or not"),
    BR_BOOL(struct config, fail_start, false, "or not"),
    BR_EXPORTER_OPTIONS(struct config, common, "5s"),
    BR_OPT_END,
};

struct state {
    struct br_node *node;
    struct br_item *held[BR_SIGNALS]; /* the last item of each signal, kept until the drain */
    struct br_timer timer;
};

#define SINKS 3

static struct bed {
    struct fake_host *h;
    struct br_config *config;
    struct br_graph *graph;
    struct fake_tally tally;
    char log[2048]; /* the calls so far, such as "create a; start a; " */
    struct br_node *receivers[4];
    unsigned n_receivers;
    struct fake_sink sinks[SINKS]; /* destinations of the exporters sink/0, sink/1, ... */
    unsigned n_drained;
    struct br_err err;
} * bed;

static void note(const char *what, const struct br_node *node)
{
    size_t at = strlen(bed->log);
    (void)snprintf(bed->log + at, sizeof bed->log - at, "%s %s; ", what, node->id);
}

static int on_create(struct br_node *node, struct br_err *err)
{
    const struct config *c = node->config;
    struct state *s = node->state;
    s->node = node;
    note("create", node);
    if (node->component->kind == BR_RECEIVER)
        bed->receivers[bed->n_receivers++] = node;
    return c->fail_create ? br_err_set(err, BR_EINVAL, "no") : 0;
}

static int on_start(struct br_node *node, struct br_err *err)
{
    const struct config *c = node->config;
    note("start", node);
    return c->fail_start ? br_err_set(err, BR_EIO, "no") : 0;
}

static void on_drain(struct br_node *node)
{
    note("drain", node);
    br_node_drained(node);
}

static void on_destroy(struct br_node *node)
{
    note("destroy", node);
}

static void pass(struct br_node *node, struct br_item *item)
{
    note("take", node);
    br_node_forward(node, item);
}

static void hold(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    note("take", node);
    assert_null(s->held[item->signal]);
    s->held[item->signal] = item;
}

static void on_hold_over(struct br_timer *t)
{
    struct state *s = br_container_of(t, struct state, timer);
    for (int i = 0; i < BR_SIGNALS; i++)
        if (s->held[i])
            br_node_forward(s->node, s->held[i]);
    memset(s->held, 0, sizeof s->held);
    note("drained", s->node);
    br_node_drained(s->node);
}

static void drain_holder(struct br_node *node)
{
    struct state *s = node->state;
    note("drain", node);
    assert_true(br_host_timer(node->host, &s->timer, 100, on_hold_over));
}

static void destroy_holder(struct br_node *node)
{
    struct state *s = node->state;
    br_host_timer_stop(node->host, &s->timer);
    note("destroy", node);
    for (int i = 0; i < BR_SIGNALS; i++)
        if (s->held[i])
            br_item_retry(s->held[i], BR_STATUS_UNAVAILABLE, 0, "shutting down");
}

static struct fake_sink *sink_of(const struct br_node *node)
{
    const char *slash = strchr(node->id, '/');
    return &bed->sinks[slash ? slash[1] - '0' : 0];
}

static void sink_consume(struct br_node *node, struct br_item *item)
{
    note("take", node);
    br_consume(&sink_of(node)->consumer, item);
}

static void drain_sink(struct br_node *node)
{
    sink_of(node)->closed = true;
    on_drain(node);
}

static void destroy_sink(struct br_node *node)
{
    fake_sink_release(sink_of(node), FAKE_RETRY);
    on_destroy(node);
}

static const struct br_strings *keys(const void *config)
{
    static const char *names[] = {"x-tenant"};
    static const struct br_strings list = {names, 1};
    (void)config;
    return &list;
}

#define COMMON                                                                                     \
    .signals = BR_BOTH_SIGNALS, .options = options, .config_size = sizeof(struct config),          \
    .state_size = sizeof(struct state), .create = on_create, .start = on_start

static const struct br_component receiver = {
    .name = "in", .kind = BR_RECEIVER, COMMON, .drain = on_drain, .destroy = on_destroy};
static const struct br_component passer = {.name = "pass",
                                           .kind = BR_PROCESSOR,
                                           COMMON,
                                           .metadata_keys = keys,
                                           .consume = pass,
                                           .drain = on_drain,
                                           .destroy = on_destroy};
static const struct br_component holder = {.name = "hold",
                                           .kind = BR_PROCESSOR,
                                           COMMON,
                                           .wants_spans = true,
                                           .consume = hold,
                                           .drain = drain_holder,
                                           .destroy = destroy_holder};
static const struct br_component both = {.name = "both",
                                         .kind = BR_PROCESSOR,
                                         COMMON,
                                         .shared = true,
                                         .consume = hold,
                                         .drain = drain_holder,
                                         .destroy = destroy_holder};
static const struct br_component sink = {.name = "sink",
                                         .kind = BR_EXPORTER,
                                         COMMON,
                                         .consume = sink_consume,
                                         .drain = drain_sink,
                                         .destroy = destroy_sink};
static const struct br_component queued = {.name = "queued",
                                           .kind = BR_EXPORTER,
                                           COMMON,
                                           .exporter_wrapped = true,
                                           .common_at = offsetof(struct config, common),
                                           .consume = sink_consume,
                                           .drain = on_drain,
                                           .destroy = destroy_sink};
static const struct br_component extension = {
    .name = "ext",
    .kind = BR_EXTENSION,
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .create = on_create,
    .start = on_start,
    .drain = on_drain,
    .destroy = on_destroy,
};
static const struct br_component connector = {.name = "link",
                                              .kind = BR_CONNECTOR,
                                              COMMON,
                                              .consume = pass,
                                              .drain = on_drain,
                                              .destroy = on_destroy};
static const struct br_component *const registry[] = {
    &receiver, &passer, &holder, &both, &sink, &queued, &connector, &extension, NULL};

/* --- The test bed ----------------------------------------------------------------------------- */

static int setup(void **state)
{
    bed = calloc(1, sizeof *bed);
    bed->h = fake_host_new();
    for (int i = 0; i < SINKS; i++)
        fake_sink_init(&bed->sinks[i], &bed->h->host);
    *state = bed;
    return 0;
}

static void load(const char *yaml)
{
    char uri[4096];
    const char *uris[] = {uri};
    struct br_errs errs = {0};
    struct br_config_sources sources = {.uris = uris, .n_uris = 1};
    (void)snprintf(uri, sizeof uri, "yaml:%s", yaml);
    if (br_config_load(&sources, registry, &bed->config, &errs))
        fail_msg("%s", errs.errors[0].text);
    br_errs_release(&errs);
}

static int build(const char *yaml)
{
    load(yaml);
    return br_graph_new(bed->config, &bed->h->host, &bed->graph, &bed->err);
}

static void run(const char *yaml)
{
    if (build(yaml) || br_graph_start(bed->graph, &bed->err))
        fail_msg("%s", bed->err.text);
}

static void end(void)
{
    br_graph_free(bed->graph);
    bed->graph = NULL;
    fake_host_iterate(bed->h);
}

static int teardown(void **state)
{
    (void)state;
    end();
    br_config_free(bed->config);
    for (int i = 0; i < SINKS; i++)
        fake_sink_free(&bed->sinks[i]);
    fake_host_check_ledger(bed->h);
    fake_host_free(bed->h);
    free(bed);
    return 0;
}

static void clear_log(void)
{
    bed->log[0] = '\0';
}

static void send(struct br_node *from, enum br_signal signal, uint64_t first, uint32_t n)
{
    br_node_forward(from, fake_tally_item(&bed->tally, &bed->h->host, signal, first, n));
    fake_host_iterate(bed->h);
}

static void on_drained(void *arg)
{
    (void)arg;
    bed->n_drained++;
    note("all", &(struct br_node){.id = "drained"});
}

static void drain(void)
{
    br_graph_drain(bed->graph, 60000, on_drained, NULL);
    fake_host_advance(bed->h, 10000);
}

#define ONE                                                                                        \
    "receivers: {in: }\nprocessors: {pass: , hold: , pass/2: , hold/2: , both: }\n"                \
    "exporters: {sink: , sink/1: , sink/2: , queued: }\nextensions: {ext: }\n"                     \
    "service:\n  extensions: [ext]\n  pipelines:\n"

/* --- Order of starts and drains --------------------------------------------------------------- */

static void starts_exporters_first_and_drains_receivers_first(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], processors: [pass, pass/2], exporters: [sink]}\n");
    const char *starts = strstr(bed->log, "start");
    assert_string_equal(starts, "start ext; start sink; start pass/2; start pass; start in; ");
    clear_log();
    send(bed->receivers[0], BR_TRACES, 0, 3);
    assert_string_equal(bed->log, "take pass; take pass/2; take sink; ");
    assert_int_equal(bed->tally.n_done, 1);
    clear_log();
    drain();
    assert_string_equal(bed->log,
                        "drain in; drain pass; drain pass/2; drain sink; drain ext; all drained; ");
    clear_log();
    end();
    assert_string_equal(bed->log,
                        "destroy ext; destroy sink; destroy pass/2; destroy pass; destroy in; ");
}

static void levels_drain_in_order(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], processors: [hold, pass], exporters: [sink]}\n");
    send(bed->receivers[0], BR_TRACES, 0, 3);
    clear_log();
    br_graph_drain(bed->graph, 60000, on_drained, NULL);
    fake_host_advance(bed->h, 99);
    assert_string_equal(bed->log, "drain in; drain hold; ");
    fake_host_advance(bed->h, 1);
    assert_string_equal(bed->log, "drain in; drain hold; take pass; take sink; drained hold; "
                                  "drain pass; drain sink; drain ext; all drained; ");
    assert_int_equal(bed->n_drained, 1);
    assert_int_equal(bed->tally.n_done, 1);
}

static void a_waiting_level_does_not_block_items_of_later_levels(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], processors: [hold], exporters: [sink]}\n"
            "    profiles: {receivers: [in], processors: [pass, hold/2], exporters: [sink/1]}\n");
    send(bed->receivers[0], BR_PROFILES, 0, 3);
    clear_log();
    br_graph_drain(bed->graph, 30, on_drained, NULL);
    fake_host_advance(bed->h, 29);
    assert_string_equal(bed->log, "drain in; drain hold; drain pass; ");
    fake_host_advance(bed->h, 1);
    assert_string_equal(bed->log, "drain in; drain hold; drain pass; drain hold/2; ");
    fake_host_advance(bed->h, 69);
    clear_log();
    /* drained again: the previous level may have sent more */
    fake_host_advance(bed->h, 1);
    assert_string_equal(bed->log, "drained hold; drain hold/2; ");
    fake_host_advance(bed->h, 99);
    assert_int_equal(bed->n_drained, 0);
    fake_host_advance(bed->h, 1);
    assert_int_equal(bed->n_drained, 1);
    assert_int_equal(fake_sink_once(&bed->sinks[1], BR_PROFILES, 0, 3), 3);
}

/* The shared processor is the first in one pipeline and the last in the other. In both, all
 * later components are drained after it. */
static void a_shared_processor_is_drained_before_later_components(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], processors: [pass, pass/2, both], exporters: [sink]}\n"
            "    profiles: {receivers: [in], processors: [both, hold], exporters: [sink/1]}\n");
    send(bed->receivers[0], BR_TRACES, 0, 3);
    send(bed->receivers[0], BR_PROFILES, 0, 3);
    drain();
    const char *shared_drained = strstr(bed->log, "drained both"),
               *later_drain = strstr(bed->log, "drain hold");
    assert_non_null(shared_drained);
    assert_non_null(later_drain);
    assert_true(shared_drained < later_drain);
    assert_int_equal(bed->n_drained, 1);
    assert_int_equal(bed->tally.n_done, 2);
}

static void shared_processors_in_opposite_orders_are_rejected(void **state)
{
    (void)state;
    int rc =
        build("receivers: {in: }\nprocessors: {both: , both/2: }\nexporters: {sink: }\n"
              "service:\n  pipelines:\n"
              "    traces: {receivers: [in], processors: [both, both/2], exporters: [sink]}\n"
              "    profiles: {receivers: [in], processors: [both/2, both], exporters: [sink]}\n");
    assert_int_equal(rc, BR_EINVAL);
    assert_non_null(strstr(bed->err.text, "order"));
}

/* --- Number of instances ---------------------------------------------------------------------- */

static unsigned count(const char *what)
{
    unsigned n = 0;
    for (const char *at = bed->log; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* One instance serves the first pipelines of both signals, and another the second pipelines.
 * Each forwards to the exporters of its pipeline. */
static void a_shared_processor_may_be_in_several_pipelines_of_a_signal(void **state)
{
    (void)state;
    run("receivers: {in: , in/2: }\nprocessors: {pass: , both: }\nexporters: {sink: , sink/1: }\n"
        "service:\n  pipelines:\n"
        "    traces: {receivers: [in], processors: [both], exporters: [sink]}\n"
        "    traces/2: {receivers: [in/2], processors: [both], exporters: [sink/1]}\n"
        "    profiles: {receivers: [in], processors: [both], exporters: [sink]}\n");
    assert_int_equal(count("create both;"), 2);
    send(bed->receivers[0], BR_TRACES, 0, 3);
    send(bed->receivers[1], BR_TRACES, 0, 4);
    send(bed->receivers[0], BR_PROFILES, 0, 5);
    drain();
    assert_int_equal(bed->tally.n_done, 3);
    assert_int_equal(bed->sinks[0].n_items, 2);
    assert_int_equal(bed->sinks[1].n_items, 1);
}

static void instances_are_one_per_id_or_one_per_pipeline(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], processors: [pass], exporters: [sink]}\n"
            "    traces/2: {receivers: [in], processors: [pass], exporters: [sink]}\n"
            "    profiles: {receivers: [in], processors: [pass, both], exporters: [sink]}\n");
    assert_int_equal(count("create in;"), 1);
    assert_int_equal(count("create sink;"), 1);
    assert_int_equal(count("create pass;"), 3);
    assert_int_equal(count("create both;"), 1);
    /* An item of the receiver enters both of its traces pipelines. */
    send(bed->receivers[0], BR_TRACES, 0, 3);
    assert_int_equal(bed->tally.n_done, 1);
    assert_int_equal(bed->sinks[0].n_items, 2);
    assert_int_equal(bed->sinks[0].seen[BR_TRACES][0], 2);
    assert_true(*bed->h->host.ledger.received[BR_TRACES] == 3);
}

static void several_exporters_each_get_everything(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], exporters: [sink, sink/1, sink/2]}\n");
    bed->sinks[1].verdict = FAKE_LATE;
    send(bed->receivers[0], BR_TRACES, 0, 3);
    assert_int_equal(bed->tally.n, 0);
    fake_host_advance(bed->h, 50);
    assert_int_equal(bed->tally.n_done, 1);
    for (int i = 0; i < SINKS; i++)
        assert_int_equal(fake_sink_once(&bed->sinks[i], BR_TRACES, 0, 3), 3);
}

static void signals_have_separate_pipelines(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], exporters: [sink]}\n"
            "    profiles: {receivers: [in], exporters: [sink/1]}\n");
    send(bed->receivers[0], BR_TRACES, 0, 3);
    send(bed->receivers[0], BR_PROFILES, 0, 4);
    assert_int_equal(fake_sink_once(&bed->sinks[0], BR_TRACES, 0, 3), 3);
    assert_int_equal(fake_sink_once(&bed->sinks[1], BR_PROFILES, 0, 4), 4);
    assert_int_equal(bed->sinks[0].n_items + bed->sinks[1].n_items, 2);
}

static void a_signal_without_pipeline_is_rejected(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], exporters: [sink]}\n");
    assert_null(bed->receivers[0]->next[BR_PROFILES]);
    send(bed->receivers[0], BR_PROFILES, 0, 4);
    assert_int_equal(bed->tally.n_reject, 1);
}

static void receivers_learn_the_needs_of_processors(void **state)
{
    (void)state;
    run("receivers: {in: , in/2: }\nprocessors: {pass: , hold: }\nexporters: {sink: }\n"
        "service:\n  pipelines:\n"
        "    traces: {receivers: [in], processors: [hold], exporters: [sink]}\n"
        "    profiles: {receivers: [in/2], processors: [pass], exporters: [sink]}\n");
    const struct br_node *in = bed->receivers[0], *in2 = bed->receivers[1];
    assert_string_equal(in->id, "in");
    assert_true(in->spans_wanted);
    assert_null(in->metadata_keys);
    assert_false(in2->spans_wanted);
    assert_non_null(in2->metadata_keys);
    assert_string_equal(in2->metadata_keys->items[0], "x-tenant");
    assert_true(in->in_pipeline[BR_TRACES] && !in->in_pipeline[BR_PROFILES]);
    assert_true(!in2->in_pipeline[BR_TRACES] && in2->in_pipeline[BR_PROFILES]);
}

/* Only a processor that reads spans makes its receivers list them. */
static void test_spans_are_not_listed_for_other_processors(void **state)
{
    (void)state;
    run("receivers: {in: }\nprocessors: {pass: }\nexporters: {sink: }\n"
        "service:\n  pipelines:\n"
        "    traces: {receivers: [in], processors: [pass], exporters: [sink]}\n");
    assert_false(bed->receivers[0]->spans_wanted);
}

/* Spans are listed for traces, not for profiles that the same processor gets. */
static void test_spans_are_not_listed_for_profiles(void **state)
{
    (void)state;
    run("receivers: {in: }\nprocessors: {hold: }\nexporters: {sink: }\n"
        "service:\n  pipelines:\n"
        "    profiles: {receivers: [in], processors: [hold], exporters: [sink]}\n");
    assert_false(bed->receivers[0]->spans_wanted);
}

static void extensions_run_in_the_first_worker_only(void **state)
{
    (void)state;
    bed->h->host.worker = 1;
    run(ONE "    traces: {receivers: [in], exporters: [sink]}\n");
    assert_int_equal(count("create ext;"), 0);
    assert_int_equal(count("create in;"), 1);
}

/* --- Failures --------------------------------------------------------------------------------- */

static void a_failed_create_releases_everything(void **state)
{
    (void)state;
    int rc = build("receivers: {in: }\nprocessors: {pass: {fail_create: true}}\n"
                   "exporters: {sink: }\nservice:\n  pipelines:\n"
                   "    traces: {receivers: [in], processors: [pass], exporters: [sink]}\n");
    assert_int_equal(rc, BR_EINVAL);
    assert_string_equal(bed->err.text, "processor/pass: no");
    /* Every component for which create was called is destroyed, including the one that failed. */
    assert_int_equal(count("create"), count("destroy"));
    assert_int_equal(count("destroy sink"), 0);
}

static void a_start_that_fails_can_be_freed(void **state)
{
    (void)state;
    int rc = build("receivers: {in: }\nprocessors: {pass: {fail_start: true}}\n"
                   "exporters: {sink: }\nservice:\n  pipelines:\n"
                   "    traces: {receivers: [in], processors: [pass], exporters: [sink]}\n");
    assert_int_equal(rc, 0);
    assert_int_equal(br_graph_start(bed->graph, &bed->err), BR_EIO);
    assert_string_equal(bed->err.text, "processor/pass: no");
    assert_int_equal(count("start sink"), 1);
    assert_int_equal(count("start in"), 0);
    end();
    assert_int_equal(count("destroy"), 3);
}

/* --- Exporters with a queue ------------------------------------------------------------------- */

static void a_wrapped_exporter_is_queued_and_retried(void **state)
{
    (void)state;
    run(ONE "    traces: {receivers: [in], exporters: [queued]}\n");
    bed->sinks[0].first_fail = 2;
    send(bed->receivers[0], BR_TRACES, 0, 3);
    assert_int_equal(bed->tally.n_done, 1);
    assert_int_equal(bed->sinks[0].n_items, 1);
    drain(); /* 10 s: the first delay is 2.5 to 7.5 s, and the second at most 11.25 s */
    fake_host_advance(bed->h, 10000);
    assert_int_equal(fake_sink_once(&bed->sinks[0], BR_TRACES, 0, 3), 3);
    assert_int_equal(bed->n_drained, 1);
}

static void destroyed_with_items_everywhere(void **state)
{
    (void)state;
    run("receivers: {in: }\nprocessors: {hold: , pass: }\n"
        "exporters: {queued: {sending_queue: {num_consumers: 1, batch: {min_size: 4}}}, "
        "sink/1: , queued/2: {sending_queue: {wait_for_result: true, batch: {min_size: 4}}}}\n"
        "service:\n  pipelines:\n"
        "    traces: {receivers: [in], processors: [pass], exporters: [queued, sink/1, queued/2]}\n"
        "    profiles: {receivers: [in], processors: [hold], exporters: [queued]}\n");
    for (int i = 0; i < SINKS; i++)
        bed->sinks[i].verdict = FAKE_HOLD;
    send(bed->receivers[0], BR_PROFILES, 0, 3);
    for (uint64_t i = 0; i < 9; i++)
        send(bed->receivers[0], BR_TRACES, i * 3, 3);
    br_graph_drain(bed->graph, 60000, on_drained, NULL);
    fake_host_advance(bed->h, 1000);
    end();
    assert_int_equal(bed->n_drained, 0);
    assert_int_equal(bed->tally.n, 10);
}

/* --- Connectors ------------------------------------------------------------------------------- */

static void a_connector_is_between_the_nodes_of_its_pipelines(void **state)
{
    (void)state;
    run("receivers: {in: }\nprocessors: {pass: , pass/2: }\nexporters: {sink: }\n"
        "connectors: {link: }\nservice:\n  pipelines:\n"
        "    traces/2: {receivers: [link], processors: [pass/2], exporters: [sink]}\n"
        "    traces/1: {receivers: [in], processors: [pass], exporters: [link]}\n");
    const char *starts = strstr(bed->log, "start");
    assert_string_equal(starts, "start sink; start pass/2; start link; start pass; start in; ");
    clear_log();
    send(bed->receivers[0], BR_TRACES, 0, 3);
    assert_string_equal(bed->log, "take pass; take link; take pass/2; take sink; ");
    clear_log();
    drain();
    assert_string_equal(
        bed->log, "drain in; drain pass; drain link; drain pass/2; drain sink; all drained; ");
    clear_log();
    end();
    assert_string_equal(bed->log,
                        "destroy sink; destroy pass/2; destroy link; destroy pass; destroy in; ");
}

/* The first pipeline also has an exporter. Two pipelines follow the connector. */
static void connectors_join_and_split_pipelines(void **state)
{
    (void)state;
    run("receivers: {in: , in/2: }\nprocessors: {hold: }\nexporters: {sink: , sink/1: , sink/2: }\n"
        "connectors: {link: , link/2: }\nservice:\n  pipelines:\n"
        "    traces/a: {receivers: [in], exporters: [link, sink]}\n"
        "    traces/b: {receivers: [in/2], exporters: [link]}\n"
        "    traces/c: {receivers: [link], processors: [hold], exporters: [sink/1]}\n"
        "    traces/d: {receivers: [link, link/2], exporters: [sink/2]}\n"
        "    profiles/a: {receivers: [in], exporters: [link/2, link]}\n"
        "    profiles/b: {receivers: [link, link/2], exporters: [sink]}\n"
        "    traces/e: {receivers: [in/2], exporters: [link/2]}\n");
    send(bed->receivers[0], BR_TRACES, 0, 3);
    drain();
    assert_int_equal(bed->n_drained, 1);
    assert_int_equal(bed->tally.n_done, 1);
    for (int i = 0; i < SINKS; i++)
        assert_int_equal(fake_sink_once(&bed->sinks[i], BR_TRACES, 0, 3), 3);
}

/* A processor before a connector holds items. At the drain, these items must pass all later nodes
 * before the later nodes end. */
static void nodes_after_a_connector_are_drained_later(void **state)
{
    (void)state;
    run("receivers: {in: }\nprocessors: {hold: , hold/2: }\nexporters: {sink: }\n"
        "connectors: {link: }\nservice:\n  pipelines:\n"
        "    traces/2: {receivers: [link], processors: [hold/2], exporters: [sink]}\n"
        "    traces/1: {receivers: [in], processors: [hold], exporters: [link]}\n");
    send(bed->receivers[0], BR_TRACES, 0, 3);
    clear_log();
    drain();
    assert_string_equal(bed->log,
                        "drain in; drain hold; take link; take hold/2; drained hold; drain link; "
                        "drain hold/2; take sink; drained hold/2; drain sink; all drained; ");
    assert_int_equal(bed->tally.n_done, 1);
}

static void receivers_learn_the_needs_of_processors_after_connectors(void **state)
{
    (void)state;
    run("receivers: {in: , in/2: }\nprocessors: {pass: , hold: }\nexporters: {sink: }\n"
        "connectors: {link: , link/2: }\nservice:\n  pipelines:\n"
        "    traces/3: {receivers: [link/2], processors: [hold, pass], exporters: [sink]}\n"
        "    traces/2: {receivers: [link], exporters: [link/2]}\n"
        "    traces/1: {receivers: [in], exporters: [link]}\n"
        "    traces/4: {receivers: [in/2], exporters: [sink]}\n");
    const struct br_node *in = bed->receivers[0], *in2 = bed->receivers[1];
    assert_string_equal(in->id, "in");
    assert_true(in->spans_wanted);
    assert_non_null(in->metadata_keys);
    assert_false(in2->spans_wanted);
    assert_null(in2->metadata_keys);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void scenario(void *arg)
{
    void *state;
    setup(&state);
    load(arg);
    bed->sinks[0].verdict = FAKE_LATE;
    fault_start();
    int rc = br_graph_new(bed->config, &bed->h->host, &bed->graph, &bed->err);
    assert_true(rc == 0 || (rc == BR_ENOMEM && fault_failed()));
    unsigned n = 0;
    if (!rc && !br_graph_start(bed->graph, &bed->err)) {
        for (uint64_t i = 0; i < 4; i++) {
            enum br_signal s = i & 1 ? BR_PROFILES : BR_TRACES;
            struct br_item *item = fake_tally_item(&bed->tally, &bed->h->host, s, i * 10, 5);
            n += item != NULL;
            if (item)
                br_node_forward(bed->receivers[0], item);
        }
        fake_host_advance(bed->h, 1000);
        drain();
    }
    fault_stop();
    fake_host_advance(bed->h, 100000);
    assert_true(rc || bed->n_drained == 1);
    assert_int_equal(bed->tally.n, n);
    teardown(&state);
}

static void without_memory_the_graph_is_created_or_fails(void **state)
{
    (void)state;
    fault_some("graph", scenario,
               "receivers: {in: }\nprocessors: {pass: }\n"
               "exporters: {queued: {sending_queue: {batch: {min_size: 8}}}, sink/1: }\n"
               "service:\n  pipelines:\n"
               "    traces: {receivers: [in], processors: [pass], exporters: [queued, sink/1]}\n"
               "    profiles: {receivers: [in], processors: [pass], exporters: [queued, sink/1]}\n"
               "    profiles/2: {receivers: [in], exporters: [queued]}\n",
               1);
}

static void without_memory_connectors_are_created_or_fail(void **state)
{
    (void)state;
    fault_some("connectors", scenario,
               "receivers: {in: }\nprocessors: {pass: }\nexporters: {sink: , sink/1: }\n"
               "connectors: {link: }\nservice:\n  pipelines:\n"
               "    traces: {receivers: [in], exporters: [link, sink]}\n"
               "    traces/2: {receivers: [link], processors: [pass], exporters: [sink, sink/1]}\n"
               "    traces/3: {receivers: [link], exporters: [sink]}\n"
               "    profiles: {receivers: [in], exporters: [link]}\n"
               "    profiles/2: {receivers: [link], exporters: [sink]}\n",
               1);
}

SUITE(graph)
{
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    const struct CMUnitTest tests[] = {
        TEST(starts_exporters_first_and_drains_receivers_first),
        TEST(levels_drain_in_order),
        TEST(a_waiting_level_does_not_block_items_of_later_levels),
        TEST(a_shared_processor_is_drained_before_later_components),
        TEST(shared_processors_in_opposite_orders_are_rejected),
        TEST(a_shared_processor_may_be_in_several_pipelines_of_a_signal),
        TEST(instances_are_one_per_id_or_one_per_pipeline),
        TEST(several_exporters_each_get_everything),
        TEST(signals_have_separate_pipelines),
        TEST(a_signal_without_pipeline_is_rejected),
        TEST(receivers_learn_the_needs_of_processors),
        TEST(extensions_run_in_the_first_worker_only),
        TEST(a_failed_create_releases_everything),
        TEST(test_spans_are_not_listed_for_other_processors),
        TEST(test_spans_are_not_listed_for_profiles),
        TEST(a_start_that_fails_can_be_freed),
        TEST(a_wrapped_exporter_is_queued_and_retried),
        TEST(destroyed_with_items_everywhere),
        TEST(a_connector_is_between_the_nodes_of_its_pipelines),
        TEST(connectors_join_and_split_pipelines),
        TEST(nodes_after_a_connector_are_drained_later),
        TEST(receivers_learn_the_needs_of_processors_after_connectors),
        cmocka_unit_test(without_memory_the_graph_is_created_or_fails),
        cmocka_unit_test(without_memory_connectors_are_created_or_fail),
    };
    return RUN(tests, NULL, NULL);
}
