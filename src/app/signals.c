/* SPDX-License-Identifier: Apache-2.0 */
#include "app/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

#define MS_NS 1000000

struct br_signals {
    struct br_signals_config config;
    pthread_mutex_t lock; /* protects the fields below; also locked while on_late runs */
    struct br_loop *loop; /* NULL after br_signals_leave */
    /* time of the monotonic clock, in ms, at which the process ends; UINT64_MAX before the first
     * SIGTERM or SIGINT */
    uint64_t deadline_ms;
    unsigned n_ends;    /* number of received SIGTERM and SIGINT signals */
    unsigned n_hangups; /* number of SIGHUP signals that have not been passed to the loop yet */
    unsigned n_handed;  /* number of SIGTERM and SIGINT signals that have been passed to the loop */
    int last;           /* the last received signal that ends the process: SIGTERM or SIGINT */
    bool posted;        /* `message` is in the loop's queue */
    struct br_message message;
    int exit_code;
};

static uint64_t signals_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / MS_NS;
}

static void signals_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

/* Passes the recorded signals to on_signal. Runs in the loop's thread. */
static void signals_on_message(struct br_message *message, struct br_loop *loop)
{
    struct br_signals *signals = br_container_of(message, struct br_signals, message);
    (void)loop;
    (void)pthread_mutex_lock(&signals->lock);
    unsigned n_ends = signals->n_ends - signals->n_handed, n_hangups = signals->n_hangups;
    int number = signals->last;
    signals->n_handed = signals->n_ends;
    signals->n_hangups = 0;
    signals->posted = false;
    (void)pthread_mutex_unlock(&signals->lock);
    if (n_hangups)
        signals->config.on_signal(SIGHUP, signals->config.arg);
    for (unsigned i = 0; i < n_ends && i < 2; i++)
        signals->config.on_signal(number, signals->config.arg);
}

/* Records a signal and passes it to the loop. A second SIGTERM or SIGINT shortens the time until
 * the deadline. */
static void signals_handle(struct br_signals *signals, int number)
{
    (void)pthread_mutex_lock(&signals->lock);
    if (number == SIGHUP) {
        signals->n_hangups++;
    } else {
        uint64_t wait_ms = signals->n_ends
                               ? BR_SIGNALS_SECOND_MS
                               : signals->config.shutdown_timeout_ms + BR_SIGNALS_GRACE_MS;
        uint64_t deadline_ms = signals_now_ms() + wait_ms;
        if (deadline_ms < signals->deadline_ms)
            signals->deadline_ms = deadline_ms;
        signals->n_ends++;
        signals->last = number;
    }
    if (signals->loop && !signals->posted) {
        signals->posted = true;
        signals->message.run = signals_on_message;
        br_loop_command(signals->loop, &signals->message);
    }
    (void)pthread_mutex_unlock(&signals->lock);
}

/* Waits for a signal. Returns its number, or 0 at the deadline. */
static int signals_wait(struct br_signals *signals, const sigset_t *set)
{
    uint64_t left_ms = br_signals_left_ms(signals);
    const struct timespec timeout = {(time_t)(left_ms / 1000), (long)(left_ms % 1000) * MS_NS};
    int number = sigtimedwait(set, NULL, left_ms == UINT64_MAX ? NULL : &timeout);
    return number > 0 ? number : 0;
}

static void *signals_run(void *arg)
{
    struct br_signals *signals = arg;
    sigset_t set;
    signals_set(&set);
    while (br_signals_left_ms(signals)) {
        int number = signals_wait(signals, &set);
        if (number)
            signals_handle(signals, number);
    }
    (void)pthread_mutex_lock(&signals->lock);
    if (signals->loop)
        signals->config.on_late(signals->config.arg);
    _exit(signals->loop ? EXIT_FAILURE : signals->exit_code);
}

int br_signals_start(struct br_loop *loop, const struct br_signals_config *config,
                     struct br_signals **ret, struct br_err *err)
{
    struct br_signals *signals = br_calloc(1, sizeof *signals);
    pthread_t thread;
    sigset_t set, all, before;
    if (!signals)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    signals->config = *config;
    signals->loop = loop;
    signals->deadline_ms = UINT64_MAX;
    (void)pthread_mutex_init(&signals->lock, NULL);
    signals_set(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, signals_run, signals);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        br_free(signals);
        return br_err_set(err, BR_EIO, "cannot start the thread for signals: %s", strerror(error));
    }
    (void)pthread_detach(thread);
    *ret = signals;
    return 0;
}

uint64_t br_signals_left_ms(struct br_signals *signals)
{
    (void)pthread_mutex_lock(&signals->lock);
    uint64_t deadline_ms = signals->deadline_ms, now_ms = signals_now_ms();
    (void)pthread_mutex_unlock(&signals->lock);
    if (deadline_ms == UINT64_MAX)
        return UINT64_MAX;
    return deadline_ms > now_ms ? deadline_ms - now_ms : 0;
}

void br_signals_leave(struct br_signals *signals, int exit_code)
{
    (void)pthread_mutex_lock(&signals->lock);
    signals->loop = NULL;
    signals->exit_code = exit_code;
    (void)pthread_mutex_unlock(&signals->lock);
}
