/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the addresses of one endpoint and selects the next one to connect to. Uses no sockets and
 * no clock: the caller reports results and passes the time.
 *
 * A failed address is avoided for about one second. Each further failure makes that 1.6 times as
 * long, up to two minutes, with 20 % jitter (grpc/doc/connection-backoff.md). If no other address
 * is left, it may be tried again one second after the last attempt. In that case the sender has its
 * own backoff (retry_on_failure), and a recovered backend should be found quickly.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define BR_ADDRESSES_MAX 32 /* addresses of one name; br_addresses_add rejects further ones */

struct br_address {
    struct sockaddr_storage addr; /* the socket address; the bytes after `len` are zero */
    socklen_t len;
    unsigned n_failed; /* failures since the last response from this address */
    /* end of the backoff, in milliseconds; until then, other addresses are preferred */
    uint64_t due_ms;
    /* earliest time, in milliseconds, at which `last_resort` allows an attempt */
    uint64_t again_ms;
};

struct br_addresses {
    struct br_address addresses[BR_ADDRESSES_MAX];
    unsigned count;
    unsigned next; /* index of the address to try first */
};

/* Appends an address. Returns false if it is too long, already there, or there are
 * BR_ADDRESSES_MAX. */
bool br_addresses_add(struct br_addresses *addresses, const void *addr, socklen_t len);

/* Replaces the addresses by those of `fresh`, and keeps the failure state of addresses that
 * remain. */
void br_addresses_update(struct br_addresses *addresses, const struct br_addresses *fresh);

/* Returns the index of an address, or -1 if it is not in the list. */
int br_addresses_find(const struct br_addresses *addresses, const struct br_address *address);

/* Returns the index of the next address to try now, or -1. If all are in backoff, `last_resort`
 * also allows the one whose backoff ends first. Addresses for which `is_used` returns true are
 * skipped; `is_used` may be NULL. */
int br_addresses_next(const struct br_addresses *addresses, uint64_t now_ms, bool last_resort,
                      bool (*is_used)(void *arg, unsigned i), void *arg);

/* Registers a connection attempt. If the address has failed before, it is not tried again within
 * about one second. `random` is in [0, 1). */
void br_addresses_tried(struct br_addresses *addresses, unsigned index, uint64_t now_ms,
                        double random);

/* Registers a failed address: no connection, or a connection without any response. Extends the
 * address's backoff. If it was the address to try first, the next address becomes that. */
void br_addresses_failed(struct br_addresses *addresses, unsigned index, uint64_t now_ms,
                         double random);

/* Registers a response from an address, which clears its earlier failures. */
void br_addresses_worked(struct br_addresses *addresses, unsigned index);
