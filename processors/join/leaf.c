/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/leaf.h"

#include "base/steps.h"
#include "wire/protobuf.h"

void join_leaves_init(struct join_leaves *l, struct join_table *table,
                      const struct br_dictionary_view *view, struct br_arena *arena)
{
    l->table = table;
    l->view = view;
    l->stacks = br_arena_calloc(arena, view->n[BR_TABLE_STACK], sizeof *l->stacks);
    l->locations = br_arena_calloc(arena, view->n[BR_TABLE_LOCATION], sizeof *l->locations);
    l->functions = br_arena_calloc(arena, view->n[BR_TABLE_FUNCTION], sizeof *l->functions);
}

/* The first number in field `field` of a table's entry, 0 when it has none. */
static uint64_t first_number(const struct br_dictionary_view *v, enum br_table table, uint64_t i,
                             uint32_t field)
{
    if (i >= v->n[table])
        return 0;
    const struct br_entry *e = &v->tables[table][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t number = 0;
    br_steps_add(e->len);
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != field)
            continue;
        if (f.wire == BR_WIRE_VARINT)
            return f.value;
        if (f.value && br_varint(f.data, f.data + f.value, &number))
            return number;
    }
    return 0;
}

/* The function of a location's first line. */
static uint64_t function_of(const struct br_dictionary_view *v, uint64_t location)
{
    if (location >= v->n[BR_TABLE_LOCATION])
        return 0;
    const struct br_entry *e = &v->tables[BR_TABLE_LOCATION][location];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f, g;
    uint64_t function = 0;
    br_steps_add(e->len);
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 3)
            continue;
        const uint8_t *q = f.data, *q_end = f.data + f.value;
        while (q < q_end && (q = br_field_next(q, q_end, &g)))
            if (g.number == 1)
                function = g.value;
        return function;
    }
    return 0;
}

/* Numbers are small, but for JOIN_FUNCTION_OTHER, which stays itself. */
static uint32_t note(uint32_t *known, uint32_t number)
{
    *known = number == JOIN_FUNCTION_OTHER ? number : number + 1;
    return number;
}

static uint32_t recall(uint32_t known)
{
    return known == JOIN_FUNCTION_OTHER ? known : known - 1;
}

static uint32_t name_of(const struct join_leaves *l, uint64_t function)
{
    uint64_t name = first_number(l->view, BR_TABLE_FUNCTION, function, 1);
    struct br_entry text = br_dictionary_string(l->view, (uint32_t)name);
    return text.len ? join_table_function(l->table, text.data, text.len) : 0;
}

static uint32_t leaf_of_function(struct join_leaves *l, uint64_t function)
{
    if (!function || function >= l->view->n[BR_TABLE_FUNCTION])
        return 0;
    uint32_t *known = &l->functions[function];
    return *known ? recall(*known) : note(known, name_of(l, function));
}

static uint32_t leaf_of_location(struct join_leaves *l, uint64_t location)
{
    if (!location || location >= l->view->n[BR_TABLE_LOCATION])
        return 0;
    uint32_t *known = &l->locations[location];
    return *known ? recall(*known)
                  : note(known, leaf_of_function(l, function_of(l->view, location)));
}

uint32_t join_leaf_of(struct join_leaves *l, uint32_t stack)
{
    if (!l->stacks || !l->locations || !l->functions || stack >= l->view->n[BR_TABLE_STACK])
        return 0;
    uint32_t *known = &l->stacks[stack];
    return *known ? recall(*known)
                  : note(known, leaf_of_location(
                                    l, first_number(l->view, BR_TABLE_STACK, stack, 1)));
}
