/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/writing.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"

struct writing {
    struct br_list link;
    struct br_work work;
    struct br_host host; /* the thread's: pool and memory */
    struct br_host *home;
    struct br_node *node;
    struct br_item *item; /* NULL: it was left */
    struct br_pprof_options options;
    pyroscope_written_fn *written;
    struct br_pprof_writer *writer;
    struct br_arena arena; /* names */
    struct br_pprof_out *pprofs;
    uint32_t count, cap;
    int rc;
};

static void writing_free(struct writing *writing)
{
    for (uint32_t i = 0; i < writing->count; i++)
        br_buf_unref(writing->pprofs[i].buf);
    br_free(writing->pprofs);
    br_arena_release(&writing->arena);
    br_pprof_writer_free(writing->writer);
    br_pool_free(writing->host.pool);
    br_free(writing);
}

/* Most have the name of the one before. */
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
    if (!name)
        return rc ? rc : writing->arena.full ? BR_ETOOBIG : BR_ENOMEM;
    struct br_pprof_out *copy = &writing->pprofs[writing->count++];
    *copy = *result;
    copy->name = name;
    copy->n_types = 0;
    br_buf_ref(copy->buf);
    return 0;
}

static void writing_on_run(struct br_work *work)
{
    struct writing *writing = br_container_of(work, struct writing, work);
    writing->rc = br_pprof_write(writing->writer, writing->item, &writing->options,
                                 writing_on_pprof, writing);
    br_mem_flush();
}

static void writing_on_ran(struct br_work *work)
{
    struct writing *writing = br_container_of(work, struct writing, work);
    for (uint32_t i = 0; i < writing->count; i++)
        br_buf_adopt(writing->pprofs[i].buf, writing->home->pool);
    br_list_remove(&writing->link);
    if (writing->item)
        writing->written(writing->node, writing->item, writing->rc, writing->pprofs,
                         writing->count);
    writing_free(writing);
}

static bool writing_init(struct writing *writing, struct br_host *home)
{
    writing->work = (struct br_work){.run = writing_on_run, .done = writing_on_ran};
    writing->home = home;
    writing->host.memory = home->memory;
    writing->host.pool = br_pool_new(0);
    writing->writer = br_pprof_writer_new(&writing->host);
    if (!writing->host.pool || !writing->writer)
        return false;
    br_pool_set_memory(writing->host.pool, home->memory);
    return true;
}

bool pyroscope_writing_start(struct br_list *list, struct br_node *node, struct br_item *item,
                             const struct br_pprof_options *options, pyroscope_written_fn *written)
{
    struct writing *writing = br_calloc(1, sizeof *writing);
    if (!writing)
        return false;
    br_list_init(&writing->link);
    br_arena_init(&writing->arena, options->max_work);
    if (!writing_init(writing, node->host)) {
        writing_free(writing);
        return false;
    }
    writing->node = node;
    writing->item = item;
    writing->options = *options;
    writing->written = written;
    br_list_append(list, &writing->link);
    br_host_work(writing->home, &writing->work);
    return true;
}

void pyroscope_writing_leave(struct br_list *list)
{
    struct br_list *link;
    while ((link = br_list_shift(list))) {
        struct writing *writing = br_container_of(link, struct writing, link);
        struct br_item *item = writing->item;
        br_host_work_leave(writing->home, &writing->work);
        br_host_work_wait(writing->home, &writing->work);
        writing->item = NULL;
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
    }
}
