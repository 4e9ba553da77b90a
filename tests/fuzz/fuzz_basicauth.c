/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the extension basicauth. The input is the value of a header Authorization, a byte 0, and
 * the file of users. The value must be allowed if and only if it is the base64 encoding of the name
 * and the password of a user. Hashes of crypt(3) are parsed but not computed, because the hash
 * itself states its cost.
 */
#include "core/authenticator.h"
#include "extensions/basicauth/htpasswd.h"
#include "tests/fuzz/auth_fuzz.h"
#include "tests/support/node_rig.h"

#include <openssl/evp.h>
#include <strings.h>

#define DECODED_MAX 1024 /* longest credentials that the extension accepts, in bytes */

extern const struct br_component br_basicauth_extension;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns true if a line of the text may contain a hash that takes long to compute. */
static bool is_costly(const char *users)
{
    for (const char *at = users; (at = strstr(at, ":$")); at += 2)
        if (strncmp(at, ":$apr1$", 7) != 0)
            return true;
    return false;
}

/* Decodes base64 with OpenSSL, which requires the standard alphabet and padding. Returns the length
 * of the result. */
static int decode(const char *coded, char plain[DECODED_MAX + 4])
{
    char padded[DECODED_MAX / 3 * 4 + 8] = {0};
    size_t len = strlen(coded);
    while (len && coded[len - 1] == '=')
        len--;
    if (len > DECODED_MAX / 3 * 4)
        return -1;
    for (size_t i = 0; i < len; i++) {
        padded[i] = coded[i];
        if (coded[i] == '-' || coded[i] == '_')
            padded[i] = coded[i] == '-' ? '+' : '/';
    }
    size_t whole = (len + 3) / 4 * 4;
    memset(padded + len, '=', whole - len);
    int n = EVP_DecodeBlock((unsigned char *)plain, (const unsigned char *)padded, (int)whole);
    return n < 0 ? n : n - (int)(whole - len);
}

/* Returns true if the header contains valid credentials. Decodes the header without the extension's
 * decoder. */
static bool is_right(const char *value, const char *text)
{
    char plain[DECODED_MAX + 4];
    if (strncasecmp(value, "Basic ", 6) != 0)
        return false;
    int n = decode(value + 6 + strspn(value + 6, " "), plain);
    if (n < 0)
        return false;
    plain[n] = '\0';
    char *colon = strlen(plain) == (size_t)n ? strchr(plain, ':') : NULL;
    struct br_str faults = {.max = 256};
    struct htpasswd *users = basicauth_htpasswd_new();
    require(users && basicauth_htpasswd_read(users, text, &faults) == 0);
    if (colon)
        *colon = '\0';
    bool right = colon && basicauth_htpasswd_check(users, plain, colon + 1);
    basicauth_htpasswd_free(users);
    br_str_release(&faults);
    return right;
}

static void check(struct br_authenticator *authenticator, const char *value, const char *users)
{
    const char *context = NULL;
    enum br_auth_verdict verdict = authenticator->check(authenticator, value, false, &context);
    require(verdict != BR_AUTH_ALLOWED);
    if (is_costly(users))
        return;
    verdict = authenticator->check(authenticator, value, true, &context);
    require(verdict != BR_AUTH_COSTLY);
    if (verdict == BR_AUTH_ALLOWED) {
        require(is_right(value, users) && strcmp(context, "username") == 0);
        require(authenticator->check(authenticator, value, false, &context) == BR_AUTH_ALLOWED);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct node_rig rig;
    char yaml[128], *users, *value = auth_fuzz_divide(data, size, &users);
    (void)snprintf(yaml, sizeof yaml, "htpasswd: {file: %s}", auth_fuzz_file(users, strlen(users)));
    if (strlen(value) <= AUTH_FUZZ_HEADER_MAX && strlen(users) < 1u << 20) {
        node_rig_start(&rig, &br_basicauth_extension, yaml);
        check(br_authenticator_find(&rig.h->host, rig.node.id), value, users);
        node_rig_end(&rig);
    }
    free(value);
    free(users);
    return 0;
}
