/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task is work for a thread of the pool that may be cancelled while it runs. A task is a member
 * of a larger struct, which contains the input and the result. The task adds a memory pool and a
 * memory scope for the thread.
 *
 * | State | in the thread | `done` |
 * | ----- | ------------- | ------ |
 * | started | `run` is pending or running | will be called once, in the worker |
 * | cancelled before it began | `run` is never called | will be called; br_task_is_cancelled |
 * | cancelled while it ran | `run` goes on to its end | will be called; br_task_is_cancelled |
 * | stopped | `run` has returned or is never called | will be called; br_task_is_cancelled |
 * | done | - | was called; the task may be released, or started again unless it was cancelled |
 *
 * `run` reads the struct and the data that it points to, which nobody may change until `done` is
 * called. Reference counts are not atomic: `run` may change only those of buffers in the task's
 * pool. `done` moves the result to the worker (br_buf_adopt, br_item_move).
 *
 * br_task_stop may block as long as `run` does. The process limits that time by its shutdown
 * timeout.
 */
#pragma once

#include <stdatomic.h>

#include "base/mem.h"
#include "core/host.h"

struct br_task;

typedef void br_task_fn(struct br_task *task);

struct br_task {
    /* the work that the threads run; set work.kind after br_task_init, which sets BR_WORK_QUICK */
    struct br_work work;
    struct br_host *home; /* host of the worker that started the task */
    /* host for `run`, in which only the pool and the memory budget are set */
    struct br_host host;
    struct br_mem_scope scope; /* memory scope that `run` begins and ends */
    br_task_fn *run, *done;
    bool ran; /* true: `run` was called. Valid in `done` and after br_task_stop */
    atomic_bool cancelled;
};

/* Initialises a task that has no pool. */
void br_task_init(struct br_task *task, struct br_host *home, br_task_fn *run, br_task_fn *done);

/* Creates the pool of the task's host. The pool's buffers count towards the budget `memory`;
 * NULL: the buffers are not limited. Returns 0 or BR_ENOMEM. */
int br_task_add_pool(struct br_task *task, struct br_memory *memory);

/* Frees the pool. The task must not be running. Accepts a zeroed task. */
void br_task_release(struct br_task *task);

/* Queues the task for a thread. A host that has no threads calls `run` and `done` before this
 * function returns. */
void br_task_start(struct br_task *task);

/* Cancels a task that was started and whose `done` has not been called yet. If a thread has
 * already begun the task, the thread finishes it. A second call has no effect. */
void br_task_cancel(struct br_task *task);

/* Cancels a task as br_task_cancel does, then waits until no thread is running it. The wait blocks
 * the worker. Call this function before you free data that `run` reads. */
void br_task_stop(struct br_task *task);

/* Returns true if br_task_cancel or br_task_stop has been called for the task. Any thread may
 * call this function. */
static inline bool br_task_is_cancelled(const struct br_task *task)
{
    return atomic_load_explicit(&task->cancelled, memory_order_relaxed);
}
