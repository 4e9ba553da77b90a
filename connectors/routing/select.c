/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "connectors/routing/routing.h"

/* The argument of select_on_record. */
struct selecting {
    struct br_node *node;
    struct br_item *item;
    struct routing_selection *selection;
    const bool *requests; /* for each row: true if its condition on the client metadata holds */
};

/* Returns true if records of the item's signal can match the row. */
static bool select_applies(const struct selecting *selecting, size_t row)
{
    return br_node_has_route(selecting->node, selecting->item->signal, row);
}

/* Returns 1 if the record matches the row, otherwise 0, or a negative error. */
static int select_matches(const struct selecting *selecting, size_t row,
                          const struct br_visit *visit)
{
    struct routing_state *state = selecting->node->state;
    const struct routing_row *settings = routing_row(selecting->node->config, row);
    if (settings->context == ROUTING_REQUEST)
        return selecting->requests[row];
    struct br_conditions *conditions = &state->conditions[row][selecting->item->signal];
    return conditions->count ? br_conditions_hold(conditions, visit) : 1;
}

static int select_copy(struct selecting *selecting, size_t row, uint32_t record)
{
    struct routing_selection *selection = selecting->selection;
    if (!selection->copied[row])
        selection->copied[row] =
            br_arena_calloc(&selecting->item->arena, selecting->item->n_records / 8 + 1, 1);
    if (!selection->copied[row])
        return br_arena_why(&selecting->item->arena);
    selection->copied[row][record / 8] |= (uint8_t)(1u << record % 8);
    selection->n_copied[row]++;
    return 0;
}

static int select_on_record(void *arg, struct br_visit *visit)
{
    struct selecting *selecting = arg;
    struct routing_selection *selection = selecting->selection;
    size_t n_rows = selection->n_rows, row;
    enum br_signal signal = selecting->item->signal;
    for (row = 0; row < n_rows; row++) {
        int matches = select_applies(selecting, row) ? select_matches(selecting, row, visit) : 0;
        if (matches < 0)
            return matches;
        if (!matches)
            continue;
        if (routing_row(selecting->node->config, row)->action != ROUTING_COPY)
            break;
        int rc = select_copy(selecting, row, visit->index);
        if (rc)
            return rc;
    }
    if (row == n_rows && !br_node_has_route(selecting->node, signal, n_rows))
        row = n_rows + 1;
    selection->route[visit->index] = (uint32_t)row;
    selection->n_moved[row]++;
    return BR_KEEP;
}

static int select_begin(struct br_node *node, struct br_item *item, size_t n_rows)
{
    struct routing_state *state = node->state;
    int rc = 0;
    for (size_t i = 0; i < n_rows && !rc; i++)
        if (state->conditions[i][item->signal].count)
            rc = br_conditions_begin(&state->conditions[i][item->signal], item);
    return rc;
}

/* Ends the evaluation, and returns the error code of the conditions. If an arena was too small for
 * the item, returns BR_EFULL, because the process does not lack memory. */
static int select_end(struct br_node *node, const struct br_item *item, size_t n_rows, int rc)
{
    struct routing_state *state = node->state;
    unsigned n_gave_up = 0;
    for (size_t i = 0; i < n_rows; i++) {
        struct br_conditions *conditions = &state->conditions[i][item->signal];
        if (!conditions->count)
            continue;
        if (rc == BR_ENOMEM)
            rc = br_arena_why(&conditions->arena);
        br_conditions_end(conditions);
        n_gave_up += conditions->n_gave_up;
        conditions->n_gave_up = 0;
    }
    br_node_count_gave_up(node, state->gave_up, n_gave_up, &state->limit,
                          "matching a pattern took too long; it counts as not matching");
    return rc;
}

/* Allocates the arrays of a selection. Returns for each row whether its condition on the client
 * metadata holds. Returns NULL if memory is short. */
static const bool *select_prepare(const struct routing_config *config, struct br_item *item,
                                  struct routing_selection *ret)
{
    size_t n = config->table.count;
    struct br_arena *arena = &item->arena;
    bool *requests = br_arena_calloc(arena, n + 1, sizeof *requests);
    *ret = (struct routing_selection){
        .n_rows = n,
        .route = br_arena_calloc(arena, item->n_records + 1, sizeof *ret->route),
        .n_moved = br_arena_calloc(arena, n + 2, sizeof *ret->n_moved),
        .copied = br_arena_calloc(arena, n + 1, sizeof *ret->copied),
        .n_copied = br_arena_calloc(arena, n + 1, sizeof *ret->n_copied)};
    if (!requests || !ret->route || !ret->n_moved || !ret->copied || !ret->n_copied)
        return NULL;
    for (size_t i = 0; i < n; i++)
        requests[i] = routing_row(config, i)->context == ROUTING_REQUEST &&
                      routing_request_matches(routing_row(config, i), item);
    return requests;
}

int routing_select(struct br_node *node, struct br_item *item, struct routing_selection *ret)
{
    struct routing_state *state = node->state;
    const struct routing_config *config = node->config;
    const bool *requests = select_prepare(config, item, ret);
    if (!requests)
        return br_arena_why(&item->arena);
    struct selecting selecting = {node, item, ret, requests};
    br_regex_time_begin(&state->time, config->match_time, item);
    int rc = select_begin(node, item, ret->n_rows);
    if (!rc)
        rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD, select_on_record, &selecting);
    return select_end(node, item, ret->n_rows, rc);
}

/* --- Parts ------------------------------------------------------------------------------------ */

/* The argument of select_on_keep. */
struct keeping {
    const struct routing_selection *selection;
    size_t route;
    bool copy;
};

static int select_on_keep(void *arg, struct br_visit *visit)
{
    const struct keeping *keeping = arg;
    const struct routing_selection *selection = keeping->selection;
    bool kept = keeping->copy
                    ? selection->copied[keeping->route][visit->index / 8] >> visit->index % 8 & 1
                    : selection->route[visit->index] == keeping->route;
    return kept ? BR_KEEP : BR_DROP;
}

int routing_select_keep(const struct routing_selection *selection, struct br_item *part,
                        size_t route, bool copy)
{
    struct keeping keeping = {selection, route, copy};
    uint32_t n_kept = copy ? selection->n_copied[route] : selection->n_moved[route];
    return n_kept == part->n_records
               ? 0
               : br_item_rewrite(part, 1u << BR_LEVEL_RECORD, select_on_keep, &keeping);
}
