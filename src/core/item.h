/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An item is what flows through a pipeline: an OTLP export request of one signal, as ranges of
 * reference-counted buffers, with an arena and exactly one outcome.
 *
 * An export request of either signal is a list of top-level fields. Each becomes a part: a
 * ResourceSpans or ResourceProfiles, the profiles dictionary, or a field that we do not know. A
 * part keeps the very bytes that came, and beside them, where a processor changed it, a new
 * Resource; untouched parts leave byte for byte as they came. Concatenated requests are a request,
 * so a batch of traces is nothing but the parts of its items.
 *
 * Who answers for the items (spans or samples) is kept by number: `n_held` is what this item owes
 * the ledger. It moves with the data (br_item_absorb), and is settled as sent, rejected or dropped
 * by whoever decides; br_item_finish settles what is left by the outcome. pending.h has the rest.
 *
 * Rules: consume(item) always takes the item. An item is finished exactly once. Finishing records
 * the outcome and queues the callback for the end of the loop turn; it never calls back at once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/mem.h"
#include "core/outcome.h"

struct br_host;
struct br_item;
struct br_ledger;
struct br_copied;
struct br_sample_types;

enum br_signal { BR_TRACES, BR_PROFILES };
#define BR_SIGNALS 2

/* Return "traces" or "profiles"; "spans" or "samples", which is what their items are. */
/* OTLP counts whole profiles as rejected, where we count samples. Returns what `part` of `whole` is
 * of `other`, rounded up: each of them that may be meant. All where `part` is no less than `whole`.
 */
static inline uint32_t br_signal_share(uint32_t part, uint32_t whole, uint32_t other)
{
    if (part >= whole)
        return part ? other : 0;
    return (uint32_t)(((uint64_t)part * other + whole - 1) / whole);
}

const char *br_signal_name(enum br_signal signal);
const char *br_signal_items(enum br_signal signal);

enum br_part_kind {
    BR_PART_RESOURCE,   /* ResourceSpans or ResourceProfiles, field 1 */
    BR_PART_DICTIONARY, /* ProfilesDictionary, field 2 of a profiles request */
    BR_PART_OTHER,      /* a field that the schema does not know */
};

/* Fields that an item writes itself: of ExportTraceServiceRequest and ExportProfilesServiceRequest,
 * and the Resource of ResourceSpans and ResourceProfiles. otlp/fields.h has all others. */
enum { BR_REQUEST_RESOURCES = 1, BR_REQUEST_DICTIONARY = 2 };
enum { BR_RESOURCES_RESOURCE = 1 };

struct br_part {
    enum br_part_kind kind;
    bool additions;     /* DICTIONARY: further entries, which go on the wire as part of the first */
    uint32_t n_items;   /* spans or samples in it */
    struct br_buf *buf; /* keeps `raw` alive */
    const uint8_t *raw; /* tag, length and body, as they came */
    uint32_t raw_len;
    uint32_t body_at;     /* where the body starts in `raw` */
    uint32_t res_at;      /* RESOURCE: where its Resource field starts (the tag), from `raw` ... */
    uint32_t res_len;     /* ... and its length with tag; 0: it has none */
    uint32_t res_body_at; /* where the Resource message itself starts, from `raw` */
    uint32_t outline_at;  /* DICTIONARY: where its outline is, from `raw`
                             (otlp/dictionary/outline.h);  0: it has none */
    struct br_buf *new_resource_buf;
    const uint8_t *new_resource; /* replaces the Resource message; NULL: unchanged */
    uint32_t new_resource_len;
};

/* Of a span what tells it apart and places it. An id of zeros is none: it is not valid on the wire
 * (trace.proto, Span.trace_id and span_id). */
struct br_span_head {
    uint8_t trace_id[16];
    uint64_t span_id, parent_id; /* bytes as on the wire */
    uint64_t start_ns, end_ns;
};

static inline bool br_span_has_trace(const struct br_span_head *head)
{
    static const uint8_t none[16];
    return memcmp(head->trace_id, none, sizeof none) != 0;
}

/* A span as the walk found it; every pointer into its part's bytes. Made only where a consumer
 * asked for it (br_component.wants_spans). */
struct br_span {
    struct br_span_head head;
    const uint8_t *body;
    const uint8_t *name;
    const uint8_t *thread_id, *thread_name;  /* the values (AnyValue) of the last attributes with
                                                these keys; NULL: there is none */
    uint32_t thread_id_len, thread_name_len; /* where there is one */
    uint32_t body_len, name_len;
    uint32_t part;  /* index of its part in the item */
    uint8_t kind;   /* Span.SpanKind */
    uint8_t status; /* Status.StatusCode */
};

/* What is owed to the ledger, and through whom (pending.h). All zero: nothing. */
struct br_pending {
    uint32_t n_pending;         /* spans or samples */
    uint32_t n_copied;          /* of these, owed to fan-outs; the rest to the worker's ledger */
    struct br_copied *copied;   /* to which fan-outs */
    struct br_ledger *exporter; /* the ledger of the exporter that has the data; NULL: none has */
};

/*
 * The delivery state of an item:
 *
 * | state         | event                     | next state    | effect                           |
 * |---------------|---------------------------|---------------|----------------------------------|
 * | OPEN          | br_item_adopt             | OPEN          | n_children + 1                   |
 * | OPEN          | br_item_finish            | FINISHED      | outcome and pending records are  |
 * |               |                           |               | reported; queued for completion  |
 * | OPEN          | br_item_release_parent    | ENDS_AS_WORST | FINISHED if it has no children   |
 * | OPEN          | br_item_release_pieces    | ENDS_AS_PART  | FINISHED if it has no children   |
 * | ENDS_AS_WORST | its last child completes  | FINISHED      | as by br_item_finish             |
 * | ENDS_AS_PART  | its last child completes  | FINISHED      | as by br_item_finish             |
 * | any but OPEN  | br_item_finish by anybody |               | not allowed                      |
 * | FINISHED      | br_item_complete          | (freed)       | callback, then the parent's step |
 */
enum br_item_state {
    BR_ITEM_OPEN,
    BR_ITEM_ENDS_AS_WORST, /* pieces that ended as BR_RETRY make the item end as BR_RETRY */
    BR_ITEM_ENDS_AS_PART,  /* the same pieces are part of what was rejected, if one was accepted */
    BR_ITEM_FINISHED,
};

/* Who reports the pending records of an item that does not end as BR_DONE, and whether the parent
 * gets the outcome. */
enum br_item_kind {
    BR_ITEM_WHOLE,   /* no parent: the records are rejected */
    BR_ITEM_PIECE,   /* a part of its parent, which takes the records back and folds the outcome */
    BR_ITEM_ATTEMPT, /* a try at its parent, which takes the records back; the callback gets the
                        outcome */
    BR_ITEM_BORROWS, /* no parent: the records stay in the item, for its callback to take */
};

/* What the sender of the data is waiting for. */
enum br_sender {
    BR_SENDER_OPEN,     /* an answer, which comes when the item ends; it may end before delivery */
    BR_SENDER_WAITS,    /* the delivery: no component may finish the item before */
    BR_SENDER_ANSWERED, /* nothing: it has been answered */
};

typedef void br_item_done_fn(struct br_item *item, void *arg);

struct br_item {
    struct br_host *host;
    enum br_signal signal;
    uint32_t n_items; /* spans or samples in its parts */
    uint32_t n_sent; /* of those that it had, settled as sent, by itself, its attempts and pieces */
    union {
        struct br_pending pending;
        uint32_t n_pending; /* pending.n_pending */
    };
    uint32_t n_parts, cap_parts;
    struct br_part *parts;
    size_t size; /* bytes of the parts, as on the wire; but additions count with their own tags and
                    lengths, which the wire has not: a few bytes more than br_item_write writes,
                    never less */
    struct br_span *spans;    /* n_items of them in order, in spans_buf; or NULL */
    struct br_buf *spans_buf; /* or NULL */
    struct br_arena arena;
    uint32_t received_items; /* n_items when it was received */
    uint32_t n_profiles;     /* profiles: Profile messages that the walk found; 0: not known */
    bool odd_times;          /* profiles: the walk found times before 1971 (otlp/edit/times.h) */
    uint64_t received_ms;    /* monotonic */
    /* Profiles, from a receiver until it has counted them: samples by their type
     * (otlp/sample_types.h); in the arena. NULL: not known. */
    const struct br_sample_types *sample_types;
    const char *metadata; /* client metadata that processors asked for (br_component.metadata_keys),
                             or NULL: name\0value\0 pairs, ended by an empty name; in the arena */
    struct br_outcome outcome; /* valid once finished */
    br_item_done_fn *done;     /* set by who made the item; NULL: nobody waits */
    void *done_arg;
    struct br_item *parent;         /* folds our outcome into its own; NULL: none */
    uint32_t n_children;            /* unfinished ones */
    uint32_t n_refused, n_given_up; /* items in pieces that ended as BR_REJECT, and as BR_RETRY */
    enum br_item_state state;
    enum br_item_kind kind;
    enum br_sender sender;
    bool piece_accepted; /* a piece ended as BR_DONE */
    size_t weight;       /* what it counts for in the queue that holds it; moved by batchers */
    struct br_list link; /* for whoever holds the item; then the host's queue of finished ones */
};

/* Moves the item, which a thread made with a host and a pool of its own and which is in no pipeline
 * yet, with its buffers to `host`. */
void br_item_move(struct br_item *item, struct br_host *host);

/* Says what the payload of the item is held for from now on: the buffers of its parts count for
 * `holder`. */
void br_item_hold(struct br_item *item, enum br_holder holder);

/* Returns a new, empty item without ledger debt, which the caller owns. NULL when there is no
 * memory. */
struct br_item *br_item_new(struct br_host *host, enum br_signal signal);

/* Enters the item's n_items into the ledger as received, in a request that is not answered yet;
 * from then on it owes them. */
void br_item_received(struct br_item *item);

/* Notes that the sender of an item that was received has its answer, or expects none. Called once
 * for each. */
void br_item_answered(const struct br_item *item);

/* Appends a part; takes a reference of its own on its buffers and adds to n_items and size. Returns
 * 0, BR_ENOMEM, or BR_EFULL where there are four million. */
int br_item_add_part(struct br_item *item, const struct br_part *part);

/* Moves all parts, and the ledger debt, of `from` to the end of `into`; `from` is left empty, to be
 * finished. Neither has spans afterwards. Returns 0, BR_ENOMEM or BR_EFULL as above; on failure
 * nothing moved. */
int br_item_absorb(struct br_item *into, struct br_item *from);

/* Returns the bytes of the metadata, with the empty name that ends it; 0: it has none. */
size_t br_item_metadata_len(const struct br_item *item);

/* Gives `into`, which has none, a copy of the client metadata of `from`. False when there is no
 * memory. */
bool br_item_keep_metadata(struct br_item *into, const struct br_item *from);

/* Returns the value of a key of the item's metadata (in any case), or NULL. */
const char *br_item_metadata(const struct br_item *item, const char *key);

/* Replaces the Resource message of a part. Takes a reference of its own on `buf` (which holds
 * `data`); len may be 0. Never fails. */
void br_item_set_resource(struct br_item *item, struct br_part *part, struct br_buf *buf,
                          const uint8_t *data, size_t len);

/* Drops all parts; n_items and size become 0. The ledger debt stays. */
void br_item_clear_parts(struct br_item *item);

/* Gives up the list of spans; the parts stay. */
void br_item_forget_spans(struct br_item *item);

/* Returns the Resource message of a part (its replacement where there is one). `*ret_len` may be 0.
 */
const uint8_t *br_part_resource(const struct br_part *part, size_t *ret_len);

/* Returns the bytes a part takes on the wire. */
size_t br_part_size(const struct br_part *part);

/* Appends all parts of an item to a rope as they go on the wire. Returns 0 or BR_ENOMEM (some may
 * have been appended). */
int br_item_write(const struct br_item *item, struct br_rope *out);

/* Returns an item without parent and without debt that refers to all parts of `item`. Its metadata
 * is that of `item`, and borrowed as long as it lives. NULL when there is no memory. */
struct br_item *br_item_twin(const struct br_item *item);

/* Returns a child that shares all parts and takes all debt, for one try at delivering `item`:
 * `done` is called with its outcome, which is not folded into the parent's; unless BR_DONE, the
 * debt is back by then. NULL when there is no memory. */
struct br_item *br_item_attempt(struct br_item *item, br_item_done_fn *done, void *arg);

/* Gives up waiting for an attempt that has not been completed: its callback is not called; instead
 * the item that it is a try at ends with it, and what that then owes is dropped for `reason` (a
 * constant). */
void br_item_orphan(struct br_item *attempt, const char *reason);

/* Makes `piece`, a twin of `item` or a part of its data, its child and gives it its share of the
 * debt. The parent is finished when its last child is and br_item_release_parent was called: as
 * BR_RETRY if one child is, else as BR_DONE if one is, and items that others refused are the
 * rejected part of that success; as BR_REJECT if all refused. What a child still owes when it ends
 * other than BR_DONE goes back to the parent. */
void br_item_adopt(struct br_item *item, struct br_item *piece);

/* Returns which part of a request `item` is, by its spans or samples: 1 where it is no piece of one
 * (br_item_adopt). What a request may cost, all its pieces together may. */
double br_item_share(const struct br_item *item);

/* Lets the parent finish once its children have: the counterpart of the first br_item_adopt. */
void br_item_release_parent(struct br_item *item);

/* Likewise where the children are pieces that somebody has tried for as long as they are tried: if
 * one was taken, the parent ends as BR_DONE, also if others ended as BR_RETRY: they are part of
 * what was rejected (OTLP, "Partial Success") and dropped. Nobody sends again what was taken. */
void br_item_release_pieces(struct br_item *item);

/* What a processor may allocate to change an item, so many times its bytes and so many more. */
#define BR_EDIT_GROWTH 8u
#define BR_EDIT_ROOM (8u << 20)

/* Begins a processor's changes to `item`: until br_item_edit_end this thread allocates within these
 * bounds and the memory budget. The caller keeps `scope` where it is. */
void br_item_edit_begin(struct br_mem_scope *scope, const struct br_item *item);

/* Ends them, before the item is handed on. Returns `rc`, or BR_EFULL instead of BR_ENOMEM where the
 * same item never fits. */
int br_item_edit_end(struct br_mem_scope *scope, int rc);

/* Says what became of `n` of the items that `item` owes. */
enum br_result { BR_RESULT_SENT, BR_RESULT_REJECTED, BR_RESULT_DROPPED };
void br_item_report(struct br_item *item, enum br_result result, const char *reason,
                    uint32_t count);

/* Finishes the item: exactly once, by whoever holds it, who must not touch it afterwards. What it
 * still owes is settled as sent when BR_DONE (less n_rejected, which is dropped for the reason
 * "partial_success"); otherwise it goes back to the parent, or, without one, counts as rejected. */
void br_item_finish(struct br_item *item, const struct br_outcome *outcome);

/* Finish as br_item_finish does, with BR_DONE, BR_RETRY, BR_REJECT. */
void br_item_done(struct br_item *item);
void br_item_retry(struct br_item *item, enum br_status status, uint32_t delay_ms, const char *why);
void br_item_reject(struct br_item *item, enum br_status status, const char *why);

/* Runs a finished item's callback, folds it into its parent and frees it. Only for the host's turn.
 */
void br_item_complete(struct br_item *item);

/* Frees an item that was never handed to a consumer. What it owes is settled as rejected. */
void br_item_free(struct br_item *item);
