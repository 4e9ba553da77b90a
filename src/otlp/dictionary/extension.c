/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/extension.h"

#include <string.h>

#include "base/map.h"
#include "base/str.h"
#include "core/host.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

#define KNOWN_MAX (1u << 20) /* further ones are made each time */
#define KEY_MAX 4096         /* so are longer ones */

void br_additions_init(struct br_additions *e, struct br_arena *arena,
                       const struct br_dictionary_view *view)
{
    *e = (struct br_additions){.arena = arena};
    memcpy(e->n, view->n, sizeof e->n);
}

void br_additions_release(struct br_additions *e)
{
    br_map_free(e->known, NULL);
    e->known = NULL;
}

static bool reserve(struct br_additions *e, size_t size)
{
    if (size <= e->cap - e->fields.len)
        return true;
    size_t want = e->cap ? e->cap * 2 : 1024;
    while (want < e->fields.len + size)
        want *= 2;
    uint8_t *grown = br_arena_alloc(e->arena, want);
    if (!grown)
        return false;
    br_put_bytes(grown, e->fields.data, e->fields.len);
    e->fields.data = grown;
    e->cap = want;
    return true;
}

static uint32_t append(struct br_additions *e, enum br_table table, const void *entry, size_t len)
{
    uint32_t field = (uint32_t)table + 1, *n = &e->n[table];
    if (!reserve(e, br_len_size(field, len) + br_len_size(field, 0))) {
        e->no_memory = true;
        return 0;
    }
    uint8_t *p = (uint8_t *)(uintptr_t)e->fields.data + e->fields.len, *start = p;
    /* A table that was empty begins with the zero entry. */
    if (*n == 0) {
        p = br_put_len(p, field, NULL, 0);
        ++*n;
    }
    p = br_put_len(p, field, entry, len);
    e->fields.len += (size_t)(p - start);
    return (*n)++;
}

uint32_t br_additions_add(struct br_additions *e, enum br_table table, const void *entry,
                          size_t len)
{
    uint8_t key[1 + KEY_MAX];
    if (len > KEY_MAX)
        return append(e, table, entry, len);
    key[0] = (uint8_t)table;
    br_put_bytes(key + 1, entry, len);
    uint32_t index = e->known ? (uint32_t)(uintptr_t)br_map_get(e->known, key, 1 + len) : 0;
    if (index)
        return index;
    if (!e->known && !(e->known = br_map_new(KNOWN_MAX))) {
        e->no_memory = true;
        return 0;
    }
    index = append(e, table, entry, len);
    int rc = index ? br_map_put(e->known, key, 1 + len, (void *)(uintptr_t)index, NULL) : 0;
    e->no_memory = e->no_memory || rc == BR_ENOMEM;
    return index;
}

int br_additions_write(const struct br_additions *e, struct br_item *item)
{
    if (e->no_memory)
        return BR_ENOMEM;
    if (!e->fields.len)
        return 0;
    struct br_buf *buf =
        br_buf_new(item->host->pool, br_len_size(BR_REQUEST_DICTIONARY, e->fields.len));
    if (!buf)
        return BR_ENOMEM;
    uint8_t *p = br_put_varint(buf->data, BR_TAG(BR_REQUEST_DICTIONARY, BR_WIRE_LEN));
    p = br_put_varint(p, e->fields.len);
    struct br_part part = {.kind = BR_PART_DICTIONARY,
                           .buf = buf,
                           .raw = buf->data,
                           .body_at = (uint32_t)(p - buf->data),
                           .extension = true};
    p = br_put_bytes(p, e->fields.data, e->fields.len);
    buf->len = part.raw_len = (uint32_t)(p - buf->data);
    int rc = br_item_add_part(item, &part);
    br_buf_unref(buf);
    return rc;
}
