/* SPDX-License-Identifier: Apache-2.0 */
/* Names, finds and removes the rotated files of a file. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Writes the name for a file that is rotated at `unix_ns`. Returns false if it is too long. */
bool file_backup_name(const char *path, uint64_t unix_ns, bool local_time, char out[PATH_MAX]);

/* Removes the oldest rotated files above `max_backups`, and those that are more than `max_days`
 * older than `unix_ns`; 0 means no limit. Ignores files that it cannot remove. */
void file_backups_prune(const char *path, uint64_t unix_ns, bool local_time, int64_t max_backups,
                        int64_t max_days);
