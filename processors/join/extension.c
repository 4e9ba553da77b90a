/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/extension.h"

#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "processors/join/table.h"
#include "wire/protobuf.h"

#define OTHER_VALUE "_other"
#define SEEN_MAX (1u << 20) /* about further ones is asked each time */

void join_extension_init(struct join_extension *e, struct br_arena *arena,
                         const struct br_dictionary_view *view)
{
    *e = (struct join_extension){0};
    br_extension_init(&e->made, arena, view);
}

void join_extension_release(struct join_extension *e)
{
    br_extension_release(&e->made);
    br_map_free(e->seen, NULL);
    e->seen = NULL;
}

static uint32_t make_attribute(struct join_extension *e, unsigned key, const char *name,
                               const void *value, size_t len)
{
    uint8_t any[JOIN_VALUE_MAX + BR_VARINT_MAX], entry[JOIN_VALUE_MAX + 4 * BR_VARINT_MAX];
    if (!e->keys[key])
        e->keys[key] = br_extension_add(&e->made, BR_TABLE_STRING, name, strlen(name));
    size_t any_len = (size_t)(br_put_len(any, 1, value, len) - any);
    uint8_t *p = br_put_varint(entry, BR_TAG(1, BR_WIRE_VARINT));
    p = br_put_varint(p, e->keys[key]);
    p = br_put_len(p, 2, any, any_len);
    return br_extension_add(&e->made, BR_TABLE_ATTRIBUTE, entry, (size_t)(p - entry));
}

static uint32_t other(struct join_extension *e, unsigned key, const char *name)
{
    if (!e->others[key])
        e->others[key] = make_attribute(e, key, name, OTHER_VALUE, sizeof OTHER_VALUE - 1);
    return e->others[key];
}

static void note(struct join_extension *e, const uint8_t *id, size_t len, uint32_t index)
{
    void *value = (void *)((uintptr_t)index + 1);
    if (!e->seen)
        e->seen = br_map_new(SEEN_MAX);
    if (!e->seen || br_map_put(e->seen, id, len, value, NULL) == BR_ENOMEM)
        e->no_memory = true;
}

uint32_t join_extension_attribute(struct join_extension *e, unsigned key, const char *name,
                                  const uint8_t *value, size_t len, join_allowed_fn *allowed,
                                  void *arg, bool *ret_other)
{
    uint8_t id[1 + JOIN_VALUE_MAX];
    id[0] = (uint8_t)key;
    br_put_bytes(id + 1, value, len);
    uint32_t index = e->seen ? (uint32_t)(uintptr_t)br_map_get(e->seen, id, 1 + len) : 0;
    if (!index) {
        uint32_t made = allowed(arg, key, value, len) ? make_attribute(e, key, name, value, len)
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
    uint8_t entry[32];
    uint8_t *p = br_put_len(entry, 1, trace_id ? trace_id : none, 16);
    p = br_put_len(p, 2, span_id, 8);
    return br_extension_add(&e->made, BR_TABLE_LINK, entry, (size_t)(p - entry));
}

int join_extension_write(const struct join_extension *e, struct br_item *item)
{
    return e->no_memory ? BR_ENOMEM : br_extension_write(&e->made, item);
}
