/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

static const char *const actions[] = {"insert", "update",  "upsert",  "delete",
                                      "hash",   "extract", "convert", NULL};

const struct br_option br_rule_options[] = {
    BR_STRING(struct br_rule_config, key, NULL, "the attribute to act on"),
    {.name = "action",
     .kind = BR_OPT_ENUM,
     .offset = BR_OPT_FIELD(struct br_rule_config, action, int),
     .required = true,
     .choices = actions,
     .help = "what to do with it"},
    BR_VALUE(struct br_rule_config, value,
             "insert, update, upsert: the new value; text, number, true, false, a list or a map"),
    BR_STRING(struct br_rule_config, from_attribute, NULL,
              "insert, update, upsert: the attribute to take the value from"),
    BR_STRING(
        struct br_rule_config, from_context, NULL,
        "insert, update, upsert: metadata.NAME takes the value from the client's header NAME"),
    BR_VALUE(struct br_rule_config, default_value,
             "insert, update, upsert: the value where from_attribute or from_context finds none"),
    BR_STRING(struct br_rule_config, pattern, NULL,
              "extract: regular expression of named groups; delete, hash: one for keys"),
    BR_STRING(struct br_rule_config, converted_type, NULL, "convert: string, int or double"),
    BR_OPT_END,
};

static int wrong(struct br_rule_problem *problem, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int wrong(struct br_rule_problem *problem, const char *key, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(problem->text, sizeof problem->text, fmt, ap);
    va_end(ap);
    problem->key = key;
    return BR_EINVAL;
}

static bool is_set(const char *text)
{
    return text && *text;
}

static bool has_node(const struct br_yaml *node)
{
    return node && node->type != BR_YAML_NULL;
}

/* --- Compiling ------------------------------------------------------------------------------- */

static int compile_pattern(struct br_rules *r, struct br_rule *rule, const char *text,
                           struct br_rule_problem *problem)
{
    char why[BR_REGEX_WHY_SIZE];
    int rc = br_regex_compile(&r->regex, text, &rule->pattern, why);
    return rc == BR_EINVAL ? wrong(problem, "pattern", "is no regular expression: %s", why) : rc;
}

static int read_groups(struct br_rules *r, struct br_rule *rule, struct br_rule_problem *problem)
{
    uint32_t n_names, size;
    PCRE2_SPTR names;
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_CAPTURECOUNT, &rule->n_groups);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMECOUNT, &n_names);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMEENTRYSIZE, &size);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMETABLE, &names);
    if (n_names == 0)
        return wrong(problem, "pattern", "has no named group, such as (?P<name>...)");
    if (n_names < rule->n_groups)
        return wrong(problem, "pattern",
                     "has a group without a name; write (?P<name>...), or (?:...) to keep nothing");
    rule->groups = br_arena_calloc(r->arena, rule->n_groups, sizeof *rule->groups);
    if (!rule->groups)
        return BR_ENOMEM;
    for (uint32_t i = 0; i < n_names; i++, names += size)
        rule->groups[(names[0] << 8 | names[1]) - 1] = (const char *)names + 2;
    return 0;
}

/* The header that a from_context names ("metadata.X", or "X" alone); NULL when it is of a kind that
 * is not supported. */
static const char *context_header(const char *from_context)
{
    if (strcmp(from_context, "client.address") == 0 || strncmp(from_context, "auth.", 5) == 0)
        return NULL;
    return strncmp(from_context, "metadata.", 9) == 0 ? from_context + 9 : from_context;
}

static int compile_source(struct br_rules *r, struct br_rule *rule, const struct br_rule_config *c,
                          struct br_rule_problem *problem)
{
    int n = has_node(c->value) + is_set(c->from_attribute) + is_set(c->from_context);
    const char *name = actions[c->action];
    if (n == 0 && !has_node(c->default_value))
        return wrong(problem, NULL,
                     "%s needs one of value, from_attribute, from_context, default_value", name);
    if (n > 1)
        return wrong(problem, NULL, "only one of value, from_attribute, from_context may be set");
    if (is_set(c->pattern))
        return wrong(problem, "pattern", "does not belong to %s; remove it", name);
    if (is_set(c->converted_type))
        return wrong(problem, "converted_type", "does not belong to %s; remove it", name);
    rule->from_attribute = is_set(c->from_attribute) ? c->from_attribute : NULL;
    if (is_set(c->from_context)) {
        rule->from_metadata = context_header(c->from_context);
        if (!rule->from_metadata)
            return wrong(problem, "from_context", "%s is not supported, only metadata.NAME is",
                         c->from_context);
    }
    rule->has_value = has_node(c->value);
    rule->has_default = has_node(c->default_value);
    return br_value_from_yaml(c->value, r->arena, &rule->value) &&
                   br_value_from_yaml(c->default_value, r->arena, &rule->default_value)
               ? 0
               : BR_ENOMEM;
}

static int compile_keys(struct br_rules *r, struct br_rule *rule, const struct br_rule_config *c,
                        struct br_rule_problem *problem)
{
    const char *name = actions[c->action];
    if (has_node(c->value) || is_set(c->from_attribute))
        return wrong(problem, has_node(c->value) ? "value" : "from_attribute",
                     "does not belong to %s; remove it", name);
    if (is_set(c->converted_type))
        return wrong(problem, "converted_type", "does not belong to %s; remove it", name);
    return is_set(c->pattern) ? compile_pattern(r, rule, c->pattern, problem) : 0;
}

static int no_source(const struct br_rule_config *c, struct br_rule_problem *problem)
{
    const char *key = has_node(c->value)          ? "value"
                      : is_set(c->from_attribute) ? "from_attribute"
                      : is_set(c->from_context)   ? "from_context"
                                                  : NULL;
    return key ? wrong(problem, key, "does not belong to %s; remove it", actions[c->action]) : 0;
}

static int compile_extract(struct br_rules *r, struct br_rule *rule, const struct br_rule_config *c,
                           struct br_rule_problem *problem)
{
    if (no_source(c, problem))
        return BR_EINVAL;
    if (is_set(c->converted_type))
        return wrong(problem, "converted_type", "does not belong to extract; remove it");
    if (!is_set(c->pattern))
        return wrong(problem, NULL, "extract needs a pattern");
    int rc = compile_pattern(r, rule, c->pattern, problem);
    return rc ? rc : read_groups(r, rule, problem);
}

static int compile_convert(struct br_rule *rule, const struct br_rule_config *c,
                           struct br_rule_problem *problem)
{
    static const struct {
        const char *name;
        enum br_value_type type;
    } types[] = {{"string", BR_VALUE_STRING}, {"int", BR_VALUE_INT}, {"double", BR_VALUE_DOUBLE}};
    if (no_source(c, problem))
        return BR_EINVAL;
    if (is_set(c->pattern))
        return wrong(problem, "pattern", "does not belong to convert; remove it");
    if (!is_set(c->converted_type))
        return wrong(problem, NULL, "convert needs a converted_type: string, int or double");
    for (size_t i = 0; i < BR_COUNT(types); i++) {
        if (strcmp(types[i].name, c->converted_type) == 0) {
            rule->to = types[i].type;
            return 0;
        }
    }
    return wrong(problem, "converted_type", "must be string, int or double, got \"%s\"",
                 c->converted_type);
}

static int compile(struct br_rules *r, struct br_rule *rule, const struct br_rule_config *c,
                   struct br_rule_problem *problem)
{
    bool by_pattern = c->action == BR_RULE_DELETE || c->action == BR_RULE_HASH;
    rule->action = (enum br_rule_action)c->action;
    rule->key = c->key ? c->key : "";
    rule->key_len = strlen(rule->key);
    if (!rule->key_len && (!by_pattern || !is_set(c->pattern)))
        return wrong(problem, NULL, "%s needs a key%s", actions[c->action],
                     by_pattern ? " or a pattern" : "");
    switch (rule->action) {
    case BR_RULE_INSERT:
    case BR_RULE_UPDATE:
    case BR_RULE_UPSERT:
        return compile_source(r, rule, c, problem);
    case BR_RULE_DELETE:
    case BR_RULE_HASH:
        return compile_keys(r, rule, c, problem);
    case BR_RULE_EXTRACT:
        return compile_extract(r, rule, c, problem);
    case BR_RULE_CONVERT:
        return compile_convert(rule, c, problem);
    }
    return 0;
}

int br_rules_compile(const struct br_rule_config *c, size_t n, struct br_arena *arena,
                     struct br_rules *ret, struct br_rule_problem *problem)
{
    *ret = (struct br_rules){.arena = arena};
    ret->v = br_arena_calloc(arena, n, sizeof *ret->v);
    if (!ret->v)
        return BR_ENOMEM;
    while (ret->n < n) {
        problem->rule = ret->n;
        int rc = compile(ret, &ret->v[ret->n], &c[ret->n], problem);
        ret->n++; /* also so that its pattern is released */
        if (rc)
            return rc;
    }
    return br_regex_ready(&ret->regex);
}

void br_rules_release(struct br_rules *r)
{
    for (size_t i = 0; i < r->n; i++)
        pcre2_code_free(r->v[i].pattern);
    br_regex_release(&r->regex);
    *r = (struct br_rules){0};
}

/* --- The list in the config ------------------------------------------------------------------ */

static void report(const struct br_rule_problem *p, const char *key, const struct br_yaml *node,
                   const char *path, struct br_errs *errs)
{
    const struct br_yaml *list = br_yaml_get(node, key);
    const struct br_yaml *rule = list && p->rule < list->n ? list->items[p->rule] : node;
    const struct br_yaml *at = p->key ? br_yaml_get(rule, p->key) : NULL;
    char where[256];
    (void)snprintf(where, sizeof where, "%s::%s[%zu]%s%s", path, key, p->rule, p->key ? "::" : "",
                   p->key ? p->key : "");
    br_errs_add(errs, at ? at : rule, where, "%s", p->text);
}

int br_rules_check(const struct br_structs *rules, const char *key, const struct br_yaml *node,
                   const char *path, struct br_arena *arena, struct br_errs *errs)
{
    const struct br_rule_config *v = rules->v;
    struct br_rules compiled;
    struct br_rule_problem problem = {0};
    int rc = 0;
    if (rules->n == 0)
        return br_errs_add(errs, node, path,
                           "\"%s\" is missing: a list of actions, such as "
                           "[{key: service.name, value: shop, action: upsert}]",
                           key);
    for (size_t i = 0; i < rules->n && rc != BR_ENOMEM; i++) {
        int one = br_rules_compile(&v[i], 1, arena, &compiled, &problem);
        br_rules_release(&compiled);
        problem.rule = i;
        if (one == BR_EINVAL)
            report(&problem, key, node, path, errs);
        rc = one ? one : rc;
    }
    return rc;
}

int br_rules_headers(const struct br_structs *rules, struct br_arena *arena, struct br_strings *ret)
{
    const struct br_rule_config *v = rules->v;
    *ret = (struct br_strings){.v = br_arena_calloc(arena, rules->n, sizeof *ret->v)};
    if (!ret->v)
        return BR_ENOMEM;
    for (size_t i = 0; i < rules->n; i++) {
        const char *header = is_set(v[i].from_context) ? context_header(v[i].from_context) : NULL;
        if (header)
            ret->v[ret->n++] = header;
    }
    return 0;
}

/* --- Applying -------------------------------------------------------------------------------- */

/* `in_doubt`: what a text is that takes too long. */
static bool matches(const struct br_rules *r, const struct br_rule *rule, struct br_attributes *m,
                    const uint8_t *text, size_t len, bool in_doubt)
{
    int rc = br_regex_match(&r->regex, rule->pattern, text, len);
    m->no_memory = m->no_memory || rc == BR_ENOMEM;
    m->n_gave_up += rc == BR_EFULL;
    return rc == BR_EFULL ? in_doubt : rc > 0;
}

/* The values of a header, joined by ";". */
static bool from_metadata(struct br_attributes *m, const char *name, const char *metadata,
                          struct br_value *ret)
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
    if (found && (text.failed || !br_value_string(joined, text.len, m->arena, ret)))
        m->no_memory = true;
    br_str_release(&text);
    return found;
}

static bool source(const struct br_rule *rule, struct br_attributes *m, const char *metadata,
                   struct br_value *ret)
{
    const struct br_attribute *from = NULL;
    if (rule->has_value) {
        *ret = rule->value;
        return true;
    }
    if (rule->from_metadata && from_metadata(m, rule->from_metadata, metadata, ret))
        return !m->no_memory;
    if (rule->from_attribute)
        from = br_attributes_find(m, rule->from_attribute, strlen(rule->from_attribute));
    if (from)
        *ret = from->value;
    else if (rule->has_default)
        *ret = rule->default_value;
    return from || rule->has_default;
}

static void assign(const struct br_rule *rule, struct br_attributes *m, const char *metadata)
{
    struct br_value v;
    if (!source(rule, m, metadata, &v))
        return;
    bool there = br_attributes_find(m, rule->key, rule->key_len) != NULL;
    if (there ? rule->action != BR_RULE_INSERT : rule->action != BR_RULE_UPDATE)
        br_attributes_put(m, rule->key, rule->key_len, v);
}

#define SHORT 64 /* bytes of a value that are worked on each time */

static bool work_out(const struct br_rule *rule, struct br_value v, struct br_arena *arena,
                     struct br_value *ret)
{
    return rule->action == BR_RULE_HASH ? br_value_hash(v, arena, ret)
                                        : br_value_convert(v, rule->to, arena, ret);
}

/* What the rule, which hashes or converts, makes of a value. Hashing is dear for short ones, too. */
static bool result_of(const struct br_rule *rule, struct br_attributes *m, struct br_value v,
                      struct br_value *ret)
{
    struct br_value_memo *memo = m->memo;
    const uintptr_t key[] = {(uintptr_t)rule, (uintptr_t)v.data, v.len};
    bool is_short = v.len <= SHORT && (rule->action != BR_RULE_HASH || !memo || memo->arena->full);
    if (!memo || is_short || br_arena_has(m->arena, v.data)) /* that is of this list alone */
        return work_out(rule, v, m->arena, ret);
    if (!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX)))
        return false;
    struct br_value *known = br_map_get(memo->known, key, sizeof key);
    if (!known) {
        known = br_arena_alloc(memo->arena, sizeof *known);
        if (!known || !work_out(rule, v, memo->arena, known) ||
            br_map_put(memo->known, key, sizeof key, known, NULL) == BR_ENOMEM)
            return false;
    }
    *ret = *known;
    return true;
}

static void act(const struct br_rule *rule, struct br_attributes *m, struct br_attribute *p)
{
    struct br_value v;
    if (rule->action == BR_RULE_DELETE)
        p->deleted = true;
    else if (result_of(rule, m, p->value, &v))
        br_attribute_set(p, v);
    else
        m->no_memory = true;
}

/* Every attribute of the key, should there be more than one, and in doubt any: what shall not
 * leave, leaves nowhere. */
static void each_key(const struct br_rules *r, const struct br_rule *rule, struct br_attributes *m)
{
    for (uint32_t i = 0; i < m->n && !m->no_memory; i++) {
        struct br_attribute *p = &m->pieces[i];
        if (!p->attribute || p->deleted)
            continue;
        if (rule->key_len && p->key_len == rule->key_len &&
            memcmp(p->key, rule->key, p->key_len) == 0)
            act(rule, m, p);
        if (rule->pattern && !p->deleted && matches(r, rule, m, p->key, p->key_len, true))
            act(rule, m, p);
    }
}

static void extract(const struct br_rules *r, const struct br_rule *rule, struct br_attributes *m)
{
    const struct br_attribute *p = br_attributes_find(m, rule->key, rule->key_len);
    struct br_any any = p ? br_any_read(p->value) : (struct br_any){0};
    if (any.type != BR_VALUE_STRING || !matches(r, rule, m, any.data, any.len, false))
        return;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->regex.match);
    uint32_t n = pcre2_get_ovector_count(r->regex.match);
    for (uint32_t i = 0; i < rule->n_groups && i + 1 < n; i++) {
        PCRE2_SIZE from = at[2 * i + 2], to = at[2 * i + 3];
        struct br_value v;
        if (from == PCRE2_UNSET || to < from)
            from = to = 0;
        if (!br_value_string(any.data + from, to - from, m->arena, &v)) {
            m->no_memory = true;
            return;
        }
        br_attributes_put(m, rule->groups[i], strlen(rule->groups[i]), v);
    }
}

static void convert(const struct br_rule *rule, struct br_attributes *m)
{
    struct br_attribute *p = br_attributes_find(m, rule->key, rule->key_len);
    struct br_value v;
    if (p && result_of(rule, m, p->value, &v))
        br_attribute_set(p, v);
    else if (p)
        m->no_memory = true;
}

bool br_rules_apply(const struct br_rules *r, struct br_attributes *m, const char *metadata)
{
    for (size_t i = 0; i < r->n && !m->no_memory && !m->too_many; i++) {
        const struct br_rule *rule = &r->v[i];
        if (rule->action <= BR_RULE_UPSERT)
            assign(rule, m, metadata);
        else if (rule->action <= BR_RULE_HASH)
            each_key(r, rule, m);
        else if (rule->action == BR_RULE_EXTRACT)
            extract(r, rule, m);
        else
            convert(rule, m);
    }
    return !m->no_memory && !m->too_many;
}
