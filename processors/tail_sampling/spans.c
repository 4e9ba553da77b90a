/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates the policies that read spans for each span of an item, and removes spans. */
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/steps.h"
#include "otlp/edit/rewrite.h"
#include "otlp/groups.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "otlp/tracestate.h"
#include "processors/tail_sampling/tail_sampling.h"

#define ID_LEN 16u
#define FLAG_SAMPLED 1u /* bit of Span.flags, as in W3C Trace Context, "sampled" */

/* largest total length of the key and a value of a trace_state policy, in bytes, as in the
 * Collector; longer values never match */
#define TRACE_STATE_MAX 255u

struct reading {
    struct tail_policies *policies;
    struct br_groups groups;
    struct tail_span *spans;
    uint32_t count;
    /* numbers of the current ScopeSpans (`group`) and of its ResourceSpans (`part`) in the item */
    uint32_t group, part;
    uint32_t scope_size, part_size;
    struct tail_bits resource; /* policies that match the current ResourceSpans' resource */
};

/* --- Attributes ------------------------------------------------------------------------------- */

static bool span_regex_matches(struct tail_policies *policies, const struct tail_policy *policy,
                               const struct br_any *any, int *rc)
{
    for (size_t i = 0; i < policy->config->string_attribute.values.count; i++) {
        int found = br_regex_match(&policies->regex, policy->patterns[i], any->data, any->len);
        if (found > 0)
            return true;
        policies->n_gave_up += found == BR_EFULL;
        *rc = found == BR_ENOMEM ? found : *rc;
    }
    return false;
}

/* Returns true if the attribute's value is one of the values of the policy. A value that is not a
 * string counts as an empty text. An empty text can match a regular expression in a resource only,
 * as in the Collector. */
static bool span_string_matches(struct tail_policies *policies, const struct tail_policy *policy,
                                const struct br_any *value, bool resource, int *rc)
{
    const struct br_strings *values = &policy->config->string_attribute.values;
    struct br_any text = {.type = BR_VALUE_STRING, .data = (const uint8_t *)""};
    if (value->type == BR_VALUE_STRING && value->len)
        text = *value;
    if (policy->patterns)
        return (text.len || resource) && span_regex_matches(policies, policy, &text, rc);
    for (size_t i = 0; text.len && i < values->count; i++)
        if (br_bytes_are(text.data, text.len, values->items[i]))
            return true;
    return false;
}

static bool span_number_matches(const struct tail_numeric_attribute *settings,
                                const struct br_any *value)
{
    int64_t number = value->type == BR_VALUE_INT ? (int64_t)value->number : 0;
    return (!settings->min_value || number >= settings->min_value) &&
           (!settings->max_value || number <= settings->max_value);
}

static bool span_attribute_matches(struct tail_policies *policies, const struct tail_policy *policy,
                                   const struct br_any *value, bool resource, int *rc)
{
    if (policy->type == TAIL_STRING_ATTRIBUTE)
        return span_string_matches(policies, policy, value, resource, rc);
    if (policy->type == TAIL_NUMERIC_ATTRIBUTE)
        return span_number_matches(&policy->config->numeric_attribute, value);
    return (value->type == BR_VALUE_BOOL && value->number) ==
           policy->config->boolean_attribute.value;
}

static const char *span_key_of(const struct tail_policy *policy)
{
    switch (policy->type) {
    case TAIL_STRING_ATTRIBUTE:
        return policy->config->string_attribute.key;
    case TAIL_NUMERIC_ATTRIBUTE:
        return policy->config->numeric_attribute.key;
    case TAIL_BOOLEAN_ATTRIBUTE:
        return policy->config->boolean_attribute.key;
    default:
        return NULL;
    }
}

/* Applies the policies for attributes to a KeyValue. `seen` contains the policies whose key an
 * earlier attribute of the same list had; the first attribute with a key counts. */
static int span_apply_attribute(struct tail_policies *policies, const uint8_t *data, size_t len,
                                bool resource, struct tail_bits *seen, struct tail_bits *matched)
{
    struct br_keyvalue kv;
    int rc = 0;
    (void)br_keyvalue_read(data, len, &kv);
    for (unsigned i = 0; i < policies->n_leaves; i++) {
        const struct tail_policy *policy = policies->leaves[i];
        const char *key = span_key_of(policy);
        if (!key || policy->key_len != kv.key_len || memcmp(key, kv.key, kv.key_len) != 0 ||
            tail_bits_get(seen, i))
            continue;
        tail_bits_set(seen, i);
        struct br_any value = br_any_read(kv.value);
        if (span_attribute_matches(policies, policy, &value, resource, &rc))
            tail_bits_set(matched, i);
    }
    return rc;
}

static int span_apply_resource(struct reading *reading, const struct br_part *part)
{
    size_t len;
    const uint8_t *p = br_part_resource(part, &len), *end = br_mem_end(p, len);
    struct tail_bits seen = {0};
    struct br_field field;
    int rc = 0;
    reading->resource = (struct tail_bits){0};
    br_steps_add(len);
    while (p < end && !rc && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_RESOURCE_ATTRIBUTES))
            rc = span_apply_attribute(reading->policies, field.data, (size_t)field.value, true,
                                      &seen, &reading->resource);
    return rc;
}

/* --- Other fields ----------------------------------------------------------------------------- */

/* The fields of a span that policies read, other than its attributes. */
struct span_fields {
    const uint8_t *tracestate;
    size_t tracestate_len;
    unsigned status;
    uint32_t flags;
    /* number of fields that the Collector always writes and that the span has: its ids, the id of
     * its parent, and its status */
    unsigned n_fixed;
};

#define FIXED_FIELDS 4u

static unsigned span_status_of(const struct br_field *status)
{
    const uint8_t *p = status->data, *end = p + status->value;
    struct br_field field;
    uint64_t code = 0;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_SPAN_STATUS_CODE))
            code = field.value;
    return code < 32 ? (unsigned)code : 31;
}

static bool span_tracestate_matches(const struct tail_trace_state *settings, size_t key_len,
                                    const struct span_fields *fields)
{
    const void *value;
    size_t len;
    if (!br_tracestate_get(fields->tracestate, fields->tracestate_len, settings->key, &value, &len))
        return false;
    for (size_t i = 0; len && i < settings->values.count; i++)
        if (key_len + len <= TRACE_STATE_MAX && br_bytes_are(value, len, settings->values.items[i]))
            return true;
    return false;
}

static void span_apply_fields(const struct tail_policies *policies,
                              const struct span_fields *fields, struct tail_bits *matched)
{
    for (unsigned i = 0; i < policies->n_leaves; i++) {
        const struct tail_policy *policy = policies->leaves[i];
        bool matches = false;
        if (policy->type == TAIL_STATUS_CODE)
            matches = policy->statuses >> fields->status & 1;
        else if (policy->type == TAIL_TRACE_FLAGS)
            matches = fields->flags & FLAG_SAMPLED;
        else if (policy->type == TAIL_TRACE_STATE)
            matches =
                span_tracestate_matches(&policy->config->trace_state, policy->key_len, fields);
        if (matches)
            tail_bits_set(matched, i);
    }
}

static int span_apply_conditions(const struct tail_policies *policies, const struct br_visit *visit,
                                 struct tail_bits *matched)
{
    for (unsigned i = 0; i < policies->n_leaves; i++) {
        struct tail_policy *policy = policies->leaves[i];
        if (policy->type != TAIL_OTTL_CONDITION)
            continue;
        int holds = br_conditions_hold(&policy->conditions, visit);
        if (holds < 0)
            return holds;
        if (holds)
            tail_bits_set(matched, i);
    }
    return 0;
}

/* --- Sizes ------------------------------------------------------------------------------------ */

/* Returns the size of a message without its children and without the field `except` (0: none). */
static size_t span_size_without(const uint8_t *p, const uint8_t *end, uint32_t except,
                                bool *ret_excepted)
{
    size_t size = 0;
    struct br_field field;
    while (p && p < end) {
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (p && br_scan_tag(&field) == BR_SCAN_LEN(except))
            *ret_excepted = true;
        else if (p && br_scan_tag(&field) != BR_SCAN_LEN(BR_INWARD))
            size += (size_t)(p - at);
    }
    return size;
}

/* Computes the sizes of the current ScopeSpans and its ResourceSpans without children. The
 * Collector always writes a Resource and an InstrumentationScope. */
static int span_begin_group(struct reading *reading)
{
    const struct br_groups *groups = &reading->groups;
    bool excepted = false, first = !reading->count || reading->part != groups->part;
    reading->group++;
    size_t size = span_size_without(groups->body, groups->body + groups->body_len, BR_SCOPES_SCOPE,
                                    &excepted);
    reading->scope_size = (uint32_t)(size + br_len_size(BR_SCOPES_SCOPE, groups->scope_len));
    if (!first)
        return 0;
    const struct br_part *part = &groups->item->parts[groups->part];
    size_t resource_len;
    (void)br_part_resource(part, &resource_len);
    size = span_size_without(part->raw + part->body_at, part->raw + part->raw_len,
                             BR_RESOURCES_RESOURCE, &excepted);
    reading->part_size = (uint32_t)(size + br_len_size(BR_RESOURCES_RESOURCE, resource_len));
    reading->part = groups->part;
    return span_apply_resource(reading, part);
}

/* --- Reading ---------------------------------------------------------------------------------- */

static int span_read(struct tail_policies *policies, const struct br_visit *visit,
                     struct tail_span *ret, struct span_fields *fields)
{
    const uint8_t *p = visit->body, *end = p + visit->len;
    struct tail_bits seen = {0};
    struct br_field field;
    int rc = 0;
    br_steps_add(visit->len);
    while (p < end && !rc && (p = br_scan(p, end, &field))) {
        switch (br_scan_tag(&field)) {
        case BR_SCAN_LEN(BR_SPAN_SPAN_ID):
            fields->n_fixed++;
            break;
        case BR_SCAN_LEN(BR_SPAN_TRACE_ID):
            fields->n_fixed++;
            if (field.value == ID_LEN)
                memcpy(ret->id, field.data, ID_LEN);
            else
                memset(ret->id, 0, ID_LEN);
            break;
        case BR_SCAN_LEN(BR_SPAN_PARENT_SPAN_ID):
            fields->n_fixed++;
            ret->root = !field.value || br_load64(field.data) == 0;
            break;
        case BR_TAG(BR_SPAN_START_TIME, BR_WIRE_I64):
            ret->start_ns = field.value;
            break;
        case BR_TAG(BR_SPAN_END_TIME, BR_WIRE_I64):
            ret->end_ns = field.value;
            break;
        case BR_SCAN_LEN(BR_SPAN_TRACE_STATE):
            fields->tracestate = field.data;
            fields->tracestate_len = (size_t)field.value;
            break;
        case BR_SCAN_LEN(BR_SPAN_STATUS):
            fields->status = span_status_of(&field);
            fields->n_fixed++;
            break;
        case BR_TAG(BR_SPAN_FLAGS, BR_WIRE_I32):
            fields->flags = (uint32_t)field.value;
            break;
        case BR_SCAN_LEN(BR_SPAN_ATTRIBUTES):
            rc = span_apply_attribute(policies, field.data, (size_t)field.value, false, &seen,
                                      &ret->matched);
            break;
        default:
            break;
        }
    }
    return rc;
}

static int sampling_on_visit(void *arg, struct br_visit *visit)
{
    struct reading *reading = arg;
    struct tail_span *span = &reading->spans[reading->count];
    struct span_fields fields = {0};
    int rc = br_groups_at_item(&reading->groups, visit->index) ? span_begin_group(reading) : 0;
    *span = (struct tail_span){.group = reading->group,
                               .part = reading->part,
                               .scope_size = reading->scope_size,
                               .part_size = reading->part_size,
                               .matched = reading->resource,
                               .root = true};
    if (!rc)
        rc = span_read(reading->policies, visit, span, &fields);
    if (!rc)
        rc = span_apply_conditions(reading->policies, visit, &span->matched);
    if (rc)
        return rc;
    span_apply_fields(reading->policies, &fields, &span->matched);
    /* Each of the fixed fields takes two bytes if it is empty. */
    size_t missing = fields.n_fixed < FIXED_FIELDS ? FIXED_FIELDS - fields.n_fixed : 0;
    span->size = (uint32_t)br_len_size(BR_SCOPES_RECORDS, visit->len + 2 * missing);
    reading->count++;
    return BR_KEEP;
}

static int span_begin_conditions(const struct tail_policies *policies, struct br_item *item)
{
    int rc = 0;
    for (unsigned i = 0; i < policies->n_leaves && !rc; i++)
        if (policies->leaves[i]->type == TAIL_OTTL_CONDITION)
            rc = br_conditions_begin(&policies->leaves[i]->conditions, item);
    return rc;
}

static void span_end_conditions(struct tail_policies *policies)
{
    for (unsigned i = 0; i < policies->n_leaves; i++) {
        struct br_conditions *conditions = &policies->leaves[i]->conditions;
        if (policies->leaves[i]->type != TAIL_OTTL_CONDITION)
            continue;
        br_conditions_end(conditions);
        policies->n_gave_up += conditions->n_gave_up;
        conditions->n_gave_up = 0;
    }
}

int tail_spans_read(struct tail_policies *policies, const struct tail_config *config,
                    struct br_item *item, struct br_arena *arena, struct tail_span **ret)
{
    struct reading reading = {.policies = policies};
    reading.spans = br_arena_alloc(arena, ((size_t)item->n_records + 1) * sizeof *reading.spans);
    if (!reading.spans)
        return br_arena_why(arena);
    br_groups_init(&reading.groups, item);
    br_regex_time_begin(&policies->time, config->match_time, item);
    int rc = span_begin_conditions(policies, item);
    if (!rc)
        rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD, sampling_on_visit, &reading);
    span_end_conditions(policies);
    if (!rc)
        *ret = reading.spans;
    return rc;
}

/* --- Removing --------------------------------------------------------------------------------- */

struct removing {
    const struct tail_ref *refs;
    uint32_t n_refs;
    const struct tail_ref *last; /* trace of the previous span */
};

static int span_on_remove(void *arg, struct br_visit *visit)
{
    struct removing *removing = arg;
    const uint8_t *p = visit->body, *end = p + visit->len;
    struct br_field field;
    uint8_t id[ID_LEN] = {0};
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_SPAN_TRACE_ID))
            continue;
        memset(id, 0, ID_LEN);
        if (field.value == ID_LEN)
            memcpy(id, field.data, ID_LEN);
    }
    if (!removing->last || memcmp(removing->last->id, id, ID_LEN) != 0)
        removing->last = tail_ref_find(removing->refs, removing->n_refs, id);
    return removing->last && removing->last->state == TAIL_REMOVED ? BR_DROP : BR_KEEP;
}

int tail_spans_remove(struct br_item *item, const struct tail_ref *refs, uint32_t n_refs)
{
    struct removing removing = {refs, n_refs, NULL};
    return br_item_rewrite(item, 1u << BR_LEVEL_RECORD, span_on_remove, &removing);
}
