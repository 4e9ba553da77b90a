/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The redaction processor, for both signals: what must not leave is removed, or masked where it
 * stands. Keys and what is done by them are the Collector's; names and paths of profiles, and
 * literal words, are ours. What nothing is found in leaves byte for byte as it came.
 */
#include <string.h>

#include "otlp/edit/edit.h"
#include "pipeline/component.h"
#include "processors/redaction/dictionary.h"

#define ARENA_MAX (256u << 20)
#define LOG_EVERY_MS 60000

struct state {
    struct redact_rules rules;
    struct redact_walk walk;
    struct br_arena arena; /* of the item at hand */
    double *functions, *paths;
    struct br_log_limit limit;
};

static int create(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    struct redact_walk *w = &s->walk;
    const char *masked = "braid_redaction_masked";
    br_arena_init(&s->arena, ARENA_MAX);
    br_splice_init(&w->splice, node->host->pool);
    w->rules = &s->rules;
    w->arena = &s->arena;
    w->values = br_node_metric(node, BR_COUNTER, masked, "what", "value");
    w->names = br_node_metric(node, BR_COUNTER, masked, "what", "name");
    s->functions = br_node_metric(node, BR_COUNTER, masked, "what", "function");
    s->paths = br_node_metric(node, BR_COUNTER, masked, "what", "path");
    w->attributes_removed =
        br_node_metric(node, BR_COUNTER, "braid_redaction_removed_attributes", NULL, NULL);
    s->rules.gave_up = br_node_metric(node, BR_COUNTER, "braid_redaction_gave_up", NULL, NULL);
    int rc = w->values && w->names && s->functions && s->paths && w->attributes_removed &&
                     s->rules.gave_up
                 ? redact_rules_compile(&s->rules, node->config, err)
                 : BR_ENOMEM;
    return rc == BR_ENOMEM ? br_err_set(err, rc, "out of memory") : rc;
}

/* A Resource that an earlier processor put beside the part. */
static int redact_new_resource(struct redact_walk *w, struct br_item *item, struct br_part *part)
{
    struct br_buf *buf;
    const uint8_t *data = part->new_resource;
    br_splice_begin(&w->splice, data, part->new_resource_len);
    int rc = redact_message(w, &redact_resource_shape, data, data + part->new_resource_len);
    if (!rc)
        rc = br_splice_take(&w->splice, &buf);
    if (rc || !buf)
        return rc;
    br_item_set_resource(item, part, buf, buf->data, buf->len);
    br_buf_unref(buf);
    return 0;
}

static int redact_part(struct redact_walk *w, struct br_item *item, struct br_part *part)
{
    struct br_buf *buf;
    struct br_field f;
    const uint8_t *end = part->raw + part->raw_len;
    if (br_field_next(part->raw, end, &f) != end || f.wire != BR_WIRE_LEN)
        return BR_EINVAL;
    br_splice_begin(&w->splice, part->raw, part->raw_len);
    int rc = br_splice_enter(&w->splice, &f, end);
    if (!rc)
        rc = redact_message(w,
                            item->signal == BR_TRACES ? &redact_traces_part : &redact_profiles_part,
                            f.data, end);
    if (!rc)
        rc = br_splice_leave(&w->splice);
    if (!rc)
        rc = br_splice_take(&w->splice, &buf);
    if (!rc && buf)
        br_part_set_bytes(item, part, buf);
    return rc || !part->new_resource ? rc : redact_new_resource(w, item, part);
}

static int redact_parts(struct redact_walk *w, struct br_item *item)
{
    int rc = 0;
    for (uint32_t i = 0; i < item->n_parts && !rc; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = redact_part(w, item, &item->parts[i]);
    return rc;
}

static int redact_profiles(struct state *s, struct br_item *item)
{
    struct redact_dictionary d = {0};
    int rc = redact_dictionary_begin(&d, &s->walk, item);
    if (!rc)
        rc = redact_parts(&s->walk, item);
    if (!rc)
        rc = redact_dictionary_end(&d, &s->walk, item, s->functions, s->paths);
    s->walk.view = NULL;
    s->walk.kept = s->walk.removed = NULL;
    br_str_release(&s->walk.more);
    return rc;
}

static void consume(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    redact_rules_begin(&s->rules, item->size);
    int rc = item->signal == BR_TRACES ? redact_parts(&s->walk, item) : redact_profiles(s, item);
    br_splice_begin(&s->walk.splice, NULL, 0);
    rc = rc == BR_ENOMEM ? br_arena_why(&s->arena) : rc;
    br_arena_release(&s->arena);
    uint64_t held;
    if (s->rules.n_gave_up &&
        br_log_allow(&s->limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        br_warn(&node->log, "a pattern took too long over a text, which is masked as a whole");
    if (rc == BR_EFULL || rc == BR_EINVAL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "redaction: the result is too large");
    else if (rc)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "redaction: out of memory");
    else
        br_node_forward(node, item);
}

static void destroy(struct br_node *node)
{
    struct state *s = node->state;
    redact_rules_release(&s->rules);
    br_splice_release(&s->walk.splice);
    br_str_release(&s->walk.more);
    br_arena_release(&s->arena);
}

extern const struct br_component br_redaction_processor;
const struct br_component br_redaction_processor = {
    .name = "redaction",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "removes or masks what must not leave, by keys and by patterns",
    .options = redact_options,
    .config_size = sizeof(struct redact_config),
    .state_size = sizeof(struct state),
    .check = redact_check,
    .create = create,
    .consume = consume,
    .destroy = destroy,
};
