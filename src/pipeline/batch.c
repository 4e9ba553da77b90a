/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/batch.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "otlp/dictionary.h"
#include "pipeline/keep.h"

#define NO_MEMORY_MS 200
#define MERGE_MAX_BYTES (256u << 20)
#define PIECES_TIMES 4 /* what the pieces of a batch may take: so many times its bytes, and these */
#define PIECES_BYTES (1u << 20)

/* Late acknowledgement: a batch that has left and has not ended, in one piece or several. */
struct batch {
    struct br_list link;        /* batcher->out */
    struct br_batcher *batcher; /* NULL once that was freed */
    struct br_list waiting;     /* the items it was made of */
    unsigned n_pieces;          /* not ended */
    struct br_outcome outcome;
};

/* The pieces of one batch while they are made. */
struct pieces {
    struct br_batcher *batcher;
    struct br_item *whole;
    struct br_list items;
    size_t room; /* bytes that further ones may take */
};

struct br_batcher {
    struct br_node *node;
    struct br_host *host;
    enum br_signal signal;
    struct br_batch_config config; /* its metadata is this: */
    char *metadata;
    struct br_consumer *next;
    struct br_item *gathered; /* traces: the parts; profiles: only the debt until it leaves */
    struct br_merge *merge;   /* profiles */
    struct br_list waiting;   /* late: items in `gathered` */
    struct br_list out;       /* of batch */
    struct br_keeper *keeper; /* early: who answers for batches that have left */
    struct br_timer timer;    /* parked while nothing is gathered */
    bool timing;              /* it is not */
    bool overdue;             /* what is gathered leaves as soon as it may */
    void (*on_end)(void *arg);
    void *on_end_arg;
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

/* So much is out there that no further batch may leave. */
static bool blocked(const struct br_batcher *b)
{
    return b->keeper && (br_keeper_kept(b->keeper) >= BR_BATCH_KEPT_MAX ||
                         (!b->config.final && br_keeper_count(b->keeper) >= BR_BATCH_OUT_MAX));
}

static bool gathered_any(const struct br_batcher *b)
{
    return gathered_items(b) > 0 || b->gathered->n_parts > 0 || b->gathered->n_held > 0 ||
           !br_list_empty(&b->waiting);
}

/* --- Late batches under way ------------------------------------------------------------------ */

static void tell_waiting(struct batch *batch)
{
    struct br_list *l;
    while ((l = br_list_shift(&batch->waiting)))
        br_item_finish(br_container_of(l, struct br_item, link), &batch->outcome);
    br_list_remove(&batch->link);
}

static void end_batch(struct batch *batch)
{
    struct br_batcher *b = batch->batcher;
    tell_waiting(batch);
    br_free(batch);
    if (b && b->on_end)
        b->on_end(b->on_end_arg);
}

static void on_piece(struct br_item *item, void *arg)
{
    struct batch *batch = arg;
    br_outcome_fold(&batch->outcome, &item->outcome);
    if (--batch->n_pieces == 0)
        end_batch(batch);
}

/* --- Making batches ------------------------------------------------------------------------- */

static int add_piece(struct br_item *item, void *arg)
{
    struct pieces *p = arg;
    bool fits = item == p->whole || item->size <= p->room;
    if (!fits || (item != p->whole && !br_item_keep_metadata(item, p->whole))) {
        br_item_free(item);
        return fits ? BR_ENOMEM : BR_EFULL;
    }
    p->room -= item == p->whole ? 0 : item->size;
    br_list_append(&p->items, &item->link);
    return 0;
}

/* Cuts what was gathered where it is over the maximum; otherwise, and where all that the pieces would
 * repeat is too much, it is one piece. */
static int make_pieces(struct br_batcher *b, struct br_item *whole, struct pieces *p)
{
    const struct br_batch_config *c = &b->config;
    size_t size = c->bytes ? whole->size : whole->n_items;
    if (!c->max_size || size <= c->max_size)
        return add_piece(whole, p);
    uint32_t items = c->bytes ? 0 : (uint32_t)c->max_size;
    size_t bytes = c->bytes ? c->max_size : 0;
    p->room = PIECES_TIMES * whole->size + PIECES_BYTES;
    int rc = b->signal == BR_TRACES ? br_traces_split(whole, items, bytes, add_piece, p)
                                    : br_profiles_split(whole, items, bytes, add_piece, p);
    struct br_list *l;
    if (rc) {
        while ((l = br_list_shift(&p->items)))
            br_item_free(br_container_of(l, struct br_item, link));
        return rc == BR_ENOMEM ? rc : add_piece(whole, p);
    }
    for (l = p->items.next; l != &p->items; l = l->next)
        br_item_take_debt(br_container_of(l, struct br_item, link), whole);
    br_item_free(whole);
    return 0;
}

static void on_timer(struct br_timer *t);

static void send_early(struct br_batcher *b, struct br_item *item)
{
    br_keeper_send(b->keeper, item);
}

static void send_late(struct batch *batch, struct br_item *item)
{
    item->done = on_piece;
    item->done_arg = batch;
    batch->n_pieces++;
    br_consume(batch->batcher->next, item);
}

/* Where a batch is gathered. */
static struct br_item *new_batch(struct br_batcher *b)
{
    struct br_item *item = br_item_new(b->host, b->signal);
    if (!item || !b->config.metadata_len)
        return item;
    item->metadata =
        br_arena_strndup(&item->arena, b->config.metadata, b->config.metadata_len);
    if (item->metadata)
        return item;
    br_item_free(item);
    return NULL;
}

static void park_timer(struct br_batcher *b)
{
    b->timing = false;
    (void)br_host_timer_park(b->host, &b->timer, on_timer);
}

static void start_timer(struct br_batcher *b, uint64_t ms)
{
    b->timing = true;
    (void)br_host_timer(b->host, &b->timer, ms, on_timer);
}

/* Lets what was gathered leave. False when there is no memory: it stays, and a timer tries again.
 */
static bool leave(struct br_batcher *b)
{
    park_timer(b);
    b->overdue = false;
    if (!gathered_any(b))
        return true;
    struct pieces pieces = {.batcher = b, .whole = b->gathered};
    struct batch *batch = b->config.late ? br_calloc(1, sizeof *batch) : NULL;
    struct br_item *fresh = new_batch(b);
    br_list_init(&pieces.items);
    if ((b->config.late && !batch) || !fresh ||
        (b->merge && b->gathered->n_parts == 0 && br_merge_items(b->merge) &&
         br_merge_take(b->merge, b->gathered)) ||
        make_pieces(b, b->gathered, &pieces)) {
        br_free(batch);
        br_item_free(fresh);
        start_timer(b, NO_MEMORY_MS);
        return false;
    }
    b->gathered = fresh;
    struct br_list *l;
    if (batch) {
        batch->batcher = b;
        batch->outcome = BR_OUTCOME_DONE;
        br_list_init(&batch->waiting);
        while ((l = br_list_shift(&b->waiting)))
            br_list_append(&batch->waiting, l);
        br_list_append(&b->out, &batch->link);
    }
    while ((l = br_list_shift(&pieces.items))) {
        struct br_item *item = br_container_of(l, struct br_item, link);
        *b->size_sum += item->n_items;
        *b->size_count += 1;
        if (batch)
            send_late(batch, item);
        else
            send_early(b, item);
    }
    return true;
}

static void on_timer(struct br_timer *t)
{
    struct br_batcher *b = br_container_of(t, struct br_batcher, timer);
    park_timer(b);
    if (!gathered_any(b))
        return;
    if (blocked(b)) {
        b->overdue = true;
        return;
    }
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

/* As much is gathered as may be while no batch can leave. */
static bool brimful(const struct br_batcher *b)
{
    size_t least = b->config.bytes ? BR_BATCH_WAIT_BYTES : BR_BATCH_WAIT_ITEMS;
    return gathered_size(b) >= (b->config.min_size > least ? b->config.min_size : least);
}

/* What does not fit into an empty batch never will. */
static void fail(const struct br_batcher *b, struct br_item *item, int rc)
{
    if (rc == BR_EFULL && !gathered_any(b))
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "batch: the request is too large to be merged");
    else if (rc == BR_EFULL)
        refuse(item, "batch: no more can be held until the next batch has left");
    else if (rc == BR_ENOMEM)
        refuse(item, "batch: out of memory");
    else
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "batch: malformed data");
}

void br_batcher_add(struct br_batcher *b, struct br_item *item)
{
    if (item->n_parts == 0) {
        br_item_done(item);
        return;
    }
    if (blocked(b) && brimful(b)) {
        refuse(item, "batch: the next in the pipeline takes no batches, and no more can be held");
        return;
    }
    int rc = gather(b, item);
    if (rc == BR_EFULL && gathered_any(b) && !blocked(b) && leave(b))
        rc = gather(b, item);
    if (rc) {
        fail(b, item, rc);
        return;
    }
    if (b->config.late)
        br_list_append(&b->waiting, &item->link);
    else
        br_item_done(item);
    if (blocked(b)) {
        b->overdue = b->overdue || full(b) || b->config.timeout_ms == 0;
    } else if (full(b)) {
        *b->by_size += 1;
        (void)leave(b);
    } else if (b->config.timeout_ms == 0) {
        (void)leave(b);
    }
    if (gathered_any(b) && !b->timing && !b->overdue)
        start_timer(b, b->config.timeout_ms);
}

void br_batcher_flush(struct br_batcher *b)
{
    (void)leave(b);
}

bool br_batcher_idle(const struct br_batcher *b)
{
    return !gathered_any(b) && br_list_empty(&b->out) && (!b->keeper || br_keeper_idle(b->keeper));
}

void br_batcher_on_end(struct br_batcher *b, void (*fn)(void *arg), void *arg)
{
    b->on_end = fn;
    b->on_end_arg = arg;
}

static void on_kept_end(void *arg)
{
    struct br_batcher *b = arg;
    if (b->overdue && !blocked(b))
        (void)leave(b);
    if (b->on_end)
        b->on_end(b->on_end_arg);
}

static size_t merge_bytes(const struct br_batch_config *c)
{
    return c->merge_bytes && c->merge_bytes < MERGE_MAX_BYTES ? c->merge_bytes : MERGE_MAX_BYTES;
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
    b->metadata = config->metadata_len ? br_malloc(config->metadata_len) : NULL;
    if (b->metadata)
        memcpy(b->metadata, config->metadata, config->metadata_len);
    b->config.metadata = b->metadata;
    b->gathered = !config->metadata_len || b->metadata ? new_batch(b) : NULL;
    if (signal == BR_PROFILES)
        b->merge = br_merge_new(b->host, merge_bytes(config));
    if (!config->late)
        b->keeper = br_keeper_new(node, next, config->final, on_kept_end, b);
    if (!b->gathered || (signal == BR_PROFILES && !b->merge) || (!config->late && !b->keeper) ||
        !br_host_timer_park(b->host, &b->timer, on_timer)) {
        br_keeper_free(b->keeper);
        br_merge_free(b->merge);
        br_item_free(b->gathered);
        br_free(b->metadata);
        br_free(b);
        return NULL;
    }
    b->by_size = br_node_metric(node, BR_COUNTER, "otelcol_processor_batch_batch_size_trigger_send",
                                NULL, NULL);
    b->by_timeout = br_node_metric(node, BR_COUNTER, "otelcol_processor_batch_timeout_trigger_send",
                                   NULL, NULL);
    b->size_sum =
        br_node_metric(node, BR_COUNTER, "otelcol_processor_batch_batch_send_size_sum", NULL, NULL);
    b->size_count = br_node_metric(node, BR_COUNTER,
                                   "otelcol_processor_batch_batch_send_size_count", NULL, NULL);
    return b;
}

void br_batcher_free(struct br_batcher *b)
{
    if (!b)
        return;
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    b->on_end = NULL;
    br_host_timer_stop(b->host, &b->timer);
    br_keeper_free(b->keeper);
    /* The items of late batches that are still out there are told now; the batch ends on its own.
     */
    while (!br_list_empty(&b->out)) {
        struct batch *batch = br_container_of(b->out.next, struct batch, link);
        br_outcome_fold(&batch->outcome, &o);
        batch->batcher = NULL;
        tell_waiting(batch);
    }
    struct br_list *l;
    while ((l = br_list_shift(&b->waiting)))
        br_item_finish(br_container_of(l, struct br_item, link), &o);
    if (b->config.late)
        br_item_settle(b->gathered, BR_FATE_REJECTED, NULL, b->gathered->n_held);
    else
        br_keep_end(b->node, b->gathered);
    br_item_free(b->gathered);
    br_merge_free(b->merge);
    br_free(b->metadata);
    br_free(b);
}
