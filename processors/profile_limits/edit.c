/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/profile_limits.h"

#include "base/steps.h"
#include "otlp/edit/rewrite.h"
#include "wire/protobuf.h"

#define MORE_FREE (1u << 20)

int limits_edit_begin(struct limits_edit *edit, struct br_arena *arena, const struct br_item *item)
{
    edit->arena = arena;
    edit->more_max = item->size + MORE_FREE;
    edit->rc = br_dictionary_index(item, arena, &edit->view);
    return edit->rc;
}

void limits_edit_release(struct limits_edit *edit)
{
    br_str_release(&edit->more);
    *edit = (struct limits_edit){0};
}

void limits_edit_replace(struct limits_edit *edit, enum br_table table, uint32_t index,
                         const void *data, size_t len)
{
    if (!edit->entries[table])
        edit->entries[table] =
            br_arena_calloc(edit->arena, edit->view.count[table], sizeof *edit->entries[table]);
    uint8_t *copy = br_arena_alloc(edit->arena, len + 1);
    if (!edit->entries[table] || !copy) {
        edit->rc = BR_ENOMEM;
        return;
    }
    br_steps_add(len);
    br_put_bytes(copy, data, len);
    edit->entries[table][index] = (struct br_entry){copy, (uint32_t)len};
    edit->changed = true;
}

static uint32_t limits_edit_append(struct limits_edit *edit, enum br_table table, const void *data,
                                   size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX];
    /* The tables in enum br_table have the order of the dictionary's fields, whose numbers begin
     * with 1. */
    uint8_t *p = br_put_varint(head, BR_TAG(table + 1, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    if (!edit->rc && edit->more.len + len > edit->more_max)
        edit->rc = BR_EFULL;
    if (edit->rc)
        return 0;
    br_str_add(&edit->more, head, (size_t)(p - head));
    br_str_add(&edit->more, data, len);
    if (edit->more.failed) {
        edit->rc = BR_ENOMEM;
        return 0;
    }
    edit->changed = true;
    return edit->view.count[table] + edit->n_added[table]++;
}

uint32_t limits_edit_add(struct limits_edit *edit, enum br_table table, const void *data,
                         size_t len)
{
    /* Index 0 in a table means "no entry". Therefore, if the table is empty, an unused entry 0
     * is added first. */
    if (edit->view.count[table] + edit->n_added[table] == 0)
        (void)limits_edit_append(edit, table, "", 0);
    return limits_edit_append(edit, table, data, len);
}

int limits_edit_apply(struct limits_edit *edit, struct br_item *item)
{
    if (edit->rc || !edit->changed)
        return edit->rc;
    const struct br_addition more = {(const uint8_t *)edit->more.data, edit->more.len};
    const struct br_entry *entries[BR_TABLES];
    for (size_t t = 0; t < BR_TABLES; t++)
        entries[t] = edit->entries[t];
    return br_item_rewrite_dictionary(item, &edit->view, entries, &more);
}
