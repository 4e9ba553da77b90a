/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docs/operating/limits.md and docs/contributing/constants.md list every limit. Each row of the
 * first names an option and its default. Each row of the second names a macro and its value. Every
 * option whose name denotes a limit has a row.
 */
#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/option.h"
#include "pipeline/component.h"
#include "pipeline/fanout.h"
#include "tests/support/file.h"
#include "tests/support/test.h"

#define PAGE "docs/operating/limits.md"
#define HEADING "| limit | key | default | at the limit |\n"
#define CONSTANTS "docs/contributing/constants.md"
#define CONSTANTS_HEADING "| limit | constant | value | at the limit |\n"
#define RULE "|---|---|---|---|\n"
#define CELLS 4
#define TOKEN_SIZE 160

enum { WHAT, KEY, DEFAULT, EFFECT };

struct row {
    char cells[CELLS][1024];
};

/* --- Values ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    double times; /* factor that converts the value to bytes or milliseconds */
    bool is_time;
} units[] = {{"", 1, false},          {"KiB", 1024, false},
             {"MiB", 1048576, false}, {"GiB", 1073741824, false},
             {"%", 1, false},         {"TiB", 1099511627776, false},
             {"ms", 1, true},         {"s", 1000, true},
             {"m", 60000, true},      {"h", 3600000, true}};

/* Returns the value of a cell such as "64 MiB (also decompressed)", "10,000" or "`1h`". */
static double value_read(const char *cell, bool *ret_is_time)
{
    char digits[32] = "", unit[16] = "";
    size_t n_digits = 0, n_unit = 0;
    cell += *cell == '`';
    for (; strchr("0123456789.,", *cell) && *cell && n_digits < sizeof digits - 1; cell++)
        if (*cell != ',')
            digits[n_digits++] = *cell;
    cell += *cell == ' ' && cell[1] != '(';
    while (*cell && !strchr(" `", *cell) && n_unit < sizeof unit - 1)
        unit[n_unit++] = *cell++;
    for (size_t i = 0; n_digits && i < BR_COUNT(units); i++) {
        *ret_is_time = units[i].is_time;
        if (strcmp(units[i].name, unit) == 0)
            return strtod(digits, NULL) * units[i].times;
    }
    return -1;
}

/* --- Macros ----------------------------------------------------------------------------------- */

static double sum_read(const char **at);

static void blanks_skip(const char **at)
{
    while (**at == ' ' || **at == '\\' || **at == '\n')
        ++*at;
}

/* Reads a number with its suffix, or brackets, optionally after a cast or UINT64_C. */
static double factor_read(const char **at)
{
    static const char *const before[] = {"(size_t)", "UINT64_C"};
    blanks_skip(at);
    for (size_t i = 0; i < BR_COUNT(before); i++)
        if (strncmp(*at, before[i], strlen(before[i])) == 0)
            *at += strlen(before[i]);
    if (**at != '(') {
        char *end;
        double value = strtod(*at, &end);
        *at = end == *at ? "?" : end + strspn(end, "uUlL");
        return value;
    }
    ++*at;
    double value = sum_read(at);
    blanks_skip(at);
    *at += **at == ')';
    return value;
}

static double product_read(const char **at)
{
    double value = factor_read(at);
    for (blanks_skip(at); **at == '*'; blanks_skip(at)) {
        ++*at;
        value *= factor_read(at);
    }
    return value;
}

/* Reads a chain of sums or shifts. The macros do not mix the two. */
static double sum_read(const char **at)
{
    double value = product_read(at);
    for (blanks_skip(at); **at == '+' || **at == '<'; blanks_skip(at)) {
        bool shifts = **at == '<';
        *at += shifts ? 2 : 1;
        double next = product_read(at);
        value = shifts ? value * (double)(UINT64_C(1) << (unsigned)next) : value + next;
    }
    return value;
}

static double macro_read(const char *name, const char *path)
{
    char define[TOKEN_SIZE + 16], *text = file_text(path);
    size_t len = (size_t)snprintf(define, sizeof define, "#define %s", name);
    const char *at = strstr(text, define);
    while (at && !strchr(" \\", at[len]))
        at = strstr(at + len, define);
    if (!at)
        fail_msg(CONSTANTS ": %s does not define %s", path, name);
    char *end = strpbrk(text + (at - text) + len, "\n/");
    while (end && end[-1] == '\\')
        end = strpbrk(end + 1, "\n/");
    if (end)
        *end = '\0';
    at += len;
    double value = sum_read(&at);
    if (*at)
        fail_msg(CONSTANTS ": the value of %s in %s cannot be read", name, path);
    free(text);
    return value;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* Checks a row against a macro. The unit of a time is the suffix of the macro's name. */
static void macro_check(const struct row *row, const char *name, const char *path)
{
    bool is_time = false;
    double expected = macro_read(name, path), stated = value_read(row->cells[DEFAULT], &is_time);
    if (is_time && ends_with(name, "_S"))
        expected *= 1000;
    if (stated != expected)
        fail_msg(CONSTANTS ": %s in %s is %.0f, but the page has %s", name, path, expected,
                 row->cells[DEFAULT]);
}

/* --- Options ---------------------------------------------------------------------------------- */

static const struct br_option fanout_options[] = {
    {.name = "fanout", .kind = BR_OPT_STRUCT, .sub = br_fanout_options}, BR_OPT_END};

/* Returns the option table of a component such as "receivers/otlp", or of "service". */
static const struct br_option *table_of(const char *component)
{
    if (strcmp(component, "service") == 0)
        return fanout_options;
    for (size_t i = 0; br_components[i]; i++) {
        char id[TOKEN_SIZE];
        (void)snprintf(id, sizeof id, "%s/%s", br_kind_section(br_components[i]->kind),
                       br_components[i]->name);
        if (strcmp(id, component) == 0)
            return br_components[i]->options;
    }
    return NULL;
}

/* Returns the option at a path such as "protocols.http.cors.max_age" or
 * "keep.span_names[].slow_threshold". */
static const struct br_option *option_find(const struct br_option *table, const char *path)
{
    size_t len = strcspn(path, ".[");
    for (const struct br_option *o = table; o && o->name; o++)
        if (strncmp(o->name, path, len) == 0 && !o->name[len])
            return path[len] ? option_find(o->sub, path + len + strspn(path + len, ".[]")) : o;
    return NULL;
}

static double option_value(const struct br_option *o)
{
    uint64_t ns = 0;
    if (o->kind == BR_OPT_DURATION) {
        assert_true(br_duration_parse(o->def.string, &ns));
        return (double)ns / 1e6;
    }
    if (o->kind == BR_OPT_INT)
        return (double)o->def.integer;
    return o->kind == BR_OPT_DOUBLE ? o->def.real : -2;
}

static void option_check(const struct row *row, const char *component, const char *path)
{
    const struct br_option *o = option_find(table_of(component), path);
    if (!o)
        fail_msg(PAGE ": %s has no option %s", component, path);
    bool is_time = false;
    double expected = option_value(o), stated = value_read(row->cells[DEFAULT], &is_time);
    if (stated != expected || is_time != (o->kind == BR_OPT_DURATION))
        fail_msg(PAGE ": the default of %s in %s is %.10g%s, but the page has %s", path, component,
                 expected, o->kind == BR_OPT_DURATION ? " ms" : "", row->cells[DEFAULT]);
}

/* --- The page --------------------------------------------------------------------------------- */

/* A page that is being read. Its rows are those of tables that begin with `heading`. */
struct page {
    const char *path, *heading;
    char *text;
    const char *at;
    bool in_table;
};

static struct page page_open(const char *path, const char *heading)
{
    char *text = file_text(path);
    return (struct page){.path = path, .heading = heading, .text = text, .at = text};
}

static void row_read(const char *line, struct row *ret)
{
    const char *from = line + 1;
    int n = 0;
    for (; *from && *from != '\n' && n < CELLS; n++) {
        size_t len = strcspn(from, "|\n"), blanks = strspn(from, " ");
        (void)snprintf(ret->cells[n], sizeof ret->cells[n], "%.*s", (int)(len - blanks),
                       from + blanks);
        from += len + (from[len] == '|');
    }
    if (n != CELLS || (*from && *from != '\n'))
        fail_msg("a row with other than %d cells: %.80s", CELLS, line);
}

/* Reads the next row. Returns false at the end of the page. */
static bool row_next(struct page *page, struct row *ret)
{
    while (*page->at) {
        const char *line = page->at;
        page->at += strcspn(line, "\n");
        page->at += *page->at == '\n';
        if (strncmp(line, page->heading, strlen(page->heading)) == 0) {
            page->in_table = true;
            page->at += strlen(RULE); /* the line below the heading */
        } else if (*line != '|') {
            page->in_table = false;
        } else if (page->in_table) {
            row_read(line, ret);
            return true;
        }
    }
    return false;
}

/* Reads the next text in code quotes at or after `*at`. Returns false at the end of the text. */
static bool token_next(const char **at, char ret[TOKEN_SIZE])
{
    const char *from = strchr(*at, '`'), *end = from ? strchr(from + 1, '`') : NULL;
    if (!end)
        return false;
    (void)snprintf(ret, TOKEN_SIZE, "%.*s", (int)(end - from - 1), from + 1);
    *at = end + 1;
    return true;
}

typedef void key_fn(const struct row *row, const char *component, const char *path, void *arg);

/* Calls `fn` for each option of each component in "`a/b`, `a/c`: `x.y`, `x.z`; `d/e`: `z`". */
static void keys_each(const struct row *row, key_fn *fn, void *arg)
{
    char group[1024], keys[1024], *save = NULL;
    (void)snprintf(keys, sizeof keys, "%s", row->cells[KEY]);
    for (char *one = strtok_r(keys, ";", &save); one; one = strtok_r(NULL, ";", &save)) {
        (void)snprintf(group, sizeof group, "%s", one);
        char *paths = strstr(group, "`: `"), component[TOKEN_SIZE], path[TOKEN_SIZE];
        if (!paths)
            fail_msg(PAGE ": no option is named: %s", row->cells[KEY]);
        paths[1] = '\0';
        for (const char *at = group; token_next(&at, component);)
            for (const char *from = paths + 2; token_next(&from, path);)
                fn(row, component, path, arg);
    }
}

static void on_key(const struct row *row, const char *component, const char *path, void *arg)
{
    (void)arg;
    option_check(row, component, path);
}

static void effect_check(const struct row *row)
{
    if (!row->cells[EFFECT][0])
        fail_msg("the row of %s does not state what happens at the limit", row->cells[KEY]);
}

static void option_rows(void **state)
{
    (void)state;
    struct row row;
    struct page page = page_open(PAGE, HEADING);
    unsigned n = 0;
    for (; row_next(&page, &row); n++) {
        effect_check(&row);
        keys_each(&row, on_key, NULL);
    }
    assert_true(n > 0);
    free(page.text);
}

static void constant_rows(void **state)
{
    (void)state;
    struct row row;
    struct page page = page_open(CONSTANTS, CONSTANTS_HEADING);
    unsigned n = 0;
    for (; row_next(&page, &row); n++) {
        char name[TOKEN_SIZE], path[TOKEN_SIZE];
        const char *at = row.cells[KEY];
        effect_check(&row);
        if (!token_next(&at, name) || strncmp(at, " in `", 5) != 0 || !token_next(&at, path))
            fail_msg(CONSTANTS ": \"`NAME` in `file`\" is expected: %s", row.cells[KEY]);
        macro_check(&row, name, path);
    }
    assert_true(n > 0);
    free(page.text);
}

/* --- Completeness ----------------------------------------------------------------------------- */

static void on_key_known(const struct row *row, const char *component, const char *path, void *arg)
{
    (void)row;
    br_str_printf(arg, "\n%s %s\n", component, path);
}

static bool is_limit(const struct br_option *o)
{
    static const char *const parts[] = {"max_", "_max", "limit_", "_limit", "hold_", "_hold"};
    static const char *const ends[] = {"_size", "timeout"};
    bool found = strcmp(o->name, "max") == 0 || strcmp(o->name, "hold") == 0;
    if (o->kind != BR_OPT_INT && o->kind != BR_OPT_DOUBLE && o->kind != BR_OPT_DURATION)
        return false;
    for (size_t i = 0; i < BR_COUNT(parts); i++)
        found = found || strstr(o->name, parts[i]);
    for (size_t i = 0; i < BR_COUNT(ends); i++)
        found = found || ends_with(o->name, ends[i]);
    return found;
}

static void table_check(const struct br_option *table, const char *component, const char *prefix,
                        const char *known)
{
    /* the settings of policies select traces, and are not limits */
    if (strncmp(prefix, "policies[].", 11) == 0)
        return;
    for (const struct br_option *o = table; o && o->name; o++) {
        char path[TOKEN_SIZE], line[2 * TOKEN_SIZE + 4], inner[TOKEN_SIZE + 4];
        (void)snprintf(path, sizeof path, "%s%s", prefix, o->name);
        (void)snprintf(line, sizeof line, "\n%s %s\n", component, path);
        if (!o->now && is_limit(o) && !strstr(known, line))
            fail_msg(PAGE ": no row for `%s`: `%s` in a table with the heading " HEADING, component,
                     path);
        (void)snprintf(inner, sizeof inner, "%s%s", path, o->kind == BR_OPT_LIST ? "[]." : ".");
        table_check(o->sub, component, inner, known);
    }
}

static void options(void **state)
{
    (void)state;
    struct row row;
    struct br_str known = {0};
    struct page page = page_open(PAGE, HEADING);
    while (row_next(&page, &row))
        keys_each(&row, on_key_known, &known);
    assert_false(known.failed);
    for (size_t i = 0; br_components[i]; i++) {
        char component[TOKEN_SIZE];
        (void)snprintf(component, sizeof component, "%s/%s",
                       br_kind_section(br_components[i]->kind), br_components[i]->name);
        table_check(br_components[i]->options, component, "", known.data);
    }
    table_check(fanout_options, "service", "", known.data);
    br_str_release(&known);
    free(page.text);
}

static void holders(void **state)
{
    (void)state;
    char *page = file_text(PAGE), quoted[TOKEN_SIZE];
    for (int i = 0; i < BR_HOLDERS; i++) {
        (void)snprintf(quoted, sizeof quoted, "`%s`", br_holder_name((enum br_holder)i));
        if (!strstr(page, quoted))
            fail_msg(PAGE ": the category %s is not described", quoted);
    }
    free(page);
}

SUITE(limits_page)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(option_rows),
                                       cmocka_unit_test(constant_rows), cmocka_unit_test(options),
                                       cmocka_unit_test(holders)};
    return RUN(tests, NULL, NULL);
}
