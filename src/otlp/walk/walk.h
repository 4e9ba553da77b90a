/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks once over an export request: validates it, counts its records, and finds the position of
 * each ResourceSpans or ResourceProfiles and of its Resource. Only data requested in the options is
 * decoded.
 *
 * A request is valid if:
 * - every length is inside its parent, and known fields have their wire type;
 * - trace ids and profile ids have 16 bytes and span ids 8, or none;
 * - strings are UTF-8;
 * - messages nest at most max_depth deep;
 * - in profiles, every index is inside its table (0 always is), and every sample has a value or a
 *   timestamp.
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

/* Limits of a request: parts, dictionary entries, and listed spans. Each limit is a fixed number
 * plus one for each so many bytes of the request. They ensure that the memory for a request is
 * at most a few times its size. A request above a limit is rejected; useful data does not reach
 * it. */
#define BR_WALK_PARTS 4096
#define BR_WALK_PART_BYTES 96
#define BR_WALK_ENTRIES 32768
#define BR_WALK_ENTRY_BYTES 12
#define BR_WALK_SPANS 8192
#define BR_WALK_SPAN_BYTES 48

/* Limits for references to strings (key_strindex, string_value_strindex), which are replaced by
 * the strings for backends that may not support them. A request is rejected if this would add
 * more than BR_WALK_INLINE_TIMES its size plus BR_WALK_INLINE_BYTES, or make a part larger than
 * BR_BUF_MAX. */
#define BR_WALK_INLINE_TIMES 4
#define BR_WALK_INLINE_BYTES (1u << 20)

/* Tables of the previous dictionary that were found valid. A table that begins with the same
 * bytes is not checked again as far as they are equal. Requests of senders that repeat their
 * tables are walked several times faster. Keeps references to at most one buffer for each table,
 * of at most BR_WALK_MEMO_MAX bytes. Initialised with zeros; each set of options needs a
 * separate memo. */
#define BR_WALK_MEMO_MAX (256u << 10)
struct br_walk_memo {
    struct {
        struct br_buf *buf;
        const uint8_t *data;
        size_t len;
        uint32_t count;                 /* number of entries */
        uint64_t largest[8];            /* largest index into each other table */
        uint64_t n_references, longest; /* references in attributes; bytes of the longest string */
    } tables[8];
};

/* Releases the buffers. The memo, which may be zeroed, can be used again. */
void br_walk_memo_release(struct br_walk_memo *memo);

struct br_walk_options {
    unsigned max_depth; /* 8 (the depth of the schema) to BR_WALK_DEPTH_MAX; 0: BR_WALK_DEPTH */
    enum br_utf8_policy utf8;
    bool spans; /* fill in item->spans */
    /* number of spans in the request, to allocate their list at once; 0: unknown */
    uint32_t n_spans;
    /* profiles: receives the number of samples by type; NULL: not needed */
    struct br_sample_types *types;
    struct br_walk_memo *memo; /* profiles: memo of one worker for equal options; NULL: none */
};

/* Validates the request of `len` bytes at `data` in `buf` and makes it the parts of `item`. The
 * item is new and empty, and its signal selects the schema. The item takes its own references to
 * `buf`.
 *
 * With BR_UTF8_REPAIR, a request with invalid strings is copied to a new buffer and invalid
 * sequences are replaced by U+FFFD; `*ret_repaired` is the number of strings. A ResourceSpans or
 * ResourceProfiles without content is omitted, and so is an empty dictionary after another one.
 * Adjacent unknown fields become one part.
 *
 * Returns 0 or:
 * - BR_EINVAL: the request is not valid; the error message contains the position and the problem.
 * - BR_ETOOBIG: it nests too deep or exceeds one of the limits above.
 * - BR_ENOMEM.
 *
 * After a failure the item may have parts, and only br_item_free may be called. */
int br_walk(struct br_item *item, struct br_buf *buf, const uint8_t *data, size_t len,
            const struct br_walk_options *options, uint32_t *ret_repaired, struct br_err *err);
