/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

bool br_digest(const void *data, size_t len, uint8_t ret[BR_DIGEST_SIZE])
{
    return EVP_Digest(data, len, ret, NULL, EVP_sha256(), NULL) == 1;
}

bool br_digest_equal(const uint8_t one[BR_DIGEST_SIZE], const uint8_t other[BR_DIGEST_SIZE])
{
    return CRYPTO_memcmp(one, other, BR_DIGEST_SIZE) == 0;
}

bool br_secret_equal(const char *one, const char *other)
{
    uint8_t first[BR_DIGEST_SIZE], second[BR_DIGEST_SIZE];
    return br_digest(one, strlen(one), first) && br_digest(other, strlen(other), second) &&
           br_digest_equal(first, second);
}
