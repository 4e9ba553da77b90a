/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of the join share: which links are kept (`keep` in the
 * config, and overrides at run time), metrics of spans, and the join itself. */
#pragma once

#include "config/option.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/component.h"
#include "pipeline/delay.h"
#include "pipeline/override.h"
#include "processors/join/annotations.h"
#include "processors/join/sample_view.h"
#include "processors/join/table/table.h"

/* --- Types and functions for overrides at run time -------------------------------------------- */

/*
 * Overrides keep additional links for some time (pipeline/override.h). Each worker has its own
 * copies of the overrides; the sender of an override sends the override to every worker. An
 * override expires at its `until_ms`.
 */

/* longest service name, in bytes; overrides with longer names are ignored */
#define JOIN_OVERRIDE_SERVICE_MAX 255

/* Keeps the links to a service's spans that were slow or whose trace is sampled. */
struct join_override {
    uint64_t id;
    uint64_t until_ms; /* time when the override expires, in ms of the monotonic clock */
    /* percentage of the traces whose links are kept; 100: every link is kept */
    double sampling_percentage;
    /* shortest duration of a slow span, in ns; 0: no link is kept because of the span's duration */
    uint64_t slow_threshold_ns;
    /* length of the service name, in bytes; 0: the override applies to all services */
    uint8_t service_len;
    char service[JOIN_OVERRIDE_SERVICE_MAX];
};

struct join_overrides {
    struct br_overridable overridable;
    const struct br_node *node;
    bool enabled; /* true if the config drops links, so that overrides can keep some of them */
    size_t count;
    struct join_override overrides[BR_OVERRIDES_MAX];
};

/* Starts accepting overrides. If `enabled` is false, all overrides are ignored, because every
 * link is kept anyway. */
void join_overrides_start(struct join_overrides *overrides, const struct br_node *node,
                          bool enabled);
/* stops accepting overrides; accepts a zeroed struct */
void join_overrides_stop(struct join_overrides *overrides);

/* Returns true if an override that is in effect at `now_ms` keeps the link to a span with this
 * service, trace and duration. `trace_id` has 16 bytes, or is NULL if the trace is unknown. */
bool join_overrides_keep(const struct join_overrides *overrides, uint64_t now_ms,
                         const void *service, size_t service_len, const uint8_t *trace_id,
                         uint64_t duration_ns);

/* --- Types and functions for the policy, which determines the links that are kept ------------- */

struct join_keep_name {
    const char *name;
    /* shortest duration of a slow span with this name, in nanoseconds; 0: no such span is slow */
    uint64_t slow_threshold;
};

struct join_keep {
    /* thresholds for the duration and the CPU time of a span, in nanoseconds; 0: not used */
    uint64_t slow_threshold, cpu_threshold;
    struct br_structs span_names; /* list of struct join_keep_name */
    bool failed, unknown;
    double sampling_percentage;
};

extern const struct br_option join_keep_options[];

struct join_policy {
    const struct join_keep *keep; /* conditions of the config; NULL: every link is kept */
    struct br_map *names;         /* maps a span name to its struct join_keep_name */
    struct join_overrides overrides;
};

/* Initializes a policy. `keep` may be NULL and is borrowed. Returns 0 or BR_ENOMEM. */
int join_policy_init(struct join_policy *policy, const struct join_keep *keep);
void join_policy_release(struct join_policy *policy);

/* Starts accepting overrides of the policy. */
void join_policy_start(struct join_policy *policy, const struct br_node *node);

enum join_verdict {
    JOIN_KEEPS,
    JOIN_FOLDS,
    /* the link is removed unless the span used more CPU time than cpu_threshold */
    JOIN_FOLDS_UNLESS_CPU,
};

/* Decides whether a sample's link to `span` is kept. `span` is NULL if the span is unknown.
 * `trace_id` has 16 bytes, or is NULL. `service` is the service of the span or, if the span's
 * service is unknown, of the resource. */
enum join_verdict join_policy_of(const struct join_policy *policy, const struct join_found *span,
                                 const uint8_t *trace_id, const uint8_t *service,
                                 size_t service_len, uint64_t now_ms);

/* --- Metrics of spans ------------------------------------------------------------------------- */

/*
 * Counts the CPU time, allocated bytes and samples of spans as metrics. Each pair of a service and
 * a span name has its own counters, up to a limit for all workers together. Further pairs are
 * counted together under the name `_other`. Each worker has its own counters.
 */

/* largest number of pairs of service and span name; each pair has three counters, and all
 * counters must fit into BR_METRICS_MAX */
#define JOIN_SERIES_MAX 2500

struct join_span_metrics_config {
    bool enabled;
    int64_t max_series;
};

extern const struct br_option join_span_metrics_options[];

struct join_span_counters {
    double *cpu_seconds, *allocated_bytes, *samples;
};

struct join_span_metrics {
    struct br_node *node; /* node that owns the counters; NULL: the metrics are disabled */
    struct join_table *table;
    size_t max_series;
    /* maps a pair to its counters; the key is the service, a zero byte and the span name */
    struct br_map *known;
    struct join_span_counters other;
};

/* Initializes the metrics. Returns 0 or BR_ENOMEM. */
int join_span_metrics_init(struct join_span_metrics *metrics,
                           const struct join_span_metrics_config *config, struct br_node *node,
                           struct join_table *table);
void join_span_metrics_release(struct join_span_metrics *metrics);

/* The CPU time, allocated bytes and samples by which a sample increases the counters of its
 * span. If samples arrived before their span, one struct contains the resources of all of them. */
struct join_spent {
    uint64_t cpu_ns, allocated_bytes, samples;
};

/* Adds the amounts in `spent` to the counters of the span's service and name. */
void join_span_metrics_add(struct join_span_metrics *metrics, const struct join_span *span,
                           const struct join_spent *spent);

/* Returns the CPU time, allocated bytes and number of all samples that name the span. The CPU
 * time is that of samples of CPU time or, without such samples, that of samples of CPU periods.
 * Samples are counted in the same way as in the attribute profile.sample_count. */
struct join_spent join_spent_of(const struct join_totals *totals);

/* --- The join --------------------------------------------------------------------------------- */

/* Types and functions of the join processor itself. */

#define JOIN_ATTRIBUTES_MAX (JOIN_KEYS_MAX - 2)
#define JOIN_HOW_KEY (JOIN_KEYS_MAX - 1) /* key number of the attribute profile.join */

struct join_labels {
    struct br_strings span_id, trace_id;
};

struct join_local_root {
    int link; /* span to which samples are linked, an enum join_root_link */
    int64_t max_spans;
};

struct join_config {
    /* length of the window in which samples and spans are joined, in nanoseconds */
    uint64_t window;
    int64_t max_bytes, max_values, hold_max_bytes, top_functions;
    struct br_strings sample_attributes;
    struct join_labels labels;
    struct join_local_root local_root;
    uint64_t hold, profile_hold; /* time for which traces and profiles are held, in nanoseconds */
    int mark;                    /* which spans are marked, an enum join_mark */
    bool infer;
    struct join_keep *keep; /* conditions under which links are kept; NULL: all links are kept */
    struct join_span_metrics_config span_metrics;
};

enum join_root_link { JOIN_LINK_ROOT, JOIN_LINK_SPAN };

enum join_mark { JOIN_MARK_NEVER, JOIN_MARK_LIKELY, JOIN_MARK_EXACT };

enum join_outcome {
    JOIN_COUNT_JOINED,
    JOIN_COUNT_LATE,
    JOIN_COUNT_UNKNOWN,
    JOIN_COUNT_TOO_LATE,
    JOIN_COUNT_UNLINKED,
    JOIN_COUNT_INFERRED,
    JOIN_COUNT_AMBIGUOUS,
    JOIN_COUNTS,
};

struct join_paging;

struct join {
    struct br_node *node;
    const struct join_config *config;
    /* Keys of the attributes that are added to joined samples: first span.name, then those of
     * sample_attributes. profile.join is at JOIN_HOW_KEY. */
    const char *keys[JOIN_KEYS_MAX];
    size_t key_lens[JOIN_KEYS_MAX];
    /* bit i is set if a configured key has a length of i bytes, for lengths below 64 */
    uint64_t wanted_lens;
    unsigned n_keys;
    unsigned kind_key, status_key; /* key numbers of span.kind and span.status; 0: not configured */
    struct join_table *table;
    struct join_policy policy;
    struct join_span_metrics span_metrics;
    struct br_delay delay;           /* forwards held items to the next component */
    struct br_list held[BR_SIGNALS]; /* list of struct held, oldest first */
    size_t held_bytes;
    struct br_timer release, housekeeping;
    /* the task of this instance that is running in a thread; NULL: no task is running */
    struct join_paging *paging;
    /* time in ms of the monotonic clock at which both signals had arrived, 0: not yet; used by
     * the first worker only */
    uint64_t both_ms;
    /* true after join_log_reason has logged a reason, or has found that samples are joined */
    bool reason_logged;
    double *counts[JOIN_TYPES][JOIN_COUNTS];
    double *folded[JOIN_TYPES], *folded_values[JOIN_TYPES];
    double *other_values, *evicted, *marked, *spans_entered, *hold_full, *trace_spans_cut,
        *steps_cut, *splits_cut, *services_cut;
    double *table_bytes, *table_spans, *table_pending, *table_age;
};

/* Adds `count` to the counter of samples of a profile type that had this outcome. */
void join_count(struct join *join, uint16_t type, enum join_outcome outcome, double count);

/* Counts samples of a profile type that lost their links, and adds up their values. */
void join_count_folded(struct join *join, uint16_t type, double count, double value);

/* Adds the numbers in `tally` (waiting samples and spans of the table) to the metrics. */
void join_count_tally(struct join *join, const struct join_tally *tally);

/* Returns true if the service, or this instance of it, is being profiled (join_table_profiled). */
bool join_service_profiled(const struct join *join, const struct join_service *service,
                           uint64_t now_ms);

/* Returns the item's spans. If the receiver has not stored the spans in the item, searches the
 * item's bytes for them. Returns NULL if there are no spans or memory is short. The spans are
 * valid until the item's parts change. */
const struct br_span *join_spans_of(struct br_item *item);

/* If the table needs pages, starts a task that makes the kernel allocate the pages before spans
 * are written to the table. */
void join_paging_start(struct join *join);

/* Waits until the task that join_paging_start started in a thread has finished. */
void join_paging_stop(struct join *join);

/* The result of join_enter_spans. */
struct join_entered {
    bool profiled; /* at least one span belongs to a profiled service */
    /* true if `profiled` is true, or if it is too early to know whether one of the services is
     * profiled */
    bool waits;
    bool sampled; /* true if samples had arrived before at least one of the spans */
};

/* Enters the item's spans into the table. Skips spans for which there is not enough memory. */
struct join_entered join_enter_spans(struct join *join, struct br_item *item);

/* Writes marks to the item's spans. If `totals` is true, also writes the totals of the samples
 * that have arrived for the spans. If the spans were held (`waited`) and the config sets `mark:
 * exact`, removes marks of spans without samples. */
void join_mark_spans(struct join *join, struct br_item *item, bool totals, bool waited);

/* A profiles item is processed in one pass or, if it may be held, in two passes. */
enum join_pass {
    /* the only pass: adds totals, counts the samples, and writes attributes and links */
    JOIN_PASS_ONLY,
    JOIN_PASS_FIRST, /* the first of two passes: adds totals, and stores the results in `memo` */
    /* the last of two passes: counts the samples, and writes attributes and links, according to
     * all spans that have arrived by now */
    JOIN_PASS_LAST,
};

/* Looks up the span of every sample. `memo` has one byte per sample (NULL with JOIN_PASS_ONLY),
 * and `came_ms` is the time at which the item arrived. Returns the number of samples whose span
 * has not arrived. If there is not enough memory, the samples are not changed. */
uint32_t join_samples(struct join *join, struct br_item *item, enum join_pass pass, uint8_t *memo,
                      uint64_t came_ms);
