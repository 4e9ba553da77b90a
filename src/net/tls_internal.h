/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and functions that src/net/tls*.c share: the context, and its three parts. The three parts
 * are the policy (versions, ciphers and groups), our own certificate, and the trusted CA
 * certificates. Only src/net/tls*.c include this header.
 */
#pragma once

#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "net/tls.h"

#define BR_TLS_ALPN_MAX 32 /* maximum bytes of a protocol name, including the terminator */

/* A stamp identifies one version of a file; all fields are zero if there is no file. */
struct br_tls_stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

struct br_tls_context {
    struct br_tls_config config;
    bool server;
    uint8_t alpn[256]; /* ALPN protocol names in wire format: length, name, length, name, ... */
    size_t alpn_len;
    BIO_METHOD *bio;
    pthread_mutex_t lock; /* protects the next three fields */
    /* settings for new connections; a reload replaces the whole object */
    SSL_CTX *ssl;
    bool reload_failed;
    struct br_err reload_err;
    /* versions of the loaded files; used only by the reloading thread, without the lock */
    struct br_tls_stamp cert, key, trusted;
};

/* Returns the text of the first error in OpenSSL's queue. Never returns NULL. */
const char *br_tls_reason(void);

/* Stores in `err` the message that memory is short. Returns BR_ENOMEM. */
int br_tls_no_memory(struct br_err *err);

/* Applies the versions, ciphers and groups of `config`. Returns 0, BR_EINVAL or BR_ENOMEM. */
int br_tls_policy_apply(SSL_CTX *ssl, const struct br_tls_config *config, struct br_err *err);

/* Loads the server's or client's own certificate, its chain and its key, if `config` has them.
 * Returns 0, BR_EINVAL, BR_EIO or BR_ENOMEM. */
int br_tls_identity_load(SSL_CTX *ssl, const struct br_tls_config *config, struct br_err *err);

/* Copies the certificate, its chain and its key from the SSL_CTX `from`. Returns 0 or BR_ENOMEM. */
int br_tls_identity_copy(SSL_CTX *ssl, SSL_CTX *from, struct br_err *err);

/* Loads the CA certificates that the peer is verified against. Returns 0, BR_EINVAL, BR_EIO or
 * BR_ENOMEM. */
int br_tls_trust_load(SSL_CTX *ssl, const struct br_tls_config *config, bool server,
                      struct br_err *err);

/* Copies the trusted CA certificates from another SSL_CTX. Returns 0 or BR_ENOMEM. */
int br_tls_trust_copy(SSL_CTX *ssl, SSL_CTX *from, struct br_err *err);

/* Returns a reference to the SSL_CTX for new connections; the caller frees it. */
SSL_CTX *br_tls_context_current(struct br_tls_context *ctx);

/* Returns the BIO method that connects OpenSSL to a struct br_tls, or NULL if memory is short. */
BIO_METHOD *br_tls_bio_method(void);
