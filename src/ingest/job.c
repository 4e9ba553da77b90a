/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/job.h"

#include <string.h>

#include "base/mem.h"
#include "ingest/pieces.h"

/* A reading in a thread, with a host, a pool and a workbench of its own, and a copy of what was asked:
 * the client may go away meanwhile. */
struct br_intake_job {
    struct br_work work;
    struct br_list link; /* the ingest's jobs */
    struct br_intake *x; /* NULL once that was given up */
    struct br_host host;
    struct br_workbench bench;
    struct br_reading reading;
    struct br_request asked;
    struct br_header *headers;
    char *text; /* of the query and the headers */
    struct br_host *home;
    const struct br_intake_kind *kind;
    int rc;
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

static int copy_request(struct br_intake_job *job, const struct br_request *r)
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

static size_t scope_max(const struct br_buf *body)
{
    return (size_t)body->len * BR_READING_GROWTH + BR_READING_ROOM;
}

static void reading_init(struct br_reading *r, const struct br_intake *x, struct br_host *home,
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
                             .bench = &x->door->ingest->bench,
                             .body = body,
                             .invalid = BR_STATUS_INVALID_ARGUMENT};
    br_list_init(&r->pieces);
}

static void reading_drop(struct br_reading *r)
{
    br_pieces_free(&r->pieces);
    br_item_free(r->item);
    r->item = NULL;
}

/* What was refused for the budget is more than an idle process has: the body, which stays, and the rest. */
static bool reading_never_fits(const struct br_reading *r)
{
    const struct br_memory *memory = r->host->memory;
    return memory && r->scope.refused && r->body->cap + r->scope.wanted > br_memory_largest(memory);
}

/* Reads inside the scope; what memory refuses is told apart from what is wrong. */
static int reading_run(struct br_reading *r, const struct br_intake_kind *kind)
{
    br_mem_scope_begin(&r->scope, scope_max(r->body), r->host->memory);
    int rc = kind->read(r);
    if (rc)
        reading_drop(r);
    br_reading_replace(r, NULL);
    br_mem_scope_end(&r->scope);
    if (rc == BR_ENOMEM && !r->scope.full && reading_never_fits(r))
        return br_err_set(&r->err, BR_ETOOBIG, "reading it takes more memory than the limit ever leaves");
    if (rc == 0 || rc == BR_EAGAIN || !r->scope.full)
        return rc;
    r->invalid = BR_STATUS_INVALID_ARGUMENT;
    r->err = (struct br_err){0};
    return br_err_set(&r->err, BR_EINVAL, "reading it takes more than %zu bytes of memory: %u times its size",
                      r->scope.max, BR_READING_GROWTH);
}

static void reading_fail(struct br_intake *x, const struct br_reading *r, int rc)
{
    const char *why = r->err.text[0] ? r->err.text : br_strerror(rc);
    if (rc == BR_ENOMEM)
        br_intake_refuse(x, r->scope.refused ? "memory limit reached" : why);
    else if (rc == BR_ETOOBIG || rc == BR_EFULL)
        br_intake_reject(x, BR_STATUS_RESOURCE_EXHAUSTED, why);
    else
        br_intake_reject(x, r->invalid, why);
}

/* What was made in a thread becomes the worker's. */
static void reading_move(struct br_reading *r, struct br_host *home)
{
    if (r->item)
        br_item_move(r->item, home);
    for (struct br_list *l = r->pieces.next; l != &r->pieces; l = l->next)
        br_item_move(br_container_of(l, struct br_item, link), home);
}

/* In the worker: the reading has ended. */
static void reading_end(struct br_intake *x, struct br_reading *r, int rc)
{
    if (rc == 0 && r->n_left_out)
        rc = br_intake_partly(x, r->n_left_out, r->invalid, r->left_out);
    if (rc) {
        reading_drop(r);
        reading_fail(x, r, rc);
        return;
    }
    if (x->kind->on_read)
        x->kind->on_read(x, r);
    br_intake_send(x, r->item, &r->pieces);
}

/* --- Jobs ------------------------------------------------------------------------------------- */

static void job_free(struct br_intake_job *job)
{
    br_buf_unref(job->reading.body);
    br_workbench_release(&job->bench);
    br_pool_free(job->host.pool);
    br_free(job->headers);
    br_free(job->text);
    br_free(job);
}

static void on_run(struct br_work *work)
{
    struct br_intake_job *job = br_container_of(work, struct br_intake_job, work);
    job->rc = reading_run(&job->reading, job->kind);
    br_walk_memo_release(&job->bench.memo);
    br_mem_flush();
}

/* Also when it never ran: then nobody waits for it. */
static void on_ran(struct br_work *work)
{
    struct br_intake_job *job = br_container_of(work, struct br_intake_job, work);
    struct br_intake *x = job->x;
    br_list_remove(&job->link);
    reading_move(&job->reading, job->home);
    if (x) {
        x->job = NULL;
        reading_end(x, &job->reading, job->rc);
    } else {
        reading_drop(&job->reading);
    }
    job_free(job);
}

/* Takes the body, unless it fails. */
static struct br_intake_job *job_new(struct br_intake *x, struct br_buf *body)
{
    struct br_host *home = x->door->ingest->node->host;
    struct br_intake_job *job = br_calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->home = home;
    job->kind = x->kind;
    job->host.memory = home->memory;
    job->host.pool = br_pool_new(0);
    if (!job->host.pool || br_workbench_init(&job->bench) || copy_request(job, x->request)) {
        job_free(job);
        return NULL;
    }
    br_pool_set_memory(job->host.pool, home->memory);
    reading_init(&job->reading, x, home, body);
    job->reading.asked = &job->asked;
    job->reading.host = &job->host;
    job->reading.bench = &job->bench;
    job->reading.max_now = SIZE_MAX;
    job->work.run = on_run;
    job->work.done = on_ran;
    return job;
}

void br_intake_job_leave(struct br_intake *x)
{
    struct br_intake_job *job = x->job;
    x->job = NULL;
    job->x = NULL;
    br_host_work_leave(job->home, &job->work);
}

void br_intake_jobs_wait(struct br_list *jobs)
{
    struct br_list *l;
    while ((l = br_list_shift(jobs))) {
        struct br_intake_job *job = br_container_of(l, struct br_intake_job, link);
        br_host_work_wait(job->home, &job->work);
    }
}

static void job_start(struct br_intake *x, struct br_buf *body)
{
    struct br_intake_job *job = job_new(x, body);
    if (!job) {
        br_buf_unref(body);
        br_intake_refuse(x, "out of memory");
        return;
    }
    job->x = x;
    x->job = job;
    br_list_append(&x->door->ingest->jobs, &job->link);
    br_host_work(job->home, &job->work);
}

void br_intake_read(struct br_intake *x, struct br_buf *body)
{
    struct br_host *home = x->door->ingest->node->host;
    struct br_reading r;
    reading_init(&r, x, home, body);
    int rc = body->len > r.max_now ? BR_EAGAIN : reading_run(&r, x->kind);
    if (rc == BR_EAGAIN) {
        job_start(x, body);
        return;
    }
    br_buf_unref(body);
    reading_end(x, &r, rc);
}
