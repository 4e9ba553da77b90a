/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/str.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

/* The string in an AnyValue, empty when it is none. */
static struct br_entry text_of(const uint8_t *p, const uint8_t *end,
                               const struct br_dictionary_view *view)
{
    struct br_entry text = {0};
    struct br_field v;
    while (p < end && (p = br_field_next(p, end, &v))) {
        if (v.number == 1)
            text = (struct br_entry){v.data, (uint32_t)v.value};
        else if (v.number == 8 && view)
            text = br_dictionary_string(view, (uint32_t)v.value);
        else if (v.number < 8)
            text = (struct br_entry){0};
    }
    return text;
}

struct pair {
    struct br_entry key, value;
};

/* A KeyValue with a string. A key in the message beats a reference. */
static struct pair read_pair(const uint8_t *p, const uint8_t *end,
                             const struct br_dictionary_view *view)
{
    struct pair pair = {0};
    struct br_entry reference = {0};
    struct br_field f;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1)
            pair.key = (struct br_entry){f.data, (uint32_t)f.value};
        else if (f.number == 2)
            pair.value = text_of(f.data, f.data + f.value, view);
        else if (f.number == 3 && view)
            reference = br_dictionary_string(view, (uint32_t)f.value);
    }
    if (!pair.key.len)
        pair.key = reference;
    return pair;
}

static bool is(struct br_entry e, const char *text)
{
    return e.len == strlen(text) && memcmp(e.data, text, e.len) == 0;
}

/* The secret is known, and may be: who chooses names that collide marks spans of a service of his
 * own. */
uint64_t join_service_hash(const uint8_t *name, size_t len)
{
    static const uint8_t secret[16];
    return br_siphash(secret, name, len) | 1;
}

bool join_service_profiled(const struct join *j, const struct join_service *s, uint64_t now_ms)
{
    return s->service && (join_table_is_profiled(j->table, s->service, now_ms) ||
                          (s->instance && join_table_is_profiled(j->table, s->instance, now_ms)));
}

size_t join_cut(const uint8_t *text, size_t len)
{
    return len <= JOIN_VALUE_MAX ? len : br_utf8_valid(text, JOIN_VALUE_MAX);
}

struct join_service join_service_of(const struct br_part *part,
                                    const struct br_dictionary_view *view)
{
    struct join_service s = {0};
    struct br_entry instance = {0};
    struct br_field f;
    size_t len;
    const uint8_t *p = br_part_resource(part, &len), *end = p + len;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 1 || f.wire != BR_WIRE_LEN)
            continue;
        struct pair pair = read_pair(f.data, f.data + f.value, view);
        if (is(pair.key, "service.name")) {
            s.name = pair.value.data;
            s.name_len = pair.value.len;
        } else if (is(pair.key, "service.instance.id")) {
            instance = pair.value;
        }
    }
    if (s.name_len)
        s.service = join_service_hash(s.name, s.name_len);
    if (s.name_len && instance.len)
        s.instance = (s.service ^ join_service_hash(instance.data, instance.len) * 3) | 1;
    return s;
}
