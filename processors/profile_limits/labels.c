/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/profile_limits.h"

#include <string.h>

#include "base/mem.h"
#include "base/steps.h"
#include "otlp/keyvalue.h"
#include "wire/protobuf.h"

#define LIMITS_OTHER "[other]"
#define LIMITS_KEYS_MAX 1024         /* largest number of keys whose distinct values are counted */
#define LIMITS_VALUES_MAX (1u << 20) /* largest number of stored values of all keys together */
#define LIMITS_KEY_NONE UINT16_MAX

/* --- Distinct values -------------------------------------------------------------------------- */

/* The distinct values of one key. `values` maps each value to a pointer that is not NULL. */
struct values {
    /* number of the key, in the order in which keys are added; the first key has the number 1 */
    uint16_t number;
    struct br_map *map;
};

static void values_free(void *arg)
{
    struct values *values = arg;
    if (values)
        br_map_free(values->map, NULL);
    br_free(values);
}

void limits_values_clear(struct limits_values *values)
{
    br_map_free(values->keys, values_free);
    *values = (struct limits_values){0};
}

static struct values *values_new(uint16_t number)
{
    struct values *values = br_calloc(1, sizeof *values);
    if (!values)
        return NULL;
    values->number = number;
    values->map = br_map_new(LIMITS_VALUES_MAX);
    if (values->map)
        return values;
    br_free(values);
    return NULL;
}

/* Returns the number of the key, which begins with 1 and is valid until limits_values_clear.
 * Returns LIMITS_KEY_NONE if there are too many keys or not enough memory. */
static uint16_t limits_values_key(struct limits_values *limits_values, const void *key, size_t len)
{
    if (!limits_values->keys) {
        br_random_bytes(limits_values->secret, sizeof limits_values->secret);
        limits_values->keys = br_map_new(LIMITS_KEYS_MAX);
    }
    if (!limits_values->keys)
        return LIMITS_KEY_NONE;
    uint64_t hash = br_siphash(limits_values->secret, key, len);
    struct values *values = br_map_get(limits_values->keys, &hash, sizeof hash);
    if (values)
        return values->number;
    size_t n_keys = br_map_count(limits_values->keys);
    values = n_keys < LIMITS_KEYS_MAX ? values_new((uint16_t)(n_keys + 1)) : NULL;
    if (values && !br_map_put(limits_values->keys, &hash, sizeof hash, values, NULL))
        return values->number;
    values_free(values);
    return LIMITS_KEY_NONE;
}

/* Returns true if the value is one of the first `max` distinct values of the key. Returns false
 * for any other value, or if there is not enough memory to store the value. */
static bool limits_values_admit(struct limits_values *limits_values, uint16_t key,
                                const void *value, size_t len, uint32_t max)
{
    if (key == LIMITS_KEY_NONE)
        return false;
    const void *name;
    size_t name_len;
    struct values *values = br_map_at(limits_values->keys, key - 1u, &name, &name_len);
    uint64_t hash = br_siphash(limits_values->secret, value, len);
    if (br_map_get(values->map, &hash, sizeof hash))
        return true;
    bool full = br_map_count(values->map) >= max || limits_values->n_values == LIMITS_VALUES_MAX;
    if (full || br_map_put(values->map, &hash, sizeof hash, values, NULL))
        return false;
    limits_values->n_values++;
    return true;
}

/* --- Labels ----------------------------------------------------------------------------------- */

struct label {
    uint64_t key, unit;
    struct br_entry text;
    bool is_text;
};

static struct br_entry limits_labels_string_at(const struct limits_edit *edit, uint64_t index)
{
    return br_dictionary_string(&edit->view, index < UINT32_MAX ? (uint32_t)index : UINT32_MAX);
}

static void limits_labels_read(const struct limits_edit *edit, struct br_entry entry,
                               struct label *ret)
{
    struct br_keyvalue kv;
    br_steps_add(entry.len);
    (void)br_keyvalue_read_entry(entry.data, entry.len, &kv);
    struct br_any any = br_any_read(kv.value);
    *ret = (struct label){.key = kv.key_index, .unit = kv.unit};
    ret->is_text = any.type == BR_VALUE_STRING || any.reference;
    if (any.reference)
        ret->text = limits_labels_string_at(edit, any.reference);
    else if (ret->is_text)
        ret->text = (struct br_entry){any.data, (uint32_t)any.len};
}

static bool limits_labels_is_unlimited(const struct limits_labels *labels, struct br_entry key)
{
    for (size_t i = 0; i < labels->unlimited->count; i++) {
        const char *name = labels->unlimited->items[i] ? labels->unlimited->items[i] : "";
        if (strlen(name) == key.len &&
            memcmp(name, key.len ? key.data : (const void *)"", key.len) == 0)
            return true;
    }
    return false;
}

static size_t limits_labels_put_varint_field(uint8_t *out, uint32_t field, uint64_t value)
{
    uint8_t *p = br_put_varint(out, BR_TAG(field, BR_WIRE_VARINT));
    return (size_t)(br_put_varint(p, value) - out);
}

static void limits_labels_set_other(struct limits_edit *edit, uint32_t index,
                                    const struct label *label, uint32_t other)
{
    uint8_t value[2 * BR_VARINT_MAX], entry[8 * BR_VARINT_MAX];
    size_t len = limits_labels_put_varint_field(entry, BR_ATTRIBUTE_KEY, label->key);
    size_t value_len = limits_labels_put_varint_field(value, BR_VALUE_STRINDEX, other);
    len = (size_t)(br_put_len(entry + len, BR_ATTRIBUTE_VALUE, value, value_len) - entry);
    if (label->unit)
        len += limits_labels_put_varint_field(entry + len, BR_ATTRIBUTE_UNIT, label->unit);
    limits_edit_replace(edit, BR_TABLE_ATTRIBUTE, index, entry, len);
}

/* Returns true if the value of an attribute is among the admitted values of its key. `keys`
 * contains the number of each key, by string index. So the text of a key is read once,
 * regardless of how many attributes have the key. */
static bool limits_labels_admit(const struct limits_edit *edit, const struct limits_labels *labels,
                                uint16_t *keys, const struct label *label)
{
    struct br_entry key = limits_labels_string_at(edit, label->key);
    if (!label->is_text || limits_labels_is_unlimited(labels, key))
        return true;
    uint32_t count = edit->view.count[BR_TABLE_STRING];
    uint16_t *number = &keys[label->key < count ? label->key : count];
    if (!*number)
        *number = limits_values_key(labels->values, key.data, key.len);
    return limits_values_admit(labels->values, *number, label->text.data, label->text.len,
                               labels->max_values);
}

uint32_t limits_cut_labels(struct limits_edit *edit, const struct limits_labels *labels,
                           const bool *used)
{
    uint32_t other = 0, n_changed = 0;
    uint16_t *keys =
        br_arena_calloc(edit->arena, (size_t)edit->view.count[BR_TABLE_STRING] + 1, sizeof *keys);
    if (!keys)
        edit->rc = BR_ENOMEM;
    for (uint32_t i = 1; i < edit->view.count[BR_TABLE_ATTRIBUTE] && !edit->rc; i++) {
        struct label label;
        if (!used[i])
            continue;
        limits_labels_read(edit, edit->view.tables[BR_TABLE_ATTRIBUTE][i], &label);
        if (limits_labels_admit(edit, labels, keys, &label))
            continue;
        if (!other)
            other = limits_edit_add(edit, BR_TABLE_STRING, LIMITS_OTHER, strlen(LIMITS_OTHER));
        limits_labels_set_other(edit, i, &label, other);
        n_changed++;
    }
    return n_changed;
}
