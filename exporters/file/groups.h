/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements group_by: one file per value of an attribute. The most recently used files stay open.
 * The value replaces the `*` of the pattern. Because clients choose the value, path components that
 * are empty, "." or ".." are removed from the value, and control characters become '_'. All files
 * therefore stay below the directory of the pattern.
 */
#pragma once

#include "exporters/file/writer.h"

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
