/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client and a server of TLS that are connected through memory, and OpenSSL as a client that
 * behaves as Braid's never would. Any failure fails the test.
 */
#pragma once

#include <openssl/ssl.h>

#include "net/tls.h"
#include "tests/support/test.h"
#include "tests/support/tls_certs.h"

/* contexts, valid between tls_setup and tls_teardown */
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
    size_t largest;       /* size of a piece of it */
    int rc;               /* first result of input that is not 0 */
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

/* Make two ends before their handshake. tls_pair uses the two configs above, for "localhost". */
struct tls_pair tls_pair(void);
struct tls_pair tls_pair_of(const struct br_tls_config *client, const struct br_tls_config *server,
                            const char *name);

/* Makes further connections over the contexts of a pair. */
void tls_connect(struct tls_pair *p, const char *name);
void tls_disconnect(struct tls_pair *p);
void tls_pair_free(struct tls_pair *p);

/* Makes a server alone. */
struct tls_end tls_server_end(const struct br_tls_config *config);
void tls_end_free(struct tls_end *e);

/* Feeds ciphertext into an end. */
void tls_feed(struct tls_end *e, const uint8_t *data, size_t len);

/* br_tls_input's callback for a struct tls_end. */
int tls_on_plain(void *arg, const uint8_t *data, size_t len);

/* Transfers all output of one end, in pieces of `chunk` bytes, to the other; returns false if
 * there was none. tls_talk repeats this until neither end has output. */
bool tls_carry(struct tls_end *from, struct tls_end *to, size_t chunk);
void tls_talk(struct tls_pair *p, size_t chunk);

/* Test data: send `len` bytes in slices of alternately `slice` and 9 bytes (frames and their
 * headers); check the received data; do both in both directions at once. */
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

/* Transfers the pending bytes in both directions once. */
void tls_raw_swap(struct tls_raw *r, struct tls_end *server);

/* Returns the final result of SSL_do_handshake. */
int tls_raw_handshake(struct tls_raw *r, struct tls_end *server);
