/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP's JSON mapping (opentelemetry-proto docs/specification.md, "JSON Protobuf Encoding") both
 * ways, driven by protobuf-c's descriptors: JSON becomes wire bytes and wire bytes become JSON,
 * without a struct in between. Ids are hex (any case when read), other bytes base64, enums numbers
 * (names are accepted when read), 64-bit integers strings (numbers are accepted when read), names
 * lowerCamelCase, unknown names ignored, null means absent. Messages that are not OpenTelemetry's have
 * their fields' original names accepted too, as ProtoJSON says.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "pipeline/item.h"

#define BR_JSON_DEPTH_MAX 128 /* messages inside one another, both ways */

/* The descriptors of a signal's export request and response. */
const ProtobufCMessageDescriptor *br_otlp_request(enum br_signal signal);
const ProtobufCMessageDescriptor *br_otlp_response(enum br_signal signal);

/* Reads JSON text into wire bytes in the schema's order, in a new buffer that the caller owns. Of a
 * name that comes twice the last counts. Returns 0; BR_EINVAL when it is not JSON or does not fit
 * the schema (the sentence says where: "resourceSpans[0].scopeSpans[2].spans[0].traceId: must be
 * ..."), nests deeper than `max_depth` messages (or BR_JSON_DEPTH_MAX), or brackets nest deeper than
 * twice that; BR_ETOOBIG when the result would be over `max` bytes; or BR_ENOMEM. Takes up to eight
 * times `len` of memory on the way. */
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
