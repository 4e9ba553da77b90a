/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes single dictionary entries over: decoded, references followed, written again in one fixed
 * form (scalars that are not zero, packed lists, unknown fields last), so that equal entries are
 * equal bytes whoever encoded them. Tables refer to one another without a circle (stack, location,
 * function or mapping, attribute, string), which is what bounds the recursion and lets each table
 * have one entry in the making.
 */
#include "otlp/dictionary/merger.h"
#include "otlp/fields.h"

#include "core/host.h"
#include "otlp/scan.h"

/* An index of one byte may take five in the merged dictionary. */
#define GROWTH 5

#define TAGS(a, b, c, d, e)                                                                        \
    (UINT64_C(1) << (a) | UINT64_C(1) << (b) | UINT64_C(1) << (c) | UINT64_C(1) << (d) |           \
     UINT64_C(1) << (e))

uint8_t *br_merger_put_packed(struct br_merge *m, enum br_table t, const uint8_t *p,
                              const uint8_t *end, uint8_t *o)
{
    const struct br_source_table *table = &m->source.tables[t];
    const uint32_t *map = table->map, n = table->n;
    while (p < end) {
        uint64_t i;
        p = br_scan_index(p, end, &i);
        if (__builtin_expect(!p, 0)) {
            br_merger_fail(m, BR_EINVAL);
            return o;
        }
        uint32_t place = i < n ? map[i] : 1;
        o = br_put_index(o, place ? place - 1 : br_merger_intern(m, t, (uint32_t)i));
    }
    return o;
}

/* Gathers all occurrences of a repeated index into one packed field. */
static uint8_t *put_list(struct br_merge *m, enum br_table t, uint32_t field, const uint8_t *p,
                         const uint8_t *end, uint8_t *o)
{
    uint8_t *start = o;
    *o++ = (uint8_t)BR_SCAN_LEN(field);
    uint8_t *list = ++o;
    while (p < end) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p) {
            br_merger_fail(m, BR_EINVAL);
            break;
        }
        if (f.number != field)
            continue;
        if (f.wire == BR_WIRE_LEN)
            o = br_merger_put_packed(m, t, f.data, p, o);
        else if (f.wire == BR_WIRE_VARINT)
            o = br_put_index(o, br_merger_index(m, t, f.value));
    }
    return o == list ? start : br_put_length_before(list, o);
}

/* Copies the fields whose tags are not among the known ones. */
static uint8_t *put_unknown(uint64_t known, const uint8_t *p, const uint8_t *end, uint8_t *o)
{
    while (p < end) {
        struct br_field f;
        const uint8_t *at = p;
        p = br_scan(p, end, &f);
        if (!p)
            break;
        if (!br_scan_in(known, br_scan_tag(&f)))
            o = br_put_bytes(o, at, (size_t)(p - at));
    }
    return o;
}

/* A message of scalars only. Reads fields 1 to `n` into `v`; false when it is malformed. */
static bool read_scalars(const uint8_t *p, const uint8_t *end, uint64_t *v, uint32_t n,
                         bool *others)
{
    while (p < end) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p)
            return false;
        if (f.wire == BR_WIRE_VARINT && f.number <= n)
            v[f.number - 1] = f.value;
        else
            *others = true;
    }
    return true;
}

uint32_t br_merger_string(struct br_merge *m, const uint8_t *data, size_t len, uint32_t guess)
{
    struct br_intern *table = &m->tables[BR_TABLE_STRING];
    uint32_t hash, i = br_intern_find(table, data, len, guess, &hash);
    if (i != BR_INTERN_NONE)
        return i;
    int rc = br_intern_reserve(table, &m->budget, len);
    if (rc) {
        br_merger_fail(m, rc);
        return 0;
    }
    br_put_bytes(br_intern_body(table), data, len);
    return br_intern_append(table, len, hash);
}

static uint32_t intern_string(struct br_merge *m, const uint8_t *body, uint32_t len, uint32_t guess)
{
    return br_merger_string(m, body, len, guess);
}

static uint32_t intern_function(struct br_merge *m, const uint8_t *p, uint32_t len, uint32_t guess)
{
    const uint64_t known = TAGS(0x08, 0x10, 0x18, 0x20, 0x20);
    uint64_t v[4] = {0};
    bool others = false;
    uint8_t *o = br_merger_entry(m, BR_TABLE_FUNCTION, GROWTH * (size_t)len);
    if (!o || !read_scalars(p, p + len, v, 4, &others)) {
        br_merger_fail(m, BR_EINVAL);
        return 0;
    }
    for (uint32_t k = 0; k < 3; k++)
        o = br_merger_put_scalar(o, BR_FUNCTION_NAME + k,
                                 br_merger_index(m, BR_TABLE_STRING, v[k]));
    o = br_merger_put_scalar(o, BR_FUNCTION_START_LINE, v[3]);
    if (others)
        o = put_unknown(known, p, p + len, o);
    return br_merger_enter(m, BR_TABLE_FUNCTION, o, guess);
}

static uint32_t intern_mapping(struct br_merge *m, const uint8_t *p, uint32_t len, uint32_t guess)
{
    const uint64_t known = TAGS(0x08, 0x10, 0x18, 0x20, 0x28) | UINT64_C(1) << 0x2a;
    uint64_t v[4] = {0};
    bool others = false;
    uint8_t *o = br_merger_entry(m, BR_TABLE_MAPPING, GROWTH * (size_t)len);
    if (!o || !read_scalars(p, p + len, v, 4, &others)) {
        br_merger_fail(m, BR_EINVAL);
        return 0;
    }
    for (uint32_t k = 0; k < 3; k++)
        o = br_merger_put_scalar(o, BR_MAPPING_START + k, v[k]);
    o = br_merger_put_scalar(o, BR_MAPPING_FILENAME, br_merger_index(m, BR_TABLE_STRING, v[3]));
    if (others) {
        o = put_list(m, BR_TABLE_ATTRIBUTE, BR_MAPPING_ATTRIBUTES, p, p + len, o);
        o = put_unknown(known, p, p + len, o);
    }
    return br_merger_enter(m, BR_TABLE_MAPPING, o, guess);
}

static uint8_t *put_line(struct br_merge *m, const uint8_t *p, const uint8_t *end, uint8_t *o)
{
    const uint64_t known = TAGS(0x08, 0x10, 0x18, 0x18, 0x18);
    uint64_t v[3] = {0};
    bool others = false;
    if (!read_scalars(p, end, v, 3, &others))
        br_merger_fail(m, BR_EINVAL);
    *o++ = (uint8_t)BR_SCAN_LEN(BR_LOCATION_LINES);
    uint8_t *line = ++o;
    o = br_merger_put_scalar(o, BR_LINE_FUNCTION, br_merger_index(m, BR_TABLE_FUNCTION, v[0]));
    o = br_merger_put_scalar(o, BR_LINE_LINE, v[1]);
    o = br_merger_put_scalar(o, BR_LINE_COLUMN, v[2]);
    if (others)
        o = put_unknown(known, p, end, o);
    return br_put_length_before(line, o);
}

static uint32_t intern_location(struct br_merge *m, const uint8_t *p, uint32_t len, uint32_t guess)
{
    const uint64_t known = TAGS(0x08, 0x10, 0x1a, 0x20, 0x22);
    const uint8_t *start = p, *end = p + len;
    uint64_t mapping = 0, address = 0;
    bool others = false;
    uint8_t *o = br_merger_entry(m, BR_TABLE_LOCATION, GROWTH * (size_t)len);
    while (o && p < end) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p) {
            br_merger_fail(m, BR_EINVAL);
            break;
        }
        switch (br_scan_tag(&f)) {
        case BR_SCAN_VARINT(BR_LOCATION_MAPPING):
            mapping = f.value;
            break;
        case BR_SCAN_VARINT(BR_LOCATION_ADDRESS):
            address = f.value;
            break;
        case BR_SCAN_LEN(BR_LOCATION_LINES):
            o = put_line(m, f.data, p, o);
            break;
        default:
            others = true;
        }
    }
    if (m->rc)
        return 0;
    o = br_merger_put_scalar(o, BR_LOCATION_MAPPING, br_merger_index(m, BR_TABLE_MAPPING, mapping));
    o = br_merger_put_scalar(o, BR_LOCATION_ADDRESS, address);
    if (others) {
        o = put_list(m, BR_TABLE_ATTRIBUTE, BR_LOCATION_ATTRIBUTES, start, end, o);
        o = put_unknown(known, start, end, o);
    }
    return br_merger_enter(m, BR_TABLE_LOCATION, o, guess);
}

static uint32_t intern_link(struct br_merge *m, const uint8_t *p, uint32_t len, uint32_t guess)
{
    const uint64_t known = TAGS(0x0a, 0x12, 0x12, 0x12, 0x12);
    struct br_field f, ids[2] = {0};
    bool others = false;
    uint8_t *o = br_merger_entry(m, BR_TABLE_LINK, len);
    if (!o)
        return 0;
    for (const uint8_t *q = p; q < p + len;) {
        q = br_scan(q, p + len, &f);
        if (!q) {
            br_merger_fail(m, BR_EINVAL);
            return 0;
        }
        if (f.wire == BR_WIRE_LEN && f.number <= BR_LINK_SPAN_ID)
            ids[f.number - BR_LINK_TRACE_ID] = f;
        else
            others = true;
    }
    for (uint32_t k = 0; k < 2; k++) {
        if (ids[k].value)
            o = br_put_len(o, BR_LINK_TRACE_ID + k, ids[k].data, ids[k].value);
    }
    if (others)
        o = put_unknown(known, p, p + len, o);
    return br_merger_enter(m, BR_TABLE_LINK, o, guess);
}

static struct br_entry source_string(const void *arg, uint64_t i)
{
    const struct br_merge *m = arg;
    struct br_entry e = {NULL, 0};
    if (i != 0 && i < m->source.tables[BR_TABLE_STRING].n)
        e.data = br_source_body(&m->source, BR_TABLE_STRING, (uint32_t)i, &e.len);
    return e;
}

int br_merger_inliner(struct br_merge *m, struct br_inliner *ret)
{
    if (!m->scratch) {
        m->scratch = br_buf_new(m->host->pool, 0);
        if (!m->scratch)
            return BR_ENOMEM;
    }
    m->scratch->len = 0;
    *ret = (struct br_inliner){&m->scratch, m->max_bytes, source_string, m};
    return 0;
}

/* The value fields of an attribute, with references resolved, in the scratch buffer. */
static int resolve_values(struct br_merge *m, const uint8_t *p, const uint8_t *end)
{
    struct br_inliner in;
    int rc = br_merger_inliner(m, &in);
    while (p < end && !rc) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&f) == BR_SCAN_LEN(BR_ATTRIBUTE_VALUE))
            rc = br_value_inline(&in, f.data, f.value);
    }
    return rc;
}

static uint32_t intern_attribute(struct br_merge *m, const uint8_t *p, uint32_t len, uint32_t guess)
{
    const uint64_t known = TAGS(0x08, 0x12, 0x18, 0x18, 0x18);
    uint64_t v[3] = {0};
    bool others = false, refers = false;
    const uint8_t *value = NULL, *end = p + len;
    size_t value_len = 0, n_values = 0;
    for (const uint8_t *q = p; q < end;) {
        struct br_field f;
        q = br_scan(q, end, &f);
        if (!q) {
            br_merger_fail(m, BR_EINVAL);
            return 0;
        }
        if (br_scan_tag(&f) == BR_SCAN_LEN(BR_ATTRIBUTE_VALUE)) {
            value = f.data;
            value_len = f.value;
            n_values++;
            refers = refers || br_value_has_references(f.data, f.value);
        } else if (f.wire == BR_WIRE_VARINT && f.number <= BR_ATTRIBUTE_UNIT) {
            v[f.number - 1] = f.value;
        } else {
            others = true;
        }
    }
    if (refers || n_values > 1) {
        br_merger_fail(m, resolve_values(m, p, end));
        value = m->scratch->data;
        value_len = m->scratch->len;
    }
    uint8_t *o = m->rc ? NULL : br_merger_entry(m, BR_TABLE_ATTRIBUTE, (size_t)len + value_len);
    if (!o)
        return 0;
    o = br_merger_put_scalar(o, BR_ATTRIBUTE_KEY, br_merger_index(m, BR_TABLE_STRING, v[0]));
    if (n_values)
        o = br_put_len(o, BR_ATTRIBUTE_VALUE, value, value_len);
    o = br_merger_put_scalar(o, BR_ATTRIBUTE_UNIT, br_merger_index(m, BR_TABLE_STRING, v[2]));
    if (others)
        o = put_unknown(known, p, end, o);
    return br_merger_enter(m, BR_TABLE_ATTRIBUTE, o, guess);
}

static uint32_t intern_stack(struct br_merge *m, const uint8_t *p, uint32_t len, uint32_t guess)
{
    const uint64_t known = TAGS(0x08, 0x0a, 0x0a, 0x0a, 0x0a);
    struct br_field f;
    const uint8_t *end = p + len;
    uint8_t *o = br_merger_entry(m, BR_TABLE_STACK, GROWTH * (size_t)len);
    if (!o)
        return 0;
    const uint8_t *next = len ? br_scan(p, end, &f) : NULL;
    if (next == end && br_scan_tag(&f) == BR_SCAN_LEN(BR_STACK_LOCATIONS)) {
        if (f.value) {
            *o++ = (uint8_t)BR_SCAN_LEN(BR_STACK_LOCATIONS);
            uint8_t *list = ++o;
            o = br_put_length_before(list,
                                     br_merger_put_packed(m, BR_TABLE_LOCATION, f.data, end, o));
        }
    } else {
        o = put_list(m, BR_TABLE_LOCATION, BR_STACK_LOCATIONS, p, end, o);
        o = put_unknown(known, p, end, o);
    }
    return br_merger_enter(m, BR_TABLE_STACK, o, guess);
}

uint32_t br_merger_intern(struct br_merge *m, enum br_table t, uint32_t i)
{
    static uint32_t (*const intern[BR_TABLES])(struct br_merge *, const uint8_t *, uint32_t,
                                               uint32_t) = {
        [BR_TABLE_MAPPING] = intern_mapping,   [BR_TABLE_LOCATION] = intern_location,
        [BR_TABLE_FUNCTION] = intern_function, [BR_TABLE_LINK] = intern_link,
        [BR_TABLE_STRING] = intern_string,     [BR_TABLE_ATTRIBUTE] = intern_attribute,
        [BR_TABLE_STACK] = intern_stack};
    uint32_t *map = m->source.tables[t].map;
    if (m->rc)
        return 0;
    uint32_t len;
    const uint8_t *body = br_source_body(&m->source, t, i, &len);
    /* Neighbours in the source are mostly neighbours in the merged dictionary. Entry 0 has its
     * place, so there is one before. */
    uint32_t guess = map[i - 1] ? map[i - 1] : BR_INTERN_NONE;
    uint32_t place = intern[t](m, body, len, guess);
    if (m->rc)
        return 0;
    map[i] = place + 1;
    return place;
}
