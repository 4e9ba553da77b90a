/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "profile/pprof/write_internal.h"

#include <ctype.h>

#include "base/mem.h"
#include "base/str.h"
#include "otlp/dictionary/dictionary.h"

#define COMMENT "pprof.profile.comment"

static struct br_entry pprof_head_entry(const char *text)
{
    return (struct br_entry){(const uint8_t *)text, (uint32_t)strlen(text)};
}

static bool pprof_head_same(struct br_entry text, struct br_entry other)
{
    return br_bytes_equal(text.data, text.len, other.data, other.len);
}

/* --- Profiles -------------------------------------------------------------------------------- */

static void pprof_head_read_value_type(const struct br_field *field, uint32_t *type, uint32_t *unit)
{
    const uint8_t *p = field->data, *end = p + field->value;
    struct br_field found;
    while (p < end && (p = br_scan(p, end, &found))) {
        if (found.number == BR_VALUE_TYPE_TYPE && found.wire == BR_WIRE_VARINT)
            *type = (uint32_t)found.value;
        else if (found.number == BR_VALUE_TYPE_UNIT && found.wire == BR_WIRE_VARINT)
            *unit = (uint32_t)found.value;
    }
}

static void pprof_head_read_attributes(struct br_pprof_profile *profile,
                                       struct br_pprof_tables *tables)
{
    struct br_pprof_indices indices = {.p = profile->body, .end = profile->end};
    struct br_pair pair;
    uint32_t i;
    while (!tables->rc && br_pprof_index_next(&indices, BR_PROFILE_ATTRIBUTES, &i)) {
        if (!br_pprof_tables_pair(tables, i, &pair, NULL, NULL))
            continue;
        if (!br_text_is(pair.key, BR_PROFILE_CUMULATIVE)) {
            tables->labels[i].compared = true;
            continue;
        }
        profile->cumulative = pair.value.type == BR_VALUE_BOOL && pair.value.number;
    }
}

/* Finds the next attribute that must be equal in all Profiles of a pprof. */
static bool pprof_head_next_attribute(struct br_pprof_indices *indices,
                                      const struct br_pprof_tables *tables, uint32_t *ret)
{
    while (br_pprof_index_next(indices, BR_PROFILE_ATTRIBUTES, ret))
        if (*ret < tables->view.count[BR_TABLE_ATTRIBUTE] && tables->labels[*ret].compared)
            return true;
    return false;
}

bool br_pprof_profile_same_attributes(const struct br_pprof_profile *profile,
                                      const struct br_pprof_profile *other,
                                      const struct br_pprof_tables *tables)
{
    struct br_pprof_indices indices = {.p = profile->body, .end = profile->end};
    struct br_pprof_indices others = {.p = other->body, .end = other->end};
    uint32_t index, other_index;
    for (;;) {
        bool more = pprof_head_next_attribute(&indices, tables, &index),
             other_more = pprof_head_next_attribute(&others, tables, &other_index);
        if (!more || !other_more)
            return more == other_more;
        if (index != other_index)
            return false;
    }
}

void br_pprof_profile_read(struct br_pprof_profile *profile, struct br_pprof_tables *tables,
                           const uint8_t *body, const uint8_t *end)
{
    const uint8_t *at = body;
    struct br_field field;
    *profile = (struct br_pprof_profile){.body = body, .end = end};
    while (at < end && (at = br_scan(at, end, &field))) {
        switch (br_scan_tag(&field)) {
        case BR_SCAN_LEN(BR_PROFILE_SAMPLE_TYPE):
            pprof_head_read_value_type(&field, &profile->type, &profile->unit);
            break;
        case BR_SCAN_LEN(BR_PROFILE_SAMPLES):
            profile->n_samples++;
            break;
        case BR_TAG(BR_PROFILE_TIME, BR_WIRE_I64):
            profile->time_ns = field.value;
            break;
        case BR_SCAN_VARINT(BR_PROFILE_DURATION):
            profile->duration_ns = field.value;
            break;
        case BR_SCAN_LEN(BR_PROFILE_PERIOD_TYPE):
            pprof_head_read_value_type(&field, &profile->period_type, &profile->period_unit);
            break;
        case BR_SCAN_VARINT(BR_PROFILE_PERIOD):
            profile->period = (int64_t)field.value;
            break;
        default:
            break;
        }
    }
    pprof_head_read_attributes(profile, tables);
}

bool br_pprof_profile_is_cpu(const struct br_pprof_profile *profile,
                             const struct br_pprof_tables *tables)
{
    return br_text_is(br_dictionary_string(&tables->view, profile->type), "cpu") &&
           br_text_is(br_dictionary_string(&tables->view, profile->unit), "nanoseconds");
}

/* --- Scope ------------------------------------------------------------------------------------ */

/* Restores the original order of Profiles: value k of `order` is the place of Profile k. An
 * order that is not a permutation is ignored. */
static void pprof_head_sort(const struct br_any *order, struct br_pprof_profile *profiles,
                            uint32_t count)
{
    struct br_pprof_profile sorted[BR_PPROF_TYPES_MAX];
    const uint8_t *p = order->data, *end = p + order->len;
    struct br_any any;
    uint32_t k = 0, seen = 0;
    for (; (p = br_list_next(p, end, &any)); k++) {
        if (k >= count || any.type != BR_VALUE_INT || any.number >= count || seen >> any.number & 1)
            return;
        seen |= 1u << any.number;
        sorted[any.number] = profiles[k];
    }
    if (k == count && count)
        memcpy(profiles, sorted, count * sizeof *profiles);
}

void br_pprof_scope_read(struct br_pprof_scope *scope, struct br_entry body,
                         struct br_pprof_profile *profiles, uint32_t count)
{
    const uint8_t *p = body.data, *end = body.len ? p + body.len : p;
    struct br_pair pair;
    *scope = (struct br_pprof_scope){.from_pyroscope = false};
    while ((p = br_pair_next(p, end, BR_SCOPE_ATTRIBUTES, &pair))) {
        bool text = pair.value.type == BR_VALUE_STRING;
        struct br_entry value = {pair.value.data, (uint32_t)pair.value.len};
        if (text && value.len && br_text_is(pair.key, BR_SCOPE_PYROSCOPE_NAME)) {
            scope->name = value;
            scope->from_pyroscope = true;
        } else if (text && br_text_is(pair.key, BR_SCOPE_PYROSCOPE_METRIC)) {
            scope->metric = value;
        } else if (text && br_text_is(pair.key, BR_SCOPE_DEFAULT_SAMPLE_TYPE)) {
            scope->preferred = value;
        } else if (pair.value.type == BR_VALUE_LIST &&
                   br_text_is(pair.key, BR_SCOPE_SAMPLE_TYPE_ORDER)) {
            scope->ordered = true;
            pprof_head_sort(&pair.value, profiles, count);
        }
    }
}

/* --- Types ----------------------------------------------------------------------------------- */

/* Copies a type, with every character that a query cannot contain replaced by '_' if `strict`. A
 * profile type "a:b:c:d:e" is split at its colons, and Pyroscope rejects '-'. */
static void pprof_head_clean(struct br_entry entry, bool strict, char *out, size_t size)
{
    size_t n = entry.len < size - 1 ? entry.len : size - 1;
    n = n ? br_utf8_valid(entry.data, n) : 0;
    for (size_t i = 0; i < n; i++) {
        char c = (char)entry.data[i];
        bool allowed = isalnum((unsigned char)c) || c == '_' || c == '.';
        out[i] = allowed || !strict ? c : '_';
    }
    out[n] = '\0';
}

/* Returns Pyroscope's name for a type that some profilers name differently. */
static struct br_entry pprof_head_usual_type(struct br_entry type)
{
    if (br_text_is(type, "itimer"))
        return pprof_head_entry("cpu");
    return type.len ? type : pprof_head_entry("samples");
}

static struct br_entry pprof_head_usual_unit(struct br_entry unit)
{
    if (br_text_is(unit, "ns"))
        return pprof_head_entry("nanoseconds");
    return unit.len ? unit : pprof_head_entry("count");
}

static void pprof_head_make_type(struct br_pprof_head *head, const struct br_pprof_tables *tables,
                                 uint32_t index)
{
    struct br_pprof_type *type = &head->types[index];
    const struct br_pprof_profile *p = &head->profile[index];
    *type = (struct br_pprof_type){.type = br_dictionary_string(&tables->view, p->type),
                                   .unit = br_dictionary_string(&tables->view, p->unit)};
    if (head->scope->from_pyroscope) {
        pprof_head_clean(type->type, false, type->text, sizeof type->text);
        return;
    }
    pprof_head_clean(pprof_head_usual_type(type->type), true, type->text, sizeof type->text);
    pprof_head_clean(pprof_head_usual_unit(type->unit), true, type->clean_unit,
                     sizeof type->clean_unit);
    type->type = pprof_head_entry(type->text);
    type->unit = pprof_head_entry(type->clean_unit);
}

/* Sets the period type that a profile with this name usually has. */
static void pprof_head_guess_period(struct br_pprof_head *head)
{
    static const char *const known[][3] = {
        {"process_cpu", "cpu", "nanoseconds"}, {"wall", "wall", "nanoseconds"},
        {"memory", "space", "bytes"},          {"mutex", "contentions", "count"},
        {"block", "contentions", "count"},     {"goroutines", "goroutine", "count"}};
    for (size_t i = 0; i < BR_COUNT(known); i++) {
        if (strcmp(head->name, known[i][0]) != 0)
            continue;
        head->period_type = pprof_head_entry(known[i][1]);
        head->period_unit = pprof_head_entry(known[i][2]);
        return;
    }
    head->period_type = head->types[0].type;
    head->period_unit = head->types[0].unit;
}

static void pprof_head_make_name(struct br_pprof_head *head)
{
    const char *texts[BR_PPROF_TYPES_MAX];
    for (uint32_t i = 0; i < head->n_profiles; i++)
        texts[i] = head->types[i].text;
    /* "off_cpu" is waiting time although its name contains "cpu", and wall-clock samples are not
     * CPU time. */
    if (head->scope->metric.len)
        pprof_head_clean(head->scope->metric, true, head->name, sizeof head->name);
    else if (strcmp(head->types[0].text, "off_cpu") == 0)
        (void)memcpy(head->name, "off_cpu", sizeof "off_cpu");
    else if (br_text_is(head->period_type, "wall"))
        (void)memcpy(head->name, "wall", sizeof "wall");
    else
        br_pyroscope_name(texts, head->n_profiles, NULL, 0, head->name, sizeof head->name);
    for (char *c = head->name; *c; c++)
        if (*c == '.')
            *c = '_';
    if (head->name[0] >= '0' && head->name[0] <= '9')
        head->name[0] = '_';
}

static bool pprof_head_is_cpu_time(struct br_entry type, struct br_entry unit)
{
    return br_text_is(type, "cpu") && br_text_is(unit, "nanoseconds");
}

/* Returns true if the values are counts of sampling periods: samples:count, cpu:count and
 * itimer:count with a CPU period, wall:count with a wall-clock period. */
static bool pprof_head_counts_periods(const struct br_pprof_head *head)
{
    const struct br_pprof_type *type = &head->types[0];
    if (head->n_profiles != 1 || head->scope->ordered || head->period <= 0 ||
        !br_text_is(type->unit, "count"))
        return false;
    if (pprof_head_is_cpu_time(head->period_type, head->period_unit))
        return !head->scope->has_cpu &&
               (br_text_is(type->type, "samples") || br_text_is(type->type, "cpu"));
    return br_text_is(type->type, "wall") && br_text_is(head->period_type, "wall") &&
           br_text_is(head->period_unit, "nanoseconds");
}

static void pprof_head_make_period(struct br_pprof_head *head, const struct br_pprof_tables *tables)
{
    const struct br_pprof_profile *p = head->profile;
    head->period_type = br_dictionary_string(&tables->view, p->period_type);
    head->period_unit = br_dictionary_string(&tables->view, p->period_unit);
    if (head->scope->from_pyroscope)
        return;
    if (head->period_type.len || head->period_unit.len) {
        head->period_type = pprof_head_usual_type(head->period_type);
        head->period_unit = pprof_head_usual_unit(head->period_unit);
    }
    if (pprof_head_counts_periods(head)) {
        head->types[0].times_period = true;
        pprof_head_clean(head->period_type, true, head->types[0].text, sizeof head->types[0].text);
        head->types[0].type = head->period_type;
        head->types[0].unit = head->period_unit;
    }
}

void br_pprof_head_make(struct br_pprof_head *head, const struct br_pprof_tables *tables,
                        const struct br_pprof_scope *scope, const struct br_pprof_profile *profile,
                        uint32_t count)
{
    head->profile = profile;
    head->scope = scope;
    head->n_profiles = count;
    head->period = profile->period;
    head->cumulative = false;
    for (uint32_t i = 0; i < count; i++) {
        pprof_head_make_type(head, tables, i);
        head->cumulative = head->cumulative || profile[i].cumulative;
    }
    pprof_head_make_period(head, tables);
    if (scope->from_pyroscope) {
        pprof_head_clean(scope->name, false, head->name, sizeof head->name);
    } else {
        pprof_head_make_name(head);
        if (!head->period_type.len && !head->period_unit.len &&
            !br_text_is(head->types[0].type, "off_cpu"))
            pprof_head_guess_period(head);
    }
    for (uint32_t i = 0; i < count; i++)
        head->types[i].is_period = head->period > 0 && !head->types[i].times_period &&
                                   pprof_head_same(head->types[i].type, head->period_type) &&
                                   pprof_head_same(head->types[i].unit, head->period_unit);
}

/* --- Writing --------------------------------------------------------------------------------- */

static void pprof_head_put_number(struct br_pprof_tables *tables, uint32_t field, uint64_t value)
{
    uint8_t *o = value ? br_pprof_tables_room(tables, PPROF_HEAD, 1 + BR_VARINT_MAX) : NULL;
    if (!o)
        return;
    *o++ = (uint8_t)BR_TAG(field, BR_WIRE_VARINT);
    br_pprof_tables_wrote(tables, PPROF_HEAD, br_put_varint(o, value));
}

static void pprof_head_put_value_type(struct br_pprof_tables *tables, uint32_t field,
                                      struct br_entry type, struct br_entry unit)
{
    uint32_t id[2] = {br_pprof_tables_text(tables, type.data, type.len),
                      br_pprof_tables_text(tables, unit.data, unit.len)};
    uint8_t *o = br_pprof_tables_room(tables, PPROF_HEAD, 2 + 2 * (1 + BR_VARINT_MAX));
    if (!o)
        return;
    *o = (uint8_t)BR_TAG(field, BR_WIRE_LEN);
    uint8_t *body = o + 2;
    o = body;
    for (uint32_t i = 0; i < 2; i++) {
        *o++ = (uint8_t)BR_TAG(BR_PPROF_VALUE_TYPE_TYPE + i, BR_WIRE_VARINT);
        o = br_put_varint(o, id[i]);
    }
    br_pprof_tables_wrote(tables, PPROF_HEAD, br_put_length_before(body, o));
}

/* Writes the string value of attribute `index`. */
static void pprof_head_put_text(struct br_pprof_tables *tables, uint32_t field, uint32_t index,
                                const struct br_any *any)
{
    if (any->type == BR_VALUE_STRING && any->len)
        pprof_head_put_number(tables, field, br_pprof_tables_attribute_text(tables, index, any));
}

/* Writes the comments in attribute `index`. The comments are written only once even if the
 * profile refers to the attribute repeatedly. */
static void pprof_head_put_comments(struct br_pprof_tables *tables, uint32_t index,
                                    const struct br_any *any)
{
    struct br_pprof_mark *mark = &tables->labels[index].text;
    if (mark->round == tables->round)
        return;
    pprof_head_put_text(tables, BR_PPROF_COMMENT, index, any);
    mark->round = tables->round;
    const uint8_t *p = any->data, *end = p + any->len;
    struct br_any each;
    while (any->type == BR_VALUE_LIST && (p = br_list_next(p, end, &each)))
        if (each.type == BR_VALUE_STRING && each.len)
            pprof_head_put_number(tables, BR_PPROF_COMMENT,
                                  br_pprof_tables_text(tables, each.data, each.len));
}

static void pprof_head_put_attributes(const struct br_pprof_head *head,
                                      struct br_pprof_tables *tables)
{
    static const struct {
        const char *key;
        uint32_t field;
    } known[] = {{"pprof.profile.drop_frames", BR_PPROF_DROP_FRAMES},
                 {"pprof.profile.keep_frames", BR_PPROF_KEEP_FRAMES},
                 {"pprof.profile.doc_url", BR_PPROF_DOC_URL}};
    struct br_pprof_indices indices = {.p = head->profile->body, .end = head->profile->end};
    struct br_pair pair;
    uint32_t i;
    while (!tables->rc && br_pprof_index_next(&indices, BR_PROFILE_ATTRIBUTES, &i)) {
        if (!br_pprof_tables_pair(tables, i, &pair, NULL, NULL))
            continue;
        for (size_t k = 0; k < BR_COUNT(known); k++)
            if (br_text_is(pair.key, known[k].key))
                pprof_head_put_text(tables, known[k].field, i, &pair.value);
        if (pair.key.len >= strlen(COMMENT) &&
            memcmp(pair.key.data, COMMENT, strlen(COMMENT)) == 0 &&
            (pair.key.len == strlen(COMMENT) || pair.key.data[strlen(COMMENT)] == '.'))
            pprof_head_put_comments(tables, i, &pair.value);
    }
}

/* PPROF_HEAD is the first section, so an offset in PPROF_HEAD is also an offset in the pprof. */
static void pprof_head_put_time(struct br_pprof_tables *tables, uint64_t time_ns,
                                struct br_pprof_out *out)
{
    out->written_ns = time_ns;
    out->time_at = (uint32_t)tables->buffers[PPROF_HEAD].len + 1;
    pprof_head_put_number(tables, BR_PPROF_TIME, time_ns);
}

void br_pprof_head_write(const struct br_pprof_head *head, struct br_pprof_tables *tables,
                         uint64_t later_ns, struct br_pprof_out *out)
{
    const struct br_pprof_profile *p = head->profile;
    for (uint32_t i = 0; i < head->n_profiles; i++)
        pprof_head_put_value_type(tables, BR_PPROF_SAMPLE_TYPE, head->types[i].type,
                                  head->types[i].unit);
    pprof_head_put_time(tables, p->time_ns ? p->time_ns + later_ns : 0, out);
    pprof_head_put_number(tables, BR_PPROF_DURATION, p->duration_ns);
    if (head->period_type.len || head->period_unit.len)
        pprof_head_put_value_type(tables, BR_PPROF_PERIOD_TYPE, head->period_type,
                                  head->period_unit);
    pprof_head_put_number(tables, BR_PPROF_PERIOD, (uint64_t)head->period);
    for (uint32_t i = 0; i < head->n_profiles; i++)
        if (head->scope->preferred.len &&
            pprof_head_same(head->types[i].type, head->scope->preferred)) {
            pprof_head_put_number(
                tables, BR_PPROF_DEFAULT_TYPE,
                br_pprof_tables_text(tables, head->types[i].type.data, head->types[i].type.len));
            break;
        }
    pprof_head_put_attributes(head, tables);
}
