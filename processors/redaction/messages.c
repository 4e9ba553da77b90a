/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/messages.h"

#include "attribute/value_text.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"

/* --- Shapes ---------------------------------------------------------------------------------- */

#define ATTRIBUTES                                                                                 \
    {                                                                                              \
        .what = REDACT_ATTRIBUTE                                                                   \
    }
#define TEXT                                                                                       \
    {                                                                                              \
        .what = REDACT_TEXT, .kind = REDACT_SPAN                                                   \
    }
#define MESSAGE(shape)                                                                             \
    {                                                                                              \
        .what = REDACT_MESSAGE, .child = &(shape)                                                  \
    }

static const struct redact_shape scope = {.fields = {[BR_SCOPE_ATTRIBUTES] = ATTRIBUTES}};
static const struct redact_shape event = {
    .fields = {[BR_EVENT_NAME] = TEXT, [BR_EVENT_ATTRIBUTES] = ATTRIBUTES}};
static const struct redact_shape span_link = {.fields = {[BR_SPAN_LINK_ATTRIBUTES] = ATTRIBUTES}};
static const struct redact_shape status = {.fields = {[BR_SPAN_STATUS_MESSAGE] = TEXT}};
static const struct redact_shape span = {.fields = {[BR_SPAN_NAME] = TEXT,
                                                    [BR_SPAN_ATTRIBUTES] = ATTRIBUTES,
                                                    [BR_SPAN_EVENTS] = MESSAGE(event),
                                                    [BR_SPAN_LINKS] = MESSAGE(span_link),
                                                    [BR_SPAN_STATUS] = MESSAGE(status)}};
static const struct redact_shape scope_spans = {
    .fields = {[BR_SCOPES_SCOPE] = MESSAGE(scope), [BR_SCOPES_ITEMS] = MESSAGE(span)}};

static const struct redact_shape sample = {
    .fields = {[BR_SAMPLE_ATTRIBUTES] = {.what = REDACT_INDICES}}};
/* The original payload says everything again, in a format of its own. */
static const struct redact_shape profile = {
    .fields = {[BR_PROFILE_SAMPLE_TYPE] = {.what = REDACT_VALUE_TYPE},
               [BR_PROFILE_SAMPLES] = MESSAGE(sample),
               [BR_PROFILE_PERIOD_TYPE] = {.what = REDACT_VALUE_TYPE},
               [BR_PROFILE_PAYLOAD_FORMAT] = {.what = REDACT_CUT},
               [BR_PROFILE_PAYLOAD] = {.what = REDACT_CUT},
               [BR_PROFILE_ATTRIBUTES] = {.what = REDACT_INDICES}}};
static const struct redact_shape scope_profiles = {
    .fields = {[BR_SCOPES_SCOPE] = MESSAGE(scope), [BR_SCOPES_ITEMS] = MESSAGE(profile)}};

const struct redact_shape redact_resource_shape = {
    .fields = {[BR_RESOURCE_ATTRIBUTES] = ATTRIBUTES}};
const struct redact_shape redact_traces_part = {
    .fields = {[BR_RESOURCES_RESOURCE] = MESSAGE(redact_resource_shape),
               [BR_RESOURCES_SCOPES] = MESSAGE(scope_spans)}};
const struct redact_shape redact_profiles_part = {
    .fields = {[BR_RESOURCES_RESOURCE] = MESSAGE(redact_resource_shape),
               [BR_RESOURCES_SCOPES] = MESSAGE(scope_profiles)}};
const struct redact_shape redact_mapping_shape = {
    .fields = {[BR_MAPPING_ATTRIBUTES] = {.what = REDACT_INDICES}}};
const struct redact_shape redact_location_shape = {
    .fields = {[BR_LOCATION_ATTRIBUTES] = {.what = REDACT_INDICES}}};

/* --- Values ---------------------------------------------------------------------------------- */

static bool masks(enum redact_key key)
{
    return key == REDACT_KEY_MASK || key == REDACT_KEY_MASK_TEXT;
}

/* What becomes of a text under such a key: as redact_text. */
static int judge(struct redact_walk *w, enum redact_key key, const void *text, size_t len)
{
    if (key == REDACT_KEY_PASS)
        return 0;
    return masks(key) ? redact_whole(w->rules, text, len)
                      : redact_text(w->rules, REDACT_VALUE, text, len);
}

/* A string takes the place of a value. */
static int put_result(struct redact_walk *w, const struct br_field *f, const uint8_t *next)
{
    ++*w->values;
    return br_splice_replace(&w->splice, BR_VALUE_STRING, f->at, next, w->rules->text,
                             w->rules->text_len);
}

static int judge_text(struct redact_walk *w, const struct br_field *f, const uint8_t *next,
                      enum redact_key key, const void *text, size_t len)
{
    int rc = judge(w, key, text, len);
    return rc == 1 ? put_result(w, f, next) : rc;
}

static int judge_number(struct redact_walk *w, const struct br_field *f, const uint8_t *next,
                        enum redact_key key)
{
    if (key != REDACT_KEY_MASK && !(key == REDACT_KEY_LOOK && w->rules->config->redact_all_types))
        return 0;
    char buffer[64];
    struct br_str text = {
        .data = buffer, .cap = sizeof buffer, .max = sizeof buffer - 1, .fixed = true};
    struct br_any any = {.type = (enum br_value_type)f->number, .number = f->value};
    br_value_text(&text, &any, w->arena);
    return judge_text(w, f, next, key, text.data, text.len);
}

uint32_t redact_add_string(struct redact_walk *w, const void *text, size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(head, BR_TAG(BR_DICTIONARY_STRINGS, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    br_str_add(&w->more, head, (size_t)(p - head));
    br_str_add(&w->more, text, len);
    return w->view->n[BR_TABLE_STRING] + w->n_added++;
}

/* What becomes of string `i` as a value under such a key: asks once. */
static int judge_string(struct redact_walk *w, enum redact_key key, uint32_t i, uint32_t *ret)
{
    uint32_t *known = &w->values_at[masks(key)][i];
    if (*known == REDACT_UNKNOWN) {
        struct br_entry text = br_dictionary_string(w->view, i);
        int rc = judge(w, key, text.data, text.len);
        if (rc < 0)
            return rc;
        *known = rc ? redact_add_string(w, w->rules->text, w->rules->text_len) : REDACT_STAYS;
    }
    *ret = *known;
    return w->more.failed ? BR_ENOMEM : 0;
}

/* A reference to a string: it may be long and have many, so what is made of it is a string, too. */
static int judge_string_index(struct redact_walk *w, const struct br_field *f, const uint8_t *next,
                              enum redact_key key)
{
    uint8_t field[2 * BR_VARINT_MAX];
    uint32_t becomes = REDACT_STAYS;
    if (!w->view || f->value == 0 || f->value >= w->view->n[BR_TABLE_STRING])
        return 0;
    int rc = key == REDACT_KEY_PASS ? 0 : judge_string(w, key, (uint32_t)f->value, &becomes);
    if (rc)
        return rc;
    if (becomes == REDACT_STAYS) {
        redact_keep(w, f->value);
        return 0;
    }
    ++*w->values;
    w->hides = true;
    uint8_t *p = br_put_varint(field, BR_TAG(BR_VALUE_STRINDEX, BR_WIRE_VARINT));
    p = br_put_varint(p, becomes);
    rc = br_splice_cut(&w->splice, f->at, next);
    return rc ? rc : br_splice_insert(&w->splice, next, field, (size_t)(p - field));
}

static int attribute(struct redact_walk *w, const struct br_field *f, const uint8_t *next, bool top,
                     bool pass);

/* The elements of an ArrayValue or KeyValueList. */
static int judge_list(struct redact_walk *w, const struct br_field *list, const uint8_t *end,
                      enum redact_key key)
{
    if (masks(key)) {
        w->hides = true; /* there may be references in it */
        return judge_text(w, list, end, key, list->data, list->value);
    }
    int rc = br_splice_enter(&w->splice, list, end);
    for (const uint8_t *p = list->data; p < end && !rc;) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&f) != BR_SCAN_LEN(BR_LIST_VALUES))
            continue;
        rc = list->number == BR_VALUE_MAP ? attribute(w, &f, p, false, key == REDACT_KEY_PASS)
                                          : redact_value(w, &f, p, key);
    }
    return rc ? rc : br_splice_leave(&w->splice);
}

static int judge_field(struct redact_walk *w, const struct br_field *f, const uint8_t *next,
                       enum redact_key key)
{
    switch (br_scan_tag(f)) {
    case BR_SCAN_LEN(BR_VALUE_STRING):
        return judge_text(w, f, next, key, f->data, f->value);
    case BR_SCAN_LEN(BR_VALUE_BYTES):
        if (!masks(key) && !w->rules->config->redact_all_types)
            return 0;
        return judge_text(w, f, next, key, f->data, f->value);
    case BR_SCAN_LEN(BR_VALUE_LIST):
    case BR_SCAN_LEN(BR_VALUE_MAP):
        return judge_list(w, f, next, key);
    case BR_SCAN_VARINT(BR_VALUE_BOOL):
    case BR_SCAN_VARINT(BR_VALUE_INT):
    case BR_TAG(BR_VALUE_DOUBLE, BR_WIRE_I64):
        return judge_number(w, f, next, key);
    case BR_SCAN_VARINT(BR_VALUE_STRINDEX):
        return judge_string_index(w, f, next, key);
    default:
        return 0;
    }
}

/* A value in which there is nothing to look at: no list, no reference. */
static bool is_plain(const struct redact_walk *w, const struct br_field *value, const uint8_t *end,
                     enum redact_key key)
{
    struct br_field f;
    bool idle =
        key == REDACT_KEY_PASS || (key == REDACT_KEY_LOOK && redact_idle(w->rules, REDACT_VALUE));
    if (!idle)
        return false;
    return value->value == 0 ||
           (br_scan(value->data, end, &f) == end && f.number != BR_VALUE_LIST &&
            f.number != BR_VALUE_MAP && f.number != BR_VALUE_STRINDEX);
}

/* All fields of the oneof are looked at: the last counts, but the others are in the bytes, too. */
int redact_value(struct redact_walk *w, const struct br_field *f, const uint8_t *next,
                 enum redact_key key)
{
    if (is_plain(w, f, next, key))
        return 0;
    int rc = br_splice_enter(&w->splice, f, next);
    for (const uint8_t *p = f->data; p < next && !rc;) {
        struct br_field field;
        p = br_scan(p, next, &field);
        rc = p ? judge_field(w, &field, p, key) : BR_EINVAL;
    }
    return rc ? rc : br_splice_leave(&w->splice);
}

/* --- Attributes ------------------------------------------------------------------------------ */

int redact_key_at(struct redact_walk *w, uint64_t i)
{
    if (i >= w->view->n[BR_TABLE_STRING])
        return redact_key(w->rules, NULL, 0);
    if (!w->keys_at[i]) {
        struct br_entry key = br_dictionary_string(w->view, (uint32_t)i);
        int verdict = redact_key(w->rules, key.data, key.len);
        if (verdict < 0)
            return verdict;
        w->keys_at[i] = (uint8_t)verdict;
    }
    return w->keys_at[i];
}

static int judge_key(struct redact_walk *w, const struct br_keyvalue *pair)
{
    if (!pair->key_len && pair->key_index && w->view)
        return redact_key_at(w, pair->key_index);
    return redact_key(w->rules, pair->key, pair->key_len);
}

static int attribute(struct redact_walk *w, const struct br_field *f, const uint8_t *next, bool top,
                     bool pass)
{
    struct br_keyvalue pair;
    if (!br_keyvalue_read(f->data, (size_t)f->value, &pair))
        return BR_EINVAL;
    int key = pass ? REDACT_KEY_PASS : judge_key(w, &pair);
    if (key < 0)
        return key;
    if (key == REDACT_KEY_REMOVE && top) {
        ++*w->attributes_removed;
        w->hides = true;
        return br_splice_cut(&w->splice, f->at, next);
    }
    if (key == REDACT_KEY_REMOVE)
        key = REDACT_KEY_LOOK;
    if (pair.key_index)
        redact_keep(w, pair.key_index);
    if (key == REDACT_KEY_PASS && !w->view)
        return 0;
    int rc = br_splice_enter(&w->splice, f, next);
    for (const uint8_t *p = f->data; p < next && !rc;) {
        struct br_field field;
        p = br_scan(p, next, &field);
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_KEYVALUE_VALUE))
            rc = redact_value(w, &field, p, (enum redact_key)key);
    }
    return rc ? rc : br_splice_leave(&w->splice);
}

/* --- Indices --------------------------------------------------------------------------------- */

static bool is_removed(const struct redact_walk *w, uint64_t i)
{
    return i < w->view->n[BR_TABLE_ATTRIBUTE] && w->removed[i];
}

/* Takes the indices of removed attributes out of a list, packed or not. */
static int filter_indices(struct redact_walk *w, const struct br_field *f, const uint8_t *next)
{
    if (f->wire == BR_WIRE_VARINT)
        return is_removed(w, f->value) ? br_splice_cut(&w->splice, f->at, next) : 0;
    if (f->wire != BR_WIRE_LEN)
        return 0;
    int rc = br_splice_enter(&w->splice, f, next);
    for (const uint8_t *p = f->data; p < next && !rc;) {
        const uint8_t *at = p;
        uint64_t i;
        p = br_scan_varint(p, next, &i);
        if (!p)
            return BR_EINVAL;
        if (is_removed(w, i))
            rc = br_splice_cut(&w->splice, at, p);
    }
    return rc ? rc : br_splice_leave(&w->splice);
}

static void keep_value_type(struct redact_walk *w, const struct br_field *f, const uint8_t *end)
{
    struct br_field field;
    for (const uint8_t *p = f->data; p < end && (p = br_scan(p, end, &field));)
        if (field.wire == BR_WIRE_VARINT)
            redact_keep(w, field.value);
}

/* --- Messages -------------------------------------------------------------------------------- */

static int text(struct redact_walk *w, const struct br_field *f, const uint8_t *next,
                enum redact_kind kind)
{
    int rc = redact_text(w->rules, kind, f->data, f->value);
    if (rc != 1)
        return rc;
    ++*w->names;
    return br_splice_replace(&w->splice, f->number, f->at, next, w->rules->text,
                             w->rules->text_len);
}

static int child(struct redact_walk *w, const struct redact_shape *shape, const struct br_field *f,
                 const uint8_t *next)
{
    if (shape == &sample && !w->removed)
        return 0;
    int rc = br_splice_enter(&w->splice, f, next);
    if (!rc)
        rc = redact_message(w, shape, f->data, next);
    return rc ? rc : br_splice_leave(&w->splice);
}

int redact_message(struct redact_walk *w, const struct redact_shape *shape, const uint8_t *p,
                   const uint8_t *end)
{
    int rc = 0;
    br_steps_add((size_t)(end - p));
    while (p < end && !rc) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (f.number >= 16)
            continue;
        enum redact_what what = shape->fields[f.number].what;
        bool len = f.wire == BR_WIRE_LEN;
        if (what == REDACT_ATTRIBUTE && len)
            rc = attribute(w, &f, p, true, false);
        else if (what == REDACT_MESSAGE && len)
            rc = child(w, shape->fields[f.number].child, &f, p);
        else if (what == REDACT_TEXT && len)
            rc = text(w, &f, p, shape->fields[f.number].kind);
        else if (what == REDACT_INDICES && w->removed)
            rc = filter_indices(w, &f, p);
        else if (what == REDACT_VALUE_TYPE && len)
            keep_value_type(w, &f, p);
        else if (what == REDACT_CUT)
            rc = br_splice_cut(&w->splice, f.at, p);
    }
    return rc;
}
