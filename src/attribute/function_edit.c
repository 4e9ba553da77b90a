/* SPDX-License-Identifier: Apache-2.0 */
/* The editors: functions that change data. Each behaves as in pkg/ottl/ottlfuncs 0.165. */
#include <string.h>

#include "attribute/expression.h"
#include "base/bytes.h"
#include "base/lexer.h"
#include "base/str.h"
#include "wire/protobuf.h"

#define SHORT 64 /* maximum length in bytes of a text whose replacement is not stored */

static bool function_text_of(struct br_conditions *conditions, struct br_expression *call,
                             unsigned index, struct br_any *ret)
{
    *ret = br_expression_value(conditions, call->items[index]);
    if (br_conditions_stopped(conditions))
        return false;
    if (ret->type != BR_VALUE_STRING)
        return br_conditions_fail(conditions, "%s: %s must be a string but is %s",
                                  call->function->name, call->function->parameters[index].name,
                                  br_any_name(ret));
    return br_conditions_work(conditions, ret->len);
}

static bool function_set(struct br_conditions *conditions, struct br_expression *call,
                         struct br_any *ret)
{
    struct br_any value = br_expression_value(conditions, call->items[1]);
    (void)ret;
    return !br_conditions_stopped(conditions) && br_path_write(conditions, call->items[0], value);
}

/* --- Keys ------------------------------------------------------------------------------------- */

static bool function_delete_key(struct br_conditions *conditions, struct br_expression *call,
                                struct br_any *ret)
{
    struct br_map_edit edit;
    struct br_any key;
    (void)ret;
    if (!function_text_of(conditions, call, 1, &key) ||
        !br_map_edit_begin(conditions, call->items[0], &edit))
        return false;
    struct br_attribute *found = br_attributes_find(edit.list, key.data, key.len);
    if (found)
        found->deleted = true;
    return br_map_edit_end(conditions, &edit, true);
}

static bool function_delete_matching_keys(struct br_conditions *conditions,
                                          struct br_expression *call, struct br_any *ret)
{
    struct br_map_edit edit;
    (void)ret;
    if (!br_map_edit_begin(conditions, call->items[0], &edit))
        return false;
    for (uint32_t i = 0; i < edit.list->count && !conditions->rc; i++) {
        struct br_attribute *piece = &edit.list->pieces[i];
        if (piece->attribute && !piece->deleted)
            piece->deleted =
                br_conditions_match(conditions, call->pattern, piece->key, piece->key_len);
    }
    return br_map_edit_end(conditions, &edit, !conditions->rc);
}

/* Returns true if a literal list of strings contains the key of an attribute. */
static bool function_has_key(const struct br_expression *keys, const struct br_attribute *piece)
{
    for (uint32_t i = 0; i < keys->n_items; i++) {
        const struct br_any *key = &keys->items[i]->literal;
        if (br_bytes_equal(key->data, key->len, piece->key, piece->key_len))
            return true;
    }
    return false;
}

static bool function_keep_keys(struct br_conditions *conditions, struct br_expression *call,
                               struct br_any *ret)
{
    struct br_map_edit edit;
    (void)ret;
    if (!br_map_edit_begin(conditions, call->items[0], &edit))
        return false;
    for (uint32_t i = 0; i < edit.list->count && !conditions->rc; i++) {
        struct br_attribute *piece = &edit.list->pieces[i];
        if (piece->attribute && !piece->deleted)
            piece->deleted = !function_has_key(call->items[1], piece);
        (void)br_conditions_work(conditions, call->items[1]->n_items);
    }
    return br_map_edit_end(conditions, &edit, !conditions->rc);
}

static bool function_limit(struct br_conditions *conditions, struct br_expression *call,
                           struct br_any *ret)
{
    struct br_map_edit edit;
    uint64_t most = call->items[1]->literal.number, n = 0, n_kept = 0;
    (void)ret;
    if (!br_map_edit_begin(conditions, call->items[0], &edit))
        return false;
    for (uint32_t i = 0; i < edit.list->count; i++)
        n += edit.list->pieces[i].attribute && !edit.list->pieces[i].deleted;
    for (uint32_t i = 0; i < call->items[2]->n_items && !conditions->rc; i++) {
        const struct br_any *key = &call->items[2]->items[i]->literal;
        n_kept += br_attributes_find(edit.list, key->data, key->len) != NULL;
        (void)br_conditions_work(conditions, edit.list->count);
    }
    for (uint32_t i = 0; i < edit.list->count && n > most; i++) {
        struct br_attribute *piece = &edit.list->pieces[i];
        if (!piece->attribute || piece->deleted || function_has_key(call->items[2], piece))
            continue;
        piece->deleted = n_kept >= most;
        n_kept += !piece->deleted;
    }
    return br_map_edit_end(conditions, &edit, !conditions->rc);
}

/* --- Maps ------------------------------------------------------------------------------------- */

enum { STRATEGY_INSERT, STRATEGY_UPDATE, STRATEGY_UPSERT };

static bool function_merge_maps(struct br_conditions *conditions, struct br_expression *call,
                                struct br_any *ret)
{
    struct br_map_edit edit;
    struct br_keyvalue entry;
    struct br_any source = br_expression_value(conditions, call->items[1]);
    bool ok = true;
    (void)ret;
    if (br_conditions_stopped(conditions))
        return false;
    if (source.type != BR_VALUE_MAP)
        return br_conditions_fail(conditions, "merge_maps: source must be a map but is %s",
                                  br_any_name(&source));
    if (!br_map_edit_begin(conditions, call->items[0], &edit))
        return false;
    const uint8_t *p = source.data, *end = p + source.len;
    while (ok && (p = br_keyvalue_next(p, end, BR_LIST_VALUES, &entry))) {
        bool exists = br_attributes_find(edit.list, entry.key, entry.key_len) != NULL;
        struct br_any value = br_any_read(entry.value);
        ok = br_conditions_work(conditions, edit.list->count * sizeof(uint64_t));
        if (ok && call->mode != (exists ? STRATEGY_INSERT : STRATEGY_UPDATE))
            ok = br_map_edit_put(conditions, &edit, entry.key, entry.key_len, &value);
    }
    return br_map_edit_end(conditions, &edit, ok);
}

static size_t function_cut_len(const struct br_any *text, uint64_t most, bool utf8)
{
    size_t len = (size_t)most;
    while (utf8 && len && (text->data[len] & 0xc0) == 0x80)
        len--;
    return len;
}

static bool function_truncate_all(struct br_conditions *conditions, struct br_expression *call,
                                  struct br_any *ret)
{
    struct br_map_edit edit;
    uint64_t most = call->items[1]->literal.number;
    bool utf8 = !call->items[2] || call->items[2]->literal.number;
    (void)ret;
    if (!br_map_edit_begin(conditions, call->items[0], &edit))
        return false;
    uint32_t count = edit.list->count;
    for (uint32_t i = 0; i < count && !conditions->rc; i++) {
        struct br_attribute *piece = &edit.list->pieces[i];
        struct br_any any = br_any_read(piece->value);
        struct br_value cut;
        if (!piece->attribute || piece->deleted || any.type != BR_VALUE_STRING || any.len <= most)
            continue;
        any.len = function_cut_len(&any, most, utf8);
        if (br_conditions_work(conditions, any.len) && br_any_write(&any, edit.arena, &cut))
            br_attribute_set(piece, cut);
        else if (!conditions->rc)
            conditions->rc = br_arena_why(edit.arena);
    }
    return br_map_edit_end(conditions, &edit, !conditions->rc);
}

/* --- Patterns --------------------------------------------------------------------------------- */

/* A pattern that was found, and the template of its replacement. */
struct replacing {
    struct br_conditions *conditions;
    const pcre2_code *pattern;
    struct br_any template;
    const uint8_t *text;
    const PCRE2_SIZE *groups; /* offsets of the groups of the current match */
    uint32_t n_groups;
    struct br_str out;
};

/* Returns the number of the group with the name, or `n_groups` if the pattern has no such group. */
static uint32_t function_group(const struct replacing *replacing, const char *name, size_t len)
{
    char text[64];
    uint64_t number;
    if (br_decimal_parse(name, len, UINT32_MAX, &number))
        return number < replacing->n_groups ? (uint32_t)number : replacing->n_groups;
    if (len >= sizeof text)
        return replacing->n_groups;
    memcpy(text, name, len);
    text[len] = '\0';
    int found = pcre2_substring_number_from_name(replacing->pattern, (PCRE2_SPTR)text);
    return found > 0 && (uint32_t)found < replacing->n_groups ? (uint32_t)found
                                                              : replacing->n_groups;
}

static void function_add_group(struct replacing *replacing, const char *name, size_t len)
{
    uint32_t group = function_group(replacing, name, len);
    if (group == replacing->n_groups)
        return;
    PCRE2_SIZE from = replacing->groups[2 * (size_t)group],
               to = replacing->groups[2 * (size_t)group + 1];
    if (from != PCRE2_UNSET && from < to)
        br_str_add(&replacing->out, replacing->text + from, to - from);
}

/* Appends the template with references to groups replaced, as Go's Regexp.Expand does: $name,
 * ${name} and $$. The name in $name is as long as possible. A "$" before anything else is kept. */
static void function_expand(struct replacing *replacing)
{
    const char *p = (const char *)replacing->template.data, *end = p + replacing->template.len;
    while (p < end) {
        const char *dollar = memchr(p, '$', (size_t)(end - p)), *stop = dollar ? dollar : end;
        br_str_add(&replacing->out, p, (size_t)(stop - p));
        if (!dollar)
            return;
        p = dollar + 1;
        bool braces = p < end && *p == '{';
        size_t len = br_word_len(p + braces, end);
        bool named = len && (!braces || (p + 1 + len < end && p[1 + len] == '}'));
        if (named) {
            function_add_group(replacing, p + braces, len);
            p += len + (braces ? 2 : 0);
            continue;
        }
        br_str_putc(&replacing->out, '$');
        p += p < end && *p == '$';
    }
}

/* Finds the next match from the offset `start`. Returns false if there is no further match. */
static bool function_find(struct replacing *replacing, size_t len, size_t start)
{
    struct br_conditions *conditions = replacing->conditions;
    int rc = br_regex_search(&conditions->regex, replacing->pattern, replacing->text, len, start);
    if (rc < 0)
        br_conditions_match_failed(conditions, rc);
    return rc > 0;
}

/* Replaces all matches in a text as Go's ReplaceAllString does. An empty match directly after
 * another match is not replaced. Returns false if nothing matches or processing of the item must
 * stop. The caller releases replacing->out. */
static bool function_replace(struct replacing *replacing, const struct br_any *text)
{
    size_t copied = 0, start = 0;
    bool found = false;
    replacing->text = text->len ? text->data : (const uint8_t *)"";
    replacing->out = (struct br_str){.max = BR_BUF_MAX};
    if (!br_conditions_work(replacing->conditions, text->len))
        return false;
    while (start <= text->len && function_find(replacing, text->len, start)) {
        replacing->groups = pcre2_get_ovector_pointer(replacing->conditions->regex.match);
        size_t from = replacing->groups[0], to = replacing->groups[1];
        if (from > to || from < copied)
            /* with \K in an assertion, a match can begin after its end or inside the previous
             * match */
            break;
        br_str_add(&replacing->out, replacing->text + copied, from - copied);
        if (to > copied || from == 0)
            function_expand(replacing);
        found = true;
        copied = to;
        start = to > start ? to : start + 1;
        while (start < text->len && start > to && (replacing->text[start] & 0xc0) == 0x80)
            start++;
        if (replacing->out.failed ||
            !br_conditions_work(replacing->conditions, replacing->template.len + 16))
            break;
    }
    br_str_add(&replacing->out, replacing->text + copied, text->len - copied);
    if (replacing->out.failed && !replacing->conditions->rc)
        replacing->conditions->rc = BR_ENOMEM;
    return found && !replacing->conditions->rc &&
           br_conditions_work(replacing->conditions, replacing->out.len);
}

static bool function_replacing(struct br_conditions *conditions, struct br_expression *call,
                               unsigned template, struct replacing *ret)
{
    uint32_t groups = 0;
    *ret = (struct replacing){.conditions = conditions, .pattern = call->pattern};
    (void)pcre2_pattern_info(call->pattern, PCRE2_INFO_CAPTURECOUNT, &groups);
    ret->n_groups = groups + 1;
    return function_text_of(conditions, call, template, &ret->template);
}

static bool function_replace_pattern(struct br_conditions *conditions, struct br_expression *call,
                                     struct br_any *ret)
{
    struct replacing replacing;
    struct br_any text = br_expression_value(conditions, call->items[0]);
    bool ok = true;
    (void)ret;
    if (br_conditions_stopped(conditions))
        return false;
    if (text.type == BR_VALUE_EMPTY)
        return true;
    if (!function_replacing(conditions, call, 2, &replacing))
        return false;
    if (text.type != BR_VALUE_STRING)
        return true;
    if (function_replace(&replacing, &text))
        ok = br_path_write(conditions, call->items[0],
                           br_any_string(replacing.out.data, replacing.out.len));
    br_str_release(&replacing.out);
    return ok && !conditions->rc;
}

enum { MODE_KEY, MODE_VALUE };

/* Returns the text with its matches replaced, in the arena. Returns `text` if nothing matches, and
 * NULL if processing of the item must stop. */
static const struct br_any *function_replaced(struct replacing *replacing, struct br_arena *arena,
                                              const struct br_any *text)
{
    struct br_any *made = NULL;
    bool found = function_replace(replacing, text);
    uint8_t *copy = found ? br_arena_alloc(arena, replacing->out.len + 1) : NULL;
    if (copy)
        made = br_arena_alloc(arena, sizeof *made);
    if (made) {
        (void)br_put_bytes(copy, replacing->out.data, replacing->out.len);
        *made = br_any_string(copy, replacing->out.len);
    } else if (found) {
        replacing->conditions->rc = br_arena_why(arena);
    }
    br_str_release(&replacing->out);
    return found || replacing->conditions->rc ? made : text;
}

/* Like function_replaced, but stores the result, because other records may have the same long
 * text. */
static const struct br_any *function_replaced_entry(struct replacing *replacing,
                                                    const struct br_expression *call,
                                                    const struct br_any *text)
{
    struct br_conditions *conditions = replacing->conditions;
    const uintptr_t key[3] = {(uintptr_t)call, (uintptr_t)text->data, text->len};
    /* stored instead of an address if the replacement leaves the text unchanged */
    enum { UNCHANGED = 1 };
    uintptr_t known = br_conditions_known(conditions, key);
    if (known)
        return known == UNCHANGED ? text : (const struct br_any *)known;
    const struct br_any *made = function_replaced(replacing, &conditions->arena, text);
    if (made)
        br_conditions_keep(conditions, key, made == text ? UNCHANGED : (uintptr_t)made);
    return conditions->rc ? NULL : made;
}

static bool function_replace_value(struct replacing *replacing, const struct br_expression *call,
                                   const struct br_map_edit *edit, struct br_attribute *piece)
{
    struct br_any text = br_any_read(piece->value);
    struct br_value value;
    if (text.type != BR_VALUE_STRING)
        return true;
    bool shared = piece->entry && !piece->edited && text.len > SHORT &&
                  call->items[3]->kind == BR_EXPRESSION_LITERAL;
    const struct br_any *made =
        shared ? function_replaced_entry(replacing, call, &text)
               : function_replaced(replacing, &replacing->conditions->scratch, &text);
    if (!made || made == &text)
        return made != NULL;
    if (!br_conditions_work(replacing->conditions, made->len))
        return false;
    if (br_any_write(made, edit->arena, &value))
        br_attribute_set(piece, value);
    else
        replacing->conditions->rc = br_arena_why(edit->arena);
    return !replacing->conditions->rc;
}

/* Renames the key of attribute `index`. If an earlier attribute has the new key already, that
 * attribute gets the value and attribute `index` is deleted. This also applies to a key that the
 * pattern does not match, because an earlier attribute may have been renamed to it. */
static bool function_replace_key(struct replacing *replacing, const struct br_map_edit *edit,
                                 uint32_t index)
{
    struct br_conditions *conditions = replacing->conditions;
    struct br_attribute *piece = &edit->list->pieces[index];
    struct br_any text = br_any_string(piece->key, piece->key_len);
    bool found = function_replace(replacing, &text);
    const void *name = found ? replacing->out.data : (const void *)piece->key;
    size_t len = found ? replacing->out.len : piece->key_len;
    struct br_attributes before = *edit->list;
    before.count = index;
    struct br_attribute *same =
        br_conditions_work(conditions, index) ? br_attributes_find(&before, name, len) : NULL;
    uint8_t *key = found && !same && !conditions->rc ? br_arena_alloc(edit->arena, len + 1) : NULL;
    if (same) {
        br_attribute_set(same, piece->value);
        piece->deleted = true;
    } else if (key) {
        (void)br_put_bytes(key, name, len);
        piece->key = key;
        piece->key_len = len;
        piece->key_string = 0;
        piece->edited = true;
    } else if (found && !conditions->rc) {
        conditions->rc = br_arena_why(edit->arena);
    }
    br_str_release(&replacing->out);
    return !conditions->rc;
}

static bool function_replace_all_patterns(struct br_conditions *conditions,
                                          struct br_expression *call, struct br_any *ret)
{
    struct br_map_edit edit;
    struct replacing replacing;
    bool ok = true;
    (void)ret;
    if (!function_replacing(conditions, call, 3, &replacing) ||
        !br_map_edit_begin(conditions, call->items[0], &edit))
        return false;
    for (uint32_t i = 0; i < edit.list->count && ok; i++) {
        struct br_attribute *piece = &edit.list->pieces[i];
        if (!piece->attribute || piece->deleted)
            continue;
        ok = call->mode == MODE_VALUE ? function_replace_value(&replacing, call, &edit, piece)
                                      : function_replace_key(&replacing, &edit, i);
    }
    return br_map_edit_end(conditions, &edit, ok);
}

/* --- The table -------------------------------------------------------------------------------- */

#define PARAMETER(name_, kind_)                                                                    \
    {                                                                                              \
        .name = (name_), .kind = BR_PARAMETER_##kind_                                              \
    }

#define TYPED(name_, type)                                                                         \
    {                                                                                              \
        .name = (name_), .kind = BR_PARAMETER_VALUE, .literals = 1u << BR_VALUE_##type             \
    }

const struct br_function br_editors[] = {
    {"delete_key", function_delete_key, false, {PARAMETER("target", MAP), TYPED("key", STRING)}},
    {"delete_matching_keys",
     function_delete_matching_keys,
     false,
     {PARAMETER("target", MAP), PARAMETER("pattern", PATTERN)}},
    {"keep_keys", function_keep_keys, false, {PARAMETER("target", MAP), PARAMETER("keys", KEYS)}},
    {"limit",
     function_limit,
     false,
     {PARAMETER("target", MAP), PARAMETER("limit", COUNT), PARAMETER("priority_keys", KEYS)}},
    {"merge_maps",
     function_merge_maps,
     false,
     {PARAMETER("target", MAP),
      TYPED("source", MAP),
      {.name = "strategy",
       .kind = BR_PARAMETER_MODE,
       .choices = {[STRATEGY_INSERT] = "insert",
                   [STRATEGY_UPDATE] = "update",
                   [STRATEGY_UPSERT] = "upsert"}}}},
    {"replace_all_patterns",
     function_replace_all_patterns,
     false,
     {PARAMETER("target", MAP),
      {.name = "mode",
       .kind = BR_PARAMETER_MODE,
       .choices = {[MODE_KEY] = "key", [MODE_VALUE] = "value"}},
      PARAMETER("regex_pattern", PATTERN),
      TYPED("replacement", STRING)}},
    {"replace_pattern",
     function_replace_pattern,
     false,
     {PARAMETER("target", TARGET), PARAMETER("regex_pattern", PATTERN),
      TYPED("replacement", STRING)}},
    {"set", function_set, false, {PARAMETER("target", TARGET), PARAMETER("value", VALUE)}},
    {"truncate_all",
     function_truncate_all,
     false,
     {PARAMETER("target", MAP),
      PARAMETER("limit", COUNT),
      {.name = "utf8_safe", .kind = BR_PARAMETER_BOOL, .optional = true}}},
    {.name = NULL},
};
