/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions about traces, compared with those of the Collector's tailsamplingprocessor (v0.165) for
 * the same spans, and tests of the parts that only Braid has: profiles, the limit of the held
 * bytes, and workers that share the decisions.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_tail_sampling_processor;

#define FILE_MAX 65536

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, FILE_MAX);
    assert_non_null(text);
    assert_in_range(fread(text, 1, FILE_MAX - 1, f), 1, FILE_MAX - 2);
    (void)fclose(f);
    return text;
}

static void advance(struct rig *r, uint64_t ms)
{
    r->now_ms += ms;
    r->unix_ns += ms * 1000000;
    rig_turn(r);
}

static int compare_letters(const void *one, const void *other)
{
    return *(const char *)one - *(const char *)other;
}

/* Returns the names of the spans in the last output, which have one letter each, sorted. */
static const char *names(const struct rig *r)
{
    static char text[64];
    size_t n = 0;
    static const char mark[] = "\"name\":\"";
    for (const char *at = r->n_out ? r->out.data : NULL; at && (at = strstr(at, mark));) {
        at += strlen(mark);
        if (at[0] && at[1] == '"' && n < sizeof text - 1)
            text[n++] = at[0];
    }
    text[n] = '\0';
    qsort(text, n, 1, compare_letters);
    return text;
}

/* --- The Collector's decisions ---------------------------------------------------------------- */

static void check_collector_line(const char *traces, const char *config, const char *expected)
{
    struct rig *r = rig_new(&br_tail_sampling_processor, config);
    rig_send(r, rig_item(r, BR_TRACES, traces));
    advance(r, 30000);
    if (strcmp(names(r), expected) != 0)
        fail_msg("%s: kept %s, not %s", config, names(r), expected);
    rig_free(r);
}

static void results_of_the_collector(void **state)
{
    (void)state;
    char line[4096];
    char *traces = read_file("tests/data/tail_sampling/traces.json");
    size_t n = 0;
    FILE *f = fopen("tests/data/tail_sampling/collector.tsv", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (*line == '#')
            continue;
        line[strcspn(line, "\n")] = '\0';
        char *tab = strchr(line, '\t');
        assert_non_null(tab);
        *tab = '\0';
        check_collector_line(traces, line, tab + 1);
        n++;
    }
    (void)fclose(f);
    free(traces);
    assert_in_range(n, 250, 1000);
}

/* --- The time of a decision ------------------------------------------------------------------- */

#define ID_A "0a000000000000000000000000000001"
#define ID_B "0b000000000000000000000000000001"
#define ID_C "0c000000000000000000000000000001"
#define GLOBAL "otelcol_processor_tail_sampling_global_count_traces_sampled"
#define KEEP_ERRORS "policies: [{name: e, type: status_code, status_code: {status_codes: [ERROR]}}]"
#define KEEP_ALL "policies: [{name: all, type: always_sample}]"

static const char *span_of(const char *id, char name, bool root, bool error)
{
    static char text[4][256];
    static unsigned n;
    char *out = text[n++ & 3];
    (void)snprintf(out, sizeof text[0],
                   "{\"traceId\":\"%s\",\"spanId\":\"00000000000000%02x\"%s,\"name\":\"%c\"%s}", id,
                   (unsigned)name, root ? "" : ",\"parentSpanId\":\"0000000000000001\"", name,
                   error ? ",\"status\":{\"code\":2}" : "");
    return out;
}

/* Returns a request with up to two spans. */
static const char *request(const char *first, const char *second)
{
    static char text[4096];
    (void)snprintf(text, sizeof text,
                   "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[%s%s%s]}]}]}", first,
                   second ? "," : "", second ? second : "");
    return text;
}

static void send_spans(struct rig *r, const char *first, const char *second)
{
    rig_send(r, rig_item(r, BR_TRACES, request(first, second)));
}

static double decided(struct rig *r, const char *labels)
{
    char all[128];
    (void)snprintf(all, sizeof all, "processor=\"tail_sampling\",%s", labels);
    return rig_metric(r, GLOBAL, all);
}

#define NOT_SAMPLED "sampled=\"false\",decision=\"not_sampled\""
#define SAMPLED "sampled=\"true\",decision=\"sampled\""

/* The wait begins with the first span of a trace. */
static void a_trace_is_decided_after_the_wait(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_tail_sampling_processor, "{decision_wait: 10s, " KEEP_ERRORS "}");
    send_spans(r, span_of(ID_A, 'a', true, false), span_of(ID_B, 'b', true, false));
    assert_int_equal(r->outcome.verdict, BR_DONE);
    advance(r, 9000);
    send_spans(r, span_of(ID_A, 'A', false, true), NULL);
    advance(r, 999);
    assert_int_equal(r->n_out, 0);
    assert_int_equal((int)*r->host.ledger.held[BR_TRACES], 3);
    advance(r, 1);
    advance(r, 500);
    assert_int_equal(r->n_out, 2);
    assert_string_equal(names(r), "A");
    assert_int_equal((int)rig_dropped(r, BR_TRACES, "sampled"), 1);
    assert_int_equal((int)decided(r, SAMPLED), 1);
    assert_int_equal((int)decided(r, NOT_SAMPLED), 1);
    assert_int_equal((int)rig_metric(r, "otelcol_processor_tail_sampling_count_traces_sampled",
                                     "processor=\"tail_sampling\",policy=\"e\"," SAMPLED),
                     1);
    rig_free(r);
}

/* A span that arrives after its trace was due does not change the decision, even if no timer has
 * run since. */
static void a_span_after_the_wait_is_late(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_tail_sampling_processor, "{decision_wait: 10s, " KEEP_ERRORS "}");
    send_spans(r, span_of(ID_A, 'a', true, false), NULL);
    r->now_ms += 10000;
    send_spans(r, span_of(ID_A, 'A', false, true), NULL);
    assert_int_equal(r->n_out, 0);
    assert_int_equal((int)rig_dropped(r, BR_TRACES, "sampled"), 2);
    rig_free(r);
}

static void a_root_span_shortens_the_wait(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_tail_sampling_processor,
                "{decision_wait: 30s, decision_wait_after_root_received: 2s, " KEEP_ALL "}");
    send_spans(r, span_of(ID_A, 'a', false, false), NULL);
    send_spans(r, span_of(ID_B, 'b', false, false), NULL);
    advance(r, 5000);
    send_spans(r, span_of(ID_A, 'A', true, false), NULL);
    advance(r, 1999);
    assert_int_equal(r->n_out, 0);
    advance(r, 200);
    assert_int_equal(r->n_out, 2);
    advance(r, 30000);
    assert_int_equal(r->n_out, 3);
    /* the root does not prolong the wait */
    send_spans(r, span_of(ID_C, 'c', false, false), NULL);
    advance(r, 29000);
    send_spans(r, span_of(ID_C, 'C', true, false), NULL);
    advance(r, 1200);
    assert_int_equal(r->n_out, 5);
    rig_free(r);
}

/* If at least half of the traces of a request are decided, their spans are released before the
 * other traces are decided. */
static void decided_traces_leave_their_request(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_tail_sampling_processor,
                "{decision_wait: 30s, decision_wait_after_root_received: 1s, " KEEP_ERRORS "}");
    char both[1024];
    (void)snprintf(both, sizeof both, "%s,%s", span_of(ID_A, 'a', true, true),
                   span_of(ID_C, 'c', false, true));
    send_spans(r, both, span_of(ID_B, 'b', true, false));
    send_spans(r, span_of(ID_A, 'A', false, false), NULL);
    advance(r, 1000);
    advance(r, 1000);
    assert_int_equal(r->n_out, 2);
    assert_int_equal((int)rig_dropped(r, BR_TRACES, "sampled"), 1);
    assert_int_equal((int)*r->host.ledger.sent[BR_TRACES], 2);
    assert_int_equal((int)*r->host.ledger.held[BR_TRACES], 1);
    advance(r, 28000);
    advance(r, 500);
    assert_int_equal(r->n_out, 3);
    assert_string_equal(names(r), "c");
    rig_free(r);
}

/* --- Decisions that are remembered ------------------------------------------------------------ */

static void late_spans_follow_the_decision(void **state)
{
    (void)state;
    static const char late[] = "otelcol_processor_tail_sampling_early_releases_from_cache_decision";
    struct rig *r = rig_new(&br_tail_sampling_processor, "{decision_wait: 1s, " KEEP_ERRORS "}");
    send_spans(r, span_of(ID_A, 'a', true, true), span_of(ID_B, 'b', true, false));
    advance(r, 1000);
    assert_string_equal(names(r), "a");
    send_spans(r, span_of(ID_A, 'A', false, false), span_of(ID_B, 'B', false, true));
    assert_int_equal(r->n_out, 2);
    assert_string_equal(names(r), "A");
    assert_int_equal((int)rig_dropped(r, BR_TRACES, "sampled"), 2);
    assert_int_equal((int)decided(r, SAMPLED), 1);
    assert_int_equal((int)rig_metric(r, late, "processor=\"tail_sampling\",sampled=\"true\""), 1);
    assert_int_equal((int)rig_metric(r, late, "processor=\"tail_sampling\",sampled=\"false\""), 1);
    rig_free(r);
}

/* A trace whose decision was forgotten is a new trace. The decision that was used least recently is
 * forgotten first. */
static void old_decisions_are_forgotten(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_tail_sampling_processor,
                "{decision_wait: 1s, decision_cache: {sampled_cache_size: 2}, " KEEP_ALL "}");
    send_spans(r, span_of(ID_A, 'a', true, false), span_of(ID_B, 'b', true, false));
    advance(r, 1000);
    send_spans(r, span_of(ID_A, 'a', false, false), NULL);
    assert_int_equal(r->n_out, 2); /* A was used last */
    send_spans(r, span_of(ID_C, 'c', true, false), NULL);
    advance(r, 1000);
    assert_int_equal(r->n_out, 3);
    send_spans(r, span_of(ID_A, 'a', false, false), NULL);
    assert_int_equal(r->n_out, 4);
    send_spans(r, span_of(ID_B, 'b', false, false), NULL);
    assert_int_equal(r->n_out, 4);
    advance(r, 1000);
    assert_int_equal(r->n_out, 5);
    assert_int_equal((int)decided(r, SAMPLED), 4);
    rig_free(r);
}

/* --- Limits ----------------------------------------------------------------------------------- */

/* If there are more traces than num_traces, the trace that is due first is decided early. */
static void too_many_traces_are_decided_early(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_tail_sampling_processor, "{decision_wait: 10s, num_traces: 2, " KEEP_ALL "}");
    send_spans(r, span_of(ID_A, 'a', true, false), NULL);
    advance(r, 1);
    send_spans(r, span_of(ID_B, 'b', true, false), NULL);
    assert_int_equal((int)decided(r, SAMPLED), 0);
    send_spans(r, span_of(ID_C, 'c', true, false), NULL);
    assert_int_equal((int)decided(r, SAMPLED), 1);
    assert_int_equal(
        (int)rig_metric(r, "braid_tail_sampling_early_decisions", "processor=\"tail_sampling\""),
        1);
    advance(r, 1000);
    assert_int_equal(r->n_out, 1);
    assert_string_equal(names(r), "a");
    advance(r, 9500);
    assert_int_equal(r->n_out, 3);
    rig_free(r);
}

static void a_full_table_can_block(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_tail_sampling_processor,
                "{decision_wait: 10s, num_traces: 2, block_on_overflow: true, " KEEP_ALL "}");
    send_spans(r, span_of(ID_A, 'a', true, false), NULL);
    send_spans(r, span_of(ID_B, 'b', true, false), NULL);
    send_spans(r, span_of(ID_C, 'c', true, false), NULL);
    assert_int_equal(r->outcome.verdict, BR_RETRY);
    send_spans(r, span_of(ID_B, 'B', false, false), NULL);
    assert_int_equal(r->outcome.verdict, BR_DONE);
    advance(r, 10000);
    advance(r, 1000);
    assert_int_equal(r->n_out, 3);
    send_spans(r, span_of(ID_C, 'c', true, false), NULL);
    assert_int_equal(r->outcome.verdict, BR_DONE);
    rig_free(r);
}

static size_t size_of(const char *json)
{
    struct rig *r = rig_new(&br_tail_sampling_processor, "{decision_wait: 0s, " KEEP_ALL "}");
    (void)rig_run(r, BR_TRACES, json);
    size_t size = r->out_size;
    rig_free(r);
    return size;
}

/* If a new request does not fit into hold_max_bytes, the oldest held request is released and its
 * traces are decided. */
static void too_many_bytes_release_the_oldest_request(void **state)
{
    (void)state;
    char yaml[256];
    size_t size = size_of(request(span_of(ID_A, 'a', true, false), NULL));
    (void)snprintf(yaml, sizeof yaml, "{decision_wait: 10s, hold_max_bytes: %zu, " KEEP_ALL "}",
                   2 * size);
    struct rig *r = rig_new(&br_tail_sampling_processor, yaml);
    send_spans(r, span_of(ID_A, 'a', true, false), NULL);
    send_spans(r, span_of(ID_B, 'b', true, false), NULL);
    assert_int_equal(r->n_out, 0);
    send_spans(r, span_of(ID_C, 'c', true, false), NULL);
    assert_int_equal(r->n_out, 1);
    assert_string_equal(names(r), "a");
    /* a request that is larger than the limit is not held */
    send_spans(r, span_of(ID_A, 'a', false, false), NULL);
    assert_int_equal(r->n_out, 2);
    rig_free(r);
    (void)snprintf(yaml, sizeof yaml, "{decision_wait: 10s, hold_max_bytes: %zu, " KEEP_ERRORS "}",
                   size - 1);
    r = rig_new(&br_tail_sampling_processor, yaml);
    send_spans(r, span_of(ID_A, 'a', true, false), NULL);
    assert_int_equal(r->n_out, 0);
    assert_int_equal((int)rig_dropped(r, BR_TRACES, "sampled"), 1);
    rig_free(r);
}

/* --- Delivery --------------------------------------------------------------------------------- */

/* A sender that waits for the delivery is answered when the request is delivered. */
static void a_waiting_sender_is_answered_late(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_tail_sampling_processor, "{decision_wait: 1s, " KEEP_ERRORS "}");
    for (int kept = 0; kept < 2; kept++) {
        struct br_item *item =
            rig_item(r, BR_TRACES, request(span_of(kept ? ID_A : ID_B, 'a', true, kept), NULL));
        item->sender = BR_SENDER_WAITS;
        rig_send(r, item);
        assert_int_equal(r->n_ended, kept);
        advance(r, 1000);
        assert_int_equal(r->n_ended, kept + 1);
        assert_int_equal(r->outcome.verdict, BR_DONE);
        assert_int_equal(r->n_out, kept);
    }
    rig_free(r);
}

/* A consumer after the processor, which finishes an item only when the test asks for it. */
static struct br_item *kept_items[4];
static unsigned n_kept_items;

static void keep_item(struct br_consumer *self, struct br_item *item)
{
    (void)self;
    assert_true(n_kept_items < BR_COUNT(kept_items));
    kept_items[n_kept_items++] = item;
}

/* Requests that were released but not yet delivered are limited, too. At the limit, senders have to
 * wait. */
static void a_slow_next_component_blocks(void **state)
{
    (void)state;
    struct br_consumer slow = {keep_item};
    char yaml[256];
    size_t size = size_of(request(span_of(ID_A, 'a', true, false), NULL));
    (void)snprintf(yaml, sizeof yaml, "{decision_wait: 1s, hold_max_bytes: %zu, " KEEP_ALL "}",
                   size);
    struct rig *r = rig_new(&br_tail_sampling_processor, yaml);
    r->node.next[BR_TRACES] = &slow;
    n_kept_items = 0;
    for (int i = 0; i < 2; i++) {
        send_spans(r, span_of(i ? ID_A : ID_B, 'a', true, false), NULL);
        assert_int_equal(r->outcome.verdict, BR_DONE);
        advance(r, 1000);
    }
    assert_int_equal(n_kept_items, 2);
    send_spans(r, span_of(ID_C, 'c', true, false), NULL);
    assert_int_equal(r->outcome.verdict, BR_RETRY);
    for (unsigned i = 0; i < n_kept_items; i++)
        br_item_done(kept_items[i]);
    rig_turn(r);
    send_spans(r, span_of(ID_C, 'c', true, false), NULL);
    assert_int_equal(r->outcome.verdict, BR_DONE);
    r->node.next[BR_TRACES] = &r->sink;
    rig_free(r);
}

static void draining_decides(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{" KEEP_ERRORS "}", "{drop_pending_traces_on_shutdown: true, " KEEP_ERRORS "}"};
    for (unsigned drops = 0; drops < 2; drops++) {
        struct rig *r = rig_new(&br_tail_sampling_processor, configs[drops]);
        send_spans(r, span_of(ID_A, 'a', true, true), span_of(ID_B, 'b', true, false));
        r->node.draining = r->host.draining = true;
        br_tail_sampling_processor.drain(&r->node);
        rig_turn(r);
        assert_int_equal(r->n_out, drops ? 0 : 1);
        assert_true(r->drained);
        assert_int_equal((int)rig_dropped(r, BR_TRACES, drops ? "shutdown" : "sampled"),
                         drops ? 2 : 1);
        /* requests that arrive now are not held */
        send_spans(r, span_of(ID_C, 'c', true, true), span_of(ID_B, 'b', true, false));
        assert_int_equal(r->n_out, drops ? 1 : 2);
        assert_string_equal(names(r), "c");
        rig_free(r);
    }
}

/* --- Profiles --------------------------------------------------------------------------------- */

/* Link 1 and label 1 name trace A, link 2 and label 2 trace B, and link 3 trace C. */
static const char *profile(const char *type, const char *samples)
{
    static char text[4096];
    (void)snprintf(
        text, sizeof text,
        "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{%s\"samples\":[%s]}]}]}],"
        "\"dictionary\":{\"linkTable\":[{},{\"traceId\":\"" ID_A "\",\"spanId\":"
        "\"0000000000000001\"},{\"traceId\":\"" ID_B "\",\"spanId\":\"0000000000000001\"},"
        "{\"traceId\":\"" ID_C "\",\"spanId\":\"0000000000000001\"}],"
        "\"stringTable\":[\"\",\"span_id\",\"trace_id\",\"cpu\",\"nanoseconds\",\"samples\","
        "\"count\"],\"attributeTable\":[{},{\"keyStrindex\":2,\"value\":{\"stringValue\":\"" ID_A
        "\"}},{\"keyStrindex\":2,\"value\":{\"stringValue\":\"" ID_B "\"}},"
        "{\"keyStrindex\":1,\"value\":{\"stringValue\":\"0000000000000001\"}}],"
        "\"stackTable\":[{},{}]}}",
        type, samples);
    return text;
}

#define CPU_TIME "\"sampleType\":{\"typeStrindex\":3,\"unitStrindex\":4},"
#define CPU_COUNT                                                                                  \
    "\"sampleType\":{\"typeStrindex\":5,\"unitStrindex\":6},\"periodType\":{\"typeStrindex\":3,"   \
    "\"unitStrindex\":4},\"period\":\"10000000\","
#define LINKED(n, link) "{\"stackIndex\":1,\"linkIndex\":" link ",\"values\":[\"" n "\"]}"
#define LABELLED(n, labels)                                                                        \
    "{\"stackIndex\":1,\"attributeIndices\":[" labels "],\"values\":[\"" n "\"]}"
#define PLAIN(n) "{\"stackIndex\":1,\"values\":[\"" n "\"]}"

static void expect_samples(struct rig *r, const char *samples)
{
    char mark[1024];
    (void)snprintf(mark, sizeof mark, "\"samples\":[%s]", samples);
    if (!strstr(r->out.data, mark))
        fail_msg("%s\nis not in %s", mark, r->out.data);
}

/* Samples of a trace that is not sampled lose their link and their labels, and are merged. */
static void samples_follow_the_decision(void **state)
{
    (void)state;
    static const char in[] = LINKED("1", "1") "," LINKED("2", "2") "," LINKED(
        "4", "2") "," LABELLED("8", "1,3") "," LABELLED("16", "2,3") "," PLAIN("32");
    static const char out[] = LINKED("1", "1") "," PLAIN("54") "," LABELLED("8", "1,3");
    for (int first = 0; first < 3; first++) {
        struct rig *r =
            rig_new(&br_tail_sampling_processor, "{decision_wait: 5s, " KEEP_ERRORS "}");
        if (first == 1)
            rig_send(r, rig_item(r, BR_PROFILES, profile("", in)));
        send_spans(r, span_of(ID_A, 'a', true, true), span_of(ID_B, 'b', true, false));
        if (first == 0)
            rig_send(r, rig_item(r, BR_PROFILES, profile("", in)));
        assert_int_equal(r->n_out, 0);
        advance(r, 5000);
        advance(r, 1000);
        if (first == 2)
            rig_send(r, rig_item(r, BR_PROFILES, profile("", in)));
        assert_int_equal(r->n_out, 2);
        if (first != 1)
            expect_samples(r, out);
        assert_int_equal((int)rig_dropped(r, BR_PROFILES, "folded"), 3);
        assert_int_equal(
            (int)rig_metric(r, "braid_tail_sampling_samples_folded", "processor=\"tail_sampling\""),
            3);
        rig_free(r);
    }
}

/* A profile is not held if it does not refer to any trace, or if all of its traces are decided.
 * Samples of a trace whose spans do not arrive keep their link. */
static void samples_without_spans(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_tail_sampling_processor, "{decision_wait: 5s, " KEEP_ERRORS "}");
    rig_send(r, rig_item(r, BR_PROFILES, profile("", PLAIN("1"))));
    assert_int_equal(r->n_out, 1);
    rig_send(r, rig_item(r, BR_PROFILES, profile("", LINKED("1", "3"))));
    advance(r, 4999);
    assert_int_equal(r->n_out, 1);
    advance(r, 1);
    advance(r, 500);
    assert_int_equal(r->n_out, 2);
    expect_samples(r, LINKED("1", "3"));
    /* the trace was not decided, so its spans are evaluated */
    send_spans(r, span_of(ID_C, 'c', true, true), NULL);
    advance(r, 4999);
    assert_int_equal(r->n_out, 2);
    advance(r, 500);
    assert_int_equal(r->n_out, 3);
    rig_free(r);
}

/* A span that arrives while samples wait begins the wait of its trace. */
static void samples_wait_for_the_trace(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_tail_sampling_processor, "{decision_wait: 5s, " KEEP_ERRORS "}");
    rig_send(r, rig_item(r, BR_PROFILES, profile("", LINKED("1", "2"))));
    advance(r, 4000);
    send_spans(r, span_of(ID_B, 'b', true, false), NULL);
    advance(r, 4999);
    assert_int_equal(r->n_out, 0);
    advance(r, 500);
    assert_int_equal(r->n_out, 1);
    expect_samples(r, PLAIN("1"));
    rig_free(r);
}

/* The samples of traces A, B and C have 30 ms, 60 ms and 90 ms of CPU time. A second profile may
 * contain the same samples as counts of sampling periods. These samples count only once. */
static void policies_that_read_profiles(void **state)
{
    (void)state;
    static const struct {
        const char *policy, *kept;
    } cases[] = {
        {"type: profiled", "abc"},
        {"type: profiled, profiled: {min_samples: 3}", "bc"},
        {"type: profiled, profiled: {min_samples: 5}", ""},
        {"type: cpu_time, cpu_time: {threshold_ms: 29}", "abc"},
        {"type: cpu_time, cpu_time: {threshold_ms: 30}", "bc"},
        {"type: cpu_time, cpu_time: {threshold_ms: 60}", "c"},
        {"type: cpu_time, cpu_time: {threshold_ms: 90}", ""},
        {"type: not, not: {not_sub_policy: {type: cpu_time, cpu_time: {threshold_ms: 60}}}", "abd"},
    };
    static const char times[] = LINKED("30000000", "1") "," LINKED("20000000", "2") "," LINKED(
        "40000000", "2") "," LINKED("90000000", "3") "," LINKED("0", "3");
    static const char counts[] =
        LINKED("3", "1") "," LINKED("6", "2") "," LINKED("8", "3") "," LINKED("1", "3");
    char all[1024], more[1024], yaml[256];
    (void)snprintf(all, sizeof all, "%s,%s", span_of(ID_A, 'a', true, false),
                   span_of(ID_B, 'b', true, false));
    (void)snprintf(more, sizeof more, "%s,%s", span_of(ID_C, 'c', true, false),
                   span_of("0d000000000000000000000000000001", 'd', true, false));
    for (size_t i = 0; i < 2 * BR_COUNT(cases); i++) {
        const char *kept = cases[i / 2].kept;
        (void)snprintf(yaml, sizeof yaml, "{decision_wait: 5s, policies: [{name: p, %s}]}",
                       cases[i / 2].policy);
        struct rig *r = rig_new(&br_tail_sampling_processor, yaml);
        if (i % 2)
            send_spans(r, all, more);
        rig_send(r, rig_item(r, BR_PROFILES, profile(CPU_COUNT, counts)));
        rig_send(r, rig_item(r, BR_PROFILES, profile(CPU_TIME, times)));
        if (i % 2 == 0)
            send_spans(r, all, more);
        advance(r, 5000);
        advance(r, 500);
        assert_int_equal((int)decided(r, SAMPLED), strlen(kept));
        if (i % 2 == 0 && *kept)
            assert_string_equal(names(r), kept);
        rig_free(r);
    }
}

/* --- Errors ----------------------------------------------------------------------------------- */

static void configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "test.yaml:1:1: x::policies: must contain at least one policy"},
        {"{policies: [{type: always_sample}]}", "x::policies[0]::name: is required"},
        {"{policies: [{name: a, type: always_sample}, {name: a, type: trace_flags}]}",
         "x::policies[1]::name: \"a\" is the name of another policy"},
        {"{policies: [{name: a}]}", "x::policies[0]: \"type\" is missing"},
        {"{policies: [{name: a, type: some}]}", "x::policies[0]::type: must be one of"},
        {"{policies: [{name: a, type: status_code}]}",
         "x::policies[0]::status_code::status_codes: must contain at least one"},
        {"{policies: [{name: a, type: status_code, status_code: {status_codes: [Error]}}]}",
         "must be OK, ERROR or UNSET"},
        {"{policies: [{name: a, type: numeric_attribute, numeric_attribute: {key: k}}]}",
         "min_value or max_value must be set"},
        {"{policies: [{name: a, type: string_attribute, string_attribute: {key: k, values: ['('], "
         "enabled_regex_matching: true}}]}",
         "x::policies[0]::string_attribute::values: "},
        {"{policies: [{name: a, type: boolean_attribute}]}",
         "x::policies[0]::boolean_attribute::key: is required"},
        {"{policies: [{name: a, type: ottl_condition}]}", "must contain at least one condition"},
        {"{policies: [{name: a, type: ottl_condition, ottl_condition: {span: ['name ==']}}]}",
         "x::policies[0]::ottl_condition::span: at character"},
        {"{policies: [{name: a, type: ottl_condition, ottl_condition: {spanevent: ['name == "
         "\"a\"']}}]}",
         "conditions on events of spans are not supported"},
        {"{policies: [{name: a, type: and, and: {and_sub_policy: []}}]}",
         "x::policies[0]::and::and_sub_policy: must be a list of policies, and not empty"},
        {"{policies: [{name: a, type: and, and: {and_sub_policy: [{type: composite}]}}]}",
         "x::policies[0]::and::and_sub_policy[0]::type: a policy of the type composite is not "
         "possible here"},
        {"{policies: [{name: a, type: not}]}",
         "x::policies[0]::not::not_sub_policy: must be a policy"},
        {"{policies: [{name: a, type: not, not: {not_sub_policy: {type: status_code}}}]}",
         "x::policies[0]::not::not_sub_policy::status_code::status_codes"},
        {"{policies: [{name: a, type: not, not: {not_sub_policy: {type: trace_flags, and: {}}}}]}",
         "x::policies[0]::not::not_sub_policy: unknown key \"and\""},
        {"{sampling_strategy: span-ingest, " KEEP_ALL "}", "span-ingest is not supported"},
        {"{tail_storage: a, " KEEP_ALL "}",
         "tail_storage: spans that wait are kept in memory only"},
    };
    rig_expect_errors_in(&br_tail_sampling_processor, cases, BR_COUNT(cases));
    assert_string_equal(rig_errors(&br_tail_sampling_processor, "{" KEEP_ALL "}"), "");
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void no_memory(void **state)
{
    (void)state;
    static const char yaml[] =
        "{decision_wait: 0s, policies: [{name: s, type: string_attribute, string_attribute: {key: "
        "k, values: ['^v'], enabled_regex_matching: true}}, {name: o, type: ottl_condition, "
        "ottl_condition: {span: ['name == \"a\"']}}]}";
    char in[4096], out[4096], samples[4096];
    (void)snprintf(in, sizeof in, "%s",
                   request(span_of(ID_A, 'a', true, false), span_of(ID_B, 'b', true, false)));
    (void)snprintf(out, sizeof out, "%s", request(span_of(ID_A, 'a', true, false), NULL));
    assert_in_range(rig_run_short(&(struct rig_shortage){&br_tail_sampling_processor, yaml,
                                                         BR_TRACES, in, .expected = out}),
                    2, 100);
    (void)snprintf(samples, sizeof samples, "%s", profile("", PLAIN("1")));
    assert_in_range(
        rig_run_short(&(struct rig_shortage){&br_tail_sampling_processor, yaml, BR_PROFILES,
                                             samples, .expected = samples}),
        2, 100);
}

static void mutants(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_tail_sampling_processor, "{decision_wait: 1s, " KEEP_ERRORS "}");
    char *traces = read_file("tests/data/tail_sampling/traces.json");
    assert_in_range(rig_send_mutants(r, BR_TRACES, traces, 300), 20, 300);
    assert_in_range(rig_send_mutants(r, BR_PROFILES,
                                     profile(CPU_TIME, LINKED("1", "1") "," LABELLED("2", "2,3")),
                                     300),
                    20, 300);
    advance(r, 1000);
    free(traces);
    rig_free(r);
}

SUITE(tail_sampling)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_of_the_collector),
        cmocka_unit_test(a_trace_is_decided_after_the_wait),
        cmocka_unit_test(a_span_after_the_wait_is_late),
        cmocka_unit_test(a_root_span_shortens_the_wait),
        cmocka_unit_test(decided_traces_leave_their_request),
        cmocka_unit_test(late_spans_follow_the_decision),
        cmocka_unit_test(old_decisions_are_forgotten),
        cmocka_unit_test(too_many_traces_are_decided_early),
        cmocka_unit_test(a_full_table_can_block),
        cmocka_unit_test(too_many_bytes_release_the_oldest_request),
        cmocka_unit_test(a_waiting_sender_is_answered_late),
        cmocka_unit_test(a_slow_next_component_blocks),
        cmocka_unit_test(draining_decides),
        cmocka_unit_test(samples_follow_the_decision),
        cmocka_unit_test(samples_without_spans),
        cmocka_unit_test(samples_wait_for_the_trace),
        cmocka_unit_test(policies_that_read_profiles),
        cmocka_unit_test(configs),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(mutants),
    };
    return RUN_VARIANTS(tests, rig_order);
}
