/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the fuzz targets of authenticators. One function writes a part of the input to a
 * file. Another function divides the input into strings. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* in bytes; a longer request head is rejected before an authenticator gets its header */
#define AUTH_FUZZ_HEADER_MAX 65536

static inline void require(bool ok)
{
    if (!ok)
        abort();
}

/* Writes the bytes to a file and returns its path. The next call overwrites the same file. */
static inline const char *auth_fuzz_file(const void *data, size_t len)
{
    static char path[32];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        require(fd >= 0);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    require(ftruncate(fd, 0) == 0 && pwrite(fd, data, len, 0) == (ssize_t)len);
    return path;
}

/* Returns a copy as a C string, which ends at the first byte 0. The caller frees it. */
static inline char *auth_fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* Divides an input at its first byte 0. Returns a copy of the part before this byte, and sets
 * `*ret_rest` to a copy of the part after it. Both copies are C strings. The caller frees them. */
static inline char *auth_fuzz_divide(const uint8_t *data, size_t size, char **ret_rest)
{
    const uint8_t *zero = memchr(data, 0, size);
    size_t len = zero ? (size_t)(zero - data) : size;
    *ret_rest = zero ? auth_fuzz_text(zero + 1, size - len - 1) : auth_fuzz_text(data, 0);
    return auth_fuzz_text(data, len);
}
