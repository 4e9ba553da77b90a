/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/tls.h"

/* Both ends are ours and talk through memory, except where OpenSSL itself has to be the peer that
 * does what ours never would. Certificates are made here, in a folder that goes away. */

#define DAY 86400L

static char dir[64];
static struct br_pool *pool;

/* --- Certificates ---------------------------------------------------------------------------- */

struct cert_spec {
    const char *name, *issuer; /* files <name>.pem and <name>.key; issuer NULL: itself */
    const char *san, *eku;     /* NULL: none */
    bool ca;
    long from, to; /* seconds from now; both 0: yesterday to tomorrow */
};

/* The file's path, which lives as long as the test, as a config's texts have to. */
static const char *path(const char *name)
{
    static char paths[64][128];
    char wanted[128];
    (void)snprintf(wanted, sizeof wanted, "%s/%s", dir, name);
    for (size_t i = 0; i < BR_COUNT(paths); i++) {
        if (!paths[i][0])
            memcpy(paths[i], wanted, sizeof wanted);
        if (strcmp(paths[i], wanted) == 0)
            return paths[i];
    }
    fail_msg("too many paths");
    return NULL;
}

static const char *path2(const char *name, const char *ending)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s%s", name, ending);
    return path(file);
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(path(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static char *read_text(const char *name)
{
    FILE *f = fopen(path(name), "r");
    assert_non_null(f);
    char *text = calloc(1, 65536);
    assert_true(fread(text, 1, 65535, f) > 0);
    fclose(f);
    return text;
}

static void copy_text(const char *from, const char *to)
{
    char *text = read_text(from);
    write_text(to, text);
    free(text);
}

static void add_ext(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX v3;
    X509V3_set_ctx(&v3, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
    assert_non_null(ext);
    assert_int_equal(X509_add_ext(cert, ext, -1), 1);
    X509_EXTENSION_free(ext);
}

static X509 *read_cert(const char *name)
{
    FILE *f = fopen(path2(name, ".pem"), "r");
    assert_non_null(f);
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    assert_non_null(cert);
    fclose(f);
    return cert;
}

static EVP_PKEY *read_pkey(const char *name)
{
    FILE *f = fopen(path2(name, ".key"), "r");
    assert_non_null(f);
    EVP_PKEY *key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    assert_non_null(key);
    fclose(f);
    return key;
}

static void write_pair(const char *name, X509 *cert, EVP_PKEY *key)
{
    FILE *f = fopen(path2(name, ".pem"), "w");
    assert_int_equal(PEM_write_X509(f, cert), 1);
    fclose(f);
    f = fopen(path2(name, ".key"), "w");
    assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
}

static void make_cert(const struct cert_spec *spec)
{
    static long serial = 1;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509 *issuer = spec->issuer ? read_cert(spec->issuer) : NULL;
    EVP_PKEY *issuer_key = spec->issuer ? read_pkey(spec->issuer) : NULL;
    X509_set_version(cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    bool dated = spec->from || spec->to;
    X509_gmtime_adj(X509_getm_notBefore(cert), dated ? spec->from : -DAY);
    X509_gmtime_adj(X509_getm_notAfter(cert), dated ? spec->to : DAY);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)spec->name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer : cert));
    X509_set_pubkey(cert, key);
    add_ext(cert, issuer ? issuer : cert, NID_basic_constraints,
            spec->ca ? "critical,CA:TRUE" : "CA:FALSE");
    if (spec->san)
        add_ext(cert, issuer, NID_subject_alt_name, spec->san);
    if (spec->eku)
        add_ext(cert, issuer, NID_ext_key_usage, spec->eku);
    assert_true(X509_sign(cert, issuer_key ? issuer_key : key, EVP_sha256()) > 0);
    write_pair(spec->name, cert, key);
    X509_free(cert);
    X509_free(issuer);
    EVP_PKEY_free(key);
    EVP_PKEY_free(issuer_key);
}

static const struct cert_spec specs[] = {
    {.name = "ca", .ca = true},
    {.name = "other_ca", .ca = true},
    {.name = "server",
     .issuer = "ca",
     .san = "DNS:localhost,DNS:*.example.org,IP:127.0.0.1",
     .eku = "serverAuth"},
    {.name = "cn.only", .issuer = "ca", .eku = "serverAuth"},
    {.name = "other_server", .issuer = "other_ca", .san = "DNS:localhost", .eku = "serverAuth"},
    {.name = "old_server", .issuer = "ca", .san = "DNS:localhost", .from = -2 * DAY, .to = -DAY},
    {.name = "client", .issuer = "ca", .eku = "clientAuth"},
    {.name = "stranger", .issuer = "other_ca", .eku = "clientAuth"},
    {.name = "self_made", .eku = "clientAuth"},
    {.name = "expired", .issuer = "ca", .eku = "clientAuth", .from = -2 * DAY, .to = -DAY},
    {.name = "early", .issuer = "ca", .eku = "clientAuth", .from = DAY, .to = 2 * DAY},
    {.name = "wrong_use", .issuer = "ca", .eku = "serverAuth"},
    {.name = "middle", .issuer = "ca", .ca = true},
    {.name = "leaf", .issuer = "middle", .san = "DNS:localhost", .eku = "serverAuth"},
};

/* The leaf before its issuer, as servers need it, and the other way round. */
static void make_chains(void)
{
    char *leaf = read_text("leaf.pem"), *middle = read_text("middle.pem");
    char both[8192];
    (void)snprintf(both, sizeof both, "%s%s", leaf, middle);
    write_text("chain.pem", both);
    (void)snprintf(both, sizeof both, "%s%s", middle, leaf);
    write_text("reversed.pem", both);
    free(leaf);
    free(middle);
}

static void make_bad_files(void)
{
    write_text("empty.pem", "");
    write_text("text.pem", "this is not PEM\n");
    write_text("damaged.pem", "-----BEGIN CERTIFICATE-----\nAAAAAAAA\n-----END CERTIFICATE-----\n");
    EVP_PKEY *key = read_pkey("server");
    FILE *f = fopen(path("encrypted.key"), "w");
    assert_int_equal(
        PEM_write_PrivateKey(f, key, EVP_aes_128_cbc(), (const unsigned char *)"x", 1, NULL, NULL),
        1);
    fclose(f);
    EVP_PKEY_free(key);
}

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, sizeof dir, "%.40s/braid-tls-XXXXXX",
                   tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < BR_COUNT(specs); i++)
        make_cert(&specs[i]);
    make_chains();
    make_bad_files();
    pool = br_pool_new(1 << 20);
    return pool ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    static const char *files[] = {"chain.pem", "reversed.pem", "empty.pem",
                                  "text.pem",  "damaged.pem",  "encrypted.key",
                                  "live.pem",  "live.key",     "live_ca.pem"};
    for (size_t i = 0; i < BR_COUNT(specs); i++) {
        unlink(path2(specs[i].name, ".pem"));
        unlink(path2(specs[i].name, ".key"));
    }
    for (size_t i = 0; i < BR_COUNT(files); i++)
        unlink(path(files[i]));
    br_pool_free(pool); /* asserts that no buffer is left */
    return rmdir(dir);
}

/* --- Two ends -------------------------------------------------------------------------------- */

struct bytes {
    uint8_t *data;
    size_t len;
};

struct end {
    struct br_tls_context *ctx;
    struct br_tls *tls;
    struct bytes got; /* plaintext */
    size_t largest;   /* piece of it */
    int rc;           /* what input said first, unless 0 */
    struct br_err err;
};

struct pair {
    struct end client, server;
};

static const char *const both_protocols[] = {"h2", "http/1.1", NULL};

static struct br_tls_config server_config(void)
{
    return (struct br_tls_config){.cert_file = path("server.pem"), .key_file = path("server.key")};
}

static struct br_tls_config client_config(void)
{
    return (struct br_tls_config){.ca_file = path("ca.pem")};
}

static int on_plain(void *arg, const uint8_t *data, size_t len)
{
    struct end *e = arg;
    e->got.data = realloc(e->got.data, e->got.len + len);
    memcpy(e->got.data + e->got.len, data, len);
    e->got.len += len;
    if (len > e->largest)
        e->largest = len;
    return 0;
}

static void feed(struct end *e, const uint8_t *data, size_t len)
{
    struct br_err err = {0};
    /* A block of exactly that size, so that ASan sees any read past it. */
    uint8_t *exact = malloc(len ? len : 1);
    memcpy(exact, data, len);
    int rc = br_tls_input(e->tls, exact, len, on_plain, e, &err);
    free(exact);
    if (rc && !e->rc) {
        e->rc = rc;
        e->err = err;
    }
    assert_int_equal(rc ? rc : e->rc, e->rc);
}

/* Everything that one end has to say, in pieces of `chunk` bytes, to the other. */
static bool carry(struct end *from, struct end *to, size_t chunk)
{
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(from->tls, pool, &out), 0);
    for (uint32_t i = 0; i < out.n; i++)
        assert_true(out.v[i].len <= 16384);
    bool any = out.len > 0;
    const uint8_t *p;
    struct br_buf *flat = br_rope_flat(&out, pool, &p);
    for (size_t at = 0; at < out.len; at += chunk)
        feed(to, p + at, out.len - at < chunk ? out.len - at : chunk);
    br_buf_unref(flat);
    br_rope_release(&out);
    return any;
}

static void talk(struct pair *p, size_t chunk)
{
    bool any = true;
    while (any) {
        any = carry(&p->client, &p->server, chunk);
        any = carry(&p->server, &p->client, chunk) || any;
    }
}

static struct br_tls_context *context(const struct br_tls_config *config, bool server,
                                      const char *const *alpn)
{
    struct br_tls_context *ctx = NULL;
    struct br_err err = {0};
    int rc = br_tls_context_new(config, server, alpn, &ctx, &err);
    if (rc)
        fail_msg("%s", err.text);
    return ctx;
}

static void connect_name(struct pair *p, const char *name)
{
    p->server.tls = br_tls_new(p->server.ctx, NULL);
    p->client.tls = br_tls_new(p->client.ctx, name);
    assert_non_null(p->server.tls);
    assert_non_null(p->client.tls);
}

static struct pair make_pair_of(const struct br_tls_config *client,
                                const struct br_tls_config *server, const char *name)
{
    struct pair p = {0};
    p.server.ctx = context(server, true, both_protocols);
    p.client.ctx = context(client, false, both_protocols);
    connect_name(&p, name);
    return p;
}

static struct pair make_pair(void)
{
    struct br_tls_config server = server_config(), client = client_config();
    return make_pair_of(&client, &server, "localhost");
}

static void disconnect(struct pair *p)
{
    br_tls_free(p->client.tls);
    br_tls_free(p->server.tls);
    free(p->client.got.data);
    free(p->server.got.data);
    struct br_tls_context *client = p->client.ctx, *server = p->server.ctx;
    *p = (struct pair){0};
    p->client.ctx = client;
    p->server.ctx = server;
}

static void free_pair(struct pair *p)
{
    disconnect(p);
    br_tls_context_free(p->client.ctx);
    br_tls_context_free(p->server.ctx);
}

static void assert_ready(const struct pair *p)
{
    if (p->client.rc || p->server.rc)
        fail_msg("client: %s server: %s", p->client.err.text, p->server.err.text);
    assert_true(br_tls_ready(p->client.tls));
    assert_true(br_tls_ready(p->server.tls));
}

static void assert_says(const struct br_err *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("\"%s\" does not say \"%s\"", err->text, words);
}

/* --- Data ------------------------------------------------------------------------------------ */

static uint8_t byte_at(size_t i)
{
    return (uint8_t)((i * 2654435761u) >> 13);
}

/* `len` bytes in slices of `slice` and 9 bytes, by turns: frames and their headers. */
static void send_bytes(struct end *e, size_t len, size_t slice)
{
    struct br_buf *buf = br_buf_new(pool, len);
    for (size_t i = 0; i < len; i++)
        buf->data[i] = byte_at(i);
    struct br_rope rope = {0};
    bool header = true;
    for (size_t at = 0; at < len; header = !header) {
        size_t n = header ? 9 : slice;
        if (n > len - at)
            n = len - at;
        struct br_buf *own = br_buf_new(pool, n);
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

static void assert_got(struct end *e, size_t len)
{
    assert_int_equal(e->got.len, len);
    for (size_t i = 0; i < len; i++) {
        if (e->got.data[i] != byte_at(i))
            fail_msg("byte %zu of %zu is wrong", i, len);
    }
    e->got.len = 0;
}

static void exchange(struct pair *p, size_t len, size_t slice, size_t chunk)
{
    send_bytes(&p->client, len, slice);
    send_bytes(&p->server, len, slice);
    talk(p, chunk);
    assert_ready(p);
    assert_got(&p->server, len);
    assert_got(&p->client, len);
}

static void test_handshake(void **state)
{
    (void)state;
    struct pair p = make_pair();
    assert_false(br_tls_ready(p.client.tls));
    assert_string_equal(br_tls_alpn(p.client.tls), "");
    talk(&p, SIZE_MAX);
    assert_ready(&p);
    assert_string_equal(br_tls_alpn(p.client.tls), "h2");
    assert_string_equal(br_tls_alpn(p.server.tls), "h2");
    exchange(&p, 5, 5, SIZE_MAX);
    free_pair(&p);
}

static void test_handshake_in_any_pieces(void **state)
{
    (void)state;
    static const size_t chunks[] = {1, 2, 3, 5, 6, 7, 100, 1000};
    for (size_t i = 0; i < BR_COUNT(chunks); i++) {
        struct pair p = make_pair();
        talk(&p, chunks[i]);
        assert_ready(&p);
        free_pair(&p);
    }
}

/* Sizes around OpenSSL's and our record sizes, in slices and pieces around them too. */
static void test_data(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,     8,     9,     10,    16319, 16320, 16321, 16328,
                                   16329, 16383, 16384, 16385, 32640, 32768, 50000, 300000};
    static const size_t slices[] = {1, 16311, 16320, 16384, 40000};
    static const size_t chunks[] = {5, 1000, 16384, SIZE_MAX};
    static const char *const versions[] = {"1.2", "1.3"};
    for (size_t v = 0; v < 2; v++) {
        struct br_tls_config server = server_config(), client = client_config();
        client.min_version = client.max_version = versions[v];
        struct pair p = make_pair_of(&client, &server, "localhost");
        talk(&p, SIZE_MAX);
        for (size_t i = 0; i < BR_COUNT(sizes); i++) {
            for (size_t j = 0; j < BR_COUNT(slices); j++) {
                for (size_t k = 0; k < BR_COUNT(chunks); k++)
                    exchange(&p, sizes[i], slices[j], chunks[k]);
            }
        }
        exchange(&p, 3000, 100, 1);
        assert_true(p.client.largest <= 16384);
        free_pair(&p);
    }
}

/* A record of RFC 8446 has 5 bytes of header, 1 of type and 16 of tag; full ones fill their
 * buffers. */
static void test_output_is_compact(void **state)
{
    (void)state;
    struct pair p = make_pair();
    talk(&p, SIZE_MAX);
    size_t live = br_pool_live(pool);
    assert_int_equal(live, 0);
    send_bytes(&p.client, 1 << 20, 16384);
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(p.client.tls, pool, &out), 0);
    size_t records = ((1 << 20) + 16319) / 16320;
    assert_int_equal(out.len, (1 << 20) + records * 22);
    assert_true(br_pool_live(pool) <= out.len + out.len / 100 + 16384);
    br_rope_release(&out);
    assert_int_equal(br_tls_output(p.client.tls, pool, &out), 0);
    assert_int_equal(out.len, 0);
    free_pair(&p);
}

static int refuse_plain(void *arg, const uint8_t *data, size_t len)
{
    (void)data;
    (void)len;
    ++*(int *)arg;
    return BR_ETOOBIG;
}

static void test_reader_may_refuse(void **state)
{
    (void)state;
    struct pair p = make_pair();
    talk(&p, SIZE_MAX);
    send_bytes(&p.client, 40000, 16384);
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(p.client.tls, pool, &out), 0);
    const uint8_t *data;
    struct br_buf *flat = br_rope_flat(&out, pool, &data);
    int calls = 0;
    struct br_err err = {0};
    assert_int_equal(br_tls_input(p.server.tls, data, out.len, refuse_plain, &calls, &err),
                     BR_ETOOBIG);
    assert_int_equal(br_tls_input(p.server.tls, data, 5, refuse_plain, &calls, &err), BR_ETOOBIG);
    assert_int_equal(calls, 1);
    br_buf_unref(flat);
    br_rope_release(&out);
    /* It still can say why it hangs up. */
    send_bytes(&p.server, 100, 100);
    carry(&p.server, &p.client, SIZE_MAX);
    assert_got(&p.client, 100);
    free_pair(&p);
}

static void test_send_needs_a_handshake(void **state)
{
    (void)state;
    struct pair p = make_pair();
    struct br_rope rope = {0};
    assert_int_equal(br_rope_add(&rope, NULL, "early", 5), 0);
    assert_int_equal(br_tls_send(p.client.tls, &rope), BR_EPROTO);
    br_tls_close(p.server.tls);
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(p.server.tls, pool, &out), 0);
    assert_int_equal(out.len, 0);
    br_rope_release(&rope);
    free_pair(&p);
}

static void test_close_notify(void **state)
{
    (void)state;
    struct pair p = make_pair();
    talk(&p, SIZE_MAX);
    send_bytes(&p.client, 20000, 5000);
    br_tls_close(p.client.tls);
    struct br_rope rope = {0};
    assert_int_equal(br_rope_add(&rope, NULL, "late", 4), 0);
    assert_int_equal(br_tls_send(p.client.tls, &rope), BR_EPROTO);
    br_rope_release(&rope);
    carry(&p.client, &p.server, 777);
    assert_int_equal(p.server.rc, BR_ECLOSED);
    assert_got(&p.server, 20000);
    assert_false(carry(&p.client, &p.server, SIZE_MAX));
    /* RFC 8446 section 6.1: the other direction is still open. */
    send_bytes(&p.server, 100, 100);
    br_tls_close(p.server.tls);
    carry(&p.server, &p.client, SIZE_MAX);
    assert_got(&p.client, 100);
    assert_int_equal(p.client.rc, BR_ECLOSED);
    free_pair(&p);
}

/* --- ALPN ------------------------------------------------------------------------------------ */

static const char *const only_h2[] = {"h2", NULL};
static const char *const only_h1[] = {"http/1.1", NULL};
static const char *const h1_first[] = {"http/1.1", "h2", NULL};
static const char *const other[] = {"spdy/3", NULL};

static struct pair alpn_pair(const char *const *client_alpn, const char *const *server_alpn)
{
    struct br_tls_config server = server_config(), client = client_config();
    struct pair p = {0};
    p.server.ctx = context(&server, true, server_alpn);
    p.client.ctx = context(&client, false, client_alpn);
    connect_name(&p, "localhost");
    talk(&p, SIZE_MAX);
    return p;
}

static void test_alpn(void **state)
{
    (void)state;
    static const struct {
        const char *const *client, *const *server;
        const char *chosen;
    } rows[] = {
        {only_h1, both_protocols, "http/1.1"},
        {only_h2, both_protocols, "h2"},
        {h1_first, both_protocols, "h2"},
        {both_protocols, h1_first, "http/1.1"},
        {NULL, both_protocols, ""},
        {both_protocols, NULL, ""},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct pair p = alpn_pair(rows[i].client, rows[i].server);
        assert_ready(&p);
        assert_string_equal(br_tls_alpn(p.client.tls), rows[i].chosen);
        assert_string_equal(br_tls_alpn(p.server.tls), rows[i].chosen);
        free_pair(&p);
    }
}

/* RFC 7301 section 3.2: no_application_protocol, alert 120. */
static void test_alpn_without_match(void **state)
{
    (void)state;
    struct pair p = alpn_pair(other, both_protocols);
    assert_int_equal(p.server.rc, BR_EPROTO);
    assert_int_equal(p.client.rc, BR_EPROTO);
    assert_says(&p.client.err, "no application protocol");
    free_pair(&p);
}

static void test_alpn_lists_are_checked(void **state)
{
    (void)state;
    static const char *const empty[] = {"", NULL};
    static const char *const exact[] = {"0123456789012345678901234567890", NULL};
    static const char *const longer[] = {"01234567890123456789012345678901", NULL};
    const char *many[9] = {0};
    struct br_tls_config config = client_config();
    struct br_tls_context *ctx = NULL;
    assert_int_equal(br_tls_context_new(&config, false, empty, &ctx, NULL), BR_EINVAL);
    assert_int_equal(br_tls_context_new(&config, false, longer, &ctx, NULL), BR_EINVAL);
    for (size_t i = 0; i < 8; i++)
        many[i] = exact[0];
    assert_int_equal(br_tls_context_new(&config, false, many, &ctx, NULL), BR_EINVAL);
    assert_null(ctx);
    struct pair p = alpn_pair(exact, exact);
    assert_string_equal(br_tls_alpn(p.server.tls), exact[0]);
    free_pair(&p);
}

/* --- Who is it ------------------------------------------------------------------------------- */

static void test_server_names(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *name;
        const char *complaint; /* NULL: accepted */
    } rows[] = {
        {"server", "localhost", NULL},
        {"server", "LOCALHOST", NULL},
        {"server", "127.0.0.1", NULL},
        {"server", "a.example.org", NULL},
        {"server", "a.b.example.org", "not for a.b.example.org"},
        {"server", "example.org", "not for example.org"},
        {"server", "server", "not for server"}, /* the CN is no name */
        {"server", "127.0.0.2", "not for this address"},
        {"server", "::1", "not for this address"},
        {"cn.only", "cn.only", "not for cn.only"},
        {"other_server", "localhost", "not accepted"},
        {"old_server", "localhost", "expired"},
        {"client", "localhost", "not accepted"}, /* extendedKeyUsage is clientAuth */
        {"leaf", "localhost", "not accepted"},   /* its issuer is not with it */
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config server = {.cert_file = path2(rows[i].cert, ".pem"),
                                       .key_file = path2(rows[i].cert, ".key")};
        struct br_tls_config client = client_config();
        struct pair p = make_pair_of(&client, &server, rows[i].name);
        talk(&p, SIZE_MAX);
        if (!rows[i].complaint) {
            assert_ready(&p);
        } else {
            assert_int_equal(p.client.rc, BR_EPROTO);
            assert_says(&p.client.err, rows[i].complaint);
            assert_false(br_tls_ready(p.client.tls));
            assert_int_equal(p.server.rc, BR_EPROTO); /* by the client's alert */
            assert_says(&p.server.err, "alert");
        }
        free_pair(&p);
    }
}

static void test_chain(void **state)
{
    (void)state;
    struct br_tls_config server = {.cert_file = path("chain.pem"), .key_file = path("leaf.key")};
    struct br_tls_config client = client_config();
    struct pair p = make_pair_of(&client, &server, "localhost");
    talk(&p, SIZE_MAX);
    assert_ready(&p);
    free_pair(&p);
    /* Go, and so the Collector, trusts whatever is in the file, also what is no root. */
    server.cert_file = path("leaf.pem");
    client.ca_file = path("leaf.pem");
    p = make_pair_of(&client, &server, "localhost");
    talk(&p, SIZE_MAX);
    assert_ready(&p);
    free_pair(&p);
}

static void test_name_override(void **state)
{
    (void)state;
    struct br_tls_config server = server_config(), client = client_config();
    client.server_name_override = "localhost";
    struct pair p = make_pair_of(&client, &server, "10.1.2.3");
    talk(&p, SIZE_MAX);
    assert_ready(&p);
    disconnect(&p);
    connect_name(&p, NULL);
    talk(&p, SIZE_MAX);
    assert_ready(&p);
    free_pair(&p);
}

static void test_client_needs_a_name(void **state)
{
    (void)state;
    struct br_tls_config client = client_config();
    struct br_tls_context *ctx = context(&client, false, NULL);
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
            struct br_tls_config server = {.cert_file = path2(certs[i], ".pem"),
                                           .key_file = path2(certs[i], ".key")};
            struct br_tls_config client = {.insecure_skip_verify = true};
            struct pair p = make_pair_of(&client, &server, names[j]);
            talk(&p, SIZE_MAX);
            assert_ready(&p);
            free_pair(&p);
        }
    }
}

/* The system's certificates do not know our CA; with both, ours is trusted besides. */
static void test_system_certificates(void **state)
{
    (void)state;
    struct br_tls_config server = server_config(), client = {0};
    struct pair p = make_pair_of(&client, &server, "localhost");
    talk(&p, SIZE_MAX);
    assert_int_equal(p.client.rc, BR_EPROTO);
    assert_says(&p.client.err, "not accepted");
    free_pair(&p);
    client = client_config();
    client.include_system_ca_certs_pool = true;
    p = make_pair_of(&client, &server, "localhost");
    talk(&p, SIZE_MAX);
    assert_ready(&p);
    free_pair(&p);
}

static void test_inline_pem(void **state)
{
    (void)state;
    char *cert = read_text("server.pem"), *key = read_text("server.key"), *ca = read_text("ca.pem");
    struct br_tls_config server = {.cert_pem = {cert}, .key_pem = {key}};
    struct br_tls_config client = {.ca_pem = {ca}};
    struct pair p = make_pair_of(&client, &server, "localhost");
    talk(&p, SIZE_MAX);
    assert_ready(&p);
    free_pair(&p);
    free(cert);
    free(key);
    free(ca);
}

static void test_client_certificates(void **state)
{
    (void)state;
    static const struct {
        const char *cert; /* NULL: none */
        const char *complaint;
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
            struct br_tls_config server = server_config(), client = client_config();
            server.client_ca_file = path("ca.pem");
            client.max_version = client.min_version = versions[v];
            if (rows[i].cert) {
                client.cert_file = path2(rows[i].cert, ".pem");
                client.key_file = path2(rows[i].cert, ".key");
            }
            struct pair p = make_pair_of(&client, &server, "localhost");
            talk(&p, SIZE_MAX);
            if (!rows[i].complaint) {
                assert_ready(&p);
                exchange(&p, 10000, 100, 1000);
            } else {
                assert_int_equal(p.server.rc, BR_EPROTO);
                assert_says(&p.server.err, rows[i].complaint);
                assert_false(br_tls_ready(p.server.tls));
                assert_int_equal(p.client.rc, BR_EPROTO);
                assert_says(&p.client.err, "alert");
            }
            free_pair(&p);
        }
    }
}

/* --- Versions, ciphers, curves --------------------------------------------------------------- */

/* OpenSSL as a client, for what ours would not do. */
struct raw {
    SSL_CTX *ctx;
    SSL *ssl;
};

static struct raw raw_client(int version, const char *ciphers)
{
    struct raw r = {.ctx = SSL_CTX_new(TLS_client_method())};
    SSL_CTX_set_security_level(r.ctx, 0);
    SSL_CTX_set_min_proto_version(r.ctx, version);
    SSL_CTX_set_max_proto_version(r.ctx, version);
    assert_int_equal(SSL_CTX_set_cipher_list(r.ctx, ciphers), 1);
    r.ssl = SSL_new(r.ctx);
    SSL_set_bio(r.ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(r.ssl);
    return r;
}

static void raw_free(struct raw *r)
{
    SSL_free(r->ssl);
    SSL_CTX_free(r->ctx);
}

/* Carries bytes both ways once. */
static void raw_swap(struct raw *r, struct end *server)
{
    char *data;
    long len = BIO_get_mem_data(SSL_get_wbio(r->ssl), &data);
    if (len > 0)
        feed(server, (const uint8_t *)data, (size_t)len);
    (void)BIO_reset(SSL_get_wbio(r->ssl));
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(server->tls, pool, &out), 0);
    for (uint32_t i = 0; i < out.n; i++)
        BIO_write(SSL_get_rbio(r->ssl), out.v[i].data, (int)out.v[i].len);
    br_rope_release(&out);
}

/* Returns what SSL_do_handshake says in the end. */
static int raw_handshake(struct raw *r, struct end *server)
{
    int rc = 0;
    for (int i = 0; i < 6; i++) {
        ERR_clear_error();
        rc = SSL_do_handshake(r->ssl);
        raw_swap(r, server);
    }
    return rc;
}

static struct end server_end(const struct br_tls_config *config)
{
    struct end e = {.ctx = context(config, true, both_protocols)};
    e.tls = br_tls_new(e.ctx, NULL);
    assert_non_null(e.tls);
    return e;
}

static void free_end(struct end *e)
{
    br_tls_free(e->tls);
    br_tls_context_free(e->ctx);
    free(e->got.data);
}

static void test_old_versions_are_refused(void **state)
{
    (void)state;
    static const int versions[] = {TLS1_VERSION, TLS1_1_VERSION};
    for (size_t i = 0; i < BR_COUNT(versions); i++) {
        struct br_tls_config config = server_config();
        struct end server = server_end(&config);
        struct raw client = raw_client(versions[i], "ALL:@SECLEVEL=0");
        assert_int_not_equal(raw_handshake(&client, &server), 1);
        assert_int_equal(server.rc, BR_EPROTO);
        assert_says(&server.err, "protocol");
        assert_false(br_tls_ready(server.tls));
        raw_free(&client);
        free_end(&server);
    }
}

/* What a server takes by default, and with one old suite named. Certificates here are ECDSA. */
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
        struct br_tls_config config = server_config();
        if (rows[i].named)
            config.cipher_suites = (struct br_strings){&cbc, 1};
        struct end server = server_end(&config);
        struct raw client = raw_client(TLS1_2_VERSION, rows[i].offer);
        assert_int_equal(raw_handshake(&client, &server) == 1, rows[i].taken);
        assert_int_equal(br_tls_ready(server.tls), rows[i].taken);
        raw_free(&client);
        free_end(&server);
    }
}

static void test_server_order_wins(void **state)
{
    (void)state;
    struct br_tls_config config = server_config();
    struct end server = server_end(&config);
    struct raw client = raw_client(TLS1_2_VERSION, "ECDHE-ECDSA-CHACHA20-POLY1305:"
                                                   "ECDHE-ECDSA-AES128-GCM-SHA256");
    assert_int_equal(raw_handshake(&client, &server), 1);
    assert_string_equal(SSL_get_cipher_name(client.ssl), "ECDHE-ECDSA-AES128-GCM-SHA256");
    raw_free(&client);
    free_end(&server);
}

static void test_server_order_wins_in_tls13(void **state)
{
    (void)state;
    struct br_tls_config config = server_config();
    struct end server = server_end(&config);
    struct raw client = raw_client(TLS1_3_VERSION, "ALL"); /* OpenSSL's own order: AES-256 first */
    assert_int_equal(raw_handshake(&client, &server), 1);
    assert_string_equal(SSL_get_cipher_name(client.ssl), "TLS_AES_128_GCM_SHA256");
    raw_free(&client);
    free_end(&server);
}

static void test_no_renegotiation(void **state)
{
    (void)state;
    struct br_tls_config config = server_config();
    struct end server = server_end(&config);
    struct raw client = raw_client(TLS1_2_VERSION, "ALL");
    assert_int_equal(raw_handshake(&client, &server), 1);
    assert_int_equal(SSL_renegotiate(client.ssl), 1);
    assert_int_not_equal(raw_handshake(&client, &server), 1);
    raw_free(&client);
    free_end(&server);
}

/* RFC 8446 section 4.6.3: asked for, the other side updates its keys before it writes. */
static void test_key_update(void **state)
{
    (void)state;
    struct br_tls_config config = server_config();
    struct end server = server_end(&config);
    struct raw client = raw_client(TLS1_3_VERSION, "ALL");
    assert_int_equal(raw_handshake(&client, &server), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(SSL_key_update(client.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_write(client.ssl, "ping", 4), 4);
        raw_swap(&client, &server);
        assert_int_equal(server.rc, 0);
        send_bytes(&server, 40000, 16384);
        raw_swap(&client, &server);
        uint8_t got[16384];
        size_t total = 0;
        int n;
        while ((n = SSL_read(client.ssl, got, sizeof got)) > 0) {
            for (int j = 0; j < n; j++)
                assert_int_equal(got[j], byte_at(total + (size_t)j));
            total += (size_t)n;
        }
        assert_int_equal(total, 40000);
    }
    assert_int_equal(server.got.len, 12);
    raw_free(&client);
    free_end(&server);
}

static void test_sessions_resume(void **state)
{
    (void)state;
    struct br_tls_config config = server_config();
    config.client_ca_file = path("ca.pem");
    struct end server = server_end(&config);
    SSL_SESSION *session = NULL;
    for (int round = 0; round < 2; round++) {
        struct raw client = raw_client(TLS1_3_VERSION, "ALL");
        SSL_use_certificate_file(client.ssl, path("client.pem"), SSL_FILETYPE_PEM);
        SSL_use_PrivateKey_file(client.ssl, path("client.key"), SSL_FILETYPE_PEM);
        if (session)
            assert_int_equal(SSL_set_session(client.ssl, session), 1);
        assert_int_equal(raw_handshake(&client, &server), 1);
        send_bytes(&server, 1, 1);
        raw_swap(&client, &server);
        char c;
        assert_int_equal(SSL_read(client.ssl, &c, 1), 1); /* and the tickets before it */
        assert_int_equal(SSL_session_reused(client.ssl), round);
        SSL_SESSION_free(session);
        session = SSL_get1_session(client.ssl);
        SSL_set_shutdown(client.ssl, SSL_SENT_SHUTDOWN); /* without it the session is a bad one */
        raw_free(&client);
        br_tls_free(server.tls);
        server.tls = br_tls_new(server.ctx, NULL);
    }
    SSL_SESSION_free(session);
    free_end(&server);
}

static void test_curves(void **state)
{
    (void)state;
    static const struct {
        const char *server;
        const char *client; /* as OpenSSL writes it */
        bool match;
    } rows[] = {
        {"P256", "P-256", true},    {"P384", "P-384", true},   {"P521", "P-521", true},
        {"X25519", "X25519", true}, {"P256", "X25519", false}, {"X25519", "P-384", false},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = server_config();
        const char *names[] = {"X25519MLKEM768", rows[i].server};
        config.curve_preferences = (struct br_strings){names, 2};
        struct end server = server_end(&config);
        struct raw client = raw_client(TLS1_3_VERSION, "ALL");
        assert_int_equal(SSL_set1_groups_list(client.ssl, rows[i].client), 1);
        assert_int_equal(raw_handshake(&client, &server) == 1, rows[i].match);
        raw_free(&client);
        free_end(&server);
    }
}

/* --- Not TLS at all -------------------------------------------------------------------------- */

static void test_garbage(void **state)
{
    (void)state;
    static const struct {
        const char *text, *complaint;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP without TLS"},
        {"POST /v1/traces HTTP/1.1\r\n\r\n", "HTTP without TLS"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ""},
        {"\x16\x03\x01\xff\xff\x01\x02\x03\x04\x05\x06\x07", ""},
        {"\x17\x03\x03\x01\x01\x01\x02\x03\x04\x05\x06\x07\x08", ""},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = server_config();
        struct end server = server_end(&config);
        char block[20000] = {0};
        memcpy(block, rows[i].text, strlen(rows[i].text));
        feed(&server, (const uint8_t *)block, sizeof block);
        assert_int_equal(server.rc, BR_EPROTO);
        assert_true(server.err.text[0] != '\0');
        assert_says(&server.err, rows[i].complaint);
        assert_false(br_tls_ready(server.tls));
        struct br_rope out = {0};
        assert_int_equal(br_tls_output(server.tls, pool, &out), 0);
        br_rope_release(&out);
        free_end(&server);
    }
}

static void test_client_meets_plain_http(void **state)
{
    (void)state;
    struct br_tls_config config = client_config();
    struct end client = {.ctx = context(&config, false, NULL)};
    client.tls = br_tls_new(client.ctx, "localhost");
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    feed(&client, (const uint8_t *)answer, sizeof answer - 1);
    assert_int_equal(client.rc, BR_EPROTO);
    assert_says(&client.err, "does not speak TLS");
    free_end(&client);
}

/* Every bit of a record counts: bad_record_mac (RFC 8446 section 5.2), and the peer is told. */
static void test_damaged_records(void **state)
{
    (void)state;
    for (size_t at = 5; at < 100; at += 13) {
        struct pair p = make_pair();
        talk(&p, SIZE_MAX);
        send_bytes(&p.client, 100, 100);
        struct br_rope out = {0};
        assert_int_equal(br_tls_output(p.client.tls, pool, &out), 0);
        uint8_t record[256];
        assert_int_equal(out.n, 1);
        memcpy(record, out.v[0].data, out.len);
        record[at] ^= 1;
        feed(&p.server, record, out.len);
        br_rope_release(&out);
        assert_int_equal(p.server.rc, BR_EPROTO);
        assert_int_equal(p.server.got.len, 0);
        struct br_rope none = {0};
        assert_int_equal(br_rope_add(&none, NULL, "x", 1), 0);
        assert_int_equal(br_tls_send(p.server.tls, &none), BR_EPROTO);
        br_rope_release(&none);
        carry(&p.server, &p.client, SIZE_MAX);
        assert_int_equal(p.client.rc, BR_EPROTO);
        assert_says(&p.client.err, "bad record mac");
        free_pair(&p);
    }
}

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
    assert_says(&err, words);
    assert_says(&err, more);
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
        {"empty.pem", "server.key", BR_EINVAL, "empty.pem holds no cert", "BEGIN CERTIFICATE"},
        {"text.pem", "server.key", BR_EINVAL, "text.pem holds no cert", "BEGIN CERTIFICATE"},
        {"server.key", "server.key", BR_EINVAL, "server.key holds no cert", "BEGIN CERTIFICATE"},
        {"damaged.pem", "server.key", BR_EINVAL, "damaged.pem", "certificate 1 is damaged"},
        {"server.pem", "server.pem", BR_EINVAL, "server.pem holds no private key", "PRIVATE KEY"},
        {"server.pem", "text.pem", BR_EINVAL, "text.pem holds no private key", "PRIVATE KEY"},
        {"server.pem", "encrypted.key", BR_EINVAL, "encrypted.key is encrypted", "passphrase"},
        {"server.pem", "client.key", BR_EINVAL, "client.key is not the key", "server.pem"},
        {"reversed.pem", "leaf.key", BR_EINVAL, "leaf.key is not the key", "reversed.pem"},
        {"server.pem", NULL, BR_EINVAL, "server.pem has no key", "key_file"},
        {NULL, "server.key", BR_EINVAL, "server.key has no certificate", "cert_file"},
        {NULL, NULL, BR_EINVAL, "cert_file", "key_file"},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = {0};
        if (rows[i].cert)
            config.cert_file = path(rows[i].cert);
        if (rows[i].key)
            config.key_file = path(rows[i].key);
        assert_refused(&config, true, rows[i].code, rows[i].words, rows[i].more);
        if (rows[i].cert || rows[i].key)
            assert_refused(&config, false, rows[i].code, rows[i].words, rows[i].more);
    }
}

static void test_bad_ca_files(void **state)
{
    (void)state;
    struct br_tls_config server = server_config(), client = {.ca_file = path("nowhere.pem")};
    assert_refused(&client, false, BR_EIO, "ca_file ", "nowhere.pem");
    client.ca_file = path("ca.key");
    assert_refused(&client, false, BR_EINVAL, "ca_file ", "holds no certificate");
    client.ca_pem.text = "x";
    assert_refused(&client, false, BR_EINVAL, "ca_file and ca_pem", "one of them");
    client.ca_file = NULL;
    assert_refused(&client, false, BR_EINVAL, "ca_pem holds no", "BEGIN CERTIFICATE");
    server.client_ca_file = path("empty.pem");
    assert_refused(&server, true, BR_EINVAL, "client_ca_file ", "empty.pem holds no");
    server = server_config();
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
        {"1.1", NULL, NULL, NULL, "min_version is \"1.1\"", "\"1.2\" or \"1.3\""},
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
        {NULL, "1.2", "TLS_AES_128_GCM_SHA256", NULL, "none of TLS 1.2", "max_version"},
        {NULL, NULL, NULL, "P-999", "curve_preferences", "\"P-999\""},
        {NULL, NULL, NULL, "X25519:P-256", "curve_preferences", "X25519:P-256"},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = server_config();
        const char *cipher = rows[i].cipher, *curve = rows[i].curve;
        config.min_version = rows[i].min;
        config.max_version = rows[i].max;
        config.cipher_suites = (struct br_strings){&cipher, cipher ? 1 : 0};
        config.curve_preferences = (struct br_strings){&curve, curve ? 1 : 0};
        assert_refused(&config, true, BR_EINVAL, rows[i].words, rows[i].more);
    }
}

static void test_insecure_ciphers_on_demand(void **state)
{
    (void)state;
    const char *names[] = {"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"};
    struct br_tls_config config = server_config();
    config.cipher_suites = (struct br_strings){names, 1};
    config.include_insecure_cipher_suites = true;
    struct end server = server_end(&config);
    struct raw client = raw_client(TLS1_2_VERSION, "ECDHE-ECDSA-AES128-SHA256");
    assert_int_equal(raw_handshake(&client, &server), 1);
    raw_free(&client);
    free_end(&server);
}

/* Names of TLS 1.3 alone leave TLS 1.2 without a suite. */
static void test_tls13_names_alone(void **state)
{
    (void)state;
    const char *names[] = {"TLS_AES_128_GCM_SHA256"};
    struct br_tls_config server = server_config(), client = client_config();
    server.cipher_suites = (struct br_strings){names, 1};
    struct pair p = make_pair_of(&client, &server, "localhost");
    talk(&p, SIZE_MAX);
    assert_ready(&p);
    free_pair(&p);
    client.max_version = "1.2";
    p = make_pair_of(&client, &server, "localhost");
    talk(&p, SIZE_MAX);
    assert_int_equal(p.server.rc, BR_EPROTO);
    free_pair(&p);
}

static const struct br_option *row(const struct br_option *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0)
        table++;
    return table->name ? table : NULL;
}

/* The Collector's configtls v0.159: Config, and what ServerConfig and ClientConfig add. */
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
    assert_string_equal(row(br_tls_server_options, "min_version")->def.s, "1.2");
    assert_int_equal(row(br_tls_server_options, "key_pem")->kind, BR_OPT_SECRET);
}

/* --- Reload ---------------------------------------------------------------------------------- */

static void install(const char *name)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s.key", name);
    copy_text(file, "live.key");
    (void)snprintf(file, sizeof file, "%s.pem", name);
    copy_text(file, "live.pem");
}

static bool connects(struct pair *p)
{
    connect_name(p, "localhost");
    talk(p, SIZE_MAX);
    bool ready = br_tls_ready(p->client.tls) && br_tls_ready(p->server.tls);
    disconnect(p);
    return ready;
}

static void test_reload(void **state)
{
    (void)state;
    install("server");
    struct br_tls_config server = {
        .cert_file = path("live.pem"), .key_file = path("live.key"), .reload_interval = 1};
    struct br_tls_config ours = client_config(), theirs = {.ca_file = path("other_ca.pem")};
    struct pair old = make_pair_of(&ours, &server, "localhost");
    talk(&old, SIZE_MAX);
    assert_ready(&old);
    struct pair fresh = {0};
    fresh.server.ctx = old.server.ctx;
    fresh.client.ctx = context(&theirs, false, both_protocols);
    struct br_err err = {0};
    assert_false(connects(&fresh));

    install("other_server");
    assert_true(connects(&fresh));
    assert_false(br_tls_context_reload_error(fresh.server.ctx, &err));
    exchange(&old, 50000, 1000, 1000); /* nobody is cut off */

    write_text("live.pem", "half a certif");
    assert_true(connects(&fresh));
    assert_true(br_tls_context_reload_error(fresh.server.ctx, &err));
    assert_says(&err, "live.pem holds no certificate");
    assert_false(br_tls_context_reload_error(fresh.server.ctx, &err));
    unlink(path("live.pem"));
    assert_true(connects(&fresh));
    assert_true(br_tls_context_reload_error(fresh.server.ctx, &err));
    assert_says(&err, "cannot be opened");
    copy_text("server.key", "live.key");
    copy_text("other_server.pem", "live.pem");
    assert_true(connects(&fresh));
    assert_true(br_tls_context_reload_error(fresh.server.ctx, &err));
    assert_says(&err, "live.key is not the key");

    install("server");
    assert_false(connects(&fresh));
    assert_false(br_tls_context_reload_error(fresh.server.ctx, &err));
    br_tls_context_free(fresh.client.ctx);
    free_pair(&old);
}

static void test_no_reload_unless_asked(void **state)
{
    (void)state;
    install("server");
    struct br_tls_config server = {.cert_file = path("live.pem"), .key_file = path("live.key")};
    struct br_tls_config client = client_config();
    struct pair p = make_pair_of(&client, &server, "localhost");
    disconnect(&p);
    install("other_server");
    assert_true(connects(&p));
    free_pair(&p);
    server.reload_interval = 3600ull * 1000000000ull;
    install("server");
    p = make_pair_of(&client, &server, "localhost");
    disconnect(&p);
    install("other_server");
    assert_true(connects(&p)); /* not yet */
    free_pair(&p);
}

/* The client CA is looked at only where that is asked for, and apart from the certificate. */
static void test_client_ca_reload(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        install("server");
        copy_text("ca.pem", "live_ca.pem");
        struct br_tls_config server = {.cert_file = path("live.pem"),
                                       .key_file = path("live.key"),
                                       .client_ca_file = path("live_ca.pem"),
                                       .reload_interval = 1,
                                       .client_ca_file_reload = asked == 1};
        struct br_tls_config client = client_config();
        client.cert_file = path("stranger.pem");
        client.key_file = path("stranger.key");
        struct pair p = make_pair_of(&client, &server, "localhost");
        disconnect(&p);
        assert_false(connects(&p));
        copy_text("other_ca.pem", "live_ca.pem");
        assert_int_equal(connects(&p), asked);
        struct br_err err = {0};
        write_text("live_ca.pem", "bad");
        write_text("live.pem", "bad as well");
        assert_int_equal(connects(&p), asked);
        assert_true(br_tls_context_reload_error(p.server.ctx, &err));
        assert_says(&err, asked ? "live_ca.pem" : "live.pem");
        free_pair(&p);
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
        .cert_file = path("live.pem"), .key_file = path("live.key"), .reload_interval = 1};
    struct br_tls_context *ctx = context(&server, true, both_protocols);
    pthread_t threads[3];
    for (size_t i = 0; i < BR_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, connect_often, ctx), 0);
    for (int i = 0; i < 50; i++)
        install(i % 2 ? "server" : "other_server");
    for (size_t i = 0; i < BR_COUNT(threads); i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    br_tls_context_free(ctx);
}

/* --- No memory ------------------------------------------------------------------------------- */

static long allocations_left;

static void *scarce_alloc(size_t size)
{
    return allocations_left-- > 0 ? malloc(size) : NULL;
}

static void *scarce_resize(void *p, size_t size)
{
    return allocations_left-- > 0 ? realloc(p, size) : NULL;
}

/* Handshake, data and goodbye, stopping at the first complaint; 0 when all of it went well. */
static int life(const struct br_tls_config *client, const struct br_tls_config *server)
{
    struct br_tls_context *ctxs[2] = {NULL, NULL};
    struct br_tls *ends[2] = {NULL, NULL};
    struct br_rope out = {0}, plain = {0};
    struct bytes none = {0};
    uint8_t *text = calloc(1, 40000);
    int rc = br_tls_context_new(client, false, both_protocols, &ctxs[0], NULL);
    if (!rc)
        rc = br_tls_context_new(server, true, both_protocols, &ctxs[1], NULL);
    for (int i = 0; i < 2 && !rc; i++) {
        ends[i] = br_tls_new(ctxs[i], i ? NULL : "localhost");
        rc = ends[i] ? 0 : BR_ENOMEM;
    }
    for (int turn = 0; turn < 8 && !rc; turn++) {
        struct br_tls *from = ends[turn % 2], *to = ends[1 - turn % 2];
        if (turn == 4) {
            rc = br_rope_add(&plain, NULL, text, 40000);
            if (!rc)
                rc = br_tls_send(from, &plain);
        }
        if (turn == 5)
            br_tls_close(from);
        if (!rc)
            rc = br_tls_output(from, pool, &out);
        for (uint32_t i = 0; i < out.n && !rc; i++) {
            struct end sink = {.got = none};
            rc = br_tls_input(to, out.v[i].data, out.v[i].len, on_plain, &sink, NULL);
            free(sink.got.data);
        }
        br_rope_release(&out);
    }
    for (int i = 0; i < 2; i++) {
        br_tls_free(ends[i]);
        br_tls_context_free(ctxs[i]);
    }
    br_rope_release(&plain);
    free(text);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    static const struct br_mem_hooks scarce = {scarce_alloc, scarce_resize, free};
    const char *suites[] = {"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, *curves[] = {"P256"};
    struct br_tls_config server = server_config(), client = client_config();
    server.cipher_suites = (struct br_strings){suites, 1};
    server.curve_preferences = (struct br_strings){curves, 1};
    br_pool_trim(pool);
    int rc = BR_ENOMEM;
    long n = 0;
    br_mem_set_hooks(&scarce);
    for (; rc == BR_ENOMEM && n < 1000; n++) {
        allocations_left = n;
        rc = life(&client, &server);
        br_pool_trim(pool);
    }
    br_mem_set_hooks(NULL);
    assert_int_equal(rc, BR_ECLOSED); /* the end that is wanted */
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handshake),
        cmocka_unit_test(test_handshake_in_any_pieces),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_output_is_compact),
        cmocka_unit_test(test_reader_may_refuse),
        cmocka_unit_test(test_send_needs_a_handshake),
        cmocka_unit_test(test_close_notify),
        cmocka_unit_test(test_alpn),
        cmocka_unit_test(test_alpn_without_match),
        cmocka_unit_test(test_alpn_lists_are_checked),
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
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_client_meets_plain_http),
        cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_ca_files),
        cmocka_unit_test(test_bad_policy),
        cmocka_unit_test(test_insecure_ciphers_on_demand),
        cmocka_unit_test(test_tls13_names_alone),
        cmocka_unit_test(test_option_tables),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_no_reload_unless_asked),
        cmocka_unit_test(test_client_ca_reload),
        cmocka_unit_test(test_reload_among_threads),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
