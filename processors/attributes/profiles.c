/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of samples and profiles lie in the dictionary, where many of them share an entry. So
 * what the rules make of a list of entries is worked out once, and what is new becomes a new entry.
 */
#include <string.h>

#include "attribute/sample.h"
#include "base/map.h"
#include "otlp/dictionary/extension.h"
#include "otlp/scan.h"
#include "processors/attributes/attributes.h"

#define ARENA_MAX (64u << 20)
#define KNOWN_MAX (1u << 18) /* lists; further ones are worked out each time */
#define LIST_MAX 1024        /* bytes of the key of one; so are longer ones */
#define SHORT 64             /* bytes of a value that is put into an entry each time */
#define ENTRIES_MAX (1u << 18) /* of longer ones */

/* What became of a list. */
struct outcome {
    bool changed;
    uint32_t n;
    uint32_t indices[];
};

/* The item at hand. */
struct run {
    struct attributes_state *state;
    const struct attributes_config *config;
    struct br_pool *pool;
    const char *metadata;
    struct br_arena arena;
    struct br_additions extension;
    struct br_map *known;   /* struct outcome by list */
    struct br_map *entries; /* of long values: their indices, by key and value */
    struct br_value_memo memo;
};

static bool is_number(struct br_value v)
{
    enum br_value_type type = br_any_read(v).type;
    return type == BR_VALUE_INT || type == BR_VALUE_DOUBLE;
}

static uint32_t make_entry(struct run *r, const struct br_attribute *a)
{
    uint32_t key = a->key_string;
    if (!key)
        key = br_additions_add(&r->extension, BR_TABLE_STRING, a->key, a->key_len);
    uint8_t *entry = br_arena_alloc(&r->state->scratch, a->value.len + 6 * BR_VARINT_MAX);
    if (!entry) {
        r->extension.no_memory = true;
        return 0;
    }
    uint8_t *p = br_put_varint(entry, BR_TAG(BR_ATTRIBUTE_KEY, BR_WIRE_VARINT));
    p = br_put_varint(p, key);
    p = br_put_len(p, BR_ATTRIBUTE_VALUE, a->value.data, a->value.len);
    if (a->unit && is_number(a->value)) {
        p = br_put_varint(p, BR_TAG(BR_ATTRIBUTE_UNIT, BR_WIRE_VARINT));
        p = br_put_varint(p, a->unit);
    }
    return br_additions_add(&r->extension, BR_TABLE_ATTRIBUTE, entry, (size_t)(p - entry));
}

/* The entry of an attribute that the rules made. A unit belongs to a number. */
static uint32_t add_entry(struct run *r, const struct br_attribute *a)
{
    const uintptr_t key[] = {(uintptr_t)a->key, a->key_len, (uintptr_t)a->value.data, a->value.len};
    if (a->value.len <= SHORT || br_arena_has(&r->state->scratch, a->value.data))
        return make_entry(r, a);
    if (!r->entries && !(r->entries = br_map_new(ENTRIES_MAX))) {
        r->extension.no_memory = true;
        return 0;
    }
    uint32_t index = (uint32_t)(uintptr_t)br_map_get(r->entries, key, sizeof key);
    if (index)
        return index;
    index = make_entry(r, a);
    if (index && br_map_put(r->entries, key, sizeof key, (void *)(uintptr_t)index, NULL) == BR_ENOMEM)
        r->extension.no_memory = true;
    return index;
}

/* Applies the rules to the state's list. */
static struct outcome *apply(struct run *r, int *ret_rc)
{
    struct br_attributes *list = &r->state->list;
    *ret_rc = 0;
    if (!br_rules_apply(&r->state->rules, list, r->metadata)) {
        *ret_rc = attributes_problem(list);
        return NULL;
    }
    struct outcome *o = br_arena_alloc(&r->arena, sizeof *o + list->n * sizeof o->indices[0]);
    if (o) {
        *o = (struct outcome){.changed = br_attributes_changed(list)};
        for (uint32_t i = 0; i < list->n && o->changed; i++) {
            const struct br_attribute *a = &list->pieces[i];
            if (!a->deleted)
                o->indices[o->n++] = a->edited ? add_entry(r, a) : a->entry;
        }
    }
    if (!o || r->extension.no_memory)
        *ret_rc = r->arena.full || r->state->scratch.full ? BR_EFULL : BR_ENOMEM;
    br_arena_release(&r->state->scratch);
    return o;
}

/* The entries of the state's list; 0 when it is too long to be remembered. */
static size_t key_of(const struct br_attributes *list, uint8_t key[LIST_MAX])
{
    size_t len = 0;
    if (list->n > LIST_MAX / sizeof(uint32_t))
        return 0;
    for (uint32_t i = 0; i < list->n; i++, len += sizeof(uint32_t))
        memcpy(key + len, &list->pieces[i].entry, sizeof(uint32_t));
    return len;
}

static const struct outcome *outcome_of(struct run *r, uint32_t field, const struct br_visit *v,
                                        int *ret_rc)
{
    struct br_attributes *list = &r->state->list;
    uint8_t key[LIST_MAX];
    br_attributes_clear(list);
    *ret_rc = 0;
    if (!br_sample_attributes_add(list, &r->state->matcher.view, field, v->body, v->len)) {
        *ret_rc = attributes_problem(list);
        return NULL;
    }
    size_t len = key_of(list, key);
    bool fits = len || list->n == 0;
    struct outcome *o = fits && r->known ? br_map_get(r->known, key, len) : NULL;
    if (o)
        return o;
    o = apply(r, ret_rc);
    if (*ret_rc || !fits)
        return o;
    if (!r->known && !(r->known = br_map_new(KNOWN_MAX)))
        *ret_rc = BR_ENOMEM;
    else if (br_map_put(r->known, key, len, o, NULL) == BR_ENOMEM)
        *ret_rc = BR_ENOMEM;
    return o;
}

/* The message with other indices in its field `field`. */
static int write_message(struct run *r, struct br_visit *v, uint32_t field, const struct outcome *o)
{
    struct attributes_state *s = r->state;
    size_t packed = 0;
    for (uint32_t i = 0; i < o->n; i++)
        packed += br_varint_size(o->indices[i]);
    if (!attributes_body(s, r->pool, v->len + br_len_size(field, packed)))
        return BR_ENOMEM;
    const uint8_t *p = v->body, *end = p + v->len;
    uint8_t *out = s->body->data;
    struct br_field f;
    while (v->len && p < end) {
        const uint8_t *at = p;
        p = br_scan(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (f.number != field)
            out = br_put_bytes(out, at, (size_t)(p - at));
    }
    if (o->n) {
        out = br_put_varint(out, BR_TAG(field, BR_WIRE_LEN));
        out = br_put_varint(out, packed);
        for (uint32_t i = 0; i < o->n; i++)
            out = br_put_varint(out, o->indices[i]);
    }
    v->out = (struct br_addition){s->body->data, (size_t)(out - s->body->data)};
    return BR_REPLACE;
}

static int on_message(void *arg, struct br_visit *v)
{
    struct run *r = arg;
    uint32_t field = v->level == BR_LEVEL_ITEM ? BR_SAMPLE_ATTRIBUTES : BR_PROFILE_ATTRIBUTES;
    int rc = br_matcher_passes(&r->state->matcher, v);
    if (rc <= 0)
        return rc; /* 0 is BR_KEEP */
    const struct outcome *o = outcome_of(r, field, v, &rc);
    if (rc)
        return rc;
    return o->changed ? write_message(r, v, field, o) : BR_KEEP;
}

int attributes_profiles(struct br_node *node, struct br_item *item)
{
    static const unsigned levels[] = {
        [ATTRIBUTES_BOTH] = 1u << BR_LEVEL_ITEM | 1u << BR_LEVEL_PROFILE,
        [ATTRIBUTES_SAMPLES] = 1u << BR_LEVEL_ITEM,
        [ATTRIBUTES_PROFILES] = 1u << BR_LEVEL_PROFILE,
    };
    static const struct br_entry *const nothing[BR_TABLES];
    struct attributes_state *s = node->state;
    struct run r = {
        .state = s, .config = node->config, .pool = node->host->pool, .metadata = item->metadata};
    br_arena_init(&r.arena, ARENA_MAX);
    br_additions_init(&r.extension, &r.arena, &s->matcher.view);
    r.memo.arena = &r.arena;
    s->list.memo = &r.memo;
    int rc = br_item_rewrite(item, levels[r.config->apply_to], on_message, &r);
    if (!rc && r.extension.fields.len)
        rc = br_item_rewrite_dictionary(item, &s->matcher.view, nothing, &r.extension.fields);
    br_additions_release(&r.extension);
    rc = rc == BR_ENOMEM ? br_arena_why(&r.arena) : rc;
    s->list.memo = NULL;
    br_value_memo_release(&r.memo);
    br_map_free(r.known, NULL);
    br_map_free(r.entries, NULL);
    br_arena_release(&r.arena);
    return rc;
}
