/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "app/fit_parts.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/parts.h"

#define LINK_PORT 24317 /* of the first link; each further one has the next free port */

enum { RECEIVERS, PROCESSORS, EXPORTERS };

static void links_plan_list(struct br_fitter *fitter, struct br_fit_plan *plan, size_t index)
{
    struct br_yaml *list = br_yaml_get(plan->pipeline, br_fit_lists[index].key);
    bool seq = list && list->type == BR_YAML_SEQ;
    size_t n = seq ? list->count : list && list->type == BR_YAML_SCALAR;
    struct br_yaml **items =
        br_fit_keep(fitter, br_arena_calloc(fitter->fit->arena, n + 1, sizeof *items));
    if (!items)
        return;
    for (size_t i = 0; i < n; i++) {
        items[i] = seq ? list->items[i] : list;
        struct br_fit_unit *unit = br_fit_resolve(fitter, br_fit_lists[index].kind, items[i]);
        if (unit)
            unit->wanted = unit->named = true;
    }
    plan->items[index] = items;
    plan->count[index] = n;
}

void br_fit_plan_all(struct br_fitter *fitter)
{
    struct br_yaml *pipelines = br_fit_pipelines(fitter);
    size_t n = pipelines ? pipelines->count : 0;
    fitter->port = LINK_PORT - 1;
    fitter->plans =
        br_fit_keep(fitter, br_arena_calloc(fitter->fit->arena, n + 1, sizeof *fitter->plans));
    for (size_t i = 0; i < n && !fitter->no_memory; i++) {
        const char *id =
            br_fit_keep(fitter, br_id_trim(fitter->fit->arena, pipelines->keys[i]->text));
        size_t len = id ? strcspn(id, "/") : 0;
        bool ours = br_bytes_are(id, len, "traces") || br_bytes_are(id, len, "profiles");
        if (!ours || pipelines->items[i]->type != BR_YAML_MAP)
            continue;
        struct br_fit_plan *plan = &fitter->plans[fitter->n_plans++];
        *plan = (struct br_fit_plan){
            .key = pipelines->keys[i], .pipeline = pipelines->items[i], .id = id};
        for (size_t k = 0; k < BR_FIT_LISTS; k++)
            links_plan_list(fitter, plan, k);
    }
}

static bool links_plan_stays(const struct br_fitter *fitter, const struct br_fit_plan *plan)
{
    const struct br_yaml *pipelines = br_fit_pipelines(fitter);
    for (size_t i = 0; pipelines && i < pipelines->count; i++)
        if (pipelines->keys[i] == plan->key)
            return true;
    return false;
}

static struct br_fit_unit *links_unit(struct br_fitter *fitter, const struct br_fit_plan *plan,
                                      size_t list, size_t index)
{
    return br_fit_resolve(fitter, br_fit_lists[list].kind, plan->items[list][index]);
}

static bool links_lacks(struct br_fitter *fitter, const struct br_fit_plan *plan, size_t list,
                        size_t index)
{
    const struct br_fit_unit *unit = links_unit(fitter, plan, list, index);
    return unit && unit->lacking;
}

/* Returns true for settings that take something from a client's request, which no link passes on.
 */
static bool links_reads_client(const struct br_yaml *node)
{
    for (size_t i = 0; node && i < node->count; i++) {
        const char *key = node->keys ? node->keys[i]->text : "";
        const struct br_yaml *value = node->items[i];
        bool given = value->type == BR_YAML_SCALAR || value->count > 0;
        if ((given && (strcmp(key, "from_context") == 0 || strcmp(key, "metadata_keys") == 0)) ||
            links_reads_client(value))
            return true;
    }
    return false;
}

/* Returns how many processors the Collector runs first: all up to the last one that Braid lacks, or
 * that reads the requests of clients of the Collector. */
static size_t links_processors_in_front(struct br_fitter *fitter, const struct br_fit_plan *plan)
{
    size_t n = plan->count[PROCESSORS], last = 0;
    bool linked = false;
    for (size_t i = 0; i < plan->count[RECEIVERS]; i++) {
        const struct br_fit_unit *unit = links_unit(fitter, plan, RECEIVERS, i);
        linked = linked || (unit && (unit->lacking || unit->collected));
    }
    for (size_t i = 0; i < n; i++)
        if (links_lacks(fitter, plan, PROCESSORS, i))
            last = i + 1;
    for (size_t i = last; (linked || last) && i < n; i++) {
        const struct br_fit_unit *unit = links_unit(fitter, plan, PROCESSORS, i);
        if (unit && links_reads_client(unit->node))
            last = i + 1;
    }
    return last;
}

/* Marks the receivers that the Collector has: a listener is in one of the two processes, and gives
 * its data to all pipelines that want it. */
static bool links_collect_plan(struct br_fitter *fitter, struct br_fit_plan *plan)
{
    bool more = false;
    plan->n_front = links_processors_in_front(fitter, plan);
    if (links_plan_stays(fitter, plan) && !plan->n_front)
        return false;
    for (size_t k = 0; k < plan->count[RECEIVERS]; k++) {
        struct br_fit_unit *unit = links_unit(fitter, plan, RECEIVERS, k);
        more = more || (unit && !unit->collected);
        if (unit)
            unit->collected = true;
    }
    return more;
}

/* A receiver that moves may take processors of other pipelines along, and these their receivers. */
static void links_collect(struct br_fitter *fitter)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < fitter->n_plans; i++)
            more = links_collect_plan(fitter, &fitter->plans[i]) || more;
    }
}

/* --- The links ------------------------------------------------------------------------------- */

static bool links_is_taken(const struct br_fitter *fitter, size_t list, const char *ours,
                           const char *others)
{
    enum br_kind mine = br_fit_lists[list].kind;
    enum br_kind other = mine == BR_RECEIVER ? BR_EXPORTER : BR_RECEIVER;
    return br_yaml_get(br_fit_section(fitter, mine), ours) ||
           br_yaml_get(br_fit_section(fitter, other), others);
}

/* Appends an id with the name of any pipeline but "traces". */
static void links_name(const struct br_fit_plan *plan, const char *id, struct br_str *out)
{
    const char *name = strcmp(plan->id, "traces") == 0 ? "" : plan->id;
    name = br_text_starts(name, "traces/") ? name + 7 : name;
    br_str_printf(out, "%s%s", id, *name ? "_" : "");
    for (; *name; name++)
        br_str_putc(out, *name == '/' ? '_' : *name);
}

/* Returns the id of Braid's end of a link. That of the Collector's end has "braid" in the place of
 * "collector"; both are free. */
static const char *links_id(struct br_fitter *fitter, const struct br_fit_plan *plan, size_t list)
{
    struct br_str ours = {.max = 2048}, others = {.max = 2048};
    links_name(plan, "otlp/collector", &ours);
    links_name(plan, "otlp/braid", &others);
    while (!ours.failed && !others.failed && links_is_taken(fitter, list, ours.data, others.data)) {
        br_str_putc(&ours, '_');
        br_str_putc(&others, '_');
    }
    bool failed = ours.failed || others.failed;
    char *kept = failed ? NULL : br_arena_strndup(fitter->fit->arena, ours.data, ours.len);
    br_str_release(&ours);
    br_str_release(&others);
    return br_fit_keep(fitter, kept);
}

/* Returns the next port that the file does not name. */
static unsigned links_port(struct br_fitter *fitter)
{
    char digits[8];
    do
        (void)snprintf(digits, sizeof digits, "%u", ++fitter->port);
    while (fitter->port < 65535 && strstr(fitter->fit->text, digits));
    return fitter->port;
}

static struct br_yaml *links_scalar(struct br_fitter *fitter, const char *text,
                                    const struct br_yaml *at)
{
    return br_fit_keep(fitter, br_yaml_scalar(fitter->fit->arena, text, strlen(text), at));
}

/* Gives a pipeline its end of a link. Both ends are on loopback. */
static void links_make(struct br_fitter *fitter, struct br_fit_plan *plan, size_t list)
{
    const char *id = links_id(fitter, plan, list);
    bool serves = list == RECEIVERS;
    unsigned port = links_port(fitter);
    char *text = br_fit_keep(
        fitter, br_arena_printf(fitter->fit->arena,
                                serves ? "{protocols: {grpc: {endpoint: \"localhost:%u\"}}}"
                                       : "{endpoint: \"localhost:%u\", tls: {insecure: true}}",
                                port));
    struct br_yaml *section = br_fit_section(fitter, serves ? BR_RECEIVER : BR_EXPORTER);
    struct br_yaml *value = NULL;
    struct br_errs errs = {0};
    if (!id || !text || !section ||
        br_yaml_parse(text, strlen(text), plan->key->file, fitter->fit->arena, &value, &errs)) {
        fitter->no_memory = true;
    } else {
        struct br_yaml *key = links_scalar(fitter, id, plan->key);
        if (!key || br_yaml_append(fitter->fit->arena, section, key, value))
            fitter->no_memory = true;
        plan->link[list] = id;
        plan->text[list] = text;
    }
    br_errs_release(&errs);
}

/* --- The lists ------------------------------------------------------------------------------- */

static bool links_is_limiter(const struct br_fit_unit *unit)
{
    return unit && unit->component && strcmp(unit->component->name, "memory_limiter") == 0;
}

/* True for a component that Braid has in this pipeline. */
static bool links_stays(struct br_fitter *fitter, const struct br_fit_plan *plan, size_t list,
                        size_t index)
{
    const struct br_fit_unit *unit = links_unit(fitter, plan, list, index);
    if (unit && unit->lacking)
        return false;
    if (list == PROCESSORS) /* a limit of memory is each process's own */
        return index >= plan->n_front || links_is_limiter(unit);
    return list != RECEIVERS || (!plan->n_front && !(unit && unit->collected));
}

static void links_fill(struct br_fitter *fitter, struct br_fit_plan *plan, size_t list)
{
    const char *name = br_fit_lists[list].key;
    size_t at = br_yaml_index(plan->pipeline, name), n_left = 0;
    if (at == plan->pipeline->count)
        return;
    struct br_yaml *items = br_fit_keep(
        fitter, br_yaml_new(fitter->fit->arena, BR_YAML_SEQ, plan->pipeline->items[at]));
    for (size_t i = 0; items && i < plan->count[list]; i++) {
        if (!links_stays(fitter, plan, list, i))
            n_left++;
        else if (br_yaml_append(fitter->fit->arena, items, NULL, plan->items[list][i]))
            fitter->no_memory = true;
    }
    if (!items || (!n_left && !plan->link[list]))
        return;
    if (list != PROCESSORS && n_left && !plan->link[list])
        links_make(fitter, plan, list);
    struct br_yaml *item =
        plan->link[list] ? links_scalar(fitter, plan->link[list], plan->key) : NULL;
    if (item && br_yaml_append(fitter->fit->arena, items, NULL, item))
        fitter->no_memory = true;
    plan->pipeline->items[at] = items;
}

void br_fit_divide(struct br_fitter *fitter)
{
    links_collect(fitter);
    for (size_t i = 0; i < fitter->n_plans && !fitter->no_memory; i++)
        for (size_t k = 0; k < BR_FIT_LISTS && links_plan_stays(fitter, &fitter->plans[i]); k++)
            links_fill(fitter, &fitter->plans[i], k);
}

/* --- The end --------------------------------------------------------------------------------- */

static void links_edit(struct br_fitter *fitter, enum br_edit_kind kind, const struct br_yaml *at,
                       const char *key, const char *text)
{
    if (fitter->fit->edits && br_edits_add(fitter->fit->edits, kind, at, key, text))
        fitter->no_memory = true;
}

static bool links_has(const struct br_yaml *list, const struct br_yaml *item)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i] == item)
            return true;
    return false;
}

/* Records how a list has changed: as a whole, or item by item where only some are gone. */
static void links_edit_list(struct br_fitter *fitter, const struct br_fit_plan *plan, size_t list)
{
    size_t at = br_yaml_index(plan->pipeline, br_fit_lists[list].key);
    const struct br_yaml *now = at < plan->pipeline->count ? plan->pipeline->items[at] : NULL;
    if (!now || now->type != BR_YAML_SEQ)
        return;
    if (!plan->link[list] && now->count) {
        for (size_t i = 0; i < plan->count[list]; i++)
            if (!links_has(now, plan->items[list][i]))
                links_edit(fitter, BR_EDIT_DROP, plan->items[list][i], NULL, NULL);
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
        text.failed ? NULL : br_arena_strndup(fitter->fit->arena, text.data, text.len);
    br_str_release(&text);
    if (br_fit_keep(fitter, (void *)kept))
        links_edit(fitter, BR_EDIT_SET, plan->pipeline->keys[at], NULL, kept);
}

/* Writes the links of a pipeline into the file, or forgets them when it has gone. */
static void links_plan_end(struct br_fitter *fitter, const struct br_fit_plan *plan, size_t list)
{
    struct br_yaml *section = br_fit_section(fitter, br_fit_lists[list].kind);
    bool stays = links_plan_stays(fitter, plan);
    if (stays)
        links_edit_list(fitter, plan, list);
    if (!plan->link[list] || !section)
        return;
    size_t at = br_yaml_index(section, plan->link[list]);
    size_t place = br_yaml_index(fitter->tree, br_fit_lists[list].key);
    if (stays)
        links_edit(fitter, BR_EDIT_PUT, fitter->tree->keys[place], plan->link[list],
                   plan->text[list]);
    else if (at < section->count)
        br_yaml_remove(section, at);
}

void br_fit_plan_end(struct br_fitter *fitter)
{
    for (size_t i = 0; i < fitter->n_plans && !fitter->no_memory; i++)
        for (size_t k = 0; k < BR_FIT_LISTS; k++)
            links_plan_end(fitter, &fitter->plans[i], k);
}
