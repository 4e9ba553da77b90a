/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library preloaded before libuv that measures loop iterations, from the return of epoll_wait to
 * the next call, in CPU time of their thread: other processes do not affect it. The figures are in
 * the file TURNS_FILE; a reader may overwrite it with zeros to start a new count.
 * TURNS_STACKS=3500:FILE appends to FILE the stack of each iteration at 3500 microseconds.
 */
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BINS 16 /* entry n counts iterations below 2^n times 62.5 microseconds */
#define BIN_NS 62500u
#define FRAMES 24

struct figures {
    _Atomic uint64_t n, longest_ns, longest_wall_ns, bins[BINS];
};

static struct figures *figures;
static long stacks_us;
static int stacks_fd = -1;
static _Thread_local uint64_t began_ns, began_wall_ns;
static _Thread_local timer_t timer;
static _Thread_local int has_timer;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void on_long(int number)
{
    static const char line[] = "turn:\n";
    void *frames[FRAMES];
    (void)number;
    (void)!write(stacks_fd, line, sizeof line - 1);
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), stacks_fd);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TURNS_FILE"), *stacks = getenv("TURNS_STACKS");
    void *frames[1];
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof *figures))
        return;
    void *mapped = mmap(NULL, sizeof *figures, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    figures = mapped == MAP_FAILED ? NULL : mapped;
    const char *colon = stacks ? strchr(stacks, ':') : NULL;
    if (colon)
        stacks_fd = open(colon + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    stacks_us = stacks_fd >= 0 ? atol(stacks) : 0;
    (void)backtrace(frames, 1); /* loads the unwinder in advance */
    if (stacks_us)
        (void)signal(SIGPROF, on_long);
}

static void set_timer(long us)
{
    struct itimerspec after = {.it_value = {us / 1000000, us % 1000000 * 1000}};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    if (!has_timer)
        has_timer = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0;
    if (has_timer)
        (void)timer_settime(timer, 0, &after, NULL);
}

static void raise_to(_Atomic uint64_t *most, uint64_t value)
{
    if (value > *most)
        *most = value;
}

static void end_turn(void)
{
    if (!figures || !began_ns)
        return;
    uint64_t took = now_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns;
    int bin = 0;
    while (bin < BINS - 1 && took >= (uint64_t)BIN_NS << bin)
        bin++;
    figures->n++;
    figures->bins[bin]++;
    raise_to(&figures->longest_ns, took);
    raise_to(&figures->longest_wall_ns, now_ns(CLOCK_MONOTONIC) - began_wall_ns);
    if (stacks_us)
        set_timer(0);
}

static int begin_turn(int n)
{
    began_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    began_wall_ns = now_ns(CLOCK_MONOTONIC);
    if (stacks_us)
        set_timer(stacks_us);
    return n;
}

int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    end_turn();
    return begin_turn((int)syscall(SYS_epoll_wait, fd, events, n, timeout));
}
