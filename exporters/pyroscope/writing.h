/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the pprofs of items. Small items are written at once. Larger items, and items that exceed
 * a limit while they are written, are written in a thread of the pool. The thread has its own
 * writer and memory pool. It reads the item, which nobody changes meanwhile.
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

/* bytes of an item; larger items are written in a thread */
#define PYROSCOPE_WRITING_NOW (512u << 10)

/* Limit for the bytes of all pprofs of an item, and of the dictionary entries read for them:
 * this many times the item's size, plus PYROSCOPE_WORK_NOW in the worker or PYROSCOPE_WORK_ROOM
 * in a thread. */
#define PYROSCOPE_WORK_GROWTH 4
#define PYROSCOPE_WORK_NOW (1u << 20)
#define PYROSCOPE_WORK_ROOM (8u << 20)

/* Limit for the memory of all pprofs of an item, including the one being written, and of the
 * tables: this many times the item's size, plus PYROSCOPE_MEMORY_ROOM. */
#define PYROSCOPE_MEMORY_GROWTH 8
#define PYROSCOPE_MEMORY_ROOM (16u << 20)

static inline size_t pyroscope_writing_work(const struct br_item *item, bool in_worker)
{
    return PYROSCOPE_WORK_GROWTH * item->size +
           (in_worker ? PYROSCOPE_WORK_NOW : PYROSCOPE_WORK_ROOM);
}

/* Called in the worker with the `n` pprofs of `item` in their order, without types. The pprofs
 * are valid until the callback returns. The callback may take a pprof's buffer and set it to
 * NULL.
 *
 * `rc` is 0, BR_ENOMEM if memory was short for too long, or a permanent error of br_pprof_write.
 * The callback takes the item and returns true. Only if `rc` is 0 and memory is short, the
 * callback may leave the item and return false. */
typedef bool pyroscope_written_fn(struct br_node *node, struct br_item *item, int rc,
                                  struct br_pprof_out *pprofs, uint32_t n);

/* average delay in milliseconds before a retry; a delay is 0.5 to 1.5 times as long */
#define PYROSCOPE_WRITING_AGAIN_MS 1000

/* Writes the pprofs of `item`, and takes the item. `writer` is used in the worker only.
 * `options` is copied; any thread calls its keep_label, and max_work is ignored. If memory is
 * short, writing is retried as configured in `retry`, which is borrowed. `list` contains the
 * writings in progress. `written` is called before this function returns if no thread is needed.
 * Returns false if memory is short; then the caller keeps the item. */
bool pyroscope_writing_start(struct br_list *list, struct br_node *node, struct br_item *item,
                             struct br_pprof_writer *writer, const struct br_pprof_options *options,
                             const struct br_retry_config *retry, pyroscope_written_fn *written);

/* Cancels all writings in `list`: their items are finished with BR_RETRY, and `written` is not
 * called. Waits for a writing that a thread is running. */
void pyroscope_writing_cancel_all(struct br_list *list);
