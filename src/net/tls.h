/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS by OpenSSL over memory BIOs: ciphertext in, plaintext out and back, no I/O. A context is made
 * once from the config's `tls` block and shared by all connections (and, read-only, by all workers).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "config/option.h"

/* The `tls` block of servers and clients, with the Collector's keys. */
struct br_tls_config {
    const char *ca_file;
    struct br_secret ca_pem;
    const char *cert_file;
    struct br_secret cert_pem;
    const char *key_file;
    struct br_secret key_pem;
    const char *client_ca_file;       /* servers: ask for and check client certificates */
    const char *server_name_override; /* clients */
    const char *min_version, *max_version; /* "1.2", "1.3"; NULL or "": 1.2, newest */
    struct br_strings cipher_suites;  /* IANA or OpenSSL names for TLS 1.2 */
    struct br_strings curve_preferences; /* "X25519", "P256", ... */
    bool insecure;                    /* clients: no TLS at all (unless the endpoint says https) */
    bool insecure_skip_verify;        /* clients */
    bool include_system_ca_certs_pool;
    bool client_ca_file_reload;
    uint64_t reload_interval;         /* ns; 0: never */
};

extern const struct br_option br_tls_server_options[]; /* of struct br_tls_config */
extern const struct br_option br_tls_client_options[];

struct br_tls_context;
struct br_tls;

/* Loads certificates and keys. `alpn` is the list of protocols in preference order, NULL-terminated
 * ({"h2", "http/1.1", NULL}). Returns 0, BR_EINVAL, BR_EIO or BR_ENOMEM with a sentence that names the
 * file. */
int br_tls_context_new(const struct br_tls_config *config, bool server, const char *const *alpn,
                       struct br_tls_context **ret, struct br_err *err);
void br_tls_context_free(struct br_tls_context *ctx);

/* One connection; clients give the name to verify and send (SNI). NULL when there is no memory. */
struct br_tls *br_tls_new(struct br_tls_context *ctx, const char *server_name);
void br_tls_free(struct br_tls *t);

/* Feeds ciphertext. Plaintext that becomes readable goes to `on_plain` in pieces of up to 16 KiB.
 * Returns 0; BR_ECLOSED after the peer's close_notify; BR_EPROTO with a sentence otherwise. Handshake
 * messages to send appear at br_tls_output. */
int br_tls_input(struct br_tls *t, const uint8_t *data, size_t len,
                 int (*on_plain)(void *arg, const uint8_t *data, size_t len), void *arg,
                 struct br_err *err);

/* Encrypts plaintext (only once br_tls_ready). Returns 0, BR_EPROTO or BR_ENOMEM. */
int br_tls_send(struct br_tls *t, const struct br_rope *plain);

/* Appends ciphertext that has to go out. Returns 0 or BR_ENOMEM. */
int br_tls_output(struct br_tls *t, struct br_pool *pool, struct br_rope *out);

/* The handshake is done. */
bool br_tls_ready(const struct br_tls *t);

/* The protocol that ALPN chose, or "". */
const char *br_tls_alpn(const struct br_tls *t);

/* Queues close_notify for br_tls_output. */
void br_tls_close(struct br_tls *t);
