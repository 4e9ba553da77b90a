/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/job.h"

#include <string.h>

#include "base/mem.h"
#include "ingest/reading_job.h"

/* A reading in a thread, with a copy of what was asked: the client may go away meanwhile. */
struct br_upload_job {
    struct br_reading_job job;
    struct br_list link; /* the ingest's jobs */
    struct br_upload *x; /* NULL once that was given up */
    struct br_request asked;
    struct br_header *headers;
    char *text; /* of the query and the headers */
};

/* --- What was asked --------------------------------------------------------------------------- */

static const char *copy_text(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

static size_t text_size(const struct br_request *r)
{
    size_t size = strlen(r->query) + 1;
    for (size_t i = 0; i < r->n_headers; i++)
        size += strlen(r->headers[i].name) + strlen(r->headers[i].value) + 2;
    return size;
}

static int copy_request(struct br_upload_job *job, const struct br_request *r)
{
    job->headers = br_calloc(r->n_headers + 1, sizeof *job->headers);
    job->text = br_malloc(text_size(r));
    if (!job->headers || !job->text)
        return BR_ENOMEM;
    char *at = job->text;
    job->asked = (struct br_request){.query = copy_text(&at, r->query),
                                     .headers = job->headers,
                                     .n_headers = r->n_headers,
                                     .grpc = r->grpc,
                                     .grpc_compressed = r->grpc_compressed};
    for (size_t i = 0; i < r->n_headers; i++) {
        job->headers[i].name = copy_text(&at, r->headers[i].name);
        job->headers[i].value = copy_text(&at, r->headers[i].value);
    }
    return 0;
}

/* --- Readings --------------------------------------------------------------------------------- */

static void reading_init(struct br_reading *r, const struct br_upload *x, struct br_host *home,
                         struct br_buf *body)
{
    *r = (struct br_reading){.arg = x->arg,
                             .asked = x->request,
                             .signal = x->signal,
                             .format = x->format,
                             .encoding = x->encoding,
                             .max_body = x->request->max_body,
                             .now_ns = br_host_unix_ns(home),
                             .max_now = x->kind->read_now,
                             .host = home,
                             .bench = &x->listener->ingest->bench,
                             .body = body,
                             .invalid = BR_STATUS_INVALID_ARGUMENT};
    br_list_init(&r->pieces);
}

static void reading_fail(struct br_upload *x, const struct br_reading *r, int rc)
{
    const char *why = br_reading_why(r, rc);
    if (rc == BR_ENOMEM)
        br_upload_refuse(x, why);
    else if (rc == BR_ETOOBIG || rc == BR_EFULL)
        br_upload_reject(x, BR_STATUS_RESOURCE_EXHAUSTED, why);
    else
        br_upload_reject(x, r->invalid, why);
}

/* In the worker: the reading has ended. */
static void reading_end(struct br_upload *x, struct br_reading *r, int rc)
{
    if (rc == 0 && r->n_left_out)
        rc = br_upload_partly(x, r->n_left_out, r->invalid, r->left_out);
    if (rc) {
        br_reading_drop(r);
        reading_fail(x, r, rc);
        return;
    }
    if (x->kind->on_read)
        x->kind->on_read(x, r);
    struct br_item *item = r->item;
    r->item = NULL;
    br_upload_send(x, item, &r->pieces);
}

/* --- Jobs ------------------------------------------------------------------------------------- */

static void job_free(struct br_upload_job *job)
{
    br_reading_job_release(&job->job);
    br_free(job->headers);
    br_free(job->text);
    br_free(job);
}

/* Also when it never ran: then nobody waits for it. */
static void on_ran(struct br_reading_job *base)
{
    struct br_upload_job *job = br_container_of(base, struct br_upload_job, job);
    struct br_upload *x = job->x;
    br_list_remove(&job->link);
    if (x) {
        x->job = NULL;
        reading_end(x, &job->job.reading, job->job.rc);
    }
    job_free(job);
}

static struct br_upload_job *job_new(struct br_upload *x, const struct br_reading *how)
{
    struct br_upload_job *job = br_calloc(1, sizeof *job);
    if (!job)
        return NULL;
    br_list_init(&job->link);
    if (br_reading_job_init(&job->job, how, x->kind->read, on_ran) || copy_request(job, x->request)) {
        job_free(job);
        return NULL;
    }
    job->job.reading.asked = &job->asked;
    return job;
}

void br_upload_job_leave(struct br_upload *x)
{
    struct br_upload_job *job = x->job;
    x->job = NULL;
    job->x = NULL;
    br_reading_job_leave(&job->job);
}

void br_upload_jobs_wait(struct br_list *jobs)
{
    struct br_list *l;
    while ((l = br_list_shift(jobs)))
        br_reading_job_wait(&br_container_of(l, struct br_upload_job, link)->job);
}

/* Takes the body: its count is not for two threads. */
static void job_start(struct br_upload *x, const struct br_reading *how)
{
    struct br_upload_job *job = job_new(x, how);
    br_buf_unref(how->body);
    if (!job) {
        br_upload_refuse(x, "out of memory");
        return;
    }
    job->x = x;
    x->job = job;
    br_list_append(&x->listener->ingest->jobs, &job->link);
    br_reading_job_start(&job->job);
}

void br_upload_read(struct br_upload *x, struct br_buf *body)
{
    struct br_reading how, r;
    reading_init(&how, x, x->listener->ingest->node->host, body);
    r = how;
    br_list_init(&r.pieces);
    int rc = body->len > r.max_now ? BR_EAGAIN : br_reading_run(&r, x->kind->read);
    if (rc == BR_EAGAIN) {
        job_start(x, &how);
        return;
    }
    br_buf_unref(body);
    reading_end(x, &r, rc);
}
