/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join's table: the spans of the last while, and what their samples add up to. The one
 * structure that workers share.
 *
 * It takes a fixed number of bytes from its beginning. Spans lie in rings, one a shard, oldest
 * first; when a ring is full its oldest leave. A shard is chosen by span id, not by trace id: a
 * label often brings a span id alone. Lookup is by one bucket of fifteen slots, two neighbouring
 * cache lines; a slot whose record has left the ring is free again without anybody touching it.
 *
 * A sample may come before its span. What it adds up to then waits in a record without a name
 * (pending), which the span takes over when it comes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pipeline/item.h"

struct join_table;

#define JOIN_TYPES 64             /* profile types told apart; the last one is "other" */
#define JOIN_SPAN_TYPES 6         /* of them on one span; past that the last one becomes "other" */
#define JOIN_VALUE_MAX 255        /* bytes of a name or of an attribute's value that are kept */
#define JOIN_BYTES_MIN (1u << 20) /* the smallest table */
#define JOIN_ATTRIBUTES_BYTES_MAX 4096u /* of one span */

/* What samples add up to, by the kind of their profile. */
enum join_measure {
    JOIN_CPU_TIME,  /* a CPU time: cpu/nanoseconds */
    JOIN_CPU_COUNT, /* samples of a CPU period: samples/count with a period of cpu/nanoseconds */
    JOIN_WALL_TIME, /* any other time: wall, off_cpu, delays */
    JOIN_OTHER,
    JOIN_MEASURES,
};

struct join_figures {
    uint64_t time_ns[JOIN_OTHER]; /* of the first three measures */
    uint32_t count[JOIN_MEASURES];
    struct {
        uint16_t type;
        bool used;
        uint32_t waiting; /* samples that came before their span and are not counted yet */
    } types[JOIN_SPAN_TYPES];
    uint8_t profile_id[16];
};

/* A span as it is entered, and as it is found (then pointing into the table, under its lock). Name
 * and service have at most JOIN_VALUE_MAX bytes, attributes at most JOIN_ATTRIBUTES_BYTES_MAX. */
struct join_span {
    const uint8_t *trace_id;  /* 16 bytes, or NULL when not known */
    const uint8_t *span_id;   /* 8 bytes */
    const uint8_t *parent_id; /* or NULL */
    uint64_t start_ns, end_ns;
    uint8_t kind, status;
    const uint8_t *name, *service;
    size_t name_len, service_len;
    const uint8_t *attributes; /* for each configured one its length + 1 (0: not there), bytes */
    size_t attributes_len;
};

/* One sample's addition to its span. */
struct join_sample {
    const uint8_t *trace_id; /* 16 bytes, or NULL when only the span id is known */
    const uint8_t *span_id;
    enum join_measure measure;
    uint64_t time_ns;
    uint32_t count;
    uint16_t type;
    bool held; /* its item waits for the span, and so the caller counts what becomes of it */
    const uint8_t *profile_id; /* 16 bytes, or NULL */
};

enum join_result {
    JOIN_FOUND,
    JOIN_UNKNOWN,  /* no such span so far */
    JOIN_TOO_LATE, /* the span is older than the window */
};

/* What spans entered, and records that left, did to samples that had waited for them: per profile
 * type. Zeroed by the caller, who counts it. */
struct join_tally {
    uint64_t late[JOIN_TYPES];    /* samples whose span came after them */
    uint64_t unknown[JOIN_TYPES]; /* samples whose span never came */
    uint64_t evicted;             /* spans that left because of the limit, inside the window */
    uint64_t adopted;             /* spans that took over what samples before them added up to */
    bool any;
};

/* A table of `max_bytes` (at least JOIN_BYTES_MIN) for spans of the last `window_ms`. NULL when
 * there is no memory. `now_ms` below is monotonic; what different threads hand in may differ by a
 * little. */
struct join_table *join_table_new(size_t max_bytes, uint64_t window_ms);
void join_table_free(struct join_table *t);

/* Enters `n` spans that came at `now_ms`. Thread-safe, as everything below. */
void join_table_enter(struct join_table *t, const struct join_span *spans, size_t n,
                      uint64_t now_ms, struct join_tally *tally);

typedef void join_found_fn(void *arg, const struct join_span *span);

/* Looks the span of a sample that came at `now_ms` up and, with `add`, adds the sample's figures to
 * it (or leaves them pending; where no memory for figures is left, they are not added). A span id
 * alone that spans of two traces have names neither of them. When found, `found(arg, span)` is
 * called under the lock: it must be quick and must not call back. */
enum join_result join_table_sample(struct join_table *t, const struct join_sample *s, bool add,
                                   uint64_t now_ms, join_found_fn *found, void *arg,
                                   struct join_tally *tally);

/* Copies what samples added to a span so far; false when there is nothing. */
bool join_table_figures(struct join_table *t, const uint8_t *trace_id, const uint8_t *span_id,
                        struct join_figures *ret);

/* Forgets spans some time after the window, so that samples can still be told that they are too
 * late. Samples that waited for a span in vain count as unknown then. */
void join_table_expire(struct join_table *t, uint64_t now_ms, struct join_tally *tally);

/* The number of a profile type's name, the same for all workers; JOIN_TYPES - 1 when there are too
 * many. */
uint16_t join_table_type(struct join_table *t, const char *name, size_t len);
/* Its name, terminated; lives as long as the table. */
const char *join_table_type_name(struct join_table *t, uint16_t type);

/* Services that are being profiled: by a hash of their identity. */
void join_table_profiled(struct join_table *t, uint64_t service, uint64_t now_ms);
bool join_table_is_profiled(struct join_table *t, uint64_t service, uint64_t now_ms);

/* True when the value may be used for key number `key` (0 to 31): it is one of the first `max`
 * distinct ones. */
bool join_table_value(struct join_table *t, unsigned key, const void *value, size_t len,
                      size_t max);

struct join_stats {
    uint64_t spans, bytes, max_bytes, pending;
    uint64_t oldest_ms; /* age of the oldest record */
};
void join_table_stats(struct join_table *t, uint64_t now_ms, struct join_stats *ret);
