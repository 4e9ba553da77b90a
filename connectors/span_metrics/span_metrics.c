/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The span_metrics connector counts the spans that the exporters of its pipelines accept. A request
 * that is refused is not counted, because its sender sends it again.
 */
#include "connectors/span_metrics/span_metrics.h"

#include "base/mem.h"

struct state {
    struct span_metrics_table table;
    struct span_metrics_reader reader;
    /* list of struct br_delivery: requests that were sent to the exporters */
    struct br_list deliveries;
    double *n_uncounted;
    struct br_log_limit limit;
};

/* --- Traffic ---------------------------------------------------------------------------------- */

static void span_metrics_count_item(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    uint32_t n = span_metrics_count(&state->reader, node->config, &state->table, item);
    *state->n_uncounted += n;
    if (n)
        br_node_warn(node, &state->limit,
                     "%u spans have no service.name in their resource, or memory was short; they "
                     "are not counted",
                     n);
}

static void span_metrics_on_attempt(struct br_item *attempt, void *arg)
{
    struct br_delivery *delivery = arg;
    if (attempt->outcome.verdict == BR_DONE && delivery->node)
        span_metrics_count_item(delivery->node, delivery->item);
    br_delivery_end(delivery, &attempt->outcome);
}

static void span_metrics_send(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    struct br_delivery *delivery = br_calloc(1, sizeof *delivery);
    struct br_item *attempt =
        delivery ? br_item_attempt(item, span_metrics_on_attempt, delivery) : NULL;
    if (!attempt) {
        br_free(delivery);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return;
    }
    br_delivery_begin(delivery, &state->deliveries, node, item);
    br_consume(node->next[item->signal], attempt);
}

static void span_metrics_consume(struct br_node *node, struct br_item *item)
{
    if (node->next[item->signal]) {
        span_metrics_send(node, item);
        return;
    }
    span_metrics_count_item(node, item);
    br_item_report(item, BR_RESULT_DROPPED, "aggregated", item->n_pending);
    br_item_done(item);
}

/* --- Life cycle ------------------------------------------------------------------------------- */

static int span_metrics_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    br_list_init(&state->deliveries);
    state->n_uncounted =
        br_node_metric(node, BR_COUNTER, "braid_span_metrics_uncounted", NULL, NULL);
    return span_metrics_table_init(&state->table, node)
               ? br_err_set(err, BR_ENOMEM, "out of memory")
               : 0;
}

static void span_metrics_drain(struct br_node *node)
{
    struct state *state = node->state;
    if (br_list_empty(&state->deliveries))
        br_node_drained(node);
}

/* Requests in progress end after the node was destroyed, with the results of their exporters. */
static void span_metrics_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_deliveries_release(&state->deliveries);
    span_metrics_table_release(&state->table);
    span_metrics_reader_release(&state->reader);
}

extern const struct br_component br_span_metrics_connector;
const struct br_component br_span_metrics_connector = {
    .name = "span_metrics",
    .alias = "spanmetrics",
    .kind = BR_CONNECTOR,
    .signals = BR_SIGNAL_BIT(BR_TRACES),
    .stability = "beta",
    .help = "counts spans and their durations as Prometheus metrics",
    .options = span_metrics_options,
    .config_size = sizeof(struct span_metrics_config),
    .state_size = sizeof(struct state),
    .observes = true,
    .check = span_metrics_check,
    .create = span_metrics_create,
    .consume = span_metrics_consume,
    .drain = span_metrics_drain,
    .destroy = span_metrics_destroy,
};
