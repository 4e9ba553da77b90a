/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types that the parts of TLS share: the context, and the three things it is made of (the
 * policy, our own certificate, the certificates we trust). Only src/net/tls*.c include this.
 */
#pragma once

#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "net/tls.h"

#define BR_TLS_ALPN_MAX 32 /* a protocol's name, terminated */

/* What tells one content of a file from the next; all zero when there is no file. */
struct br_tls_stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

struct br_tls_context {
    struct br_tls_config config;
    bool server;
    uint8_t alpn[256]; /* as on the wire: length, name, ... */
    size_t alpn_len;
    BIO_METHOD *bio;
    pthread_mutex_t lock; /* of what follows */
    SSL_CTX *ssl;         /* replaced as a whole by a reload */
    bool reload_failed;
    struct br_err reload_err;
    struct br_tls_stamp cert, key, client_ca; /* of the thread that reloads; without the lock */
};

/* Returns the first reason in OpenSSL's error queue, as text. Never NULL. */
const char *br_tls_reason(void);

/* Says so in `err`; returns BR_ENOMEM. */
int br_tls_no_memory(struct br_err *err);

/* Versions, ciphers and groups of `config`. Returns 0, BR_EINVAL or BR_ENOMEM. */
int br_tls_policy_apply(SSL_CTX *ssl, const struct br_tls_config *config, struct br_err *err);

/* Loads our certificate, its chain and its key, if `config` has them. Returns 0, BR_EINVAL, BR_EIO
 * or BR_ENOMEM. */
int br_tls_identity_load(SSL_CTX *ssl, const struct br_tls_config *config, struct br_err *err);

/* Copies the same from a context that has them. Returns 0 or BR_ENOMEM. */
int br_tls_identity_copy(SSL_CTX *ssl, SSL_CTX *from, struct br_err *err);

/* Loads the certificates that the peer's has to come from. Returns 0, BR_EINVAL, BR_EIO or
 * BR_ENOMEM. */
int br_tls_trust_load(SSL_CTX *ssl, const struct br_tls_config *config, bool server,
                      struct br_err *err);

/* Copies the same from a context that has them. Returns 0 or BR_ENOMEM. */
int br_tls_trust_copy(SSL_CTX *ssl, SSL_CTX *from, struct br_err *err);

/* Returns the SSL_CTX for a new connection, which the caller owns. */
SSL_CTX *br_tls_context_current(struct br_tls_context *ctx);

/* The BIO between OpenSSL and struct br_tls, its data. NULL when there is no memory. */
BIO_METHOD *br_tls_bio_method(void);
