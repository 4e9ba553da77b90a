/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers in a file which files of a folder were taken and what they were like, so that a restart
 * does not take them again. Each has a line, which is added at the end; the last line of a name
 * counts. What is no such line (half of one, after a crash) is passed over.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pprof_identity {
    uint64_t size, inode;
    uint64_t changed_ns;
};

/* How much of a file was counted: its first bytes, and their hash. A folded one may grow. */
struct pprof_mark {
    uint64_t len, hash;
};

struct pprof_taken {
    struct pprof_identity is;
    struct pprof_mark mark;
};

#define PPROF_TAKEN_FILE_MAX (1ull << 30) /* bytes that are read of it */

struct pprof_taken_log;

/* Opens the file at `path`, or makes it. Returns 0; BR_EIO or BR_ETOOBIG with a sentence, or
 * BR_ENOMEM. */
int pprof_taken_open(const char *path, struct pprof_taken_log **ret, struct br_err *err);

/* Hands every line of the file to `fn`, in order; once, before anything is added. False, with errno
 * set, when it cannot be read, or half a line at its end cannot be ended. */
typedef void pprof_taken_fn(void *arg, const char *name, const struct pprof_taken *taken);
bool pprof_taken_load(struct pprof_taken_log *log, pprof_taken_fn *fn, void *arg);
void pprof_taken_close(struct pprof_taken_log *log); /* accepts NULL */

/* Adds a line. False, with errno set, when it cannot be written. */
bool pprof_taken_add(struct pprof_taken_log *log, const char *name,
                     const struct pprof_taken *taken);

/* Returns true when the file was deleted while it is open. */
bool pprof_taken_is_deleted(const struct pprof_taken_log *log);

/* Lines that it has. */
size_t pprof_taken_lines(const struct pprof_taken_log *log);

/* Write it anew: the lines that are added between the two replace the others, if they are `whole`.
 * Return false, with errno set, on failure; then the file is as it was. `end` is called in any
 * case. */
bool pprof_taken_begin(struct pprof_taken_log *log);
bool pprof_taken_end(struct pprof_taken_log *log, bool whole);
