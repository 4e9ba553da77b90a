/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group_by_attrs processor moves attributes of spans and samples to resources, and merges equal
 * resources.
 */
#include <string.h>

#include "base/hash.h"
#include "pipeline/component.h"
#include "processors/group_by_attrs/grouping.h"

struct config {
    struct br_strings keys;
};

struct state {
    struct br_arena arena;  /* memory of `keys` */
    struct br_strings keys; /* the configured keys, without empty keys and duplicates */
    uint64_t secret[4];     /* secret of the hashes */
    struct br_attributes list;
    double *grouped[BR_SIGNALS], *others[BR_SIGNALS]; /* counters of records */
};

static const struct br_option options[] = {
    BR_STRINGS(struct config, keys,
               "keys of the attributes of spans and samples that are moved to resources; empty: "
               "only equal resources are merged"),
    BR_OPT_END,
};

static bool group_by_attrs_has_key(const struct br_strings *keys, const char *key)
{
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(keys->items[i], key) == 0)
            return true;
    return false;
}

static int group_by_attrs_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    br_random_bytes(state->secret, sizeof state->secret);
    state->keys.items =
        br_arena_calloc(&state->arena, config->keys.count, sizeof *state->keys.items);
    if (!state->keys.items)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = 0; i < config->keys.count; i++)
        if (*config->keys.items[i] && !group_by_attrs_has_key(&state->keys, config->keys.items[i]))
            state->keys.items[state->keys.count++] = config->keys.items[i];
    state->grouped[BR_TRACES] = br_node_metric(
        node, BR_COUNTER, "otelcol_processor_groupbyattrs_num_grouped_spans", NULL, NULL);
    state->others[BR_TRACES] = br_node_metric(
        node, BR_COUNTER, "otelcol_processor_groupbyattrs_num_non_grouped_spans", NULL, NULL);
    state->grouped[BR_PROFILES] = br_node_metric(
        node, BR_COUNTER, "otelcol_processor_groupbyattrs_num_grouped_samples", NULL, NULL);
    state->others[BR_PROFILES] = br_node_metric(
        node, BR_COUNTER, "otelcol_processor_groupbyattrs_num_non_grouped_samples", NULL, NULL);
    return 0;
}

static void group_by_attrs_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_attributes_release(&state->list);
    br_arena_release(&state->arena);
}

static void group_by_attrs_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    struct grouping grouping = {
        .item = item, .keys = &state->keys, .secret = state->secret, .list = &state->list};
    struct br_mem_scope scope;
    uint32_t n_records = item->n_records;
    br_item_edit_begin(&scope, item);
    int rc = group_by_attrs_build(&grouping);
    if (!rc && group_by_attrs_changes(&grouping))
        rc = group_by_attrs_write(&grouping);
    group_by_attrs_release(&grouping);
    rc = br_item_edit_end(&scope, rc);
    if (rc) {
        br_item_edit_fail(item, rc, "group_by_attrs",
                          "a list of attributes is too long, or the result is too large");
        return;
    }
    *state->grouped[item->signal] += grouping.n_grouped;
    *state->others[item->signal] += n_records - grouping.n_grouped;
    br_node_forward(node, item);
}

extern const struct br_component br_group_by_attrs_processor;
const struct br_component br_group_by_attrs_processor = {
    .name = "group_by_attrs",
    .alias = "groupbyattrs",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "moves attributes of spans and samples to resources, and merges equal resources",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .create = group_by_attrs_create,
    .consume = group_by_attrs_consume,
    .destroy = group_by_attrs_destroy,
};
