/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/batch.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/debt.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/redelivery.h"

#define NO_MEMORY_MS 200
#define MERGE_MAX_BYTES (256u << 20)
#define ALONE_BYTES (1u << 20) /* profiles that are larger leave as they came */
#define PIECES_TIMES 4 /* what the pieces of a batch may take: so many times its bytes, and these */
#define PIECES_BYTES (1u << 20)
#define AGAIN_FIRST_MS 50 /* late: a piece that is refused when others are not is tried again */
#define AGAIN_MAX_MS 1000

/* Late: an item whose data is in a batch. The batch owes what the item's account has lent it. */
struct waiting {
    struct br_list link;
    struct br_item *item;
    struct br_account *account;
    uint32_t n;
};

/* A batch that has left and has not ended, in one piece or several. */
struct batch {
    struct br_list link;        /* batcher->out */
    struct br_batcher *batcher; /* NULL once that was freed */
    struct br_list waiting;     /* late: the items it was made of */
    uint32_t n;                 /* spans or samples in them */
    unsigned n_pieces;          /* not ended */
    uint32_t n_rejected;        /* spans or samples in pieces that were refused for good */
    bool any_done;
    struct br_outcome outcome;  /* of the others */
    struct br_outcome rejection;
    struct br_outcome refusal;  /* of pieces that were not taken for now, until the end */
    uint32_t n_refused;         /* spans or samples in them */
    struct br_list again;       /* late: of kept, which wait */
    unsigned n_again;
    bool several; /* pieces */
    uint64_t delay_ms, until_ms; /* of the next try, and of the last */
};

/* Late: one of several pieces, of which attempts are sent. Who gets one may take its data. */
struct kept {
    struct br_list link; /* batch->again, while it waits */
    struct batch *batch;
    struct br_item *item;
    struct br_outcome why;
    struct br_timer timer;
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
    size_t merge_held;        /* by it, as counted */
    struct br_list waiting;   /* late: whose data is in `gathered` */
    struct br_list out;       /* of batch */
    struct br_redelivery *redelivery; /* early: who answers for batches that have left */
    struct br_timer timer;    /* parked while nothing is gathered */
    bool timing;              /* it is not */
    bool overdue;             /* what is gathered leaves as soon as it may */
    size_t weight;            /* of all that is gathered, or has left and not ended */
    void (*on_end)(void *arg);
    void *on_end_arg;
    double *by_size, *by_timeout, *size_sum, *size_count;
};

/* What is gathered is in the merger, and not in parts. */
static bool merging(const struct br_batcher *b)
{
    return b->merge && b->gathered->n_parts == 0;
}

static uint32_t gathered_items(const struct br_batcher *b)
{
    return merging(b) ? br_merge_items(b->merge) : b->gathered->n_items;
}

static size_t gathered_size(const struct br_batcher *b)
{
    if (!b->config.bytes)
        return gathered_items(b);
    return merging(b) ? br_merge_size(b->merge) : b->gathered->size;
}

/* So much is out there that no further batch may leave. */
static bool blocked(const struct br_batcher *b)
{
    return b->redelivery && (br_redelivery_kept(b->redelivery) >= BR_BATCH_KEPT_MAX ||
                         (!b->config.final && br_redelivery_count(b->redelivery) >= BR_BATCH_OUT_MAX));
}

static bool leave(struct br_batcher *b);

static bool gathered_any(const struct br_batcher *b)
{
    return gathered_items(b) > 0 || b->gathered->n_parts > 0 || b->gathered->n_held > 0 ||
           !br_list_empty(&b->waiting);
}

static void weigh(struct br_batcher *b, size_t more, size_t less)
{
    b->weight += more - less;
    if (b->config.weight)
        *b->config.weight += more - less;
}

/* --- Batches under way ----------------------------------------------------------------------- */

static void tell_one(struct waiting *w, const struct br_outcome *o)
{
    struct br_item *item = w->item;
    if (o->verdict == BR_DONE || br_account_lent(w->account))
        br_account_close(w->account);
    else
        br_account_return(w->account);
    br_free(w);
    br_item_finish(item, o);
}

/* What was refused in part, each hears in its share: all shares add up. */
static void tell_all(struct br_list *waiting, const struct br_outcome *o, uint32_t n)
{
    uint64_t n_before = 0, told = 0;
    struct br_list *l;
    while ((l = br_list_shift(waiting))) {
        struct waiting *w = br_container_of(l, struct waiting, link);
        struct br_outcome its = *o;
        n_before += w->n;
        uint64_t until = n ? o->n_rejected * n_before / n : 0;
        its.n_rejected = (uint32_t)(until - told);
        told = until;
        tell_one(w, &its);
    }
}

/* What was not taken in time is rejected where the rest was taken (OTLP, "Partial Success"): were all told
 * to send all again, what was taken would come twice. */
static void count_refused(struct batch *batch)
{
    if (!batch->n_refused)
        return;
    if (!batch->any_done) {
        br_outcome_fold(&batch->outcome, &batch->refusal);
        return;
    }
    batch->n_rejected += batch->n_refused;
    batch->refusal.verdict = BR_REJECT;
    br_outcome_fold(&batch->rejection, &batch->refusal);
}

/* Where only some pieces were refused for good, that is a partial success. */
static struct br_outcome outcome_of(struct batch *batch)
{
    count_refused(batch);
    struct br_outcome o = batch->outcome;
    if (!batch->rejection.status && !batch->rejection.text[0] && !batch->n_rejected)
        return o;
    if (o.verdict != BR_DONE || !batch->any_done) {
        br_outcome_fold(&o, &batch->rejection);
        return o;
    }
    o.n_rejected += batch->n_rejected;
    memcpy(o.text, batch->rejection.text, sizeof o.text);
    return o;
}

static void tell_waiting(struct batch *batch)
{
    struct br_outcome o = outcome_of(batch);
    tell_all(&batch->waiting, &o, batch->n);
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

static void end_piece(struct batch *batch, struct br_item *item, const struct br_outcome *o)
{
    bool ends = !batch->batcher || batch->batcher->node->ending;
    bool kept = item->done == NULL; /* whose data is here still */
    if (batch->batcher)
        weigh(batch->batcher, 0, item->weight);
    if (o->verdict != BR_DONE)
        br_debt_forgive(&item->debt, item->signal);
    if (o->verdict == BR_REJECT) {
        batch->n_rejected += item->n_items;
        br_outcome_fold(&batch->rejection, o);
    } else if (o->verdict == BR_RETRY && kept && !ends) {
        batch->n_refused += item->n_items;
        br_outcome_fold(&batch->refusal, o);
    } else {
        batch->any_done = batch->any_done || o->verdict == BR_DONE;
        br_outcome_fold(&batch->outcome, o);
    }
    batch->n_pieces--;
}

/* One that is tried again has ended. */
static void end_kept(struct kept *k, const struct br_outcome *o)
{
    br_host_timer_stop(k->item->host, &k->timer);
    br_list_remove(&k->link);
    end_piece(k->batch, k->item, o);
    br_item_done(k->item);
    br_free(k);
}

/* Nothing was taken, or the batcher ends: those that wait for another try are the senders' again. */
static void end_again(struct batch *batch)
{
    while (!br_list_empty(&batch->again)) {
        struct kept *k = br_container_of(batch->again.next, struct kept, link);
        struct br_outcome why = k->why;
        batch->n_again--;
        end_kept(k, &why);
    }
}

static void check_batch(struct batch *batch)
{
    if (!batch->any_done && batch->n_pieces == batch->n_again)
        end_again(batch);
    if (batch->n_pieces == 0)
        end_batch(batch);
}

static void send_kept(struct kept *k);

static void on_again(struct br_timer *t)
{
    struct kept *k = br_container_of(t, struct kept, timer);
    br_list_remove(&k->link);
    k->batch->n_again--;
    send_kept(k);
}

/* Tries again what was refused for now while others are under way or done. False when that is of no use any
 * more. */
static bool kept_again(struct kept *k, const struct br_outcome *o)
{
    struct batch *batch = k->batch;
    struct br_batcher *b = batch->batcher;
    bool alone = !batch->any_done && batch->n_pieces - batch->n_again == 1;
    if (!b || b->node->ending || alone || br_host_mono_ms(b->host) >= batch->until_ms ||
        !br_host_timer(b->host, &k->timer, batch->delay_ms, on_again))
        return false;
    k->why = *o;
    br_list_append(&batch->again, &k->link);
    batch->n_again++;
    batch->delay_ms = batch->delay_ms * 2 < AGAIN_MAX_MS ? batch->delay_ms * 2 : AGAIN_MAX_MS;
    return true;
}

static void on_kept(struct br_item *attempt, void *arg)
{
    struct kept *k = arg;
    struct batch *batch = k->batch;
    const struct br_outcome *o = &attempt->outcome;
    if (o->verdict == BR_RETRY && kept_again(k, o))
        return;
    if (o->verdict == BR_DONE)
        batch->delay_ms = AGAIN_FIRST_MS;
    end_kept(k, o);
    check_batch(batch);
}

static void send_kept(struct kept *k)
{
    struct batch *batch = k->batch;
    struct br_item *attempt = br_item_attempt(k->item, on_kept, k);
    if (attempt) {
        br_consume(batch->batcher->next, attempt);
        return;
    }
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "batch: out of memory");
    if (kept_again(k, &o))
        return;
    end_kept(k, &o);
    check_batch(batch);
}

static void on_piece(struct br_item *item, void *arg)
{
    struct batch *batch = arg;
    end_piece(batch, item, &item->outcome);
    check_batch(batch);
}

/* --- Merging --------------------------------------------------------------------------------- */

static size_t merge_bytes(const struct br_batch_config *c)
{
    return c->merge_bytes && c->merge_bytes < MERGE_MAX_BYTES ? c->merge_bytes : MERGE_MAX_BYTES;
}

/* The tables count for the dictionaries, as they are now: what leaves takes blocks along that were made
 * for it, so that what the work took is not what stays. */
static void merge_count(struct br_batcher *b)
{
    size_t bytes = b->merge ? br_merge_memory(b->merge) : 0;
    br_mem_hold(BR_HOLDER_DICTIONARIES, (int64_t)bytes - (int64_t)b->merge_held);
    b->merge_held = bytes;
}

/* Takes what the memory budget has: what is merged came from peers. */
static int merge_add(struct br_batcher *b, struct br_item *item)
{
    struct br_mem_scope scope;
    br_mem_scope_begin(&scope, SIZE_MAX / 2, b->host->memory);
    int rc = br_merge_add(b->merge, item);
    br_mem_scope_end(&scope);
    merge_count(b);
    return rc;
}

static int merge_take(struct br_batcher *b)
{
    int rc = br_merge_take(b->merge, b->gathered);
    merge_count(b);
    return rc;
}

static void merge_free(struct br_batcher *b)
{
    br_merge_free(b->merge);
    b->merge = NULL;
    merge_count(b);
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

/* Gives each piece its share of what the whole owes and weighs. False when there is no memory. */
static bool share_out(struct pieces *p, struct br_item *whole)
{
    uint32_t n_left = whole->n_items;
    for (struct br_list *l = p->items.next; l != &p->items; l = l->next) {
        struct br_item *piece = br_container_of(l, struct br_item, link);
        bool last = l->next == &p->items;
        if (!br_debt_move(&piece->debt, &whole->debt, piece->n_items))
            return false;
        piece->weight = last || !n_left
                            ? whole->weight
                            : (size_t)((double)whole->weight * piece->n_items / n_left);
        whole->weight -= piece->weight;
        n_left -= piece->n_items < n_left ? piece->n_items : n_left;
    }
    return true;
}

static void undo_pieces(struct pieces *p, struct br_item *whole)
{
    struct br_list *l;
    while ((l = br_list_shift(&p->items))) {
        struct br_item *piece = br_container_of(l, struct br_item, link);
        (void)br_debt_move(&whole->debt, &piece->debt, piece->n_held);
        whole->weight += piece->weight;
        br_item_free(piece);
    }
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
    if (rc == BR_ENOMEM || (!rc && !share_out(p, whole))) {
        undo_pieces(p, whole);
        return BR_ENOMEM;
    }
    if (rc) {
        undo_pieces(p, whole);
        return add_piece(whole, p);
    }
    br_item_free(whole);
    return 0;
}

static void on_timer(struct br_timer *t);

/* Late, and not for a queue, which weighs what it gets. False when there is no memory. */
static bool send_late(struct batch *batch, struct br_item *item)
{
    struct kept *k = br_calloc(1, sizeof *k);
    if (!k)
        return false;
    item->waits = true;
    br_list_init(&k->link);
    k->batch = batch;
    k->item = item;
    send_kept(k);
    return true;
}

static void send_piece(struct batch *batch, struct br_item *item)
{
    struct br_batcher *b = batch->batcher;
    if (b->config.late && !b->config.weight && batch->several && send_late(batch, item))
        return;
    item->done = on_piece;
    item->done_arg = batch;
    item->keeps_debt = item->waits = b->config.late;
    if (b->config.late)
        br_consume(b->next, item);
    else
        br_redelivery_send(b->redelivery, item);
}

/* A batch of what is gathered, whose pieces are these. */
static void send_pieces(struct br_batcher *b, struct batch *batch, struct pieces *pieces)
{
    struct br_list *l;
    *batch = (struct batch){.batcher = b,
                            .outcome = BR_OUTCOME_DONE,
                            .rejection = BR_OUTCOME_DONE,
                            .refusal = BR_OUTCOME_DONE,
                            .delay_ms = AGAIN_FIRST_MS,
                            .until_ms = br_host_mono_ms(b->host) + BR_BATCH_PATIENCE_MS};
    br_list_init(&batch->waiting);
    br_list_init(&batch->again);
    while ((l = br_list_shift(&b->waiting))) {
        batch->n += br_container_of(l, struct waiting, link)->n;
        br_list_append(&batch->waiting, l);
    }
    br_list_append(&b->out, &batch->link);
    for (l = pieces->items.next; l != &pieces->items; l = l->next)
        batch->n_pieces++;
    batch->several = batch->n_pieces > 1;
    while ((l = br_list_shift(&pieces->items))) {
        struct br_item *item = br_container_of(l, struct br_item, link);
        *b->size_sum += item->n_items;
        *b->size_count += 1;
        send_piece(batch, item);
    }
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
    struct batch *batch = br_calloc(1, sizeof *batch);
    struct br_item *fresh = new_batch(b);
    br_list_init(&pieces.items);
    if (!batch || !fresh || (merging(b) && br_merge_items(b->merge) && merge_take(b)) ||
        make_pieces(b, b->gathered, &pieces)) {
        br_free(batch);
        br_item_free(fresh);
        start_timer(b, NO_MEMORY_MS);
        return false;
    }
    b->gathered = fresh;
    send_pieces(b, batch, &pieces);
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

/* What is a batch by itself, or so large that merging it would hold the worker up, is not merged.
 */
static bool alone(const struct br_batcher *b, const struct br_item *item)
{
    size_t size = b->config.bytes ? item->size : item->n_items;
    return !blocked(b) && item->n_items > 0 &&
           ((b->config.min_size && size >= b->config.min_size) || item->size > ALONE_BYTES);
}

/* Puts the item's data, or all it says, into what is gathered, with what is owed for it. */
static int gather(struct br_batcher *b, struct br_item *item, struct br_debt *debt)
{
    if (b->merge && !merging(b))
        return BR_EFULL; /* a batch that could not leave */
    bool merges = b->merge && !alone(b, item);
    if (b->merge && !merges && gathered_any(b))
        return BR_EFULL; /* what is gathered leaves before it */
    if (!merges)
        br_item_hold(item, BR_HOLDER_BATCHES);
    int rc = merges ? merge_add(b, item) : br_item_absorb(b->gathered, item);
    if (rc)
        return rc;
    (void)br_debt_move(&b->gathered->debt, debt, debt->n_held);
    b->gathered->weight += item->weight;
    weigh(b, item->weight, 0);
    item->weight = 0;
    if (merges)
        br_item_clear_parts(item);
    return 0;
}

/* Late: who waits, and what the batch is to owe for it. NULL when there is no memory. */
static struct waiting *wait_for(struct br_item *item, struct br_debt *ret_debt)
{
    struct waiting *w = br_calloc(1, sizeof *w);
    struct br_ledger *exporter = item->debt.exporter;
    if (!w)
        return NULL;
    w->item = item;
    w->n = item->n_items;
    item->debt.exporter = NULL; /* it has what the batch owes */
    w->account = br_account_open(item, 1);
    if (w->account && br_account_lend(w->account, 0, ret_debt)) {
        ret_debt->exporter = exporter;
        return w;
    }
    item->debt.exporter = exporter;
    if (w->account)
        br_account_return(w->account);
    br_free(w);
    return NULL;
}

static void stop_waiting(struct waiting *w, struct br_debt *debt)
{
    br_debt_forgive(debt, w->item->signal);
    br_account_return(w->account);
    br_free(w);
}

/* Takes the item's data in, as it leaves what is there where that is full. */
static int take(struct br_batcher *b, struct br_item *item)
{
    struct br_debt lent = {0};
    struct waiting *w = b->config.late ? wait_for(item, &lent) : NULL;
    if (b->config.late && !w)
        return BR_ENOMEM;
    struct br_debt *debt = w ? &lent : &item->debt;
    int rc = gather(b, item, debt);
    if (rc == BR_EFULL && gathered_any(b) && !blocked(b) && leave(b))
        rc = gather(b, item, debt);
    if (rc && w)
        stop_waiting(w, debt);
    else if (w)
        br_list_append(&b->waiting, &w->link);
    return rc;
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
    int rc = take(b, item);
    if (rc) {
        fail(b, item, rc);
        return;
    }
    if (!b->config.late)
        br_item_done(item);
    if (blocked(b)) {
        b->overdue = b->overdue || full(b) || b->config.timeout_ms == 0;
    } else if (full(b) || (b->merge && !merging(b))) {
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
    return !gathered_any(b) && (b->redelivery ? br_redelivery_idle(b->redelivery) : br_list_empty(&b->out));
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
        b->merge = br_merge_new(b->host, merge_bytes(&b->config));
    if (!config->late)
        b->redelivery = br_redelivery_new(node, next, config->final, on_kept_end, b);
    if (!b->gathered || (signal == BR_PROFILES && !b->merge) || (!config->late && !b->redelivery) ||
        !br_host_timer_park(b->host, &b->timer, on_timer)) {
        br_redelivery_free(b->redelivery);
        merge_free(b);
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
    weigh(b, 0, b->weight);
    br_host_timer_stop(b->host, &b->timer);
    br_redelivery_free(b->redelivery);
    /* The items of late batches that are still out there are told now; the batch ends on its own.
     */
    while (!br_list_empty(&b->out)) {
        struct batch *batch = br_container_of(b->out.next, struct batch, link);
        br_outcome_fold(&batch->outcome, &o);
        batch->batcher = NULL;
        end_again(batch);
        tell_waiting(batch);
        if (batch->n_pieces == 0)
            br_free(batch);
    }
    if (b->config.late)
        br_debt_forgive(&b->gathered->debt, b->signal);
    tell_all(&b->waiting, &o, 0);
    br_redelivery_end(b->node, b->gathered);
    br_item_free(b->gathered);
    merge_free(b);
    br_free(b->metadata);
    br_free(b);
}
