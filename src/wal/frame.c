/* SPDX-License-Identifier: Apache-2.0 */
#include "wal/frame.h"

#include <isa-l/crc.h>
#include <string.h>

enum {
    AT_MAGIC = 0,
    AT_HEADER_CRC = 4,
    AT_PAYLOAD_CRC = 8,
    AT_KIND = 12,
    AT_SIGNAL = 13,
    AT_NAME_LEN = 14,
    AT_NUMBER = 16,
    AT_TIME = 24,
    AT_PAYLOAD_LEN = 32,
    AT_METADATA_LEN = 36,
    AT_N_RECORDS = 40,
};

/* A log that stores one record per nanosecond needs 292 years to reach this number. */
#define NUMBER_MAX ((uint64_t)INT64_MAX)

static const uint8_t magic[4] = {'B', 'F', 'R', 'M'};

static uint32_t frame_crc(const uint8_t *data, size_t len, uint32_t before)
{
    /* The library takes the length as an int, so long data is passed in parts. The library's
     * function does not modify the data, although its parameter is not `const`. */
    enum { AT_ONCE = 1 << 30 };
    for (; len > AT_ONCE; data += AT_ONCE, len -= AT_ONCE)
        before = crc32_iscsi((uint8_t *)(uintptr_t)data, AT_ONCE, before);
    return crc32_iscsi((uint8_t *)(uintptr_t)data, (int)len, before);
}

uint32_t br_frame_checksum(const struct iovec *pieces, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++)
        crc = frame_crc(pieces[i].iov_base, pieces[i].iov_len, crc);
    return ~crc;
}

uint32_t br_frame_checksum_more(uint32_t crc, const void *data, size_t len)
{
    return ~frame_crc(data, len, ~crc);
}

static void frame_put(uint8_t *out, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t frame_get(const uint8_t *data, unsigned size)
{
    uint64_t value = 0;
    for (unsigned i = size; i-- > 0;)
        value = value << 8 | data[i];
    return value;
}

static uint32_t frame_header_crc(const uint8_t header[BR_FRAME_HEADER])
{
    return ~frame_crc(header + AT_PAYLOAD_CRC, BR_FRAME_HEADER - AT_PAYLOAD_CRC, UINT32_MAX);
}

void br_frame_encode(const struct br_frame *frame, uint8_t out[BR_FRAME_HEADER])
{
    memset(out, 0, BR_FRAME_HEADER);
    memcpy(out + AT_MAGIC, magic, sizeof magic);
    frame_put(out + AT_PAYLOAD_CRC, frame->payload_crc, 4);
    out[AT_KIND] = (uint8_t)frame->kind;
    out[AT_SIGNAL] = frame->signal;
    frame_put(out + AT_NAME_LEN, frame->name_len, 2);
    frame_put(out + AT_NUMBER, frame->number, 8);
    frame_put(out + AT_TIME, frame->time_ns, 8);
    frame_put(out + AT_PAYLOAD_LEN, frame->payload_len, 4);
    frame_put(out + AT_METADATA_LEN, frame->metadata_len, 4);
    frame_put(out + AT_N_RECORDS, frame->n_records, 4);
    frame_put(out + AT_HEADER_CRC, frame_header_crc(out), 4);
}

bool br_frame_decode(const uint8_t header[BR_FRAME_HEADER], struct br_frame *ret)
{
    if (memcmp(header, magic, sizeof magic) != 0 ||
        frame_get(header + AT_HEADER_CRC, 4) != frame_header_crc(header))
        return false;
    *ret = (struct br_frame){
        .kind = (enum br_frame_kind)header[AT_KIND],
        .signal = header[AT_SIGNAL],
        .name_len = (uint16_t)frame_get(header + AT_NAME_LEN, 2),
        .number = frame_get(header + AT_NUMBER, 8),
        .time_ns = frame_get(header + AT_TIME, 8),
        .payload_len = (uint32_t)frame_get(header + AT_PAYLOAD_LEN, 4),
        .metadata_len = (uint32_t)frame_get(header + AT_METADATA_LEN, 4),
        .n_records = (uint32_t)frame_get(header + AT_N_RECORDS, 4),
        .payload_crc = (uint32_t)frame_get(header + AT_PAYLOAD_CRC, 4),
    };
    bool known = ret->kind >= BR_FRAME_RECORD && ret->kind <= BR_FRAME_PADDING;
    bool numbered = ret->number >= 1 && ret->number <= NUMBER_MAX;
    uint64_t least = (uint64_t)ret->name_len + ret->metadata_len;
    bool fits = ret->payload_len <= BR_FRAME_PAYLOAD_MAX && least <= ret->payload_len;
    return known && numbered && fits && ret->name_len <= BR_FRAME_NAME_MAX;
}

size_t br_frame_search(const uint8_t *data, size_t len)
{
    const uint8_t *found = memmem(data, len, magic, sizeof magic);
    return found ? (size_t)(found - data) : len;
}
