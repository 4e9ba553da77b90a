/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads ids of traces and spans as people and tools write them: hex, of which Tempo strips leading
 * zeros, or base64, as Tempo's JSON has them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads an id of `size` bytes, 8 or 16: hex of either case, short ones padded with zeros on the
 * left, or base64. False when it is neither, or nothing but zeros. */
bool br_id_parse(const char *text, size_t len, uint8_t *ret, size_t size);

/* Reads a span's id as br_id_parse does, into what the store has: its bytes in the order of
 * memory. */
bool br_span_id_parse(const char *text, size_t len, uint64_t *ret);
