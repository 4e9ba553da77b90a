/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks properties of export requests that the walk accepts. This is used by the fuzz targets, and
 * by the unit test that replays their corpora. Aborts if a property does not hold.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/host.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/divide/divide.h"
#include "otlp/walk/walk.h"

static inline void walk_fuzz_require(bool ok)
{
    if (!ok)
        abort();
}

static inline uint64_t walk_fuzz_zero(struct br_host *h)
{
    (void)h;
    return 0;
}

static inline struct br_item *walk_fuzz_walk(struct br_host *h, enum br_signal signal,
                                             const uint8_t *data, size_t len,
                                             enum br_utf8_policy utf8, uint32_t *ret_repaired)
{
    const struct br_walk_options options = {.utf8 = utf8, .spans = signal == BR_TRACES};
    struct br_buf *buf = br_buf_new(h->pool, len);
    struct br_item *item = br_item_new(h, signal);
    struct br_err err = {0};
    walk_fuzz_require(buf && item);
    if (len)
        memcpy(buf->data, data, len);
    buf->len = (uint32_t)len;
    int rc = br_walk(item, buf, buf->data, len, &options, ret_repaired, &err);
    br_buf_unref(buf);
    if (rc == 0)
        return item;
    walk_fuzz_require(err.code == rc && err.text[0]);
    br_item_free(item);
    return NULL;
}

/* Returns the bytes of the item in one buffer, which the caller owns. */
static inline struct br_buf *walk_fuzz_write(const struct br_item *item, const uint8_t **ret)
{
    struct br_rope rope = {0};
    walk_fuzz_require(br_item_write(item, &rope) == 0 && rope.len == item->size);
    struct br_buf *flat = br_rope_flat(&rope, item->host->pool, ret);
    walk_fuzz_require(flat != NULL);
    br_rope_release(&rope);
    return flat;
}

/* The output must be a valid request with the same number of records. */
static inline void walk_fuzz_again(const struct br_item *item)
{
    const uint8_t *data;
    uint32_t repaired;
    struct br_buf *flat = walk_fuzz_write(item, &data);
    struct br_item *again =
        walk_fuzz_walk(item->host, item->signal, data, item->size, BR_UTF8_REJECT, &repaired);
    walk_fuzz_require(again && again->n_records == item->n_records);
    br_item_free(again);
    br_buf_unref(flat);
}

struct walk_fuzz_pieces {
    uint64_t n_records;
    uint32_t max_items;
};

static inline int walk_fuzz_piece(struct br_item *piece, void *arg)
{
    struct walk_fuzz_pieces *p = arg;
    p->n_records += piece->n_records;
    walk_fuzz_require(!p->max_items || piece->n_records <= p->max_items);
    walk_fuzz_again(piece);
    br_item_free(piece);
    return 0;
}

static inline void walk_fuzz_split(const struct br_item *item, uint32_t max_items, size_t max_bytes)
{
    struct walk_fuzz_pieces p = {.max_items = max_items};
    int rc = item->signal == BR_TRACES
                 ? br_traces_split(item, max_items, max_bytes, walk_fuzz_piece, &p)
                 : br_profiles_split(item, max_items, max_bytes, walk_fuzz_piece, &p);
    walk_fuzz_require(rc == 0 && p.n_records == item->n_records);
}

static inline uint32_t walk_fuzz_trace_bucket(void *arg, const uint8_t trace_id[16])
{
    (void)arg;
    return trace_id[15] % 8u;
}

static inline uint32_t walk_fuzz_key_bucket(void *arg, const uint8_t *key, size_t len)
{
    (void)arg;
    return len ? (key[0] + key[len - 1]) % 8u : 0;
}

static inline int walk_fuzz_group(struct br_item *group, uint32_t bucket, void *arg)
{
    walk_fuzz_require(bucket < 8 && !br_item_has_references(group));
    return walk_fuzz_piece(group, arg);
}

/* The groups of a divided request must have all of its records. */
static inline void walk_fuzz_divide(const struct br_item *item, enum br_route route)
{
    struct walk_fuzz_pieces p = {0};
    const struct br_routing routing = {.route = route,
                                       .max_buckets = 8,
                                       .of_trace = walk_fuzz_trace_bucket,
                                       .of_key = walk_fuzz_key_bucket};
    int rc = br_item_divide(item, &routing, walk_fuzz_group, &p);
    walk_fuzz_require(rc == 0 && p.n_records == item->n_records);
}

/* A request that is merged with itself must have twice the number of records. */
static inline void walk_fuzz_merge(const struct br_item *item)
{
    struct br_merge *m = br_merge_new(item->host, 64u << 20);
    struct br_item *into = br_item_new(item->host, BR_PROFILES);
    walk_fuzz_require(m && into);
    for (int i = 0; i < 2; i++)
        walk_fuzz_require(br_merge_add(m, item) == 0);
    walk_fuzz_require(br_merge_records(m) == 2 * item->n_records);
    size_t bound = br_merge_size(m);
    walk_fuzz_require(br_merge_take(m, into) == 0 && into->n_records == 2 * item->n_records &&
                      into->size <= bound);
    walk_fuzz_again(into);
    walk_fuzz_require(!br_item_has_references(into));
    br_item_free(into);
    br_merge_free(m);
}

static inline void walk_fuzz(enum br_signal signal, const uint8_t *data, size_t len)
{
    static const struct br_host_ops ops = {.mono_ms = walk_fuzz_zero, .unix_ns = walk_fuzz_zero};
    struct br_host host;
    struct br_pool *pool = br_pool_new(0);
    walk_fuzz_require(pool && br_host_init(&host, &ops, pool) == 0);
    uint32_t repaired = 0;
    struct br_item *item = walk_fuzz_walk(&host, signal, data, len, BR_UTF8_REPAIR, &repaired);
    if (item) {
        const uint8_t *out;
        struct br_buf *flat = walk_fuzz_write(item, &out);
        /* A resource with two Resource fields is merged and may change its size; all other bytes
         * must stay unchanged. */
        if (!repaired && item->size == len)
            walk_fuzz_require(len == 0 || memcmp(out, data, len) == 0);
        br_buf_unref(flat);
        walk_fuzz_again(item);
        walk_fuzz_split(item, 1, 0);
        walk_fuzz_split(item, 0, 64);
        walk_fuzz_divide(item, BR_ROUTE_TRACE);
        walk_fuzz_divide(item, BR_ROUTE_SERVICE);
        if (signal == BR_PROFILES)
            walk_fuzz_merge(item);
        if (signal == BR_PROFILES && br_item_has_references(item)) {
            walk_fuzz_require(br_item_inline_references(item) == 0);
            walk_fuzz_require(!br_item_has_references(item));
            walk_fuzz_again(item);
        }
        br_item_free(item);
    }
    walk_fuzz_require(br_pool_live(pool) == 0);
    br_host_release(&host);
    br_pool_free(pool);
}
