/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/dictionary.h"

#include "otlp/scan.h"

/* Calls nothing back, to stay one loop: counts where `ret` has no table yet, else fills in. */
static void scan_part(const struct br_part *part, struct br_dictionary_view *ret, bool fill)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number > BR_TABLES || f.wire != BR_WIRE_LEN)
            continue;
        uint32_t i = ret->n[f.number - 1]++;
        if (fill)
            ret->tables[f.number - 1][i] = (struct br_entry){f.data, (uint32_t)f.value};
    }
}

static void scan_item(const struct br_item *item, struct br_dictionary_view *ret, bool fill)
{
    for (uint32_t i = 0; i < item->n_parts; i++) {
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            scan_part(&item->parts[i], ret, fill);
    }
}

int br_dictionary_index(const struct br_item *item, struct br_arena *arena,
                        struct br_dictionary_view *ret)
{
    struct br_dictionary_view v = {0};
    scan_item(item, &v, false);
    for (size_t t = 0; t < BR_TABLES; t++) {
        v.tables[t] = br_arena_calloc(arena, v.n[t], sizeof *v.tables[t]);
        if (!v.tables[t])
            return br_arena_why(arena);
        v.n[t] = 0;
    }
    scan_item(item, &v, true);
    *ret = v;
    return 0;
}

struct br_entry br_dictionary_string(const struct br_dictionary_view *v, uint32_t i)
{
    return i < v->n[BR_TABLE_STRING] ? v->tables[BR_TABLE_STRING][i] : (struct br_entry){NULL, 0};
}
