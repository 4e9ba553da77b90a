/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host is a component's interface to everything outside it: clock, timers, buffers, work for
 * the end of the loop turn, metrics, random numbers, servers and clients. A worker embeds one; a
 * test makes a fake whose clock it moves by hand.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "base/timer.h"
#include "core/metrics.h"
#include "core/shed.h"

struct br_host;
struct br_server;
struct br_server_config;
struct br_handler;
struct br_client;
struct br_client_config;
struct br_loop;

/* Work for the end of the loop turn; a member of the thing it is for. */
struct br_deferred {
    struct br_list link;
    void (*fn)(struct br_deferred *deferred);
};

/* Kinds of work. Each has a number of threads to itself, so that one kind never waits for another.
 */
enum br_work_kind {
    BR_WORK_QUICK, /* computes for milliseconds; waits for nothing outside the process */
    BR_WORK_SLOW,  /* may take seconds: queries */
    BR_WORK_DISK,  /* reads or writes files: it may wait for a disk without end */
    BR_WORK_KINDS
};

/* Work for a thread of the pool; a member of the thing it is for. `run` is called there, and
 * touches nothing that the worker has at the same time; then `done` in the worker, which may free
 * it. */
struct br_work {
    void (*run)(struct br_work *work);
    void (*done)(struct br_work *work);
    void *impl; /* the host's */
    enum br_work_kind kind;
    bool left; /* br_host_work_leave was called before it ran */
};

struct br_host_ops {
    uint64_t (*mono_ms)(struct br_host *host); /* monotonic milliseconds */
    uint64_t (*unix_ns)(struct br_host *host);
    uint64_t (*cpu_ns)(struct br_host *host); /* that the process has used, user and system */
    /* net/server.h: opens (or shares) a listener; every worker calls it with equal configs. */
    int (*serve)(struct br_host *host, const struct br_server_config *config,
                 struct br_handler *service, struct br_server **ret, struct br_err *err);
    /* net/client.h: never fails for an endpoint that does not answer. */
    int (*connect)(struct br_host *host, const struct br_client_config *config,
                   struct br_client **ret, struct br_err *err);
    /* See br_host_work; false without memory. NULL: there are no threads. */
    bool (*work)(struct br_host *host, struct br_work *work);
    void (*work_leave)(struct br_host *host, struct br_work *work);
    void (*work_wait)(struct br_host *host, struct br_work *work);
};

struct br_host {
    const struct br_host_ops *ops;
    struct br_pool *pool;
    struct br_timers timers;
    struct br_list deferred;     /* of br_deferred */
    struct br_list finished;     /* of br_item */
    struct br_list overridables; /* of br_overridable (pipeline/override.h) */
    struct br_metrics *metrics;
    struct br_ledger ledger;
    uint64_t random_state;
    struct br_memory *memory; /* what the process may hold; NULL: anything */
    unsigned worker, n_workers;
    struct br_loop *const *loops; /* of all workers, by number; NULL: there is no other */
    struct br_shed shed;
    bool checking; /* start is only tried: open no file for writing, change nothing outside; no
                      timer fires */
    bool draining; /* the end has begun: the graph takes nothing new */
    void *shared;  /* struct br_shared: what the workers of one service share (core/shared.h) */
};

/* Sets up the parts that do no I/O; `ops` and the pool stay the caller's. Returns 0 or BR_ENOMEM.
 */
int br_host_init(struct br_host *host, const struct br_host_ops *ops, struct br_pool *pool);
void br_host_release(struct br_host *host);

uint64_t br_host_mono_ms(struct br_host *host);
uint64_t br_host_unix_ns(struct br_host *host);
uint64_t br_host_cpu_ns(struct br_host *host);

/* Arms `timer` to fire in `delay_ms`. Without memory for it, it fires never and false is returned.
 */
bool br_host_timer(struct br_host *host, struct br_timer *timer, uint64_t delay_ms,
                   br_timer_fn *fn);
void br_host_timer_stop(struct br_host *host, struct br_timer *timer);

/* Arms `timer` for a time that does not come. From then on br_host_timer and br_host_timer_park
 * cannot fail for it, until it is stopped: for timers that hold up data which nobody else would
 * move. In its own callback it has to be armed or parked before anything else is. */
bool br_host_timer_park(struct br_host *host, struct br_timer *timer, br_timer_fn *fn);

/* Queues `deferred` for the end of this loop turn; once, however often it is called before. */
void br_host_defer(struct br_host *host, struct br_deferred *deferred,
                   void (*fn)(struct br_deferred *deferred));
void br_host_defer_cancel(struct br_deferred *deferred);

/* Has `work` run in a thread of the pool, in the order in which it was asked for as far as threads
 * are free; or at once, done included, where there is none. */
void br_host_work(struct br_host *host, struct br_work *work);

/* Cancels `work` where it has not begun; if it is running, it goes on. `done` is called all the
 * same, later. */
void br_host_work_leave(struct br_host *host, struct br_work *work);

/* Waits, after br_host_work_leave, until `work` is not running any more. Stops the worker for that
 * long. */
void br_host_work_wait(struct br_host *host, struct br_work *work);

/* Runs finished items' callbacks and deferred work until none are left (or a bound is reached).
 * Returns true when work is left over. */
bool br_host_settle(struct br_host *host);

/* Runs due timers, then br_host_settle. The loop calls it once a turn, before it sleeps. Returns
 * true when work is left over. */
bool br_host_turn(struct br_host *host);

/* Gives the host, and its pool, the process's memory budget, which outlives both. */
void br_host_set_memory(struct br_host *host, struct br_memory *memory);

/* Returns true while more is held than the soft limit allows: refuse new work, before its body is
 * read. */
bool br_host_over_limit(const struct br_host *host);

/* Returns this worker's share of a total that all workers divide among them. The shares of all
 * workers add up to `total`. */
size_t br_host_share(const struct br_host *host, size_t total);

/* Returns a number in [0, 1), for jitter and sampling; not for secrets. */
double br_host_random(struct br_host *host);
