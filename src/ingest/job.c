/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/job.h"

#include <string.h>

#include "base/mem.h"
#include "ingest/reading_job.h"

/* A reading in a thread, with a copy of what was asked: the client may go away meanwhile. */
struct br_upload_job {
    struct br_reading_job job;
    struct br_list link;      /* the ingest's jobs */
    struct br_upload *upload; /* NULL once that was given up */
    struct br_request asked;
    struct br_header *headers;
    char *text; /* of the query and the headers */
};

/* --- What was asked --------------------------------------------------------------------------- */

static const char *job_copy_text(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

static size_t job_text_size(const struct br_request *request)
{
    size_t size = strlen(request->query) + 1;
    for (size_t i = 0; i < request->n_headers; i++)
        size += strlen(request->headers[i].name) + strlen(request->headers[i].value) + 2;
    return size;
}

static int job_copy_request(struct br_upload_job *job, const struct br_request *request)
{
    job->headers = br_calloc(request->n_headers + 1, sizeof *job->headers);
    job->text = br_malloc(job_text_size(request));
    if (!job->headers || !job->text)
        return BR_ENOMEM;
    char *at = job->text;
    job->asked = (struct br_request){.query = job_copy_text(&at, request->query),
                                     .headers = job->headers,
                                     .n_headers = request->n_headers,
                                     .grpc = request->grpc,
                                     .grpc_compressed = request->grpc_compressed};
    for (size_t i = 0; i < request->n_headers; i++) {
        job->headers[i].name = job_copy_text(&at, request->headers[i].name);
        job->headers[i].value = job_copy_text(&at, request->headers[i].value);
    }
    return 0;
}

/* --- Readings --------------------------------------------------------------------------------- */

static void job_reading_init(struct br_reading *reading, const struct br_upload *upload,
                             struct br_host *home, struct br_buf *body)
{
    *reading = (struct br_reading){.arg = upload->arg,
                                   .asked = upload->request,
                                   .signal = upload->signal,
                                   .format = upload->format,
                                   .encoding = upload->encoding,
                                   .max_body = upload->request->max_body,
                                   .now_ns = br_host_unix_ns(home),
                                   .max_now = upload->kind->read_now,
                                   .host = home,
                                   .bench = &upload->listener->ingest->bench,
                                   .body = body,
                                   .invalid = BR_STATUS_INVALID_ARGUMENT};
    br_list_init(&reading->pieces);
}

static void job_reading_fail(struct br_upload *upload, const struct br_reading *reading, int rc)
{
    const char *why = br_reading_why(reading, rc);
    if (rc == BR_ENOMEM)
        br_upload_refuse(upload, why);
    else if (rc == BR_ETOOBIG || rc == BR_EFULL)
        br_upload_reject(upload, BR_STATUS_RESOURCE_EXHAUSTED, why);
    else
        br_upload_reject(upload, reading->invalid, why);
}

/* In the worker: the reading has ended. */
static void job_reading_end(struct br_upload *upload, struct br_reading *reading, int rc)
{
    if (rc == 0 && reading->n_left_out)
        rc = br_upload_partly(upload, reading->n_left_out, reading->invalid, reading->left_out);
    if (rc) {
        br_reading_drop(reading);
        job_reading_fail(upload, reading, rc);
        return;
    }
    if (upload->kind->on_read)
        upload->kind->on_read(upload, reading);
    struct br_item *item = reading->item;
    reading->item = NULL;
    br_upload_send(upload, item, &reading->pieces);
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
static void job_on_ran(struct br_reading_job *base)
{
    struct br_upload_job *job = br_container_of(base, struct br_upload_job, job);
    struct br_upload *upload = job->upload;
    br_list_remove(&job->link);
    if (upload) {
        upload->job = NULL;
        job_reading_end(upload, &job->job.reading, job->job.rc);
    }
    job_free(job);
}

static struct br_upload_job *job_new(struct br_upload *upload, const struct br_reading *how)
{
    struct br_upload_job *job = br_calloc(1, sizeof *job);
    if (!job)
        return NULL;
    br_list_init(&job->link);
    if (br_reading_job_init(&job->job, how, upload->kind->read, job_on_ran) ||
        job_copy_request(job, upload->request)) {
        job_free(job);
        return NULL;
    }
    job->job.reading.asked = &job->asked;
    return job;
}

void br_upload_job_leave(struct br_upload *upload)
{
    struct br_upload_job *job = upload->job;
    upload->job = NULL;
    job->upload = NULL;
    br_reading_job_leave(&job->job);
}

void br_upload_jobs_wait(struct br_list *jobs)
{
    struct br_list *list;
    while ((list = br_list_shift(jobs)))
        br_reading_job_wait(&br_container_of(list, struct br_upload_job, link)->job);
}

/* Takes the body: its count is not for two threads. */
static void job_start(struct br_upload *upload, const struct br_reading *how)
{
    struct br_upload_job *job = job_new(upload, how);
    br_buf_unref(how->body);
    if (!job) {
        br_upload_refuse(upload, "out of memory");
        return;
    }
    job->upload = upload;
    upload->job = job;
    br_list_append(&upload->listener->ingest->jobs, &job->link);
    br_reading_job_start(&job->job);
}

void br_upload_read(struct br_upload *upload, struct br_buf *body)
{
    struct br_reading how, r;
    job_reading_init(&how, upload, upload->listener->ingest->node->host, body);
    r = how;
    br_list_init(&r.pieces);
    int rc = body->len > r.max_now ? BR_EAGAIN : br_reading_run(&r, upload->kind->read);
    if (rc == BR_EAGAIN) {
        job_start(upload, &how);
        return;
    }
    br_buf_unref(body);
    job_reading_end(upload, &r, rc);
}
