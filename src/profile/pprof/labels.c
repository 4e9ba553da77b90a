/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "profile/pprof/internal.h"

/* Labels repeat from sample to sample: what became of the last ones is remembered. */
#define MEMO_BITS_MIN 4u
#define MEMO_BITS_MAX 10u
/* Up to so many labels are compared with one another. */
#define FEW_LABELS 16u
/* Up to so many bytes of text are made again where they were forgotten. */
#define SHORT_TEXT 64u
/* No id is longer, blanks around it included. */
#define ID_TEXT_MAX 64u
/* Bytes of an element of a list beside its text. */
#define ELEMENT_SIZE 8u

/* Datadog's ids are numbers, or their decimal texts; the others are hexadecimal texts. */
enum kind { KIND_OTHER, KIND_SPAN, KIND_PROFILE, KIND_TRACE, KIND_NUMBER, KIND_ROOT_NUMBER };

struct memo_label {
    struct br_pprof_label label;
    uint32_t attribute; /* + 1; 0: empty */
    enum kind kind;
};

struct memo_link {
    uint64_t span, trace; /* strings */
    uint32_t link;        /* + 1; 0: empty */
};

struct br_pprof_memo {
    uint64_t secret[3]; /* so that nobody can choose labels that displace one another */
    unsigned bits;
    struct memo_label *labels;
    struct memo_link *links;
};

/* By group; within one in the order they came, which `order` remembers. */
struct br_pprof_ordered {
    struct br_pprof_label label;
    uint32_t order;
};

static size_t slot_of(const struct br_pprof_memo *m, uint64_t a, uint64_t b, uint64_t c)
{
    return (size_t)((a * m->secret[0] + b * m->secret[1] + c * m->secret[2]) >> (64 - m->bits));
}

/* Of a size that suits the profile: of small ones a request has many. */
static bool make_memo(struct br_pprof *p)
{
    struct br_pprof_memo *m = br_pprof_alloc(p, 1, sizeof *m);
    if (!m)
        return false;
    m->bits = MEMO_BITS_MIN;
    while (m->bits < MEMO_BITS_MAX && UINT32_C(1) << m->bits < p->ranges[BR_PPROF_SAMPLE].n)
        m->bits++;
    size_t n = (size_t)1 << m->bits;
    br_random_bytes(m->secret, sizeof m->secret);
    for (size_t i = 0; i < BR_COUNT(m->secret); i++)
        m->secret[i] |= 1;
    m->labels = br_pprof_alloc(p, n, sizeof *m->labels);
    m->links = br_pprof_alloc(p, n, sizeof *m->links);
    if (!m->labels || !m->links)
        return false;
    memset(m->labels, 0, n * sizeof *m->labels);
    memset(m->links, 0, n * sizeof *m->links);
    p->memo = m;
    return true;
}

/* --- Attributes of texts ---------------------------------------------------------------------- */

/* What the attribute is made of: the builder's key, and strings. */
static uint8_t *put_key(uint8_t *o, uint32_t key, const struct br_pprof_ordered *group, size_t n)
{
    o = br_put_varint(o, key);
    for (size_t i = 0; i < n; i++)
        o = br_put_varint(o, group[i].label.str);
    return o;
}

/* The texts, in p->texts. */
static int collect_texts(struct br_pprof *p, const struct br_pprof_ordered *group, size_t n)
{
    size_t size = 0;
    if (!br_pprof_grow(p, &p->texts, &p->cap_texts, n, sizeof *p->texts))
        return br_pprof_no_memory(p);
    for (size_t i = 0; i < n; i++) {
        struct br_addition *text = &p->texts[i];
        text->data = br_pprof_text(p, group[i].label.str, &text->len);
        if (!text->data)
            return br_pprof_no_string(p, group[i].label.str, "label");
        size += ELEMENT_SIZE + text->len;
    }
    return br_pprof_compose(p, size);
}

static int make_texts(struct br_pprof *p, uint32_t key, const struct br_pprof_ordered *group,
                      size_t n, uint32_t *ret)
{
    int rc = collect_texts(p, group, n);
    if (rc)
        return rc;
    *ret = n > 1 ? br_build_attribute_texts(p->b, key, p->texts, n)
                 : br_build_attribute_text(p->b, key, p->texts->data, p->texts->len);
    return 0;
}

/* Of what reading may take, half of the rest at most, so that the builder can go on. */
static int reserve_made(struct br_pprof *p, size_t n)
{
    struct br_pprof_made *made = &p->made;
    struct br_budget *b = &made->budget;
    b->moves = true;
    b->max = b->used + br_pprof_rest(p) / 2;
    int rc = made->keys.n ? 0 : br_intern_init(&made->keys, b, 1);
    if (!rc)
        rc = br_intern_reserve(&made->keys, b, BR_VARINT_MAX * (n + 1));
    if (!rc)
        rc = br_budget_grow(b, &made->attributes, &made->cap, (size_t)made->keys.n + 1,
                            sizeof *made->attributes);
    br_pprof_share(p);
    return rc;
}

static int no_room(struct br_pprof *p, int rc)
{
    p->full = rc == BR_EFULL;
    return br_pprof_no_memory(p);
}

/* The attribute of these texts, which is made when it is wanted first. */
static int texts_of(struct br_pprof *p, uint32_t key, const struct br_pprof_ordered *group,
                    size_t n, uint32_t *ret)
{
    struct br_pprof_made *made = &p->made;
    uint32_t hash;
    int rc = reserve_made(p, n);
    if (rc)
        return no_room(p, rc);
    uint8_t *body = br_intern_body(&made->keys);
    size_t len = (size_t)(put_key(body, key, group, n) - body);
    uint32_t i = br_intern_find(&made->keys, body, len, BR_INTERN_NONE, &hash);
    if (i == BR_INTERN_NONE) {
        rc = make_texts(p, key, group, n, ret);
        if (rc)
            return rc;
        i = br_intern_append(&made->keys, len, hash);
        made->attributes[i] = *ret;
    }
    *ret = made->attributes[i];
    return 0;
}

int br_pprof_text_attribute(struct br_pprof *p, uint32_t key, uint64_t string, uint32_t *ret)
{
    size_t len;
    const uint8_t *text = br_pprof_text(p, string, &len);
    if (!text)
        return br_pprof_no_string(p, string, "label");
    if (len > SHORT_TEXT)
        return texts_of(p, key, &(struct br_pprof_ordered){{.str = string}, 0}, 1, ret);
    *ret = br_build_attribute_text(p->b, key, text, len);
    return 0;
}

void br_pprof_release_labels(struct br_pprof *p)
{
    br_intern_release(&p->made.keys, &p->made.budget);
    br_budget_free(&p->made.budget, &p->made.attributes, &p->made.cap, sizeof *p->made.attributes);
}

/* --- Links ------------------------------------------------------------------------------------ */

static enum kind kind_of(const struct br_pprof *p, uint64_t key)
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
    const uint8_t *text = br_pprof_text(p, key, &len);
    for (size_t i = 0; text && i < BR_COUNT(kinds); i++)
        if (len == strlen(kinds[i].key) && memcmp(text, kinds[i].key, len) == 0)
            return kinds[i].kind;
    return KIND_OTHER;
}

static bool read_id(const struct br_pprof *p, uint64_t string, uint8_t *id, size_t size)
{
    size_t len;
    const uint8_t *text = br_pprof_text(p, string, &len);
    return text && len <= ID_TEXT_MAX && br_hex_id((const char *)text, len, id, size);
}

/* The link to a span by the texts of its labels; 0 where the first is no span id. */
static uint32_t link_of(struct br_pprof *p, uint64_t span, uint64_t trace)
{
    uint8_t span_id[8], trace_id[16];
    struct memo_link *m = &p->memo->links[slot_of(p->memo, span, trace, 0)];
    if (m->link && m->span == span && m->trace == trace)
        return m->link - 1;
    uint32_t link = 0;
    if (read_id(p, span, span_id, sizeof span_id)) {
        bool traced = read_id(p, trace, trace_id, sizeof trace_id);
        link = br_build_link(p->b, traced ? trace_id : NULL, span_id);
    }
    *m = (struct memo_link){span, trace, link + 1};
    return link;
}

/* The span and trace that a sample's labels name, as strings. */
struct named {
    uint64_t span, profile, trace;
    uint64_t number, root; /* the ids themselves; 0: there is none */
};

/* The id that a label has as a number or as a decimal text; 0 where it has none. */
static uint64_t decimal_of(const struct br_pprof *p, const struct br_pprof_label *l)
{
    size_t len;
    uint64_t id = 0;
    const uint8_t *text = br_pprof_text(p, l->str, &len);
    if (!l->str)
        return l->num;
    for (size_t i = 0; i < len; i++)
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(id, 10u, &id) ||
            __builtin_add_overflow(id, (uint64_t)(text[i] - '0'), &id))
            return 0;
    return id;
}

static void note_name(const struct br_pprof *p, struct named *named, enum kind kind,
                      const struct br_pprof_label *l)
{
    if (kind == KIND_SPAN && !named->span)
        named->span = l->str;
    else if (kind == KIND_PROFILE && !named->profile)
        named->profile = l->str;
    else if (kind == KIND_TRACE && !named->trace)
        named->trace = l->str;
    else if (kind == KIND_NUMBER && !named->number)
        named->number = decimal_of(p, l);
    else if (kind == KIND_ROOT_NUMBER && !named->root)
        named->root = decimal_of(p, l);
}

static uint32_t link_of_number(struct br_pprof *p, uint64_t number, uint64_t trace)
{
    uint8_t span_id[8], trace_id[16];
    for (int i = 0; i < 8; i++)
        span_id[i] = (uint8_t)(number >> (56 - 8 * i));
    bool traced = trace && read_id(p, trace, trace_id, sizeof trace_id);
    return br_build_link(p->b, traced ? trace_id : NULL, span_id);
}

/* --- Labels ----------------------------------------------------------------------------------- */

static bool add_attribute(struct br_pprof *p, uint32_t attribute)
{
    if (!br_pprof_grow(p, &p->attributes, &p->cap_attributes, (size_t)p->n_attributes + 1,
                       sizeof *p->attributes))
        return false;
    p->attributes[p->n_attributes++] = attribute;
    return true;
}

/* Looks a label up, or makes an attribute of it. */
static int attribute_of(struct br_pprof *p, const struct br_pprof_label *l, struct memo_label **ret)
{
    struct br_pprof_memo *memo = p->memo;
    struct memo_label *m =
        &memo->labels[slot_of(memo, l->key, l->str ? l->str : l->num, l->unit)];
    uint32_t key, unit, attribute;
    *ret = m;
    if (m->attribute && memcmp(&m->label, l, sizeof *l) == 0)
        return 0;
    if (!br_pprof_string(p, l->key, "label", &key) || !br_pprof_string(p, l->unit, "label", &unit))
        return BR_EINVAL;
    *m = (struct memo_label){.label = *l};
    if (l->str) {
        int rc = br_pprof_text_attribute(p, key, l->str, &attribute);
        if (rc)
            return rc;
    } else {
        attribute = br_build_attribute_int(p->b, key, (int64_t)l->num, unit);
    }
    m->kind = kind_of(p, l->key);
    m->attribute = attribute + 1;
    return 0;
}

static bool same_group(const struct br_pprof_label *a, const struct br_pprof_label *b)
{
    return a->key == b->key && !a->str == !b->str && (a->str || a->unit == b->unit);
}

static bool have_repeats(const struct br_pprof_label *l, uint32_t n)
{
    if (n > FEW_LABELS)
        return true;
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (same_group(&l[i], &l[k]))
                return true;
    return false;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_labels(const void *a, const void *b)
{
    const struct br_pprof_ordered *x = a, *y = b;
    int c = compare(x->label.key, y->label.key);
    if (!c)
        c = compare(!x->label.str, !y->label.str);
    if (!c && !x->label.str)
        c = compare(x->label.unit, y->label.unit);
    return c ? c : compare(x->order, y->order);
}

static int numbers_of(struct br_pprof *p, uint32_t key, const struct br_pprof_ordered *group,
                      size_t n, uint32_t unit, uint32_t *ret)
{
    int64_t numbers[BR_PPROF_MOST_LABELS];
    for (size_t i = 0; i < n; i++)
        numbers[i] = (int64_t)group[i].label.num;
    *ret = br_build_attribute_ints(p->b, key, numbers, n, unit);
    return 0;
}

/* Several values of one label are a list. */
static int list_of(struct br_pprof *p, const struct br_pprof_ordered *group, size_t n,
                   uint32_t *ret)
{
    uint32_t key, unit;
    if (!br_pprof_string(p, group->label.key, "label", &key) ||
        !br_pprof_string(p, group->label.unit, "label", &unit))
        return BR_EINVAL;
    return group->label.str ? texts_of(p, key, group, n, ret)
                            : numbers_of(p, key, group, n, unit, ret);
}

static int put_group(struct br_pprof *p, const struct br_pprof_ordered *group, size_t n,
                     struct named *named)
{
    struct memo_label *m;
    int rc = attribute_of(p, &group->label, &m);
    if (rc)
        return rc;
    uint32_t attribute = m->attribute - 1;
    note_name(p, named, m->kind, &group->label);
    if (n > 1)
        rc = list_of(p, group, n, &attribute);
    if (!rc && !add_attribute(p, attribute))
        rc = br_pprof_no_memory(p);
    return rc;
}

/* Labels of which some have the same key. */
static int put_groups(struct br_pprof *p, uint32_t n, struct named *named)
{
    if (!br_pprof_grow(p, &p->ordered, &p->cap_ordered, n, sizeof *p->ordered))
        return br_pprof_no_memory(p);
    struct br_pprof_ordered *sorted = p->ordered;
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = (struct br_pprof_ordered){p->labels[i], i};
    qsort(sorted, n, sizeof *sorted, compare_labels);
    int rc = 0;
    for (uint32_t i = 0, end; i < n && !rc; i = end) {
        for (end = i + 1; end < n && same_group(&sorted[i].label, &sorted[end].label);)
            end++;
        rc = put_group(p, &sorted[i], end - i, named);
    }
    return rc;
}

static int put_labels(struct br_pprof *p, uint32_t n, struct named *named)
{
    for (uint32_t i = 0; i < n; i++) {
        struct memo_label *m;
        int rc = attribute_of(p, &p->labels[i], &m);
        if (rc)
            return rc;
        if (m->kind)
            note_name(p, named, m->kind, &p->labels[i]);
        if (!add_attribute(p, m->attribute - 1))
            return br_pprof_no_memory(p);
    }
    return 0;
}

int br_pprof_read_labels(struct br_pprof *p, uint32_t n, uint32_t *ret_link)
{
    struct named named = {0};
    if (!p->memo && !make_memo(p))
        return br_pprof_no_memory(p);
    int rc = __builtin_expect(have_repeats(p->labels, n), 0) ? put_groups(p, n, &named)
                                                             : put_labels(p, n, &named);
    if (rc)
        return rc;
    *ret_link = named.span ? link_of(p, named.span, named.trace) : 0;
    if (!*ret_link && named.profile)
        *ret_link = link_of(p, named.profile, named.trace);
    uint64_t number = named.number ? named.number : named.root;
    if (!*ret_link && number)
        *ret_link = link_of_number(p, number, named.trace);
    return 0;
}
