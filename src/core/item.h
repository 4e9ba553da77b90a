/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An item is the unit that flows through a pipeline: an OTLP export request of one signal. An item
 * consists of ranges of reference-counted buffers and an arena, and has exactly one outcome.
 *
 * An export request of either signal is a list of top-level fields. Each field becomes a part: a
 * ResourceSpans or ResourceProfiles message, the profiles dictionary, or an unknown field. A part
 * refers to the received bytes. A processor that changes the resource stores a new Resource message
 * in the part. Unchanged parts are sent byte for byte as they were received. The concatenation of
 * several requests is a valid request, so a batch of traces consists of the parts of its items.
 *
 * `n_pending` is the number of records (spans or samples) for which the item still has to report a
 * result to the ledger. Pending records move with the data (br_item_absorb). Components report
 * pending records as sent, rejected, dropped or stored; br_item_finish reports the rest, according
 * to the outcome. See core/pending.h.
 *
 * Rules: consume(item) always takes ownership of the item. An item is finished exactly once.
 * br_item_finish stores the outcome and queues the callback for the end of the loop iteration. It
 * never calls the callback itself.
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

/* Returns `other * part / whole`, rounded up, or `other` if `part` is at least `whole`. Converts
 * a rejected count from profiles to samples and back, because OTLP counts whole profiles as
 * rejected and Braid counts samples. */
static inline uint32_t br_signal_share(uint32_t part, uint32_t whole, uint32_t other)
{
    if (part >= whole)
        return part ? other : 0;
    return (uint32_t)(((uint64_t)part * other + whole - 1) / whole);
}

/* Returns "traces" or "profiles". */
const char *br_signal_name(enum br_signal signal);
/* Returns the name of the records: "spans" or "samples". */
const char *br_signal_records(enum br_signal signal);

enum br_part_kind {
    BR_PART_RESOURCE,   /* ResourceSpans or ResourceProfiles, field 1 */
    BR_PART_DICTIONARY, /* ProfilesDictionary, field 2 of a profiles request */
    BR_PART_OTHER,      /* a field that is not in the schema */
};

/* Numbers of the protobuf fields that an item writes: the fields of ExportTraceServiceRequest and
 * ExportProfilesServiceRequest, and the field `resource` of ResourceSpans and ResourceProfiles. All
 * other field numbers are in otlp/fields.h. */
enum { BR_REQUEST_RESOURCES = 1, BR_REQUEST_DICTIONARY = 2 };
enum { BR_RESOURCES_RESOURCE = 1 };

struct br_part {
    enum br_part_kind kind;
    /* DICTIONARY: the part contains further entries for the item's last dictionary; both are
     * written as one field */
    bool additions;
    uint32_t n_records; /* number of spans or samples in the part */
    struct br_buf *buf; /* buffer that contains `raw` and keeps it alive */
    const uint8_t *raw; /* the field as received: its tag, length and body */
    uint32_t raw_len;
    uint32_t body_at;     /* offset of the body in `raw` */
    uint32_t res_at;      /* RESOURCE: offset in `raw` of the tag of the Resource field */
    uint32_t res_len;     /* RESOURCE: length of the Resource field with its tag; 0: absent */
    uint32_t res_body_at; /* offset of the Resource message in `raw` */
    /* DICTIONARY: offset in `raw` of the outline of the dictionary (otlp/dictionary/merger.h);
     * 0: absent */
    uint32_t outline_at;
    struct br_buf *new_resource_buf;
    /* Resource message that replaces the received one; NULL: the received message is kept */
    const uint8_t *new_resource;
    uint32_t new_resource_len;
};

/* The identity, parent and time of a span. An absent id is stored as zeros, because an id of
 * zeros is invalid on the wire (trace.proto, Span.trace_id and span_id). */
struct br_span_head {
    uint8_t trace_id[16];
    /* the eight bytes of each id, in wire order */
    uint64_t span_id, parent_id;
    uint64_t start_ns, end_ns;
};

static inline bool br_span_has_trace(const struct br_span_head *head)
{
    static const uint8_t none[16];
    return memcmp(head->trace_id, none, sizeof none) != 0;
}

/* A span that the walk over the item's bytes found (otlp/walk). All pointers refer to bytes of
 * the part that contains the span. Spans are listed only if a component needs them
 * (br_component.wants_spans). */
struct br_span {
    struct br_span_head head;
    const uint8_t *body;
    const uint8_t *name;
    /* encoded AnyValue of the span's last attributes `thread.id` and `thread.name`; NULL: the
     * attribute is absent */
    const uint8_t *thread_id, *thread_name;
    /* lengths of thread_id and thread_name in bytes; valid if the pointer is not NULL */
    uint32_t thread_id_len, thread_name_len;
    uint32_t body_len, name_len;
    uint32_t part;  /* index, in the item's array of parts, of the part that contains the span */
    uint8_t kind;   /* value of Span.SpanKind */
    uint8_t status; /* value of Status.StatusCode */
};

/* The pending records of an item, and the ledgers to which their results are reported
 * (core/pending.h). If all fields are zero, no records are pending. */
struct br_pending {
    uint32_t n_pending; /* number of pending records */
    /* number of the n_pending records that belong to copies (br_copies); the other records are
     * reported to the worker's ledger */
    uint32_t n_copied;
    struct br_copied *copied; /* list of the copies to which the n_copied records belong */
    /* ledger of the exporter at which the records have arrived; NULL: they have not arrived at an
     * exporter */
    struct br_ledger *exporter;
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
 * | FINISHED      | br_item_complete          | (freed)       | callback, then parent is updated |
 *
 * Components call br_item_finish only for an OPEN item.
 */
enum br_item_state {
    BR_ITEM_OPEN,
    BR_ITEM_ENDS_AS_WORST, /* if a piece ended as BR_RETRY, the item ends as BR_RETRY */
    /* if a piece ended as BR_RETRY and another was accepted, the item ends as BR_DONE; the
     * records of the pieces that ended as BR_RETRY count as rejected */
    BR_ITEM_ENDS_AS_PART,
    BR_ITEM_FINISHED,
};

/* The kind of an item determines what happens to its pending records if it does not end as BR_DONE,
 * and whether its parent gets the outcome. */
enum br_item_kind {
    BR_ITEM_WHOLE, /* an item without a parent; its pending records are reported as rejected */
    /* a part of its parent; the parent takes the pending records back and merges the piece's
     * outcome into its own outcome */
    BR_ITEM_PIECE,
    /* one attempt to deliver its parent; the parent takes the pending records back, and only the
     * callback gets the outcome */
    BR_ITEM_ATTEMPT,
    /* an item without a parent; its pending records stay in the item until its callback takes
     * them */
    BR_ITEM_BORROWS,
};

/* The event that the sender of the data waits for. */
enum br_sender {
    /* The sender waits for an answer, which it gets when the item ends. The item can end before
     * its data is delivered. */
    BR_SENDER_OPEN,
    /* the sender waits until the data is delivered; no component may finish the item earlier */
    BR_SENDER_WAITS,
    BR_SENDER_ANSWERED, /* the sender has got its response and does not wait */
};

typedef void br_item_done_fn(struct br_item *item, void *arg);

struct br_item {
    struct br_host *host;
    enum br_signal signal;
    uint32_t n_records; /* number of records in all parts */
    /* number of records that the item, its attempts and its pieces have reported as sent */
    uint32_t n_sent;
    union {
        struct br_pending pending;
        uint32_t n_pending; /* alias of pending.n_pending */
    };
    uint32_t n_parts, cap_parts;
    struct br_part *parts;
    /* size of the parts on the wire in bytes. br_item_write can append fewer bytes, because `size`
     * counts a tag and a length for each dictionary addition, which are not written */
    size_t size;
    /* Traces: array of n_records elements, one for each span, in the order of the request. NULL:
     * the item does not have this list, because no component needs it or it was discarded. */
    struct br_span *spans;
    /* Traces: the buffer that contains the array `spans`. It does not contain the bytes of the
     * spans, which are in the parts. The item owns a reference to the buffer. NULL: the item does
     * not have a list of spans. If `spans` is NULL, the content of the buffer is not used. */
    struct br_buf *spans_buf;
    struct br_arena arena;
    uint32_t received_records; /* n_records when the item was received */
    uint32_t n_profiles;       /* profiles: number of Profile messages; 0: unknown */
    /* profiles: at least one time in the profiles is before 1971 (otlp/edit/edit.h) */
    bool odd_times;
    /* time at which the item's oldest data was received, in milliseconds of the monotonic clock;
     * 0: unknown */
    uint64_t received_ms;
    /* Profiles: number of samples by type (otlp/sample_types.h), allocated in the arena. The
     * receiver that reads the item sets the field and uses it to count the samples. NULL:
     * unknown. */
    const struct br_sample_types *sample_types;
    /* client metadata requested by components (br_component.metadata_keys), allocated in the
     * arena: pairs name\0value\0, ended by an empty name; NULL: no metadata */
    const char *metadata;
    struct br_outcome outcome; /* result of the item; valid once the item is finished */
    br_item_done_fn *done;     /* callback, set by the creator of the item; NULL: not called */
    void *done_arg;
    /* item that takes back the pending records of this item and, if this item is a piece, its
     * outcome; NULL: no parent */
    struct br_item *parent;
    uint32_t n_children; /* number of pieces that have not completed */
    /* number of records in pieces that ended as BR_REJECT (n_refused) and as BR_RETRY
     * (n_given_up) */
    uint32_t n_refused, n_given_up;
    enum br_item_state state;
    enum br_item_kind kind;
    enum br_sender sender;
    bool piece_accepted; /* at least one piece ended as BR_DONE */
    /* size of the item as counted by the queue that contains it, in the queue's unit; batch.c
     * transfers the weight from one item to another */
    size_t weight;
    /* link in a list of the item's owner; for a finished item, in the host's list `finished` */
    struct br_list link;
};

/* Moves an item and its buffers to `host`. Used for an item that a thread has made with a different
 * host and pool, before the item enters a pipeline. */
void br_item_move(struct br_item *item, struct br_host *host);

/* Sets the memory category of the buffers of the item's parts. */
void br_item_hold(struct br_item *item, enum br_holder holder);

/* Returns a new, empty item without pending records, which the caller owns. Returns NULL if
 * memory is short. */
struct br_item *br_item_new(struct br_host *host, enum br_signal signal);

/* Counts the item's records in the ledger as received, in a request that has not been answered yet.
 * The records become pending. */
void br_item_received(struct br_item *item);

/* Counts the item's records as restored from a durable queue. `exporter` is the ledger of the
 * queue's exporter and may be NULL. The records become pending. No sender waits for the item. */
void br_item_restored(struct br_item *item, struct br_ledger *exporter);

/* Records in the ledger that the sender of a received item got a response, or does not expect one.
 * Must be called once for each received item. */
void br_item_answered(const struct br_item *item);

/* Appends a part and takes a reference to its buffers. Adds the part's records and size to those
 * of the item. Returns 0, BR_ENOMEM, or BR_EFULL if the item has four million parts. */
int br_item_add_part(struct br_item *item, const struct br_part *part);

/* Sets the receive time of `into` to the receive time of `from` if that is earlier. Called when
 * `into` gets data of `from`. */
void br_item_note_age(struct br_item *into, const struct br_item *from);

/* Moves all parts and pending records of `from` to the end of `into`. `from` is then empty, and the
 * caller must finish it. Both items lose their lists of spans. Returns 0, BR_ENOMEM or BR_EFULL as
 * br_item_add_part does; on failure nothing was moved. */
int br_item_absorb(struct br_item *into, struct br_item *from);

/* Returns the length of the metadata in bytes, including the empty name at its end; 0 if there
 * is no metadata. */
size_t br_item_metadata_len(const struct br_item *item);

/* Copies the client metadata of `from` to `into`, which must have no metadata. Returns false if
 * memory is short. */
bool br_item_keep_metadata(struct br_item *into, const struct br_item *from);

/* Returns the value of a key of the item's metadata, or NULL. Ignores the case of the key. */
const char *br_item_metadata(const struct br_item *item, const char *key);

/* Replaces the Resource message of a part. Takes a reference to `buf`, which contains `data`.
 * `len` may be 0. This function cannot fail. */
void br_item_set_resource(struct br_item *item, struct br_part *part, struct br_buf *buf,
                          const uint8_t *data, size_t len);

/* Removes all parts; n_records and size become 0. Pending records stay. */
void br_item_clear_parts(struct br_item *item);

/* Frees the list of spans; the parts stay. */
void br_item_forget_spans(struct br_item *item);

/* Returns the current Resource message of a part: the replacement if there is one, otherwise the
 * received message. `*ret_len` may be 0. */
const uint8_t *br_part_resource(const struct br_part *part, size_t *ret_len);

/* Returns the size of a part on the wire in bytes. */
size_t br_part_size(const struct br_part *part);

/* Appends all parts of an item to a rope in wire format. Returns 0 or BR_ENOMEM. After
 * BR_ENOMEM, some parts may have been appended. */
int br_item_write(const struct br_item *item, struct br_rope *out);

/* Returns a new item that refers to all parts of `item`. The new item has no parent and no
 * pending records. The new item borrows the metadata of `item`, so `item` must outlive the new
 * item. Returns NULL if memory is short. */
struct br_item *br_item_twin(const struct br_item *item);

/* Returns a child of `item` for one attempt to deliver it. The child refers to all parts of `item`
 * and takes its pending records. `done` is called when the child has ended. The outcome of the
 * child is not merged into the outcome of `item`. Unless the outcome is BR_DONE, the pending
 * records return to `item` before `done` is called. Returns NULL if memory is short. */
struct br_item *br_item_attempt(struct br_item *item, br_item_done_fn *done, void *arg);

/* Abandons an attempt that has not completed. The callback of the attempt is not called. When the
 * attempt finishes, the parent finishes as well. Records that are still pending then are reported
 * as dropped for `reason`, which must be a constant. */
void br_item_orphan(struct br_item *attempt, const char *reason);

/* Makes `piece` a child of `item` and moves its share of the pending records to it. `piece` is a
 * twin of `item` or contains a part of its data. If a child does not end as BR_DONE, its pending
 * records return to the parent.
 *
 * The parent finishes when its last child has completed and br_item_release_parent was called. The
 * outcome of the parent is determined as follows:
 * - BR_RETRY if a child ended as BR_RETRY;
 * - otherwise BR_DONE if a child ended as BR_DONE. The records of the rejected children are then
 *   counted in br_outcome.n_rejected;
 * - otherwise BR_REJECT. */
void br_item_adopt(struct br_item *item, struct br_item *piece);

/* Returns the fraction of the original request's records that `item` contains. Returns 1 if the
 * item is not a piece (br_item_adopt). A component multiplies its limit for a request by this
 * fraction, so that the limit applies to all pieces of the request together. */
double br_item_share(const struct br_item *item);

/* Allows `item` to finish when all its children have completed. Must be called once, after the last
 * br_item_adopt. */
void br_item_release_parent(struct br_item *item);

/* Releases the parent like br_item_release_parent, for pieces whose retries have ended. If one
 * piece was accepted, the parent ends as BR_DONE, even if other pieces ended as BR_RETRY. The
 * records of the other pieces are dropped and count as rejected (OTLP, "Partial Success"), so
 * that the accepted records are not sent again. */
void br_item_release_pieces(struct br_item *item);

/* A processor may allocate this multiple of the item's size, plus BR_EDIT_ROOM bytes, to change an
 * item. */
#define BR_EDIT_GROWTH 8u
#define BR_EDIT_ROOM (8u << 20)

/* Begins a processor's changes to `item`. Until br_item_edit_end, this thread can allocate
 * BR_EDIT_GROWTH times the item's size plus BR_EDIT_ROOM bytes, within the memory budget.
 * `scope` must not move. */
void br_item_edit_begin(struct br_mem_scope *scope, const struct br_item *item);

/* Ends a processor's changes. Must be called before the item is passed to the next component.
 * Returns `rc`, or BR_EFULL instead of BR_ENOMEM if a later attempt to change the item would also
 * fail. */
int br_item_edit_end(struct br_mem_scope *scope, int rc);

/* Finishes an item that the component `name` could not change. `rc` is not 0. For BR_EFULL the item
 * is rejected for the reason `full`, and for BR_EINVAL as malformed data. After any other error,
 * the sender is asked to retry because memory is short. The texts begin with `name`. */
void br_item_edit_fail(struct br_item *item, int rc, const char *name, const char *full);

/* The result of a record, as reported to the ledger. */
enum br_result {
    BR_RESULT_SENT,
    BR_RESULT_REJECTED,
    BR_RESULT_DROPPED,
    BR_RESULT_STORED, /* the record is stored in a durable queue */
};

/* Reports the result of `count` of the item's pending records to the ledger. `reason` is a
 * constant that states why the records were dropped; NULL for other results. */
void br_item_report(struct br_item *item, enum br_result result, const char *reason,
                    uint32_t count);

/* Finishes the item. The owner calls this function exactly once, and must not use the item
 * afterwards. If the outcome is BR_DONE, the pending records are reported as sent, except for
 * n_rejected of them, which are dropped with the reason "partial_success". After other outcomes,
 * the item's kind (enum br_item_kind) determines whether the pending records return to the
 * parent, are rejected, or stay in the item. */
void br_item_finish(struct br_item *item, const struct br_outcome *outcome);

/* br_item_done, br_item_retry and br_item_reject finish the item as br_item_finish does, with
 * BR_DONE, BR_RETRY or BR_REJECT. */
void br_item_done(struct br_item *item);
void br_item_retry(struct br_item *item, enum br_status status, uint32_t delay_ms, const char *why);
void br_item_reject(struct br_item *item, enum br_status status, const char *why);

/* Calls the callback of a finished item, merges its outcome into that of its parent, and frees
 * the item. Called only by the host. */
void br_item_complete(struct br_item *item);

/* Frees an item that was never given to a consumer. The item's pending records are rejected. */
void br_item_free(struct br_item *item);
