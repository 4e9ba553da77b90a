/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives SIGTERM, SIGINT and SIGHUP in a separate thread and passes them to a worker. The thread
 * also limits the duration of the shutdown: after the first SIGTERM or SIGINT, the thread ends the
 * process at a deadline, even if all other threads are blocked.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/sanitize.h"
#include "net/loop.h"

/* The signals thread ends the process BR_SIGNALS_GRACE_MS after the shutdown timeout, or
 * BR_SIGNALS_SECOND_MS after a second SIGTERM or SIGINT, whichever is earlier. */
#if BR_SANITIZED
#define BR_SIGNALS_GRACE_MS 30000 /* freeing memory takes longer with a sanitizer */
#else
#define BR_SIGNALS_GRACE_MS 800
#endif
#define BR_SIGNALS_SECOND_MS 3000

struct br_signals;

struct br_signals_config {
    uint64_t shutdown_timeout_ms;
    void (*on_signal)(int number, void *arg); /* called in the loop's thread */
    void (*on_late)(void *arg); /* called in the signals thread before it ends the process */
    void *arg;
};

/* Blocks SIGTERM, SIGINT and SIGHUP in the calling thread, and starts the thread that receives
 * these signals. Threads that the caller starts later inherit the blocked signals. The new thread
 * runs until the process ends. Returns 0, or BR_EIO or BR_ENOMEM with `err` set. */
int br_signals_start(struct br_loop *loop, const struct br_signals_config *config,
                     struct br_signals **ret, struct br_err *err);

/* Returns the milliseconds until the signals thread ends the process, or UINT64_MAX before the
 * first SIGTERM or SIGINT. */
uint64_t br_signals_left_ms(struct br_signals *signals);

/* Stops calling `on_signal` and `on_late`. Blocks while a call of `on_late` runs. If the process is
 * still running at the deadline, the signals thread ends it with `exit_code`. */
void br_signals_leave(struct br_signals *signals, int exit_code);
