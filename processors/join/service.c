/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

static const uint8_t zero_secret[16];

/* The value of a string attribute out of a KeyValue, resolving references; NULL when it has another key
 * or is no string. */
static const uint8_t *string_attribute(const uint8_t *p, const uint8_t *end, const char *key,
                                       size_t key_len, const struct br_dictionary_view *view,
                                       size_t *ret_len)
{
    struct br_field f, v;
    const uint8_t *value = NULL;
    bool match = false;
    *ret_len = 0;
    while (p < end && (p = br_field_next(p, end, &f))) {
        struct br_entry name = {f.data, (uint32_t)f.value};
        if (f.number == 3 && view)
            name = br_dictionary_string(view, (uint32_t)f.value);
        if (f.number == 1 || (f.number == 3 && view && f.value)) {
            match = name.len == key_len && memcmp(name.data, key, key_len) == 0;
        } else if (f.number == 2) {
            const uint8_t *q = f.data, *stop = f.data + f.value;
            while (q < stop && (q = br_field_next(q, stop, &v))) {
                struct br_entry text = {v.data, (uint32_t)v.value};
                if (v.number == 8 && view)
                    text = br_dictionary_string(view, (uint32_t)v.value);
                if (v.number == 1 || (v.number == 8 && view)) {
                    value = text.data;
                    *ret_len = text.len;
                }
            }
        }
        if (!p)
            return NULL;
    }
    return match ? value : NULL;
}

uint64_t join_service_hash(const uint8_t *name, size_t len)
{
    return br_siphash(zero_secret, name, len) | 1;
}

bool join_service_profiled(const struct join *j, const struct join_service *s, uint64_t now_ms)
{
    return s->service && (join_table_is_profiled(j->table, s->service, now_ms) ||
                          (s->instance && join_table_is_profiled(j->table, s->instance, now_ms)));
}

struct join_service join_service_of(const struct br_part *part,
                                    const struct br_dictionary_view *view)
{
    struct join_service s = {0};
    size_t len, n;
    const uint8_t *p = br_part_resource(part, &len), *end = p + len, *instance = NULL;
    size_t instance_len = 0;
    struct br_field f;
    while (p && p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 1 || f.wire != BR_WIRE_LEN)
            continue;
        const uint8_t *stop = f.data + f.value;
        const uint8_t *v = string_attribute(f.data, stop, "service.name", 12, view, &n);
        if (v) {
            s.name = v;
            s.name_len = n;
            continue;
        }
        v = string_attribute(f.data, stop, "service.instance.id", 19, view, &n);
        if (v) {
            instance = v;
            instance_len = n;
        }
    }
    if (s.name)
        s.service = join_service_hash(s.name, s.name_len);
    if (s.name && instance)
        s.instance = (s.service ^ join_service_hash(instance, instance_len) * 3) | 1;
    return s;
}
