/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "app/adapt_parts.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/parts.h"

/* port of the first link; each further link uses the next port that the file does not contain */
#define LINK_PORT 24317

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

/* Returns true if the settings in `node` use values from client requests. The links between the
 * Collector and Braid do not forward these values. */
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

/* Returns the number of processors that the Collector runs before Braid. A processor must run in
 * the Collector if Braid does not have it. If requests reach Braid through a link, a processor must
 * also run in the Collector if it uses values from client requests. If a processor must run in the
 * Collector, all processors before it run in the Collector, too. */
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

/* Marks the receivers of a pipeline as collected if the Collector runs the pipeline or its first
 * processors. A receiver runs in only one of the two processes and serves all its pipelines there.
 * Returns true if at least one receiver was not marked before. */
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

/* Marks all receivers that run in the Collector. Repeats until nothing changes: if a receiver moves
 * to the Collector, processors of its other pipelines may have to move, and then also the receivers
 * of these pipelines. */
static void split_collect(struct br_adapter *adapter)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < adapter->n_plans; i++)
            more = split_collect_plan(adapter, &adapter->plans[i]) || more;
    }
}

/* --- Connectors ------------------------------------------------------------------------------ */

static bool split_leave_connector(struct br_adapt_unit *unit)
{
    if (!unit || unit->kind != BR_CONNECTOR || unit->lacking)
        return false;
    unit->lacking = "the Collector keeps it, because it is in a pipeline that the Collector runs";
    return true;
}

/* Leaves the connectors of a pipeline of metrics or logs to the Collector. */
static void split_leave_connectors_of(struct br_adapter *adapter, const struct br_yaml *pipeline)
{
    for (size_t k = 0; k < BR_ADAPT_LISTS; k++) {
        const struct br_yaml *list = br_yaml_get(pipeline, br_adapt_lists[k].key);
        bool seq = list && list->type == BR_YAML_SEQ;
        for (size_t i = 0; list && i < (seq ? list->count : 1); i++)
            (void)split_leave_connector(
                br_adapt_resolve(adapter, br_adapt_lists[k].kind, seq ? list->items[i] : list));
    }
}

/* Returns true if the Collector runs the receivers of the pipeline, or all of the pipeline. */
static bool split_collects_receivers(struct br_adapter *adapter, const struct br_adapt_plan *plan)
{
    size_t n_lacking = 0;
    for (size_t i = 0; i < plan->count[RECEIVERS]; i++)
        if (split_lacks(adapter, plan, RECEIVERS, i))
            return true;
    for (size_t i = 0; i < plan->count[PROCESSORS]; i++) {
        const struct br_adapt_unit *unit = split_unit(adapter, plan, PROCESSORS, i);
        if (unit && (unit->lacking || split_reads_client(unit->node)))
            return true;
    }
    for (size_t i = 0; i < plan->count[EXPORTERS]; i++)
        n_lacking += split_lacks(adapter, plan, EXPORTERS, i);
    return n_lacking == plan->count[EXPORTERS];
}

/* Returns true if an exporter of the pipeline sends headers from client requests, so that the
 * Collector runs all of the pipeline. */
static bool split_is_by_client(struct br_adapter *adapter, const struct br_adapt_plan *plan)
{
    for (size_t i = 0; i < plan->count[EXPORTERS]; i++) {
        const struct br_adapt_unit *unit = split_unit(adapter, plan, EXPORTERS, i);
        if (unit && unit->by_client)
            return true;
    }
    return false;
}

/* Leaves the connectors at the ends of a pipeline that the Collector runs to the Collector. Returns
 * true if there is one. */
static bool split_leave_connectors(struct br_adapter *adapter, const struct br_adapt_plan *plan)
{
    bool by_client = split_is_by_client(adapter, plan), changed = false;
    bool before = by_client || split_collects_receivers(adapter, plan);
    for (size_t i = 0; before && i < plan->count[RECEIVERS]; i++)
        changed = split_leave_connector(split_unit(adapter, plan, RECEIVERS, i)) || changed;
    for (size_t i = 0; by_client && i < plan->count[EXPORTERS]; i++)
        changed = split_leave_connector(split_unit(adapter, plan, EXPORTERS, i)) || changed;
    return changed;
}

/* Repeats until nothing changes, because a connector that the Collector runs affects the other
 * pipelines of the connector. */
void br_adapt_split_connectors(struct br_adapter *adapter)
{
    const struct br_yaml *pipelines = br_adapt_pipelines(adapter);
    for (size_t i = 0; pipelines && i < pipelines->count; i++) {
        const char *id =
            br_adapt_keep(adapter, br_id_trim(adapter->adapt->arena, pipelines->keys[i]->text));
        if (id && br_adapt_is_foreign_signal(id))
            split_leave_connectors_of(adapter, pipelines->items[i]);
    }
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < adapter->n_plans; i++)
            more = split_leave_connectors(adapter, &adapter->plans[i]) || more;
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

/* Appends `id`. Unless the id of the pipeline is "traces", also appends "_" and the name of the
 * pipeline. */
static void split_name(const struct br_adapt_plan *plan, const char *id, struct br_str *out)
{
    const char *name = strcmp(plan->id, "traces") == 0 ? "" : plan->id;
    name = br_text_starts(name, "traces/") ? name + 7 : name;
    br_str_printf(out, "%s%s", id, *name ? "_" : "");
    for (; *name; name++)
        br_str_putc(out, *name == '/' ? '_' : *name);
}

/* Returns an id for Braid's end of a link. The id of the Collector's end has "braid" in place of
 * "collector". No component in the file has one of these two ids. */
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

/* Adds Braid's end of a link, a receiver or an exporter, to its section. Both ends of the link use
 * the loopback address. */
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
    if (!id || !text ||
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
    /* a memory_limiter runs in both processes, because each process needs a memory limit */
    if (list == PROCESSORS)
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
    if (list != PROCESSORS && n_left && !plan->link[list]) {
        if (!br_adapt_section(adapter, br_adapt_lists[list].kind))
            return; /* the loader reports that the components are not defined */
        split_make(adapter, plan, list);
    }
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

/* Records how a pipeline's list changes in the file. If some items were removed and no link was
 * added, records each removal. Otherwise, records the whole new list. */
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

/* Records the changes of one list of a pipeline, and the settings of the link in this list. If the
 * pipeline was removed, removes the link from its section instead. */
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

/* Warns of each processor that Braid supports but that runs only in the Collector, because a later
 * processor must run in the Collector. */
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
