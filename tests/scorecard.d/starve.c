/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded library that makes allocations of a program and its libraries fail: STARVE_FOR of
 * them, from number STARVE_AT on. At the end it writes the total number to the file STARVE_COUNT.
 * In a crash it writes the place to stderr.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static atomic_ulong n_allocations;
static unsigned long first, last;

static unsigned long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : 0;
}

static void on_crash(int number)
{
    void *frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

__attribute__((constructor)) static void begin(void)
{
    (void)signal(SIGABRT, on_crash);
    (void)signal(SIGSEGV, on_crash);
    first = number("STARVE_AT");
    last = first + number("STARVE_FOR");
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("STARVE_COUNT");
    unsigned long n = n_allocations;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        (void)fprintf(file, "%lu\n", n);
        (void)fclose(file);
    }
}

static int starves(void)
{
    unsigned long n = ++n_allocations;
    if (first == 0 || n < first || n >= last)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return starves() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return starves() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    return starves() ? NULL : __libc_realloc(old, size);
}

/* Memory that the C library maps for itself does not pass through these functions. */
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_ANONYMOUS) && starves())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

void *mremap(void *old, size_t had, size_t size, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    void *at = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
    va_end(more);
    if (size > had && starves())
        return MAP_FAILED;
    return (void *)syscall(SYS_mremap, old, had, size, flags, at);
}
