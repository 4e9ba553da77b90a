/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/dictionary.h"

#include "otlp/dictionary/outline.h"
#include "otlp/scan.h"

/* Calls nothing back, to stay one loop: counts where `ret` has no table yet, else fills in. */
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

/* With an outline nothing is read to count, and no table that is not asked for. */
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

int br_dictionary_index_some(const struct br_item *item, unsigned tables, struct br_arena *arena,
                             struct br_dictionary_view *ret)
{
    struct br_dictionary_view view = {0};
    dictionary_view_scan_item(item, tables, &view, false);
    for (size_t t = 0; t < BR_TABLES; t++) {
        view.tables[t] = br_arena_alloc(arena, view.count[t] * sizeof *view.tables[t]);
        if (!view.tables[t])
            return br_arena_why(arena);
        view.count[t] = 0;
    }
    dictionary_view_scan_item(item, tables, &view, true);
    *ret = view;
    return 0;
}

struct br_entry br_dictionary_string(const struct br_dictionary_view *view, uint32_t index)
{
    return index < view->count[BR_TABLE_STRING] ? view->tables[BR_TABLE_STRING][index]
                                                : (struct br_entry){NULL, 0};
}
