/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pprof/write.h"
#include "base/bytes.h"
#include "base/sum.h"

#include "base/mem.h"
#include "core/host.h"
#include "profile/pprof/write_internal.h"

/* nanoseconds added to the time of each further pprof if a profile is divided into several
 * pprofs */
#define LATER_NS 1000000u

struct br_pprof_writer {
    struct br_host *host;
    struct br_pprof_tables tables;
    /* the Profiles of the scope that are written next */
    struct br_pprof_profile profiles[BR_PPROF_TYPES_MAX];
    uint32_t n_profiles;
    struct br_pprof_piece *pieces; /* labels of the current sample */
    uint32_t n_pieces, cap_pieces;
    struct br_pprof_scope scope;
    struct br_pprof_head head;
    struct br_pprof_out out;
    uint32_t n_samples; /* number of samples in the current pprof */
    uint32_t n_left_out, n_labels;
    uint32_t n_before; /* number of pprofs that have already been written from the same Profiles */
    bool too_large;
    br_pprof_fn *fn;
    /* called instead of `fn` if groups are requested; NULL: pprofs are requested */
    br_pprof_group_fn *group_fn;
    void *arg;
};

/* --- Samples --------------------------------------------------------------------------------- */

struct sample {
    const uint8_t *body, *end;
    struct br_pprof_indices attributes;
    uint64_t stack, link;
    int64_t value; /* sum of the sample's values */
    uint32_t n_values, n_times;
    /* offset of the values in `body` if they are packed and in the last field; otherwise 0 */
    uint32_t values_at;
};

/* Position in the samples of a Profile. */
struct cursor {
    const uint8_t *p, *end;
};

static void pprof_write_read_values(struct sample *sample, const uint8_t *p, const uint8_t *end)
{
    uint64_t v;
    for (; p < end && (p = br_scan_varint(p, end, &v)); sample->n_values++)
        sample->value = br_sum(sample->value, (int64_t)v);
}

/* Usually the attributes are one packed field. A sample with several fields of attributes is
 * searched from its start. */
static void pprof_write_read_attributes(struct sample *sample, const struct br_field *field)
{
    struct br_pprof_indices *indices = &sample->attributes;
    if (field->wire == BR_WIRE_LEN && !indices->packed && !indices->p)
        *indices = (struct br_pprof_indices){.packed = field->data,
                                             .packed_end = field->data + field->value};
    else
        *indices = (struct br_pprof_indices){.p = sample->body, .end = sample->end};
}

static void pprof_write_read_other_fields(struct sample *sample, const uint8_t *p)
{
    const uint8_t *end = sample->end;
    struct br_field field;
    while (p && p < end && (p = br_scan(p, end, &field))) {
        switch (br_scan_tag(&field)) {
        case BR_SCAN_VARINT(BR_SAMPLE_STACK):
            sample->stack = field.value;
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_ATTRIBUTES):
        case BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES):
            pprof_write_read_attributes(sample, &field);
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_LINK):
            sample->link = field.value;
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_VALUES):
            sample->value = br_sum(sample->value, (int64_t)field.value);
            sample->n_values++;
            break;
        case BR_SCAN_LEN(BR_SAMPLE_VALUES):
            pprof_write_read_values(sample, field.data, field.data + field.value);
            break;
        case BR_SCAN_LEN(BR_SAMPLE_TIMES):
            sample->n_times += (uint32_t)(field.value / 8);
            break;
        case BR_TAG(BR_SAMPLE_TIMES, BR_WIRE_I64):
            sample->n_times++;
            break;
        default:
            break;
        }
    }
}

/* Returns true if a field with the tag `tag` and less than 128 bytes is at `p`. */
static inline bool pprof_write_short_at(const uint8_t *p, const uint8_t *end, uint32_t tag)
{
    return end - p >= 2 && p[0] == tag && p[1] <= end - p - 2 && p[1] < 0x80;
}

/* Reads a sample. The fast path handles the usual few fields in the order of their numbers; the
 * other fields are left to pprof_write_read_other_fields. */
static inline void pprof_write_read_sample(struct sample *sample, const uint8_t *p,
                                           const uint8_t *end)
{
    *sample = (struct sample){.body = p, .end = end};
    if (p < end && *p == BR_SCAN_VARINT(BR_SAMPLE_STACK))
        p = br_scan_varint(p + 1, end, &sample->stack);
    if (p && pprof_write_short_at(p, end, BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES))) {
        sample->attributes = (struct br_pprof_indices){.packed = p + 2, .packed_end = p + 2 + p[1]};
        p += 2 + p[1];
    }
    if (p && p < end && *p == BR_SCAN_VARINT(BR_SAMPLE_LINK))
        p = br_scan_varint(p + 1, end, &sample->link);
    if (p && pprof_write_short_at(p, end, BR_SCAN_LEN(BR_SAMPLE_VALUES)) && p[1] == end - p - 2) {
        sample->values_at = (uint32_t)(p - sample->body);
        pprof_write_read_values(sample, p + 2, end);
    } else {
        pprof_write_read_other_fields(sample, p);
    }
}

/* Finds the body of the next sample. Returns the end of the body and sets `*ret` to its start.
 * Returns NULL if no sample follows. */
static inline const uint8_t *pprof_write_next_body(struct cursor *cursor, const uint8_t **ret)
{
    struct br_field field;
    while (cursor->p && cursor->p < cursor->end &&
           (cursor->p = br_scan(cursor->p, cursor->end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_PROFILE_SAMPLES))
            continue;
        *ret = field.data;
        return field.data + field.value;
    }
    return NULL;
}

static bool pprof_write_next_sample(struct cursor *cursor, struct sample *ret)
{
    const uint8_t *body, *end = pprof_write_next_body(cursor, &body);
    if (end)
        pprof_write_read_sample(ret, body, end);
    return end != NULL;
}

static bool pprof_write_same_attributes(const struct sample *sample, const struct sample *other)
{
    struct br_pprof_indices indices = sample->attributes, others = other->attributes;
    uint32_t index, other_index;
    size_t len = (size_t)(indices.packed_end - indices.packed);
    if (!indices.p && !others.p &&
        br_bytes_equal(indices.packed, len, others.packed,
                       (size_t)(others.packed_end - others.packed)))
        return true;
    for (;;) {
        bool more = br_pprof_index_next(&indices, BR_SAMPLE_ATTRIBUTES, &index),
             other_more = br_pprof_index_next(&others, BR_SAMPLE_ATTRIBUTES, &other_index);
        if (!more || !other_more)
            return more == other_more;
        if (index != other_index)
            return false;
    }
}

/* --- Grouping of Profiles --------------------------------------------------------------------- */

/* Returns true if the next sample differs from `sample` only in its values. */
static bool pprof_write_next_is_same(struct cursor *cursor, const struct sample *sample)
{
    const uint8_t *body, *end = pprof_write_next_body(cursor, &body);
    uint32_t at = sample->values_at;
    struct sample next;
    if (!end)
        return false;
    if (at && at < end - body && memcmp(body, sample->body, at) == 0 &&
        pprof_write_short_at(body + at, end, BR_SCAN_LEN(BR_SAMPLE_VALUES)) &&
        body[at + 1] == end - body - at - 2)
        return true;
    pprof_write_read_sample(&next, body, end);
    return sample->stack == next.stack && sample->link == next.link &&
           pprof_write_same_attributes(sample, &next);
}

static bool pprof_write_samples_match(const struct br_pprof_profile *profile,
                                      const struct br_pprof_profile *other)
{
    struct cursor samples = {profile->body, profile->end}, others = {other->body, other->end};
    struct sample sample;
    while (pprof_write_next_sample(&samples, &sample))
        if (!pprof_write_next_is_same(&others, &sample))
            return false;
    return true;
}

static bool pprof_write_belongs_with(const struct br_pprof_profile *first,
                                     const struct br_pprof_profile *profile,
                                     const struct br_pprof_tables *tables)
{
    bool same_time =
        profile->time_ns == first->time_ns && profile->duration_ns == first->duration_ns;
    bool same_period = profile->period == first->period &&
                       profile->period_type == first->period_type &&
                       profile->period_unit == first->period_unit;
    return same_time && same_period && profile->n_samples == first->n_samples &&
           br_pprof_profile_same_attributes(first, profile, tables) &&
           pprof_write_samples_match(first, profile);
}

/* Returns how many of the next Profiles of the scope are written as one pprof. */
static uint32_t pprof_write_group_len(const struct br_pprof_writer *writer)
{
    const struct br_pprof_profile *p = writer->profiles;
    uint32_t n = 1;
    for (; n < writer->n_profiles && pprof_write_belongs_with(p, p + n, &writer->tables); n++)
        for (uint32_t i = 0; i < n; i++)
            if (p[i].type == p[n].type && p[i].unit == p[n].unit)
                return n;
    return n;
}

/* --- One pprof ------------------------------------------------------------------------------- */

static struct br_buf *pprof_write_assemble(struct br_pprof_writer *writer)
{
    struct br_pprof_tables *tables = &writer->tables;
    struct br_buf *buf = br_buf_new(writer->host->pool, br_pprof_tables_size(tables));
    if (!buf)
        return NULL;
    uint8_t *o = buf->data;
    for (int i = 0; i < PPROF_SECTIONS; i++)
        o = br_put_bytes(o, tables->buffers[i].data, tables->buffers[i].len);
    o = br_put_bytes(o, tables->strings.bytes, tables->strings.len);
    buf->len = (uint32_t)(o - buf->data);
    return buf;
}

static void pprof_write_begin(struct br_pprof_writer *writer)
{
    br_pprof_tables_begin(&writer->tables);
    br_pprof_head_write(&writer->head, &writer->tables, (uint64_t)writer->n_before * LATER_NS,
                        &writer->out);
    writer->n_samples = writer->n_left_out = writer->n_labels = 0;
    writer->too_large = false;
}

bool br_pprof_set_time(const struct br_pprof_out *result, uint64_t time_ns)
{
    if (!result->written_ns || !time_ns ||
        br_varint_size(time_ns) != br_varint_size(result->written_ns))
        return false;
    br_put_varint(result->buf->data + result->time_at, time_ns);
    return true;
}

static int pprof_write_hand_out(struct br_pprof_writer *writer)
{
    struct br_pprof_out *out = &writer->out;
    if (!br_pprof_tables_work(&writer->tables, br_pprof_tables_size(&writer->tables)))
        return writer->tables.rc;
    br_pprof_tables_finish(&writer->tables);
    out->buf = pprof_write_assemble(writer);
    if (!out->buf)
        return BR_ENOMEM;
    out->n_samples = writer->n_samples;
    out->n_records = writer->n_samples * writer->head.n_profiles;
    out->n_left_out = writer->n_left_out;
    out->n_labels = writer->n_labels;
    out->too_large = writer->too_large;
    writer->n_before++;
    int rc = writer->fn(out, writer->arg);
    br_buf_unref(out->buf);
    out->buf = NULL;
    return rc;
}

/* Returns true if the label of an attribute contains another ID than the link. The link takes
 * precedence: the processor join may have found a span that the profiler did not label. */
static bool pprof_write_contradicts(const struct br_pprof_link_fields *link,
                                    const struct br_pprof_label_fields *label)
{
    if (!link)
        return false;
    if (label->role == PPROF_SPAN_ID)
        return link->span_id && memcmp(label->id, link->span_id, 8) != 0;
    if (label->role == PPROF_TRACE_ID)
        return link->trace_id && memcmp(label->id, link->trace_id, 16) != 0;
    return false;
}

static size_t pprof_write_add_piece(struct br_pprof_writer *writer,
                                    const struct br_pprof_piece *piece)
{
    int rc = writer->n_pieces < writer->cap_pieces
                 ? 0
                 : br_grow(&writer->pieces, &writer->cap_pieces, (size_t)writer->n_pieces + 1,
                           sizeof *writer->pieces, BR_PPROF_LABELS_MAX);
    if (rc) {
        writer->tables.rc = writer->tables.rc ? writer->tables.rc : rc;
        return 0;
    }
    writer->pieces[writer->n_pieces++] = *piece;
    return piece->len;
}

/* Collects the encoded labels of a sample in `writer->pieces`. Returns the total size of the
 * encoded labels in bytes. */
static size_t pprof_write_collect_labels(struct br_pprof_writer *writer,
                                         const struct sample *sample)
{
    struct br_pprof_tables *tables = &writer->tables;
    struct br_pprof_indices indices = sample->attributes;
    const struct br_pprof_link_fields *link =
        sample->link ? br_pprof_tables_link(tables, sample->link) : NULL;
    bool span = link && link->span_id, trace = link && link->trace_id;
    size_t len = 0;
    uint32_t i, n_labels = 0;
    writer->n_pieces = 0;
    while (!tables->rc && br_pprof_index_next(&indices, BR_SAMPLE_ATTRIBUTES, &i)) {
        const struct br_pprof_label_fields *label = br_pprof_tables_label(tables, i);
        if (label->wanted < 0 && !tables->all_labels)
            writer->n_left_out++;
        if (!label->piece.len || pprof_write_contradicts(link, label))
            continue;
        len += pprof_write_add_piece(writer, &label->piece);
        n_labels += label->makes_series;
        span = span && label->role != PPROF_SPAN_ID;
        trace = trace && label->role != PPROF_TRACE_ID;
    }
    if (n_labels > writer->n_labels)
        writer->n_labels = n_labels;
    if (span)
        len += pprof_write_add_piece(writer, &link->span);
    if (trace)
        len += pprof_write_add_piece(writer, &link->trace);
    return len;
}

static uint8_t *pprof_write_put_piece(const struct br_pprof_tables *tables,
                                      const struct br_pprof_piece *piece, uint8_t *out)
{
    return br_put_bytes(out, br_mem_end(tables->buffers[PPROF_CACHE].data, piece->at), piece->len);
}

/* Writes a pprof sample with one value per type. */
static void pprof_write_put_sample(struct br_pprof_writer *writer, const struct sample *sample,
                                   const int64_t *values)
{
    struct br_pprof_tables *tables = &writer->tables;
    uint8_t packed[BR_PPROF_TYPES_MAX * BR_VARINT_MAX], *v = packed;
    for (uint32_t i = 0; i < writer->head.n_profiles; i++)
        v = br_put_varint(v, (uint64_t)values[i]);
    size_t values_len = (size_t)(v - packed);
    const struct br_pprof_piece *stack = br_pprof_tables_stack(tables, sample->stack);
    size_t len = stack->len + br_len_size(BR_PPROF_SAMPLE_VALUES, values_len) +
                 pprof_write_collect_labels(writer, sample);
    br_pprof_tables_check(tables, len);
    uint8_t *o = br_pprof_tables_room(tables, PPROF_SAMPLES, br_len_size(BR_PPROF_SAMPLE, len));
    if (!o)
        return;
    *o++ = (uint8_t)BR_TAG(BR_PPROF_SAMPLE, BR_WIRE_LEN);
    o = br_put_varint(o, len);
    o = pprof_write_put_piece(tables, stack, o);
    o = br_put_len(o, BR_PPROF_SAMPLE_VALUES, packed, values_len);
    for (uint32_t i = 0; i < writer->n_pieces; i++)
        o = pprof_write_put_piece(tables, &writer->pieces[i], o);
    br_pprof_tables_wrote(tables, PPROF_SAMPLES, o);
}

static int64_t pprof_write_value_of(const struct br_pprof_head *head, uint32_t index,
                                    const struct sample *sample)
{
    const struct br_pprof_type *type = &head->types[index];
    int64_t value = sample->n_values ? sample->value : (int64_t)sample->n_times;
    if (type->times_period || (!sample->n_values && type->is_period))
        value = br_product(value, head->period);
    return value;
}

/* Adds a sample to the current pprof. If the sample does not fit, ends the current pprof, passes
 * it to the callback, and begins a new one. */
static int pprof_write_add_sample(struct br_pprof_writer *writer, const struct sample *sample,
                                  const int64_t *values)
{
    const struct br_pprof_options *options = writer->tables.options;
    size_t max = options->max_bytes ? options->max_bytes : BR_BUF_MAX / 2;
    struct br_pprof_state before;
    uint32_t n_left_out = writer->n_left_out;
    br_pprof_tables_state(&writer->tables, &before);
    bool full = options->max_samples && writer->n_samples >= options->max_samples;
    if (!full)
        pprof_write_put_sample(writer, sample, values);
    size_t size = br_pprof_tables_size(&writer->tables);
    bool over = !full && size > max;
    if (full || (over && writer->n_samples > 0)) {
        br_pprof_tables_restore(&writer->tables, &before);
        writer->n_left_out = n_left_out;
        int rc = pprof_write_hand_out(writer);
        if (rc)
            return rc;
        pprof_write_begin(writer);
        pprof_write_put_sample(writer, sample, values);
        size = br_pprof_tables_size(&writer->tables);
        over = size > max;
    }
    br_pprof_tables_check(&writer->tables, size);
    writer->n_samples++;
    writer->too_large = over;
    return writer->tables.rc;
}

static int pprof_write_samples(struct br_pprof_writer *writer,
                               const struct br_pprof_profile *profile, uint32_t count)
{
    struct cursor cursors[BR_PPROF_TYPES_MAX];
    struct sample first, other;
    int64_t values[BR_PPROF_TYPES_MAX];
    for (uint32_t i = 0; i < count; i++)
        cursors[i] = (struct cursor){profile[i].body, profile[i].end};
    while (pprof_write_next_sample(&cursors[0], &first)) {
        values[0] = pprof_write_value_of(&writer->head, 0, &first);
        for (uint32_t i = 1; i < count && pprof_write_next_sample(&cursors[i], &other); i++)
            values[i] = pprof_write_value_of(&writer->head, i, &other);
        int rc = pprof_write_add_sample(writer, &first, values);
        if (rc)
            return rc;
    }
    return 0;
}

static int pprof_write_hand_out_group(struct br_pprof_writer *writer, uint32_t count)
{
    const struct br_pprof_head *head = &writer->head;
    struct br_pprof_group_type types[BR_PPROF_TYPES_MAX];
    for (uint32_t i = 0; i < count; i++)
        types[i] = (struct br_pprof_group_type){
            head->types[i].type,     head->types[i].unit,         writer->profiles[i].body,
            writer->profiles[i].end, head->types[i].times_period, head->types[i].is_period};
    struct br_pprof_group group = {.out = &writer->out,
                                   .view = &writer->tables.view,
                                   .period_type = head->period_type,
                                   .period_unit = head->period_unit,
                                   .period = head->period,
                                   .types = types};
    return writer->group_fn(&group, writer->arg);
}

static int pprof_write_group(struct br_pprof_writer *writer, uint32_t count)
{
    struct br_pprof_out *out = &writer->out;
    const struct br_pprof_profile *p = writer->profiles;
    if (p->n_samples == 0)
        return 0;
    br_pprof_head_make(&writer->head, &writer->tables, &writer->scope, p, count);
    out->name = writer->head.name;
    out->n_types = count;
    for (uint32_t i = 0; i < count; i++)
        out->types[i] = writer->head.types[i].text;
    out->cumulative = writer->head.cumulative;
    if (writer->group_fn)
        return pprof_write_hand_out_group(writer, count);
    writer->n_before = 0;
    pprof_write_begin(writer);
    int rc = pprof_write_samples(writer, p, count);
    return rc ? rc : pprof_write_hand_out(writer);
}

/* --- Scopes, resources and items -------------------------------------------------------------- */

/* Finds the next Profile of a scope. Returns the end of the Profile and sets `*ret` to its
 * start. Returns NULL if no Profile follows. */
static const uint8_t *pprof_write_next_profile(struct cursor *cursor, const uint8_t **ret)
{
    struct br_field field;
    while (cursor->p && cursor->p < cursor->end &&
           (cursor->p = br_field_next(cursor->p, cursor->end, &field))) {
        if (field.number != BR_SCOPES_RECORDS || field.wire != BR_WIRE_LEN)
            continue;
        *ret = field.data;
        return field.data + field.value;
    }
    return NULL;
}

/* Reads the next Profiles of the scope into `writer->profiles`, as many as there is room for. */
static void pprof_write_fill(struct br_pprof_writer *writer, struct cursor *cursor)
{
    const uint8_t *body, *end;
    while (writer->n_profiles < BR_PPROF_TYPES_MAX &&
           (end = pprof_write_next_profile(cursor, &body)))
        br_pprof_profile_read(&writer->profiles[writer->n_profiles++], &writer->tables, body, end);
}

/* Returns true if any Profile of the scope counts CPU time. `further` is the position of the
 * Profiles that are not yet in `writer->profiles`. */
static bool pprof_write_any_is_cpu(struct br_pprof_writer *writer, struct cursor further)
{
    struct br_pprof_profile p;
    const uint8_t *body, *end;
    for (uint32_t i = 0; i < writer->n_profiles; i++)
        if (br_pprof_profile_is_cpu(&writer->profiles[i], &writer->tables))
            return true;
    while (!writer->tables.rc && (end = pprof_write_next_profile(&further, &body))) {
        br_pprof_profile_read(&p, &writer->tables, body, end);
        if (br_pprof_profile_is_cpu(&p, &writer->tables))
            return true;
    }
    return false;
}

static struct br_entry pprof_write_scope_of(const uint8_t *p, const uint8_t *end)
{
    struct br_entry scope = {NULL, 0};
    struct br_field field;
    while (p < end && (p = br_field_next(p, end, &field)))
        if (field.number == BR_SCOPES_SCOPE && field.wire == BR_WIRE_LEN)
            scope = (struct br_entry){field.data, (uint32_t)field.value};
    return scope;
}

static int pprof_write_scope(struct br_pprof_writer *writer, const uint8_t *body,
                             const uint8_t *end)
{
    struct cursor cursor = {body, end};
    struct br_entry scope = pprof_write_scope_of(body, end);
    writer->n_profiles = 0;
    pprof_write_fill(writer, &cursor);
    struct cursor lookahead = cursor;
    bool whole = !pprof_write_next_profile(&lookahead, &body);
    br_pprof_scope_read(&writer->scope, scope, writer->profiles, whole ? writer->n_profiles : 0);
    writer->scope.has_cpu = pprof_write_any_is_cpu(writer, cursor);
    writer->tables.all_labels =
        writer->scope.from_pyroscope && !writer->tables.options->filters_clients;
    writer->out.scope = scope;
    writer->out.from_pyroscope = writer->scope.from_pyroscope;
    while (writer->n_profiles && !writer->tables.rc) {
        writer->out.time_ns = writer->profiles[0].time_ns;
        uint32_t n = pprof_write_group_len(writer);
        int rc = pprof_write_group(writer, n);
        if (rc)
            return rc;
        writer->n_profiles -= n;
        memmove(writer->profiles, writer->profiles + n,
                writer->n_profiles * sizeof *writer->profiles);
        pprof_write_fill(writer, &cursor);
    }
    return writer->tables.rc;
}

static int pprof_write_part(struct br_pprof_writer *writer, const struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    writer->out.resource = (struct br_entry){resource, (uint32_t)len};
    while (p < end && (p = br_field_next(p, end, &field))) {
        if (field.number != BR_RESOURCES_SCOPES || field.wire != BR_WIRE_LEN)
            continue;
        int rc = writer->tables.rc
                     ? writer->tables.rc
                     : pprof_write_scope(writer, field.data, field.data + field.value);
        if (rc)
            return rc;
    }
    return 0;
}

static int pprof_write_item(struct br_pprof_writer *writer, const struct br_item *item,
                            const struct br_pprof_options *options)
{
    static const struct br_pprof_options none;
    int rc = br_pprof_tables_load(&writer->tables, item, options ? options : &none);
    if (rc)
        return rc;
    writer->out = (struct br_pprof_out){.buf = NULL};
    for (uint32_t i = 0; i < item->n_parts && !rc; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = pprof_write_part(writer, &item->parts[i]);
    br_pprof_tables_unload(&writer->tables);
    return rc == BR_EFULL ? BR_ETOOBIG : rc;
}

int br_pprof_write(struct br_pprof_writer *writer, const struct br_item *item,
                   const struct br_pprof_options *options, br_pprof_fn *fn, void *arg)
{
    writer->fn = fn;
    writer->group_fn = NULL;
    writer->arg = arg;
    return pprof_write_item(writer, item, options);
}

int br_pprof_groups(struct br_pprof_writer *writer, const struct br_item *item,
                    br_pprof_group_fn *fn, void *arg)
{
    writer->group_fn = fn;
    writer->arg = arg;
    return pprof_write_item(writer, item, NULL);
}

struct br_pprof_writer *br_pprof_writer_new(struct br_host *host)
{
    struct br_pprof_writer *writer = br_calloc(1, sizeof *writer);
    if (writer)
        writer->host = host;
    return writer;
}

void br_pprof_writer_free(struct br_pprof_writer *writer)
{
    if (!writer)
        return;
    br_pprof_tables_release(&writer->tables);
    br_free(writer->pieces);
    br_free(writer);
}
