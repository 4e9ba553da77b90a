/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of a field for OTLP's JSON mapping: its name, its wire type, and whether it is an id.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "wire/protobuf.h"

#define BR_JSON_NAME_MAX 64
#define BR_JSON_FIELDS_MAX 32 /* most fields of a message in the schemas in use */

/* Writes the lowerCamelCase name of a field to `out` and returns `out`. Like protoc, it removes
 * each underscore and makes the next letter upper case. */
const char *br_json_name(const ProtobufCFieldDescriptor *field, char out[BR_JSON_NAME_MAX]);

/* Returns true if `name` is the name of the field: in lowerCamelCase, or as in the schema
 * ("raw_profile"). ProtoJSON parsers must accept both, and the Collector does. */
bool br_json_is_name(const ProtobufCFieldDescriptor *field, const char *name, size_t len);

/* Returns the size in bytes of an id field that OTLP writes in hex: 16 for traceId and
 * profileId, 8 for spanId and parentSpanId. Returns 0 for any other field. */
size_t br_json_id_size(const ProtobufCFieldDescriptor *field);

/* Returns the descriptor of the message in a google.protobuf.Any with this type URL. Only the
 * type google.rpc.RetryInfo is known; returns NULL for other types. */
const ProtobufCMessageDescriptor *br_json_any(const char *type_url, size_t len);

/* Returns the descriptor of the message in a field: its type, or google.rpc.RetryInfo for the
 * value of an Any. Returns NULL for other fields. */
const ProtobufCMessageDescriptor *br_json_inner(const ProtobufCFieldDescriptor *field);

/* Returns the wire type of one value of the field, for the types that OTLP and pprof use. */
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
