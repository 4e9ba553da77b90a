/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The failover connector sends requests to the pipelines of the first level that works. Each worker
 * has a current level for each signal:
 *
 * | event                                        | next current level                            |
 * |----------------------------------------------|-----------------------------------------------|
 * | the current level refuses a request for now  | the next level, if there is one               |
 * | a higher level accepts a probe               | that level                                    |
 *
 * A level is an entry of `priority_levels`. If a level does not accept a request, the request is
 * offered to the next level. While the current level is not the first one, one request per interval
 * is a probe: it is offered to the levels in order, beginning with the first level.
 */
#include <string.h>

#include "base/mem.h"
#include "config/parts.h"
#include "pipeline/component.h"

#define ALL_DOWN_PROBE_MS                                                                          \
    1000 /* milliseconds between two probes while all levels refuse requests */
#define NO_LEVEL SIZE_MAX

struct config {
    const struct br_yaml *priority_levels;
    uint64_t retry_interval; /* nanoseconds between two probes */
    struct br_routes levels; /* the configured priority levels; set when the settings are checked */
};

/* The current level of a signal. */
struct current {
    size_t level;
    uint64_t probe_ms; /* time from which the next request is a probe */
    double *n_switches;
};

struct state {
    struct current current[BR_SIGNALS];
    struct br_list deliveries; /* list of struct delivery */
    struct br_log_limit limit;
};

/* A request that is being offered to a level. */
struct delivery {
    struct br_delivery base;
    size_t level;
    bool probe;
};

static const struct br_option options[] = {
    {.name = "priority_levels",
     .kind = BR_OPT_VALUE,
     .offset = BR_OPT_FIELD(struct config, priority_levels, const struct br_yaml *),
     .required = true,
     .help = "list of levels, from the highest to the lowest priority; a level is a list of ids "
             "of pipelines"},
    BR_DURATION(struct config, retry_interval, "10m",
                "time between two tries to return to a level of a higher priority"),
    BR_IGNORED("retry_gap", "the levels of a higher priority are tried one after the other with "
                            "one request; the Collector ignores this key, too"),
    BR_IGNORED("max_retries",
               "the number of tries is not limited; the Collector ignores this key, too"),
    BR_IGNORED("sending_queue", "a request is answered when a level has accepted it"),
    BR_OPT_END,
};

/* --- Settings --------------------------------------------------------------------------------- */

/* Reads a level, which is a list of ids or one id. */
static int failover_read_level(const struct br_yaml *node, const char *path,
                               struct br_route_names *ret, struct br_arena *arena,
                               struct br_errs *errs)
{
    bool seq = node->type == BR_YAML_SEQ;
    size_t n = seq ? node->count : 1;
    char shown[BR_SHOWN_SIZE];
    ret->pipelines.items = br_arena_calloc(arena, n + 1, sizeof(char *));
    if (!ret->pipelines.items)
        return BR_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct br_yaml *id = seq ? node->items[i] : node;
        if (id->type != BR_YAML_SCALAR)
            return br_errs_add(errs, id, path, "must be a list of ids of pipelines, got %s",
                               br_yaml_show(id, shown));
        ret->pipelines.items[ret->pipelines.count++] = id->text;
    }
    return n ? 0 : br_errs_add(errs, node, path, "a level needs at least one pipeline");
}

static int failover_check(void *config, const struct br_yaml *node, const char *path,
                          struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    const struct br_yaml *list = settings->priority_levels;
    if (!list || list->type != BR_YAML_SEQ || !list->count)
        return br_errs_add_key(errs, node, path, "priority_levels",
                               "must be a list of levels, such as [[traces/first], "
                               "[traces/second]]");
    if (!settings->retry_interval)
        return br_errs_add_key(errs, node, path, "retry_interval", "must be longer than 0s");
    struct br_route_names *levels = br_arena_calloc(arena, list->count, sizeof *levels);
    if (!levels)
        return BR_ENOMEM;
    int rc = 0;
    for (size_t i = 0; i < list->count && rc != BR_ENOMEM; i++) {
        char *at = br_arena_printf(arena, "%s::priority_levels[%zu]", path, i);
        levels[i].key = br_arena_printf(arena, "priority_levels[%zu]", i);
        int one = at && levels[i].key
                      ? failover_read_level(list->items[i], at, &levels[i], arena, errs)
                      : BR_ENOMEM;
        rc = one ? one : rc;
    }
    if (!rc)
        settings->levels = (struct br_routes){levels, list->count};
    return rc;
}

static const struct br_routes *failover_routes(const void *config)
{
    return &((const struct config *)config)->levels;
}

/* --- Levels ----------------------------------------------------------------------------------- */

/* Returns the first level, beginning at `from`, that has a pipeline for the signal; NO_LEVEL: there
 * is no such level. */
static size_t failover_level_from(const struct br_node *node, enum br_signal signal, size_t from)
{
    const struct config *config = node->config;
    for (size_t i = from; i < config->levels.count; i++)
        if (br_node_has_route(node, signal, i))
            return i;
    return NO_LEVEL;
}

static const char *failover_name(const struct br_node *node, size_t level)
{
    const struct config *config = node->config;
    return config->levels.items[level].key;
}

/* Makes the next level the current level. If there is no next level, only ensures that the next
 * probe is made within ALL_DOWN_PROBE_MS. */
static void failover_go_down(struct br_node *node, enum br_signal signal,
                             const struct br_outcome *why)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct current *current = &state->current[signal];
    size_t next = failover_level_from(node, signal, current->level + 1);
    uint64_t now_ms = br_host_mono_ms(node->host);
    if (next == NO_LEVEL) {
        if (current->probe_ms > now_ms + ALL_DOWN_PROBE_MS)
            current->probe_ms = now_ms + ALL_DOWN_PROBE_MS;
        return;
    }
    br_node_warn(node, &state->limit, "%s refuses %s (%s: %s); using %s",
                 failover_name(node, current->level), br_signal_name(signal),
                 br_status_name(why->status), why->text, failover_name(node, next));
    current->level = next;
    current->probe_ms = now_ms + config->retry_interval / 1000000;
    ++*current->n_switches;
}

static void failover_go_up(struct br_node *node, enum br_signal signal, size_t level)
{
    struct state *state = node->state;
    br_info(&node->log, "%s accepts %s again", failover_name(node, level), br_signal_name(signal));
    state->current[signal].level = level;
    ++*state->current[signal].n_switches;
}

/* --- Traffic ---------------------------------------------------------------------------------- */

static void failover_offer(struct delivery *delivery);

/* Returns the level to which a delivery is offered next, or NO_LEVEL. */
static size_t failover_next_level(const struct delivery *delivery)
{
    const struct state *state = delivery->base.node->state;
    enum br_signal signal = delivery->base.item->signal;
    size_t next = delivery->level + 1, current = state->current[signal].level;
    if (!delivery->probe && next < current)
        next = current;
    return failover_level_from(delivery->base.node, signal, next);
}

static void failover_on_attempt(struct br_item *attempt, void *arg)
{
    struct delivery *delivery = arg;
    struct br_node *node = delivery->base.node;
    const struct br_outcome *outcome = &attempt->outcome;
    enum br_signal signal = attempt->signal;
    if (!node || node->ending) {
        br_delivery_end(&delivery->base, outcome);
        return;
    }
    const struct state *state = node->state;
    size_t current = state->current[signal].level;
    if (outcome->verdict == BR_DONE && delivery->probe && delivery->level < current)
        failover_go_up(node, signal, delivery->level);
    if (outcome->verdict == BR_RETRY && delivery->level == current)
        failover_go_down(node, signal, outcome);
    size_t next = outcome->verdict == BR_DONE ? NO_LEVEL : failover_next_level(delivery);
    if (next == NO_LEVEL) {
        br_delivery_end(&delivery->base, outcome);
        return;
    }
    delivery->level = next;
    failover_offer(delivery);
}

static void failover_offer(struct delivery *delivery)
{
    struct br_item *attempt = br_item_attempt(delivery->base.item, failover_on_attempt, delivery);
    if (attempt) {
        br_node_forward_to(delivery->base.node, delivery->level, attempt);
        return;
    }
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    br_delivery_end(&delivery->base, &outcome);
}

/* Returns true if the next request has to be a probe, and plans the next probe. */
static bool failover_is_probe(const struct br_node *node, struct current *current, size_t first)
{
    const struct config *config = node->config;
    uint64_t now_ms = br_host_mono_ms(node->host);
    if (current->level <= first || now_ms < current->probe_ms)
        return false;
    current->probe_ms = now_ms + config->retry_interval / 1000000;
    return true;
}

static void failover_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    struct current *current = &state->current[item->signal];
    size_t first = failover_level_from(node, item->signal, 0);
    struct delivery *delivery = first == NO_LEVEL ? NULL : br_calloc(1, sizeof *delivery);
    if (!delivery) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000,
                      first == NO_LEVEL ? "no level has a pipeline of this signal"
                                        : "out of memory");
        return;
    }
    if (current->level < first)
        current->level = first;
    br_delivery_begin(&delivery->base, &state->deliveries, node, item);
    delivery->probe = failover_is_probe(node, current, first);
    delivery->level = delivery->probe ? first : current->level;
    failover_offer(delivery);
}

/* --- Life cycle ------------------------------------------------------------------------------- */

static int failover_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    (void)err;
    br_list_init(&state->deliveries);
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        state->current[s].n_switches = br_node_metric(node, BR_COUNTER, "braid_failover_switches",
                                                      "otel_signal", br_signal_name(s));
    return 0;
}

static void failover_drain(struct br_node *node)
{
    struct state *state = node->state;
    if (br_list_empty(&state->deliveries))
        br_node_drained(node);
}

/* A delivery in progress is not offered to further levels; it ends with its current attempt. */
static void failover_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_deliveries_release(&state->deliveries);
}

extern const struct br_component br_failover_connector;
const struct br_component br_failover_connector = {
    .name = "failover",
    .kind = BR_CONNECTOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "sends requests to the first of several levels of pipelines that accepts them",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .routes = failover_routes,
    .check = failover_check,
    .create = failover_create,
    .consume = failover_consume,
    .drain = failover_drain,
    .destroy = failover_destroy,
};
