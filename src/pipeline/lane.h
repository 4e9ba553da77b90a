/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane holds items for one destination of a fan-out that did not take them when others did. It
 * sends them on in the order in which they came, as soon as the destination takes them. What is
 * over the maximum, or has been held for too long, is dropped for this destination, counted, and
 * logged at most once a minute.
 */
#pragma once

#include "pipeline/component.h"

struct br_lane_config {
    struct br_consumer *next; /* borrowed */
    const char *name;         /* for logs, "exporter/otlp/tempo"; borrowed */
    const char *labels;       /* of its metrics, as br_metric takes them; borrowed until return */
    size_t max_bytes;         /* of this worker, with what each item costs beside its data */
    uint64_t max_ms;
};

/* What became of an item: DONE, or why it was dropped. */
typedef void br_lane_end_fn(const struct br_outcome *outcome, void *arg);

struct br_lane;

/* Returns NULL when there is no memory. */
struct br_lane *br_lane_new(struct br_host *host, const struct br_lane_config *config);

/* Takes an item without parent and without a callback. `on_end` (NULL: nobody waits) is called
 * once, later. False when it is dropped right away; then `on_end` is not called. */
bool br_lane_hold(struct br_lane *lane, struct br_item *item, br_lane_end_fn *on_end, void *arg);

/* Counts `count` spans or samples that are dropped for the destination without having been held,
 * and logs it. Whoever owes them settles them. */
void br_lane_lost(struct br_lane *lane, enum br_signal signal, uint32_t count, const char *why);

/* Tell whether something waits, so that what comes has to go behind it, and whether not even an
 * answer is outstanding. */
bool br_lane_waits(const struct br_lane *lane);
bool br_lane_idle(const struct br_lane *lane);

/* Sets what is called whenever an item has ended, for whoever waits for idle. */
void br_lane_on_end(struct br_lane *lane, void (*fn)(void *arg), void *arg);

/* Drops what waits, and what comes back, for "shutdown". */
void br_lane_close(struct br_lane *lane);

/* Closes and frees. What is under way ends on its own. Accepts NULL. */
void br_lane_free(struct br_lane *lane);
