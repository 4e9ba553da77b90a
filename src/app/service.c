/* SPDX-License-Identifier: Apache-2.0 */
#include "app/service.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/service_internal.h"
#include "base/mem.h"
#include "base/sanitize.h"

/* buffered bytes per worker above which some connections are not read (br_loop_set_mark) */
#define READ_MARK_BYTES (24u << 20)
/* the wait for threads ends this many ms before the signals thread ends the process */
#define MARGIN_MS 300
/* part of MARGIN_MS, in ms, that is reserved for writing the log */
#define LAST_LOG_MS 200
/* default memory limit, in percent of the memory of the machine or control group */
#define MEMORY_PERCENTAGE 80u
#define MEMORY_SPIKE_SHARE 5u

static const struct br_log log_service = {"service"};

/* --- Snapshots of all workers' metrics ------------------------------------------------------- */

struct snapshot {
    struct br_metrics *sum;
    unsigned missing;
    void (*done)(struct br_metrics *sum, void *arg);
    void *arg;
};

/* The message that fetches the metrics of one worker and returns them to the first worker. */
struct part {
    struct br_message message;
    struct snapshot *snapshot;
    struct br_loop *home;
    struct br_metrics *metrics;
};

static void service_add_part(struct snapshot *snapshot, const struct br_metrics *metrics)
{
    if (snapshot->sum && (!metrics || br_metrics_add(snapshot->sum, metrics))) {
        br_metrics_free(snapshot->sum);
        snapshot->sum = NULL;
    }
    if (--snapshot->missing > 0)
        return;
    snapshot->done(snapshot->sum, snapshot->arg);
    br_free(snapshot);
}

static void service_on_part_returned(struct br_message *message, struct br_loop *loop)
{
    struct part *p = br_container_of(message, struct part, message);
    (void)loop;
    service_add_part(p->snapshot, p->metrics);
    br_metrics_free(p->metrics);
    br_free(p);
}

static void service_on_part(struct br_message *message, struct br_loop *loop)
{
    struct part *p = br_container_of(message, struct part, message);
    /* adds the memory counts of this thread to the totals that the first worker reports */
    br_mem_flush();
    p->metrics = br_metrics_new();
    if (p->metrics && br_metrics_add(p->metrics, br_loop_host(loop)->metrics)) {
        br_metrics_free(p->metrics);
        p->metrics = NULL;
    }
    message->run = service_on_part_returned;
    br_loop_command(p->home, message);
}

static void service_snapshot(void *arg, void (*done)(struct br_metrics *, void *), void *done_arg)
{
    struct app *app = arg;
    struct snapshot *snapshot = br_calloc(1, sizeof *snapshot);
    if (!snapshot) {
        done(NULL, done_arg);
        return;
    }
    snapshot->sum = br_metrics_new();
    snapshot->missing = app->n_workers;
    snapshot->done = done;
    snapshot->arg = done_arg;
    for (unsigned i = 1; i < app->n_workers; i++) {
        struct part *p = br_calloc(1, sizeof *p);
        if (p) {
            p->message.run = service_on_part;
            p->snapshot = snapshot;
            p->home = app->workers[0].loop;
        }
        if (!p || !br_loop_post(app->workers[i].loop, &p->message)) {
            br_free(p);
            service_add_part(snapshot, NULL);
        }
    }
    service_add_part(snapshot, br_loop_host(app->workers[0].loop)->metrics);
}

/* --- Stopping -------------------------------------------------------------------------------- */

static void service_on_stop_message(struct br_message *message, struct br_loop *loop)
{
    (void)message;
    br_loop_stop(loop);
}

void br_service_command(struct br_loop *loop, struct br_message *message,
                        void (*run)(struct br_message *, struct br_loop *))
{
    message->run = run;
    br_loop_command(loop, message);
}

/* Stops all loops. Runs only once, because a message that is in a loop's queue must not be
 * posted again. */
static void service_stop_all(struct app *app)
{
    if (app->stopped)
        return;
    app->stopped = true;
    for (unsigned i = 0; i < app->n_workers; i++)
        if (app->workers[i].loop)
            br_service_command(app->workers[i].loop, &app->workers[i].stop,
                               service_on_stop_message);
}

static void service_check_drained(struct app *app)
{
    if (app->n_drained == app->n_workers && br_reloader_idle(app->reloader, service_check_drained))
        service_stop_all(app);
}

static void service_on_drained_message(struct br_message *message, struct br_loop *loop)
{
    struct worker *worker = br_container_of(message, struct worker, drained_message);
    (void)loop;
    worker->app->n_drained++;
    service_check_drained(worker->app);
}

static void service_on_drained(void *arg)
{
    struct worker *worker = arg;
    worker->drained = true;
    br_service_command(worker->app->workers[0].loop, &worker->drained_message,
                       service_on_drained_message);
}

static void service_on_drain_message(struct br_message *message, struct br_loop *loop)
{
    struct worker *worker = br_container_of(message, struct worker, drain);
    (void)loop;
    br_graph_drain(worker->graph, worker->app->options->shutdown_timeout_ms / 2, service_on_drained,
                   worker);
}

static void service_on_deadline(struct br_timer *timer)
{
    struct app *app = br_container_of(timer, struct app, deadline);
    app->late = true;
    br_warn(&log_service, "the shutdown timeout has expired and records are still queued");
    service_stop_all(app);
}

static void service_on_signal(int number, void *arg)
{
    struct app *app = arg;
    struct br_host *host = br_loop_host(app->workers[0].loop);
    if (number == SIGHUP) {
        br_reloader_request(app->reloader, "SIGHUP");
        return;
    }
    if (app->stopped)
        return;
    if (app->stopping) {
        br_host_timer_stop(host, &app->deadline);
        service_on_deadline(&app->deadline);
        return;
    }
    app->stopping = true;
    br_info(&log_service, "%s: draining", number == SIGTERM ? "SIGTERM" : "SIGINT");
    (void)br_host_timer(host, &app->deadline, app->options->shutdown_timeout_ms,
                        service_on_deadline);
    for (unsigned i = 0; i < app->n_workers; i++)
        br_service_command(app->workers[i].loop, &app->workers[i].drain, service_on_drain_message);
}

struct totals {
    double received, sent, rejected, held, stored, restored;
};

static void service_total(struct totals *totals, const struct br_ledger *ledger,
                          enum br_signal signal)
{
    totals->received += *ledger->received[signal];
    totals->sent += *ledger->sent[signal];
    totals->rejected += *ledger->rejected[signal];
    totals->held += *ledger->held[signal];
    totals->stored += *ledger->stored[signal];
    totals->restored += *ledger->restored[signal];
}

static void service_log_totals(const char *prefix, const struct totals *totals,
                               enum br_signal signal)
{
    const char *name = br_signal_name(signal), *records = br_signal_records(signal);
    double dropped = totals->received + totals->restored - totals->sent - totals->rejected -
                     totals->stored - totals->held;
    char storage[96] = "";
    if (totals->stored > 0 || totals->restored > 0)
        (void)snprintf(storage, sizeof storage, ", %.0f stored, %.0f restored from storage",
                       totals->stored, totals->restored);
    br_info(&log_service,
            "%s%s: %.0f %s received%s, %.0f sent, %.0f rejected, %.0f dropped, %.0f left", prefix,
            name, totals->received, records, storage, totals->sent, totals->rejected, dropped,
            totals->held);
}

static bool service_exports(const struct app *app, const struct br_instance *exporter,
                            enum br_signal signal)
{
    for (size_t i = 0; i < app->config->n_pipelines; i++) {
        const struct br_pipeline *pipeline = &app->config->pipelines[i];
        for (size_t k = 0; k < pipeline->n_exporters && pipeline->signal == signal; k++)
            if (pipeline->exporters[k] == exporter)
                return true;
    }
    return false;
}

/* Logs the totals of one exporter. A record that is delivered to the exporter twice counts
 * twice. */
static void service_log_exporter(const struct app *app, const struct br_instance *exporter,
                                 enum br_signal signal)
{
    struct totals totals = {0};
    char prefix[256];
    for (unsigned i = 0; i < app->n_workers; i++) {
        struct br_ledger ledger;
        if (br_ledger_init(&ledger, br_loop_host(app->workers[i].loop)->metrics, exporter->id))
            return;
        service_total(&totals, &ledger, signal);
    }
    (void)snprintf(prefix, sizeof prefix, "exporter %.200s: ", exporter->id);
    service_log_totals(prefix, &totals, signal);
}

/* Logs the final totals: first the totals of each exporter, then the totals of the process. In the
 * totals of the process, each record counts once even if several exporters received it. */
static void service_log_all_totals(const struct app *app)
{
    for (size_t i = 0; i < app->config->n_instances; i++) {
        const struct br_instance *instance = &app->config->instances[i];
        for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
            if (instance->component && instance->component->kind == BR_EXPORTER &&
                service_exports(app, instance, s))
                service_log_exporter(app, instance, s);
    }
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        struct totals totals = {0};
        for (unsigned i = 0; i < app->n_workers; i++)
            service_total(&totals, &br_loop_host(app->workers[i].loop)->ledger, s);
        service_log_totals("", &totals, s);
    }
}

/* --- Ending while threads are blocked -------------------------------------------------------- */

/* Ends the process at once. Frees nothing, because blocked threads may still use the memory. */
static void service_abort(struct app *app)
{
    service_log_all_totals(app);
    (void)br_log_stop(LAST_LOG_MS);
    _exit(EXIT_FAILURE);
}

/* Runs in the signals thread when a loop does not end or a file cannot be closed. Workers may still
 * change the totals while this function reads them. */
static void service_on_late(void *arg)
{
    struct app *app = arg;
    br_error(&log_service, "%s; the process ends now",
             app->looped ? "files could not be closed in time" : "a worker did not end in time");
    service_abort(app);
}

/* Waits for the threads of the thread pool, which may be blocked by a disk. All loops must have
 * ended. */
static void service_wait_for_works(struct app *app)
{
    struct br_net_works works;
    uint64_t left_ms = br_signals_left_ms(app->signals);
    app->looped = true;
    if (br_net_wait_works(app->net, left_ms > MARGIN_MS ? left_ms - MARGIN_MS : 0, &works))
        return;
    br_signals_leave(app->signals, EXIT_FAILURE);
    br_error(&log_service,
             "the shutdown timeout has expired and threads are blocked: %u with files, %u with "
             "queries, %u with requests; the process ends without them",
             works.by_kind[BR_WORK_DISK], works.by_kind[BR_WORK_SLOW],
             works.by_kind[BR_WORK_QUICK]);
    service_abort(app);
}

/* --- Starting -------------------------------------------------------------------------------- */

static void *service_run_worker(void *arg)
{
    struct worker *worker = arg;
    br_loop_run(worker->loop);
    return NULL;
}

/* Logs an error if the memory in use at start already exceeds the limit for new requests. */
static void service_check_memory(struct app *app)
{
    size_t floor = app->memory.floor, soft = br_memory_soft(&app->memory);
    if (floor >= soft)
        br_error(&log_service,
                 "memory: %zu MiB are in use at start (%zu MiB by the tables of join), and "
                 "requests are rejected from %zu MiB on; raise the limit of memory_limiter or "
                 "lower max_bytes of join",
                 floor >> 20, br_mem_held(BR_HOLDER_JOIN) >> 20, soft >> 20);
}

/* Sets the default limit if no memory_limiter has set one. */
static void service_limit_memory(struct app *app)
{
    uint64_t total = 0;
    size_t hard = 0;
    if (br_memory_hard(&app->memory) == SIZE_MAX && br_memory_total("", &total))
        hard = (size_t)(total / 100 * MEMORY_PERCENTAGE);
    /* br_memory_limit is called even if there is no new limit, because it also records how much
     * memory is in use at start. This memory is never freed. */
    br_memory_limit(&app->memory, hard - hard / MEMORY_SPIKE_SHARE, hard);
    br_mem_tune(br_memory_hard(&app->memory));
    service_check_memory(app);
}

static int service_make_workers(struct app *app, struct br_err *err)
{
    for (unsigned i = 0; i < app->n_workers; i++) {
        struct worker *worker = &app->workers[i];
        worker->app = app;
        int rc = br_loop_new(app->net, i, app->n_workers, &worker->loop, err);
        if (rc)
            return rc;
        app->loops[i] = worker->loop;
        rc = i == 0 ? br_net_start_pool(worker->loop, err) : 0;
        if (rc)
            return rc;
        br_loop_host(worker->loop)->loops = app->loops;
        br_loop_host(worker->loop)->shared = app->shared;
        br_host_set_memory(br_loop_host(worker->loop), &app->memory);
        br_loop_set_mark(worker->loop, READ_MARK_BYTES);
        br_trimmer_start(&worker->trimmer, br_loop_host(worker->loop));
        rc = br_graph_new(app->config, br_loop_host(worker->loop), &worker->graph, err);
        if (rc)
            return rc;
    }
    /* The signals thread starts before the listeners, so that signals already work when a client
     * can connect. */
    const struct br_signals_config signals = {.shutdown_timeout_ms =
                                                  app->options->shutdown_timeout_ms,
                                              .on_signal = service_on_signal,
                                              .on_late = service_on_late,
                                              .arg = app};
    int rc = br_signals_start(app->workers[0].loop, &signals, &app->signals, err);
    if (rc)
        return rc;
    for (unsigned i = 0; i < app->n_workers && !rc; i++)
        rc = br_graph_start(app->workers[i].graph, err);
    if (rc)
        return rc;
    service_limit_memory(app);
    return 0;
}

static int service_start_threads(struct app *app, struct br_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    /* the threads of the other workers must not handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = 0;
    for (unsigned i = 1; i < app->n_workers && !rc; i++) {
        struct worker *worker = &app->workers[i];
        if (pthread_create(&worker->thread, NULL, service_run_worker, worker))
            rc = br_err_set(err, BR_EIO, "cannot start the thread of worker %u", i);
        else
            worker->threaded = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* Joins the workers' threads. After that, runs the messages that are still queued, because the
 * messages own sockets and memory. */
static void service_join_threads(struct app *app)
{
    for (unsigned i = 1; i < app->n_workers; i++)
        if (app->workers[i].threaded)
            pthread_join(app->workers[i].thread, NULL);
    for (unsigned i = app->n_workers; i-- > 0;)
        if (app->workers[i].loop)
            br_loop_read_mail(app->workers[i].loop);
}

static void service_free_all(struct app *app, bool ran)
{
    br_telemetry_free(app->telemetry);
    for (unsigned i = 0; i < app->n_workers; i++)
        if (app->workers[i].graph)
            br_graph_end(app->workers[i].graph);
    br_reloader_end_graphs(app->reloader);
    if (ran) /* the totals are complete, because br_graph_end has reported the remaining records */
        service_log_all_totals(app);
    if (app->signals)
        br_signals_leave(app->signals, ran ? EXIT_SUCCESS : EXIT_FAILURE);
    for (unsigned i = 0; i < app->n_workers; i++)
        br_graph_free(app->workers[i].graph);
    br_reloader_free(app->reloader);
    for (unsigned i = 0; i < app->n_workers; i++) {
        br_trimmer_stop(&app->workers[i].trimmer);
        br_loop_free(app->workers[i].loop);
    }
    br_free(app->workers);
    br_shared_free(app->shared);
    br_net_free(app->net);
}

static unsigned service_count_workers(const struct br_config *config)
{
    if (config->workers)
        return config->workers < SERVICE_WORKERS_MAX ? config->workers : SERVICE_WORKERS_MAX;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1)
        return 1;
    return cores < SERVICE_WORKERS_MAX ? (unsigned)cores : SERVICE_WORKERS_MAX;
}

int br_service_start_telemetry(struct app *app, const struct br_config *config,
                               struct br_telemetry **ret, struct br_err *err)
{
    const struct br_hosts hosts = {config->telemetry.metrics_endpoint, NULL,
                                   &config->telemetry.metrics_hosts};
    *ret = NULL;
    if (!hosts.endpoint)
        return 0;
    return br_telemetry_new(br_loop_host(app->workers[0].loop), &hosts, &config->telemetry,
                            service_snapshot, app, ret, err);
}

int br_service_run(const struct br_config *config, const struct br_service_options *options,
                   struct br_err *err)
{
    struct app app = {
        .config = config, .options = options, .n_workers = service_count_workers(config)};
#if !BR_SANITIZED
    /* not set with sanitizers, which use much more memory than Braid counts */
    app.memory.resident = br_memory_resident;
#endif
    app.net = br_net_new();
    app.shared = br_shared_new();
    app.workers = br_calloc(app.n_workers, sizeof *app.workers);
    int rc = app.net && app.shared && app.workers ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
    if (!app.workers)
        app.n_workers = 0;
    if (app.net) {
        br_net_raise_descriptors(app.net);
        br_net_take_passed(app.net);
    }
    if (!rc)
        rc = service_make_workers(&app, err);
    if (!rc)
        rc = br_service_start_telemetry(&app, config, &app.telemetry, err);
    if (!rc && !(app.reloader = br_reloader_new(&app)))
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    if (!rc)
        rc = service_start_threads(&app, err);
    if (!rc) {
        br_info(&log_service, "ready: %u worker%s", app.n_workers, app.n_workers == 1 ? "" : "s");
        if (options->on_ready)
            options->on_ready(options->on_ready_arg);
        app.running = true;
        br_loop_run(app.workers[0].loop);
    }
    if (rc)
        service_stop_all(&app);
    service_join_threads(&app);
    if (!rc)
        service_wait_for_works(&app);
    service_free_all(&app, !rc);
    return rc;
}
