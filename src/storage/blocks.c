/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/blocks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attribute/value.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"

#define NAME_BYTES_MAX                                                                             \
    65536u /* maximum number of bytes of an operation's name in the list of operations */
/* maximum number of bytes of the text of an attribute value that is added to the filter */
#define TEXT_MAX (1u << 20)
#define LEVEL 1 /* zstd compression level */
#define TRACE_SLOTS 1024u
#define TALLY_SLOTS 2048u
/* a new resource or scope is compared with this many of the newest resources and scopes of the
 * block */
#define HEADS_SAME 16u

/* An attribute key that the partition lists. */
struct key {
    int64_t id;
    uint32_t n_values;
};

/* Position of a resource or scope in br_blocks.heads. */
struct head {
    size_t at, len;
};

/* Counts the spans of each operation in a block, and finds the longest span of each operation. */
struct tally {
    struct {
        uint32_t operation, n_spans;
        uint64_t max_duration;
    } rows[2 * BR_BLOCK_SPANS];
    /* index of each operation in `rows`, plus 1; 0: the slot is empty */
    uint16_t slots[TALLY_SLOTS];
    uint32_t count;
};

struct br_blocks {
    struct br_sql *sql;
    struct br_store_totals *totals;
    struct br_pack_codec *codec;
    /* State of the partition. */
    struct br_map *operations; /* map from service number and span name to the operation's number */
    /* map from a service to the number of an operation that stands for all operations of the
     * service */
    struct br_map *services;
    /* number in `services` of each operation's service, by operation number */
    uint32_t *service_of;
    uint32_t last_operation, cap_service_of;
    /* map from a digit of enum br_key_scope, followed by the key, to struct key */
    struct br_map *keys;
    struct br_hashes values; /* hashes of the attribute values that the partition lists */
    int64_t last_block;
    /* State of the block under construction. */
    struct br_columns columns;
    uint16_t trace_slots[TRACE_SLOTS];
    int64_t trace_hashes[BR_BLOCK_SPANS];
    struct br_hashes attributes;
    struct br_pack spans, heads, packed;
    uint32_t n_heads;
    /* the newest heads; head number i is at index i modulo HEADS_SAME */
    struct head last_heads[HEADS_SAME];
    int64_t min_start, max_start, max_duration;
    uint32_t n_roots, n_failed;
    struct tally tally;
    /* State of the ResourceSpans and ScopeSpans that are being read. */
    struct br_entry resource, scope;
    /* shortened copies of `resource` and `scope`, used if the originals exceed BR_HEAD_BYTES */
    struct br_pack cut[2];
    /* numbers of the resource and scope in the block; 0: not in the block yet */
    uint32_t resource_head, scope_head;
    uint64_t *resource_hashes;
    uint32_t n_resource_hashes, cap_resource_hashes;
    char *service;
    size_t service_len;
    uint32_t service_number;
    struct br_entry name; /* name of the previous span, whose operation is `operation` */
    uint32_t operation;
    struct br_str text, key_text;
    struct br_arena arena;
    struct br_err *err;
    int rc; /* the first error; 0: no error so far */
};

/* --- Hashes ---------------------------------------------------------------------------------- */

int64_t br_blocks_trace_hash(const uint64_t secret[2], const uint8_t trace_id[16])
{
    return (int64_t)br_hash_keyed(secret, trace_id, 16);
}

static uint64_t blocks_key_hash(const uint64_t secret[2], bool resource, const void *key,
                                size_t key_len)
{
    return br_hash_keyed(secret, key, key_len) + resource;
}

uint64_t br_blocks_attribute_hash(const uint64_t secret[2], bool resource, const void *key,
                                  size_t key_len, const void *value, size_t value_len)
{
    br_steps_add(key_len + value_len);
    return br_hash_mix(blocks_key_hash(secret, resource, key, key_len) ^ secret[1],
                       br_hash_keyed(secret, value, value_len) ^ secret[0]);
}

/* --- Names ----------------------------------------------------------------------------------- */

static void blocks_fail(struct br_blocks *blocks, int rc)
{
    if (!blocks->rc)
        blocks->rc = rc;
}

static bool blocks_no_memory(struct br_blocks *blocks)
{
    if (!blocks->rc)
        blocks->rc = br_err_set(blocks->err, BR_ENOMEM, "out of memory");
    return false;
}

static bool blocks_run(struct br_blocks *blocks, sqlite3_stmt *statement)
{
    int rc = br_sql_run(blocks->sql, statement, blocks->err);
    blocks_fail(blocks, rc);
    return rc == 0;
}

/* Adds an operation of the current service to the list, and returns the operation's number. If
 * `name` is NULL, the operation stands for all operations of the service. Returns 0 on failure. */
static uint32_t blocks_new_operation(struct br_blocks *blocks, const struct br_entry *name)
{
    uint32_t number = blocks->last_operation + 1;
    if (number > BR_OPERATIONS_MAX) {
        blocks_fail(blocks,
                    br_err_set(blocks->err, BR_EINVAL, "more than %u span names in one partition",
                               BR_OPERATIONS_MAX));
        return 0;
    }
    if (br_grow(&blocks->service_of, &blocks->cap_service_of, (size_t)number + 1,
                sizeof *blocks->service_of, BR_OPERATIONS_MAX + 1u)) {
        (void)blocks_no_memory(blocks);
        return 0;
    }
    blocks->service_of[number] = name ? blocks->service_number : number;
    br_steps_add(blocks->service_len + (name ? name->len : 0));
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, BR_SQL_OPERATION_ADD);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, number);
        (void)sqlite3_bind_text(statement, 2, blocks->service, (int)blocks->service_len,
                                SQLITE_STATIC);
        if (name)
            (void)sqlite3_bind_text(statement, 3, name->len ? (const char *)name->data : "",
                                    (int)name->len, SQLITE_STATIC);
        else
            (void)sqlite3_bind_null(statement, 3);
    }
    blocks->last_operation = number;
    return blocks_run(blocks, statement) ? number : 0;
}

/* Writes the key of an operation to `key_text`. The key contains the number of the service
 * instead of its name, which may be long and would be repeated for each operation. */
static bool blocks_operation_key(struct br_blocks *blocks, uint32_t service, const void *name,
                                 size_t len)
{
    br_str_clear(&blocks->key_text);
    br_str_add(&blocks->key_text, &service, sizeof service);
    br_str_add(&blocks->key_text, name, len);
    return !blocks->key_text.failed;
}

/* Returns the number of the current service's operation with the name `name`. Adds the operation
 * if it is new. */
static uint32_t blocks_operation(struct br_blocks *blocks, struct br_entry name)
{
    if (blocks->name.data &&
        br_bytes_equal(blocks->name.data, blocks->name.len, name.data, name.len))
        return blocks->operation;
    struct br_entry cut = {name.data, name.len < NAME_BYTES_MAX ? name.len : NAME_BYTES_MAX};
    if (!blocks_operation_key(blocks, blocks->service_number, cut.data, cut.len)) {
        (void)blocks_no_memory(blocks);
        return 0;
    }
    uintptr_t number =
        (uintptr_t)br_map_get(blocks->operations, blocks->key_text.data, blocks->key_text.len);
    if (!number) {
        number = blocks_new_operation(blocks, &cut);
        if (number && br_map_put(blocks->operations, blocks->key_text.data, blocks->key_text.len,
                                 (void *)number, NULL))
            (void)blocks_no_memory(blocks);
    }
    blocks->name = name;
    return blocks->operation = (uint32_t)number;
}

static struct key *blocks_new_key(struct br_blocks *blocks, enum br_key_scope scope,
                                  const uint8_t *data, size_t len)
{
    struct key *key = br_calloc(1, sizeof *key);
    if (!key || br_map_put(blocks->keys, blocks->key_text.data, blocks->key_text.len, key, NULL)) {
        br_free(key);
        (void)blocks_no_memory(blocks);
        return NULL;
    }
    key->id = (int64_t)br_map_count(blocks->keys);
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, BR_SQL_KEY_ADD);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, key->id);
        (void)sqlite3_bind_int(statement, 2, (int)scope);
        (void)sqlite3_bind_text(statement, 3, len ? (const char *)data : "", (int)len,
                                SQLITE_STATIC);
    }
    return blocks_run(blocks, statement) ? key : NULL;
}

/* Returns the entry of an attribute key, or NULL if the partition does not list the key. */
static struct key *blocks_key(struct br_blocks *blocks, enum br_key_scope scope,
                              const uint8_t *data, size_t len)
{
    if (len > BR_VALUE_BYTES_MAX)
        return NULL;
    br_str_clear(&blocks->key_text);
    br_str_putc(&blocks->key_text, (char)('0' + (int)scope));
    br_str_add(&blocks->key_text, data, len);
    if (blocks->key_text.failed) {
        (void)blocks_no_memory(blocks);
        return NULL;
    }
    struct key *key = br_map_get(blocks->keys, blocks->key_text.data, blocks->key_text.len);
    if (key || br_map_count(blocks->keys) >= BR_KEYS_MAX)
        return key;
    return blocks_new_key(blocks, scope, data, len);
}

/* Adds the attribute keys that a message contains in field `number` to the list. */
static void blocks_list_keys(struct br_blocks *blocks, enum br_key_scope scope, const uint8_t *data,
                             size_t len, uint32_t number)
{
    struct br_keyvalue at;
    const uint8_t *p = data, *end = len ? p + len : p;
    while (!blocks->rc && (p = br_keyvalue_next(p, end, number, &at)))
        (void)blocks_key(blocks, scope, at.key, at.key_len);
}

/* Adds an attribute value to the list, unless it occurs earlier in this block, is listed
 * already, or exceeds a limit. */
static void blocks_list_value(struct br_blocks *blocks, bool resource, const struct br_keyvalue *at,
                              const char *value, size_t len, uint64_t hash)
{
    struct key *key = blocks_key(blocks, resource ? BR_KEYS_OF_RESOURCES : BR_KEYS_OF_SPANS,
                                 at->key, at->key_len);
    if (!key || len > BR_VALUE_BYTES_MAX || key->n_values >= BR_VALUES_MAX)
        return;
    if (!br_hashes_add(&blocks->values, hash)) {
        if (blocks->values.failed)
            (void)blocks_no_memory(blocks);
        return;
    }
    key->n_values++;
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, BR_SQL_VALUE_ADD);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, key->id);
        (void)sqlite3_bind_text(statement, 2, len ? value : "", (int)len, SQLITE_STATIC);
    }
    (void)blocks_run(blocks, statement);
}

/* --- Attributes ------------------------------------------------------------------------------ */

/* Returns an attribute value as text, valid until the next call. */
static const char *blocks_value_text(struct br_blocks *blocks, struct br_value value, size_t *ret)
{
    struct br_any any = br_any_read(value);
    if (any.type == BR_VALUE_STRING) {
        *ret = any.len;
        return (const char *)any.data;
    }
    br_str_clear(&blocks->text);
    if (any.type == BR_VALUE_INT)
        br_str_printf(&blocks->text, "%" PRId64, (int64_t)any.number);
    else
        br_value_text(&blocks->text, &any, &blocks->arena);
    *ret = blocks->text.failed ? 0 : blocks->text.len;
    return blocks->text.data;
}

/* Stores a hash of a resource's attribute in `resource_hashes`, because these hashes are added
 * to each block that contains the resource. Does nothing for hashes of other attributes. */
static void blocks_note_hash(struct br_blocks *blocks, bool resource, uint64_t hash)
{
    if (!resource)
        return;
    if (br_grow(&blocks->resource_hashes, &blocks->cap_resource_hashes,
                (size_t)blocks->n_resource_hashes + 1, sizeof *blocks->resource_hashes, 1u << 20))
        (void)blocks_no_memory(blocks);
    else
        blocks->resource_hashes[blocks->n_resource_hashes++] = hash;
}

/* Adds an attribute value to the block's filter, and to the partition's list of values. */
static void blocks_value(struct br_blocks *blocks, bool resource, const struct br_keyvalue *at)
{
    size_t len;
    const char *value = blocks_value_text(blocks, at->value, &len);
    uint64_t hash = br_blocks_attribute_hash(blocks->totals->secret, resource, at->key, at->key_len,
                                             value, len);
    if (br_hashes_add(&blocks->attributes, hash))
        blocks_list_value(blocks, resource, at, value, len, hash);
    else if (blocks->attributes.failed)
        (void)blocks_no_memory(blocks);
    blocks_note_hash(blocks, resource, hash);
}

/* Adds an attribute. If the value of the attribute is a list, adds each element, because queries
 * compare with each element. */
static void blocks_attribute(struct br_blocks *blocks, bool resource, const struct br_keyvalue *at)
{
    const struct br_any any = br_any_read(at->value);
    struct br_keyvalue element = *at;
    if (any.type != BR_VALUE_LIST) {
        blocks_value(blocks, resource, at);
        return;
    }
    for (const uint8_t *p = any.data, *end = any.len ? p + any.len : p;
         !blocks->rc && (p = br_value_next(p, end, &element.value));)
        blocks_value(blocks, resource, &element);
}

/* Returns a resource or scope without the fields that do not fit within BR_HEAD_BYTES. Each
 * block contains copies of its resources and scopes, so a long resource would be written many
 * times. */
static struct br_entry blocks_cut_head(struct br_blocks *blocks, struct br_pack *into,
                                       const uint8_t *data, size_t len)
{
    const uint8_t *p = data, *end = len ? p + len : p, *at = p;
    struct br_field field;
    if (len <= BR_HEAD_BYTES)
        return (struct br_entry){data, (uint32_t)len};
    br_pack_clear(into);
    br_steps_add(len);
    for (; p < end && (p = br_scan(p, end, &field)); at = p)
        if (into->len + (size_t)(p - at) <= BR_HEAD_BYTES)
            br_pack_bytes(into, at, (size_t)(p - at));
    if (into->failed)
        (void)blocks_no_memory(blocks);
    return (struct br_entry){into->data, (uint32_t)into->len};
}

static bool blocks_set_service(struct br_blocks *blocks, const char *text, size_t len)
{
    if (len > BR_SERVICE_BYTES_MAX)
        len = br_utf8_valid((const uint8_t *)text, BR_SERVICE_BYTES_MAX);
    char *service = br_strndup(text, len);
    if (!service)
        return blocks_no_memory(blocks);
    br_free(blocks->service);
    blocks->service = service;
    blocks->service_len = len;
    blocks->name.data = NULL;
    return true;
}

static bool blocks_number_service(struct br_blocks *blocks)
{
    uintptr_t number =
        (uintptr_t)br_map_get(blocks->services, blocks->service, blocks->service_len);
    if (!number) {
        number = blocks_new_operation(blocks, NULL);
        if (number && br_map_put(blocks->services, blocks->service, blocks->service_len,
                                 (void *)number, NULL))
            return blocks_no_memory(blocks);
    }
    blocks->service_number = (uint32_t)number;
    return blocks->rc == 0;
}

static bool blocks_read_service(struct br_blocks *blocks, const uint8_t *p, size_t resource_len)
{
    const uint8_t *end = resource_len ? p + resource_len : p;
    struct br_keyvalue at;
    size_t len;
    if (!blocks_set_service(blocks, "unknown_service", strlen("unknown_service")))
        return false;
    while ((p = br_keyvalue_next(p, end, BR_RESOURCE_ATTRIBUTES, &at))) {
        if (!br_bytes_are(at.key, at.key_len, "service.name"))
            continue;
        const char *text = blocks_value_text(blocks, at.value, &len);
        if (len && !blocks_set_service(blocks, text, len))
            return false;
    }
    return blocks_number_service(blocks);
}

/* Reads a resource. The service name is read from the whole resource, because the shortened copy
 * may lack it. */
static bool blocks_read_resource(struct br_blocks *blocks, const uint8_t *resource, size_t len)
{
    struct br_keyvalue at;
    blocks->resource = blocks_cut_head(blocks, &blocks->cut[0], resource, len);
    blocks->resource_head = 0;
    blocks->n_resource_hashes = 0;
    const uint8_t *p = blocks->resource.data,
                  *end = blocks->resource.len ? p + blocks->resource.len : p;
    if (!blocks_read_service(blocks, resource, len))
        return false;
    while (!blocks->rc && (p = br_keyvalue_next(p, end, BR_RESOURCE_ATTRIBUTES, &at)))
        blocks_attribute(blocks, true, &at);
    return blocks->rc == 0;
}

/* --- The body -------------------------------------------------------------------------------- */

static bool blocks_is_head(const struct br_blocks *blocks, const struct head *head,
                           struct br_entry message)
{
    if (head->len != message.len)
        return false;
    br_steps_add(message.len);
    return !message.len || memcmp(blocks->heads.data + head->at, message.data, message.len) == 0;
}

/* Returns the number of a resource or scope in the block, starting at 1. */
static uint32_t blocks_head(struct br_blocks *blocks, struct br_entry message)
{
    uint32_t first = blocks->n_heads > HEADS_SAME ? blocks->n_heads - HEADS_SAME : 0;
    for (uint32_t i = blocks->n_heads; i > first; i--)
        if (blocks_is_head(blocks, &blocks->last_heads[(i - 1) % HEADS_SAME], message))
            return i;
    br_pack_varint(&blocks->heads, message.len);
    blocks->last_heads[blocks->n_heads % HEADS_SAME] =
        (struct head){blocks->heads.len, message.len};
    br_pack_bytes(&blocks->heads, message.data, message.len);
    return ++blocks->n_heads;
}

static void blocks_enter_heads(struct br_blocks *blocks)
{
    if (!blocks->resource_head) {
        blocks->resource_head = blocks_head(blocks, blocks->resource);
        for (uint32_t i = 0; i < blocks->n_resource_hashes; i++)
            (void)br_hashes_add(&blocks->attributes, blocks->resource_hashes[i]);
        if (blocks->attributes.failed)
            (void)blocks_no_memory(blocks);
    }
    if (!blocks->scope_head)
        blocks->scope_head = blocks_head(blocks, blocks->scope);
}

/* --- Spans ----------------------------------------------------------------------------------- */

struct span {
    uint8_t trace_id[16];
    uint64_t span_id, parent_id, start_ns, end_ns, kind, status;
    struct br_entry name;
};

static uint32_t blocks_trace(struct br_blocks *blocks, const uint8_t trace_id[16])
{
    struct br_columns *columns = &blocks->columns;
    int64_t hash = br_blocks_trace_hash(blocks->totals->secret, trace_id);
    size_t at = (size_t)hash % TRACE_SLOTS;
    for (; blocks->trace_slots[at]; at = (at + 1) % TRACE_SLOTS)
        if (memcmp(columns->traces[blocks->trace_slots[at] - 1], trace_id, 16) == 0)
            return blocks->trace_slots[at] - 1u;
    uint32_t index = columns->n_traces++;
    memcpy(columns->traces[index], trace_id, 16);
    blocks->trace_hashes[index] = hash;
    blocks->trace_slots[at] = (uint16_t)(index + 1);
    return index;
}

static void blocks_read_status(const struct br_field *field, struct span *span)
{
    const uint8_t *p = field->data, *end = p + field->value;
    struct br_field inner;
    while (p < end && (p = br_scan(p, end, &inner)))
        if (br_scan_tag(&inner) == BR_SCAN_VARINT(BR_SPAN_STATUS_CODE))
            span->status = inner.value;
}

static bool blocks_read_id(const struct br_field *field, void *into, size_t size)
{
    if (field->value != size)
        memset(into, 0, size);
    else
        memcpy(into, field->data, size);
    return true;
}

/* Reads a field of a span. Returns true if the field is stored in the columns. */
static bool blocks_read_field(struct br_blocks *blocks, const struct br_field *field,
                              struct span *span)
{
    struct br_keyvalue at;
    switch (br_scan_tag(field)) {
    case BR_SCAN_LEN(BR_SPAN_TRACE_ID):
        return blocks_read_id(field, span->trace_id, 16);
    case BR_SCAN_LEN(BR_SPAN_SPAN_ID):
        return blocks_read_id(field, &span->span_id, 8);
    case BR_SCAN_LEN(BR_SPAN_PARENT_SPAN_ID):
        return blocks_read_id(field, &span->parent_id, 8);
    case BR_TAG(BR_SPAN_START_TIME, BR_WIRE_I64):
        span->start_ns = field->value;
        return true;
    case BR_TAG(BR_SPAN_END_TIME, BR_WIRE_I64):
        span->end_ns = field->value;
        return true;
    case BR_SCAN_LEN(BR_SPAN_NAME):
        span->name = (struct br_entry){field->data, (uint32_t)field->value};
        return false;
    case BR_SCAN_VARINT(BR_SPAN_KIND):
        span->kind = field->value;
        return false;
    case BR_SCAN_LEN(BR_SPAN_STATUS):
        blocks_read_status(field, span);
        return false;
    case BR_SCAN_LEN(BR_SPAN_ATTRIBUTES):
        if (br_keyvalue_read(field->data, (size_t)field->value, &at))
            blocks_attribute(blocks, false, &at);
        return false;
    case BR_SCAN_LEN(BR_SPAN_EVENTS):
        blocks_list_keys(blocks, BR_KEYS_OF_EVENTS, field->data, (size_t)field->value,
                         BR_EVENT_ATTRIBUTES);
        return false;
    case BR_SCAN_LEN(BR_SPAN_LINKS):
        blocks_list_keys(blocks, BR_KEYS_OF_LINKS, field->data, (size_t)field->value,
                         BR_SPAN_LINK_ATTRIBUTES);
        return false;
    default:
        return false;
    }
}

/* Reads a span, and appends to `spans` the fields that are not in the columns. */
static bool blocks_read_span(struct br_blocks *blocks, const uint8_t *body, const uint8_t *end,
                             struct span *span)
{
    static const uint8_t room[BR_VARINT_MAX];
    struct br_pack *spans = &blocks->spans;
    const uint8_t *p = body, *kept = body;
    struct br_field field;
    *span = (struct span){.kind = 0};
    br_pack_varint(spans, blocks->resource_head);
    br_pack_varint(spans, blocks->scope_head);
    size_t length_at = spans->len;
    /* room for the number of bytes of the kept fields, which is written below */
    br_pack_bytes(spans, room, 4);
    while (p < end) {
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p)
            return false;
        if (!blocks_read_field(blocks, &field, span))
            continue;
        br_pack_bytes(spans, kept, (size_t)(at - kept));
        kept = p;
    }
    br_pack_bytes(spans, kept, (size_t)(end - kept));
    if (spans->failed)
        return blocks_no_memory(blocks);
    uint32_t len = (uint32_t)(spans->len - length_at - 4);
    memcpy(spans->data + length_at, &len, sizeof len);
    return true;
}

static void blocks_note_times(struct br_blocks *blocks, const struct span *span)
{
    struct br_store_totals *totals = blocks->totals;
    int64_t start = br_sql_time(span->start_ns);
    int64_t duration =
        span->end_ns > span->start_ns ? br_sql_time(span->end_ns - span->start_ns) : 0;
    blocks->min_start = start < blocks->min_start ? start : blocks->min_start;
    blocks->max_start = start > blocks->max_start ? start : blocks->max_start;
    blocks->max_duration = duration > blocks->max_duration ? duration : blocks->max_duration;
    totals->span_from = start < totals->span_from ? start : totals->span_from;
    totals->span_until = start > totals->span_until ? start : totals->span_until;
    totals->n_spans++;
}

static void blocks_put_span(struct br_blocks *blocks, const struct span *span)
{
    struct br_columns *columns = &blocks->columns;
    uint32_t index = columns->n_spans;
    columns->trace[index] = blocks_trace(blocks, span->trace_id);
    columns->operation[index] = blocks_operation(blocks, span->name);
    columns->span_id[index] = span->span_id;
    columns->parent_id[index] = span->parent_id;
    columns->start_ns[index] = span->start_ns;
    columns->end_ns[index] = span->end_ns;
    columns->root[index] = !span->parent_id;
    columns->kind[index] = (uint8_t)(span->kind < 255 ? span->kind : 255);
    columns->status[index] =
        (uint8_t)(span->status < BR_COLUMNS_STATUS_MAX ? span->status : BR_COLUMNS_STATUS_MAX);
    columns->n_spans++;
    blocks->n_roots += span->parent_id == 0;
    blocks->n_failed += span->status == 2;
    blocks_note_times(blocks, span);
}

static int blocks_add_span(struct br_blocks *blocks, const uint8_t *body, const uint8_t *end)
{
    struct span span;
    blocks_enter_heads(blocks);
    if (!blocks_read_span(blocks, body, end, &span) && !blocks->rc)
        return br_err_set(blocks->err, BR_EINVAL, "a span is malformed");
    if (blocks->rc)
        return blocks->rc;
    blocks_put_span(blocks, &span);
    if (blocks->columns.n_spans == BR_BLOCK_SPANS ||
        blocks->spans.len + blocks->heads.len >= BR_BLOCK_BYTES)
        return br_blocks_flush(blocks, blocks->err);
    return blocks->rc;
}

/* --- Parts and scopes ------------------------------------------------------------------------ */

static int blocks_add_scope(struct br_blocks *blocks, const uint8_t *body, const uint8_t *end)
{
    struct br_field field;
    const uint8_t *p = body;
    blocks->scope = (struct br_entry){NULL, 0};
    blocks->scope_head = 0;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_SCOPES_SCOPE))
            blocks->scope =
                blocks_cut_head(blocks, &blocks->cut[1], field.data, (size_t)field.value);
    blocks_list_keys(blocks, BR_KEYS_OF_SCOPES, blocks->scope.data, blocks->scope.len,
                     BR_SCOPE_ATTRIBUTES);
    for (p = body; p && p < end && (p = br_scan(p, end, &field));) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_SCOPES_RECORDS))
            continue;
        int rc = blocks_add_span(blocks, field.data, field.data + field.value);
        if (rc)
            return rc;
    }
    return 0;
}

static int blocks_add_part(struct br_blocks *blocks, const struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    if (!blocks_read_resource(blocks, resource, len))
        return blocks->rc;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_RESOURCES_SCOPES))
            continue;
        int rc = blocks_add_scope(blocks, field.data, field.data + field.value);
        if (rc)
            return rc;
    }
    return 0;
}

int br_blocks_add(struct br_blocks *blocks, const struct br_item *item, struct br_err *err)
{
    int rc = 0;
    blocks->err = err;
    blocks->rc = 0;
    for (uint32_t i = 0; i < item->n_parts && !rc; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = blocks_add_part(blocks, &item->parts[i]);
    br_arena_release(&blocks->arena);
    return rc ? rc : blocks->rc;
}

/* --- A block --------------------------------------------------------------------------------- */

static void blocks_begin(struct br_blocks *blocks)
{
    blocks->columns.n_spans = blocks->columns.n_traces = 0;
    memset(blocks->trace_slots, 0, sizeof blocks->trace_slots);
    br_hashes_clear(&blocks->attributes);
    br_pack_clear(&blocks->spans);
    br_pack_clear(&blocks->heads);
    blocks->n_heads = 0;
    blocks->resource_head = blocks->scope_head = 0;
    blocks->min_start = INT64_MAX;
    blocks->max_start = INT64_MIN;
    blocks->max_duration = 0;
    blocks->n_roots = blocks->n_failed = 0;
}

static bool blocks_insert_numbers(struct br_blocks *blocks, enum br_sql_id id,
                                  const int64_t *numbers, int count)
{
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, id);
    for (int i = 0; statement && i < count; i++)
        (void)sqlite3_bind_int64(statement, i + 1, numbers[i]);
    return blocks_run(blocks, statement);
}

static bool blocks_insert_blob(struct br_blocks *blocks, enum br_sql_id id,
                               const struct br_pack *pack)
{
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, id);
    if (pack->failed)
        return blocks_no_memory(blocks);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, blocks->last_block);
        (void)sqlite3_bind_blob64(statement, 2, pack->len ? pack->data : (const uint8_t *)"",
                                  pack->len, SQLITE_STATIC);
    }
    return blocks_run(blocks, statement);
}

static bool blocks_insert_compressed(struct br_blocks *blocks, enum br_sql_id id,
                                     const struct br_pack *plain)
{
    br_pack_clear(&blocks->packed);
    if (!br_pack_compress(blocks->codec, LEVEL, plain, &blocks->packed))
        return blocks_no_memory(blocks);
    return blocks_insert_blob(blocks, id, &blocks->packed);
}

static void tally_add(struct tally *tally, uint32_t operation, uint64_t duration)
{
    size_t at = operation * 0x9E3779B1u % TALLY_SLOTS;
    while (tally->slots[at] && tally->rows[tally->slots[at] - 1].operation != operation)
        at = (at + 1) % TALLY_SLOTS;
    if (!tally->slots[at]) {
        tally->rows[tally->count].operation = operation;
        tally->rows[tally->count].n_spans = 0;
        tally->rows[tally->count].max_duration = 0;
        tally->slots[at] = (uint16_t)++tally->count;
    }
    uint32_t row = tally->slots[at] - 1u;
    tally->rows[row].n_spans++;
    if (duration > tally->rows[row].max_duration)
        tally->rows[row].max_duration = duration;
}

static bool blocks_insert_operations(struct br_blocks *blocks)
{
    const struct br_columns *columns = &blocks->columns;
    struct tally *tally = &blocks->tally;
    memset(tally->slots, 0, sizeof tally->slots);
    tally->count = 0;
    for (uint32_t i = 0; i < columns->n_spans; i++) {
        uint64_t duration = br_columns_duration(columns, i);
        tally_add(tally, columns->operation[i], duration);
        tally_add(tally, blocks->service_of[columns->operation[i]], duration);
    }
    for (uint32_t i = 0; i < tally->count; i++) {
        int64_t row[] = {tally->rows[i].operation, blocks->last_block, tally->rows[i].n_spans,
                         br_sql_time(tally->rows[i].max_duration)};
        if (!blocks_insert_numbers(blocks, BR_SQL_BLOCK_OPERATION_ADD, row, 4))
            return false;
    }
    return true;
}

static bool blocks_insert(struct br_blocks *blocks)
{
    const struct br_columns *columns = &blocks->columns;
    int64_t row[] = {++blocks->last_block, blocks->min_start, blocks->max_start,
                     blocks->max_duration, columns->n_spans,  blocks->n_roots,
                     blocks->n_failed};
    if (!blocks_insert_numbers(blocks, BR_SQL_BLOCK_ADD, row, 7) ||
        !blocks_insert_operations(blocks))
        return false;
    for (uint32_t i = 0; i < columns->n_traces; i++) {
        int64_t trace[] = {blocks->trace_hashes[i], blocks->last_block};
        if (!blocks_insert_numbers(blocks, BR_SQL_TRACE_ADD, trace, 2))
            return false;
    }
    /* A body consists of the number of heads (resources and scopes), the heads, and the spans. */
    size_t n_heads = blocks->n_heads;
    br_pack_clear(&blocks->packed);
    struct br_pack body = {.data = NULL};
    br_pack_varint(&body, n_heads);
    br_pack_bytes(&body, blocks->heads.data, blocks->heads.len);
    br_pack_bytes(&body, blocks->spans.data, blocks->spans.len);
    bool good = !body.failed || blocks_no_memory(blocks);
    good = good && blocks_insert_compressed(blocks, BR_SQL_BODY_ADD, &body);
    br_pack_clear(&body);
    br_columns_write(columns, &body);
    good = good && (!body.failed || blocks_no_memory(blocks)) &&
           blocks_insert_compressed(blocks, BR_SQL_COLUMNS_ADD, &body);
    br_pack_clear(&body);
    br_columns_write_facts(columns, &body);
    good = good && blocks_insert_blob(blocks, BR_SQL_FACTS_ADD, &body);
    br_pack_clear(&body);
    br_bloom_write(&blocks->attributes, &body);
    good = good && blocks_insert_blob(blocks, BR_SQL_FILTER_ADD, &body);
    br_pack_release(&body);
    return good;
}

int br_blocks_flush(struct br_blocks *blocks, struct br_err *err)
{
    blocks->err = err;
    if (!blocks->columns.n_spans || blocks->rc)
        return blocks->rc;
    if (blocks_insert(blocks))
        blocks_begin(blocks);
    return blocks->rc;
}

bool br_blocks_full(const struct br_blocks *blocks)
{
    return blocks->last_operation >= BR_OPERATIONS_MAX / 4;
}

/* --- Loading and freeing --------------------------------------------------------------------- */

static bool blocks_load_operation(struct br_blocks *blocks, sqlite3_stmt *statement)
{
    uint64_t number = (uint64_t)sqlite3_column_int64(statement, 0);
    const char *service = (const char *)sqlite3_column_text(statement, 1);
    const char *name = (const char *)sqlite3_column_text(statement, 2);
    size_t service_len = (size_t)sqlite3_column_bytes(statement, 1);
    if (number != blocks->last_operation + 1u) {
        blocks_fail(blocks,
                    br_err_set(blocks->err, BR_EPROTO, "the numbers of its operations have gaps"));
        return false;
    }
    if (br_grow(&blocks->service_of, &blocks->cap_service_of, (size_t)number + 1,
                sizeof *blocks->service_of, BR_OPERATIONS_MAX + 1u))
        return blocks_no_memory(blocks);
    /* The row of a service precedes the rows of its operations, so the service is in the map
     * already. */
    uintptr_t of = (uintptr_t)number;
    int rc = BR_ENOMEM;
    if (!service)
        service = "";
    if (!name) {
        rc = br_map_put(blocks->services, service, service_len, (void *)(uintptr_t)number, NULL);
    } else {
        size_t name_len = (size_t)sqlite3_column_bytes(statement, 2);
        of = (uintptr_t)br_map_get(blocks->services, service, service_len);
        if (blocks_operation_key(blocks, (uint32_t)of, name, name_len))
            rc = br_map_put(blocks->operations, blocks->key_text.data, blocks->key_text.len,
                            (void *)(uintptr_t)number, NULL);
    }
    if (rc)
        return blocks_no_memory(blocks);
    blocks->service_of[number] = (uint32_t)of;
    blocks->last_operation = (uint32_t)number;
    return true;
}

static bool blocks_load_operations(struct br_blocks *blocks)
{
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, BR_SQL_OPERATIONS);
    int rc = 0;
    while (br_sql_row(blocks->sql, statement, &rc, blocks->err))
        if (!blocks_load_operation(blocks, statement))
            return false;
    blocks_fail(blocks, rc);
    return rc == 0;
}

static bool blocks_load_values(struct br_blocks *blocks, struct key *key, bool resource,
                               const char *name, size_t name_len)
{
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, BR_SQL_VALUES);
    int rc = 0;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, key->id);
    while (br_sql_row(blocks->sql, statement, &rc, blocks->err)) {
        const char *value = (const char *)sqlite3_column_text(statement, 0);
        uint64_t hash = br_blocks_attribute_hash(blocks->totals->secret, resource, name, name_len,
                                                 value, (size_t)sqlite3_column_bytes(statement, 0));
        (void)br_hashes_add(&blocks->values, hash);
        key->n_values++;
    }
    blocks_fail(blocks, rc);
    return rc == 0 && (!blocks->values.failed || blocks_no_memory(blocks));
}

static bool blocks_load_keys(struct br_blocks *blocks)
{
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, BR_SQL_KEYS);
    int rc = 0;
    while (br_sql_row(blocks->sql, statement, &rc, blocks->err)) {
        int scope = sqlite3_column_int(statement, 1);
        const char *name = (const char *)sqlite3_column_text(statement, 2);
        size_t len = (size_t)sqlite3_column_bytes(statement, 2);
        struct key *key = br_calloc(1, sizeof *key);
        br_str_clear(&blocks->key_text);
        br_str_putc(&blocks->key_text, (char)('0' + scope));
        br_str_add(&blocks->key_text, name ? name : "", len);
        if (!key || blocks->key_text.failed ||
            br_map_put(blocks->keys, blocks->key_text.data, blocks->key_text.len, key, NULL)) {
            br_free(key);
            return blocks_no_memory(blocks);
        }
        key->id = sqlite3_column_int64(statement, 0);
        if (!blocks_load_values(blocks, key, scope == BR_KEYS_OF_RESOURCES, name ? name : "", len))
            return false;
    }
    blocks_fail(blocks, rc);
    return rc == 0;
}

static void blocks_forget(struct br_blocks *blocks)
{
    br_map_free(blocks->operations, NULL);
    br_map_free(blocks->services, NULL);
    br_map_free(blocks->keys, br_free);
    blocks->operations = blocks->services = blocks->keys = NULL;
    blocks->last_operation = 0;
    br_hashes_release(&blocks->values);
}

int br_blocks_load(struct br_blocks *blocks, struct br_err *err)
{
    int rc = 0;
    blocks->err = err;
    blocks->rc = 0;
    blocks_forget(blocks);
    blocks_begin(blocks);
    blocks->name.data = NULL;
    blocks->operations = br_map_new(BR_OPERATIONS_MAX);
    blocks->services = br_map_new(BR_OPERATIONS_MAX);
    blocks->keys = br_map_new(BR_KEYS_MAX);
    if (!blocks->operations || !blocks->services || !blocks->keys)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    sqlite3_stmt *statement = br_sql_statement(blocks->sql, BR_SQL_BLOCK_LAST);
    if (br_sql_row(blocks->sql, statement, &rc, err)) {
        blocks->last_block = sqlite3_column_int64(statement, 0);
        (void)sqlite3_reset(statement);
    }
    if (!rc && blocks_load_operations(blocks))
        (void)blocks_load_keys(blocks);
    return rc ? rc : blocks->rc;
}

struct br_blocks *br_blocks_new(struct br_sql *sql, struct br_store_totals *totals,
                                struct br_pack_codec *codec)
{
    struct br_blocks *blocks = br_calloc(1, sizeof *blocks);
    if (!blocks)
        return NULL;
    blocks->sql = sql;
    blocks->totals = totals;
    blocks->codec = codec;
    blocks->text.max = TEXT_MAX;
    return blocks;
}

void br_blocks_free(struct br_blocks *blocks)
{
    if (!blocks)
        return;
    blocks_forget(blocks);
    br_hashes_release(&blocks->attributes);
    br_pack_release(&blocks->spans);
    br_pack_release(&blocks->heads);
    br_pack_release(&blocks->packed);
    br_pack_release(&blocks->cut[0]);
    br_pack_release(&blocks->cut[1]);
    br_free(blocks->resource_hashes);
    br_free(blocks->service_of);
    br_free(blocks->service);
    br_str_release(&blocks->text);
    br_str_release(&blocks->key_text);
    br_arena_release(&blocks->arena);
    br_free(blocks);
}
