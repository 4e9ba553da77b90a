/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "query/traceql_internal.h"

/* milliseconds of CPU time allowed for all regular expression matches of a query */
#define MATCH_MS 1000
#define COMPARE_TOP_DEFAULT 10
#define COMPARE_TOP_MAX 1000
#define SHOWN_MAX 40 /* maximum number of characters of a token that an error message contains */

struct parser {
    struct br_traceql *query;
    struct br_lexer lexer;
    struct br_traceql_token token; /* the next token of the query, which has not been parsed yet */
    unsigned depth, n_nodes;
};

/* --- Tokens ----------------------------------------------------------------------------------- */

static int traceql_parse_fail_at(const struct parser *parser, int code,
                                 const struct br_traceql_token *token, const char *what)
{
    return br_lexer_fail(&parser->lexer, token->text, code, "%s", what);
}

static int traceql_parse_unexpected(const struct parser *parser, const char *expected)
{
    const struct br_traceql_token *token = &parser->token;
    if (token->kind == BR_TRACEQL_END)
        return br_lexer_fail(&parser->lexer, token->text, BR_EINVAL,
                             "unexpected end of the query; expected %s", expected);
    return br_lexer_fail(&parser->lexer, token->text, BR_EINVAL, "unexpected %.*s; expected %s",
                         (int)(token->len < SHOWN_MAX ? token->len : SHOWN_MAX), token->text,
                         expected);
}

static int traceql_parse_step(struct parser *parser)
{
    return br_traceql_lexer_next(&parser->lexer, &parser->token);
}

static bool traceql_parse_is(const struct parser *parser, const char *op)
{
    return parser->token.kind == BR_TRACEQL_PUNCT && strcmp(parser->token.op, op) == 0;
}

static bool traceql_parse_is_word(const struct parser *parser, const char *word)
{
    return parser->token.kind == BR_TRACEQL_WORD &&
           br_bytes_are(parser->token.text, parser->token.len, word);
}

static int traceql_parse_expect(struct parser *parser, const char *op)
{
    char expected[16];
    (void)snprintf(expected, sizeof expected, "'%s'", op);
    return traceql_parse_is(parser, op) ? traceql_parse_step(parser)
                                        : traceql_parse_unexpected(parser, expected);
}

static int traceql_parse_enter(struct parser *parser)
{
    if (++parser->depth > BR_TRACEQL_DEPTH_MAX)
        return br_lexer_fail(&parser->lexer, parser->token.text, BR_EINVAL,
                             "the query nests deeper than %d levels", BR_TRACEQL_DEPTH_MAX);
    return 0;
}

static void *traceql_parse_alloc(struct parser *parser, size_t size, int *ret_rc)
{
    void *node = NULL;
    if (parser->n_nodes++ >= BR_TRACEQL_NODES_MAX)
        *ret_rc = br_lexer_fail(&parser->lexer, parser->token.text, BR_EINVAL,
                                "the query has more than %d operators and operands",
                                BR_TRACEQL_NODES_MAX);
    else if (!(node = br_arena_calloc(parser->query->arena, 1, size)))
        *ret_rc = br_err_set(parser->lexer.err, BR_ENOMEM, "out of memory");
    else
        *ret_rc = 0;
    return node;
}

/* --- Attributes ------------------------------------------------------------------------------- */

/* Intrinsics and their names. If an intrinsic has several names, responses use the first of
 * them. */
static const struct {
    const char *name;
    enum br_traceql_intrinsic intrinsic;
    enum br_traceql_type type;
} intrinsics[] = {
    {"duration", BR_TRACEQL_SPAN_DURATION, BR_TRACEQL_DURATION},
    {"span:duration", BR_TRACEQL_SPAN_DURATION, BR_TRACEQL_DURATION},
    {"name", BR_TRACEQL_SPAN_NAME, BR_TRACEQL_STRING},
    {"span:name", BR_TRACEQL_SPAN_NAME, BR_TRACEQL_STRING},
    {"status", BR_TRACEQL_SPAN_STATUS, BR_TRACEQL_STATUS},
    {"span:status", BR_TRACEQL_SPAN_STATUS, BR_TRACEQL_STATUS},
    {"kind", BR_TRACEQL_SPAN_KIND, BR_TRACEQL_KIND},
    {"span:kind", BR_TRACEQL_SPAN_KIND, BR_TRACEQL_KIND},
    {"span:id", BR_TRACEQL_SPAN_ID, BR_TRACEQL_STRING},
    {"span:parentID", BR_TRACEQL_SPAN_PARENT_ID, BR_TRACEQL_STRING},
    {"trace:id", BR_TRACEQL_TRACE_ID, BR_TRACEQL_STRING},
    {"nestedSetParent", BR_TRACEQL_NESTED_SET_PARENT, BR_TRACEQL_INT},
    {"statusMessage", BR_TRACEQL_STATUS_MESSAGE, BR_TRACEQL_STRING},
    {"span:statusMessage", BR_TRACEQL_STATUS_MESSAGE, BR_TRACEQL_STRING},
    {"event:name", BR_TRACEQL_EVENT_NAME, BR_TRACEQL_STRING},
    {"event:timeSinceStart", BR_TRACEQL_EVENT_TIME, BR_TRACEQL_DURATION},
    {"link:traceID", BR_TRACEQL_LINK_TRACE_ID, BR_TRACEQL_STRING},
    {"link:spanID", BR_TRACEQL_LINK_SPAN_ID, BR_TRACEQL_STRING},
    {"instrumentation:name", BR_TRACEQL_SCOPE_NAME, BR_TRACEQL_STRING},
    {"instrumentation:version", BR_TRACEQL_SCOPE_VERSION, BR_TRACEQL_STRING},
    {"nestedSetLeft", BR_TRACEQL_NESTED_SET_LEFT, BR_TRACEQL_INT},
    {"nestedSetRight", BR_TRACEQL_NESTED_SET_RIGHT, BR_TRACEQL_INT},
    {"span:childCount", BR_TRACEQL_CHILD_COUNT, BR_TRACEQL_INT},
    {"childCount", BR_TRACEQL_CHILD_COUNT, BR_TRACEQL_INT},
    {"traceDuration", BR_TRACEQL_TRACE_DURATION, BR_TRACEQL_DURATION},
    {"trace:duration", BR_TRACEQL_TRACE_DURATION, BR_TRACEQL_DURATION},
    {"rootName", BR_TRACEQL_ROOT_NAME, BR_TRACEQL_STRING},
    {"trace:rootName", BR_TRACEQL_ROOT_NAME, BR_TRACEQL_STRING},
    {"rootServiceName", BR_TRACEQL_ROOT_SERVICE, BR_TRACEQL_STRING},
    {"trace:rootService", BR_TRACEQL_ROOT_SERVICE, BR_TRACEQL_STRING},
};

static const char *traceql_parse_intrinsic_name(enum br_traceql_intrinsic intrinsic)
{
    size_t i = 0;
    while (intrinsics[i].intrinsic != intrinsic)
        i++;
    return intrinsics[i].name;
}

static const char *traceql_parse_scope_name(enum br_traceql_scope scope)
{
    static const char *const names[] = {"", "span", "resource", "event", "link", "instrumentation",
                                        ""};
    return names[scope];
}

static bool traceql_parse_same(const struct br_traceql_attribute *first,
                               const struct br_traceql_attribute *second)
{
    if (first->scope != second->scope)
        return false;
    if (first->scope == BR_TRACEQL_INTRINSIC)
        return first->intrinsic == second->intrinsic;
    return br_bytes_equal(first->name, first->name_len, second->name, second->name_len);
}

/* Records in the query whether evaluating the attribute requires the whole trace, the span's
 * bytes, or the nested set numbers. */
static void traceql_parse_note_needs(struct br_traceql *query,
                                     const struct br_traceql_attribute *attribute)
{
    if (attribute->scope == BR_TRACEQL_INTRINSIC) {
        query->needs_trace |= attribute->intrinsic >= BR_TRACEQL_CHILD_COUNT;
        query->needs_nested |= attribute->intrinsic == BR_TRACEQL_NESTED_SET_LEFT ||
                               attribute->intrinsic == BR_TRACEQL_NESTED_SET_RIGHT;
        query->needs_bytes |= attribute->intrinsic >= BR_TRACEQL_STATUS_MESSAGE &&
                              attribute->intrinsic < BR_TRACEQL_CHILD_COUNT;
    } else if (attribute->scope != BR_TRACEQL_RESOURCE ||
               strcmp(attribute->name, "service.name") != 0) {
        query->needs_bytes = true;
    }
}

static int traceql_parse_intern(struct parser *parser, struct br_traceql_attribute *attribute,
                                bool shown, uint32_t *ret)
{
    struct br_traceql *query = parser->query;
    uint32_t at = 0;
    while (at < query->n_attributes && !traceql_parse_same(&query->attributes[at], attribute))
        at++;
    if (at == BR_TRACEQL_ATTRIBUTES_MAX)
        return traceql_parse_fail_at(parser, BR_EINVAL, &parser->token,
                                     "the query names too many attributes");
    if (at == query->n_attributes) {
        const char *scope = traceql_parse_scope_name(attribute->scope);
        bool plain = attribute->scope == BR_TRACEQL_INTRINSIC;
        attribute->label = plain ? attribute->name
                                 : br_arena_printf(query->arena, "%s.%s", scope, attribute->name);
        if (!attribute->label)
            return br_err_set(parser->lexer.err, BR_ENOMEM, "out of memory");
        query->attributes[query->n_attributes++] = *attribute;
        traceql_parse_note_needs(query, attribute);
    }
    query->attributes[at].shown |= shown;
    *ret = at;
    return 0;
}

/* Parses an attribute or an intrinsic. */
static int traceql_parse_attribute(struct parser *parser, bool shown, uint32_t *ret,
                                   enum br_traceql_type *ret_type)
{
    const struct br_traceql_token token = parser->token;
    struct br_traceql_attribute attribute = {.scope = token.scope};
    *ret_type = BR_TRACEQL_ANY;
    if (token.kind == BR_TRACEQL_NAME) {
        attribute.name = token.value.text;
        attribute.name_len = token.value.len;
    } else if (token.kind == BR_TRACEQL_WORD) {
        size_t i = 0;
        while (i < BR_COUNT(intrinsics) && !traceql_parse_is_word(parser, intrinsics[i].name))
            i++;
        if (i == BR_COUNT(intrinsics))
            return traceql_parse_unexpected(parser, "an attribute (.name, span.name, "
                                                    "resource.name) or an intrinsic");
        attribute.scope = BR_TRACEQL_INTRINSIC;
        attribute.intrinsic = intrinsics[i].intrinsic;
        attribute.name = traceql_parse_intrinsic_name(attribute.intrinsic);
        attribute.name_len = strlen(attribute.name);
        *ret_type = intrinsics[i].type;
    } else {
        return traceql_parse_unexpected(parser, "an attribute");
    }
    int rc = traceql_parse_intern(parser, &attribute, shown, ret);
    return rc ? rc : traceql_parse_step(parser);
}

/* --- Expressions ------------------------------------------------------------------------------ */

static int traceql_parse_expr(struct parser *parser, int least, const struct br_traceql_expr **ret);

/* Parses a word that is a constant. Returns false if the word is not a constant. */
static bool traceql_parse_constant(const struct parser *parser, struct br_traceql_value *ret)
{
    static const struct {
        const char *name;
        enum br_traceql_type type;
        int64_t value;
    } constants[] = {
        {"nil", BR_TRACEQL_NIL, 0},
        {"unset", BR_TRACEQL_STATUS, 0},
        {"ok", BR_TRACEQL_STATUS, 1},
        {"error", BR_TRACEQL_STATUS, 2},
        {"unspecified", BR_TRACEQL_KIND, 0},
        {"internal", BR_TRACEQL_KIND, 1},
        {"server", BR_TRACEQL_KIND, 2},
        {"client", BR_TRACEQL_KIND, 3},
        {"producer", BR_TRACEQL_KIND, 4},
        {"consumer", BR_TRACEQL_KIND, 5},
        {"minInt", BR_TRACEQL_INT, INT64_MIN},
        {"maxInt", BR_TRACEQL_INT, INT64_MAX},
    };
    for (size_t i = 0; i < BR_COUNT(constants); i++) {
        if (!traceql_parse_is_word(parser, constants[i].name))
            continue;
        *ret = (struct br_traceql_value){.type = constants[i].type, .integer = constants[i].value};
        return true;
    }
    if (!traceql_parse_is_word(parser, "true") && !traceql_parse_is_word(parser, "false"))
        return false;
    *ret = (struct br_traceql_value){.type = BR_TRACEQL_BOOL,
                                     .boolean = traceql_parse_is_word(parser, "true")};
    return true;
}

static int traceql_parse_operand(struct parser *parser, const struct br_traceql_expr **ret)
{
    struct br_traceql_expr *expr;
    struct br_traceql_value value;
    int rc;
    if (traceql_parse_is(parser, "(")) {
        rc = traceql_parse_step(parser);
        if (!rc)
            rc = traceql_parse_expr(parser, 0, ret);
        return rc ? rc : traceql_parse_expect(parser, ")");
    }
    expr = traceql_parse_alloc(parser, sizeof *expr, &rc);
    if (!expr)
        return rc;
    *ret = expr;
    if (parser->token.kind == BR_TRACEQL_LITERAL || traceql_parse_constant(parser, &value)) {
        expr->op = BR_TRACEQL_VALUE;
        expr->value = parser->token.kind == BR_TRACEQL_LITERAL ? parser->token.value : value;
        expr->type = expr->value.type;
        return traceql_parse_step(parser);
    }
    expr->op = BR_TRACEQL_ATTRIBUTE;
    return traceql_parse_attribute(parser, true, &expr->attribute, &expr->type);
}

static bool traceql_parse_is_number(enum br_traceql_type type)
{
    return type == BR_TRACEQL_INT || type == BR_TRACEQL_FLOAT || type == BR_TRACEQL_DURATION ||
           type == BR_TRACEQL_ANY;
}

static bool traceql_parse_is_boolean(enum br_traceql_type type)
{
    return type == BR_TRACEQL_BOOL || type == BR_TRACEQL_ANY;
}

static bool traceql_parse_comparable(enum br_traceql_type left, enum br_traceql_type right)
{
    bool any = left == BR_TRACEQL_ANY || right == BR_TRACEQL_ANY;
    bool nil = left == BR_TRACEQL_NIL || right == BR_TRACEQL_NIL;
    bool numbers = traceql_parse_is_number(left) && traceql_parse_is_number(right);
    return left == right || any || nil || numbers;
}

static bool traceql_parse_ordered(enum br_traceql_type type)
{
    return traceql_parse_is_number(type) || type == BR_TRACEQL_STRING;
}

static int traceql_parse_unary(struct parser *parser, const struct br_traceql_expr **ret)
{
    struct br_traceql_token token = parser->token;
    struct br_traceql_expr *expr;
    int rc;
    bool negate = traceql_parse_is(parser, "-");
    if (!negate && !traceql_parse_is(parser, "!"))
        return traceql_parse_operand(parser, ret);
    expr = traceql_parse_alloc(parser, sizeof *expr, &rc);
    if (rc || (rc = traceql_parse_step(parser)) || (rc = traceql_parse_enter(parser)) ||
        (rc = traceql_parse_unary(parser, &expr->left)))
        return rc;
    parser->depth--;
    expr->op = negate ? BR_TRACEQL_NEGATE : BR_TRACEQL_NOT;
    expr->type = negate ? expr->left->type : BR_TRACEQL_BOOL;
    *ret = expr;
    if (negate ? !traceql_parse_is_number(expr->left->type)
               : !traceql_parse_is_boolean(expr->left->type))
        return traceql_parse_fail_at(parser, BR_EINVAL, &token,
                                     negate ? "'-' requires a number" : "'!' requires a boolean");
    return 0;
}

static const struct {
    const char *text;
    enum br_traceql_op op;
    int binds; /* precedence of the operator; operators with a larger value are applied first */
} operators[] = {
    {"&&", BR_TRACEQL_AND, 1},     {"||", BR_TRACEQL_OR, 1},
    {"=", BR_TRACEQL_EQUAL, 2},    {"!=", BR_TRACEQL_NOT_EQUAL, 2},
    {"<", BR_TRACEQL_LESS, 2},     {"<=", BR_TRACEQL_LESS_EQUAL, 2},
    {">", BR_TRACEQL_GREATER, 2},  {">=", BR_TRACEQL_GREATER_EQUAL, 2},
    {"=~", BR_TRACEQL_MATCHES, 2}, {"!~", BR_TRACEQL_MATCHES_NOT, 2},
    {"+", BR_TRACEQL_ADD, 3},      {"-", BR_TRACEQL_SUBTRACT, 3},
    {"*", BR_TRACEQL_MULTIPLY, 4}, {"/", BR_TRACEQL_DIVIDE, 4},
    {"%", BR_TRACEQL_MODULO, 4},   {"^", BR_TRACEQL_POWER, 5},
};

/* Returns the index in `operators` of the operator that is the next token. Returns
 * BR_COUNT(operators) if the next token is not an operator. */
static size_t traceql_parse_operator(const struct parser *parser)
{
    size_t i = 0;
    while (i < BR_COUNT(operators) && !traceql_parse_is(parser, operators[i].text))
        i++;
    return i;
}

static int traceql_parse_compile(struct parser *parser, const struct br_traceql_token *token,
                                 struct br_traceql_expr *expr)
{
    struct br_traceql *query = parser->query;
    const struct br_traceql_value *value = &expr->right->value;
    char why[BR_REGEX_WHY_SIZE];
    if (expr->right->op != BR_TRACEQL_VALUE || value->type != BR_TRACEQL_STRING ||
        (expr->left->type != BR_TRACEQL_STRING && expr->left->type != BR_TRACEQL_ANY))
        return traceql_parse_fail_at(
            parser, BR_EINVAL, token,
            "'=~' and '!~' require a string and a quoted regular expression");
    if (value->len > BR_TRACEQL_PATTERN_MAX || memchr(value->text, '\0', value->len))
        return br_lexer_fail(&parser->lexer, token->text, BR_EINVAL,
                             "a regular expression may have at most %d bytes and no NUL",
                             BR_TRACEQL_PATTERN_MAX);
    if (query->n_patterns == BR_TRACEQL_PATTERNS_MAX)
        return br_lexer_fail(&parser->lexer, token->text, BR_EINVAL,
                             "a query may have at most %d regular expressions",
                             BR_TRACEQL_PATTERNS_MAX);
    /* First compile the user's expression alone. Between the brackets that are added below, an
     * invalid expression such as "a)(b" would become valid. */
    const char *whole =
        br_arena_printf(query->arena, "\\A(?:%.*s)\\z", (int)value->len, value->text);
    pcre2_code *alone = NULL;
    int rc = whole ? br_regex_compile(&query->regex, value->text, &alone, why) : BR_ENOMEM;
    pcre2_code_free(alone);
    if (!rc)
        rc = br_regex_compile(&query->regex, whole, &query->patterns[query->n_patterns].code, why);
    if (rc == BR_EINVAL)
        return br_lexer_fail(&parser->lexer, token->text, rc, "invalid regular expression: %s",
                             why);
    if (rc)
        return br_err_set(parser->lexer.err, BR_ENOMEM, "out of memory");
    expr->pattern = &query->patterns[query->n_patterns++];
    return 0;
}

/* Checks the types of an operator's operands, and sets the type of the result. */
static int traceql_parse_check(struct parser *parser, const struct br_traceql_token *token,
                               struct br_traceql_expr *expr)
{
    enum br_traceql_type left = expr->left->type, right = expr->right->type;
    expr->type = BR_TRACEQL_BOOL;
    if (expr->op <= BR_TRACEQL_OR) {
        if (!traceql_parse_is_boolean(left) || !traceql_parse_is_boolean(right))
            return traceql_parse_fail_at(parser, BR_EINVAL, token,
                                         "'&&' and '||' require booleans on both sides");
    } else if (expr->op >= BR_TRACEQL_ADD) {
        if (!traceql_parse_is_number(left) || !traceql_parse_is_number(right))
            return traceql_parse_fail_at(parser, BR_EINVAL, token,
                                         "arithmetic requires numbers on both sides");
        expr->type = left == right ? left : BR_TRACEQL_ANY;
        if (left == BR_TRACEQL_DURATION || right == BR_TRACEQL_DURATION)
            expr->type = BR_TRACEQL_DURATION;
    } else if (expr->op >= BR_TRACEQL_MATCHES) {
        return traceql_parse_compile(parser, token, expr);
    } else if (!traceql_parse_comparable(left, right)) {
        return traceql_parse_fail_at(parser, BR_EINVAL, token,
                                     "the two sides have different types");
    } else if (expr->op >= BR_TRACEQL_LESS &&
               (!traceql_parse_ordered(left) || !traceql_parse_ordered(right))) {
        return traceql_parse_fail_at(parser, BR_EINVAL, token,
                                     "values of this type have no order; use '=' or '!='");
    }
    return 0;
}

/* Parses an expression in which all operators have at least the precedence `least`. */
static int traceql_parse_expr(struct parser *parser, int least, const struct br_traceql_expr **ret)
{
    const struct br_traceql_expr *left;
    int rc = traceql_parse_enter(parser);
    if (!rc)
        rc = traceql_parse_unary(parser, &left);
    for (size_t i; !rc && (i = traceql_parse_operator(parser)) < BR_COUNT(operators) &&
                   operators[i].binds >= least;) {
        struct br_traceql_token token = parser->token;
        bool right_first = operators[i].op == BR_TRACEQL_POWER;
        struct br_traceql_expr *expr = traceql_parse_alloc(parser, sizeof *expr, &rc);
        if (rc || (rc = traceql_parse_step(parser)) ||
            (rc = traceql_parse_expr(parser, operators[i].binds + !right_first, &expr->right)))
            break;
        expr->op = operators[i].op;
        expr->left = left;
        rc = traceql_parse_check(parser, &token, expr);
        left = expr;
    }
    parser->depth--;
    if (!rc)
        *ret = left;
    return rc;
}

/* Parses a filter: "{" [expression] "}". */
static int traceql_parse_filter(struct parser *parser, const struct br_traceql_expr **ret)
{
    struct br_traceql_token token = parser->token;
    int rc = traceql_parse_expect(parser, "{");
    *ret = NULL;
    if (rc)
        return rc;
    if (!traceql_parse_is(parser, "}"))
        rc = traceql_parse_expr(parser, 0, ret);
    if (!rc)
        rc = traceql_parse_expect(parser, "}");
    if (!rc && *ret && !traceql_parse_is_boolean((*ret)->type))
        return traceql_parse_fail_at(parser, BR_EINVAL, &token,
                                     "the expression in braces must be a boolean");
    return rc;
}

/* --- Spansets --------------------------------------------------------------------------------- */

static const struct {
    const char *text;
    enum br_traceql_relation relation;
    int binds;
} relations[] = {
    {"&&", BR_TRACEQL_BOTH, 1},   {"||", BR_TRACEQL_EITHER, 1},     {">", BR_TRACEQL_CHILD, 2},
    {"<", BR_TRACEQL_PARENT, 2},  {">>", BR_TRACEQL_DESCENDANT, 2}, {"<<", BR_TRACEQL_ANCESTOR, 2},
    {"~", BR_TRACEQL_SIBLING, 2},
};

/* Returns the index in `relations` of the relation that is the next token, which may begin with
 * "!" or "&". Returns BR_COUNT(relations) if the next token is not a relation. */
static size_t traceql_parse_relation(const struct parser *parser, bool *ret_negated,
                                     bool *ret_unites)
{
    const char *op = parser->token.op;
    bool is_op = parser->token.kind == BR_TRACEQL_PUNCT;
    *ret_negated = is_op && op[0] == '!' && strchr("<>~", op[1]) && op[1];
    *ret_unites = is_op && op[0] == '&' && strchr("<>~", op[1]) && op[1];
    size_t i = 0;
    while (i < BR_COUNT(relations) &&
           !(is_op && strcmp(relations[i].text, op + (*ret_negated || *ret_unites)) == 0))
        i++;
    return i;
}

static int traceql_parse_spansets(struct parser *parser, int least,
                                  const struct br_traceql_spanset **ret);

static int traceql_parse_spanset(struct parser *parser, const struct br_traceql_spanset **ret)
{
    struct br_traceql_spanset *spanset;
    int rc;
    if (traceql_parse_is(parser, "(")) {
        rc = traceql_parse_step(parser);
        if (!rc)
            rc = traceql_parse_spansets(parser, 0, ret);
        if (!rc && traceql_parse_is(parser, "|"))
            return traceql_parse_fail_at(parser, BR_EUNSUPPORTED, &parser->token,
                                         "a pipeline in brackets is not supported");
        return rc ? rc : traceql_parse_expect(parser, ")");
    }
    if (!traceql_parse_is(parser, "{"))
        return traceql_parse_unexpected(parser, "'{'");
    spanset = traceql_parse_alloc(parser, sizeof *spanset, &rc);
    *ret = spanset;
    return rc ? rc : traceql_parse_filter(parser, &spanset->expr);
}

static int traceql_parse_spansets(struct parser *parser, int least,
                                  const struct br_traceql_spanset **ret)
{
    const struct br_traceql_spanset *left = NULL;
    int rc = traceql_parse_enter(parser);
    if (!rc)
        rc = traceql_parse_spanset(parser, &left);
    while (!rc) {
        bool negated, unites;
        size_t i = traceql_parse_relation(parser, &negated, &unites);
        if (i == BR_COUNT(relations) || relations[i].binds < least)
            break;
        struct br_traceql_spanset *spanset = traceql_parse_alloc(parser, sizeof *spanset, &rc);
        if (rc || (rc = traceql_parse_step(parser)) ||
            (rc = traceql_parse_spansets(parser, relations[i].binds + 1, &spanset->right)))
            break;
        spanset->relation = relations[i].relation;
        spanset->negated = negated;
        spanset->unites = unites;
        spanset->left = left;
        parser->query->needs_trace = true;
        left = spanset;
    }
    parser->depth--;
    if (!rc)
        *ret = left;
    return rc;
}

/* --- Stages ----------------------------------------------------------------------------------- */

/* Parses a list of attributes in brackets: "(" attributes ")". */
static int traceql_parse_list(struct parser *parser, bool shown, uint32_t *ret, size_t max,
                              size_t *ret_n)
{
    enum br_traceql_type type;
    uint32_t ignored;
    int rc = traceql_parse_expect(parser, "(");
    for (bool more = true; !rc && more;) {
        if (ret && *ret_n == max)
            return traceql_parse_fail_at(parser, BR_EINVAL, &parser->token,
                                         "too many attributes in by()");
        rc = traceql_parse_attribute(parser, shown, ret ? &ret[(*ret_n)++] : &ignored, &type);
        more = !rc && traceql_parse_is(parser, ",");
        if (more)
            rc = traceql_parse_step(parser);
    }
    return rc ? rc : traceql_parse_expect(parser, ")");
}

static int traceql_parse_empty(struct parser *parser)
{
    int rc = traceql_parse_expect(parser, "(");
    return rc ? rc : traceql_parse_expect(parser, ")");
}

static struct br_traceql_stage *traceql_parse_add_stage(struct parser *parser, int *ret_rc)
{
    struct br_traceql *query = parser->query;
    *ret_rc = 0;
    if (query->n_stages < BR_TRACEQL_STAGES_MAX)
        return &query->stages[query->n_stages++];
    *ret_rc = traceql_parse_fail_at(parser, BR_EINVAL, &parser->token,
                                    "the pipeline has too many stages");
    return NULL;
}

static bool traceql_parse_is_comparison(const struct parser *parser)
{
    size_t i = traceql_parse_operator(parser);
    return i < BR_COUNT(operators) && operators[i].op >= BR_TRACEQL_EQUAL &&
           operators[i].op <= BR_TRACEQL_GREATER_EQUAL;
}

/* Parses a comparison operator and the number or duration after it. */
static int traceql_parse_comparison(struct parser *parser, const char *expected,
                                    enum br_traceql_op *ret_op, struct br_traceql_value *ret)
{
    struct br_traceql_token token = parser->token;
    const struct br_traceql_expr *value;
    int rc;
    if (!traceql_parse_is_comparison(parser))
        return traceql_parse_unexpected(parser, expected);
    *ret_op = operators[traceql_parse_operator(parser)].op;
    if ((rc = traceql_parse_step(parser)) || (rc = traceql_parse_unary(parser, &value)))
        return rc;
    bool negative = value->op == BR_TRACEQL_NEGATE && value->left->op == BR_TRACEQL_VALUE;
    const struct br_traceql_expr *plain = negative ? value->left : value;
    if (plain->op != BR_TRACEQL_VALUE || !traceql_parse_is_number(plain->type))
        return traceql_parse_fail_at(parser, BR_EINVAL, &token,
                                     "an aggregate must be compared with a number or a duration");
    *ret = plain->value;
    if (negative && ret->type == BR_TRACEQL_FLOAT)
        ret->real = -ret->real;
    else if (negative)
        ret->integer = -ret->integer;
    return 0;
}

/* Returns the name under which responses list the result of a stage: the name of the function
 * with its argument in brackets. The argument is the label of an attribute, or the text of the
 * expression as in the query. */
static const char *traceql_parse_text(struct parser *parser, const char *function,
                                      const struct br_traceql_expr *expr, const char *from,
                                      const char *until)
{
    if (expr && expr->op == BR_TRACEQL_ATTRIBUTE) {
        from = parser->query->attributes[expr->attribute].label;
        until = from + strlen(from);
    }
    while (until > from && until[-1] == ' ')
        until--;
    return br_arena_printf(parser->query->arena, "%s(%.*s)", function, (int)(until - from), from);
}

/* Parses the argument of a function, "(" expression ")", and sets the stage's expression and
 * text. */
static int traceql_parse_of(struct parser *parser, const char *function,
                            struct br_traceql_stage *stage)
{
    int rc = traceql_parse_expect(parser, "(");
    const char *from = parser->token.text;
    if (rc || (rc = traceql_parse_expr(parser, 0, &stage->expr)))
        return rc;
    stage->text = traceql_parse_text(parser, function, stage->expr, from, parser->token.text);
    if (!stage->text)
        return br_err_set(parser->lexer.err, BR_ENOMEM, "out of memory");
    return traceql_parse_expect(parser, ")");
}

/* Parses by(...) or coalesce(). */
static int traceql_parse_grouping(struct parser *parser, bool coalesces)
{
    int rc;
    struct br_traceql_stage *stage = traceql_parse_add_stage(parser, &rc);
    if (rc || (rc = traceql_parse_step(parser)))
        return rc;
    stage->kind = coalesces ? BR_TRACEQL_STAGE_COALESCE : BR_TRACEQL_STAGE_BY;
    parser->query->needs_trace = true;
    return coalesces ? traceql_parse_empty(parser) : traceql_parse_of(parser, "by", stage);
}

/* Parses an aggregate such as count() > 2 or avg(duration) >= 10ms. */
static int traceql_parse_aggregate(struct parser *parser, enum br_traceql_aggregate aggregate,
                                   const char *name)
{
    struct br_traceql_token token = parser->token;
    int rc;
    struct br_traceql_stage *stage = traceql_parse_add_stage(parser, &rc);
    if (rc || (rc = traceql_parse_step(parser)))
        return rc;
    stage->aggregate = aggregate;
    parser->query->needs_trace = true;
    if (aggregate == BR_TRACEQL_COUNT) {
        stage->text = "count()";
        rc = traceql_parse_empty(parser);
    } else if (!(rc = traceql_parse_of(parser, name, stage)) &&
               !traceql_parse_is_number(stage->expr->type)) {
        return traceql_parse_fail_at(parser, BR_EINVAL, &token, "expected a number in brackets");
    }
    return rc ? rc
              : traceql_parse_comparison(parser, "a comparison such as count() > 2",
                                         &stage->compare, &stage->value);
}

static double traceql_parse_number(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_FLOAT ? value->real : (double)value->integer;
}

/* Parses the quantiles after the attribute: quantile_over_time(duration, .5, .9). */
static int traceql_parse_quantiles(struct parser *parser, struct br_traceql_metric *metric)
{
    int rc = 0;
    while (!rc && traceql_parse_is(parser, ",")) {
        rc = traceql_parse_step(parser);
        const struct br_traceql_value *value = &parser->token.value;
        bool number = parser->token.kind == BR_TRACEQL_LITERAL &&
                      (value->type == BR_TRACEQL_FLOAT || value->type == BR_TRACEQL_INT);
        double quantile = number ? traceql_parse_number(value) : -1;
        if (rc)
            return rc;
        if (!(quantile >= 0 && quantile <= 1) || metric->n_quantiles == BR_TRACEQL_QUANTILES_MAX)
            return traceql_parse_unexpected(parser, "a quantile from 0 to 1 (at most 8)");
        metric->quantiles[metric->n_quantiles++] = quantile;
        rc = traceql_parse_step(parser);
    }
    if (!rc && metric->n_quantiles == 0)
        return traceql_parse_unexpected(parser,
                                        "a quantile, as in quantile_over_time(duration, .9)");
    return rc;
}

static int traceql_parse_metric_of(struct parser *parser, struct br_traceql_metric *metric)
{
    enum br_traceql_type type;
    if (metric->aggregate == BR_TRACEQL_RATE || metric->aggregate == BR_TRACEQL_COUNT)
        return traceql_parse_empty(parser);
    int rc = traceql_parse_expect(parser, "(");
    struct br_traceql_token token = parser->token;
    if (!rc)
        rc = traceql_parse_attribute(parser, false, &metric->attribute, &type);
    if (!rc && !traceql_parse_is_number(type))
        return traceql_parse_fail_at(parser, BR_EINVAL, &token, "expected a number in brackets");
    if (!rc && metric->aggregate == BR_TRACEQL_QUANTILE)
        rc = traceql_parse_quantiles(parser, metric);
    return rc ? rc : traceql_parse_expect(parser, ")");
}

/* Parses topk(number) or bottomk(number), after the "|". */
static int traceql_parse_topk(struct parser *parser, struct br_traceql_after *after)
{
    bool top = traceql_parse_is_word(parser, "topk");
    if (!top && !traceql_parse_is_word(parser, "bottomk"))
        return traceql_parse_unexpected(parser, "topk() or bottomk()");
    after->kind = top ? BR_TRACEQL_TOPK : BR_TRACEQL_BOTTOMK;
    int rc = traceql_parse_step(parser);
    if (!rc)
        rc = traceql_parse_expect(parser, "(");
    const struct br_traceql_value *value = &parser->token.value;
    bool number = parser->token.kind == BR_TRACEQL_LITERAL && value->type == BR_TRACEQL_INT;
    if (rc)
        return rc;
    if (!number || value->integer < 1 || value->integer > UINT32_MAX)
        return traceql_parse_unexpected(parser, "a number of series (at least 1)");
    after->count = (uint32_t)value->integer;
    rc = traceql_parse_step(parser);
    return rc ? rc : traceql_parse_expect(parser, ")");
}

static int traceql_parse_after(struct parser *parser, struct br_traceql_metric *metric)
{
    int rc = 0;
    while (!rc && (traceql_parse_is(parser, "|") || traceql_parse_is_comparison(parser))) {
        struct br_traceql_after after = {.kind = BR_TRACEQL_COMPARE};
        struct br_traceql_value value = {0};
        if (metric->n_after == BR_TRACEQL_AFTER_MAX)
            return traceql_parse_fail_at(parser, BR_EINVAL, &parser->token,
                                         "too many functions after the metric");
        if (traceql_parse_is(parser, "|"))
            rc = (rc = traceql_parse_step(parser)) ? rc : traceql_parse_topk(parser, &after);
        else
            rc = traceql_parse_comparison(parser, "a comparison", &after.compare, &value);
        after.value = traceql_parse_number(&value);
        if (value.type == BR_TRACEQL_DURATION)
            after.value /= 1e9;
        metric->after[metric->n_after++] = after;
    }
    if (!rc && traceql_parse_operator(parser) < BR_COUNT(operators))
        return traceql_parse_fail_at(parser, BR_EUNSUPPORTED, &parser->token,
                                     "arithmetic of metrics is not supported");
    return rc;
}

static int traceql_parse_metric(struct parser *parser, enum br_traceql_aggregate aggregate,
                                const char *name)
{
    int rc;
    struct br_traceql_metric *metric = traceql_parse_alloc(parser, sizeof *metric, &rc);
    if (rc || (rc = traceql_parse_step(parser)))
        return rc;
    metric->aggregate = aggregate;
    metric->name = name;
    rc = traceql_parse_metric_of(parser, metric);
    if (!rc && traceql_parse_is_word(parser, "by")) {
        rc = traceql_parse_step(parser);
        if (!rc)
            rc = traceql_parse_list(parser, false, metric->by, BR_TRACEQL_BY_MAX, &metric->n_by);
    }
    if (!rc)
        rc = traceql_parse_after(parser, metric);
    if (!rc)
        parser->query->metric = metric;
    return rc;
}

/* Parses a comma and a positive integer. */
static int traceql_parse_whole(struct parser *parser, uint64_t *ret)
{
    int rc = traceql_parse_expect(parser, ",");
    const struct br_traceql_value *value = &parser->token.value;
    if (rc)
        return rc;
    if (parser->token.kind != BR_TRACEQL_LITERAL || value->type != BR_TRACEQL_INT ||
        value->integer <= 0)
        return traceql_parse_unexpected(parser, "a positive integer");
    *ret = (uint64_t)value->integer;
    return traceql_parse_step(parser);
}

/* Parses compare({...}, top, start, end). */
static int traceql_parse_compare(struct parser *parser)
{
    uint64_t top = COMPARE_TOP_DEFAULT;
    int rc;
    struct br_traceql_metric *metric = traceql_parse_alloc(parser, sizeof *metric, &rc);
    struct br_traceql_token token = parser->token;
    if (rc || (rc = traceql_parse_step(parser)) || (rc = traceql_parse_expect(parser, "(")) ||
        (rc = traceql_parse_filter(parser, &metric->selection)))
        return rc;
    metric->aggregate = BR_TRACEQL_COMPARISON;
    metric->name = "compare";
    parser->query->needs_trace = parser->query->needs_bytes = true;
    if (traceql_parse_is(parser, ","))
        rc = traceql_parse_whole(parser, &top);
    if (!rc && traceql_parse_is(parser, ",")) {
        rc = traceql_parse_whole(parser, &metric->from_ns);
        if (!rc)
            rc = traceql_parse_whole(parser, &metric->until_ns);
    }
    if (!rc)
        rc = traceql_parse_expect(parser, ")");
    if (!rc && (top > COMPARE_TOP_MAX || metric->until_ns < metric->from_ns))
        return traceql_parse_fail_at(
            parser, BR_EINVAL, &token,
            "compare() requires at most 1000 values and a start before the end");
    metric->top = (uint32_t)top;
    parser->query->metric = metric;
    return rc;
}

static const struct {
    const char *name;
    enum br_traceql_aggregate aggregate;
    bool metric;
} functions[] = {
    {"count", BR_TRACEQL_COUNT, false},
    {"min", BR_TRACEQL_MIN, false},
    {"max", BR_TRACEQL_MAX, false},
    {"avg", BR_TRACEQL_AVG, false},
    {"sum", BR_TRACEQL_SUM, false},
    {"rate", BR_TRACEQL_RATE, true},
    {"count_over_time", BR_TRACEQL_COUNT, true},
    {"min_over_time", BR_TRACEQL_MIN, true},
    {"max_over_time", BR_TRACEQL_MAX, true},
    {"avg_over_time", BR_TRACEQL_AVG, true},
    {"sum_over_time", BR_TRACEQL_SUM, true},
    {"quantile_over_time", BR_TRACEQL_QUANTILE, true},
    {"histogram_over_time", BR_TRACEQL_HISTOGRAM, true},
};

static int traceql_parse_stage(struct parser *parser)
{
    int rc;
    if (traceql_parse_is(parser, "{")) {
        struct br_traceql_stage *stage = traceql_parse_add_stage(parser, &rc);
        if (rc)
            return rc;
        stage->kind = BR_TRACEQL_STAGE_FILTER;
        parser->query->needs_trace = true;
        rc = traceql_parse_filter(parser, &stage->expr);
        if (!rc && !traceql_parse_is(parser, "|") && parser->token.kind == BR_TRACEQL_PUNCT)
            return traceql_parse_fail_at(parser, BR_EUNSUPPORTED, &parser->token,
                                         "spansets can only be combined before the first '|'");
        return rc;
    }
    if (traceql_parse_is_word(parser, "select")) {
        rc = traceql_parse_step(parser);
        return rc ? rc : traceql_parse_list(parser, true, NULL, 0, NULL);
    }
    for (size_t i = 0; i < BR_COUNT(functions); i++)
        if (traceql_parse_is_word(parser, functions[i].name))
            return functions[i].metric
                       ? traceql_parse_metric(parser, functions[i].aggregate, functions[i].name)
                       : traceql_parse_aggregate(parser, functions[i].aggregate, functions[i].name);
    if (traceql_parse_is_word(parser, "compare"))
        return traceql_parse_compare(parser);
    if (traceql_parse_is_word(parser, "by") || traceql_parse_is_word(parser, "coalesce"))
        return traceql_parse_grouping(parser, traceql_parse_is_word(parser, "coalesce"));
    if (traceql_parse_is_word(parser, "topk") || traceql_parse_is_word(parser, "bottomk"))
        return traceql_parse_fail_at(parser, BR_EINVAL, &parser->token,
                                     "topk() and bottomk() must follow a metric such as rate()");
    return traceql_parse_unexpected(parser, "'{', select(), an aggregate or a metric");
}

/* Parses the hint exemplars=<number> or exemplars=<boolean>. If the boolean is true, the HTTP
 * request determines the number of exemplars. */
static int traceql_parse_hint_exemplars(struct parser *parser)
{
    int rc = traceql_parse_step(parser);
    if (rc || !traceql_parse_is(parser, "="))
        return rc;
    rc = traceql_parse_step(parser);
    const struct br_traceql_value *value = &parser->token.value;
    if (rc)
        return rc;
    if (parser->token.kind == BR_TRACEQL_LITERAL && value->type == BR_TRACEQL_INT)
        parser->query->exemplars =
            (int32_t)(value->integer < INT32_MAX ? value->integer : INT32_MAX);
    else if (traceql_parse_is_word(parser, "false"))
        parser->query->exemplars = 0;
    return 0;
}

/* Parses the hints with(name=value, ...). Only the hint `exemplars` has an effect. */
static int traceql_parse_hints(struct parser *parser)
{
    int rc = traceql_parse_step(parser);
    if (!rc)
        rc = traceql_parse_expect(parser, "(");
    while (!rc && !traceql_parse_is(parser, ")")) {
        if (parser->token.kind == BR_TRACEQL_END)
            return traceql_parse_unexpected(parser, "')'");
        if (traceql_parse_is_word(parser, "exemplars"))
            rc = traceql_parse_hint_exemplars(parser);
        else
            rc = traceql_parse_step(parser);
    }
    return rc ? rc : traceql_parse_step(parser);
}

static int traceql_parse_query(struct parser *parser)
{
    int rc = traceql_parse_step(parser);
    if (!rc)
        rc = traceql_parse_spansets(parser, 0, &parser->query->spansets);
    while (!rc && traceql_parse_is(parser, "|") && !parser->query->metric) {
        rc = traceql_parse_step(parser);
        if (!rc)
            rc = traceql_parse_stage(parser);
    }
    if (!rc && traceql_parse_is_word(parser, "with"))
        rc = traceql_parse_hints(parser);
    if (!rc && parser->token.kind != BR_TRACEQL_END)
        rc = traceql_parse_unexpected(parser, "'|' or the end");
    return rc;
}

/* --- The query -------------------------------------------------------------------------------- */

int br_traceql_parse(struct br_traceql *ret, const char *text, size_t len, struct br_arena *arena,
                     struct br_err *err)
{
    struct parser parser = {.query = ret};
    *ret = (struct br_traceql){.arena = arena, .exemplars = -1};
    br_traceql_lexer_init(&parser.lexer, text, len, arena, err);
    if (len > BR_TRACEQL_LENGTH_MAX)
        return br_lexer_fail(&parser.lexer, text, BR_EINVAL, "a query may have at most %u bytes",
                             BR_TRACEQL_LENGTH_MAX);
    int rc = traceql_parse_query(&parser);
    if (!rc && ret->n_patterns)
        rc = br_regex_ready(&ret->regex);
    if (rc == BR_ENOMEM)
        return br_err_set(err, rc, "out of memory");
    if (!rc && ret->n_patterns) {
        br_regex_time_begin(&ret->time, MATCH_MS * 1000000u, NULL);
        br_regex_bound(&ret->regex, &ret->time);
    }
    return rc;
}

int br_traceql_select(struct br_traceql *query, const char *text, size_t len, uint32_t *ret,
                      struct br_err *err)
{
    struct parser parser = {.query = query};
    enum br_traceql_type type;
    br_traceql_lexer_init(&parser.lexer, text, len, query->arena, err);
    int rc = traceql_parse_step(&parser);
    if (!rc)
        rc = traceql_parse_attribute(&parser, true, ret, &type);
    if (!rc && parser.token.kind != BR_TRACEQL_END)
        rc = traceql_parse_unexpected(&parser, "the end");
    return rc;
}

void br_traceql_release(struct br_traceql *query)
{
    for (size_t i = 0; i < query->n_patterns; i++) {
        pcre2_code_free(query->patterns[i].code);
        br_map_free(query->patterns[i].known, NULL);
    }
    query->n_patterns = 0;
    br_regex_release(&query->regex);
}
