/* SPDX-License-Identifier: Apache-2.0 */
/* Repairs a request that contains strings with invalid UTF-8. The repair is slow, and happens
 * only for invalid requests. The schema determines which bytes are strings; all other bytes are
 * copied unchanged. The size of the result is calculated first, because an invalid byte becomes
 * three. Enlarging a buffer later would need the old and the new buffer at the same time. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "otlp/walk/internal.h"

/* --- Size of the result ---------------------------------------------------------------------- */

struct count {
    size_t len;
    bool repaired;
};

static void utf8_count_field(struct count *count, const struct br_field *field, size_t len)
{
    count->len += br_len_size(field->number, len);
    count->repaired = true;
}

static struct count utf8_count_string(const struct br_field *field)
{
    if (br_utf8_valid(field->data, field->value) == field->value)
        return (struct count){0};
    return (struct count){br_utf8_replace(field->data, field->value, NULL), true};
}

static int utf8_count_message(struct count *count, const ProtobufCMessageDescriptor *desc,
                              const uint8_t *p, const uint8_t *end, unsigned depth)
{
    struct br_field field;
    if (depth > BR_WALK_DEPTH_MAX)
        return BR_EINVAL;
    while (p < end) {
        p = br_field_next(p, end, &field);
        if (!p)
            return BR_EINVAL;
        const ProtobufCFieldDescriptor *schema =
            protobuf_c_message_descriptor_get_field(desc, field.number);
        bool known = schema && field.wire == BR_WIRE_LEN;
        struct count inner = {0};
        int rc = 0;
        if (known && schema->type == PROTOBUF_C_TYPE_MESSAGE)
            rc = utf8_count_message(&inner, schema->descriptor, field.data,
                                    field.data + field.value, depth + 1);
        else if (known && schema->type == PROTOBUF_C_TYPE_STRING)
            inner = utf8_count_string(&field);
        if (rc)
            return rc;
        if (inner.repaired)
            utf8_count_field(count, &field, inner.len);
        else
            count->len += (size_t)(p - field.at);
    }
    return 0;
}

/* --- Writing --------------------------------------------------------------------------------- */

struct repair {
    struct br_buf *out;
    uint32_t repaired;
};

static int utf8_put(struct repair *repair, const void *data, size_t len)
{
    return br_buf_append(&repair->out, data, len, BR_BUF_MAX) ? BR_ENOMEM : 0;
}

static int utf8_put_prefix(struct repair *repair, uint32_t field, size_t len)
{
    uint8_t prefix[2 * BR_VARINT_MAX], *p = br_put_varint(prefix, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    return utf8_put(repair, prefix, (size_t)(p - prefix));
}

static int utf8_put_string(struct repair *repair, const struct br_field *field, const uint8_t *next)
{
    if (br_utf8_valid(field->data, field->value) == field->value)
        return utf8_put(repair, field->at, (size_t)(next - field->at));
    size_t len = br_utf8_replace(field->data, field->value, NULL);
    int rc = utf8_put_prefix(repair, field->number, len);
    if (rc)
        return rc;
    repair->out->len +=
        (uint32_t)br_utf8_replace(field->data, field->value, repair->out->data + repair->out->len);
    repair->repaired++;
    return 0;
}

static int utf8_repair_message(struct repair *repair, const ProtobufCMessageDescriptor *desc,
                               const uint8_t *p, const uint8_t *end, unsigned depth);

static int utf8_put_message(struct repair *repair, const ProtobufCMessageDescriptor *desc,
                            const struct br_field *field, const uint8_t *next, unsigned depth)
{
    uint32_t start = repair->out->len, repaired = repair->repaired;
    int rc = utf8_repair_message(repair, desc, field->data, field->data + field->value, depth);
    if (rc)
        return rc;
    if (repair->repaired == repaired) {
        repair->out->len = start;
        return utf8_put(repair, field->at, (size_t)(next - field->at));
    }
    /* The length of the repaired content is known only now: insert the length prefix before the
     * content. */
    size_t len = repair->out->len - start;
    rc = utf8_put_prefix(repair, field->number, len);
    if (rc)
        return rc;
    size_t prefix_len = repair->out->len - start - len;
    uint8_t prefix[2 * BR_VARINT_MAX];
    memcpy(prefix, repair->out->data + start + len, prefix_len);
    memmove(repair->out->data + start + prefix_len, repair->out->data + start, len);
    memcpy(repair->out->data + start, prefix, prefix_len);
    return 0;
}

static int utf8_repair_message(struct repair *repair, const ProtobufCMessageDescriptor *desc,
                               const uint8_t *p, const uint8_t *end, unsigned depth)
{
    struct br_field field;
    if (depth > BR_WALK_DEPTH_MAX)
        return BR_EINVAL;
    while (p < end) {
        p = br_field_next(p, end, &field);
        if (!p)
            return BR_EINVAL;
        const ProtobufCFieldDescriptor *schema =
            protobuf_c_message_descriptor_get_field(desc, field.number);
        int rc;
        if (schema && field.wire == BR_WIRE_LEN && schema->type == PROTOBUF_C_TYPE_STRING)
            rc = utf8_put_string(repair, &field, p);
        else if (schema && field.wire == BR_WIRE_LEN && schema->type == PROTOBUF_C_TYPE_MESSAGE)
            rc = utf8_put_message(repair, schema->descriptor, &field, p, depth + 1);
        else
            rc = utf8_put(repair, field.at, (size_t)(p - field.at));
        if (rc)
            return rc;
    }
    return 0;
}

int br_utf8_repair(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                   struct br_pool *pool, struct br_buf **ret, uint32_t *ret_repaired)
{
    struct count count = {0};
    int rc = utf8_count_message(&count, desc, data, data + len, 1);
    if (rc)
        return rc;
    if (count.len > BR_BUF_MAX)
        return BR_ETOOBIG;
    struct repair repair = {.out = br_buf_new_exact(pool, count.len)};
    if (!repair.out)
        return BR_ENOMEM;
    rc = utf8_repair_message(&repair, desc, data, data + len, 1);
    if (rc) {
        br_buf_unref(repair.out);
        return rc;
    }
    *ret = repair.out;
    *ret_repaired = repair.repaired;
    return 0;
}
