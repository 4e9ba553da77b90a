/* SPDX-License-Identifier: Apache-2.0 */
/* A receiver that receives nothing. */
#include "pipeline/component.h"

struct config {
    char nothing;
};

static const struct br_option options[] = {BR_OPT_END};

static int nop_check(void *config, const struct br_yaml *node, const char *path,
                     struct br_arena *arena, struct br_errs *errs)
{
    (void)config;
    (void)arena;
    br_errs_warn(errs, node, path, "receives nothing");
    return 0;
}

extern const struct br_component br_nop_receiver;
const struct br_component br_nop_receiver = {
    .name = "nop",
    .kind = BR_RECEIVER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "receives nothing",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = 1,
    .check = nop_check,
};
