/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "app/adapt_parts.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/parts.h"

#define LINK_PORT 24317 /* port of the first link; each further link uses the next free port */

enum { RECEIVERS, PROCESSORS, EXPORTERS };

static void split_plan_list(struct br_adapter *adapter, struct br_adapt_plan *plan, size_t index)
{
    struct br_yaml *list = br_yaml_get(plan->pipeline, br_adapt_lists[index].key);
    bool seq = list && list->type == BR_YAML_SEQ;
    size_t n = seq ? list->count : list && list->type == BR_YAML_SCALAR;
    struct br_yaml **items =
        br_adapt_keep(adapter, br_arena_calloc(adapter->adapt->arena, n + 1, sizeof *items));
    if (!items)
        return;
    for (size_t i = 0; i < n; i++) {
        items[i] = seq ? list->items[i] : list;
        struct br_adapt_unit *unit =
            br_adapt_resolve(adapter, br_adapt_lists[index].kind, items[i]);
        if (unit)
            unit->wanted = unit->named = true;
    }
    plan->items[index] = items;
    plan->count[index] = n;
}

void br_adapt_plan_all(struct br_adapter *adapter)
{
    struct br_yaml *pipelines = br_adapt_pipelines(adapter);
    size_t n = pipelines ? pipelines->count : 0;
    adapter->port = LINK_PORT - 1;
    adapter->plans = br_adapt_keep(
        adapter, br_arena_calloc(adapter->adapt->arena, n + 1, sizeof *adapter->plans));
    for (size_t i = 0; i < n && !adapter->no_memory; i++) {
        const char *id =
            br_adapt_keep(adapter, br_id_trim(adapter->adapt->arena, pipelines->keys[i]->text));
        size_t len = id ? strcspn(id, "/") : 0;
        bool ours = br_bytes_are(id, len, "traces") || br_bytes_are(id, len, "profiles");
        if (!ours || pipelines->items[i]->type != BR_YAML_MAP)
            continue;
        struct br_adapt_plan *plan = &adapter->plans[adapter->n_plans++];
        *plan = (struct br_adapt_plan){
            .key = pipelines->keys[i], .pipeline = pipelines->items[i], .id = id};
        for (size_t k = 0; k < BR_ADAPT_LISTS; k++)
            split_plan_list(adapter, plan, k);
    }
}

static bool split_plan_stays(const struct br_adapter *adapter, const struct br_adapt_plan *plan)
{
    const struct br_yaml *pipelines = br_adapt_pipelines(adapter);
    for (size_t i = 0; pipelines && i < pipelines->count; i++)
        if (pipelines->keys[i] == plan->key)
            return true;
    return false;
}

static struct br_adapt_unit *split_unit(struct br_adapter *adapter,
                                        const struct br_adapt_plan *plan, size_t list, size_t index)
{
    return br_adapt_resolve(adapter, br_adapt_lists[list].kind, plan->items[list][index]);
}

static bool split_lacks(struct br_adapter *adapter, const struct br_adapt_plan *plan, size_t list,
                        size_t index)
{
    const struct br_adapt_unit *unit = split_unit(adapter, plan, list, index);
    return unit && unit->lacking;
}

/* Returns true if settings use values from a client's request, which links do not forward. */
static bool split_reads_client(const struct br_yaml *node)
{
    for (size_t i = 0; node && i < node->count; i++) {
        const char *key = node->keys ? node->keys[i]->text : "";
        const struct br_yaml *value = node->items[i];
        bool given = value->type == BR_YAML_SCALAR || value->count > 0;
        if ((given && (strcmp(key, "from_context") == 0 || strcmp(key, "metadata_keys") == 0)) ||
            split_reads_client(value))
            return true;
    }
    return false;
}

/* Returns true if a processor uses values from a client's request. k8s_attributes uses the address
 * of the client, by default. */
static bool split_needs_client(const struct br_adapt_unit *unit)
{
    bool finds_pods = unit->component && strcmp(unit->component->name, "k8s_attributes") == 0;
    return finds_pods || split_reads_client(unit->node);
}

/* Returns how many processors the Collector runs before Braid: all processors up to the last one
 * that must run in the Collector. That is a processor that Braid does not have, or that uses
 * values from requests of clients. */
static size_t split_processors_in_front(struct br_adapter *adapter,
                                        const struct br_adapt_plan *plan)
{
    size_t n = plan->count[PROCESSORS], last = 0;
    bool linked = false;
    for (size_t i = 0; i < plan->count[RECEIVERS]; i++) {
        const struct br_adapt_unit *unit = split_unit(adapter, plan, RECEIVERS, i);
        linked = linked || (unit && (unit->lacking || unit->collected));
    }
    for (size_t i = 0; i < n; i++)
        if (split_lacks(adapter, plan, PROCESSORS, i))
            last = i + 1;
    for (size_t i = last; (linked || last) && i < n; i++) {
        const struct br_adapt_unit *unit = split_unit(adapter, plan, PROCESSORS, i);
        if (unit && split_needs_client(unit))
            last = i + 1;
    }
    return last;
}

/* Marks the receivers of a pipeline that run in the Collector. A receiver runs in only one of
 * the two processes and serves all its pipelines there. */
static bool split_collect_plan(struct br_adapter *adapter, struct br_adapt_plan *plan)
{
    bool more = false;
    plan->n_front = split_processors_in_front(adapter, plan);
    if (split_plan_stays(adapter, plan) && !plan->n_front)
        return false;
    for (size_t k = 0; k < plan->count[RECEIVERS]; k++) {
        struct br_adapt_unit *unit = split_unit(adapter, plan, RECEIVERS, k);
        more = more || (unit && !unit->collected);
        if (unit)
            unit->collected = true;
    }
    return more;
}

/* Marks all receivers that run in the Collector. Repeats until nothing changes: a receiver that
 * moves to the Collector may move processors of its other pipelines, and these processors move
 * their receivers. */
static void split_collect(struct br_adapter *adapter)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < adapter->n_plans; i++)
            more = split_collect_plan(adapter, &adapter->plans[i]) || more;
    }
}

/* --- The links ------------------------------------------------------------------------------- */

static bool split_is_taken(const struct br_adapter *adapter, size_t list, const char *ours,
                           const char *others)
{
    enum br_kind mine = br_adapt_lists[list].kind;
    enum br_kind other = mine == BR_RECEIVER ? BR_EXPORTER : BR_RECEIVER;
    return br_yaml_get(br_adapt_section(adapter, mine), ours) ||
           br_yaml_get(br_adapt_section(adapter, other), others);
}

/* Appends `id` and, unless the pipeline is "traces", the name of the pipeline. */
static void split_name(const struct br_adapt_plan *plan, const char *id, struct br_str *out)
{
    const char *name = strcmp(plan->id, "traces") == 0 ? "" : plan->id;
    name = br_text_starts(name, "traces/") ? name + 7 : name;
    br_str_printf(out, "%s%s", id, *name ? "_" : "");
    for (; *name; name++)
        br_str_putc(out, *name == '/' ? '_' : *name);
}

/* Returns the id of Braid's end of a link. The id of the Collector's end has "braid" instead of
 * "collector". Neither of the two ids occurs in the file. */
static const char *split_id(struct br_adapter *adapter, const struct br_adapt_plan *plan,
                            size_t list)
{
    struct br_str ours = {.max = 2048}, others = {.max = 2048};
    split_name(plan, "otlp/collector", &ours);
    split_name(plan, "otlp/braid", &others);
    while (!ours.failed && !others.failed &&
           split_is_taken(adapter, list, ours.data, others.data)) {
        br_str_putc(&ours, '_');
        br_str_putc(&others, '_');
    }
    bool failed = ours.failed || others.failed;
    char *kept = failed ? NULL : br_arena_strndup(adapter->adapt->arena, ours.data, ours.len);
    br_str_release(&ours);
    br_str_release(&others);
    return br_adapt_keep(adapter, kept);
}

/* Returns the next port number that the text of the file does not contain. */
static unsigned split_port(struct br_adapter *adapter)
{
    char digits[8];
    do
        (void)snprintf(digits, sizeof digits, "%u", ++adapter->port);
    while (adapter->port < 65535 && strstr(adapter->adapt->text, digits));
    return adapter->port;
}

static struct br_yaml *split_scalar(struct br_adapter *adapter, const char *text,
                                    const struct br_yaml *at)
{
    return br_adapt_keep(adapter, br_yaml_scalar(adapter->adapt->arena, text, strlen(text), at));
}

/* Adds Braid's end of a link to a pipeline. Both ends of the link use the loopback address. */
static void split_make(struct br_adapter *adapter, struct br_adapt_plan *plan, size_t list)
{
    const char *id = split_id(adapter, plan, list);
    bool serves = list == RECEIVERS;
    unsigned port = split_port(adapter);
    char *text = br_adapt_keep(
        adapter, br_arena_printf(adapter->adapt->arena,
                                 serves ? "{protocols: {grpc: {endpoint: \"localhost:%u\"}}}"
                                        : "{endpoint: \"localhost:%u\", tls: {insecure: true}}",
                                 port));
    struct br_yaml *section = br_adapt_section(adapter, serves ? BR_RECEIVER : BR_EXPORTER);
    struct br_yaml *value = NULL;
    struct br_errs errs = {0};
    if (!id || !text || !section ||
        br_yaml_parse(text, strlen(text), plan->key->file, adapter->adapt->arena, &value, &errs)) {
        adapter->no_memory = true;
    } else {
        struct br_yaml *key = split_scalar(adapter, id, plan->key);
        if (!key || br_yaml_append(adapter->adapt->arena, section, key, value))
            adapter->no_memory = true;
        plan->link[list] = id;
        plan->text[list] = text;
    }
    br_errs_release(&errs);
}

/* --- The lists ------------------------------------------------------------------------------- */

static bool split_is_limiter(const struct br_adapt_unit *unit)
{
    return unit && unit->component && strcmp(unit->component->name, "memory_limiter") == 0;
}

/* Returns true if Braid runs this component of the pipeline. */
static bool split_stays(struct br_adapter *adapter, const struct br_adapt_plan *plan, size_t list,
                        size_t index)
{
    const struct br_adapt_unit *unit = split_unit(adapter, plan, list, index);
    if (unit && unit->lacking)
        return false;
    if (list == PROCESSORS) /* each process needs a memory limit */
        return index >= plan->n_front || split_is_limiter(unit);
    return list != RECEIVERS || (!plan->n_front && !(unit && unit->collected));
}

static void split_fill(struct br_adapter *adapter, struct br_adapt_plan *plan, size_t list)
{
    const char *name = br_adapt_lists[list].key;
    size_t at = br_yaml_index(plan->pipeline, name), n_left = 0;
    if (at == plan->pipeline->count)
        return;
    struct br_yaml *items = br_adapt_keep(
        adapter, br_yaml_new(adapter->adapt->arena, BR_YAML_SEQ, plan->pipeline->items[at]));
    for (size_t i = 0; items && i < plan->count[list]; i++) {
        if (!split_stays(adapter, plan, list, i))
            n_left++;
        else if (br_yaml_append(adapter->adapt->arena, items, NULL, plan->items[list][i]))
            adapter->no_memory = true;
    }
    if (!items || (!n_left && !plan->link[list]))
        return;
    if (list != PROCESSORS && n_left && !plan->link[list])
        split_make(adapter, plan, list);
    struct br_yaml *item =
        plan->link[list] ? split_scalar(adapter, plan->link[list], plan->key) : NULL;
    if (item && br_yaml_append(adapter->adapt->arena, items, NULL, item))
        adapter->no_memory = true;
    plan->pipeline->items[at] = items;
}

void br_adapt_split(struct br_adapter *adapter)
{
    split_collect(adapter);
    for (size_t i = 0; i < adapter->n_plans && !adapter->no_memory; i++)
        for (size_t k = 0; k < BR_ADAPT_LISTS && split_plan_stays(adapter, &adapter->plans[i]); k++)
            split_fill(adapter, &adapter->plans[i], k);
}

/* --- Changes of the file --------------------------------------------------------------------- */

static void split_edit(struct br_adapter *adapter, enum br_edit_kind kind, const struct br_yaml *at,
                       const char *key, const char *text)
{
    if (adapter->adapt->edits && br_edits_add(adapter->adapt->edits, kind, at, key, text))
        adapter->no_memory = true;
}

static bool split_has(const struct br_yaml *list, const struct br_yaml *item)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i] == item)
            return true;
    return false;
}

/* Records the change of a list. If only some items were removed, records each of them, otherwise
 * the list as a whole. */
static void split_edit_list(struct br_adapter *adapter, const struct br_adapt_plan *plan,
                            size_t list)
{
    size_t at = br_yaml_index(plan->pipeline, br_adapt_lists[list].key);
    const struct br_yaml *now = at < plan->pipeline->count ? plan->pipeline->items[at] : NULL;
    if (!now || now->type != BR_YAML_SEQ)
        return;
    if (!plan->link[list] && now->count) {
        for (size_t i = 0; i < plan->count[list]; i++)
            if (!split_has(now, plan->items[list][i]))
                split_edit(adapter, BR_EDIT_DROP, plan->items[list][i], NULL, NULL);
        return;
    }
    if (!plan->link[list] && !plan->count[list])
        return;
    struct br_str text = {0};
    br_str_putc(&text, '[');
    for (size_t i = 0; i < now->count; i++)
        br_str_printf(&text, "%s%s", i ? ", " : "", now->items[i]->text);
    br_str_putc(&text, ']');
    const char *kept =
        text.failed ? NULL : br_arena_strndup(adapter->adapt->arena, text.data, text.len);
    br_str_release(&text);
    if (br_adapt_keep(adapter, (void *)kept))
        split_edit(adapter, BR_EDIT_SET, plan->pipeline->keys[at], NULL, kept);
}

/* Records the addition of a pipeline's links, or removes the links if the pipeline was removed. */
static void split_plan_end(struct br_adapter *adapter, const struct br_adapt_plan *plan,
                           size_t list)
{
    struct br_yaml *section = br_adapt_section(adapter, br_adapt_lists[list].kind);
    bool stays = split_plan_stays(adapter, plan);
    if (stays)
        split_edit_list(adapter, plan, list);
    if (!plan->link[list] || !section)
        return;
    size_t at = br_yaml_index(section, plan->link[list]);
    size_t place = br_yaml_index(adapter->tree, br_adapt_lists[list].key);
    if (stays)
        split_edit(adapter, BR_EDIT_PUT, adapter->tree->keys[place], plan->link[list],
                   plan->text[list]);
    else if (at < section->count)
        br_yaml_remove(section, at);
}

/* Warns of processors that Braid supports and that nevertheless run in the Collector, because a
 * later processor must run there. */
static void split_warn_front(struct br_adapter *adapter, struct br_adapt_plan *plan)
{
    char path[192];
    if (!plan->n_front || !split_plan_stays(adapter, plan))
        return;
    const struct br_adapt_unit *last = split_unit(adapter, plan, PROCESSORS, plan->n_front - 1);
    (void)snprintf(path, sizeof path, "service::pipelines::%.100s::processors", plan->id);
    for (size_t i = 0; i + 1 < plan->n_front; i++) {
        const struct br_adapt_unit *unit = split_unit(adapter, plan, PROCESSORS, i);
        if (unit && last && !unit->lacking && !split_is_limiter(unit))
            br_errs_warn(adapter->adapt->errs, plan->items[PROCESSORS][i], path,
                         "%s runs in the Collector only, because it is before %s", unit->id,
                         last->id);
    }
}

void br_adapt_plan_end(struct br_adapter *adapter)
{
    for (size_t i = 0; i < adapter->n_plans && !adapter->no_memory; i++)
        split_warn_front(adapter, &adapter->plans[i]);
    for (size_t i = 0; i < adapter->n_plans && !adapter->no_memory; i++)
        for (size_t k = 0; k < BR_ADAPT_LISTS; k++)
            split_plan_end(adapter, &adapter->plans[i], k);
}
