/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every case of tests/conformance/config; the README there describes the files. */
#include <dirent.h>
#include <unistd.h>

#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/support/fake_registry.h"
#include "tests/support/file.h"
#include "tests/support/test.h"

#define ARGS_MAX 16

struct args {
    char *text;
    const char *uris[ARGS_MAX], *sets[ARGS_MAX], *env[ARGS_MAX];
    size_t n_uris, n_sets, n_env;
};

static void add(const char **list, size_t *n, const char *value)
{
    assert_true(*n < ARGS_MAX);
    list[(*n)++] = value;
}

static void read_args(const char *name, struct args *a)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s.args", name);
    a->text = file_read(path, NULL);
    if (!a->text) {
        a->text = calloc(1, sizeof path);
        assert_non_null(a->text);
        (void)snprintf(a->text, sizeof path, "config %s.yaml\n", name);
    }
    char *saved = NULL;
    for (char *line = strtok_r(a->text, "\n", &saved); line; line = strtok_r(NULL, "\n", &saved)) {
        if (strncmp(line, "config ", 7) == 0)
            add(a->uris, &a->n_uris, line + 7);
        else if (strncmp(line, "set ", 4) == 0)
            add(a->sets, &a->n_sets, line + 4);
        else if (strncmp(line, "env ", 4) == 0)
            add(a->env, &a->n_env, line + 4);
        else
            fail_msg("%s.args: %s", name, line);
    }
}

static const char *case_getenv(const char *name, void *arg)
{
    const struct args *a = arg;
    size_t len = strlen(name);
    for (size_t i = 0; i < a->n_env; i++)
        if (strncmp(a->env[i], name, len) == 0 && a->env[i][len] == '=')
            return a->env[i] + len + 1;
    return NULL;
}

static void list(const struct br_err *errs, size_t n, const char *prefix, struct br_str *out)
{
    char line[1200];
    for (size_t i = 0; i < n; i++)
        br_str_printf(out, "%s%s\n", prefix, br_err_format(&errs[i], line, sizeof line));
}

static bool run_case(const char *name)
{
    struct args a = {0};
    read_args(name, &a);
    char path[300];
    (void)snprintf(path, sizeof path, "%s.expected", name);
    char *expected = file_read(path, NULL);
    assert_non_null(expected);
    struct br_config_sources sources = {.uris = a.uris,
                                        .n_uris = a.n_uris,
                                        .sets = a.sets,
                                        .n_sets = a.n_sets,
                                        .getenv = case_getenv,
                                        .arg = &a};
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    int rc = br_config_load(&sources, fake_registry, &config, &errs);
    struct br_str got = {0};
    br_str_add(&got, "", 0);
    list(errs.errors, errs.n_errors, "", &got);
    br_str_puts(&got, errs.more ? "and more\n" : "");
    list(errs.warnings, errs.n_warnings, "warning: ", &got);
    bool same = strcmp(got.data, expected) == 0 && (rc == 0) == (errs.n_errors == 0) &&
                (rc == 0) == (config != NULL);
    if (!same)
        print_error("%s (%d):\n--- expected\n%s--- got\n%s", name, rc, expected, got.data);
    br_str_release(&got);
    br_errs_release(&errs);
    br_config_free(config);
    free(expected);
    free(a.text);
    return same;
}

static void test_golden(void **state)
{
    (void)state;
    assert_int_equal(chdir("tests/conformance/config"), 0);
    struct dirent **found;
    int n = scandir(".", &found, NULL, alphasort), n_cases = 0, n_wrong = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char *dot = strstr(found[i]->d_name, ".expected");
        if (dot) {
            *dot = '\0';
            n_cases++;
            n_wrong += !run_case(found[i]->d_name);
        }
        free(found[i]);
    }
    free(found);
    assert_true(n_cases >= 40);
    assert_int_equal(n_wrong, 0);
}

SUITE(config_golden)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
    return RUN(tests, NULL, NULL);
}
