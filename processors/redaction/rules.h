/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles the config of the redaction processor and decides whether a key or a text is redacted.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "attribute/regex.h"
#include "base/err.h"
#include "base/map.h"
#include "config/option.h"
#include "processors/redaction/clean.h"
#include "processors/redaction/memo.h"

/* --- Masking ---------------------------------------------------------------------------------- */

/* Functions that write the replacement of a redacted text, which is a fixed text or a hash. */

#define REDACT_MASK "[REDACTED]"
#define REDACT_MASK_MAX 128 /* longest replacement, in bytes: SHA-512 in hexadecimal */

struct redact_hash {
    const char *name;   /* name of the hash in the config */
    const char *digest; /* OpenSSL's name of the hash function; NULL: texts are not hashed */
    size_t key_min;     /* shortest allowed key of the hash, in bytes; 0: the hash takes no key */
};

/* Describes how masked texts are replaced. */
struct redact_masking {
    const struct redact_hash *hash;
    const char *key; /* key of the hash; NULL if the hash takes no key */
    /* replacement if no hash is configured, at most REDACT_MASK_MAX bytes; if NULL or "",
     * REDACT_MASK is used */
    const char *fixed;
};

/* Returns the hash that has this name in the config. If `name` is NULL or "", returns the entry
 * that does not hash. Returns NULL if the name is unknown. */
const struct redact_hash *redact_hash_find(const char *name);

/* Writes the replacement of a text to `out` and returns its length. Writes the fixed text if the
 * hash cannot be computed. */
size_t redact_mask(const struct redact_masking *masking, const void *text, size_t len,
                   char out[REDACT_MASK_MAX]);

/* --- Rules ------------------------------------------------------------------------------------ */

/* Kinds of texts. The kinds of texts. In addition to blocked_values, each kind has its own
 * rules. */
enum redact_kind {
    REDACT_VALUE, /* value of an attribute */
    REDACT_SPAN,  /* name of a span or an event, or message of a status */
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
    /* processor time, in nanoseconds, that regular expressions may take for an item, in addition
     * to 20 ns per byte of the item */
    uint64_t match_time;
    struct redact_url_sanitizer url_sanitizer;
    struct redact_db_sanitizer db_sanitizer;
};

extern const struct br_option redact_options[];

/* Checks the parts of the config that the option table cannot check, and sets defaults that
 * depend on other options. */
int redact_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs);

enum redact_key {
    REDACT_KEY_INSPECT = 1, /* the value is inspected */
    REDACT_KEY_PASS,
    REDACT_KEY_REMOVE,    /* the attribute is removed */
    REDACT_KEY_MASK,      /* the value is masked */
    REDACT_KEY_MASK_TEXT, /* the value is masked unless it is a number or a boolean */
    REDACT_KEY_URL,       /* the value is a URL, which is cleaned and then inspected */
    /* the value is a database statement, which is cleaned and then inspected */
    REDACT_KEY_DB,
};

/* The database system to which a span sent a request. */
struct redact_target {
    enum redact_db db; /* REDACT_DBS: statements of the system are not cleaned */
    bool mysql;
};

struct redact_patterns {
    pcre2_code **items;
    uint32_t count, cap;
    uint16_t first; /* rule number of items[0]; the following patterns have consecutive numbers */
};

/* Numbers of the rules that are not patterns of the config. Patterns have the numbers from
 * REDACT_RULES_FIXED on. */
enum { REDACT_RULE_ALLOWED, REDACT_RULE_URL, REDACT_RULE_DB, REDACT_RULE_TIME, REDACT_RULES_FIXED };

/* A range of bytes that is masked in a text. */
struct redact_range {
    size_t from, to;
};

struct redact_rules {
    const struct redact_config *config;
    struct br_regex regex;
    struct br_regex_time time; /* time that regular expressions took for the current item */
    struct redact_patterns ignored_keys, blocked_keys, key_words, allowed;
    struct redact_patterns blocked[REDACT_KINDS];
    struct br_map *allowed_names, *ignored_names, *url_names;
    /* for each system: names of the attributes whose values are statements; NULL: the system is
     * not enabled */
    struct br_map *db_names[REDACT_DBS];
    bool db_enabled; /* true if at least one database system is enabled */
    struct redact_masking masking;
    bool removes; /* true if attributes whose keys are not allowed are removed */
    struct redact_memo memo;
    uint8_t *text; /* the last redacted text */
    uint32_t text_len, text_cap;
    uint8_t *next; /* buffer in which the next redacted text is built */
    uint32_t next_cap;
    uint8_t *clean; /* the last cleaned URL or statement */
    uint32_t clean_cap;
    struct redact_range *ranges; /* ranges to mask in the last text */
    uint32_t n_ranges, cap_ranges;
    /* for each rule number: name of the rule, made of its option and pattern in the config */
    char **names;
    uint32_t n_names, cap_names;
    uint16_t matched; /* number of the rule that matched last */
    /* numbers of the rules that decided about the last key and the last text */
    uint16_t key_rule, rule;
    /* number of matches that were aborted since redact_rules_begin because they took too long */
    unsigned n_gave_up;
    /* metric that counts matches that were aborted because they took too long */
    double *gave_up;
};

/* Compiles a checked config. `rules` must be zeroed, and must be released even after an error.
 * Returns 0, BR_ENOMEM or BR_EINVAL. */
int redact_rules_compile(struct redact_rules *rules, const struct redact_config *config,
                         struct br_err *err);
void redact_rules_release(struct redact_rules *rules);

/* Returns the name of a rule, for example "blocked_values: 4[0-9]{12}". */
const char *redact_rule_name(const struct redact_rules *rules, uint16_t rule);

/* Begins an item. The item's size determines how long the regular expressions may take for its
 * texts. */
void redact_rules_begin(struct redact_rules *rules, const struct br_item *item);

/* Returns the verdict on a key (enum redact_key), or BR_ENOMEM. */
int redact_key(struct redact_rules *rules, const void *key, size_t len);

/* Masks the blocked parts of a text. Returns 1 with the result in rules->text (until the next
 * call), 0 if the text is unchanged, or BR_ENOMEM. Every pattern is matched against the original
 * text, and overlapping matches are masked once. If matching a pattern takes too long, the whole
 * text is masked. */
int redact_text(struct redact_rules *rules, enum redact_kind kind, const void *text, size_t len);

/* Masks the whole text, unless it is allowed or empty. Returns the same values as redact_text. */
int redact_whole(struct redact_rules *rules, const void *text, size_t len);

/* Cleans a URL (redact_url_clean) and then masks the blocked parts of the result. Returns the same
 * values as redact_text, except that it also returns 1 if the URL was only cleaned. */
int redact_url(struct redact_rules *rules, enum redact_kind kind, const void *text, size_t len);

/* Cleans a database statement (redact_db_clean) and then masks the blocked parts of the result.
 * If the system requires JSON and the statement is not valid JSON, the result is `?` for a
 * value, and a name is not cleaned. Returns the same values as redact_url. */
int redact_statement(struct redact_rules *rules, enum redact_kind kind, struct redact_target target,
                     const void *text, size_t len);

/* Returns true if values under this attribute key are statements for the database system
 * `target`. */
bool redact_is_statement(const struct redact_rules *rules, struct redact_target target,
                         const void *key, size_t len);

/* Returns true if no text of this kind can be blocked. */
static inline bool redact_idle(const struct redact_rules *rules, enum redact_kind kind)
{
    return rules->blocked[REDACT_VALUE].count == 0 && rules->blocked[kind].count == 0;
}
