/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LabelsSnapshot { map<int64, Context> contexts = 1; map<int64, string> strings = 2; }
 * Context { map<int64, int64> labels = 1; } -- key and value are keys of `strings`.
 * Source: the Pyroscope Java agent's JfrLabels.
 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "profile/jfr/convert.h"
#include "wire/protobuf.h"

#define SLOTS_MIN 16u

/* One entry of a map. */
struct pair {
    uint64_t key, number;
    const uint8_t *data; /* of a string or a message; NULL: a number */
    size_t len;
};

static bool read_pair(const struct br_field *f, struct pair *ret)
{
    const uint8_t *p = f->data, *end = p + f->value;
    struct br_field part;
    *ret = (struct pair){0};
    while (p < end) {
        p = br_field_next(p, end, &part);
        if (!p)
            return false;
        if (part.number == 1 && part.wire == BR_WIRE_VARINT)
            ret->key = part.value;
        if (part.number == 2 && part.wire == BR_WIRE_VARINT)
            ret->number = part.value;
        if (part.number == 2 && part.wire == BR_WIRE_LEN) {
            ret->data = part.data;
            ret->len = part.value;
        }
    }
    return true;
}

/* A label of the context that is being read. */
struct label {
    uint32_t key, pair; /* of the builder; index into br_jfr_labels.pairs */
    uint32_t order;
};

struct reader {
    struct br_jfr_labels *l;
    struct br_arena *scratch;
    uint8_t secret[16];
    uint32_t *slots; /* contexts by their labels, index + 1; at most three quarters full */
    size_t n_slots;
    struct label *labels;
    uint32_t n, cap;
    struct br_jfr_label *settled;
    uint32_t settled_cap;
    struct br_jfr_context context; /* the ids in what is being read */
};

uint32_t br_jfr_string_of(const struct br_jfr_labels *l, uint64_t id)
{
    const struct br_jfr_entry *e = br_jfr_ids_find(&l->string_of, id);
    return e ? e->at : 0;
}

/* The builder's string of a label's key. */
static uint32_t key_of(struct br_jfr_labels *l, uint32_t string)
{
    struct br_jfr_string *s = &l->strings[string];
    if (s->len && !s->key)
        s->key = br_build_string(l->build, s->text, s->len);
    return s->key;
}

static bool is_key(const struct br_jfr_labels *l, uint32_t string, const char *name)
{
    const struct br_jfr_string *s = &l->strings[string];
    return s->len == strlen(name) && memcmp(s->text, name, s->len) == 0;
}

/* What a value is under the key of an id: old agents have a span's ids among the labels. */
static void read_id(const struct br_jfr_labels *l, uint32_t key, uint32_t value,
                    struct br_jfr_pair *ret)
{
    const struct br_jfr_string *v = &l->strings[value];
    const char *text = (const char *)v->text;
    if (is_key(l, key, "span_id"))
        ret->means = BR_JFR_SPAN_LABEL;
    else if (is_key(l, key, "profile_id"))
        ret->means = BR_JFR_PROFILE_LABEL;
    else if (is_key(l, key, "trace_id"))
        ret->means = BR_JFR_TRACE_LABEL;
    if (!ret->means || !value)
        return;
    ret->readable =
        br_hex_id(text, v->len, ret->id, ret->means == BR_JFR_TRACE_LABEL ? sizeof ret->id : 8);
}

/* The index of a label in `pairs`: keys and values repeat, and are read once. `key` is the
 * builder's string of the text `string`. */
static int pair_of(struct br_jfr_labels *l, uint32_t key, uint32_t string, uint32_t value,
                   uint32_t *ret)
{
    uint64_t id = (uint64_t)key << 32 | value;
    const struct br_jfr_entry *known = br_jfr_ids_find(&l->pair_of, id);
    const struct br_jfr_string *v = &l->strings[value];
    struct br_jfr_pair pair = {.attribute = 0};
    if (known) {
        *ret = known->at - 1;
        return 0;
    }
    if (v->len > l->text_max)
        return BR_ETOOBIG;
    l->text_max -= v->len;
    int rc = br_grow(&l->pairs, &l->pairs_cap, (size_t)l->n_pairs + 1, sizeof pair, UINT32_MAX - 1);
    if (!rc)
        rc = br_jfr_ids_put(&l->pair_of, id, l->n_pairs + 1);
    if (rc)
        return rc;
    pair.attribute = br_build_attribute_text(l->build, key, v->text, v->len);
    if (string)
        read_id(l, string, value, &pair);
    l->pairs[l->n_pairs] = pair;
    *ret = l->n_pairs++;
    return br_build_rc(l->build);
}

int br_jfr_label_attribute(struct br_jfr_labels *l, uint32_t key, uint32_t string, uint32_t *ret)
{
    uint32_t pair;
    *ret = 0;
    if (!string || !l->strings[string].len)
        return 0;
    int rc = pair_of(l, key, 0, string, &pair);
    if (!rc)
        *ret = l->pairs[pair].attribute;
    return rc;
}

/* Takes over the ids that labels say; of a span's two names the one that Pyroscope gives it counts.
 */
static void take_id(struct br_jfr_context *c, const struct br_jfr_pair *pair)
{
    bool span = pair->means == BR_JFR_SPAN_LABEL;
    if (span || pair->means == BR_JFR_PROFILE_LABEL) {
        if ((span || !c->has_span) && pair->readable) {
            memcpy(c->span_id, pair->id, sizeof c->span_id);
            c->has_span = true;
        }
    } else if (pair->means == BR_JFR_TRACE_LABEL) {
        c->has_trace = pair->readable;
        memcpy(c->trace_id, pair->id, sizeof c->trace_id);
    }
}

static int add_label(struct reader *r, const struct pair *pair)
{
    struct br_jfr_labels *l = r->l;
    uint32_t string = br_jfr_string_of(l, pair->key), value = br_jfr_string_of(l, pair->number);
    if (!l->strings[string].len)
        return 0;
    struct label label = {.key = key_of(l, string), .order = r->n};
    int rc = pair_of(l, label.key, string, value, &label.pair);
    if (!rc)
        rc = br_grow(&r->labels, &r->cap, (size_t)r->n + 1, sizeof *r->labels, UINT32_MAX);
    if (rc)
        return rc;
    if (value)
        take_id(&r->context, &l->pairs[label.pair]);
    r->labels[r->n++] = label;
    return 0;
}

static bool comes_before(const struct label *a, const struct label *b)
{
    return a->key != b->key ? a->key < b->key : a->order < b->order;
}

/* Lets `v[at]` sink to where it belongs in a heap of `n`. */
static void sink(struct label *v, uint32_t n, uint32_t at)
{
    for (uint64_t child; (child = 2 * (uint64_t)at + 1) < n; at = (uint32_t)child) {
        if (child + 1 < n && comes_before(&v[child], &v[child + 1]))
            child++;
        if (!comes_before(&v[at], &v[child]))
            return;
        struct label moved = v[at];
        v[at] = v[child];
        v[child] = moved;
    }
}

/* A heap sort: the C library's takes as much memory again, which nobody counts. */
static void sort(struct label *v, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sink(v, n, i);
    while (n > 1) {
        struct label last = v[--n];
        v[n] = v[0];
        v[0] = last;
        sink(v, n, 0);
    }
}

/* What was gathered, in order, in r->settled; of equal keys the last, as in any map. */
static int settle(struct reader *r, uint32_t *ret_n)
{
    uint32_t n = 0;
    int rc =
        br_grow(&r->settled, &r->settled_cap, (size_t)r->n + 1, sizeof *r->settled, UINT32_MAX);
    if (rc)
        return rc;
    sort(r->labels, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct label *label = &r->labels[i];
        if (n && r->settled[n - 1].key == label->key)
            n--;
        r->settled[n++] = (struct br_jfr_label){label->key, r->l->pairs[label->pair].attribute};
    }
    *ret_n = n;
    return 0;
}

static int read_labels(struct reader *r, const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    struct pair pair;
    r->n = 0;
    r->context = (struct br_jfr_context){0};
    while (p && p < end) {
        p = br_field_next(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (f.number != 1 || f.wire != BR_WIRE_LEN)
            continue;
        int rc = read_pair(&f, &pair) ? add_label(r, &pair) : BR_EINVAL;
        if (rc)
            return rc;
    }
    return 0;
}

/* The slot of the context with these labels, or the empty one where it would go. */
static uint32_t *slot_of(const struct reader *r, const struct br_jfr_label *v, uint32_t n)
{
    size_t mask = r->n_slots - 1, i = br_siphash(r->secret, v, n * sizeof *v) & mask;
    for (; r->slots[i]; i = (i + 1) & mask) {
        const struct br_jfr_context *c = &r->l->contexts[r->slots[i] - 1];
        if (c->n == n && memcmp(c->v, v, n * sizeof *v) == 0)
            break;
    }
    return &r->slots[i];
}

static int more_slots(struct reader *r)
{
    size_t n = r->n_slots ? 2 * r->n_slots : SLOTS_MIN;
    uint32_t *slots = br_calloc(n, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    br_free(r->slots);
    r->slots = slots;
    r->n_slots = n;
    for (uint32_t i = 0; i < r->l->n_contexts; i++)
        *slot_of(r, r->l->contexts[i].v, r->l->contexts[i].n) = i + 1;
    return 0;
}

static int new_context(struct reader *r, uint32_t n, uint32_t *ret)
{
    struct br_jfr_labels *l = r->l;
    struct br_jfr_label *v = br_arena_calloc(r->scratch, n + 1, sizeof *v);
    int rc = v ? br_grow(&l->contexts, &l->contexts_cap, (size_t)l->n_contexts + 1,
                         sizeof *l->contexts, UINT32_MAX)
               : BR_ENOMEM;
    if (rc)
        return rc;
    memcpy(v, r->settled, n * sizeof *v);
    r->context.v = v;
    r->context.n = n;
    l->contexts[l->n_contexts] = r->context;
    *ret = ++l->n_contexts;
    return 0;
}

/* Contexts repeat with equal content: those share the first one's index. */
static int add_context(struct reader *r, const struct pair *pair)
{
    uint32_t n;
    int rc = read_labels(r, pair->data, pair->data ? pair->data + pair->len : NULL);
    if (!rc)
        rc = settle(r, &n);
    if (!rc && r->l->n_contexts >= r->n_slots / 4 * 3)
        rc = more_slots(r);
    if (rc)
        return rc;
    uint32_t *slot = slot_of(r, r->settled, n);
    rc = *slot ? 0 : new_context(r, n, slot);
    return rc ? rc : br_jfr_ids_put(&r->l->context_of, pair->key, *slot);
}

static int add_string(struct reader *r, const struct pair *pair)
{
    struct br_jfr_labels *l = r->l;
    int rc = br_grow(&l->strings, &l->strings_cap, (size_t)l->n_strings + 1, sizeof *l->strings,
                     UINT32_MAX);
    if (rc)
        return rc;
    l->strings[l->n_strings] = (struct br_jfr_string){pair->data, (uint32_t)pair->len, 0};
    if (!l->n_strings++)
        return 0;
    return br_jfr_ids_put(&l->string_of, pair->key, l->n_strings - 1);
}

typedef int add_fn(struct reader *r, const struct pair *pair);

/* Hands each entry of the map in field `number` to `add`. */
static int each(struct reader *r, const uint8_t *data, size_t len, uint32_t number, add_fn *add)
{
    const uint8_t *p = data, *end = data + len;
    struct br_field f;
    struct pair pair;
    while (p < end) {
        p = br_field_next(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (f.number != number || f.wire != BR_WIRE_LEN)
            continue;
        int rc = read_pair(&f, &pair) ? add(r, &pair) : BR_EINVAL;
        if (rc)
            return rc;
    }
    return 0;
}

static int read_maps(struct reader *r, const uint8_t *data, size_t len)
{
    br_random_bytes(r->secret, sizeof r->secret);
    int rc = each(r, data, len, 2, add_string); /* contexts need them */
    return rc ? rc : each(r, data, len, 1, add_context);
}

int br_jfr_labels_begin(struct br_jfr_labels *l, struct br_build *b, size_t text_max)
{
    static const struct pair none;
    struct reader r = {.l = l};
    l->build = b;
    l->text_max = text_max;
    return add_string(&r, &none);
}

int br_jfr_labels_read(struct br_jfr_labels *l, const uint8_t *data, size_t len,
                       struct br_arena *scratch, struct br_err *err)
{
    struct reader r = {.l = l, .scratch = scratch};
    int rc = len > UINT32_MAX ? BR_EINVAL : read_maps(&r, data, len);
    br_free(r.slots);
    br_free(r.labels);
    br_free(r.settled);
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "the labels beside the recording are no LabelsSnapshot");
    return rc;
}

uint32_t br_jfr_context_of(const struct br_jfr_labels *l, uint64_t id)
{
    const struct br_jfr_entry *e = br_jfr_ids_find(&l->context_of, id);
    return e ? e->at : 0;
}

void br_jfr_labels_release(struct br_jfr_labels *l)
{
    br_free(l->contexts);
    br_free(l->strings);
    br_free(l->pairs);
    br_jfr_ids_release(&l->context_of);
    br_jfr_ids_release(&l->string_of);
    br_jfr_ids_release(&l->pair_of);
    *l = (struct br_jfr_labels){0};
}
