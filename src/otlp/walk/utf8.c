/* SPDX-License-Identifier: Apache-2.0 */
/* The slow path of a request with bad strings: driven by the schema, because only it knows which
 * bytes are strings. Everything that is fine is copied as it came. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "otlp/walk/internal.h"

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
    size_t len = br_utf8_mend(field->data, field->value, NULL);
    int rc = utf8_put_prefix(repair, field->number, len);
    if (!rc && repair->out->len + len > BR_BUF_MAX)
        rc = BR_ENOMEM;
    if (!rc)
        rc = br_buf_reserve(&repair->out, repair->out->len + len);
    if (rc)
        return rc;
    repair->out->len +=
        (uint32_t)br_utf8_mend(field->data, field->value, repair->out->data + repair->out->len);
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
    /* The length is known only now: make room for the prefix before the content. */
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
    struct br_field this_field;
    if (depth > BR_WALK_DEPTH_MAX)
        return BR_EINVAL;
    while (p < end) {
        p = br_field_next(p, end, &this_field);
        if (!p)
            return BR_EINVAL;
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(desc, this_field.number);
        int rc;
        if (field && this_field.wire == BR_WIRE_LEN && field->type == PROTOBUF_C_TYPE_STRING)
            rc = utf8_put_string(repair, &this_field, p);
        else if (field && this_field.wire == BR_WIRE_LEN && field->type == PROTOBUF_C_TYPE_MESSAGE)
            rc = utf8_put_message(repair, field->descriptor, &this_field, p, depth + 1);
        else
            rc = utf8_put(repair, this_field.at, (size_t)(p - this_field.at));
        if (rc)
            return rc;
    }
    return 0;
}

int br_utf8_repair(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                   struct br_pool *pool, struct br_buf **ret, uint32_t *ret_repaired)
{
    struct repair repair = {.out = br_buf_new(pool, len + len / 8 + 64)};
    if (!repair.out)
        return BR_ENOMEM;
    int rc = utf8_repair_message(&repair, desc, data, data + len, 1);
    if (rc) {
        br_buf_unref(repair.out);
        return rc;
    }
    *ret = repair.out;
    *ret_repaired = repair.repaired;
    return 0;
}
