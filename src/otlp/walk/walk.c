/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/walk/walk.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "otlp/json/json.h"
#include "otlp/walk/internal.h"

#define LEN (BR_WIRE_LEN + 1)
#define VARINT (BR_WIRE_VARINT + 1)
#define I64 (BR_WIRE_I64 + 1)
/* initial value of walker->longest, in bytes: strings of the string table up to this length need
 * not be measured */
#define SHORT_STRING 127

bool br_walk_malformed(struct br_walker *walker)
{
    return br_walk_fail(walker, "malformed protobuf");
}

bool br_walk_too_big(struct br_walker *walker, const char *what)
{
    if (!walker->what) {
        walker->what = what;
        walker->code = BR_ETOOBIG;
    }
    return false;
}

bool br_walk_no_memory(struct br_walker *walker)
{
    walker->code = BR_ENOMEM;
    walker->what = "out of memory";
    return false;
}

bool br_walk_too_deep(struct br_walker *walker)
{
    return br_walk_too_big(walker, "messages are nested too deep");
}

bool br_walk_bad_string(struct br_walker *walker, const uint8_t *p, size_t count)
{
    if (walker->options->utf8 == BR_UTF8_PASS || br_utf8_valid(p, count) == count)
        return true;
    walker->bad_utf8++;
    return walker->options->utf8 == BR_UTF8_REPAIR ||
           br_walk_fail(walker, "a string is not valid UTF-8 (invalid_utf8 is reject)");
}

bool br_walk_ascii_long(const uint8_t *p, size_t count)
{
    uint64_t all = br_load64(p + count - 16) | br_load64(p + count - 8);
    for (size_t i = 0; i + 16 < count; i += 16)
        all |= br_load64(p + i) | br_load64(p + i + 8);
    return (all & 0x8080808080808080u) == 0;
}

const uint8_t *br_walk_field(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                             const uint8_t *wires, size_t n_wires, struct br_field *ret)
{
    p = br_field_next(p, end, ret);
    if (!p) {
        br_walk_malformed(walker);
        return NULL;
    }
    if (ret->number < n_wires && wires[ret->number] && wires[ret->number] != ret->wire + 1) {
        br_walk_fail(walker, "a field has the wrong wire type");
        return NULL;
    }
    return p;
}

/* Walks the elements (field 1) of an ArrayValue or, if `pairs`, of a KeyValueList. */
static bool walk_values(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                        unsigned depth, bool pairs)
{
    static const uint8_t wires[] = {0, LEN};
    if (depth > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number != BR_LIST_VALUES)
            continue;
        if (pairs ? !br_walk_attribute(walker, field.data, field.data + field.value, depth + 1)
                  : !br_walk_any(walker, field.data, field.data + field.value, depth + 1))
            return false;
    }
    return true;
}

/* Walks an AnyValue in any encoding. The frequent encodings are handled by walk_any_inline. */
static bool walk_any_slow(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                          unsigned depth)
{
    static const uint8_t wires[] = {0, LEN, VARINT, VARINT, I64, LEN, LEN, LEN, VARINT};
    if (depth > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number == BR_VALUE_STRING && !br_walk_string(walker, field.data, field.value))
            return false;
        if ((field.number == BR_VALUE_LIST || field.number == BR_VALUE_MAP) &&
            !walk_values(walker, field.data, field.data + field.value, depth + 1,
                         field.number == BR_VALUE_MAP))
            return false;
        if (field.number == BR_VALUE_STRINDEX && !br_walk_reference(walker, field.value))
            return false;
    }
    return true;
}

BR_HOT bool walk_any_inline(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                            unsigned depth)
{
    if (__builtin_expect(p < end, 1)) {
        const uint8_t *next = NULL;
        size_t n;
        if (*p == BR_TAG(BR_VALUE_STRING, BR_WIRE_LEN)) {
            next = br_walk_len(p + 1, end, &n);
            if (next && !br_walk_string(walker, next, n))
                return false;
            next = next ? next + n : NULL;
        } else if (*p == BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT) ||
                   *p == BR_TAG(BR_VALUE_BOOL, BR_WIRE_VARINT)) {
            next = br_walk_varint(p + 1, end);
        }
        if (__builtin_expect(next == end, 1) && __builtin_expect(depth <= walker->max_depth, 1))
            return true;
    }
    return walk_any_slow(walker, p, end, depth);
}

bool br_walk_any(struct br_walker *walker, const uint8_t *p, const uint8_t *end, unsigned depth)
{
    return walk_any_inline(walker, p, end, depth);
}

/* Walks a KeyValue, whose key and value may come in either order. */
enum br_walk_attribute br_walk_attribute(struct br_walker *walker, const uint8_t *p,
                                         const uint8_t *end, unsigned depth)
{
    static const uint8_t wires[] = {0, LEN, LEN, VARINT};
    const uint8_t key_tag = BR_TAG(BR_KEYVALUE_KEY, BR_WIRE_LEN);
    const uint8_t value_tag = BR_TAG(BR_KEYVALUE_VALUE, BR_WIRE_LEN);
    enum br_walk_attribute good = BR_WALK_GOOD;
    if (__builtin_expect(depth > walker->max_depth, 0))
        return (enum br_walk_attribute)br_walk_too_deep(walker);
    while (p < end) {
        size_t n;
        uint8_t tag = *p;
        if (__builtin_expect(tag == key_tag || tag == value_tag, 1)) {
            p = br_walk_len(p + 1, end, &n);
            if (__builtin_expect(!p, 0))
                return (enum br_walk_attribute)br_walk_malformed(walker);
            if (tag == value_tag) {
                if (!walk_any_inline(walker, p, p + n, depth + 1))
                    return BR_WALK_BAD;
            } else if (!br_walk_string(walker, p, n)) {
                return BR_WALK_BAD;
            } else if (__builtin_expect(br_walk_is_thread_key(p, n), 0)) {
                good = BR_WALK_THREAD;
            }
            p += n;
            continue;
        }
        struct br_field field;
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return BR_WALK_BAD;
        if (field.number == BR_KEYVALUE_KEY_STRINDEX && !br_walk_reference(walker, field.value))
            return BR_WALK_BAD;
        if (field.number == BR_KEYVALUE_KEY && !br_walk_string(walker, field.data, field.value))
            return BR_WALK_BAD;
        if (field.number == BR_KEYVALUE_KEY && br_walk_is_thread_key(field.data, field.value))
            good = BR_WALK_THREAD;
        if (field.number == BR_KEYVALUE_VALUE &&
            !br_walk_any(walker, field.data, field.data + field.value, depth + 1))
            return BR_WALK_BAD;
    }
    return good;
}

/* Walks an EntityRef: four string fields. */
static bool walk_entity(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                        unsigned depth)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, LEN};
    if (depth > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p || (field.number <= BR_ENTITY_DESCRIPTION_KEYS &&
                   !br_walk_string(walker, field.data, field.value)))
            return false;
    }
    return true;
}

bool br_walk_resource(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                      unsigned depth)
{
    static const uint8_t wires[] = {0, LEN, VARINT, LEN};
    if (depth > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number == BR_RESOURCE_ATTRIBUTES &&
            !br_walk_attribute(walker, field.data, field.data + field.value, depth + 1))
            return false;
        if (field.number == BR_RESOURCE_ENTITY_REFS &&
            !walk_entity(walker, field.data, field.data + field.value, depth + 1))
            return false;
    }
    return true;
}

bool br_walk_scope(struct br_walker *walker, const uint8_t *p, const uint8_t *end, unsigned depth)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, VARINT};
    if (depth > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if ((field.number == BR_SCOPE_NAME || field.number == BR_SCOPE_VERSION) &&
            !br_walk_string(walker, field.data, field.value))
            return false;
        if (field.number == BR_SCOPE_ATTRIBUTES &&
            !br_walk_attribute(walker, field.data, field.data + field.value, depth + 1))
            return false;
    }
    return true;
}

void br_walk_note_resource(struct br_walker *walker, struct br_part *part,
                           const struct br_field *field, const uint8_t *next)
{
    if (part->res_len) {
        walker->several_resources = true;
        return;
    }
    part->res_at = (uint32_t)(field->at - part->raw);
    part->res_len = (uint32_t)(next - field->at);
    part->res_body_at = (uint32_t)(field->data - part->raw);
}

/* Allocates a buffer that is large enough for this part and all later parts whose Resources have
 * to be merged. */
static struct br_buf *walk_merged_new(const struct br_item *item, const struct br_part *part)
{
    size_t size = 0;
    for (const struct br_part *p = part; p < item->parts + item->n_parts; p++)
        size += (size_t)p->raw_len + 2 * BR_VARINT_MAX;
    return br_buf_new(part->buf->pool, size);
}

/* Merges several Resource fields of a part into one. In protobuf, repeated occurrences of a
 * message are merged, which is equivalent to concatenating their bytes. After the walk each part
 * has at most one Resource. */
static bool walk_merge_resources(struct br_walker *walker, const struct br_item *item,
                                 struct br_part *part)
{
    const uint8_t *body = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_buf *buf = walker->merged;
    if (!buf && !(buf = walker->merged = walk_merged_new(item, part)))
        return br_walk_no_memory(walker);
    struct br_field field;
    size_t resource_len = 0, other_len = 0;
    for (const uint8_t *p = body, *next; p < end; p = next) {
        next = br_field_next(p, end, &field);
        if (field.number == BR_RESOURCES_RESOURCE)
            resource_len += field.value;
        else
            other_len += (size_t)(next - p);
    }
    uint8_t *raw = buf->data + buf->len,
            *out = br_put_varint(raw, BR_TAG(BR_REQUEST_RESOURCES, BR_WIRE_LEN));
    out = br_put_varint(out, br_len_size(BR_RESOURCES_RESOURCE, resource_len) + other_len);
    part->body_at = (uint32_t)(out - raw);
    out = br_put_varint(out, BR_TAG(BR_RESOURCES_RESOURCE, BR_WIRE_LEN));
    out = br_put_varint(out, resource_len);
    for (int resources = 1; resources >= 0; resources--) {
        for (const uint8_t *p = body, *next; p < end; p = next) {
            next = br_field_next(p, end, &field);
            if (field.number == BR_RESOURCES_RESOURCE && resources)
                out = br_put_bytes(out, field.data, field.value);
            else if (field.number != BR_RESOURCES_RESOURCE && !resources)
                out = br_put_bytes(out, p, (size_t)(next - p));
        }
    }
    buf->len = (uint32_t)(out - buf->data);
    br_buf_unref(part->buf);
    part->buf = br_buf_ref(buf);
    part->raw = raw;
    part->raw_len = (uint32_t)(out - raw);
    part->res_at = part->res_body_at = part->body_at;
    part->res_len = 0;
    part->n_records = 0;
    return true;
}

/* Reports the walker's error with its position in the request. */
static int walk_report(const struct br_walker *walker, enum br_signal signal, struct br_err *err)
{
    char where[128] = "request";
    int n = 0;
    static const char *const names[2][3] = {{"resource_spans", "scope_spans", "spans"},
                                            {"resource_profiles", "scope_profiles", "profiles"}};
    const long at[] = {walker->resource, walker->scope, walker->item};
    for (int i = 0; i < 3 && at[i] >= 0 && n < (int)sizeof where - 40; i++)
        n += snprintf(where + n, sizeof where - (size_t)n, "%s%s[%ld]", i ? "." : "",
                      names[signal][i], at[i]);
    if (walker->inner >= 0)
        (void)snprintf(where + n, sizeof where - (size_t)n, ".samples[%ld]", walker->inner);
    const char *version = "";
    if (signal == BR_PROFILES && walker->code == BR_EINVAL)
        version = " (profiles are read as v1development of opentelemetry-proto 1.10 or later)";
    return br_err_set(err, walker->code ? walker->code : BR_EINVAL, "%s: %s%s", where,
                      walker->what ? walker->what : "malformed protobuf", version);
}

/* Extends the item's last part by an adjacent part if both consist of unknown fields. Returns
 * true if the last part was extended. */
static bool walk_extend_other(struct br_item *item, const struct br_part *part)
{
    struct br_part *last = item->n_parts ? &item->parts[item->n_parts - 1] : NULL;
    if (!last || last->kind != BR_PART_OTHER || part->kind != BR_PART_OTHER ||
        last->raw + last->raw_len != part->raw)
        return false;
    last->raw_len += part->raw_len;
    item->size += part->raw_len;
    return true;
}

/* Returns true if the part has no content and must be omitted. The first dictionary is kept even
 * if it is empty, because a backend may require a dictionary. */
static bool walk_is_empty(struct br_walker *walker, const struct br_part *part)
{
    if (part->kind == BR_PART_OTHER || part->body_at < part->raw_len)
        return false;
    return part->kind == BR_PART_RESOURCE || walker->n_dictionaries > 1;
}

static int walk_add_part(struct br_walker *walker, struct br_item *item, const struct br_part *part,
                         size_t len)
{
    walker->n_dictionaries += part->kind == BR_PART_DICTIONARY;
    if (walk_is_empty(walker, part) || walk_extend_other(item, part))
        return 0;
    if (item->n_parts >= BR_WALK_PARTS + len / BR_WALK_PART_BYTES) {
        (void)br_walk_too_big(walker, "too many parts for the size of the request");
        return BR_ETOOBIG;
    }
    if (br_item_add_part(item, part) == 0)
        return 0;
    br_walk_no_memory(walker);
    return BR_ENOMEM;
}

/* Splits the request into its top-level fields, which become the parts of the item. walk_parts
 * walks the content of the parts afterwards. */
static int walk_split(struct br_walker *walker, struct br_item *item, struct br_buf *buf,
                      const uint8_t *data, size_t len)
{
    static const uint8_t wires[] = {0, LEN, LEN};
    const uint8_t *p = data, *end = br_mem_end(data, len);
    struct br_field field;
    int rc;
    while (p < end) {
        const uint8_t *at = p;
        p = br_walk_field(walker, p, end, wires, item->signal == BR_PROFILES ? 3 : 2, &field);
        if (!p)
            return BR_EINVAL;
        struct br_part part = {.kind = BR_PART_OTHER,
                               .buf = buf,
                               .raw = at,
                               .raw_len = (uint32_t)(p - at),
                               .body_at = field.data ? (uint32_t)(field.data - at) : 0};
        if (field.number == BR_REQUEST_RESOURCES) {
            part.kind = BR_PART_RESOURCE;
            part.res_at = part.res_body_at = part.body_at;
        } else if (field.number == BR_REQUEST_DICTIONARY && item->signal == BR_PROFILES) {
            part.kind = BR_PART_DICTIONARY;
            if (walker->exact && !br_walk_dictionary_count(walker, field.data, p))
                return BR_EINVAL;
        }
        if ((rc = walk_add_part(walker, item, &part, len)))
            return rc;
    }
    return 0;
}

static bool walk_resource_part(struct br_walker *walker, struct br_item *item, struct br_part *part)
{
    bool (*walk)(struct br_walker *, struct br_item *, struct br_part *) =
        item->signal == BR_TRACES ? br_walk_resource_spans : br_walk_resource_profiles;
    uint32_t n_profiles = walker->n_profiles;
    walker->several_resources = false;
    if (!walk(walker, item, part))
        return false;
    if (!walker->several_resources)
        return true;
    walker->scope = walker->item = walker->inner = -1;
    walker->n_profiles = n_profiles;
    walker->any_merged = true;
    return walk_merge_resources(walker, item, part) && walk(walker, item, part);
}

static bool walk_parts(struct br_walker *walker, struct br_item *item)
{
    long n_resources = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        struct br_part *part = &item->parts[i];
        const uint8_t *body = part->raw + part->body_at, *end = part->raw + part->raw_len;
        bool ok = true;
        if (part->kind == BR_PART_DICTIONARY) {
            walker->resource = walker->scope = walker->item = -1;
            ok = br_walk_dictionary(walker, part->buf, body, end);
        } else if (part->kind == BR_PART_RESOURCE) {
            walker->resource = n_resources++;
            walker->scope = walker->item = walker->inner = -1;
            size_t before = br_part_size(part);
            ok = walk_resource_part(walker, item, part);
            item->n_records += part->n_records;
            item->size += br_part_size(part) - before;
        }
        if (!ok)
            return false;
    }
    return true;
}

static struct br_walker walk_walker(const struct br_walk_options *options, bool exact)
{
    return (struct br_walker){.options = options,
                              .max_depth = options->max_depth ? options->max_depth : BR_WALK_DEPTH,
                              .resource = -1,
                              .scope = -1,
                              .item = -1,
                              .inner = -1,
                              .longest = SHORT_STRING,
                              .exact = exact};
}

/* Walks the request again and checks each index, to find the first index that is outside its
 * table. */
static void walk_find_index(struct br_walker *walker, struct br_item *item, struct br_buf *buf,
                            const uint8_t *data, size_t len)
{
    br_buf_unref(walker->merged);
    *walker = walk_walker(walker->options, true);
    br_item_clear_parts(item);
    if (walk_split(walker, item, buf, data, len) == 0)
        (void)walk_parts(walker, item);
}

/* Checks the limits that apply to a whole profiles request. */
static bool walk_totals(struct br_walker *walker, struct br_item *item, struct br_buf *buf,
                        const uint8_t *data, size_t len)
{
    uint64_t n_entries = 0;
    if (item->signal != BR_PROFILES)
        return true;
    if (!br_walk_indices_fit(walker)) {
        walk_find_index(walker, item, buf, data, len);
        return false;
    }
    walker->resource = walker->scope = walker->item = walker->inner = -1;
    for (size_t i = 0; i < BR_COUNT(walker->n_tables); i++)
        n_entries += walker->n_tables[i];
    if (n_entries > BR_WALK_ENTRIES + len / BR_WALK_ENTRY_BYTES)
        return br_walk_too_big(walker, "too many dictionary entries for the size of the request");
    return br_walk_inlined_fits(walker, item, len);
}

static void walk_count_types(const struct br_walker *walker, const struct br_item *item)
{
    struct br_sample_types *types = walker->options->types;
    /* discards the counts of an earlier walk, which was made before the strings were repaired */
    types->count = 0;
    if (walker->any_merged)
        br_sample_types_add(types, item);
    else
        br_sample_types_resolve(types, walker->pairs, item, walker->strings);
}

static int walk_once(struct br_item *item, struct br_buf *buf, const uint8_t *data, size_t len,
                     const struct br_walk_options *options, uint32_t *ret_bad, struct br_err *err)
{
    struct br_walker walker = walk_walker(options, false);
    struct br_sample_pairs pairs;
    pairs.count = 0;
    pairs.n_others = 0;
    walker.pairs = options->types ? &pairs : NULL;
    walker.most_spans = BR_WALK_SPANS + len / BR_WALK_SPAN_BYTES;
    bool ok = walk_split(&walker, item, buf, data, len) == 0 && walk_parts(&walker, item) &&
              walk_totals(&walker, item, buf, data, len);
    br_buf_unref(walker.merged);
    if (!ok)
        return walk_report(&walker, item->signal, err);
    if (options->types)
        walk_count_types(&walker, item);
    *ret_bad = walker.bad_utf8;
    item->n_profiles = walker.n_profiles;
    item->odd_times = walker.odd_times;
    return 0;
}

int br_walk(struct br_item *item, struct br_buf *buf, const uint8_t *data, size_t len,
            const struct br_walk_options *options, uint32_t *ret_repaired, struct br_err *err)
{
    uint32_t bad = 0;
    *ret_repaired = 0;
    if (len > UINT32_MAX)
        return br_err_set(err, BR_ETOOBIG, "the request has 4 GiB or more");
    int rc = walk_once(item, buf, data, len, options, &bad, err);
    if (rc || !bad)
        return rc;
    struct br_buf *fixed = NULL;
    rc = br_utf8_repair(br_otlp_request(item->signal), data, len, buf->pool, &fixed, ret_repaired);
    if (rc)
        return br_err_set(err, rc, "strings that are not UTF-8 could not be repaired: %s",
                          br_strerror(rc));
    br_item_clear_parts(item);
    rc = walk_once(item, fixed, fixed->data, fixed->len, options, &bad, err);
    br_buf_unref(fixed);
    return rc;
}
