/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells what OTLP's JSON mapping has to know about a field: its name, its wire type, and whether it
 * is an id.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "wire/protobuf.h"

#define BR_JSON_NAME_MAX 64
#define BR_JSON_FIELDS_MAX 32 /* of one message of our schemas */

/* Writes the lowerCamelCase name of a field, as protoc makes it (an underscore goes, the letter
 * after it becomes upper case), terminated. Returns `out`. */
const char *br_json_name(const ProtobufCFieldDescriptor *field, char out[BR_JSON_NAME_MAX]);

/* Returns true when a member's name of `len` bytes is that of the field: in lowerCamelCase, or as
 * in the schema ("raw_profile"), which parsers of ProtoJSON must accept and the Collector does. */
bool br_json_is_name(const ProtobufCFieldDescriptor *field, const char *name, size_t len);

/* Returns the bytes of an id that OTLP writes in hex: 16 for traceId and profileId, 8 for spanId
 * and parentSpanId; 0 for every other field. */
size_t br_json_id_size(const ProtobufCFieldDescriptor *field);

/* Returns the message that an Any of this type URL carries, where the JSON mapping has to look
 * inside (google.rpc.RetryInfo); NULL for every other. */
const ProtobufCMessageDescriptor *br_json_any(const char *type_url, size_t len);

/* Returns the message inside a field that has one: its type, or what is in the value of an Any,
 * which is read only where br_json_any knows it; NULL for every other. */
const ProtobufCMessageDescriptor *br_json_inner(const ProtobufCFieldDescriptor *field);

/* Returns how one value of the field lies on the wire. The types that OTLP and pprof use. */
static inline enum br_wire br_json_wire(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
        return BR_WIRE_LEN;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return BR_WIRE_I64;
    case PROTOBUF_C_TYPE_FIXED32:
        return BR_WIRE_I32;
    default:
        return BR_WIRE_VARINT;
    }
}
