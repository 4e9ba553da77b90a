/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded store: spans and samples of the last hours in a folder, one SQLite database for each
 * partition (a range of time of arrival). A partition that is full or old is sealed; the oldest one
 * is unlinked when the folder passes its limits.
 *
 * One thread writes at a time; any number of threads read, each with a br_store_query of its own.
 * Readers never wait for the writer, nor the writer for readers (SQLite's WAL).
 *
 * Spans and samples are stored as they come and do not know each other. What belongs together is
 * joined when it is read: a sample names its span by trace id and span id (Sample.link_index), and
 * the processor `join` has seen to it that this is the deepest span that the sample was taken in.
 *
 * Ids of spans are the eight bytes as on the wire, read as br_span_head has them; ids of traces are
 * 16 bytes. Times are Unix nanoseconds.
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

/* --- Life ------------------------------------------------------------------------------------- */

struct br_store_config {
    const char *directory;
    uint64_t max_bytes;        /* of all partitions; the oldest is unlinked above it */
    uint64_t max_age_ns;       /* of what a partition holds */
    uint64_t partition_rows;   /* spans, or samples divided by ten, before a partition is sealed */
    uint64_t partition_age_ns; /* before it is sealed */
    bool sync_full;            /* fsync at each commit; else only at checkpoints: a power cut may
                                  lose the last commits, a killed process nothing */
};

/* Finds the store that exporter `id` writes to and others read: the same for all workers of a
 * service. It is closed until br_store_open. Returns a reference, or NULL when there is no memory.
 */
struct br_store *br_store_get(struct br_host *host, const char *id);

/* Writes the folder of a store that is told none: $XDG_DATA_HOME/braid or ~/.local/share/braid (XDG
 * Base Directory Specification). False when neither variable is set, or it does not fit. */
bool br_store_default_directory(char *ret, size_t size);

/* Gives the reference back; the last one closes the store. Accepts NULL. */
void br_store_put(struct br_host *host, struct br_store *store);

/* Opens the folder, makes it where it is missing, and takes it for this process. A partition that
 * is damaged is renamed to `<name>.damaged` and named in the log. A second call for an open store
 * does nothing. Returns 0; BR_EINVAL when another process has the folder (its pid is in the
 * sentence) or the folder is of a newer version; BR_EIO; BR_ENOMEM. */
int br_store_open(struct br_store *store, const struct br_store_config *config,
                  const struct br_log *log, struct br_err *err);

bool br_store_is_open(const struct br_store *store);

/* --- Writing ---------------------------------------------------------------------------------- */

/* Writes the items, of either signal and without references (br_item_inline_references), in one
 * transaction; without items it only looks for what is too old. Called in any thread; waits for
 * other writers. The items are only read. Returns 0 when all is committed, and nothing is
 * otherwise: BR_EFULL when the disk is full (try later), BR_EINVAL when an item cannot be stored,
 * BR_EIO, BR_ENOMEM, with a sentence. */
int br_store_write(struct br_store *store, const struct br_item *const *items, size_t n_items,
                   struct br_err *err);

/* From the oldest time to the newest one; zeros: there is nothing. */
struct br_store_range {
    uint64_t oldest_ns, newest_ns;
};

/* What the store holds. Called in any thread. */
struct br_store_usage {
    uint64_t bytes, max_bytes;
    uint64_t n_partitions; /* that can be read */
    uint64_t n_damaged;    /* that are proven to be damaged, and lie there as such */
    uint64_t n_unread;     /* that could not be read, or are not ours; tried again */
    uint64_t n_spans, n_samples;
    uint64_t n_shortened; /* items since the start that came to too much by references
                           * (storage/chunks.h): something of them was left out */
    struct br_store_range spans, samples; /* of spans' starts and samples' times */
};
void br_store_usage(struct br_store *store, struct br_store_usage *ret);

/* Grows by one with each commit; a reader that has seen a number need not look again before it
 * changes (live tail). */
uint64_t br_store_generation(const struct br_store *store);

/* --- Reading ---------------------------------------------------------------------------------- */

/* One query, in one thread. What is handed to a callback is valid during the call, its texts,
 * labels and series until br_store_query_end: they lie in `arena`, as does what a function returns.
 */
struct br_store_query {
    struct br_store *store;
    struct br_arena *arena;
    uint64_t deadline_ms; /* monotonic; past it the query is cut; 0: never */
    size_t max_bytes;     /* what it may hold, arena included; 0: anything */
    const char *cut;      /* why it has ended before its end (time, memory); NULL: it has not */
    const char *note; /* why a result is not complete, or not as it was asked for, though reading
                         goes on; set by whoever limits it. NULL: nothing to mention */
    void *impl;       /* open partitions and blocks read */
};

/* Returns what to show beside the result of a query that is not complete; NULL if it is. */
static inline const char *br_store_query_remark(const struct br_store_query *query)
{
    return query->cut ? query->cut : query->note;
}

/* Begins a query; the other fields of `query` are set. Returns 0, BR_EINVAL when the store is not
 * open, BR_ENOMEM. */
int br_store_query_begin(struct br_store_query *query, struct br_err *err);
void br_store_query_end(struct br_store_query *query);

/* A span as its row has it. */
struct br_stored_span {
    uint8_t trace_id[16];
    uint64_t span_id, parent_id; /* as br_span_head */
    uint64_t start_ns, end_ns;
    uint64_t duration_ns;       /* 0 where it ends before it starts */
    const char *service, *name; /* "unknown_service" where the resource has no service.name */
    uint8_t kind, status;       /* Span.SpanKind, Status.StatusCode */
    uint32_t partition;         /* where it lies: for br_store_span_bytes */
    int64_t block;
    uint32_t index;
};

/* Where a span's message lies, and those of its scope and resource: OTLP protobuf, without tags. */
struct br_span_bytes {
    const uint8_t *span, *scope, *resource;
    size_t span_len, scope_len, resource_len;
};

/* An attribute that a span has to have: equal text (strings, and other values as they are printed
 * in JSON). */
struct br_span_needle {
    const char *key, *value;
    bool resource; /* of the resource; else of the span */
};

enum br_span_order { BR_SPANS_NEWEST, BR_SPANS_SLOWEST };

/* Every condition holds; a zeroed one holds for all spans. */
struct br_span_filter {
    uint64_t from_ns, until_ns; /* a span starts in [from, until); until 0: no end */
    const char *service, *name; /* exact; NULL: any */
    uint64_t min_duration_ns;
    uint64_t max_duration_ns;             /* 0: any */
    bool roots;                           /* without a parent */
    bool failed;                          /* status is ERROR */
    const struct br_span_needle *needles; /* used to leave out blocks; the caller still compares */
    size_t n_needles;
    enum br_span_order order;
    uint32_t limit; /* 0: any number */
};

/* Takes one span, valid during the call. Returns false to stop. */
typedef bool br_span_fn(const struct br_stored_span *span, void *arg);

/* Calls `fn` for the spans that the filter lets through, in its order. Returns 0, also when the
 * query was cut; BR_EIO or BR_ENOMEM. */
int br_store_spans(struct br_store_query *query, const struct br_span_filter *filter,
                   br_span_fn *fn, void *arg, struct br_err *err);

/* Calls `fn` for each span of a trace, in the order of their starts. As br_store_spans. */
int br_store_trace(struct br_store_query *query, const uint8_t trace_id[16], br_span_fn *fn,
                   void *arg, struct br_err *err);

/* Finds the OTLP bytes of a span of this query. Returns 0, BR_EIO or BR_ENOMEM. */
int br_store_span_bytes(struct br_store_query *query, const struct br_stored_span *span,
                        struct br_span_bytes *ret, struct br_err *err);

/* Takes one name and how often it was counted, where that is known (else 0). */
typedef bool br_name_fn(const char *name, uint64_t count, void *arg);

/* Services that have spans in [from, until), and the operations (span names) of one of them, with
 * numbers of spans. As br_store_spans. */
int br_store_services(struct br_store_query *query, uint64_t from_ns, uint64_t until_ns,
                      br_name_fn *fn, void *arg, struct br_err *err);
int br_store_operations(struct br_store_query *query, const char *service, uint64_t from_ns,
                        uint64_t until_ns, br_name_fn *fn, void *arg, struct br_err *err);

/* Owners of attributes. The database stores these numbers. */
enum br_key_scope {
    BR_KEYS_OF_SPANS,
    BR_KEYS_OF_RESOURCES,
    BR_KEYS_OF_EVENTS,
    BR_KEYS_OF_LINKS,
    BR_KEYS_OF_SCOPES,
    BR_KEYS_SCOPES
};

/* List the keys of attributes of one scope, and the values of one key of spans or resources, from
 * partitions that touch [from, until). As br_store_spans. */
int br_store_span_keys(struct br_store_query *query, enum br_key_scope scope, uint64_t from_ns,
                       uint64_t until_ns, br_name_fn *fn, void *arg, struct br_err *err);
int br_store_span_values(struct br_store_query *query, const char *key, bool resource,
                         uint64_t from_ns, uint64_t until_ns, br_name_fn *fn, void *arg,
                         struct br_err *err);

/* --- Samples ---------------------------------------------------------------------------------- */

/* A Prometheus matcher, as Pyroscope's label selectors have them. A missing label is "". */
enum br_matcher_type { BR_MATCH_EQUAL, BR_MATCH_NOT_EQUAL, BR_MATCH_REGEX, BR_MATCH_NOT_REGEX };
struct br_matcher {
    const char *name, *value;
    enum br_matcher_type type;
};

/* Labels of a series, sorted by name, with service_name and __profile_type__ as Pyroscope has them.
 */
struct br_series_label {
    const char *name, *value;
};
struct br_stored_series {
    const struct br_series_label *labels;
    size_t n_labels;
    const char *type; /* "process_cpu:cpu:nanoseconds:cpu:nanoseconds" */
    uint64_t hash;    /* of all that follows and of the labels; equal across partitions */
    uint64_t source; /* of the labels that all samples of a profile have: its process; 0: unknown */
    uint64_t per_sample; /* value of one sample by the profile's period; 0: unknown */
};

/* Takes a series. Returns false to stop, or where it selects, to leave the series out. */
typedef bool br_series_fn(const struct br_stored_series *series, void *arg);

#define BR_CALL_SITE_MAX 1024

/* Every condition holds; a zeroed one holds for all samples. */
struct br_sample_filter {
    uint64_t from_ns, until_ns; /* until 0: no end */
    const char *type;           /* five parts, NULL: any */
    const struct br_matcher *matchers;
    size_t n_matchers;
    const uint64_t *span_ids; /* one of these */
    size_t n_span_ids;
    const uint8_t (*trace_ids)[16]; /* and one of these */
    size_t n_trace_ids;
    br_series_fn *wants; /* selects series; NULL: all that match */
    void *wants_arg;
    const char *const *call_site; /* functions that stacks begin with, the outermost first; at most
                                     BR_CALL_SITE_MAX */
    size_t n_call_site;
    bool spans_together; /* br_store_samples: those of all spans are added up; span_id and trace_id
                            are 0 then. Much faster where nobody asks for the spans */
    bool each; /* br_store_samples: nothing is added up, each sample is handed out as it is read */
};

/* Samples of one series, type and span, as they were added up. */
struct br_stored_samples {
    const struct br_stored_series *series;
    uint8_t trace_id[16]; /* zeros: none */
    uint64_t span_id;     /* 0: none */
    uint64_t time_ns;     /* of the first */
    uint64_t count; /* samples: the value by series->per_sample, rounded, at least 1 unless the
                       value is 0; where that is unknown, times and values that were stored */
    int64_t value;
};

/* Takes sums of samples, valid during the call. Returns false to stop. */
typedef bool br_samples_fn(const struct br_stored_samples *samples, void *arg);

/* Calls `fn` for what the filter lets through, added up by series, span and a step of time from
 * `from_ns` on (step 0: the whole range), in no order. As br_store_spans. */
int br_store_samples(struct br_store_query *query, const struct br_sample_filter *filter,
                     uint64_t step_ns, br_samples_fn *fn, void *arg, struct br_err *err);

/* Adds the stacks of what the filter lets through to `flame` (storage/flame.h), weighted by their
 * values. As br_store_spans; BR_EFULL when the flame has too many nodes (the query is cut then). */
int br_store_flame(struct br_store_query *query, const struct br_sample_filter *filter,
                   struct br_flame *flame, struct br_err *err);

/* Calls `fn` once for each series that the filter (its range, type and matchers) lets through. */
int br_store_series(struct br_store_query *query, const struct br_sample_filter *filter,
                    br_series_fn *fn, void *arg, struct br_err *err);
