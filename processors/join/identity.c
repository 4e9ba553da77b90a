/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/identity.h"

#include <string.h>

#include "base/steps.h"
#include "otlp/scan.h"

#define DIGITS_MAX 20

static const struct {
    const char *key;
    size_t len;
} keys[JOIN_WHERES] = {
    [JOIN_THREAD_ID] = {"thread.id", 9},     [JOIN_THREAD_NAME] = {"thread.name", 11},
    [JOIN_PROCESS] = {"process.pid", 11},    [JOIN_HOST] = {"host.id", 7},
    [JOIN_CONTAINER] = {"container.id", 12}, [JOIN_SERVICE] = {"service.name", 12},
};

enum join_where join_where_of(const void *key, size_t len)
{
    unsigned i = 0;
    while (i < JOIN_WHERES && (keys[i].len != len || memcmp(keys[i].key, key, len) != 0))
        i++;
    return (enum join_where)i;
}

static uint32_t hash_int(const struct join_table *t, int64_t v)
{
    char digits[DIGITS_MAX + 1];
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (v < 0)
        digits[--at] = '-';
    return join_table_hash(t, digits + at, sizeof digits - at);
}

uint32_t join_where_hash(const struct join_table *t, const uint8_t *any, size_t len,
                         struct join_texts *texts)
{
    const uint8_t *p = any, *end = any + len;
    struct br_field f, v = {0};
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number <= 8)
            v = f; /* of a oneof the last one counts */
    if (v.number == 3)
        return hash_int(t, (int64_t)v.value);
    if (v.number == 8 && texts)
        return join_texts_hash(texts, v.value);
    return v.number == 1 && v.value ? join_table_hash(t, v.data, v.value) : 0;
}

static void read_pair(const struct join_table *t, const uint8_t *p, const uint8_t *end,
                      struct join_texts *texts, struct join_identity *ret)
{
    struct br_entry key = {0}, reference = {0};
    struct br_field f, value = {0};
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number == 1)
            key = (struct br_entry){f.data, (uint32_t)f.value};
        else if (f.number == 2)
            value = f;
        else if (f.number == 3)
            reference = join_texts_at(texts, f.value);
    }
    if (!key.len)
        key = reference;
    enum join_where where = key.len ? join_where_of(key.data, key.len) : JOIN_WHERES;
    if (where < JOIN_WHERES && value.data)
        ret->v[where] = join_where_hash(t, value.data, value.value, texts);
}

void join_identity_read(const struct join_table *t, const uint8_t *p, const uint8_t *end,
                        uint32_t field, struct join_texts *texts, struct join_identity *ret)
{
    struct br_field f;
    br_steps_add((size_t)(end - p));
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number == field && f.wire == BR_WIRE_LEN)
            read_pair(t, f.data, f.data + f.value, texts, ret);
}
