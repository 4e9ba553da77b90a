/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/err.h>

#include "base/mem.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

const char *const tls_both_protocols[] = {"h2", "http/1.1", NULL};

struct br_tls_config tls_server_config(void)
{
    return (struct br_tls_config){.cert_file = tls_path("server.pem"),
                                  .key_file = tls_path("server.key")};
}

struct br_tls_config tls_client_config(void)
{
    return (struct br_tls_config){.ca_file = tls_path("ca.pem")};
}

int tls_on_plain(void *arg, const uint8_t *data, size_t len)
{
    struct tls_end *e = arg;
    e->got.data = realloc(e->got.data, e->got.len + len);
    memcpy(e->got.data + e->got.len, data, len);
    e->got.len += len;
    if (len > e->largest)
        e->largest = len;
    return 0;
}

void tls_feed(struct tls_end *e, const uint8_t *data, size_t len)
{
    struct br_err err = {0};
    /* allocated with exactly this size, so that ASan detects any read past it */
    uint8_t *exact = malloc(len ? len : 1);
    memcpy(exact, data, len);
    int rc = br_tls_input(e->tls, exact, len, tls_on_plain, e, &err);
    free(exact);
    if (rc && !e->rc) {
        e->rc = rc;
        e->err = err;
    }
    assert_int_equal(rc ? rc : e->rc, e->rc);
}

bool tls_carry(struct tls_end *from, struct tls_end *to, size_t chunk)
{
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(from->tls, tls_pool, &out), 0);
    for (uint32_t i = 0; i < out.count; i++)
        assert_true(out.slices[i].len <= 16384);
    bool any = out.len > 0;
    const uint8_t *p;
    struct br_buf *flat = br_rope_flat(&out, tls_pool, &p);
    for (size_t at = 0; at < out.len; at += chunk)
        tls_feed(to, p + at, out.len - at < chunk ? out.len - at : chunk);
    br_buf_unref(flat);
    br_rope_release(&out);
    return any;
}

void tls_talk(struct tls_pair *p, size_t chunk)
{
    bool any = true;
    while (any) {
        any = tls_carry(&p->client, &p->server, chunk);
        any = tls_carry(&p->server, &p->client, chunk) || any;
    }
}

struct br_tls_context *tls_context(const struct br_tls_config *config, bool server,
                                   const char *const *alpn)
{
    struct br_tls_context *ctx = NULL;
    struct br_err err = {0};
    int rc = br_tls_context_new(config, server, alpn, &ctx, &err);
    if (rc)
        fail_msg("%s", err.text);
    return ctx;
}

void tls_connect(struct tls_pair *p, const char *name)
{
    p->server.tls = br_tls_new(p->server.ctx, NULL);
    p->client.tls = br_tls_new(p->client.ctx, name);
    assert_non_null(p->server.tls);
    assert_non_null(p->client.tls);
}

struct tls_pair tls_pair_of(const struct br_tls_config *client, const struct br_tls_config *server,
                            const char *name)
{
    struct tls_pair p = {0};
    p.server.ctx = tls_context(server, true, tls_both_protocols);
    p.client.ctx = tls_context(client, false, tls_both_protocols);
    tls_connect(&p, name);
    return p;
}

struct tls_pair tls_pair(void)
{
    struct br_tls_config server = tls_server_config(), client = tls_client_config();
    return tls_pair_of(&client, &server, "localhost");
}

void tls_disconnect(struct tls_pair *p)
{
    br_tls_free(p->client.tls);
    br_tls_free(p->server.tls);
    free(p->client.got.data);
    free(p->server.got.data);
    struct br_tls_context *client = p->client.ctx, *server = p->server.ctx;
    *p = (struct tls_pair){0};
    p->client.ctx = client;
    p->server.ctx = server;
}

void tls_pair_free(struct tls_pair *p)
{
    tls_disconnect(p);
    br_tls_context_free(p->client.ctx);
    br_tls_context_free(p->server.ctx);
}

void assert_tls_ready(const struct tls_pair *p)
{
    if (p->client.rc || p->server.rc)
        fail_msg("client: %s server: %s", p->client.err.text, p->server.err.text);
    assert_true(br_tls_ready(p->client.tls));
    assert_true(br_tls_ready(p->server.tls));
}

void assert_tls_says(const struct br_err *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("\"%s\" does not say \"%s\"", err->text, words);
}

/* --- Data ------------------------------------------------------------------------------------ */

uint8_t tls_byte_at(size_t i)
{
    return (uint8_t)((i * 2654435761u) >> 13);
}

void tls_send_bytes(struct tls_end *e, size_t len, size_t slice)
{
    struct br_buf *buf = br_buf_new(tls_pool, len);
    for (size_t i = 0; i < len; i++)
        buf->data[i] = tls_byte_at(i);
    struct br_rope rope = {0};
    bool header = true;
    for (size_t at = 0; at < len; header = !header) {
        size_t n = header ? 9 : slice;
        if (n > len - at)
            n = len - at;
        struct br_buf *own = br_buf_new(tls_pool, n);
        memcpy(own->data, buf->data + at, n);
        own->len = (uint32_t)n;
        assert_int_equal(br_rope_add(&rope, own, own->data, n), 0);
        br_buf_unref(own);
        at += n;
    }
    assert_int_equal(br_tls_send(e->tls, &rope), 0);
    br_rope_release(&rope);
    br_buf_unref(buf);
}

void assert_tls_got(struct tls_end *e, size_t len)
{
    assert_int_equal(e->got.len, len);
    for (size_t i = 0; i < len; i++) {
        if (e->got.data[i] != tls_byte_at(i))
            fail_msg("byte %zu of %zu is wrong", i, len);
    }
    e->got.len = 0;
}

void tls_exchange(struct tls_pair *p, size_t len, size_t slice, size_t chunk)
{
    tls_send_bytes(&p->client, len, slice);
    tls_send_bytes(&p->server, len, slice);
    tls_talk(p, chunk);
    assert_tls_ready(p);
    assert_tls_got(&p->server, len);
    assert_tls_got(&p->client, len);
}

/* --- OpenSSL as the client -------------------------------------------------------------------- */

struct tls_raw tls_raw_client(int version, const char *ciphers)
{
    struct tls_raw r = {.ctx = SSL_CTX_new(TLS_client_method())};
    SSL_CTX_set_security_level(r.ctx, 0);
    SSL_CTX_set_min_proto_version(r.ctx, version);
    SSL_CTX_set_max_proto_version(r.ctx, version);
    assert_int_equal(SSL_CTX_set_cipher_list(r.ctx, ciphers), 1);
    r.ssl = SSL_new(r.ctx);
    SSL_set_bio(r.ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(r.ssl);
    return r;
}

void tls_raw_free(struct tls_raw *r)
{
    SSL_free(r->ssl);
    SSL_CTX_free(r->ctx);
}

void tls_raw_swap(struct tls_raw *r, struct tls_end *server)
{
    char *data;
    long len = BIO_get_mem_data(SSL_get_wbio(r->ssl), &data);
    if (len > 0)
        tls_feed(server, (const uint8_t *)data, (size_t)len);
    (void)BIO_reset(SSL_get_wbio(r->ssl));
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(server->tls, tls_pool, &out), 0);
    for (uint32_t i = 0; i < out.count; i++)
        BIO_write(SSL_get_rbio(r->ssl), out.slices[i].data, (int)out.slices[i].len);
    br_rope_release(&out);
}

int tls_raw_handshake(struct tls_raw *r, struct tls_end *server)
{
    int rc = 0;
    for (int i = 0; i < 6; i++) {
        ERR_clear_error();
        rc = SSL_do_handshake(r->ssl);
        tls_raw_swap(r, server);
    }
    return rc;
}

struct tls_end tls_server_end(const struct br_tls_config *config)
{
    struct tls_end e = {.ctx = tls_context(config, true, tls_both_protocols)};
    e.tls = br_tls_new(e.ctx, NULL);
    assert_non_null(e.tls);
    return e;
}

void tls_end_free(struct tls_end *e)
{
    br_tls_free(e->tls);
    br_tls_context_free(e->ctx);
    free(e->got.data);
}
