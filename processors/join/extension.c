/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/extension.h"

#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "pipeline/host.h"
#include "processors/join/table.h"
#include "wire/protobuf.h"

#define OTHER_VALUE "_other"
#define LINK 255u /* among the numbers of keys, in `known` */
#define KNOWN_MAX (1u << 20)

void join_extension_init(struct join_extension *e, struct br_arena *arena,
                         const struct br_dictionary_view *view)
{
    *e = (struct join_extension){.arena = arena,
                                 .n_strings = view->n[BR_TABLE_STRING],
                                 .n_attributes = view->n[BR_TABLE_ATTRIBUTE],
                                 .n_links = view->n[BR_TABLE_LINK]};
}

void join_extension_release(struct join_extension *e)
{
    br_map_free(e->known, NULL);
    e->known = NULL;
}

static bool reserve(struct join_extension *e, size_t size)
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

/* Appends an entry to the table that is field `field` of ProfilesDictionary; its index. */
static uint32_t append(struct join_extension *e, uint32_t field, uint32_t *n, const void *data,
                       size_t len)
{
    size_t size = br_len_size(field, len) + br_len_size(field, 0);
    if (!reserve(e, size)) {
        e->no_memory = true;
        return 0;
    }
    uint8_t *p = (uint8_t *)(uintptr_t)e->fields.data + e->fields.len, *start = p;
    /* A table that was empty begins with the zero entry. */
    if (*n == 0) {
        p = br_put_len(p, field, NULL, 0);
        ++*n;
    }
    p = br_put_len(p, field, data, len);
    e->fields.len += (size_t)(p - start);
    return (*n)++;
}

static uint32_t known(const struct join_extension *e, const uint8_t *id, size_t len)
{
    return e->known ? (uint32_t)(uintptr_t)br_map_get(e->known, id, len) : 0;
}

static void note(struct join_extension *e, const uint8_t *id, size_t len, uint32_t index)
{
    if (!e->known)
        e->known = br_map_new(KNOWN_MAX);
    if (!e->known || br_map_put(e->known, id, len, (void *)((uintptr_t)index + 1), NULL))
        e->no_memory = true;
}

static uint32_t append_attribute(struct join_extension *e, unsigned key, const char *name,
                                 const void *value, size_t len)
{
    uint8_t any[JOIN_VALUE_MAX + BR_VARINT_MAX], entry[JOIN_VALUE_MAX + 4 * BR_VARINT_MAX];
    if (!e->keys[key])
        e->keys[key] = append(e, 5, &e->n_strings, name, strlen(name));
    size_t any_len = (size_t)(br_put_len(any, 1, value, len) - any);
    uint8_t *p = br_put_varint(entry, BR_TAG(1, BR_WIRE_VARINT));
    p = br_put_varint(p, e->keys[key]);
    p = br_put_len(p, 2, any, any_len);
    return append(e, 6, &e->n_attributes, entry, (size_t)(p - entry));
}

static uint32_t other(struct join_extension *e, unsigned key, const char *name)
{
    if (!e->others[key])
        e->others[key] = append_attribute(e, key, name, OTHER_VALUE, sizeof OTHER_VALUE - 1);
    return e->others[key];
}

uint32_t join_extension_attribute(struct join_extension *e, unsigned key, const char *name,
                                  const uint8_t *value, size_t len, join_allowed_fn *allowed,
                                  void *arg, bool *ret_other)
{
    uint8_t id[1 + JOIN_VALUE_MAX];
    id[0] = (uint8_t)key;
    br_put_bytes(id + 1, value, len);
    uint32_t index = known(e, id, 1 + len);
    if (!index) {
        uint32_t made = allowed(arg, key, value, len) ? append_attribute(e, key, name, value, len)
                                                      : other(e, key, name);
        note(e, id, 1 + len, made);
        index = made + 1;
    }
    *ret_other = index - 1 == e->others[key];
    return index - 1;
}

uint32_t join_extension_link(struct join_extension *e, const uint8_t *trace_id,
                             const uint8_t *span_id)
{
    static const uint8_t none[16];
    uint8_t id[1 + 24], entry[32];
    id[0] = LINK;
    memcpy(id + 1, trace_id ? trace_id : none, 16);
    memcpy(id + 17, span_id, 8);
    uint32_t index = known(e, id, sizeof id);
    if (index)
        return index - 1;
    uint8_t *p = br_put_len(entry, 1, id + 1, 16);
    p = br_put_len(p, 2, id + 17, 8);
    index = append(e, 4, &e->n_links, entry, (size_t)(p - entry));
    note(e, id, sizeof id, index);
    return index;
}

int join_extension_write(const struct join_extension *e, struct br_item *item)
{
    if (!e->fields.len)
        return 0;
    struct br_buf *buf = br_buf_new(item->host->pool, br_len_size(2, e->fields.len));
    if (!buf)
        return BR_ENOMEM;
    uint8_t *p = br_put_varint(buf->data, BR_TAG(2, BR_WIRE_LEN));
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
