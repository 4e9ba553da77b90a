/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host is the interface through which a component uses the clock, timers, buffers, callbacks at
 * the end of a loop iteration, metrics, random numbers, servers and clients. Each worker contains a
 * host. Tests use a fake host whose clock they can set.
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
struct br_reload;
struct br_udp;
struct br_udp_config;
struct br_udp_packet;
struct br_wake;

/* A function that is called at the end of the loop iteration. The structure is a member of the
 * object that `fn` uses. */
struct br_deferred {
    struct br_list link;
    void (*fn)(struct br_deferred *deferred);
};

/* One or several files that a component has read and can read again. */
struct br_reread {
    struct br_list link;
    void (*fn)(struct br_reread *reread); /* reads the files again, in a thread of the pool */
};

/* Makes every component in host->rereads read its files again. */
void br_host_reread(struct br_host *host);

/* Kinds of work for the thread pool. Each kind has a separate limit of threads, so that work of one
 * kind never waits for work of another kind. */
enum br_work_kind {
    /* work that computes for milliseconds and waits for nothing outside the process */
    BR_WORK_QUICK,
    BR_WORK_SLOW, /* work that can take seconds, such as queries */
    BR_WORK_DISK, /* work that reads or writes files, and can wait for a disk without limit */
    BR_WORK_KINDS
};

/* Work for a thread of the pool. The structure is a member of the object that `run` uses. `run` is
 * called in the thread, and must not use data that the worker may use at the same time. After `run`
 * has returned, `done` is called in the worker. `done` may free the work. */
struct br_work {
    void (*run)(struct br_work *work);
    void (*done)(struct br_work *work);
    void *impl; /* private data of the host that runs the work */
    enum br_work_kind kind;
    bool cancelled; /* true: br_host_work_cancel was called before a thread called `run` */
};

struct br_host_ops {
    /* returns the time of the monotonic clock in milliseconds */
    uint64_t (*mono_ms)(struct br_host *host);
    uint64_t (*unix_ns)(struct br_host *host);
    /* returns the CPU time of the process, user and system, in nanoseconds */
    uint64_t (*cpu_ns)(struct br_host *host);
    /* Opens a listener, or shares one that is open (net/server.h). Every worker must call this
     * function with an equal config. */
    int (*serve)(struct br_host *host, const struct br_server_config *config,
                 struct br_handler *service, struct br_server **ret, struct br_err *err);
    /* Creates a client (net/client.h). Succeeds even if the endpoint does not answer. */
    int (*connect)(struct br_host *host, const struct br_client_config *config,
                   struct br_client **ret, struct br_err *err);
    /* Queues work, as br_host_work describes. Returns false if memory is short. NULL: the host has
     * no threads. */
    bool (*work)(struct br_host *host, struct br_work *work);
    void (*work_cancel)(struct br_host *host, struct br_work *work);
    void (*work_wait)(struct br_host *host, struct br_work *work);
    /* Creates a wake, as br_wake_new describes (net/wake.h). NULL: the host has no loop. */
    struct br_wake *(*wake)(struct br_host *host, void (*fn)(void *arg), void *arg);
    /* Opens a socket for packets as br_udp_open does (net/udp.h). */
    int (*receive)(struct br_host *host, const struct br_udp_config *config,
                   void (*fn)(void *arg, const struct br_udp_packet *packet), void *arg,
                   struct br_udp **ret, struct br_err *err);
};

struct br_host {
    const struct br_host_ops *ops;
    struct br_pool *pool;
    struct br_timers timers;
    /* list of struct br_deferred to run at the end of the loop iteration */
    struct br_list deferred;
    /* list of finished struct br_item whose callbacks have not been called yet */
    struct br_list finished;
    /* list of struct br_overridable: components that can be overridden (pipeline/override.h) */
    struct br_list overridables;
    struct br_list authenticators; /* list of struct br_authenticator (core/authenticator.h) */
    struct br_metrics *metrics;
    struct br_ledger ledger;
    uint64_t random_state;
    struct br_memory *memory; /* memory budget of the process; NULL: unlimited */
    unsigned worker, n_workers;
    /* loops of all workers, by worker number; NULL: there is only one worker */
    struct br_loop *const *loops;
    struct br_shed shed;
    /* true: this is a dry run of the start (`braid validate`). No file may be opened for writing,
     * nothing outside the process may be changed, and no timer fires */
    bool checking;
    bool draining; /* true: the shutdown has begun, and the graph accepts no new data */
    /* number of reloads that have begun, equal in all workers; when a reload creates nodes, its own
     * number is already included */
    unsigned generation;
    /* list of struct br_reread: the files that a reload of the configuration also reads again */
    struct br_list rereads;
    struct br_reload *reload; /* reloads the configuration (core/reload.h); NULL: not supported */
    /* store of the objects that all workers of one service share (core/shared.h) */
    void *shared;
};

/* Initialises the parts of the host that do no I/O. `ops` and `pool` are borrowed. Returns 0 or
 * BR_ENOMEM. */
int br_host_init(struct br_host *host, const struct br_host_ops *ops, struct br_pool *pool);
void br_host_release(struct br_host *host);

uint64_t br_host_mono_ms(struct br_host *host);
uint64_t br_host_unix_ns(struct br_host *host);
uint64_t br_host_cpu_ns(struct br_host *host);

/* Arms `timer` to fire in `delay_ms` milliseconds. Returns false if memory is short; the timer
 * then does not fire. */
bool br_host_timer(struct br_host *host, struct br_timer *timer, uint64_t delay_ms,
                   br_timer_fn *fn);
void br_host_timer_stop(struct br_host *host, struct br_timer *timer);

/* Arms `timer` for a time that is never reached. Parking reserves the timer's memory: until the
 * timer is stopped, br_host_timer and br_host_timer_park cannot fail for this timer. Use parking
 * for a timer whose failure would leave queued data waiting forever. The timer's callback must arm
 * or park the timer again before it arms any other timer. Returns false if memory is short. */
bool br_host_timer_park(struct br_host *host, struct br_timer *timer, br_timer_fn *fn);

/* Queues `deferred` for the end of this loop iteration. Has no effect if `deferred` is already
 * queued. */
void br_host_defer(struct br_host *host, struct br_deferred *deferred,
                   void (*fn)(struct br_deferred *deferred));
void br_host_defer_cancel(struct br_deferred *deferred);

/* Queues `work` for the threads of the pool, which start work in the order of the calls. If the
 * host has no threads, `run` and `done` are called before this function returns. */
void br_host_work(struct br_host *host, struct br_work *work);

/* Cancels `work` if it has not begun; otherwise the work continues. In both cases `done` is
 * called later. */
void br_host_work_cancel(struct br_host *host, struct br_work *work);

/* Waits until no thread runs `work`. Call br_host_work_cancel first. Blocks the worker. */
void br_host_work_wait(struct br_host *host, struct br_work *work);

/* Runs the callbacks of finished items and the deferred work until none remain or a fixed limit
 * is reached. Returns true if work remains. */
bool br_host_settle(struct br_host *host);

/* Calls the callbacks of due timers, and then br_host_settle. The loop calls this function once
 * in each iteration, before it sleeps. Returns true if work remains. */
bool br_host_iterate(struct br_host *host);

/* Sets the memory budget of the host and its pool. The budget must outlive both. */
void br_host_set_memory(struct br_host *host, struct br_memory *memory);

/* Returns true while the process uses more than the soft limit. New requests are then rejected
 * before their bodies are read. */
bool br_host_over_limit(const struct br_host *host);

/* Returns this worker's share of `total`, which all workers divide among themselves. The shares
 * of all workers add up to `total`. */
size_t br_host_share(const struct br_host *host, size_t total);

/* Returns a number in [0, 1), for jitter and sampling. The number is not suitable for secrets. */
double br_host_random(struct br_host *host);

/* --- Functions that return unused memory ------------------------------------------------------ */

/*
 * A trimmer returns memory that a worker no longer needs: unused buffers of its pool, and other
 * freed memory that the allocator keeps (malloc_trim).
 *
 * The trimmer checks every ten seconds, and returns the memory if the worker is idle after work. A
 * worker is idle after work if less than 1 MiB of buffers was requested since the last check, and
 * at least 8 MiB since the last trim. With very few requests, memory is returned at most once a
 * minute. Under load, it is never returned. If a large request was rejected because memory was
 * short (br_memory_settle), the next check frees unused buffers.
 */

#define BR_TRIM_LOOK_MS 10000
#define BR_TRIM_REST_BYTES (1u << 20)
#define BR_TRIM_WORK_BYTES (8u << 20)

struct br_trimmer {
    struct br_host *host;
    struct br_timer look;
    uint64_t seen_bytes, work_bytes;
    unsigned seen_trims; /* number of trims (br_memory_trims) at the last check */
    /* value of the metric braid_memory_trims, which counts the trims of memory */
    double *trims;
};

/* Starts the checks. The trimmer must not move until br_trimmer_stop. */
void br_trimmer_start(struct br_trimmer *trimmer, struct br_host *host);

/* Stops the checks. Accepts a zeroed trimmer. */
void br_trimmer_stop(struct br_trimmer *trimmer);
