/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/durable.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"
#include "core/pending.h"
#include "core/task.h"
#include "otlp/walk/walk.h"
#include "pipeline/hold.h"

/* bytes of requests that each exporter keeps in memory in each worker, and below which it reads
 * further ones from the log */
#define MEMORY_MAX (32u << 20)
#define MEMORY_LOW (8u << 20)
/* maximum number of requests and bytes that are written together, and read together */
#define GROUP_REQUESTS 1024u
#define GROUP_BYTES (16u << 20)
#define READ_REQUESTS 256u
#define READ_BYTES (4u << 20)
#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS 30000
#define REFUSED_MS 1000 /* hint for senders of refused requests */
#define AGAIN_MS 1000   /* delay after a failed read, or when memory was short */
#define SHOW_MS 1000

/* A request that is being written. */
struct arrival {
    struct br_item *item; /* the request; its sender waits for an answer */
    struct br_item *copy; /* owns the data from then on */
    struct br_rope data;
};

/* The requests that one task writes. `done` of the task frees it if the queue was freed. */
struct writing {
    struct br_task task;
    struct br_durable *durable; /* NULL: the queue was freed */
    bool running;
    struct br_wal *wal;
    struct arrival *arrivals;
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
    struct br_list arriving; /* list of br_item to write next */
    struct br_list overflow; /* list of br_item that wait for room (block_on_overflow) */
    size_t arriving_size;    /* their size and that of those being written, in units of the sizer */
    struct writing *writing;
    struct reading *reading;
    struct br_timer again, show;
    bool draining, closing;
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    struct br_log_limit log_limit, refused_limit;
    double *refused[BR_SIGNALS];
    double *sizes[BR_SIGNALS]; /* gauges of the size of the queue; only in the first worker */
    struct br_histogram *enqueued, *enqueued_bytes;
};

static void durable_go_on(struct br_durable *durable);

/* Returns the slot of the worker, or of the thread that reads for it. */
static unsigned durable_slot(const struct br_host *host, bool reads)
{
    return 2 * host->worker + reads;
}

/* --- Ends of requests ------------------------------------------------------------------------- */

/* Returns the number of a request in the log. It is kept in `done_arg`, because nobody waits for
 * the end of a stored request. */
static uint64_t durable_number(const struct br_item *item)
{
    return (uint64_t)(uintptr_t)item->done_arg;
}

static void durable_set_number(struct br_item *item, uint64_t number)
{
    item->done_arg = (void *)(uintptr_t)number;
}

static void durable_end(struct br_durable *durable, struct br_item *item)
{
    br_wal_done(durable->queue, durable_number(item), item->signal, item->n_records, item->weight);
    br_item_done(item);
}

static void durable_on_end(struct br_hold *hold, struct br_item *item, void *arg,
                           const struct br_outcome *outcome, const char *reason)
{
    struct br_durable *durable = br_container_of(hold, struct br_durable, hold);
    (void)arg;
    if (!reason) {
        br_node_log_partial(durable->node, item, outcome, &durable->log_limit);
        durable_end(durable, item);
    } else if (strcmp(reason, "shutdown") == 0) {
        br_item_report(item, BR_RESULT_STORED, NULL, item->n_pending);
        br_item_done(item);
    } else {
        br_node_drop(durable->node, item, reason, outcome, &durable->log_limit);
        durable_end(durable, item);
    }
}

static void durable_on_ends(void *arg)
{
    durable_go_on(arg);
}

/* Gives a request to the hold, from which the queue in memory gets it. */
static void durable_hold(struct br_durable *durable, struct br_item *item)
{
    br_item_restored(item, durable->node->ledger);
    br_item_hold(item, BR_HOLDER_QUEUES);
    int rc = br_hold_add(&durable->hold, item, NULL);
    if (rc == 0)
        return;
    /* It stays in the log, and is delivered after the next start. */
    struct br_outcome why = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "%s", br_strerror(rc));
    if (rc != BR_ECLOSED)
        br_node_warn(durable->node, &durable->log_limit,
                     "a request stays in the storage until the next start: %s", why.text);
    br_item_report(item, BR_RESULT_STORED, NULL, item->n_pending);
    br_item_done(item);
}

/* --- Writing ---------------------------------------------------------------------------------- */

static uint64_t durable_total(const struct br_durable *durable, enum br_signal signal)
{
    struct br_wal_total total = br_wal_queue_total(durable->queue);
    switch (durable->config->sizer) {
    case BR_SIZER_ITEMS:
        return total.n_records[signal];
    case BR_SIZER_BYTES:
        return total.bytes[signal];
    default:
        return total.n_requests[signal];
    }
}

static bool durable_fits(const struct br_durable *durable, const struct br_item *item)
{
    uint64_t held = durable_total(durable, BR_TRACES) + durable_total(durable, BR_PROFILES) +
                    durable->arriving_size;
    uint64_t capacity = (uint64_t)durable->config->queue_size;
    return held == 0 || held + br_queue_size_of(durable->config, item) <= capacity;
}

static void durable_refuse(struct br_durable *durable, struct br_item *item, const char *why)
{
    *durable->refused[item->signal] += item->n_records;
    br_item_retry(item, BR_STATUS_UNAVAILABLE, REFUSED_MS, why);
}

/* Refuses the requests of a list at shutdown. */
static void durable_refuse_all(struct br_durable *durable, struct br_list *list)
{
    struct br_list *link;
    while ((link = br_list_shift(list)))
        durable_refuse(durable, br_container_of(link, struct br_item, link), "shutting down");
}

/* Lets a request wait for the next write. */
static void durable_arrive(struct br_durable *durable, struct br_item *item)
{
    durable->arriving_size += br_queue_size_of(durable->config, item);
    br_list_append(&durable->arriving, &item->link);
}

static void durable_run_write(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    writing->err = (struct br_err){0};
    writing->rc = writing->count
                      ? br_wal_append(writing->wal, writing->records, writing->count, &writing->err)
                      : br_wal_sync(writing->wal, false, &writing->err);
}

/* Answers the sender of a request that is stored. */
static void durable_answer(struct br_durable *durable, struct arrival *arrival,
                           const struct br_wal_record *record)
{
    struct br_item *item = arrival->item, *copy = arrival->copy;
    arrival->copy = NULL;
    copy->weight = record->frame.payload_len - record->frame.name_len;
    br_item_report(item, BR_RESULT_STORED, NULL, item->n_pending);
    br_item_done(item);
    durable_set_number(copy, record->number);
    if (record->keep)
        durable_hold(durable, copy);
    else
        br_item_free(copy);
}

static void durable_fail(struct br_durable *durable, struct arrival *arrival,
                         const struct br_wal_record *record)
{
    const char *why = record->why ? record->why : durable->writing->err.text;
    br_node_warn(durable->node, &durable->refused_limit, "requests are refused: %s", why);
    if (record->rc == BR_ETOOBIG)
        br_item_reject(arrival->item, BR_STATUS_RESOURCE_EXHAUSTED, why);
    else
        durable_refuse(durable, arrival->item, why);
}

static void durable_clear_writing(struct writing *writing)
{
    for (size_t i = 0; i < writing->count; i++) {
        br_rope_release(&writing->arrivals[i].data);
        br_item_free(writing->arrivals[i].copy);
    }
    br_free(writing->arrivals);
    br_free(writing->records);
    br_free(writing->pieces);
    writing->arrivals = NULL;
    writing->records = NULL;
    writing->pieces = NULL;
    writing->count = 0;
    writing->running = false;
}

/* Answers the senders of the requests that the task has written. */
static void durable_answer_all(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    for (size_t i = 0; i < writing->count; i++) {
        struct arrival *arrival = &writing->arrivals[i];
        durable->arriving_size -= br_queue_size_of(durable->config, arrival->item);
        if (!writing->task.ran)
            durable_refuse(durable, arrival->item, "shutting down");
        else if (writing->records[i].rc == 0)
            durable_answer(durable, arrival, &writing->records[i]);
        else
            durable_fail(durable, arrival, &writing->records[i]);
    }
    durable_clear_writing(writing);
    br_hold_start(&durable->hold);
}

static void durable_on_written(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    struct br_durable *durable = writing->durable;
    bool failed = writing->count == 0 && writing->rc;
    if (!durable) {
        br_free(writing);
        return;
    }
    durable_answer_all(durable);
    if (failed)
        (void)br_host_timer(durable->node->host, &durable->again, AGAIN_MS, durable->again.fn);
    else
        durable_go_on(durable);
}

/* Prepares a request for the log. Returns false without memory. */
static bool durable_prepare(struct arrival *arrival, struct br_item *item)
{
    arrival->item = item;
    arrival->copy = br_item_twin(item);
    if (!arrival->copy)
        return false;
    arrival->copy->metadata = NULL; /* that of `item`, which ends before the copy */
    return br_item_keep_metadata(arrival->copy, item) && br_item_write(item, &arrival->data) == 0;
}

/* Fills in the records, whose pieces are the metadata and the slices of the data. */
static bool durable_fill(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    size_t n_pieces = 0;
    for (size_t i = 0; i < writing->count; i++)
        n_pieces += BR_WAL_PIECES_BEFORE + 1 + writing->arrivals[i].data.count;
    writing->pieces = br_calloc(n_pieces, sizeof *writing->pieces);
    writing->records = br_calloc(writing->count, sizeof *writing->records);
    if (!writing->pieces || !writing->records)
        return false;
    struct iovec *pieces = writing->pieces;
    uint64_t now_ns = br_host_unix_ns(durable->node->host);
    uint64_t now_ms = br_host_mono_ms(durable->node->host);
    for (size_t i = 0; i < writing->count; i++) {
        const struct arrival *arrival = &writing->arrivals[i];
        const struct br_item *copy = arrival->copy;
        size_t metadata_len = br_item_metadata_len(copy);
        bool room = durable->hold.bytes < MEMORY_MAX && !br_host_over_limit(durable->node->host);
        writing->records[i] = (struct br_wal_record){
            .queue = durable->queue,
            .signal = copy->signal,
            .n_records = copy->n_records,
            .time_ns = now_ns - (copy->received_ms ? now_ms - copy->received_ms : 0) * 1000000,
            .pieces = pieces,
            .n_pieces = BR_WAL_PIECES_BEFORE + 1 + arrival->data.count,
            .metadata_len = metadata_len,
            .keep = room && !durable->draining,
        };
        pieces += BR_WAL_PIECES_BEFORE;
        *pieces++ = (struct iovec){(void *)(uintptr_t)copy->metadata, metadata_len};
        for (uint32_t k = 0; k < arrival->data.count; k++)
            *pieces++ = (struct iovec){(void *)(uintptr_t)arrival->data.slices[k].data,
                                       arrival->data.slices[k].len};
    }
    return true;
}

/* Takes requests from those that arrive. */
static void durable_take(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    size_t n = 0, bytes = 0;
    for (struct br_list *l = durable->arriving.next;
         l != &durable->arriving && n < GROUP_REQUESTS && bytes < GROUP_BYTES; l = l->next, n++)
        bytes += br_container_of(l, struct br_item, link)->size;
    writing->arrivals = br_calloc(n ? n : 1, sizeof *writing->arrivals);
    for (size_t i = 0; i < n && writing->arrivals; i++) {
        struct br_item *item =
            br_container_of(br_list_shift(&durable->arriving), struct br_item, link);
        struct arrival *arrival = &writing->arrivals[writing->count];
        if (durable_prepare(arrival, item)) {
            writing->count++;
            continue;
        }
        br_rope_release(&arrival->data);
        br_item_free(arrival->copy);
        *arrival = (struct arrival){0};
        durable->arriving_size -= br_queue_size_of(durable->config, item);
        durable_refuse(durable, item, "out of memory");
    }
}

/* Begins to write the requests that have arrived, or the marks of those that have ended. */
static void durable_write(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    if (writing->running || !durable->queue)
        return;
    if (br_list_empty(&durable->arriving) && !br_wal_has_unwritten(writing->wal))
        return;
    durable_take(durable);
    if (writing->count && !durable_fill(durable)) {
        for (size_t i = 0; i < writing->count; i++) {
            durable->arriving_size -= br_queue_size_of(durable->config, writing->arrivals[i].item);
            durable_refuse(durable, writing->arrivals[i].item, "out of memory");
        }
        durable_clear_writing(writing);
        return;
    }
    writing->running = true;
    br_task_start(&writing->task);
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* Returns a new item from the bytes of a record, or NULL without memory. With BR_EINVAL in
 * `*ret_rc`, the item has no parts. */
static struct br_item *reading_decode(struct reading *reading, const struct br_wal_found *found,
                                      struct br_buf *buf, int *ret_rc)
{
    struct br_item *item = br_item_new(&reading->task.host, (enum br_signal)(found->signal & 1));
    const struct br_walk_options options = {.utf8 = BR_UTF8_PASS, .max_depth = BR_WALK_DEPTH_MAX};
    uint32_t repaired;
    if (!item)
        return NULL;
    *ret_rc = br_walk(item, buf, buf->data + found->metadata_len, found->data_len, &options,
                      &repaired, &reading->err);
    if (*ret_rc == 0 && found->metadata_len) {
        char *metadata = br_arena_alloc(&item->arena, found->metadata_len);
        if (!metadata) {
            br_item_free(item);
            return NULL;
        }
        memcpy(metadata, buf->data, found->metadata_len);
        item->metadata = metadata;
    }
    if (*ret_rc == BR_ENOMEM) {
        br_item_free(item);
        return NULL;
    }
    return item;
}

/* Reads one record. Returns 0 or the code of a failure; BR_EAGAIN: look again. */
static int reading_step(struct reading *reading, size_t *bytes)
{
    struct br_wal_found found;
    int rc = br_wal_read(reading->queue, &found, &reading->err), decoded = 0;
    if (rc)
        return rc;
    size_t len = found.metadata_len + found.data_len;
    struct br_buf *buf = br_pool_fits(reading->task.host.pool, len)
                             ? br_buf_new_exact(reading->task.host.pool, len)
                             : NULL;
    if (!buf)
        return BR_ENOMEM;
    rc = br_wal_read_take(reading->queue, &found, buf->data, &reading->err);
    if (rc) {
        br_buf_unref(buf);
        return rc == BR_EINVAL ? 0 : rc;
    }
    buf->len = (uint32_t)len;
    unsigned slot = durable_slot(reading->task.home, true);
    br_wal_process(reading->queue, slot, found.number);
    struct br_item *item = reading_decode(reading, &found, buf, &decoded);
    br_wal_process(reading->queue, slot, 0);
    br_buf_unref(buf);
    if (!item)
        return BR_ENOMEM;
    item->received_ms = found.time_ns / 1000000; /* converted when the item is in the worker */
    item->weight = len;
    durable_set_number(item, found.number);
    br_list_append(decoded ? &reading->invalid : &reading->items, &item->link);
    *bytes += len;
    return 0;
}

static void durable_run_read(struct br_task *task)
{
    struct reading *reading = br_container_of(task, struct reading, task);
    size_t bytes = 0;
    reading->err = (struct br_err){0};
    reading->rc = 0;
    for (unsigned n = 0; n < READ_REQUESTS && bytes < READ_BYTES; n++) {
        int rc = reading_step(reading, &bytes);
        reading->rc = rc == BR_EAGAIN ? 0 : rc;
        if (reading->rc)
            break;
    }
    br_wal_read_end(reading->queue);
}

/* Returns the time of receipt in milliseconds of the monotonic clock. */
static uint64_t durable_received_ms(struct br_durable *durable, uint64_t unix_ms)
{
    struct br_host *host = durable->node->host;
    uint64_t now_ms = br_host_unix_ns(host) / 1000000, mono_ms = br_host_mono_ms(host);
    uint64_t age_ms = now_ms > unix_ms ? now_ms - unix_ms : 0;
    return mono_ms > age_ms ? mono_ms - age_ms : 0;
}

static void durable_restore(struct br_durable *durable, struct br_item *item)
{
    br_item_move(item, durable->node->host);
    item->received_ms = durable_received_ms(durable, item->received_ms);
    durable_hold(durable, item);
}

static void durable_drop_invalid(struct br_durable *durable, struct br_item *item)
{
    struct br_outcome why =
        br_outcome_reject(BR_STATUS_DATA_LOSS, "%s", durable->reading->err.text);
    br_item_move(item, durable->node->host);
    br_item_restored(item, durable->node->ledger);
    br_node_drop(durable->node, item, "invalid", &why, &durable->log_limit);
    durable_end(durable, item);
}

/* Takes the requests that the task has read. */
static void durable_restore_all(struct br_durable *durable)
{
    struct reading *reading = durable->reading;
    struct br_list *link;
    reading->running = false;
    if (!reading->task.ran)
        br_wal_read_end(reading->queue);
    while ((link = br_list_shift(&reading->items)))
        durable_restore(durable, br_container_of(link, struct br_item, link));
    while ((link = br_list_shift(&reading->invalid)))
        durable_drop_invalid(durable, br_container_of(link, struct br_item, link));
    br_hold_start(&durable->hold);
}

static void reading_free(struct reading *reading)
{
    if (reading)
        br_task_release(&reading->task);
    br_free(reading);
}

static void durable_on_read(struct br_task *task)
{
    struct reading *reading = br_container_of(task, struct reading, task);
    struct br_durable *durable = reading->durable;
    if (!durable) {
        reading_free(reading);
        return;
    }
    durable_restore_all(durable);
    if (!task->ran || !reading->rc || reading->rc == BR_ENOTFOUND) {
        durable_go_on(durable);
        return;
    }
    if (reading->rc != BR_ENOMEM)
        br_node_warn(durable->node, &durable->log_limit, "%s", reading->err.text);
    (void)br_host_timer(durable->node->host, &durable->again, AGAIN_MS, durable->again.fn);
}

static void durable_read(struct br_durable *durable)
{
    struct reading *reading = durable->reading;
    bool room = durable->hold.bytes < MEMORY_LOW && !br_host_over_limit(durable->node->host);
    if (!durable->queue || reading->running || durable->draining || !room ||
        !br_wal_read_begin(durable->queue))
        return;
    reading->running = true;
    br_task_start(&reading->task);
}

/* --- Draining --------------------------------------------------------------------------------- */

static void durable_check_empty(struct br_durable *durable)
{
    bool busy = durable->writing->running || durable->reading->running;
    if (!durable->draining || busy || !br_list_empty(&durable->arriving) || durable->hold.n_held)
        return;
    void (*fn)(void *) = durable->on_empty;
    durable->on_empty = NULL;
    if (fn)
        fn(durable->on_empty_arg);
}

/* Continues after something has changed. */
static void durable_go_on(struct br_durable *durable)
{
    while (!br_list_empty(&durable->overflow)) {
        struct br_item *item = br_container_of(durable->overflow.next, struct br_item, link);
        if (!durable_fits(durable, item))
            break;
        br_list_remove(&item->link);
        durable_arrive(durable, item);
    }
    durable_write(durable);
    durable_read(durable);
    durable_check_empty(durable);
}

void br_durable_drain(struct br_durable *durable, void (*on_empty)(void *arg), void *arg)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    durable->draining = true;
    durable->on_empty = on_empty;
    durable->on_empty_arg = arg;
    if (durable->queue) /* otherwise it was never started */
        br_hold_close(&durable->hold, &outcome);
    br_retry_stop(durable->node->retry);
    durable_refuse_all(durable, &durable->overflow);
    durable_go_on(durable);
}

void br_durable_close(struct br_durable *durable)
{
    durable->closing = true;
}

/* --- Requests --------------------------------------------------------------------------------- */

static void durable_note_size(struct br_durable *durable, const struct br_item *item)
{
    if (item->n_parts == 0)
        return;
    br_histogram_observe(durable->enqueued, item->n_records);
    br_histogram_observe(durable->enqueued_bytes, (double)item->size);
}

static void durable_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_durable *durable = br_container_of(self, struct br_durable, input);
    br_pending_enter(&item->pending, item->signal, durable->node->ledger);
    durable_note_size(durable, item);
    if (durable->closing || !durable->queue) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, REFUSED_MS, "shutting down");
    } else if (item->n_records == 0 && item->n_parts == 0) {
        br_item_done(item);
    } else if (durable->config->wait_for_result || item->sender == BR_SENDER_WAITS) {
        br_consume(durable->next, item);
    } else if (br_list_empty(&durable->overflow) && durable_fits(durable, item)) {
        durable_arrive(durable, item);
        durable_write(durable);
    } else if (durable->config->block_on_overflow && !durable->draining) {
        br_list_append(&durable->overflow, &item->link);
    } else {
        durable_refuse(durable, item, "sending_queue is full");
    }
}

static void durable_on_again(struct br_timer *timer)
{
    struct br_durable *durable = br_container_of(timer, struct br_durable, again);
    (void)br_host_timer_park(durable->node->host, timer, durable_on_again);
    durable_go_on(durable);
}

static void durable_on_show(struct br_timer *timer)
{
    struct br_durable *durable = br_container_of(timer, struct br_durable, show);
    (void)br_host_timer(durable->node->host, timer, SHOW_MS, durable_on_show);
    for (int s = 0; s < BR_SIGNALS; s++)
        if (durable->sizes[s])
            *durable->sizes[s] = (double)durable_total(durable, (enum br_signal)s);
    durable_go_on(durable);
}

/* --- Life ------------------------------------------------------------------------------------- */

static void durable_make_metrics(struct br_durable *durable)
{
    static const char *const names[BR_SIGNALS] = {"spans", "profile_samples"};
    struct br_node *node = durable->node;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        const char *type = br_signal_name(s);
        char name[96];
        (void)snprintf(name, sizeof name, "otelcol_exporter_enqueue_failed_%s", names[s]);
        durable->refused[s] = br_node_metric(node, BR_COUNTER, name, NULL, NULL);
        if (node->host->worker != 0 || (!node->in_pipeline[s] && node->in_pipeline[!s]))
            continue;
        durable->sizes[s] =
            br_node_metric(node, BR_GAUGE, "otelcol_exporter_queue_size", "data_type", type);
        *br_node_metric(node, BR_GAUGE, "otelcol_exporter_queue_capacity", "data_type", type) =
            (double)durable->config->queue_size;
    }
    durable->enqueued = br_node_size_histogram(node, "otelcol_exporter_enqueue_size", false);
    durable->enqueued_bytes =
        br_node_size_histogram(node, "otelcol_exporter_enqueue_size_bytes", true);
}

static bool durable_make_tasks(struct br_durable *durable)
{
    struct br_host *host = durable->node->host;
    struct writing *writing = durable->writing = br_calloc(1, sizeof *writing);
    struct reading *reading = durable->reading = br_calloc(1, sizeof *reading);
    if (!writing || !reading)
        return false;
    writing->durable = reading->durable = durable;
    br_list_init(&reading->items);
    br_list_init(&reading->invalid);
    br_task_init(&writing->task, host, durable_run_write, durable_on_written);
    br_task_init(&reading->task, host, durable_run_read, durable_on_read);
    writing->task.work.kind = reading->task.work.kind = BR_WORK_DISK;
    return br_task_add_pool(&reading->task, host->memory) == 0;
}

/* Marks a request while the exporter prepares and sends it. A batch of several requests is not
 * marked. */
static void durable_on_send(void *arg, const struct br_item *item, bool begins)
{
    struct br_durable *durable = arg;
    bool held = item->parent && !item->parent->done && item->sender == BR_SENDER_ANSWERED;
    uint64_t number = held ? durable_number(item->parent) : 0;
    if (number)
        br_wal_process(durable->queue, durable_slot(durable->node->host, false),
                       begins ? number : 0);
}

struct br_durable *br_durable_new(struct br_node *node, const struct br_queue_config *config,
                                  struct br_queue *next)
{
    struct br_durable *durable = br_calloc(1, sizeof *durable);
    if (!durable)
        return NULL;
    durable->input.consume = durable_consume;
    durable->node = node;
    durable->config = config;
    durable->next = br_queue_input(next);
    if (config->storage && !config->wait_for_result)
        br_queue_watch(next, durable_on_send, durable);
    br_list_init(&durable->arriving);
    br_list_init(&durable->overflow);
    durable->storage = br_storage_get(node->host, config->storage);
    durable_make_metrics(durable);
    if (!durable->storage || !durable_make_tasks(durable) ||
        !br_host_timer_park(node->host, &durable->again, durable_on_again)) {
        br_durable_free(durable);
        return NULL;
    }
    return durable;
}

struct br_consumer *br_durable_input(struct br_durable *durable)
{
    return &durable->input;
}

int br_durable_start(struct br_durable *durable, struct br_err *err)
{
    struct br_host *host = durable->node->host;
    struct br_wal *wal = br_storage_wal(durable->storage);
    if (host->checking)
        return 0;
    if (!wal)
        return br_err_set(err, BR_EINVAL, "the extension %s is not running",
                          durable->config->storage);
    uint64_t max_age_ms = br_storage_max_age_ms(durable->storage);
    const struct br_hold_config config = {
        .host = host,
        .next = durable->next,
        .policy = {.order = BR_HOLD_IN_ORDER,
                   .first_delay_ms = RETRY_FIRST_MS,
                   .max_delay_ms = RETRY_MAX_MS,
                   .window = ~0u,
                   .max_bytes = BR_HOLD_UNLIMITED,
                   .max_age_ms = max_age_ms ? max_age_ms : BR_HOLD_UNLIMITED,
                   .age_since_receipt = true},
        .end = durable_on_end,
        .on_end = durable_on_ends,
        .arg = durable};
    durable->queue = br_wal_queue(wal, durable->node->id);
    if (!durable->queue || !br_hold_init(&durable->hold, &config)) {
        durable->queue = NULL;
        return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    br_wal_queue_use(durable->queue);
    br_retry_keep(durable->node->retry, max_age_ms);
    durable->writing->wal = wal;
    durable->reading->queue = durable->queue;
    if (host->worker == 0)
        (void)br_host_timer(host, &durable->show, 0, durable_on_show);
    durable_read(durable);
    return 0;
}

/* Waits for the tasks. The structs of those that were running are freed when they are done. */
static void durable_stop_tasks(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    struct reading *reading = durable->reading;
    if (writing && writing->running) {
        br_task_stop(&writing->task);
        durable_answer_all(durable);
        writing->durable = NULL;
    } else {
        br_free(writing);
    }
    if (reading && reading->running) {
        br_task_stop(&reading->task);
        durable_restore_all(durable);
        reading->durable = NULL;
    } else {
        reading_free(reading);
    }
}

void br_durable_free(struct br_durable *durable)
{
    if (!durable)
        return;
    struct br_host *host = durable->node->host;
    durable->draining = durable->closing = true;
    durable_stop_tasks(durable);
    durable_refuse_all(durable, &durable->arriving);
    durable_refuse_all(durable, &durable->overflow);
    br_hold_release(&durable->hold);
    (void)br_host_settle(host);
    br_host_timer_stop(host, &durable->again);
    br_host_timer_stop(host, &durable->show);
    if (durable->queue)
        br_wal_queue_reread(durable->queue); /* a reload can make a new durable queue */
    br_storage_put(host, durable->storage);
    br_free(durable);
}
