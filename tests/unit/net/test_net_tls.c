/* SPDX-License-Identifier: Apache-2.0 */
/* TLS on real sockets: the client and the server of Braid, and faults between them. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "base/err.h"
#include "base/mem.h"
#include "tests/support/h2_raw.h"
#include "tests/support/net_rig.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

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

static void start_with(struct fixture *f, bool grpc, bool http2)
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
    const struct br_client_config client = {.endpoint = f->url,
                                            .grpc = grpc,
                                            .http2 = http2,
                                            .tls = &f->client_tls,
                                            .connect_timeout_ms = 3000};
    f->client = net_connect(f->rig, &client);
}

static void start(struct fixture *f, bool grpc)
{
    start_with(f, grpc, false);
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
        fails(&f, grpc, "certificate is not valid for elsewhere.example");
        open_with(&f, state);
        f.server_tls.cert_file = tls_path("client.pem");
        f.server_tls.key_file = tls_path("client.key");
        fails(&f, grpc, "certificate is not accepted: unsuitable certificate purpose");
    }
}

/* With TLS 1.3, the client completes its handshake before the server rejects its certificate. */
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
    for (int grpc = 0; grpc < 2; grpc++) { /* a client without TLS connects to a server with TLS */
        struct br_client *plain =
            net_connect(f.rig, &(struct br_client_config){.endpoint = url, .grpc = grpc});
        net_call_init(f.rig, &c, grpc, 10);
        net_call(f.rig, plain, &c);
        assert_int_not_equal(c.error, 0);
        net_call_release(&c);
        br_client_free(plain);
    }
    finish(&f);

    struct net_service service; /* a client with TLS connects to a server without TLS */
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

/* --- HTTP/2 by ALPN --------------------------------------------------------------------------- */

/* A server that supports both versions gets HTTP/2 if ALPN offers it. All calls share one
 * connection. */
static void http2_is_used_if_offered(void **state)
{
    enum { N = 20 };
    for (int http2 = 0; http2 < 2; http2++) {
        struct fixture f;
        static struct net_call c[N];
        open_with(&f, state);
        start_with(&f, false, http2);
        f.service.when = NET_LATER;
        for (int i = 0; i < N; i++) {
            net_call_init(f.rig, &c[i], false, i == 3 ? 3u << 20 : 1000);
            br_client_send(f.client, &c[i].x);
        }
        NET_UNTIL(f.rig, f.service.n_held == N);
        assert_int_equal(net_connections(f.rig), http2 ? 1 : N);
        assert_string_equal(f.service.last_path, "/call");
        net_reply_all(&f.service);
        for (int i = 0; i < N; i++) {
            NET_UNTIL(f.rig, c[i].n_done);
            assert_int_equal(c[i].error, 0);
            assert_int_equal(c[i].http_status, 200);
            assert_string_equal(c[i].response, "ok\n");
            net_call_release(&c[i]);
        }
        assert_int_equal(f.service.body_bytes, (N - 1) * 1000 + (3u << 20));
        net_call_init(f.rig, &c[0], false, 0); /* a GET, without a body */
        f.service.when = NET_IN_BODY;
        c[0].x.method = "GET";
        c[0].x.content_type = NULL;
        net_call(f.rig, f.client, &c[0]);
        assert_int_equal(c[0].http_status, 200);
        assert_string_equal(f.service.last_method, "GET");
        net_call_release(&c[0]);
        finish(&f);
    }
}

/* A server made with OpenSSL. It accepts connections on the thread of the test. */
struct peer {
    SSL_CTX *ctx;
    SSL *ssl;
    struct net_peer *peer;
    /* the protocol that the server chooses by ALPN; NULL: it does not use ALPN */
    const char *chosen;
};

static int on_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                   const unsigned char *in, unsigned in_len, void *arg)
{
    const struct peer *p = arg;
    (void)ssl;
    if (!p->chosen)
        return SSL_TLSEXT_ERR_NOACK;
    size_t len = strlen(p->chosen);
    for (unsigned at = 0; at < in_len; at += 1u + in[at]) {
        if (in[at] == len && memcmp(in + at + 1, p->chosen, len) == 0) {
            *ret = in + at + 1;
            *ret_len = in[at];
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static void peer_accept(struct fixture *f, struct peer *p, int listener)
{
    NET_UNTIL(f->rig, (p->peer = net_accept(listener)));
    p->ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_alpn_select_cb(p->ctx, on_alpn, p);
    assert_int_equal(SSL_CTX_use_certificate_file(p->ctx, tls_path("server.pem"), SSL_FILETYPE_PEM),
                     1);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(p->ctx, tls_path("server.key"), SSL_FILETYPE_PEM),
                     1);
    p->ssl = SSL_new(p->ctx);
    assert_int_equal(SSL_set_fd(p->ssl, p->peer->fd), 1);
    SSL_set_accept_state(p->ssl);
}

static void peer_free(struct peer *p)
{
    SSL_free(p->ssl);
    SSL_CTX_free(p->ctx);
    net_hang_up(p->peer);
}

/* If a server supports only HTTP/1.1, the client uses HTTP/1.1, whether the server uses ALPN or
 * not. */
static void http1_is_used_without_http2_support(void **state)
{
    static const char *const chosen[] = {"http/1.1", NULL};
    for (size_t i = 0; i < BR_COUNT(chosen); i++) {
        struct fixture f;
        struct net_call c[2];
        struct peer p[2] = {{.chosen = chosen[i]}, {.chosen = chosen[i]}};
        unsigned port = 0;
        int listener = net_listen(AF_INET, &port);
        open_with(&f, state);
        (void)snprintf(f.url, sizeof f.url, "https://localhost:%u", port);
        f.client = net_connect(f.rig, &(struct br_client_config){
                                          .endpoint = f.url, .http2 = true, .tls = &f.client_tls});
        /* at the same time: the second call gets another connection */
        for (int k = 0; k < 2; k++) {
            net_call_init(f.rig, &c[k], false, 10);
            br_client_send(f.client, &c[k].x);
        }
        for (int k = 0; k < 2; k++) {
            char request[512] = "";
            peer_accept(&f, &p[k], listener);
            NET_UNTIL(f.rig, SSL_read(p[k].ssl, request, sizeof request - 1) > 0);
            assert_non_null(strstr(request, "POST /call HTTP/1.1\r\n"));
        }
        for (int k = 0; k < 2; k++) {
            static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
            assert_true(SSL_write(p[k].ssl, answer, sizeof answer - 1) > 0);
            NET_UNTIL(f.rig, c[k].n_done);
            assert_int_equal(c[k].http_status, 200);
            assert_string_equal(c[k].response, "abc");
            net_call_release(&c[k]);
        }
        br_client_free(f.client);
        peer_free(&p[0]);
        peer_free(&p[1]);
        close(listener);
    }
}

/* HTTP/2 from a server made of raw frames. A truncated answer is an error, and Retry-After is
 * read in both of its forms, as over HTTP/1.1. */
static void answers_over_http2(void **state)
{
    static const struct {
        const char *status, *after;
        bool cut_off;
        int64_t want_after_s;
    } cases[] = {
        {"200", NULL, false, -1},
        {"200", NULL, true, -1},
        {"413", NULL, false, -1},
        {"503", "7", false, 7},
        {"503", "Fri, 31 Dec 1999 23:59:59 GMT", false, 0},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fixture f;
        struct net_call c;
        struct peer p = {.chosen = "h2"};
        uint8_t in[4096], out[512], block[256];
        unsigned port = 0;
        int listener = net_listen(AF_INET, &port), n_in = 0;
        open_with(&f, state);
        (void)snprintf(f.url, sizeof f.url, "https://localhost:%u", port);
        f.client = net_connect(f.rig, &(struct br_client_config){
                                          .endpoint = f.url, .http2 = true, .tls = &f.client_tls});
        net_call_init(f.rig, &c, false, 10);
        br_client_send(f.client, &c.x);
        peer_accept(&f, &p, listener);
        NET_UNTIL(f.rig, (n_in = SSL_read(p.ssl, in, sizeof in)) > 0);
        assert_memory_equal(in, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);

        size_t n = 0; /* literals without indexing (RFC 7541 section 6.2.2), of names 8 and 53 */
        block[n++] = 0x08;
        block[n++] = 3;
        memcpy(block + n, cases[i].status, 3);
        n += 3;
        if (cases[i].after) {
            block[n++] = 0x0f;
            block[n++] = 53 - 15;
            block[n++] = (uint8_t)strlen(cases[i].after);
            memcpy(block + n, cases[i].after, strlen(cases[i].after));
            n += strlen(cases[i].after);
        }
        size_t len = h2_bytes(out, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
        len += h2_bytes(out + len, NGHTTP2_HEADERS,
                        NGHTTP2_FLAG_END_HEADERS | (cases[i].cut_off ? 0 : NGHTTP2_FLAG_END_STREAM),
                        1, block, n);
        if (cases[i].cut_off)
            len += h2_bytes(out + len, NGHTTP2_RST_STREAM, 0, 1, "\0\0\0\2", 4);
        assert_int_equal(SSL_write(p.ssl, out, (int)len), len);
        NET_UNTIL(f.rig, c.n_done);
        assert_int_equal(c.error, cases[i].cut_off ? BR_EPROTO : 0);
        assert_int_equal(c.http_status, atoi(cases[i].status));
        assert_int_equal(c.retry_after_s, cases[i].want_after_s);
        net_call_release(&c);
        br_client_free(f.client);
        peer_free(&p);
        close(listener);
    }
}

/* Connects a raw client that uses OpenSSL's sockets, step by step. */
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
            /* The server sends close_notify, so the client knows that the end is not a
             * truncation. */
            NET_UNTIL(f.rig, (n = SSL_read(ssl, answer, 1)) <= 0 &&
                                 SSL_get_error(ssl, n) == SSL_ERROR_ZERO_RETURN);
        } else if (h2) {
            uint8_t settings[64];
            int n = 0; /* nghttp2's server writes only after it has received the preface */
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
    struct net_peer *idle = net_dial(br_server_port(f.server));
    struct net_peer *half = net_dial(br_server_port(f.server));
    net_send(f.rig, half, "\26\3\1\2\0\1\0\1\374", 9); /* the start of a ClientHello */
    NET_UNTIL(f.rig, net_poll(idle) && net_poll(half));
    net_hang_up(idle);
    net_hang_up(half);
    finish(&f);
}

/* A connection ends without close_notify: an answer that its end would delimit is truncated (RFC
 * 9110 section 11.1). */
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

SUITE(net_tls)
{
    const struct CMUnitTest tests[] = {
        NET_TEST(http2_is_used_if_offered),   NET_TEST(http1_is_used_without_http2_support),
        NET_TEST(answers_over_http2),         NET_TEST(bodies_of_all_sizes),
        NET_TEST(wrong_certificates),         NET_TEST(client_certificates),
        NET_TEST(one_side_without_tls),       NET_TEST(alpn_decides),
        NET_TEST(slow_handshakes_are_closed), NET_TEST(truncation_is_an_error),
    };
    return RUN(tests, tls_setup, tls_teardown);
}
