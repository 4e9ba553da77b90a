/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/resource/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"

#define MATCH_STEPS_MAX 1000000 /* of one pattern over one text; see resource_message.gave_up */

static const char *const actions[] = {"insert", "update",  "upsert",  "delete",
                                      "hash",   "extract", "convert", NULL};

const struct br_option resource_rule_options[] = {
    BR_STRING(struct resource_rule_config, key, NULL, "the attribute to act on"),
    {.name = "action",
     .kind = BR_OPT_ENUM,
     .offset = BR_OPT_FIELD(struct resource_rule_config, action, int),
     .required = true,
     .choices = actions,
     .help = "what to do with it"},
    BR_VALUE(struct resource_rule_config, value,
             "insert, update, upsert: the new value; text, number, true, false, a list or a map"),
    BR_STRING(struct resource_rule_config, from_attribute, NULL,
              "insert, update, upsert: the attribute to take the value from"),
    BR_STRING(
        struct resource_rule_config, from_context, NULL,
        "insert, update, upsert: metadata.NAME takes the value from the client's header NAME"),
    BR_VALUE(struct resource_rule_config, default_value,
             "insert, update, upsert: the value where from_attribute or from_context finds none"),
    BR_STRING(struct resource_rule_config, pattern, NULL,
              "extract: regular expression of named groups; delete, hash: one for keys"),
    BR_STRING(struct resource_rule_config, converted_type, NULL, "convert: string, int or double"),
    BR_OPT_END,
};

static int wrong(struct resource_problem *problem, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int wrong(struct resource_problem *problem, const char *key, const char *fmt, ...)
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

static void *memory_get(size_t size, void *arg)
{
    (void)arg;
    return br_malloc(size);
}

static void memory_put(void *p, void *arg)
{
    (void)arg;
    br_free(p);
}

/* As Go's regexp, where the two differ: `$` is the end of the text, classes are ASCII. */
static int compile_pattern(struct resource_rules *r, struct resource_rule *rule, const char *text,
                           struct resource_problem *problem)
{
    pcre2_compile_context *context = pcre2_compile_context_create(r->memory);
    int code;
    PCRE2_SIZE at;
    if (!context)
        return BR_ENOMEM;
    rule->pattern = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                  PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOLLAR_ENDONLY |
                                      PCRE2_NEVER_BACKSLASH_C,
                                  &code, &at, context);
    pcre2_compile_context_free(context);
    if (rule->pattern)
        return 0;
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return BR_ENOMEM;
    PCRE2_UCHAR why[160];
    (void)pcre2_get_error_message(code, why, sizeof why);
    return wrong(problem, "pattern", "is no regular expression: %s, at character %zu",
                 (const char *)why, (size_t)at + 1);
}

static int read_groups(struct resource_rules *r, struct resource_rule *rule,
                       struct resource_problem *problem)
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

const char *resource_context_header(const char *from_context)
{
    if (strcmp(from_context, "client.address") == 0 || strncmp(from_context, "auth.", 5) == 0)
        return NULL;
    return strncmp(from_context, "metadata.", 9) == 0 ? from_context + 9 : from_context;
}

static int compile_source(struct resource_rules *r, struct resource_rule *rule,
                          const struct resource_rule_config *c, struct resource_problem *problem)
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
        rule->from_metadata = resource_context_header(c->from_context);
        if (!rule->from_metadata)
            return wrong(problem, "from_context", "%s is not supported, only metadata.NAME is",
                         c->from_context);
    }
    rule->has_value = has_node(c->value);
    rule->has_default = has_node(c->default_value);
    return resource_value_from_yaml(c->value, r->arena, &rule->value) &&
                   resource_value_from_yaml(c->default_value, r->arena, &rule->default_value)
               ? 0
               : BR_ENOMEM;
}

static int compile_keys(struct resource_rules *r, struct resource_rule *rule,
                        const struct resource_rule_config *c, struct resource_problem *problem)
{
    const char *name = actions[c->action];
    if (has_node(c->value) || is_set(c->from_attribute))
        return wrong(problem, has_node(c->value) ? "value" : "from_attribute",
                     "does not belong to %s; remove it", name);
    if (is_set(c->converted_type))
        return wrong(problem, "converted_type", "does not belong to %s; remove it", name);
    return is_set(c->pattern) ? compile_pattern(r, rule, c->pattern, problem) : 0;
}

static int no_source(const struct resource_rule_config *c, struct resource_problem *problem)
{
    const char *key = has_node(c->value)          ? "value"
                      : is_set(c->from_attribute) ? "from_attribute"
                      : is_set(c->from_context)   ? "from_context"
                                                  : NULL;
    return key ? wrong(problem, key, "does not belong to %s; remove it", actions[c->action]) : 0;
}

static int compile_extract(struct resource_rules *r, struct resource_rule *rule,
                           const struct resource_rule_config *c, struct resource_problem *problem)
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

static int compile_convert(struct resource_rule *rule, const struct resource_rule_config *c,
                           struct resource_problem *problem)
{
    static const struct {
        const char *name;
        enum resource_type type;
    } types[] = {{"string", RESOURCE_STRING}, {"int", RESOURCE_INT}, {"double", RESOURCE_DOUBLE}};
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

static int compile(struct resource_rules *r, struct resource_rule *rule,
                   const struct resource_rule_config *c, struct resource_problem *problem)
{
    bool by_pattern = c->action == RESOURCE_DELETE || c->action == RESOURCE_HASH;
    rule->action = (enum resource_action)c->action;
    rule->key = c->key ? c->key : "";
    rule->key_len = strlen(rule->key);
    if (!rule->key_len && (!by_pattern || !is_set(c->pattern)))
        return wrong(problem, NULL, "%s needs a key%s", actions[c->action],
                     by_pattern ? " or a pattern" : "");
    switch (rule->action) {
    case RESOURCE_INSERT:
    case RESOURCE_UPDATE:
    case RESOURCE_UPSERT:
        return compile_source(r, rule, c, problem);
    case RESOURCE_DELETE:
    case RESOURCE_HASH:
        return compile_keys(r, rule, c, problem);
    case RESOURCE_EXTRACT:
        return compile_extract(r, rule, c, problem);
    case RESOURCE_CONVERT:
        return compile_convert(rule, c, problem);
    }
    return 0;
}

int resource_rules_compile(const struct resource_rule_config *c, size_t n, struct br_arena *arena,
                           struct resource_rules *ret, struct resource_problem *problem)
{
    uint32_t most = 0;
    *ret = (struct resource_rules){.arena = arena};
    ret->v = br_arena_calloc(arena, n, sizeof *ret->v);
    ret->memory = pcre2_general_context_create(memory_get, memory_put, NULL);
    ret->limits = ret->memory ? pcre2_match_context_create(ret->memory) : NULL;
    if (!ret->v || !ret->limits)
        return BR_ENOMEM;
    (void)pcre2_set_match_limit(ret->limits, MATCH_STEPS_MAX);
    for (; ret->n < n; ret->n++) {
        struct resource_rule *rule = &ret->v[ret->n];
        problem->rule = ret->n;
        int rc = compile(ret, rule, &c[ret->n], problem);
        if (rc) {
            ret->n++; /* so that its pattern is released */
            return rc;
        }
        most = rule->n_groups > most ? rule->n_groups : most;
    }
    ret->match = pcre2_match_data_create(most + 1, ret->memory);
    return ret->match ? 0 : BR_ENOMEM;
}

void resource_rules_release(struct resource_rules *r)
{
    for (size_t i = 0; i < r->n; i++)
        pcre2_code_free(r->v[i].pattern);
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->limits);
    pcre2_general_context_free(r->memory);
    *r = (struct resource_rules){0};
}

/* --- Applying -------------------------------------------------------------------------------- */

static bool matches(const struct resource_rules *r, const struct resource_rule *rule,
                    struct resource_message *m, const uint8_t *text, size_t len)
{
    int rc = pcre2_match(rule->pattern, text ? text : (const uint8_t *)"", len, 0, 0, r->match,
                         r->limits);
    if (rc == PCRE2_ERROR_NOMEMORY)
        m->no_memory = true;
    else if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        m->gave_up = true;
    return rc >= 0;
}

/* The values of a header, joined by ";". */
static bool from_metadata(struct resource_message *m, const char *name, const char *metadata,
                          struct resource_value *ret)
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
    if (found && (text.failed || !resource_value_string(joined, text.len, m->arena, ret)))
        m->no_memory = true;
    br_str_release(&text);
    return found;
}

static bool source(const struct resource_rule *rule, struct resource_message *m,
                   const char *metadata, struct resource_value *ret)
{
    const struct resource_piece *from = NULL;
    if (rule->has_value) {
        *ret = rule->value;
        return true;
    }
    if (rule->from_metadata && from_metadata(m, rule->from_metadata, metadata, ret))
        return !m->no_memory;
    if (rule->from_attribute)
        from = resource_message_find(m, rule->from_attribute, strlen(rule->from_attribute));
    if (from)
        *ret = from->value;
    else if (rule->has_default)
        *ret = rule->default_value;
    return from || rule->has_default;
}

static void assign(const struct resource_rule *rule, struct resource_message *m,
                   const char *metadata)
{
    struct resource_value v;
    if (!source(rule, m, metadata, &v))
        return;
    bool there = resource_message_find(m, rule->key, rule->key_len) != NULL;
    if (there ? rule->action != RESOURCE_INSERT : rule->action != RESOURCE_UPDATE)
        resource_message_put(m, rule->key, rule->key_len, v);
}

static void act(const struct resource_rule *rule, struct resource_message *m,
                struct resource_piece *p)
{
    struct resource_value v;
    if (rule->action == RESOURCE_DELETE)
        p->deleted = true;
    else if (resource_value_hash(p->value, m->arena, &v))
        resource_piece_set(p, v);
    else
        m->no_memory = true;
}

/* Every attribute of the key, should there be more than one: what shall not leave, leaves nowhere.
 */
static void each_key(const struct resource_rules *r, const struct resource_rule *rule,
                     struct resource_message *m)
{
    for (uint32_t i = 0; i < m->n && !m->no_memory; i++) {
        struct resource_piece *p = &m->pieces[i];
        if (!p->attribute || p->deleted)
            continue;
        if (rule->key_len && p->key_len == rule->key_len &&
            memcmp(p->key, rule->key, p->key_len) == 0)
            act(rule, m, p);
        if (rule->pattern && !p->deleted && matches(r, rule, m, p->key, p->key_len))
            act(rule, m, p);
    }
}

static void extract(const struct resource_rules *r, const struct resource_rule *rule,
                    struct resource_message *m)
{
    const struct resource_piece *p = resource_message_find(m, rule->key, rule->key_len);
    struct resource_any any = p ? resource_any_read(p->value) : (struct resource_any){0};
    if (any.type != RESOURCE_STRING || !matches(r, rule, m, any.data, any.len))
        return;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->match);
    uint32_t n = pcre2_get_ovector_count(r->match);
    for (uint32_t i = 0; i < rule->n_groups && i + 1 < n; i++) {
        PCRE2_SIZE from = at[2 * i + 2], to = at[2 * i + 3];
        struct resource_value v;
        if (from == PCRE2_UNSET || to < from)
            from = to = 0;
        if (!resource_value_string(any.data + from, to - from, m->arena, &v)) {
            m->no_memory = true;
            return;
        }
        resource_message_put(m, rule->groups[i], strlen(rule->groups[i]), v);
    }
}

static void convert(const struct resource_rule *rule, struct resource_message *m)
{
    struct resource_piece *p = resource_message_find(m, rule->key, rule->key_len);
    struct resource_value v;
    if (p && resource_value_convert(p->value, rule->to, m->arena, &v))
        resource_piece_set(p, v);
    else if (p)
        m->no_memory = true;
}

bool resource_rules_apply(const struct resource_rules *r, struct resource_message *m,
                          const char *metadata)
{
    for (size_t i = 0; i < r->n && !m->no_memory && !m->too_many; i++) {
        const struct resource_rule *rule = &r->v[i];
        if (rule->action <= RESOURCE_UPSERT)
            assign(rule, m, metadata);
        else if (rule->action <= RESOURCE_HASH)
            each_key(r, rule, m);
        else if (rule->action == RESOURCE_EXTRACT)
            extract(r, rule, m);
        else
            convert(rule, m);
    }
    return !m->no_memory && !m->too_many;
}
