/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/reading_job.h"

#include "base/mem.h"

static void reading_job_on_run(struct br_work *work)
{
    struct br_reading_job *job = br_container_of(work, struct br_reading_job, work);
    job->rc = br_reading_run(&job->reading, job->read);
    br_walk_memo_release(&job->bench.memo);
    br_mem_flush();
}

/* What was made in the thread becomes the worker's. */
static void reading_job_on_ran(struct br_work *work)
{
    struct br_reading_job *job = br_container_of(work, struct br_reading_job, work);
    struct br_reading *reading = &job->reading;
    if (reading->owns_body && reading->body) /* it never ran */
        br_buf_adopt(reading->body, job->home->pool);
    if (reading->item)
        br_item_move(reading->item, job->home);
    for (struct br_list *list = reading->pieces.next; list != &reading->pieces; list = list->next)
        br_item_move(br_container_of(list, struct br_item, link), job->home);
    job->done(job);
}

int br_reading_job_init(struct br_reading_job *job, const struct br_reading *how, br_read_fn *read,
                        void (*done)(struct br_reading_job *job))
{
    struct br_reading *reading = &job->reading;
    job->work = (struct br_work){.run = reading_job_on_run, .done = reading_job_on_ran};
    job->home = how->host;
    job->read = read;
    job->done = done;
    *reading = *how;
    reading->host = &job->host;
    reading->bench = &job->bench;
    reading->max_now = SIZE_MAX;
    reading->err = (struct br_err){0};
    br_list_init(&reading->pieces);
    if (reading->body)
        br_buf_ref(reading->body);
    job->host.memory = job->home->memory;
    job->host.pool = br_pool_new(0);
    if (!job->host.pool || br_workbench_init(&job->bench))
        return BR_ENOMEM;
    br_pool_set_memory(job->host.pool, job->home->memory);
    return 0;
}

void br_reading_job_release(struct br_reading_job *job)
{
    if (job->home)
        br_reading_drop(&job->reading);
    br_buf_unref(job->reading.body);
    br_workbench_release(&job->bench);
    br_pool_free(job->host.pool);
    *job = (struct br_reading_job){0};
}

void br_reading_job_start(struct br_reading_job *job)
{
    struct br_buf *body = job->reading.body;
    job->reading.owns_body = body && body->refs == 1;
    if (job->reading.owns_body)
        br_buf_adopt(body, job->host.pool);
    br_host_work(job->home, &job->work);
}

void br_reading_job_leave(struct br_reading_job *job)
{
    br_host_work_leave(job->home, &job->work);
}

void br_reading_job_wait(struct br_reading_job *job)
{
    br_host_work_wait(job->home, &job->work);
}
