/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile_limits processor: what is too deep, too large or has too many values is brought down
 * to what a profile backend takes, before it refuses all of a request. Stacks and labels are
 * changed in the dictionary, each once, however many samples refer to them.
 */
#include "otlp/edit/rewrite.h"
#include "otlp/scan.h"
#include "pipeline/component.h"
#include "processors/profile_limits/labels.h"
#include "processors/profile_limits/pieces.h"
#include "processors/profile_limits/stacks.h"

#define ARENA_MAX (256u << 20)
#define LOG_EVERY_MS 60000

struct config {
    int64_t max_stack_depth, max_profile_size, max_samples, max_label_values;
    uint64_t label_values_window;
    struct br_strings unlimited_labels;
};

struct state {
    struct br_arena arena; /* of the item at hand */
    struct limits_values values;
    uint64_t window_began_ms;
    double *stacks, *labels;
    struct limits_counts counts;
    struct br_log_limit limit;
};

static const struct br_option options[] = {
    BR_INT(struct config, max_stack_depth, 64, 0, 1000000,
           "frames of a stack: the nearest to the leaf stay, and one [truncated] at the root; "
           "0: any number"),
    BR_INT(struct config, max_profile_size, 10000000, 0, 268435456,
           "bytes of a request: a larger one is split at samples; 0: any number"),
    BR_INT(struct config, max_samples, 16000, 0, 4294967295,
           "samples of a profile: one with more is split; 0: any number"),
    BR_INT(struct config, max_label_values, 0, 0, 1000000,
           "different texts for each key of labels; further ones become [other]; 0: any number"),
    BR_DURATION(struct config, label_values_window, "1h",
                "after this time the values are counted anew; 0: never"),
    BR_STRINGS(struct config, unlimited_labels,
               "keys that may have any number of values; absent: span_id, trace_id, profile_id"),
    BR_OPT_END,
};

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    static const char *const ids[] = {"span_id", "trace_id", "profile_id"};
    struct config *c = config;
    (void)node;
    (void)path;
    (void)errs;
    if (c->unlimited_labels.v)
        return 0;
    c->unlimited_labels.v = br_arena_calloc(arena, 3, sizeof *c->unlimited_labels.v);
    if (!c->unlimited_labels.v)
        return BR_ENOMEM;
    for (size_t i = 0; i < 3; i++)
        c->unlimited_labels.v[i] = ids[i];
    c->unlimited_labels.n = 3;
    return 0;
}

static int create(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    const char *changed = "braid_profile_limits_changed";
    br_arena_init(&s->arena, ARENA_MAX);
    s->window_began_ms = br_host_mono_ms(node->host);
    s->stacks = br_node_metric(node, BR_COUNTER, changed, "what", "stack");
    s->labels = br_node_metric(node, BR_COUNTER, changed, "what", "label");
    s->counts.payloads = br_node_metric(node, BR_COUNTER, changed, "what", "payload");
    s->counts.splits = br_node_metric(node, BR_COUNTER, "braid_profile_limits_splits", NULL, NULL);
    bool ok = s->stacks && s->labels && s->counts.payloads && s->counts.splits;
    return ok ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

/* --- Labels ---------------------------------------------------------------------------------- */

struct uses {
    bool *used; /* by attribute */
    uint32_t n;
};

static void use(const struct uses *u, uint64_t i)
{
    if (i < u->n)
        u->used[i] = true;
}

/* Marks the attributes of samples and profiles: their fields 2 and 11. */
static int on_labelled(void *arg, struct br_visit *v)
{
    const struct uses *u = arg;
    uint32_t field = v->level == BR_LEVEL_ITEM ? 2 : 11;
    const uint8_t *end = v->body + v->len;
    struct br_field f;
    for (const uint8_t *p = v->body; p < end && (p = br_scan(p, end, &f));) {
        if (br_scan_tag(&f) == BR_TAG(field, BR_WIRE_VARINT)) {
            use(u, f.value);
        } else if (br_scan_tag(&f) == BR_TAG(field, BR_WIRE_LEN)) {
            uint64_t i;
            for (const uint8_t *at = f.data; at < p && (at = br_scan_varint(at, p, &i));)
                use(u, i);
        }
    }
    return BR_KEEP;
}

static int cut_labels(struct br_node *node, struct br_item *item, struct limits_edit *e)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    struct uses u = {.n = e->view.n[BR_TABLE_ATTRIBUTE]};
    uint64_t now = br_host_mono_ms(node->host), window_ms = c->label_values_window / 1000000;
    u.used = br_arena_calloc(&s->arena, u.n, sizeof *u.used);
    if (!u.used)
        return BR_ENOMEM;
    if (c->label_values_window && now - s->window_began_ms >= window_ms) {
        limits_values_clear(&s->values);
        s->window_began_ms = now;
    }
    int rc = br_item_rewrite(item, 1u << BR_LEVEL_ITEM | 1u << BR_LEVEL_PROFILE, on_labelled, &u);
    if (rc)
        return rc;
    struct limits_labels labels = {
        .unlimited = &c->unlimited_labels,
        .max_values = (uint32_t)c->max_label_values,
        .values = &s->values,
    };
    *s->labels += limits_cut_labels(e, &labels, u.used);
    return e->rc;
}

/* --- Traffic --------------------------------------------------------------------------------- */

static int edit(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    struct limits_edit e = {0};
    int rc = limits_edit_begin(&e, &s->arena, item);
    if (!rc && c->max_stack_depth)
        *s->stacks += limits_cut_stacks(&e, (uint32_t)c->max_stack_depth);
    if (!rc && c->max_label_values)
        rc = cut_labels(node, item, &e);
    if (!rc)
        rc = limits_edit_apply(&e, item);
    limits_edit_release(&e);
    rc = rc == BR_ENOMEM ? br_arena_why(&s->arena) : rc;
    br_arena_release(&s->arena);
    return rc;
}

static void say(struct br_node *node, uint32_t n_dropped)
{
    struct state *s = node->state;
    uint64_t held;
    if (n_dropped && br_log_allow(&s->limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        br_warn(&node->log, "%u samples dropped: too large, and they cannot be split", n_dropped);
}

static void refuse(struct br_node *node, struct br_item *item, int rc)
{
    if (rc == BR_EINVAL) {
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "profile_limits: malformed data");
    } else if (rc == BR_EFULL) {
        say(node, item->n_items);
        br_item_settle(item, BR_FATE_DROPPED, LIMITS_TOO_LARGE, item->n_items);
        br_item_done(item);
    } else {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "profile_limits: out of memory");
    }
}

static void consume(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    const struct limits_sizes sizes = {(size_t)c->max_profile_size, (uint32_t)c->max_samples};
    int rc = c->max_stack_depth || c->max_label_values ? edit(node, item) : 0;
    if (!rc)
        rc = limits_is_large(&sizes, item);
    if (rc == 1)
        say(node, limits_forward_pieces(node, &sizes, &s->counts, item));
    else if (rc)
        refuse(node, item, rc);
    else
        br_node_forward(node, item);
}

static void destroy(struct br_node *node)
{
    struct state *s = node->state;
    limits_values_clear(&s->values);
    br_arena_release(&s->arena);
}

extern const struct br_component br_profile_limits_processor;
const struct br_component br_profile_limits_processor = {
    .name = "profile_limits",
    .kind = BR_PROCESSOR,
    .signals = BR_SIGNAL_BIT(BR_PROFILES),
    .stability = "beta",
    .help = "cuts deep stacks, splits large profiles, bounds the values of labels",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = check,
    .create = create,
    .consume = consume,
    .destroy = destroy,
};
