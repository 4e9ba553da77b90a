/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/infer/identity.h"

#include <string.h>

#include "base/map.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "processors/join/sample_view.h"
#include "profile/pair.h"

static const struct {
    const char *key;
    size_t len;
} keys[JOIN_WHERES] = {
    [JOIN_THREAD_ID] = {"thread.id", 9},
    [JOIN_THREAD_NAME] = {"thread.name", 11},
    [JOIN_PROCESS] = {"process.pid", 11},
    [JOIN_SERVICE] = {"service.name", 12},
    [JOIN_RUNTIME] = {"telemetry.sdk.language", 22},
    [JOIN_HOST] = {"host.id", 7},
    [JOIN_CONTAINER] = {"container.id", 12},
    [JOIN_POD] = {"k8s.pod.uid", 11},
    [JOIN_INSTANCE] = {"service.instance.id", 19},
};

enum join_where join_where_of(const void *key, size_t len)
{
    unsigned i = 0;
    while (i < JOIN_WHERES && (keys[i].len != len || memcmp(keys[i].key, key, len) != 0))
        i++;
    return (enum join_where)i;
}

static uint32_t identity_hash(const struct join_table *table, const uint8_t *any, size_t len,
                              struct join_texts *texts)
{
    uint64_t reference = texts ? br_any_read((struct br_value){any, len}).reference : 0;
    return reference ? join_texts_hash(texts, reference) : join_table_hash_value(table, any, len);
}

/* Returns true if programs in the SDK's language have a runtime that assigns its own thread ids. */
static bool identity_is_managed(const struct join_table *table, uint32_t language)
{
    static const char *const managed[] = {"java", "dotnet", "python", "nodejs",
                                          "ruby", "php",    "erlang", "webjs"};
    for (size_t i = 0; i < BR_COUNT(managed); i++)
        if (language == join_table_hash(table, managed[i], strlen(managed[i])))
            return true;
    return false;
}

uint32_t join_where_value(const struct join_table *table, enum join_where where, const uint8_t *any,
                          size_t len, struct join_texts *texts)
{
    uint32_t hash = identity_hash(table, any, len, texts);
    return where == JOIN_RUNTIME && !identity_is_managed(table, hash) ? 0 : hash;
}

static void identity_read_pair(const struct join_table *table, const struct br_keyvalue *kv,
                               struct join_texts *texts, struct join_identity *ret)
{
    struct br_entry key = {kv->key, (uint32_t)kv->key_len};
    if (!key.len)
        key = join_texts_at(texts, kv->key_index);
    enum join_where where = key.len ? join_where_of(key.data, key.len) : JOIN_WHERES;
    if (where < JOIN_WHERES && kv->value.data)
        ret->hashes[where] = join_where_value(table, where, kv->value.data, kv->value.len, texts);
}

void join_identity_read(const struct join_table *table, const uint8_t *p, const uint8_t *end,
                        struct join_texts *texts, struct join_identity *ret)
{
    struct br_keyvalue kv;
    br_steps_add((size_t)(end - p));
    while ((p = br_keyvalue_next(p, end, BR_RESOURCE_ATTRIBUTES, &kv)))
        identity_read_pair(table, &kv, texts, ret);
}

/* --- Services --------------------------------------------------------------------------- */

/* A text, and its string index if the text is in the dictionary; otherwise the index is 0. */
struct text {
    struct br_entry text;
    uint64_t index;
};

/* Returns the string in an AnyValue, or an empty text if the AnyValue contains no string. */
static struct text join_identity_service_text_of(struct br_value value,
                                                 const struct join_texts *texts)
{
    struct br_any any = br_any_read(value);
    if (any.reference && texts)
        return (struct text){join_texts_at(texts, any.reference), any.reference};
    if (any.type == BR_VALUE_STRING)
        return (struct text){.text = {any.data, (uint32_t)any.len}};
    return (struct text){0};
}

struct pair {
    struct br_entry key;
    struct text value;
};

/* Returns the key and the string value of a KeyValue. If the key is in the message itself, that
 * key takes precedence over a reference to the dictionary. */
static struct pair join_identity_service_pair_of(const struct br_keyvalue *kv,
                                                 const struct join_texts *texts)
{
    struct br_entry key = {kv->key, (uint32_t)kv->key_len};
    return (struct pair){key.len ? key : join_texts_at(texts, kv->key_index),
                         join_identity_service_text_of(kv->value, texts)};
}

size_t join_cut(const uint8_t *text, size_t len)
{
    return len <= JOIN_VALUE_MAX ? len : br_utf8_valid(text, JOIN_VALUE_MAX);
}

static uint64_t join_identity_service_hash_of(struct join_texts *texts, struct text text)
{
    return text.index ? join_texts_service(texts, text.index)
                      : join_service_hash(text.text.data, text.text.len);
}

struct join_service join_service_of(const struct br_part *part, struct join_texts *texts)
{
    struct join_service service = {0};
    struct text name = {0}, instance = {0};
    struct br_keyvalue kv;
    size_t len;
    const uint8_t *p = br_part_resource(part, &len), *end = br_mem_end(p, len);
    while ((p = br_keyvalue_next(p, end, BR_RESOURCE_ATTRIBUTES, &kv))) {
        struct pair pair = join_identity_service_pair_of(&kv, texts);
        if (br_text_is(pair.key, "service.name"))
            name = pair.value;
        else if (br_text_is(pair.key, "service.instance.id"))
            instance = pair.value;
    }
    service.name = name.text.data;
    service.name_len = name.text.len;
    if (service.name_len)
        service.service = join_identity_service_hash_of(texts, name);
    if (service.name_len && instance.text.len)
        service.instance =
            (service.service ^ join_identity_service_hash_of(texts, instance) * 3) | 1;
    return service;
}
