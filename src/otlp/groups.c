/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/groups.h"

#include "otlp/fields.h"
#include "otlp/scan.h"

/* INWARD is the tag of the children at every level. SCOPE is the tag of the InstrumentationScope
 * of a ScopeSpans or ScopeProfiles. */
#define INWARD BR_SCAN_LEN(BR_INWARD)
#define SCOPE BR_SCAN_LEN(BR_SCOPES_SCOPE)

void br_groups_init(struct br_groups *groups, const struct br_item *item)
{
    *groups = (struct br_groups){.item = item};
}

/* Counts the children of a message and, if `has_scope`, finds its InstrumentationScope. */
static uint32_t groups_scan(struct br_groups *groups, const uint8_t *p, const uint8_t *end,
                            bool has_scope)
{
    struct br_field field;
    uint32_t n = 0;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint32_t tag = br_scan_tag(&field);
        n += tag == INWARD;
        if (has_scope && tag == SCOPE) {
            groups->scope = field.data;
            groups->scope_len = (uint32_t)field.value;
        }
    }
    return n;
}

/* Reads the next child of a message; the bytes from `*p` to `end` have not been read yet.
 * Advances `*p` past the child. Returns false at the end of the message. */
static bool groups_next_child(const uint8_t **p, const uint8_t *end, struct br_field *ret)
{
    while (*p && *p < end) {
        *p = br_scan(*p, end, ret);
        if (*p && br_scan_tag(ret) == INWARD)
            return true;
    }
    return false;
}

static bool groups_next_part(struct br_groups *groups)
{
    while (groups->next_part < groups->item->n_parts) {
        const struct br_part *part = &groups->item->parts[groups->next_part++];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        groups->part = groups->next_part - 1;
        groups->p = part->raw + part->body_at;
        groups->end = part->raw + part->raw_len;
        return true;
    }
    return false;
}

/* Moves to the next ScopeSpans or ScopeProfiles of the item. */
static bool groups_next_scope(struct br_groups *groups, struct br_field *ret)
{
    while (!groups_next_child(&groups->p, groups->end, ret))
        if (!groups_next_part(groups))
            return false;
    groups->scope = NULL;
    groups->scope_len = 0;
    return true;
}

static bool groups_next(struct br_groups *groups)
{
    struct br_field field;
    bool traces = groups->item->signal == BR_TRACES;
    groups->n_before += groups->n_records;
    groups->n_records = 0;
    while (traces || !groups_next_child(&groups->inner_p, groups->inner_end, &field)) {
        if (!groups_next_scope(groups, &field))
            return false;
        uint32_t n = groups_scan(groups, field.data, field.data + field.value, true);
        if (traces) {
            groups->n_records = n;
            break;
        }
        groups->inner_p = field.data;
        groups->inner_end = field.data + field.value;
    }
    if (!traces)
        groups->n_records = groups_scan(groups, field.data, field.data + field.value, false);
    groups->body = field.data;
    groups->body_len = (uint32_t)field.value;
    groups->n_groups++;
    return true;
}

bool br_groups_at_item(struct br_groups *groups, uint32_t index)
{
    uint32_t before = groups->n_groups;
    while (index >= groups->n_before + groups->n_records && groups_next(groups))
        ;
    return groups->n_groups != before;
}

bool br_groups_at_profile(struct br_groups *groups, uint32_t index)
{
    uint32_t before = groups->n_groups;
    while (groups->n_groups <= index && groups_next(groups))
        ;
    return groups->n_groups != before;
}
