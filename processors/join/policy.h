/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which links are kept: by `keep` in the config, and by overrides at run time. */
#pragma once

#include "config/option.h"
#include "pipeline/component.h"
#include "pipeline/override.h"
#include "processors/join/table/table.h"

/* --- Overrides at run time ------------------------------------------------------------------ */

/*
 * Overrides keep additional links for some time (pipeline/override.h). Each worker has its own
 * copies; the component that sets an override sends it to every worker. An override expires at its
 * `until_ms`.
 */

/* longest service name, in bytes; overrides with longer names are ignored */
#define JOIN_OVERRIDE_SERVICE_MAX 255

/* Keeps links of the service's samples if the span was slow or its trace is sampled. */
struct join_override {
    uint64_t id;
    uint64_t until_ms; /* expiry time in ms of the monotonic clock */
    /* percentage of the traces whose links are kept; 100: every link is kept */
    double sampling_percentage;
    /* shortest duration of a slow span, in ns; 0: duration does not matter */
    uint64_t slow_threshold_ns;
    /* length of the service name, in bytes; 0: the override applies to all services */
    uint8_t service_len;
    char service[JOIN_OVERRIDE_SERVICE_MAX];
};

struct join_overrides {
    struct br_overridable overridable;
    const struct br_node *node;
    bool enabled; /* the config drops links, so overrides can keep some */
    size_t count;
    struct join_override overrides[BR_OVERRIDES_MAX];
};

/* Starts accepting overrides. If `enabled` is false, all overrides are ignored, because every
 * link is kept anyway. */
void join_overrides_start(struct join_overrides *overrides, const struct br_node *node,
                          bool enabled);
void join_overrides_stop(struct join_overrides *overrides); /* accepts a zeroed struct */

/* Returns true if an override that is in effect at `now_ms` keeps the link to a span of this
 * service, trace (16 bytes; NULL: unknown) and duration. */
bool join_overrides_keep(const struct join_overrides *overrides, uint64_t now_ms,
                         const void *service, size_t service_len, const uint8_t *trace_id,
                         uint64_t duration_ns);

/* --- The policy ------------------------------------------------------------------------- */

struct join_keep_name {
    const char *name;
    uint64_t slow_threshold; /* in nanoseconds */
};

struct join_keep {
    uint64_t slow_threshold, cpu_threshold; /* in nanoseconds; 0: the condition does not apply */
    struct br_structs span_names;           /* struct join_keep_name */
    bool failed, unknown;
    double sampling_percentage;
};

extern const struct br_option join_keep_options[];

struct join_policy {
    const struct join_keep *keep; /* NULL: every link is kept */
    struct br_map *names;         /* span name -> struct join_keep_name */
    struct join_overrides overrides;
};

/* Initializes a policy. `keep` may be NULL and is borrowed. Returns 0 or BR_ENOMEM. */
int join_policy_init(struct join_policy *policy, const struct join_keep *keep);
void join_policy_release(struct join_policy *policy);

/* Starts accepting overrides. */
void join_policy_start(struct join_policy *policy, const struct br_node *node);

enum join_verdict {
    JOIN_KEEPS,
    JOIN_FOLDS,
    /* removes the link unless the span used more CPU time than cpu_threshold */
    JOIN_FOLDS_UNLESS_CPU,
};

/* Decides whether a sample's link to `span` is kept. `span` is NULL if it is unknown, and
 * `trace_id` is 16 bytes or NULL. The service is that of the span, or else that of the resource. */
enum join_verdict join_policy_of(const struct join_policy *policy, const struct join_found *span,
                                 const uint8_t *trace_id, const uint8_t *service,
                                 size_t service_len, uint64_t now_ms);
