/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/blocks.h"

#include <string.h>

#include "base/mem.h"
#include "wire/protobuf.h"

#define BITS_EACH 10u
#define PROBES 7u
#define FIRST_SLOTS 1024u

/* --- Distinct hashes ------------------------------------------------------------------------- */

void br_hashes_release(struct br_hashes *hashes)
{
    br_free(hashes->slots);
    *hashes = (struct br_hashes){0};
}

void br_hashes_clear(struct br_hashes *hashes)
{
    if (hashes->count)
        memset(hashes->slots, 0, hashes->n_slots * sizeof *hashes->slots);
    hashes->count = 0;
    hashes->failed = false;
}

static bool hashes_put(uint64_t *slots, size_t n_slots, uint64_t hash)
{
    size_t at = (size_t)hash & (n_slots - 1);
    for (; slots[at]; at = (at + 1) & (n_slots - 1))
        if (slots[at] == hash)
            return false;
    slots[at] = hash;
    return true;
}

static bool hashes_grow(struct br_hashes *hashes)
{
    size_t n_slots = hashes->n_slots ? 2 * hashes->n_slots : FIRST_SLOTS;
    uint64_t *slots = br_calloc(n_slots, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < hashes->n_slots; i++)
        if (hashes->slots[i])
            (void)hashes_put(slots, n_slots, hashes->slots[i]);
    br_free(hashes->slots);
    hashes->slots = slots;
    hashes->n_slots = n_slots;
    return true;
}

bool br_hashes_add(struct br_hashes *hashes, uint64_t hash)
{
    hash += !hash;
    if (2 * hashes->count >= hashes->n_slots && !hashes_grow(hashes)) {
        hashes->failed = true;
        return false;
    }
    bool is_new = hashes_put(hashes->slots, hashes->n_slots, hash);
    hashes->count += is_new;
    return is_new;
}

/* --- The filter ------------------------------------------------------------------------------ */

/* Returns the bit position of one probe. All probes are derived from the two halves of one hash
 * (Kirsch, Mitzenmacher 2006). */
static size_t bloom_place(uint64_t hash, unsigned probe, size_t n_bits)
{
    uint32_t first = (uint32_t)hash, step = (uint32_t)(hash >> 32) | 1;
    return (size_t)((uint64_t)(uint32_t)(first + probe * step) * n_bits >> 32);
}

void br_bloom_write(const struct br_hashes *hashes, struct br_pack *into)
{
    size_t len = (hashes->count * BITS_EACH + 63) / 64 * 8, at = into->len;
    static const uint8_t zeros[64];
    for (size_t i = 0; i < len; i += 8)
        br_pack_bytes(into, zeros, 8);
    if (into->failed)
        return;
    for (size_t i = 0; i < hashes->n_slots; i++)
        for (unsigned k = 0; hashes->slots[i] && k < PROBES; k++) {
            size_t bit = bloom_place(hashes->slots[i], k, 8 * len);
            into->data[at + bit / 8] |= (uint8_t)(1u << bit % 8);
        }
}

bool br_bloom_has(const uint8_t *filter, size_t len, uint64_t hash)
{
    hash += !hash;
    for (unsigned k = 0; len && k < PROBES; k++) {
        size_t bit = bloom_place(hash, k, 8 * len);
        if (!(filter[bit / 8] >> bit % 8 & 1))
            return false;
    }
    return len != 0;
}
