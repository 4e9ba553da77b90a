/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects a TLS client and a TLS server of Braid through memory. Also has a client on OpenSSL,
 * which can behave in ways that Braid's client cannot. Any error fails the test.
 */
#pragma once

#include <openssl/ssl.h>

#include "net/tls.h"
#include "tests/support/test.h"
#include "tests/support/tls_certs.h"

/* buffer pool, valid between tls_setup and tls_teardown */
extern struct br_pool *tls_pool;
extern const char *const tls_both_protocols[]; /* h2, http/1.1 */

struct tls_bytes {
    uint8_t *data;
    size_t len;
};

struct tls_end {
    struct br_tls_context *ctx;
    struct br_tls *tls;
    struct tls_bytes got; /* plaintext */
    size_t largest;       /* size of the largest piece of plaintext, in bytes */
    int rc;               /* first error that br_tls_input returned; 0: none */
    struct br_err err;
};

struct tls_pair {
    struct tls_end client, server;
};

/* Return the config of a server with the certificate "server", and of a client that trusts "ca". */
struct br_tls_config tls_server_config(void);
struct br_tls_config tls_client_config(void);

struct br_tls_context *tls_context(const struct br_tls_config *config, bool server,
                                   const char *const *alpn);

/* Make a client and a server before their handshake. tls_pair uses the two configs above and the
 * server name "localhost". */
struct tls_pair tls_pair(void);
struct tls_pair tls_pair_of(const struct br_tls_config *client, const struct br_tls_config *server,
                            const char *name);

/* tls_connect makes new connections with the contexts of the pair. */
void tls_connect(struct tls_pair *p, const char *name);
void tls_disconnect(struct tls_pair *p);
void tls_pair_free(struct tls_pair *p);

/* Makes a server without a client. */
struct tls_end tls_server_end(const struct br_tls_config *config);
void tls_end_free(struct tls_end *e);

/* Passes ciphertext to one end. */
void tls_feed(struct tls_end *e, const uint8_t *data, size_t len);

/* Callback of br_tls_input. `arg` is a struct tls_end, which stores the plaintext. */
int tls_on_plain(void *arg, const uint8_t *data, size_t len);

/* tls_carry transfers all output of one end to the other end, in pieces of `chunk` bytes. Returns
 * false if the end had no output. tls_talk repeats this in both directions until neither end has
 * output. */
bool tls_carry(struct tls_end *from, struct tls_end *to, size_t chunk);
void tls_talk(struct tls_pair *p, size_t chunk);

/* tls_byte_at returns byte number `i` of the test data. tls_send_bytes sends `len` bytes of this
 * data, in slices that alternately have `slice` bytes and 9 bytes, like frames and their headers.
 * tls_exchange sends data in both directions at once, and checks the received data. */
uint8_t tls_byte_at(size_t i);
void tls_send_bytes(struct tls_end *e, size_t len, size_t slice);
void tls_exchange(struct tls_pair *p, size_t len, size_t slice, size_t chunk);

void assert_tls_got(struct tls_end *e, size_t len);
void assert_tls_ready(const struct tls_pair *p);
void assert_tls_says(const struct br_err *err, const char *words);

/* A client on OpenSSL, with one TLS version and a list of ciphers. */
struct tls_raw {
    SSL_CTX *ctx;
    SSL *ssl;
};

struct tls_raw tls_raw_client(int version, const char *ciphers);
void tls_raw_free(struct tls_raw *r);

/* Transfers the pending bytes once, in both directions. */
void tls_raw_swap(struct tls_raw *r, struct tls_end *server);

/* Returns the final result of SSL_do_handshake. */
int tls_raw_handshake(struct tls_raw *r, struct tls_end *server);
