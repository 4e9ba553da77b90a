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

static int put(struct repair *r, const void *data, size_t len)
{
    return br_buf_append(&r->out, data, len, BR_BUF_MAX) ? BR_ENOMEM : 0;
}

static int put_prefix(struct repair *r, uint32_t field, size_t len)
{
    uint8_t prefix[2 * BR_VARINT_MAX], *p = br_put_varint(prefix, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    return put(r, prefix, (size_t)(p - prefix));
}

static int put_string(struct repair *r, const struct br_field *f, const uint8_t *next)
{
    if (br_utf8_valid(f->data, f->value) == f->value)
        return put(r, f->at, (size_t)(next - f->at));
    size_t len = br_utf8_mend(f->data, f->value, NULL);
    int rc = put_prefix(r, f->number, len);
    if (!rc && r->out->len + len > BR_BUF_MAX)
        rc = BR_ENOMEM;
    if (!rc)
        rc = br_buf_reserve(&r->out, r->out->len + len);
    if (rc)
        return rc;
    r->out->len += (uint32_t)br_utf8_mend(f->data, f->value, r->out->data + r->out->len);
    r->repaired++;
    return 0;
}

static int repair_message(struct repair *r, const ProtobufCMessageDescriptor *desc,
                          const uint8_t *p, const uint8_t *end, unsigned depth);

static int put_message(struct repair *r, const ProtobufCMessageDescriptor *desc,
                       const struct br_field *f, const uint8_t *next, unsigned depth)
{
    uint32_t start = r->out->len, repaired = r->repaired;
    int rc = repair_message(r, desc, f->data, f->data + f->value, depth);
    if (rc)
        return rc;
    if (r->repaired == repaired) {
        r->out->len = start;
        return put(r, f->at, (size_t)(next - f->at));
    }
    /* The length is known only now: make room for the prefix before the content. */
    size_t len = r->out->len - start;
    rc = put_prefix(r, f->number, len);
    if (rc)
        return rc;
    size_t prefix_len = r->out->len - start - len;
    uint8_t prefix[2 * BR_VARINT_MAX];
    memcpy(prefix, r->out->data + start + len, prefix_len);
    memmove(r->out->data + start + prefix_len, r->out->data + start, len);
    memcpy(r->out->data + start, prefix, prefix_len);
    return 0;
}

static int repair_message(struct repair *r, const ProtobufCMessageDescriptor *desc,
                          const uint8_t *p, const uint8_t *end, unsigned depth)
{
    struct br_field f;
    if (depth > BR_WALK_DEPTH_MAX)
        return BR_EINVAL;
    while (p < end) {
        p = br_field_next(p, end, &f);
        if (!p)
            return BR_EINVAL;
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(desc, f.number);
        int rc;
        if (field && f.wire == BR_WIRE_LEN && field->type == PROTOBUF_C_TYPE_STRING)
            rc = put_string(r, &f, p);
        else if (field && f.wire == BR_WIRE_LEN && field->type == PROTOBUF_C_TYPE_MESSAGE)
            rc = put_message(r, field->descriptor, &f, p, depth + 1);
        else
            rc = put(r, f.at, (size_t)(p - f.at));
        if (rc)
            return rc;
    }
    return 0;
}

int br_utf8_repair(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                   struct br_pool *pool, struct br_buf **ret, uint32_t *ret_repaired)
{
    struct repair r = {.out = br_buf_new(pool, len + len / 8 + 64)};
    if (!r.out)
        return BR_ENOMEM;
    int rc = repair_message(&r, desc, data, data + len, 1);
    if (rc) {
        br_buf_unref(r.out);
        return rc;
    }
    *ret = r.out;
    *ret_repaired = r.repaired;
    return 0;
}
