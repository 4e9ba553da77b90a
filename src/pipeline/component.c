/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/component.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const struct br_component *br_component_find(const struct br_component *const *registry,
                                             enum br_kind kind, const char *name)
{
    for (; *registry; registry++) {
        const struct br_component *component = *registry;
        if (component->kind == kind && (strcmp(component->name, name) == 0 ||
                                        (component->alias && strcmp(component->alias, name) == 0)))
            return component;
    }
    return NULL;
}

void br_node_forward(struct br_node *node, struct br_item *item)
{
    struct br_consumer *next = node->next[item->signal];
    if (node->outgoing[item->signal])
        *node->outgoing[item->signal] += item->n_records;
    if (next)
        br_consume(next, item);
    else
        br_item_reject(item, BR_STATUS_INTERNAL,
                       "no pipeline after this component accepts this signal");
}

void br_node_forward_to(struct br_node *node, size_t index, struct br_item *item)
{
    if (node->outgoing[item->signal])
        *node->outgoing[item->signal] += item->n_records;
    br_consume(node->routes[item->signal][index], item);
}

double *br_node_metric(struct br_node *node, enum br_metric_type type, const char *name,
                       const char *label, const char *value)
{
    struct br_str labels = {.max = 1024};
    br_label(&labels, br_kind_name(node->component->kind), node->id);
    if (label)
        br_label(&labels, label, value);
    double *metric = br_metric(node->host->metrics, type, name, labels.data ? labels.data : "");
    br_str_release(&labels);
    return metric;
}

struct br_histogram *br_node_size_histogram(struct br_node *node, const char *name, bool bytes)
{
    /* Upper bounds of the histogram's buckets. The Collector uses the same bounds (metadata.yaml of
     * the batch processor and of exporterhelper). */
    static const double items[] = {10,   25,    50,    75,    100,   250,   500,  750,
                                   1000, 2000,  3000,  4000,  5000,  6000,  7000, 8000,
                                   9000, 10000, 20000, 30000, 50000, 100000};
    static const double sizes[] = {1 << 7,  1 << 8,  1 << 9,  1 << 10, 1 << 11, 1 << 12,
                                   1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18,
                                   1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24};
    struct br_str labels = {.max = 1024};
    br_label(&labels, br_kind_name(node->component->kind), node->id);
    struct br_histogram *histogram =
        br_histogram(node->host->metrics, name, labels.data ? labels.data : "",
                     bytes ? sizes : items, bytes ? BR_COUNT(sizes) : BR_COUNT(items));
    br_str_release(&labels);
    return histogram;
}

void br_node_drop(struct br_node *node, struct br_item *item, const char *reason,
                  const struct br_outcome *why, struct br_log_limit *limit)
{
    uint32_t n = item->n_pending;
    br_item_report(item, BR_RESULT_DROPPED, reason, n);
    if (n)
        br_log_limited(&node->log, BR_LOG_ERROR, limit, br_host_mono_ms(node->host),
                       BR_LOG_EVERY_MS, "dropped %u %s (%s): %s: %s", n,
                       br_signal_records(item->signal), reason, br_status_name(why->status),
                       why->text);
}

void br_node_drop_unsent(struct br_node *node, struct br_item *item)
{
    node->n_unsent[item->signal] += item->n_pending;
    br_item_report(item, BR_RESULT_DROPPED, "shutdown", item->n_pending);
}

void br_node_log_partial(struct br_node *node, const struct br_item *item,
                         const struct br_outcome *outcome, struct br_log_limit *limit)
{
    if (outcome->n_rejected)
        br_node_warn(node, limit, "dropped %u of %u %s (partial success): %s", outcome->n_rejected,
                     item->n_records, br_signal_records(item->signal), outcome->text);
}

void br_node_count_gave_up(struct br_node *node, double *counter, unsigned n_gave_up,
                           struct br_log_limit *limit, const char *text)
{
    *counter += n_gave_up;
    if (n_gave_up)
        br_node_warn(node, limit, "%s", text);
}

void br_node_drained(struct br_node *node)
{
    if (node->drained)
        return;
    node->drained = true;
    if (node->on_drained)
        node->on_drained(node, node->on_drained_arg);
}

/* --- Deliveries ------------------------------------------------------------------------------- */

void br_delivery_begin(struct br_delivery *delivery, struct br_list *deliveries,
                       struct br_node *node, struct br_item *item)
{
    delivery->node = node;
    delivery->item = item;
    br_list_append(deliveries, &delivery->link);
}

void br_delivery_end(struct br_delivery *delivery, const struct br_outcome *outcome)
{
    struct br_node *node = delivery->node;
    struct br_list *head = delivery->link.next;
    br_item_finish(delivery->item, outcome);
    br_list_remove(&delivery->link);
    br_free(delivery);
    /* if this was the last delivery, `head` is the list; a list with other deliveries is not
     * empty at any of its links */
    if (node && node->draining && br_list_empty(head))
        br_node_drained(node);
}

void br_deliveries_release(struct br_list *deliveries)
{
    struct br_list *link;
    while (deliveries->next && (link = br_list_shift(deliveries)))
        br_container_of(link, struct br_delivery, link)->node = NULL;
}
