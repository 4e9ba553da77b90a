/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pyroscope/pyroscope.h"

#include "base/mem.h"

/* A builder grows with what it built; one that had to grow beyond this is not kept. */
#define KEPT_BYTES (1u << 20)
#define KEPT_ITEMS 16384
/* Text tables and stacks become larger when they are OTLP, and every sample type repeats its samples. */
#define GROWTH 4

int upload_begin(struct upload *u, struct br_intake *x)
{
    struct pyroscope *p = x->arg;
    size_t max = x->door->max_body;
    max = max > BR_BUF_MAX / GROWTH ? BR_BUF_MAX : max * GROWTH;
    *u = (struct upload){.p = p, .x = x, .invalid = BR_STATUS_INVALID_ARGUMENT};
    br_arena_init(&u->scratch, max);
    if (!p->build)
        p->build = br_build_new(p->ingest.node->host, max);
    u->build = p->build;
    return u->build ? 0 : br_err_set(&u->err, BR_ENOMEM, "out of memory");
}

int upload_gunzip(struct upload *u, struct upload_bytes *bytes)
{
    size_t max = u->x->door->max_body;
    struct upload_bytes b = *bytes;
    struct br_buf *plain = NULL;
    for (int i = 0; i < UPLOAD_LAYERS && b.len >= 2 && b.data[0] == 0x1f && b.data[1] == 0x8b; i++) {
        struct br_buf *next = NULL;
        int rc = br_decompress(u->p->ingest.codec, BR_ENCODING_GZIP, b.data, b.len, max - u->size,
                               u->p->ingest.node->host->pool, &next, &u->err);
        br_buf_unref(plain);
        if (rc)
            return rc;
        plain = next;
        u->size += plain->len;
        b = (struct upload_bytes){plain->data, plain->len};
    }
    if (plain && u->n_plain == BR_COUNT(u->plain)) {
        br_buf_unref(plain);
        return br_err_set(&u->err, BR_EINVAL, "too many compressed pieces");
    }
    if (plain)
        u->plain[u->n_plain++] = plain;
    *bytes = b;
    return 0;
}

void upload_drop(struct upload *u)
{
    while (u->n_plain)
        br_buf_unref(u->plain[--u->n_plain]);
}

static int send(struct upload *u)
{
    struct br_item *item = br_item_new(u->p->ingest.node->host, BR_PROFILES);
    int rc = item ? br_build_take(u->build, item) : BR_ENOMEM;
    if (rc) {
        br_item_free(item);
        return rc;
    }
    br_intake_send(u->x, item);
    return 0;
}

static void fail(struct upload *u, int rc)
{
    const char *why = u->err.text[0] ? u->err.text : br_strerror(rc);
    if (rc == BR_ETOOBIG || rc == BR_EFULL)
        br_intake_reject(u->x, BR_STATUS_RESOURCE_EXHAUSTED, why);
    else if (rc == BR_ENOMEM)
        br_intake_refuse(u->x, why);
    else
        br_intake_reject(u->x, u->invalid, why);
}

void upload_end(struct upload *u, int rc)
{
    bool large = u->size > KEPT_BYTES || (u->build && br_build_items(u->build) > KEPT_ITEMS);
    if (!rc)
        rc = send(u);
    if (rc)
        fail(u, rc);
    upload_drop(u);
    br_arena_release(&u->scratch);
    if (large) {
        br_build_free(u->build);
        u->p->build = NULL;
    } else if (u->build) {
        br_build_clear(u->build);
    }
}
