/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "net/tls_internal.h"

/* A record of RECORD bytes of plaintext is at most PIECE bytes with any AEAD cipher (5 of header, 8
 * of nonce, 16 of tag, 1 of type), so that it fills one buffer. */
#define PIECE 16384u
#define RECORD (PIECE - 64u)
#define PLAIN_MAX 16384u

/* What OpenSSL may want to say without being asked: the longest is a flight with a certificate
 * chain (it takes 100 KiB of the peer's at the most); a peer that asks for key updates and never
 * reads the answers ends here. */
#define CONTROL_MAX (256u << 10)

struct br_tls {
    struct br_tls_context *ctx;
    SSL *ssl;
    const uint8_t *in; /* what the BIO reads: input's argument */
    size_t in_len;
    struct br_str control; /* what the BIO wrote outside of br_tls_output */
    struct br_rope plain;  /* to encrypt */
    size_t plain_left;     /* of it, while in br_tls_output */
    struct br_pool *pool;  /* while in br_tls_output, else NULL */
    struct br_rope *out;   /* likewise */
    struct br_buf *piece;  /* likewise: being filled, not in `out` yet */
    int in_code, out_code; /* not 0: what ended the direction */
    bool server, ready;
    bool closing; /* close_notify is asked for */
    bool closed;  /* and written */
    bool broken;  /* OpenSSL failed: it may not be called again */
    char alpn[BR_TLS_ALPN_MAX];
};

/* --- The BIO --------------------------------------------------------------------------------- */

static int seal_piece(struct br_tls *t)
{
    if (!t->piece)
        return 0;
    int rc = br_rope_add(t->out, t->piece, t->piece->data, t->piece->len);
    t->piece = br_buf_unref(t->piece);
    return rc;
}

/* Appends to the piece, starting new ones as they fill. */
static int emit(struct br_tls *t, const uint8_t *data, size_t len)
{
    while (len > 0) {
        if (t->piece && t->piece->len == t->piece->cap && seal_piece(t))
            return BR_ENOMEM;
        if (!t->piece) {
            size_t want = len + t->plain_left + (t->plain_left || t->closing ? 64 : 0);
            t->piece = br_buf_new(t->pool, want < PIECE ? want : PIECE);
            if (!t->piece)
                return BR_ENOMEM;
        }
        size_t n = t->piece->cap - t->piece->len;
        if (n > len)
            n = len;
        memcpy(t->piece->data + t->piece->len, data, n);
        t->piece->len += (uint32_t)n;
        data += n;
        len -= n;
    }
    return 0;
}

static int on_bio_write(BIO *bio, const char *data, size_t len, size_t *ret_written)
{
    struct br_tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (t->pool) {
        if (emit(t, (const uint8_t *)data, len))
            return 0;
    } else {
        br_str_add(&t->control, data, len);
        if (t->control.failed)
            return 0;
    }
    *ret_written = len;
    return 1;
}

static int on_bio_read(BIO *bio, char *data, size_t size, size_t *ret_read)
{
    struct br_tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (t->in_len == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    size_t n = size < t->in_len ? size : t->in_len;
    memcpy(data, t->in, n);
    t->in += n;
    t->in_len -= n;
    *ret_read = n;
    return 1;
}

static long on_bio_ctrl(BIO *bio, int command, long number, void *arg)
{
    (void)bio;
    (void)number;
    (void)arg;
    return command == BIO_CTRL_FLUSH;
}

BIO_METHOD *br_tls_bio_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "braid");
    if (m && BIO_meth_set_write_ex(m, on_bio_write) && BIO_meth_set_read_ex(m, on_bio_read) &&
        BIO_meth_set_ctrl(m, on_bio_ctrl))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* --- Life ------------------------------------------------------------------------------------ */

static bool set_bio(struct br_tls *t)
{
    BIO *bio = BIO_new(t->ctx->bio);
    if (!bio)
        return false;
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    return true;
}

/* An address is verified as such and is no SNI (RFC 6066 section 3). Without a name nothing could
 * be verified, which must not mean that anything goes. */
static bool set_peer_name(struct br_tls *t, const char *name)
{
    const struct br_tls_config *config = &t->ctx->config;
    X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);
    if (config->server_name_override && *config->server_name_override)
        name = config->server_name_override;
    if (!name || !*name)
        return config->insecure_skip_verify;
    if (X509_VERIFY_PARAM_set1_ip_asc(param, name))
        return true;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                               X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, name, 0) && SSL_set_tlsext_host_name(t->ssl, name);
}

static bool start(struct br_tls *t, const char *server_name)
{
    SSL_CTX *ssl_ctx = br_tls_context_current(t->ctx);
    t->ssl = SSL_new(ssl_ctx);
    SSL_CTX_free(ssl_ctx);
    if (!t->ssl || !set_bio(t))
        return false;
    if (t->server) {
        SSL_set_accept_state(t->ssl);
        return true;
    }
    if (!set_peer_name(t, server_name))
        return false;
    ERR_clear_error(); /* asking whether a name is an address leaves something there */
    SSL_set_connect_state(t->ssl);
    return SSL_get_error(t->ssl, SSL_do_handshake(t->ssl)) == SSL_ERROR_WANT_READ;
}

struct br_tls *br_tls_new(struct br_tls_context *ctx, const char *server_name)
{
    struct br_tls *t = br_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->ctx = ctx;
    t->server = ctx->server;
    t->control.max = CONTROL_MAX;
    ERR_clear_error();
    if (start(t, server_name))
        return t;
    br_tls_free(t);
    return NULL;
}

void br_tls_free(struct br_tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    br_str_release(&t->control);
    br_rope_release(&t->plain);
    br_free(t);
}

bool br_tls_ready(const struct br_tls *t)
{
    return t->ready;
}

const char *br_tls_alpn(const struct br_tls *t)
{
    return t->alpn;
}

/* --- In -------------------------------------------------------------------------------------- */

static int verify_failed(const struct br_tls *t, struct br_err *err)
{
    long why = SSL_get_verify_result(t->ssl);
    const char *peer = t->server ? "client" : "server";
    if (why == X509_V_ERR_HOSTNAME_MISMATCH || why == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        const char *host = X509_VERIFY_PARAM_get0_host(SSL_get0_param(t->ssl), 0);
        return br_err_set(
            err, BR_EPROTO,
            "The server's certificate is not for %.255s: its subjectAltName has to have "
            "that, or server_name_override has to be what it has.",
            host ? host : "this address");
    }
    return br_err_set(err, BR_EPROTO, "The %s's certificate is not accepted: %s.", peer,
                      X509_verify_cert_error_string(why));
}

static int ssl_failed(const struct br_tls *t, int reason, struct br_err *err)
{
    switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return verify_failed(t, err);
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return br_err_set(err, BR_EPROTO,
                          "The client gave no certificate, which client_ca_file asks "
                          "for.");
    case SSL_R_HTTP_REQUEST:
        return br_err_set(err, BR_EPROTO, "The client speaks HTTP without TLS.");
    case SSL_R_WRONG_VERSION_NUMBER:
        return br_err_set(err, BR_EPROTO, "The peer does not speak TLS.");
    default:
        if (reason > SSL_AD_REASON_OFFSET)
            return br_err_set(err, BR_EPROTO, "The peer ended TLS with the alert \"%s\".",
                              SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET));
        return br_err_set(err, BR_EPROTO, "TLS failed: %s.", br_tls_reason());
    }
}

/* What the call of OpenSSL that returned `rc` says: 0 when it only wants more bytes. */
static int explain(struct br_tls *t, int rc, struct br_err *err)
{
    int kind = SSL_get_error(t->ssl, rc);
    if (kind == SSL_ERROR_WANT_READ)
        return 0;
    if (kind == SSL_ERROR_ZERO_RETURN)
        return br_err_set(err, BR_ECLOSED, "The peer closed TLS.");
    t->broken = true;
    unsigned long e = ERR_peek_error();
    if (t->control.failed && t->control.len > CONTROL_MAX / 2)
        return br_err_set(err, BR_EPROTO, "The peer asks for TLS messages and does not read them.");
    if (t->control.failed || ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE)
        return br_tls_no_memory(err);
    if (ERR_GET_LIB(e) == ERR_LIB_SSL)
        return ssl_failed(t, ERR_GET_REASON(e), err);
    return br_err_set(err, BR_EPROTO, "TLS failed: %s.", br_tls_reason());
}

static void keep_alpn(struct br_tls *t)
{
    const unsigned char *name;
    unsigned len;
    SSL_get0_alpn_selected(t->ssl, &name, &len);
    if (len >= sizeof t->alpn)
        return;
    if (len)
        memcpy(t->alpn, name, len);
    t->alpn[len] = '\0';
}

static int shake_hands(struct br_tls *t, struct br_err *err)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(t->ssl);
    if (rc != 1)
        return explain(t, rc, err);
    t->ready = true;
    keep_alpn(t);
    return 0;
}

static int read_records(struct br_tls *t,
                        int (*on_plain)(void *arg, const uint8_t *data, size_t len), void *arg,
                        struct br_err *err)
{
    uint8_t plain[PLAIN_MAX];
    for (;;) {
        ERR_clear_error();
        int n = SSL_read(t->ssl, plain, (int)sizeof plain);
        if (n <= 0)
            return explain(t, n, err);
        int rc = on_plain(arg, plain, (size_t)n);
        if (rc)
            return rc;
    }
}

static int repeated(const struct br_tls *t, struct br_err *err)
{
    return br_err_set(err, t->in_code, "TLS has ended before.");
}

int br_tls_input(struct br_tls *t, const uint8_t *data, size_t len,
                 int (*on_plain)(void *arg, const uint8_t *data, size_t len), void *arg,
                 struct br_err *err)
{
    if (t->in_code)
        return repeated(t, err);
    if (t->broken)
        return t->in_code = br_err_set(err, BR_EPROTO, "TLS has ended before.");
    t->in = data;
    t->in_len = len;
    int rc = t->ready ? 0 : shake_hands(t, err);
    if (!rc && t->ready)
        rc = read_records(t, on_plain, arg, err);
    t->in = NULL;
    t->in_len = 0;
    return t->in_code = rc;
}

/* --- Out ------------------------------------------------------------------------------------- */

int br_tls_send(struct br_tls *t, const struct br_rope *plain)
{
    if (!t->ready || t->closing || t->broken || t->out_code)
        return BR_EPROTO;
    return t->out_code = br_rope_cat(&t->plain, plain);
}

void br_tls_close(struct br_tls *t)
{
    t->closing = true;
}

static int drain_control(struct br_tls *t)
{
    int rc = emit(t, (const uint8_t *)t->control.data, t->control.len);
    br_str_release(&t->control);
    return rc;
}

static int encrypt(struct br_tls *t, const uint8_t *data, size_t len)
{
    t->plain_left -= len;
    ERR_clear_error();
    if (SSL_write(t->ssl, data, (int)len) == (int)len)
        return 0;
    t->broken = true;
    return ERR_peek_error() && ERR_GET_REASON(ERR_peek_error()) != ERR_R_MALLOC_FAILURE ? BR_EPROTO
                                                                                        : BR_ENOMEM;
}

/* Full records: out of a slice directly where it has that much, out of `record` where small slices
 * have to be put together first. */
static int encrypt_plain(struct br_tls *t)
{
    uint8_t record[RECORD];
    size_t filled = 0;
    int rc = 0;
    for (uint32_t i = 0; i < t->plain.n && !rc; i++) {
        const uint8_t *p = t->plain.v[i].data;
        size_t left = t->plain.v[i].len;
        while (left > 0 && !rc) {
            bool direct = filled == 0 && left >= RECORD;
            size_t n = left < RECORD - filled ? left : RECORD - filled;
            if (!direct)
                memcpy(record + filled, p, n);
            p += n;
            left -= n;
            filled += n;
            if (filled < RECORD)
                continue;
            rc = encrypt(t, direct ? p - n : record, RECORD);
            filled = 0;
        }
    }
    return rc || filled == 0 ? rc : encrypt(t, record, filled);
}

/* As br_rope_release, but a list of usual length stays for the next time. */
static void clear_plain(struct br_tls *t)
{
    if (t->plain.cap > 64) {
        br_rope_release(&t->plain);
        return;
    }
    for (uint32_t i = 0; i < t->plain.n; i++)
        br_buf_unref(t->plain.v[i].buf);
    t->plain.n = 0;
    t->plain.len = 0;
}

static int say_goodbye(struct br_tls *t)
{
    t->closed = true;
    ERR_clear_error();
    return SSL_shutdown(t->ssl) < 0 ? BR_ENOMEM : 0;
}

static int fill_pieces(struct br_tls *t)
{
    int rc = t->control.len ? drain_control(t) : 0;
    if (rc || t->broken || !t->ready)
        return rc;
    if (t->plain.len)
        rc = encrypt_plain(t);
    if (!rc && t->closing && !t->closed)
        rc = say_goodbye(t);
    return rc;
}

int br_tls_output(struct br_tls *t, struct br_pool *pool, struct br_rope *out)
{
    if (t->out_code)
        return t->out_code;
    t->pool = pool;
    t->out = out;
    t->plain_left = t->ready ? t->plain.len : 0;
    int rc = fill_pieces(t);
    int sealed = seal_piece(t);
    t->pool = NULL;
    t->out = NULL;
    clear_plain(t);
    return t->out_code = rc ? rc : sealed;
}
