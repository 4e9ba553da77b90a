/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes processor: the actions of the Collector's on the attributes of spans, and on those
 * of samples and profiles (profiles.c).
 */
#include "processors/attributes/attributes.h"

#define SPAN_ATTRIBUTES 9
#define SCRATCH_MAX (256u << 20)
#define LOG_EVERY_MS 60000

static const char *const targets[] = {"both", "samples", "profiles", NULL};

static const struct br_option options[] = {
    BR_LIST(struct attributes_config, actions, struct br_rule_config, br_rule_options,
            "on attributes, applied in order"),
    {.name = "include",
     .kind = BR_OPT_PRESENT,
     .offset = offsetof(struct attributes_config, include),
     .sub = br_match_options,
     .size = sizeof(struct br_match_config),
     .help = "what they apply to; default: everything"},
    {.name = "exclude",
     .kind = BR_OPT_PRESENT,
     .offset = offsetof(struct attributes_config, exclude),
     .sub = br_match_options,
     .size = sizeof(struct br_match_config),
     .help = "of this, what they do not apply to; default: nothing"},
    BR_ENUM(struct attributes_config, apply_to, "both", targets,
            "in profiles: the attributes of samples, those of profiles, or both"),
    BR_DURATION(
        struct attributes_config, match_time, "100ms",
        "processor time that all patterns together may take in a request, beside 100 ns for "
        "each of its bytes; then delete and hash act on all keys, and nothing else matches"),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static int check_match(const struct br_match_config *c, const struct br_yaml *node,
                       const char *path, const char *name, struct br_arena *arena,
                       struct br_errs *errs)
{
    const struct br_yaml *at = c ? br_yaml_get(node, name) : NULL;
    char *where = br_arena_printf(arena, "%s::%s", path, name);
    return where ? br_match_check(c, at ? at : node, where, arena, errs) : BR_ENOMEM;
}

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    struct attributes_config *c = config;
    const int found[] = {
        br_rules_check(&c->actions, "actions", node, path, arena, errs),
        check_match(c->include, node, path, "include", arena, errs),
        check_match(c->exclude, node, path, "exclude", arena, errs),
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        rc = found[i] == BR_ENOMEM || !rc ? found[i] : rc;
    return rc ? rc : br_rules_headers(&c->actions, arena, &c->headers);
}

static void destroy(struct br_node *node)
{
    struct attributes_state *s = node->state;
    br_matcher_release(&s->matcher);
    br_rules_release(&s->rules);
    br_attributes_release(&s->list);
    br_buf_unref(s->body);
    br_arena_release(&s->scratch);
    br_arena_release(&s->arena);
}

static int create(struct br_node *node, struct br_err *err)
{
    struct attributes_state *s = node->state;
    const struct attributes_config *c = node->config;
    struct br_rule_problem problem = {0};
    br_arena_init(&s->arena, 0);
    br_arena_init(&s->scratch, SCRATCH_MAX);
    s->list.arena = &s->scratch;
    int rc = br_rules_compile(c->actions.v, c->actions.n, &s->arena, &s->rules, &problem);
    if (rc)
        rc = br_err_set(err, rc, "%s", rc == BR_ENOMEM ? "out of memory" : problem.text);
    else
        rc = br_matcher_init(&s->matcher, c->include, c->exclude, &s->arena, err);
    if (rc) {
        destroy(node);
        return rc;
    }
    br_regex_bound(&s->rules.regex, &s->time);
    br_regex_bound(&s->matcher.regex, &s->time);
    s->gave_up = br_node_metric(node, BR_COUNTER, "braid_attributes_gave_up", NULL, NULL);
    return 0;
}

/* --- Spans ----------------------------------------------------------------------------------- */

bool attributes_body(struct attributes_state *s, struct br_pool *pool, size_t size)
{
    if (!s->body)
        s->body = br_buf_new(pool, size);
    if (!s->body)
        return false;
    s->body->len = 0;
    return br_buf_reserve(&s->body, size) == 0;
}

int attributes_problem(const struct br_attributes *list)
{
    return list->too_many ? BR_EFULL : BR_ENOMEM;
}

struct run {
    struct br_node *node;
    const char *metadata;
};

static int rewrite_span(const struct run *r, struct br_visit *v)
{
    struct attributes_state *s = r->node->state;
    struct br_attributes *list = &s->list;
    if (!br_attributes_read(list, SPAN_ATTRIBUTES, v->body, v->len) ||
        !br_rules_apply(&s->rules, list, r->metadata))
        return attributes_problem(list);
    if (!br_attributes_changed(list))
        return BR_KEEP;
    size_t size = br_attributes_size(list);
    if (!attributes_body(s, r->node->host->pool, size))
        return BR_ENOMEM;
    (void)br_attributes_write(list, s->body->data);
    v->out = (struct br_addition){s->body->data, size};
    return BR_REPLACE;
}

static int on_span(void *arg, struct br_visit *v)
{
    const struct run *r = arg;
    struct attributes_state *s = r->node->state;
    int passes = br_matcher_passes(&s->matcher, v);
    if (passes <= 0)
        return passes; /* 0 is BR_KEEP */
    int verdict = rewrite_span(r, v);
    if (verdict == BR_ENOMEM)
        verdict = br_arena_why(&s->scratch);
    br_arena_release(&s->scratch);
    return verdict;
}

/* --- Traffic --------------------------------------------------------------------------------- */

static void finish(struct br_item *item, int rc)
{
    if (rc == BR_EFULL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "attributes: something has too many attributes, or becomes too large");
    else if (rc == BR_EINVAL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "attributes: malformed data");
    else
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "attributes: out of memory");
}

static void say(struct br_node *node)
{
    struct attributes_state *s = node->state;
    unsigned n = s->matcher.n_gave_up + s->list.n_gave_up;
    uint64_t held;
    s->matcher.n_gave_up = s->list.n_gave_up = 0;
    *s->gave_up += n;
    if (n && br_log_allow(&s->limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        br_warn(&node->log, "a pattern took too long over a text");
}

static void consume(struct br_node *node, struct br_item *item)
{
    struct attributes_state *s = node->state;
    const struct attributes_config *c = node->config;
    struct run r = {.node = node, .metadata = item->metadata};
    br_regex_time_begin(&s->time, c->match_time, item->size);
    int rc = br_matcher_begin(&s->matcher, item);
    if (!rc)
        rc = item->signal == BR_TRACES ? br_item_rewrite(item, 1u << BR_LEVEL_ITEM, on_span, &r)
                                       : attributes_profiles(node, item);
    if (rc == BR_ENOMEM && (s->scratch.full || s->matcher.arena.full))
        rc = BR_EFULL;
    br_matcher_end(&s->matcher);
    br_arena_release(&s->scratch);
    say(node);
    if (rc)
        finish(item, rc);
    else
        br_node_forward(node, item);
}

static const struct br_strings *metadata_keys(const void *config)
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
    .metadata_keys = metadata_keys,
    .check = check,
    .create = create,
    .consume = consume,
    .destroy = destroy,
};
