/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "pipeline/exporter.h"

struct fanout {
    struct br_consumer consumer;
    size_t n;
    struct br_consumer *next[];
};

static void fanout_consume(struct br_consumer *self, struct br_item *item)
{
    struct fanout *f = br_container_of(self, struct fanout, consumer);
    for (size_t i = 0; i < f->n; i++) {
        struct br_item *child = br_item_child(item, true, i == 0 ? BR_DEBT_MOVE : BR_DEBT_COPY);
        if (child) {
            br_consume(f->next[i], child);
            continue;
        }
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        if (item->n_children == 0)
            item->outcome = BR_OUTCOME_DONE;
        br_outcome_fold(&item->outcome, &o);
    }
    br_item_release_parent(item);
}

struct br_consumer *br_fanout_new(struct br_consumer *const *next, size_t n)
{
    struct fanout *f = br_calloc(1, sizeof *f + n * sizeof f->next[0]);
    if (!f)
        return NULL;
    f->consumer.consume = fanout_consume;
    f->n = n;
    memcpy(f->next, next, n * sizeof f->next[0]);
    return &f->consumer;
}

void br_fanout_free(struct br_consumer *fanout)
{
    if (fanout)
        br_free(br_container_of(fanout, struct fanout, consumer));
}
