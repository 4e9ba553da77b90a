/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and functions that the files of the processor tail_sampling share: policies, the table of
 * traces, and the spans and samples of one item.
 *
 * The processor keeps requests unchanged until all of their traces are decided, and then removes
 * the spans of the traces that are not sampled. The policies do not need the spans of a trace at
 * once: the processor evaluates each span when it arrives, and the table stores for each trace
 * which policies have matched, how many spans have arrived, and the like. All workers share one
 * table, so a trace may arrive over several connections.
 *
 * The policies decide as in the Collector's tailsamplingprocessor, version 0.165.
 */
#pragma once

#include "attribute/condition.h"
#include "attribute/regex.h"
#include "config/option.h"
#include "core/pending.h"
#include "pipeline/component.h"

/* --- Configuration (config.c) ----------------------------------------------------------------- */

enum tail_type {
    TAIL_ALWAYS_SAMPLE,
    TAIL_LATENCY,
    TAIL_NUMERIC_ATTRIBUTE,
    TAIL_PROBABILISTIC,
    TAIL_STATUS_CODE,
    TAIL_STRING_ATTRIBUTE,
    TAIL_RATE_LIMITING,
    TAIL_BYTES_LIMITING,
    TAIL_SPAN_COUNT,
    TAIL_TRACE_STATE,
    TAIL_BOOLEAN_ATTRIBUTE,
    TAIL_OTTL_CONDITION,
    TAIL_TRACE_FLAGS,
    TAIL_CPU_TIME,
    TAIL_PROFILED,
    TAIL_AND,
    TAIL_NOT,
    TAIL_DROP,
    TAIL_COMPOSITE,
};

struct tail_rate_allocation {
    const char *policy;
    int64_t percent;
};

/* The settings of each type of policy. */

struct tail_policy_config;

struct tail_latency {
    int64_t threshold_ms, upper_threshold_ms;
};

struct tail_numeric_attribute {
    const char *key;
    int64_t min_value, max_value; /* 0: no limit */
    bool invert_match;
};

struct tail_probabilistic {
    const char *hash_salt; /* NULL or empty: the default salt */
    double sampling_percentage;
};

struct tail_status_code {
    struct br_strings status_codes;
};

struct tail_string_attribute {
    const char *key;
    struct br_strings values;
    bool enabled_regex_matching, invert_match;
};

struct tail_rate_limiting {
    int64_t spans_per_second, burst_capacity; /* burst_capacity 0: twice the rate */
};

struct tail_bytes_limiting {
    int64_t bytes_per_second, burst_capacity; /* burst_capacity 0: twice the rate */
};

struct tail_span_count {
    int64_t min_spans, max_spans; /* max_spans 0: no limit */
};

struct tail_trace_state {
    const char *key;
    struct br_strings values;
};

struct tail_boolean_attribute {
    const char *key;
    bool value, invert_match;
};

struct tail_ottl_condition {
    struct br_strings span;
    const struct br_yaml *spanevent; /* not supported */
};

struct tail_cpu_time {
    int64_t threshold_ms;
};

struct tail_profiled {
    int64_t min_samples;
};

struct tail_all_of {
    const struct br_yaml *and_sub_policy;
    struct br_structs policies; /* list of struct tail_policy_config, read by tail_check */
};

struct tail_none_of {
    const struct br_yaml *not_sub_policy;
    struct br_structs policies; /* list of one struct tail_policy_config, read by tail_check */
};

struct tail_drop {
    const struct br_yaml *drop_sub_policy;
    struct br_structs policies; /* list of struct tail_policy_config, read by tail_check */
};

struct tail_composite {
    int64_t max_total_spans_per_second;
    const struct br_yaml *composite_sub_policy;
    struct br_structs rate_allocation; /* list of struct tail_rate_allocation */
    struct br_structs policies;        /* list of struct tail_policy_config, read by tail_check */
};

/* A policy as the option tables read it. Only the struct that belongs to `type` is used. */
struct tail_policy_config {
    const char *name;
    int type; /* an enum tail_type */
    struct tail_latency latency;
    struct tail_numeric_attribute numeric_attribute;
    struct tail_probabilistic probabilistic;
    struct tail_status_code status_code;
    struct tail_string_attribute string_attribute;
    struct tail_rate_limiting rate_limiting;
    struct tail_bytes_limiting bytes_limiting;
    struct tail_span_count span_count;
    struct tail_trace_state trace_state;
    struct tail_boolean_attribute boolean_attribute;
    struct tail_ottl_condition ottl_condition;
    struct tail_cpu_time cpu_time;
    struct tail_profiled profiled;
    struct tail_all_of all_of;
    struct tail_none_of none_of;
    struct tail_drop drop;
    struct tail_composite composite;
};

struct tail_labels {
    struct br_strings span_id, trace_id;
};

struct tail_decision_cache {
    int64_t sampled_cache_size, non_sampled_cache_size; /* numbers of traces; 0: num_traces */
};

struct tail_config {
    /* times in nanoseconds; decision_wait_after_root_received 0: the root has no effect */
    uint64_t decision_wait, decision_wait_after_root_received;
    uint64_t match_time; /* CPU time for patterns and each item, in nanoseconds */
    int64_t num_traces;
    int64_t maximum_trace_size_bytes; /* 0: no limit */
    int64_t hold_max_bytes;
    const struct br_yaml *tail_storage; /* not supported */
    bool block_on_overflow, sample_on_first_match, drop_pending_traces_on_shutdown;
    int sampling_strategy;
    struct tail_decision_cache decision_cache;
    struct tail_labels labels;
    struct br_structs policies; /* list of struct tail_policy_config */
};

extern const struct br_option tail_options[];

/* Checks the config (br_component.check). */
int tail_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
               struct br_errs *errs);

/* --- Policies (policy.c) ---------------------------------------------------------------------- */

#define TAIL_POLICIES_MAX 256u /* largest number of policies in the list `policies` */

/* largest number of policies that read spans; each has a bit in struct tail_bits */
#define TAIL_LEAVES_MAX 128u

/* A set of policies that read spans. */
struct tail_bits {
    uint64_t words[TAIL_LEAVES_MAX / 64];
};

static inline void tail_bits_set(struct tail_bits *bits, unsigned bit)
{
    bits->words[bit / 64] |= UINT64_C(1) << bit % 64;
}

static inline bool tail_bits_get(const struct tail_bits *bits, unsigned bit)
{
    return bits->words[bit / 64] >> bit % 64 & 1;
}

/* A compiled policy. */
struct tail_policy {
    const struct tail_policy_config *config;
    enum tail_type type;
    /* For a policy that reads spans: its bit in struct tail_bits. The bit is set if a span or
     * resource of the trace matches. */
    unsigned bit;
    unsigned meter;     /* for a policy with a rate: index of its struct tail_meter */
    bool inverts;       /* the policy samples if no span or resource matches */
    uint64_t threshold; /* PROBABILISTIC: largest hash of a sampled trace */
    /* for a sub-policy of COMPOSITE: spans per second that it may sample, and the index of the
     * struct tail_meter that counts them */
    int64_t share;
    unsigned share_meter;
    size_t key_len;
    pcre2_code **patterns; /* STRING_ATTRIBUTE with regular expressions: one for each value */
    struct br_conditions conditions; /* OTTL_CONDITION */
    unsigned statuses;               /* STATUS_CODE: bits 1 << enum of Status.StatusCode */
    struct tail_policy *children;
    size_t n_children;
};

/* The compiled policies of a node. The struct is used by only one thread. */
struct tail_policies {
    struct br_arena arena;
    struct tail_policy *policies; /* drop policies first */
    size_t count;
    struct tail_policy *leaves[TAIL_LEAVES_MAX]; /* policies that read spans, by bit */
    unsigned n_leaves, n_meters;
    struct br_regex regex;
    struct br_regex_time time;
    unsigned n_gave_up; /* number of matches that took too long; the caller resets this number */
};

/* Compiles the policies. tail_check has accepted the config, which is borrowed until
 * tail_policies_release. Returns 0, BR_ENOMEM, or BR_EINVAL with a message in `err`. */
int tail_policies_init(struct tail_policies *policies, const struct tail_config *config,
                       struct br_err *err);
void tail_policies_release(struct tail_policies *policies);

/* The state of a policy with a rate, which all workers share. */
struct tail_meter {
    double tokens; /* tokens in the bucket at `then_ms` */
    uint64_t then_ms;
    bool started;    /* false: the bucket is full */
    uint64_t second; /* Unix time in seconds in which `sampled` spans were sampled */
    int64_t sampled;
};

/* The data of a trace that the policies read. */
struct tail_facts {
    struct tail_bits matched;
    uint64_t min_ns, max_ns; /* earliest start and latest end of the spans; 0: no span */
    uint64_t n_spans;
    /* sizes of the ResourceSpans messages that contain only spans of this trace: of the bodies,
     * and with their tags and lengths */
    uint64_t body_bytes, bytes;
    /* CPU time that samples measured, and that counts of periods stand for, in nanoseconds */
    uint64_t cpu_ns, period_ns;
    uint64_t n_samples;
};

enum tail_decision { TAIL_NOT_SAMPLED, TAIL_SAMPLED, TAIL_DROPPED };
#define TAIL_DECISIONS 3

/* The time of a decision. */
struct tail_now {
    uint64_t mono_ms, unix_s;
};

/* Decides about a trace. `meters` are the shared states of policies with a rate. Stores the
 * decision of each policy in `ret_each` (one element for each policy); -1: the policy was not
 * evaluated. */
enum tail_decision tail_policies_decide(const struct tail_policies *policies,
                                        const struct tail_config *config,
                                        const struct tail_facts *facts, const uint8_t id[16],
                                        struct tail_meter *meters, struct tail_now now,
                                        int8_t *ret_each);

/* --- Spans and samples of an item (spans.c, samples.c) ---------------------------------------- */

/* largest number of bytes that are allocated while an item is read */
#define TAIL_SCRATCH_MAX (256u << 20)

/* A span of an item that enters the table. */
struct tail_span {
    uint8_t id[16];
    uint64_t start_ns, end_ns;
    struct tail_bits matched;
    uint32_t group;      /* number of the ScopeSpans in the item */
    uint32_t part;       /* number of the part in the item */
    uint32_t size;       /* size of the span with its tag and length, in bytes */
    uint32_t scope_size; /* size of the fields of the ScopeSpans other than spans */
    uint32_t part_size;  /* size of the fields of the ResourceSpans other than ScopeSpans */
    bool root;           /* the span has no parent */
};

/* Evaluates the policies that read spans for every span of a traces item. Allocates the result, one
 * element for each span, in `arena`. Returns 0, BR_EINVAL, BR_EFULL or BR_ENOMEM. */
int tail_spans_read(struct tail_policies *policies, const struct tail_config *config,
                    struct br_item *item, struct br_arena *arena, struct tail_span **ret);

/* The samples of a profiles item that belong to one trace. */
struct tail_samples {
    uint8_t id[16];
    uint64_t n_samples, cpu_ns, period_ns;
};

/* Adds up the samples of each trace in a profiles item. A trace can have several elements.
 * Allocates the result in `arena`. Returns 0, BR_EINVAL, BR_EFULL or BR_ENOMEM. */
int tail_samples_read(const struct tail_config *config, struct br_item *item,
                      struct br_arena *arena, struct tail_samples **ret, uint32_t *ret_count);

struct tail_ref;

/* Removes the spans of traces that are not sampled. `refs` are the traces of the item, sorted by
 * id, with their decisions. Returns 0, BR_EINVAL, BR_EFULL or BR_ENOMEM; on failure the item is
 * unchanged. The caller reports the dropped records. */
int tail_spans_remove(struct br_item *item, const struct tail_ref *refs, uint32_t n_refs);

/* Removes the links of samples whose trace is not sampled, and folds these samples
 * (otlp/edit/fold.h). Sets `*ret_folded` to the number of samples that lost their links, and
 * `*ret_merged` to the number that were merged into others. Returns 0, BR_EINVAL, BR_EFULL or
 * BR_ENOMEM; on failure the item is unchanged. */
int tail_samples_unlink(const struct tail_config *config, struct br_item *item,
                        const struct tail_ref *refs, uint32_t n_refs, uint32_t *ret_folded,
                        uint32_t *ret_merged);

/* Divides a traces item into the spans of decided traces and those of waiting traces, which become
 * two new items. Moves the pending records of `item` to them. `refs` are the traces of the item,
 * sorted by id, with their states. Returns false if memory is short, if the new items would be more
 * than twice as large as the item, or if one of them would be empty; nothing has changed then. */
bool tail_divide(struct br_item *item, const struct tail_ref *refs, uint32_t n_refs,
                 struct br_item **ret_decided, struct br_item **ret_waiting);

/* --- The table of traces (table.c) ------------------------------------------------------------ */

/*
 * States of a trace in the table. A held item refers to each of its traces.
 *
 * | state    | event                                        | next state                       |
 * |----------|----------------------------------------------|----------------------------------|
 * | (none)   | a span arrives                               | waiting                          |
 * | (none)   | a sample arrives                             | expected                         |
 * | expected | a span arrives                               | waiting                          |
 * | expected | no item refers to the trace any more         | (none)                           |
 * | waiting  | the trace is due, or is evicted              | decided                          |
 * | decided  | no item refers to it, and its cache is full, | (none)                           |
 * |          | and it was used least recently               |                                  |
 */
enum tail_state { TAIL_EXPECTED, TAIL_WAITING, TAIL_KEPT, TAIL_REMOVED };

/* A reference of an item to a trace. */
struct tail_ref {
    uint8_t id[16];
    uint32_t trace; /* place of the trace in the table */
    uint8_t state;  /* an enum tail_state, as of the last call with this reference */
};

/* Counts of a call, which the caller adds to its metrics. The caller zeroes the struct. */
struct tail_tally {
    uint64_t new_traces;
    uint64_t early;     /* traces that were decided before they were due */
    uint64_t too_large; /* traces that exceeded maximum_trace_size_bytes */
    /* spans of traces that were already decided: not sampled (0) and sampled (1) */
    uint64_t late_spans[2];
    uint64_t decisions[TAIL_DECISIONS];
    /* decisions of each policy, by policy and decision; NULL: not counted */
    uint64_t (*policies)[TAIL_DECISIONS];
};

struct tail_table;

/* The caller of the functions of a table. */
struct tail_caller {
    struct tail_table *table;
    const struct tail_config *config;
    const struct tail_policies *policies;
    struct tail_now now;
    struct tail_tally *tally;
};

/* Returns an empty table, or NULL if there is not enough memory. */
struct tail_table *tail_table_new(const struct tail_config *config, unsigned n_meters);
void tail_table_free(struct tail_table *table);

/* Notes that a node of the worker uses the table. Returns false if another node of that worker
 * does. */
bool tail_table_take(struct tail_table *table, unsigned worker);

/* Adds the spans of an item to their traces, in the order of the item. Allocates the references to
 * the traces, sorted by id, in `*ret_refs`, which the caller frees with br_free. Sets `*ret_due_ms`
 * to the time at which the last of the traces is due, in milliseconds of the monotonic clock.
 * Returns 0; BR_ENOMEM; or BR_EFULL with `block_on_overflow` if the table is full. */
int tail_table_add_spans(const struct tail_caller *caller, const struct tail_span *spans,
                         uint32_t count, struct tail_ref **ret_refs, uint32_t *ret_n_refs,
                         uint64_t *ret_due_ms);

/* Adds the samples of an item to their traces. `*ret_due_ms` is 0 if none of the traces is waiting.
 * Otherwise as tail_table_add_spans. */
int tail_table_add_samples(const struct tail_caller *caller, const struct tail_samples *samples,
                           uint32_t count, struct tail_ref **ret_refs, uint32_t *ret_n_refs,
                           uint64_t *ret_due_ms);

/* Updates the states of the references. If `force` is true, waiting traces are decided at once.
 * Returns false if a trace is still waiting, or is expected and `patient` is true. `*ret_due_ms` is
 * then the time at which the last of the waiting traces is due; 0: none is waiting. */
bool tail_table_decided(const struct tail_caller *caller, struct tail_ref *refs, uint32_t n_refs,
                        bool force, bool patient, uint64_t *ret_due_ms);

/* Releases the references, and frees `refs`. */
void tail_table_release(const struct tail_caller *caller, struct tail_ref *refs, uint32_t n_refs);

/* Returns the number of waiting traces. */
uint64_t tail_table_waiting(struct tail_table *table);

/* Returns the reference to a trace, or NULL. `refs` are sorted by id. */
const struct tail_ref *tail_ref_find(const struct tail_ref *refs, uint32_t n_refs,
                                     const uint8_t id[16]);
