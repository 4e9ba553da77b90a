/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pprof_write.h"

#include "base/mem.h"
#include "pipeline/host.h"
#include "profile/pprof_write_head.h"

#define LATER_NS 1000000u /* between the pieces of one profile */
#define PROFILES_MAX (1u << 20)

struct br_pprof_writer {
    struct br_host *host;
    struct pprof_tables tables;
    struct pprof_profile *profiles; /* of the scope that is being read */
    uint32_t n_profiles, cap_profiles;
    struct pprof_scope scope;
    struct pprof_head head;
    struct br_pprof_out out;
    uint32_t n_samples; /* in the pprof under construction */
    uint32_t n_left_out;
    uint32_t n_pieces; /* of the profile, handed out before */
    bool too_large;
    br_pprof_fn *fn;
    void *arg;
};

/* --- Samples --------------------------------------------------------------------------------- */

struct sample {
    const uint8_t *body, *end;
    uint64_t stack, link;
    int64_t value; /* sum */
    uint32_t n_values, n_times;
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

static void read_sample(struct sample *s, const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    *s = (struct sample){.body = p, .end = end};
    while (p < end && (p = br_scan(p, end, &f))) {
        switch (br_scan_tag(&f)) {
        case BR_SCAN_VARINT(1):
            s->stack = f.value;
            break;
        case BR_SCAN_VARINT(3):
            s->link = f.value;
            break;
        case BR_SCAN_VARINT(4):
            s->value = add(s->value, (int64_t)f.value);
            s->n_values++;
            break;
        case BR_SCAN_LEN(4):
            read_values(s, f.data, f.data + f.value);
            break;
        case BR_SCAN_LEN(5):
            s->n_times += (uint32_t)(f.value / 8);
            break;
        case BR_TAG(5, BR_WIRE_I64):
            s->n_times++;
            break;
        default:
            break;
        }
    }
}

static bool next_sample(struct cursor *c, struct sample *ret)
{
    struct br_field f;
    while (c->p && c->p < c->end && (c->p = br_scan(c->p, c->end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(2))
            continue;
        read_sample(ret, f.data, f.data + f.value);
        return true;
    }
    return false;
}

static bool same_attributes(const struct sample *a, const struct sample *b)
{
    struct pprof_indices x = {.p = a->body, .end = a->end}, y = {.p = b->body, .end = b->end};
    uint32_t i, k;
    for (;;) {
        bool more = pprof_index_next(&x, 2, &i), more_too = pprof_index_next(&y, 2, &k);
        if (!more || !more_too)
            return more == more_too;
        if (i != k)
            return false;
    }
}

/* --- Which Profiles were one ----------------------------------------------------------------- */

static bool samples_line_up(const struct pprof_profile *a, const struct pprof_profile *b)
{
    struct cursor x = {a->body, a->end}, y = {b->body, b->end};
    struct sample s, o;
    while (next_sample(&x, &s)) {
        if (!next_sample(&y, &o) || s.stack != o.stack || s.link != o.link ||
            !same_attributes(&s, &o))
            return false;
    }
    return true;
}

static bool was_one_with(const struct pprof_profile *first, const struct pprof_profile *p)
{
    return p->n_samples == first->n_samples && p->time_ns == first->time_ns &&
           p->duration_ns == first->duration_ns && p->period == first->period &&
           p->period_type == first->period_type && p->period_unit == first->period_unit &&
           p->attributes == first->attributes && samples_line_up(first, p);
}

/* How many Profiles from `first` on were one pprof. */
static uint32_t group_len(const struct br_pprof_writer *w, uint32_t first)
{
    const struct pprof_profile *p = &w->profiles[first];
    uint32_t n = 1, most = w->n_profiles - first;
    for (; n < most && n < BR_PPROF_TYPES_MAX && was_one_with(p, p + n); n++)
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
    buf->len = (uint32_t)(o - buf->data);
    return buf;
}

static void begin(struct br_pprof_writer *w)
{
    pprof_tables_begin(&w->tables);
    pprof_head_write(&w->head, &w->tables, (uint64_t)w->n_pieces * LATER_NS);
    w->n_samples = w->n_left_out = 0;
    w->too_large = false;
}

static int hand_out(struct br_pprof_writer *w)
{
    struct br_pprof_out *out = &w->out;
    if (w->tables.rc)
        return w->tables.rc;
    out->buf = assemble(w);
    if (!out->buf)
        return BR_ENOMEM;
    out->n_samples = w->n_samples;
    out->n_items = w->n_samples * w->head.n_profiles;
    out->n_left_out = w->n_left_out;
    out->too_large = w->too_large;
    w->n_pieces++;
    int rc = w->fn(out, w->arg);
    br_buf_unref(out->buf);
    out->buf = NULL;
    return rc;
}

/* Label fields of one sample; see labels_of. */
struct labels {
    const struct pprof_link *link;
    bool span, trace; /* the link's labels are to be written */
    size_t len;
};

/* The link is what holds: the join may have found a span that the label did not know. */
static bool contradicts(const struct labels *l, const struct pprof_label *label)
{
    if (!l->link)
        return false;
    if (label->role == PPROF_SPAN_ID)
        return l->link->span_id && memcmp(label->id, l->link->span_id, 8) != 0;
    if (label->role == PPROF_TRACE_ID)
        return l->link->trace_id && memcmp(label->id, l->link->trace_id, 16) != 0;
    return false;
}

static void labels_of(struct br_pprof_writer *w, const struct sample *s, struct labels *ret)
{
    struct pprof_tables *t = &w->tables;
    struct pprof_indices x = {.p = s->body, .end = s->end};
    uint32_t i;
    struct labels l = {.link = s->link ? pprof_link(t, (uint32_t)s->link) : NULL};
    l.span = l.link && l.link->span_id;
    l.trace = l.link && l.link->trace_id;
    while (pprof_index_next(&x, 2, &i)) {
        const struct pprof_label *label = pprof_label(t, i);
        if (label->wanted < 0 && !t->all_labels)
            w->n_left_out++;
        if (!label->piece.len || contradicts(&l, label))
            continue;
        l.len += label->piece.len;
        l.span = l.span && label->role != PPROF_SPAN_ID;
        l.trace = l.trace && label->role != PPROF_TRACE_ID;
    }
    if (l.span)
        l.len += l.link->span.len;
    if (l.trace)
        l.len += l.link->trace.len;
    *ret = l;
}

static uint8_t *put_labels(struct br_pprof_writer *w, const struct sample *s,
                           const struct labels *l, uint8_t *o)
{
    struct pprof_tables *t = &w->tables;
    struct pprof_indices x = {.p = s->body, .end = s->end};
    const uint8_t *cache = t->buffers[PPROF_CACHE].data;
    uint32_t i;
    while (pprof_index_next(&x, 2, &i)) {
        const struct pprof_label *label = pprof_label(t, i);
        if (label->piece.len && !contradicts(l, label))
            o = br_put_bytes(o, cache + label->piece.at, label->piece.len);
    }
    if (l->span)
        o = br_put_bytes(o, cache + l->link->span.at, l->link->span.len);
    if (l->trace)
        o = br_put_bytes(o, cache + l->link->trace.at, l->link->trace.len);
    return o;
}

/* One of pprof's samples, of a sample of each type. */
static void put_sample(struct br_pprof_writer *w, const struct sample *s, const int64_t *values)
{
    struct pprof_tables *t = &w->tables;
    uint8_t packed[BR_PPROF_TYPES_MAX * BR_VARINT_MAX], *v = packed;
    uint32_t stack_index = s->stack > UINT32_MAX ? 0 : (uint32_t)s->stack;
    struct labels labels;
    for (uint32_t i = 0; i < w->head.n_profiles; i++)
        v = br_put_varint(v, (uint64_t)values[i]);
    size_t values_len = (size_t)(v - packed);
    const struct pprof_piece *stack = pprof_stack(t, stack_index);
    labels_of(w, s, &labels);
    size_t len = stack->len + br_len_size(2, values_len) + labels.len;
    uint8_t *o = pprof_room(t, PPROF_SAMPLES, br_len_size(2, len));
    if (!o)
        return;
    *o++ = (uint8_t)BR_TAG(2, BR_WIRE_LEN);
    o = br_put_varint(o, len);
    if (stack->len)
        o = br_put_bytes(o, t->buffers[PPROF_CACHE].data + stack->at, stack->len);
    o = br_put_len(o, 2, packed, values_len);
    if (labels.len)
        o = put_labels(w, s, &labels, o);
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

static int write_group(struct br_pprof_writer *w, uint32_t first, uint32_t n)
{
    struct br_pprof_out *out = &w->out;
    const struct pprof_profile *p = &w->profiles[first];
    if (p->n_samples == 0)
        return 0;
    pprof_head_make(&w->head, &w->tables, &w->scope, p, n);
    out->name = w->head.name;
    out->n_types = n;
    for (uint32_t i = 0; i < n; i++)
        out->types[i] = w->head.types[i].text;
    out->cumulative = w->head.cumulative;
    w->n_pieces = 0;
    begin(w);
    int rc = write_samples(w, p, n);
    return rc ? rc : hand_out(w);
}

/* --- The way down ---------------------------------------------------------------------------- */

static int write_scope(struct br_pprof_writer *w, const uint8_t *body, const uint8_t *end)
{
    const uint8_t *p = body;
    struct br_field f;
    struct br_entry scope = {NULL, 0};
    w->n_profiles = 0;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.wire != BR_WIRE_LEN)
            continue;
        if (f.number == 1)
            scope = (struct br_entry){f.data, (uint32_t)f.value};
        if (f.number != 2)
            continue;
        int rc = br_grow(&w->profiles, &w->cap_profiles, (size_t)w->n_profiles + 1,
                         sizeof *w->profiles, PROFILES_MAX);
        if (rc)
            return rc == BR_EFULL ? BR_ETOOBIG : rc;
        pprof_profile_read(&w->profiles[w->n_profiles++], &w->tables, f.data, f.data + f.value);
    }
    pprof_scope_read(&w->scope, &w->tables, scope, w->profiles, w->n_profiles);
    w->tables.all_labels = w->scope.from_pyroscope;
    w->out.scope = scope;
    w->out.from_pyroscope = w->scope.from_pyroscope;
    for (uint32_t i = 0, n; i < w->n_profiles; i += n) {
        w->out.time_ns = w->profiles[i].time_ns;
        n = group_len(w, i);
        int rc = write_group(w, i, n);
        if (rc)
            return rc;
    }
    return 0;
}

static int write_part(struct br_pprof_writer *w, const struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f;
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    w->out.resource = (struct br_entry){resource, (uint32_t)len};
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 2 || f.wire != BR_WIRE_LEN)
            continue;
        int rc = write_scope(w, f.data, f.data + f.value);
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
    br_free(w->profiles);
    br_free(w);
}
