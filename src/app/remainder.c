/* SPDX-License-Identifier: Apache-2.0 */
#include "app/migrate.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"

#define PORT_SHIFT 10000

static const char *const list_keys[] = {"receivers", "processors", "exporters"};

struct reduction {
    struct br_remainder *remainder;
    struct br_yaml *tree, *pipelines;
    const struct br_yaml *adapted;
    bool no_memory;
};

static char *remainder_id(struct reduction *reduction, const char *text)
{
    char *id = br_id_trim(reduction->remainder->arena, text);
    reduction->no_memory = reduction->no_memory || !id;
    return id;
}

static bool remainder_same_id(struct reduction *reduction, const char *text, const char *other)
{
    const char *id = remainder_id(reduction, text), *other_id = remainder_id(reduction, other);
    return id && other_id && strcmp(id, other_id) == 0;
}

static void remainder_cut(struct reduction *reduction, struct br_yaml *parent, size_t index,
                          const char *note)
{
    const struct br_yaml *at = parent->keys ? parent->keys[index] : parent->items[index];
    if (br_edits_add(reduction->remainder->edits, parent->keys ? BR_EDIT_CUT : BR_EDIT_DROP, at,
                     NULL, note))
        reduction->no_memory = true;
    br_yaml_remove(parent, index);
}

/* --- Pipelines ------------------------------------------------------------------------------- */

static size_t remainder_count(const struct br_yaml *list)
{
    if (!list || list->type == BR_YAML_NULL)
        return 0;
    return list->type == BR_YAML_SEQ ? list->count : 1;
}

static const char *remainder_item(const struct br_yaml *list, size_t index)
{
    const struct br_yaml *item = list->type == BR_YAML_SEQ ? list->items[index] : list;
    return item->type == BR_YAML_SCALAR ? item->text : "";
}

static bool remainder_names(struct reduction *reduction, const struct br_yaml *list, const char *id)
{
    for (size_t i = 0; i < remainder_count(list); i++)
        if (remainder_same_id(reduction, remainder_item(list, i), id))
            return true;
    return false;
}

/* Returns the value of the key `id` in a map, or NULL if the key is missing. Ids are trimmed before
 * the comparison. */
static const struct br_yaml *remainder_same_in(struct reduction *reduction,
                                               const struct br_yaml *map, const char *id)
{
    for (size_t i = 0; map && map->type == BR_YAML_MAP && i < map->count; i++)
        if (remainder_same_id(reduction, map->keys[i]->text, id))
            return map->items[i];
    return NULL;
}

static const struct br_yaml *remainder_in_braid(struct reduction *reduction, const char *section,
                                                const char *id)
{
    return remainder_same_in(reduction, br_yaml_get(reduction->adapted, section), id);
}

/* Returns `text` parsed as YAML. */
static struct br_yaml *remainder_value(struct reduction *reduction, const char *text)
{
    struct br_errs errs = {0};
    struct br_yaml *value = NULL;
    if (br_yaml_parse(text, strlen(text), "rest", reduction->remainder->arena, &value, &errs))
        reduction->no_memory = true;
    br_errs_release(&errs);
    return value;
}

/* Adds `key: text` to the map at `index` of `parent`. A null value at `index` becomes a map. */
static void remainder_put(struct reduction *reduction, struct br_yaml *parent, size_t index,
                          const char *key, const char *text)
{
    struct br_yaml *value = remainder_value(reduction, text), *old = parent->items[index];
    struct br_yaml *name = br_yaml_scalar(reduction->remainder->arena, key, strlen(key), old);
    struct br_yaml *map = br_yaml_new(reduction->remainder->arena, BR_YAML_MAP, old);
    if (!value || !name || !map || br_yaml_append(reduction->remainder->arena, map, name, value) ||
        br_edits_add(reduction->remainder->edits, BR_EDIT_PUT, parent->keys[index], key, text)) {
        reduction->no_memory = true;
        return;
    }
    for (size_t i = 0; i < old->count; i++)
        if (br_yaml_append(reduction->remainder->arena, map, old->keys[i], old->items[i]))
            reduction->no_memory = true;
    parent->items[index] = map;
}

static void remainder_set(struct reduction *reduction, struct br_yaml *parent, size_t index,
                          const char *text)
{
    struct br_yaml *value = remainder_value(reduction, text);
    if (!value ||
        br_edits_add(reduction->remainder->edits, BR_EDIT_SET, parent->keys[index], NULL, text))
        reduction->no_memory = true;
    else
        parent->items[index] = value;
}

/* --- Links to Braid -------------------------------------------------------------------------- */

#define BRAIDS_END "otlp/collector"
#define COLLECTORS_END "otlp/braid"

/* Returns the id of the link in a list of Braid's pipeline, or NULL. A link is an item whose id
 * begins with BRAIDS_END and is not in the original list. */
static const char *remainder_link(struct reduction *reduction, const struct br_yaml *ours,
                                  const struct br_yaml *original)
{
    for (size_t i = 0; i < remainder_count(ours); i++) {
        const char *id = remainder_item(ours, i);
        if (br_text_starts(id, BRAIDS_END) && !remainder_names(reduction, original, id))
            return id;
    }
    return NULL;
}

/* Returns the id of the Collector's end of a link. `id` is the id of Braid's end. */
static const char *remainder_other_end(struct reduction *reduction, const char *id)
{
    char *other =
        br_arena_printf(reduction->remainder->arena, COLLECTORS_END "%s", id + strlen(BRAIDS_END));
    reduction->no_memory = reduction->no_memory || !other;
    return other ? other : "";
}

/* Adds the Collector's end of a link to its section. */
static void remainder_add_link(struct reduction *reduction, const char *id, bool to_braid)
{
    const struct br_yaml *braids =
        remainder_in_braid(reduction, to_braid ? "receivers" : "exporters", id);
    const struct br_yaml *at =
        to_braid ? br_yaml_get(br_yaml_get(braids, "protocols"), "grpc") : braids;
    const struct br_yaml *endpoint = br_yaml_get(at, "endpoint");
    size_t section = br_yaml_index(reduction->tree, to_braid ? "exporters" : "receivers");
    const char *text = br_arena_printf(reduction->remainder->arena,
                                       to_braid ? "{endpoint: \"%s\", tls: {insecure: true}}"
                                                : "{protocols: {grpc: {endpoint: \"%s\"}}}",
                                       endpoint && endpoint->text ? endpoint->text : "");
    if (!text || section == reduction->tree->count)
        reduction->no_memory = true;
    else
        remainder_put(reduction, reduction->tree, section, remainder_other_end(reduction, id),
                      text);
}

/* Appends the items of `original` that Braid does not run. `ours` is Braid's list. With `front`,
 * appends all items up to and including the last one that Braid does not run. */
static void remainder_put_list(struct reduction *reduction, const struct br_yaml *original,
                               const struct br_yaml *ours, bool front, struct br_str *out)
{
    size_t last = remainder_count(original), n = 0;
    while (last && remainder_names(reduction, ours, remainder_item(original, last - 1)))
        last--;
    br_str_putc(out, '[');
    for (size_t i = 0; i < last; i++)
        if (front || !remainder_names(reduction, ours, remainder_item(original, i)))
            br_str_printf(out, "%s%s", n++ ? ", " : "", remainder_item(original, i));
    br_str_putc(out, ']');
}

static const char *remainder_text(struct reduction *reduction, struct br_str *text)
{
    const char *kept =
        text->failed ? NULL : br_arena_strndup(reduction->remainder->arena, text->data, text->len);
    reduction->no_memory = reduction->no_memory || !kept;
    br_str_release(text);
    return kept ? kept : "";
}

/* Replaces a list of a pipeline with the YAML in `text`. */
static void remainder_set_list(struct reduction *reduction, struct br_yaml *pipeline,
                               const char *key, const char *text)
{
    size_t at = br_yaml_index(pipeline, key);
    if (at < pipeline->count)
        remainder_set(reduction, pipeline, at, text);
}

/* Returns a YAML list with the items of a pipeline's list that Braid does not run. For processors,
 * the list also contains all items before the last one that Braid does not run. */
static const char *remainder_of_list(struct reduction *reduction, const struct br_yaml *pipeline,
                                     const struct br_yaml *ours, const char *key)
{
    struct br_str text = {0};
    remainder_put_list(reduction, br_yaml_get(pipeline, key), br_yaml_get(ours, key),
                       strcmp(key, "processors") == 0, &text);
    return remainder_text(reduction, &text);
}

/* Returns a YAML list that contains only the Collector's end of a link. */
static const char *remainder_link_list(struct reduction *reduction, const char *id)
{
    struct br_str text = {0};
    br_str_printf(&text, "[%s]", remainder_other_end(reduction, id));
    return remainder_text(reduction, &text);
}

/* Adds a second pipeline for the exporters that receive data from Braid. */
static void remainder_add_behind(struct reduction *reduction, const char *id, const char *from,
                                 const char *to)
{
    struct br_yaml *service = br_yaml_get(reduction->tree, "service");
    const char *name =
        br_arena_printf(reduction->remainder->arena, "%s%sbehind", id, strchr(id, '/') ? "_" : "/");
    while (name && br_yaml_get(reduction->pipelines, name))
        name = br_arena_printf(reduction->remainder->arena, "%s_", name);
    const char *text =
        br_arena_printf(reduction->remainder->arena, "{receivers: %s, exporters: %s}", from, to);
    if (!name || !text) {
        reduction->no_memory = true;
        return;
    }
    remainder_put(reduction, service, br_yaml_index(service, "pipelines"), name, text);
    reduction->pipelines = br_yaml_get(service, "pipelines");
}

/* Splits one pipeline. The part before Braid ends with a link to Braid, and the part after Braid
 * starts with a link from Braid. */
static void remainder_divide(struct reduction *reduction, const char *id, struct br_yaml *pipeline,
                             const struct br_yaml *ours)
{
    const char *front = remainder_link(reduction, br_yaml_get(ours, "receivers"),
                                       br_yaml_get(pipeline, "receivers"));
    const char *behind = remainder_link(reduction, br_yaml_get(ours, "exporters"),
                                        br_yaml_get(pipeline, "exporters"));
    const char *from = remainder_of_list(reduction, pipeline, ours, "receivers"),
               *between = remainder_of_list(reduction, pipeline, ours, "processors"),
               *to = remainder_of_list(reduction, pipeline, ours, "exporters");
    if (behind) {
        remainder_add_link(reduction, behind, false);
        br_str_printf(reduction->remainder->links, "%s: Braid sends data to the receiver %s\n", id,
                      remainder_other_end(reduction, behind));
    }
    if (behind && front)
        remainder_add_behind(reduction, id, remainder_link_list(reduction, behind), to);
    if (front) {
        remainder_add_link(reduction, front, true);
        to = remainder_link_list(reduction, front);
        br_str_printf(reduction->remainder->links, "%s: the exporter %s sends data to Braid\n", id,
                      remainder_other_end(reduction, front));
    } else {
        from = remainder_link_list(reduction, behind);
        between = "[]";
    }
    remainder_set_list(reduction, pipeline, "receivers", from);
    remainder_set_list(reduction, pipeline, "processors", between);
    remainder_set_list(reduction, pipeline, "exporters", to);
}

static bool remainder_is_divided(struct reduction *reduction, const struct br_yaml *pipeline,
                                 const struct br_yaml *ours)
{
    return remainder_link(reduction, br_yaml_get(ours, "receivers"),
                          br_yaml_get(pipeline, "receivers")) ||
           remainder_link(reduction, br_yaml_get(ours, "exporters"),
                          br_yaml_get(pipeline, "exporters"));
}

static void remainder_pipelines(struct reduction *reduction)
{
    const struct br_yaml *map =
        br_yaml_get(br_yaml_get(reduction->adapted, "service"), "pipelines");
    struct br_yaml *all = reduction->pipelines;
    for (size_t i = 0; i < all->count && !reduction->no_memory;) {
        const char *id = all->keys[i]->text;
        const struct br_yaml *ours = remainder_same_in(reduction, map, id);
        if (!ours || remainder_is_divided(reduction, all->items[i], ours)) {
            i++;
            continue;
        }
        const char *note = br_arena_printf(reduction->remainder->arena, "%s runs in Braid", id);
        reduction->no_memory = reduction->no_memory || !note;
        remainder_cut(reduction, all, i, note);
    }
    for (size_t i = 0; i < all->count && !reduction->no_memory; i++) {
        const struct br_yaml *ours = remainder_same_in(reduction, map, all->keys[i]->text);
        if (ours)
            remainder_divide(reduction, all->keys[i]->text, all->items[i], ours);
    }
}

static bool remainder_is_used(struct reduction *reduction, const char *id, const char *section)
{
    bool connector = strcmp(section, "connectors") == 0;
    for (size_t i = 0; i < reduction->pipelines->count; i++)
        for (size_t k = 0; k < BR_COUNT(list_keys); k++)
            if ((connector || strcmp(section, list_keys[k]) == 0) &&
                remainder_names(reduction,
                                br_yaml_get(reduction->pipelines->items[i], list_keys[k]), id))
                return true;
    return false;
}

static void remainder_sections(struct reduction *reduction)
{
    static const char *const sections[] = {"receivers", "processors", "exporters", "connectors"};
    for (size_t k = 0; k < BR_COUNT(sections); k++) {
        struct br_yaml *section = br_yaml_get(reduction->tree, sections[k]);
        for (size_t i = 0; section && section->type == BR_YAML_MAP && i < section->count &&
                           !reduction->no_memory;) {
            const char *id = section->keys[i]->text;
            if (remainder_is_used(reduction, id, sections[k])) {
                i++;
                continue;
            }
            const char *note =
                br_arena_printf(reduction->remainder->arena, "%s is not used here", id);
            reduction->no_memory = reduction->no_memory || !note;
            remainder_cut(reduction, section, i, note);
        }
    }
}

/* --- Ports ----------------------------------------------------------------------------------- */

/* Returns `endpoint` with another port: "host:port" in quotes, or a bare port. Returns NULL if
 * `endpoint` does not end in a port. */
static char *remainder_moved(struct reduction *reduction, const char *endpoint)
{
    const char *colon = strrchr(endpoint, ':'), *digits = colon ? colon + 1 : endpoint;
    uint64_t port;
    if (!br_decimal_parse(digits, strlen(digits), 65535, &port) || port == 0)
        return NULL;
    port = port + PORT_SHIFT <= 65535 ? port + PORT_SHIFT : port - PORT_SHIFT;
    char *moved = br_arena_printf(reduction->remainder->arena, colon ? "\"%.*s%u\"" : "%.*s%u",
                                  (int)(digits - endpoint), endpoint, (unsigned)port);
    reduction->no_memory = reduction->no_memory || !moved;
    return moved;
}

static void remainder_note_port(struct reduction *reduction, const char *path, const char *value)
{
    br_str_printf(reduction->remainder->ports, "%s: %s\n", path, value);
}

/* Changes the port in the setting `key` of the map at `index`. If the key is missing, adds it with
 * the value `by_default` and another port. */
static void remainder_move(struct reduction *reduction, struct br_yaml *parent, size_t index,
                           const char *key, const char *by_default, const char *path)
{
    struct br_yaml *map = parent->items[index];
    size_t at = map->type == BR_YAML_MAP ? br_yaml_index(map, key) : 0;
    bool set =
        map->type == BR_YAML_MAP && at < map->count && map->items[at]->type == BR_YAML_SCALAR;
    char joined[192];
    br_path_join(joined, path, key);
    if (map->type != BR_YAML_MAP && map->type != BR_YAML_NULL)
        return;
    const char *moved = remainder_moved(reduction, set ? map->items[at]->text : by_default);
    if (!moved && set && strchr(map->items[at]->text, '$')) {
        br_str_printf(reduction->remainder->clashes, "%s: %s\n", joined, map->items[at]->text);
        br_errs_warn(reduction->remainder->errs, map->keys[at], joined,
                     "both Braid and the Collector would listen on %s; give the variable another "
                     "value for one of them",
                     map->items[at]->text);
    }
    if (!moved || (map->type == BR_YAML_MAP && at < map->count && !set))
        return;
    if (set)
        remainder_set(reduction, map, at, moved);
    else
        remainder_put(reduction, parent, index, key, moved);
    remainder_note_port(reduction, joined, moved);
}

/* Appends a line for each scrape target in `node` that has the port of `endpoint`. The Collector's
 * own metrics had this port in the original configuration. */
static void remainder_note_targets(struct reduction *reduction, const struct br_yaml *node,
                                   const char *receiver, const char *endpoint, bool in_targets)
{
    const char *colon = strrchr(endpoint, ':'), *port = colon ? colon + 1 : endpoint;
    if (node->type == BR_YAML_SCALAR) {
        const char *end = strrchr(node->text, ':');
        if (in_targets && end && strcmp(end + 1, port) == 0)
            br_str_printf(reduction->remainder->targets, "receivers::%s: %s\n", receiver,
                          node->text);
        return;
    }
    for (size_t i = 0; i < node->count; i++) {
        bool targets = node->keys ? strcmp(node->keys[i]->text, "targets") == 0 : in_targets;
        remainder_note_targets(reduction, node->items[i], receiver, endpoint, targets);
    }
}

static void remainder_note_scrapes(struct reduction *reduction, const char *endpoint)
{
    const struct br_yaml *map = br_yaml_get(reduction->tree, "receivers");
    for (size_t i = 0; map && map->type == BR_YAML_MAP && i < map->count; i++) {
        const char *id = map->keys[i]->text;
        size_t type = strcspn(id, "/ ");
        if (br_bytes_are(id, type, "prometheus"))
            remainder_note_targets(reduction, map->items[i], id, endpoint, false);
    }
}

static void remainder_move_receiver(struct reduction *reduction, struct br_yaml *receivers,
                                    size_t index)
{
    static const char *const protocols[][2] = {{"grpc", "localhost:4317"},
                                               {"http", "localhost:4318"}};
    const char *id = receivers->keys[index]->text;
    struct br_yaml *map = br_yaml_get(receivers->items[index], "protocols");
    const struct br_yaml *braids =
        br_yaml_get(remainder_in_braid(reduction, "receivers", id), "protocols");
    size_t type = strcspn(id, "/ ");
    if (!map || map->type != BR_YAML_MAP || !braids || !br_bytes_are(id, type, "otlp"))
        return;
    for (size_t k = 0; k < BR_COUNT(protocols); k++) {
        size_t at = br_yaml_index(map, protocols[k][0]);
        char path[192], whole[192];
        (void)snprintf(path, sizeof path, "receivers::%.100s::protocols", id);
        if (at < map->count && br_yaml_get(braids, protocols[k][0])) {
            size_t before = reduction->remainder->ports->len;
            remainder_move(reduction, map, at, "endpoint", protocols[k][1],
                           br_path_join(whole, path, protocols[k][0]));
            if (reduction->remainder->ports->len > before)
                reduction->remainder->client_ports = true;
        }
    }
}

static void remainder_move_health(struct reduction *reduction)
{
    struct br_yaml *map = br_yaml_get(reduction->tree, "extensions");
    const struct br_yaml *named =
        br_yaml_get(br_yaml_get(reduction->tree, "service"), "extensions");
    for (size_t i = 0; map && map->type == BR_YAML_MAP && i < map->count; i++) {
        const char *id = map->keys[i]->text;
        char path[192];
        if (br_bytes_are(id, strcspn(id, "/ "), "health_check") &&
            remainder_names(reduction, named, id) &&
            remainder_in_braid(reduction, "extensions", id))
            remainder_move(reduction, map, i, "endpoint", "localhost:13133",
                           br_path_join(path, "extensions", id));
    }
}

static void remainder_move_reader(struct reduction *reduction, struct br_yaml *reader)
{
    struct br_yaml *exporter = br_yaml_get(br_yaml_get(reader, "pull"), "exporter");
    size_t at =
        exporter && exporter->type == BR_YAML_MAP ? br_yaml_index(exporter, "prometheus") : 0;
    if (exporter && at < exporter->count) {
        const struct br_yaml *port = br_yaml_get(exporter->items[at], "port");
        remainder_note_scrapes(reduction,
                               port && port->type == BR_YAML_SCALAR ? port->text : "8888");
        remainder_move(reduction, exporter, at, "port", "8888",
                       "service::telemetry::metrics::readers::pull::exporter::prometheus");
    }
}

static void remainder_move_telemetry(struct reduction *reduction)
{
    static const char reader[] =
        "[{pull: {exporter: {prometheus: {host: localhost, port: 18888}}}}]";
    size_t at = br_yaml_index(reduction->tree, "service");
    struct br_yaml *service = reduction->tree->items[at],
                   *telemetry = br_yaml_get(service, "telemetry");
    struct br_yaml *metrics = br_yaml_get(telemetry, "metrics");
    const struct br_yaml *level = br_yaml_get(metrics, "level");
    struct br_yaml *readers = br_yaml_get(metrics, "readers");
    if (level && level->type == BR_YAML_SCALAR && strcmp(level->text, "none") == 0)
        return;
    if (readers && readers->type == BR_YAML_SEQ) {
        for (size_t i = 0; i < readers->count; i++)
            remainder_move_reader(reduction, readers->items[i]);
        return;
    }
    const struct br_yaml *address = br_yaml_get(metrics, "address");
    remainder_note_scrapes(reduction,
                           address && address->type == BR_YAML_SCALAR ? address->text : "8888");
    if (address) {
        remainder_move(reduction, telemetry, br_yaml_index(telemetry, "metrics"), "address",
                       "localhost:8888", "service::telemetry::metrics");
        return;
    }
    remainder_note_port(reduction, "service::telemetry::metrics", "localhost:18888");
    const char *whole = br_arena_printf(reduction->remainder->arena, "{readers: %s}", reader);
    const char *outer =
        br_arena_printf(reduction->remainder->arena, "{metrics: {readers: %s}}", reader);
    if (!whole || !outer)
        reduction->no_memory = true;
    else if (metrics && telemetry->type == BR_YAML_MAP)
        remainder_put(reduction, telemetry, br_yaml_index(telemetry, "metrics"), "readers", reader);
    else if (telemetry)
        remainder_put(reduction, service, br_yaml_index(service, "telemetry"), "metrics", whole);
    else
        remainder_put(reduction, reduction->tree, at, "telemetry", outer);
}

static void remainder_ports(struct reduction *reduction)
{
    struct br_yaml *receivers = br_yaml_get(reduction->tree, "receivers");
    for (size_t i = 0; receivers && receivers->type == BR_YAML_MAP && i < receivers->count; i++)
        remainder_move_receiver(reduction, receivers, i);
    remainder_move_health(reduction);
    remainder_move_telemetry(reduction);
}

int br_config_remainder(struct br_remainder *remainder, struct br_yaml *tree,
                        const struct br_yaml *adapted)
{
    struct reduction reduction = {.remainder = remainder, .tree = tree, .adapted = adapted};
    reduction.pipelines = br_yaml_get(br_yaml_get(tree, "service"), "pipelines");
    remainder->empty = true;
    if (!reduction.pipelines || reduction.pipelines->type != BR_YAML_MAP)
        return 0;
    remainder_pipelines(&reduction);
    remainder->empty = reduction.pipelines->count == 0;
    if (!remainder->empty && !reduction.no_memory) {
        remainder_sections(&reduction);
        remainder_ports(&reduction);
    }
    bool failed = remainder->ports->failed || remainder->links->failed ||
                  remainder->clashes->failed || remainder->targets->failed;
    return reduction.no_memory || failed ? BR_ENOMEM : 0;
}
