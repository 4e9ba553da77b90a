/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/packing.h"

#include <stdatomic.h>

#include "base/mem.h"

struct br_packing_job {
    struct br_work work;
    struct br_host *home;
    struct br_packing packing;
    enum br_signal signal;
    struct br_rope plain;
    struct br_pool *pool;
    struct br_codec *codec;
    struct br_buf *made;
    int rc;
    _Atomic bool left;
    br_packing_fn *packed;
    void *arg;
};

bool br_packing_any(const struct br_packing *packing)
{
    return packing->translate || packing->encoding != BR_ENCODING_NONE;
}

static int packing_compress(const struct br_packing *packing, struct br_codec *codec,
                            struct br_pool *pool, const struct br_rope *plain, struct br_buf **ret)
{
    return br_compress(codec, packing->encoding, packing->level, plain, 0, pool, ret);
}

/* Of `plain` only bytes are read. */
static int packing_make(const struct br_packing *packing, enum br_signal signal,
                        struct br_codec *codec, struct br_pool *pool, const struct br_rope *plain,
                        struct br_buf **ret)
{
    struct br_buf *translated = NULL;
    struct br_slice slice;
    if (!packing->translate)
        return packing_compress(packing, codec, pool, plain, ret);
    int rc = packing->translate(plain, signal, pool, &translated);
    if (rc || packing->encoding == BR_ENCODING_NONE) {
        *ret = translated;
        return rc;
    }
    slice = (struct br_slice){translated, translated->data, translated->len};
    rc = packing_compress(packing, codec, pool, &(struct br_rope){&slice, 1, 1, slice.len}, ret);
    br_buf_unref(translated);
    return rc;
}

int br_packing_write(const struct br_packing *packing, enum br_signal signal,
                     struct br_codec *codec, struct br_pool *pool, struct br_rope *body)
{
    struct br_buf *made = NULL;
    int rc = br_packing_any(packing) ? packing_make(packing, signal, codec, pool, body, &made) : 0;
    if (!made)
        return rc;
    br_rope_release(body);
    rc = br_rope_add(body, made, made->data, made->len);
    br_buf_unref(made);
    return rc;
}

/* --- Jobs ------------------------------------------------------------------------------------- */

static void packing_job_free(struct br_packing_job *job)
{
    br_rope_release(&job->plain);
    br_buf_unref(job->made);
    br_codec_free(job->codec);
    br_pool_free(job->pool);
    br_free(job);
}

static void packing_on_run(struct br_work *work)
{
    struct br_packing_job *job = br_container_of(work, struct br_packing_job, work);
    if (atomic_load_explicit(&job->left, memory_order_relaxed))
        return;
    job->rc =
        packing_make(&job->packing, job->signal, job->codec, job->pool, &job->plain, &job->made);
    br_mem_flush();
}

static void packing_on_ran(struct br_work *work)
{
    struct br_packing_job *job = br_container_of(work, struct br_packing_job, work);
    struct br_rope body = {0};
    br_packing_fn *packed = job->packed;
    void *arg = job->arg;
    int rc = job->rc;
    bool left = atomic_load_explicit(&job->left, memory_order_relaxed);
    if (job->made)
        br_buf_adopt(job->made, job->home->pool);
    if (!left && !rc)
        rc = br_rope_add(&body, job->made, job->made->data, job->made->len);
    packing_job_free(job);
    if (!left)
        packed(arg, rc, &body);
}

struct br_packing_job *br_packing_job_new(struct br_host *host, const struct br_packing *packing,
                                          enum br_signal signal, struct br_rope *body,
                                          br_packing_fn *packed, void *arg)
{
    struct br_packing_job *job = br_calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->pool = br_pool_new(0);
    job->codec = br_codec_new();
    if (!job->pool || !job->codec) {
        packing_job_free(job);
        return NULL;
    }
    job->work = (struct br_work){.run = packing_on_run, .done = packing_on_ran};
    job->home = host;
    job->packing = *packing;
    job->signal = signal;
    job->plain = *body;
    job->packed = packed;
    job->arg = arg;
    *body = (struct br_rope){0};
    return job;
}

void br_packing_job_start(struct br_packing_job *job)
{
    br_host_work(job->home, &job->work);
}

void br_packing_job_leave(struct br_packing_job *job)
{
    atomic_store_explicit(&job->left, true, memory_order_relaxed);
}
