/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "processors/redaction/clean.h"
#include "wire/protobuf.h"

/* longest result of masking a text, in bytes; a text whose result would be longer is masked as a
 * whole */
#define TEXT_MAX (32u << 20)
#define TEXT_KEPT (1u << 20)
/* largest number of ranges that are masked in a text; a text with more ranges is masked as a
 * whole */
#define RANGES_MAX 65536u
#define PATTERN_MAX (1u << 20)
#define NAMES_MAX (1u << 20)

enum { MEMO_WHOLE = REDACT_KINDS, MEMO_KEY };
#define STAYS 0 /* stored instead of a result if the rules do not change the text */

/* --- Compiling ------------------------------------------------------------------------------- */

static int redact_rules_add_name(struct redact_rules *rules, const char *option, const char *text)
{
    struct br_str name = {.max = PATTERN_MAX};
    if (br_grow(&rules->names, &rules->cap_names, (size_t)rules->n_names + 1, sizeof *rules->names,
                UINT16_MAX))
        return BR_ENOMEM;
    br_str_printf(&name, "%s%s%.200s", option, *text ? ": " : "", text);
    char *copy = name.failed ? NULL : br_strdup(name.data);
    br_str_release(&name);
    if (!copy)
        return BR_ENOMEM;
    rules->names[rules->n_names++] = copy;
    return 0;
}

const char *redact_rule_name(const struct redact_rules *rules, uint16_t rule)
{
    return rule < rules->n_names ? rules->names[rule] : "";
}

static int redact_rules_add_pattern(struct redact_rules *rules, struct redact_patterns *list,
                                    const char *option, const char *text, const char *shown,
                                    struct br_err *err)
{
    char why[BR_REGEX_WHY_SIZE];
    if (!list->count)
        list->first = (uint16_t)rules->n_names;
    if (redact_rules_add_name(rules, option, shown) ||
        br_grow(&list->items, &list->cap, (size_t)list->count + 1, sizeof *list->items, UINT32_MAX))
        return BR_ENOMEM;
    int rc = br_regex_compile(&rules->regex, text, &list->items[list->count], why);
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "\"%s\" is not a valid regular expression: %s", text, why);
    list->count += !rc;
    return rc;
}

static int redact_rules_add_patterns(struct redact_rules *rules, struct redact_patterns *list,
                                     const char *option, const struct br_strings *texts,
                                     struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < texts->count && !rc; i++) {
        const char *text = texts->items[i] ? texts->items[i] : "";
        rc = redact_rules_add_pattern(rules, list, option, text, text, err);
    }
    return rc;
}

static void redact_rules_put_quoted(struct br_str *out, const char *text)
{
    br_str_puts(out, "\\Q");
    for (const char *end; (end = strstr(text, "\\E")); text = end + 2) {
        br_str_add(out, text, (size_t)(end - text));
        br_str_puts(out, "\\E\\\\E\\Q");
    }
    br_str_puts(out, text);
    br_str_puts(out, "\\E");
}

/* Combines all words into one pattern, for which the regular expression compiler generates
 * machine code. */
static int redact_rules_add_words(struct redact_rules *rules, struct redact_patterns *list,
                                  const char *option, const struct br_strings *words,
                                  struct br_err *err)
{
    struct br_str pattern = {.max = PATTERN_MAX}, shown = {.max = PATTERN_MAX};
    size_t n = 0;
    for (size_t i = 0; i < words->count; i++) {
        if (!words->items[i] || !*words->items[i])
            continue;
        br_str_puts(&shown, n ? ", " : "");
        br_str_puts(&shown, words->items[i]);
        br_str_puts(&pattern, n++ ? "|" : "(?i)(?:");
        redact_rules_put_quoted(&pattern, words->items[i]);
    }
    br_str_puts(&pattern, ")");
    int rc = 0;
    if (pattern.failed || shown.failed)
        rc = BR_ENOMEM;
    else if (n)
        rc = redact_rules_add_pattern(rules, list, option, pattern.data, shown.data, err);
    br_str_release(&pattern);
    br_str_release(&shown);
    return rc;
}

static int redact_rules_add_names(struct br_map **map, const struct br_strings *names)
{
    if (!*map)
        *map = br_map_new(NAMES_MAX);
    int rc = *map ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < names->count && !rc; i++) {
        const char *name = names->items[i] ? names->items[i] : "";
        rc = br_map_put(*map, name, strlen(name), *map, NULL);
    }
    return rc;
}

static int redact_rules_compile_systems(struct redact_rules *rules,
                                        const struct redact_db_sanitizer *config)
{
    const struct redact_db_system *const systems[REDACT_DBS] = {
        [REDACT_DB_SQL] = &config->sql,       [REDACT_DB_REDIS] = &config->redis,
        [REDACT_DB_VALKEY] = &config->valkey, [REDACT_DB_MEMCACHED] = &config->memcached,
        [REDACT_DB_MONGO] = &config->mongo,   [REDACT_DB_OPENSEARCH] = &config->opensearch,
        [REDACT_DB_ES] = &config->es,
    };
    int rc = 0;
    for (size_t i = 0; i < REDACT_DBS && !rc; i++) {
        if (!systems[i]->enabled)
            continue;
        rules->db_enabled = true;
        rc = redact_rules_add_names(&rules->db_names[i], &systems[i]->attributes);
    }
    return rc;
}

static int redact_rules_compile_keys(struct redact_rules *rules, const struct redact_config *config,
                                     struct br_err *err)
{
    int rc = redact_rules_add_names(&rules->allowed_names, &config->allowed_keys);
    if (!rc)
        rc = redact_rules_add_names(&rules->ignored_names, &config->ignored_keys);
    if (!rc && config->url_sanitizer.enabled)
        rc = redact_rules_add_names(&rules->url_names, &config->url_sanitizer.attributes);
    if (!rc)
        rc = redact_rules_compile_systems(rules, &config->db_sanitizer);
    if (!rc)
        rc = redact_rules_add_patterns(rules, &rules->ignored_keys, "ignored_key_patterns",
                                       &config->ignored_key_patterns, err);
    if (!rc)
        rc = redact_rules_add_patterns(rules, &rules->blocked_keys, "blocked_key_patterns",
                                       &config->blocked_key_patterns, err);
    return rc ? rc
              : redact_rules_add_words(rules, &rules->key_words, "blocked_key_words",
                                       &config->blocked_key_words, err);
}

static int redact_rules_compile_texts(struct redact_rules *rules,
                                      const struct redact_config *config, struct br_err *err)
{
    const struct redact_names values = {config->blocked_values, config->blocked_value_words};
    const struct redact_names *const names[REDACT_KINDS] = {
        [REDACT_VALUE] = &values,
        [REDACT_SPAN] = &config->span_names,
        [REDACT_FUNCTION] = &config->function_names,
        [REDACT_PATH] = &config->file_paths,
    };
    static const char *const options[REDACT_KINDS][2] = {
        [REDACT_VALUE] = {"blocked_values", "blocked_value_words"},
        [REDACT_SPAN] = {"span_names.patterns", "span_names.words"},
        [REDACT_FUNCTION] = {"function_names.patterns", "function_names.words"},
        [REDACT_PATH] = {"file_paths.patterns", "file_paths.words"},
    };
    int rc = redact_rules_add_patterns(rules, &rules->allowed, "allowed_values",
                                       &config->allowed_values, err);
    for (unsigned i = 0; i < REDACT_KINDS && !rc; i++) {
        rc = redact_rules_add_patterns(rules, &rules->blocked[i], options[i][0],
                                       &names[i]->patterns, err);
        if (!rc)
            rc = redact_rules_add_words(rules, &rules->blocked[i], options[i][1], &names[i]->words,
                                        err);
    }
    return rc;
}

int redact_rules_compile(struct redact_rules *rules, const struct redact_config *config,
                         struct br_err *err)
{
    rules->config = config;
    rules->removes = !config->allow_all_keys;
    rules->masking = (struct redact_masking){redact_hash_find(config->hash_function),
                                             config->hmac_key.text, config->masking_string};
    static const char *const fixed[REDACT_RULES_FIXED] = {[REDACT_RULE_ALLOWED] = "allowed_keys",
                                                          [REDACT_RULE_URL] = "url_sanitizer",
                                                          [REDACT_RULE_DB] = "db_sanitizer",
                                                          [REDACT_RULE_TIME] = "match_time"};
    int rc = rules->masking.hash ? 0 : BR_EINVAL;
    for (unsigned i = 0; i < REDACT_RULES_FIXED && !rc; i++)
        rc = redact_rules_add_name(rules, fixed[i], "");
    if (!rc)
        rc = redact_rules_compile_keys(rules, config, err);
    if (!rc)
        rc = redact_rules_compile_texts(rules, config, err);
    if (!rc)
        rc = br_regex_ready(&rules->regex);
    if (!rc)
        br_regex_bound(&rules->regex, &rules->time);
    return rc == BR_EFULL ? BR_ENOMEM : rc;
}

static void redact_rules_release_patterns(struct redact_patterns *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        pcre2_code_free(list->items[i]);
    br_free(list->items);
}

void redact_rules_release(struct redact_rules *rules)
{
    struct redact_patterns *const lists[] = {&rules->ignored_keys, &rules->blocked_keys,
                                             &rules->key_words, &rules->allowed};
    for (size_t i = 0; i < BR_COUNT(lists); i++)
        redact_rules_release_patterns(lists[i]);
    for (unsigned i = 0; i < REDACT_KINDS; i++)
        redact_rules_release_patterns(&rules->blocked[i]);
    br_map_free(rules->allowed_names, NULL);
    br_map_free(rules->ignored_names, NULL);
    br_map_free(rules->url_names, NULL);
    for (uint32_t i = 0; i < rules->n_names; i++)
        br_free(rules->names[i]);
    br_free(rules->names);
    for (size_t i = 0; i < REDACT_DBS; i++)
        br_map_free(rules->db_names[i], NULL);
    redact_memo_release(&rules->memo);
    br_regex_release(&rules->regex);
    br_free(rules->text);
    br_free(rules->next);
    br_free(rules->clean);
    br_free(rules->ranges);
}

/* --- Keys ------------------------------------------------------------------------------------ */

/* Frees a text buffer that has become larger than TEXT_KEPT, so that it is allocated again when
 * needed. */
static void redact_rules_forget_text(uint8_t **text, uint32_t *cap)
{
    if (*cap <= TEXT_KEPT)
        return;
    br_free(*text);
    *text = NULL;
    *cap = 0;
}

void redact_rules_begin(struct redact_rules *rules, const struct br_item *item)
{
    rules->n_gave_up = 0;
    redact_rules_forget_text(&rules->text, &rules->text_cap);
    redact_rules_forget_text(&rules->next, &rules->next_cap);
    redact_rules_forget_text(&rules->clean, &rules->clean_cap);
    br_regex_time_begin(&rules->time, rules->config->match_time, item);
}

/* Returns true if `rc` means that a match was aborted because it took too long. Counts the
 * aborted match. */
static bool redact_rules_gave_up(struct redact_rules *rules, int rc)
{
    if (rc != BR_EFULL)
        return false;
    rules->n_gave_up++;
    if (rules->gave_up)
        ++*rules->gave_up;
    return true;
}

/* Returns 1 if one of the patterns matches, 0 if no pattern matches, or BR_ENOMEM. If a pattern
 * takes too long, `doubt` determines whether the text counts as matched. */
static int redact_rules_any_matches(struct redact_rules *rules, const struct redact_patterns *list,
                                    const void *text, size_t len, bool doubt)
{
    for (uint32_t i = 0; i < list->count; i++) {
        int rc = br_regex_match(&rules->regex, list->items[i], text, len);
        rules->matched = (uint16_t)(list->first + i);
        if (rc == BR_ENOMEM || rc == 1)
            return rc;
        if (redact_rules_gave_up(rules, rc) && doubt)
            return 1;
    }
    return 0;
}

static int redact_rules_look_at_key(struct redact_rules *rules, const void *key, size_t len)
{
    int rc = br_map_get(rules->ignored_names, key, len)
                 ? 1
                 : redact_rules_any_matches(rules, &rules->ignored_keys, key, len, false);
    if (rc)
        return rc < 0 ? rc : REDACT_KEY_PASS;
    rules->matched = REDACT_RULE_ALLOWED;
    if (rules->removes && !br_map_get(rules->allowed_names, key, len))
        return REDACT_KEY_REMOVE;
    rc = redact_rules_any_matches(rules, &rules->blocked_keys, key, len, true);
    if (rc)
        return rc < 0 ? rc : REDACT_KEY_MASK;
    rc = redact_rules_any_matches(rules, &rules->key_words, key, len, true);
    if (rc < 0)
        return rc;
    if (rc)
        return rules->config->redact_all_types ? REDACT_KEY_MASK : REDACT_KEY_MASK_TEXT;
    if (rules->url_names && br_map_get(rules->url_names, key, len))
        return REDACT_KEY_URL;
    return REDACT_KEY_INSPECT;
}

int redact_key(struct redact_rules *rules, const void *key, size_t len)
{
    const struct redact_known *known = redact_memo_get(&rules->memo, MEMO_KEY, key, len);
    if (known) {
        rules->key_rule = known->rule;
        return known->verdict;
    }
    int rc = redact_rules_look_at_key(rules, key, len);
    rules->key_rule = rules->matched;
    if (rc > 0 && !rules->time.spent)
        redact_memo_put(&rules->memo, MEMO_KEY, key, len, (uint8_t)rc, rules->key_rule, NULL, 0);
    return rc;
}

/* --- Texts ----------------------------------------------------------------------------------- */

static int redact_rules_put(struct redact_rules *rules, size_t *at, const void *data, size_t len)
{
    if (*at + len > TEXT_MAX)
        return BR_EFULL;
    if (br_grow(&rules->next, &rules->next_cap, *at + len, 1, TEXT_MAX))
        return BR_ENOMEM;
    if (len)
        memcpy(rules->next + *at, data, len);
    *at += len;
    return 0;
}

/* Makes the text in the buffer rules->next the result, by exchanging that buffer with
 * rules->text. */
static void redact_rules_swap(struct redact_rules *rules, size_t len)
{
    uint8_t *text = rules->text;
    uint32_t cap = rules->text_cap;
    rules->text = rules->next;
    rules->text_cap = rules->next_cap;
    rules->text_len = (uint32_t)len;
    rules->next = text;
    rules->next_cap = cap;
}

static int redact_rules_mask_all(struct redact_rules *rules, const void *text, size_t len)
{
    char mask[REDACT_MASK_MAX];
    size_t at = 0;
    int rc = redact_rules_put(rules, &at, mask, redact_mask(&rules->masking, text, len, mask));
    if (!rc)
        redact_rules_swap(rules, at);
    return rc ? rc : 1;
}

/* Adds every match of one pattern to the ranges. Returns 0, BR_EFULL or BR_ENOMEM. */
static int redact_rules_find(struct redact_rules *rules, const pcre2_code *pattern,
                             const uint8_t *text, size_t len)
{
    size_t done = 0, from, to;
    int rc;
    while ((rc = br_regex_find(&rules->regex, pattern, text, len, done, &from, &to)) == 1) {
        if (rules->n_ranges == RANGES_MAX)
            return BR_EFULL;
        if (br_grow(&rules->ranges, &rules->cap_ranges, (size_t)rules->n_ranges + 1,
                    sizeof *rules->ranges, RANGES_MAX))
            return BR_ENOMEM;
        from = from < done ? done : from;
        rules->ranges[rules->n_ranges++] = (struct redact_range){from, to};
        done = to;
    }
    return rc;
}

static int redact_rules_compare_ranges(const void *left, const void *right)
{
    const struct redact_range *first = left, *second = right;
    return (first->from > second->from) - (first->from < second->from);
}

/* Sorts the ranges and merges those that overlap. */
static void redact_rules_merge(struct redact_rules *rules)
{
    uint32_t n = 0;
    qsort(rules->ranges, rules->n_ranges, sizeof *rules->ranges, redact_rules_compare_ranges);
    for (uint32_t i = 0; i < rules->n_ranges; i++) {
        struct redact_range range = rules->ranges[i];
        if (n && range.from < rules->ranges[n - 1].to)
            rules->ranges[n - 1].to =
                range.to > rules->ranges[n - 1].to ? range.to : rules->ranges[n - 1].to;
        else
            rules->ranges[n++] = range;
    }
    rules->n_ranges = n;
}

/* Adds the matches of all patterns to the ranges. Each pattern is matched against the original
 * text, because in a masked text it could match part of a mask. */
static int redact_rules_find_all(struct redact_rules *rules, const struct redact_patterns *list,
                                 const uint8_t *text, size_t len)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t before = rules->n_ranges;
        int rc = redact_rules_find(rules, list->items[i], text, len);
        if (rc)
            return rc;
        if (before == 0 && rules->n_ranges)
            rules->rule = (uint16_t)(list->first + i);
        else if (rules->n_ranges > before)
            redact_rules_merge(rules);
    }
    return 0;
}

/* Replaces each range of the text by a mask. Returns 1, BR_EFULL or BR_ENOMEM. */
static int redact_rules_mask_ranges(struct redact_rules *rules, const uint8_t *text, size_t len)
{
    size_t at = 0, done = 0;
    char mask[REDACT_MASK_MAX];
    int rc = 0;
    for (uint32_t i = 0; i < rules->n_ranges && !rc; i++) {
        struct redact_range range = rules->ranges[i];
        size_t n = redact_mask(&rules->masking, text + range.from, range.to - range.from, mask);
        rc = redact_rules_put(rules, &at, text + done, range.from - done);
        if (!rc)
            rc = redact_rules_put(rules, &at, mask, n);
        done = range.to;
    }
    if (!rc)
        rc = redact_rules_put(rules, &at, text + done, len - done);
    if (!rc)
        redact_rules_swap(rules, at);
    return rc ? rc : 1;
}

static int redact_rules_inspect_text(struct redact_rules *rules, enum redact_kind kind,
                                     const uint8_t *text, size_t len)
{
    int rc = redact_rules_any_matches(rules, &rules->allowed, text, len, false);
    if (rc)
        return rc < 0 ? rc : 0;
    rules->n_ranges = 0;
    rc = redact_rules_find_all(rules, &rules->blocked[REDACT_VALUE], text, len);
    if (!rc && kind != REDACT_VALUE)
        rc = redact_rules_find_all(rules, &rules->blocked[kind], text, len);
    if (!rc && rules->n_ranges)
        rc = redact_rules_mask_ranges(rules, text, len);
    if (redact_rules_gave_up(rules, rc)) {
        rules->rule = REDACT_RULE_TIME;
        return redact_rules_mask_all(rules, text, len);
    }
    return rc;
}

/* Copies the stored result of an equal text to rules->text. */
static int redact_rules_recall(struct redact_rules *rules, const struct redact_known *known)
{
    if (known->verdict == STAYS)
        return 0;
    rules->rule = known->rule;
    size_t at = 0;
    int rc = redact_rules_put(rules, &at, known->bytes + known->len, known->out_len);
    if (!rc)
        redact_rules_swap(rules, at);
    return rc ? rc : 1;
}

static int redact_rules_look_or_recall(struct redact_rules *rules, uint8_t kind, const void *text,
                                       size_t len)
{
    const struct redact_known *known = redact_memo_get(&rules->memo, kind, text, len);
    if (known)
        return redact_rules_recall(rules, known);
    int rc;
    if (kind == MEMO_WHOLE) {
        rc = redact_rules_any_matches(rules, &rules->allowed, text, len, false);
        if (rc > 0)
            rc = 0;
        else if (rc == 0)
            rc = redact_rules_mask_all(rules, text, len);
    } else {
        rc = redact_rules_inspect_text(rules, (enum redact_kind)kind, text, len);
    }
    if (rc >= 0 && !rules->time.spent)
        redact_memo_put(&rules->memo, kind, text, len, (uint8_t)rc, rules->rule, rules->text,
                        rc ? rules->text_len : 0);
    return rc;
}

int redact_text(struct redact_rules *rules, enum redact_kind kind, const void *text, size_t len)
{
    if (len == 0 || redact_idle(rules, kind))
        return 0;
    return redact_rules_look_or_recall(rules, (uint8_t)kind, text, len);
}

int redact_whole(struct redact_rules *rules, const void *text, size_t len)
{
    return len ? redact_rules_look_or_recall(rules, MEMO_WHOLE, text, len) : 0;
}

/* Applies the rules to the cleaned text in rules->clean. If the rules change nothing, the
 * cleaned text is the result. */
static int redact_rules_apply_to_clean(struct redact_rules *rules, enum redact_kind kind,
                                       const void *text, size_t len, size_t left, uint16_t rule)
{
    size_t at = 0;
    int rc = redact_text(rules, kind, rules->clean, left);
    if (rc || (left == len && memcmp(text, rules->clean, len) == 0))
        return rc;
    rules->rule = rule;
    rc = redact_rules_put(rules, &at, rules->clean, left);
    if (!rc)
        redact_rules_swap(rules, at);
    return rc ? rc : 1;
}

int redact_url(struct redact_rules *rules, enum redact_kind kind, const void *text, size_t len)
{
    if (len == 0 || len > TEXT_MAX)
        return redact_text(rules, kind, text, len);
    if (br_grow(&rules->clean, &rules->clean_cap, len, 1, TEXT_MAX))
        return BR_ENOMEM;
    return redact_rules_apply_to_clean(rules, kind, text, len,
                                       redact_url_clean(text, len, rules->clean), REDACT_RULE_URL);
}

int redact_statement(struct redact_rules *rules, enum redact_kind kind, struct redact_target target,
                     const void *text, size_t len)
{
    if (len == 0)
        return 0;
    rules->rule = REDACT_RULE_DB;
    if (redact_db_size_max(len) > TEXT_MAX)
        return redact_rules_mask_all(rules, text, len);
    if (br_grow(&rules->clean, &rules->clean_cap, redact_db_size_max(len), 1, TEXT_MAX))
        return BR_ENOMEM;
    size_t left = redact_db_clean(target.db, target.mysql, text, len, rules->clean);
    if (left == SIZE_MAX && kind == REDACT_SPAN)
        return redact_text(rules, kind, text, len);
    if (left == SIZE_MAX) {
        rules->clean[0] = '?';
        left = 1;
    }
    if (left == 0 && kind == REDACT_SPAN)
        return redact_text(rules, kind, text, len);
    return redact_rules_apply_to_clean(rules, kind, text, len, left, REDACT_RULE_DB);
}

bool redact_is_statement(const struct redact_rules *rules, struct redact_target target,
                         const void *key, size_t len)
{
    return target.db != REDACT_DBS && rules->db_names[target.db] &&
           br_map_get(rules->db_names[target.db], key, len);
}
