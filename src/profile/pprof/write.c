/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pprof/write.h"

#include "base/mem.h"
#include "core/host.h"
#include "profile/pprof/write_head.h"

#define LATER_NS 1000000u /* between the pieces of one profile */

struct br_pprof_writer {
    struct br_host *host;
    struct pprof_tables tables;
    struct pprof_profile profiles[BR_PPROF_TYPES_MAX]; /* of the scope, the next ones */
    uint32_t n_profiles;
    struct pprof_piece *pieces; /* labels of the sample that is being written */
    uint32_t n_pieces, cap_pieces;
    struct pprof_scope scope;
    struct pprof_head head;
    struct br_pprof_out out;
    uint32_t n_samples; /* in the pprof under construction */
    uint32_t n_left_out, n_labels;
    uint32_t n_before; /* pprofs of the profile, handed out before */
    bool too_large;
    br_pprof_fn *fn;
    void *arg;
};

/* --- Samples --------------------------------------------------------------------------------- */

struct sample {
    const uint8_t *body, *end;
    struct pprof_indices attributes;
    uint64_t stack, link;
    int64_t value; /* sum */
    uint32_t n_values, n_times;
    uint32_t values_at; /* from `body`, where packed values are all that follows; else 0 */
};

/* Where a Profile's samples are being read. */
struct cursor {
    const uint8_t *p, *end;
};

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b < 0 ? INT64_MIN : INT64_MAX) : sum;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? ((a < 0) == (b < 0) ? INT64_MAX : INT64_MIN)
                                                  : product;
}

static void read_values(struct sample *s, const uint8_t *p, const uint8_t *end)
{
    uint64_t v;
    for (; p < end && (p = br_scan_varint(p, end, &v)); s->n_values++)
        s->value = add(s->value, (int64_t)v);
}

/* Mostly one packed field; several are looked for from the sample's first byte. */
static void read_attributes(struct sample *s, const struct br_field *f)
{
    struct pprof_indices *x = &s->attributes;
    if (f->wire == BR_WIRE_LEN && !x->packed && !x->p)
        *x = (struct pprof_indices){.packed = f->data, .packed_end = f->data + f->value};
    else
        *x = (struct pprof_indices){.p = s->body, .end = s->end};
}

static void read_rest(struct sample *s, const uint8_t *p)
{
    const uint8_t *end = s->end;
    struct br_field f;
    while (p && p < end && (p = br_scan(p, end, &f))) {
        switch (br_scan_tag(&f)) {
        case BR_SCAN_VARINT(BR_SAMPLE_STACK):
            s->stack = f.value;
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_ATTRIBUTES):
        case BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES):
            read_attributes(s, &f);
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_LINK):
            s->link = f.value;
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_VALUES):
            s->value = add(s->value, (int64_t)f.value);
            s->n_values++;
            break;
        case BR_SCAN_LEN(BR_SAMPLE_VALUES):
            read_values(s, f.data, f.data + f.value);
            break;
        case BR_SCAN_LEN(BR_SAMPLE_TIMES):
            s->n_times += (uint32_t)(f.value / 8);
            break;
        case BR_TAG(BR_SAMPLE_TIMES, BR_WIRE_I64):
            s->n_times++;
            break;
        default:
            break;
        }
    }
}

/* True when a field of this tag, of less than 128 bytes, is at `p`. */
static inline bool short_at(const uint8_t *p, const uint8_t *end, uint32_t tag)
{
    return end - p >= 2 && p[0] == tag && p[1] <= end - p - 2 && p[1] < 0x80;
}

/* Most have a few fields in the order of their numbers; whatever else there is comes after. */
static inline void read_sample(struct sample *s, const uint8_t *p, const uint8_t *end)
{
    *s = (struct sample){.body = p, .end = end};
    if (p < end && *p == BR_SCAN_VARINT(BR_SAMPLE_STACK))
        p = br_scan_varint(p + 1, end, &s->stack);
    if (p && short_at(p, end, BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES))) {
        s->attributes = (struct pprof_indices){.packed = p + 2, .packed_end = p + 2 + p[1]};
        p += 2 + p[1];
    }
    if (p && p < end && *p == BR_SCAN_VARINT(BR_SAMPLE_LINK))
        p = br_scan_varint(p + 1, end, &s->link);
    if (p && short_at(p, end, BR_SCAN_LEN(BR_SAMPLE_VALUES)) && p[1] == end - p - 2) {
        s->values_at = (uint32_t)(p - s->body);
        read_values(s, p + 2, end);
    } else {
        read_rest(s, p);
    }
}

/* The body of the next sample, between *ret and what is returned; NULL when there is none. */
static inline const uint8_t *next_body(struct cursor *c, const uint8_t **ret)
{
    struct br_field f;
    while (c->p && c->p < c->end && (c->p = br_scan(c->p, c->end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(BR_PROFILE_SAMPLES))
            continue;
        *ret = f.data;
        return f.data + f.value;
    }
    return NULL;
}

static bool next_sample(struct cursor *c, struct sample *ret)
{
    const uint8_t *body, *end = next_body(c, &body);
    if (end)
        read_sample(ret, body, end);
    return end != NULL;
}

static bool same_attributes(const struct sample *a, const struct sample *b)
{
    struct pprof_indices x = a->attributes, y = b->attributes;
    uint32_t i, k;
    size_t len = (size_t)(x.packed_end - x.packed);
    if (!x.p && !y.p && len == (size_t)(y.packed_end - y.packed) &&
        (len == 0 || memcmp(x.packed, y.packed, len) == 0))
        return true;
    for (;;) {
        bool more = pprof_index_next(&x, BR_SAMPLE_ATTRIBUTES, &i),
             more_too = pprof_index_next(&y, BR_SAMPLE_ATTRIBUTES, &k);
        if (!more || !more_too)
            return more == more_too;
        if (i != k)
            return false;
    }
}

/* --- Which Profiles were one ----------------------------------------------------------------- */

/* True when the next sample is the same as `s` but for its values. */
static bool next_is_same(struct cursor *c, const struct sample *s)
{
    const uint8_t *body, *end = next_body(c, &body);
    uint32_t at = s->values_at;
    struct sample o;
    if (!end)
        return false;
    if (at && at < end - body && memcmp(body, s->body, at) == 0 &&
        short_at(body + at, end, BR_SCAN_LEN(BR_SAMPLE_VALUES)) &&
        body[at + 1] == end - body - at - 2)
        return true;
    read_sample(&o, body, end);
    return s->stack == o.stack && s->link == o.link && same_attributes(s, &o);
}

static bool samples_line_up(const struct pprof_profile *a, const struct pprof_profile *b)
{
    struct cursor x = {a->body, a->end}, y = {b->body, b->end};
    struct sample s;
    while (next_sample(&x, &s))
        if (!next_is_same(&y, &s))
            return false;
    return true;
}

static bool was_one_with(const struct pprof_profile *first, const struct pprof_profile *p,
                         const struct pprof_tables *t)
{
    return p->n_samples == first->n_samples && p->time_ns == first->time_ns &&
           p->duration_ns == first->duration_ns && p->period == first->period &&
           p->period_type == first->period_type && p->period_unit == first->period_unit &&
           pprof_profile_same_attributes(first, p, t) && samples_line_up(first, p);
}

/* How many of the next Profiles were one pprof. */
static uint32_t group_len(const struct br_pprof_writer *w)
{
    const struct pprof_profile *p = w->profiles;
    uint32_t n = 1;
    for (; n < w->n_profiles && was_one_with(p, p + n, &w->tables); n++)
        for (uint32_t i = 0; i < n; i++)
            if (p[i].type == p[n].type && p[i].unit == p[n].unit)
                return n;
    return n;
}

/* --- One pprof ------------------------------------------------------------------------------- */

static struct br_buf *assemble(struct br_pprof_writer *w)
{
    struct pprof_tables *t = &w->tables;
    struct br_buf *buf = br_buf_new(w->host->pool, pprof_tables_size(t));
    if (!buf)
        return NULL;
    uint8_t *o = buf->data;
    for (int i = 0; i < PPROF_SECTIONS; i++)
        o = br_put_bytes(o, t->buffers[i].data, t->buffers[i].len);
    o = br_put_bytes(o, t->strings.bytes, t->strings.len);
    buf->len = (uint32_t)(o - buf->data);
    return buf;
}

static void begin(struct br_pprof_writer *w)
{
    pprof_tables_begin(&w->tables);
    pprof_head_write(&w->head, &w->tables, (uint64_t)w->n_before * LATER_NS, &w->out);
    w->n_samples = w->n_left_out = w->n_labels = 0;
    w->too_large = false;
}

bool br_pprof_set_time(const struct br_pprof_out *p, uint64_t time_ns)
{
    if (!p->written_ns || !time_ns || br_varint_size(time_ns) != br_varint_size(p->written_ns))
        return false;
    br_put_varint(p->buf->data + p->time_at, time_ns);
    return true;
}

static int hand_out(struct br_pprof_writer *w)
{
    struct br_pprof_out *out = &w->out;
    if (!pprof_work(&w->tables, pprof_tables_size(&w->tables)))
        return w->tables.rc;
    pprof_tables_finish(&w->tables);
    out->buf = assemble(w);
    if (!out->buf)
        return BR_ENOMEM;
    out->n_samples = w->n_samples;
    out->n_items = w->n_samples * w->head.n_profiles;
    out->n_left_out = w->n_left_out;
    out->n_labels = w->n_labels;
    out->too_large = w->too_large;
    w->n_before++;
    int rc = w->fn(out, w->arg);
    br_buf_unref(out->buf);
    out->buf = NULL;
    return rc;
}

/* The link is what holds: the join may have found a span that the label did not know. */
static bool contradicts(const struct pprof_link *link, const struct pprof_label *label)
{
    if (!link)
        return false;
    if (label->role == PPROF_SPAN_ID)
        return link->span_id && memcmp(label->id, link->span_id, 8) != 0;
    if (label->role == PPROF_TRACE_ID)
        return link->trace_id && memcmp(label->id, link->trace_id, 16) != 0;
    return false;
}

static size_t add_piece(struct br_pprof_writer *w, const struct pprof_piece *piece)
{
    int rc = w->n_pieces < w->cap_pieces
                 ? 0
                 : br_grow(&w->pieces, &w->cap_pieces, (size_t)w->n_pieces + 1, sizeof *w->pieces,
                           BR_PPROF_LABELS_MAX);
    if (rc) {
        w->tables.rc = w->tables.rc ? w->tables.rc : rc;
        return 0;
    }
    w->pieces[w->n_pieces++] = *piece;
    return piece->len;
}

/* Collects the fields of a sample's labels; returns their size. */
static size_t collect_labels(struct br_pprof_writer *w, const struct sample *s)
{
    struct pprof_tables *t = &w->tables;
    struct pprof_indices x = s->attributes;
    const struct pprof_link *link = s->link ? pprof_link(t, s->link) : NULL;
    bool span = link && link->span_id, trace = link && link->trace_id;
    size_t len = 0;
    uint32_t i, n_labels = 0;
    w->n_pieces = 0;
    while (!t->rc && pprof_index_next(&x, BR_SAMPLE_ATTRIBUTES, &i)) {
        const struct pprof_label *label = pprof_label(t, i);
        if (label->wanted < 0 && !t->all_labels)
            w->n_left_out++;
        if (!label->piece.len || contradicts(link, label))
            continue;
        len += add_piece(w, &label->piece);
        n_labels += label->makes_series;
        span = span && label->role != PPROF_SPAN_ID;
        trace = trace && label->role != PPROF_TRACE_ID;
    }
    if (n_labels > w->n_labels)
        w->n_labels = n_labels;
    if (span)
        len += add_piece(w, &link->span);
    if (trace)
        len += add_piece(w, &link->trace);
    return len;
}

static uint8_t *put_piece(const struct pprof_tables *t, const struct pprof_piece *piece, uint8_t *o)
{
    return br_put_bytes(o, t->buffers[PPROF_CACHE].data + piece->at, piece->len);
}

/* One of pprof's samples, of a sample of each type. */
static void put_sample(struct br_pprof_writer *w, const struct sample *s, const int64_t *values)
{
    struct pprof_tables *t = &w->tables;
    uint8_t packed[BR_PPROF_TYPES_MAX * BR_VARINT_MAX], *v = packed;
    for (uint32_t i = 0; i < w->head.n_profiles; i++)
        v = br_put_varint(v, (uint64_t)values[i]);
    size_t values_len = (size_t)(v - packed);
    const struct pprof_piece *stack = pprof_stack(t, s->stack);
    size_t len =
        stack->len + br_len_size(BR_PPROF_SAMPLE_VALUES, values_len) + collect_labels(w, s);
    uint8_t *o = pprof_room(t, PPROF_SAMPLES, br_len_size(BR_PPROF_SAMPLE, len));
    if (!o)
        return;
    *o++ = (uint8_t)BR_TAG(BR_PPROF_SAMPLE, BR_WIRE_LEN);
    o = br_put_varint(o, len);
    o = put_piece(t, stack, o);
    o = br_put_len(o, BR_PPROF_SAMPLE_VALUES, packed, values_len);
    for (uint32_t i = 0; i < w->n_pieces; i++)
        o = put_piece(t, &w->pieces[i], o);
    pprof_wrote(t, PPROF_SAMPLES, o);
}

static int64_t value_of(const struct pprof_head *h, uint32_t i, const struct sample *s)
{
    const struct pprof_type *type = &h->types[i];
    int64_t value = s->n_values ? s->value : (int64_t)s->n_times;
    if (type->times_period || (!s->n_values && type->is_period))
        value = times(value, h->period);
    return value;
}

/* Puts one more sample into the pprof, or, where it does not fit, into a new one. */
static int add_sample(struct br_pprof_writer *w, const struct sample *s, const int64_t *values)
{
    const struct br_pprof_options *options = w->tables.options;
    size_t max = options->max_bytes ? options->max_bytes : BR_BUF_MAX / 2;
    struct pprof_state before;
    uint32_t n_left_out = w->n_left_out;
    pprof_tables_state(&w->tables, &before);
    bool full = options->max_samples && w->n_samples >= options->max_samples;
    if (!full)
        put_sample(w, s, values);
    bool over = !full && pprof_tables_size(&w->tables) > max;
    if (full || (over && w->n_samples > 0)) {
        pprof_tables_restore(&w->tables, &before);
        w->n_left_out = n_left_out;
        int rc = hand_out(w);
        if (rc)
            return rc;
        begin(w);
        put_sample(w, s, values);
        over = pprof_tables_size(&w->tables) > max;
    }
    w->n_samples++;
    w->too_large = over;
    return w->tables.rc;
}

static int write_samples(struct br_pprof_writer *w, const struct pprof_profile *p, uint32_t n)
{
    struct cursor cursors[BR_PPROF_TYPES_MAX];
    struct sample first, other;
    int64_t values[BR_PPROF_TYPES_MAX];
    for (uint32_t i = 0; i < n; i++)
        cursors[i] = (struct cursor){p[i].body, p[i].end};
    while (next_sample(&cursors[0], &first)) {
        values[0] = value_of(&w->head, 0, &first);
        for (uint32_t i = 1; i < n && next_sample(&cursors[i], &other); i++)
            values[i] = value_of(&w->head, i, &other);
        int rc = add_sample(w, &first, values);
        if (rc)
            return rc;
    }
    return 0;
}

static int write_group(struct br_pprof_writer *w, uint32_t n)
{
    struct br_pprof_out *out = &w->out;
    const struct pprof_profile *p = w->profiles;
    if (p->n_samples == 0)
        return 0;
    pprof_head_make(&w->head, &w->tables, &w->scope, p, n);
    out->name = w->head.name;
    out->n_types = n;
    for (uint32_t i = 0; i < n; i++)
        out->types[i] = w->head.types[i].text;
    out->cumulative = w->head.cumulative;
    w->n_before = 0;
    begin(w);
    int rc = write_samples(w, p, n);
    return rc ? rc : hand_out(w);
}

/* --- The way down ---------------------------------------------------------------------------- */

/* The next Profile of a scope, between *ret and what is returned; NULL when there is none. */
static const uint8_t *next_profile(struct cursor *c, const uint8_t **ret)
{
    struct br_field f;
    while (c->p && c->p < c->end && (c->p = br_field_next(c->p, c->end, &f))) {
        if (f.number != BR_SCOPES_ITEMS || f.wire != BR_WIRE_LEN)
            continue;
        *ret = f.data;
        return f.data + f.value;
    }
    return NULL;
}

/* As many as there are and have room. */
static void fill(struct br_pprof_writer *w, struct cursor *c)
{
    const uint8_t *body, *end;
    while (w->n_profiles < BR_PPROF_TYPES_MAX && (end = next_profile(c, &body)))
        pprof_profile_read(&w->profiles[w->n_profiles++], &w->tables, body, end);
}

/* Also of those that have no room yet. */
static bool any_is_cpu(struct br_pprof_writer *w, struct cursor rest)
{
    struct pprof_profile p;
    const uint8_t *body, *end;
    for (uint32_t i = 0; i < w->n_profiles; i++)
        if (pprof_profile_is_cpu(&w->profiles[i], &w->tables))
            return true;
    while (!w->tables.rc && (end = next_profile(&rest, &body))) {
        pprof_profile_read(&p, &w->tables, body, end);
        if (pprof_profile_is_cpu(&p, &w->tables))
            return true;
    }
    return false;
}

static struct br_entry scope_of(const uint8_t *p, const uint8_t *end)
{
    struct br_entry scope = {NULL, 0};
    struct br_field f;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number == BR_SCOPES_SCOPE && f.wire == BR_WIRE_LEN)
            scope = (struct br_entry){f.data, (uint32_t)f.value};
    return scope;
}

static int write_scope(struct br_pprof_writer *w, const uint8_t *body, const uint8_t *end)
{
    struct cursor c = {body, end};
    struct br_entry scope = scope_of(body, end);
    w->n_profiles = 0;
    fill(w, &c);
    struct cursor rest = c;
    bool whole = !next_profile(&rest, &body);
    pprof_scope_read(&w->scope, scope, w->profiles, whole ? w->n_profiles : 0);
    w->scope.has_cpu = any_is_cpu(w, c);
    w->tables.all_labels = w->scope.from_pyroscope && !w->tables.options->asks_clients;
    w->out.scope = scope;
    w->out.from_pyroscope = w->scope.from_pyroscope;
    while (w->n_profiles && !w->tables.rc) {
        w->out.time_ns = w->profiles[0].time_ns;
        uint32_t n = group_len(w);
        int rc = write_group(w, n);
        if (rc)
            return rc;
        w->n_profiles -= n;
        memmove(w->profiles, w->profiles + n, w->n_profiles * sizeof *w->profiles);
        fill(w, &c);
    }
    return w->tables.rc;
}

static int write_part(struct br_pprof_writer *w, const struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f;
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    w->out.resource = (struct br_entry){resource, (uint32_t)len};
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != BR_RESOURCES_SCOPES || f.wire != BR_WIRE_LEN)
            continue;
        int rc = w->tables.rc ? w->tables.rc : write_scope(w, f.data, f.data + f.value);
        if (rc)
            return rc;
    }
    return 0;
}

int br_pprof_write(struct br_pprof_writer *w, const struct br_item *item,
                   const struct br_pprof_options *options, br_pprof_fn *fn, void *arg)
{
    static const struct br_pprof_options none;
    int rc = pprof_tables_load(&w->tables, item, options ? options : &none);
    if (rc)
        return rc;
    w->fn = fn;
    w->arg = arg;
    w->out = (struct br_pprof_out){.buf = NULL};
    for (uint32_t i = 0; i < item->n_parts && !rc; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = write_part(w, &item->parts[i]);
    pprof_tables_unload(&w->tables);
    return rc == BR_EFULL ? BR_ETOOBIG : rc;
}

struct br_pprof_writer *br_pprof_writer_new(struct br_host *host)
{
    struct br_pprof_writer *w = br_calloc(1, sizeof *w);
    if (w)
        w->host = host;
    return w;
}

void br_pprof_writer_free(struct br_pprof_writer *w)
{
    if (!w)
        return;
    pprof_tables_release(&w->tables);
    br_free(w->pieces);
    br_free(w);
}
