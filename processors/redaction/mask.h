/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the replacement of a redacted text: a fixed text or a hash. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define REDACT_MASK "[REDACTED]"
#define REDACT_MASK_MAX 128 /* longest replacement, in bytes: SHA-512 in hexadecimal */

struct redact_hash {
    const char *name;   /* name of the hash in the config */
    const char *digest; /* OpenSSL's name of the hash function; NULL: none */
    size_t key_min;     /* shortest key of the hash, in bytes; 0: the hash takes no key */
};

/* How masked texts are replaced. */
struct redact_masking {
    const struct redact_hash *hash;
    const char *key; /* key of the hash; NULL if the hash takes no key */
    /* replacement if no hash is configured, at most REDACT_MASK_MAX bytes; NULL or "":
     * REDACT_MASK */
    const char *fixed;
};

/* Returns the hash with this name in the config; NULL and "" mean no hash. Returns NULL if the
 * name is unknown. */
const struct redact_hash *redact_hash_find(const char *name);

/* Writes the replacement of a text to `out` and returns its length. Writes the fixed text if the
 * hash cannot be computed. */
size_t redact_mask(const struct redact_masking *masking, const void *text, size_t len,
                   char out[REDACT_MASK_MAX]);
