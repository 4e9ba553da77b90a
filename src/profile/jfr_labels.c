/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LabelsSnapshot { map<int64, Context> contexts = 1; map<int64, string> strings = 2; }
 * Context { map<int64, int64> labels = 1; } -- key and value are keys of `strings`.
 * Source: the Pyroscope Java agent's JfrLabels.
 */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "profile/jfr_convert.h"
#include "wire/protobuf.h"

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
    struct br_jfr_label is;
    uint32_t order;
};

struct reader {
    struct br_jfr_labels *l;
    struct br_build *build;
    struct br_arena *scratch;
    struct br_map *contents; /* a context's labels to its index + 1 */
    struct label *labels;
    uint32_t n, cap;
    struct br_jfr_context context; /* the ids in what is being read */
};

const void *br_jfr_label_text(const struct br_jfr_labels *l, uint64_t id, size_t *ret_len)
{
    const struct br_jfr_entry *e = br_jfr_ids_find(&l->string_of, id);
    *ret_len = e ? l->string_lens[e->at - 1] : 0;
    return e ? l->strings[e->at - 1] : NULL;
}

static bool is(const void *text, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(text, name, len) == 0;
}

/* Takes over the ids that labels say; of a span's two names the one that Pyroscope gives it counts.
 */
static void find_ids(struct br_jfr_context *c, const void *key, size_t key_len, const void *value,
                     size_t len)
{
    uint8_t id[8];
    bool span = is(key, key_len, "span_id");
    if (span || is(key, key_len, "profile_id")) {
        if ((span || !c->has_span) && br_hex_id(value, len, id, sizeof id)) {
            memcpy(c->span_id, id, sizeof id);
            c->has_span = true;
        }
    } else if (is(key, key_len, "trace_id")) {
        c->has_trace = br_hex_id(value, len, c->trace_id, sizeof c->trace_id);
    }
}

static int add_label(struct reader *r, const struct pair *pair)
{
    size_t key_len, value_len;
    const void *key = br_jfr_label_text(r->l, pair->key, &key_len);
    const void *value = br_jfr_label_text(r->l, pair->number, &value_len);
    if (!key_len)
        return 0;
    if (value)
        find_ids(&r->context, key, key_len, value, value_len);
    struct label label = {.order = r->n};
    label.is.key = br_build_string(r->build, key, key_len);
    label.is.attribute = br_build_attribute_text(r->build, label.is.key, value, value_len);
    int rc = br_grow(&r->labels, &r->cap, (size_t)r->n + 1, sizeof *r->labels, UINT32_MAX);
    if (!rc)
        r->labels[r->n++] = label;
    return rc;
}

static int by_key(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    if (x->is.key != y->is.key)
        return x->is.key < y->is.key ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* What was gathered, in order; of equal keys the last, as in any map. */
static struct br_jfr_label *settle(struct reader *r, uint32_t *ret_n)
{
    uint32_t n = 0;
    struct br_jfr_label *v = br_arena_calloc(r->scratch, r->n + 1, sizeof *v);
    if (v && r->n)
        qsort(r->labels, r->n, sizeof *r->labels, by_key);
    for (uint32_t i = 0; v && i < r->n; i++) {
        if (n && v[n - 1].key == r->labels[i].is.key)
            n--;
        v[n++] = r->labels[i].is;
    }
    *ret_n = n;
    return v;
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

/* Contexts repeat with equal content: those share the first one's index. */
static int add_context(struct reader *r, const struct pair *pair)
{
    struct br_jfr_labels *l = r->l;
    int rc = read_labels(r, pair->data, pair->data ? pair->data + pair->len : NULL);
    if (rc)
        return rc;
    uint32_t n;
    struct br_jfr_label *v = settle(r, &n);
    if (!v)
        return BR_ENOMEM;
    size_t bytes = n * sizeof *v;
    uint32_t index = (uint32_t)(uintptr_t)br_map_get(r->contents, v, bytes);
    if (!index) {
        r->context.v = v;
        r->context.n = n;
        l->contexts[l->n_contexts] = r->context;
        index = ++l->n_contexts;
        rc = br_map_put(r->contents, v, bytes, (void *)(uintptr_t)index, NULL);
        if (rc)
            return rc;
    }
    return br_jfr_ids_put(&l->context_of, pair->key, index);
}

static int add_string(struct reader *r, const struct pair *pair)
{
    struct br_jfr_labels *l = r->l;
    l->strings[l->n_strings] = pair->data;
    l->string_lens[l->n_strings] = (uint32_t)pair->len;
    return br_jfr_ids_put(&l->string_of, pair->key, ++l->n_strings);
}

typedef int add_fn(struct reader *r, const struct pair *pair);

/* Hands each entry of the map in field `number` to `add`; without one it counts them. */
static int each(struct reader *r, const uint8_t *data, size_t len, uint32_t number, add_fn *add,
                uint32_t *count)
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
        if (!add) {
            ++*count;
            continue;
        }
        int rc = read_pair(&f, &pair) ? add(r, &pair) : BR_EINVAL;
        if (rc)
            return rc;
    }
    return 0;
}

static int read_maps(struct reader *r, const uint8_t *data, size_t len)
{
    struct br_jfr_labels *l = r->l;
    uint32_t n_contexts = 0, n_strings = 0;
    int rc = each(r, data, len, 1, NULL, &n_contexts);
    if (!rc)
        rc = each(r, data, len, 2, NULL, &n_strings);
    if (rc)
        return rc;
    l->contexts = br_calloc(n_contexts + 1, sizeof *l->contexts);
    l->strings = br_calloc(n_strings + 1, sizeof *l->strings);
    l->string_lens = br_calloc(n_strings + 1, sizeof *l->string_lens);
    r->contents = br_map_new(n_contexts + 1);
    if (!l->contexts || !l->strings || !l->string_lens || !r->contents)
        return BR_ENOMEM;
    rc = each(r, data, len, 2, add_string, NULL); /* contexts need them */
    return rc ? rc : each(r, data, len, 1, add_context, NULL);
}

int br_jfr_labels_read(struct br_jfr_labels *l, const uint8_t *data, size_t len, struct br_build *b,
                       struct br_arena *scratch, struct br_err *err)
{
    struct reader r = {.l = l, .build = b, .scratch = scratch};
    int rc = len > UINT32_MAX ? BR_EINVAL : read_maps(&r, data, len);
    br_map_free(r.contents, NULL);
    br_free(r.labels);
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
    br_free(l->string_lens);
    br_jfr_ids_release(&l->context_of);
    br_jfr_ids_release(&l->string_of);
    *l = (struct br_jfr_labels){0};
}
