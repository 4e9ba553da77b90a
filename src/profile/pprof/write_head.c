/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pprof/write_head.h"

#include "base/mem.h"
#include "base/str.h"
#include "otlp/dictionary/resolve.h"

#define COMMENT "pprof.profile.comment"

static struct br_entry entry(const char *text)
{
    return (struct br_entry){(const uint8_t *)text, (uint32_t)strlen(text)};
}

static bool same(struct br_entry a, struct br_entry b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* --- Profiles -------------------------------------------------------------------------------- */

static void read_value_type(const struct br_field *f, uint32_t *type, uint32_t *unit)
{
    const uint8_t *p = f->data, *end = p + f->value;
    struct br_field g;
    while (p < end && (p = br_scan(p, end, &g))) {
        if (g.number == BR_VALUE_TYPE_TYPE && g.wire == BR_WIRE_VARINT)
            *type = (uint32_t)g.value;
        else if (g.number == BR_VALUE_TYPE_UNIT && g.wire == BR_WIRE_VARINT)
            *unit = (uint32_t)g.value;
    }
}

static void read_attributes(struct pprof_profile *p, struct pprof_tables *t)
{
    struct pprof_indices x = {.p = p->body, .end = p->end};
    struct br_pair a;
    uint32_t i;
    while (!t->rc && pprof_index_next(&x, BR_PROFILE_ATTRIBUTES, &i)) {
        if (!pprof_pair(t, i, &a, NULL, NULL))
            continue;
        if (!br_text_is(a.key, BR_PROFILE_CUMULATIVE)) {
            t->labels[i].compared = true;
            continue;
        }
        p->cumulative = a.value.type == BR_VALUE_BOOL && a.value.number;
    }
}

/* The next attribute that the profiles of one pprof have in common. */
static bool next_attribute(struct pprof_indices *x, const struct pprof_tables *t, uint32_t *ret)
{
    while (pprof_index_next(x, BR_PROFILE_ATTRIBUTES, ret))
        if (*ret < t->view.n[BR_TABLE_ATTRIBUTE] && t->labels[*ret].compared)
            return true;
    return false;
}

bool pprof_profile_same_attributes(const struct pprof_profile *a, const struct pprof_profile *b,
                                   const struct pprof_tables *t)
{
    struct pprof_indices x = {.p = a->body, .end = a->end}, y = {.p = b->body, .end = b->end};
    uint32_t i, k;
    for (;;) {
        bool more = next_attribute(&x, t, &i), more_too = next_attribute(&y, t, &k);
        if (!more || !more_too)
            return more == more_too;
        if (i != k)
            return false;
    }
}

void pprof_profile_read(struct pprof_profile *p, struct pprof_tables *t, const uint8_t *body,
                        const uint8_t *end)
{
    const uint8_t *at = body;
    struct br_field f;
    *p = (struct pprof_profile){.body = body, .end = end};
    while (at < end && (at = br_scan(at, end, &f))) {
        switch (br_scan_tag(&f)) {
        case BR_SCAN_LEN(BR_PROFILE_SAMPLE_TYPE):
            read_value_type(&f, &p->type, &p->unit);
            break;
        case BR_SCAN_LEN(BR_PROFILE_SAMPLES):
            p->n_samples++;
            break;
        case BR_TAG(BR_PROFILE_TIME, BR_WIRE_I64):
            p->time_ns = f.value;
            break;
        case BR_SCAN_VARINT(BR_PROFILE_DURATION):
            p->duration_ns = f.value;
            break;
        case BR_SCAN_LEN(BR_PROFILE_PERIOD_TYPE):
            read_value_type(&f, &p->period_type, &p->period_unit);
            break;
        case BR_SCAN_VARINT(BR_PROFILE_PERIOD):
            p->period = (int64_t)f.value;
            break;
        default:
            break;
        }
    }
    read_attributes(p, t);
}

bool pprof_profile_is_cpu(const struct pprof_profile *p, const struct pprof_tables *t)
{
    return br_text_is(br_dictionary_string(&t->view, p->type), "cpu") &&
           br_text_is(br_dictionary_string(&t->view, p->unit), "nanoseconds");
}

/* --- The scope ------------------------------------------------------------------------------- */

/* Value k of the order is the place that Profile k had. Anything but a permutation is ignored. */
static void sort(const struct br_any *order, struct pprof_profile *profiles, uint32_t n)
{
    struct pprof_profile sorted[BR_PPROF_TYPES_MAX];
    const uint8_t *p = order->data, *end = p + order->len;
    struct br_any v;
    uint32_t k = 0, taken = 0;
    for (; (p = br_list_next(p, end, &v)); k++) {
        if (k >= n || v.type != BR_VALUE_INT || v.number >= n || taken >> v.number & 1)
            return;
        taken |= 1u << v.number;
        sorted[v.number] = profiles[k];
    }
    if (k == n && n)
        memcpy(profiles, sorted, n * sizeof *profiles);
}

void pprof_scope_read(struct pprof_scope *s, struct br_entry body, struct pprof_profile *profiles,
                      uint32_t n)
{
    const uint8_t *p = body.data, *end = body.len ? p + body.len : p;
    struct br_pair a;
    *s = (struct pprof_scope){.from_pyroscope = false};
    while ((p = br_pair_next(p, end, BR_SCOPE_ATTRIBUTES, &a))) {
        bool text = a.value.type == BR_VALUE_STRING;
        struct br_entry value = {a.value.data, (uint32_t)a.value.len};
        if (text && value.len && br_text_is(a.key, BR_SCOPE_PYROSCOPE_NAME)) {
            s->name = value;
            s->from_pyroscope = true;
        } else if (text && br_text_is(a.key, BR_SCOPE_PYROSCOPE_METRIC)) {
            s->metric = value;
        } else if (text && br_text_is(a.key, BR_SCOPE_DEFAULT_SAMPLE_TYPE)) {
            s->preferred = value;
        } else if (a.value.type == BR_VALUE_LIST && br_text_is(a.key, BR_SCOPE_SAMPLE_TYPE_ORDER)) {
            s->ordered = true;
            sort(&a.value, profiles, n);
        }
    }
}

/* --- Types ----------------------------------------------------------------------------------- */

/* A copy in letters that a profile type may have: "a:b:c:d:e" is taken apart at its colons, and
 * Pyroscope refuses '-'. */
static void clean(struct br_entry e, bool strict, char *out, size_t size)
{
    size_t n = e.len < size - 1 ? e.len : size - 1;
    n = n ? br_utf8_valid(e.data, n) : 0;
    for (size_t i = 0; i < n; i++) {
        char c = (char)e.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                      (c >= '0' && c <= '9') || c == '.';
        out[i] = letter || !strict ? c : '_';
    }
    out[n] = '\0';
}

/* Names that profilers have for what Pyroscope knows by another. */
static struct br_entry usual_type(struct br_entry type)
{
    return br_text_is(type, "itimer") ? entry("cpu") : type.len ? type : entry("samples");
}

static struct br_entry usual_unit(struct br_entry unit)
{
    return br_text_is(unit, "ns") ? entry("nanoseconds") : unit.len ? unit : entry("count");
}

static void make_type(struct pprof_head *h, const struct pprof_tables *t, uint32_t i)
{
    struct pprof_type *type = &h->types[i];
    const struct pprof_profile *p = &h->profile[i];
    *type = (struct pprof_type){.type = br_dictionary_string(&t->view, p->type),
                                .unit = br_dictionary_string(&t->view, p->unit)};
    if (h->scope->from_pyroscope) {
        clean(type->type, false, type->text, sizeof type->text);
        return;
    }
    clean(usual_type(type->type), true, type->text, sizeof type->text);
    clean(usual_unit(type->unit), true, type->clean_unit, sizeof type->clean_unit);
    type->type = entry(type->text);
    type->unit = entry(type->clean_unit);
}

/* What a profile without one was most likely taken by. */
static void guess_period(struct pprof_head *h)
{
    static const char *const known[][3] = {
        {"process_cpu", "cpu", "nanoseconds"}, {"wall", "wall", "nanoseconds"},
        {"memory", "space", "bytes"},          {"mutex", "contentions", "count"},
        {"block", "contentions", "count"},     {"goroutines", "goroutine", "count"}};
    for (size_t i = 0; i < BR_COUNT(known); i++) {
        if (strcmp(h->name, known[i][0]) != 0)
            continue;
        h->period_type = entry(known[i][1]);
        h->period_unit = entry(known[i][2]);
        return;
    }
    h->period_type = h->types[0].type;
    h->period_unit = h->types[0].unit;
}

static void make_name(struct pprof_head *h)
{
    const char *texts[BR_PPROF_TYPES_MAX];
    for (uint32_t i = 0; i < h->n_profiles; i++)
        texts[i] = h->types[i].text;
    /* Time spent waiting is no CPU time, though its name has it, and samples of the wall clock are none. */
    if (h->scope->metric.len)
        clean(h->scope->metric, true, h->name, sizeof h->name);
    else if (strcmp(texts[0], "off_cpu") == 0)
        (void)memcpy(h->name, "off_cpu", sizeof "off_cpu");
    else if (br_text_is(h->period_type, "wall"))
        (void)memcpy(h->name, "wall", sizeof "wall");
    else
        br_pyroscope_name(texts, h->n_profiles, NULL, 0, h->name, sizeof h->name);
    for (char *c = h->name; *c; c++)
        if (*c == '.')
            *c = '_';
    if (h->name[0] >= '0' && h->name[0] <= '9')
        h->name[0] = '_';
}

static bool is_cpu_time(struct br_entry type, struct br_entry unit)
{
    return br_text_is(type, "cpu") && br_text_is(unit, "nanoseconds");
}

/* "samples/count" of a profiler that samples the CPU by time. */
static bool counts_cpu(const struct pprof_head *h)
{
    return h->n_profiles == 1 && !h->scope->ordered && !h->scope->has_cpu && h->period > 0 &&
           br_text_is(h->types[0].type, "samples") && br_text_is(h->types[0].unit, "count") &&
           is_cpu_time(h->period_type, h->period_unit);
}

static void make_period(struct pprof_head *h, const struct pprof_tables *t)
{
    const struct pprof_profile *p = h->profile;
    h->period_type = br_dictionary_string(&t->view, p->period_type);
    h->period_unit = br_dictionary_string(&t->view, p->period_unit);
    if (h->scope->from_pyroscope)
        return;
    if (h->period_type.len || h->period_unit.len) {
        h->period_type = usual_type(h->period_type);
        h->period_unit = usual_unit(h->period_unit);
    }
    if (counts_cpu(h)) {
        h->types[0].times_period = true;
        (void)memcpy(h->types[0].text, "cpu", sizeof "cpu");
        h->types[0].type = h->period_type;
        h->types[0].unit = h->period_unit;
    }
}

void pprof_head_make(struct pprof_head *h, const struct pprof_tables *t,
                     const struct pprof_scope *scope, const struct pprof_profile *p, uint32_t n)
{
    h->profile = p;
    h->scope = scope;
    h->n_profiles = n;
    h->period = p->period;
    h->cumulative = false;
    for (uint32_t i = 0; i < n; i++) {
        make_type(h, t, i);
        h->cumulative = h->cumulative || p[i].cumulative;
    }
    make_period(h, t);
    if (scope->from_pyroscope) {
        clean(scope->name, false, h->name, sizeof h->name);
    } else {
        make_name(h);
        if (!h->period_type.len && !h->period_unit.len && !br_text_is(h->types[0].type, "off_cpu"))
            guess_period(h);
    }
    for (uint32_t i = 0; i < n; i++)
        h->types[i].is_period = h->period > 0 && !h->types[i].times_period &&
                                same(h->types[i].type, h->period_type) &&
                                same(h->types[i].unit, h->period_unit);
}

/* --- Writing --------------------------------------------------------------------------------- */

static void put_number(struct pprof_tables *t, uint32_t field, uint64_t value)
{
    uint8_t *o = value ? pprof_room(t, PPROF_HEAD, 1 + BR_VARINT_MAX) : NULL;
    if (!o)
        return;
    *o++ = (uint8_t)BR_TAG(field, BR_WIRE_VARINT);
    pprof_wrote(t, PPROF_HEAD, br_put_varint(o, value));
}

static void put_value_type(struct pprof_tables *t, uint32_t field, struct br_entry type,
                           struct br_entry unit)
{
    uint32_t id[2] = {pprof_text(t, type.data, type.len), pprof_text(t, unit.data, unit.len)};
    uint8_t *o = pprof_room(t, PPROF_HEAD, 2 + 2 * (1 + BR_VARINT_MAX));
    if (!o)
        return;
    *o = (uint8_t)BR_TAG(field, BR_WIRE_LEN);
    uint8_t *body = o + 2;
    o = body;
    for (uint32_t i = 0; i < 2; i++) {
        *o++ = (uint8_t)BR_TAG(BR_PPROF_VALUE_TYPE_TYPE + i, BR_WIRE_VARINT);
        o = br_put_varint(o, id[i]);
    }
    pprof_wrote(t, PPROF_HEAD, br_put_length_before(body, o));
}

/* The text of attribute `i`. */
static void put_text(struct pprof_tables *t, uint32_t field, uint32_t i, const struct br_any *v)
{
    if (v->type == BR_VALUE_STRING && v->len)
        put_number(t, field, pprof_attribute_text(t, i, v));
}

/* Attribute `i`, once however often the profile refers to it. */
static void put_comments(struct pprof_tables *t, uint32_t i, const struct br_any *v)
{
    struct pprof_mark *mark = &t->labels[i].text;
    if (mark->round == t->round)
        return;
    put_text(t, BR_PPROF_COMMENT, i, v);
    mark->round = t->round;
    const uint8_t *p = v->data, *end = p + v->len;
    struct br_any each;
    while (v->type == BR_VALUE_LIST && (p = br_list_next(p, end, &each)))
        if (each.type == BR_VALUE_STRING && each.len)
            put_number(t, BR_PPROF_COMMENT, pprof_text(t, each.data, each.len));
}

static void put_attributes(const struct pprof_head *h, struct pprof_tables *t)
{
    static const struct {
        const char *key;
        uint32_t field;
    } known[] = {{"pprof.profile.drop_frames", BR_PPROF_DROP_FRAMES},
                 {"pprof.profile.keep_frames", BR_PPROF_KEEP_FRAMES},
                 {"pprof.profile.doc_url", BR_PPROF_DOC_URL}};
    struct pprof_indices x = {.p = h->profile->body, .end = h->profile->end};
    struct br_pair a;
    uint32_t i;
    while (!t->rc && pprof_index_next(&x, BR_PROFILE_ATTRIBUTES, &i)) {
        if (!pprof_pair(t, i, &a, NULL, NULL))
            continue;
        for (size_t k = 0; k < BR_COUNT(known); k++)
            if (br_text_is(a.key, known[k].key))
                put_text(t, known[k].field, i, &a.value);
        if (a.key.len >= strlen(COMMENT) && memcmp(a.key.data, COMMENT, strlen(COMMENT)) == 0 &&
            (a.key.len == strlen(COMMENT) || a.key.data[strlen(COMMENT)] == '.'))
            put_comments(t, i, &a.value);
    }
}

/* The first section is the pprof's beginning, so what is there is there in the pprof. */
static void put_time(struct pprof_tables *t, uint64_t time_ns, struct br_pprof_out *out)
{
    out->written_ns = time_ns;
    out->time_at = (uint32_t)t->buffers[PPROF_HEAD].len + 1;
    put_number(t, BR_PPROF_TIME, time_ns);
}

void pprof_head_write(const struct pprof_head *h, struct pprof_tables *t, uint64_t later_ns,
                      struct br_pprof_out *out)
{
    const struct pprof_profile *p = h->profile;
    for (uint32_t i = 0; i < h->n_profiles; i++)
        put_value_type(t, BR_PPROF_SAMPLE_TYPE, h->types[i].type, h->types[i].unit);
    put_time(t, p->time_ns ? p->time_ns + later_ns : 0, out);
    put_number(t, BR_PPROF_DURATION, p->duration_ns);
    if (h->period_type.len || h->period_unit.len)
        put_value_type(t, BR_PPROF_PERIOD_TYPE, h->period_type, h->period_unit);
    put_number(t, BR_PPROF_PERIOD, (uint64_t)h->period);
    for (uint32_t i = 0; i < h->n_profiles; i++)
        if (h->scope->preferred.len && same(h->types[i].type, h->scope->preferred)) {
            put_number(t, BR_PPROF_DEFAULT_TYPE,
                       pprof_text(t, h->types[i].type.data, h->types[i].type.len));
            break;
        }
    put_attributes(h, t);
}
