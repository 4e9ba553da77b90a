/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes processor applies the Collector's actions to the attributes of spans, samples and
 * profiles (profiles.c).
 */
#include "processors/attributes/attributes.h"

#define SPAN_ATTRIBUTES 9
#define SCRATCH_MAX (256u << 20)

static const char *const targets[] = {"both", "samples", "profiles", NULL};

static const struct br_option options[] = {
    BR_LIST(struct attributes_config, actions, struct br_rule_config, br_rule_options,
            "actions on attributes, applied in order"),
    {.name = "include",
     .kind = BR_OPT_PRESENT,
     .offset = offsetof(struct attributes_config, include),
     .sub = br_match_options,
     .size = sizeof(struct br_match_config),
     .help = "criteria of the spans or samples that are changed; default: all are changed"},
    {.name = "exclude",
     .kind = BR_OPT_PRESENT,
     .offset = offsetof(struct attributes_config, exclude),
     .sub = br_match_options,
     .size = sizeof(struct br_match_config),
     .help = "criteria of spans or samples that are not changed although `include` matches them; "
             "default: none"},
    BR_ENUM(struct attributes_config, apply_to, "both", targets,
            "in profile data: which attributes are changed, those of samples, those of profiles, "
            "or both"),
    BR_DURATION(
        struct attributes_config, match_time, "20ms",
        "CPU time for matching all patterns against a request, in addition to 20 ns per byte; when "
        "it is used up, delete and hash apply to all keys, and other patterns match nothing"),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static int attributes_processor_check(void *config, const struct br_yaml *node, const char *path,
                                      struct br_arena *arena, struct br_errs *errs)
{
    struct attributes_config *attributes_config = config;
    int rc = br_rules_check(&attributes_config->actions, "actions", node, path, arena, errs);
    int match = br_match_check(attributes_config->include, attributes_config->exclude, node, path,
                               arena, errs);
    rc = match == BR_ENOMEM || !rc ? match : rc;
    return rc ? rc
              : br_rules_headers(&attributes_config->actions, arena, &attributes_config->headers);
}

static void attributes_processor_destroy(struct br_node *node)
{
    struct attributes_state *state = node->state;
    br_matcher_release(&state->matcher);
    br_rules_release(&state->rules);
    br_attributes_release(&state->list);
    br_buf_unref(state->body);
    br_arena_release(&state->scratch);
    br_arena_release(&state->arena);
}

static int attributes_processor_create(struct br_node *node, struct br_err *err)
{
    struct attributes_state *state = node->state;
    const struct attributes_config *config = node->config;
    struct br_rule_problem problem = {0};
    br_arena_init(&state->arena, 0);
    br_arena_init(&state->scratch, SCRATCH_MAX);
    state->list.arena = &state->scratch;
    int rc = br_rules_compile(config->actions.items, config->actions.count, &state->arena,
                              &state->rules, &problem);
    if (rc)
        rc = br_err_set(err, rc, "%s", rc == BR_ENOMEM ? "out of memory" : problem.text);
    else
        rc = br_matcher_init(&state->matcher, config->include, config->exclude, &state->arena, err);
    if (rc) {
        attributes_processor_destroy(node);
        return rc;
    }
    br_regex_bound(&state->rules.regex, &state->time);
    br_regex_bound(&state->matcher.regex, &state->time);
    state->gave_up = br_node_metric(node, BR_COUNTER, "braid_attributes_gave_up", NULL, NULL);
    return 0;
}

/* --- Spans ----------------------------------------------------------------------------------- */

int attributes_problem(const struct br_attributes *list)
{
    return list->too_many ? BR_EFULL : BR_ENOMEM;
}

struct run {
    struct br_node *node;
    const char *metadata;
};

static int attributes_processor_rewrite_span(void *arg, struct br_visit *visit)
{
    const struct run *run = arg;
    struct attributes_state *state = run->node->state;
    struct br_attributes *list = &state->list;
    if (!br_attributes_read(list, SPAN_ATTRIBUTES, visit->body, visit->len) ||
        !br_rules_apply(&state->rules, list, run->metadata))
        return attributes_problem(list);
    if (!br_attributes_changed(list))
        return BR_KEEP;
    size_t size = br_attributes_size(list);
    if (br_buf_prepare(&state->body, run->node->host->pool, size))
        return BR_ENOMEM;
    (void)br_attributes_write(list, state->body->data);
    visit->out = (struct br_addition){state->body->data, size};
    return BR_REPLACE;
}

/* --- Traffic --------------------------------------------------------------------------------- */

static void attributes_processor_consume(struct br_node *node, struct br_item *item)
{
    struct attributes_state *state = node->state;
    const struct attributes_config *config = node->config;
    struct run run = {.node = node, .metadata = item->metadata};
    struct br_mem_scope scope;
    br_regex_time_begin(&state->time, config->match_time, item);
    br_item_edit_begin(&scope, item);
    int rc = br_matcher_begin(&state->matcher, item);
    if (!rc)
        rc = item->signal == BR_TRACES
                 ? br_matcher_rewrite(&state->matcher, 1u << BR_LEVEL_RECORD, &state->scratch,
                                      attributes_processor_rewrite_span, &run)
                 : attributes_profiles(node, item);
    br_matcher_end(&state->matcher);
    rc = br_item_edit_end(&scope, rc);
    br_node_count_gave_up(node, state->gave_up, state->matcher.n_gave_up + state->list.n_gave_up,
                          &state->limit, "matching a pattern took too long");
    state->matcher.n_gave_up = state->list.n_gave_up = 0;
    if (rc)
        br_item_edit_fail(item, rc, "attributes",
                          "a list of attributes is too long, or the result is too large");
    else
        br_node_forward(node, item);
}

static const struct br_strings *attributes_processor_metadata_keys(const void *config)
{
    return &((const struct attributes_config *)config)->headers;
}

extern const struct br_component br_attributes_processor;
const struct br_component br_attributes_processor = {
    .name = "attributes",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "changes the attributes of spans, samples and profiles",
    .options = options,
    .config_size = sizeof(struct attributes_config),
    .state_size = sizeof(struct attributes_state),
    .metadata_keys = attributes_processor_metadata_keys,
    .check = attributes_processor_check,
    .create = attributes_processor_create,
    .consume = attributes_processor_consume,
    .destroy = attributes_processor_destroy,
};
