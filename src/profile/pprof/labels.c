/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cache.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "base/str.h"
#include "profile/pprof/internal.h"

/* Smallest and largest number of entries in the cache of labels, and in the cache of links. Most
 * samples have the same labels as earlier samples. */
#define MEMO_MIN 16u
#define MEMO_MAX 1024u
/* Largest number of labels of a sample for which repeated keys are found by comparing all pairs. */
#define FEW_LABELS 16u
/* Longest string, in bytes, whose attribute is not stored in br_pprof.made. The attribute of a
 * short string is built again after its label has left the cache. */
#define SHORT_TEXT 64u
/* Longest text of an ID, in bytes, including blanks around it. */
#define ID_TEXT_MAX 64u
/* Encoded size of an element in a list attribute, in bytes, without its text. */
#define ELEMENT_SIZE 8u

/* Meaning of a label. Datadog's IDs are numbers or their decimal texts; the IDs of other
 * profilers are hexadecimal. */
enum kind { KIND_OTHER, KIND_SPAN, KIND_PROFILE, KIND_TRACE, KIND_NUMBER, KIND_ROOT_NUMBER };

struct memo_label {
    struct br_pprof_label label;
    uint32_t attribute; /* index of the builder's attribute + 1; 0: empty entry */
    enum kind kind;
};

struct memo_link {
    /* values of the labels with the span ID and the trace ID, as string indices of the pprof */
    uint64_t span, trace;
    uint32_t link; /* index of the builder's link + 1; 0: empty entry */
};

struct br_pprof_memo {
    struct br_cache labels, links; /* entries are struct memo_label and struct memo_link */
};

/* A label, to be sorted into groups with the same key. `order` is the position of the label in
 * the sample; the labels of a group keep their order. */
struct br_pprof_ordered {
    struct br_pprof_label label;
    uint32_t order;
};

static bool pprof_labels_make_cache(struct br_pprof *pprof, struct br_cache *cache, size_t size,
                                    uint32_t count)
{
    void *entries = br_pprof_alloc(pprof, count, size);
    if (!entries)
        return false;
    memset(entries, 0, count * size);
    br_cache_init_keyed(cache, entries, size, count, 1, br_build_secret(pprof->build));
    return true;
}

/* Creates the caches of labels and links. The size of the caches depends on the number of
 * samples, because a request may contain many small profiles. */
static bool pprof_labels_make_memo(struct br_pprof *pprof)
{
    struct br_pprof_memo *memo = br_pprof_alloc(pprof, 1, sizeof *memo);
    uint32_t count = MEMO_MIN;
    while (count < MEMO_MAX && count < pprof->ranges[BR_PPROF_SAMPLE].count)
        count *= 2;
    if (!memo || !pprof_labels_make_cache(pprof, &memo->labels, sizeof(struct memo_label), count) ||
        !pprof_labels_make_cache(pprof, &memo->links, sizeof(struct memo_link), count))
        return false;
    pprof->memo = memo;
    return true;
}

static bool pprof_labels_is_label(const void *entry, const void *key)
{
    const struct memo_label *memo_label = entry;
    return memo_label->attribute && memcmp(&memo_label->label, key, sizeof memo_label->label) == 0;
}

static bool pprof_labels_is_link(const void *entry, const void *key)
{
    const struct memo_link *memo_link = entry, *wanted = key;
    return memo_link->link && memo_link->span == wanted->span && memo_link->trace == wanted->trace;
}

/* --- Attributes with string values ------------------------------------------------------------ */

/* Appends the bytes by which an attribute is looked up: its key in the builder and the indices
 * of its strings. */
static uint8_t *pprof_labels_put_key(uint8_t *out, uint32_t key,
                                     const struct br_pprof_ordered *group, size_t count)
{
    out = br_put_varint(out, key);
    for (size_t i = 0; i < count; i++)
        out = br_put_varint(out, group[i].label.str);
    return out;
}

/* Collects the texts of a group of labels with the same key in `pprof->texts`. */
static int pprof_labels_collect_texts(struct br_pprof *pprof, const struct br_pprof_ordered *group,
                                      size_t count)
{
    size_t size = 0;
    if (!br_pprof_grow(pprof, &pprof->texts, &pprof->cap_texts, count, sizeof *pprof->texts))
        return br_pprof_no_memory(pprof);
    for (size_t i = 0; i < count; i++) {
        struct br_addition *text = &pprof->texts[i];
        text->data = br_pprof_text(pprof, group[i].label.str, &text->len);
        if (!text->data)
            return br_pprof_no_string(pprof, group[i].label.str, "label");
        size += ELEMENT_SIZE + text->len;
    }
    return br_pprof_compose(pprof, size);
}

static int pprof_labels_make_texts(struct br_pprof *pprof, uint32_t key,
                                   const struct br_pprof_ordered *group, size_t count,
                                   uint32_t *ret)
{
    int rc = pprof_labels_collect_texts(pprof, group, count);
    if (rc)
        return rc;
    *ret = count > 1
               ? br_build_attribute_texts(pprof->build, key, pprof->texts, count)
               : br_build_attribute_text(pprof->build, key, pprof->texts->data, pprof->texts->len);
    return 0;
}

/* Reserves room for one more attribute in `pprof->made`, unless the room would take more than
 * half of the available memory. The other half of the memory is for the builder. */
static int pprof_labels_reserve_made(struct br_pprof *pprof, size_t count)
{
    struct br_pprof_text_attributes *made = &pprof->made;
    struct br_budget *budget = &made->budget;
    budget->moves = true;
    budget->max = budget->used + br_pprof_available(pprof) / 2;
    int rc = made->keys.count ? 0 : br_intern_init(&made->keys, budget, 1);
    if (!rc)
        rc = br_intern_reserve(&made->keys, budget, BR_VARINT_MAX * (count + 1));
    if (!rc)
        rc = br_budget_grow(budget, &made->attributes, &made->cap, (size_t)made->keys.count + 1,
                            sizeof *made->attributes);
    br_pprof_limit_builder(pprof);
    return rc;
}

static int pprof_labels_no_room(struct br_pprof *pprof, int rc)
{
    pprof->full = rc == BR_EFULL;
    return br_pprof_no_memory(pprof);
}

/* Returns in `ret` the attribute with this key and the strings of a group of labels. Builds the
 * attribute at its first use. */
static int pprof_labels_texts_of(struct br_pprof *pprof, uint32_t key,
                                 const struct br_pprof_ordered *group, size_t count, uint32_t *ret)
{
    struct br_pprof_text_attributes *made = &pprof->made;
    uint32_t hash;
    int rc = pprof_labels_reserve_made(pprof, count);
    if (rc)
        return pprof_labels_no_room(pprof, rc);
    uint8_t *body = br_intern_body(&made->keys);
    size_t len = (size_t)(pprof_labels_put_key(body, key, group, count) - body);
    uint32_t i = br_intern_find(&made->keys, body, len, BR_INTERN_NONE, &hash);
    if (i == BR_INTERN_NONE) {
        rc = pprof_labels_make_texts(pprof, key, group, count, ret);
        if (rc)
            return rc;
        i = br_intern_append(&made->keys, len, hash);
        made->attributes[i] = *ret;
    }
    *ret = made->attributes[i];
    return 0;
}

int br_pprof_text_attribute(struct br_pprof *pprof, uint32_t key, uint64_t string, uint32_t *ret)
{
    size_t len;
    const uint8_t *text = br_pprof_text(pprof, string, &len);
    if (!text)
        return br_pprof_no_string(pprof, string, "label");
    if (len > SHORT_TEXT)
        return pprof_labels_texts_of(pprof, key, &(struct br_pprof_ordered){{.str = string}, 0}, 1,
                                     ret);
    *ret = br_build_attribute_text(pprof->build, key, text, len);
    return 0;
}

void br_pprof_release_labels(struct br_pprof *pprof)
{
    br_intern_release(&pprof->made.keys, &pprof->made.budget);
    br_budget_free(&pprof->made.budget, &pprof->made.attributes, &pprof->made.cap,
                   sizeof *pprof->made.attributes);
}

/* --- Links ------------------------------------------------------------------------------------ */

static enum kind pprof_labels_kind_of(const struct br_pprof *pprof, uint64_t key)
{
    static const struct {
        const char *key;
        enum kind kind;
    } kinds[] = {{"span_id", KIND_SPAN},
                 {"profile_id", KIND_PROFILE},
                 {"trace_id", KIND_TRACE},
                 {"span id", KIND_NUMBER},
                 {"local root span id", KIND_ROOT_NUMBER}};
    size_t len;
    const uint8_t *text = br_pprof_text(pprof, key, &len);
    for (size_t i = 0; text && i < BR_COUNT(kinds); i++)
        if (br_bytes_are(text, len, kinds[i].key))
            return kinds[i].kind;
    return KIND_OTHER;
}

static bool pprof_labels_read_id(const struct br_pprof *pprof, uint64_t string, uint8_t *id,
                                 size_t size)
{
    size_t len;
    const uint8_t *text = br_pprof_text(pprof, string, &len);
    return text && len <= ID_TEXT_MAX && br_hex_id((const char *)text, len, id, size);
}

/* Returns the link to the span whose ID is string `span`, in the trace whose ID is string
 * `trace`. Returns 0 if `span` is not a span ID. */
static uint32_t pprof_labels_link_of(struct br_pprof *pprof, uint64_t span, uint64_t trace)
{
    uint8_t span_id[8], trace_id[16];
    const struct br_cache *links = &pprof->memo->links;
    const struct memo_link wanted = {.span = span, .trace = trace};
    uint64_t hash = br_cache_hash(links, (const uint64_t[]){span, trace}, 2 * sizeof span);
    struct memo_link *memo_link = br_cache_find(links, hash, pprof_labels_is_link, &wanted);
    if (memo_link)
        return memo_link->link - 1;
    uint32_t link = 0;
    if (pprof_labels_read_id(pprof, span, span_id, sizeof span_id)) {
        bool traced = pprof_labels_read_id(pprof, trace, trace_id, sizeof trace_id);
        link = br_build_link(pprof->build, traced ? trace_id : NULL, span_id);
    }
    memo_link = br_cache_take(links, hash);
    *memo_link = (struct memo_link){span, trace, link + 1};
    return link;
}

/* Span, profile and trace IDs found in the labels of a sample, as string indices of the pprof;
 * 0: the sample has no such label. */
struct label_ids {
    uint64_t span, profile, trace;
    /* Datadog's span ID and root span ID, as numbers; 0: the sample has no such label */
    uint64_t number, root;
    /* Bit k is set if the sample has several labels of enum kind k with different values. */
    unsigned repeated;
};

/* Returns the ID in a label whose value is a number or a decimal text; 0 for any other label. */
static uint64_t pprof_labels_decimal_of(const struct br_pprof *pprof,
                                        const struct br_pprof_label *label)
{
    size_t len;
    uint64_t id = 0;
    const uint8_t *text = br_pprof_text(pprof, label->str, &len);
    if (!label->str)
        return label->num;
    /* the ID stays 0 if the text is not a decimal number */
    (void)br_decimal_parse((const char *)text, len, UINT64_MAX, &id);
    return id;
}

static void pprof_labels_record_id(const struct br_pprof *pprof, struct label_ids *ids,
                                   enum kind kind, const struct br_pprof_label *label)
{
    if (kind == KIND_SPAN && !ids->span)
        ids->span = label->str;
    else if (kind == KIND_PROFILE && !ids->profile)
        ids->profile = label->str;
    else if (kind == KIND_TRACE && !ids->trace)
        ids->trace = label->str;
    else if (kind == KIND_NUMBER && !ids->number)
        ids->number = pprof_labels_decimal_of(pprof, label);
    else if (kind == KIND_ROOT_NUMBER && !ids->root)
        ids->root = pprof_labels_decimal_of(pprof, label);
}

static uint32_t pprof_labels_link_of_number(struct br_pprof *pprof, uint64_t number, uint64_t trace)
{
    uint8_t span_id[8], trace_id[16];
    for (int i = 0; i < 8; i++)
        span_id[i] = (uint8_t)(number >> (56 - 8 * i));
    bool traced = trace && pprof_labels_read_id(pprof, trace, trace_id, sizeof trace_id);
    return br_build_link(pprof->build, traced ? trace_id : NULL, span_id);
}

/* --- Labels ----------------------------------------------------------------------------------- */

static bool pprof_labels_add_attribute(struct br_pprof *pprof, uint32_t attribute)
{
    if (!br_pprof_grow(pprof, &pprof->attributes, &pprof->cap_attributes,
                       (size_t)pprof->n_attributes + 1, sizeof *pprof->attributes))
        return false;
    pprof->attributes[pprof->n_attributes++] = attribute;
    return true;
}

/* Returns the attribute of a label. Takes the attribute from the cache, or builds it. */
static int pprof_labels_attribute_of(struct br_pprof *pprof, const struct br_pprof_label *label,
                                     struct memo_label **ret)
{
    struct br_pprof_memo *memo = pprof->memo;
    uint64_t hash = br_cache_hash(&memo->labels, label, sizeof *label);
    struct memo_label *memo_label =
        br_cache_find(&memo->labels, hash, pprof_labels_is_label, label);
    uint32_t key, unit, attribute = 0;
    *ret = memo_label;
    if (memo_label)
        return 0;
    if (!br_pprof_string(pprof, label->key, "label", &key) ||
        !br_pprof_string(pprof, label->unit, "label", &unit))
        return BR_EINVAL;
    *ret = memo_label = br_cache_take(&memo->labels, hash);
    *memo_label = (struct memo_label){.label = *label};
    if (label->str) {
        int rc = br_pprof_text_attribute(pprof, key, label->str, &attribute);
        if (rc)
            return rc;
    } else {
        attribute = br_build_attribute_int(pprof->build, key, (int64_t)label->num, unit);
    }
    memo_label->kind = pprof_labels_kind_of(pprof, label->key);
    memo_label->attribute = attribute + 1;
    return 0;
}

static bool pprof_labels_same_group(const struct br_pprof_label *label,
                                    const struct br_pprof_label *other)
{
    return label->key == other->key && !label->str == !other->str &&
           (label->str || label->unit == other->unit);
}

static bool pprof_labels_have_repeats(const struct br_pprof_label *label, uint32_t count)
{
    if (count > FEW_LABELS)
        return true;
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (pprof_labels_same_group(&label[i], &label[k]))
                return true;
    return false;
}

static int pprof_labels_compare(uint64_t first, uint64_t second)
{
    return first < second ? -1 : first > second;
}

static int pprof_labels_compare_ordered(const void *first_entry, const void *second_entry)
{
    const struct br_pprof_ordered *first = first_entry, *second = second_entry;
    int c = pprof_labels_compare(first->label.key, second->label.key);
    if (!c)
        c = pprof_labels_compare(!first->label.str, !second->label.str);
    if (!c && !first->label.str)
        c = pprof_labels_compare(first->label.unit, second->label.unit);
    return c ? c : pprof_labels_compare(first->order, second->order);
}

static int pprof_labels_numbers_of(struct br_pprof *pprof, uint32_t key,
                                   const struct br_pprof_ordered *group, size_t count,
                                   uint32_t unit, uint32_t *ret)
{
    int64_t numbers[BR_PPROF_READ_LABELS_MAX];
    for (size_t i = 0; i < count; i++)
        numbers[i] = (int64_t)group[i].label.num;
    *ret = br_build_attribute_ints(pprof->build, key, numbers, count, unit);
    return 0;
}

/* Builds one list attribute from several values of the same label. */
static int pprof_labels_list_of(struct br_pprof *pprof, const struct br_pprof_ordered *group,
                                size_t count, uint32_t *ret)
{
    uint32_t key, unit;
    if (!br_pprof_string(pprof, group->label.key, "label", &key) ||
        !br_pprof_string(pprof, group->label.unit, "label", &unit))
        return BR_EINVAL;
    return group->label.str ? pprof_labels_texts_of(pprof, key, group, count, ret)
                            : pprof_labels_numbers_of(pprof, key, group, count, unit, ret);
}

static bool pprof_labels_differ(const struct br_pprof_ordered *group, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (group[i].label.str != group->label.str || group[i].label.num != group->label.num)
            return true;
    return false;
}

static int pprof_labels_put_group(struct br_pprof *pprof, const struct br_pprof_ordered *group,
                                  size_t count, struct label_ids *ids)
{
    struct memo_label *memo_label;
    int rc = pprof_labels_attribute_of(pprof, &group->label, &memo_label);
    if (rc)
        return rc;
    uint32_t attribute = memo_label->attribute - 1;
    pprof_labels_record_id(pprof, ids, memo_label->kind, &group->label);
    if (pprof_labels_differ(group, count))
        ids->repeated |= 1u << memo_label->kind;
    if (count > 1)
        rc = pprof_labels_list_of(pprof, group, count, &attribute);
    if (!rc && !pprof_labels_add_attribute(pprof, attribute))
        rc = br_pprof_no_memory(pprof);
    return rc;
}

/* Adds the attributes of the sample's labels. Several labels may have the same key. */
static int pprof_labels_put_groups(struct br_pprof *pprof, uint32_t count, struct label_ids *ids)
{
    if (!br_pprof_grow(pprof, &pprof->ordered, &pprof->cap_ordered, count, sizeof *pprof->ordered))
        return br_pprof_no_memory(pprof);
    struct br_pprof_ordered *sorted = pprof->ordered;
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = (struct br_pprof_ordered){pprof->labels[i], i};
    qsort(sorted, count, sizeof *sorted, pprof_labels_compare_ordered);
    int rc = 0;
    for (uint32_t i = 0, end; i < count && !rc; i = end) {
        for (end = i + 1;
             end < count && pprof_labels_same_group(&sorted[i].label, &sorted[end].label);)
            end++;
        rc = pprof_labels_put_group(pprof, &sorted[i], end - i, ids);
    }
    return rc;
}

static int pprof_labels_put(struct br_pprof *pprof, uint32_t count, struct label_ids *ids)
{
    for (uint32_t i = 0; i < count; i++) {
        struct memo_label *memo_label;
        int rc = pprof_labels_attribute_of(pprof, &pprof->labels[i], &memo_label);
        if (rc)
            return rc;
        if (memo_label->kind)
            pprof_labels_record_id(pprof, ids, memo_label->kind, &pprof->labels[i]);
        if (!pprof_labels_add_attribute(pprof, memo_label->attribute - 1))
            return br_pprof_no_memory(pprof);
    }
    return 0;
}

/* Returns the kind of the label that determines the span of a sample. */
static enum kind pprof_labels_deciding_kind(const struct label_ids *ids)
{
    if (ids->span)
        return KIND_SPAN;
    if (ids->profile)
        return KIND_PROFILE;
    return ids->number ? KIND_NUMBER : KIND_ROOT_NUMBER;
}

/* Returns the link to the span that the labels name. Returns 0 if the labels name no span, or if
 * the deciding label has several values: SDKs label threads, and a thread may serve several
 * requests concurrently (asyncio). */
static uint32_t pprof_labels_link_named(struct br_pprof *pprof, const struct label_ids *ids)
{
    if (ids->repeated & (1u << pprof_labels_deciding_kind(ids) | 1u << KIND_TRACE))
        return 0;
    uint32_t link = ids->span ? pprof_labels_link_of(pprof, ids->span, ids->trace) : 0;
    if (!link && ids->profile && !(ids->repeated & 1u << KIND_PROFILE))
        link = pprof_labels_link_of(pprof, ids->profile, ids->trace);
    uint64_t number = ids->number ? ids->number : ids->root;
    if (!link && number)
        link = pprof_labels_link_of_number(pprof, number, ids->trace);
    return link;
}

int br_pprof_read_labels(struct br_pprof *pprof, uint32_t count, uint32_t *ret_link)
{
    struct label_ids ids = {0};
    if (!pprof->memo && !pprof_labels_make_memo(pprof))
        return br_pprof_no_memory(pprof);
    int rc = __builtin_expect(pprof_labels_have_repeats(pprof->labels, count), 0)
                 ? pprof_labels_put_groups(pprof, count, &ids)
                 : pprof_labels_put(pprof, count, &ids);
    if (rc)
        return rc;
    *ret_link = pprof_labels_link_named(pprof, &ids);
    return 0;
}
