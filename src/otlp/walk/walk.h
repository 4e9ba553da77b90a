/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks once over an export request: validates it, counts its records, and finds the position of
 * each ResourceSpans or ResourceProfiles and of its Resource. Only data requested in the options is
 * decoded.
 *
 * A request is valid if:
 * - every field ends inside the message that contains it, and known fields have the wire type of
 *   the schema;
 * - trace ids and profile ids have 16 bytes, and span ids have 8 bytes; any id may also be empty;
 * - strings are UTF-8;
 * - messages nest at most max_depth deep;
 * - in profiles, every index is 0 or inside its table, and every sample has a value or a timestamp.
 *
 * Unknown fields, overlong varints, packed and unpacked scalars, duplicate and unused dictionary
 * entries are valid. Source: opentelemetry-proto 1.11.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "core/item.h"
#include "otlp/sample_types.h"

enum br_utf8_policy { BR_UTF8_REPAIR, BR_UTF8_REJECT, BR_UTF8_PASS };

#define BR_WALK_DEPTH 128
#define BR_WALK_DEPTH_MAX 1000

/* Limits for the parts (top-level fields), dictionary entries and listed spans of a request. A
 * request may have BR_WALK_PARTS parts, and one more for each BR_WALK_PART_BYTES bytes of its size.
 * The limits for entries and spans are computed in the same way. The limits ensure that the memory
 * for a request is at most a few times its size. A request above a limit is rejected; useful data
 * does not reach the limits. */
#define BR_WALK_PARTS 4096
#define BR_WALK_PART_BYTES 96
#define BR_WALK_ENTRIES 32768
#define BR_WALK_ENTRY_BYTES 12
#define BR_WALK_SPANS 8192
#define BR_WALK_SPAN_BYTES 48

/* Limits for references to strings (key_strindex, string_value_strindex). For backends that may
 * not support references, exporters replace references by the strings. A request is rejected if
 * the replacement would add more than BR_WALK_INLINE_TIMES the request's size plus
 * BR_WALK_INLINE_BYTES, or make a part larger than BR_BUF_MAX. */
#define BR_WALK_INLINE_TIMES 4
#define BR_WALK_INLINE_BYTES (1u << 20)

/* A memo of dictionary tables that a walk has found valid. If the table of the next dictionary
 * begins with the same bytes as the table in the memo, these bytes are not checked again. With a
 * memo, requests of senders that repeat their tables are walked several times faster. For each
 * table, the memo keeps a reference to at most one buffer, which has at most BR_WALK_MEMO_MAX
 * bytes. The caller initialises a memo with zeros, and uses it only with one set of options. */
#define BR_WALK_MEMO_MAX (256u << 10)
struct br_walk_memo {
    struct {
        struct br_buf *buf;
        const uint8_t *data;
        size_t len;
        uint32_t count; /* number of entries of the table */
        /* indexed by the field number of another table: largest index into that table that this
         * table contains */
        uint64_t largest[8];
        /* number of references from attributes to the string table; upper bound of the length, in
         * bytes, of the longest string */
        uint64_t n_references, longest;
    } tables[8];
};

/* Releases the memo's buffers. The memo, which may be zeroed, can be used again. */
void br_walk_memo_release(struct br_walk_memo *memo);

struct br_walk_options {
    /* maximum number of levels of nested messages, from 8 (the depth of the schema) to
     * BR_WALK_DEPTH_MAX; 0: BR_WALK_DEPTH */
    unsigned max_depth;
    enum br_utf8_policy utf8;
    bool spans; /* traces: fill in item->spans */
    /* number of spans in the request, to allocate their list at once; 0: unknown */
    uint32_t n_spans;
    /* profiles: receives the number of samples by type; NULL: not needed */
    struct br_sample_types *types;
    /* profiles: memo that is used by only one worker, and only with the options in this struct;
     * NULL: no memo is used */
    struct br_walk_memo *memo;
};

/* Validates the request of `len` bytes at `data` in `buf` and stores it as the parts of `item`.
 * The item must be new and empty; its signal selects the schema. The item takes its own
 * references to `buf`.
 *
 * With BR_UTF8_REPAIR, a request with invalid strings is copied to a new buffer, and invalid
 * sequences are replaced by U+FFFD. `*ret_repaired` is the number of strings that were repaired.
 * A ResourceSpans or ResourceProfiles without content is omitted, and so is an empty dictionary
 * after another dictionary. Adjacent unknown fields become one part.
 *
 * Returns 0 or:
 * - BR_EINVAL: the request is not valid; the error message contains the position and the problem.
 * - BR_ETOOBIG: the request nests too deep or exceeds a limit such as BR_WALK_PARTS.
 * - BR_ENOMEM.
 *
 * After a failure the item may have parts, and only br_item_free may be called. */
int br_walk(struct br_item *item, struct br_buf *buf, const uint8_t *data, size_t len,
            const struct br_walk_options *options, uint32_t *ret_repaired, struct br_err *err);
