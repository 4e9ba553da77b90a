/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES (256u << 10)
#define CRASHES 5

enum mode {
    DIRECT, /* the calling thread writes each line */
    QUEUED, /* the log's thread writes the queued lines */
    STUCK,  /* the log's thread did not end in time: nothing is written any more */
};

static const int crashes[CRASHES] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

/* There is one log per process (law 10 in docs/contributing/laws.md). */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    pthread_t thread;
    int fd;
    size_t (*notice)(uint64_t n, char line[BR_LOG_LINE_MAX + 1]);
    _Atomic int mode;
    bool stopping, stopped;
    _Atomic size_t head,
        /* total bytes queued (head) and written (tail); the crash handler reads both without the
         * lock */
        tail;
    uint64_t dropped, told;
    struct sigaction before[CRASHES];
    char ring[RING_BYTES];
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Writes a line, in one call if possible. Blocks until the line is written. */
static bool log_sink_write_line(int fd, const char *line, size_t len)
{
    while (len) {
        ssize_t n = write(fd, line, len);
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (n >= 0) {
            line += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            (void)poll(&p, 1, -1);
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Copies the line that begins at offset `at` of the ring. Returns its length. */
static size_t log_sink_copy_line(size_t at, size_t end, char line[BR_LOG_LINE_MAX])
{
    size_t n = 0;
    while (at < end && n < BR_LOG_LINE_MAX) {
        line[n] = sink.ring[at++ % RING_BYTES];
        if (line[n++] == '\n')
            break;
    }
    return n;
}

/* --- The thread ------------------------------------------------------------------------------- */

/* Writes a line. The caller holds the lock, which is released while the line is written. */
static bool log_sink_write_out(const char *line, size_t len)
{
    pthread_mutex_unlock(&sink.lock);
    bool written = log_sink_write_line(sink.fd, line, len);
    pthread_mutex_lock(&sink.lock);
    return written;
}

static void log_sink_write_next(void)
{
    char line[BR_LOG_LINE_MAX];
    size_t len = log_sink_copy_line(sink.tail, sink.head, line);
    if (!log_sink_write_out(line, len))
        sink.dropped++;
    /* The crash handler writes the lines from the tail on. The tail moves after the write, so that
     * a crash during the write does not lose this line. */
    sink.tail += len;
}

/* Writes how many lines were dropped. Called when the ring is empty, because the dropped lines
 * are later than all lines written so far. */
static void log_sink_write_notice(void)
{
    char line[BR_LOG_LINE_MAX + 1];
    size_t len = sink.notice(sink.dropped - sink.told, line);
    sink.told = sink.dropped;
    (void)log_sink_write_out(line, len);
}

static void *log_sink_run(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&sink.lock);
    while (sink.tail != sink.head || !sink.stopping) {
        if (sink.tail != sink.head)
            log_sink_write_next();
        else if (sink.dropped != sink.told)
            log_sink_write_notice();
        else
            pthread_cond_wait(&sink.more, &sink.lock);
    }
    if (sink.dropped != sink.told)
        log_sink_write_notice();
    sink.stopped = true;
    pthread_cond_signal(&sink.done);
    pthread_mutex_unlock(&sink.lock);
    return NULL;
}

/* --- Crashes ---------------------------------------------------------------------------------- */

/* Writes the lines left in the ring, as far as that does not block, and lets the crash proceed.
 * Takes no lock, because the crashed thread may hold the lock. The log's thread may write the
 * same lines a second time. */
static void log_sink_on_crash(int number, siginfo_t *info, void *context)
{
    char line[BR_LOG_LINE_MAX];
    struct pollfd p = {.fd = sink.fd, .events = POLLOUT};
    (void)context;
    for (int i = 0; i < CRASHES; i++)
        if (crashes[i] == number)
            (void)sigaction(number, &sink.before[i], NULL);
    size_t end = sink.head, at = sink.tail;
    while (at < end && poll(&p, 1, 0) == 1) {
        size_t len = log_sink_copy_line(at, end, line);
        if (write(sink.fd, line, len) < 0)
            break;
        at += len;
    }
    /* The signal was sent by kill or raise: it would not come again after a return from the
     * handler. */
    if (info->si_code <= 0)
        (void)raise(number);
}

static void log_sink_catch_crashes(void)
{
    struct sigaction action = {.sa_sigaction = log_sink_on_crash, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < CRASHES; i++)
        (void)sigaction(crashes[i], &action, &sink.before[i]);
}

static void log_sink_release_crashes(void)
{
    for (int i = 0; i < CRASHES; i++)
        (void)sigaction(crashes[i], &sink.before[i], NULL);
}

/* --- For log.c -------------------------------------------------------------------------------- */

/* Queues a line. Returns true if the line fits into the ring. */
static bool log_sink_queue(const char *line, size_t len)
{
    size_t at = sink.head % RING_BYTES;
    size_t first = RING_BYTES - at < len ? RING_BYTES - at : len;
    if (RING_BYTES - (sink.head - sink.tail) < len)
        return false;
    memcpy(sink.ring + at, line, first);
    memcpy(sink.ring, line + first, len - first);
    sink.head += len;
    pthread_cond_signal(&sink.more);
    return true;
}

void br_log_sink_put(int fd, const char *line, size_t len)
{
    if (sink.mode == DIRECT) {
        ssize_t ignored = write(fd, line, len);
        (void)ignored;
        return;
    }
    pthread_mutex_lock(&sink.lock);
    if (sink.mode == STUCK || !log_sink_queue(line, len))
        sink.dropped++;
    pthread_mutex_unlock(&sink.lock);
}

bool br_log_sink_start(int fd, size_t (*notice)(uint64_t n, char line[BR_LOG_LINE_MAX + 1]))
{
    sigset_t all, before;
    pthread_condattr_t clock;
    if (sink.mode != DIRECT)
        return sink.mode == QUEUED;
    sink.fd = fd;
    sink.notice = notice;
    sink.stopping = sink.stopped = false;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&sink.more, NULL);
    (void)pthread_cond_init(&sink.done, &clock);
    (void)pthread_condattr_destroy(&clock);
    sigfillset(&all);
    /* the log's thread blocks all signals, because the first worker handles them */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&sink.thread, NULL, log_sink_run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started)
        return false;
    log_sink_catch_crashes();
    sink.mode = QUEUED;
    return true;
}

/* Waits for the log's thread. Returns true if the thread wrote all lines within `wait_ms`. */
static bool log_sink_wait_done(uint64_t wait_ms)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(wait_ms / 1000);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    sink.stopping = true;
    pthread_cond_signal(&sink.more);
    while (!sink.stopped && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&sink.done, &sink.lock, &until);
    return sink.stopped;
}

bool br_log_sink_stop(uint64_t wait_ms)
{
    if (sink.mode != QUEUED)
        return sink.mode == DIRECT;
    pthread_mutex_lock(&sink.lock);
    bool done = log_sink_wait_done(wait_ms);
    for (size_t at = sink.tail; at != sink.head; at++)
        sink.dropped += sink.ring[at % RING_BYTES] == '\n';
    sink.mode = done ? DIRECT : STUCK;
    pthread_mutex_unlock(&sink.lock);
    log_sink_release_crashes();
    if (!done) {
        (void)pthread_detach(sink.thread);
        return false;
    }
    (void)pthread_join(sink.thread, NULL);
    (void)pthread_cond_destroy(&sink.more);
    (void)pthread_cond_destroy(&sink.done);
    return true;
}

uint64_t br_log_sink_dropped(void)
{
    pthread_mutex_lock(&sink.lock);
    uint64_t n = sink.dropped;
    pthread_mutex_unlock(&sink.lock);
    return n;
}
