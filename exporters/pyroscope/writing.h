/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the pprofs of items. Small items are written at once. Larger items, and those that exceed
 * a limit on the way, are written in a thread of the pool. The thread has its writer and its pool.
 * It reads the item, which nobody changes meanwhile.
 *
 * Each pprof has its own tables and labels. Profiles that share a dictionary, such as those of all
 * processes of a host, therefore grow to several times their size. The growth is limited by the
 * size of the item. The memory scope belongs to the process's budget and may use the part that is
 * reserved for sending.
 */
#pragma once

#include "pipeline/component.h"
#include "pipeline/exporter.h"
#include "profile/pprof/write.h"

#define PYROSCOPE_WRITING_NOW (512u << 10) /* bytes; larger items are written in a thread */

/* Limit for the bytes of all pprofs of an item, and of the dictionary entries read for them: so
 * many times the item's size, plus a constant for the worker or the thread. */
#define PYROSCOPE_WORK_GROWTH 4
#define PYROSCOPE_WORK_NOW (1u << 20)
#define PYROSCOPE_WORK_ROOM (8u << 20)

/* Limit for the memory, in the same form: the pprofs, the one being written, and the tables. */
#define PYROSCOPE_MEMORY_GROWTH 8
#define PYROSCOPE_MEMORY_ROOM (16u << 20)

static inline size_t pyroscope_writing_work(const struct br_item *item, bool in_worker)
{
    return PYROSCOPE_WORK_GROWTH * item->size +
           (in_worker ? PYROSCOPE_WORK_NOW : PYROSCOPE_WORK_ROOM);
}

/* Called in the worker with the `n` pprofs of `item` in their order, without types. They are
 * valid until it returns. The callback may take a pprof's buffer and set it to NULL. Takes the
 * item and returns true, or takes nothing and returns false if memory is short and `rc` is 0.
 * `rc` is BR_ENOMEM if memory was short for too long, or a permanent error of br_pprof_write. */
typedef bool pyroscope_written_fn(struct br_node *node, struct br_item *item, int rc,
                                  struct br_pprof_out *pprofs, uint32_t n);

#define PYROSCOPE_WRITING_AGAIN_MS 1000 /* on average; half of it to one and a half */

/* Writes `item`, and takes it. `writer` is used in the worker only. `options` is copied; any
 * thread calls its keep_label, and max_work is ignored. If memory is short, writing is retried
 * as `retry`, which is borrowed, allows. `list` contains the writings in progress. `written` is
 * called before this returns if no thread is needed or available. Returns false if memory is
 * short; then the caller keeps the item. */
bool pyroscope_writing_start(struct br_list *list, struct br_node *node, struct br_item *item,
                             struct br_pprof_writer *writer, const struct br_pprof_options *options,
                             const struct br_retry_config *retry, pyroscope_written_fn *written);

/* Cancels all writings in `list`: their items are finished with BR_RETRY, and `written` is not
 * called. Waits for the one that a thread is running. */
void pyroscope_writing_cancel_all(struct br_list *list);
