/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join's table stores the latest spans and, for each span, the totals of its profile samples.
 * All workers share one table.
 *
 * The table allocates a fixed number of bytes when it is created. Spans are records in rings, one
 * ring per shard, oldest first. When a ring is full, its oldest records are evicted. The span id
 * selects the shard; the trace id does not, because a label of a sample often contains a span id
 * alone. A lookup reads one bucket of ten slots (a cache line) and occasionally the neighbouring
 * bucket. A slot is free as soon as its record has been evicted, which the position of the record
 * shows.
 *
 * A sample may arrive before its span. Its totals are then stored in a *pending* record, which has
 * no name, and the span takes them over when it arrives. A pending record is stored until no sample
 * has arrived for one window.
 *
 * A sample with timestamps may have been taken in a span below the one that it names, or may name
 * no span. Its timestamps are then *deferred*: the table stores them, and they are assigned to
 * spans when the totals of a span are read. Timestamps that name only a thread are retained while
 * samples of that thread keep arriving, in at most 1/JOIN_RETAINED_SHARE of a ring.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"

struct join_table;

#define JOIN_TYPES 64 /* distinct profile types; the last number means "other" */
/* most profile types of one span; if there are more, the last becomes "other" */
#define JOIN_SPAN_TYPES 6
#define JOIN_VALUE_MAX 255              /* longest stored name or attribute value, in bytes */
#define JOIN_BYTES_MIN (1u << 20)       /* size of the smallest table, in bytes */
#define JOIN_BYTES_MAX (1ull << 37)     /* size of the largest table, in bytes */
#define JOIN_ATTRIBUTES_BYTES_MAX 4096u /* largest size of all attributes of one span, in bytes */
#define JOIN_TOP_MAX 48u                /* most function counters of one span */
/* largest value of the option top_functions: functions that a span attribute lists */
#define JOIN_TOP_SHOWN_MAX 20u
/* most distinct functions; all others share JOIN_FUNCTION_OTHER */
#define JOIN_FUNCTIONS_MAX 16384u
#define JOIN_SERVICES_MAX 16384u /* most services that are remembered as profiled at a time */
/* number of latest spans that are remembered as having lost samples */
#define JOIN_LOST_MAX 4096u
/* number of local roots and threads whose evicted timestamps are remembered */
#define JOIN_EVICTED_MAX 4096u
#define JOIN_RETAINED_SHARE 8u /* 1/8 of a ring is for timestamps older than two windows */
/* number of all functions beyond JOIN_FUNCTIONS_MAX */
#define JOIN_FUNCTION_OTHER UINT32_MAX
/* most spans of one set of threads that are read for one time slot */
#define JOIN_NEIGHBOURS_MAX 1024u
/* most spans of one trace and service that are read, newest first */
#define JOIN_FAMILY_MAX 4096u

/* The quantity that the totals of samples measure; the type of their profile determines it. */
enum join_measure {
    JOIN_CPU_TIME, /* CPU time: cpu in nanoseconds */
    /* number of CPU periods: samples, cpu or itimer in count, with a period that is a time */
    JOIN_CPU_COUNT,
    JOIN_WALL_TIME, /* any other time: wall, off_cpu, delays, or the number of wall-clock periods */
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
    /* time that samples measured, in nanoseconds, by measure; JOIN_OTHER has no time */
    uint64_t time_ns[JOIN_OTHER];
    uint32_t count[JOIN_MEASURES]; /* number of samples, by measure */
    /* the profile types of the samples, in the order of their arrival */
    struct {
        uint16_t type; /* number of the profile type; meaningless unless `used` is set */
        bool used;
        /* samples that arrived before their span and are not counted in a metric yet */
        uint32_t waiting;
    } types[JOIN_SPAN_TYPES];
    uint64_t allocated_bytes; /* bytes that samples of allocation profiles measured */
    /* Nanoseconds (by measure), bytes and number of the samples that name this span and whose
     * timestamps are deferred (struct join_deferred). The sums above do not contain them. */
    uint64_t deferred_ns[JOIN_WALL_TIME], deferred_allocated_bytes;
    uint32_t deferred_count[JOIN_OTHER];
    /* Number of samples that are exported with a link to this span. The sums above may differ
     * from it, because spans that arrive later can change the assignment of a deferred
     * timestamp, but not the link of an exported sample. */
    uint32_t linked_count[JOIN_MEASURES];
    uint32_t since; /* arrival of the first sample, in tenths of a second of the monotonic clock */
    bool deferred;  /* the sums of deferred samples are not empty */
    uint8_t profile_id[16]; /* id of the last profile that has one; zero: none */
    /* The span id that this span's samples contain: the id of this span if at least one sample
     * contains it, otherwise the id of the local root above this span. */
    uint8_t under[8];
    uint16_t top_type; /* profile type of the values that the function counters count */
    /* measure (enum join_measure) of the values that the function counters count */
    uint8_t top_measure;
    uint8_t n_top; /* number of function counters in use */
};

/* The counter of one function: the sum of the values of samples whose stack ends in it. */
struct join_top {
    uint64_t value;    /* sum of values, in nanoseconds or as a count, as top_measure indicates */
    uint32_t function; /* number of the function (join_table_function) */
};

/* The attributes that identify where a span or a sample ran; infer/identity.h reads them. Those
 * from JOIN_HOST on are *places*: they distinguish processes that have the same process id. */
enum join_where {
    JOIN_THREAD_ID,
    JOIN_THREAD_NAME,
    JOIN_PROCESS,
    JOIN_SERVICE,
    JOIN_RUNTIME, /* the runtime that assigns the thread ids; 0: the operating system */
    JOIN_HOST,
    JOIN_CONTAINER,
    JOIN_POD,
    JOIN_INSTANCE,
    JOIN_WHERES,
};
#define JOIN_PLACES (JOIN_WHERES - JOIN_HOST)

/* Where a span or a sample ran. */
struct join_identity {
    uint32_t hashes[JOIN_WHERES]; /* hashes of the attributes' values; 0: the attribute is absent */
};

/* A span of the table. The pointers refer to the table's memory and are valid only under its
 * lock. */
struct join_span {
    const uint8_t *trace_id;  /* 16 bytes, or NULL if unknown */
    const uint8_t *span_id;   /* 8 bytes */
    const uint8_t *parent_id; /* 8 bytes, or NULL for a root */
    /* start and end of the span, in nanoseconds since 1970 */
    uint64_t start_ns, end_ns;
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: unknown */
    uint8_t kind, status;         /* span kind and status code, as numbers of OTLP */
    /* name of the span and of its service, not zero-terminated; at most JOIN_VALUE_MAX bytes */
    const uint8_t *name, *service;
    size_t name_len, service_len;
    /* for each configured attribute: one byte with its length + 1 (0: absent), then its bytes */
    const uint8_t *attributes;
    size_t attributes_len; /* length of `attributes`, in bytes */
};

/* The common data of all spans of one resource. */
struct join_origin {
    const uint8_t *service; /* service name */
    size_t service_len;     /* length of the service name in bytes, at most JOIN_VALUE_MAX */
    uint64_t service_hash;  /* join_service_hash; 0: the spans belong to no family */
    const struct join_identity *where; /* NULL in a table without threads */
};

/* The attributes of one span, in the format of struct join_span. */
struct join_attributes {
    const uint8_t *data; /* lengths and values, as in join_span.attributes */
    size_t len;          /* length in bytes, at most JOIN_ATTRIBUTES_BYTES_MAX */
};

/* Spans to enter in the table. Spans without a span id are skipped, and names are truncated to
 * JOIN_VALUE_MAX bytes. All pointers are borrowed. */
struct join_entries {
    const struct br_span *spans;
    size_t count; /* number of spans */
    /* for each part of the item from `first_part` on, the common data of its spans */
    const struct join_origin *origins;
    uint32_t first_part; /* index of the item's part to which origins[0] belongs */
    /* attributes of each span; NULL: no span has attributes */
    const struct join_attributes *attributes;
};

/* The contribution of one sample to the totals of its span. */
struct join_sample {
    const uint8_t *trace_id; /* 16 bytes, or NULL if only the span id is known */
    const uint8_t *span_id;  /* 8 bytes */
    enum join_measure measure;
    uint64_t time_ns; /* time that the sample measured, in nanoseconds; 0 for JOIN_OTHER */
    uint32_t count;   /* number of samples that this sample stands for */
    uint16_t type;    /* number of the profile type */
    /* sum of the sample's values, in nanoseconds if the measure is a time */
    uint64_t value;
    uint64_t allocated_bytes; /* allocated bytes; 0 if the values are not allocated bytes */
    uint32_t function;        /* number of the function at the leaf of the stack; 0: unknown */
    /* id of the span that the sample names, if it differs from `span_id`; otherwise NULL */
    const uint8_t *under;
    bool deferred; /* the sample's timestamps are deferred (join_table_defer) */
    /* the sample's item is held until the span arrives; the caller then counts the outcome */
    bool held;
    const uint8_t *profile_id; /* 16 bytes, or NULL */
};

/* Computes what a sample contributes. `value` is the sum of its values, `has_value` is false if
 * it has none, and `n_times` is the number of its timestamps. Sets measure, time_ns, count,
 * type, value, allocated_bytes and profile_id of `*ret`, and leaves its other fields alone. */
void join_value_type_apply(const struct join_value_type *value_type, uint64_t value, bool has_value,
                           uint64_t n_times, struct join_sample *ret);

enum join_result {
    JOIN_FOUND,
    JOIN_UNKNOWN,  /* the span has not arrived */
    JOIN_TOO_LATE, /* the span is older than the window */
};

/* Called under the table's lock for a span that takes over the totals of a pending record. The
 * function must be quick and must not call the table. */
typedef void join_adopted_fn(void *arg, const struct join_span *span,
                             const struct join_totals *totals);

/* The effects of a call on samples that arrived before their span, by profile type, and on
 * spans. The caller zeroes the struct and adds its numbers to the metrics. */
struct join_tally {
    uint64_t late[JOIN_TYPES];    /* samples whose span arrived after them */
    uint64_t unknown[JOIN_TYPES]; /* samples whose span never arrived */
    uint64_t evicted;             /* spans evicted within the window because the table was full */
    uint64_t adopted;             /* spans that took over the totals of a pending record */
    bool any;                     /* at least one of the numbers above is not 0 */
    join_adopted_fn *on_adopted;  /* called for each span that takes over totals; may be NULL */
    void *arg;                    /* first argument of on_adopted */
};

/* Returns a table of `max_bytes` (JOIN_BYTES_MIN to JOIN_BYTES_MAX) for the spans of the last
 * `window_ms` milliseconds, or NULL if there is not enough memory. Each span that has samples
 * gets `n_top` function counters (at most JOIN_TOP_MAX). With `threads`, spans can also be found
 * by the thread on which they ran. Without `shared`, all calls must come from one thread, which
 * costs less.
 *
 * `now_ms` of the functions below is the monotonic clock; the clocks of different threads may
 * differ slightly. */
struct join_table *join_table_new(size_t max_bytes, uint64_t window_ms, unsigned n_top,
                                  bool threads, bool shared);
void join_table_free(struct join_table *table);

/* A range of the table's memory whose pages are to be made. */
struct join_pages {
    void *at;   /* first byte of the range */
    size_t len; /* length of the range, in bytes */
    /* accessed in random order: existing small pages are collapsed into large ones */
    bool at_random;
};

/* Selects the next range of the table's memory whose pages should be made before they are used:
 * first the index, then the next quarter of each ring. Making pages ahead allows large pages,
 * which make entering spans 5 % faster, and each of which may take milliseconds to make.
 *
 * Returns false if nothing needs pages now or another thread is making some. After true, call
 * join_table_pages_make in any thread and then join_table_pages_end, both before the table is
 * freed. */
bool join_table_pages_begin(struct join_table *table, struct join_pages *ret);

/* Makes the pages, if the kernel supports it (MADV_POPULATE_WRITE, Linux 5.14; MADV_COLLAPSE,
 * Linux 6.1). The contents stay the same. */
void join_table_pages_make(const struct join_pages *pages);

void join_table_pages_end(struct join_table *table);

/* Enters spans that arrived at `now_ms` and returns how many have a span id. This function and
 * all below are thread-safe in a shared table. */
size_t join_table_enter(struct join_table *table, const struct join_entries *entries,
                        uint64_t now_ms, struct join_tally *tally);

typedef void join_found_fn(void *arg, const struct join_span *span);

/* A copy of a span, made under the table's lock. */
struct join_found {
    uint8_t trace[16], span[8], name[JOIN_VALUE_MAX], service[JOIN_VALUE_MAX];
    uint8_t attributes[JOIN_ATTRIBUTES_BYTES_MAX]; /* in the format of join_span.attributes */
    size_t name_len, service_len, attributes_len;  /* in bytes */
    uint64_t start_ns, end_ns;                     /* in nanoseconds since 1970 */
    uint8_t status;                                /* status code, as a number of OTLP */
    bool has_trace; /* false: the trace id is unknown, and `trace` is zero */
};

/* Copies the span to `arg`, a struct join_found. Use it as a join_found_fn. */
void join_found_copy(void *arg, const struct join_span *span);

/* Looks up the span of a sample that arrived at `now_ms`. If it is found, calls `found(arg,
 * span)` under the table's lock; the function must be quick and must not call the table. A span
 * id without a trace id does not match if spans of two traces have it.
 *
 * With `add`, adds the sample to the totals of the span, or to a pending record if the span has
 * not arrived. If no memory for totals is left, the sample is not added and the span is noted as
 * having lost samples. */
enum join_result join_table_sample(struct join_table *table, const struct join_sample *sample,
                                   bool add, uint64_t now_ms, join_found_fn *found, void *arg,
                                   struct join_tally *tally);

/* Calls `found` (as join_table_sample does) if the span has arrived and has not been evicted. */
void join_table_find(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                     join_found_fn *found, void *arg);

#define JOIN_TIMES_MAX 256u /* most timestamps of one struct join_deferred */

/* Deferred timestamps of a sample. The sample names a span or, by ids made of their hashes, a
 * thread and its process. The timestamps are assigned to spans when totals are read, using all
 * spans that have arrived by then. */
struct join_deferred {
    /* copies of the fields of struct join_value_type: unit_ns, period_ns, type, measure, counts,
     * allocates */
    uint64_t unit_ns, period_ns;
    uint16_t type;
    uint8_t measure;
    bool counts, allocates;
    bool has_value;               /* the sample has values */
    bool of_thread;               /* the sample names no span */
    bool held;                    /* the sample's item is held before it is released */
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: unknown */
    uint32_t function;            /* number of the function at the leaf of the stack; 0: unknown */
    /* hashes of where the sample was taken; only if the sample names no span */
    uint32_t service, runtime, places[JOIN_PLACES];
    /* number of timestamps, at most JOIN_TIMES_MAX, and of values, 0 or n_times */
    uint32_t n_times, n_values;
    uint32_t released; /* release time, in tenths of a second (join_release_time.at) */
    uint64_t value;    /* sum of the values of all timestamps */
};

/* Stores the deferred timestamps of a sample, and `values` if n_values is not 0. The oldest
 * records are evicted to make room. */
void join_table_defer(struct join_table *table, const struct join_sample *sample,
                      const struct join_deferred *deferred, const uint64_t *times,
                      const uint64_t *values, uint64_t now_ms, struct join_tally *tally);

/* An iteration over the deferred timestamps of one span or thread, newest first. The caller
 * zeroes it before the first call. */
struct join_deferred_cursor {
    bool begun;     /* set by the first call */
    uint32_t steps; /* number of records that the last call read */
    /* `since` is set: records more than a window older belong to an earlier span with this id */
    bool has_since;
    uint32_t since; /* arrival of the span's first sample, in tenths of a second of the monotonic
                       clock */
    uint64_t position, found;      /* positions of the next record and of the current record */
    struct join_deferred deferred; /* the current record */
    /* deferred.n_times timestamps and deferred.n_values values of the current record */
    uint64_t times[JOIN_TIMES_MAX], values[JOIN_TIMES_MAX];
};

/* Advances to the next record and copies it to the cursor. Returns false if there is none.
 * `trace_id` has 16 bytes and `span_id` 8. */
bool join_table_next_deferred(struct join_table *table, const uint8_t *trace_id,
                              const uint8_t *span_id, struct join_deferred_cursor *cursor);

/* Marks timestamps of the current record as assigned, so that they are not retained any longer.
 * It marks the timestamps whose entry in `spans` is not 0. For records of a thread, `span_id` is
 * the id made of the thread. */
void join_table_mark_assigned(struct join_table *table, const uint8_t *span_id,
                              const struct join_deferred_cursor *cursor, const uint64_t *spans);

/* Returns true if timestamps were deferred during the last window. */
bool join_table_any_deferred(const struct join_table *table, uint64_t now_ms);

/* Returns the contribution of `n_times` of the deferred timestamps, whose values have the sum
 * `value`, to the totals of a span. */
struct join_sample join_deferred_sample(const struct join_deferred *deferred, uint64_t value,
                                        uint64_t n_times);

/* Returns true if samples of the span were lost: the span did not arrive within a window after
 * them, or memory for their totals was exhausted. */
bool join_table_lost(struct join_table *table, const uint8_t *span_id);

/* Returns true if children of the span that had samples were evicted, so that the inclusive sums
 * of the span are incomplete. It stays false if the sums had been read before the eviction. */
bool join_table_lost_below(struct join_table *table, const uint8_t *span_id);

/* Returns true if timestamps after `start_ns` were evicted before all their spans had arrived.
 * `span_id` is the span that their samples name, or the id made of their thread. The totals of a
 * span that started at `start_ns` are then incomplete. */
bool join_table_evicted_after(struct join_table *table, const uint8_t *span_id, uint64_t start_ns);

/* Copies the totals of a span and, unless `ret_top` is NULL, its function counters (at most
 * JOIN_TOP_MAX). Returns false if the span has no totals. */
bool join_table_totals(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *ret, struct join_top *ret_top);

/* Returns the measure that count and duration of a span report: the first one that has samples,
 * in the order of the enum. */
enum join_measure join_totals_measure(const struct join_totals *totals);

/* Returns the CPU time of the samples that name the span, including deferred ones. */
uint64_t join_totals_cpu_ns(const struct join_totals *totals);

/* Adds a sample to totals that are followed by function counters (join_table_totals_size bytes).
 * `waits`: the sample is counted in a metric when its span arrives. */
void join_totals_add_sample(const struct join_table *table, struct join_totals *totals,
                            const struct join_sample *sample, bool waits);
/* Counts a sample that is exported with a link to the span of the totals. */
void join_totals_add_linked(struct join_totals *totals, const struct join_sample *sample);

const struct join_top *join_totals_top(const struct join_totals *totals);
size_t join_table_totals_size(const struct join_table *table);

/* Adds the totals of one span, without function counters, to those of another. */
void join_totals_add(struct join_totals *into, const struct join_totals *from);

/* Adds the function counters of one span to those of another, using at most `max` counters. */
void join_totals_add_top(struct join_totals *into, struct join_top *into_top, unsigned max,
                         const struct join_totals *from, const struct join_top *from_top);

/* One span of a *family*: the spans of one trace and one service. */
struct join_relative {
    uint64_t span_id, parent_id;  /* bytes as on the wire; parent_id 0: no parent */
    uint64_t start_ns, end_ns;    /* in nanoseconds since 1970 */
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: unknown */
    uint32_t seen;                /* arrival, in tenths of a second of the monotonic clock */
    uint8_t kind;                 /* span kind, as a number of OTLP */
    bool totals;                  /* the span has totals */
    bool deferred;                /* samples with deferred timestamps name the span */
};

/* Returns the hash of a service name, never 0. It selects the family of a span. */
uint64_t join_service_hash(const uint8_t *name, size_t len);

/* Describes the result of a search for spans. */
struct join_search {
    bool more;         /* the search ended before the oldest span */
    uint64_t since_ns; /* families: spans that ended before this time may be missing */
    unsigned steps;    /* number of records that the search read */
};

/* Copies at most `max` spans of a trace (16 bytes) and a service, newest first, and returns
 * their number. `service_hash` is the hash with which they were entered. */
unsigned join_table_family(struct join_table *table, const uint8_t *trace_id,
                           const uint8_t *service, size_t service_len, uint64_t service_hash,
                           struct join_relative *out, unsigned max, struct join_search *ret);

/* A span that ran on a given thread. */
struct join_neighbour {
    uint8_t trace_id[16];
    uint64_t span_id, parent_id; /* bytes as on the wire; parent_id 0: no parent */
    uint64_t start_ns, end_ns;   /* in nanoseconds since 1970 */
    /* hashes of thread.id, thread.name, the service and the places; 0: unknown */
    uint32_t thread, thread_name, service, places[JOIN_PLACES];
    /* hash; 0: thread ids are the operating system's */
    uint32_t runtime;
    /* arrival, in tenths of a second of the monotonic clock */
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

/* Returns true if a span arrived in time for a sample to be exported with a link to it. For a
 * held sample the result does not depend on the time of the call: a span that arrives in the
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

/* The key by which a thread is found: its id, or its name together with the origin of its id. An
 * id is absent, the operating system's (SYSTEM), or assigned by a runtime (MANAGED). */
enum join_thread_key {
    JOIN_BY_THREAD_ID,
    JOIN_BY_NAME_ALONE,
    JOIN_BY_NAME_SYSTEM,
    JOIN_BY_NAME_MANAGED,
    JOIN_THREAD_KEYS
};

/* Returns the key for finding a thread by name, given the hashes of its id and its runtime (0:
 * none). */
static inline enum join_thread_key join_thread_name_key(uint32_t thread, uint32_t runtime)
{
    if (!thread)
        return JOIN_BY_NAME_ALONE;
    return runtime ? JOIN_BY_NAME_MANAGED : JOIN_BY_NAME_SYSTEM;
}

/* All threads that have an id or a name, in processes that have an id, in any place. The hashes
 * are never 0. */
struct join_threads {
    enum join_thread_key key;
    uint32_t thread;  /* hash of the thread's id or name, as `key` indicates */
    uint32_t process; /* hash of the process id */
};

/* Spans of threads are indexed by time. Level n contains spans of up to 2^join_level_shift(n)
 * nanoseconds, so each level is four times as long as the previous one. Time is divided into
 * slots of that length. A span that was open at a given time therefore began in the slot of that
 * time or in the slot before. */
#define JOIN_LEVELS 22u

static inline unsigned join_level_shift(unsigned level)
{
    return 20 + 2 * level; /* level 0: 2^20 ns, about a millisecond */
}

/* Returns a bit for each level that has had spans; bit 0 is the shortest. */
uint32_t join_table_levels(const struct join_table *table);

/* Copies at most JOIN_NEIGHBOURS_MAX spans of these threads and this level that began in `slot`
 * (time >> join_level_shift), newest first, and returns their number. Requires a table with
 * threads. */
unsigned join_table_neighbours(struct join_table *table, const struct join_threads *threads,
                               unsigned level, uint64_t slot, struct join_neighbour *out,
                               struct join_search *ret);

/* Returns the latest end of the evicted spans of these threads at one of the places (hashes; 0:
 * unknown). Before that time not all spans are known. It may be later than the true end, because
 * hashes can collide. With `early`, counts only spans that were evicted within the window for
 * lack of room. */
uint64_t join_table_known_since(const struct join_table *table, const struct join_threads *threads,
                                const uint32_t places[JOIN_PLACES], bool early);

/* Removes records about two windows after they arrived; samples that arrive between one and two
 * windows are reported as too late. Samples whose span never arrived count as unknown. Reads at
 * most 8192 records and returns true if it reached that number, in which case there may be more. */
bool join_table_expire(struct join_table *table, uint64_t now_ms, struct join_tally *tally);

/* Returns the number of a profile type's name, the same for all workers, or JOIN_TYPES - 1 if
 * there are too many. */
uint16_t join_table_type(struct join_table *table, const char *name, size_t len);
/* Returns the name of a type number, zero-terminated and valid until the table is freed. */
const char *join_table_type_name(struct join_table *table, uint16_t type);

/* Notes that a service (hash of its identity) was profiled at `now_ms`. Returns false, and notes
 * nothing, if about JOIN_SERVICES_MAX services are profiled already. */
bool join_table_profiled(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Returns true if a service is being profiled. It counts as profiled for one window after a
 * profile, or for twice the interval between its last two profiles if that is longer. */
bool join_table_is_profiled(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Notes that samples of a service name exactly the spans in which they were taken, because at
 * least one sample named a span that is not a local root. The note expires like that of a
 * profiled service. */
void join_table_note_exact(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Returns true if samples of a service name exactly their spans (join_table_note_exact). */
bool join_table_is_exact(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Notes that spans of a service arrived. Returns true if its first span arrived less than
 * `for_ms` ago, after a window without any, so that it is still unknown whether the service is
 * profiled. Returns false if about JOIN_SERVICES_MAX services have spans already. */
bool join_table_is_newcomer(struct join_table *table, uint64_t service, uint64_t now_ms,
                            uint64_t for_ms);

/* Returns true if the value is one of the first `max` distinct values of key number `key` (0 to
 * 31). */
bool join_table_value(struct join_table *table, unsigned key, const void *value, size_t len,
                      size_t max);

/* Returns the number of a function name, the same for all workers, or JOIN_FUNCTION_OTHER if
 * there are too many. Only the first JOIN_VALUE_MAX bytes of the name count. */
uint32_t join_table_function(struct join_table *table, const uint8_t *name, size_t len);

/* Returns the name of a function number. The name is valid until the table is freed. */
const char *join_table_function_name(struct join_table *table, uint32_t number, size_t *ret_len);

/* Returns true if the series (any bytes) is one of the first `max` distinct ones. */
bool join_table_series(struct join_table *table, const void *key, size_t len, size_t max);

/* Returns the hash of a text with the table's secret, never 0. */
uint32_t join_table_hash(const struct join_table *table, const void *data, size_t len);

/* Returns the hash of an integer with the table's secret, never 0. It equals the hash of the
 * integer's decimal digits. */
uint32_t join_table_hash_int(const struct join_table *table, int64_t value);

/* Returns the hash of an AnyValue that is a text or an integer. Returns 0 if the value has
 * another type or is empty, or if `any` is NULL. */
uint32_t join_table_hash_value(const struct join_table *table, const uint8_t *any, size_t len);

/* A summary of the data that the joins sharing the table have received. It is used to log why
 * nothing is joined. */
struct join_progress {
    _Atomic unsigned signals; /* bit for each signal that has a pipeline with this join */
    _Atomic bool warned;      /* a missing pipeline has been logged */
    /* In this order: spans arrived, samples arrived, a sample names a span, a sample names
     * several spans, a sample contains enough to infer its span, a service has both signals, a
     * sample was joined. */
    _Atomic bool spans, samples, named, ambiguous, inferable, common, joined;
};

/* Sets a flag. It is read first, because it is usually set already and writing would slow other
 * workers down. */
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
    uint64_t bytes, max_bytes; /* bytes of the records, and size of the table */
    /* age of the oldest record that is not dead; skips a limited number of dead ones */
    uint64_t oldest_ms;
};

/* Computes the fill level at `now_ms`. */
void join_table_stats(struct join_table *table, uint64_t now_ms, struct join_stats *ret);
