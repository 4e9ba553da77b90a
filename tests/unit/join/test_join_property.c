/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random spans and samples in random orders and requests, through two workers that share a table.
 * Each seed writes the fields of messages in a different order.
 *
 * The oracle knows nothing about the table: a sample is joined exactly if its span arrived less
 * than a window before or after it, and then it has the name and the attributes of that span and of
 * no other.
 */
#include "base/mem.h"
#include "core/shared.h"
#include "tests/support/fake_sink.h"
#include "tests/support/join_rig.h"
#include "tests/support/test.h"

#define WINDOW_MS 10000
#define CLOCK_MS                                                                                   \
    300 /* the table's clock ticks every 100 ms; clocks of workers differ by SKEW_MS               \
         */
#define SKEW_MS 70
#define AGAIN_MS 500 /* within this time a span may be sent twice */
#define SPANS_MAX 20000
#define SAMPLES_MAX 10000
#define REQUESTS_MAX 400

enum means {
    BY_LINK,
    BY_LINK_WITHOUT_TRACE,
    BY_HEX,
    BY_HEX_AND_TRACE,
    BY_UPPER,
    BY_INT,
    BY_NOTHING
};
#define MEANS 7

struct span {
    uint64_t trace, id;
    unsigned service;
    char name[32], route[32]; /* route "": none */
    unsigned request[2];      /* numbers of the requests that contain the record; 0: none */
    bool came;
    int64_t came_ms;
};

struct sample {
    enum means means;
    unsigned span;
    unsigned request;
    int64_t came_ms;
    unsigned n_out;
};

struct request {
    int64_t at_ms;
    enum br_signal signal;
    unsigned worker;
};

struct world {
    uint64_t seed, random;
    unsigned n_spans, n_samples, n_requests;
    struct span spans[SPANS_MAX];
    struct sample samples[SAMPLES_MAX];
    /* the requests in the order of their time; request 0 is unused */
    struct request requests[REQUESTS_MAX];
};

static unsigned below(struct world *w, unsigned n)
{
    return (unsigned)(fake_random(&w->random) % n);
}

/* --- Making one ------------------------------------------------------------------------------- */

static void make_requests(struct world *w, unsigned n)
{
    w->n_requests = n + 1;
    int64_t at = 0;
    for (unsigned i = 1; i <= n; i++) {
        at += below(w, 3 * WINDOW_MS / n * 2 + 1);
        w->requests[i] = (struct request){
            .at_ms = at, .signal = below(w, 2) ? BR_PROFILES : BR_TRACES, .worker = below(w, 2)};
    }
    w->requests[1].signal = BR_TRACES;
    w->requests[n].signal = BR_PROFILES;
}

static unsigned random_request(struct world *w, enum br_signal signal)
{
    unsigned i;
    do
        i = 1 + below(w, w->n_requests - 1);
    while (w->requests[i].signal != signal);
    return i;
}

static void make_spans(struct world *w, unsigned n)
{
    w->n_spans = n;
    for (unsigned i = 0; i < n; i++) {
        struct span *s = &w->spans[i];
        *s = (struct span){
            .trace = 1 + below(w, n), .id = fake_random(&w->random), .service = below(w, 5)};
        (void)snprintf(s->name, sizeof s->name, "op-%u", i);
        if (below(w, 2))
            (void)snprintf(s->route, sizeof s->route, "/route/%u", below(w, 50));
        if (below(w, 10) == 0)
            continue; /* never sent */
        unsigned r = random_request(w, BR_TRACES);
        s->request[0] = r;
        s->came = true;
        s->came_ms = w->requests[r].at_ms;
        while (++r < w->n_requests && w->requests[r].at_ms <= s->came_ms + AGAIN_MS)
            if (w->requests[r].signal == BR_TRACES && below(w, 4) == 0)
                s->request[1] = r;
    }
}

static void make_samples(struct world *w, unsigned n)
{
    w->n_samples = n;
    for (unsigned i = 0; i < n; i++) {
        unsigned r = random_request(w, BR_PROFILES);
        w->samples[i] = (struct sample){.means = (enum means)below(w, MEANS),
                                        .span = below(w, w->n_spans),
                                        .request = r,
                                        .came_ms = w->requests[r].at_ms};
    }
}

/* --- Writing it ------------------------------------------------------------------------------- */

static const char *const services[] = {"shop", "cart", "pay", "mail", "auth"};

static void put_spans(const struct world *w, unsigned request, struct wire *out)
{
    for (unsigned service = 0; service < 5; service++) {
        struct open o = open_resource(out, services[service], NULL, NULL, NULL);
        for (unsigned i = 0; i < w->n_spans; i++) {
            const struct span *s = &w->spans[i];
            if (s->service != service || (s->request[0] != request && s->request[1] != request))
                continue;
            struct span_in in = {.ids = join_ids(s->trace, s->id), .name = s->name};
            if (s->route[0]) {
                in.attributes[0] = "http.route";
                in.attributes[1] = s->route;
            }
            put_span(out, &in);
        }
        close_resource(out, o);
    }
}

static void put_one(struct world *w, unsigned i, struct dict *d, struct wire *out)
{
    const struct sample *s = &w->samples[i];
    const struct span *span = &w->spans[s->span];
    struct ids ids = join_ids(span->trace, span->id);
    struct sample_in in = {.value = i};
    char hex[40];
    (void)snprintf(hex, sizeof hex, s->means == BY_UPPER ? "%llX" : "%llx",
                   (unsigned long long)span->id);
    switch (s->means) {
    case BY_LINK:
        in.link = dict_link(d, ids.trace, ids.span);
        break;
    case BY_LINK_WITHOUT_TRACE:
        in.link = dict_link(d, NULL, ids.span);
        break;
    case BY_INT:
        in.attributes[0] = dict_attribute_int(d, "span_id", (int64_t)span->id);
        break;
    case BY_NOTHING:
        break;
    default:
        in.attributes[0] = dict_attribute(d, below(w, 2) ? "span_id" : "profile_id", hex);
        if (s->means == BY_HEX_AND_TRACE) {
            (void)snprintf(hex, sizeof hex, "%032llx", (unsigned long long)span->trace);
            in.attributes[1] = dict_attribute(d, "trace_id", hex);
        }
    }
    put_sample(out, &in);
}

static void put_samples(struct world *w, unsigned request, struct wire *out)
{
    static const struct profile_in profiles[] = {
        {"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
        {"samples", "count", NULL, NULL, 0, NULL},
        {"wall", "nanoseconds", NULL, NULL, 0, NULL},
    };
    struct dict d = {0};
    for (unsigned k = 0; k < 3; k++) {
        struct open o = open_resource(out, services[k], NULL, NULL, NULL);
        size_t p = open_profile(out, &d, &profiles[k]);
        for (unsigned i = k; i < w->n_samples; i += 3)
            if (w->samples[i].request == request)
                put_one(w, i, &d, out);
        wire_close(out, p);
        close_resource(out, o);
    }
    dict_put(out, &d);
}

static void advance_to(struct join_rig *r, int64_t start, int64_t ms)
{
    int64_t now = (int64_t)r->h->now_ms - start;
    if (ms > now)
        fake_host_advance(r->h, (uint64_t)(ms - now));
}

/* Advances the clocks of both workers. The clock of the second worker is slightly behind. */
static void both_to(struct join_rig *rigs[2], int64_t start, int64_t ms)
{
    for (int64_t at = (int64_t)rigs[0]->h->now_ms - start; at < ms;) {
        at = at + CLOCK_MS < ms ? at + CLOCK_MS : ms;
        advance_to(rigs[0], start, at);
        advance_to(rigs[1], start, at - SKEW_MS);
    }
}

static void run(struct world *w, struct join_rig *rigs[2])
{
    int64_t start = (int64_t)rigs[0]->h->now_ms;
    struct wire out = {0};
    for (unsigned i = 1; i < w->n_requests; i++) {
        const struct request *r = &w->requests[i];
        both_to(rigs, start, r->at_ms);
        wire_clear(&out);
        if (r->signal == BR_TRACES)
            put_spans(w, i, &out);
        else
            put_samples(w, i, &out);
        join_rig_send(rigs[r->worker], r->signal, &out, below(w, 2));
    }
    wire_free(&out);
    both_to(rigs, start, w->requests[w->n_requests - 1].at_ms + 4 * WINDOW_MS);
}

/* --- The oracle ------------------------------------------------------------------------------- */

struct seen {
    unsigned joined, plain;
};

/* Checks one line of the output: the sample has the attributes of its span, or none. */
static void check_line(struct world *w, char *line, bool must, struct seen *seen)
{
    unsigned i = (unsigned)strtoul(line, NULL, 10);
    assert_true(i < w->n_samples);
    struct sample *s = &w->samples[i];
    const struct span *span = &w->spans[s->span];
    char want[256];
    (void)snprintf(want, sizeof want, " span.name=%s%s%s", span->name,
                   span->route[0] ? " http.route=" : "", span->route);
    s->n_out++;
    char *added = strstr(line, " span.name=");
    int64_t apart = s->came_ms - span->came_ms;
    apart = apart < 0 ? -apart : apart;
    bool linked = s->means != BY_NOTHING;
    bool near = linked && span->came && apart <= WINDOW_MS - CLOCK_MS;
    bool far = !linked || !span->came || apart > WINDOW_MS + CLOCK_MS + AGAIN_MS;
    bool wrong = added ? far || strcmp(added, want) != 0 : near && must;
    if (wrong)
        fail_msg("seed %llu: sample %u of span %u, %lld ms after it%s: %s",
                 (unsigned long long)w->seed, i, s->span, (long long)(s->came_ms - span->came_ms),
                 span->came ? "" : " (never sent)", line);
    seen->joined += added != NULL;
    seen->plain += !linked;
    /* The span is now named by a link, and by nothing else. */
    char id[32];
    (void)snprintf(id, sizeof id, "/%016llx:", (unsigned long long)span->id);
    if (linked != (strstr(line, id) != NULL))
        fail_msg("seed %llu: %s", (unsigned long long)w->seed, line);
}

static double total(struct join_rig *rigs[2], const char *name)
{
    static const char *const types[] = {"cpu:nanoseconds", "samples:count", "wall:nanoseconds"};
    double n = 0;
    for (unsigned k = 0; k < 2; k++)
        for (unsigned t = 0; t < 3; t++)
            n += join_rig_count(rigs[k], name, types[t]);
    return n;
}

/* Reads all output; every sample must be exported once and counted once. */
static struct seen check_output(struct world *w, struct join_rig *rigs[2], bool must)
{
    struct seen seen = {0};
    for (unsigned k = 0; k < 2; k++) {
        for (unsigned o = 0; o < rigs[k]->n_out; o++) {
            if (rigs[k]->out[o].signal != BR_PROFILES)
                continue;
            char *rest = NULL;
            for (char *line = strtok_r(rigs[k]->out[o].text, "\n", &rest); line;
                 line = strtok_r(NULL, "\n", &rest))
                check_line(w, line, must, &seen);
        }
    }
    for (unsigned i = 0; i < w->n_samples; i++)
        assert_int_equal(w->samples[i].n_out, 1);
    assert_int_equal(total(rigs, "samples_unlinked"), seen.plain);
    assert_int_equal(total(rigs, "samples_joined") + total(rigs, "samples_joined_late") +
                         total(rigs, "samples_unknown_span") + total(rigs, "samples_too_late") +
                         seen.plain,
                     w->n_samples);
    return seen;
}

typedef void judge_fn(struct world *w, struct join_rig *rigs[2]);

static void one_world(uint64_t seed, unsigned n_spans, unsigned n_samples, const char *config,
                      judge_fn *judge)
{
    struct world *w = calloc(1, sizeof *w);
    struct br_shared *shared = br_shared_new();
    assert_non_null(w);
    assert_non_null(shared);
    w->seed = w->random = seed;
    make_requests(w, 20 + below(w, REQUESTS_MAX - 30));
    make_spans(w, n_spans);
    make_samples(w, n_samples);
    struct join_rig *rigs[2] = {join_rig_new(config, shared, 0), join_rig_new(config, shared, 1)};
    for (unsigned k = 0; k < 2; k++) {
        rigs[k]->order = (enum reorder)(seed % REORDERS);
        rigs[k]->random = seed;
    }
    run(w, rigs);
    judge(w, rigs);
    join_rig_free(rigs[0]);
    join_rig_free(rigs[1]);
    br_shared_free(shared);
    free(w);
}

#define CONFIG                                                                                     \
    "{window: 10s, profile_hold: 10s, sample_attributes: [http.route], max_values: 100000, "

static void judge_all(struct world *w, struct join_rig *rigs[2])
{
    struct seen seen = check_output(w, rigs, true);
    double joined = total(rigs, "samples_joined"), late = total(rigs, "samples_joined_late");
    assert_int_equal(joined + late, seen.joined);
    assert_true(joined > 0 && late > 0);
    assert_true(total(rigs, "samples_unknown_span") > 0 && total(rigs, "samples_too_late") > 0);
}

static void every_linked_sample_is_joined_and_none_wrongly(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++)
        one_world(seed, 300, 600, CONFIG "hold_max_bytes: 1000000000}", judge_all);
}

/* Metrics and output agree even if spans were evicted in between. */
static void check_overflow(struct world *w, struct join_rig *rigs[2])
{
    struct seen seen = check_output(w, rigs, false);
    assert_int_equal(total(rigs, "samples_joined") + total(rigs, "samples_joined_late"),
                     seen.joined);
    double evicted = join_rig_count(rigs[0], "spans_evicted", NULL) +
                     join_rig_count(rigs[1], "spans_evicted", NULL);
    assert_true(evicted > 0);
}

/* The smallest table has room for only a third of the spans. */
static void a_table_that_overflows_joins_none_wrongly(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++)
        one_world(seed, SPANS_MAX, SAMPLES_MAX,
                  CONFIG "hold_max_bytes: 1000000000, max_bytes: 1048576}", check_overflow);
}

/* Late samples that could not be held are counted. They do not have a span name. */
static void check_full_hold(struct world *w, struct join_rig *rigs[2])
{
    struct seen seen = check_output(w, rigs, false);
    double joined = total(rigs, "samples_joined"), late = total(rigs, "samples_joined_late");
    assert_true(join_rig_count(rigs[0], "hold_full_items", NULL) > 0);
    assert_true(seen.joined >= joined);
    assert_true(seen.joined < joined + late);
}

/* If few bytes may be held, some samples are forwarded before their span arrives. */
static void a_hold_that_overflows_joins_none_wrongly(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        one_world(seed, 300, 600, CONFIG "hold_max_bytes: 3000}", check_full_hold);
}

SUITE(join_property)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_linked_sample_is_joined_and_none_wrongly),
        cmocka_unit_test(a_table_that_overflows_joins_none_wrongly),
        cmocka_unit_test(a_hold_that_overflows_joins_none_wrongly),
    };
    return RUN(tests, NULL, NULL);
}
