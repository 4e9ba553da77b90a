/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives SIGTERM, SIGINT and SIGHUP in a thread, which nothing else can block, and hands them to
 * a worker. After the first SIGTERM or SIGINT the thread also bounds the shutdown: it ends the
 * process once the time is over, also when other threads are blocked.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "net/loop.h"

/* Milliseconds after the shutdown timeout, and after a second signal, at which the process ends. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BR_SIGNALS_GRACE_MS 30000 /* a sanitizer takes its time to free things */
#else
#define BR_SIGNALS_GRACE_MS 800
#endif
#define BR_SIGNALS_SECOND_MS 3000

struct br_signals;

struct br_signals_config {
    uint64_t shutdown_timeout_ms;
    void (*on_signal)(int number, void *arg); /* in the loop's thread */
    void (*on_late)(void *arg); /* in the thread of the signals, before it ends the process */
    void *arg;
};

/* Blocks the signals in this thread, and so in all that it starts from now on, and starts the
 * thread that receives them. Nothing ends that before the process ends. Returns 0, BR_EIO or
 * BR_ENOMEM with a sentence. */
int br_signals_start(struct br_loop *loop, const struct br_signals_config *config,
                     struct br_signals **ret, struct br_err *err);

/* Returns the milliseconds until the thread ends the process; UINT64_MAX before the first signal.
 */
uint64_t br_signals_left_ms(struct br_signals *signals);

/* Stops calling `on_signal` and `on_late`; waits for a call of `on_late` that has begun, without
 * end. From now on a process that does not end in time ends with `exit_code`. */
void br_signals_leave(struct br_signals *signals, int exit_code);
