/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims of the example configs about the join, with the intervals of the SDKs: spans are
 * exported every five seconds, and profiles as often as each profiler sends them, at every offset
 * between the two, from a start without data. Grafana shows a link to a profile for each span with
 * samples and for no other span, and every sample has the name of its span. The times of the data
 * are set here; tests/sdks runs the real SDKs, whose clocks a test cannot control.
 */
#include "tests/support/join_steps.h"
#include "tests/support/test.h"

#define EXAMPLE "config/examples/pyroscope.yaml"
#define REQUESTS 300u
#define EACH_MS 333u
#define STEP_MS 37u    /* step of the clock */
#define SPANS_MS 5000u /* OTEL_BSP_SCHEDULE_DELAY */
/* the id of a request's child span is the request's number plus this constant */
#define CHILD (1000u)
#define TRACE(request) ((request) + 1) /* also the id of the root */

/* Default interval of each profiler. */
static const struct {
    const char *name;
    unsigned ms;
} profilers[] = {
    {"pyroscope-go", 15000},            /* session.go: UploadRate */
    {"pyroscope-io for Python", 10000}, /* upload_interval */
    {"the Java agent", 10000},          /* PYROSCOPE_UPLOAD_INTERVAL */
    {"OpenTelemetry's eBPF profiler", 5000},
};

/* Durations of consecutive requests. The longest is limited by profile_hold: a sample of its
 * first millisecond may be sent at once, and the span up to five seconds after its end. */
static const unsigned durations_ms[] = {3, 40, 250, 1200, 8, 4800, 90, 15};

struct request {
    unsigned begin_ms, end_ms;
    char name[16], child[16], id[17];
    bool has_samples;
    bool named;  /* true if an exported sample names the span */
    bool button; /* true if the exported span has a mark with its own id */
    unsigned n_out;
};

struct scene {
    struct join_rig *r;
    struct request requests[REQUESTS];
    unsigned spans_at, profiles_at;     /* time of the next export in milliseconds */
    unsigned spans_from, profiles_from; /* index of the first record that has not been exported */
    unsigned n_nameless, n_odd;
};

/* Reads the join's section of the example. `hold` replaces its hold, unless it is NULL. */
static void read_example(char *out, size_t size, const char *hold)
{
    char line[256];
    bool inside = false;
    size_t n = 0;
    FILE *file = fopen(EXAMPLE, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (inside && strncmp(line, "    ", 4) != 0)
            break;
        const char *text = hold && strstr(line, " hold:") ? hold : line;
        if (inside)
            n += (size_t)snprintf(out + n, size - n, "%s", text);
        inside = inside || strcmp(line, "  join:\n") == 0;
    }
    (void)fclose(file);
    assert_true(n > 0 && n < size);
}

static void make_requests(struct scene *s)
{
    for (unsigned i = 0; i < REQUESTS; i++) {
        struct request *request = &s->requests[i];
        unsigned duration_ms = durations_ms[i % BR_COUNT(durations_ms)];
        request->begin_ms = 1 + i * EACH_MS;
        request->end_ms = request->begin_ms + duration_ms;
        request->has_samples = duration_ms >= 40;
        (void)snprintf(request->name, sizeof request->name, "root%u", i);
        (void)snprintf(request->child, sizeof request->child, "child%u", i);
        (void)snprintf(request->id, sizeof request->id, "%016x", TRACE(i));
    }
}

/* Exports the spans that ended since the last export, with the mark that a bridge writes on each
 * local root. */
static void send_spans(struct scene *s, unsigned now_ms)
{
    struct wire w = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    bool any = false;
    for (unsigned i = 0; i < REQUESTS; i++) {
        const struct request *request = &s->requests[i];
        if (request->end_ms < s->spans_from || request->end_ms >= now_ms)
            continue;
        put_span(&w, &(struct span_in){.ids = join_ids(TRACE(i), CHILD + i),
                                       .name = request->child,
                                       .kind = 1,
                                       .parent = TRACE(i),
                                       .start_ns = request->begin_ms,
                                       .end_ns = request->end_ms});
        put_span(&w, &(struct span_in){.ids = join_ids(TRACE(i), TRACE(i)),
                                       .name = request->name,
                                       .kind = 2,
                                       .start_ns = request->begin_ms,
                                       .end_ns = request->end_ms,
                                       .attributes = {"pyroscope.profile.id", request->id}});
        any = true;
    }
    close_resource(&w, o);
    if (any)
        join_rig_send(s->r, BR_TRACES, &w, true);
    s->spans_from = now_ms;
    wire_free(&w);
}

static bool is_within(unsigned at_ms, unsigned from_ms, unsigned until_ms)
{
    return from_ms <= at_ms && at_ms < until_ms;
}

/* Sends the samples since the last profile. Requests with samples have one in their first and one
 * in their last millisecond. */
static void send_profile(struct scene *s, unsigned now_ms)
{
    struct wire w = {0};
    struct dict d = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    for (unsigned i = 0; i < REQUESTS; i++) {
        const struct request *request = &s->requests[i];
        const struct ids ids = join_ids(TRACE(i), TRACE(i));
        unsigned count = is_within(request->begin_ms + 1, s->profiles_from, now_ms) +
                         is_within(request->end_ms - 1, s->profiles_from, now_ms);
        if (request->has_samples && count)
            put_sample(&w, &(struct sample_in){.link = dict_link(&d, ids.trace, ids.span),
                                               .value = count});
    }
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(s->r, BR_PROFILES, &w, false);
    s->profiles_from = now_ms;
    wire_free(&w);
}

/* Returns the request whose span is in the line, or NULL if the span is a child. */
static struct request *request_of(struct scene *s, const char *id)
{
    unsigned long long number = strtoull(id, NULL, 16);
    assert_true(number > 0);
    return number <= REQUESTS ? &s->requests[number - 1] : NULL;
}

static void note_span(struct scene *s, const char *line)
{
    const char *mark = strstr(line, " pyroscope.profile.id=");
    struct request *request = request_of(s, strchr(line, ' ') + 1);
    if (!request) {
        s->n_odd += mark != NULL;
        return;
    }
    request->n_out++;
    request->button = mark;
    s->n_odd += mark && strncmp(strchr(mark, '=') + 1, request->id, 16) != 0;
}

static void note_sample(struct scene *s, const char *line)
{
    char name[32];
    struct request *request = request_of(s, strchr(line, '/') + 1);
    assert_non_null(request);
    (void)snprintf(name, sizeof name, " span.name=%s", request->name);
    request->named = true;
    const char *name_in_line = strstr(line, name);
    s->n_nameless +=
        !name_in_line || (name_in_line[strlen(name)] && name_in_line[strlen(name)] != ' ');
}

static void note_all(struct scene *s)
{
    for (unsigned i = 0; i < s->r->n_out; i++) {
        const struct join_out *out = &s->r->out[i];
        char *rest = out->text;
        for (char *line = strtok_r(rest, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            if (out->signal == BR_TRACES)
                note_span(s, line);
            else
                note_sample(s, line);
        }
    }
}

struct verdict {
    unsigned missing, dead, nameless, n_sampled;
};

/* Runs the scene with a profile every `ms` milliseconds. The first profile is after `first_ms`. */
static struct verdict run_scene(const char *config, unsigned ms, unsigned first_ms)
{
    struct scene *s = calloc(1, sizeof *s);
    struct verdict verdict = {0};
    assert_non_null(s);
    make_requests(s);
    s->r = join_rig_new(config, NULL, 0);
    s->spans_at = SPANS_MS;
    s->profiles_at = first_ms;
    for (unsigned now_ms = 0; now_ms < REQUESTS * EACH_MS + 2 * ms + SPANS_MS; now_ms += STEP_MS) {
        for (; s->spans_at <= now_ms; s->spans_at += SPANS_MS)
            send_spans(s, now_ms);
        for (; s->profiles_at <= now_ms; s->profiles_at += ms)
            send_profile(s, now_ms);
        fake_host_advance(s->r->h, STEP_MS);
    }
    fake_host_advance(s->r->h, 100000);
    note_all(s);
    assert_int_equal(s->n_odd, 0);
    for (unsigned i = 0; i < REQUESTS; i++) {
        const struct request *request = &s->requests[i];
        assert_int_equal(request->n_out, 1);
        assert_int_equal(request->named, request->has_samples);
        verdict.n_sampled += request->named;
        verdict.missing += request->named && !request->button;
        verdict.dead += request->button && !request->named;
    }
    verdict.nameless = s->n_nameless;
    join_rig_free(s->r);
    free(s);
    return verdict;
}

static void the_examples_fit_the_clocks_of_the_sdks(void **state)
{
    (void)state;
    char config[1024];
    read_example(config, sizeof config, NULL);
    for (size_t i = 0; i < BR_COUNT(profilers); i++)
        for (unsigned first_ms = 500; first_ms <= profilers[i].ms; first_ms += 1000) {
            struct verdict verdict = run_scene(config, profilers[i].ms, first_ms);
            assert_int_equal(verdict.n_sampled,
                             188); /* five of eight, and three of the last four */
            if (verdict.missing || verdict.dead || verdict.nameless)
                fail_msg("%s, first after %u ms: %u spans with samples have no button, %u buttons "
                         "are dead, %u samples have no name",
                         profilers[i].name, first_ms, verdict.missing, verdict.dead,
                         verdict.nameless);
        }
}

/* Datadog's profilers send one profile per minute. Spans that are held for a shorter time have no
 * mark. */
static void rare_profiles_need_a_longer_hold(void **state)
{
    (void)state;
    char config[1024];
    read_example(config, sizeof config, NULL);
    assert_true(run_scene(config, 60000, 30500).missing > 0);
    read_example(config, sizeof config, "    hold: 65s\n");
    struct verdict verdict = run_scene(config, 60000, 30500);
    assert_int_equal(verdict.missing + verdict.dead + verdict.nameless, 0);
}

SUITE(join_defaults)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_fit_the_clocks_of_the_sdks),
        cmocka_unit_test(rare_profiles_need_a_longer_hold),
    };
    return RUN(tests, NULL, NULL);
}
