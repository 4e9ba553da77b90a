/* SPDX-License-Identifier: Apache-2.0 */
#include "config/option.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/foreign.h"
#include "config/parts.h"

#define NAMES_MAX 128 /* largest number of names in one table, including aliases */
#define CHOICES_SIZE 320

struct reader {
    struct br_arena *arena;
    struct br_errs *errs;
};

static int option_read_table(struct reader *reader, const struct br_option *table,
                             const struct br_yaml *node, const struct br_yaml *at, const char *path,
                             void *out);

static int option_worse(int left, int right)
{
    return left == BR_ENOMEM || right == 0 ? left : right;
}

/* Adds the error "must be <wanted>, got ..." at the value. */
static int option_refuse(struct reader *reader, const struct br_yaml *node, const char *path,
                         const char *wanted)
{
    char shown[BR_SHOWN_SIZE];
    return br_errs_add(reader->errs, node, path, "must be %s, got %s", wanted,
                       br_yaml_show(node, shown));
}

/* Adds the error for a secret without showing its value. */
static int option_refuse_secret(struct reader *reader, const struct br_yaml *node, const char *path)
{
    return br_errs_add(reader->errs, node, path, "must be text, not %s",
                       node->type == BR_YAML_MAP ? "a map" : "a list");
}

/* Returns true for a scalar without quotes, as numbers and booleans are written. The result of
 * ${...} counts as unquoted. */
static bool option_is_plain(const struct br_yaml *node)
{
    return node->type == BR_YAML_SCALAR && (!node->quoted || node->expanded);
}

static int option_refuse_plain(struct reader *reader, const struct br_yaml *node, const char *path,
                               const char *wanted)
{
    char shown[BR_SHOWN_SIZE];
    if (node->type == BR_YAML_SCALAR && !option_is_plain(node) &&
        br_yaml_look(node->text) != BR_LOOK_TEXT)
        return br_errs_add(reader->errs, node, path,
                           "must be %s, got the text %s; remove the quotes", wanted,
                           br_yaml_show(node, shown));
    return option_refuse(reader, node, path, wanted);
}

static int option_read_bool(struct reader *reader, const struct br_yaml *node, const char *path,
                            bool *out)
{
    if (!option_is_plain(node) || br_yaml_look(node->text) != BR_LOOK_BOOL)
        return option_refuse_plain(reader, node, path, "true or false");
    *out = node->text[0] == 't' || node->text[0] == 'T';
    return 0;
}

/* Parses a decimal number without leading zeros (octal in YAML 1.1), or a hexadecimal number
 * with 0x. Digits may be grouped by underscores, as in the Collector's YAML reader. */
static bool option_parse_int(const char *grouped, int64_t *ret)
{
    char digits[64];
    const char *text = digits;
    size_t n = 0;
    for (const char *p = grouped; *p; p++) {
        if (n == sizeof digits - 1)
            return false;
        if (*p != '_' || p == grouped)
            digits[n++] = *p;
    }
    digits[n] = '\0';
    bool negative = *text == '-';
    text += *text == '-' || *text == '+';
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    text += hex ? 2 : 0;
    if (!*text || (!hex && text[0] == '0' && text[1]))
        return false;
    return br_parse_int(text, hex ? 16 : 10, negative, ret);
}

static bool option_parse_double(const char *text, double *ret)
{
    if (!*text || text[strspn(text, "0123456789+-.eE")])
        return false;
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (*end || (errno == ERANGE && (v > 1 || v < -1)))
        return false;
    *ret = v;
    return true;
}

static bool option_has_limits(const struct br_option *option)
{
    return option->min < 0 || option->min > 0 || option->max < 0 || option->max > 0;
}

static void option_print_range(const struct br_option *option, const char *what, char *out,
                               size_t size)
{
    bool whole = option->kind == BR_OPT_INT;
    if (!option_has_limits(option))
        (void)snprintf(out, size, "a %s", what);
    else if (option->max >= 9.2e18)
        (void)snprintf(out, size, "a %s of at least %.15g", what, option->min);
    else if (whole)
        (void)snprintf(out, size, "a %s from %.0f to %.0f", what, option->min, option->max);
    else
        (void)snprintf(out, size, "a %s from %.15g to %.15g", what, option->min, option->max);
}

static bool option_in_range(const struct br_option *option, double value)
{
    return !option_has_limits(option) || (value >= option->min && value <= option->max);
}

static int option_read_int(struct reader *reader, const struct br_option *option,
                           const struct br_yaml *node, const char *path, int64_t *out)
{
    int64_t v;
    if (option_is_plain(node) && option_parse_int(node->text, &v) &&
        option_in_range(option, (double)v)) {
        *out = v;
        if (option->most && v > option->most) {
            *out = option->most;
            br_errs_warn(reader->errs, node, path,
                         "is read as %" PRId64 ", the largest value that Braid supports",
                         option->most);
        }
        return 0;
    }
    char wanted[96];
    option_print_range(option, "whole number", wanted, sizeof wanted);
    return option_refuse_plain(reader, node, path, wanted);
}

static int option_read_double(struct reader *reader, const struct br_option *option,
                              const struct br_yaml *node, const char *path, double *out)
{
    double v;
    if (option_is_plain(node) && option_parse_double(node->text, &v) &&
        option_in_range(option, v)) {
        *out = v;
        return 0;
    }
    char wanted[96];
    option_print_range(option, "number", wanted, sizeof wanted);
    return option_refuse_plain(reader, node, path, wanted);
}

static int option_read_duration(struct reader *reader, const struct br_yaml *node, const char *path,
                                uint64_t *out)
{
    uint64_t positive;
    if (node->type == BR_YAML_SCALAR && br_duration_parse(node->text, out))
        return 0;
    if (node->type == BR_YAML_SCALAR && node->text[0] == '-' &&
        br_duration_parse(node->text + 1, &positive))
        return option_refuse(reader, node, path, "a duration that is not negative");
    return option_refuse(reader, node, path,
                         "a duration with its unit, such as \"200ms\", \"5s\" or \"1h30m\"");
}

static int option_read_string(struct reader *reader, const struct br_yaml *node, const char *path,
                              const char **out)
{
    if (node->brought) {
        *out = node->brought;
        return 0;
    }
    if (node->type != BR_YAML_SCALAR)
        return option_refuse(reader, node, path, "text");
    *out = node->text;
    return 0;
}

static int option_read_secret(struct reader *reader, const struct br_yaml *node, const char *path,
                              struct br_secret *out)
{
    if (node->brought) {
        out->text = node->brought;
        return 0;
    }
    if (node->type == BR_YAML_MAP || node->type == BR_YAML_SEQ)
        return option_refuse_secret(reader, node, path);
    out->text = node->text ? node->text : "";
    return 0;
}

static int option_choice_index(const struct br_option *option, const char *text)
{
    for (int i = 0; text && option->choices[i]; i++)
        if (strcasecmp(option->choices[i], text) == 0)
            return i;
    return -1;
}

/* Writes "one of a, b" with as many of the option's choices as fit. */
static void option_print_choices(const struct br_option *option, char out[CHOICES_SIZE])
{
    struct br_str str = {.data = out, .cap = CHOICES_SIZE, .max = CHOICES_SIZE - 1, .fixed = true};
    br_str_puts(&str, option->choices[1] ? "one of " : "");
    for (int i = 0; option->choices[i]; i++)
        br_str_printf(&str, "%s%s", i ? ", " : "", option->choices[i]);
}

static int option_read_enum(struct reader *reader, const struct br_option *option,
                            const struct br_yaml *node, const char *path, int *out)
{
    int index = node->type == BR_YAML_SCALAR ? option_choice_index(option, node->text) : -1;
    if (index >= 0) {
        *out = index;
        return 0;
    }
    char wanted[CHOICES_SIZE];
    option_print_choices(option, wanted);
    if (node->type == BR_YAML_SCALAR && br_foreign_value(path, option->name, node->text))
        return br_errs_lack(reader->errs, node, path, "Braid does not support \"%s\"; must be %s",
                            node->text, wanted);
    return option_refuse(reader, node, path, wanted);
}

/* Reads one element of a list of texts. */
static int option_read_item(struct reader *reader, bool secret, const struct br_yaml *node,
                            const char *path, const char **out)
{
    struct br_secret text = {NULL};
    if (!secret)
        return option_read_string(reader, node, path, out);
    int rc = option_read_secret(reader, node, path, &text);
    *out = text.text ? text.text : "";
    return rc;
}

static int option_read_strings(struct reader *reader, bool secret, const struct br_yaml *node,
                               const char *path, struct br_strings *out)
{
    bool list = node->type == BR_YAML_SEQ;
    if (node->type == BR_YAML_MAP)
        return secret ? option_refuse_secret(reader, node, path)
                      : option_refuse(reader, node, path, "a list of texts");
    size_t n = list ? node->count : 1;
    const char **v = br_arena_calloc(reader->arena, n, sizeof *v);
    if (!v)
        return br_errs_no_memory(reader->errs);
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        char name[256];
        (void)snprintf(name, sizeof name, "%s[%zu]", path, i);
        rc = option_worse(rc, option_read_item(reader, secret, list ? node->items[i] : node,
                                               list ? name : path, &v[i]));
    }
    *out = (struct br_strings){v, n};
    return rc;
}

/* Returns true if the text is a token of RFC 9110 section 5.6.2. */
static bool option_is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("!#$%&'*+-.^_`|~", text[i]))
            return false;
    return len > 0;
}

/* Returns true if the text is a valid header value. RFC 9110 section 5.5 allows no control
 * characters except the tab. The usual cause of an invalid value is the line feed at the end of
 * a key file. */
static bool option_is_field_value(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\t') || text[i] == 0x7f)
            return false;
    return true;
}

static int option_read_header(struct reader *reader, const struct br_yaml *name,
                              const struct br_yaml *value, const char *path, struct br_headers *out)
{
    if (!option_is_token(name->text, name->len))
        return br_errs_add(
            reader->errs, name, path,
            "a header name may contain only letters, digits, dashes and similar characters");
    const char *text = value->brought ? value->brought : value->text;
    size_t len = value->brought ? value->brought_len : value->len;
    if (text && !option_is_field_value(text, len))
        return br_errs_add(
            reader->errs, value, path,
            "a header value must not contain line breaks or other control characters");
    out->names[out->count] = name->text;
    return option_read_secret(reader, value, path, &out->values[out->count++]);
}

/* Reads one header of the list form: a map {name, value}. */
static int option_read_header_pair(struct reader *reader, const struct br_yaml *node,
                                   const char *path, struct br_headers *out)
{
    const struct br_yaml *name = br_yaml_get(node, "name"), *value = br_yaml_get(node, "value");
    bool named = name && name->type == BR_YAML_SCALAR && name->len;
    if (node->type != BR_YAML_MAP || node->count != 2 || !named || !value)
        return br_errs_add(reader->errs, node, path, "must be a map with a name and a value");
    for (size_t i = 0; i < out->count; i++)
        if (strcmp(out->names[i], name->text) == 0)
            return br_errs_add(reader->errs, name, path, "the header \"%s\" is defined twice",
                               name->text);
    return option_read_header(reader, name, value, path, out);
}

static int option_read_headers(struct reader *reader, const struct br_yaml *node, const char *path,
                               struct br_headers *out)
{
    if (node->type == BR_YAML_SCALAR)
        return br_errs_add(reader->errs, node, path, "must be a map of names and values, not text");
    if (node->count > BR_HEADERS_MAX)
        return br_errs_add(reader->errs, node, path, "at most %d headers are sent", BR_HEADERS_MAX);
    struct br_headers headers = {
        br_arena_calloc(reader->arena, node->count, sizeof *headers.names),
        br_arena_calloc(reader->arena, node->count, sizeof *headers.values), 0};
    if (!headers.names || !headers.values)
        return br_errs_no_memory(reader->errs);
    int rc = 0;
    for (size_t i = 0; i < node->count; i++) {
        char at[256];
        if (node->type == BR_YAML_SEQ) {
            (void)snprintf(at, sizeof at, "%s[%zu]", path, i);
            rc = option_worse(rc, option_read_header_pair(reader, node->items[i], at, &headers));
        } else {
            br_path_join(at, path, node->keys[i]->text);
            rc = option_worse(
                rc, option_read_header(reader, node->keys[i], node->items[i], at, &headers));
        }
    }
    *out = headers;
    return rc;
}

/* Returns the row of the table whose name or alias is `key`, or NULL. */
static const struct br_option *option_find_row(const struct br_option *table, const char *key)
{
    while (table && table->name && strcmp(table->name, key) != 0 &&
           (!table->alias || strcmp(table->alias, key) != 0))
        table++;
    return table && table->name ? table : NULL;
}

/* Returns a copy of the map without the key at the index `key`, or NULL if memory runs out. */
static struct br_yaml *option_without(struct reader *reader, const struct br_yaml *map, size_t key)
{
    struct br_yaml *rest = br_yaml_new(reader->arena, BR_YAML_MAP, map);
    for (size_t i = 0; rest && i < map->count; i++)
        if (i != key && br_yaml_append(reader->arena, rest, map->keys[i], map->items[i]))
            return NULL;
    return rest;
}

/* Reads an optional section. As in the Collector, the section may be enabled or disabled with
 * its key `enabled`. */
static int option_read_present(struct reader *reader, const struct br_option *option,
                               const struct br_yaml *node, const char *path, void *field)
{
    void *sub = br_arena_calloc(reader->arena, 1, option->size);
    if (!sub)
        return br_errs_no_memory(reader->errs);
    size_t at = node->type == BR_YAML_MAP && !option_find_row(option->sub, "enabled")
                    ? br_yaml_index(node, "enabled")
                    : node->count;
    if (at < node->count) {
        bool on = true;
        char joined[192];
        const struct br_yaml *enabled = node->items[at];
        if (enabled->type != BR_YAML_NULL &&
            option_read_bool(reader, enabled, br_path_join(joined, path, "enabled"), &on))
            return BR_EINVAL;
        if (!on)
            return 0;
        node = option_without(reader, node, at);
        if (!node)
            return br_errs_no_memory(reader->errs);
    }
    memcpy(field, &sub, sizeof sub);
    return option_read_table(reader, option->sub, node, node, path, sub);
}

static int option_read_list(struct reader *reader, const struct br_option *option,
                            const struct br_yaml *node, const char *path, struct br_structs *out)
{
    if (node->type != BR_YAML_SEQ)
        return option_refuse(reader, node, path, "a list");
    char *v = br_arena_calloc(reader->arena, node->count, option->size);
    if (!v)
        return br_errs_no_memory(reader->errs);
    int rc = 0;
    for (size_t i = 0; i < node->count && rc != BR_ENOMEM; i++) {
        const char *at = br_arena_printf(reader->arena, "%s[%zu]", path, i);
        if (!at)
            return br_errs_no_memory(reader->errs);
        rc = option_worse(rc, option_read_table(reader, option->sub, node->items[i], node->items[i],
                                                at, v + i * option->size));
    }
    *out = (struct br_structs){v, node->count};
    return rc;
}

static int option_read_nested(struct reader *reader, const struct br_option *option,
                              const struct br_yaml *node, const struct br_yaml *at,
                              const char *path, const char *name, void *field)
{
    /* struct br_err stores a shortened path, but sub-tables need the whole path. */
    const char *whole = br_arena_printf(reader->arena, "%s%s%s", path, *path ? "::" : "", name);
    if (!whole)
        return br_errs_no_memory(reader->errs);
    if (option->kind == BR_OPT_LIST)
        return option_read_list(reader, option, node, whole, field);
    if (option->kind == BR_OPT_PRESENT)
        return option_read_present(reader, option, node, whole, field);
    return option_read_table(reader, option->sub, node, at, whole, field);
}

/* Reads a value that is present and not null. */
static int option_read_value(struct reader *reader, const struct br_option *option,
                             const struct br_yaml *node, const char *map_path, const char *name,
                             void *field)
{
    char path[192];
    br_path_join(path, map_path, name);
    switch (option->kind) {
    case BR_OPT_BOOL:
        return option_read_bool(reader, node, path, field);
    case BR_OPT_INT:
        return option_read_int(reader, option, node, path, field);
    case BR_OPT_DOUBLE:
        return option_read_double(reader, option, node, path, field);
    case BR_OPT_DURATION:
        return option_read_duration(reader, node, path, field);
    case BR_OPT_STRING:
        return option_read_string(reader, node, path, field);
    case BR_OPT_SECRET:
        return option_read_secret(reader, node, path, field);
    case BR_OPT_ENUM:
        return option_read_enum(reader, option, node, path, field);
    case BR_OPT_STRINGS:
        return option_read_strings(reader, option->secret, node, path, field);
    case BR_OPT_HEADERS:
        return option_read_headers(reader, node, path, field);
    case BR_OPT_STRUCT:
    case BR_OPT_PRESENT:
    case BR_OPT_LIST:
        return option_read_nested(reader, option, node, node, map_path, name, field);
    case BR_OPT_VALUE:
    case BR_OPT_IGNORED:
        break;
    }
    return 0;
}

/* Sets a field to its row's default. An option of type STRUCT has no default, but its fields
 * have defaults. */
static void option_set_default(const struct br_option *option, void *field)
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
    switch (option->kind) {
    case BR_OPT_BOOL:
        memcpy(field, &option->def.boolean, sizeof option->def.boolean);
        break;
    case BR_OPT_INT:
        memcpy(field, &option->def.integer, sizeof option->def.integer);
        break;
    case BR_OPT_DOUBLE:
        memcpy(field, &option->def.real, sizeof option->def.real);
        break;
    case BR_OPT_DURATION:
        if (option->def.string)
            (void)br_duration_parse(option->def.string, &ns);
        memcpy(field, &ns, sizeof ns);
        break;
    case BR_OPT_STRING:
    case BR_OPT_SECRET:
        memcpy(field, &option->def.string, sizeof option->def.string);
        break;
    case BR_OPT_ENUM:
        index = option_choice_index(option, option->def.string);
        index = index < 0 ? 0 : index;
        memcpy(field, &index, sizeof index);
        break;
    case BR_OPT_STRINGS:
    case BR_OPT_HEADERS:
    case BR_OPT_LIST:
    case BR_OPT_PRESENT:
    case BR_OPT_VALUE:
        memset(field, 0, sizes[option->kind]);
        break;
    case BR_OPT_STRUCT:
    case BR_OPT_IGNORED:
        break;
    }
}

/* Returns the index of the row's key or alias in the map `node`, or `node->count` if both are
 * absent. */
static size_t option_find_key(const struct br_option *option, const struct br_yaml *node)
{
    size_t at = br_yaml_index(node, option->name);
    return at == node->count && option->alias ? br_yaml_index(node, option->alias) : at;
}

static int option_check_spellings(struct reader *reader, const struct br_option *option,
                                  const struct br_yaml *node, const char *path)
{
    size_t a = br_yaml_index(node, option->name);
    size_t b = option->alias ? br_yaml_index(node, option->alias) : node->count;
    if (a == node->count || b == node->count)
        return 0;
    return br_errs_add(reader->errs, node->keys[a > b ? a : b], path,
                       "\"%s\" and \"%s\" are two spellings of one key; keep one", option->name,
                       option->alias);
}

static int option_check_required(struct reader *reader, const struct br_option *option,
                                 const struct br_yaml *at, const struct br_yaml *value,
                                 const char *path)
{
    bool there = value && (value->type != BR_YAML_NULL || option->kind == BR_OPT_PRESENT);
    bool empty = there && value->type == BR_YAML_SCALAR && value->len == 0;
    if (!option->required || (there && !empty))
        return 0;
    char joined[192];
    if (empty)
        return br_errs_add(reader->errs, value, br_path_join(joined, path, option->name),
                           "must not be empty");
    char choices[CHOICES_SIZE] = "";
    if (option->kind == BR_OPT_ENUM)
        option_print_choices(option, choices);
    return br_errs_add(reader->errs, at, path, "\"%s\" is missing and has no default%s%s",
                       option->name, choices[0] ? ": " : "", choices);
}

/* Returns the value at a path of keys below a map, such as "a::b", or NULL. */
static const struct br_yaml *option_at(const struct br_yaml *map, const char *path)
{
    char key[64];
    while (map && map->type == BR_YAML_MAP) {
        const char *end = strstr(path, "::");
        size_t len = end ? (size_t)(end - path) : strlen(path);
        (void)snprintf(key, sizeof key, "%.*s", (int)len, path);
        map = br_yaml_get(map, key);
        if (!end)
            return map;
        path = end + 2;
    }
    return NULL;
}

static int option_read_older(struct reader *reader, const struct br_option *option,
                             const struct br_yaml *node, const struct br_yaml *key,
                             const struct br_yaml *value, const char *path, void *field)
{
    char joined[192];
    if (option_at(node, option->now))
        return br_errs_add(reader->errs, key, path,
                           "\"%s\" and \"%s\" are two spellings of one key; keep the second",
                           key->text, option->now);
    br_errs_warn(reader->errs, key, br_path_join(joined, path, key->text),
                 "is an older spelling; write %s%s", option->now,
                 option->negated ? " with the opposite value" : "");
    if (value->type == BR_YAML_NULL)
        return 0;
    int rc = option_read_value(reader, option, value, path, key->text, field);
    if (!rc && option->negated)
        *(bool *)field = !*(bool *)field;
    return rc;
}

static int option_read_row(struct reader *reader, const struct br_option *option,
                           const struct br_yaml *node, const struct br_yaml *at, const char *path,
                           char *out)
{
    void *field = out + option->offset;
    bool map = node && node->type == BR_YAML_MAP;
    size_t index = map ? option_find_key(option, node) : 0;
    const struct br_yaml *key = map && index < node->count ? node->keys[index] : NULL;
    const struct br_yaml *value = key ? node->items[index] : NULL;
    if (option->now)
        return key ? option_read_older(reader, option, node, key, value, path, field) : 0;
    option_set_default(option, field);
    if (map && option_check_spellings(reader, option, node, path))
        return BR_EINVAL;
    if (option_check_required(reader, option, at, value, path))
        return BR_EINVAL;
    if (option->kind == BR_OPT_STRUCT)
        return option_read_nested(reader, option, value, value ? value : at, path,
                                  key ? key->text : option->name, field);
    if (!value)
        return 0;
    char joined[192];
    if (option->kind == BR_OPT_IGNORED) {
        br_errs_warn(reader->errs, key, br_path_join(joined, path, key->text),
                     "is read and has no effect: %s", option->help);
        return 0;
    }
    if (option->kind == BR_OPT_VALUE)
        memcpy(field, &value, sizeof value);
    if (value->type == BR_YAML_NULL && option->kind != BR_OPT_PRESENT)
        return 0;
    return option_read_value(reader, option, value, path, key->text, field);
}

/* Lists the valid names if the list is short enough to read. */
static void option_print_names(const char *const *names, size_t count, char *out, size_t size)
{
    struct br_str str = {.data = out, .cap = size, .max = size - 1, .fixed = true};
    br_str_puts(&str, count ? "; known here: " : "; it takes no keys");
    for (size_t i = 0; i < count; i++)
        br_str_printf(&str, "%s%s", i ? ", " : "", names[i]);
    if (str.failed)
        out[0] = '\0';
}

/* Returns the section of the table that contains the key. Returns NULL if no section contains
 * the key, or if more than one section contains it. */
static const struct br_option *option_find_home(const struct br_option *table, const char *key)
{
    const struct br_option *home = NULL;
    for (const struct br_option *option = table; option && option->name; option++) {
        bool section = option->kind == BR_OPT_STRUCT || option->kind == BR_OPT_PRESENT;
        if (!section || !option_find_row(option->sub, key))
            continue;
        if (home)
            return NULL;
        home = option;
    }
    return home;
}

static int option_refuse_key(struct reader *reader, const struct br_option *table,
                             const struct br_yaml *key, const char *path)
{
    const char *names[NAMES_MAX] = {NULL};
    size_t n = 0;
    if (br_errs_full(reader->errs))
        return BR_EINVAL;
    for (const struct br_option *option = table; option && option->name && n + 2 <= NAMES_MAX;
         option++) {
        names[n++] = option->name;
        if (option->alias)
            names[n++] = option->alias;
    }
    char shown[BR_SHOWN_SIZE], known[256];
    const char *foreign = br_foreign_key(path, key->text);
    if (foreign)
        return br_errs_lack(reader->errs, key, path, "\"%s\": %s", key->text, foreign);
    if (strcmp(key->text, "port") == 0 && option_find_row(table, "endpoint"))
        return br_errs_add(reader->errs, key, path,
                           "unknown key \"port\"; the port is a part of \"endpoint\", such as "
                           "localhost:13133");
    const struct br_option *home = option_find_home(table, key->text);
    if (home)
        return br_errs_add(reader->errs, key, path, "%s belongs under %s: write %s: {%s: ...}",
                           br_text_show(key->text, shown), home->name, home->name, key->text);
    const char *nearest = br_str_nearest(key->text, names, n);
    if (nearest)
        return br_errs_add(reader->errs, key, path, "unknown key %s; did you mean \"%s\"?",
                           br_text_show(key->text, shown), nearest);
    option_print_names(names, n, known, sizeof known);
    return br_errs_lack(reader->errs, key, path, "unknown key %s%s", br_text_show(key->text, shown),
                        known);
}

/* Returns true if an unknown key belongs to the Collector's configuration and has no value or an
 * empty list. In the Collector, such a key has the same effect as a missing key. */
static bool option_says_nothing(const struct br_yaml *key, const struct br_yaml *value,
                                const char *path)
{
    bool empty = value->type == BR_YAML_SEQ && value->count == 0;
    return (value->type == BR_YAML_NULL || empty) && br_foreign_key(path, key->text);
}

static int option_check_keys(struct reader *reader, const struct br_option *table,
                             const struct br_yaml *node, const char *path)
{
    int rc = 0;
    for (size_t i = 0; i < node->count; i++)
        if (!option_find_row(table, node->keys[i]->text) &&
            !option_says_nothing(node->keys[i], node->items[i], path))
            rc = option_refuse_key(reader, table, node->keys[i], path);
    return rc;
}

/* Adds an error for a value that must be a map and is not a map. */
static int option_refuse_text(struct reader *reader, const struct br_yaml *node, const char *path)
{
    char shown[BR_SHOWN_SIZE], slip[BR_SHOWN_SIZE + 80];
    return br_errs_add(reader->errs, node, path, "must be a map, got %s%s",
                       br_yaml_show(node, shown), br_yaml_slip(node, slip));
}

static int option_read_table(struct reader *reader, const struct br_option *table,
                             const struct br_yaml *node, const struct br_yaml *at, const char *path,
                             void *out)
{
    int rc = 0;
    bool usable = !node || node->type == BR_YAML_NULL || node->type == BR_YAML_MAP;
    if (!usable)
        return option_refuse_text(reader, node, path);
    if (node && node->type == BR_YAML_MAP)
        rc = option_check_keys(reader, table, node, path);
    for (const struct br_option *option = table; option && option->name && rc != BR_ENOMEM;
         option++)
        rc = option_worse(rc, option_read_row(reader, option, node, at, path, out));
    return rc;
}

int br_options_read(const struct br_option *table, const struct br_yaml *node, const char *path,
                    void *out, struct br_arena *arena, struct br_errs *errs)
{
    struct reader reader = {arena, errs};
    return option_read_table(&reader, table, node, node, path, out);
}
