/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the replacement of a redacted text: a fixed text or a hash. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define REDACT_MASK "[REDACTED]"
#define REDACT_MASK_MAX 128 /* SHA-512 in hexadecimal */

struct redact_hash {
    const char *name;   /* as in the config */
    const char *digest; /* OpenSSL's name; NULL: none */
    size_t key_min;     /* shortest key in bytes; 0: the hash has no key */
};

/* How masked texts are replaced. */
struct redact_masking {
    const struct redact_hash *hash;
    const char *key; /* key of the hash; NULL if it has none */
    /* used without a hash; at most REDACT_MASK_MAX bytes. NULL or "": REDACT_MASK */
    const char *fixed;
};

/* Returns the hash with this name in the config; NULL and "" mean no hash. Returns NULL if the
 * name is unknown. */
const struct redact_hash *redact_hash_find(const char *name);

/* Writes the replacement of the text to `out` and returns its length. Writes the fixed text if
 * the hash cannot be computed. */
size_t redact_mask(const struct redact_masking *masking, const void *text, size_t len,
                   char out[REDACT_MASK_MAX]);
