/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/profile_limits.h"

#include <string.h>

#include "base/steps.h"
#include "otlp/scan.h"

#define LIMITS_TRUNCATED "[truncated]"

enum { STACK_LOCATION = 1, LOCATION_LINE = 3, LINE_FUNCTION = 1, FUNCTION_NAME = 1 };

/* A location from which lines are removed. The location is parsed once, and copies with fewer lines
 * are made from this struct. */
struct cut {
    /* the innermost lines of the location, at most as many as a stack may have */
    const uint8_t *lines;
    uint32_t lines_len;
    /* the fields of the location other than lines: those before the first line, and those after
     * it */
    struct br_entry before, after;
    /* for each number of lines: index of the copy of the location with that many lines; 0: the copy
     * does not exist yet */
    uint32_t *copies;
};

struct cutter {
    struct limits_edit *edit;
    uint32_t max_depth;
    uint32_t *frames; /* number of frames of each location, by location index */
    uint32_t most;    /* largest number of frames in one location */
    /* data for making shorter copies of each location, by location index; NULL: no location was
     * cut */
    struct cut **cuts;
    uint32_t truncated; /* index of the added location [truncated]; 0: not added yet */
    uint32_t n_cut;
};

/* --- Locations ------------------------------------------------------------------------------- */

static uint32_t limits_stacks_frames_of(struct br_entry location)
{
    const uint8_t *end = location.data + location.len;
    uint32_t n = 0;
    struct br_field field;
    br_steps_add(location.len);
    for (const uint8_t *p = location.data; p < end && (p = br_scan(p, end, &field));)
        n += br_scan_tag(&field) == BR_SCAN_LEN(LOCATION_LINE);
    return n ? n : 1;
}

static bool limits_stacks_count_frames(struct cutter *cutter)
{
    const struct br_dictionary_view *view = &cutter->edit->view;
    uint32_t n = view->count[BR_TABLE_LOCATION];
    cutter->frames = br_arena_calloc(cutter->edit->arena, n, sizeof *cutter->frames);
    if (!cutter->frames)
        return false;
    cutter->most = 1;
    for (uint32_t i = 0; i < n; i++) {
        cutter->frames[i] = i ? limits_stacks_frames_of(view->tables[BR_TABLE_LOCATION][i]) : 1;
        cutter->most = cutter->frames[i] > cutter->most ? cutter->frames[i] : cutter->most;
    }
    return true;
}

enum side { BEFORE, LINES, AFTER };

/* Copies some bytes of a location. `side` selects them: the first `most` lines, the other fields
 * before the first line, or the other fields after it. */
static uint8_t *limits_stacks_gather(struct br_entry location, enum side side, uint32_t most,
                                     uint8_t *out)
{
    const uint8_t *end = location.data + location.len;
    uint32_t n = 0;
    struct br_field field;
    br_steps_add(location.len);
    for (const uint8_t *p = location.data; p < end && (p = br_scan(p, end, &field));) {
        bool is_line = br_scan_tag(&field) == BR_SCAN_LEN(LOCATION_LINE);
        n += is_line;
        enum side here = n ? AFTER : BEFORE;
        if (is_line)
            here = LINES;
        if (here == side && (!is_line || n <= most))
            out = br_put_bytes(out, field.at, (size_t)(p - field.at));
    }
    return out;
}

static struct cut *limits_stacks_read_cut(struct cutter *cutter, uint32_t index)
{
    struct br_arena *arena = cutter->edit->arena;
    struct br_entry location = cutter->edit->view.tables[BR_TABLE_LOCATION][index];
    uint32_t most = cutter->max_depth - 1;
    most = most < cutter->frames[index] ? most : cutter->frames[index];
    struct cut *cut = br_arena_alloc(arena, sizeof *cut);
    uint8_t *before = br_arena_alloc(arena, location.len);
    uint32_t *copies = br_arena_calloc(arena, (size_t)most + 1, sizeof *copies);
    if (!cut || !before || !copies)
        return NULL;
    uint8_t *lines = limits_stacks_gather(location, BEFORE, most, before);
    uint8_t *after = limits_stacks_gather(location, LINES, most, lines);
    uint8_t *end = limits_stacks_gather(location, AFTER, most, after);
    *cut = (struct cut){.lines = lines,
                        .lines_len = (uint32_t)(after - lines),
                        .before = {before, (uint32_t)(lines - before)},
                        .after = {after, (uint32_t)(end - after)},
                        .copies = copies};
    return cut;
}

static struct cut *limits_stacks_cut_of(struct cutter *cutter, uint32_t index)
{
    struct limits_edit *edit = cutter->edit;
    if (!cutter->cuts)
        cutter->cuts =
            br_arena_calloc(edit->arena, edit->view.count[BR_TABLE_LOCATION], sizeof *cutter->cuts);
    if (cutter->cuts && !cutter->cuts[index])
        cutter->cuts[index] = limits_stacks_read_cut(cutter, index);
    return cutter->cuts ? cutter->cuts[index] : NULL;
}

/* Adds a copy of a location with `lines` lines and returns its index. limits_edit limits the
 * total size of the copies. */
static uint32_t limits_stacks_copy(struct cutter *cutter, const struct cut *cut, uint32_t lines)
{
    const uint8_t *p = cut->lines, *end = p + cut->lines_len;
    struct br_str copy = {0};
    struct br_field field;
    for (uint32_t n = 0; n < lines && p && p < end; n++)
        p = br_scan(p, end, &field);
    br_str_add(&copy, cut->before.data, cut->before.len);
    br_str_add(&copy, cut->lines, p ? (size_t)(p - cut->lines) : 0);
    br_str_add(&copy, cut->after.data, cut->after.len);
    if (copy.failed)
        cutter->edit->rc = BR_ENOMEM;
    uint32_t ret = limits_edit_add(cutter->edit, BR_TABLE_LOCATION, copy.data, copy.len);
    br_str_release(&copy);
    return ret;
}

/* Returns the index of a copy of location `index` that contains only its `lines` innermost
 * lines. `lines` must be less than max_depth and less than the location's number of lines. */
static uint32_t limits_stacks_cut_location(struct cutter *cutter, uint32_t index, uint32_t lines)
{
    struct cut *cut = limits_stacks_cut_of(cutter, index);
    if (!cut) {
        cutter->edit->rc = BR_ENOMEM;
        return 0;
    }
    if (!cut->copies[lines])
        cut->copies[lines] = limits_stacks_copy(cutter, cut, lines);
    return cut->copies[lines];
}

static size_t limits_stacks_put_index(uint8_t *out, uint32_t field, uint32_t index)
{
    uint8_t *p = br_put_varint(out, BR_TAG(field, BR_WIRE_VARINT));
    return (size_t)(br_put_varint(p, index) - out);
}

static uint32_t limits_stacks_truncated(struct cutter *cutter)
{
    struct limits_edit *edit = cutter->edit;
    uint8_t function[16], line[16], location[32];
    if (cutter->truncated)
        return cutter->truncated;
    uint32_t string =
        limits_edit_add(edit, BR_TABLE_STRING, LIMITS_TRUNCATED, strlen(LIMITS_TRUNCATED));
    size_t len = limits_stacks_put_index(function, FUNCTION_NAME, string);
    len = limits_stacks_put_index(line, LINE_FUNCTION,
                                  limits_edit_add(edit, BR_TABLE_FUNCTION, function, len));
    len = (size_t)(br_put_len(location, LOCATION_LINE, line, len) - location);
    cutter->truncated = limits_edit_add(edit, BR_TABLE_LOCATION, location, len);
    return cutter->truncated;
}

/* --- Stacks ---------------------------------------------------------------------------------- */

/* Position of an iteration over the location indices of a stack, which may be packed or not. */
struct indices {
    const uint8_t *p, *end;     /* unread bytes of the stack */
    const uint8_t *packed, *to; /* unread bytes of the current packed field */
};

static bool limits_stacks_next_index(struct indices *it, uint64_t *ret)
{
    while (it->packed == it->to) {
        struct br_field field;
        it->p = it->p < it->end ? br_scan(it->p, it->end, &field) : NULL;
        if (!it->p)
            return false;
        if (br_scan_tag(&field) == BR_SCAN_VARINT(STACK_LOCATION)) {
            *ret = field.value;
            return true;
        }
        if (br_scan_tag(&field) == BR_SCAN_LEN(STACK_LOCATION)) {
            it->packed = field.data;
            it->to = it->p;
        }
    }
    it->packed = br_scan_varint(it->packed, it->to, ret);
    return it->packed != NULL;
}

static uint32_t limits_stacks_frames_at(const struct cutter *cutter, uint64_t location)
{
    return location < cutter->edit->view.count[BR_TABLE_LOCATION] ? cutter->frames[location] : 1;
}

static bool limits_stacks_is_deep(const struct cutter *cutter, struct br_entry stack)
{
    struct indices it = {.p = stack.data, .end = stack.data + stack.len};
    uint64_t depth = 0, location;
    /* a stack of `len` bytes has at most `len` indices, because each takes at least one byte */
    if ((uint64_t)stack.len * cutter->most <= cutter->max_depth)
        return false;
    br_steps_add(stack.len);
    while (depth <= cutter->max_depth && limits_stacks_next_index(&it, &location))
        depth += limits_stacks_frames_at(cutter, location);
    return depth > cutter->max_depth;
}

static void limits_stacks_cut(struct cutter *cutter, uint32_t at, struct br_entry stack)
{
    struct indices it = {.p = stack.data, .end = stack.data + stack.len};
    uint32_t room = cutter->max_depth - 1;
    uint64_t location;
    uint8_t index[BR_VARINT_MAX];
    struct br_str list = {0};
    br_steps_add(stack.len);
    while (room && !cutter->edit->rc && limits_stacks_next_index(&it, &location)) {
        uint32_t frames = limits_stacks_frames_at(cutter, location);
        if (frames > room) {
            location = limits_stacks_cut_location(cutter, (uint32_t)location, room);
            frames = room;
        }
        br_str_add(&list, index, (size_t)(br_put_varint(index, location) - index));
        room -= frames;
    }
    br_str_add(&list, index,
               (size_t)(br_put_varint(index, limits_stacks_truncated(cutter)) - index));
    size_t len = br_len_size(STACK_LOCATION, list.len);
    uint8_t *out = br_arena_alloc(cutter->edit->arena, len);
    if (!out || list.failed) {
        cutter->edit->rc = BR_ENOMEM;
    } else if (!cutter->edit->rc) {
        br_put_len(out, STACK_LOCATION, list.data, list.len);
        limits_edit_replace(cutter->edit, BR_TABLE_STACK, at, out, len);
    }
    br_str_release(&list);
    cutter->n_cut++;
}

uint32_t limits_cut_stacks(struct limits_edit *edit, uint32_t max_depth)
{
    struct cutter cutter = {.edit = edit, .max_depth = max_depth};
    const struct br_entry *stacks = edit->view.tables[BR_TABLE_STACK];
    if (edit->view.count[BR_TABLE_STACK] <= 1)
        return 0;
    if (!limits_stacks_count_frames(&cutter))
        edit->rc = BR_ENOMEM;
    for (uint32_t i = 1; i < edit->view.count[BR_TABLE_STACK] && !edit->rc; i++)
        if (limits_stacks_is_deep(&cutter, stacks[i]))
            limits_stacks_cut(&cutter, i, stacks[i]);
    return cutter.n_cut;
}
