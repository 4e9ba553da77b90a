/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/parts.h"

/* The arena may keep `text` across a failed read; both die together. */
static int read_all(int fd, struct br_arena *arena, const char **ret, size_t *ret_len,
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
    int rc = read_all(fd, arena, ret, ret_len, ret_why);
    (void)close(fd);
    return rc;
}

struct merge {
    const struct br_config_sources *sources;
    struct br_arena *arena;
    struct br_errs *errs;
    struct br_yaml *tree;
};

/* `into` takes over the pairs of `from`. A key's place is that of the one that wins. */
static int merge_maps(struct merge *m, struct br_yaml *into, const struct br_yaml *from)
{
    for (size_t i = 0; i < from->n; i++) {
        struct br_yaml *value = from->items[i];
        size_t at = br_yaml_index(into, from->keys[i]->text);
        if (at == into->n) {
            if (br_yaml_append(m->arena, into, from->keys[i], value) != 0)
                return br_errs_no_memory(m->errs);
            continue;
        }
        struct br_yaml *old = into->items[at];
        if (old->type == BR_YAML_MAP && value->type == BR_YAML_MAP) {
            int rc = merge_maps(m, old, value);
            if (rc)
                return rc;
        } else {
            into->keys[at] = from->keys[i];
            into->items[at] = value;
        }
    }
    return 0;
}

/* A map of one pair. */
static struct br_yaml *wrap(struct merge *m, const struct br_yaml *at, const char *key, size_t len,
                            struct br_yaml *value)
{
    struct br_yaml *map = br_yaml_new(m->arena, BR_YAML_MAP, at);
    struct br_yaml *name = br_yaml_scalar(m->arena, key, len, at);
    if (!map || !name || br_yaml_append(m->arena, map, name, value) != 0)
        return NULL;
    return map;
}

/* Makes {a: {b: value}} of "a::b" and merges it in. */
static int merge_path(struct merge *m, const struct br_yaml *at, const char *path,
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
            return br_errs_add(m->errs, at, NULL, "a name is missing in %s: write a%sb%sc",
                               br_text_show(path, shown), separator, separator);
    }
    if (p)
        return br_errs_add(m->errs, at, NULL, "more than %d names in %s", BR_YAML_DEPTH_MAX,
                           br_text_show(path, shown));
    struct br_yaml *tree = value;
    for (size_t i = n; i > 0; i--) {
        size_t len = (size_t)(starts_at[i] - starts_at[i - 1]) - skip;
        tree = wrap(m, at, starts_at[i - 1], len, tree);
        if (!tree)
            return br_errs_no_memory(m->errs);
    }
    return merge_maps(m, m->tree, tree);
}

static int merge_tree(struct merge *m, const struct br_yaml *tree)
{
    if (!m->tree->file)
        *m->tree = (struct br_yaml){
            .type = BR_YAML_MAP, .file = tree->file, .line = tree->line, .col = tree->col};
    if (tree->type == BR_YAML_NULL)
        return 0;
    if (tree->type != BR_YAML_MAP)
        return br_errs_add(m->errs, tree, NULL,
                           "a configuration is a map with receivers, exporters and service, not %s",
                           tree->type == BR_YAML_SEQ ? "a list" : "text");
    for (size_t i = 0; i < tree->n; i++) {
        const struct br_yaml *key = tree->keys[i];
        int rc = merge_path(m, key, key->text, "::", tree->items[i]);
        if (rc)
            return rc;
    }
    return 0;
}

static int merge_text(struct merge *m, const char *text, size_t len, const char *file)
{
    struct br_yaml *tree;
    int rc = br_yaml_parse(text, len, file, m->arena, &tree, m->errs);
    return rc ? rc : merge_tree(m, tree);
}

static int merge_file(struct merge *m, const char *path)
{
    const char *text, *why;
    size_t len;
    int rc = br_file_read(path, m->arena, &text, &len, &why);
    if (rc == BR_ENOMEM)
        return br_errs_no_memory(m->errs);
    struct br_yaml at = {.file = path};
    if (rc) {
        br_errs_add(m->errs, &at, NULL, "cannot be read: %s", why);
        return rc;
    }
    return merge_text(m, text, len, path);
}

static int merge_env(struct merge *m, const char *uri)
{
    const char *name = uri + strlen("env:");
    struct br_yaml at = {.file = uri};
    if (!br_env_name_valid(name, strlen(name)))
        return br_errs_add(m->errs, &at, NULL,
                           "write env:NAME with letters, digits and _, no digit first");
    const char *text = br_sources_getenv(m->sources, name);
    if (!text)
        br_errs_warn(m->errs, &at, NULL,
                     "the environment variable %s is not set and counts as empty", name);
    return text ? merge_text(m, text, strlen(text), uri) : 0;
}

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int merge_uri(struct merge *m, const char *uri)
{
    struct br_yaml at = {.file = uri};
    if (starts(uri, "file:"))
        return merge_file(m, uri + strlen("file:"));
    if (starts(uri, "env:"))
        return merge_env(m, uri);
    if (starts(uri, "yaml:"))
        return merge_text(m, uri + strlen("yaml:"), strlen(uri + strlen("yaml:")), "yaml");
    if (starts(uri, "http:") || starts(uri, "https:"))
        return br_errs_add(
            m->errs, &at, NULL,
            "a configuration comes from a file, env: or yaml:, not over the network");
    return merge_file(m, uri);
}

/* Columns count within the whole argument, as the user typed it. */
static void shift(struct br_yaml *node, int by)
{
    if (node->line == 1)
        node->col += by;
    for (size_t i = 0; i < node->n; i++) {
        if (node->keys)
            shift(node->keys[i], by);
        shift(node->items[i], by);
    }
}

static int merge_set(struct merge *m, const char *set)
{
    struct br_yaml at = {.file = "--set", .line = 1, .col = 1}, *value;
    char shown[BR_SHOWN_SIZE];
    const char *equals = strchr(set, '=');
    if (!equals)
        return br_errs_add(m->errs, &at, NULL, "%s has no \"=\": write --set a.b.c=value",
                           br_text_show(set, shown));
    size_t len = (size_t)(equals - set);
    while (len && isspace((unsigned char)set[len - 1]))
        len--;
    char *path = br_arena_strndup(m->arena, set, len);
    if (!path)
        return br_errs_no_memory(m->errs);
    size_t before = m->errs->n_errors;
    int rc = br_yaml_parse(equals + 1, strlen(equals + 1), "--set", m->arena, &value, m->errs);
    int by = (int)(equals + 1 - set);
    if (rc) {
        for (size_t i = before; i < m->errs->n_errors; i++)
            if (m->errs->errors[i].line == 1)
                m->errs->errors[i].col += by;
        return rc;
    }
    shift(value, by);
    return merge_path(m, &at, path, strstr(path, "::") ? "::" : ".", value);
}

static int no_sources(struct merge *m)
{
    return br_errs_add(m->errs, NULL, NULL, "no configuration is given: use --config file.yaml");
}

/* Errors of one source do not hide those of the next. */
static int merge_all(struct merge *m)
{
    const struct br_config_sources *s = m->sources;
    int worst = s->n_uris + s->n_sets ? 0 : no_sources(m);
    for (size_t i = 0; i < s->n_uris && worst != BR_ENOMEM; i++) {
        int rc = merge_uri(m, s->uris[i]);
        worst = rc ? rc : worst;
    }
    for (size_t i = 0; i < s->n_sets && worst != BR_ENOMEM; i++) {
        int rc = merge_set(m, s->sets[i]);
        worst = rc ? rc : worst;
    }
    return worst;
}

int br_config_merge(const struct br_config_sources *sources, struct br_arena *arena,
                    struct br_yaml **ret, struct br_errs *errs)
{
    struct merge m = {sources, arena, errs, br_yaml_new(arena, BR_YAML_MAP, NULL)};
    if (!m.tree)
        return br_errs_no_memory(errs);
    int rc = merge_all(&m);
    if (rc == 0 && !sources->as_written)
        rc = br_yaml_expand(&m.tree, sources, arena, errs);
    if (rc == 0)
        *ret = m.tree;
    return rc;
}
