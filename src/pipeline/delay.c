/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/delay.h"

static void delay_output(struct br_consumer *self, struct br_item *item)
{
    struct br_delay *delay = br_container_of(self - item->signal, struct br_delay, output[0]);
    br_node_forward(delay->node, item);
}

void br_delay_init(struct br_delay *delay, struct br_node *node, void (*on_end)(void *arg),
                   void *arg)
{
    delay->node = node;
    for (int s = 0; s < BR_SIGNALS; s++) {
        delay->output[s].consume = delay_output;
        br_hold_init_for_node(&delay->sent[s], node, &delay->output[s], false, on_end, arg);
    }
}

struct br_item *br_delay_take(struct br_item *item)
{
    struct br_item *own = item;
    if (item->sender != BR_SENDER_WAITS) {
        own = br_item_new(item->host, item->signal);
        if (!own || !br_item_keep_metadata(own, item)) {
            br_item_free(own);
            return NULL;
        }
        own->received_ms = item->received_ms;
        own->received_records = item->received_records;
        (void)br_item_absorb(own, item); /* cannot fail, because the item `own` is empty */
        br_item_done(item);
    }
    br_item_hold(own, BR_HOLDER_HOLDS);
    return own;
}

void br_delay_forward(struct br_delay *delay, struct br_item *item)
{
    if (item->sender == BR_SENDER_WAITS)
        /* a sender waits for the outcome of the item and will retry */
        br_node_forward(delay->node, item);
    else
        br_hold_send(&delay->sent[item->signal], item);
}

void br_delay_abandon(struct br_delay *delay, struct br_item *item)
{
    if (item->sender != BR_SENDER_WAITS)
        br_node_drop_unsent(delay->node, item);
    br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
}

size_t br_delay_bytes(const struct br_delay *delay)
{
    size_t bytes = 0;
    for (int s = 0; s < BR_SIGNALS; s++)
        bytes += delay->sent[s].bytes;
    return bytes;
}

bool br_delay_is_idle(const struct br_delay *delay)
{
    bool idle = true;
    for (int s = 0; s < BR_SIGNALS; s++)
        idle = idle && delay->sent[s].n_held == 0;
    return idle;
}

void br_delay_release(struct br_delay *delay)
{
    for (int s = 0; s < BR_SIGNALS; s++)
        br_hold_release(&delay->sent[s]);
}
