/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every component's README, and docs/operating/configuration.md for `service`, has a section
 * "## Options of `name`" that repeats the option table row by row. `--mode write`, run in the root
 * of the sources, rewrites these sections.
 */
#include <unistd.h>

#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/support/file.h"
#include "tests/support/test.h"

#define WRITE "build/tests/unit/app --mode write readmes"

/* Components that share a directory. */
static const char *const shared_directories[][2] = {{"otlphttp", "otlp"}, {"queue_batch", "batch"}};

static const char *const types[] = {
    [BR_OPT_BOOL] = "bool",
    [BR_OPT_INT] = "int",
    [BR_OPT_DOUBLE] = "float",
    [BR_OPT_DURATION] = "duration",
    [BR_OPT_STRING] = "text",
    [BR_OPT_SECRET] = "secret text",
    [BR_OPT_STRINGS] = "list of texts",
    [BR_OPT_HEADERS] = "map of texts",
    [BR_OPT_STRUCT] = "map",
    [BR_OPT_PRESENT] = "map",
    [BR_OPT_LIST] = "list of maps",
    [BR_OPT_VALUE] = "any",
    [BR_OPT_IGNORED] = "no effect",
};

static void add_type(const struct br_option *o, struct br_str *out)
{
    if (o->kind != BR_OPT_ENUM)
        br_str_puts(out, types[o->kind]);
    for (int i = 0; o->kind == BR_OPT_ENUM && o->choices[i]; i++)
        br_str_printf(out, "%s`%s`", i ? ", " : "", o->choices[i]);
}

static void add_default(const struct br_option *o, struct br_str *out)
{
    if (o->now)
        return;
    if (o->required)
        br_str_puts(out, "required");
    else if (o->kind == BR_OPT_BOOL)
        br_str_printf(out, "`%s`", o->def.boolean ? "true" : "false");
    else if (o->kind == BR_OPT_INT)
        br_str_printf(out, "`%lld`", (long long)o->def.integer);
    else if (o->kind == BR_OPT_DOUBLE)
        br_str_printf(out, "`%g`", o->def.real);
    else if (o->kind == BR_OPT_STRING && o->def.string && strstr(o->def.string, BR_VERSION))
        br_str_puts(out, "has the version");
    else if (o->kind == BR_OPT_PRESENT)
        br_str_puts(out, "absent");
    else if ((o->kind == BR_OPT_DURATION || o->kind == BR_OPT_STRING || o->kind == BR_OPT_ENUM) &&
             o->def.string)
        br_str_printf(out, o->def.string[0] ? "`%s`" : "empty", o->def.string);
}

static void add_rows(const struct br_option *table, const char *prefix, struct br_str *out)
{
    for (const struct br_option *o = table; o && o->name; o++) {
        struct br_str name = {0};
        br_str_printf(&name, "%s%s", prefix, o->name);
        br_str_printf(out, "| `%s` | ", name.data);
        add_type(o, out);
        br_str_puts(out, " | ");
        add_default(o, out);
        br_str_printf(out, " | %s%s%s%s |\n", o->help ? o->help : "", o->alias ? "; also `" : "",
                      o->alias ? o->alias : "", o->alias ? "`" : "");
        br_str_puts(&name, o->kind == BR_OPT_LIST ? "[]." : ".");
        add_rows(o->sub, name.data, out);
        br_str_release(&name);
    }
}

/* A page that contains the table of some options, under the heading "## Options of `name`". */
struct page {
    char path[256];
    const char *name;
    const struct br_option *options;
};

static struct page page_of(const struct br_component *c)
{
    struct page page = {.name = c->name, .options = c->options};
    const char *directory = c->name;
    for (size_t i = 0; i < BR_COUNT(shared_directories); i++)
        if (strcmp(shared_directories[i][0], c->name) == 0)
            directory = shared_directories[i][1];
    (void)snprintf(page.path, sizeof page.path, "%s/%s/README.md", br_kind_section(c->kind),
                   directory);
    return page;
}

/* Calls `visit` for each page with options: those of the components, then those of `service`. */
static void each_page(void (*visit)(const struct page *page))
{
    static const struct page service[] = {
        {"docs/operating/configuration.md", "service", br_service_options},
        {"docs/operating/configuration.md", "service::telemetry", br_telemetry_options},
    };
    for (size_t i = 0; br_components[i]; i++) {
        struct page page = page_of(br_components[i]);
        visit(&page);
    }
    for (size_t i = 0; i < BR_COUNT(service); i++)
        visit(&service[i]);
}

static char *table_of(const struct page *page)
{
    struct br_str out = {0};
    br_str_printf(&out, "## Options of `%s`\n\n", page->name);
    if (page->options && page->options->name)
        br_str_puts(&out, "| option | type | default | what it does |\n|---|---|---|---|\n");
    else
        br_str_puts(&out, "None.\n");
    add_rows(page->options, "", &out);
    assert_false(out.failed);
    return out.data;
}

static bool page_exists(const struct page *page)
{
    return access(page->path, R_OK) == 0;
}

/* Fails at the first row that differs from `expected`. */
static void compare(const struct page *page, const char *at, const char *expected)
{
    for (const char *w = expected; *w;) {
        size_t n = strcspn(w, "\n") + 1;
        if (strncmp(at, w, n) != 0)
            fail_msg("%s: %s has\n%.*s\nbut the option table has\n%.*s\n(run `" WRITE "`)",
                     page->name, page->path, (int)strcspn(at, "\n"), at, (int)n - 1, w);
        at += n;
        w += n;
    }
    if (*at == '|')
        fail_msg("%s: %s has more rows: %.*s (run `" WRITE "`)", page->name, page->path,
                 (int)strcspn(at, "\n"), at);
}

static void compare_page(const struct page *page)
{
    if (!page_exists(page))
        fail_msg("%s does not exist: describe `%s` there", page->path, page->name);
    char *expected = table_of(page), *text = file_text(page->path), heading[128];
    (void)snprintf(heading, sizeof heading, "\n## Options of `%s`\n", page->name);
    const char *at = strstr(text, heading);
    if (!at)
        fail_msg("%s: no table in %s (run `" WRITE "`)", page->name, page->path);
    compare(page, at + 1, expected);
    free(text);
    br_free(expected);
}

static void readmes(void **state)
{
    (void)state;
    each_page(compare_page);
}

/* `components` and the messages about configs depend on this order. */
static void components_are_sorted(void **state)
{
    (void)state;
    for (size_t i = 1; br_components[i]; i++) {
        const struct br_component *a = br_components[i - 1], *b = br_components[i];
        if (a->kind > b->kind || (a->kind == b->kind && strcmp(a->name, b->name) >= 0))
            fail_msg("%s/meson.build: `%s` must precede `%s` in the list of components",
                     br_kind_section(b->kind), b->name, a->name);
    }
}

/* Replaces the section of a page, or appends it. */
static void write_section(const struct page *page)
{
    char heading[128];
    if (!page_exists(page)) {
        (void)fprintf(stderr, "%s does not exist: describe `%s` there\n", page->path, page->name);
        exit(1);
    }
    char *table = table_of(page), *old = file_text(page->path);
    (void)snprintf(heading, sizeof heading, "\n## Options of `%s`\n", page->name);
    const char *at = strstr(old, heading), *after = at ? strstr(at + 1, "\n## ") : NULL;
    size_t before = at ? (size_t)(at - old) : strlen(old);
    FILE *f = fopen(page->path, "w");
    if (f) {
        (void)fprintf(f, "%.*s\n%s%s", (int)before, old, table, after ? after : "");
        (void)fclose(f);
    }
    free(old);
    br_free(table);
}

SUITE(readmes)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(readmes),
                                       cmocka_unit_test(components_are_sorted)};
    if (!test_mode_is("write"))
        return RUN(tests, NULL, NULL);
    each_page(write_section);
    return 0;
}
