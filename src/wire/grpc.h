/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes what gRPC adds to HTTP/2: prefixes of messages, status messages, timeouts.
 * Source: grpc/doc/PROTOCOL-HTTP2.md.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"

#define BR_GRPC_PREFIX 5 /* compressed flag and big-endian length before each message */

/* Writes the prefix of a message of `len` bytes. */
void br_grpc_prefix(uint8_t out[BR_GRPC_PREFIX], bool compressed, uint32_t len);

/* Percent-encodes a grpc-message: everything but printable ASCII, and '%'. */
void br_grpc_encode_message(struct br_str *out, const char *text);

/* Decodes one into `out` of `size` bytes, always terminated; invalid escapes stay as they are. */
void br_grpc_decode_message(const char *text, size_t len, char *out, size_t size);

/* Writes a timeout as grpc-timeout: at most eight digits and a unit. `out` needs 16 bytes. */
void br_grpc_timeout(uint64_t timeout_ms, char *out);

/* Encodes a google.rpc.Status with code, message and, where delay_ms > 0, a RetryInfo. The bytes
 * live in `arena`; NULL when there is no memory. A message that is not UTF-8 ends where it is not:
 * a string of protobuf is nothing else. */
uint8_t *br_status_encode(int code, const char *message, uint32_t delay_ms, struct br_arena *arena,
                          size_t *ret_len);

/* Reads one: `message` (of `size` bytes, terminated; may be NULL), and RetryInfo's delay in
 * milliseconds (-1: none). False when it is no Status. */
bool br_status_decode(const uint8_t *data, size_t len, int *ret_code, char *message, size_t size,
                      int64_t *ret_delay_ms);
