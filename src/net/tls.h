/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS by OpenSSL over memory BIOs: ciphertext in, plaintext out and back, no I/O. A context is made
 * once from the config's `tls` block and shared by all connections of all workers; a connection
 * belongs to one worker.
 *
 * What is offered: TLS 1.2 and 1.3; for TLS 1.2 only ECDHE with AEAD ciphers unless the config
 * names others; no renegotiation, no compression, no early data; session tickets; the server's
 * order of ciphers and protocols. As with the Collector, every certificate in a CA file is a trust
 * anchor, and names are looked for in subjectAltName only.
 *
 * br_tls_context_reload loads files that changed on disk, for later connections: with
 * `reload_interval` the certificate and key files, with `client_ca_file_reload` the client CA file.
 * Files that do not load leave everything as it was, and the reason waits in
 * br_tls_context_reload_error. net/tls_reload.h calls it.
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
    const char *client_ca_file;            /* servers: ask for and check client certificates */
    const char *server_name_override;      /* clients */
    const char *min_version, *max_version; /* "1.2", "1.3"; NULL or "": 1.2, newest */
    /* IANA or OpenSSL names for TLS 1.2. The suites of TLS 1.3 are always on; naming them alone
     * switches TLS 1.2 off. */
    struct br_strings cipher_suites;
    bool include_insecure_cipher_suites;
    /* "X25519", "P256", ...; those that this OpenSSL lacks are passed over while one remains. */
    struct br_strings curve_preferences;
    bool insecure;             /* clients: no TLS at all (unless the endpoint says https) */
    bool insecure_skip_verify; /* clients */
    bool include_system_ca_certs_pool;
    bool client_ca_file_reload;
    uint64_t reload_interval; /* ns; 0: never */
};

extern const struct br_option br_tls_server_options[]; /* of struct br_tls_config */
extern const struct br_option br_tls_client_options[];

struct br_tls_context;
struct br_tls;

/* Loads certificates and keys. `config` is copied, the texts it points at are borrowed until
 * br_tls_context_free. `alpn` is the list of protocols in preference order, NULL-terminated ({"h2",
 * "http/1.1", NULL}), each of 1 to 31 bytes, 255 with a byte more for each; NULL: none. A server
 * refuses a client that offers others only; a client that offers none is welcome. Returns 0,
 * BR_EINVAL, BR_EIO or BR_ENOMEM with a sentence that names the file. */
int br_tls_context_new(const struct br_tls_config *config, bool server, const char *const *alpn,
                       struct br_tls_context **ret, struct br_err *err);

/* Returns true for "1.0" and "1.1", which the Collector knows and which are broken. As a
 * min_version they are read as 1.2, which lets in less; as a max_version they are refused. NULL is
 * none. */
bool br_tls_version_is_old(const char *version);

/* Checks what of a config can be judged without its files: versions, suites and curves that there
 * are here, a key with its certificate. Returns 0, BR_EINVAL or BR_ENOMEM with a sentence. */
int br_tls_config_check(const struct br_tls_config *config, bool server, struct br_err *err);

/* Frees a context, after the last of its connections. */
void br_tls_context_free(struct br_tls_context *ctx);

/* Returns how often the files are to be looked at, in milliseconds: each second where the config
 * has `client_ca_file_reload` without an interval; 0: never. */
uint64_t br_tls_context_interval_ms(const struct br_tls_context *ctx);

/* Loads the files that changed since they were loaded. May block for as long as the disk does: one
 * thread at a time, while others make connections. */
void br_tls_context_reload(struct br_tls_context *ctx);

/* Returns true when a reload failed since the last call; then `err` (not NULL) says why. Any thread
 * may ask, one gets the answer. */
bool br_tls_context_reload_error(struct br_tls_context *ctx, struct br_err *err);

/* Makes a connection; clients give the name to verify and send (SNI): a host name, or an IP
 * address, which is verified and not sent. `server_name_override` goes before it; servers give
 * NULL. A client's first message is at br_tls_output at once. NULL when there is no memory, or
 * when a client that verifies has no name or one that cannot be (over 255 bytes). */
struct br_tls *br_tls_new(struct br_tls_context *ctx, const char *server_name);
void br_tls_free(struct br_tls *tls);

/* Feeds ciphertext; all of it is taken. Plaintext that becomes readable goes to `on_plain` in
 * pieces of up to 16 KiB; it may call br_tls_send, br_tls_output and br_tls_close, and what it
 * returns, unless 0, ends the reading and is returned. Returns 0; BR_ECLOSED after the peer's
 * close_notify; BR_ENOMEM; or BR_EPROTO with a sentence. After any of these the peer is not
 * listened to again and the same code comes back, but what there is to send (an alert, or a last
 * answer) still appears at br_tls_output, as handshake messages do. */
int br_tls_input(struct br_tls *tls, const uint8_t *data, size_t len,
                 int (*on_plain)(void *arg, const uint8_t *data, size_t len), void *arg,
                 struct br_err *err);

/* Queues plaintext, which br_tls_output encrypts; holds references until then. Returns 0, BR_EPROTO
 * (before br_tls_ready, after br_tls_close, or once TLS itself has failed in either direction) or
 * BR_ENOMEM, which ends the connection's sending. */
int br_tls_send(struct br_tls *tls, const struct br_rope *plain);

/* Appends ciphertext that has to go out, in buffers of up to 16 KiB. Returns 0, or BR_ENOMEM or
 * BR_EPROTO (OpenSSL failed, which it has no cause to), which end the connection's sending; what
 * was appended is still in order. */
int br_tls_output(struct br_tls *tls, struct br_pool *pool, struct br_rope *out);

/* Returns true when the handshake is done. */
bool br_tls_ready(const struct br_tls *tls);

/* Returns the protocol that ALPN chose, or "" (also before br_tls_ready). Lives as long as `tls`.
 */
const char *br_tls_alpn(const struct br_tls *tls);

/* Queues close_notify, behind what was sent, for br_tls_output. Nothing before br_tls_ready. */
void br_tls_close(struct br_tls *tls);
