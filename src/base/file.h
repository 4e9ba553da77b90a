/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files and makes folders that only this user may read, whatever the umask is. */
#pragma once

#include <sys/types.h>

/* Opens a file for writing with O_CLOEXEC and further `flags` of open (O_APPEND, O_TRUNC), and
 * makes it with mode 0600 where there is none; one that is there keeps its mode. Returns a
 * descriptor, or -1 with errno. */
int br_file_open(const char *path, int flags);

/* Makes a folder of exactly this mode. Returns 0, also where there is one, or an errno. */
int br_folder_make(const char *path, mode_t mode);

/* Tells whether br_file_open could now, without doing it: the file may be written, or be made in
 * its folder. Returns 0 or an errno. */
int br_file_check(const char *path);
