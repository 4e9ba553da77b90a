/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension headers_setter: changes the headers of an exporter's requests. The value of a
 * header is fixed, or is a header or attribute of the client whose data is sent.
 */
#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "core/authenticator.h"
#include "core/watched.h"
#include "net/signing.h"
#include "pipeline/component.h"

#define VALUE_MAX 8192 /* longest value of a header, in bytes */

enum action { INSERT, UPDATE, UPSERT, DELETE };

static const char *const actions[] = {"insert", "update", "upsert", "delete", NULL};

struct rule {
    int action;
    const char *key, *from_context, *from_attribute, *value_file;
    struct br_secret value, default_value;
};

struct config {
    struct br_structs headers; /* list of struct rule */
    /* metadata keys whose values the rules read; set when the configuration is checked */
    struct br_strings metadata_keys;
};

/* The contents of a rule's value_file. */
struct file {
    struct br_str text;
    struct br_watched *watched;
};

struct state {
    struct br_authenticator base;
    struct br_node *node;
    /* array with an entry for each rule; an entry is unused if its rule has no value_file */
    struct file *files;
};

static const struct br_option rule_options[] = {
    BR_ENUM(struct rule, action, "upsert", actions,
            "insert: only if the header is missing; update: only if it exists; upsert: always; "
            "delete: remove it"),
    {.name = "key",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct rule, key, const char *),
     .required = true,
     .help = "name of the header"},
    BR_SECRET(struct rule, value, "a fixed value"),
    BR_STRING(struct rule, value_file, NULL, "file with the value; read again when it changes"),
    BR_STRING(struct rule, from_context, NULL,
              "header of the client's request that contains the value"),
    BR_STRING(struct rule, from_attribute, NULL,
              "attribute of the authenticated client that contains the value, such as username"),
    BR_SECRET(struct rule, default_value,
              "value to use if from_context or from_attribute finds no value"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_LIST(struct config, headers, struct rule, rule_options,
            "changes of headers, in the order in which they are made"),
    BR_OPT_END,
};

/* --- Config ------------------------------------------------------------------------------------
 */

static bool headers_setter_is_set(const char *text)
{
    return text && *text;
}

static void headers_setter_check_rule(const struct rule *rule, const struct br_yaml *node,
                                      const char *path, struct br_errs *errs)
{
    static const char letters[] =
        "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    bool has_context = headers_setter_is_set(rule->from_context);
    bool has_attribute = headers_setter_is_set(rule->from_attribute);
    int n = (rule->value.text != NULL) + headers_setter_is_set(rule->value_file) + has_context +
            has_attribute;
    if (!*rule->key || rule->key[strspn(rule->key, letters)])
        br_errs_add_key(errs, node, path, "key", "must be the name of a header");
    if (rule->action != DELETE && n != 1)
        br_errs_add(errs, node, path,
                    "needs exactly one of value, value_file, from_context and from_attribute");
    if (rule->default_value.text && !has_context && !has_attribute)
        br_errs_add_key(errs, node, path, "default_value",
                        "belongs to from_context or from_attribute");
}

/* If the rule reads a metadata key, adds the key to `keys`. Returns 0 or BR_ENOMEM. */
static int headers_setter_note_key(const struct rule *rule, struct br_arena *arena,
                                   struct br_strings *keys)
{
    const char *key = headers_setter_is_set(rule->from_context) ? rule->from_context : NULL;
    if (headers_setter_is_set(rule->from_attribute))
        key = br_arena_printf(arena, BR_AUTH_KEY "%s", rule->from_attribute);
    else if (!key)
        return 0;
    if (!key)
        return BR_ENOMEM;
    keys->items[keys->count++] = key;
    return 0;
}

static int headers_setter_check(void *config, const struct br_yaml *node, const char *path,
                                struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    const struct rule *rules = settings->headers.items;
    const struct br_yaml *list = br_yaml_get(node, "headers");
    size_t before = errs->n_errors;
    if (!settings->headers.count)
        return br_errs_add_key(errs, node, path, "headers", "must have at least one header");
    settings->metadata_keys = (struct br_strings){
        .items = br_arena_calloc(arena, settings->headers.count, sizeof(const char *))};
    if (!settings->metadata_keys.items)
        return BR_ENOMEM;
    for (size_t i = 0; i < settings->headers.count; i++) {
        const char *at = br_arena_printf(arena, "%s::headers[%zu]", path, i);
        if (!at || headers_setter_note_key(&rules[i], arena, &settings->metadata_keys))
            return BR_ENOMEM;
        headers_setter_check_rule(&rules[i], list->items[i], at, errs);
    }
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static const struct br_strings *headers_setter_metadata_keys(const void *config)
{
    return &((const struct config *)config)->metadata_keys;
}

static unsigned headers_setter_sides(const void *config)
{
    (void)config;
    return BR_AUTH_CLIENT;
}

/* --- Requests ----------------------------------------------------------------------------------
 */

/* Appends the values of a metadata key, joined by commas (RFC 9110 section 5.3). The key
 * consists of `prefix` and `name`. Returns false if the key has no values. */
static bool headers_setter_put_metadata(const char *metadata, const char *prefix, const char *name,
                                        struct br_str *out)
{
    size_t prefix_len = strlen(prefix);
    bool found = false;
    for (const char *key = metadata; key && *key;) {
        const char *value = key + strlen(key) + 1;
        if (strncasecmp(key, prefix, prefix_len) == 0 && strcasecmp(key + prefix_len, name) == 0) {
            br_str_printf(out, "%s%s", found ? ", " : "", value);
            found = true;
        }
        key = value + strlen(value) + 1;
    }
    return found;
}

/* Appends the value of a rule. Returns false if the rule has no value. */
static bool headers_setter_put_value(const struct state *state, size_t index,
                                     const struct br_exchange *exchange, struct br_str *out)
{
    const struct config *config = state->node->config;
    const struct rule *rule = (const struct rule *)config->headers.items + index;
    bool found = false;
    if (rule->value.text) {
        br_str_puts(out, rule->value.text);
        return true;
    }
    if (headers_setter_is_set(rule->value_file)) {
        br_str_puts(out, state->files[index].text.data ? state->files[index].text.data : "");
        return true;
    }
    if (headers_setter_is_set(rule->from_context))
        found = headers_setter_put_metadata(exchange->metadata, "", rule->from_context, out);
    else
        found =
            headers_setter_put_metadata(exchange->metadata, BR_AUTH_KEY, rule->from_attribute, out);
    if (!found && rule->default_value.text) {
        br_str_puts(out, rule->default_value.text);
        found = true;
    }
    return found;
}

static int headers_setter_apply(const struct state *state, size_t index, struct br_signing *signing)
{
    const struct config *config = state->node->config;
    const struct rule *rule = (const struct rule *)config->headers.items + index;
    bool there = br_signing_get(signing, rule->key) != NULL;
    struct br_str value = {.max = VALUE_MAX};
    if (rule->action == DELETE)
        br_signing_remove(signing, rule->key);
    if (rule->action == DELETE || (rule->action == INSERT && there) ||
        (rule->action == UPDATE && !there))
        return 0;
    br_str_puts(&value, "");
    bool found = headers_setter_put_value(state, index, signing->exchange, &value);
    if (found && value.data && !value.failed)
        br_signing_set(signing, rule->key, value.data);
    int rc = value.failed ? BR_ENOMEM : 0;
    if (value.data)
        OPENSSL_cleanse(value.data, value.cap);
    br_str_release(&value);
    return rc;
}

static int headers_setter_sign(struct br_authenticator *self, struct br_signing *signing,
                               struct br_err *err)
{
    const struct state *state = br_container_of(self, struct state, base);
    const struct config *config = state->node->config;
    for (size_t i = 0; i < config->headers.count; i++)
        if (headers_setter_apply(state, i, signing))
            return br_err_set(err, BR_ENOMEM, "a header is too long, or out of memory");
    return 0;
}

/* --- Component ---------------------------------------------------------------------------------
 */

static int headers_setter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    state->node = node;
    state->base = (struct br_authenticator){
        .id = node->id, .header = "", .scheme = "", .sign = headers_setter_sign};
    state->files = br_calloc(config->headers.count, sizeof *state->files);
    if (!state->files)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    br_authenticator_add(node->host, &state->base);
    return 0;
}

/* Stores the first line of a file. */
static void headers_setter_on_text(void *arg, const char *text, size_t len)
{
    struct file *file = arg;
    (void)len;
    br_str_clear(&file->text);
    br_str_add(&file->text, text, strcspn(text, "\r\n"));
}

static int headers_setter_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    const struct rule *rules = config->headers.items;
    int rc = 0;
    for (size_t i = 0; i < config->headers.count && !rc; i++) {
        struct br_watched_config watched = {.path = rules[i].value_file,
                                            .log = &node->log,
                                            .on_text = headers_setter_on_text,
                                            .arg = &state->files[i]};
        if (headers_setter_is_set(rules[i].value_file))
            rc = br_watched_new(node->host, &watched, &state->files[i].watched, err);
    }
    return rc;
}

static void headers_setter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    br_authenticator_remove(&state->base);
    for (size_t i = 0; state->files && i < config->headers.count; i++) {
        br_watched_free(state->files[i].watched);
        if (state->files[i].text.data)
            OPENSSL_cleanse(state->files[i].text.data, state->files[i].text.cap);
        br_str_release(&state->files[i].text);
    }
    br_free(state->files);
}

extern const struct br_component br_headers_setter_extension;
const struct br_component br_headers_setter_extension = {
    .name = "headers_setter",
    .kind = BR_EXTENSION,
    .every_worker = true,
    .stability = "alpha",
    .help = "sets headers of an exporter's requests, fixed or from the client",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .authenticates = headers_setter_sides,
    .metadata_keys = headers_setter_metadata_keys,
    .check = headers_setter_check,
    .create = headers_setter_create,
    .start = headers_setter_start,
    .destroy = headers_setter_destroy,
};
