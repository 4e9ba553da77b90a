/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the tree of a grouping to one buffer. The lengths of all messages are computed first, from
 * the lowest level up, so that each byte is written once.
 */
#include "core/host.h"
#include "otlp/scan.h"
#include "processors/group_by_attrs/grouping.h"

static bool writing_is_lowest(const struct grouping *grouping, const struct group_node *node)
{
    return node->level == (grouping->item->signal == BR_TRACES ? GROUP_SCOPE : GROUP_PROFILE);
}

/* Computes the lengths of all nodes. A node has a larger index than its parent, so children are
 * measured first. Returns the total length of the parts, or SIZE_MAX if they do not fit into one
 * buffer. */
static size_t writing_measure(struct grouping *grouping)
{
    size_t total = 0;
    for (uint32_t i = grouping->n_nodes; i-- > 0;) {
        struct group_node *node = &grouping->nodes[i];
        struct group_node *parent =
            node->parent == GROUP_NONE ? NULL : &grouping->nodes[node->parent];
        if (node->resource.data)
            node->size += br_len_size(BR_RESOURCES_RESOURCE, node->resource.len);
        node->size += node->head.len + node->payload.len;
        uint32_t record = writing_is_lowest(grouping, node) ? node->first_child : GROUP_NONE;
        for (; record != GROUP_NONE; record = grouping->records[record].next)
            node->size += br_len_size(BR_INWARD, grouping->records[record].new_len);
        size_t *sum = parent ? &parent->size : &total;
        *sum += br_len_size(BR_INWARD, node->size);
        if (*sum > BR_BUF_MAX)
            return SIZE_MAX;
        if (parent)
            parent->n_records += node->n_records;
    }
    return total;
}

/* Writes a span without the attributes that are moved. */
static uint8_t *writing_put_span(uint8_t *out, struct grouping *grouping,
                                 const struct group_record *record)
{
    if (!br_attributes_read(grouping->list, BR_SPAN_ATTRIBUTES, record->body, record->len))
        return NULL;
    group_by_attrs_delete_keys(grouping);
    return br_attributes_write(grouping->list, out);
}

/* Writes a sample without the attributes that are moved. */
static uint8_t *writing_put_sample(uint8_t *out, const struct grouping *grouping,
                                   const struct group_record *record)
{
    const struct group_bytes sample = {record->body, record->len};
    const uint8_t *p = record->body, *end = br_mem_end(p, record->len);
    size_t len = group_by_attrs_put_indices(grouping, BR_SAMPLE_ATTRIBUTES, sample, NULL);
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field)))
        if (field.number != BR_SAMPLE_ATTRIBUTES)
            out = br_put_bytes(out, field.at, (size_t)(p - field.at));
    if (!len)
        return out;
    out = br_put_varint(out, BR_TAG(BR_SAMPLE_ATTRIBUTES, BR_WIRE_LEN));
    out = br_put_varint(out, len);
    return out + group_by_attrs_put_indices(grouping, BR_SAMPLE_ATTRIBUTES, sample, out);
}

static uint8_t *writing_put_record(uint8_t *out, struct grouping *grouping,
                                   const struct group_record *record)
{
    out = br_put_varint(out, BR_TAG(BR_INWARD, BR_WIRE_LEN));
    out = br_put_varint(out, record->new_len);
    br_steps_add(record->new_len);
    if (!record->edited)
        return br_put_bytes(out, record->body, record->len);
    return grouping->item->signal == BR_TRACES ? writing_put_span(out, grouping, record)
                                               : writing_put_sample(out, grouping, record);
}

/* Writes a node and its descendants. Returns the end of the output, or NULL if memory runs out. */
static uint8_t *writing_put_node(uint8_t *out, struct grouping *grouping, uint32_t index)
{
    const struct group_node *node = &grouping->nodes[index];
    uint32_t field = node->level == GROUP_RESOURCE ? BR_REQUEST_RESOURCES : BR_INWARD;
    out = br_put_varint(out, BR_TAG(field, BR_WIRE_LEN));
    out = br_put_varint(out, node->size);
    br_steps_add(node->resource.len + node->head.len + node->payload.len);
    if (node->resource.data)
        out = br_put_len(out, BR_RESOURCES_RESOURCE, node->resource.data, node->resource.len);
    out = br_put_bytes(out, node->head.data, node->head.len);
    out = br_put_bytes(out, node->payload.data, node->payload.len);
    bool lowest = writing_is_lowest(grouping, node);
    for (uint32_t i = node->first_child; i != GROUP_NONE && out;) {
        out = lowest ? writing_put_record(out, grouping, &grouping->records[i])
                     : writing_put_node(out, grouping, i);
        i = lowest ? grouping->records[i].next : grouping->nodes[i].next;
    }
    return out;
}

/* Adds the bytes from `start` to the end of the output to `item` as a part. */
static int writing_add_part(struct br_item *item, const struct group_node *node, struct br_buf *buf,
                            const uint8_t *start, const uint8_t *end)
{
    struct br_field field;
    struct br_part part = {.kind = BR_PART_RESOURCE,
                           .n_records = node->n_records,
                           .buf = buf,
                           .raw = start,
                           .raw_len = (uint32_t)(end - start)};
    (void)br_field_next(start, end, &field);
    part.body_at = part.res_at = part.res_body_at = (uint32_t)(field.data - start);
    if (node->resource.data) {
        const uint8_t *next = br_field_next(field.data, end, &field);
        part.res_len = (uint32_t)(next - start) - part.res_at;
        part.res_body_at = (uint32_t)(field.data - start);
    }
    return br_item_add_part(item, &part);
}

static int writing_fill(struct grouping *grouping, struct br_item *made, struct br_buf *buf)
{
    const struct br_item *item = grouping->item;
    uint8_t *out = buf->data;
    int rc = 0;
    for (uint32_t i = grouping->first_resource; i != GROUP_NONE && !rc;
         i = grouping->nodes[i].next) {
        const uint8_t *start = out;
        out = writing_put_node(out, grouping, i);
        rc = out ? writing_add_part(made, &grouping->nodes[i], buf, start, out) : BR_ENOMEM;
    }
    if (out)
        buf->len = (uint32_t)(out - buf->data);
    for (uint32_t i = 0; i < item->n_parts && !rc; i++)
        if (item->parts[i].kind != BR_PART_RESOURCE)
            rc = br_item_add_part(made, &item->parts[i]);
    return rc;
}

int group_by_attrs_write(struct grouping *grouping)
{
    struct br_item *item = grouping->item;
    size_t total = writing_measure(grouping);
    if (total == SIZE_MAX)
        return BR_EFULL;
    struct br_item *made = br_item_new(item->host, item->signal);
    struct br_buf *buf = br_buf_new(item->host->pool, total);
    int rc = made && buf ? writing_fill(grouping, made, buf) : BR_ENOMEM;
    if (!rc) {
        br_item_clear_parts(item);
        rc = br_item_absorb(item, made); /* cannot fail, because `item` has no parts */
    }
    if (made)
        br_item_free(made);
    br_buf_unref(buf);
    return rc;
}
