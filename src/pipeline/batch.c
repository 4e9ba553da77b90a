/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/batch.h"

#include <stdio.h>

#include "base/mem.h"
#include "otlp/dictionary.h"

#define RETRY_FIRST_MS 200
#define RETRY_MAX_MS 10000
#define MERGE_MAX_BYTES (256u << 20)
#define LOG_EVERY_MS 60000

/* A batch that has left and has not ended: one item, or several where it was cut. */
struct batch {
    struct br_list link; /* batcher->out */
    struct br_batcher *batcher;
    struct br_list waiting; /* late: the items it was made of */
    struct br_list pieces;  /* of piece */
    struct br_outcome outcome;
};

struct piece {
    struct br_list link;
    struct batch *batch;
    struct br_item *item;
    struct br_timer timer;
    uint64_t delay_ms;
    bool kept; /* refused, and waiting for its timer */
};

struct br_batcher {
    struct br_node *node;
    struct br_host *host;
    enum br_signal signal;
    struct br_batch_config config;
    struct br_consumer *next;
    struct br_item *gathered; /* traces: the parts; profiles: only the debt until it leaves */
    struct br_merge *merge;   /* profiles */
    struct br_list waiting;   /* late: items in `gathered` */
    struct br_list out;       /* of batch */
    unsigned n_kept;
    struct br_timer timer;
    void (*on_end)(void *arg);
    void *on_end_arg;
    bool freeing;
    struct br_log_limit log_limit;
    double *by_size, *by_timeout, *size_sum, *size_count;
};

static uint32_t gathered_items(const struct br_batcher *b)
{
    return b->merge ? br_merge_items(b->merge) : b->gathered->n_items;
}

static size_t gathered_size(const struct br_batcher *b)
{
    if (!b->config.bytes)
        return gathered_items(b);
    return b->merge ? br_merge_size(b->merge) : b->gathered->size;
}

static bool gathered_any(const struct br_batcher *b)
{
    return gathered_items(b) > 0 || b->gathered->n_parts > 0 || b->gathered->n_held > 0 ||
           !br_list_empty(&b->waiting);
}

/* --- Batches under way ---------------------------------------------------------------------- */

static void send_piece(struct piece *p);

static void drop(struct br_batcher *b, struct br_item *item, const struct br_outcome *o,
                 const char *reason)
{
    uint64_t held;
    uint32_t n = item->n_held;
    br_item_settle(item, BR_FATE_DROPPED, reason, n);
    if (n && br_log_allow(&b->log_limit, br_host_mono_ms(b->host), LOG_EVERY_MS, &held))
        br_error(&b->node->log, "dropped %u %s (%s): %s: %s (%llu such messages held back)", n,
                 br_signal_items(item->signal), reason, br_status_name(o->status), o->text,
                 (unsigned long long)held);
}

static void end_batch(struct batch *batch)
{
    struct br_batcher *b = batch->batcher;
    struct br_list *l;
    while ((l = br_list_shift(&batch->waiting)))
        br_item_finish(br_container_of(l, struct br_item, link), &batch->outcome);
    br_list_remove(&batch->link);
    br_free(batch);
    if (b->on_end && !b->freeing)
        b->on_end(b->on_end_arg);
}

static void end_piece(struct piece *p, const struct br_outcome *o)
{
    struct batch *batch = p->batch;
    struct br_batcher *b = batch->batcher;
    br_host_timer_stop(b->host, &p->timer);
    br_outcome_fold(&batch->outcome, o);
    if (o->verdict != BR_DONE && !b->config.late)
        drop(b, p->item, o, b->freeing ? "shutdown"
                            : o->verdict == BR_REJECT ? "rejected"
                                                      : "retries_exhausted");
    else if (o->verdict != BR_DONE)
        br_item_settle(p->item, BR_FATE_REJECTED, NULL, p->item->n_held);
    br_item_done(p->item);
    br_list_remove(&p->link);
    br_free(p);
    if (br_list_empty(&batch->pieces))
        end_batch(batch);
}

static void on_due(struct br_timer *t)
{
    struct piece *p = br_container_of(t, struct piece, timer);
    p->kept = false;
    p->batch->batcher->n_kept--;
    send_piece(p);
}

/* Refused for now: nobody else answers for this data any more, so it stays and is sent again. */
static void keep(struct piece *p, const struct br_outcome *o)
{
    struct br_batcher *b = p->batch->batcher;
    uint64_t delay = o->delay_ms ? o->delay_ms : p->delay_ms;
    p->delay_ms = p->delay_ms * 2 < RETRY_MAX_MS ? p->delay_ms * 2 : RETRY_MAX_MS;
    p->kept = br_host_timer(b->host, &p->timer, delay, on_due);
    if (p->kept)
        b->n_kept++;
    else
        end_piece(p, o);
}

static void on_piece(struct br_item *child, void *arg)
{
    struct piece *p = arg;
    const struct br_batcher *b = p->batch->batcher;
    const struct br_outcome *o = &child->outcome;
    if (o->verdict == BR_RETRY && !b->config.late && !b->config.final && !b->freeing)
        keep(p, o);
    else
        end_piece(p, o);
}

static void send_piece(struct piece *p)
{
    struct br_item *child = br_item_attempt(p->item, on_piece, p);
    if (child) {
        br_consume(p->batch->batcher->next, child);
        return;
    }
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    keep(p, &o);
}

/* --- Making batches ------------------------------------------------------------------------- */

static int add_piece(struct br_item *item, void *arg)
{
    struct batch *batch = arg;
    struct piece *p = br_calloc(1, sizeof *p);
    if (!p) {
        br_item_free(item);
        return BR_ENOMEM;
    }
    p->batch = batch;
    p->item = item;
    p->delay_ms = RETRY_FIRST_MS;
    br_list_append(&batch->pieces, &p->link);
    return 0;
}

static void free_pieces(struct batch *batch)
{
    struct br_list *l;
    while ((l = br_list_shift(&batch->pieces))) {
        struct piece *p = br_container_of(l, struct piece, link);
        br_item_free(p->item);
        br_free(p);
    }
}

/* Cuts what was gathered where it is over the maximum; otherwise it is one piece. */
static int make_pieces(struct br_batcher *b, struct batch *batch, struct br_item *whole)
{
    const struct br_batch_config *c = &b->config;
    size_t size = c->bytes ? whole->size : whole->n_items;
    int rc;
    if (c->max_size && size > c->max_size) {
        uint32_t items = c->bytes ? 0 : (uint32_t)c->max_size;
        size_t bytes = c->bytes ? c->max_size : 0;
        rc = b->signal == BR_TRACES
                 ? br_traces_split(whole, items, bytes, add_piece, batch)
                 : br_profiles_split(whole, items, bytes, add_piece, batch);
        if (rc) {
            free_pieces(batch);
            return rc;
        }
        for (struct br_list *l = batch->pieces.next; l != &batch->pieces; l = l->next)
            br_item_take_debt(br_container_of(l, struct piece, link)->item, whole);
        br_item_free(whole);
        return 0;
    }
    struct piece *p = br_calloc(1, sizeof *p);
    if (!p)
        return BR_ENOMEM;
    *p = (struct piece){.batch = batch, .item = whole, .delay_ms = RETRY_FIRST_MS};
    br_list_append(&batch->pieces, &p->link);
    return 0;
}

static void on_timer(struct br_timer *t);

static void send_batch(struct batch *batch)
{
    struct br_list *next;
    for (struct br_list *l = batch->pieces.next; l != &batch->pieces; l = next) {
        struct piece *p = br_container_of(l, struct piece, link);
        next = l->next; /* without memory a piece, and with the last the batch, ends at once */
        *batch->batcher->size_sum += p->item->n_items;
        *batch->batcher->size_count += 1;
        send_piece(p);
    }
}

/* Lets what was gathered leave. False when there is no memory: it stays, and a timer tries again. */
static bool leave(struct br_batcher *b)
{
    br_host_timer_stop(b->host, &b->timer);
    if (!gathered_any(b))
        return true;
    struct batch *batch = br_calloc(1, sizeof *batch);
    struct br_item *fresh = br_item_new(b->host, b->signal);
    if (!batch || !fresh || (b->merge && b->gathered->n_parts == 0 && br_merge_items(b->merge) &&
                             br_merge_take(b->merge, b->gathered)))
        goto fail;
    batch->batcher = b;
    batch->outcome = BR_OUTCOME_DONE;
    br_list_init(&batch->waiting);
    br_list_init(&batch->pieces);
    if (make_pieces(b, batch, b->gathered))
        goto fail;
    b->gathered = fresh;
    struct br_list *l;
    while ((l = br_list_shift(&b->waiting)))
        br_list_append(&batch->waiting, l);
    br_list_append(&b->out, &batch->link);
    send_batch(batch);
    return true;
fail:
    br_free(batch);
    br_item_free(fresh);
    (void)br_host_timer(b->host, &b->timer, RETRY_FIRST_MS, on_timer);
    return false;
}

static void on_timer(struct br_timer *t)
{
    struct br_batcher *b = br_container_of(t, struct br_batcher, timer);
    *b->by_timeout += 1;
    (void)leave(b);
}

static void refuse(struct br_item *item, const char *why)
{
    br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, why);
}

/* Puts the item's data, or all it says, into what is gathered. */
static int gather(struct br_batcher *b, struct br_item *item)
{
    if (!b->merge)
        return br_item_absorb(b->gathered, item);
    if (b->gathered->n_parts)
        return BR_EFULL; /* a merged batch that could not leave */
    int rc = br_merge_add(b->merge, item);
    if (rc)
        return rc;
    b->gathered->n_held += item->n_held;
    item->n_held = 0;
    br_item_clear_parts(item);
    return 0;
}

static bool full(const struct br_batcher *b)
{
    return b->config.min_size && gathered_size(b) >= b->config.min_size;
}

void br_batcher_add(struct br_batcher *b, struct br_item *item)
{
    if (item->n_parts == 0) {
        br_item_done(item);
        return;
    }
    if (b->n_kept >= BR_BATCH_KEPT_MAX && full(b)) {
        refuse(item, "batch: the next in the pipeline refuses batches, and no more can be held");
        return;
    }
    int rc = gather(b, item);
    if (rc == BR_EFULL && gathered_any(b) && leave(b))
        rc = gather(b, item);
    if (rc) {
        refuse(item, "batch: out of memory");
        return;
    }
    if (b->config.late)
        br_list_append(&b->waiting, &item->link);
    else
        br_item_done(item);
    if (full(b) && b->n_kept < BR_BATCH_KEPT_MAX) {
        *b->by_size += 1;
        (void)leave(b);
    } else if (b->config.timeout_ms == 0) {
        (void)leave(b);
    } else if (!b->timer.slot) {
        (void)br_host_timer(b->host, &b->timer, b->config.timeout_ms, on_timer);
    }
}

void br_batcher_flush(struct br_batcher *b)
{
    (void)leave(b);
}

bool br_batcher_idle(const struct br_batcher *b)
{
    return !gathered_any(b) && br_list_empty(&b->out);
}

void br_batcher_on_end(struct br_batcher *b, void (*fn)(void *arg), void *arg)
{
    b->on_end = fn;
    b->on_end_arg = arg;
}

struct br_batcher *br_batcher_new(struct br_node *node, enum br_signal signal,
                                  const struct br_batch_config *config, struct br_consumer *next)
{
    struct br_batcher *b = br_calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->node = node;
    b->host = node->host;
    b->signal = signal;
    b->config = *config;
    b->next = next;
    br_list_init(&b->waiting);
    br_list_init(&b->out);
    b->gathered = br_item_new(b->host, signal);
    if (signal == BR_PROFILES)
        b->merge = br_merge_new(b->host, MERGE_MAX_BYTES);
    if (!b->gathered || (signal == BR_PROFILES && !b->merge)) {
        br_item_free(b->gathered);
        br_free(b);
        return NULL;
    }
    b->by_size = br_node_metric(node, BR_COUNTER, "otelcol_processor_batch_batch_size_trigger_send",
                                NULL, NULL);
    b->by_timeout = br_node_metric(node, BR_COUNTER,
                                   "otelcol_processor_batch_timeout_trigger_send", NULL, NULL);
    b->size_sum = br_node_metric(node, BR_COUNTER,
                                 "otelcol_processor_batch_batch_send_size_sum", NULL, NULL);
    b->size_count = br_node_metric(node, BR_COUNTER,
                                   "otelcol_processor_batch_batch_send_size_count", NULL, NULL);
    return b;
}

void br_batcher_free(struct br_batcher *b)
{
    if (!b)
        return;
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    b->freeing = true;
    br_host_timer_stop(b->host, &b->timer);
    while (!br_list_empty(&b->out)) {
        struct batch *batch = br_container_of(b->out.next, struct batch, link);
        while (!br_list_empty(&batch->pieces)) {
            struct piece *p = br_container_of(batch->pieces.next, struct piece, link);
            bool last = p->link.next == &batch->pieces;
            end_piece(p, &o);
            if (last)
                break;
        }
    }
    struct br_list *l;
    while ((l = br_list_shift(&b->waiting)))
        br_item_finish(br_container_of(l, struct br_item, link), &o);
    if (b->config.late)
        br_item_settle(b->gathered, BR_FATE_REJECTED, NULL, b->gathered->n_held);
    else
        drop(b, b->gathered, &o, "shutdown");
    br_item_free(b->gathered);
    br_merge_free(b->merge);
    br_free(b);
}
