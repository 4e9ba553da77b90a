/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded store: the spans and samples of the last hours in a directory, with one SQLite
 * database for each partition (a range of arrival times). A partition that is full or old is
 * sealed; the oldest one is deleted when the directory exceeds its limits.
 *
 * One thread writes at a time. Any number of threads read, each with its own br_store_query.
 * Readers and the writer never wait for each other (SQLite's WAL).
 *
 * Spans and samples are stored independently and joined when they are read: a sample names its span
 * by trace id and span id (Sample.link_index). The `join` processor has set these to the deepest
 * span in which the sample was taken.
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
    uint64_t max_bytes;        /* of all partitions; above it the oldest one is deleted */
    uint64_t max_age_ns;       /* of the data in a partition */
    uint64_t partition_rows;   /* spans plus a tenth of the samples; then the partition is sealed */
    uint64_t partition_age_ns; /* age at which a partition is sealed */
    /* fsync at each commit. Otherwise only at checkpoints: a power failure may lose the last
     * commits, but a killed process loses nothing */
    bool sync_full;
};

/* Returns a reference to the store that exporter `id` writes to and others read. All workers of
 * a service share it. It is closed until br_store_open. Returns NULL if memory runs out. */
struct br_store *br_store_get(struct br_host *host, const char *id);

/* Writes the default directory of a store: $XDG_DATA_HOME/braid or ~/.local/share/braid (XDG
 * Base Directory Specification). Returns false if neither variable is set, or the path does not
 * fit. */
bool br_store_default_directory(char *ret, size_t size);

/* Releases a reference; the last one closes the store. Accepts NULL. */
void br_store_put(struct br_host *host, struct br_store *store);

/* Opens the directory for this process, and creates it if needed. A damaged partition is renamed
 * to `<name>.damaged` and reported in the log. If the store is open already, does nothing.
 * Returns 0; BR_EINVAL if another process uses the directory (the message contains its pid) or
 * the path is too long; BR_EFULL, BR_EIO or BR_ENOMEM. */
int br_store_open(struct br_store *store, const struct br_store_config *config,
                  const struct br_log *log, struct br_err *err);

/* Returns true between a successful br_store_open and the release of the last reference. */
bool br_store_is_open(const struct br_store *store);

/* --- Writing --------------------------------------------------------------------------------- */

/* Writes items of either signal in one transaction. They must not contain references
 * (br_item_inline_references), and are not changed. If `n_items` is 0, only checks for
 * partitions that are too old. May be called in any thread; waits for other writers. Returns 0
 * if everything is committed. Otherwise nothing is committed, and the code has a message:
 *
 * - BR_EFULL: the disk is full; a retry may succeed
 * - BR_EINVAL: an item cannot be stored
 * - BR_EIO, BR_ENOMEM */
int br_store_write(struct br_store *store, const struct br_item *const *items, size_t n_items,
                   struct br_err *err);

/* From the oldest to the newest time; zeros mean that the store is empty. */
struct br_store_range {
    uint64_t oldest_ns, newest_ns;
};

/* The contents of the store. */
struct br_store_usage {
    uint64_t bytes, max_bytes;
    uint64_t n_partitions; /* readable ones */
    uint64_t n_damaged;    /* found to be damaged, and renamed */
    uint64_t n_unread;     /* could not be read, or are not ours; tried again */
    uint64_t n_spans, n_samples;
    /* items since the start that lost data because they expanded too much through references
     * (storage/chunks.h) */
    uint64_t n_shortened;
    struct br_store_range spans, samples; /* of span starts and sample times */
};

/* Reports the contents of the store. May be called in any thread. */
void br_store_usage(struct br_store *store, struct br_store_usage *ret);

/* Returns a number that grows by one with each commit. A reader that polls (live tail) need not
 * query again until it changes. */
uint64_t br_store_generation(const struct br_store *store);

/* --- Reading --------------------------------------------------------------------------------- */

/* One query, in one thread. The arguments of a callback are valid during the call. Their texts,
 * labels and series are in `arena`, as are returned values, and stay valid until
 * br_store_query_end. */
struct br_store_query {
    struct br_store *store;
    struct br_arena *arena;
    uint64_t deadline_ms; /* monotonic clock; the query is cut after it; 0: never */
    size_t max_bytes;     /* limit on the memory of the query, including the arena; 0: none */
    const char *cut;      /* why the query ended early (time, memory); NULL: it did not */
    /* why the result is incomplete or differs from the request although the query was not cut;
     * NULL: nothing to report */
    const char *note;
    void *impl; /* open partitions and cached blocks */
};

/* Returns the message to show with an incomplete result; NULL if the result is complete. */
static inline const char *br_store_query_remark(const struct br_store_query *query)
{
    return query->cut ? query->cut : query->note;
}

/* Begins a query. `store`, `arena` and the limits must be set. Returns 0, BR_EINVAL if the store
 * is not open, or BR_ENOMEM. */
int br_store_query_begin(struct br_store_query *query, struct br_err *err);

/* Ends a query, and closes or returns its connections. Does nothing if it did not begin. */
void br_store_query_end(struct br_store_query *query);

/* A stored span. */
struct br_stored_span {
    uint8_t trace_id[16];
    uint64_t span_id, parent_id; /* as in br_span_head */
    uint64_t start_ns, end_ns;
    uint64_t duration_ns; /* nanoseconds; 0 if the span ends before it starts */
    /* service is "unknown_service" if the resource has no service.name */
    const char *service, *name;
    uint8_t kind, status; /* Span.SpanKind, Status.StatusCode */
    /* this and the next two fields are its location, for br_store_span_bytes */
    uint32_t partition;
    int64_t block;
    uint32_t index;
};

/* The OTLP protobuf messages of a span, its scope and its resource, without tags. */
struct br_span_bytes {
    const uint8_t *span, *scope, *resource;
    size_t span_len, scope_len, resource_len;
};

/* An attribute that a span must have. Values are compared as text; values other than strings as
 * they are printed in JSON. */
struct br_span_needle {
    const char *key, *value;
    bool resource; /* an attribute of the resource; otherwise of the span */
};

enum br_span_order { BR_SPANS_NEWEST, BR_SPANS_SLOWEST };

/* All conditions must hold. A zeroed filter selects all spans. */
struct br_span_filter {
    uint64_t from_ns, until_ns; /* a span starts in [from, until); until 0: no end */
    const char *service, *name; /* exact; NULL: any */
    uint64_t min_duration_ns;
    uint64_t max_duration_ns;             /* 0: any */
    bool roots;                           /* without a parent */
    bool failed;                          /* status is ERROR */
    const struct br_span_needle *needles; /* used only to skip blocks; the caller still compares */
    size_t n_needles;
    enum br_span_order order;
    uint32_t limit; /* 0: none */
};

/* Receives a span, which is valid during the call. Returns false to stop. */
typedef bool br_span_fn(const struct br_stored_span *span, void *arg);

/* Calls `fn` for the spans that the filter selects, in its order. Returns 0, BR_EIO or
 * BR_ENOMEM; 0 also if the query was cut. */
int br_store_spans(struct br_store_query *query, const struct br_span_filter *filter,
                   br_span_fn *fn, void *arg, struct br_err *err);

/* Calls `fn` for each span of a trace, ordered by start. Returns 0, BR_EIO or BR_ENOMEM; 0 also
 * if the query was cut. */
int br_store_trace(struct br_store_query *query, const uint8_t trace_id[16], br_span_fn *fn,
                   void *arg, struct br_err *err);

/* Returns the OTLP bytes of a span that this query returned. Returns 0, BR_EIO or BR_ENOMEM. */
int br_store_span_bytes(struct br_store_query *query, const struct br_stored_span *span,
                        struct br_span_bytes *ret, struct br_err *err);

/* Receives a name and its number of spans, or 0 if that is unknown. Returns false to stop. */
typedef bool br_name_fn(const char *name, uint64_t count, void *arg);

/* Call `fn` for the services that have spans in [from, until), or for the operations (span
 * names) of one service, with their numbers of spans. Return 0, BR_EIO or BR_ENOMEM; 0 also if
 * the query was cut. */
int br_store_services(struct br_store_query *query, uint64_t from_ns, uint64_t until_ns,
                      br_name_fn *fn, void *arg, struct br_err *err);
int br_store_operations(struct br_store_query *query, const char *service, uint64_t from_ns,
                        uint64_t until_ns, br_name_fn *fn, void *arg, struct br_err *err);

/* Owners of attributes. The database contains these numbers. */
enum br_key_scope {
    BR_KEYS_OF_SPANS,
    BR_KEYS_OF_RESOURCES,
    BR_KEYS_OF_EVENTS,
    BR_KEYS_OF_LINKS,
    BR_KEYS_OF_SCOPES,
    BR_KEYS_SCOPES
};

/* Call `fn` for the attribute keys of one scope, or for the values of one key of spans or
 * resources. They read all partitions that overlap [from, until). Return 0, BR_EIO or BR_ENOMEM;
 * 0 also if the query was cut. */
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

/* The labels of a series are sorted by name, and include Pyroscope's service_name and
 * __profile_type__. */
struct br_series_label {
    const char *name, *value;
};
struct br_stored_series {
    const struct br_series_label *labels;
    size_t n_labels;
    const char *type; /* "process_cpu:cpu:nanoseconds:cpu:nanoseconds" */
    uint64_t hash;    /* of the labels and the fields below; equal across partitions */
    /* hash of the labels that all samples of a profile share, so it identifies the process; 0:
     * unknown */
    uint64_t source;
    uint64_t per_sample; /* value of one sample according to the profile's period; 0: unknown */
};

/* Receives a series. Returns false to stop or, as `select_series`, to leave the series out. */
typedef bool br_series_fn(const struct br_stored_series *series, void *arg);

#define BR_CALL_SITE_MAX 1024

/* All conditions must hold. A zeroed filter selects all samples. */
struct br_sample_filter {
    uint64_t from_ns, until_ns; /* until 0: no end */
    const char *type;           /* the five parts of a profile type; NULL: any */
    const struct br_matcher *matchers;
    size_t n_matchers;
    const uint64_t *span_ids; /* any of these */
    size_t n_span_ids;
    const uint8_t (*trace_ids)[16]; /* any of these */
    size_t n_trace_ids;
    br_series_fn *select_series; /* selects among the matching series; NULL: all */
    void *select_arg;
    /* names of the functions that stacks begin with, the outermost first; at most
     * BR_CALL_SITE_MAX */
    const char *const *call_site;
    size_t n_call_site;
    /* for br_store_samples: adds up the samples of all spans, so span_id and trace_id are 0.
     * Much faster if spans are not needed */
    bool spans_together;
    bool each; /* for br_store_samples: returns each sample instead of sums */
};

/* The sum of samples of one series, type and span. */
struct br_stored_samples {
    const struct br_stored_series *series;
    uint8_t trace_id[16]; /* zeros: none */
    uint64_t span_id;     /* 0: none */
    uint64_t time_ns;     /* of the first sample */
    /* number of samples: the value divided by series->per_sample, rounded, and at least 1 unless
     * the value is 0. If per_sample is unknown, the number of stored values */
    uint64_t count;
    int64_t value;
};

/* Receives a sum of samples, which is valid during the call. Returns false to stop. */
typedef bool br_samples_fn(const struct br_stored_samples *samples, void *arg);

/* Calls `fn` for the selected samples, summed by series, span and time step, in no order. Steps
 * begin at `from_ns`; a `step_ns` of 0 means one step for the whole range. Returns 0, BR_EINVAL
 * for an invalid regular expression, BR_EIO or BR_ENOMEM; 0 also if the query was cut. */
int br_store_samples(struct br_store_query *query, const struct br_sample_filter *filter,
                     uint64_t step_ns, br_samples_fn *fn, void *arg, struct br_err *err);

/* Adds the stacks of the selected samples to `flame` (storage/flame.h), weighted by their
 * values. If there are too many stacks, the smallest are merged and query->note is set. Returns
 * 0, BR_EINVAL for an invalid regular expression, BR_EIO, BR_ENOMEM, or BR_EFULL if the names
 * exceed the flame's limit. */
int br_store_flame(struct br_store_query *query, const struct br_sample_filter *filter,
                   struct br_flame *flame, struct br_err *err);

/* Calls `fn` once for each series that matches the range, type and matchers of the filter.
 * Returns 0, BR_EINVAL for an invalid regular expression, BR_EIO or BR_ENOMEM; 0 also if the
 * query was cut. */
int br_store_series(struct br_store_query *query, const struct br_sample_filter *filter,
                    br_series_fn *fn, void *arg, struct br_err *err);
