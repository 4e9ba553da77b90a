/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of samples and profiles are in the dictionary, where many records share an entry.
 * Therefore the rules are applied only once to each list of attribute entries, and the result is
 * stored. Each attribute that the rules change or add becomes a new entry of the dictionary.
 */
#include <string.h>

#include "attribute/attributes.h"
#include "base/map.h"
#include "otlp/dictionary/additions.h"
#include "otlp/scan.h"
#include "processors/attributes/attributes.h"

#define ARENA_MAX (64u << 20)
/* largest number of attribute lists whose results are stored; the results of further lists are
 * computed each time */
#define KNOWN_MAX (1u << 13)
#define LIST_MAX 1024 /* longest key of a stored attribute list, in bytes */
/* longest attribute value, in bytes, whose entry is not stored in run.entries: each use of the
 * value adds a new entry */
#define SHORT 64
#define ENTRIES_MAX (1u << 18) /* largest number of entries in run.entries */

/* Result of the rules for one list of attributes: the new list. */
struct outcome {
    bool changed;
    uint32_t count;
    uint32_t indices[];
};

/* The state of processing one profiles item. */
struct run {
    struct attributes_state *state;
    const struct attributes_config *config;
    struct br_pool *pool;
    const char *metadata;
    struct br_arena arena;
    struct br_additions additions;
    struct br_map *known; /* maps a list of attributes to its struct outcome */
    /* maps the key and value of an attribute to the index of its dictionary entry; contains only
     * attributes with long values */
    struct br_map *entries;
    struct br_value_memo memo;
};

/* Adds a dictionary entry for an attribute that the rules made, and returns its index. */
static uint32_t attributes_profiles_add_entry(struct run *run, const struct br_attribute *attribute)
{
    const uintptr_t key[] = {(uintptr_t)attribute->key, attribute->key_len,
                             (uintptr_t)attribute->value.data, attribute->value.len};
    if (attribute->value.len <= SHORT || br_arena_has(&run->state->scratch, attribute->value.data))
        return br_attribute_add_entry(attribute, &run->additions, &run->state->scratch);
    if (!run->entries && !(run->entries = br_map_new(ENTRIES_MAX))) {
        run->additions.rc = BR_ENOMEM;
        return 0;
    }
    uint32_t index = (uint32_t)(uintptr_t)br_map_get(run->entries, key, sizeof key);
    if (index)
        return index;
    index = br_attribute_add_entry(attribute, &run->additions, &run->state->scratch);
    if (index &&
        br_map_put(run->entries, key, sizeof key, (void *)(uintptr_t)index, NULL) == BR_ENOMEM)
        run->additions.rc = BR_ENOMEM;
    return index;
}

/* Applies the rules to the attributes in state->list. */
static struct outcome *attributes_profiles_apply(struct run *run, int *ret_rc)
{
    struct br_attributes *list = &run->state->list;
    *ret_rc = 0;
    if (!br_rules_apply(&run->state->rules, list, run->metadata)) {
        *ret_rc = attributes_problem(list);
        return NULL;
    }
    struct outcome *outcome =
        br_arena_alloc(&run->arena, sizeof *outcome + list->count * sizeof outcome->indices[0]);
    if (outcome) {
        *outcome = (struct outcome){.changed = br_attributes_changed(list)};
        for (uint32_t i = 0; i < list->count && outcome->changed; i++) {
            const struct br_attribute *attribute = &list->pieces[i];
            if (!attribute->deleted)
                outcome->indices[outcome->count++] =
                    attribute->edited ? attributes_profiles_add_entry(run, attribute)
                                      : attribute->entry;
        }
    }
    bool full = run->arena.full || run->state->scratch.full;
    if (full && (!outcome || run->additions.rc))
        *ret_rc = BR_EFULL;
    else if (run->additions.rc)
        *ret_rc = run->additions.rc;
    else if (!outcome)
        *ret_rc = BR_ENOMEM;
    br_arena_release(&run->state->scratch);
    return outcome;
}

/* Writes the attributes in state->list to `key` as a key for run->known. Returns the length of
 * the key, or 0 if the key is too long to be stored. */
static size_t attributes_profiles_key_of(const struct br_attributes *list, uint8_t key[LIST_MAX])
{
    size_t len = 0;
    if (list->count > LIST_MAX / sizeof(uint32_t))
        return 0;
    for (uint32_t i = 0; i < list->count; i++, len += sizeof(uint32_t))
        memcpy(key + len, &list->pieces[i].entry, sizeof(uint32_t));
    return len;
}

static const struct outcome *attributes_profiles_outcome_of(struct run *run, uint32_t field,
                                                            const struct br_visit *visit,
                                                            int *ret_rc)
{
    struct br_attributes *list = &run->state->list;
    uint8_t key[LIST_MAX];
    br_attributes_clear(list);
    *ret_rc = 0;
    if (!br_sample_attributes_add(list, &run->state->matcher.view, field, visit->body,
                                  visit->len)) {
        *ret_rc = attributes_problem(list);
        return NULL;
    }
    size_t len = attributes_profiles_key_of(list, key);
    bool fits = len || list->count == 0;
    struct outcome *outcome = fits && run->known ? br_map_get(run->known, key, len) : NULL;
    if (outcome)
        return outcome;
    outcome = attributes_profiles_apply(run, ret_rc);
    if (*ret_rc || !fits)
        return outcome;
    if (!run->known && !(run->known = br_map_new(KNOWN_MAX)))
        *ret_rc = BR_ENOMEM;
    else if (br_map_put(run->known, key, len, outcome, NULL) == BR_ENOMEM)
        *ret_rc = BR_ENOMEM;
    return outcome;
}

/* Writes the sample or profile with new attribute indices in its field number `field`. */
static int attributes_profiles_write_message(struct run *run, struct br_visit *visit,
                                             uint32_t field, const struct outcome *outcome)
{
    struct attributes_state *state = run->state;
    size_t packed = 0;
    for (uint32_t i = 0; i < outcome->count; i++)
        packed += br_varint_size(outcome->indices[i]);
    if (br_buf_prepare(&state->body, run->pool, visit->len + br_len_size(field, packed)))
        return BR_ENOMEM;
    const uint8_t *p = visit->body, *end = p + visit->len;
    uint8_t *out = state->body->data;
    struct br_field found;
    while (visit->len && p < end) {
        const uint8_t *at = p;
        p = br_scan(p, end, &found);
        if (!p)
            return BR_EINVAL;
        if (found.number != field)
            out = br_put_bytes(out, at, (size_t)(p - at));
    }
    if (outcome->count) {
        out = br_put_varint(out, BR_TAG(field, BR_WIRE_LEN));
        out = br_put_varint(out, packed);
        for (uint32_t i = 0; i < outcome->count; i++)
            out = br_put_varint(out, outcome->indices[i]);
    }
    visit->out = (struct br_addition){state->body->data, (size_t)(out - state->body->data)};
    return BR_REPLACE;
}

static int attributes_profiles_on_message(void *arg, struct br_visit *visit)
{
    struct run *run = arg;
    uint32_t field = visit->level == BR_LEVEL_RECORD ? BR_SAMPLE_ATTRIBUTES : BR_PROFILE_ATTRIBUTES;
    int rc = 0;
    const struct outcome *outcome = attributes_profiles_outcome_of(run, field, visit, &rc);
    if (rc)
        return rc;
    return outcome->changed ? attributes_profiles_write_message(run, visit, field, outcome)
                            : BR_KEEP;
}

int attributes_profiles(struct br_node *node, struct br_item *item)
{
    static const unsigned levels[] = {
        [ATTRIBUTES_BOTH] = 1u << BR_LEVEL_RECORD | 1u << BR_LEVEL_PROFILE,
        [ATTRIBUTES_SAMPLES] = 1u << BR_LEVEL_RECORD,
        [ATTRIBUTES_PROFILES] = 1u << BR_LEVEL_PROFILE,
    };
    static const struct br_entry *const nothing[BR_TABLES];
    struct attributes_state *state = node->state;
    struct run run = {.state = state,
                      .config = node->config,
                      .pool = node->host->pool,
                      .metadata = item->metadata};
    br_arena_init(&run.arena, ARENA_MAX);
    br_additions_init(&run.additions, &state->matcher.view);
    run.memo.arena = &run.arena;
    state->list.memo = &run.memo;
    int rc = br_matcher_rewrite(&state->matcher, levels[run.config->apply_to], &state->scratch,
                                attributes_profiles_on_message, &run);
    if (!rc && run.additions.fields.len)
        rc = br_item_rewrite_dictionary(item, &state->matcher.view, nothing, &run.additions.fields);
    br_additions_release(&run.additions);
    rc = rc == BR_ENOMEM ? br_arena_why(&run.arena) : rc;
    state->list.memo = NULL;
    br_value_memo_release(&run.memo);
    br_map_free(run.known, NULL);
    br_map_free(run.entries, NULL);
    br_arena_release(&run.arena);
    return rc;
}
