/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of a segment of the write-ahead log, as docs/decisions/durable-queue.md describes
 * them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define BR_FRAME_HEADER 48u
#define BR_FRAME_PAYLOAD_MAX                                                                       \
    (512u << 20)                /* largest payload in bytes; longer frames are invalid             \
                                 */
#define BR_FRAME_NAME_MAX 1024u /* longest name of a queue in bytes */

enum br_frame_kind { BR_FRAME_RECORD = 1, BR_FRAME_DONE, BR_FRAME_STATE, BR_FRAME_PADDING };

struct br_frame {
    enum br_frame_kind kind;
    uint8_t signal;       /* RECORD: enum br_signal */
    uint16_t name_len;    /* length of the queue's name at the start of the payload */
    uint64_t number;      /* RECORD: its number; DONE: the first number; STATE: the next number;
                          PADDING: 1 */
    uint64_t time_ns;     /* RECORD: Unix nanoseconds of its receipt; DONE: the last number */
    uint32_t payload_len; /* length of name, metadata and data together */
    uint32_t metadata_len;
    uint32_t n_records; /* RECORD: number of spans or samples */
    uint32_t payload_crc;
};

/* Returns the CRC32C of `count` pieces of memory, one after the other. */
uint32_t br_frame_checksum(const struct iovec *pieces, size_t count);

/* Returns the CRC32C of the data whose checksum is `crc` (0: nothing), followed by `data`. */
uint32_t br_frame_checksum_more(uint32_t crc, const void *data, size_t len);

/* Writes the header of a frame whose payload has the checksum frame->payload_crc. */
void br_frame_encode(const struct br_frame *frame, uint8_t out[BR_FRAME_HEADER]);

/* Reads a header. Returns false if its checksum is wrong, or if a length, a number or the kind is
 * invalid. */
bool br_frame_decode(const uint8_t header[BR_FRAME_HEADER], struct br_frame *ret);

/* Returns the number of bytes before the next position in `data` where a frame may begin; `len` if
 * there is none. */
size_t br_frame_search(const uint8_t *data, size_t len);
