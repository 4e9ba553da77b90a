/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/basicauth/apr1.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "$apr1$"
#define MAGIC_LEN 6
#define SALT_MAX 8
#define DIGEST_SIZE 16
#define ROUNDS 1000

/* Inputs of one hash, and the digest context with which the hash is computed. */
struct input {
    EVP_MD_CTX *ctx;
    const char *password, *salt;
    size_t password_len, salt_len;
    bool failed;
};

static void apr1_begin(struct input *input)
{
    input->failed = input->failed || EVP_DigestInit_ex(input->ctx, EVP_md5(), NULL) != 1;
}

static void apr1_add(struct input *input, const void *data, size_t len)
{
    input->failed = input->failed || EVP_DigestUpdate(input->ctx, data, len) != 1;
}

static void apr1_end(struct input *input, uint8_t digest[DIGEST_SIZE])
{
    input->failed = input->failed || EVP_DigestFinal_ex(input->ctx, digest, NULL) != 1;
}

static void apr1_first(struct input *input, uint8_t digest[DIGEST_SIZE])
{
    apr1_begin(input);
    apr1_add(input, input->password, input->password_len);
    apr1_add(input, input->salt, input->salt_len);
    apr1_add(input, input->password, input->password_len);
    apr1_end(input, digest);
    apr1_begin(input);
    apr1_add(input, input->password, input->password_len);
    apr1_add(input, MAGIC, MAGIC_LEN);
    apr1_add(input, input->salt, input->salt_len);
    for (size_t left = input->password_len; left > 0;) {
        size_t n = left < DIGEST_SIZE ? left : DIGEST_SIZE;
        apr1_add(input, digest, n);
        left -= n;
    }
    for (size_t bits = input->password_len; bits; bits >>= 1)
        apr1_add(input, bits & 1 ? "" : input->password, 1);
    apr1_end(input, digest);
}

static void apr1_round(struct input *input, unsigned index, uint8_t digest[DIGEST_SIZE])
{
    apr1_begin(input);
    if (index & 1)
        apr1_add(input, input->password, input->password_len);
    else
        apr1_add(input, digest, DIGEST_SIZE);
    if (index % 3)
        apr1_add(input, input->salt, input->salt_len);
    if (index % 7)
        apr1_add(input, input->password, input->password_len);
    if (index & 1)
        apr1_add(input, digest, DIGEST_SIZE);
    else
        apr1_add(input, input->password, input->password_len);
    apr1_end(input, digest);
}

/* Appends `n_letters` letters of crypt(3)'s alphabet. Each letter encodes six bits of `value`,
 * the lowest bits first. */
static char *apr1_put(char *out, uint32_t value, unsigned n_letters)
{
    static const char letters[] =
        "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (; n_letters > 0; n_letters--, value >>= 6)
        *out++ = letters[value & 0x3f];
    return out;
}

bool basicauth_apr1_hash(const char *password, const char *setting, char out[APR1_SIZE])
{
    /* positions of bytes in the digest: each row of three bytes makes four letters */
    static const uint8_t order[5][3] = {{0, 6, 12}, {1, 7, 13}, {2, 8, 14}, {3, 9, 15}, {4, 10, 5}};
    uint8_t digest[DIGEST_SIZE];
    struct input input = {.ctx = EVP_MD_CTX_new(),
                          .password = password,
                          .salt = setting + MAGIC_LEN,
                          .password_len = strlen(password)};
    input.salt_len = strcspn(input.salt, "$");
    if (input.salt_len > SALT_MAX)
        input.salt_len = SALT_MAX;
    input.failed = !input.ctx;
    apr1_first(&input, digest);
    for (unsigned i = 0; i < ROUNDS; i++)
        apr1_round(&input, i, digest);
    EVP_MD_CTX_free(input.ctx);
    int n = snprintf(out, APR1_SIZE, MAGIC "%.*s$", (int)input.salt_len, input.salt);
    char *end = out + n;
    for (int i = 0; i < 5; i++)
        end = apr1_put(end,
                       (uint32_t)digest[order[i][0]] << 16 | (uint32_t)digest[order[i][1]] << 8 |
                           digest[order[i][2]],
                       4);
    end = apr1_put(end, digest[11], 2);
    *end = '\0';
    OPENSSL_cleanse(digest, sizeof digest);
    return !input.failed;
}
