/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both signals are trees of which field 2 is always the child (split.c says more). A walk goes down
 * the tree, and a splice copies what stays.
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
#define OWN_SCOPE 1

/* What a part will be when all went well. */
struct fresh {
    struct br_buf *buf; /* NULL: as it was */
    uint32_t n_dropped, n_added;
    bool gone;
};

struct rewrite {
    struct br_splice s;
    unsigned n_levels; /* of messages with children */
    unsigned levels;
    br_visit_fn *visit;
    void *arg;
    struct br_visit v;
    uint32_t index[BR_LEVEL_ITEM + 1];
    struct fresh *fresh; /* of the part */
    const uint8_t *head; /* the profile but for its samples, as far as it was seen */
    size_t head_len;
    struct br_buf *scratch; /* where it is put together when it is not in one piece */
};

/* Takes everything but the children out of the innermost message and puts `data` behind them. */
static int replace_heads(struct br_splice *s, const void *data, size_t len)
{
    const struct br_frame *frame = &s->frames[s->depth - 1];
    int rc = br_splice_insert(s, frame->end, NULL, 0);
    if (rc)
        return rc;
    uint8_t *to = s->out->data + frame->out_at + 1 + frame->reserved;
    const uint8_t *p = to, *end = s->out->data + s->out->len;
    while (p < end) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (br_scan_tag(&f) != BR_SCAN_LEN(CHILD))
            continue;
        memmove(to, f.at, (size_t)(p - f.at));
        to += p - f.at;
    }
    s->out->len = (uint32_t)(to - s->out->data);
    return br_splice_insert(s, frame->end, data, len);
}

/* --- Visiting ------------------------------------------------------------------------------- */

static bool wants(const struct rewrite *r, enum br_level level)
{
    return r->levels >> level & 1;
}

static int ask(struct rewrite *r, enum br_level level, const uint8_t *body, size_t len)
{
    r->v.level = level;
    r->v.index = r->index[level]++;
    r->v.body = body;
    r->v.len = len;
    r->v.out = (struct br_addition){NULL, 0};
    return r->visit(r->arg, &r->v);
}

static int visit_scope(struct rewrite *r, const struct br_field *f, const uint8_t *next)
{
    int verdict = ask(r, BR_LEVEL_SCOPE, f->data, f->value);
    if (verdict == BR_REPLACE)
        return br_splice_replace(&r->s, f->number, f->at, next, r->v.out.data, r->v.out.len);
    return verdict == BR_DROP ? BR_EINVAL : verdict;
}

static int visit_item(struct rewrite *r, const struct br_field *f, const uint8_t *next,
                      bool *ret_gone)
{
    int verdict = ask(r, BR_LEVEL_ITEM, f->data, f->value);
    if (verdict == BR_REPLACE)
        return br_splice_replace(&r->s, f->number, f->at, next, r->v.out.data, r->v.out.len);
    if (verdict == BR_SPLIT) {
        r->fresh->n_added += r->v.n_out - 1;
        int rc = br_splice_cut(&r->s, f->at, next);
        return rc ? rc : br_splice_insert(&r->s, next, r->v.out.data, r->v.out.len);
    }
    if (verdict != BR_DROP)
        return verdict;
    *ret_gone = true;
    r->fresh->n_dropped++;
    return br_splice_cut(&r->s, f->at, next);
}

/* Notes a field of a profile other than a sample. */
static int note_head(struct rewrite *r, const uint8_t *at, const uint8_t *next)
{
    size_t len = (size_t)(next - at);
    bool together = r->scratch && r->head == r->scratch->data;
    if (!together && (r->head_len == 0 || r->head + r->head_len == at)) {
        if (r->head_len == 0)
            r->head = at;
        r->head_len += len;
        return 0;
    }
    if (!r->scratch && !(r->scratch = br_buf_new(r->s.pool, r->head_len + len)))
        return BR_ENOMEM;
    if (!together)
        r->scratch->len = 0;
    int rc = together ? 0 : br_buf_append(&r->scratch, r->head, r->head_len, BR_BUF_MAX);
    if (!rc)
        rc = br_buf_append(&r->scratch, at, len, BR_BUF_MAX);
    r->head = r->scratch->data;
    r->head_len = r->scratch->len;
    return rc;
}

static int visit_profile(struct rewrite *r, uint32_t n_samples, bool *ret_gone)
{
    int verdict = ask(r, BR_LEVEL_PROFILE, r->head, r->head_len);
    if (verdict == BR_REPLACE)
        return replace_heads(&r->s, r->v.out.data, r->v.out.len);
    if (verdict != BR_DROP)
        return verdict;
    *ret_gone = true;
    r->fresh->n_dropped += n_samples;
    return 0;
}

static int walk(struct rewrite *r, unsigned level, const struct br_field *f, const uint8_t *next,
                bool *ret_gone);

static int visit_child(struct rewrite *r, unsigned level, const struct br_field *f,
                       const uint8_t *next, bool *ret_gone)
{
    if (level + 1 == r->n_levels)
        return wants(r, BR_LEVEL_ITEM) ? visit_item(r, f, next, ret_gone) : 0;
    if (level == SCOPE && !wants(r, BR_LEVEL_ITEM) && !wants(r, BR_LEVEL_PROFILE))
        return 0;
    return walk(r, level + 1, f, next, ret_gone);
}

/* What is not a child of the message at `level`. */
static int visit_head(struct rewrite *r, unsigned level, const struct br_field *f,
                      const uint8_t *next)
{
    if (level == SCOPE && wants(r, BR_LEVEL_SCOPE) && br_scan_tag(f) == BR_SCAN_LEN(OWN_SCOPE))
        return visit_scope(r, f, next);
    if (level == PROFILE && wants(r, BR_LEVEL_PROFILE))
        return note_head(r, f->at, next);
    return 0;
}

/* Walks the message at `level`, which is `message`; says whether it is gone. */
static int walk(struct rewrite *r, unsigned level, const struct br_field *message,
                const uint8_t *end, bool *ret_gone)
{
    uint32_t n = 0, n_gone = 0;
    int rc = br_splice_enter(&r->s, message, end);
    if (level == PROFILE) {
        r->head = NULL;
        r->head_len = 0;
    }
    for (const uint8_t *p = message->data; p < end && !rc;) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&f) != BR_SCAN_LEN(CHILD)) {
            rc = visit_head(r, level, &f, p);
            continue;
        }
        bool gone = false;
        rc = visit_child(r, level, &f, p, &gone);
        n++;
        n_gone += gone;
    }
    *ret_gone = n && n_gone == n;
    if (!rc && level == PROFILE && wants(r, BR_LEVEL_PROFILE)) {
        if (*ret_gone)
            r->index[BR_LEVEL_PROFILE]++;
        else
            rc = visit_profile(r, n - n_gone, ret_gone);
    }
    if (rc)
        return rc;
    return *ret_gone ? br_splice_leave_out(&r->s) : br_splice_leave(&r->s);
}

static int walk_part(struct rewrite *r, const struct br_part *part)
{
    struct br_field f;
    const uint8_t *end = part->raw + part->raw_len;
    if (br_field_next(part->raw, end, &f) != end || f.wire != BR_WIRE_LEN)
        return BR_EINVAL;
    br_splice_begin(&r->s, part->raw, part->raw_len);
    int rc = walk(r, RESOURCE, &f, end, &r->fresh->gone);
    if (!rc && r->fresh->n_dropped > part->n_items)
        rc = BR_EINVAL;
    if (!rc && !r->fresh->gone)
        rc = br_splice_take(&r->s, &r->fresh->buf);
    return rc;
}

static void commit(struct br_item *item, struct fresh *fresh)
{
    uint32_t n = item->n_parts;
    item->n_parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct br_part *part = &item->parts[i];
        if (fresh[i].buf || fresh[i].gone)
            item->spans = NULL;
        if (fresh[i].gone) {
            item->n_items -= part->n_items;
            item->size -= br_part_size(part);
            br_buf_unref(part->buf);
            br_buf_unref(part->new_resource_buf);
            continue;
        }
        part->n_items += fresh[i].n_added - fresh[i].n_dropped;
        item->n_items += fresh[i].n_added - fresh[i].n_dropped;
        if (fresh[i].buf)
            br_part_set_bytes(item, part, fresh[i].buf);
        item->parts[item->n_parts++] = *part;
    }
}

static void discard(struct fresh *fresh, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        br_buf_unref(fresh[i].buf);
}

int br_item_rewrite(struct br_item *item, unsigned levels, br_visit_fn *visit, void *arg)
{
    struct fresh *fresh = br_calloc(item->n_parts, sizeof *fresh);
    if (!fresh)
        return BR_ENOMEM;
    struct rewrite r = {.n_levels = item->signal == BR_TRACES ? PROFILE : DEPTH_MAX,
                        .levels = levels,
                        .visit = visit,
                        .arg = arg};
    int rc = 0;
    br_splice_init(&r.s, item->host->pool);
    for (uint32_t i = 0; i < item->n_parts && !rc; i++) {
        r.fresh = &fresh[i];
        r.v.part = i;
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = walk_part(&r, &item->parts[i]);
    }
    br_splice_release(&r.s);
    br_buf_unref(r.scratch);
    if (rc)
        discard(fresh, item->n_parts);
    else
        commit(item, fresh);
    br_free(fresh);
    return rc;
}

/* --- The dictionary ------------------------------------------------------------------------- */

struct entries {
    const struct br_dictionary_view *view;
    const struct br_entry *const *tables;
    const struct br_addition *more; /* NULL: none, or they have their place */
    uint32_t n[BR_TABLES];          /* met so far */
};

static int rewrite_dictionary_part(struct br_splice *s, struct entries *e,
                                   const struct br_part *part, bool last, struct br_buf **ret)
{
    struct br_field f;
    const uint8_t *p, *end = part->raw + part->raw_len;
    if (br_field_next(part->raw, end, &f) != end || f.wire != BR_WIRE_LEN)
        return 0; /* no walk has accepted it: it has no entries, as the view says */
    br_splice_begin(s, part->raw, part->raw_len);
    int rc = br_splice_enter(s, &f, end);
    for (p = f.data; p && p < end && !rc;) {
        p = br_scan(p, end, &f);
        if (!p || f.number > BR_TABLES || f.wire != BR_WIRE_LEN)
            continue;
        const struct br_entry *table = e->tables[f.number - 1];
        uint32_t i = e->n[f.number - 1]++;
        if (table && i < e->view->n[f.number - 1] && table[i].data)
            rc = br_splice_replace(s, f.number, f.at, p, table[i].data, table[i].len);
    }
    /* Where the last part is written anyway, the further entries go with it. */
    if (!rc && last && s->out && e->more) {
        rc = br_splice_insert(s, end, e->more->data, e->more->len);
        e->more = NULL;
    }
    if (!rc)
        rc = br_splice_leave(s);
    return rc ? rc : br_splice_take(s, ret);
}

static uint32_t last_dictionary(const struct br_item *item)
{
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < item->n_parts; i++)
        last = item->parts[i].kind == BR_PART_DICTIONARY ? i : last;
    return last;
}

/* Further entries as a part of their own: nothing has to be copied for them. */
static int add_extension(struct br_item *item, const struct br_addition *more)
{
    size_t len = br_len_size(BR_REQUEST_DICTIONARY, more->len);
    struct br_buf *buf = br_buf_new(item->host->pool, len);
    if (!buf)
        return BR_ENOMEM;
    buf->len =
        (uint32_t)(br_put_len(buf->data, BR_REQUEST_DICTIONARY, more->data, more->len) - buf->data);
    struct br_part part = {.kind = BR_PART_DICTIONARY,
                           .extension = true,
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
    struct br_splice s;
    struct entries e = {.view = view, .tables = entries, .more = more && more->len ? more : NULL};
    uint32_t n = item->n_parts, last = last_dictionary(item);
    int rc = 0;
    br_splice_init(&s, item->host->pool);
    for (uint32_t i = 0; i < n && !rc; i++) {
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            rc = rewrite_dictionary_part(&s, &e, &item->parts[i], i == last, &fresh[i].buf);
    }
    br_splice_release(&s);
    if (!rc && e.more)
        rc = add_extension(item, e.more);
    if (rc)
        discard(fresh, n);
    for (uint32_t i = 0; i < n && !rc; i++) {
        if (fresh[i].buf)
            br_part_set_bytes(item, &item->parts[i], fresh[i].buf);
    }
    br_free(fresh);
    return rc;
}
