/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expands ${...} and $$ in values, as the Collector's confmap does. The innermost reference is
 * expanded first, and its result is expanded again. A value that consists of a single reference
 * gets the type of the result. The depth, number and size of references are limited, because a file
 * may refer to itself.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/lexer.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/parts.h"

#define NESTED_MAX 20
#define REFERENCES_MAX 1000
#define BYTES_MAX (4u << 20)

struct expand {
    const struct br_config_sources *sources;
    struct br_arena *arena;
    struct br_errs *errs;
    size_t n_references, n_bytes;
    char path[192]; /* path of the value being expanded */
};

/* The text that a reference expands to, before it is parsed as YAML. */
struct brought {
    const char *text;
    size_t len;
    const char *file; /* name of the file that contained the text, or NULL */
    /* the reference has an empty default: the result is an empty text, although YAML would read
     * null */
    bool empty;
};

static int expand_node(struct expand *expand, struct br_yaml **node, unsigned level,
                       unsigned nested);
static int expand_text(struct expand *expand, const struct br_yaml *at, const char *text,
                       size_t len, unsigned nested, bool keep, struct br_str *out);

/* Returns the length of the reference that starts at `text` ("${"), including its closing brace,
 * or 0. */
static size_t expand_reference_len(const char *text, size_t len)
{
    size_t open = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '$' && i + 1 < len && text[i + 1] == '$') {
            i++;
        } else if (text[i] == '$' && i + 1 < len && text[i + 1] == '{') {
            open++;
            i++;
        } else if (text[i] == '}' && --open == 0) {
            return i + 1;
        }
    }
    return 0;
}

const char *br_sources_getenv(const struct br_config_sources *sources, const char *name)
{
    return sources->getenv ? sources->getenv(name, sources->arg) : getenv(name);
}

static int expand_bring_env(struct expand *expand, const struct br_yaml *at, const char *ref,
                            size_t len, struct brought *ret)
{
    const char *dash = memmem(ref, len, ":-", 2);
    size_t name_len = dash ? (size_t)(dash - ref) : len;
    char *name = br_arena_strndup(expand->arena, ref, name_len);
    char shown[BR_SHOWN_SIZE];
    if (!name)
        return br_errs_no_memory(expand->errs);
    if (!br_is_identifier(name, name_len))
        return br_errs_add(expand->errs, at, NULL,
                           "%s cannot be the name of an environment variable: write ${env:NAME} "
                           "with letters, digits and _, no digit first",
                           br_text_show(name, shown));
    const char *value = br_sources_getenv(expand->sources, name);
    *ret = (struct brought){.text = value, .len = value ? strlen(value) : 0};
    if (!value && dash) {
        ret->text = dash + 2;
        ret->len = len - name_len - 2;
        ret->empty = ret->len == 0;
    } else if (!value && expand->sources->unset) {
        ret->text = expand->sources->unset;
        ret->len = strlen(ret->text);
    } else if (!value) {
        br_errs_warn(expand->errs, at, NULL,
                     "the environment variable %s is not set and counts as empty", name);
        ret->text = "";
    }
    return 0;
}

static int expand_bring_file(struct expand *expand, const struct br_yaml *at, const char *ref,
                             size_t len, struct brought *ret)
{
    char *path = br_arena_strndup(expand->arena, ref, len);
    if (!path)
        return br_errs_no_memory(expand->errs);
    const char *why;
    char shown[BR_SHOWN_SIZE];
    int rc = br_file_read(path, expand->arena, &ret->text, &ret->len, &why);
    if (rc == BR_ENOMEM)
        return br_errs_no_memory(expand->errs);
    if (rc)
        return br_errs_add(expand->errs, at, NULL, "cannot read the file %s: %s",
                           br_text_show(path, shown), why);
    ret->file = path;
    return 0;
}

/* Encodes a text in base64, as basic authentication sends a user name and a password. */
static int expand_bring_base64(struct expand *expand, const char *text, size_t len,
                               struct brought *ret)
{
    struct br_str plain = {.max = BR_YAML_SIZE_MAX}, coded = {.max = 2 * BR_YAML_SIZE_MAX};
    br_str_add(&plain, "", 0);
    br_str_add(&coded, "", 0);
    for (size_t i = 0; i < len; i++) {
        br_str_putc(&plain, text[i]);
        i += text[i] == '$' && i + 1 < len && text[i + 1] == '$';
    }
    if (!plain.failed)
        br_str_base64(&coded, (const uint8_t *)plain.data, plain.len);
    bool failed = plain.failed || coded.failed;
    const char *kept = failed ? NULL : br_arena_strndup(expand->arena, coded.data, coded.len);
    *ret = (struct brought){.text = kept, .len = coded.len, .empty = !coded.len};
    br_str_release(&plain);
    br_str_release(&coded);
    return kept ? 0 : br_errs_no_memory(expand->errs);
}

/* Returns the length of the "scheme:" at the start of a reference, or 0. */
static size_t expand_scheme_len(const char *ref, size_t len)
{
    size_t n = 0;
    while (n < len && (isalnum((unsigned char)ref[n]) || strchr("+.-", ref[n])))
        n++;
    bool is_default = n + 1 < len && ref[n] == ':' && ref[n + 1] == '-';
    return n >= 2 && n < len && ref[n] == ':' && !is_default ? n + 1 : 0;
}

static int expand_bring_by_scheme(struct expand *expand, const struct br_yaml *at, const char *ref,
                                  size_t len, struct brought *ret)
{
    if (br_bytes_start(ref, len, "env:"))
        return expand_bring_env(expand, at, ref + 4, len - 4, ret);
    if (br_bytes_start(ref, len, "file:"))
        return expand_bring_file(expand, at, ref + 5, len - 5, ret);
    if (br_bytes_start(ref, len, "yaml:")) {
        *ret = (struct brought){.text = ref + 5, .len = len - 5};
        return 0;
    }
    if (br_bytes_start(ref, len, "base64:"))
        return expand_bring_base64(expand, ref + 7, len - 7, ret);
    size_t scheme = expand_scheme_len(ref, len);
    if (scheme)
        return br_errs_add(expand->errs, at, NULL,
                           "\"${%.*s...}\" is not supported; use ${env:NAME}, ${file:path}, "
                           "${yaml:text} or ${base64:text}",
                           (int)(scheme > 40 ? 40 : scheme), ref);
    return expand_bring_env(expand, at, ref, len, ret);
}

static int expand_check_brought(struct expand *expand, const struct br_yaml *at,
                                const struct brought *value)
{
    expand->n_bytes += value->len;
    if (expand->n_bytes > BYTES_MAX) {
        br_errs_add(expand->errs, at, NULL, "the results of all ${...} are larger than %u MiB",
                    BYTES_MAX >> 20);
        return BR_ETOOBIG;
    }
    if (br_utf8_valid((const uint8_t *)value->text, value->len) != value->len ||
        memchr(value->text, '\0', value->len))
        return br_errs_add(expand->errs, at, NULL, "the result of ${...} is not UTF-8 text");
    return 0;
}

/* Returns the text that the reference "${...}" of `len` bytes expands to. */
static int expand_bring(struct expand *expand, const struct br_yaml *at, const char *text,
                        size_t len, unsigned nested, struct brought *ret)
{
    if (nested >= NESTED_MAX)
        return br_errs_add(expand->errs, at, NULL,
                           "${...} is nested over %d levels; does it refer to itself?", NESTED_MAX);
    if (++expand->n_references > REFERENCES_MAX)
        return br_errs_add(expand->errs, at, NULL, "the configuration contains more than %d ${...}",
                           REFERENCES_MAX);
    struct br_str ref = {.max = BR_YAML_SIZE_MAX};
    br_str_add(&ref, "", 0);
    int rc = expand_text(expand, at, text + 2, len - 3, nested + 1, true, &ref);
    char *kept = NULL;
    if (rc == 0) {
        kept = ref.failed ? NULL : br_arena_strndup(expand->arena, ref.data, ref.len);
        rc = kept ? expand_bring_by_scheme(expand, at, kept, ref.len, ret)
                  : br_errs_no_memory(expand->errs);
    }
    br_str_release(&ref);
    return rc ? rc : expand_check_brought(expand, at, ret);
}

static void expand_relocate(struct br_yaml *node, const struct br_yaml *at)
{
    node->file = at->file;
    node->line = at->line;
    node->col = at->col;
    for (size_t i = 0; i < node->count; i++) {
        if (node->keys)
            expand_relocate(node->keys[i], at);
        expand_relocate(node->items[i], at);
    }
}

static void expand_mark_expanded(struct br_yaml *node)
{
    node->expanded = true;
    for (size_t i = 0; i < node->count; i++)
        expand_mark_expanded(node->items[i]);
}

/* Parses the result of a reference as YAML. Sets `*ret` to NULL if the result is not YAML; the
 * result is then used as plain text. */
static int expand_parse_brought(struct expand *expand, const struct br_yaml *at,
                                const struct brought *value, struct br_yaml **ret)
{
    struct br_errs ignored = {0};
    *ret = NULL;
    int rc = br_yaml_parse(value->text, value->len, value->file ? value->file : at->file,
                           expand->arena, ret, &ignored);
    br_errs_release(&ignored);
    if (rc == BR_ENOMEM)
        return br_errs_no_memory(expand->errs);
    return 0;
}

/* Makes a scalar node from a text. The text keeps its spelling, including quotes, as in the
 * Collector. If the text is the content of a file, only the line breaks at its end are removed.
 * Numbers and booleans are parsed as in YAML. */
static int expand_text_node(struct expand *expand, const struct br_yaml *at,
                            const struct brought *value, const struct br_yaml *parsed,
                            struct br_yaml **ret)
{
    enum br_yaml_look look = BR_LOOK_TEXT;
    if (parsed && !parsed->quoted)
        look = br_yaml_look(parsed->text);
    const char *text = value->text;
    size_t len = value->len;
    if (look == BR_LOOK_BOOL || look == BR_LOOK_NUMBER) {
        text = parsed->text;
        len = parsed->len;
    } else if (value->file) {
        while (len && (text[len - 1] == '\n' || text[len - 1] == '\r'))
            len--;
    }
    *ret = br_yaml_scalar(expand->arena, text, len, at);
    if (!*ret)
        return br_errs_no_memory(expand->errs);
    (*ret)->quoted = look == BR_LOOK_TEXT;
    (*ret)->expanded = true;
    return 0;
}

/* Returns true for a value in quotes whose reference expands to a text that YAML reads as null:
 * "null" itself or a text that looks like a comment. In quotes, such a value remains a text. */
static bool expand_is_quoted_null(const struct br_yaml *at, const struct brought *value,
                                  const struct br_yaml *parsed)
{
    return at->quoted && value->len && parsed && parsed->type == BR_YAML_NULL;
}

/* Expands a value that consists of a single reference. The result of the reference may be of any
 * YAML type. */
static int expand_whole(struct expand *expand, struct br_yaml **node, unsigned level,
                        unsigned nested)
{
    const struct br_yaml *at = *node;
    struct brought value = {.text = ""};
    struct br_yaml *parsed, *result;
    int rc = expand_bring(expand, at, at->text, at->len, nested, &value);
    if (rc == 0)
        rc = expand_parse_brought(expand, at, &value, &parsed);
    if (rc)
        return rc;
    if (value.empty || expand_is_quoted_null(at, &value, parsed))
        parsed = NULL;
    if (parsed && parsed->type != BR_YAML_SCALAR) {
        if (!value.file || parsed->type == BR_YAML_NULL)
            expand_relocate(parsed, at);
        expand_mark_expanded(parsed);
        result = parsed;
        if (parsed->type != BR_YAML_NULL) {
            result->brought = br_arena_strndup(expand->arena, value.text, value.len);
            result->brought_len = value.len;
            if (!result->brought)
                return br_errs_no_memory(expand->errs);
        }
    } else {
        rc = expand_text_node(expand, at, &value, parsed, &result);
        if (rc)
            return rc;
    }
    result->raw = at->raw ? at->raw : at;
    *node = result;
    return expand_node(expand, node, level, nested + 1);
}

/* Expands a reference inside a longer text. The result is always a text and is not parsed as
 * YAML: a password may contain a colon, for example. */
static int expand_inside(struct expand *expand, const struct br_yaml *at, const char *text,
                         size_t len, unsigned nested, bool keep, struct br_str *out)
{
    struct brought value = {.text = ""};
    int rc = expand_bring(expand, at, text, len, nested, &value);
    if (rc)
        return rc;
    while (value.file && value.len && strchr("\r\n", value.text[value.len - 1]))
        value.len--;
    return expand_text(expand, at, value.text, value.len, nested + 1, keep, out);
}

/* Expands a text. If `keep` is true, $$ stays unchanged: inside a reference, $$ is replaced
 * once, when the result is expanded. */
static int expand_text(struct expand *expand, const struct br_yaml *at, const char *text,
                       size_t len, unsigned nested, bool keep, struct br_str *out)
{
    for (size_t i = 0; i < len;) {
        bool more = text[i] == '$' && i + 1 < len;
        if (!more || (text[i + 1] != '$' && text[i + 1] != '{')) {
            const char *next = memchr(text + i + 1, '$', len - i - 1);
            size_t plain = next ? (size_t)(next - text) - i : len - i;
            br_str_add(out, text + i, plain);
            i += plain;
        } else if (text[i + 1] == '$') {
            br_str_add(out, "$$", keep ? 2 : 1);
            i += 2;
        } else {
            size_t ref = expand_reference_len(text + i, len - i);
            if (ref == 0 && nested == 0)
                return br_errs_add(
                    expand->errs, at, NULL,
                    "\"${\" has no closing \"}\"; write \"$${\" for the literal text");
            if (ref == 0) {
                /* A "${" without a closing brace in the result of a reference is kept: a secret
                 * may contain it, for example. */
                br_str_add(out, text + i, len - i);
                return 0;
            }
            int rc = expand_inside(expand, at, text + i, ref, nested, keep, out);
            if (rc)
                return rc;
            i += ref;
        }
    }
    return out->failed ? br_errs_no_memory(expand->errs) : 0;
}

/* Warns about "$TOKEN" in a file: Braid does not expand it, but other programs would. */
static void expand_warn_bare(struct expand *expand, const struct br_yaml *node)
{
    const char *first = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_", *more = "0123456789";
    for (const char *p = strchr(node->text, '$'); p; p = strchr(p, '$')) {
        p++;
        size_t n = strspn(p, first);
        while (n && p[n] && (strchr(first, p[n]) || strchr(more, p[n])))
            n++;
        if (n > 1 && n <= 64 && !islower((unsigned char)p[n])) {
            br_errs_warn(
                expand->errs, node, expand->path,
                "$%.*s is text; write ${env:%.*s} for the variable, or $$%.*s for the text", (int)n,
                p, (int)n, p, (int)n, p);
            return;
        }
        p += *p == '$';
    }
}

static int expand_scalar(struct expand *expand, struct br_yaml **node, unsigned level,
                         unsigned nested)
{
    struct br_yaml *old = *node;
    if (!memchr(old->text, '$', old->len))
        return 0;
    if (nested == 0)
        expand_warn_bare(expand, old);
    if (br_bytes_start(old->text, old->len, "${") &&
        expand_reference_len(old->text, old->len) == old->len)
        return expand_whole(expand, node, level, nested);
    struct br_str text = {.max = BR_YAML_SIZE_MAX};
    size_t before = expand->n_references;
    br_str_add(&text, "", 0);
    int rc = expand_text(expand, old, old->text, old->len, nested, false, &text);
    struct br_yaml *result = NULL;
    if (rc == 0) {
        result = text.failed ? NULL : br_yaml_scalar(expand->arena, text.data, text.len, old);
        rc = result ? 0 : br_errs_no_memory(expand->errs);
    }
    br_str_release(&text);
    if (rc)
        return rc;
    result->quoted = old->quoted;
    result->raw = old->raw ? old->raw : old;
    result->expanded = old->expanded || expand->n_references != before;
    *node = result;
    return 0;
}

/* Expands a node and the nodes below it. Continues after an error, so that all errors of a file are
 * reported. Stops only if memory runs out. */
static int expand_node(struct expand *expand, struct br_yaml **node, unsigned level,
                       unsigned nested)
{
    struct br_yaml *yaml = *node;
    if (yaml->type == BR_YAML_SCALAR)
        return expand_scalar(expand, node, level, nested);
    if (yaml->count && level == BR_YAML_DEPTH_MAX) {
        br_errs_add(expand->errs, yaml, NULL, "maps and lists are nested over %d levels",
                    BR_YAML_DEPTH_MAX);
        return BR_ETOOBIG;
    }
    int worst = 0;
    size_t len = strlen(expand->path), room = sizeof expand->path - len;
    for (size_t i = 0; i < yaml->count && worst != BR_ENOMEM; i++) {
        if (yaml->keys)
            (void)snprintf(expand->path + len, room, "%s%s", len ? "::" : "", yaml->keys[i]->text);
        else
            (void)snprintf(expand->path + len, room, "[%zu]", i);
        int rc = expand_node(expand, &yaml->items[i], level + 1, nested);
        if (rc)
            worst = rc;
    }
    expand->path[len] = '\0';
    return worst;
}

int br_yaml_expand(struct br_yaml **node, const struct br_config_sources *sources,
                   struct br_arena *arena, struct br_errs *errs)
{
    struct expand expand = {.sources = sources, .arena = arena, .errs = errs};
    return expand_node(&expand, node, 0, 0);
}
