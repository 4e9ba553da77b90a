/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the pprofs of large items in a thread of the pool, which takes many milliseconds, while
 * the worker goes on with other items. The thread has a writer and a pool of its own, and reads the
 * item, which nobody changes meanwhile.
 */
#pragma once

#include "pipeline/component.h"
#include "profile/pprof/write.h"

#define PYROSCOPE_WRITING_NOW (512u << 10) /* bytes of an item that is written at once */

/* Called in the worker with the `n` pprofs of `item`, in their order, which live until it returns;
 * without types. `rc` is as br_pprof_write returns it. Takes the item. */
typedef void pyroscope_written_fn(struct br_node *node, struct br_item *item, int rc,
                                  const struct br_pprof_out *pprofs, uint32_t n);

/* Begins to write `item`, which it takes, and puts what is under way into `list`. `options` is
 * copied, but any thread calls its keep_label; max_work is set. Where there is no thread, `written`
 * is called before this returns. False, and the item is the caller's, without memory. */
bool pyroscope_writing_start(struct br_list *list, struct br_node *node, struct br_item *item,
                             const struct br_pprof_options *options, pyroscope_written_fn *written);

/* Gives up all that are in `list`: their items are finished with BR_RETRY, and `written` is not
 * called. Waits for the one that a thread is at. */
void pyroscope_writing_leave(struct br_list *list);
