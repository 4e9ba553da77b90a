/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "config/parts.h"
#include "core/pending.h"
#include "pipeline/exporter.h"

#define NO_MEMORY_MS 200

struct br_queue {
    struct br_consumer input;
    struct br_consumer batched; /* receives the complete batches from `batchers` */
    struct br_node *node;
    const struct br_queue_config *config;
    struct br_consumer *next;
    /* batchers configured by the key `batch`; NULL if the config does not contain `batch` */
    struct br_partitions *batchers;
    struct br_list waiting; /* items that were not sent to `next` yet */
    /* items that wait for space, because the queue is full (block_on_overflow) */
    struct br_list overflow;
    struct br_list sent_items; /* items that were sent to `next` and have no outcome yet */
    /* by signal: total size of the items that wait or are being sent, in units of the sizer; not
     * used if there are batchers */
    size_t sizes[BR_SIGNALS];
    /* number of sent items without an outcome: in total, and by signal */
    unsigned in_flight, n_in_flight[BR_SIGNALS];
    /* this worker's shares of queue_size (`capacity`) and num_consumers (`consumers`) */
    size_t capacity;
    unsigned consumers;
    struct br_deferred room; /* calls queue_on_room after batches have ended */
    /* retries sending after memory was short; otherwise parked */
    struct br_timer again;
    bool draining, closing;
    /* function of br_queue_watch, or NULL */
    void (*watch)(void *arg, const struct br_item *item, bool begins);
    void *watch_arg;
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    struct br_log_limit log_limit;
    struct br_exporter_counts counts;
    double *refused[BR_SIGNALS];
    /* histograms of the sizes of received requests, in records and in bytes */
    struct br_histogram *enqueued, *enqueued_bytes;
    double *size_metrics[BR_SIGNALS], *flight_metrics[BR_SIGNALS];
};

size_t br_queue_size_of(const struct br_queue_config *config, const struct br_item *item)
{
    switch (config->sizer) {
    case BR_SIZER_ITEMS:
        return item->n_records;
    case BR_SIZER_BYTES:
        return item->size;
    default:
        return 1;
    }
}

/* Returns the size of all data that the queue holds for a signal, including the data in
 * batchers. */
static size_t queue_signal_size(const struct br_queue *queue, enum br_signal signal)
{
    return queue->batchers ? br_partitions_weight(queue->batchers, signal) : queue->sizes[signal];
}

static size_t queue_held_size(const struct br_queue *queue)
{
    return queue_signal_size(queue, BR_TRACES) + queue_signal_size(queue, BR_PROFILES);
}

static void queue_show_size(struct br_queue *queue, enum br_signal signal)
{
    if (queue->size_metrics[signal])
        *queue->size_metrics[signal] = (double)queue_signal_size(queue, signal);
}

/* Updates the number of items in flight. `begins` is true if a delivery attempt begins, and false
 * if one has ended. */
static void queue_count_flight(struct br_queue *queue, enum br_signal signal, bool begins)
{
    queue->in_flight = begins ? queue->in_flight + 1 : queue->in_flight - 1;
    queue->n_in_flight[signal] =
        begins ? queue->n_in_flight[signal] + 1 : queue->n_in_flight[signal] - 1;
    if (queue->flight_metrics[signal])
        *queue->flight_metrics[signal] = queue->n_in_flight[signal];
}

static void queue_account(struct br_queue *queue, const struct br_item *item, bool in)
{
    size_t size = br_queue_size_of(queue->config, item);
    queue->sizes[item->signal] += in ? size : 0 - size;
    queue_show_size(queue, item->signal);
}

static void queue_check_empty(struct br_queue *queue)
{
    if (!queue->draining || !br_list_empty(&queue->waiting) || !br_list_empty(&queue->overflow) ||
        queue->in_flight)
        return;
    if (queue->batchers && !br_partitions_idle(queue->batchers))
        return;
    void (*fn)(void *) = queue->on_empty;
    queue->on_empty = NULL;
    if (fn)
        fn(queue->on_empty_arg);
}

/* Drops an item that was not delivered and whose sender has already been answered. */
static void queue_drop_item(struct br_queue *queue, struct br_item *item,
                            const struct br_outcome *outcome)
{
    if (outcome->verdict == BR_REJECT)
        br_node_drop(queue->node, item, "rejected", outcome, &queue->log_limit);
    else if (queue->closing)
        br_node_drop_unsent(queue->node, item);
    else
        br_node_drop(queue->node, item, "retries_exhausted", outcome, &queue->log_limit);
}

static void queue_dispatch(struct br_queue *queue);
static void queue_on_again(struct br_timer *timer);
static void queue_enqueue(struct br_queue *queue, struct br_item *item);

static void queue_count_result(struct br_queue *queue, const struct br_item *child)
{
    enum br_signal s = child->signal;
    uint32_t sent = child->n_sent < child->n_records ? child->n_sent : child->n_records;
    *queue->counts.sent[s] += sent;
    *queue->counts.failed[s] += child->n_records - sent;
}

static void queue_on_sent(struct br_item *child, void *arg)
{
    struct br_queue *queue = arg;
    struct br_item *item = child->parent;
    const struct br_outcome *outcome = &child->outcome;
    queue_count_result(queue, child);
    queue_count_flight(queue, item->signal, false);
    br_list_remove(&item->link);
    queue_account(queue, item, false);
    if (item->done || item->parent) {
        br_item_finish(item, outcome); /* the sender or the parent receives the outcome */
    } else {
        if (outcome->verdict != BR_DONE)
            queue_drop_item(queue, item, outcome);
        else
            br_node_log_partial(queue->node, item, outcome, &queue->log_limit);
        br_item_done(item);
    }
    queue_dispatch(queue);
    queue_check_empty(queue);
}

static bool queue_send_one(struct br_queue *queue, struct br_item *item)
{
    struct br_item *child = br_item_attempt(item, queue_on_sent, queue);
    if (!child)
        return false;
    br_list_append(&queue->sent_items, &item->link);
    queue_count_flight(queue, item->signal, true);
    if (queue->watch)
        queue->watch(queue->watch_arg, item, true);
    br_consume(queue->next, child);
    if (queue->watch)
        queue->watch(queue->watch_arg, item, false);
    return true;
}

static bool queue_fits(const struct br_queue *queue, const struct br_item *item)
{
    size_t held = queue_held_size(queue);
    return held == 0 || held + br_queue_size_of(queue->config, item) <= queue->capacity;
}

static void queue_dispatch(struct br_queue *queue)
{
    unsigned most = queue->config->enabled ? queue->consumers : ~0u;
    while (!queue->closing && queue->in_flight < most && !br_list_empty(&queue->waiting)) {
        struct br_item *item =
            br_container_of(br_list_shift(&queue->waiting), struct br_item, link);
        if (!queue_send_one(queue, item)) {
            br_list_append(&queue->waiting, &item->link);
            (void)br_host_timer(queue->node->host, &queue->again, NO_MEMORY_MS, queue_on_again);
            return;
        }
    }
    while (!queue->closing && !br_list_empty(&queue->overflow)) {
        struct br_item *item = br_container_of(queue->overflow.next, struct br_item, link);
        if (!queue_fits(queue, item))
            return;
        br_list_remove(&item->link);
        queue_enqueue(queue, item);
    }
}

static void queue_on_again(struct br_timer *timer)
{
    struct br_queue *queue = br_container_of(timer, struct br_queue, again);
    (void)br_host_timer_park(queue->node->host, &queue->again, queue_on_again);
    queue_dispatch(queue);
}

/* Adds an item to the list of waiting items. */
static void queue_hold(struct br_queue *queue, struct br_item *item)
{
    queue_account(queue, item, true);
    br_item_hold(item, BR_HOLDER_QUEUES);
    br_list_append(&queue->waiting, &item->link);
    queue_dispatch(queue);
}

static void queue_enqueue(struct br_queue *queue, struct br_item *item)
{
    if (queue->batchers) {
        item->weight = br_queue_size_of(queue->config, item);
        enum br_signal signal = item->signal;
        br_partitions_add(queue->batchers, item);
        if (queue->draining)
            br_partitions_flush(queue->batchers);
        queue_show_size(queue, signal);
        return;
    }
    if (!queue->config->enabled || queue->config->wait_for_result ||
        item->sender == BR_SENDER_WAITS) {
        queue_hold(queue, item);
        return;
    }
    /* The sender is answered now. The queue keeps a copy of the item and is responsible for its
     * delivery. */
    struct br_item *copy = br_item_new(queue->node->host, item->signal);
    if (!copy || !br_item_keep_metadata(copy, item) || br_item_absorb(copy, item)) {
        br_item_free(copy);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return;
    }
    br_item_done(item);
    queue_hold(queue, copy);
}

static void queue_note_size(struct br_queue *queue, const struct br_item *item)
{
    if (!queue->enqueued || item->n_parts == 0)
        return;
    br_histogram_observe(queue->enqueued, item->n_records);
    br_histogram_observe(queue->enqueued_bytes, (double)item->size);
}

static void queue_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_queue *queue = br_container_of(self, struct br_queue, input);
    br_pending_enter(&item->pending, item->signal, queue->node->ledger);
    queue_note_size(queue, item);
    if (queue->closing) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "shutting down");
    } else if (item->n_records == 0 && item->n_parts == 0) {
        br_item_done(item);
    } else if (!queue->config->enabled ||
               (br_list_empty(&queue->overflow) && queue_fits(queue, item))) {
        queue_enqueue(queue, item);
    } else if (queue->config->block_on_overflow) {
        br_list_append(&queue->overflow, &item->link);
    } else {
        *queue->refused[item->signal] += item->n_records;
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "sending_queue is full");
    }
}

/* Receives a batch from the batchers and queues it. The batch's own callback reports the outcome to
 * the batcher. */
static void queue_batched_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_queue *queue = br_container_of(self, struct br_queue, batched);
    queue_hold(queue, item);
}

static void queue_on_room(struct br_deferred *deferred)
{
    struct br_queue *queue = br_container_of(deferred, struct br_queue, room);
    queue_show_size(queue, BR_TRACES);
    queue_show_size(queue, BR_PROFILES);
    queue_dispatch(queue);
    queue_check_empty(queue);
}

/* Processes queued items later, because this can free idle batchers, including the batcher that
 * calls this function. */
static void queue_on_batch_end(void *arg)
{
    struct br_queue *queue = arg;
    br_host_defer(queue->node->host, &queue->room, queue_on_room);
}

struct br_partition_config br_queue_partitions(const struct br_queue_config *queue)
{
    const struct br_queue_batch_config *batch = queue->batch;
    struct br_partition_config config = {.batch = {.timeout_ms = batch->flush_timeout / 1000000,
                                                   .min_size = (size_t)batch->min_size,
                                                   .max_size = (size_t)batch->max_size,
                                                   .bytes = batch->sizer == 1,
                                                   .late = queue->wait_for_result},
                                         .keys = &batch->partition.metadata_keys,
                                         .limit = (size_t)batch->partition.cache_size};
    if (batch->flush_timeout && !config.batch.timeout_ms)
        config.batch.timeout_ms = 1;
    return config;
}

static bool queue_make_batchers(struct br_queue *queue)
{
    if (!queue->config->batch || !queue->config->enabled)
        return true;
    static const struct br_batch_metrics metrics = {
        .sizes = "otelcol_exporter_queue_batch_send_size",
        .sizes_bytes = "otelcol_exporter_queue_batch_send_size_bytes"};
    struct br_partition_config config = br_queue_partitions(queue->config);
    config.batch.final = true;
    config.batch.metrics = &metrics;
    queue->batchers = br_partitions_new(queue->node, &config, &queue->batched);
    if (queue->batchers)
        br_partitions_on_end(queue->batchers, queue_on_batch_end, queue);
    return queue->batchers != NULL;
}

void br_exporter_counts_init(struct br_exporter_counts *counts, struct br_node *node)
{
    static const char *const names[BR_SIGNALS] = {"spans", "profile_samples"};
    for (int s = 0; s < BR_SIGNALS; s++) {
        char name[96];
        (void)snprintf(name, sizeof name, "otelcol_exporter_sent_%s", names[s]);
        counts->sent[s] = br_node_metric(node, BR_COUNTER, name, NULL, NULL);
        (void)snprintf(name, sizeof name, "otelcol_exporter_send_failed_%s", names[s]);
        counts->failed[s] = br_node_metric(node, BR_COUNTER, name, NULL, NULL);
    }
}

static void queue_make_metrics(struct br_queue *queue)
{
    static const char *const names[BR_SIGNALS] = {"spans", "profile_samples"};
    br_exporter_counts_init(&queue->counts, queue->node);
    for (int s = 0; s < BR_SIGNALS; s++) {
        char name[96];
        (void)snprintf(name, sizeof name, "otelcol_exporter_enqueue_failed_%s", names[s]);
        queue->refused[s] = br_node_metric(queue->node, BR_COUNTER, name, NULL, NULL);
    }
    if (!queue->config->enabled || queue->config->behind_storage)
        return;
    queue->enqueued = br_node_size_histogram(queue->node, "otelcol_exporter_enqueue_size", false);
    queue->enqueued_bytes =
        br_node_size_histogram(queue->node, "otelcol_exporter_enqueue_size_bytes", true);
}

/* The Collector has one queue per signal, and its gauges have the label data_type. In Braid the
 * signals share one queue, so the capacity gauge of each signal reports the whole capacity. */
static void queue_make_gauges(struct br_queue *queue)
{
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        const char *type = br_signal_name(s);
        if (!queue->node->in_pipeline[s] && queue->node->in_pipeline[!s])
            continue;
        queue->size_metrics[s] =
            queue->config->behind_storage
                ? NULL
                : br_node_metric(queue->node, BR_GAUGE, "otelcol_exporter_queue_size", "data_type",
                                 type);
        queue->flight_metrics[s] = br_node_metric(
            queue->node, BR_GAUGE, "otelcol_exporter_in_flight_requests", "data_type", type);
        if (!queue->config->behind_storage)
            *br_node_metric(queue->node, BR_GAUGE, "otelcol_exporter_queue_capacity", "data_type",
                            type) = (double)queue->capacity;
    }
}

/* Returns this worker's share of `total`, at least 1. */
static size_t queue_share(const struct br_host *host, int64_t total)
{
    size_t share = br_host_share(host, (size_t)total);
    return share ? share : 1;
}

struct br_queue *br_queue_new(struct br_node *node, const struct br_queue_config *config,
                              struct br_consumer *next)
{
    struct br_queue *queue = br_calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    queue->input.consume = queue_consume;
    queue->batched.consume = queue_batched_consume;
    queue->node = node;
    queue->config = config;
    queue->next = next;
    queue->capacity = queue_share(node->host, config->queue_size);
    queue->consumers = (unsigned)queue_share(node->host, config->num_consumers);
    br_list_init(&queue->waiting);
    br_list_init(&queue->overflow);
    br_list_init(&queue->sent_items);
    queue_make_metrics(queue);
    queue_make_gauges(queue);
    if (!br_host_timer_park(node->host, &queue->again, queue_on_again) ||
        !queue_make_batchers(queue)) {
        br_queue_free(queue);
        return NULL;
    }
    return queue;
}

struct br_consumer *br_queue_input(struct br_queue *queue)
{
    return &queue->input;
}

void br_queue_watch(struct br_queue *queue,
                    void (*fn)(void *arg, const struct br_item *item, bool begins), void *arg)
{
    queue->watch = fn;
    queue->watch_arg = arg;
}

void br_queue_drain(struct br_queue *queue, void (*on_empty)(void *arg), void *arg)
{
    queue->draining = true;
    queue->on_empty = on_empty;
    queue->on_empty_arg = arg;
    if (queue->batchers)
        br_partitions_flush(queue->batchers);
    queue_check_empty(queue);
}

void br_queue_close(struct br_queue *queue)
{
    queue->closing = true;
}

static void queue_drop_all(struct br_queue *queue, struct br_list *list)
{
    struct br_list *link;
    while ((link = br_list_shift(list))) {
        struct br_item *item = br_container_of(link, struct br_item, link);
        if (!item->done && !item->parent)
            br_node_drop_unsent(queue->node, item);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
    }
}

void br_queue_drop(struct br_queue *queue)
{
    queue->closing = true;
    queue_drop_all(queue, &queue->overflow);
    queue_drop_all(queue, &queue->waiting);
    queue_drop_all(queue, &queue->sent_items);
    br_partitions_free(queue->batchers);
    queue->batchers = NULL;
}

void br_queue_free(struct br_queue *queue)
{
    if (!queue)
        return;
    br_queue_drop(queue);
    br_host_defer_cancel(&queue->room);
    br_host_timer_stop(queue->node->host, &queue->again);
    br_free(queue);
}

static const char *const sizers[] = {"requests", "items", "bytes", NULL};
static const char *const batch_sizers[] = {"items", "bytes", NULL};

static const struct br_option queue_partition_options[] = {
    BR_STRINGS(struct br_queue_partition_config, metadata_keys,
               "keys of client metadata; requests with different values go into separate batches, "
               "which retain these values"),
    BR_INT(struct br_queue_partition_config, cache_size, 10000, 1, 1000000,
           "largest number of partitions, each for one combination of metadata values; at the "
           "limit, a new partition replaces an idle one"),
    BR_IGNORED("idle_timeout",
               "an idle partition is removed only when a new partition needs its place"),
    BR_OPT_END,
};

const struct br_option br_queue_batch_options[] = {
    BR_DURATION(struct br_queue_batch_config, flush_timeout, "200ms",
                "a batch of any size is sent after this time"),
    BR_INT(struct br_queue_batch_config, min_size, 8192, 0, 4294967295.0,
           "a batch that reaches this size is sent; 0: each request is sent immediately"),
    BR_INT(struct br_queue_batch_config, max_size, 0, 0, 4294967295.0,
           "a batch above this size is divided; 0: never"),
    BR_ENUM(struct br_queue_batch_config, sizer, "items", batch_sizers,
            "unit of min_size and max_size; default: bytes if the sizer of the queue is bytes, "
            "otherwise items"),
    BR_STRUCT(struct br_queue_batch_config, partition, queue_partition_options,
              "which requests go into separate batches"),
    BR_OPT_END,
};

#define QUEUE_ROWS(on)                                                                             \
    BR_BOOL(                                                                                       \
        struct br_queue_config, enabled, (on),                                                     \
        "queue requests, and answer their senders before the exporter has delivered the data"),    \
        BR_INT(struct br_queue_config, num_consumers, 10, 1, 10000,                                \
               "largest number of requests that all workers together send concurrently"),          \
        BR_INT(struct br_queue_config, queue_size, 1000, 1, 9007199254740992.0,                    \
               "capacity of the queue, for all workers together, in units of sizer"),              \
        BR_ENUM(struct br_queue_config, sizer, "requests", sizers, "unit of queue_size"),          \
        BR_STRING(struct br_queue_config, storage, NULL,                                           \
                  "id of a `file_storage` extension that stores the queue on disk; absent: the "   \
                  "queue is in memory"),                                                           \
        BR_BOOL(struct br_queue_config, block_on_overflow, false,                                  \
                "if the queue is full, let requests wait for space instead of rejecting them"),    \
        BR_BOOL(struct br_queue_config, wait_for_result, false,                                    \
                "answer the sender of a request only after the exporter has delivered the data"),  \
        BR_PRESENT(struct br_queue_config, batch, struct br_queue_batch_config,                    \
                   br_queue_batch_options, "combines queued requests into batches"),               \
        BR_OPT_END

const struct br_option br_queue_options[] = {QUEUE_ROWS(true)};
const struct br_option br_queue_options_off[] = {QUEUE_ROWS(false)};

int br_queue_batch_check(const struct br_queue_config *queue, const struct br_yaml *node,
                         const char *path, struct br_errs *errs)
{
    struct br_queue_batch_config *batch = queue->batch;
    const struct br_yaml *at = br_yaml_get(node, "batch");
    char in[192];
    if (!batch)
        return 0;
    if (!br_yaml_get(at, "sizer"))
        batch->sizer = queue->sizer == BR_SIZER_BYTES;
    (void)br_path_join(in, path, "batch");
    if (batch->max_size && batch->max_size < batch->min_size)
        return br_errs_add(errs, at, in, "max_size (%lld) must not be less than min_size (%lld)",
                           (long long)batch->max_size, (long long)batch->min_size);
    return 0;
}

int br_exporter_check(struct br_exporter_config *config, const struct br_yaml *node,
                      const char *path, struct br_errs *errs)
{
    const struct br_queue_config *queue = &config->sending_queue;
    const struct br_queue_batch_config *batch = queue->batch;
    const struct br_yaml *at = br_yaml_get(node, "sending_queue");
    char queue_path[192], in[192];
    int rc = br_queue_batch_check(queue, at, br_path_join(queue_path, path, "sending_queue"), errs);
    if (!rc && queue->storage && !queue->enabled)
        rc = br_errs_add_key(errs, at, queue_path, "storage",
                             "needs the queue: set enabled: true, or remove storage");
    if (rc || !batch)
        return rc;
    bool same = queue->sizer == (batch->sizer ? BR_SIZER_BYTES : BR_SIZER_ITEMS);
    (void)br_path_join(in, queue_path, "batch");
    if (same && batch->min_size > queue->queue_size)
        return br_errs_add(errs, br_yaml_get(at, "batch"), in,
                           "min_size (%lld) must not exceed queue_size (%lld)",
                           (long long)batch->min_size, (long long)queue->queue_size);
    return 0;
}
