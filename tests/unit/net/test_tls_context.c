/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

/* TLS options, and files that change while a server runs. */

/* --- Config ---------------------------------------------------------------------------------- */

static void assert_refused(const struct br_tls_config *config, bool server, int code,
                           const char *words, const char *more)
{
    struct br_err err = {0};
    struct br_tls_context *ctx = NULL;
    int rc = br_tls_context_new(config, server, NULL, &ctx, &err);
    assert_null(ctx);
    if (rc != code)
        fail_msg("%d, not %d, with \"%s\"; expected \"%s\"", rc, code, err.text, words);
    assert_int_equal(err.code, code);
    assert_tls_says(&err, words);
    assert_tls_says(&err, more);
}

static void test_bad_files(void **state)
{
    (void)state;
    const struct {
        const char *cert, *key;
        int code;
        const char *words, *more;
    } rows[] = {
        {"nowhere.pem", "server.key", BR_EIO, "cert_file ",
         "nowhere.pem cannot be opened: No such"},
        {"server.pem", "nowhere.key", BR_EIO, "key_file ", "nowhere.key cannot be opened: No such"},
        {".", "server.key", BR_EIO, "cert_file ", "cannot be read: Is a directory"},
        {"empty.pem", "server.key", BR_EINVAL, "empty.pem does not contain a cert",
         "BEGIN CERTIFICATE"},
        {"text.pem", "server.key", BR_EINVAL, "text.pem does not contain a cert",
         "BEGIN CERTIFICATE"},
        {"server.key", "server.key", BR_EINVAL, "server.key does not contain a cert",
         "BEGIN CERTIFICATE"},
        {"damaged.pem", "server.key", BR_EINVAL, "damaged.pem", "certificate 1 is damaged"},
        {"server.pem", "server.pem", BR_EINVAL, "server.pem does not contain a private key",
         "PRIVATE KEY"},
        {"server.pem", "text.pem", BR_EINVAL, "text.pem does not contain a private key",
         "PRIVATE KEY"},
        {"server.pem", "encrypted.key", BR_EINVAL, "encrypted.key is encrypted", "passphrase"},
        {"server.pem", "client.key", BR_EINVAL, "client.key is not the key", "server.pem"},
        {"reversed.pem", "leaf.key", BR_EINVAL, "leaf.key is not the key", "reversed.pem"},
        {"server.pem", NULL, BR_EINVAL, "server.pem is set without a key", "key_file"},
        {NULL, "server.key", BR_EINVAL, "server.key is set without a certificate", "cert_file"},
        {NULL, NULL, BR_EINVAL, "cert_file", "key_file"},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = {0};
        if (rows[i].cert)
            config.cert_file = tls_path(rows[i].cert);
        if (rows[i].key)
            config.key_file = tls_path(rows[i].key);
        assert_refused(&config, true, rows[i].code, rows[i].words, rows[i].more);
        if (rows[i].cert || rows[i].key)
            assert_refused(&config, false, rows[i].code, rows[i].words, rows[i].more);
    }
}

static void test_bad_ca_files(void **state)
{
    (void)state;
    struct br_tls_config server = tls_server_config(),
                         client = {.ca_file = tls_path("nowhere.pem")};
    assert_refused(&client, false, BR_EIO, "ca_file ", "nowhere.pem");
    client.ca_file = tls_path("ca.key");
    assert_refused(&client, false, BR_EINVAL, "ca_file ", "does not contain a certificate");
    client.ca_pem.text = "x";
    assert_refused(&client, false, BR_EINVAL, "ca_file and ca_pem", "one of them");
    client.ca_file = NULL;
    assert_refused(&client, false, BR_EINVAL, "ca_pem does not contain", "BEGIN CERTIFICATE");
    server.client_ca_file = tls_path("empty.pem");
    assert_refused(&server, true, BR_EINVAL, "client_ca_file ", "empty.pem does not contain");
    server = tls_server_config();
    server.key_pem.text = "secret";
    assert_refused(&server, true, BR_EINVAL, "key_file and key_pem", "one of them");
}

static void test_bad_policy(void **state)
{
    (void)state;
    const struct {
        const char *min, *max, *cipher, *curve;
        const char *words, *more;
    } rows[] = {
        {NULL, "1.1", NULL, NULL, "max_version is \"1.1\"", "\"1.2\" or \"1.3\""},
        {NULL, "1.0", NULL, NULL, "max_version is \"1.0\"", "\"1.2\" or \"1.3\""},
        {"TLS1.2", NULL, NULL, NULL, "min_version is \"TLS1.2\"", "\"1.2\" or \"1.3\""},
        {"1.3", "1.2", NULL, NULL, "min_version", "greater than max_version"},
        {NULL, NULL, "TLS_NO_SUCH", NULL, "cipher_suites", "TLS_NO_SUCH"},
        {NULL, NULL, "ALL", NULL, "cipher_suites", "\"ALL\""},
        {NULL, NULL, "TLS_RSA_WITH_AES_128_GCM_SHA256", NULL, "is insecure", "include_insecure"},
        {NULL, NULL, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", NULL, "is insecure",
         "include_insecure"},
        {NULL, NULL, "TLS_DH_anon_WITH_AES_128_GCM_SHA256", NULL, "is insecure",
         "include_insecure"},
        {NULL, "1.2", "TLS_AES_128_GCM_SHA256", NULL, "no TLS 1.2 suite", "max_version"},
        {NULL, NULL, NULL, "P-999", "curve_preferences", "\"P-999\""},
        {NULL, NULL, NULL, "X25519:P-256", "curve_preferences", "X25519:P-256"},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = tls_server_config();
        const char *cipher = rows[i].cipher, *curve = rows[i].curve;
        config.min_version = rows[i].min;
        config.max_version = rows[i].max;
        config.cipher_suites = (struct br_strings){&cipher, cipher ? 1 : 0};
        config.curve_preferences = (struct br_strings){&curve, curve ? 1 : 0};
        assert_refused(&config, true, BR_EINVAL, rows[i].words, rows[i].more);
    }
}

/* The least version is 1.2, even if a config names an older one. */
static void test_least_version(void **state)
{
    (void)state;
    static const struct {
        const char *least;
        int offer;
        bool taken;
    } rows[] = {{"1.0", TLS1_VERSION, false},
                {"1.0", TLS1_1_VERSION, false},
                {"1.0", TLS1_2_VERSION, true},
                {"1.1", TLS1_1_VERSION, false},
                {"1.1", TLS1_2_VERSION, true}};
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = tls_server_config();
        config.min_version = rows[i].least;
        struct tls_end server = tls_server_end(&config);
        struct tls_raw client = tls_raw_client(rows[i].offer, "ALL:@SECLEVEL=0");
        assert_int_equal(tls_raw_handshake(&client, &server) == 1, rows[i].taken);
        tls_raw_free(&client);
        tls_end_free(&server);
    }
}

static void test_insecure_ciphers_on_demand(void **state)
{
    (void)state;
    const char *names[] = {"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"};
    struct br_tls_config config = tls_server_config();
    config.cipher_suites = (struct br_strings){names, 1};
    config.include_insecure_cipher_suites = true;
    struct tls_end server = tls_server_end(&config);
    struct tls_raw client = tls_raw_client(TLS1_2_VERSION, "ECDHE-ECDSA-AES128-SHA256");
    assert_int_equal(tls_raw_handshake(&client, &server), 1);
    tls_raw_free(&client);
    tls_end_free(&server);
}

/* If the list only contains suites of TLS 1.3, there is no suite for TLS 1.2. */
static void test_tls13_names_alone(void **state)
{
    (void)state;
    const char *names[] = {"TLS_AES_128_GCM_SHA256"};
    struct br_tls_config server = tls_server_config(), client = tls_client_config();
    server.cipher_suites = (struct br_strings){names, 1};
    struct tls_pair p = tls_pair_of(&client, &server, "localhost");
    tls_talk(&p, SIZE_MAX);
    assert_tls_ready(&p);
    tls_pair_free(&p);
    client.max_version = "1.2";
    p = tls_pair_of(&client, &server, "localhost");
    tls_talk(&p, SIZE_MAX);
    assert_int_equal(p.server.rc, BR_EPROTO);
    tls_pair_free(&p);
}

static const struct br_option *row(const struct br_option *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0)
        table++;
    return table->name ? table : NULL;
}

/* The options of the Collector's configtls v0.159: Config, ServerConfig and ClientConfig. */
static void test_option_tables(void **state)
{
    (void)state;
    static const char *const common[] = {"ca_file",
                                         "ca_pem",
                                         "cert_file",
                                         "cert_pem",
                                         "key_file",
                                         "key_pem",
                                         "min_version",
                                         "max_version",
                                         "cipher_suites",
                                         "include_insecure_cipher_suites",
                                         "curve_preferences",
                                         "reload_interval",
                                         "include_system_ca_certs_pool",
                                         "tpm"};
    for (size_t i = 0; i < BR_COUNT(common); i++) {
        assert_non_null(row(br_tls_server_options, common[i]));
        assert_non_null(row(br_tls_client_options, common[i]));
    }
    assert_non_null(row(br_tls_server_options, "client_ca_file"));
    assert_non_null(row(br_tls_server_options, "client_ca_file_reload"));
    assert_null(row(br_tls_server_options, "insecure"));
    assert_non_null(row(br_tls_client_options, "insecure"));
    assert_non_null(row(br_tls_client_options, "insecure_skip_verify"));
    assert_non_null(row(br_tls_client_options, "server_name_override"));
    assert_null(row(br_tls_client_options, "client_ca_file"));
    assert_string_equal(row(br_tls_server_options, "min_version")->def.string, "1.2");
    assert_int_equal(row(br_tls_server_options, "key_pem")->kind, BR_OPT_SECRET);
}

/* --- Reload ---------------------------------------------------------------------------------- */

static void install(const char *name)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s.key", name);
    tls_copy(file, "live.key");
    (void)snprintf(file, sizeof file, "%s.pem", name);
    tls_copy(file, "live.pem");
}

static bool connects(struct tls_pair *p)
{
    br_tls_context_reload(p->server.ctx, false);
    tls_connect(p, "localhost");
    tls_talk(p, SIZE_MAX);
    bool ready = br_tls_ready(p->client.tls) && br_tls_ready(p->server.tls);
    tls_disconnect(p);
    return ready;
}

static void test_reload(void **state)
{
    (void)state;
    install("server");
    struct br_tls_config server = {
        .cert_file = tls_path("live.pem"), .key_file = tls_path("live.key"), .reload_interval = 1};
    struct br_tls_config ours = tls_client_config(), theirs = {.ca_file = tls_path("other_ca.pem")};
    struct tls_pair old = tls_pair_of(&ours, &server, "localhost");
    tls_talk(&old, SIZE_MAX);
    assert_tls_ready(&old);
    struct tls_pair fresh = {0};
    fresh.server.ctx = old.server.ctx;
    fresh.client.ctx = tls_context(&theirs, false, tls_both_protocols);
    struct br_err err = {0};
    assert_false(connects(&fresh));

    install("other_server");
    assert_true(connects(&fresh));
    assert_false(br_tls_context_reload_error(fresh.server.ctx, &err));
    tls_exchange(&old, 50000, 1000, 1000); /* existing connections stay open */

    tls_write("live.pem", "half a certif");
    assert_true(connects(&fresh));
    assert_true(br_tls_context_reload_error(fresh.server.ctx, &err));
    assert_tls_says(&err, "live.pem does not contain a certificate");
    assert_false(br_tls_context_reload_error(fresh.server.ctx, &err));
    unlink(tls_path("live.pem"));
    assert_true(connects(&fresh));
    assert_true(br_tls_context_reload_error(fresh.server.ctx, &err));
    assert_tls_says(&err, "cannot be opened");
    tls_copy("server.key", "live.key");
    tls_copy("other_server.pem", "live.pem");
    assert_true(connects(&fresh));
    assert_true(br_tls_context_reload_error(fresh.server.ctx, &err));
    assert_tls_says(&err, "live.key is not the key");

    install("server");
    assert_false(connects(&fresh));
    assert_false(br_tls_context_reload_error(fresh.server.ctx, &err));
    br_tls_context_free(fresh.client.ctx);
    tls_pair_free(&old);
}

static void test_no_reload_unless_asked(void **state)
{
    (void)state;
    install("server");
    struct br_tls_config server = {.cert_file = tls_path("live.pem"),
                                   .key_file = tls_path("live.key")};
    struct br_tls_config client = tls_client_config();
    struct tls_pair p = tls_pair_of(&client, &server, "localhost");
    tls_disconnect(&p);
    install("other_server");
    assert_true(connects(&p));
    tls_pair_free(&p);
}

/* Files are checked at these intervals, in milliseconds. */
static void test_reload_intervals(void **state)
{
    (void)state;
    static const struct {
        uint64_t interval_ns;
        bool client_ca;
        uint64_t expected;
    } cases[] = {{0, false, 0},
                 {0, true, 1000},
                 {3600ull * 1000000000, false, 3600000},
                 {3600ull * 1000000000, true, 3600000},
                 {1, false, 1}};
    install("server");
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_tls_config server = {.cert_file = tls_path("live.pem"),
                                       .key_file = tls_path("live.key"),
                                       .reload_interval = cases[i].interval_ns,
                                       .client_ca_file_reload = cases[i].client_ca};
        struct br_tls_context *ctx = tls_context(&server, true, tls_both_protocols);
        assert_int_equal(br_tls_context_interval_ms(ctx), cases[i].expected);
        br_tls_context_free(ctx);
    }
}

/* The client CA is reloaded only if its option is set, and independently of the certificate. */
static void test_client_ca_reload(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        install("server");
        tls_copy("ca.pem", "live_ca.pem");
        struct br_tls_config server = {.cert_file = tls_path("live.pem"),
                                       .key_file = tls_path("live.key"),
                                       .client_ca_file = tls_path("live_ca.pem"),
                                       .reload_interval = 1,
                                       .client_ca_file_reload = asked == 1};
        struct br_tls_config client = tls_client_config();
        client.cert_file = tls_path("stranger.pem");
        client.key_file = tls_path("stranger.key");
        struct tls_pair p = tls_pair_of(&client, &server, "localhost");
        tls_disconnect(&p);
        assert_false(connects(&p));
        tls_copy("other_ca.pem", "live_ca.pem");
        assert_int_equal(connects(&p), asked);
        struct br_err err = {0};
        tls_write("live_ca.pem", "bad");
        tls_write("live.pem", "bad as well");
        assert_int_equal(connects(&p), asked);
        assert_true(br_tls_context_reload_error(p.server.ctx, &err));
        assert_tls_says(&err, asked ? "live_ca.pem" : "live.pem");
        tls_pair_free(&p);
    }
}

static void *connect_often(void *arg)
{
    struct br_tls_context *ctx = arg;
    for (int i = 0; i < 300; i++) {
        struct br_tls *t = br_tls_new(ctx, NULL);
        if (!t)
            return arg;
        struct br_err err;
        (void)br_tls_context_reload_error(ctx, &err);
        br_tls_free(t);
    }
    return NULL;
}

static void test_reload_among_threads(void **state)
{
    (void)state;
    install("server");
    struct br_tls_config server = {
        .cert_file = tls_path("live.pem"), .key_file = tls_path("live.key"), .reload_interval = 1};
    struct br_tls_context *ctx = tls_context(&server, true, tls_both_protocols);
    pthread_t threads[3];
    for (size_t i = 0; i < BR_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, connect_often, ctx), 0);
    for (int i = 0; i < 50; i++) {
        install(i % 2 ? "server" : "other_server");
        br_tls_context_reload(ctx, false);
    }
    for (size_t i = 0; i < BR_COUNT(threads); i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    br_tls_context_free(ctx);
}

SUITE(tls_context)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_ca_files),
        cmocka_unit_test(test_bad_policy),
        cmocka_unit_test(test_least_version),
        cmocka_unit_test(test_insecure_ciphers_on_demand),
        cmocka_unit_test(test_tls13_names_alone),
        cmocka_unit_test(test_option_tables),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_no_reload_unless_asked),
        cmocka_unit_test(test_reload_intervals),
        cmocka_unit_test(test_client_ca_reload),
        cmocka_unit_test(test_reload_among_threads),
    };
    return RUN(tests, tls_setup, tls_teardown);
}
