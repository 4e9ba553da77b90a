/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the fuzzers of authenticators: one writes a part of the input to a file, and one
 * divides the input into strings. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AUTH_FUZZ_HEADER_MAX 65536 /* a longer head is rejected before an authenticator sees it */

static inline void require(bool ok)
{
    if (!ok)
        abort();
}

/* Returns the path of a file with these bytes. The same file is written again by the next call. */
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

/* Returns a terminated copy, which ends at the first byte 0 as any text. The caller frees it. */
static inline char *auth_fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* Divides an input at its first byte 0. Returns a terminated copy of the part before it, and sets
 * `*ret_rest` to a terminated copy of the part after it. The caller frees both. */
static inline char *auth_fuzz_divide(const uint8_t *data, size_t size, char **ret_rest)
{
    const uint8_t *zero = memchr(data, 0, size);
    size_t len = zero ? (size_t)(zero - data) : size;
    *ret_rest = zero ? auth_fuzz_text(zero + 1, size - len - 1) : auth_fuzz_text(data, 0);
    return auth_fuzz_text(data, len);
}
