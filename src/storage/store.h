/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements the embedded store, which keeps the spans and samples of the last hours in a
 * directory. Each partition contains the data that arrived during a certain time, in its own SQLite
 * database. A partition that is full or old is sealed; the oldest partition is deleted when the
 * directory exceeds its limits.
 *
 * One thread writes at a time. Any number of threads read, each with its own br_store_query.
 * Readers and the writer never wait for each other (SQLite's WAL).
 *
 * Spans and samples are stored independently and joined when they are read: a sample names its span
 * by trace id and span id (Sample.link_index). The `join` processor has set these ids to those of
 * the deepest span in which the sample was taken.
 *
 * Span ids are the eight bytes on the wire, read as in br_span_head; trace ids are 16 bytes. Times
 * are Unix nanoseconds.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "core/host.h"
#include "core/item.h"
#include "storage/flame.h"

struct br_store;

/* --- Life ------------------------------------------------------------------------------------ */

struct br_store_config {
    const char *directory;
    /* limit on the bytes of all partitions together; above it, the oldest partition is deleted */
    uint64_t max_bytes;
    /* a partition is deleted this many nanoseconds after its last write; 0: never */
    uint64_t max_age_ns;
    /* a partition is sealed when its spans plus a tenth of its samples reach this number */
    uint64_t partition_rows;
    uint64_t partition_age_ns; /* age at which a partition is sealed, in nanoseconds */
    /* true: fsync at each commit. false: fsync only at checkpoints, so a power failure may lose
     * the last commits, but a killed process loses nothing */
    bool sync_full;
};

/* Returns a reference to the store that the exporter `id` writes to, and from which other
 * components read. All workers of a service share the store. The store is not open before
 * br_store_open is called. Returns NULL if memory runs out. */
struct br_store *br_store_get(struct br_host *host, const char *id);

/* Writes the path of a store's default directory: $XDG_DATA_HOME/braid or ~/.local/share/braid (XDG
 * Base Directory Specification). Returns false if neither XDG_DATA_HOME nor HOME is set, or if the
 * path does not fit in `size` bytes. */
bool br_store_default_directory(char *ret, size_t size);

/* Releases a reference to the store. Closes the store if this was the last reference. Accepts
 * NULL. */
void br_store_put(struct br_host *host, struct br_store *store);

/* Opens the directory of the store for this process, and creates it if needed. A damaged partition
 * is renamed to `<name>.damaged` and reported in the log. Does nothing if the store is open
 * already. Returns 0; BR_EINVAL if the path is too long, or if another process uses the directory
 * (the message contains the pid of that process); BR_EFULL, BR_EIO or BR_ENOMEM. */
int br_store_open(struct br_store *store, const struct br_store_config *config,
                  const struct br_log *log, struct br_err *err);

/* Returns true between a successful br_store_open and the release of the last reference. */
bool br_store_is_open(const struct br_store *store);

/* --- Writing --------------------------------------------------------------------------------- */

/* Writes items of both signals (traces and profiles) in one transaction. The items must not contain
 * references (br_item_inline_references), and are not changed. If `n_items` is 0, only checks for
 * partitions that are too old. May be called in any thread; waits for other writers. Returns 0 if
 * everything is committed. After an error nothing is committed, and the function returns one of
 * these codes, with a message:
 *
 * - BR_EFULL: the disk is full; a retry may succeed
 * - BR_EINVAL: an item cannot be stored
 * - BR_EIO, BR_ENOMEM */
int br_store_write(struct br_store *store, const struct br_item *const *items, size_t n_items,
                   struct br_err *err);

/* A range of Unix times in nanoseconds, from the oldest to the newest stored time. Both times
 * are 0 if the store is empty. */
struct br_store_range {
    uint64_t oldest_ns, newest_ns;
};

/* A summary of the contents of the store. */
struct br_store_usage {
    uint64_t bytes, max_bytes;
    uint64_t n_partitions; /* number of partitions that can be read */
    uint64_t n_damaged;    /* number of partitions that were found to be damaged, and renamed */
    /* number of partitions whose files could not be read, or are not partitions; the store tries
     * again to read them */
    uint64_t n_unread;
    uint64_t n_spans, n_samples;
    /* number of items since the start that lost data because they expanded too much through
     * references (storage/chunks.h) */
    uint64_t n_shortened;
    /* ranges of the start times of spans and of the times of samples */
    struct br_store_range spans, samples;
};

/* Reports the contents of the store. May be called in any thread. */
void br_store_usage(struct br_store *store, struct br_store_usage *ret);

/* Returns a number that grows by one with each commit. A reader that polls (live tail) need not
 * query again until the number changes. */
uint64_t br_store_generation(const struct br_store *store);

/* --- Reading --------------------------------------------------------------------------------- */

/* A query, which runs in one thread. The arguments of a callback are valid during the call.
 * Returned values, and the texts, labels and series of arguments, are in `arena` and stay valid
 * until br_store_query_end. */
struct br_store_query {
    struct br_store *store;
    struct br_arena *arena;
    /* time at which the query is cut (ended early), in milliseconds of the monotonic clock; 0:
     * never */
    uint64_t deadline_ms;
    /* limit on the memory of the query in bytes, including the arena; 0: unlimited */
    size_t max_bytes;
    /* why the query was cut: it took too much time or memory; NULL: the query was not cut */
    const char *cut;
    /* why the result is incomplete or differs from the request although the query was not cut;
     * NULL: nothing to report */
    const char *note;
    void *impl; /* private to src/storage: open partitions and cached blocks */
};

/* Returns the message to show with an incomplete result; NULL if the result is complete. */
static inline const char *br_store_query_remark(const struct br_store_query *query)
{
    return query->cut ? query->cut : query->note;
}

/* Begins a query. `store`, `arena` and the limits must be set. Returns 0, BR_EINVAL if the store
 * is not open, or BR_ENOMEM. */
int br_store_query_begin(struct br_store_query *query, struct br_err *err);

/* Ends a query, and closes its connections or returns them to the store. Does nothing if the
 * query did not begin. */
void br_store_query_end(struct br_store_query *query);

/* A span that was read from the store. */
struct br_stored_span {
    uint8_t trace_id[16];
    uint64_t span_id, parent_id; /* span ids in the byte order of br_span_head */
    uint64_t start_ns, end_ns;
    uint64_t duration_ns; /* duration in nanoseconds; 0 if the span ends before it starts */
    /* `service` is "unknown_service" if the resource has no service.name */
    const char *service, *name;
    uint8_t kind, status; /* values of Span.SpanKind and Status.StatusCode */
    /* `partition`, `block` and `index` are the location of the span, for br_store_span_bytes */
    uint32_t partition;
    uint32_t partition_number; /* number of the partition in the store; a newer one is greater */
    int64_t block;
    uint32_t index;
};

/* The OTLP protobuf messages of a span, its scope and its resource, each without the tag and
 * length that precede it in the enclosing message. */
struct br_span_bytes {
    const uint8_t *span, *scope, *resource;
    size_t span_len, scope_len, resource_len;
};

/* An attribute that a span must have. Values are compared as text; a value that is not a string
 * is compared in its JSON form. */
struct br_span_needle {
    const char *key, *value;
    bool resource; /* true: an attribute of the resource; false: an attribute of the span */
};

enum br_span_order { BR_SPANS_NEWEST, BR_SPANS_SLOWEST };

/* Position of a span in a list. Spans are ordered by descending rank, then by descending start,
 * then by span id and trace id, so that only copies of one span have the same position. */
struct br_span_position {
    int64_t rank; /* duration, or start, in nanoseconds, depending on the order of the list */
    uint64_t start_ns, span_id;
    uint8_t trace_id[16];
};

/* Returns the position of a span whose rank is `rank`. */
struct br_span_position br_span_position(const struct br_stored_span *span, int64_t rank);

/* Returns true if `one` comes before `other` in a list. */
bool br_span_position_is_before(const struct br_span_position *one,
                                const struct br_span_position *other);

/* A filter of spans. A span must fulfil all conditions. A zeroed filter selects all spans. */
struct br_span_filter {
    /* the span starts in [from, until), in Unix nanoseconds; an `until_ns` of 0 means no end */
    uint64_t from_ns, until_ns;
    const char *service, *name; /* exact service name and exact span name; NULL: any name */
    uint64_t min_duration_ns;
    uint64_t max_duration_ns; /* longest duration in nanoseconds; 0: unlimited */
    bool roots;               /* selects only spans without a parent */
    bool failed;              /* selects only spans whose status is ERROR */
    bool has_status;          /* selects only spans whose status is `status` */
    uint8_t status;           /* value of Status.StatusCode */
    /* attributes that the Bloom filter of a block must contain; other blocks are skipped. The
     * caller must still compare the attributes of each span */
    const struct br_span_needle *needles;
    size_t n_needles;
    enum br_span_order order;
    uint32_t limit; /* maximum number of spans to return; 0: unlimited */
    /* selects only spans behind this position of the list; NULL: from the beginning. The caller
     * owns the position */
    const struct br_span_position *after;
};

/* Receives a span, which is valid during the call. Returns false to stop the iteration. */
typedef bool br_span_fn(const struct br_stored_span *span, void *arg);

/* Calls `fn` for the spans that the filter selects, in the order given by the filter. With a limit,
 * spans with equal ranks are in the order of struct br_span_position. Returns 0, BR_EIO or
 * BR_ENOMEM. If the query was cut (query->cut), the result is incomplete and the function returns
 * 0. */
int br_store_spans(struct br_store_query *query, const struct br_span_filter *filter,
                   br_span_fn *fn, void *arg, struct br_err *err);

/* The fields that figures about many spans need. Element i of each array belongs to span i. The
 * spans are those of one block that start in the requested range. */
struct br_span_facts {
    /* `partition` and an operation together identify a service and name within a query
     * (br_store_operation). Several pairs of numbers can have the same service and name. */
    uint32_t partition;
    int64_t block; /* with `partition` and an element of `index`, the location of a span */
    uint32_t count;
    const uint32_t *index, *operation;
    const uint64_t *start_ns, *duration_ns;
    const uint8_t *status;               /* values of Status.StatusCode */
    const bool *root;                    /* true: the span has no parent */
    const uint64_t *span_id, *parent_id; /* only if requested, otherwise NULL */
};

/* Receives the facts of the spans of a block, which are valid during the call. Returns false to
 * stop the iteration. */
typedef bool br_span_facts_fn(const struct br_span_facts *facts, void *arg);

/* Calls `fn` for the blocks with spans that start in [from, until), in Unix nanoseconds. The newest
 * partition comes first; within a partition, spans are in the order of their arrival. Without
 * `with_ids`, reads about twelve bytes a span, without decompression. Returns 0, BR_EIO or
 * BR_ENOMEM. If the query was cut (query->cut), the result is incomplete and the function returns
 * 0. */
int br_store_span_facts(struct br_store_query *query, uint64_t from_ns, uint64_t until_ns,
                        bool with_ids, br_span_facts_fn *fn, void *arg, struct br_err *err);

/* Finds the service and name of an operation of `facts`. May be called only in a br_span_facts_fn.
 * The texts are valid until br_store_query_end. Returns false if they cannot be read; the query
 * then continues without the partition, or query->cut is set. */
bool br_store_operation(struct br_store_query *query, const struct br_span_facts *facts,
                        uint32_t operation, const char **ret_service, const char **ret_name);

/* Reads the span at a location that br_store_span_facts reported in the same query. Stores in
 * `*ret_found` whether the span was read; it may have been removed meanwhile. Returns 0, BR_EIO or
 * BR_ENOMEM. */
int br_store_span_at(struct br_store_query *query, uint32_t partition, int64_t block,
                     uint32_t index, struct br_stored_span *ret, bool *ret_found,
                     struct br_err *err);

/* Stores in `*ret` an upper bound of the number of spans that start in [from, until). The bound
 * exceeds the number by the other spans of those blocks that also contain spans of the range.
 * Returns 0, BR_EIO or BR_ENOMEM. If the query was cut (query->cut), some blocks are missing and
 * the function returns 0. */
int br_store_count_spans(struct br_store_query *query, uint64_t from_ns, uint64_t until_ns,
                         uint64_t *ret, struct br_err *err);

/* Calls `fn` for each span of a trace, ordered by start. Returns 0, BR_EIO or BR_ENOMEM. If the
 * query was cut (query->cut), the result is incomplete and the function returns 0. */
int br_store_trace(struct br_store_query *query, const uint8_t trace_id[16], br_span_fn *fn,
                   void *arg, struct br_err *err);

/* Finds the OTLP bytes of a span that this query returned. Returns 0, BR_EIO or BR_ENOMEM. */
int br_store_span_bytes(struct br_store_query *query, const struct br_stored_span *span,
                        struct br_span_bytes *ret, struct br_err *err);

/* Receives a name and the number of spans with this name, or 0 if the number is unknown. Returns
 * false to stop the iteration. */
typedef bool br_name_fn(const char *name, uint64_t count, void *arg);

/* br_store_services calls `fn` for the services that have spans in [from, until).
 * br_store_operations calls `fn` for the operations (span names) of one service. `fn` receives the
 * number of spans of each name. Both functions return 0, BR_EIO or BR_ENOMEM; if the query was cut
 * (query->cut), the list is incomplete and the functions return 0. */
int br_store_services(struct br_store_query *query, uint64_t from_ns, uint64_t until_ns,
                      br_name_fn *fn, void *arg, struct br_err *err);
int br_store_operations(struct br_store_query *query, const char *service, uint64_t from_ns,
                        uint64_t until_ns, br_name_fn *fn, void *arg, struct br_err *err);

/* Kinds of objects that own attributes. The database contains these numbers, so they must not
 * change. */
enum br_key_scope {
    BR_KEYS_OF_SPANS,
    BR_KEYS_OF_RESOURCES,
    BR_KEYS_OF_EVENTS,
    BR_KEYS_OF_LINKS,
    BR_KEYS_OF_SCOPES,
    BR_KEYS_SCOPES
};

/* br_store_span_keys calls `fn` for the attribute keys of one scope. br_store_span_values calls
 * `fn` for the values of one key of spans or resources. Both functions read all partitions that
 * overlap [from, until), and return 0, BR_EIO or BR_ENOMEM. If the query was cut (query->cut), the
 * list is incomplete and the functions return 0. */
int br_store_span_keys(struct br_store_query *query, enum br_key_scope scope, uint64_t from_ns,
                       uint64_t until_ns, br_name_fn *fn, void *arg, struct br_err *err);
int br_store_span_values(struct br_store_query *query, const char *key, bool resource,
                         uint64_t from_ns, uint64_t until_ns, br_name_fn *fn, void *arg,
                         struct br_err *err);

/* --- Samples --------------------------------------------------------------------------------- */

/* A Prometheus matcher, as in Pyroscope's label selectors. A missing label counts as "". */
enum br_matcher_type { BR_MATCH_EQUAL, BR_MATCH_NOT_EQUAL, BR_MATCH_REGEX, BR_MATCH_NOT_REGEX };
struct br_matcher {
    const char *name, *value;
    enum br_matcher_type type;
};

/* A label of a series. The labels of a series are sorted by name, and include Pyroscope's
 * service_name and __profile_type__. */
struct br_series_label {
    const char *name, *value;
};
struct br_stored_series {
    const struct br_series_label *labels;
    size_t n_labels;
    /* profile type in five parts, such as "process_cpu:cpu:nanoseconds:cpu:nanoseconds" */
    const char *type;
    /* hash of the labels, `source` and `per_sample`; equal series have equal hashes in all
     * partitions */
    uint64_t hash;
    /* hash of the labels that all samples of a profile share; the hash identifies the process;
     * 0: unknown */
    uint64_t source;
    /* value that one sample represents, according to the profile's period; 0: unknown */
    uint64_t per_sample;
};

/* Receives a series. Returns false to stop the iteration. A function used as `select_series`
 * returns false to leave the series out. */
typedef bool br_series_fn(const struct br_stored_series *series, void *arg);

#define BR_CALL_SITE_MAX 1024

/* A filter of samples. A sample must fulfil all conditions. A zeroed filter selects all samples. */
struct br_sample_filter {
    /* the sample's time is in [from, until), in Unix nanoseconds; an `until_ns` of 0 means no
     * end */
    uint64_t from_ns, until_ns;
    const char *type; /* profile type in five parts; NULL: any type */
    const struct br_matcher *matchers;
    size_t n_matchers;
    /* the sample belongs to one of these spans; ignored if the list is empty */
    const uint64_t *span_ids;
    size_t n_span_ids;
    /* the sample belongs to one of these traces; ignored if the list is empty */
    const uint8_t (*trace_ids)[16];
    size_t n_trace_ids;
    /* selects some of the series that fulfil the other conditions; NULL: all of these series are
     * selected */
    br_series_fn *select_series;
    void *select_arg;
    /* the sample's stack begins with functions of these names, the outermost first; at most
     * BR_CALL_SITE_MAX names */
    const char *const *call_site;
    size_t n_call_site;
    /* for br_store_samples: adds the samples of all spans together, so span_id and trace_id are
     * 0; much faster if spans are not needed */
    bool spans_together;
    bool each; /* for br_store_samples: passes each sample to `fn` instead of sums */
};

/* The sum of the samples of one series, span and time step. */
struct br_stored_samples {
    const struct br_stored_series *series;
    uint8_t trace_id[16]; /* trace id of the samples; zeros: the samples have no trace id */
    uint64_t span_id;     /* span id of the samples; 0: the samples have no span */
    uint64_t time_ns;     /* time of the first sample, in Unix nanoseconds */
    /* Number of samples: the value divided by series->per_sample, rounded, and at least 1 unless
     * the value is 0. If per_sample is unknown, `count` is the number of stored values */
    uint64_t count;
    int64_t value;
};

/* Receives a sum of samples, which is valid during the call. Returns false to stop the
 * iteration. */
typedef bool br_samples_fn(const struct br_stored_samples *samples, void *arg);

/* Calls `fn` for the selected samples, summed by series, span and time step. The order of the
 * calls is undefined. Steps begin at `from_ns`; a `step_ns` of 0 means one step for the whole
 * range. Returns 0, BR_EINVAL for an invalid regular expression, BR_EIO or BR_ENOMEM. If the
 * query was cut (query->cut), the result is incomplete and the function returns 0. */
int br_store_samples(struct br_store_query *query, const struct br_sample_filter *filter,
                     uint64_t step_ns, br_samples_fn *fn, void *arg, struct br_err *err);

/* Adds the stacks of the selected samples to `flame` (storage/flame.h), weighted by their
 * values. If there are too many stacks, the smallest are merged and query->note is set. Returns
 * 0, BR_EINVAL for an invalid regular expression, BR_EIO, BR_ENOMEM, or BR_EFULL if the names
 * exceed the flame's limit. */
int br_store_flame(struct br_store_query *query, const struct br_sample_filter *filter,
                   struct br_flame *flame, struct br_err *err);

/* Calls `fn` once for each series that matches the range, type and matchers of the filter.
 * Returns 0, BR_EINVAL for an invalid regular expression, BR_EIO or BR_ENOMEM. If the query was
 * cut (query->cut), the list is incomplete and the function returns 0. */
int br_store_series(struct br_store_query *query, const struct br_sample_filter *filter,
                    br_series_fn *fn, void *arg, struct br_err *err);
