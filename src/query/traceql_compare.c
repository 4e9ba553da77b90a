/* SPDX-License-Identifier: Apache-2.0 */
#include "query/traceql_metric.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "otlp/fields.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "query/traceql_internal.h"

#define NAME_MAX_LEN                                                                               \
    512 /* maximum number of bytes of an attribute's name; longer names are truncated */
#define KEY_MAX (1u << 20)

/* Attributes with a dedicated column in a block of Tempo (tempodb/encoding/vparquet5). */
static const struct {
    const char *name;
    enum br_traceql_type type;
} columns[] = {
    {"resource.service.name", BR_TRACEQL_STRING},
    {"resource.k8s.cluster.name", BR_TRACEQL_STRING},
    {"resource.k8s.container.name", BR_TRACEQL_STRING},
    {"resource.k8s.namespace.name", BR_TRACEQL_STRING},
    {"resource.k8s.pod.name", BR_TRACEQL_STRING},
    {"span.http.method", BR_TRACEQL_STRING},
    {"span.http.request.method", BR_TRACEQL_STRING},
    {"span.http.response.status_code", BR_TRACEQL_INT},
    {"span.http.route", BR_TRACEQL_STRING},
    {"span.http.status_code", BR_TRACEQL_INT},
    {"span.http.url", BR_TRACEQL_STRING},
    {"span.server.address", BR_TRACEQL_STRING},
    {"span.server.port", BR_TRACEQL_INT},
    {"span.url.path", BR_TRACEQL_STRING},
    {"span.url.route", BR_TRACEQL_STRING},
};

struct comparing {
    struct br_traceql_comparison *comparison;
    enum br_traceql_side side;
    uint32_t step;
    uint32_t present; /* bit i is set if the span has a value for columns[i] */
    int rc;
};

struct wanted {
    struct comparing *comparing;
    bool is_total;
    const char *name;
    struct br_traceql_value value;
};

void br_traceql_comparison_init(struct br_traceql_comparison *comparison)
{
    br_index_init(&comparison->index, BR_TRACEQL_COMPARED_MAX, BR_HOLDER_STORE);
    br_random_bytes(comparison->index.secret, sizeof comparison->index.secret);
}

void br_traceql_comparison_release(struct br_traceql_comparison *comparison)
{
    br_index_release(&comparison->index);
    br_free(comparison->entries);
    comparison->entries = NULL;
}

/* --- Entries ---------------------------------------------------------------------------------- */

static bool compare_same(const struct br_traceql_value *first,
                         const struct br_traceql_value *second)
{
    if (first->type != second->type)
        return false;
    if (first->type == BR_TRACEQL_STRING)
        return br_bytes_equal(first->text, first->len, second->text, second->len);
    if (first->type == BR_TRACEQL_BOOL)
        return first->boolean == second->boolean;
    /* for FLOAT, the comparison compares the bits of `real`, which shares its memory with
     * `integer` */
    return first->type == BR_TRACEQL_NIL || first->integer == second->integer;
}

static bool compare_is(const void *entries, uint32_t index, const void *key)
{
    const struct br_traceql_comparison *comparison = entries;
    const struct br_traceql_compared *entry = &comparison->entries[index];
    const struct wanted *wanted = key;
    return entry->side == wanted->comparing->side && entry->is_total == wanted->is_total &&
           strcmp(entry->name, wanted->name) == 0 && compare_same(&entry->value, &wanted->value);
}

static uint64_t compare_hash_of(const struct br_traceql_comparison *comparison,
                                enum br_traceql_side side, bool is_total, const char *name,
                                const struct br_traceql_value *value)
{
    const struct br_index *index = &comparison->index;
    uint64_t parts[4] = {(uint64_t)side << 1 | is_total, br_index_hash(index, name, strlen(name)),
                         (uint64_t)value->type};
    if (value->type == BR_TRACEQL_STRING)
        parts[3] = value->len ? br_index_hash(index, value->text, value->len) : 0;
    else if (value->type == BR_TRACEQL_BOOL)
        parts[3] = value->boolean;
    else if (value->type != BR_TRACEQL_NIL)
        parts[3] = (uint64_t)value->integer;
    return br_index_hash(index, parts, sizeof parts);
}

static uint64_t compare_rehash(const void *entries, uint32_t index)
{
    const struct br_traceql_comparison *comparison = entries;
    const struct br_traceql_compared *entry = &comparison->entries[index];
    return compare_hash_of(comparison, entry->side, entry->is_total, entry->name, &entry->value);
}

static int compare_new(struct br_traceql_comparison *comparison, const struct wanted *wanted,
                       uint64_t hash)
{
    if (br_grow(&comparison->entries, &comparison->cap_entries, (size_t)comparison->n_entries + 1,
                sizeof *comparison->entries, BR_TRACEQL_COMPARED_MAX))
        return BR_ENOMEM;
    struct br_traceql_compared entry = {
        .side = wanted->comparing->side, .is_total = wanted->is_total, .value = wanted->value};
    entry.name = br_arena_strndup(comparison->arena, wanted->name, strlen(wanted->name));
    entry.counts = br_arena_calloc(comparison->arena, comparison->n_steps, sizeof *entry.counts);
    if (entry.value.type == BR_TRACEQL_STRING)
        entry.value.text = br_arena_strndup(
            comparison->arena, wanted->value.text ? wanted->value.text : "", wanted->value.len);
    if (!entry.name || !entry.counts ||
        (entry.value.type == BR_TRACEQL_STRING && !entry.value.text))
        return BR_ENOMEM;
    comparison->entries[comparison->n_entries] = entry;
    if (br_index_add(&comparison->index, hash, comparison->n_entries, compare_rehash, comparison))
        return BR_ENOMEM;
    comparison->n_entries++;
    return 0;
}

static void compare_count_one(const struct wanted *wanted)
{
    struct comparing *comparing = wanted->comparing;
    struct br_traceql_comparison *comparison = comparing->comparison;
    uint64_t hash = compare_hash_of(comparison, comparing->side, wanted->is_total, wanted->name,
                                    &wanted->value);
    uint32_t index = br_index_find(&comparison->index, hash, compare_is, comparison, wanted);
    if (comparing->rc)
        return;
    if (index == BR_INDEX_NONE && comparison->n_entries == BR_TRACEQL_COMPARED_MAX) {
        comparison->full = true;
        return;
    }
    if (index == BR_INDEX_NONE) {
        index = comparison->n_entries;
        comparing->rc = compare_new(comparison, wanted, hash);
    }
    if (comparing->rc)
        return;
    comparison->entries[index].counts[comparing->step]++;
    comparison->entries[index].count++;
}

static void compare_count(struct comparing *comparing, const char *name,
                          struct br_traceql_value value)
{
    const struct wanted wanted = {comparing, false, name, value};
    const struct wanted total = {comparing, true, name, {.type = BR_TRACEQL_NIL}};
    compare_count_one(&wanted);
    compare_count_one(&total);
}

static void compare_count_text(struct comparing *comparing, const char *name, const void *text,
                               size_t len)
{
    compare_count(comparing, name,
                  (struct br_traceql_value){.type = BR_TRACEQL_STRING, .text = text, .len = len});
}

/* --- Attributes ------------------------------------------------------------------------------- */

static struct br_traceql_value compare_value(struct br_value value)
{
    const struct br_any any = br_any_read(value);
    struct br_traceql_value ret = {.type = BR_TRACEQL_NIL};
    if (any.type == BR_VALUE_STRING)
        ret = (struct br_traceql_value){
            .type = BR_TRACEQL_STRING, .text = (const char *)any.data, .len = any.len};
    else if (any.type == BR_VALUE_BOOL)
        ret = (struct br_traceql_value){.type = BR_TRACEQL_BOOL, .boolean = any.number != 0};
    else if (any.type == BR_VALUE_INT)
        ret = (struct br_traceql_value){.type = BR_TRACEQL_INT, .integer = (int64_t)any.number};
    else if (any.type == BR_VALUE_DOUBLE) {
        ret.type = BR_TRACEQL_FLOAT;
        memcpy(&ret.real, &any.number, sizeof ret.real);
    }
    return ret;
}

/* Returns true if an attribute's name is written without quotes. Returns false for a name with
 * spaces or special characters. */
static bool compare_is_plain(const uint8_t *key, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (key[i] <= ' ' || strchr("\"\\{}()=~!<>&|^,", key[i]))
            return false;
    return len > 0;
}

static void compare_attributes(struct comparing *comparing, const uint8_t *data, size_t len,
                               uint32_t field, const char *scope)
{
    struct br_keyvalue pair;
    const uint8_t *p = data, *end = data ? data + len : NULL;
    while ((p = br_keyvalue_next(p, end, field, &pair))) {
        char name[NAME_MAX_LEN];
        size_t key_len = pair.key_len < NAME_MAX_LEN / 2
                             ? pair.key_len
                             : br_utf8_valid(pair.key, NAME_MAX_LEN / 2);
        const char *quote = compare_is_plain(pair.key, key_len) ? "" : "\"";
        struct br_str out = {
            .data = name, .cap = sizeof name, .max = sizeof name - 1, .fixed = true};
        br_str_printf(&out, "%s.%s", scope, quote);
        br_str_add(&out, pair.key, key_len);
        br_str_puts(&out, quote);
        const struct br_traceql_value value = compare_value(pair.value);
        compare_count(comparing, name, value);
        for (uint32_t i = 0; i < BR_COUNT(columns); i++)
            if (columns[i].type == value.type && strcmp(columns[i].name, name) == 0)
                comparing->present |= 1u << i;
    }
}

static void compare_columns(struct comparing *comparing)
{
    for (uint32_t i = 0; i < BR_COUNT(columns); i++)
        if (!(comparing->present >> i & 1))
            compare_count(comparing, columns[i].name,
                          (struct br_traceql_value){.type = BR_TRACEQL_NIL});
}

/* Returns the bytes of the first length-delimited field with this number in a message. */
static struct br_value compare_text(const uint8_t *data, size_t len, uint32_t number)
{
    struct br_field field;
    const uint8_t *p = data, *end = data ? data + len : NULL;
    while (p < end && (p = br_scan(p, end, &field)))
        if (field.number == number && field.wire == BR_WIRE_LEN)
            return (struct br_value){field.data, (size_t)field.value};
    return (struct br_value){0};
}

static void compare_intrinsics(struct comparing *comparing, const struct br_traceql_trace *trace,
                               const struct br_traceql_span *span,
                               const struct br_span_bytes *bytes)
{
    const struct br_stored_span *row = span->row;
    const struct br_value status = compare_text(bytes->span, bytes->span_len, BR_SPAN_STATUS),
                          message = compare_text(status.data, status.len, BR_SPAN_STATUS_MESSAGE),
                          name = compare_text(bytes->scope, bytes->scope_len, BR_SCOPE_NAME),
                          version = compare_text(bytes->scope, bytes->scope_len, BR_SCOPE_VERSION);
    const char *root_name = trace->root ? trace->root->name : "";
    const char *root_service = trace->root ? trace->root->service : "";
    compare_count_text(comparing, "name", row->name, strlen(row->name));
    compare_count(comparing, "kind",
                  (struct br_traceql_value){.type = BR_TRACEQL_KIND, .integer = row->kind});
    compare_count(comparing, "status",
                  (struct br_traceql_value){.type = BR_TRACEQL_STATUS, .integer = row->status});
    compare_count_text(comparing, "statusMessage", message.data, message.len);
    compare_count(comparing, "span:childCount",
                  (struct br_traceql_value){.type = BR_TRACEQL_INT, .integer = span->n_children});
    compare_count_text(comparing, "rootName", root_name, strlen(root_name));
    compare_count_text(comparing, "rootServiceName", root_service, strlen(root_service));
    compare_count_text(comparing, "instrumentation:name", name.data, name.len);
    compare_count_text(comparing, "instrumentation:version", version.data, version.len);
}

int br_traceql_comparison_add(struct br_traceql_comparison *comparison,
                              const struct br_traceql_trace *trace,
                              const struct br_traceql_span *span, const struct br_span_bytes *bytes,
                              enum br_traceql_side side)
{
    uint64_t start_ns = span->row->start_ns;
    if (start_ns < comparison->start_ns ||
        (start_ns - comparison->start_ns) / comparison->step_ns >= comparison->n_steps)
        return 0;
    struct comparing comparing = {
        .comparison = comparison,
        .side = side,
        .step = (uint32_t)((start_ns - comparison->start_ns) / comparison->step_ns)};
    compare_intrinsics(&comparing, trace, span, bytes);
    compare_attributes(&comparing, bytes->resource, bytes->resource_len, BR_RESOURCE_ATTRIBUTES,
                       "resource");
    compare_attributes(&comparing, bytes->span, bytes->span_len, BR_SPAN_ATTRIBUTES, "span");
    compare_attributes(&comparing, bytes->scope, bytes->scope_len, BR_SCOPE_ATTRIBUTES,
                       "instrumentation");
    compare_columns(&comparing);
    return comparing.rc;
}

static int compare_order(const void *first, const void *second)
{
    const struct br_traceql_compared *a = first, *b = second;
    if (a->is_total != b->is_total)
        return a->is_total ? 1 : -1;
    if (a->side != b->side)
        return a->side < b->side ? -1 : 1;
    int order = strcmp(a->name, b->name);
    if (order)
        return order;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    if (a->value.type != BR_TRACEQL_STRING || b->value.type != BR_TRACEQL_STRING)
        return (a->value.type > b->value.type) - (a->value.type < b->value.type);
    size_t len = a->value.len < b->value.len ? a->value.len : b->value.len;
    order = len ? memcmp(a->value.text, b->value.text, len) : 0;
    return order ? order : (a->value.len > b->value.len) - (a->value.len < b->value.len);
}

void br_traceql_comparison_sort(struct br_traceql_comparison *comparison)
{
    if (comparison->n_entries)
        qsort(comparison->entries, comparison->n_entries, sizeof *comparison->entries,
              compare_order);
}
