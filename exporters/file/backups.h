/* SPDX-License-Identifier: Apache-2.0 */
/* Names, finds and removes the rotated files beside a file. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Writes the name that a file rotated at that time gets. False when it is too long. */
bool file_backup_name(const char *path, uint64_t unix_ns, bool local_time, char out[PATH_MAX]);

/* Removes the oldest rotated files beyond `max_backups`, and those from more than `max_days` before
 * `unix_ns`; 0 means no limit. What cannot be removed stays. */
void file_backups_prune(const char *path, uint64_t unix_ns, bool local_time, int64_t max_backups,
                        int64_t max_days);
