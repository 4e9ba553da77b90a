/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json_names.h"

#include <string.h>

#include "google/rpc/error_details.pb-c.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "otlp/json.h"

#define TRACE(name) opentelemetry__proto__collector__trace__v1__##name##__descriptor
#define PROFILES(name)                                                                             \
    opentelemetry__proto__collector__profiles__v1development__##name##__descriptor

const ProtobufCMessageDescriptor *br_otlp_request(enum br_signal signal)
{
    return signal == BR_TRACES ? &TRACE(export_trace_service_request)
                               : &PROFILES(export_profiles_service_request);
}

const ProtobufCMessageDescriptor *br_otlp_response(enum br_signal signal)
{
    return signal == BR_TRACES ? &TRACE(export_trace_service_response)
                               : &PROFILES(export_profiles_service_response);
}

const char *br_json_name(const ProtobufCFieldDescriptor *field, char out[BR_JSON_NAME_MAX])
{
    size_t n = 0;
    bool upper = false;
    for (const char *p = field->name; *p && n + 1 < BR_JSON_NAME_MAX; p++) {
        if (*p == '_') {
            upper = true;
            continue;
        }
        out[n++] = upper && *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
        upper = false;
    }
    out[n] = '\0';
    return out;
}

bool br_json_original_names(const ProtobufCMessageDescriptor *desc)
{
    return strncmp(desc->package_name, "opentelemetry.", 14) != 0;
}

size_t br_json_id_size(const ProtobufCFieldDescriptor *field)
{
    if (field->type != PROTOBUF_C_TYPE_BYTES)
        return 0;
    if (!strcmp(field->name, "trace_id") || !strcmp(field->name, "profile_id"))
        return 16;
    if (!strcmp(field->name, "span_id") || !strcmp(field->name, "parent_span_id"))
        return 8;
    return 0;
}

const ProtobufCMessageDescriptor *br_json_any(const char *type_url, size_t len)
{
    static const char retry_info[] = "google.rpc.RetryInfo";
    size_t n = sizeof retry_info - 1;
    if (len > n && type_url[len - n - 1] == '/' && !memcmp(type_url + len - n, retry_info, n))
        return &google__rpc__retry_info__descriptor;
    return NULL;
}

enum br_wire br_json_wire(const ProtobufCFieldDescriptor *field)
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
