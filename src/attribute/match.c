/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/match.h"

#include <string.h>

#include "attribute/attributes.h"
#include "attribute/value.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/scan.h"

#define ARENA_MAX (64u << 20)
/* text that the Collector matches for a resource without service.name */
#define NO_SERVICE "<nil-service-name>"

/* --- Texts ----------------------------------------------------------------------------------- */

static bool match_text(struct br_matcher *matcher, const struct br_matcher_texts *texts,
                       const void *data, size_t len)
{
    for (size_t i = 0; i < texts->count; i++) {
        if (!texts->patterns) {
            if (texts->lens[i] == len && (!len || memcmp(texts->texts[i], data, len) == 0))
                return true;
            continue;
        }
        int rc = br_regex_match(&matcher->regex, texts->patterns[i], data, len);
        if (rc > 0)
            return true;
        matcher->n_gave_up += rc == BR_EFULL;
        if (rc == BR_ENOMEM)
            matcher->rc = rc;
    }
    return false;
}

/* Returns true if the text of a value matches. For attributes, the text of a double has no
 * exponent; for services, the text may have an exponent. */
static bool match_value_text(struct br_matcher *matcher, const struct br_matcher_texts *texts,
                             const struct br_any *any, bool plain)
{
    struct br_str text = {.max = BR_BUF_MAX};
    double v;
    if (any->type == BR_VALUE_STRING)
        return match_text(matcher, texts, any->data, any->len);
    memcpy(&v, &any->number, sizeof v);
    if (any->type == BR_VALUE_DOUBLE && plain)
        br_value_text_plain(&text, v);
    else
        br_value_text(&text, any, &matcher->arena);
    if (text.failed)
        matcher->rc = BR_ENOMEM;
    bool yes = !text.failed && match_text(matcher, texts, text.data, text.len);
    br_str_release(&text);
    return yes;
}

/* --- Attributes ------------------------------------------------------------------------------ */

/* what is known of a match so far: not evaluated, matches, does not match */
enum { UNKNOWN, YES, NO };

static bool match_value(struct br_matcher *matcher, const struct br_matcher_attribute *left,
                        const struct br_attribute *found)
{
    if (!left->has_value)
        return true;
    if (!left->pattern.count)
        return br_value_equal(left->value, found->value);
    struct br_any any = br_any_read(found->value);
    bool has_text = any.type >= BR_VALUE_STRING && any.type <= BR_VALUE_DOUBLE;
    return has_text && match_value_text(matcher, &left->pattern, &any, true);
}

/* Returns true if an attribute value of the dictionary fulfils the criterion. Stores the result,
 * so that each value is matched only once. */
static bool match_known_value(struct br_matcher *matcher, int index, size_t criterion,
                              const struct br_attribute *found)
{
    const struct br_matcher_attribute *left =
        &matcher->matches[index]->attributes.attributes[criterion];
    if (!found->entry || !matcher->values[index])
        return match_value(matcher, left, found);
    uint8_t *memo =
        &matcher->values[index][criterion * matcher->view.count[BR_TABLE_ATTRIBUTE] + found->entry];
    if (*memo == UNKNOWN)
        *memo = match_value(matcher, left, found) ? YES : NO;
    return *memo == YES;
}

/* Returns true if an attribute of the current profile fulfils the criterion. Called for samples
 * that have no attribute with the criterion's key. */
static bool match_common(struct br_matcher *matcher, int index, size_t criterion)
{
    uint8_t *memo =
        matcher->common_values[index] ? &matcher->common_values[index][criterion] : NULL;
    if (!memo)
        return false;
    if (*memo == UNKNOWN) {
        const struct br_matcher_attribute *left =
            &matcher->matches[index]->attributes.attributes[criterion];
        const struct br_attribute *found =
            br_attributes_find(&matcher->common, left->key, left->key_len);
        *memo = found && match_known_value(matcher, index, criterion, found) ? YES : NO;
    }
    return *memo == YES;
}

/* Returns true if the attributes of a span or sample match. If a sample has no attribute with
 * the key of a criterion, the attributes of its profile are matched. */
static bool match_own(struct br_matcher *matcher, int index)
{
    const struct br_matcher_attributes *left = &matcher->matches[index]->attributes;
    for (size_t c = 0; c < left->count; c++) {
        const struct br_attribute *found = br_attributes_find(
            &matcher->list, left->attributes[c].key, left->attributes[c].key_len);
        if (found ? !match_known_value(matcher, index, c, found) : !match_common(matcher, index, c))
            return false;
    }
    return true;
}

static bool match_attributes(struct br_matcher *matcher, const struct br_matcher_attributes *left)
{
    for (size_t i = 0; i < left->count; i++) {
        const struct br_attribute *found = br_attributes_find(
            &matcher->list, left->attributes[i].key, left->attributes[i].key_len);
        if (!found || !match_value(matcher, &left->attributes[i], found))
            return false;
    }
    return true;
}

/* If the list of attributes could not be read (`ok` is false), records the reason. Returns `ok`. */
static bool match_listed(struct br_matcher *matcher, bool ok)
{
    if (!ok)
        matcher->rc = matcher->list.too_many || matcher->common.too_many ? BR_EFULL : BR_ENOMEM;
    return ok;
}

/* --- Resources, scopes and profiles ----------------------------------------------------------- */

static void match_read_resource(struct br_matcher *matcher)
{
    size_t len;
    const uint8_t *data = br_part_resource(&matcher->item->parts[matcher->part], &len);
    bool asked = false;
    for (int i = 0; i < BR_MATCHES; i++)
        asked = asked || (matcher->matches[i] && (matcher->matches[i]->services.count ||
                                                  matcher->matches[i]->resources.count));
    matcher->resource[0] = matcher->resource[1] = true;
    if (!asked || !match_listed(matcher, br_attributes_read(&matcher->list, BR_RESOURCE_ATTRIBUTES,
                                                            data, len)))
        return;
    static const char key[] = "service.name";
    const struct br_attribute *service = br_attributes_find(&matcher->list, key, sizeof key - 1);
    struct br_any name = {
        .type = BR_VALUE_STRING, .data = (const uint8_t *)NO_SERVICE, .len = sizeof NO_SERVICE - 1};
    if (service)
        name = br_any_read(service->value);
    for (int i = 0; i < BR_MATCHES; i++) {
        const struct br_match *match = matcher->matches[i];
        matcher->resource[i] =
            match &&
            (!match->services.count || match_value_text(matcher, &match->services, &name, false)) &&
            match_attributes(matcher, &match->resources);
    }
}

static struct br_entry match_text_field(const uint8_t *p, size_t len, uint32_t number)
{
    const uint8_t *end = len ? p + len : p;
    struct br_entry text = {NULL, 0};
    struct br_field field;
    br_steps_add(len);
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(number))
            text = (struct br_entry){field.data, (uint32_t)field.value};
    return text;
}

static bool match_libraries(struct br_matcher *matcher, const struct br_match *match)
{
    for (size_t i = 0; i < match->n_libraries; i++) {
        const struct br_matcher_library *library = &match->libraries[i];
        struct br_entry name =
            match_text_field(matcher->groups.scope, matcher->groups.scope_len, BR_SCOPE_NAME);
        struct br_entry version =
            match_text_field(matcher->groups.scope, matcher->groups.scope_len, BR_SCOPE_VERSION);
        if (!match_text(matcher, &library->name, name.data, name.len) ||
            (library->version.count &&
             !match_text(matcher, &library->version, version.data, version.len)))
            return false;
    }
    return true;
}

static bool match_sample_type(struct br_matcher *matcher, int at)
{
    const struct br_match *match = matcher->matches[at];
    const uint8_t *p = matcher->groups.body, *end = p + matcher->groups.body_len;
    uint64_t index = 0;
    struct br_field field, inner;
    if (!match->sample_types.count || matcher->item->signal == BR_TRACES)
        return !match->sample_types.count;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_PROFILE_SAMPLE_TYPE))
            continue;
        for (const uint8_t *q = field.data; q && q < p && (q = br_scan(q, p, &inner));)
            if (br_scan_tag(&inner) == BR_SCAN_VARINT(BR_VALUE_TYPE_TYPE))
                index = inner.value;
    }
    struct br_entry name = br_dictionary_string(&matcher->view, (uint32_t)index);
    uint8_t *memo =
        index < matcher->view.count[BR_TABLE_STRING] ? &matcher->types[at][index] : NULL;
    if (!memo || *memo == UNKNOWN) {
        bool yes = match_text(matcher, &match->sample_types, name.data, name.len);
        if (memo)
            *memo = yes ? YES : NO;
        return yes;
    }
    return *memo == YES;
}

static void match_read_group(struct br_matcher *matcher)
{
    if (matcher->groups.part != matcher->part) {
        matcher->part = matcher->groups.part;
        match_read_resource(matcher);
    }
    for (int i = 0; i < BR_MATCHES; i++) {
        const struct br_match *match = matcher->matches[i];
        matcher->group[i] = false;
        if (!match)
            continue;
        if (!matcher->groups.scope || matcher->groups.scope != matcher->scope)
            matcher->library[i] = match_libraries(matcher, match);
        matcher->group[i] =
            matcher->resource[i] && matcher->library[i] && match_sample_type(matcher, i);
        if (matcher->common_values[i])
            memset(matcher->common_values[i], UNKNOWN, match->attributes.count);
    }
    matcher->scope = matcher->groups.scope;
    matcher->common_read = false;
}

/* --- Functions ------------------------------------------------------------------------------- */

static bool match_name(struct br_matcher *matcher, int at, uint64_t index)
{
    if (index >= matcher->view.count[BR_TABLE_STRING])
        return match_text(matcher, &matcher->matches[at]->functions, NULL, 0);
    uint8_t *memo = &matcher->names[at][index];
    if (*memo == UNKNOWN) {
        struct br_entry name = br_dictionary_string(&matcher->view, (uint32_t)index);
        *memo =
            match_text(matcher, &matcher->matches[at]->functions, name.data, name.len) ? YES : NO;
    }
    return *memo == YES;
}

static bool match_function(struct br_matcher *matcher, int at, uint64_t index)
{
    if (index == 0 || index >= matcher->view.count[BR_TABLE_FUNCTION])
        return false;
    uint8_t *memo = &matcher->functions[at][index];
    if (*memo != UNKNOWN)
        return *memo == YES;
    const struct br_entry *entry = &matcher->view.tables[BR_TABLE_FUNCTION][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    uint64_t name = 0;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_FUNCTION_NAME))
            name = field.value;
    *memo = match_name(matcher, at, name) ? YES : NO;
    return *memo == YES;
}

static bool match_location(struct br_matcher *matcher, int at, uint64_t index)
{
    if (index == 0 || index >= matcher->view.count[BR_TABLE_LOCATION])
        return false;
    uint8_t *memo = &matcher->locations[at][index];
    if (*memo != UNKNOWN)
        return *memo == YES;
    const struct br_entry *entry = &matcher->view.tables[BR_TABLE_LOCATION][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field, line;
    *memo = NO;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_LOCATION_LINES))
            continue;
        for (const uint8_t *q = field.data; q && q < p && (q = br_scan(q, p, &line));)
            if (br_scan_tag(&line) == BR_SCAN_VARINT(BR_LINE_FUNCTION) &&
                match_function(matcher, at, line.value))
                *memo = YES;
    }
    return *memo == YES;
}

static bool match_stack(struct br_matcher *matcher, int at, uint64_t index)
{
    if (index == 0 || index >= matcher->view.count[BR_TABLE_STACK])
        return false;
    uint8_t *memo = &matcher->stacks[at][index];
    if (*memo != UNKNOWN)
        return *memo == YES;
    const struct br_entry *entry = &matcher->view.tables[BR_TABLE_STACK][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field;
    *memo = NO;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint64_t location;
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_STACK_LOCATIONS) &&
            match_location(matcher, at, field.value))
            *memo = YES;
        else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_STACK_LOCATIONS))
            for (const uint8_t *q = field.data;
                 q && q < p && (q = br_scan_varint(q, p, &location));)
                if (match_location(matcher, at, location))
                    *memo = YES;
    }
    return *memo == YES;
}

static bool match_functions(struct br_matcher *matcher, int index, const struct br_visit *visit)
{
    const uint8_t *p = visit->body, *end = p + visit->len;
    uint64_t stack = 0;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_SAMPLE_STACK))
            stack = field.value;
    return match_stack(matcher, index, stack);
}

/* --- Items ----------------------------------------------------------------------------------- */

static bool match_kind(struct br_matcher *matcher, const struct br_matcher_texts *kinds,
                       uint64_t kind)
{
    const char *name = kind < BR_SPAN_KINDS ? br_span_kinds[kind] : "";
    return match_text(matcher, kinds, name, strlen(name));
}

static bool match_span(struct br_matcher *matcher, const struct br_match *match,
                       const struct br_visit *visit)
{
    const uint8_t *p = visit->body, *end = p + visit->len;
    struct br_entry name = {NULL, 0};
    struct br_field field;
    uint64_t kind = 0;
    if (!match->span_names.count && !match->span_kinds.count)
        return true;
    br_steps_add(visit->len);
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_SPAN_NAME))
            name = (struct br_entry){field.data, (uint32_t)field.value};
        else if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_SPAN_KIND))
            kind = field.value;
    }
    return (!match->span_names.count ||
            match_text(matcher, &match->span_names, name.data, name.len)) &&
           (!match->span_kinds.count || match_kind(matcher, &match->span_kinds, kind));
}

/* Reads the attributes of the visited span or sample into `list`. For a sample, also reads the
 * attributes of its profile into `common`. */
static bool match_read_attributes(struct br_matcher *matcher, const struct br_visit *visit)
{
    if (matcher->item->signal == BR_TRACES)
        return br_attributes_read(&matcher->list, BR_SPAN_ATTRIBUTES, visit->body, visit->len);
    br_attributes_clear(&matcher->list);
    if (!matcher->common_read) {
        br_attributes_clear(&matcher->common);
        matcher->common_read =
            br_sample_attributes_add(&matcher->common, &matcher->view, BR_PROFILE_ATTRIBUTES,
                                     matcher->groups.body, matcher->groups.body_len);
    }
    return matcher->common_read &&
           (visit->level == BR_LEVEL_PROFILE ||
            br_sample_attributes_add(&matcher->list, &matcher->view, BR_SAMPLE_ATTRIBUTES,
                                     visit->body, visit->len));
}

static bool match_item(struct br_matcher *matcher, int index, const struct br_visit *visit,
                       bool *is_listed)
{
    const struct br_match *match = matcher->matches[index];
    bool span = matcher->item->signal == BR_TRACES,
         sample = !span && visit->level == BR_LEVEL_RECORD;
    if (!matcher->group[index])
        return false;
    if (span ? !match_span(matcher, match, visit)
             : match->span_names.count || match->span_kinds.count)
        return false;
    if (match->functions.count && (!sample || !match_functions(matcher, index, visit)))
        return false;
    if (!match->attributes.count)
        return true;
    if (!*is_listed && !match_listed(matcher, match_read_attributes(matcher, visit)))
        return false;
    *is_listed = true;
    return match_own(matcher, index);
}

int br_matcher_passes(struct br_matcher *matcher, const struct br_visit *visit)
{
    bool is_listed = false;
    if (!br_matcher_active(matcher))
        return 1;
    if (visit->level == BR_LEVEL_PROFILE ? br_groups_at_profile(&matcher->groups, visit->index)
                                         : br_groups_at_item(&matcher->groups, visit->index))
        match_read_group(matcher);
    bool passes = (!matcher->matches[0] || match_item(matcher, 0, visit, &is_listed)) &&
                  (!matcher->matches[1] || !match_item(matcher, 1, visit, &is_listed));
    return matcher->rc ? matcher->rc : passes;
}

/* The argument of match_on_message. */
struct match_rewriting {
    struct br_matcher *matcher;
    struct br_arena *scratch;
    br_visit_fn *edit;
    void *arg;
};

static int match_on_message(void *arg, struct br_visit *visit)
{
    const struct match_rewriting *rewriting = arg;
    int verdict = br_matcher_passes(rewriting->matcher, visit);
    if (verdict == BR_ENOMEM)
        return br_arena_why(&rewriting->matcher->arena);
    if (verdict <= 0)
        /* a result of 0 means BR_KEEP: the message does not match and stays unchanged */
        return verdict;
    verdict = rewriting->edit(rewriting->arg, visit);
    if (verdict == BR_ENOMEM)
        verdict = br_arena_why(rewriting->scratch);
    br_arena_release(rewriting->scratch);
    return verdict;
}

int br_matcher_rewrite(struct br_matcher *matcher, unsigned levels, struct br_arena *scratch,
                       br_visit_fn *edit, void *arg)
{
    struct match_rewriting rewriting = {matcher, scratch, edit, arg};
    return br_item_rewrite(matcher->item, levels, match_on_message, &rewriting);
}

/* --- Preparation for an item, and its groups ------------------------------------------------- */

static bool match_make_memo(struct br_matcher *matcher, uint8_t **memo, size_t count)
{
    *memo = br_arena_calloc(&matcher->arena, count, 1);
    return *memo != NULL;
}

static int match_make_memos(struct br_matcher *matcher)
{
    const uint32_t *n = matcher->view.count;
    bool ok = true;
    for (int i = 0; i < BR_MATCHES && ok; i++) {
        const struct br_match *match = matcher->matches[i];
        if (match && match->functions.count)
            ok = match_make_memo(matcher, &matcher->names[i], n[BR_TABLE_STRING]) &&
                 match_make_memo(matcher, &matcher->functions[i], n[BR_TABLE_FUNCTION]) &&
                 match_make_memo(matcher, &matcher->locations[i], n[BR_TABLE_LOCATION]) &&
                 match_make_memo(matcher, &matcher->stacks[i], n[BR_TABLE_STACK]);
        if (ok && match && match->sample_types.count)
            ok = match_make_memo(matcher, &matcher->types[i], n[BR_TABLE_STRING]);
        if (ok && match && match->attributes.count)
            ok = match_make_memo(matcher, &matcher->common_values[i], match->attributes.count) &&
                 match_make_memo(matcher, &matcher->values[i],
                                 match->attributes.count * n[BR_TABLE_ATTRIBUTE]);
    }
    return ok ? 0 : br_arena_why(&matcher->arena);
}

int br_matcher_begin(struct br_matcher *matcher, struct br_item *item)
{
    matcher->item = item;
    matcher->part = UINT32_MAX;
    matcher->rc = 0;
    matcher->scope = NULL;
    matcher->list.arena = matcher->common.arena = matcher->memo.arena = &matcher->arena;
    matcher->list.memo = matcher->common.memo = &matcher->memo;
    matcher->common_read = false;
    for (int i = 0; i < BR_MATCHES; i++)
        matcher->values[i] = matcher->common_values[i] = NULL;
    br_arena_init(&matcher->arena, ARENA_MAX);
    int rc = item->signal == BR_PROFILES && br_item_has_references(item)
                 ? br_item_inline_references(item)
                 : 0;
    if (!rc && item->signal == BR_PROFILES)
        rc = br_dictionary_index(item, &matcher->arena, &matcher->view);
    br_groups_init(&matcher->groups, item);
    if (!rc && item->signal == BR_PROFILES)
        rc = match_make_memos(matcher);
    return rc == BR_ENOMEM ? br_arena_why(&matcher->arena) : rc;
}

void br_matcher_end(struct br_matcher *matcher)
{
    br_value_memo_release(&matcher->memo);
    br_arena_release(&matcher->arena);
    matcher->item = NULL;
}
