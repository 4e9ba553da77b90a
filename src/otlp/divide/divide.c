/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/divide/divide.h"

#include <string.h>

#include "core/host.h"
#include "otlp/divide/plan.h"
#include "otlp/scan.h"

/* Placeholder for the length of a message that is still being written. Five bytes are reserved for
 * the varint of the length. */
#define LONG_LEN UINT32_MAX

struct divider {
    struct br_merge merge;
    struct divide_plan plan;
    const struct br_item *item;
    struct br_open open[BR_LEVELS];   /* open messages */
    uint32_t open_message[BR_LEVELS]; /* index of the open message on each level */
    unsigned n_open;                  /* number of levels with an open message */
    size_t size;                      /* total size of the groups so far, in bytes */
    bool others_written;              /* a group already contains the request's unknown fields */
};

static void divide_close(struct divider *divider, unsigned level)
{
    while (divider->n_open > level) {
        unsigned i = --divider->n_open;
        if (i == BR_LEVEL_RESOURCE)
            br_merger_close_part(&divider->merge, divider->open[i]);
        else
            br_merger_close(&divider->merge, divider->open[i]);
    }
}

static void divide_open_message(struct divider *divider, uint32_t index)
{
    struct divide_message *message = &divider->plan.messages[index];
    struct br_merge *merge = &divider->merge;
    enum br_signal signal = divider->item->signal;
    const struct br_part *part = &divider->item->parts[message->part];
    divider->open[message->level] =
        message->level == BR_LEVEL_RESOURCE
            ? br_merger_open_part(merge, part, LONG_LEN, signal == BR_PROFILES)
            : br_merger_open(merge, BR_INWARD, LONG_LEN);
    divider->open_message[message->level] = index;
    divider->n_open = message->level + 1u;
    for (uint32_t i = 0; i < message->n_ranges; i++) {
        const struct divide_range *range = &divider->plan.ranges[message->first_range + i];
        const uint8_t *p = range->data, *end = p + range->len;
        struct br_field field;
        while (p < end && !merge->rc && (p = br_scan(p, end, &field)))
            br_merger_put_head(merge, signal, message->level, !message->written, &field, p);
    }
    message->written = true;
}

/* Closes the open messages that do not contain the next record, and opens the missing ones.
 * `message` is the index of the message that directly contains the record. */
static void divide_open_path(struct divider *divider, uint32_t message)
{
    uint32_t path[BR_LEVELS];
    unsigned n = divider->plan.messages[message].level + 1u;
    for (unsigned i = n; i-- > 0; message = divider->plan.messages[message].parent)
        path[i] = message;
    unsigned same = 0;
    while (same < n && same < divider->n_open && divider->open_message[same] == path[same])
        same++;
    divide_close(divider, same);
    for (unsigned i = same; i < n && !divider->merge.rc; i++)
        divide_open_message(divider, path[i]);
}

static void divide_put_record(struct divider *divider, const struct divide_record *record)
{
    struct br_merge *merge = &divider->merge;
    const struct divide_message *message = &divider->plan.messages[record->message];
    const struct br_part *part = &divider->item->parts[message->part];
    struct br_field leaf;
    merge->readable = part->raw + part->raw_len;
    divide_open_path(divider, record->message);
    if (!record->at || merge->rc)
        return;
    const uint8_t *next = br_scan(record->at, merge->readable, &leaf);
    if (divider->item->signal == BR_PROFILES) {
        br_merger_put_sample(merge, leaf.data, leaf.value);
    } else {
        br_merger_put(merge, record->at, (size_t)(next - record->at));
        merge->n_records++;
    }
}

static void divide_put_others(struct divider *divider)
{
    for (uint32_t i = 0; i < divider->item->n_parts && !divider->others_written; i++)
        if (divider->item->parts[i].kind == BR_PART_OTHER)
            br_merger_put_other(&divider->merge, &divider->item->parts[i]);
    divider->others_written = true;
}

/* Makes an item from the fields that were written since the previous call. */
static int divide_take(struct divider *divider, size_t max_bytes, struct br_item **ret)
{
    bool profiles = divider->item->signal == BR_PROFILES;
    divide_close(divider, BR_LEVEL_RESOURCE);
    divide_put_others(divider);
    if (divider->merge.rc)
        return divider->merge.rc;
    struct br_item *group = br_item_new(divider->item->host, divider->item->signal);
    if (!group)
        return BR_ENOMEM;
    int rc = br_merger_take(&divider->merge, group, profiles);
    br_source_reset_used(&divider->merge.source);
    divider->size += group->size;
    if (!rc && max_bytes && divider->size > max_bytes)
        rc = BR_EFULL;
    if (rc) {
        br_item_free(group);
        return rc;
    }
    group->received_ms = divider->item->received_ms;
    *ret = group;
    return 0;
}

static int divide_groups(struct divider *divider, const struct br_routing *routing, br_group_fn *fn,
                         void *arg)
{
    const struct divide_plan *plan = &divider->plan;
    int rc = 0;
    for (uint32_t i = 0; i < plan->n_records && !rc;) {
        uint32_t bucket = plan->records[plan->order[i]].bucket;
        struct br_item *group = NULL;
        if (divider->item->signal == BR_PROFILES)
            rc = br_merger_begin(&divider->merge);
        if (rc)
            break;
        for (; i < plan->n_records && !divider->merge.rc; i++) {
            const struct divide_record *record = &plan->records[plan->order[i]];
            if (record->bucket != bucket)
                break;
            divide_put_record(divider, record);
        }
        rc = divide_take(divider, routing->max_bytes, &group);
        if (!rc)
            rc = fn(group, bucket, arg);
    }
    return rc;
}

int br_item_divide(const struct br_item *item, const struct br_routing *routing, br_group_fn *fn,
                   void *arg)
{
    struct divider divider = {.item = item};
    br_merger_init(&divider.merge, item->host, BR_BUF_MAX);
    int rc = 0;
    if (item->signal == BR_PROFILES)
        rc = br_source_load(&divider.merge.source, item);
    divider.merge.source.lists_used = true;
    if (!rc)
        rc = br_divide_plan_make(&divider.plan, item, routing, &divider.merge);
    if (!rc)
        rc = divide_groups(&divider, routing, fn, arg);
    br_divide_plan_release(&divider.plan);
    br_merger_release(&divider.merge);
    return rc;
}
