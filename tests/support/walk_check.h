/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over requests that tests have written by hand. */
#pragma once

#include "otlp/walk/walk.h"
#include "tests/support/fake_host.h"
#include "tests/support/wire.h"

/* The options and the result of a walk. The item is valid until the next call of walk_check. */
struct walk_check {
    struct fake_host *h;
    enum br_signal signal;
    struct br_walk_options options;
    struct br_item *item; /* NULL if the walk failed */
    uint32_t repaired;
    struct br_err err;
};

static inline void walk_check_drop(struct walk_check *c)
{
    br_item_free(c->item);
    c->item = NULL;
}

/* Setup and teardown of tests (cmocka). `*state` is a walk_check for this signal. */
static inline int walk_check_setup(void **state, enum br_signal signal)
{
    struct walk_check *c = calloc(1, sizeof *c);
    if (!c)
        return -1;
    c->h = fake_host_new();
    c->signal = signal;
    *state = c;
    return 0;
}

static inline int walk_check_teardown(void **state)
{
    struct walk_check *c = *state;
    br_walk_memo_release(c->options.memo ? c->options.memo : &(struct br_walk_memo){0});
    walk_check_drop(c);
    fake_host_free(c->h);
    free(c);
    return 0;
}

/* Walks over the bytes, which are copied to a buffer of their size. Returns the result of
 * br_walk. */
static inline int walk_check(struct walk_check *c, const struct wire *w)
{
    walk_check_drop(c);
    struct br_buf *buf = br_buf_new(c->h->host.pool, w->len);
    if (w->len)
        memcpy(buf->data, w->data, w->len);
    buf->len = (uint32_t)w->len;
    /* bytes that the walk may read, but whose content must not matter */
    memset(buf->data + w->len, 0xff, BR_BUF_SLACK);
    c->item = br_item_new(&c->h->host, c->signal);
    c->err = (struct br_err){0};
    int rc = br_walk(c->item, buf, buf->data, buf->len, &c->options, &c->repaired, &c->err);
    br_buf_unref(buf);
    if (rc)
        walk_check_drop(c);
    return rc;
}

/* Returns true if br_item_write writes the bytes `want`, and the size of the item is their
 * number. */
static inline bool walk_check_writes(struct walk_check *c, const struct wire *want)
{
    struct br_rope rope = {0};
    const uint8_t *data;
    bool same =
        br_item_write(c->item, &rope) == 0 && rope.len == want->len && c->item->size == want->len;
    struct br_buf *flat = same ? br_rope_flat(&rope, c->h->host.pool, &data) : NULL;
    same = same && (!want->len || memcmp(data, want->data, want->len) == 0);
    br_buf_unref(flat);
    br_rope_release(&rope);
    return same;
}
