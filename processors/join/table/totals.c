/* SPDX-License-Identifier: Apache-2.0 */
/* What samples add up to, and what the table knows by name. */
#include "base/mem.h"
#include "base/str.h"
#include "base/sum.h"
#include "otlp/keyvalue.h"
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

/* Whether values of that measure and type are what the counters count: those of the better measure
 * push out what was counted before, for seconds and bytes do not add up. */
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

/* Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and top-k elements in data
 * streams": where no counter is free, the newcomer takes the smallest over with what it has. */
/* Adds to a function's counter among `*count` of at most `max` (at least 1): exact while there are
 * no more functions than counters; then the smallest makes room, and what it had stays in. */
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

/* Whether samples that name the span itself were added before. */
static bool totals_is_own(const struct join_totals *totals, const struct join_sample *sample)
{
    return memcmp(totals->under, sample->span_id, sizeof totals->under) == 0;
}

static void totals_add_taken(struct join_totals *totals, const struct join_sample *sample)
{
    totals->taken = true;
    if (sample->measure < JOIN_WALL_TIME)
        totals_add_amount(&totals->taken_ns[sample->measure], sample->time_ns);
    if (sample->measure < JOIN_OTHER)
        totals_add_count(&totals->taken_count[sample->measure], sample->count);
    totals_add_amount(&totals->taken_allocated_bytes, sample->allocated_bytes);
}

/* The sample is the span's own now. */
void join_totals_untake(struct join_totals *totals, const struct join_sample *sample)
{
    if (sample->measure < JOIN_WALL_TIME)
        totals->taken_ns[sample->measure] -= sample->time_ns;
    if (sample->measure < JOIN_OTHER)
        totals->taken_count[sample->measure] -= sample->count;
    totals->taken_allocated_bytes -= sample->allocated_bytes;
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
    if (sample->taken) {
        totals_add_taken(totals, sample);
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
        totals_add_amount(&ns[m], totals->taken_ns[m]);
    }
    return ns[JOIN_CPU_TIME] ? ns[JOIN_CPU_TIME] : ns[JOIN_CPU_COUNT];
}

enum join_measure join_totals_measure(const struct join_totals *totals)
{
    return totals->count[JOIN_CPU_TIME]    ? JOIN_CPU_TIME
           : totals->count[JOIN_CPU_COUNT] ? JOIN_CPU_COUNT
           : totals->count[JOIN_WALL_TIME] ? JOIN_WALL_TIME
                                           : JOIN_OTHER;
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
    ret->count = count > UINT32_MAX ? UINT32_MAX : count ? (uint32_t)count : 1;
    ret->type = value_type->type;
    ret->value = value_type->measure < JOIN_OTHER ? time_ns : has_value ? value : count;
    ret->allocated_bytes = value_type->allocates ? value : 0;
    ret->profile_id = value_type->has_profile_id ? value_type->profile_id : NULL;
}

struct join_sample join_taken_sample(const struct join_taken *taken, uint64_t value,
                                     uint64_t n_times)
{
    const struct join_value_type value_type = {.type = taken->type,
                                               .measure = (enum join_measure)taken->measure,
                                               .unit_ns = taken->unit_ns,
                                               .period_ns = taken->period_ns,
                                               .counts = taken->counts,
                                               .allocates = taken->allocates};
    struct join_sample sample = {.function = taken->function};
    join_value_type_apply(&value_type, value, taken->has_value, n_times, &sample);
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

/* --- Names ------------------------------------------------------------------------------ */

uint16_t join_table_type(struct join_table *table, const char *name, size_t len)
{
    len = strnlen(name, len);
    pthread_mutex_lock(&table->names_lock);
    unsigned i = 0;
    while (i < table->n_types &&
           (table->type_lens[i] != len || memcmp(table->types[i], name, len) != 0))
        i++;
    if (i == table->n_types && i < JOIN_TYPES - 1) {
        table->types[i] = len <= UINT8_MAX ? br_strndup(name, len) : NULL;
        table->type_lens[i] = (uint8_t)len;
        if (table->types[i])
            table->n_types++;
        else
            i = JOIN_TYPES - 1;
    }
    pthread_mutex_unlock(&table->names_lock);
    return (uint16_t)i;
}

const char *join_table_type_name(struct join_table *table, uint16_t type)
{
    pthread_mutex_lock(&table->names_lock);
    const char *name = type < table->n_types ? table->types[type] : "other";
    pthread_mutex_unlock(&table->names_lock);
    return name;
}

/* --- Services that are being profiled, or have spans --- */

#define SERVICE_PROBES 256u /* slots that are looked through, one behind the other */
#define SERVICE_INTERVAL_MAX_S                                                                     \
    1800u /* between two profiles; past it the service has begun anew                              \
           */

static uint64_t totals_service_key(const struct join_table *table, uint64_t service)
{
    return join_table_mix(table, service) | 1;
}

static struct service *totals_service_slot(struct service *services, uint64_t key, unsigned probe)
{
    return &services[((key >> 32) + probe) % SERVICE_SLOTS];
}

/* Workers' clocks differ a little: what is ahead is now. */
static uint32_t totals_service_passed_s(uint64_t seen, uint32_t now_s)
{
    int32_t passed = (int32_t)(now_s - (uint32_t)seen);
    return passed > 0 ? (uint32_t)passed : 0;
}

/* How long a service is remembered. */
typedef uint32_t totals_service_life_fn(const struct join_table *table, uint64_t seen);

static uint32_t totals_service_profiled_life(const struct join_table *table, uint64_t seen)
{
    uint32_t window_s = table->window / 10, interval_s = 2 * (uint32_t)(seen >> 32);
    return window_s > interval_s ? window_s : interval_s;
}

static uint32_t totals_service_with_spans_life(const struct join_table *table, uint64_t seen)
{
    (void)seen;
    return table->window / 10;
}

/* What a profile that comes now makes of it: the time, and how long after the one before. Profiles
 * of several kinds come in the same second. */
static uint64_t totals_service_seen_again(uint64_t seen, uint32_t now_s)
{
    uint64_t passed = totals_service_passed_s(seen, now_s);
    uint64_t interval = passed > 1 ? passed : seen >> 32;
    return (interval <= SERVICE_INTERVAL_MAX_S ? interval << 32 : 0) | now_s;
}

/* The service's slot, or one that it may have: a free one, or one whose service is not remembered
 * any more. NULL when there is none. */
static struct service *totals_service_take(const struct join_table *table, struct service *services,
                                           totals_service_life_fn *life, uint64_t key,
                                           uint32_t now_s)
{
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned probe = 0; probe < SERVICE_PROBES; probe++) {
            struct service *service = totals_service_slot(services, key, probe);
            uint64_t its = atomic_load_explicit(&service->key, memory_order_acquire);
            uint64_t seen = atomic_load_explicit(&service->seen, memory_order_relaxed);
            bool free = turn && (!its || totals_service_passed_s(seen, now_s) > life(table, seen));
            if (its == key)
                return service;
            if (free && atomic_compare_exchange_strong(&service->key, &its, key)) {
                atomic_store_explicit(&service->seen, now_s, memory_order_release);
                return service;
            }
            if (!turn && !its)
                break;
        }
    }
    return NULL;
}

bool join_table_profiled(struct join_table *table, uint64_t service, uint64_t now_ms)
{
    uint32_t now_s = join_table_tenths(now_ms) / 10;
    struct service *slot = totals_service_take(table, table->profiled, totals_service_profiled_life,
                                               totals_service_key(table, service), now_s);
    if (!slot)
        return false;
    uint64_t seen = atomic_load_explicit(&slot->seen, memory_order_relaxed);
    atomic_store_explicit(&slot->seen, totals_service_seen_again(seen, now_s),
                          memory_order_release);
    return true;
}

bool join_table_is_profiled(struct join_table *table, uint64_t service, uint64_t now_ms)
{
    uint64_t key = totals_service_key(table, service);
    uint32_t now_s = join_table_tenths(now_ms) / 10;
    for (unsigned probe = 0; probe < SERVICE_PROBES; probe++) {
        struct service *slot = totals_service_slot(table->profiled, key, probe);
        uint64_t its = atomic_load_explicit(&slot->key, memory_order_acquire);
        uint64_t seen = atomic_load_explicit(&slot->seen, memory_order_acquire);
        if (its == key)
            return totals_service_passed_s(seen, now_s) <=
                   totals_service_profiled_life(table, seen);
        if (!its)
            return false;
    }
    return false;
}

/* They are noted beside the profiled ones. */
static uint64_t totals_exact(uint64_t service)
{
    return ~service | 1;
}

void join_table_note_exact(struct join_table *table, uint64_t service, uint64_t now_ms)
{
    (void)join_table_profiled(table, totals_exact(service), now_ms);
}

bool join_table_is_exact(struct join_table *table, uint64_t service, uint64_t now_ms)
{
    return join_table_is_profiled(table, totals_exact(service), now_ms);
}

bool join_table_is_newcomer(struct join_table *table, uint64_t service, uint64_t now_ms,
                            uint64_t for_ms)
{
    uint32_t now_s = join_table_tenths(now_ms) / 10 + 1; /* 0 is no time */
    struct service *slot =
        totals_service_take(table, table->with_spans, totals_service_with_spans_life,
                            totals_service_key(table, service), now_s);
    if (!slot)
        return false;
    uint64_t seen = atomic_load_explicit(&slot->seen, memory_order_relaxed);
    bool anew = !(seen >> 32) ||
                totals_service_passed_s(seen, now_s) > totals_service_with_spans_life(table, seen);
    uint64_t first_s = anew ? now_s : seen >> 32;
    atomic_store_explicit(&slot->seen, first_s << 32 | now_s, memory_order_release);
    return totals_service_passed_s(first_s, now_s) * UINT64_C(1000) < for_ms;
}

bool join_table_value(struct join_table *table, unsigned key, const void *value, size_t len,
                      size_t max)
{
    static char there;
    if (key >= KEYS_MAX)
        return false;
    pthread_mutex_lock(&table->names_lock);
    if (!table->values[key])
        table->values[key] = br_map_new(max);
    bool ok = table->values[key] && (br_map_get(table->values[key], value, len) ||
                                     br_map_put(table->values[key], value, len, &there, NULL) == 0);
    pthread_mutex_unlock(&table->names_lock);
    return ok;
}

/* A function's number is where the map has it, from 1: nothing is ever taken out. */
uint32_t join_table_function(struct join_table *table, const uint8_t *name, size_t len)
{
    uint32_t number = 0;
    len = len <= JOIN_VALUE_MAX ? len : br_utf8_valid(name, JOIN_VALUE_MAX);
    pthread_mutex_lock(&table->names_lock);
    if (!table->functions)
        table->functions = br_map_new(JOIN_FUNCTIONS_MAX);
    if (table->functions) {
        number = (uint32_t)(uintptr_t)br_map_get(table->functions, name, len);
        uint32_t next = (uint32_t)br_map_count(table->functions) + 1;
        if (!number && br_map_put(table->functions, name, len, (void *)(uintptr_t)next, NULL) == 0)
            number = next;
    }
    pthread_mutex_unlock(&table->names_lock);
    return number ? number : JOIN_FUNCTION_OTHER;
}

const char *join_table_function_name(struct join_table *table, uint32_t number, size_t *ret_len)
{
    const void *name = NULL;
    pthread_mutex_lock(&table->names_lock);
    if (table->functions && number && number != JOIN_FUNCTION_OTHER)
        (void)br_map_at(table->functions, number - 1, &name, ret_len);
    pthread_mutex_unlock(&table->names_lock);
    if (!name)
        *ret_len = strlen("_other");
    return name ? name : "_other";
}

bool join_table_series(struct join_table *table, const void *key, size_t len, size_t max)
{
    static char there;
    pthread_mutex_lock(&table->names_lock);
    if (!table->series)
        table->series = br_map_new(max);
    bool ok = table->series && (br_map_get(table->series, key, len) ||
                                br_map_put(table->series, key, len, &there, NULL) == 0);
    pthread_mutex_unlock(&table->names_lock);
    return ok;
}

uint32_t join_table_hash_int(const struct join_table *table, int64_t value)
{
    return join_table_hash_number(table, (uint64_t)value);
}

/* True when the text is what an integer is printed as: no sign but a minus, no zeros in front. */
static bool totals_is_integer(const char *text, size_t len, int64_t *ret)
{
    bool minus = len && text[0] == '-';
    uint64_t value = 0, most = (uint64_t)INT64_MAX + minus;
    size_t first = minus;
    if (len == first || len > 20 || (text[first] == '0' && len > 1))
        return false;
    for (size_t i = first; i < len; i++) {
        unsigned digit = (unsigned)(uint8_t)text[i] - '0';
        if (digit > 9 || value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *ret = (int64_t)(minus ? 0 - value : value);
    return true;
}

uint32_t join_table_hash(const struct join_table *table, const void *data, size_t len)
{
    uint8_t secret[16];
    int64_t number;
    if (totals_is_integer(data, len, &number))
        return join_table_hash_int(table, number);
    memcpy(secret, table->secret, sizeof secret);
    return (uint32_t)br_siphash(secret, data, len) | 1;
}

uint32_t join_table_hash_value(const struct join_table *table, const uint8_t *any, size_t len)
{
    if (!any)
        return 0; /* `len` means nothing then */
    struct br_any value = br_any_read((struct br_value){any, len});
    if (value.type == BR_VALUE_INT)
        return join_table_hash_number(table, (uint64_t)value.number);
    return value.type == BR_VALUE_STRING && value.len
               ? join_table_hash(table, value.data, value.len)
               : 0;
}

void join_names_init(struct join_table *table)
{
    pthread_mutex_init(&table->names_lock, NULL);
}

void join_names_release(struct join_table *table)
{
    for (unsigned i = 0; i < table->n_types; i++)
        br_free(table->types[i]);
    for (unsigned i = 0; i < KEYS_MAX; i++)
        br_map_free(table->values[i], NULL);
    br_map_free(table->functions, NULL);
    br_map_free(table->series, NULL);
    pthread_mutex_destroy(&table->names_lock);
}
