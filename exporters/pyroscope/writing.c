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
    uint32_t n, cap;
    int rc;
};

static void writing_free(struct writing *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        br_buf_unref(w->pprofs[i].buf);
    br_free(w->pprofs);
    br_arena_release(&w->arena);
    br_pprof_writer_free(w->writer);
    br_pool_free(w->host.pool);
    br_free(w);
}

/* Most have the name of the one before. */
static const char *writing_name(struct writing *w, const char *name)
{
    if (w->n && strcmp(w->pprofs[w->n - 1].name, name) == 0)
        return w->pprofs[w->n - 1].name;
    return br_arena_strndup(&w->arena, name, strlen(name));
}

static int on_pprof(const struct br_pprof_out *p, void *arg)
{
    struct writing *w = arg;
    int rc = br_grow(&w->pprofs, &w->cap, (size_t)w->n + 1, sizeof *w->pprofs,
                     w->options.max_work / sizeof *w->pprofs);
    const char *name = rc ? NULL : writing_name(w, p->name);
    if (!name)
        return rc ? rc : w->arena.full ? BR_ETOOBIG : BR_ENOMEM;
    struct br_pprof_out *copy = &w->pprofs[w->n++];
    *copy = *p;
    copy->name = name;
    copy->n_types = 0;
    br_buf_ref(copy->buf);
    return 0;
}

static void on_run(struct br_work *work)
{
    struct writing *w = br_container_of(work, struct writing, work);
    w->rc = br_pprof_write(w->writer, w->item, &w->options, on_pprof, w);
    br_mem_flush();
}

static void on_ran(struct br_work *work)
{
    struct writing *w = br_container_of(work, struct writing, work);
    for (uint32_t i = 0; i < w->n; i++)
        br_buf_adopt(w->pprofs[i].buf, w->home->pool);
    br_list_remove(&w->link);
    if (w->item)
        w->written(w->node, w->item, w->rc, w->pprofs, w->n);
    writing_free(w);
}

static bool writing_init(struct writing *w, struct br_host *home)
{
    w->work = (struct br_work){.run = on_run, .done = on_ran};
    w->home = home;
    w->host.memory = home->memory;
    w->host.pool = br_pool_new(0);
    w->writer = br_pprof_writer_new(&w->host);
    if (!w->host.pool || !w->writer)
        return false;
    br_pool_set_memory(w->host.pool, home->memory);
    return true;
}

bool pyroscope_writing_start(struct br_list *list, struct br_node *node, struct br_item *item,
                             const struct br_pprof_options *options, pyroscope_written_fn *written)
{
    struct writing *w = br_calloc(1, sizeof *w);
    if (!w)
        return false;
    br_list_init(&w->link);
    br_arena_init(&w->arena, options->max_work);
    if (!writing_init(w, node->host)) {
        writing_free(w);
        return false;
    }
    w->node = node;
    w->item = item;
    w->options = *options;
    w->written = written;
    br_list_append(list, &w->link);
    br_host_work(w->home, &w->work);
    return true;
}

void pyroscope_writing_leave(struct br_list *list)
{
    struct br_list *l;
    while ((l = br_list_shift(list))) {
        struct writing *w = br_container_of(l, struct writing, link);
        struct br_item *item = w->item;
        br_host_work_leave(w->home, &w->work);
        br_host_work_wait(w->home, &w->work);
        w->item = NULL;
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
    }
}
