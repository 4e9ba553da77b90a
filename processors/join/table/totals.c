/* SPDX-License-Identifier: Apache-2.0 */
/* Adds samples to the totals of spans, and totals to other totals. */
#include "base/sum.h"
#include "processors/join/table/internal.h"

struct join_totals *join_record_totals(const struct join_table *table, struct shard *shard,
                                       struct record *record, uint32_t now)
{
    if (record->totals)
        return join_shard_totals(table, shard, record->totals);
    if (!join_shard_has_totals(shard))
        return NULL;
    record->totals = shard->free_totals ? shard->free_totals : ++shard->used_totals;
    struct join_totals *totals = join_shard_totals(table, shard, record->totals);
    if (record->totals == shard->free_totals)
        shard->free_totals = totals->types[0].waiting;
    memset(totals, 0, sizeof *totals);
    totals->since = now;
    return totals;
}

void join_record_free_totals(const struct join_table *table, struct shard *shard,
                             struct record *record)
{
    if (!record->totals)
        return;
    join_shard_totals(table, shard, record->totals)->types[0].waiting = shard->free_totals;
    shard->free_totals = record->totals;
    record->totals = 0;
}

void join_totals_tally(uint64_t *by_type, struct join_totals *totals, struct join_tally *out)
{
    out->any = true;
    for (unsigned i = 0; i < JOIN_SPAN_TYPES; i++) {
        by_type[totals->types[i].type] += totals->types[i].waiting;
        totals->types[i].waiting = 0;
    }
}

static void totals_add_type(struct join_totals *totals, uint16_t type, bool waits)
{
    unsigned i = 0;
    while (i < JOIN_SPAN_TYPES && totals->types[i].used && totals->types[i].type != type)
        i++;
    if (i == JOIN_SPAN_TYPES) {
        i--;
        type = JOIN_TYPES - 1;
    }
    totals->types[i].type = type;
    totals->types[i].used = true;
    totals->types[i].waiting += waits;
}

static void totals_add_count(uint32_t *sum, uint32_t count)
{
    if (__builtin_add_overflow(*sum, count, sum))
        *sum = UINT32_MAX;
}

static void totals_add_amount(uint64_t *sum, uint64_t count)
{
    *sum = br_sum_unsigned(*sum, count);
}

/* --- Functions -------------------------------------------------------------------------- */

/* Returns true if values of the measure and type are added to the function counters. Values of
 * different measures, such as seconds and bytes, cannot be added up. Therefore values of a more
 * preferred measure replace the values that were counted before. */
static bool totals_counts_towards(struct join_totals *totals, enum join_measure measure,
                                  uint16_t type)
{
    if (totals->n_top && measure == totals->top_measure)
        return type == totals->top_type;
    if (totals->n_top && measure > totals->top_measure)
        return false;
    totals->n_top = 0;
    totals->top_measure = (uint8_t)measure;
    totals->top_type = type;
    return true;
}

/* The function counters follow the algorithm "Space-Saving" by Metwally, Agrawal and El Abbadi, in
 * "Efficient computation of frequent and top-k elements in data streams". If no counter is free, a
 * new function takes over the counter with the smallest value, and adds to that value. */
/* Adds a value to the counter of a function. `*count` is the number of counters in use, at most
 * `max`, which is at least 1. The values are exact as long as there are at most `max` functions. */
static void totals_add_top(struct join_top *top, unsigned max, uint8_t *count, uint32_t function,
                           uint64_t value)
{
    unsigned least = 0;
    for (unsigned i = 0; i < *count; i++) {
        if (top[i].function == function) {
            totals_add_amount(&top[i].value, value);
            return;
        }
        if (top[i].value < top[least].value)
            least = i;
    }
    if (*count < max) {
        top[(*count)++] = (struct join_top){.value = value, .function = function};
        return;
    }
    top[least].function = function;
    totals_add_amount(&top[least].value, value);
}

/* --- Samples ---------------------------------------------------------------------------- */

/* Returns true if samples that name the span itself, not its root, were already added to the
 * totals. */
static bool totals_is_own(const struct join_totals *totals, const struct join_sample *sample)
{
    return memcmp(totals->under, sample->span_id, sizeof totals->under) == 0;
}

static void totals_add_deferred(struct join_totals *totals, const struct join_sample *sample)
{
    totals->deferred = true;
    if (sample->measure < JOIN_WALL_TIME)
        totals_add_amount(&totals->deferred_ns[sample->measure], sample->time_ns);
    if (sample->measure < JOIN_OTHER)
        totals_add_count(&totals->deferred_count[sample->measure], sample->count);
    totals_add_amount(&totals->deferred_allocated_bytes, sample->allocated_bytes);
}

/* Subtracts a deferred sample from the sums of deferred samples. The caller then adds the sample
 * to the span's own sums. */
void join_totals_subtract_deferred(struct join_totals *totals, const struct join_sample *sample)
{
    if (sample->measure < JOIN_WALL_TIME)
        totals->deferred_ns[sample->measure] -= sample->time_ns;
    if (sample->measure < JOIN_OTHER)
        totals->deferred_count[sample->measure] -= sample->count;
    totals->deferred_allocated_bytes -= sample->allocated_bytes;
}

void join_totals_add_sample(const struct join_table *table, struct join_totals *totals,
                            const struct join_sample *sample, bool waits)
{
    memcpy(totals->under,
           sample->under && !totals_is_own(totals, sample) ? sample->under : sample->span_id,
           sizeof totals->under);
    totals_add_type(totals, sample->type, waits);
    if (sample->profile_id)
        memcpy(totals->profile_id, sample->profile_id, 16);
    if (sample->deferred) {
        totals_add_deferred(totals, sample);
        return;
    }
    totals_add_count(&totals->count[sample->measure], sample->count);
    if (sample->measure < JOIN_OTHER)
        totals_add_amount(&totals->time_ns[sample->measure], sample->time_ns);
    if (sample->allocated_bytes)
        totals_add_amount(&totals->allocated_bytes, sample->allocated_bytes);
    if (table->n_top && sample->function &&
        totals_counts_towards(totals, sample->measure, sample->type))
        totals_add_top(join_totals_counters(totals), table->n_top, &totals->n_top, sample->function,
                       sample->value);
}

void join_totals_add_linked(struct join_totals *totals, const struct join_sample *sample)
{
    totals_add_count(&totals->linked_count[sample->measure], sample->count);
}

uint64_t join_totals_cpu_ns(const struct join_totals *totals)
{
    uint64_t ns[JOIN_WALL_TIME];
    for (unsigned m = 0; m < JOIN_WALL_TIME; m++) {
        ns[m] = totals->time_ns[m];
        totals_add_amount(&ns[m], totals->deferred_ns[m]);
    }
    return ns[JOIN_CPU_TIME] ? ns[JOIN_CPU_TIME] : ns[JOIN_CPU_COUNT];
}

enum join_measure join_totals_measure(const struct join_totals *totals)
{
    unsigned measure = JOIN_CPU_TIME;
    while (measure < JOIN_OTHER && !totals->count[measure])
        measure++;
    return (enum join_measure)measure;
}

void join_totals_add(struct join_totals *into, const struct join_totals *from)
{
    static const uint8_t none[16];
    for (unsigned m = 0; m < JOIN_MEASURES; m++) {
        totals_add_count(&into->count[m], from->count[m]);
        totals_add_count(&into->linked_count[m], from->linked_count[m]);
    }
    for (unsigned m = 0; m < JOIN_OTHER; m++)
        totals_add_amount(&into->time_ns[m], from->time_ns[m]);
    totals_add_amount(&into->allocated_bytes, from->allocated_bytes);
    for (unsigned i = 0; i < JOIN_SPAN_TYPES && from->types[i].used; i++)
        totals_add_type(into, from->types[i].type, false);
    if (memcmp(into->profile_id, none, sizeof none) == 0)
        memcpy(into->profile_id, from->profile_id, sizeof into->profile_id);
}

void join_totals_add_top(struct join_totals *into, struct join_top *into_top, unsigned max,
                         const struct join_totals *from, const struct join_top *from_top)
{
    if (!from->n_top ||
        !totals_counts_towards(into, (enum join_measure)from->top_measure, from->top_type))
        return;
    for (unsigned i = 0; i < from->n_top; i++)
        totals_add_top(into_top, max, &into->n_top, from_top[i].function, from_top[i].value);
}

void join_value_type_apply(const struct join_value_type *value_type, uint64_t value, bool has_value,
                           uint64_t n_times, struct join_sample *ret)
{
    uint64_t time_ns = 0, count = n_times ? n_times : 1;
    if (value_type->unit_ns) {
        time_ns = has_value ? br_product_unsigned(value, value_type->unit_ns)
                            : br_product_unsigned(n_times, value_type->period_ns);
        if (!n_times && value_type->period_ns)
            count = time_ns / value_type->period_ns +
                    (time_ns % value_type->period_ns >= (value_type->period_ns + 1) / 2);
    } else if (value_type->counts && has_value) {
        count = value;
    }
    if (value_type->measure < JOIN_OTHER && !value_type->unit_ns)
        time_ns = br_product_unsigned(count, value_type->period_ns);
    ret->measure = value_type->measure;
    ret->time_ns = time_ns;
    ret->count = count <= UINT32_MAX ? (uint32_t)count : UINT32_MAX;
    if (!count)
        ret->count = 1;
    ret->type = value_type->type;
    ret->value = has_value ? value : count;
    if (value_type->measure < JOIN_OTHER)
        ret->value = time_ns;
    ret->allocated_bytes = value_type->allocates ? value : 0;
    ret->profile_id = value_type->has_profile_id ? value_type->profile_id : NULL;
}

struct join_sample join_deferred_sample(const struct join_deferred *deferred, uint64_t value,
                                        uint64_t n_times)
{
    const struct join_value_type value_type = {.type = deferred->type,
                                               .measure = (enum join_measure)deferred->measure,
                                               .unit_ns = deferred->unit_ns,
                                               .period_ns = deferred->period_ns,
                                               .counts = deferred->counts,
                                               .allocates = deferred->allocates};
    struct join_sample sample = {.function = deferred->function};
    join_value_type_apply(&value_type, value, deferred->has_value, n_times, &sample);
    return sample;
}

const struct join_top *join_totals_top(const struct join_totals *totals)
{
    return (const struct join_top *)(const void *)(totals + 1);
}

size_t join_table_totals_size(const struct join_table *table)
{
    return table->totals_size;
}
