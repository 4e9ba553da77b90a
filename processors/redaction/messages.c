/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/messages.h"

#include <string.h>

#include "attribute/value.h"
#include "base/bytes.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/fields.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "pipeline/component.h"

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

static const struct redact_shape scope = {.place = "scope",
                                          .fields = {[BR_SCOPE_ATTRIBUTES] = ATTRIBUTES}};
static const struct redact_shape event = {
    .place = "event", .fields = {[BR_EVENT_NAME] = TEXT, [BR_EVENT_ATTRIBUTES] = ATTRIBUTES}};
static const struct redact_shape span_link = {.place = "link",
                                              .fields = {[BR_SPAN_LINK_ATTRIBUTES] = ATTRIBUTES}};
static const struct redact_shape status = {.fields = {[BR_SPAN_STATUS_MESSAGE] = TEXT}};
static const struct redact_shape span = {.place = "span",
                                         .fields = {[BR_SPAN_NAME] = TEXT,
                                                    [BR_SPAN_ATTRIBUTES] = ATTRIBUTES,
                                                    [BR_SPAN_EVENTS] = MESSAGE(event),
                                                    [BR_SPAN_LINKS] = MESSAGE(span_link),
                                                    [BR_SPAN_STATUS] = MESSAGE(status)}};
static const struct redact_shape scope_spans = {
    .fields = {[BR_SCOPES_SCOPE] = MESSAGE(scope), [BR_SCOPES_RECORDS] = MESSAGE(span)}};

static const struct redact_shape sample = {
    .fields = {[BR_SAMPLE_ATTRIBUTES] = {.what = REDACT_INDICES}}};
/* The original payload contains the whole profile again, in another format, so it is removed. */
static const struct redact_shape profile = {
    .fields = {[BR_PROFILE_SAMPLE_TYPE] = {.what = REDACT_VALUE_TYPE},
               [BR_PROFILE_SAMPLES] = MESSAGE(sample),
               [BR_PROFILE_PERIOD_TYPE] = {.what = REDACT_VALUE_TYPE},
               [BR_PROFILE_PAYLOAD_FORMAT] = {.what = REDACT_CUT},
               [BR_PROFILE_PAYLOAD] = {.what = REDACT_CUT},
               [BR_PROFILE_ATTRIBUTES] = {.what = REDACT_INDICES}}};
static const struct redact_shape scope_profiles = {
    .fields = {[BR_SCOPES_SCOPE] = MESSAGE(scope), [BR_SCOPES_RECORDS] = MESSAGE(profile)}};

const struct redact_shape redact_resource_shape = {
    .place = "resource", .fields = {[BR_RESOURCE_ATTRIBUTES] = ATTRIBUTES}};
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

/* --- Reports ---------------------------------------------------------------------------- */

static bool redact_messages_masks(enum redact_key key)
{
    return key == REDACT_KEY_MASK || key == REDACT_KEY_MASK_TEXT;
}

void redact_note(struct redact_walk *walk, enum redact_key key)
{
    struct redact_rules *rules = walk->rules;
    bool by_key = key == REDACT_KEY_REMOVE || redact_messages_masks(key);
    struct br_masked_text became = {rules->text, rules->text_len};
    if (!br_masked_is_watched(walk->masked))
        return;
    /* The verdict may come from the memo (the cache of verdicts), which does not contain the number
     * of the rule that matched the key. Matching the key again finds the rule. */
    if (by_key && redact_key(rules, walk->key.data, walk->key.len) < 0)
        return;
    if (key == REDACT_KEY_REMOVE)
        became.len = 0;
    br_masked_note(walk->masked, walk->node->id,
                   redact_rule_name(rules, by_key ? rules->key_rule : rules->rule), walk->place,
                   walk->key, became, br_host_unix_ns(walk->node->host));
}

void redact_note_name(struct redact_walk *walk, const char *place)
{
    const struct redact_rules *rules = walk->rules;
    if (br_masked_is_watched(walk->masked))
        br_masked_note(walk->masked, walk->node->id, redact_rule_name(rules, rules->rule), place,
                       (struct br_masked_text){NULL, 0},
                       (struct br_masked_text){rules->text, rules->text_len},
                       br_host_unix_ns(walk->node->host));
}

/* --- Values ---------------------------------------------------------------------------------- */

/* Redacts a text whose key has the verdict `key`. Returns the same values as redact_text. */
static int redact_messages_redact_text(struct redact_walk *walk, enum redact_key key,
                                       const void *text, size_t len)
{
    if (key == REDACT_KEY_PASS)
        return 0;
    if (key == REDACT_KEY_URL)
        return redact_url(walk->rules, REDACT_VALUE, text, len);
    if (key == REDACT_KEY_DB)
        return redact_statement(walk->rules, REDACT_VALUE, walk->target, text, len);
    return redact_messages_masks(key) ? redact_whole(walk->rules, text, len)
                                      : redact_text(walk->rules, REDACT_VALUE, text, len);
}

/* Replaces an attribute value by the string that the rules returned. */
static int redact_messages_put_result(struct redact_walk *walk, const struct br_field *field,
                                      const uint8_t *next)
{
    ++*walk->values;
    return br_splice_replace(&walk->splice, BR_VALUE_STRING, field->at, next, walk->rules->text,
                             walk->rules->text_len);
}

static int redact_messages_judge_text(struct redact_walk *walk, const struct br_field *field,
                                      const uint8_t *next, enum redact_key key, const void *text,
                                      size_t len)
{
    int rc = redact_messages_redact_text(walk, key, text, len);
    if (rc != 1)
        return rc;
    redact_note(walk, key);
    return redact_messages_put_result(walk, field, next);
}

/* Like redact_messages_put_result, but first replaces invalid UTF-8 in the string by U+FFFD. */
static int redact_messages_put_valid(struct redact_walk *walk, const struct br_field *field,
                                     const uint8_t *next)
{
    const struct redact_rules *rules = walk->rules;
    size_t len = br_utf8_replace(rules->text, rules->text_len, NULL);
    if (len == rules->text_len)
        return redact_messages_put_result(walk, field, next);
    uint8_t *repaired = br_arena_alloc(walk->arena, len);
    if (!repaired)
        return BR_ENOMEM;
    br_utf8_replace(rules->text, rules->text_len, repaired);
    ++*walk->values;
    return br_splice_replace(&walk->splice, BR_VALUE_STRING, field->at, next, repaired, len);
}

/* Redacts a bytes value: first its base64 form, as the Collector does, and then the bytes as
 * text. */
static int redact_messages_redact_bytes(struct redact_walk *walk, const struct br_field *field,
                                        const uint8_t *next, enum redact_key key)
{
    size_t size = (field->value + 2) / 3 * 4 + 1;
    struct br_str text = {
        .data = br_arena_alloc(walk->arena, size), .cap = size, .max = size - 1, .fixed = true};
    if (!text.data)
        return BR_ENOMEM;
    br_str_base64(&text, field->data, field->value);
    int rc = redact_messages_redact_text(walk, key, text.data, text.len);
    if (rc == 0 && !redact_messages_masks(key))
        rc = redact_messages_redact_text(walk, key, field->data, field->value);
    if (rc != 1)
        return rc;
    redact_note(walk, key);
    return redact_messages_put_valid(walk, field, next);
}

static int redact_messages_judge_number(struct redact_walk *walk, const struct br_field *field,
                                        const uint8_t *next, enum redact_key key)
{
    if (key != REDACT_KEY_MASK &&
        !(key == REDACT_KEY_INSPECT && walk->rules->config->redact_all_types))
        return 0;
    char buffer[64];
    struct br_str text = {
        .data = buffer, .cap = sizeof buffer, .max = sizeof buffer - 1, .fixed = true};
    struct br_any any = {.type = (enum br_value_type)field->number, .number = field->value};
    br_value_text(&text, &any, walk->arena);
    return redact_messages_judge_text(walk, field, next, key, text.data, text.len);
}

uint32_t redact_add_string(struct redact_walk *walk, const void *text, size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(head, BR_TAG(BR_DICTIONARY_STRINGS, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    br_str_add(&walk->more, head, (size_t)(p - head));
    br_str_add(&walk->more, text, len);
    return walk->view->count[BR_TABLE_STRING] + walk->n_added++;
}

/* Redacts string `index` as a value whose key has the verdict `key`. Stores the result, so that
 * each string is inspected only once and masked as a whole only once, even if many values refer to
 * it. */
static int redact_messages_redact_string(struct redact_walk *walk, enum redact_key key,
                                         uint32_t index, uint32_t *ret)
{
    uint32_t *known = &walk->values_at[redact_messages_masks(key)][index];
    if (*known == REDACT_UNKNOWN) {
        struct br_entry text = br_dictionary_string(walk->view, index);
        int rc = redact_messages_redact_text(walk, key, text.data, text.len);
        if (rc < 0)
            return rc;
        *known =
            rc ? redact_add_string(walk, walk->rules->text, walk->rules->text_len) : REDACT_STAYS;
    }
    *ret = *known;
    return walk->more.failed ? BR_ENOMEM : 0;
}

/* Redacts a value that is a reference to a string of the dictionary. The redacted string is also
 * added to the dictionary, because it may be long and many values may refer to it. */
static int redact_messages_redact_index(struct redact_walk *walk, const struct br_field *found,
                                        const uint8_t *next, enum redact_key key)
{
    uint8_t field[2 * BR_VARINT_MAX];
    uint32_t becomes = REDACT_STAYS;
    if (!walk->view || found->value == 0 || found->value >= walk->view->count[BR_TABLE_STRING])
        return 0;
    /* the result is stored for all values that refer to the string, so it must not depend on this
     * key: the string is not cleaned as a URL */
    if (key == REDACT_KEY_URL)
        key = REDACT_KEY_INSPECT;
    int rc = key == REDACT_KEY_PASS
                 ? 0
                 : redact_messages_redact_string(walk, key, (uint32_t)found->value, &becomes);
    if (rc)
        return rc;
    if (becomes == REDACT_STAYS) {
        redact_keep(walk, found->value);
        return 0;
    }
    ++*walk->values;
    walk->hides = true;
    if (br_masked_is_watched(walk->masked)) {
        struct br_entry text = br_dictionary_string(walk->view, (uint32_t)found->value);
        if (redact_messages_redact_text(walk, key, text.data, text.len) == 1)
            redact_note(walk, key);
    }
    uint8_t *p = br_put_varint(field, BR_TAG(BR_VALUE_STRINDEX, BR_WIRE_VARINT));
    p = br_put_varint(p, becomes);
    rc = br_splice_cut(&walk->splice, found->at, next);
    return rc ? rc : br_splice_insert(&walk->splice, next, field, (size_t)(p - field));
}

static int redact_messages_attribute(struct redact_walk *walk, const struct br_field *field,
                                     const uint8_t *next, bool top, bool pass);

/* Redacts the elements of an ArrayValue or KeyValueList. If the key requires it, masks the list as
 * a whole instead. */
static int redact_messages_redact_list(struct redact_walk *walk, const struct br_field *list,
                                       const uint8_t *end, enum redact_key key)
{
    if (redact_messages_masks(key)) {
        walk->hides = true; /* the list may contain references to strings that must be hidden */
        return redact_messages_judge_text(walk, list, end, key, list->data, list->value);
    }
    int rc = br_splice_enter(&walk->splice, list, end);
    for (const uint8_t *p = list->data; p < end && !rc;) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_LIST_VALUES))
            continue;
        rc = list->number == BR_VALUE_MAP
                 ? redact_messages_attribute(walk, &field, p, false, key == REDACT_KEY_PASS)
                 : redact_value(walk, &field, p, key);
    }
    return rc ? rc : br_splice_leave(&walk->splice);
}

static int redact_messages_judge_field(struct redact_walk *walk, const struct br_field *field,
                                       const uint8_t *next, enum redact_key key)
{
    switch (br_scan_tag(field)) {
    case BR_SCAN_LEN(BR_VALUE_STRING):
        return redact_messages_judge_text(walk, field, next, key, field->data, field->value);
    case BR_SCAN_LEN(BR_VALUE_BYTES):
        if (!redact_messages_masks(key) && !walk->rules->config->redact_all_types)
            return 0;
        return redact_messages_redact_bytes(walk, field, next, key);
    case BR_SCAN_LEN(BR_VALUE_LIST):
    case BR_SCAN_LEN(BR_VALUE_MAP):
        return redact_messages_redact_list(walk, field, next, key);
    case BR_SCAN_VARINT(BR_VALUE_BOOL):
    case BR_SCAN_VARINT(BR_VALUE_INT):
    case BR_TAG(BR_VALUE_DOUBLE, BR_WIRE_I64):
        return redact_messages_judge_number(walk, field, next, key);
    case BR_SCAN_VARINT(BR_VALUE_STRINDEX):
        return redact_messages_redact_index(walk, field, next, key);
    default:
        return 0;
    }
}

/* Returns true if the value needs no redaction: no rule applies to texts under its key, and the
 * value is not a list, a map or a reference to a string. */
static bool redact_messages_is_plain(const struct redact_walk *walk, const struct br_field *value,
                                     const uint8_t *end, enum redact_key key)
{
    struct br_field field;
    bool idle = key == REDACT_KEY_PASS ||
                (key == REDACT_KEY_INSPECT && redact_idle(walk->rules, REDACT_VALUE));
    if (!idle)
        return false;
    return value->value == 0 ||
           (br_scan(value->data, end, &field) == end && field.number != BR_VALUE_LIST &&
            field.number != BR_VALUE_MAP && field.number != BR_VALUE_STRINDEX);
}

/* Redacts all fields of the oneof in an AnyValue. A message may contain several fields of the
 * oneof, of which the last is the value. */
int redact_value(struct redact_walk *walk, const struct br_field *found, const uint8_t *next,
                 enum redact_key key)
{
    if (redact_messages_is_plain(walk, found, next, key))
        return 0;
    int rc = br_splice_enter(&walk->splice, found, next);
    for (const uint8_t *p = found->data; p < next && !rc;) {
        struct br_field field;
        p = br_scan(p, next, &field);
        rc = p ? redact_messages_judge_field(walk, &field, p, key) : BR_EINVAL;
    }
    return rc ? rc : br_splice_leave(&walk->splice);
}

/* --- Attributes ------------------------------------------------------------------------------ */

int redact_key_at(struct redact_walk *walk, uint64_t index)
{
    if (index >= walk->view->count[BR_TABLE_STRING])
        return redact_key(walk->rules, NULL, 0);
    if (!walk->keys_at[index]) {
        struct br_entry key = br_dictionary_string(walk->view, (uint32_t)index);
        int verdict = redact_key(walk->rules, key.data, key.len);
        if (verdict < 0)
            return verdict;
        walk->keys_at[index] = (uint8_t)(verdict == REDACT_KEY_URL ? REDACT_KEY_INSPECT : verdict);
    }
    return walk->keys_at[index];
}

static int redact_messages_judge_key(struct redact_walk *walk, const struct br_keyvalue *pair)
{
    if (!pair->key_len && pair->key_index && walk->view)
        return redact_key_at(walk, pair->key_index);
    return redact_key(walk->rules, pair->key, pair->key_len);
}

static struct br_masked_text redact_messages_key_text(const struct redact_walk *walk,
                                                      const struct br_keyvalue *pair)
{
    if (pair->key_len || !pair->key_index || !walk->view ||
        pair->key_index >= walk->view->count[BR_TABLE_STRING])
        return (struct br_masked_text){pair->key, pair->key_len};
    struct br_entry text = br_dictionary_string(walk->view, (uint32_t)pair->key_index);
    return (struct br_masked_text){text.data, text.len};
}

static int redact_messages_attribute(struct redact_walk *walk, const struct br_field *found,
                                     const uint8_t *next, bool top, bool pass)
{
    struct br_keyvalue pair;
    if (!br_keyvalue_read(found->data, (size_t)found->value, &pair))
        return BR_EINVAL;
    int key = pass ? REDACT_KEY_PASS : redact_messages_judge_key(walk, &pair);
    if (key < 0)
        return key;
    const struct br_masked_text outer = walk->key;
    walk->key = redact_messages_key_text(walk, &pair);
    if (key == REDACT_KEY_REMOVE && top) {
        redact_note(walk, REDACT_KEY_REMOVE);
        ++*walk->attributes_removed;
        walk->hides = true;
        return br_splice_cut(&walk->splice, found->at, next);
    }
    if (key == REDACT_KEY_REMOVE)
        key = REDACT_KEY_INSPECT;
    if (key == REDACT_KEY_INSPECT && top &&
        redact_is_statement(walk->rules, walk->target, pair.key, pair.key_len))
        key = REDACT_KEY_DB;
    if (pair.key_index)
        redact_keep(walk, pair.key_index);
    if (key == REDACT_KEY_PASS && !walk->view)
        return 0;
    int rc = br_splice_enter(&walk->splice, found, next);
    for (const uint8_t *p = found->data; p < next && !rc;) {
        struct br_field field;
        p = br_scan(p, next, &field);
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_KEYVALUE_VALUE))
            rc = redact_value(walk, &field, p, (enum redact_key)key);
    }
    walk->key = outer;
    return rc ? rc : br_splice_leave(&walk->splice);
}

/* --- Indices --------------------------------------------------------------------------------- */

static bool redact_messages_is_removed(const struct redact_walk *walk, uint64_t index)
{
    return index < walk->view->count[BR_TABLE_ATTRIBUTE] && walk->removed[index];
}

/* Removes the indices of removed attributes from an index list, packed or not. */
static int redact_messages_filter_indices(struct redact_walk *walk, const struct br_field *field,
                                          const uint8_t *next)
{
    if (field->wire == BR_WIRE_VARINT)
        return redact_messages_is_removed(walk, field->value)
                   ? br_splice_cut(&walk->splice, field->at, next)
                   : 0;
    if (field->wire != BR_WIRE_LEN)
        return 0;
    int rc = br_splice_enter(&walk->splice, field, next);
    for (const uint8_t *p = field->data; p < next && !rc;) {
        const uint8_t *at = p;
        uint64_t i;
        p = br_scan_varint(p, next, &i);
        if (!p)
            return BR_EINVAL;
        if (redact_messages_is_removed(walk, i))
            rc = br_splice_cut(&walk->splice, at, p);
    }
    return rc ? rc : br_splice_leave(&walk->splice);
}

static void redact_messages_keep_value_type(struct redact_walk *walk, const struct br_field *found,
                                            const uint8_t *end)
{
    struct br_field field;
    for (const uint8_t *p = found->data; p < end && (p = br_scan(p, end, &field));)
        if (field.wire == BR_WIRE_VARINT)
            redact_keep(walk, field.value);
}

/* --- Messages -------------------------------------------------------------------------------- */

/* Returns true if nothing remains of the URL after cleaning. If nothing remains, the span name
 * is kept, as in the Collector. */
static bool redact_messages_cleans_all(const struct redact_rules *rules)
{
    bool star = false;
    for (uint32_t i = 0; i < rules->text_len; i++) {
        if (rules->text[i] != '*' && rules->text[i] != '/')
            return false;
        star = star || rules->text[i] == '*';
    }
    return star;
}

static int redact_messages_url_name(struct redact_walk *walk, const struct br_field *field)
{
    int rc = redact_url(walk->rules, REDACT_SPAN, field->data, field->value);
    return rc == 1 && redact_messages_cleans_all(walk->rules)
               ? redact_text(walk->rules, REDACT_SPAN, field->data, field->value)
               : rc;
}

static int redact_messages_text(struct redact_walk *walk, const struct br_field *field,
                                const uint8_t *next, enum redact_kind kind, bool is_url,
                                bool is_statement)
{
    int rc;
    if (is_url)
        rc = redact_messages_url_name(walk, field);
    else if (is_statement)
        rc = redact_statement(walk->rules, kind, walk->target, field->data, field->value);
    else
        rc = redact_text(walk->rules, kind, field->data, field->value);
    if (rc != 1)
        return rc;
    ++*walk->names;
    redact_note_name(walk, "name");
    return br_splice_replace(&walk->splice, field->number, field->at, next, walk->rules->text,
                             walk->rules->text_len);
}

/* Returns true if the span's kind is client or server and its name contains a path. */
static bool redact_messages_has_path(const struct redact_walk *walk, const uint8_t *p,
                                     const uint8_t *end)
{
    const struct redact_url_sanitizer *config = &walk->rules->config->url_sanitizer;
    bool speaks = false, path = false;
    struct br_field field;
    if (!config->enabled || !config->sanitize_span_name)
        return false;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_SPAN_KIND))
            speaks = field.value == BR_SPAN_KIND_SERVER || field.value == BR_SPAN_KIND_CLIENT;
        else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_SPAN_NAME))
            path = memchr(field.data, '/', field.value) != NULL;
    }
    return speaks && path;
}

/* Returns the database system that a span's attributes name. */
static struct redact_target redact_messages_target_of(const uint8_t *p, const uint8_t *end)
{
    struct redact_target target = {REDACT_DBS, false};
    bool named = false;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        struct br_keyvalue pair;
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_SPAN_ATTRIBUTES) ||
            !br_keyvalue_read(field.data, (size_t)field.value, &pair))
            continue;
        bool is_name = br_bytes_are(pair.key, pair.key_len, "db.system.name");
        bool is_old = br_bytes_are(pair.key, pair.key_len, "db.system");
        struct br_any value = br_any_read(pair.value);
        if ((!is_name && (!is_old || named)) || value.type != BR_VALUE_STRING || !value.len)
            continue;
        named = is_name;
        target.db = redact_db_find(value.data, value.len, &target.mysql);
    }
    return target;
}

static bool redact_messages_is_db_kind(const uint8_t *p, const uint8_t *end)
{
    uint64_t kind = 0;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_SPAN_KIND))
            kind = field.value;
    return kind == BR_SPAN_KIND_INTERNAL || kind == BR_SPAN_KIND_SERVER ||
           kind == BR_SPAN_KIND_CLIENT;
}

static void redact_messages_begin_span(struct redact_walk *walk, const uint8_t *p,
                                       const uint8_t *end)
{
    const struct redact_rules *rules = walk->rules;
    walk->url_name = redact_messages_has_path(walk, p, end);
    walk->db_name = false;
    if (!rules->db_enabled)
        return;
    walk->target = redact_messages_target_of(p, end);
    walk->db_name = rules->config->db_sanitizer.sanitize_span_name &&
                    walk->target.db != REDACT_DBS && rules->db_names[walk->target.db] &&
                    redact_messages_is_db_kind(p, end);
}

static int redact_messages_child(struct redact_walk *walk, const struct redact_shape *shape,
                                 const struct br_field *field, const uint8_t *next)
{
    if (shape == &sample && !walk->removed)
        return 0;
    const struct redact_target before = walk->target;
    walk->target.db = REDACT_DBS;
    if (shape == &span)
        redact_messages_begin_span(walk, field->data, next);
    int rc = br_splice_enter(&walk->splice, field, next);
    if (!rc)
        rc = redact_message(walk, shape, field->data, next);
    walk->target = before;
    return rc ? rc : br_splice_leave(&walk->splice);
}

int redact_message(struct redact_walk *walk, const struct redact_shape *shape, const uint8_t *p,
                   const uint8_t *end)
{
    int rc = 0;
    br_steps_add((size_t)(end - p));
    while (p < end && !rc) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (field.number >= 16)
            continue;
        enum redact_what what = shape->fields[field.number].what;
        bool len = field.wire == BR_WIRE_LEN;
        walk->place = shape->place;
        if (what == REDACT_ATTRIBUTE && len)
            rc = redact_messages_attribute(walk, &field, p, true, false);
        else if (what == REDACT_MESSAGE && len)
            rc = redact_messages_child(walk, shape->fields[field.number].child, &field, p);
        else if (what == REDACT_TEXT && len)
            rc = redact_messages_text(walk, &field, p, shape->fields[field.number].kind,
                                      walk->url_name && shape == &span,
                                      walk->db_name && shape == &span);
        else if (what == REDACT_INDICES && walk->removed)
            rc = redact_messages_filter_indices(walk, &field, p);
        else if (what == REDACT_VALUE_TYPE && len)
            redact_messages_keep_value_type(walk, &field, p);
        else if (what == REDACT_CUT)
            rc = br_splice_cut(&walk->splice, field.at, p);
    }
    return rc;
}
