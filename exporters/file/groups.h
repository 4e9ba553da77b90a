/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements group_by: a file for each value of an attribute, of which one worker keeps the last
 * used open. The value stands in the path where the pattern has its `*`. It came from a peer: of
 * what it has between slashes, "", "." and ".." are left out and control characters become '_', so
 * that no file is above or beside the folder that the pattern names.
 */
#pragma once

#include "exporters/file/writer.h"

#define FILE_GROUP_VALUE_MAX 200 /* bytes; a longer value names no file */

struct file_groups;

/* Groups of `config`, whose path is the pattern; it is borrowed until file_groups_free. NULL
 * without memory. */
struct file_groups *file_groups_new(struct br_host *host, const struct file_writer_config *config,
                                    size_t max_open);
void file_groups_free(struct file_groups *groups); /* accepts NULL */

/* Gives in `*ret` the file of a value, which it opens to append where it is not open; borrowed
 * until the next call. Returns 0; BR_EINVAL for a value that names no file; or as
 * file_writer_open. */
int file_groups_writer(struct file_groups *groups, const void *value, size_t len,
                       struct file_writer **ret, struct br_err *err);
