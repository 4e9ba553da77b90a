/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one pass over an export request: it validates, counts, and finds where each ResourceSpans or
 * ResourceProfiles, and the Resource in it, lies. Nothing is decoded that nobody asked for.
 *
 * Valid means: every length lies inside its parent; known fields have their wire type; trace ids have
 * 16 bytes and span ids 8 (or none); profile ids 16 (or none); strings are UTF-8; messages nest at
 * most max_depth deep; in profiles every index points into its table (0 always does), and every sample
 * has a value or a timestamp. Unknown fields, overlong varints, packed and unpacked scalars,
 * duplicate and orphan dictionary entries are valid. Source: opentelemetry-proto 1.11.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "pipeline/item.h"

enum br_utf8_policy { BR_UTF8_REPAIR, BR_UTF8_REJECT, BR_UTF8_PASS };

#define BR_WALK_DEPTH 64
#define BR_WALK_DEPTH_MAX 1000

/* What a walk remembers of the dictionary before: a table whose bytes are those of the last one is known to
 * be valid. Senders that keep their tables from request to request are walked several times faster. Pins
 * at most one buffer a table, of at most BR_WALK_MEMO_MAX bytes. Zeroed at first; one for each sender of
 * options. */
#define BR_WALK_MEMO_MAX (256u << 10)
struct br_walk_memo {
    struct {
        struct br_buf *buf;
        const uint8_t *data;
        size_t len;
        uint32_t n;          /* entries */
        uint64_t largest[8]; /* indices into other tables */
    } tables[8];
};

/* Lets go of the buffers; usable again. Accepts a zeroed one. */
void br_walk_memo_release(struct br_walk_memo *memo);

struct br_walk_options {
    unsigned max_depth; /* 8, which the schema takes, to BR_WALK_DEPTH_MAX; 0: BR_WALK_DEPTH */
    enum br_utf8_policy utf8;
    bool spans; /* fill item->spans */
    struct br_walk_memo *memo; /* profiles; NULL: remember nothing. One worker's, for equal options */
};

/* Validates the request of `len` bytes at `data`, inside `buf`, and makes it the parts of `item` (new
 * and empty; its signal says which request it is). The item takes references of its own. With
 * BR_UTF8_REPAIR a request with bad strings is rewritten into a new buffer, bad sequences replaced by
 * U+FFFD; `*ret_repaired` is the number of strings. Returns 0; BR_EINVAL when it is not valid (the
 * sentence says where and what); BR_ETOOBIG when it nests too deep, or its list of spans would take
 * more than 64 MiB; or BR_ENOMEM. On failure the
 * item may have parts and is good for nothing but br_item_free. */
int br_walk(struct br_item *item, struct br_buf *buf, const uint8_t *data, size_t len,
            const struct br_walk_options *options, uint32_t *ret_repaired, struct br_err *err);
