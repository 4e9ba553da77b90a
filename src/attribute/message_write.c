/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes messages. A change of a field writes the message anew, without the old field and with the
 * new one at the end. Changes of attributes are collected in the message's list, which is written
 * once, at the end.
 */
#include <string.h>

#include "attribute/expression.h"
#include "attribute/value.h"
#include "base/bytes.h"
#include "base/str.h"
#include "otlp/scan.h"
#include "otlp/tracestate.h"

#define KEY_MAX 256 /* maximum number of characters of a key, and of a value, in a trace state */

static bool message_no_memory(struct br_conditions *conditions, const struct br_arena *arena)
{
    if (!conditions->rc)
        conditions->rc = br_arena_why(arena);
    return false;
}

/* Allocates the memory for a message that is written anew. Returns NULL if memory is short. */
static uint8_t *message_alloc(struct br_conditions *conditions, const struct br_message *message,
                              size_t size)
{
    uint8_t *memory =
        br_conditions_work(conditions, size) ? br_arena_alloc(message->arena, size + 1) : NULL;
    if (!memory)
        (void)message_no_memory(conditions, message->arena);
    return memory;
}

/* --- Writing a message ------------------------------------------------------------------------ */

bool br_message_changed(const struct br_message *message)
{
    return message->changed || (message->read && br_attributes_changed(&message->list));
}

/* Copies the fields of a message to `out` except those with the number `number`. */
static uint8_t *message_copy_without(uint8_t *out, const uint8_t *body, size_t len, uint32_t number)
{
    const uint8_t *p = body, *end = len ? p + len : p;
    struct br_field field;
    while (p < end) {
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p)
            return out;
        if (field.number != number)
            out = br_put_bytes(out, at, (size_t)(p - at));
    }
    return out;
}

/* Writes the changed attributes of a message into its body. */
static bool message_flush(struct br_conditions *conditions, struct br_message *message)
{
    if (message->dictionary || !message->read || !br_attributes_changed(&message->list))
        return true;
    size_t size = br_attributes_size(&message->list);
    uint8_t *body = message_alloc(conditions, message, size);
    if (!body)
        return false;
    (void)br_attributes_write(&message->list, body);
    br_message_set(message, body, size);
    message->changed = true;
    return true;
}

/* Writes the body with the attributes of the list as indices of dictionary entries. */
static bool message_put_indices(struct br_conditions *conditions, struct br_message *message)
{
    const struct br_attributes *list = &message->list;
    size_t size = message->len + (size_t)list->count * BR_VARINT_MAX + 2 * BR_VARINT_MAX;
    uint32_t *indices =
        br_arena_alloc(&conditions->scratch, ((size_t)list->count + 1) * sizeof *indices);
    uint8_t *body = message_alloc(conditions, message, size), *out = body;
    size_t count = 0, packed = 0;
    if (!body || !indices)
        return message_no_memory(conditions, &conditions->scratch);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct br_attribute *piece = &list->pieces[i];
        if (piece->deleted)
            continue;
        if (piece->edited && !br_conditions_work(conditions, piece->value.len))
            return false;
        indices[count] = piece->edited ? br_attribute_add_entry(piece, conditions->additions,
                                                                &conditions->scratch)
                                       : piece->entry;
        packed += br_varint_size(indices[count++]);
    }
    if (conditions->additions->rc) {
        conditions->rc = conditions->additions->rc;
        return false;
    }
    out = message_copy_without(out, message->body, message->len, message->field);
    if (count) {
        out = br_put_varint(out, BR_TAG(message->field, BR_WIRE_LEN));
        out = br_put_varint(out, packed);
        for (size_t i = 0; i < count; i++)
            out = br_put_varint(out, indices[i]);
    }
    message->body = body;
    message->len = (size_t)(out - body);
    return true;
}

int br_message_write(struct br_conditions *conditions, struct br_message *message,
                     struct br_addition *ret)
{
    bool list = message->read && br_attributes_changed(&message->list);
    bool ok = message->dictionary ? !list || message_put_indices(conditions, message)
                                  : message_flush(conditions, message);
    if (ok)
        *ret =
            (struct br_addition){message->body ? message->body : (const uint8_t *)"", message->len};
    return conditions->rc;
}

void br_message_clear(struct br_message *message, struct br_arena *arena)
{
    message->arena = message->list.arena = arena;
    message->field = BR_LIST_VALUES;
    br_message_set(message, NULL, 0);
    br_attributes_clear(&message->list);
    message->read = true;
}

/* --- Fields ----------------------------------------------------------------------------------- */

/* Replaces the field `number` of a message with the `len` bytes at `field`, which begin with a
 * tag. */
static bool message_replace(struct br_conditions *conditions, struct br_message *message,
                            uint32_t number, const uint8_t *field, size_t len)
{
    if (!message_flush(conditions, message))
        return false;
    uint8_t *body = message_alloc(conditions, message, message->len + len);
    if (!body)
        return false;
    uint8_t *out = message_copy_without(body, message->body, message->len, number);
    out = br_put_bytes(out, field, len);
    bool read = message->read && message->dictionary;
    br_message_set(message, body, (size_t)(out - body));
    /* a list of attributes from the dictionary stays valid, because it does not point into the
     * old body */
    message->read = read;
    message->changed = true;
    return true;
}

static bool message_set_text(struct br_conditions *conditions, struct br_message *message,
                             uint32_t number, const void *text, size_t len)
{
    uint8_t *field = message_alloc(conditions, message, br_len_size(number, len));
    if (!field)
        return false;
    size_t size = (size_t)(br_put_len(field, number, text, len) - field);
    return message_replace(conditions, message, number, field, size);
}

static bool message_set_number(struct br_conditions *conditions, struct br_message *message,
                               const struct br_path *path, uint64_t number)
{
    uint8_t field[2 * BR_VARINT_MAX], *end = br_put_varint(field, BR_TAG(path->number, path->wire));
    if (path->size == 32)
        number = (uint32_t)number;
    if (path->wire == BR_WIRE_I64)
        end = br_put_bytes(end, &number, sizeof number);
    else
        end = br_put_varint(end, number);
    return message_replace(conditions, message, path->number, field, (size_t)(end - field));
}

/* Sets a field of the message in the field `outer`: the number `number`, or the text `text`. */
static bool message_set_inner(struct br_conditions *conditions, struct br_message *message,
                              uint32_t outer, const struct br_path *field,
                              const struct br_any *value)
{
    struct br_message inner = {.arena = message->arena};
    const uint8_t *p = message->body, *end = message->len ? p + message->len : p;
    struct br_field found;
    while (p < end && (p = br_scan(p, end, &found)))
        if (br_scan_tag(&found) == BR_SCAN_LEN(outer))
            br_message_set(&inner, found.data, (size_t)found.value);
    bool ok = value->type == BR_VALUE_STRING
                  ? message_set_text(conditions, &inner, field->number, value->data, value->len)
                  : message_set_number(conditions, &inner, field, value->number);
    return ok && message_set_text(conditions, message, outer, inner.body, inner.len);
}

static bool message_set_id(struct br_conditions *conditions, struct br_message *message,
                           const struct br_path *path, const struct br_any *value)
{
    uint8_t id[16];
    if (value->len != 2 * (size_t)path->size ||
        br_hex_decode((const char *)value->data, value->len, id, path->size) != (long)path->size)
        return br_conditions_fail(conditions, "%s must have %u hex digits", path->name,
                                  2 * path->size);
    return message_set_text(conditions, message, path->number, id, path->size);
}

static bool message_set_kind(struct br_conditions *conditions, struct br_message *message,
                             const struct br_any *value, bool old)
{
    static const char *const names[] = {"Unspecified", "Internal", "Server",
                                        "Client",      "Producer", "Consumer"};
    static const char *const old_names[] = {"SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL",
                                            "SPAN_KIND_SERVER",      "SPAN_KIND_CLIENT",
                                            "SPAN_KIND_PRODUCER",    "SPAN_KIND_CONSUMER"};
    static const struct br_path kind = {.number = BR_SPAN_KIND, .wire = BR_WIRE_VARINT};
    for (uint32_t i = 0; i < BR_COUNT(names); i++)
        if (br_bytes_are(value->data, value->len, old ? old_names[i] : names[i]))
            return message_set_number(conditions, message, &kind, i);
    return br_conditions_fail(conditions, "unknown span kind \"%.*s\"",
                              value->len < 40 ? (int)value->len : 40, (const char *)value->data);
}

static bool message_set_type(struct br_conditions *conditions, struct br_message *message,
                             const struct br_path *path, const struct br_any *value)
{
    struct br_path field = {.wire = BR_WIRE_VARINT};
    uint32_t index =
        br_additions_add(conditions->additions, BR_TABLE_STRING, value->data, value->len);
    struct br_any number = br_any_int(index);
    if (conditions->additions->rc) {
        conditions->rc = conditions->additions->rc;
        return false;
    }
    field.number = path->form == BR_FORM_TYPE ? BR_VALUE_TYPE_TYPE : BR_VALUE_TYPE_UNIT;
    return message_set_inner(conditions, message, path->number, &field, &number);
}

/* --- Trace state ------------------------------------------------------------------------------ */

static bool message_is_member_key(const char *text, size_t len)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789",
                      all[] = "abcdefghijklmnopqrstuvwxyz0123456789_-*/@";
    if (!len || len > KEY_MAX || !memchr(plain, text[0], sizeof plain - 1))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!memchr(all, text[i], sizeof all - 1))
            return false;
    return true;
}

static bool message_is_member_value(const struct br_any *value)
{
    if (!value->len || value->len > KEY_MAX || value->data[value->len - 1] == ' ')
        return false;
    for (size_t i = 0; i < value->len; i++) {
        uint8_t letter = value->data[i];
        if (letter < 0x20 || letter > 0x7e || letter == ',' || letter == '=')
            return false;
    }
    return true;
}

/* Sets a member of the trace state, which moves to the front. Does nothing if the trace state or
 * the member is invalid, as the Collector does. */
static bool message_set_member(struct br_conditions *conditions, struct br_message *message,
                               const struct br_path_key *key, const struct br_any *value)
{
    struct br_str out = {.max = BR_BUF_MAX};
    struct br_tracestate parsed;
    struct br_field field, state = {.data = (const uint8_t *)"", .value = 0};
    const uint8_t *p = message->body, *end = message->len ? p + message->len : p;
    unsigned members = 1;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_SPAN_TRACE_STATE))
            state = field;
    if (!message_is_member_key(key->text, key->len) || !message_is_member_value(value) ||
        !br_tracestate_read(&parsed, state.data, (size_t)state.value))
        return true;
    br_str_printf(&out, "%s=%.*s", key->text, (int)value->len, (const char *)value->data);
    const char *at = (const char *)state.data, *stop = at + state.value;
    while (at < stop && members < BR_TRACESTATE_MEMBERS) {
        const char *comma = memchr(at, ',', (size_t)(stop - at)), *next = comma ? comma : stop;
        while (at < next && (*at == ' ' || *at == '\t'))
            at++;
        bool same = (size_t)(next - at) > key->len && at[key->len] == '=' &&
                    memcmp(at, key->text, key->len) == 0;
        if (at < next && !same) {
            br_str_printf(&out, ",%.*s", (int)(next - at), at);
            members++;
        }
        at = comma ? comma + 1 : stop;
    }
    bool ok = !out.failed;
    if (!ok)
        conditions->rc = BR_ENOMEM;
    ok = ok && message_set_text(conditions, message, BR_SPAN_TRACE_STATE, out.data, out.len);
    br_str_release(&out);
    return ok;
}

/* --- Attributes ------------------------------------------------------------------------------- */

static void *message_copy(struct br_conditions *conditions, struct br_arena *arena,
                          const void *data, size_t len)
{
    void *copy = br_conditions_work(conditions, len) ? br_arena_alloc(arena, len + 1) : NULL;
    if (!copy)
        (void)message_no_memory(conditions, arena);
    else
        (void)br_put_bytes(copy, data, len);
    return copy;
}

static bool message_put(struct br_conditions *conditions, struct br_attributes *list,
                        struct br_arena *arena, const void *key, size_t key_len,
                        const struct br_any *value)
{
    struct br_value encoded;
    struct br_attribute *found = br_attributes_find(list, key, key_len);
    const void *name = found ? found->key : message_copy(conditions, arena, key, key_len);
    if (!name || !br_conditions_work(conditions, value->len + key_len + list->count))
        return false;
    if (!br_any_write(value, arena, &encoded))
        return message_no_memory(conditions, arena);
    br_attributes_put(list, name, key_len, encoded);
    if ((list->no_memory || list->too_many) && !conditions->rc)
        conditions->rc = list->too_many ? BR_EFULL : BR_ENOMEM;
    return !conditions->rc;
}

/* Marks the stored values of a message as outdated, so that they are read again. */
static void message_touch(struct br_conditions *conditions, enum br_condition_context context)
{
    conditions->n_spans += context == BR_CONDITION_SPAN;
    conditions->n_resources += context == BR_CONDITION_RESOURCE;
    conditions->n_scopes += context == BR_CONDITION_SCOPE;
    conditions->n_groups += context == BR_CONDITION_PROFILE;
}

/* Returns the message whose list contains the attributes or the cache of a path. */
static struct br_message *message_of(struct br_conditions *conditions,
                                     const struct br_expression *target)
{
    return target->path->form == BR_FORM_CACHE ? conditions->cache
                                               : &conditions->messages[target->message];
}

static bool message_set_nested(struct br_conditions *conditions, struct br_any current,
                               const struct br_path_key *keys, uint32_t n_keys,
                               struct br_any *value);

static bool message_set_in_map(struct br_conditions *conditions, const struct br_any *map,
                               const struct br_path_key *keys, uint32_t n_keys,
                               struct br_any *value)
{
    struct br_attributes list = {.arena = &conditions->scratch};
    bool ok = br_attributes_read(&list, BR_LIST_VALUES, map->data, map->len);
    const struct br_attribute *found =
        ok ? br_attributes_find(&list, keys[0].text, keys[0].len) : NULL;
    struct br_any current =
        found ? br_any_read(found->value) : (struct br_any){.type = BR_VALUE_EMPTY};
    if (!ok)
        conditions->rc = list.too_many ? BR_EFULL : br_arena_why(&conditions->scratch);
    ok = ok && message_set_nested(conditions, current, keys + 1, n_keys - 1, value) &&
         message_put(conditions, &list, &conditions->scratch, keys[0].text, keys[0].len, value);
    if (ok)
        *value = br_attributes_map(conditions, &list);
    br_attributes_release(&list);
    return ok && !conditions->rc;
}

/* Replaces the element of a list. If `extend` is set, the list is empty and gets empty elements
 * before the new one. */
static bool message_set_in_list(struct br_conditions *conditions, const struct br_any *list,
                                const struct br_path_key *keys, uint32_t n_keys, bool extend,
                                struct br_any *value)
{
    struct br_value element, encoded;
    struct br_any current = {.type = BR_VALUE_EMPTY};
    const uint8_t *p = list->data, *end = list->len ? p + list->len : p, *at = p, *after = p;
    int64_t n = 0, index = keys[0].index;
    for (; n <= index && index >= 0 && (p = br_value_next(p, end, &element)); n++) {
        at = after;
        after = p;
        current = br_any_read(element);
    }
    if (!extend && (n <= index || index < 0))
        return br_conditions_fail(conditions, "index %lld is out of bounds", (long long)index);
    size_t empty = extend ? (size_t)index * 2 : 0;
    if (!message_set_nested(conditions, current, keys + 1, n_keys - 1, value))
        return false;
    if (!br_any_write(value, &conditions->scratch, &encoded))
        return message_no_memory(conditions, &conditions->scratch);
    size_t size = list->len + empty + br_len_size(BR_LIST_VALUES, encoded.len);
    uint8_t *start = br_conditions_work(conditions, size)
                         ? br_arena_alloc(&conditions->scratch, size + 1)
                         : NULL,
            *out = start;
    if (!start)
        return message_no_memory(conditions, &conditions->scratch);
    for (size_t i = 0; i < empty; i += 2)
        out = br_put_len(out, BR_LIST_VALUES, NULL, 0);
    if (!extend)
        out = br_put_bytes(out, list->data, (size_t)(at - list->data));
    out = br_put_len(out, BR_LIST_VALUES, encoded.data, encoded.len);
    if (!extend)
        out = br_put_bytes(out, after, (size_t)(end - after));
    *value = (struct br_any){.type = BR_VALUE_LIST, .data = start, .len = (size_t)(out - start)};
    return true;
}

/* Sets the element of `current` that `keys` select to `*value`, and stores the resulting copy of
 * `current` in `*value`. The depth of the recursion is the number of keys in the statement. */
static bool message_set_nested(struct br_conditions *conditions, struct br_any current,
                               const struct br_path_key *keys, uint32_t n_keys,
                               struct br_any *value)
{
    bool empty = current.type == BR_VALUE_EMPTY;
    if (n_keys == 0)
        return true;
    if (empty)
        current.data = (const uint8_t *)"";
    if (keys[0].text && (empty || current.type == BR_VALUE_MAP))
        return message_set_in_map(conditions, &current, keys, n_keys, value);
    if (!keys[0].text && (empty || current.type == BR_VALUE_LIST))
        return message_set_in_list(conditions, &current, keys, n_keys, empty, value);
    return br_conditions_fail(conditions, "%s cannot be indexed by %s", br_any_name(&current),
                              keys[0].text ? "a string" : "a number");
}

/* Replaces all attributes of a list. `value` is a map of the new attributes, or nil to remove all
 * attributes. */
static bool message_set_all(struct br_conditions *conditions, struct br_message *message,
                            const struct br_any *value)
{
    struct br_attributes *list = br_message_list(conditions, message);
    struct br_keyvalue entry;
    if (value->type != BR_VALUE_MAP && value->type != BR_VALUE_EMPTY)
        return br_conditions_fail(conditions, "expected a map but got %s", br_any_name(value));
    if (!list)
        return false;
    /* The copy is necessary because the value may be the content of the same list. */
    struct br_any copy = br_any_copy(conditions, BR_VALUE_MAP, value->data, value->len);
    for (uint32_t i = 0; i < list->count; i++)
        list->pieces[i].deleted = list->pieces[i].deleted || list->pieces[i].attribute;
    const uint8_t *p = copy.data, *end = p + copy.len;
    while (!conditions->rc && (p = br_keyvalue_next(p, end, BR_LIST_VALUES, &entry))) {
        struct br_any one = br_any_read(entry.value);
        (void)message_put(conditions, list, message->arena, entry.key, entry.key_len, &one);
    }
    return !conditions->rc;
}

static bool message_set_attribute(struct br_conditions *conditions,
                                  const struct br_expression *target, struct br_any value)
{
    struct br_message *message = message_of(conditions, target);
    if (!target->n_keys)
        return message_set_all(conditions, message, &value);
    struct br_attributes *list = br_message_list(conditions, message);
    if (!list || !br_path_key_is_text(conditions, target))
        return false;
    const struct br_path_key *key = &target->keys[0];
    const struct br_attribute *found =
        target->n_keys > 1 ? br_attributes_find(list, key->text, key->len) : NULL;
    struct br_any current =
        found ? br_any_read(found->value) : (struct br_any){.type = BR_VALUE_EMPTY};
    return message_set_nested(conditions, current, target->keys + 1, target->n_keys - 1, &value) &&
           message_put(conditions, list, message->arena, key->text, key->len, &value);
}

/* --- Paths ------------------------------------------------------------------------------------ */

static bool message_set_status(struct br_conditions *conditions, struct br_message *message,
                               bool code, const struct br_any *value)
{
    struct br_path field = {.number = code ? BR_SPAN_STATUS_CODE : BR_SPAN_STATUS_MESSAGE,
                            .wire = BR_WIRE_VARINT};
    return message_set_inner(conditions, message, BR_SPAN_STATUS, &field, value);
}

static bool message_set_path(struct br_conditions *conditions, const struct br_expression *target,
                             const struct br_any *value)
{
    const struct br_path *path = target->path;
    struct br_message *message = &conditions->messages[target->message];
    bool number = path->form == BR_FORM_NUMBER || path->form == BR_FORM_STATUS_CODE;
    if (value->type != (number ? BR_VALUE_INT : BR_VALUE_STRING))
        return br_conditions_fail(conditions, "%s: expected %s but got %s", path->name,
                                  number ? "an int" : "a string", br_any_name(value));
    switch (path->form) {
    case BR_FORM_NUMBER:
        return message_set_number(conditions, message, path, value->number);
    case BR_FORM_ID:
        return message_set_id(conditions, message, path, value);
    case BR_FORM_KIND:
    case BR_FORM_OLD_KIND:
        return message_set_kind(conditions, message, value, path->form == BR_FORM_OLD_KIND);
    case BR_FORM_STATUS_CODE:
    case BR_FORM_STATUS_MESSAGE:
        return message_set_status(conditions, message, number, value);
    case BR_FORM_TYPE:
    case BR_FORM_UNIT:
        return message_set_type(conditions, message, path, value);
    case BR_FORM_TRACE_STATE:
        if (target->n_keys && !br_path_key_is_text(conditions, target))
            return false;
        if (target->n_keys)
            return message_set_member(conditions, message, target->keys, value);
        return message_set_text(conditions, message, BR_SPAN_TRACE_STATE, value->data, value->len);
    default:
        return message_set_text(conditions, message, path->number, value->data, value->len);
    }
}

bool br_path_write(struct br_conditions *conditions, const struct br_expression *target,
                   struct br_any value)
{
    enum br_path_form form = target->path->form;
    message_touch(conditions, target->message);
    if (form == BR_FORM_ATTRIBUTES || form == BR_FORM_CACHE)
        return message_set_attribute(conditions, target, value);
    return message_set_path(conditions, target, &value);
}

/* --- Maps ------------------------------------------------------------------------------------- */

bool br_map_edit_begin(struct br_conditions *conditions, const struct br_expression *target,
                       struct br_map_edit *ret)
{
    struct br_message *message = message_of(conditions, target);
    bool all = target->path->form == BR_FORM_ATTRIBUTES || target->path->form == BR_FORM_CACHE;
    *ret = (struct br_map_edit){
        .target = target, .arena = message->arena, .is_copy = !all || target->n_keys > 0};
    ret->list = ret->is_copy ? &ret->copy : br_message_list(conditions, message);
    if (!ret->is_copy)
        return ret->list && br_conditions_work(conditions, ret->list->count * sizeof(uint64_t));
    struct br_any map = br_path_read(conditions, target);
    ret->copy.arena = ret->arena = &conditions->scratch;
    if (br_conditions_stopped(conditions))
        return false;
    if (map.type != BR_VALUE_MAP)
        return br_conditions_fail(conditions, "expected a map but got %s", br_any_name(&map));
    if (br_conditions_work(conditions, map.len) &&
        br_attributes_read(&ret->copy, BR_LIST_VALUES, map.data, map.len))
        return true;
    if (!conditions->rc)
        conditions->rc = ret->copy.too_many ? BR_EFULL : br_arena_why(&conditions->scratch);
    br_attributes_release(&ret->copy);
    return false;
}

bool br_map_edit_end(struct br_conditions *conditions, struct br_map_edit *edit, bool ok)
{
    message_touch(conditions, edit->target->message);
    if (!edit->is_copy)
        return ok;
    if (ok && br_attributes_changed(&edit->copy)) {
        struct br_any map = br_attributes_map(conditions, &edit->copy);
        ok = !conditions->rc && br_path_write(conditions, edit->target, map);
    }
    br_attributes_release(&edit->copy);
    return ok;
}

bool br_map_edit_put(struct br_conditions *conditions, struct br_map_edit *edit, const void *key,
                     size_t key_len, const struct br_any *value)
{
    return message_put(conditions, edit->list, edit->arena, key, key_len, value);
}
