/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "processors/join/join.h"

struct join_paging {
    struct br_work work;
    struct join *join; /* NULL once that was stopped */
    struct join_pages pages;
};

static void paging_on_run(struct br_work *work)
{
    join_table_pages_make(&br_container_of(work, struct join_paging, work)->pages);
}

static void paging_on_ran(struct br_work *work)
{
    struct join_paging *paging = br_container_of(work, struct join_paging, work);
    struct join *join = paging->join;
    br_free(paging);
    if (!join)
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
    *paging = (struct join_paging){
        .work = {.run = paging_on_run, .done = paging_on_ran}, .join = join, .pages = pages};
    join->paging = paging;
    br_host_work(join->node->host, &paging->work);
}

void join_paging_stop(struct join *join)
{
    struct join_paging *paging = join->paging;
    if (!paging)
        return;
    br_host_work_leave(join->node->host, &paging->work);
    br_host_work_wait(join->node->host, &paging->work);
    paging->join = NULL;
    join->paging = NULL;
    join_table_pages_end(join->table);
}
