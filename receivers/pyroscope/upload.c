/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pyroscope/pyroscope.h"

#include <stdio.h>

#include "base/mem.h"

/* A builder grows with what it built; one that had to grow beyond this is not kept. */
#define KEPT_BYTES (8u << 20)
/* Text tables and stacks become larger when they are OTLP, and every sample type repeats its
 * samples. */
#define GROWTH 4
/* What a reader may take, however small bodies have to be. */
#define SCRATCH_MIN (16u << 20)
#define SPARE ((size_t)1 << 20)

static size_t scratch_max(const struct br_intake *x)
{
    size_t max = x->door->max_body;
    max = max > BR_BUF_MAX / GROWTH ? BR_BUF_MAX : max * GROWTH;
    return max > SCRATCH_MIN ? max : SCRATCH_MIN;
}

int upload_begin(struct upload *u, struct br_intake *x)
{
    struct pyroscope *p = x->arg;
    *u = (struct upload){.p = p, .x = x, .invalid = BR_STATUS_INVALID_ARGUMENT};
    br_arena_init(&u->scratch, scratch_max(x));
    if (!p->build)
        p->build = br_build_new(p->ingest.node->host, scratch_max(x));
    u->build = p->build;
    u->built = u->build ? br_build_memory(u->build) : 0;
    return u->build ? 0 : br_err_set(&u->err, BR_ENOMEM, "out of memory");
}

int upload_gunzip(struct upload *u, struct upload_bytes *bytes)
{
    size_t max = u->x->door->max_body;
    struct upload_bytes b = *bytes;
    struct br_buf *plain = NULL;
    for (int i = 0; b.len >= 2 && b.data[0] == 0x1f && b.data[1] == 0x8b; i++) {
        struct br_buf *next = NULL;
        int rc = i == UPLOAD_LAYERS
                     ? br_err_set(&u->err, BR_EINVAL, "more than %d times gzip", UPLOAD_LAYERS)
                     : br_decompress(u->p->ingest.codec, BR_ENCODING_GZIP, b.data, b.len,
                                     max - u->size, u->p->ingest.node->host->pool, &next, &u->err);
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

/* No memory would help what does not fit into an arena's maximum. */
static int too_large(struct upload *u, const struct br_arena *full)
{
    return br_err_set(&u->err, BR_ETOOBIG, "the request takes more than %zu bytes of memory",
                      full->max);
}

void upload_limit(struct upload *u)
{
    size_t max = scratch_max(u->x), limit = GROWTH * (u->body_len + u->size) + SPARE;
    u->scratch.max = limit < max ? limit : max;
    (void)br_build_limit(u->build, u->built + limit - u->scratch.used);
}

int upload_read(struct upload *u, enum br_profile_format format, const struct br_profile_source *s)
{
    struct br_arena scratch;
    br_arena_init(&scratch, scratch_max(u->x));
    int rc = br_profile_read(u->build, format, s, &scratch, &u->err);
    if (rc == BR_ENOMEM && scratch.full)
        rc = too_large(u, &scratch);
    br_arena_release(&scratch);
    return rc;
}

void upload_leave_out(struct upload *u, uint32_t n)
{
    if (!u->n_bad)
        u->first = u->err;
    u->n_bad += n;
    u->err = (struct br_err){0};
}

/* The answer's sentence, and the account, of what was left out. */
static int tell_bad(struct upload *u)
{
    char why[sizeof u->first.text + 64];
    if (!u->n_bad)
        return 0;
    (void)snprintf(why, sizeof why, "%u of the profiles left out, the others taken: %s", u->n_bad,
                   u->first.text);
    return br_intake_partly(u->x, u->n_bad, u->invalid, why);
}

static int send(struct upload *u)
{
    struct br_item *item = br_item_new(u->p->ingest.node->host, BR_PROFILES);
    int rc = item ? br_build_take(u->build, item) : BR_ENOMEM;
    if (!rc)
        rc = tell_bad(u);
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
    if (rc == BR_ENOMEM && u->scratch.full)
        rc = too_large(u, &u->scratch);
    if (!rc)
        rc = send(u);
    if (rc)
        fail(u, rc);
    upload_drop(u);
    br_arena_release(&u->scratch);
    if (u->build) {
        (void)br_build_limit(u->build, BR_BUF_MAX);
        br_build_clear(u->build);
    }
    if (u->build && br_build_memory(u->build) > KEPT_BYTES) {
        br_build_free(u->build);
        u->p->build = NULL;
    }
}
