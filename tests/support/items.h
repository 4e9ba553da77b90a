/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for tests, written by hand. Every span and every sample has a unique number, so that a
 * test can check which of them arrived, and how often.
 *
 * Span n: span_id is n in eight bytes, big-endian; trace_id is that of trace n / 4. Sample n:
 * values = {n}; stack, link and attribute vary with n.
 */
#pragma once

#include "pipeline/component.h"
#include "tests/support/wire.h"

/* Appends a request with records number `first` to first + n - 1, in `resources` resource
 * messages of one scope each. `n` may be 0 (messages without records). */
void items_traces(struct wire *w, uint64_t first, uint32_t n, uint32_t resources);
void items_profiles(struct wire *w, uint64_t first, uint32_t n, uint32_t resources);
void items_request(struct wire *w, enum br_signal signal, uint64_t first, uint32_t n,
                   uint32_t resources);

/* Returns an item that is parsed from a request of items_request and counted in the ledger. Returns
 * NULL if br_malloc fails. */
struct br_item *items_new(struct br_host *h, enum br_signal signal, uint64_t first, uint32_t n);

/* Returns an item parsed from any bytes, not in the ledger. Fails the test if they are invalid. */
struct br_item *items_walk(struct br_host *h, enum br_signal signal, const void *data, size_t len);

/* Returns a child of `item` with all its parts and pending records; NULL without br_malloc's
 * memory. */
struct br_item *items_child(struct br_item *item);

/* Stores the numbers of the records in a request, in order; at most `max` of them. Returns how
 * many there are. */
size_t items_numbers(enum br_signal signal, const uint8_t *data, size_t len, uint64_t *ret,
                     size_t max);
