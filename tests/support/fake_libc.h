/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces functions of the C library in the binary of the network tests. libuv calls the
 * replacements, too. By default, each replacement does the same as the original.
 */
#pragma once

#include <stdint.h>

#define FAKE_ADDRESSES_MAX 8

struct fake_libc {
    /* If not NULL, resolves names instead of getaddrinfo. Writes at most FAKE_ADDRESSES_MAX IPv4
     * addresses, in host byte order. Returns their number, or a negative EAI_ error. Called in a
     * thread of libuv. */
    int (*resolve)(const char *name, uint32_t *ret_addresses);
    _Atomic uint64_t skipped_ms; /* milliseconds added to every clock */
    /* number of threads that can still be created; then pthread_create fails with EAGAIN */
    _Atomic int threads_left;
};

extern struct fake_libc fake_libc;
