/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension oauth2client: gets tokens by OAuth 2 client credentials (RFC 6749 section 4.4), and
 * adds them to the requests of exporters.
 *
 * State | requests | leaves the state
 * ----- | -------- | ----------------
 * no token, not fetching | start fetching, and wait | at the first request
 * no token, fetching | wait | when the token server answers, or after `timeout`
 * no token, failed | fail, and are retried by the exporter | after the retry delay
 * token | are sent with it | at the renewal time the token is fetched again, if it was used
 * token, fetching | are sent with the old token until it expires | when the token server answers
 */
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"
#include "core/authenticator.h"
#include "core/watched.h"
#include "net/client.h"
#include "net/signing.h"
#include "pipeline/component.h"

/* milliseconds before a fetch is repeated after the first failure */
#define RETRY_MIN_MS 1000u
#define RETRY_MAX_MS                                                                               \
    30000u /* maximum number of milliseconds before a fetch is repeated after a failure */
#define TIMEOUT_DEFAULT_MS 30000u /* time limit of a fetch if `timeout` is 0, in milliseconds */
#define ANSWER_MAX 65536          /* largest answer of the token server, in bytes */
#define TOKEN_MAX 32768           /* longest token, in bytes */
/* longest lifetime of a token, in seconds; longer lifetimes are shortened to this value */
#define LIFETIME_MAX_S 31536000
/* size of the origin (scheme, host and port) of token_url in bytes, including the terminator */
#define ORIGIN_SIZE 320

static const char *const grant_types[] = {"client_credentials", NULL};

struct config {
    const char *client_id, *client_id_file, *client_secret_file, *token_url;
    struct br_secret client_secret;
    int grant_type;
    struct br_strings scopes;
    const struct br_yaml *endpoint_params;
    struct br_tls_config tls;
    uint64_t timeout, expiry_buffer;
};

struct state {
    struct br_authenticator base;
    struct br_node *node;
    struct br_client *client;
    struct br_exchange exchange; /* request to the token server that is in progress */
    struct br_header headers[2];
    struct br_str authorization; /* value of the header with client_id and client_secret */
    /* fires when the fetch in progress times out, or when the token must be renewed */
    struct br_timer timer;
    struct br_watched *id_file, *secret_file;
    struct br_str id, secret; /* client_id and client_secret as read from files */
    char origin[ORIGIN_SIZE]; /* scheme, host and port of token_url */
    /* value of the header that is added to requests; NULL: there is no token */
    char *value;
    /* time at which the token expires, in milliseconds of the monotonic clock; UINT64_MAX: never */
    uint64_t expires_ms;
    /* time before which a failed fetch is not repeated, in milliseconds of the monotonic clock */
    uint64_t again_ms;
    /* milliseconds between the last failed fetch and the next fetch; 0: the last fetch succeeded */
    uint64_t delay_ms;
    char why[160]; /* reason why the last fetch failed */
    struct br_log_limit log_limit;
    double *fetched, *failed; /* metrics: number of tokens received, and number of failed fetches */
    /* `fetching`: a fetch is in progress; `used`: a request was sent with this token */
    bool fetching, used;
    bool in_body; /* the token server requires client_id and client_secret in the body */
};

static const struct br_option options[] = {
    BR_STRING(struct config, client_id, "", "id of the client"),
    BR_STRING(struct config, client_id_file, NULL,
              "file that contains the id, used instead of `client_id`; read again when it changes"),
    BR_SECRET(struct config, client_secret, "secret of the client"),
    BR_STRING(struct config, client_secret_file, NULL,
              "file that contains the secret, used instead of `client_secret`; read again when it "
              "changes"),
    {.name = "token_url",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct config, token_url, const char *),
     .required = true,
     .help = "URL of the token server, http or https"},
    BR_ENUM(struct config, grant_type, "client_credentials", grant_types, "the only grant type"),
    BR_STRINGS(struct config, scopes, "requested permissions"),
    BR_VALUE(struct config, endpoint_params, "map of further parameters of the token request"),
    BR_STRUCT(struct config, tls, br_tls_client_options, "TLS to the token server"),
    BR_DURATION(struct config, timeout, "0s", "time limit of a token request; 0: 30s"),
    BR_DURATION(struct config, expiry_buffer, "5m",
                "time before the expiry of a token at which the token is renewed, but not before "
                "half of its lifetime"),
    BR_OPT_END,
};

/* --- Config ------------------------------------------------------------------------------------
 */

static bool oauth2client_is_set(const char *text)
{
    return text && *text;
}

static bool oauth2client_is_param(const struct br_yaml *value)
{
    for (size_t i = 0; value->type == BR_YAML_SEQ && i < value->count; i++)
        if (value->items[i]->type != BR_YAML_SCALAR)
            return false;
    return value->type == BR_YAML_SEQ || value->type == BR_YAML_SCALAR;
}

static int oauth2client_check(void *config, const struct br_yaml *node, const char *path,
                              struct br_arena *arena, struct br_errs *errs)
{
    const struct config *settings = config;
    const struct br_yaml *params = settings->endpoint_params;
    size_t before = errs->n_errors;
    bool is_map = params && params->type == BR_YAML_MAP;
    (void)arena;
    if (!oauth2client_is_set(settings->client_id) && !oauth2client_is_set(settings->client_id_file))
        br_errs_add_key(errs, node, path, "client_id", "must be set, or client_id_file");
    if (!oauth2client_is_set(settings->client_secret.text) &&
        !oauth2client_is_set(settings->client_secret_file))
        br_errs_add_key(errs, node, path, "client_secret",
                        "must be set, or client_secret_file; is its environment variable set?");
    if (!br_text_starts(settings->token_url, "http://") &&
        !br_text_starts(settings->token_url, "https://"))
        br_errs_add_key(errs, node, path, "token_url", "must be an http or https URL");
    if (params && params->type != BR_YAML_NULL && !is_map)
        br_errs_add_key(errs, node, path, "endpoint_params", "must be a map");
    for (size_t i = 0; is_map && i < params->count; i++)
        if (!oauth2client_is_param(params->items[i]))
            br_errs_add_key(errs, node, path, "endpoint_params", "%s must be a text or a list",
                            params->keys[i]->text);
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static unsigned oauth2client_sides(const void *config)
{
    (void)config;
    return BR_AUTH_CLIENT;
}

/* --- Fetching ----------------------------------------------------------------------------------
 */

static void oauth2client_on_timer(struct br_timer *timer);

static void oauth2client_wipe(struct br_str *text)
{
    if (text->data)
        OPENSSL_cleanse(text->data, text->cap);
    br_str_release(text);
}

static void oauth2client_forget(struct state *state)
{
    if (state->value)
        OPENSSL_cleanse(state->value, strlen(state->value));
    br_free(state->value);
    state->value = NULL;
}

/* Appends a text, encoded as application/x-www-form-urlencoded. */
static void oauth2client_put_encoded(struct br_str *out, const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.*";
    for (; *text; text++) {
        if (strchr(plain, *text))
            br_str_putc(out, *text);
        else
            br_str_printf(out, "%%%02X", (unsigned char)*text);
    }
}

static void oauth2client_put_param(struct br_str *out, const char *name, const char *value)
{
    if (out->len)
        br_str_putc(out, '&');
    oauth2client_put_encoded(out, name);
    br_str_putc(out, '=');
    oauth2client_put_encoded(out, value);
}

static const char *oauth2client_id(const struct state *state)
{
    const struct config *config = state->node->config;
    return state->id_file && state->id.data ? state->id.data : config->client_id;
}

static const char *oauth2client_secret(const struct state *state)
{
    const struct config *config = state->node->config;
    const char *text = config->client_secret.text ? config->client_secret.text : "";
    return state->secret_file && state->secret.data ? state->secret.data : text;
}

static void oauth2client_put_params(const struct state *state, struct br_str *out)
{
    const struct config *config = state->node->config;
    const struct br_yaml *params = config->endpoint_params;
    struct br_str scopes = {.max = TOKEN_MAX};
    oauth2client_put_param(out, "grant_type", "client_credentials");
    for (size_t i = 0; i < config->scopes.count; i++)
        br_str_printf(&scopes, "%s%s", i ? " " : "", config->scopes.items[i]);
    if (scopes.data)
        oauth2client_put_param(out, "scope", scopes.data);
    br_str_release(&scopes);
    for (size_t i = 0; params && params->type == BR_YAML_MAP && i < params->count; i++) {
        const struct br_yaml *value = params->items[i];
        if (value->type == BR_YAML_SCALAR)
            oauth2client_put_param(out, params->keys[i]->text, value->text);
        for (size_t k = 0; value->type == BR_YAML_SEQ && k < value->count; k++)
            oauth2client_put_param(out, params->keys[i]->text, value->items[k]->text);
    }
    if (state->in_body) {
        oauth2client_put_param(out, "client_id", oauth2client_id(state));
        oauth2client_put_param(out, "client_secret", oauth2client_secret(state));
    }
}

/* Makes the header of RFC 6749 section 2.3.1: the id and the secret are form-encoded, joined,
 * and encoded in base64. */
static void oauth2client_make_authorization(struct state *state)
{
    struct br_str both = {.max = TOKEN_MAX};
    oauth2client_wipe(&state->authorization);
    state->authorization.max = TOKEN_MAX;
    oauth2client_put_encoded(&both, oauth2client_id(state));
    br_str_putc(&both, ':');
    oauth2client_put_encoded(&both, oauth2client_secret(state));
    br_str_puts(&state->authorization, "Basic ");
    if (!both.failed)
        br_str_base64(&state->authorization, (const uint8_t *)both.data, both.len);
    state->authorization.failed = state->authorization.failed || both.failed;
    oauth2client_wipe(&both);
}

/* Writes the form of the token request to the body of the exchange. Returns false if memory runs
 * out. */
static bool oauth2client_make_body(struct state *state)
{
    struct br_str form = {.max = 2 * TOKEN_MAX};
    struct br_pool *pool = state->node->host->pool;
    oauth2client_put_params(state, &form);
    struct br_buf *buf = form.failed ? NULL : br_buf_new(pool, form.len);
    bool made = buf && br_buf_append(&buf, form.data, form.len, BR_BUF_MAX) == 0 &&
                br_rope_add(&state->exchange.body, buf, buf->data, buf->len) == 0;
    br_buf_unref(buf);
    oauth2client_wipe(&form);
    return made;
}

/* Ends the fetch without a token. Waiting requests fail unless the old token is still valid. */
static void oauth2client_fail(struct state *state, const char *why)
{
    uint64_t now_ms = br_host_mono_ms(state->node->host);
    uint64_t delay_ms = state->delay_ms ? 2 * state->delay_ms : RETRY_MIN_MS;
    state->delay_ms = delay_ms < RETRY_MAX_MS ? delay_ms : RETRY_MAX_MS;
    state->again_ms = now_ms + state->delay_ms;
    state->fetching = false;
    *state->failed += 1;
    (void)snprintf(state->why, sizeof state->why, "no token from the token server: %s", why);
    br_node_warn(state->node, &state->log_limit, "%s", state->why);
    if (state->value)
        (void)br_host_timer(state->node->host, &state->timer, state->delay_ms,
                            oauth2client_on_timer);
    br_authenticator_ready(&state->base);
}

/* Returns the time in milliseconds from now until the token is renewed. */
static uint64_t oauth2client_renewal_ms(const struct config *config, uint64_t lifetime_ms)
{
    uint64_t buffer_ms = config->expiry_buffer / 1000000;
    return buffer_ms < lifetime_ms / 2 ? lifetime_ms - buffer_ms : lifetime_ms / 2;
}

static void oauth2client_keep_token(struct state *state, const char *type, const char *token,
                                    int64_t lifetime_s)
{
    struct br_host *host = state->node->host;
    size_t size = strlen(type) + strlen(token) + 2;
    char *value = br_malloc(size);
    if (!value) {
        oauth2client_fail(state, "out of memory");
        return;
    }
    (void)snprintf(value, size, "%s %s", type, token);
    oauth2client_forget(state);
    state->value = value;
    state->fetching = state->used = false;
    state->delay_ms = 0;
    state->expires_ms = UINT64_MAX;
    *state->fetched += 1;
    if (lifetime_s > 0) {
        uint64_t lifetime_ms =
            1000 * (uint64_t)(lifetime_s < LIFETIME_MAX_S ? lifetime_s : LIFETIME_MAX_S);
        state->expires_ms = br_host_mono_ms(host) + lifetime_ms;
        (void)br_host_timer(host, &state->timer,
                            oauth2client_renewal_ms(state->node->config, lifetime_ms),
                            oauth2client_on_timer);
    }
    br_authenticator_ready(&state->base);
}

/* Returns true if the characters of a text are all allowed in a header (RFC 9110 section 5.5). */
static bool oauth2client_is_visible(const char *text)
{
    for (; text && *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return text != NULL;
}

/* Reads the answer {"access_token", "token_type", "expires_in"} (RFC 6749 section 5.1). */
static void oauth2client_read_token(struct state *state, const json_t *answer)
{
    const char *token = json_string_value(json_object_get(answer, "access_token"));
    const char *type = json_string_value(json_object_get(answer, "token_type"));
    const json_t *expires = json_object_get(answer, "expires_in");
    const char *text = json_string_value(expires); /* some servers send expires_in as a string */
    int64_t lifetime_s = json_integer_value(expires);
    if (text && !br_parse_int(text, 10, false, &lifetime_s))
        lifetime_s = 0;
    if (!type || !*type || !oauth2client_is_visible(type) || strcasecmp(type, "bearer") == 0)
        type = "Bearer";
    if (!oauth2client_is_set(token) || strlen(token) > TOKEN_MAX || !oauth2client_is_visible(token))
        oauth2client_fail(state, "the answer has no usable access_token");
    else
        oauth2client_keep_token(state, type, token, lifetime_s);
}

/* Reads an error answer. Only the error code is logged (RFC 6749 section 5.2). */
static void oauth2client_read_error(struct state *state, unsigned status, const json_t *answer)
{
    const char *code = json_string_value(json_object_get(answer, "error"));
    char why[128];
    (void)snprintf(why, sizeof why, "status %u%s%.60s", status, code ? ", " : "",
                   oauth2client_is_visible(code) ? code : "");
    /* RFC 6749 section 2.3.1 requires servers to accept the header, but some servers only read
     * the body. */
    if (status == 400 || status == 401)
        state->in_body = !state->in_body;
    oauth2client_fail(state, why);
}

static void oauth2client_on_done(struct br_exchange *exchange)
{
    struct state *state = exchange->user;
    br_host_timer_stop(state->node->host, &state->timer);
    br_rope_release(&exchange->body);
    if (exchange->error) {
        oauth2client_fail(state, exchange->error_text);
        return;
    }
    const struct br_buf *body = exchange->response;
    json_t *answer = body ? json_loadb((const char *)body->data, body->len, 0, NULL) : NULL;
    if (exchange->http_status >= 200 && exchange->http_status < 300)
        oauth2client_read_token(state, answer);
    else
        oauth2client_read_error(state, exchange->http_status, answer);
    json_decref(answer);
}

static void oauth2client_fetch(struct state *state)
{
    const struct config *config = state->node->config;
    const char *path = config->token_url + strlen(state->origin);
    uint64_t timeout_ms = config->timeout ? config->timeout / 1000000 : TIMEOUT_DEFAULT_MS;
    state->fetching = true;
    oauth2client_make_authorization(state);
    state->exchange = (struct br_exchange){.method = "POST",
                                           .path = *path ? path : "/",
                                           .content_type = "application/x-www-form-urlencoded",
                                           .user_agent = "Braid/" BR_VERSION,
                                           .headers = state->headers,
                                           .secret_body = state->in_body,
                                           .max_response = ANSWER_MAX,
                                           .on_done = oauth2client_on_done,
                                           .user = state};
    state->headers[state->exchange.n_headers++] = (struct br_header){"accept", "application/json"};
    if (!state->in_body)
        state->headers[state->exchange.n_headers++] =
            (struct br_header){"authorization", state->authorization.data};
    bool made = !state->authorization.failed && oauth2client_make_body(state);
    if (!made ||
        !br_host_timer(state->node->host, &state->timer, timeout_ms, oauth2client_on_timer))
        oauth2client_fail(state, "out of memory");
    else
        br_client_send(state->client, &state->exchange);
}

/* Ends a fetch that takes too long, or renews the token if a request has used it. A token that was
 * not used is not renewed; the next request fetches a new one. */
static void oauth2client_on_timer(struct br_timer *timer)
{
    struct state *state = br_container_of(timer, struct state, timer);
    if (state->fetching) {
        br_client_cancel(state->client, &state->exchange);
        br_rope_release(&state->exchange.body);
        oauth2client_fail(state, "it did not answer in time");
    } else if (state->used) {
        oauth2client_fetch(state);
    }
}

/* --- Requests ----------------------------------------------------------------------------------
 */

static int oauth2client_sign(struct br_authenticator *self, struct br_signing *signing,
                             struct br_err *err)
{
    struct state *state = br_container_of(self, struct state, base);
    uint64_t now_ms = br_host_mono_ms(state->node->host);
    if (state->value && now_ms < state->expires_ms) {
        state->used = true;
        br_signing_set(signing, "authorization", state->value);
        return 0;
    }
    if (!state->fetching && state->delay_ms && now_ms < state->again_ms)
        return br_err_set(err, BR_EIO, "%s", state->why);
    if (!state->fetching)
        oauth2client_fetch(state);
    /* the fetch may have failed before this function returned */
    return state->fetching ? BR_EAGAIN : br_err_set(err, BR_EIO, "%s", state->why);
}

/* --- Component ---------------------------------------------------------------------------------
 */

static int oauth2client_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    const char *host = strstr(config->token_url, "://") + 3;
    size_t len = (size_t)(host - config->token_url) + strcspn(host, "/?#");
    state->node = node;
    if (len >= sizeof state->origin)
        return br_err_set(err, BR_EINVAL, "the host of token_url is too long");
    memcpy(state->origin, config->token_url, len);
    state->base = (struct br_authenticator){
        .id = node->id, .header = "", .scheme = "", .sign = oauth2client_sign};
    state->fetched = br_node_metric(node, BR_COUNTER, "braid_oauth_tokens", NULL, NULL);
    state->failed = br_node_metric(node, BR_COUNTER, "braid_oauth_failures", NULL, NULL);
    br_authenticator_add(node->host, &state->base);
    return 0;
}

/* Stores the first line of a text in `into`. */
static void oauth2client_keep_line(struct br_str *into, const char *text)
{
    br_str_clear(into);
    br_str_add(into, text, strcspn(text, "\r\n"));
}

static void oauth2client_on_id(void *arg, const char *text, size_t len)
{
    (void)len;
    oauth2client_keep_line(&((struct state *)arg)->id, text);
}

static void oauth2client_on_secret(void *arg, const char *text, size_t len)
{
    (void)len;
    oauth2client_keep_line(&((struct state *)arg)->secret, text);
}

static int oauth2client_watch(struct br_node *node, const char *path,
                              void (*on_text)(void *arg, const char *text, size_t len),
                              struct br_watched **ret, struct br_err *err)
{
    struct br_watched_config watched = {
        .path = path, .log = &node->log, .on_text = on_text, .arg = node->state};
    return oauth2client_is_set(path) ? br_watched_new(node->host, &watched, ret, err) : 0;
}

static int oauth2client_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct br_client_config client = {
        .endpoint = state->origin, .tls = &config->tls, .max_connections = 1, .log = &node->log};
    int rc =
        oauth2client_watch(node, config->client_id_file, oauth2client_on_id, &state->id_file, err);
    if (!rc)
        rc = oauth2client_watch(node, config->client_secret_file, oauth2client_on_secret,
                                &state->secret_file, err);
    return rc ? rc : node->host->ops->connect(node->host, &client, &state->client, err);
}

static void oauth2client_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_authenticator_remove(&state->base);
    br_host_timer_stop(node->host, &state->timer);
    if (state->fetching)
        br_client_cancel(state->client, &state->exchange);
    br_rope_release(&state->exchange.body);
    br_client_free(state->client);
    br_watched_free(state->id_file);
    br_watched_free(state->secret_file);
    oauth2client_forget(state);
    oauth2client_wipe(&state->authorization);
    oauth2client_wipe(&state->id);
    oauth2client_wipe(&state->secret);
}

extern const struct br_component br_oauth2client_extension;
const struct br_component br_oauth2client_extension = {
    .name = "oauth2client",
    .alias = "oauth2_client",
    .kind = BR_EXTENSION,
    .every_worker = true,
    .stability = "alpha",
    .help = "adds OAuth 2 tokens to an exporter's requests",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .authenticates = oauth2client_sides,
    .check = oauth2client_check,
    .create = oauth2client_create,
    .start = oauth2client_start,
    .destroy = oauth2client_destroy,
};
