/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "profile/pprof/internal.h"

/* Size of a block of records in bytes, including its header. This size is an eighth of an
 * arena's largest block. */
#define BLOCK_SIZE 32768u

/* Block of encoded samples. A record consists of the length of a prefix, as a varint; the
 * prefix, which is the same for all sample types; and the values as varints. A record is never
 * split between blocks. */
struct br_pprof_record_block {
    struct br_pprof_record_block *next;
    size_t len, cap;
    uint8_t data[];
};

/* State while one sample is read. */
struct reading {
    uint32_t number; /* index of the sample in the pprof */
    uint32_t n_stack, n_values, n_labels;
    /* packed locations that are not yet in `stack`; NULL: all locations are in `stack` */
    const uint8_t *packed;
    size_t packed_len;
    uint64_t values[BR_PPROF_READ_TYPES_MAX];
};

static int pprof_samples_malformed(struct br_pprof *pprof, uint32_t sample)
{
    return br_err_set(pprof->err, BR_EINVAL, "pprof: sample %u is malformed", sample);
}

/* Marks the current sample as bad and returns the place for its error message. Returns NULL if a
 * message exists already. Only the first message is kept, because a body may contain millions of
 * bad samples. */
static struct br_err *pprof_samples_mark_bad(struct br_pprof *pprof)
{
    pprof->sample_is_bad = true;
    return pprof->lost.first.text[0] ? NULL : pprof->err;
}

/* --- Stacks ----------------------------------------------------------------------------------- */

static int pprof_samples_unknown_location(struct br_pprof *pprof, const struct reading *reading,
                                          uint64_t id)
{
    return br_err_set(pprof_samples_mark_bad(pprof), BR_EINVAL,
                      "pprof: sample %u: location %llu is not in the profile", reading->number,
                      (unsigned long long)id);
}

static int pprof_samples_put_location(struct br_pprof *pprof, struct reading *reading, uint64_t id)
{
    uint32_t place = br_pprof_ids_get(&pprof->locations, id);
    if (!place)
        return pprof_samples_unknown_location(pprof, reading, id);
    if (!br_pprof_grow(pprof, &pprof->stack, &pprof->cap_stack, (size_t)reading->n_stack + 1,
                       sizeof *pprof->stack))
        return br_pprof_no_memory(pprof);
    pprof->stack[reading->n_stack++] = place - 1;
    return 0;
}

static int pprof_samples_put_locations(struct br_pprof *pprof, struct reading *reading,
                                       const uint8_t *at, size_t len)
{
    const uint8_t *end = at + len;
    while (at < end) {
        uint64_t id;
        at = br_scan_index(at, end, &id);
        if (__builtin_expect(!at, 0))
            return pprof_samples_malformed(pprof, reading->number);
        uint32_t place = br_pprof_ids_get(&pprof->locations, id);
        if (__builtin_expect(!place || reading->n_stack == pprof->cap_stack, 0)) {
            int rc = pprof_samples_put_location(pprof, reading, id);
            if (rc)
                return rc;
            continue;
        }
        pprof->stack[reading->n_stack++] = place - 1;
    }
    return 0;
}

/* Reads a packed list of location IDs. The caller must have called pprof_samples_put_packed
 * before. The first list of a sample is only recorded: usually the sample has no other list, and
 * br_build_stack_packed can decode it. */
static int pprof_samples_put_list(struct br_pprof *pprof, struct reading *reading,
                                  const struct br_field *field)
{
    if (reading->n_stack == 0) {
        reading->packed = field->data;
        reading->packed_len = field->value;
        return 0;
    }
    return pprof_samples_put_locations(pprof, reading, field->data, field->value);
}

/* Decodes the list of locations recorded in `reading->packed` and appends it to the stack. */
static int pprof_samples_put_packed(struct br_pprof *pprof, struct reading *reading)
{
    const uint8_t *packed = reading->packed;
    reading->packed = NULL;
    return packed ? pprof_samples_put_locations(pprof, reading, packed, reading->packed_len) : 0;
}

static int pprof_samples_build_stack(struct br_pprof *pprof, struct reading *reading, uint32_t *ret)
{
    const uint8_t *end = pprof->source->data + pprof->source->len;
    if (reading->packed && (size_t)(end - reading->packed) >= reading->packed_len + 16) {
        const struct br_pprof_ids *ids = &pprof->locations;
        if (pprof->n_same && br_build_stack_packed(pprof->build, reading->packed,
                                                   reading->packed_len, NULL, pprof->n_same, ret))
            return 0;
        if (br_build_stack_packed(pprof->build, reading->packed, reading->packed_len, ids->dense,
                                  ids->n_dense, ret))
            return 0;
    }
    int rc = pprof_samples_put_packed(pprof, reading);
    if (!rc)
        *ret = br_build_stack(pprof->build, pprof->stack, reading->n_stack);
    return rc;
}

/* --- Values and labels ------------------------------------------------------------------------ */

static int pprof_samples_wrong_values(struct br_pprof *pprof, const struct reading *reading,
                                      uint32_t n_types)
{
    return br_err_set(pprof_samples_mark_bad(pprof), BR_EINVAL,
                      "pprof: sample %u has %s%u value%s for %u sample type%s", reading->number,
                      reading->n_values > n_types ? "more than " : "",
                      reading->n_values > n_types ? n_types : reading->n_values,
                      reading->n_values == 1 ? "" : "s", n_types, n_types == 1 ? "" : "s");
}

static int pprof_samples_put_value(struct br_pprof *pprof, struct reading *reading,
                                   uint32_t n_types, uint64_t value)
{
    if (reading->n_values == n_types) {
        reading->n_values++;
        return pprof_samples_wrong_values(pprof, reading, n_types);
    }
    reading->values[reading->n_values++] = value;
    return 0;
}

static int pprof_samples_put_values(struct br_pprof *pprof, struct reading *reading,
                                    uint32_t n_types, const struct br_field *field)
{
    const uint8_t *at = field->data, *end = at + field->value;
    while (at < end) {
        uint64_t value;
        at = br_scan_varint(at, end, &value);
        if (!at)
            return pprof_samples_malformed(pprof, reading->number);
        int rc = pprof_samples_put_value(pprof, reading, n_types, value);
        if (rc)
            return rc;
    }
    return 0;
}

/* Adds a label to the current sample. A label without text, number and unit refers to string 0.
 * A label that refers to string 0 is left out if string 0 is empty. */
static int pprof_samples_put_label(struct br_pprof *pprof, struct reading *reading,
                                   const struct br_field *field)
{
    enum { KEY = 1, STR, NUM, UNIT, FIELDS };
    uint64_t v[FIELDS] = {0};
    if (!br_pprof_scalars(field->data, field->data + field->value, v, FIELDS - 1))
        return pprof_samples_malformed(pprof, reading->number);
    if (!v[STR] && !v[NUM] && !v[UNIT])
        v[STR] = pprof->first_string;
    if (!v[STR] && !v[NUM] && !v[UNIT])
        return 0;
    if (reading->n_labels == BR_PPROF_READ_LABELS_MAX) {
        pprof->sample_is_bad = true;
        return br_err_set(pprof->err, BR_EINVAL, "pprof: sample %u has more than %u labels",
                          reading->number, BR_PPROF_READ_LABELS_MAX);
    }
    if (!br_pprof_grow(pprof, &pprof->labels, &pprof->cap_labels, (size_t)reading->n_labels + 1,
                       sizeof *pprof->labels))
        return br_pprof_no_memory(pprof);
    pprof->labels[reading->n_labels++] = (struct br_pprof_label){v[KEY], v[STR], v[NUM], v[UNIT]};
    return 0;
}

/* --- Records ---------------------------------------------------------------------------------- */

/* Returns room for a record of at most `len` bytes in the last block or a new block. Returns
 * NULL if there is not enough memory. */
static uint8_t *pprof_samples_record_room(struct br_pprof *pprof, size_t len)
{
    struct br_pprof_records *records = &pprof->records;
    struct br_pprof_record_block *block = records->last;
    if (__builtin_expect(block && block->cap - block->len >= len, 1))
        return block->data + block->len;
    size_t cap = (block ? BLOCK_SIZE : BLOCK_SIZE / 32) - sizeof *block;
    if (cap < len)
        cap = len;
    struct br_pprof_record_block *fresh = br_pprof_alloc(pprof, 1, sizeof *fresh + cap);
    if (!fresh)
        return NULL;
    *fresh = (struct br_pprof_record_block){.cap = cap};
    if (block)
        block->next = fresh;
    else
        records->first = fresh;
    records->last = fresh;
    return fresh->data;
}

static int pprof_samples_put_record(struct br_pprof *pprof, const struct reading *reading,
                                    uint32_t stack, uint32_t link)
{
    const struct br_build_sample sample = {.stack = stack,
                                           .link = link,
                                           .attributes = pprof->attributes,
                                           .n_attributes = pprof->n_attributes};
    size_t most = BR_BUILD_PREFIX(pprof->n_attributes);
    uint8_t *o = pprof_samples_record_room(pprof, 2 * BR_VARINT_MAX + most +
                                                      BR_VARINT_MAX * (size_t)reading->n_values);
    if (!o)
        return br_pprof_no_memory(pprof);
    uint8_t *prefix = o + 1;
    o = br_build_prefix(pprof->build, &sample, prefix);
    size_t len = (size_t)(o - prefix);
    o = br_put_length_before(prefix, o);
    for (uint32_t i = 0; i < reading->n_values; i++) {
        o = br_put_varint(o, reading->values[i]);
        if (pprof->datadog && !reading->values[i])
            continue;
        pprof->records.size += br_build_prefixed_size(len, reading->values[i]);
        pprof->nonzero |= (uint64_t)1 << i;
    }
    pprof->records.last->len = (size_t)(o - pprof->records.last->data);
    return 0;
}

/* Writes the sample in the record at `at` with its value of sample type `type`. Returns the
 * position after the record. The bounds of records are not checked, because this reader wrote
 * them. */
static const uint8_t *pprof_samples_put_one(struct br_pprof *pprof, const uint8_t *at,
                                            const uint8_t *end, uint32_t type, uint32_t n_types)
{
    uint64_t len, value = 0;
    at = br_scan_varint(at, end, &len);
    const uint8_t *prefix = at;
    at += len;
    for (uint32_t i = 0; i < n_types; i++) {
        if (i == type)
            at = br_scan_varint(at, end, &value);
        else
            while (*at++ & 0x80)
                ;
    }
    if (value || !pprof->datadog)
        br_build_prefixed(pprof->build, prefix, len, (int64_t)value);
    return at;
}

void br_pprof_put_samples(struct br_pprof *pprof, uint32_t type)
{
    uint32_t n_types = pprof->ranges[BR_PPROF_SAMPLE_TYPE].count;
    const struct br_pprof_record_block *block = pprof->records.first;
    for (; block && !br_build_rc(pprof->build); block = block->next) {
        const uint8_t *at = block->data, *end = at + block->len;
        while (at < end)
            at = pprof_samples_put_one(pprof, at, end, type, n_types);
    }
}

/* --- Samples ---------------------------------------------------------------------------------- */

static int pprof_samples_read_fields(struct br_pprof *pprof, struct reading *reading,
                                     uint32_t n_types, const struct br_field *sample)
{
    const uint8_t *at = sample->data, *end = at + sample->value;
    struct br_field field;
    int rc = 0;
    while (at < end && !rc) {
        at = br_scan(at, end, &field);
        if (!at)
            return pprof_samples_malformed(pprof, reading->number);
        switch (br_scan_tag(&field)) {
        case BR_SCAN_LEN(BR_PPROF_SAMPLE_LOCATIONS):
            rc = pprof_samples_put_packed(pprof, reading);
            if (!rc)
                rc = pprof_samples_put_list(pprof, reading, &field);
            break;
        case BR_SCAN_VARINT(BR_PPROF_SAMPLE_LOCATIONS):
            rc = pprof_samples_put_packed(pprof, reading);
            if (!rc)
                rc = pprof_samples_put_location(pprof, reading, field.value);
            break;
        case BR_SCAN_LEN(BR_PPROF_SAMPLE_VALUES):
            rc = pprof_samples_put_values(pprof, reading, n_types, &field);
            break;
        case BR_SCAN_VARINT(BR_PPROF_SAMPLE_VALUES):
            rc = pprof_samples_put_value(pprof, reading, n_types, field.value);
            break;
        case BR_SCAN_LEN(BR_PPROF_SAMPLE_LABELS):
            rc = pprof_samples_put_label(pprof, reading, &field);
            break;
        default:
            if (field.number <= BR_PPROF_SAMPLE_LABELS)
                return pprof_samples_malformed(pprof, reading->number);
        }
    }
    return rc || reading->n_values == n_types ? rc
                                              : pprof_samples_wrong_values(pprof, reading, n_types);
}

static int pprof_samples_read_one(struct br_pprof *pprof, uint32_t number, uint32_t n_types,
                                  const struct br_field *sample)
{
    struct reading reading;
    uint32_t stack, link = 0;
    reading.number = number;
    reading.n_stack = reading.n_values = reading.n_labels = 0;
    reading.packed = NULL;
    reading.packed_len = 0;
    pprof->n_attributes = 0;
    int rc = pprof_samples_read_fields(pprof, &reading, n_types, sample);
    if (!rc)
        rc = pprof_samples_build_stack(pprof, &reading, &stack);
    if (!rc && reading.n_labels) {
        rc = br_pprof_read_labels(pprof, reading.n_labels, &link);
        /* BR_EINVAL affects only this sample: a label refers to a string that is not in the
         * table */
        pprof->sample_is_bad = rc == BR_EINVAL;
    }
    if (!rc && (br_build_rc(pprof->build) || !br_pprof_fits(pprof, 0)))
        rc = br_pprof_no_memory(pprof);
    return rc ? rc : pprof_samples_put_record(pprof, &reading, stack, link);
}

/* Leaves out the current sample because of the error in `pprof->err`. */
static int pprof_samples_leave_out(struct br_pprof *pprof)
{
    br_pprof_keep_error(pprof);
    pprof->sample_is_bad = false;
    pprof->lost.count++;
    return 0;
}

static int pprof_samples_end(struct br_pprof *pprof)
{
    struct br_profile_lost *into = pprof->source->lost;
    if (!pprof->lost.count)
        return 0;
    if (!pprof->records.first) {
        *pprof->err = pprof->lost.first;
        return BR_EINVAL;
    }
    if (into && !into->count)
        into->first = pprof->lost.first;
    if (into)
        into->count += pprof->lost.count;
    return 0;
}

int br_pprof_read_samples(struct br_pprof *pprof, uint32_t n_types)
{
    const struct br_pprof_range *range = &pprof->ranges[BR_PPROF_SAMPLE];
    const uint8_t *at = range->start;
    struct br_field field;
    int rc = 0;
    /* Every value takes at least one byte, so a pprof cannot have more values than bytes. */
    if ((uint64_t)range->count * n_types > pprof->source->len)
        return br_err_set(pprof->err, BR_EINVAL,
                          "pprof: the samples have too few values for %u sample types", n_types);
    for (uint32_t i = 0;
         !rc && br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_SAMPLE), &field); i++) {
        rc = pprof_samples_read_one(pprof, i, n_types, &field);
        if (rc == BR_EINVAL && pprof->sample_is_bad)
            rc = pprof_samples_leave_out(pprof);
    }
    return rc ? rc : pprof_samples_end(pprof);
}
