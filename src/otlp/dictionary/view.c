/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/dictionary.h"

#include "otlp/dictionary/merger.h"
#include "otlp/scan.h"

/* Scans a range of a dictionary: counts the entries or, if `fill`, indexes them. The function
 * contains no callback, so that it compiles to one loop. */
static void dictionary_view_scan(const uint8_t *p, const uint8_t *end, unsigned tables,
                                 struct br_dictionary_view *ret, bool fill)
{
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (field.number > BR_TABLES || field.wire != BR_WIRE_LEN ||
            !(tables & 1u << (field.number - 1)))
            continue;
        uint32_t i = ret->count[field.number - 1]++;
        if (fill)
            ret->tables[field.number - 1][i] = (struct br_entry){field.data, (uint32_t)field.value};
    }
}

/* Scans a part of a dictionary. If the part has an outline (the position and size of each table),
 * its entries need not be read to count them, and tables that are not requested are skipped. */
static void dictionary_view_scan_part(const struct br_part *part, unsigned tables,
                                      struct br_dictionary_view *ret, bool fill)
{
    const struct br_outline *outline = br_outline_of(part);
    if (!outline) {
        dictionary_view_scan(part->raw + part->body_at, part->raw + part->raw_len, tables, ret,
                             fill);
        return;
    }
    for (unsigned t = 0; t < BR_TABLES; t++) {
        if (!(tables & 1u << t))
            continue;
        if (fill)
            dictionary_view_scan(part->raw + outline->at[t], part->raw + outline->at[t + 1],
                                 1u << t, ret, true);
        else
            ret->count[t] += outline->count[t];
    }
}

static void dictionary_view_scan_item(const struct br_item *item, unsigned tables,
                                      struct br_dictionary_view *ret, bool fill)
{
    for (uint32_t i = 0; i < item->n_parts; i++) {
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            dictionary_view_scan_part(&item->parts[i], tables, ret, fill);
    }
}

int br_dictionary_index(const struct br_item *item, struct br_arena *arena,
                        struct br_dictionary_view *ret)
{
    return br_dictionary_index_some(item, (1u << BR_TABLES) - 1, arena, ret);
}

/* Counts the entries of the requested tables and allocates the index of each table. */
static int dictionary_view_begin(const struct br_item *item, unsigned tables,
                                 struct br_arena *arena, struct br_dictionary_view *ret)
{
    *ret = (struct br_dictionary_view){0};
    dictionary_view_scan_item(item, tables, ret, false);
    for (size_t t = 0; t < BR_TABLES; t++) {
        ret->tables[t] = br_arena_alloc(arena, ret->count[t] * sizeof *ret->tables[t]);
        if (!ret->tables[t])
            return br_arena_why(arena);
    }
    return 0;
}

static void dictionary_view_fill(const struct br_item *item, unsigned tables,
                                 struct br_dictionary_view *view)
{
    for (size_t t = 0; t < BR_TABLES; t++) {
        if (tables & 1u << t)
            view->count[t] = 0;
    }
    dictionary_view_scan_item(item, tables, view, true);
}

int br_dictionary_index_some(const struct br_item *item, unsigned tables, struct br_arena *arena,
                             struct br_dictionary_view *ret)
{
    int rc = dictionary_view_begin(item, tables, arena, ret);
    if (rc == 0)
        dictionary_view_fill(item, tables, ret);
    return rc;
}

/* --- Strings indexed on demand ---------------------------------------------------------------- */

/* The bytes of a dictionary part that contain its strings. For a part without an outline (struct
 * br_outline), the range is the whole part. */
struct lazy_range {
    const uint8_t *p, *end;
};

struct br_lazy_strings {
    uint32_t count;           /* number of strings indexed so far */
    struct lazy_range *range; /* the range being read */
    struct lazy_range ranges[];
};

static struct lazy_range dictionary_lazy_range_of(const struct br_part *part)
{
    const struct br_outline *outline = br_outline_of(part);
    if (!outline)
        return (struct lazy_range){part->raw + part->body_at, part->raw + part->raw_len};
    return (struct lazy_range){part->raw + outline->at[BR_TABLE_STRING],
                               part->raw + outline->at[BR_TABLE_STRING + 1]};
}

/* Records the ranges of the item's strings. The parts themselves cannot be used later, because a
 * caller that reads samples may add or replace parts of the item. */
static struct br_lazy_strings *dictionary_lazy_new(const struct br_item *item,
                                                   struct br_arena *arena)
{
    size_t n = 0;
    for (uint32_t i = 0; i < item->n_parts; i++)
        n += item->parts[i].kind == BR_PART_DICTIONARY;
    struct br_lazy_strings *lazy =
        br_arena_calloc(arena, 1, sizeof *lazy + n * sizeof *lazy->ranges);
    if (!lazy)
        return NULL;
    lazy->range = lazy->ranges;
    n = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            lazy->ranges[n++] = dictionary_lazy_range_of(&item->parts[i]);
    }
    return lazy;
}

int br_dictionary_index_lazy(const struct br_item *item, unsigned tables, struct br_arena *arena,
                             struct br_dictionary_view *ret)
{
    int rc = dictionary_view_begin(item, tables | 1u << BR_TABLE_STRING, arena, ret);
    if (rc)
        return rc;
    dictionary_view_fill(item, tables & ~(1u << BR_TABLE_STRING), ret);
    ret->lazy = dictionary_lazy_new(item, arena);
    return ret->lazy ? 0 : br_arena_why(arena);
}

/* Indexes strings up to number `index`, which must exist. */
static void dictionary_lazy_read(struct br_lazy_strings *lazy, struct br_entry *strings,
                                 uint32_t index)
{
    struct br_field field;
    while (lazy->count <= index) {
        struct lazy_range *range = lazy->range;
        if (range->p == range->end) {
            lazy->range++;
            continue;
        }
        range->p = br_scan(range->p, range->end, &field);
        if (field.number == BR_TABLE_STRING + 1 && field.wire == BR_WIRE_LEN)
            strings[lazy->count++] = (struct br_entry){field.data, (uint32_t)field.value};
    }
}

struct br_entry br_dictionary_string(const struct br_dictionary_view *view, uint32_t index)
{
    if (index >= view->count[BR_TABLE_STRING])
        return (struct br_entry){NULL, 0};
    if (view->lazy && index >= view->lazy->count)
        dictionary_lazy_read(view->lazy, view->tables[BR_TABLE_STRING], index);
    return view->tables[BR_TABLE_STRING][index];
}
