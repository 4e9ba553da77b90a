/* SPDX-License-Identifier: Apache-2.0 */
/* Divides an item into two: the spans of decided traces, and the spans of waiting traces. */
#include "otlp/divide/divide.h"

#include "base/err.h"
#include "processors/tail_sampling/tail_sampling.h"

/* The two parts of the division. */
enum { DECIDED, WAITING, PARTS };

struct dividing {
    const struct tail_ref *refs;
    uint32_t n_refs;
    struct br_item *parts[PARTS];
};

static uint32_t divide_of_trace(void *arg, const uint8_t trace_id[16])
{
    const struct dividing *dividing = arg;
    const struct tail_ref *ref = tail_ref_find(dividing->refs, dividing->n_refs, trace_id);
    return ref && ref->state == TAIL_WAITING ? WAITING : DECIDED;
}

/* Returns the part to which a message without spans belongs. */
static uint32_t divide_of_key(void *arg, const uint8_t *key, size_t len)
{
    (void)arg;
    (void)key;
    (void)len;
    return DECIDED;
}

static int divide_on_group(struct br_item *group, uint32_t bucket, void *arg)
{
    struct dividing *dividing = arg;
    dividing->parts[bucket] = group;
    return 0;
}

/* Moves the pending records and copies the metadata of the item to its parts. If memory is short,
 * returns false, and moves nothing. */
static bool divide_move_records(struct br_item *item, struct br_item *const parts[PARTS])
{
    for (int i = 0; i < PARTS; i++)
        if (!br_item_keep_metadata(parts[i], item))
            return false;
    for (int i = 0; i < PARTS; i++) {
        parts[i]->received_records = parts[i]->n_records;
        if (br_pending_move(&parts[i]->pending, &item->pending, parts[i]->n_records))
            continue;
        for (int k = 0; k <= i; k++)
            (void)br_pending_move(&item->pending, &parts[k]->pending, parts[k]->n_pending);
        return false;
    }
    return true;
}

bool tail_divide(struct br_item *item, const struct tail_ref *refs, uint32_t n_refs,
                 struct br_item **ret_decided, struct br_item **ret_waiting)
{
    struct dividing dividing = {.refs = refs, .n_refs = n_refs};
    const struct br_routing routing = {.route = BR_ROUTE_TRACE,
                                       .max_buckets = PARTS,
                                       .max_bytes = 2 * item->size,
                                       .of_trace = divide_of_trace,
                                       .of_key = divide_of_key,
                                       .arg = &dividing};
    int rc = br_item_divide(item, &routing, divide_on_group, &dividing);
    if (rc || !dividing.parts[DECIDED] || !dividing.parts[WAITING] ||
        !divide_move_records(item, dividing.parts)) {
        for (int i = 0; i < PARTS; i++)
            br_item_free(dividing.parts[i]);
        return false;
    }
    *ret_decided = dividing.parts[DECIDED];
    *ret_waiting = dividing.parts[WAITING];
    return true;
}
