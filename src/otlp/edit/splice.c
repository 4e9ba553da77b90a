/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/edit/splice.h"

#include "base/err.h"
#include "base/mem.h"

void br_splice_init(struct br_splice *s, struct br_pool *pool)
{
    *s = (struct br_splice){.pool = pool};
}

void br_splice_release(struct br_splice *s)
{
    br_buf_unref(s->out);
    br_free(s->frames);
    *s = (struct br_splice){.pool = s->pool};
}

void br_splice_begin(struct br_splice *s, const uint8_t *src, size_t len)
{
    s->out = br_buf_unref(s->out);
    s->src = s->copied = src;
    s->end = src + len;
    s->depth = 0;
}

static int put(struct br_splice *s, const void *data, size_t len)
{
    return br_buf_append(&s->out, data, len, BR_BUF_MAX);
}

static int copy_to(struct br_splice *s, const uint8_t *p)
{
    int rc = put(s, s->copied, (size_t)(p - s->copied));
    if (!rc)
        s->copied = p;
    return rc;
}

static int put_head(struct br_splice *s, uint32_t field, size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    return put(s, head, (size_t)(p - head));
}

static int open_frame(struct br_splice *s, struct br_frame *f)
{
    int rc = copy_to(s, f->at);
    if (rc)
        return rc;
    size_t len = (size_t)(f->end - f->data);
    f->out_at = s->out->len;
    f->reserved = (uint32_t)br_varint_size(len);
    rc = put_head(s, f->field, len);
    s->copied = f->data;
    f->open = !rc;
    return rc;
}

/* Begins the output, if that has not been done, and opens every frame that the walk is in. */
static int open_frames(struct br_splice *s)
{
    size_t len = (size_t)(s->end - s->src);
    if (!s->out)
        s->out = br_buf_new(s->pool, len + len / 8 < BR_BUF_MAX ? len + len / 8 : len);
    int rc = s->out ? 0 : BR_ENOMEM;
    for (uint32_t i = 0; i < s->depth && !rc; i++) {
        if (!s->frames[i].open)
            rc = open_frame(s, &s->frames[i]);
    }
    return rc;
}

int br_splice_enter(struct br_splice *s, const struct br_field *f, const uint8_t *next)
{
    int rc =
        br_grow(&s->frames, &s->cap, (size_t)s->depth + 1, sizeof *s->frames, BR_SPLICE_DEPTH_MAX);
    if (!rc)
        s->frames[s->depth++] =
            (struct br_frame){.at = f->at, .data = f->data, .end = next, .field = f->number};
    return rc;
}

/* The length of the innermost message is known by now. */
int br_splice_leave(struct br_splice *s)
{
    const struct br_frame *f = &s->frames[--s->depth];
    if (!f->open)
        return 0;
    int rc = copy_to(s, f->end);
    if (rc)
        return rc;
    uint32_t at = f->out_at + (uint32_t)br_varint_size(BR_TAG(f->field, BR_WIRE_LEN));
    size_t len = s->out->len - at - f->reserved, size = br_varint_size(len);
    if (size > f->reserved && (rc = put(s, "0123456789", size - f->reserved)))
        return rc;
    uint8_t *p = s->out->data + at;
    if (size != f->reserved)
        memmove(p + size, p + f->reserved, len);
    br_put_varint(p, len);
    s->out->len = (uint32_t)(at + size + len);
    return 0;
}

int br_splice_leave_out(struct br_splice *s)
{
    const struct br_frame *f = &s->frames[--s->depth];
    if (!f->open)
        return br_splice_cut(s, f->at, f->end);
    s->out->len = f->out_at;
    s->copied = f->end;
    return 0;
}

int br_splice_insert(struct br_splice *s, const uint8_t *at, const void *data, size_t len)
{
    int rc = open_frames(s);
    if (!rc)
        rc = copy_to(s, at);
    return rc ? rc : put(s, data, len);
}

int br_splice_cut(struct br_splice *s, const uint8_t *at, const uint8_t *next)
{
    int rc = br_splice_insert(s, at, NULL, 0);
    s->copied = next;
    return rc;
}

int br_splice_replace(struct br_splice *s, uint32_t field, const uint8_t *at, const uint8_t *next,
                      const void *data, size_t len)
{
    int rc = br_splice_cut(s, at, next);
    if (!rc)
        rc = put_head(s, field, len);
    return rc ? rc : put(s, data, len);
}

int br_splice_take(struct br_splice *s, struct br_buf **ret)
{
    struct br_buf *small = NULL;
    int rc = s->out ? copy_to(s, s->end) : 0;
    if (rc)
        return rc;
    /* Little may be left, and be held for long. */
    if (s->out && s->out->len < s->out->cap / 2)
        small = br_buf_new(s->pool, s->out->len);
    if (small) {
        br_put_bytes(small->data, s->out->data, s->out->len);
        small->len = s->out->len;
        br_buf_unref(s->out);
    }
    *ret = small ? small : s->out;
    s->out = NULL;
    return 0;
}
