/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join's table stores the latest spans and, for each span, the totals of its profile samples.
 * All workers share one table.
 *
 * The table allocates a fixed number of bytes when it is created. Spans are records in rings, one
 * ring per shard, oldest first. When a ring is full, its oldest records are evicted. The span id
 * selects the shard. The trace id is not used for this, because a label of a sample often contains
 * only a span id. A lookup reads one bucket of ten slots (a cache line) and occasionally the
 * neighbouring bucket. A slot is free as soon as its record has been evicted, which the position of
 * the record shows.
 *
 * A sample may arrive before its span. The totals of such a sample are stored in a *pending*
 * record, which has no name. When the span arrives, the totals are moved to the record of the span.
 * A pending record is stored until no sample has arrived for it for one window.
 *
 * A sample with timestamps may have been taken in a span below the one that it names, or may not
 * name a span. The timestamps of such a sample are *deferred*: the table stores them, and assigns
 * them to spans when the totals of a span are read. Timestamps that name only a thread are retained
 * while samples of that thread keep arriving, in at most 1/JOIN_RETAINED_SHARE of a ring.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"

struct join_table;

#define JOIN_TYPES 64 /* number of profile types; the last one means "other" */
/* largest number of profile types of one span; if there are more, the last becomes "other" */
#define JOIN_SPAN_TYPES 6
#define JOIN_VALUE_MAX 255              /* longest stored name or attribute value, in bytes */
#define JOIN_BYTES_MIN (1u << 20)       /* size of the smallest table, in bytes */
#define JOIN_BYTES_MAX (1ull << 37)     /* size of the largest table, in bytes */
#define JOIN_ATTRIBUTES_BYTES_MAX 4096u /* largest size of all attributes of one span, in bytes */
#define JOIN_TOP_MAX 48u                /* largest number of function counters of one span */
/* largest value of the option top_functions, the number of functions that a span attribute lists */
#define JOIN_TOP_SHOWN_MAX 20u
/* largest number of distinct functions; all further functions share JOIN_FUNCTION_OTHER */
#define JOIN_FUNCTIONS_MAX 16384u
/* largest number of services that are remembered as profiled at the same time */
#define JOIN_SERVICES_MAX 16384u
/* number of latest spans that are remembered as having lost samples */
#define JOIN_LOST_MAX 4096u
/* number of spans and threads for which evicted timestamps are remembered */
#define JOIN_EVICTED_MAX 4096u
/* at most 1/8 of a ring is used for timestamps older than two windows */
#define JOIN_RETAINED_SHARE 8u
/* the number that all functions beyond JOIN_FUNCTIONS_MAX share */
#define JOIN_FUNCTION_OTHER UINT32_MAX
/* largest number of spans that are read for one set of threads and one time slot */
#define JOIN_NEIGHBOURS_MAX 1024u
/* largest number of spans of one trace and service that are read, newest first */
#define JOIN_FAMILY_MAX 4096u

/* The quantity that samples measure. The type of a sample's profile determines the quantity. */
enum join_measure {
    JOIN_CPU_TIME, /* CPU time: profile type "cpu" in nanoseconds */
    /* number of CPU periods: profile type "samples", "cpu" or "itimer" in count, if the period
     * is a time */
    JOIN_CPU_COUNT,
    /* any other time: wall-clock time, time off the CPU, delays, or the number of wall-clock
     * periods */
    JOIN_WALL_TIME,
    JOIN_OTHER,
    JOIN_MEASURES,
};

/* The meaning of the values of a profile, derived from its type, unit and period. */
struct join_value_type {
    uint16_t type; /* number of the profile type "type:unit" (join_table_type) */
    enum join_measure measure;
    uint64_t unit_ns;    /* nanoseconds per unit of the values; 0: the values are not a time */
    uint64_t period_ns;  /* time between two samples, in nanoseconds; 0: unknown */
    bool counts;         /* the values are counts, not times or bytes */
    bool allocates;      /* the values are allocated bytes */
    bool has_profile_id; /* the profile has an id; otherwise `profile_id` is zero */
    uint8_t profile_id[16];
};

/* The sums of all samples that were taken in one span. */
struct join_totals {
    /* time that samples measured, in nanoseconds, for each measure (enum join_measure);
     * JOIN_OTHER has no time */
    uint64_t time_ns[JOIN_OTHER];
    uint32_t count[JOIN_MEASURES]; /* number of samples for each measure */
    /* profile types of the samples, in the order in which their first samples arrived */
    struct {
        uint16_t type; /* number of the profile type; meaningless unless `used` is set */
        bool used;
        /* number of samples that arrived before their span and have not been counted in a metric
         * yet */
        uint32_t waiting;
    } types[JOIN_SPAN_TYPES];
    uint64_t allocated_bytes; /* number of bytes that the samples of allocation profiles measured */
    /* Time in nanoseconds (by measure), allocated bytes, and number of the samples that name
     * this span and whose timestamps are deferred (struct join_deferred). The sums in the fields
     * above do not contain deferred samples. */
    uint64_t deferred_ns[JOIN_WALL_TIME], deferred_allocated_bytes;
    uint32_t deferred_count[JOIN_OTHER];
    /* Number of samples that are exported with a link to this span, by measure. The number may
     * differ from `count`: a span that arrives later can change the span of a deferred
     * timestamp, but not the link of an exported sample. */
    uint32_t linked_count[JOIN_MEASURES];
    /* time at which the first sample arrived, in tenths of a second of the monotonic clock */
    uint32_t since;
    bool deferred;          /* true if the sums of deferred samples are not 0 */
    uint8_t profile_id[16]; /* id of the last profile that had an id; zero: no profile had one */
    /* The span id that samples of this span contain. If at least one sample contains the id of
     * this span, `under` is that id. If no sample contains it, `under` is the id of the root of
     * the span's local tree. */
    uint8_t under[8];
    uint16_t top_type; /* profile type of the values in the function counters */
    /* measure (enum join_measure) of the values in the function counters */
    uint8_t top_measure;
    uint8_t n_top; /* number of function counters in use */
};

/* The counter of one function: the sum of the values of all samples whose stack ends in it. */
struct join_top {
    uint64_t value;    /* sum of values, in nanoseconds or as a count, as top_measure indicates */
    uint32_t function; /* number of the function (join_table_function) */
};

/* The attributes that identify where a span or a sample ran (infer/identity.h reads them). The
 * attributes from JOIN_HOST on are *places*: they distinguish processes that have the same
 * process id. */
enum join_where {
    JOIN_THREAD_ID,
    JOIN_THREAD_NAME,
    JOIN_PROCESS,
    JOIN_SERVICE,
    /* the runtime that assigns the thread ids; hash 0: the operating system assigns them */
    JOIN_RUNTIME,
    JOIN_HOST,
    JOIN_CONTAINER,
    JOIN_POD,
    JOIN_INSTANCE,
    JOIN_WHERES,
};
#define JOIN_PLACES (JOIN_WHERES - JOIN_HOST)

/* Identifies where a span or a sample ran. */
struct join_identity {
    uint32_t hashes[JOIN_WHERES]; /* hashes of the attributes' values; 0: the attribute is absent */
};

/* A span of the table. The pointers refer to the table's memory and are valid only under its
 * lock. */
struct join_span {
    const uint8_t *trace_id;  /* trace id (16 bytes), or NULL if unknown */
    const uint8_t *span_id;   /* span id (8 bytes) */
    const uint8_t *parent_id; /* span id of the parent (8 bytes), or NULL for a root */
    /* start and end of the span, in nanoseconds since 1970 */
    uint64_t start_ns, end_ns;
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: unknown */
    uint8_t kind, status;         /* span kind and status code, as numbers of OTLP */
    /* names of the span and of its service, not zero-terminated; at most JOIN_VALUE_MAX bytes
     * each */
    const uint8_t *name, *service;
    size_t name_len, service_len;
    /* for each configured attribute: one byte that contains its length + 1 (0: absent), then its
     * value */
    const uint8_t *attributes;
    size_t attributes_len; /* length of `attributes`, in bytes */
};

/* The data that all spans of one resource have in common. */
struct join_origin {
    const uint8_t *service; /* service name */
    size_t service_len;     /* length of the service name in bytes, at most JOIN_VALUE_MAX */
    /* result of join_service_hash; 0: the spans do not belong to a family */
    uint64_t service_hash;
    /* where the spans ran; NULL if the table does not find spans by thread */
    const struct join_identity *where;
};

/* The attributes of one span, in the format of struct join_span. */
struct join_attributes {
    const uint8_t *data; /* lengths and values, as in join_span.attributes */
    size_t len;          /* length of `data` in bytes, at most JOIN_ATTRIBUTES_BYTES_MAX */
};

/* Spans to enter in the table. Spans without a span id are skipped, and names are truncated to
 * JOIN_VALUE_MAX bytes. All pointers are borrowed. */
struct join_entries {
    const struct br_span *spans;
    size_t count; /* number of spans */
    /* data that the spans of one part of the item have in common, for each part from
     * `first_part` on */
    const struct join_origin *origins;
    uint32_t first_part; /* index of the item's part to which origins[0] belongs */
    /* attributes of each span; NULL: no span has attributes */
    const struct join_attributes *attributes;
};

/* The amounts that one sample adds to the totals of its span. */
struct join_sample {
    const uint8_t *trace_id; /* trace id (16 bytes), or NULL if only the span id is known */
    const uint8_t *span_id;  /* span id (8 bytes) */
    enum join_measure measure;
    uint64_t time_ns; /* time that the sample measured, in nanoseconds; 0 for JOIN_OTHER */
    uint32_t count;   /* number of sampled events that this sample stands for */
    uint16_t type;    /* number of the profile type */
    /* sum of the sample's values, in nanoseconds if the measure is a time */
    uint64_t value;
    /* number of allocated bytes; 0 if the values are not allocated bytes */
    uint64_t allocated_bytes;
    uint32_t function; /* number of the function at the leaf of the stack; 0: unknown */
    /* id of the span that the sample names, if it differs from `span_id`; otherwise NULL */
    const uint8_t *under;
    bool deferred; /* the sample's timestamps are deferred (join_table_defer) */
    /* the sample's item is held until the span arrives, so the caller counts the outcome */
    bool held;
    const uint8_t *profile_id; /* id of the sample's profile (16 bytes), or NULL */
};

/* Computes the amounts that a sample adds to totals. `value` is the sum of its values,
 * `has_value` is false if the sample has no values, and `n_times` is the number of its
 * timestamps. Sets measure, time_ns, count, type, value, allocated_bytes and profile_id of
 * `*ret`, and leaves its other fields unchanged. */
void join_value_type_apply(const struct join_value_type *value_type, uint64_t value, bool has_value,
                           uint64_t n_times, struct join_sample *ret);

enum join_result {
    JOIN_FOUND,
    JOIN_UNKNOWN,  /* the span has not arrived */
    JOIN_TOO_LATE, /* the sample arrived too late: the span is older than the window */
};

/* Called under the table's lock when a span takes over the totals of a pending record. The
 * function must be quick and must not call the table. */
typedef void join_adopted_fn(void *arg, const struct join_span *span,
                             const struct join_totals *totals);

/* Numbers of samples that arrived before their span (by profile type) and of spans that a call
 * has affected. The caller zeroes the struct and adds the numbers to the metrics. */
struct join_tally {
    uint64_t late[JOIN_TYPES];    /* number of samples whose span arrived after them */
    uint64_t unknown[JOIN_TYPES]; /* number of samples whose span never arrived */
    /* number of spans that were evicted within the window, because the table was full */
    uint64_t evicted;
    /* number of spans that took over the totals of a pending record */
    uint64_t adopted;
    bool any; /* true if at least one of the numbers above is not 0 */
    /* called for each span that takes over the totals of a pending record; may be NULL */
    join_adopted_fn *on_adopted;
    void *arg; /* first argument of on_adopted */
};

/* Returns a table of `max_bytes` (JOIN_BYTES_MIN to JOIN_BYTES_MAX) for the spans of the last
 * `window_ms` milliseconds, or NULL if there is not enough memory. Each span that has samples
 * gets `n_top` function counters (at most JOIN_TOP_MAX). If `threads` is true, spans can also be
 * found by the thread on which they ran. If `shared` is false, all calls must come from one
 * thread, and are then cheaper.
 *
 * The functions below receive the current time in milliseconds of the monotonic clock as
 * `now_ms`. The clocks of different threads may differ slightly. */
struct join_table *join_table_new(size_t max_bytes, uint64_t window_ms, unsigned n_top,
                                  bool threads, bool shared);
void join_table_free(struct join_table *table);

/* A range of the table's memory for which the kernel should allocate pages. */
struct join_pages {
    void *at;   /* first byte of the range */
    size_t len; /* length of the range, in bytes */
    /* true if the range is accessed in random order, so that existing small pages are collapsed
     * into large ones */
    bool at_random;
};

/* Selects the next range of the table's memory for which the kernel should allocate pages before
 * they are used: first the index, then the next quarter of each ring. Pages that are allocated
 * in advance can be large pages. Large pages make entering spans 5 % faster, but allocating one
 * may take milliseconds.
 *
 * Returns false if no pages are needed now, or if another thread is allocating pages. If it
 * returns true, call join_table_pages_make in any thread and then join_table_pages_end, both
 * before the table is freed. */
bool join_table_pages_begin(struct join_table *table, struct join_pages *ret);

/* Makes the kernel allocate the pages, if the kernel supports this (MADV_POPULATE_WRITE, Linux
 * 5.14; MADV_COLLAPSE, Linux 6.1). The contents of the memory stay the same. */
void join_table_pages_make(const struct join_pages *pages);

void join_table_pages_end(struct join_table *table);

/* Enters spans that arrived at `now_ms`. Returns how many of the spans have a span id.
 * join_table_enter and all functions below it are thread-safe in a shared table. */
size_t join_table_enter(struct join_table *table, const struct join_entries *entries,
                        uint64_t now_ms, struct join_tally *tally);

typedef void join_found_fn(void *arg, const struct join_span *span);

/* A copy of a span, made under the table's lock. */
struct join_found {
    uint8_t trace[16], span[8], name[JOIN_VALUE_MAX], service[JOIN_VALUE_MAX];
    /* attributes in the format of join_span.attributes */
    uint8_t attributes[JOIN_ATTRIBUTES_BYTES_MAX];
    /* lengths of the name, the service name and the attributes, in bytes */
    size_t name_len, service_len, attributes_len;
    /* start and end of the span, in nanoseconds since 1970 */
    uint64_t start_ns, end_ns;
    uint8_t status; /* status code, as a number of OTLP */
    bool has_trace; /* false: the trace id is unknown, and `trace` is zero */
};

/* Copies the span to `arg`, which is a struct join_found. Has the type join_found_fn. */
void join_found_copy(void *arg, const struct join_span *span);

/* Looks up the span of a sample that arrived at `now_ms`. If the span is found, calls
 * `found(arg, span)` under the table's lock; `found` must be quick and must not call the table.
 * If the sample has no trace id, and spans of two traces have the sample's span id, no span is
 * found.
 *
 * If `add` is true, adds the sample to the totals of the span, or to a pending record if the
 * span has not arrived. If no memory for totals is left, the sample is not added and the span is
 * noted as having lost samples. */
enum join_result join_table_sample(struct join_table *table, const struct join_sample *sample,
                                   bool add, uint64_t now_ms, join_found_fn *found, void *arg,
                                   struct join_tally *tally);

/* Calls `found` (as join_table_sample does) if the span has arrived and has not been evicted. */
void join_table_find(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                     join_found_fn *found, void *arg);

#define JOIN_TIMES_MAX 256u /* largest number of timestamps of one struct join_deferred */

/* Deferred timestamps of a sample. The sample either names a span, or is stored under ids that
 * are made of the hashes of its thread and process. The timestamps are assigned to spans when
 * totals are read, according to all spans that have arrived by then. */
struct join_deferred {
    /* unit_ns, period_ns, type, measure, counts and allocates are copies of the fields of struct
     * join_value_type */
    uint64_t unit_ns, period_ns;
    uint16_t type;
    uint8_t measure;
    bool counts, allocates;
    bool has_value; /* the sample has values */
    /* the sample does not name a span, so it is stored under ids that are made of its thread */
    bool of_thread;
    bool held;                    /* the sample's item is held before it is released */
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: unknown */
    uint32_t function;            /* number of the function at the leaf of the stack; 0: unknown */
    /* hashes of the attributes that identify where the sample was taken; only if `of_thread` is
     * set */
    uint32_t service, runtime, places[JOIN_PLACES];
    /* number of timestamps (at most JOIN_TIMES_MAX), and number of values (0 or n_times) */
    uint32_t n_times, n_values;
    uint32_t released; /* release time, in tenths of a second (join_release_time.at) */
    uint64_t value;    /* sum of the values of all timestamps */
};

/* Stores the deferred timestamps of a sample and, if n_values is not 0, its `values`. The oldest
 * records are evicted to make room. */
void join_table_defer(struct join_table *table, const struct join_sample *sample,
                      const struct join_deferred *deferred, const uint64_t *times,
                      const uint64_t *values, uint64_t now_ms, struct join_tally *tally);

/* Position of an iteration over the deferred timestamps of one span or thread, newest first. The
 * caller zeroes the struct before the first call. */
struct join_deferred_cursor {
    bool begun;     /* true after the first call of join_table_next_deferred */
    uint32_t steps; /* number of records that the last call read */
    /* `since` is set: records that are more than a window older than `since` belong to an
     * earlier span with the same id */
    bool has_since;
    /* time at which the span's first sample arrived, in tenths of a second of the monotonic
     * clock */
    uint32_t since;
    /* positions in the ring: of the next record, and of the current record */
    uint64_t position, found;
    struct join_deferred deferred; /* the current record */
    /* deferred.n_times timestamps and deferred.n_values values of the current record */
    uint64_t times[JOIN_TIMES_MAX], values[JOIN_TIMES_MAX];
};

/* Advances to the next record and copies it to the cursor. Returns false if there is no further
 * record. `trace_id` has 16 bytes, and `span_id` has 8 bytes. */
bool join_table_next_deferred(struct join_table *table, const uint8_t *trace_id,
                              const uint8_t *span_id, struct join_deferred_cursor *cursor);

/* Marks those timestamps of the current record whose element in `spans` is not 0 as assigned, so
 * that they are no longer retained. For records of a thread, `span_id` is the span id that is
 * made of the thread. */
void join_table_mark_assigned(struct join_table *table, const uint8_t *span_id,
                              const struct join_deferred_cursor *cursor, const uint64_t *spans);

/* Returns true if timestamps were deferred during the last window. */
bool join_table_any_deferred(const struct join_table *table, uint64_t now_ms);

/* Returns the amounts that `n_times` of the deferred timestamps add to the totals of a span.
 * `value` is the sum of the values of these timestamps. */
struct join_sample join_deferred_sample(const struct join_deferred *deferred, uint64_t value,
                                        uint64_t n_times);

/* Returns true if samples of the span were lost: the span did not arrive within a window after
 * them, or memory for their totals was exhausted. */
bool join_table_lost(struct join_table *table, const uint8_t *span_id);

/* Returns true if children of the span that had samples were evicted, so that the inclusive sums
 * of the span are incomplete. Returns false if the sums had been read before the eviction. */
bool join_table_lost_below(struct join_table *table, const uint8_t *span_id);

/* Returns true if timestamps after `start_ns` were evicted before all spans of these timestamps
 * had arrived. The totals of a span that started at `start_ns` are then incomplete. `span_id` is
 * the span that the samples name, or the span id that is made of their thread. */
bool join_table_evicted_after(struct join_table *table, const uint8_t *span_id, uint64_t start_ns);

/* Copies the totals of a span and, unless `ret_top` is NULL, its function counters (at most
 * JOIN_TOP_MAX of them). Returns false if the span has no totals. */
bool join_table_totals(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *ret, struct join_top *ret_top);

/* Returns the measure in which the number and the duration of a span's samples are reported: the
 * first one, in the order of the enum, that has samples. */
enum join_measure join_totals_measure(const struct join_totals *totals);

/* Returns the CPU time in nanoseconds of the samples that name the span, including deferred
 * samples. */
uint64_t join_totals_cpu_ns(const struct join_totals *totals);

/* Adds a sample to totals that are followed by function counters (join_table_totals_size bytes).
 * `waits` means that the sample is counted in a metric only when its span arrives. */
void join_totals_add_sample(const struct join_table *table, struct join_totals *totals,
                            const struct join_sample *sample, bool waits);
/* Counts a sample that is exported with a link to the span to which the totals belong. */
void join_totals_add_linked(struct join_totals *totals, const struct join_sample *sample);

const struct join_top *join_totals_top(const struct join_totals *totals);
size_t join_table_totals_size(const struct join_table *table);

/* Adds the totals of one span to those of another, without the function counters. */
void join_totals_add(struct join_totals *into, const struct join_totals *from);

/* Adds the function counters of one span to those of another, using at most `max` counters. */
void join_totals_add_top(struct join_totals *into, struct join_top *into_top, unsigned max,
                         const struct join_totals *from, const struct join_top *from_top);

/* One span of a *family*: the spans of one trace and one service. */
struct join_relative {
    /* ids as integers, loaded from their bytes on the wire; a parent_id of 0 means that the span
     * has no parent */
    uint64_t span_id, parent_id;
    uint64_t start_ns, end_ns;    /* start and end of the span, in nanoseconds since 1970 */
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: unknown */
    /* time at which the span arrived, in tenths of a second of the monotonic clock */
    uint32_t seen;
    uint8_t kind;  /* span kind, as a number of OTLP */
    bool totals;   /* the span has totals */
    bool deferred; /* samples with deferred timestamps name the span */
};

/* Returns the hash of a service name, never 0. The hash and the trace id select the family of a
 * span. */
uint64_t join_service_hash(const uint8_t *name, size_t len);

/* Describes the result of a search for spans. */
struct join_search {
    bool more; /* true if the search ended before it reached the oldest span */
    /* for searches of a family: spans that ended before this time (ns since 1970) may be missing */
    uint64_t since_ns;
    unsigned steps; /* number of records that the search read */
};

/* Copies at most `max` spans of a trace (16 bytes) and a service, newest first, and returns
 * their number. `service_hash` is the hash with which the spans were entered. */
unsigned join_table_family(struct join_table *table, const uint8_t *trace_id,
                           const uint8_t *service, size_t service_len, uint64_t service_hash,
                           struct join_relative *out, unsigned max, struct join_search *ret);

/* A span that ran on a given thread. */
struct join_neighbour {
    uint8_t trace_id[16];
    /* ids as integers, loaded from their bytes on the wire; a parent_id of 0 means that the span
     * has no parent */
    uint64_t span_id, parent_id;
    uint64_t start_ns, end_ns; /* start and end of the span, in nanoseconds since 1970 */
    /* hashes of thread.id, thread.name, the service and the places; 0: unknown */
    uint32_t thread, thread_name, service, places[JOIN_PLACES];
    /* hash of the runtime; 0: thread ids are the operating system's */
    uint32_t runtime;
    /* time at which the span arrived, in tenths of a second of the monotonic clock */
    uint32_t seen;
};

/* The time at which a sample is released, that is, forwarded to the next component. */
struct join_release_time {
    uint32_t at; /* release time in tenths of a second of the monotonic clock */
    bool held;   /* the sample is held until `at` */
};

static inline struct join_release_time join_release_time(uint64_t came_ms, uint64_t waits_ms)
{
    return (struct join_release_time){(uint32_t)((came_ms + waits_ms) / 100), waits_ms != 0};
}

/* Returns true if a span arrived early enough for a sample to be exported with a link to it. For
 * a held sample the result does not depend on the time of the call: a span that arrives in the
 * same tenth of a second as the release is too late. */
static inline bool join_is_in_time(uint32_t seen, struct join_release_time release_time)
{
    int32_t before = (int32_t)(release_time.at - seen);
    return before > 0 || (before == 0 && !release_time.held);
}

static inline struct join_release_time
join_deferred_release_time(const struct join_deferred *deferred)
{
    return (struct join_release_time){deferred->released, deferred->held};
}

/* The key by which a thread is found: its id, or its name together with the origin of its id.
 * The origin of a thread id is the operating system (SYSTEM) or a runtime (MANAGED); a thread
 * without an id is found by its name alone. */
enum join_thread_key {
    JOIN_BY_THREAD_ID,
    JOIN_BY_NAME_ALONE,
    JOIN_BY_NAME_SYSTEM,
    JOIN_BY_NAME_MANAGED,
    JOIN_THREAD_KEYS
};

/* Returns the key for finding a thread by name. `thread` and `runtime` are the hashes of the
 * thread's id and its runtime (0: absent). */
static inline enum join_thread_key join_thread_name_key(uint32_t thread, uint32_t runtime)
{
    if (!thread)
        return JOIN_BY_NAME_ALONE;
    return runtime ? JOIN_BY_NAME_MANAGED : JOIN_BY_NAME_SYSTEM;
}

/* A set of threads: all threads with a given id or name, in processes with a given id. These
 * processes may be on different hosts or in different containers. The hashes are never 0. */
struct join_threads {
    enum join_thread_key key;
    uint32_t thread;  /* hash of the thread's id or name, as `key` indicates */
    uint32_t process; /* hash of the process id */
};

/* The spans of each thread are indexed by time. Level n contains spans that last up to
 * 2^join_level_shift(n) nanoseconds, so the limit of each level is four times that of the
 * previous one. For each level, time is divided into slots of 2^join_level_shift(n) nanoseconds.
 * A span that was open at a given time therefore began in the slot of that time or in the slot
 * before it. */
#define JOIN_LEVELS 22u

static inline unsigned join_level_shift(unsigned level)
{
    return 20 + 2 * level; /* level 0: 2^20 ns, about a millisecond */
}

/* Returns a bit set: bit n is set if spans of level n have been added to the table. Level 0 has the
 * shortest spans. */
uint32_t join_table_levels(const struct join_table *table);

/* Copies spans of these threads and this level that began in `slot` (time >> join_level_shift),
 * newest first and at most JOIN_NEIGHBOURS_MAX. Returns their number. The table must have been
 * created with `threads`. */
unsigned join_table_neighbours(struct join_table *table, const struct join_threads *threads,
                               unsigned level, uint64_t slot, struct join_neighbour *out,
                               struct join_search *ret);

/* Returns the latest end of the evicted spans of these threads that ran at one of the places
 * (hashes; 0: unknown). For times before the result, some spans may be unknown. The result may
 * be later than the true end, because hashes can collide. If `early` is true, considers only
 * spans that were evicted within the window because the ring was full. */
uint64_t join_table_known_since(const struct join_table *table, const struct join_threads *threads,
                                const uint32_t places[JOIN_PLACES], bool early);

/* Removes records about two windows after they arrived. Samples that arrive between one and two
 * windows after their span are reported as too late. Samples whose span never arrived are
 * counted as unknown. Reads at most 8192 records. Returns true if 8192 records have been read,
 * so that there may be more. */
bool join_table_expire(struct join_table *table, uint64_t now_ms, struct join_tally *tally);

/* Returns the number of a profile type's name, which is the same for all workers. If there are
 * too many types, returns the highest number, JOIN_TYPES minus 1. */
uint16_t join_table_type(struct join_table *table, const char *name, size_t len);
/* Returns the name of the profile type with this number, zero-terminated and valid until the
 * table is freed. */
const char *join_table_type_name(struct join_table *table, uint16_t type);

/* Notes that a service was profiled at `now_ms`. `service` is the hash of the service's
 * identity. If about JOIN_SERVICES_MAX services are profiled already, returns false and notes
 * nothing. */
bool join_table_profiled(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Returns true if a service is being profiled. A service counts as profiled for one window after
 * a profile, or for twice the interval between its last two profiles if that is longer. */
bool join_table_is_profiled(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Notes that the samples of a service contain the ids of the spans in which they were taken, not
 * only ids of roots. Called when a sample has named a span that is not the root of a local tree.
 * The note expires like that of a profiled service. */
void join_table_note_exact(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Returns true if the samples of a service contain the ids of the spans in which they were taken
 * (join_table_note_exact). */
bool join_table_is_exact(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Notes that spans of a service arrived. Returns true if the service is new: its first span,
 * after a window without spans, arrived less than `for_ms` milliseconds ago. For a new service
 * it is unknown whether the service is profiled. Returns false if about JOIN_SERVICES_MAX
 * services have spans already. */
bool join_table_is_newcomer(struct join_table *table, uint64_t service, uint64_t now_ms,
                            uint64_t for_ms);

/* Returns true if the value is one of the first `max` distinct values of key number `key` (0 to
 * 31). */
bool join_table_value(struct join_table *table, unsigned key, const void *value, size_t len,
                      size_t max);

/* Returns the number of a function name, which is the same for all workers, or
 * JOIN_FUNCTION_OTHER if there are too many. Only the first JOIN_VALUE_MAX bytes of a name are
 * compared. */
uint32_t join_table_function(struct join_table *table, const uint8_t *name, size_t len);

/* Returns the name of the function with this number. The name is valid until the table is freed. */
const char *join_table_function_name(struct join_table *table, uint32_t number, size_t *ret_len);

/* Returns true if the series is one of the first `max` distinct ones. `key` consists of any
 * bytes that identify the series. */
bool join_table_series(struct join_table *table, const void *key, size_t len, size_t max);

/* Returns the hash of a text, which depends on the table's secret and is never 0. */
uint32_t join_table_hash(const struct join_table *table, const void *data, size_t len);

/* Returns the hash of an integer, which depends on the table's secret and is never 0. The hash
 * equals that of the integer's decimal digits. */
uint32_t join_table_hash_int(const struct join_table *table, int64_t value);

/* Returns the hash of an AnyValue that is a text or an integer. Returns 0 if the value has
 * another type or is empty, or if `any` is NULL. */
uint32_t join_table_hash_value(const struct join_table *table, const uint8_t *any, size_t len);

/* A summary of the data that all joins with this table have received. The summary is used to log
 * why nothing is joined. */
struct join_progress {
    _Atomic unsigned signals; /* bit set of the signals that have a pipeline with this join */
    _Atomic bool warned;      /* true after it was logged that a pipeline is missing */
    /* These fields mean, in their order: spans arrived; samples arrived; a sample names a span;
     * a sample names several spans; a sample contains enough to infer its span; a service has
     * both signals; a sample was joined. */
    _Atomic bool spans, samples, named, ambiguous, inferable, common, joined;
};

/* Sets the flag `*it` to true. The flag is read first: usually it is set already, and writing
 * would slow down other workers. */
static inline void join_progress_note(_Atomic bool *it)
{
    if (!*it)
        *it = true;
}

struct join_progress *join_table_progress(struct join_table *table);

/* The fill level of the table, for metrics. */
struct join_stats {
    uint64_t spans;            /* number of spans in the rings */
    uint64_t pending;          /* number of pending records */
    uint64_t bytes, max_bytes; /* total size of the records, and its limit, in bytes */
    /* age of the oldest record in milliseconds; dead records are skipped, but at most a limited
     * number of them */
    uint64_t oldest_ms;
};

/* Computes the fill level of the table at `now_ms`. */
void join_table_stats(struct join_table *table, uint64_t now_ms, struct join_stats *ret);
