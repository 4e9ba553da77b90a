/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/group_by_attrs/grouping.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "otlp/scan.h"

#define ARENA_MAX (256u << 20)
#define NODES_MAX (1u << 26)
#define RECORDS_MAX (1u << 28)

#define CHILD BR_SCAN_LEN(BR_INWARD)

/* --- Sums of hashes --------------------------------------------------------------------------- */

/* The kind of a hashed field. The kind is part of the hash, so that equal fields of different kinds
 * have different hashes. */
enum kind { OF_ATTRIBUTE = 1, OF_RESOURCE, OF_PART, OF_SCOPE_ATTRIBUTE, OF_SCOPE, OF_SCOPES };

static struct group_sum group_hash(const struct grouping *grouping, enum kind kind, const void *key,
                                   size_t key_len, const void *value, size_t value_len)
{
    uint64_t half[2];
    br_steps_add(key_len + value_len);
    for (size_t i = 0; i < 2; i++) {
        const uint64_t *secret = grouping->secret + 2 * i;
        const uint64_t words[] = {(uint64_t)kind, br_hash_keyed(secret, key, key_len),
                                  br_hash_keyed(secret, value, value_len)};
        half[i] = br_hash_keyed(secret, words, sizeof words);
    }
    return (struct group_sum){half[0], half[1]};
}

static void group_sum_add(struct group_sum *sum, struct group_sum more)
{
    sum->low += more.low;
    sum->high += more.high;
}

static void group_sum_subtract(struct group_sum *sum, struct group_sum less)
{
    sum->low -= less.low;
    sum->high -= less.high;
}

static struct group_sum group_hash_attribute(const struct grouping *grouping, enum kind kind,
                                             const struct br_field *field)
{
    struct br_keyvalue kv;
    (void)br_keyvalue_read(field->data, (size_t)field->value, &kv);
    return group_hash(grouping, kind, kv.key, kv.key_len, kv.value.data, kv.value.len);
}

static struct group_sum group_hash_field(const struct grouping *grouping, enum kind kind,
                                         const struct br_field *field, const uint8_t *next)
{
    return group_hash(grouping, kind, field->at, (size_t)(next - field->at), NULL, 0);
}

/* Adds the hashes of the fields of a Resource or InstrumentationScope to `sum`. `attributes` is the
 * number of the message's attributes field. */
static void group_sum_message(const struct grouping *grouping, struct group_sum *sum,
                              const uint8_t *p, size_t len, uint32_t attributes, enum kind kind,
                              enum kind of_attribute)
{
    const uint8_t *end = br_mem_end(p, len);
    struct br_field field;
    while (p && p < end && (p = br_scan(p, end, &field))) {
        bool attribute = br_scan_tag(&field) == BR_SCAN_LEN(attributes);
        group_sum_add(sum, attribute ? group_hash_attribute(grouping, of_attribute, &field)
                                     : group_hash_field(grouping, kind, &field, p));
    }
}

/* --- Nodes ------------------------------------------------------------------------------------ */

/* Finds the node with this parent, level and sum, or adds the node. Sets `*ret_new` to true if the
 * node was added; the caller then sets its source. */
static int group_node_find(struct grouping *grouping, uint32_t parent, enum group_level level,
                           struct group_sum sum, uint32_t *ret, bool *ret_new)
{
    const uint64_t key[] = {(uint64_t)parent << 8 | level, sum.low, sum.high};
    uintptr_t known = (uintptr_t)br_map_get(grouping->known, key, sizeof key);
    *ret_new = !known;
    if (known) {
        *ret = (uint32_t)(known - 1);
        return 0;
    }
    uint32_t index = grouping->n_nodes;
    int rc = br_grow(&grouping->nodes, &grouping->cap_nodes, (size_t)index + 1,
                     sizeof *grouping->nodes, NODES_MAX);
    if (!rc)
        rc = br_map_put(grouping->known, key, sizeof key, (void *)((uintptr_t)index + 1), NULL);
    if (rc)
        return rc;
    grouping->nodes[index] = (struct group_node){.parent = parent,
                                                 .level = (uint8_t)level,
                                                 .first_child = GROUP_NONE,
                                                 .last_child = GROUP_NONE,
                                                 .next = GROUP_NONE};
    grouping->n_nodes++;
    uint32_t *first = &grouping->first_resource, *last = &grouping->last_resource;
    if (parent != GROUP_NONE) {
        first = &grouping->nodes[parent].first_child;
        last = &grouping->nodes[parent].last_child;
    }
    if (*last == GROUP_NONE)
        *first = index;
    else
        grouping->nodes[*last].next = index;
    *last = index;
    *ret = index;
    return 0;
}

/* Writes the Resource of the current part (ResourceSpans or ResourceProfiles) with the values of
 * the current record. */
static int group_node_merge_resource(struct grouping *grouping, struct group_node *node)
{
    struct br_attributes *list = grouping->list;
    if (!br_attributes_read(list, BR_RESOURCE_ATTRIBUTES, node->resource.data, node->resource.len))
        return list->too_many ? BR_EFULL : BR_ENOMEM;
    for (size_t i = 0; i < grouping->keys->count; i++)
        if (grouping->values[i].value.data)
            br_attributes_put(list, grouping->keys->items[i], strlen(grouping->keys->items[i]),
                              grouping->values[i].value);
    if (list->too_many || list->no_memory)
        return list->too_many ? BR_EFULL : BR_ENOMEM;
    size_t len = br_attributes_size(list);
    uint8_t *bytes = br_arena_alloc(&grouping->arena, len);
    if (!bytes)
        return BR_ENOMEM;
    (void)br_attributes_write(list, bytes);
    node->resource = (struct group_bytes){bytes, len};
    return 0;
}

/* Finds the RESOURCE node for the values of the current record. */
static int group_node_resource(struct grouping *grouping, bool grouped, uint32_t *ret)
{
    const struct br_part *part = grouping->part;
    struct group_sum sum = grouping->part_sum;
    bool is_new;
    if (!grouped && grouping->plain != GROUP_NONE) {
        *ret = grouping->plain;
        return 0;
    }
    for (size_t i = 0; i < grouping->keys->count && grouped; i++) {
        if (!grouping->values[i].value.data)
            continue;
        group_sum_subtract(&sum, grouping->replaced[i]);
        group_sum_add(&sum, grouping->values[i].hash);
    }
    int rc = group_node_find(grouping, GROUP_NONE, GROUP_RESOURCE, sum, ret, &is_new);
    if (!rc && is_new) {
        struct group_node *node = &grouping->nodes[*ret];
        grouping->n_resources++;
        node->head = grouping->part_head;
        if (part->res_len || part->new_resource)
            node->resource.data = br_part_resource(part, &node->resource.len);
        rc = grouped ? group_node_merge_resource(grouping, node) : 0;
    }
    if (!rc && !grouped)
        grouping->plain = *ret;
    return rc;
}

static int group_node_scope(struct grouping *grouping, uint32_t resource, uint32_t *ret)
{
    bool is_new = false;
    int rc = 0;
    *ret = grouping->last_scope;
    if (resource != grouping->last_node || *ret == GROUP_NONE)
        rc = group_node_find(grouping, resource, GROUP_SCOPE, grouping->scope_sum, ret, &is_new);
    if (rc)
        return rc;
    grouping->last_node = resource;
    grouping->last_scope = *ret;
    if (!is_new)
        return 0;
    grouping->n_scopes++;
    grouping->nodes[*ret].head = grouping->scope_head;
    return 0;
}

/* Returns the PROFILE node of the current Profile, which is always a new node, because Profiles are
 * never merged. */
static int group_node_profile(struct grouping *grouping, uint32_t scope, uint32_t *ret)
{
    bool is_new;
    const struct group_sum number = {grouping->n_source_profiles, 0};
    int rc = group_node_find(grouping, scope, GROUP_PROFILE, number, ret, &is_new);
    if (rc || !is_new)
        return rc;
    grouping->nodes[*ret].head = grouping->profile_head;
    if (!grouping->payload_written)
        grouping->nodes[*ret].payload = grouping->payload;
    grouping->payload_written = true;
    return 0;
}

/* Finds the node of the lowest level for the values of the current record. */
static int group_node_of_record(struct grouping *grouping, bool grouped, uint32_t *ret)
{
    uint32_t resource = GROUP_NONE;
    int rc = group_node_resource(grouping, grouped, &resource);
    if (!rc)
        rc = group_node_scope(grouping, resource, ret);
    if (!rc && grouping->item->signal == BR_PROFILES)
        rc = group_node_profile(grouping, *ret, ret);
    return rc;
}

static int group_record_add(struct grouping *grouping, const struct br_field *field, bool grouped,
                            bool edited, size_t new_len)
{
    uint32_t index = grouping->n_records, at = GROUP_NONE;
    int rc = group_node_of_record(grouping, grouped, &at);
    if (!rc)
        rc = br_grow(&grouping->records, &grouping->cap_records, (size_t)index + 1,
                     sizeof *grouping->records, RECORDS_MAX);
    if (rc)
        return rc;
    struct group_node *node = &grouping->nodes[at];
    grouping->records[index] = (struct group_record){.body = field->data,
                                                     .len = (size_t)field->value,
                                                     .new_len = new_len,
                                                     .next = GROUP_NONE,
                                                     .edited = edited};
    if (node->last_child == GROUP_NONE)
        node->first_child = index;
    else
        grouping->records[node->last_child].next = index;
    node->last_child = index;
    node->n_records++;
    grouping->n_records++;
    grouping->n_grouped += grouped;
    return 0;
}

/* --- Fields of the sources -------------------------------------------------------------------- */

/* If `of` is true, copies the fields of a message whose numbers are in the bit set `numbers`. If
 * `of` is false, copies all other fields. Fields with numbers above 31 count as not in the set. */
static int group_copy_fields(struct grouping *grouping, struct group_bytes message,
                             uint64_t numbers, bool of, struct group_bytes *ret)
{
    const uint8_t *end = br_mem_end(message.data, message.len);
    uint8_t *bytes = NULL;
    size_t len = 0;
    struct br_field field;
    for (int pass = 0; pass < 2; pass++) {
        uint8_t *out = bytes;
        for (const uint8_t *p = message.data; p < end && (p = br_scan(p, end, &field));) {
            bool in = field.number < 32 && (numbers >> field.number & 1);
            if (in != of)
                continue;
            size_t size = (size_t)(p - field.at);
            len += pass ? 0 : size;
            out = pass ? br_put_bytes(out, field.at, size) : NULL;
        }
        if (!pass && len && !(bytes = br_arena_alloc(&grouping->arena, len)))
            return BR_ENOMEM;
        if (!len)
            break;
    }
    *ret = (struct group_bytes){bytes, len};
    return 0;
}

/* --- Spans ------------------------------------------------------------------------------------ */

/* Returns the value of an attribute with key number `key`. If the attribute has no value, returns
 * an empty AnyValue. */
static struct group_value group_value_of(const struct grouping *grouping, uint32_t key,
                                         struct br_value value)
{
    static const uint8_t empty[1];
    const char *text = grouping->keys->items[key];
    struct group_value moved = {.value = value, .key = key + 1};
    if (!value.data)
        moved.value.data = empty;
    moved.hash =
        group_hash(grouping, OF_ATTRIBUTE, text, strlen(text), moved.value.data, value.len);
    return moved;
}

void group_by_attrs_delete_keys(struct grouping *grouping)
{
    struct br_attributes *list = grouping->list;
    for (uint32_t i = 0; i < list->count; i++) {
        struct br_attribute *piece = &list->pieces[i];
        for (size_t k = 0; k < grouping->keys->count && piece->attribute; k++) {
            const char *key = grouping->keys->items[k];
            if (br_bytes_equal(piece->key, piece->key_len, key, strlen(key)))
                piece->deleted = true;
        }
    }
}

static int group_span(struct grouping *grouping, const struct br_field *span)
{
    struct br_attributes *list = grouping->list;
    bool grouped = false;
    size_t len = (size_t)span->value;
    if (!grouping->keys->count)
        return group_record_add(grouping, span, false, false, len);
    if (!br_attributes_read(list, BR_SPAN_ATTRIBUTES, span->data, len))
        return list->too_many ? BR_EFULL : BR_ENOMEM;
    for (uint32_t i = 0; i < grouping->keys->count; i++) {
        const char *key = grouping->keys->items[i];
        const struct br_attribute *found = br_attributes_find(list, key, strlen(key));
        grouping->values[i] =
            found ? group_value_of(grouping, i, found->value) : (struct group_value){0};
        grouped = grouped || found;
    }
    if (grouped) {
        group_by_attrs_delete_keys(grouping);
        len = br_attributes_size(list);
    }
    return group_record_add(grouping, span, grouped, grouped, len);
}

/* --- Samples and profiles --------------------------------------------------------------------- */

/* Returns 1 plus the index of a string in `keys`; 0: the string is not in `keys`. */
static uint32_t group_find_key(const struct grouping *grouping, const struct br_entry *string)
{
    for (uint32_t i = 0; i < grouping->keys->count; i++)
        if (br_bytes_equal(string->data, string->len, grouping->keys->items[i],
                           strlen(grouping->keys->items[i])))
            return i + 1;
    return 0;
}

/* Finds the attributes of the dictionary whose key is configured, so that they are moved to
 * resources. */
static int group_index_dictionary(struct grouping *grouping)
{
    const unsigned tables = 1u << BR_TABLE_STRING | 1u << BR_TABLE_ATTRIBUTE;
    struct br_dictionary_view view;
    int rc = br_dictionary_index_some(grouping->item, tables, &grouping->arena, &view);
    if (rc)
        return rc;
    uint32_t n_strings = view.count[BR_TABLE_STRING], n = view.count[BR_TABLE_ATTRIBUTE];
    uint32_t *keys = br_arena_calloc(&grouping->arena, n_strings, sizeof *keys);
    grouping->table = br_arena_calloc(&grouping->arena, n, sizeof *grouping->table);
    if (!keys || !grouping->table)
        return BR_ENOMEM;
    grouping->n_table = n;
    for (uint32_t i = 0; i < n_strings; i++)
        keys[i] = group_find_key(grouping, &view.tables[BR_TABLE_STRING][i]);
    for (uint32_t i = 1; i < n; i++) {
        const struct br_entry *entry = &view.tables[BR_TABLE_ATTRIBUTE][i];
        struct br_keyvalue kv;
        (void)br_keyvalue_read_entry(entry->data, entry->len, &kv);
        if (kv.key_index < n_strings && keys[kv.key_index])
            grouping->table[i] = group_value_of(grouping, keys[kv.key_index] - 1, kv.value);
    }
    return 0;
}

/* Returns the value of attribute `index` of the dictionary, or NULL if the attribute is not
 * moved. */
static const struct group_value *group_moved(const struct grouping *grouping, uint64_t index)
{
    return index < grouping->n_table && grouping->table[index].key ? &grouping->table[index] : NULL;
}

/* Stores the value of attribute `index` of the dictionary, unless a previous attribute has the same
 * key. Returns true if the attribute is moved. */
static bool group_take_value(const struct grouping *grouping, uint64_t index,
                             struct group_value *values)
{
    const struct group_value *moved = group_moved(grouping, index);
    if (moved && !values[moved->key - 1].key)
        values[moved->key - 1] = *moved;
    return moved != NULL;
}

/* Stores the values of those attributes in field `number` of a Sample or Profile that are moved.
 * Returns true if at least one attribute is moved. */
static bool group_take_values(const struct grouping *grouping, uint32_t number,
                              struct group_bytes message, struct group_value *values)
{
    const uint8_t *p = message.data, *end = br_mem_end(p, message.len);
    struct br_field field;
    bool found = false;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint64_t index = field.value;
        const uint8_t *q = field.data;
        if (br_scan_tag(&field) == BR_SCAN_VARINT(number))
            found = group_take_value(grouping, index, values) || found;
        if (br_scan_tag(&field) != BR_SCAN_LEN(number))
            continue;
        while (q && q < p && (q = br_scan_varint(q, p, &index)))
            found = group_take_value(grouping, index, values) || found;
    }
    return found;
}

static size_t group_put_index(const struct grouping *grouping, uint64_t index, uint8_t *out)
{
    if (group_moved(grouping, index))
        return 0;
    if (out)
        (void)br_put_varint(out, index);
    return br_varint_size(index);
}

size_t group_by_attrs_put_indices(const struct grouping *grouping, uint32_t number,
                                  struct group_bytes message, uint8_t *out)
{
    const uint8_t *p = message.data, *end = br_mem_end(p, message.len);
    size_t len = 0;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint64_t index = field.value;
        const uint8_t *q = field.data;
        if (br_scan_tag(&field) == BR_SCAN_VARINT(number))
            len += group_put_index(grouping, index, out ? out + len : NULL);
        if (br_scan_tag(&field) != BR_SCAN_LEN(number))
            continue;
        while (q && q < p && (q = br_scan_varint(q, p, &index)))
            len += group_put_index(grouping, index, out ? out + len : NULL);
    }
    return len;
}

/* Returns the length of a Sample without the attributes that are moved. */
static size_t group_sample_size(const struct grouping *grouping, struct group_bytes sample)
{
    const uint8_t *p = sample.data, *end = br_mem_end(p, sample.len);
    size_t len = group_by_attrs_put_indices(grouping, BR_SAMPLE_ATTRIBUTES, sample, NULL);
    struct br_field field;
    len = len ? br_len_size(BR_SAMPLE_ATTRIBUTES, len) : 0;
    while (p < end && (p = br_scan(p, end, &field)))
        if (field.number != BR_SAMPLE_ATTRIBUTES)
            len += (size_t)(p - field.at);
    return len;
}

static int group_sample(struct grouping *grouping, const struct br_field *sample, bool grouped)
{
    const struct group_bytes bytes = {sample->data, (size_t)sample->value};
    if (!grouping->keys->count)
        return group_record_add(grouping, sample, false, false, bytes.len);
    memset(grouping->values, 0, grouping->keys->count * sizeof *grouping->values);
    bool edited = group_take_values(grouping, BR_SAMPLE_ATTRIBUTES, bytes, grouping->values);
    for (size_t i = 0; i < grouping->keys->count && grouped; i++)
        if (!grouping->values[i].key)
            grouping->values[i] = grouping->of_profile[i];
    return group_record_add(grouping, sample, grouped || edited, edited,
                            edited ? group_sample_size(grouping, bytes) : bytes.len);
}

/* Copies the fields of a Profile, other than samples and payload, without the attributes that are
 * moved. */
static int group_profile_head(struct grouping *grouping, struct group_bytes profile, bool edited)
{
    const uint64_t payload = 1u << BR_PROFILE_PAYLOAD_FORMAT | 1u << BR_PROFILE_PAYLOAD,
                   children = 1u << BR_INWARD,
                   attributes = edited ? 1u << BR_PROFILE_ATTRIBUTES : 0;
    int rc = group_copy_fields(grouping, profile, payload | children | attributes, false,
                               &grouping->profile_head);
    if (!rc)
        rc = group_copy_fields(grouping, profile, payload, true, &grouping->payload);
    size_t len =
        edited ? group_by_attrs_put_indices(grouping, BR_PROFILE_ATTRIBUTES, profile, NULL) : 0;
    if (rc || !len)
        return rc;
    struct group_bytes *head = &grouping->profile_head;
    uint8_t *bytes =
        br_arena_alloc(&grouping->arena, head->len + br_len_size(BR_PROFILE_ATTRIBUTES, len));
    if (!bytes)
        return BR_ENOMEM;
    uint8_t *p = br_put_bytes(bytes, head->data, head->len);
    p = br_put_varint(p, BR_TAG(BR_PROFILE_ATTRIBUTES, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    p += group_by_attrs_put_indices(grouping, BR_PROFILE_ATTRIBUTES, profile, p);
    *head = (struct group_bytes){bytes, (size_t)(p - bytes)};
    return 0;
}

/* Adds the samples of a Profile. A Profile without samples is kept, because it can have an original
 * payload. */
static int group_profile(struct grouping *grouping, const struct br_field *profile)
{
    const struct group_bytes bytes = {profile->data, (size_t)profile->value};
    const uint8_t *p = bytes.data, *end = br_field_end(profile);
    size_t n_keys = grouping->keys->count;
    struct br_field field;
    bool grouped = false, samples = false;
    grouping->n_source_profiles++;
    grouping->payload_written = false;
    if (n_keys) {
        memset(grouping->of_profile, 0, n_keys * sizeof *grouping->of_profile);
        grouped = group_take_values(grouping, BR_PROFILE_ATTRIBUTES, bytes, grouping->of_profile);
        grouping->edits_profiles = grouping->edits_profiles || grouped;
    }
    int rc = group_profile_head(grouping, bytes, grouped);
    while (p < end && !rc && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != CHILD)
            continue;
        samples = true;
        rc = group_sample(grouping, &field, grouped);
    }
    if (rc || samples)
        return rc;
    uint32_t node;
    if (n_keys)
        memcpy(grouping->values, grouping->of_profile, n_keys * sizeof *grouping->values);
    return group_node_of_record(grouping, grouped, &node);
}

/* --- The item --------------------------------------------------------------------------------- */

static int group_scope(struct grouping *grouping, const struct br_field *scope)
{
    const struct group_bytes bytes = {scope->data, (size_t)scope->value};
    const uint8_t *p = bytes.data, *end = br_field_end(scope);
    struct br_field field;
    grouping->scope_sum = (struct group_sum){0};
    grouping->last_scope = GROUP_NONE;
    grouping->n_source_scopes++;
    int rc = group_copy_fields(grouping, bytes, 1u << BR_INWARD, false, &grouping->scope_head);
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_SCOPES_SCOPE))
            group_sum_message(grouping, &grouping->scope_sum, field.data, (size_t)field.value,
                              BR_SCOPE_ATTRIBUTES, OF_SCOPE, OF_SCOPE_ATTRIBUTE);
        else if (br_scan_tag(&field) != CHILD)
            group_sum_add(&grouping->scope_sum, group_hash_field(grouping, OF_SCOPES, &field, p));
    }
    for (p = bytes.data; p < end && !rc && (p = br_scan(p, end, &field));) {
        if (br_scan_tag(&field) != CHILD)
            continue;
        rc = grouping->item->signal == BR_TRACES ? group_span(grouping, &field)
                                                 : group_profile(grouping, &field);
    }
    return rc;
}

/* Computes the sum of a part (ResourceSpans or ResourceProfiles) without its scopes. Also computes
 * the hashes of the Resource's attributes that the values of records can replace. */
static int group_sum_part(struct grouping *grouping, const struct br_part *part)
{
    size_t len, n_keys = grouping->keys->count;
    const uint8_t *resource = br_part_resource(part, &len);
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    struct br_attributes *list = grouping->list;
    grouping->part_sum = (struct group_sum){0};
    group_sum_message(grouping, &grouping->part_sum, resource, len, BR_RESOURCE_ATTRIBUTES,
                      OF_RESOURCE, OF_ATTRIBUTE);
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) != CHILD &&
            br_scan_tag(&field) != BR_SCAN_LEN(BR_RESOURCES_RESOURCE))
            group_sum_add(&grouping->part_sum, group_hash_field(grouping, OF_PART, &field, p));
    if (!n_keys)
        return 0;
    if (!br_attributes_read(list, BR_RESOURCE_ATTRIBUTES, resource, len))
        return list->too_many ? BR_EFULL : BR_ENOMEM;
    for (size_t i = 0; i < n_keys; i++) {
        const char *key = grouping->keys->items[i];
        const struct br_attribute *found = br_attributes_find(list, key, strlen(key));
        grouping->replaced[i] = found ? group_hash(grouping, OF_ATTRIBUTE, key, strlen(key),
                                                   found->value.data, found->value.len)
                                      : (struct group_sum){0};
    }
    return 0;
}

static int group_part(struct grouping *grouping, uint32_t index)
{
    const struct br_part *part = &grouping->item->parts[index];
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    grouping->part = part;
    grouping->plain = grouping->last_node = GROUP_NONE;
    grouping->n_source_parts++;
    int rc = group_sum_part(grouping, part);
    if (!rc)
        rc = group_copy_fields(grouping, (struct group_bytes){p, (size_t)(end - p)},
                               1u << BR_RESOURCES_RESOURCE | 1u << BR_INWARD, false,
                               &grouping->part_head);
    while (p < end && !rc) {
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&field) == CHILD)
            rc = group_scope(grouping, &field);
    }
    return rc;
}

static int group_prepare(struct grouping *grouping)
{
    size_t n_keys = grouping->keys->count;
    br_arena_init(&grouping->arena, ARENA_MAX);
    grouping->list->arena = &grouping->arena;
    grouping->first_resource = grouping->last_resource = GROUP_NONE;
    grouping->replaced = br_arena_calloc(&grouping->arena, n_keys, sizeof *grouping->replaced);
    grouping->values = br_arena_calloc(&grouping->arena, n_keys, sizeof *grouping->values);
    grouping->of_profile = br_arena_calloc(&grouping->arena, n_keys, sizeof *grouping->of_profile);
    grouping->known = br_map_new(NODES_MAX);
    if (!grouping->replaced || !grouping->values || !grouping->of_profile || !grouping->known)
        return BR_ENOMEM;
    if (grouping->item->signal == BR_TRACES)
        return 0;
    int rc = br_item_inline_references(grouping->item);
    return rc || !n_keys ? rc : group_index_dictionary(grouping);
}

int group_by_attrs_build(struct grouping *grouping)
{
    int rc = group_prepare(grouping);
    for (uint32_t i = 0; i < grouping->item->n_parts && !rc; i++)
        if (grouping->item->parts[i].kind == BR_PART_RESOURCE)
            rc = group_part(grouping, i);
    return rc == BR_ENOMEM ? br_arena_why(&grouping->arena) : rc;
}

void group_by_attrs_release(struct grouping *grouping)
{
    br_map_free(grouping->known, NULL);
    br_free(grouping->nodes);
    br_free(grouping->records);
    br_arena_release(&grouping->arena);
}

bool group_by_attrs_changes(const struct grouping *grouping)
{
    return grouping->n_grouped || grouping->edits_profiles ||
           grouping->n_resources != grouping->n_source_parts ||
           grouping->n_scopes != grouping->n_source_scopes;
}
