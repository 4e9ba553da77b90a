/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL's memory is counted, as that of connections is. It comes from the C library directly: the
 * library keeps what it allocates once, so tests that make the n-th allocation fail leave it alone.
 */
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>

#include "base/mem.h"

static int64_t size_of(void *p)
{
    return p ? (int64_t)(malloc_usable_size(p) + sizeof(size_t)) : 0;
}

static void count(int64_t bytes)
{
    br_mem_count(bytes);
    br_mem_hold(BR_HOLDER_TLS, bytes);
}

static void *tls_alloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    void *p = malloc(size);
    count(size_of(p));
    return p;
}

static void *tls_resize(void *p, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    int64_t before = size_of(p);
    void *moved = realloc(p, size);
    if (moved)
        count(size_of(moved) - before);
    return moved;
}

static void tls_release(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    count(-size_of(p));
    free(p);
}

/* OpenSSL takes functions before its first allocation only. */
__attribute__((constructor)) static void set_tls_allocator(void)
{
    (void)CRYPTO_set_mem_functions(tls_alloc, tls_resize, tls_release);
}
