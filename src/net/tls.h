/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements TLS with OpenSSL over memory BIOs, without I/O: the functions convert ciphertext to
 * plaintext and the reverse. A TLS context is made once from the config's `tls` block and shared by
 * all connections of all workers. A TLS connection belongs to one worker.
 *
 * TLS 1.2 and 1.3 are offered. For TLS 1.2, only ECDHE suites with AEAD ciphers are offered unless
 * the config names other suites. Session tickets are used. Renegotiation, compression and early
 * data are disabled. On a server, the server's order of ciphers and protocols has precedence over
 * the client's. As in the Collector, every certificate in a CA file is a trust anchor, and only
 * subjectAltName is checked for names.
 *
 * br_tls_context_reload loads changed files for later connections: the certificate and key files
 * with `reload_interval`, the client CA file with `client_ca_file_reload`. If a file cannot be
 * loaded, the old certificates stay in use, and br_tls_context_reload_error returns the reason.
 * br_tls_reload_start calls br_tls_context_reload periodically.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "config/option.h"
#include "core/host.h"

/* The `tls` block of servers and clients, with the Collector's keys. */
struct br_tls_config {
    const char *ca_file;
    struct br_secret ca_pem;
    const char *cert_file;
    struct br_secret cert_pem;
    const char *key_file;
    struct br_secret key_pem;
    /* servers only: request client certificates and verify them against the CA certificates in
     * this file */
    const char *client_ca_file;
    /* clients only: the name to verify and to send as SNI instead of the host of the endpoint */
    const char *server_name_override;
    /* "1.2" or "1.3"; NULL or "": the minimum is 1.2, and the maximum is the newest version */
    const char *min_version, *max_version;
    /* IANA or OpenSSL names of TLS 1.2 suites. TLS 1.3 suites are always enabled. A list that
     * names only TLS 1.3 suites disables TLS 1.2. */
    struct br_strings cipher_suites;
    bool include_insecure_cipher_suites;
    /* names of curves ("X25519", "P256", ...); curves that OpenSSL lacks are skipped, but at least
     * one curve must remain. */
    struct br_strings curve_preferences;
    /* clients only: do not use TLS, unless the endpoint's scheme is https */
    bool insecure;
    bool insecure_skip_verify; /* clients only: do not verify the server's certificate */
    bool include_system_ca_certs_pool;
    bool client_ca_file_reload;
    /* interval, in nanoseconds, at which changed files are loaded; 0: never */
    uint64_t reload_interval;
};

/* tables of options for a struct br_tls_config of servers and of clients */
extern const struct br_option br_tls_server_options[];
extern const struct br_option br_tls_client_options[];

struct br_tls_context;
struct br_tls;

/* Makes a TLS context and loads its certificates and keys. `config` is copied; its strings are
 * borrowed until br_tls_context_free. `alpn` lists protocols in order of preference,
 * NULL-terminated ({"h2", "http/1.1", NULL}). If `alpn` is NULL, ALPN is not used. Each protocol
 * name has 1 to 31 bytes; the sum of all lengths, with one more byte per name, is at most 255. A
 * server rejects clients that offer only other protocols, and accepts clients without ALPN.
 * Returns 0, or BR_EINVAL, BR_EIO or BR_ENOMEM with a message that names the file. */
int br_tls_context_new(const struct br_tls_config *config, bool server, const char *const *alpn,
                       struct br_tls_context **ret, struct br_err *err);

/* Returns true for "1.0" and "1.1", which the Collector accepts although they are insecure. In
 * Braid, min_version "1.0" or "1.1" means 1.2, and max_version "1.0" or "1.1" is an error.
 * Accepts NULL. */
bool br_tls_version_is_old(const char *version);

/* Checks a config without reading its files. OpenSSL must support the versions, suites and
 * curves, and a certificate needs a key. Returns 0, or BR_EINVAL or BR_ENOMEM with a message in
 * `err`. */
int br_tls_config_check(const struct br_tls_config *config, bool server, struct br_err *err);

/* Frees a context. All connections of the context must be freed first. Accepts NULL. */
void br_tls_context_free(struct br_tls_context *ctx);

/* Returns the interval, in milliseconds, at which files must be checked for changes; 0: never.
 * The interval is one second if the config has `client_ca_file_reload` but no `reload_interval`. */
uint64_t br_tls_context_interval_ms(const struct br_tls_context *ctx);

/* Reloads the files that have changed. If `all` is true, checks all files, otherwise only the files
 * for which the config enables periodic reloads. Blocks for disk reads, so it must not run in a
 * worker. Other threads may make TLS connections during a reload. */
void br_tls_context_reload(struct br_tls_context *ctx, bool all);

/* Returns true if a reload has failed since the last call, with the message in `err` (not NULL).
 * May be called in any thread. Each failed reload is reported only once. */
bool br_tls_context_reload_error(struct br_tls_context *ctx, struct br_err *err);

/* Makes a TLS connection. `server_name` is NULL on servers. On clients, `server_name` is the name
 * that the certificate must have, and that is sent to the server (SNI). If `server_name` is an IP
 * address, the address is verified but not sent. `server_name_override` takes precedence. After
 * br_tls_new, br_tls_output can return the first handshake message of a client. Returns NULL if
 * memory is short, or if a verifying client has no name or a name above 255 bytes. */
struct br_tls *br_tls_new(struct br_tls_context *ctx, const char *server_name);
void br_tls_free(struct br_tls *tls);

/* Processes ciphertext and consumes all of it. Passes plaintext to `on_plain` in pieces of up to 16
 * KiB; `on_plain` may call br_tls_send, br_tls_output and br_tls_close. Returns 0, BR_ECLOSED after
 * the peer's close_notify, BR_ENOMEM, BR_EPROTO with a message in `err`, or a nonzero result of
 * `on_plain`. After a result other than 0 no more input is accepted: later calls return the same
 * result. Pending output, such as an alert, is still available from br_tls_output. */
int br_tls_input(struct br_tls *tls, const uint8_t *data, size_t len,
                 int (*on_plain)(void *arg, const uint8_t *data, size_t len), void *arg,
                 struct br_err *err);

/* Queues plaintext for br_tls_output, and keeps references to the plaintext until br_tls_output has
 * encrypted it. Returns 0 or BR_ENOMEM. Returns BR_EPROTO before br_tls_ready, after br_tls_close
 * or after a TLS failure. After the first BR_ENOMEM, br_tls_output produces no more output. */
int br_tls_send(struct br_tls *tls, const struct br_rope *plain);

/* Appends pending ciphertext to `out` in buffers of up to 16 KiB. Returns 0, BR_ENOMEM or
 * BR_EPROTO (OpenSSL failed). An error ends the output, but the bytes already appended are
 * valid. */
int br_tls_output(struct br_tls *tls, struct br_pool *pool, struct br_rope *out);

/* Returns true if the handshake is complete. */
bool br_tls_ready(const struct br_tls *tls);

/* Returns the protocol that ALPN selected, or "" (also before br_tls_ready). Valid until
 * br_tls_free. */
const char *br_tls_alpn(const struct br_tls *tls);

/* Queues close_notify, to be sent after the queued plaintext. close_notify is not sent before
 * br_tls_ready returns true. */
void br_tls_close(struct br_tls *tls);

/* --- Reloads (tls_reload.c) ------------------------------------------------------------------- */

struct br_tls_reload;

/* Starts to reload the files of a context, in a thread of the thread pool: when the configuration
 * is reloaded (br_host_reread), and periodically if the context's config has an interval. The
 * context must exist until br_tls_reload_stop. Failures are logged to `log`. Returns 0 or
 * BR_ENOMEM. `*ret` is NULL if `ctx` is NULL. */
int br_tls_reload_start(struct br_host *host, struct br_tls_context *ctx, const struct br_log *log,
                        struct br_tls_reload **ret);

/* Stops reloading, and waits for a reload in progress. Accepts NULL. */
void br_tls_reload_stop(struct br_tls_reload *reload);
