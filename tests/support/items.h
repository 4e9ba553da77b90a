/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for tests, written by hand: every span and every sample has a number of its own, so that
 * a test can say which of them arrived, and how often.
 *
 * Span n: span_id is n in eight bytes, big-endian; trace_id says trace n / 4. Sample n: values =
 * {n}; stack, link and attribute vary with n.
 */
#pragma once

#include "pipeline/component.h"
#include "tests/support/wire.h"

/* Appends a request with items number `first` to first + n - 1, in `resources` resource messages of
 * one scope each. `n` may be 0 (messages without items). */
void items_traces(struct wire *w, uint64_t first, uint32_t n, uint32_t resources);
void items_profiles(struct wire *w, uint64_t first, uint32_t n, uint32_t resources);
void items_request(struct wire *w, enum br_signal signal, uint64_t first, uint32_t n,
                   uint32_t resources);

/* An item walked out of such a request and entered into the ledger; NULL without br_malloc's
 * memory. */
struct br_item *items_new(struct br_host *h, enum br_signal signal, uint64_t first, uint32_t n);

/* An item walked out of any bytes, not in the ledger. The test fails when they are not valid. */
struct br_item *items_walk(struct br_host *h, enum br_signal signal, const void *data, size_t len);

/* A child of `item` with all its parts and pending records; NULL without br_malloc's memory. */
struct br_item *items_child(struct br_item *item);

/* The numbers of the items in a request, in order; at most `max` of them. Returns how many there
 * are.
 */
size_t items_numbers(enum br_signal signal, const uint8_t *data, size_t len, uint64_t *ret,
                     size_t max);
