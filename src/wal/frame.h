/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the frames of the write-ahead log. docs/decisions/durable-queue.md describes
 * the format. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define BR_FRAME_HEADER 48u
#define BR_FRAME_PAYLOAD_MAX (512u << 20) /* largest payload of a valid frame in bytes */
#define BR_FRAME_NAME_MAX 1024u           /* maximum length of a queue's name in bytes */

enum br_frame_kind { BR_FRAME_RECORD = 1, BR_FRAME_DONE, BR_FRAME_STATE, BR_FRAME_PADDING };

struct br_frame {
    enum br_frame_kind kind;
    uint8_t signal;    /* RECORD: enum br_signal */
    uint16_t name_len; /* length in bytes of the queue's name, which begins the payload */
    /* RECORD: number of the record; DONE: first number of the range; STATE: number of the queue's
     * next record; PADDING: 1 */
    uint64_t number;
    /* RECORD: receive time in Unix nanoseconds; DONE: last number of the range */
    uint64_t time_ns;
    uint32_t payload_len; /* total length in bytes of the queue's name, metadata and data */
    uint32_t metadata_len;
    uint32_t n_records; /* RECORD: number of spans or samples */
    uint32_t payload_crc;
};

/* Returns the CRC32C of the concatenation of `count` buffers. */
uint32_t br_frame_checksum(const struct iovec *pieces, size_t count);

/* Continues a checksum: `crc` is the CRC32C of the preceding data, or 0 if there is none. Returns
 * the CRC32C of the preceding data and `data`. */
uint32_t br_frame_checksum_more(uint32_t crc, const void *data, size_t len);

/* Writes the header of a frame to `out`. frame->payload_crc must already contain the checksum of
 * the payload. */
void br_frame_encode(const struct br_frame *frame, uint8_t out[BR_FRAME_HEADER]);

/* Decodes a header. Returns false if the checksum of the header is wrong, or if a length, a number
 * or the kind is invalid. */
bool br_frame_decode(const uint8_t header[BR_FRAME_HEADER], struct br_frame *ret);

/* Returns the offset of the first magic number of a frame in `data`, or `len` if `data` contains
 * none. */
size_t br_frame_search(const uint8_t *data, size_t len);
