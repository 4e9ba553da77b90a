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

bool br_print_begin(struct br_printer *p)
{
    p->line = p->out->len;
    return !p->full;
}

static void cut(struct br_printer *p)
{
    struct br_str *out = p->out;
    out->len = p->line;
    if (out->data)
        out->data[out->len] = '\0';
    out->failed = false;
    br_str_puts(out, "... (cut here: the rest does not fit)\n");
    p->full = true;
}

void br_print_end(struct br_printer *p)
{
    size_t max = p->out->max ? p->out->max : OUT_MAX_DEFAULT;
    br_str_putc(p->out, '\n');
    if (p->out->failed || p->out->len + CUT_RESERVE > max)
        cut(p);
}

void br_print_line(struct br_printer *p, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    if (!br_print_begin(p))
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    br_str_puts(p->out, text);
    br_print_end(p);
}

/* --- Pieces --------------------------------------------------------------------------------- */

/* Bytes of the control character at `p`, C0, DEL or C1; 0 where there is none. */
static size_t control(const uint8_t *p, size_t len)
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
        size_t n = control(p + i, len - i);
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

void br_print_named_text(struct br_printer *p, const char *label, const void *text, size_t len)
{
    if (!br_print_begin(p))
        return;
    br_str_puts(p->out, label);
    br_print_text(p->out, text, len);
    br_print_end(p);
}

void br_print_named_id(struct br_printer *p, const char *label, ProtobufCBinaryData id)
{
    if (!br_print_begin(p))
        return;
    br_str_puts(p->out, label);
    br_str_hex(p->out, id.data, id.len);
    br_print_end(p);
}

void br_print_named_time(struct br_printer *p, const char *label, uint64_t unix_ns)
{
    if (!br_print_begin(p))
        return;
    br_str_puts(p->out, label);
    br_print_time(p->out, unix_ns);
    br_print_end(p);
}

struct br_entry br_print_string(const struct br_printer *p, int32_t i)
{
    struct br_entry none = {NULL, 0};
    return p->dictionary && i >= 0 ? br_dictionary_string(p->dictionary, (uint32_t)i) : none;
}

/* --- Attributes ----------------------------------------------------------------------------- */

#define ANY(name) OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_##name

static void add_nested(const struct br_printer *p, const BR_PB(AnyValue) * value, unsigned depth);

static struct br_entry key_of(const struct br_printer *p, const BR_PB(KeyValue) * a)
{
    if (a->key_strindex != 0)
        return br_print_string(p, a->key_strindex);
    return (struct br_entry){(const uint8_t *)a->key, (uint32_t)strlen(a->key)};
}

static void add_quoted(struct br_str *out, const void *text, size_t len)
{
    br_str_putc(out, '"');
    br_print_text(out, text, len);
    br_str_putc(out, '"');
}

static void add_list(const struct br_printer *p, const BR_PB(AnyValue) * value, unsigned depth)
{
    const BR_PB(ArrayValue) *list = value->array_value;
    br_str_putc(p->out, '[');
    for (size_t i = 0; i < list->n_values && !p->out->failed; i++) {
        br_str_puts(p->out, i ? "," : "");
        add_nested(p, list->values[i], depth + 1);
    }
    br_str_putc(p->out, ']');
}

static void add_map(const struct br_printer *p, const BR_PB(AnyValue) * value, unsigned depth)
{
    const BR_PB(KeyValueList) *list = value->kvlist_value;
    br_str_putc(p->out, '{');
    for (size_t i = 0; i < list->n_values && !p->out->failed; i++) {
        struct br_entry key = key_of(p, list->values[i]);
        br_str_puts(p->out, i ? "," : "");
        add_quoted(p->out, key.data, key.len);
        br_str_putc(p->out, ':');
        add_nested(p, list->values[i]->value, depth + 1);
    }
    br_str_putc(p->out, '}');
}

static void add_bytes(struct br_str *out, ProtobufCBinaryData bytes)
{
    br_str_base64(out, bytes.data, bytes.len);
}

/* The value without its type; strings `quoted` inside lists and maps. */
static void add_value(const struct br_printer *p, const BR_PB(AnyValue) * value, bool quoted,
                      unsigned depth)
{
    struct br_str *out = p->out;
    struct br_entry s = {NULL, 0};
    switch (value->value_case) {
    case ANY(STRING_VALUE):
        s = (struct br_entry){(const uint8_t *)value->string_value,
                              (uint32_t)strlen(value->string_value)};
        break;
    case ANY(STRING_VALUE_STRINDEX):
        s = br_print_string(p, value->string_value_strindex);
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
        add_list(p, value, depth);
        return;
    case ANY(KVLIST_VALUE):
        add_map(p, value, depth);
        return;
    case ANY(BYTES_VALUE):
        add_bytes(out, value->bytes_value);
        return;
    default:
        br_str_puts(out, quoted ? "null" : "");
        return;
    }
    if (quoted)
        add_quoted(out, s.data, s.len);
    else
        br_print_text(out, s.data, s.len);
}

static void add_nested(const struct br_printer *p, const BR_PB(AnyValue) * value, unsigned depth)
{
    if (depth > DEPTH_SHOWN)
        br_str_puts(p->out, "...");
    else if (!value)
        br_str_puts(p->out, "null");
    else
        add_value(p, value, true, depth);
}

static const char *type_of(const BR_PB(AnyValue) * value)
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

void br_print_attribute(struct br_printer *p, const char *indent, const void *key, size_t key_len,
                        const BR_PB(AnyValue) * value, struct br_entry unit)
{
    if (!br_print_begin(p))
        return;
    br_str_printf(p->out, "%s-> ", indent);
    br_print_text(p->out, key, key_len);
    br_str_printf(p->out, ": %s(", type_of(value));
    if (value)
        add_value(p, value, false, 0);
    br_str_putc(p->out, ')');
    if (unit.len > 0) {
        br_str_putc(p->out, ' ');
        br_print_text(p->out, unit.data, unit.len);
    }
    br_print_end(p);
}

void br_print_pair(struct br_printer *p, const void *key, size_t key_len,
                   const BR_PB(AnyValue) * value)
{
    br_str_putc(p->out, ' ');
    br_print_text(p->out, key, key_len);
    br_str_putc(p->out, '=');
    if (value)
        add_value(p, value, false, 0);
}

void br_print_pairs(struct br_printer *p, BR_PB(KeyValue) *const *attributes, size_t n)
{
    for (size_t i = 0; i < n && !p->out->failed; i++) {
        struct br_entry key = key_of(p, attributes[i]);
        br_print_pair(p, key.data, key.len, attributes[i]->value);
    }
}

void br_print_attributes(struct br_printer *p, const char *heading, const char *indent,
                         BR_PB(KeyValue) *const *attributes, size_t n)
{
    if (n > 0)
        br_print_line(p, "%s", heading);
    for (size_t i = 0; i < n && !p->full; i++) {
        struct br_entry key = key_of(p, attributes[i]), unit = {NULL, 0};
        br_print_attribute(p, indent, key.data, key.len, attributes[i]->value, unit);
    }
}

/* --- Resource and scope --------------------------------------------------------------------- */

static void print_dropped(struct br_printer *p, const char *indent, uint32_t n)
{
    if (n > 0)
        br_print_line(p, "%sDroppedAttributesCount: %" PRIu32, indent, n);
}

void br_print_resource(struct br_printer *p, const BR_PB_RESOURCE *resource, const char *schema_url)
{
    br_print_named_text(p, "Resource SchemaURL: ", schema_url, strlen(schema_url));
    if (!resource)
        return;
    br_print_attributes(p, "Resource attributes:", "     ", resource->attributes,
                        resource->n_attributes);
    print_dropped(p, "", resource->dropped_attributes_count);
}

void br_print_scope(struct br_printer *p, const BR_PB(InstrumentationScope) * scope,
                    const char *schema_url)
{
    br_print_named_text(p, p->dictionary ? "ScopeProfiles SchemaURL: " : "ScopeSpans SchemaURL: ",
                        schema_url, strlen(schema_url));
    if (!scope)
        return;
    if (br_print_begin(p)) {
        br_str_puts(p->out, "InstrumentationScope ");
        br_print_text(p->out, scope->name, strlen(scope->name));
        br_str_putc(p->out, ' ');
        br_print_text(p->out, scope->version, strlen(scope->version));
        br_print_end(p);
    }
    br_print_attributes(p, "InstrumentationScope attributes:", "     ", scope->attributes,
                        scope->n_attributes);
    print_dropped(p, "", scope->dropped_attributes_count);
}

/* --- Unpacking ------------------------------------------------------------------------------ */

void *br_print_unpack(struct br_printer *p, const ProtobufCMessageDescriptor *desc,
                      const uint8_t *data, size_t len)
{
    void *message = protobuf_c_message_unpack(desc, br_arena_pb(&p->scratch), len, data);
    if (!message)
        br_print_line(p, "    (%s: too large to print)", desc->short_name);
    return message;
}

void *br_print_unpack_head(struct br_printer *p, const ProtobufCMessageDescriptor *desc,
                           const uint8_t *data, size_t len, uint32_t a, uint32_t b)
{
    const uint8_t *end = data + len;
    struct br_field f;
    size_t n = 0;
    uint8_t *head = br_arena_alloc(&p->scratch, len ? len : 1);
    for (const uint8_t *at = data, *next; head && at < end; at = next) {
        next = br_field_next(at, end, &f);
        if (!next)
            break;
        if (f.number == a || f.number == b)
            continue;
        memcpy(head + n, at, (size_t)(next - at));
        n += (size_t)(next - at);
    }
    if (!head) {
        br_print_line(p, "    (%s: too large to print)", desc->short_name);
        return NULL;
    }
    return br_print_unpack(p, desc, head, n);
}

const BR_PB_RESOURCE *br_print_part_resource(struct br_printer *p, const struct br_part *part)
{
    size_t len;
    const uint8_t *data = br_part_resource(part, &len);
    if (!data)
        return NULL;
    return br_print_unpack(p, &opentelemetry__proto__resource__v1__resource__descriptor, data, len);
}

void br_print_each(struct br_printer *p, const uint8_t *data, size_t len, uint32_t number,
                   br_print_fn *fn)
{
    const uint8_t *end = data + len;
    struct br_field f;
    unsigned index = 0;
    for (const uint8_t *at = data; at < end && !p->full;) {
        at = br_field_next(at, end, &f);
        if (!at)
            return;
        if (f.number == number && f.wire == BR_WIRE_LEN)
            fn(p, index++, f.data, (size_t)f.value);
    }
}

int br_print_parts(struct br_printer *p, const struct br_item *item, br_print_part_fn *fn)
{
    unsigned index = 0;
    br_arena_init(&p->scratch, SCRATCH_MAX);
    for (uint32_t i = 0; i < item->n_parts && !p->full; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind == BR_PART_RESOURCE)
            fn(p, index++, part, part->raw + part->body_at, part->raw_len - part->body_at);
    }
    br_arena_release(&p->scratch);
    return p->out->failed ? BR_ENOMEM : 0;
}
