/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses ids of traces and spans as people and tools write them: hex, in which Tempo omits leading
 * zeros, or base64 as in Tempo's JSON.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses an id of `size` bytes, which is 8 or 16. The text is base64, or hex in upper or lower
 * case. Short hex text is padded with zeros on the left. Returns false if the text is neither hex
 * nor base64, or if the id is all zeros. */
bool br_id_parse(const char *text, size_t len, uint8_t *ret, size_t size);

/* Parses a span id like br_id_parse. `*ret` receives the eight bytes of the id in memory order,
 * as in the store. */
bool br_span_id_parse(const char *text, size_t len, uint64_t *ret);
