/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/stacks.h"

#include <string.h>

#include "otlp/scan.h"

enum { STACK_LOCATION = 1, LOCATION_LINE = 3, LINE_FUNCTION = 1, FUNCTION_NAME = 1 };

struct cutter {
    struct limits_edit *edit;
    uint32_t max_depth;
    uint32_t *frames; /* by location */
    uint32_t most;    /* of one location */
    struct cut {      /* by location: the newest copy of it with only some of its lines */
        uint32_t lines, copy;
    } * cuts;
    uint32_t truncated; /* the location at the root; 0: there is none yet */
    uint32_t n_cut;
};

/* --- Locations ------------------------------------------------------------------------------- */

static uint32_t frames_of(struct br_entry location)
{
    const uint8_t *end = location.data + location.len;
    uint32_t n = 0;
    struct br_field f;
    for (const uint8_t *p = location.data; p < end && (p = br_scan(p, end, &f));)
        n += br_scan_tag(&f) == BR_SCAN_LEN(LOCATION_LINE);
    return n ? n : 1;
}

static bool count_frames(struct cutter *c)
{
    const struct br_dictionary_view *view = &c->edit->view;
    uint32_t n = view->n[BR_TABLE_LOCATION];
    c->frames = br_arena_calloc(c->edit->arena, n, sizeof *c->frames);
    if (!c->frames)
        return false;
    c->most = 1;
    for (uint32_t i = 0; i < n; i++) {
        c->frames[i] = i ? frames_of(view->tables[BR_TABLE_LOCATION][i]) : 1;
        c->most = c->frames[i] > c->most ? c->frames[i] : c->most;
    }
    return true;
}

/* A location like `i` with only the innermost of its lines. */
static uint32_t cut_location(struct cutter *c, uint32_t i, uint32_t lines)
{
    struct limits_edit *e = c->edit;
    if (!c->cuts)
        c->cuts = br_arena_calloc(e->arena, e->view.n[BR_TABLE_LOCATION], sizeof *c->cuts);
    if (!c->cuts) {
        e->rc = BR_ENOMEM;
        return 0;
    }
    if (c->cuts[i].lines == lines)
        return c->cuts[i].copy;
    struct br_entry location = e->view.tables[BR_TABLE_LOCATION][i];
    const uint8_t *end = location.data + location.len;
    struct br_str copy = {0};
    uint32_t n = 0;
    struct br_field f;
    for (const uint8_t *p = location.data; p < end && (p = br_scan(p, end, &f));)
        if (br_scan_tag(&f) != BR_SCAN_LEN(LOCATION_LINE) || n++ < lines)
            br_str_add(&copy, f.at, (size_t)(p - f.at));
    if (copy.failed)
        e->rc = BR_ENOMEM;
    c->cuts[i].lines = lines;
    c->cuts[i].copy = limits_edit_add(e, BR_TABLE_LOCATION, copy.data, copy.len);
    br_str_release(&copy);
    return c->cuts[i].copy;
}

static size_t put_index(uint8_t *out, uint32_t field, uint32_t index)
{
    uint8_t *p = br_put_varint(out, BR_TAG(field, BR_WIRE_VARINT));
    return (size_t)(br_put_varint(p, index) - out);
}

static uint32_t truncated(struct cutter *c)
{
    struct limits_edit *e = c->edit;
    uint8_t function[16], line[16], location[32];
    if (c->truncated)
        return c->truncated;
    uint32_t string =
        limits_edit_add(e, BR_TABLE_STRING, LIMITS_TRUNCATED, strlen(LIMITS_TRUNCATED));
    size_t len = put_index(function, FUNCTION_NAME, string);
    len = put_index(line, LINE_FUNCTION, limits_edit_add(e, BR_TABLE_FUNCTION, function, len));
    len = (size_t)(br_put_len(location, LOCATION_LINE, line, len) - location);
    c->truncated = limits_edit_add(e, BR_TABLE_LOCATION, location, len);
    return c->truncated;
}

/* --- Stacks ---------------------------------------------------------------------------------- */

/* Reads the indices of a stack, packed or not. */
struct indices {
    const uint8_t *p, *end;     /* the stack */
    const uint8_t *packed, *to; /* the field that is being read */
};

static bool next_index(struct indices *it, uint64_t *ret)
{
    while (it->packed == it->to) {
        struct br_field f;
        it->p = it->p < it->end ? br_scan(it->p, it->end, &f) : NULL;
        if (!it->p)
            return false;
        if (br_scan_tag(&f) == BR_SCAN_VARINT(STACK_LOCATION)) {
            *ret = f.value;
            return true;
        }
        if (br_scan_tag(&f) == BR_SCAN_LEN(STACK_LOCATION)) {
            it->packed = f.data;
            it->to = it->p;
        }
    }
    it->packed = br_scan_varint(it->packed, it->to, ret);
    return it->packed != NULL;
}

static uint32_t frames_at(const struct cutter *c, uint64_t location)
{
    return location < c->edit->view.n[BR_TABLE_LOCATION] ? c->frames[location] : 1;
}

static bool is_deep(const struct cutter *c, struct br_entry stack)
{
    struct indices it = {.p = stack.data, .end = stack.data + stack.len};
    uint64_t depth = 0, location;
    if ((uint64_t)stack.len * c->most <= c->max_depth) /* an index is a byte at least */
        return false;
    while (depth <= c->max_depth && next_index(&it, &location))
        depth += frames_at(c, location);
    return depth > c->max_depth;
}

static void cut(struct cutter *c, uint32_t i, struct br_entry stack)
{
    struct indices it = {.p = stack.data, .end = stack.data + stack.len};
    uint32_t room = c->max_depth - 1;
    uint64_t location;
    uint8_t index[BR_VARINT_MAX];
    struct br_str list = {0};
    while (room && next_index(&it, &location)) {
        uint32_t frames = frames_at(c, location);
        if (frames > room) {
            location = cut_location(c, (uint32_t)location, room);
            frames = room;
        }
        br_str_add(&list, index, (size_t)(br_put_varint(index, location) - index));
        room -= frames;
    }
    br_str_add(&list, index, (size_t)(br_put_varint(index, truncated(c)) - index));
    size_t len = br_len_size(STACK_LOCATION, list.len);
    uint8_t *out = br_arena_alloc(c->edit->arena, len);
    if (!out || list.failed) {
        c->edit->rc = BR_ENOMEM;
    } else if (!c->edit->rc) {
        br_put_len(out, STACK_LOCATION, list.data, list.len);
        limits_edit_replace(c->edit, BR_TABLE_STACK, i, out, len);
    }
    br_str_release(&list);
    c->n_cut++;
}

uint32_t limits_cut_stacks(struct limits_edit *e, uint32_t max_depth)
{
    struct cutter c = {.edit = e, .max_depth = max_depth};
    const struct br_entry *stacks = e->view.tables[BR_TABLE_STACK];
    if (e->view.n[BR_TABLE_STACK] <= 1)
        return 0;
    if (!count_frames(&c))
        e->rc = BR_ENOMEM;
    for (uint32_t i = 1; i < e->view.n[BR_TABLE_STACK] && !e->rc; i++)
        if (is_deep(&c, stacks[i]))
            cut(&c, i, stacks[i]);
    return c.n_cut;
}
