/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json/internal.h"

#include <string.h>

#include "base/bytes.h"
#include "base/steps.h"
#include "google/protobuf/any.pb-c.h"
#include "google/rpc/error_details.pb-c.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "otlp/json/json.h"

#define TRACE(name) opentelemetry__proto__collector__trace__v1__##name##__descriptor
#define PROFILES(name)                                                                             \
    opentelemetry__proto__collector__profiles__v1development__##name##__descriptor

const ProtobufCMessageDescriptor *br_otlp_request(enum br_signal signal)
{
    return signal == BR_TRACES ? &TRACE(export_trace_service_request)
                               : &PROFILES(export_profiles_service_request);
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

/* Compares `name` with the lowerCamelCase form of `*p`, which is a name in the spelling of the
 * schema. Returns the number of equal characters at the start, and advances `*p` past the equal
 * characters. */
static size_t json_names_same_characters(const char **p, const char *name, size_t len)
{
    size_t i = 0;
    for (; i < len; i++, ++*p) {
        char c = **p;
        if (c == name[i] && c != '_' && c != '\0')
            continue;
        if (c != '_')
            break;
        while (**p == '_')
            ++*p;
        c = **p >= 'a' && **p <= 'z' ? (char)(**p - 'a' + 'A') : **p;
        if (c == '\0' || c != name[i])
            break;
    }
    return i;
}

bool br_json_is_name(const ProtobufCFieldDescriptor *field, const char *name, size_t len)
{
    const char *p = field->name;
    size_t same = json_names_same_characters(&p, name, len);
    br_steps_add(same + 1);
    if (same == len && *p == '\0')
        return true;
    return same && br_bytes_are(name, len, field->name);
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

const ProtobufCMessageDescriptor *br_json_inner(const ProtobufCFieldDescriptor *field)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return field->descriptor;
    return field == &google__protobuf__any__descriptor.fields[1]
               ? &google__rpc__retry_info__descriptor
               : NULL;
}
