/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/jfr/jfr.h"

#include <string.h>

#include "base/mem.h"
#include "base/sum.h"

#define MAGIC 0x464c5200u /* "FLR\0", the first four bytes of a chunk */
#define NS 1000000000u

static int jfr_chunk_read_header(struct br_jfr_chunk *chunk, const uint8_t *data, size_t len,
                                 struct br_err *err)
{
    struct br_jfr_in in = {.p = data, .end = br_mem_end(data, len)};
    uint64_t magic = br_jfr_fixed(&in, 4);
    uint64_t major = br_jfr_fixed(&in, 2);
    /* Skips the minor version: minor versions of the format only add events. */
    (void)br_jfr_fixed(&in, 2);
    uint64_t size = br_jfr_fixed(&in, 8);
    uint64_t pools = br_jfr_fixed(&in, 8);
    uint64_t metadata = br_jfr_fixed(&in, 8);
    uint64_t times[4];
    for (size_t i = 0; i < BR_COUNT(times); i++)
        times[i] = br_jfr_fixed(&in, 8);
    uint64_t features = br_jfr_fixed(&in, 4);
    if (in.bad)
        return br_err_set(err, BR_EINVAL, "the header of the chunk is truncated");
    if (magic != MAGIC)
        return br_err_set(err, BR_EINVAL, "a chunk must begin with \"FLR\"");
    if (major != 2)
        return br_err_set(err, BR_EINVAL, "the chunk has version %u, only version 2 is supported",
                          (unsigned)major);
    if (size < BR_JFR_HEADER || size > UINT32_MAX)
        return br_err_set(err, BR_EINVAL,
                          "the chunk is incomplete: its header contains a size of %llu bytes",
                          (unsigned long long)size);
    if (size > len)
        return br_err_set(err, BR_EINVAL,
                          "the chunk is truncated: it has %llu bytes, only %zu were received",
                          (unsigned long long)size, len);
    if (pools < BR_JFR_HEADER || pools >= size || metadata < BR_JFR_HEADER || metadata >= size)
        return br_err_set(err, BR_EINVAL, "constant pools or metadata are outside the chunk");
    chunk->data = data;
    chunk->size = (uint32_t)size;
    chunk->pools_at = (uint32_t)pools;
    chunk->metadata_at = (uint32_t)metadata;
    chunk->start_ns = times[0];
    chunk->duration_ns = times[1];
    chunk->start_ticks = times[2];
    chunk->ticks_per_second = times[3] ? times[3] : NS;
    chunk->packed = features & 1;
    return 0;
}

bool br_jfr_is_torn(const uint8_t *data, size_t len)
{
    static const uint8_t magic[] = {'F', 'L', 'R', 0};
    struct br_jfr_in in = {.p = data, .end = br_mem_end(data, len)};
    if (memcmp(data, magic, len < sizeof magic ? len : sizeof magic) != 0)
        return false;
    br_jfr_skip(&in, 8);
    uint64_t size = br_jfr_fixed(&in, 8);
    return len < BR_JFR_HEADER || size < BR_JFR_HEADER || size > len;
}

int br_jfr_chunk_open(struct br_jfr_chunk *chunk, const uint8_t *data, size_t len,
                      struct br_err *err)
{
    for (unsigned i = 0; i < BR_JFR_N_TYPES; i++)
        br_jfr_ids_clear(&chunk->pools[i]);
    int rc = jfr_chunk_read_header(chunk, data, len, err);
    if (!rc)
        rc = br_jfr_metadata(chunk, err);
    return rc ? rc : br_jfr_pools(chunk, err);
}

void br_jfr_chunk_release(struct br_jfr_chunk *chunk)
{
    for (unsigned i = 0; i < BR_JFR_N_TYPES; i++)
        br_jfr_ids_release(&chunk->pools[i]);
    br_jfr_ids_release(&chunk->class_of_id);
    br_free(chunk->classes);
    br_free(chunk->fields);
    *chunk = (struct br_jfr_chunk){0};
}

/* Converts ticks to nanoseconds. Results above UINT64_MAX become UINT64_MAX. */
static uint64_t jfr_chunk_scale(uint64_t ticks, uint64_t per)
{
    if (per == NS)
        return ticks;
    br_jfr_u128 ns = (br_jfr_u128)ticks * NS / per;
    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

uint64_t br_jfr_time(const struct br_jfr_chunk *chunk, uint64_t ticks)
{
    if (ticks < chunk->start_ticks) {
        uint64_t before = jfr_chunk_scale(chunk->start_ticks - ticks, chunk->ticks_per_second);
        return before < chunk->start_ns ? chunk->start_ns - before : 0;
    }
    uint64_t after = jfr_chunk_scale(ticks - chunk->start_ticks, chunk->ticks_per_second);
    return br_sum_unsigned(chunk->start_ns, after);
}

int64_t br_jfr_ticks_ns(const struct br_jfr_chunk *chunk, uint64_t ticks)
{
    uint64_t ns = jfr_chunk_scale(ticks, chunk->ticks_per_second);
    return ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}
