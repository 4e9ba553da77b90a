/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/reading.h"

#include <string.h>

#include "wire/protobuf.h"

#define ATTRIBUTES 2 /* fields of Sample */
#define LINK 3
#define VALUES 4
#define TIMES 5
#define STACK 1

struct reader {
    const struct br_dictionary_view *view;
    const struct join_label *labels;
    struct join_reading *s;
};

static void take_label(void *arg, uint64_t index)
{
    const struct reader *r = arg;
    struct join_reading *s = r->s;
    if (index >= r->view->n[BR_TABLE_ATTRIBUTE])
        return;
    const struct join_label *l = &r->labels[index];
    if (l->where < JOIN_WHERES)
        s->where.v[l->where] = l->hash;
    if (l->kind == JOIN_LABEL_OWN) {
        s->has_keys |= 1u << l->number;
    } else if (l->kind == JOIN_LABEL_SPAN_ID && (!s->span_id || l->number < s->span_number)) {
        s->span_id = l->id;
        s->span_number = l->number;
    } else if (l->kind == JOIN_LABEL_TRACE_ID && (!s->trace_id || l->number < s->trace_number)) {
        s->trace_id = l->id;
        s->trace_number = l->number;
    }
}

static void add_value(void *arg, uint64_t v)
{
    struct join_reading *s = arg;
    s->n_values++;
    if ((int64_t)v > 0 && __builtin_add_overflow(s->value, v, &s->value))
        s->value = UINT64_MAX;
}

/* Each number of a repeated varint field, packed or not. */
static inline void each(const struct br_field *f, void (*fn)(void *arg, uint64_t v), void *arg)
{
    if (f->wire == BR_WIRE_VARINT) {
        fn(arg, f->value);
        return;
    }
    const uint8_t *p = f->data, *end = p + f->value;
    uint64_t v;
    while (p < end && (p = br_varint(p, end, &v)))
        fn(arg, v);
}

/* A link to a span beats labels; without a trace id it leaves theirs. */
static void take_link(const struct br_dictionary_view *view, uint64_t index, struct join_reading *s)
{
    static const uint8_t none[16];
    if (index == 0 || index >= view->n[BR_TABLE_LINK])
        return;
    const struct br_entry *e = &view->tables[BR_TABLE_LINK][index];
    const uint8_t *p = e->data, *end = p + e->len, *trace = NULL, *span = NULL;
    struct br_field f;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1)
            trace = f.value == 16 ? f.data : NULL;
        else if (f.number == 2)
            span = f.value == 8 ? f.data : NULL;
    }
    if (!span || memcmp(span, none, 8) == 0)
        return;
    s->linked = true;
    s->span_id = span;
    if (trace && memcmp(trace, none, 16) != 0)
        s->trace_id = trace;
}

void join_reading_of(const struct br_dictionary_view *view, const struct join_label *labels,
                     const uint8_t *p, const uint8_t *end, struct join_reading *ret)
{
    struct reader r = {view, labels, ret};
    struct br_field f;
    uint64_t link = 0;
    *ret = (struct join_reading){.body = p, .end = end};
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == STACK)
            ret->stack = (uint32_t)f.value;
        else if (f.number == ATTRIBUTES && labels)
            each(&f, take_label, &r);
        else if (f.number == LINK)
            link = f.value;
        else if (f.number == VALUES)
            each(&f, add_value, ret);
        else if (f.number == TIMES)
            ret->n_times += f.wire == BR_WIRE_LEN ? f.value / 8 : 1;
    }
    take_link(view, link, ret);
}

static void put_number(void *arg, uint64_t v)
{
    uint64_t **at = arg;
    *(*at)++ = v;
}

void join_reading_values(const struct join_reading *s, uint64_t *ret)
{
    const uint8_t *p = s->body;
    struct br_field f;
    while (p < s->end && (p = br_field_next(p, s->end, &f)))
        if (f.number == VALUES)
            each(&f, put_number, &ret);
}

void join_reading_times(const struct join_reading *s, uint64_t *ret)
{
    const uint8_t *p = s->body;
    struct br_field f;
    while (p < s->end && (p = br_field_next(p, s->end, &f))) {
        if (f.number == TIMES && f.wire == BR_WIRE_LEN)
            for (uint64_t i = 0; i + 8 <= f.value; i += 8)
                *ret++ = br_load64(f.data + i);
        else if (f.number == TIMES)
            *ret++ = f.value;
    }
}
