/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/batch.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/pending.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/hold.h"

#define NO_MEMORY_MS 200
#define MERGE_MAX_BYTES (256u << 20)
/* profiles items larger than this number of bytes are sent without merging */
#define ALONE_BYTES (1u << 20)
/* When a batch is divided, the total size of its pieces is limited to PIECES_TIMES times the size
 * of the batch, plus PIECES_BYTES. */
#define PIECES_TIMES 4
#define PIECES_BYTES (1u << 20)
/* With late acknowledgement: delay in milliseconds before the first retry of a refused piece. Later
 * delays grow up to AGAIN_MAX_MS. */
#define AGAIN_FIRST_MS 50
#define AGAIN_MAX_MS 1000

/* With late acknowledgement: an item that waits for the outcome of its batch. The batch contains
 * the item's data and a copy (br_copies) of its pending records. */
struct waiting {
    struct br_list link;
    struct br_item *item;
    struct br_copies *copies;
    uint32_t count;
};

/* A batch that was sent in one or several pieces, and whose outcome is not complete yet. */
struct batch {
    struct br_list link;        /* link in batcher->out */
    struct br_batcher *batcher; /* owner of the batch; NULL if the batcher was freed */
    /* with late acknowledgement: the items whose data the batch contains */
    struct br_list waiting;
    uint32_t count;      /* total records of the items in `waiting` */
    unsigned n_pieces;   /* number of pieces without a final outcome */
    uint32_t n_rejected; /* number of records in pieces that ended as BR_REJECT */
    bool any_done;
    /* combined outcome of all pieces except those combined in `rejection` or `refusal` */
    struct br_outcome outcome;
    struct br_outcome rejection;
    /* combined outcome of the pieces that still ended as BR_RETRY after all retries */
    struct br_outcome refusal;
    uint32_t n_refused; /* number of records in the pieces that are combined in `refusal` */
    /* true if `hold` sends and retries the pieces; used with late acknowledgement and several
     * pieces */
    bool retries;
    struct br_hold hold;
};

/* The pieces of a batch that is being divided. */
struct pieces {
    struct br_batcher *batcher;
    struct br_item *whole;
    struct br_list items;
    size_t room; /* maximum total size in bytes of the pieces that are still to be created */
};

struct br_batcher {
    struct br_node *node;
    struct br_host *host;
    enum br_signal signal;
    /* copy of the config; `config.metadata` points to the field `metadata` of this struct */
    struct br_batch_config config;
    char *metadata;
    struct br_consumer *next;
    /* The item of the next batch. For traces, this item contains the gathered data. For profiles,
     * the data is in `merge` until the batch is sent, and this item has only the pending
     * records. */
    struct br_item *gathered;
    struct br_merge *merge; /* profiles: merges the gathered data */
    size_t merge_held;      /* memory of `merge` in bytes, as counted in BR_HOLDER_DICTIONARIES */
    struct br_list waiting; /* with late acknowledgement: the items whose data is in `gathered` */
    struct br_list out;     /* list of struct batch: the batches that have not ended */
    /* With early acknowledgement: sends batches and retries refused ones. The senders of their data
     * have already been answered. */
    struct br_hold sent;
    /* sends the gathered data after timeout_ms; parked while no data is gathered */
    struct br_timer timer;
    bool timing; /* true unless `timer` is parked */
    bool due;    /* the gathered data must be sent as soon as batch_blocked returns false */
    /* total br_item.weight of the gathered data and of the sent batches without a final outcome */
    size_t weight;
    void (*on_end)(void *arg);
    void *on_end_arg;
    double *by_size, *by_timeout;
    struct br_histogram *sizes, *sizes_bytes;
};

/* Returns true if the gathered data is in `merge`, not in the parts of `gathered`. */
static bool batch_merging(const struct br_batcher *batcher)
{
    return batcher->merge && batcher->gathered->n_parts == 0;
}

static uint32_t batch_gathered_records(const struct br_batcher *batcher)
{
    return batch_merging(batcher) ? br_merge_records(batcher->merge) : batcher->gathered->n_records;
}

static size_t batch_gathered_size(const struct br_batcher *batcher)
{
    if (!batcher->config.bytes)
        return batch_gathered_records(batcher);
    return batch_merging(batcher) ? br_merge_size(batcher->merge) : batcher->gathered->size;
}

/* Returns true if too many sent batches have no final outcome, so that no further batch may be
 * sent. */
static bool batch_blocked(const struct br_batcher *batcher)
{
    if (batcher->config.late)
        return false;
    return batcher->sent.n_waiting >= BR_BATCH_KEPT_MAX ||
           (!batcher->config.final && batcher->sent.n_held >= BR_BATCH_OUT_MAX);
}

enum sending { SEND_ALL, SEND_FULL_PIECES };

static bool batch_send(struct br_batcher *batcher, enum sending sending);

static bool batch_gathered_any(const struct br_batcher *batcher)
{
    return batch_gathered_records(batcher) > 0 || batcher->gathered->n_parts > 0 ||
           batcher->gathered->n_pending > 0 || !br_list_empty(&batcher->waiting);
}

static void batch_weigh(struct br_batcher *batcher, size_t more, size_t less)
{
    batcher->weight += more - less;
    if (batcher->config.weight)
        *batcher->config.weight += more - less;
}

/* --- Batches under way ----------------------------------------------------------------------- */

static void batch_finish_one(struct waiting *waiting, const struct br_outcome *outcome)
{
    struct br_item *item = waiting->item;
    if (outcome->verdict == BR_DONE || br_copies_pending(waiting->copies))
        br_copies_close(waiting->copies);
    else
        br_copies_return(waiting->copies);
    br_free(waiting);
    br_item_finish(item, outcome);
}

/* Finishes all waiting items with the outcome of their batch. Divides n_rejected among the items in
 * proportion to their records, without changing the sum. */
static void batch_finish_all(struct br_list *waiting, const struct br_outcome *outcome,
                             uint32_t count)
{
    uint64_t n_before = 0, n_reported = 0;
    struct br_list *list;
    while ((list = br_list_shift(waiting))) {
        struct waiting *waiter = br_container_of(list, struct waiting, link);
        struct br_outcome its = *outcome;
        n_before += waiter->count;
        uint64_t until = count ? outcome->n_rejected * n_before / count : 0;
        its.n_rejected = (uint32_t)(until - n_reported);
        n_reported = until;
        batch_finish_one(waiter, &its);
    }
}

/* Adds the pieces that still ended as BR_RETRY to the outcome. If other pieces were accepted, the
 * records of the refused pieces count as rejected (OTLP, "Partial Success"). If the outcome were
 * retryable instead, the senders would send all records again, and the accepted records would be
 * delivered twice. */
static void batch_count_refused(struct batch *batch)
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

/* Returns the outcome for the senders: a partial success if only some of the pieces were
 * rejected. */
static struct br_outcome batch_outcome_of(struct batch *batch)
{
    batch_count_refused(batch);
    struct br_outcome outcome = batch->outcome;
    if (!batch->rejection.status && !batch->rejection.text[0] && !batch->n_rejected)
        return outcome;
    if (outcome.verdict != BR_DONE || !batch->any_done) {
        br_outcome_fold(&outcome, &batch->rejection);
        return outcome;
    }
    outcome.n_rejected += batch->n_rejected;
    memcpy(outcome.text, batch->rejection.text, sizeof outcome.text);
    return outcome;
}

static void batch_finish_waiting(struct batch *batch)
{
    struct br_outcome outcome = batch_outcome_of(batch);
    batch_finish_all(&batch->waiting, &outcome, batch->count);
    br_list_remove(&batch->link);
}

static void batch_end(struct batch *batch)
{
    struct br_batcher *batcher = batch->batcher;
    batch_finish_waiting(batch);
    br_free(batch);
    if (batcher && batcher->on_end)
        batcher->on_end(batcher->on_end_arg);
}

static void batch_end_piece(struct batch *batch, struct br_item *item,
                            const struct br_outcome *outcome)
{
    bool ends = !batch->batcher || batch->batcher->node->ending;
    bool kept = item->done == NULL; /* true if the hold has sent this piece */
    if (batch->batcher)
        batch_weigh(batch->batcher, 0, item->weight);
    if (outcome->verdict != BR_DONE)
        br_pending_discard(&item->pending, item->signal);
    if (outcome->verdict == BR_REJECT) {
        batch->n_rejected += item->n_records;
        br_outcome_fold(&batch->rejection, outcome);
    } else if (outcome->verdict == BR_RETRY && kept && !ends) {
        batch->n_refused += item->n_records;
        br_outcome_fold(&batch->refusal, outcome);
    } else {
        batch->any_done = batch->any_done || outcome->verdict == BR_DONE;
        br_outcome_fold(&batch->outcome, outcome);
    }
    batch->n_pieces--;
}

static void batch_check(void *arg)
{
    struct batch *batch = arg;
    if (batch->n_pieces == 0)
        batch_end(batch);
}

static void batch_on_hold_end(struct br_hold *hold, struct br_item *item, void *arg,
                              const struct br_outcome *outcome, const char *reason)
{
    (void)arg;
    (void)reason;
    batch_end_piece(br_container_of(hold, struct batch, hold), item, outcome);
    br_item_done(item);
}

/* With late acknowledgement: creates a hold for the pieces of a batch. The hold retries a refused
 * piece while other pieces are being sent, or after one was accepted. */
static void batch_init_hold(struct batch *batch)
{
    struct br_batcher *batcher = batch->batcher;
    const struct br_hold_config config = {.host = batcher->host,
                                          .next = batcher->next,
                                          .policy = {.order = BR_HOLD_APART,
                                                     .first_delay_ms = AGAIN_FIRST_MS,
                                                     .max_delay_ms = AGAIN_MAX_MS,
                                                     .group = true,
                                                     .max_bytes = BR_HOLD_UNLIMITED,
                                                     .max_age_ms = BR_BATCH_RETRY_MS},
                                          .end = batch_on_hold_end,
                                          .on_end = batch_check,
                                          .arg = batch,
                                          .ending = &batcher->node->ending};
    batch->retries = br_hold_init(&batch->hold, &config);
}

static void batch_on_piece(struct br_item *item, void *arg)
{
    struct batch *batch = arg;
    batch_end_piece(batch, item, &item->outcome);
    batch_check(batch);
}

/* --- Merging --------------------------------------------------------------------------------- */

static size_t batch_merge_bytes(const struct br_batch_config *batch_config)
{
    return batch_config->merge_bytes && batch_config->merge_bytes < MERGE_MAX_BYTES
               ? batch_config->merge_bytes
               : MERGE_MAX_BYTES;
}

/* Updates the memory of the merger in BR_HOLDER_DICTIONARIES. Called after each use of the merger,
 * because br_merge_take moves some of its memory to the batch. */
static void batch_merge_count(struct br_batcher *batcher)
{
    size_t bytes = batcher->merge ? br_merge_memory(batcher->merge) : 0;
    br_mem_hold(BR_HOLDER_DICTIONARIES, (int64_t)bytes - (int64_t)batcher->merge_held);
    batcher->merge_held = bytes;
}

/* Merges the item, and charges the allocations to the memory budget, because clients determine the
 * item's size. */
static int batch_merge_add(struct br_batcher *batcher, struct br_item *item)
{
    struct br_mem_scope scope;
    br_mem_scope_begin(&scope, SIZE_MAX / 2, batcher->host->memory);
    int rc = br_merge_add(batcher->merge, item);
    br_mem_scope_end(&scope);
    batch_merge_count(batcher);
    return rc;
}

static int batch_merge_take(struct br_batcher *batcher)
{
    int rc = br_merge_take(batcher->merge, batcher->gathered);
    batch_merge_count(batcher);
    return rc;
}

static void batch_merge_free(struct br_batcher *batcher)
{
    br_merge_free(batcher->merge);
    batcher->merge = NULL;
    batch_merge_count(batcher);
}

/* --- Making batches ------------------------------------------------------------------------- */

static int batch_add_piece(struct br_item *item, void *arg)
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

/* Divides the pending records and the weight of the batch among its pieces. Returns false if memory
 * is short. */
static bool batch_divide_pending(struct pieces *pieces, struct br_item *whole)
{
    uint32_t n_left = whole->n_records;
    for (struct br_list *list = pieces->items.next; list != &pieces->items; list = list->next) {
        struct br_item *piece = br_container_of(list, struct br_item, link);
        bool last = list->next == &pieces->items;
        if (!br_pending_move(&piece->pending, &whole->pending, piece->n_records))
            return false;
        piece->weight = last || !n_left
                            ? whole->weight
                            : (size_t)((double)whole->weight * piece->n_records / n_left);
        whole->weight -= piece->weight;
        n_left -= piece->n_records < n_left ? piece->n_records : n_left;
    }
    return true;
}

static void batch_undo_pieces(struct pieces *pieces, struct br_item *whole)
{
    struct br_list *list;
    while ((list = br_list_shift(&pieces->items))) {
        struct br_item *piece = br_container_of(list, struct br_item, link);
        (void)br_pending_move(&whole->pending, &piece->pending, piece->n_pending);
        whole->weight += piece->weight;
        br_item_free(piece);
    }
}

/* Divides the gathered data into pieces if it is larger than max_size. Otherwise, or if the pieces
 * would repeat too much data, creates a single piece. Returns 0 or BR_ENOMEM. */
static int batch_make_pieces(struct br_batcher *batcher, struct br_item *whole,
                             struct pieces *pieces)
{
    const struct br_batch_config *batch_config = &batcher->config;
    size_t size = batch_config->bytes ? whole->size : whole->n_records;
    if (!batch_config->max_size || size <= batch_config->max_size)
        return batch_add_piece(whole, pieces);
    uint32_t items = batch_config->bytes ? 0 : (uint32_t)batch_config->max_size;
    size_t bytes = batch_config->bytes ? batch_config->max_size : 0;
    pieces->room = PIECES_TIMES * whole->size + PIECES_BYTES;
    int rc = batcher->signal == BR_TRACES
                 ? br_traces_split(whole, items, bytes, batch_add_piece, pieces)
                 : br_profiles_split(whole, items, bytes, batch_add_piece, pieces);
    if (rc == BR_ENOMEM || (!rc && !batch_divide_pending(pieces, whole))) {
        batch_undo_pieces(pieces, whole);
        return BR_ENOMEM;
    }
    if (rc) {
        batch_undo_pieces(pieces, whole);
        return batch_add_piece(whole, pieces);
    }
    br_item_free(whole);
    return 0;
}

static void batch_on_timer(struct br_timer *timer);

static void batch_send_piece(struct batch *batch, struct br_item *item)
{
    struct br_batcher *batcher = batch->batcher;
    item->sender = batcher->config.late ? BR_SENDER_WAITS : BR_SENDER_OPEN;
    if (batch->retries) {
        if (br_hold_add(&batch->hold, item, NULL) == 0)
            return;
        /* This piece is sent without the hold. The hold is not informed whether this piece is
         * accepted, so the hold must not give up the other pieces in the meantime. */
        br_hold_note_progress(&batch->hold);
    }
    item->done = batch_on_piece;
    item->done_arg = batch;
    if (batcher->config.late)
        item->kind = BR_ITEM_BORROWS;
    if (batcher->config.late)
        br_consume(batcher->next, item);
    else
        br_hold_send(&batcher->sent, item);
}

/* Initializes `batch` with the pieces of the gathered data, and sends them. */
static void batch_send_pieces(struct br_batcher *batcher, struct batch *batch,
                              struct pieces *pieces)
{
    struct br_list *list;
    *batch = (struct batch){.batcher = batcher,
                            .outcome = BR_OUTCOME_DONE,
                            .rejection = BR_OUTCOME_DONE,
                            .refusal = BR_OUTCOME_DONE};
    br_list_init(&batch->waiting);
    while ((list = br_list_shift(&batcher->waiting))) {
        batch->count += br_container_of(list, struct waiting, link)->count;
        br_list_append(&batch->waiting, list);
    }
    br_list_append(&batcher->out, &batch->link);
    for (list = pieces->items.next; list != &pieces->items; list = list->next)
        batch->n_pieces++;
    if (batcher->config.late && batcher->config.again && batch->n_pieces > 1)
        batch_init_hold(batch);
    while ((list = br_list_shift(&pieces->items))) {
        struct br_item *item = br_container_of(list, struct br_item, link);
        if (batcher->sizes)
            br_histogram_observe(batcher->sizes, item->n_records);
        if (batcher->sizes_bytes)
            br_histogram_observe(batcher->sizes_bytes, (double)item->size);
        batch_send_piece(batch, item);
    }
}

/* Creates the item for the data of the next batch, with the configured client metadata. */
static struct br_item *batch_new_item(struct br_batcher *batcher)
{
    struct br_item *item = br_item_new(batcher->host, batcher->signal);
    if (!item || !batcher->config.metadata_len)
        return item;
    item->metadata =
        br_arena_strndup(&item->arena, batcher->config.metadata, batcher->config.metadata_len);
    if (item->metadata)
        return item;
    br_item_free(item);
    return NULL;
}

static void batch_park_timer(struct br_batcher *batcher)
{
    batcher->timing = false;
    (void)br_host_timer_park(batcher->host, &batcher->timer, batch_on_timer);
}

static void batch_start_timer(struct br_batcher *batcher, uint64_t ms)
{
    batcher->timing = true;
    (void)br_host_timer(batcher->host, &batcher->timer, ms, batch_on_timer);
}

static int batch_gather(struct br_batcher *batcher, struct br_item *item,
                        struct br_pending *pending);

/* If the last of several pieces is smaller than min_size, moves its data to the next batch. */
static void batch_keep_remainder(struct br_batcher *batcher, struct pieces *pieces)
{
    struct br_list *list = pieces->items.prev;
    struct br_item *remainder = br_container_of(list, struct br_item, link);
    size_t size = batcher->config.bytes ? remainder->size : remainder->n_records,
           weight = remainder->weight;
    if (list == pieces->items.next || size >= batcher->config.min_size)
        return;
    if (batch_gather(batcher, remainder, &remainder->pending))
        return;                      /* memory is short: send the last piece with the others */
    batch_weigh(batcher, 0, weight); /* batch_gather counted the weight a second time */
    br_list_remove(list);
    br_item_free(remainder);
}

/* Completes the gathered item and divides it into pieces. Returns 0 or an error code. */
static int batch_complete(struct br_batcher *batcher, struct pieces *pieces)
{
    int rc = 0;
    if (batch_merging(batcher) && br_merge_records(batcher->merge))
        rc = batch_merge_take(batcher);
    return rc ? rc : batch_make_pieces(batcher, batcher->gathered, pieces);
}

/* Sends the gathered data as a batch. With SEND_FULL_PIECES and early acknowledgement, a last piece
 * smaller than min_size is left for the next batch. If memory is short, returns false, keeps the
 * data, and starts a timer to try again. */
static bool batch_send(struct br_batcher *batcher, enum sending sending)
{
    batch_park_timer(batcher);
    batcher->due = false;
    if (!batch_gathered_any(batcher))
        return true;
    struct pieces pieces = {.batcher = batcher, .whole = batcher->gathered};
    struct batch *batch = br_calloc(1, sizeof *batch);
    struct br_item *fresh = batch_new_item(batcher);
    br_list_init(&pieces.items);
    if (!batch || !fresh || batch_complete(batcher, &pieces)) {
        br_free(batch);
        br_item_free(fresh);
        batch_start_timer(batcher, NO_MEMORY_MS);
        return false;
    }
    batcher->gathered = fresh;
    if (sending == SEND_FULL_PIECES && !batcher->config.late)
        batch_keep_remainder(batcher, &pieces);
    batch_send_pieces(batcher, batch, &pieces);
    return true;
}

static void batch_on_timer(struct br_timer *timer)
{
    struct br_batcher *batcher = br_container_of(timer, struct br_batcher, timer);
    batch_park_timer(batcher);
    if (!batch_gathered_any(batcher))
        return;
    if (batch_blocked(batcher)) {
        batcher->due = true;
        return;
    }
    if (batcher->by_timeout)
        *batcher->by_timeout += 1;
    (void)batch_send(batcher, SEND_ALL);
}

static void batch_refuse(struct br_item *item, const char *why)
{
    br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, why);
}

/* Returns true if the item must be sent without merging: it is as large as a batch, or merging it
 * would block the worker for too long. */
static bool batch_is_alone(const struct br_batcher *batcher, const struct br_item *item)
{
    size_t size = batcher->config.bytes ? item->size : item->n_records;
    return !batch_blocked(batcher) && item->n_records > 0 &&
           (size >= batcher->config.min_size || item->size > ALONE_BYTES);
}

/* Adds the item's data to the gathered data, and moves the pending records. Returns 0, BR_EFULL if
 * the gathered data must be sent first, or another error of br_merge_add or br_item_absorb. */
static int batch_gather(struct br_batcher *batcher, struct br_item *item,
                        struct br_pending *pending)
{
    if (batcher->merge && !batch_merging(batcher))
        return BR_EFULL; /* the gathered data is a complete batch that could not be sent */
    bool merges = batcher->merge && !batch_is_alone(batcher, item);
    if (batcher->merge && !merges && batch_gathered_any(batcher))
        return BR_EFULL; /* the gathered data has to be sent before this item */
    if (!merges)
        br_item_hold(item, BR_HOLDER_BATCHES);
    int rc = merges ? batch_merge_add(batcher, item) : br_item_absorb(batcher->gathered, item);
    if (rc)
        return rc;
    (void)br_pending_move(&batcher->gathered->pending, pending, pending->n_pending);
    batcher->gathered->weight += item->weight;
    batch_weigh(batcher, item->weight, 0);
    item->weight = 0;
    if (merges) {
        br_item_note_age(batcher->gathered, item);
        br_item_clear_parts(item);
    }
    return 0;
}

/* With late acknowledgement: creates a `struct waiting` for the item, and copies the item's pending
 * records to `ret_pending` for the batch. Returns NULL if memory is short. */
static struct waiting *batch_wait_for(struct br_item *item, struct br_pending *ret_pending)
{
    struct waiting *waiting = br_calloc(1, sizeof *waiting);
    struct br_ledger *exporter = item->pending.exporter;
    if (!waiting)
        return NULL;
    waiting->item = item;
    waiting->count = item->n_records;
    /* The exporter's ledger must count the copy and not the item, or it would count the records
     * twice. */
    item->pending.exporter = NULL;
    waiting->copies = br_copies_open(item, 1);
    if (waiting->copies && br_copies_make(waiting->copies, 0, ret_pending)) {
        ret_pending->exporter = exporter;
        return waiting;
    }
    item->pending.exporter = exporter;
    if (waiting->copies)
        br_copies_return(waiting->copies);
    br_free(waiting);
    return NULL;
}

static void batch_stop_waiting(struct waiting *waiting, struct br_pending *pending)
{
    br_pending_discard(pending, waiting->item->signal);
    br_copies_return(waiting->copies);
    br_free(waiting);
}

/* Adds the item's data to the gathered data. If there is no space, sends the gathered data first.
 * Returns 0 or an error code. */
static int batch_add_item(struct br_batcher *batcher, struct br_item *item)
{
    struct br_pending copied = {0};
    struct waiting *waiting = batcher->config.late ? batch_wait_for(item, &copied) : NULL;
    if (batcher->config.late && !waiting)
        return BR_ENOMEM;
    struct br_pending *pending = waiting ? &copied : &item->pending;
    int rc = batch_gather(batcher, item, pending);
    if (rc == BR_EFULL && batch_gathered_any(batcher) && !batch_blocked(batcher) &&
        batch_send(batcher, SEND_ALL))
        rc = batch_gather(batcher, item, pending);
    if (rc && waiting)
        batch_stop_waiting(waiting, pending);
    else if (waiting)
        br_list_append(&batcher->waiting, &waiting->link);
    return rc;
}

static bool batch_full(const struct br_batcher *batcher)
{
    return batch_gathered_size(batcher) >= batcher->config.min_size;
}

/* Returns true if no batch can be sent now and the gathered data has reached its limit. */
static bool batch_at_limit(const struct br_batcher *batcher)
{
    size_t least = batcher->config.bytes ? BR_BATCH_WAIT_BYTES : BR_BATCH_WAIT_RECORDS;
    return batch_gathered_size(batcher) >=
           (batcher->config.min_size > least ? batcher->config.min_size : least);
}

/* Finishes an item that could not be added. Rejects the item if it is malformed or too large even
 * for an empty batch; otherwise refuses it, so that the sender retries. */
static void batch_fail(const struct br_batcher *batcher, struct br_item *item, int rc)
{
    if (rc == BR_EFULL && !batch_gathered_any(batcher))
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "batch: the request is too large to be merged");
    else if (rc == BR_EFULL)
        batch_refuse(item, "batch: the buffer is full until the next batch is sent");
    else if (rc == BR_ENOMEM)
        batch_refuse(item, "batch: out of memory");
    else
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "batch: malformed data");
}

void br_batcher_add(struct br_batcher *batcher, struct br_item *item)
{
    if (item->n_parts == 0) {
        br_item_done(item);
        return;
    }
    if (batch_blocked(batcher) && batch_at_limit(batcher)) {
        batch_refuse(item, "batch: the next component accepts no batches and the buffer is full");
        return;
    }
    int rc = batch_add_item(batcher, item);
    if (rc) {
        batch_fail(batcher, item, rc);
        return;
    }
    if (!batcher->config.late)
        br_item_done(item);
    if (batch_blocked(batcher)) {
        batcher->due = batcher->due || batch_full(batcher) || batcher->config.timeout_ms == 0;
    } else if (batch_full(batcher) || (batcher->merge && !batch_merging(batcher))) {
        if (batcher->by_size)
            *batcher->by_size += 1;
        (void)batch_send(batcher, SEND_FULL_PIECES);
    } else if (batcher->config.timeout_ms == 0) {
        (void)batch_send(batcher, SEND_ALL);
    }
    if (batch_gathered_any(batcher) && !batcher->timing && !batcher->due)
        batch_start_timer(batcher, batcher->config.timeout_ms);
}

void br_batcher_flush(struct br_batcher *batcher)
{
    (void)batch_send(batcher, SEND_ALL);
}

bool br_batcher_idle(const struct br_batcher *batcher)
{
    return !batch_gathered_any(batcher) &&
           (batcher->config.late ? br_list_empty(&batcher->out) : batcher->sent.n_held == 0);
}

void br_batcher_on_end(struct br_batcher *batcher, void (*fn)(void *arg), void *arg)
{
    batcher->on_end = fn;
    batcher->on_end_arg = arg;
}

static void batch_on_sent_end(void *arg)
{
    struct br_batcher *batcher = arg;
    if (batcher->due && !batch_blocked(batcher))
        (void)batch_send(batcher, SEND_ALL);
}

static double *batch_counter(struct br_node *node, const char *name)
{
    return name ? br_node_metric(node, BR_COUNTER, name, NULL, NULL) : NULL;
}

static void batch_make_metrics(struct br_batcher *batcher, const struct br_batch_metrics *metrics)
{
    struct br_node *node = batcher->node;
    if (!metrics)
        return;
    batcher->by_size = batch_counter(node, metrics->by_size);
    batcher->by_timeout = batch_counter(node, metrics->by_timeout);
    if (metrics->sizes)
        batcher->sizes = br_node_size_histogram(node, metrics->sizes, false);
    if (metrics->sizes_bytes)
        batcher->sizes_bytes = br_node_size_histogram(node, metrics->sizes_bytes, true);
}

struct br_batcher *br_batcher_new(struct br_node *node, enum br_signal signal,
                                  const struct br_batch_config *config, struct br_consumer *next)
{
    struct br_batcher *batcher = br_calloc(1, sizeof *batcher);
    if (!batcher)
        return NULL;
    batcher->node = node;
    batcher->host = node->host;
    batcher->signal = signal;
    batcher->config = *config;
    batcher->next = next;
    br_list_init(&batcher->waiting);
    br_list_init(&batcher->out);
    batcher->metadata = config->metadata_len ? br_malloc(config->metadata_len) : NULL;
    if (batcher->metadata)
        memcpy(batcher->metadata, config->metadata, config->metadata_len);
    batcher->config.metadata = batcher->metadata;
    batcher->gathered = !config->metadata_len || batcher->metadata ? batch_new_item(batcher) : NULL;
    if (signal == BR_PROFILES)
        batcher->merge = br_merge_new(batcher->host, batch_merge_bytes(&batcher->config));
    if (!config->late)
        br_hold_init_for_node(&batcher->sent, node, next, config->final, batch_on_sent_end,
                              batcher);
    if (!batcher->gathered || (signal == BR_PROFILES && !batcher->merge) ||
        !br_host_timer_park(batcher->host, &batcher->timer, batch_on_timer)) {
        batch_merge_free(batcher);
        br_item_free(batcher->gathered);
        br_free(batcher->metadata);
        br_free(batcher);
        return NULL;
    }
    batch_make_metrics(batcher, config->metrics);
    return batcher;
}

void br_batcher_free(struct br_batcher *batcher)
{
    if (!batcher)
        return;
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    batcher->on_end = NULL;
    batch_weigh(batcher, 0, batcher->weight);
    br_host_timer_stop(batcher->host, &batcher->timer);
    br_hold_release(&batcher->sent);
    /* With late acknowledgement: finishes the items whose batches have no final outcome yet. Each
     * batch is freed when its last piece ends. */
    while (!br_list_empty(&batcher->out)) {
        struct batch *batch = br_container_of(batcher->out.next, struct batch, link);
        br_outcome_fold(&batch->outcome, &outcome);
        batch->batcher = NULL;
        if (batch->retries)
            br_hold_close(&batch->hold, &batch->hold.refusal);
        batch_finish_waiting(batch);
        if (batch->n_pieces == 0)
            br_free(batch);
    }
    if (batcher->config.late)
        br_pending_discard(&batcher->gathered->pending, batcher->signal);
    batch_finish_all(&batcher->waiting, &outcome, 0);
    br_node_drop_unsent(batcher->node, batcher->gathered);
    br_item_free(batcher->gathered);
    batch_merge_free(batcher);
    br_free(batcher->metadata);
    br_free(batcher);
}
