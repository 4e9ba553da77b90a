/* SPDX-License-Identifier: Apache-2.0 */
#include "core/task.h"

static void task_on_run(struct br_work *work)
{
    struct br_task *task = br_container_of(work, struct br_task, work);
    if (br_task_is_cancelled(task))
        return;
    task->run(task);
    task->ran = true;
    br_mem_flush();
}

static void task_on_done(struct br_work *work)
{
    struct br_task *task = br_container_of(work, struct br_task, work);
    task->done(task);
}

void br_task_init(struct br_task *task, struct br_host *home, br_task_fn *run, br_task_fn *done)
{
    *task = (struct br_task){
        .work = {.run = task_on_run, .done = task_on_done}, .home = home, .run = run, .done = done};
}

int br_task_add_pool(struct br_task *task, struct br_memory *memory)
{
    task->host.pool = br_pool_new(0);
    if (!task->host.pool)
        return BR_ENOMEM;
    task->host.memory = memory;
    br_pool_set_memory(task->host.pool, memory);
    return 0;
}

void br_task_release(struct br_task *task)
{
    br_pool_free(task->host.pool);
    task->host.pool = NULL;
}

void br_task_start(struct br_task *task)
{
    task->ran = false;
    br_host_work(task->home, &task->work);
}

void br_task_cancel(struct br_task *task)
{
    if (br_task_is_cancelled(task))
        return;
    atomic_store_explicit(&task->cancelled, true, memory_order_relaxed);
    br_host_work_cancel(task->home, &task->work);
}

void br_task_stop(struct br_task *task)
{
    br_task_cancel(task);
    br_host_work_wait(task->home, &task->work);
}
