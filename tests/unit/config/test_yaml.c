/* SPDX-License-Identifier: Apache-2.0 */
/* Tests trees and the positions of nodes. Expectations are from YAML 1.2.2 (chapters 6 to 10),
 * from the limits in config/yaml.h, and from counting lines and columns. */
#include <dirent.h>

#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/support/fake_registry.h"
#include "tests/support/test.h"

struct fixture {
    struct br_arena arena;
    struct br_errs errs;
    struct br_yaml *root;
    int rc;
};

static struct fixture parse_len(const char *text, size_t len)
{
    struct fixture f = {0};
    br_arena_init(&f.arena, 64u << 20);
    f.rc = br_yaml_parse(text, len, "f.yaml", &f.arena, &f.root, &f.errs);
    return f;
}

static struct fixture parse(const char *text)
{
    return parse_len(text, strlen(text));
}

static void done(struct fixture *f)
{
    br_errs_release(&f->errs);
    br_arena_release(&f->arena);
}

static void expect_at(const struct br_yaml *node, int line, int col)
{
    assert_non_null(node);
    assert_string_equal(node->file, "f.yaml");
    assert_int_equal(node->line, line);
    assert_int_equal(node->col, col);
}

static void expect_text(const struct br_yaml *node, const char *text, bool quoted)
{
    assert_non_null(node);
    assert_int_equal(node->type, BR_YAML_SCALAR);
    assert_string_equal(node->text, text);
    assert_int_equal(node->len, strlen(text));
    assert_int_equal(node->quoted, quoted);
}

static void expect_error(const char *text, int rc, int line, int col, const char *part)
{
    struct fixture f = parse(text);
    assert_int_equal(f.rc, rc);
    assert_null(f.root);
    assert_int_equal(f.errs.n_errors, 1);
    if (f.errs.errors[0].line != line || f.errs.errors[0].col != col ||
        !strstr(f.errs.errors[0].text, part))
        fail_msg("%d:%d: %s", f.errs.errors[0].line, f.errs.errors[0].col, f.errs.errors[0].text);
    done(&f);
}

static void test_positions(void **state)
{
    (void)state;
    struct fixture f = parse("a: 1\n"
                             "b:\n"
                             "  - x\n"
                             "  - {y: \"z\"}\n"
                             "\xc3\xa4: \xc3\xb6\n"); /* columns count characters */
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.root->type, BR_YAML_MAP);
    assert_int_equal(f.root->count, 3);
    expect_at(f.root, 1, 1);
    expect_at(f.root->keys[1], 2, 1);
    struct br_yaml *b = br_yaml_get(f.root, "b");
    assert_int_equal(b->type, BR_YAML_SEQ);
    expect_at(b->items[0], 3, 5);
    expect_at(br_yaml_get(b->items[1], "y"), 4, 9);
    expect_at(br_yaml_get(f.root, "\xc3\xa4"), 5, 4);
    assert_null(br_yaml_get(f.root, "none"));
    assert_null(br_yaml_get(b, "y"));
    assert_null(br_yaml_get(NULL, "y"));
    done(&f);
}

static void test_scalars(void **state)
{
    (void)state;
    struct fixture f = parse("plain: a b\n"
                             "single: 'it''s'\n"
                             "double: \"a\\tb\\u00e4\"\n"
                             "literal: |\n  x\n  y\n"
                             "folded: >-\n  x\n  y\n"
                             "number: 0x10\n"
                             "tagged: !!str 5\n"
                             "untagged: !!int \"5\"\n"
                             "quoted_null: \"null\"\n"
                             "'': x\n");
    assert_int_equal(f.rc, BR_EINVAL); /* an empty key */
    assert_int_equal(f.errs.errors[0].line, 14);
    done(&f);
    f = parse("plain: a b\n"
              "single: 'it''s'\n"
              "double: \"a\\tb\\u00e4\"\n"
              "literal: |\n  x\n  y\n"
              "folded: >-\n  x\n  y\n"
              "number: 0x10\n"
              "tagged: !!str 5\n"
              "untagged: !!int \"5\"\n"
              "quoted_null: \"null\"\n");
    assert_int_equal(f.rc, 0);
    expect_text(br_yaml_get(f.root, "plain"), "a b", false);
    expect_text(br_yaml_get(f.root, "single"), "it's", true);
    expect_text(br_yaml_get(f.root, "double"), "a\tb\xc3\xa4", true);
    expect_text(br_yaml_get(f.root, "literal"), "x\ny\n", true);
    expect_text(br_yaml_get(f.root, "folded"), "x y", true);
    expect_text(br_yaml_get(f.root, "number"), "0x10", false);
    expect_text(br_yaml_get(f.root, "tagged"), "5", true);
    expect_text(br_yaml_get(f.root, "untagged"), "5", false);
    expect_text(br_yaml_get(f.root, "quoted_null"), "null", true);
    done(&f);
}

static void test_nulls(void **state)
{
    (void)state;
    struct fixture f = parse("a:\nb: ~\nc: null\nd: Null\ne: NULL\nf: nUll\n");
    assert_int_equal(f.rc, 0);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(f.root->items[i]->type, BR_YAML_NULL);
        assert_null(f.root->items[i]->text);
    }
    expect_text(f.root->items[5], "nUll", false);
    done(&f);
    const char *const empty[] = {"", "\n\n", "# only a comment\n", "---\n", "~"};
    for (size_t i = 0; i < BR_COUNT(empty); i++) {
        f = parse(empty[i]);
        assert_int_equal(f.rc, 0);
        assert_int_equal(f.root->type, BR_YAML_NULL);
        done(&f);
    }
}

static void test_aliases(void **state)
{
    (void)state;
    struct fixture f = parse("a: &x {k: v}\n"
                             "b: *x\n"
                             "c: [*x, *x]\n"
                             "d: &x new\n"
                             "e: *x\n");
    assert_int_equal(f.rc, 0);
    struct br_yaml *a = br_yaml_get(f.root, "a"), *b = br_yaml_get(f.root, "b");
    assert_ptr_not_equal(a, b);
    assert_ptr_not_equal(br_yaml_get(a, "k"), br_yaml_get(b, "k"));
    expect_text(br_yaml_get(b, "k"), "v", false);
    expect_at(br_yaml_get(b, "k"), 1, 11);
    assert_int_equal(br_yaml_get(f.root, "c")->count, 2);
    expect_text(br_yaml_get(f.root, "e"), "new", false);
    done(&f);
    expect_error("a: &x [1, *x]\n", BR_EINVAL, 1, 11, "inside the anchor that it refers to");
    expect_error("a: &x {b: {c: *x}}\n", BR_EINVAL, 1, 15, "inside the anchor that it refers to");
    expect_error("a: *x\n", BR_EINVAL, 1, 4, "no anchor");
}

static void test_merge_keys(void **state)
{
    (void)state;
    struct fixture f = parse("x: &x {a: 1, b: 2}\n"
                             "y: &y {b: 3, c: 4}\n"
                             "one: {b: own, <<: *x}\n"
                             "two: {<<: [*x, *y], d: 5}\n"
                             "text: {\"<<\": plain}\n");
    assert_int_equal(f.rc, 0);
    struct br_yaml *one = br_yaml_get(f.root, "one"), *two = br_yaml_get(f.root, "two");
    assert_int_equal(one->count, 2);
    expect_text(br_yaml_get(one, "a"), "1", false);
    expect_text(br_yaml_get(one, "b"), "own", false);
    assert_int_equal(two->count, 4);
    expect_text(br_yaml_get(two, "b"), "2", false);
    expect_text(br_yaml_get(two, "c"), "4", false);
    expect_text(br_yaml_get(two, "d"), "5", false);
    expect_text(br_yaml_get(br_yaml_get(f.root, "text"), "<<"), "plain", false);
    done(&f);
    expect_error("a: {<<: 5}\n", BR_EINVAL, 1, 9, "requires a map");
    expect_error("a: {<<: [{b: 1}, 5]}\n", BR_EINVAL, 1, 18, "requires a map");
    expect_error("a: {<<: }\n", BR_EINVAL, 1, 9, "requires a map");
}

static void test_refused(void **state)
{
    (void)state;
    expect_error("a: 1\nb: 2\na: 3\n", BR_EINVAL, 3, 1, "line 1, column 1");
    expect_error("{a: 1, 'a': 2}\n", BR_EINVAL, 1, 8, "line 1, column 2");
    expect_error("? [a]\n: b\n", BR_EINVAL, 1, 3, "must be text");
    expect_error("{'': b}\n", BR_EINVAL, 1, 2, "key is missing");
    expect_error("a:\n  b: 1\n\tc: 2\n", BR_EINVAL, 3, 1, "tab");
    expect_error("a:\n\t- 1\n", BR_EINVAL, 2, 1, "tab");
    expect_error("a: 'x\nb: 1\n", BR_EINVAL, 1, 4, "never closed");
    expect_error("a: \"x\\0y\"\n", BR_EINVAL, 1, 4, "NUL");
    expect_error("a: \x01\n", BR_EINVAL, 1, 4, "control characters");
    expect_error("a: !!binary eA==\n", BR_EINVAL, 1, 4, "tag");
    expect_error("a: !set {b}\n", BR_EINVAL, 1, 4, "tag");
    expect_error("a: 1\n---\nb: 2\n", BR_EINVAL, 2, 1, "second document");
    expect_error("a: [1\nb: 2\n", BR_EINVAL, 2, 2, "not valid YAML");
    expect_error("a:\n    b: 1\n  c: 2\n", BR_EINVAL, 3, 3, "starts at line 1");
}

/* 100 levels are allowed and 101 are not. The levels of an alias count from its place. */
static void test_depth(void **state)
{
    (void)state;
    char text[256] = "";
    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    struct fixture f = parse(text);
    assert_int_equal(f.rc, 0);
    done(&f);
    char deep[102] = "";
    memset(deep, '[', 101);
    expect_error(deep, BR_ETOOBIG, 1, 101, "100 levels");
    char alias[300];
    for (int over = 0; over <= 1; over++) {
        int levels = 40 + over;
        (void)snprintf(alias, sizeof alias, "a: &a %.*s%.*s\nb: %.*s*a%.*s\n", 59, text, 59,
                       text + 100, levels, text, levels, text + 100);
        if (over) {
            expect_error(alias, BR_ETOOBIG, 2, 4 + levels, "100 levels");
            continue;
        }
        f = parse(alias);
        assert_int_equal(f.rc, 0);
        done(&f);
    }
}

/* A list with n entries counts as n + 1 values. */
static void test_sizes(void **state)
{
    (void)state;
    char *text = calloc(1, (1 << 20) + 2);
    assert_non_null(text);
    for (size_t i = 0; i < 9999; i++)
        memcpy(text + 4 * i, "- x\n", 4);
    struct fixture f = parse(text);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.root->count, 9999);
    done(&f);
    memcpy(text + 4 * 9999, "- x\n", 4);
    expect_error(text, BR_ETOOBIG, 10000, 3, "10000 values");
    memset(text, 'x', 1 << 20);
    f = parse(text);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.root->len, 1 << 20);
    done(&f);
    text[1 << 20] = 'x';
    expect_error(text, BR_ETOOBIG, 1, 1, "1024 KiB");
    free(text);
}

static void test_errs_bound(void **state)
{
    (void)state;
    struct br_errs errs = {0};
    struct br_yaml at = {.file = "f", .line = 3, .col = 7};
    for (int i = 0; i < BR_ERRS_MAX; i++)
        assert_int_equal(br_errs_add(&errs, &at, "a::b", "number %d", i), BR_EINVAL);
    assert_false(errs.more);
    assert_int_equal(br_errs_add(&errs, NULL, NULL, "one more"), BR_EINVAL);
    assert_true(errs.more);
    assert_int_equal(errs.n_errors, BR_ERRS_MAX);
    char line[1200];
    assert_string_equal(br_err_format(&errs.errors[19], line, sizeof line),
                        "f:3:7: a::b: number 19");
    for (int i = 0; i < BR_WARNINGS_MAX; i++)
        br_errs_warn(&errs, &at, NULL, "w");
    assert_false(errs.more_warnings);
    br_errs_warn(&errs, &at, NULL, "one more");
    assert_true(errs.more_warnings);
    assert_int_equal(errs.n_warnings, BR_WARNINGS_MAX);
    br_errs_release(&errs);
    assert_null(errs.errors);
    br_errs_release(&errs);
}

static const char *no_env(const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return NULL;
}

/* Parses a file of the fuzzer's corpus, whole and cut at every byte. The result is a config or
 * errors. */
static void replay(const char *path)
{
    static char text[65536];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t len = fread(text, 1, sizeof text - 1, f);
    assert_int_equal(fclose(f), 0);
    for (size_t cut = 0; cut <= len; cut++) {
        struct fixture tree = parse_len(text, cut);
        assert_int_equal(tree.rc == 0, tree.errs.n_errors == 0);
        done(&tree);
        static char uri[65536 + 8];
        (void)snprintf(uri, sizeof uri, "yaml:%.*s", (int)cut, text);
        const char *const uris[] = {uri};
        struct br_config_sources sources = {.uris = uris, .n_uris = 1, .getenv = no_env};
        struct br_errs errs = {0};
        struct br_config *config = NULL;
        int rc = br_config_load(&sources, fake_registry, &config, &errs);
        assert_int_equal(rc == 0, errs.n_errors == 0);
        assert_int_equal(rc == 0, config != NULL);
        br_errs_release(&errs);
        br_config_free(config);
    }
}

static void test_corpus(void **state)
{
    (void)state;
    DIR *dir = opendir("tests/corpus/yaml");
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *d; (d = readdir(dir));) {
        char path[300];
        if (d->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "tests/corpus/yaml/%s", d->d_name);
        replay(path);
        n++;
    }
    assert_int_equal(closedir(dir), 0);
    assert_true(n >= 12);
}

SUITE(yaml)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions),  cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_nulls),      cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_merge_keys), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_depth),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_errs_bound), cmocka_unit_test(test_corpus),
    };
    return RUN(tests, NULL, NULL);
}
