/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a function on each file of a directory in tests/corpus. A unit test thus repeats all inputs
 * that a fuzz target has found. The build defines BR_TEST_CORPUS. */
#pragma once

#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/file.h"

/* Returns the number of files. Aborts when one cannot be read. */
static inline size_t corpus_replay(const char *folder, void (*fn)(const uint8_t *data, size_t len))
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", BR_TEST_CORPUS, folder);
    DIR *dir = opendir(path);
    if (!dir)
        abort();
    size_t n = 0;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/%s", BR_TEST_CORPUS, folder, e->d_name);
        size_t size;
        char *data = file_read(path, &size);
        if (!data)
            abort();
        fn((const uint8_t *)data, size);
        free(data);
        n++;
    }
    closedir(dir);
    return n;
}
