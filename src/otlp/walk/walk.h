/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks once over an export request: it validates, counts, and finds where each ResourceSpans or
 * ResourceProfiles, and the Resource in it, lies. Nothing is decoded that nobody asked for.
 *
 * Valid means: every length lies inside its parent; known fields have their wire type; trace ids
 * have 16 bytes and span ids 8 (or none); profile ids 16 (or none); strings are UTF-8; messages
 * nest at most max_depth deep; in profiles every index points into its table (0 always does), and
 * every sample has a value or a timestamp. Unknown fields, overlong varints, packed and unpacked
 * scalars, duplicate and orphan dictionary entries are valid. Source: opentelemetry-proto 1.11.
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

/* What a request may have, so that what is kept of it takes no more than a few times its bytes:
 * parts, entries of the dictionary, spans where they are listed; each so many, and one more for so
 * many bytes of the request. What has more is refused: nothing that says something is so short. */
#define BR_WALK_PARTS 4096
#define BR_WALK_PART_BYTES 96
#define BR_WALK_ENTRIES 32768
#define BR_WALK_ENTRY_BYTES 12
#define BR_WALK_SPANS 8192
#define BR_WALK_SPAN_BYTES 48

/* References to strings (key_strindex, string_value_strindex) are written inline on their way out
 * to peers that may not know them, whoever does it. A request whose references would add more than
 * so many times its bytes, and so many more, or for which a part would pass BR_BUF_MAX, is refused.
 */
#define BR_WALK_INLINE_TIMES 4
#define BR_WALK_INLINE_BYTES (1u << 20)

/* What a walk remembers of the dictionary before: a table whose bytes are those of the last one is
 * known to be valid. Senders that keep their tables from request to request are walked several
 * times faster. Pins at most one buffer a table, of at most BR_WALK_MEMO_MAX bytes. Zeroed at
 * first; one for each sender of options. */
#define BR_WALK_MEMO_MAX (256u << 10)
struct br_walk_memo {
    struct {
        struct br_buf *buf;
        const uint8_t *data;
        size_t len;
        uint32_t count;                 /* entries */
        uint64_t largest[8];            /* indices into other tables */
        uint64_t n_references, longest; /* to strings, in attributes; bytes of the longest string */
    } tables[8];
};

/* Lets go of the buffers; usable again. Accepts a zeroed one. */
void br_walk_memo_release(struct br_walk_memo *memo);

struct br_walk_options {
    unsigned max_depth; /* 8, which the schema takes, to BR_WALK_DEPTH_MAX; 0: BR_WALK_DEPTH */
    enum br_utf8_policy utf8;
    bool spans;       /* fill item->spans */
    uint32_t n_spans; /* so many are in the request: their list is made in one piece; 0: unknown */
    struct br_sample_types *types; /* profiles: gets the samples by type; NULL: it is not asked */
    struct br_walk_memo
        *memo; /* profiles; NULL: remember nothing. One worker's, for equal options */
};

/* Validates the request of `len` bytes at `data`, inside `buf`, and makes it the parts of `item`
 * (new and empty; its signal says which request it is). The item takes references of its own. With
 * BR_UTF8_REPAIR a request with bad strings is rewritten into a new buffer, bad sequences replaced
 * by U+FFFD; `*ret_repaired` is the number of strings. Returns 0; BR_EINVAL when it is not valid
 * (the sentence says where and what); BR_ETOOBIG when it nests too deep, has more parts, entries or
 * listed spans than it may, or its references would take too much; or BR_ENOMEM. On failure the
 * item may have parts and is good for nothing but br_item_free. A ResourceSpans or ResourceProfiles
 * without content, and such a dictionary behind another, is not kept; neighbouring fields that we
 * do not know are one part. */
int br_walk(struct br_item *item, struct br_buf *buf, const uint8_t *data, size_t len,
            const struct br_walk_options *options, uint32_t *ret_repaired, struct br_err *err);
