/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the Java Flight Recorder's file format in place. For src/profile/jfr only.
 *
 * A file is a row of chunks that know nothing of each other. A chunk has a header, events, and two
 * events the header points at: the metadata, which says of which fields each type consists, and the
 * last checkpoint, which holds constant pools (stack traces, methods, symbols ...) and leads to the
 * checkpoint before it. What an event or a pool's entry holds is only known by its metadata: a
 * reader has to go over all fields to find one, and over all entries to find the next pool.
 *
 * So metadata gives every field that anybody wants a slot (enum br_jfr_slot), all others slot 0,
 * and one loop (br_jfr_value) reads any value of any type. Pools are indexed, not decoded: an entry
 * is where it begins and, once somebody resolved it, what it became.
 *
 * Input is hostile. Every read is bounded by the chunk; after the first that is not, the reader is
 * `bad`, gives zeros and moves no further, so callers look once at the end of a loop. What is
 * allocated is a multiple of the bytes it came from: at most 43 bytes for an entry of a pool (which
 * has two at least), 79 for a class and 36 for a field (seven), 16 for a string of the metadata
 * (one).
 *
 * Sources: JDK 17's jdk.jfr.internal.consumer (ChunkHeader, MetadataReader, ChunkParser,
 * RecordingInput), async-profiler's flightRecorder.cpp.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

__extension__ typedef unsigned __int128 br_jfr_u128; /* products of two 64-bit numbers */

/* --- Bytes ------------------------------------------------------------------------------------ */

/* Reads forward between two pointers. */
struct br_jfr_in {
    const uint8_t *p, *end;
    bool packed; /* integers are LEB128; otherwise big endian in their full size */
    bool bad;
};

/* LEB128 of at most nine bytes, of which the ninth counts with all its bits. Returns the byte after
 * it, or NULL where it is cut off. */
const uint8_t *br_jfr_varint_slow(const uint8_t *p, const uint8_t *end, uint64_t *ret);

/* The reader is not handed on, so that it can lie in registers. */
static inline uint64_t br_jfr_varint(struct br_jfr_in *in)
{
    const uint8_t *p = in->p;
    if (__builtin_expect(p < in->end && p[0] < 0x80, 1)) {
        in->p = p + 1;
        return p[0];
    }
    if (in->end - p >= 2 && p[1] < 0x80) {
        in->p = p + 2;
        return (uint64_t)p[1] << 7 | (p[0] & 0x7f);
    }
    uint64_t value = 0;
    p = br_jfr_varint_slow(p, in->end, &value);
    in->bad = in->bad || !p;
    in->p = p ? p : in->end;
    return value;
}

uint64_t br_jfr_big_endian(const uint8_t *p, unsigned count);

/* `count` bytes as an unsigned big-endian number; it is 1 to 8. */
static inline uint64_t br_jfr_fixed(struct br_jfr_in *in, unsigned count)
{
    const uint8_t *p = in->p;
    bool there = (size_t)(in->end - p) >= count;
    in->bad = in->bad || !there;
    in->p = there ? p + count : in->end;
    return there ? br_jfr_big_endian(p, count) : 0;
}

/* Leaves out `count` bytes. */
void br_jfr_pass(struct br_jfr_in *in, uint64_t count);

static inline uint64_t br_jfr_long(struct br_jfr_in *in)
{
    return in->packed ? br_jfr_varint(in) : br_jfr_fixed(in, 8);
}

static inline uint32_t br_jfr_int(struct br_jfr_in *in)
{
    return (uint32_t)(in->packed ? br_jfr_varint(in) : br_jfr_fixed(in, 4));
}

/* Leaves out a string in any encoding. */
void br_jfr_pass_string(struct br_jfr_in *in);

/* --- Types ------------------------------------------------------------------------------------ */

/* Types by their names; what else the metadata has is BR_JFR_OTHER. */
enum br_jfr_type {
    BR_JFR_OTHER,
    /* primitives */
    BR_JFR_BOOLEAN,
    BR_JFR_BYTE,
    BR_JFR_CHAR,
    BR_JFR_SHORT,
    BR_JFR_INT,
    BR_JFR_LONG,
    BR_JFR_FLOAT,
    BR_JFR_DOUBLE,
    BR_JFR_STRING,
    /* in pools */
    BR_JFR_THREAD,
    BR_JFR_THREAD_STATE,
    BR_JFR_STACK_TRACE,
    BR_JFR_METHOD,
    BR_JFR_CLASS,
    BR_JFR_SYMBOL,
    BR_JFR_CHUNK_HEADER,
    /* inside other values */
    BR_JFR_STACK_FRAME,
    /* events */
    BR_JFR_EXECUTION_SAMPLE,
    BR_JFR_CPU_TIME_SAMPLE,
    BR_JFR_WALL_CLOCK_SAMPLE,
    BR_JFR_ALLOC_IN_NEW_TLAB,
    BR_JFR_ALLOC_OUTSIDE_TLAB,
    BR_JFR_ALLOC_SAMPLE,
    BR_JFR_MONITOR_ENTER,
    BR_JFR_THREAD_PARK,
    BR_JFR_LIVE_OBJECT,
    BR_JFR_MALLOC,
    BR_JFR_ACTIVE_SETTING,
    BR_JFR_N_TYPES
};
#define BR_JFR_FIRST_EVENT BR_JFR_EXECUTION_SAMPLE

/* Where br_jfr_value puts the fields that matter. Strings and arrays: the offset in the chunk at
 * which they begin. References: the id in the pool. */
enum br_jfr_slot {
    BR_JFR_NOWHERE,
    BR_JFR_START,
    BR_JFR_DURATION,
    BR_JFR_STACK,
    BR_JFR_BY_THREAD,
    BR_JFR_STATE,
    BR_JFR_SAMPLES,
    BR_JFR_SAMPLING_PERIOD,
    BR_JFR_TLAB_SIZE,
    BR_JFR_ALLOCATION_SIZE,
    BR_JFR_WEIGHT,
    BR_JFR_SIZE,
    BR_JFR_SPAN_ID,
    BR_JFR_SPAN_NAME,
    BR_JFR_CONTEXT_ID,
    BR_JFR_TRACE_HI,
    BR_JFR_TRACE_LO,
    BR_JFR_ID,
    BR_JFR_NAME,
    BR_JFR_VALUE,
    BR_JFR_TEXT,
    BR_JFR_HOLDER,      /* the class of a method */
    BR_JFR_SYMBOL_NAME, /* of a class or a method */
    BR_JFR_FRAMES,
    BR_JFR_FRAME_METHOD,
    BR_JFR_LINE,
    BR_JFR_OS_NAME,
    BR_JFR_JAVA_NAME,
    BR_JFR_JAVA_ID,
    BR_JFR_SLOTS_END
};
#define BR_JFR_N_SLOTS 32 /* a multiple of 8; see br_jfr_no_values */
_Static_assert(BR_JFR_SLOTS_END <= BR_JFR_N_SLOTS, "every slot has its place");

struct br_jfr_field {
    int64_t type_id;
    uint32_t name;  /* which of the metadata's strings */
    uint32_t class; /* index of the type; BR_JFR_NO_CLASS: the metadata has no such type */
    uint8_t type;   /* enum br_jfr_type of it */
    uint8_t slot;   /* enum br_jfr_slot */
    bool array, pool;
    bool plain; /* where integers are packed, it is one of them, and nothing else */
};
#define BR_JFR_NO_CLASS UINT32_MAX

struct br_jfr_class {
    int64_t id;
    uint32_t first, n_fields; /* of br_jfr_chunk.fields */
    uint32_t n_needed;        /* fields up to the last with a slot */
    uint8_t type;             /* enum br_jfr_type */
};

/* --- Ids -------------------------------------------------------------------------------------- */

/* An entry of a pool. */
struct br_jfr_entry {
    uint64_t id;
    uint32_t at;   /* its first byte, as an offset in the chunk; 0: an unused slot of the table */
    uint32_t note; /* the resolver's; 0 at first */
};

/* A hash table of them. A zeroed one is empty. */
struct br_jfr_ids {
    struct br_jfr_entry *slots;
    uint32_t count;
    unsigned bits; /* 2^bits slots; 0: none */
    uint64_t secret;
};

/* Returns the entry of `id`, or NULL. */
struct br_jfr_entry *br_jfr_ids_find(const struct br_jfr_ids *ids, uint64_t id);

/* Sets where `id` begins (not 0). Entries move. Returns 0 or BR_ENOMEM. */
int br_jfr_ids_put(struct br_jfr_ids *ids, uint64_t id, uint32_t at);

/* Empties the table and keeps its memory, unless that is much, or much more than it had entries. */
void br_jfr_ids_clear(struct br_jfr_ids *ids);
void br_jfr_ids_release(struct br_jfr_ids *ids);

/* --- A chunk ---------------------------------------------------------------------------------- */

#define BR_JFR_WANTED 1024 /* ten bits: what two bytes of LEB128 surely have */

struct br_jfr_chunk {
    const uint8_t *data;
    uint32_t size;
    bool packed;
    uint32_t pools_at, metadata_at;
    uint32_t middle; /* where a checkpoint begins, in the second half; 0: nowhere */
    uint64_t start_ns, duration_ns, start_ticks, ticks_per_second;

    const uint8_t *known; /* the metadata that the following is of */
    uint32_t known_len;   /* 0: of none */
    bool known_packed;
    struct br_jfr_class *classes;
    uint32_t n_classes, classes_cap;
    struct br_jfr_ids class_of_id; /* index + 1 */
    struct br_jfr_field *fields;
    uint32_t n_fields, fields_cap;
    uint32_t class_of[BR_JFR_N_TYPES];                      /* index, or BR_JFR_NO_CLASS */
    int64_t event_ids[BR_JFR_N_TYPES - BR_JFR_FIRST_EVENT]; /* of those that have a class */
    bool wanted[BR_JFR_WANTED]; /* by an event's type modulo: whether event_ids has one of these */
    bool wanted_first[256];     /* by the first byte of the type: the same of those that have it */
    struct br_jfr_ids pools[BR_JFR_N_TYPES]; /* of THREAD to SYMBOL, and of STRING */
};

/* Header bytes of a chunk. */
#define BR_JFR_HEADER 68

/* Reads the chunk that begins at data[0], up to its events, replacing what `chunk` had. Returns 0,
 * BR_EINVAL with a sentence or BR_ENOMEM. `chunk` may be zeroed; it borrows `data` until
 * br_jfr_chunk_release. */
int br_jfr_chunk_open(struct br_jfr_chunk *chunk, const uint8_t *data, size_t len,
                      struct br_err *err);
void br_jfr_chunk_release(struct br_jfr_chunk *chunk);

/* Returns true for the beginning of a chunk (of at least a byte) of which the end, or the size, is
 * not there. */
bool br_jfr_is_torn(const uint8_t *data, size_t len);

/* Read the parts of a chunk for br_jfr_chunk_open: the metadata's types, the pools. */
int br_jfr_metadata(struct br_jfr_chunk *chunk, struct br_err *err);
int br_jfr_pools(struct br_jfr_chunk *chunk, struct br_err *err);

/* Returns a reader from offset `at` to the chunk's end. */
static inline struct br_jfr_in br_jfr_at(const struct br_jfr_chunk *chunk, uint64_t at)
{
    bool bad = at < BR_JFR_HEADER || at > chunk->size;
    const uint8_t *end = chunk->data + chunk->size;
    return (struct br_jfr_in){bad ? end : chunk->data + at, end, chunk->packed, bad};
}

/* Returns the class with this id, or NULL. */
const struct br_jfr_class *br_jfr_class(const struct br_jfr_chunk *chunk, int64_t id);

/* Makes all of them 0, in pieces of a few stores each: a string instruction for all takes longer to
 * begin. */
static inline void br_jfr_no_values(uint64_t values[BR_JFR_N_SLOTS])
{
    for (unsigned i = 0; i < BR_JFR_N_SLOTS; i += 8)
        memset(values + i, 0, 8 * sizeof *values);
}

/* Reads the first `n_fields` fields of a value and puts those with a slot into `values`. Structures
 * may be nested eight deep. */
void br_jfr_value(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                  const struct br_jfr_class *class, uint32_t n_fields,
                  uint64_t values[BR_JFR_N_SLOTS]);

/* Returns the entry of a pool, its fields in `values` (others are 0), or NULL when there is none.
 */
struct br_jfr_entry *br_jfr_constant(const struct br_jfr_chunk *chunk, enum br_jfr_type type,
                                     uint64_t id, uint64_t values[BR_JFR_N_SLOTS]);

/* The entry of the pool of strings that the string at `at` refers to; NULL when it stands there
 * itself, or is not in the pool. */
struct br_jfr_entry *br_jfr_pooled(const struct br_jfr_chunk *chunk, uint64_t at);

/* Appends the string at `at` as UTF-8; one in the pool of strings is looked up there. What cannot
 * be read appends nothing. Sequences that are no UTF-8 are appended as they are. It stops where
 * `out` is full: what a few bytes have to be compared with is read into a fixed string. */
void br_jfr_text(const struct br_jfr_chunk *chunk, uint64_t at, struct br_str *out);

/* --- Events ----------------------------------------------------------------------------------- */

#define BR_JFR_AHEAD 4096

/* A walk over a chunk's events. Where an event ends is what the next one waits for, and most are
 * nobody's: so a second walk goes ahead from a checkpoint in the middle of the chunk, beside the
 * first, and remembers what it finds. Where the first never comes to that checkpoint, that is
 * nothing. */
struct br_jfr_events {
    uint32_t at;     /* where the next event begins */
    uint32_t middle; /* where the checkpoint does; 0: there is none ahead */
    uint32_t ahead;  /* where the second walk has come to */
    bool met;        /* the first has come to `middle`: what was found is given out */
    uint32_t n_found, n_given;
    uint32_t found[BR_JFR_AHEAD]; /* where events begin that somebody may want */
};

/* Begins before the first event; the rest is left as it is. */
void br_jfr_events_begin(struct br_jfr_events *events, const struct br_jfr_chunk *chunk);

/* The next event of the chunk. Events of types that nobody wants are left out. Returns the type
 * with `values` filled, 0 at the end, or BR_EINVAL with a sentence. */
int br_jfr_event(const struct br_jfr_chunk *chunk, struct br_jfr_events *events,
                 uint64_t values[BR_JFR_N_SLOTS], struct br_err *err);

/* Unix time of a tick. */
uint64_t br_jfr_time(const struct br_jfr_chunk *chunk, uint64_t ticks);

/* Nanoseconds of a number of ticks; as many as fit when there are more. */
int64_t br_jfr_ticks_ns(const struct br_jfr_chunk *chunk, uint64_t ticks);

/* --- Names ------------------------------------------------------------------------------------ */

/* Makes names that the virtual machine numbers (accessors, lambdas, proxies, unpacked libraries)
 * one name, in place, as Pyroscope does: the number becomes "_". Returns the new length. `name` has
 * room for `len` + 1 bytes. Source: jfr-parser 0.18, parser/symbols.go. */
size_t br_jfr_merge_name(char *name, size_t len);
