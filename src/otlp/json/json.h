/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts between OTLP's JSON and protobuf, in both directions, without an intermediate struct.
 * The fields are described by protobuf-c's descriptors. The format is defined by
 * opentelemetry-proto docs/specification.md, "JSON Protobuf Encoding".
 *
 * - Ids are written in hex (upper or lower case is accepted when read); other bytes are written in
 *   base64.
 * - Enums are written as numbers (names are accepted when read).
 * - 64-bit integers are written as strings (numbers are accepted when read).
 * - Field names are written in lowerCamelCase (names as in the schema are accepted when read, as in
 *   the Collector).
 * - When JSON is read, unknown field names are ignored, and null means that the field is absent.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "core/item.h"

#define BR_JSON_DEPTH_MAX                                                                          \
    128 /* maximum number of levels of nested messages that are decoded or encoded */

/* Returns the descriptor of a signal's export request. */
const ProtobufCMessageDescriptor *br_otlp_request(enum br_signal signal);

/* Decodes JSON text into protobuf bytes, with the fields in the order of the schema. The result is
 * a new buffer owned by the caller. If a member's name is repeated, the last value replaces the
 * earlier ones, which must be valid too. Unknown members must be valid JSON and are skipped.
 *
 * Returns 0 or:
 * - BR_EINVAL: the text is not JSON or does not match the schema.
 * - BR_EINVAL: the text nests more than `max_depth` or BR_JSON_DEPTH_MAX messages, or more than
 *   twice as many brackets.
 * - BR_ETOOBIG: the result would exceed `max` bytes or the memory limit below.
 * - BR_ENOMEM.
 *
 * The error message contains the path: "resourceSpans[0].scopeSpans[2].spans[0].traceId: must be
 * ...". The first error is reported, but a syntax error has priority.
 *
 * Decoding makes one pass over the text and one over its notes (otlp/json/internal.h), so the time
 * is linear in `len` for any input. Decoding uses at most 2 * `len` + 1 MiB of memory including the
 * result, all from `pool`.
 *
 * The result is smaller than the text, except for numbers that are shorter as digits: "0" as a
 * fixed64 needs 8 bytes, "-1" needs 10. Notes and result together are therefore limited to 1.6 *
 * `len` + 512 KiB, which no realistic request reaches.
 *
 * Decoding uses no state other than its arguments, so it may run on any thread, if no other thread
 * uses `pool` at the same time. */
int br_json_decode(const ProtobufCMessageDescriptor *desc, const char *text, size_t len,
                   unsigned max_depth, size_t max, struct br_pool *pool, struct br_buf **ret,
                   struct br_err *err);

/* Appends the JSON of a protobuf message, on one line, with the fields in the order of the schema.
 * Repeated occurrences of a field are merged as protobuf requires: lists are concatenated, messages
 * are merged, and the last value of a scalar counts. Unknown fields and zeros are omitted. The
 * content of a google.protobuf.Any is printed only if it is a google.rpc.RetryInfo.
 *
 * Returns 0, BR_EINVAL if the bytes are malformed, BR_ETOOBIG if messages nest too deep, or
 * BR_ENOMEM (also if `out` is full). */
int br_json_encode(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                   struct br_str *out);

/* Appends standard ProtoJSON, without OTLP's exceptions: ids are base64, and an enum value is
 * written as its name if it has one. Tempo's API uses this format. Returns the same errors as
 * br_json_encode. */
int br_json_encode_standard(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                            struct br_str *out);
