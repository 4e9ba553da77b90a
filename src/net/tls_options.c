/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#define T struct br_tls_config

/* clang-format off */
#define COMMON_ROWS                                                                                \
    BR_STRING(T, cert_file, NULL, "file with the certificate and its chain, in PEM"),              \
    BR_SECRET(T, cert_pem, "certificate and its chain in PEM, instead of cert_file"),              \
    BR_STRING(T, key_file, NULL, "file with the certificate's private key, in PEM, unencrypted"),  \
    BR_SECRET(T, key_pem, "private key in PEM, unencrypted, instead of key_file"),                 \
    BR_STRING(T, min_version, "1.2", "lowest TLS version, 1.2 or 1.3"),                            \
    BR_STRING(T, max_version, NULL, "highest TLS version, 1.2 or 1.3; empty: the newest"),         \
    BR_STRINGS(T, cipher_suites,                                                                   \
               "cipher suites for TLS 1.2; default if empty: all ECDHE suites with AEAD"),         \
    BR_BOOL(T, include_insecure_cipher_suites, false, "allow insecure suites in cipher_suites"),   \
    BR_STRINGS(T, curve_preferences,                                                               \
               "key exchange curves: X25519, P256, P384 or P521; empty: OpenSSL's default"),       \
    BR_DURATION(T, reload_interval, "0",                                                           \
                "interval at which a changed cert_file or key_file is reloaded; 0: never"),        \
    BR_IGNORED("tpm", "keys in a TPM are not supported")

const struct br_option br_tls_server_options[] = {
    COMMON_ROWS,
    BR_STRING(T, client_ca_file, NULL,
              "file with the CA certificates that verify clients, in PEM; if set, clients must "
              "send a certificate"),
    BR_BOOL(T, client_ca_file_reload, false, "reload client_ca_file when the file changes"),
    BR_IGNORED("ca_file",
               "a server uses client_ca_file to verify clients, so this key has no effect"),
    BR_IGNORED("ca_pem",
               "a server uses client_ca_file to verify clients, so this key has no effect"),
    BR_IGNORED("include_system_ca_certs_pool",
               "a server uses client_ca_file to verify clients, so this key has no effect"),
    BR_OPT_END,
};

const struct br_option br_tls_client_options[] = {
    COMMON_ROWS,
    BR_STRING(T, ca_file, NULL, "file with the CA certificates that verify the server, in PEM"),
    BR_SECRET(T, ca_pem, "CA certificates in PEM, instead of ca_file"),
    BR_BOOL(T, include_system_ca_certs_pool, false, "also trust the CA certificates of the system"),
    BR_STRING(T, server_name_override, NULL,
              "server name to send (SNI) and to verify in the server's certificate"),
    BR_BOOL(T, insecure, false, "connect without TLS"),
    BR_BOOL(T, insecure_skip_verify, false, "do not verify the server's certificate"),
    BR_OPT_END,
};
/* clang-format on */
