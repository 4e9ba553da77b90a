/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter: drops the spans and samples that are not included, or are excluded, by the strict and
 * regexp forms of the Collector's filter processor. Expressions (OTTL) are refused by name.
 */
#include "otlp/rewrite.h"
#include "pipeline/component.h"
#include "pipeline/match.h"

#define LOG_EVERY_MS 60000

struct side {
    const struct br_match_config *include, *exclude;
    const struct br_yaml *resource, *profile; /* expressions */
};

struct config {
    struct side spans, profiles;
    uint64_t match_time;                                                  /* ns */
    const struct br_yaml *traces, *trace_conditions, *profile_conditions; /* expressions */
};

struct state {
    struct br_arena arena; /* of the matchers */
    struct br_matcher matchers[BR_SIGNALS];
    struct br_regex_time time; /* of the item at hand */
    double *gave_up;
    struct br_log_limit limit;
};

#define MATCH(field, table, text)                                                                  \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_PRESENT, .offset = offsetof(struct side, field),            \
        .sub = (table), .size = sizeof(struct br_match_config), .help = (text)                     \
    }
#define REFUSED "conditions of the Collector's expression language: refused"

static const struct br_option span_options[] = {
    MATCH(include, br_match_span_options, "spans that stay; default: all"),
    MATCH(exclude, br_match_span_options, "of these, spans that are dropped; default: none"),
    BR_OPT_END,
};

static const struct br_option profile_options[] = {
    MATCH(include, br_match_profile_options, "samples that stay; default: all"),
    MATCH(exclude, br_match_profile_options, "of these, samples that are dropped; default: none"),
    BR_VALUE(struct side, resource, REFUSED),
    BR_VALUE(struct side, profile, REFUSED),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRUCT(struct config, spans, span_options, "for traces"),
    BR_STRUCT(struct config, profiles, profile_options, "for profiles"),
    BR_DURATION(
        struct config, match_time, "100ms",
        "processor time that all patterns together may take in a request, beside 100 ns for "
        "each of its bytes; then none matches any more"),
    BR_VALUE(struct config, traces, REFUSED),
    BR_VALUE(struct config, trace_conditions, REFUSED),
    BR_VALUE(struct config, profile_conditions, REFUSED),
    BR_IGNORED("error_mode", "of the Collector's, for its expression language"),
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

static int refuse(const struct br_yaml *conditions, const char *path, const char *name,
                  struct br_arena *arena, struct br_errs *errs)
{
    char *where = conditions ? br_arena_printf(arena, "%s::%s", path, name) : NULL;
    if (!where)
        return conditions ? BR_ENOMEM : 0;
    return br_errs_add(errs, conditions, where,
                       "conditions in the Collector's expression language (OTTL) are not "
                       "supported; use spans or profiles with include and exclude, of match_type "
                       "strict or regexp");
}

static bool is_empty(const struct side *side)
{
    return !side->include && !side->exclude;
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
    if (rc == BR_ENOMEM)
        return rc;
    const int refused[] = {
        refuse(c->traces, path, "traces", arena, errs),
        refuse(c->trace_conditions, path, "trace_conditions", arena, errs),
        refuse(c->profile_conditions, path, "profile_conditions", arena, errs),
        refuse(c->profiles.resource, path, "profiles::resource", arena, errs),
        refuse(c->profiles.profile, path, "profiles::profile", arena, errs),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        rc = refused[i] == BR_ENOMEM || !rc ? refused[i] : rc;
    if (!rc && is_empty(&c->spans) && is_empty(&c->profiles))
        br_errs_warn(errs, node, path,
                     "neither spans nor profiles has include or exclude: nothing is dropped");
    return rc;
}

static void destroy(struct br_node *node)
{
    struct state *s = node->state;
    for (int i = 0; i < BR_SIGNALS; i++)
        br_matcher_release(&s->matchers[i]);
    br_arena_release(&s->arena);
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

static int on_item(void *arg, struct br_visit *v)
{
    int passes = br_matcher_passes(arg, v);
    return passes < 0 ? passes : passes ? BR_KEEP : BR_DROP;
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

static void consume(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    struct br_matcher *m = &s->matchers[item->signal];
    uint32_t before = item->n_items;
    br_regex_time_begin(&s->time, c->match_time, item->size);
    int rc = br_matcher_begin(m, item);
    if (!rc && br_matcher_active(m))
        rc = br_item_rewrite(item, 1u << BR_LEVEL_ITEM, on_item, m);
    rc = rc == BR_ENOMEM ? br_arena_why(&m->arena) : rc;
    br_matcher_end(m);
    say(node, m->n_gave_up);
    m->n_gave_up = 0;
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
