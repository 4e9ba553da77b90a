/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/reading.h"

#include <string.h>

#include "base/map.h"
#include "base/steps.h"
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

#define SHORT 64 /* bytes of a link that are read again each time */

/* The ids of a link; NULL: it has none of that length, or, of spans, the one that means none. */
struct link {
    const uint8_t *trace, *span;
};

static struct link read_link(const struct br_entry *e)
{
    static const uint8_t none[16];
    const uint8_t *p = e->data, *end = p + e->len;
    struct link l = {NULL, NULL};
    struct br_field f;
    br_steps_add(e->len);
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1)
            l.trace = f.value == 16 ? f.data : NULL;
        else if (f.number == 2)
            l.span = f.value == 8 ? f.data : NULL;
    }
    if (l.span && memcmp(l.span, none, 8) == 0)
        l.span = NULL;
    if (l.trace && memcmp(l.trace, none, 16) == 0)
        l.trace = NULL;
    return l;
}

/* A link with more than its ids, which any number of samples may have. */
static struct link read_long_link(struct join_links *links, uint32_t i)
{
    if (!links->known)
        links->known = br_map_new(links->view->n[BR_TABLE_LINK]);
    struct link *l = links->known ? br_map_get(links->known, &i, sizeof i) : NULL;
    if (!l && links->known && !links->no_memory) {
        l = br_arena_alloc(links->arena, sizeof *l);
        if (l)
            *l = read_link(&links->view->tables[BR_TABLE_LINK][i]);
        if (l && br_map_put(links->known, &i, sizeof i, l, NULL))
            l = NULL;
    }
    links->no_memory = links->no_memory || !l;
    return l ? *l : (struct link){NULL, NULL};
}

/* A link to a span beats labels; without a trace id it leaves theirs. */
static void take_link(struct join_links *links, uint64_t index, struct join_reading *s)
{
    if (index == 0 || index >= links->view->n[BR_TABLE_LINK])
        return;
    const struct br_entry *e = &links->view->tables[BR_TABLE_LINK][index];
    struct link l = e->len <= SHORT ? read_link(e) : read_long_link(links, (uint32_t)index);
    if (!l.span)
        return;
    s->linked = true;
    s->span_id = l.span;
    if (l.trace)
        s->trace_id = l.trace;
}

void join_links_release(struct join_links *l)
{
    br_map_free(l->known, NULL);
    l->known = NULL;
}

void join_reading_of(struct join_links *links, const struct join_label *labels, const uint8_t *p,
                     const uint8_t *end, struct join_reading *ret)
{
    struct reader r = {links->view, labels, ret};
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
    take_link(links, link, ret);
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
