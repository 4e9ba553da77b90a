/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#define T struct br_tls_config

/* clang-format off */
#define COMMON_ROWS                                                                                \
    BR_STRING(T, cert_file, NULL, "our certificate and its chain, PEM"),                           \
    BR_SECRET(T, cert_pem, "the same, inline"),                                                    \
    BR_STRING(T, key_file, NULL, "the certificate's private key, PEM, not encrypted"),             \
    BR_SECRET(T, key_pem, "the same, inline"),                                                     \
    BR_STRING(T, min_version, "1.2", "lowest TLS version, 1.2 or 1.3"),                            \
    BR_STRING(T, max_version, NULL, "highest TLS version; empty is the newest there is"),          \
    BR_STRINGS(T, cipher_suites, "TLS 1.2 cipher suites; empty is ECDHE with AEAD"),               \
    BR_BOOL(T, include_insecure_cipher_suites, false, "let cipher_suites name insecure ones"),     \
    BR_STRINGS(T, curve_preferences, "X25519, P256, P384, P521; empty is OpenSSL's choice"),       \
    BR_DURATION(T, reload_interval, "0", "how often to look for new files; 0 is never"),           \
    BR_IGNORED("tpm", "keys in a TPM are not supported")

const struct br_option br_tls_server_options[] = {
    COMMON_ROWS,
    BR_STRING(T, client_ca_file, NULL, "ask clients for certificates that come from these, PEM"),
    BR_BOOL(T, client_ca_file_reload, false, "take a changed client_ca_file without a restart"),
    BR_IGNORED("ca_file", "a server checks its clients by client_ca_file"),
    BR_IGNORED("ca_pem", "a server checks its clients by client_ca_file"),
    BR_IGNORED("include_system_ca_certs_pool", "a server checks its clients by client_ca_file"),
    BR_OPT_END,
};

const struct br_option br_tls_client_options[] = {
    COMMON_ROWS,
    BR_STRING(T, ca_file, NULL, "the server's certificate has to come from these, PEM"),
    BR_SECRET(T, ca_pem, "the same, inline"),
    BR_BOOL(T, include_system_ca_certs_pool, false, "trust the system's certificates too"),
    BR_STRING(T, server_name_override, NULL, "the name to ask for and to verify"),
    BR_BOOL(T, insecure, false, "no TLS"),
    BR_BOOL(T, insecure_skip_verify, false, "TLS without checking who the server is"),
    BR_OPT_END,
};
/* clang-format on */
