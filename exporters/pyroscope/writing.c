/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/pyroscope.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/memory.h"
#include "core/task.h"

/* if an item needs more than 1/WRITING_LARGE of the memory limit, unused memory is freed first */
#define WRITING_LARGE 16
#define NS_PER_MS 1000000u

struct writing {
    struct br_list link;
    struct br_task task;
    struct br_node *node;
    struct br_item *item; /* the item, which is finished already if the task was cancelled */
    struct br_pprof_options options;
    const struct br_retry_config *retry;
    struct br_timer timer; /* timer that starts the next attempt */
    uint64_t began_ms;
    bool waits;
    pyroscope_written_fn *written;
    struct br_pprof_writer *writer; /* writer of the thread; NULL until a thread is needed */
    struct br_arena arena;          /* memory of the pprofs' names */
    struct br_pprof_out *pprofs;
    uint32_t count, cap;
    int rc;
};

static void writing_drop(struct writing *writing)
{
    for (uint32_t i = 0; i < writing->count; i++)
        br_buf_unref(writing->pprofs[i].buf);
    br_free(writing->pprofs);
    br_arena_release(&writing->arena);
    writing->pprofs = NULL;
    writing->count = writing->cap = 0;
}

static void writing_free(struct writing *writing)
{
    writing_drop(writing);
    br_pprof_writer_free(writing->writer);
    br_task_release(&writing->task);
    br_free(writing);
}

/* Returns a copy of a pprof's name. If the previous pprof has the same name, as most do, returns
 * the previous copy. */
static const char *writing_name(struct writing *writing, const char *name)
{
    if (writing->count && strcmp(writing->pprofs[writing->count - 1].name, name) == 0)
        return writing->pprofs[writing->count - 1].name;
    return br_arena_strndup(&writing->arena, name, strlen(name));
}

static int writing_on_pprof(const struct br_pprof_out *result, void *arg)
{
    struct writing *writing = arg;
    int rc = br_grow(&writing->pprofs, &writing->cap, (size_t)writing->count + 1,
                     sizeof *writing->pprofs, writing->options.max_work / sizeof *writing->pprofs);
    const char *name = rc ? NULL : writing_name(writing, result->name);
    if (rc)
        return rc;
    if (!name)
        return writing->arena.full ? BR_ETOOBIG : BR_ENOMEM;
    struct br_pprof_out *copy = &writing->pprofs[writing->count++];
    *copy = *result;
    copy->name = name;
    copy->n_types = 0;
    br_buf_ref(copy->buf);
    return 0;
}

/* Returns true if even an idle process would not have enough memory for the item. Frees unused
 * memory first if the item is large. */
static bool writing_never_fits(const struct writing *writing)
{
    const struct br_mem_scope *scope = &writing->task.scope;
    struct br_memory *memory = scope->memory;
    size_t held = writing->item->size, wanted = held + scope->wanted;
    if (!memory || !scope->refused)
        return false;
    if (wanted > br_memory_hard(memory) / WRITING_LARGE)
        br_memory_settle(memory, held);
    return wanted > br_memory_largest(memory);
}

/* Writes all pprofs of the item. After an error, frees the pprofs that were already written. */
static int writing_run(struct writing *writing, struct br_pprof_writer *writer)
{
    const struct br_item *item = writing->item;
    struct br_mem_scope *scope = &writing->task.scope;
    br_mem_scope_begin(scope, PYROSCOPE_MEMORY_GROWTH * item->size + PYROSCOPE_MEMORY_ROOM,
                       writing->task.home->memory);
    scope->sends = true;
    br_arena_init(&writing->arena, writing->options.max_work);
    int rc = br_pprof_write(writer, item, &writing->options, writing_on_pprof, writing);
    if (rc)
        writing_drop(writing);
    br_mem_scope_end(scope);
    return rc;
}

static void writing_on_run(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    writing->options.max_work = pyroscope_writing_work(writing->item, false);
    writing->rc = writing_run(writing, writing->writer);
    if (writing->rc == BR_ENOMEM && (task->scope.full || writing_never_fits(writing)))
        writing->rc = BR_ETOOBIG;
}

/* Passes the pprofs to the callback `written`. Returns false if memory is short. */
static bool writing_hand_on(struct writing *writing)
{
    return writing->rc != BR_ENOMEM && writing->written(writing->node, writing->item, writing->rc,
                                                        writing->pprofs, writing->count);
}

/* Writes the pprofs of a small item in the worker itself, not in a thread. Returns false if the
 * limit of processing steps or of memory is exceeded. */
static bool writing_now(struct writing *writing, struct br_pprof_writer *writer)
{
    if (writing->item->size > PYROSCOPE_WRITING_NOW)
        return false;
    writing->options.max_work = pyroscope_writing_work(writing->item, true);
    writing->rc = writing_run(writing, writer);
    return writing->rc != BR_ETOOBIG && writing_hand_on(writing);
}

static void writing_on_due(struct br_timer *timer)
{
    struct writing *writing = br_container_of(timer, struct writing, timer);
    writing->waits = false;
    br_task_start(&writing->task);
}

/* Waits a random time before the next attempt, so that several items do not compete for memory
 * at the same time again. Returns false if retries are disabled or max_elapsed_time would be
 * exceeded. */
static bool writing_wait(struct writing *writing)
{
    struct br_host *home = writing->task.home;
    uint64_t limit_ms = writing->retry->max_elapsed_time / NS_PER_MS,
             passed = br_host_mono_ms(home) - writing->began_ms;
    double delay = PYROSCOPE_WRITING_AGAIN_MS * (0.5 + br_host_random(home));
    if (!writing->retry->enabled || (limit_ms && passed + (uint64_t)delay > limit_ms))
        return false;
    writing_drop(writing);
    writing->waits = br_host_timer(home, &writing->timer, (uint64_t)delay, writing_on_due);
    return writing->waits;
}

static void writing_on_done(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    for (uint32_t i = 0; i < writing->count; i++)
        br_buf_adopt(writing->pprofs[i].buf, task->home->pool);
    if (!br_task_is_cancelled(task) && !writing_hand_on(writing)) {
        if (writing_wait(writing))
            return;
        (void)writing->written(writing->node, writing->item, BR_ENOMEM, NULL, 0);
    }
    br_list_remove(&writing->link);
    writing_free(writing);
}

static bool writing_init_thread(struct writing *writing)
{
    struct br_task *task = &writing->task;
    if (br_task_add_pool(task, task->home->memory))
        return false;
    writing->writer = br_pprof_writer_new(&task->host);
    return writing->writer != NULL;
}

bool pyroscope_writing_start(struct br_list *list, struct br_node *node, struct br_item *item,
                             struct br_pprof_writer *writer, const struct br_pprof_options *options,
                             const struct br_retry_config *retry, pyroscope_written_fn *written)
{
    struct writing *writing = br_calloc(1, sizeof *writing);
    if (!writing)
        return false;
    br_list_init(&writing->link);
    br_task_init(&writing->task, node->host, writing_on_run, writing_on_done);
    writing->node = node;
    writing->item = item;
    writing->options = *options;
    writing->retry = retry;
    writing->began_ms = br_host_mono_ms(node->host);
    writing->written = written;
    if (writing_now(writing, writer)) {
        writing_free(writing);
        return true;
    }
    writing_drop(writing);
    if (!writing_init_thread(writing)) {
        writing_free(writing);
        return false;
    }
    br_list_append(list, &writing->link);
    br_task_start(&writing->task);
    return true;
}

void pyroscope_writing_cancel_all(struct br_list *list)
{
    struct br_list *link;
    while ((link = br_list_shift(list))) {
        struct writing *writing = br_container_of(link, struct writing, link);
        struct br_item *item = writing->item;
        if (writing->waits) {
            br_host_timer_stop(writing->task.home, &writing->timer);
            writing_free(writing);
        } else {
            br_task_stop(&writing->task);
        }
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
    }
}
