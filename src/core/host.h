/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host is a component's interface to everything outside it: clock, timers, buffers, work at the
 * end of a loop iteration, metrics, random numbers, servers and clients. A worker embeds one. A
 * test makes a fake host and sets its clock.
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

/* Work for the end of the loop iteration. A member of the structure that it is for. */
struct br_deferred {
    struct br_list link;
    void (*fn)(struct br_deferred *deferred);
};

/* Kinds of work. Each kind has a number of threads, so that it never waits for another kind. */
enum br_work_kind {
    BR_WORK_QUICK, /* computes for milliseconds; waits for nothing outside the process */
    BR_WORK_SLOW,  /* can take seconds: queries */
    BR_WORK_DISK,  /* reads or writes files, and can wait for a disk without limit */
    BR_WORK_KINDS
};

/* Work for a thread of the pool. A member of the structure that it is for. `run` is called in
 * the thread, and must not touch anything that the worker uses at the same time. Then `done` is
 * called in the worker, and may free the work. */
struct br_work {
    void (*run)(struct br_work *work);
    void (*done)(struct br_work *work);
    void *impl; /* of the host */
    enum br_work_kind kind;
    bool left; /* br_host_work_leave was called before it ran */
};

struct br_host_ops {
    uint64_t (*mono_ms)(struct br_host *host); /* monotonic milliseconds */
    uint64_t (*unix_ns)(struct br_host *host);
    uint64_t (*cpu_ns)(struct br_host *host); /* CPU time of the process, user and system */
    /* net/server.h: opens (or shares) a listener; every worker calls it with equal configs. */
    int (*serve)(struct br_host *host, const struct br_server_config *config,
                 struct br_handler *service, struct br_server **ret, struct br_err *err);
    /* net/client.h: does not fail for an endpoint that does not answer. */
    int (*connect)(struct br_host *host, const struct br_client_config *config,
                   struct br_client **ret, struct br_err *err);
    /* As br_host_work; false without memory. NULL: without threads. */
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
    struct br_memory *memory; /* memory budget of the process; NULL: unlimited */
    unsigned worker, n_workers;
    struct br_loop *const *loops; /* of all workers, by number; NULL: there is only one */
    struct br_shed shed;
    /* a dry run of the start: no file is opened for writing, nothing outside is changed, and no
     * timer fires */
    bool checking;
    bool draining; /* the shutdown has begun: the graph takes nothing new */
    void *shared;  /* struct br_shared: shared by the workers of one service (core/shared.h) */
};

/* Initializes the parts that do no I/O. `ops` and the pool are borrowed. Returns 0 or BR_ENOMEM. */
int br_host_init(struct br_host *host, const struct br_host_ops *ops, struct br_pool *pool);
void br_host_release(struct br_host *host);

uint64_t br_host_mono_ms(struct br_host *host);
uint64_t br_host_unix_ns(struct br_host *host);
uint64_t br_host_cpu_ns(struct br_host *host);

/* Arms `timer` to fire in `delay_ms`. Returns false without memory; the timer does not fire
 * then. */
bool br_host_timer(struct br_host *host, struct br_timer *timer, uint64_t delay_ms,
                   br_timer_fn *fn);
void br_host_timer_stop(struct br_host *host, struct br_timer *timer);

/* Arms `timer` for a time that is never reached. Until it is stopped, br_host_timer and
 * br_host_timer_park cannot fail for it. For timers that data waits for. In its callback the
 * timer has to be armed or parked before any other timer. Returns false without memory. */
bool br_host_timer_park(struct br_host *host, struct br_timer *timer, br_timer_fn *fn);

/* Queues `deferred` for the end of this loop iteration. Has no effect if it is queued already. */
void br_host_defer(struct br_host *host, struct br_deferred *deferred,
                   void (*fn)(struct br_deferred *deferred));
void br_host_defer_cancel(struct br_deferred *deferred);

/* Runs `work` in a thread of the pool, in the order of the calls, as far as threads are free.
 * Without threads it runs at once, including `done`. */
void br_host_work(struct br_host *host, struct br_work *work);

/* Cancels `work` if it has not begun; otherwise it continues. In both cases `done` is called
 * later. */
void br_host_work_leave(struct br_host *host, struct br_work *work);

/* Waits, after br_host_work_leave, until `work` is not running. Blocks the worker. */
void br_host_work_wait(struct br_host *host, struct br_work *work);

/* Runs callbacks of finished items and deferred work until none remain, or up to a limit.
 * Returns true if work remains. */
bool br_host_settle(struct br_host *host);

/* Runs due timers, then br_host_settle. The loop calls it once in each iteration, before it
 * sleeps. Returns true if work remains. */
bool br_host_turn(struct br_host *host);

/* Sets the memory budget of the host and its pool. The budget must outlive both. */
void br_host_set_memory(struct br_host *host, struct br_memory *memory);

/* Returns true while the process uses more than the soft limit. New requests are then rejected
 * before their bodies are read. */
bool br_host_over_limit(const struct br_host *host);

/* Returns this worker's share of a total that all workers divide among them. The shares of all
 * workers add up to `total`. */
size_t br_host_share(const struct br_host *host, size_t total);

/* Returns a number in [0, 1), for jitter and sampling; not for secrets. */
double br_host_random(struct br_host *host);
