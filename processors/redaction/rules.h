/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles the config of the redaction, and says of a key or a text whether it is to be redacted.
 */
#pragma once

#include "attribute/regex.h"
#include "base/err.h"
#include "base/map.h"
#include "config/option.h"
#include "processors/redaction/db.h"
#include "processors/redaction/mask.h"
#include "processors/redaction/memo.h"

/* Texts that have rules of their own beside blocked_values. */
enum redact_kind {
    REDACT_VALUE, /* of an attribute */
    REDACT_SPAN,  /* names of spans and events, messages of statuses */
    REDACT_FUNCTION,
    REDACT_PATH,
    REDACT_KINDS,
};

struct redact_names {
    struct br_strings patterns, words;
};

struct redact_url_sanitizer {
    bool enabled, sanitize_span_name;
    struct br_strings attributes;
};

struct redact_db_system {
    bool enabled;
    struct br_strings attributes;
};

struct redact_db_sanitizer {
    bool sanitize_span_name;
    struct redact_db_system sql, redis, valkey, memcached, mongo, opensearch, es;
};

struct redact_config {
    bool allow_all_keys, redact_all_types;
    struct br_strings allowed_keys, ignored_keys, ignored_key_patterns;
    struct br_strings blocked_key_patterns, blocked_key_words;
    struct br_strings blocked_values, blocked_value_words, allowed_values;
    struct redact_names span_names, function_names, file_paths;
    const char *hash_function, *masking_string;
    struct br_secret hmac_key;
    uint64_t match_time; /* ns */
    struct redact_url_sanitizer url_sanitizer;
    struct redact_db_sanitizer db_sanitizer;
};

extern const struct br_option redact_options[];

/* Refuses what the table cannot; fills in the defaults that depend on what is there. */
int redact_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs);

enum redact_key {
    REDACT_KEY_LOOK = 1, /* at its value */
    REDACT_KEY_PASS,
    REDACT_KEY_REMOVE,    /* with its value */
    REDACT_KEY_MASK,      /* whatever the value is */
    REDACT_KEY_MASK_TEXT, /* unless it is a number or a truth value */
    REDACT_KEY_URL,       /* at its value, of which the URL is cleaned first */
    REDACT_KEY_DB,        /* at its value, a statement, which is cleaned first */
};

/* The system that a span says it asked. */
struct redact_asked {
    enum redact_db db; /* REDACT_DBS: none that is cleaned */
    bool mysql;
};

struct redact_patterns {
    pcre2_code **items;
    uint32_t count, cap;
    uint16_t first; /* the rule that items[0] is; the others follow it */
};

/* Rules that are no patterns; those of the config follow. */
enum { REDACT_RULE_ALLOWED, REDACT_RULE_URL, REDACT_RULE_DB, REDACT_RULE_TIME, REDACT_RULES_FIXED };

/* Bytes of a text that are masked. */
struct redact_range {
    size_t from, to;
};

struct redact_rules {
    const struct redact_config *config;
    struct br_regex regex;
    struct br_regex_time time; /* of the item at hand */
    struct redact_patterns ignored_keys, blocked_keys, key_words, allowed;
    struct redact_patterns blocked[REDACT_KINDS];
    struct br_map *allowed_names, *ignored_names, *url_names;
    struct br_map *db_names[REDACT_DBS]; /* NULL: the system is not enabled */
    bool db_enabled;                     /* some system is */
    struct redact_masking masking;
    bool removes; /* keys that are not allowed */
    struct redact_memo memo;
    uint8_t *text; /* the last result */
    uint32_t text_len, text_cap;
    uint8_t *next; /* where the next is made */
    uint32_t next_cap;
    uint8_t *clean; /* the last URL or statement that was cleaned */
    uint32_t clean_cap;
    struct redact_range *ranges; /* of the last text */
    uint32_t n_ranges, cap_ranges;
    char **names; /* of the rules, as the config has them */
    uint32_t n_names, cap_names;
    uint16_t matched;        /* the rule of the last match */
    uint16_t key_rule, rule; /* by which the last key, the last text, is not to stay */
    unsigned n_gave_up;      /* since redact_rules_begin */
    double *gave_up;         /* counter */
};

/* Compiles a config that was checked, into a zeroed `rules`, to be released also on failure.
 * Returns 0, BR_ENOMEM or BR_EINVAL. */
int redact_rules_compile(struct redact_rules *rules, const struct redact_config *config,
                         struct br_err *err);
void redact_rules_release(struct redact_rules *rules);

/* Returns the name of a rule, as "blocked_values: 4[0-9]{12}". */
const char *redact_rule_name(const struct redact_rules *rules, uint16_t rule);

/* Begins an item, which sets how much time its texts have. */
void redact_rules_begin(struct redact_rules *rules, const struct br_item *item);

/* Returns what the rules say of a key (enum redact_key), or BR_ENOMEM. */
int redact_key(struct redact_rules *rules, const void *key, size_t len);

/* Replaces what is blocked in a text: 1 with the result in r->text (until the next call), 0 when
 * nothing is, or BR_ENOMEM. Every pattern sees the text as it came; what several match is masked
 * once. Where a pattern takes too long all of the text is. */
int redact_text(struct redact_rules *rules, enum redact_kind kind, const void *text, size_t len);

/* Replaces the whole text, unless it is allowed or empty. As redact_text. */
int redact_whole(struct redact_rules *rules, const void *text, size_t len);

/* Cleans a URL (url.h), and then does with what is left what redact_text does. Returns as that: 1
 * also where only the URL was cleaned. */
int redact_url(struct redact_rules *rules, enum redact_kind kind, const void *text, size_t len);

/* Cleans a statement to the system (db.h), as redact_url does a URL. One that is not the JSON it
 * has to be becomes `?` as a value, and stays as a name. */
int redact_statement(struct redact_rules *rules, enum redact_kind kind, struct redact_asked asked,
                     const void *text, size_t len);

/* Returns whether values under the key are statements to the system. */
bool redact_is_statement(const struct redact_rules *rules, struct redact_asked asked,
                         const void *key, size_t len);

/* Returns true when there is nothing that could be blocked in texts of the kind. */
static inline bool redact_idle(const struct redact_rules *rules, enum redact_kind kind)
{
    return rules->blocked[REDACT_VALUE].count == 0 && rules->blocked[kind].count == 0;
}
