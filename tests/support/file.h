/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files, in the C library's memory. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* Returns the content of the file with a NUL behind it; the caller frees it. Returns NULL if the
 * file cannot be opened. `ret_len` (may be NULL) receives its length. Aborts without memory and
 * on read errors. */
static inline char *file_read(const char *path, size_t *ret_len)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    if (fseek(f, 0, SEEK_END))
        abort();
    size_t len = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(len + 1);
    if (!data || fread(data, 1, len, f) != len || fclose(f))
        abort();
    data[len] = '\0';
    if (ret_len)
        *ret_len = len;
    return data;
}

/* As above for a required file: aborts if it cannot be opened. */
static inline char *file_text(const char *path)
{
    char *text = file_read(path, NULL);
    if (!text) {
        perror(path);
        abort();
    }
    return text;
}
