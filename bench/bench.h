/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers shared by the benchmark programs: clock, fatal errors, files. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/buf.h"

/* Returns the CPU time that this process has used, in nanoseconds. */
static inline double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline double cpu_seconds(void)
{
    return cpu_ns() / 1e9;
}

static _Noreturn inline void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, name, what);
    exit(1);
}

/* Reads a whole file of at most BR_BUF_MAX bytes. Ends the program if it cannot be read. */
static inline struct br_buf *read_file(struct br_pool *pool, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END))
        die("cannot be read", path);
    long len = ftell(f);
    rewind(f);
    struct br_buf *buf = len > 0 ? br_buf_new(pool, (size_t)len) : NULL;
    if (!buf || fread(buf->data, 1, (size_t)len, f) != (size_t)len)
        die("cannot be read", path);
    buf->len = (uint32_t)len;
    (void)fclose(f);
    return buf;
}
