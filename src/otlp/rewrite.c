/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both signals are trees of which field 2 is always the child (split.c says more). A walk goes down
 * the tree and keeps a frame for each message that it is in. Nothing is copied until something
 * changes: then the frames are opened in the output, outermost first, and what lies between the
 * changes is copied in runs. A frame that nothing changed in is part of a run itself.
 */
#include "otlp/rewrite.h"

#include "base/err.h"
#include "base/mem.h"
#include "otlp/scan.h"
#include "pipeline/host.h"

enum { RESOURCE, SCOPE, PROFILE, DEPTH_MAX };
#define CHILD 2
#define OWN_SCOPE 1

struct frame {
    const uint8_t *at, *data, *end; /* tag, body, and behind it */
    uint32_t field;
    uint32_t out_at;   /* where it begins in the output */
    uint32_t reserved; /* bytes for its length there */
    bool open;         /* in the output */
};

/* One part's new bytes. */
struct writer {
    struct br_pool *pool;
    struct br_buf *out;    /* NULL: nothing changed so far */
    const uint8_t *copied; /* the source is in the output up to here */
    struct frame frames[DEPTH_MAX];
    unsigned depth;
};

/* What a part will be when all went well. */
struct fresh {
    struct br_buf *buf; /* NULL: as it was */
    uint32_t n_dropped;
    bool gone;
};

struct rewrite {
    struct writer w;
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

/* --- Writing -------------------------------------------------------------------------------- */

static int put(struct writer *w, const void *data, size_t len)
{
    return br_buf_append(&w->out, data, len, BR_BUF_MAX);
}

static int copy_to(struct writer *w, const uint8_t *p)
{
    int rc = put(w, w->copied, (size_t)(p - w->copied));
    if (!rc)
        w->copied = p;
    return rc;
}

static int put_head(struct writer *w, uint32_t field, size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    return put(w, head, (size_t)(p - head));
}

static int open_frame(struct writer *w, struct frame *f)
{
    int rc = copy_to(w, f->at);
    if (rc)
        return rc;
    size_t len = (size_t)(f->end - f->data);
    f->out_at = w->out->len;
    f->reserved = (uint32_t)br_varint_size(len);
    rc = put_head(w, f->field, len);
    w->copied = f->data;
    f->open = !rc;
    return rc;
}

/* Begins the output, if that has not been done, and opens every frame that the walk is in. */
static int open_frames(struct writer *w)
{
    const struct frame *part = &w->frames[0];
    size_t len = (size_t)(part->end - part->at);
    if (!w->out) {
        w->out = br_buf_new(w->pool, len + len / 8);
        w->copied = part->at;
    }
    int rc = w->out ? 0 : BR_ENOMEM;
    for (unsigned i = 0; i < w->depth && !rc; i++) {
        if (!w->frames[i].open)
            rc = open_frame(w, &w->frames[i]);
    }
    return rc;
}

static void enter(struct writer *w, const struct br_field *f, const uint8_t *end)
{
    w->frames[w->depth++] =
        (struct frame){.at = f->at, .data = f->data, .end = end, .field = f->number};
}

/* Leaves the innermost frame; its length is known by now. */
static int leave(struct writer *w)
{
    struct frame *f = &w->frames[--w->depth];
    if (!f->open)
        return 0;
    int rc = copy_to(w, f->end);
    if (rc)
        return rc;
    uint32_t body = f->out_at + 1 + f->reserved;
    size_t len = w->out->len - body, size = br_varint_size(len);
    if (size > f->reserved && (rc = put(w, "0123456789", size - f->reserved)))
        return rc;
    uint8_t *p = w->out->data + f->out_at + 1;
    if (size != f->reserved)
        memmove(p + size, p + f->reserved, len);
    br_put_varint(p, len);
    w->out->len = (uint32_t)(f->out_at + 1 + size + len);
    return 0;
}

/* Leaves out what lies from `at` to `next`. */
static int cut(struct writer *w, const uint8_t *at, const uint8_t *next)
{
    int rc = open_frames(w);
    if (!rc)
        rc = copy_to(w, at);
    w->copied = next;
    return rc;
}

static int replace(struct writer *w, const struct br_field *f, const uint8_t *next,
                   const void *data, size_t len)
{
    int rc = cut(w, f->at, next);
    if (!rc)
        rc = put_head(w, f->number, len);
    return rc ? rc : put(w, data, len);
}

/* Leaves the innermost frame, and leaves it out. */
static int leave_out(struct writer *w)
{
    const struct frame *f = &w->frames[--w->depth];
    if (f->open)
        w->out->len = f->out_at;
    else if (w->depth)
        return cut(w, f->at, f->end);
    w->copied = f->end;
    return 0;
}

/* Takes everything but the children out of the innermost frame and puts `data` behind them. */
static int replace_heads(struct writer *w, const void *data, size_t len)
{
    int rc = open_frames(w);
    const struct frame *frame = &w->frames[w->depth - 1];
    if (!rc)
        rc = copy_to(w, frame->end);
    if (rc)
        return rc;
    uint8_t *to = w->out->data + frame->out_at + 1 + frame->reserved;
    const uint8_t *p = to, *end = w->out->data + w->out->len;
    while (p < end) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (br_scan_tag(&f) != BR_SCAN_LEN(CHILD))
            continue;
        memmove(to, f.at, (size_t)(p - f.at));
        to += p - f.at;
    }
    w->out->len = (uint32_t)(to - w->out->data);
    return put(w, data, len);
}

/* Gives memory back when little is left of a part, which may be held for long. */
static struct br_buf *writer_take(struct writer *w)
{
    struct br_buf *buf = w->out, *small = NULL;
    w->out = NULL;
    if (buf && buf->len < buf->cap / 2)
        small = br_buf_new(w->pool, buf->len);
    if (!small)
        return buf;
    br_put_bytes(small->data, buf->data, buf->len);
    small->len = buf->len;
    br_buf_unref(buf);
    return small;
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
        return replace(&r->w, f, next, r->v.out.data, r->v.out.len);
    return verdict == BR_DROP ? BR_EINVAL : verdict;
}

static int visit_item(struct rewrite *r, const struct br_field *f, const uint8_t *next,
                      bool *ret_gone)
{
    int verdict = ask(r, BR_LEVEL_ITEM, f->data, f->value);
    if (verdict == BR_REPLACE)
        return replace(&r->w, f, next, r->v.out.data, r->v.out.len);
    if (verdict != BR_DROP)
        return verdict;
    *ret_gone = true;
    r->fresh->n_dropped++;
    return cut(&r->w, f->at, next);
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
    if (!r->scratch && !(r->scratch = br_buf_new(r->w.pool, r->head_len + len)))
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
        return replace_heads(&r->w, r->v.out.data, r->v.out.len);
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
    int rc = 0;
    enter(&r->w, message, end);
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
    return *ret_gone ? leave_out(&r->w) : leave(&r->w);
}

static int walk_part(struct rewrite *r, const struct br_part *part)
{
    struct br_field f;
    const uint8_t *end = part->raw + part->raw_len;
    if (br_field_next(part->raw, end, &f) != end || f.wire != BR_WIRE_LEN)
        return BR_EINVAL;
    r->w.depth = 0;
    int rc = walk(r, RESOURCE, &f, end, &r->fresh->gone);
    if (!rc && r->fresh->n_dropped > part->n_items)
        rc = BR_EINVAL;
    if (!rc && !r->fresh->gone)
        r->fresh->buf = writer_take(&r->w);
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
        part->n_items -= fresh[i].n_dropped;
        item->n_items -= fresh[i].n_dropped;
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
    struct rewrite r = {.w.pool = item->host->pool,
                        .n_levels = item->signal == BR_TRACES ? PROFILE : DEPTH_MAX,
                        .levels = levels,
                        .visit = visit,
                        .arg = arg};
    int rc = 0;
    for (uint32_t i = 0; i < item->n_parts && !rc; i++) {
        r.fresh = &fresh[i];
        r.v.part = i;
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = walk_part(&r, &item->parts[i]);
        r.w.out = br_buf_unref(r.w.out);
    }
    br_buf_unref(r.scratch);
    if (rc)
        discard(fresh, item->n_parts);
    else
        commit(item, fresh);
    br_free(fresh);
    return rc == BR_EFULL ? BR_ENOMEM : rc;
}

/* --- The dictionary ------------------------------------------------------------------------- */

struct entries {
    const struct br_dictionary_view *view;
    const struct br_entry *const *tables;
    uint32_t n[BR_TABLES]; /* met so far */
};

static int rewrite_dictionary_part(struct writer *w, struct entries *e, const struct br_part *part)
{
    struct br_field f;
    const uint8_t *p, *end = part->raw + part->raw_len;
    if (br_field_next(part->raw, end, &f) != end || f.wire != BR_WIRE_LEN)
        return 0; /* no walk has accepted it: it has no entries, as the view says */
    w->depth = 0;
    enter(w, &f, end);
    int rc = 0;
    for (p = f.data; p && p < end && !rc;) {
        p = br_scan(p, end, &f);
        if (!p || f.number > BR_TABLES || f.wire != BR_WIRE_LEN)
            continue;
        const struct br_entry *table = e->tables[f.number - 1];
        uint32_t i = e->n[f.number - 1]++;
        if (table && i < e->view->n[f.number - 1] && table[i].data)
            rc = replace(w, &f, p, table[i].data, table[i].len);
    }
    return rc ? rc : leave(w);
}

/* Further entries are a part of their own: nothing has to be copied for them. */
static int add_extension(struct br_item *item, const struct br_addition *more)
{
    size_t len = br_len_size(2, more->len);
    struct br_buf *buf = br_buf_new(item->host->pool, len);
    if (!buf)
        return BR_ENOMEM;
    buf->len = (uint32_t)(br_put_len(buf->data, 2, more->data, more->len) - buf->data);
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
    struct writer w = {.pool = item->host->pool};
    struct entries e = {.view = view, .tables = entries};
    uint32_t n = item->n_parts;
    int rc = 0;
    for (uint32_t i = 0; i < n && !rc; i++) {
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            rc = rewrite_dictionary_part(&w, &e, &item->parts[i]);
        if (!rc)
            fresh[i].buf = writer_take(&w);
        w.out = br_buf_unref(w.out);
    }
    if (!rc && more && more->len)
        rc = add_extension(item, more);
    if (rc)
        discard(fresh, n);
    for (uint32_t i = 0; i < n && !rc; i++) {
        if (fresh[i].buf)
            br_part_set_bytes(item, &item->parts[i], fresh[i].buf);
    }
    br_free(fresh);
    return rc ? BR_ENOMEM : 0;
}
