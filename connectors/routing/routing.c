/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routing connector sends records to pipelines that depend on conditions. The rows of the table
 * are evaluated in order for each record.
 */
#include "connectors/routing/routing.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static const char *const contexts[] = {"resource", "span", "profile", "request", NULL};
static const char *const actions[] = {"move", "copy", NULL};

static const struct br_option row_options[] = {
    BR_ENUM(struct routing_row, context, "resource", contexts,
            "what the condition is about: a resource, a span, a profile or sample, or the client "
            "metadata of the request"),
    BR_STRING(struct routing_row, condition, NULL,
              "condition in the Collector's expression language; with the context `request`, only "
              "`request[\"KEY\"] == \"VALUE\"` and `!=`"),
    BR_STRING(struct routing_row, statement, NULL,
              "the same condition in the older form `route() where CONDITION`"),
    BR_ENUM(struct routing_row, action, "move", actions,
            "`move`: a matching record is not compared with further rows; `copy`: it is"),
    {.name = "pipelines",
     .kind = BR_OPT_STRINGS,
     .offset = offsetof(struct routing_row, pipelines),
     .required = true,
     .help = "ids of the pipelines to which matching records are sent"},
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_LIST(struct routing_config, table, struct routing_row, row_options,
            "rows with a condition each; the first one that matches determines the pipelines"),
    BR_STRINGS(struct routing_config, default_pipelines,
               "ids of the pipelines to which records are sent that match no row; default: they "
               "are dropped"),
    BR_DURATION(struct routing_config, match_time, "20ms",
                "CPU time for matching all patterns against a request, in addition to 20 ns per "
                "byte; when it is used up, no pattern matches"),
    BR_IGNORED("error_mode", "conditions are checked at startup and cannot fail later"),
    BR_OPT_END,
};

/* --- Settings --------------------------------------------------------------------------------- */

static bool routing_is_of_signal(const char *pipeline, enum br_signal signal)
{
    const char *name = br_signal_name(signal);
    return br_bytes_are(pipeline, strcspn(pipeline, "/"), name);
}

static bool routing_row_has_signal(const struct routing_row *row, enum br_signal signal)
{
    for (size_t i = 0; i < row->pipelines.count; i++)
        if (routing_is_of_signal(row->pipelines.items[i], signal))
            return true;
    return false;
}

static enum br_condition_context routing_context_of(const struct routing_row *row)
{
    if (row->context == ROUTING_SPAN)
        return BR_CONDITION_SPAN;
    return row->context == ROUTING_PROFILE ? BR_CONDITION_PROFILE : BR_CONDITION_RESOURCE;
}

/* Returns the condition of a statement: the text after "route() where", or "" after "route()".
 * Returns NULL if the statement has another form. */
static const char *routing_condition_of(const char *statement)
{
    static const char *const words[] = {"route", "(", ")", "where"};
    const char *at = statement;
    for (size_t i = 0; i < BR_COUNT(words); i++) {
        at += strspn(at, " \t\r\n");
        if (i == 3 && !*at)
            return at;
        if (!br_text_starts(at, words[i]))
            return NULL;
        at += strlen(words[i]);
    }
    return *at == ' ' || *at == '\t' || *at == '\n' || *at == '\r' || *at == '(' ? at : NULL;
}

/* Sets the condition of a row. */
static int routing_check_texts(struct routing_row *row, const struct br_yaml *node,
                               const char *path, struct br_errs *errs)
{
    bool has_condition = row->condition && *row->condition;
    bool has_statement = row->statement && *row->statement;
    row->text = has_condition ? row->condition : "";
    if (has_condition == has_statement)
        return br_errs_add(errs, node, path,
                           has_condition ? "has both \"condition\" and \"statement\"; keep one"
                                         : "needs a \"condition\"");
    if (has_condition)
        return 0;
    if (row->context == ROUTING_REQUEST)
        return br_errs_add_key(errs, node, path, "statement",
                               "the context \"request\" needs a \"condition\" instead");
    row->text = routing_condition_of(row->statement);
    return row->text ? 0
                     : br_errs_lack(errs, br_yaml_get(node, "statement"), path,
                                    "\"statement\" must be route() where CONDITION");
}

/* Compiles the condition of a row once, to find errors. */
static int routing_check_condition(struct routing_row *row, const struct br_yaml *node,
                                   const char *path, struct br_arena *arena, struct br_errs *errs)
{
    const char *key = row->condition && *row->condition ? "condition" : "statement";
    struct br_conditions conditions = {.count = 0};
    struct br_err err = {0};
    int rc = 0;
    if (row->context == ROUTING_REQUEST)
        rc = routing_request_parse(row, arena, &err);
    for (enum br_signal s = BR_TRACES; row->context != ROUTING_REQUEST && s < BR_SIGNALS; s++)
        if (!rc && *row->text && routing_row_has_signal(row, s))
            rc = br_conditions_add(&conditions, row->text, s, routing_context_of(row), arena, &err);
    br_conditions_release(&conditions);
    if (rc == BR_EINVAL)
        br_errs_add_key(errs, node, path, key, "%s", err.text);
    const char *at = rc == BR_EUNSUPPORTED ? br_arena_printf(arena, "%s::%s", path, key) : NULL;
    if (at)
        br_errs_lack(errs, br_yaml_get(node, key), at, "%s", err.text);
    return rc == BR_EUNSUPPORTED ? BR_EINVAL : rc;
}

static int routing_check_signals(const struct routing_row *row, const struct br_yaml *node,
                                 const char *path, struct br_errs *errs)
{
    enum br_signal other = row->context == ROUTING_SPAN ? BR_PROFILES : BR_TRACES;
    bool one = row->context == ROUTING_SPAN || row->context == ROUTING_PROFILE;
    if (!one || !routing_row_has_signal(row, other))
        return 0;
    return br_errs_add_key(errs, node, path, "pipelines",
                           "a row with the context \"%s\" cannot name pipelines of %s; write a row "
                           "for these",
                           contexts[row->context], br_signal_name(other));
}

static int routing_check_row(struct routing_row *row, const struct br_yaml *node, const char *path,
                             struct br_arena *arena, struct br_errs *errs)
{
    int rc = routing_check_texts(row, node, path, errs);
    if (!rc)
        rc = routing_check_condition(row, node, path, arena, errs);
    int signals = rc == BR_ENOMEM ? 0 : routing_check_signals(row, node, path, errs);
    return rc ? rc : signals;
}

/* Collects the routes, and the metadata keys of the rows. */
static int routing_make_routes(struct routing_config *config, struct br_arena *arena)
{
    size_t n = config->table.count;
    struct br_route_names *routes = br_arena_calloc(arena, n + 1, sizeof *routes);
    config->metadata_keys.items = br_arena_calloc(arena, n + 1, sizeof(char *));
    if (!routes || !config->metadata_keys.items)
        return BR_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct routing_row *row = routing_row(config, i);
        routes[i].pipelines = row->pipelines;
        routes[i].key = br_arena_printf(arena, "table[%zu]::pipelines", i);
        if (!routes[i].key)
            return BR_ENOMEM;
        if (row->key)
            config->metadata_keys.items[config->metadata_keys.count++] = row->key;
    }
    routes[n] = (struct br_route_names){"default_pipelines", config->default_pipelines};
    config->routes = (struct br_routes){routes, n + 1};
    return 0;
}

static int routing_check(void *config, const struct br_yaml *node, const char *path,
                         struct br_arena *arena, struct br_errs *errs)
{
    struct routing_config *settings = config;
    struct routing_row *rows = settings->table.items;
    const struct br_yaml *table = br_yaml_get(node, "table");
    int rc = 0;
    if (!settings->table.count)
        return br_errs_add_key(errs, node, path, "table",
                               "needs at least one row, such as {condition: "
                               "'attributes[\"env\"] == \"prod\"', pipelines: [traces/prod]}");
    for (size_t i = 0; i < settings->table.count && rc != BR_ENOMEM; i++) {
        const struct br_yaml *row = table && table->type == BR_YAML_SEQ ? table->items[i] : table;
        char *at = br_arena_printf(arena, "%s::table[%zu]", path, i);
        int one = at ? routing_check_row(&rows[i], row, at, arena, errs) : BR_ENOMEM;
        rc = one ? one : rc;
    }
    return rc ? rc : routing_make_routes(settings, arena);
}

static const struct br_routes *routing_routes(const void *config)
{
    return &((const struct routing_config *)config)->routes;
}

static const struct br_strings *routing_metadata_keys(const void *config)
{
    return &((const struct routing_config *)config)->metadata_keys;
}

/* --- Life cycle ------------------------------------------------------------------------------- */

static void routing_destroy(struct br_node *node)
{
    struct routing_state *state = node->state;
    const struct routing_config *config = node->config;
    if (state->divisions.next)
        routing_divisions_stop(node);
    for (size_t i = 0; state->conditions && i < config->table.count; i++)
        for (int s = 0; s < BR_SIGNALS; s++)
            br_conditions_release(&state->conditions[i][s]);
    br_arena_release(&state->arena);
}

static int routing_compile(struct routing_state *state, const struct routing_row *row, size_t index,
                           struct br_err *err)
{
    int rc = 0;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS && !rc; s++) {
        struct br_conditions *conditions = &state->conditions[index][s];
        if (row->context == ROUTING_REQUEST || !*row->text || !routing_row_has_signal(row, s))
            continue;
        rc = br_conditions_add(conditions, row->text, s, routing_context_of(row), &state->arena,
                               err);
        if (!rc)
            rc = br_conditions_ready(conditions, &state->time);
    }
    return rc;
}

static int routing_create(struct br_node *node, struct br_err *err)
{
    struct routing_state *state = node->state;
    const struct routing_config *config = node->config;
    br_arena_init(&state->arena, 0);
    br_list_init(&state->divisions);
    state->conditions =
        br_arena_calloc(&state->arena, config->table.count, sizeof *state->conditions);
    int rc = state->conditions ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = 0; i < config->table.count && !rc; i++)
        rc = routing_compile(state, routing_row(config, i), i, err);
    state->gave_up = br_node_metric(node, BR_COUNTER, "braid_routing_gave_up", NULL, NULL);
    return rc;
}

static void routing_drain(struct br_node *node)
{
    struct routing_state *state = node->state;
    if (br_list_empty(&state->divisions))
        br_node_drained(node);
}

/* --- Traffic ---------------------------------------------------------------------------------- */

void routing_fail(struct br_item *item, int rc)
{
    br_item_edit_fail(item, rc, "routing",
                      "a list of attributes is too long, or the request is too large");
}

/* Sends an item without records to the default route. If there is no default route, finishes the
 * item. */
static void routing_forward_empty(struct br_node *node, struct br_item *item)
{
    const struct routing_config *config = node->config;
    if (br_node_has_route(node, item->signal, config->table.count))
        br_node_forward_to(node, config->table.count, item);
    else
        br_item_done(item);
}

/* Returns the route to which all records of the item are moved, or SIZE_MAX if the item has to be
 * divided. */
static size_t routing_only_route(const struct routing_selection *selection,
                                 const struct br_item *item)
{
    size_t only = SIZE_MAX;
    for (size_t i = 0; i < selection->n_rows; i++)
        if (selection->n_copied[i])
            return SIZE_MAX;
    for (size_t i = 0; i < selection->n_rows + 2; i++)
        if (selection->n_moved[i] == item->n_records)
            only = i;
    return only;
}

static void routing_consume(struct br_node *node, struct br_item *item)
{
    struct routing_selection selection;
    struct br_mem_scope scope;
    if (item->n_records == 0) {
        routing_forward_empty(node, item);
        return;
    }
    br_item_edit_begin(&scope, item);
    int rc = br_item_edit_end(&scope, routing_select(node, item, &selection));
    if (rc) {
        routing_fail(item, rc);
        return;
    }
    size_t route = routing_only_route(&selection, item);
    if (route <= selection.n_rows) {
        br_node_forward_to(node, route, item);
    } else if (route == selection.n_rows + 1) {
        br_item_report(item, BR_RESULT_DROPPED, "unrouted", item->n_pending);
        br_item_done(item);
    } else {
        routing_divide(node, item, &selection);
    }
}

extern const struct br_component br_routing_connector;
const struct br_component br_routing_connector = {
    .name = "routing",
    .kind = BR_CONNECTOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "sends records to the pipelines of the first condition that they match",
    .options = options,
    .config_size = sizeof(struct routing_config),
    .state_size = sizeof(struct routing_state),
    .metadata_keys = routing_metadata_keys,
    .routes = routing_routes,
    .check = routing_check,
    .create = routing_create,
    .consume = routing_consume,
    .drain = routing_drain,
    .destroy = routing_destroy,
};
