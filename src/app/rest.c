/* SPDX-License-Identifier: Apache-2.0 */
#include "app/rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define PORT_SHIFT 10000

static const char *const list_keys[] = {"receivers", "processors", "exporters"};

struct stayer {
    struct br_rest *rest;
    struct br_yaml *tree, *pipelines;
    const struct br_yaml *fitted;
    bool *whole;  /* by pipeline: it stays as it is */
    bool *feeder; /* Braid has it, and it stays with its connectors only */
    bool no_memory;
};

static char *rest_id(struct stayer *s, const char *text)
{
    char *id = br_id_trim(s->rest->arena, text);
    s->no_memory = s->no_memory || !id;
    return id;
}

static bool rest_same_id(struct stayer *s, const char *a, const char *b)
{
    const char *x = rest_id(s, a), *y = rest_id(s, b);
    return x && y && strcmp(x, y) == 0;
}

static void rest_cut(struct stayer *s, struct br_yaml *parent, size_t index, const char *note)
{
    const struct br_yaml *at = parent->keys ? parent->keys[index] : parent->items[index];
    if (br_edits_add(s->rest->edits, parent->keys ? BR_EDIT_CUT : BR_EDIT_DROP, at, NULL, note))
        s->no_memory = true;
    br_yaml_remove(parent, index);
}

/* --- Which pipelines ------------------------------------------------------------------------- */

static size_t rest_count(const struct br_yaml *list)
{
    return !list || list->type == BR_YAML_NULL ? 0 : list->type == BR_YAML_SEQ ? list->n : 1;
}

static const char *rest_item(const struct br_yaml *list, size_t i)
{
    const struct br_yaml *item = list->type == BR_YAML_SEQ ? list->items[i] : list;
    return item->type == BR_YAML_SCALAR ? item->text : "";
}

static bool rest_names(struct stayer *s, const struct br_yaml *list, const char *id)
{
    for (size_t i = 0; i < rest_count(list); i++)
        if (rest_same_id(s, rest_item(list, i), id))
            return true;
    return false;
}

static bool rest_is_connector(struct stayer *s, const char *id)
{
    const struct br_yaml *connectors = br_yaml_get(s->tree, "connectors");
    for (size_t i = 0; connectors && connectors->type == BR_YAML_MAP && i < connectors->n; i++)
        if (rest_same_id(s, connectors->keys[i]->text, id))
            return true;
    return false;
}

/* True when `id`, named at `end` of a pipeline, is a connector whose other end is in one that
 * stays. */
static bool rest_connects(struct stayer *s, const char *id, const char *other_end)
{
    if (!rest_is_connector(s, id))
        return false;
    for (size_t i = 0; i < s->pipelines->n; i++)
        if ((s->whole[i] || s->feeder[i]) &&
            rest_names(s, br_yaml_get(s->pipelines->items[i], other_end), id))
            return true;
    return false;
}

static bool rest_feeds(struct stayer *s, size_t i)
{
    const struct br_yaml *exporters = br_yaml_get(s->pipelines->items[i], "exporters");
    for (size_t k = 0; k < rest_count(exporters); k++)
        if (rest_connects(s, rest_item(exporters, k), "receivers"))
            return true;
    return false;
}

static bool rest_braid_has(struct stayer *s, const char *id)
{
    const struct br_yaml *map = br_yaml_get(br_yaml_get(s->fitted, "service"), "pipelines");
    for (size_t i = 0; map && i < map->n; i++)
        if (rest_same_id(s, map->keys[i]->text, id))
            return true;
    return false;
}

static void rest_choose(struct stayer *s)
{
    for (size_t i = 0; i < s->pipelines->n; i++)
        s->whole[i] = !rest_braid_has(s, s->pipelines->keys[i]->text);
    for (bool more = true; more && !s->no_memory;) {
        more = false;
        for (size_t i = 0; i < s->pipelines->n; i++) {
            if (s->whole[i] || s->feeder[i] || !rest_feeds(s, i))
                continue;
            s->feeder[i] = s->rest->wants_spans = more = true;
        }
    }
}

/* Leaves a feeder with the connectors that it is there for. */
static void rest_reduce(struct stayer *s, size_t i)
{
    struct br_yaml *exporters = br_yaml_get(s->pipelines->items[i], "exporters");
    for (size_t k = 0; exporters && exporters->type == BR_YAML_SEQ && k < exporters->n;) {
        if (rest_connects(s, rest_item(exporters, k), "receivers"))
            k++;
        else
            rest_cut(s, exporters, k, NULL);
    }
}

static void rest_pipelines(struct stayer *s)
{
    rest_choose(s);
    for (size_t i = 0; i < s->pipelines->n && !s->no_memory; i++)
        if (s->feeder[i])
            rest_reduce(s, i);
    size_t at = 0, n = s->pipelines->n;
    for (size_t i = 0; i < n && !s->no_memory; i++) {
        if (s->whole[i] || s->feeder[i]) {
            at++;
            continue;
        }
        const char *note =
            br_arena_printf(s->rest->arena, "%s is Braid's", s->pipelines->keys[at]->text);
        s->no_memory = s->no_memory || !note;
        rest_cut(s, s->pipelines, at, note);
    }
}

static bool rest_is_used(struct stayer *s, const char *id, const char *section)
{
    bool connector = strcmp(section, "connectors") == 0;
    for (size_t i = 0; i < s->pipelines->n; i++)
        for (size_t k = 0; k < BR_COUNT(list_keys); k++)
            if ((connector || strcmp(section, list_keys[k]) == 0) &&
                rest_names(s, br_yaml_get(s->pipelines->items[i], list_keys[k]), id))
                return true;
    return false;
}

static void rest_sections(struct stayer *s)
{
    static const char *const sections[] = {"receivers", "processors", "exporters", "connectors"};
    for (size_t k = 0; k < BR_COUNT(sections); k++) {
        struct br_yaml *section = br_yaml_get(s->tree, sections[k]);
        for (size_t i = 0;
             section && section->type == BR_YAML_MAP && i < section->n && !s->no_memory;) {
            const char *id = section->keys[i]->text;
            if (rest_is_used(s, id, sections[k])) {
                i++;
                continue;
            }
            const char *note = br_arena_printf(s->rest->arena, "%s is not used here", id);
            s->no_memory = s->no_memory || !note;
            rest_cut(s, section, i, note);
        }
    }
}

/* --- Which ports ----------------------------------------------------------------------------- */

/* "host:port" with its port moved, in quotes; NULL when it does not end in one. */
static char *rest_moved(struct stayer *s, const char *endpoint)
{
    const char *colon = strrchr(endpoint, ':'), *digits = colon ? colon + 1 : endpoint;
    size_t n = strlen(digits);
    if (!n || n > 5 || digits[strspn(digits, "0123456789")])
        return NULL;
    unsigned long port = strtoul(digits, NULL, 10);
    if (port == 0 || port > 65535)
        return NULL;
    port = port + PORT_SHIFT <= 65535 ? port + PORT_SHIFT : port - PORT_SHIFT;
    char *moved = br_arena_printf(s->rest->arena, colon ? "\"%.*s%lu\"" : "%.*s%lu",
                                  (int)(digits - endpoint), endpoint, port);
    s->no_memory = s->no_memory || !moved;
    return moved;
}

static void rest_say(struct stayer *s, const char *path, const char *value)
{
    br_str_printf(s->rest->ports, "%s: %s\n", path, value);
}

/* The value of `text` as a tree. */
static struct br_yaml *rest_value(struct stayer *s, const char *text)
{
    struct br_errs errs = {0};
    struct br_yaml *value = NULL;
    if (br_yaml_parse(text, strlen(text), "rest", s->rest->arena, &value, &errs))
        s->no_memory = true;
    br_errs_release(&errs);
    return value;
}

/* Writes `key: text` into the map at `index` of `parent`, which may be nothing yet. */
static void rest_put(struct stayer *s, struct br_yaml *parent, size_t index, const char *key,
                     const char *text)
{
    struct br_yaml *value = rest_value(s, text), *old = parent->items[index];
    struct br_yaml *name = br_yaml_scalar(s->rest->arena, key, strlen(key), old);
    struct br_yaml *map = br_yaml_new(s->rest->arena, BR_YAML_MAP, old);
    if (!value || !name || !map || br_yaml_append(s->rest->arena, map, name, value) ||
        br_edits_add(s->rest->edits, BR_EDIT_PUT, parent->keys[index], key, text)) {
        s->no_memory = true;
        return;
    }
    for (size_t i = 0; i < old->n; i++)
        if (br_yaml_append(s->rest->arena, map, old->keys[i], old->items[i]))
            s->no_memory = true;
    parent->items[index] = map;
}

static void rest_set(struct stayer *s, struct br_yaml *parent, size_t index, const char *text)
{
    struct br_yaml *value = rest_value(s, text);
    if (!value || br_edits_add(s->rest->edits, BR_EDIT_SET, parent->keys[index], NULL, text))
        s->no_memory = true;
    else
        parent->items[index] = value;
}

/* Moves the port at `key` of the map at `index`; where it has none, from the default. */
static void rest_move(struct stayer *s, struct br_yaml *parent, size_t index, const char *key,
                      const char *by_default, const char *path)
{
    struct br_yaml *map = parent->items[index];
    size_t at = map->type == BR_YAML_MAP ? br_yaml_index(map, key) : 0;
    bool set = map->type == BR_YAML_MAP && at < map->n && map->items[at]->type == BR_YAML_SCALAR;
    if (map->type != BR_YAML_MAP && map->type != BR_YAML_NULL)
        return;
    const char *moved = rest_moved(s, set ? map->items[at]->text : by_default);
    if (!moved || (map->type == BR_YAML_MAP && at < map->n && !set))
        return;
    if (set)
        rest_set(s, map, at, moved);
    else
        rest_put(s, parent, index, key, moved);
    char joined[192];
    rest_say(s, br_path_join(joined, path, key), moved);
}

/* The same component in what Braid runs; NULL when it is not there. */
static const struct br_yaml *rest_twin(struct stayer *s, const char *section, const char *id)
{
    const struct br_yaml *map = br_yaml_get(s->fitted, section);
    for (size_t i = 0; map && map->type == BR_YAML_MAP && i < map->n; i++)
        if (rest_same_id(s, map->keys[i]->text, id))
            return map->items[i];
    return NULL;
}

static void rest_move_receiver(struct stayer *s, struct br_yaml *receivers, size_t i)
{
    static const char *const protocols[][2] = {{"grpc", "localhost:4317"},
                                               {"http", "localhost:4318"}};
    const char *id = receivers->keys[i]->text;
    struct br_yaml *map = br_yaml_get(receivers->items[i], "protocols");
    const struct br_yaml *twin = br_yaml_get(rest_twin(s, "receivers", id), "protocols");
    size_t type = strcspn(id, "/ ");
    if (!map || map->type != BR_YAML_MAP || !twin || type != 4 || strncmp(id, "otlp", type) != 0)
        return;
    for (size_t k = 0; k < BR_COUNT(protocols); k++) {
        size_t at = br_yaml_index(map, protocols[k][0]);
        char path[192], whole[192];
        (void)snprintf(path, sizeof path, "receivers::%.100s::protocols", id);
        if (at < map->n && br_yaml_get(twin, protocols[k][0]))
            rest_move(s, map, at, "endpoint", protocols[k][1],
                      br_path_join(whole, path, protocols[k][0]));
    }
}

static void rest_move_health(struct stayer *s)
{
    struct br_yaml *map = br_yaml_get(s->tree, "extensions");
    const struct br_yaml *named = br_yaml_get(br_yaml_get(s->tree, "service"), "extensions");
    for (size_t i = 0; map && map->type == BR_YAML_MAP && i < map->n; i++) {
        const char *id = map->keys[i]->text;
        char path[192];
        if (strncmp(id, "health_check", strcspn(id, "/ ")) == 0 && strcspn(id, "/ ") == 12 &&
            rest_names(s, named, id) && rest_twin(s, "extensions", id))
            rest_move(s, map, i, "endpoint", "localhost:13133",
                      br_path_join(path, "extensions", id));
    }
}

static void rest_move_reader(struct stayer *s, struct br_yaml *reader)
{
    struct br_yaml *exporter = br_yaml_get(br_yaml_get(reader, "pull"), "exporter");
    size_t at =
        exporter && exporter->type == BR_YAML_MAP ? br_yaml_index(exporter, "prometheus") : 0;
    if (exporter && at < exporter->n)
        rest_move(s, exporter, at, "port", "8888",
                  "service::telemetry::metrics::readers::pull::exporter::prometheus");
}

static void rest_move_telemetry(struct stayer *s)
{
    static const char reader[] =
        "[{pull: {exporter: {prometheus: {host: localhost, port: 18888}}}}]";
    size_t at = br_yaml_index(s->tree, "service");
    struct br_yaml *service = s->tree->items[at], *telemetry = br_yaml_get(service, "telemetry");
    struct br_yaml *metrics = br_yaml_get(telemetry, "metrics");
    const struct br_yaml *level = br_yaml_get(metrics, "level");
    struct br_yaml *readers = br_yaml_get(metrics, "readers");
    if (level && level->type == BR_YAML_SCALAR && strcmp(level->text, "none") == 0)
        return;
    if (readers && readers->type == BR_YAML_SEQ) {
        for (size_t i = 0; i < readers->n; i++)
            rest_move_reader(s, readers->items[i]);
        return;
    }
    if (br_yaml_get(metrics, "address")) {
        rest_move(s, telemetry, br_yaml_index(telemetry, "metrics"), "address", "localhost:8888",
                  "service::telemetry::metrics");
        return;
    }
    rest_say(s, "service::telemetry::metrics", "localhost:18888");
    const char *whole = br_arena_printf(s->rest->arena, "{readers: %s}", reader);
    const char *outer = br_arena_printf(s->rest->arena, "{metrics: {readers: %s}}", reader);
    if (!whole || !outer)
        s->no_memory = true;
    else if (metrics && telemetry->type == BR_YAML_MAP)
        rest_put(s, telemetry, br_yaml_index(telemetry, "metrics"), "readers", reader);
    else if (telemetry)
        rest_put(s, service, br_yaml_index(service, "telemetry"), "metrics", whole);
    else
        rest_put(s, s->tree, at, "telemetry", outer);
}

static void rest_ports(struct stayer *s)
{
    struct br_yaml *receivers = br_yaml_get(s->tree, "receivers");
    for (size_t i = 0; receivers && receivers->type == BR_YAML_MAP && i < receivers->n; i++)
        rest_move_receiver(s, receivers, i);
    rest_move_health(s);
    rest_move_telemetry(s);
}

int br_config_rest(struct br_rest *rest, struct br_yaml *tree, const struct br_yaml *fitted)
{
    struct stayer s = {.rest = rest, .tree = tree, .fitted = fitted};
    s.pipelines = br_yaml_get(br_yaml_get(tree, "service"), "pipelines");
    rest->empty = true;
    if (!s.pipelines || s.pipelines->type != BR_YAML_MAP)
        return 0;
    s.whole = br_arena_calloc(rest->arena, s.pipelines->n, sizeof *s.whole);
    s.feeder = br_arena_calloc(rest->arena, s.pipelines->n, sizeof *s.feeder);
    if (!s.whole || !s.feeder)
        return BR_ENOMEM;
    rest_pipelines(&s);
    rest->empty = s.pipelines->n == 0;
    if (!rest->empty && !s.no_memory) {
        rest_sections(&s);
        rest_ports(&s);
    }
    return s.no_memory || rest->ports->failed ? BR_ENOMEM : 0;
}
