/* SPDX-License-Identifier: Apache-2.0 */
/* Loads certificates and keys, from files or from the config. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>

#include "net/tls_internal.h"

#define FILE_MAX (8u << 20)

/* A PEM text, and the name of its source in messages. */
struct source {
    char name[320];
    BIO *bio; /* reads the PEM text; NULL if no text or file is configured */
};

const char *br_tls_reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());
    return text ? text : "no reason given";
}

int br_tls_no_memory(struct br_err *err)
{
    return br_err_set(err, BR_ENOMEM, "out of memory for TLS");
}

/* Reads a file without OpenSSL's PEM reader. For a directory or an unreadable file, that reader
 * only reports that it found no certificate. */
static int tls_pem_read_file(FILE *file, struct source *source, struct br_err *err)
{
    char chunk[4096];
    size_t n, total = 0;
    int rc = 0;
    while (!rc && (n = fread(chunk, 1, sizeof chunk, file)) > 0) {
        total += n;
        if (total > FILE_MAX)
            rc = br_err_set(err, BR_EINVAL, "%s is larger than %u MiB", source->name,
                            FILE_MAX >> 20);
        else if (BIO_write(source->bio, chunk, (int)n) != (int)n)
            rc = br_tls_no_memory(err);
    }
    if (!rc && ferror(file))
        rc = br_err_set(err, BR_EIO, "%s cannot be read: %s", source->name, strerror(errno));
    OPENSSL_cleanse(chunk, sizeof chunk);
    return rc;
}

static int tls_pem_open_file(struct source *source, const char *file, struct br_err *err)
{
    FILE *f = fopen(file, "re");
    if (!f)
        return br_err_set(err, BR_EIO, "%s cannot be opened: %s", source->name, strerror(errno));
    source->bio = BIO_new(BIO_s_mem());
    int rc = source->bio ? tls_pem_read_file(f, source, err) : br_tls_no_memory(err);
    fclose(f);
    if (rc) {
        BIO_free(source->bio);
        source->bio = NULL;
    }
    return rc;
}

/* Opens the PEM text of a setting. `what` is "cert", "key", "ca" or "client_ca": the config key
 * without "_file" or "_pem". */
static int tls_pem_open_source(struct source *source, const char *what, const char *file,
                               const char *pem, struct br_err *err)
{
    bool has_file = file && *file, has_pem = pem && *pem;
    *source = (struct source){0};
    if (has_file && has_pem)
        return br_err_set(err, BR_EINVAL, "%s_file and %s_pem are both set; set only one of them",
                          what, what);
    if (has_file) {
        (void)snprintf(source->name, sizeof source->name, "%s_file %.256s", what, file);
        return tls_pem_open_file(source, file, err);
    }
    if (has_pem) {
        (void)snprintf(source->name, sizeof source->name, "%s_pem", what);
        source->bio = BIO_new_mem_buf(pem, -1);
        return source->bio ? 0 : br_tls_no_memory(err);
    }
    return 0;
}

/* Refuses a passphrase, so that OpenSSL never prompts on the terminal. */
static int tls_pem_on_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    *(bool *)arg = true;
    return -1;
}

static int tls_pem_read_key(struct source *source, EVP_PKEY **ret, struct br_err *err)
{
    bool encrypted = false;
    ERR_clear_error();
    *ret = PEM_read_bio_PrivateKey(source->bio, NULL, tls_pem_on_passphrase, &encrypted);
    if (*ret)
        return 0;
    if (encrypted)
        return br_err_set(err, BR_EINVAL,
                          "%s is encrypted; remove the passphrase of the key (openssl pkey)",
                          source->name);
    return br_err_set(
        err, BR_EINVAL,
        "%s does not contain a private key in PEM form (\"-----BEGIN PRIVATE KEY-----\")",
        source->name);
}

/* Reads all certificates of a source. If the source has no certificate, reports an error. */
static int tls_pem_read_certs(struct source *source, STACK_OF(X509) * *ret, struct br_err *err)
{
    STACK_OF(X509) *certs = sk_X509_new_null();
    X509 *cert;
    ERR_clear_error();
    while (certs && (cert = PEM_read_bio_X509(source->bio, NULL, NULL, NULL))) {
        if (!sk_X509_push(certs, cert)) {
            X509_free(cert);
            sk_X509_pop_free(certs, X509_free);
            certs = NULL;
        }
    }
    if (!certs)
        return br_tls_no_memory(err);
    bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    int n = sk_X509_num(certs);
    if (at_end && n > 0) {
        ERR_clear_error();
        *ret = certs;
        return 0;
    }
    sk_X509_pop_free(certs, X509_free);
    if (at_end)
        return br_err_set(
            err, BR_EINVAL,
            "%s does not contain a certificate in PEM form (\"-----BEGIN CERTIFICATE-----\")",
            source->name);
    return br_err_set(err, BR_EINVAL, "%s: certificate %d is damaged: %s", source->name, n + 1,
                      br_tls_reason());
}

static int tls_pem_compare_key(struct source *cert, struct source *key, X509 *leaf, EVP_PKEY *pkey,
                               struct br_err *err)
{
    ERR_clear_error();
    if (X509_check_private_key(leaf, pkey))
        return 0;
    int reason = ERR_GET_REASON(ERR_peek_last_error());
    if (reason != X509_R_KEY_VALUES_MISMATCH && reason != X509_R_KEY_TYPE_MISMATCH)
        return br_err_set(err, BR_EINVAL, "%s has a public key that OpenSSL does not accept: %s",
                          cert->name, br_tls_reason());
    return br_err_set(
        err, BR_EINVAL,
        "%s is not the key of the first certificate in %s; the certificate of this key must "
        "come first, before its issuers",
        key->name, cert->name);
}

static int tls_pem_use_identity(SSL_CTX *ssl, struct source *cert, STACK_OF(X509) * certs,
                                EVP_PKEY *pkey, struct br_err *err)
{
    X509 *own = sk_X509_shift(certs);
    int ok = SSL_CTX_use_cert_and_key(ssl, own, pkey, certs, 1);
    X509_free(own);
    if (!ok)
        return br_err_set(err, BR_EINVAL, "OpenSSL rejects %s: %s", cert->name, br_tls_reason());
    return 0;
}

static int tls_pem_load_identity(SSL_CTX *ssl, struct source *cert, struct source *key,
                                 struct br_err *err)
{
    STACK_OF(X509) *certs = NULL;
    EVP_PKEY *pkey = NULL;
    int rc = tls_pem_read_certs(cert, &certs, err);
    if (!rc)
        rc = tls_pem_read_key(key, &pkey, err);
    if (!rc)
        rc = tls_pem_compare_key(cert, key, sk_X509_value(certs, 0), pkey, err);
    if (!rc)
        rc = tls_pem_use_identity(ssl, cert, certs, pkey, err);
    EVP_PKEY_free(pkey);
    sk_X509_pop_free(certs, X509_free);
    return rc;
}

int br_tls_identity_load(SSL_CTX *ssl, const struct br_tls_config *config, struct br_err *err)
{
    struct source cert, key = {0};
    int rc = tls_pem_open_source(&cert, "cert", config->cert_file, config->cert_pem.text, err);
    if (!rc)
        rc = tls_pem_open_source(&key, "key", config->key_file, config->key_pem.text, err);
    if (!rc && cert.bio && !key.bio)
        rc = br_err_set(err, BR_EINVAL,
                        "%s is set without a key; set key_file (or key_pem) too, or neither",
                        cert.name);
    else if (!rc && key.bio && !cert.bio)
        rc = br_err_set(
            err, BR_EINVAL,
            "%s is set without a certificate; set cert_file (or cert_pem) too, or neither",
            key.name);
    else if (!rc && cert.bio)
        rc = tls_pem_load_identity(ssl, &cert, &key, err);
    BIO_free(cert.bio);
    BIO_free(key.bio);
    return rc;
}

int br_tls_identity_copy(SSL_CTX *ssl, SSL_CTX *from, struct br_err *err)
{
    X509 *cert = SSL_CTX_get0_certificate(from);
    STACK_OF(X509) *chain = NULL;
    if (!cert)
        return 0;
    SSL_CTX_get0_chain_certs(from, &chain);
    return SSL_CTX_use_cert_and_key(ssl, cert, SSL_CTX_get0_privatekey(from), chain, 1)
               ? 0
               : br_tls_no_memory(err);
}

static int tls_pem_load_trusted(SSL_CTX *ssl, struct source *source, bool server,
                                struct br_err *err)
{
    STACK_OF(X509) *certs = NULL;
    int rc = tls_pem_read_certs(source, &certs, err);
    for (int i = 0; !rc && i < sk_X509_num(certs); i++) {
        X509 *cert = sk_X509_value(certs, i);
        if (!X509_STORE_add_cert(SSL_CTX_get_cert_store(ssl), cert) ||
            (server && !SSL_CTX_add_client_CA(ssl, cert)))
            rc = br_tls_no_memory(err);
    }
    sk_X509_pop_free(certs, X509_free);
    return rc;
}

int br_tls_trust_load(SSL_CTX *ssl, const struct br_tls_config *config, bool server,
                      struct br_err *err)
{
    struct source ca;
    int rc = server ? tls_pem_open_source(&ca, "client_ca", config->client_ca_file, NULL, err)
                    : tls_pem_open_source(&ca, "ca", config->ca_file, config->ca_pem.text, err);
    if (!rc && ca.bio)
        rc = tls_pem_load_trusted(ssl, &ca, server, err);
    if (!rc && !server && (!ca.bio || config->include_system_ca_certs_pool) &&
        !SSL_CTX_set_default_verify_paths(ssl))
        rc = br_tls_no_memory(err);
    BIO_free(ca.bio);
    return rc;
}

int br_tls_trust_copy(SSL_CTX *ssl, SSL_CTX *from, struct br_err *err)
{
    SSL_CTX_set1_cert_store(ssl, SSL_CTX_get_cert_store(from));
    const STACK_OF(X509_NAME) *names = SSL_CTX_get_client_CA_list(from);
    if (!names)
        return 0;
    STACK_OF(X509_NAME) *copy = SSL_dup_CA_list(names);
    if (!copy)
        return br_tls_no_memory(err);
    SSL_CTX_set_client_CA_list(ssl, copy);
    return 0;
}
