/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log of the files in a directory that were read, so that they are not read again after a restart.
 * A line with the name and state of a file is appended for each; the last line with a name counts.
 * Invalid lines, for example incomplete ones after a crash, are ignored.
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

/* The beginning of a file whose samples were already counted, as its length in bytes and its
 * hash. A file with folded text may grow after it was read. */
struct pprof_mark {
    uint64_t len, hash;
};

struct pprof_taken {
    struct pprof_identity is;
    struct pprof_mark mark;
};

#define PPROF_TAKEN_FILE_MAX (1ull << 30) /* largest size of the log, in bytes */

struct pprof_taken_log;

/* Opens or creates the log. Returns 0, BR_EIO or BR_ETOOBIG with a message, or BR_ENOMEM. */
int pprof_taken_open(const char *path, struct pprof_taken_log **ret, struct br_err *err);

/* Calls `fn` for every line of the log in order. Must be called once, before lines are added.
 * Returns false with errno set if the log cannot be read, or an incomplete line cannot be ended. */
typedef void pprof_taken_fn(void *arg, const char *name, const struct pprof_taken *taken);
bool pprof_taken_load(struct pprof_taken_log *log, pprof_taken_fn *fn, void *arg);
void pprof_taken_close(struct pprof_taken_log *log); /* Closes the log. Accepts NULL. */

/* Appends a line. Returns false with errno set if it cannot be written. */
bool pprof_taken_add(struct pprof_taken_log *log, const char *name,
                     const struct pprof_taken *taken);

/* Returns true if the open log was deleted. */
bool pprof_taken_is_deleted(const struct pprof_taken_log *log);

/* Returns the number of lines in the log. */
size_t pprof_taken_lines(const struct pprof_taken_log *log);

/* Begins to rewrite the log: lines added from now on belong to the new log. Returns false with
 * errno set on failure. pprof_taken_end must be called in all cases. */
bool pprof_taken_begin(struct pprof_taken_log *log);

/* Ends the rewriting of the log. If `whole` is true, the lines added since pprof_taken_begin
 * replace all others. Returns false on failure, with errno set; the log is then unchanged. */
bool pprof_taken_end(struct pprof_taken_log *log, bool whole);
