/* SPDX-License-Identifier: Apache-2.0 */
#include "config/option.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/foreign.h"
#include "config/parts.h"

#define NAMES_MAX 128 /* of one table, aliases included */
#define CHOICES_SIZE 320

struct reader {
    struct br_arena *arena;
    struct br_errs *errs;
};

static int read_table(struct reader *r, const struct br_option *table, const struct br_yaml *node,
                      const struct br_yaml *at, const char *path, void *out);

static int worse(int a, int b)
{
    return a == BR_ENOMEM || b == 0 ? a : b;
}

/* "must be <wanted>, got ..." at the value. */
static int refuse(struct reader *r, const struct br_yaml *node, const char *path,
                  const char *wanted)
{
    char shown[BR_SHOWN_SIZE];
    return br_errs_add(r->errs, node, path, "must be %s, got %s", wanted,
                       br_yaml_show(node, shown));
}

/* As `refuse`, for what nobody may see. */
static int refuse_secret(struct reader *r, const struct br_yaml *node, const char *path)
{
    return br_errs_add(r->errs, node, path, "must be text, not %s",
                       node->type == BR_YAML_MAP ? "a map" : "a list");
}

/* Numbers and booleans are written without quotes; what came from ${...} has no quotes of its own.
 */
static bool is_plain(const struct br_yaml *node)
{
    return node->type == BR_YAML_SCALAR && (!node->quoted || node->expanded);
}

static int refuse_plain(struct reader *r, const struct br_yaml *node, const char *path,
                        const char *wanted)
{
    char shown[BR_SHOWN_SIZE];
    if (node->type == BR_YAML_SCALAR && !is_plain(node) && br_yaml_look(node->text) != BR_LOOK_TEXT)
        return br_errs_add(r->errs, node, path, "must be %s, got the text %s; remove the quotes",
                           wanted, br_yaml_show(node, shown));
    return refuse(r, node, path, wanted);
}

static int read_bool(struct reader *r, const struct br_yaml *node, const char *path, bool *out)
{
    if (!is_plain(node) || br_yaml_look(node->text) != BR_LOOK_BOOL)
        return refuse_plain(r, node, path, "true or false");
    *out = node->text[0] == 't' || node->text[0] == 'T';
    return 0;
}

/* Decimal without leading zeros (which YAML 1.1 took for octal) or 0x. */
static bool parse_int(const char *s, int64_t *ret)
{
    bool negative = *s == '-';
    s += *s == '-' || *s == '+';
    bool hex = s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
    s += hex ? 2 : 0;
    if (!*s || (!hex && s[0] == '0' && s[1]))
        return false;
    return br_parse_int(s, hex ? 16 : 10, negative, ret);
}

static bool parse_double(const char *s, double *ret)
{
    if (!*s || s[strspn(s, "0123456789+-.eE")])
        return false;
    char *end;
    errno = 0;
    double v = strtod(s, &end);
    if (*end || (errno == ERANGE && (v > 1 || v < -1)))
        return false;
    *ret = v;
    return true;
}

static bool has_limits(const struct br_option *o)
{
    return o->min < 0 || o->min > 0 || o->max < 0 || o->max > 0;
}

static void say_range(const struct br_option *o, const char *what, char *out, size_t size)
{
    bool whole = o->kind == BR_OPT_INT;
    if (!has_limits(o))
        (void)snprintf(out, size, "a %s", what);
    else if (o->max >= 9.2e18)
        (void)snprintf(out, size, "a %s of at least %.15g", what, o->min);
    else if (whole)
        (void)snprintf(out, size, "a %s from %.0f to %.0f", what, o->min, o->max);
    else
        (void)snprintf(out, size, "a %s from %.15g to %.15g", what, o->min, o->max);
}

static bool in_range(const struct br_option *o, double v)
{
    return !has_limits(o) || (v >= o->min && v <= o->max);
}

static int read_int(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                    const char *path, int64_t *out)
{
    int64_t v;
    if (is_plain(node) && parse_int(node->text, &v) && in_range(o, (double)v)) {
        *out = v;
        return 0;
    }
    char wanted[96];
    say_range(o, "whole number", wanted, sizeof wanted);
    return refuse_plain(r, node, path, wanted);
}

static int read_double(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                       const char *path, double *out)
{
    double v;
    if (is_plain(node) && parse_double(node->text, &v) && in_range(o, v)) {
        *out = v;
        return 0;
    }
    char wanted[96];
    say_range(o, "number", wanted, sizeof wanted);
    return refuse_plain(r, node, path, wanted);
}

static int read_duration(struct reader *r, const struct br_yaml *node, const char *path,
                         uint64_t *out)
{
    uint64_t positive;
    if (node->type == BR_YAML_SCALAR && br_duration_parse(node->text, out))
        return 0;
    if (node->type == BR_YAML_SCALAR && node->text[0] == '-' &&
        br_duration_parse(node->text + 1, &positive))
        return refuse(r, node, path, "a duration that is not negative");
    return refuse(r, node, path,
                  "a duration with its unit, such as \"200ms\", \"5s\" or \"1h30m\"");
}

static int read_string(struct reader *r, const struct br_yaml *node, const char *path,
                       const char **out)
{
    if (node->type != BR_YAML_SCALAR)
        return refuse(r, node, path, "text");
    *out = node->text;
    return 0;
}

static int read_secret(struct reader *r, const struct br_yaml *node, const char *path,
                       struct br_secret *out)
{
    if (node->type == BR_YAML_MAP || node->type == BR_YAML_SEQ)
        return refuse_secret(r, node, path);
    out->text = node->text ? node->text : "";
    return 0;
}

static int choice_index(const struct br_option *o, const char *text)
{
    for (int i = 0; text && o->choices[i]; i++)
        if (strcasecmp(o->choices[i], text) == 0)
            return i;
    return -1;
}

/* "one of a, b"; as many of them as fit. */
static void say_choices(const struct br_option *o, char out[CHOICES_SIZE])
{
    struct br_str s = {.data = out, .cap = CHOICES_SIZE, .max = CHOICES_SIZE - 1, .fixed = true};
    br_str_puts(&s, o->choices[1] ? "one of " : "");
    for (int i = 0; o->choices[i]; i++)
        br_str_printf(&s, "%s%s", i ? ", " : "", o->choices[i]);
}

static int read_enum(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                     const char *path, int *out)
{
    int index = node->type == BR_YAML_SCALAR ? choice_index(o, node->text) : -1;
    if (index >= 0) {
        *out = index;
        return 0;
    }
    char wanted[CHOICES_SIZE];
    say_choices(o, wanted);
    return refuse(r, node, path, wanted);
}

static int read_strings(struct reader *r, const struct br_yaml *node, const char *path,
                        struct br_strings *out)
{
    bool list = node->type == BR_YAML_SEQ;
    if (node->type == BR_YAML_MAP)
        return refuse(r, node, path, "a list of texts");
    size_t n = list ? node->n : 1;
    const char **v = br_arena_calloc(r->arena, n, sizeof *v);
    if (!v)
        return br_errs_no_memory(r->errs);
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        char name[256];
        (void)snprintf(name, sizeof name, "%s[%zu]", path, i);
        rc = worse(rc, read_string(r, list ? node->items[i] : node, list ? name : path, &v[i]));
    }
    *out = (struct br_strings){v, n};
    return rc;
}

/* RFC 9110, 5.6.2: token. */
static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("!#$%&'*+-.^_`|~", text[i]))
            return false;
    return len > 0;
}

/* RFC 9110, 5.5: no control characters but the tab. A key file's line end is the usual one. */
static bool is_field_value(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\t') || text[i] == 0x7f)
            return false;
    return true;
}

static int read_header(struct reader *r, const struct br_yaml *name, const struct br_yaml *value,
                       const char *path, struct br_headers *out)
{
    if (!is_token(name->text, name->len))
        return br_errs_add(r->errs, name, path,
                           "the name of a header has letters, digits, dashes and the like only");
    if (value->type == BR_YAML_SCALAR && !is_field_value(value->text, value->len))
        return br_errs_add(r->errs, value, path,
                           "the value of a header has no line end and no other control character");
    out->names[out->n] = name->text;
    return read_secret(r, value, path, &out->values[out->n++]);
}

/* One element of the list form, {name, value}. */
static int read_header_pair(struct reader *r, const struct br_yaml *node, const char *path,
                            struct br_headers *out)
{
    const struct br_yaml *name = br_yaml_get(node, "name"), *value = br_yaml_get(node, "value");
    if (node->type != BR_YAML_MAP || node->n != 2 || !name || !value ||
        name->type != BR_YAML_SCALAR || !name->len)
        return br_errs_add(r->errs, node, path, "must be a map with a name and a value");
    for (size_t i = 0; i < out->n; i++)
        if (strcmp(out->names[i], name->text) == 0)
            return br_errs_add(r->errs, name, path, "the header \"%s\" is here twice", name->text);
    return read_header(r, name, value, path, out);
}

static int read_headers(struct reader *r, const struct br_yaml *node, const char *path,
                        struct br_headers *out)
{
    if (node->type == BR_YAML_SCALAR)
        return br_errs_add(r->errs, node, path, "must be a map of names and values, not text");
    if (node->n > BR_HEADERS_MAX)
        return br_errs_add(r->errs, node, path, "at most %d headers are sent", BR_HEADERS_MAX);
    struct br_headers h = {br_arena_calloc(r->arena, node->n, sizeof *h.names),
                           br_arena_calloc(r->arena, node->n, sizeof *h.values), 0};
    if (!h.names || !h.values)
        return br_errs_no_memory(r->errs);
    int rc = 0;
    for (size_t i = 0; i < node->n; i++) {
        char at[256];
        if (node->type == BR_YAML_SEQ) {
            (void)snprintf(at, sizeof at, "%s[%zu]", path, i);
            rc = worse(rc, read_header_pair(r, node->items[i], at, &h));
        } else {
            br_path_join(at, path, node->keys[i]->text);
            rc = worse(rc, read_header(r, node->keys[i], node->items[i], at, &h));
        }
    }
    *out = h;
    return rc;
}

/* The row with that name or alias, or NULL. */
static const struct br_option *find_row(const struct br_option *table, const char *key)
{
    while (table && table->name && strcmp(table->name, key) != 0 &&
           (!table->alias || strcmp(table->alias, key) != 0))
        table++;
    return table && table->name ? table : NULL;
}

/* The map without one of its keys; NULL when there is no memory. */
static struct br_yaml *without(struct reader *r, const struct br_yaml *map, size_t key)
{
    struct br_yaml *rest = br_yaml_new(r->arena, BR_YAML_MAP, map);
    for (size_t i = 0; rest && i < map->n; i++)
        if (i != key && br_yaml_append(r->arena, rest, map->keys[i], map->items[i]))
            return NULL;
    return rest;
}

/* The Collector's optional sections may say themselves, by `enabled`, whether they are there. */
static int read_present(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                        const char *path, void *field)
{
    void *sub = br_arena_calloc(r->arena, 1, o->size);
    if (!sub)
        return br_errs_no_memory(r->errs);
    size_t at = node->type == BR_YAML_MAP && !find_row(o->sub, "enabled")
                    ? br_yaml_index(node, "enabled")
                    : node->n;
    if (at < node->n) {
        bool on = true;
        char joined[192];
        const struct br_yaml *enabled = node->items[at];
        if (enabled->type != BR_YAML_NULL &&
            read_bool(r, enabled, br_path_join(joined, path, "enabled"), &on))
            return BR_EINVAL;
        if (!on)
            return 0;
        node = without(r, node, at);
        if (!node)
            return br_errs_no_memory(r->errs);
    }
    memcpy(field, &sub, sizeof sub);
    return read_table(r, o->sub, node, node, path, sub);
}

static int read_list(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                     const char *path, struct br_structs *out)
{
    if (node->type != BR_YAML_SEQ)
        return refuse(r, node, path, "a list");
    char *v = br_arena_calloc(r->arena, node->n, o->size);
    if (!v)
        return br_errs_no_memory(r->errs);
    int rc = 0;
    for (size_t i = 0; i < node->n && rc != BR_ENOMEM; i++) {
        const char *at = br_arena_printf(r->arena, "%s[%zu]", path, i);
        if (!at)
            return br_errs_no_memory(r->errs);
        rc = worse(rc, read_table(r, o->sub, node->items[i], node->items[i], at, v + i * o->size));
    }
    *out = (struct br_structs){v, node->n};
    return rc;
}

static int read_nested(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                       const struct br_yaml *at, const char *path, const char *name, void *field)
{
    /* An error's path is cut when it is filled; sub-tables need all of it for theirs. */
    const char *whole = br_arena_printf(r->arena, "%s%s%s", path, *path ? "::" : "", name);
    if (!whole)
        return br_errs_no_memory(r->errs);
    if (o->kind == BR_OPT_LIST)
        return read_list(r, o, node, whole, field);
    if (o->kind == BR_OPT_PRESENT)
        return read_present(r, o, node, whole, field);
    return read_table(r, o->sub, node, at, whole, field);
}

/* Reads a value that is there and not null. */
static int read_value(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                      const char *map_path, const char *name, void *field)
{
    char path[192];
    br_path_join(path, map_path, name);
    switch (o->kind) {
    case BR_OPT_BOOL:
        return read_bool(r, node, path, field);
    case BR_OPT_INT:
        return read_int(r, o, node, path, field);
    case BR_OPT_DOUBLE:
        return read_double(r, o, node, path, field);
    case BR_OPT_DURATION:
        return read_duration(r, node, path, field);
    case BR_OPT_STRING:
        return read_string(r, node, path, field);
    case BR_OPT_SECRET:
        return read_secret(r, node, path, field);
    case BR_OPT_ENUM:
        return read_enum(r, o, node, path, field);
    case BR_OPT_STRINGS:
        return read_strings(r, node, path, field);
    case BR_OPT_HEADERS:
        return read_headers(r, node, path, field);
    case BR_OPT_STRUCT:
    case BR_OPT_PRESENT:
    case BR_OPT_LIST:
        return read_nested(r, o, node, node, map_path, name, field);
    case BR_OPT_VALUE:
    case BR_OPT_IGNORED:
        break;
    }
    return 0;
}

/* STRUCT has no default of its own: its fields have theirs. */
static void set_default(const struct br_option *o, void *field)
{
    static const size_t sizes[] = {
        [BR_OPT_STRINGS] = sizeof(struct br_strings),
        [BR_OPT_HEADERS] = sizeof(struct br_headers),
        [BR_OPT_LIST] = sizeof(struct br_structs),
        [BR_OPT_PRESENT] = sizeof(void *),
        [BR_OPT_VALUE] = sizeof(void *),
    };
    uint64_t ns = 0;
    int index = 0;
    switch (o->kind) {
    case BR_OPT_BOOL:
        memcpy(field, &o->def.b, sizeof o->def.b);
        break;
    case BR_OPT_INT:
        memcpy(field, &o->def.i, sizeof o->def.i);
        break;
    case BR_OPT_DOUBLE:
        memcpy(field, &o->def.d, sizeof o->def.d);
        break;
    case BR_OPT_DURATION:
        if (o->def.s)
            (void)br_duration_parse(o->def.s, &ns);
        memcpy(field, &ns, sizeof ns);
        break;
    case BR_OPT_STRING:
    case BR_OPT_SECRET:
        memcpy(field, &o->def.s, sizeof o->def.s);
        break;
    case BR_OPT_ENUM:
        index = choice_index(o, o->def.s);
        index = index < 0 ? 0 : index;
        memcpy(field, &index, sizeof index);
        break;
    case BR_OPT_STRINGS:
    case BR_OPT_HEADERS:
    case BR_OPT_LIST:
    case BR_OPT_PRESENT:
    case BR_OPT_VALUE:
        memset(field, 0, sizes[o->kind]);
        break;
    case BR_OPT_STRUCT:
    case BR_OPT_IGNORED:
        break;
    }
}

/* The index of the row's key in the map, by either spelling; `node->n` when it has none. */
static size_t find_key(const struct br_option *o, const struct br_yaml *node)
{
    size_t at = br_yaml_index(node, o->name);
    return at == node->n && o->alias ? br_yaml_index(node, o->alias) : at;
}

static int check_spellings(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                           const char *path)
{
    size_t a = br_yaml_index(node, o->name);
    size_t b = o->alias ? br_yaml_index(node, o->alias) : node->n;
    if (a == node->n || b == node->n)
        return 0;
    return br_errs_add(r->errs, node->keys[a > b ? a : b], path,
                       "\"%s\" and \"%s\" are two spellings of one key; keep one", o->name,
                       o->alias);
}

static int check_required(struct reader *r, const struct br_option *o, const struct br_yaml *at,
                          const struct br_yaml *value, const char *path)
{
    bool there = value && (value->type != BR_YAML_NULL || o->kind == BR_OPT_PRESENT);
    bool empty = there && value->type == BR_YAML_SCALAR && value->len == 0;
    if (!o->required || (there && !empty))
        return 0;
    char joined[192];
    if (empty)
        return br_errs_add(r->errs, value, br_path_join(joined, path, o->name),
                           "must not be empty");
    char choices[CHOICES_SIZE] = "";
    if (o->kind == BR_OPT_ENUM)
        say_choices(o, choices);
    return br_errs_add(r->errs, at, path, "\"%s\" is missing and has no default%s%s", o->name,
                       choices[0] ? ": " : "", choices);
}

static int read_row(struct reader *r, const struct br_option *o, const struct br_yaml *node,
                    const struct br_yaml *at, const char *path, char *out)
{
    void *field = out + o->offset;
    bool map = node && node->type == BR_YAML_MAP;
    size_t index = map ? find_key(o, node) : 0;
    const struct br_yaml *key = map && index < node->n ? node->keys[index] : NULL;
    const struct br_yaml *value = key ? node->items[index] : NULL;
    set_default(o, field);
    if (map && check_spellings(r, o, node, path))
        return BR_EINVAL;
    if (check_required(r, o, at, value, path))
        return BR_EINVAL;
    if (o->kind == BR_OPT_STRUCT)
        return read_nested(r, o, value, value ? value : at, path, key ? key->text : o->name, field);
    if (!value)
        return 0;
    char joined[192];
    if (o->kind == BR_OPT_IGNORED) {
        br_errs_warn(r->errs, key, br_path_join(joined, path, key->text),
                     "is read and has no effect: %s", o->help);
        return 0;
    }
    if (o->kind == BR_OPT_VALUE)
        memcpy(field, &value, sizeof value);
    if (value->type == BR_YAML_NULL && o->kind != BR_OPT_PRESENT)
        return 0;
    return read_value(r, o, value, path, key->text, field);
}

/* Lists what would be right where that is short enough to be read. */
static void say_known(const char *const *names, size_t n, char *out, size_t size)
{
    struct br_str s = {.data = out, .cap = size, .max = size - 1, .fixed = true};
    br_str_puts(&s, n ? "; known here: " : "; it takes no keys");
    for (size_t i = 0; i < n; i++)
        br_str_printf(&s, "%s%s", i ? ", " : "", names[i]);
    if (s.failed)
        out[0] = '\0';
}

static int refuse_key(struct reader *r, const struct br_option *table, const struct br_yaml *key,
                      const char *path)
{
    const char *names[NAMES_MAX] = {NULL};
    size_t n = 0;
    if (br_errs_full(r->errs))
        return BR_EINVAL;
    for (const struct br_option *o = table; o && o->name && n + 2 <= NAMES_MAX; o++) {
        names[n++] = o->name;
        if (o->alias)
            names[n++] = o->alias;
    }
    char shown[BR_SHOWN_SIZE], known[256];
    const char *foreign = br_foreign_key(path, key->text);
    if (foreign)
        return br_errs_lack(r->errs, key, path, "\"%s\": %s", key->text, foreign);
    const char *nearest = br_str_nearest(key->text, names, n);
    if (nearest)
        return br_errs_add(r->errs, key, path, "unknown key %s; did you mean \"%s\"?",
                           br_text_show(key->text, shown), nearest);
    say_known(names, n, known, sizeof known);
    return br_errs_lack(r->errs, key, path, "unknown key %s%s", br_text_show(key->text, shown),
                        known);
}

static int check_keys(struct reader *r, const struct br_option *table, const struct br_yaml *node,
                      const char *path)
{
    int rc = 0;
    for (size_t i = 0; i < node->n; i++)
        if (!find_row(table, node->keys[i]->text))
            rc = refuse_key(r, table, node->keys[i], path);
    return rc;
}

/* Something else where a map belongs. */
static int refuse_text(struct reader *r, const struct br_yaml *node, const char *path)
{
    char shown[BR_SHOWN_SIZE], slip[BR_SHOWN_SIZE + 80];
    return br_errs_add(r->errs, node, path, "must be a map, got %s%s", br_yaml_show(node, shown),
                       br_yaml_slip(node, slip));
}

static int read_table(struct reader *r, const struct br_option *table, const struct br_yaml *node,
                      const struct br_yaml *at, const char *path, void *out)
{
    int rc = 0;
    bool usable = !node || node->type == BR_YAML_NULL || node->type == BR_YAML_MAP;
    if (!usable)
        return refuse_text(r, node, path);
    if (node && node->type == BR_YAML_MAP)
        rc = check_keys(r, table, node, path);
    for (const struct br_option *o = table; o && o->name && rc != BR_ENOMEM; o++)
        rc = worse(rc, read_row(r, o, node, at, path, out));
    return rc;
}

int br_options_read(const struct br_option *table, const struct br_yaml *node, const char *path,
                    void *out, struct br_arena *arena, struct br_errs *errs)
{
    struct reader r = {arena, errs};
    return read_table(&r, table, node, node, path, out);
}
