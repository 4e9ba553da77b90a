/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which links are kept: by the `keep` of the config, and by overrides at run time. */
#pragma once

#include "config/option.h"
#include "pipeline/component.h"
#include "pipeline/override.h"
#include "processors/join/table/table.h"

/* --- Overrides at run time ------------------------------------------------------------------ */

/*
 * Whose links an override keeps, for a while (pipeline/override.h): this worker's copies of the
 * overrides, which whoever sets them brings to every worker. An override is void from its time on,
 * whatever else happens.
 */

#define JOIN_OVERRIDE_SERVICE_MAX 255 /* bytes; no override is taken for a longer name */

/* Links of the service's samples survive where the span was slow or its trace is sampled. */
struct join_override {
    uint64_t id;
    uint64_t until_ms;          /* monotonic; the override holds before it */
    double sampling_percentage; /* of the traces; 100: every link */
    uint64_t slow_threshold_ns; /* spans that last as long; 0: no span for its length */
    uint8_t service_len;        /* 0: all services */
    char service[JOIN_OVERRIDE_SERVICE_MAX];
};

struct join_overrides {
    struct br_overridable overridable;
    const struct br_node *node;
    bool enabled; /* the config leaves links away, which overrides can bring back */
    size_t count;
    struct join_override overrides[BR_OVERRIDES_MAX];
};

/* Begins to obey; without `asked` no override is for it, because every link survives anyway. */
void join_overrides_start(struct join_overrides *overrides, const struct br_node *node,
                          bool enabled);
void join_overrides_stop(struct join_overrides *overrides); /* accepts a zeroed one */

/* Says whether an override that holds at `now_ms` keeps the link to a span: of that service, of a
 * trace (16 bytes; NULL: not known) and of that length. */
bool join_overrides_keep(const struct join_overrides *overrides, uint64_t now_ms,
                         const void *service, size_t service_len, const uint8_t *trace_id,
                         uint64_t duration_ns);

/* --- The policy ------------------------------------------------------------------------- */

/* Says which links survive: by the `keep` of the config, and by overrides at run time. */

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
    struct join_overrides overrides;
};

/* Prepares a policy. `keep` may be NULL and is borrowed. Returns 0 or BR_ENOMEM. */
int join_policy_init(struct join_policy *policy, const struct join_keep *keep);
void join_policy_release(struct join_policy *policy);

/* Begins to take overrides. */
void join_policy_start(struct join_policy *policy, const struct br_node *node);

enum join_verdict {
    JOIN_KEEPS,
    JOIN_FOLDS,
    JOIN_FOLDS_UNLESS_CPU, /* unless the span spent more CPU time than cpu_threshold */
};

/* Decides what becomes of a sample's link: to `span`, NULL when that is not known; to a trace (16
 * bytes, or NULL); of a service (of the span, or else of the resource). */
enum join_verdict join_policy_of(const struct join_policy *policy, const struct join_found *span,
                                 const uint8_t *trace_id, const uint8_t *service,
                                 size_t service_len, uint64_t now_ms);
