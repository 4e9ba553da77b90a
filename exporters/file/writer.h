/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes records to a file that the workers share, and rotates the file. A record that does not fit
 * on the disk is removed again by truncating the file, so that no incomplete record remains.
 *
 * Each record is written to the file that has the configured path when the record is written. If
 * the file was deleted, renamed or replaced, the file at the path is opened or created again. A
 * record is not reported as written if its file was deleted while it was written.
 *
 * FIFOs and terminals are opened and written without blocking. A disk may block a call for an
 * unlimited time, so file_writer_put must not be called on a worker's loop. If a call blocks, other
 * threads wait one second for it; after that, calls fail with EBUSY at once until the blocked call
 * returns.
 *
 * A rotated file is renamed to name-2006-01-02T15-04-05.000.ext in the same directory. Rotated
 * files that are older than `max_days` days are removed. If there are more than `max_backups`
 * rotated files, the oldest ones are removed.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/host.h"

struct file_writer;

/* `owner` is borrowed until the writer is freed; `path` is copied. */
struct file_writer_config {
    const char *path;
    /* id of the exporter that writes to the path; it is an error if two exporters write to one
     * path */
    const char *owner;
    /* true: at startup, an existing file is kept and appended to; false: the file is truncated;
     * files with rotation are never truncated */
    bool append;
    /* permissions of parent directories that are created; 0: parent directories must exist */
    int directory_mode;
    /* largest size of a file in bytes; the file is rotated before a record that would exceed
     * this size; 0: the file is never rotated */
    uint64_t max_bytes;
    int64_t max_backups; /* number of rotated files that are kept; 0: unlimited */
    int64_t max_days;    /* days after which rotated files are removed; 0: never */
    bool local_time;     /* true: the names of rotated files contain local time; false: UTC */
    bool only_checks;    /* true: file_writer_open only checks that the file can be opened */
};

/* Returns a writer that opens its file when the first record is written. Returns NULL if memory
 * is short. */
struct file_writer *file_writer_new(const struct file_writer_config *config);
/* Closes the file and frees the writer. Accepts NULL. */
void file_writer_free(struct file_writer *writer);
const char *file_writer_path(const struct file_writer *writer);

/* Opens the file, or shares the writer that another worker has opened. Succeeds even if the path
 * is a FIFO from which no process reads. Returns 0, or BR_EINVAL, BR_EIO or BR_ENOMEM with a
 * message. */
int file_writer_open(struct br_host *host, const struct file_writer_config *config,
                     struct file_writer **ret, struct br_err *err);
/* Releases a worker's reference to the writer. Accepts NULL. */
void file_writer_close(struct br_host *host, struct file_writer *writer);

/* A record to be written, which consists of up to three pieces. */
struct file_record {
    const void *data[3];
    size_t len[3];
    /* number of bytes of the record that a FIFO or terminal has accepted; 0 at first */
    size_t written;
    bool reopened; /* set if the file had been deleted or replaced, and was opened again */
};

/* Writes a record. Rotates the file first if the record would make it too large. Returns 0, or
 * an errno value if the write failed and no part of the record is in the file. Returns
 * EINPROGRESS if the reader of a FIFO stopped reading in the middle of the record. The caller
 * must then put the same `record` again, and the writer accepts no other record until this
 * record has been written or has failed. Any thread may call this function. A call may block as
 * long as the disk does. */
int file_writer_put(struct file_writer *writer, struct file_record *record, uint64_t unix_ns);

/* Returns a message for an error of file_writer_put. */
const char *file_writer_reason(int error);

/* --- Rotated files ---------------------------------------------------------------------------- */

/* Functions that name, find and remove the rotated files of a path. */

/* Writes to `out` the new path of a file that is rotated at `unix_ns`. Returns false if the path
 * is too long. */
bool file_backup_name(const char *path, uint64_t unix_ns, bool local_time, char out[PATH_MAX]);

/* Removes rotated files that are more than `max_days` days older than `unix_ns`. Also removes
 * the oldest rotated files if there are more than `max_backups`. If `max_days` or `max_backups`
 * is 0, there is no such limit. Ignores files that it cannot remove. */
void file_backups_prune(const char *path, uint64_t unix_ns, bool local_time, int64_t max_backups,
                        int64_t max_days);

/* --- Groups ----------------------------------------------------------------------------------- */

/*
 * Implements the option group_by: one file for each value of an attribute. The most recently used
 * files stay open. The attribute's value replaces the `*` in the pattern of the files' paths.
 * Because clients choose the value, path components that are empty, "." or ".." are removed from
 * the value, and control characters become '_'. All files therefore stay below the directory of the
 * pattern.
 */

/* largest attribute value, in bytes; longer values are not valid file names */
#define FILE_GROUP_VALUE_MAX 200

struct file_groups;

/* Returns the file_groups of `config`: its open files, one for each attribute value. All workers
 * share these files. `config->path` is the pattern of the files' paths. The pattern is borrowed
 * until the last worker closes the groups. Returns NULL if memory is short. */
struct file_groups *file_groups_open(struct br_host *host, const struct file_writer_config *config,
                                     size_t max_open);
/* Releases a worker's reference to the groups. Accepts NULL. */
void file_groups_close(struct br_host *host, struct file_groups *groups);

/* Sets `*ret` to the writer for an attribute value. The writer is valid until file_groups_done
 * is called. Each worker may use one writer at a time. If more than `max_open` files are open,
 * closes the least recently used file. Any thread may call this function. Returns 0, BR_ENOMEM, or
 * BR_EINVAL if the value is not a valid file name. */
int file_groups_writer(struct file_groups *groups, const void *value, size_t len,
                       struct file_writer **ret);
void file_groups_done(struct file_groups *groups, struct file_writer *writer);
