/* SPDX-License-Identifier: Apache-2.0 */
/* What the references of a profiles request come to when they are written inline, which exporters
 * and processors do (resolve.h). */
#include "base/mem.h"
#include "otlp/dictionary/resolve.h"
#include "otlp/scan.h"
#include "otlp/walk/internal.h"

#define HEAD 6 /* bytes of a tag and a length beside a text */

/* The lengths of the request's strings; they were checked, as everything here. */
struct inlined {
    uint32_t *lens;
    uint64_t n, n_read;
    uint64_t growth;
};

static void inlined_note(struct inlined *in, uint64_t string)
{
    in->growth += HEAD + (string < in->n ? in->lens[string] : 0);
}

static void inlined_value(struct inlined *in, const uint8_t *p, const uint8_t *end);

/* The KeyValues, or of a list the AnyValues, in field `field` of a message. */
static void inlined_list(struct inlined *in, const uint8_t *p, const uint8_t *end, uint32_t field,
                         bool pairs)
{
    struct br_field f, g;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(field))
            continue;
        if (!pairs)
            inlined_value(in, f.data, p);
        for (const uint8_t *q = f.data; pairs && q && q < p && (q = br_scan(q, p, &g));) {
            if (br_scan_tag(&g) == BR_SCAN_LEN(BR_KEYVALUE_VALUE))
                inlined_value(in, g.data, q);
            else if (br_scan_tag(&g) == BR_SCAN_VARINT(BR_KEYVALUE_KEY_STRINDEX))
                inlined_note(in, g.value);
        }
    }
}

static void inlined_value(struct inlined *in, const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f))) {
        uint32_t tag = br_scan_tag(&f);
        if (tag == BR_SCAN_VARINT(BR_VALUE_STRINDEX))
            inlined_note(in, f.value);
        else if (tag == BR_SCAN_LEN(BR_VALUE_LIST) || tag == BR_SCAN_LEN(BR_VALUE_MAP))
            inlined_list(in, f.data, p, 1, f.number == BR_VALUE_MAP);
    }
}

static void inlined_resource(struct inlined *in, const uint8_t *p, const uint8_t *end)
{
    struct br_field f, g;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) == BR_SCAN_LEN(BR_RESOURCES_RESOURCE))
            inlined_list(in, f.data, p, BR_RESOURCE_ATTRIBUTES, true);
        else if (br_scan_tag(&f) == BR_SCAN_LEN(BR_RESOURCES_SCOPES))
            for (const uint8_t *q = f.data; q && q < p && (q = br_scan(q, p, &g));)
                if (br_scan_tag(&g) == BR_SCAN_LEN(BR_SCOPES_SCOPE))
                    inlined_list(in, g.data, q, BR_SCOPE_ATTRIBUTES, true);
    }
}

static void inlined_dictionary(struct inlined *in, const uint8_t *p, const uint8_t *end)
{
    struct br_field f, g;
    while (p < end && (p = br_scan(p, end, &f)))
        if (br_scan_tag(&f) == BR_SCAN_LEN(BR_DICTIONARY_ATTRIBUTES))
            for (const uint8_t *q = f.data; q && q < p && (q = br_scan(q, p, &g));)
                if (br_scan_tag(&g) == BR_SCAN_LEN(BR_ATTRIBUTE_VALUE))
                    inlined_value(in, g.data, q);
}

static void read_lengths(struct inlined *in, const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f)))
        if (br_scan_tag(&f) == BR_SCAN_LEN(BR_DICTIONARY_STRINGS) && in->n_read < in->n)
            in->lens[in->n_read++] = (uint32_t)f.value;
}

static void read_part(struct inlined *in, const struct br_part *part, bool lengths)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    if (lengths && part->kind == BR_PART_DICTIONARY)
        read_lengths(in, p, end);
    else if (!lengths && part->kind == BR_PART_DICTIONARY)
        inlined_dictionary(in, p, end);
    else if (!lengths && part->kind == BR_PART_RESOURCE)
        inlined_resource(in, p, end);
}

/* Strings may come after what refers to them, so that their lengths are read first. */
static bool measure(const struct br_walker *w, const struct br_item *item, uint64_t *ret)
{
    struct inlined in = {.n = w->n_tables[BR_DICTIONARY_STRINGS]};
    in.lens = br_calloc(in.n, sizeof *in.lens);
    for (int lengths = 1; in.lens && lengths >= 0; lengths--)
        for (uint32_t i = 0; i < item->n_parts; i++)
            read_part(&in, &item->parts[i], lengths);
    bool ok = in.lens != NULL;
    br_free(in.lens);
    *ret = in.growth;
    return ok;
}

bool br_walk_inlined_fits(struct br_walker *w, const struct br_item *item, size_t len)
{
    uint64_t most = BR_WALK_INLINE_TIMES * (uint64_t)len + BR_WALK_INLINE_BYTES, growth;
    uint64_t room = len + len / 8 < BR_BUF_MAX ? BR_BUF_MAX - len - len / 8 : 0;
    most = most < room ? most : room;
    if (w->n_references <= most / (w->longest + HEAD))
        return true;
    if (!measure(w, item, &growth))
        return br_walk_no_memory(w);
    return growth <= most ||
           br_walk_too_big(w, "references to strings would take too many bytes written inline");
}
