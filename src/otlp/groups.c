/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/groups.h"

#include "otlp/fields.h"
#include "otlp/scan.h"

/* At every level the messages that lead inwards are field 2, and what is said of them is field 1.
 */
#define INWARD BR_SCAN_LEN(BR_INWARD)
#define SCOPE BR_SCAN_LEN(BR_SCOPES_SCOPE)

void br_groups_init(struct br_groups *g, const struct br_item *item)
{
    *g = (struct br_groups){.item = item};
}

/* Counts what leads inwards in a message and finds its scope. */
static uint32_t look(struct br_groups *g, const uint8_t *p, const uint8_t *end, bool has_scope)
{
    struct br_field f;
    uint32_t n = 0;
    while (p < end && (p = br_scan(p, end, &f))) {
        uint32_t tag = br_scan_tag(&f);
        n += tag == INWARD;
        if (has_scope && tag == SCOPE) {
            g->scope = f.data;
            g->scope_len = (uint32_t)f.value;
        }
    }
    return n;
}

/* The next message that leads inwards between `*p` and `end`. */
static bool inward(const uint8_t **p, const uint8_t *end, struct br_field *ret)
{
    while (*p && *p < end) {
        *p = br_scan(*p, end, ret);
        if (*p && br_scan_tag(ret) == INWARD)
            return true;
    }
    return false;
}

static bool next_part(struct br_groups *g)
{
    while (g->next_part < g->item->n_parts) {
        const struct br_part *part = &g->item->parts[g->next_part++];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        g->part = g->next_part - 1;
        g->p = part->raw + part->body_at;
        g->end = part->raw + part->raw_len;
        return true;
    }
    return false;
}

/* The next ScopeSpans or ScopeProfiles. */
static bool next_scope(struct br_groups *g, struct br_field *ret)
{
    while (!inward(&g->p, g->end, ret))
        if (!next_part(g))
            return false;
    g->scope = NULL;
    g->scope_len = 0;
    return true;
}

static bool next(struct br_groups *g)
{
    struct br_field f;
    bool traces = g->item->signal == BR_TRACES;
    g->n_before += g->n_items;
    g->n_items = 0;
    while (traces || !inward(&g->inner_p, g->inner_end, &f)) {
        if (!next_scope(g, &f))
            return false;
        uint32_t n = look(g, f.data, f.data + f.value, true);
        if (traces) {
            g->n_items = n;
            break;
        }
        g->inner_p = f.data;
        g->inner_end = f.data + f.value;
    }
    if (!traces)
        g->n_items = look(g, f.data, f.data + f.value, false);
    g->body = f.data;
    g->body_len = (uint32_t)f.value;
    g->n_groups++;
    return true;
}

bool br_groups_at_item(struct br_groups *g, uint32_t index)
{
    uint32_t before = g->n_groups;
    while (index >= g->n_before + g->n_items && next(g))
        ;
    return g->n_groups != before;
}

bool br_groups_at_profile(struct br_groups *g, uint32_t index)
{
    uint32_t before = g->n_groups;
    while (g->n_groups <= index && next(g))
        ;
    return g->n_groups != before;
}
