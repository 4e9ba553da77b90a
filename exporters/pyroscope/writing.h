/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the pprofs of items: of small ones at once, and of those that are larger, or become more
 * than may be written in the worker, in a thread of the pool, while the worker goes on with other
 * items. The thread has a writer and a pool of its own, and reads the item, which nobody changes
 * meanwhile.
 *
 * Each pprof has tables and labels of its own, so that profiles which share a dictionary, as those
 * of a hundred processes of one machine do, rightly become several times what they were. What they
 * become is bounded by the item's size all the same, and the memory of writing them lies in a scope
 * out of the budget, of which it may have the part that is for sending.
 */
#pragma once

#include "pipeline/component.h"
#include "pipeline/exporter.h"
#include "profile/pprof/write.h"

#define PYROSCOPE_WRITING_NOW (512u << 10) /* bytes of an item that is written at once */

/* The bytes of all pprofs of an item, and of the dictionary entries that are read for them: so many
 * times the item, and so many more, in the worker and in a thread. */
#define PYROSCOPE_WORK_GROWTH 4
#define PYROSCOPE_WORK_NOW (1u << 20)
#define PYROSCOPE_WORK_ROOM (8u << 20)

/* The memory for it likewise: the pprofs, the one that is put together, and what finds entries. */
#define PYROSCOPE_MEMORY_GROWTH 8
#define PYROSCOPE_MEMORY_ROOM (16u << 20)

static inline size_t pyroscope_writing_work(const struct br_item *item, bool in_worker)
{
    return PYROSCOPE_WORK_GROWTH * item->size +
           (in_worker ? PYROSCOPE_WORK_NOW : PYROSCOPE_WORK_ROOM);
}

/* Called in the worker with the `n` pprofs of `item`, in their order, which live until it returns;
 * without types. It may take a pprof's buffer, which is NULL then. Takes the item and returns true;
 * or false with nothing taken, where `rc` is 0 and there is no memory. `rc` is BR_ENOMEM once that
 * was waited for long enough, or what can never pass, as br_pprof_write returns it. */
typedef bool pyroscope_written_fn(struct br_node *node, struct br_item *item, int rc,
                                  struct br_pprof_out *pprofs, uint32_t n);

#define PYROSCOPE_WRITING_AGAIN_MS 1000 /* about: half of it to one and a half */

/* Begins to write `item`, which it takes, with the worker's `writer` as long as it is in the
 * worker, and puts what is under way into `list`. `options` is copied, but any thread calls its
 * keep_label; max_work is not looked at. Where there is no memory it is written
 * again, for as long as `retry` says, which is borrowed. Where no thread is needed, or is there,
 * `written` is called before this returns. False, and the item is the caller's, without memory. */
bool pyroscope_writing_start(struct br_list *list, struct br_node *node, struct br_item *item,
                             struct br_pprof_writer *writer, const struct br_pprof_options *options,
                             const struct br_retry_config *retry, pyroscope_written_fn *written);

/* Gives up all that are in `list`: their items are finished with BR_RETRY, and `written` is not
 * called. Waits for the one that a thread is at. */
void pyroscope_writing_leave(struct br_list *list);
