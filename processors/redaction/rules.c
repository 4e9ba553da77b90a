/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/rules.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/protobuf.h"

#define TEXT_MAX (32u << 20) /* a result that would be longer is masked as a whole */
#define TEXT_KEPT (1u << 20)
#define PATTERN_MAX (1u << 20)
#define NAMES_MAX (1u << 20)

enum { MEMO_WHOLE = REDACT_KINDS, MEMO_KEY };
#define STAYS 0 /* the verdict on a text that nothing is blocked in */

/* --- Compiling ------------------------------------------------------------------------------- */

static int add_pattern(struct redact_rules *r, struct redact_patterns *list, const char *text,
                       struct br_err *err)
{
    char why[BR_REGEX_WHY_SIZE];
    if (br_grow(&list->v, &list->cap, (size_t)list->n + 1, sizeof *list->v, UINT32_MAX))
        return BR_ENOMEM;
    int rc = br_regex_compile(&r->regex, text, &list->v[list->n], why);
    if (rc == BR_EINVAL)
        return br_err_set(err, rc, "\"%s\" is no regular expression: %s", text, why);
    list->n += !rc;
    return rc;
}

static int add_patterns(struct redact_rules *r, struct redact_patterns *list,
                        const struct br_strings *texts, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < texts->n && !rc; i++)
        rc = add_pattern(r, list, texts->v[i] ? texts->v[i] : "", err);
    return rc;
}

static void put_quoted(struct br_str *out, const char *text)
{
    br_str_puts(out, "\\Q");
    for (const char *end; (end = strstr(text, "\\E")); text = end + 2) {
        br_str_add(out, text, (size_t)(end - text));
        br_str_puts(out, "\\E\\\\E\\Q");
    }
    br_str_puts(out, text);
    br_str_puts(out, "\\E");
}

/* All words are one pattern, which machine code looks for at once. */
static int add_words(struct redact_rules *r, struct redact_patterns *list,
                     const struct br_strings *words, struct br_err *err)
{
    struct br_str pattern = {.max = PATTERN_MAX};
    size_t n = 0;
    for (size_t i = 0; i < words->n; i++) {
        if (!words->v[i] || !*words->v[i])
            continue;
        br_str_puts(&pattern, n++ ? "|" : "(?i)(?:");
        put_quoted(&pattern, words->v[i]);
    }
    br_str_puts(&pattern, ")");
    int rc = pattern.failed ? BR_ENOMEM : n ? add_pattern(r, list, pattern.data, err) : 0;
    br_str_release(&pattern);
    return rc;
}

static int add_names(struct br_map **map, const struct br_strings *names)
{
    if (!*map)
        *map = br_map_new(NAMES_MAX);
    int rc = *map ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < names->n && !rc; i++) {
        const char *name = names->v[i] ? names->v[i] : "";
        rc = br_map_put(*map, name, strlen(name), *map, NULL);
    }
    return rc;
}

static int compile_keys(struct redact_rules *r, const struct redact_config *c, struct br_err *err)
{
    int rc = add_names(&r->allowed_names, &c->allowed_keys);
    if (!rc)
        rc = add_names(&r->ignored_names, &c->ignored_keys);
    if (!rc)
        rc = add_patterns(r, &r->ignored_keys, &c->ignored_key_patterns, err);
    if (!rc)
        rc = add_patterns(r, &r->blocked_keys, &c->blocked_key_patterns, err);
    return rc ? rc : add_words(r, &r->key_words, &c->blocked_key_words, err);
}

static int compile_texts(struct redact_rules *r, const struct redact_config *c, struct br_err *err)
{
    const struct redact_names values = {c->blocked_values, c->blocked_value_words};
    const struct redact_names *const names[REDACT_KINDS] = {
        [REDACT_VALUE] = &values,
        [REDACT_SPAN] = &c->span_names,
        [REDACT_FUNCTION] = &c->function_names,
        [REDACT_PATH] = &c->file_paths,
    };
    int rc = add_patterns(r, &r->allowed, &c->allowed_values, err);
    for (unsigned i = 0; i < REDACT_KINDS && !rc; i++) {
        rc = add_patterns(r, &r->blocked[i], &names[i]->patterns, err);
        if (!rc)
            rc = add_words(r, &r->blocked[i], &names[i]->words, err);
    }
    return rc;
}

int redact_rules_compile(struct redact_rules *r, const struct redact_config *c, struct br_err *err)
{
    r->config = c;
    r->removes = !c->allow_all_keys;
    r->hash = redact_hash_find(c->hash_function);
    int rc = r->hash ? 0 : BR_EINVAL;
    if (!rc)
        rc = compile_keys(r, c, err);
    if (!rc)
        rc = compile_texts(r, c, err);
    if (!rc)
        rc = br_regex_ready(&r->regex);
    if (!rc)
        br_regex_bound(&r->regex, &r->time);
    return rc == BR_EFULL ? BR_ENOMEM : rc;
}

static void release_patterns(struct redact_patterns *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        pcre2_code_free(list->v[i]);
    br_free(list->v);
}

void redact_rules_release(struct redact_rules *r)
{
    struct redact_patterns *const lists[] = {&r->ignored_keys, &r->blocked_keys, &r->key_words,
                                             &r->allowed};
    for (size_t i = 0; i < BR_COUNT(lists); i++)
        release_patterns(lists[i]);
    for (unsigned i = 0; i < REDACT_KINDS; i++)
        release_patterns(&r->blocked[i]);
    br_map_free(r->allowed_names, NULL);
    br_map_free(r->ignored_names, NULL);
    redact_memo_release(&r->memo);
    br_regex_release(&r->regex);
    br_free(r->text);
    br_free(r->next);
}

/* --- Keys ------------------------------------------------------------------------------------ */

/* Memory that a large text took is given back. */
static void forget_text(uint8_t **text, uint32_t *cap)
{
    if (*cap <= TEXT_KEPT)
        return;
    br_free(*text);
    *text = NULL;
    *cap = 0;
}

void redact_rules_begin(struct redact_rules *r, size_t size)
{
    r->n_gave_up = 0;
    forget_text(&r->text, &r->text_cap);
    forget_text(&r->next, &r->next_cap);
    br_regex_time_begin(&r->time, r->config->match_time, size);
}

/* Counts what a match says: whether it gave up. */
static bool gave_up(struct redact_rules *r, int rc)
{
    if (rc != BR_EFULL)
        return false;
    r->n_gave_up++;
    if (r->gave_up)
        ++*r->gave_up;
    return true;
}

/* Whether one of the patterns matches; `doubt` is the answer where that takes too long. */
static int any_matches(struct redact_rules *r, const struct redact_patterns *list, const void *text,
                       size_t len, bool doubt)
{
    for (uint32_t i = 0; i < list->n; i++) {
        int rc = br_regex_match(&r->regex, list->v[i], text, len);
        if (rc == BR_ENOMEM || rc == 1)
            return rc;
        if (gave_up(r, rc) && doubt)
            return 1;
    }
    return 0;
}

static int look_at_key(struct redact_rules *r, const void *key, size_t len)
{
    int rc = br_map_get(r->ignored_names, key, len)
                 ? 1
                 : any_matches(r, &r->ignored_keys, key, len, false);
    if (rc)
        return rc < 0 ? rc : REDACT_KEY_PASS;
    if (r->removes && !br_map_get(r->allowed_names, key, len))
        return REDACT_KEY_REMOVE;
    rc = any_matches(r, &r->blocked_keys, key, len, true);
    if (rc)
        return rc < 0 ? rc : REDACT_KEY_MASK;
    rc = any_matches(r, &r->key_words, key, len, true);
    if (rc)
        return rc < 0 ? rc : r->config->redact_all_types ? REDACT_KEY_MASK : REDACT_KEY_MASK_TEXT;
    return REDACT_KEY_LOOK;
}

int redact_key(struct redact_rules *r, const void *key, size_t len)
{
    const struct redact_known *known = redact_memo_get(&r->memo, MEMO_KEY, key, len);
    if (known)
        return known->verdict;
    int rc = look_at_key(r, key, len);
    if (rc > 0 && !r->time.spent)
        redact_memo_put(&r->memo, MEMO_KEY, key, len, (uint8_t)rc, NULL, 0);
    return rc;
}

/* --- Texts ----------------------------------------------------------------------------------- */

static int put(struct redact_rules *r, size_t *at, const void *data, size_t len)
{
    if (*at + len > TEXT_MAX)
        return BR_EFULL;
    if (br_grow(&r->next, &r->next_cap, *at + len, 1, TEXT_MAX))
        return BR_ENOMEM;
    br_put_bytes(r->next + *at, data, len);
    *at += len;
    return 0;
}

/* What was made is the result. */
static void swap(struct redact_rules *r, size_t len)
{
    uint8_t *text = r->text;
    uint32_t cap = r->text_cap;
    r->text = r->next;
    r->text_cap = r->next_cap;
    r->text_len = (uint32_t)len;
    r->next = text;
    r->next_cap = cap;
}

static int mask_all(struct redact_rules *r, const void *text, size_t len)
{
    char mask[REDACT_MASK_MAX];
    size_t at = 0;
    int rc = put(r, &at, mask, redact_mask(r->hash, r->config->hmac_key.text, text, len, mask));
    if (!rc)
        swap(r, at);
    return rc ? rc : 1;
}

/* Replaces every match of one pattern: 1, 0, BR_EFULL or BR_ENOMEM. */
static int replace(struct redact_rules *r, const pcre2_code *pattern, const uint8_t *text,
                   size_t len)
{
    size_t at = 0, done = 0, from, to;
    char mask[REDACT_MASK_MAX];
    int rc;
    while ((rc = br_regex_find(&r->regex, pattern, text, len, done, &from, &to)) == 1) {
        from = from < done ? done : from;
        size_t n = redact_mask(r->hash, r->config->hmac_key.text, text + from, to - from, mask);
        rc = put(r, &at, text + done, from - done);
        if (!rc)
            rc = put(r, &at, mask, n);
        if (rc)
            return rc;
        done = to;
    }
    if (rc < 0 || done == 0)
        return rc;
    rc = put(r, &at, text + done, len - done);
    if (!rc)
        swap(r, at);
    return rc ? rc : 1;
}

/* Replaces what the patterns match in the text, or in what is left of it in r->text. */
static int replace_all(struct redact_rules *r, const struct redact_patterns *list,
                       const uint8_t *text, size_t len, bool *changed)
{
    for (uint32_t i = 0; i < list->n; i++) {
        int rc = replace(r, list->v[i], *changed ? r->text : text, *changed ? r->text_len : len);
        if (rc < 0)
            return rc;
        *changed = *changed || rc == 1;
    }
    return 0;
}

static int look_at_text(struct redact_rules *r, enum redact_kind kind, const uint8_t *text,
                        size_t len)
{
    int rc = any_matches(r, &r->allowed, text, len, false);
    if (rc)
        return rc < 0 ? rc : 0;
    bool changed = false;
    rc = replace_all(r, &r->blocked[REDACT_VALUE], text, len, &changed);
    if (!rc && kind != REDACT_VALUE)
        rc = replace_all(r, &r->blocked[kind], text, len, &changed);
    if (gave_up(r, rc))
        return mask_all(r, text, len);
    return rc ? rc : changed;
}

/* The result that is remembered becomes r->text. */
static int recall(struct redact_rules *r, const struct redact_known *known)
{
    if (known->verdict == STAYS)
        return 0;
    size_t at = 0;
    int rc = put(r, &at, known->bytes + known->len, known->out_len);
    if (!rc)
        swap(r, at);
    return rc ? rc : 1;
}

static int look_or_recall(struct redact_rules *r, uint8_t kind, const void *text, size_t len)
{
    const struct redact_known *known = redact_memo_get(&r->memo, kind, text, len);
    if (known)
        return recall(r, known);
    int rc;
    if (kind == MEMO_WHOLE) {
        rc = any_matches(r, &r->allowed, text, len, false);
        rc = rc ? (rc < 0 ? rc : 0) : mask_all(r, text, len);
    } else {
        rc = look_at_text(r, (enum redact_kind)kind, text, len);
    }
    if (rc >= 0 && !r->time.spent)
        redact_memo_put(&r->memo, kind, text, len, (uint8_t)rc, r->text, rc ? r->text_len : 0);
    return rc;
}

int redact_text(struct redact_rules *r, enum redact_kind kind, const void *text, size_t len)
{
    if (len == 0 || redact_idle(r, kind))
        return 0;
    return look_or_recall(r, (uint8_t)kind, text, len);
}

int redact_whole(struct redact_rules *r, const void *text, size_t len)
{
    return len ? look_or_recall(r, MEMO_WHOLE, text, len) : 0;
}
