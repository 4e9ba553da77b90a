/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes whole records, one at a time, to a file that the workers share, and rotates it. A record
 * that does not fit on the disk is taken back, so that no half of one stays.
 *
 * Each record is written to the file that has the path at that time. A file that was deleted,
 * renamed or replaced is left, and the path is opened again, or made anew. A record is not reported
 * as written while its file is deleted.
 *
 * FIFOs and terminals are opened and written without blocking. A disk may block a call without end:
 * file_writer_put is for threads. Other threads then wait for the file for a second once, and get
 * EBUSY until the call returns.
 *
 * A rotated file is renamed to name-2006-01-02T15-04-05.000.ext beside it. Beyond max_backups of
 * these the oldest are removed, and those older than max_days.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/host.h"

struct file_writer;

/* `owner` is borrowed until the writer is freed, `path` is copied. */
struct file_writer_config {
    const char *path;
    const char *owner; /* who writes there: two owners of one path are an error */
    bool append; /* else what is in the file is dropped; a rotated file is always appended to */
    int make_folders;    /* mode of the folders above it that are missing; 0: they must be there */
    uint64_t max_bytes;  /* rotate before a record that would pass it; 0: never */
    int64_t max_backups; /* 0: any number */
    int64_t max_days;    /* 0: for ever */
    bool local_time;     /* in the names of rotated files; else UTC */
    bool only_looks;     /* opens nothing: only whether it could */
};

/* Makes a writer and opens nothing: the first record does. NULL without memory. */
struct file_writer *file_writer_new(const struct file_writer_config *config);
void file_writer_free(struct file_writer *writer); /* accepts NULL */
const char *file_writer_path(const struct file_writer *writer);

/* Opens the file, or shares what another worker has opened. A FIFO without a reader is accepted.
 * Returns 0, BR_EINVAL, BR_EIO or BR_ENOMEM with a sentence. */
int file_writer_open(struct br_host *host, const struct file_writer_config *config,
                     struct file_writer **ret, struct br_err *err);
void file_writer_close(struct br_host *host, struct file_writer *writer); /* accepts NULL */

/* A record in up to three pieces. */
struct file_record {
    const void *data[3];
    size_t len[3];
    size_t written; /* bytes that a FIFO or terminal has taken; 0 at first */
    bool reopened;  /* set when the file had been deleted or replaced */
};

/* Writes a record, after a rotation where one is due. Returns 0 or an errno; then nothing of the
 * record is in the file. EINPROGRESS: the reader of a FIFO has stopped in the middle of the record;
 * until the same `record` is put again and ends otherwise, the writer takes no other. Any thread;
 * may block for as long as the disk does. */
int file_writer_put(struct file_writer *writer, struct file_record *record, uint64_t unix_ns);

/* Returns a text for an error of file_writer_put. */
const char *file_writer_reason(int error);
