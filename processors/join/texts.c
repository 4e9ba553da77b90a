/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/texts.h"

#include <string.h>

#include "base/map.h"
#include "base/str.h"
#include "processors/join/join.h"

#define SHORT 64 /* bytes that are read again each time */

enum { HASHED = 1, SERVICE = 2, READ_AS_SPAN = 4, READ_AS_TRACE = 8, IS_SPAN = 16, IS_TRACE = 32 };

/* What was read of a text so far. */
struct known {
    unsigned flags;
    uint32_t hash;
    uint64_t service;
    uint8_t span[8], trace[16];
};

void join_texts_init(struct join_texts *t, const struct join_table *table,
                     const struct br_dictionary_view *view, struct br_arena *arena)
{
    *t = (struct join_texts){.table = table, .view = view, .arena = arena};
}

void join_texts_release(struct join_texts *t)
{
    br_map_free(t->known, NULL);
    t->known = NULL;
}

struct br_entry join_texts_at(const struct join_texts *t, uint64_t i)
{
    return t && t->view && i <= UINT32_MAX ? br_dictionary_string(t->view, (uint32_t)i)
                                           : (struct br_entry){NULL, 0};
}

/* What is known of a long text; NULL without memory. */
static struct known *texts_known(struct join_texts *t, uint32_t i)
{
    if (!t->known)
        t->known = br_map_new(t->view->n[BR_TABLE_STRING]);
    struct known *k = t->known ? br_map_get(t->known, &i, sizeof i) : NULL;
    if (!k && t->known && !t->no_memory) {
        k = br_arena_calloc(t->arena, 1, sizeof *k);
        if (k && br_map_put(t->known, &i, sizeof i, k, NULL))
            k = NULL;
    }
    t->no_memory = t->no_memory || !k;
    return k;
}

bool join_texts_id(struct join_texts *t, uint64_t i, uint8_t *ret, size_t size)
{
    struct br_entry text = join_texts_at(t, i);
    bool trace = size == sizeof(struct known){0}.trace;
    unsigned read = trace ? READ_AS_TRACE : READ_AS_SPAN, is = trace ? IS_TRACE : IS_SPAN;
    if (text.len <= SHORT)
        return br_hex_id((const char *)text.data, text.len, ret, size);
    struct known *k = texts_known(t, (uint32_t)i);
    if (!k)
        return false;
    uint8_t *id = trace ? k->trace : k->span;
    if (!(k->flags & read))
        k->flags |= read | (br_hex_id((const char *)text.data, text.len, id, size) ? is : 0);
    if (k->flags & is)
        memcpy(ret, id, size);
    return k->flags & is;
}

uint32_t join_texts_hash(struct join_texts *t, uint64_t i)
{
    struct br_entry text = join_texts_at(t, i);
    if (text.len <= SHORT)
        return text.len ? join_table_hash(t->table, text.data, text.len) : 0;
    struct known *k = texts_known(t, (uint32_t)i);
    if (k && !(k->flags & HASHED)) {
        k->hash = join_table_hash(t->table, text.data, text.len);
        k->flags |= HASHED;
    }
    return k ? k->hash : 0;
}

uint64_t join_texts_service(struct join_texts *t, uint64_t i)
{
    struct br_entry text = join_texts_at(t, i);
    if (text.len <= SHORT)
        return text.len ? join_service_hash(text.data, text.len) : 0;
    struct known *k = texts_known(t, (uint32_t)i);
    if (k && !(k->flags & SERVICE)) {
        k->service = join_service_hash(text.data, text.len);
        k->flags |= SERVICE;
    }
    return k ? k->service : 0;
}
