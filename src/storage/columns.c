/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/blocks.h"

#include <string.h>

#include "base/mem.h"
#include "wire/protobuf.h"

/* --- Ids and kinds --------------------------------------------------------------------------- */

void br_columns_write(const struct br_columns *columns, struct br_pack *into)
{
    uint32_t count = columns->n_spans;
    br_pack_varint(into, count);
    br_pack_varint(into, columns->n_traces);
    br_pack_bytes(into, columns->traces, sizeof columns->traces[0] * columns->n_traces);
    br_pack_bytes(into, columns->span_id, sizeof columns->span_id[0] * count);
    br_pack_bytes(into, columns->parent_id, sizeof columns->parent_id[0] * count);
    br_pack_bytes(into, columns->kind, count);
    for (uint32_t i = 0; i < count; i++)
        br_pack_varint(into, columns->trace[i]);
}

static void columns_read_raw(struct br_unpack *unpack, void *into, size_t len)
{
    const uint8_t *data = br_unpack_bytes(unpack, len);
    if (data && len)
        memcpy(into, data, len);
}

static void columns_read_indices(struct br_unpack *unpack, uint32_t *into, uint32_t count,
                                 uint32_t max)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = br_unpack_varint(unpack);
        unpack->failed = unpack->failed || value > max;
        into[i] = (uint32_t)value;
    }
}

static void columns_read_times(struct br_columns *columns, struct br_unpack *unpack)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < columns->n_spans; i++) {
        before += (uint64_t)br_unpack_signed(unpack);
        columns->start_ns[i] = before;
    }
    for (uint32_t i = 0; i < columns->n_spans; i++)
        columns->end_ns[i] = columns->start_ns[i] + (uint64_t)br_unpack_signed(unpack);
}

bool br_columns_read(struct br_columns *columns, const uint8_t *data, size_t len, bool with_facts)
{
    struct br_unpack unpack = {.p = data, .end = br_mem_end(data, len)};
    uint64_t n_spans = br_unpack_varint(&unpack), n_traces = br_unpack_varint(&unpack);
    if (unpack.failed || n_spans > BR_BLOCK_SPANS || n_traces > n_spans)
        return false;
    uint32_t count = columns->n_spans = (uint32_t)n_spans;
    columns->n_traces = (uint32_t)n_traces;
    columns_read_raw(&unpack, columns->traces, 16 * (size_t)n_traces);
    columns_read_raw(&unpack, columns->span_id, 8 * (size_t)count);
    columns_read_raw(&unpack, columns->parent_id, 8 * (size_t)count);
    columns_read_raw(&unpack, columns->kind, count);
    if (with_facts)
        columns_read_raw(&unpack, columns->status, count);
    columns_read_indices(&unpack, columns->trace, count, BR_BLOCK_SPANS);
    if (with_facts) {
        columns_read_indices(&unpack, columns->operation, count, BR_OPERATIONS_MAX);
        columns_read_times(columns, &unpack);
    }
    for (uint32_t i = 0; i < count; i++) {
        columns->root[i] = !columns->parent_id[i];
        unpack.failed = unpack.failed || columns->trace[i] >= n_traces;
    }
    return !unpack.failed;
}

/* --- Facts ----------------------------------------------------------------------------------- */

/*
 * The facts begin with the number of spans, the lowest number of an operation, and the earliest
 * start, as varints. The columns follow: each span's operation minus the lowest one, its end minus
 * its start, and its start minus the earliest start. Each of these columns begins with the number
 * of bytes of a value (1, 2, 4 or 8). The last column has a byte for each span: the status, times
 * two, plus one for a root.
 */

static uint8_t columns_width(const uint64_t *values, uint32_t count)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < count; i++)
        any |= values[i];
    uint8_t width = 1;
    while (width < 8 && any >> (8 * width))
        width *= 2;
    return width;
}

/* Writes the width of a column, and the low bytes of each value, the lowest byte first. */
static void columns_write_fixed(struct br_pack *into, const uint64_t *values, uint32_t count)
{
    const uint8_t width = columns_width(values, count);
    br_pack_bytes(into, &width, 1);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t bytes[8];
        for (unsigned k = 0; k < width; k++)
            bytes[k] = (uint8_t)(values[i] >> (8 * k));
        br_pack_bytes(into, bytes, width);
    }
}

void br_columns_write_facts(const struct br_columns *columns, struct br_pack *into)
{
    uint64_t values[BR_BLOCK_SPANS] = {0}, first_ns = UINT64_MAX;
    uint32_t count = columns->n_spans, lowest = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        lowest = columns->operation[i] < lowest ? columns->operation[i] : lowest;
        first_ns = columns->start_ns[i] < first_ns ? columns->start_ns[i] : first_ns;
    }
    br_pack_varint(into, count);
    br_pack_varint(into, lowest);
    br_pack_varint(into, first_ns);
    for (uint32_t i = 0; i < count; i++)
        values[i] = columns->operation[i] - lowest;
    columns_write_fixed(into, values, count);
    for (uint32_t i = 0; i < count; i++)
        values[i] = columns->end_ns[i] - columns->start_ns[i];
    columns_write_fixed(into, values, count);
    for (uint32_t i = 0; i < count; i++)
        values[i] = columns->start_ns[i] - first_ns;
    columns_write_fixed(into, values, count);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t flags = (uint8_t)(columns->status[i] << 1 | columns->root[i]);
        br_pack_bytes(into, &flags, 1);
    }
}

/* Reads a column of fixed width, which the first byte contains. Returns false if the data is
 * malformed. */
static bool columns_read_fixed(struct br_unpack *unpack, uint64_t *into, uint32_t count)
{
    const uint8_t *width = br_unpack_bytes(unpack, 1);
    const uint8_t *data = width ? br_unpack_bytes(unpack, (size_t)count * *width) : NULL;
    if (!data)
        return false;
    switch (*width) {
    case 1:
        for (uint32_t i = 0; i < count; i++)
            into[i] = data[i];
        return true;
    case 2:
        for (uint32_t i = 0; i < count; i++)
            into[i] = (uint64_t)data[2 * (size_t)i] | (uint64_t)data[2 * (size_t)i + 1] << 8;
        return true;
    case 4:
        for (uint32_t i = 0; i < count; i++)
            into[i] = br_load32(data + 4 * (size_t)i);
        return true;
    case 8:
        for (uint32_t i = 0; i < count; i++)
            into[i] = br_load64(data + 8 * (size_t)i);
        return true;
    default:
        return false;
    }
}

bool br_columns_read_facts(struct br_columns *columns, const uint8_t *data, size_t len)
{
    struct br_unpack unpack = {.p = data, .end = br_mem_end(data, len)};
    uint64_t operations[BR_BLOCK_SPANS];
    uint64_t n_spans = br_unpack_varint(&unpack), lowest = br_unpack_varint(&unpack);
    uint64_t first_ns = br_unpack_varint(&unpack);
    if (unpack.failed || n_spans > BR_BLOCK_SPANS || lowest > BR_OPERATIONS_MAX)
        return false;
    uint32_t count = columns->n_spans = (uint32_t)n_spans;
    if (!columns_read_fixed(&unpack, operations, count) ||
        !columns_read_fixed(&unpack, columns->end_ns, count) ||
        !columns_read_fixed(&unpack, columns->start_ns, count))
        return false;
    const uint8_t *flags = br_unpack_bytes(&unpack, count);
    for (uint32_t i = 0; flags && i < count; i++) {
        if (operations[i] > BR_OPERATIONS_MAX - lowest)
            return false;
        columns->operation[i] = (uint32_t)(lowest + operations[i]);
        columns->start_ns[i] += first_ns;
        columns->end_ns[i] += columns->start_ns[i];
        columns->status[i] = flags[i] >> 1;
        columns->root[i] = flags[i] & 1;
    }
    return flags != NULL;
}
