/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/blocks.h"

#include <string.h>

#include "base/mem.h"

void br_columns_write(const struct br_columns *columns, struct br_pack *into)
{
    uint32_t count = columns->n_spans;
    uint64_t before = 0;
    br_pack_varint(into, count);
    br_pack_varint(into, columns->n_traces);
    br_pack_bytes(into, columns->traces, sizeof columns->traces[0] * columns->n_traces);
    br_pack_bytes(into, columns->span_id, sizeof columns->span_id[0] * count);
    br_pack_bytes(into, columns->parent_id, sizeof columns->parent_id[0] * count);
    br_pack_bytes(into, columns->kind, count);
    br_pack_bytes(into, columns->status, count);
    for (uint32_t i = 0; i < count; i++)
        br_pack_varint(into, columns->trace[i]);
    for (uint32_t i = 0; i < count; i++)
        br_pack_varint(into, columns->operation[i]);
    for (uint32_t i = 0; i < count; i++) {
        br_pack_signed(into, (int64_t)(columns->start_ns[i] - before));
        before = columns->start_ns[i];
    }
    for (uint32_t i = 0; i < count; i++)
        br_pack_signed(into, (int64_t)(columns->end_ns[i] - columns->start_ns[i]));
}

static bool columns_read_raw(struct br_unpack *unpack, void *into, size_t len)
{
    const uint8_t *data = br_unpack_bytes(unpack, len);
    if (data && len)
        memcpy(into, data, len);
    return data != NULL;
}

static void columns_read_indices(struct br_unpack *unpack, uint32_t *into, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = br_unpack_varint(unpack);
        unpack->failed = unpack->failed || value > UINT32_MAX;
        into[i] = (uint32_t)value;
    }
}

bool br_columns_read(struct br_columns *columns, const uint8_t *data, size_t len)
{
    struct br_unpack unpack = {.p = data, .end = br_mem_end(data, len)};
    uint64_t n_spans = br_unpack_varint(&unpack), n_traces = br_unpack_varint(&unpack);
    uint64_t before = 0;
    if (unpack.failed || n_spans > BR_BLOCK_SPANS || n_traces > n_spans)
        return false;
    uint32_t count = columns->n_spans = (uint32_t)n_spans;
    columns->n_traces = (uint32_t)n_traces;
    if (!columns_read_raw(&unpack, columns->traces, 16 * (size_t)n_traces) ||
        !columns_read_raw(&unpack, columns->span_id, 8 * (size_t)count) ||
        !columns_read_raw(&unpack, columns->parent_id, 8 * (size_t)count) ||
        !columns_read_raw(&unpack, columns->kind, count) ||
        !columns_read_raw(&unpack, columns->status, count))
        return false;
    columns_read_indices(&unpack, columns->trace, count);
    columns_read_indices(&unpack, columns->operation, count);
    for (uint32_t i = 0; i < count; i++) {
        before += (uint64_t)br_unpack_signed(&unpack);
        columns->start_ns[i] = before;
        unpack.failed = unpack.failed || columns->trace[i] >= n_traces;
    }
    for (uint32_t i = 0; i < count; i++)
        columns->end_ns[i] = columns->start_ns[i] + (uint64_t)br_unpack_signed(&unpack);
    return !unpack.failed;
}
