/* SPDX-License-Identifier: Apache-2.0 */
#include "app/migrate.h"

#include <string.h>

#include "app/adapt.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "config/parts.h"

struct migrator {
    const char *path, *text;
    size_t len;
    const struct br_config_sources *sources;
    const struct br_component *const *registry;
    struct br_arena *arena;
    struct br_errs *errs;
    struct br_yaml *plain; /* tree of the original file, without expansion of ${...} */
    bool split;
};

/* Reads the tree of a source. With `as_written`, ${...} is not expanded. Adds errors to `errs`. */
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

/* Returns true if the trees are equal. Null, {} and [] are equal to each other. */
static bool migrate_is_same(const struct br_yaml *tree, const struct br_yaml *other)
{
    if (migrate_is_empty(tree) || migrate_is_empty(other))
        return migrate_is_empty(tree) && migrate_is_empty(other);
    if (tree->type != other->type || tree->count != other->count)
        return false;
    if (tree->type == BR_YAML_SCALAR)
        return strcmp(tree->text, other->text) == 0;
    for (size_t i = 0; i < tree->count; i++) {
        const struct br_yaml *item =
            tree->type == BR_YAML_SEQ ? other->items[i] : br_yaml_get(other, tree->keys[i]->text);
        if (!item || !migrate_is_same(tree->items[i], item))
            return false;
    }
    return true;
}

/* Returns true if parsing `text` as YAML results in a tree equal to `tree`. */
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

/* Appends the original text with the edits. If the text cannot be edited, appends the tree as YAML
 * without comments. */
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
            rc = br_errs_add(migrator->errs, &at, NULL,
                             "cannot be split: a value from ${...} contains parts that stay and "
                             "parts that are removed");
        else if (rc == 0)
            br_errs_warn(migrator->errs, &at, NULL,
                         "comments are lost%s, because an anchor was removed and its alias stays",
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

/* Appends the lines of `text` as YAML comments. */
static void migrate_comment(struct br_str *out, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        br_str_printf(out, "#   %.*s\n", (int)len, text);
        text += len + (text[len] == '\n');
    }
}

/* --- The header ------------------------------------------------------------------------------ */

static const char *const migrate_sections[] = {"receivers", "processors", "exporters", "connectors",
                                               "extensions"};

static const struct br_yaml *migrate_section(const struct br_yaml *tree, size_t index)
{
    const struct br_yaml *map = index < BR_COUNT(migrate_sections)
                                    ? br_yaml_get(tree, migrate_sections[index])
                                    : br_yaml_get(br_yaml_get(tree, "service"), "pipelines");
    return map && map->type == BR_YAML_MAP ? map : NULL;
}

/* Appends the names that were carried over, or the names that were not, grouped by section.
 * Example: "receivers otlp, jaeger; pipelines traces". */
static void migrate_names(const struct migrator *migrator, const struct br_yaml *adapted,
                          bool carried, struct br_str *out)
{
    for (size_t i = 0; i <= BR_COUNT(migrate_sections); i++) {
        const struct br_yaml *before = migrate_section(migrator->plain, i),
                             *after = migrate_section(adapted, i);
        size_t n = 0;
        for (size_t k = 0; before && k < before->count; k++) {
            const char *id = before->keys[k]->text;
            if ((br_yaml_get(after, id) != NULL) != carried)
                continue;
            if (!n)
                br_str_printf(out, "%s%s ", out->len ? "; " : "",
                              i < BR_COUNT(migrate_sections) ? migrate_sections[i] : "pipelines");
            br_str_printf(out, "%s%s", n++ ? ", " : "", id);
        }
    }
}

/* Appends a text as comment lines of at most 100 columns, broken at spaces. */
static void migrate_wrap(struct br_str *out, const char *text)
{
    enum { WIDTH = 96 };
    while (*text) {
        size_t len = strlen(text), cut = len;
        if (len > WIDTH) {
            cut = WIDTH;
            while (cut && text[cut] != ' ')
                cut--;
            cut = cut ? cut : strcspn(text, " ");
        }
        br_str_printf(out, "# %.*s\n", (int)cut, text);
        text += cut + (text[cut] == ' ');
    }
}

static void migrate_put_names(const struct migrator *migrator, const struct br_yaml *adapted,
                              bool carried, const char *label, struct br_str *out)
{
    struct br_str names = {0}, line = {0};
    migrate_names(migrator, adapted, carried, &names);
    br_str_printf(&line, "%s: %s", label, names.len ? names.data : "nothing");
    migrate_wrap(out, line.data ? line.data : "");
    out->failed = out->failed || names.failed || line.failed;
    br_str_release(&names);
    br_str_release(&line);
}

static bool migrate_carries(const struct br_yaml *pipelines, const char *signal)
{
    for (size_t i = 0; pipelines && i < pipelines->count; i++)
        if (br_text_starts(pipelines->keys[i]->text, signal))
            return true;
    return false;
}

/* Returns the first otlp receiver of the pipeline that is not a link, or NULL. */
static const char *migrate_receiver(const struct br_yaml *pipeline)
{
    const struct br_yaml *list = br_yaml_get(pipeline, "receivers");
    for (size_t i = 0; list && list->type == BR_YAML_SEQ && i < list->count; i++) {
        const char *id = list->items[i]->text;
        if (id && br_bytes_are(id, strcspn(id, "/"), "otlp") &&
            !br_text_starts(id, "otlp/collector"))
            return id;
    }
    return NULL;
}

/* Appends the processors of a pipeline. Inserts `join` before the first batch processor, or at the
 * end if there is none. */
static void migrate_joined(const struct br_yaml *pipeline, struct br_str *out)
{
    const struct br_yaml *list = br_yaml_get(pipeline, "processors");
    size_t n = list && list->type == BR_YAML_SEQ ? list->count : 0, at = n;
    for (size_t i = n; i-- > 0;)
        if (list->items[i]->text && br_text_starts(list->items[i]->text, "batch"))
            at = i;
    for (size_t i = 0; i <= n; i++) {
        if (i == at)
            br_str_printf(out, "%sjoin", out->len ? ", " : "");
        if (i < n && list->items[i]->text)
            br_str_printf(out, "%s%s", out->len ? ", " : "", list->items[i]->text);
    }
}

/* Appends comments that contain a profiles pipeline and a `join` of both signals. Without the
 * leading "# " the lines are a valid configuration. */
static void migrate_put_profiles(const struct br_yaml *adapted, struct br_str *out)
{
    const struct br_yaml *pipelines = migrate_section(adapted, BR_COUNT(migrate_sections));
    if (!migrate_carries(pipelines, "traces") || migrate_carries(pipelines, "profiles"))
        return;
    const struct br_yaml *pipeline = pipelines->items[0];
    const char *receiver = migrate_receiver(pipeline);
    struct br_str processors = {0};
    migrate_joined(pipeline, &processors);
    br_str_puts(out, "# To receive profiles too and join each sample to its span, add these lines, "
                     "or pass them as a\n# second --config:\n");
    if (!receiver)
        br_str_puts(out, "#   receivers: {pyroscope: {}}\n");
    br_str_puts(out, "#   processors: {join: {}}\n"
                     "#   exporters: {pyroscope: {endpoint: \"http://pyroscope:4040\"}}\n"
                     "#   service:\n"
                     "#     pipelines:\n");
    br_str_printf(out, "#       %s: {processors: [%s]}\n", pipelines->keys[0]->text,
                  processors.data ? processors.data : "");
    br_str_printf(out,
                  "#       profiles: {receivers: [%s], processors: [join], exporters: "
                  "[pyroscope]}\n",
                  receiver ? receiver : "pyroscope");
    out->failed = out->failed || processors.failed;
    br_str_release(&processors);
}

static void migrate_head(const struct migrator *migrator, const struct br_yaml *adapted,
                         struct br_str *out)
{
    if (migrate_has_bom(migrator))
        return;
    br_str_printf(out, "# Braid's part of %s. Comments replace the parts that are left out.\n",
                  migrator->path);
    migrate_put_names(migrator, adapted, true, "Carried over", out);
    migrate_put_names(migrator, adapted, false, "Not carried over", out);
    migrate_put_profiles(adapted, out);
}

static int migrate_config(const struct migrator *migrator, struct br_yaml *tree, struct br_str *out)
{
    struct br_edits edits = {0};
    struct br_adapt adapt = {.registry = migrator->registry,
                             .arena = migrator->arena,
                             .errs = migrator->errs,
                             .edits = &edits,
                             .accept_loss = migrator->sources->accept_loss && !migrator->split,
                             .elsewhere = true,
                             .split = migrator->split,
                             .text = migrator->text};
    int rc = br_config_adapt(&adapt, tree);
    if (rc == 0 && edits.count)
        migrate_head(migrator, tree, out);
    if (rc == 0)
        rc = migrate_write(migrator, &edits, false, tree, out);
    br_edits_release(&edits);
    return rc;
}

static void migrate_rest_head(const struct migrator *migrator, const struct br_remainder *remainder,
                              struct br_str *out)
{
    if (migrate_has_bom(migrator))
        return;
    br_str_printf(out, "# The part of %s that stays in a Collector; Braid runs the rest.\n",
                  migrator->path);
    if (remainder->links->len) {
        br_str_puts(out,
                    "# Braid and this Collector run on one host and are linked over loopback:\n");
        migrate_comment(out, remainder->links->data);
    }
    if (remainder->ports->len) {
        br_str_puts(out,
                    "# Braid uses these ports of the original, so this Collector uses others:\n");
        migrate_comment(out, remainder->ports->data);
    }
    if (remainder->client_ports)
        br_str_puts(out, "# Clients that send metrics or logs need the new ports "
                         "(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT,\n# ..._LOGS_ENDPOINT).\n");
    if (remainder->targets->len) {
        br_str_puts(out,
                    "# The port of this Collector's own metrics has changed. Change these scrape "
                    "targets if they refer\n# to this Collector:\n");
        migrate_comment(out, remainder->targets->data);
    }
    if (remainder->clashes->len) {
        br_str_puts(out, "# Braid and this Collector would listen on the same ports; give these "
                         "variables\n# other values for one of them:\n");
        migrate_comment(out, remainder->clashes->data);
    }
}

static int migrate_rest(const struct migrator *migrator, const struct br_yaml *adapted,
                        struct br_str *out)
{
    struct br_edits edits = {0};
    struct br_str ports = {0}, clashes = {0}, targets = {0}, links = {0};
    struct br_remainder remainder = {.arena = migrator->arena,
                                     .errs = migrator->errs,
                                     .edits = &edits,
                                     .ports = &ports,
                                     .clashes = &clashes,
                                     .targets = &targets,
                                     .links = &links};
    struct br_yaml *tree = NULL;
    int rc = migrate_read(migrator, migrator->path, true, &tree, migrator->errs);
    if (rc == 0 && br_config_remainder(&remainder, tree, adapted))
        rc = br_errs_no_memory(migrator->errs);
    if (rc == 0 && !remainder.empty) {
        migrate_rest_head(migrator, &remainder, out);
        rc = migrate_write(migrator, &edits, true, tree, out);
    }
    br_str_release(&ports);
    br_str_release(&clashes);
    br_str_release(&targets);
    br_str_release(&links);
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
    return rc || !migrator->split ? rc : migrate_rest(migrator, tree, &ret->rest);
}

int br_config_migrate(const char *path, const struct br_config_sources *sources,
                      const struct br_component *const *registry, bool split,
                      struct br_migration *ret, struct br_errs *errs)
{
    struct br_arena arena;
    br_arena_init(&arena, BR_CONFIG_ARENA_MAX);
    struct migrator migrator = {.path = path,
                                .sources = sources,
                                .registry = registry,
                                .arena = &arena,
                                .errs = errs,
                                .split = split};
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
