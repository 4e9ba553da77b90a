/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the seeds in tests/corpus: every file of a directory goes through `fn`. An input that
 * a fuzz target once found is thus a unit test from then on. BR_TEST_CORPUS comes from the
 * build. */
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
