/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The span processor sets names of spans from attributes, extracts attributes from names of spans,
 * and sets the status of spans. Only the changed spans are rewritten.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attribute/match.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "otlp/fields.h"
#include "otlp/scan.h"
#include "pipeline/component.h"

#define SCRATCH_MAX (256u << 20)

/* Text that the Collector writes for the value of an attribute that is a list, a map, bytes or
 * empty. */
#define OTHER_TYPE "<unknown-attribute-type>"

struct to_attributes {
    struct br_strings rules;
    bool break_after_match, keep_original_name;
};

struct status {
    int code; /* value of Status.StatusCode */
    const char *description;
};

struct naming {
    struct br_strings from_attributes;
    const char *separator;
    struct to_attributes *to_attributes;
};

struct config {
    const struct br_match_config *include, *exclude;
    struct naming name;
    struct status *status;
    /* processor time, in nanoseconds, that regular expressions may take for an item, in addition
     * to 20 ns per byte of the item */
    uint64_t match_time;
};

/* A compiled expression of to_attributes::rules. */
struct rule {
    pcre2_code *pattern;
    const char **groups; /* names of the groups from group 1 on; "" for a group without a name */
    uint32_t n_groups;
};

struct state {
    struct br_arena arena; /* memory of the rules and the matcher */
    struct rule *rules;
    size_t n_rules;
    struct br_regex regex; /* state of the rules' expressions */
    struct br_matcher matcher;
    struct br_attributes list; /* attributes of the current span */
    struct br_arena scratch;   /* memory for the new name and attribute values of the span */
    struct br_buf *body;       /* rewritten message of the current span */
    struct br_regex_time time; /* time that regular expressions took for the current item */
    uint8_t *status;           /* content of the new Status message */
    size_t status_len;
    unsigned n_gave_up;
    struct br_log_limit limit;
    double *gave_up;
};

/* The names are in the order of the values of Status.StatusCode. */
static const char *const codes[] = {"Unset", "Ok", "Error", NULL};

static const struct br_option to_attributes_options[] = {
    BR_STRINGS(struct to_attributes, rules,
               "regular expressions; the text of each named group becomes an attribute of that "
               "name, and {name} replaces this text in the name of the span"),
    BR_BOOL(struct to_attributes, break_after_match, false,
            "true: only the first expression that matches is used; false: each expression is "
            "applied to the name that the previous one produced"),
    BR_BOOL(struct to_attributes, keep_original_name, false,
            "true: the name of the span is not changed"),
    BR_OPT_END,
};

static const struct br_option name_options[] = {
    BR_STRINGS(struct naming, from_attributes,
               "keys of attributes whose values form the new name; a span that lacks one of them "
               "keeps its name"),
    BR_STRING(struct naming, separator, "", "text between the values of from_attributes"),
    BR_PRESENT(struct naming, to_attributes, struct to_attributes, to_attributes_options,
               "extracts attributes from the name, after from_attributes has been applied"),
    BR_OPT_END,
};

static const struct br_option status_options[] = {
    {.name = "code",
     .kind = BR_OPT_ENUM,
     .offset = BR_OPT_FIELD(struct status, code, int),
     .required = true,
     .choices = codes,
     .help = "new status code of the spans"},
    BR_STRING(struct status, description, "", "Error: description of the status"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    {.name = "include",
     .kind = BR_OPT_PRESENT,
     .offset = offsetof(struct config, include),
     .sub = br_match_span_options,
     .size = sizeof(struct br_match_config),
     .help = "criteria of the spans that are changed; default: all are changed"},
    {.name = "exclude",
     .kind = BR_OPT_PRESENT,
     .offset = offsetof(struct config, exclude),
     .sub = br_match_span_options,
     .size = sizeof(struct br_match_config),
     .help = "criteria of spans that are not changed although `include` matches them; default: "
             "none"},
    BR_STRUCT(struct config, name, name_options, "changes the names of spans"),
    BR_PRESENT(struct config, status, struct status, status_options, "sets the status of spans"),
    BR_DURATION(
        struct config, match_time, "20ms",
        "CPU time for matching all patterns against a request, in addition to 20 ns per byte; when "
        "it is used up, patterns match nothing"),
    BR_OPT_END,
};

/* --- Config ----------------------------------------------------------------------------------- */

static size_t span_n_rules(const struct config *config)
{
    return config->name.to_attributes ? config->name.to_attributes->rules.count : 0;
}

static int span_check_rules(const struct br_strings *rules, const struct br_yaml *node,
                            const char *path, struct br_errs *errs)
{
    struct br_regex regex = {0};
    int rc = 0;
    for (size_t i = 0; i < rules->count && rc != BR_ENOMEM; i++) {
        char why[BR_REGEX_WHY_SIZE];
        pcre2_code *pattern = NULL;
        int one = br_regex_compile(&regex, rules->items[i], &pattern, why);
        pcre2_code_free(pattern);
        if (one == BR_EINVAL) {
            char where[256];
            (void)snprintf(where, sizeof where, "%s::name::to_attributes::rules[%zu]", path, i);
            one = br_errs_add(errs, node, where, "is not a valid regular expression: %s", why);
        }
        rc = one ? one : rc;
    }
    br_regex_release(&regex);
    return rc;
}

static int span_check(void *settings, const struct br_yaml *node, const char *path,
                      struct br_arena *arena, struct br_errs *errs)
{
    const struct config *config = settings;
    const struct br_yaml *name = br_yaml_get(node, "name");
    int rc = br_match_check(config->include, config->exclude, node, path, arena, errs), more = 0;
    if (span_n_rules(config))
        more = span_check_rules(&config->name.to_attributes->rules, name ? name : node, path, errs);
    rc = more ? more : rc;
    if (!config->name.from_attributes.count && !span_n_rules(config) && !config->status)
        rc = br_errs_add(errs, node, path,
                         "changes nothing: set name::from_attributes, name::to_attributes::rules "
                         "or status");
    if (config->status && config->status->description[0] &&
        config->status->code != BR_SPAN_STATUS_ERROR)
        rc = br_errs_add(errs, br_yaml_get(node, "status"), path,
                         "status::description requires the code Error, got %s",
                         codes[config->status->code]);
    return rc;
}

static void span_destroy(struct br_node *node)
{
    struct state *state = node->state;
    for (size_t i = 0; i < state->n_rules; i++)
        pcre2_code_free(state->rules[i].pattern);
    br_regex_release(&state->regex);
    br_matcher_release(&state->matcher);
    br_attributes_release(&state->list);
    br_buf_unref(state->body);
    br_arena_release(&state->scratch);
    br_arena_release(&state->arena);
}

static int span_name_groups(struct state *state, struct rule *rule)
{
    uint32_t n_names, size;
    PCRE2_SPTR names;
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_CAPTURECOUNT, &rule->n_groups);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMECOUNT, &n_names);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMEENTRYSIZE, &size);
    (void)pcre2_pattern_info(rule->pattern, PCRE2_INFO_NAMETABLE, &names);
    rule->groups = br_arena_calloc(&state->arena, rule->n_groups, sizeof *rule->groups);
    if (!rule->groups)
        return BR_ENOMEM;
    for (uint32_t i = 0; i < rule->n_groups; i++)
        rule->groups[i] = "";
    /* an entry of the name table is the number of the group in two bytes, and its name */
    for (uint32_t i = 0; i < n_names; i++, names += size)
        rule->groups[(names[0] << 8 | names[1]) - 1] = (const char *)names + 2;
    return 0;
}

static int span_compile_rules(struct state *state, const struct br_strings *rules,
                              struct br_err *err)
{
    state->rules = br_arena_calloc(&state->arena, rules->count, sizeof *state->rules);
    if (!state->rules)
        return BR_ENOMEM;
    for (size_t i = 0; i < rules->count; i++) {
        char why[BR_REGEX_WHY_SIZE] = "";
        struct rule *rule = &state->rules[state->n_rules++];
        int rc = br_regex_compile(&state->regex, rules->items[i], &rule->pattern, why);
        if (rc == BR_EINVAL)
            return br_err_set(err, rc, "\"%s\" is not a valid regular expression: %s",
                              rules->items[i], why);
        if (!rc)
            rc = span_name_groups(state, rule);
        if (rc)
            return rc;
    }
    return br_regex_ready(&state->regex);
}

/* Prepares the content of the Status message that the spans get. */
static int span_make_status(struct state *state, const struct status *status)
{
    size_t len = strlen(status->description);
    state->status = br_arena_alloc(&state->arena, 2 + br_len_size(BR_SPAN_STATUS_MESSAGE, len));
    if (!state->status)
        return BR_ENOMEM;
    uint8_t *p = state->status;
    if (len)
        p = br_put_len(p, BR_SPAN_STATUS_MESSAGE, status->description, len);
    if (status->code) {
        p = br_put_varint(p, BR_TAG(BR_SPAN_STATUS_CODE, BR_WIRE_VARINT));
        p = br_put_varint(p, (uint64_t)status->code);
    }
    state->status_len = (size_t)(p - state->status);
    return 0;
}

static int span_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    int rc = 0;
    br_arena_init(&state->arena, 0);
    br_arena_init(&state->scratch, SCRATCH_MAX);
    state->list.arena = &state->scratch;
    if (span_n_rules(config))
        rc = span_compile_rules(state, &config->name.to_attributes->rules, err);
    if (!rc && config->status)
        rc = span_make_status(state, config->status);
    if (!rc)
        rc = br_matcher_init(&state->matcher, config->include, config->exclude, &state->arena, err);
    if (rc) {
        span_destroy(node);
        return rc == BR_ENOMEM ? br_err_set(err, rc, "out of memory") : rc;
    }
    if (state->n_rules)
        br_regex_bound(&state->regex, &state->time);
    br_regex_bound(&state->matcher.regex, &state->time);
    state->gave_up = br_node_metric(node, BR_COUNTER, "braid_span_gave_up", NULL, NULL);
    return 0;
}

/* --- Names ------------------------------------------------------------------------------------ */

struct text {
    const uint8_t *data;
    size_t len;
};

/* Returns the name of a span. If the span repeats the field, the last name counts. */
static struct text span_name_of(const uint8_t *body, size_t len)
{
    const uint8_t *p = body, *end = body + len;
    struct text name = {0};
    struct br_field field;
    while (len && p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_SPAN_NAME))
            name = (struct text){field.data, (size_t)field.value};
    return name;
}

static void span_append_value(struct br_str *out, struct br_value value)
{
    struct br_any any = br_any_read(value);
    double number;
    switch (any.type) {
    case BR_VALUE_STRING:
        br_str_add(out, any.data, any.len);
        break;
    case BR_VALUE_BOOL:
        br_str_puts(out, any.number ? "true" : "false");
        break;
    case BR_VALUE_INT:
        br_str_printf(out, "%" PRId64, (int64_t)any.number);
        break;
    case BR_VALUE_DOUBLE:
        memcpy(&number, &any.number, sizeof number);
        br_value_text_plain(out, number);
        break;
    default:
        br_str_puts(out, OTHER_TYPE);
        break;
    }
}

/* Copies the text to the arena of the span and releases it. Returns 0 or BR_ENOMEM. */
static int span_keep_text(struct state *state, struct br_str *text, struct text *ret)
{
    const char *data = text->data ? text->data : "";
    char *copy = text->failed ? NULL : br_arena_strndup(&state->scratch, data, text->len);
    if (copy)
        *ret = (struct text){(const uint8_t *)copy, text->len};
    br_str_release(text);
    return copy ? 0 : BR_ENOMEM;
}

/* Sets the name to the values of from_attributes, if the span has all of them. */
static int span_from_attributes(struct state *state, const struct config *config, struct text *name)
{
    const struct br_strings *keys = &config->name.from_attributes;
    struct br_str text = {.max = BR_BUF_MAX};
    if (!keys->count)
        return 0;
    for (size_t i = 0; i < keys->count; i++) {
        const struct br_attribute *attribute =
            br_attributes_find(&state->list, keys->items[i], strlen(keys->items[i]));
        if (!attribute) {
            br_str_release(&text);
            return 0;
        }
        if (i)
            br_str_puts(&text, config->name.separator);
        span_append_value(&text, attribute->value);
    }
    return span_keep_text(state, &text, name);
}

/* --- Attributes ------------------------------------------------------------------------------- */

static void span_put_text(struct br_attributes *list, const char *key, struct text text)
{
    struct br_value value;
    if (br_value_string(text.data, text.len, list->arena, &value))
        br_attributes_put(list, key, strlen(key), value);
    else
        list->no_memory = true;
}

/* Extracts the groups of the last match as attributes, and replaces their texts in the name. A
 * group that took no part in the match is skipped. A group inside another group also becomes an
 * attribute, but only the outer group is replaced in the name. */
static int span_extract(struct state *state, const struct rule *rule, struct text *name)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(state->regex.match);
    struct br_str text = {.max = BR_BUF_MAX};
    size_t copied = 0;
    for (uint32_t i = 0; i < rule->n_groups; i++) {
        PCRE2_SIZE from = at[2 * i + 2], to = at[2 * i + 3];
        if (from == PCRE2_UNSET || to < from)
            continue;
        span_put_text(&state->list, rule->groups[i], (struct text){name->data + from, to - from});
        if (from < copied)
            continue;
        br_str_add(&text, name->data + copied, from - copied);
        br_str_putc(&text, '{');
        br_str_puts(&text, rule->groups[i]);
        br_str_putc(&text, '}');
        copied = to;
    }
    br_str_add(&text, name->data + copied, name->len - copied);
    return span_keep_text(state, &text, name);
}

static int span_apply_rules(struct state *state, const struct to_attributes *to, struct text *name)
{
    for (size_t i = 0; i < state->n_rules && name->len; i++) {
        const struct rule *rule = &state->rules[i];
        struct text changed = *name;
        int rc = br_regex_match(&state->regex, rule->pattern, name->data, name->len);
        state->n_gave_up += rc == BR_EFULL;
        if (rc == BR_ENOMEM)
            return rc;
        if (rc <= 0)
            continue;
        rc = span_extract(state, rule, &changed);
        if (rc)
            return rc;
        if (!to->keep_original_name)
            *name = changed;
        if (to->break_after_match)
            break;
    }
    return 0;
}

/* --- Spans ------------------------------------------------------------------------------------ */

/* Copies the fields of a message, without the name if `named` is set and without the status if
 * `status` is set. The output may overlap the input if it begins at or before the input. */
static uint8_t *span_copy_other_fields(const uint8_t *data, size_t len, bool named, bool status,
                                       uint8_t *out)
{
    const uint8_t *p = data, *end = data + len;
    while (p < end) {
        struct br_field field;
        const uint8_t *at = p;
        p = br_field_next(p, end, &field);
        if (!p)
            break;
        bool replaced =
            (named && field.number == BR_SPAN_NAME) || (status && field.number == BR_SPAN_STATUS);
        if (replaced)
            continue;
        memmove(out, at, (size_t)(p - at));
        out += p - at;
    }
    return out;
}

/* Writes the span with its new name, status and attributes. `name` is NULL if the name does not
 * change. */
static int span_write(struct br_node *node, struct br_visit *visit, const struct text *name)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    size_t len = br_attributes_size(&state->list);
    size_t size = len + br_len_size(BR_SPAN_STATUS, state->status_len) +
                  (name ? br_len_size(BR_SPAN_NAME, name->len) : 0);
    if (br_buf_prepare(&state->body, node->host->pool, size))
        return BR_ENOMEM;
    uint8_t *begin = state->body->data;
    (void)br_attributes_write(&state->list, begin);
    uint8_t *p = begin;
    if (name || config->status)
        p = span_copy_other_fields(begin, len, name != NULL, config->status != NULL, p);
    else
        p += len;
    if (name && name->len)
        p = br_put_len(p, BR_SPAN_NAME, name->data, name->len);
    if (state->status_len)
        p = br_put_len(p, BR_SPAN_STATUS, state->status, state->status_len);
    visit->out = (struct br_addition){begin, (size_t)(p - begin)};
    return BR_REPLACE;
}

static int span_rewrite(void *arg, struct br_visit *visit)
{
    struct br_node *node = arg;
    struct state *state = node->state;
    const struct config *config = node->config;
    struct br_attributes *list = &state->list;
    struct text before = span_name_of(visit->body, visit->len), name = before;
    if (!br_attributes_read(list, BR_SPAN_ATTRIBUTES, visit->body, visit->len))
        return list->too_many ? BR_EFULL : BR_ENOMEM;
    int rc = span_from_attributes(state, config, &name);
    if (!rc && state->n_rules)
        rc = span_apply_rules(state, config->name.to_attributes, &name);
    if (rc)
        return rc;
    if (list->too_many || list->no_memory)
        return list->too_many ? BR_EFULL : BR_ENOMEM;
    bool renamed = !br_bytes_equal(before.data, before.len, name.data, name.len);
    if (!renamed && !config->status && !br_attributes_changed(list))
        return BR_KEEP;
    return span_write(node, visit, renamed ? &name : NULL);
}

/* --- Traffic ---------------------------------------------------------------------------------- */

static void span_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct br_mem_scope scope;
    br_regex_time_begin(&state->time, config->match_time, item);
    br_item_edit_begin(&scope, item);
    int rc = br_matcher_begin(&state->matcher, item);
    if (!rc)
        rc = br_matcher_rewrite(&state->matcher, 1u << BR_LEVEL_RECORD, &state->scratch,
                                span_rewrite, node);
    br_matcher_end(&state->matcher);
    rc = br_item_edit_end(&scope, rc);
    br_node_count_gave_up(node, state->gave_up, state->n_gave_up + state->matcher.n_gave_up,
                          &state->limit, "matching a pattern took too long");
    state->n_gave_up = state->matcher.n_gave_up = 0;
    if (rc)
        br_item_edit_fail(item, rc, "span",
                          "a span has too many attributes, or the result is too large");
    else
        br_node_forward(node, item);
}

extern const struct br_component br_span_processor;
const struct br_component br_span_processor = {
    .name = "span",
    .kind = BR_PROCESSOR,
    .signals = BR_SIGNAL_BIT(BR_TRACES),
    .stability = "beta",
    .help = "changes the names and the status of spans, and extracts attributes from names",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = span_check,
    .create = span_create,
    .consume = span_consume,
    .destroy = span_destroy,
};
