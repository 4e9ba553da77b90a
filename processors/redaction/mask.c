/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/rules.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

static const struct redact_hash hashes[] = {
    {"", NULL, 0},
    {"md5", "MD5", 0},
    {"sha1", "SHA1", 0},
    {"sha3", "SHA3-256", 0},
    {"hmac-sha256", "SHA256", 32},
    {"hmac-sha512", "SHA512", 64},
};

const struct redact_hash *redact_hash_find(const char *name)
{
    for (size_t i = 0; i < BR_COUNT(hashes); i++)
        if (strcmp(hashes[i].name, name ? name : "") == 0)
            return &hashes[i];
    return NULL;
}

static size_t redact_mask_digest(const struct redact_hash *hash, const char *key, const void *text,
                                 size_t len, uint8_t out[EVP_MAX_MD_SIZE])
{
    size_t n = 0;
    if (!hash->key_min)
        return EVP_Q_digest(NULL, hash->digest, NULL, text, len, out, &n) == 1 ? n : 0;
    const uint8_t *made = EVP_Q_mac(NULL, "HMAC", NULL, hash->digest, NULL, key, strlen(key), text,
                                    len, out, EVP_MAX_MD_SIZE, &n);
    return made ? n : 0;
}

size_t redact_mask(const struct redact_masking *masking, const void *text, size_t len,
                   char out[REDACT_MASK_MAX])
{
    const struct redact_hash *hash = masking->hash;
    const char *fixed = masking->fixed && masking->fixed[0] ? masking->fixed : REDACT_MASK;
    uint8_t bytes[EVP_MAX_MD_SIZE];
    size_t n = 0;
    if (hash->digest)
        n = redact_mask_digest(hash, masking->key, text ? text : "", len, bytes);
    if (n == 0) {
        n = strnlen(fixed, REDACT_MASK_MAX);
        memcpy(out, fixed, n);
        return n;
    }
    br_hex_encode(bytes, n, out);
    return 2 * n;
}
