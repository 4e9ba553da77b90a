/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests which links are kept, and how the other samples are merged. An oracle checks random worlds
 * with protobuf-c. It tracks every span and every sample separately.
 */
#include "base/mem.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "otlp/json/json.h"
#include "pipeline/override.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/gen.h"
#include "tests/support/join_rig.h"
#include "tests/support/test.h"

#define CPU "cpu:nanoseconds"

#define request                                                                                    \
    Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
#define sample_msg Opentelemetry__Proto__Profiles__V1development__Sample
#define profile_msg Opentelemetry__Proto__Profiles__V1development__Profile
#define dictionary_msg Opentelemetry__Proto__Profiles__V1development__ProfilesDictionary

static const struct profile_in cpu = {"cpu", "nanoseconds", "cpu", "nanoseconds", 10, NULL};

static void send_spans(struct join_rig *r, const struct span_in *spans, unsigned n)
{
    struct wire w = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    for (unsigned i = 0; i < n; i++)
        put_span(&w, &spans[i]);
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

/* Writes one request with one CPU profile. A sample's `link` is the number of the span that it
 * names in trace `trace`; `stack` is the number of its stack, from 1. */
static void put_samples(struct wire *w, const struct profile_in *profile, uint64_t trace,
                        const struct sample_in *samples, unsigned n)
{
    struct dict d = {0};
    struct open o = open_resource(w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(w, &d, profile);
    char name[8] = "f0";
    for (unsigned i = 0; i < 8; i++, name[1]++)
        (void)dict_stack(&d, name);
    for (unsigned i = 0; i < n; i++) {
        struct sample_in s = samples[i];
        struct ids ids = join_ids(trace, s.link);
        s.link = s.link ? dict_link(&d, ids.trace, ids.span) : 0;
        put_sample(w, &s);
    }
    wire_close(w, p);
    close_resource(w, o);
    dict_put(w, &d);
}

static void send_samples(struct join_rig *r, uint64_t trace, const struct sample_in *samples,
                         unsigned n)
{
    struct wire w = {0};
    put_samples(&w, &cpu, trace, samples, n);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
}

#define SPAN(n, ...)                                                                               \
    {                                                                                              \
        .ids = {.trace = {[15] = 7}, .span = {[7] = (n)}}, __VA_ARGS__                             \
    }

static const struct span_in spans[] = {
    SPAN(1, .name = "GET", .start_ns = 1000, .end_ns = 201000),
    SPAN(2, .name = "GET", .start_ns = 1000, .end_ns = 200999),
    SPAN(3, .name = "GET", .start_ns = 1000, .end_ns = 1001, .status = 2),
    SPAN(4, .name = "PUT", .start_ns = 1000, .end_ns = 21000),
    SPAN(5, .name = "POLL", .start_ns = 1000, .end_ns = 900000),
};

static void links_survive_for_slow_and_failed_spans(void **state)
{
    (void)state;
    struct join_rig *r =
        join_rig_new("{keep: {slow_threshold: 200us, span_names: [{name: PUT, slow_threshold: "
                     "20us}, {name: POLL}]}}",
                     NULL, 0);
    static const struct sample_in samples[] = {
        {.link = 1, .stack = 1, .value = 1},  {.link = 2, .stack = 1, .value = 2},
        {.link = 3, .stack = 1, .value = 4},  {.link = 4, .stack = 1, .value = 8},
        {.link = 5, .stack = 1, .value = 16}, {.link = 2, .stack = 1, .value = 32},
        {.link = 2, .stack = 2, .value = 64}, {.link = 9, .stack = 1, .value = 128},
        {.stack = 1, .value = 256},           {.link = 9, .stack = 1, .value = 512},
    };
    send_spans(r, spans, 5);
    send_samples(r, 7, samples, BR_COUNT(samples));
    assert_string_equal(join_rig_last(r),
                        "1 00000000000000000000000000000007/0000000000000001: span.name=GET\n"
                        "34 -: span.name=GET\n" /* 2 and 32 */
                        "4 00000000000000000000000000000007/0000000000000003: span.name=GET\n"
                        "8 00000000000000000000000000000007/0000000000000004: span.name=PUT\n"
                        "16 -: span.name=POLL\n"
                        "64 -: span.name=GET\n" /* of another stack */
                        /* the samples of 128 and 256, which had no link, and of 512, whose link
                         * was removed */
                        "896 -:\n");
    assert_int_equal(join_rig_count(r, "samples_folded", CPU), 6);
    assert_int_equal(join_rig_count(r, "folded_values", CPU), 2 + 16 + 32 + 64 + 128 + 512);
    assert_int_equal(join_rig_count(r, "samples_joined", CPU), 7);
    assert_int_equal(join_rig_count(r, "samples_unlinked", CPU), 1);
    join_rig_free(r);
}

/* With the third sample, the span's CPU time exceeds the threshold. Then the links of the first two
 * samples are kept, too. */
static void links_to_spans_with_much_cpu_time_are_kept(void **state)
{
    (void)state;
    static const struct sample_in less[] = {{.link = 1, .stack = 1, .value = 400000},
                                            {.link = 1, .stack = 2, .value = 600000}};
    static const struct sample_in more[] = {{.link = 1, .stack = 3, .value = 1},
                                            {.link = 1, .stack = 4, .value = 2}};
    struct join_rig *r = join_rig_new("{keep: {cpu_threshold: 1ms}}", NULL, 0);
    send_spans(r, spans, 1);
    send_samples(r, 7, less, 2);
    assert_string_equal(join_rig_last(r), "400000 -: span.name=GET\n600000 -: span.name=GET\n");
    send_samples(r, 7, more, 2);
    assert_string_equal(join_rig_last(r),
                        "1 00000000000000000000000000000007/0000000000000001: span.name=GET\n"
                        "2 00000000000000000000000000000007/0000000000000001: span.name=GET\n");
    join_rig_free(r);
}

/* Only spans whose samples keep their links have a mark. */
static void spans_without_links_are_not_marked(void **state)
{
    (void)state;
    static const struct sample_in samples[] = {{.link = 1, .stack = 1, .value = 400000},
                                               {.link = 2, .stack = 1, .value = 400000},
                                               {.link = 3, .stack = 1, .value = 1},
                                               {.link = 4, .stack = 1, .value = 1000001}};
    struct join_rig *r = join_rig_new(
        "{hold: 1s, mark: exact, keep: {slow_threshold: 200us, cpu_threshold: 1ms}}", NULL, 0);
    send_spans(r, spans, 5);
    send_samples(r, 7, samples, BR_COUNT(samples));
    fake_host_advance(r->h, 1000);
    char *rest = NULL, *line = strtok_r(r->out[r->n_out - 1].text, "\n", &rest);
    for (unsigned i = 0; i < 5; i++, line = strtok_r(NULL, "\n", &rest)) {
        /* the last one has no samples */
        static const bool marked[] = {true, false, true, true, false};
        assert_non_null(line);
        assert_int_equal(strstr(line, "pyroscope.profile.id=") != NULL, marked[i]);
        assert_int_equal(strstr(line, "profile.duration_us=") != NULL, i < 4);
    }
    join_rig_free(r);
}

static void links_to_unknown_spans_can_be_kept(void **state)
{
    (void)state;
    static const struct sample_in samples[] = {{.link = 9, .stack = 1, .value = 1},
                                               {.link = 1, .stack = 1, .value = 2}};
    struct join_rig *r = join_rig_new("{keep: {unknown: true}}", NULL, 0);
    send_spans(r, spans, 1);
    send_samples(r, 7, samples, 2);
    assert_string_equal(join_rig_last(r), "1 00000000000000000000000000000007/0000000000000009:\n"
                                          "2 -: span.name=GET\n");
    join_rig_free(r);
}

/* The decision about a link was made without its span. If the profile is held until the span
 * arrives, the decision is made again. */
static void held_profiles_know_whether_a_span_is_slow(void **state)
{
    (void)state;
    static const struct sample_in samples[] = {{.link = 1, .stack = 1, .value = 1},
                                               {.link = 2, .stack = 1, .value = 2}};
    struct join_rig *r = join_rig_new("{profile_hold: 1s, keep: {slow_threshold: 200us}}", NULL, 0);
    send_samples(r, 7, samples, 2);
    send_spans(r, spans, 2);
    fake_host_advance(r->h, 1000);
    assert_string_equal(join_rig_last(r),
                        "1 00000000000000000000000000000007/0000000000000001: span.name=GET\n"
                        "2 -: span.name=GET\n");
    join_rig_free(r);
}

static void a_rule_at_run_time_keeps_links_for_a_while(void **state)
{
    (void)state;
    static const struct sample_in samples[] = {{.link = 1, .stack = 1, .value = 1}};
    struct join_rig *r = join_rig_new("{keep: {}}", NULL, 0);
    const struct br_override rule = {.id = 1,
                                     .until_ms = br_host_mono_ms(&r->h->host) + 1000,
                                     .service = "shop",
                                     .keep = true,
                                     .sampling_percentage = 100};
    const char *kept = "1 00000000000000000000000000000007/0000000000000001: span.name=GET\n";
    send_spans(r, spans, 1);
    send_samples(r, 7, samples, 1);
    assert_string_equal(join_rig_last(r), "1 -: span.name=GET\n");
    assert_int_equal(br_override_apply(&r->h->host, &rule, NULL), 1);
    send_samples(r, 7, samples, 1);
    assert_string_equal(join_rig_last(r), kept);
    fake_host_advance(r->h, 999);
    send_samples(r, 7, samples, 1);
    assert_string_equal(join_rig_last(r), kept);
    fake_host_advance(r->h, 1);
    send_samples(r, 7, samples, 1);
    assert_string_equal(join_rig_last(r), "1 -: span.name=GET\n");
    join_rig_free(r);
}

/* Samples are not merged if a sum does not fit into an int64, or their numbers of values and
 * timestamps differ. */
static void samples_that_cannot_be_added_stay_separate(void **state)
{
    (void)state;
    static const uint64_t times[] = {5000, 5001};
    static const struct sample_in samples[] = {
        {.link = 1, .stack = 1, .value = INT64_MAX},
        {.link = 1, .stack = 1, .value = 1},
        {.link = 1, .stack = 1, .value = 2},
        {.link = 1, .stack = 1, .value = (uint64_t)-3},
        {.link = 1, .stack = 1, .value = 7, .n_times = 1, .times = times},
        {.link = 1, .stack = 1, .no_value = true, .n_times = 2, .times = times},
    };
    struct join_rig *r = join_rig_new("{keep: {}}", NULL, 0);
    send_spans(r, spans, 1);
    send_samples(r, 7, samples, BR_COUNT(samples));
    assert_string_equal(join_rig_last(r), "9223372036854775807 -: span.name=GET\n"
                                          "0 -: span.name=GET\n" /* 1 + 2 - 3 */
                                          "7 -: span.name=GET\n"
                                          "5000 -: span.name=GET\n");
    join_rig_free(r);
}

/* --- Random worlds ---------------------------------------------------------------------------- */

#define SPANS 60
#define SAMPLES 300
#define STACKS 9
#define PERCENTAGE 25

struct world {
    uint64_t random;
    struct span_in spans[SPANS];
    uint64_t cpu_ns[SPANS]; /* CPU time of the samples that name the span */
    int kept[SPANS];        /* samples whose links must be kept */
    unsigned shape;         /* 0: values, 1: timestamps, 2: both */
    unsigned n_folded;
    uint64_t totals[STACKS], n_times; /* by stack */
};

struct choice {
    /* number of the span that the sample names; SPANS: it does not name a span; SPANS + 1: a
     * span that is never sent */
    unsigned span;
    /* how the sample names the span: 0: by a link, 1: by labels, 2: by a label without the trace
     * id */
    unsigned by;
    unsigned n;
    uint64_t values[4], times[4];
};

static unsigned below(struct world *w, unsigned n)
{
    return (unsigned)(fake_random(&w->random) % n);
}

static void make_spans(struct world *w)
{
    static const char *const names[] = {"GET", "PUT", "POLL"};
    for (unsigned i = 0; i < SPANS; i++) {
        struct span_in *s = &w->spans[i];
        *s = (struct span_in){.ids = join_ids(fake_random(&w->random), i + 1),
                              .name = names[below(w, 3)],
                              .status = below(w, 10) == 0 ? 2 : 0,
                              .start_ns = 1000,
                              .end_ns = 1000 + below(w, 300000)};
        memcpy(s->ids.trace, &(uint64_t){fake_random(&w->random)}, 8);
    }
}

/* Returns true if the last 56 bits of the trace id are at least three quarters of their range. */
static bool sampled(const struct span_in *s)
{
    return s->ids.trace[9] >= 0xc0;
}

static bool is_kept(const struct world *w, unsigned span)
{
    const struct span_in *s = &w->spans[span];
    uint64_t slow = 200000;
    if (strcmp(s->name, "PUT") == 0)
        slow = 20000;
    else if (strcmp(s->name, "POLL") == 0)
        slow = UINT64_MAX;
    return sampled(s) || s->status == 2 || s->end_ns - s->start_ns >= slow ||
           w->cpu_ns[span] > 4000;
}

static void put_choice(struct world *w, struct dict *d, struct wire *out, const struct choice *p)
{
    struct sample_in in = {.stack = below(w, STACKS),
                           .no_value = w->shape == 1,
                           .values = p->values,
                           .times = p->times,
                           .n_times = w->shape ? p->n : 0};
    struct ids ids = join_ids(3, 1000);
    unsigned k = 0;
    char hex[40];
    if (p->span < SPANS)
        ids = w->spans[p->span].ids;
    if (p->by == 0 && p->span != SPANS)
        in.link = dict_link(d, ids.trace, ids.span);
    if (p->by && p->span != SPANS) {
        (void)snprintf(hex, sizeof hex, "%016llx",
                       (unsigned long long)__builtin_bswap64(*(uint64_t *)(void *)ids.span));
        in.attributes[k++] = dict_attribute(d, "span_id", hex);
    }
    if (p->by == 1 && p->span != SPANS) {
        for (unsigned i = 0; i < 16; i++)
            (void)snprintf(hex + 2 * i, 3, "%02x", ids.trace[i]);
        in.attributes[k++] = dict_attribute(d, "trace_id", hex);
    }
    if (below(w, 2))
        in.attributes[k++] = 1; /* thread.name */
    put_sample(out, &in);
    for (unsigned i = 0; i < (w->shape ? p->n : 1); i++)
        w->totals[in.stack] += w->shape == 1 ? 1 : p->values[i];
    w->n_times += w->shape ? p->n : 0;
}

static void make_samples(struct world *w, struct wire *out)
{
    struct dict d = {0};
    struct open o = open_resource(out, "shop", NULL, NULL, NULL);
    size_t at = open_profile(out, &d, &cpu);
    char name[8] = "f0";
    (void)dict_attribute(&d, "thread.name", "worker");
    for (unsigned i = 1; i < STACKS; i++, name[1]++)
        (void)dict_stack(&d, name);
    static struct choice choices[SAMPLES];
    for (unsigned i = 0; i < SAMPLES; i++) {
        struct choice *p = &choices[i];
        *p = (struct choice){.span = below(w, SPANS + 2), .by = below(w, 3), .n = 1 + below(w, 4)};
        for (unsigned k = 0; k < 4; k++) {
            p->values[k] = below(w, 1000);
            p->times[k] = 10000000 + below(w, 1000);
        }
        for (unsigned k = 0; k < (w->shape ? p->n : 1) && p->span < SPANS; k++)
            w->cpu_ns[p->span] += w->shape == 1 ? 10 : p->values[k];
        put_choice(w, &d, out, p);
    }
    for (unsigned i = 0; i < SAMPLES; i++) {
        bool kept = choices[i].span < SPANS && is_kept(w, choices[i].span);
        if (kept)
            w->kept[choices[i].span]++;
        w->n_folded += choices[i].span != SPANS && !kept;
    }
    wire_close(out, at);
    close_resource(out, o);
    dict_put(out, &d);
}

static bool has_attribute(const sample_msg *s, int32_t index)
{
    for (size_t i = 0; i < s->n_attribute_indices; i++)
        if (s->attribute_indices[i] == index)
            return true;
    return false;
}

static bool same_but_values(const sample_msg *a, const sample_msg *b)
{
    bool same = a->stack_index == b->stack_index && a->link_index == b->link_index &&
                a->n_attribute_indices == b->n_attribute_indices;
    for (size_t i = 0; same && i < a->n_attribute_indices; i++)
        same = has_attribute(b, a->attribute_indices[i]);
    return same;
}

/* Subtracts the samples of the output from those of the input. No sample may remain. */
static void check_output(struct world *w, const request *m)
{
    const profile_msg *p = m->resource_profiles[0]->scope_profiles[0]->profiles[0];
    const dictionary_msg *d = m->dictionary;
    for (size_t i = 0; i < p->n_samples; i++) {
        const sample_msg *s = p->samples[i];
        assert_int_equal(s->n_values > 0, w->shape != 1);
        assert_int_equal(s->n_timestamps_unix_nano > 0, w->shape != 0);
        for (size_t k = 0; k < s->n_values; k++)
            w->totals[s->stack_index] -= (uint64_t)s->values[k];
        w->totals[s->stack_index] -= w->shape == 1 ? s->n_timestamps_unix_nano : 0;
        w->n_times -= s->n_timestamps_unix_nano;
        if (s->link_index) {
            w->kept[d->link_table[s->link_index]->span_id.data[7] - 1]--;
            continue;
        }
        bool named = false;
        for (size_t k = 0; k < s->n_attribute_indices; k++) {
            int32_t key = d->attribute_table[s->attribute_indices[k]]->key_strindex;
            assert_string_not_equal(d->string_table[key], "span_id");
            assert_string_not_equal(d->string_table[key], "trace_id");
            named = named || strcmp(d->string_table[key], "span.name") == 0;
        }
        /* Samples without a link may stay separate. */
        for (size_t k = 0; named && k < i; k++)
            if (same_but_values(s, p->samples[k]))
                fail_msg("samples %zu and %zu are equal", k, i);
    }
}

static void one_world(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    struct wire out = {0};
    assert_non_null(w);
    w->random = seed;
    w->shape = (unsigned)(seed % 3);
    struct join_rig *r = join_rig_new(
        "{keep: {slow_threshold: 200us, span_names: [{name: PUT, slow_threshold: 20us}, {name: "
        "POLL}], cpu_threshold: 4us, sampling_percentage: 25}}",
        NULL, 0);
    make_spans(w);
    make_samples(w, &out);
    send_spans(r, w->spans, SPANS);
    join_rig_send(r, BR_PROFILES, &out, false);
    const struct wire *bytes = &r->out[r->n_out - 1].bytes;
    request *m = gen_decode(br_otlp_request(BR_PROFILES), bytes->data, bytes->len);
    assert_non_null(m);
    check_output(w, m);
    protobuf_c_message_free_unpacked(&m->base, NULL);
    for (unsigned i = 0; i < STACKS; i++)
        if (w->totals[i])
            fail_msg("seed %llu, stack %u: the total is %lld too small", (unsigned long long)seed,
                     i, (long long)w->totals[i]);
    assert_int_equal(w->n_times, 0);
    for (unsigned i = 0; i < SPANS; i++)
        if (w->kept[i])
            fail_msg("seed %llu, span %u: %d links are missing", (unsigned long long)seed, i,
                     w->kept[i]);
    assert_int_equal(join_rig_count(r, "samples_folded", CPU), w->n_folded);
    join_rig_free(r);
    wire_free(&out);
    free(w);
}

static void totals_per_stack_stay_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++)
        one_world(seed);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* Writes samples that name a span and differ from each other, in as few bytes as possible. They
 * have one of eight stacks, and two of 120 attributes. */
static size_t put_short_samples(struct wire *w, unsigned n)
{
    struct dict d = {0};
    struct open o = open_resource(w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(w, &d, &cpu);
    struct ids ids = join_ids(7, 1);
    uint32_t link = dict_link(&d, ids.trace, ids.span);
    char name[8] = "f0";
    for (unsigned i = 0; i < 8; i++, name[1]++)
        (void)dict_stack(&d, name);
    uint32_t first = dict_attribute_int(&d, "k", 0);
    for (unsigned i = 1; i < 120; i++)
        (void)dict_attribute_int(&d, "k", i);
    for (unsigned i = 0; i < n; i++)
        put_sample(w,
                   &(struct sample_in){.link = link,
                                       .stack = 1 + i % 8,
                                       .attributes = {first + i / 8 % 120, first + i / 960 % 120},
                                       .value = 1});
    wire_close(w, p);
    close_resource(w, o);
    dict_put(w, &d);
    return w->len;
}

/* Samples with folded links and with undecided links alternate. Memory may be four times the
 * input plus 1 MiB, including the output. */
static void memory_is_proportional_to_the_input(void **state)
{
    (void)state;
    static const char *const configs[] = {"{keep: {slow_threshold: 1h}}",
                                          "{keep: {cpu_threshold: 1h}}"};
    for (unsigned i = 0; i < BR_COUNT(configs); i++) {
        struct join_rig *r = join_rig_new(configs[i], NULL, 0);
        struct wire w = {0};
        send_spans(r, spans, 2);
        size_t size = put_short_samples(&w, 100000);
        struct br_item *item = join_rig_item(r, BR_PROFILES, &w, false);
        r->blind = true;
        struct br_mem_scope scope;
        br_mem_scope_begin(&scope, (size_t)1 << 40, NULL);
        join_rig_consume(r, item);
        br_mem_scope_end(&scope);
        assert_true(scope.peak <= (int64_t)(4 * size + (1 << 20)));
        assert_int_equal(join_rig_count(r, "samples_folded", CPU), 100000);
        wire_free(&w);
        join_rig_free(r);
    }
}

/* --- Without memory --------------------------------------------------------------------------- */

/* If any allocation fails, items still end, and the ledger closes. */
static void fold_with_faults(void *arg)
{
    static const struct sample_in samples[] = {{.link = 1, .stack = 1, .value = 1},
                                               {.link = 2, .stack = 1, .value = 2},
                                               {.stack = 1, .value = 4}};
    struct join_rig *r = join_rig_new(arg, NULL, 0);
    struct wire w = {0};
    send_spans(r, spans, 2);
    put_samples(&w, &cpu, 7, samples, 3);
    struct br_item *item = join_rig_item(r, BR_PROFILES, &w, false);
    r->blind = true;
    fault_start();
    join_rig_consume(r, item);
    fault_stop();
    fake_host_advance(r->h, 30000);
    assert_int_equal(r->n_done + r->n_retry + r->n_reject, 2);
    if (!fault_failed()) {
        assert_int_equal(*r->h->host.ledger.sent[BR_PROFILES], 2);
        assert_int_equal(join_rig_count(r, "samples_folded", CPU), 2);
    }
    wire_free(&w);
    join_rig_free(r);
}

static void without_memory_samples_pass(void **state)
{
    (void)state;
    static char config[] = "{keep: {cpu_threshold: 1s}}";
    fault_each("keep", fold_with_faults, config);
}

SUITE(join_keep)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_survive_for_slow_and_failed_spans),
        cmocka_unit_test(links_to_spans_with_much_cpu_time_are_kept),
        cmocka_unit_test(spans_without_links_are_not_marked),
        cmocka_unit_test(links_to_unknown_spans_can_be_kept),
        cmocka_unit_test(held_profiles_know_whether_a_span_is_slow),
        cmocka_unit_test(a_rule_at_run_time_keeps_links_for_a_while),
        cmocka_unit_test(samples_that_cannot_be_added_stay_separate),
        cmocka_unit_test(totals_per_stack_stay_exact),
        cmocka_unit_test(memory_is_proportional_to_the_input),
        cmocka_unit_test(without_memory_samples_pass),
    };
    return RUN(tests, NULL, NULL);
}
