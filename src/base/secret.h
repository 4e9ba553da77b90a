/* SPDX-License-Identifier: Apache-2.0 */
/* Compares secrets in constant time, so that the duration of a comparison does not help to guess
 * a secret. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_DIGEST_SIZE 32 /* size of a SHA-256 digest in bytes */

/* Computes the SHA-256 digest of `len` bytes. Returns false if OpenSSL fails. */
bool br_digest(const void *data, size_t len, uint8_t ret[BR_DIGEST_SIZE]);

/* Returns true if two digests are equal. The duration of the comparison does not depend on the
 * contents of the digests. */
bool br_digest_equal(const uint8_t one[BR_DIGEST_SIZE], const uint8_t other[BR_DIGEST_SIZE]);

/* Returns true if two texts are equal. Compares their digests, so that the duration depends only on
 * the lengths of the texts. Returns false if OpenSSL fails. */
bool br_secret_equal(const char *one, const char *other);
