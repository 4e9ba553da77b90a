/* SPDX-License-Identifier: Apache-2.0 */
/* State and functions that the files of the durable queue share. Only for durable*.c. */
#pragma once

#include "core/task.h"
#include "pipeline/durable.h"
#include "pipeline/early.h"
#include "pipeline/hold.h"

/* bytes of requests that each exporter keeps in memory in each worker, and below which it reads
 * further ones from the log */
#define DURABLE_MEMORY_MAX (32u << 20)
#define DURABLE_MEMORY_LOW (8u << 20)
#define DURABLE_REFUSED_MS 1000 /* hint for senders of refused requests */
#define DURABLE_AGAIN_MS 1000   /* delay after a failed read or write, or when memory was short */

/*
 * The state of a request. It may be offered to the queue in memory before it is stored.
 *
 * | state   | event                       | next state, effect                                |
 * |---------|-----------------------------|---------------------------------------------------|
 * | ARRIVED | it was delivered            | ended; the sender is answered, nothing is written |
 * | ARRIVED | its turn to be written      | WRITING                                           |
 * | WRITING | it was delivered            | WRITING; the sender is answered                   |
 * | WRITING | written, being offered      | STORED; the sender is answered                    |
 * | WRITING | written, not offered        | in the hold, or only in the log                   |
 * | WRITING | not written, being offered  | REFUSED; the sender gets the reason               |
 * | WRITING | not written, not offered    | ended; the sender gets the reason                 |
 * | STORED  | it was delivered            | ended, and removed from the log                   |
 * | STORED  | it was not delivered        | in the hold, or dropped if it was rejected        |
 * | REFUSED | the offer has ended         | ended                                             |
 *
 * An offer that ends without a delivery does not change ARRIVED and WRITING.
 */
enum arrival_state { ARRIVED, WRITING, STORED, REFUSED };

struct arrival {
    struct br_list link; /* link in a list of the queue; not used while it is being written */
    struct br_durable *durable;
    enum arrival_state state;
    struct br_item *item; /* the request; its sender waits for an answer; NULL: was answered */
    /* owns the data after the request; owns the pending records if it was offered; `outcome` is the
     * result of an offer that ended without a delivery; NULL: not made yet */
    struct br_item *copy;
    struct br_item *attempt;      /* the offer; NULL: not offered, or it has ended */
    size_t size;                  /* size in units of the sizer */
    uint64_t until_ms;            /* monotonic milliseconds when it is written */
    struct br_rope data;          /* used while it is being written */
    struct br_wal_record *record; /* used while it is being written */
};

/* The requests that one task writes. `done` of the task frees it if the queue was freed. */
struct writing {
    struct br_task task;
    struct br_durable *durable; /* NULL: the queue was freed */
    bool running;
    struct br_wal *wal;
    struct arrival **arrivals;
    struct br_wal_record *records;
    struct iovec *pieces;
    size_t count;
    int rc; /* result of br_wal_sync if there are no records */
    struct br_err err;
};

/* The requests that one task reads. `done` of the task frees it if the queue was freed. */
struct reading {
    struct br_task task;
    struct br_durable *durable; /* NULL: the queue was freed */
    bool running;
    struct br_wal_queue *queue;
    struct br_list items;   /* list of br_item; durable_number returns their numbers in the log */
    struct br_list invalid; /* the same, for requests that cannot be decoded */
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
    struct br_list waiting;  /* list of struct arrival that wait for their delivery */
    struct br_list arriving; /* list of struct arrival to write next */
    struct br_list offered;  /* list of struct arrival: STORED or REFUSED, being offered */
    struct br_list overflow; /* list of br_item that wait for room (block_on_overflow) */
    size_t arriving_size;    /* size of the requests that are ARRIVED or WRITING */
    /* number of requests that are being offered before they are stored, or since then, and the sum
     * of their bytes */
    unsigned n_offered;
    uint64_t offered_bytes;
    struct br_early early;
    bool failing; /* the last requests could not be written */
    struct br_deferred turn;
    struct writing *writing;
    struct reading *reading;
    struct br_timer again, show;
    struct br_timer due; /* fires when the first request in `waiting` is to be written */
    bool draining, closing;
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    struct br_log_limit log_limit, refused_limit;
    double *refused[BR_SIGNALS];
    double *sizes[BR_SIGNALS]; /* gauges of the size of the queue; only in the first worker */
    struct br_histogram *enqueued, *enqueued_bytes;
};

/* Returns the slot of the worker, or of the thread that reads for it. */
static inline unsigned br_durable_slot(const struct br_host *host, bool reads)
{
    return 2 * host->worker + reads;
}

/* Returns the number of a request in the log. It is kept in `done_arg`, because nobody waits for
 * the end of a stored request. */
static inline uint64_t br_durable_number(const struct br_item *item)
{
    return (uint64_t)(uintptr_t)item->done_arg;
}

static inline void br_durable_set_number(struct br_item *item, uint64_t number)
{
    item->done_arg = (void *)(uintptr_t)number;
}

/* --- Requests (durable.c) -------------------------------------------------------------------- */

/* Removes a request from the log, and finishes it. */
void br_durable_end(struct br_durable *durable, struct br_item *item);

/* Gives a request with pending records to the hold, from which the queue in memory gets it. */
void br_durable_hold(struct br_durable *durable, struct br_item *item);

/* Refuses a request with a retry hint, for the reason `why`. */
void br_durable_refuse(struct br_durable *durable, struct br_item *item, const char *why);

/* Continues after something has changed. The requests that arrive or end in one loop iteration are
 * handled together at its end. */
void br_durable_go_on(struct br_durable *durable);

/* --- Writing (durable_write.c) --------------------------------------------------------------- */

/* Takes a request. Lets it wait for its delivery, or for the next write. */
void br_durable_arrive(struct br_durable *durable, struct br_item *item);

/* Begins to write the requests that have arrived, or the marks of those that have ended. */
void br_durable_write(struct br_durable *durable);

/* Answers the senders of the requests that the task has written. */
void br_durable_answer_all(struct br_durable *durable);

/* Lets the requests be written whose wait is over; with `all`, every request. */
void br_durable_end_waits(struct br_durable *durable, bool all);

/* Refuses the requests of a list of struct arrival at shutdown. */
void br_durable_refuse_arrivals(struct br_durable *durable, struct br_list *list);

/* Abandons the offers of requests that are stored or were refused. */
void br_durable_abandon_offers(struct br_durable *durable);

void br_durable_on_due(struct br_timer *timer);   /* callback of durable->due */
void br_durable_run_write(struct br_task *task);  /* callback of writing->task */
void br_durable_on_written(struct br_task *task); /* callback of writing->task */

/* --- Reading (durable_read.c) ---------------------------------------------------------------- */

/* Begins to read requests from the log if there are some, and if there is room in memory. */
void br_durable_read(struct br_durable *durable);

/* Takes the requests that the task has read. */
void br_durable_restore_all(struct br_durable *durable);

/* Frees a task that reads, which must not be running. Accepts NULL. */
void br_durable_reading_free(struct reading *reading);

void br_durable_run_read(struct br_task *task); /* callback of reading->task */
void br_durable_on_read(struct br_task *task);  /* callback of reading->task */
