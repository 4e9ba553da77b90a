/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pyroscope/pyroscope.h"

#include <stdio.h>

#include "base/mem.h"
#include "ingest/pieces.h"

/* A builder grows with what it built; one that had to grow beyond this is not kept. */
#define KEPT_BYTES (8u << 20)
/* Text tables and stacks become larger when they are OTLP, and every sample type repeats its
 * samples. */
#define GROWTH 4
/* What a reader may take, however small bodies have to be. */
#define SCRATCH_MIN (16u << 20)
#define SPARE ((size_t)1 << 20)
#define LOG_EVERY_MS 60000

static size_t scratch_max(const struct upload *u)
{
    size_t max = u->r->max_body;
    max = max > BR_BUF_MAX / GROWTH ? BR_BUF_MAX : max * GROWTH;
    return max > SCRATCH_MIN ? max : SCRATCH_MIN;
}

int upload_begin(struct upload *u, struct br_reading *r)
{
    struct br_workbench *bench = r->bench;
    *u = (struct upload){.r = r};
    br_arena_init(&u->scratch, scratch_max(u));
    if (!bench->build)
        bench->build = br_build_new(r->host, scratch_max(u));
    u->build = bench->build;
    u->built = u->build ? br_build_memory(u->build) : 0;
    return u->build ? 0 : br_err_set(&r->err, BR_ENOMEM, "out of memory");
}

int upload_gunzip(struct upload *u, struct upload_bytes *bytes)
{
    struct br_err *err = &u->r->err;
    struct upload_bytes b = *bytes;
    struct br_buf *plain = NULL;
    for (int i = 0; b.len >= 2 && b.data[0] == 0x1f && b.data[1] == 0x8b; i++) {
        struct br_buf *next = NULL;
        int rc = i == UPLOAD_LAYERS
                     ? br_err_set(err, BR_EINVAL, "more than %d times gzip", UPLOAD_LAYERS)
                     : br_reading_decompress(u->r, BR_ENCODING_GZIP, b.data, b.len, &next);
        br_buf_unref(plain);
        if (rc)
            return rc;
        plain = next;
        b = (struct upload_bytes){plain->data, plain->len};
    }
    if (plain && u->n_plain == BR_COUNT(u->plain)) {
        br_buf_unref(plain);
        return br_err_set(err, BR_EINVAL, "too many compressed pieces");
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
    return br_err_set(&u->r->err, BR_ETOOBIG, "the request takes more than %zu bytes of memory",
                      full->max);
}

void upload_limit(struct upload *u)
{
    size_t max = scratch_max(u), unpacked = u->r->plain - u->unpacked;
    size_t limit = GROWTH * (u->body_len + unpacked) + SPARE;
    u->scratch.max = limit < max ? limit : max;
    (void)br_build_limit(u->build, u->built + limit - u->scratch.used);
}

int upload_read(struct upload *u, enum br_profile_format format, const struct br_profile_source *s)
{
    struct br_arena scratch;
    struct br_profile_source source = *s;
    source.lost = &u->lost;
    br_arena_init(&scratch, scratch_max(u));
    int rc = br_profile_read(u->build, format, &source, &scratch, &u->r->err);
    if (rc == BR_ENOMEM && scratch.full)
        rc = too_large(u, &scratch);
    br_arena_release(&scratch);
    return rc;
}

void upload_leave_out(struct upload *u, uint32_t n)
{
    if (!u->n_bad)
        u->first = u->r->err;
    u->n_bad += n;
    u->r->err = (struct br_err){0};
}

/* Says what was left out. */
static void tell_bad(struct upload *u)
{
    struct br_reading *r = u->r;
    r->n_left_out = u->n_bad;
    if (u->n_bad)
        (void)snprintf(r->left_out, sizeof r->left_out,
                       "%u of the profiles left out, the others taken: %.300s", u->n_bad,
                       u->first.text);
    r->n_lost = u->lost.n;
    (void)snprintf(r->lost, sizeof r->lost, "%.199s", u->lost.first.text);
}

void upload_on_read(struct br_upload *x, const struct br_reading *r)
{
    struct pyroscope *p = x->arg;
    struct br_node *node = p->ingest.node;
    uint64_t held;
    *x->meter->failed[BR_PROFILES] += r->n_lost;
    if (r->n_lost && br_log_allow(&p->lost_limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        br_warn(&node->log, "%u samples of a profile are left out: %s (%llu more such profiles)",
                r->n_lost, r->lost, (unsigned long long)held);
}

static int make_item(struct upload *u)
{
    struct br_reading *r = u->r;
    r->item = br_item_new(r->host, BR_PROFILES);
    int rc = r->item ? br_build_take(u->build, r->item) : BR_ENOMEM;
    if (!rc)
        tell_bad(u);
    return rc ? rc : br_pieces_cut(r, NULL);
}

int upload_end(struct upload *u, int rc)
{
    struct br_workbench *bench = u->r->bench;
    if (rc == BR_ENOMEM && u->scratch.full)
        rc = too_large(u, &u->scratch);
    if (!rc)
        rc = make_item(u);
    upload_drop(u);
    br_arena_release(&u->scratch);
    if (u->build) {
        (void)br_build_limit(u->build, BR_BUF_MAX);
        br_build_clear(u->build);
    }
    if (u->build && br_build_memory(u->build) > KEPT_BYTES) {
        br_build_free(u->build);
        bench->build = NULL;
    }
    return rc;
}
