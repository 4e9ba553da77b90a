/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client and a server of TLS that talk through memory, and OpenSSL itself as a client that does
 * what ours never would. Everything asserts.
 */
#pragma once

#include <openssl/ssl.h>

#include "net/tls.h"
#include "tests/support/test.h"
#include "tests/support/tls_certs.h"

extern struct br_pool *tls_pool;               /* between tls_setup and tls_teardown */
extern const char *const tls_both_protocols[]; /* h2, http/1.1 */

struct tls_bytes {
    uint8_t *data;
    size_t len;
};

struct tls_end {
    struct br_tls_context *ctx;
    struct br_tls *tls;
    struct tls_bytes got; /* plaintext */
    size_t largest;       /* piece of it */
    int rc;               /* what input said first, unless 0 */
    struct br_err err;
};

struct tls_pair {
    struct tls_end client, server;
};

/* The certificate "server"; trust in "ca". */
struct br_tls_config tls_server_config(void);
struct br_tls_config tls_client_config(void);

struct br_tls_context *tls_context(const struct br_tls_config *config, bool server,
                                   const char *const *alpn);

/* Two ends that have not talked yet. tls_pair is of the two configs above, for "localhost". */
struct tls_pair tls_pair(void);
struct tls_pair tls_pair_of(const struct br_tls_config *client, const struct br_tls_config *server,
                            const char *name);

/* Connections over the contexts of a pair, again and again. */
void tls_connect(struct tls_pair *p, const char *name);
void tls_disconnect(struct tls_pair *p);
void tls_pair_free(struct tls_pair *p);

/* A server alone. */
struct tls_end tls_server_end(const struct br_tls_config *config);
void tls_end_free(struct tls_end *e);

/* Ciphertext into an end. */
void tls_feed(struct tls_end *e, const uint8_t *data, size_t len);

/* br_tls_input's callback for a struct tls_end. */
int tls_on_plain(void *arg, const uint8_t *data, size_t len);

/* Everything that one end has to say, in pieces of `chunk` bytes, to the other; false when that was
 * nothing. tls_talk goes on until both are silent. */
bool tls_carry(struct tls_end *from, struct tls_end *to, size_t chunk);
void tls_talk(struct tls_pair *p, size_t chunk);

/* Test data: `len` bytes, sent in slices of `slice` and 9 bytes by turns (frames and their
 * headers); what has to have come; both ways at once. */
uint8_t tls_byte_at(size_t i);
void tls_send_bytes(struct tls_end *e, size_t len, size_t slice);
void tls_exchange(struct tls_pair *p, size_t len, size_t slice, size_t chunk);

void assert_tls_got(struct tls_end *e, size_t len);
void assert_tls_ready(const struct tls_pair *p);
void assert_tls_says(const struct br_err *err, const char *words);

/* OpenSSL as the client, with one TLS version and a list of ciphers. */
struct tls_raw {
    SSL_CTX *ctx;
    SSL *ssl;
};

struct tls_raw tls_raw_client(int version, const char *ciphers);
void tls_raw_free(struct tls_raw *r);

/* Carries bytes both ways once. */
void tls_raw_swap(struct tls_raw *r, struct tls_end *server);

/* Returns what SSL_do_handshake says in the end. */
int tls_raw_handshake(struct tls_raw *r, struct tls_end *server);
