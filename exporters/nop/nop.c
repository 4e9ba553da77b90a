/* SPDX-License-Identifier: Apache-2.0 */
/* The nop exporter: accepts and discards everything. */
#include "pipeline/exporter.h"

struct config {
    char nothing;
};

static const struct br_option options[] = {BR_OPT_END};

static int nop_create(struct br_node *node, struct br_err *err)
{
    (void)err;
    br_exporter_counts_init(node->state, node);
    return 0;
}

static void nop_consume(struct br_node *node, struct br_item *item)
{
    struct br_exporter_counts *counts = node->state;
    *counts->sent[item->signal] += item->n_records;
    br_item_done(item);
}

extern const struct br_component br_nop_exporter;
const struct br_component br_nop_exporter = {
    .name = "nop",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "accepts and discards all data",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct br_exporter_counts),
    .create = nop_create,
    .consume = nop_consume,
};
