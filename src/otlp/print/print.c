/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/print/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/steps.h"
#include "otlp/json/number.h"
#include "otlp/keyvalue.h"
#include "otlp/print/internal.h"
#include "wire/protobuf.h"

#define OUT_MAX_DEFAULT (64u << 20) /* limit in bytes of a br_str that does not set `max` */
#define CUT_RESERVE 64u             /* bytes reserved for the line that reports the truncation */
#define DEPTH_SHOWN 16u
/* maximum number of bytes of dictionary entries that may be read, per byte of the item and of the
 * printed text */
#define READ_SHARE 4u
#define READ_FREE (64u << 10)

/* --- Lines ---------------------------------------------------------------------------------- */

bool br_print_begin(struct br_printer *printer)
{
    printer->line = printer->out->len;
    return !printer->full;
}

static void print_remove_line(struct br_printer *printer)
{
    struct br_str *out = printer->out;
    out->len = printer->line;
    if (out->data)
        out->data[out->len] = '\0';
    out->failed = false;
}

static void print_cut(struct br_printer *printer, const char *why)
{
    print_remove_line(printer);
    br_str_printf(printer->out, "... (cut here: the rest %s)\n", why);
    printer->full = true;
}

/* Returns true if too many bytes of dictionary entries were read. A reference of a few bytes can
 * refer to a long entry that prints little text, so neither the size of the item nor that of the
 * text bounds the work. */
static bool print_read_too_much(const struct br_printer *printer)
{
    return printer->n_read > READ_SHARE * (printer->item_size + printer->out->len) + READ_FREE;
}

void br_print_end(struct br_printer *printer)
{
    size_t max = printer->out->max ? printer->out->max : OUT_MAX_DEFAULT;
    br_str_putc(printer->out, '\n');
    if (printer->out->failed || printer->out->len + CUT_RESERVE > max)
        print_cut(printer, "does not fit");
    else if (print_read_too_much(printer))
        print_cut(printer, "takes too long to read");
}

void br_print_line(struct br_printer *printer, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    if (!br_print_begin(printer))
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    br_str_puts(printer->out, text);
    br_print_end(printer);
}

/* --- Parts of a line ------------------------------------------------------------------------ */

/* Returns the number of bytes of the control character (C0, DEL or C1) at `p`, or 0 if the
 * character at `p` is not a control character. */
static size_t print_control(const uint8_t *p, size_t len)
{
    if (*p < 0x20 || *p == 0x7f)
        return 1;
    return len > 1 && p[0] == 0xc2 && p[1] < 0xa0 ? 2 : 0;
}

void br_print_text(struct br_str *out, const void *text, size_t len)
{
    const uint8_t *p = text;
    size_t plain = 0;
    for (size_t i = 0; i < len;) {
        size_t n = print_control(p + i, len - i);
        if (n == 0) {
            i++;
            continue;
        }
        br_str_add(out, p + plain, i - plain);
        if (p[i] == '\n')
            br_str_puts(out, "\\n");
        else
            br_str_printf(out, "\\x%02x", p[i + n - 1]);
        i += n;
        plain = i;
    }
    br_str_add(out, br_mem_end(p, plain), len - plain);
}

void br_print_time(struct br_str *out, uint64_t unix_ns)
{
    time_t seconds = (time_t)(unix_ns / 1000000000);
    struct tm tm;
    char text[64], fraction[16];
    if (!gmtime_r(&seconds, &tm))
        return;
    (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
    size_t n = (size_t)snprintf(fraction, sizeof fraction, ".%09" PRIu64, unix_ns % 1000000000);
    while (n > 0 && (fraction[n - 1] == '0' || fraction[n - 1] == '.'))
        n--;
    br_str_printf(out, "%s%.*s +0000 UTC", text, (int)n, fraction);
}

void br_print_named_text(struct br_printer *printer, const char *label, struct br_entry text)
{
    if (!br_print_begin(printer))
        return;
    br_str_puts(printer->out, label);
    br_print_text(printer->out, text.data, text.len);
    br_print_end(printer);
}

void br_print_named_id(struct br_printer *printer, const char *label, struct br_entry id)
{
    if (!br_print_begin(printer))
        return;
    br_str_puts(printer->out, label);
    br_str_hex(printer->out, id.data, id.len);
    br_print_end(printer);
}

void br_print_named_time(struct br_printer *printer, const char *label, uint64_t unix_ns)
{
    if (!br_print_begin(printer))
        return;
    br_str_puts(printer->out, label);
    br_print_time(printer->out, unix_ns);
    br_print_end(printer);
}

struct br_entry br_print_string(const struct br_printer *printer, uint64_t index)
{
    struct br_entry none = {NULL, 0};
    return printer->dictionary && index <= UINT32_MAX
               ? br_dictionary_string(printer->dictionary, (uint32_t)index)
               : none;
}

/* --- Attributes ----------------------------------------------------------------------------- */

static void print_add_nested(const struct br_printer *printer, struct br_value value,
                             unsigned depth);

static struct br_entry print_key_of(const struct br_printer *printer, const struct br_keyvalue *at)
{
    if (!at->key_len && at->key_index)
        return br_print_string(printer, at->key_index);
    return (struct br_entry){at->key, (uint32_t)at->key_len};
}

static void print_add_quoted(struct br_str *out, const void *text, size_t len)
{
    br_str_putc(out, '"');
    br_print_text(out, text, len);
    br_str_putc(out, '"');
}

static void print_add_list(const struct br_printer *printer, const struct br_any *list,
                           unsigned depth)
{
    const uint8_t *p = list->data, *end = p + list->len;
    struct br_value value;
    br_str_putc(printer->out, '[');
    for (unsigned i = 0; !printer->out->failed && (p = br_value_next(p, end, &value)); i++) {
        br_str_puts(printer->out, i ? "," : "");
        print_add_nested(printer, value, depth + 1);
    }
    br_str_putc(printer->out, ']');
}

static void print_add_map(const struct br_printer *printer, const struct br_any *map,
                          unsigned depth)
{
    const uint8_t *p = map->data, *end = p + map->len;
    struct br_keyvalue at;
    br_str_putc(printer->out, '{');
    for (unsigned i = 0;
         !printer->out->failed && (p = br_keyvalue_next(p, end, BR_LIST_VALUES, &at)); i++) {
        struct br_entry key = print_key_of(printer, &at);
        br_str_puts(printer->out, i ? "," : "");
        print_add_quoted(printer->out, key.data, key.len);
        br_str_putc(printer->out, ':');
        print_add_nested(printer, at.value, depth + 1);
    }
    br_str_putc(printer->out, '}');
}

/* Appends a value without its type. If `quoted`, strings are written in quotes, as in lists and
 * maps. */
static void print_add_value(const struct br_printer *printer, const struct br_any *any, bool quoted,
                            unsigned depth)
{
    struct br_str *out = printer->out;
    struct br_entry entry = {any->data, (uint32_t)any->len};
    double number;
    switch (any->type) {
    case BR_VALUE_EMPTY:
        if (!any->reference) {
            br_str_puts(out, quoted ? "null" : "");
            return;
        }
        entry = br_print_string(printer, any->reference);
        break;
    case BR_VALUE_STRING:
        break;
    case BR_VALUE_BOOL:
        br_str_puts(out, any->number ? "true" : "false");
        return;
    case BR_VALUE_INT:
        br_str_printf(out, "%" PRId64, (int64_t)any->number);
        return;
    case BR_VALUE_DOUBLE:
        memcpy(&number, &any->number, sizeof number);
        br_number_print(out, number);
        return;
    case BR_VALUE_LIST:
        print_add_list(printer, any, depth);
        return;
    case BR_VALUE_MAP:
        print_add_map(printer, any, depth);
        return;
    case BR_VALUE_BYTES:
        br_str_base64(out, any->data, any->len);
        return;
    }
    if (quoted)
        print_add_quoted(out, entry.data, entry.len);
    else
        br_print_text(out, entry.data, entry.len);
}

static void print_add_nested(const struct br_printer *printer, struct br_value value,
                             unsigned depth)
{
    struct br_any any = br_any_read(value);
    if (depth > DEPTH_SHOWN)
        br_str_puts(printer->out, "...");
    else
        print_add_value(printer, &any, true, depth);
}

static const char *print_type_of(const struct br_any *any)
{
    static const char *const names[] = {"Empty",  "Str",   "Bool", "Int",
                                        "Double", "Slice", "Map",  "Bytes"};
    return any->reference ? "Str" : names[any->type];
}

void br_print_attribute(struct br_printer *printer, const char *indent, struct br_entry key,
                        struct br_value value, struct br_entry unit)
{
    struct br_any any = br_any_read(value);
    if (!br_print_begin(printer))
        return;
    br_str_printf(printer->out, "%s-> ", indent);
    br_print_text(printer->out, key.data, key.len);
    br_str_printf(printer->out, ": %s(", print_type_of(&any));
    print_add_value(printer, &any, false, 0);
    br_str_putc(printer->out, ')');
    if (unit.len > 0) {
        br_str_putc(printer->out, ' ');
        br_print_text(printer->out, unit.data, unit.len);
    }
    br_print_end(printer);
}

void br_print_pair(struct br_printer *printer, struct br_entry key, struct br_value value)
{
    struct br_any any = br_any_read(value);
    br_str_putc(printer->out, ' ');
    br_print_text(printer->out, key.data, key.len);
    br_str_putc(printer->out, '=');
    print_add_value(printer, &any, false, 0);
}

void br_print_pairs(struct br_printer *printer, struct br_entry message, uint32_t number)
{
    const uint8_t *p = message.data, *end = message.len ? p + message.len : p;
    struct br_keyvalue at;
    while (!printer->out->failed && (p = br_keyvalue_next(p, end, number, &at)))
        br_print_pair(printer, print_key_of(printer, &at), at.value);
}

void br_print_attributes(struct br_printer *printer, const char *heading, const char *indent,
                         struct br_entry message, uint32_t number)
{
    const uint8_t *p = message.data, *end = message.len ? p + message.len : p;
    const struct br_entry no_unit = {NULL, 0};
    struct br_keyvalue at;
    for (bool first = true; !printer->full && (p = br_keyvalue_next(p, end, number, &at));
         first = false) {
        if (first)
            br_print_line(printer, "%s", heading);
        br_print_attribute(printer, indent, print_key_of(printer, &at), at.value, no_unit);
    }
}

/* --- Resource and scope --------------------------------------------------------------------- */

static void print_dropped(struct br_printer *printer, uint64_t count)
{
    if (count > 0)
        br_print_line(printer, "DroppedAttributesCount: %" PRIu32, (uint32_t)count);
}

void br_print_resource(struct br_printer *printer, struct br_entry resource,
                       struct br_entry schema_url)
{
    struct br_print_fields fields;
    br_print_read(resource, &fields);
    br_print_named_text(printer, "Resource SchemaURL: ", schema_url);
    br_print_attributes(printer, "Resource attributes:", "     ", resource, BR_RESOURCE_ATTRIBUTES);
    print_dropped(printer, br_print_number(&fields, BR_RESOURCE_DROPPED_ATTRIBUTES));
}

void br_print_scope(struct br_printer *printer, const struct br_print_fields *head)
{
    struct br_entry scope = br_print_bytes(head, BR_SCOPES_SCOPE);
    struct br_print_fields fields;
    br_print_named_text(
        printer, printer->dictionary ? "ScopeProfiles SchemaURL: " : "ScopeSpans SchemaURL: ",
        br_print_bytes(head, BR_SCOPES_SCHEMA_URL));
    if (!scope.data)
        return;
    br_print_read(scope, &fields);
    if (br_print_begin(printer)) {
        struct br_entry name = br_print_bytes(&fields, BR_SCOPE_NAME);
        struct br_entry version = br_print_bytes(&fields, BR_SCOPE_VERSION);
        br_str_puts(printer->out, "InstrumentationScope ");
        br_print_text(printer->out, name.data, name.len);
        br_str_putc(printer->out, ' ');
        br_print_text(printer->out, version.data, version.len);
        br_print_end(printer);
    }
    br_print_attributes(printer, "InstrumentationScope attributes:", "     ", scope,
                        BR_SCOPE_ATTRIBUTES);
    print_dropped(printer, br_print_number(&fields, BR_SCOPE_DROPPED_ATTRIBUTES));
}

/* --- Messages ------------------------------------------------------------------------------- */

void br_print_read(struct br_entry message, struct br_print_fields *ret)
{
    const uint8_t *p = message.data, *end = message.len ? p + message.len : p;
    struct br_field field;
    *ret = (struct br_print_fields){0};
    while (p < end && (p = br_field_next(p, end, &field)))
        if (field.number < BR_PRINT_FIELDS)
            ret->last[field.number] = field;
}

struct br_entry br_print_bytes(const struct br_print_fields *fields, uint32_t number)
{
    const struct br_field *field = &fields->last[number];
    bool present = field->number && field->wire == BR_WIRE_LEN;
    return present ? (struct br_entry){field->data, (uint32_t)field->value}
                   : (struct br_entry){NULL, 0};
}

uint64_t br_print_number(const struct br_print_fields *fields, uint32_t number)
{
    const struct br_field *field = &fields->last[number];
    return field->wire == BR_WIRE_LEN ? 0 : field->value;
}

struct br_entry br_print_part_resource(const struct br_part *part)
{
    size_t len;
    const uint8_t *data = br_part_resource(part, &len);
    return (struct br_entry){data, data ? (uint32_t)len : 0};
}

unsigned br_print_each(struct br_printer *printer, struct br_entry message, uint32_t number,
                       br_print_fn *fn)
{
    const uint8_t *p = message.data, *end = message.len ? p + message.len : p;
    struct br_field field;
    unsigned index = 0;
    while (p < end && !printer->full && (p = br_field_next(p, end, &field)))
        if (field.number == number && field.wire == BR_WIRE_LEN)
            fn(printer, index++, (struct br_entry){field.data, (uint32_t)field.value});
    return index;
}

bool br_print_list_next(struct br_print_list *list, uint64_t *ret)
{
    struct br_field field;
    while (list->packed == list->packed_end) {
        if (list->p == list->end || !(list->p = br_field_next(list->p, list->end, &field))) {
            list->p = list->end;
            return false;
        }
        if (field.number != list->number)
            continue;
        *ret = field.value;
        if (field.wire != BR_WIRE_LEN)
            return true;
        list->packed = field.data;
        list->packed_end = field.data + field.value;
    }
    if (list->fixed) {
        bool whole = list->packed_end - list->packed >= 8;
        *ret = whole ? br_load64(list->packed) : 0;
        list->packed = whole ? list->packed + 8 : list->packed_end;
        return whole;
    }
    list->packed = br_varint(list->packed, list->packed_end, ret);
    if (!list->packed)
        list->packed = list->packed_end = list->p = list->end;
    return list->packed != NULL;
}

void br_print_list_end(struct br_printer *printer, size_t count, size_t shown)
{
    if (count > shown)
        br_str_printf(printer->out, ", and %zu more", count - shown);
    if (count)
        br_print_end(printer);
    else
        print_remove_line(printer);
}

struct br_entry br_print_entry(struct br_printer *printer, enum br_table table, uint64_t index)
{
    const struct br_dictionary_view *view = printer->dictionary;
    if (index == 0 || index >= view->count[table] || print_read_too_much(printer))
        return (struct br_entry){NULL, 0};
    printer->n_read += view->tables[table][index].len;
    br_steps_add(view->tables[table][index].len);
    return view->tables[table][index];
}

int br_print_parts(struct br_printer *printer, const struct br_item *item, br_print_part_fn *fn)
{
    unsigned index = 0;
    printer->item_size = item->size;
    for (uint32_t i = 0; i < item->n_parts && !printer->full; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind == BR_PART_RESOURCE)
            fn(printer, index++, part,
               (struct br_entry){part->raw + part->body_at,
                                 (uint32_t)(part->raw_len - part->body_at)});
    }
    return printer->out->failed ? BR_ENOMEM : 0;
}
