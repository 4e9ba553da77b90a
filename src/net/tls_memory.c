/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the memory that OpenSSL allocates, in the memory category of TLS. OpenSSL's memory is
 * allocated from the C library and not by br_malloc, because OpenSSL keeps some one-time
 * allocations. Tests that make the n-th allocation fail must not count one-time allocations.
 */
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>

#include "base/mem.h"

static int64_t tls_memory_size_of(void *memory)
{
    return memory ? (int64_t)(malloc_usable_size(memory) + sizeof(size_t)) : 0;
}

static void tls_memory_count(int64_t bytes)
{
    br_mem_count(bytes);
    br_mem_hold(BR_HOLDER_TLS, bytes);
}

static void *tls_memory_alloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    void *p = malloc(size);
    tls_memory_count(tls_memory_size_of(p));
    return p;
}

static void *tls_memory_resize(void *memory, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    int64_t before = tls_memory_size_of(memory);
    void *moved = realloc(memory, size);
    if (moved)
        tls_memory_count(tls_memory_size_of(moved) - before);
    return moved;
}

static void tls_memory_release(void *memory, const char *file, int line)
{
    (void)file;
    (void)line;
    tls_memory_count(-tls_memory_size_of(memory));
    free(memory);
}

/* OpenSSL accepts allocation functions only before its first allocation. */
__attribute__((constructor)) static void tls_memory_set_tls_allocator(void)
{
    (void)CRYPTO_set_mem_functions(tls_memory_alloc, tls_memory_resize, tls_memory_release);
}
