/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/err.h>
#include <openssl/obj_mac.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "net/tls_internal.h"

/* maximum number of bytes of a cipher or group list, more than a config file can contain */
#define LIST_MAX (1u << 20)

/* TLS 1.2 ciphers recommended by RFC 9325 section 4.2, in order of speed on most hardware. */
static const char default_ciphers[] = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
                                      "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
                                      "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

/* All TLS 1.3 suites, the fastest first. The order is the same as for TLS 1.2, and as in Go. */
static const char tls13_ciphers[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

struct group {
    const char *go, *openssl;
};

static const struct group groups[] = {
    {"X25519", "X25519"},
    {"P256", "P-256"},
    {"P384", "P-384"},
    {"P521", "P-521"},
    {"X25519MLKEM768", "X25519MLKEM768"},
    {"SecP256r1MLKEM768", "SecP256r1MLKEM768"},
    {"SecP384r1MLKEM1024", "SecP384r1MLKEM1024"},
};

bool br_tls_version_is_old(const char *version)
{
    return version && (strcmp(version, "1.0") == 0 || strcmp(version, "1.1") == 0);
}

static int tls_policy_parse_version(const char *key, const char *text, int dflt, int *ret,
                                    struct br_err *err)
{
    if (!text || !*text) {
        *ret = dflt;
    } else if (strcmp(text, "1.2") == 0) {
        *ret = TLS1_2_VERSION;
    } else if (strcmp(text, "1.3") == 0) {
        *ret = TLS1_3_VERSION;
    } else if (br_tls_version_is_old(text)) {
        return br_err_set(
            err, BR_EINVAL,
            "%s is \"%s\", which is insecure and not supported; must be \"1.2\" or \"1.3\"", key,
            text);
    } else {
        return br_err_set(err, BR_EINVAL, "%s is \"%.32s\"; must be \"1.2\" or \"1.3\"", key, text);
    }
    return 0;
}

static int tls_policy_apply_versions(SSL_CTX *ssl, const struct br_tls_config *config,
                                     struct br_err *err)
{
    const char *least = br_tls_version_is_old(config->min_version) ? NULL : config->min_version;
    int min = 0, max = 0;
    int rc = tls_policy_parse_version("min_version", least, TLS1_2_VERSION, &min, err);
    if (!rc)
        rc =
            tls_policy_parse_version("max_version", config->max_version, TLS1_3_VERSION, &max, err);
    if (rc)
        return rc;
    if (min > max)
        return br_err_set(err, BR_EINVAL, "min_version is greater than max_version");
    if (!SSL_CTX_set_min_proto_version(ssl, min) || !SSL_CTX_set_max_proto_version(ssl, max))
        return br_err_set(err, BR_EINVAL, "OpenSSL rejects the TLS versions: %s", br_tls_reason());
    return 0;
}

/* Returns true for suites that Go does not classify as insecure. Secure suites have forward
 * secrecy, and use an AEAD cipher or AES-CBC with SHA-1. */
static bool tls_policy_is_secure(const SSL_CIPHER *ssl_cipher)
{
    int kx = SSL_CIPHER_get_kx_nid(ssl_cipher), auth = SSL_CIPHER_get_auth_nid(ssl_cipher);
    int cipher = SSL_CIPHER_get_cipher_nid(ssl_cipher);
    if ((kx != NID_kx_ecdhe && kx != NID_kx_dhe) ||
        (auth != NID_auth_rsa && auth != NID_auth_ecdsa))
        return false;
    if (SSL_CIPHER_is_aead(ssl_cipher))
        return true;
    return (cipher == NID_aes_128_cbc || cipher == NID_aes_256_cbc) &&
           SSL_CIPHER_get_digest_nid(ssl_cipher) == NID_sha1;
}

static const SSL_CIPHER *tls_policy_find_cipher(STACK_OF(SSL_CIPHER) * all, const char *name)
{
    for (int i = 0; i < sk_SSL_CIPHER_num(all); i++) {
        const SSL_CIPHER *c = sk_SSL_CIPHER_value(all, i);
        const char *iana = SSL_CIPHER_standard_name(c);
        if (strcmp(SSL_CIPHER_get_name(c), name) == 0 || (iana && strcmp(iana, name) == 0))
            return c;
    }
    return NULL;
}

static int tls_policy_add_cipher(struct br_str *list, const struct br_tls_config *config,
                                 const char *name, STACK_OF(SSL_CIPHER) * all, struct br_err *err)
{
    const SSL_CIPHER *c = tls_policy_find_cipher(all, name);
    if (!c)
        return br_err_set(
            err, BR_EINVAL,
            "cipher_suites: \"%.64s\" is not a suite that this OpenSSL supports; a supported one "
            "is \"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"",
            name);
    if (strcmp(SSL_CIPHER_get_version(c), "TLSv1.3") == 0)
        return 0;
    if (!tls_policy_is_secure(c) && !config->include_insecure_cipher_suites)
        return br_err_set(err, BR_EINVAL,
                          "cipher_suites: \"%.64s\" is insecure; include_insecure_cipher_suites "
                          "would allow it",
                          name);
    br_str_printf(list, "%s%s", list->len ? ":" : "", SSL_CIPHER_get_name(c));
    return 0;
}

static int tls_policy_set_ciphers(SSL_CTX *ssl, const char *list, struct br_err *err)
{
    if (!SSL_CTX_set_cipher_list(ssl, list))
        return br_err_set(err, BR_EINVAL, "OpenSSL rejects the TLS 1.2 cipher suites: %s",
                          br_tls_reason());
    return 0;
}

/* Disables TLS 1.2, as Go does if the configured list has only TLS 1.3 suites. */
static int tls_policy_only_tls13(SSL_CTX *ssl, struct br_err *err)
{
    if (SSL_CTX_get_max_proto_version(ssl) == TLS1_2_VERSION)
        return br_err_set(err, BR_EINVAL,
                          "cipher_suites contains no TLS 1.2 suite, but max_version is \"1.2\"");
    return SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) ? 0 : br_tls_no_memory(err);
}

static int tls_policy_apply_named_ciphers(SSL_CTX *ssl, STACK_OF(SSL_CIPHER) * all,
                                          const struct br_tls_config *config, struct br_err *err)
{
    struct br_str list = {.max = LIST_MAX};
    int rc = 0;
    for (size_t i = 0; i < config->cipher_suites.count && !rc; i++)
        rc = tls_policy_add_cipher(&list, config, config->cipher_suites.items[i], all, err);
    if (!rc && list.failed)
        rc = br_tls_no_memory(err);
    if (!rc)
        rc = list.len ? tls_policy_set_ciphers(ssl, list.data, err)
                      : tls_policy_only_tls13(ssl, err);
    br_str_release(&list);
    return rc;
}

static int tls_policy_apply_ciphers(SSL_CTX *ssl, const struct br_tls_config *config,
                                    struct br_err *err)
{
    if (!SSL_CTX_set_ciphersuites(ssl, tls13_ciphers))
        return br_err_set(err, BR_EINVAL, "OpenSSL rejects the TLS 1.3 cipher suites: %s",
                          br_tls_reason());
    if (config->cipher_suites.count == 0)
        return tls_policy_set_ciphers(ssl, default_ciphers, err);
    /* Look up names in a separate context: the lookup enables all suites, which lowers the
     * security level of the context. */
    SSL_CTX *any = SSL_CTX_new(TLS_method());
    if (!any || !SSL_CTX_set_cipher_list(any, "ALL:COMPLEMENTOFALL:@SECLEVEL=0")) {
        SSL_CTX_free(any);
        return br_tls_no_memory(err);
    }
    int rc = tls_policy_apply_named_ciphers(ssl, SSL_CTX_get_ciphers(any), config, err);
    SSL_CTX_free(any);
    return rc;
}

static const char *tls_policy_group_name(const char *go)
{
    for (size_t i = 0; i < BR_COUNT(groups); i++) {
        if (strcmp(groups[i].go, go) == 0)
            return groups[i].openssl;
    }
    return NULL;
}

static int tls_policy_add_group(struct br_str *list, SSL_CTX *ssl, const char *go,
                                struct br_err *err)
{
    const char *name = tls_policy_group_name(go);
    if (!name)
        return br_err_set(
            err, BR_EINVAL,
            "curve_preferences: \"%.32s\" is not a curve; must be X25519, P256, P384, P521 or "
            "X25519MLKEM768",
            go);
    if (SSL_CTX_set1_groups_list(ssl, name))
        br_str_printf(list, "%s%s", list->len ? ":" : "", name);
    return 0;
}

static int tls_policy_apply_groups(SSL_CTX *ssl, const struct br_tls_config *config,
                                   struct br_err *err)
{
    if (config->curve_preferences.count == 0)
        return 0;
    struct br_str list = {.max = LIST_MAX};
    int rc = 0;
    for (size_t i = 0; i < config->curve_preferences.count && !rc; i++)
        rc = tls_policy_add_group(&list, ssl, config->curve_preferences.items[i], err);
    if (!rc && list.failed)
        rc = br_tls_no_memory(err);
    if (!rc && list.len == 0)
        rc = br_err_set(err, BR_EINVAL,
                        "curve_preferences: this OpenSSL supports none of these curves");
    if (!rc && !SSL_CTX_set1_groups_list(ssl, list.data))
        rc = br_err_set(err, BR_EINVAL, "curve_preferences: OpenSSL rejects \"%.128s\": %s",
                        list.data, br_tls_reason());
    br_str_release(&list);
    return rc;
}

int br_tls_policy_apply(SSL_CTX *ssl, const struct br_tls_config *config, struct br_err *err)
{
    int rc = tls_policy_apply_versions(ssl, config, err);
    if (!rc)
        rc = tls_policy_apply_ciphers(ssl, config, err);
    return rc ? rc : tls_policy_apply_groups(ssl, config, err);
}
