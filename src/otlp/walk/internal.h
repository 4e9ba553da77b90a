/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions shared by the walks over traces and over profiles. This header is private to
 * src/otlp. */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "otlp/fields.h"
#include "otlp/walk/walk.h"
#include "wire/protobuf.h"

#define BR_HOT static inline __attribute__((always_inline))

struct br_walker {
    const struct br_walk_options *options;
    unsigned max_depth;
    uint32_t bad_utf8; /* number of strings that are not UTF-8 */
    /* error message without the position; NULL: no error, or malformed wire format */
    const char *what;
    /* the error code BR_EINVAL, BR_ETOOBIG or BR_ENOMEM; 0: no error */
    int code;
    /* position in the request: indices of the current messages; -1: before the first message */
    long resource, scope, item, inner;
    /* the current ResourceSpans or ResourceProfiles has more than one Resource field */
    bool several_resources;
    /* buffer with the bytes of the parts whose Resources were merged; NULL: no Resources were
     * merged */
    struct br_buf *merged;
    uint32_t n_dictionaries;
    uint32_t n_profiles;
    /* profiles: sample types found so far; NULL: counts by sample type are not requested */
    struct br_sample_pairs *pairs;
    /* profiles: position of the tag of the dictionary's first string; NULL: no string was found
     * yet */
    const uint8_t *strings;
    /* a ResourceProfiles was walked twice because its Resources were merged, so `pairs` has wrong
     * counts */
    bool any_merged;
    bool odd_times;        /* profiles: some times are before BR_TIME_MIN_NS */
    uint64_t n_references; /* profiles: number of references from attributes to the string table */
    /* profiles: upper bound of the length, in bytes, of the longest string in the dictionary */
    uint64_t longest;
    /* traces: first unused element, and end, of the array for the item's list of spans */
    struct br_span *next_span, *end_span;
    /* traces: maximum number of spans in the item's list, which depends on the request's size */
    uint64_t most_spans;
    /* profiles: number of entries of each table, by its field number */
    uint32_t n_tables[8];
    /* False in the first walk over profiles, which only records the largest index into each table.
     * When all entries have been counted, the largest indices are compared with the sizes of the
     * tables. If an index is too large, a second walk with `exact` set finds the position of the
     * error. */
    bool exact;
    uint64_t largest[8];
};

/* The walk functions read the bytes of one message, from `p` up to and excluding `end`. The walk
 * functions return true, or false after recording an error in walker->what and walker->code. */

static inline bool br_walk_fail(struct br_walker *walker, const char *what)
{
    if (!walker->what) {
        walker->what = what;
        walker->code = BR_EINVAL;
    }
    return false;
}

bool br_walk_malformed(struct br_walker *walker);
bool br_walk_no_memory(struct br_walker *walker);
/* Records BR_ETOOBIG with the message `what`. Returns false. */
bool br_walk_too_big(struct br_walker *walker, const char *what);
bool br_walk_too_deep(struct br_walker *walker);
bool br_walk_bad_string(struct br_walker *walker, const uint8_t *p, size_t count);

/* Returns true if the `count` bytes at `p` are all ASCII. `count` is at least 16. */
bool br_walk_ascii_long(const uint8_t *p, size_t count);

/* Records an index into a table of the profiles dictionary or, if walker->exact, checks it. */
bool br_walk_index_outside(struct br_walker *walker, int table);
BR_HOT bool br_walk_index(struct br_walker *walker, uint64_t index, int table)
{
    if (index > walker->largest[table])
        walker->largest[table] = index;
    return __builtin_expect(!walker->exact, 1) || index < walker->n_tables[table] || index == 0 ||
           br_walk_index_outside(walker, table);
}

BR_HOT bool br_walk_string(struct br_walker *walker, const uint8_t *p, size_t count)
{
    uint64_t high = 0x8080808080808080u;
    if (__builtin_expect(count <= 8, 0)) {
        uint64_t mask = count == 8 ? ~0ull : (1ull << (8 * count)) - 1;
        if (__builtin_expect((br_load64(p) & mask & high) == 0, 1))
            return true;
    } else if (__builtin_expect(count <= 16, 1)) {
        if (__builtin_expect(((br_load64(p) | br_load64(p + count - 8)) & high) == 0, 1))
            return true;
    } else if (count <= 32) {
        uint64_t all =
            br_load64(p) | br_load64(p + 8) | br_load64(p + count - 16) | br_load64(p + count - 8);
        if (__builtin_expect((all & high) == 0, 1))
            return true;
    } else if (__builtin_expect(br_walk_ascii_long(p, count), 1)) {
        return true;
    }
    return br_walk_bad_string(walker, p, count);
}

/* Reads a varint at `p` that is the length of a field. Returns the position after the varint, or
 * NULL if the length exceeds the bytes that remain before `end`. */
BR_HOT const uint8_t *br_walk_len(const uint8_t *p, const uint8_t *end, size_t *ret)
{
    uint64_t n;
    if (__builtin_expect(p < end && p[0] < 0x80, 1)) {
        n = p[0];
        p += 1;
    } else if (__builtin_expect(end - p >= 2 && p[1] < 0x80, 1)) {
        n = (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
        p += 2;
    } else {
        p = br_varint_slow(p, end, &n);
        if (!p)
            return NULL;
    }
    if (__builtin_expect(n > (uint64_t)(end - p), 0))
        return NULL;
    *ret = (size_t)n;
    return p;
}

/* Skips a varint. Returns the position after the varint, or NULL if it is malformed. */
BR_HOT const uint8_t *br_walk_varint(const uint8_t *p, const uint8_t *end)
{
    uint64_t ignored;
    return br_varint(p, end, &ignored);
}

/* Functions that walk the messages that traces and profiles have in common. `depth` is the level of
 * the message in the request. */
bool br_walk_resource(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                      unsigned depth);
bool br_walk_scope(struct br_walker *walker, const uint8_t *p, const uint8_t *end, unsigned depth);
bool br_walk_any(struct br_walker *walker, const uint8_t *p, const uint8_t *end, unsigned depth);

/* Result of checking a KeyValue. BR_WALK_THREAD: the KeyValue is valid and its key begins with
 * "thread.". */
enum br_walk_attribute { BR_WALK_BAD, BR_WALK_GOOD, BR_WALK_THREAD };
enum br_walk_attribute br_walk_attribute(struct br_walker *walker, const uint8_t *p,
                                         const uint8_t *end, unsigned depth);

/* Returns true if the key begins with "thread." and has at least one more character. */
BR_HOT bool br_walk_is_thread_key(const uint8_t *p, size_t count)
{
    static const uint8_t prefix[8] = "thread.";
    return count >= sizeof prefix && ((br_load64(p) ^ br_load64(prefix)) & 0xffffffffffffffu) == 0;
}

/* Returns true if the `count` bytes at `p`, at most 64, are all ASCII. May read up to 15 bytes
 * after the `count` bytes (BR_BUF_SLACK). */
BR_HOT bool br_walk_ascii(const uint8_t *p, size_t count)
{
    typedef uint64_t wide __attribute__((vector_size(16)));
    static const uint8_t counts[32] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                       0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
    wide all, more, high;
    if (count <= sizeof all) {
        memcpy(&all, p, sizeof all);
        memcpy(&high, counts + sizeof all - count, sizeof high);
    } else {
        /* Loads four blocks of 16 bytes. The blocks overlap or are equal if there are fewer than
         * 64 bytes. */
        size_t last = count - sizeof all, second = last < 16 ? last : 16,
               third = last < 16 ? 0 : last - 16;
        memcpy(&all, p, sizeof all);
        memcpy(&more, p + second, sizeof more);
        all |= more;
        memcpy(&more, p + third, sizeof more);
        all |= more;
        memcpy(&more, p + last, sizeof more);
        all |= more;
        memcpy(&high, counts, sizeof high);
    }
    all &= high;
    return (all[0] | all[1]) == 0;
}

/* Returns true if the `count` bytes (1 to 8) are exactly one varint. Always reads 8 bytes. */
BR_HOT bool br_walk_is_varint(const uint8_t *p, size_t count)
{
    uint64_t high = 0x8080808080808080u;
    unsigned behind = (unsigned)(64 - 8 * count);
    return (br_load64(p) & high) << behind == (high << behind) << 8 >> 8;
}

/* Checks an attribute of the usual shape: a key and a string, integer, bool or double, in either
 * order. Key and value are shorter than 128 bytes, and the key and a string value are ASCII.
 * `*ret_key` and `*ret_value` are the key and the AnyValue; the byte before each is its length.
 * BR_WALK_BAD means that the attribute has another shape, which may be valid. */
BR_HOT enum br_walk_attribute br_walk_attribute_plain(const uint8_t *p, size_t len,
                                                      const uint8_t **ret_key,
                                                      const uint8_t **ret_value)
{
    const unsigned key_tag = BR_TAG(BR_KEYVALUE_KEY, BR_WIRE_LEN);
    const unsigned value_tag = BR_TAG(BR_KEYVALUE_VALUE, BR_WIRE_LEN);
    if (__builtin_expect(len < 4 || p[1] + 4u > len, 0))
        return BR_WALK_BAD;
    const uint8_t *other = p + 2 + p[1];
    unsigned tags = p[0] | (unsigned)other[0] << 8;
    bool key_first = tags == (key_tag | value_tag << 8);
    if (__builtin_expect(!key_first && tags != (value_tag | key_tag << 8), 0))
        return BR_WALK_BAD;
    const uint8_t *key = (key_first ? p : other) + 2, *value = (key_first ? other : p) + 2;
    size_t key_len = key[-1], n = value[-1];
    if (__builtin_expect(key_len + n + 4 != len || (key_len | n) >= 0x80 || n < 2, 0))
        return BR_WALK_BAD;
    bool good = false;
    if (__builtin_expect(value[0] == BR_TAG(BR_VALUE_STRING, BR_WIRE_LEN), 1))
        /* the bytes checked include tags and lengths, which are ASCII as well */
        good =
            value[1] + 2u == n && (len <= 64 ? br_walk_ascii(p, len) : br_walk_ascii_long(p, len));
    else if (value[0] == BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT) ||
             value[0] == BR_TAG(BR_VALUE_BOOL, BR_WIRE_VARINT))
        good = n <= 9 && br_walk_is_varint(value + 1, n - 1) && key_len <= 64 &&
               br_walk_ascii(key, key_len);
    else if (value[0] == BR_TAG(BR_VALUE_DOUBLE, BR_WIRE_I64))
        good = n == 9 && key_len <= 64 && br_walk_ascii(key, key_len);
    *ret_key = key;
    *ret_value = value;
    if (__builtin_expect(!good, 0))
        return BR_WALK_BAD;
    return br_walk_is_thread_key(key, key_len) ? BR_WALK_THREAD : BR_WALK_GOOD;
}

/* Reads one field of a message and rejects a known field with a wrong wire type. `wires[number]`
 * is the expected wire type + 1; 0: any wire type. Returns the end of the field, or NULL after
 * recording an error. */
const uint8_t *br_walk_field(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                             const uint8_t *wires, size_t n_wires, struct br_field *ret);

/* Reads one field like br_walk_field. The frequent encodings are inlined: one-byte tags, and
 * varints of one or two bytes. */
BR_HOT const uint8_t *br_walk_next(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                                   const uint8_t *wires, size_t n_wires, struct br_field *ret)
{
    uint8_t tag = *p;
    unsigned number = tag >> 3;
    if (__builtin_expect(tag < 0x80 && number && number < n_wires, 1)) {
        unsigned wire = tag & 7;
        ret->at = p;
        ret->number = number;
        ret->wire = (enum br_wire)wire;
        if (__builtin_expect(wires[number] != 0 && wires[number] != wire + 1, 0)) {
            br_walk_fail(walker, "a field has the wrong wire type");
            return NULL;
        }
        if (wire == BR_WIRE_VARINT) {
            if (__builtin_expect(end - p >= 2 && p[1] < 0x80, 1)) {
                ret->value = p[1];
                return p + 2;
            }
            if (__builtin_expect(end - p >= 3 && p[2] < 0x80, 1)) {
                ret->value = (uint64_t)(p[1] & 0x7f) | (uint64_t)p[2] << 7;
                return p + 3;
            }
            const uint8_t *next = br_varint_slow(p + 1, end, &ret->value);
            if (next)
                return next;
        } else if (wire == BR_WIRE_LEN) {
            size_t n;
            const uint8_t *data = br_walk_len(p + 1, end, &n);
            if (__builtin_expect(data != NULL, 1)) {
                ret->data = data;
                ret->value = n;
                return data + n;
            }
        }
    }
    return br_walk_field(walker, p, end, wires, n_wires, ret);
}

/* Reads a varint; varints of one or two bytes are inlined. Returns the position after the
 * varint, or NULL if it is malformed. */
BR_HOT const uint8_t *br_walk_value(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    if (__builtin_expect(end - p >= 2, 1)) {
        if (p[0] < 0x80) {
            *ret = p[0];
            return p + 1;
        }
        if (p[1] < 0x80) {
            *ret = (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
            return p + 2;
        }
    }
    return br_varint(p, end, ret);
}

/* Each of these functions walks one ResourceSpans or ResourceProfiles, and stores the positions
 * that it finds in `part`. */
bool br_walk_resource_spans(struct br_walker *walker, struct br_item *item, struct br_part *part);
bool br_walk_resource_profiles(struct br_walker *walker, struct br_item *item,
                               struct br_part *part);

/* br_walk_dictionary_count only counts the entries of a dictionary; br_walk_dictionary also checks
 * them. */
bool br_walk_dictionary_count(struct br_walker *walker, const uint8_t *p, const uint8_t *end);
bool br_walk_dictionary(struct br_walker *walker, struct br_buf *buf, const uint8_t *p,
                        const uint8_t *end);

/* Records the position of a Resource in its part. If the part already has a Resource, records
 * that the part has several. */
void br_walk_note_resource(struct br_walker *walker, struct br_part *part,
                           const struct br_field *field, const uint8_t *next);

/* Records or checks a reference from an attribute to the string table. */
BR_HOT bool br_walk_reference(struct br_walker *walker, uint64_t index)
{
    walker->n_references++;
    return br_walk_index(walker, index, 5);
}

/* Checks that replacing all references by strings would not exceed the limits for a request of
 * `len` bytes. Must be called after a walk in which all indices were valid. */
bool br_walk_inlined_fits(struct br_walker *walker, const struct br_item *item, size_t len);

/* Returns true if every index that the walk recorded is inside its table. Index 0 is accepted even
 * if the table is empty. */
bool br_walk_indices_fit(const struct br_walker *walker);

/* Copies a message and repairs invalid strings, into a buffer of exactly the resulting size.
 * Returns 0, BR_EINVAL, BR_ETOOBIG if the result exceeds BR_BUF_MAX, or BR_ENOMEM. */
int br_utf8_repair(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                   struct br_pool *pool, struct br_buf **ret, uint32_t *ret_repaired);
