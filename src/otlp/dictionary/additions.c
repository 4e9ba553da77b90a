/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/additions.h"

#include <string.h>

#include "base/map.h"
#include "base/str.h"
#include "core/host.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

#define KNOWN_MAX (1u << 20) /* further ones are made each time */
#define KEY_MAX 4096         /* so are longer ones */

void br_additions_init(struct br_additions *additions, struct br_arena *arena,
                       const struct br_dictionary_view *view)
{
    *additions = (struct br_additions){.arena = arena};
    memcpy(additions->count, view->count, sizeof additions->count);
}

void br_additions_release(struct br_additions *additions)
{
    br_map_free(additions->known, NULL);
    additions->known = NULL;
}

static bool additions_reserve(struct br_additions *additions, size_t size)
{
    if (size <= additions->cap - additions->fields.len)
        return true;
    size_t want = additions->cap ? additions->cap * 2 : 1024;
    while (want < additions->fields.len + size)
        want *= 2;
    uint8_t *grown = br_arena_alloc(additions->arena, want);
    if (!grown)
        return false;
    br_put_bytes(grown, additions->fields.data, additions->fields.len);
    additions->fields.data = grown;
    additions->cap = want;
    return true;
}

static uint32_t additions_append(struct br_additions *additions, enum br_table table,
                                 const void *entry, size_t len)
{
    uint32_t field = (uint32_t)table + 1, *n = &additions->count[table];
    if (!additions_reserve(additions, br_len_size(field, len) + br_len_size(field, 0))) {
        additions->no_memory = true;
        return 0;
    }
    uint8_t *p = (uint8_t *)(uintptr_t)additions->fields.data + additions->fields.len, *start = p;
    /* A table that was empty begins with the zero entry. */
    if (*n == 0) {
        p = br_put_len(p, field, NULL, 0);
        ++*n;
    }
    p = br_put_len(p, field, entry, len);
    additions->fields.len += (size_t)(p - start);
    return (*n)++;
}

uint32_t br_additions_add(struct br_additions *additions, enum br_table table, const void *entry,
                          size_t len)
{
    uint8_t key[1 + KEY_MAX];
    if (len > KEY_MAX)
        return additions_append(additions, table, entry, len);
    key[0] = (uint8_t)table;
    br_put_bytes(key + 1, entry, len);
    uint32_t index =
        additions->known ? (uint32_t)(uintptr_t)br_map_get(additions->known, key, 1 + len) : 0;
    if (index)
        return index;
    if (!additions->known && !(additions->known = br_map_new(KNOWN_MAX))) {
        additions->no_memory = true;
        return 0;
    }
    index = additions_append(additions, table, entry, len);
    int rc = index ? br_map_put(additions->known, key, 1 + len, (void *)(uintptr_t)index, NULL) : 0;
    additions->no_memory = additions->no_memory || rc == BR_ENOMEM;
    return index;
}

int br_additions_write(const struct br_additions *additions, struct br_item *item)
{
    if (additions->no_memory)
        return BR_ENOMEM;
    if (!additions->fields.len)
        return 0;
    struct br_buf *buf =
        br_buf_new(item->host->pool, br_len_size(BR_REQUEST_DICTIONARY, additions->fields.len));
    if (!buf)
        return BR_ENOMEM;
    uint8_t *p = br_put_varint(buf->data, BR_TAG(BR_REQUEST_DICTIONARY, BR_WIRE_LEN));
    p = br_put_varint(p, additions->fields.len);
    struct br_part part = {.kind = BR_PART_DICTIONARY,
                           .buf = buf,
                           .raw = buf->data,
                           .body_at = (uint32_t)(p - buf->data),
                           .additions = true};
    p = br_put_bytes(p, additions->fields.data, additions->fields.len);
    buf->len = part.raw_len = (uint32_t)(p - buf->data);
    int rc = br_item_add_part(item, &part);
    br_buf_unref(buf);
    return rc;
}
