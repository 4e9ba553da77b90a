/* SPDX-License-Identifier: Apache-2.0 */
/* Calculates how much larger a profiles request becomes when exporters and processors replace
 * its references by strings (dictionary.h). */
#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/scan.h"
#include "otlp/walk/internal.h"

#define HEAD                                                                                       \
    6 /* maximum number of bytes of the tag and the length that are added before each string */

/* State of the calculation: the lengths of the request's strings, and the bytes added so far.
 * The request has been validated. */
struct inlined {
    uint32_t *lens;
    uint64_t count, n_read;
    uint64_t growth;
};

static void walk_references_inlined_note(struct inlined *in, uint64_t string)
{
    in->growth += HEAD + (string < in->count ? in->lens[string] : 0);
}

static void walk_references_inlined_value(struct inlined *in, const uint8_t *p, const uint8_t *end);

/* Adds the growth of the fields `field_number` of a message. The fields are KeyValues if
 * `pairs`, and AnyValues otherwise. */
static void walk_references_inlined_list(struct inlined *in, const uint8_t *p, const uint8_t *end,
                                         uint32_t field_number, bool pairs)
{
    struct br_field field, g;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(field_number))
            continue;
        if (!pairs)
            walk_references_inlined_value(in, field.data, p);
        for (const uint8_t *q = field.data; pairs && q && q < p && (q = br_scan(q, p, &g));) {
            if (br_scan_tag(&g) == BR_SCAN_LEN(BR_KEYVALUE_VALUE))
                walk_references_inlined_value(in, g.data, q);
            else if (br_scan_tag(&g) == BR_SCAN_VARINT(BR_KEYVALUE_KEY_STRINDEX))
                walk_references_inlined_note(in, g.value);
        }
    }
}

static void walk_references_inlined_value(struct inlined *in, const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint32_t tag = br_scan_tag(&field);
        if (tag == BR_SCAN_VARINT(BR_VALUE_STRINDEX))
            walk_references_inlined_note(in, field.value);
        else if (tag == BR_SCAN_LEN(BR_VALUE_LIST) || tag == BR_SCAN_LEN(BR_VALUE_MAP))
            walk_references_inlined_list(in, field.data, p, 1, field.number == BR_VALUE_MAP);
    }
}

static void walk_references_inlined_resource(struct inlined *in, const uint8_t *p,
                                             const uint8_t *end)
{
    struct br_field field, g;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_RESOURCES_RESOURCE))
            walk_references_inlined_list(in, field.data, p, BR_RESOURCE_ATTRIBUTES, true);
        else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_RESOURCES_SCOPES))
            for (const uint8_t *q = field.data; q && q < p && (q = br_scan(q, p, &g));)
                if (br_scan_tag(&g) == BR_SCAN_LEN(BR_SCOPES_SCOPE))
                    walk_references_inlined_list(in, g.data, q, BR_SCOPE_ATTRIBUTES, true);
    }
}

static void walk_references_inlined_dictionary(struct inlined *in, const uint8_t *p,
                                               const uint8_t *end)
{
    struct br_field field, g;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_DICTIONARY_ATTRIBUTES))
            for (const uint8_t *q = field.data; q && q < p && (q = br_scan(q, p, &g));)
                if (br_scan_tag(&g) == BR_SCAN_LEN(BR_ATTRIBUTE_VALUE))
                    walk_references_inlined_value(in, g.data, q);
}

static void walk_references_read_lengths(struct inlined *in, const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_DICTIONARY_STRINGS) && in->n_read < in->count)
            in->lens[in->n_read++] = (uint32_t)field.value;
}

static void walk_references_read_part(struct inlined *in, const struct br_part *part, bool lengths)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    if (lengths && part->kind == BR_PART_DICTIONARY)
        walk_references_read_lengths(in, p, end);
    else if (!lengths && part->kind == BR_PART_DICTIONARY)
        walk_references_inlined_dictionary(in, p, end);
    else if (!lengths && part->kind == BR_PART_RESOURCE)
        walk_references_inlined_resource(in, p, end);
}

/* Measures the growth of a request in two passes. The first pass reads the lengths of the
 * strings, which may come after references to them. */
static bool walk_references_measure(const struct br_walker *walker, const struct br_item *item,
                                    uint64_t *ret)
{
    struct inlined in = {.count = walker->n_tables[BR_DICTIONARY_STRINGS]};
    in.lens = br_calloc(in.count, sizeof *in.lens);
    for (int lengths = 1; in.lens && lengths >= 0; lengths--)
        for (uint32_t i = 0; i < item->n_parts; i++)
            walk_references_read_part(&in, &item->parts[i], lengths);
    bool ok = in.lens != NULL;
    br_free(in.lens);
    *ret = in.growth;
    return ok;
}

bool br_walk_inlined_fits(struct br_walker *walker, const struct br_item *item, size_t len)
{
    uint64_t most = BR_WALK_INLINE_TIMES * (uint64_t)len + BR_WALK_INLINE_BYTES, growth;
    uint64_t room = len + len / 8 < BR_BUF_MAX ? BR_BUF_MAX - len - len / 8 : 0;
    most = most < room ? most : room;
    if (walker->n_references <= most / (walker->longest + HEAD))
        return true;
    if (!walk_references_measure(walker, item, &growth))
        return br_walk_no_memory(walker);
    return growth <= most ||
           br_walk_too_big(walker,
                           "references to strings would need too much memory when resolved");
}
