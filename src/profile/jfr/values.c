/* SPDX-License-Identifier: Apache-2.0 */
#include "base/steps.h"
#include "profile/jfr/jfr.h"

#define DEPTH_MAX 8

static void jfr_values_skip(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                            const struct br_jfr_field *field, unsigned depth);

static void jfr_values_skip_fields(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                                   uint32_t class, unsigned depth)
{
    /* Every value must take at least one byte. Otherwise arrays of structures without fields
     * would let a few bytes of input cause an unbounded loop. */
    if (class == BR_JFR_NO_CLASS || !chunk->classes[class].n_fields || depth >= DEPTH_MAX) {
        in->bad = true;
        in->p = in->end;
        return;
    }
    const struct br_jfr_class *k = &chunk->classes[class];
    for (uint32_t i = 0; i < k->n_fields && !in->bad; i++)
        jfr_values_skip(in, chunk, &chunk->fields[k->first + i], depth + 1);
}

static void jfr_values_skip_one(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                                const struct br_jfr_field *field, unsigned depth)
{
    if (field->pool) {
        (void)br_jfr_long(in);
        return;
    }
    switch (field->type) {
    case BR_JFR_BOOLEAN:
    case BR_JFR_BYTE:
        br_jfr_skip(in, 1);
        return;
    case BR_JFR_CHAR:
    case BR_JFR_SHORT:
        (void)(in->packed ? br_jfr_varint(in) : br_jfr_fixed(in, 2));
        return;
    case BR_JFR_INT:
        (void)br_jfr_int(in);
        return;
    case BR_JFR_LONG:
        (void)br_jfr_long(in);
        return;
    case BR_JFR_FLOAT: /* Floating-point numbers have their full width even in packed chunks. */
        br_jfr_skip(in, 4);
        return;
    case BR_JFR_DOUBLE:
        br_jfr_skip(in, 8);
        return;
    case BR_JFR_STRING:
        br_jfr_skip_string(in);
        return;
    default:
        jfr_values_skip_fields(in, chunk, field->class, depth);
    }
}

static void jfr_values_skip(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                            const struct br_jfr_field *field, unsigned depth)
{
    uint32_t n = field->array ? br_jfr_int(in) : 1;
    for (; n && !in->bad; n--)
        jfr_values_skip_one(in, chunk, field, depth);
}

static void jfr_values_read(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                            const struct br_jfr_field *field, uint64_t values[BR_JFR_N_SLOTS])
{
    if (field->slot == BR_JFR_NOWHERE) {
        jfr_values_skip(in, chunk, field, 0);
    } else if (field->array || field->type == BR_JFR_STRING) {
        values[field->slot] = (uint64_t)(in->p - chunk->data);
        jfr_values_skip(in, chunk, field, 0);
    } else {
        values[field->slot] =
            field->type == BR_JFR_INT && !field->pool ? br_jfr_int(in) : br_jfr_long(in);
    }
}

/* Reads consecutive fields that are a single integer each. Fields that are not wanted are stored
 * in slot BR_JFR_NOWHERE, which is never read. Returns the field after the last field that was
 * read. */
static const struct br_jfr_field *jfr_values_read_plain(struct br_jfr_in *in,
                                                        const struct br_jfr_field *field,
                                                        const struct br_jfr_field *end,
                                                        uint64_t values[BR_JFR_N_SLOTS])
{
    struct br_jfr_in at = {in->p, in->end, in->packed, in->bad};
    for (; field < end && field->plain; field++) {
        uint64_t value = br_jfr_varint(&at);
        values[field->slot] = field->type == BR_JFR_INT && !field->pool ? (uint32_t)value : value;
    }
    in->p = at.p;
    in->bad = at.bad;
    return field;
}

void br_jfr_value(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                  const struct br_jfr_class *class, uint32_t n_fields,
                  uint64_t values[BR_JFR_N_SLOTS])
{
    const struct br_jfr_field *field = chunk->fields + class->first, *end = field + n_fields;
    const uint8_t *from = in->p;
    while (field < end) {
        if (in->packed)
            field = jfr_values_read_plain(in, field, end, values);
        if (field < end)
            jfr_values_read(in, chunk, field++, values);
    }
    br_steps_add((size_t)(in->p - from) + 1);
}

struct br_jfr_entry *br_jfr_constant(const struct br_jfr_chunk *chunk, enum br_jfr_type type,
                                     uint64_t id, uint64_t values[BR_JFR_N_SLOTS])
{
    struct br_jfr_entry *entry = br_jfr_ids_find(&chunk->pools[type], id);
    if (!entry)
        return NULL;
    const struct br_jfr_class *k = &chunk->classes[chunk->class_of[type]];
    struct br_jfr_in in = br_jfr_at(chunk, entry->at);
    br_jfr_no_values(values);
    br_jfr_value(&in, chunk, k, k->n_needed, values);
    return entry;
}
