/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a profiles request. Every profile format other than OTLP is converted to OTLP with this
 * builder. The format is that of opentelemetry/proto/profiles/v1development/profiles.proto, with
 * the field numbers of version 1.10.
 *
 * Dictionary entries are interned: equal entries get the same index. Index 0 of each table is the
 * empty entry, which means "none". Messages are opened from the outside in (resource, scope,
 * profile, samples). Opening a message closes the open messages of the same level and of deeper
 * levels. The result is always valid: strings become UTF-8 (invalid sequences are replaced by
 * U+FFFD), indices come from the builder, and ids have the right lengths.
 *
 * The first error is kept: BR_EFULL if max_bytes would be exceeded, BR_ENOMEM, or BR_EINVAL for a
 * wrong call. A wrong call uses an index that the builder did not return, or opens a message
 * outside its parent. After an error nothing more is added, returned indices are 0, and
 * br_build_take returns the error. A converter therefore need not check each call, but must check
 * br_build_rc in its outer loops.
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

/* Returns a builder whose tables and messages use at most `max_bytes` bytes, or NULL if memory
 * runs out. */
struct br_build *br_build_new(struct br_host *host, size_t max_bytes);
void br_build_free(struct br_build *build);

/* Discards the request, also after an error. Keeps the builder's memory for reuse, unless it is
 * large. */
void br_build_clear(struct br_build *build);

/* Discards the request and frees the builder's memory. */
void br_build_shrink(struct br_build *build);

/* Sets a mark to which br_build_undo returns. Closes the open messages. The mark is valid until
 * br_build_clear or br_build_take. */
void br_build_mark(struct br_build *build);

/* Removes everything added since the mark, and an error that occurred since then. An error from
 * before the mark stays. The cost is proportional to the amount removed. */
void br_build_undo(struct br_build *build);

/* Returns the number of bytes that the builder has allocated, including memory kept by
 * br_build_clear. */
size_t br_build_memory(const struct br_build *build);

/* Sets the limit of the builder's memory to `max_bytes`, but at most to the limit given to
 * br_build_new. Memory that is already allocated is kept. If `max_bytes` is below the limit of
 * br_build_new, a table that grows is counted with both its old and its new memory block. Returns
 * the previous limit. */
size_t br_build_limit(struct br_build *build, size_t max_bytes);

/* Returns the size in bytes of the request built so far. */
size_t br_build_made(const struct br_build *build);

/* Returns the number of additional bytes that br_build_take allocates: the size of the
 * dictionary as one block, minus the memory that br_build_take frees first. */
size_t br_build_take_size(const struct br_build *build);

/* Returns a secret for hashing. Each new set of tables of the builder has a new secret; the
 * tables are created if necessary. The pointer is valid until the builder is changed. */
const uint64_t *br_build_secret(struct br_build *build);

/* Returns 0 or the first error of the builder. */
int br_build_rc(const struct br_build *build);

/* --- The dictionary --------------------------------------------------------------------------- */

uint32_t br_build_string(struct br_build *build, const void *data, size_t len);

/* The functions br_build_attribute_text to br_build_attribute_bool each add an attribute to the
 * attribute table. The value of the attribute is a text, a list of texts, an integer, a list of
 * integers, or a boolean. `unit` is the string index of the unit; 0: the attribute has no unit.
 * `key` is a string index. Returns the index of the attribute. */
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
    uint32_t filename; /* string index of the file name */
    const uint32_t *attributes;
    size_t n_attributes;
};
uint32_t br_build_mapping(struct br_build *build, const struct br_build_mapping *mapping);

/* Adds a function to the function table and returns its index. `name`, `system_name` and
 * `filename` are string indices. */
uint32_t br_build_function(struct br_build *build, uint32_t name, uint32_t system_name,
                           uint32_t filename, int64_t start_line);

struct br_build_line {
    uint32_t function;
    int64_t line, column;
};
struct br_build_location {
    uint32_t mapping;
    uint64_t address;
    const struct br_build_line *lines; /* lines of the location, innermost inlined function first */
    size_t n_lines;
    const uint32_t *attributes;
    size_t n_attributes;
};
uint32_t br_build_location(struct br_build *build, const struct br_build_location *location);

/* Adds a stack of `count` location indices, leaf first, to the stack table and returns its
 * index. */
uint32_t br_build_stack(struct br_build *build, const uint32_t *locations, size_t count);

/* Adds a stack of locations. The stack is a packed list of varints that contains the caller's
 * numbers of the locations. One byte before the list and 16 bytes after it must be readable.
 * `index_of[number]` is the location's index + 1, or 0 if the number has no location. If `index_of`
 * is NULL, the numbers (1 to n_numbers - 1) are the indices themselves; this form is the fastest.
 *
 * Returns false and adds nothing if a number has no index or takes more than two bytes; the caller
 * then converts the numbers one by one. */
bool br_build_stack_packed(struct br_build *build, const uint8_t *packed, size_t len,
                           const uint32_t *index_of, uint32_t n_numbers, uint32_t *ret);

/* Adds a link to the link table and returns its index. A trace id has 16 bytes and a span id 8
 * bytes. If `trace_id` is NULL, the trace id is all zeros. */
uint32_t br_build_link(struct br_build *build, const uint8_t *trace_id, const uint8_t *span_id);

/* --- The messages ----------------------------------------------------------------------------- */

/* Opens a ResourceProfiles. `attributes` (NULL: none) contains KeyValues encoded as field 1,
 * Resource.attributes, by br_add_string and similar functions. */
void br_build_resource(struct br_build *build, const struct br_addition *attributes);

/* Opens a ScopeProfiles. `name` and `version` may be NULL. `attributes` (NULL: none) contains
 * KeyValues encoded as field 3, InstrumentationScope.attributes. */
void br_build_scope(struct br_build *build, const char *name, const char *version,
                    const struct br_addition *attributes);

struct br_build_profile {
    uint32_t type, unit; /* sample type and its unit, as string indices */
    /* period type and its unit, as string indices; both 0: the profile has no period type */
    uint32_t period_type, period_unit;
    int64_t period;
    uint64_t time_ns, duration_ns;
    const uint8_t *profile_id; /* 16 bytes, or NULL if the profile has no id */
    const uint32_t *attributes;
    size_t n_attributes;
};
void br_build_profile(struct br_build *build, const struct br_build_profile *profile);

struct br_build_sample {
    uint32_t stack, link;
    const uint32_t *attributes;
    size_t n_attributes;
    /* values of the sample; if the sample also has times, there is one value per time */
    const int64_t *values;
    size_t n_values;
    const uint64_t *times_ns; /* timestamps of the sample in nanoseconds since 1970 */
    size_t n_times;
};
void br_build_sample(struct br_build *build, const struct br_build_sample *sample);

/* Encodes a sample that occurs in several Profiles with different values. br_build_prefix
 * encodes everything except the value to `out`, which has BR_BUILD_PREFIX bytes, and returns the
 * end of the encoded bytes. `sample` has no values and no times. */
#define BR_BUILD_PREFIX(n_attributes) (24 + 5 * (size_t)(n_attributes))
uint8_t *br_build_prefix(struct br_build *build, const struct br_build_sample *sample,
                         uint8_t *out);

/* Adds a sample to the open Profile: `prefix` contains `len` bytes that br_build_prefix encoded for
 * the same request, and `value` is the value of the sample. */
void br_build_prefixed(struct br_build *build, const uint8_t *prefix, size_t len, int64_t value);

/* Returns the number of bytes that br_build_prefixed adds to the request. */
static inline size_t br_build_prefixed_size(size_t prefix_len, uint64_t value)
{
    return br_len_size(2, prefix_len + 2 + br_varint_size(value));
}

/* Allocates space for `len` bytes of messages in advance. */
void br_build_reserve(struct br_build *build, size_t len);

/* Returns the number of samples in the request. */
uint32_t br_build_records(const struct br_build *build);

/* Moves the request into `into`, a new and empty profiles item, and clears the builder. Returns
 * 0 or the first error of the builder; after an error `into` is still empty. */
int br_build_take(struct br_build *build, struct br_item *into);
