/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "app/service_internal.h"
#include "base/mem.h"
#include "core/reload.h"

#define WATCH_MS 1000  /* interval in ms at which the configuration files are checked */
#define HOLD_MS 5000   /* time limit in ms for draining the nodes in br_graph_hold */
#define FILES_MAX 1000 /* largest number of files that are watched */
#define TEXT_MAX 65536 /* largest report of errors, in bytes */

static const struct br_log log_reload = {"reload"};

/* A configuration that a reload has loaded. The first configuration belongs to the caller of
 * br_service_run. */
struct generation {
    struct br_list link;
    struct br_config *config;
};

/* A graph that a reload has replaced. */
struct retired_graph {
    struct br_message begin, drained;
    struct retired *retired;
    struct br_graph *graph; /* NULL after the graph was freed */
    struct worker *worker;
    bool posted; /* the message `drained` was posted to the first worker */
};

/* The graphs of all workers that one reload has replaced. */
struct retired {
    struct br_list link;
    struct reloader *reloader;
    struct br_timer deadline;
    struct br_deferred others; /* starts draining in the other workers */
    unsigned n_drained;
    bool ready; /* all graphs are drained, or the time limit has expired */
    struct retired_graph graphs[];
};

/* The messages between the first worker and one worker, which may be the first worker itself. */
struct reload_worker {
    struct br_message pause, hold, held;
    struct reloader *reloader;
    struct worker *worker;
    struct br_graph *next; /* the graph being prepared */
};

enum phase {
    IDLE,
    LOADING, /* a thread loads and checks the configuration */
    HOLDING, /* workers drain the nodes that br_graph_hold selects */
};

struct reloader {
    struct br_reload base;
    struct app *app;
    enum phase phase;
    unsigned generation; /* number of the last reload (br_host.generation) */
    bool again;          /* a further reload was requested during the current reload */
    const char *reason;
    struct br_work load;
    struct generation *next; /* the configuration being loaded; owned */
    struct br_errs errs;
    int rc;             /* result of loading */
    struct br_str text; /* report on the reload, for the log and for clients that wait */
    /* lists of struct br_reload_waiter, for the current reload and for the next reload */
    struct br_list waiting, waiting_next;
    struct br_list generations, retired;
    void (*on_idle)(struct app *app);
    unsigned n_holding; /* number of workers that are still draining in the phase HOLDING */
    struct br_timer hold_limit;
    pthread_mutex_t lock; /* protects `n_paused` and `paused` */
    pthread_cond_t changed;
    unsigned n_paused;
    bool paused;
    const struct br_config *telemetry_of; /* configuration that the metrics server uses */
    struct br_timer look;
    struct br_work watch;
    unsigned n_works; /* number of `load` and `watch` that are running */
    bool freed;       /* br_reloader_free was called; the struct is freed when the last work ends */
    /* checksums of the files' attributes: at the last check, at the check before, and when the
     * configuration was loaded */
    uint64_t sum, sum_before, sum_loaded;
    double *succeeded, *failed, *last_successful, *last_time, *watched;
    struct reload_worker workers[];
};

static struct br_host *reload_host(const struct reloader *reloader)
{
    return br_loop_host(reloader->app->workers[0].loop);
}

/* --- Pausing the other workers ---------------------------------------------------------------- */

/* Blocks a worker until the first worker calls reload_resume. */
static void reload_on_pause(struct br_message *message, struct br_loop *loop)
{
    struct reloader *reloader = br_container_of(message, struct reload_worker, pause)->reloader;
    (void)loop;
    (void)pthread_mutex_lock(&reloader->lock);
    reloader->n_paused++;
    (void)pthread_cond_broadcast(&reloader->changed);
    while (reloader->paused)
        (void)pthread_cond_wait(&reloader->changed, &reloader->lock);
    reloader->n_paused--;
    (void)pthread_cond_broadcast(&reloader->changed);
    (void)pthread_mutex_unlock(&reloader->lock);
}

/* Blocks all other workers, and waits until they are blocked. Nodes may be created and destroyed
 * only while a single worker runs (core/shared.h). */
static void reload_pause(struct reloader *reloader)
{
    struct app *app = reloader->app;
    reloader->paused = true;
    for (unsigned i = 1; i < app->n_workers; i++)
        br_service_command(app->workers[i].loop, &reloader->workers[i].pause, reload_on_pause);
    (void)pthread_mutex_lock(&reloader->lock);
    while (reloader->n_paused < app->n_workers - 1)
        (void)pthread_cond_wait(&reloader->changed, &reloader->lock);
    (void)pthread_mutex_unlock(&reloader->lock);
}

static void reload_resume(struct reloader *reloader)
{
    (void)pthread_mutex_lock(&reloader->lock);
    reloader->paused = false;
    (void)pthread_cond_broadcast(&reloader->changed);
    while (reloader->n_paused)
        (void)pthread_cond_wait(&reloader->changed, &reloader->lock);
    (void)pthread_mutex_unlock(&reloader->lock);
}

/* --- Replaced graphs -------------------------------------------------------------------------- */

static bool reload_config_is_used(const struct reloader *reloader, const struct br_config *config)
{
    struct app *app = reloader->app;
    if (config == app->config || config == reloader->telemetry_of)
        return true;
    for (unsigned i = 0; i < app->n_workers; i++) {
        if (br_graph_uses(app->workers[i].graph, config))
            return true;
        for (struct br_list *l = reloader->retired.next; l != &reloader->retired; l = l->next)
            if (br_graph_uses(br_container_of(l, struct retired, link)->graphs[i].graph, config))
                return true;
    }
    return false;
}

static void generation_free(struct generation *generation)
{
    if (!generation)
        return;
    br_config_free(generation->config);
    br_free(generation);
}

static bool reload_is_idle(const struct reloader *reloader)
{
    return br_list_empty(&reloader->retired) && reloader->n_works == 0;
}

static void reload_tell_idle(struct reloader *reloader)
{
    if (reload_is_idle(reloader) && reloader->on_idle)
        reloader->on_idle(reloader->app);
}

/* Frees the configurations that are no longer in use. */
static void reload_free_configs(struct reloader *reloader)
{
    struct br_list *next;
    for (struct br_list *l = reloader->generations.next; l != &reloader->generations; l = next) {
        struct generation *generation = br_container_of(l, struct generation, link);
        next = l->next;
        if (reload_config_is_used(reloader, generation->config))
            continue;
        br_list_remove(l);
        generation_free(generation);
    }
}

/* Frees the graphs. The struct is freed only when all posted messages have been received. */
static void retired_free(struct retired *retired)
{
    struct app *app = retired->reloader->app;
    unsigned n_posted = 0;
    br_host_timer_stop(reload_host(retired->reloader), &retired->deadline);
    br_host_defer_cancel(&retired->others);
    for (unsigned i = 0; i < app->n_workers; i++) {
        if (retired->graphs[i].graph)
            br_graph_leave(retired->graphs[i].graph, app->workers[i].graph);
        retired->graphs[i].graph = NULL;
        n_posted += retired->graphs[i].posted;
    }
    if (retired->n_drained == n_posted)
        br_free(retired);
}

/* Frees replaced graphs that are drained. An older graph may send items to nodes of a newer graph,
 * so the oldest graph is freed first. */
static void reload_free_retired(struct reloader *reloader)
{
    struct br_list *list = &reloader->retired;
    if (br_list_empty(list) || !br_container_of(list->next, struct retired, link)->ready)
        return;
    reload_pause(reloader);
    while (!br_list_empty(list) && br_container_of(list->next, struct retired, link)->ready)
        retired_free(br_container_of(br_list_shift(list), struct retired, link));
    reload_free_configs(reloader);
    reload_resume(reloader);
    reload_tell_idle(reloader);
}

static void reload_on_deadline(struct br_timer *timer)
{
    struct retired *retired = br_container_of(timer, struct retired, deadline);
    br_warn(&log_reload, "components that were changed or removed could not send all records in "
                         "time; the rest is dropped");
    retired->ready = true;
    reload_free_retired(retired->reloader);
}

static void reload_on_retired(struct br_message *message, struct br_loop *loop)
{
    struct retired *retired = br_container_of(message, struct retired_graph, drained)->retired;
    (void)loop;
    retired->n_drained++;
    if (!retired->graphs[0].graph) {
        retired_free(retired);
        return;
    }
    if (retired->n_drained < retired->reloader->app->n_workers)
        return;
    retired->ready = true;
    reload_free_retired(retired->reloader);
}

/* Runs in the thread of the graph's worker. */
static void reload_on_graph_drained(void *arg)
{
    struct retired_graph *graph = arg;
    graph->posted = true;
    br_service_command(graph->worker->app->workers[0].loop, &graph->drained, reload_on_retired);
}

static void reload_on_retire(struct br_message *message, struct br_loop *loop);

/* Starts draining in the other workers after the first worker has stopped its listeners. Otherwise,
 * the first worker could hand over a connection to a server that has already stopped. */
static void reload_retire_others(struct br_deferred *deferred)
{
    struct retired *retired = br_container_of(deferred, struct retired, others);
    for (unsigned i = 1; i < retired->reloader->app->n_workers; i++)
        if (retired->graphs[i].graph)
            br_service_command(retired->reloader->app->workers[i].loop, &retired->graphs[i].begin,
                               reload_on_retire);
}

static void reload_on_retire(struct br_message *message, struct br_loop *loop)
{
    struct retired_graph *graph = br_container_of(message, struct retired_graph, begin);
    (void)loop;
    br_graph_retire(graph->graph, graph->worker->app->options->shutdown_timeout_ms / 2,
                    reload_on_graph_drained, graph);
    if (graph == &graph->retired->graphs[0])
        br_host_defer(reload_host(graph->retired->reloader), &graph->retired->others,
                      reload_retire_others);
}

static void reload_begin_retiring(struct reloader *reloader, struct retired *retired)
{
    struct app *app = reloader->app;
    br_list_append(&reloader->retired, &retired->link);
    (void)br_host_timer(reload_host(reloader), &retired->deadline,
                        app->options->shutdown_timeout_ms, reload_on_deadline);
    br_service_command(app->workers[0].loop, &retired->graphs[0].begin, reload_on_retire);
}

/* --- Results ---------------------------------------------------------------------------------- */

static void reload_add_errors(struct br_str *out, const struct br_errs *errs)
{
    char line[1200];
    for (size_t i = 0; i < errs->n_errors; i++)
        br_str_printf(out, "%s%s", out->len ? "\n" : "",
                      br_err_format(&errs->errors[i], line, sizeof line));
}

static void reload_log_failure(const struct reloader *reloader)
{
    const char *line = reloader->text.len ? reloader->text.data : "out of memory";
    br_error(&log_reload, "the configuration was not reloaded (%s); the previous one stays in use",
             reloader->reason);
    while (*line) {
        size_t n = strcspn(line, "\n");
        br_error(&log_reload, "%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static void reload_start(struct reloader *reloader, const char *reason);
static void reload_free(struct reloader *reloader);

/* Starts `work` in a thread of the thread pool. */
static void reload_work(struct reloader *reloader, struct br_work *work,
                        void (*run)(struct br_work *), void (*done)(struct br_work *))
{
    *work = (struct br_work){.run = run, .done = done, .kind = BR_WORK_DISK};
    reloader->n_works++;
    br_host_work(reload_host(reloader), work);
}

/* Must be called first in the function `done` of a struct br_work. Returns false if the reloader
 * has been freed. */
static bool reload_end_work(struct reloader *reloader)
{
    reloader->n_works--;
    if (!reloader->freed)
        return true;
    if (reloader->n_works == 0)
        reload_free(reloader);
    return false;
}

static void reload_tell(struct br_list *waiting, bool reloaded, const char *text)
{
    struct br_list *list;
    while ((list = br_list_shift(waiting))) {
        struct br_reload_waiter *waiter = br_container_of(list, struct br_reload_waiter, link);
        waiter->done(waiter, reloaded, text);
    }
}

/* Ends a reload: logs and counts the result, and reports it to the clients that wait for the
 * reload. */
static void reload_end(struct reloader *reloader, bool reloaded)
{
    struct br_host *host = reload_host(reloader);
    const char *text = reloader->text.len ? reloader->text.data : "out of memory";
    *(reloaded ? reloader->succeeded : reloader->failed) += 1;
    *reloader->last_successful = reloaded;
    if (reloaded) {
        *reloader->last_time = (double)br_host_unix_ns(host) / 1e9;
        br_info(&log_reload, "the configuration was reloaded (%s): %s", reloader->reason, text);
    } else {
        reload_log_failure(reloader);
    }
    generation_free(reloader->next);
    reloader->next = NULL;
    br_errs_release(&reloader->errs);
    reloader->errs = (struct br_errs){0};
    reloader->phase = IDLE;
    reload_tell(&reloader->waiting, reloaded, text);
    br_str_release(&reloader->text);
    reloader->text = (struct br_str){.max = TEXT_MAX};
    if (reloader->app->stopping) {
        reload_tell(&reloader->waiting_next, false, "shutting down");
        reload_tell_idle(reloader);
    } else if (reloader->again) {
        reload_start(reloader, reloader->reason);
    }
}

/* --- Replacing the graphs --------------------------------------------------------------------- */

static int reload_prepare(struct reloader *reloader, struct br_err *err)
{
    struct app *app = reloader->app;
    int rc = 0;
    reloader->generation++;
    for (unsigned i = 0; i < app->n_workers; i++)
        br_loop_host(app->workers[i].loop)->generation = reloader->generation;
    for (unsigned i = 0; i < app->n_workers && !rc; i++)
        rc = br_graph_prepare(app->workers[i].graph, reloader->next->config,
                              &reloader->workers[i].next, err);
    for (unsigned i = 0; i < app->n_workers && !rc; i++)
        rc = br_graph_start_new(reloader->workers[i].next, app->workers[i].graph, err);
    return rc;
}

static void reload_cancel(struct reloader *reloader)
{
    struct app *app = reloader->app;
    char line[1200];
    for (unsigned i = 0; i < app->n_workers; i++) {
        if (reloader->workers[i].next)
            br_graph_cancel(reloader->workers[i].next, app->workers[i].graph);
        reloader->workers[i].next = NULL;
    }
    for (unsigned i = 0; i < app->n_workers; i++) {
        struct br_err err = {0};
        if (br_graph_revive_held(app->workers[i].graph, &err))
            br_str_printf(&reloader->text, "\nafter the failure, a component could not start: %s",
                          br_err_format(&err, line, sizeof line));
    }
}

static bool reload_strings_are_equal(const char *one, const char *other)
{
    return one && other ? strcmp(one, other) == 0 : one == other;
}

/* Applies changes of service::telemetry, which is not part of the graph. */
static int reload_service(struct reloader *reloader, struct br_err *err)
{
    struct app *app = reloader->app;
    const struct br_config *old = app->config, *next = reloader->next->config;
    const struct br_yaml *before = br_yaml_get(br_yaml_get(old->tree, "service"), "telemetry");
    const struct br_yaml *now = br_yaml_get(br_yaml_get(next->tree, "service"), "telemetry");
    if (next->workers != old->workers)
        br_warn(&log_reload,
                "service::workers has changed; a new number of workers needs a restart");
    if (br_yaml_equal(before, now) &&
        reload_strings_are_equal(old->telemetry.metrics_endpoint, next->telemetry.metrics_endpoint))
        return 0;
    struct br_telemetry *telemetry;
    int rc = br_service_start_telemetry(app, next, &telemetry, err);
    if (rc)
        return rc;
    br_telemetry_free(app->telemetry);
    app->telemetry = telemetry;
    reloader->telemetry_of = next;
    br_log_setup(next->telemetry.log_level, next->telemetry.log_json, 2);
    return 0;
}

static struct retired *reload_new_retired(struct reloader *reloader)
{
    struct app *app = reloader->app;
    struct retired *retired =
        br_calloc(1, sizeof *retired + app->n_workers * sizeof retired->graphs[0]);
    for (unsigned i = 0; retired && i < app->n_workers; i++)
        retired->graphs[i] = (struct retired_graph){
            .retired = retired, .graph = app->workers[i].graph, .worker = &app->workers[i]};
    if (retired)
        retired->reloader = reloader;
    return retired;
}

static void reload_commit(struct reloader *reloader)
{
    struct app *app = reloader->app;
    br_graph_describe(reloader->workers[0].next, app->workers[0].graph, &reloader->text);
    for (unsigned i = 0; i < app->n_workers; i++) {
        br_graph_commit(reloader->workers[i].next, app->workers[i].graph);
        app->workers[i].graph = reloader->workers[i].next;
        br_host_reread(br_loop_host(app->workers[i].loop));
        reloader->workers[i].next = NULL;
    }
    app->config = reloader->next->config;
    br_list_append(&reloader->generations, &reloader->next->link);
    reloader->next = NULL;
}

/* Replaces the graphs of all workers, while the other workers are paused. */
static void reload_replace(struct reloader *reloader)
{
    struct app *app = reloader->app;
    struct br_err err = {0};
    char line[1200];
    struct retired *retired = reload_new_retired(reloader);
    reload_pause(reloader);
    for (unsigned i = 0; i < app->n_workers; i++)
        br_graph_end_held(app->workers[i].graph);
    int rc =
        retired ? reload_prepare(reloader, &err) : br_err_set(&err, BR_ENOMEM, "out of memory");
    if (!rc)
        rc = reload_service(reloader, &err);
    if (rc) {
        br_str_printf(&reloader->text, "%s", br_err_format(&err, line, sizeof line));
        reload_cancel(reloader);
        br_free(retired);
    } else {
        reload_commit(reloader);
        reload_begin_retiring(reloader, retired);
    }
    br_net_keep_sockets(app->net, false);
    reload_resume(reloader);
    reload_end(reloader, rc == 0);
}

/* --- Draining exclusive nodes ----------------------------------------------------------------- */

static void reload_stop_holding(struct reloader *reloader)
{
    br_host_timer_stop(reload_host(reloader), &reloader->hold_limit);
    if (reloader->phase != HOLDING)
        return;
    if (!reloader->app->stopping) {
        reload_replace(reloader);
        return;
    }
    br_net_keep_sockets(reloader->app->net, false);
    br_str_printf(&reloader->text, "shutting down");
    reload_end(reloader, false);
}

static void reload_on_hold_limit(struct br_timer *timer)
{
    reload_stop_holding(br_container_of(timer, struct reloader, hold_limit));
}

static void reload_on_held_message(struct br_message *message, struct br_loop *loop)
{
    struct reloader *reloader = br_container_of(message, struct reload_worker, held)->reloader;
    (void)loop;
    if (--reloader->n_holding == 0)
        reload_stop_holding(reloader);
}

/* Runs in the worker's thread. */
static void reload_on_held(void *arg)
{
    struct reload_worker *worker = arg;
    br_service_command(worker->worker->app->workers[0].loop, &worker->held, reload_on_held_message);
}

static void reload_on_hold(struct br_message *message, struct br_loop *loop)
{
    struct reload_worker *worker = br_container_of(message, struct reload_worker, hold);
    (void)loop;
    br_graph_hold(worker->worker->graph, worker->reloader->next->config, reload_on_held, worker);
}

static void reload_hold(struct reloader *reloader)
{
    struct app *app = reloader->app;
    reloader->phase = HOLDING;
    br_net_keep_sockets(app->net, true);
    reloader->n_holding = app->n_workers;
    (void)br_host_timer(reload_host(reloader), &reloader->hold_limit, HOLD_MS,
                        reload_on_hold_limit);
    for (unsigned i = 0; i < app->n_workers; i++)
        br_service_command(app->workers[i].loop, &reloader->workers[i].hold, reload_on_hold);
}

/* --- Loading ---------------------------------------------------------------------------------- */

static void reload_run_load(struct br_work *work)
{
    struct reloader *reloader = br_container_of(work, struct reloader, load);
    reloader->rc = br_config_load(reloader->app->options->sources, br_components,
                                  &reloader->next->config, &reloader->errs);
    if (!reloader->rc)
        reloader->rc = br_preflight(reloader->next->config, false, &reloader->errs);
}

static void reload_on_loaded(struct br_work *work)
{
    struct reloader *reloader = br_container_of(work, struct reloader, load);
    char line[1200];
    if (!reload_end_work(reloader))
        return;
    for (size_t i = 0; i < reloader->errs.n_warnings; i++)
        br_warn(&log_reload, "%s", br_err_format(&reloader->errs.warnings[i], line, sizeof line));
    if (reloader->rc || reloader->app->stopping) {
        reload_add_errors(&reloader->text, &reloader->errs);
        if (!reloader->text.len && reloader->app->stopping)
            br_str_printf(&reloader->text, "shutting down");
        reload_end(reloader, false);
    } else if (br_graph_must_hold(reloader->app->workers[0].graph, reloader->next->config)) {
        reload_hold(reloader);
    } else {
        reload_replace(reloader);
    }
}

static void reload_start(struct reloader *reloader, const char *reason)
{
    struct br_list *list;
    reloader->again = false;
    reloader->reason = reason;
    reloader->phase = LOADING;
    while ((list = br_list_shift(&reloader->waiting_next)))
        br_list_append(&reloader->waiting, list);
    reloader->next = br_calloc(1, sizeof *reloader->next);
    if (!reloader->next) {
        reload_end(reloader, false);
        return;
    }
    reloader->sum_loaded = reloader->sum;
    reload_work(reloader, &reloader->load, reload_run_load, reload_on_loaded);
}

void br_reloader_request(struct reloader *reloader, const char *reason)
{
    if (!reloader || reloader->app->stopping || !reloader->app->options->sources)
        return;
    if (reloader->phase != IDLE)
        reloader->again = true;
    else
        reload_start(reloader, reason);
}

static void reload_on_request(struct br_reload *base, struct br_reload_waiter *waiter)
{
    struct reloader *reloader = br_container_of(base, struct reloader, base);
    br_list_append(&reloader->waiting_next, &waiter->link);
    if (reloader->app->stopping && reloader->phase == IDLE)
        reload_tell(&reloader->waiting_next, false, "shutting down");
    else
        br_reloader_request(reloader, "POST /-/reload");
}

/* --- Watching the files ----------------------------------------------------------------------- */

static void reload_add_to_sum(uint64_t *sum, uint64_t value)
{
    *sum = (*sum ^ value) * 1099511628211u; /* FNV-1a, with 64-bit words instead of bytes */
}

static void reload_add_file(uint64_t *sum, const char *path)
{
    struct stat st;
    if (stat(path, &st)) {
        reload_add_to_sum(sum, 1);
        return;
    }
    reload_add_to_sum(sum, (uint64_t)st.st_ino);
    reload_add_to_sum(sum, (uint64_t)st.st_size);
    reload_add_to_sum(sum, (uint64_t)st.st_mtim.tv_sec);
    reload_add_to_sum(sum, (uint64_t)st.st_mtim.tv_nsec);
}

/* Returns the path in an argument of --config, or NULL if the argument is not a file. */
static const char *reload_path_of(const char *uri)
{
    if (strncmp(uri, "file:", 5) == 0)
        return uri + 5;
    size_t n = strspn(uri, "abcdefghijklmnopqrstuvwxyz");
    return n >= 2 && uri[n] == ':' ? NULL : uri;
}

static void reload_run_watch(struct br_work *work)
{
    struct reloader *reloader = br_container_of(work, struct reloader, watch);
    const struct br_config_sources *sources = reloader->app->options->sources;
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < sources->n_uris && i < FILES_MAX; i++) {
        const char *path = reload_path_of(sources->uris[i]);
        if (path)
            reload_add_file(&sum, path);
    }
    reloader->sum_before = reloader->sum;
    reloader->sum = sum;
}

static void reload_on_look(struct br_timer *timer);

/* Reloads the configuration if the files have changed since it was loaded, but not since the last
 * check. A file that is still being written is therefore not loaded. */
static void reload_on_watched(struct br_work *work)
{
    struct reloader *reloader = br_container_of(work, struct reloader, watch);
    if (!reload_end_work(reloader))
        return;
    if (reloader->app->stopping) {
        reload_tell_idle(reloader);
        return;
    }
    *reloader->watched = 1;
    if (!reloader->sum_loaded)
        reloader->sum_loaded = reloader->sum;
    else if (reloader->sum != reloader->sum_loaded && reloader->sum == reloader->sum_before &&
             reloader->phase == IDLE)
        br_reloader_request(reloader, "a file has changed");
    (void)br_host_timer(reload_host(reloader), &reloader->look, WATCH_MS, reload_on_look);
}

static void reload_on_look(struct br_timer *timer)
{
    struct reloader *reloader = br_container_of(timer, struct reloader, look);
    reload_work(reloader, &reloader->watch, reload_run_watch, reload_on_watched);
}

/* --- Life ------------------------------------------------------------------------------------- */

struct reloader *br_reloader_new(struct app *app)
{
    struct reloader *reloader =
        br_calloc(1, sizeof *reloader + app->n_workers * sizeof reloader->workers[0]);
    if (!reloader)
        return NULL;
    struct br_metrics *metrics = br_loop_host(app->workers[0].loop)->metrics;
    reloader->base.request = reload_on_request;
    reloader->app = app;
    reloader->telemetry_of = app->config;
    reloader->text.max = TEXT_MAX;
    br_list_init(&reloader->waiting);
    br_list_init(&reloader->waiting_next);
    br_list_init(&reloader->generations);
    br_list_init(&reloader->retired);
    (void)pthread_mutex_init(&reloader->lock, NULL);
    (void)pthread_cond_init(&reloader->changed, NULL);
    for (unsigned i = 0; i < app->n_workers; i++) {
        reloader->workers[i].reloader = reloader;
        reloader->workers[i].worker = &app->workers[i];
    }
    reloader->succeeded =
        br_metric(metrics, BR_COUNTER, "braid_config_reloads", "result=\"success\"");
    reloader->failed = br_metric(metrics, BR_COUNTER, "braid_config_reloads", "result=\"failure\"");
    reloader->last_successful =
        br_metric(metrics, BR_GAUGE, "braid_config_last_reload_successful", "");
    reloader->last_time =
        br_metric(metrics, BR_GAUGE, "braid_config_last_reload_success_timestamp_seconds", "");
    reloader->watched = br_metric(metrics, BR_GAUGE, "braid_config_watched", "");
    *reloader->last_successful = 1;
    *reloader->last_time = (double)br_host_unix_ns(reload_host(reloader)) / 1e9;
    if (app->options->sources)
        reload_host(reloader)->reload = &reloader->base;
    if (app->options->sources && app->options->watch_config)
        (void)br_host_timer(reload_host(reloader), &reloader->look, 0, reload_on_look);
    return reloader;
}

bool br_reloader_idle(struct reloader *reloader, void (*fn)(struct app *app))
{
    if (!reloader || reload_is_idle(reloader))
        return true;
    reloader->on_idle = fn;
    return false;
}

void br_reloader_end_graphs(struct reloader *reloader)
{
    if (!reloader)
        return;
    for (struct br_list *l = reloader->retired.prev; l != &reloader->retired; l = l->prev)
        for (unsigned i = 0; i < reloader->app->n_workers; i++)
            br_graph_end(br_container_of(l, struct retired, link)->graphs[i].graph);
}

static void reload_free(struct reloader *reloader)
{
    struct br_list *list;
    while ((list = br_list_shift(&reloader->generations)))
        generation_free(br_container_of(list, struct generation, link));
    generation_free(reloader->next);
    br_errs_release(&reloader->errs);
    br_str_release(&reloader->text);
    (void)pthread_cond_destroy(&reloader->changed);
    (void)pthread_mutex_destroy(&reloader->lock);
    br_free(reloader);
}

void br_reloader_free(struct reloader *reloader)
{
    struct br_list *list;
    if (!reloader)
        return;
    struct br_host *host = reload_host(reloader);
    host->reload = NULL;
    br_host_timer_stop(host, &reloader->look);
    br_host_timer_stop(host, &reloader->hold_limit);
    while ((list = br_list_shift(&reloader->retired))) {
        struct retired *retired = br_container_of(list, struct retired, link);
        br_host_timer_stop(host, &retired->deadline);
        for (unsigned i = 0; i < reloader->app->n_workers; i++)
            br_graph_free(retired->graphs[i].graph);
        br_free(retired);
    }
    reloader->freed = true;
    if (reloader->n_works == 0)
        reload_free(reloader);
}
