/* SPDX-License-Identifier: Apache-2.0 */
/* The nop exporter: everything is delivered, to nowhere. */
#include "pipeline/component.h"

struct config {
    char nothing;
};

static const struct br_option options[] = {BR_OPT_END};

static void consume(struct br_node *node, struct br_item *item)
{
    (void)node;
    br_item_done(item);
}

extern const struct br_component br_nop_exporter;
const struct br_component br_nop_exporter = {
    .name = "nop",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "takes everything, sends nothing",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = 1,
    .consume = consume,
};
