/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of one worker: a libuv loop that also implements the worker's host (core/host.h).
 * One thread runs the loop. Other threads may only call br_loop_post and br_loop_command.
 *
 * One loop iteration runs these steps:
 * - The loop reads its sockets.
 * - The loop runs callbacks of finished items, and deferred work.
 * - The loop flushes every connection that has output.
 * - The loop runs due timers and the callbacks they cause, and flushes again.
 * - The loop waits for the next event.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/list.h"
#include "core/host.h"

struct br_loop;
struct br_net;

/* Makes the state that all loops of a process share: the listening sockets. Must be called before
 * threads start. After the threads have started, only the first worker uses the state. Returns NULL
 * if memory is short. */
struct br_net *br_net_new(void);
void br_net_free(struct br_net *net);

/* Raises the process's limit on descriptors to the hard limit. After this call, servers use at most
 * three quarters of the descriptors: above that number, idle connections are evicted in favor of
 * new connections. */
void br_net_raise_descriptors(struct br_net *net);

/* Accepts listening sockets from systemd (sd_listen_fds(3)): the environment variables LISTEN_PID
 * and LISTEN_FDS. A server whose endpoint is the address of such a socket uses it, so that clients
 * can connect while the process is replaced. */
void br_net_take_passed(struct br_net *net);

/* While `keep` is true, the listening sockets of servers that stop stay open, so that clients can
 * connect before a new server at the same address uses the socket. Such servers stop without
 * waiting for idle connections. If `keep` is false, closes the sockets that no server uses. Call it
 * in the first worker. */
void br_net_keep_sockets(struct br_net *net, bool keep);

/* A message to another loop, embedded in a struct that the sender allocated. `run` is called in
 * the thread of the receiving loop, and owns the message from then on: it must free the message. */
struct br_message {
    struct br_list link;
    void (*run)(struct br_message *message, struct br_loop *loop);
};

#define BR_MAILBOX_MAX 4096

/* Makes the loop of the worker with index `worker`; the process has `n_workers` workers. Returns
 * 0, or BR_ENOMEM or BR_EIO with a message in `err`. */
int br_loop_new(struct br_net *net, unsigned worker, unsigned n_workers, struct br_loop **ret,
                struct br_err *err);

/* Numbers of work items of each kind that are in the thread pool, summed over all loops. */
struct br_net_works {
    unsigned by_kind[BR_WORK_KINDS];
};

/* Waits up to `wait_ms` until the thread pool has finished all work. Must be called after all
 * loops have stopped. Returns true if no work is left. `*ret` receives the numbers of unfinished
 * work items. */
bool br_net_wait_works(struct br_net *net, uint64_t wait_ms, struct br_net_works *ret);

/* Starts the threads of the pool that all loops share. Must be called once, before the first work
 * item and the first name resolution. Returns 0 or BR_ENOMEM, or BR_EIO if the system does not let
 * the process create enough threads. `err` receives the error message. */
int br_net_start_pool(struct br_loop *loop, struct br_err *err);

/* Frees a loop that has stopped. The loop's servers and clients must be freed first. Accepts
 * NULL. */
void br_loop_free(struct br_loop *loop);

struct br_host *br_loop_host(struct br_loop *loop);

/* Runs the loop until br_loop_stop is called in the same thread. */
void br_loop_run(struct br_loop *loop);
void br_loop_stop(struct br_loop *loop);

/* Runs one iteration, and waits for an event if there is none. For tests. */
void br_loop_step(struct br_loop *loop);

/* Posts a message to a loop, from any thread. Returns false if the mailbox already contains
 * BR_MAILBOX_MAX messages; the caller then still owns the message. */
bool br_loop_post(struct br_loop *loop, struct br_message *message);

/* Posts a message even if the mailbox contains BR_MAILBOX_MAX messages. Used only for replies to
 * posted messages, and for kinds of messages that exist at most once in the process. */
void br_loop_command(struct br_loop *loop, struct br_message *message);

/* Runs the messages in the mailbox of a loop that has stopped. Messages own sockets and memory and
 * refer to servers, so br_loop_read_mail must be called before the servers are freed. */
void br_loop_read_mail(struct br_loop *loop);

/* Limits the memory of incomplete requests in this loop to about `bytes`, which is called the mark;
 * 0: no limit. A connection that buffers more than BR_HELD_SMALL bytes is large; other connections
 * are small. While the loop buffers more than the mark, a large connection that buffers more than
 * its share is paused: it is not read. The share is the mark less the bytes that small connections
 * buffer, divided by the number of large connections. One large connection at a time is read
 * nevertheless, in rotation, because memory is freed only when a request completes. Small
 * connections are never paused, and data that is already in a pipeline does not count towards the
 * mark. */
void br_loop_set_mark(struct br_loop *loop, size_t bytes);

#define BR_HELD_SMALL (256u << 10)

/* Returns the bytes that incomplete requests buffer in this loop. For tests. */
size_t br_loop_held(const struct br_loop *loop);
