/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/labels.h"

#include <string.h>

#include "base/str.h"
#include "wire/protobuf.h"

#define NOT_NAMED SIZE_MAX

static size_t number_of(const char *const *names, size_t n, struct br_entry key)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == key.len && memcmp(names[i], key.data, key.len) == 0)
            return i;
    return NOT_NAMED;
}

static bool any_set(const uint8_t *id, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (id[i])
            return true;
    return false;
}

static bool read_bytes(const uint8_t *data, uint64_t len, uint8_t *out, size_t size)
{
    if (len != size)
        return false;
    memcpy(out, data, size);
    return any_set(out, size);
}

/* JFR has span ids as signed 64-bit integers. */
static bool read_int(uint64_t value, uint8_t *out, size_t size)
{
    if (size != 8 || value == 0)
        return false;
    value = __builtin_bswap64(value);
    memcpy(out, &value, 8);
    return true;
}

/* An AnyValue's field: of a oneof the last one counts; zeroed where there is none. */
static struct br_field value_of(const uint8_t *p, const uint8_t *end)
{
    struct br_field f, last = {0};
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number <= 8)
            last = f;
    return last;
}

/* A list of one, which is what some translators make of a pprof label, is its element. */
static struct br_field only_element(struct br_field list)
{
    struct br_field f, found = {0};
    const uint8_t *p = list.data, *end = p + list.value;
    unsigned n = 0;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number == 1 && n++ == 0)
            found = value_of(f.data, f.data + f.value);
    return n == 1 ? found : (struct br_field){0};
}

static bool read_id(struct join_texts *texts, struct br_field value, uint8_t *out,
                    size_t size)
{
    struct br_field v = value_of(value.data, value.data + value.value);
    if (v.number == 5)
        v = only_element(v);
    switch (v.number) {
    case 1:
        return br_hex_id((const char *)v.data, v.value, out, size);
    case 3:
        return read_int(v.value, out, size);
    case 7:
        return read_bytes(v.data, v.value, out, size);
    case 8:
        return join_texts_id(texts, v.value, out, size);
    default:
        return false;
    }
}

static void read_kind(struct join_texts *texts, const struct join_label_names *names,
                      struct br_entry key, struct br_field value, struct join_label *l)
{
    size_t n = number_of(names->own, names->n_own, key);
    if (n != NOT_NAMED) {
        l->kind = JOIN_LABEL_OWN;
        l->number = (uint8_t)n;
        return;
    }
    if (!value.data)
        return;
    n = number_of(names->span_id.v, names->span_id.n, key);
    if (n != NOT_NAMED && read_id(texts, value, l->id, 8))
        l->kind = JOIN_LABEL_SPAN_ID;
    if (n == NOT_NAMED) {
        n = number_of(names->trace_id.v, names->trace_id.n, key);
        if (n != NOT_NAMED && read_id(texts, value, l->id, 16))
            l->kind = JOIN_LABEL_TRACE_ID;
    }
    l->number = (uint8_t)(n < UINT8_MAX ? n : UINT8_MAX);
}

static struct join_label read_entry(struct join_texts *texts, const struct join_label_names *names,
                                    const struct br_entry *e)
{
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f, value = {0};
    struct br_entry key = {0};
    struct join_label l = {.where = JOIN_WHERES};
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1)
            key = join_texts_at(texts, f.value);
        else if (f.number == 2)
            value = f;
    }
    if (!key.len)
        return l;
    read_kind(texts, names, key, value, &l);
    enum join_where where = join_where_of(key.data, key.len);
    if (where < JOIN_WHERES && value.data) {
        l.where = (uint8_t)where;
        l.hash = join_where_hash(texts->table, value.data, value.value, texts);
    }
    return l;
}

struct join_label *join_labels_read(struct join_texts *texts, const struct join_label_names *names,
                                    struct br_arena *arena, bool *ret_any)
{
    const struct br_dictionary_view *view = texts->view;
    uint32_t n = view->n[BR_TABLE_ATTRIBUTE];
    struct join_label *labels = br_arena_calloc(arena, n, sizeof *labels);
    bool any = false;
    if (labels && n)
        labels[0].where = JOIN_WHERES;
    for (uint32_t i = 1; labels && i < n; i++) {
        labels[i] = read_entry(texts, names, &view->tables[BR_TABLE_ATTRIBUTE][i]);
        any = any || labels[i].kind || labels[i].where < JOIN_WHERES;
    }
    *ret_any = any;
    return labels;
}
