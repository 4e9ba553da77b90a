/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/dictionary.h"

#include "base/mem.h"
#include "otlp/edit/rewrite.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"

static const uint8_t nothing[1];

/* --- Attributes ------------------------------------------------------------------------------ */

/* What came out of the splice as the replacement of entry `i`, if anything did. */
static int take_entry(struct redact_dictionary *d, struct redact_walk *w, enum br_table table,
                      uint32_t i)
{
    struct br_buf *buf;
    int rc = br_splice_take(&w->splice, &buf);
    if (rc || !buf)
        return rc;
    uint8_t *copy = br_arena_alloc(w->arena, (size_t)buf->len + 1);
    if (copy) {
        br_put_bytes(copy, buf->data, buf->len);
        d->entries[table][i] = (struct br_entry){copy, buf->len};
    }
    br_buf_unref(buf);
    return copy ? 0 : BR_ENOMEM;
}

static int redact_attribute(struct redact_dictionary *d, struct redact_walk *w, uint32_t i)
{
    struct br_entry e = d->view.tables[BR_TABLE_ATTRIBUTE][i];
    const uint8_t *end = e.data + e.len;
    struct br_keyvalue kv;
    struct br_field f;
    (void)br_keyvalue_read_entry(e.data, e.len, &kv);
    int verdict = redact_key_at(w, kv.key_index);
    if (verdict < 0)
        return verdict;
    if (verdict == REDACT_KEY_REMOVE) {
        ++*w->attributes_removed;
        w->removed[i] = w->hides = true;
        d->entries[BR_TABLE_ATTRIBUTE][i] = (struct br_entry){nothing, 0};
        return 0;
    }
    redact_keep(w, kv.key_index);
    redact_keep(w, kv.unit);
    int rc = 0;
    br_splice_begin(&w->splice, e.data, e.len);
    for (const uint8_t *p = e.data; p < end && !rc && (p = br_scan(p, end, &f));)
        if (br_scan_tag(&f) == BR_SCAN_LEN(BR_ATTRIBUTE_VALUE))
            rc = redact_value(w, &f, p, (enum redact_key)verdict);
    return rc ? rc : take_entry(d, w, BR_TABLE_ATTRIBUTE, i);
}

static int allocate(struct redact_dictionary *d, struct redact_walk *w)
{
    size_t n_strings = d->view.n[BR_TABLE_STRING];
    bool ok = true;
    for (size_t t = 0; t < BR_TABLES && ok; t++) {
        if (t == BR_TABLE_LINK || t == BR_TABLE_STACK)
            continue;
        d->entries[t] = br_arena_calloc(w->arena, d->view.n[t], sizeof *d->entries[t]);
        ok = d->entries[t] != NULL;
    }
    w->kept = ok ? br_arena_calloc(w->arena, n_strings, sizeof *w->kept) : NULL;
    w->keys_at = ok ? br_arena_calloc(w->arena, n_strings, 1) : NULL;
    ok = w->kept && w->keys_at;
    for (size_t i = 0; i < BR_COUNT(w->values_at) && ok; i++) {
        w->values_at[i] = br_arena_calloc(w->arena, n_strings, sizeof *w->values_at[i]);
        ok = w->values_at[i] != NULL;
    }
    if (ok && w->rules->removes) {
        w->removed = br_arena_calloc(w->arena, d->view.n[BR_TABLE_ATTRIBUTE], sizeof *w->removed);
        ok = w->removed != NULL;
    }
    return ok ? 0 : BR_ENOMEM;
}

int redact_dictionary_begin(struct redact_dictionary *d, struct redact_walk *w,
                            const struct br_item *item)
{
    int rc = br_dictionary_index(item, w->arena, &d->view);
    if (!rc)
        rc = allocate(d, w);
    if (rc)
        return rc;
    w->view = &d->view;
    w->hides = false;
    w->n_added = 0;
    br_str_clear(&w->more);
    for (uint32_t i = 1; i < d->view.n[BR_TABLE_ATTRIBUTE] && !rc; i++)
        rc = redact_attribute(d, w, i);
    return rc;
}

/* --- Functions and mappings ------------------------------------------------------------------ */

/* One use of strings by a table: a field of its entries that is an index. */
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

/* The string that entry `e` uses so; 0: none. */
static uint32_t used(const struct redact_dictionary *d, struct br_entry e, const struct use *use)
{
    const uint8_t *end = e.data + e.len;
    uint32_t index = 0;
    struct br_field f;
    for (const uint8_t *p = e.data; p < end && (p = br_scan(p, end, &f));)
        if (br_scan_tag(&f) == BR_SCAN_VARINT(use->field))
            index = f.value < d->view.n[BR_TABLE_STRING] ? (uint32_t)f.value : 0;
    return index;
}

/* What becomes of string `i` as a name or a path: asks once. */
static int ask(struct redact_dictionary *d, struct redact_walk *w, enum redact_kind kind,
               uint32_t i, double *counter)
{
    bool *asked = kind == REDACT_FUNCTION ? d->function_asked : d->path_asked;
    struct br_entry *texts = kind == REDACT_FUNCTION ? d->function_texts : d->path_texts;
    if (i == 0 || asked[i])
        return 0;
    asked[i] = true;
    struct br_entry e = d->view.tables[BR_TABLE_STRING][i];
    int rc = redact_text(w->rules, kind, e.data, e.len);
    if (rc != 1)
        return rc;
    uint8_t *copy = br_arena_alloc(w->arena, (size_t)w->rules->text_len + 1);
    if (!copy)
        return BR_ENOMEM;
    br_put_bytes(copy, w->rules->text, w->rules->text_len);
    texts[i] = (struct br_entry){copy, w->rules->text_len};
    w->hides = true;
    ++*counter;
    return 0;
}

static int ask_all(struct redact_dictionary *d, struct redact_walk *w, double *functions,
                   double *paths)
{
    size_t n = d->view.n[BR_TABLE_STRING];
    d->function_texts = br_arena_calloc(w->arena, n, sizeof *d->function_texts);
    d->path_texts = br_arena_calloc(w->arena, n, sizeof *d->path_texts);
    d->function_asked = br_arena_calloc(w->arena, n, sizeof *d->function_asked);
    d->path_asked = br_arena_calloc(w->arena, n, sizeof *d->path_asked);
    if (!d->function_texts || !d->path_texts || !d->function_asked || !d->path_asked)
        return BR_ENOMEM;
    int rc = 0;
    for (size_t u = 0; u < N_USES; u++) {
        if (redact_idle(w->rules, uses[u].kind))
            continue;
        double *counter = uses[u].kind == REDACT_FUNCTION ? functions : paths;
        for (uint32_t i = 0; i < d->view.n[uses[u].table] && !rc; i++)
            rc = ask(d, w, uses[u].kind, used(d, d->view.tables[uses[u].table][i], &uses[u]),
                     counter);
    }
    return rc;
}

static const struct br_entry *text_of(const struct redact_dictionary *d, enum redact_kind kind,
                                      uint32_t i)
{
    return kind == REDACT_FUNCTION ? &d->function_texts[i] : &d->path_texts[i];
}

/* Notes what stays in functions and mappings. */
static void keep_uses(const struct redact_dictionary *d, struct redact_walk *w)
{
    for (size_t u = 0; u < N_USES; u++) {
        for (uint32_t i = 0; i < d->view.n[uses[u].table]; i++) {
            uint32_t string = used(d, d->view.tables[uses[u].table][i], &uses[u]);
            if (string && !text_of(d, uses[u].kind, string)->data)
                redact_keep(w, string);
        }
    }
}

/* --- Strings --------------------------------------------------------------------------------- */

/* Replaces what nobody needs any more; of it, what was redacted in one way only by that. */
static int hide_strings(struct redact_dictionary *d, struct redact_walk *w)
{
    for (uint32_t i = 1; i < d->view.n[BR_TABLE_STRING]; i++) {
        struct br_entry e = d->view.tables[BR_TABLE_STRING][i];
        const struct br_entry *name = &d->function_texts[i], *path = &d->path_texts[i];
        if (w->kept[i] || e.len == 0)
            continue;
        bool same = name->data && path->data && name->len == path->len &&
                    memcmp(name->data, path->data, name->len) == 0;
        struct br_entry out;
        if (same || (name->data && !path->data)) {
            out = *name;
        } else if (path->data && !name->data) {
            out = *path;
        } else {
            char mask[REDACT_MASK_MAX];
            size_t len =
                redact_mask(w->rules->hash, w->rules->config->hmac_key.text, e.data, e.len, mask);
            uint8_t *copy = br_arena_alloc(w->arena, len);
            if (!copy)
                return BR_ENOMEM;
            br_put_bytes(copy, mask, len);
            out = (struct br_entry){copy, (uint32_t)len};
        }
        d->entries[BR_TABLE_STRING][i] = out;
    }
    return 0;
}

/* Gives entry `i` a string of its own: the last value of a field counts. */
static int point_elsewhere(struct redact_dictionary *d, struct redact_walk *w,
                           const struct use *use, uint32_t i, uint32_t index)
{
    struct br_entry *e = &d->entries[use->table][i];
    if (!e->data)
        *e = d->view.tables[use->table][i];
    uint8_t *copy = br_arena_alloc(w->arena, (size_t)e->len + 2 * BR_VARINT_MAX);
    if (!copy)
        return BR_ENOMEM;
    uint8_t *p = br_put_bytes(copy, e->data, e->len);
    p = br_put_varint(p, BR_TAG(use->field, BR_WIRE_VARINT));
    p = br_put_varint(p, index);
    *e = (struct br_entry){copy, (uint32_t)(p - copy)};
    return 0;
}

/* Redacted uses of strings that stay. */
static int part_ways(struct redact_dictionary *d, struct redact_walk *w)
{
    size_t n = d->view.n[BR_TABLE_STRING];
    uint32_t *places[REDACT_KINDS] = {
        [REDACT_FUNCTION] = br_arena_calloc(w->arena, n, sizeof(uint32_t)),
        [REDACT_PATH] = br_arena_calloc(w->arena, n, sizeof(uint32_t)),
    };
    int rc = places[REDACT_FUNCTION] && places[REDACT_PATH] ? 0 : BR_ENOMEM;
    for (size_t u = 0; u < N_USES; u++) {
        for (uint32_t i = 0; i < d->view.n[uses[u].table] && !rc; i++) {
            uint32_t string = used(d, d->view.tables[uses[u].table][i], &uses[u]);
            const struct br_entry *text = string ? text_of(d, uses[u].kind, string) : NULL;
            if (!text || !text->data || !w->kept[string])
                continue;
            uint32_t *place = &places[uses[u].kind][string];
            if (!*place)
                *place = redact_add_string(w, text->data, text->len);
            rc = point_elsewhere(d, w, &uses[u], i, *place);
        }
    }
    return rc ? rc : w->more.failed ? BR_ENOMEM : 0;
}

/* Mappings and locations lose the attributes that are not allowed. */
static int filter_table(struct redact_dictionary *d, struct redact_walk *w, enum br_table table,
                        const struct redact_shape *shape)
{
    int rc = 0;
    for (uint32_t i = 0; i < d->view.n[table] && !rc; i++) {
        struct br_entry *e = &d->entries[table][i];
        struct br_entry in = e->data ? *e : d->view.tables[table][i];
        if (!in.len)
            continue;
        br_splice_begin(&w->splice, in.data, in.len);
        rc = redact_message(w, shape, in.data, in.data + in.len);
        if (!rc)
            rc = take_entry(d, w, table, i);
    }
    return rc;
}

int redact_dictionary_end(struct redact_dictionary *d, struct redact_walk *w, struct br_item *item,
                          double *functions, double *paths)
{
    bool look = !redact_idle(w->rules, REDACT_FUNCTION) || !redact_idle(w->rules, REDACT_PATH);
    int rc = look || w->hides ? ask_all(d, w, functions, paths) : 0;
    if (!rc && w->hides) {
        keep_uses(d, w);
        rc = hide_strings(d, w);
        if (!rc)
            rc = part_ways(d, w);
    }
    if (!rc && w->removed) {
        rc = filter_table(d, w, BR_TABLE_MAPPING, &redact_mapping_shape);
        if (!rc)
            rc = filter_table(d, w, BR_TABLE_LOCATION, &redact_location_shape);
    }
    if (rc)
        return rc;
    const struct br_addition more = {(const uint8_t *)w->more.data, w->more.len};
    const struct br_entry *entries[BR_TABLES];
    for (size_t t = 0; t < BR_TABLES; t++)
        entries[t] = d->entries[t];
    return br_item_rewrite_dictionary(item, &d->view, entries, &more);
}
