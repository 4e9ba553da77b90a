/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the values of paths from the messages at the current position. */
#include <math.h>
#include <string.h>

#include "attribute/expression.h"
#include "attribute/value.h"
#include "base/bytes.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/scan.h"
#include "otlp/tracestate.h"

#define ID_MAX 32 /* largest number of bytes of an id that is read */

static struct br_any message_nil(void)
{
    return (struct br_any){.type = BR_VALUE_EMPTY};
}

const char *br_any_name(const struct br_any *any)
{
    static const char *const names[] = {
        [BR_VALUE_EMPTY] = "nil",  [BR_VALUE_STRING] = "a string", [BR_VALUE_BOOL] = "a boolean",
        [BR_VALUE_INT] = "an int", [BR_VALUE_DOUBLE] = "a float",  [BR_VALUE_LIST] = "a list",
        [BR_VALUE_MAP] = "a map",  [BR_VALUE_BYTES] = "bytes",
    };
    return names[any->type];
}

struct br_any br_any_copy(struct br_conditions *conditions, enum br_value_type type,
                          const void *data, size_t len)
{
    uint8_t *copy =
        br_conditions_work(conditions, len) ? br_arena_alloc(&conditions->scratch, len + 1) : NULL;
    if (!copy) {
        conditions->rc = conditions->rc ? conditions->rc : br_arena_why(&conditions->scratch);
        return message_nil();
    }
    (void)br_put_bytes(copy, data, len);
    return (struct br_any){.type = type, .data = copy, .len = len};
}

bool br_any_write(const struct br_any *any, struct br_arena *arena, struct br_value *ret)
{
    bool bytes = any->data != NULL || any->type == BR_VALUE_STRING || any->type >= BR_VALUE_LIST;
    size_t size = bytes ? br_len_size(any->type, any->len) : 2 + BR_VARINT_MAX;
    uint8_t *start = br_arena_alloc(arena, size + 1), *p = start;
    if (!start)
        return false;
    if (any->type == BR_VALUE_EMPTY) {
        p = start;
    } else if (bytes) {
        p = br_put_len(p, any->type, any->data, any->len);
    } else if (any->type == BR_VALUE_DOUBLE) {
        *p++ = BR_TAG(BR_VALUE_DOUBLE, BR_WIRE_I64);
        p = br_put_bytes(p, &any->number, sizeof any->number);
    } else {
        uint64_t number = any->type == BR_VALUE_BOOL ? any->number != 0 : any->number;
        p = br_put_varint(br_put_varint(p, BR_TAG(any->type, BR_WIRE_VARINT)), number);
    }
    *ret = (struct br_value){start, (size_t)(p - start)};
    return true;
}

bool br_any_text(struct br_conditions *conditions, const struct br_any *any, struct br_str *out)
{
    double v;
    if (any->type == BR_VALUE_EMPTY)
        return false;
    br_str_add(out, "", 0);
    memcpy(&v, &any->number, sizeof v);
    if (any->type == BR_VALUE_STRING)
        br_str_add(out, any->data, any->len);
    else if (any->type == BR_VALUE_DOUBLE && isfinite(v))
        br_value_text_go_double(out, v);
    else if (any->type == BR_VALUE_DOUBLE)
        return br_conditions_fail(conditions, "a float that is not a number has no text");
    else if (any->type == BR_VALUE_BYTES)
        br_str_hex(out, any->data, any->len);
    else
        br_value_text_go(out, any, &conditions->arena);
    if (out->failed)
        conditions->rc = conditions->rc ? conditions->rc : BR_ENOMEM;
    return !out->failed;
}

/* --- Messages --------------------------------------------------------------------------------- */

void br_message_set(struct br_message *message, const uint8_t *body, size_t len)
{
    message->body = body;
    message->len = len;
    message->read = message->changed = false;
}

struct br_attributes *br_message_list(struct br_conditions *conditions, struct br_message *message)
{
    struct br_attributes *list = &message->list;
    bool ok = true;
    if (message->read)
        return conditions->rc ? NULL : list;
    if (message->dictionary) {
        br_attributes_clear(list);
        ok = br_sample_attributes_add(list, &conditions->view, message->field, message->body,
                                      message->len);
    } else {
        ok = br_attributes_read(list, message->field, message->body, message->len);
    }
    message->read = true;
    if (!ok)
        conditions->rc = list->too_many ? BR_EFULL : br_arena_why(message->arena);
    return conditions->rc ? NULL : list;
}

/* --- Fields ----------------------------------------------------------------------------------- */

/* Returns the last field with the number `number`. If the message has no such field, the `wire`
 * of the result is 255. */
static struct br_field message_scan(const struct br_message *message, uint32_t number)
{
    struct br_field found = {.wire = (enum br_wire)255}, f;
    const uint8_t *p = message->body, *end = message->len ? p + message->len : p;
    br_steps_add(message->len);
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number == number)
            found = f;
    return found;
}

static struct br_any message_text(const struct br_message *message, uint32_t number)
{
    struct br_field field = message_scan(message, number);
    return field.wire == BR_WIRE_LEN ? br_any_string(field.data, (size_t)field.value)
                                     : br_any_string("", 0);
}

static struct br_any message_number(const struct br_message *message, uint32_t number)
{
    struct br_field field = message_scan(message, number);
    bool found = field.wire == BR_WIRE_VARINT || field.wire == BR_WIRE_I64;
    return br_any_int(found ? (int64_t)field.value : 0);
}

/* Returns the message that a field contains. */
static struct br_message message_inner(const struct br_message *message, uint32_t number)
{
    struct br_any inner = message_text(message, number);
    return (struct br_message){.body = inner.data, .len = inner.len};
}

/* Returns an id as hex text, cut to the size of the longest valid id. An absent id is zeros. */
static struct br_any message_hex(struct br_conditions *conditions, struct br_arena *arena,
                                 struct br_any id, uint32_t size)
{
    static const uint8_t none[ID_MAX];
    size_t n = id.len < ID_MAX ? id.len : ID_MAX;
    char *hex = br_arena_alloc(arena, sizeof(char[2 * ID_MAX]));
    if (!hex) {
        conditions->rc = conditions->rc ? conditions->rc : br_arena_why(arena);
        return message_nil();
    }
    if (!n) {
        id.data = none;
        n = size;
    }
    br_hex_encode(id.data, n, hex);
    return br_any_string(hex, 2 * n);
}

static struct br_any message_kind(const struct br_message *message, bool old)
{
    static const char *const names[][2] = {
        {"Unspecified", "SPAN_KIND_UNSPECIFIED"}, {"Internal", "SPAN_KIND_INTERNAL"},
        {"Server", "SPAN_KIND_SERVER"},           {"Client", "SPAN_KIND_CLIENT"},
        {"Producer", "SPAN_KIND_PRODUCER"},       {"Consumer", "SPAN_KIND_CONSUMER"},
    };
    uint64_t kind = message_number(message, BR_SPAN_KIND).number;
    const char *name = kind < BR_COUNT(names) ? names[kind][old] : "";
    return br_any_string(name, strlen(name));
}

/* Returns the value of a member of the trace state. As in the Collector, returns "" if the member
 * is absent, and nil if the trace state is invalid. */
static struct br_any message_member(const struct br_message *message, const struct br_path_key *key)
{
    struct br_any state = message_text(message, BR_SPAN_TRACE_STATE);
    const uint8_t *at = state.data, *end = at + state.len;
    struct br_tracestate parsed;
    if (!br_tracestate_read(&parsed, state.data, state.len))
        return message_nil();
    while (at < end) {
        const uint8_t *comma = memchr(at, ',', (size_t)(end - at));
        const uint8_t *stop = comma ? comma : end;
        while (at < stop && (*at == ' ' || *at == '\t'))
            at++;
        size_t n = (size_t)(stop - at);
        if (n > key->len && at[key->len] == '=' && memcmp(at, key->text, key->len) == 0) {
            while (n && (at[n - 1] == ' ' || at[n - 1] == '\t'))
                n--;
            return br_any_string(at + key->len + 1, n - key->len - 1);
        }
        at = comma ? comma + 1 : end;
    }
    return br_any_string("", 0);
}

/* --- Profiles --------------------------------------------------------------------------------- */

static struct br_any message_string_at(struct br_conditions *conditions, uint64_t index)
{
    uint32_t i = index > UINT32_MAX ? UINT32_MAX : (uint32_t)index;
    struct br_entry text = br_dictionary_string(&conditions->view, i);
    if (conditions->additions && i >= conditions->view.count[BR_TABLE_STRING] &&
        br_conditions_work(conditions, conditions->additions->n_added)) {
        text = br_additions_entry(conditions->additions, BR_TABLE_STRING, i);
        return br_any_copy(conditions, BR_VALUE_STRING, text.data, text.len);
    }
    return br_any_string(text.data ? text.data : (const uint8_t *)"", text.len);
}

/* Returns an entry of the dictionary. Reading it counts as work, because many records may refer to
 * the entry. */
static struct br_message message_entry(struct br_conditions *conditions, enum br_table table,
                                       uint64_t index)
{
    struct br_entry entry = {NULL, 0};
    if (index < conditions->view.count[table])
        entry = conditions->view.tables[table][index];
    if (!br_conditions_work(conditions, entry.len + sizeof entry))
        entry.len = 0;
    return (struct br_message){.body = entry.data, .len = entry.len};
}

static struct br_any message_link(struct br_conditions *conditions,
                                  const struct br_message *message, uint32_t number, uint32_t size)
{
    uint64_t index = message_number(message, BR_SAMPLE_LINK).number;
    struct br_message link = {.body = NULL};
    if (index)
        link = message_entry(conditions, BR_TABLE_LINK, index);
    return message_hex(conditions, &conditions->scratch, message_text(&link, number), size);
}

/* A list value that is being built. */
struct building {
    struct br_conditions *conditions;
    struct br_str out;
};

static void message_list_add(struct building *list, const struct br_any *any)
{
    struct br_value value;
    uint8_t head[2 * BR_VARINT_MAX];
    if (br_conditions_stopped(list->conditions) ||
        !br_conditions_work(list->conditions, any->len + sizeof *any))
        return;
    if (!br_any_write(any, &list->conditions->scratch, &value)) {
        list->conditions->rc = br_arena_why(&list->conditions->scratch);
        return;
    }
    uint8_t *end = br_put_varint(head, BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN));
    end = br_put_varint(end, value.len);
    br_str_add(&list->out, head, (size_t)(end - head));
    br_str_add(&list->out, value.data, value.len);
}

static struct br_any message_list_end(struct building *list)
{
    struct br_conditions *conditions = list->conditions;
    if (list->out.failed && !conditions->rc)
        conditions->rc = BR_ENOMEM;
    struct br_any any = br_conditions_stopped(conditions)
                            ? message_nil()
                            : br_any_copy(conditions, BR_VALUE_LIST, list->out.data, list->out.len);
    br_str_release(&list->out);
    return any;
}

/* Reads a repeated number. The field may be packed. */
static struct br_any message_numbers(struct br_conditions *conditions,
                                     const struct br_message *message, uint32_t number, bool fixed)
{
    struct building list = {conditions, {.max = BR_BUF_MAX}};
    const uint8_t *p = message->body, *end = message->len ? p + message->len : p;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint64_t value;
        if (field.number != number)
            continue;
        if (field.wire != BR_WIRE_LEN) {
            struct br_any one = br_any_int((int64_t)field.value);
            message_list_add(&list, &one);
            continue;
        }
        const uint8_t *at = field.data, *stop = at + field.value;
        while (at && at < stop && !conditions->rc) {
            if (fixed && stop - at < 8)
                break;
            value = fixed ? br_load64(at) : 0;
            at = fixed ? at + 8 : br_scan_varint(at, stop, &value);
            struct br_any one = br_any_int((int64_t)value);
            if (at)
                message_list_add(&list, &one);
        }
    }
    return message_list_end(&list);
}

/* Appends the names of a location's functions: the innermost inlined function first. */
static void message_add_location(struct building *list, uint64_t index)
{
    struct br_message location = message_entry(list->conditions, BR_TABLE_LOCATION, index);
    const uint8_t *p = location.body, *end = location.len ? p + location.len : p;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field)) && !list->conditions->rc) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_LOCATION_LINES))
            continue;
        struct br_message line = {.body = field.data, .len = (size_t)field.value};
        struct br_message function = message_entry(list->conditions, BR_TABLE_FUNCTION,
                                                   message_number(&line, BR_LINE_FUNCTION).number);
        struct br_any name =
            message_string_at(list->conditions, message_number(&function, BR_FUNCTION_NAME).number);
        message_list_add(list, &name);
    }
}

/* Returns the names of the functions of a sample's stack, the innermost one first. */
static struct br_any message_functions(struct br_conditions *conditions,
                                       const struct br_message *message)
{
    struct building list = {conditions, {.max = BR_BUF_MAX}};
    struct br_message stack =
        message_entry(conditions, BR_TABLE_STACK, message_number(message, BR_SAMPLE_STACK).number);
    const uint8_t *p = stack.body, *end = stack.len ? p + stack.len : p;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field)) && !conditions->rc) {
        if (field.number != BR_STACK_LOCATIONS)
            continue;
        if (field.wire == BR_WIRE_VARINT)
            message_add_location(&list, field.value);
        const uint8_t *at = field.wire == BR_WIRE_LEN ? field.data : NULL;
        uint64_t index;
        while (at && at < p && !conditions->rc && (at = br_scan_varint(at, p, &index)))
            message_add_location(&list, index);
    }
    return message_list_end(&list);
}

/* --- Attributes ------------------------------------------------------------------------------- */

struct br_any br_attributes_map(struct br_conditions *conditions, const struct br_attributes *list)
{
    size_t size = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct br_attribute *p = &list->pieces[i];
        if (p->attribute && !p->deleted)
            size += p->key_len + p->value.len + 4 * BR_VARINT_MAX;
    }
    uint8_t *start = br_conditions_work(conditions, size)
                         ? br_arena_alloc(&conditions->scratch, size + 1)
                         : NULL,
            *out = start;
    if (!start) {
        conditions->rc = conditions->rc ? conditions->rc : br_arena_why(&conditions->scratch);
        return message_nil();
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const struct br_attribute *p = &list->pieces[i];
        if (!p->attribute || p->deleted)
            continue;
        out = br_put_varint(out, BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN));
        out = br_put_varint(out, br_len_size(BR_KEYVALUE_KEY, p->key_len) +
                                     br_len_size(BR_KEYVALUE_VALUE, p->value.len));
        out = br_put_len(out, BR_KEYVALUE_KEY, p->key, p->key_len);
        out = br_put_len(out, BR_KEYVALUE_VALUE, p->value.data, p->value.len);
    }
    return (struct br_any){.type = BR_VALUE_MAP, .data = start, .len = (size_t)(out - start)};
}

/* Returns false if the map does not have the key. */
static bool message_find(const struct br_any *map, const struct br_path_key *key,
                         struct br_any *ret)
{
    struct br_keyvalue entry;
    const uint8_t *p = map->data, *end = p + map->len;
    while ((p = br_keyvalue_next(p, end, BR_LIST_VALUES, &entry)))
        if (br_bytes_equal(entry.key, entry.key_len, key->text, key->len)) {
            *ret = br_any_read(entry.value);
            return true;
        }
    return false;
}

static struct br_any message_element(struct br_conditions *conditions, const struct br_any *list,
                                     int64_t index)
{
    struct br_value value;
    const uint8_t *p = list->data, *end = p + list->len;
    for (int64_t i = 0; index >= 0 && (p = br_value_next(p, end, &value)); i++)
        if (i == index)
            return br_any_read(value);
    (void)br_conditions_fail(conditions, "index %lld is out of bounds", (long long)index);
    return message_nil();
}

struct br_any br_path_index(struct br_conditions *conditions, struct br_any any,
                            const struct br_path_key *keys, uint32_t n_keys, bool *ret_missing)
{
    for (uint32_t i = 0; i < n_keys && !br_conditions_stopped(conditions); i++) {
        if (any.data && !br_conditions_work(conditions, any.len))
            return message_nil();
        if (any.type == BR_VALUE_MAP && keys[i].text) {
            *ret_missing = !message_find(&any, &keys[i], &any);
            if (*ret_missing)
                return message_nil();
        } else if (any.type == BR_VALUE_LIST && !keys[i].text) {
            any = message_element(conditions, &any, keys[i].index);
        } else {
            (void)br_conditions_fail(conditions, "%s cannot be indexed by %s", br_any_name(&any),
                                     keys[i].text ? "a string" : "a number");
        }
    }
    return br_conditions_stopped(conditions) ? message_nil() : any;
}

bool br_path_key_is_text(struct br_conditions *conditions, const struct br_expression *path)
{
    return path->keys[0].text ||
           br_conditions_fail(conditions, "%s cannot be indexed by a number", path->path->name);
}

static struct br_any message_attribute(struct br_conditions *conditions, struct br_message *message,
                                       const struct br_expression *path)
{
    const struct br_attributes *list = br_message_list(conditions, message);
    if (!list || (conditions->edits && !br_conditions_work(conditions, list->count)))
        return message_nil();
    if (!path->n_keys)
        return br_attributes_map(conditions, list);
    if (!br_path_key_is_text(conditions, path))
        return message_nil();
    const struct br_attribute *found =
        br_attributes_find(list, path->keys[0].text, path->keys[0].len);
    struct br_any any = found ? br_any_read(found->value) : message_nil();
    bool missing = false;
    if (path->n_keys == 1 || !found)
        return any;
    return br_path_index(conditions, any, path->keys + 1, path->n_keys - 1, &missing);
}

bool br_path_is_entry(struct br_conditions *conditions, const struct br_expression *path)
{
    struct br_message *message = &conditions->messages[path->message];
    const struct br_attributes *list =
        message->dictionary ? br_message_list(conditions, message) : NULL;
    const struct br_attribute *found =
        list ? br_attributes_find(list, path->keys[0].text, path->keys[0].len) : NULL;
    return found && found->entry && !found->edited;
}

/* --- Paths ------------------------------------------------------------------------------------ */

uint64_t br_path_place(const struct br_conditions *conditions,
                       const struct br_expression *expression)
{
    /* Values of forms other than the following are computed in the scratch memory, which is
     * released between records, so they are not stored. */
    enum br_path_form form = expression->path->form;
    bool field = form == BR_FORM_TEXT || form == BR_FORM_NUMBER || form == BR_FORM_ID;
    bool type = form == BR_FORM_TYPE || form == BR_FORM_UNIT;
    bool attribute = form == BR_FORM_ATTRIBUTES && expression->n_keys == 1;
    if (expression->message == BR_CONDITION_SPAN && form != BR_FORM_CACHE)
        return conditions->n_spans;
    if (!field && !type && !attribute)
        return 0;
    switch (expression->message) {
    case BR_CONDITION_RESOURCE:
        return conditions->n_resources;
    case BR_CONDITION_SCOPE:
        return conditions->n_scopes;
    case BR_CONDITION_PROFILE:
        return conditions->n_groups;
    default:
        return 0;
    }
}

static struct br_any message_type(struct br_conditions *conditions,
                                  const struct br_message *message, const struct br_path *path)
{
    struct br_message type = message_inner(message, path->number);
    uint32_t field = path->form == BR_FORM_TYPE ? BR_VALUE_TYPE_TYPE : BR_VALUE_TYPE_UNIT;
    return message_string_at(conditions, message_number(&type, field).number);
}

static struct br_any message_status(const struct br_message *message, bool code)
{
    struct br_message status = message_inner(message, BR_SPAN_STATUS);
    return code ? message_number(&status, BR_SPAN_STATUS_CODE)
                : message_text(&status, BR_SPAN_STATUS_MESSAGE);
}

static struct br_any message_read_profile(struct br_conditions *conditions,
                                          const struct br_message *message,
                                          const struct br_expression *expression)
{
    struct br_any any;
    bool missing = false;
    switch (expression->path->form) {
    case BR_FORM_LINK_TRACE:
        return message_link(conditions, message, BR_LINK_TRACE_ID, 16);
    case BR_FORM_LINK_SPAN:
        return message_link(conditions, message, BR_LINK_SPAN_ID, 8);
    case BR_FORM_VALUES:
        any = message_numbers(conditions, message, BR_SAMPLE_VALUES, false);
        break;
    case BR_FORM_TIMES:
        any = message_numbers(conditions, message, BR_SAMPLE_TIMES, true);
        break;
    case BR_FORM_FUNCTIONS:
        any = message_functions(conditions, message);
        break;
    default:
        return message_type(conditions, message, expression->path);
    }
    return br_path_index(conditions, any, expression->keys, expression->n_keys, &missing);
}

struct br_any br_path_read(struct br_conditions *conditions, const struct br_expression *expression)
{
    const struct br_path *path = expression->path;
    struct br_message *message = &conditions->messages[expression->message];
    switch (path->form) {
    case BR_FORM_ATTRIBUTES:
        return message_attribute(conditions, message, expression);
    case BR_FORM_CACHE:
        return message_attribute(conditions, conditions->cache, expression);
    case BR_FORM_TEXT:
        return message_text(message, path->number);
    case BR_FORM_NUMBER:
        return message_number(message, path->number);
    case BR_FORM_ID:
        return message_hex(conditions,
                           expression->message == BR_CONDITION_PROFILE ? &conditions->arena
                                                                       : &conditions->scratch,
                           message_text(message, path->number), path->size);
    case BR_FORM_KIND:
    case BR_FORM_OLD_KIND:
        return message_kind(message, path->form == BR_FORM_OLD_KIND);
    case BR_FORM_STATUS_CODE:
    case BR_FORM_STATUS_MESSAGE:
        return message_status(message, path->form == BR_FORM_STATUS_CODE);
    case BR_FORM_TRACE_STATE:
        if (!expression->n_keys)
            return message_text(message, BR_SPAN_TRACE_STATE);
        return br_path_key_is_text(conditions, expression)
                   ? message_member(message, expression->keys)
                   : message_nil();
    case BR_FORM_EVENT_INDEX:
        return br_any_int((int64_t)conditions->event_index);
    default:
        return message_read_profile(conditions, message, expression);
    }
}
