/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes and decodes the parts that gRPC adds to HTTP/2: message prefixes, status messages and
 * timeouts. The specification is grpc/doc/PROTOCOL-HTTP2.md.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"
#include "wire/request.h"

/* size, in bytes, of the prefix of each message: one byte for the compressed flag, four for the
 * big-endian length */
#define BR_GRPC_PREFIX 5

/* Returns true for a gRPC request over HTTP/2. Returns false for gRPC-Web. */
bool br_grpc_is(const struct br_request *request);

/* Writes the prefix of a message of `len` bytes. */
void br_grpc_prefix(uint8_t out[BR_GRPC_PREFIX], bool compressed, uint32_t len);

/* Percent-encodes a grpc-message. '%' and all characters except printable ASCII are encoded. */
void br_grpc_encode_message(struct br_str *out, const char *text);

/* Decodes a grpc-message into `out` of `size` bytes, terminated and truncated if necessary.
 * Invalid escapes are copied unchanged. */
void br_grpc_decode_message(const char *text, size_t len, char *out, size_t size);

/* Formats a timeout as a grpc-timeout header: at most eight digits and a unit. `out` must have
 * 16 bytes. */
void br_grpc_timeout(uint64_t timeout_ms, char *out);

/* Encodes a google.rpc.Status with code and message, and with a RetryInfo if `delay_ms` is
 * positive. The result is allocated in `arena`; it is NULL if memory is short. The message is
 * cut before the first byte that is not UTF-8, because a protobuf string must be UTF-8. */
uint8_t *br_status_encode(int code, const char *message, uint32_t delay_ms, struct br_arena *arena,
                          size_t *ret_len);

/* Decodes a google.rpc.Status. Copies the message, terminated, to `message`, which has `size` bytes
 * and may be NULL. `*ret_delay_ms` is the delay of the Status's RetryInfo in milliseconds, or -1 if
 * the Status has no RetryInfo. Returns false if the bytes are not a Status. */
bool br_status_decode(const uint8_t *data, size_t len, int *ret_code, char *message, size_t size,
                      int64_t *ret_delay_ms);
