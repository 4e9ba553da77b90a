/* SPDX-License-Identifier: Apache-2.0 */
/* Parses calls of functions and checks their arguments. */
#include <stdio.h>
#include <string.h>

#include "attribute/expression_parse.h"
#include "attribute/value.h"
#include "base/bytes.h"
#include "base/str.h"

/* A call that is being parsed. */
struct calling {
    struct br_parser *parser;
    struct br_expression *call;
    const char *at; /* first character of the current argument */
    const struct br_parameter *parameter;
    bool named; /* an argument with a name was found */
};

static bool calls_fail(const struct calling *calling, const char *must)
{
    (void)br_parser_fail(calling->parser, calling->at, "the argument %s of %s must be %s",
                         calling->parameter->name, calling->call->function->name, must);
    return false;
}

static bool calls_is_literal(const struct br_expression *value, enum br_value_type type)
{
    return value->kind == BR_EXPRESSION_LITERAL && value->literal.type == type;
}

static bool calls_check_pattern(const struct calling *calling, const struct br_expression *value)
{
    struct br_parser *parser = calling->parser;
    struct br_conditions *conditions = parser->conditions;
    char why[BR_REGEX_WHY_SIZE];
    pcre2_code *code = NULL;
    if (value->kind != BR_EXPRESSION_LITERAL)
        return br_parser_lack(parser, calling->at, "the pattern of %s must be in double quotes",
                              calling->call->function->name);
    if (!calls_is_literal(value, BR_VALUE_STRING))
        return calls_fail(calling, "a pattern in double quotes");
    if (memchr(value->literal.data, '\0', value->literal.len))
        return br_parser_fail(parser, calling->at, "a pattern must not contain a NUL");
    int rc = br_regex_compile(&conditions->regex, (const char *)value->literal.data, &code, why);
    if (rc == BR_EINVAL)
        return br_parser_fail(parser, calling->at, "invalid regular expression: %s", why);
    struct br_pattern *pattern =
        rc ? NULL : br_arena_calloc(parser->lexer.arena, 1, sizeof *pattern);
    if (!pattern) {
        pcre2_code_free(code);
        return br_parser_keep(parser, NULL);
    }
    *pattern = (struct br_pattern){code, conditions->patterns};
    conditions->patterns = pattern;
    calling->call->pattern = code;
    return true;
}

static bool calls_check_mode(const struct calling *calling, const struct br_expression *value)
{
    const char *const *choices = calling->parameter->choices;
    char text[120];
    struct br_str list = {.data = text, .cap = sizeof text, .max = sizeof text - 1, .fixed = true};
    text[0] = '\0';
    br_str_puts(&list, "one of");
    for (unsigned i = 0; choices[i]; i++) {
        if (calls_is_literal(value, BR_VALUE_STRING) &&
            br_bytes_are(value->literal.data, value->literal.len, choices[i])) {
            calling->call->mode = i;
            return true;
        }
        br_str_printf(&list, "%s \"%s\"", i ? "," : "", choices[i]);
    }
    return calls_fail(calling, text);
}

static bool calls_check_keys(const struct calling *calling, const struct br_expression *value)
{
    bool texts = value->kind == BR_EXPRESSION_LIST;
    for (uint32_t i = 0; i < value->n_items && texts; i++)
        texts = calls_is_literal(value->items[i], BR_VALUE_STRING);
    return texts || calls_fail(calling, "a list of texts in double quotes");
}

static bool calls_check_target(const struct calling *calling, const struct br_expression *value)
{
    if (value->kind != BR_EXPRESSION_PATH || !value->bare)
        return calls_fail(calling, "a path");
    return br_parser_can_change(calling->parser, value, calling->at);
}

/* Checks the type of a literal. The types of other values are checked when the function is called.
 */
static bool calls_check_value(const struct calling *calling, const struct br_expression *value)
{
    enum br_value_type type = value->literal.type;
    unsigned allowed = calling->parameter->literals;
    char must[120];
    struct br_str list = {.data = must, .cap = sizeof must, .max = sizeof must - 1, .fixed = true};
    if (value->kind == BR_EXPRESSION_LIST || value->kind == BR_EXPRESSION_MAP)
        type = value->kind == BR_EXPRESSION_LIST ? BR_VALUE_LIST : BR_VALUE_MAP;
    if (!allowed || !br_expression_is_literal(value) || allowed >> type & 1)
        return true;
    must[0] = '\0';
    for (unsigned i = 0; i <= BR_VALUE_BYTES; i++) {
        struct br_any any = {.type = (enum br_value_type)i};
        if (allowed >> i & 1)
            br_str_printf(&list, "%s%s", list.len ? " or " : "", br_any_name(&any));
    }
    return calls_fail(calling, must);
}

static bool calls_check_argument(const struct calling *calling, const struct br_expression *value)
{
    switch (calling->parameter->kind) {
    case BR_PARAMETER_TARGET:
    case BR_PARAMETER_MAP:
        return calls_check_target(calling, value);
    case BR_PARAMETER_PATTERN:
        return calls_check_pattern(calling, value);
    case BR_PARAMETER_MODE:
        return calls_check_mode(calling, value);
    case BR_PARAMETER_COUNT:
        return (calls_is_literal(value, BR_VALUE_INT) && value->bare) ||
               calls_fail(calling, "a whole number of at least 0, without a sign");
    case BR_PARAMETER_BOOL:
        return calls_is_literal(value, BR_VALUE_BOOL) || calls_fail(calling, "true or false");
    case BR_PARAMETER_KEYS:
        return calls_check_keys(calling, value);
    case BR_PARAMETER_LIST:
        return value->kind == BR_EXPRESSION_LIST || calls_fail(calling, "a list in brackets");
    default:
        return calls_check_value(calling, value);
    }
}

/* Parses the name of a named argument and its "=". Returns the parameter's index, or `next` if the
 * argument has no name. */
static uint32_t calls_named(struct calling *calling, uint32_t next)
{
    struct br_parser *parser = calling->parser;
    const struct br_parameter *parameters = calling->call->function->parameters;
    const char *start = parser->lexer.at;
    size_t len = br_word_len(start, parser->lexer.end);
    const char *p = start + len;
    while (*p && strchr(parser->lexer.rules->blanks, *p))
        p++;
    if (!len || *p != '=' || p[1] == '=') {
        if (calling->named)
            (void)br_parser_fail(parser, start, "an argument after one with a name needs a name");
        return next;
    }
    parser->lexer.at = p + 1;
    calling->named = true;
    for (uint32_t i = 0; parameters[i].kind != BR_PARAMETER_END; i++)
        if (br_bytes_are(start, len, parameters[i].name))
            return i;
    (void)br_parser_lack(parser, start, "the argument %.*s of %s is not supported", (int)len, start,
                         calling->call->function->name);
    return next;
}

static bool calls_parse_argument(struct calling *calling, uint32_t *next)
{
    struct br_parser *parser = calling->parser;
    const struct br_function *function = calling->call->function;
    br_lexer_skip(&parser->lexer);
    uint32_t index = calls_named(calling, *next);
    br_lexer_skip(&parser->lexer);
    calling->at = parser->lexer.at;
    calling->parameter = &function->parameters[index];
    if (calling->parameter->kind == BR_PARAMETER_END)
        return br_parser_lack(parser, calling->at, "%s has at most %u arguments", function->name,
                              index);
    if (calling->call->items[index])
        return br_parser_fail(parser, calling->at, "the argument %s is given twice",
                              calling->parameter->name);
    struct br_expression *value = parser->rc ? NULL : br_parser_value(parser);
    calling->call->items[index] = value;
    *next = index + 1;
    return value && calls_check_argument(calling, value);
}

static bool calls_check_missing(const struct calling *calling)
{
    const struct br_parameter *parameters = calling->call->function->parameters;
    for (uint32_t i = 0; parameters[i].kind != BR_PARAMETER_END; i++)
        if (!calling->call->items[i] && !parameters[i].optional)
            return br_parser_fail(calling->parser, calling->parser->lexer.at - 1,
                                  "the argument %s of %s is missing", parameters[i].name,
                                  calling->call->function->name);
    return true;
}

/* Checks that the number of priority keys of `limit` does not exceed the limit. */
static bool calls_check_limit(const struct calling *calling)
{
    const struct br_expression *call = calling->call;
    if (strcmp(call->function->name, "limit") != 0 ||
        call->items[2]->n_items <= call->items[1]->literal.number)
        return true;
    return br_parser_fail(calling->parser, calling->at,
                          "there are more priority_keys than the limit allows");
}

/* Checks that a literal text is a number, if the function converts texts to numbers. */
static bool calls_check_number(const struct calling *calling)
{
    struct br_parser *parser = calling->parser;
    const struct br_expression *call = calling->call;
    bool whole = strcmp(call->function->name, "Int") == 0;
    enum br_value_type to = whole ? BR_VALUE_INT : BR_VALUE_DOUBLE;
    struct br_value text, number;
    if (!whole && strcmp(call->function->name, "Double") != 0)
        return true;
    if (!calls_is_literal(call->items[0], BR_VALUE_STRING))
        return true;
    if (!br_any_write(&call->items[0]->literal, parser->lexer.arena, &text) ||
        !br_value_convert(text, to, parser->lexer.arena, &number))
        return br_parser_keep(parser, NULL);
    return br_any_read(number).type == to ||
           br_parser_fail(parser, calling->at, "the text is not a number");
}

/* Functions of the Collector that Braid does not have (pkg/ottl/ottlfuncs, and the processor
 * transform). */
static const char lacking[] =
    " append delete_index delete_keys flatten keep_matching_keys replace_all_matches replace_match "
    "set_semconv_span_name All Any Base64Decode Base64Encode Bool Coalesce CommunityID "
    "ContainsValue ConvertAttributesToElementsXML ConvertTextToElementsXML Day Decode Duration "
    "ExtractGrokPatterns ExtractPatterns FNV Filter Format FormatTime GetXML Hex Hour Hours If "
    "Index "
    "InsertXML IsInCIDR IsNil IsValidLuhn Keys Log Lookup MD5 MapEach MapKeys Microseconds "
    "Milliseconds Minute Minutes Month Murmur3Hash Murmur3Hash128 Nanosecond Nanoseconds Now "
    "ParseCEF ParseCLF ParseCSV ParseELF ParseInt ParseKeyValue ParseLEEF ParseSeverity "
    "ParseSimplifiedXML ParseXML ProfileID Reduce RemoveXML SHA512 Second Seconds SliceToMap Sort "
    "SpanID Time ToCamelCase ToKeyValueString ToSnakeCase TraceID Trim TrimPrefix TrimSuffix "
    "TruncateTime URL UUID UUIDv7 Unix UnixMicro UnixMilli UnixNano UnixSeconds UserAgent Values "
    "Weekday XXH128 XXH3 Year ";

static bool calls_is_lacking(const char *name, size_t len)
{
    char word[64];
    if (len > sizeof word - 3)
        return false;
    (void)snprintf(word, sizeof word, " %.*s ", (int)len, name);
    return strstr(lacking, word) != NULL;
}

/* Returns true if the expression is evaluated for spans, and not for example for their events. */
static bool calls_has_spans(const struct br_parser *parser)
{
    return parser->level == BR_CONDITION_SPAN && parser->context != BR_CONDITION_RESOURCE;
}

static const struct br_function *calls_find(struct br_parser *parser,
                                            const struct br_function *table)
{
    const char *at = parser->lexer.at;
    size_t len = br_word_len(at, parser->lexer.end);
    char text[320];
    struct br_str list = {.data = text, .cap = sizeof text, .max = sizeof text - 1, .fixed = true};
    text[0] = '\0';
    for (const struct br_function *i = table; i->name; i++) {
        bool fits = !i->for_spans || calls_has_spans(parser);
        if (br_bytes_are(at, len, i->name) && fits)
            return i;
        if (br_bytes_are(at, len, i->name))
            return br_parser_fail(parser, at, "%s is for the context span", i->name);
        if (fits)
            br_str_printf(&list, "%s%s", list.len ? ", " : "", i->name);
    }
    int shown = len < 40 ? (int)len : 40;
    if (calls_is_lacking(at, len))
        return br_parser_lack(parser, at, "the function %.*s is not supported; use %s", shown, at,
                              text);
    return br_parser_fail(parser, at, "the function %.*s is unknown; use %s", shown, at, text);
}

struct br_expression *br_parser_call(struct br_parser *parser, const struct br_function *table)
{
    const struct br_function *function = calls_find(parser, table);
    struct calling calling = {.parser = parser};
    uint32_t next = 0;
    if (!function)
        return NULL;
    calling.call = br_parser_expression(parser, BR_EXPRESSION_CALL);
    if (!calling.call)
        return NULL;
    parser->lexer.at += strlen(function->name);
    calling.call->function = function;
    calling.call->items = br_parser_keep(
        parser, br_arena_calloc(parser->lexer.arena, BR_ARGUMENTS_MAX + 1, sizeof(void *)));
    if (!calling.call->items || !br_parser_take(parser, "("))
        return br_parser_fail(parser, parser->lexer.at, "a \"(\" is missing");
    if (!br_parser_take(parser, ")")) {
        do {
            if (!calls_parse_argument(&calling, &next))
                return NULL;
        } while (br_parser_take(parser, ","));
        if (!br_parser_take(parser, ")"))
            return br_parser_fail(parser, parser->lexer.at, "a \")\" is missing");
    }
    if (!calls_check_missing(&calling) || !calls_check_limit(&calling) ||
        !calls_check_number(&calling) || !br_parser_keys(parser, calling.call))
        return NULL;
    return calling.call;
}
