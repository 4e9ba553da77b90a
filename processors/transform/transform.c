/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transform processor changes spans, profiles and samples with statements of the Collector's
 * language (OTTL). As in the Collector, each group of statements runs on all messages of its
 * context before the next group runs.
 */
#include "processors/transform/transform.h"

#include <stdio.h>

#define CACHE_MAX (64u << 20) /* largest size of the shared caches of a request, in bytes */

const char *const transform_error_modes[] = {"ignore", "silent", "propagate", NULL};

#define FOR_A_SIGNAL "option of the Collector for a signal that Braid does not support"

static const struct br_option options[] = {
    BR_ENUM(struct transform_config, error_mode, "ignore", transform_error_modes,
            "what happens if a statement or condition fails: ignore logs the failure and goes on, "
            "silent goes on, propagate rejects the request"),
    BR_VALUE(struct transform_config, trace_statements,
             "statements for spans, span events, scopes and resources, or groups of statements"),
    BR_VALUE(struct transform_config, profile_statements,
             "statements for profiles, samples, scopes and resources, or groups of statements"),
    BR_DURATION(struct transform_config, match_time, "20ms",
                "CPU time for matching all patterns against a request, in addition to 20 ns per "
                "byte; a request that needs more is rejected"),
    BR_IGNORED("flatten_data", "option of the Collector for logs only"),
    BR_IGNORED("log_statements", FOR_A_SIGNAL),
    BR_IGNORED("metric_statements", FOR_A_SIGNAL),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static int transform_check(void *config, const struct br_yaml *node, const char *path,
                           struct br_arena *arena, struct br_errs *errs)
{
    const struct transform_config *settings = config;
    int rc = 0;
    bool empty = true;
    for (int i = 0; i < BR_SIGNALS && rc != BR_ENOMEM; i++) {
        struct transform_signal signal = {.first = NULL};
        int one = transform_compile(&signal, settings, (enum br_signal)i, path, arena, errs);
        rc = one ? one : rc;
        empty = empty && !signal.first;
        br_conditions_release(&signal.conditions);
    }
    if (!rc && empty)
        br_errs_warn(errs, node, path, "it has no statements: nothing is changed");
    return rc;
}

static void transform_destroy(struct br_node *node)
{
    struct transform_state *state = node->state;
    for (int i = 0; i < BR_SIGNALS; i++)
        br_conditions_release(&state->signals[i].conditions);
    for (int i = 0; i < BR_CONTEXTS; i++)
        br_attributes_release(&state->caches[i].list);
    br_attributes_release(&state->cache.list);
    br_arena_release(&state->cache_arena);
    br_arena_release(&state->arena);
}

static int transform_create(struct br_node *node, struct br_err *err)
{
    struct transform_state *state = node->state;
    int rc = 0;
    br_arena_init(&state->arena, 0);
    br_arena_init(&state->cache_arena, CACHE_MAX);
    for (int i = 0; i < BR_SIGNALS && !rc; i++) {
        struct transform_signal *signal = &state->signals[i];
        rc = transform_compile(signal, node->config, (enum br_signal)i, "", &state->arena, NULL);
        if (!rc)
            rc = br_conditions_ready(&signal->conditions, &state->time);
        signal->conditions.edits = true;
    }
    if (rc) {
        transform_destroy(node);
        return br_err_set(err, rc, rc == BR_ENOMEM ? "out of memory" : "invalid statements");
    }
    state->failed = br_node_metric(node, BR_COUNTER, "braid_transform_failed", NULL, NULL);
    return 0;
}

/* --- Traffic --------------------------------------------------------------------------------- */

static void transform_finish(const struct br_conditions *conditions, struct br_item *item, int rc)
{
    char text[sizeof item->outcome.text];
    const char *why = "malformed data";
    if (rc != BR_EFULL && rc != BR_EINVAL) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "transform: out of memory");
        return;
    }
    if (rc == BR_EFULL)
        why = conditions->limit ? conditions->limit
                                : "a list of attributes is too long, or the result is too large";
    else if (conditions->failed)
        why = conditions->why;
    (void)snprintf(text, sizeof text, "transform: %.160s", why);
    br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, text);
}

static void transform_consume(struct br_node *node, struct br_item *item)
{
    struct transform_state *state = node->state;
    const struct transform_config *config = node->config;
    struct transform_signal *signal = &state->signals[item->signal];
    struct br_mem_scope scope;
    int rc = 0;
    br_regex_time_begin(&state->time, config->match_time, item);
    br_item_edit_begin(&scope, item);
    for (int i = 0; i < BR_CONTEXTS; i++)
        br_message_clear(&state->caches[i], &state->cache_arena);
    state->work_left = UINT64_MAX;
    signal->conditions.failed = false;
    for (struct transform_group *i = signal->first; i && !rc; i = i->next)
        rc = transform_run(node, i, item);
    br_arena_release(&state->cache_arena);
    rc = br_item_edit_end(&scope, rc);
    if (rc)
        transform_finish(&signal->conditions, item, rc);
    else
        br_node_forward(node, item);
}

extern const struct br_component br_transform_processor;
const struct br_component br_transform_processor = {
    .name = "transform",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "alpha",
    .help = "changes spans, profiles and samples with statements",
    .options = options,
    .config_size = sizeof(struct transform_config),
    .state_size = sizeof(struct transform_state),
    .check = transform_check,
    .create = transform_create,
    .consume = transform_consume,
    .destroy = transform_destroy,
};
