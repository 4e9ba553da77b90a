/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <string.h>

#include "attribute/condition.h"
#include "base/bytes.h"
#include "base/lexer.h"
#include "base/mem.h"
#include "base/str.h"

#define DEPTH_MAX 64 /* maximum depth of nested parentheses and `not` operators */
/* maximum number of conditions; a config file cannot contain so many */
#define CONDITIONS_MAX 10000

struct parser {
    struct br_conditions *conditions;
    struct br_lexer lexer;
    enum br_signal signal;
    enum br_condition_context context;
    struct br_condition *patterns;
    unsigned depth;
    int rc;
};

static const struct br_lexer_rules rules = {
    .blanks = " \t\n\v\f\r",
    .one_line = true,
    .unended = "the quote that opens here is never closed",
    .unknown_escape = "unknown escape; write \\\\ for a backslash",
};

static struct br_condition *parse_or(struct parser *parser);

/* Reports an error, unless an error was reported before. */
__attribute__((format(printf, 3, 4))) static void *parse_fail(struct parser *parser, const char *at,
                                                              const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!parser->rc)
        parser->rc = br_lexer_vfail(&parser->lexer, at, BR_EINVAL, fmt, ap);
    va_end(ap);
    return NULL;
}

/* Reports an expression that the Collector supports and Braid does not. */
static void *parse_lack(struct parser *parser, const char *at, const char *text)
{
    bool first = !parser->rc;
    (void)parse_fail(parser, at, "%s", text);
    if (first)
        parser->rc = BR_EUNSUPPORTED;
    return NULL;
}

static void *parse_keep(struct parser *parser, void *memory)
{
    if (!memory && !parser->rc)
        parser->rc = br_err_set(parser->lexer.err, BR_ENOMEM, "out of memory");
    return memory;
}

/* Skips the operator or word `token`. Returns false if the text does not continue with `token`. */
static bool parse_take(struct parser *parser, const char *token)
{
    br_lexer_skip(&parser->lexer);
    return br_lexer_take(&parser->lexer, token);
}

static struct br_condition *parse_node(struct parser *parser, enum br_condition_op op)
{
    struct br_condition *node =
        parse_keep(parser, br_arena_calloc(parser->lexer.arena, 1, sizeof *node));
    if (node)
        node->op = op;
    return node;
}

/* --- Literals -------------------------------------------------------------------------------- */

/* Parses a text in double quotes. `*ret_len` is the length of the text. */
static const char *parse_text(struct parser *parser, size_t *ret_len)
{
    const char *text = NULL;
    int rc = br_lexer_string(&parser->lexer, &text, ret_len);
    if (rc == BR_ENOMEM)
        return parse_keep(parser, NULL);
    parser->rc = parser->rc ? parser->rc : rc;
    return text;
}

static bool parse_number(struct parser *parser, struct br_any *ret)
{
    const char *start = parser->lexer.at;
    bool sign = *start == '-' || *start == '+', whole;
    size_t len = br_lexer_number(start + sign, parser->lexer.end, &whole) + sign;
    int64_t integer;
    if (len == sign)
        return parse_fail(parser, start, "this number has too many digits");
    parser->lexer.at += len;
    if (!whole) {
        double v = br_lexer_real(start, len);
        *ret = (struct br_any){.type = BR_VALUE_DOUBLE};
        memcpy(&ret->number, &v, sizeof v);
        return true;
    }
    if (!br_decimal_parse_signed(start, len, &integer))
        return parse_fail(parser, start, "not a whole number of 64 bits");
    *ret = (struct br_any){.type = BR_VALUE_INT, .number = (uint64_t)integer};
    return true;
}

static const struct {
    const char *name;
    uint8_t value;
} enums[] = {
    {"SPAN_KIND_UNSPECIFIED", 0}, {"SPAN_KIND_INTERNAL", 1}, {"SPAN_KIND_SERVER", 2},
    {"SPAN_KIND_CLIENT", 3},      {"SPAN_KIND_PRODUCER", 4}, {"SPAN_KIND_CONSUMER", 5},
    {"STATUS_CODE_UNSET", 0},     {"STATUS_CODE_OK", 1},     {"STATUS_CODE_ERROR", 2},
};

/* Parses a literal that is a word, such as true or nil. Returns false for other words. */
static bool parse_word(struct parser *parser, struct br_any *ret)
{
    if (parse_take(parser, "nil")) {
        *ret = (struct br_any){.type = BR_VALUE_EMPTY};
        return true;
    }
    bool yes = parse_take(parser, "true");
    if (yes || parse_take(parser, "false")) {
        *ret = (struct br_any){.type = BR_VALUE_BOOL, .number = yes};
        return true;
    }
    for (size_t i = 0; i < BR_COUNT(enums); i++)
        if (parse_take(parser, enums[i].name)) {
            *ret = (struct br_any){.type = BR_VALUE_INT, .number = enums[i].value};
            return true;
        }
    return false;
}

/* --- Paths ----------------------------------------------------------------------------------- */

struct path {
    const char *name;
    enum br_condition_field field;
};

static const struct path span_paths[] = {
    {"attributes", CONDITION_ATTRIBUTE},
    {"name", CONDITION_NAME},
    {"kind", CONDITION_KIND},
    {"kind.string", CONDITION_KIND_STRING},
    {"kind.deprecated_string", CONDITION_KIND_OLD_STRING},
    {"status.code", CONDITION_STATUS_CODE},
    {"status.message", CONDITION_STATUS_MESSAGE},
    {"start_time_unix_nano", CONDITION_START},
    {"end_time_unix_nano", CONDITION_END},
    {"trace_state", CONDITION_TRACE_STATE},
    {"trace_id.string", CONDITION_TRACE_ID},
    {"span_id.string", CONDITION_SPAN_ID},
    {"parent_span_id.string", CONDITION_PARENT_ID},
    {NULL, CONDITION_LITERAL},
};
static const struct path profile_paths[] = {
    {"attributes", CONDITION_PROFILE_ATTRIBUTE},
    {"sample_type.type", CONDITION_TYPE},
    {"sample_type.unit", CONDITION_UNIT},
    {"duration_unix_nano", CONDITION_DURATION},
    {"period", CONDITION_PERIOD},
    {NULL, CONDITION_LITERAL},
};
static const struct path sample_paths[] = {{"attributes", CONDITION_ATTRIBUTE},
                                           {NULL, CONDITION_LITERAL}};
static const struct path resource_paths[] = {{"attributes", CONDITION_RESOURCE_ATTRIBUTE},
                                             {NULL, CONDITION_LITERAL}};
static const struct path scope_paths[] = {{"attributes", CONDITION_SCOPE_ATTRIBUTE},
                                          {"name", CONDITION_SCOPE_NAME},
                                          {"version", CONDITION_SCOPE_VERSION},
                                          {NULL, CONDITION_LITERAL}};

static const struct path *parse_context(const struct parser *parser, const char *name,
                                        size_t *ret_skip)
{
    static const struct {
        const char *name;
        const struct path *paths;
        int signal; /* enum br_signal: the signal that has the context; -1: both signals have it */
    } contexts[] = {
        {"span.", span_paths, BR_TRACES},
        {"profile.", profile_paths, BR_PROFILES},
        {"sample.", sample_paths, BR_PROFILES},
        {"resource.", resource_paths, -1},
        {"scope.", scope_paths, -1},
        {"instrumentation_scope.", scope_paths, -1},
    };
    static const struct path *const plain[] = {[BR_CONDITION_SPAN] = span_paths,
                                               [BR_CONDITION_PROFILE] = profile_paths,
                                               [BR_CONDITION_RESOURCE] = resource_paths,
                                               [BR_CONDITION_NAMED] = NULL};
    for (size_t i = 0; i < BR_COUNT(contexts); i++) {
        *ret_skip = strlen(contexts[i].name);
        if (strncmp(name, contexts[i].name, *ret_skip) == 0 &&
            (contexts[i].signal < 0 || contexts[i].signal == (int)parser->signal))
            return contexts[i].paths;
    }
    *ret_skip = 0;
    return plain[parser->context];
}

static bool parse_is_attribute(enum br_condition_field field)
{
    return field >= CONDITION_ATTRIBUTE && field <= CONDITION_PROFILE_ATTRIBUTE;
}

/* Parses the key in ["..."] that follows `attributes`. */
static bool parse_key(struct parser *parser, struct br_condition_operand *ret)
{
    const char *start = parser->lexer.at;
    if (!parse_take(parser, "["))
        return parse_fail(parser, start,
                          "attributes as a whole cannot be compared: write attributes[\"key\"]");
    br_lexer_skip(&parser->lexer);
    if (*parser->lexer.at != '"')
        return parse_fail(parser, parser->lexer.at,
                          "the key of an attribute is a text in double quotes");
    ret->key = parse_text(parser, &ret->key_len);
    if (!ret->key)
        return false;
    if (!parse_take(parser, "]"))
        return parse_fail(parser, parser->lexer.at, "a \"]\" is missing");
    if (*parser->lexer.at == '[')
        return parse_fail(parser, parser->lexer.at,
                          "the elements of an attribute cannot be compared");
    return true;
}

static bool parse_path(struct parser *parser, struct br_condition_operand *ret)
{
    const char *start = parser->lexer.at;
    char name[80];
    size_t n = 0, skip = 0;
    while (br_is_word(start[n]) || start[n] == '.')
        n++;
    if (*start == '\'')
        return parse_fail(parser, start, "a text must be in double quotes");
    if (!n || n >= sizeof name)
        return parse_fail(parser, start,
                          n ? "unknown path" : "a path or a literal is required here");
    memcpy(name, start, n);
    name[n] = '\0';
    parser->lexer.at += n;
    if (*parser->lexer.at == '(')
        return parse_fail(parser, start, "the function %s is unknown; use IsMatch or IsRootSpan",
                          name);
    const struct path *path = parse_context(parser, name, &skip);
    while (path && path->name && strcmp(path->name, name + skip) != 0)
        path++;
    if (!path && parser->signal == BR_TRACES && br_text_starts(name, "spanevent."))
        return parse_lack(parser, start, BR_CONDITION_NO_EVENTS);
    if (!path)
        return parse_fail(parser, start, "the path %s must start with %s, resource or scope", name,
                          parser->signal == BR_TRACES ? "span" : "profile, sample");
    if (!path->name)
        return parse_fail(parser, start, "the path %s is unknown", name);
    ret->field = path->field;
    if (ret->field == CONDITION_TRACE_STATE && *parser->lexer.at == '[')
        ret->field = CONDITION_TRACE_STATE_KEY;
    bool keyed = parse_is_attribute(ret->field) || ret->field == CONDITION_TRACE_STATE_KEY;
    return !keyed || parse_key(parser, ret);
}

static bool parse_operand(struct parser *parser, struct br_condition_operand *ret)
{
    *ret = (struct br_condition_operand){.field = CONDITION_LITERAL};
    br_lexer_skip(&parser->lexer);
    if (*parser->lexer.at == '"') {
        size_t len = 0;
        const char *text = parse_text(parser, &len);
        ret->literal =
            (struct br_any){.type = BR_VALUE_STRING, .data = (const uint8_t *)text, .len = len};
        return text != NULL;
    }
    const char *digits = parser->lexer.at + (*parser->lexer.at == '-' || *parser->lexer.at == '+');
    if (br_is_digit(digits[*digits == '.']))
        return parse_number(parser, &ret->literal);
    return parse_word(parser, &ret->literal) || parse_path(parser, ret);
}

/* --- Conditions ------------------------------------------------------------------------------ */

static struct br_condition *parse_match(struct parser *parser)
{
    struct br_condition *node = parse_node(parser, CONDITION_MATCH);
    if (!node || !parse_operand(parser, &node->left))
        return NULL;
    if (!parse_take(parser, ","))
        return parse_fail(parser, parser->lexer.at, "a \",\" and a pattern are missing");
    br_lexer_skip(&parser->lexer);
    const char *at = parser->lexer.at;
    size_t len;
    if (*parser->lexer.at != '"')
        return parse_fail(parser, parser->lexer.at,
                          "the pattern of IsMatch is a text in double quotes");
    const char *pattern = parse_text(parser, &len);
    char why[BR_REGEX_WHY_SIZE];
    if (!pattern)
        return NULL;
    if (memchr(pattern, '\0', len))
        return parse_fail(parser, at, "a pattern must not contain a NUL");
    int rc = br_regex_compile(&parser->conditions->regex, pattern, &node->pattern, why);
    if (rc == BR_EINVAL)
        return parse_fail(parser, at, "invalid regular expression: %s", why);
    if (rc)
        return parse_keep(parser, NULL);
    node->patterns = parser->patterns;
    parser->patterns = node;
    return parse_take(parser, ")") ? node
                                   : parse_fail(parser, parser->lexer.at, "a \")\" is missing");
}

static bool parse_op(struct parser *parser, enum br_condition_op *ret)
{
    static const struct {
        const char *sign;
        enum br_condition_op op;
    } ops[] = {{"==", CONDITION_EQ}, {"!=", CONDITION_NE}, {"<=", CONDITION_LE},
               {">=", CONDITION_GE}, {"<", CONDITION_LT},  {">", CONDITION_GT}};
    for (size_t i = 0; i < BR_COUNT(ops); i++)
        if (parse_take(parser, ops[i].sign)) {
            *ret = ops[i].op;
            return true;
        }
    return false;
}

/* Parses a comparison, or the constant true or false. */
static struct br_condition *parse_comparison(struct parser *parser)
{
    struct br_condition *node = parse_node(parser, CONDITION_CONSTANT);
    if (!node || !parse_operand(parser, &node->left))
        return NULL;
    br_lexer_skip(&parser->lexer);
    const char *at = parser->lexer.at;
    if (parse_op(parser, &node->op))
        return parse_operand(parser, &node->right) ? node : NULL;
    if (*at && strchr("+-*/", *at))
        return parse_fail(parser, at, "arithmetic is not supported");
    if (node->left.field != CONDITION_LITERAL || node->left.literal.type != BR_VALUE_BOOL)
        return parse_fail(parser, at, "a comparison is missing: ==, !=, <, <=, > or >=");
    node->constant = node->left.literal.number != 0;
    return node;
}

/* Parses an optional comparison of a function's result, which is a boolean, such as `== true`. */
static struct br_condition *parse_outcome(struct parser *parser, struct br_condition *function)
{
    enum br_condition_op op;
    struct br_any literal = {0};
    if (!function)
        return NULL;
    br_lexer_skip(&parser->lexer);
    const char *at = parser->lexer.at;
    if (!parse_op(parser, &op))
        return function;
    br_lexer_skip(&parser->lexer);
    if ((op != CONDITION_EQ && op != CONDITION_NE) || !parse_word(parser, &literal) ||
        literal.type != BR_VALUE_BOOL)
        return parse_fail(parser, at,
                          "a function can only be compared with true or false, by == or !=");
    if ((op == CONDITION_EQ) == (literal.number != 0))
        return function;
    struct br_condition *node = parse_node(parser, CONDITION_NOT);
    if (node)
        node->first = function;
    return node;
}

static struct br_condition *parse_primary(struct parser *parser)
{
    br_lexer_skip(&parser->lexer);
    const char *at = parser->lexer.at;
    if (parse_take(parser, "(")) {
        struct br_condition *inner = parse_or(parser);
        if (!inner || parse_take(parser, ")"))
            return inner;
        int line, col;
        br_lexer_place(&parser->lexer, at, &line, &col);
        return parse_fail(parser, parser->lexer.at, "the \"(\" at character %d has no \")\"", col);
    }
    if (parse_take(parser, "IsMatch")) {
        if (!parse_take(parser, "("))
            return parse_fail(parser, parser->lexer.at, "a \"(\" is missing");
        return parse_outcome(parser, parse_match(parser));
    }
    if (parse_take(parser, "IsRootSpan")) {
        if (parser->signal != BR_TRACES)
            return parse_fail(parser, at, "IsRootSpan is for spans");
        if (!parse_take(parser, "(") || !parse_take(parser, ")"))
            return parse_fail(parser, parser->lexer.at, "\"()\" is missing");
        return parse_outcome(parser, parse_node(parser, CONDITION_ROOT));
    }
    return parse_comparison(parser);
}

static struct br_condition *parse_not(struct parser *parser)
{
    struct br_condition *node = NULL;
    br_lexer_skip(&parser->lexer);
    if (++parser->depth > DEPTH_MAX)
        return parse_fail(parser, parser->lexer.at, "parentheses are nested more than %d deep",
                          DEPTH_MAX);
    if (parse_take(parser, "not")) {
        struct br_condition *inner = parse_not(parser);
        node = inner ? parse_node(parser, CONDITION_NOT) : NULL;
        if (node)
            node->first = inner;
    } else {
        node = parse_primary(parser);
    }
    parser->depth--;
    return node;
}

/* Parses one or more expressions that are separated by `word`, the word for `op`. */
static struct br_condition *parse_list(struct parser *parser, enum br_condition_op op,
                                       const char *word,
                                       struct br_condition *(*part)(struct parser *parser))
{
    struct br_condition *first = part(parser), *last = first, *list;
    if (!first || !parse_take(parser, word))
        return first;
    /* A separate node is necessary: a child that is itself a list uses `first` for its children
     * and `next` for its place in the outer list. */
    list = parse_node(parser, op);
    if (!list)
        return NULL;
    list->first = first;
    do {
        struct br_condition *next = part(parser);
        if (!next)
            return NULL;
        last->next = next;
        last = next;
    } while (parse_take(parser, word));
    return list;
}

static struct br_condition *parse_and(struct parser *parser)
{
    return parse_list(parser, CONDITION_AND, "and", parse_not);
}

static struct br_condition *parse_or(struct parser *parser)
{
    return parse_list(parser, CONDITION_OR, "or", parse_and);
}

static void parse_release_patterns(struct br_condition *patterns)
{
    for (; patterns; patterns = patterns->patterns)
        pcre2_code_free(patterns->pattern);
}

int br_conditions_add(struct br_conditions *conditions, const char *text, enum br_signal signal,
                      enum br_condition_context context, struct br_arena *arena, struct br_err *err)
{
    struct parser parser = {.conditions = conditions,
                            .lexer = {.rules = &rules,
                                      .text = text,
                                      .at = text,
                                      .end = text + strlen(text),
                                      .arena = arena,
                                      .err = err},
                            .signal = signal,
                            .context = context};
    if (strlen(text) > BR_CONDITION_MAX)
        return br_err_set(err, BR_EINVAL, "at character 1: a condition has at most %u bytes",
                          BR_CONDITION_MAX);
    struct br_condition *whole = parse_or(&parser);
    br_lexer_skip(&parser.lexer);
    if (whole && *parser.lexer.at)
        (void)parse_fail(&parser, parser.lexer.at,
                         "expected \"and\", \"or\" or the end of the condition");
    if (whole && !parser.rc &&
        br_grow(&conditions->items, &conditions->cap, conditions->count + 1,
                sizeof(struct br_condition *), CONDITIONS_MAX))
        (void)parse_keep(&parser, NULL);
    if (whole && !parser.rc) {
        struct br_condition *holder = parse_node(&parser, CONDITION_AND);
        if (holder) {
            holder->first = whole;
            holder->patterns = parser.patterns;
            conditions->items[conditions->count++] = holder;
            return 0;
        }
    }
    parse_release_patterns(parser.patterns);
    return parser.rc;
}

void br_conditions_release(struct br_conditions *conditions)
{
    for (uint32_t i = 0; i < conditions->count; i++)
        parse_release_patterns(conditions->items[i]->patterns);
    br_free(conditions->items);
    br_regex_release(&conditions->regex);
    br_attributes_release(&conditions->own);
    br_attributes_release(&conditions->resource);
    br_attributes_release(&conditions->scope);
    br_attributes_release(&conditions->profile);
    br_arena_release(&conditions->arena);
    *conditions = (struct br_conditions){0};
}
