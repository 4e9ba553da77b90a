/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of both signals are trees whose children are always in field 2 (see split.c). A walk
 * descends the tree, and a splice (splice.c) copies the unchanged bytes.
 */
#include "otlp/edit/rewrite.h"

#include "base/err.h"
#include "base/mem.h"
#include "core/host.h"
#include "otlp/edit/splice.h"
#include "otlp/fields.h"
#include "otlp/scan.h"

enum { RESOURCE, SCOPE, PROFILE, DEPTH_MAX };
#define CHILD 2

/* The replacement of a part, applied after the whole item has been walked without errors. */
struct fresh {
    struct br_buf *buf; /* new bytes of the part; NULL: the part is unchanged */
    uint32_t n_dropped, n_added;
    bool removed;
};

struct rewrite {
    struct br_splice splice;
    unsigned n_levels; /* number of levels of messages with children */
    unsigned levels;
    br_visit_fn *visit;
    void *arg;
    struct br_visit visitor;
    uint32_t index[BR_LEVEL_RECORD + 1];
    struct fresh *fresh; /* element in which the replacement of the current part is stored */
    /* the fields of the current profile that were read so far, except its samples */
    const uint8_t *head;
    size_t head_len;
    /* buffer for `head` if the profile's fields are not contiguous in the part */
    struct br_buf *scratch;
};

/* Removes all fields except the children from the innermost message, then appends `data` to it. */
static int rewrite_replace_heads(struct br_splice *splice, const void *data, size_t len)
{
    const struct br_frame *frame = &splice->frames[splice->depth - 1];
    int rc = br_splice_insert(splice, frame->end, NULL, 0);
    if (rc)
        return rc;
    uint8_t *to = splice->out->data + frame->out_at + 1 + frame->reserved;
    const uint8_t *p = to, *end = splice->out->data + splice->out->len;
    while (p < end) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (br_scan_tag(&field) != BR_SCAN_LEN(CHILD))
            continue;
        memmove(to, field.at, (size_t)(p - field.at));
        to += p - field.at;
    }
    splice->out->len = (uint32_t)(to - splice->out->data);
    return br_splice_insert(splice, frame->end, data, len);
}

/* --- Visiting ------------------------------------------------------------------------------- */

static bool rewrite_wants(const struct rewrite *rewrite, enum br_level level)
{
    return rewrite->levels >> level & 1;
}

static int rewrite_call_visit(struct rewrite *rewrite, enum br_level level, const uint8_t *body,
                              size_t len)
{
    rewrite->visitor.level = level;
    rewrite->visitor.index = rewrite->index[level]++;
    rewrite->visitor.body = body;
    rewrite->visitor.len = len;
    rewrite->visitor.out = (struct br_addition){NULL, 0};
    return rewrite->visit(rewrite->arg, &rewrite->visitor);
}

static int rewrite_visit_scope(struct rewrite *rewrite, const struct br_field *field,
                               const uint8_t *next)
{
    int verdict = rewrite_call_visit(rewrite, BR_LEVEL_SCOPE, field->data, field->value);
    if (verdict == BR_REPLACE)
        return br_splice_replace(&rewrite->splice, field->number, field->at, next,
                                 rewrite->visitor.out.data, rewrite->visitor.out.len);
    return verdict == BR_DROP ? BR_EINVAL : verdict;
}

/* Visits an empty scope in place of the missing scope of a ScopeSpans or ScopeProfiles. A
 * replacement is inserted before `end`, the end of the message. */
static int rewrite_visit_no_scope(struct rewrite *rewrite, const uint8_t *end)
{
    uint8_t head[2 * BR_VARINT_MAX];
    int verdict = rewrite_call_visit(rewrite, BR_LEVEL_SCOPE, NULL, 0);
    if (verdict != BR_REPLACE)
        return verdict == BR_DROP ? BR_EINVAL : verdict;
    uint8_t *p = br_put_varint(head, BR_TAG(BR_SCOPES_SCOPE, BR_WIRE_LEN));
    p = br_put_varint(p, rewrite->visitor.out.len);
    int rc = br_splice_insert(&rewrite->splice, end, head, (size_t)(p - head));
    return rc ? rc
              : br_splice_insert(&rewrite->splice, end, rewrite->visitor.out.data,
                                 rewrite->visitor.out.len);
}

static int rewrite_visit_item(struct rewrite *rewrite, const struct br_field *field,
                              const uint8_t *next, bool *ret_removed)
{
    int verdict = rewrite_call_visit(rewrite, BR_LEVEL_RECORD, field->data, field->value);
    if (verdict == BR_REPLACE)
        return br_splice_replace(&rewrite->splice, field->number, field->at, next,
                                 rewrite->visitor.out.data, rewrite->visitor.out.len);
    if (verdict == BR_SPLIT) {
        rewrite->fresh->n_added += rewrite->visitor.n_out - 1;
        int rc = br_splice_cut(&rewrite->splice, field->at, next);
        return rc ? rc
                  : br_splice_insert(&rewrite->splice, next, rewrite->visitor.out.data,
                                     rewrite->visitor.out.len);
    }
    if (verdict != BR_DROP)
        return verdict;
    *ret_removed = true;
    rewrite->fresh->n_dropped++;
    return br_splice_cut(&rewrite->splice, field->at, next);
}

/* Appends a field of a profile to `head`. The field is not a sample. */
static int rewrite_note_head(struct rewrite *rewrite, const uint8_t *at, const uint8_t *next)
{
    size_t len = (size_t)(next - at);
    bool together = rewrite->scratch && rewrite->head == rewrite->scratch->data;
    if (!together && (rewrite->head_len == 0 || rewrite->head + rewrite->head_len == at)) {
        if (rewrite->head_len == 0)
            rewrite->head = at;
        rewrite->head_len += len;
        return 0;
    }
    if (!rewrite->scratch &&
        !(rewrite->scratch = br_buf_new(rewrite->splice.pool, rewrite->head_len + len)))
        return BR_ENOMEM;
    if (!together)
        rewrite->scratch->len = 0;
    int rc = together
                 ? 0
                 : br_buf_append(&rewrite->scratch, rewrite->head, rewrite->head_len, BR_BUF_MAX);
    if (!rc)
        rc = br_buf_append(&rewrite->scratch, at, len, BR_BUF_MAX);
    rewrite->head = rewrite->scratch->data;
    rewrite->head_len = rewrite->scratch->len;
    return rc;
}

static int rewrite_visit_profile(struct rewrite *rewrite, uint32_t n_samples, bool *ret_removed)
{
    int verdict = rewrite_call_visit(rewrite, BR_LEVEL_PROFILE, rewrite->head, rewrite->head_len);
    if (verdict == BR_REPLACE)
        return rewrite_replace_heads(&rewrite->splice, rewrite->visitor.out.data,
                                     rewrite->visitor.out.len);
    if (verdict != BR_DROP)
        return verdict;
    *ret_removed = true;
    rewrite->fresh->n_dropped += n_samples;
    return 0;
}

static int rewrite_walk(struct rewrite *rewrite, unsigned level, const struct br_field *f,
                        const uint8_t *next, bool *ret_removed);

static int rewrite_visit_child(struct rewrite *rewrite, unsigned level,
                               const struct br_field *field, const uint8_t *next, bool *ret_removed)
{
    if (level + 1 == rewrite->n_levels)
        return rewrite_wants(rewrite, BR_LEVEL_RECORD)
                   ? rewrite_visit_item(rewrite, field, next, ret_removed)
                   : 0;
    if (level == SCOPE && !rewrite_wants(rewrite, BR_LEVEL_RECORD) &&
        !rewrite_wants(rewrite, BR_LEVEL_PROFILE))
        return 0;
    return rewrite_walk(rewrite, level + 1, field, next, ret_removed);
}

/* Visits a field of the message at `level` that is not a child. */
static int rewrite_visit_head(struct rewrite *rewrite, unsigned level, const struct br_field *field,
                              const uint8_t *next)
{
    if (level == SCOPE && rewrite_wants(rewrite, BR_LEVEL_SCOPE) &&
        br_scan_tag(field) == BR_SCAN_LEN(BR_SCOPES_SCOPE))
        return rewrite_visit_scope(rewrite, field, next);
    if (level == PROFILE && rewrite_wants(rewrite, BR_LEVEL_PROFILE))
        return rewrite_note_head(rewrite, field->at, next);
    return 0;
}

/* Walks `message`, which is at `level`, and visits its descendants. Sets `*ret_removed` if the
 * message must be removed. */
static int rewrite_walk(struct rewrite *rewrite, unsigned level, const struct br_field *message,
                        const uint8_t *end, bool *ret_removed)
{
    uint32_t n = 0, n_removed = 0;
    bool has_scope = level != SCOPE || !rewrite_wants(rewrite, BR_LEVEL_SCOPE);
    int rc = br_splice_enter(&rewrite->splice, message, end);
    if (level == PROFILE) {
        rewrite->head = NULL;
        rewrite->head_len = 0;
    }
    for (const uint8_t *p = message->data; p < end && !rc;) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&field) != BR_SCAN_LEN(CHILD)) {
            rc = rewrite_visit_head(rewrite, level, &field, p);
            has_scope = has_scope || br_scan_tag(&field) == BR_SCAN_LEN(BR_SCOPES_SCOPE);
            continue;
        }
        bool removed = false;
        rc = rewrite_visit_child(rewrite, level, &field, p, &removed);
        n++;
        n_removed += removed;
    }
    *ret_removed = n && n_removed == n;
    if (!rc && !has_scope && !*ret_removed)
        rc = rewrite_visit_no_scope(rewrite, end);
    if (!rc && level == PROFILE && rewrite_wants(rewrite, BR_LEVEL_PROFILE)) {
        if (*ret_removed)
            rewrite->index[BR_LEVEL_PROFILE]++;
        else
            rc = rewrite_visit_profile(rewrite, n - n_removed, ret_removed);
    }
    if (rc)
        return rc;
    return *ret_removed ? br_splice_leave_out(&rewrite->splice) : br_splice_leave(&rewrite->splice);
}

static int rewrite_walk_part(struct rewrite *rewrite, const struct br_part *part)
{
    struct br_field field;
    const uint8_t *end = part->raw + part->raw_len;
    if (br_field_next(part->raw, end, &field) != end || field.wire != BR_WIRE_LEN)
        return BR_EINVAL;
    br_splice_begin(&rewrite->splice, part->raw, part->raw_len);
    int rc = rewrite_walk(rewrite, RESOURCE, &field, end, &rewrite->fresh->removed);
    if (!rc && rewrite->fresh->n_dropped > part->n_records)
        rc = BR_EINVAL;
    if (!rc && !rewrite->fresh->removed)
        rc = br_splice_take(&rewrite->splice, &rewrite->fresh->buf);
    return rc;
}

static void rewrite_commit(struct br_item *item, struct fresh *fresh)
{
    uint32_t n = item->n_parts;
    item->n_parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct br_part *part = &item->parts[i];
        if (fresh[i].buf || fresh[i].removed)
            item->spans = NULL;
        if (fresh[i].removed) {
            item->n_records -= part->n_records;
            item->size -= br_part_size(part);
            br_buf_unref(part->buf);
            br_buf_unref(part->new_resource_buf);
            continue;
        }
        part->n_records += fresh[i].n_added - fresh[i].n_dropped;
        item->n_records += fresh[i].n_added - fresh[i].n_dropped;
        if (fresh[i].buf)
            br_part_set_bytes(item, part, fresh[i].buf);
        item->parts[item->n_parts++] = *part;
    }
}

static void rewrite_discard(struct fresh *fresh, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        br_buf_unref(fresh[i].buf);
}

int br_item_rewrite(struct br_item *item, unsigned levels, br_visit_fn *visit, void *arg)
{
    struct fresh *fresh = br_calloc(item->n_parts, sizeof *fresh);
    if (!fresh)
        return BR_ENOMEM;
    struct rewrite rewrite = {.n_levels = item->signal == BR_TRACES ? PROFILE : DEPTH_MAX,
                              .levels = levels,
                              .visit = visit,
                              .arg = arg};
    int rc = 0;
    br_splice_init(&rewrite.splice, item->host->pool);
    for (uint32_t i = 0; i < item->n_parts && !rc; i++) {
        rewrite.fresh = &fresh[i];
        rewrite.visitor.part = i;
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = rewrite_walk_part(&rewrite, &item->parts[i]);
    }
    br_splice_release(&rewrite.splice);
    br_buf_unref(rewrite.scratch);
    if (rc)
        rewrite_discard(fresh, item->n_parts);
    else
        rewrite_commit(item, fresh);
    br_free(fresh);
    return rc;
}

/* --- The dictionary ------------------------------------------------------------------------- */

struct entries {
    const struct br_dictionary_view *view;
    const struct br_entry *const *tables;
    /* fields with new entries; NULL: there are no new entries, or they are already written */
    const struct br_addition *more;
    uint32_t count[BR_TABLES]; /* number of entries of each table seen so far */
};

static int rewrite_dictionary_part(struct br_splice *splice, struct entries *entries,
                                   const struct br_part *part, bool last, struct br_buf **ret)
{
    struct br_field field;
    const uint8_t *p, *end = part->raw + part->raw_len;
    if (br_field_next(part->raw, end, &field) != end || field.wire != BR_WIRE_LEN)
        return 0; /* a walk would reject this part, and the view contains no entries of the part */
    br_splice_begin(splice, part->raw, part->raw_len);
    int rc = br_splice_enter(splice, &field, end);
    for (p = field.data; p && p < end && !rc;) {
        p = br_scan(p, end, &field);
        if (!p || field.number > BR_TABLES || field.wire != BR_WIRE_LEN)
            continue;
        const struct br_entry *table = entries->tables[field.number - 1];
        uint32_t i = entries->count[field.number - 1]++;
        if (table && i < entries->view->count[field.number - 1] && table[i].data)
            rc = br_splice_replace(splice, field.number, field.at, p, table[i].data, table[i].len);
    }
    /* If the last part is rewritten anyway, write the new entries into it. */
    if (!rc && last && splice->out && entries->more) {
        rc = br_splice_insert(splice, end, entries->more->data, entries->more->len);
        entries->more = NULL;
    }
    if (!rc)
        rc = br_splice_leave(splice);
    return rc ? rc : br_splice_take(splice, ret);
}

static uint32_t rewrite_last_dictionary(const struct br_item *item)
{
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < item->n_parts; i++)
        last = item->parts[i].kind == BR_PART_DICTIONARY ? i : last;
    return last;
}

/* Adds the new entries as a separate part, so that no existing part has to be copied. */
static int rewrite_add_additions(struct br_item *item, const struct br_addition *more)
{
    size_t len = br_len_size(BR_REQUEST_DICTIONARY, more->len);
    struct br_buf *buf = br_buf_new(item->host->pool, len);
    if (!buf)
        return BR_ENOMEM;
    buf->len =
        (uint32_t)(br_put_len(buf->data, BR_REQUEST_DICTIONARY, more->data, more->len) - buf->data);
    struct br_part part = {.kind = BR_PART_DICTIONARY,
                           .additions = true,
                           .buf = buf,
                           .raw = buf->data,
                           .raw_len = buf->len,
                           .body_at = (uint32_t)(len - more->len)};
    part.res_at = part.res_body_at = part.body_at;
    int rc = br_item_add_part(item, &part);
    br_buf_unref(buf);
    return rc;
}

int br_item_rewrite_dictionary(struct br_item *item, const struct br_dictionary_view *view,
                               const struct br_entry *const entries[BR_TABLES],
                               const struct br_addition *more)
{
    struct fresh *fresh = br_calloc(item->n_parts, sizeof *fresh);
    if (!fresh)
        return BR_ENOMEM;
    struct br_splice splice;
    struct entries changed = {
        .view = view, .tables = entries, .more = more && more->len ? more : NULL};
    uint32_t n = item->n_parts, last = rewrite_last_dictionary(item);
    int rc = 0;
    br_splice_init(&splice, item->host->pool);
    for (uint32_t i = 0; i < n && !rc; i++) {
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            rc = rewrite_dictionary_part(&splice, &changed, &item->parts[i], i == last,
                                         &fresh[i].buf);
    }
    br_splice_release(&splice);
    if (!rc && changed.more)
        rc = rewrite_add_additions(item, changed.more);
    if (rc)
        rewrite_discard(fresh, n);
    for (uint32_t i = 0; i < n && !rc; i++) {
        if (fresh[i].buf)
            br_part_set_bytes(item, &item->parts[i], fresh[i].buf);
    }
    br_free(fresh);
    return rc;
}
