/* SPDX-License-Identifier: Apache-2.0 */
/* The profiles side of the join. */
#include <string.h>

#include "base/mem.h"
#include "otlp/edit.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

#define OTHER_VALUE "_other"
#define WHITE " \t"

/* What the label table says of one entry of the attribute table. */
enum label { LABEL_NONE, LABEL_SPAN_ID, LABEL_TRACE_ID };

struct id {
    uint8_t bytes[16];
    enum label label;
};

/* A sample's span as it was found, in the form that is written. */
struct known {
    uint64_t hash;
    uint32_t index; /* in the attribute table */
};

struct run {
    struct join *j;
    struct br_item *item;
    struct br_arena arena;
    struct br_dictionary_view view;
    struct id *labels;          /* by attribute index; NULL when no entry is a label */
    bool any_label;
    bool first, write;
    uint64_t now_ms;
    struct join_tally tally;
    double counts[JOIN_TYPES][JOIN_COUNTS];
    uint32_t unknown;
    struct join_service service; /* of the part at hand */
    uint16_t type;               /* of the profile at hand */
    enum join_measure measure;
    uint64_t period_ns, unit_ns; /* 0: not a time */
    uint8_t profile_id[16];
    bool has_profile_id;
    /* What is added to the dictionary. */
    struct br_addition extension; /* fields of ProfilesDictionary */
    size_t extension_cap;
    uint32_t n_strings, n_attributes, n_links; /* with what was there before */
    uint32_t key_index[1 + JOIN_ATTRIBUTES_MAX]; /* string indices of the keys; 0: not yet there */
    struct known *known;
    uint32_t n_known, cap_known;
    /* The span of the sample at hand, copied under the table's lock. */
    uint8_t found_trace[16], found_name[JOIN_VALUE_MAX];
    uint8_t found_attributes[JOIN_ATTRIBUTES_MAX * (JOIN_VALUE_MAX + 1)];
    size_t found_name_len, found_attributes_len;
    bool found_has_trace;
    bool counts_things; /* the profile's unit is "count" */
    bool any_linked;    /* the part at hand has a sample with a span */
    bool any_written;   /* something is to be appended somewhere */
    bool no_memory;
};

/* --- Ids in labels --------------------------------------------------------------------------- */

static bool named(const struct br_strings *names, struct br_entry key)
{
    for (size_t i = 0; i < names->n; i++)
        if (strlen(names->v[i]) == key.len && memcmp(names->v[i], key.data, key.len) == 0)
            return true;
    return false;
}

/* Hex of any case, white space around it, short ones padded on the left; zero is no id. */
static bool read_id(const char *text, size_t len, uint8_t *out, size_t size)
{
    char digits[32];
    while (len && strchr(WHITE, text[len - 1]))
        len--;
    while (len && strchr(WHITE, *text)) {
        text++;
        len--;
    }
    if (len == 0 || len > 2 * size)
        return false;
    memset(digits, '0', 2 * size);
    memcpy(digits + 2 * size - len, text, len);
    if (br_hex_decode(digits, 2 * size, out, size) < 0)
        return false;
    for (size_t i = 0; i < size; i++)
        if (out[i])
            return true;
    return false;
}

/* The id in the AnyValue of a KeyValueAndUnit: hex text, or an integer with the id's 64 bits (JFR). */
static bool read_value(const struct run *r, const uint8_t *p, const uint8_t *end, uint8_t *out,
                       size_t size)
{
    struct br_field v;
    bool ok = false;
    while (p < end && (p = br_field_next(p, end, &v))) {
        if (v.number == 1)
            ok = read_id((const char *)v.data, v.value, out, size);
        else if (v.number == 8) {
            struct br_entry s = br_dictionary_string(&r->view, (uint32_t)v.value);
            ok = read_id((const char *)s.data, s.len, out, size);
        } else if (v.number == 3 && size == 8 && v.value) {
            for (int i = 0; i < 8; i++)
                out[i] = (uint8_t)(v.value >> (56 - 8 * i));
            ok = true;
        }
    }
    return ok;
}

/* Finds the attribute table's entries that name a span or a trace. */
static bool find_labels(struct run *r)
{
    const struct join_labels *names = &r->j->config->labels;
    uint32_t n = r->view.n[BR_TABLE_ATTRIBUTE];
    r->labels = br_arena_calloc(&r->arena, n, sizeof *r->labels);
    if (!r->labels)
        return false;
    for (uint32_t i = 1; i < n; i++) {
        const struct br_entry *e = &r->view.tables[BR_TABLE_ATTRIBUTE][i];
        const uint8_t *p = e->data, *end = p + e->len;
        struct br_field f, value = {0};
        struct br_entry key = {0};
        while (p < end && (p = br_field_next(p, end, &f))) {
            if (f.number == 1)
                key = br_dictionary_string(&r->view, (uint32_t)f.value);
            else if (f.number == 2)
                value = f;
        }
        if (!value.data || !key.len)
            continue;
        enum label label = named(&names->span_id, key)    ? LABEL_SPAN_ID
                           : named(&names->trace_id, key) ? LABEL_TRACE_ID
                                                          : LABEL_NONE;
        if (label && read_value(r, value.data, value.data + value.value, r->labels[i].bytes,
                                label == LABEL_SPAN_ID ? 8 : 16)) {
            r->labels[i].label = label;
            r->any_label = true;
        }
    }
    return true;
}

/* --- Additions to the dictionary -------------------------------------------------------------- */

/* Appends an entry to a table (a field of ProfilesDictionary); its index, or 0 without memory. */
static uint32_t add_entry(struct run *r, uint32_t field, uint32_t *n, const void *data, size_t len)
{
    static const uint8_t nothing;
    size_t size = br_len_size(field, len);
    /* A table that was empty gets its zero entry first. */
    if (*n == 0 && len)
        (void)add_entry(r, field, n, &nothing, 0);
    size_t cap = r->extension_cap;
    if (r->extension.len + size > cap) {
        size_t want = cap ? cap * 2 : 4096;
        while (want < r->extension.len + size)
            want *= 2;
        uint8_t *grown = br_arena_alloc(&r->arena, want);
        if (!grown) {
            r->no_memory = true;
            return 0;
        }
        br_put_bytes(grown, r->extension.data, r->extension.len);
        r->extension.data = grown;
        r->extension_cap = want;
    }
    (void)br_put_len((uint8_t *)(uintptr_t)r->extension.data + r->extension.len, field, data, len);
    r->extension.len += size;
    return (*n)++;
}

static uint32_t add_string(struct run *r, const void *data, size_t len)
{
    return add_entry(r, 5, &r->n_strings, data, len);
}

static uint64_t hash_value(unsigned key, const uint8_t *value, size_t len)
{
    return br_hash(value, len) * 31 + key + 1;
}

/* The index of the attribute `key` = `value`, made where it is new to this item. */
static uint32_t attribute(struct run *r, unsigned key, const char *name, const uint8_t *value,
                          size_t len)
{
    uint64_t hash = hash_value(key, value, len);
    for (uint32_t i = 0; i < r->n_known; i++)
        if (r->known[i].hash == hash)
            return r->known[i].index;
    if (!join_table_value(r->j->table, key, value, len, (size_t)r->j->config->max_values)) {
        *r->j->other_values += 1;
        value = (const uint8_t *)OTHER_VALUE;
        len = sizeof OTHER_VALUE - 1;
    }
    if (!r->key_index[key])
        r->key_index[key] = add_string(r, name, strlen(name));
    uint8_t any[JOIN_VALUE_MAX + 8], entry[JOIN_VALUE_MAX + 32];
    size_t any_len = (size_t)(br_put_len(any, 1, value, len) - any);
    uint8_t *p = br_put_varint(entry, BR_TAG(1, BR_WIRE_VARINT));
    p = br_put_varint(p, r->key_index[key]);
    p = br_put_len(p, 2, any, any_len);
    uint32_t index = add_entry(r, 6, &r->n_attributes, entry, (size_t)(p - entry));
    if (br_grow(&r->known, &r->cap_known, (size_t)r->n_known + 1, sizeof *r->known, 1u << 20))
        r->no_memory = true;
    else
        r->known[r->n_known++] = (struct known){hash, index};
    return index;
}

static uint32_t add_link(struct run *r, const uint8_t *trace_id, const uint8_t *span_id)
{
    static const uint8_t none[16];
    uint8_t entry[32], *p = br_put_len(entry, 1, trace_id ? trace_id : none, 16);
    p = br_put_len(p, 2, span_id, 8);
    return add_entry(r, 4, &r->n_links, entry, (size_t)(p - entry));
}

/* --- One sample ------------------------------------------------------------------------------ */

/* Copies what is to be written of a span: under the table's lock. */
static void on_found(void *arg, const struct join_span *span)
{
    struct run *r = arg;
    r->found_has_trace = span->trace_id != NULL;
    if (span->trace_id)
        memcpy(r->found_trace, span->trace_id, 16);
    r->found_name_len = span->name_len;
    br_put_bytes(r->found_name, span->name, span->name_len);
    r->found_attributes_len = span->attributes_len < sizeof r->found_attributes
                                  ? span->attributes_len
                                  : 0;
    br_put_bytes(r->found_attributes, span->attributes, r->found_attributes_len);
}

/* Turns what was found into indices of the attribute table. */
static uint32_t indices_of(struct run *r, uint32_t *out)
{
    const struct br_strings *keys = &r->j->config->sample_attributes;
    const uint8_t *p = r->found_attributes, *end = p + r->found_attributes_len;
    uint32_t n = 0;
    out[n++] = attribute(r, 0, "span.name", r->found_name, r->found_name_len);
    for (unsigned i = 0; i < keys->n && p < end; i++) {
        size_t len = *p++;
        if (len-- == 0)
            continue;
        out[n++] = attribute(r, i + 1, keys->v[i], p, len);
        p += len;
    }
    return n;
}

/* What a sample says of itself. */
struct sample {
    const uint8_t *trace_id, *span_id; /* NULL: none */
    bool linked;                       /* by a link, not by a label */
    uint64_t value, n_times;
    bool has_value;
};

static void take_label(const struct run *r, uint64_t index, struct sample *s)
{
    if (!r->any_label || index >= r->view.n[BR_TABLE_ATTRIBUTE])
        return;
    const struct id *id = &r->labels[index];
    if (id->label == LABEL_SPAN_ID && !s->linked)
        s->span_id = id->bytes;
    else if (id->label == LABEL_TRACE_ID && !s->linked)
        s->trace_id = id->bytes;
}

static void take_link(const struct run *r, uint64_t index, struct sample *s)
{
    if (index == 0 || index >= r->view.n[BR_TABLE_LINK])
        return;
    const struct br_entry *e = &r->view.tables[BR_TABLE_LINK][index];
    const uint8_t *p = e->data, *end = p + e->len, *trace = NULL, *span = NULL;
    static const uint8_t none[16];
    struct br_field f;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1 && f.value == 16)
            trace = f.data;
        else if (f.number == 2 && f.value == 8)
            span = f.data;
    }
    if (!span || memcmp(span, none, 8) == 0)
        return;
    s->span_id = span;
    s->trace_id = trace && memcmp(trace, none, 16) != 0 ? trace : NULL;
    s->linked = true;
}

/* Calls `take` for each number of a repeated varint field. */
static void each_varint(const struct br_field *f, const struct run *r, struct sample *s)
{
    if (f->wire == BR_WIRE_VARINT) {
        take_label(r, f->value, s);
        return;
    }
    const uint8_t *p = f->data, *end = p + f->value;
    uint64_t v;
    while (p < end && (p = br_varint(p, end, &v)))
        take_label(r, v, s);
}

static void sum_values(const struct br_field *f, struct sample *s)
{
    const uint8_t *p = f->data, *end = p ? p + f->value : NULL;
    uint64_t v;
    s->has_value = true;
    if (f->wire == BR_WIRE_VARINT)
        s->value += f->value;
    while (p && p < end && (p = br_varint(p, end, &v)))
        s->value += v;
}

static struct sample read_sample(const struct run *r, const uint8_t *p, const uint8_t *end)
{
    struct sample s = {0};
    struct br_field f;
    uint64_t link = 0;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 2 && r->any_label)
            each_varint(&f, r, &s);
        else if (f.number == 3)
            link = f.value;
        else if (f.number == 4)
            sum_values(&f, &s);
        else if (f.number == 5)
            s.n_times += f.wire == BR_WIRE_LEN ? f.value / 8 : 1;
    }
    take_link(r, link, &s);
    return s;
}

/* A sample in the table's terms. Values count periods, times or things, as its profile says. */
static struct join_sample measure(const struct run *r, const struct sample *s)
{
    uint64_t value = s->has_value ? s->value : s->n_times;
    struct join_sample out = {.trace_id = s->trace_id,
                              .span_id = s->span_id,
                              .measure = r->measure,
                              .type = r->type,
                              .profile_id = r->has_profile_id ? r->profile_id : NULL};
    uint64_t count = s->n_times ? s->n_times : 1;
    if (r->unit_ns) {
        out.time_ns = s->has_value ? value * r->unit_ns : value * r->period_ns;
        if (!s->n_times && r->period_ns)
            count = (out.time_ns + r->period_ns / 2) / r->period_ns;
    } else {
        out.time_ns = value * r->period_ns;
        if (r->measure == JOIN_CPU_COUNT || !r->period_ns)
            count = r->counts_things ? value : count;
    }
    out.count = count > UINT32_MAX ? UINT32_MAX : count ? (uint32_t)count : 1;
    return out;
}

static void count_result(struct run *r, enum join_result result)
{
    if (result == JOIN_UNKNOWN)
        r->unknown++;
    if (!r->first)
        return;
    if (result == JOIN_FOUND)
        r->counts[r->type][JOIN_COUNT_JOINED]++;
    else if (result == JOIN_TOO_LATE)
        r->counts[r->type][JOIN_COUNT_TOO_LATE]++;
    /* Unknown ones are counted when it is clear what became of them: see join_tally. */
}

/* The bytes to append to a sample: attribute indices, and the link that was a label. */
static void make_addition(struct run *r, const struct sample *s, bool found, struct br_addition *a)
{
    uint32_t indices[1 + JOIN_ATTRIBUTES_MAX];
    uint32_t n = found ? indices_of(r, indices) : 0;
    uint8_t packed[BR_VARINT_MAX * (1 + JOIN_ATTRIBUTES_MAX)], *q = packed;
    for (uint32_t i = 0; i < n; i++)
        q = br_put_varint(q, indices[i]);
    size_t len = (size_t)(q - packed), size = n ? br_len_size(2, len) : 0;
    uint32_t link = 0;
    if (!s->linked) {
        const uint8_t *trace = s->trace_id;
        if (!trace && found && r->found_has_trace)
            trace = r->found_trace;
        link = add_link(r, trace, s->span_id);
        size += 1 + br_varint_size(link);
    }
    uint8_t *p = br_arena_alloc(&r->arena, size);
    if (!p || r->no_memory) {
        r->no_memory = true;
        return;
    }
    a->data = p;
    a->len = size;
    if (n)
        p = br_put_len(p, 2, packed, len);
    if (link) {
        p = br_put_varint(p, BR_TAG(3, BR_WIRE_VARINT));
        (void)br_put_varint(p, link);
    }
}

static void join_sample(struct run *r, const uint8_t *p, const uint8_t *end, struct br_addition *a)
{
    struct sample s = read_sample(r, p, end);
    if (!s.span_id) {
        if (r->first)
            r->counts[r->type][JOIN_COUNT_UNLINKED]++;
        return;
    }
    struct join_sample sample = measure(r, &s);
    enum join_result result = join_table_sample(r->j->table, &sample, r->first, r->now_ms, on_found,
                                                r, &r->tally);
    count_result(r, result);
    r->any_linked = true;
    if (r->write && (result == JOIN_FOUND || !s.linked)) {
        make_addition(r, &s, result == JOIN_FOUND, a);
        r->any_written = true;
    }
}

/* --- Profiles -------------------------------------------------------------------------------- */

static bool is(struct br_entry s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static void read_value_type(const struct run *r, const struct br_field *f, struct br_entry *type,
                            struct br_entry *unit)
{
    const uint8_t *p = f->data, *end = p + f->value;
    struct br_field g;
    while (p < end && (p = br_field_next(p, end, &g))) {
        if (g.number == 1)
            *type = br_dictionary_string(&r->view, (uint32_t)g.value);
        else if (g.number == 2)
            *unit = br_dictionary_string(&r->view, (uint32_t)g.value);
    }
}

static uint64_t time_unit(struct br_entry unit)
{
    return is(unit, "nanoseconds") || is(unit, "ns")     ? 1
           : is(unit, "microseconds") || is(unit, "us") ? 1000
           : is(unit, "milliseconds") || is(unit, "ms") ? 1000000
           : is(unit, "seconds") || is(unit, "s")       ? 1000000000
                                                        : 0;
}

static bool is_cpu(struct br_entry type)
{
    return is(type, "cpu") || is(type, "itimer") || is(type, "process_cpu");
}

/* What a profile's values mean, from its head: type, unit, period. */
static void read_head(struct run *r, const uint8_t *p, const uint8_t *end)
{
    struct br_entry type = {0}, unit = {0}, period_type = {0}, period_unit = {0};
    struct br_field f;
    uint64_t period = 0;
    r->has_profile_id = false;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1) {
            read_value_type(r, &f, &type, &unit);
        } else if (f.number == 5) {
            read_value_type(r, &f, &period_type, &period_unit);
        } else if (f.number == 6) {
            period = f.value;
        } else if (f.number == 7 && f.value == 16) {
            memcpy(r->profile_id, f.data, 16);
            r->has_profile_id = true;
        }
    }
    char name[160];
    struct br_str s = {.data = name, .cap = sizeof name, .max = sizeof name - 1, .fixed = true};
    br_str_add(&s, type.data, type.len);
    br_str_putc(&s, ':');
    br_str_add(&s, unit.data, unit.len);
    r->type = join_table_type(r->j->table, name, s.len);
    r->unit_ns = time_unit(unit);
    r->period_ns = period < (1ull << 40) ? period * time_unit(period_unit) : 0;
    r->counts_things = is(unit, "count");
    if (r->unit_ns)
        r->measure = is_cpu(type) ? JOIN_CPU_TIME : JOIN_WALL_TIME;
    else
        r->measure = r->counts_things && r->period_ns && is_cpu(period_type) && is(type, "samples")
                         ? JOIN_CPU_COUNT
                         : JOIN_OTHER;
    if (r->measure == JOIN_OTHER)
        r->period_ns = 0;
}

/* Goes through the samples of a part; `additions` is NULL when nothing is to be written. */
static void join_part(struct run *r, const struct br_part *part, struct br_addition *additions)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f, g, h;
    uint32_t i = 0;
    struct br_addition unused;
    r->any_linked = false;
    while (p < end && (p = br_field_next(p, end, &f))) {
        const uint8_t *q = f.data, *q_end = f.data + f.value;
        while (f.number == 2 && q < q_end && (q = br_field_next(q, q_end, &g))) {
            const uint8_t *s = g.data, *s_end = g.data + g.value;
            if (g.number != 2)
                continue;
            read_head(r, s, s_end);
            while (s < s_end && (s = br_field_next(s, s_end, &h)))
                if (h.number == 2)
                    join_sample(r, h.data, s, additions ? &additions[i++] : &unused);
        }
    }
}

/* The dictionary's additions become a part of their own, which joins the first on the wire. */
static int add_extension(struct run *r)
{
    if (!r->extension.len)
        return 0;
    struct br_buf *buf = br_buf_new(r->item->host->pool, br_len_size(2, r->extension.len));
    if (!buf)
        return BR_ENOMEM;
    uint8_t *p = br_put_varint(buf->data, BR_TAG(2, BR_WIRE_LEN));
    p = br_put_varint(p, r->extension.len);
    struct br_part part = {.kind = BR_PART_DICTIONARY,
                           .buf = buf,
                           .raw = buf->data,
                           .body_at = (uint32_t)(p - buf->data),
                           .extension = true};
    p = br_put_bytes(p, r->extension.data, r->extension.len);
    buf->len = part.raw_len = (uint32_t)(p - buf->data);
    int rc = br_item_add_part(r->item, &part);
    br_buf_unref(buf);
    return rc;
}

static void write_parts(struct run *r, struct br_addition **additions)
{
    if (r->no_memory || add_extension(r))
        return; /* the samples pass as they came; the figures are in the table */
    for (uint32_t i = 0; i < r->item->n_parts; i++) {
        struct br_part *part = &r->item->parts[i];
        bool any = false;
        for (uint32_t k = 0; additions[i] && k < part->n_items; k++)
            any = any || additions[i][k].len;
        if (any)
            (void)br_part_append(r->item, part, additions[i]);
    }
}

static void note_counts(struct run *r)
{
    for (uint16_t t = 0; t < JOIN_TYPES; t++)
        for (int c = 0; c < JOIN_COUNTS; c++)
            if (r->counts[t][c] > 0)
                join_count(r->j, t, (enum join_outcome)c, r->counts[t][c]);
    join_count_tally(r->j, &r->tally);
}

uint32_t join_samples(struct join *j, struct br_item *item, bool first, bool write)
{
    struct run *r = br_calloc(1, sizeof *r);
    uint32_t unknown = 0;
    if (!r)
        return 0;
    r->j = j;
    r->item = item;
    r->first = first;
    r->write = write;
    r->now_ms = br_host_mono_ms(j->node->host);
    br_arena_init(&r->arena, 64u << 20);
    uint32_t n_parts = item->n_parts;
    struct br_addition **additions = br_arena_calloc(&r->arena, n_parts + 1, sizeof *additions);
    bool ok = additions && br_dictionary_index(item, &r->arena, &r->view) == 0 && find_labels(r);
    r->n_strings = r->view.n[BR_TABLE_STRING];
    r->n_attributes = r->view.n[BR_TABLE_ATTRIBUTE];
    r->n_links = r->view.n[BR_TABLE_LINK];
    for (uint32_t i = 0; ok && i < n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        if (write)
            additions[i] = br_arena_calloc(&r->arena, part->n_items, sizeof **additions);
        join_part(r, part, additions[i]);
        if (r->any_linked && first) {
            r->service = join_service_of(part, &r->view);
            if (r->service.service)
                join_table_profiled(j->table,
                                    r->service.instance ? r->service.instance : r->service.service,
                                    r->now_ms);
        }
    }
    if (ok && write && r->any_written)
        write_parts(r, additions);
    note_counts(r);
    unknown = r->unknown;
    br_free(r->known);
    br_arena_release(&r->arena);
    br_free(r);
    return unknown;
}
