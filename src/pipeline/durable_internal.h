/* SPDX-License-Identifier: Apache-2.0 */
/* State and functions that the files of the durable queue share. Only for durable*.c. */
#pragma once

#include "core/task.h"
#include "pipeline/durable.h"
#include "pipeline/early.h"
#include "pipeline/hold.h"

/* Limits for the requests that a durable queue keeps in memory, in bytes, for each exporter and
 * worker. Above DURABLE_MEMORY_MAX, new requests are kept only in the log. Below
 * DURABLE_MEMORY_LOW, requests are read from the log. */
#define DURABLE_MEMORY_MAX (32u << 20)
#define DURABLE_MEMORY_LOW (8u << 20)
/* retry delay in milliseconds that senders of refused requests receive */
#define DURABLE_REFUSED_MS 1000
/* delay in milliseconds before a failed read or write is tried again */
#define DURABLE_AGAIN_MS 1000

/*
 * The state of a new request, until its sender was answered and its offer has ended. An offer
 * passes the request to the in-memory queue before the request is stored.
 *
 * | state | event | next state, effect |
 * |---------|-----------------------------|---------------------------------------------------| |
 * ARRIVED | it was delivered | ended; the sender is answered, nothing is written | | ARRIVED | its
 * turn to be written | WRITING | | WRITING | it was delivered | WRITING; the sender is answered | |
 * WRITING | written, being offered | STORED; the sender is answered | | WRITING | written, not
 * offered | in the hold, or only in the log | | WRITING | not written, being offered | REFUSED; the
 * sender gets the reason | | WRITING | not written, not offered | ended; the sender gets the reason
 * | | STORED | it was delivered | ended, and removed from the log | | STORED | it was not delivered
 * | in the hold, or dropped if it was rejected | | REFUSED | the offer has ended | ended |
 *
 * If an offer ends without a delivery, the states ARRIVED and WRITING do not change.
 */
enum arrival_state { ARRIVED, WRITING, STORED, REFUSED };

struct arrival {
    struct br_list link; /* link in a list of the durable queue; not used in the state WRITING */
    struct br_durable *durable;
    enum arrival_state state;
    /* the request, whose sender waits for an answer; NULL: the sender was answered */
    struct br_item *item;
    /* Owns the request's data after `item` was finished, and the pending records if the request was
     * offered. `copy->outcome` is the result of an offer that has ended without a delivery. NULL:
     * not created yet. */
    struct br_item *copy;
    /* the item in the in-memory queue; NULL: not offered, or the offer has ended */
    struct br_item *attempt;
    size_t size;         /* size of the request in units of the sizer */
    uint64_t until_ms;   /* time in monotonic milliseconds at which the request is written */
    struct br_rope data; /* encoded request; used in the state WRITING */
    struct br_wal_record *record; /* element of writing->records; used in the state WRITING */
};

/* The requests that one task writes to the log. If the durable queue is freed while the task runs,
 * the task's `done` callback frees this struct. */
struct writing {
    struct br_task task;
    struct br_durable *durable; /* NULL: the queue was freed */
    bool running;
    struct br_wal *wal;
    struct arrival **arrivals;
    struct br_wal_record *records;
    struct iovec *pieces;
    size_t count;
    int rc; /* result of br_wal_append or br_wal_sync */
    struct br_err err;
};

/* The requests that one task reads from the log. If the durable queue is freed while the task runs,
 * the task's `done` callback frees this struct. */
struct reading {
    struct br_task task;
    struct br_durable *durable; /* NULL: the queue was freed */
    bool running;
    struct br_wal_queue *queue;
    /* list of br_item: the decoded requests; br_durable_number returns their record numbers */
    struct br_list items;
    struct br_list invalid; /* list of br_item: requests that cannot be decoded */
    int rc;
    struct br_err err;
};

struct br_durable {
    struct br_consumer input;
    struct br_node *node;
    const struct br_queue_config *config;
    struct br_consumer *next;
    struct br_storage *storage;
    struct br_wal_queue *queue; /* NULL before br_durable_start */
    struct br_hold hold;
    /* list of struct arrival: offered, and not written before `until_ms` */
    struct br_list waiting;
    struct br_list arriving; /* list of struct arrival: to be written next */
    /* list of struct arrival: STORED or REFUSED, with an offer that has not ended */
    struct br_list offered;
    /* list of br_item that wait for space in the queue (block_on_overflow) */
    struct br_list overflow;
    /* total size of the requests in the states ARRIVED and WRITING, in units of the sizer */
    size_t arriving_size;
    /* number of struct arrival with an offer that has not ended, and their total size in bytes */
    unsigned n_offered;
    uint64_t offered_bytes;
    struct br_early early;
    bool failing; /* the last write has failed */
    struct br_deferred turn;
    struct writing *writing;
    struct reading *reading;
    struct br_timer again, show;
    struct br_timer due; /* fires at `until_ms` of the first request in `waiting` */
    bool draining, closing;
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    struct br_log_limit log_limit, refused_limit;
    double *refused[BR_SIGNALS];
    /* gauges of the queue size by signal, in units of the sizer; set only in the first worker */
    double *sizes[BR_SIGNALS];
    struct br_histogram *enqueued, *enqueued_bytes;
};

/* Returns the slot for br_wal_process of the worker's own thread, or of the pool thread that reads
 * for the worker. */
static inline unsigned br_durable_slot(const struct br_host *host, bool reads)
{
    return 2 * host->worker + reads;
}

/* Returns the record number of a stored request. The number is kept in `done_arg`, because stored
 * requests need no `done` callback. */
static inline uint64_t br_durable_number(const struct br_item *item)
{
    return (uint64_t)(uintptr_t)item->done_arg;
}

static inline void br_durable_set_number(struct br_item *item, uint64_t number)
{
    item->done_arg = (void *)(uintptr_t)number;
}

/* --- Requests (durable.c) -------------------------------------------------------------------- */

/* Marks a stored request as done in the log, and finishes the item. */
void br_durable_end(struct br_durable *durable, struct br_item *item);

/* Adds a stored request with pending records to the hold, which offers it to the in-memory
 * queue. */
void br_durable_hold(struct br_durable *durable, struct br_item *item);

/* Refuses a request with a retry delay of DURABLE_REFUSED_MS and the reason `why`. */
void br_durable_refuse(struct br_durable *durable, struct br_item *item, const char *why);

/* Schedules writing and reading for the end of the loop iteration. Requests that arrive or end in
 * one iteration are thus handled together. */
void br_durable_go_on(struct br_durable *durable);

/* --- Writing (durable_write.c) --------------------------------------------------------------- */

/* Accepts a new request. Offers it to the in-memory queue if possible, and schedules the write. */
void br_durable_arrive(struct br_durable *durable, struct br_item *item);

/* Starts a task that writes the requests in `arriving` and the marks of finished requests. Does
 * nothing if a write is running or there is nothing to write. */
void br_durable_write(struct br_durable *durable);

/* Handles the results of the write task, and answers the senders. */
void br_durable_answer_all(struct br_durable *durable);

/* Moves the requests in `waiting` whose `until_ms` has passed to `arriving`. If `all` is true,
 * moves all requests. */
void br_durable_end_waits(struct br_durable *durable, bool all);

/* Refuses all requests in a list of struct arrival, because the process is shutting down. */
void br_durable_refuse_arrivals(struct br_durable *durable, struct br_list *list);

/* Abandons the remaining offers of requests that are stored or were refused. */
void br_durable_abandon_offers(struct br_durable *durable);

void br_durable_on_due(struct br_timer *timer);   /* callback of durable->due */
void br_durable_run_write(struct br_task *task);  /* callback of writing->task */
void br_durable_on_written(struct br_task *task); /* callback of writing->task */

/* --- Reading (durable_read.c) ---------------------------------------------------------------- */

/* Starts a task that reads requests from the log, if there are unread requests and there is room in
 * memory. */
void br_durable_read(struct br_durable *durable);

/* Adds the requests that the task has read to the hold, and drops those that cannot be decoded. */
void br_durable_restore_all(struct br_durable *durable);

/* Frees the struct of the read task, which must not be running. Accepts NULL. */
void br_durable_reading_free(struct reading *reading);

void br_durable_run_read(struct br_task *task); /* callback of reading->task */
void br_durable_on_read(struct br_task *task);  /* callback of reading->task */
