/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/match.h"

#include <string.h>

#include "attribute/match_internal.h"
#include "attribute/sample.h"
#include "attribute/value_text.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/scan.h"

#define ARENA_MAX (64u << 20)
#define NO_SERVICE "<nil-service-name>" /* as the Collector calls it */

/* --- Texts ----------------------------------------------------------------------------------- */

static bool match_text(struct br_matcher *m, const struct match_texts *texts, const void *data,
                       size_t len)
{
    for (size_t i = 0; i < texts->n; i++) {
        if (!texts->patterns) {
            if (texts->lens[i] == len && (!len || memcmp(texts->v[i], data, len) == 0))
                return true;
            continue;
        }
        int rc = br_regex_match(&m->regex, texts->patterns[i], data, len);
        if (rc > 0)
            return true;
        m->n_gave_up += rc == BR_EFULL;
        if (rc == BR_ENOMEM)
            m->rc = rc;
    }
    return false;
}

/* Doubles without an exponent where attributes are matched, with one where a service is. */
static bool match_value_text(struct br_matcher *m, const struct match_texts *texts,
                             const struct br_any *any, bool plain)
{
    struct br_str text = {.max = BR_BUF_MAX};
    double v;
    if (any->type == BR_VALUE_STRING)
        return match_text(m, texts, any->data, any->len);
    memcpy(&v, &any->number, sizeof v);
    if (any->type == BR_VALUE_DOUBLE && plain)
        br_value_text_plain(&text, v);
    else
        br_value_text(&text, any, &m->arena);
    if (text.failed)
        m->rc = BR_ENOMEM;
    bool yes = !text.failed && match_text(m, texts, text.data, text.len);
    br_str_release(&text);
    return yes;
}

/* --- Attributes ------------------------------------------------------------------------------ */

enum { UNKNOWN, YES, NO }; /* what was found so far */

static bool match_value(struct br_matcher *m, const struct match_attribute *a,
                        const struct br_attribute *found)
{
    if (!a->has_value)
        return true;
    if (!a->pattern.n)
        return br_value_equal(a->value, found->value);
    struct br_any any = br_any_read(found->value);
    bool has_text = any.type >= BR_VALUE_STRING && any.type <= BR_VALUE_DOUBLE;
    return has_text && match_value_text(m, &a->pattern, &any, true);
}

/* A value of the dictionary is matched once with each criterion. */
static bool match_known_value(struct br_matcher *m, int i, size_t criterion,
                              const struct br_attribute *found)
{
    const struct match_attribute *a = &m->matches[i]->attributes.v[criterion];
    if (!found->entry || !m->values[i])
        return match_value(m, a, found);
    uint8_t *memo = &m->values[i][criterion * m->view.n[BR_TABLE_ATTRIBUTE] + found->entry];
    if (*memo == UNKNOWN)
        *memo = match_value(m, a, found) ? YES : NO;
    return *memo == YES;
}

/* What the profile at hand says to a criterion, which its samples do not speak of. */
static bool match_common(struct br_matcher *m, int i, size_t criterion)
{
    uint8_t *memo = m->common_values[i] ? &m->common_values[i][criterion] : NULL;
    if (!memo)
        return false;
    if (*memo == UNKNOWN) {
        const struct match_attribute *a = &m->matches[i]->attributes.v[criterion];
        const struct br_attribute *found = br_attributes_find(&m->common, a->key, a->key_len);
        *memo = found && match_known_value(m, i, criterion, found) ? YES : NO;
    }
    return *memo == YES;
}

/* The attributes of a span or sample, or else of its profile. */
static bool match_own(struct br_matcher *m, int i)
{
    const struct match_attributes *a = &m->matches[i]->attributes;
    for (size_t c = 0; c < a->n; c++) {
        const struct br_attribute *found =
            br_attributes_find(&m->list, a->v[c].key, a->v[c].key_len);
        if (found ? !match_known_value(m, i, c, found) : !match_common(m, i, c))
            return false;
    }
    return true;
}

static bool match_attributes(struct br_matcher *m, const struct match_attributes *a)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct br_attribute *found = br_attributes_find(&m->list, a->v[i].key, a->v[i].key_len);
        if (!found || !match_value(m, &a->v[i], found))
            return false;
    }
    return true;
}

/* Says what went wrong in reading the list. */
static bool listed(struct br_matcher *m, bool ok)
{
    if (!ok)
        m->rc = m->list.too_many || m->common.too_many ? BR_EFULL : BR_ENOMEM;
    return ok;
}

/* --- What is said of several items ----------------------------------------------------------- */

static void read_resource(struct br_matcher *m)
{
    size_t len;
    const uint8_t *data = br_part_resource(&m->item->parts[m->part], &len);
    bool asked = false;
    for (int i = 0; i < BR_MATCHES; i++)
        asked =
            asked || (m->matches[i] && (m->matches[i]->services.n || m->matches[i]->resources.n));
    m->resource[0] = m->resource[1] = true;
    if (!asked || !listed(m, br_attributes_read(&m->list, BR_RESOURCE_ATTRIBUTES, data, len)))
        return;
    static const char key[] = "service.name";
    const struct br_attribute *service = br_attributes_find(&m->list, key, sizeof key - 1);
    struct br_any name = {
        .type = BR_VALUE_STRING, .data = (const uint8_t *)NO_SERVICE, .len = sizeof NO_SERVICE - 1};
    if (service)
        name = br_any_read(service->value);
    for (int i = 0; i < BR_MATCHES; i++) {
        const struct br_match *match = m->matches[i];
        m->resource[i] =
            match && (!match->services.n || match_value_text(m, &match->services, &name, false)) &&
            match_attributes(m, &match->resources);
    }
}

static struct br_entry text_field(const uint8_t *p, size_t len, uint32_t number)
{
    const uint8_t *end = len ? p + len : p;
    struct br_entry text = {NULL, 0};
    struct br_field f;
    br_steps_add(len);
    while (p < end && (p = br_scan(p, end, &f)))
        if (br_scan_tag(&f) == BR_SCAN_LEN(number))
            text = (struct br_entry){f.data, (uint32_t)f.value};
    return text;
}

static bool match_libraries(struct br_matcher *m, const struct br_match *match)
{
    for (size_t i = 0; i < match->n_libraries; i++) {
        const struct match_library *l = &match->libraries[i];
        struct br_entry name = text_field(m->groups.scope, m->groups.scope_len, BR_SCOPE_NAME);
        struct br_entry version =
            text_field(m->groups.scope, m->groups.scope_len, BR_SCOPE_VERSION);
        if (!match_text(m, &l->name, name.data, name.len) ||
            (l->version.n && !match_text(m, &l->version, version.data, version.len)))
            return false;
    }
    return true;
}

static bool match_sample_type(struct br_matcher *m, int i)
{
    const struct br_match *match = m->matches[i];
    const uint8_t *p = m->groups.body, *end = p + m->groups.body_len;
    uint64_t index = 0;
    struct br_field f, inner;
    if (!match->sample_types.n || m->item->signal == BR_TRACES)
        return !match->sample_types.n;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(BR_PROFILE_SAMPLE_TYPE))
            continue;
        for (const uint8_t *q = f.data; q && q < p && (q = br_scan(q, p, &inner));)
            if (br_scan_tag(&inner) == BR_SCAN_VARINT(BR_VALUE_TYPE_TYPE))
                index = inner.value;
    }
    struct br_entry name = br_dictionary_string(&m->view, (uint32_t)index);
    uint8_t *memo = index < m->view.n[BR_TABLE_STRING] ? &m->types[i][index] : NULL;
    if (!memo || *memo == UNKNOWN) {
        bool yes = match_text(m, &match->sample_types, name.data, name.len);
        if (memo)
            *memo = yes ? YES : NO;
        return yes;
    }
    return *memo == YES;
}

static void read_group(struct br_matcher *m)
{
    if (m->groups.part != m->part) {
        m->part = m->groups.part;
        read_resource(m);
    }
    for (int i = 0; i < BR_MATCHES; i++) {
        const struct br_match *match = m->matches[i];
        if (match && (!m->groups.scope || m->groups.scope != m->scope))
            m->library[i] = match_libraries(m, match);
        m->group[i] = match && m->resource[i] && m->library[i] && match_sample_type(m, i);
        if (m->common_values[i])
            memset(m->common_values[i], UNKNOWN, match->attributes.n);
    }
    m->scope = m->groups.scope;
    m->common_read = false;
}

/* --- Functions ------------------------------------------------------------------------------- */

static bool name_matches(struct br_matcher *m, int i, uint64_t index)
{
    if (index >= m->view.n[BR_TABLE_STRING])
        return match_text(m, &m->matches[i]->functions, NULL, 0);
    uint8_t *memo = &m->names[i][index];
    if (*memo == UNKNOWN) {
        struct br_entry name = br_dictionary_string(&m->view, (uint32_t)index);
        *memo = match_text(m, &m->matches[i]->functions, name.data, name.len) ? YES : NO;
    }
    return *memo == YES;
}

static bool function_matches(struct br_matcher *m, int i, uint64_t index)
{
    if (index == 0 || index >= m->view.n[BR_TABLE_FUNCTION])
        return false;
    uint8_t *memo = &m->functions[i][index];
    if (*memo != UNKNOWN)
        return *memo == YES;
    const struct br_entry *e = &m->view.tables[BR_TABLE_FUNCTION][index];
    const uint8_t *p = e->data, *end = p + e->len;
    uint64_t name = 0;
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f)))
        if (br_scan_tag(&f) == BR_SCAN_VARINT(BR_FUNCTION_NAME))
            name = f.value;
    *memo = name_matches(m, i, name) ? YES : NO;
    return *memo == YES;
}

static bool location_matches(struct br_matcher *m, int i, uint64_t index)
{
    if (index == 0 || index >= m->view.n[BR_TABLE_LOCATION])
        return false;
    uint8_t *memo = &m->locations[i][index];
    if (*memo != UNKNOWN)
        return *memo == YES;
    const struct br_entry *e = &m->view.tables[BR_TABLE_LOCATION][index];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f, line;
    *memo = NO;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(BR_LOCATION_LINES))
            continue;
        for (const uint8_t *q = f.data; q && q < p && (q = br_scan(q, p, &line));)
            if (br_scan_tag(&line) == BR_SCAN_VARINT(BR_LINE_FUNCTION) &&
                function_matches(m, i, line.value))
                *memo = YES;
    }
    return *memo == YES;
}

static bool stack_matches(struct br_matcher *m, int i, uint64_t index)
{
    if (index == 0 || index >= m->view.n[BR_TABLE_STACK])
        return false;
    uint8_t *memo = &m->stacks[i][index];
    if (*memo != UNKNOWN)
        return *memo == YES;
    const struct br_entry *e = &m->view.tables[BR_TABLE_STACK][index];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    *memo = NO;
    while (p < end && (p = br_scan(p, end, &f))) {
        uint64_t location;
        if (br_scan_tag(&f) == BR_SCAN_VARINT(BR_STACK_LOCATIONS) &&
            location_matches(m, i, f.value))
            *memo = YES;
        else if (br_scan_tag(&f) == BR_SCAN_LEN(BR_STACK_LOCATIONS))
            for (const uint8_t *q = f.data; q && q < p && (q = br_scan_varint(q, p, &location));)
                if (location_matches(m, i, location))
                    *memo = YES;
    }
    return *memo == YES;
}

static bool match_functions(struct br_matcher *m, int i, const struct br_visit *v)
{
    const uint8_t *p = v->body, *end = p + v->len;
    uint64_t stack = 0;
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f)))
        if (br_scan_tag(&f) == BR_SCAN_VARINT(BR_SAMPLE_STACK))
            stack = f.value;
    return stack_matches(m, i, stack);
}

/* --- Items ----------------------------------------------------------------------------------- */

static bool match_kind(struct br_matcher *m, const struct match_texts *kinds, uint64_t kind)
{
    const char *name = kind < BR_SPAN_KINDS ? br_span_kinds[kind] : "";
    return match_text(m, kinds, name, strlen(name));
}

static bool match_span(struct br_matcher *m, const struct br_match *match, const struct br_visit *v)
{
    const uint8_t *p = v->body, *end = p + v->len;
    struct br_entry name = {NULL, 0};
    struct br_field f;
    uint64_t kind = 0;
    if (!match->span_names.n && !match->span_kinds.n)
        return true;
    br_steps_add(v->len);
    while (p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) == BR_SCAN_LEN(BR_SPAN_NAME))
            name = (struct br_entry){f.data, (uint32_t)f.value};
        else if (br_scan_tag(&f) == BR_SCAN_VARINT(BR_SPAN_KIND))
            kind = f.value;
    }
    return (!match->span_names.n || match_text(m, &match->span_names, name.data, name.len)) &&
           (!match->span_kinds.n || match_kind(m, &match->span_kinds, kind));
}

/* A sample has its own attributes and, behind them, those of its profile. */
static bool read_attributes(struct br_matcher *m, const struct br_visit *v)
{
    if (m->item->signal == BR_TRACES)
        return br_attributes_read(&m->list, BR_SPAN_ATTRIBUTES, v->body, v->len);
    br_attributes_clear(&m->list);
    if (!m->common_read) {
        br_attributes_clear(&m->common);
        m->common_read =
            br_sample_attributes_add(&m->common, &m->view, BR_PROFILE_ATTRIBUTES, m->groups.body,
                                     m->groups.body_len);
    }
    return m->common_read &&
           (v->level == BR_LEVEL_PROFILE ||
            br_sample_attributes_add(&m->list, &m->view, BR_SAMPLE_ATTRIBUTES, v->body, v->len));
}

static bool match_item(struct br_matcher *m, int i, const struct br_visit *v, bool *is_listed)
{
    const struct br_match *match = m->matches[i];
    bool span = m->item->signal == BR_TRACES, sample = !span && v->level == BR_LEVEL_ITEM;
    if (!m->group[i])
        return false;
    if (span ? !match_span(m, match, v) : match->span_names.n || match->span_kinds.n)
        return false;
    if (match->functions.n && (!sample || !match_functions(m, i, v)))
        return false;
    if (!match->attributes.n)
        return true;
    if (!*is_listed && !listed(m, read_attributes(m, v)))
        return false;
    *is_listed = true;
    return match_own(m, i);
}

int br_matcher_passes(struct br_matcher *m, const struct br_visit *v)
{
    bool is_listed = false;
    if (!br_matcher_active(m))
        return 1;
    if (v->level == BR_LEVEL_PROFILE ? br_groups_at_profile(&m->groups, v->index)
                                     : br_groups_at_item(&m->groups, v->index))
        read_group(m);
    bool passes = (!m->matches[0] || match_item(m, 0, v, &is_listed)) &&
                  (!m->matches[1] || !match_item(m, 1, v, &is_listed));
    return m->rc ? m->rc : passes;
}

/* --- One item after another ------------------------------------------------------------------ */

static bool make_memo(struct br_matcher *m, uint8_t **memo, size_t n)
{
    *memo = br_arena_calloc(&m->arena, n, 1);
    return *memo != NULL;
}

static int make_memos(struct br_matcher *m)
{
    const uint32_t *n = m->view.n;
    bool ok = true;
    for (int i = 0; i < BR_MATCHES && ok; i++) {
        const struct br_match *match = m->matches[i];
        if (match && match->functions.n)
            ok = make_memo(m, &m->names[i], n[BR_TABLE_STRING]) &&
                 make_memo(m, &m->functions[i], n[BR_TABLE_FUNCTION]) &&
                 make_memo(m, &m->locations[i], n[BR_TABLE_LOCATION]) &&
                 make_memo(m, &m->stacks[i], n[BR_TABLE_STACK]);
        if (ok && match && match->sample_types.n)
            ok = make_memo(m, &m->types[i], n[BR_TABLE_STRING]);
        if (ok && match && match->attributes.n)
            ok = make_memo(m, &m->common_values[i], match->attributes.n) &&
                 make_memo(m, &m->values[i], match->attributes.n * n[BR_TABLE_ATTRIBUTE]);
    }
    return ok ? 0 : br_arena_why(&m->arena);
}

int br_matcher_begin(struct br_matcher *m, struct br_item *item)
{
    m->item = item;
    m->part = UINT32_MAX;
    m->rc = 0;
    m->scope = NULL;
    m->list.arena = m->common.arena = m->memo.arena = &m->arena;
    m->list.memo = m->common.memo = &m->memo;
    m->common_read = false;
    for (int i = 0; i < BR_MATCHES; i++)
        m->values[i] = m->common_values[i] = NULL;
    br_arena_init(&m->arena, ARENA_MAX);
    int rc = item->signal == BR_PROFILES && br_item_has_references(item)
                 ? br_item_inline_references(item)
                 : 0;
    if (!rc && item->signal == BR_PROFILES)
        rc = br_dictionary_index(item, &m->arena, &m->view);
    br_groups_init(&m->groups, item);
    return rc || item->signal == BR_TRACES ? rc : make_memos(m);
}

void br_matcher_end(struct br_matcher *m)
{
    br_value_memo_release(&m->memo);
    br_arena_release(&m->arena);
    m->item = NULL;
}
