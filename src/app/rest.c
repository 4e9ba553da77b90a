/* SPDX-License-Identifier: Apache-2.0 */
#include "app/rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

#define PORT_SHIFT 10000

static const char *const list_keys[] = {"receivers", "processors", "exporters"};

struct stayer {
    struct br_rest *rest;
    struct br_yaml *tree, *pipelines;
    const struct br_yaml *fitted;
    bool no_memory;
};

static char *rest_id(struct stayer *stayer, const char *text)
{
    char *id = br_id_trim(stayer->rest->arena, text);
    stayer->no_memory = stayer->no_memory || !id;
    return id;
}

static bool rest_same_id(struct stayer *stayer, const char *left, const char *right)
{
    const char *x = rest_id(stayer, left), *y = rest_id(stayer, right);
    return x && y && strcmp(x, y) == 0;
}

static void rest_cut(struct stayer *stayer, struct br_yaml *parent, size_t index, const char *note)
{
    const struct br_yaml *at = parent->keys ? parent->keys[index] : parent->items[index];
    if (br_edits_add(stayer->rest->edits, parent->keys ? BR_EDIT_CUT : BR_EDIT_DROP, at, NULL,
                     note))
        stayer->no_memory = true;
    br_yaml_remove(parent, index);
}

/* --- Which pipelines ------------------------------------------------------------------------- */

static size_t rest_count(const struct br_yaml *list)
{
    return !list || list->type == BR_YAML_NULL ? 0 : list->type == BR_YAML_SEQ ? list->count : 1;
}

static const char *rest_item(const struct br_yaml *list, size_t index)
{
    const struct br_yaml *item = list->type == BR_YAML_SEQ ? list->items[index] : list;
    return item->type == BR_YAML_SCALAR ? item->text : "";
}

static bool rest_names(struct stayer *stayer, const struct br_yaml *list, const char *id)
{
    for (size_t i = 0; i < rest_count(list); i++)
        if (rest_same_id(stayer, rest_item(list, i), id))
            return true;
    return false;
}

/* Returns the same entry of a map in the configuration that Braid runs; NULL when it has none. */
static const struct br_yaml *rest_same_in(struct stayer *stayer, const struct br_yaml *map,
                                          const char *id)
{
    for (size_t i = 0; map && map->type == BR_YAML_MAP && i < map->count; i++)
        if (rest_same_id(stayer, map->keys[i]->text, id))
            return map->items[i];
    return NULL;
}

static const struct br_yaml *rest_twin(struct stayer *stayer, const char *section, const char *id)
{
    return rest_same_in(stayer, br_yaml_get(stayer->fitted, section), id);
}

/* The value of `text` as a tree. */
static struct br_yaml *rest_value(struct stayer *stayer, const char *text)
{
    struct br_errs errs = {0};
    struct br_yaml *value = NULL;
    if (br_yaml_parse(text, strlen(text), "rest", stayer->rest->arena, &value, &errs))
        stayer->no_memory = true;
    br_errs_release(&errs);
    return value;
}

/* Writes `key: text` into the map at `index` of `parent`, which may be nothing yet. */
static void rest_put(struct stayer *stayer, struct br_yaml *parent, size_t index, const char *key,
                     const char *text)
{
    struct br_yaml *value = rest_value(stayer, text), *old = parent->items[index];
    struct br_yaml *name = br_yaml_scalar(stayer->rest->arena, key, strlen(key), old);
    struct br_yaml *map = br_yaml_new(stayer->rest->arena, BR_YAML_MAP, old);
    if (!value || !name || !map || br_yaml_append(stayer->rest->arena, map, name, value) ||
        br_edits_add(stayer->rest->edits, BR_EDIT_PUT, parent->keys[index], key, text)) {
        stayer->no_memory = true;
        return;
    }
    for (size_t i = 0; i < old->count; i++)
        if (br_yaml_append(stayer->rest->arena, map, old->keys[i], old->items[i]))
            stayer->no_memory = true;
    parent->items[index] = map;
}

static void rest_set(struct stayer *stayer, struct br_yaml *parent, size_t index, const char *text)
{
    struct br_yaml *value = rest_value(stayer, text);
    if (!value || br_edits_add(stayer->rest->edits, BR_EDIT_SET, parent->keys[index], NULL, text))
        stayer->no_memory = true;
    else
        parent->items[index] = value;
}

/* --- Links to Braid -------------------------------------------------------------------------- */

#define BRAIDS_END "otlp/collector"
#define COLLECTORS_END "otlp/braid"

/* Returns the id of a link in the list that Braid runs: the one that the file does not have. */
static const char *rest_link(struct stayer *stayer, const struct br_yaml *ours,
                             const struct br_yaml *original)
{
    for (size_t i = 0; i < rest_count(ours); i++) {
        const char *id = rest_item(ours, i);
        if (br_text_starts(id, BRAIDS_END) && !rest_names(stayer, original, id))
            return id;
    }
    return NULL;
}

/* Returns the id of the other end of a link. */
static const char *rest_other_end(struct stayer *stayer, const char *id)
{
    char *other =
        br_arena_printf(stayer->rest->arena, COLLECTORS_END "%s", id + strlen(BRAIDS_END));
    stayer->no_memory = stayer->no_memory || !other;
    return other ? other : "";
}

/* Adds this file's end of a link to its section. */
static void rest_add_link(struct stayer *stayer, const char *id, bool to_braid)
{
    const struct br_yaml *twin = rest_twin(stayer, to_braid ? "receivers" : "exporters", id);
    const struct br_yaml *at =
        to_braid ? br_yaml_get(br_yaml_get(twin, "protocols"), "grpc") : twin;
    const struct br_yaml *endpoint = br_yaml_get(at, "endpoint");
    size_t section = br_yaml_index(stayer->tree, to_braid ? "exporters" : "receivers");
    const char *text = br_arena_printf(stayer->rest->arena,
                                       to_braid ? "{endpoint: \"%s\", tls: {insecure: true}}"
                                                : "{protocols: {grpc: {endpoint: \"%s\"}}}",
                                       endpoint && endpoint->text ? endpoint->text : "");
    if (!text || section == stayer->tree->count)
        stayer->no_memory = true;
    else
        rest_put(stayer, stayer->tree, section, rest_other_end(stayer, id), text);
}

/* Appends to `out` the items of a list that Braid does not have; with `front`, all up to the last
 * one of them. */
static void rest_list_rest(struct stayer *stayer, const struct br_yaml *original,
                           const struct br_yaml *ours, bool front, struct br_str *out)
{
    size_t last = rest_count(original), n = 0;
    while (last && rest_names(stayer, ours, rest_item(original, last - 1)))
        last--;
    br_str_putc(out, '[');
    for (size_t i = 0; i < last; i++)
        if (front || !rest_names(stayer, ours, rest_item(original, i)))
            br_str_printf(out, "%s%s", n++ ? ", " : "", rest_item(original, i));
    br_str_putc(out, ']');
}

static const char *rest_text(struct stayer *stayer, struct br_str *text)
{
    const char *kept =
        text->failed ? NULL : br_arena_strndup(stayer->rest->arena, text->data, text->len);
    stayer->no_memory = stayer->no_memory || !kept;
    br_str_release(text);
    return kept ? kept : "";
}

/* Replaces a list of a pipeline by `text`. */
static void rest_set_list(struct stayer *stayer, struct br_yaml *pipeline, const char *key,
                          const char *text)
{
    size_t at = br_yaml_index(pipeline, key);
    if (at < pipeline->count)
        rest_set(stayer, pipeline, at, text);
}

/* Returns the part of a pipeline's list that Braid does not have, as text. */
static const char *rest_left(struct stayer *stayer, const struct br_yaml *pipeline,
                             const struct br_yaml *ours, const char *key)
{
    struct br_str text = {0};
    rest_list_rest(stayer, br_yaml_get(pipeline, key), br_yaml_get(ours, key),
                   strcmp(key, "processors") == 0, &text);
    return rest_text(stayer, &text);
}

/* Returns a list of the one link. */
static const char *rest_link_list(struct stayer *stayer, const char *id)
{
    struct br_str text = {0};
    br_str_printf(&text, "[%s]", rest_other_end(stayer, id));
    return rest_text(stayer, &text);
}

/* Puts a pipeline beside `id`, for the exporters that are behind Braid. */
static void rest_add_behind(struct stayer *stayer, const char *id, const char *from, const char *to)
{
    struct br_yaml *service = br_yaml_get(stayer->tree, "service");
    const char *name =
        br_arena_printf(stayer->rest->arena, "%s%sbehind", id, strchr(id, '/') ? "_" : "/");
    while (name && br_yaml_get(stayer->pipelines, name))
        name = br_arena_printf(stayer->rest->arena, "%s_", name);
    const char *text =
        br_arena_printf(stayer->rest->arena, "{receivers: %s, exporters: %s}", from, to);
    if (!name || !text) {
        stayer->no_memory = true;
        return;
    }
    rest_put(stayer, service, br_yaml_index(service, "pipelines"), name, text);
    stayer->pipelines = br_yaml_get(service, "pipelines");
}

/* Divides one pipeline: the part in front of Braid ends in a link, the part behind it starts with
 * one. */
static void rest_divide(struct stayer *stayer, const char *id, struct br_yaml *pipeline,
                        const struct br_yaml *ours)
{
    const char *front =
        rest_link(stayer, br_yaml_get(ours, "receivers"), br_yaml_get(pipeline, "receivers"));
    const char *behind =
        rest_link(stayer, br_yaml_get(ours, "exporters"), br_yaml_get(pipeline, "exporters"));
    const char *from = rest_left(stayer, pipeline, ours, "receivers"),
               *between = rest_left(stayer, pipeline, ours, "processors"),
               *to = rest_left(stayer, pipeline, ours, "exporters");
    if (behind) {
        rest_add_link(stayer, behind, false);
        br_str_printf(stayer->rest->links, "%s: Braid sends data to the receiver %s\n", id,
                      rest_other_end(stayer, behind));
    }
    if (behind && front)
        rest_add_behind(stayer, id, rest_link_list(stayer, behind), to);
    if (front) {
        rest_add_link(stayer, front, true);
        to = rest_link_list(stayer, front);
        br_str_printf(stayer->rest->links, "%s: the exporter %s sends data to Braid\n", id,
                      rest_other_end(stayer, front));
    } else {
        from = rest_link_list(stayer, behind);
        between = "[]";
    }
    rest_set_list(stayer, pipeline, "receivers", from);
    rest_set_list(stayer, pipeline, "processors", between);
    rest_set_list(stayer, pipeline, "exporters", to);
}

static bool rest_is_divided(struct stayer *stayer, const struct br_yaml *pipeline,
                            const struct br_yaml *ours)
{
    return rest_link(stayer, br_yaml_get(ours, "receivers"), br_yaml_get(pipeline, "receivers")) ||
           rest_link(stayer, br_yaml_get(ours, "exporters"), br_yaml_get(pipeline, "exporters"));
}

static void rest_pipelines(struct stayer *stayer)
{
    const struct br_yaml *map = br_yaml_get(br_yaml_get(stayer->fitted, "service"), "pipelines");
    struct br_yaml *all = stayer->pipelines;
    for (size_t i = 0; i < all->count && !stayer->no_memory;) {
        const char *id = all->keys[i]->text;
        const struct br_yaml *ours = rest_same_in(stayer, map, id);
        if (!ours || rest_is_divided(stayer, all->items[i], ours)) {
            i++;
            continue;
        }
        const char *note = br_arena_printf(stayer->rest->arena, "%s is Braid's", id);
        stayer->no_memory = stayer->no_memory || !note;
        rest_cut(stayer, all, i, note);
    }
    for (size_t i = 0; i < all->count && !stayer->no_memory; i++) {
        const struct br_yaml *ours = rest_same_in(stayer, map, all->keys[i]->text);
        if (ours)
            rest_divide(stayer, all->keys[i]->text, all->items[i], ours);
    }
}

static bool rest_is_used(struct stayer *stayer, const char *id, const char *section)
{
    bool connector = strcmp(section, "connectors") == 0;
    for (size_t i = 0; i < stayer->pipelines->count; i++)
        for (size_t k = 0; k < BR_COUNT(list_keys); k++)
            if ((connector || strcmp(section, list_keys[k]) == 0) &&
                rest_names(stayer, br_yaml_get(stayer->pipelines->items[i], list_keys[k]), id))
                return true;
    return false;
}

static void rest_sections(struct stayer *stayer)
{
    static const char *const sections[] = {"receivers", "processors", "exporters", "connectors"};
    for (size_t k = 0; k < BR_COUNT(sections); k++) {
        struct br_yaml *section = br_yaml_get(stayer->tree, sections[k]);
        for (size_t i = 0;
             section && section->type == BR_YAML_MAP && i < section->count && !stayer->no_memory;) {
            const char *id = section->keys[i]->text;
            if (rest_is_used(stayer, id, sections[k])) {
                i++;
                continue;
            }
            const char *note = br_arena_printf(stayer->rest->arena, "%s is not used here", id);
            stayer->no_memory = stayer->no_memory || !note;
            rest_cut(stayer, section, i, note);
        }
    }
}

/* --- Which ports ----------------------------------------------------------------------------- */

/* "host:port" with its port moved, in quotes; NULL when it does not end in one. */
static char *rest_moved(struct stayer *stayer, const char *endpoint)
{
    const char *colon = strrchr(endpoint, ':'), *digits = colon ? colon + 1 : endpoint;
    size_t n = strlen(digits);
    if (!n || n > 5 || digits[strspn(digits, "0123456789")])
        return NULL;
    unsigned long port = strtoul(digits, NULL, 10);
    if (port == 0 || port > 65535)
        return NULL;
    port = port + PORT_SHIFT <= 65535 ? port + PORT_SHIFT : port - PORT_SHIFT;
    char *moved = br_arena_printf(stayer->rest->arena, colon ? "\"%.*s%lu\"" : "%.*s%lu",
                                  (int)(digits - endpoint), endpoint, port);
    stayer->no_memory = stayer->no_memory || !moved;
    return moved;
}

static void rest_say(struct stayer *stayer, const char *path, const char *value)
{
    br_str_printf(stayer->rest->ports, "%s: %s\n", path, value);
}

/* Moves the port at `key` of the map at `index`; where it has none, from the default. */
static void rest_move(struct stayer *stayer, struct br_yaml *parent, size_t index, const char *key,
                      const char *by_default, const char *path)
{
    struct br_yaml *map = parent->items[index];
    size_t at = map->type == BR_YAML_MAP ? br_yaml_index(map, key) : 0;
    bool set =
        map->type == BR_YAML_MAP && at < map->count && map->items[at]->type == BR_YAML_SCALAR;
    char joined[192];
    br_path_join(joined, path, key);
    if (map->type != BR_YAML_MAP && map->type != BR_YAML_NULL)
        return;
    const char *moved = rest_moved(stayer, set ? map->items[at]->text : by_default);
    if (!moved && set && strchr(map->items[at]->text, '$')) {
        br_str_printf(stayer->rest->clashes, "%s: %s\n", joined, map->items[at]->text);
        br_errs_warn(stayer->rest->errs, map->keys[at], joined,
                     "both Braid and the Collector would listen at %s; give the variable another "
                     "value for one of them",
                     map->items[at]->text);
    }
    if (!moved || (map->type == BR_YAML_MAP && at < map->count && !set))
        return;
    if (set)
        rest_set(stayer, map, at, moved);
    else
        rest_put(stayer, parent, index, key, moved);
    rest_say(stayer, joined, moved);
}

static void rest_move_receiver(struct stayer *stayer, struct br_yaml *receivers, size_t index)
{
    static const char *const protocols[][2] = {{"grpc", "localhost:4317"},
                                               {"http", "localhost:4318"}};
    const char *id = receivers->keys[index]->text;
    struct br_yaml *map = br_yaml_get(receivers->items[index], "protocols");
    const struct br_yaml *twin = br_yaml_get(rest_twin(stayer, "receivers", id), "protocols");
    size_t type = strcspn(id, "/ ");
    if (!map || map->type != BR_YAML_MAP || !twin || !br_bytes_are(id, type, "otlp"))
        return;
    for (size_t k = 0; k < BR_COUNT(protocols); k++) {
        size_t at = br_yaml_index(map, protocols[k][0]);
        char path[192], whole[192];
        (void)snprintf(path, sizeof path, "receivers::%.100s::protocols", id);
        if (at < map->count && br_yaml_get(twin, protocols[k][0]))
            rest_move(stayer, map, at, "endpoint", protocols[k][1],
                      br_path_join(whole, path, protocols[k][0]));
    }
}

static void rest_move_health(struct stayer *stayer)
{
    struct br_yaml *map = br_yaml_get(stayer->tree, "extensions");
    const struct br_yaml *named = br_yaml_get(br_yaml_get(stayer->tree, "service"), "extensions");
    for (size_t i = 0; map && map->type == BR_YAML_MAP && i < map->count; i++) {
        const char *id = map->keys[i]->text;
        char path[192];
        if (br_bytes_are(id, strcspn(id, "/ "), "health_check") && rest_names(stayer, named, id) &&
            rest_twin(stayer, "extensions", id))
            rest_move(stayer, map, i, "endpoint", "localhost:13133",
                      br_path_join(path, "extensions", id));
    }
}

static void rest_move_reader(struct stayer *stayer, struct br_yaml *reader)
{
    struct br_yaml *exporter = br_yaml_get(br_yaml_get(reader, "pull"), "exporter");
    size_t at =
        exporter && exporter->type == BR_YAML_MAP ? br_yaml_index(exporter, "prometheus") : 0;
    if (exporter && at < exporter->count)
        rest_move(stayer, exporter, at, "port", "8888",
                  "service::telemetry::metrics::readers::pull::exporter::prometheus");
}

static void rest_move_telemetry(struct stayer *stayer)
{
    static const char reader[] =
        "[{pull: {exporter: {prometheus: {host: localhost, port: 18888}}}}]";
    size_t at = br_yaml_index(stayer->tree, "service");
    struct br_yaml *service = stayer->tree->items[at],
                   *telemetry = br_yaml_get(service, "telemetry");
    struct br_yaml *metrics = br_yaml_get(telemetry, "metrics");
    const struct br_yaml *level = br_yaml_get(metrics, "level");
    struct br_yaml *readers = br_yaml_get(metrics, "readers");
    if (level && level->type == BR_YAML_SCALAR && strcmp(level->text, "none") == 0)
        return;
    if (readers && readers->type == BR_YAML_SEQ) {
        for (size_t i = 0; i < readers->count; i++)
            rest_move_reader(stayer, readers->items[i]);
        return;
    }
    if (br_yaml_get(metrics, "address")) {
        rest_move(stayer, telemetry, br_yaml_index(telemetry, "metrics"), "address",
                  "localhost:8888", "service::telemetry::metrics");
        return;
    }
    rest_say(stayer, "service::telemetry::metrics", "localhost:18888");
    const char *whole = br_arena_printf(stayer->rest->arena, "{readers: %s}", reader);
    const char *outer = br_arena_printf(stayer->rest->arena, "{metrics: {readers: %s}}", reader);
    if (!whole || !outer)
        stayer->no_memory = true;
    else if (metrics && telemetry->type == BR_YAML_MAP)
        rest_put(stayer, telemetry, br_yaml_index(telemetry, "metrics"), "readers", reader);
    else if (telemetry)
        rest_put(stayer, service, br_yaml_index(service, "telemetry"), "metrics", whole);
    else
        rest_put(stayer, stayer->tree, at, "telemetry", outer);
}

static void rest_ports(struct stayer *stayer)
{
    struct br_yaml *receivers = br_yaml_get(stayer->tree, "receivers");
    for (size_t i = 0; receivers && receivers->type == BR_YAML_MAP && i < receivers->count; i++)
        rest_move_receiver(stayer, receivers, i);
    rest_move_health(stayer);
    rest_move_telemetry(stayer);
}

int br_config_rest(struct br_rest *rest, struct br_yaml *tree, const struct br_yaml *fitted)
{
    struct stayer stayer = {.rest = rest, .tree = tree, .fitted = fitted};
    stayer.pipelines = br_yaml_get(br_yaml_get(tree, "service"), "pipelines");
    rest->empty = true;
    if (!stayer.pipelines || stayer.pipelines->type != BR_YAML_MAP)
        return 0;
    rest_pipelines(&stayer);
    rest->empty = stayer.pipelines->count == 0;
    if (!rest->empty && !stayer.no_memory) {
        rest_sections(&stayer);
        rest_ports(&stayer);
    }
    return stayer.no_memory || rest->ports->failed || rest->links->failed || rest->clashes->failed
               ? BR_ENOMEM
               : 0;
}
