/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Keep the links of service X until T": rules that are set while the service runs and that end by
 * themselves. Whoever sets them (an extension, on any worker) and whoever obeys (the join's `keep`,
 * on every worker) get the same list from their host; all of it may be called from any thread.
 *
 * A reader asks for the version, which costs a load, and copies the list when it has changed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pipeline/host.h"

#define BR_KEEP_RULES_MAX 64
#define BR_KEEP_SERVICE_MAX 255 /* bytes of a service's name that count */

/* Links of the service's samples survive where the span was slow or its trace is sampled. */
struct br_keep_rule {
    uint64_t id;                /* given by br_keep_rules_add, never 0 */
    uint64_t until_ms;          /* monotonic; the rule holds before it */
    double sampling_percentage; /* of the traces; 100: every link */
    uint64_t slow_threshold_ns; /* spans that last as long; 0: no span for its length */
    uint8_t service_len;        /* 0: all services */
    char service[BR_KEEP_SERVICE_MAX];
};

struct br_keep_rules;

/* The list of this host's service, made for the first who asks; each call is one reference. NULL
 * without memory. As br_shared_get: while nodes are created or destroyed. */
struct br_keep_rules *br_keep_rules_get(struct br_host *h);
void br_keep_rules_put(struct br_host *h, struct br_keep_rules *r);

/* Adds a rule, a copy with an id of its own, which it returns; 0 when BR_KEEP_RULES_MAX hold at
 * `now_ms` (those that have ended make room). */
uint64_t br_keep_rules_add(struct br_keep_rules *r, const struct br_keep_rule *rule,
                           uint64_t now_ms);

/* Ends a rule before its time. False when there is none with that id. */
bool br_keep_rules_remove(struct br_keep_rules *r, uint64_t id);

/* Changes with every rule added or removed. */
uint64_t br_keep_rules_version(const struct br_keep_rules *r);

/* Copies the rules that hold at `now_ms`, at most BR_KEEP_RULES_MAX; returns how many.
 * `*ret_version` is the version that they are of. */
size_t br_keep_rules_copy(struct br_keep_rules *r, uint64_t now_ms, struct br_keep_rule *out,
                          uint64_t *ret_version);

/* Whether a rule that holds at `now_ms` keeps the link to a span: of that service, of a trace (16
 * bytes; NULL: not known) and of that length. */
bool br_keep_rule_keeps(const struct br_keep_rule *rule, uint64_t now_ms, const void *service,
                        size_t service_len, const uint8_t *trace_id, uint64_t duration_ns);
