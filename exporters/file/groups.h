/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements group_by: a file for each value of an attribute, of which the last used stay open. The
 * value replaces the `*` of the pattern. It is a peer's: "", "." and ".." between slashes are left
 * out and control characters become '_', so that all files are below the folder of the pattern.
 */
#pragma once

#include "exporters/file/writer.h"

#define FILE_GROUP_VALUE_MAX 200 /* bytes; a longer value names no file */

struct file_groups;

/* Makes the groups of `config`, whose path is the pattern, or shares those that another worker has
 * made; the pattern is borrowed until the last one closes. NULL without memory. */
struct file_groups *file_groups_open(struct br_host *host, const struct file_writer_config *config,
                                     size_t max_open);
void file_groups_close(struct br_host *host, struct file_groups *groups); /* accepts NULL */

/* Gives in `*ret` the writer of a value, which stays until file_groups_done. Each worker may have
 * one. Beyond `max_open`, the file that was used longest ago is closed. Any thread. Returns 0;
 * BR_EINVAL for a value that names no file; BR_ENOMEM. */
int file_groups_writer(struct file_groups *groups, const void *value, size_t len,
                       struct file_writer **ret);
void file_groups_done(struct file_groups *groups, struct file_writer *writer);
