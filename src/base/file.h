/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files and makes directories that only the user of the process may read, whatever the
 * umask. */
#pragma once

#include <sys/types.h>

/* Opens a file for writing with O_CLOEXEC and further `flags` of open (O_APPEND, O_TRUNC).
 * Creates the file with mode 0600 if it does not exist; an existing file keeps its mode. Returns
 * a descriptor, or -1 with errno. */
int br_file_open(const char *path, int flags);

/* Makes a directory with exactly the mode `mode`. Returns 0 if the directory was made or exists
 * already, otherwise an errno value. */
int br_folder_make(const char *path, mode_t mode);

/* Checks, without changing anything, whether br_file_open would succeed: the file must be
 * writable, or its directory must allow creating it. Returns 0 or an errno value. */
int br_file_check(const char *path);
