/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/value_text.h"
#include "base/mem.h"
#include "profile/pprof/write_tables.h"

/* --- Labels ---------------------------------------------------------------------------------- */

static void put_label(struct pprof_tables *t, uint32_t key, uint32_t text, int64_t number,
                      uint32_t unit)
{
    uint8_t *body = pprof_open(t, PPROF_CACHE, BR_PPROF_SAMPLE_LABELS, 4 * (1 + BR_VARINT_MAX));
    if (!body)
        return;
    uint8_t *o = pprof_put_number(body, BR_PPROF_LABEL_KEY, key);
    o = pprof_put_number(o, BR_PPROF_LABEL_STR, text);
    o = pprof_put_number(o, BR_PPROF_LABEL_NUM, (uint64_t)number);
    o = pprof_put_number(o, BR_PPROF_LABEL_UNIT, unit);
    pprof_wrote(t, PPROF_CACHE, br_put_length_before(body, o));
}

static void put_value(struct pprof_tables *t, uint32_t key, const struct br_any *v, uint32_t unit)
{
    struct br_str text = {0};
    if (v->type == BR_VALUE_INT) {
        put_label(t, key, 0, (int64_t)v->number, pprof_string(t, unit));
        return;
    }
    if (v->type == BR_VALUE_STRING) {
        put_label(t, key, v->len ? pprof_text(t, v->data, v->len) : 0, 0, 0);
        return;
    }
    br_value_text(&text, v, &t->arena);
    if (text.failed)
        t->rc = t->rc ? t->rc : BR_ENOMEM;
    else if (text.len)
        put_label(t, key, pprof_text(t, text.data, text.len), 0, 0);
    br_str_release(&text);
}

/* A list of texts or integers is several labels of one name, as pprof has it. */
static bool put_list(struct pprof_tables *t, uint32_t key, const struct br_any *list, uint32_t unit)
{
    const uint8_t *p = list->data, *end = p + list->len;
    struct br_any each;
    while ((p = br_list_next(p, end, &each)))
        if (each.type != BR_VALUE_STRING && each.type != BR_VALUE_INT)
            return false;
    for (p = list->data; (p = br_list_next(p, end, &each));)
        put_value(t, key, &each, unit);
    return true;
}

/* Ids are padded with zeros on the left; what is no hex is no id. */
static void read_id(struct pprof_label *label, const struct br_any *v, size_t size)
{
    char text[32];
    memset(label->id, 0, sizeof label->id);
    if (v->type != BR_VALUE_STRING || v->len == 0 || v->len > 2 * size)
        return;
    memset(text, '0', sizeof text);
    memcpy(text + 2 * size - v->len, v->data, v->len);
    if (br_hex_decode(text, 2 * size, label->id, size) < 0)
        memset(label->id, 0, sizeof label->id);
}

static void find_role(struct pprof_label *label, const struct br_pair *a)
{
    if (br_text_is(a->key, "span_id") || br_text_is(a->key, "profile_id")) {
        label->role = PPROF_SPAN_ID;
        read_id(label, &a->value, 8);
    } else if (br_text_is(a->key, "trace_id")) {
        label->role = PPROF_TRACE_ID;
        read_id(label, &a->value, 16);
    }
}

static bool wanted(struct pprof_tables *t, struct pprof_label *label, struct br_entry key)
{
    const struct br_pprof_options *o = t->options;
    if (t->all_labels || !o->keep_label)
        return true;
    if (!label->wanted)
        label->wanted = o->keep_label(o->arg, (const char *)key.data, key.len) ? 1 : -1;
    return label->wanted > 0;
}

static const struct pprof_label no_label;

const struct pprof_label *pprof_label(struct pprof_tables *t, uint32_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_ATTRIBUTE])
        return &no_label;
    struct pprof_label *label = &t->labels[i];
    if (label->piece.round == t->round)
        return label;
    struct br_pair a;
    uint32_t key_index, unit;
    size_t at = t->buffers[PPROF_CACHE].len;
    label->piece = (struct pprof_piece){t->round, (uint32_t)at, 0};
    if (!pprof_work(t, t->view.tables[BR_TABLE_ATTRIBUTE][i].len) ||
        !br_pair_of(&t->view, i, &a, &key_index, &unit) || a.value.type == BR_VALUE_EMPTY ||
        !wanted(t, label, a.key))
        return label;
    find_role(label, &a);
    uint32_t key = pprof_string(t, key_index);
    if (a.value.type != BR_VALUE_LIST || !put_list(t, key, &a.value, unit))
        put_value(t, key, &a.value, unit);
    label->makes_series = label->role == PPROF_LABEL && a.value.type != BR_VALUE_INT;
    label->piece.len = (uint32_t)(t->buffers[PPROF_CACHE].len - at);
    return label;
}

/* --- Links ----------------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i])
            return false;
    return true;
}

static uint32_t hex_text(struct pprof_tables *t, const uint8_t *id, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char text[32];
    for (size_t i = 0; i < len; i++) {
        text[2 * i] = digits[id[i] >> 4];
        text[2 * i + 1] = digits[id[i] & 15];
    }
    return pprof_text(t, text, 2 * len);
}

static void put_id(struct pprof_tables *t, struct pprof_piece *piece, unsigned key, uint32_t text)
{
    static const char *const keys[] = {"span_id", "trace_id"};
    size_t at = t->buffers[PPROF_CACHE].len;
    if (!t->id_keys[key])
        t->id_keys[key] = pprof_text(t, keys[key], strlen(keys[key]));
    put_label(t, t->id_keys[key], text, 0, 0);
    *piece =
        (struct pprof_piece){t->round, (uint32_t)at, (uint32_t)(t->buffers[PPROF_CACHE].len - at)};
}

/* Neighbours in the link table are mostly of one trace. */
static uint32_t trace_text(struct pprof_tables *t, uint32_t i, const uint8_t *trace_id)
{
    const struct pprof_link *last = &t->links[t->last_trace];
    if (!t->last_trace_string || memcmp(last->trace_id, trace_id, 16) != 0) {
        t->last_trace_string = hex_text(t, trace_id, 16);
        t->last_trace = i;
    }
    return t->last_trace_string;
}

const struct pprof_link *pprof_link(struct pprof_tables *t, uint64_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_LINK])
        return NULL;
    struct pprof_link *link = &t->links[i];
    if (link->span.round == t->round)
        return link;
    const struct br_entry *e = &t->view.tables[BR_TABLE_LINK][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    if (!pprof_work(t, e->len))
        return NULL;
    link->span_id = link->trace_id = NULL;
    link->span = link->trace = (struct pprof_piece){t->round, 0, 0};
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number == BR_LINK_TRACE_ID && f.wire == BR_WIRE_LEN)
            link->trace_id = f.value == 16 && !is_zero(f.data, 16) ? f.data : NULL;
        else if (f.number == BR_LINK_SPAN_ID && f.wire == BR_WIRE_LEN)
            link->span_id = f.value == 8 && !is_zero(f.data, 8) ? f.data : NULL;
    }
    if (link->span_id)
        put_id(t, &link->span, 0, hex_text(t, link->span_id, 8));
    if (link->trace_id)
        put_id(t, &link->trace, 1, trace_text(t, (uint32_t)i, link->trace_id));
    return link;
}
