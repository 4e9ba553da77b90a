/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "net/tls_internal.h"

/* RECORD bytes of plaintext become a TLS record of at most PIECE bytes with any AEAD cipher, so
 * the record fits one buffer. The overhead of a record, in bytes, is a header (5), a nonce (8),
 * a tag (16) and a type (1). */
#define PIECE 16384u
#define RECORD (PIECE - 64u)
#define PLAIN_MAX 16384u

/* Maximum of pending output, in bytes, that OpenSSL produces by itself. The maximum covers a
 * handshake flight with a certificate chain: OpenSSL accepts chains up to 100 KiB. A peer that
 * requests key updates without reading the responses exceeds the maximum, and its connection is
 * closed. */
#define CONTROL_MAX (256u << 10)

struct br_tls {
    struct br_tls_context *ctx;
    SSL *ssl;
    const uint8_t *in; /* ciphertext that the BIO reads: the argument of br_tls_input */
    size_t in_len;
    /* ciphertext that the BIO received while br_tls_output was not running */
    struct br_str control;
    struct br_rope plain; /* plaintext to encrypt */
    size_t plain_left;    /* bytes of `plain` that br_tls_output has not encrypted yet */
    struct br_pool *pool; /* memory pool of the current br_tls_output call; otherwise NULL */
    struct br_rope *out;  /* argument `out` of the current br_tls_output call; otherwise NULL */
    /* buffer that br_tls_output is filling with ciphertext, not yet in `out` */
    struct br_buf *piece;
    /* `in_code`: error code that ended the input; `out_code`: error code that ended the output;
     * 0: not ended */
    int in_code, out_code;
    bool server, ready;
    bool closing; /* close_notify was requested */
    bool closed;  /* close_notify was written */
    bool broken;  /* OpenSSL failed and must not be called again */
    char alpn[BR_TLS_ALPN_MAX];
};

/* --- The BIO --------------------------------------------------------------------------------- */

static int net_tls_seal_piece(struct br_tls *tls)
{
    if (!tls->piece)
        return 0;
    int rc = br_rope_add(tls->out, tls->piece, tls->piece->data, tls->piece->len);
    tls->piece = br_buf_unref(tls->piece);
    return rc;
}

/* Appends ciphertext to the current piece, and starts a new piece when the current piece is
 * full. */
static int net_tls_emit(struct br_tls *tls, const uint8_t *data, size_t len)
{
    while (len > 0) {
        if (tls->piece && tls->piece->len == tls->piece->cap && net_tls_seal_piece(tls))
            return BR_ENOMEM;
        if (!tls->piece) {
            size_t want = len + tls->plain_left + (tls->plain_left || tls->closing ? 64 : 0);
            tls->piece = br_buf_new(tls->pool, want < PIECE ? want : PIECE);
            if (!tls->piece)
                return BR_ENOMEM;
        }
        size_t n = tls->piece->cap - tls->piece->len;
        if (n > len)
            n = len;
        memcpy(tls->piece->data + tls->piece->len, data, n);
        tls->piece->len += (uint32_t)n;
        data += n;
        len -= n;
    }
    return 0;
}

static int net_tls_on_bio_write(BIO *bio, const char *data, size_t len, size_t *ret_written)
{
    struct br_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (tls->pool) {
        if (net_tls_emit(tls, (const uint8_t *)data, len))
            return 0;
    } else {
        br_str_add(&tls->control, data, len);
        if (tls->control.failed)
            return 0;
    }
    *ret_written = len;
    return 1;
}

static int net_tls_on_bio_read(BIO *bio, char *data, size_t size, size_t *ret_read)
{
    struct br_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (tls->in_len == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    size_t n = size < tls->in_len ? size : tls->in_len;
    memcpy(data, tls->in, n);
    tls->in += n;
    tls->in_len -= n;
    *ret_read = n;
    return 1;
}

static long net_tls_on_bio_ctrl(BIO *bio, int command, long number, void *arg)
{
    (void)bio;
    (void)number;
    (void)arg;
    return command == BIO_CTRL_FLUSH;
}

BIO_METHOD *br_tls_bio_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "braid");
    if (m && BIO_meth_set_write_ex(m, net_tls_on_bio_write) &&
        BIO_meth_set_read_ex(m, net_tls_on_bio_read) && BIO_meth_set_ctrl(m, net_tls_on_bio_ctrl))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* --- Creation and release -----------------------------------------------------------------------
 */

static bool net_tls_set_bio(struct br_tls *tls)
{
    BIO *bio = BIO_new(tls->ctx->bio);
    if (!bio)
        return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    return true;
}

/* Sets the name or address that the server's certificate must have. An address is not sent as
 * SNI (RFC 6066 section 3). Fails if `name` is missing, because verification would then accept
 * every certificate. */
static bool net_tls_set_peer_name(struct br_tls *tls, const char *name)
{
    const struct br_tls_config *config = &tls->ctx->config;
    X509_VERIFY_PARAM *param = SSL_get0_param(tls->ssl);
    if (config->server_name_override && *config->server_name_override)
        name = config->server_name_override;
    if (!name || !*name)
        return config->insecure_skip_verify;
    if (X509_VERIFY_PARAM_set1_ip_asc(param, name))
        return true;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                               X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, name, 0) && SSL_set_tlsext_host_name(tls->ssl, name);
}

static bool net_tls_start(struct br_tls *tls, const char *server_name)
{
    SSL_CTX *ssl_ctx = br_tls_context_current(tls->ctx);
    tls->ssl = SSL_new(ssl_ctx);
    SSL_CTX_free(ssl_ctx);
    if (!tls->ssl || !net_tls_set_bio(tls))
        return false;
    if (tls->server) {
        SSL_set_accept_state(tls->ssl);
        return true;
    }
    if (!net_tls_set_peer_name(tls, server_name))
        return false;
    /* if the name is not an address, OpenSSL has added an error to its queue */
    ERR_clear_error();
    SSL_set_connect_state(tls->ssl);
    return SSL_get_error(tls->ssl, SSL_do_handshake(tls->ssl)) == SSL_ERROR_WANT_READ;
}

struct br_tls *br_tls_new(struct br_tls_context *ctx, const char *server_name)
{
    struct br_tls *tls = br_calloc(1, sizeof *tls);
    if (!tls)
        return NULL;
    tls->ctx = ctx;
    tls->server = ctx->server;
    tls->control.max = CONTROL_MAX;
    ERR_clear_error();
    if (net_tls_start(tls, server_name))
        return tls;
    br_tls_free(tls);
    return NULL;
}

void br_tls_free(struct br_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    br_str_release(&tls->control);
    br_rope_release(&tls->plain);
    br_free(tls);
}

bool br_tls_ready(const struct br_tls *tls)
{
    return tls->ready;
}

const char *br_tls_alpn(const struct br_tls *tls)
{
    return tls->alpn;
}

/* --- Input --------------------------------------------------------------------------------------
 */

static int net_tls_verify_failed(const struct br_tls *tls, struct br_err *err)
{
    long why = SSL_get_verify_result(tls->ssl);
    const char *peer = tls->server ? "client" : "server";
    if (why == X509_V_ERR_HOSTNAME_MISMATCH || why == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        const char *host = X509_VERIFY_PARAM_get0_host(SSL_get0_param(tls->ssl), 0);
        return br_err_set(
            err, BR_EPROTO,
            "the server's certificate is not valid for %.255s: add that to its subjectAltName, or "
            "set server_name_override to a name that it contains",
            host ? host : "this address");
    }
    return br_err_set(err, BR_EPROTO, "the %s's certificate is not accepted: %s", peer,
                      X509_verify_cert_error_string(why));
}

/* Returns true for a gRPC client, which offers only h2. */
static bool net_tls_offers_h2_only(const struct br_tls *tls)
{
    const uint8_t *alpn = tls->ctx->alpn;
    return !tls->server && tls->ctx->alpn_len == 3 && memcmp(alpn, "\002h2", 3) == 0;
}

static int net_tls_alert(int reason, struct br_err *err)
{
    return br_err_set(err, BR_EPROTO, "the peer ended TLS with the alert \"%s\"",
                      SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET));
}

static int net_tls_ssl_failed(const struct br_tls *tls, int reason, struct br_err *err)
{
    switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return net_tls_verify_failed(tls, err);
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return br_err_set(err, BR_EPROTO,
                          "the client sent no certificate, which client_ca_file requires");
    case SSL_R_HTTP_REQUEST:
        return br_err_set(err, BR_EPROTO, "the client speaks HTTP without TLS");
    case SSL_R_WRONG_VERSION_NUMBER:
        return br_err_set(err, BR_EPROTO,
                          tls->server ? "the client does not speak TLS"
                                      : "the server does not speak TLS; use http:// or "
                                        "tls::insecure");
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
        if (net_tls_offers_h2_only(tls))
            return br_err_set(err, BR_EPROTO,
                              "the server does not offer HTTP/2, which gRPC requires; use its gRPC "
                              "port (OTLP: 4317), or the exporter otlphttp");
        return net_tls_alert(reason, err);
    default:
        if (reason > SSL_AD_REASON_OFFSET)
            return net_tls_alert(reason, err);
        return br_err_set(err, BR_EPROTO, "TLS failed: %s", br_tls_reason());
    }
}

/* Returns the error code for the result `rc` of an OpenSSL call. Returns 0 if OpenSSL only needs
 * more input. */
static int net_tls_explain(struct br_tls *tls, int rc, struct br_err *err)
{
    int kind = SSL_get_error(tls->ssl, rc);
    if (kind == SSL_ERROR_WANT_READ)
        return 0;
    if (kind == SSL_ERROR_ZERO_RETURN)
        return br_err_set(err, BR_ECLOSED, "the peer closed TLS");
    tls->broken = true;
    unsigned long e = ERR_peek_error();
    if (tls->control.failed && tls->control.len > CONTROL_MAX / 2)
        return br_err_set(err, BR_EPROTO, "the peer requests TLS messages and does not read them");
    if (tls->control.failed || ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE)
        return br_tls_no_memory(err);
    if (ERR_GET_LIB(e) == ERR_LIB_SSL)
        return net_tls_ssl_failed(tls, ERR_GET_REASON(e), err);
    return br_err_set(err, BR_EPROTO, "TLS failed: %s", br_tls_reason());
}

static void net_tls_store_alpn(struct br_tls *tls)
{
    const unsigned char *name;
    unsigned len;
    SSL_get0_alpn_selected(tls->ssl, &name, &len);
    if (len >= sizeof tls->alpn)
        return;
    if (len)
        memcpy(tls->alpn, name, len);
    tls->alpn[len] = '\0';
}

static int net_tls_shake_hands(struct br_tls *tls, struct br_err *err)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(tls->ssl);
    if (rc != 1)
        return net_tls_explain(tls, rc, err);
    tls->ready = true;
    net_tls_store_alpn(tls);
    return 0;
}

static int net_tls_read_records(struct br_tls *tls,
                                int (*on_plain)(void *arg, const uint8_t *data, size_t len),
                                void *arg, struct br_err *err)
{
    uint8_t plain[PLAIN_MAX];
    for (;;) {
        ERR_clear_error();
        int n = SSL_read(tls->ssl, plain, (int)sizeof plain);
        if (n <= 0)
            return net_tls_explain(tls, n, err);
        int rc = on_plain(arg, plain, (size_t)n);
        if (rc)
            return rc;
    }
}

static int net_tls_repeated(const struct br_tls *tls, struct br_err *err)
{
    return br_err_set(err, tls->in_code, "TLS has already ended");
}

int br_tls_input(struct br_tls *tls, const uint8_t *data, size_t len,
                 int (*on_plain)(void *arg, const uint8_t *data, size_t len), void *arg,
                 struct br_err *err)
{
    if (tls->in_code)
        return net_tls_repeated(tls, err);
    if (tls->broken)
        return tls->in_code = br_err_set(err, BR_EPROTO, "TLS has already ended");
    tls->in = data;
    tls->in_len = len;
    int rc = tls->ready ? 0 : net_tls_shake_hands(tls, err);
    if (!rc && tls->ready)
        rc = net_tls_read_records(tls, on_plain, arg, err);
    tls->in = NULL;
    tls->in_len = 0;
    return tls->in_code = rc;
}

/* --- Output -------------------------------------------------------------------------------------
 */

int br_tls_send(struct br_tls *tls, const struct br_rope *plain)
{
    if (!tls->ready || tls->closing || tls->broken || tls->out_code)
        return BR_EPROTO;
    return tls->out_code = br_rope_cat(&tls->plain, plain);
}

void br_tls_close(struct br_tls *tls)
{
    tls->closing = true;
}

static int net_tls_drain_control(struct br_tls *tls)
{
    int rc = net_tls_emit(tls, (const uint8_t *)tls->control.data, tls->control.len);
    br_str_release(&tls->control);
    return rc;
}

static int net_tls_encrypt(struct br_tls *tls, const uint8_t *data, size_t len)
{
    tls->plain_left -= len;
    ERR_clear_error();
    if (SSL_write(tls->ssl, data, (int)len) == (int)len)
        return 0;
    tls->broken = true;
    return ERR_peek_error() && ERR_GET_REASON(ERR_peek_error()) != ERR_R_MALLOC_FAILURE ? BR_EPROTO
                                                                                        : BR_ENOMEM;
}

/* Encrypts full records. Large slices are encrypted without a copy; small slices are first
 * collected in `record`. */
static int net_tls_encrypt_plain(struct br_tls *tls)
{
    uint8_t record[RECORD];
    size_t filled = 0;
    int rc = 0;
    for (uint32_t i = 0; i < tls->plain.count && !rc; i++) {
        const uint8_t *p = tls->plain.slices[i].data;
        size_t left = tls->plain.slices[i].len;
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
            rc = net_tls_encrypt(tls, direct ? p - n : record, RECORD);
            filled = 0;
        }
    }
    return rc || filled == 0 ? rc : net_tls_encrypt(tls, record, filled);
}

/* Releases the plaintext, and keeps the slice array for the next output unless it is very long. */
static void net_tls_clear_plain(struct br_tls *tls)
{
    if (tls->plain.cap > 64) {
        br_rope_release(&tls->plain);
        return;
    }
    for (uint32_t i = 0; i < tls->plain.count; i++)
        br_buf_unref(tls->plain.slices[i].buf);
    tls->plain.count = 0;
    tls->plain.len = 0;
}

static int net_tls_send_close_notify(struct br_tls *tls)
{
    tls->closed = true;
    ERR_clear_error();
    return SSL_shutdown(tls->ssl) < 0 ? BR_ENOMEM : 0;
}

static int net_tls_fill_pieces(struct br_tls *tls)
{
    int rc = tls->control.len ? net_tls_drain_control(tls) : 0;
    if (rc || tls->broken || !tls->ready)
        return rc;
    if (tls->plain.len)
        rc = net_tls_encrypt_plain(tls);
    if (!rc && tls->closing && !tls->closed)
        rc = net_tls_send_close_notify(tls);
    return rc;
}

int br_tls_output(struct br_tls *tls, struct br_pool *pool, struct br_rope *out)
{
    if (tls->out_code)
        return tls->out_code;
    tls->pool = pool;
    tls->out = out;
    tls->plain_left = tls->ready ? tls->plain.len : 0;
    int rc = net_tls_fill_pieces(tls);
    int sealed = net_tls_seal_piece(tls);
    tls->pool = NULL;
    tls->out = NULL;
    net_tls_clear_plain(tls);
    return tls->out_code = rc ? rc : sealed;
}
