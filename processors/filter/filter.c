/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter: drops the spans and samples that are not included, or are excluded, by the strict and
 * regexp forms of the Collector's filter processor, and those that one of its conditions (OTTL)
 * holds for.
 */
#include <string.h>

#include "attribute/condition.h"
#include "attribute/match.h"
#include "otlp/edit/rewrite.h"
#include "pipeline/component.h"

#define LOG_EVERY_MS 60000

struct side {
    const struct br_match_config *include, *exclude;
    struct br_strings resource, profile; /* conditions */
};

struct traces {
    struct br_strings resource, span;
    const struct br_yaml *spanevent;
};

struct config {
    struct side spans, profiles;
    uint64_t match_time; /* ns */
    struct traces traces;
    struct br_strings trace_conditions, profile_conditions;
};

struct state {
    struct br_arena arena; /* of the matchers */
    struct br_matcher matchers[BR_SIGNALS];
    struct br_conditions conditions[BR_SIGNALS];
    struct br_regex_time time; /* of the item at hand */
    double *gave_up;
    struct br_log_limit limit;
};

#define MATCH(field, table, text)                                                                  \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_PRESENT, .offset = offsetof(struct side, field),            \
        .sub = (table), .size = sizeof(struct br_match_config), .help = (text)                     \
    }
#define ANY_OF "conditions of the Collector's expression language, any of which drops "

static const struct br_option span_options[] = {
    MATCH(include, br_match_span_options, "spans that stay; default: all"),
    MATCH(exclude, br_match_span_options, "of these, spans that are dropped; default: none"),
    BR_OPT_END,
};

static const struct br_option profile_options[] = {
    MATCH(include, br_match_profile_options, "samples that stay; default: all"),
    MATCH(exclude, br_match_profile_options, "of these, samples that are dropped; default: none"),
    BR_STRINGS(struct side, resource, ANY_OF "all samples of a resource"),
    BR_STRINGS(struct side, profile, ANY_OF "all samples of a profile"),
    BR_OPT_END,
};

static const struct br_option trace_options[] = {
    BR_STRINGS(struct traces, resource, ANY_OF "all spans of a resource"),
    BR_STRINGS(struct traces, span, ANY_OF "a span"),
    BR_VALUE(struct traces, spanevent, "conditions that drop events of spans: refused"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRUCT(struct config, spans, span_options, "for traces"),
    BR_STRUCT(struct config, profiles, profile_options, "for profiles"),
    BR_DURATION(
        struct config, match_time, "100ms",
        "processor time that all patterns together may take in a request, beside 100 ns for "
        "each of its bytes; then none matches any more"),
    BR_STRUCT(struct config, traces, trace_options, "conditions for traces"),
    BR_STRINGS(struct config, trace_conditions, ANY_OF "a span; paths name their context"),
    BR_STRINGS(struct config, profile_conditions, ANY_OF "a sample; paths name their context"),
    BR_IGNORED("error_mode", "conditions that are taken at the start do not fail later"),
    BR_IGNORED("logs", "of the Collector's, for a signal that is not here"),
    BR_IGNORED("log_conditions", "of the Collector's, for a signal that is not here"),
    BR_IGNORED("metrics", "of the Collector's, for a signal that is not here"),
    BR_IGNORED("metric_conditions", "of the Collector's, for a signal that is not here"),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static int check_matches(const struct side *side, const struct br_yaml *node, const char *path,
                         const char *name, struct br_arena *arena, struct br_errs *errs)
{
    const struct br_yaml *at = node ? br_yaml_get(node, name) : NULL;
    char *include = br_arena_printf(arena, "%s::%s::include", path, name);
    char *exclude = br_arena_printf(arena, "%s::%s::exclude", path, name);
    if (!include || !exclude)
        return BR_ENOMEM;
    int rc =
        br_match_check(side->include, at ? br_yaml_get(at, "include") : node, include, arena, errs);
    int other = rc == BR_ENOMEM
                    ? 0
                    : br_match_check(side->exclude, at ? br_yaml_get(at, "exclude") : node, exclude,
                                     arena, errs);
    return rc ? rc : other;
}

/* One of the lists of conditions; `section` is NULL for those that stand by themselves. */
struct list {
    const struct br_strings *texts;
    const char *section, *key;
    enum br_signal signal;
    enum br_condition_context context;
};

#define LISTS 6

static void filter_lists(const struct config *c, struct list ret[LISTS])
{
    const struct list lists[LISTS] = {
        {&c->traces.resource, "traces", "resource", BR_TRACES, BR_CONDITION_RESOURCE},
        {&c->traces.span, "traces", "span", BR_TRACES, BR_CONDITION_SPAN},
        {&c->trace_conditions, NULL, "trace_conditions", BR_TRACES, BR_CONDITION_NAMED},
        {&c->profiles.resource, "profiles", "resource", BR_PROFILES, BR_CONDITION_RESOURCE},
        {&c->profiles.profile, "profiles", "profile", BR_PROFILES, BR_CONDITION_PROFILE},
        {&c->profile_conditions, NULL, "profile_conditions", BR_PROFILES, BR_CONDITION_NAMED},
    };
    memcpy(ret, lists, sizeof lists);
}

/* Each text that cannot be compiled is an error at its place. */
static int filter_check_list(const struct list *list, const struct br_yaml *node, const char *path,
                             struct br_arena *arena, struct br_errs *errs)
{
    struct br_conditions c = {.n = 0};
    const struct br_yaml *section = list->section ? br_yaml_get(node, list->section) : node;
    const struct br_yaml *texts = br_yaml_get(section, list->key);
    int rc = 0;
    for (size_t i = 0; i < list->texts->n && rc != BR_ENOMEM; i++) {
        struct br_err err = {0};
        int one =
            br_conditions_add(&c, list->texts->v[i], list->signal, list->context, arena, &err);
        rc = one ? one : rc;
        bool seq = texts && texts->type == BR_YAML_SEQ;
        char *at = br_arena_printf(arena, "%s%s%s::%s[%zu]", path, list->section ? "::" : "",
                                   list->section ? list->section : "", list->key, i);
        if (!at)
            rc = BR_ENOMEM;
        else if (one == BR_EINVAL)
            br_errs_add(errs, seq ? texts->items[i] : texts, at, "%s", err.text);
    }
    br_conditions_release(&c);
    return rc;
}

static int filter_check_conditions(const struct config *c, const struct br_yaml *node,
                                   const char *path, struct br_arena *arena, struct br_errs *errs)
{
    struct list lists[LISTS];
    int rc = 0;
    filter_lists(c, lists);
    for (size_t i = 0; i < LISTS && rc != BR_ENOMEM; i++) {
        int one = filter_check_list(&lists[i], node, path, arena, errs);
        rc = one ? one : rc;
    }
    if (rc == BR_ENOMEM || !c->traces.spanevent || c->traces.spanevent->type == BR_YAML_NULL)
        return rc;
    char *at = br_arena_printf(arena, "%s::traces::spanevent", path);
    return at ? br_errs_add(errs, c->traces.spanevent, at,
                            "events of spans are not dropped here; only whole spans are")
              : BR_ENOMEM;
}

static bool is_empty(const struct config *c)
{
    size_t n = c->spans.include || c->spans.exclude || c->profiles.include || c->profiles.exclude;
    struct list lists[LISTS];
    filter_lists(c, lists);
    for (size_t i = 0; i < LISTS; i++)
        n += lists[i].texts->n;
    return n == 0;
}

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    const struct config *c = config;
    int rc = check_matches(&c->spans, node, path, "spans", arena, errs);
    if (rc != BR_ENOMEM) {
        int other = check_matches(&c->profiles, node, path, "profiles", arena, errs);
        rc = rc ? rc : other;
    }
    if (rc != BR_ENOMEM) {
        int other = filter_check_conditions(c, node, path, arena, errs);
        rc = other ? other : rc;
    }
    if (!rc && is_empty(c))
        br_errs_warn(errs, node, path,
                     "it has neither include, exclude nor conditions: nothing is dropped");
    return rc;
}

static void destroy(struct br_node *node)
{
    struct state *s = node->state;
    for (int i = 0; i < BR_SIGNALS; i++)
        br_matcher_release(&s->matchers[i]);
    for (int i = 0; i < BR_SIGNALS; i++)
        br_conditions_release(&s->conditions[i]);
    br_arena_release(&s->arena);
}

static int filter_compile(struct state *s, const struct config *c, struct br_err *err)
{
    struct list lists[LISTS];
    int rc = 0;
    filter_lists(c, lists);
    for (size_t i = 0; i < LISTS; i++)
        for (size_t k = 0; k < lists[i].texts->n && !rc; k++)
            rc = br_conditions_add(&s->conditions[lists[i].signal], lists[i].texts->v[k],
                                   lists[i].signal, lists[i].context, &s->arena, err);
    for (int i = 0; i < BR_SIGNALS && !rc; i++)
        rc = br_conditions_ready(&s->conditions[i], &s->time);
    return rc;
}

static int create(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    br_arena_init(&s->arena, 0);
    int rc = br_matcher_init(&s->matchers[BR_TRACES], c->spans.include, c->spans.exclude, &s->arena,
                             err);
    if (!rc)
        rc = br_matcher_init(&s->matchers[BR_PROFILES], c->profiles.include, c->profiles.exclude,
                             &s->arena, err);
    if (!rc)
        rc = filter_compile(s, c, err);
    if (rc) {
        destroy(node);
        return rc;
    }
    for (int i = 0; i < BR_SIGNALS; i++)
        br_regex_bound(&s->matchers[i].regex, &s->time);
    s->gave_up = br_node_metric(node, BR_COUNTER, "braid_filter_gave_up", NULL, NULL);
    return 0;
}

/* --- Traffic --------------------------------------------------------------------------------- */

/* What looks at one item. */
struct look {
    struct br_matcher *matcher;
    struct br_conditions *conditions; /* NULL: none */
};

static int on_item(void *arg, struct br_visit *v)
{
    const struct look *look = arg;
    int passes = br_matcher_passes(look->matcher, v);
    if (passes <= 0 || !look->conditions)
        return passes < 0 ? passes : passes ? BR_KEEP : BR_DROP;
    int holds = br_conditions_hold(look->conditions, v);
    return holds < 0 ? holds : holds ? BR_DROP : BR_KEEP;
}

static void finish(struct br_item *item, int rc)
{
    if (rc == BR_EFULL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "filter: something has too many attributes, or is too large");
    else if (rc == BR_EINVAL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "filter: malformed data");
    else
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "filter: out of memory");
}

static void say(struct br_node *node, unsigned n_gave_up)
{
    struct state *s = node->state;
    uint64_t held;
    *s->gave_up += n_gave_up;
    if (n_gave_up && br_log_allow(&s->limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        br_warn(&node->log, "a pattern took too long over a text and counts as not matching");
}

/* What is too large for an arena is no want of memory. */
static int filter_why(const struct br_matcher *m, const struct br_conditions *conditions)
{
    int rc = br_arena_why(&m->arena);
    return rc == BR_ENOMEM && conditions ? br_arena_why(&conditions->arena) : rc;
}

static void consume(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    struct br_matcher *m = &s->matchers[item->signal];
    struct br_conditions *conditions = &s->conditions[item->signal];
    struct look look = {m, conditions->n ? conditions : NULL};
    uint32_t before = item->n_items;
    br_regex_time_begin(&s->time, c->match_time, item->size);
    int rc = br_matcher_begin(m, item);
    if (!rc && look.conditions)
        rc = br_conditions_begin(conditions, item);
    if (!rc && (br_matcher_active(m) || look.conditions))
        rc = br_item_rewrite(item, 1u << BR_LEVEL_ITEM, on_item, &look);
    if (rc == BR_ENOMEM)
        rc = filter_why(m, look.conditions);
    br_matcher_end(m);
    if (look.conditions)
        br_conditions_end(conditions);
    say(node, m->n_gave_up + conditions->n_gave_up);
    m->n_gave_up = conditions->n_gave_up = 0;
    if (rc) {
        finish(item, rc);
        return;
    }
    uint32_t n_dropped = before - item->n_items;
    br_item_settle(item, BR_FATE_DROPPED, "filtered", n_dropped);
    if (n_dropped && item->n_items == 0)
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
    .help = "drops spans and samples by what they are",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = check,
    .create = create,
    .consume = consume,
    .destroy = destroy,
};
