/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a profiles request: every other format becomes OTLP through it. Source:
 * opentelemetry/proto/profiles/v1development/profiles.proto at the numbering of 1.10.
 *
 * Dictionary entries are interned: equal ones get the same index, 0 is the empty one of its table
 * and means "none". Messages are opened from the outside in (resource, scope, profile, samples);
 * opening one closes what is open at its level and below. What is built is valid by construction:
 * strings are made UTF-8 (bad sequences become U+FFFD), indices come from the builder, ids have
 * their lengths.
 *
 * Errors stick: after the first (BR_EFULL when max_bytes would be passed, BR_ENOMEM, or BR_EINVAL
 * for what no reader may ask for: an index from elsewhere, a message outside its parent) nothing is
 * added, indices are 0, and br_build_take says it. So a reader need not look after each call, but
 * has to stop at br_build_rc in its outer loops.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"
#include "otlp/edit/edit.h"
#include "wire/protobuf.h"

struct br_build;
struct br_host;

/* Returns a builder whose tables and messages take at most max_bytes. NULL when there is no memory.
 */
struct br_build *br_build_new(struct br_host *host, size_t max_bytes);
void br_build_free(struct br_build *build);

/* Makes the request empty again, also after an error; keeps the memory, unless it is most of
 * max_bytes. */
void br_build_clear(struct br_build *build);

/* Makes the request empty again, and keeps no memory. */
void br_build_shrink(struct br_build *build);

/* Closes what is open and remembers what was built so far; br_build_undo goes back to it, also
 * after an error, which it forgets (but not one from before the mark). What it costs is in
 * proportion to what is undone. The mark lasts until br_build_clear or br_build_take. */
void br_build_mark(struct br_build *build);
void br_build_undo(struct br_build *build);

/* Returns the bytes that the builder holds, also after br_build_clear. */
size_t br_build_memory(const struct br_build *build);

/* Lets what the builder holds grow to `max_bytes`, at most to what br_build_new was
 * given; what it holds already is not given back for that. Below that maximum what lies in two
 * places while it moves counts twice. Returns the limit before. */
size_t br_build_limit(struct br_build *build, size_t max_bytes);

/* Returns the bytes of the request that is under construction, so far. */
size_t br_build_made(const struct br_build *build);

/* Returns the bytes that br_build_take needs beside these: the dictionary, in one piece, less what
 * it gives back before. */
size_t br_build_take_size(const struct br_build *build);

/* Returns a secret to hash with that is as old as the builder's tables, which are made where there
 * are none. Lives until the builder is changed. */
const uint64_t *br_build_secret(struct br_build *build);

/* Returns 0, or the error that sticks. */
int br_build_rc(const struct br_build *build);

/* --- The dictionary --------------------------------------------------------------------------- */

uint32_t br_build_string(struct br_build *build, const void *data, size_t len);

/* Enter attributes: text, integers with a unit (string index; 0: none), and truth values; `key` is
 * a string index. */
uint32_t br_build_attribute_text(struct br_build *build, uint32_t key, const void *data,
                                 size_t len);
uint32_t br_build_attribute_texts(struct br_build *build, uint32_t key,
                                  const struct br_addition *texts, size_t count);
uint32_t br_build_attribute_int(struct br_build *build, uint32_t key, int64_t value, uint32_t unit);
uint32_t br_build_attribute_ints(struct br_build *build, uint32_t key, const int64_t *values,
                                 size_t count, uint32_t unit);
uint32_t br_build_attribute_bool(struct br_build *build, uint32_t key, bool value);

struct br_build_mapping {
    uint64_t memory_start, memory_limit, file_offset;
    uint32_t filename; /* string index */
    const uint32_t *attributes;
    size_t n_attributes;
};
uint32_t br_build_mapping(struct br_build *build, const struct br_build_mapping *mapping);

/* Enters a function. The first three are string indices. */
uint32_t br_build_function(struct br_build *build, uint32_t name, uint32_t system_name,
                           uint32_t filename, int64_t start_line);

struct br_build_line {
    uint32_t function;
    int64_t line, column;
};
struct br_build_location {
    uint32_t mapping;
    uint64_t address;
    const struct br_build_line *lines; /* innermost inlined function first */
    size_t n_lines;
    const uint32_t *attributes;
    size_t n_attributes;
};
uint32_t br_build_location(struct br_build *build, const struct br_build_location *location);

/* Locations leaf first. */
uint32_t br_build_stack(struct br_build *build, const uint32_t *locations, size_t count);

/* Enters a stack of locations that the reader knows by numbers of its own, as a packed list of
 * varints that lies in a message: the byte before it and 16 bytes behind it can be read.
 * `places[number]` is the location's index + 1, or 0; with `places` NULL numbers from 1 to
 * n_places - 1 are the indices themselves, which is the fastest way. False, and nothing is added,
 * when a number has no place, or three bytes or more: then the caller has to look at them one by
 * one. */
bool br_build_stack_packed(struct br_build *build, const uint8_t *packed, size_t len,
                           const uint32_t *places, uint32_t n_places, uint32_t *ret);

/* Enters a link: ids of 16 and 8 bytes; trace_id may be NULL: zeros. */
uint32_t br_build_link(struct br_build *build, const uint8_t *trace_id, const uint8_t *span_id);

/* --- The messages ----------------------------------------------------------------------------- */

/* Opens a ResourceProfiles. `attributes`: encoded KeyValues as field 1 (Resource.attributes,
 * br_add_string and its neighbours); NULL: none. */
void br_build_resource(struct br_build *build, const struct br_addition *attributes);

/* Opens a ScopeProfiles. Texts may be NULL; `attributes`: encoded KeyValues as field 3
 * (InstrumentationScope.attributes). */
void br_build_scope(struct br_build *build, const char *name, const char *version,
                    const struct br_addition *attributes);

struct br_build_profile {
    uint32_t type, unit;               /* sample_type; string indices */
    uint32_t period_type, period_unit; /* both 0: the profile has no period type */
    int64_t period;
    uint64_t time_ns, duration_ns;
    const uint8_t *profile_id; /* 16 bytes, or NULL */
    const uint32_t *attributes;
    size_t n_attributes;
};
void br_build_profile(struct br_build *build, const struct br_build_profile *profile);

struct br_build_sample {
    uint32_t stack, link;
    const uint32_t *attributes;
    size_t n_attributes;
    const int64_t *values; /* one, or none */
    size_t n_values;
    const uint64_t *times_ns; /* unix */
    size_t n_times;
};
void br_build_sample(struct br_build *build, const struct br_build_sample *sample);

/* The same for a sample that several Profiles have, each with a value of its own: encodes all of it
 * but the values (which, as the times, must not be there) to `out`, of BR_BUILD_PREFIX bytes, and
 * returns the end. Then br_build_prefixed puts it into the open Profile; `prefix` is of this
 * request. */
#define BR_BUILD_PREFIX(n_attributes) (24 + 5 * (size_t)(n_attributes))
uint8_t *br_build_prefix(struct br_build *build, const struct br_build_sample *sample,
                         uint8_t *out);
void br_build_prefixed(struct br_build *build, const uint8_t *prefix, size_t len, int64_t value);

/* Returns the bytes that br_build_prefixed adds. */
static inline size_t br_build_prefixed_size(size_t prefix_len, uint64_t value)
{
    return br_len_size(2, prefix_len + 2 + br_varint_size(value));
}

/* Makes room for so many bytes of messages at once. */
void br_build_reserve(struct br_build *build, size_t len);

/* Samples so far. */
uint32_t br_build_items(const struct br_build *build);

/* Makes what was built the parts of `into` (a new, empty profiles item) and clears the builder.
 * Returns 0 or the error that sticks (`into` is still empty). */
int br_build_take(struct br_build *build, struct br_item *into);
