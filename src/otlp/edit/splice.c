/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/edit/splice.h"

#include "base/err.h"
#include "base/mem.h"

void br_splice_init(struct br_splice *splice, struct br_pool *pool)
{
    *splice = (struct br_splice){.pool = pool};
}

void br_splice_release(struct br_splice *splice)
{
    br_buf_unref(splice->out);
    br_free(splice->frames);
    *splice = (struct br_splice){.pool = splice->pool};
}

void br_splice_begin(struct br_splice *splice, const uint8_t *src, size_t len)
{
    splice->out = br_buf_unref(splice->out);
    splice->src = splice->copied = src;
    splice->end = br_mem_end(src, len);
    splice->depth = 0;
}

static int splice_put(struct br_splice *splice, const void *data, size_t len)
{
    return br_buf_append(&splice->out, data, len, BR_BUF_MAX);
}

static int splice_copy_to(struct br_splice *splice, const uint8_t *p)
{
    int rc = splice_put(splice, splice->copied, (size_t)(p - splice->copied));
    if (!rc)
        splice->copied = p;
    return rc;
}

static int splice_put_head(struct br_splice *splice, uint32_t field, size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    return splice_put(splice, head, (size_t)(p - head));
}

static int splice_open_frame(struct br_splice *splice, struct br_frame *frame)
{
    int rc = splice_copy_to(splice, frame->at);
    if (rc)
        return rc;
    size_t len = (size_t)(frame->end - frame->data);
    frame->out_at = splice->out->len;
    frame->reserved = (uint32_t)br_varint_size(len);
    rc = splice_put_head(splice, frame->field, len);
    splice->copied = frame->data;
    frame->open = !rc;
    return rc;
}

/* Creates the output at the first change. Writes the tag and reserves the length of each message
 * that the walk has entered and that is not in the output yet. */
static int splice_open_frames(struct br_splice *splice)
{
    size_t len = (size_t)(splice->end - splice->src);
    if (!splice->out)
        splice->out = br_buf_new(splice->pool, len + len / 8 < BR_BUF_MAX ? len + len / 8 : len);
    int rc = splice->out ? 0 : BR_ENOMEM;
    for (uint32_t i = 0; i < splice->depth && !rc; i++) {
        if (!splice->frames[i].open)
            rc = splice_open_frame(splice, &splice->frames[i]);
    }
    return rc;
}

int br_splice_enter(struct br_splice *splice, const struct br_field *field, const uint8_t *next)
{
    int rc = br_grow(&splice->frames, &splice->cap, (size_t)splice->depth + 1,
                     sizeof *splice->frames, BR_SPLICE_DEPTH_MAX);
    if (!rc)
        splice->frames[splice->depth++] = (struct br_frame){
            .at = field->at, .data = field->data, .end = next, .field = field->number};
    return rc;
}

/* Leaves the innermost message and corrects its length prefix, because the message's final
 * length is now known. */
int br_splice_leave(struct br_splice *splice)
{
    const struct br_frame *frame = &splice->frames[--splice->depth];
    if (!frame->open)
        return 0;
    int rc = splice_copy_to(splice, frame->end);
    if (rc)
        return rc;
    uint32_t at = frame->out_at + (uint32_t)br_varint_size(BR_TAG(frame->field, BR_WIRE_LEN));
    size_t len = splice->out->len - at - frame->reserved, size = br_varint_size(len);
    if (size > frame->reserved && (rc = splice_put(splice, "0123456789", size - frame->reserved)))
        return rc;
    uint8_t *p = splice->out->data + at;
    if (size != frame->reserved)
        memmove(p + size, p + frame->reserved, len);
    br_put_varint(p, len);
    splice->out->len = (uint32_t)(at + size + len);
    return 0;
}

int br_splice_leave_out(struct br_splice *splice)
{
    const struct br_frame *frame = &splice->frames[--splice->depth];
    if (!frame->open)
        return br_splice_cut(splice, frame->at, frame->end);
    splice->out->len = frame->out_at;
    splice->copied = frame->end;
    return 0;
}

int br_splice_insert(struct br_splice *splice, const uint8_t *at, const void *data, size_t len)
{
    int rc = splice_open_frames(splice);
    if (!rc)
        rc = splice_copy_to(splice, at);
    return rc ? rc : splice_put(splice, data, len);
}

int br_splice_cut(struct br_splice *splice, const uint8_t *at, const uint8_t *next)
{
    int rc = br_splice_insert(splice, at, NULL, 0);
    splice->copied = next;
    return rc;
}

int br_splice_replace(struct br_splice *splice, uint32_t field, const uint8_t *at,
                      const uint8_t *next, const void *data, size_t len)
{
    int rc = br_splice_cut(splice, at, next);
    if (!rc)
        rc = splice_put_head(splice, field, len);
    return rc ? rc : splice_put(splice, data, len);
}

int br_splice_take(struct br_splice *splice, struct br_buf **ret)
{
    struct br_buf *small = NULL;
    int rc = splice->out ? splice_copy_to(splice, splice->end) : 0;
    if (rc)
        return rc;
    /* Copy the result to a smaller buffer if it uses less than half of its buffer: an item may
     * be queued for a long time. */
    if (splice->out && splice->out->len < splice->out->cap / 2)
        small = br_buf_new(splice->pool, splice->out->len);
    if (small) {
        br_put_bytes(small->data, splice->out->data, splice->out->len);
        small->len = splice->out->len;
        br_buf_unref(splice->out);
    }
    *ret = small ? small : splice->out;
    splice->out = NULL;
    return 0;
}
