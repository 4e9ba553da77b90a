/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "processors/redaction/rules.h"

static const struct br_option names_options[] = {
    BR_STRINGS(struct redact_names, patterns, "regular expressions for texts to mask"),
    BR_STRINGS(struct redact_names, words, "literal texts to mask, in upper or lower case"),
    BR_OPT_END,
};

static const struct br_option url_options[] = {
    BR_BOOL(struct redact_url_sanitizer, enabled, false, "sanitize URLs"),
    BR_STRINGS(struct redact_url_sanitizer, attributes, "keys of attributes whose values are URLs"),
    BR_BOOL(struct redact_url_sanitizer, sanitize_span_name, true,
            "also sanitize the names of client and server spans that contain a path"),
    BR_OPT_END,
};

static const struct br_option system_options[] = {
    BR_BOOL(struct redact_db_system, enabled, false,
            "sanitize the statements of this database system"),
    BR_STRINGS(struct redact_db_system, attributes,
               "keys of span attributes whose values are statements"),
    BR_OPT_END,
};

static const struct br_option db_options[] = {
    BR_BOOL(struct redact_db_sanitizer, sanitize_span_name, true,
            "also sanitize the names of client, server and internal spans of the enabled database "
            "systems"),
    BR_STRUCT(
        struct redact_db_sanitizer, sql, system_options,
        "statements of the database systems other_sql, mysql, postgresql, mariadb and sqlite"),
    BR_STRUCT(struct redact_db_sanitizer, redis, system_options,
              "statements of the database system redis"),
    BR_STRUCT(struct redact_db_sanitizer, valkey, system_options,
              "statements of the database system valkey"),
    BR_STRUCT(struct redact_db_sanitizer, memcached, system_options,
              "statements of the database system memcached"),
    BR_STRUCT(struct redact_db_sanitizer, mongo, system_options,
              "statements of the database system mongodb"),
    BR_STRUCT(struct redact_db_sanitizer, opensearch, system_options,
              "statements of the database system opensearch"),
    BR_STRUCT(struct redact_db_sanitizer, es, system_options,
              "statements of the database system elasticsearch"),
    BR_OPT_END,
};

const struct br_option redact_options[] = {
    BR_BOOL(struct redact_config, allow_all_keys, false,
            "keep attributes with any key; default: true if allowed_keys is not set"),
    BR_STRINGS(struct redact_config, allowed_keys,
               "keys of the attributes to keep; attributes with other keys are removed"),
    BR_STRINGS(struct redact_config, ignored_keys,
               "keys of attributes that are kept and not inspected"),
    BR_STRINGS(struct redact_config, ignored_key_patterns,
               "regular expressions for the keys of attributes that are kept and not inspected"),
    BR_STRINGS(struct redact_config, blocked_key_patterns,
               "regular expressions for keys whose values, of any type, are masked"),
    BR_STRINGS(struct redact_config, blocked_key_words,
               "literal texts in keys whose values are masked unless they are numbers or booleans; "
               "default: password, secret, credential, token"),
    BR_STRINGS(struct redact_config, blocked_values,
               "regular expressions for texts that are masked in values, names and paths"),
    BR_STRINGS(struct redact_config, blocked_value_words,
               "literal texts, in upper or lower case, that are masked in values, names and paths"),
    BR_STRINGS(struct redact_config, allowed_values,
               "regular expressions; a text that matches one of them is kept, even if "
               "blocked_values match it too"),
    BR_BOOL(struct redact_config, redact_all_types, false,
            "also inspect numbers, booleans and bytes as text"),
    BR_STRUCT(struct redact_config, span_names, names_options,
              "additional texts to mask in names of spans and events and in status messages"),
    BR_STRUCT(struct redact_config, function_names, names_options,
              "additional texts to mask in function names of profiles"),
    BR_STRUCT(struct redact_config, file_paths, names_options,
              "additional texts to mask in paths of source files and binaries of profiles"),
    BR_STRING(struct redact_config, hash_function, "",
              "replace each masked text by its hexadecimal hash instead of [REDACTED]: md5, sha1, "
              "sha3, hmac-sha256 or hmac-sha512"),
    BR_STRING(struct redact_config, masking_string, "",
              "text that replaces masked texts instead of [REDACTED], at most 128 bytes"),
    BR_SECRET(struct redact_config, hmac_key,
              "key of hmac-sha256 (at least 32 bytes) or hmac-sha512 (at least 64 bytes)"),
    BR_DURATION(struct redact_config, match_time, "20ms",
                "CPU time for matching all patterns against a request, in addition to 20 ns per "
                "byte; when it is used up, all remaining texts are masked"),
    BR_STRUCT(struct redact_config, url_sanitizer, url_options,
              "replaces numbers and ids in URLs by * and removes queries"),
    BR_STRUCT(struct redact_config, db_sanitizer, db_options,
              "replaces literals in database statements by ?"),
    BR_IGNORED("summary", "Braid counts changes in metrics instead of writing them into the data"),
    BR_OPT_END,
};

static const struct br_yaml *redact_config_find(const struct br_yaml *node, const char *key,
                                                const char *sub)
{
    const struct br_yaml *at = br_yaml_get(node, key);
    return at && sub ? br_yaml_get(at, sub) : at;
}

/* Reports each pattern in the option `key` that is not a valid regular expression. If `sub` is
 * not NULL, the patterns are in the option `sub` of `key`. */
static int redact_config_check_patterns(struct br_regex *regex, const struct br_strings *list,
                                        const char *key, const char *sub,
                                        const struct br_yaml *node, const char *path,
                                        struct br_errs *errs)
{
    int worst = 0;
    for (size_t i = 0; i < list->count; i++) {
        char why[BR_REGEX_WHY_SIZE], where[256];
        pcre2_code *code = NULL;
        int rc = br_regex_compile(regex, list->items[i] ? list->items[i] : "", &code, why);
        pcre2_code_free(code);
        if (rc == BR_ENOMEM)
            return rc;
        const struct br_yaml *at = redact_config_find(node, key, sub);
        const struct br_yaml *one = at ? at : node;
        if (at && at->type == BR_YAML_SEQ && i < at->count)
            one = at->items[i];
        (void)snprintf(where, sizeof where, "%s::%s%s%s[%zu]", path, key, sub ? "::" : "",
                       sub ? sub : "", i);
        if (rc)
            br_errs_add(errs, one, where, "is not a valid regular expression: %s", why);
        worst = rc ? rc : worst;
    }
    return worst;
}

static int redact_config_check_hash(const struct redact_config *config, const struct br_yaml *node,
                                    const char *path, struct br_errs *errs)
{
    const struct redact_hash *hash = redact_hash_find(config->hash_function);
    size_t have = config->hmac_key.text ? strlen(config->hmac_key.text) : 0;
    if (!hash)
        return br_errs_add_key(errs, node, path, "hash_function",
                               "must be one of md5, sha1, sha3, hmac-sha256, hmac-sha512, or \"\"");
    if (have < hash->key_min)
        return br_errs_add_key(errs, node, path, "hmac_key", "%s needs at least %zu bytes",
                               hash->name, hash->key_min);
    if (config->masking_string[0] && hash->digest)
        return br_errs_add_key(errs, node, path, "masking_string",
                               "must not be set together with hash_function");
    if (strlen(config->masking_string) > REDACT_MASK_MAX)
        return br_errs_add_key(errs, node, path, "masking_string", "must have at most %d bytes",
                               REDACT_MASK_MAX);
    return 0;
}

static int redact_config_set_defaults(struct redact_config *config, const struct br_yaml *node,
                                      struct br_arena *arena)
{
    static const char *const words[] = {"password", "secret", "credential", "token"};
    bool has_allow_all_keys = br_yaml_get(node, "allow_all_keys") != NULL;
    if (!has_allow_all_keys && !config->allowed_keys.items)
        config->allow_all_keys = true;
    if (config->blocked_key_words.items)
        return 0;
    config->blocked_key_words.items =
        br_arena_calloc(arena, 4, sizeof *config->blocked_key_words.items);
    if (!config->blocked_key_words.items)
        return BR_ENOMEM;
    memcpy(config->blocked_key_words.items, words, sizeof words);
    config->blocked_key_words.count = 4;
    return 0;
}

int redact_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    struct redact_config *redact_config = config;
    const struct {
        const char *key, *sub;
        const struct br_strings *list;
    } lists[] = {
        {"ignored_key_patterns", NULL, &redact_config->ignored_key_patterns},
        {"blocked_key_patterns", NULL, &redact_config->blocked_key_patterns},
        {"blocked_values", NULL, &redact_config->blocked_values},
        {"allowed_values", NULL, &redact_config->allowed_values},
        {"span_names", "patterns", &redact_config->span_names.patterns},
        {"function_names", "patterns", &redact_config->function_names.patterns},
        {"file_paths", "patterns", &redact_config->file_paths.patterns},
    };
    struct br_regex regex = {0};
    int worst = redact_config_set_defaults(redact_config, node, arena);
    for (size_t i = 0; i < sizeof lists / sizeof *lists && worst != BR_ENOMEM; i++) {
        int rc = redact_config_check_patterns(&regex, lists[i].list, lists[i].key, lists[i].sub,
                                              node, path, errs);
        worst = rc ? rc : worst;
    }
    br_regex_release(&regex);
    if (worst == BR_ENOMEM)
        return worst;
    int rc = redact_config_check_hash(redact_config, node, path, errs);
    return rc ? rc : worst;
}
