/* SPDX-License-Identifier: Apache-2.0 */
/* The traces side of the join. */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "otlp/edit.h"
#include "otlp/walk.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

#define SPAN_ATTRIBUTES 9 /* field of Span */
#define CHUNK 256u

static const uint8_t zero_secret[16];

/* The value of a string attribute out of a KeyValue, resolving references; NULL when it has another key
 * or is no string. */
static const uint8_t *string_attribute(const uint8_t *p, const uint8_t *end, const char *key,
                                       size_t key_len, const struct br_dictionary_view *view,
                                       size_t *ret_len)
{
    struct br_field f, v;
    const uint8_t *value = NULL;
    bool match = false;
    *ret_len = 0;
    while (p < end && (p = br_field_next(p, end, &f))) {
        struct br_entry name = {f.data, (uint32_t)f.value};
        if (f.number == 3 && view)
            name = br_dictionary_string(view, (uint32_t)f.value);
        if (f.number == 1 || (f.number == 3 && view && f.value)) {
            match = name.len == key_len && memcmp(name.data, key, key_len) == 0;
        } else if (f.number == 2) {
            const uint8_t *q = f.data, *stop = f.data + f.value;
            while (q < stop && (q = br_field_next(q, stop, &v))) {
                struct br_entry text = {v.data, (uint32_t)v.value};
                if (v.number == 8 && view)
                    text = br_dictionary_string(view, (uint32_t)v.value);
                if (v.number == 1 || (v.number == 8 && view)) {
                    value = text.data;
                    *ret_len = text.len;
                }
            }
        }
        if (!p)
            return NULL;
    }
    return match ? value : NULL;
}

struct join_service join_service_of(const struct br_part *part,
                                    const struct br_dictionary_view *view)
{
    struct join_service s = {0};
    size_t len, n;
    const uint8_t *p = br_part_resource(part, &len), *end = p + len, *instance = NULL;
    size_t instance_len = 0;
    struct br_field f;
    while (p && p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 1 || f.wire != BR_WIRE_LEN)
            continue;
        const uint8_t *stop = f.data + f.value;
        const uint8_t *v = string_attribute(f.data, stop, "service.name", 12, view, &n);
        if (v) {
            s.name = v;
            s.name_len = n;
            continue;
        }
        v = string_attribute(f.data, stop, "service.instance.id", 19, view, &n);
        if (v) {
            instance = v;
            instance_len = n;
        }
    }
    if (s.name)
        s.service = br_siphash(zero_secret, s.name, s.name_len) | 1;
    if (s.name && instance)
        s.instance = (s.service ^ br_siphash(zero_secret, instance, instance_len) * 3) | 1;
    return s;
}

/* --- Entering -------------------------------------------------------------------------------- */

/* The text form of an AnyValue's scalar, into `out` of JOIN_VALUE_MAX bytes; its length, or -1. */
static int scalar_text(const uint8_t *p, const uint8_t *end, uint8_t *out)
{
    struct br_field v;
    struct br_str s = {.data = (char *)out, .cap = JOIN_VALUE_MAX + 1, .max = JOIN_VALUE_MAX, .fixed = true};
    bool any = false;
    while (p < end && (p = br_field_next(p, end, &v))) {
        br_str_clear(&s);
        any = true;
        double d;
        if (v.number == 1)
            br_str_add(&s, v.data, v.value);
        else if (v.number == 2)
            br_str_puts(&s, v.value ? "true" : "false");
        else if (v.number == 3)
            br_str_printf(&s, "%lld", (long long)v.value);
        else if (v.number == 4 && memcpy(&d, &v.value, sizeof d))
            br_str_printf(&s, "%.15g", d);
        else
            any = false;
    }
    /* A cut string must stay UTF-8. */
    return any ? (int)br_utf8_valid(out, s.len) : -1;
}

/* Finds attribute `key` among the KeyValues in field `field` of a message. */
static int find_attribute(const uint8_t *p, const uint8_t *end, uint32_t field, const char *key,
                          uint8_t *out)
{
    size_t key_len = strlen(key);
    struct br_field f, g;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != field || f.wire != BR_WIRE_LEN)
            continue;
        const uint8_t *q = f.data, *stop = f.data + f.value;
        struct br_field value = {0};
        bool match = false;
        while (q < stop && (q = br_field_next(q, stop, &g))) {
            if (g.number == 1)
                match = g.value == key_len && memcmp(g.data, key, key_len) == 0;
            else if (g.number == 2)
                value = g;
        }
        if (match && value.data)
            return scalar_text(value.data, value.data + value.value, out);
    }
    return -1;
}

static const char *const kinds[] = {"unspecified", "internal", "server", "client", "producer",
                                    "consumer"};
static const char *const statuses[] = {"unset", "ok", "error"};

/* One configured attribute of a span: its text's length, or -1. */
static int configured(const char *key, const struct br_span *span, const struct br_part *part,
                      uint8_t *out)
{
    if (strcmp(key, "span.kind") == 0 && span->kind < BR_COUNT(kinds)) {
        memcpy(out, kinds[span->kind], strlen(kinds[span->kind]));
        return (int)strlen(kinds[span->kind]);
    }
    if (strcmp(key, "span.status") == 0 && span->status < BR_COUNT(statuses)) {
        memcpy(out, statuses[span->status], strlen(statuses[span->status]));
        return (int)strlen(statuses[span->status]);
    }
    int n = find_attribute(span->body, span->body + span->body_len, SPAN_ATTRIBUTES, key, out);
    if (n < 0) {
        size_t len;
        const uint8_t *resource = br_part_resource(part, &len);
        n = find_attribute(resource, resource + len, 1, key, out);
    }
    return n;
}

static void add_attributes(const struct join *j, const struct br_item *item,
                           const struct br_span *span, struct br_arena *arena,
                           struct join_span *out)
{
    const struct br_strings *keys = &j->config->sample_attributes;
    uint8_t value[JOIN_VALUE_MAX + 1];
    uint8_t *text = br_arena_alloc(arena, keys->n * (JOIN_VALUE_MAX + 1)), *at = text;
    if (!text)
        return;
    for (size_t i = 0; i < keys->n; i++) {
        int n = configured(keys->v[i], span, &item->parts[span->part], value);
        if (n > JOIN_VALUE_MAX - 1)
            n = JOIN_VALUE_MAX - 1;
        *at++ = (uint8_t)(n + 1);
        if (n > 0)
            at = br_put_bytes(at, value, (size_t)n);
    }
    out->attributes = text;
    out->attributes_len = (size_t)(at - text);
}

/* Puts the item's payload into one piece and walks it, for the spans in it. */
static void find_spans(struct br_item *item)
{
    const struct br_walk_options options = {.max_depth = BR_WALK_DEPTH_MAX,
                                            .utf8 = BR_UTF8_PASS,
                                            .spans = true};
    struct br_rope rope = {0};
    struct br_err err;
    const uint8_t *data;
    uint32_t repaired;
    size_t bytes = item->n_items * sizeof *item->spans;
    struct br_span *spans = br_arena_alloc(&item->arena, bytes);
    struct br_item *again = br_item_new(item->host, item->signal);
    bool ok = spans && again && br_item_write(item, &rope) == 0;
    struct br_buf *flat = ok ? br_rope_flat(&rope, item->host->pool, &data) : NULL;
    if (flat && br_walk(again, flat, data, rope.len, &options, &repaired, &err) == 0) {
        uint32_t owes = item->n_held;
        memcpy(spans, again->spans, bytes);
        br_item_clear_parts(item);
        (void)br_item_absorb(item, again); /* into an empty item: cannot fail */
        item->n_held = owes;
        item->spans = spans;
    }
    br_buf_unref(flat);
    br_rope_release(&rope);
    br_item_free(again);
}

static const struct br_span *spans_of(struct br_item *item)
{
    if (!item->spans && item->n_items)
        find_spans(item);
    return item->spans;
}

static struct join_span entry_of(const struct br_span *span, const struct join_service *service)
{
    return (struct join_span){.trace_id = span->trace_id,
                              .span_id = span->span_id,
                              .parent_id = span->parent_id,
                              .start_ns = span->start_ns,
                              .end_ns = span->end_ns,
                              .kind = span->kind,
                              .status = span->status,
                              .name = span->name,
                              .name_len = span->name_len < JOIN_VALUE_MAX
                                              ? span->name_len
                                              : br_utf8_valid(span->name, JOIN_VALUE_MAX),
                              .service = service->name,
                              .service_len = service->name_len < JOIN_VALUE_MAX
                                                 ? service->name_len
                                                 : br_utf8_valid(service->name, JOIN_VALUE_MAX)};
}

bool join_enter_spans(struct join *j, struct br_item *item)
{
    const struct br_span *spans = spans_of(item);
    uint64_t now = br_host_mono_ms(j->node->host);
    struct join_span entries[CHUNK];
    struct join_tally tally = {0};
    struct join_service service = {0};
    struct br_arena arena;
    uint32_t part = UINT32_MAX;
    size_t n = 0;
    bool profiled = false;
    br_arena_init(&arena, 0);
    for (uint32_t i = 0; spans && i < item->n_items; i++) {
        if (spans[i].part != part) {
            part = spans[i].part;
            service = join_service_of(&item->parts[part], NULL);
            profiled = profiled ||
                       (service.service &&
                        (join_table_is_profiled(j->table, service.service, now) ||
                         (service.instance &&
                          join_table_is_profiled(j->table, service.instance, now))));
        }
        if (!spans[i].span_id)
            continue;
        entries[n] = entry_of(&spans[i], &service);
        if (j->config->sample_attributes.n)
            add_attributes(j, item, &spans[i], &arena, &entries[n]);
        if (++n == CHUNK) {
            join_table_enter(j->table, entries, n, now, &tally);
            *j->spans_entered += (double)n;
            n = 0;
        }
    }
    join_table_enter(j->table, entries, n, now, &tally);
    *j->spans_entered += (double)n;
    br_arena_release(&arena);
    join_count_tally(j, &tally);
    return profiled;
}

/* --- Marking --------------------------------------------------------------------------------- */

static int add_figures(struct join *j, const struct br_span *span, struct br_arena *arena,
                       struct br_addition *a)
{
    struct join_figures f;
    if (!join_table_figures(j->table, span->trace_id, span->span_id, &f))
        return 0;
    enum join_measure m = f.count[JOIN_CPU_TIME]    ? JOIN_CPU_TIME
                          : f.count[JOIN_CPU_COUNT] ? JOIN_CPU_COUNT
                          : f.count[JOIN_WALL_TIME] ? JOIN_WALL_TIME
                                                    : JOIN_OTHER;
    struct br_str types = {.max = 1024}, profile = {.max = 64};
    for (unsigned i = 0; i < JOIN_SPAN_TYPES && f.types[i].samples; i++)
        br_str_printf(&types, "%s%s", i ? "," : "", join_table_type_name(j->table, f.types[i].type));
    static const uint8_t none[16];
    bool has_id = memcmp(f.profile_id, none, 16) != 0;
    if (has_id)
        br_str_hex(&profile, f.profile_id, 16);
    else if (span->trace_id)
        br_str_hex(&profile, span->trace_id, 16);
    int rc = types.failed || profile.failed ? BR_ENOMEM : 0;
    if (!rc && profile.len)
        rc = br_add_string(arena, a, SPAN_ATTRIBUTES, "profile.id", profile.data, profile.len);
    if (!rc)
        rc = br_add_string(arena, a, SPAN_ATTRIBUTES, "profile.type", types.data ? types.data : "",
                           types.len);
    if (!rc)
        rc = br_add_int(arena, a, SPAN_ATTRIBUTES, "profile.sample_count", f.count[m]);
    if (!rc && m != JOIN_OTHER)
        rc = br_add_int(arena, a, SPAN_ATTRIBUTES, "profile.duration_us",
                        (int64_t)(f.time_ns[m] / 1000));
    br_str_release(&types);
    br_str_release(&profile);
    return rc ? rc : 1;
}

static int add_profile_id(const struct br_span *span, struct br_arena *arena, struct br_addition *a)
{
    char hex[17];
    struct br_str s = {.data = hex, .cap = sizeof hex, .max = 16, .fixed = true};
    br_str_hex(&s, span->span_id, 8);
    return br_add_string(arena, a, SPAN_ATTRIBUTES, "pyroscope.profile.id", hex, 16);
}

/* True when the span has the attribute already: its SDK's bridge knows better. */
static bool has_profile_id(const struct br_span *span)
{
    static const char key[] = "pyroscope.profile.id";
    const uint8_t *p = span->body, *end = p + span->body_len;
    struct br_field f, g;
    while (p < end && (p = br_field_next(p, end, &f))) {
        const uint8_t *q = f.data, *stop = f.data + f.value;
        while (f.number == SPAN_ATTRIBUTES && q < stop && (q = br_field_next(q, stop, &g)))
            if (g.number == 1 && g.value == sizeof key - 1 && memcmp(g.data, key, g.value) == 0)
                return true;
    }
    return false;
}

void join_mark_spans(struct join *j, struct br_item *item, bool figures)
{
    const struct br_span *spans = spans_of(item);
    uint64_t now = br_host_mono_ms(j->node->host);
    struct br_arena arena;
    br_arena_init(&arena, 64u << 20);
    struct br_addition *additions =
        spans ? br_arena_calloc(&arena, item->n_items, sizeof *additions) : NULL;
    uint32_t i = 0, n_items = item->n_items;
    for (uint32_t p = 0; additions && p < item->n_parts && i < n_items; p++) {
        struct br_part *part = &item->parts[p];
        struct join_service service = join_service_of(part, NULL);
        bool likely = j->config->mark == JOIN_MARK_LIKELY && service.service &&
                      (join_table_is_profiled(j->table, service.service, now) ||
                       (service.instance && join_table_is_profiled(j->table, service.instance, now)));
        uint32_t first = i, n_marked = 0;
        for (; i < n_items && spans[i].part == p; i++) {
            struct br_addition *a = &additions[i];
            if (!spans[i].span_id)
                continue;
            int has = figures ? add_figures(j, &spans[i], &arena, a) : 0;
            if ((has > 0 || likely) && !has_profile_id(&spans[i]))
                has = add_profile_id(&spans[i], &arena, a) ? BR_ENOMEM : 1;
            if (has < 0)
                a->len = 0;
            n_marked += a->len > 0;
        }
        if (n_marked && br_part_append(item, part, additions + first) == 0)
            *j->marked += n_marked;
    }
    br_arena_release(&arena);
}
