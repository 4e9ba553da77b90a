/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the receiver pprof with scraping. The clients of the fake host give the answers that the
 * test sets. */
#include <unistd.h>

#include "base/mem.h"
#include "ingest/pieces.h"
#include "pipeline/override.h"
#include "tests/support/fake_host.h"
#include "tests/support/fault.h"
#include "tests/support/pprof_wire.h"
#include "tests/support/receiver_rig.h"
#include "tests/support/test.h"

extern const struct br_component br_pprof_receiver;

#define TARGET "targets: [{endpoint: 'http://127.0.0.1:6060', labels: {service_name: shop}}]"
#define ONLY_CPU                                                                                   \
    "profiles: {allocs: {enabled: false}, goroutine: {enabled: false}, block: {enabled: false}, "  \
    "mutex: {enabled: false}}"
#define ONLY_MUTEX                                                                                 \
    "profiles: {cpu: {enabled: false}, allocs: {enabled: false}, goroutine: {enabled: false}, "    \
    "block: {enabled: false}}"
#define CPU .types = {{"samples", "count"}, {"cpu", "nanoseconds"}}, .n_types = 2
#define MUTEX .types = {{"contentions", "count"}, {"delay", "nanoseconds"}}, .n_types = 2
#define PATHS_MAX 256

/* The responses of the scraped program. */
struct program {
    struct fake_answer answer; /* the answer, except for its body, which is in the next member */
    struct wire body;
    unsigned n;                /* number of requests */
    uint64_t at_ms[PATHS_MAX]; /* time of each request since the start */
    char paths[PATHS_MAX][64];
    char authorization[64], more[64];
    const struct fake_host *host;
};

struct fixture {
    struct receiver_rig rig;
    struct program program;
};

static struct fake_answer on_request(const struct br_exchange *x, void *arg)
{
    struct program *p = arg;
    assert_string_equal(x->method, "GET");
    assert_int_equal(x->body.len, 0);
    if (p->n < PATHS_MAX) {
        p->at_ms[p->n] = p->host->now_ms - 1000000;
        (void)snprintf(p->paths[p->n], sizeof p->paths[0], "%s", x->path);
    }
    p->n++;
    for (size_t i = 0; i < x->n_headers; i++) {
        bool own = strcmp(x->headers[i].name, "authorization") == 0;
        (void)snprintf(own ? p->authorization : p->more, 64, "%s", x->headers[i].value);
    }
    struct fake_answer a = p->answer;
    if (!a.body) {
        a.body = p->body.data;
        a.len = p->body.len;
    }
    return a;
}

static void set_body(struct fixture *f, const struct pprof_wire *p)
{
    wire_clear(&f->program.body);
    pprof_wire_write(&f->program.body, p);
}

static void start(struct fixture *f, const char *yaml)
{
    receiver_rig_start(&f->rig, &br_pprof_receiver, yaml);
    f->program.host = f->rig.h;
    f->rig.h->answer = on_request;
    f->rig.h->answer_arg = &f->program;
    set_body(f, &(struct pprof_wire){CPU, .samples = {{"work", {3, 30}, 0}}});
}

static void end(struct fixture *f)
{
    receiver_rig_drain(&f->rig);
    assert_true(f->rig.drained);
    receiver_rig_end(&f->rig);
    wire_free(&f->program.body);
}

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static double scrapes(struct fixture *f, const char *result)
{
    char labels[64];
    (void)snprintf(labels, sizeof labels, "receiver=\"pprof\",result=\"%s\"", result);
    return fake_host_metric(f->rig.h, "braid_receiver_pprof_scrapes", labels);
}

/* Returns the number of requests for this path. */
static unsigned n_requests(const struct program *p, const char *path)
{
    unsigned n = 0;
    for (unsigned i = 0; i < p->n && i < PATHS_MAX; i++)
        n += strcmp(p->paths[i], path) == 0;
    return n;
}

/* --- Requests --------------------------------------------------------------------------------- */

static void test_paths_of_the_defaults(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {"/debug/pprof/profile?seconds=14", "/debug/pprof/allocs",
                                        "/debug/pprof/goroutine", "/debug/pprof/block",
                                        "/debug/pprof/mutex"};
    start(f, "{" TARGET "}");
    fake_host_advance(f->rig.h, 14999);
    assert_int_equal(f->program.n, BR_COUNT(paths));
    for (size_t i = 0; i < BR_COUNT(paths); i++)
        assert_int_equal(n_requests(&f->program, paths[i]), 1);
    end(f);
}

static void test_paths_of_the_config(void **state)
{
    struct fixture *f = *state;
    start(f, "{targets: [{endpoint: 'http://127.0.0.1:6060/behind/'}], scrape_interval: 10s, "
             "profiles: {cpu: {seconds: 4, path: '/p?x=1'}, heap: {enabled: true, seconds: 3}, "
             "allocs: {enabled: false}, goroutine: {enabled: false}, block: {enabled: false}, "
             "mutex: {enabled: false}, godeltaprof_memory: {enabled: true}, "
             "godeltaprof_block: {enabled: true}, godeltaprof_mutex: {enabled: true}}}");
    fake_host_advance(f->rig.h, 9999);
    assert_int_equal(f->program.n, 5);
    assert_int_equal(n_requests(&f->program, "/behind/p?x=1&seconds=4"), 1);
    assert_int_equal(n_requests(&f->program, "/behind/debug/pprof/heap?seconds=3"), 1);
    assert_int_equal(n_requests(&f->program, "/behind/debug/pprof/delta_heap"), 1);
    assert_int_equal(n_requests(&f->program, "/behind/debug/pprof/delta_block"), 1);
    assert_int_equal(n_requests(&f->program, "/behind/debug/pprof/delta_mutex"), 1);
    end(f);
}

/* Kinds of profiles that few programs have, and custom paths. */
static void test_further_kinds(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", profiles: {cpu: {enabled: false}, allocs: {enabled: false}, "
             "goroutine: {enabled: false}, block: {enabled: false}, mutex: {enabled: false}, "
             "threadcreate: , fgprof: , custom: [{name: cache, path: /debug/cache}, "
             "{name: slow, path: '/slow?x=1', seconds: 5}]}}");
    fake_host_advance(f->rig.h, 14999);
    assert_int_equal(f->program.n, 4);
    assert_int_equal(n_requests(&f->program, "/debug/pprof/threadcreate"), 1);
    assert_int_equal(n_requests(&f->program, "/debug/fgprof?seconds=14"), 1);
    assert_int_equal(n_requests(&f->program, "/debug/cache"), 1);
    assert_int_equal(n_requests(&f->program, "/slow?x=1&seconds=5"), 1);
    end(f);
}

/* A kind of profile that the config contains is scraped, unless its `enabled` is false. Kinds that
 * the config does not contain keep their defaults. */
static void test_configured_kinds(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {
        "/debug/pprof/profile?seconds=14",
        "/debug/pprof/allocs",
        "/debug/pprof/goroutine",
        "/debug/pprof/block",
        "/debug/pprof/heap",
        "/debug/pprof/delta_heap",
        "/debug/pprof/delta_block?x",
        "/debug/pprof/delta_mutex",
    };
    start(f,
          "{" TARGET ", profiles: {cpu: , heap: {}, mutex: {enabled: false}, godeltaprof_memory: , "
          "godeltaprof_block: {path: '/debug/pprof/delta_block?x'}, "
          "godeltaprof_mutex: {enabled: }}}");
    fake_host_advance(f->rig.h, 14999);
    assert_int_equal(f->program.n, BR_COUNT(paths));
    for (size_t i = 0; i < BR_COUNT(paths); i++)
        assert_int_equal(n_requests(&f->program, paths[i]), 1);
    end(f);
}

/* Each path is scraped once per interval. The time of the first scrape is within the first interval
 * and differs between the paths. */
static void test_interval_and_jitter(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", scrape_interval: 10s}");
    fake_host_advance(f->rig.h, 30000 - 1);
    assert_int_equal(f->program.n, 15);
    unsigned n_different = 0;
    for (unsigned i = 0; i < 5; i++) {
        assert_true(f->program.at_ms[i] < 10000);
        assert_int_equal(f->program.at_ms[i + 5], f->program.at_ms[i] + 10000);
        assert_int_equal(f->program.at_ms[i + 10], f->program.at_ms[i] + 20000);
        n_different += i > 0 && f->program.at_ms[i] != f->program.at_ms[i - 1];
    }
    assert_int_equal(n_different, 4);
    end(f);
}

/* RFC 7617 section 2: the example of the specification. */
static void test_basic_auth(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU ", headers: {X-Scope-OrgID: me}, "
             "basic_auth: {username: Aladdin, password: 'open sesame'}}");
    fake_host_advance(f->rig.h, 15000);
    assert_string_equal(f->program.authorization, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    assert_string_equal(f->program.more, "me");
    end(f);
}

static void test_bearer_token(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU ", bearer_token: canary}");
    fake_host_advance(f->rig.h, 15000);
    assert_string_equal(f->program.authorization, "Bearer canary");
    end(f);
}

/* --- Results ---------------------------------------------------------------------------------- */

static void test_one_profile(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    fake_host_advance(f->rig.h, 15000);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_expect_in(&f->rig, "service.name=shop");
    receiver_rig_expect_in(&f->rig, "instance=127.0.0.1:6060");
    receiver_rig_expect_in(&f->rig, "pyroscope.name=process_cpu");
    receiver_rig_expect_in(&f->rig, "profile samples count");
    receiver_rig_expect_in(&f->rig, "work 3");
    receiver_rig_expect_in(&f->rig, "profile cpu nanoseconds");
    receiver_rig_expect_in(&f->rig, "work 30");
    assert_float_equal(scrapes(f, "ok"), 1, 0);
    assert_float_equal(
        fake_host_metric(f->rig.h, "otelcol_receiver_accepted_profile_samples",
                         "receiver=\"pprof\",sample_type=\"samples:count\",transport=\"scrape\""),
        1, 0);
    assert_float_equal(
        fake_host_metric(f->rig.h, "otelcol_receiver_accepted_profile_samples",
                         "receiver=\"pprof\",sample_type=\"cpu:nanoseconds\",transport=\"scrape\""),
        1, 0);
    end(f);
}

static void test_labels_override_the_instance(void **state)
{
    struct fixture *f = *state;
    start(f, "{targets: [{endpoint: 'http://127.0.0.1:6060', labels: {instance: mine}}], " ONLY_CPU
             "}");
    fake_host_advance(f->rig.h, 15000);
    receiver_rig_expect_in(&f->rig, "instance=mine");
    assert_null(strstr(f->rig.text.data, "127.0.0.1"));
    end(f);
}

static void test_deltas(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_MUTEX ", scrape_interval: 10s}");
    set_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {5, 50}, 0}}});
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 0);
    assert_float_equal(scrapes(f, "empty"), 1, 0);
    set_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {7, 90}, 0}}});
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_expect_in(&f->rig, "lock 2");
    receiver_rig_expect_in(&f->rig, "lock 40");
    assert_false(receiver_rig_has_bytes(&f->rig, "pprof.profile.cumulative"));
    end(f);
}

/* --- In a thread ------------------------------------------------------------------------------ */

/* Sets a body that contains an unused string of 300 KiB. */
static void set_large_body(struct fixture *f, const struct pprof_wire *p)
{
    char *text = malloc(300u << 10);
    assert_non_null(text);
    memset(text, 'x', 300u << 10);
    set_body(f, p);
    wire_len(&f->program.body, 6, text, 300u << 10);
    free(text);
}

static void work(struct fixture *f)
{
    assert_int_equal(fake_host_work(f->rig.h), 1);
    fake_host_iterate(f->rig.h);
}

static void start_large(struct fixture *f)
{
    start(f, "{" TARGET ", " ONLY_MUTEX ", scrape_interval: 10s}");
    f->rig.h->threads = true;
    set_large_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {5, 50}, 0}}});
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->program.n, 1);
    assert_float_equal(scrapes(f, "empty"), 0, 0);
}

/* The next scrape waits until a thread has compared the previous profile with its base. */
static void test_large_profiles_are_read_in_a_thread(void **state)
{
    struct fixture *f = *state;
    start_large(f);
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->program.n, 1);
    assert_float_equal(scrapes(f, "busy"), 1, 0);
    work(f);
    assert_float_equal(scrapes(f, "empty"), 1, 0);
    set_large_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {7, 90}, 0}}});
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 0);
    work(f);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_expect_in(&f->rig, "lock 2");
    receiver_rig_expect_in(&f->rig, "lock 40");
    end(f);
}

static void test_drain_waits_for_a_thread(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU ", scrape_interval: 10s}");
    f->rig.h->threads = true;
    set_large_body(f, &(struct pprof_wire){CPU, .samples = {{"work", {3, 30}, 0}}});
    fake_host_advance(f->rig.h, 10000);
    receiver_rig_drain(&f->rig);
    assert_false(f->rig.drained);
    work(f);
    assert_true(f->rig.drained);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_end(&f->rig);
    wire_free(&f->program.body);
}

/* Starts a scrape of a profile of 4 MiB: one stack, and two values per sample. Each value becomes a
 * separate profile. Returns the number of pieces. */
static unsigned start_very_large(struct fixture *f)
{
    unsigned n = 64;
    start(f, "{" TARGET ", " ONLY_CPU ", scrape_interval: 10s}");
    f->rig.h->threads = true;
    f->rig.quiet = true;
    set_body(f, &(struct pprof_wire){CPU, .samples = {{"work", {3, 30}, 64}}});
    for (; f->program.body.len < 4u << 20; n++) {
        size_t sample = wire_open(&f->program.body, 2);
        for (unsigned depth = 0; depth < 8; depth++)
            wire_varint(&f->program.body, 1, 1);
        wire_varint(&f->program.body, 2, f->program.body.len);
        wire_varint(&f->program.body, 2, 1);
        wire_close(&f->program.body, sample);
    }
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(fake_host_work(f->rig.h), 1);
    assert_int_equal(f->rig.n, 0);
    (void)br_host_iterate(&f->rig.h->host);
    (void)br_host_iterate(&f->rig.h->host);
    assert_int_equal(f->rig.n, 1);
    return 2 * n / (BR_PIECE_BYTES / BR_PIECE_SAMPLE_BYTES);
}

/* A very large profile is sent in several pieces, one per loop iteration. The drain waits until all
 * pieces are sent. */
static void test_large_profiles_are_sent_in_pieces(void **state)
{
    struct fixture *f = *state;
    unsigned pieces = start_very_large(f);
    receiver_rig_drain(&f->rig);
    assert_false(f->rig.drained);
    fake_host_advance(f->rig.h, 1000);
    assert_true(f->rig.drained);
    assert_in_range(f->rig.n, pieces, 2 * pieces);
    assert_float_equal(scrapes(f, "ok"), 1, 0);
    receiver_rig_end(&f->rig);
    wire_free(&f->program.body);
}

/* The remaining pieces are dropped. The ledger reports the dropped records. */
static void test_destroyed_while_pieces_are_sent(void **state)
{
    struct fixture *f = *state;
    (void)start_very_large(f);
    receiver_rig_end(&f->rig);
    assert_int_equal(f->rig.n, 1);
    wire_free(&f->program.body);
}

static void test_destroyed_while_a_profile_is_read(void **state)
{
    struct fixture *f = *state;
    start_large(f);
    receiver_rig_end(&f->rig); /* the reading is stopped, and all memory is released */
    assert_int_equal(f->rig.n, 0);
    wire_free(&f->program.body);
}

static void test_a_large_response_that_is_not_a_pprof(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_MUTEX ", scrape_interval: 10s}");
    f->rig.h->threads = true;
    set_large_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {5, 50}, 0}}});
    memset(f->program.body.data, 0xff, 16);
    fake_host_advance(f->rig.h, 10000);
    work(f);
    assert_float_equal(scrapes(f, "failed"), 1, 0);
    end(f);
}

static void test_without_delta(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_MUTEX ", delta: false}");
    set_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {5, 50}, 0}}});
    fake_host_advance(f->rig.h, 15000);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_expect_in(&f->rig, "lock 5");
    assert_true(receiver_rig_has_bytes(&f->rig, "pprof.profile.cumulative"));
    end(f);
}

static void test_differences_from_the_program_are_sent_unchanged(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", profiles: {cpu: {enabled: false}, allocs: {enabled: false}, goroutine: "
             "{enabled: false}, block: {enabled: false}, mutex: {seconds: 5}}}");
    set_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {5, 50}, 0}}});
    fake_host_advance(f->rig.h, 15000);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_expect_in(&f->rig, "lock 5");
    assert_false(receiver_rig_has_bytes(&f->rig, "pprof.profile.cumulative"));
    end(f);
}

static void test_a_busy_profiler_is_not_a_failure(void **state)
{
    struct fixture *f = *state;
    static const char text[] =
        /* the message that Go's net/http/pprof sends */
        "Could not enable CPU profiling: cpu profiling already in use\n";
    start(f, "{" TARGET ", " ONLY_CPU "}");
    f->program.answer =
        (struct fake_answer){.http_status = 500, .type = "text/plain", .body = text, .len = 61};
    fake_host_advance(f->rig.h, 45000);
    assert_int_equal(f->rig.n, 0);
    assert_float_equal(scrapes(f, "in_use"), 3, 0);
    assert_float_equal(scrapes(f, "failed"), 0, 0);
    end(f);
}

/* --- The log ---------------------------------------------------------------------------------- */

/* Returns the log of the next `ms` milliseconds. */
static char *log_of(struct fixture *f, uint64_t ms)
{
    static char text[4096];
    FILE *file = tmpfile();
    assert_non_null(file);
    br_log_setup(BR_LOG_INFO, false, fileno(file));
    fake_host_advance(f->rig.h, ms);
    br_log_setup(BR_LOG_INFO, false, 2);
    rewind(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    (void)fclose(file);
    return text;
}

static unsigned lines(const char *text)
{
    unsigned n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void test_repeated_failures_are_logged_once(void **state)
{
    struct fixture *f = *state;
    static const char text[] = "no such page\nhere";
    start(f, "{" TARGET ", " ONLY_CPU "}");
    f->program.answer = (struct fake_answer){.error = BR_EIO};
    char *log = log_of(f, 60000);
    assert_int_equal(lines(log), 1);
    assert_non_null(strstr(log, "http://127.0.0.1:6060/debug/pprof/profile?seconds=14: scripted"));
    f->program.answer = (struct fake_answer){.http_status = 404, .body = text, .len = 17};
    assert_int_equal(lines(log_of(f, 60000)), 0);
    assert_float_equal(scrapes(f, "failed"), 8, 0);
    f->program.answer = (struct fake_answer){0};
    log = log_of(f, 60000);
    assert_int_equal(lines(log), 1);
    assert_non_null(strstr(log, "answers again"));
    f->program.answer = (struct fake_answer){.http_status = 404, .body = text, .len = 17};
    log = log_of(f, 60000);
    assert_int_equal(lines(log), 1);
    assert_non_null(strstr(log, "HTTP 404 no such page\n"));
    end(f);
}

static void test_responses_that_are_not_pprofs(void **state)
{
    struct fixture *f = *state;
    static const uint8_t broken[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3};
    start(f, "{" TARGET ", " ONLY_CPU "}");
    f->program.answer = (struct fake_answer){.body = "<html>", .len = 6};
    fake_host_advance(f->rig.h, 15000);
    assert_float_equal(scrapes(f, "failed"), 1, 0);
    f->program.answer = (struct fake_answer){.body = broken, .len = sizeof broken};
    fake_host_advance(f->rig.h, 15000);
    assert_float_equal(scrapes(f, "failed"), 2, 0);
    assert_float_equal(fake_host_metric(f->rig.h, "otelcol_receiver_failed_profile_samples",
                                        "receiver=\"pprof\",transport=\"scrape\""),
                       2, 0);
    assert_int_equal(f->rig.n, 0);
    end(f);
}

/* --- Timing ----------------------------------------------------------------------------------- */

/* A scrape may take 24 s: the duration of the profile (seconds=14) plus a scrape_timeout of 10 s.
 * This exceeds the interval of 15 s, so the next scrape is skipped. */
static void test_timeout_and_busy(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    f->program.answer = (struct fake_answer){.never = true};
    fake_host_advance(f->rig.h, 15000); /* the scrape starts within this time */
    assert_int_equal(f->program.n, 1);
    fake_host_advance(f->rig.h, 24000 - 15000 + f->program.at_ms[0] - 1);
    assert_float_equal(scrapes(f, "failed"), 0, 0);
    fake_host_advance(f->rig.h, 1);
    assert_float_equal(scrapes(f, "failed"), 1, 0);
    assert_float_equal(scrapes(f, "busy"), 1, 0);
    assert_int_equal(f->program.n, 1);
    f->program.answer = (struct fake_answer){0};
    fake_host_advance(f->rig.h, 6000);
    assert_int_equal(f->program.n, 2);
    assert_float_equal(scrapes(f, "ok"), 1, 0);
    end(f);
}

static void test_nothing_is_scraped_above_the_memory_limit(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    struct br_buf *held = br_buf_new(f->rig.h->host.pool, 4096);
    assert_non_null(held);
    br_memory_limit(&f->rig.h->memory, 1, 0);
    fake_host_advance(f->rig.h, 30000);
    assert_int_equal(f->program.n, 0);
    assert_float_equal(scrapes(f, "memory"), 2, 0);
    br_buf_unref(held);
    end(f);
}

/* Tests the steps of load shedding (extension adaptive). At low steps, some scrapes are skipped. At
 * high steps, all scrapes are skipped. */
static void test_scrapes_are_shed(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    br_shed_set(&f->rig.h->host, BR_SHED_HALF, 0);
    fake_host_advance(f->rig.h, 40 * 15000);
    assert_in_range(f->program.n, 1, 39);
    assert_true(scrapes(f, "shed") == 40 - f->program.n);
    br_shed_set(&f->rig.h->host, BR_SHED_PROFILES, 0);
    unsigned before = f->program.n;
    fake_host_advance(f->rig.h, 10 * 15000);
    assert_int_equal(f->program.n, before);
    assert_true(scrapes(f, "shed") == 50 - before);
    br_shed_set(&f->rig.h->host, BR_SHED_NONE, 0);
    fake_host_advance(f->rig.h, 2 * 15000);
    assert_int_equal(f->program.n, before + 2);
    end(f);
}

/* Profiles are retried if the pipeline is full for some time. */
static void test_profiles_are_retried(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    f->rig.outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "full");
    fake_host_advance(f->rig.h, 15000);
    assert_true(f->rig.n >= 1);
    unsigned before = f->rig.n;
    f->rig.outcome = (struct br_outcome){.verdict = BR_DONE};
    f->program.answer = (struct fake_answer){.never = true};
    fake_host_advance(f->rig.h, 12000);
    assert_int_equal(f->rig.n, before + 1);
    end(f);
}

static void test_drain_cancels_running_scrapes(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    f->program.answer = (struct fake_answer){.never = true};
    fake_host_advance(f->rig.h, 15000);
    receiver_rig_drain(&f->rig);
    assert_true(f->rig.drained);
    unsigned n = f->program.n;
    fake_host_advance(f->rig.h, 60000);
    assert_int_equal(f->program.n, n);
    receiver_rig_end(&f->rig);
    wire_free(&f->program.body);
}

static void test_drain_waits_for_scraped_profiles(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    f->rig.hold = true;
    fake_host_advance(f->rig.h, 15000);
    assert_non_null(f->rig.held);
    receiver_rig_drain(&f->rig);
    assert_false(f->rig.drained);
    receiver_rig_finish(&f->rig);
    assert_true(f->rig.drained);
    receiver_rig_end(&f->rig);
    wire_free(&f->program.body);
}

/* --- Workers ---------------------------------------------------------------------------------- */

static void test_targets_are_divided_among_workers(void **state)
{
    (void)state;
    static const char yaml[] =
        "{" ONLY_CPU ", targets: [{endpoint: 'http://a:1'}, {endpoint: 'http://b:1'}, "
        "{endpoint: 'http://c:1'}, {endpoint: 'http://d:1'}, {endpoint: 'http://e:1'}]}";
    static const unsigned share[3] = {2, 2, 1};
    for (unsigned worker = 0; worker < 3; worker++) {
        struct fixture f = {0};
        const struct br_component *c = &br_pprof_receiver;
        start(&f, yaml);
        receiver_rig_drain(&f.rig);
        c->destroy(&f.rig.node);
        memset(f.rig.node.state, 0, c->state_size);
        f.rig.h->host.worker = worker;
        f.rig.h->host.n_workers = 3;
        f.rig.node.draining = f.rig.node.drained = f.rig.drained = false;
        assert_int_equal(c->create(&f.rig.node, NULL), 0);
        assert_int_equal(c->start(&f.rig.node, NULL), 0);
        fake_host_advance(f.rig.h, 14999);
        assert_int_equal(f.program.n, share[worker]);
        end(&f);
    }
}

/* --- Overrides -------------------------------------------------------------------------------- */

struct listing {
    char text[1024];
};

static void add_line(const struct br_collected *c, void *arg)
{
    struct listing *l = arg;
    size_t len = strlen(l->text);
    assert_string_equal(c->component, "pprof");
    (void)snprintf(l->text + len, sizeof l->text - len, "%s %s %s %llu override %llu %s\n",
                   c->service, c->target, c->type, (unsigned long long)c->interval_ms,
                   (unsigned long long)c->override, c->state);
}

static void expect_list(struct fixture *f, const char *text)
{
    struct listing l = {""};
    br_override_list(&f->rig.h->host, add_line, &l);
    assert_string_equal(l.text, text);
}

static int override(struct fixture *f, struct br_override r, uint64_t for_ms)
{
    struct br_err err = {0};
    r.until_ms = br_host_mono_ms(&f->rig.h->host) + for_ms;
    return br_override_apply(&f->rig.h->host, &r, &err);
}

#define ON_DEMAND                                                                                  \
    "targets: [{endpoint: 'http://127.0.0.1:6060', labels: {service_name: shop}, on_demand: true}"
static const char *const cpu_type[] = {"cpu"}, *const mutex_type[] = {"mutex"};

static void test_an_override_scrapes_at_once_and_expires(void **state)
{
    struct fixture *f = *state;
    start(f, "{" ON_DEMAND "]}");
    fake_host_advance(f->rig.h, 60000);
    assert_int_equal(f->program.n, 0);
    expect_list(f, "");
    struct br_override r = {
        .id = 7, .service = "shop", .types = cpu_type, .n_types = 1, .interval_ms = 5000};
    assert_int_equal(override(f, r, 20000), 1);
    fake_host_iterate(f->rig.h);
    assert_int_equal(f->program.n, 1);
    assert_int_equal(n_requests(&f->program, "/debug/pprof/profile?seconds=4"), 1);
    expect_list(f, "shop http://127.0.0.1:6060 cpu 5000 override 7 ok\n");
    fake_host_advance(f->rig.h, 19999);
    assert_int_equal(f->program.n, 4); /* the scrapes were at 0, 5, 10 and 15 s */
    fake_host_advance(f->rig.h, 60000);
    assert_int_equal(f->program.n, 4);
    expect_list(f, "");
    end(f);
}

static void test_an_override_for_other_targets_is_ignored(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    static const char *const unknown[] = {"heapless"};
    struct br_override overrides[] = {
        {.id = 1, .service = "sho"},
        {.id = 1, .target = "http://127.0.0.1:6061"},
        {.id = 1, .service = "shop", .types = unknown, .n_types = 1},
        {.id = 1, .service = "shop", .keep = true, .sampling_percentage = 100},
    };
    for (size_t i = 0; i < BR_COUNT(overrides); i++)
        assert_int_equal(override(f, overrides[i], 10000), 0);
    overrides[0].service = "shop";
    assert_int_equal(override(f, overrides[0], 0), 0); /* already expired */
    expect_list(f, "shop http://127.0.0.1:6060 cpu 15000 override 0 waiting\n");
    end(f);
}

/* If several overrides of the interval overlap, the shortest interval applies. When the override
 * with the shortest interval ends, the next shortest interval applies. When all overrides have
 * ended, the interval of the config applies. */
static void test_overlapping_overrides(void **state)
{
    struct fixture *f = *state;
    start(f, "{" TARGET ", " ONLY_CPU "}");
    struct br_override slow = {.id = 1, .types = cpu_type, .n_types = 1, .interval_ms = 10000};
    struct br_override fast = {.id = 2, .types = cpu_type, .n_types = 1, .interval_ms = 1};
    struct br_override other = {.id = 3, .types = mutex_type, .n_types = 1};
    assert_int_equal(override(f, slow, 60000), 1);
    assert_int_equal(override(f, fast, 30000), 1);
    assert_int_equal(override(f, other, 40000), 1);
    expect_list(f, "shop http://127.0.0.1:6060 cpu 2000 override 2 waiting\n" /* seconds=1 */
                   "shop http://127.0.0.1:6060 mutex 15000 override 3 waiting\n");
    fake_host_advance(f->rig.h, 30000);
    expect_list(f, "shop http://127.0.0.1:6060 cpu 10000 override 1 ok\n"
                   "shop http://127.0.0.1:6060 mutex 15000 override 3 ok\n");
    assert_int_equal(n_requests(&f->program, "/debug/pprof/profile?seconds=1"), 15);
    fake_host_advance(f->rig.h, 30000);
    expect_list(f, "shop http://127.0.0.1:6060 cpu 15000 override 0 ok\n");
    end(f);
}

static void test_withdrawn_and_replaced_overrides(void **state)
{
    struct fixture *f = *state;
    start(f, "{" ON_DEMAND "], " ONLY_CPU "}");
    assert_int_equal(override(f, (struct br_override){.id = 9}, 600000),
                     1); /* an override without types scrapes the kinds that the config contains */
    expect_list(f, "shop http://127.0.0.1:6060 cpu 15000 override 9 waiting\n");
    assert_int_equal(
        override(f, (struct br_override){.id = 9, .types = mutex_type, .n_types = 1}, 600000), 1);
    expect_list(f, "shop http://127.0.0.1:6060 mutex 15000 override 9 waiting\n");
    br_override_withdraw(&f->rig.h->host, 8);
    expect_list(f, "shop http://127.0.0.1:6060 mutex 15000 override 9 waiting\n");
    br_override_withdraw(&f->rig.h->host, 9);
    expect_list(f, "");
    fake_host_advance(f->rig.h, 60000);
    assert_int_equal(f->program.n, 0);
    end(f);
}

/* When scraping is paused, the base (the previous profile) is dropped. Otherwise the values of the
 * pause would be counted in the first interval after it. */
static void test_a_pause_drops_the_base(void **state)
{
    struct fixture *f = *state;
    start(f, "{" ON_DEMAND "], " ONLY_MUTEX "}");
    set_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {5, 50}, 0}}});
    assert_int_equal(override(f, (struct br_override){.id = 1}, 1000), 1);
    fake_host_advance(f->rig.h, 10000);
    set_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {7, 90}, 0}}});
    assert_int_equal(override(f, (struct br_override){.id = 1}, 1000), 1);
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->program.n, 2);
    assert_int_equal(f->rig.n, 0);
    end(f);
}

static void test_overrides_have_a_maximum(void **state)
{
    struct fixture *f = *state;
    start(f, "{" ON_DEMAND "], " ONLY_CPU "}");
    for (uint64_t id = 1; id <= BR_OVERRIDES_MAX; id++)
        assert_int_equal(override(f, (struct br_override){.id = id}, 1000 * id), 1);
    assert_int_equal(override(f, (struct br_override){.id = 1000}, 1000), BR_EFULL);
    assert_int_equal(override(f, (struct br_override){.id = 5}, 1000), 1); /* exists already */
    fake_host_advance(f->rig.h, 1000);
    assert_int_equal(override(f, (struct br_override){.id = 1000}, 1000), 1);
    end(f);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* An override ends while a thread compares a profile with its base (the previous profile). After
 * the comparison, the base is dropped. */
static void test_an_override_ends_during_a_comparison(void **state)
{
    struct fixture *f = *state;
    start(
        f,
        "{" TARGET ", scrape_interval: 10s, profiles: {cpu: {enabled: false}, allocs: {enabled: "
        "false}, goroutine: {enabled: false}, block: {enabled: false}, mutex: {enabled: false}}}");
    f->rig.h->threads = true;
    set_large_body(f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {5, 50}, 0}}});
    struct br_override r = {.id = 1, .service = "shop", .types = mutex_type, .n_types = 1};
    assert_int_equal(override(f, r, 600000), 1);
    fake_host_advance(f->rig.h, 10000);
    br_override_withdraw(&f->rig.h->host, 1);
    work(f);
    assert_float_equal(scrapes(f, "empty"), 1, 0);
    assert_int_equal(override(f, r, 600000), 1);
    fake_host_advance(f->rig.h, 10000);
    work(f);
    /* this profile is the first one of a new base, so it has no output */
    assert_float_equal(scrapes(f, "empty"), 2, 0);
    end(f);
}

static void large_without_memory(void *arg)
{
    struct fixture f = {0};
    (void)arg;
    fault_stop();
    start(&f, "{" TARGET ", " ONLY_CPU ", scrape_interval: 10s}");
    f.rig.h->threads = true;
    f.rig.quiet = true;
    set_large_body(&f, &(struct pprof_wire){CPU, .samples = {{"work", {3, 30}, 0}}});
    fault_start();
    fake_host_advance(f.rig.h, 10000);
    (void)fake_host_work(f.rig.h);
    fake_host_iterate(f.rig.h);
    fault_stop();
    /* a scrape counts as "empty" if the fake client ran out of memory for its response */
    assert_true(scrapes(&f, "ok") + scrapes(&f, "failed") + scrapes(&f, "empty") == 1);
    assert_true(scrapes(&f, "ok") == 1 || fault_failed());
    receiver_rig_drain(&f.rig);
    fake_host_advance(f.rig.h, 60000);
    assert_true(f.rig.drained);
    receiver_rig_end(&f.rig);
    wire_free(&f.program.body);
}

static void test_large_profiles_without_memory(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    br_log_setup(BR_LOG_ERROR, false, fileno(file));
    fault_each("a large profile", large_without_memory, NULL);
    br_log_setup(BR_LOG_INFO, false, 2);
    (void)fclose(file);
}

static void without_memory(void *arg)
{
    struct fixture f = {0};
    (void)arg;
    if (!receiver_rig_try(&f.rig, &br_pprof_receiver,
                          "{" TARGET ", basic_auth: {username: a, password: b}, "
                          "scrape_interval: 10s}")) {
        assert_true(fault_failed());
        return;
    }
    f.rig.quiet = true;
    f.program.host = f.rig.h;
    f.rig.h->answer = on_request;
    f.rig.h->answer_arg = &f.program;
    set_body(&f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {5, 50}, 0}}});
    struct br_override r = {.id = 1, .service = "shop", .types = cpu_type, .n_types = 1};
    fault_start();
    fake_host_advance(f.rig.h, 10000);
    int rc = override(&f, r, 5000);
    fault_stop();
    assert_true(rc == 1 || fault_failed());
    set_body(&f, &(struct pprof_wire){MUTEX, .samples = {{"lock", {7, 90}, 0}}});
    fault_start();
    fake_host_advance(f.rig.h, 10000);
    fault_stop();
    assert_true(f.rig.n > 0 || fault_failed());
    receiver_rig_drain(&f.rig);
    fake_host_advance(f.rig.h, 60000); /* the profile was retried after the lack of memory */
    assert_true(f.rig.drained);
    receiver_rig_end(&f.rig);
    wire_free(&f.program.body);
}

static void test_no_memory(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    br_log_setup(BR_LOG_ERROR, false, fileno(file));
    fault_each("scraping", without_memory, NULL);
    br_log_setup(BR_LOG_INFO, false, 2);
    (void)fclose(file);
}

SUITE(pprof_scrape)
{
    const struct CMUnitTest tests[] = {
        TEST(test_paths_of_the_defaults),
        TEST(test_paths_of_the_config),
        TEST(test_configured_kinds),
        TEST(test_further_kinds),
        TEST(test_interval_and_jitter),
        TEST(test_basic_auth),
        TEST(test_bearer_token),
        TEST(test_one_profile),
        TEST(test_labels_override_the_instance),
        TEST(test_deltas),
        TEST(test_large_profiles_are_read_in_a_thread),
        TEST(test_drain_waits_for_a_thread),
        TEST(test_large_profiles_are_sent_in_pieces),
        TEST(test_destroyed_while_pieces_are_sent),
        TEST(test_destroyed_while_a_profile_is_read),
        TEST(test_a_large_response_that_is_not_a_pprof),
        TEST(test_an_override_ends_during_a_comparison),
        TEST(test_large_profiles_without_memory),
        TEST(test_without_delta),
        TEST(test_differences_from_the_program_are_sent_unchanged),
        TEST(test_a_busy_profiler_is_not_a_failure),
        TEST(test_repeated_failures_are_logged_once),
        TEST(test_responses_that_are_not_pprofs),
        TEST(test_timeout_and_busy),
        TEST(test_nothing_is_scraped_above_the_memory_limit),
        TEST(test_scrapes_are_shed),
        TEST(test_profiles_are_retried),
        TEST(test_drain_cancels_running_scrapes),
        TEST(test_drain_waits_for_scraped_profiles),
        TEST(test_targets_are_divided_among_workers),
        TEST(test_an_override_scrapes_at_once_and_expires),
        TEST(test_an_override_for_other_targets_is_ignored),
        TEST(test_overlapping_overrides),
        TEST(test_withdrawn_and_replaced_overrides),
        TEST(test_a_pause_drops_the_base),
        TEST(test_overrides_have_a_maximum),
        TEST(test_no_memory),
    };
    return RUN(tests, NULL, NULL);
}
