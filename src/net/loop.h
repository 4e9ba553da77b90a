/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of one worker: a libuv loop that is also the worker's host (core/host.h). One
 * thread runs it; the only call that other threads may make is br_loop_post.
 *
 * A turn: sockets, then finished items and deferred work, then a flush of every connection that
 * has something to send; then timers, what they finished, and another flush; then sleep.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/list.h"
#include "core/host.h"

struct br_loop;
struct br_net;

/* Returns what the loops of one process share: the listening sockets. Used before threads start and
 * by the first worker. */
struct br_net *br_net_new(void);
void br_net_free(struct br_net *net);

/* Raises the process's limit on descriptors to its hard limit. Servers then leave a quarter of them
 * to others: above that, idle connections make room for new ones. */
void br_net_raise_descriptors(struct br_net *net);

/* A message to another loop: `run` is called there, in its thread, and then owns the message. A
 * member of something that the sender allocated. */
struct br_message {
    struct br_list link;
    void (*run)(struct br_message *message, struct br_loop *loop);
};

#define BR_MAILBOX_MAX 4096

/* Makes a loop for worker `worker` of `n_workers`. Returns 0, BR_ENOMEM or BR_EIO. */
int br_loop_new(struct br_net *net, unsigned worker, unsigned n_workers, struct br_loop **ret,
                struct br_err *err);

/* Counts by kind the work of all loops that has begun and not ended. */
struct br_net_works {
    unsigned by_kind[BR_WORK_KINDS];
};

/* Waits at most `wait_ms` until no thread of the pool works for a loop, after all loops have
 * stopped. Returns true when none does; else `*ret` counts what is still under way. */
bool br_net_wait_works(struct br_net *net, uint64_t wait_ms, struct br_net_works *ret);

/* Starts the threads of the pool that all loops share, once, before any of them has work for it or
 * looks for a name. Returns 0; or, with the sentence in `err`, BR_EIO when the system gives the
 * process not so many threads, or BR_ENOMEM. */
int br_net_start_pool(struct br_loop *loop, struct br_err *err);

/* Frees a loop that does not run, after the servers and clients on it. Accepts NULL. */
void br_loop_free(struct br_loop *loop);

struct br_host *br_loop_host(struct br_loop *loop);

/* Runs until br_loop_stop was called in its thread. */
void br_loop_run(struct br_loop *loop);
void br_loop_stop(struct br_loop *loop);

/* Runs one turn, asleep until something happens; for tests. */
void br_loop_step(struct br_loop *loop);

/* Hands a message over, from any thread. False when the mailbox is full: the message stays the
 * caller's. */
bool br_loop_post(struct br_loop *loop, struct br_message *message);

/* Posts a message without the bound: for the few messages that there are once each, and for
 * answers to messages that were posted. */
void br_loop_command(struct br_loop *loop, struct br_message *message);

/* Runs what is in the mailbox, for a loop that does not run any more: messages own sockets and
 * memory, and are for servers that have to be there still. */
void br_loop_read_mail(struct br_loop *loop);

/* Makes server connections stop reading that hold more than their share, while requests that have
 * not come as a whole hold more than `bytes` in this loop: what the small ones hold comes first,
 * and the large ones (over BR_HELD_SMALL) share the rest equally. One of them reads on, by turns:
 * only the rest of what it sends makes its memory free. Connections that hold little are never
 * stopped; what the pipelines hold does not count. 0: no mark. */
void br_loop_set_mark(struct br_loop *loop, size_t bytes);

#define BR_HELD_SMALL (256u << 10)

/* Returns what such requests hold now, in bytes; for tests. */
size_t br_loop_held(const struct br_loop *loop);
