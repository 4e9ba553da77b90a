/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/steps.h"
#include "profile/jfr/jfr.h"
#include "wire/protobuf.h"

#define DEPTH_MAX 8

static void pass(struct br_jfr_in *in, const struct br_jfr_chunk *c, const struct br_jfr_field *f,
                 unsigned depth);

static void pass_fields(struct br_jfr_in *in, const struct br_jfr_chunk *c, uint32_t class,
                        unsigned depth)
{
    /* Every value takes a byte at least: without this, metadata of structures without fields, in
     * arrays, would make a few bytes take for ever. */
    if (class == BR_JFR_NO_CLASS || !c->classes[class].n_fields || depth >= DEPTH_MAX) {
        in->bad = true;
        in->p = in->end;
        return;
    }
    const struct br_jfr_class *k = &c->classes[class];
    for (uint32_t i = 0; i < k->n_fields && !in->bad; i++)
        pass(in, c, &c->fields[k->first + i], depth + 1);
}

static void pass_one(struct br_jfr_in *in, const struct br_jfr_chunk *c,
                     const struct br_jfr_field *f, unsigned depth)
{
    if (f->pool) {
        (void)br_jfr_long(in);
        return;
    }
    switch (f->type) {
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
        pass_fields(in, c, f->class, depth);
    }
}

static void pass(struct br_jfr_in *in, const struct br_jfr_chunk *c, const struct br_jfr_field *f,
                 unsigned depth)
{
    uint32_t n = f->array ? br_jfr_int(in) : 1;
    for (; n && !in->bad; n--)
        pass_one(in, c, f, depth);
}

void br_jfr_value(struct br_jfr_in *in, const struct br_jfr_chunk *c, const struct br_jfr_class *k,
                  uint32_t n_fields, uint64_t v[BR_JFR_N_SLOTS])
{
    const struct br_jfr_field *f = c->fields + k->first;
    const uint8_t *from = in->p;
    for (const struct br_jfr_field *end = f + n_fields; f < end; f++) {
        if (f->slot == BR_JFR_NOWHERE) {
            pass(in, c, f, 0);
        } else if (f->array || f->type == BR_JFR_STRING) {
            v[f->slot] = (uint64_t)(in->p - c->data);
            pass(in, c, f, 0);
        } else {
            v[f->slot] = f->type == BR_JFR_INT && !f->pool ? br_jfr_int(in) : br_jfr_long(in);
        }
    }
    br_steps_add((size_t)(in->p - from) + 1);
}

struct br_jfr_entry *br_jfr_constant(const struct br_jfr_chunk *c, enum br_jfr_type type,
                                     uint64_t id, uint64_t v[BR_JFR_N_SLOTS])
{
    struct br_jfr_entry *e = br_jfr_ids_find(&c->pools[type], id);
    if (!e)
        return NULL;
    const struct br_jfr_class *k = &c->classes[c->class_of[type]];
    struct br_jfr_in in = br_jfr_at(c, e->at);
    memset(v, 0, BR_JFR_N_SLOTS * sizeof *v);
    br_jfr_value(&in, c, k, k->n_needed, v);
    return e;
}

static int bad_event(uint32_t at, struct br_err *err)
{
    return br_err_set(err, BR_EINVAL, "the event at byte %u of the chunk is cut off or malformed",
                      at);
}

/* The size that an event begins with, when it has one byte or, padded, four, as machines write it;
 * returns how many bytes, or 0. Where an event ends is what the next one waits for. */
static unsigned read_size(uint64_t w, uint32_t *ret)
{
    if (!(w & 0x80)) {
        *ret = w & 0x7f;
        return 1;
    }
    if ((w & 0x80808080) != 0x808080)
        return 0;
    *ret = (uint32_t)((w & 0x7f) | (w >> 1 & 0x3f80) | (w >> 2 & 0x1fc000) | (w >> 3 & 0xfe00000));
    return 4;
}

/* A type modulo BR_JFR_WANTED: of its first two bytes, however many it has. */
static size_t low_bits(uint64_t w)
{
    return (w & 0x7f) | (w >> 1 & 0x380 & -(w >> 7 & 1));
}

/* Where the next event is that somebody may want, from `at` on: most of a machine's are nobody's.
 */
static uint32_t pass_unwanted(const struct br_jfr_chunk *c, uint32_t at)
{
    const uint8_t *p = c->data + at, *end = c->data + c->size;
    while (c->packed && end - p >= 16) {
        uint64_t w = br_load64(p);
        uint32_t size;
        unsigned n = read_size(w, &size);
        if (!n || size <= n || size > end - p || c->wanted[low_bits(w >> 8 * n)])
            break;
        p += size;
    }
    return (uint32_t)(p - c->data);
}

static unsigned event_type(const struct br_jfr_chunk *c, int64_t id)
{
    unsigned type = BR_JFR_FIRST_EVENT;
    while (type < BR_JFR_N_TYPES &&
           (c->event_ids[type - BR_JFR_FIRST_EVENT] != id || c->class_of[type] == BR_JFR_NO_CLASS))
        type++;
    return type;
}

int br_jfr_event(const struct br_jfr_chunk *c, uint32_t *at, uint64_t v[BR_JFR_N_SLOTS],
                 struct br_err *err)
{
    while ((*at = pass_unwanted(c, *at)) < c->size) {
        struct br_jfr_in in = br_jfr_at(c, *at);
        uint32_t from = *at, size = br_jfr_int(&in);
        int64_t id = (int64_t)br_jfr_long(&in);
        if (in.bad || size > c->size - from || in.p > c->data + from + size)
            return bad_event(from, err);
        in.end = c->data + from + size;
        *at += size;
        unsigned type = event_type(c, id);
        if (type == BR_JFR_N_TYPES)
            continue;
        const struct br_jfr_class *k = &c->classes[c->class_of[type]];
        memset(v, 0, BR_JFR_N_SLOTS * sizeof *v);
        br_jfr_value(&in, c, k, k->n_needed, v);
        return in.bad ? bad_event(from, err) : (int)type;
    }
    return 0;
}
