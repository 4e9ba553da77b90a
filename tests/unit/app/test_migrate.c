/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every case of tests/conformance/migrate, whose README describes the files. The output is as
 * stored, and the loader accepts it. Migrating it again does not change it. Loading the original
 * config with
 * --skip-unsupported gives the same config. `--mode write`, run in the source root, replaces the
 * stored results.
 */
#include <dirent.h>
#include <unistd.h>

#include "app/config.h"
#include "app/migrate.h"
#include "base/mem.h"
#include "tests/support/fault.h"
#include "tests/support/file.h"
#include "tests/support/test.h"

static char *slurp(const char *name, const char *suffix)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s%s", name, suffix);
    char *text = file_read(path, NULL);
    if (!text)
        text = calloc(1, 1);
    assert_non_null(text);
    return text;
}

/* Returns the value of a variable. `arg` contains lines of the form NAME=value. */
static const char *case_getenv(const char *name, void *arg)
{
    static char value[256];
    size_t len = strlen(name);
    for (const char *line = arg; *line; line += strcspn(line, "\n") + 1) {
        if (strncmp(line, name, len) == 0 && line[len] == '=') {
            (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(line + len + 1, "\n"),
                           line + len + 1);
            return value;
        }
        if (!line[strcspn(line, "\n")])
            break;
    }
    return NULL;
}

static void format_messages(const struct br_errs *errs, struct br_str *out)
{
    char line[1200];
    br_str_add(out, "", 0);
    for (size_t i = 0; i < errs->n_errors; i++)
        br_str_printf(out, "%s\n", br_err_format(&errs->errors[i], line, sizeof line));
    for (size_t i = 0; i < errs->n_warnings; i++)
        br_str_printf(out, "warning: %s\n", br_err_format(&errs->warnings[i], line, sizeof line));
}

static int compare(const char *name, const char *suffix, const char *got)
{
    char *expected = slurp(name, suffix);
    int differs = strcmp(expected, got) != 0;
    if (differs && test_mode_is("write")) {
        char path[300];
        (void)snprintf(path, sizeof path, "%s%s", name, suffix);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        (void)fputs(got, f);
        assert_int_equal(fclose(f), 0);
    } else if (differs) {
        print_error("%s%s:\n--- expected\n%s--- got\n%s", name, suffix, expected, got);
    }
    free(expected);
    return differs && !test_mode_is("write");
}

/* Checks that the output is a valid config, and that migrating it does not change it. */
static int check_result(const char *name, const struct br_str *text, char *env)
{
    int wrong = 0;
    char *uri = malloc(text->len + 6);
    assert_non_null(uri);
    (void)sprintf(uri, "yaml:%s", text->data);
    const char *uris[] = {uri};
    struct br_config_sources sources = {
        .uris = uris, .n_uris = 1, .getenv = case_getenv, .arg = env};
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    if (br_config_load(&sources, br_components, &config, &errs)) {
        struct br_str messages = {0};
        format_messages(&errs, &messages);
        print_error("%s: the output is rejected:\n%s", name, messages.data);
        br_str_release(&messages);
        wrong = 1;
    }
    br_config_free(config);
    br_errs_release(&errs);
    char path[] = "/tmp/braid-migrate-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text->data, text->len), (ssize_t)text->len);
    assert_int_equal(close(fd), 0);
    struct br_migration again = {0};
    int rc = br_config_migrate(path, &sources, br_components, true, &again, &errs);
    if (rc || strcmp(again.config.data, text->data) != 0 || again.rest.len) {
        print_error("%s: the output changes when it is migrated again (%d)\n%s", name, rc,
                    again.config.data ? again.config.data : "");
        wrong = 1;
    }
    br_migration_release(&again);
    br_errs_release(&errs);
    (void)unlink(path);
    free(uri);
    return wrong;
}

static bool empty(const struct br_yaml *node)
{
    return !node || (node->type != BR_YAML_SCALAR && node->count == 0);
}

/* Compares two configs. The order of keys does not matter; null, {} and an absent key are equal. */
static bool equal(const struct br_yaml *a, const struct br_yaml *b)
{
    if (empty(a) || empty(b))
        return empty(a) && empty(b);
    if (a->type != b->type)
        return false;
    if (a->type == BR_YAML_SCALAR)
        return strcmp(a->text, b->text) == 0;
    if (a->type == BR_YAML_SEQ && a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!equal(a->items[i], a->keys ? br_yaml_get(b, a->keys[i]->text) : b->items[i]))
            return false;
    for (size_t i = 0; a->keys && i < b->count; i++)
        if (!empty(b->items[i]) && !br_yaml_get(a, b->keys[i]->text))
            return false;
    return true;
}

static struct br_str printed(const struct br_yaml *tree)
{
    struct br_str text = {0};
    assert_int_equal(br_config_print(tree, br_components, &text), 0);
    return text;
}

/* Checks that `migrate` and --skip-unsupported remove the same parts and reject the same
 * configs. */
static int check_agreement(const char *name, const char *path,
                           const struct br_config_sources *sources, const struct br_config *skipped)
{
    struct br_errs errs = {0}, again = {0};
    struct br_migration result = {0};
    struct br_config *config = NULL;
    struct br_str messages = {0};
    int wrong = 0;
    int rc = br_config_migrate(path, sources, br_components, false, &result, &errs);
    format_messages(&errs, &messages);
    if ((rc == 0) != (skipped != NULL)) {
        print_error("%s: migrate and --skip-unsupported differ:\n%s", name, messages.data);
        wrong = 1;
    }
    if (rc == 0 && skipped) {
        char *uri = malloc(result.config.len + 6);
        assert_non_null(uri);
        (void)sprintf(uri, "yaml:%s", result.config.data);
        const char *uris[] = {uri};
        struct br_config_sources own = {
            .uris = uris, .n_uris = 1, .getenv = sources->getenv, .arg = sources->arg};
        assert_int_equal(br_config_load(&own, br_components, &config, &again), 0);
        struct br_str one = printed(config->tree), other = printed(skipped->tree);
        if (!equal(config->tree, skipped->tree)) {
            print_error("%s: migrate:\n%s--- --skip-unsupported:\n%s", name, one.data, other.data);
            wrong = 1;
        }
        br_str_release(&one);
        br_str_release(&other);
        br_config_free(config);
        free(uri);
    }
    br_str_release(&messages);
    br_migration_release(&result);
    br_errs_release(&errs);
    br_errs_release(&again);
    return wrong;
}

/* Loads the original file with --skip-unsupported. */
static int check_skip(const char *name, const char *path, char *env, bool loss)
{
    const char *uris[] = {path};
    struct br_config_sources sources = {.uris = uris,
                                        .n_uris = 1,
                                        .getenv = case_getenv,
                                        .arg = env,
                                        .skip_unsupported = true,
                                        .accept_loss = loss};
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    struct br_str messages = {0};
    int rc = br_config_load(&sources, br_components, &config, &errs);
    format_messages(&errs, &messages);
    int wrong =
        compare(name, loss ? ".loss" : ".skip", messages.data) + ((rc == 0) != (config != NULL));
    wrong += check_agreement(name, path, &sources, config);
    br_str_release(&messages);
    br_config_free(config);
    br_errs_release(&errs);
    return rc && !loss ? wrong + check_skip(name, path, env, true) : wrong;
}

static int run_case(const char *name)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s.yaml", name);
    char *env = slurp(name, ".env");
    struct br_config_sources sources = {.getenv = case_getenv, .arg = env};
    struct br_errs errs = {0};
    struct br_migration result = {0};
    struct br_str messages = {0};
    int rc = br_config_migrate(path, &sources, br_components, true, &result, &errs);
    format_messages(&errs, &messages);
    int wrong = compare(name, ".report", messages.data);
    wrong += compare(name, ".braid", result.config.data ? result.config.data : "");
    wrong += compare(name, ".rest", result.rest.data ? result.rest.data : "");
    assert_int_equal(rc == 0, errs.n_errors == 0);
    if (rc == 0)
        wrong += check_result(name, &result.config, env);
    wrong += check_skip(name, path, env, false);
    br_str_release(&messages);
    br_errs_release(&errs);
    br_migration_release(&result);
    free(env);
    return wrong;
}

static void test_cases(void **state)
{
    (void)state;
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir("tests/conformance/migrate"), 0);
    struct dirent **found;
    int n = scandir(".", &found, NULL, alphasort), n_cases = 0, n_wrong = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char *dot = strstr(found[i]->d_name, ".yaml");
        if (dot) {
            *dot = '\0';
            n_cases++;
            n_wrong += run_case(found[i]->d_name);
        }
        free(found[i]);
    }
    free(found);
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_true(n_cases >= 8);
    assert_int_equal(n_wrong, 0);
}

static void without_memory_as(void *arg, bool divide)
{
    struct br_config_sources sources = {.getenv = case_getenv, .arg = (char[]){""}};
    struct br_errs errs = {0};
    struct br_migration result = {0};
    fault_start();
    int rc = br_config_migrate(arg, &sources, br_components, divide, &result, &errs);
    fault_stop();
    assert_true(fault_failed() || rc == 0);
    assert_true(rc == 0 || result.config.data == NULL);
    br_migration_release(&result);
    br_errs_release(&errs);
}

static void without_memory(void *arg)
{
    without_memory_as(arg, true);
}

static void without_memory_alone(void *arg)
{
    without_memory_as(arg, false);
}

/* If memory is exhausted, the output must not be an incomplete config. */
static void test_no_memory(void **state)
{
    (void)state;
    static char gateway[] = "tests/conformance/migrate/gateway.yaml";
    static char anchors[] = "tests/conformance/migrate/anchors.yaml";
    static char auth[] = "tests/conformance/migrate/auth.yaml";
    fault_each("a migration", without_memory, gateway);
    fault_each("a migration of authenticators", without_memory_alone, auth);
    fault_each("a migration without comments", without_memory, anchors);
}

SUITE(migrate)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_no_memory)};
    return RUN(tests, NULL, NULL);
}
