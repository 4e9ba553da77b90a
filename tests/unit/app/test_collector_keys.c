/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Braid handles every key of the Collector's components that it also has: it reads the key, reads
 * it with a warning, or rejects it with a reason. Defaults equal the Collector's, except for those
 * in the list below. The keys are in tests/data/collector/keys.tsv, which also describes how the
 * file was made.
 */
#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/support/file.h"
#include "tests/support/test.h"

#define TABLE "tests/data/collector/keys.tsv"
#define FIELDS 4

enum { COMPONENT, PATH, TYPE, DEFAULT };

static const char *no_env(const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return NULL;
}

/* Calls `fn` with the fields of each row of the table. Returns the number of rows. */
static unsigned rows_each(void (*fn)(char *const fields[FIELDS]))
{
    char *table = file_text(TABLE), *save = NULL;
    unsigned n = 0;
    for (char *line = strtok_r(table, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *fields[FIELDS];
        if (*line == '#')
            continue;
        for (int i = 0; i < FIELDS; i++) {
            fields[i] = line;
            line += strcspn(line, "\t");
            assert_true((*line == '\t') == (i < FIELDS - 1));
            *line++ = '\0';
        }
        fn(fields);
        n++;
    }
    free(table);
    return n;
}

/* --- Every key is known ----------------------------------------------------------------------- */

static const char *value_of(const char *type, const char *fallback)
{
    static const char *const values[][2] = {
        {"bool", "true"}, {"int", "1"},     {"float", "1"}, {"duration", "1s"}, {"text", "x"},
        {"any", "x"},     {"texts", "[x]"}, {"list", "[]"}, {"map", "{}"},      {"section", "{}"}};
    for (size_t i = 0; i < BR_COUNT(values); i++)
        if (strcmp(values[i][0], type) == 0)
            return i < 5 && *fallback ? fallback : values[i][1];
    fail_msg(TABLE ": the type %s", type);
    return NULL;
}

/* Appends the value at the path "a.b[].c" as a map in flow style. */
static void value_put(struct br_str *out, const char *path, const char *value)
{
    if (!*path) {
        br_str_puts(out, value);
        return;
    }
    size_t len = strcspn(path, ".[");
    bool list = path[len] == '[';
    const char *remaining_path = path + len + (list ? 2 : 0);
    remaining_path += *remaining_path == '.';
    br_str_printf(out, "{\"%.*s\": %s", (int)len, path, list ? "[" : "");
    value_put(out, remaining_path, value);
    br_str_puts(out, list ? "]}" : "}");
}

static const char base[] = "yaml:{receivers: {nop/own: }, exporters: {nop/own: }, service: "
                           "{pipelines: {traces: {receivers: [nop/own], exporters: [nop/own]}}}}";

/* Returns true if a config with the component's key at the path does not have an unknown key.
 * `messages` receives all errors and warnings. */
static bool key_is_known(const char *component, const char *path, const char *value,
                         struct br_str *messages)
{
    const char *slash = strchr(component, '/');
    bool service = strncmp(component, "service/", 8) == 0;
    char line[1200];
    struct br_str text = {0};
    struct br_config *config = NULL;
    struct br_errs errs = {0};
    if (service) {
        br_str_printf(&text, "yaml:{service: {%s: ", slash + 1);
    } else {
        br_str_printf(&text, "yaml:{%.*s: {\"%s\": ", (int)(slash - component), component,
                      slash + 1);
    }
    value_put(&text, path, value);
    br_str_puts(&text, "}}");
    const char *uris[] = {base, text.data};
    struct br_config_sources sources = {.uris = uris, .n_uris = 2, .getenv = no_env};
    (void)br_config_load(&sources, br_components, &config, &errs);
    br_str_add(messages, "", 0);
    for (size_t i = 0; i < errs.n_errors; i++)
        br_str_printf(messages, "%s\n", br_err_format(&errs.errors[i], line, sizeof line));
    for (size_t i = 0; i < errs.n_warnings; i++)
        br_str_printf(messages, "%s\n", br_err_format(&errs.warnings[i], line, sizeof line));
    br_config_free(config);
    br_errs_release(&errs);
    br_str_release(&text);
    return !strstr(messages->data, "unknown key");
}

static unsigned n_unknown;

static void check_key(char *const fields[FIELDS])
{
    struct br_str messages_text = {0};
    const char *value = value_of(fields[TYPE], fields[DEFAULT]);
    if (!key_is_known(fields[COMPONENT], fields[PATH], value, &messages_text)) {
        print_error("%s %s: %s\n", fields[COMPONENT], fields[PATH], messages_text.data);
        n_unknown++;
    }
    br_str_release(&messages_text);
}

static void test_keys_are_known(void **state)
{
    (void)state;
    n_unknown = 0;
    assert_true(rows_each(check_key) > 800);
    assert_int_equal(n_unknown, 0);
}

/* Checks that the test detects an unknown key of each component. */
static char control[64];
static unsigned n_controls;

static void check_control(char *const fields[FIELDS])
{
    struct br_str messages_text = {0};
    if (strcmp(control, fields[COMPONENT]) == 0)
        return;
    (void)snprintf(control, sizeof control, "%s", fields[COMPONENT]);
    if (key_is_known(fields[COMPONENT], "no_such_key", "x", &messages_text))
        fail_msg("%s: %s", fields[COMPONENT], messages_text.data);
    n_controls++;
    br_str_release(&messages_text);
}

static void test_unknown_keys_are_detected(void **state)
{
    (void)state;
    (void)rows_each(check_control);
    assert_true(n_controls > 10);
}

/* --- Defaults --------------------------------------------------------------------------------- */

/* Defaults that differ, with the reason. */
static const struct {
    const char *component, *path, *why;
} others[] = {
    {"exporters/file", "rotation.max_megabytes", "0 means 100 there"},
    {"exporters/kafka", "producer.required_acks", "all: what was acknowledged survives a broker"},
    {"exporters/otlp_http", "http2_ping_timeout", "0 means 15s there"},
    {"extensions/health_check", "use_v2", "one component reads both forms, by the keys it has"},
    {"receivers/kafka", "message_marking.after", "true: a message is committed after delivery"},
    {"receivers/kafka", "message_marking.on_permanent_error",
     "true: a message that is always rejected does not stop its partition"},
    {"receivers/zipkin", "max_request_body_size", "0 means 20 MiB there"},
    {"receivers/zipkin", "read_header_timeout", "0 means 30s here"},
};

static const struct br_option *option_find(const struct br_option *table, const char *path)
{
    size_t len = strcspn(path, ".");
    for (const struct br_option *o = table; o && o->name; o++)
        if ((strncmp(o->name, path, len) == 0 && !o->name[len]) ||
            (o->alias && strncmp(o->alias, path, len) == 0 && !o->alias[len]))
            return path[len] ? option_find(o->sub, path + len + 1) : o;
    return NULL;
}

static const struct br_option *table_of(const char *component)
{
    const char *name = strchr(component, '/') + 1;
    for (size_t i = 0; br_components[i]; i++) {
        const struct br_component *c = br_components[i];
        const char *section = br_kind_section(c->kind);
        if (strncmp(section, component, strlen(section)) == 0 &&
            (strcmp(c->name, name) == 0 || (c->alias && strcmp(c->alias, name) == 0)))
            return c->options;
    }
    return NULL;
}

static bool default_equals(const struct br_option *o, const char *expected)
{
    uint64_t ns = 0, want_ns = 0;
    bool is_number = *expected && !expected[strspn(expected, "0123456789.-")];
    switch (o->kind) {
    case BR_OPT_BOOL:
        return strcmp(o->def.boolean ? "true" : "false", expected) == 0;
    case BR_OPT_INT:
        return is_number && (double)o->def.integer == strtod(expected, NULL);
    case BR_OPT_DOUBLE:
        return is_number && o->def.real == strtod(expected, NULL);
    case BR_OPT_DURATION:
        return br_duration_parse(expected, &want_ns) && br_duration_parse(o->def.string, &ns) &&
               ns == want_ns;
    case BR_OPT_STRING:
    case BR_OPT_ENUM:
        return strcasecmp(o->def.string ? o->def.string : "", expected) == 0;
    default:
        return true;
    }
}

static bool is_other(char *const fields[FIELDS])
{
    for (size_t i = 0; i < BR_COUNT(others); i++)
        if (strcmp(others[i].component, fields[COMPONENT]) == 0 &&
            strcmp(others[i].path, fields[PATH]) == 0)
            return true;
    return false;
}

static unsigned n_compared, n_different;

static void check_default(char *const fields[FIELDS])
{
    const struct br_option *o = option_find(table_of(fields[COMPONENT]), fields[PATH]);
    if (!o || !*fields[DEFAULT] || strcmp(fields[TYPE], "section") == 0)
        return;
    n_compared++;
    if (default_equals(o, fields[DEFAULT]) == is_other(fields)) {
        print_error("%s %s: the Collector's default is %s\n", fields[COMPONENT], fields[PATH],
                    fields[DEFAULT]);
        n_different++;
    }
}

static void test_defaults(void **state)
{
    (void)state;
    n_compared = n_different = 0;
    (void)rows_each(check_default);
    assert_true(n_compared > 100);
    assert_int_equal(n_different, 0);
}

SUITE(collector_keys)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_known),
        cmocka_unit_test(test_unknown_keys_are_detected),
        cmocka_unit_test(test_defaults),
    };
    return RUN(tests, NULL, NULL);
}
