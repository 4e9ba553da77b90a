/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes records to a file that the workers share, and rotates it. A record that does not fit on
 * the disk is truncated, so that no incomplete record remains.
 *
 * Each record is written to the file that has the path at that time. If the file was deleted,
 * renamed or replaced, the path is opened or created again. A record is not reported as written if
 * its file was deleted meanwhile.
 *
 * FIFOs and terminals are opened and written without blocking. A disk may block a call for an
 * unlimited time, so file_writer_put is called in threads only. Other threads wait one second for
 * the file, once, and then get EBUSY until the call returns.
 *
 * A rotated file is renamed to name-2006-01-02T15-04-05.000.ext in the same directory. The oldest
 * rotated files above max_backups are removed, and all that are older than max_days.
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
    /* id of the exporter that writes to the path; two owners of one path are an error */
    const char *owner;
    /* append at the start instead of truncating; files with rotation are always appended to */
    bool append;
    int directory_mode; /* mode for missing parent directories; 0: they must exist */
    /* bytes of a file; the file is rotated before a record that would exceed this size; 0: never */
    uint64_t max_bytes;
    int64_t max_backups; /* number of rotated files that are kept; 0: unlimited */
    int64_t max_days;    /* days after which rotated files are removed; 0: never */
    bool local_time;     /* the names of rotated files contain the local time; false: UTC */
    bool only_checks;    /* true: only check that the file could be opened */
};

/* Returns a writer that opens its file when the first record is written. Returns NULL if memory
 * is short. */
struct file_writer *file_writer_new(const struct file_writer_config *config);
/* Closes the file and frees the writer. Accepts NULL. */
void file_writer_free(struct file_writer *writer);
const char *file_writer_path(const struct file_writer *writer);

/* Opens the file, or shares the writer that another worker has opened. Accepts a FIFO without a
 * reader. Returns 0, BR_EINVAL, BR_EIO or BR_ENOMEM with a message. */
int file_writer_open(struct br_host *host, const struct file_writer_config *config,
                     struct file_writer **ret, struct br_err *err);
/* Releases a worker's reference to the writer. Accepts NULL. */
void file_writer_close(struct br_host *host, struct file_writer *writer);

/* A record in up to three pieces. */
struct file_record {
    const void *data[3];
    size_t len[3];
    size_t written; /* number of bytes that a FIFO or terminal has accepted; 0 at first */
    bool reopened;  /* the file had been deleted or replaced, and was opened again */
};

/* Writes a record, after a rotation if one is due. Returns 0, or an errno if no part of the
 * record is in the file. Returns EINPROGRESS if the reader of a FIFO stopped reading in the
 * middle of the record. The caller must then put the same `record` again, and the writer accepts
 * no other record until this record has ended. Any thread may call this. A call may block as
 * long as the disk does. */
int file_writer_put(struct file_writer *writer, struct file_record *record, uint64_t unix_ns);

/* Returns a text for an error of file_writer_put. */
const char *file_writer_reason(int error);

/* --- Rotated files ---------------------------------------------------------------------------- */

/* Names, finds and removes the rotated files of a file. */

/* Writes the name for a file that is rotated at `unix_ns`. Returns false if it is too long. */
bool file_backup_name(const char *path, uint64_t unix_ns, bool local_time, char out[PATH_MAX]);

/* Removes the oldest rotated files above `max_backups`, and those that are more than `max_days`
 * older than `unix_ns`; 0 means no limit. Ignores files that it cannot remove. */
void file_backups_prune(const char *path, uint64_t unix_ns, bool local_time, int64_t max_backups,
                        int64_t max_days);

/* --- Groups ----------------------------------------------------------------------------------- */

/*
 * Implements group_by: one file per value of an attribute. The most recently used files stay open.
 * The value replaces the `*` of the pattern. Because clients choose the value, path components that
 * are empty, "." or ".." are removed from the value, and control characters become '_'. All files
 * therefore stay below the directory of the pattern.
 */

/* bytes of an attribute value; longer values are not valid file names */
#define FILE_GROUP_VALUE_MAX 200

struct file_groups;

/* Returns the groups of `config`, which all workers share. `config->path` is the pattern; it is
 * borrowed until the last worker closes the groups. Returns NULL if memory is short. */
struct file_groups *file_groups_open(struct br_host *host, const struct file_writer_config *config,
                                     size_t max_open);
/* Releases a worker's reference to the groups. Accepts NULL. */
void file_groups_close(struct br_host *host, struct file_groups *groups);

/* Sets `*ret` to the writer for an attribute value. The writer is valid until file_groups_done.
 * Each worker may use one writer at a time. If more than `max_open` files are open, closes the
 * least recently used file. Any thread may call this. Returns 0, BR_ENOMEM, or BR_EINVAL if the
 * value is not a valid file name. */
int file_groups_writer(struct file_groups *groups, const void *value, size_t len,
                       struct file_writer **ret);
void file_groups_done(struct file_groups *groups, struct file_writer *writer);
