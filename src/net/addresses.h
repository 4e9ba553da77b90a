/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the addresses of one endpoint and selects the next address to connect to. This code uses no
 * sockets and no clock: the caller reports the results of its connection attempts and passes the
 * current time.
 *
 * A failed address is avoided for about one second. With each further failure, the time for which
 * the address is avoided grows by a factor of 1.6, up to two minutes, with 20 % jitter
 * (grpc/doc/connection-backoff.md). If every address is in backoff, an address may be tried again
 * one second after its last attempt. The limit of one second is short, because the sender itself
 * backs off (retry_on_failure) and a recovered backend should be found quickly.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* maximum number of addresses of a name; br_addresses_add rejects further addresses */
#define BR_ADDRESSES_MAX 32

struct br_address {
    struct sockaddr_storage addr; /* the socket address; the bytes after `len` are zero */
    socklen_t len;
    unsigned n_failed; /* number of failures since the last response from this address */
    /* time, in milliseconds, at which the backoff ends; until then, other addresses are
     * preferred */
    uint64_t due_ms;
    /* earliest time, in milliseconds, at which `last_resort` allows an attempt */
    uint64_t again_ms;
};

struct br_addresses {
    struct br_address addresses[BR_ADDRESSES_MAX];
    unsigned count;
    unsigned next; /* index of the address to try first */
};

/* Appends an address. Returns false if the address is too long or already in the list, or if the
 * list has BR_ADDRESSES_MAX addresses. */
bool br_addresses_add(struct br_addresses *addresses, const void *addr, socklen_t len);

/* Replaces the list by the addresses of `fresh`. Addresses that are in both the old and the new
 * list keep their failure state. */
void br_addresses_update(struct br_addresses *addresses, const struct br_addresses *fresh);

/* Returns the index of an address, or -1 if it is not in the list. */
int br_addresses_find(const struct br_addresses *addresses, const struct br_address *address);

/* Returns the index of the next address to try now, or -1. If all addresses are in backoff and
 * `last_resort` is true, the address whose backoff ends first may also be returned. Addresses for
 * which `is_used` returns true are skipped; `is_used` may be NULL. */
int br_addresses_next(const struct br_addresses *addresses, uint64_t now_ms, bool last_resort,
                      bool (*is_used)(void *arg, unsigned i), void *arg);

/* Registers a connection attempt. If the address has failed before, br_addresses_next with
 * `last_resort` does not select it again within about one second. `random` is in [0, 1). */
void br_addresses_tried(struct br_addresses *addresses, unsigned index, uint64_t now_ms,
                        double random);

/* Registers a failed address: the connection failed, or ended without any response. Extends the
 * address's backoff. If this address was the first to try, the following address in the list
 * becomes the first to try. */
void br_addresses_failed(struct br_addresses *addresses, unsigned index, uint64_t now_ms,
                         double random);

/* Registers a response from an address. The response clears the earlier failures of the address. */
void br_addresses_worked(struct br_addresses *addresses, unsigned index);
