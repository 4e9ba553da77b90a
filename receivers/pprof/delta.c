/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile is read in place. Each string is hashed once. The hash of a function or a location is
 * computed from the hashes of its parts, and the hash of a sample from those of its locations and
 * labels. The output is a copy of the input with different samples.
 */
#include "receivers/pprof/delta.h"

#include <string.h>

#include "base/bytes.h"
#include "base/index.h"
#include "base/map.h"
#include "base/mem.h"
#include "otlp/scan.h"
#include "profile/pprof/fields.h"

#define TYPES_MAX 16
/* Memory limit of a comparison of two profiles: GROWTH bytes per byte of the profile, plus SPARE.
 * The difference itself is hardly larger than the profile. Together they take at most four times
 * the size of the profile plus 1 MiB. */
#define GROWTH 3
#define SPARE (((size_t)1 << 20) - (16u << 10))

/* Field numbers of the pprof message Profile. */
enum { SAMPLE_TYPE = 1, SAMPLE, LOCATION = 4, FUNCTION, STRING, TIME = 9, DURATION };

/* For each stack, the sums of its samples' values. */
struct sums {
    uint64_t *keys;
    int64_t *values;       /* n_types sums for each key in `keys` */
    struct br_index index; /* hash index of `keys`; the keys are hashes themselves */
    size_t count, n_types;
};

struct pprof_delta {
    uint8_t secret[16];
    /* sums of the previous profile; `before.keys` is NULL until the first profile was read */
    struct sums before;
    uint64_t types; /* hash of the sample types of the previous profile */
    int64_t time_ns;
};

/* Maps the IDs of functions or of locations to the hashes of their contents. */
struct known {
    uint64_t *ids, *hashes;
    struct br_index index; /* hash index of `ids`; has no slots if the IDs are 1, 2, 3 ... */
    size_t count;
};

struct text {
    uint64_t hash;
    uint32_t at, len;
};

struct reading {
    struct pprof_delta *delta;
    struct br_arena arena; /* memory that is freed at the end of the comparison */
    struct br_err *err;
    const uint8_t *data, *end;
    size_t max_bytes;
    /* number of fields of the profile with each field number */
    size_t counts[STRING + 1];
    int64_t time_ns, duration_ns;
    struct text *texts, empty;
    /* for each sample type, true if the values are totals since the program began */
    bool cumulative[TYPES_MAX];
    /* for each sample type, true if a decrease means that the program was restarted */
    bool restarts_on_decrease[TYPES_MAX];
    size_t n_types;
    uint64_t types;
    struct known functions, locations;
    uint32_t *places; /* for each sample, index of its stack in the sums of the new profile */
    uint32_t *firsts; /* for each stack in the sums of the new profile, index of its first sample */
    struct sums now;
};

static int delta_no_memory(struct reading *reading)
{
    if (reading->arena.full)
        return br_err_set(reading->err, BR_EFULL,
                          "pprof: comparing %zu bytes takes more than %zu bytes of memory",
                          (size_t)(reading->end - reading->data), reading->max_bytes);
    return br_err_set(reading->err, BR_ENOMEM, "no memory to compare profiles");
}

static int delta_malformed(struct reading *reading)
{
    return br_err_set(reading->err, BR_EINVAL, "pprof: malformed");
}

static uint64_t delta_hash_numbers(const struct reading *reading, const uint64_t *values,
                                   size_t count)
{
    return br_siphash(reading->delta->secret, values, count * sizeof *values);
}

/* --- Fields ----------------------------------------------------------------------------------- */

/* Finds the next length-delimited field with the number `number`. Returns false at the end. The
 * profile must have passed pprof_delta_check. */
static bool delta_next_of(const struct reading *reading, const uint8_t **at, uint32_t number,
                          struct br_field *ret)
{
    while (*at < reading->end) {
        *at = br_scan(*at, reading->end, ret);
        if (br_scan_tag(ret) == BR_SCAN_LEN(number))
            return true;
    }
    return false;
}

/* Called for each value of a repeated varint field, packed or not. Returns 0 or an error code. */
typedef int number_fn(struct reading *reading, void *arg, uint64_t value);

static int delta_each_packed(struct reading *reading, const struct br_field *field, number_fn *fn,
                             void *arg)
{
    const uint8_t *at = field->data, *end = at + field->value;
    int rc = 0;
    while (at < end && !rc) {
        uint64_t value;
        at = br_scan_varint(at, end, &value);
        rc = at ? fn(reading, arg, value) : delta_malformed(reading);
    }
    return rc;
}

static int delta_each_number(struct reading *reading, const struct br_field *message,
                             uint32_t number, number_fn *fn, void *arg)
{
    const uint8_t *at = message->data, *end = at + message->value;
    struct br_field field;
    int rc = 0;
    while (at < end && !rc) {
        at = br_scan(at, end, &field);
        if (!at)
            return delta_malformed(reading);
        if (field.number != number)
            continue;
        if (field.wire == BR_WIRE_VARINT)
            rc = fn(reading, arg, field.value);
        else if (field.wire == BR_WIRE_LEN)
            rc = delta_each_packed(reading, &field, fn, arg);
    }
    return rc;
}

/* Reads varint fields 1 to `count` of a message into values[1] to values[count]. If a field is
 * repeated, the last one counts. */
static int delta_read_numbers(struct reading *reading, const struct br_field *message,
                              uint64_t *values, uint32_t count)
{
    const uint8_t *at = message->data, *end = at + message->value;
    struct br_field field;
    while (at < end) {
        at = br_scan(at, end, &field);
        if (!at)
            return delta_malformed(reading);
        if (field.number <= count && field.wire == BR_WIRE_VARINT)
            values[field.number] = field.value;
    }
    return 0;
}

static int delta_read_top(struct reading *reading)
{
    struct br_field field;
    for (const uint8_t *at = reading->data; at < reading->end;) {
        at = br_scan(at, reading->end, &field);
        if (!at)
            return delta_malformed(reading);
        if (field.number <= STRING && field.wire == BR_WIRE_LEN)
            reading->counts[field.number]++;
        else if (field.number == TIME && field.wire == BR_WIRE_VARINT)
            reading->time_ns = (int64_t)field.value;
        else if (field.number == DURATION && field.wire == BR_WIRE_VARINT)
            reading->duration_ns = (int64_t)field.value;
    }
    return 0;
}

/* --- Strings and types ------------------------------------------------------------------------ */

static int delta_hash_texts(struct reading *reading)
{
    const uint8_t *at = reading->data;
    struct br_field field;
    reading->empty.hash = br_siphash(reading->delta->secret, "", 0);
    reading->texts =
        br_arena_calloc(&reading->arena, reading->counts[STRING], sizeof *reading->texts);
    if (!reading->texts)
        return delta_no_memory(reading);
    for (size_t i = 0; delta_next_of(reading, &at, STRING, &field); i++)
        reading->texts[i] =
            (struct text){br_siphash(reading->delta->secret, field.data, field.value),
                          (uint32_t)(field.data - reading->data), (uint32_t)field.value};
    return 0;
}

static const struct text *delta_text_of(const struct reading *reading, uint64_t index)
{
    return index < reading->counts[STRING] ? &reading->texts[index] : &reading->empty;
}

static bool delta_starts_with(const struct reading *reading, const struct text *text,
                              const char *start)
{
    return br_bytes_start(reading->data + text->at, text->len, start);
}

/* Reads the sample types. A decrease of values with the unit "count" indicates a restart of the
 * program. If no sample type of the profile has this unit, a decrease of any type indicates a
 * restart. */
static int delta_read_types(struct reading *reading)
{
    const uint8_t *at = reading->data;
    struct br_field field;
    bool counts = false;
    reading->n_types = reading->counts[SAMPLE_TYPE];
    if (reading->n_types == 0 || reading->n_types > TYPES_MAX)
        return br_err_set(reading->err, BR_EINVAL, "pprof: no sample types, or more than %d",
                          TYPES_MAX);
    for (size_t i = 0; delta_next_of(reading, &at, SAMPLE_TYPE, &field); i++) {
        uint64_t v[3] = {0};
        int rc = delta_read_numbers(reading, &field, v, 2);
        if (rc)
            return rc;
        const struct text *type = delta_text_of(reading, v[1]),
                          *unit = delta_text_of(reading, v[2]);
        if (type->len == 0)
            return br_err_set(reading->err, BR_EINVAL, "pprof: a sample type without a name");
        reading->types = delta_hash_numbers(
            reading, (const uint64_t[]){reading->types, type->hash, unit->hash}, 3);
        reading->cumulative[i] = !delta_starts_with(reading, type, "inuse_");
        reading->restarts_on_decrease[i] =
            reading->cumulative[i] && br_bytes_are(reading->data + unit->at, unit->len, "count");
        counts = counts || reading->restarts_on_decrease[i];
    }
    if (!counts)
        memcpy(reading->restarts_on_decrease, reading->cumulative,
               sizeof reading->restarts_on_decrease);
    return 0;
}

/* --- Hash tables ------------------------------------------------------------------------------ */

static bool delta_is_key(const void *entries, uint32_t place, const void *key)
{
    return ((const uint64_t *)entries)[place] == *(const uint64_t *)key;
}

/* Subtracts `size` bytes, which the caller allocates outside the arena, from the limit of the
 * arena. */
static int delta_reserve_bytes(struct reading *reading, size_t size)
{
    reading->arena.full = size > reading->arena.max - reading->arena.used;
    if (reading->arena.full)
        return delta_no_memory(reading);
    reading->arena.max -= size;
    return 0;
}

static int delta_make_known(struct reading *reading, struct known *known, size_t count)
{
    known->ids = br_arena_alloc(&reading->arena, count * sizeof *known->ids);
    known->hashes = br_arena_alloc(&reading->arena, count * sizeof *known->hashes);
    return known->ids && known->hashes ? 0 : delta_no_memory(reading);
}

static uint64_t delta_hash_id(const void *entries, uint32_t place)
{
    const struct known *known = entries;
    return br_index_hash(&known->index, &known->ids[place], sizeof *known->ids);
}

/* Adds entry `place` to the hash index, which has slots for all entries. If several entries have
 * the same ID, the first one is used. */
static void delta_add_known(struct known *known, uint32_t place)
{
    uint64_t hash = delta_hash_id(known, place);
    if (br_index_find(&known->index, hash, delta_is_key, known->ids, &known->ids[place]) ==
        BR_INDEX_NONE)
        (void)br_index_add(&known->index, hash, place, delta_hash_id, known);
}

/* Builds the hash index of the IDs after all entries were read. The index is not needed if the
 * IDs are 1, 2, 3 ... */
static int delta_find_known(struct reading *reading, struct known *known)
{
    size_t i = 0;
    while (i < known->count && known->ids[i] == i + 1)
        i++;
    if (i == known->count)
        return 0;
    int rc = delta_reserve_bytes(reading, br_index_bytes_for(known->count));
    if (rc)
        return rc;
    br_index_init(&known->index, (uint32_t)known->count, BR_HOLDER_REQUESTS);
    if (br_index_reserve(&known->index, (uint32_t)known->count))
        return delta_no_memory(reading);
    for (i = 0; i < known->count; i++)
        delta_add_known(known, (uint32_t)i);
    return 0;
}

/* Returns the hash of the entry with this ID; 0 if the ID is unknown. */
static uint64_t delta_hash_of(const struct known *known, uint64_t id)
{
    if (!known->index.n_slots)
        return id - 1 < known->count ? known->hashes[id - 1] : 0;
    uint32_t place = br_index_find(&known->index, br_index_hash(&known->index, &id, sizeof id),
                                   delta_is_key, known->ids, &id);
    return place == BR_INDEX_NONE ? 0 : known->hashes[place];
}

/* --- Hashes of stacks ------------------------------------------------------------------------- */

static int delta_hash_functions(struct reading *reading)
{
    enum { ID = 1, NAME, FILENAME = 4, FIELDS };
    struct known *k = &reading->functions;
    const uint8_t *at = reading->data;
    struct br_field field;
    int rc = delta_make_known(reading, k, reading->counts[FUNCTION]);
    for (; !rc && delta_next_of(reading, &at, FUNCTION, &field); k->count++) {
        uint64_t v[FIELDS] = {0};
        rc = delta_read_numbers(reading, &field, v, FIELDS - 1);
        k->ids[k->count] = v[ID];
        k->hashes[k->count] =
            delta_hash_numbers(reading,
                               (const uint64_t[]){delta_text_of(reading, v[NAME])->hash,
                                                  delta_text_of(reading, v[FILENAME])->hash},
                               2);
    }
    return rc ? rc : delta_find_known(reading, k);
}

static int delta_hash_lines(struct reading *reading, const struct br_field *location,
                            uint64_t *hash)
{
    enum { LINES = 4, FUNCTION_ID = 1, LINE, FIELDS };
    const uint8_t *at = location->data, *end = at + location->value;
    struct br_field field;
    while (at < end) {
        at = br_scan(at, end, &field);
        if (!at)
            return delta_malformed(reading);
        if (br_scan_tag(&field) != BR_SCAN_LEN(LINES))
            continue;
        uint64_t v[FIELDS] = {0};
        int rc = delta_read_numbers(reading, &field, v, FIELDS - 1);
        if (rc)
            return rc;
        *hash = delta_hash_numbers(
            reading,
            (const uint64_t[]){*hash, delta_hash_of(&reading->functions, v[FUNCTION_ID]), v[LINE]},
            3);
    }
    return 0;
}

static int delta_hash_locations(struct reading *reading)
{
    enum { ID = 1, ADDRESS = 3, FIELDS };
    struct known *k = &reading->locations;
    const uint8_t *at = reading->data;
    struct br_field field;
    int rc = delta_make_known(reading, k, reading->counts[LOCATION]);
    for (; !rc && delta_next_of(reading, &at, LOCATION, &field); k->count++) {
        uint64_t v[FIELDS] = {0};
        rc = delta_read_numbers(reading, &field, v, FIELDS - 1);
        k->ids[k->count] = v[ID];
        k->hashes[k->count] = delta_hash_numbers(reading, &v[ADDRESS], 1);
        if (!rc)
            rc = delta_hash_lines(reading, &field, &k->hashes[k->count]);
    }
    return rc ? rc : delta_find_known(reading, k);
}

static int delta_hash_place(struct reading *reading, void *arg, uint64_t id)
{
    uint64_t *hash = arg;
    *hash = delta_hash_numbers(
        reading, (const uint64_t[]){*hash, delta_hash_of(&reading->locations, id)}, 2);
    return 0;
}

static int delta_hash_labels(struct reading *reading, const struct br_field *sample, uint64_t *hash)
{
    enum { LABELS = 3, KEY = 1, STR, NUM, UNIT, FIELDS };
    const uint8_t *at = sample->data, *end = at + sample->value;
    struct br_field field;
    while (at < end) {
        at = br_scan(at, end, &field);
        if (!at)
            return delta_malformed(reading);
        if (br_scan_tag(&field) != BR_SCAN_LEN(LABELS))
            continue;
        uint64_t v[FIELDS] = {0};
        int rc = delta_read_numbers(reading, &field, v, FIELDS - 1);
        if (rc)
            return rc;
        *hash = delta_hash_numbers(reading,
                                   (const uint64_t[]){*hash, delta_text_of(reading, v[KEY])->hash,
                                                      delta_text_of(reading, v[STR])->hash, v[NUM],
                                                      delta_text_of(reading, v[UNIT])->hash},
                                   5);
    }
    return 0;
}

/* --- Sums ------------------------------------------------------------------------------------- */

static void delta_release_sums(struct sums *sums)
{
    br_free(sums->keys);
    br_free(sums->values);
    br_index_release(&sums->index);
    *sums = (struct sums){0};
}

/* Allocates room for the sums of `count` stacks. */
static int delta_make_sums(struct reading *reading, struct sums *sums, size_t count)
{
    size_t size = count * (sizeof *sums->keys + reading->n_types * sizeof *sums->values) +
                  br_index_bytes_for(count);
    int rc = delta_reserve_bytes(reading, size);
    if (rc)
        return rc;
    *sums = (struct sums){.keys = br_malloc(count * sizeof *sums->keys),
                          .values = br_calloc(count * reading->n_types, sizeof *sums->values),
                          .n_types = reading->n_types};
    br_index_init(&sums->index, PPROF_DELTA_STACKS_MAX, BR_HOLDER_PROCESS);
    return sums->keys && sums->values && br_index_reserve(&sums->index, (uint32_t)count) == 0
               ? 0
               : delta_no_memory(reading);
}

/* Returns the key itself, which is a keyed hash already. */
static uint64_t delta_hash_key(const void *entries, uint32_t place)
{
    return ((const uint64_t *)entries)[place];
}

/* Returns the index of the stack with this key, or BR_INDEX_NONE. */
static uint32_t delta_place_of(const struct sums *sums, uint64_t key)
{
    return br_index_find(&sums->index, key, delta_is_key, sums->keys, &key);
}

/* Returns the index of the stack with this key. Adds the stack with zero values if it is new;
 * the caller must have made room for it. */
static uint32_t delta_put_sums(struct sums *sums, uint64_t key, bool *ret_new)
{
    uint32_t place = delta_place_of(sums, key);
    *ret_new = place == BR_INDEX_NONE;
    if (!*ret_new)
        return place;
    place = (uint32_t)sums->count++;
    sums->keys[place] = key;
    (void)br_index_add(&sums->index, key, place, delta_hash_key, sums->keys);
    return place;
}

/* Returns the sums of the stack with this key, or NULL. */
static const int64_t *delta_find_sums(const struct sums *sums, uint64_t key)
{
    uint32_t place = delta_place_of(sums, key);
    return place == BR_INDEX_NONE ? NULL : sums->values + place * sums->n_types;
}

/* Values of one sample. */
struct values {
    int64_t values[TYPES_MAX];
    size_t count;
};

static int delta_put_value(struct reading *reading, void *arg, uint64_t value)
{
    struct values *values = arg;
    if (values->count < reading->n_types)
        values->values[values->count] = (int64_t)value;
    values->count++;
    return 0;
}

static int delta_read_values(struct reading *reading, const struct br_field *sample,
                             struct values *ret)
{
    ret->count = 0;
    int rc = delta_each_number(reading, sample, 2, delta_put_value, ret);
    if (!rc && ret->count != reading->n_types)
        rc = br_err_set(reading->err, BR_EINVAL,
                        "pprof: the numbers of values and sample types differ");
    return rc;
}

static int delta_add_values(struct reading *reading, int64_t *sums, const struct values *values)
{
    for (size_t t = 0; t < reading->n_types; t++)
        if (reading->cumulative[t] &&
            (values->values[t] < 0 || __builtin_add_overflow(sums[t], values->values[t], &sums[t])))
            return br_err_set(reading->err, BR_EINVAL,
                              "pprof: a value is negative, or the sum is too large");
    return 0;
}

static int delta_add_sample(struct reading *reading, const struct br_field *sample, uint32_t index)
{
    uint64_t key = 0;
    struct values values;
    bool is_new;
    int rc = delta_read_values(reading, sample, &values);
    if (!rc)
        rc = delta_each_number(reading, sample, 1, delta_hash_place, &key);
    if (!rc)
        rc = delta_hash_labels(reading, sample, &key);
    if (rc)
        return rc;
    uint32_t place = reading->places[index] = delta_put_sums(&reading->now, key, &is_new);
    if (is_new)
        reading->firsts[place] = index;
    return delta_add_values(reading, reading->now.values + place * reading->n_types, &values);
}

static int delta_sum_up(struct reading *reading)
{
    const uint8_t *at = reading->data;
    struct br_field field;
    size_t n = reading->counts[SAMPLE];
    if (n > PPROF_DELTA_STACKS_MAX)
        return br_err_set(reading->err, BR_EFULL, "pprof: more than %u stacks to compare",
                          PPROF_DELTA_STACKS_MAX);
    reading->places = br_arena_alloc(&reading->arena, n * sizeof *reading->places);
    reading->firsts = br_arena_alloc(&reading->arena, n * sizeof *reading->firsts);
    if (!reading->places || !reading->firsts)
        return delta_no_memory(reading);
    int rc = delta_make_sums(reading, &reading->now, n);
    for (uint32_t i = 0; !rc && delta_next_of(reading, &at, SAMPLE, &field); i++)
        rc = delta_add_sample(reading, &field, i);
    return rc;
}

/* --- Difference ------------------------------------------------------------------------------- */

/* Returns true if a value that only a restart of the program can decrease has decreased. */
static bool delta_was_restarted(const struct reading *reading)
{
    const struct sums *now = &reading->now;
    for (size_t i = 0; i < now->count; i++) {
        const int64_t *old = delta_find_sums(&reading->delta->before, now->keys[i]);
        for (size_t t = 0; old && t < now->n_types; t++)
            if (reading->restarts_on_decrease[t] && now->values[i * now->n_types + t] < old[t])
                return true;
    }
    return false;
}

/* Replaces the values of sample `index` by the differences. Returns false if all differences are
 * zero. If several samples have the same stack, the first one gets the difference of their sums.
 * Values that are not totals are unchanged. */
static bool delta_subtract(const struct reading *reading, const struct sums *before, uint32_t index,
                           struct values *values)
{
    uint32_t place = reading->places[index];
    const int64_t *sum = reading->now.values + place * reading->n_types;
    const int64_t *old = delta_find_sums(before, reading->now.keys[place]);
    bool first = reading->firsts[place] == index, any = false;
    for (size_t t = 0; t < reading->n_types; t++) {
        int64_t less = old ? old[t] : 0;
        if (reading->cumulative[t])
            values->values[t] = first && sum[t] > less ? sum[t] - less : 0;
        any = any || values->values[t] != 0;
    }
    return any;
}

/* Copies all fields of a sample except its values. */
static uint8_t *delta_put_other_fields(const struct br_field *sample, uint8_t *out)
{
    const uint8_t *at = sample->data, *end = at + sample->value;
    struct br_field field;
    while (at < end) {
        at = br_scan(at, end, &field);
        if (field.number != BR_PPROF_SAMPLE_VALUES)
            out = br_put_bytes(out, field.at, (size_t)(at - field.at));
    }
    return out;
}

static size_t delta_other_fields_size(const struct br_field *sample)
{
    const uint8_t *at = sample->data, *end = at + sample->value;
    struct br_field field;
    size_t size = 0;
    while (at < end) {
        at = br_scan(at, end, &field);
        if (field.number != BR_PPROF_SAMPLE_VALUES)
            size += (size_t)(at - field.at);
    }
    return size;
}

/* Writes a sample with the values in `values`, unless `out` is NULL. Returns the encoded size in
 * bytes. */
static size_t delta_put_sample(const struct br_field *sample, const struct values *values,
                               uint8_t *out)
{
    uint8_t packed[TYPES_MAX * BR_VARINT_MAX], *p = packed;
    for (size_t t = 0; t < values->count; t++)
        p = br_put_varint(p, (uint64_t)values->values[t]);
    size_t packed_len = (size_t)(p - packed);
    size_t len = delta_other_fields_size(sample) + br_len_size(BR_PPROF_SAMPLE_VALUES, packed_len);
    if (out) {
        out = br_put_varint(out, BR_SCAN_LEN(SAMPLE));
        out = br_put_varint(out, len);
        out = delta_put_other_fields(sample, out);
        br_put_len(out, BR_PPROF_SAMPLE_VALUES, packed, packed_len);
    }
    return br_len_size(SAMPLE, len);
}

/* Writes the profile with the differences as values, unless `out` is NULL. Returns the encoded
 * size in bytes. */
static size_t delta_put_profile(struct reading *reading, const struct sums *before, uint8_t *out)
{
    size_t len = 0;
    uint32_t i = 0;
    struct br_field field;
    for (const uint8_t *at = reading->data; at < reading->end;) {
        struct values values;
        at = br_scan(at, reading->end, &field);
        if (br_scan_tag(&field) != BR_SCAN_LEN(SAMPLE)) {
            if (out)
                br_put_bytes(out + len, field.at, (size_t)(at - field.at));
            len += (size_t)(at - field.at);
            continue;
        }
        (void)delta_read_values(reading, &field, &values);
        if (delta_subtract(reading, before, i++, &values))
            len += delta_put_sample(&field, &values, out ? out + len : NULL);
    }
    return len;
}

/* Writes the time between the two profiles as the duration, unless the profile contains a
 * duration. */
static uint8_t *delta_put_duration(const struct reading *reading, uint8_t *out)
{
    const struct pprof_delta *delta = reading->delta;
    if (reading->duration_ns != 0 || delta->time_ns <= 0 || reading->time_ns <= delta->time_ns)
        return out;
    out = br_put_varint(out, BR_SCAN_VARINT(DURATION));
    return br_put_varint(out, (uint64_t)(reading->time_ns - delta->time_ns));
}

static int delta_write(struct reading *reading, struct br_arena *arena, const uint8_t **ret,
                       size_t *ret_len)
{
    static const struct sums none;
    bool same = reading->delta->types == reading->types && !delta_was_restarted(reading);
    const struct sums *before = same ? &reading->delta->before : &none;
    size_t len = delta_put_profile(reading, before, NULL);
    uint8_t *out = br_arena_alloc(arena, len + 2 * BR_VARINT_MAX);
    if (!out)
        return delta_no_memory(reading);
    (void)delta_put_profile(reading, before, out);
    *ret = out;
    *ret_len = (size_t)(delta_put_duration(reading, out + len) - out);
    return 0;
}

static int delta_compare(struct reading *reading, struct br_arena *arena, const uint8_t **ret,
                         size_t *ret_len)
{
    int rc = pprof_delta_check(reading->data, (size_t)(reading->end - reading->data))
                 ? delta_read_top(reading)
                 : delta_malformed(reading);
    if (!rc)
        rc = delta_hash_texts(reading);
    if (!rc)
        rc = delta_read_types(reading);
    if (!rc)
        rc = delta_hash_functions(reading);
    if (!rc)
        rc = delta_hash_locations(reading);
    if (!rc)
        rc = delta_sum_up(reading);
    *ret_len = 0;
    return rc || !reading->delta->before.keys ? rc : delta_write(reading, arena, ret, ret_len);
}

struct pprof_delta *pprof_delta_new(void)
{
    struct pprof_delta *delta = br_calloc(1, sizeof *delta);
    if (delta)
        br_random_bytes(delta->secret, sizeof delta->secret);
    return delta;
}

void pprof_delta_clear(struct pprof_delta *delta)
{
    if (!delta)
        return;
    delta_release_sums(&delta->before);
    delta->types = 0;
    delta->time_ns = 0;
}

void pprof_delta_free(struct pprof_delta *delta)
{
    pprof_delta_clear(delta);
    br_free(delta);
}

int pprof_delta_next(struct pprof_delta *delta, const uint8_t *data, size_t len,
                     struct br_arena *arena, const uint8_t **ret, size_t *ret_len,
                     struct br_err *err)
{
    struct reading reading = {
        .delta = delta, .err = err, .data = data, .end = br_mem_end(data, len)};
    if (len > UINT32_MAX)
        return br_err_set(err, BR_ETOOBIG, "pprof: 4 GiB or more");
    reading.max_bytes = GROWTH * len + SPARE;
    br_arena_init(&reading.arena, reading.max_bytes);
    int rc = delta_compare(&reading, arena, ret, ret_len);
    br_arena_release(&reading.arena);
    br_index_release(&reading.functions.index);
    br_index_release(&reading.locations.index);
    if (rc) {
        delta_release_sums(&reading.now);
        return rc;
    }
    delta_release_sums(&delta->before);
    delta->before = reading.now;
    delta->types = reading.types;
    delta->time_ns = reading.time_ns;
    return 0;
}
