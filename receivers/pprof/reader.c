/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "ingest/reading_job.h"
#include "receivers/pprof/pprof.h"

/* What is read once is larger as OTLP: every sample type repeats its samples. */
#define GROWTH 4
#define GROWN_MIN (1u << 20) /* of what is small, tables and names may be most */
#define KEPT_ITEMS 16384 /* a builder that held more is not kept */

struct pprof_reading {
    struct br_reading_job job;
    struct pprof_reading **slot; /* NULL once it was given up */
    pprof_end_fn *end;
    void *user;
};

/* --- Bytes to items --------------------------------------------------------------------------- */

static size_t grown(size_t max)
{
    if (max > BR_BUF_MAX / GROWTH)
        return BR_BUF_MAX;
    return max * GROWTH > GROWN_MIN ? max * GROWTH : GROWN_MIN;
}

/* True for what begins as gzip does. */
bool pprof_is_gzip(const uint8_t *data, size_t len)
{
    return len >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

int pprof_unpack(struct br_reading *r)
{
    int rc = br_reading_unpack(r);
    const struct br_buf *bytes = br_reading_bytes(r);
    struct br_buf *plain = NULL;
    if (rc || !bytes || !pprof_is_gzip(bytes->data, bytes->len))
        return rc;
    rc = br_reading_decompress(r, BR_ENCODING_GZIP, bytes->data, bytes->len, &plain);
    if (rc == 0)
        br_reading_replace(r, plain);
    return rc;
}

int pprof_guess(const uint8_t *data, size_t len, enum br_profile_format *ret, struct br_err *err)
{
    *ret = BR_FORMAT_FOLDED;
    if (len == 0 || br_profile_guess(data, len, ret))
        return 0;
    return br_err_set(err, BR_EINVAL,
                      "neither pprof, JFR, speedscope, folded text nor perf script's by its content");
}

/* Into the builder; what it took to read goes before the item is made. */
int pprof_build(struct br_reading *r, enum br_profile_format format,
                const struct br_profile_source *s)
{
    struct br_arena scratch;
    if (!r->bench->build)
        r->bench->build = br_build_new(r->host, grown(r->max_body));
    if (!r->bench->build)
        return br_err_set(&r->err, BR_ENOMEM, "out of memory");
    struct br_profile_lost lost = {0};
    struct br_profile_source source = *s;
    source.lost = &lost;
    br_arena_init(&scratch, grown(r->max_body));
    int rc = br_profile_read(r->bench->build, format, &source, &scratch, &r->err);
    br_arena_release(&scratch);
    if (lost.n && !r->n_lost)
        (void)snprintf(r->lost, sizeof r->lost, "%.199s", lost.first.text);
    r->n_lost += lost.n;
    return rc;
}

static int reader_take(struct br_reading *r)
{
    struct br_item *item = br_item_new(r->host, BR_PROFILES);
    int rc = item ? br_build_take(r->bench->build, item) : BR_ENOMEM;
    if (rc) {
        br_item_free(item);
        return br_err_set(&r->err, rc, "the profile cannot be converted: %s", br_strerror(rc));
    }
    r->item = item;
    return 0;
}

int pprof_read(struct br_reading *r, enum br_profile_format format, const struct br_profile_source *s)
{
    int rc = s->len ? pprof_build(r, format, s) : 0;
    if (!rc && s->len && format != BR_FORMAT_PPROF && !br_build_items(r->bench->build))
        rc = br_err_set(&r->err, BR_EINVAL, "there is no sample in it that could be understood%s",
                        format == BR_FORMAT_JFR ? ": none of its events is known" : "");
    return pprof_built(r, rc);
}

int pprof_built(struct br_reading *r, int rc)
{
    if (!rc && r->bench->build && br_build_items(r->bench->build))
        rc = reader_take(r);
    bool large = r->item && r->item->n_items > KEPT_ITEMS;
    if (large || rc == BR_ENOMEM) {
        br_build_free(r->bench->build);
        r->bench->build = NULL;
    } else if (r->bench->build) {
        br_build_clear(r->bench->build);
    }
    return rc;
}

/* --- At once, or in a thread ------------------------------------------------------------------ */

int pprof_reader_init(struct pprof_reader *r, struct br_host *host, size_t max)
{
    *r = (struct pprof_reader){.host = host, .max = max};
    return br_workbench_init(&r->bench);
}

void pprof_reader_release(struct pprof_reader *r)
{
    br_workbench_release(&r->bench);
}

static void on_ran(struct br_reading_job *job)
{
    struct pprof_reading *x = br_container_of(job, struct pprof_reading, job);
    if (x->slot) {
        *x->slot = NULL;
        x->end(x->user, &job->reading, job->rc);
    }
    br_reading_job_release(job);
    br_free(x);
}

void pprof_reading_leave(struct pprof_reading *x)
{
    if (!x)
        return;
    *x->slot = NULL;
    x->slot = NULL;
    br_reading_job_leave(&x->job);
    br_reading_job_wait(&x->job);
}

static int reader_offload(const struct br_reading *how, br_read_fn *read, pprof_end_fn *end,
                          void *user, struct pprof_reading **ret)
{
    struct pprof_reading *x = br_calloc(1, sizeof *x);
    if (!x)
        return BR_ENOMEM;
    if (br_reading_job_init(&x->job, how, read, on_ran)) {
        br_reading_job_release(&x->job);
        br_free(x);
        return BR_ENOMEM;
    }
    x->slot = ret;
    x->end = end;
    x->user = user;
    *ret = x;
    br_reading_job_start(&x->job);
    return 0;
}

void pprof_reader_start(struct pprof_reader *p, struct br_buf *body, br_read_fn *read,
                        const void *arg, pprof_end_fn *end, void *user, struct pprof_reading **ret)
{
    static const struct br_request nothing_asked;
    const struct br_reading how = {.arg = arg,
                                   .asked = &nothing_asked,
                                   .signal = BR_PROFILES,
                                   .format = BR_UPLOAD_OTHER,
                                   .max_body = p->max,
                                   .now_ns = br_host_unix_ns(p->host),
                                   .max_now = PPROF_READ_NOW,
                                   .host = p->host,
                                   .bench = &p->bench,
                                   .body = body};
    struct br_reading r = how;
    br_list_init(&r.pieces);
    *ret = NULL;
    int rc = body && body->len > r.max_now ? BR_EAGAIN : br_reading_run(&r, read);
    if (rc == BR_EAGAIN) {
        r.err = (struct br_err){0};
        rc = reader_offload(&how, read, end, user, ret);
        if (rc == 0)
            return;
    }
    end(user, &r, rc);
    br_reading_drop(&r);
}
