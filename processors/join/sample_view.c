/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/sample_view.h"

#include <string.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"
#include "base/sum.h"
#include "otlp/fields.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "profile/pair.h"
#include "profile/profile.h"
#include "wire/protobuf.h"

/* --- Texts ------------------------------------------------------------------------------ */

/* longest text, in bytes, whose result is not stored; parsing it again is cheaper */
#define SHORT 64

enum { HASHED = 1, SERVICE = 2, READ_AS_SPAN = 4, READ_AS_TRACE = 8, IS_SPAN = 16, IS_TRACE = 32 };

/* Parse results of a long text. */
struct known {
    unsigned flags;
    uint32_t hash;
    uint64_t service;
    uint8_t span[8], trace[16];
};

void join_texts_init(struct join_texts *texts, const struct join_table *table,
                     const struct br_dictionary_view *view, struct br_arena *arena)
{
    *texts = (struct join_texts){.table = table, .view = view, .arena = arena};
}

void join_texts_release(struct join_texts *texts)
{
    br_map_free(texts->known, NULL);
    texts->known = NULL;
}

struct br_entry join_texts_at(const struct join_texts *texts, uint64_t index)
{
    return texts && texts->view && index <= UINT32_MAX
               ? br_dictionary_string(texts->view, (uint32_t)index)
               : (struct br_entry){NULL, 0};
}

/* Returns the results that are stored for a long text. Returns NULL if there is not enough
 * memory. */
static struct known *sample_view_texts_read(struct join_texts *texts, uint32_t index)
{
    if (!texts->known)
        texts->known = br_map_new(texts->view->count[BR_TABLE_STRING]);
    struct known *known = texts->known ? br_map_get(texts->known, &index, sizeof index) : NULL;
    if (!known && texts->known && !texts->no_memory) {
        known = br_arena_calloc(texts->arena, 1, sizeof *known);
        if (known && br_map_put(texts->known, &index, sizeof index, known, NULL))
            known = NULL;
    }
    texts->no_memory = texts->no_memory || !known;
    return known;
}

/* Parses text `index` as an id of 8 or 16 bytes (br_hex_id). Returns false if the text is not an
 * id. */
static bool sample_view_texts_id(struct join_texts *texts, uint64_t index, uint8_t *ret,
                                 size_t size)
{
    struct br_entry text = join_texts_at(texts, index);
    bool trace = size == sizeof(struct known){0}.trace;
    unsigned read = trace ? READ_AS_TRACE : READ_AS_SPAN, is = trace ? IS_TRACE : IS_SPAN;
    if (text.len <= SHORT)
        return br_hex_id((const char *)text.data, text.len, ret, size);
    struct known *known = sample_view_texts_read(texts, (uint32_t)index);
    if (!known)
        return false;
    uint8_t *id = trace ? known->trace : known->span;
    if (!(known->flags & read))
        known->flags |= read | (br_hex_id((const char *)text.data, text.len, id, size) ? is : 0);
    if (known->flags & is)
        memcpy(ret, id, size);
    return known->flags & is;
}

uint32_t join_texts_hash(struct join_texts *texts, uint64_t index)
{
    struct br_entry text = join_texts_at(texts, index);
    if (text.len <= SHORT)
        return text.len ? join_table_hash(texts->table, text.data, text.len) : 0;
    struct known *known = sample_view_texts_read(texts, (uint32_t)index);
    if (known && !(known->flags & HASHED)) {
        known->hash = join_table_hash(texts->table, text.data, text.len);
        known->flags |= HASHED;
    }
    return known ? known->hash : 0;
}

uint64_t join_texts_service(struct join_texts *texts, uint64_t index)
{
    struct br_entry text = join_texts_at(texts, index);
    if (text.len <= SHORT)
        return text.len ? join_service_hash(text.data, text.len) : 0;
    struct known *known = sample_view_texts_read(texts, (uint32_t)index);
    if (known && !(known->flags & SERVICE)) {
        known->service = join_service_hash(text.data, text.len);
        known->flags |= SERVICE;
    }
    return known ? known->service : 0;
}

/* --- Labels ----------------------------------------------------------------------------- */

#define NOT_NAMED SIZE_MAX

static size_t sample_view_label_number_of(const char *const *names, size_t count,
                                          struct br_entry key)
{
    for (size_t i = 0; i < count; i++)
        if (names[i] && br_bytes_are(key.data, key.len, names[i]))
            return i;
    return NOT_NAMED;
}

static bool sample_view_label_any_set(const uint8_t *id, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (id[i])
            return true;
    return false;
}

static bool sample_view_label_read_bytes(const uint8_t *data, uint64_t len, uint8_t *out,
                                         size_t size)
{
    if (len != size)
        return false;
    memcpy(out, data, size);
    return sample_view_label_any_set(out, size);
}

/* Reads a span id from an integer. JFR stores span ids as signed 64-bit integers. */
static bool sample_view_label_read_int(uint64_t value, uint8_t *out, size_t size)
{
    if (size != 8 || value == 0)
        return false;
    value = __builtin_bswap64(value);
    memcpy(out, &value, 8);
    return true;
}

static bool sample_view_label_read_one(struct join_texts *texts, struct br_any any, uint8_t *out,
                                       size_t size)
{
    if (any.reference)
        return sample_view_texts_id(texts, any.reference, out, size);
    switch (any.type) {
    case BR_VALUE_STRING:
        return br_hex_id((const char *)any.data, any.len, out, size);
    case BR_VALUE_INT:
        return sample_view_label_read_int(any.number, out, size);
    case BR_VALUE_BYTES:
        return sample_view_label_read_bytes(any.data, any.len, out, size);
    default:
        return false;
    }
}

/* Reads an id from a list, because some translators convert the values of a pprof label to a
 * list. */
static bool sample_view_label_read_list(struct join_texts *texts, struct br_any list, uint8_t *out,
                                        size_t size, bool *ret_several)
{
    const uint8_t *p = list.data, *end = p + list.len;
    struct br_value element;
    uint8_t id[16];
    bool any = false;
    while (!*ret_several && p && (p = br_value_next(p, end, &element))) {
        if (!sample_view_label_read_one(texts, br_any_read(element), id, size))
            continue;
        *ret_several = any && memcmp(out, id, size) != 0;
        if (!any)
            memcpy(out, id, size);
        any = true;
    }
    return any;
}

static bool sample_view_label_read_id(struct join_texts *texts, struct br_value value,
                                      struct join_label *label, size_t size)
{
    struct br_any any = br_any_read(value);
    if (any.type == BR_VALUE_LIST)
        return sample_view_label_read_list(texts, any, label->id, size, &label->several);
    return sample_view_label_read_one(texts, any, label->id, size);
}

static bool sample_view_label_is_estimated(struct join_texts *texts, struct br_entry key,
                                           struct br_value value)
{
    if (!br_text_is(key, BR_SAMPLE_TIME))
        return false;
    struct br_any any = br_any_read(value);
    struct br_entry text = any.reference ? join_texts_at(texts, any.reference)
                                         : (struct br_entry){any.data, (uint32_t)any.len};
    return br_text_is(text, BR_SAMPLE_TIME_ESTIMATED);
}

static void sample_view_label_read_kind(struct join_texts *texts,
                                        const struct join_label_names *names, struct br_entry key,
                                        struct br_value value, struct join_label *label)
{
    size_t n = sample_view_label_number_of(names->own, names->n_own, key);
    if (n != NOT_NAMED) {
        label->kind = JOIN_LABEL_OWN;
        label->number = (uint8_t)n;
        return;
    }
    if (!value.data)
        return;
    if (sample_view_label_is_estimated(texts, key, value)) {
        label->kind = JOIN_LABEL_ESTIMATED;
        return;
    }
    n = sample_view_label_number_of(names->span_id.items, names->span_id.count, key);
    if (n != NOT_NAMED && sample_view_label_read_id(texts, value, label, 8))
        label->kind = JOIN_LABEL_SPAN_ID;
    if (n == NOT_NAMED) {
        n = sample_view_label_number_of(names->trace_id.items, names->trace_id.count, key);
        if (n != NOT_NAMED && sample_view_label_read_id(texts, value, label, 16))
            label->kind = JOIN_LABEL_TRACE_ID;
    }
    label->number = (uint8_t)(n < UINT8_MAX ? n : UINT8_MAX);
}

static struct join_label sample_view_label_read_entry(struct join_texts *texts,
                                                      const struct join_label_names *names,
                                                      const struct br_entry *entry)
{
    struct join_label label = {.where = JOIN_WHERES};
    struct br_keyvalue kv;
    (void)br_keyvalue_read_entry(entry->data, entry->len, &kv);
    struct br_entry key = join_texts_at(texts, kv.key_index);
    if (!key.len)
        return label;
    sample_view_label_read_kind(texts, names, key, kv.value, &label);
    enum join_where where = join_where_of(key.data, key.len);
    if (where < JOIN_WHERES && kv.value.data) {
        label.where = (uint8_t)where;
        label.hash = join_where_value(texts->table, where, kv.value.data, kv.value.len, texts);
    }
    return label;
}

struct join_label *join_labels_read(struct join_texts *texts, const struct join_label_names *names,
                                    struct br_arena *arena, bool *ret_any)
{
    const struct br_dictionary_view *view = texts->view;
    uint32_t n = view->count[BR_TABLE_ATTRIBUTE];
    struct join_label *labels = br_arena_calloc(arena, n, sizeof *labels);
    bool any = false;
    if (labels && n)
        labels[0].where = JOIN_WHERES;
    for (uint32_t i = 1; labels && i < n; i++) {
        labels[i] =
            sample_view_label_read_entry(texts, names, &view->tables[BR_TABLE_ATTRIBUTE][i]);
        any = any || labels[i].kind || labels[i].where < JOIN_WHERES;
    }
    *ret_any = any;
    return labels;
}

/* --- Values ----------------------------------------------------------------------------- */

#define NAME_MAX_LEN 159

static void sample_view_value_type_read_texts(const struct br_dictionary_view *view,
                                              const struct br_field *value_type,
                                              struct br_entry *type, struct br_entry *unit)
{
    const uint8_t *p = value_type->data, *end = p + value_type->value;
    struct br_field field;
    while (p < end && (p = br_field_next(p, end, &field))) {
        if (field.number == BR_VALUE_TYPE_TYPE)
            *type = br_dictionary_string(view, (uint32_t)field.value);
        else if (field.number == BR_VALUE_TYPE_UNIT)
            *unit = br_dictionary_string(view, (uint32_t)field.value);
    }
}

static uint64_t sample_view_value_type_time_unit(struct br_entry unit)
{
    if (br_text_is(unit, "nanoseconds") || br_text_is(unit, "ns"))
        return 1;
    if (br_text_is(unit, "microseconds") || br_text_is(unit, "us"))
        return 1000;
    if (br_text_is(unit, "milliseconds") || br_text_is(unit, "ms"))
        return 1000000;
    if (br_text_is(unit, "seconds") || br_text_is(unit, "s"))
        return 1000000000;
    return 0;
}

static bool sample_view_value_type_is_cpu(struct br_entry type)
{
    return br_text_is(type, "cpu") || br_text_is(type, "itimer") || br_text_is(type, "process_cpu");
}

/* Returns true for types whose values are allocated bytes: "alloc_space" of Go and pprof,
 * "alloc_in_new_tlab_bytes" of JFR, and similar types. */
static bool sample_view_value_type_is_allocation(struct br_entry type)
{
    return type.len >= 5 && memcmp(type.data, "alloc", 5) == 0;
}

static uint16_t sample_view_value_type_type_number(struct join_table *table, struct br_entry type,
                                                   struct br_entry unit)
{
    char name[NAME_MAX_LEN + 1];
    struct br_str text = {.data = name, .cap = sizeof name, .max = NAME_MAX_LEN, .fixed = true};
    br_str_add(&text, type.data, type.len);
    br_str_putc(&text, ':');
    br_str_add(&text, unit.data, unit.len);
    return join_table_type(table, name, br_utf8_valid((const uint8_t *)name, text.len));
}

void join_value_type_read(struct join_table *table, const struct br_dictionary_view *view,
                          const uint8_t *p, const uint8_t *end, struct join_value_type *ret)
{
    struct br_entry type = {0}, unit = {0}, period_type = {0}, period_unit = {0};
    struct br_field field;
    int64_t period = 0;
    struct join_value_type value_type = {.measure = JOIN_OTHER};
    while (p < end && (p = br_scan(p, end, &field))) {
        if (field.number == BR_PROFILE_SAMPLE_TYPE) {
            sample_view_value_type_read_texts(view, &field, &type, &unit);
        } else if (field.number == BR_PROFILE_PERIOD_TYPE) {
            sample_view_value_type_read_texts(view, &field, &period_type, &period_unit);
        } else if (field.number == BR_PROFILE_PERIOD) {
            period = (int64_t)field.value;
        } else if (field.number == BR_PROFILE_PROFILE_ID) {
            value_type.has_profile_id = field.value == sizeof value_type.profile_id;
            if (value_type.has_profile_id)
                memcpy(value_type.profile_id, field.data, sizeof value_type.profile_id);
        }
    }
    value_type.type = sample_view_value_type_type_number(table, type, unit);
    value_type.unit_ns = sample_view_value_type_time_unit(unit);
    value_type.counts = br_text_is(unit, "count");
    value_type.allocates = br_text_is(unit, "bytes") && sample_view_value_type_is_allocation(type);
    if (period > 0)
        value_type.period_ns =
            br_product_unsigned((uint64_t)period, sample_view_value_type_time_unit(period_unit));
    if (value_type.period_ns == UINT64_MAX)
        value_type.period_ns = 0;
    bool cpu = sample_view_value_type_is_cpu(type);
    if (value_type.unit_ns)
        value_type.measure = cpu ? JOIN_CPU_TIME : JOIN_WALL_TIME;
    else if (value_type.counts && value_type.period_ns &&
             sample_view_value_type_is_cpu(period_type) && (cpu || br_text_is(type, "samples")))
        value_type.measure = JOIN_CPU_COUNT;
    else if (value_type.counts && value_type.period_ns && br_text_is(period_type, "wall") &&
             br_text_is(type, "wall"))
        value_type.measure = JOIN_WALL_TIME;
    *ret = value_type;
}

/* --- Samples ---------------------------------------------------------------------------- */

struct reader {
    const struct br_dictionary_view *view;
    const struct join_label *labels;
    struct join_sample_view *sample_view;
    /* true if several different ids were found in the labels that take precedence */
    bool several_spans, several_traces;
};

/* Stores the id of a label, unless the sample has an id from a label name that comes earlier in the
 * configured list. */
static void sample_view_set_id(const struct join_label *label, size_t size, const uint8_t **id,
                               uint8_t *number, bool *several)
{
    if (*id && label->number > *number)
        return;
    if (*id && label->number == *number) {
        *several = *several || label->several || memcmp(*id, label->id, size) != 0;
        return;
    }
    *id = label->id;
    *number = label->number;
    *several = label->several;
}

static void sample_view_apply_label(void *arg, uint64_t index)
{
    struct reader *reader = arg;
    struct join_sample_view *view = reader->sample_view;
    if (index >= reader->view->count[BR_TABLE_ATTRIBUTE])
        return;
    const struct join_label *label = &reader->labels[index];
    if (label->where < JOIN_WHERES)
        view->where.hashes[label->where] = label->hash;
    if (label->kind == JOIN_LABEL_ESTIMATED)
        view->estimated = true;
    else if (label->kind == JOIN_LABEL_OWN)
        view->has_keys |= 1u << label->number;
    else if (label->kind == JOIN_LABEL_SPAN_ID)
        sample_view_set_id(label, 8, &view->span_id, &view->span_number, &reader->several_spans);
    else if (label->kind == JOIN_LABEL_TRACE_ID)
        sample_view_set_id(label, 16, &view->trace_id, &view->trace_number,
                           &reader->several_traces);
}

static void sample_view_add_value(void *arg, uint64_t value)
{
    struct join_sample_view *view = arg;
    view->n_values++;
    if ((int64_t)value > 0)
        view->value = br_sum_unsigned(view->value, value);
}

/* Calls `fn` for each number of a repeated varint field, packed or not. */
static inline void sample_view_each(const struct br_field *field,
                                    void (*fn)(void *arg, uint64_t value), void *arg)
{
    if (field->wire == BR_WIRE_VARINT) {
        fn(arg, field->value);
        return;
    }
    const uint8_t *p = field->data, *end = p + field->value;
    uint64_t value;
    while (p < end && (p = br_varint(p, end, &value)))
        fn(arg, value);
}

/* longest link, in bytes, whose result is not stored; parsing it again is cheaper */
#define SHORT 64

/* The ids of a link. An id is NULL if it is absent, has a wrong length, or is all zeros. */
struct link {
    const uint8_t *trace, *span;
};

static struct link sample_view_link_read(const struct br_entry *entry)
{
    static const uint8_t none[16];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct link link = {NULL, NULL};
    struct br_field field;
    br_steps_add(entry->len);
    while (p < end && (p = br_field_next(p, end, &field))) {
        if (field.number == BR_LINK_TRACE_ID)
            link.trace = field.value == 16 ? field.data : NULL;
        else if (field.number == BR_LINK_SPAN_ID)
            link.span = field.value == 8 ? field.data : NULL;
    }
    if (link.span && memcmp(link.span, none, 8) == 0)
        link.span = NULL;
    if (link.trace && memcmp(link.trace, none, 16) == 0)
        link.trace = NULL;
    return link;
}

/* Reads a link that contains more than its ids. The result is stored, because any number of
 * samples may refer to the link. */
static struct link sample_view_link_read_long(struct join_links *links, uint32_t index)
{
    if (!links->known)
        links->known = br_map_new(links->view->count[BR_TABLE_LINK]);
    struct link *link = links->known ? br_map_get(links->known, &index, sizeof index) : NULL;
    if (!link && links->known && !links->no_memory) {
        link = br_arena_alloc(links->arena, sizeof *link);
        if (link)
            *link = sample_view_link_read(&links->view->tables[BR_TABLE_LINK][index]);
        if (link && br_map_put(links->known, &index, sizeof index, link, NULL))
            link = NULL;
    }
    links->no_memory = links->no_memory || !link;
    return link ? *link : (struct link){NULL, NULL};
}

/* Stores the ids of a link. They take precedence: the ids of labels are used only if the link does
 * not contain them. */
static void sample_view_apply_link(struct join_links *links, uint64_t index, struct reader *reader)
{
    struct join_sample_view *view = reader->sample_view;
    if (index == 0 || index >= links->view->count[BR_TABLE_LINK])
        return;
    const struct br_entry *entry = &links->view->tables[BR_TABLE_LINK][index];
    struct link link = entry->len <= SHORT ? sample_view_link_read(entry)
                                           : sample_view_link_read_long(links, (uint32_t)index);
    if (link.trace) {
        view->trace_id = link.trace;
        reader->several_traces = false;
    }
    if (link.span) {
        view->linked = true;
        view->span_id = link.span;
        reader->several_spans = false;
    }
}

void join_links_release(struct join_links *links)
{
    br_map_free(links->known, NULL);
    links->known = NULL;
}

/* Initializes the fields one by one, because the instruction that would zero the whole struct is
 * slow to start. */
static inline void sample_view_begin(struct join_sample_view *view, const uint8_t *body,
                                     const uint8_t *end)
{
    view->body = body;
    view->end = end;
    view->trace_id = view->span_id = NULL;
    view->trace_number = view->span_number = 0;
    view->linked = view->ambiguous = view->estimated = false;
    view->has_keys = view->stack = 0;
    view->value = view->n_values = view->n_times = 0;
    for (int i = 0; i < JOIN_WHERES; i++)
        view->where.hashes[i] = 0;
}

void join_sample_view_of(struct join_links *links, const struct join_label *labels,
                         const uint8_t *p, const uint8_t *end, struct join_sample_view *ret)
{
    struct reader reader = {.view = links->view, .labels = labels, .sample_view = ret};
    struct br_field field;
    uint64_t link = 0;
    sample_view_begin(ret, p, end);
    while (p < end && (p = br_scan(p, end, &field))) {
        if (field.number == BR_SAMPLE_STACK)
            ret->stack = (uint32_t)field.value;
        else if (field.number == BR_SAMPLE_ATTRIBUTES && labels)
            sample_view_each(&field, sample_view_apply_label, &reader);
        else if (field.number == BR_SAMPLE_LINK)
            link = field.value;
        else if (field.number == BR_SAMPLE_VALUES)
            sample_view_each(&field, sample_view_add_value, ret);
        else if (field.number == BR_SAMPLE_TIMES)
            ret->n_times += field.wire == BR_WIRE_LEN ? field.value / 8 : 1;
    }
    sample_view_apply_link(links, link, &reader);
    ret->ambiguous = ret->span_id && (reader.several_spans || reader.several_traces);
    if (ret->ambiguous)
        ret->span_id = ret->trace_id = NULL;
}

static void sample_view_put_number(void *arg, uint64_t value)
{
    uint64_t **at = arg;
    *(*at)++ = value;
}

void join_sample_view_values(const struct join_sample_view *view, uint64_t *ret)
{
    const uint8_t *p = view->body;
    struct br_field field;
    while (p < view->end && (p = br_field_next(p, view->end, &field)))
        if (field.number == BR_SAMPLE_VALUES)
            sample_view_each(&field, sample_view_put_number, &ret);
}

void join_sample_view_times(const struct join_sample_view *view, uint64_t *ret)
{
    const uint8_t *p = view->body;
    struct br_field field;
    while (p < view->end && (p = br_field_next(p, view->end, &field))) {
        if (field.number == BR_SAMPLE_TIMES && field.wire == BR_WIRE_LEN)
            for (uint64_t i = 0; i + 8 <= field.value; i += 8)
                *ret++ = br_load64(field.data + i);
        else if (field.number == BR_SAMPLE_TIMES)
            *ret++ = field.value;
    }
}

/* --- Splitting --- */

/* The pieces of a split sample may together have at most this many times the bytes of the sample.
 * Each piece repeats the fields that all pieces have in common. */
#define PIECES_GROW 8u

static bool sample_view_split_is_common(const struct br_field *field)
{
    return field->number != BR_SAMPLE_VALUES && field->number != BR_SAMPLE_TIMES;
}

/* Writes the fields that all pieces have in common and returns their length. If `out` is NULL,
 * only returns the length. */
static size_t sample_view_split_common(const struct join_sample_view *view, uint8_t *out)
{
    const uint8_t *p = view->body;
    size_t len = 0;
    struct br_field field;
    for (const uint8_t *at = p; p < view->end && (p = br_field_next(p, view->end, &field));
         at = p) {
        if (!sample_view_split_is_common(&field))
            continue;
        if (out)
            br_put_bytes(out + len, at, (size_t)(p - at));
        len += (size_t)(p - at);
    }
    return len;
}

struct piece {
    const uint8_t *common;
    size_t common_len;
    const uint64_t *times, *values;
    uint64_t n_times, n_values;
};

static uint8_t *sample_view_split_put(uint8_t *out, const struct piece *piece)
{
    size_t values_len = 0, times_len = piece->n_times * sizeof *piece->times;
    for (uint64_t i = 0; i < piece->n_values; i++)
        values_len += br_varint_size(piece->values[i]);
    size_t len = piece->common_len + br_len_size(BR_SAMPLE_TIMES, times_len) +
                 (piece->n_values ? br_len_size(BR_SAMPLE_VALUES, values_len) : 0);
    out = br_put_varint(out, BR_TAG(BR_PROFILE_SAMPLES, BR_WIRE_LEN));
    out = br_put_varint(out, len);
    out = piece->common_len ? br_put_bytes(out, piece->common, piece->common_len) : out;
    if (piece->n_values) {
        out = br_put_varint(out, BR_TAG(BR_SAMPLE_VALUES, BR_WIRE_LEN));
        out = br_put_varint(out, values_len);
    }
    for (uint64_t i = 0; i < piece->n_values; i++)
        out = br_put_varint(out, piece->values[i]);
    return br_put_len(out, BR_SAMPLE_TIMES, piece->times, times_len);
}

uint32_t join_sample_view_split(const struct join_sample_view *view, const uint64_t *times,
                                const uint64_t *numbers, struct br_arena *arena,
                                struct br_addition *ret, uint64_t *n_cut)
{
    uint64_t n = view->n_times, n_pieces = 1;
    if (n < 2 || n > UINT32_MAX || (view->n_values && view->n_values != n))
        return 0;
    for (uint64_t i = 1; i < n; i++)
        n_pieces += numbers[i] != numbers[i - 1];
    size_t common_len = sample_view_split_common(view, NULL),
           all = (size_t)(view->end - view->body);
    if (n_pieces == 1)
        return 0;
    if (n_pieces * (common_len + 3 * BR_VARINT_MAX) > PIECES_GROW * all) {
        ++*n_cut;
        return 0;
    }
    uint8_t *common = br_arena_alloc(arena, common_len + 1);
    uint64_t *values = br_arena_alloc(arena, (view->n_values + 1) * sizeof *values);
    size_t cap = n_pieces * (common_len + 6 * BR_VARINT_MAX) + n * (8 + BR_VARINT_MAX);
    uint8_t *out = br_arena_alloc(arena, cap), *p = out;
    if (!common || !values || !out)
        return 0;
    (void)sample_view_split_common(view, common);
    join_sample_view_values(view, values);
    for (uint64_t i = 0, from = 0; i < n; i++) {
        if (i + 1 < n && numbers[i + 1] == numbers[from])
            continue;
        p = sample_view_split_put(p,
                                  &(struct piece){.common = common,
                                                  .common_len = common_len,
                                                  .times = times + from,
                                                  .values = values + from,
                                                  .n_times = i + 1 - from,
                                                  .n_values = view->n_values ? i + 1 - from : 0});
        from = i + 1;
    }
    *ret = (struct br_addition){out, (size_t)(p - out)};
    return (uint32_t)n_pieces;
}

/* --- Functions -------------------------------------------------------------------------- */

void join_leaves_init(struct join_leaves *leaves, struct join_table *table,
                      const struct br_dictionary_view *view, struct br_arena *arena)
{
    leaves->table = table;
    leaves->view = view;
    leaves->stacks = br_arena_calloc(arena, view->count[BR_TABLE_STACK], sizeof *leaves->stacks);
    leaves->locations =
        br_arena_calloc(arena, view->count[BR_TABLE_LOCATION], sizeof *leaves->locations);
    leaves->functions =
        br_arena_calloc(arena, view->count[BR_TABLE_FUNCTION], sizeof *leaves->functions);
}

/* Returns the first number in field `field_number` of a dictionary entry; 0 if the field is
 * absent. */
static uint64_t sample_view_leaf_first_number(const struct br_dictionary_view *view,
                                              enum br_table table, uint64_t index,
                                              uint32_t field_number)
{
    if (index >= view->count[table])
        return 0;
    const struct br_entry *entry = &view->tables[table][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field;
    uint64_t number = 0;
    br_steps_add(entry->len);
    while (p < end && (p = br_field_next(p, end, &field))) {
        if (field.number != field_number)
            continue;
        if (field.wire == BR_WIRE_VARINT)
            return field.value;
        if (field.value && br_varint(field.data, field.data + field.value, &number))
            return number;
    }
    return 0;
}

/* Returns the index of the function in the first line of a location. */
static uint64_t sample_view_leaf_function_of(const struct br_dictionary_view *view,
                                             uint64_t location)
{
    if (location >= view->count[BR_TABLE_LOCATION])
        return 0;
    const struct br_entry *entry = &view->tables[BR_TABLE_LOCATION][location];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field, g;
    uint64_t function = 0;
    br_steps_add(entry->len);
    while (p < end && (p = br_field_next(p, end, &field))) {
        if (field.number != BR_LOCATION_LINES)
            continue;
        const uint8_t *q = field.data, *q_end = br_field_end(&field);
        while (q < q_end && (q = br_field_next(q, q_end, &g)))
            if (g.number == BR_LINE_FUNCTION)
                function = g.value;
        return function;
    }
    return 0;
}

/* Stores `number` + 1 in `*known`, because 0 means "not computed yet". JOIN_FUNCTION_OTHER is
 * stored unchanged: no other number is that large. */
static uint32_t sample_view_leaf_note(uint32_t *known, uint32_t number)
{
    *known = number == JOIN_FUNCTION_OTHER ? number : number + 1;
    return number;
}

static uint32_t sample_view_leaf_recall(uint32_t known)
{
    return known == JOIN_FUNCTION_OTHER ? known : known - 1;
}

static uint32_t sample_view_leaf_name_of(const struct join_leaves *leaves, uint64_t function)
{
    uint64_t name =
        sample_view_leaf_first_number(leaves->view, BR_TABLE_FUNCTION, function, BR_FUNCTION_NAME);
    struct br_entry text = br_dictionary_string(leaves->view, (uint32_t)name);
    return text.len ? join_table_function(leaves->table, text.data, text.len) : 0;
}

static uint32_t sample_view_leaf_of_function(struct join_leaves *leaves, uint64_t function)
{
    if (!function || function >= leaves->view->count[BR_TABLE_FUNCTION])
        return 0;
    uint32_t *known = &leaves->functions[function];
    return *known ? sample_view_leaf_recall(*known)
                  : sample_view_leaf_note(known, sample_view_leaf_name_of(leaves, function));
}

static uint32_t sample_view_leaf_of_location(struct join_leaves *leaves, uint64_t location)
{
    if (!location || location >= leaves->view->count[BR_TABLE_LOCATION])
        return 0;
    uint32_t *known = &leaves->locations[location];
    return *known ? sample_view_leaf_recall(*known)
                  : sample_view_leaf_note(
                        known, sample_view_leaf_of_function(
                                   leaves, sample_view_leaf_function_of(leaves->view, location)));
}

uint32_t join_leaf_of(struct join_leaves *leaves, uint32_t stack)
{
    if (!leaves->stacks || !leaves->locations || !leaves->functions ||
        stack >= leaves->view->count[BR_TABLE_STACK])
        return 0;
    uint32_t *known = &leaves->stacks[stack];
    return *known
               ? sample_view_leaf_recall(*known)
               : sample_view_leaf_note(
                     known, sample_view_leaf_of_location(
                                leaves, sample_view_leaf_first_number(leaves->view, BR_TABLE_STACK,
                                                                      stack, BR_STACK_LOCATIONS)));
}
