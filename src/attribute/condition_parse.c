/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "attribute/expression.h"
#include "attribute/expression_parse.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"

#define DEPTH_MAX 64 /* maximum depth of nested parentheses, calls and `not` operators */
/* maximum number of conditions; a config file cannot contain so many */
#define CONDITIONS_MAX 10000
#define ITEMS_MAX 1000  /* maximum number of elements in a list, and of keys in a path */
#define INDEX_MAX 65535 /* largest index in brackets; setting it makes a list of this length */
#define NUMBER_MAX 80   /* size of the buffer for the digits of a number */

static const struct br_lexer_rules rules = {
    .blanks = BR_CONDITION_BLANKS,
    .one_line = true,
    .unended = "the quote that opens here is never closed",
    .unknown_escape = "unknown escape; write \\\\ for a backslash",
};

static struct br_condition *parse_or(struct br_parser *parser);
static struct br_expression *parse_sum(struct br_parser *parser);

/* --- Errors ----------------------------------------------------------------------------------- */

void *br_parser_fail(struct br_parser *parser, const char *at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!parser->rc)
        parser->rc = br_lexer_vfail(&parser->lexer, at, BR_EINVAL, fmt, ap);
    va_end(ap);
    return NULL;
}

void *br_parser_lack(struct br_parser *parser, const char *at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!parser->rc) {
        (void)br_lexer_vfail(&parser->lexer, at, BR_EUNSUPPORTED, fmt, ap);
        parser->rc = BR_EUNSUPPORTED;
    }
    va_end(ap);
    return NULL;
}

void *br_parser_keep(struct br_parser *parser, void *memory)
{
    if (!memory && !parser->rc)
        parser->rc = br_err_set(parser->lexer.err, BR_ENOMEM, "out of memory");
    return memory;
}

bool br_parser_take(struct br_parser *parser, const char *token)
{
    br_lexer_skip(&parser->lexer);
    return br_lexer_take(&parser->lexer, token);
}

static bool parse_expect(struct br_parser *parser, const char *token)
{
    if (br_parser_take(parser, token))
        return true;
    (void)br_parser_fail(parser, parser->lexer.at, "a \"%s\" is missing", token);
    return false;
}

static bool parse_enter(struct br_parser *parser, unsigned *depth)
{
    if (++*depth <= DEPTH_MAX)
        return true;
    (void)br_parser_fail(parser, parser->lexer.at, "parentheses are nested more than %d deep",
                         DEPTH_MAX);
    return false;
}

static struct br_condition *parse_node(struct br_parser *parser, enum br_condition_op op)
{
    struct br_condition *node =
        br_parser_keep(parser, br_arena_calloc(parser->lexer.arena, 1, sizeof *node));
    if (node)
        node->op = op;
    return node;
}

struct br_expression *br_parser_expression(struct br_parser *parser, enum br_expression_kind kind)
{
    struct br_expression *made =
        br_parser_keep(parser, br_arena_calloc(parser->lexer.arena, 1, sizeof *made));
    if (made)
        made->kind = kind;
    return made;
}

/* Appends to the array `*items` of `*count` pointers, which is in the arena. */
static bool parse_append(struct br_parser *parser, struct br_expression ***items, uint32_t *count,
                         struct br_expression *item)
{
    if (!item)
        return false;
    if (*count == ITEMS_MAX)
        return br_parser_fail(parser, parser->lexer.at, "a list has at most %d elements",
                              ITEMS_MAX);
    if ((*count & (*count - 1)) == 0) {
        struct br_expression **grown = br_parser_keep(
            parser, br_arena_calloc(parser->lexer.arena, *count ? 2 * *count : 1, sizeof *grown));
        if (!grown)
            return false;
        for (uint32_t i = 0; i < *count; i++)
            grown[i] = (*items)[i];
        *items = grown;
    }
    (*items)[(*count)++] = item;
    return true;
}

/* --- Literals -------------------------------------------------------------------------------- */

/* Parses a text in double quotes. `*ret_len` is the length of the text. */
static const char *parse_text(struct br_parser *parser, size_t *ret_len)
{
    const char *text = NULL, *start = parser->lexer.at;
    int rc = br_lexer_string(&parser->lexer, &text, ret_len);
    if (rc == BR_ENOMEM)
        return br_parser_keep(parser, NULL);
    for (const char *p = start; !rc && p < parser->lexer.at; p += 1 + (*p == '\\'))
        if (*p == '\\' && p[1] == '\'')
            return br_parser_fail(parser, p, "%s", rules.unknown_escape);
    parser->rc = parser->rc ? parser->rc : rc;
    return text;
}

/* Returns the length of the number at `p`: digits with an optional point and, after a point, an
 * optional exponent. Returns 0 if there is no number. */
static size_t parse_number_len(const char *p, const char *end, bool *ret_whole)
{
    size_t len = br_lexer_number(p, end, ret_whole);
    if (len && !memchr(p, '.', len)) {
        /* "1e3" is not a number of the language; the caller stops at the "e" */
        len = strspn(p, "0123456789");
        *ret_whole = true;
    }
    return len;
}

/* Parses a number without a sign. A whole number with a leading 0 is octal, as in Go. */
static bool parse_number(struct br_parser *parser, struct br_any *ret)
{
    const char *start = parser->lexer.at;
    bool whole;
    size_t len = parse_number_len(start, parser->lexer.end, &whole);
    char text[NUMBER_MAX];
    int64_t integer;
    if (!len || len >= sizeof text)
        return br_parser_fail(parser, start, "this number has too many digits");
    parser->lexer.at += len;
    if (!whole) {
        double v = br_lexer_real(start, len);
        if (isinf(v))
            return br_parser_fail(parser, start, "this number is too large");
        *ret = (struct br_any){.type = BR_VALUE_DOUBLE};
        memcpy(&ret->number, &v, sizeof v);
        return true;
    }
    memcpy(text, start, len);
    text[len] = '\0';
    if (!br_parse_int(text, len > 1 && *text == '0' ? 8 : 10, false, &integer))
        return br_parser_fail(parser, start, "not a whole number of 64 bits");
    *ret = br_any_int(integer);
    return true;
}

/* Parses bytes in hex after "0x". */
static bool parse_bytes(struct br_parser *parser, struct br_any *ret)
{
    const char *start = parser->lexer.at + 2;
    size_t len = br_word_len(start, parser->lexer.end);
    uint8_t *bytes = br_parser_keep(parser, br_arena_alloc(parser->lexer.arena, len / 2 + 1));
    if (!bytes)
        return false;
    long n = len ? br_hex_decode(start, len, bytes, len / 2 + 1) : -1;
    if (n < 0)
        return br_parser_fail(parser, parser->lexer.at,
                              "bytes are an even number of hex digits after 0x");
    parser->lexer.at = start + len;
    *ret = (struct br_any){.type = BR_VALUE_BYTES, .data = bytes, .len = (size_t)n};
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
static bool parse_word(struct br_parser *parser, struct br_any *ret)
{
    if (br_parser_take(parser, "nil")) {
        *ret = (struct br_any){.type = BR_VALUE_EMPTY};
        return true;
    }
    bool yes = br_parser_take(parser, "true");
    if (yes || br_parser_take(parser, "false")) {
        *ret = br_any_bool(yes);
        return true;
    }
    /* names of numbers exist only for spans and their events */
    bool spans = parser->level == BR_CONDITION_SPAN || parser->level == BR_CONDITION_EVENT;
    for (size_t i = 0; i < BR_COUNT(enums) && (spans || parser->context == BR_CONDITION_NAMED) &&
                       parser->signal == BR_TRACES;
         i++)
        if (br_parser_take(parser, enums[i].name)) {
            *ret = br_any_int(enums[i].value);
            return true;
        }
    return false;
}

/* --- Values ----------------------------------------------------------------------------------- */

bool br_parser_keys(struct br_parser *parser, struct br_expression *into)
{
    struct br_path_key *keys = NULL;
    while (br_parser_take(parser, "[")) {
        struct br_path_key key = {.text = NULL};
        struct br_any index = {0};
        br_lexer_skip(&parser->lexer);
        const char *at = parser->lexer.at;
        if (into->n_keys == ITEMS_MAX)
            return br_parser_fail(parser, at, "a path has at most %d keys", ITEMS_MAX);
        if (*at == '"') {
            key.text = parse_text(parser, &key.len);
            if (!key.text)
                return false;
        } else if (br_is_digit(*at) && parse_number(parser, &index) && index.type == BR_VALUE_INT) {
            if (index.number > INDEX_MAX)
                return br_parser_fail(parser, at, "an index is at most %d", INDEX_MAX);
            key.index = (int64_t)index.number;
        } else {
            return br_parser_lack(parser, at,
                                  "a key must be a text in double quotes, or a whole number");
        }
        keys = br_parser_keep(
            parser, br_arena_calloc(parser->lexer.arena, (size_t)into->n_keys + 1, sizeof *keys));
        if (!keys || !parse_expect(parser, "]"))
            return false;
        for (uint32_t i = 0; i < into->n_keys; i++)
            keys[i] = into->keys[i];
        keys[into->n_keys++] = key;
        into->keys = keys;
    }
    return true;
}

static struct br_expression *parse_list_value(struct br_parser *parser)
{
    struct br_expression *list = br_parser_expression(parser, BR_EXPRESSION_LIST);
    if (!list || br_parser_take(parser, "]"))
        return list;
    do {
        if (!parse_append(parser, &list->items, &list->n_items, br_parser_value(parser)))
            return NULL;
    } while (br_parser_take(parser, ","));
    return parse_expect(parser, "]") ? list : NULL;
}

static struct br_expression *parse_map_value(struct br_parser *parser)
{
    struct br_expression *map = br_parser_expression(parser, BR_EXPRESSION_MAP);
    while (map && !br_parser_take(parser, "}")) {
        struct br_expression *key = br_parser_expression(parser, BR_EXPRESSION_LITERAL);
        size_t len = 0;
        if (*parser->lexer.at != '"')
            return br_parser_fail(parser, parser->lexer.at,
                                  "a \"}\" is missing, or a key, which is a text in double quotes");
        const char *text = parse_text(parser, &len);
        if (!text || !key || !parse_expect(parser, ":"))
            return NULL;
        key->literal = br_any_string(text, len);
        if (!parse_append(parser, &map->items, &map->n_items, key) ||
            !parse_append(parser, &map->items, &map->n_items, br_parser_value(parser)))
            return NULL;
        (void)br_parser_take(parser, ",");
    }
    return map;
}

/* Parses a name: a function, whose name begins with a capital, or a path. */
static struct br_expression *parse_name(struct br_parser *parser)
{
    const char *start = parser->lexer.at;
    size_t len = br_word_len(start, parser->lexer.end);
    if (*start == '\'')
        return br_parser_fail(parser, start, "a text must be in double quotes");
    if (!len)
        return br_parser_fail(parser, start, "a path or a literal is required here");
    const char *after = start + len;
    while (after < parser->lexer.end && strchr(rules.blanks, *after))
        after++;
    if (*after == '(')
        return br_parser_call(parser, br_converters);
    return br_parser_path(parser);
}

/* Parses a part of an arithmetic expression: a number, a path, a function, or an expression in
 * parentheses. */
static struct br_expression *parse_term(struct br_parser *parser)
{
    const char *at = parser->lexer.at;
    if (br_parser_take(parser, "(")) {
        struct br_expression *value = parse_sum(parser);
        return value && parse_expect(parser, ")") ? value : NULL;
    }
    if (!br_is_digit(at[*at == '.']))
        return parse_name(parser);
    struct br_expression *literal = br_parser_expression(parser, BR_EXPRESSION_LITERAL);
    return literal && parse_number(parser, &literal->literal) ? literal : NULL;
}

/* Changes the sign of a number, or makes an expression that changes the sign of the value. */
static struct br_expression *parse_negated(struct br_parser *parser, struct br_expression *value,
                                           bool is_number)
{
    struct br_any *any = &value->literal;
    if (is_number && any->type == BR_VALUE_INT) {
        any->number = 0 - any->number;
        return value;
    }
    if (is_number) {
        any->number ^= (uint64_t)1 << 63;
        return value;
    }
    struct br_expression *negation = br_parser_expression(parser, BR_EXPRESSION_MATH);
    if (!negation || !parse_append(parser, &negation->items, &negation->n_items, value))
        return NULL;
    negation->sign = '-';
    return negation;
}

/* Parses a term with an optional sign. */
static struct br_expression *parse_operand(struct br_parser *parser)
{
    br_lexer_skip(&parser->lexer);
    bool minus = br_parser_take(parser, "-"), sign = minus || br_parser_take(parser, "+");
    if (sign)
        br_lexer_skip(&parser->lexer);
    bool is_number = *parser->lexer.at != '(';
    if (!parse_enter(parser, &parser->value_depth))
        return NULL;
    struct br_expression *value = parse_term(parser);
    parser->value_depth--;
    if (!value || !minus)
        return value;
    return parse_negated(parser, value, is_number && value->kind == BR_EXPRESSION_LITERAL);
}

/* Parses operands that are separated by the operators in `signs`. */
static struct br_expression *parse_math(struct br_parser *parser, const char *signs,
                                        struct br_expression *(*part)(struct br_parser *parser))
{
    struct br_expression *left = part(parser);
    unsigned n = 0;
    br_lexer_skip(&parser->lexer);
    while (left && *parser->lexer.at && strchr(signs, *parser->lexer.at)) {
        struct br_expression *math = br_parser_expression(parser, BR_EXPRESSION_MATH);
        if (!math)
            return NULL;
        /* each further operator adds a level to the tree, which is evaluated recursively */
        if (++n > DEPTH_MAX)
            return br_parser_fail(parser, parser->lexer.at, "more than %d operators", DEPTH_MAX);
        math->sign = *parser->lexer.at++;
        if (!parse_append(parser, &math->items, &math->n_items, left) ||
            !parse_append(parser, &math->items, &math->n_items, part(parser)))
            return NULL;
        left = math;
        br_lexer_skip(&parser->lexer);
    }
    return left;
}

static struct br_expression *parse_product(struct br_parser *parser)
{
    return parse_math(parser, "*/", parse_operand);
}

static struct br_expression *parse_sum(struct br_parser *parser)
{
    return parse_math(parser, "+-", parse_product);
}

/* Parses a literal other than a number. `*ret` remains NULL if the text does not continue with
 * such a literal. Returns false after an error. */
static bool parse_literal(struct br_parser *parser, struct br_expression **ret)
{
    const char *at = parser->lexer.at;
    struct br_expression *literal = br_parser_expression(parser, BR_EXPRESSION_LITERAL);
    size_t len = 0;
    bool found = false;
    if (!literal)
        return false;
    if (*at == '"') {
        const char *text = parse_text(parser, &len);
        literal->literal = br_any_string(text, len);
        found = text != NULL;
    } else if (at[0] == '0' && at[1] == 'x') {
        found = parse_bytes(parser, &literal->literal);
    } else {
        found = parse_word(parser, &literal->literal);
    }
    *ret = found ? literal : NULL;
    return !parser->rc;
}

/* Parses a list, a map, or a literal that is not a part of an arithmetic expression. `*ret` remains
 * NULL if there is no such value. Returns false after an error. */
static bool parse_single(struct br_parser *parser, struct br_expression **ret)
{
    bool list = br_parser_take(parser, "[");
    *ret = NULL;
    if (list || br_parser_take(parser, "{")) {
        if (!parse_enter(parser, &parser->value_depth))
            return false;
        *ret = list ? parse_list_value(parser) : parse_map_value(parser);
        parser->value_depth--;
        return *ret != NULL;
    }
    return parse_literal(parser, ret);
}

struct br_expression *br_parser_value(struct br_parser *parser)
{
    struct br_expression *value;
    br_lexer_skip(&parser->lexer);
    const char first = *parser->lexer.at;
    if (!parse_single(parser, &value))
        return NULL;
    if (!value)
        value = parse_sum(parser);
    if (value)
        value->bare = first != '(' && first != '-' && first != '+';
    return value;
}

bool br_expression_is_literal(const struct br_expression *expression)
{
    bool nested = expression->kind == BR_EXPRESSION_LIST || expression->kind == BR_EXPRESSION_MAP;
    for (uint32_t i = 0; i < expression->n_items && nested; i++)
        nested = br_expression_is_literal(expression->items[i]);
    return nested || expression->kind == BR_EXPRESSION_LITERAL;
}

/* --- Conditions ------------------------------------------------------------------------------ */

static bool parse_op(struct br_parser *parser, enum br_condition_op *ret)
{
    static const struct {
        const char *sign;
        enum br_condition_op op;
    } ops[] = {{"==", CONDITION_EQ}, {"!=", CONDITION_NE}, {"<=", CONDITION_LE},
               {">=", CONDITION_GE}, {"<", CONDITION_LT},  {">", CONDITION_GT}};
    for (size_t i = 0; i < BR_COUNT(ops); i++)
        if (br_parser_take(parser, ops[i].sign)) {
            *ret = ops[i].op;
            return true;
        }
    return false;
}

/* Parses a comparison, the constant true or false, or a function. The result of the function must
 * be a boolean, which is checked when the condition is evaluated. */
static struct br_condition *parse_comparison(struct br_parser *parser)
{
    struct br_condition *node = parse_node(parser, CONDITION_CONSTANT);
    if (!node || !(node->left = br_parser_value(parser)))
        return NULL;
    br_lexer_skip(&parser->lexer);
    const char *at = parser->lexer.at;
    if (parse_op(parser, &node->op)) {
        node->right = br_parser_value(parser);
        if (node->right)
            br_condition_fold(parser->conditions, node);
        return node->right ? node : NULL;
    }
    if (node->left->kind == BR_EXPRESSION_CALL && node->left->bare) {
        node->op = CONDITION_CALL;
        return node;
    }
    if (node->left->kind != BR_EXPRESSION_LITERAL || node->left->literal.type != BR_VALUE_BOOL)
        return br_parser_fail(parser, at,
                              parser->lexer.end - at >= 2 && memcmp(at, "=~", 2) == 0
                                  ? "=~ is not an operator; write IsMatch(value, pattern)"
                                  : "a comparison is missing: ==, !=, <, <=, > or >=");
    node->constant = node->left->literal.number != 0;
    return node;
}

/* Returns true if the "(" at the current position encloses a part of a value and not a condition:
 * an operator for values follows the matching ")". */
static bool parse_is_value(const struct br_parser *parser)
{
    unsigned depth = 0;
    const char *p = parser->lexer.at, *end = parser->lexer.end;
    for (; p < end; p++) {
        if (*p == '"') {
            for (p++; p < end && *p != '"'; p++)
                p += *p == '\\' && p + 1 < end;
            continue;
        }
        depth += *p == '(';
        if (*p == ')' && --depth == 0)
            break;
    }
    for (p += p < end; p < end && strchr(rules.blanks, *p); p++)
        ;
    return p < end && strchr("=!<>+-*/", *p);
}

static struct br_condition *parse_primary(struct br_parser *parser)
{
    br_lexer_skip(&parser->lexer);
    const char *at = parser->lexer.at;
    if (*at != '(' || parse_is_value(parser))
        return parse_comparison(parser);
    parser->lexer.at++;
    struct br_condition *inner = parse_or(parser);
    if (!inner || br_parser_take(parser, ")"))
        return inner;
    int line, col;
    br_lexer_place(&parser->lexer, at, &line, &col);
    return br_parser_fail(parser, parser->lexer.at, "the \"(\" at character %d has no \")\"", col);
}

static struct br_condition *parse_not(struct br_parser *parser)
{
    struct br_condition *node = NULL;
    br_lexer_skip(&parser->lexer);
    if (!parse_enter(parser, &parser->depth))
        return NULL;
    if (br_parser_take(parser, "not")) {
        struct br_condition *inner = parse_primary(parser);
        node = inner ? parse_node(parser, CONDITION_NOT) : NULL;
        if (node && inner->op == CONDITION_CONSTANT)
            *node = (struct br_condition){.op = CONDITION_CONSTANT, .constant = !inner->constant};
        else if (node)
            node->first = inner;
    } else {
        node = parse_primary(parser);
    }
    parser->depth--;
    return node;
}

/* Simplifies a list with constant children. A child that decides the result replaces the list, so
 * that the others are not evaluated and cannot fail. Other constant children are removed. */
static struct br_condition *parse_fold(struct br_condition *list)
{
    bool neutral = list->op == CONDITION_AND;
    struct br_condition **link = &list->first;
    while (*link) {
        if ((*link)->op != CONDITION_CONSTANT)
            link = &(*link)->next;
        else if ((*link)->constant == neutral)
            *link = (*link)->next;
        else
            break;
    }
    if (*link || !list->first)
        *list =
            (struct br_condition){.op = CONDITION_CONSTANT, .constant = *link ? !neutral : neutral};
    return list;
}

/* Parses one or more expressions that are separated by `word`, the word for `op`. */
static struct br_condition *parse_list(struct br_parser *parser, enum br_condition_op op,
                                       const char *word,
                                       struct br_condition *(*part)(struct br_parser *parser))
{
    struct br_condition *first = part(parser), *last = first, *list;
    if (!first || !br_parser_take(parser, word))
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
    } while (br_parser_take(parser, word));
    return parse_fold(list);
}

static struct br_condition *parse_and(struct br_parser *parser)
{
    return parse_list(parser, CONDITION_AND, "and", parse_not);
}

static struct br_condition *parse_or(struct br_parser *parser)
{
    return parse_list(parser, CONDITION_OR, "or", parse_and);
}

int br_parser_begin(struct br_parser *parser, const char *text, struct br_arena *arena,
                    struct br_err *err)
{
    parser->lexer = (struct br_lexer){.rules = &rules,
                                      .text = text,
                                      .at = text,
                                      .end = text + strlen(text),
                                      .arena = arena,
                                      .err = err};
    if (strlen(text) > BR_CONDITION_MAX)
        return br_err_set(err, BR_EINVAL, "at character 1: a condition has at most %u bytes",
                          BR_CONDITION_MAX);
    return 0;
}

struct br_condition *br_parser_condition(struct br_parser *parser, const char *what)
{
    struct br_condition *whole = parse_or(parser);
    br_lexer_skip(&parser->lexer);
    if (whole && *parser->lexer.at)
        return br_parser_fail(parser, parser->lexer.at,
                              "expected \"and\", \"or\" or the end of the %s", what);
    if (!whole || parser->rc)
        return NULL;
    /* A separate node is necessary for `next`, which links the conditions of a group. */
    struct br_condition *holder = parse_node(parser, CONDITION_AND);
    if (holder)
        holder->first = whole;
    return holder;
}

int br_conditions_add(struct br_conditions *conditions, const char *text, enum br_signal signal,
                      enum br_condition_context context, struct br_arena *arena, struct br_err *err)
{
    struct br_parser parser = {
        .conditions = conditions,
        .signal = signal,
        .context = context,
        .level = signal == BR_TRACES ? BR_CONDITION_SPAN : BR_CONDITION_SAMPLE,
        .filter = true,
    };
    int rc = br_parser_begin(&parser, text, arena, err);
    if (rc)
        return rc;
    struct br_condition *whole = br_parser_condition(&parser, "condition");
    if (whole && br_grow(&conditions->items, &conditions->cap, conditions->count + 1,
                         sizeof(struct br_condition *), CONDITIONS_MAX))
        (void)br_parser_keep(&parser, NULL);
    if (whole && !parser.rc)
        conditions->items[conditions->count++] = whole;
    return parser.rc;
}

void br_conditions_release(struct br_conditions *conditions)
{
    for (struct br_pattern *p = conditions->patterns; p; p = p->next)
        pcre2_code_free(p->code);
    br_free(conditions->items);
    br_regex_release(&conditions->regex);
    for (unsigned i = 0; i < BR_CONTEXTS; i++)
        br_attributes_release(&conditions->messages[i].list);
    br_arena_release(&conditions->arena);
    br_arena_release(&conditions->scratch);
    *conditions = (struct br_conditions){0};
}
