/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#define T struct br_tls_config

/* clang-format off */
#define COMMON_ROWS                                                                                \
    BR_STRING(T, cert_file, NULL, "certificate with its chain, PEM"),                              \
    BR_SECRET(T, cert_pem, "the same, inline"),                                                    \
    BR_STRING(T, key_file, NULL, "the certificate's private key, PEM, not encrypted"),             \
    BR_SECRET(T, key_pem, "the same, inline"),                                                     \
    BR_STRING(T, min_version, "1.2", "lowest TLS version, 1.2 or 1.3"),                            \
    BR_STRING(T, max_version, NULL, "highest TLS version; empty: the newest"),                     \
    BR_STRINGS(T, cipher_suites, "TLS 1.2 cipher suites; empty: ECDHE with AEAD"),                 \
    BR_BOOL(T, include_insecure_cipher_suites, false, "allow insecure suites in cipher_suites"),   \
    BR_STRINGS(T, curve_preferences, "X25519, P256, P384, P521; empty: OpenSSL's default"),        \
    BR_DURATION(T, reload_interval, "0", "interval of reloading changed files; 0: never"),         \
    BR_IGNORED("tpm", "keys in a TPM are not supported")

const struct br_option br_tls_server_options[] = {
    COMMON_ROWS,
    BR_STRING(T, client_ca_file, NULL, "CA certificates that clients are verified by, PEM"),
    BR_BOOL(T, client_ca_file_reload, false, "reload client_ca_file when it changes"),
    BR_IGNORED("ca_file", "a server verifies clients by client_ca_file"),
    BR_IGNORED("ca_pem", "a server verifies clients by client_ca_file"),
    BR_IGNORED("include_system_ca_certs_pool", "a server verifies clients by client_ca_file"),
    BR_OPT_END,
};

const struct br_option br_tls_client_options[] = {
    COMMON_ROWS,
    BR_STRING(T, ca_file, NULL, "CA certificates that the server is verified by, PEM"),
    BR_SECRET(T, ca_pem, "the same, inline"),
    BR_BOOL(T, include_system_ca_certs_pool, false, "trust the system's certificates too"),
    BR_STRING(T, server_name_override, NULL, "name to send (SNI) and to verify"),
    BR_BOOL(T, insecure, false, "do not use TLS"),
    BR_BOOL(T, insecure_skip_verify, false, "do not verify the server's certificate"),
    BR_OPT_END,
};
/* clang-format on */
