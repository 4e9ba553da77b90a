/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up the samples of each trace, and removes the links of samples. */
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/sum.h"
#include "otlp/edit/fold.h"
#include "otlp/edit/rewrite.h"
#include "otlp/groups.h"
#include "otlp/keyvalue.h"
#include "otlp/sample_traces.h"
#include "otlp/scan.h"
#include "processors/tail_sampling/tail_sampling.h"

/* How the values of a profile's samples are converted to CPU time. */
struct measure {
    uint64_t cpu_unit_ns; /* nanoseconds of CPU time per unit of the values; 0: no CPU time */
    /* nanoseconds of CPU time for each counted sample; 0: the values are not counts */
    uint64_t cpu_period_ns;
};

struct sampling {
    struct br_sample_traces traces;
    struct br_groups groups;
    struct measure measure; /* meaning of the values of the current profile */
    /* sums of the samples of each trace, as an array that is indexed by the trace's number
     * (br_sample_traces_of) */
    struct tail_samples *samples;
    /* for each trace, by its number: true if the trace is not sampled */
    bool *removed;
    uint8_t *folds; /* for each sample: whether it loses its link (enum br_fold) */
    uint32_t n_folded;
};

/* --- Values ----------------------------------------------------------------------------------- */

static bool sample_text_is(struct br_entry text, const char *const *names)
{
    for (; *names; names++)
        if (br_bytes_are(text.data, text.len, *names))
            return true;
    return false;
}

static void sample_read_type(const struct br_dictionary_view *view, const struct br_field *type,
                             struct br_entry *ret_type, struct br_entry *ret_unit)
{
    const uint8_t *p = type->data, *end = p + type->value;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_VALUE_TYPE_TYPE))
            *ret_type = br_dictionary_string(view, (uint32_t)field.value);
        else if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_VALUE_TYPE_UNIT))
            *ret_unit = br_dictionary_string(view, (uint32_t)field.value);
    }
}

static uint64_t sample_unit_ns(struct br_entry unit)
{
    static const struct {
        const char *names[3];
        uint64_t ns;
    } units[] = {
        {{"nanoseconds", "ns", NULL}, 1},
        {{"microseconds", "us", NULL}, 1000},
        {{"milliseconds", "ms", NULL}, 1000000},
        {{"seconds", "s", NULL}, 1000000000},
    };
    for (size_t i = 0; i < BR_COUNT(units); i++)
        if (sample_text_is(unit, units[i].names))
            return units[i].ns;
    return 0;
}

/* Reads the types of the current profile. CPU time is given either in units of time, or as a number
 * of sampling periods. */
static struct measure sample_read_measure(const struct sampling *sampling)
{
    static const char *const cpu[] = {"cpu", "itimer", "process_cpu", NULL};
    static const char *const counted[] = {"cpu", "itimer", "process_cpu", "samples", NULL};
    const uint8_t *p = sampling->groups.body, *end = p + sampling->groups.body_len;
    struct br_entry type = {0}, unit = {0}, period_type = {0}, period_unit = {0};
    struct measure measure = {0, 0};
    struct br_field field;
    int64_t period = 0;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_PROFILE_SAMPLE_TYPE))
            sample_read_type(&sampling->traces.view, &field, &type, &unit);
        else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_PROFILE_PERIOD_TYPE))
            sample_read_type(&sampling->traces.view, &field, &period_type, &period_unit);
        else if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_PROFILE_PERIOD))
            period = (int64_t)field.value;
    }
    uint64_t period_ns = 0;
    if (period > 0)
        period_ns = br_product_unsigned((uint64_t)period, sample_unit_ns(period_unit));
    if (sample_unit_ns(unit) && sample_text_is(type, cpu))
        measure.cpu_unit_ns = sample_unit_ns(unit);
    else if (br_bytes_are(unit.data, unit.len, "count") && sample_text_is(type, counted) &&
             sample_text_is(period_type, cpu))
        measure.cpu_period_ns = period_ns;
    else
        return measure;
    /* if a sample has no values, each of its timestamps stands for one sampling period */
    if (measure.cpu_unit_ns)
        measure.cpu_period_ns = period_ns;
    return measure;
}

/* Returns the sum of the values of a sample, and the numbers of its values and timestamps. */
static uint64_t sample_sum(const uint8_t *body, size_t len, uint64_t *ret_values,
                           uint64_t *ret_times)
{
    const uint8_t *p = body, *end = p + len;
    struct br_field field;
    int64_t sum = 0;
    uint64_t v;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint32_t tag = br_scan_tag(&field);
        if (tag == BR_SCAN_VARINT(BR_SAMPLE_VALUES)) {
            sum = br_sum(sum, (int64_t)field.value);
            ++*ret_values;
        } else if (tag == BR_SCAN_LEN(BR_SAMPLE_VALUES)) {
            for (const uint8_t *q = field.data; q && q < p && (q = br_scan_varint(q, p, &v));
                 ++*ret_values)
                sum = br_sum(sum, (int64_t)v);
        } else if (field.number == BR_SAMPLE_TIMES) {
            *ret_times += field.wire == BR_WIRE_LEN ? field.value / 8 : 1;
        }
    }
    return sum > 0 ? (uint64_t)sum : 0;
}

static void sample_count(const struct measure *measure, const struct br_visit *visit,
                         struct tail_samples *samples)
{
    uint64_t n_values = 0, n_times = 0, time_ns;
    uint64_t sum = sample_sum(visit->body, visit->len, &n_values, &n_times);
    samples->n_samples++;
    if (measure->cpu_unit_ns) {
        time_ns = n_values ? br_product_unsigned(sum, measure->cpu_unit_ns)
                           : br_product_unsigned(n_times, measure->cpu_period_ns);
        samples->cpu_ns = br_sum_unsigned(samples->cpu_ns, time_ns);
    } else if (measure->cpu_period_ns) {
        time_ns = br_product_unsigned(n_values ? sum : n_times, measure->cpu_period_ns);
        samples->period_ns = br_sum_unsigned(samples->period_ns, time_ns);
    }
}

/* --- Reading ---------------------------------------------------------------------------------- */

static int sample_on_count(void *arg, struct br_visit *visit)
{
    struct sampling *sampling = arg;
    if (br_groups_at_item(&sampling->groups, visit->index))
        sampling->measure = sample_read_measure(sampling);
    uint32_t trace = br_sample_traces_of(&sampling->traces, visit->body, visit->len);
    if (trace)
        sample_count(&sampling->measure, visit, &sampling->samples[trace]);
    return BR_KEEP;
}

int tail_samples_read(const struct tail_config *config, struct br_item *item,
                      struct br_arena *arena, struct tail_samples **ret, uint32_t *ret_count)
{
    struct sampling sampling = {.n_folded = 0};
    int rc = br_sample_traces_read(&sampling.traces, item, &config->labels.trace_id, arena);
    if (!rc)
        sampling.samples = br_arena_calloc(arena, sampling.traces.count, sizeof *sampling.samples);
    if (!sampling.samples)
        return br_arena_why(arena);
    br_groups_init(&sampling.groups, item);
    if (sampling.traces.count > 1)
        rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD, sample_on_count, &sampling);
    uint32_t n = 0;
    for (uint32_t i = 1; i < sampling.traces.count; i++) {
        if (!sampling.samples[i].n_samples)
            continue;
        sampling.samples[n] = sampling.samples[i];
        memcpy(sampling.samples[n++].id, sampling.traces.ids[i], sizeof sampling.samples[0].id);
    }
    *ret = sampling.samples;
    *ret_count = n;
    return rc;
}

/* --- Unlinking -------------------------------------------------------------------------------- */

static int sample_on_judge(void *arg, struct br_visit *visit)
{
    struct sampling *sampling = arg;
    uint32_t trace = br_sample_traces_of(&sampling->traces, visit->body, visit->len);
    uint8_t verdict = trace ? BR_FOLD_KEPT : BR_FOLD_UNLINKED;
    if (trace && sampling->removed[trace]) {
        verdict = BR_FOLD_FOLDED;
        sampling->n_folded++;
    }
    sampling->folds[visit->index] = verdict;
    return BR_KEEP;
}

static bool sample_names_span(const struct tail_labels *labels, struct br_entry key)
{
    const struct br_strings *const lists[] = {&labels->span_id, &labels->trace_id};
    for (size_t i = 0; i < BR_COUNT(lists); i++)
        for (size_t k = 0; k < lists[i]->count; k++)
            if (br_bytes_are(key.data, key.len, lists[i]->items[k]))
                return true;
    return false;
}

/* Returns which attributes name a span or a trace (enum br_fold_attribute). */
static uint8_t *sample_read_labels(const struct sampling *sampling,
                                   const struct tail_labels *labels, struct br_arena *arena)
{
    const struct br_dictionary_view *view = &sampling->traces.view;
    uint32_t n = view->count[BR_TABLE_ATTRIBUTE];
    uint8_t *ret = br_arena_calloc(arena, (size_t)n + 1, 1);
    for (uint32_t i = 1; ret && i < n; i++) {
        const struct br_entry *entry = &view->tables[BR_TABLE_ATTRIBUTE][i];
        struct br_keyvalue kv;
        (void)br_keyvalue_read_entry(entry->data, entry->len, &kv);
        struct br_entry key = br_dictionary_string(view, (uint32_t)kv.key_index);
        if (key.len && sample_names_span(labels, key))
            ret[i] = BR_FOLD_NAMES_SPAN;
    }
    return ret;
}

static int sample_unlink(struct sampling *sampling, const struct tail_config *config,
                         struct br_item *item, struct br_arena *arena, uint32_t *ret_merged)
{
    int rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD, sample_on_judge, sampling);
    if (rc || !sampling->n_folded)
        return rc;
    const uint8_t *labels = sample_read_labels(sampling, &config->labels, arena);
    return labels ? br_item_fold(item, sampling->folds, labels,
                                 sampling->traces.view.count[BR_TABLE_ATTRIBUTE], ret_merged)
                  : br_arena_why(arena);
}

int tail_samples_unlink(const struct tail_config *config, struct br_item *item,
                        const struct tail_ref *refs, uint32_t n_refs, uint32_t *ret_folded,
                        uint32_t *ret_merged)
{
    struct sampling sampling = {.n_folded = 0};
    struct br_arena arena;
    uint32_t merged = 0;
    br_arena_init(&arena, TAIL_SCRATCH_MAX);
    int rc = br_sample_traces_read(&sampling.traces, item, &config->labels.trace_id, &arena);
    if (!rc) {
        sampling.removed = br_arena_calloc(&arena, sampling.traces.count, sizeof *sampling.removed);
        sampling.folds = br_arena_calloc(&arena, (size_t)item->n_records + 1, 1);
    }
    rc = sampling.removed && sampling.folds ? 0 : br_arena_why(&arena);
    for (uint32_t i = 1; i < sampling.traces.count && !rc; i++) {
        const struct tail_ref *ref = tail_ref_find(refs, n_refs, sampling.traces.ids[i]);
        sampling.removed[i] = ref && ref->state == TAIL_REMOVED;
    }
    if (!rc)
        rc = sample_unlink(&sampling, config, item, &arena, &merged);
    br_arena_release(&arena);
    if (rc)
        return rc;
    *ret_folded = sampling.n_folded;
    *ret_merged = merged;
    return 0;
}
