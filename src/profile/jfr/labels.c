/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the labels that the Pyroscope Java agent sends with a recording, in this format:
 *
 *   LabelsSnapshot { map<int64, Context> contexts = 1; map<int64, string> strings = 2; }
 *   Context { map<int64, int64> labels = 1; } -- key and value are keys of `strings`
 *
 * Source: the Pyroscope Java agent's JfrLabels.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/steps.h"
#include "profile/jfr/convert.h"
#include "wire/protobuf.h"

/* Field numbers of LabelsSnapshot, Context, and map entries. */
enum { SNAPSHOT_CONTEXTS = 1, SNAPSHOT_STRINGS = 2 };
enum { CONTEXT_LABELS = 1 };
enum { MAP_KEY = 1, MAP_VALUE = 2 };

struct pair {
    uint64_t key, number;
    const uint8_t *data; /* value that is a string or a message; NULL: the value is `number` */
    size_t len;
};

static bool jfr_labels_read_pair(const struct br_field *field, struct pair *ret)
{
    const uint8_t *p = field->data, *end = p + field->value;
    struct br_field part;
    *ret = (struct pair){0};
    while (p < end) {
        p = br_field_next(p, end, &part);
        if (!p)
            return false;
        if (part.number == MAP_KEY && part.wire == BR_WIRE_VARINT)
            ret->key = part.value;
        if (part.number == MAP_VALUE && part.wire == BR_WIRE_VARINT)
            ret->number = part.value;
        if (part.number == MAP_VALUE && part.wire == BR_WIRE_LEN) {
            ret->data = part.data;
            ret->len = part.value;
        }
    }
    return true;
}

/* A label of the current context. */
struct label {
    /* `key`: index of the key in the builder; `pair`: index of the label in br_jfr_labels.pairs */
    uint32_t key, pair;
    uint32_t order;
};

struct reader {
    struct br_jfr_labels *jfr_labels;
    struct br_arena *scratch;
    struct br_index index; /* hash index that finds contexts with equal labels */
    struct label *labels;
    uint32_t count, cap;
    struct br_jfr_label *sorted;
    uint32_t sorted_cap;
    struct br_jfr_context context; /* span and trace ID of the context being read */
};

uint32_t br_jfr_string_of(const struct br_jfr_labels *labels, uint64_t id)
{
    const struct br_jfr_entry *entry = br_jfr_ids_find(&labels->string_of, id);
    return entry ? entry->at : 0;
}

/* Returns the builder's string index for the key of a label. */
static uint32_t jfr_labels_key_of(struct br_jfr_labels *labels, uint32_t string)
{
    struct br_jfr_string *jfr_string = &labels->strings[string];
    if (jfr_string->len && !jfr_string->key)
        jfr_string->key = br_build_string(labels->build, jfr_string->text, jfr_string->len);
    return jfr_string->key;
}

static bool jfr_labels_is_key(const struct br_jfr_labels *labels, uint32_t string, const char *name)
{
    const struct br_jfr_string *jfr_string = &labels->strings[string];
    return br_bytes_are(jfr_string->text, jfr_string->len, name);
}

/* Parses the value of a label whose key names an ID. Old agents send the IDs of a span as
 * labels. */
static void jfr_labels_read_id(const struct br_jfr_labels *labels, uint32_t key, uint32_t value,
                               struct br_jfr_pair *ret)
{
    const struct br_jfr_string *string = &labels->strings[value];
    const char *text = (const char *)string->text;
    if (jfr_labels_is_key(labels, key, "span_id"))
        ret->means = BR_JFR_SPAN_LABEL;
    else if (jfr_labels_is_key(labels, key, "profile_id"))
        ret->means = BR_JFR_PROFILE_LABEL;
    else if (jfr_labels_is_key(labels, key, "trace_id"))
        ret->means = BR_JFR_TRACE_LABEL;
    if (!ret->means || !value)
        return;
    ret->readable = br_hex_id(text, string->len, ret->id,
                              ret->means == BR_JFR_TRACE_LABEL ? sizeof ret->id : 8);
}

/* Returns in `ret` the index in `labels->pairs` of the label with the key `key` and string
 * number `string` as its value. Adds the label at its first use. `key` is the index of a string
 * in the builder. */
static int jfr_labels_pair_of(struct br_jfr_labels *labels, uint32_t key, uint32_t string,
                              uint32_t value, uint32_t *ret)
{
    uint64_t id = (uint64_t)key << 32 | value;
    const struct br_jfr_entry *known = br_jfr_ids_find(&labels->pair_of, id);
    const struct br_jfr_string *jfr_string = &labels->strings[value];
    struct br_jfr_pair pair = {.attribute = 0};
    if (known) {
        *ret = known->at - 1;
        return 0;
    }
    if (jfr_string->len > labels->text_max)
        return BR_ETOOBIG;
    labels->text_max -= jfr_string->len;
    int rc = br_grow(&labels->pairs, &labels->pairs_cap, (size_t)labels->n_pairs + 1, sizeof pair,
                     UINT32_MAX - 1);
    if (!rc)
        rc = br_jfr_ids_put(&labels->pair_of, id, labels->n_pairs + 1);
    if (rc)
        return rc;
    pair.attribute = br_build_attribute_text(labels->build, key, jfr_string->text, jfr_string->len);
    if (string)
        jfr_labels_read_id(labels, string, value, &pair);
    labels->pairs[labels->n_pairs] = pair;
    *ret = labels->n_pairs++;
    return br_build_rc(labels->build);
}

int br_jfr_label_attribute(struct br_jfr_labels *labels, uint32_t key, uint32_t string,
                           uint32_t *ret)
{
    uint32_t pair;
    *ret = 0;
    if (!string || !labels->strings[string].len)
        return 0;
    int rc = jfr_labels_pair_of(labels, key, 0, string, &pair);
    if (!rc)
        *ret = labels->pairs[pair].attribute;
    return rc;
}

/* Stores the ID from a label in the context. The label "span_id" takes precedence over
 * "profile_id". */
static void jfr_labels_set_id(struct br_jfr_context *context, const struct br_jfr_pair *pair)
{
    bool span = pair->means == BR_JFR_SPAN_LABEL;
    if (span || pair->means == BR_JFR_PROFILE_LABEL) {
        if ((span || !context->has_span) && pair->readable) {
            memcpy(context->span_id, pair->id, sizeof context->span_id);
            context->has_span = true;
        }
    } else if (pair->means == BR_JFR_TRACE_LABEL) {
        context->has_trace = pair->readable;
        memcpy(context->trace_id, pair->id, sizeof context->trace_id);
    }
}

static int jfr_labels_add(struct reader *reader, const struct pair *pair)
{
    struct br_jfr_labels *labels = reader->jfr_labels;
    uint32_t string = br_jfr_string_of(labels, pair->key),
             value = br_jfr_string_of(labels, pair->number);
    if (!labels->strings[string].len)
        return 0;
    struct label label = {.key = jfr_labels_key_of(labels, string), .order = reader->count};
    int rc = jfr_labels_pair_of(labels, label.key, string, value, &label.pair);
    if (!rc)
        rc = br_grow(&reader->labels, &reader->cap, (size_t)reader->count + 1,
                     sizeof *reader->labels, UINT32_MAX);
    if (rc)
        return rc;
    if (value)
        jfr_labels_set_id(&reader->context, &labels->pairs[label.pair]);
    reader->labels[reader->count++] = label;
    return 0;
}

static bool jfr_labels_is_before(const struct label *label, const struct label *other)
{
    return label->key != other->key ? label->key < other->key : label->order < other->order;
}

/* Sifts label[at] down in a heap of `count` labels. */
static void jfr_labels_sink(struct label *label, uint32_t count, uint32_t at)
{
    for (uint64_t child; (child = 2 * (uint64_t)at + 1) < count; at = (uint32_t)child) {
        if (child + 1 < count && jfr_labels_is_before(&label[child], &label[child + 1]))
            child++;
        if (!jfr_labels_is_before(&label[at], &label[child]))
            return;
        struct label swapped = label[at];
        label[at] = label[child];
        label[child] = swapped;
    }
}

/* Sorts labels by heap sort. qsort() may allocate memory in proportion to `count`, which would
 * not be accounted for. */
static void jfr_labels_sort(struct label *label, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;)
        jfr_labels_sink(label, count, i);
    while (count > 1) {
        struct label last = label[--count];
        label[count] = label[0];
        label[0] = last;
        jfr_labels_sink(label, count, 0);
    }
}

/* Sorts the labels into `reader->sorted`. The last of several labels with the same key is kept,
 * as in protobuf maps. */
static int jfr_labels_sort_context(struct reader *reader, uint32_t *ret_n)
{
    uint32_t n = 0;
    int rc = br_grow(&reader->sorted, &reader->sorted_cap, (size_t)reader->count + 1,
                     sizeof *reader->sorted, UINT32_MAX);
    if (rc)
        return rc;
    jfr_labels_sort(reader->labels, reader->count);
    for (uint32_t i = 0; i < reader->count; i++) {
        const struct label *label = &reader->labels[i];
        if (n && reader->sorted[n - 1].key == label->key)
            n--;
        reader->sorted[n++] =
            (struct br_jfr_label){label->key, reader->jfr_labels->pairs[label->pair].attribute};
    }
    *ret_n = n;
    return 0;
}

static int jfr_labels_read(struct reader *reader, const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    struct pair pair;
    reader->count = 0;
    reader->context = (struct br_jfr_context){0};
    while (p && p < end) {
        p = br_field_next(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (field.number != CONTEXT_LABELS || field.wire != BR_WIRE_LEN)
            continue;
        int rc = jfr_labels_read_pair(&field, &pair) ? jfr_labels_add(reader, &pair) : BR_EINVAL;
        if (rc)
            return rc;
    }
    return 0;
}

static bool jfr_labels_is_context(const void *entries, uint32_t place, const void *key)
{
    const struct br_jfr_context *context = (const struct br_jfr_context *)entries + place;
    const struct br_jfr_context *wanted = key;
    return context->count == wanted->count &&
           memcmp(context->labels, wanted->labels, wanted->count * sizeof *wanted->labels) == 0;
}

static uint64_t jfr_labels_context_hash(const struct reader *reader,
                                        const struct br_jfr_label *labels, uint32_t count)
{
    br_steps_add(count * sizeof *labels);
    return br_index_hash(&reader->index, labels, count * sizeof *labels);
}

static uint64_t jfr_labels_hash_context(const void *entries, uint32_t place)
{
    const struct reader *reader = entries;
    const struct br_jfr_context *context = &reader->jfr_labels->contexts[place];
    return jfr_labels_context_hash(reader, context->labels, context->count);
}

static int jfr_labels_new_context(struct reader *reader, uint32_t count, uint64_t hash)
{
    struct br_jfr_labels *labels = reader->jfr_labels;
    struct br_jfr_label *label = br_arena_calloc(reader->scratch, count + 1, sizeof *label);
    int rc = label ? br_grow(&labels->contexts, &labels->contexts_cap,
                             (size_t)labels->n_contexts + 1, sizeof *labels->contexts, UINT32_MAX)
                   : BR_ENOMEM;
    if (!rc)
        rc =
            br_index_add(&reader->index, hash, labels->n_contexts, jfr_labels_hash_context, reader);
    if (rc)
        return rc;
    memcpy(label, reader->sorted, count * sizeof *label);
    reader->context.labels = label;
    reader->context.count = count;
    labels->contexts[labels->n_contexts++] = reader->context;
    return 0;
}

/* Adds a context. Contexts with equal content share one index. */
static int jfr_labels_add_context(struct reader *reader, const struct pair *pair)
{
    uint32_t n;
    int rc = jfr_labels_read(reader, pair->data, pair->data ? pair->data + pair->len : NULL);
    if (!rc)
        rc = jfr_labels_sort_context(reader, &n);
    if (rc)
        return rc;
    const struct br_jfr_labels *labels = reader->jfr_labels;
    const struct br_jfr_context wanted = {.labels = reader->sorted, .count = n};
    uint64_t hash = jfr_labels_context_hash(reader, wanted.labels, n);
    uint32_t place =
        br_index_find(&reader->index, hash, jfr_labels_is_context, labels->contexts, &wanted);
    if (place == BR_INDEX_NONE) {
        place = labels->n_contexts;
        rc = jfr_labels_new_context(reader, n, hash);
    }
    return rc ? rc : br_jfr_ids_put(&reader->jfr_labels->context_of, pair->key, place + 1);
}

static int jfr_labels_add_string(struct reader *reader, const struct pair *pair)
{
    struct br_jfr_labels *labels = reader->jfr_labels;
    int rc = br_grow(&labels->strings, &labels->strings_cap, (size_t)labels->n_strings + 1,
                     sizeof *labels->strings, UINT32_MAX);
    if (rc)
        return rc;
    labels->strings[labels->n_strings] = (struct br_jfr_string){pair->data, (uint32_t)pair->len, 0};
    if (!labels->n_strings++)
        return 0;
    return br_jfr_ids_put(&labels->string_of, pair->key, labels->n_strings - 1);
}

typedef int add_fn(struct reader *reader, const struct pair *pair);

/* Calls `add` for each entry of the map that is field `number` of the message. */
static int jfr_labels_each(struct reader *reader, const uint8_t *data, size_t len, uint32_t number,
                           add_fn *add)
{
    const uint8_t *p = data, *end = br_mem_end(data, len);
    struct br_field field;
    struct pair pair;
    while (p < end) {
        p = br_field_next(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (field.number != number || field.wire != BR_WIRE_LEN)
            continue;
        int rc = jfr_labels_read_pair(&field, &pair) ? add(reader, &pair) : BR_EINVAL;
        if (rc)
            return rc;
    }
    return 0;
}

static int jfr_labels_read_maps(struct reader *reader, const uint8_t *data, size_t len)
{
    br_index_init(&reader->index, UINT32_MAX, BR_HOLDER_REQUESTS);
    int rc = jfr_labels_each(reader, data, len, SNAPSHOT_STRINGS,
                             /* The strings are read first, because contexts refer to strings. */
                             jfr_labels_add_string);
    return rc ? rc : jfr_labels_each(reader, data, len, SNAPSHOT_CONTEXTS, jfr_labels_add_context);
}

int br_jfr_labels_begin(struct br_jfr_labels *labels, struct br_build *build, size_t text_max)
{
    static const struct pair none;
    struct reader reader = {.jfr_labels = labels};
    labels->build = build;
    labels->text_max = text_max;
    return jfr_labels_add_string(&reader, &none);
}

int br_jfr_labels_read(struct br_jfr_labels *labels, const uint8_t *data, size_t len,
                       struct br_arena *scratch, struct br_err *err)
{
    struct reader reader = {.jfr_labels = labels, .scratch = scratch};
    int rc = len > UINT32_MAX ? BR_EINVAL : jfr_labels_read_maps(&reader, data, len);
    br_index_release(&reader.index);
    br_free(reader.labels);
    br_free(reader.sorted);
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "the labels of the recording are not a valid LabelsSnapshot");
    return rc;
}

uint32_t br_jfr_context_of(const struct br_jfr_labels *labels, uint64_t id)
{
    const struct br_jfr_entry *entry = br_jfr_ids_find(&labels->context_of, id);
    return entry ? entry->at : 0;
}

void br_jfr_labels_release(struct br_jfr_labels *labels)
{
    br_free(labels->contexts);
    br_free(labels->strings);
    br_free(labels->pairs);
    br_jfr_ids_release(&labels->context_of);
    br_jfr_ids_release(&labels->string_of);
    br_jfr_ids_release(&labels->pair_of);
    *labels = (struct br_jfr_labels){0};
}
