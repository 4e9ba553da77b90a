/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join's table keeps the latest spans and what their samples add up to. All workers share it.
 *
 * It takes a fixed number of bytes from its beginning. Spans lie in rings, one a shard, oldest
 * first; when a ring is full its oldest leave. A shard is chosen by span id, not by trace id: a
 * label often brings a span id alone. Lookup is by one bucket of ten slots, a cache line, and now
 * and then its neighbour; a slot whose record has left the ring is free again at once, by its
 * position.
 *
 * A sample may come before its span. What it adds up to then waits in a record without a name
 * (pending), which the span takes over when it comes; it waits for as long as samples keep coming,
 * and a window more. So do timestamps of samples that name no span, for the spans of their thread,
 * in JOIN_KEPT_SHARE of a ring at the most.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"

struct join_table;

#define JOIN_TYPES 64             /* profile types told apart; the last one is "other" */
#define JOIN_SPAN_TYPES 6         /* of them on one span; past that the last one becomes "other" */
#define JOIN_VALUE_MAX 255        /* bytes of a name or of an attribute's value that are kept */
#define JOIN_BYTES_MIN (1u << 20) /* the smallest table */
#define JOIN_BYTES_MAX (1ull << 37)     /* the largest */
#define JOIN_ATTRIBUTES_BYTES_MAX 4096u /* of one span */
#define JOIN_TOP_MAX 48u                /* counters of functions of one span */
#define JOIN_TOP_SHOWN_MAX 20u
#define JOIN_FUNCTIONS_MAX 16384u /* functions told apart; the others are one */
#define JOIN_SERVICES_MAX 16384u  /* that are profiled at a time */
#define JOIN_LOST_MAX 4096u /* spans of which it is known that samples were lost, the last ones */
#define JOIN_LEFT_MAX 4096u /* local roots and threads whose timestamps left, likewise */
#define JOIN_KEPT_SHARE 8u  /* of a ring is for timestamps that are older than two windows */
#define JOIN_FUNCTION_OTHER UINT32_MAX
#define JOIN_NEIGHBOURS_MAX 1024u /* spans of one thread near one time that are looked at */
#define JOIN_FAMILY_MAX                                                                            \
    4096u /* spans of one trace and service that may be looked at, the newest                      \
           */

/* What samples add up to, by the kind of their profile. */
enum join_measure {
    JOIN_CPU_TIME,  /* a CPU time: cpu/nanoseconds */
    JOIN_CPU_COUNT, /* counts of a CPU period: samples, cpu or itimer in count, period in time */
    JOIN_WALL_TIME, /* any other time: wall, off_cpu, delays; counts of a wall-clock period */
    JOIN_OTHER,
    JOIN_MEASURES,
};

/* What the values of a profile mean, by its type, unit and period. */
struct join_value_type {
    uint16_t type; /* join_table_type of "type:unit" */
    enum join_measure measure;
    uint64_t unit_ns;   /* of the values; 0: they are no time */
    uint64_t period_ns; /* between two samples; 0: not known */
    bool counts;        /* the values are numbers of things */
    bool allocates;     /* the values are bytes that were allocated */
    bool has_profile_id;
    uint8_t profile_id[16];
};

struct join_totals {
    uint64_t time_ns[JOIN_OTHER]; /* of the first three measures */
    uint32_t count[JOIN_MEASURES];
    struct {
        uint16_t type;
        bool used;
        uint32_t waiting; /* samples that came before their span and are not counted yet */
    } types[JOIN_SPAN_TYPES];
    uint64_t allocated_bytes;
    /* Of samples that name it and whose span is found out later: struct join_taken. */
    uint64_t taken_ns[JOIN_WALL_TIME], taken_allocated_bytes;
    uint32_t taken_count[JOIN_OTHER];
    /* Of a share of timestamps: those that leave with the link of this span, whosever they turn out
     * to be when later spans have come. */
    uint32_t linked_count[JOIN_MEASURES];
    uint32_t since; /* when the first sample came, in tenths of a second of the monotonic clock */
    bool taken;     /* there are some */
    uint8_t profile_id[16];
    uint8_t under[8];    /* the span that samples name which are its own; itself where some do */
    uint16_t top_type;   /* of the values that the functions' counters count */
    uint8_t top_measure; /* and their enum join_measure */
    uint8_t n_top;       /* counters in use */
};

/* What a function took itself, as the leaf of samples' stacks. */
struct join_top {
    uint64_t value; /* nanoseconds, or things */
    uint32_t function;
};

/* What says where a span or a sample ran; identity.h. Those from JOIN_HOST on are its places: they
 * tell processes apart whose ids are the same. */
enum join_where {
    JOIN_THREAD_ID,
    JOIN_THREAD_NAME,
    JOIN_PROCESS,
    JOIN_SERVICE,
    JOIN_RUNTIME, /* whose thread ids they are; 0: the system's */
    JOIN_HOST,
    JOIN_CONTAINER,
    JOIN_POD,
    JOIN_INSTANCE,
    JOIN_WHERES,
};
#define JOIN_PLACES (JOIN_WHERES - JOIN_HOST)

struct join_identity {
    uint32_t hashes[JOIN_WHERES];
};

/* A span as it is found, then pointing into the table, under its lock; or as one is that takes over
 * what samples before it added up to. */
struct join_span {
    const uint8_t *trace_id;  /* 16 bytes, or NULL when not known */
    const uint8_t *span_id;   /* 8 bytes */
    const uint8_t *parent_id; /* or NULL */
    uint64_t start_ns, end_ns;
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: not known */
    uint8_t kind, status;
    const uint8_t *name, *service;
    size_t name_len, service_len;
    const uint8_t *attributes; /* for each configured one its length + 1 (0: not there), bytes */
    size_t attributes_len;
};

/* What spans of one resource have in common. */
struct join_origin {
    const uint8_t *service;
    size_t service_len;                /* at most JOIN_VALUE_MAX */
    uint64_t service_hash;             /* 0: no local family */
    const struct join_identity *where; /* in a table with threads; or NULL */
};

/* As in join_span. */
struct join_attributes {
    const uint8_t *data;
    size_t len; /* at most JOIN_ATTRIBUTES_BYTES_MAX */
};

/* Spans to be entered, as the walk found them. Those without a span id are passed over; of a longer
 * name JOIN_VALUE_MAX bytes are kept. All is borrowed. */
struct join_entries {
    const struct br_span *spans;
    size_t count;
    const struct join_origin *origins; /* that of part `first_part`, and of those that follow */
    uint32_t first_part;
    const struct join_attributes *attributes; /* of each span; NULL: none has any */
};

/* One sample's addition to its span. */
struct join_sample {
    const uint8_t *trace_id; /* 16 bytes, or NULL when only the span id is known */
    const uint8_t *span_id;
    enum join_measure measure;
    uint64_t time_ns;
    uint32_t count;
    uint16_t type;
    uint64_t value;           /* in nanoseconds where it is a time */
    uint64_t allocated_bytes; /* 0: it is of something else */
    uint32_t function;        /* of its stack's leaf; 0: not known */
    const uint8_t *under;     /* the span that it names, where that is another one; or NULL */
    bool taken;               /* whose it is is found out later: join_table_take */
    bool held; /* its item waits for the span, and so the caller counts what becomes of it */
    const uint8_t *profile_id; /* 16 bytes, or NULL */
};

/* Computes what a sample of the profile adds up to: `value` is the sum of its values (`has_value`:
 * there are any), `n_times` the number of its timestamps. Sets measure, time, count, type, value,
 * allocated bytes and profile id. */
void join_value_type_apply(const struct join_value_type *value_type, uint64_t value, bool has_value,
                           uint64_t n_times, struct join_sample *ret);

enum join_result {
    JOIN_FOUND,
    JOIN_UNKNOWN,  /* no such span so far */
    JOIN_TOO_LATE, /* the span is older than the window */
};

/* Called under the lock for a span that takes over what samples before it added up to: it must be
 * quick and must not call back. */
typedef void join_adopted_fn(void *arg, const struct join_span *span,
                             const struct join_totals *totals);

/* What spans entered, and records that left, did to samples that had waited for them: per profile
 * type. Zeroed by the caller, who counts it. */
struct join_tally {
    uint64_t late[JOIN_TYPES];    /* samples whose span came after them */
    uint64_t unknown[JOIN_TYPES]; /* samples whose span never came */
    uint64_t evicted;             /* spans that left because of the limit, inside the window */
    uint64_t adopted;             /* spans that took over what samples before them added up to */
    bool any;
    join_adopted_fn *on_adopted; /* NULL: nobody wants to know */
    void *arg;
};

/* Returns a table of `max_bytes` (JOIN_BYTES_MIN to JOIN_BYTES_MAX) for spans of the last
 * `window_ms`, with `n_top` counters of functions for each span that has samples (JOIN_TOP_MAX at
 * most); `threads`: spans are found by where they ran, too; not `shared`: all calls will come from
 * one thread, which costs less. NULL when there is no memory. `now_ms` below is monotonic; what
 * different threads hand in may differ by a little. */
struct join_table *join_table_new(size_t max_bytes, uint64_t window_ms, unsigned n_top,
                                  bool threads, bool shared);
void join_table_free(struct join_table *table);

/* A part of the table's memory. */
struct join_pages {
    void *at;
    size_t len;
    bool at_random; /* used in no order: small pages that are there are made large */
};

/* The system makes the pages of the table's memory when they are first written to. Large ones spare
 * a twentieth of the time, and each may take milliseconds to make. This says which come next: what
 * leads to records once there are some, and a quarter of the ring ahead of them. Returns false when
 * there are none for now, or somebody else makes some; true: call join_table_pages_make, in any
 * thread, and then join_table_pages_end, before the table is freed. */
bool join_table_pages_begin(struct join_table *table, struct join_pages *ret);

/* Makes them, where the system can (MADV_POPULATE_WRITE, Linux 5.14; MADV_COLLAPSE, Linux 6.1);
 * what is in them stays. */
void join_table_pages_make(const struct join_pages *pages);

void join_table_pages_end(struct join_table *table);

/* Enters spans that came at `now_ms`, and returns how many have an id. Thread-safe, as everything
 * below, in a shared table. */
size_t join_table_enter(struct join_table *table, const struct join_entries *entries,
                        uint64_t now_ms, struct join_tally *tally);

typedef void join_found_fn(void *arg, const struct join_span *span);

/* A span as it was found, copied under the table's lock. */
struct join_found {
    uint8_t trace[16], span[8], name[JOIN_VALUE_MAX], service[JOIN_VALUE_MAX];
    uint8_t attributes[JOIN_ATTRIBUTES_BYTES_MAX];
    size_t name_len, service_len, attributes_len;
    uint64_t start_ns, end_ns;
    uint8_t status;
    bool has_trace;
};

/* A join_found_fn whose `arg` is a struct join_found. */
void join_found_copy(void *arg, const struct join_span *span);

/* Looks the span of a sample that came at `now_ms` up and, with `add`, adds the sample's totals to
 * it (or leaves them pending; where no memory for totals is left, they are not added). A span id
 * alone that spans of two traces have names neither of them. When found, `found(arg, span)` is
 * called under the lock: it must be quick and must not call back. */
enum join_result join_table_sample(struct join_table *table, const struct join_sample *sample,
                                   bool add, uint64_t now_ms, join_found_fn *found, void *arg,
                                   struct join_tally *tally);

/* Calls `found` as above for a span that has come and has not left. */
void join_table_find(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                     join_found_fn *found, void *arg);

#define JOIN_TIMES_MAX 256u /* of one struct join_taken */

/* Timestamps of a sample that names a span, or, by ids made of them, a thread and its process.
 * Which span was open then is found out when somebody asks, by all spans that have come by then. */
struct join_taken {
    uint64_t unit_ns, period_ns; /* of its value_type, as the next four */
    uint16_t type;
    uint8_t measure;
    bool counts, allocates;
    bool has_value;
    bool of_thread; /* of a sample that names no span */
    bool waits;     /* struct join_leaving */
    uint32_t thread, thread_name, function;
    uint32_t service, runtime, places[JOIN_PLACES]; /* of a sample that names no span */
    uint32_t n_times, n_values; /* at most JOIN_TIMES_MAX; values: as many, or none */
    uint32_t leaves;            /* struct join_leaving */
    uint64_t value;             /* the sum of the values */
};

/* Keeps the timestamps of a sample that was added with `taken`; the oldest records make room. */
void join_table_take(struct join_table *table, const struct join_sample *sample,
                     const struct join_taken *taken, const uint64_t *times, const uint64_t *values,
                     uint64_t now_ms, struct join_tally *tally);

/* Goes through what was taken of the samples that name a span, newest first: zeroed at first. */
struct join_taken_cursor {
    bool begun;
    uint32_t steps; /* records that were looked at, by the last call */
    bool has_since; /* what came more than a window before `since` is not the span's any more */
    uint32_t since;
    uint64_t position, found; /* of the next one, and of the one at hand */
    struct join_taken taken;
    uint64_t times[JOIN_TIMES_MAX], values[JOIN_TIMES_MAX];
};
bool join_table_taken(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                      struct join_taken_cursor *cursor);

/* Notes which timestamps of the one at hand were taken in a span that has come (`spans`: not 0; of
 * a thread, whose ids `span_id` is made of): they do not wait for longer. */
void join_table_claim(struct join_table *table, const uint8_t *span_id,
                      const struct join_taken_cursor *cursor, const uint64_t *spans);

/* Says whether anything was taken in the last window. */
bool join_table_any_taken(const struct join_table *table, uint64_t now_ms);

/* Returns what the timestamps add up to: `value` and `n_times` of them. */
struct join_sample join_taken_sample(const struct join_taken *taken, uint64_t value,
                                     uint64_t n_times);

/* Says whether samples of the span were lost: they came before it and nothing did for a window, or
 * there was no room for what they add up to. */
bool join_table_lost(struct join_table *table, const uint8_t *span_id);

/* Says whether spans with samples left whose parent it is: the sum of what is below it is not all,
 * unless it was asked for before. */
bool join_table_lost_below(struct join_table *table, const uint8_t *span_id);

/* Says whether timestamps after `start_ns` of samples that name the span (or of the thread whose
 * ids are made into one) left before the spans came that they may be of: what such a span has since
 * `start_ns` is not all. */
bool join_table_left(struct join_table *table, const uint8_t *span_id, uint64_t start_ns);

/* Copies what samples added to a span so far, and (unless NULL) the counters of its functions, at
 * most JOIN_TOP_MAX; false when there is nothing. */
bool join_table_totals(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *ret, struct join_top *ret_top);

/* Returns what a span's count and duration are of: CPU time, else the next measure that there is.
 */
enum join_measure join_totals_measure(const struct join_totals *totals);

/* Returns the CPU time of the samples that name the span, whosever they are. */
uint64_t join_totals_cpu_ns(const struct join_totals *totals);

/* Adds a sample to totals with counters behind them, of join_table_totals_size bytes. */
void join_totals_add_sample(const struct join_table *table, struct join_totals *totals,
                            const struct join_sample *sample, bool waits);
/* Notes that the sample leaves with the link of the totals' span. */
void join_totals_add_linked(struct join_totals *totals, const struct join_sample *sample);

const struct join_top *join_totals_top(const struct join_totals *totals);
size_t join_table_totals_size(const struct join_table *table);

/* Adds up what two spans have; the counters, of at most `max` functions, apart. */
void join_totals_add(struct join_totals *into, const struct join_totals *from);
void join_totals_add_top(struct join_totals *into, struct join_top *into_top, unsigned max,
                         const struct join_totals *from, const struct join_top *from_top);

/* One span of a family: the spans of one trace and one service. */
struct join_relative {
    uint64_t span_id, parent_id; /* bytes as on the wire; parent 0: none */
    uint64_t start_ns, end_ns;
    uint32_t thread, thread_name;
    uint32_t seen; /* when it came, in tenths of a second of the monotonic clock */
    uint8_t kind;
    bool totals; /* it has some */
    bool taken;  /* samples with timestamps name it */
};

/* Returns the hash of a service's name, which tells families apart; not 0. */
uint64_t join_service_hash(const uint8_t *name, size_t len);

/* How a list of spans was found. */
struct join_looked {
    bool more;         /* there may be older ones */
    uint64_t since_ns; /* of a family: of those that ended before not all are known */
    unsigned steps;    /* records that were looked at */
};

/* Copies the spans of a trace (16 bytes) and a service, newest first, `max` at most; says
 * how many. `service_hash` is what they were entered with. */
unsigned join_table_family(struct join_table *table, const uint8_t *trace_id,
                           const uint8_t *service, size_t service_len, uint64_t service_hash,
                           struct join_relative *out, unsigned max, struct join_looked *ret);

/* A span that ran on a thread of a process. */
struct join_neighbour {
    uint8_t trace_id[16];
    uint64_t span_id, parent_id; /* as in join_relative */
    uint64_t start_ns, end_ns;
    uint32_t thread, thread_name, service, places[JOIN_PLACES]; /* hashes; 0: not known */
    uint32_t runtime;                                           /* as JOIN_RUNTIME */
    uint32_t seen;                                              /* as in join_relative */
};

/* When a sample leaves. */
struct join_leaving {
    uint32_t at; /* in tenths of a second of the monotonic clock */
    bool waits;  /* it has waited until then, or will */
};

static inline struct join_leaving join_leaving(uint64_t came_ms, uint64_t waits_ms)
{
    return (struct join_leaving){(uint32_t)((came_ms + waits_ms) / 100), waits_ms != 0};
}

/* Says whether a span came early enough to be the one with whose link a sample leaves. Of what
 * waits it is the same whenever it is asked: a span is too late that comes in the tenth of a second
 * in which the sample leaves. */
static inline bool join_is_in_time(uint32_t seen, struct join_leaving leaving)
{
    int32_t before = (int32_t)(leaving.at - seen);
    return before > 0 || (before == 0 && !leaving.waits);
}

static inline struct join_leaving join_taken_leaving(const struct join_taken *taken)
{
    return (struct join_leaving){taken->leaves, taken->waits};
}

/* What a thread is found by: its id, or its name, among those whose ids are of a kind: there is
 * none, the system's, the runtime's. */
enum join_thread_key {
    JOIN_BY_THREAD_ID,
    JOIN_BY_NAME_ALONE,
    JOIN_BY_NAME_SYSTEM,
    JOIN_BY_NAME_MANAGED,
    JOIN_THREAD_KEYS
};

/* Returns the one for the name of a thread that says this id, and this runtime (hashes; 0: none).
 */
static inline enum join_thread_key join_thread_name_key(uint32_t thread, uint32_t runtime)
{
    return !thread ? JOIN_BY_NAME_ALONE : runtime ? JOIN_BY_NAME_MANAGED : JOIN_BY_NAME_SYSTEM;
}

/* The threads that have an id, or a name, in processes that have an id (hashes, none of them 0), in
 * whatever place. */
struct join_threads {
    enum join_thread_key key;
    uint32_t thread, process;
};

/* Spans of threads are found by time: level by level of their durations, each four times as long as
 * the one before. Time is cut into slots as long as the longest spans of a level, so that a span
 * that was open at a time began in the slot of that time, or in the one before. */
#define JOIN_LEVELS 22u

static inline unsigned join_level_shift(unsigned level)
{
    return 20 + 2 * level; /* from a millisecond */
}

/* Returns which levels have spans: bit 0 is the shortest. */
uint32_t join_table_levels(const struct join_table *table);

/* Copies the spans of these threads and this level that began in the slot `time >> shift`, newest
 * first, JOIN_NEIGHBOURS_MAX at most; says how many. Needs a table with threads. */
unsigned join_table_neighbours(struct join_table *table, const struct join_threads *threads,
                               unsigned level, uint64_t slot, struct join_neighbour *out,
                               struct join_looked *ret);

/* Returns the latest end of the spans of these threads that left the table, at one of the places
 * (hashes; 0: not known), or later: before that time not all spans are known. `early`: of those
 * alone that left inside the window, for want of room. */
uint64_t join_table_known_since(const struct join_table *table, const struct join_threads *threads,
                                const uint32_t places[JOIN_PLACES], bool early);

/* Forgets spans some time after the window, so that samples can still be told that they are too
 * late. Samples that waited for a span in vain count as unknown then. Looks at 8192 records at the
 * most; returns true when it did: there may be more. */
bool join_table_expire(struct join_table *table, uint64_t now_ms, struct join_tally *tally);

/* Returns the number of a profile type's name, the same for all workers; JOIN_TYPES - 1 when there
 * are too many. */
uint16_t join_table_type(struct join_table *table, const char *name, size_t len);
/* Its name, terminated; lives as long as the table. */
const char *join_table_type_name(struct join_table *table, uint16_t type);

/* Services that are being profiled, by a hash of their identity: for a window after a profile, or
 * for twice as long as it came after the one before. False when there are more than
 * JOIN_SERVICES_MAX of them, more or less: then it is not noted. */
bool join_table_profiled(struct join_table *table, uint64_t service, uint64_t now_ms);
bool join_table_is_profiled(struct join_table *table, uint64_t service, uint64_t now_ms);

/* The same for services whose samples name the very spans that they were taken in: some name a span
 * that is no local root. */
void join_table_note_exact(struct join_table *table, uint64_t service, uint64_t now_ms);
bool join_table_is_exact(struct join_table *table, uint64_t service, uint64_t now_ms);

/* Notes that spans of a service came. Returns true when the first came less than `for_ms` ago, and
 * none for a window before: whether it is profiled is not known yet. False for those beyond
 * JOIN_SERVICES_MAX, more or less. */
bool join_table_is_newcomer(struct join_table *table, uint64_t service, uint64_t now_ms,
                            uint64_t for_ms);

/* Returns true when the value may be used for key number `key` (0 to 31): it is one of the first
 * `max` distinct ones. */
bool join_table_value(struct join_table *table, unsigned key, const void *value, size_t len,
                      size_t max);

/* Returns the number of a function's name, of which JOIN_VALUE_MAX bytes count, the same for all
 * workers; JOIN_FUNCTION_OTHER when there are too many. Its name lives as long as the table. */
uint32_t join_table_function(struct join_table *table, const uint8_t *name, size_t len);
const char *join_table_function_name(struct join_table *table, uint32_t number, size_t *ret_len);

/* Returns true when the series (any bytes) is one of the first `max`. */
bool join_table_series(struct join_table *table, const void *key, size_t len, size_t max);

/* Hashes with the table's secret, never 0: of a text, and of an integer, which is that of its
 * decimal digits. */
uint32_t join_table_hash(const struct join_table *table, const void *data, size_t len);
uint32_t join_table_hash_int(const struct join_table *table, int64_t value);

/* The same of an AnyValue that is a text or an integer; 0 when it is neither, or empty, or `any` is
 * NULL. */
uint32_t join_table_hash_value(const struct join_table *table, const uint8_t *any, size_t len);

/* What came to all who share the table, so that they can say why nothing is joined. */
struct join_progress {
    _Atomic unsigned signals; /* bits: of the pipelines that they stand in */
    _Atomic bool warned;      /* that one is missing */
    /* Whether spans came, samples came, a sample names a span, a sample names several, one contains
     * enough to infer its span, a service has both signals, a sample was joined. */
    _Atomic bool spans, samples, named, ambiguous, inferable, common, joined;
};

/* Sets one of them, which it mostly is. */
static inline void join_progress_note(_Atomic bool *it)
{
    if (!*it)
        *it = true;
}

struct join_progress *join_table_progress(struct join_table *table);

struct join_stats {
    uint64_t spans, bytes, max_bytes, pending;
    uint64_t oldest_ms; /* age of the oldest record; of thousands that are dead, of one of these */
};
void join_table_stats(struct join_table *table, uint64_t now_ms, struct join_stats *ret);
