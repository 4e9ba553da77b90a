/* SPDX-License-Identifier: Apache-2.0 */
#include "app/migrate.h"

#include <string.h>

#include "app/fit.h"
#include "app/rest.h"
#include "base/mem.h"
#include "config/parts.h"

struct migrator {
    const char *path, *text;
    size_t len;
    const struct br_config_sources *sources;
    const struct br_component *const *registry;
    struct br_arena *arena;
    struct br_errs *errs;
    struct br_yaml *plain; /* the text's own tree */
};

/* The tree of a source; errors go to `errs`. */
static int migrate_read(const struct migrator *migrator, const char *uri, bool as_written,
                        struct br_yaml **ret, struct br_errs *errs)
{
    struct br_config_sources sources = {.uris = &uri,
                                        .n_uris = 1,
                                        .getenv = migrator->sources->getenv,
                                        .arg = migrator->sources->arg,
                                        .as_written = as_written,
                                        .unset = "unset"};
    return br_config_merge(&sources, migrator->arena, ret, errs);
}

static bool migrate_is_empty(const struct br_yaml *node)
{
    return node->type != BR_YAML_SCALAR && node->count == 0;
}

/* Nothing, {} and [] are one. */
static bool migrate_is_same(const struct br_yaml *left, const struct br_yaml *right)
{
    if (migrate_is_empty(left) || migrate_is_empty(right))
        return migrate_is_empty(left) && migrate_is_empty(right);
    if (left->type != right->type || left->count != right->count)
        return false;
    if (left->type == BR_YAML_SCALAR)
        return strcmp(left->text, right->text) == 0;
    for (size_t i = 0; i < left->count; i++) {
        const struct br_yaml *other =
            left->type == BR_YAML_SEQ ? right->items[i] : br_yaml_get(right, left->keys[i]->text);
        if (!other || !migrate_is_same(left->items[i], other))
            return false;
    }
    return true;
}

/* Whether the text means the tree. */
static bool migrate_means(const struct migrator *migrator, const struct br_str *text,
                          bool as_written, const struct br_yaml *tree)
{
    struct br_errs errs = {0};
    struct br_yaml *read = NULL;
    const char *uri = br_arena_printf(migrator->arena, "yaml:%s", text->data ? text->data : "");
    bool same = uri && migrate_read(migrator, uri, as_written, &read, &errs) == 0 &&
                migrate_is_same(read, tree);
    br_errs_release(&errs);
    return same;
}

/* Appends the text with the edits, or what they come to without its comments. */
static int migrate_write(const struct migrator *migrator, const struct br_edits *edits,
                         bool as_written, const struct br_yaml *tree, struct br_str *out)
{
    struct br_str text = {0};
    const struct br_yaml at = {.file = migrator->path};
    int rc = br_yaml_edit(migrator->text, migrator->len, migrator->plain, edits, &text);
    if (rc == 0 && !migrate_means(migrator, &text, as_written, tree)) {
        br_str_clear(&text);
        rc = br_yaml_print(tree, migrator->registry, &text);
        if (rc == 0 && !migrate_means(migrator, &text, as_written, tree))
            rc = br_errs_add(
                migrator->errs, &at, NULL,
                "cannot be divided: what ${...} brings has both in it, what stays and what "
                "goes");
        else if (rc == 0)
            br_errs_warn(
                migrator->errs, &at, NULL,
                "comments are lost%s: an anchor stands in what went, and its alias in what stays",
                as_written ? " in the Collector's part" : "");
    }
    if (rc == 0 && text.data)
        br_str_add(out, text.data, text.len);
    br_str_release(&text);
    return rc == BR_ENOMEM || out->failed ? br_errs_no_memory(migrator->errs) : rc;
}

static bool migrate_has_bom(const struct migrator *migrator)
{
    return migrator->len >= 3 && memcmp(migrator->text, "\xef\xbb\xbf", 3) == 0;
}

static int migrate_config(const struct migrator *migrator, struct br_yaml *tree, struct br_str *out)
{
    struct br_edits edits = {0};
    struct br_fit fit = {migrator->registry, migrator->arena, migrator->errs, &edits, true};
    int rc = br_config_fit(&fit, tree);
    if (rc == 0 && edits.count && !migrate_has_bom(migrator))
        br_str_printf(out, "# Braid's part of %s. What is left out is said in its place.\n",
                      migrator->path);
    if (rc == 0)
        rc = migrate_write(migrator, &edits, false, tree, out);
    br_edits_release(&edits);
    return rc;
}

/* The lines of `text` as comments. */
static void migrate_comment(struct br_str *out, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        br_str_printf(out, "#   %.*s\n", (int)len, text);
        text += len + (text[len] == '\n');
    }
}

static void migrate_head(const struct migrator *migrator, const struct br_rest *rest,
                         struct br_str *out)
{
    const struct br_str *ports = rest->ports;
    if (migrate_has_bom(migrator))
        return;
    br_str_printf(out, "# What stays for a Collector of %s; Braid runs the rest.\n",
                  migrator->path);
    if (rest->wants_spans)
        br_str_puts(
            out,
            "# Its connectors want the spans that Braid takes: let Braid send it a copy, by an "
            "otlp exporter\n# beside the others.\n");
    if (!ports->len)
        return;
    br_str_puts(
        out,
        "# So that both can run on one host, this one listens elsewhere. Clients that send "
        "to it\n# have to be told (OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, ..._LOGS_ENDPOINT):\n");
    migrate_comment(out, ports->data);
}

static int migrate_rest(const struct migrator *migrator, const struct br_yaml *fitted,
                        struct br_str *out)
{
    struct br_edits edits = {0};
    struct br_str ports = {0};
    struct br_rest rest = {.arena = migrator->arena, .edits = &edits, .ports = &ports};
    struct br_yaml *tree = NULL;
    int rc = migrate_read(migrator, migrator->path, true, &tree, migrator->errs);
    if (rc == 0 && br_config_rest(&rest, tree, fitted))
        rc = br_errs_no_memory(migrator->errs);
    if (rc == 0 && !rest.empty) {
        migrate_head(migrator, &rest, out);
        rc = migrate_write(migrator, &edits, true, tree, out);
    }
    br_str_release(&ports);
    br_edits_release(&edits);
    return rc;
}

static int migrate_all(struct migrator *migrator, struct br_migration *ret)
{
    const char *why = "";
    struct br_yaml *tree = NULL;
    struct br_yaml at = {.file = migrator->path};
    int rc = br_file_read(migrator->path, migrator->arena, &migrator->text, &migrator->len, &why);
    if (rc == BR_ENOMEM)
        return br_errs_no_memory(migrator->errs);
    if (rc)
        return br_errs_add(migrator->errs, &at, NULL, "cannot be read: %s", why);
    rc = br_yaml_parse_plain(migrator->text, migrator->len, migrator->path, migrator->arena,
                             &migrator->plain, migrator->errs);
    if (rc == 0)
        rc = migrate_read(migrator, migrator->path, false, &tree, migrator->errs);
    if (rc == 0)
        rc = migrate_config(migrator, tree, &ret->config);
    return rc ? rc : migrate_rest(migrator, tree, &ret->rest);
}

int br_config_migrate(const char *path, const struct br_config_sources *sources,
                      const struct br_component *const *registry, struct br_migration *ret,
                      struct br_errs *errs)
{
    struct br_arena arena;
    br_arena_init(&arena, BR_CONFIG_ARENA_MAX);
    struct migrator migrator = {
        .path = path, .sources = sources, .registry = registry, .arena = &arena, .errs = errs};
    int rc = migrate_all(&migrator, ret);
    br_arena_release(&arena);
    br_errs_sort(errs, &path, 1);
    if (rc)
        br_migration_release(ret);
    return rc;
}

void br_migration_release(struct br_migration *migration)
{
    br_str_release(&migration->config);
    br_str_release(&migration->rest);
}
