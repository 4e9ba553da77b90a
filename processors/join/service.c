/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/str.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

/* A text, and where it is in the dictionary; 0: it is not from there. */
struct text {
    struct br_entry text;
    uint64_t index;
};

/* The string in an AnyValue, empty when it is none. */
static struct text text_of(const uint8_t *p, const uint8_t *end, const struct join_texts *texts)
{
    struct text text = {0};
    struct br_field v;
    while (p < end && (p = br_field_next(p, end, &v))) {
        if (v.number == 1)
            text = (struct text){.text = {v.data, (uint32_t)v.value}};
        else if (v.number == 8 && texts)
            text = (struct text){join_texts_at(texts, v.value), v.value};
        else if (v.number < 8)
            text = (struct text){0};
    }
    return text;
}

struct pair {
    struct br_entry key;
    struct text value;
};

/* A KeyValue with a string. A key in the message beats a reference. */
static struct pair read_pair(const uint8_t *p, const uint8_t *end, const struct join_texts *texts)
{
    struct pair pair = {0};
    struct br_entry reference = {0};
    struct br_field f;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1)
            pair.key = (struct br_entry){f.data, (uint32_t)f.value};
        else if (f.number == 2)
            pair.value = text_of(f.data, f.data + f.value, texts);
        else if (f.number == 3)
            reference = join_texts_at(texts, f.value);
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

static uint64_t hash_of(struct join_texts *texts, struct text t)
{
    return t.index ? join_texts_service(texts, t.index) : join_service_hash(t.text.data, t.text.len);
}

struct join_service join_service_of(const struct br_part *part, struct join_texts *texts)
{
    struct join_service s = {0};
    struct text name = {0}, instance = {0};
    struct br_field f;
    size_t len;
    const uint8_t *p = br_part_resource(part, &len), *end = p + len;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 1 || f.wire != BR_WIRE_LEN)
            continue;
        struct pair pair = read_pair(f.data, f.data + f.value, texts);
        if (is(pair.key, "service.name"))
            name = pair.value;
        else if (is(pair.key, "service.instance.id"))
            instance = pair.value;
    }
    s.name = name.text.data;
    s.name_len = name.text.len;
    if (s.name_len)
        s.service = hash_of(texts, name);
    if (s.name_len && instance.text.len)
        s.instance = (s.service ^ hash_of(texts, instance) * 3) | 1;
    return s;
}
