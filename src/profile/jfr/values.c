/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/steps.h"
#include "profile/jfr/jfr.h"
#include "wire/protobuf.h"

#define DEPTH_MAX 8

static void jfr_values_pass(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                            const struct br_jfr_field *field, unsigned depth);

static void jfr_values_pass_fields(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                                   uint32_t class, unsigned depth)
{
    /* Every value takes a byte at least: without this, metadata of structures without fields, in
     * arrays, would make a few bytes take for ever. */
    if (class == BR_JFR_NO_CLASS || !chunk->classes[class].n_fields || depth >= DEPTH_MAX) {
        in->bad = true;
        in->p = in->end;
        return;
    }
    const struct br_jfr_class *k = &chunk->classes[class];
    for (uint32_t i = 0; i < k->n_fields && !in->bad; i++)
        jfr_values_pass(in, chunk, &chunk->fields[k->first + i], depth + 1);
}

static void jfr_values_pass_one(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                                const struct br_jfr_field *field, unsigned depth)
{
    if (field->pool) {
        (void)br_jfr_long(in);
        return;
    }
    switch (field->type) {
    case BR_JFR_BOOLEAN:
    case BR_JFR_BYTE:
        br_jfr_pass(in, 1);
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
    case BR_JFR_FLOAT: /* never packed */
        br_jfr_pass(in, 4);
        return;
    case BR_JFR_DOUBLE:
        br_jfr_pass(in, 8);
        return;
    case BR_JFR_STRING:
        br_jfr_pass_string(in);
        return;
    default:
        jfr_values_pass_fields(in, chunk, field->class, depth);
    }
}

static void jfr_values_pass(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                            const struct br_jfr_field *field, unsigned depth)
{
    uint32_t n = field->array ? br_jfr_int(in) : 1;
    for (; n && !in->bad; n--)
        jfr_values_pass_one(in, chunk, field, depth);
}

void br_jfr_value(struct br_jfr_in *in, const struct br_jfr_chunk *chunk,
                  const struct br_jfr_class *class, uint32_t n_fields,
                  uint64_t values[BR_JFR_N_SLOTS])
{
    const struct br_jfr_field *field = chunk->fields + class->first;
    const uint8_t *from = in->p;
    for (const struct br_jfr_field *end = field + n_fields; field < end; field++) {
        if (field->slot == BR_JFR_NOWHERE) {
            jfr_values_pass(in, chunk, field, 0);
        } else if (field->array || field->type == BR_JFR_STRING) {
            values[field->slot] = (uint64_t)(in->p - chunk->data);
            jfr_values_pass(in, chunk, field, 0);
        } else {
            values[field->slot] =
                field->type == BR_JFR_INT && !field->pool ? br_jfr_int(in) : br_jfr_long(in);
        }
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
    memset(values, 0, BR_JFR_N_SLOTS * sizeof *values);
    br_jfr_value(&in, chunk, k, k->n_needed, values);
    return entry;
}

static int jfr_values_bad_event(uint32_t at, struct br_err *err)
{
    return br_err_set(err, BR_EINVAL, "the event at byte %u of the chunk is cut off or malformed",
                      at);
}

/* The size that an event begins with, when it has one byte or, padded, four, as machines write it;
 * returns how many bytes, or 0. Where an event ends is what the next one waits for. */
static unsigned jfr_values_read_size(uint64_t word, uint32_t *ret)
{
    if (!(word & 0x80)) {
        *ret = word & 0x7f;
        return 1;
    }
    if ((word & 0x80808080) != 0x808080)
        return 0;
    *ret = (uint32_t)((word & 0x7f) | (word >> 1 & 0x3f80) | (word >> 2 & 0x1fc000) |
                      (word >> 3 & 0xfe00000));
    return 4;
}

/* A type modulo BR_JFR_WANTED: of its first two bytes, however many it has. */
static size_t jfr_values_low_bits(uint64_t word)
{
    return (word & 0x7f) | (word >> 1 & 0x380 & -(word >> 7 & 1));
}

/* Where the next event is that somebody may want, from `at` on: most of a machine's are nobody's.
 */
static uint32_t jfr_values_pass_unwanted(const struct br_jfr_chunk *chunk, uint32_t at)
{
    const uint8_t *p = chunk->data + at, *end = chunk->data + chunk->size;
    while (chunk->packed && end - p >= 16) {
        uint64_t w = br_load64(p);
        uint32_t size;
        unsigned n = jfr_values_read_size(w, &size);
        if (!n || size <= n || size > end - p || chunk->wanted[jfr_values_low_bits(w >> 8 * n)])
            break;
        p += size;
    }
    return (uint32_t)(p - chunk->data);
}

static unsigned jfr_values_event_type(const struct br_jfr_chunk *chunk, int64_t id)
{
    unsigned type = BR_JFR_FIRST_EVENT;
    while (type < BR_JFR_N_TYPES && (chunk->event_ids[type - BR_JFR_FIRST_EVENT] != id ||
                                     chunk->class_of[type] == BR_JFR_NO_CLASS))
        type++;
    return type;
}

int br_jfr_event(const struct br_jfr_chunk *chunk, uint32_t *at, uint64_t values[BR_JFR_N_SLOTS],
                 struct br_err *err)
{
    while ((*at = jfr_values_pass_unwanted(chunk, *at)) < chunk->size) {
        struct br_jfr_in in = br_jfr_at(chunk, *at);
        uint32_t from = *at, size = br_jfr_int(&in);
        int64_t id = (int64_t)br_jfr_long(&in);
        if (in.bad || size > chunk->size - from || in.p > chunk->data + from + size)
            return jfr_values_bad_event(from, err);
        in.end = chunk->data + from + size;
        *at += size;
        unsigned type = jfr_values_event_type(chunk, id);
        if (type == BR_JFR_N_TYPES)
            continue;
        const struct br_jfr_class *k = &chunk->classes[chunk->class_of[type]];
        memset(values, 0, BR_JFR_N_SLOTS * sizeof *values);
        br_jfr_value(&in, chunk, k, k->n_needed, values);
        return in.bad ? jfr_values_bad_event(from, err) : (int)type;
    }
    return 0;
}
