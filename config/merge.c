/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/lexer.h"
#include "base/mem.h"
#include "config/parts.h"

/* Reads a whole file into the arena. After BR_EIO or BR_ETOOBIG, `*ret_why` is the reason. */
static int config_merge_read_all(int fd, struct br_arena *arena, const char **ret, size_t *ret_len,
                                 const char **ret_why)
{
    char *text = br_malloc(BR_YAML_SIZE_MAX + 1);
    size_t len = 0;
    int rc = text ? 0 : BR_ENOMEM;
    while (rc == 0 && len <= BR_YAML_SIZE_MAX) {
        ssize_t n = read(fd, text + len, BR_YAML_SIZE_MAX + 1 - len);
        if (n == 0)
            break;
        if (n > 0) {
            len += (size_t)n;
        } else if (errno != EINTR) {
            *ret_why = strerror(errno);
            rc = BR_EIO;
        }
    }
    if (rc == 0 && len > BR_YAML_SIZE_MAX) {
        *ret_why = "it is larger than 1 MiB";
        rc = BR_ETOOBIG;
    }
    if (rc == 0) {
        *ret = br_arena_strndup(arena, text, len);
        *ret_len = len;
        rc = *ret ? 0 : BR_ENOMEM;
    }
    br_free(text);
    return rc;
}

int br_file_read(const char *path, struct br_arena *arena, const char **ret, size_t *ret_len,
                 const char **ret_why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        *ret_why = strerror(errno);
        return BR_EIO;
    }
    int rc = config_merge_read_all(fd, arena, ret, ret_len, ret_why);
    (void)close(fd);
    return rc;
}

struct merge {
    const struct br_config_sources *sources;
    struct br_arena *arena;
    struct br_errs *errs;
    struct br_yaml *tree;
};

/* Moves the pairs of `from` into `into`. If both maps contain a key and both of its values are
 * maps, these two maps are merged. If the two values of a key are not both maps, the pair of
 * `from` replaces that of `into`, including its file position. */
static int merge_maps(struct merge *merge, struct br_yaml *into, const struct br_yaml *from)
{
    for (size_t i = 0; i < from->count; i++) {
        struct br_yaml *value = from->items[i];
        size_t at = br_yaml_index(into, from->keys[i]->text);
        if (at == into->count) {
            if (br_yaml_append(merge->arena, into, from->keys[i], value) != 0)
                return br_errs_no_memory(merge->errs);
            continue;
        }
        struct br_yaml *old = into->items[at];
        if (old->type == BR_YAML_MAP && value->type == BR_YAML_MAP) {
            int rc = merge_maps(merge, old, value);
            if (rc)
                return rc;
        } else {
            into->keys[at] = from->keys[i];
            into->items[at] = value;
        }
    }
    return 0;
}

/* Returns a map with a single pair. */
static struct br_yaml *config_merge_wrap(struct merge *merge, const struct br_yaml *at,
                                         const char *key, size_t len, struct br_yaml *value)
{
    struct br_yaml *map = br_yaml_new(merge->arena, BR_YAML_MAP, at);
    struct br_yaml *name = br_yaml_scalar(merge->arena, key, len, at);
    if (!map || !name || br_yaml_append(merge->arena, map, name, value) != 0)
        return NULL;
    return map;
}

/* Merges the value at the path "a::b" as the map {a: {b: value}}. */
static int merge_path(struct merge *merge, const struct br_yaml *at, const char *path,
                      const char *separator, struct br_yaml *value)
{
    const char *starts_at[BR_YAML_DEPTH_MAX + 1];
    char shown[BR_SHOWN_SIZE];
    size_t n = 0, skip = strlen(separator);
    const char *p = path;
    while (p && n < BR_YAML_DEPTH_MAX) {
        starts_at[n++] = p;
        p = strstr(p, separator);
        p = p ? p + skip : NULL;
        starts_at[n] = p ? p : path + strlen(path) + skip;
        if (starts_at[n] - skip == starts_at[n - 1])
            return br_errs_add(merge->errs, at, NULL, "a name is missing in %s: write a%sb%sc",
                               br_text_show(path, shown), separator, separator);
    }
    if (p)
        return br_errs_add(merge->errs, at, NULL, "more than %d names in %s", BR_YAML_DEPTH_MAX,
                           br_text_show(path, shown));
    struct br_yaml *tree = value;
    for (size_t i = n; i > 0; i--) {
        size_t len = (size_t)(starts_at[i] - starts_at[i - 1]) - skip;
        tree = config_merge_wrap(merge, at, starts_at[i - 1], len, tree);
        if (!tree)
            return br_errs_no_memory(merge->errs);
    }
    return merge_maps(merge, merge->tree, tree);
}

static int merge_tree(struct merge *merge, const struct br_yaml *tree)
{
    if (!merge->tree->file)
        *merge->tree = (struct br_yaml){
            .type = BR_YAML_MAP, .file = tree->file, .line = tree->line, .col = tree->col};
    if (tree->type == BR_YAML_NULL)
        return 0;
    if (tree->type != BR_YAML_MAP)
        return br_errs_add(merge->errs, tree, NULL,
                           "a configuration is a map with receivers, exporters and service, not %s",
                           tree->type == BR_YAML_SEQ ? "a list" : "text");
    for (size_t i = 0; i < tree->count; i++) {
        const struct br_yaml *key = tree->keys[i];
        int rc = merge_path(merge, key, key->text, "::", tree->items[i]);
        if (rc)
            return rc;
    }
    return 0;
}

static int merge_text(struct merge *merge, const char *text, size_t len, const char *file)
{
    struct br_yaml *tree;
    int rc = br_yaml_parse(text, len, file, merge->arena, &tree, merge->errs);
    return rc ? rc : merge_tree(merge, tree);
}

static int merge_file(struct merge *merge, const char *path)
{
    const char *text, *why;
    size_t len;
    int rc = br_file_read(path, merge->arena, &text, &len, &why);
    if (rc == BR_ENOMEM)
        return br_errs_no_memory(merge->errs);
    struct br_yaml at = {.file = path};
    if (rc) {
        br_errs_add(merge->errs, &at, NULL, "cannot be read: %s", why);
        return rc;
    }
    return merge_text(merge, text, len, path);
}

static int merge_env(struct merge *merge, const char *uri)
{
    const char *name = uri + strlen("env:");
    struct br_yaml at = {.file = uri};
    if (!br_is_identifier(name, strlen(name)))
        return br_errs_add(merge->errs, &at, NULL,
                           "write env:NAME with letters, digits and _, no digit first");
    const char *text = br_sources_getenv(merge->sources, name);
    if (!text)
        br_errs_warn(merge->errs, &at, NULL,
                     "the environment variable %s is not set and counts as empty", name);
    return text ? merge_text(merge, text, strlen(text), uri) : 0;
}

static int merge_uri(struct merge *merge, const char *uri)
{
    struct br_yaml at = {.file = uri};
    if (br_text_starts(uri, "file:"))
        return merge_file(merge, uri + strlen("file:"));
    if (br_text_starts(uri, "env:"))
        return merge_env(merge, uri);
    if (br_text_starts(uri, "yaml:"))
        return merge_text(merge, uri + strlen("yaml:"), strlen(uri + strlen("yaml:")), "yaml");
    if (br_text_starts(uri, "http:") || br_text_starts(uri, "https:"))
        return br_errs_add(
            merge->errs, &at, NULL,
            "a configuration is read from a file, env: or yaml:, not over the network");
    return merge_file(merge, uri);
}

/* Adds `by` to the columns in the first line, so that columns count from the start of the
 * argument that the user typed. */
static void config_merge_shift(struct br_yaml *node, int by)
{
    if (node->line == 1)
        node->col += by;
    for (size_t i = 0; i < node->count; i++) {
        if (node->keys)
            config_merge_shift(node->keys[i], by);
        config_merge_shift(node->items[i], by);
    }
}

static int merge_set(struct merge *merge, const char *set)
{
    struct br_yaml at = {.file = "--set", .line = 1, .col = 1}, *value;
    char shown[BR_SHOWN_SIZE];
    const char *equals = strchr(set, '=');
    if (!equals)
        return br_errs_add(merge->errs, &at, NULL, "%s has no \"=\": write --set a.b.c=value",
                           br_text_show(set, shown));
    size_t len = (size_t)(equals - set);
    while (len && isspace((unsigned char)set[len - 1]))
        len--;
    char *path = br_arena_strndup(merge->arena, set, len);
    if (!path)
        return br_errs_no_memory(merge->errs);
    size_t before = merge->errs->n_errors;
    int rc =
        br_yaml_parse(equals + 1, strlen(equals + 1), "--set", merge->arena, &value, merge->errs);
    int by = (int)(equals + 1 - set);
    if (rc) {
        for (size_t i = before; i < merge->errs->n_errors; i++)
            if (merge->errs->errors[i].line == 1)
                merge->errs->errors[i].col += by;
        return rc;
    }
    config_merge_shift(value, by);
    return merge_path(merge, &at, path, strstr(path, "::") ? "::" : ".", value);
}

static int config_merge_no_sources(struct merge *merge)
{
    return br_errs_add(merge->errs, NULL, NULL,
                       "no configuration is given: use --config file.yaml");
}

/* Merges all sources. Continues after an error, so that errors in later sources are reported,
 * too. */
static int merge_all(struct merge *merge)
{
    const struct br_config_sources *sources = merge->sources;
    int worst = sources->n_uris + sources->n_sets ? 0 : config_merge_no_sources(merge);
    for (size_t i = 0; i < sources->n_uris && worst != BR_ENOMEM; i++) {
        int rc = merge_uri(merge, sources->uris[i]);
        worst = rc ? rc : worst;
    }
    for (size_t i = 0; i < sources->n_sets && worst != BR_ENOMEM; i++) {
        int rc = merge_set(merge, sources->sets[i]);
        worst = rc ? rc : worst;
    }
    return worst;
}

int br_config_merge(const struct br_config_sources *sources, struct br_arena *arena,
                    struct br_yaml **ret, struct br_errs *errs)
{
    struct merge merge = {sources, arena, errs, br_yaml_new(arena, BR_YAML_MAP, NULL)};
    if (!merge.tree)
        return br_errs_no_memory(errs);
    int rc = merge_all(&merge);
    if (rc == 0 && !sources->as_written)
        rc = br_yaml_expand(&merge.tree, sources, arena, errs);
    if (rc == 0)
        *ret = merge.tree;
    return rc;
}
