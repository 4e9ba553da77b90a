/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile_limits processor cuts stacks that are too deep, splits requests that are too large,
 * and replaces values of labels that have too many distinct values. A profile backend would
 * otherwise reject the whole request. Stacks and labels are changed in the dictionary, so each of
 * them is changed once, regardless of how many samples refer to it.
 */
#include "processors/profile_limits/profile_limits.h"

#include "base/steps.h"
#include "otlp/edit/rewrite.h"
#include "otlp/scan.h"
#include "pipeline/component.h"

#define ARENA_MAX (256u << 20)

struct config {
    int64_t max_stack_depth, max_profile_size, max_samples, max_label_values;
    uint64_t label_values_window;
    struct br_strings unlimited_labels;
};

struct state {
    struct br_arena arena; /* memory for the current item */
    struct limits_values values;
    uint64_t window_began_ms;
    double *stacks, *labels;
    struct limits_counts counts;
    struct br_log_limit limit;
};

static const struct br_option options[] = {
    BR_INT(struct config, max_stack_depth, 64, 0, 1000000,
           "largest number of frames of a stack; the frames nearest to the leaf are kept, and "
           "[truncated] replaces the root; 0: no limit"),
    BR_INT(struct config, max_profile_size, 10000000, 0, 268435456,
           "largest request in bytes; a larger request is split between samples; 0: no limit"),
    BR_INT(struct config, max_samples, 16000, 0, 4294967295,
           "largest number of samples of a profile; a larger profile is split; 0: no limit"),
    BR_INT(struct config, max_label_values, 0, 0, 1000000,
           "largest number of distinct texts of each label; further texts become [other]; 0: no "
           "limit"),
    BR_DURATION(struct config, label_values_window, "1h",
                "interval at which counting the values of labels starts again; 0: never"),
    BR_STRINGS(struct config, unlimited_labels,
               "names of labels that may have any number of values; default: span_id, trace_id, "
               "profile_id"),
    BR_OPT_END,
};

static int profile_limits_check(void *config, const struct br_yaml *node, const char *path,
                                struct br_arena *arena, struct br_errs *errs)
{
    static const char *const ids[] = {"span_id", "trace_id", "profile_id"};
    struct config *settings = config;
    (void)node;
    (void)path;
    (void)errs;
    if (settings->unlimited_labels.items)
        return 0;
    settings->unlimited_labels.items =
        br_arena_calloc(arena, 3, sizeof *settings->unlimited_labels.items);
    if (!settings->unlimited_labels.items)
        return BR_ENOMEM;
    for (size_t i = 0; i < 3; i++)
        settings->unlimited_labels.items[i] = ids[i];
    settings->unlimited_labels.count = 3;
    return 0;
}

static int profile_limits_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const char *changed = "braid_profile_limits_changed";
    br_arena_init(&state->arena, ARENA_MAX);
    state->window_began_ms = br_host_mono_ms(node->host);
    state->stacks = br_node_metric(node, BR_COUNTER, changed, "what", "stack");
    state->labels = br_node_metric(node, BR_COUNTER, changed, "what", "label");
    state->counts.payloads = br_node_metric(node, BR_COUNTER, changed, "what", "payload");
    state->counts.splits =
        br_node_metric(node, BR_COUNTER, "braid_profile_limits_splits", NULL, NULL);
    bool ok = state->stacks && state->labels && state->counts.payloads && state->counts.splits;
    return ok ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

/* --- Labels ---------------------------------------------------------------------------------- */

struct uses {
    /* for each entry of the attribute table: true if a sample or profile refers to it */
    bool *used;
    uint32_t count;
};

static void profile_limits_use(const struct uses *uses, uint64_t index)
{
    if (index < uses->count)
        uses->used[index] = true;
}

/* Marks the attributes to which samples (in field 2) and profiles (in field 11) refer. */
static int profile_limits_on_labelled(void *arg, struct br_visit *visit)
{
    const struct uses *uses = arg;
    uint32_t field = visit->level == BR_LEVEL_RECORD ? 2 : 11;
    const uint8_t *end = br_mem_end(visit->body, visit->len);
    struct br_field found;
    br_steps_add(visit->len);
    for (const uint8_t *p = visit->body; p < end && (p = br_scan(p, end, &found));) {
        if (br_scan_tag(&found) == BR_TAG(field, BR_WIRE_VARINT)) {
            profile_limits_use(uses, found.value);
        } else if (br_scan_tag(&found) == BR_TAG(field, BR_WIRE_LEN)) {
            uint64_t i;
            for (const uint8_t *at = found.data; at < p && (at = br_scan_varint(at, p, &i));)
                profile_limits_use(uses, i);
        }
    }
    return BR_KEEP;
}

static int profile_limits_cut_labels(struct br_node *node, struct br_item *item,
                                     struct limits_edit *edit)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct uses uses = {.count = edit->view.count[BR_TABLE_ATTRIBUTE]};
    uint64_t now = br_host_mono_ms(node->host), window_ms = config->label_values_window / 1000000;
    uses.used = br_arena_calloc(&state->arena, uses.count, sizeof *uses.used);
    if (!uses.used)
        return BR_ENOMEM;
    if (config->label_values_window && now - state->window_began_ms >= window_ms) {
        limits_values_clear(&state->values);
        state->window_began_ms = now;
    }
    int rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD | 1u << BR_LEVEL_PROFILE,
                             profile_limits_on_labelled, &uses);
    if (rc)
        return rc;
    struct limits_labels labels = {
        .unlimited = &config->unlimited_labels,
        .max_values = (uint32_t)config->max_label_values,
        .values = &state->values,
    };
    *state->labels += limits_cut_labels(edit, &labels, uses.used);
    return edit->rc;
}

/* --- Traffic --------------------------------------------------------------------------------- */

static int profile_limits_edit(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct limits_edit edit = {0};
    int rc = limits_edit_begin(&edit, &state->arena, item);
    if (!rc && config->max_stack_depth)
        *state->stacks += limits_cut_stacks(&edit, (uint32_t)config->max_stack_depth);
    if (!rc && config->max_label_values)
        rc = profile_limits_cut_labels(node, item, &edit);
    if (!rc)
        rc = limits_edit_apply(&edit, item);
    limits_edit_release(&edit);
    rc = rc == BR_ENOMEM ? br_arena_why(&state->arena) : rc;
    br_arena_release(&state->arena);
    return rc;
}

static void profile_limits_report_dropped(struct br_node *node, uint32_t n_dropped)
{
    struct state *state = node->state;
    if (n_dropped)
        br_node_warn(node, &state->limit,
                     "%u samples dropped: they are too large and cannot be split", n_dropped);
}

static void profile_limits_refuse(struct br_node *node, struct br_item *item, int rc)
{
    if (rc == BR_EINVAL) {
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "profile_limits: malformed data");
    } else if (rc == BR_EFULL) {
        profile_limits_report_dropped(node, item->n_records);
        br_item_report(item, BR_RESULT_DROPPED, LIMITS_TOO_LARGE, item->n_records);
        br_item_done(item);
    } else {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "profile_limits: out of memory");
    }
}

static void profile_limits_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    const struct limits_sizes sizes = {(size_t)config->max_profile_size,
                                       (uint32_t)config->max_samples};
    int rc =
        config->max_stack_depth || config->max_label_values ? profile_limits_edit(node, item) : 0;
    if (!rc)
        rc = limits_is_large(&sizes, item);
    if (rc == 1)
        profile_limits_report_dropped(node,
                                      limits_forward_pieces(node, &sizes, &state->counts, item));
    else if (rc)
        profile_limits_refuse(node, item, rc);
    else
        br_node_forward(node, item);
}

static void profile_limits_destroy(struct br_node *node)
{
    struct state *state = node->state;
    limits_values_clear(&state->values);
    br_arena_release(&state->arena);
}

extern const struct br_component br_profile_limits_processor;
const struct br_component br_profile_limits_processor = {
    .name = "profile_limits",
    .kind = BR_PROCESSOR,
    .signals = BR_SIGNAL_BIT(BR_PROFILES),
    .stability = "beta",
    .help = "cuts deep stacks, splits large profiles, limits the values of labels",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = profile_limits_check,
    .create = profile_limits_create,
    .consume = profile_limits_consume,
    .destroy = profile_limits_destroy,
};
