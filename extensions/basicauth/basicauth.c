/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension basicauth: HTTP Basic authentication (RFC 7617). With `htpasswd`, servers check
 * user names and passwords. With `client_auth`, clients send a user name and a password.
 *
 * The check of a password hash takes milliseconds, during which the worker does nothing else.
 * Therefore a keyed digest of valid credentials is cached, and failed checks of hashes are limited.
 * The limit applies in addition to the server's limit of failed requests per client address.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cache.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/secret.h"
#include "base/str.h"
#include "core/authenticator.h"
#include "core/watched.h"
#include "extensions/basicauth/htpasswd.h"
#include "net/signing.h"
#include "pipeline/component.h"

/* number of sets in the cache of valid credentials; each set has two entries */
#define VALID_SETS 256
#define CREDENTIALS_MAX 1024 /* longest decoded `user:password` of a request, in bytes */
/* number of failed checks of password hashes after which further checks are rejected */
#define HASH_FAILURES_MAX 20
/* milliseconds after which the number of counted failures decreases by one */
#define HASH_FORGIVE_MS 250
#define CLIENT_VALUE_MAX 4096 /* longest header that a client sends, in bytes */

struct htpasswd_config {
    const char *file;
    struct br_secret inline_text;
};

struct client_config {
    const char *username, *username_file, *password_file;
    struct br_secret password;
};

struct config {
    struct htpasswd_config *htpasswd;
    struct client_config *client_auth;
};

/* Credentials that were valid: the HMAC of the header's value, and the attributes of the user. */
struct valid {
    uint8_t digest[BR_DIGEST_SIZE];
    const char *context; /* attributes of the user; NULL: the entry is empty */
};

struct state {
    struct br_authenticator base;
    struct br_node *node;
    struct htpasswd *users;
    /* map from user name to the user's attributes, which are kept until the extension is
     * destroyed */
    struct br_map *contexts;
    struct br_cache valid;
    struct valid *valid_entries;
    uint8_t key[BR_DIGEST_SIZE]; /* key of the HMAC */
    unsigned hash_failures;      /* number of recent failed checks of password hashes */
    /* time up to which `hash_failures` has been decreased, in milliseconds of the monotonic
     * clock */
    uint64_t forgiven_ms;
    struct br_watched *htpasswd_file, *username_file, *password_file;
    /* user name and password that clients send; both may be read from files */
    struct br_str username, password;
    char *value; /* value of the header that clients send */
};

static const struct br_option htpasswd_options[] = {
    BR_STRING(struct htpasswd_config, file, NULL,
              "file with lines of USER:HASH, as htpasswd writes it; read again when it changes"),
    {.name = "inline",
     .kind = BR_OPT_SECRET,
     .offset = BR_OPT_FIELD(struct htpasswd_config, inline_text, struct br_secret),
     .help = "the same lines in the configuration; they take precedence over `file`"},
    BR_OPT_END,
};

static const struct br_option client_options[] = {
    BR_STRING(struct client_config, username, "", "user name"),
    BR_STRING(
        struct client_config, username_file, NULL,
        "file that contains the user name, used instead of `username`; read again when it changes"),
    BR_SECRET(struct client_config, password, "password"),
    BR_STRING(
        struct client_config, password_file, NULL,
        "file that contains the password, used instead of `password`; read again when it changes"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_PRESENT(struct config, htpasswd, struct htpasswd_config, htpasswd_options,
               "users and password hashes with which a server checks clients"),
    BR_PRESENT(struct config, client_auth, struct client_config, client_options,
               "user name and password that an exporter sends"),
    BR_OPT_END,
};

/* --- Config ------------------------------------------------------------------------------------
 */

static bool basicauth_is_set(const char *text)
{
    return text && *text;
}

static int basicauth_check_inline(const struct htpasswd_config *htpasswd,
                                  const struct br_yaml *node, const char *path,
                                  struct br_errs *errs)
{
    struct htpasswd *users = basicauth_htpasswd_new();
    struct br_str faults = {.max = 256};
    int rc =
        users ? basicauth_htpasswd_read(users, htpasswd->inline_text.text, &faults) : BR_ENOMEM;
    if (!rc && faults.len)
        br_errs_add_key(errs, node, path, "inline", "has lines that cannot be used: %s",
                        faults.data);
    else if (!rc && !basicauth_htpasswd_count(users))
        br_errs_add_key(errs, node, path, "inline", "has no users");
    br_str_release(&faults);
    basicauth_htpasswd_free(users);
    return rc;
}

static int basicauth_check(void *config, const struct br_yaml *node, const char *path,
                           struct br_arena *arena, struct br_errs *errs)
{
    const struct config *settings = config;
    const struct htpasswd_config *htpasswd = settings->htpasswd;
    const struct client_config *client = settings->client_auth;
    size_t before = errs->n_errors;
    int rc = 0;
    char at[192];
    (void)arena;
    if (!htpasswd == !client)
        br_errs_add(errs, node, path, "must have either htpasswd or client_auth");
    (void)snprintf(at, sizeof at, "%s::%s", path, htpasswd ? "htpasswd" : "client_auth");
    if (htpasswd && !basicauth_is_set(htpasswd->file) && !htpasswd->inline_text.text)
        br_errs_add(errs, br_yaml_get(node, "htpasswd"), at, "must have a file or inline lines");
    if (htpasswd && htpasswd->inline_text.text)
        rc = basicauth_check_inline(htpasswd, br_yaml_get(node, "htpasswd"), at, errs);
    if (client && !basicauth_is_set(client->username) && !basicauth_is_set(client->username_file))
        br_errs_add(errs, br_yaml_get(node, "client_auth"), at,
                    "must have a username or a username_file");
    if (client && strchr(client->username, ':'))
        br_errs_add_key(errs, br_yaml_get(node, "client_auth"), at, "username",
                        "must not contain a colon");
    if (rc)
        return rc;
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static unsigned basicauth_sides(const void *config)
{
    const struct config *settings = config;
    return (settings->htpasswd ? BR_AUTH_SERVER : 0) | (settings->client_auth ? BR_AUTH_CLIENT : 0);
}

/* --- Servers -----------------------------------------------------------------------------------
 */

/* Returns the attributes of a user, encoded as username\0NAME\0\0. Returns NULL if memory runs
 * out. */
static const char *basicauth_context(struct state *state, const char *name)
{
    static const char key[] = "username";
    size_t len = strlen(name);
    char *context = br_map_get(state->contexts, name, len);
    if (context)
        return context;
    context = br_calloc(1, sizeof key + len + 2);
    if (!context)
        return NULL;
    memcpy(context, key, sizeof key);
    memcpy(context + sizeof key, name, len);
    if (br_map_put(state->contexts, name, len, context, NULL)) {
        br_free(context);
        return NULL;
    }
    return context;
}

static void basicauth_forget_valid(struct state *state)
{
    OPENSSL_cleanse(state->valid_entries, (size_t)2 * VALID_SETS * sizeof *state->valid_entries);
}

/* Replaces the users by those in the htpasswd file and in the option `inline`. */
static void basicauth_on_htpasswd(void *arg, const char *text, size_t len)
{
    struct state *state = arg;
    const struct htpasswd_config *config = ((const struct config *)state->node->config)->htpasswd;
    struct htpasswd *users = basicauth_htpasswd_new();
    struct br_str faults = {.max = 256};
    (void)len;
    int rc = users ? basicauth_htpasswd_read(users, text, &faults) : BR_ENOMEM;
    if (!rc && config->inline_text.text)
        rc = basicauth_htpasswd_read(users, config->inline_text.text, &faults);
    if (rc) {
        br_warn(&state->node->log, "the users were not read again: out of memory");
        basicauth_htpasswd_free(users);
    } else {
        if (faults.len && state->node->host->worker == 0)
            br_warn(&state->node->log, "lines of users that cannot be used: %s", faults.data);
        if (state->users && state->node->host->worker == 0)
            br_info(&state->node->log, "%u users were read again",
                    (unsigned)basicauth_htpasswd_count(users));
        basicauth_htpasswd_free(state->users);
        state->users = users;
        basicauth_forget_valid(state);
    }
    br_str_release(&faults);
}

static bool basicauth_valid_equal(const void *entry, const void *key)
{
    const struct valid *valid = entry;
    return valid->context && br_digest_equal(valid->digest, key);
}

/* Counts a failed check of a password hash. */
static void basicauth_add_failure(struct state *state)
{
    if (state->hash_failures == 0)
        state->forgiven_ms = br_host_mono_ms(state->node->host);
    state->hash_failures++;
}

/* Returns true if there were too many failed checks of password hashes recently. */
static bool basicauth_is_busy(struct state *state)
{
    uint64_t forgiven = (br_host_mono_ms(state->node->host) - state->forgiven_ms) / HASH_FORGIVE_MS;
    state->forgiven_ms += forgiven * HASH_FORGIVE_MS;
    state->hash_failures -=
        forgiven < state->hash_failures ? (unsigned)forgiven : state->hash_failures;
    return state->hash_failures >= HASH_FAILURES_MAX;
}

/* Checks the decoded `user:password`. Returns the user's attributes, or NULL if the check fails. */
static const char *basicauth_check_password(struct state *state, char *credentials)
{
    char *colon = strchr(credentials, ':');
    if (!colon || !state->users)
        return NULL;
    *colon = '\0';
    if (basicauth_htpasswd_check(state->users, credentials, colon + 1))
        return basicauth_context(state, credentials);
    if (basicauth_htpasswd_is_costly(state->users))
        basicauth_add_failure(state);
    return NULL;
}

/* Decodes the value of the header into `out`, which has CREDENTIALS_MAX + 4 bytes. Returns false
 * if the value is malformed. */
static bool basicauth_decode(const char *value, char *out)
{
    if (!br_text_starts_nocase(value, "Basic "))
        return false;
    value += 6;
    value += strspn(value, " ");
    size_t len = strlen(value);
    long n = len / 4 * 3 + 3 <= CREDENTIALS_MAX ? br_base64_decode(value, len, (uint8_t *)out) : -1;
    if (n < 0 || memchr(out, 0, (size_t)n))
        return false;
    out[n] = '\0';
    return true;
}

static enum br_auth_verdict basicauth_check_request(struct br_authenticator *self,
                                                    const char *value, bool may_hash,
                                                    const char **ret_context)
{
    struct state *state = br_container_of(self, struct state, base);
    char credentials[CREDENTIALS_MAX + 4];
    uint8_t digest[BR_DIGEST_SIZE];
    *ret_context = NULL;
    if (!HMAC(EVP_sha256(), state->key, sizeof state->key, (const unsigned char *)value,
              strlen(value), digest, NULL))
        return BR_AUTH_DENIED;
    uint64_t hash = br_cache_hash(&state->valid, digest, sizeof digest);
    struct valid *valid = br_cache_find(&state->valid, hash, basicauth_valid_equal, digest);
    if (valid) {
        *ret_context = valid->context;
        return BR_AUTH_ALLOWED;
    }
    if (!basicauth_decode(value, credentials))
        return BR_AUTH_DENIED;
    if (!may_hash ||
        (state->users && basicauth_htpasswd_is_costly(state->users) && basicauth_is_busy(state)))
        return BR_AUTH_COSTLY;
    const char *context = basicauth_check_password(state, credentials);
    OPENSSL_cleanse(credentials, sizeof credentials);
    if (!context)
        return BR_AUTH_DENIED;
    valid = br_cache_take(&state->valid, hash);
    memcpy(valid->digest, digest, sizeof digest);
    valid->context = *ret_context = context;
    return BR_AUTH_ALLOWED;
}

/* --- Clients -----------------------------------------------------------------------------------
 */

static void basicauth_forget_value(struct state *state)
{
    if (state->value)
        OPENSSL_cleanse(state->value, strlen(state->value));
    br_free(state->value);
    state->value = NULL;
}

/* Makes the header value from the user name and the password. */
static void basicauth_make_value(struct state *state)
{
    struct br_str both = {.max = CLIENT_VALUE_MAX}, value = {.max = CLIENT_VALUE_MAX};
    br_str_printf(&both, "%s:%s", state->username.data ? state->username.data : "",
                  state->password.data ? state->password.data : "");
    br_str_puts(&value, "Basic ");
    if (!both.failed)
        br_str_base64(&value, (const uint8_t *)both.data, both.len);
    basicauth_forget_value(state);
    if (!both.failed && !value.failed)
        state->value = br_strdup(value.data);
    if (both.data)
        OPENSSL_cleanse(both.data, both.cap);
    if (value.data)
        OPENSSL_cleanse(value.data, value.cap);
    br_str_release(&both);
    br_str_release(&value);
}

/* Copies a text without the line breaks at its end to `into`, and makes the header value again. */
static void basicauth_keep(struct state *state, struct br_str *into, const char *text)
{
    size_t len = strlen(text);
    while (len && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    br_str_clear(into);
    br_str_add(into, text, len);
    basicauth_make_value(state);
}

static void basicauth_on_username(void *arg, const char *text, size_t len)
{
    (void)len;
    basicauth_keep(arg, &((struct state *)arg)->username, text);
}

static void basicauth_on_password(void *arg, const char *text, size_t len)
{
    (void)len;
    basicauth_keep(arg, &((struct state *)arg)->password, text);
}

static int basicauth_sign(struct br_authenticator *self, struct br_signing *signing,
                          struct br_err *err)
{
    const struct state *state = br_container_of(self, struct state, base);
    if (!state->value)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    br_signing_set(signing, "authorization", state->value);
    return 0;
}

/* --- Component ---------------------------------------------------------------------------------
 */

static int basicauth_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    state->node = node;
    state->base = (struct br_authenticator){
        .id = node->id, .header = "authorization", .scheme = "Basic", .has_names = true};
    state->contexts = br_map_new(HTPASSWD_USERS_MAX);
    state->valid_entries = br_calloc((size_t)2 * VALID_SETS, sizeof *state->valid_entries);
    if (!state->contexts || !state->valid_entries)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    br_cache_init(&state->valid, state->valid_entries, sizeof *state->valid_entries, VALID_SETS, 2);
    br_random_bytes(state->key, sizeof state->key);
    if (config->htpasswd)
        state->base.check = basicauth_check_request;
    if (config->client_auth) {
        state->base.sign = basicauth_sign;
        basicauth_keep(state, &state->username, config->client_auth->username);
        if (config->client_auth->password.text)
            basicauth_keep(state, &state->password, config->client_auth->password.text);
    }
    br_authenticator_add(node->host, &state->base);
    return 0;
}

static int basicauth_watch(struct br_node *node, const char *path,
                           void (*on_text)(void *arg, const char *text, size_t len),
                           struct br_watched **ret, struct br_err *err)
{
    struct br_watched_config watched = {
        .path = path, .log = &node->log, .on_text = on_text, .arg = node->state};
    return basicauth_is_set(path) ? br_watched_new(node->host, &watched, ret, err) : 0;
}

static int basicauth_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    const struct client_config *client = config->client_auth;
    int rc = 0;
    if (config->htpasswd) {
        const char *file = config->htpasswd->file;
        if (!basicauth_is_set(file))
            basicauth_on_htpasswd(state, "", 0);
        rc = basicauth_watch(node, file, basicauth_on_htpasswd, &state->htpasswd_file, err);
        if (!rc && !state->users)
            rc = br_err_set(err, BR_ENOMEM, "out of memory");
    }
    if (!rc && client)
        rc = basicauth_watch(node, client->username_file, basicauth_on_username,
                             &state->username_file, err);
    if (!rc && client)
        rc = basicauth_watch(node, client->password_file, basicauth_on_password,
                             &state->password_file, err);
    return rc;
}

static void basicauth_wipe(struct br_str *text)
{
    if (text->data)
        OPENSSL_cleanse(text->data, text->cap);
    br_str_release(text);
}

static void basicauth_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_authenticator_remove(&state->base);
    br_watched_free(state->htpasswd_file);
    br_watched_free(state->username_file);
    br_watched_free(state->password_file);
    basicauth_htpasswd_free(state->users);
    br_map_free(state->contexts, br_free);
    br_free(state->valid_entries);
    basicauth_forget_value(state);
    basicauth_wipe(&state->username);
    basicauth_wipe(&state->password);
    OPENSSL_cleanse(state->key, sizeof state->key);
}

extern const struct br_component br_basicauth_extension;
const struct br_component br_basicauth_extension = {
    .name = "basicauth",
    .alias = "basic_auth",
    .kind = BR_EXTENSION,
    .every_worker = true,
    .stability = "beta",
    .help = "authenticates by user names and passwords, on servers or clients",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .authenticates = basicauth_sides,
    .check = basicauth_check,
    .create = basicauth_create,
    .start = basicauth_start,
    .destroy = basicauth_destroy,
};
