/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what stands in the place of a redacted text: a fixed text, or a hash of it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define REDACT_MASK "[REDACTED]"
#define REDACT_MASK_MAX 128 /* SHA-512 in hex */

struct redact_hash {
    const char *name;   /* as in the config */
    const char *digest; /* OpenSSL's; NULL: none */
    size_t key_min;     /* bytes; 0: it takes none */
};

/* The replacement for a masked text: a hash of it, or a fixed text. */
struct redact_masking {
    const struct redact_hash *hash;
    const char *key;   /* of the hash; NULL where it takes none */
    const char *fixed; /* without a hash: at most REDACT_MASK_MAX bytes; NULL or "": REDACT_MASK */
};

/* Finds a hash by its name in the config; NULL or "" is no hash. NULL when there is none of that
 * name. */
const struct redact_hash *redact_hash_find(const char *name);

/* Writes what stands for the text into `out`; its length. Where a hash cannot be made, the fixed
 * text. */
size_t redact_mask(const struct redact_masking *masking, const void *text, size_t len,
                   char out[REDACT_MASK_MAX]);
