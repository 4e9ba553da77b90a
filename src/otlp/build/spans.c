/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/build/spans.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/steps.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

#define NONE UINT32_MAX
/* number of bytes that a field needs in addition to its content: tag and length */
#define FIELD_MAX ((size_t)(5 + BR_VARINT_MAX))

/* A Resource message in `heads`, and the list of its groups. */
struct br_spans_resource {
    uint32_t at, len, first_group, last_group;
    size_t size; /* size of the ScopeSpans of all groups that have spans, in bytes */
};

/* An InstrumentationScope message in `heads`, and the list of its spans. */
struct br_spans_group {
    uint32_t resource, at, len, next, first_record, last_record;
    size_t size; /* size of all spans, in bytes */
};

/* A span in `spans`, with its tag and length. */
struct br_spans_record {
    uint32_t at, len, next;
};

/* The key with which a group is found. */
struct key {
    uint32_t resource;
    const uint8_t *data;
    size_t len;
};

void br_spans_init(struct br_spans *spans, struct br_pool *pool, size_t max)
{
    *spans = (struct br_spans){.pool = pool, .max = max < BR_BUF_MAX ? max : BR_BUF_MAX};
    br_index_init(&spans->resource_index, BR_INDEX_MAX, BR_HOLDER_PROCESS);
    br_index_init(&spans->group_index, BR_INDEX_MAX, BR_HOLDER_PROCESS);
    spans->heads = br_buf_new(pool, 1024);
    spans->spans = br_buf_new(pool, 4096);
    if (!spans->heads || !spans->spans)
        spans->rc = BR_ENOMEM;
}

void br_spans_release(struct br_spans *spans)
{
    br_buf_unref(spans->heads);
    br_buf_unref(spans->spans);
    br_free(spans->resources);
    br_free(spans->groups);
    br_free(spans->records);
    br_index_release(&spans->resource_index);
    br_index_release(&spans->group_index);
    *spans = (struct br_spans){.rc = BR_ENOMEM};
}

/* --- Bytes ------------------------------------------------------------------------------------ */

/* Returns the end of `*buf`, where `len` bytes can be written. Returns NULL after an error. */
static uint8_t *spans_room(struct br_spans *spans, struct br_buf **buf, size_t len)
{
    if (spans->rc)
        return NULL;
    size_t need = (*buf)->len + len;
    if (need > (*buf)->cap) {
        size_t doubled = (size_t)(*buf)->cap * 2;
        if (need > spans->max)
            spans->rc = BR_EFULL;
        else
            spans->rc =
                br_buf_reserve(buf, need > doubled || doubled > spans->max ? need : doubled);
    }
    return spans->rc ? NULL : (*buf)->data + (*buf)->len;
}

static void spans_put_bytes(struct br_spans *spans, struct br_buf **buf, uint32_t field,
                            const void *data, size_t len)
{
    uint8_t *p = spans_room(spans, buf, FIELD_MAX + len);
    if (p)
        (*buf)->len = (uint32_t)(br_put_len(p, field, data, len) - (*buf)->data);
}

static uint8_t *spans_put_number(uint8_t *p, uint32_t field, enum br_wire wire, uint64_t value)
{
    p = br_put_varint(p, BR_TAG(field, wire));
    if (wire == BR_WIRE_VARINT)
        return br_put_varint(p, value);
    size_t len = wire == BR_WIRE_I64 ? 8 : 4;
    memcpy(p, &value, len); /* meson rejects big-endian machines */
    return p + len;
}

static void spans_number(struct br_spans *spans, uint32_t field, enum br_wire wire, uint64_t value)
{
    uint8_t *p = spans_room(spans, &spans->spans, FIELD_MAX);
    if (p)
        spans->spans->len =
            (uint32_t)(spans_put_number(p, field, wire, value) - spans->spans->data);
}

/* Returns the length of an AnyValue with the value of a tag. */
static size_t spans_value_size(const struct br_tag *tag)
{
    switch (tag->type) {
    case BR_VALUE_BOOL:
    case BR_VALUE_INT:
        return 1 + br_varint_size(tag->number);
    case BR_VALUE_DOUBLE:
        return 1 + 8;
    default:
        return br_len_size(tag->type, tag->len);
    }
}

static uint8_t *spans_put_value(uint8_t *p, const struct br_tag *tag)
{
    if (tag->type == BR_VALUE_BOOL || tag->type == BR_VALUE_INT)
        return spans_put_number(p, tag->type, BR_WIRE_VARINT, tag->number);
    if (tag->type == BR_VALUE_DOUBLE)
        return spans_put_number(p, tag->type, BR_WIRE_I64, tag->number);
    return br_put_len(p, tag->type, tag->data, tag->len);
}

static void spans_put_attribute(struct br_spans *spans, struct br_buf **buf, uint32_t field,
                                const struct br_tag *tag)
{
    size_t value_len = spans_value_size(tag), len = br_len_size(BR_KEYVALUE_KEY, tag->key_len) +
                                                    br_len_size(BR_KEYVALUE_VALUE, value_len);
    uint8_t *p = spans_room(spans, buf, FIELD_MAX + len);
    if (!p)
        return;
    p = br_put_varint(p, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    p = br_put_len(p, BR_KEYVALUE_KEY, tag->key, tag->key_len);
    p = br_put_varint(p, BR_TAG(BR_KEYVALUE_VALUE, BR_WIRE_LEN));
    p = br_put_varint(p, value_len);
    (*buf)->len = (uint32_t)(spans_put_value(p, tag) - (*buf)->data);
}

static void spans_put_attributes(struct br_spans *spans, struct br_buf **buf, uint32_t field,
                                 const struct br_tags *tags)
{
    for (uint32_t i = 0; i < tags->count; i++)
        if (!tags->items[i].dropped)
            spans_put_attribute(spans, buf, field, &tags->items[i]);
}

/* --- Groups ----------------------------------------------------------------------------------- */

static bool spans_resource_equal(const void *entries, uint32_t place, const void *key)
{
    const struct br_spans *spans = entries;
    const struct br_spans_resource *resource = &spans->resources[place];
    const struct key *wanted = key;
    br_steps_add(wanted->len);
    return br_bytes_equal(spans->heads->data + resource->at, resource->len, wanted->data,
                          wanted->len);
}

static uint64_t spans_resource_hash(const void *entries, uint32_t place)
{
    const struct br_spans *spans = entries;
    const struct br_spans_resource *resource = &spans->resources[place];
    return br_index_hash(&spans->resource_index, spans->heads->data + resource->at, resource->len);
}

static bool spans_group_equal(const void *entries, uint32_t place, const void *key)
{
    const struct br_spans *spans = entries;
    const struct br_spans_group *group = &spans->groups[place];
    const struct key *wanted = key;
    br_steps_add(wanted->len);
    return group->resource == wanted->resource &&
           br_bytes_equal(spans->heads->data + group->at, group->len, wanted->data, wanted->len);
}

static uint64_t spans_key_hash(const struct br_spans *spans, uint32_t resource, const uint8_t *data,
                               size_t len)
{
    uint64_t hash = br_index_hash(&spans->group_index, data, len);
    return br_index_hash(&spans->group_index, (uint64_t[]){hash, resource}, 2 * sizeof hash);
}

static uint64_t spans_group_hash(const void *entries, uint32_t place)
{
    const struct br_spans *spans = entries;
    const struct br_spans_group *group = &spans->groups[place];
    return spans_key_hash(spans, group->resource, spans->heads->data + group->at, group->len);
}

uint32_t br_spans_resource(struct br_spans *spans, const struct br_tags *tags)
{
    if (spans->rc)
        return 0;
    uint32_t at = spans->heads->len;
    spans_put_attributes(spans, &spans->heads, BR_RESOURCE_ATTRIBUTES, tags);
    if (spans->rc)
        return 0;
    const struct key key = {.data = spans->heads->data + at, .len = spans->heads->len - at};
    uint64_t hash = br_index_hash(&spans->resource_index, key.data, key.len);
    uint32_t found = br_index_find(&spans->resource_index, hash, spans_resource_equal, spans, &key);
    if (found != BR_INDEX_NONE) {
        spans->heads->len = at;
        return found;
    }
    spans->rc = br_grow(&spans->resources, &spans->cap_resources, spans->n_resources + (size_t)1,
                        sizeof *spans->resources, BR_INDEX_MAX);
    if (spans->rc)
        return 0;
    spans->resources[spans->n_resources] = (struct br_spans_resource){
        .at = at, .len = (uint32_t)key.len, .first_group = NONE, .last_group = NONE};
    spans->rc =
        br_index_add(&spans->resource_index, hash, spans->n_resources, spans_resource_hash, spans);
    return spans->rc ? 0 : spans->n_resources++;
}

static void spans_add_group(struct br_spans *spans, const struct br_spans_group *group,
                            uint64_t hash)
{
    spans->rc = br_grow(&spans->groups, &spans->cap_groups, spans->n_groups + (size_t)1,
                        sizeof *spans->groups, BR_INDEX_MAX);
    if (spans->rc)
        return;
    spans->groups[spans->n_groups] = *group;
    spans->rc = br_index_add(&spans->group_index, hash, spans->n_groups, spans_group_hash, spans);
    if (spans->rc)
        return;
    struct br_spans_resource *resource = &spans->resources[group->resource];
    if (resource->first_group == NONE)
        resource->first_group = spans->n_groups;
    else
        spans->groups[resource->last_group].next = spans->n_groups;
    resource->last_group = spans->n_groups++;
}

/* Returns the group of a Resource and a scope, which is made if necessary. */
static struct br_spans_group *spans_group(struct br_spans *spans, uint32_t resource,
                                          const void *name, size_t name_len, const void *version,
                                          size_t version_len)
{
    uint32_t at = spans->heads->len;
    if (name_len)
        spans_put_bytes(spans, &spans->heads, BR_SCOPE_NAME, name, name_len);
    if (version_len)
        spans_put_bytes(spans, &spans->heads, BR_SCOPE_VERSION, version, version_len);
    if (spans->rc)
        return NULL;
    const struct key key = {resource, spans->heads->data + at, spans->heads->len - at};
    uint64_t hash = spans_key_hash(spans, resource, key.data, key.len);
    uint32_t found = br_index_find(&spans->group_index, hash, spans_group_equal, spans, &key);
    if (found != BR_INDEX_NONE) {
        spans->heads->len = at;
        return &spans->groups[found];
    }
    spans_add_group(spans,
                    &(struct br_spans_group){.resource = resource,
                                             .at = at,
                                             .len = (uint32_t)key.len,
                                             .next = NONE,
                                             .first_record = NONE,
                                             .last_record = NONE},
                    hash);
    return spans->rc ? NULL : &spans->groups[spans->n_groups - 1];
}

/* --- Spans ------------------------------------------------------------------------------------ */

void br_spans_open(struct br_spans *spans, uint32_t field)
{
    uint8_t *p = spans_room(spans, &spans->spans, FIELD_MAX);
    if (!p)
        return;
    p = br_put_varint(p, BR_TAG(field, BR_WIRE_LEN));
    /* One byte is reserved for the length. br_spans_close moves the content if that is too few. */
    spans->spans->len = (uint32_t)(p + 1 - spans->spans->data);
    spans->open[spans->depth++] = spans->spans->len;
}

void br_spans_close(struct br_spans *spans)
{
    if (spans->rc)
        return;
    size_t at = spans->open[--spans->depth], len = spans->spans->len - at,
           more = br_varint_size(len) - 1;
    if (more && !spans_room(spans, &spans->spans, more))
        return;
    uint8_t *content = spans->spans->data + at;
    if (more)
        memmove(content + more, content, len);
    (void)br_put_varint(content - 1, len);
    spans->spans->len += (uint32_t)more;
}

void br_spans_begin(struct br_spans *spans)
{
    spans->depth = 0;
    spans->begun = spans->spans ? spans->spans->len : 0;
    br_spans_open(spans, BR_SCOPES_RECORDS);
}

void br_spans_undo(struct br_spans *spans)
{
    if (!spans->rc)
        spans->spans->len = (uint32_t)spans->begun;
    spans->depth = 0;
}

void br_spans_end(struct br_spans *spans, uint32_t resource, const void *name, size_t name_len,
                  const void *version, size_t version_len)
{
    br_spans_close(spans);
    struct br_spans_group *group =
        spans->rc ? NULL : spans_group(spans, resource, name, name_len, version, version_len);
    if (!group)
        return;
    spans->rc = br_grow(&spans->records, &spans->cap_records, spans->n_records + (size_t)1,
                        sizeof *spans->records, BR_INDEX_MAX);
    if (spans->rc)
        return;
    uint32_t len = spans->spans->len - (uint32_t)spans->begun;
    spans->records[spans->n_records] =
        (struct br_spans_record){.at = (uint32_t)spans->begun, .len = len, .next = NONE};
    if (group->first_record == NONE)
        group->first_record = spans->n_records;
    else
        spans->records[group->last_record].next = spans->n_records;
    group->last_record = spans->n_records++;
    group->size += len;
}

void br_spans_bytes(struct br_spans *spans, uint32_t field, const void *data, size_t len)
{
    spans_put_bytes(spans, &spans->spans, field, data, len);
}

void br_spans_varint(struct br_spans *spans, uint32_t field, uint64_t value)
{
    spans_number(spans, field, BR_WIRE_VARINT, value);
}

void br_spans_fixed32(struct br_spans *spans, uint32_t field, uint32_t value)
{
    spans_number(spans, field, BR_WIRE_I32, value);
}

void br_spans_fixed64(struct br_spans *spans, uint32_t field, uint64_t value)
{
    spans_number(spans, field, BR_WIRE_I64, value);
}

void br_spans_trace_id(struct br_spans *spans, uint32_t field, uint64_t high, uint64_t low)
{
    const uint64_t id[2] = {__builtin_bswap64(high), __builtin_bswap64(low)};
    br_spans_bytes(spans, field, id, sizeof id);
}

void br_spans_span_id(struct br_spans *spans, uint32_t field, uint64_t id)
{
    id = __builtin_bswap64(id);
    br_spans_bytes(spans, field, &id, sizeof id);
}

void br_spans_status(struct br_spans *spans, unsigned code, const void *message, size_t len)
{
    br_spans_open(spans, BR_SPAN_STATUS);
    if (len)
        br_spans_bytes(spans, BR_SPAN_STATUS_MESSAGE, message, len);
    if (code)
        br_spans_varint(spans, BR_SPAN_STATUS_CODE, code);
    br_spans_close(spans);
}

void br_spans_attribute(struct br_spans *spans, uint32_t field, const struct br_tag *tag)
{
    spans_put_attribute(spans, &spans->spans, field, tag);
}

void br_spans_attributes(struct br_spans *spans, uint32_t field, const struct br_tags *tags)
{
    spans_put_attributes(spans, &spans->spans, field, tags);
}

/* --- The request ------------------------------------------------------------------------------ */

static size_t spans_scope_size(const struct br_spans_group *group)
{
    return br_len_size(BR_SCOPES_SCOPE, group->len) + group->size;
}

static size_t spans_resource_size(const struct br_spans_resource *resource)
{
    return br_len_size(BR_RESOURCES_RESOURCE, resource->len) + resource->size;
}

/* Computes the sizes of all messages. Returns the size of the request. */
static size_t spans_measure(struct br_spans *spans)
{
    size_t total = 0;
    for (uint32_t i = 0; i < spans->n_groups; i++) {
        const struct br_spans_group *group = &spans->groups[i];
        spans->resources[group->resource].size +=
            br_len_size(BR_RESOURCES_SCOPES, spans_scope_size(group));
    }
    for (uint32_t i = 0; i < spans->n_resources; i++)
        if (spans->resources[i].size)
            total += br_len_size(BR_REQUEST_RESOURCES, spans_resource_size(&spans->resources[i]));
    return total;
}

static uint8_t *spans_put_group(const struct br_spans *spans, const struct br_spans_group *group,
                                uint8_t *p)
{
    p = br_put_varint(p, BR_TAG(BR_RESOURCES_SCOPES, BR_WIRE_LEN));
    p = br_put_varint(p, spans_scope_size(group));
    p = br_put_len(p, BR_SCOPES_SCOPE, spans->heads->data + group->at, group->len);
    for (uint32_t i = group->first_record; i != NONE; i = spans->records[i].next)
        p = br_put_bytes(p, spans->spans->data + spans->records[i].at, spans->records[i].len);
    return p;
}

static uint8_t *spans_put_resource(const struct br_spans *spans,
                                   const struct br_spans_resource *resource, uint8_t *p)
{
    p = br_put_varint(p, BR_TAG(BR_REQUEST_RESOURCES, BR_WIRE_LEN));
    p = br_put_varint(p, spans_resource_size(resource));
    p = br_put_len(p, BR_RESOURCES_RESOURCE, spans->heads->data + resource->at, resource->len);
    for (uint32_t i = resource->first_group; i != NONE; i = spans->groups[i].next)
        p = spans_put_group(spans, &spans->groups[i], p);
    return p;
}

int br_spans_take(struct br_spans *spans, struct br_buf **ret)
{
    size_t size = spans->rc ? 0 : spans_measure(spans);
    if (size > spans->max)
        spans->rc = BR_EFULL;
    struct br_buf *buf = spans->rc ? NULL : br_buf_new(spans->pool, size + 1);
    int rc = spans->rc ? spans->rc : BR_ENOMEM;
    if (buf) {
        uint8_t *p = buf->data;
        for (uint32_t i = 0; i < spans->n_resources; i++)
            if (spans->resources[i].size)
                p = spans_put_resource(spans, &spans->resources[i], p);
        buf->len = (uint32_t)(p - buf->data);
        *ret = buf;
        rc = 0;
    }
    br_spans_release(spans);
    return rc;
}
