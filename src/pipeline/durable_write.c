/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/durable_internal.h"

#include "base/mem.h"
#include "core/pending.h"

/* limits of one write task, in requests and in bytes */
#define GROUP_REQUESTS 1024u
#define GROUP_BYTES (16u << 20)

static struct arrival *arrival_of(struct br_list *link)
{
    return br_container_of(link, struct arrival, link);
}

static void arrival_free(struct arrival *arrival)
{
    br_rope_release(&arrival->data);
    br_item_free(arrival->copy);
    br_free(arrival);
}

/* Refuses a request that was not stored. If the request is still offered, its arrival is freed when
 * the offer ends. */
static void arrival_refuse(struct arrival *arrival, const char *why)
{
    struct br_durable *durable = arrival->durable;
    struct br_item *item = arrival->item;
    arrival->item = NULL;
    if (item && arrival->copy)
        (void)br_pending_move(&item->pending, &arrival->copy->pending, item->n_records);
    if (item)
        br_durable_refuse(durable, item, why);
    if (arrival->attempt) {
        br_rope_release(&arrival->data);
        arrival->state = REFUSED;
        br_list_append(&durable->offered, &arrival->link);
    } else {
        arrival_free(arrival);
    }
}

void br_durable_refuse_arrivals(struct br_durable *durable, struct br_list *list)
{
    struct br_list *link;
    while ((link = br_list_shift(list))) {
        durable->arriving_size -= arrival_of(link)->size;
        arrival_refuse(arrival_of(link), "shutting down");
    }
}

/* Creates arrival->copy, which owns the data after the request was finished. Returns false if
 * memory is short. */
static bool arrival_copy(struct arrival *arrival)
{
    struct br_item *item = arrival->item, *copy = br_item_twin(item);
    if (!copy)
        return false;
    /* this pointer refers to memory of `item`, which is freed before the copy */
    copy->metadata = NULL;
    if (!br_item_keep_metadata(copy, item)) {
        br_item_free(copy);
        return false;
    }
    arrival->copy = copy;
    return true;
}

/* --- Offers before a request is stored -------------------------------------------------------- */

/* Finishes a request that was delivered before it was written. */
static void arrival_delivered_early(struct arrival *arrival)
{
    struct br_durable *durable = arrival->durable;
    uint64_t now_ms = br_host_mono_ms(durable->node->host);
    if (now_ms <= arrival->until_ms)
        br_early_note(&durable->early, true, now_ms);
    durable->arriving_size -= arrival->size;
    br_list_remove(&arrival->link);
    br_item_done(arrival->item);
    arrival_free(arrival);
}

/* Handles the result of an offer of a stored request. Marks the request as done in the log, or adds
 * it to the hold for retries if the outcome is BR_RETRY. */
static void arrival_end_stored(struct arrival *arrival, const struct br_outcome *outcome)
{
    struct br_durable *durable = arrival->durable;
    struct br_item *copy = arrival->copy;
    arrival->copy = NULL;
    if (outcome->verdict == BR_RETRY) {
        br_durable_hold(durable, copy);
        br_hold_start(&durable->hold);
    } else {
        if (outcome->verdict == BR_REJECT)
            br_node_drop(durable->node, copy, "rejected", outcome, &durable->log_limit);
        br_durable_end(durable, copy);
    }
    arrival_free(arrival);
}

static void arrival_on_attempt(struct br_item *attempt, void *arg)
{
    struct arrival *arrival = arg;
    struct br_durable *durable = arrival->durable;
    struct br_item *copy = arrival->copy;
    const struct br_outcome *outcome = &attempt->outcome;
    bool delivered = outcome->verdict == BR_DONE;
    arrival->attempt = NULL;
    durable->n_offered--;
    durable->offered_bytes -= copy->size;
    if (delivered)
        br_node_log_partial(durable->node, copy, outcome, &durable->log_limit);
    switch (arrival->state) {
    case ARRIVED:
        if (delivered) {
            arrival_delivered_early(arrival);
            break;
        }
        copy->outcome = *outcome;
        br_list_remove(&arrival->link);
        br_list_append(&durable->arriving, &arrival->link);
        break;
    case WRITING:
        copy->outcome = *outcome;
        if (delivered) {
            br_wal_delivered(arrival->record);
            br_item_done(arrival->item);
            arrival->item = NULL;
        }
        break;
    case STORED:
        br_list_remove(&arrival->link);
        arrival_end_stored(arrival, outcome);
        break;
    default:
        br_list_remove(&arrival->link);
        arrival->copy = NULL;
        br_item_finish(copy, outcome);
        arrival_free(arrival);
    }
    br_durable_go_on(durable);
}

/* Returns true if a new request may be offered before it is stored: no older request is waiting,
 * there is room in memory, and the last write has not failed. */
static bool durable_may_offer(struct br_durable *durable)
{
    const struct br_hold *hold = &durable->hold;
    bool room = hold->bytes + durable->offered_bytes < DURABLE_MEMORY_MAX &&
                !br_host_over_limit(durable->node->host);
    bool overtakes = hold->n_waiting || hold->paused || br_wal_queue_has_unread(durable->queue);
    return durable->early.wait_ms && room && !overtakes && !durable->failing && !durable->draining;
}

/* Offers the request to the in-memory queue. Returns false if the request may not be offered, or if
 * memory is short. */
static bool arrival_offer(struct arrival *arrival)
{
    struct br_durable *durable = arrival->durable;
    struct br_item *item = arrival->item;
    if (!durable_may_offer(durable) || !arrival_copy(arrival))
        return false;
    struct br_item *copy = arrival->copy;
    (void)br_pending_move(&copy->pending, &item->pending, item->n_records);
    arrival->attempt = br_item_attempt(copy, arrival_on_attempt, arrival);
    if (!arrival->attempt) {
        (void)br_pending_move(&item->pending, &copy->pending, item->n_records);
        return false;
    }
    durable->n_offered++;
    durable->offered_bytes += copy->size;
    br_item_hold(copy, BR_HOLDER_QUEUES);
    br_consume(durable->next, arrival->attempt);
    return true;
}

/* Arms the timer for the first request in `waiting`. */
static void durable_await_due(struct br_durable *durable)
{
    struct br_host *host = durable->node->host;
    uint64_t now_ms = br_host_mono_ms(host);
    if (br_list_empty(&durable->waiting)) {
        (void)br_host_timer_park(host, &durable->due, durable->due.fn);
        return;
    }
    uint64_t until_ms = arrival_of(durable->waiting.next)->until_ms;
    (void)br_host_timer(host, &durable->due, until_ms > now_ms ? until_ms - now_ms : 0,
                        durable->due.fn);
}

void br_durable_end_waits(struct br_durable *durable, bool all)
{
    uint64_t now_ms = br_host_mono_ms(durable->node->host);
    while (!br_list_empty(&durable->waiting)) {
        struct arrival *arrival = arrival_of(durable->waiting.next);
        if (arrival->until_ms > now_ms && !all)
            return;
        if (!all)
            br_early_note(&durable->early, false, now_ms);
        br_list_remove(&arrival->link);
        br_list_append(&durable->arriving, &arrival->link);
    }
}

void br_durable_on_due(struct br_timer *timer)
{
    struct br_durable *durable = br_container_of(timer, struct br_durable, due);
    br_durable_end_waits(durable, false);
    durable_await_due(durable);
    br_durable_go_on(durable);
}

void br_durable_arrive(struct br_durable *durable, struct br_item *item)
{
    struct arrival *arrival = br_calloc(1, sizeof *arrival);
    uint64_t now_ms = br_host_mono_ms(durable->node->host);
    if (!arrival) {
        br_durable_refuse(durable, item, "out of memory");
        return;
    }
    *arrival = (struct arrival){
        .durable = durable, .item = item, .size = br_queue_size_of(durable->config, item)};
    br_list_init(&arrival->link);
    durable->arriving_size += arrival->size;
    bool offered = arrival_offer(arrival);
    arrival->until_ms = offered ? br_early_until(&durable->early, now_ms) : now_ms;
    if (arrival->until_ms == now_ms) {
        br_list_append(&durable->arriving, &arrival->link);
        return;
    }
    bool first = br_list_empty(&durable->waiting);
    br_list_append(&durable->waiting, &arrival->link);
    if (first)
        durable_await_due(durable);
}

/* --- Writing ---------------------------------------------------------------------------------- */

void br_durable_run_write(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    writing->err = (struct br_err){0};
    writing->rc = writing->count
                      ? br_wal_append(writing->wal, writing->records, writing->count, &writing->err)
                      : br_wal_sync(writing->wal, false, &writing->err);
}

/* Counts a request that was stored while it is offered, as both stored and restored. */
static void durable_count_stored(struct br_durable *durable, const struct br_item *item)
{
    struct br_ledger *const ledgers[] = {&durable->node->host->ledger, durable->node->ledger};
    for (size_t i = 0; i < BR_COUNT(ledgers) && ledgers[i]; i++) {
        *ledgers[i]->stored[item->signal] += item->n_records;
        *ledgers[i]->restored[item->signal] += item->n_records;
    }
}

/* Handles a stored request without a current offer. If `keep` is true, the request goes to the
 * hold, or is dropped if the backend has rejected it. Otherwise the request is only in the log, and
 * is read later. */
static void arrival_keep(struct arrival *arrival, bool keep)
{
    struct br_durable *durable = arrival->durable;
    struct br_item *copy = arrival->copy;
    br_item_report(copy, BR_RESULT_STORED, NULL, copy->n_pending);
    if (keep) {
        br_item_restored(copy, durable->node->ledger);
        if (copy->outcome.verdict == BR_REJECT)
            arrival_end_stored(arrival, &copy->outcome);
        else
            arrival_end_stored(arrival, &(struct br_outcome){.verdict = BR_RETRY});
    } else {
        arrival_free(arrival);
    }
}

/* Handles a request that was stored, and answers its sender. */
static void arrival_store(struct arrival *arrival, const struct br_wal_record *record)
{
    struct br_durable *durable = arrival->durable;
    struct br_item *item = arrival->item, *copy = arrival->copy;
    arrival->item = NULL;
    arrival->state = STORED;
    copy->weight = record->frame.payload_len - record->frame.name_len;
    br_durable_set_number(copy, record->number);
    br_rope_release(&arrival->data);
    if (!item) { /* the request was delivered during the write */
        br_wal_done(durable->queue, record->number, copy->signal, copy->n_records, copy->weight);
        arrival_free(arrival);
        return;
    }
    br_item_report(item, BR_RESULT_STORED, NULL, item->n_pending);
    br_item_done(item);
    if (arrival->attempt) {
        durable_count_stored(durable, copy);
        br_list_append(&durable->offered, &arrival->link);
    } else {
        arrival_keep(arrival, record->keep);
    }
}

/* Refuses a request that could not be written, or rejects it if it is too large. */
static void arrival_fail(struct arrival *arrival, const struct br_wal_record *record)
{
    struct br_durable *durable = arrival->durable;
    struct br_item *item = arrival->item;
    const char *why = record->why ? record->why : durable->writing->err.text;
    durable->failing = record->rc != BR_ETOOBIG;
    if (item)
        br_node_warn(durable->node, &durable->refused_limit, "requests are refused: %s", why);
    if (item && record->rc == BR_ETOOBIG) {
        arrival->item = NULL;
        (void)br_pending_move(&item->pending, &arrival->copy->pending, item->n_records);
        br_item_reject(item, BR_STATUS_RESOURCE_EXHAUSTED, why);
    }
    arrival_refuse(arrival, why);
}

static void durable_clear_writing(struct writing *writing)
{
    br_free(writing->arrivals);
    br_free(writing->records);
    br_free(writing->pieces);
    writing->arrivals = NULL;
    writing->records = NULL;
    writing->pieces = NULL;
    writing->count = 0;
    writing->running = false;
}

/* Refuses the requests that durable_take has prepared, because the write cannot begin. */
static void durable_refuse_taken(struct br_durable *durable, const char *why)
{
    struct writing *writing = durable->writing;
    for (size_t i = 0; i < writing->count; i++) {
        durable->arriving_size -= writing->arrivals[i]->size;
        arrival_refuse(writing->arrivals[i], why);
    }
    durable_clear_writing(writing);
}

void br_durable_answer_all(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    if (!writing->task.ran) {
        durable_refuse_taken(durable, "shutting down");
        return;
    }
    for (size_t i = 0; i < writing->count; i++) {
        struct arrival *arrival = writing->arrivals[i];
        durable->arriving_size -= arrival->size;
        if (writing->records[i].rc == 0) {
            durable->failing = false;
            arrival_store(arrival, &writing->records[i]);
        } else {
            arrival_fail(arrival, &writing->records[i]);
        }
    }
    durable_clear_writing(writing);
    br_hold_start(&durable->hold);
}

void br_durable_on_written(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    struct br_durable *durable = writing->durable;
    bool failed = writing->count == 0 && writing->rc;
    if (!durable) {
        br_free(writing);
        return;
    }
    br_durable_answer_all(durable);
    if (failed)
        (void)br_host_timer(durable->node->host, &durable->again, DURABLE_AGAIN_MS,
                            durable->again.fn);
    else
        br_durable_go_on(durable);
}

/* Prepares a request for writing: creates its copy and encodes its data. Returns false if memory is
 * short. */
static bool arrival_prepare(struct arrival *arrival)
{
    return (arrival->copy || arrival_copy(arrival)) &&
           br_item_write(arrival->item, &arrival->data) == 0;
}

/* Fills in the WAL records of the write. The pieces of a record are the client metadata and the
 * slices of the data. Returns false if memory is short. */
static bool durable_fill(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    size_t n_pieces = 0;
    for (size_t i = 0; i < writing->count; i++)
        n_pieces += BR_WAL_PIECES_BEFORE + 1 + writing->arrivals[i]->data.count;
    writing->pieces = br_calloc(n_pieces, sizeof *writing->pieces);
    writing->records = br_calloc(writing->count, sizeof *writing->records);
    if (!writing->pieces || !writing->records)
        return false;
    struct iovec *pieces = writing->pieces;
    uint64_t now_ns = br_host_unix_ns(durable->node->host);
    uint64_t now_ms = br_host_mono_ms(durable->node->host);
    for (size_t i = 0; i < writing->count; i++) {
        struct arrival *arrival = writing->arrivals[i];
        const struct br_item *copy = arrival->copy;
        size_t metadata_len = br_item_metadata_len(copy);
        bool room = durable->hold.bytes + durable->offered_bytes < DURABLE_MEMORY_MAX &&
                    !br_host_over_limit(durable->node->host);
        writing->records[i] = (struct br_wal_record){
            .queue = durable->queue,
            .signal = copy->signal,
            .n_records = copy->n_records,
            .time_ns = now_ns - (copy->received_ms ? now_ms - copy->received_ms : 0) * 1000000,
            .pieces = pieces,
            .n_pieces = BR_WAL_PIECES_BEFORE + 1 + arrival->data.count,
            .metadata_len = metadata_len,
            .keep = room && !durable->draining,
            .held = arrival->attempt != NULL,
        };
        arrival->record = &writing->records[i];
        pieces += BR_WAL_PIECES_BEFORE;
        *pieces++ = (struct iovec){(void *)(uintptr_t)copy->metadata, metadata_len};
        for (uint32_t k = 0; k < arrival->data.count; k++)
            *pieces++ = (struct iovec){(void *)(uintptr_t)arrival->data.slices[k].data,
                                       arrival->data.slices[k].len};
    }
    return true;
}

/* Moves requests from `arriving` to the write task, up to the limits GROUP_REQUESTS and
 * GROUP_BYTES. */
static void durable_take(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    size_t n = 0, bytes = 0;
    for (struct br_list *l = durable->arriving.next;
         l != &durable->arriving && n < GROUP_REQUESTS && bytes < GROUP_BYTES; l = l->next, n++)
        bytes += arrival_of(l)->item->size;
    writing->arrivals = br_calloc(n ? n : 1, sizeof(struct arrival *));
    for (size_t i = 0; i < n && writing->arrivals; i++) {
        struct arrival *arrival = arrival_of(br_list_shift(&durable->arriving));
        if (arrival_prepare(arrival)) {
            arrival->state = WRITING;
            writing->arrivals[writing->count++] = arrival;
            continue;
        }
        durable->arriving_size -= arrival->size;
        arrival_refuse(arrival, "out of memory");
    }
}

void br_durable_write(struct br_durable *durable)
{
    struct writing *writing = durable->writing;
    if (writing->running || !durable->queue)
        return;
    if (br_list_empty(&durable->arriving) && !br_wal_has_unwritten(writing->wal))
        return;
    durable_take(durable);
    if (writing->count && !durable_fill(durable)) {
        durable_refuse_taken(durable, "out of memory");
        return;
    }
    writing->running = true;
    br_task_start(&writing->task);
}

void br_durable_abandon_offers(struct br_durable *durable)
{
    struct br_list *link;
    while ((link = br_list_shift(&durable->offered))) {
        struct arrival *arrival = arrival_of(link);
        br_item_orphan(arrival->attempt, "shutdown");
        arrival->copy = NULL;
        arrival_free(arrival);
    }
}
