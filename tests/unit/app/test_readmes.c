/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every component's README has a table of its options, `## Options of <name>`, which says what the
 * option table says, row by row. `--mode write`, run in the source root, replaces these
 * sections.
 */
#include "app/registry.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/support/file.h"
#include "tests/support/test.h"

/* Components that share a folder. */
static const char *const folders[][2] = {{"otlphttp", "otlp"}, {"queue_batch", "batch"}};

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

static char *table_of(const struct br_component *c)
{
    struct br_str out = {0};
    br_str_printf(&out, "## Options of `%s`\n\n", c->name);
    if (c->options && c->options->name)
        br_str_puts(&out, "| option | type | default | what it does |\n|---|---|---|---|\n");
    else
        br_str_puts(&out, "None.\n");
    add_rows(c->options, "", &out);
    assert_false(out.failed);
    return out.data;
}

static void path_of(const struct br_component *c, char path[256])
{
    const char *folder = c->name;
    for (size_t i = 0; i < BR_COUNT(folders); i++)
        if (strcmp(folders[i][0], c->name) == 0)
            folder = folders[i][1];
    (void)snprintf(path, 256, "%s/%s/README.md", br_kind_section(c->kind), folder);
}

static char *readme_of(const struct br_component *c)
{
    char path[256];
    path_of(c, path);
    return file_text(path);
}

/* Says at which row the two part. */
static void compare(const struct br_component *c, const char *at, const char *want)
{
    for (const char *w = want; *w;) {
        size_t n = strcspn(w, "\n") + 1;
        if (strncmp(at, w, n) != 0)
            fail_msg("%s %s: its README has\n%.*s\nwhere its option table says\n%.*s\n(see "
                     "test_readmes write)",
                     br_kind_name(c->kind), c->name, (int)strcspn(at, "\n"), at, (int)n - 1, w);
        at += n;
        w += n;
    }
    if (*at == '|')
        fail_msg("%s %s: its README has more rows: %.*s", br_kind_name(c->kind), c->name,
                 (int)strcspn(at, "\n"), at);
}

static void readmes(void **state)
{
    (void)state;
    for (size_t i = 0; br_components[i]; i++) {
        const struct br_component *c = br_components[i];
        char *want = table_of(c), *readme = readme_of(c), heading[128];
        (void)snprintf(heading, sizeof heading, "\n## Options of `%s`\n", c->name);
        const char *at = strstr(readme, heading);
        if (!at)
            fail_msg("%s %s: no table in its README", br_kind_name(c->kind), c->name);
        compare(c, at + 1, want);
        free(readme);
        br_free(want);
    }
}

/* `components` and the config's messages find things by this order. */
static void order(void **state)
{
    (void)state;
    for (size_t i = 1; br_components[i]; i++) {
        const struct br_component *a = br_components[i - 1], *b = br_components[i];
        assert_true(a->kind < b->kind || (a->kind == b->kind && strcmp(a->name, b->name) < 0));
    }
}

/* Puts the section of a component in the place of the old one, or at the end. */
static void write_section(const struct br_component *c)
{
    char path[256], heading[128];
    char *table = table_of(c), *old = readme_of(c);
    (void)snprintf(heading, sizeof heading, "\n## Options of `%s`\n", c->name);
    const char *at = strstr(old, heading), *after = at ? strstr(at + 1, "\n## ") : NULL;
    size_t before = at ? (size_t)(at - old) : strlen(old);
    path_of(c, path);
    FILE *f = fopen(path, "w");
    if (f) {
        (void)fprintf(f, "%.*s\n%s%s", (int)before, old, table, after ? after : "");
        (void)fclose(f);
    }
    free(old);
    br_free(table);
}

SUITE(readmes)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(readmes), cmocka_unit_test(order)};
    if (!test_mode_is("write"))
        return RUN(tests, NULL, NULL);
    for (size_t i = 0; br_components[i]; i++)
        write_section(br_components[i]);
    return 0;
}
