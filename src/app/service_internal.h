/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the process, which the parts of the service share (service.c, reload.c). */
#pragma once

#include <pthread.h>

#include "app/graph.h"
#include "app/service.h"
#include "app/signals.h"
#include "app/telemetry.h"
#include "core/host.h"
#include "core/shared.h"
#include "net/loop.h"

#define SERVICE_WORKERS_MAX 256

struct reloader;

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
    struct br_loop
        *loops[SERVICE_WORKERS_MAX]; /* the loops of all workers: loops[i] is workers[i].loop */
    unsigned n_workers, n_drained;
    struct br_timer deadline;
    struct br_signals *signals;
    struct reloader *reloader;
    bool running; /* the loops run */
    bool stopping, late, stopped;
    bool looped; /* all loops have ended; only threads of the thread pool may still run */
};

/* Posts a message to a loop, which calls `run`. The message must not be in the queue of a loop. */
void br_service_command(struct br_loop *loop, struct br_message *message,
                        void (*run)(struct br_message *, struct br_loop *));

/* Starts the metrics server of `config`, if the configuration has one. Returns 0, or a negative
 * code with `err` set. */
int br_service_start_telemetry(struct app *app, const struct br_config *config,
                               struct br_telemetry **ret, struct br_err *err);

/* --- Reload (reload.c) ------------------------------------------------------------------------ */

/* Creates the reloader, which reloads the configuration on request. With options->watch_config, it
 * also reloads the configuration when a file changes. Returns NULL if memory runs out. */
struct reloader *br_reloader_new(struct app *app);

/* Requests a reload. `reason` is the origin of the request, for the log; borrowed until
 * br_reloader_free. */
void br_reloader_request(struct reloader *reloader, const char *reason);

/* Returns true if no replaced graph is being drained and no work of the reloader is running.
 * Otherwise, calls `fn` later, when both conditions are met. */
bool br_reloader_idle(struct reloader *reloader, void (*fn)(struct app *app));

/* Destroys the nodes of replaced graphs. Must be called after the nodes of the graphs in use have
 * been destroyed. */
void br_reloader_end_graphs(struct reloader *reloader);

/* Frees the reloader, replaced graphs and configurations. Accepts NULL. */
void br_reloader_free(struct reloader *reloader);
