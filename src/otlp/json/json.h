/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates between OTLP's JSON (opentelemetry-proto docs/specification.md, "JSON Protobuf
 * Encoding") and protobuf, both ways, by protobuf-c's descriptors. There is no struct in between.
 * Ids are hex (any case when read), other bytes base64, enums numbers (names are accepted when
 * read), 64-bit integers strings (numbers are accepted when read), names lowerCamelCase (the
 * schema's are accepted when read, as by the Collector), unknown names ignored, null means absent.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "core/item.h"

#define BR_JSON_DEPTH_MAX 128 /* messages inside one another, both ways */

/* Returns the descriptor of a signal's export request. */
const ProtobufCMessageDescriptor *br_otlp_request(enum br_signal signal);

/* Reads JSON text into wire bytes in the schema's order, in a new buffer that the caller owns. Of a
 * name that comes twice the last counts, whole (nothing is merged), and what came before it has to
 * fit the schema, too. What the schema does not know is checked as JSON and passed.
 *
 * Returns 0; BR_EINVAL when it is not JSON or does not fit the schema (the sentence says where:
 * "resourceSpans[0].scopeSpans[2].spans[0].traceId: must be ..."; of several the first, but that it
 * is no JSON goes before all), nests deeper than `max_depth` messages (or BR_JSON_DEPTH_MAX), or
 * brackets nest deeper than twice that; BR_ETOOBIG when the result would be over `max` bytes, or
 * would not stay within the memory below; or BR_ENOMEM.
 *
 * It is one pass over the text and one over what was found (otlp/json/notes.h), so its work is
 * linear in `len` whatever the shape. It takes at most 2 * `len` + 1 MiB of memory, the result
 * included, all of it from the pool. A result is smaller than its text but for lists of numbers
 * that are shorter in digits than on the wire ("0" as a fixed64 takes 8 bytes, "-1" takes 10); of
 * these, notes and result together may take 1.6 * `len` + 512 KiB, which no request reaches that
 * measures anything.
 *
 * Knows nothing but its arguments: it may run on any thread that nobody else uses the pool from. */
int br_json_decode(const ProtobufCMessageDescriptor *desc, const char *text, size_t len,
                   unsigned max_depth, size_t max, struct br_pool *pool, struct br_buf **ret,
                   struct br_err *err);

/* Appends the JSON of wire bytes, in one line, in the schema's order. What lies apart on the wire
 * is merged as protobuf says: lists are joined, messages merged, of scalars the last counts;
 * unknown fields are left out, zeros too. A google.protobuf.Any keeps its content only where it is
 * a google.rpc.RetryInfo. Returns 0, BR_EINVAL when the bytes are no such message, BR_ETOOBIG (too
 * deep) or BR_ENOMEM (also when `out` is full). */
int br_json_encode(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                   struct br_str *out);

/* Writes the same as ProtoJSON has it, without OTLP's exceptions: ids are base64, enums names, as
 * far as they have one. Tempo answers so. */
int br_json_encode_standard(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                            struct br_str *out);
