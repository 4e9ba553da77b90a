/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "core/debt.h"
#include "pipeline/exporter.h"
#include "pipeline/redelivery.h"

#define NO_MEMORY_MS 200
#define PARTITIONS_MAX 10000 /* batchers, of which idle ones make room */

struct br_queue {
    struct br_consumer input;
    struct br_consumer batched; /* what the batcher sends to */
    struct br_node *node;
    const struct br_queue_config *config;
    struct br_consumer *next;
    struct br_partitions *batchers; /* NULL: nothing is batched */
    struct br_list waiting;  /* items that no consumer has taken yet */
    struct br_list overflow; /* items that came to a full queue and block */
    struct br_list flying;   /* items given to `next` */
    size_t size;             /* of waiting and flying, by the sizer; of batchers they weigh it */
    unsigned in_flight;
    size_t capacity;       /* this worker's shares of queue_size and num_consumers */
    unsigned consumers;
    struct br_deferred room; /* batches have ended */
    struct br_timer again; /* for what could not be sent without memory; parked otherwise */
    bool draining, closing;
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    struct br_log_limit log_limit;
    struct br_exporter_counts counts;
    double *refused[BR_SIGNALS];
    double *size_metric, *flight_metric;
};

static size_t size_of(const struct br_queue *q, const struct br_item *item)
{
    switch (q->config->sizer) {
    case BR_SIZER_ITEMS:
        return item->n_items;
    case BR_SIZER_BYTES:
        return item->size;
    default:
        return 1;
    }
}

/* What it holds, gathered data included. */
static size_t held_size(const struct br_queue *q)
{
    return q->batchers ? br_partitions_weight(q->batchers) : q->size;
}

static void account(struct br_queue *q, const struct br_item *item, bool in)
{
    size_t size = size_of(q, item);
    q->size = in ? q->size + size : q->size - size;
    *q->size_metric = (double)held_size(q);
}

static void check_empty(struct br_queue *q)
{
    if (!q->draining || !br_list_empty(&q->waiting) || !br_list_empty(&q->overflow) || q->in_flight)
        return;
    if (q->batchers && !br_partitions_idle(q->batchers))
        return;
    void (*fn)(void *) = q->on_empty;
    q->on_empty = NULL;
    if (fn)
        fn(q->on_empty_arg);
}

/* The exporter gave up on what nobody waits for any more. */
static void lose(struct br_queue *q, struct br_item *item, const struct br_outcome *o)
{
    if (o->verdict == BR_REJECT)
        br_redelivery_drop(q->node, item, "rejected", o, &q->log_limit);
    else if (q->closing)
        br_redelivery_end(q->node, item);
    else
        br_redelivery_drop(q->node, item, "retries_exhausted", o, &q->log_limit);
}

static void dispatch(struct br_queue *q);
static void on_again(struct br_timer *t);
static void enqueue(struct br_queue *q, struct br_item *item);

static void count_result(struct br_queue *q, const struct br_item *child)
{
    enum br_signal s = child->signal;
    uint32_t sent = child->n_sent < child->n_items ? child->n_sent : child->n_items;
    *q->counts.sent[s] += sent;
    *q->counts.failed[s] += child->n_items - sent;
}

static void on_sent(struct br_item *child, void *arg)
{
    struct br_queue *q = arg;
    struct br_item *item = child->parent;
    const struct br_outcome *o = &child->outcome;
    count_result(q, child);
    q->in_flight--;
    *q->flight_metric = q->in_flight;
    br_list_remove(&item->link);
    account(q, item, false);
    if (item->done || item->parent) {
        br_item_finish(item, o); /* somebody waits for the result */
    } else {
        if (o->verdict != BR_DONE)
            lose(q, item, o);
        br_item_done(item);
    }
    dispatch(q);
    check_empty(q);
}

static bool send_one(struct br_queue *q, struct br_item *item)
{
    struct br_item *child = br_item_attempt(item, on_sent, q);
    if (!child)
        return false;
    br_list_append(&q->flying, &item->link);
    q->in_flight++;
    *q->flight_metric = q->in_flight;
    br_consume(q->next, child);
    return true;
}

static bool fits(const struct br_queue *q, const struct br_item *item)
{
    size_t held = held_size(q);
    return held == 0 || held + size_of(q, item) <= q->capacity;
}

static void dispatch(struct br_queue *q)
{
    unsigned most = q->config->enabled ? q->consumers : ~0u;
    while (!q->closing && q->in_flight < most && !br_list_empty(&q->waiting)) {
        struct br_item *item = br_container_of(br_list_shift(&q->waiting), struct br_item, link);
        if (!send_one(q, item)) {
            br_list_append(&q->waiting, &item->link);
            (void)br_host_timer(q->node->host, &q->again, NO_MEMORY_MS, on_again);
            return;
        }
    }
    while (!q->closing && !br_list_empty(&q->overflow)) {
        struct br_item *item = br_container_of(q->overflow.next, struct br_item, link);
        if (!fits(q, item))
            return;
        br_list_remove(&item->link);
        enqueue(q, item);
    }
}

static void on_again(struct br_timer *t)
{
    struct br_queue *q = br_container_of(t, struct br_queue, again);
    (void)br_host_timer_park(q->node->host, &q->again, on_again);
    dispatch(q);
}

/* Puts an item, ours or its sender's, where consumers take it. */
static void hold(struct br_queue *q, struct br_item *item)
{
    account(q, item, true);
    br_item_hold(item, BR_HOLDER_QUEUES);
    br_list_append(&q->waiting, &item->link);
    dispatch(q);
}

static void enqueue(struct br_queue *q, struct br_item *item)
{
    if (q->batchers) {
        item->weight = size_of(q, item);
        br_partitions_add(q->batchers, item);
        *q->size_metric = (double)held_size(q);
        return;
    }
    if (!q->config->enabled || q->config->wait_for_result || item->waits) {
        hold(q, item);
        return;
    }
    /* From here on the queue answers for the data: its sender is done. */
    struct br_item *own = br_item_new(q->node->host, item->signal);
    if (!own || !br_item_keep_metadata(own, item) || br_item_absorb(own, item)) {
        br_item_free(own);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return;
    }
    br_item_done(item);
    hold(q, own);
}

static void queue_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_queue *q = br_container_of(self, struct br_queue, input);
    br_debt_enter(&item->debt, item->signal, q->node->ledger);
    if (q->closing) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "shutting down");
    } else if (item->n_items == 0 && item->n_parts == 0) {
        br_item_done(item);
    } else if (!q->config->enabled || (br_list_empty(&q->overflow) && fits(q, item))) {
        enqueue(q, item);
    } else if (q->config->block_on_overflow) {
        br_list_append(&q->overflow, &item->link);
    } else {
        *q->refused[item->signal] += item->n_items;
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "sending_queue is full");
    }
}

/* A batch is ready. It came with its own duty of being finished, so it is simply held. */
static void batched_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_queue *q = br_container_of(self, struct br_queue, batched);
    hold(q, item);
}

static void on_room(struct br_deferred *d)
{
    struct br_queue *q = br_container_of(d, struct br_queue, room);
    *q->size_metric = (double)held_size(q);
    dispatch(q);
    check_empty(q);
}

/* Later, because a batcher that has just become idle may go when others come. */
static void on_batch_end(void *arg)
{
    struct br_queue *q = arg;
    br_host_defer(q->node->host, &q->room, on_room);
}

static bool make_batchers(struct br_queue *q)
{
    const struct br_queue_batch_config *c = q->config->batch;
    if (!c || !q->config->enabled)
        return true;
    struct br_partition_config config = {.batch = {.timeout_ms = c->flush_timeout / 1000000,
                                                   .min_size = (size_t)c->min_size,
                                                   .max_size = (size_t)c->max_size,
                                                   .bytes = c->sizer == 1,
                                                   .late = q->config->wait_for_result,
                                                   .final = true},
                                         .keys = &c->partition.metadata_keys,
                                         .limit = PARTITIONS_MAX};
    q->batchers = br_partitions_new(q->node, &config, &q->batched);
    if (q->batchers)
        br_partitions_on_end(q->batchers, on_batch_end, q);
    return q->batchers != NULL;
}

void br_exporter_counts_init(struct br_exporter_counts *c, struct br_node *node)
{
    static const char *const names[BR_SIGNALS] = {"spans", "profile_samples"};
    for (int s = 0; s < BR_SIGNALS; s++) {
        char name[96];
        (void)snprintf(name, sizeof name, "otelcol_exporter_sent_%s", names[s]);
        c->sent[s] = br_node_metric(node, BR_COUNTER, name, NULL, NULL);
        (void)snprintf(name, sizeof name, "otelcol_exporter_send_failed_%s", names[s]);
        c->failed[s] = br_node_metric(node, BR_COUNTER, name, NULL, NULL);
    }
}

static void make_metrics(struct br_queue *q)
{
    static const char *const names[BR_SIGNALS] = {"spans", "profile_samples"};
    br_exporter_counts_init(&q->counts, q->node);
    for (int s = 0; s < BR_SIGNALS; s++) {
        char name[96];
        (void)snprintf(name, sizeof name, "otelcol_exporter_enqueue_failed_%s", names[s]);
        q->refused[s] = br_node_metric(q->node, BR_COUNTER, name, NULL, NULL);
    }
    q->size_metric = br_node_metric(q->node, BR_GAUGE, "otelcol_exporter_queue_size", NULL, NULL);
    q->flight_metric =
        br_node_metric(q->node, BR_GAUGE, "otelcol_exporter_in_flight_requests", NULL, NULL);
    *br_node_metric(q->node, BR_GAUGE, "otelcol_exporter_queue_capacity", NULL, NULL) =
        (double)q->capacity;
}

/* What of a total is this worker's: the shares of all add up to it, unless there are more workers. */
static size_t share(const struct br_host *h, int64_t total)
{
    size_t n = h->n_workers ? h->n_workers : 1, all = (size_t)total;
    size_t mine = all / n + (h->worker < all % n);
    return mine ? mine : 1;
}

struct br_queue *br_queue_new(struct br_node *node, const struct br_queue_config *config,
                              struct br_consumer *next)
{
    struct br_queue *q = br_calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->input.consume = queue_consume;
    q->batched.consume = batched_consume;
    q->node = node;
    q->config = config;
    q->next = next;
    q->capacity = share(node->host, config->queue_size);
    q->consumers = (unsigned)share(node->host, config->num_consumers);
    br_list_init(&q->waiting);
    br_list_init(&q->overflow);
    br_list_init(&q->flying);
    make_metrics(q);
    if (!br_host_timer_park(node->host, &q->again, on_again) || !make_batchers(q)) {
        br_queue_free(q);
        return NULL;
    }
    return q;
}

struct br_consumer *br_queue_input(struct br_queue *q)
{
    return &q->input;
}

void br_queue_drain(struct br_queue *q, void (*on_empty)(void *arg), void *arg)
{
    q->draining = true;
    q->on_empty = on_empty;
    q->on_empty_arg = arg;
    if (q->batchers)
        br_partitions_flush(q->batchers);
    check_empty(q);
}

void br_queue_close(struct br_queue *q)
{
    q->closing = true;
}

static void drop_all(struct br_queue *q, struct br_list *list)
{
    struct br_list *l;
    while ((l = br_list_shift(list))) {
        struct br_item *item = br_container_of(l, struct br_item, link);
        if (!item->done && !item->parent)
            br_redelivery_end(q->node, item);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
    }
}

void br_queue_drop(struct br_queue *q)
{
    q->closing = true;
    drop_all(q, &q->overflow);
    drop_all(q, &q->waiting);
    drop_all(q, &q->flying);
    br_partitions_free(q->batchers);
    q->batchers = NULL;
}

void br_queue_free(struct br_queue *q)
{
    if (!q)
        return;
    br_queue_drop(q);
    br_host_defer_cancel(&q->room);
    br_host_timer_stop(q->node->host, &q->again);
    br_free(q);
}

static const char *const sizers[] = {"requests", "items", "bytes", NULL};
static const char *const batch_sizers[] = {"items", "bytes", NULL};

static const struct br_option queue_partition_options[] = {
    BR_STRINGS(struct br_queue_partition_config, metadata_keys,
               "client metadata by which batches are kept apart, and which they go on with"),
    BR_OPT_END,
};

static const struct br_option queue_batch_options[] = {
    BR_DURATION(struct br_queue_batch_config, flush_timeout, "200ms", "a batch leaves after it"),
    BR_INT(struct br_queue_batch_config, min_size, 8192, 0, 4294967295.0,
           "a batch of this size leaves"),
    BR_INT(struct br_queue_batch_config, max_size, 0, 0, 4294967295.0, "cut above it; 0: never"),
    BR_ENUM(struct br_queue_batch_config, sizer, "items", batch_sizers,
            "unit of the two sizes; the queue's where that is bytes"),
    BR_STRUCT(struct br_queue_batch_config, partition, queue_partition_options,
              "what keeps batches apart"),
    BR_OPT_END,
};

#define QUEUE_ROWS(on)                                                                             \
    BR_BOOL(struct br_queue_config, enabled, (on), "answer before the exporter has"),              \
        BR_INT(struct br_queue_config, num_consumers, 10, 1, 10000,                                \
               "requests under way at once, all workers together"),                                \
        BR_INT(struct br_queue_config, queue_size, 1000, 1, 9007199254740992.0,                    \
               "how much it holds, all workers together"),                                         \
        BR_ENUM(struct br_queue_config, sizer, "requests", sizers, "unit of queue_size"),          \
        BR_BOOL(struct br_queue_config, block_on_overflow, false,                                  \
                "wait instead of refusing when full"),                                             \
        BR_BOOL(struct br_queue_config, wait_for_result, false, "answer when the exporter has"),   \
        BR_PRESENT(struct br_queue_config, batch, struct br_queue_batch_config,                    \
                   queue_batch_options, "batches what is queued"),                                 \
        BR_OPT_END

const struct br_option br_queue_options[] = {QUEUE_ROWS(true)};
const struct br_option br_queue_options_off[] = {QUEUE_ROWS(false)};

int br_exporter_check(struct br_exporter_config *config, const struct br_yaml *node,
                      const char *path, struct br_errs *errs)
{
    const struct br_queue_config *q = &config->sending_queue;
    struct br_queue_batch_config *b = q->batch;
    const struct br_yaml *at = br_yaml_get(br_yaml_get(node, "sending_queue"), "batch");
    char in[256];
    if (!b)
        return 0;
    if (!br_yaml_get(at, "sizer"))
        b->sizer = q->sizer == BR_SIZER_BYTES;
    bool same = q->sizer == (b->sizer ? BR_SIZER_BYTES : BR_SIZER_ITEMS);
    (void)snprintf(in, sizeof in, "%s::sending_queue::batch", path);
    if (b->max_size && b->max_size < b->min_size)
        return br_errs_add(errs, at, in, "max_size (%lld) must not be less than min_size (%lld)",
                           (long long)b->max_size, (long long)b->min_size);
    if (same && b->min_size > q->queue_size)
        return br_errs_add(errs, at, in, "min_size (%lld) must not be more than queue_size (%lld)",
                           (long long)b->min_size, (long long)q->queue_size);
    return 0;
}
