/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests changes to YAML texts. Removing a pair from the text must have the same result as removing
 * it from the tree. Each pair and item of every text is removed alone, and many of them together.
 */
#include <dirent.h>

#include "base/mem.h"
#include "config/edit.h"
#include "config/parts.h"
#include "tests/support/test.h"

#define TEXT_MAX 65536

struct doc {
    struct br_arena arena;
    struct br_errs errs;
    struct br_yaml *tree;
};

static int doc_parse(struct doc *d, const char *text, size_t len)
{
    memset(d, 0, sizeof *d);
    br_arena_init(&d->arena, 64u << 20);
    return br_yaml_parse_plain(text, len, "f", &d->arena, &d->tree, &d->errs);
}

static void doc_release(struct doc *d)
{
    br_errs_release(&d->errs);
    br_arena_release(&d->arena);
}

static bool empty(const struct br_yaml *node)
{
    return node->type != BR_YAML_SCALAR && node->count == 0;
}

static bool same(const struct br_yaml *a, const struct br_yaml *b)
{
    if (empty(a) || empty(b))
        return empty(a) && empty(b);
    if (a->type != b->type || a->count != b->count || (a->text && strcmp(a->text, b->text) != 0))
        return false;
    for (size_t i = 0; i < a->count; i++)
        if ((a->keys && strcmp(a->keys[i]->text, b->keys[i]->text) != 0) ||
            !same(a->items[i], b->items[i]))
            return false;
    return true;
}

/* Removes each pair and item with a probability of `chance` / 1000 from the tree, or only the
 * one numbered `only` if that is not 0. */
static void cut(struct br_yaml *node, struct br_edits *edits, unsigned *seed, unsigned chance,
                unsigned only, unsigned *count)
{
    for (size_t i = 0; i < node->count && !node->alias;) {
        bool goes = only ? ++*count == only : (unsigned)rand_r(seed) % 1000 < chance;
        if (!goes) {
            cut(node->items[i++], edits, seed, chance, only, count);
            continue;
        }
        const struct br_yaml *at = node->keys ? node->keys[i] : node->items[i];
        assert_int_equal(br_edits_add(edits, node->keys ? BR_EDIT_CUT : BR_EDIT_DROP, at, NULL,
                                      chance % 2 ? "it went" : NULL),
                         0);
        br_yaml_remove(node, i);
    }
}

/* Returns the number of pairs and items, or 0 if the text is not valid. */
static unsigned check(const char *text, unsigned seed, unsigned chance, unsigned only,
                      const char *name)
{
    struct doc plain, wanted, got;
    struct br_edits edits = {0};
    struct br_str out = {0};
    unsigned count = 0;
    if (doc_parse(&plain, text, strlen(text))) {
        doc_release(&plain);
        return 0;
    }
    assert_int_equal(doc_parse(&wanted, text, strlen(text)), 0);
    cut(wanted.tree, &edits, &seed, chance, only, &count);
    assert_int_equal(br_yaml_edit(text, strlen(text), plain.tree, &edits, &out), 0);
    int rc = doc_parse(&got, out.data ? out.data : "", out.len);
    if (rc || !same(wanted.tree, got.tree))
        fail_msg("%s: %u, %u, %u: %d\n%s", name, seed, chance, only, rc, out.data);
    doc_release(&plain);
    doc_release(&wanted);
    doc_release(&got);
    br_edits_release(&edits);
    br_str_release(&out);
    return count;
}

/* Removing an anchor also changes its aliases. Such texts are tested in test_migrate. */
static void check_text(const char *text, const char *name)
{
    if (strchr(text, '&'))
        return;
    for (unsigned only = 1; check(text, 0, 1, only, name) >= only;)
        only++;
    for (unsigned seed = 0; seed < 200; seed++)
        (void)check(text, seed, 20 + seed * 4, 0, name);
}

static void check_folder(const char *folder, unsigned *n)
{
    struct dirent **found;
    int count = scandir(folder, &found, NULL, alphasort);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        char path[600], *text = calloc(1, TEXT_MAX);
        assert_non_null(text);
        (void)snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name);
        FILE *f = strstr(found[i]->d_name, ".yaml") ? fopen(path, "r") : NULL;
        if (f) {
            (void)fread(text, 1, TEXT_MAX - 1, f);
            (void)fclose(f);
            check_text(text, path);
            ++*n;
        }
        free(text);
        free(found[i]);
    }
    free(found);
}

static void test_files(void **state)
{
    (void)state;
    unsigned n = 0;
    check_folder("tests/conformance/migrate", &n);
    check_folder("config/examples", &n);
    assert_true(n > 15);
}

static void test_shapes(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "a:\n- b: 1\n  c: 2\n- d\n-   e: 1\n    f: {g: 1, h: [1, 2, 3]}\n",
        "a: [1, [2, 3], {b: c, d: e}]\nf: {g: , h}\n",
        "a: |\n  text\n  # no comment\n\nb: >-\n  more\n\n  text\nc: 1\n",
        "\xef\xbb\xbf"
        "a: 1\nb: 2\n",
        "a: \"x # y\" # z\nb: 'it''s'\nc:\n    # deep\n    d: 1\n    # deeper\n# shallow\ne: "
        "\xc3\xa9\xc3\xa9\nf: \xc3\xa9\n",
        "a:\r\n  - b\r\n  - c\r\nd: 1\r\n",
        "a: [\n  1, # one\n  2, # two\n  3\n]\nb: {\n  c: 1,\n  d: 2\n}\n",
        "- a\n- - b\n  - c\n- d: e\n",
        "a:\n  b:\n    c: 1",
        "a: !!str 1\nb: [!!str 2, 3]\n",
        "a:\n\n  b: 1\n\n  c: 2\n\n\n",
    };
    for (size_t i = 0; i < BR_COUNT(texts); i++)
        check_text(texts[i], texts[i]);
}

static void edit(const char *text, const struct br_edit *list, size_t n, const char *expected)
{
    struct doc plain;
    struct br_str out = {0};
    assert_int_equal(doc_parse(&plain, text, strlen(text)), 0);
    struct br_edits edits = {(struct br_edit *)list, n, 0};
    assert_int_equal(br_yaml_edit(text, strlen(text), plain.tree, &edits, &out), 0);
    assert_string_equal(out.data, expected);
    br_str_release(&out);
    doc_release(&plain);
}

static void test_set_and_put(void **state)
{
    (void)state;
    edit("a: 1 # x\nb:\nc: {}\nd: {e: 1}\nf:\n  g: 1\n",
         (struct br_edit[]){{BR_EDIT_SET, 1, 1, NULL, "\"2\""},
                            {BR_EDIT_PUT, 2, 1, "k", "v"},
                            {BR_EDIT_PUT, 3, 1, "k", "v"},
                            {BR_EDIT_PUT, 4, 1, "k", "v"},
                            {BR_EDIT_PUT, 5, 1, "k", "v"}},
         5, "a: \"2\" # x\nb: {k: v}\nc: {k: v}\nd: {k: v, e: 1}\nf:\n  k: v\n  g: 1\n");
    /* An added pair is kept if the first one is removed, and comments stay with their pairs. */
    edit("a: # x\n  # of b\n  b: 1\n  c: 2\nd: {}\ne:\n  - f\n  - g\n",
         (struct br_edit[]){{BR_EDIT_PUT, 1, 1, "k", "v"},
                            {BR_EDIT_PUT, 1, 1, "l", "w"},
                            {BR_EDIT_CUT, 3, 3, NULL, "b went"},
                            {BR_EDIT_PUT, 5, 1, "k", "v"},
                            {BR_EDIT_PUT, 5, 1, "l", "w"},
                            {BR_EDIT_DROP, 7, 5, NULL, NULL},
                            {BR_EDIT_SET, 6, 1, NULL, "[g, h]"}},
         7, "a: # x\n  k: v\n  l: w\n  # of b\n  # b went\n  c: 2\nd: {k: v, l: w}\ne: [g, h]\n");
    edit("a: &x\n  b: 1\nc: {d: 1, e: 2}\n",
         (struct br_edit[]){{BR_EDIT_PUT, 1, 1, "k", "v"},
                            {BR_EDIT_PUT, 3, 1, "k", "v"},
                            {BR_EDIT_CUT, 3, 5, NULL, NULL},
                            {BR_EDIT_CUT, 3, 11, NULL, NULL}},
         4, "a: &x\n  k: v\n  b: 1\nc: {k: v}\n");
    edit("# head\na:\n  # of b\n  b:\n    c: 1\n    # in b\n  # of d\n  d: 2 # d\n",
         (struct br_edit[]){{BR_EDIT_CUT, 4, 3, NULL, "b went"}}, 1,
         "# head\na:\n  # of b\n  # b went\n  # of d\n  d: 2 # d\n");
}

SUITE(yaml_edit)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_set_and_put),
    };
    return RUN(tests, NULL, NULL);
}
