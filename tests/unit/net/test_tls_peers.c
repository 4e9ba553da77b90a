/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/mem.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

/* Peers that may connect, and how: certificates, versions, ciphers and curves. */

/* --- Certificates ----------------------------------------------------------------------------- */

static void test_server_names(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *name;
        const char *error; /* NULL: accepted */
    } rows[] = {
        {"server", "localhost", NULL},
        {"server", "LOCALHOST", NULL},
        {"server", "127.0.0.1", NULL},
        {"server", "a.example.org", NULL},
        {"server", "a.b.example.org", "not valid for a.b.example.org"},
        {"server", "example.org", "not valid for example.org"},
        {"server", "server", "not valid for server"}, /* the CN does not count as a name */
        {"server", "127.0.0.2", "not valid for this address"},
        {"server", "::1", "not valid for this address"},
        {"cn.only", "cn.only", "not valid for cn.only"},
        {"other_server", "localhost", "not accepted"},
        {"old_server", "localhost", "expired"},
        {"client", "localhost", "not accepted"}, /* extendedKeyUsage is clientAuth */
        /* the server sends its certificate without the issuer's certificate */
        {"leaf", "localhost", "not accepted"},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config server = {.cert_file = tls_path2(rows[i].cert, ".pem"),
                                       .key_file = tls_path2(rows[i].cert, ".key")};
        struct br_tls_config client = tls_client_config();
        struct tls_pair p = tls_pair_of(&client, &server, rows[i].name);
        tls_talk(&p, SIZE_MAX);
        if (!rows[i].error) {
            assert_tls_ready(&p);
        } else {
            assert_int_equal(p.client.rc, BR_EPROTO);
            assert_tls_says(&p.client.err, rows[i].error);
            assert_false(br_tls_ready(p.client.tls));
            /* the server fails because of the client's alert */
            assert_int_equal(p.server.rc, BR_EPROTO);
            assert_tls_says(&p.server.err, "alert");
        }
        tls_pair_free(&p);
    }
}

static void test_chain(void **state)
{
    (void)state;
    struct br_tls_config server = {.cert_file = tls_path("chain.pem"),
                                   .key_file = tls_path("leaf.key")};
    struct br_tls_config client = tls_client_config();
    struct tls_pair p = tls_pair_of(&client, &server, "localhost");
    tls_talk(&p, SIZE_MAX);
    assert_tls_ready(&p);
    tls_pair_free(&p);
    /* Like Go and thus the Collector, the client trusts every certificate in the file, even one
     * that is not a root. */
    server.cert_file = tls_path("leaf.pem");
    client.ca_file = tls_path("leaf.pem");
    p = tls_pair_of(&client, &server, "localhost");
    tls_talk(&p, SIZE_MAX);
    assert_tls_ready(&p);
    tls_pair_free(&p);
}

static void test_name_override(void **state)
{
    (void)state;
    struct br_tls_config server = tls_server_config(), client = tls_client_config();
    client.server_name_override = "localhost";
    struct tls_pair p = tls_pair_of(&client, &server, "10.1.2.3");
    tls_talk(&p, SIZE_MAX);
    assert_tls_ready(&p);
    tls_disconnect(&p);
    tls_connect(&p, NULL);
    tls_talk(&p, SIZE_MAX);
    assert_tls_ready(&p);
    tls_pair_free(&p);
}

static void test_client_needs_a_name(void **state)
{
    (void)state;
    struct br_tls_config client = tls_client_config();
    struct br_tls_context *ctx = tls_context(&client, false, NULL);
    assert_null(br_tls_new(ctx, NULL));
    assert_null(br_tls_new(ctx, ""));
    char longer[257];
    memset(longer, 'a', 256);
    longer[256] = '\0';
    assert_null(br_tls_new(ctx, longer));
    br_tls_context_free(ctx);
}

static void test_skip_verify(void **state)
{
    (void)state;
    static const char *const certs[] = {"other_server", "old_server", "client"};
    static const char *const names[] = {"localhost", "example.net", "10.0.0.1", NULL};
    for (size_t i = 0; i < BR_COUNT(certs); i++) {
        for (size_t j = 0; j < BR_COUNT(names); j++) {
            struct br_tls_config server = {.cert_file = tls_path2(certs[i], ".pem"),
                                           .key_file = tls_path2(certs[i], ".key")};
            struct br_tls_config client = {.insecure_skip_verify = true};
            struct tls_pair p = tls_pair_of(&client, &server, names[j]);
            tls_talk(&p, SIZE_MAX);
            assert_tls_ready(&p);
            tls_pair_free(&p);
        }
    }
}

/* The test's CA is not among the system's certificates. If both are configured, the test's CA is
 * trusted in addition. */
static void test_system_certificates(void **state)
{
    (void)state;
    struct br_tls_config server = tls_server_config(), client = {0};
    struct tls_pair p = tls_pair_of(&client, &server, "localhost");
    tls_talk(&p, SIZE_MAX);
    assert_int_equal(p.client.rc, BR_EPROTO);
    assert_tls_says(&p.client.err, "not accepted");
    tls_pair_free(&p);
    client = tls_client_config();
    client.include_system_ca_certs_pool = true;
    p = tls_pair_of(&client, &server, "localhost");
    tls_talk(&p, SIZE_MAX);
    assert_tls_ready(&p);
    tls_pair_free(&p);
}

static void test_inline_pem(void **state)
{
    (void)state;
    char *cert = tls_read("server.pem"), *key = tls_read("server.key"), *ca = tls_read("ca.pem");
    struct br_tls_config server = {.cert_pem = {cert}, .key_pem = {key}};
    struct br_tls_config client = {.ca_pem = {ca}};
    struct tls_pair p = tls_pair_of(&client, &server, "localhost");
    tls_talk(&p, SIZE_MAX);
    assert_tls_ready(&p);
    tls_pair_free(&p);
    free(cert);
    free(key);
    free(ca);
}

static void test_client_certificates(void **state)
{
    (void)state;
    static const struct {
        const char *cert; /* NULL: none */
        const char *error;
    } rows[] = {
        {"client", NULL},
        {NULL, "no certificate"},
        {"stranger", "not accepted"},
        {"self_made", "not accepted"},
        {"expired", "expired"},
        {"early", "not yet valid"},
        {"wrong_use", "purpose"},
    };
    static const char *const versions[] = {"1.2", "1.3"};
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        for (size_t v = 0; v < 2; v++) {
            struct br_tls_config server = tls_server_config(), client = tls_client_config();
            server.client_ca_file = tls_path("ca.pem");
            client.max_version = client.min_version = versions[v];
            if (rows[i].cert) {
                client.cert_file = tls_path2(rows[i].cert, ".pem");
                client.key_file = tls_path2(rows[i].cert, ".key");
            }
            struct tls_pair p = tls_pair_of(&client, &server, "localhost");
            tls_talk(&p, SIZE_MAX);
            if (!rows[i].error) {
                assert_tls_ready(&p);
                tls_exchange(&p, 10000, 100, 1000);
            } else {
                assert_int_equal(p.server.rc, BR_EPROTO);
                assert_tls_says(&p.server.err, rows[i].error);
                assert_false(br_tls_ready(p.server.tls));
                assert_int_equal(p.client.rc, BR_EPROTO);
                assert_tls_says(&p.client.err, "alert");
            }
            tls_pair_free(&p);
        }
    }
}

/* --- Versions, ciphers, curves ---------------------------------------------------------------- */

static void test_old_versions_are_refused(void **state)
{
    (void)state;
    static const int versions[] = {TLS1_VERSION, TLS1_1_VERSION};
    for (size_t i = 0; i < BR_COUNT(versions); i++) {
        struct br_tls_config config = tls_server_config();
        struct tls_end server = tls_server_end(&config);
        struct tls_raw client = tls_raw_client(versions[i], "ALL:@SECLEVEL=0");
        assert_int_not_equal(tls_raw_handshake(&client, &server), 1);
        assert_int_equal(server.rc, BR_EPROTO);
        assert_tls_says(&server.err, "protocol");
        assert_false(br_tls_ready(server.tls));
        tls_raw_free(&client);
        tls_end_free(&server);
    }
}

/* Suites that a server accepts by default, and with one old suite named. The certificates are
 * ECDSA. */
static void test_ciphers(void **state)
{
    (void)state;
    static const char *cbc = "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA";
    static const struct {
        const char *offer;
        bool named, taken;
    } rows[] = {
        {"ECDHE-ECDSA-AES128-GCM-SHA256", false, true},
        {"ECDHE-ECDSA-AES256-GCM-SHA384", false, true},
        {"ECDHE-ECDSA-CHACHA20-POLY1305", false, true},
        {"ECDHE-ECDSA-AES128-SHA", false, false},
        {"ECDHE-ECDSA-AES256-SHA384", false, false},
        {"ECDHE-ECDSA-AES128-CCM", false, false},
        {"ECDHE-ECDSA-AES128-SHA", true, true},
        {"ECDHE-ECDSA-AES128-GCM-SHA256", true, false},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = tls_server_config();
        if (rows[i].named)
            config.cipher_suites = (struct br_strings){&cbc, 1};
        struct tls_end server = tls_server_end(&config);
        struct tls_raw client = tls_raw_client(TLS1_2_VERSION, rows[i].offer);
        assert_int_equal(tls_raw_handshake(&client, &server) == 1, rows[i].taken);
        assert_int_equal(br_tls_ready(server.tls), rows[i].taken);
        tls_raw_free(&client);
        tls_end_free(&server);
    }
}

static void test_server_order_wins(void **state)
{
    (void)state;
    struct br_tls_config config = tls_server_config();
    struct tls_end server = tls_server_end(&config);
    struct tls_raw client = tls_raw_client(TLS1_2_VERSION, "ECDHE-ECDSA-CHACHA20-POLY1305:"
                                                           "ECDHE-ECDSA-AES128-GCM-SHA256");
    assert_int_equal(tls_raw_handshake(&client, &server), 1);
    assert_string_equal(SSL_get_cipher_name(client.ssl), "ECDHE-ECDSA-AES128-GCM-SHA256");
    tls_raw_free(&client);
    tls_end_free(&server);
}

static void test_server_order_wins_in_tls13(void **state)
{
    (void)state;
    struct br_tls_config config = tls_server_config();
    struct tls_end server = tls_server_end(&config);
    struct tls_raw client =
        tls_raw_client(TLS1_3_VERSION, "ALL"); /* the order is OpenSSL's own, with AES-256 first */
    assert_int_equal(tls_raw_handshake(&client, &server), 1);
    assert_string_equal(SSL_get_cipher_name(client.ssl), "TLS_AES_128_GCM_SHA256");
    tls_raw_free(&client);
    tls_end_free(&server);
}

static void test_no_renegotiation(void **state)
{
    (void)state;
    struct br_tls_config config = tls_server_config();
    struct tls_end server = tls_server_end(&config);
    struct tls_raw client = tls_raw_client(TLS1_2_VERSION, "ALL");
    assert_int_equal(tls_raw_handshake(&client, &server), 1);
    assert_int_equal(SSL_renegotiate(client.ssl), 1);
    assert_int_not_equal(tls_raw_handshake(&client, &server), 1);
    tls_raw_free(&client);
    tls_end_free(&server);
}

/* RFC 8446 section 4.6.3: if requested, the other side updates its keys before it writes. */
static void test_key_update(void **state)
{
    (void)state;
    struct br_tls_config config = tls_server_config();
    struct tls_end server = tls_server_end(&config);
    struct tls_raw client = tls_raw_client(TLS1_3_VERSION, "ALL");
    assert_int_equal(tls_raw_handshake(&client, &server), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(SSL_key_update(client.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_write(client.ssl, "ping", 4), 4);
        tls_raw_swap(&client, &server);
        assert_int_equal(server.rc, 0);
        tls_send_bytes(&server, 40000, 16384);
        tls_raw_swap(&client, &server);
        uint8_t got[16384];
        size_t total = 0;
        int n;
        while ((n = SSL_read(client.ssl, got, sizeof got)) > 0) {
            for (int j = 0; j < n; j++)
                assert_int_equal(got[j], tls_byte_at(total + (size_t)j));
            total += (size_t)n;
        }
        assert_int_equal(total, 40000);
    }
    assert_int_equal(server.got.len, 12);
    tls_raw_free(&client);
    tls_end_free(&server);
}

static void test_sessions_resume(void **state)
{
    (void)state;
    struct br_tls_config config = tls_server_config();
    config.client_ca_file = tls_path("ca.pem");
    struct tls_end server = tls_server_end(&config);
    SSL_SESSION *session = NULL;
    for (int round = 0; round < 2; round++) {
        struct tls_raw client = tls_raw_client(TLS1_3_VERSION, "ALL");
        SSL_use_certificate_file(client.ssl, tls_path("client.pem"), SSL_FILETYPE_PEM);
        SSL_use_PrivateKey_file(client.ssl, tls_path("client.key"), SSL_FILETYPE_PEM);
        if (session)
            assert_int_equal(SSL_set_session(client.ssl, session), 1);
        assert_int_equal(tls_raw_handshake(&client, &server), 1);
        tls_send_bytes(&server, 1, 1);
        tls_raw_swap(&client, &server);
        char c;
        /* also reads the tickets before the byte */
        assert_int_equal(SSL_read(client.ssl, &c, 1), 1);
        assert_int_equal(SSL_session_reused(client.ssl), round);
        SSL_SESSION_free(session);
        session = SSL_get1_session(client.ssl);
        /* otherwise OpenSSL does not reuse the session */
        SSL_set_shutdown(client.ssl, SSL_SENT_SHUTDOWN);
        tls_raw_free(&client);
        br_tls_free(server.tls);
        server.tls = br_tls_new(server.ctx, NULL);
    }
    SSL_SESSION_free(session);
    tls_end_free(&server);
}

static void test_curves(void **state)
{
    (void)state;
    static const struct {
        const char *server;
        const char *client; /* in OpenSSL's notation */
        bool match;
    } rows[] = {
        {"P256", "P-256", true},    {"P384", "P-384", true},   {"P521", "P-521", true},
        {"X25519", "X25519", true}, {"P256", "X25519", false}, {"X25519", "P-384", false},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = tls_server_config();
        const char *names[] = {"X25519MLKEM768", rows[i].server};
        config.curve_preferences = (struct br_strings){names, 2};
        struct tls_end server = tls_server_end(&config);
        struct tls_raw client = tls_raw_client(TLS1_3_VERSION, "ALL");
        assert_int_equal(SSL_set1_groups_list(client.ssl, rows[i].client), 1);
        assert_int_equal(tls_raw_handshake(&client, &server) == 1, rows[i].match);
        tls_raw_free(&client);
        tls_end_free(&server);
    }
}

SUITE(tls_peers)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_names),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_name_override),
        cmocka_unit_test(test_client_needs_a_name),
        cmocka_unit_test(test_skip_verify),
        cmocka_unit_test(test_system_certificates),
        cmocka_unit_test(test_inline_pem),
        cmocka_unit_test(test_client_certificates),
        cmocka_unit_test(test_old_versions_are_refused),
        cmocka_unit_test(test_ciphers),
        cmocka_unit_test(test_server_order_wins),
        cmocka_unit_test(test_server_order_wins_in_tls13),
        cmocka_unit_test(test_no_renegotiation),
        cmocka_unit_test(test_key_update),
        cmocka_unit_test(test_sessions_resume),
        cmocka_unit_test(test_curves),
    };
    return RUN(tests, tls_setup, tls_teardown);
}
