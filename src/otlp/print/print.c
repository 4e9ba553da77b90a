/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/print/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "otlp/json/number.h"
#include "otlp/print/internal.h"
#include "wire/protobuf.h"

#define SCRATCH_MAX (64u << 20)
#define OUT_MAX_DEFAULT (64u << 20) /* br_str's */
#define CUT_RESERVE 64u             /* for the line that announces the cut */
#define DEPTH_SHOWN 16u

/* --- Lines ---------------------------------------------------------------------------------- */

bool br_print_begin(struct br_printer *printer)
{
    printer->line = printer->out->len;
    return !printer->full;
}

static void print_cut(struct br_printer *printer)
{
    struct br_str *out = printer->out;
    out->len = printer->line;
    if (out->data)
        out->data[out->len] = '\0';
    out->failed = false;
    br_str_puts(out, "... (cut here: the rest does not fit)\n");
    printer->full = true;
}

void br_print_end(struct br_printer *printer)
{
    size_t max = printer->out->max ? printer->out->max : OUT_MAX_DEFAULT;
    br_str_putc(printer->out, '\n');
    if (printer->out->failed || printer->out->len + CUT_RESERVE > max)
        print_cut(printer);
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

/* --- Pieces --------------------------------------------------------------------------------- */

/* Bytes of the control character at `p`, C0, DEL or C1; 0 where there is none. */
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
    br_str_add(out, p + plain, len - plain);
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

void br_print_named_text(struct br_printer *printer, const char *label, const void *text,
                         size_t len)
{
    if (!br_print_begin(printer))
        return;
    br_str_puts(printer->out, label);
    br_print_text(printer->out, text, len);
    br_print_end(printer);
}

void br_print_named_id(struct br_printer *printer, const char *label, ProtobufCBinaryData id)
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

struct br_entry br_print_string(const struct br_printer *printer, int32_t index)
{
    struct br_entry none = {NULL, 0};
    return printer->dictionary && index >= 0
               ? br_dictionary_string(printer->dictionary, (uint32_t)index)
               : none;
}

/* --- Attributes ----------------------------------------------------------------------------- */

#define ANY(name) OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_##name

static void print_add_nested(const struct br_printer *printer, const BR_PB(AnyValue) * value,
                             unsigned depth);

static struct br_entry print_key_of(const struct br_printer *printer, const BR_PB(KeyValue) * left)
{
    if (left->key_strindex != 0)
        return br_print_string(printer, left->key_strindex);
    return (struct br_entry){(const uint8_t *)left->key, (uint32_t)strlen(left->key)};
}

static void print_add_quoted(struct br_str *out, const void *text, size_t len)
{
    br_str_putc(out, '"');
    br_print_text(out, text, len);
    br_str_putc(out, '"');
}

static void print_add_list(const struct br_printer *printer, const BR_PB(AnyValue) * value,
                           unsigned depth)
{
    const BR_PB(ArrayValue) *list = value->array_value;
    br_str_putc(printer->out, '[');
    for (size_t i = 0; i < list->n_values && !printer->out->failed; i++) {
        br_str_puts(printer->out, i ? "," : "");
        print_add_nested(printer, list->values[i], depth + 1);
    }
    br_str_putc(printer->out, ']');
}

static void print_add_map(const struct br_printer *printer, const BR_PB(AnyValue) * value,
                          unsigned depth)
{
    const BR_PB(KeyValueList) *list = value->kvlist_value;
    br_str_putc(printer->out, '{');
    for (size_t i = 0; i < list->n_values && !printer->out->failed; i++) {
        struct br_entry key = print_key_of(printer, list->values[i]);
        br_str_puts(printer->out, i ? "," : "");
        print_add_quoted(printer->out, key.data, key.len);
        br_str_putc(printer->out, ':');
        print_add_nested(printer, list->values[i]->value, depth + 1);
    }
    br_str_putc(printer->out, '}');
}

static void print_add_bytes(struct br_str *out, ProtobufCBinaryData bytes)
{
    br_str_base64(out, bytes.data, bytes.len);
}

/* The value without its type; strings `quoted` inside lists and maps. */
static void print_add_value(const struct br_printer *printer, const BR_PB(AnyValue) * value,
                            bool quoted, unsigned depth)
{
    struct br_str *out = printer->out;
    struct br_entry entry = {NULL, 0};
    switch (value->value_case) {
    case ANY(STRING_VALUE):
        entry = (struct br_entry){(const uint8_t *)value->string_value,
                                  (uint32_t)strlen(value->string_value)};
        break;
    case ANY(STRING_VALUE_STRINDEX):
        entry = br_print_string(printer, value->string_value_strindex);
        break;
    case ANY(BOOL_VALUE):
        br_str_puts(out, value->bool_value ? "true" : "false");
        return;
    case ANY(INT_VALUE):
        br_str_printf(out, "%" PRId64, value->int_value);
        return;
    case ANY(DOUBLE_VALUE):
        br_number_print(out, value->double_value);
        return;
    case ANY(ARRAY_VALUE):
        print_add_list(printer, value, depth);
        return;
    case ANY(KVLIST_VALUE):
        print_add_map(printer, value, depth);
        return;
    case ANY(BYTES_VALUE):
        print_add_bytes(out, value->bytes_value);
        return;
    default:
        br_str_puts(out, quoted ? "null" : "");
        return;
    }
    if (quoted)
        print_add_quoted(out, entry.data, entry.len);
    else
        br_print_text(out, entry.data, entry.len);
}

static void print_add_nested(const struct br_printer *printer, const BR_PB(AnyValue) * value,
                             unsigned depth)
{
    if (depth > DEPTH_SHOWN)
        br_str_puts(printer->out, "...");
    else if (!value)
        br_str_puts(printer->out, "null");
    else
        print_add_value(printer, value, true, depth);
}

static const char *print_type_of(const BR_PB(AnyValue) * value)
{
    switch (value ? value->value_case : ANY(_NOT_SET)) {
    case ANY(STRING_VALUE):
    case ANY(STRING_VALUE_STRINDEX):
        return "Str";
    case ANY(BOOL_VALUE):
        return "Bool";
    case ANY(INT_VALUE):
        return "Int";
    case ANY(DOUBLE_VALUE):
        return "Double";
    case ANY(ARRAY_VALUE):
        return "Slice";
    case ANY(KVLIST_VALUE):
        return "Map";
    case ANY(BYTES_VALUE):
        return "Bytes";
    default:
        return "Empty";
    }
}

void br_print_attribute(struct br_printer *printer, const char *indent, const void *key,
                        size_t key_len, const BR_PB(AnyValue) * value, struct br_entry unit)
{
    if (!br_print_begin(printer))
        return;
    br_str_printf(printer->out, "%s-> ", indent);
    br_print_text(printer->out, key, key_len);
    br_str_printf(printer->out, ": %s(", print_type_of(value));
    if (value)
        print_add_value(printer, value, false, 0);
    br_str_putc(printer->out, ')');
    if (unit.len > 0) {
        br_str_putc(printer->out, ' ');
        br_print_text(printer->out, unit.data, unit.len);
    }
    br_print_end(printer);
}

void br_print_pair(struct br_printer *printer, const void *key, size_t key_len,
                   const BR_PB(AnyValue) * value)
{
    br_str_putc(printer->out, ' ');
    br_print_text(printer->out, key, key_len);
    br_str_putc(printer->out, '=');
    if (value)
        print_add_value(printer, value, false, 0);
}

void br_print_pairs(struct br_printer *printer, BR_PB(KeyValue) *const *attributes, size_t count)
{
    for (size_t i = 0; i < count && !printer->out->failed; i++) {
        struct br_entry key = print_key_of(printer, attributes[i]);
        br_print_pair(printer, key.data, key.len, attributes[i]->value);
    }
}

void br_print_attributes(struct br_printer *printer, const char *heading, const char *indent,
                         BR_PB(KeyValue) *const *attributes, size_t count)
{
    if (count > 0)
        br_print_line(printer, "%s", heading);
    for (size_t i = 0; i < count && !printer->full; i++) {
        struct br_entry key = print_key_of(printer, attributes[i]), unit = {NULL, 0};
        br_print_attribute(printer, indent, key.data, key.len, attributes[i]->value, unit);
    }
}

/* --- Resource and scope --------------------------------------------------------------------- */

static void print_dropped(struct br_printer *printer, const char *indent, uint32_t count)
{
    if (count > 0)
        br_print_line(printer, "%sDroppedAttributesCount: %" PRIu32, indent, count);
}

void br_print_resource(struct br_printer *printer, const BR_PB_RESOURCE *resource,
                       const char *schema_url)
{
    br_print_named_text(printer, "Resource SchemaURL: ", schema_url, strlen(schema_url));
    if (!resource)
        return;
    br_print_attributes(printer, "Resource attributes:", "     ", resource->attributes,
                        resource->n_attributes);
    print_dropped(printer, "", resource->dropped_attributes_count);
}

void br_print_scope(struct br_printer *printer, const BR_PB(InstrumentationScope) * scope,
                    const char *schema_url)
{
    br_print_named_text(
        printer,
        printer->dictionary ? "ScopeProfiles SchemaURL: " : "ScopeSpans SchemaURL: ", schema_url,
        strlen(schema_url));
    if (!scope)
        return;
    if (br_print_begin(printer)) {
        br_str_puts(printer->out, "InstrumentationScope ");
        br_print_text(printer->out, scope->name, strlen(scope->name));
        br_str_putc(printer->out, ' ');
        br_print_text(printer->out, scope->version, strlen(scope->version));
        br_print_end(printer);
    }
    br_print_attributes(printer, "InstrumentationScope attributes:", "     ", scope->attributes,
                        scope->n_attributes);
    print_dropped(printer, "", scope->dropped_attributes_count);
}

/* --- Unpacking ------------------------------------------------------------------------------ */

void *br_print_unpack(struct br_printer *printer, const ProtobufCMessageDescriptor *desc,
                      const uint8_t *data, size_t len)
{
    void *message = protobuf_c_message_unpack(desc, br_arena_pb(&printer->scratch), len, data);
    if (!message)
        br_print_line(printer, "    (%s: too large to print)", desc->short_name);
    return message;
}

void *br_print_unpack_head(struct br_printer *printer, const ProtobufCMessageDescriptor *desc,
                           const uint8_t *data, size_t len, uint32_t left, uint32_t right)
{
    const uint8_t *end = data + len;
    struct br_field field;
    size_t n = 0;
    uint8_t *head = br_arena_alloc(&printer->scratch, len ? len : 1);
    for (const uint8_t *at = data, *next; head && at < end; at = next) {
        next = br_field_next(at, end, &field);
        if (!next)
            break;
        if (field.number == left || field.number == right)
            continue;
        memcpy(head + n, at, (size_t)(next - at));
        n += (size_t)(next - at);
    }
    if (!head) {
        br_print_line(printer, "    (%s: too large to print)", desc->short_name);
        return NULL;
    }
    return br_print_unpack(printer, desc, head, n);
}

const BR_PB_RESOURCE *br_print_part_resource(struct br_printer *printer, const struct br_part *part)
{
    size_t len;
    const uint8_t *data = br_part_resource(part, &len);
    if (!data)
        return NULL;
    return br_print_unpack(printer, &opentelemetry__proto__resource__v1__resource__descriptor, data,
                           len);
}

void br_print_each(struct br_printer *printer, const uint8_t *data, size_t len, uint32_t number,
                   br_print_fn *fn)
{
    const uint8_t *end = data + len;
    struct br_field field;
    unsigned index = 0;
    for (const uint8_t *at = data; at < end && !printer->full;) {
        at = br_field_next(at, end, &field);
        if (!at)
            return;
        if (field.number == number && field.wire == BR_WIRE_LEN)
            fn(printer, index++, field.data, (size_t)field.value);
    }
}

int br_print_parts(struct br_printer *printer, const struct br_item *item, br_print_part_fn *fn)
{
    unsigned index = 0;
    br_arena_init(&printer->scratch, SCRATCH_MAX);
    for (uint32_t i = 0; i < item->n_parts && !printer->full; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind == BR_PART_RESOURCE)
            fn(printer, index++, part, part->raw + part->body_at, part->raw_len - part->body_at);
    }
    br_arena_release(&printer->scratch);
    return printer->out->failed ? BR_ENOMEM : 0;
}
