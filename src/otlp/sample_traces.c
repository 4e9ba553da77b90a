/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/sample_traces.h"

#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "otlp/trace_id.h"

#define ID_LEN 16u

static uint32_t sample_traces_add(struct br_sample_traces *traces, const uint8_t *id)
{
    memcpy(traces->ids[traces->count], id, ID_LEN);
    return traces->count++;
}

static uint32_t sample_traces_read_link(struct br_sample_traces *traces,
                                        const struct br_entry *entry)
{
    const uint8_t *p = entry->data, *end = p + entry->len, *id = NULL;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_LINK_TRACE_ID))
            id = field.value == ID_LEN ? field.data : NULL;
    return id && br_trace_id_valid(id) ? sample_traces_add(traces, id) : 0;
}

/* Reads a trace id from an attribute's value: bytes, hexadecimal text, or a reference to a
 * hexadecimal text in the string table. */
static bool sample_traces_read_value(const struct br_sample_traces *traces, struct br_value value,
                                     uint8_t ret[ID_LEN])
{
    struct br_any any = br_any_read(value);
    if (any.reference) {
        struct br_entry entry = br_dictionary_string(&traces->view, (uint32_t)any.reference);
        return br_trace_id_parse(entry.data, entry.len, ret);
    }
    if (any.type == BR_VALUE_BYTES && any.len == ID_LEN) {
        memcpy(ret, any.data, ID_LEN);
        return br_trace_id_valid(ret);
    }
    return any.type == BR_VALUE_STRING && br_trace_id_parse(any.data, any.len, ret);
}

static void sample_traces_read_attribute(struct br_sample_traces *traces, uint32_t index,
                                         const struct br_strings *names)
{
    const struct br_entry *entry = &traces->view.tables[BR_TABLE_ATTRIBUTE][index];
    struct br_keyvalue kv;
    uint8_t id[ID_LEN];
    (void)br_keyvalue_read_entry(entry->data, entry->len, &kv);
    struct br_entry key = br_dictionary_string(&traces->view, (uint32_t)kv.key_index);
    for (size_t n = 0; key.len && kv.value.data && n < names->count && n < UINT8_MAX; n++) {
        if (!br_bytes_are(key.data, key.len, names->items[n]))
            continue;
        traces->rank[index] = (uint8_t)n;
        if (sample_traces_read_value(traces, kv.value, id))
            traces->attributes[index] = sample_traces_add(traces, id);
        return;
    }
}

int br_sample_traces_read(struct br_sample_traces *ret, const struct br_item *item,
                          const struct br_strings *names, struct br_arena *arena)
{
    struct br_sample_traces traces = {.count = 1};
    if (br_dictionary_index(item, arena, &traces.view))
        return BR_ENOMEM;
    uint32_t n_links = traces.view.count[BR_TABLE_LINK];
    uint32_t n = traces.view.count[BR_TABLE_ATTRIBUTE];
    traces.links = br_arena_calloc(arena, n_links, sizeof *traces.links);
    traces.attributes = br_arena_calloc(arena, n, sizeof *traces.attributes);
    traces.rank = br_arena_calloc(arena, n, 1);
    traces.ids = br_arena_calloc(arena, (size_t)n_links + n + 1, sizeof *traces.ids);
    if (!traces.links || !traces.attributes || !traces.rank || !traces.ids)
        return BR_ENOMEM;
    for (uint32_t i = 1; i < n_links; i++)
        traces.links[i] = sample_traces_read_link(&traces, &traces.view.tables[BR_TABLE_LINK][i]);
    for (uint32_t i = 1; i < n; i++)
        sample_traces_read_attribute(&traces, i, names);
    *ret = traces;
    return 0;
}

static void sample_traces_take_attribute(const struct br_sample_traces *traces, uint64_t index,
                                         uint32_t *number, unsigned *rank)
{
    if (index < traces->view.count[BR_TABLE_ATTRIBUTE] && traces->attributes[index] &&
        traces->rank[index] < *rank) {
        *number = traces->attributes[index];
        *rank = traces->rank[index];
    }
}

uint32_t br_sample_traces_of(const struct br_sample_traces *traces, const uint8_t *body, size_t len)
{
    const uint8_t *p = body, *end = p + len;
    uint32_t by_link = 0, by_label = 0;
    unsigned rank = UINT8_MAX;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint32_t tag = br_scan_tag(&field);
        if (tag == BR_SCAN_VARINT(BR_SAMPLE_LINK)) {
            by_link =
                field.value < traces->view.count[BR_TABLE_LINK] ? traces->links[field.value] : 0;
        } else if (tag == BR_SCAN_VARINT(BR_SAMPLE_ATTRIBUTES)) {
            sample_traces_take_attribute(traces, field.value, &by_label, &rank);
        } else if (tag == BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES)) {
            uint64_t i;
            for (const uint8_t *q = field.data; q && q < p && (q = br_scan_varint(q, p, &i));)
                sample_traces_take_attribute(traces, i, &by_label, &rank);
        }
    }
    return by_link ? by_link : by_label;
}
