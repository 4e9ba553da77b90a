/* SPDX-License-Identifier: Apache-2.0 */
/* Reads whole files into memory of the C library. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* Returns the content of the file, followed by a byte 0. The caller frees it. Stores the length in
 * `*ret_len` unless `ret_len` is NULL. Returns NULL if the file cannot be opened. Aborts if memory
 * is exhausted or a read fails. */
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

/* Does the same as file_read, but aborts if the file cannot be opened. */
static inline char *file_text(const char *path)
{
    char *text = file_read(path, NULL);
    if (!text) {
        perror(path);
        abort();
    }
    return text;
}
