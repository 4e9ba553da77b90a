/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the addresses of one endpoint and chooses which of them to connect to next. No socket and
 * no clock: the caller says what happened, and when.
 *
 * An address that failed is left alone for a while: about a second, and 1.6 times as long after
 * each further failure, up to two minutes, each a fifth more or less by chance (grpc/doc/
 * connection-backoff.md). Where no other is left it may be tried again a second after the last try:
 * then the one who waits for it paces himself (retry_on_failure), and a backend that is back is not
 * to wait for two minutes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define BR_ADDRESSES_MAX 32 /* of a name; further ones are not used */

struct br_address {
    struct sockaddr_storage addr; /* zero behind `len` */
    socklen_t len;
    unsigned n_failed; /* in a row */
    uint64_t due_ms;   /* a failed one: not before, while there are others */
    uint64_t again_ms; /* and not before this, if there are none */
};

struct br_addresses {
    struct br_address addresses[BR_ADDRESSES_MAX];
    unsigned count;
    unsigned next; /* the one that is tried first */
};

/* Appends an address. False when there are BR_ADDRESSES_MAX, it is too long, or it is one of them.
 */
bool br_addresses_add(struct br_addresses *addresses, const void *addr, socklen_t len);

/* Takes over the addresses of `fresh`. What is known of those that were there before stays. */
void br_addresses_update(struct br_addresses *addresses, const struct br_addresses *fresh);

/* Returns the address's place, or -1 when it is none of them (any more). */
int br_addresses_find(const struct br_addresses *addresses, const struct br_address *address);

/* Returns the next in turn that may be tried now, or -1. With `last_resort` also one that is not
 * due, when none is: nothing else serves. Those for which `taken` is true are passed over; NULL:
 * none. */
int br_addresses_next(const struct br_addresses *addresses, uint64_t now_ms, bool last_resort,
                      bool (*is_used)(void *arg, unsigned i), void *arg);

/* Notes that a connection to an address is begun: it is not tried again within a second (`random`
 * from [0, 1)). */
void br_addresses_tried(struct br_addresses *addresses, unsigned index, uint64_t now_ms,
                        double random);

/* Notes that it was of no use: no connection, or none that answers. Its turn is over. */
void br_addresses_failed(struct br_addresses *addresses, unsigned index, uint64_t now_ms,
                         double random);

/* Notes that it serves: earlier failures are forgotten. */
void br_addresses_worked(struct br_addresses *addresses, unsigned index);
