/* SPDX-License-Identifier: Apache-2.0 */
#include "app/adapt_parts.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/parts.h"

/* The text of a setting: `text` after expansion of ${...}, `raw` as in the file. */
struct text {
    const char *text, *raw;
};

struct translation {
    const struct br_auth *auth;
    struct br_yaml *headers; /* map of the headers that the extension sends */
    /* for each header: a value that the exporter already sets takes precedence */
    bool insert[BR_HEADERS_MAX];
    const char *why; /* why headers cannot replace the extension; NULL if they can */
    bool no_memory;
};

static void *auth_keep(struct translation *translation, void *memory)
{
    translation->no_memory = translation->no_memory || !memory;
    return memory;
}

static void auth_refuse(struct translation *translation, const char *why)
{
    translation->why = translation->why ? translation->why : why;
}

/* Returns the text of a setting, or `otherwise` if it is missing or null. */
static struct text auth_text(struct translation *translation, const struct br_yaml *map,
                             const char *key, const char *otherwise)
{
    const struct br_yaml *node = br_yaml_get(map, key);
    struct text text = {otherwise, otherwise};
    if (!node || node->type == BR_YAML_NULL)
        return text;
    if (node->type != BR_YAML_SCALAR && !node->brought) {
        auth_refuse(translation, br_arena_printf(translation->auth->arena,
                                                 "\"%s\" of its extension is not a text", key));
        return text;
    }
    text.text = node->brought ? node->brought : node->text;
    text.raw = node->raw ? node->raw->text : node->text;
    return text;
}

static struct text auth_join(struct translation *translation, struct text first,
                             const char *between, struct text second)
{
    struct br_arena *arena = translation->auth->arena;
    return (struct text){
        auth_keep(translation, br_arena_printf(arena, "%s%s%s", first.text, between, second.text)),
        auth_keep(translation, br_arena_printf(arena, "%s%s%s", first.raw, between, second.raw))};
}

static struct br_yaml *auth_scalar(struct translation *translation, const char *text)
{
    return auth_keep(translation, br_yaml_scalar(translation->auth->arena, text, strlen(text),
                                                 translation->auth->extension));
}

static void auth_add(struct translation *translation, const char *name, struct text value,
                     bool insert)
{
    if (!*name ||
        name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")])
        auth_refuse(translation,
                    "the name of a header contains characters other than letters, digits, - and _");
    if (translation->headers->count == BR_HEADERS_MAX)
        auth_refuse(translation, "its extension has too many headers");
    if (translation->why || translation->no_memory)
        return;
    translation->insert[translation->headers->count] = insert;
    struct br_yaml *key = auth_scalar(translation, name),
                   *node = auth_scalar(translation, value.text),
                   *raw = auth_scalar(translation, value.raw);
    if (!key || !node || !raw)
        return;
    key->quoted = node->quoted = raw->quoted = true;
    node->expanded = strcmp(value.text, value.raw) != 0;
    node->raw = strchr(value.raw, '$') ? raw : NULL;
    if (br_yaml_append(translation->auth->arena, translation->headers, key, node))
        translation->no_memory = true;
}

/* Rejects settings whose keys are not in `known`, which ends with NULL. */
static void auth_check_keys(struct translation *translation, const struct br_yaml *map,
                            const char *const *known)
{
    for (size_t i = 0; map && map->type == BR_YAML_MAP && i < map->count; i++) {
        const char *const *name = known;
        while (*name && strcmp(*name, map->keys[i]->text) != 0)
            name++;
        if (!*name && map->items[i]->type != BR_YAML_NULL)
            auth_refuse(translation,
                        auth_keep(translation, br_arena_printf(translation->auth->arena,
                                                               "its extension has \"%s\", which no "
                                                               "fixed header can replace",
                                                               map->keys[i]->text)));
    }
}

static void auth_bearer(struct translation *translation)
{
    static const char *const known[] = {"scheme", "token", "tokens", "header", NULL};
    const struct br_yaml *map = translation->auth->extension;
    const struct br_yaml *tokens = br_yaml_get(map, "tokens");
    auth_check_keys(translation, map, known);
    struct text scheme = auth_text(translation, map, "scheme", "Bearer");
    struct text token = auth_text(translation, map, "token", "");
    /* If there are several tokens, the client sends the first one. */
    if (!*token.text && tokens && tokens->type == BR_YAML_SEQ && tokens->count &&
        tokens->items[0]->type == BR_YAML_SCALAR)
        token = (struct text){tokens->items[0]->text, tokens->items[0]->raw
                                                          ? tokens->items[0]->raw->text
                                                          : tokens->items[0]->text};
    if (!*token.raw)
        auth_refuse(translation, br_yaml_get(map, "token")
                                     ? "the token of its extension is empty; is its environment "
                                       "variable set?"
                                     : "its extension has no token");
    auth_add(translation, auth_text(translation, map, "header", "Authorization").text,
             *scheme.text ? auth_join(translation, scheme, " ", token) : token, false);
}

static void auth_basic(struct translation *translation)
{
    static const char *const outer[] = {"client_auth", "htpasswd", NULL};
    static const char *const inner[] = {"username", "password", NULL};
    const struct br_yaml *client = br_yaml_get(translation->auth->extension, "client_auth");
    struct br_str coded = {0};
    auth_check_keys(translation, translation->auth->extension, outer);
    auth_check_keys(translation, client, inner);
    struct text name = auth_text(translation, client, "username", "");
    if (!*name.raw)
        auth_refuse(translation, "its extension has no client_auth with a username");
    struct text both =
        auth_join(translation, name, ":", auth_text(translation, client, "password", ""));
    if (translation->why || translation->no_memory)
        return;
    br_str_puts(&coded, "Basic ");
    br_str_base64(&coded, (const uint8_t *)both.text, strlen(both.text));
    struct text value = {
        auth_keep(translation,
                  coded.failed ? NULL
                               : br_arena_strndup(translation->auth->arena, coded.data, coded.len)),
        NULL};
    br_str_release(&coded);
    value.raw = value.text;
    if (strchr(both.raw, '$'))
        value.raw = auth_keep(
            translation, br_arena_printf(translation->auth->arena, "Basic ${base64:%s}", both.raw));
    auth_add(translation, "Authorization", value, false);
}

static void auth_set_header(struct translation *translation, const struct br_yaml *rule)
{
    static const char *const known[] = {"action", "key", "value", NULL};
    auth_check_keys(translation, rule, known);
    const char *action = auth_text(translation, rule, "action", "upsert").text;
    struct text name = auth_text(translation, rule, "key", "");
    if (strcasecmp(action, "insert") != 0 && strcasecmp(action, "upsert") != 0)
        auth_refuse(translation, "its extension has an action other than insert or upsert");
    if (!*name.text || !br_yaml_get(rule, "value"))
        auth_refuse(translation, "its extension has a header without a key or a fixed value");
    auth_add(translation, name.text, auth_text(translation, rule, "value", ""),
             strcasecmp(action, "insert") == 0);
}

static void auth_headers(struct translation *translation)
{
    static const char *const known[] = {"headers", NULL};
    const struct br_yaml *map = translation->auth->extension;
    const struct br_yaml *list = br_yaml_get(map, "headers");
    auth_check_keys(translation, map, known);
    if (!list || list->type != BR_YAML_SEQ || !list->count)
        auth_refuse(translation, "its extension has no list of headers");
    for (size_t i = 0; !translation->why && i < list->count; i++)
        auth_set_header(translation, list->items[i]);
}

/* Returns the index of a header, ignoring case, or the count if it is missing. */
static size_t auth_find(const struct br_yaml *headers, size_t count, const char *name)
{
    size_t i = 0;
    while (i < count && strcasecmp(headers->keys[i]->text, name) != 0)
        i++;
    return i;
}

static void auth_check(struct translation *translation, const struct br_yaml *own)
{
    const struct br_yaml *headers = translation->headers;
    if (own && own->type != BR_YAML_NULL && own->type != BR_YAML_MAP)
        auth_refuse(translation, "`headers` of the exporter is not a map");
    for (size_t i = 0; i < headers->count; i++)
        if (auth_find(headers, i, headers->keys[i]->text) < i)
            auth_refuse(translation, "its extension sets a header twice");
}

/* Returns a header's value as quoted YAML text for the file. */
static const char *auth_quote(struct translation *translation, const struct br_yaml *value)
{
    struct br_str quoted = {0};
    const char *text = value->raw ? value->raw->text : value->text;
    br_str_json(&quoted, text, strlen(text));
    const char *kept = auth_keep(
        translation,
        quoted.failed ? NULL : br_arena_strndup(translation->auth->arena, quoted.data, quoted.len));
    br_str_release(&quoted);
    return kept;
}

static void auth_edit(struct translation *translation, enum br_edit_kind kind,
                      const struct br_yaml *at, const char *key, const char *text)
{
    struct br_edits *edits = translation->auth->edits;
    if (edits && br_edits_add(edits, kind, at, key, text))
        translation->no_memory = true;
}

/* Adds the map `headers` to an exporter that has none. */
static void auth_write_new(struct translation *translation, const struct br_yaml *key,
                           struct br_yaml *exporter)
{
    struct br_str all = {0};
    for (size_t i = 0; i < translation->headers->count; i++) {
        const char *quoted = auth_quote(translation, translation->headers->items[i]);
        br_str_printf(&all, "%s%s: %s", i ? ", " : "{", translation->headers->keys[i]->text,
                      quoted ? quoted : "");
    }
    br_str_putc(&all, '}');
    char *whole = auth_keep(
        translation,
        all.failed ? NULL : br_arena_strndup(translation->auth->arena, all.data, all.len));
    br_str_release(&all);
    struct br_yaml *name = auth_scalar(translation, "headers");
    if (!whole || !name)
        return;
    auth_edit(translation, BR_EDIT_PUT, key, "headers", whole);
    if (br_yaml_append(translation->auth->arena, exporter, name, translation->headers))
        translation->no_memory = true;
}

/* Adds the extension's headers to those of an exporter. In the Collector, authenticators run
 * last: they replace the value of a header, unless their action is insert. */
static void auth_write_more(struct translation *translation, struct br_yaml *exporter, size_t at)
{
    struct br_arena *arena = translation->auth->arena;
    struct br_yaml *own = exporter->items[at];
    if (own->type != BR_YAML_MAP)
        own = exporter->items[at] = auth_keep(translation, br_yaml_new(arena, BR_YAML_MAP, own));
    for (size_t i = 0; own && i < translation->headers->count && !translation->no_memory; i++) {
        struct br_yaml *name = translation->headers->keys[i],
                       *value = translation->headers->items[i];
        size_t same = auth_find(own, own->count, name->text);
        const char *quoted = auth_quote(translation, value);
        if (same == own->count) {
            auth_edit(translation, BR_EDIT_PUT, exporter->keys[at], name->text, quoted);
            if (br_yaml_append(arena, own, name, value))
                translation->no_memory = true;
        } else if (!translation->insert[i]) {
            auth_edit(translation, BR_EDIT_SET, own->keys[same], NULL, quoted);
            own->items[same] = value;
        }
    }
}

static void auth_write(struct translation *translation, const struct br_yaml *key,
                       struct br_yaml *exporter)
{
    size_t auth = br_yaml_index(exporter, "auth");
    auth_edit(translation, BR_EDIT_CUT, exporter->keys[auth], NULL,
              "auth is replaced with headers");
    br_yaml_remove(exporter, auth);
    size_t headers = br_yaml_index(exporter, "headers");
    if (headers == exporter->count)
        auth_write_new(translation, key, exporter);
    else
        auth_write_more(translation, exporter, headers);
}

int br_auth_translate(const struct br_auth *auth, const struct br_yaml *key,
                      struct br_yaml *exporter, const char **ret_why)
{
    struct translation translation = {.auth = auth};
    translation.headers =
        auth_keep(&translation, br_yaml_new(auth->arena, BR_YAML_MAP, auth->extension));
    if (!translation.headers)
        return BR_ENOMEM;
    if (strcmp(auth->type, "bearertokenauth") == 0 || strcmp(auth->type, "bearer_token_auth") == 0)
        auth_bearer(&translation);
    else if (strcmp(auth->type, "basicauth") == 0 || strcmp(auth->type, "basic_auth") == 0)
        auth_basic(&translation);
    else if (strcmp(auth->type, "headers_setter") == 0)
        auth_headers(&translation);
    else
        auth_refuse(&translation, "fixed headers cannot replace its extension");
    auth_check(&translation, br_yaml_get(exporter, "headers"));
    if (!translation.why && !translation.no_memory)
        auth_write(&translation, key, exporter);
    if (translation.no_memory)
        return BR_ENOMEM;
    *ret_why = translation.why;
    return translation.why ? BR_EUNSUPPORTED : 0;
}
