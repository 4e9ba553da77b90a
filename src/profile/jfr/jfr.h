/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the file format of Java Flight Recorder in place. This header is private to
 * src/profile/jfr.
 *
 * A file is a sequence of independent chunks. A chunk consists of a header and events. The header
 * of a chunk points to two special events: the metadata, which lists the fields of each type, and
 * the last checkpoint. A checkpoint holds constant pools (stack traces, methods, symbols ...) and
 * points to the previous checkpoint. The layout of an event or a pool entry is known only from the
 * metadata. To find one field, a reader therefore has to parse all preceding fields. To find the
 * next pool, a reader has to parse all entries of the current pool.
 *
 * The reader assigns a slot (enum br_jfr_slot) to every field it needs, and slot 0 to all others.
 * One loop (br_jfr_value) reads values of any type. Constant pools are indexed, but their entries
 * are not decoded in advance. The index of a pool stores the offset of each entry, and the result
 * of resolving the entry (`note`).
 *
 * Input may be malicious. Every read is bounded by the chunk. After the first read beyond the end
 * the reader sets its field `bad`, returns zeros and does not advance. Callers may therefore check
 * `bad` once after a loop. The memory for a recording is proportional to the input. The limits are:
 * - 43 bytes of memory for a pool entry, which takes at least two bytes of the input
 * - 79 bytes of memory for a class and 36 for a field, which take at least seven bytes each
 * - 16 bytes of memory for a string of the metadata, which takes at least one byte
 *
 * The format is derived from JDK 17's jdk.jfr.internal.consumer (ChunkHeader, MetadataReader,
 * ChunkParser, RecordingInput) and async-profiler's flightRecorder.cpp.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

__extension__ typedef unsigned __int128 br_jfr_u128; /* product of two 64-bit numbers */

/* --- Bytes ------------------------------------------------------------------------------------ */

/* Reads bytes forward from `p`, up to and excluding `end`. */
struct br_jfr_in {
    const uint8_t *p, *end;
    /* true: integers of the file are encoded as LEB128; false: as big-endian numbers of full
     * width */
    bool packed;
    bool bad;
};

/* Decodes a LEB128 integer of at most nine bytes. All eight bits of the ninth byte are part of
 * the value. Returns the position after the integer, or NULL if the integer is truncated. */
const uint8_t *br_jfr_varint_slow(const uint8_t *p, const uint8_t *end, uint64_t *ret);

/* Reads a LEB128 integer. `in` is not passed to other functions, so the compiler can keep it in
 * registers. */
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

/* Reads an unsigned big-endian integer of `count` bytes (1 to 8). */
static inline uint64_t br_jfr_fixed(struct br_jfr_in *in, unsigned count)
{
    const uint8_t *p = in->p;
    bool available = (size_t)(in->end - p) >= count;
    in->bad = in->bad || !available;
    in->p = available ? p + count : in->end;
    return available ? br_jfr_big_endian(p, count) : 0;
}

/* Skips `count` bytes. */
void br_jfr_skip(struct br_jfr_in *in, uint64_t count);

static inline uint64_t br_jfr_long(struct br_jfr_in *in)
{
    return in->packed ? br_jfr_varint(in) : br_jfr_fixed(in, 8);
}

static inline uint32_t br_jfr_int(struct br_jfr_in *in)
{
    return (uint32_t)(in->packed ? br_jfr_varint(in) : br_jfr_fixed(in, 4));
}

/* Skips a string in any encoding. */
void br_jfr_skip_string(struct br_jfr_in *in);

/* --- Types ------------------------------------------------------------------------------------ */

/* Known types. All other types of the metadata are BR_JFR_OTHER. */
enum br_jfr_type {
    BR_JFR_OTHER,
    /* primitive types */
    BR_JFR_BOOLEAN,
    BR_JFR_BYTE,
    BR_JFR_CHAR,
    BR_JFR_SHORT,
    BR_JFR_INT,
    BR_JFR_LONG,
    BR_JFR_FLOAT,
    BR_JFR_DOUBLE,
    BR_JFR_STRING,
    /* types with constant pools */
    BR_JFR_THREAD,
    BR_JFR_THREAD_STATE,
    BR_JFR_STACK_TRACE,
    BR_JFR_METHOD,
    BR_JFR_CLASS,
    BR_JFR_SYMBOL,
    BR_JFR_CHUNK_HEADER,
    /* types nested in other values */
    BR_JFR_STACK_FRAME,
    /* types of events */
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

/* Indices into the array of values that br_jfr_value fills. A string or an array is stored as
 * its offset in the chunk, and a reference as the ID of the entry in the constant pool. */
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
    BR_JFR_HOLDER,      /* class that contains a method */
    BR_JFR_SYMBOL_NAME, /* name of a class or a method */
    BR_JFR_FRAMES,
    BR_JFR_FRAME_METHOD,
    BR_JFR_LINE,
    BR_JFR_OS_NAME,
    BR_JFR_JAVA_NAME,
    BR_JFR_JAVA_ID,
    BR_JFR_SLOTS_END
};
#define BR_JFR_N_SLOTS 32 /* size of the array of values; a multiple of 8, see br_jfr_no_values */
_Static_assert(BR_JFR_SLOTS_END <= BR_JFR_N_SLOTS, "every slot has its place");

struct br_jfr_field {
    int64_t type_id;
    uint32_t name; /* index of a string in the metadata */
    /* index in br_jfr_chunk.classes of the field's type; BR_JFR_NO_CLASS: the metadata does not
     * define it */
    uint32_t class;
    uint8_t type; /* type of the field, an enum br_jfr_type */
    uint8_t slot; /* slot of the field, an enum br_jfr_slot */
    bool array, pool;
    bool plain; /* The field is a single integer, which is LEB128 if the chunk is packed. */
};
#define BR_JFR_NO_CLASS UINT32_MAX

struct br_jfr_class {
    int64_t id;
    /* index of the first field in br_jfr_chunk.fields, and number of fields */
    uint32_t first, n_fields;
    /* number of leading fields to be read: all up to the last field with a slot */
    uint32_t n_needed;
    uint8_t type; /* an enum br_jfr_type */
};

/* --- IDs -------------------------------------------------------------------------------------- */

/* An entry of a constant pool. */
struct br_jfr_entry {
    uint64_t id;
    /* offset in the chunk of the entry's first byte; 0: the slot of the hash table is unused */
    uint32_t at;
    /* result of resolving the entry, whose meaning depends on the pool; 0 at first */
    uint32_t note;
};

/* A hash table of pool entries by ID. A zeroed table is empty. */
struct br_jfr_ids {
    struct br_jfr_entry *slots;
    uint32_t count;
    unsigned bits; /* base-2 logarithm of the number of slots; 0: there are no slots */
    uint64_t secret;
};

/* Returns the entry with this ID, or NULL. */
struct br_jfr_entry *br_jfr_ids_find(const struct br_jfr_ids *ids, uint64_t id);

/* Adds or replaces the entry of an ID; `at` must not be 0. Pointers to entries become invalid.
 * Returns 0 or BR_ENOMEM. */
int br_jfr_ids_put(struct br_jfr_ids *ids, uint64_t id, uint32_t at);

/* Removes all entries from the table. Frees the table's memory if there are many slots, or many
 * slots per entry. */
void br_jfr_ids_clear(struct br_jfr_ids *ids);
void br_jfr_ids_release(struct br_jfr_ids *ids);

/* --- Chunks ----------------------------------------------------------------------------------- */

/* Size of br_jfr_chunk.wanted: 2^10, because two bytes of LEB128 contain at least ten bits. */
#define BR_JFR_WANTED 1024

struct br_jfr_chunk {
    const uint8_t *data;
    uint32_t size;
    bool packed;
    uint32_t pools_at, metadata_at;
    /* offset of a checkpoint in the second half of the chunk, from which a second scan may start
     * (struct br_jfr_events); 0: no such checkpoint was found */
    uint32_t middle;
    uint64_t start_ns, duration_ns, start_ticks, ticks_per_second;

    const uint8_t *known; /* encoded metadata from which the fields below were read */
    uint32_t known_len;   /* size of `known` in bytes; 0: no metadata was read */
    bool known_packed;
    struct br_jfr_class *classes;
    uint32_t n_classes, classes_cap;
    struct br_jfr_ids class_of_id; /* maps class IDs to the index in `classes` + 1 */
    struct br_jfr_field *fields;
    uint32_t n_fields, fields_cap;
    /* for each enum br_jfr_type: index in `classes`; BR_JFR_NO_CLASS: the metadata does not define
     * the type */
    uint32_t class_of[BR_JFR_N_TYPES];
    /* class ID for each type of event; valid unless class_of of that type is BR_JFR_NO_CLASS */
    int64_t event_ids[BR_JFR_N_TYPES - BR_JFR_FIRST_EVENT];
    /* indexed by the ID of an event's class modulo BR_JFR_WANTED; true if event_ids contains such
     * an ID */
    bool wanted[BR_JFR_WANTED];
    /* indexed by the first encoded byte of an ID; true if an ID in event_ids may begin with this
     * byte */
    bool wanted_first[256];
    /* constant pool for each enum br_jfr_type; only the pools of the types THREAD to SYMBOL, and of
     * STRING, are filled */
    struct br_jfr_ids pools[BR_JFR_N_TYPES];
};

/* Size of a chunk header in bytes. */
#define BR_JFR_HEADER 68

/* Reads the chunk at the start of `data` except its events, and replaces the content of `chunk`.
 * Returns 0, BR_EINVAL with a message, or BR_ENOMEM. `chunk` may be zeroed; `data` is borrowed
 * until br_jfr_chunk_release. */
int br_jfr_chunk_open(struct br_jfr_chunk *chunk, const uint8_t *data, size_t len,
                      struct br_err *err);
void br_jfr_chunk_release(struct br_jfr_chunk *chunk);

/* Returns true if `data` is the beginning of a chunk, and the size in the chunk's header is
 * missing or more than `len`. `len` is at least 1. */
bool br_jfr_is_torn(const uint8_t *data, size_t len);

/* Reads the types in the metadata of a chunk. Called by br_jfr_chunk_open. Returns 0, BR_EINVAL
 * with a message, or BR_ENOMEM. */
int br_jfr_metadata(struct br_jfr_chunk *chunk, struct br_err *err);

/* Indexes the constant pools of a chunk. Called by br_jfr_chunk_open after br_jfr_metadata. Returns
 * 0, BR_EINVAL with a message, or BR_ENOMEM. */
int br_jfr_pools(struct br_jfr_chunk *chunk, struct br_err *err);

/* Returns a reader from offset `at` to the end of the chunk. */
static inline struct br_jfr_in br_jfr_at(const struct br_jfr_chunk *chunk, uint64_t at)
{
    bool bad = at < BR_JFR_HEADER || at > chunk->size;
    const uint8_t *end = chunk->data + chunk->size;
    return (struct br_jfr_in){bad ? end : chunk->data + at, end, chunk->packed, bad};
}

/* Returns the class with this ID, or NULL if the metadata does not define it. */
const struct br_jfr_class *br_jfr_class(const struct br_jfr_chunk *chunk, int64_t id);

/* Clears all values. The array is cleared in small blocks, which compile to a few stores each and
 * are faster than one long memset. */
static inline void br_jfr_no_values(uint64_t values[BR_JFR_N_SLOTS])
{
    for (unsigned i = 0; i < BR_JFR_N_SLOTS; i += 8)
        memset(values + i, 0, 8 * sizeof *values);
}

/* Reads the first `n_fields` fields of a value of the type `class`. Stores each field that has a
 * slot in `values`. Structures may be nested up to eight levels deep. */
void br_jfr_value(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                  const struct br_jfr_class *class, uint32_t n_fields,
                  uint64_t values[BR_JFR_N_SLOTS]);

/* Returns a pool entry and stores its fields in `values`, which are cleared first. Returns NULL
 * if the entry does not exist. */
struct br_jfr_entry *br_jfr_constant(const struct br_jfr_chunk *chunk, enum br_jfr_type type,
                                     uint64_t id, uint64_t values[BR_JFR_N_SLOTS]);

/* Returns the pool entry to which the string at `at` refers. Returns NULL if the string is not a
 * reference, or if the pool does not contain the entry. */
struct br_jfr_entry *br_jfr_pooled(const struct br_jfr_chunk *chunk, uint64_t at);

/* Appends the string at `at`, or the pooled string to which it refers, as UTF-8. Appends nothing
 * if the string is malformed. Invalid UTF-8 is appended unchanged. Stops when `out` is full, so
 * a caller that compares a few bytes can pass a fixed buffer. */
void br_jfr_text(const struct br_jfr_chunk *chunk, uint64_t at, struct br_str *out);

/* --- Events ----------------------------------------------------------------------------------- */

#define BR_JFR_AHEAD 4096

/* Iterates over the events of a chunk. The position of an event depends on the size of the previous
 * event, and most events are not wanted. To overlap these dependent loads, a second scan runs ahead
 * from a checkpoint in the middle of the chunk and records the events it finds. If the first scan
 * does not arrive exactly at that checkpoint, the recorded events are discarded. */
struct br_jfr_events {
    uint32_t at; /* offset in the chunk of the next event */
    /* offset of the checkpoint where the second scan began; 0: there is no second scan */
    uint32_t middle;
    uint32_t ahead; /* offset in the chunk up to which the second scan has read */
    /* The first scan has arrived at `middle`, and the events in `found` are returned now. */
    bool joined;
    uint32_t n_found, n_returned;
    /* offsets of the events that the second scan has recorded, because their types may be wanted */
    uint32_t found[BR_JFR_AHEAD];
};

/* Initialises the iteration before the first event. Does not clear `events->found`. */
void br_jfr_events_begin(struct br_jfr_events *events, const struct br_jfr_chunk *chunk);

/* Finds the next event with a known type and reads its fields into `values`. Returns the type
 * (an enum br_jfr_type), 0 at the end of the chunk, or BR_EINVAL with a message. */
int br_jfr_event(const struct br_jfr_chunk *chunk, struct br_jfr_events *events,
                 uint64_t values[BR_JFR_N_SLOTS], struct br_err *err);

/* Converts the time of an event, in ticks, to nanoseconds since 1970. */
uint64_t br_jfr_time(const struct br_jfr_chunk *chunk, uint64_t ticks);

/* Converts a duration in ticks to nanoseconds. Results above INT64_MAX become INT64_MAX. */
int64_t br_jfr_ticks_ns(const struct br_jfr_chunk *chunk, uint64_t ticks);

/* --- Names ------------------------------------------------------------------------------------ */

/* Merges names that the JVM generates (accessors, lambdas, proxies, unpacked libraries), as
 * Pyroscope does: replaces the numbers in them by "_" in place. Returns the new length. `name`
 * must have room for `len` + 1 bytes. Source: jfr-parser 0.18, parser/symbols.go. */
size_t br_jfr_merge_name(char *name, size_t len);
