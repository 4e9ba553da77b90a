/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A division sends the parts of an item to the pipelines of several routes. The item ends when all
 * of its parts have ended:
 *
 * | result of the parts                              | result of the item                         |
 * |--------------------------------------------------|--------------------------------------------|
 * | no part was accepted, one can be sent again      | BR_RETRY: the sender sends the item again  |
 * | a part was accepted, others are refused for now  | refused parts are offered again, for 10 s; |
 * |                                                  | then the item ends as a partial success    |
 * | a part was rejected                              | as if that part had been accepted          |
 *
 * A sender always sends the whole item again, so accepted parts would be delivered twice. Therefore
 * the division itself offers refused parts again.
 *
 * A copying row of the table copies records to a part although another part contains them too. The
 * ledger counts each record once, so the part of such a row has a copy of the pending records
 * (core/pending.h).
 */
#include "base/mem.h"
#include "connectors/routing/routing.h"
#include "core/pending.h"
#include "pipeline/hold.h"

#define RETRY_FIRST_MS 100
#define RETRY_MAX_MS 1000
#define RETRY_AGE_MS 10000

struct part {
    struct br_item *item; /* the records of the part; NULL: the part has ended */
    size_t route;
    bool copy; /* true if the item of the part has its own copy of the pending records */
};

struct division {
    struct br_list link; /* in routing_state.divisions */
    struct br_consumer output;
    struct br_node *node;
    struct br_item *whole;
    struct br_hold hold;
    bool stopped;
    /* number of records that match no row and are dropped, because there is no default route */
    uint32_t n_unrouted;
    size_t count;
    struct part parts[];
};

/* --- Ends ------------------------------------------------------------------------------------- */

static void division_end(struct division *division)
{
    struct br_node *node = division->node;
    bool stopped = division->stopped;
    /* If no part was accepted or rejected, the sender sends all records again, so the unrouted
     * records are not reported now. */
    if (division->hold.progress)
        br_item_report(division->whole, BR_RESULT_DROPPED, "unrouted", division->n_unrouted);
    br_hold_release(&division->hold);
    br_list_remove(&division->link);
    if (stopped)
        br_item_release_parent(division->whole); /* at shutdown, no part is offered again */
    else
        br_item_release_pieces(division->whole);
    br_free(division);
    if (stopped || !node->draining)
        return;
    struct routing_state *state = node->state;
    if (br_list_empty(&state->divisions))
        br_node_drained(node);
}

static void division_on_part(struct br_hold *hold, struct br_item *item, void *arg,
                             const struct br_outcome *outcome, const char *reason)
{
    struct part *part = arg;
    if (outcome->verdict == BR_REJECT)
        /* a part was rejected for good, so the sender must not send the whole item again */
        br_hold_note_progress(hold);
    if (part->copy && outcome->verdict != BR_DONE) {
        bool dropped = outcome->verdict == BR_RETRY && hold->progress;
        br_item_report(item, dropped ? BR_RESULT_DROPPED : BR_RESULT_REJECTED,
                       dropped ? reason : NULL, item->n_pending);
    }
    part->item = NULL;
    br_item_finish(item, outcome);
}

static void division_check(void *arg)
{
    struct division *division = arg;
    if (division->hold.n_held == 0)
        division_end(division);
}

/* --- Parts ------------------------------------------------------------------------------------ */

/* Sends an item, which is one attempt to deliver a part, to the route of the part. */
static void division_output(struct br_consumer *self, struct br_item *attempt)
{
    struct division *division = br_container_of(self, struct division, output);
    for (size_t i = 0; i < division->count; i++) {
        if (division->parts[i].item != attempt->parent)
            continue;
        br_node_forward_to(division->node, division->parts[i].route, attempt);
        return;
    }
    br_item_reject(attempt, BR_STATUS_INTERNAL, "the part has no route");
}

/* Makes the item of a part. Returns 0, or an error of br_item_rewrite. */
static int division_make_part(const struct br_item *whole,
                              const struct routing_selection *selection, struct part *part)
{
    part->item = br_item_twin(whole);
    return part->item ? routing_select_keep(selection, part->item, part->route, part->copy)
                      : BR_ENOMEM;
}

/* Makes the items of all parts. */
static int division_make_parts(struct division *division, const struct routing_selection *selection)
{
    int rc = 0;
    for (size_t i = 0; i < selection->n_rows && !rc; i++) {
        if (!selection->n_copied[i])
            continue;
        struct part *part = &division->parts[division->count++];
        *part = (struct part){.route = i, .copy = true};
        rc = division_make_part(division->whole, selection, part);
    }
    for (size_t i = 0; i <= selection->n_rows && !rc; i++) {
        if (!selection->n_moved[i])
            continue;
        struct part *part = &division->parts[division->count++];
        *part = (struct part){.route = i};
        rc = division_make_part(division->whole, selection, part);
    }
    return rc;
}

static size_t division_count_copies(const struct division *division)
{
    size_t n = 0;
    for (size_t i = 0; i < division->count; i++)
        n += division->parts[i].copy;
    return n;
}

/* Gives each part whose `copy` is true a copy of the pending records. Drops the records that the
 * part does not contain from that copy. */
static bool division_copy_pending(struct division *division)
{
    struct br_item *whole = division->whole;
    size_t n = division_count_copies(division);
    if (!n)
        return true;
    struct br_copies *copies = br_copies_open(whole, n + 1);
    bool ok = copies && br_copies_make(copies, n, &whole->pending);
    for (size_t i = 0; i < n && ok; i++)
        ok = br_copies_make(copies, i, &division->parts[i].item->pending);
    if (copies)
        br_copies_close(copies);
    for (size_t i = 0; i < n && ok; i++) {
        struct br_item *item = division->parts[i].item;
        if (item->n_pending > item->n_records)
            br_item_report(item, BR_RESULT_DROPPED, "unrouted", item->n_pending - item->n_records);
    }
    return ok;
}

/* Makes a part a child of the whole item. If the part has a copy of the pending records, it keeps
 * that copy. */
static void division_take_in(struct br_item *whole, struct part *part)
{
    struct br_pending own = part->item->pending, rest = whole->pending;
    if (part->copy)
        whole->pending = (struct br_pending){.exporter = rest.exporter};
    br_item_adopt(whole, part->item);
    if (!part->copy)
        return;
    part->item->pending = own;
    whole->pending = rest;
}

static bool division_init_hold(struct division *division)
{
    const struct br_hold_config config = {.host = division->node->host,
                                          .next = &division->output,
                                          .policy = {.order = BR_HOLD_PACED,
                                                     .first_delay_ms = RETRY_FIRST_MS,
                                                     .max_delay_ms = RETRY_MAX_MS,
                                                     .group = true,
                                                     .max_bytes = BR_HOLD_UNLIMITED,
                                                     .max_age_ms = RETRY_AGE_MS},
                                          .end = division_on_part,
                                          .on_end = division_check,
                                          .arg = division};
    return br_hold_init(&division->hold, &config);
}

/* Sends the parts. If memory is short, the parts that could not be sent count as refused. */
static void division_send(struct division *division)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    struct br_item *whole = division->whole;
    bool ok = division_init_hold(division);
    for (size_t i = 0; i < division->count; i++) {
        struct part *part = &division->parts[i];
        division_take_in(whole, part);
        ok = ok && br_hold_add(&division->hold, part->item, part) == 0;
        if (!ok)
            division_on_part(&division->hold, part->item, part, &outcome, "out_of_memory");
    }
    if (ok) {
        br_hold_start(&division->hold);
        return;
    }
    br_hold_close(&division->hold, &outcome);
    division_end(division);
}

static void division_forget(struct division *division)
{
    for (size_t i = 0; i < division->count; i++)
        br_item_free(division->parts[i].item);
    br_free(division);
}

void routing_divide(struct br_node *node, struct br_item *item,
                    const struct routing_selection *selection)
{
    struct routing_state *state = node->state;
    struct division *division =
        br_calloc(1, sizeof *division + (2 * selection->n_rows + 1) * sizeof division->parts[0]);
    if (!division) {
        routing_fail(item, BR_ENOMEM);
        return;
    }
    division->output.consume = division_output;
    division->node = node;
    division->whole = item;
    division->n_unrouted = selection->n_moved[selection->n_rows + 1];
    struct br_mem_scope scope;
    br_item_edit_begin(&scope, item);
    int rc = br_item_edit_end(&scope, division_make_parts(division, selection));
    if (!rc && !division_copy_pending(division))
        rc = BR_ENOMEM;
    if (rc) {
        division_forget(division);
        routing_fail(item, rc);
        return;
    }
    br_list_append(&state->divisions, &division->link);
    division_send(division);
}

void routing_divisions_stop(struct br_node *node)
{
    struct routing_state *state = node->state;
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    while (!br_list_empty(&state->divisions)) {
        struct division *division = br_container_of(state->divisions.next, struct division, link);
        br_list_remove(&division->link);
        division->stopped = true;
        br_hold_close(&division->hold, &outcome);
        division_check(division);
    }
}
