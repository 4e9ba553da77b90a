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

/* Appends a request with the records `first` to first + n - 1. They are divided among `resources`
 * ResourceSpans or ResourceProfiles, each of which has one scope. `n` may be 0. */
void items_traces(struct wire *w, uint64_t first, uint32_t n, uint32_t resources);
void items_profiles(struct wire *w, uint64_t first, uint32_t n, uint32_t resources);
void items_request(struct wire *w, enum br_signal signal, uint64_t first, uint32_t n,
                   uint32_t resources);

/* Returns an item that is parsed from a request of items_request and counted in the ledger. Returns
 * NULL if br_malloc fails. */
struct br_item *items_new(struct br_host *h, enum br_signal signal, uint64_t first, uint32_t n);

/* Returns an item that is parsed from these bytes. The item is not counted in the ledger. Fails the
 * test if the bytes are not a valid request. */
struct br_item *items_walk(struct br_host *h, enum br_signal signal, const void *data, size_t len);

/* Returns a child of `item` that has all parts and all pending records of `item`. Returns NULL if
 * br_malloc fails. */
struct br_item *items_child(struct br_item *item);

/* Stores the numbers of the first `max` records of a request, in the order of the request. Returns
 * the number of records in the request. */
size_t items_numbers(enum br_signal signal, const uint8_t *data, size_t len, uint64_t *ret,
                     size_t max);
