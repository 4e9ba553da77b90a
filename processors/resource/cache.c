/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/resource/cache.h"

#include <string.h>

#include "wire/protobuf.h"

#define WAYS 2u
#define SETS (RESOURCE_CACHE_ENTRIES / WAYS)

__extension__ typedef unsigned __int128 wide;

static uint64_t mix(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Whoever makes entries collide only makes them be computed again, so speed is all that counts. */
static uint64_t hash(uint64_t h, const void *data, size_t len)
{
    const uint8_t *p = data;
    h ^= len * 0x9e3779b97f4a7c15u;
    for (; len > 16; p += 16, len -= 16)
        h = mix(br_load64(p) ^ 0xa0761d6478bd642fu, br_load64(p + 8) ^ h);
    uint64_t a = 0, b = 0;
    if (len >= 8) {
        a = br_load64(p);
        b = br_load64(p + len - 8);
    } else if (len) {
        memcpy(&a, p, len);
    }
    return mix(a ^ 0xe7037ed1a0b428dbu, b ^ h);
}

static bool equal(const struct resource_cached *e, const struct resource_input *in)
{
    return e->buf && e->hash == in->hash && e->in_len == in->len &&
           e->metadata_len == in->metadata_len &&
           (!in->len || memcmp(e->buf->data, in->data, in->len) == 0) &&
           (!in->metadata_len ||
            memcmp(e->buf->data + in->len, in->metadata, in->metadata_len) == 0);
}

/* The first of a set is the one used last. */
static struct resource_cached *set_of(struct resource_cache *c, uint64_t h)
{
    return &c->entries[h % SETS * WAYS];
}

const struct resource_cached *resource_cache_find(struct resource_cache *c,
                                                  struct resource_input *in)
{
    in->hash = hash(0, in->data, in->len);
    if (in->metadata_len)
        in->hash = hash(in->hash, in->metadata, in->metadata_len);
    struct resource_cached *set = set_of(c, in->hash);
    if (equal(&set[0], in))
        return &set[0];
    if (!equal(&set[1], in))
        return NULL;
    struct resource_cached e = set[1];
    set[1] = set[0];
    set[0] = e;
    return &set[0];
}

void resource_cache_put(struct resource_cache *c, const struct resource_input *in,
                        struct br_buf *buf, size_t out_len, bool changed)
{
    struct resource_cached *set = set_of(c, in->hash);
    br_buf_unref(set[1].buf);
    set[1] = set[0];
    set[0] = (struct resource_cached){.hash = in->hash,
                                      .buf = buf,
                                      .in_len = (uint32_t)in->len,
                                      .metadata_len = (uint32_t)in->metadata_len,
                                      .out_len = (uint32_t)out_len,
                                      .changed = changed};
}

void resource_cache_clear(struct resource_cache *c)
{
    for (size_t i = 0; i < RESOURCE_CACHE_ENTRIES; i++) {
        br_buf_unref(c->entries[i].buf);
        c->entries[i] = (struct resource_cached){0};
    }
}
