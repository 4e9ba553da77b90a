/* SPDX-License-Identifier: Apache-2.0 */
/* The forward connector: sends the items of pipelines to other pipelines. */
#include "pipeline/component.h"

struct config {
    char nothing;
};

static const struct br_option options[] = {BR_OPT_END};

extern const struct br_component br_forward_connector;
const struct br_component br_forward_connector = {
    .name = "forward",
    .kind = BR_CONNECTOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "sends the data of pipelines to other pipelines of the same signal",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(char),
    .consume = br_node_forward,
};
