/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose links a rule keeps, for a while (pipeline/tune.h): this worker's copies of the rules, which
 * whoever sets them brings to every worker. A rule is void from its time on, whatever else happens.
 */
#pragma once

#include "pipeline/component.h"
#include "pipeline/tune.h"

#define JOIN_RULE_SERVICE_MAX 255 /* bytes; no rule is taken for a longer name */

/* Links of the service's samples survive where the span was slow or its trace is sampled. */
struct join_rule {
    uint64_t id;
    uint64_t until_ms;          /* monotonic; the rule holds before it */
    double sampling_percentage; /* of the traces; 100: every link */
    uint64_t slow_threshold_ns; /* spans that last as long; 0: no span for its length */
    uint8_t service_len;        /* 0: all services */
    char service[JOIN_RULE_SERVICE_MAX];
};

struct join_rules {
    struct br_tunable tunable;
    const struct br_node *node;
    bool asked; /* the config leaves links away, which rules can bring back */
    size_t n;
    struct join_rule rules[BR_RULES_MAX];
};

/* Begins to obey; without `asked` no rule is for it, because every link survives anyway. */
void join_rules_start(struct join_rules *rs, const struct br_node *node, bool asked);
void join_rules_stop(struct join_rules *rs); /* accepts a zeroed one */

/* Whether a rule that holds at `now_ms` keeps the link to a span: of that service, of a trace (16
 * bytes; NULL: not known) and of that length. */
bool join_rules_keep(const struct join_rules *rs, uint64_t now_ms, const void *service,
                     size_t service_len, const uint8_t *trace_id, uint64_t duration_ns);
