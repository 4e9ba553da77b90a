/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/durable_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"
#include "core/pending.h"

#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS 30000
#define SHOW_MS 1000

/* --- Results of requests
 * ------------------------------------------------------------------------- */

void br_durable_end(struct br_durable *durable, struct br_item *item)
{
    br_wal_done(durable->queue, br_durable_number(item), item->signal, item->n_records,
                item->weight);
    br_item_done(item);
}

static void durable_on_end(struct br_hold *hold, struct br_item *item, void *arg,
                           const struct br_outcome *outcome, const char *reason)
{
    struct br_durable *durable = br_container_of(hold, struct br_durable, hold);
    (void)arg;
    if (!reason) {
        br_node_log_partial(durable->node, item, outcome, &durable->log_limit);
        br_durable_end(durable, item);
    } else if (strcmp(reason, "shutdown") == 0) {
        br_item_report(item, BR_RESULT_STORED, NULL, item->n_pending);
        br_item_done(item);
    } else {
        br_node_drop(durable->node, item, reason, outcome, &durable->log_limit);
        br_durable_end(durable, item);
    }
}

static void durable_on_ends(void *arg)
{
    br_durable_go_on(arg);
}

void br_durable_hold(struct br_durable *durable, struct br_item *item)
{
    br_item_hold(item, BR_HOLDER_QUEUES);
    int rc = br_hold_add(&durable->hold, item, NULL);
    if (rc == 0)
        return;
    /* The request remains in the log and is delivered after the next start. */
    struct br_outcome why = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "%s", br_strerror(rc));
    if (rc != BR_ECLOSED)
        br_node_warn(durable->node, &durable->log_limit,
                     "a request stays in the storage until the next start: %s", why.text);
    br_item_report(item, BR_RESULT_STORED, NULL, item->n_pending);
    br_item_done(item);
}

/* --- Room ------------------------------------------------------------------------------------- */

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

void br_durable_refuse(struct br_durable *durable, struct br_item *item, const char *why)
{
    *durable->refused[item->signal] += item->n_records;
    br_item_retry(item, BR_STATUS_UNAVAILABLE, DURABLE_REFUSED_MS, why);
}

static void durable_refuse_overflow(struct br_durable *durable)
{
    struct br_list *link;
    while ((link = br_list_shift(&durable->overflow)))
        br_durable_refuse(durable, br_container_of(link, struct br_item, link), "shutting down");
}

/* --- Draining --------------------------------------------------------------------------------- */

static void durable_check_empty(struct br_durable *durable)
{
    bool busy = durable->writing->running || durable->reading->running;
    bool held = !br_list_empty(&durable->arriving) || durable->hold.n_held || durable->n_offered;
    if (!durable->draining || busy || held)
        return;
    void (*fn)(void *) = durable->on_empty;
    durable->on_empty = NULL;
    if (fn)
        fn(durable->on_empty_arg);
}

static void durable_take_turn(struct br_durable *durable)
{
    while (!br_list_empty(&durable->overflow)) {
        struct br_item *item = br_container_of(durable->overflow.next, struct br_item, link);
        if (!durable_fits(durable, item))
            break;
        br_list_remove(&item->link);
        br_durable_arrive(durable, item);
    }
    br_durable_write(durable);
    br_durable_read(durable);
    durable_check_empty(durable);
}

static void durable_on_turn(struct br_deferred *deferred)
{
    durable_take_turn(br_container_of(deferred, struct br_durable, turn));
}

void br_durable_go_on(struct br_durable *durable)
{
    br_host_defer(durable->node->host, &durable->turn, durable_on_turn);
}

void br_durable_drain(struct br_durable *durable, void (*on_empty)(void *arg), void *arg)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    durable->draining = true;
    durable->on_empty = on_empty;
    durable->on_empty_arg = arg;
    if (durable->queue) /* the hold is initialized only in br_durable_start */
        br_hold_close(&durable->hold, &outcome);
    br_retry_stop(durable->node->retry);
    if (durable->node->component && durable->node->component->stop_retries)
        durable->node->component->stop_retries(durable->node);
    br_durable_end_waits(durable, true);
    durable_refuse_overflow(durable);
    durable_take_turn(durable);
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
        br_item_retry(item, BR_STATUS_UNAVAILABLE, DURABLE_REFUSED_MS, "shutting down");
    } else if (item->n_records == 0 && item->n_parts == 0) {
        br_item_done(item);
    } else if (durable->config->wait_for_result || item->sender == BR_SENDER_WAITS) {
        br_consume(durable->next, item);
    } else if (br_list_empty(&durable->overflow) && durable_fits(durable, item)) {
        br_durable_arrive(durable, item);
        br_durable_go_on(durable);
    } else if (durable->config->block_on_overflow && !durable->draining) {
        br_list_append(&durable->overflow, &item->link);
    } else {
        br_durable_refuse(durable, item, "sending_queue is full");
    }
}

static void durable_on_again(struct br_timer *timer)
{
    struct br_durable *durable = br_container_of(timer, struct br_durable, again);
    (void)br_host_timer_park(durable->node->host, timer, durable_on_again);
    br_durable_go_on(durable);
}

static void durable_on_show(struct br_timer *timer)
{
    struct br_durable *durable = br_container_of(timer, struct br_durable, show);
    (void)br_host_timer(durable->node->host, timer, SHOW_MS, durable_on_show);
    for (int s = 0; s < BR_SIGNALS; s++)
        if (durable->sizes[s])
            *durable->sizes[s] = (double)durable_total(durable, (enum br_signal)s);
    br_durable_go_on(durable);
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
    br_task_init(&writing->task, host, br_durable_run_write, br_durable_on_written);
    br_task_init(&reading->task, host, br_durable_run_read, br_durable_on_read);
    writing->task.work.kind = reading->task.work.kind = BR_WORK_DISK;
    return br_task_add_pool(&reading->task, host->memory) == 0;
}

/* Marks a request in the log while the exporter prepares and sends it, to detect requests that
 * crash the process. A batch of several requests is not marked. */
static void durable_on_send(void *arg, const struct br_item *item, bool begins)
{
    struct br_durable *durable = arg;
    bool held = item->parent && !item->parent->done && item->sender != BR_SENDER_WAITS;
    uint64_t number = held ? br_durable_number(item->parent) : 0;
    if (number)
        br_wal_process(durable->queue, br_durable_slot(durable->node->host, false),
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
    br_list_init(&durable->waiting);
    br_list_init(&durable->arriving);
    br_list_init(&durable->offered);
    br_list_init(&durable->overflow);
    durable->storage = br_storage_get(node->host, config->storage);
    durable_make_metrics(durable);
    if (!durable->storage || !durable_make_tasks(durable) ||
        !br_host_timer_park(node->host, &durable->again, durable_on_again) ||
        !br_host_timer_park(node->host, &durable->due, br_durable_on_due)) {
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
    durable->early.wait_ms = br_storage_write_after_ms(durable->storage);
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
    durable->node->max_age_ms = max_age_ms ? max_age_ms : UINT64_MAX;
    durable->writing->wal = wal;
    durable->reading->queue = durable->queue;
    if (host->worker == 0)
        (void)br_host_timer(host, &durable->show, 0, durable_on_show);
    br_durable_read(durable);
    return 0;
}

/* Stops the tasks and waits for them. The struct of a running task is freed later, in the `done`
 * callback of the task. */
static void durable_stop_tasks(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    struct reading *reading = durable->reading;
    if (writing && writing->running) {
        br_task_stop(&writing->task);
        br_durable_answer_all(durable);
        writing->durable = NULL;
    } else {
        br_free(writing);
    }
    if (reading && reading->running) {
        br_task_stop(&reading->task);
        br_durable_restore_all(durable);
        reading->durable = NULL;
    } else {
        br_durable_reading_free(reading);
    }
}

void br_durable_free(struct br_durable *durable)
{
    if (!durable)
        return;
    struct br_host *host = durable->node->host;
    durable->draining = durable->closing = true;
    durable_stop_tasks(durable);
    br_durable_refuse_arrivals(durable, &durable->waiting);
    br_durable_refuse_arrivals(durable, &durable->arriving);
    durable_refuse_overflow(durable);
    br_durable_abandon_offers(durable);
    br_hold_release(&durable->hold);
    (void)br_host_settle(host);
    br_host_defer_cancel(&durable->turn);
    br_host_timer_stop(host, &durable->again);
    br_host_timer_stop(host, &durable->show);
    br_host_timer_stop(host, &durable->due);
    if (durable->queue)
        /* a reload can create a new durable queue for the same exporter */
        br_wal_queue_reread(durable->queue);
    br_storage_put(host, durable->storage);
    br_free(durable);
}
