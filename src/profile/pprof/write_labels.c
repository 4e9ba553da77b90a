/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/value.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "profile/pprof/write_internal.h"

/* --- Labels ---------------------------------------------------------------------------------- */

static void pprof_write_labels_put(struct br_pprof_tables *tables, uint32_t key, uint32_t text,
                                   int64_t number, uint32_t unit)
{
    uint8_t *body =
        br_pprof_tables_open(tables, PPROF_CACHE, BR_PPROF_SAMPLE_LABELS, 4 * (1 + BR_VARINT_MAX));
    if (!body)
        return;
    uint8_t *o = br_pprof_put_number(body, BR_PPROF_LABEL_KEY, key);
    o = br_pprof_put_number(o, BR_PPROF_LABEL_STR, text);
    o = br_pprof_put_number(o, BR_PPROF_LABEL_NUM, (uint64_t)number);
    o = br_pprof_put_number(o, BR_PPROF_LABEL_UNIT, unit);
    br_pprof_tables_wrote(tables, PPROF_CACHE, br_put_length_before(body, o));
}

static void pprof_write_labels_put_value(struct br_pprof_tables *tables, uint32_t key,
                                         const struct br_any *any, uint32_t unit)
{
    struct br_str text = {0};
    if (any->type == BR_VALUE_INT) {
        pprof_write_labels_put(tables, key, 0, (int64_t)any->number,
                               br_pprof_tables_string(tables, unit));
        return;
    }
    if (any->type == BR_VALUE_STRING) {
        pprof_write_labels_put(
            tables, key, any->len ? br_pprof_tables_text(tables, any->data, any->len) : 0, 0, 0);
        return;
    }
    br_value_text(&text, any, &tables->arena);
    if (text.failed)
        tables->rc = tables->rc ? tables->rc : BR_ENOMEM;
    else if (text.len)
        pprof_write_labels_put(tables, key, br_pprof_tables_text(tables, text.data, text.len), 0,
                               0);
    br_str_release(&text);
}

/* Writes a list of strings or integers as several labels with the same key, as pprof does. Does
 * not write lists with other elements, and returns false. */
static bool pprof_write_labels_put_list(struct br_pprof_tables *tables, uint32_t key,
                                        const struct br_any *list, uint32_t unit)
{
    const uint8_t *p = list->data, *end = p + list->len;
    struct br_any each;
    while ((p = br_list_next(p, end, &each)))
        if (each.type != BR_VALUE_STRING && each.type != BR_VALUE_INT)
            return false;
    for (p = list->data; (p = br_list_next(p, end, &each));)
        pprof_write_labels_put_value(tables, key, &each, unit);
    return true;
}

/* Parses a hexadecimal ID, which may lack leading zeros. Invalid IDs become zeros. */
static void pprof_write_labels_read_id(struct br_pprof_label_fields *label,
                                       const struct br_any *any, size_t size)
{
    char text[32];
    memset(label->id, 0, sizeof label->id);
    if (any->type != BR_VALUE_STRING || any->len == 0 || any->len > 2 * size)
        return;
    memset(text, '0', sizeof text);
    memcpy(text + 2 * size - any->len, any->data, any->len);
    if (br_hex_decode(text, 2 * size, label->id, size) < 0)
        memset(label->id, 0, sizeof label->id);
}

static void pprof_write_labels_find_role(struct br_pprof_label_fields *label,
                                         const struct br_pair *pair)
{
    if (br_text_is(pair->key, "span_id") || br_text_is(pair->key, "profile_id")) {
        label->role = PPROF_SPAN_ID;
        pprof_write_labels_read_id(label, &pair->value, 8);
    } else if (br_text_is(pair->key, "trace_id")) {
        label->role = PPROF_TRACE_ID;
        pprof_write_labels_read_id(label, &pair->value, 16);
    }
}

static bool pprof_write_labels_wanted(struct br_pprof_tables *tables,
                                      struct br_pprof_label_fields *label, struct br_entry key)
{
    const struct br_pprof_options *options = tables->options;
    if (tables->all_labels || !options->keep_label)
        return true;
    if (!label->wanted)
        label->wanted = options->keep_label(options->arg, (const char *)key.data, key.len) ? 1 : -1;
    return label->wanted > 0;
}

static const struct br_pprof_label_fields no_label;

const struct br_pprof_label_fields *br_pprof_tables_label(struct br_pprof_tables *tables,
                                                          uint32_t index)
{
    if (index == 0 || index >= tables->view.count[BR_TABLE_ATTRIBUTE])
        return &no_label;
    struct br_pprof_label_fields *label = &tables->labels[index];
    if (label->piece.round == tables->round)
        return label;
    struct br_pair pair;
    uint32_t key_index, unit;
    size_t at = tables->buffers[PPROF_CACHE].len;
    label->piece = (struct br_pprof_piece){tables->round, (uint32_t)at, 0};
    if (!br_pprof_tables_work(tables, tables->view.tables[BR_TABLE_ATTRIBUTE][index].len) ||
        !br_pair_of(&tables->view, index, &pair, &key_index, &unit) ||
        pair.value.type == BR_VALUE_EMPTY || !pprof_write_labels_wanted(tables, label, pair.key))
        return label;
    pprof_write_labels_find_role(label, &pair);
    uint32_t key = br_pprof_tables_string(tables, key_index);
    if (pair.value.type != BR_VALUE_LIST ||
        !pprof_write_labels_put_list(tables, key, &pair.value, unit))
        pprof_write_labels_put_value(tables, key, &pair.value, unit);
    label->makes_series = label->role == PPROF_LABEL && pair.value.type != BR_VALUE_INT;
    label->piece.len = (uint32_t)(tables->buffers[PPROF_CACHE].len - at);
    return label;
}

/* --- Links ----------------------------------------------------------------------------------- */

static bool pprof_write_labels_is_zero(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i])
            return false;
    return true;
}

static uint32_t pprof_write_labels_hex_text(struct br_pprof_tables *tables, const uint8_t *id,
                                            size_t len)
{
    char text[32];
    br_hex_encode(id, len, text);
    return br_pprof_tables_text(tables, text, 2 * len);
}

static void pprof_write_labels_put_id(struct br_pprof_tables *tables, struct br_pprof_piece *piece,
                                      unsigned key, uint32_t text)
{
    static const char *const keys[] = {"span_id", "trace_id"};
    size_t at = tables->buffers[PPROF_CACHE].len;
    if (!tables->id_keys[key])
        tables->id_keys[key] = br_pprof_tables_text(tables, keys[key], strlen(keys[key]));
    pprof_write_labels_put(tables, tables->id_keys[key], text, 0, 0);
    *piece = (struct br_pprof_piece){tables->round, (uint32_t)at,
                                     (uint32_t)(tables->buffers[PPROF_CACHE].len - at)};
}

/* Returns the string of a trace ID. Consecutive links usually have the same trace, so the last
 * string is cached. */
static uint32_t pprof_write_labels_trace_text(struct br_pprof_tables *tables, uint32_t index,
                                              const uint8_t *trace_id)
{
    const struct br_pprof_link_fields *last = &tables->links[tables->last_trace];
    if (!tables->last_trace_string || memcmp(last->trace_id, trace_id, 16) != 0) {
        tables->last_trace_string = pprof_write_labels_hex_text(tables, trace_id, 16);
        tables->last_trace = index;
    }
    return tables->last_trace_string;
}

const struct br_pprof_link_fields *br_pprof_tables_link(struct br_pprof_tables *tables,
                                                        uint64_t index)
{
    if (index == 0 || index >= tables->view.count[BR_TABLE_LINK])
        return NULL;
    struct br_pprof_link_fields *link = &tables->links[index];
    if (link->span.round == tables->round)
        return link;
    const struct br_entry *entry = &tables->view.tables[BR_TABLE_LINK][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field;
    if (!br_pprof_tables_work(tables, entry->len))
        return NULL;
    link->span_id = link->trace_id = NULL;
    link->span = link->trace = (struct br_pprof_piece){tables->round, 0, 0};
    while (p < end && (p = br_scan(p, end, &field))) {
        if (field.number == BR_LINK_TRACE_ID && field.wire == BR_WIRE_LEN)
            link->trace_id = field.value == 16 && !pprof_write_labels_is_zero(field.data, 16)
                                 ? field.data
                                 : NULL;
        else if (field.number == BR_LINK_SPAN_ID && field.wire == BR_WIRE_LEN)
            link->span_id =
                field.value == 8 && !pprof_write_labels_is_zero(field.data, 8) ? field.data : NULL;
    }
    if (link->span_id)
        pprof_write_labels_put_id(tables, &link->span, 0,
                                  pprof_write_labels_hex_text(tables, link->span_id, 8));
    if (link->trace_id)
        pprof_write_labels_put_id(
            tables, &link->trace, 1,
            pprof_write_labels_trace_text(tables, (uint32_t)index, link->trace_id));
    return link;
}
