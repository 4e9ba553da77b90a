/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/match.h"

#include <string.h>

#include "base/str.h"
#include "otlp/scan.h"
#include "pipeline/match_internal.h"
#include "pipeline/sample_attributes.h"
#include "pipeline/value_text.h"

#define ARENA_MAX (64u << 20)
#define NO_SERVICE "<nil-service-name>" /* as the Collector calls it */

enum { SCOPE_NAME = 1, SCOPE_VERSION = 2 };
enum { SPAN_NAME = 5, SPAN_KIND = 6, SPAN_ATTRIBUTES = 9 };
enum { RESOURCE_ATTRIBUTES = 1 };
enum { PROFILE_SAMPLE_TYPE = 1 };

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

static bool match_attribute(struct br_matcher *m, const struct match_attribute *a)
{
    const struct br_attribute *found = br_attributes_find(&m->list, a->key, a->key_len);
    if (!found || !a->has_value)
        return found != NULL;
    if (!a->pattern.n)
        return br_value_equal(a->value, found->value);
    struct br_any any = br_any_read(found->value);
    bool has_text = any.type >= BR_VALUE_STRING && any.type <= BR_VALUE_DOUBLE;
    return has_text && match_value_text(m, &a->pattern, &any, true);
}

static bool match_attributes(struct br_matcher *m, const struct match_attributes *a)
{
    for (size_t i = 0; i < a->n; i++)
        if (!match_attribute(m, &a->v[i]))
            return false;
    return true;
}

/* Says what went wrong in reading the list. */
static bool listed(struct br_matcher *m, bool ok)
{
    if (!ok)
        m->rc = m->list.too_many ? BR_EFULL : BR_ENOMEM;
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
    if (!asked || !listed(m, br_attributes_read(&m->list, RESOURCE_ATTRIBUTES, data, len)))
        return;
    static const char key[] = "service.name";
    const struct br_attribute *service = br_attributes_find(&m->list, key, sizeof key - 1);
    struct br_any name = {BR_VALUE_STRING, 0, (const uint8_t *)NO_SERVICE, sizeof NO_SERVICE - 1};
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
    while (p < end && (p = br_scan(p, end, &f)))
        if (br_scan_tag(&f) == BR_SCAN_LEN(number))
            text = (struct br_entry){f.data, (uint32_t)f.value};
    return text;
}

static bool match_libraries(struct br_matcher *m, const struct br_match *match)
{
    for (size_t i = 0; i < match->n_libraries; i++) {
        const struct match_library *l = &match->libraries[i];
        struct br_entry name = text_field(m->groups.scope, m->groups.scope_len, SCOPE_NAME);
        struct br_entry version = text_field(m->groups.scope, m->groups.scope_len, SCOPE_VERSION);
        if (!match_text(m, &l->name, name.data, name.len) ||
            (l->version.n && !match_text(m, &l->version, version.data, version.len)))
            return false;
    }
    return true;
}

static bool match_sample_type(struct br_matcher *m, const struct br_match *match)
{
    const uint8_t *p = m->groups.body, *end = p + m->groups.body_len;
    struct br_entry name = {NULL, 0};
    struct br_field f, inner;
    if (!match->sample_types.n || m->item->signal == BR_TRACES)
        return !match->sample_types.n;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(PROFILE_SAMPLE_TYPE))
            continue;
        for (const uint8_t *q = f.data; q && q < p && (q = br_scan(q, p, &inner));)
            if (br_scan_tag(&inner) == BR_SCAN_VARINT(1))
                name = br_dictionary_string(&m->view, (uint32_t)inner.value);
    }
    return match_text(m, &match->sample_types, name.data, name.len);
}

static void read_group(struct br_matcher *m)
{
    if (m->groups.part != m->part) {
        m->part = m->groups.part;
        read_resource(m);
    }
    for (int i = 0; i < BR_MATCHES; i++)
        m->group[i] = m->matches[i] && m->resource[i] && match_libraries(m, m->matches[i]) &&
                      match_sample_type(m, m->matches[i]);
}

/* --- Functions ------------------------------------------------------------------------------- */

enum { UNKNOWN, YES, NO };

static bool function_matches(struct br_matcher *m, int i, uint64_t index)
{
    if (index == 0 || index >= m->view.n[BR_TABLE_FUNCTION])
        return false;
    uint8_t *memo = &m->functions[i][index];
    if (*memo != UNKNOWN)
        return *memo == YES;
    const struct br_entry *e = &m->view.tables[BR_TABLE_FUNCTION][index];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_entry name = {NULL, 0};
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f)))
        if (br_scan_tag(&f) == BR_SCAN_VARINT(1))
            name = br_dictionary_string(&m->view, (uint32_t)f.value);
    *memo = match_text(m, &m->matches[i]->functions, name.data, name.len) ? YES : NO;
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
        if (br_scan_tag(&f) != BR_SCAN_LEN(3))
            continue;
        for (const uint8_t *q = f.data; q && q < p && (q = br_scan(q, p, &line));)
            if (br_scan_tag(&line) == BR_SCAN_VARINT(1) && function_matches(m, i, line.value))
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
        if (br_scan_tag(&f) == BR_SCAN_VARINT(1) && location_matches(m, i, f.value))
            *memo = YES;
        else if (br_scan_tag(&f) == BR_SCAN_LEN(1))
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
        if (br_scan_tag(&f) == BR_SCAN_VARINT(1))
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
    while (p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) == BR_SCAN_LEN(SPAN_NAME))
            name = (struct br_entry){f.data, (uint32_t)f.value};
        else if (br_scan_tag(&f) == BR_SCAN_VARINT(SPAN_KIND))
            kind = f.value;
    }
    return (!match->span_names.n || match_text(m, &match->span_names, name.data, name.len)) &&
           (!match->span_kinds.n || match_kind(m, &match->span_kinds, kind));
}

/* A sample has its own attributes and, behind them, those of its profile. */
static bool read_attributes(struct br_matcher *m, const struct br_visit *v)
{
    if (m->item->signal == BR_TRACES)
        return br_attributes_read(&m->list, SPAN_ATTRIBUTES, v->body, v->len);
    br_attributes_clear(&m->list);
    return (v->level == BR_LEVEL_PROFILE ||
            br_sample_attributes_add(&m->list, &m->view, BR_SAMPLE_ATTRIBUTES, v->body, v->len)) &&
           br_sample_attributes_add(&m->list, &m->view, BR_PROFILE_ATTRIBUTES, m->groups.body,
                                    m->groups.body_len);
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
    return match_attributes(m, &match->attributes);
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

static int make_memos(struct br_matcher *m)
{
    for (int i = 0; i < BR_MATCHES; i++) {
        if (!m->matches[i] || !m->matches[i]->functions.n)
            continue;
        m->functions[i] = br_arena_calloc(&m->arena, m->view.n[BR_TABLE_FUNCTION], 1);
        m->locations[i] = br_arena_calloc(&m->arena, m->view.n[BR_TABLE_LOCATION], 1);
        m->stacks[i] = br_arena_calloc(&m->arena, m->view.n[BR_TABLE_STACK], 1);
        if (!m->functions[i] || !m->locations[i] || !m->stacks[i])
            return BR_ENOMEM;
    }
    return 0;
}

int br_matcher_begin(struct br_matcher *m, struct br_item *item)
{
    m->item = item;
    m->part = UINT32_MAX;
    m->rc = 0;
    m->list.arena = &m->arena;
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
    br_arena_release(&m->arena);
    m->item = NULL;
}
