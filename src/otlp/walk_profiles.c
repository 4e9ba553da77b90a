/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/walk_internal.h"

#define LEN (BR_WIRE_LEN + 1)
#define VARINT (BR_WIRE_VARINT + 1)
#define I64 (BR_WIRE_I64 + 1)
#define ANY 0 /* checked by hand: packed or not */

/* Field numbers of the tables in ProfilesDictionary. */
enum { MAPPINGS = 1, LOCATIONS, FUNCTIONS, LINKS, STRINGS, ATTRIBUTES, STACKS, N_TABLES };

/* Levels of the messages; the request itself is 1. */
enum { DEPTH_SCOPE_PROFILES = 3, DEPTH_PROFILE, DEPTH_IN_PROFILE, DEPTH_ENTRY = 3 };

static const char *const out_of_range[N_TABLES] = {
    [MAPPINGS] = "an index is outside the mapping table",
    [LOCATIONS] = "an index is outside the location table",
    [FUNCTIONS] = "an index is outside the function table",
    [LINKS] = "a link index is outside the link table",
    [STRINGS] = "an index is outside the string table",
    [ATTRIBUTES] = "an attribute index is outside the attribute table",
    [STACKS] = "a stack index is outside the stack table",
};

/* 0 means "none" and is always in range. */
BR_HOT bool check_index(struct br_walker *w, uint64_t index, int table)
{
    if (__builtin_expect(index < w->n_tables[table] || index == 0, 1))
        return true;
    return br_walk_fail(w, out_of_range[table]);
}

/* A repeated index: one field of it, packed or not. */
BR_HOT bool check_indices(struct br_walker *w, const struct br_field *f, int table)
{
    if (f->wire == BR_WIRE_VARINT)
        return check_index(w, f->value, table);
    if (f->wire != BR_WIRE_LEN)
        return br_walk_fail(w, "a field has the wrong wire type");
    const uint8_t *p = f->data, *end = p + f->value;
    while (p < end) {
        uint64_t v;
        p = br_walk_value(p, end, &v);
        if (!p)
            return br_walk_malformed(w);
        if (!check_index(w, v, table))
            return false;
    }
    return true;
}

/* How many varints a repeated field holds; false when it is malformed. */
static bool count_varints(struct br_walker *w, const struct br_field *f, uint64_t *n)
{
    if (f->wire == BR_WIRE_VARINT) {
        ++*n;
        return true;
    }
    if (f->wire != BR_WIRE_LEN)
        return br_walk_fail(w, "a field has the wrong wire type");
    const uint8_t *p = f->data, *end = p + f->value;
    while (p < end) {
        uint64_t ignored;
        p = br_walk_value(p, end, &ignored);
        if (!p)
            return br_walk_malformed(w);
        ++*n;
    }
    return true;
}

static bool count_fixed64(struct br_walker *w, const struct br_field *f, uint64_t *n)
{
    if (f->wire == BR_WIRE_I64) {
        ++*n;
        return true;
    }
    if (f->wire != BR_WIRE_LEN || f->value % 8)
        return br_walk_fail(w, "timestamps_unix_nano is not a list of fixed64");
    *n += f->value / 8;
    return true;
}

static bool walk_sample(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, ANY, VARINT, ANY, ANY};
    uint64_t n_values = 0, n_times = 0;
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        bool ok = true;
        if (f.number == 1)
            ok = check_index(w, f.value, STACKS);
        else if (f.number == 2)
            ok = check_indices(w, &f, ATTRIBUTES);
        else if (f.number == 3)
            ok = check_index(w, f.value, LINKS);
        else if (f.number == 4)
            ok = count_varints(w, &f, &n_values);
        else if (f.number == 5)
            ok = count_fixed64(w, &f, &n_times);
        if (!ok)
            return false;
    }
    if (n_values == 0 && n_times == 0)
        return br_walk_fail(w, "a sample has neither values nor timestamps");
    if (n_values && n_times && n_values != n_times)
        return br_walk_fail(w, "a sample's values and timestamps differ in number");
    return true;
}

/* A message whose fields are string indices (a bit each in `strings`) and varints. */
static bool walk_indices(struct br_walker *w, const uint8_t *p, const uint8_t *end,
                         const uint8_t *wires, size_t n_wires, unsigned strings)
{
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, n_wires, &f);
        if (!p || (f.number < 32 && (strings >> f.number & 1) && !check_index(w, f.value, STRINGS)))
            return false;
    }
    return true;
}

static bool walk_value_type(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT};
    return walk_indices(w, p, end, wires, sizeof wires, 1u << 1 | 1u << 2);
}

static bool walk_profile(struct br_walker *w, struct br_part *part, const uint8_t *p,
                         const uint8_t *end)
{
    static const uint8_t wires[] = {0,      LEN, LEN,    I64, VARINT, LEN,
                                    VARINT, LEN, VARINT, LEN, LEN,    ANY};
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        bool ok = true;
        if (f.number == 2) {
            w->inner++;
            ok = walk_sample(w, f.data, p);
            part->n_items++;
        } else if (f.number == 1 || f.number == 5) {
            ok = walk_value_type(w, f.data, p);
        } else if (f.number == 7) {
            ok = f.value == 16 || f.value == 0 ||
                 br_walk_fail(w, "a profile id must have 16 bytes or none");
        } else if (f.number == 9) {
            ok = br_walk_string(w, f.data, f.value);
        } else if (f.number == 11) {
            ok = check_indices(w, &f, ATTRIBUTES);
        }
        if (!ok)
            return false;
    }
    return true;
}

static bool walk_scope_profiles(struct br_walker *w, struct br_part *part, const uint8_t *p,
                                const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN};
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        if (f.number == 2) {
            w->item++;
            w->inner = -1;
            if (!walk_profile(w, part, f.data, p))
                return false;
        } else if (f.number == 1 ? !br_walk_scope(w, f.data, p, DEPTH_PROFILE)
                                 : f.number == 3 && !br_walk_string(w, f.data, f.value)) {
            return false;
        }
    }
    return true;
}

bool br_walk_resource_profiles(struct br_walker *w, struct br_item *item, struct br_part *part)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN};
    (void)item;
    if (DEPTH_IN_PROFILE + 1 > w->max_depth)
        return br_walk_too_deep(w);
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        if (f.number == 2) {
            w->scope++;
            w->item = -1;
            if (!walk_scope_profiles(w, part, f.data, p))
                return false;
        } else if (f.number == 1) {
            if (!br_walk_resource(w, f.data, p, DEPTH_SCOPE_PROFILES))
                return false;
            br_walk_note_resource(w, part, &f, p);
        } else if (f.number == 3 && !br_walk_string(w, f.data, f.value)) {
            return false;
        }
    }
    return true;
}

bool br_walk_dictionary_count(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, LEN, LEN, LEN, LEN};
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        if (f.number < N_TABLES)
            w->n_tables[f.number]++;
    }
    return true;
}

static bool walk_mapping(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT, VARINT, VARINT, ANY};
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p || (f.number == 4 && !check_index(w, f.value, STRINGS)) ||
            (f.number == 5 && !check_indices(w, &f, ATTRIBUTES)))
            return false;
    }
    return true;
}

static bool walk_line(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT, VARINT};
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p || (f.number == 1 && !check_index(w, f.value, FUNCTIONS)))
            return false;
    }
    return true;
}

static bool walk_location(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT, LEN, ANY};
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p || (f.number == 1 && !check_index(w, f.value, MAPPINGS)) ||
            (f.number == 3 && !walk_line(w, f.data, p)) ||
            (f.number == 4 && !check_indices(w, &f, ATTRIBUTES)))
            return false;
    }
    return true;
}

static bool walk_function(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT, VARINT, VARINT};
    return walk_indices(w, p, end, wires, sizeof wires, 1u << 1 | 1u << 2 | 1u << 3);
}

static bool walk_link(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN};
    if (end - p == 28 && ((p[0] == 0x0a && p[1] == 16 && p[18] == 0x12 && p[19] == 8) ||
                          (p[0] == 0x12 && p[1] == 8 && p[10] == 0x0a && p[11] == 16)))
        return true; /* both ids, in either order: what all links are */
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        if (f.number == 1 && f.value != 16 && f.value != 0)
            return br_walk_fail(w, "a link's trace id must have 16 bytes or none");
        if (f.number == 2 && f.value != 8 && f.value != 0)
            return br_walk_fail(w, "a link's span id must have 8 bytes or none");
    }
    return true;
}

static bool walk_attribute(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, LEN, VARINT};
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p || ((f.number == 1 || f.number == 3) && !check_index(w, f.value, STRINGS)) ||
            (f.number == 2 && !br_walk_any(w, f.data, p, DEPTH_ENTRY + 1)))
            return false;
    }
    return true;
}

static bool walk_stack(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, ANY};
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p || (f.number == 1 && !check_indices(w, &f, LOCATIONS)))
            return false;
    }
    return true;
}

static bool walk_entry(struct br_walker *w, uint32_t table, const uint8_t *p, const uint8_t *end)
{
    switch (table) {
    case MAPPINGS:
        return walk_mapping(w, p, end);
    case LOCATIONS:
        return walk_location(w, p, end);
    case FUNCTIONS:
        return walk_function(w, p, end);
    case LINKS:
        return walk_link(w, p, end);
    case STRINGS:
        return br_walk_string(w, p, (size_t)(end - p));
    case ATTRIBUTES:
        return walk_attribute(w, p, end);
    case STACKS:
        return walk_stack(w, p, end);
    default:
        return true;
    }
}

bool br_walk_dictionary(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, LEN, LEN, LEN, LEN};
    if (DEPTH_ENTRY + 1 > w->max_depth)
        return br_walk_too_deep(w);
    struct br_field f;
    while (p < end) {
        p = br_walk_next(w, p, end, wires, sizeof wires, &f);
        if (!p || !walk_entry(w, f.number, f.data, p))
            return false;
    }
    return true;
}
