/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter processor drops spans and samples that match `exclude` or do not match `include`. The
 * processor supports the strict and regexp forms of the Collector's filter processor, and OTTL
 * conditions.
 */
#include <stdio.h>
#include <string.h>

#include "attribute/match.h"
#include "attribute/statement.h"
#include "otlp/edit/rewrite.h"
#include "pipeline/component.h"

struct side {
    const struct br_match_config *include, *exclude;
    /* OTTL conditions on resources (`resource`) and on profiles (`profile`) */
    struct br_strings resource, profile;
};

struct traces {
    struct br_strings resource, span;
    const struct br_yaml *spanevent;
};

/* Conditions whose paths begin with the name of their context, as in `span.name`. `nodes` and
 * `paths` contain the position of each condition of `texts` in the config. */
struct named {
    struct br_strings texts;
    const struct br_yaml **nodes;
    const char **paths;
};

struct config {
    struct side spans, profiles;
    /* processor time, in nanoseconds, that regular expressions may take for an item, in addition
     * to 20 ns per byte */
    uint64_t match_time;
    int error_mode; /* enum br_error_mode */
    struct traces traces;
    const struct br_yaml *trace_conditions, *profile_conditions;
    /* conditions in trace_conditions and in profile_conditions */
    struct named trace_named, profile_named;
};

struct state {
    struct br_arena arena; /* memory of the matchers */
    struct br_matcher matchers[BR_SIGNALS];
    struct br_conditions conditions[BR_SIGNALS];
    struct br_regex_time time; /* time that regular expressions took for the current item */
    double *gave_up, *failed;
    struct br_log_limit limit, failed_limit;
};

#define MATCH(field, table, text)                                                                  \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_PRESENT, .offset = offsetof(struct side, field),            \
        .sub = (table), .size = sizeof(struct br_match_config), .help = (text)                     \
    }
#define ANY_OF                                                                                     \
    "conditions in the Collector's expression language; if one of them is true, it drops "

/* in the order of enum br_error_mode */
static const char *const error_modes[] = {"ignore", "silent", "propagate", NULL};

static const struct br_option span_options[] = {
    MATCH(include, br_match_span_options,
          "criteria of the spans that are kept; default: all are kept"),
    MATCH(exclude, br_match_span_options,
          "criteria of spans that are dropped although `include` matches them; default: none"),
    BR_OPT_END,
};

static const struct br_option profile_options[] = {
    MATCH(include, br_match_profile_options,
          "criteria of the samples that are kept; default: all are kept"),
    MATCH(exclude, br_match_profile_options,
          "criteria of samples that are dropped although `include` matches them; default: none"),
    BR_STRINGS(struct side, resource, ANY_OF "all samples of a resource"),
    BR_STRINGS(struct side, profile, ANY_OF "all samples of a profile"),
    BR_OPT_END,
};

static const struct br_option trace_options[] = {
    BR_STRINGS(struct traces, resource, ANY_OF "all spans of a resource"),
    BR_STRINGS(struct traces, span, ANY_OF "a span"),
    BR_VALUE(struct traces, spanevent, "conditions that drop span events; not supported"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRUCT(struct config, spans, span_options, "criteria for spans"),
    BR_STRUCT(struct config, profiles, profile_options, "criteria and conditions for samples"),
    BR_DURATION(struct config, match_time, "20ms",
                "CPU time for matching all patterns against a request, in addition to 20 ns per "
                "byte; when it is used up, no pattern matches"),
    BR_STRUCT(struct config, traces, trace_options, "conditions for spans"),
    BR_VALUE(struct config, trace_conditions,
             ANY_OF "a span; paths must begin with their context, such as span.name"),
    BR_VALUE(struct config, profile_conditions,
             ANY_OF "a sample; paths must begin with their context, such as profile.attributes"),
    BR_ENUM(struct config, error_mode, "ignore", error_modes,
            "what happens if a condition fails: ignore logs the failure and takes the condition as "
            "false, silent takes it as false, propagate rejects the request"),
    BR_IGNORED("logs", "option of the Collector for a signal that Braid does not support"),
    BR_IGNORED("log_conditions",
               "option of the Collector for a signal that Braid does not support"),
    BR_IGNORED("metrics", "option of the Collector for a signal that Braid does not support"),
    BR_IGNORED("metric_conditions",
               "option of the Collector for a signal that Braid does not support"),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static int filter_check_matches(const struct side *side, const struct br_yaml *node,
                                const char *path, const char *name, struct br_arena *arena,
                                struct br_errs *errs)
{
    const struct br_yaml *at = br_yaml_get(node, name);
    const char *where = br_arena_printf(arena, "%s::%s", path, name);
    if (!where)
        return BR_ENOMEM;
    return br_match_check(side->include, side->exclude, at ? at : node, where, arena, errs);
}

/* One list of conditions in the config. `section` is NULL for a list at the top level. */
struct list {
    const struct br_strings *texts;
    /* conditions with their positions in the config; NULL: the list is the value of `key` */
    const struct named *named;
    const char *section, *key;
    enum br_signal signal;
    enum br_condition_context context;
};

#define LISTS 6

static void filter_lists(const struct config *config, struct list ret[LISTS])
{
    const struct list lists[LISTS] = {
        {&config->traces.resource, NULL, "traces", "resource", BR_TRACES, BR_CONDITION_RESOURCE},
        {&config->traces.span, NULL, "traces", "span", BR_TRACES, BR_CONDITION_SPAN},
        {&config->trace_named.texts, &config->trace_named, NULL, "trace_conditions", BR_TRACES,
         BR_CONDITION_NAMED},
        {&config->profiles.resource, NULL, "profiles", "resource", BR_PROFILES,
         BR_CONDITION_RESOURCE},
        {&config->profiles.profile, NULL, "profiles", "profile", BR_PROFILES, BR_CONDITION_PROFILE},
        {&config->profile_named.texts, &config->profile_named, NULL, "profile_conditions",
         BR_PROFILES, BR_CONDITION_NAMED},
    };
    memcpy(ret, lists, sizeof lists);
}

/* Compiles each condition of a list. If a condition cannot be compiled, reports an error with the
 * position of the condition in the config. */
static int filter_check_list(const struct list *list, const struct br_yaml *node, const char *path,
                             struct br_arena *arena, struct br_errs *errs)
{
    struct br_conditions conditions = {.count = 0};
    const struct br_yaml *section = list->section ? br_yaml_get(node, list->section) : node;
    const struct br_yaml *texts = br_yaml_get(section, list->key);
    int rc = 0;
    for (size_t i = 0; i < list->texts->count && rc != BR_ENOMEM; i++) {
        struct br_err err = {0};
        int one = br_conditions_add(&conditions, list->texts->items[i], list->signal, list->context,
                                    arena, &err);
        rc = one ? one : rc;
        bool seq = texts && texts->type == BR_YAML_SEQ;
        const struct br_yaml *text = seq ? texts->items[i] : texts;
        if (list->named)
            text = list->named->nodes[i];
        const char *at = list->named ? list->named->paths[i]
                                     : br_arena_printf(arena, "%s::%s::%s[%zu]", path,
                                                       list->section, list->key, i);
        if (!at)
            rc = BR_ENOMEM;
        else if (one == BR_EINVAL)
            br_errs_add(errs, text, at, "%s", err.text);
        else if (one == BR_EUNSUPPORTED)
            br_errs_lack(errs, text, at, "%s", err.text);
    }
    br_conditions_release(&conditions);
    return rc;
}

static int filter_check_conditions(const struct config *config, const struct br_yaml *node,
                                   const char *path, struct br_arena *arena, struct br_errs *errs)
{
    struct list lists[LISTS];
    int rc = 0;
    filter_lists(config, lists);
    for (size_t i = 0; i < LISTS && rc != BR_ENOMEM; i++) {
        int one = filter_check_list(&lists[i], node, path, arena, errs);
        rc = one ? one : rc;
    }
    if (rc == BR_ENOMEM || !config->traces.spanevent ||
        config->traces.spanevent->type == BR_YAML_NULL)
        return rc;
    char *at = br_arena_printf(arena, "%s::traces::spanevent", path);
    return at ? br_errs_lack(errs, config->traces.spanevent, at, "%s", BR_CONDITION_NO_EVENTS)
              : BR_ENOMEM;
}

static int filter_add_named(struct named *named, const struct br_yaml *text, const char *path,
                            struct br_errs *errs)
{
    if (!path)
        return BR_ENOMEM;
    if (text->type != BR_YAML_SCALAR)
        return br_errs_add(
            errs, text, path,
            "must be conditions, or maps with a list of conditions under \"conditions\"");
    named->nodes[named->texts.count] = text;
    named->paths[named->texts.count] = path;
    named->texts.items[named->texts.count++] = text->text;
    return 0;
}

/* Adds the list element at `path`, which is a condition or a group of conditions. */
static int filter_add_group(struct named *named, const struct br_yaml *item, const char *path,
                            struct br_arena *arena, struct br_errs *errs)
{
    const struct br_yaml *group = br_yaml_get(item, "conditions");
    bool many = group && group->type == BR_YAML_SEQ;
    int rc = 0;
    if (!path)
        return BR_ENOMEM;
    if (!group)
        return filter_add_named(named, item, path, errs);
    if (group->type == BR_YAML_NULL)
        return 0;
    for (size_t i = 0; i < (many ? group->count : 1) && rc != BR_ENOMEM; i++) {
        const char *at = many ? br_arena_printf(arena, "%s::conditions[%zu]", path, i)
                              : br_arena_printf(arena, "%s::conditions", path);
        int one = filter_add_named(named, many ? group->items[i] : group, at, errs);
        rc = one ? one : rc;
    }
    return rc;
}

/* Reads a list of conditions and groups. A group is a map with conditions under `conditions`.
 * Its other keys are ignored, because the paths of the conditions name their context. */
static int filter_read_named(struct named *named, const struct br_yaml *list, const char *path,
                             const char *key, struct br_arena *arena, struct br_errs *errs)
{
    if (!list || list->type == BR_YAML_NULL)
        return 0;
    bool seq = list->type == BR_YAML_SEQ;
    size_t count = seq ? list->count : 1, most = 0;
    const struct br_yaml *const *items = seq ? (const struct br_yaml *const *)list->items : &list;
    for (size_t i = 0; i < count; i++) {
        const struct br_yaml *group = br_yaml_get(items[i], "conditions");
        most += group && group->type == BR_YAML_SEQ ? group->count : 1;
    }
    named->texts.items = br_arena_calloc(arena, most + 1, sizeof *named->texts.items);
    named->nodes = br_arena_calloc(arena, most + 1, sizeof *named->nodes);
    named->paths = br_arena_calloc(arena, most + 1, sizeof *named->paths);
    if (!named->texts.items || !named->nodes || !named->paths)
        return BR_ENOMEM;
    int rc = 0;
    for (size_t i = 0; i < count && rc != BR_ENOMEM; i++) {
        const char *at = seq ? br_arena_printf(arena, "%s::%s[%zu]", path, key, i)
                             : br_arena_printf(arena, "%s::%s", path, key);
        int one = filter_add_group(named, items[i], at, arena, errs);
        rc = one ? one : rc;
    }
    return rc;
}

static bool filter_is_empty(const struct config *config)
{
    size_t n = config->spans.include || config->spans.exclude || config->profiles.include ||
               config->profiles.exclude;
    struct list lists[LISTS];
    filter_lists(config, lists);
    for (size_t i = 0; i < LISTS; i++)
        n += lists[i].texts->count;
    return n == 0;
}

static int filter_check(void *config, const struct br_yaml *node, const char *path,
                        struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    int rc = filter_check_matches(&settings->spans, node, path, "spans", arena, errs);
    if (rc != BR_ENOMEM) {
        int other = filter_read_named(&settings->trace_named, settings->trace_conditions, path,
                                      "trace_conditions", arena, errs);
        rc = other ? other : rc;
    }
    if (rc != BR_ENOMEM) {
        int other = filter_read_named(&settings->profile_named, settings->profile_conditions, path,
                                      "profile_conditions", arena, errs);
        rc = other ? other : rc;
    }
    if (rc != BR_ENOMEM) {
        int other = filter_check_matches(&settings->profiles, node, path, "profiles", arena, errs);
        rc = rc ? rc : other;
    }
    if (rc != BR_ENOMEM) {
        int other = filter_check_conditions(settings, node, path, arena, errs);
        rc = other ? other : rc;
    }
    if (!rc && filter_is_empty(settings))
        br_errs_warn(errs, node, path,
                     "it has neither include, exclude nor conditions: nothing is dropped");
    return rc;
}

static void filter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    for (int i = 0; i < BR_SIGNALS; i++)
        br_matcher_release(&state->matchers[i]);
    for (int i = 0; i < BR_SIGNALS; i++)
        br_conditions_release(&state->conditions[i]);
    br_arena_release(&state->arena);
}

static int filter_compile(struct state *state, const struct config *config, struct br_err *err)
{
    struct list lists[LISTS];
    int rc = 0;
    filter_lists(config, lists);
    for (size_t i = 0; i < LISTS; i++)
        for (size_t k = 0; k < lists[i].texts->count && !rc; k++)
            rc = br_conditions_add(&state->conditions[lists[i].signal], lists[i].texts->items[k],
                                   lists[i].signal, lists[i].context, &state->arena, err);
    for (int i = 0; i < BR_SIGNALS && !rc; i++)
        rc = br_conditions_ready(&state->conditions[i], &state->time);
    return rc;
}

static int filter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    br_arena_init(&state->arena, 0);
    int rc = br_matcher_init(&state->matchers[BR_TRACES], config->spans.include,
                             config->spans.exclude, &state->arena, err);
    if (!rc)
        rc = br_matcher_init(&state->matchers[BR_PROFILES], config->profiles.include,
                             config->profiles.exclude, &state->arena, err);
    if (!rc)
        rc = filter_compile(state, config, err);
    if (rc) {
        filter_destroy(node);
        return rc;
    }
    for (int i = 0; i < BR_SIGNALS; i++)
        br_regex_bound(&state->matchers[i].regex, &state->time);
    state->gave_up = br_node_metric(node, BR_COUNTER, "braid_filter_gave_up", NULL, NULL);
    state->failed = br_node_metric(node, BR_COUNTER, "braid_filter_failed", NULL, NULL);
    return 0;
}

/* --- Traffic --------------------------------------------------------------------------------- */

/* The argument of filter_on_item. */
struct filtering {
    struct br_matcher *matcher;
    /* OTTL conditions; NULL if the config contains no OTTL conditions */
    struct br_conditions *conditions;
    /* true if a condition that fails ends the processing of the item (error_mode: propagate) */
    bool propagate;
};

static int filter_on_item(void *arg, struct br_visit *visit)
{
    const struct filtering *filtering = arg;
    int passes = br_matcher_passes(filtering->matcher, visit);
    if (passes < 0)
        return passes;
    if (!passes)
        return BR_DROP;
    int holds = filtering->conditions ? br_conditions_hold(filtering->conditions, visit) : 0;
    if (holds < 0)
        return holds;
    if (filtering->propagate && filtering->conditions && filtering->conditions->n_failed)
        return BR_EPROTO;
    return holds ? BR_DROP : BR_KEEP;
}

static void filter_finish(const struct br_conditions *conditions, struct br_item *item, int rc)
{
    char text[sizeof item->outcome.text];
    (void)snprintf(text, sizeof text, "filter: %s", conditions->why);
    if (rc == BR_EPROTO) /* a condition has failed */
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, text);
    else if (rc == BR_EFULL && conditions->limit)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "filter: the functions process too many bytes for one request");
    else
        br_item_edit_fail(item, rc, "filter",
                          "a list of attributes is too long, or a record is too large");
}

/* Counts evaluations of conditions that have failed and, unless the mode is `silent`, logs the last
 * error. */
static void filter_report_failed(struct br_node *node, struct br_conditions *conditions)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    *state->failed += conditions->n_failed;
    if (conditions->n_failed && config->error_mode == BR_ERROR_IGNORE)
        br_node_warn(node, &state->failed_limit, "a condition failed and counts as false: %s",
                     conditions->why);
    conditions->n_failed = 0;
}

/* Returns the error code of a matcher or of conditions. If an arena was too small for the item,
 * returns BR_EFULL, because the process does not lack memory. */
static int filter_error_of(const struct br_matcher *matcher, const struct br_conditions *conditions)
{
    int rc = br_arena_why(&matcher->arena);
    if (rc == BR_ENOMEM && conditions)
        rc = br_arena_why(&conditions->arena);
    return rc == BR_ENOMEM && conditions ? br_arena_why(&conditions->scratch) : rc;
}

static void filter_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct br_matcher *matcher = &state->matchers[item->signal];
    struct br_conditions *conditions = &state->conditions[item->signal];
    struct filtering filtering = {matcher, conditions->count ? conditions : NULL,
                                  config->error_mode == BR_ERROR_PROPAGATE};
    uint32_t before = item->n_records;
    br_regex_time_begin(&state->time, config->match_time, item);
    int rc = br_matcher_begin(matcher, item);
    if (!rc && filtering.conditions)
        rc = br_conditions_begin(conditions, item);
    if (!rc && (br_matcher_active(matcher) || filtering.conditions))
        rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD, filter_on_item, &filtering);
    if (rc == BR_ENOMEM)
        rc = filter_error_of(matcher, filtering.conditions);
    br_matcher_end(matcher);
    if (filtering.conditions)
        br_conditions_end(conditions);
    br_node_count_gave_up(node, state->gave_up, matcher->n_gave_up + conditions->n_gave_up,
                          &state->limit,
                          "matching a pattern took too long; it counts as not matching");
    matcher->n_gave_up = conditions->n_gave_up = 0;
    filter_report_failed(node, conditions);
    if (rc) {
        filter_finish(conditions, item, rc);
        return;
    }
    uint32_t n_dropped = before - item->n_records;
    br_item_report(item, BR_RESULT_DROPPED, "filtered", n_dropped);
    if (n_dropped && item->n_records == 0)
        br_item_done(item);
    else
        br_node_forward(node, item);
}

extern const struct br_component br_filter_processor;
const struct br_component br_filter_processor = {
    .name = "filter",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "drops spans and samples by their properties",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = filter_check,
    .create = filter_create,
    .consume = filter_consume,
    .destroy = filter_destroy,
};
