/* SPDX-License-Identifier: Apache-2.0 */
#include "core/item.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/memory.h"
#include "core/host.h"
#include "core/pending.h"
#include "wire/protobuf.h"

#define PARTS_MAX (1u << 22)
/* maximum number of bytes that are written before the body of a part: two tags and two lengths */
#define PREFIX_MAX 24

const char *br_signal_name(enum br_signal signal)
{
    return signal == BR_TRACES ? "traces" : "profiles";
}

const char *br_signal_records(enum br_signal signal)
{
    return signal == BR_TRACES ? "spans" : "samples";
}

/* Adds the memory of `count` parts to the counter of BR_HOLDER_ITEMS. A negative `count`
 * subtracts the memory. */
static void item_room_count(int64_t count)
{
    br_mem_hold(BR_HOLDER_ITEMS, count * (int64_t)sizeof(struct br_part));
}

struct br_item *br_item_new(struct br_host *host, enum br_signal signal)
{
    struct br_item *item = br_malloc(sizeof *item);
    if (!item)
        return NULL;
    memset(item, 0, offsetof(struct br_item, outcome));
    item->outcome = BR_OUTCOME_DONE;
    item->done = NULL;
    item->done_arg = NULL;
    item->parent = NULL;
    item->n_children = item->n_refused = item->n_given_up = 0;
    item->state = BR_ITEM_OPEN;
    item->kind = BR_ITEM_WHOLE;
    item->sender = BR_SENDER_OPEN;
    item->piece_accepted = false;
    item->weight = 0;
    item->host = host;
    item->signal = signal;
    br_arena_init(&item->arena, 64u << 20);
    item->arena.holder = BR_HOLDER_ITEMS;
    br_mem_hold(BR_HOLDER_ITEMS, sizeof *item);
    br_list_init(&item->link);
    return item;
}

void br_item_received(struct br_item *item)
{
    struct br_ledger *ledger = &item->host->ledger;
    *ledger->received[item->signal] += item->n_records;
    *ledger->held[item->signal] += item->n_records;
    *ledger->unanswered[item->signal] += item->n_records;
    *ledger->empty[item->signal] += item->n_records == 0;
    item->n_pending = item->received_records = item->n_records;
    item->received_ms = br_host_mono_ms(item->host);
}

void br_item_restored(struct br_item *item, struct br_ledger *exporter)
{
    struct br_ledger *const ledgers[] = {&item->host->ledger, exporter};
    for (size_t i = 0; i < BR_COUNT(ledgers) && ledgers[i]; i++) {
        *ledgers[i]->restored[item->signal] += item->n_records;
        *ledgers[i]->held[item->signal] += item->n_records;
    }
    item->n_pending = item->received_records = item->n_records;
    item->pending.exporter = exporter;
    item->sender = BR_SENDER_ANSWERED;
}

void br_item_answered(const struct br_item *item)
{
    *item->host->ledger.unanswered[item->signal] -= item->received_records;
}

static void item_part_ref(const struct br_part *part)
{
    if (part->buf)
        br_buf_ref(part->buf);
    if (part->new_resource_buf)
        br_buf_ref(part->new_resource_buf);
}

static void item_part_unref(struct br_part *part)
{
    br_buf_unref(part->buf);
    br_buf_unref(part->new_resource_buf);
}

static void item_hold(struct br_buf *buf, enum br_holder holder)
{
    if (buf)
        br_buf_hold(buf, holder);
}

void br_item_hold(struct br_item *item, enum br_holder holder)
{
    for (uint32_t i = 0; i < item->n_parts; i++) {
        item_hold(item->parts[i].buf, holder);
        item_hold(item->parts[i].new_resource_buf, holder);
    }
    item_hold(item->spans_buf, holder);
}

static void item_adopt(struct br_buf *buf, struct br_pool *from, struct br_pool *to)
{
    if (buf && buf->pool == from)
        br_buf_adopt(buf, to);
}

void br_item_move(struct br_item *item, struct br_host *host)
{
    struct br_pool *from = item->host->pool;
    item->host = host;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        item_adopt(item->parts[i].buf, from, host->pool);
        item_adopt(item->parts[i].new_resource_buf, from, host->pool);
    }
    item_adopt(item->spans_buf, from, host->pool);
}

/* Grows the array of parts to at least `need` parts. */
static int item_room_for(struct br_item *item, size_t need)
{
    uint32_t before = item->cap_parts;
    int rc = br_grow(&item->parts, &item->cap_parts, need, sizeof *item->parts, PARTS_MAX);
    item_room_count((int64_t)item->cap_parts - before);
    return rc;
}

int br_item_add_part(struct br_item *item, const struct br_part *part)
{
    if (item->n_parts == item->cap_parts) {
        int rc = item_room_for(item, (size_t)item->n_parts + 1);
        if (rc)
            return rc;
    }
    item_part_ref(part);
    item->parts[item->n_parts++] = *part;
    item->n_records += part->n_records;
    item->size += br_part_size(part);
    return 0;
}

/* Moves pending records from `from` to `item`, at most as many as `item` has records. */
static void item_take_pending(struct br_item *item, struct br_item *from)
{
    (void)br_pending_move(&item->pending, &from->pending, item->n_records);
}

void br_item_forget_spans(struct br_item *item)
{
    item->spans = NULL;
    item->spans_buf = br_buf_unref(item->spans_buf);
}

void br_item_note_age(struct br_item *into, const struct br_item *from)
{
    bool older = into->received_ms == 0 || from->received_ms < into->received_ms;
    if (from->received_ms && older)
        into->received_ms = from->received_ms;
}

int br_item_absorb(struct br_item *into, struct br_item *from)
{
    if (into->n_parts == 0) {
        br_free(into->parts);
        item_room_count(-(int64_t)into->cap_parts);
        into->parts = from->parts;
        into->cap_parts = from->cap_parts;
        from->parts = NULL;
        from->cap_parts = 0;
    } else {
        int rc = item_room_for(into, (size_t)into->n_parts + from->n_parts);
        if (rc)
            return rc;
        if (from->n_parts)
            memcpy(into->parts + into->n_parts, from->parts, from->n_parts * sizeof *from->parts);
    }
    into->n_parts += from->n_parts;
    into->n_records += from->n_records;
    into->size += from->size;
    br_item_note_age(into, from);
    (void)br_pending_move(&into->pending, &from->pending, from->n_pending);
    from->n_parts = from->n_records = 0;
    from->size = 0;
    /* The lists of spans of `into` and `from` no longer match their parts. The list of `from` is
     * freed at once, because `from` may exist until `into` is delivered. */
    br_item_forget_spans(into);
    br_item_forget_spans(from);
    return 0;
}

size_t br_item_metadata_len(const struct br_item *item)
{
    const char *end = item->metadata;
    while (end && *end) {
        const char *value = end + strlen(end) + 1;
        end = value + strlen(value) + 1;
    }
    return end ? (size_t)(end - item->metadata) + 1 : 0;
}

bool br_item_keep_metadata(struct br_item *into, const struct br_item *from)
{
    size_t len = br_item_metadata_len(from);
    if (!len)
        return true;
    into->metadata = br_arena_strndup(&into->arena, from->metadata, len - 1);
    return into->metadata != NULL;
}

const char *br_item_metadata(const struct br_item *item, const char *key)
{
    const char *p = item->metadata;
    while (p && *p) {
        const char *value = p + strlen(p) + 1;
        if (strcasecmp(p, key) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return NULL;
}

void br_item_set_resource(struct br_item *item, struct br_part *part, struct br_buf *buf,
                          const uint8_t *data, size_t len)
{
    item->size -= br_part_size(part);
    if (buf)
        br_buf_ref(buf);
    br_buf_unref(part->new_resource_buf);
    part->new_resource_buf = buf;
    part->new_resource = data;
    part->new_resource_len = (uint32_t)len;
    item->size += br_part_size(part);
}

void br_item_clear_parts(struct br_item *item)
{
    for (uint32_t i = 0; i < item->n_parts; i++)
        item_part_unref(&item->parts[i]);
    br_free(item->parts);
    item->parts = NULL;
    item_room_count(-(int64_t)item->cap_parts);
    item->n_parts = item->cap_parts = item->n_records = 0;
    item->size = 0;
    item->spans = NULL;
}

const uint8_t *br_part_resource(const struct br_part *part, size_t *ret_len)
{
    if (part->new_resource) {
        *ret_len = part->new_resource_len;
        return part->new_resource;
    }
    *ret_len = part->res_at + part->res_len - part->res_body_at;
    return part->raw + part->res_body_at;
}

/* Returns the length of the part's body after its Resource has been replaced. */
static size_t item_new_body_len(const struct br_part *part)
{
    return part->raw_len - part->body_at - part->res_len +
           br_len_size(BR_RESOURCES_RESOURCE, part->new_resource_len);
}

size_t br_part_size(const struct br_part *part)
{
    return part->new_resource ? br_len_size(BR_REQUEST_RESOURCES, item_new_body_len(part))
                              : part->raw_len;
}

/* Appends the part to `out`. `prefix` points to PREFIX_MAX free bytes in `prefixes`, and is
 * advanced. */
static int item_write_part(const struct br_part *part, struct br_buf *prefixes, uint8_t **prefix,
                           struct br_rope *out)
{
    if (!part->new_resource)
        return br_rope_add(out, part->buf, part->raw, part->raw_len);
    uint8_t *start = *prefix;
    uint8_t *p = br_put_varint(start, BR_TAG(BR_REQUEST_RESOURCES, BR_WIRE_LEN));
    p = br_put_varint(p, item_new_body_len(part));
    p = br_put_varint(p, BR_TAG(BR_RESOURCES_RESOURCE, BR_WIRE_LEN));
    p = br_put_varint(p, part->new_resource_len);
    *prefix = p;
    const uint8_t *after = part->raw + part->res_at + part->res_len;
    const uint8_t *end = part->raw + part->raw_len;
    const uint8_t *body = part->raw + part->body_at;
    size_t before = part->res_len ? part->res_at - part->body_at : 0;
    if (!part->res_len)
        after = body;
    int rc = br_rope_add(out, prefixes, start, (size_t)(p - start));
    if (!rc)
        rc = br_rope_add(out, part->new_resource_buf, part->new_resource, part->new_resource_len);
    if (!rc)
        rc = br_rope_add(out, part->buf, body, before);
    if (!rc)
        rc = br_rope_add(out, part->buf, after, (size_t)(end - after));
    return rc;
}

static int item_write_body(const struct br_part *part, struct br_rope *out)
{
    return br_rope_add(out, part->buf, part->raw + part->body_at, part->raw_len - part->body_at);
}

/* Appends a dictionary and all additions as one field, because peers expect one dictionary. */
static int item_write_dictionary(const struct br_part *parts, uint32_t count, uint32_t base,
                                 struct br_buf *prefixes, uint8_t **prefix, struct br_rope *out)
{
    size_t len = 0;
    for (uint32_t i = 0; i < count; i++)
        if (i == base || parts[i].additions)
            len += parts[i].raw_len - parts[i].body_at;
    uint8_t *start = *prefix, *p = br_put_varint(start, BR_TAG(BR_REQUEST_DICTIONARY, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    *prefix = p;
    int rc = br_rope_add(out, prefixes, start, (size_t)(p - start));
    if (!rc)
        rc = item_write_body(&parts[base], out);
    for (uint32_t i = 0; i < count && !rc; i++)
        if (i != base && parts[i].additions)
            rc = item_write_body(&parts[i], out);
    return rc;
}

/* Returns the index of the dictionary that the additions extend. Entries are numbered through all
 * dictionaries, and the additions continue after the last one, so they extend the last dictionary.
 * If the item has only additions, returns the index of the first addition. */
static uint32_t item_base_of_additions(const struct br_part *parts, uint32_t count)
{
    uint32_t base = UINT32_MAX, first = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].kind != BR_PART_DICTIONARY)
            continue;
        if (!parts[i].additions)
            base = i;
        else if (first == UINT32_MAX)
            first = i;
    }
    if (first == UINT32_MAX)
        return UINT32_MAX;
    return base == UINT32_MAX ? first : base;
}

static int item_write_parts(const struct br_part *parts, uint32_t count, struct br_pool *pool,
                            struct br_rope *out)
{
    uint32_t dictionary = item_base_of_additions(parts, count);
    size_t edited = dictionary != UINT32_MAX;
    for (uint32_t i = 0; i < count; i++)
        edited += parts[i].new_resource != NULL;
    struct br_buf *prefixes = NULL;
    uint8_t *prefix = NULL;
    if (edited) {
        prefixes = br_buf_new(pool, edited * PREFIX_MAX);
        if (!prefixes)
            return BR_ENOMEM;
        prefix = prefixes->data;
    }
    int rc = 0;
    for (uint32_t i = 0; i < count && !rc; i++) {
        if (i == dictionary)
            rc = item_write_dictionary(parts, count, i, prefixes, &prefix, out);
        else if (!parts[i].additions)
            rc = item_write_part(&parts[i], prefixes, &prefix, out);
    }
    br_buf_unref(prefixes);
    return rc;
}

int br_item_write(const struct br_item *item, struct br_rope *out)
{
    return item_write_parts(item->parts, item->n_parts, item->host->pool, out);
}

struct br_item *br_item_twin(const struct br_item *item)
{
    struct br_item *twin = br_item_new(item->host, item->signal);
    size_t bytes = item->n_parts * sizeof *item->parts;
    if (twin)
        twin->parts = br_malloc(bytes);
    if (!twin || !twin->parts) {
        br_item_free(twin);
        return NULL;
    }
    if (bytes)
        memcpy(twin->parts, item->parts, bytes);
    twin->n_parts = twin->cap_parts = item->n_parts;
    item_room_count(item->n_parts);
    for (uint32_t i = 0; i < item->n_parts; i++)
        item_part_ref(&item->parts[i]);
    twin->n_records = item->n_records;
    twin->size = item->size;
    twin->spans = item->spans;
    twin->spans_buf = item->spans_buf ? br_buf_ref(item->spans_buf) : NULL;
    twin->metadata = item->metadata;
    twin->received_records = item->received_records;
    twin->received_ms = item->received_ms;
    twin->sender = item->sender;
    return twin;
}

/* Sets the parent of a child, and copies the fields that the child inherits from it. */
static void item_inherit(struct br_item *child, struct br_item *parent, enum br_item_kind kind)
{
    child->kind = kind;
    child->parent = parent;
    child->received_ms = parent->received_ms;
    child->sender = parent->sender;
    child->pending.exporter = parent->pending.exporter;
}

struct br_item *br_item_attempt(struct br_item *item, br_item_done_fn *done, void *arg)
{
    struct br_item *child = br_item_twin(item);
    if (!child)
        return NULL;
    item_inherit(child, item, BR_ITEM_ATTEMPT);
    item_take_pending(child, item);
    child->done = done;
    child->done_arg = arg;
    return child;
}

static void item_on_orphan(struct br_item *child, void *reason)
{
    struct br_item *item = child->parent;
    br_item_report(item, BR_RESULT_DROPPED, reason, item->n_pending);
    br_item_done(item);
}

void br_item_orphan(struct br_item *attempt, const char *reason)
{
    attempt->done = item_on_orphan;
    attempt->done_arg = (void *)(uintptr_t)reason;
}

void br_item_adopt(struct br_item *item, struct br_item *piece)
{
    item_inherit(piece, item, BR_ITEM_PIECE);
    item_take_pending(piece, item);
    if (item->n_children++ == 0)
        item->outcome = BR_OUTCOME_DONE;
}

void br_item_report(struct br_item *item, enum br_result result, const char *reason, uint32_t count)
{
    if (count > item->n_pending)
        count = item->n_pending;
    if (count == 0)
        return;
    for (struct br_item *up = item; up && result == BR_RESULT_SENT; up = up->parent)
        up->n_sent += count;
    br_pending_report(&item->pending, item->host, item->signal, result, reason, count);
}

static void item_report_rest(struct br_item *item)
{
    const struct br_outcome *outcome = &item->outcome;
    if (outcome->verdict == BR_DONE) {
        br_item_report(item, BR_RESULT_DROPPED, "partial_success", outcome->n_rejected);
        br_item_report(item, BR_RESULT_SENT, NULL, item->n_pending);
    } else if (item->kind == BR_ITEM_BORROWS) {
        return;
    } else if (item->parent) {
        struct br_ledger *exporter = item->parent->pending.exporter;
        if (!item->pending.exporter)
            /* a batch with late acknowledgement has removed the records from the exporter's
             * ledger */
            br_pending_enter(&item->pending, item->signal, exporter);
        else if (item->pending.exporter != exporter)
            br_pending_leave(&item->pending, item->signal);
        (void)br_pending_move(&item->parent->pending, &item->pending, item->n_pending);
    } else {
        br_item_report(item, BR_RESULT_REJECTED, NULL, item->n_pending);
    }
}

void br_item_finish(struct br_item *item, const struct br_outcome *outcome)
{
    assert(item->state != BR_ITEM_FINISHED);
    item->state = BR_ITEM_FINISHED;
    if (outcome != &item->outcome)
        item->outcome = *outcome;
    item_report_rest(item);
    br_list_append(&item->host->finished, &item->link);
}

void br_item_done(struct br_item *item)
{
    br_item_finish(item, &BR_OUTCOME_DONE);
}

void br_item_retry(struct br_item *item, enum br_status status, uint32_t delay_ms, const char *why)
{
    struct br_outcome outcome = br_outcome_retry(status, delay_ms, "%s", why);
    br_item_finish(item, &outcome);
}

void br_item_reject(struct br_item *item, enum br_status status, const char *why)
{
    struct br_outcome outcome = br_outcome_reject(status, "%s", why);
    br_item_finish(item, &outcome);
}

double br_item_share(const struct br_item *item)
{
    const struct br_item *whole = item;
    while (whole->parent)
        whole = whole->parent;
    return whole->n_records > item->n_records ? (double)item->n_records / whole->n_records : 1;
}

static void item_release(struct br_item *item, enum br_item_state state)
{
    item->state = state;
    if (item->n_children == 0)
        br_item_finish(item, &item->outcome);
}

void br_item_release_parent(struct br_item *item)
{
    item_release(item, BR_ITEM_ENDS_AS_WORST);
}

void br_item_release_pieces(struct br_item *item)
{
    item_release(item, BR_ITEM_ENDS_AS_PART);
}

void br_item_free(struct br_item *item)
{
    if (!item)
        return;
    br_item_report(item, BR_RESULT_REJECTED, NULL, item->n_pending);
    br_item_clear_parts(item);
    br_item_forget_spans(item);
    br_arena_release(&item->arena);
    br_mem_hold(BR_HOLDER_ITEMS, -(int64_t)sizeof *item);
    br_free(item);
}

void br_item_edit_begin(struct br_mem_scope *scope, const struct br_item *item)
{
    br_mem_scope_begin(scope, BR_EDIT_GROWTH * item->size + BR_EDIT_ROOM, item->host->memory);
}

int br_item_edit_end(struct br_mem_scope *scope, int rc)
{
    br_mem_scope_end(scope);
    if (rc != BR_ENOMEM)
        return rc;
    bool never =
        scope->refused && scope->memory && scope->wanted > br_memory_largest(scope->memory);
    return scope->full || never ? BR_EFULL : rc;
}

void br_item_edit_fail(struct br_item *item, int rc, const char *name, const char *full)
{
    char text[sizeof item->outcome.text];
    bool rejects = rc == BR_EFULL || rc == BR_EINVAL;
    const char *why = rc == BR_EFULL ? full : "malformed data";
    (void)snprintf(text, sizeof text, "%s: %s", name, rejects ? why : "out of memory");
    if (rejects)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, text);
    else
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, text);
}

/* Merges the outcome of a piece into the outcome of the parent. BR_RETRY overrides BR_REJECT: if
 * one piece can be accepted later, the sender should send the whole request again. */
static void item_fold_piece(struct br_item *parent, const struct br_item *piece)
{
    struct br_outcome *into = &parent->outcome;
    const struct br_outcome *outcome = &piece->outcome;
    uint32_t n_rejected = into->n_rejected;
    if (outcome->verdict == BR_DONE)
        parent->piece_accepted = true;
    else if (outcome->verdict == BR_REJECT)
        parent->n_refused += piece->n_records;
    else
        parent->n_given_up += piece->n_records;
    if (outcome->verdict == BR_REJECT && into->verdict == BR_RETRY)
        return;
    if (outcome->verdict == BR_RETRY && into->verdict == BR_REJECT) {
        *into = *outcome;
        into->n_rejected = n_rejected;
        return;
    }
    br_outcome_fold(into, outcome);
}

/* Reports the records of the pieces that were not accepted, and changes the parent's outcome to a
 * partial success. */
static void item_lose_pieces(struct br_item *parent)
{
    struct br_outcome *outcome = &parent->outcome;
    uint64_t lost = (uint64_t)parent->n_refused + parent->n_given_up + outcome->n_rejected;
    br_item_report(parent, BR_RESULT_DROPPED, "retries_exhausted", parent->n_given_up);
    outcome->verdict = BR_DONE;
    outcome->status = BR_STATUS_OK;
    outcome->delay_ms = 0;
    outcome->n_rejected = lost < parent->n_records ? (uint32_t)lost : parent->n_records;
}

/* Merges the outcome of a completed piece into the outcome of the parent. Finishes the parent if
 * this was its last piece and the parent was already released. */
static void item_complete_piece(struct br_item *parent, const struct br_item *piece)
{
    item_fold_piece(parent, piece);
    bool last = --parent->n_children == 0;
    if (!last || parent->state == BR_ITEM_OPEN || parent->state == BR_ITEM_FINISHED)
        return;
    if (parent->piece_accepted && (parent->state == BR_ITEM_ENDS_AS_PART || !parent->n_given_up))
        item_lose_pieces(parent);
    br_item_finish(parent, &parent->outcome);
}

void br_item_complete(struct br_item *item)
{
    struct br_item *parent = item->parent;
    if (item->done)
        item->done(item, item->done_arg);
    if (item->kind == BR_ITEM_PIECE)
        item_complete_piece(parent, item);
    br_item_free(item);
}
