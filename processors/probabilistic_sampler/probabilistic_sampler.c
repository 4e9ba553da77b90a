/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probabilistic sampler keeps spans by their trace id and tracestate. The sampler keeps samples
 * of profiles by the trace that they belong to, so that a kept trace has its samples. sampler.h
 * contains the functions that decide.
 */
#include <math.h>
#include <string.h>

#include "attribute/value.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/steps.h"
#include "otlp/edit/rewrite.h"
#include "otlp/groups.h"
#include "otlp/keyvalue.h"
#include "otlp/sample_traces.h"
#include "otlp/scan.h"
#include "otlp/trace_id.h"
#include "pipeline/component.h"
#include "processors/probabilistic_sampler/sampler.h"

#define SCRATCH_MAX (64u << 20)

enum unlinked { UNLINKED_KEEP, UNLINKED_BY_PROFILE_ID, UNLINKED_DROP };

struct labels {
    struct br_strings trace_id;
};

struct config {
    double sampling_percentage;
    int64_t hash_seed, sampling_precision;
    int mode, unlinked;
    bool fail_closed;
    struct labels labels;
};

struct state {
    struct sampler sampler;
    struct sampler_verdict verdict; /* decision about the current span */
    struct br_buf *body;            /* the rewritten span */
    struct br_arena scratch;        /* memory for the current item */
    double *counts[BR_SIGNALS][SAMPLER_POLICIES][2];
};

static const char *const modes[] = {"hash_seed", "proportional", "equalizing", NULL};
static const char *const unlinked[] = {"keep", "by_profile_id", "drop", NULL};

static const struct br_option label_options[] = {
    BR_STRINGS(struct labels, trace_id,
               "names of sample attributes that contain a trace id; default: trace_id, "
               "process.context.label.trace_id"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_DOUBLE(struct config, sampling_percentage, 0, 0, 0,
              "percentage of traces to keep; 100 or more: all"),
    BR_ENUM(
        struct config, mode, "hash_seed", modes,
        "hash_seed: traces are selected by a hash of the trace id; proportional, equalizing: by "
        "the randomness and the threshold in the tracestate, consistently with other samplers"),
    BR_INT(struct config, hash_seed, 0, 0, UINT32_MAX,
           "for mode hash_seed: seed of the hash; use the same seed on all instances of a layer"),
    BR_BOOL(struct config, fail_closed, true,
            "true: drop records without a trace id or with an invalid tracestate; false: keep "
            "these records"),
    BR_INT(struct config, sampling_precision, 4, 1, BR_THRESHOLD_DIGITS,
           "for modes proportional and equalizing: number of hex digits of the threshold"),
    BR_ENUM(struct config, unlinked, "keep", unlinked,
            "what to do with samples without a trace; by_profile_id: keep the samples in "
            "sampling_percentage of the profiles"),
    BR_STRUCT(struct config, labels, label_options,
              "names of the attributes that contain the ids of samples without a link"),
    BR_IGNORED("attribute_source", "option of the Collector for logs"),
    BR_IGNORED("from_attribute", "option of the Collector for logs"),
    BR_IGNORED("sampling_priority", "option of the Collector for logs"),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static int probabilistic_sampler_check(void *config, const struct br_yaml *node, const char *path,
                                       struct br_arena *arena, struct br_errs *errs)
{
    static const char *trace_ids[] = {"trace_id", "process.context.label.trace_id"};
    struct config *settings = config;
    (void)arena;
    const struct br_yaml *at = br_yaml_get(node, "sampling_percentage");
    float percentage = (float)settings->sampling_percentage;
    if (!settings->labels.trace_id.count)
        settings->labels.trace_id = (struct br_strings){trace_ids, BR_COUNT(trace_ids)};
    const char *wrong = NULL;
    if (!isfinite(percentage))
        wrong = "must be a number";
    else if (percentage < 0)
        wrong = "must not be negative";
    else if (percentage > 0 && (double)percentage / 100 < 0x1p-56)
        wrong = "is too small; must be 0 or at least 2^-56 of the traces";
    if (!at)
        br_errs_warn(errs, node, path,
                     "sampling_percentage is not set and defaults to 0: no trace is kept");
    return wrong ? br_errs_add_key(errs, node, path, "sampling_percentage", "%s", wrong) : 0;
}

static double *probabilistic_sampler_counter(struct br_node *node, enum br_signal signal,
                                             enum sampler_policy policy, bool sampled)
{
    static const char *const policies[] = {
        "trace_id_hash",     "trace_id_w3c",       "sampling_randomness",
        "sampling_priority", "missing_randomness", "profile_id",
        "unlinked"};
    struct br_str labels = {.max = 1024};
    br_label(&labels, "processor", node->id);
    br_label(&labels, "policy", policies[policy]);
    br_label(&labels, "sampled", sampled ? "true" : "false");
    double *metric =
        br_metric(node->host->metrics, BR_COUNTER,
                  signal == BR_TRACES
                      ? "otelcol_processor_probabilistic_sampler_count_traces_sampled"
                      : "otelcol_processor_probabilistic_sampler_count_profile_samples_sampled",
                  labels.data ? labels.data : "");
    br_str_release(&labels);
    return metric;
}

static int probabilistic_sampler_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    (void)err;
    sampler_init(&state->sampler, (enum sampler_mode)config->mode, config->sampling_percentage,
                 (uint32_t)config->hash_seed, (unsigned)config->sampling_precision,
                 config->fail_closed);
    br_arena_init(&state->scratch, SCRATCH_MAX);
    return 0;
}

static void probabilistic_sampler_count(struct br_node *node, enum br_signal signal,
                                        enum sampler_policy policy, bool sampled)
{
    struct state *state = node->state;
    double **metric = &state->counts[signal][policy][sampled];
    if (!*metric)
        *metric = probabilistic_sampler_counter(node, signal, policy, sampled);
    ++**metric;
}

/* --- Spans ----------------------------------------------------------------------------------- */

static enum sampler_priority
probabilistic_sampler_priority_of(struct br_value value, struct br_arena *scratch, bool *no_memory)
{
    struct br_any any = br_any_read(value);
    double v;
    if (any.type != BR_VALUE_STRING && any.type != BR_VALUE_INT && any.type != BR_VALUE_DOUBLE)
        return SAMPLER_PRIORITY_NONE;
    if (!br_value_convert(value, BR_VALUE_DOUBLE, scratch, &value)) {
        *no_memory = true;
        return SAMPLER_PRIORITY_NONE;
    }
    any = br_any_read(value);
    if (any.type != BR_VALUE_DOUBLE)
        return SAMPLER_PRIORITY_NONE;
    memcpy(&v, &any.number, sizeof v);
    if (v < 0 || isnan(v))
        return SAMPLER_PRIORITY_NONE;
    return v > 0 ? SAMPLER_PRIORITY_KEEP : SAMPLER_PRIORITY_DROP;
}

/* Returns true if the attribute is sampling.priority, and stores its value in `*ret`. */
static bool probabilistic_sampler_is_priority(const uint8_t *data, size_t len, struct br_value *ret)
{
    struct br_keyvalue kv;
    (void)br_keyvalue_read(data, len, &kv);
    *ret = kv.value;
    return br_bytes_are(kv.key, kv.key_len, "sampling.priority");
}

static int probabilistic_sampler_read_span(struct state *state, const struct br_visit *visit,
                                           struct sampler_span *ret)
{
    const uint8_t *p = visit->body, *end = p + visit->len;
    bool has_wish = false, no_memory = false;
    struct br_value value;
    struct br_field field;
    *ret = (struct sampler_span){0};
    br_steps_add(visit->len);
    while (p < end && (p = br_scan(p, end, &field))) {
        switch (br_scan_tag(&field)) {
        case BR_SCAN_LEN(BR_SPAN_TRACE_ID):
            ret->trace_id = field.value == 16 ? field.data : NULL;
            break;
        case BR_SCAN_LEN(BR_SPAN_TRACE_STATE):
            ret->tracestate = field.data;
            ret->tracestate_len = (size_t)field.value;
            break;
        case BR_SCAN_LEN(BR_SPAN_ATTRIBUTES):
            if (!has_wish &&
                probabilistic_sampler_is_priority(field.data, (size_t)field.value, &value)) {
                ret->priority =
                    probabilistic_sampler_priority_of(value, &state->scratch, &no_memory);
                has_wish = true;
            }
            break;
        default:
            break;
        }
    }
    return no_memory ? BR_ENOMEM : 0;
}

/* Writes the span with its new tracestate. */
static int probabilistic_sampler_write_span(struct state *state, struct br_visit *visit,
                                            struct br_pool *pool)
{
    char text[BR_TRACESTATE_ROOM];
    size_t len = br_tracestate_write(&state->verdict.state, text);
    size_t most = visit->len + br_len_size(BR_SPAN_TRACE_STATE, len);
    if (br_buf_prepare(&state->body, pool, most))
        return BR_ENOMEM;
    const uint8_t *p = visit->body, *end = p + visit->len;
    uint8_t *out = state->body->data;
    struct br_field field;
    br_steps_add(visit->len);
    while (p < end) {
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_SPAN_TRACE_STATE))
            out = br_put_bytes(out, at, (size_t)(p - at));
    }
    out = br_put_len(out, BR_SPAN_TRACE_STATE, text, len);
    visit->out = (struct br_addition){state->body->data, (size_t)(out - state->body->data)};
    return BR_REPLACE;
}

static int probabilistic_sampler_on_span(void *arg, struct br_visit *visit)
{
    struct br_node *node = arg;
    struct state *state = node->state;
    struct sampler_span span;
    int rc = probabilistic_sampler_read_span(state, visit, &span);
    if (rc)
        return rc;
    sampler_span(&state->sampler, &span, &state->verdict);
    probabilistic_sampler_count(node, BR_TRACES, state->verdict.policy, state->verdict.sampled);
    if (!state->verdict.sampled)
        return BR_DROP;
    return state->verdict.rewrite ? probabilistic_sampler_write_span(state, visit, node->host->pool)
                                  : BR_KEEP;
}

/* --- Samples --------------------------------------------------------------------------------- */

/* The state of sampling one profiles item. */
struct run {
    struct br_node *node;
    struct br_sample_traces traces;
    struct br_groups groups;
    /* for each trace that samples name, true if the trace is kept; index: number of the trace
     * (br_sample_traces_of) */
    bool *kept;
    bool keep_unlinked; /* samples of the current profile that do not belong to a trace are kept */
    enum sampler_policy unlinked_by;
};

static bool probabilistic_sampler_judge(const struct run *run, const uint8_t id[16])
{
    const struct state *state = run->node->state;
    return sampler_id(&state->sampler, id);
}

static int probabilistic_sampler_judge_traces(struct run *run, const struct br_item *item,
                                              struct br_arena *arena)
{
    const struct config *config = run->node->config;
    int rc = br_sample_traces_read(&run->traces, item, &config->labels.trace_id, arena);
    run->kept = rc ? NULL : br_arena_calloc(arena, run->traces.count, sizeof *run->kept);
    if (!run->kept)
        return BR_ENOMEM;
    for (uint32_t i = 1; i < run->traces.count; i++)
        run->kept[i] = probabilistic_sampler_judge(run, run->traces.ids[i]);
    return 0;
}

/* Decides whether samples without a trace are kept in the current profile. */
static void probabilistic_sampler_decide_unlinked(struct run *run)
{
    const struct config *config = run->node->config;
    const uint8_t *p = run->groups.body, *end = p + run->groups.body_len, *id = NULL;
    struct br_field field;
    run->unlinked_by = SAMPLER_UNLINKED;
    run->keep_unlinked = config->unlinked == UNLINKED_KEEP;
    if (config->unlinked != UNLINKED_BY_PROFILE_ID)
        return;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_PROFILE_PROFILE_ID))
            id = field.value == 16 ? field.data : NULL;
    bool valid = id && br_trace_id_valid(id);
    run->unlinked_by = valid ? SAMPLER_PROFILE_ID : SAMPLER_MISSING;
    run->keep_unlinked = valid ? probabilistic_sampler_judge(run, id) : !config->fail_closed;
}

static int probabilistic_sampler_on_sample(void *arg, struct br_visit *visit)
{
    struct run *run = arg;
    const struct config *config = run->node->config;
    if (br_groups_at_item(&run->groups, visit->index))
        probabilistic_sampler_decide_unlinked(run);
    uint32_t trace = br_sample_traces_of(&run->traces, visit->body, visit->len);
    bool sampled = trace ? run->kept[trace] : run->keep_unlinked;
    enum sampler_policy by =
        config->mode == SAMPLER_HASH_SEED ? SAMPLER_TRACE_ID_HASH : SAMPLER_TRACE_ID_W3C;
    probabilistic_sampler_count(run->node, BR_PROFILES, trace ? by : run->unlinked_by, sampled);
    return sampled ? BR_KEEP : BR_DROP;
}

/* --- Traffic --------------------------------------------------------------------------------- */

static int probabilistic_sampler_sample_profiles(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    struct run run = {.node = node};
    int rc = probabilistic_sampler_judge_traces(&run, item, &state->scratch);
    br_groups_init(&run.groups, item);
    return rc ? rc
              : br_item_rewrite(item, 1u << BR_LEVEL_RECORD, probabilistic_sampler_on_sample, &run);
}

static void probabilistic_sampler_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    uint32_t before = item->n_records;
    int rc = item->signal == BR_TRACES
                 ? br_item_rewrite(item, 1u << BR_LEVEL_RECORD, probabilistic_sampler_on_span, node)
                 : probabilistic_sampler_sample_profiles(node, item);
    br_arena_release(&state->scratch);
    if (rc == BR_EINVAL) {
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "probabilistic_sampler: malformed data");
        return;
    }
    if (rc) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "probabilistic_sampler: out of memory");
        return;
    }
    uint32_t n_dropped = before - item->n_records;
    br_item_report(item, BR_RESULT_DROPPED, "sampled", n_dropped);
    if (n_dropped && item->n_records == 0)
        br_item_done(item);
    else
        br_node_forward(node, item);
}

static void probabilistic_sampler_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_buf_unref(state->body);
    br_arena_release(&state->scratch);
}

extern const struct br_component br_probabilistic_sampler_processor;
const struct br_component br_probabilistic_sampler_processor = {
    .name = "probabilistic_sampler",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "keeps a percentage of the traces, with their samples",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = probabilistic_sampler_check,
    .create = probabilistic_sampler_create,
    .consume = probabilistic_sampler_consume,
    .destroy = probabilistic_sampler_destroy,
};
