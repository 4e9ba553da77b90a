/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/messages.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "otlp/edit/rewrite.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"

static const uint8_t nothing[1];

/* --- Attributes ------------------------------------------------------------------------------ */

/* Replaces entry `index` by the output of the splice, if the splice has output. */
static int redact_dictionary_set_entry(struct redact_dictionary *dictionary,
                                       struct redact_walk *walk, enum br_table table,
                                       uint32_t index)
{
    struct br_buf *buf;
    int rc = br_splice_take(&walk->splice, &buf);
    if (rc || !buf)
        return rc;
    uint8_t *copy = br_arena_alloc(walk->arena, (size_t)buf->len + 1);
    if (copy) {
        br_put_bytes(copy, buf->data, buf->len);
        dictionary->entries[table][index] = (struct br_entry){copy, buf->len};
    }
    br_buf_unref(buf);
    return copy ? 0 : BR_ENOMEM;
}

static int redact_attribute(struct redact_dictionary *dictionary, struct redact_walk *walk,
                            uint32_t index)
{
    struct br_entry entry = dictionary->view.tables[BR_TABLE_ATTRIBUTE][index];
    const uint8_t *end = entry.data + entry.len;
    struct br_keyvalue kv;
    struct br_field field;
    (void)br_keyvalue_read_entry(entry.data, entry.len, &kv);
    int verdict = redact_key_at(walk, kv.key_index);
    if (verdict < 0)
        return verdict;
    struct br_entry key = {0};
    if (kv.key_index < dictionary->view.count[BR_TABLE_STRING])
        key = br_dictionary_string(&dictionary->view, (uint32_t)kv.key_index);
    walk->place = "profile";
    walk->key = (struct br_masked_text){key.data, key.len};
    if (verdict == REDACT_KEY_REMOVE) {
        redact_note(walk, REDACT_KEY_REMOVE);
        ++*walk->attributes_removed;
        walk->removed[index] = walk->hides = true;
        dictionary->entries[BR_TABLE_ATTRIBUTE][index] = (struct br_entry){nothing, 0};
        return 0;
    }
    redact_keep(walk, kv.key_index);
    redact_keep(walk, kv.unit);
    int rc = 0;
    br_splice_begin(&walk->splice, entry.data, entry.len);
    for (const uint8_t *p = entry.data; p < end && !rc && (p = br_scan(p, end, &field));)
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_ATTRIBUTE_VALUE))
            rc = redact_value(walk, &field, p, (enum redact_key)verdict);
    return rc ? rc : redact_dictionary_set_entry(dictionary, walk, BR_TABLE_ATTRIBUTE, index);
}

static int redact_dictionary_allocate(struct redact_dictionary *dictionary,
                                      struct redact_walk *walk)
{
    size_t n_strings = dictionary->view.count[BR_TABLE_STRING];
    bool ok = true;
    for (size_t t = 0; t < BR_TABLES && ok; t++) {
        if (t == BR_TABLE_LINK || t == BR_TABLE_STACK)
            continue;
        dictionary->entries[t] =
            br_arena_calloc(walk->arena, dictionary->view.count[t], sizeof *dictionary->entries[t]);
        ok = dictionary->entries[t] != NULL;
    }
    walk->kept = ok ? br_arena_calloc(walk->arena, n_strings, sizeof *walk->kept) : NULL;
    walk->keys_at = ok ? br_arena_calloc(walk->arena, n_strings, 1) : NULL;
    ok = walk->kept && walk->keys_at;
    for (size_t i = 0; i < BR_COUNT(walk->values_at) && ok; i++) {
        walk->values_at[i] = br_arena_calloc(walk->arena, n_strings, sizeof *walk->values_at[i]);
        ok = walk->values_at[i] != NULL;
    }
    if (ok && walk->rules->removes) {
        walk->removed = br_arena_calloc(walk->arena, dictionary->view.count[BR_TABLE_ATTRIBUTE],
                                        sizeof *walk->removed);
        ok = walk->removed != NULL;
    }
    return ok ? 0 : BR_ENOMEM;
}

int redact_dictionary_begin(struct redact_dictionary *dictionary, struct redact_walk *walk,
                            const struct br_item *item)
{
    int rc = br_dictionary_index(item, walk->arena, &dictionary->view);
    if (!rc)
        rc = redact_dictionary_allocate(dictionary, walk);
    if (rc)
        return rc;
    walk->view = &dictionary->view;
    walk->hides = false;
    walk->n_added = 0;
    br_str_clear(&walk->more);
    for (uint32_t i = 1; i < dictionary->view.count[BR_TABLE_ATTRIBUTE] && !rc; i++)
        rc = redact_attribute(dictionary, walk, i);
    return rc;
}

/* --- Functions and mappings ------------------------------------------------------------------ */

/* A field that contains a string index, in the entries of a dictionary table, and the kind of
 * the text to which the index refers. */
struct use {
    enum br_table table;
    uint32_t field;
    enum redact_kind kind;
};

static const struct use uses[] = {
    {BR_TABLE_FUNCTION, BR_FUNCTION_NAME, REDACT_FUNCTION},
    {BR_TABLE_FUNCTION, BR_FUNCTION_SYSTEM_NAME, REDACT_FUNCTION},
    {BR_TABLE_FUNCTION, BR_FUNCTION_FILENAME, REDACT_PATH},
    {BR_TABLE_MAPPING, BR_MAPPING_FILENAME, REDACT_PATH},
};
#define N_USES (sizeof uses / sizeof *uses)

/* Returns the index of the string to which the field `use` of an entry refers; 0: no string. */
static uint32_t redact_dictionary_used(const struct redact_dictionary *dictionary,
                                       struct br_entry entry, const struct use *use)
{
    const uint8_t *end = entry.data + entry.len;
    uint32_t index = 0;
    struct br_field field;
    for (const uint8_t *p = entry.data; p < end && (p = br_scan(p, end, &field));)
        if (br_scan_tag(&field) == BR_SCAN_VARINT(use->field))
            index =
                field.value < dictionary->view.count[BR_TABLE_STRING] ? (uint32_t)field.value : 0;
    return index;
}

/* Redacts string `index` as a function name or a path. The result is stored, so each string is
 * redacted at most once as a function name and once as a path. */
static int redact_dictionary_redact_string(struct redact_dictionary *dictionary,
                                           struct redact_walk *walk, enum redact_kind kind,
                                           uint32_t index, double *counter)
{
    bool *target =
        kind == REDACT_FUNCTION ? dictionary->function_checked : dictionary->path_checked;
    struct br_entry *texts =
        kind == REDACT_FUNCTION ? dictionary->function_texts : dictionary->path_texts;
    if (index == 0 || target[index])
        return 0;
    target[index] = true;
    struct br_entry entry = dictionary->view.tables[BR_TABLE_STRING][index];
    int rc = redact_text(walk->rules, kind, entry.data, entry.len);
    if (rc != 1)
        return rc;
    uint8_t *copy = br_arena_alloc(walk->arena, (size_t)walk->rules->text_len + 1);
    if (!copy)
        return BR_ENOMEM;
    br_put_bytes(copy, walk->rules->text, walk->rules->text_len);
    texts[index] = (struct br_entry){copy, walk->rules->text_len};
    walk->hides = true;
    redact_note_name(walk, kind == REDACT_FUNCTION ? "function" : "path");
    ++*counter;
    return 0;
}

static int redact_dictionary_ask_all(struct redact_dictionary *dictionary, struct redact_walk *walk,
                                     double *functions, double *paths)
{
    size_t n = dictionary->view.count[BR_TABLE_STRING];
    dictionary->function_texts =
        br_arena_calloc(walk->arena, n, sizeof *dictionary->function_texts);
    dictionary->path_texts = br_arena_calloc(walk->arena, n, sizeof *dictionary->path_texts);
    dictionary->function_checked =
        br_arena_calloc(walk->arena, n, sizeof *dictionary->function_checked);
    dictionary->path_checked = br_arena_calloc(walk->arena, n, sizeof *dictionary->path_checked);
    if (!dictionary->function_texts || !dictionary->path_texts || !dictionary->function_checked ||
        !dictionary->path_checked)
        return BR_ENOMEM;
    int rc = 0;
    for (size_t u = 0; u < N_USES; u++) {
        if (redact_idle(walk->rules, uses[u].kind))
            continue;
        double *counter = uses[u].kind == REDACT_FUNCTION ? functions : paths;
        for (uint32_t i = 0; i < dictionary->view.count[uses[u].table] && !rc; i++)
            rc = redact_dictionary_redact_string(
                dictionary, walk, uses[u].kind,
                redact_dictionary_used(dictionary, dictionary->view.tables[uses[u].table][i],
                                       &uses[u]),
                counter);
    }
    return rc;
}

static const struct br_entry *redact_dictionary_text_of(const struct redact_dictionary *dictionary,
                                                        enum redact_kind kind, uint32_t index)
{
    return kind == REDACT_FUNCTION ? &dictionary->function_texts[index]
                                   : &dictionary->path_texts[index];
}

/* Marks the strings to which functions and mappings refer after the redaction. */
static void redact_dictionary_keep_uses(const struct redact_dictionary *dictionary,
                                        struct redact_walk *walk)
{
    for (size_t u = 0; u < N_USES; u++) {
        for (uint32_t i = 0; i < dictionary->view.count[uses[u].table]; i++) {
            uint32_t string = redact_dictionary_used(
                dictionary, dictionary->view.tables[uses[u].table][i], &uses[u]);
            if (string && !redact_dictionary_text_of(dictionary, uses[u].kind, string)->data)
                redact_keep(walk, string);
        }
    }
}

/* --- Strings --------------------------------------------------------------------------------- */

/* Replaces the original strings to which nothing refers after the redaction. If a string was
 * redacted in only one way, it is replaced by its redacted text, otherwise by a mask. */
static int redact_dictionary_hide_strings(struct redact_dictionary *dictionary,
                                          struct redact_walk *walk)
{
    for (uint32_t i = 1; i < dictionary->view.count[BR_TABLE_STRING]; i++) {
        struct br_entry entry = dictionary->view.tables[BR_TABLE_STRING][i];
        const struct br_entry *name = &dictionary->function_texts[i],
                              *path = &dictionary->path_texts[i];
        if (walk->kept[i] || entry.len == 0)
            continue;
        bool same = name->data && path->data &&
                    br_bytes_equal(name->data, name->len, path->data, path->len);
        struct br_entry out;
        if (same || (name->data && !path->data)) {
            out = *name;
        } else if (path->data && !name->data) {
            out = *path;
        } else {
            char mask[REDACT_MASK_MAX];
            size_t len = redact_mask(&walk->rules->masking, entry.data, entry.len, mask);
            uint8_t *copy = br_arena_alloc(walk->arena, len);
            if (!copy)
                return BR_ENOMEM;
            br_put_bytes(copy, mask, len);
            out = (struct br_entry){copy, (uint32_t)len};
        }
        dictionary->entries[BR_TABLE_STRING][i] = out;
    }
    return 0;
}

/* Makes a field of entry `at` refer to another string. Appends the field to the entry instead of
 * changing it, because the last occurrence of a field counts. */
static int redact_dictionary_redirect(struct redact_dictionary *dictionary,
                                      struct redact_walk *walk, const struct use *use, uint32_t at,
                                      uint32_t index)
{
    struct br_entry *entry = &dictionary->entries[use->table][at];
    if (!entry->data)
        *entry = dictionary->view.tables[use->table][at];
    uint8_t *copy = br_arena_alloc(walk->arena, (size_t)entry->len + 2 * BR_VARINT_MAX);
    if (!copy)
        return BR_ENOMEM;
    uint8_t *p = br_put_bytes(copy, entry->data, entry->len);
    p = br_put_varint(p, BR_TAG(use->field, BR_WIRE_VARINT));
    p = br_put_varint(p, index);
    *entry = (struct br_entry){copy, (uint32_t)(p - copy)};
    return 0;
}

/* Adds a separate string for each redacted use of a string to which other entries still refer. */
static int redact_dictionary_separate_uses(struct redact_dictionary *dictionary,
                                           struct redact_walk *walk)
{
    size_t n = dictionary->view.count[BR_TABLE_STRING];
    uint32_t *places[REDACT_KINDS] = {
        [REDACT_FUNCTION] = br_arena_calloc(walk->arena, n, sizeof(uint32_t)),
        [REDACT_PATH] = br_arena_calloc(walk->arena, n, sizeof(uint32_t)),
    };
    int rc = places[REDACT_FUNCTION] && places[REDACT_PATH] ? 0 : BR_ENOMEM;
    for (size_t u = 0; u < N_USES; u++) {
        for (uint32_t i = 0; i < dictionary->view.count[uses[u].table] && !rc; i++) {
            uint32_t string = redact_dictionary_used(
                dictionary, dictionary->view.tables[uses[u].table][i], &uses[u]);
            const struct br_entry *text =
                string ? redact_dictionary_text_of(dictionary, uses[u].kind, string) : NULL;
            if (!text || !text->data || !walk->kept[string])
                continue;
            uint32_t *place = &places[uses[u].kind][string];
            if (!*place)
                *place = redact_add_string(walk, text->data, text->len);
            rc = redact_dictionary_redirect(dictionary, walk, &uses[u], i, *place);
        }
    }
    if (rc)
        return rc;
    return walk->more.failed ? BR_ENOMEM : 0;
}

/* Removes attributes that are not allowed from mappings or locations. */
static int redact_dictionary_filter_table(struct redact_dictionary *dictionary,
                                          struct redact_walk *walk, enum br_table table,
                                          const struct redact_shape *shape)
{
    int rc = 0;
    for (uint32_t i = 0; i < dictionary->view.count[table] && !rc; i++) {
        struct br_entry *entry = &dictionary->entries[table][i];
        struct br_entry in = entry->data ? *entry : dictionary->view.tables[table][i];
        if (!in.len)
            continue;
        br_splice_begin(&walk->splice, in.data, in.len);
        rc = redact_message(walk, shape, in.data, in.data + in.len);
        if (!rc)
            rc = redact_dictionary_set_entry(dictionary, walk, table, i);
    }
    return rc;
}

int redact_dictionary_end(struct redact_dictionary *dictionary, struct redact_walk *walk,
                          struct br_item *item, double *functions, double *paths)
{
    bool look =
        !redact_idle(walk->rules, REDACT_FUNCTION) || !redact_idle(walk->rules, REDACT_PATH);
    int rc =
        look || walk->hides ? redact_dictionary_ask_all(dictionary, walk, functions, paths) : 0;
    if (!rc && walk->hides) {
        redact_dictionary_keep_uses(dictionary, walk);
        rc = redact_dictionary_hide_strings(dictionary, walk);
        if (!rc)
            rc = redact_dictionary_separate_uses(dictionary, walk);
    }
    if (!rc && walk->removed) {
        rc = redact_dictionary_filter_table(dictionary, walk, BR_TABLE_MAPPING,
                                            &redact_mapping_shape);
        if (!rc)
            rc = redact_dictionary_filter_table(dictionary, walk, BR_TABLE_LOCATION,
                                                &redact_location_shape);
    }
    if (rc)
        return rc;
    const struct br_addition more = {(const uint8_t *)walk->more.data, walk->more.len};
    const struct br_entry *entries[BR_TABLES];
    for (size_t t = 0; t < BR_TABLES; t++)
        entries[t] = dictionary->entries[t];
    return br_item_rewrite_dictionary(item, &dictionary->view, entries, &more);
}
