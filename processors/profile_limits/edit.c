/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/edit.h"

#include "otlp/edit/rewrite.h"
#include "wire/protobuf.h"

#define MORE_MAX (32u << 20)

int limits_edit_begin(struct limits_edit *e, struct br_arena *arena, const struct br_item *item)
{
    e->arena = arena;
    e->rc = br_dictionary_index(item, arena, &e->view);
    return e->rc;
}

void limits_edit_release(struct limits_edit *e)
{
    br_str_release(&e->more);
    *e = (struct limits_edit){0};
}

void limits_edit_replace(struct limits_edit *e, enum br_table table, uint32_t i, const void *data,
                         size_t len)
{
    if (!e->entries[table])
        e->entries[table] = br_arena_calloc(e->arena, e->view.n[table], sizeof *e->entries[table]);
    uint8_t *copy = br_arena_alloc(e->arena, len + 1);
    if (!e->entries[table] || !copy) {
        e->rc = BR_ENOMEM;
        return;
    }
    br_put_bytes(copy, data, len);
    e->entries[table][i] = (struct br_entry){copy, (uint32_t)len};
    e->changed = true;
}

static uint32_t add(struct limits_edit *e, enum br_table table, const void *data, size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(head, BR_TAG(table + 1, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    if (!e->rc && e->more.len + len > MORE_MAX)
        e->rc = BR_EFULL;
    if (e->rc)
        return 0;
    br_str_add(&e->more, head, (size_t)(p - head));
    br_str_add(&e->more, data, len);
    if (e->more.failed) {
        e->rc = BR_ENOMEM;
        return 0;
    }
    e->changed = true;
    return e->view.n[table] + e->n_added[table]++;
}

uint32_t limits_edit_add(struct limits_edit *e, enum br_table table, const void *data, size_t len)
{
    /* Number 0 means none, so that an empty table cannot begin with it. */
    if (e->view.n[table] + e->n_added[table] == 0)
        (void)add(e, table, "", 0);
    return add(e, table, data, len);
}

int limits_edit_apply(struct limits_edit *e, struct br_item *item)
{
    if (e->rc || !e->changed)
        return e->rc;
    const struct br_addition more = {(const uint8_t *)e->more.data, e->more.len};
    const struct br_entry *entries[BR_TABLES];
    for (size_t t = 0; t < BR_TABLES; t++)
        entries[t] = e->entries[t];
    return br_item_rewrite_dictionary(item, &e->view, entries, &more);
}
