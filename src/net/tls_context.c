/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/err.h>
#include <string.h>

#include "base/mem.h"
#include "net/tls_internal.h"

#define MS_NS 1000000u

enum part { IDENTITY = 1, TRUST = 2 };

static bool tls_context_is_set(const char *text)
{
    return text && *text;
}

static int tls_context_on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                               const unsigned char *in, unsigned in_len, void *arg)
{
    const struct br_tls_context *ctx = arg;
    (void)ssl;
    for (size_t ours = 0; ours < ctx->alpn_len; ours += 1u + ctx->alpn[ours]) {
        const uint8_t *name = ctx->alpn + ours;
        for (unsigned at = 0; at < in_len && in[at] < in_len - at; at += 1u + in[at]) {
            if (in[at] == name[0] && memcmp(in + at + 1, name + 1, name[0]) == 0) {
                *out = in + at + 1;
                *out_len = in[at];
                return SSL_TLSEXT_ERR_OK;
            }
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int tls_context_set_alpn(struct br_tls_context *ctx, const char *const *alpn,
                                struct br_err *err)
{
    for (; alpn && *alpn; alpn++) {
        size_t len = strlen(*alpn);
        if (len == 0 || len >= BR_TLS_ALPN_MAX || len + 1 > sizeof ctx->alpn - 1 - ctx->alpn_len)
            return br_err_set(err, BR_EINVAL, "the list of ALPN protocols is invalid");
        ctx->alpn[ctx->alpn_len] = (uint8_t)len;
        memcpy(ctx->alpn + ctx->alpn_len + 1, *alpn, len);
        ctx->alpn_len += len + 1;
    }
    return 0;
}

static void tls_context_set_server(struct br_tls_context *ctx, SSL_CTX *ssl)
{
    /* Sessions are stored at the client, in session tickets, because a session cache in the
     * server would contain up to 20,000 sessions. Resumption with client certificates requires a
     * session id context. */
    static const unsigned char id[] = "braid";
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(ssl, id, sizeof id - 1);
    if (ctx->alpn_len)
        SSL_CTX_set_alpn_select_cb(ssl, tls_context_on_alpn, ctx);
    if (tls_context_is_set(ctx->config.client_ca_file))
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}

static int tls_context_set_client(struct br_tls_context *ctx, SSL_CTX *ssl, struct br_err *err)
{
    if (!ctx->config.insecure_skip_verify)
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    if (ctx->alpn_len && SSL_CTX_set_alpn_protos(ssl, ctx->alpn, (unsigned)ctx->alpn_len))
        return br_tls_no_memory(err);
    return 0;
}

/* Sets all properties of an SSL_CTX except its certificates. */
static int tls_context_set_policy(struct br_tls_context *ctx, SSL_CTX *ssl, struct br_err *err)
{
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* With these modes, idle connections keep no record buffers, and the certificate chain is sent
     * exactly as it is in the file. */
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ssl), X509_V_FLAG_PARTIAL_CHAIN);
    int rc = br_tls_policy_apply(ssl, &ctx->config, err);
    if (rc)
        return rc;
    if (!ctx->server)
        return tls_context_set_client(ctx, ssl, err);
    tls_context_set_server(ctx, ssl);
    return 0;
}

/* Makes an SSL_CTX. Loads the files of the parts in the bit set `parts`, and copies the other
 * parts from `old`. */
static int tls_context_build(struct br_tls_context *ctx, unsigned parts, SSL_CTX *old,
                             SSL_CTX **ret, struct br_err *err)
{
    ERR_clear_error();
    SSL_CTX *ssl = SSL_CTX_new(ctx->server ? TLS_server_method() : TLS_client_method());
    if (!ssl)
        return br_err_set(err, BR_ENOMEM, "OpenSSL cannot create a context: %s", br_tls_reason());
    int rc = tls_context_set_policy(ctx, ssl, err);
    if (!rc)
        rc = parts & IDENTITY ? br_tls_identity_load(ssl, &ctx->config, err)
                              : br_tls_identity_copy(ssl, old, err);
    if (!rc)
        rc = parts & TRUST ? br_tls_trust_load(ssl, &ctx->config, ctx->server, err)
                           : br_tls_trust_copy(ssl, old, err);
    if (rc == 0) {
        *ret = ssl;
        return 0;
    }
    SSL_CTX_free(ssl);
    /* OpenSSL's parsers report a damaged file if memory is short, so look for an allocation
     * failure. */
    return ERR_GET_REASON(ERR_peek_error()) == ERR_R_MALLOC_FAILURE ? br_tls_no_memory(err) : rc;
}

/* --- Reloading ------------------------------------------------------------------------------- */

static struct br_tls_stamp tls_context_stamp_of(const char *file)
{
    struct stat st;
    if (!tls_context_is_set(file) || stat(file, &st))
        return (struct br_tls_stamp){0};
    return (struct br_tls_stamp){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
}

/* Updates the stamp of a file, which identifies its version. Returns true if the file has
 * changed. */
static bool tls_context_restamp(struct br_tls_stamp *stamp, const char *file)
{
    struct br_tls_stamp now = tls_context_stamp_of(file);
    bool same = now.dev == stamp->dev && now.ino == stamp->ino && now.size == stamp->size &&
                now.mtime.tv_sec == stamp->mtime.tv_sec &&
                now.mtime.tv_nsec == stamp->mtime.tv_nsec;
    *stamp = now;
    return !same;
}

uint64_t br_tls_context_interval_ms(const struct br_tls_context *ctx)
{
    uint64_t ms = ctx->config.reload_interval / MS_NS;
    if (ctx->config.reload_interval)
        return ms ? ms : 1;
    return ctx->config.client_ca_file_reload ? 1000 : 0;
}

/* Returns the parts whose files have changed. Checks all files if `all` is set, and otherwise only
 * the files for which the config enables periodic checks. Stamps are taken before the files are
 * read, so that the next check notices a change during the read. */
static unsigned tls_context_changed_parts(struct br_tls_context *ctx, bool all)
{
    const char *trusted = ctx->server ? ctx->config.client_ca_file : ctx->config.ca_file;
    unsigned parts = 0;
    if (all || ctx->config.reload_interval) {
        bool cert = tls_context_restamp(&ctx->cert, ctx->config.cert_file);
        bool key = tls_context_restamp(&ctx->key, ctx->config.key_file);
        if (cert || key)
            parts |= IDENTITY;
    }
    if ((all || ctx->config.client_ca_file_reload) && tls_context_restamp(&ctx->trusted, trusted))
        parts |= TRUST;
    return parts;
}

/* Reloads one part (the certificate with its key, or the trusted certificates) at a time, so that
 * an error in one part does not prevent the reload of the other. `ctx->ssl` is read without the
 * lock, because only this thread writes it. */
static void tls_context_reload_part(struct br_tls_context *ctx, enum part part)
{
    SSL_CTX *fresh = NULL, *old = NULL;
    struct br_err err = {0};
    int rc = tls_context_build(ctx, part, ctx->ssl, &fresh, &err);
    pthread_mutex_lock(&ctx->lock);
    if (rc == 0) {
        old = ctx->ssl;
        ctx->ssl = fresh;
    } else {
        ctx->reload_failed = true;
        ctx->reload_err = err;
    }
    pthread_mutex_unlock(&ctx->lock);
    SSL_CTX_free(old);
}

void br_tls_context_reload(struct br_tls_context *ctx, bool all)
{
    unsigned parts = tls_context_changed_parts(ctx, all);
    if (parts & IDENTITY)
        tls_context_reload_part(ctx, IDENTITY);
    if (parts & TRUST)
        tls_context_reload_part(ctx, TRUST);
}

SSL_CTX *br_tls_context_current(struct br_tls_context *ctx)
{
    pthread_mutex_lock(&ctx->lock);
    SSL_CTX *ssl = ctx->ssl;
    SSL_CTX_up_ref(ssl);
    pthread_mutex_unlock(&ctx->lock);
    return ssl;
}

bool br_tls_context_reload_error(struct br_tls_context *ctx, struct br_err *err)
{
    pthread_mutex_lock(&ctx->lock);
    bool failed = ctx->reload_failed;
    if (failed)
        *err = ctx->reload_err;
    ctx->reload_failed = false;
    pthread_mutex_unlock(&ctx->lock);
    return failed;
}

/* --- Creation and release -----------------------------------------------------------------------
 */

static int tls_context_check_server(const struct br_tls_config *config, struct br_err *err)
{
    bool cert = tls_context_is_set(config->cert_file) || tls_context_is_set(config->cert_pem.text);
    bool key = tls_context_is_set(config->key_file) || tls_context_is_set(config->key_pem.text);
    if (cert || key)
        return 0;
    return br_err_set(
        err, BR_EINVAL,
        "a server with TLS requires cert_file (or cert_pem) and key_file (or key_pem)");
}

/* Reports a certificate without a key, a key without a certificate, and values that are set
 * twice. */
static int tls_context_check_pair(const struct br_tls_config *config, struct br_err *err)
{
    bool cert_file = tls_context_is_set(config->cert_file),
         cert_pem = tls_context_is_set(config->cert_pem.text);
    bool key_file = tls_context_is_set(config->key_file),
         key_pem = tls_context_is_set(config->key_pem.text);
    if (cert_file && cert_pem)
        return br_err_set(err, BR_EINVAL,
                          "cert_file and cert_pem are both set; set only one of them");
    if (key_file && key_pem)
        return br_err_set(err, BR_EINVAL,
                          "key_file and key_pem are both set; set only one of them");
    if ((cert_file || cert_pem) && !key_file && !key_pem)
        return br_err_set(err, BR_EINVAL,
                          "%s is set without a key; set key_file (or key_pem) too, or neither",
                          cert_file ? "cert_file" : "cert_pem");
    if ((key_file || key_pem) && !cert_file && !cert_pem)
        return br_err_set(
            err, BR_EINVAL,
            "%s is set without a certificate; set cert_file (or cert_pem) too, or neither",
            key_file ? "key_file" : "key_pem");
    return 0;
}

int br_tls_config_check(const struct br_tls_config *config, bool server, struct br_err *err)
{
    int rc = server ? tls_context_check_server(config, err) : 0;
    if (!rc)
        rc = tls_context_check_pair(config, err);
    if (rc)
        return rc;
    ERR_clear_error();
    SSL_CTX *ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!ssl)
        return br_tls_no_memory(err);
    rc = br_tls_policy_apply(ssl, config, err);
    SSL_CTX_free(ssl);
    return rc;
}

static int context_init(struct br_tls_context *ctx, const char *const *alpn, struct br_err *err)
{
    int rc = ctx->server ? tls_context_check_server(&ctx->config, err) : 0;
    if (!rc)
        rc = tls_context_set_alpn(ctx, alpn, err);
    if (rc)
        return rc;
    ctx->bio = br_tls_bio_method();
    if (!ctx->bio)
        return br_tls_no_memory(err);
    (void)tls_context_changed_parts(ctx, true);
    return tls_context_build(ctx, IDENTITY | TRUST, NULL, &ctx->ssl, err);
}

int br_tls_context_new(const struct br_tls_config *config, bool server, const char *const *alpn,
                       struct br_tls_context **ret, struct br_err *err)
{
    struct br_tls_context *ctx = br_calloc(1, sizeof *ctx);
    if (!ctx)
        return br_tls_no_memory(err);
    ctx->config = *config;
    ctx->server = server;
    pthread_mutex_init(&ctx->lock, NULL);
    int rc = context_init(ctx, alpn, err);
    if (rc)
        br_tls_context_free(ctx);
    else
        *ret = ctx;
    return rc;
}

void br_tls_context_free(struct br_tls_context *ctx)
{
    if (!ctx)
        return;
    SSL_CTX_free(ctx->ssl);
    BIO_meth_free(ctx->bio);
    pthread_mutex_destroy(&ctx->lock);
    br_free(ctx);
}
