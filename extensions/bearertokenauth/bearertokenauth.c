/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension bearertokenauth: servers accept requests that contain one of the extension's
 * tokens, and clients send the first token.
 */
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/secret.h"
#include "base/str.h"
#include "core/authenticator.h"
#include "core/watched.h"
#include "net/signing.h"
#include "pipeline/component.h"

#define TOKENS_MAX 64       /* maximum number of tokens of one extension */
#define HEADER_NAME_MAX 128 /* longest name of the header, in bytes */

struct retry {
    bool enabled;
};

struct config {
    const char *header, *scheme, *filename;
    struct br_secret token;
    struct br_strings tokens;
    struct retry *retry_on_failure;
};

struct state {
    struct br_authenticator base;
    struct br_node *node;
    struct br_watched *watched;
    char header[HEADER_NAME_MAX + 1]; /* name of the header in lower case */
    uint8_t digests[TOKENS_MAX][BR_DIGEST_SIZE];
    size_t n_digests;
    char *first; /* value of the header that clients send; NULL: there is no token yet */
};

static const struct br_option retry_options[] = {
    BR_BOOL(struct retry, enabled, false,
            "start even if the file does not exist, and read the file when it appears"),
    BR_IGNORED("initial_interval", "the file is tried every second"),
    BR_IGNORED("randomization_factor", "the file is tried every second"),
    BR_IGNORED("multiplier", "the file is tried every second"),
    BR_IGNORED("max_interval", "the file is tried every second"),
    BR_IGNORED("max_elapsed_time", "the file is tried every second"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRING(struct config, header, "Authorization", "header that contains the token"),
    BR_STRING(struct config, scheme, "Bearer", "text before the token; empty: none"),
    BR_SECRET(struct config, token, "the token"),
    BR_SECRETS(struct config, tokens,
               "several tokens: servers accept all of them, exporters send the first"),
    BR_STRING(struct config, filename, NULL,
              "file with one token per line, used instead of `token` and `tokens`; read again when "
              "it changes"),
    BR_PRESENT(struct config, retry_on_failure, struct retry, retry_options,
               "behaviour if the file cannot be read at the start"),
    BR_IGNORED("wait_for_token_file", "a missing file is an error; with retry_on_failure, requests "
                                      "are denied until the file exists"),
    BR_OPT_END,
};

/* --- Config ------------------------------------------------------------------------------------
 */

/* Returns true if a token can be sent in a header, that is, if the token is printable ASCII
 * without spaces. */
static bool bearertokenauth_is_token(const char *token, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return false;
    return len > 0;
}

static void bearertokenauth_check_token(const char *token, const struct br_yaml *node,
                                        const char *path, const char *key, struct br_errs *errs)
{
    if (!*token)
        br_errs_add_key(errs, node, path, key, "is empty; is its environment variable set?");
    else if (!bearertokenauth_is_token(token, strlen(token)))
        br_errs_add_key(errs, node, path, key, "must be printable ASCII without spaces");
}

static int bearertokenauth_check(void *config, const struct br_yaml *node, const char *path,
                                 struct br_arena *arena, struct br_errs *errs)
{
    const struct config *settings = config;
    size_t before = errs->n_errors, header_len = strlen(settings->header);
    bool has_file = settings->filename && *settings->filename;
    (void)arena;
    if (!settings->token.text && !settings->tokens.count && !has_file)
        br_errs_add(errs, node, path, "must have a token, tokens or a filename");
    if (settings->token.text && settings->tokens.count)
        br_errs_add_key(errs, node, path, "tokens", "must not be set together with token");
    if (settings->token.text)
        bearertokenauth_check_token(settings->token.text, node, path, "token", errs);
    for (size_t i = 0; i < settings->tokens.count; i++)
        bearertokenauth_check_token(settings->tokens.items[i], node, path, "tokens", errs);
    if (settings->tokens.count > TOKENS_MAX)
        br_errs_add_key(errs, node, path, "tokens", "has more than %d tokens", TOKENS_MAX);
    if (header_len == 0 || header_len > HEADER_NAME_MAX ||
        !bearertokenauth_is_token(settings->header, header_len))
        br_errs_add_key(errs, node, path, "header", "must be the name of a header");
    if (*settings->scheme && !bearertokenauth_is_token(settings->scheme, strlen(settings->scheme)))
        br_errs_add_key(errs, node, path, "scheme", "must be printable ASCII without spaces");
    if (settings->retry_on_failure && settings->retry_on_failure->enabled && !has_file)
        br_errs_add_key(errs, node, path, "retry_on_failure", "needs a filename");
    if (has_file && (settings->token.text || settings->tokens.count))
        br_errs_warn(errs, br_yaml_get(node, "filename"), path,
                     "filename is used, and token and tokens have no effect");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static unsigned bearertokenauth_sides(const void *config)
{
    (void)config;
    return BR_AUTH_SERVER | BR_AUTH_CLIENT;
}

/* --- Tokens ------------------------------------------------------------------------------------
 */

static void bearertokenauth_forget(struct state *state)
{
    if (state->first)
        OPENSSL_cleanse(state->first, strlen(state->first));
    br_free(state->first);
    state->first = NULL;
    state->n_digests = 0;
}

/* Adds a token. The first token becomes the value that clients send. */
static void bearertokenauth_add(struct state *state, const char *token, size_t len)
{
    const struct config *config = state->node->config;
    if (state->n_digests == TOKENS_MAX || !br_digest(token, len, state->digests[state->n_digests]))
        return;
    if (state->n_digests++ > 0)
        return;
    size_t size = strlen(config->scheme) + len + 2;
    state->first = br_malloc(size);
    if (state->first)
        (void)snprintf(state->first, size, "%s%s%.*s", config->scheme, *config->scheme ? " " : "",
                       (int)len, token);
}

/* Reads tokens from the file: the first word of each line is a token. */
static void bearertokenauth_on_text(void *arg, const char *text, size_t len)
{
    static const char blanks[] = " \t\r";
    struct state *state = arg;
    unsigned n_wrong = 0;
    (void)len;
    bool again = state->first != NULL;
    bearertokenauth_forget(state);
    while (*text) {
        size_t line = strcspn(text, "\n"), indent = strspn(text, blanks);
        size_t word = indent < line ? strcspn(text + indent, " \t\r\n") : 0;
        if (word && bearertokenauth_is_token(text + indent, word))
            bearertokenauth_add(state, text + indent, word);
        else
            n_wrong += word > 0;
        text += line + (text[line] == '\n');
    }
    if (n_wrong || !state->n_digests)
        br_warn(&state->node->log, "%s has %u usable tokens and %u lines that are not tokens",
                ((const struct config *)state->node->config)->filename, (unsigned)state->n_digests,
                n_wrong);
    if (again)
        br_info(&state->node->log, "the tokens were read again");
    br_authenticator_ready(&state->base);
}

/* --- Requests ----------------------------------------------------------------------------------
 */

static enum br_auth_verdict bearertokenauth_check_request(struct br_authenticator *self,
                                                          const char *value, bool may_hash,
                                                          const char **ret_context)
{
    struct state *state = br_container_of(self, struct state, base);
    const char *scheme = ((const struct config *)state->node->config)->scheme;
    uint8_t digest[BR_DIGEST_SIZE];
    size_t scheme_len = strlen(scheme), n_equal = 0;
    (void)may_hash;
    *ret_context = NULL;
    if (scheme_len) {
        if (strncasecmp(value, scheme, scheme_len) != 0 || value[scheme_len] != ' ')
            return BR_AUTH_DENIED;
        value += scheme_len + strspn(value + scheme_len, " ");
    }
    if (!br_digest(value, strlen(value), digest))
        return BR_AUTH_DENIED;
    /* compare with all tokens, so that the duration does not reveal which token is equal */
    for (size_t i = 0; i < state->n_digests; i++)
        n_equal += br_digest_equal(digest, state->digests[i]);
    return n_equal ? BR_AUTH_ALLOWED : BR_AUTH_DENIED;
}

static int bearertokenauth_sign(struct br_authenticator *self, struct br_signing *signing,
                                struct br_err *err)
{
    const struct state *state = br_container_of(self, struct state, base);
    if (!state->first)
        return br_err_set(err, BR_EIO, "the token file of %s could not be read", self->id);
    br_signing_set(signing, state->header, state->first);
    return 0;
}

static char bearertokenauth_lower(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter + 32) : letter;
}

/* --- Component ---------------------------------------------------------------------------------
 */

static int bearertokenauth_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    (void)err;
    state->node = node;
    for (size_t i = 0; config->header[i] && i < HEADER_NAME_MAX; i++)
        state->header[i] = bearertokenauth_lower(config->header[i]);
    state->base = (struct br_authenticator){.id = node->id,
                                            .header = state->header,
                                            .scheme = config->scheme,
                                            .check = bearertokenauth_check_request,
                                            .sign = bearertokenauth_sign};
    if (!config->filename || !*config->filename) {
        if (config->token.text)
            bearertokenauth_add(state, config->token.text, strlen(config->token.text));
        for (size_t i = 0; i < config->tokens.count; i++)
            bearertokenauth_add(state, config->tokens.items[i], strlen(config->tokens.items[i]));
    }
    br_authenticator_add(node->host, &state->base);
    return 0;
}

static int bearertokenauth_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    if (!config->filename || !*config->filename)
        return 0;
    struct br_watched_config watched = {.path = config->filename,
                                        .log = &node->log,
                                        .may_be_missing = config->retry_on_failure &&
                                                          config->retry_on_failure->enabled,
                                        .on_text = bearertokenauth_on_text,
                                        .arg = state};
    return br_watched_new(node->host, &watched, &state->watched, err);
}

static void bearertokenauth_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_authenticator_remove(&state->base);
    br_watched_free(state->watched);
    bearertokenauth_forget(state);
}

extern const struct br_component br_bearertokenauth_extension;
const struct br_component br_bearertokenauth_extension = {
    .name = "bearertokenauth",
    .alias = "bearer_token_auth",
    .kind = BR_EXTENSION,
    .every_worker = true,
    .stability = "beta",
    .help = "authenticates by a token, on servers and clients",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .authenticates = bearertokenauth_sides,
    .check = bearertokenauth_check,
    .create = bearertokenauth_create,
    .start = bearertokenauth_start,
    .destroy = bearertokenauth_destroy,
};
