/* SPDX-License-Identifier: Apache-2.0 */
#include "app/service.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "app/graph.h"
#include "app/telemetry.h"
#include "app/trimmer.h"
#include "base/mem.h"
#include "core/shared.h"
#include "net/loop.h"

#define READ_MARK_BYTES (24u << 20) /* per worker; see br_loop_set_mark */
#define WORKERS_MAX 256
#define MEMORY_PERCENTAGE 80u /* of the machine's or control group's, unless memory_limiter says */
#define MEMORY_SPIKE_SHARE 5u

struct app;

struct worker {
    struct app *app;
    struct br_loop *loop;
    struct br_graph *graph;
    pthread_t thread;
    bool threaded, drained;
    struct br_message drain, drained_message, stop;
    struct br_trimmer trimmer;
};

struct app {
    const struct br_config *config;
    const struct br_service_options *options;
    struct br_net *net;
    struct br_shared *shared;
    struct br_memory memory;
    struct br_telemetry *telemetry;
    struct worker *workers;
    struct br_loop *loops[WORKERS_MAX]; /* theirs */
    unsigned n_workers, n_drained;
    struct br_timer deadline;
    bool stopping, late, stopped;
};

static const struct br_log log_service = {"service"};

/* --- Snapshots of all workers' metrics ------------------------------------------------------- */

struct snapshot {
    struct br_metrics *sum;
    unsigned missing;
    void (*done)(struct br_metrics *sum, void *arg);
    void *arg;
};

/* Travels to a worker and back. */
struct part {
    struct br_message message;
    struct snapshot *snapshot;
    struct br_loop *home;
    struct br_metrics *metrics;
};

static void give(struct snapshot *s, const struct br_metrics *metrics)
{
    if (s->sum && (!metrics || br_metrics_add(s->sum, metrics))) {
        br_metrics_free(s->sum);
        s->sum = NULL;
    }
    if (--s->missing > 0)
        return;
    s->done(s->sum, s->arg);
    br_free(s);
}

static void part_back(struct br_message *m, struct br_loop *loop)
{
    struct part *p = br_container_of(m, struct part, message);
    (void)loop;
    give(p->snapshot, p->metrics);
    br_metrics_free(p->metrics);
    br_free(p);
}

static void part_there(struct br_message *m, struct br_loop *loop)
{
    struct part *p = br_container_of(m, struct part, message);
    br_mem_flush(); /* what holds memory is summed up by the first worker */
    p->metrics = br_metrics_new();
    if (p->metrics && br_metrics_add(p->metrics, br_loop_host(loop)->metrics)) {
        br_metrics_free(p->metrics);
        p->metrics = NULL;
    }
    m->run = part_back;
    br_loop_command(p->home, m);
}

static void snapshot(void *arg, void (*done)(struct br_metrics *, void *), void *done_arg)
{
    struct app *app = arg;
    struct snapshot *s = br_calloc(1, sizeof *s);
    if (!s) {
        done(NULL, done_arg);
        return;
    }
    s->sum = br_metrics_new();
    s->missing = app->n_workers;
    s->done = done;
    s->arg = done_arg;
    for (unsigned i = 1; i < app->n_workers; i++) {
        struct part *p = br_calloc(1, sizeof *p);
        if (p) {
            p->message.run = part_there;
            p->snapshot = s;
            p->home = app->workers[0].loop;
        }
        if (!p || !br_loop_post(app->workers[i].loop, &p->message)) {
            br_free(p);
            give(s, NULL);
        }
    }
    give(s, br_loop_host(app->workers[0].loop)->metrics);
}

/* --- The end --------------------------------------------------------------------------------- */

static void on_stop_message(struct br_message *m, struct br_loop *loop)
{
    (void)m;
    br_loop_stop(loop);
}

static void command(struct br_loop *loop, struct br_message *m,
                    void (*run)(struct br_message *, struct br_loop *))
{
    m->run = run;
    br_loop_command(loop, m);
}

/* Once: a message that is on its way must not be posted again. */
static void stop_all(struct app *app)
{
    if (app->stopped)
        return;
    app->stopped = true;
    for (unsigned i = 0; i < app->n_workers; i++)
        if (app->workers[i].loop)
            command(app->workers[i].loop, &app->workers[i].stop, on_stop_message);
}

static void on_drained_message(struct br_message *m, struct br_loop *loop)
{
    struct worker *w = br_container_of(m, struct worker, drained_message);
    (void)loop;
    if (++w->app->n_drained == w->app->n_workers)
        stop_all(w->app);
}

static void on_drained(void *arg)
{
    struct worker *w = arg;
    w->drained = true;
    command(w->app->workers[0].loop, &w->drained_message, on_drained_message);
}

static void on_drain_message(struct br_message *m, struct br_loop *loop)
{
    struct worker *w = br_container_of(m, struct worker, drain);
    (void)loop;
    br_graph_drain(w->graph, on_drained, w);
}

static void on_deadline(struct br_timer *t)
{
    struct app *app = br_container_of(t, struct app, deadline);
    app->late = true;
    br_warn(&log_service, "the shutdown timeout is over with items still held");
    stop_all(app);
}

static void on_signal(int number, void *arg)
{
    struct app *app = arg;
    struct br_host *host = br_loop_host(app->workers[0].loop);
    if (number == SIGHUP) {
        br_warn(&log_service, "SIGHUP: the config is read at the start only");
        return;
    }
    if (app->late || (app->stopping && app->n_drained == app->n_workers))
        return;
    if (app->stopping) {
        br_host_timer_stop(host, &app->deadline);
        on_deadline(&app->deadline);
        return;
    }
    app->stopping = true;
    br_info(&log_service, "%s: draining", number == SIGTERM ? "SIGTERM" : "SIGINT");
    (void)br_host_timer(host, &app->deadline, app->options->shutdown_timeout_ms, on_deadline);
    for (unsigned i = 0; i < app->n_workers; i++)
        command(app->workers[i].loop, &app->workers[i].drain, on_drain_message);
}

/* The last lines: what became of everything that came in. */
static void last_words(const struct app *app)
{
    for (int s = 0; s < BR_SIGNALS; s++) {
        double received = 0, sent = 0, rejected = 0, left = 0;
        for (unsigned i = 0; i < app->n_workers; i++) {
            const struct br_ledger *l = &br_loop_host(app->workers[i].loop)->ledger;
            received += *l->received[s];
            sent += *l->sent[s];
            rejected += *l->rejected[s];
            left += *l->held[s];
        }
        br_info(&log_service, "%s: %.0f %s received, %.0f sent, %.0f rejected, %.0f dropped, %.0f left",
                br_signal_name((enum br_signal)s), received, br_signal_items((enum br_signal)s), sent,
                rejected, received - sent - rejected - left, left);
    }
}

/* --- The beginning --------------------------------------------------------------------------- */

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    br_loop_run(w->loop);
    return NULL;
}

/* Says what is wrong with a limit that nothing can be taken under. */
static void check_memory(struct app *app)
{
    size_t floor = app->memory.floor, soft = br_memory_soft(&app->memory);
    if (floor >= soft)
        br_error(&log_service,
                 "memory: %zu MiB are held before anything came (%zu MiB by the join's tables), and from "
                 "%zu MiB on requests are refused: raise memory_limiter's limit, or lower join's max_bytes",
                 floor >> 20, br_mem_held(BR_HOLDER_JOIN) >> 20, soft >> 20);
}

/* What holds where no memory_limiter has set a limit. */
static void limit_memory(struct app *app)
{
    uint64_t total = 0;
    size_t hard = 0;
    if (br_memory_hard(&app->memory) == SIZE_MAX && br_memory_total("", &total))
        hard = (size_t)(total / 100 * MEMORY_PERCENTAGE);
    /* Also where there is nothing to set: what is held by now is what is never given back. */
    br_memory_limit(&app->memory, hard - hard / MEMORY_SPIKE_SHARE, hard);
    check_memory(app);
}

static int make_workers(struct app *app, struct br_err *err)
{
    for (unsigned i = 0; i < app->n_workers; i++) {
        struct worker *w = &app->workers[i];
        w->app = app;
        int rc = br_loop_new(app->net, i, app->n_workers, &w->loop, err);
        if (rc)
            return rc;
        app->loops[i] = w->loop;
        br_loop_host(w->loop)->loops = app->loops;
        br_loop_host(w->loop)->shared = app->shared;
        br_host_set_memory(br_loop_host(w->loop), &app->memory);
        br_loop_set_mark(w->loop, READ_MARK_BYTES);
        br_trimmer_start(&w->trimmer, br_loop_host(w->loop));
        rc = br_graph_new(app->config, br_loop_host(w->loop), &w->graph, err);
        if (rc)
            return rc;
    }
    for (unsigned i = 0; i < app->n_workers; i++) {
        int rc = br_graph_start(app->workers[i].graph, err);
        if (rc)
            return rc;
    }
    limit_memory(app);
    return 0;
}

static int start_threads(struct app *app, struct br_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the first worker's */
    int rc = 0;
    for (unsigned i = 1; i < app->n_workers && !rc; i++) {
        struct worker *w = &app->workers[i];
        if (pthread_create(&w->thread, NULL, run_worker, w))
            rc = br_err_set(err, BR_EIO, "cannot start the thread of worker %u", i);
        else
            w->threaded = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* After it, what the workers still had to say to each other is said: messages own sockets and memory,
 * and are for things that are about to go. */
static void join_threads(struct app *app)
{
    for (unsigned i = 1; i < app->n_workers; i++)
        if (app->workers[i].threaded)
            pthread_join(app->workers[i].thread, NULL);
    for (unsigned i = app->n_workers; i-- > 0;)
        if (app->workers[i].loop)
            br_loop_read_mail(app->workers[i].loop);
}

/* A further signal, which finds no handler any more, must not kill what has nothing left to do. */
static void hold_signals(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
}

static void free_all(struct app *app, bool ran)
{
    br_telemetry_free(app->telemetry);
    for (unsigned i = 0; i < app->n_workers; i++)
        br_graph_free(app->workers[i].graph);
    if (ran) /* what the graphs still held has been settled now, too */
        last_words(app);
    for (unsigned i = 0; i < app->n_workers; i++) {
        br_trimmer_stop(&app->workers[i].trimmer);
        br_loop_free(app->workers[i].loop);
    }
    br_free(app->workers);
    br_shared_free(app->shared);
    br_net_free(app->net);
}

static unsigned count_workers(const struct br_config *config)
{
    if (config->workers)
        return config->workers < WORKERS_MAX ? config->workers : WORKERS_MAX;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores < WORKERS_MAX ? (unsigned)cores : WORKERS_MAX;
}

int br_service_run(const struct br_config *config, const struct br_service_options *options,
                   struct br_err *err)
{
    struct app app = {.config = config, .options = options, .n_workers = count_workers(config)};
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    app.memory.resident = br_memory_resident; /* a sanitizer keeps far more beside what is counted */
#endif
    app.net = br_net_new();
    app.shared = br_shared_new();
    app.workers = br_calloc(app.n_workers, sizeof *app.workers);
    int rc = app.net && app.shared && app.workers ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
    if (!app.workers)
        app.n_workers = 0;
    if (app.net)
        br_net_raise_descriptors(app.net);
    if (!rc)
        rc = make_workers(&app, err);
    const struct br_hosts hosts = {config->telemetry.metrics_endpoint, NULL,
                                   &config->telemetry.metrics_hosts};
    if (!rc && hosts.endpoint)
        rc = br_telemetry_new(br_loop_host(app.workers[0].loop), &hosts, snapshot, &app,
                              &app.telemetry, err);
    if (!rc)
        rc = br_loop_signals(app.workers[0].loop, on_signal, &app);
    if (!rc)
        rc = start_threads(&app, err);
    if (!rc) {
        br_info(&log_service, "ready: %u worker%s", app.n_workers, app.n_workers == 1 ? "" : "s");
        br_loop_run(app.workers[0].loop);
        hold_signals();
    }
    if (rc)
        stop_all(&app);
    join_threads(&app);
    free_all(&app, !rc);
    return rc;
}
