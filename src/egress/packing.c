/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/call.h"

#include "base/mem.h"
#include "base/str.h"
#include "core/task.h"
#include "otlp/json/json.h"

struct br_packing_job {
    struct br_task task;
    struct br_packing packing;
    enum br_signal signal;
    struct br_rope plain;
    struct br_codec *codec;
    struct br_buf *made;
    int rc;
    br_packing_fn *packed;
    void *arg;
};

int br_packing_to_json(const struct br_rope *plain, enum br_signal signal, struct br_pool *pool,
                       struct br_buf **ret)
{
    struct br_str text = {.max = BR_BUF_MAX - 1};
    struct br_buf *copy;
    const uint8_t *data = br_rope_bytes(plain, pool, &copy);
    int rc = data ? br_json_encode(br_otlp_request(signal), data, plain->len, &text) : BR_ENOMEM;
    struct br_buf *buf = rc ? NULL : br_buf_new(pool, text.len);
    if (!rc)
        rc = buf ? br_buf_append(&buf, text.data, text.len, BR_BUF_MAX) : BR_ENOMEM;
    br_buf_unref(copy);
    br_str_release(&text);
    if (rc)
        br_buf_unref(buf);
    else
        *ret = buf;
    return rc;
}

bool br_packing_any(const struct br_packing *packing)
{
    return packing->translate || packing->encoding != BR_ENCODING_NONE;
}

static int packing_compress(const struct br_packing *packing, struct br_codec *codec,
                            struct br_pool *pool, const struct br_rope *plain, struct br_buf **ret)
{
    return br_compress(codec, packing->encoding, packing->level, plain, 0, pool, ret);
}

/* Packs the body `plain` into a new buffer. Reads only the bytes of `plain`, and does not change
 * the reference counts of its buffers. */
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
    br_task_release(&job->task);
    br_free(job);
}

static void packing_on_run(struct br_task *task)
{
    struct br_packing_job *job = br_container_of(task, struct br_packing_job, task);
    job->rc = packing_make(&job->packing, job->signal, job->codec, task->host.pool, &job->plain,
                           &job->made);
}

static void packing_on_done(struct br_task *task)
{
    struct br_packing_job *job = br_container_of(task, struct br_packing_job, task);
    struct br_rope body = {0};
    br_packing_fn *packed = job->packed;
    void *arg = job->arg;
    int rc = job->rc;
    bool cancelled = br_task_is_cancelled(task);
    if (job->made) {
        br_buf_adopt(job->made, task->home->pool);
        if (!cancelled && !rc)
            rc = br_rope_add(&body, job->made, job->made->data, job->made->len);
    }
    packing_job_free(job);
    if (!cancelled)
        packed(arg, rc, &body);
}

struct br_packing_job *br_packing_job_new(struct br_host *host, const struct br_packing *packing,
                                          enum br_signal signal, struct br_rope *body,
                                          br_packing_fn *packed, void *arg)
{
    struct br_packing_job *job = br_calloc(1, sizeof *job);
    if (!job)
        return NULL;
    br_task_init(&job->task, host, packing_on_run, packing_on_done);
    job->codec = br_codec_new();
    if (br_task_add_pool(&job->task, NULL) || !job->codec) {
        packing_job_free(job);
        return NULL;
    }
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
    br_task_start(&job->task);
}

void br_packing_job_cancel(struct br_packing_job *job)
{
    br_task_cancel(&job->task);
}
