/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replacements of C library functions in the binary of the network tests. libuv calls them, too. By
 * default each does the same as the C library's.
 */
#pragma once

#include <stdint.h>

#define FAKE_ADDRESSES_MAX 8

struct fake_libc {
    /* getaddrinfo: writes at most FAKE_ADDRESSES_MAX IPv4 addresses, in host byte order, and
     * returns their number, or returns a negative EAI_ error. Called in a thread of libuv. */
    int (*resolve)(const char *name, uint32_t *ret_addresses);
    _Atomic uint64_t skipped_ms; /* nanoseconds or seconds added to every clock */
    /* number of threads after which pthread_create fails with EAGAIN */
    _Atomic int threads_left;
};

extern struct fake_libc fake_libc;
