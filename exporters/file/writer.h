/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes whole records, one at a time, to a file that the workers share, and rotates it. A record
 * that does not fit on the disk is taken back, so that no half of one stays.
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

/* `owner` is borrowed until the last worker has closed, `path` is copied. */
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

/* Opens the file, or shares what another worker has opened. Returns 0, BR_EINVAL, BR_EIO or
 * BR_ENOMEM with a sentence. */
int file_writer_open(struct br_host *host, const struct file_writer_config *config,
                     struct file_writer **ret, struct br_err *err);
void file_writer_close(struct br_host *host, struct file_writer *writer); /* accepts NULL */

/* A record in up to three pieces. */
struct file_record {
    const void *data[3];
    size_t len[3];
};

/* Writes a record, after a rotation where one is due. Returns 0 or an errno; then nothing of the
 * record is in the file. Any thread. */
int file_writer_put(struct file_writer *writer, const struct file_record *record, uint64_t unix_ns);
