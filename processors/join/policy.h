/* SPDX-License-Identifier: Apache-2.0 */
/* Whose links survive: the `keep` of the config, and the rules that are set at run time. */
#pragma once

#include "config/option.h"
#include "processors/join/credit.h"
#include "processors/join/rules.h"

struct join_keep_name {
    const char *name;
    uint64_t slow_threshold; /* ns */
};

struct join_keep {
    uint64_t slow_threshold, cpu_threshold; /* ns; 0: no reason */
    struct br_structs span_names;           /* of join_keep_name */
    bool failed, unknown;
    double sampling_percentage;
};

extern const struct br_option join_keep_options[];

struct join_policy {
    const struct join_keep *keep; /* NULL: every link survives */
    struct br_map *names;         /* a span's name -> its join_keep_name */
    struct join_rules rules;
};

/* `keep` may be NULL and is borrowed. Returns 0 or BR_ENOMEM. */
int join_policy_init(struct join_policy *p, const struct join_keep *keep);
void join_policy_release(struct join_policy *p);

/* From now on rules can be set. */
void join_policy_start(struct join_policy *p, const struct br_node *node);

enum join_verdict {
    JOIN_KEEPS,
    JOIN_FOLDS,
    JOIN_FOLDS_UNLESS_CPU, /* unless the span spent more CPU time than cpu_threshold */
};

/* What becomes of a sample's link: to `span`, NULL when that is not known; to a trace (16 bytes, or
 * NULL); of a service (of the span, or else of the resource). */
enum join_verdict join_policy_of(const struct join_policy *p, const struct join_found *span,
                                 const uint8_t *trace_id, const uint8_t *service,
                                 size_t service_len, uint64_t now_ms);
