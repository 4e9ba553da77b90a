/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "core/task.h"
#include "processors/join/join.h"

struct join_paging {
    struct br_task task;
    /* the join that started the task; do not use it if the task was cancelled, because it may be
     * freed */
    struct join *join;
    struct join_pages pages;
};

static void paging_on_run(struct br_task *task)
{
    join_table_pages_make(&br_container_of(task, struct join_paging, task)->pages);
}

static void paging_on_done(struct br_task *task)
{
    struct join_paging *paging = br_container_of(task, struct join_paging, task);
    struct join *join = paging->join;
    bool cancelled = br_task_is_cancelled(task);
    br_free(paging);
    if (cancelled)
        return;
    join->paging = NULL;
    join_table_pages_end(join->table);
    join_paging_start(join);
}

void join_paging_start(struct join *join)
{
    struct join_pages pages;
    if (!join_table_pages_begin(join->table, &pages))
        return;
    struct join_paging *paging = br_malloc(sizeof *paging);
    if (!paging) {
        join_table_pages_end(join->table);
        return;
    }
    br_task_init(&paging->task, join->node->host, paging_on_run, paging_on_done);
    paging->join = join;
    paging->pages = pages;
    join->paging = paging;
    br_task_start(&paging->task);
}

void join_paging_stop(struct join *join)
{
    if (!join->paging)
        return;
    br_task_stop(&join->paging->task);
    join->paging = NULL;
    join_table_pages_end(join->table);
}
