/* SPDX-License-Identifier: Apache-2.0 */
/*
 * List of the files in a directory that were read, so that they are not read again after a restart.
 * Each time a file is read, a line with its name and state is appended; of several lines with the
 * same name, the last one counts. Invalid lines, for example incomplete ones after a crash, are
 * ignored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The properties of a file that are compared to detect a change. */
struct pprof_identity {
    uint64_t size; /* size of the file in bytes */
    uint64_t inode;
    uint64_t changed_ns; /* time of the last modification, in nanoseconds since 1970 */
};

/* The beginning of a file whose samples were already counted: its length in bytes, and the hash
 * of these bytes. A file with folded text may grow after it was read. */
struct pprof_mark {
    uint64_t len, hash;
};

/* State of a file at the time when it was read. */
struct pprof_file_state {
    struct pprof_identity identity;
    struct pprof_mark mark;
};

#define PPROF_READ_FILES_BYTES_MAX (1ull << 30) /* largest size of the list, in bytes */

struct pprof_read_files;

/* Opens or creates the list. Returns 0, BR_EIO or BR_ETOOBIG with a message, or BR_ENOMEM. */
int pprof_read_files_open(const char *path, struct pprof_read_files **ret, struct br_err *err);

/* Calls `fn` for every valid line of the list in order. Must be called once, before lines are
 * added. Returns false with errno set if the list cannot be read, or if an incomplete last line
 * cannot be terminated. */
typedef void pprof_read_files_fn(void *arg, const char *name, const struct pprof_file_state *state);
bool pprof_read_files_load(struct pprof_read_files *list, pprof_read_files_fn *fn, void *arg);
/* Closes the list of read files. Accepts NULL. */
void pprof_read_files_close(struct pprof_read_files *list);

/* Appends a line. Returns false with errno set if the line cannot be written. */
bool pprof_read_files_add(struct pprof_read_files *list, const char *name,
                          const struct pprof_file_state *state);

/* Returns true if the open list was deleted. */
bool pprof_read_files_is_deleted(const struct pprof_read_files *list);

/* Returns the number of lines in the list. */
size_t pprof_read_files_lines(const struct pprof_read_files *list);

/* Begins to rewrite the list: lines added from now on belong to the new list. Returns false with
 * errno set on failure. pprof_read_files_end must be called in all cases. */
bool pprof_read_files_begin(struct pprof_read_files *list);

/* Ends the rewriting of the list. If `whole` is true, the lines added since
 * pprof_read_files_begin replace all earlier lines. Returns false on failure, with errno set;
 * the list is then unchanged. */
bool pprof_read_files_end(struct pprof_read_files *list, bool whole);
