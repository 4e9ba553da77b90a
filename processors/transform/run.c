/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a group of statements on all messages of its context. The messages are visited in the order
 * of their bytes. Only messages that a statement has changed are encoded again.
 */
#include <string.h>

#include "otlp/scan.h"
#include "processors/transform/transform.h"

/* The state of running one group of statements on one item. */
struct run {
    struct br_node *node;
    struct transform_state *state;
    struct transform_group *group;
    struct br_conditions *conditions;
    struct br_item *item;
    struct br_additions additions;
    /* Changed resources, by number of the part (ResourceSpans or ResourceProfiles); used if
     * statements of an inner context change resources. `part` is the part of the current
     * resource. */
    struct br_addition *resources;
    uint32_t part;
};

static void transform_run_failed(void *arg, const struct br_statements *group)
{
    struct run *run = arg;
    ++*run->state->failed;
    if (group->error_mode == BR_ERROR_IGNORE)
        br_node_warn(run->node, &run->state->limit, "a statement failed: %s", run->conditions->why);
}

/* Runs the group on the current message. */
static int transform_run_here(struct run *run)
{
    if (!run->group->shared_cache)
        br_message_clear(&run->state->cache, &run->conditions->scratch);
    return br_statements_run(&run->group->statements, run->conditions, transform_run_failed, run);
}

/* Writes a message if it was changed. Returns an enum br_change or an error. */
static int transform_run_output(struct run *run, enum br_condition_context context,
                                struct br_addition *ret)
{
    struct br_message *message = &run->conditions->messages[context];
    if (!br_message_changed(message))
        return BR_KEEP;
    int rc = br_message_write(run->conditions, message, ret);
    return rc ? rc : BR_REPLACE;
}

/* --- Resources -------------------------------------------------------------------------------- */

static int transform_run_put_resource(struct run *run, uint32_t part, const struct br_addition *out)
{
    struct br_buf *buf = br_buf_new(run->item->host->pool, out->len);
    if (!buf)
        return BR_ENOMEM;
    if (out->len)
        memcpy(buf->data, out->data, out->len);
    buf->len = (uint32_t)out->len;
    br_item_set_resource(run->item, &run->item->parts[part], buf, buf->data, buf->len);
    br_buf_unref(buf);
    return 0;
}

static int transform_run_resources(struct run *run)
{
    int rc = 0;
    for (uint32_t i = 0; i < run->item->n_parts && !rc; i++) {
        struct br_addition out = {NULL, 0};
        if (run->item->parts[i].kind != BR_PART_RESOURCE)
            continue;
        br_conditions_begin_record(run->conditions);
        br_statements_at_resource(run->conditions, i);
        rc = transform_run_here(run);
        int verdict = rc ? rc : transform_run_output(run, BR_CONDITION_RESOURCE, &out);
        rc = verdict < 0 ? verdict : 0;
        if (verdict == BR_REPLACE)
            rc = out.len > BR_BUF_MAX ? BR_EFULL : transform_run_put_resource(run, i, &out);
    }
    return rc;
}

/* Stores the changed resource of the current part before the run continues with part `next`. */
static int transform_run_keep_resource(struct run *run, uint32_t next)
{
    struct br_addition out = {NULL, 0};
    if (!run->resources || run->part == next)
        return 0;
    int verdict =
        run->part == UINT32_MAX ? BR_KEEP : transform_run_output(run, BR_CONDITION_RESOURCE, &out);
    if (verdict == BR_REPLACE)
        run->resources[run->part] = out;
    run->part = next;
    return verdict < 0 ? verdict : 0;
}

static int transform_run_set_resources(struct run *run)
{
    int rc = transform_run_keep_resource(run, UINT32_MAX);
    for (uint32_t i = 0; run->resources && i < run->item->n_parts && !rc; i++)
        if (run->resources[i].data)
            rc = run->resources[i].len > BR_BUF_MAX
                     ? BR_EFULL
                     : transform_run_put_resource(run, i, &run->resources[i]);
    return rc;
}

/* --- Records ---------------------------------------------------------------------------------- */

/* Runs the group on each event of the current span. Stores the changed events in `outs`. */
static int transform_run_each_event(struct run *run, const struct br_visit *visit,
                                    struct br_addition *outs, bool *ret_changed)
{
    const uint8_t *p = visit->body, *end = visit->len ? p + visit->len : p;
    struct br_field field;
    uint32_t n = 0;
    int verdict = BR_KEEP;
    while (verdict >= 0 && p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_SPAN_EVENTS))
            continue;
        br_statements_at_event(run->conditions, n, field.data, (size_t)field.value);
        verdict = transform_run_here(run);
        if (!verdict)
            verdict = transform_run_output(run, BR_CONDITION_EVENT, &outs[n]);
        *ret_changed = *ret_changed || verdict == BR_REPLACE;
        n++;
    }
    return verdict < 0 ? verdict : 0;
}

static uint32_t transform_run_count_events(const struct br_visit *visit)
{
    const uint8_t *p = visit->body, *end = visit->len ? p + visit->len : p;
    struct br_field field;
    uint32_t n = 0;
    while (p < end && (p = br_scan(p, end, &field)))
        n += br_scan_tag(&field) == BR_SCAN_LEN(BR_SPAN_EVENTS);
    return n;
}

/* Writes the span `span` with the changed events in `outs`. */
static int transform_run_put_events(struct run *run, const struct br_addition *span,
                                    const struct br_addition *outs, uint32_t count,
                                    struct br_addition *ret)
{
    const uint8_t *p = span->data, *end = p + span->len;
    size_t size = span->len;
    struct br_field field;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        size += outs[i].data ? br_len_size(BR_SPAN_EVENTS, outs[i].len) : 0;
    uint8_t *start = br_arena_alloc(&run->conditions->scratch, size + 1), *out = start;
    if (!start)
        return br_arena_why(&run->conditions->scratch);
    while (p < end) {
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        bool event = br_scan_tag(&field) == BR_SCAN_LEN(BR_SPAN_EVENTS) && n < count;
        if (event && outs[n].data)
            out = br_put_len(out, BR_SPAN_EVENTS, outs[n].data, outs[n].len);
        else
            out = br_put_bytes(out, at, (size_t)(p - at));
        n += event;
    }
    *ret = (struct br_addition){start, (size_t)(out - start)};
    return BR_REPLACE;
}

static int transform_run_events(struct run *run, struct br_visit *visit)
{
    uint32_t count = transform_run_count_events(visit);
    struct br_addition span = {visit->body, visit->len};
    bool changed = false;
    if (!count)
        return BR_KEEP;
    struct br_addition *outs = br_arena_calloc(&run->conditions->scratch, count, sizeof *outs);
    if (!outs)
        return br_arena_why(&run->conditions->scratch);
    int rc = transform_run_each_event(run, visit, outs, &changed);
    int verdict = rc ? rc : transform_run_output(run, BR_CONDITION_SPAN, &span);
    if (verdict < 0 || !changed) {
        visit->out = span;
        return verdict;
    }
    return transform_run_put_events(run, &span, outs, count, &visit->out);
}

static int transform_run_on_visit(void *arg, struct br_visit *visit)
{
    struct run *run = arg;
    enum br_condition_context context = run->group->statements.context;
    int rc = transform_run_keep_resource(run, visit->part);
    if (rc)
        return rc;
    if (context == BR_CONDITION_SCOPE) {
        br_conditions_begin_record(run->conditions);
        br_statements_at_scope(run->conditions, visit);
    } else if (context == BR_CONDITION_PROFILE) {
        br_statements_at_profile(run->conditions, visit);
    } else {
        br_statements_at_record(run->conditions, visit);
    }
    if (context == BR_CONDITION_EVENT)
        return transform_run_events(run, visit);
    rc = transform_run_here(run);
    return rc ? rc : transform_run_output(run, context, &visit->out);
}

/* --- Groups ----------------------------------------------------------------------------------- */

static int transform_run_rewrite(struct run *run)
{
    enum br_condition_context context = run->group->statements.context;
    enum br_level level = BR_LEVEL_RECORD;
    if (context == BR_CONDITION_SCOPE)
        level = BR_LEVEL_SCOPE;
    if (context == BR_CONDITION_PROFILE)
        level = BR_LEVEL_PROFILE;
    if (run->group->statements.writes_outward) {
        run->resources =
            br_arena_calloc(&run->conditions->arena, run->item->n_parts, sizeof *run->resources);
        if (!run->resources)
            return br_arena_why(&run->conditions->arena);
    }
    int rc = br_item_rewrite(run->item, 1u << level, transform_run_on_visit, run);
    if (!rc)
        rc = transform_run_set_resources(run);
    return rc ? rc : br_additions_write(&run->additions, run->item);
}

/* As transform_run_rewrite, but keeps the bytes of the item as received until the end: the changed
 * resources refer to them, also after the records were written anew. */
static int transform_run_records(struct run *run)
{
    if (!run->group->statements.writes_outward)
        return transform_run_rewrite(run);
    struct br_item *received = br_item_twin(run->item);
    if (!received)
        return BR_ENOMEM;
    int rc = transform_run_rewrite(run);
    br_item_free(received);
    return rc;
}

int transform_run(struct br_node *node, struct transform_group *group, struct br_item *item)
{
    struct transform_state *state = node->state;
    struct br_conditions *conditions = &state->signals[item->signal].conditions;
    struct run run = {.node = node,
                      .state = state,
                      .group = group,
                      .conditions = conditions,
                      .item = item,
                      .part = UINT32_MAX};
    int rc = br_conditions_begin(conditions, item);
    if (conditions->work_left > state->work_left)
        conditions->work_left = state->work_left;
    br_additions_init(&run.additions, &conditions->view);
    conditions->additions = &run.additions;
    conditions->cache =
        group->shared_cache ? &state->caches[group->statements.context] : &state->cache;
    if (!rc)
        rc = group->statements.context == BR_CONDITION_RESOURCE ? transform_run_resources(&run)
                                                                : transform_run_records(&run);
    if (rc == BR_ENOMEM && (conditions->arena.full || conditions->scratch.full))
        rc = BR_EFULL;
    state->work_left = conditions->work_left;
    conditions->additions = NULL;
    br_additions_release(&run.additions);
    br_conditions_end(conditions);
    return rc;
}
