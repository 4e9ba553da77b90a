/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The redaction processor removes or masks sensitive data in both signals. The processor has the
 * options of the Collector's redaction processor, with the same meaning. Braid adds options for
 * names and paths in profiles, and for literal words. An item without matches is forwarded byte for
 * byte.
 */
#include <string.h>

#include "otlp/edit/edit.h"
#include "pipeline/component.h"
#include "processors/redaction/messages.h"

#define ARENA_MAX (256u << 20)

struct state {
    struct redact_rules rules;
    struct redact_walk walk;
    struct br_arena arena; /* memory for the current item */
    double *functions, *paths;
    struct br_log_limit limit;
};

static int redaction_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    struct redact_walk *walk = &state->walk;
    const char *masked = "braid_redaction_masked";
    br_arena_init(&state->arena, ARENA_MAX);
    br_splice_init(&walk->splice, node->host->pool);
    walk->rules = &state->rules;
    walk->node = node;
    walk->masked = br_masked_get(node->host);
    walk->target.db = REDACT_DBS;
    walk->arena = &state->arena;
    walk->values = br_node_metric(node, BR_COUNTER, masked, "what", "value");
    walk->names = br_node_metric(node, BR_COUNTER, masked, "what", "name");
    state->functions = br_node_metric(node, BR_COUNTER, masked, "what", "function");
    state->paths = br_node_metric(node, BR_COUNTER, masked, "what", "path");
    walk->attributes_removed =
        br_node_metric(node, BR_COUNTER, "braid_redaction_removed_attributes", NULL, NULL);
    state->rules.gave_up = br_node_metric(node, BR_COUNTER, "braid_redaction_gave_up", NULL, NULL);
    if (walk->masked)
        br_masked_add_node(walk->masked, node->id);
    bool counters = walk->values && walk->names && state->functions && state->paths;
    int rc = BR_ENOMEM;
    if (counters && walk->masked && walk->attributes_removed && state->rules.gave_up)
        rc = redact_rules_compile(&state->rules, node->config, err);
    return rc == BR_ENOMEM ? br_err_set(err, rc, "out of memory") : rc;
}

/* Redacts a Resource that an earlier processor of the pipeline has replaced. */
static int redact_new_resource(struct redact_walk *walk, struct br_item *item, struct br_part *part)
{
    struct br_buf *buf;
    const uint8_t *data = part->new_resource;
    br_splice_begin(&walk->splice, data, part->new_resource_len);
    int rc = redact_message(walk, &redact_resource_shape, data, data + part->new_resource_len);
    if (!rc)
        rc = br_splice_take(&walk->splice, &buf);
    if (rc || !buf)
        return rc;
    br_item_set_resource(item, part, buf, buf->data, buf->len);
    br_buf_unref(buf);
    return 0;
}

static int redact_part(struct redact_walk *walk, struct br_item *item, struct br_part *part)
{
    struct br_buf *buf;
    struct br_field field;
    const uint8_t *end = part->raw + part->raw_len;
    if (br_field_next(part->raw, end, &field) != end || field.wire != BR_WIRE_LEN)
        return BR_EINVAL;
    br_splice_begin(&walk->splice, part->raw, part->raw_len);
    int rc = br_splice_enter(&walk->splice, &field, end);
    if (!rc)
        rc = redact_message(walk,
                            item->signal == BR_TRACES ? &redact_traces_part : &redact_profiles_part,
                            field.data, end);
    if (!rc)
        rc = br_splice_leave(&walk->splice);
    if (!rc)
        rc = br_splice_take(&walk->splice, &buf);
    if (!rc && buf)
        br_part_set_bytes(item, part, buf);
    return rc || !part->new_resource ? rc : redact_new_resource(walk, item, part);
}

static int redact_parts(struct redact_walk *walk, struct br_item *item)
{
    int rc = 0;
    for (uint32_t i = 0; i < item->n_parts && !rc; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = redact_part(walk, item, &item->parts[i]);
    return rc;
}

static int redact_profiles(struct state *state, struct br_item *item)
{
    struct redact_dictionary dictionary = {0};
    int rc = redact_dictionary_begin(&dictionary, &state->walk, item);
    if (!rc)
        rc = redact_parts(&state->walk, item);
    if (!rc)
        rc = redact_dictionary_end(&dictionary, &state->walk, item, state->functions, state->paths);
    state->walk.view = NULL;
    state->walk.kept = state->walk.removed = NULL;
    br_str_release(&state->walk.more);
    return rc;
}

static void redaction_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    struct br_mem_scope scope;
    redact_rules_begin(&state->rules, item);
    /* The memory scope is not limited, because a text that would grow too large is masked as a
     * whole. Only the process's memory budget limits the item. */
    br_mem_scope_begin(&scope, SIZE_MAX / 2, node->host->memory);
    int rc =
        item->signal == BR_TRACES ? redact_parts(&state->walk, item) : redact_profiles(state, item);
    br_splice_begin(&state->walk.splice, NULL, 0);
    rc = rc == BR_ENOMEM ? br_arena_why(&state->arena) : rc;
    br_arena_release(&state->arena);
    rc = br_item_edit_end(&scope, rc);
    if (state->rules.n_gave_up)
        br_node_warn(node, &state->limit,
                     "matching a pattern took too long; the whole text is masked");
    if (rc == BR_EFULL || rc == BR_EINVAL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "redaction: the result is too large");
    else if (rc)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "redaction: out of memory");
    else
        br_node_forward(node, item);
}

static void redaction_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_masked_put(node->host, state->walk.masked);
    redact_rules_release(&state->rules);
    br_splice_release(&state->walk.splice);
    br_str_release(&state->walk.more);
    br_arena_release(&state->arena);
}

extern const struct br_component br_redaction_processor;
const struct br_component br_redaction_processor = {
    .name = "redaction",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "removes or masks sensitive data by keys and patterns",
    .options = redact_options,
    .config_size = sizeof(struct redact_config),
    .state_size = sizeof(struct state),
    .check = redact_check,
    .create = redaction_create,
    .consume = redaction_consume,
    .destroy = redaction_destroy,
};
