/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/divide/plan.h"

#include "base/mem.h"
#include "otlp/fields.h"
#include "otlp/scan.h"

#define CHILD BR_SCAN_LEN(BR_INWARD)

static int divide_plan_grow(struct divide_plan *plan, void *items, uint32_t *cap, uint32_t count,
                            size_t size)
{
    return br_budget_grow(&plan->router.budget, items, cap, (size_t)count + 1, size);
}

static int divide_plan_add_record(struct divide_plan *plan, uint32_t message,
                                  const struct br_field *leaf)
{
    struct divide_record record = {.at = leaf ? leaf->at : NULL, .message = message};
    int rc = leaf ? br_divide_router_record(&plan->router, leaf, &record.bucket)
                  : br_divide_router_resource(&plan->router, &record.bucket);
    if (!rc)
        rc = divide_plan_grow(plan, &plan->records, &plan->cap_records, plan->n_records,
                              sizeof *plan->records);
    if (!rc)
        plan->records[plan->n_records++] = record;
    return rc;
}

/* Adds a field, the bytes from `p` to `next`, to the ranges of `message`. `message` must be the
 * last message. */
static int divide_plan_add_range(struct divide_plan *plan, struct divide_message *message,
                                 const uint8_t *p, const uint8_t *next)
{
    struct divide_range *last = message->n_ranges ? &plan->ranges[plan->n_ranges - 1] : NULL;
    if (last && last->data + last->len == p) {
        last->len += (size_t)(next - p);
        return 0;
    }
    int rc = divide_plan_grow(plan, &plan->ranges, &plan->cap_ranges, plan->n_ranges,
                              sizeof *plan->ranges);
    if (rc)
        return rc;
    plan->ranges[plan->n_ranges++] = (struct divide_range){p, (size_t)(next - p)};
    message->n_ranges++;
    return 0;
}

/* Adds a message with its ranges. Sets `*ret_children` to true if the message has children. */
static int divide_plan_add_message(struct divide_plan *plan, struct divide_message *message,
                                   const uint8_t *p, const uint8_t *end, bool *ret_children)
{
    int rc = 0;
    *ret_children = false;
    message->first_range = plan->n_ranges;
    while (p < end && !rc) {
        struct br_field field;
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&field) == CHILD)
            *ret_children = true;
        else
            rc = divide_plan_add_range(plan, message, at, p);
    }
    if (!rc)
        rc = divide_plan_grow(plan, &plan->messages, &plan->cap_messages, plan->n_messages,
                              sizeof *plan->messages);
    if (!rc)
        plan->messages[plan->n_messages++] = *message;
    return rc;
}

static int divide_plan_message(struct divide_plan *plan, struct divide_message message,
                               const uint8_t *p, const uint8_t *end)
{
    bool children;
    uint32_t index = plan->n_messages;
    int rc = divide_plan_add_message(plan, &message, p, end, &children);
    if (!rc && !children)
        return divide_plan_add_record(plan, index, NULL);
    struct divide_message child = {
        .parent = index, .part = message.part, .level = message.level + 1};
    while (p < end && !rc) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (br_scan_tag(&field) != CHILD)
            continue;
        if (child.level < plan->n_levels)
            rc = divide_plan_message(plan, child, field.data, p);
        else
            rc = divide_plan_add_record(plan, index, &field);
    }
    return rc;
}

/* Sorts the records by bucket with a counting sort. The records of a bucket form one item. */
static int divide_plan_sort(struct divide_plan *plan)
{
    struct br_budget *budget = &plan->router.budget;
    uint32_t *starts = NULL, cap_starts = 0, n_buckets = 0;
    for (uint32_t i = 0; i < plan->n_records; i++)
        if (plan->records[i].bucket >= n_buckets)
            n_buckets = plan->records[i].bucket + 1;
    int rc = br_budget_grow(budget, &plan->order, &plan->cap_order, plan->n_records,
                            sizeof *plan->order);
    if (!rc)
        rc = br_budget_grow(budget, &starts, &cap_starts, n_buckets, sizeof *starts);
    if (!rc && n_buckets) {
        memset(starts, 0, n_buckets * sizeof *starts);
        for (uint32_t i = 0; i < plan->n_records; i++)
            starts[plan->records[i].bucket]++;
        for (uint32_t i = 0, sum = 0; i < n_buckets; i++) {
            uint32_t count = starts[i];
            starts[i] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < plan->n_records; i++)
            plan->order[starts[plan->records[i].bucket]++] = i;
    }
    br_budget_free(budget, &starts, &cap_starts, sizeof *starts);
    return rc;
}

int br_divide_plan_make(struct divide_plan *plan, const struct br_item *item,
                        const struct br_routing *routing, struct br_merge *merge)
{
    plan->item = item;
    plan->n_levels = item->signal == BR_PROFILES ? BR_LEVELS : BR_LEVELS - 1;
    int rc = br_divide_router_init(&plan->router, item->signal, routing, merge);
    for (uint32_t i = 0; i < item->n_parts && !rc; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        br_divide_router_begin(&plan->router, part);
        struct divide_message message = {
            .parent = plan->n_messages, .part = i, .level = BR_LEVEL_RESOURCE};
        rc = divide_plan_message(plan, message, part->raw + part->body_at,
                                 part->raw + part->raw_len);
    }
    return rc ? rc : divide_plan_sort(plan);
}

void br_divide_plan_release(struct divide_plan *plan)
{
    struct br_budget *budget = &plan->router.budget;
    br_budget_free(budget, &plan->ranges, &plan->cap_ranges, sizeof *plan->ranges);
    br_budget_free(budget, &plan->messages, &plan->cap_messages, sizeof *plan->messages);
    br_budget_free(budget, &plan->records, &plan->cap_records, sizeof *plan->records);
    br_budget_free(budget, &plan->order, &plan->cap_order, sizeof *plan->order);
    br_divide_router_release(&plan->router);
}
