/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/basicauth/htpasswd.h"

#include <crypt.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/secret.h"
#include "extensions/basicauth/apr1.h"

#define SHA1_SIZE 20

enum kind { KIND_PLAIN, KIND_SHA, KIND_SSHA, KIND_APR1, KIND_CRYPT };

struct user {
    enum kind kind;
    char hash[HTPASSWD_HASH_MAX + 1];
};

struct htpasswd {
    struct br_map *users; /* map from user name to struct user */
    struct crypt_data *crypt;
    /* user whose hash is checked if a name is unknown: the first user with a costly hash; `kind`
     * is KIND_PLAIN if no user has a costly hash */
    struct user decoy;
};

static void htpasswd_user_free(void *value)
{
    OPENSSL_cleanse(value, sizeof(struct user));
    br_free(value);
}

struct htpasswd *basicauth_htpasswd_new(void)
{
    struct htpasswd *htpasswd = br_calloc(1, sizeof *htpasswd);
    if (!htpasswd)
        return NULL;
    htpasswd->users = br_map_new(HTPASSWD_USERS_MAX);
    htpasswd->crypt = br_calloc(1, sizeof *htpasswd->crypt);
    if (htpasswd->users && htpasswd->crypt)
        return htpasswd;
    basicauth_htpasswd_free(htpasswd);
    return NULL;
}

void basicauth_htpasswd_free(struct htpasswd *htpasswd)
{
    if (!htpasswd)
        return;
    br_map_free(htpasswd->users, htpasswd_user_free);
    if (htpasswd->crypt)
        OPENSSL_cleanse(htpasswd->crypt, sizeof *htpasswd->crypt);
    br_free(htpasswd->crypt);
    OPENSSL_cleanse(htpasswd, sizeof *htpasswd);
    br_free(htpasswd);
}

/* Determines the type of a hash. Returns NULL, or the reason why the hash cannot be used. */
static const char *htpasswd_classify(const char *hash, enum kind *ret)
{
    *ret = KIND_PLAIN;
    if (br_text_starts(hash, "{SHA}"))
        *ret = KIND_SHA;
    else if (br_text_starts(hash, "{SSHA}"))
        *ret = KIND_SSHA;
    else if (br_text_starts(hash, "$apr1$"))
        *ret = KIND_APR1;
    else if (hash[0] == '{')
        return "the type of the hash is not supported";
    else if (hash[0] == '$' && strchr(hash + 1, '$'))
        *ret = KIND_CRYPT;
    if (*ret == KIND_CRYPT && crypt_checksalt(hash) != CRYPT_SALT_OK &&
        crypt_checksalt(hash) != CRYPT_SALT_METHOD_LEGACY)
        return "the hash is malformed, or its type is not supported";
    return NULL;
}

/* Adds the user of one line of `len` bytes. Returns NULL if the line is valid, "" if memory runs
 * out, or a text that describes the error in the line. */
static const char *htpasswd_read_line(struct htpasswd *htpasswd, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    size_t name_len = colon ? (size_t)(colon - line) : 0;
    size_t hash_len = colon ? len - name_len - 1 : 0;
    if (!name_len || !hash_len)
        return "the line is not USER:HASH";
    if (name_len > HTPASSWD_NAME_MAX || hash_len > HTPASSWD_HASH_MAX)
        return "the name or the hash is too long";
    struct user *user = br_calloc(1, sizeof *user);
    void *old = NULL;
    if (!user)
        return "";
    memcpy(user->hash, colon + 1, hash_len);
    const char *fault = htpasswd_classify(user->hash, &user->kind);
    if (!fault) {
        int rc = br_map_put(htpasswd->users, line, name_len, user, &old);
        if (rc)
            fault = rc == BR_EFULL ? "there are too many users" : "";
    }
    if (!fault && (user->kind == KIND_CRYPT || user->kind == KIND_APR1) &&
        htpasswd->decoy.kind == KIND_PLAIN)
        htpasswd->decoy = *user;
    if (fault)
        htpasswd_user_free(user);
    if (old)
        htpasswd_user_free(old);
    return fault;
}

int basicauth_htpasswd_read(struct htpasswd *htpasswd, const char *text, struct br_str *faults)
{
    for (unsigned number = 1; *text; number++) {
        size_t whole = strcspn(text, "\n"), len = whole;
        size_t indent = strspn(text, " \t\r");
        while (len > indent && strchr(" \t\r", text[len - 1]))
            len--;
        const char *fault = NULL;
        if (len > indent && text[indent] != '#')
            fault = htpasswd_read_line(htpasswd, text + indent, len - indent);
        if (fault && !*fault)
            return BR_ENOMEM;
        if (fault)
            br_str_printf(faults, "%sline %u: %s", faults->len ? "; " : "", number, fault);
        text += whole + (text[whole] == '\n');
    }
    return 0;
}

size_t basicauth_htpasswd_count(const struct htpasswd *htpasswd)
{
    return br_map_count(htpasswd->users);
}

bool basicauth_htpasswd_is_costly(const struct htpasswd *htpasswd)
{
    return htpasswd->decoy.kind != KIND_PLAIN;
}

/* Checks a password against a hash of the form {SHA}BASE64(SHA1(password)) or
 * {SSHA}BASE64(SHA1(password + salt) + salt). */
static bool htpasswd_check_sha(const struct user *user, const char *password)
{
    uint8_t stored[HTPASSWD_HASH_MAX + 4], digest[EVP_MAX_MD_SIZE];
    const char *coded = strchr(user->hash, '}') + 1;
    long n = br_base64_decode(coded, strlen(coded), stored);
    if (n < SHA1_SIZE || (user->kind == KIND_SHA && n != SHA1_SIZE))
        return false;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool done = ctx && EVP_DigestInit_ex(ctx, EVP_sha1(), NULL) == 1 &&
                EVP_DigestUpdate(ctx, password, strlen(password)) == 1;
    done = done && EVP_DigestUpdate(ctx, stored + SHA1_SIZE, (size_t)n - SHA1_SIZE) == 1 &&
           EVP_DigestFinal_ex(ctx, digest, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    return done && CRYPTO_memcmp(digest, stored, SHA1_SIZE) == 0;
}

static bool htpasswd_check_user(struct htpasswd *htpasswd, const struct user *user,
                                const char *password)
{
    char hashed[APR1_SIZE];
    const char *result = NULL;
    switch (user->kind) {
    case KIND_PLAIN:
        return br_secret_equal(user->hash, password);
    case KIND_SHA:
    case KIND_SSHA:
        return htpasswd_check_sha(user, password);
    case KIND_APR1:
        return basicauth_apr1_hash(password, user->hash, hashed) &&
               br_secret_equal(hashed, user->hash);
    case KIND_CRYPT:
        result = crypt_r(password, user->hash, htpasswd->crypt);
        return result && result[0] != '*' && br_secret_equal(result, user->hash);
    }
    return false;
}

bool basicauth_htpasswd_check(struct htpasswd *htpasswd, const char *name, const char *password)
{
    const struct user *user = br_map_get(htpasswd->users, name, strlen(name));
    bool right = htpasswd_check_user(htpasswd, user ? user : &htpasswd->decoy, password);
    return user && right;
}
