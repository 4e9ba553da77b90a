/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

static const char *const actions[] = {"insert", "update",  "upsert",  "delete",
                                      "hash",   "extract", "convert", NULL};

const struct br_option br_rule_options[] = {
    BR_STRING(struct br_rule_config, key, NULL, "key of the attribute that the action changes"),
    {.name = "action",
     .kind = BR_OPT_ENUM,
     .offset = BR_OPT_FIELD(struct br_rule_config, action, int),
     .required = true,
     .choices = actions,
     .help = "what to do with the attribute"},
    BR_VALUE(struct br_rule_config, value,
             "insert, update, upsert: the new value, which is a text, a number, true, false, a "
             "list or a map"),
    BR_STRING(struct br_rule_config, from_attribute, NULL,
              "insert, update, upsert: key of the attribute from which the new value is copied"),
    BR_STRING(
        struct br_rule_config, from_context, NULL,
        "insert, update, upsert: metadata.NAME copies the new value from the client's header NAME, "
        "auth.NAME from the authenticated client (auth.username)"),
    BR_VALUE(struct br_rule_config, default_value,
             "insert, update, upsert: the new value if from_attribute or from_context finds no "
             "value"),
    BR_STRING(struct br_rule_config, pattern, NULL,
              "extract: regular expression with named groups, each of which becomes an attribute; "
              "delete, hash: regular expression for the keys"),
    BR_STRING(struct br_rule_config, converted_type, NULL,
              "convert: type of the new value: string, int or double"),
    BR_OPT_END,
};

static int attribute_rules_wrong(struct br_rule_problem *problem, const char *key, const char *fmt,
                                 ...) __attribute__((format(printf, 3, 4)));

static int attribute_rules_wrong(struct br_rule_problem *problem, const char *key, const char *fmt,
                                 ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(problem->text, sizeof problem->text, fmt, ap);
    va_end(ap);
    problem->key = key;
    problem->lacks = false;
    return BR_EINVAL;
}

static bool attribute_rules_is_set(const char *text)
{
    return text && *text;
}

static bool attribute_rules_has_node(const struct br_yaml *node)
{
    return node && node->type != BR_YAML_NULL;
}

/* --- Compiling ------------------------------------------------------------------------------- */

static int attribute_rules_compile_pattern(struct br_rules *rules, struct br_rule *rule,
                                           const char *text, struct br_rule_problem *problem)
{
    char why[BR_REGEX_WHY_SIZE];
    int rc = br_regex_compile(&rules->regex, text, &rule->pattern, why);
    return rc == BR_EINVAL ? attribute_rules_wrong(problem, "pattern",
                                                   "is not a valid regular expression: %s", why)
                           : rc;
}

static int attribute_rules_read_groups(struct br_rules *rules, struct br_rule *rule,
                                       struct br_rule_problem *problem)
{
    uint32_t n_names, size;
    PCRE2_SPTR names;
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_CAPTURECOUNT, &rule->n_groups);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMECOUNT, &n_names);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMEENTRYSIZE, &size);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMETABLE, &names);
    if (n_names == 0)
        return attribute_rules_wrong(problem, "pattern",
                                     "has no named group, such as (?P<name>...)");
    if (n_names < rule->n_groups)
        return attribute_rules_wrong(
            problem, "pattern",
            "has a group without a name; write (?P<name>...), or (?:...) to extract nothing");
    rule->groups = br_arena_calloc(rules->arena, rule->n_groups, sizeof *rule->groups);
    if (!rule->groups)
        return BR_ENOMEM;
    for (uint32_t i = 0; i < n_names; i++, names += size)
        rule->groups[(names[0] << 8 | names[1]) - 1] = (const char *)names + 2;
    return 0;
}

/* Returns the metadata key of a from_context: the name of a header ("metadata.X", or only "X"), or
 * an attribute of the authenticated client ("auth.X"). Returns NULL if Braid does not support this
 * kind of context. */
static const char *attribute_rules_context_header(const char *from_context)
{
    if (strcmp(from_context, "client.address") == 0)
        return NULL;
    return br_text_starts(from_context, "metadata.") ? from_context + 9 : from_context;
}

static int attribute_rules_compile_source(struct br_rules *rules, struct br_rule *rule,
                                          const struct br_rule_config *config,
                                          struct br_rule_problem *problem)
{
    int n = attribute_rules_has_node(config->value) +
            attribute_rules_is_set(config->from_attribute) +
            attribute_rules_is_set(config->from_context);
    const char *name = actions[config->action];
    if (n == 0 && !attribute_rules_has_node(config->default_value))
        return attribute_rules_wrong(
            problem, NULL, "%s needs one of value, from_attribute, from_context, default_value",
            name);
    if (n > 1)
        return attribute_rules_wrong(problem, NULL,
                                     "only one of value, from_attribute, from_context may be set");
    if (attribute_rules_is_set(config->pattern))
        return attribute_rules_wrong(problem, "pattern", "does not belong to %s; remove it", name);
    if (attribute_rules_is_set(config->converted_type))
        return attribute_rules_wrong(problem, "converted_type", "does not belong to %s; remove it",
                                     name);
    rule->from_attribute =
        attribute_rules_is_set(config->from_attribute) ? config->from_attribute : NULL;
    if (attribute_rules_is_set(config->from_context)) {
        rule->from_metadata = attribute_rules_context_header(config->from_context);
        if (!rule->from_metadata) {
            (void)attribute_rules_wrong(problem, "from_context",
                                        "%s is not supported, only metadata.NAME and auth.NAME are",
                                        config->from_context);
            problem->lacks = true;
            return BR_EINVAL;
        }
    }
    rule->has_value = attribute_rules_has_node(config->value);
    rule->has_default = attribute_rules_has_node(config->default_value);
    return br_value_from_yaml(config->value, rules->arena, &rule->value) &&
                   br_value_from_yaml(config->default_value, rules->arena, &rule->default_value)
               ? 0
               : BR_ENOMEM;
}

static int attribute_rules_compile_keys(struct br_rules *rules, struct br_rule *rule,
                                        const struct br_rule_config *config,
                                        struct br_rule_problem *problem)
{
    const char *name = actions[config->action];
    if (attribute_rules_has_node(config->value) || attribute_rules_is_set(config->from_attribute))
        return attribute_rules_wrong(
            problem, attribute_rules_has_node(config->value) ? "value" : "from_attribute",
            "does not belong to %s; remove it", name);
    if (attribute_rules_is_set(config->converted_type))
        return attribute_rules_wrong(problem, "converted_type", "does not belong to %s; remove it",
                                     name);
    return attribute_rules_is_set(config->pattern)
               ? attribute_rules_compile_pattern(rules, rule, config->pattern, problem)
               : 0;
}

static int attribute_rules_no_source(const struct br_rule_config *config,
                                     struct br_rule_problem *problem)
{
    const char *key = NULL;
    if (attribute_rules_has_node(config->value))
        key = "value";
    else if (attribute_rules_is_set(config->from_attribute))
        key = "from_attribute";
    else if (attribute_rules_is_set(config->from_context))
        key = "from_context";
    return key ? attribute_rules_wrong(problem, key, "does not belong to %s; remove it",
                                       actions[config->action])
               : 0;
}

static int attribute_rules_compile_extract(struct br_rules *rules, struct br_rule *rule,
                                           const struct br_rule_config *config,
                                           struct br_rule_problem *problem)
{
    if (attribute_rules_no_source(config, problem))
        return BR_EINVAL;
    if (attribute_rules_is_set(config->converted_type))
        return attribute_rules_wrong(problem, "converted_type",
                                     "does not belong to extract; remove it");
    if (!attribute_rules_is_set(config->pattern))
        return attribute_rules_wrong(problem, NULL, "extract needs a pattern");
    int rc = attribute_rules_compile_pattern(rules, rule, config->pattern, problem);
    return rc ? rc : attribute_rules_read_groups(rules, rule, problem);
}

static int attribute_rules_compile_convert(struct br_rule *rule,
                                           const struct br_rule_config *config,
                                           struct br_rule_problem *problem)
{
    static const struct {
        const char *name;
        enum br_value_type type;
    } types[] = {{"string", BR_VALUE_STRING}, {"int", BR_VALUE_INT}, {"double", BR_VALUE_DOUBLE}};
    if (attribute_rules_no_source(config, problem))
        return BR_EINVAL;
    if (attribute_rules_is_set(config->pattern))
        return attribute_rules_wrong(problem, "pattern", "does not belong to convert; remove it");
    if (!attribute_rules_is_set(config->converted_type))
        return attribute_rules_wrong(problem, NULL,
                                     "convert needs a converted_type: string, int or double");
    for (size_t i = 0; i < BR_COUNT(types); i++) {
        if (strcmp(types[i].name, config->converted_type) == 0) {
            rule->to = types[i].type;
            return 0;
        }
    }
    return attribute_rules_wrong(problem, "converted_type",
                                 "must be string, int or double, got \"%s\"",
                                 config->converted_type);
}

static int attribute_rules_compile(struct br_rules *rules, struct br_rule *rule,
                                   const struct br_rule_config *config,
                                   struct br_rule_problem *problem)
{
    bool by_pattern = config->action == BR_RULE_DELETE || config->action == BR_RULE_HASH;
    rule->action = (enum br_rule_action)config->action;
    rule->key = config->key ? config->key : "";
    rule->key_len = strlen(rule->key);
    if (!rule->key_len && (!by_pattern || !attribute_rules_is_set(config->pattern)))
        return attribute_rules_wrong(problem, NULL, "%s needs a key%s", actions[config->action],
                                     by_pattern ? " or a pattern" : "");
    switch (rule->action) {
    case BR_RULE_INSERT:
    case BR_RULE_UPDATE:
    case BR_RULE_UPSERT:
        return attribute_rules_compile_source(rules, rule, config, problem);
    case BR_RULE_DELETE:
    case BR_RULE_HASH:
        return attribute_rules_compile_keys(rules, rule, config, problem);
    case BR_RULE_EXTRACT:
        return attribute_rules_compile_extract(rules, rule, config, problem);
    case BR_RULE_CONVERT:
        return attribute_rules_compile_convert(rule, config, problem);
    }
    return 0;
}

int br_rules_compile(const struct br_rule_config *config, size_t count, struct br_arena *arena,
                     struct br_rules *ret, struct br_rule_problem *problem)
{
    *ret = (struct br_rules){.arena = arena};
    ret->rules = br_arena_calloc(arena, count, sizeof *ret->rules);
    if (!ret->rules)
        return BR_ENOMEM;
    while (ret->count < count) {
        problem->rule = ret->count;
        int rc =
            attribute_rules_compile(ret, &ret->rules[ret->count], &config[ret->count], problem);
        /* the count is incremented even after a failure, so that the rule's pattern is released */
        ret->count++;
        if (rc)
            return rc;
    }
    return br_regex_ready(&ret->regex);
}

void br_rules_release(struct br_rules *rules)
{
    for (size_t i = 0; i < rules->count; i++)
        pcre2_code_free(rules->rules[i].pattern);
    br_regex_release(&rules->regex);
    *rules = (struct br_rules){0};
}

/* --- The list in the config ------------------------------------------------------------------ */

static void attribute_rules_report(const struct br_rule_problem *rule_problem, const char *key,
                                   const struct br_yaml *node, const char *path,
                                   struct br_errs *errs)
{
    const struct br_yaml *list = br_yaml_get(node, key);
    const struct br_yaml *rule =
        list && rule_problem->rule < list->count ? list->items[rule_problem->rule] : node;
    const struct br_yaml *at = rule_problem->key ? br_yaml_get(rule, rule_problem->key) : NULL;
    char where[256];
    (void)snprintf(where, sizeof where, "%s::%s[%zu]%s%s", path, key, rule_problem->rule,
                   rule_problem->key ? "::" : "", rule_problem->key ? rule_problem->key : "");
    (void)(rule_problem->lacks ? br_errs_lack : br_errs_add)(errs, at ? at : rule, where, "%s",
                                                             rule_problem->text);
}

int br_rules_check(const struct br_structs *rules, const char *key, const struct br_yaml *node,
                   const char *path, struct br_arena *arena, struct br_errs *errs)
{
    const struct br_rule_config *config = rules->items;
    struct br_rules compiled;
    struct br_rule_problem problem = {0};
    int rc = 0;
    if (rules->count == 0)
        return br_errs_add(errs, node, path,
                           "\"%s\" is missing: a list of actions, such as "
                           "[{key: service.name, value: shop, action: upsert}]",
                           key);
    for (size_t i = 0; i < rules->count && rc != BR_ENOMEM; i++) {
        int one = br_rules_compile(&config[i], 1, arena, &compiled, &problem);
        br_rules_release(&compiled);
        problem.rule = i;
        if (one == BR_EINVAL)
            attribute_rules_report(&problem, key, node, path, errs);
        rc = one ? one : rc;
    }
    return rc;
}

int br_rules_headers(const struct br_structs *rules, struct br_arena *arena, struct br_strings *ret)
{
    const struct br_rule_config *config = rules->items;
    *ret = (struct br_strings){.items = br_arena_calloc(arena, rules->count, sizeof *ret->items)};
    if (!ret->items)
        return BR_ENOMEM;
    for (size_t i = 0; i < rules->count; i++) {
        const char *header = attribute_rules_is_set(config[i].from_context)
                                 ? attribute_rules_context_header(config[i].from_context)
                                 : NULL;
        if (header)
            ret->items[ret->count++] = header;
    }
    return 0;
}

/* --- Applying -------------------------------------------------------------------------------- */

/* maximum size in bytes of a short key or value; results of short values are stored only for hash
 * rules, and results of short keys are never stored */
#define SHORT 64
/* number of stored results above which no further results of short values are stored */
#define SHORT_MAX (1u << 13)
/* replaces the length of a value in the keys of stored results if the result belongs to an
 * attribute key */
#define OF_KEY ((uintptr_t)-1)

/* Returns true if the pattern matches. If the match takes too long, the result is `in_doubt`. */
static bool attribute_rules_matches(const struct br_rules *rules, const struct br_rule *rule,
                                    struct br_attributes *attributes, const uint8_t *text,
                                    size_t len, bool in_doubt)
{
    int rc = br_regex_match(&rules->regex, rule->pattern, text, len);
    attributes->no_memory = attributes->no_memory || rc == BR_ENOMEM;
    attributes->n_gave_up += rc == BR_EFULL;
    return rc == BR_EFULL ? in_doubt : rc > 0;
}

/* Returns true if the pattern matches a key. Stores the results of long keys, because many lists
 * may contain the same long key of the dictionary. */
static bool attribute_rules_matches_key(const struct br_rules *rules, const struct br_rule *rule,
                                        struct br_attributes *attributes,
                                        const struct br_attribute *attribute)
{
    enum { NO = 1, YES };
    struct br_value_memo *memo = attributes->memo;
    const uintptr_t key[] = {(uintptr_t)rule, (uintptr_t)attribute->key, OF_KEY};
    if (!memo || !attribute->key_string || attribute->key_len <= SHORT)
        return attribute_rules_matches(rules, rule, attributes, attribute->key, attribute->key_len,
                                       true);
    if (!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX))) {
        attributes->no_memory = true;
        return true;
    }
    uintptr_t known = (uintptr_t)br_map_get(memo->known, key, sizeof key);
    if (!known) {
        known = attribute_rules_matches(rules, rule, attributes, attribute->key, attribute->key_len,
                                        true)
                    ? YES
                    : NO;
        if (br_map_put(memo->known, key, sizeof key, (void *)known, NULL) == BR_ENOMEM)
            attributes->no_memory = true;
    }
    return known == YES;
}

/* Makes a string value from all values of a header, joined by ";". */
static bool attribute_rules_from_metadata(struct br_attributes *attributes, const char *name,
                                          const char *metadata, struct br_value *ret)
{
    struct br_str text = {.max = 65536};
    bool found = false;
    for (const char *p = metadata; p && *p;) {
        const char *value = p + strlen(p) + 1;
        if (strcasecmp(p, name) == 0) {
            br_str_printf(&text, "%s%s", found ? ";" : "", value);
            found = true;
        }
        p = value + strlen(value) + 1;
    }
    const char *joined = text.data ? text.data : "";
    if (found && (text.failed || !br_value_string(joined, text.len, attributes->arena, ret)))
        attributes->no_memory = true;
    br_str_release(&text);
    return found;
}

static bool attribute_rules_source(const struct br_rule *rule, struct br_attributes *attributes,
                                   const char *metadata, struct br_value *ret)
{
    const struct br_attribute *from = NULL;
    if (rule->has_value) {
        *ret = rule->value;
        return true;
    }
    if (rule->from_metadata &&
        attribute_rules_from_metadata(attributes, rule->from_metadata, metadata, ret))
        return !attributes->no_memory;
    if (rule->from_attribute)
        from = br_attributes_find(attributes, rule->from_attribute, strlen(rule->from_attribute));
    if (from)
        *ret = from->value;
    else if (rule->has_default)
        *ret = rule->default_value;
    return from || rule->has_default;
}

static void attribute_rules_assign(const struct br_rule *rule, struct br_attributes *attributes,
                                   const char *metadata)
{
    struct br_value value;
    if (!attribute_rules_source(rule, attributes, metadata, &value))
        return;
    bool there = br_attributes_find(attributes, rule->key, rule->key_len) != NULL;
    if (there ? rule->action != BR_RULE_INSERT : rule->action != BR_RULE_UPDATE)
        br_attributes_put(attributes, rule->key, rule->key_len, value);
}

static bool attribute_rules_work_out(const struct br_rule *rule, struct br_value value,
                                     struct br_arena *arena, struct br_value *ret)
{
    return rule->action == BR_RULE_HASH ? br_value_hash(value, arena, ret)
                                        : br_value_convert(value, rule->to, arena, ret);
}

/* Computes the result of a hash or convert rule for a value. Stores the results of long values,
 * so that equal values are not processed again. Results for short values are also stored if the
 * rule hashes them, because hashing is slow. */
static bool attribute_rules_result_of(const struct br_rule *rule, struct br_attributes *attributes,
                                      struct br_value value, struct br_value *ret)
{
    struct br_value_memo *memo = attributes->memo;
    const uintptr_t key[] = {(uintptr_t)rule, (uintptr_t)value.data, value.len};
    bool is_short = value.len <= SHORT && (rule->action != BR_RULE_HASH || !memo ||
                                           (memo->known && br_map_count(memo->known) > SHORT_MAX));
    if (!memo || is_short ||
        /* an earlier rule made the value, so other lists do not contain it */
        br_arena_has(attributes->arena, value.data))
        return attribute_rules_work_out(rule, value, attributes->arena, ret);
    if (!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX)))
        return false;
    struct br_value *known = br_map_get(memo->known, key, sizeof key);
    if (!known) {
        known = br_arena_alloc(memo->arena, sizeof *known);
        if (!known || !attribute_rules_work_out(rule, value, memo->arena, known) ||
            br_map_put(memo->known, key, sizeof key, known, NULL) == BR_ENOMEM)
            return false;
    }
    *ret = *known;
    return true;
}

static void attribute_rules_act(const struct br_rule *rule, struct br_attributes *attributes,
                                struct br_attribute *attribute)
{
    struct br_value value;
    if (rule->action == BR_RULE_DELETE)
        attribute->deleted = true;
    else if (attribute_rules_result_of(rule, attributes, attribute->value, &value))
        br_attribute_set(attribute, value);
    else
        attributes->no_memory = true;
}

/* Applies a delete, hash or convert rule to every attribute with its key or with a key that its
 * pattern matches. If the pattern takes too long, the attribute counts as matching, so that
 * private data is not passed on. */
static void attribute_rules_each_key(const struct br_rules *rules, const struct br_rule *rule,
                                     struct br_attributes *attributes)
{
    for (uint32_t i = 0; i < attributes->count && !attributes->no_memory; i++) {
        struct br_attribute *p = &attributes->pieces[i];
        if (!p->attribute || p->deleted)
            continue;
        if (rule->key_len && br_bytes_equal(p->key, p->key_len, rule->key, rule->key_len))
            attribute_rules_act(rule, attributes, p);
        if (rule->pattern && !p->deleted && attribute_rules_matches_key(rules, rule, attributes, p))
            attribute_rules_act(rule, attributes, p);
    }
}

/* The values that the groups of an extract rule's pattern have in one text. */
struct extracted {
    bool matches;
    struct br_value groups[];
};

static struct extracted *attribute_rules_read_text(const struct br_rules *rules,
                                                   const struct br_rule *rule,
                                                   struct br_attributes *attributes,
                                                   const struct br_any *any, struct br_arena *arena)
{
    struct extracted *extracted =
        br_arena_calloc(arena, 1, sizeof *extracted + rule->n_groups * sizeof *extracted->groups);
    if (!extracted)
        return NULL;
    extracted->matches =
        attribute_rules_matches(rules, rule, attributes, any->data, any->len, false);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(rules->regex.match);
    for (uint32_t i = 0; i < rule->n_groups && extracted->matches; i++) {
        PCRE2_SIZE from = at[2 * i + 2], to = at[2 * i + 3];
        if (from == PCRE2_UNSET || to < from)
            from = to = 0;
        if (!br_value_string(any->data + from, to - from, arena, &extracted->groups[i]))
            return NULL;
    }
    return extracted;
}

/* Returns the values of an extract rule's groups in a text. Stores the values if the text is
 * long and belongs to the dictionary, because many lists may contain the text. */
static struct extracted *attribute_rules_extracted(const struct br_rules *rules,
                                                   const struct br_rule *rule,
                                                   struct br_attributes *attributes,
                                                   struct br_value value, const struct br_any *any)
{
    struct br_value_memo *memo = attributes->memo;
    const uintptr_t key[] = {(uintptr_t)rule, (uintptr_t)value.data, value.len};
    if (!memo || value.len <= SHORT || br_arena_has(attributes->arena, value.data))
        return attribute_rules_read_text(rules, rule, attributes, any, attributes->arena);
    if (!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX)))
        return NULL;
    struct extracted *known = br_map_get(memo->known, key, sizeof key);
    if (known)
        return known;
    known = attribute_rules_read_text(rules, rule, attributes, any, memo->arena);
    return known && br_map_put(memo->known, key, sizeof key, known, NULL) != BR_ENOMEM ? known
                                                                                       : NULL;
}

static void attribute_rules_extract(const struct br_rules *rules, const struct br_rule *rule,
                                    struct br_attributes *attributes)
{
    const struct br_attribute *p = br_attributes_find(attributes, rule->key, rule->key_len);
    struct br_any any = p ? br_any_read(p->value) : (struct br_any){0};
    if (any.type != BR_VALUE_STRING)
        return;
    const struct extracted *extracted =
        attribute_rules_extracted(rules, rule, attributes, p->value, &any);
    attributes->no_memory = attributes->no_memory || !extracted;
    for (uint32_t i = 0; extracted && extracted->matches && i < rule->n_groups; i++)
        br_attributes_put(attributes, rule->groups[i], strlen(rule->groups[i]),
                          extracted->groups[i]);
}

static void attribute_rules_convert(const struct br_rule *rule, struct br_attributes *attributes)
{
    struct br_attribute *p = br_attributes_find(attributes, rule->key, rule->key_len);
    struct br_value value;
    if (p && attribute_rules_result_of(rule, attributes, p->value, &value))
        br_attribute_set(p, value);
    else if (p)
        attributes->no_memory = true;
}

bool br_rules_apply(const struct br_rules *rules, struct br_attributes *attributes,
                    const char *metadata)
{
    for (size_t i = 0; i < rules->count && !attributes->no_memory && !attributes->too_many; i++) {
        const struct br_rule *rule = &rules->rules[i];
        if (rule->action <= BR_RULE_UPSERT)
            attribute_rules_assign(rule, attributes, metadata);
        else if (rule->action <= BR_RULE_HASH)
            attribute_rules_each_key(rules, rule, attributes);
        else if (rule->action == BR_RULE_EXTRACT)
            attribute_rules_extract(rules, rule, attributes);
        else
            attribute_rules_convert(rule, attributes);
    }
    return !attributes->no_memory && !attributes->too_many;
}
