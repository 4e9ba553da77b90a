/* SPDX-License-Identifier: Apache-2.0 */
/* TLS on real sockets: both ends ours, and what goes wrong between them. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/ssl.h>

#include "base/err.h"
#include "base/mem.h"
#include "support/net_rig.h"
#include "support/tls_ends.h"

struct fixture {
    struct net_rig *rig;
    struct net_service service;
    struct br_tls_config server_tls, client_tls;
    struct br_server *server;
    struct br_client *client;
    char url[64];
};

static void open_with(struct fixture *f, void **state)
{
    *f = (struct fixture){
        .rig = *state, .server_tls = tls_server_config(), .client_tls = tls_client_config()};
    net_service_init(&f->service);
}

static void start(struct fixture *f, bool grpc)
{
    const struct br_server_config server = {.tls = &f->server_tls,
                                            .handshake_timeout_ms = 300,
                                            .request_timeout_ms = 2000,
                                            .linger_timeout_ms = 100};
    f->server = net_serve(f->rig, &f->service, &server);
    f->service.grpc = grpc;
    (void)snprintf(f->url, sizeof f->url, "https://127.0.0.1:%u", br_server_port(f->server));
    if (!f->client_tls.server_name_override)
        f->client_tls.server_name_override = "localhost";
    const struct br_client_config client = {
        .endpoint = f->url, .grpc = grpc, .tls = &f->client_tls, .connect_timeout_ms = 3000};
    f->client = net_connect(f->rig, &client);
}

static void finish(struct fixture *f)
{
    br_client_free(f->client);
    br_server_free(f->server);
    assert_int_equal(net_connections(f->rig), 0);
}

static void bodies_of_all_sizes(void **state)
{
    static const size_t sizes[] = {1, 16000, 16384, 65536, 300000, 5000000};
    for (int grpc = 0; grpc < 2; grpc++) {
        struct fixture f;
        open_with(&f, state);
        start(&f, grpc);
        for (size_t i = 0; i < BR_COUNT(sizes); i++) {
            struct net_call c;
            f.service.body_bytes = 0;
            f.service.answer_bytes = sizes[i] < 4000000 ? sizes[i] : 0;
            net_call_init(f.rig, &c, grpc, sizes[i]);
            net_call(f.rig, f.client, &c);
            assert_int_equal(c.error, 0);
            assert_int_equal(f.service.body_bytes, sizes[i]);
            assert_int_equal(c.response_bytes, f.service.answer_bytes ? f.service.answer_bytes : 3);
            net_call_release(&c);
        }
        assert_int_equal(net_connections(f.rig), 1);
        finish(&f);
    }
}

static void fails(struct fixture *f, bool grpc, const char *words)
{
    struct net_call c;
    start(f, grpc);
    net_call_init(f->rig, &c, grpc, 10);
    net_call(f->rig, f->client, &c);
    assert_int_not_equal(c.error, 0);
    if (!strstr(c.error_text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, c.error_text);
    assert_int_equal(f->service.n_begun, 0);
    NET_UNTIL(f->rig, net_connections(f->rig) == 0);
    net_call_release(&c);
    finish(f);
}

static void wrong_certificates(void **state)
{
    struct fixture f;
    for (int grpc = 0; grpc < 2; grpc++) {
        open_with(&f, state);
        f.client_tls.ca_file = tls_path("other_ca.pem");
        fails(&f, grpc, "certificate is not accepted");
        open_with(&f, state);
        f.client_tls.server_name_override = "elsewhere.example";
        fails(&f, grpc, "certificate is not for elsewhere.example");
        open_with(&f, state);
        f.server_tls.cert_file = tls_path("client.pem");
        f.server_tls.key_file = tls_path("client.key");
        fails(&f, grpc, "certificate is not accepted: unsuitable certificate purpose");
    }
}

/* With TLS 1.3 a client has its handshake done before the server says no. */
static void client_certificates(void **state)
{
    static const char *const bad[] = {NULL, "stranger", "expired", "wrong_use"};
    for (size_t i = 0; i <= BR_COUNT(bad); i++) {
        struct fixture f;
        struct net_call c;
        const char *name = i == BR_COUNT(bad) ? "client" : bad[i];
        open_with(&f, state);
        f.server_tls.client_ca_file = tls_path("ca.pem");
        f.client_tls.cert_file = name ? tls_path2(name, ".pem") : NULL;
        f.client_tls.key_file = name ? tls_path2(name, ".key") : NULL;
        start(&f, false);
        net_call_init(f.rig, &c, false, 10);
        net_call(f.rig, f.client, &c);
        if (i == BR_COUNT(bad))
            assert_int_equal(c.http_status, 200);
        else
            assert_int_not_equal(c.error, 0);
        assert_int_equal(f.service.n_begun, i == BR_COUNT(bad));
        net_call_release(&c);
        finish(&f);
    }
}

static void one_side_without_tls(void **state)
{
    struct fixture f;
    struct net_call c;
    char url[64];
    open_with(&f, state);
    start(&f, false);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", br_server_port(f.server));
    for (int grpc = 0; grpc < 2; grpc++) { /* a client that does not know it */
        struct br_client *plain =
            net_connect(f.rig, &(struct br_client_config){.endpoint = url, .grpc = grpc});
        net_call_init(f.rig, &c, grpc, 10);
        net_call(f.rig, plain, &c);
        assert_int_not_equal(c.error, 0);
        net_call_release(&c);
        br_client_free(plain);
    }
    finish(&f);

    struct net_service service; /* a server that does not */
    net_service_init(&service);
    struct br_server *server = net_serve(f.rig, &service, NULL);
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%u", br_server_port(server));
    for (int grpc = 0; grpc < 2; grpc++) {
        struct br_client *client = net_connect(
            f.rig, &(struct br_client_config){.endpoint = url, .grpc = grpc, .tls = &f.client_tls});
        net_call_init(f.rig, &c, grpc, 10);
        net_call(f.rig, client, &c);
        assert_int_equal(c.error, BR_EIO);
        net_call_release(&c);
        br_client_free(client);
    }
    br_server_free(server);
    assert_int_equal(service.n_begun, 0);
}

/* A raw client over OpenSSL's own sockets, in steps. */
static SSL *dial(struct fixture *f, SSL_CTX *ctx, struct net_peer **ret)
{
    *ret = net_dial(br_server_port(f->server));
    SSL *ssl = SSL_new(ctx);
    assert_non_null(ssl);
    assert_int_equal(SSL_set_fd(ssl, (*ret)->fd), 1);
    SSL_set_connect_state(ssl);
    return ssl;
}

static void alpn_decides(void **state)
{
    static const struct {
        const char *offer;
        bool welcome;
    } offers[] = {{"\2h2", true}, {"\10http/1.1", true}, {"\2h3", false}, {NULL, true}};
    for (size_t i = 0; i < BR_COUNT(offers); i++) {
        struct fixture f;
        struct net_peer *p;
        open_with(&f, state);
        start(&f, false);
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        SSL *ssl = dial(&f, ctx, &p);
        if (offers[i].offer)
            assert_int_equal(SSL_set_alpn_protos(ssl, (const uint8_t *)offers[i].offer,
                                                 (unsigned)strlen(offers[i].offer)),
                             0);
        int rc;
        NET_UNTIL(f.rig, (rc = SSL_do_handshake(ssl)) == 1 ||
                             SSL_get_error(ssl, rc) != SSL_ERROR_WANT_READ);
        assert_int_equal(rc == 1, offers[i].welcome);
        bool h2 = i == 0;
        if (offers[i].welcome && !h2) {
            static const char get[] = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            char answer[512] = "";
            int n = 0;
            assert_int_equal(SSL_write(ssl, get, sizeof get - 1), sizeof get - 1);
            NET_UNTIL(f.rig, (n = SSL_read(ssl, answer, sizeof answer - 1)) > 0);
            assert_non_null(strstr(answer, "200 OK"));
            /* It says goodbye, so that the end is known to be the end. */
            NET_UNTIL(f.rig, (n = SSL_read(ssl, answer, 1)) <= 0 &&
                                 SSL_get_error(ssl, n) == SSL_ERROR_ZERO_RETURN);
        } else if (h2) {
            uint8_t settings[64];
            int n = 0; /* nghttp2's side speaks only after the preface */
            assert_int_equal(
                SSL_write(ssl, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33), 33);
            NET_UNTIL(f.rig, (n = SSL_read(ssl, settings, sizeof settings)) > 0);
            assert_int_equal(settings[3], 4);
        }
        SSL_free(ssl);
        SSL_CTX_free(ctx);
        net_hang_up(p);
        NET_UNTIL(f.rig, net_connections(f.rig) == 0);
        finish(&f);
    }
}

static void slow_handshakes_are_closed(void **state)
{
    struct fixture f;
    open_with(&f, state);
    start(&f, false);
    struct net_peer *silent = net_dial(br_server_port(f.server));
    struct net_peer *half = net_dial(br_server_port(f.server));
    net_send(f.rig, half, "\26\3\1\2\0\1\0\1\374", 9); /* the start of a ClientHello */
    NET_UNTIL(f.rig, net_poll(silent) && net_poll(half));
    net_hang_up(silent);
    net_hang_up(half);
    finish(&f);
}

/* The connection ends without close_notify: what was to end with it is cut off (RFC 9110
 * section 11.1). */
static void truncation_is_an_error(void **state)
{
    for (int goodbye = 0; goodbye < 2; goodbye++) {
        struct fixture f;
        struct net_call c;
        struct net_peer *p = NULL;
        unsigned port = 0;
        int listener = net_listen(AF_INET, &port);
        open_with(&f, state);
        (void)snprintf(f.url, sizeof f.url, "https://localhost:%u", port);
        f.client =
            net_connect(f.rig, &(struct br_client_config){.endpoint = f.url, .tls = &f.client_tls});
        net_call_init(f.rig, &c, false, 10);
        br_client_send(f.client, &c.x);
        NET_UNTIL(f.rig, (p = net_accept(listener)));
        SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
        assert_int_equal(
            SSL_CTX_use_certificate_file(ctx, tls_path("server.pem"), SSL_FILETYPE_PEM), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, tls_path("server.key"), SSL_FILETYPE_PEM),
                         1);
        SSL *ssl = SSL_new(ctx);
        assert_int_equal(SSL_set_fd(ssl, p->fd), 1);
        SSL_set_accept_state(ssl);
        char request[512];
        NET_UNTIL(f.rig, SSL_read(ssl, request, sizeof request) > 0);
        static const char answer[] = "HTTP/1.1 200 OK\r\n\r\nuntil the";
        assert_int_equal(SSL_write(ssl, answer, sizeof answer - 1), sizeof answer - 1);
        if (goodbye)
            assert_true(SSL_shutdown(ssl) >= 0);
        assert_int_equal(shutdown(p->fd, SHUT_WR), 0);
        NET_UNTIL(f.rig, c.n_done);
        assert_int_equal(c.error == 0, goodbye);
        SSL_free(ssl);
        SSL_CTX_free(ctx);
        net_hang_up(p);
        net_call_release(&c);
        br_client_free(f.client);
        close(listener);
    }
}

#define NET_TEST(name) cmocka_unit_test_setup_teardown(name, net_setup, net_teardown)

int main(void)
{
    cmocka_set_test_filter(getenv("NET_TESTS"));
    const struct CMUnitTest tests[] = {
        NET_TEST(bodies_of_all_sizes),    NET_TEST(wrong_certificates),
        NET_TEST(client_certificates),    NET_TEST(one_side_without_tls),
        NET_TEST(alpn_decides),           NET_TEST(slow_handshakes_are_closed),
        NET_TEST(truncation_is_an_error),
    };
    return cmocka_run_group_tests(tests, tls_setup, tls_teardown);
}
