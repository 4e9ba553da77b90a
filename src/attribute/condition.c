/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/condition.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attribute/expression.h"
#include "attribute/value.h"
#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"

#define ARENA_MAX (64u << 20)
#define SCRATCH_MAX (256u << 20)
/* bytes of scratch memory that are kept when the next record begins */
#define SCRATCH_KEPT (64u << 10)
#define SHORT 64 /* maximum size in bytes of a value whose results are not stored */
/* replaces the length of a value in the keys of stored results if the value is a number */
#define OF_NUMBER ((uintptr_t)-1)
/* maximum number of bytes that the functions of all conditions or statements may process for an
 * item: WORK_MIN, plus WORK_PER_BYTE for each byte of the item */
#define WORK_MIN (8u << 20)
#define WORK_PER_BYTE 128u

/* --- Failures and limits ---------------------------------------------------------------------- */

bool br_conditions_fail(struct br_conditions *conditions, const char *fmt, ...)
{
    va_list ap;
    if (br_conditions_stopped(conditions))
        return false;
    conditions->failed = true;
    va_start(ap, fmt);
    (void)vsnprintf(conditions->why, sizeof conditions->why, fmt, ap);
    va_end(ap);
    return false;
}

bool br_conditions_work(struct br_conditions *conditions, size_t bytes)
{
    br_steps_add(bytes);
    if (bytes <= conditions->work_left) {
        conditions->work_left -= bytes;
        return true;
    }
    conditions->work_left = 0;
    if (!conditions->rc) {
        conditions->rc = BR_EFULL;
        conditions->limit = "the functions process too many bytes for one request";
    }
    return false;
}

/* --- Values ----------------------------------------------------------------------------------- */

static struct br_any condition_nil(void)
{
    return (struct br_any){.type = BR_VALUE_EMPTY};
}

/* Returns the value of a path. A value that belongs to a span, a group, a scope or a resource is
 * read once for all its events, spans or samples. */
static struct br_any condition_path_value(struct br_conditions *conditions,
                                          struct br_expression *path)
{
    uint64_t place = br_path_place(conditions, path);
    if (!place)
        return br_path_read(conditions, path);
    if (path->known_in != place) {
        path->known = br_path_read(conditions, path);
        path->known_in = conditions->failed ? 0 : place;
    }
    return path->known;
}

/* Returns the size of the message field that contains a value. */
static size_t condition_element_size(const struct br_value *value)
{
    return br_len_size(BR_LIST_VALUES, value->len);
}

static struct br_any condition_list_value(struct br_conditions *conditions,
                                          const struct br_expression *list)
{
    struct br_value *values =
        br_arena_calloc(&conditions->scratch, list->n_items + 1, sizeof *values);
    size_t size = 0;
    for (uint32_t i = 0; i < list->n_items && values; i++) {
        struct br_any any = br_expression_value(conditions, list->items[i]);
        if (br_conditions_stopped(conditions) ||
            !br_conditions_work(conditions, any.len + sizeof any))
            return condition_nil();
        if (!br_any_write(&any, &conditions->scratch, &values[i]))
            values = NULL;
        else
            size += condition_element_size(&values[i]);
    }
    uint8_t *start = values ? br_arena_alloc(&conditions->scratch, size + 1) : NULL, *p = start;
    if (!start) {
        conditions->rc = br_arena_why(&conditions->scratch);
        return condition_nil();
    }
    for (uint32_t i = 0; i < list->n_items; i++)
        p = br_put_len(p, BR_LIST_VALUES, values[i].data, values[i].len);
    return (struct br_any){.type = BR_VALUE_LIST, .data = start, .len = (size_t)(p - start)};
}

static struct br_any condition_map_value(struct br_conditions *conditions,
                                         const struct br_expression *map)
{
    struct br_attributes list = {.arena = &conditions->scratch};
    struct br_any result = condition_nil();
    for (uint32_t i = 0; i + 1 < map->n_items; i += 2) {
        const struct br_any *key = &map->items[i]->literal;
        struct br_value value;
        struct br_any any = br_expression_value(conditions, map->items[i + 1]);
        if (br_conditions_stopped(conditions) ||
            !br_conditions_work(conditions, any.len + sizeof any))
            break;
        if (!br_any_write(&any, &conditions->scratch, &value)) {
            conditions->rc = br_arena_why(&conditions->scratch);
            break;
        }
        br_attributes_put(&list, key->data, key->len, value);
        if (list.no_memory || list.too_many)
            conditions->rc = list.too_many ? BR_EFULL : BR_ENOMEM;
    }
    if (!br_conditions_stopped(conditions))
        result = br_attributes_map(conditions, &list);
    br_attributes_release(&list);
    return result;
}

static double condition_double(const struct br_any *any)
{
    double v;
    if (any->type == BR_VALUE_INT)
        return (double)(int64_t)any->number;
    memcpy(&v, &any->number, sizeof v);
    return v;
}

static bool condition_is_number(const struct br_any *any)
{
    return any->type == BR_VALUE_INT || any->type == BR_VALUE_DOUBLE;
}

/* Computes with whole numbers, which overflow as in Go. */
static struct br_any condition_math_int(struct br_conditions *conditions, char sign, uint64_t left,
                                        uint64_t right)
{
    switch (sign) {
    case '+':
        return br_any_int((int64_t)(left + right));
    case '-':
        return br_any_int((int64_t)(left - right));
    case '*':
        return br_any_int((int64_t)(left * right));
    default:
        if (right == 0) {
            (void)br_conditions_fail(conditions, "division by zero");
            return condition_nil();
        }
        if (right == UINT64_MAX) /* the divisor is -1: dividing INT64_MIN by -1 would overflow */
            return br_any_int((int64_t)(0 - left));
        return br_any_int((int64_t)left / (int64_t)right);
    }
}

static struct br_any condition_math_double(struct br_conditions *conditions, char sign, double left,
                                           double right)
{
    double v = sign == '-' ? left - right : left + right;
    if (sign == '*')
        v = left * right;
    if (sign == '/' && right == 0) {
        (void)br_conditions_fail(conditions, "division by zero");
        return condition_nil();
    }
    if (sign == '/')
        v = left / right;
    struct br_any any = {.type = BR_VALUE_DOUBLE};
    memcpy(&any.number, &v, sizeof v);
    return any;
}

/* Changes the sign of a number. */
static struct br_any condition_negative(struct br_conditions *conditions,
                                        const struct br_expression *math)
{
    struct br_any any = br_expression_value(conditions, math->items[0]);
    if (br_conditions_stopped(conditions))
        return condition_nil();
    if (any.type == BR_VALUE_INT)
        return br_any_int((int64_t)(0 - any.number));
    if (any.type != BR_VALUE_DOUBLE) {
        (void)br_conditions_fail(conditions, "cannot change the sign of %s", br_any_name(&any));
        return condition_nil();
    }
    any.number ^= (uint64_t)1 << 63;
    return any;
}

/* Computes with two numbers. A whole number and a float are computed as floats. */
static struct br_any condition_math(struct br_conditions *conditions,
                                    const struct br_expression *math)
{
    if (math->n_items == 1)
        return condition_negative(conditions, math);
    struct br_any left = br_expression_value(conditions, math->items[0]);
    if (br_conditions_stopped(conditions))
        return condition_nil();
    struct br_any right = br_expression_value(conditions, math->items[1]);
    if (br_conditions_stopped(conditions))
        return condition_nil();
    if (left.type == BR_VALUE_INT && right.type == BR_VALUE_INT)
        return condition_math_int(conditions, math->sign, left.number, right.number);
    if (condition_is_number(&left) && condition_is_number(&right))
        return condition_math_double(conditions, math->sign, condition_double(&left),
                                     condition_double(&right));
    (void)br_conditions_fail(conditions, "cannot compute %s %c %s", br_any_name(&left), math->sign,
                             br_any_name(&right));
    return condition_nil();
}

/* Calls a function. Unlike a key of a path, a key of the result must exist. */
static struct br_any condition_call_value(struct br_conditions *conditions,
                                          struct br_expression *call)
{
    struct br_any any = condition_nil();
    bool missing = false;
    if (!call->function->run(conditions, call, &any))
        return condition_nil();
    if (call->n_keys)
        any = br_path_index(conditions, any, call->keys, call->n_keys, &missing);
    if (missing)
        (void)br_conditions_fail(conditions, "%s: the result does not have the key",
                                 call->function->name);
    return any;
}

struct br_any br_expression_value(struct br_conditions *conditions,
                                  struct br_expression *expression)
{
    switch (expression->kind) {
    case BR_EXPRESSION_LITERAL:
        return expression->literal;
    case BR_EXPRESSION_PATH:
        return condition_path_value(conditions, expression);
    case BR_EXPRESSION_LIST:
        return condition_list_value(conditions, expression);
    case BR_EXPRESSION_MAP:
        return condition_map_value(conditions, expression);
    case BR_EXPRESSION_MATH:
        return condition_math(conditions, expression);
    case BR_EXPRESSION_CALL:
        return condition_call_value(conditions, expression);
    }
    return condition_nil();
}

/* --- Results --------------------------------------------------------------------------------- */

/* Returns true if several spans or samples may have the same value in memory, and the value does
 * not change. The values inside a span are not shared. */
static bool condition_is_shared(struct br_conditions *conditions,
                                const struct br_expression *expression)
{
    if (expression->kind > BR_EXPRESSION_PATH)
        return false;
    if (expression->kind == BR_EXPRESSION_LITERAL)
        return true;
    bool attribute = expression->path->form == BR_FORM_ATTRIBUTES && expression->n_keys == 1;
    if (conditions->edits)
        return attribute && br_path_is_entry(conditions, expression);
    return (attribute && conditions->item->signal == BR_PROFILES) ||
           (expression->message != BR_CONDITION_SPAN && br_path_place(conditions, expression) != 0);
}

uintptr_t br_conditions_known(const struct br_conditions *conditions, const uintptr_t key[3])
{
    const struct br_map *known = conditions->memo.known;
    return known ? (uintptr_t)br_map_get(known, key, 3 * sizeof *key) : 0;
}

void br_conditions_keep(struct br_conditions *conditions, const uintptr_t key[3], uintptr_t result)
{
    struct br_value_memo *memo = &conditions->memo;
    if ((!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX))) ||
        br_map_put(memo->known, key, 3 * sizeof *key, (void *)result, NULL) == BR_ENOMEM)
        conditions->rc = BR_ENOMEM;
}

/* --- Comparing ------------------------------------------------------------------------------- */

/* Possible results of the comparison of two values, as bits of a set. */
enum order { ORDER_LESS = 1, ORDER_EQUAL = 2, ORDER_GREATER = 4, ORDER_NONE = 8 };

static enum order condition_order_of(bool less, bool greater)
{
    if (less)
        return ORDER_LESS;
    return greater ? ORDER_GREATER : ORDER_EQUAL;
}

static enum order condition_order_bytes(const struct br_any *any, const struct br_any *other)
{
    size_t n = any->len < other->len ? any->len : other->len;
    br_steps_add(n);
    int order = n ? memcmp(any->data, other->data, n) : 0;
    if (order == 0)
        return condition_order_of(any->len<other->len, any->len> other->len);
    return order < 0 ? ORDER_LESS : ORDER_GREATER;
}

/* Compares two lists or two maps. The result is equal or not equal; there is no order. Comparing
 * maps takes time in proportion to the product of their sizes. */
static enum order condition_order_nested(struct br_conditions *conditions, const struct br_any *any,
                                         const struct br_any *other)
{
    size_t work = any->len + other->len;
    if (any->type == BR_VALUE_MAP)
        work += any->len / 8 * (other->len / 8);
    if (!br_conditions_work(conditions, work))
        return ORDER_NONE;
    return br_any_equal(any, other) ? ORDER_EQUAL : ORDER_NONE;
}

static enum order condition_order(struct br_conditions *conditions, const struct br_any *any,
                                  const struct br_any *other)
{
    if (any->type == BR_VALUE_INT && other->type == BR_VALUE_INT) {
        int64_t x = (int64_t)any->number, y = (int64_t)other->number;
        return condition_order_of(x<y, x> y);
    }
    if (condition_is_number(any) && condition_is_number(other)) {
        double x = condition_double(any), y = condition_double(other);
        return isnan(x) || isnan(y) ? ORDER_NONE : condition_order_of(x<y, x> y);
    }
    if (any->type != other->type)
        return ORDER_NONE;
    if (any->type == BR_VALUE_EMPTY)
        return ORDER_EQUAL;
    if (any->type == BR_VALUE_BOOL)
        return condition_order_of(!any->number && other->number,
                                  any->number && any->number != other->number);
    if (any->type == BR_VALUE_LIST || any->type == BR_VALUE_MAP)
        return condition_order_nested(conditions, any, other);
    if (conditions->edits && !br_conditions_work(conditions, any->len))
        return ORDER_NONE;
    return condition_order_bytes(any, other);
}

/* Compares two values. Stores the result if the values are long, because many samples may have
 * the same two values. */
static enum order condition_order_known(struct br_conditions *conditions,
                                        const struct br_condition *node, const struct br_any *any,
                                        const struct br_any *other)
{
    const uintptr_t key[3] = {(uintptr_t)node, (uintptr_t)any->data, (uintptr_t)other->data};
    if (any->len <= SHORT || other->len <= SHORT || !condition_is_shared(conditions, node->left) ||
        !condition_is_shared(conditions, node->right))
        return condition_order(conditions, any, other);
    uintptr_t known = br_conditions_known(conditions, key);
    if (!known) {
        known = condition_order(conditions, any, other);
        br_conditions_keep(conditions, key, known);
    }
    return (enum order)known;
}

/* Returns true if the operator holds for two values with this order. */
static bool condition_fits(enum br_condition_op op, unsigned order)
{
    switch (op) {
    case CONDITION_EQ:
        return order == ORDER_EQUAL;
    case CONDITION_NE:
        return order != ORDER_EQUAL;
    case CONDITION_LT:
        return order == ORDER_LESS;
    case CONDITION_LE:
        return order & (ORDER_LESS | ORDER_EQUAL);
    case CONDITION_GT:
        return order == ORDER_GREATER;
    default:
        return order & (ORDER_GREATER | ORDER_EQUAL);
    }
}

static bool condition_compare(struct br_conditions *conditions, struct br_condition *node)
{
    struct br_any any = br_expression_value(conditions, node->left);
    if (br_conditions_stopped(conditions))
        return false;
    struct br_any other = br_expression_value(conditions, node->right);
    if (br_conditions_stopped(conditions))
        return false;
    /* lists and maps have no order, even if they are equal */
    bool equality = node->op == CONDITION_EQ || node->op == CONDITION_NE;
    if (!equality && (any.type == BR_VALUE_LIST || any.type == BR_VALUE_MAP))
        return false;
    return condition_fits(node->op, condition_order_known(conditions, node, &any, &other));
}

static enum br_value_type condition_literal_type(const struct br_expression *literal)
{
    if (literal->kind == BR_EXPRESSION_LITERAL)
        return literal->literal.type;
    return literal->kind == BR_EXPRESSION_LIST ? BR_VALUE_LIST : BR_VALUE_MAP;
}

void br_condition_fold(struct br_conditions *conditions, struct br_condition *node)
{
    if (!br_expression_is_literal(node->left) || !br_expression_is_literal(node->right))
        return;
    enum br_value_type left = condition_literal_type(node->left),
                       right = condition_literal_type(node->right);
    bool nested = left == BR_VALUE_LIST || left == BR_VALUE_MAP;
    bool equality = node->op == CONDITION_EQ || node->op == CONDITION_NE, edits = conditions->edits;
    unsigned order = ORDER_NONE;
    if (nested && left == right && equality)
        return;
    conditions->edits = false; /* the work of the comparison is not counted */
    if (node->left->kind == BR_EXPRESSION_LITERAL && node->right->kind == BR_EXPRESSION_LITERAL)
        order = condition_order(conditions, &node->left->literal, &node->right->literal);
    conditions->edits = edits;
    node->constant = condition_fits(node->op, order);
    node->op = CONDITION_CONSTANT;
}

/* --- Patterns --------------------------------------------------------------------------------- */

void br_conditions_match_failed(struct br_conditions *conditions, int rc)
{
    conditions->n_gave_up += rc == BR_EFULL;
    if (rc == BR_ENOMEM)
        conditions->rc = rc;
    if (rc == BR_EFULL && conditions->edits && !conditions->rc) {
        conditions->rc = rc;
        conditions->limit = "matching the patterns takes too long for this request; the option "
                            "match_time allows more";
    }
}

bool br_conditions_match(struct br_conditions *conditions, const pcre2_code *pattern,
                         const void *text, size_t len)
{
    if (conditions->edits && !br_conditions_work(conditions, len))
        return false;
    int rc = br_regex_match(&conditions->regex, pattern, len ? text : "", len);
    if (rc < 0)
        br_conditions_match_failed(conditions, rc);
    return rc > 0;
}

static bool condition_match_now(struct br_conditions *conditions, const struct br_expression *call,
                                const struct br_any *any)
{
    struct br_str text = {.max = BR_BUF_MAX};
    bool matched = false;
    if (any->type == BR_VALUE_STRING)
        return br_conditions_match(conditions, call->pattern, any->data, any->len);
    if (br_any_text(conditions, any, &text))
        matched = br_conditions_match(conditions, call->pattern, text.data, text.len);
    br_str_release(&text);
    return matched;
}

/* Evaluates IsMatch. Stores the result, because many samples or profiles may have the same
 * value, and formatting a double is slow. */
static bool condition_match_known(struct br_conditions *conditions, struct br_expression *call,
                                  const struct br_any *any)
{
    enum { NO = 1, YES };
    bool number = any->type == BR_VALUE_DOUBLE;
    const uintptr_t key[3] = {(uintptr_t)call,
                              number ? (uintptr_t)any->number : (uintptr_t)any->data,
                              number ? OF_NUMBER : any->len};
    if ((!number && any->len <= SHORT) || !condition_is_shared(conditions, call->items[0]))
        return condition_match_now(conditions, call, any);
    uintptr_t known = br_conditions_known(conditions, key);
    if (!known) {
        known = condition_match_now(conditions, call, any) ? YES : NO;
        if (br_conditions_stopped(conditions))
            return false; /* the next record must fail, too */
        br_conditions_keep(conditions, key, known);
    }
    return known == YES;
}

bool br_condition_match(struct br_conditions *conditions, struct br_expression *call)
{
    struct br_expression *target = call->items[0];
    uint64_t place = target->kind == BR_EXPRESSION_PATH ? br_path_place(conditions, target) : 0;
    if (place && call->known_in == place)
        return call->matched;
    struct br_any any = br_expression_value(conditions, target);
    if (br_conditions_stopped(conditions))
        return false;
    call->matched = condition_match_known(conditions, call, &any);
    call->known_in = br_conditions_stopped(conditions) ? 0 : place;
    return call->matched;
}

/* --- Conditions ------------------------------------------------------------------------------- */

static bool condition_call(struct br_conditions *conditions, struct br_expression *call)
{
    struct br_any any = br_expression_value(conditions, call);
    if (br_conditions_stopped(conditions))
        return false;
    if (any.type != BR_VALUE_BOOL)
        return br_conditions_fail(conditions, "%s: the result must be a boolean but is %s",
                                  call->function->name, br_any_name(&any));
    return any.number != 0;
}

/* Evaluates a node. The depth of the recursion is the depth of the parentheses and `not`
 * operators, which condition_parse.c limits. */
bool br_condition_holds(struct br_conditions *conditions, struct br_condition *node)
{
    switch (node->op) {
    case CONDITION_OR:
    case CONDITION_AND:
        for (struct br_condition *i = node->first; i && !br_conditions_stopped(conditions);
             i = i->next)
            if (br_condition_holds(conditions, i) == (node->op == CONDITION_OR))
                return node->op == CONDITION_OR;
        return node->op == CONDITION_AND;
    case CONDITION_NOT:
        return !br_condition_holds(conditions, node->first);
    case CONDITION_CONSTANT:
        return node->constant;
    case CONDITION_CALL:
        return condition_call(conditions, node->left);
    default:
        return condition_compare(conditions, node);
    }
}

/* Begins a group. If the last group has the same scope, keeps the values that were read from the
 * scope. Many profiles may have the same scope. */
void br_conditions_begin_group(struct br_conditions *conditions)
{
    const struct br_groups *groups = &conditions->groups;
    struct br_message *messages = conditions->messages;
    bool same_part = conditions->part == groups->part;
    bool same_scope = conditions->scope_at && conditions->scope_at == groups->scope;
    if (!same_part) {
        size_t len;
        const uint8_t *body = br_part_resource(&conditions->item->parts[groups->part], &len);
        br_message_set(&messages[BR_CONDITION_RESOURCE], body, len);
    }
    if (!same_scope)
        br_message_set(&messages[BR_CONDITION_SCOPE], groups->scope, groups->scope_len);
    br_message_set(&messages[BR_CONDITION_PROFILE], groups->body, groups->body_len);
    conditions->n_resources += !same_part;
    conditions->n_scopes += !same_scope;
    conditions->n_groups++;
    conditions->part = groups->part;
    conditions->scope_at = groups->scope;
}

int br_conditions_hold(struct br_conditions *conditions, const struct br_visit *visit)
{
    bool holds = false;
    br_statements_at_record(conditions, visit);
    for (uint32_t i = 0; i < conditions->count && !holds && !conditions->rc; i++) {
        conditions->failed = false;
        holds = br_condition_holds(conditions, conditions->items[i]) && !conditions->failed;
        conditions->n_failed += conditions->failed;
    }
    return conditions->rc ? conditions->rc : holds;
}

/* --- Preparation for an item ------------------------------------------------------------------ */

int br_conditions_ready(struct br_conditions *conditions, struct br_regex_time *time)
{
    int rc = br_regex_ready(&conditions->regex);
    if (!rc)
        br_regex_bound(&conditions->regex, time);
    return rc;
}

static void condition_begin_messages(struct br_conditions *conditions, enum br_signal signal)
{
    static const uint32_t fields[BR_CONTEXTS] = {
        [BR_CONDITION_RESOURCE] = BR_RESOURCE_ATTRIBUTES,
        [BR_CONDITION_SCOPE] = BR_SCOPE_ATTRIBUTES,
        [BR_CONDITION_SPAN] = BR_SPAN_ATTRIBUTES,
        [BR_CONDITION_EVENT] = BR_EVENT_ATTRIBUTES,
        [BR_CONDITION_PROFILE] = BR_PROFILE_ATTRIBUTES,
        [BR_CONDITION_SAMPLE] = BR_SAMPLE_ATTRIBUTES,
    };
    for (unsigned i = 0; i < BR_CONTEXTS; i++) {
        struct br_message *message = &conditions->messages[i];
        bool outer = i == BR_CONDITION_RESOURCE || i == BR_CONDITION_SCOPE;
        message->field = fields[i];
        message->dictionary = i == BR_CONDITION_PROFILE || i == BR_CONDITION_SAMPLE;
        message->arena = outer ? &conditions->arena : &conditions->scratch;
        message->list.arena = message->arena;
        /* the memo is for values that do not change; see condition_is_shared */
        message->list.memo = signal == BR_PROFILES ? &conditions->memo : NULL;
        br_message_set(message, NULL, 0);
    }
}

int br_conditions_begin(struct br_conditions *conditions, struct br_item *item)
{
    conditions->item = item;
    conditions->rc = 0;
    conditions->failed = false;
    conditions->limit = NULL;
    conditions->part = UINT32_MAX;
    conditions->scope_at = NULL;
    conditions->n_spans++;
    conditions->n_groups++;
    conditions->n_scopes++;
    conditions->n_resources++;
    conditions->work_left = WORK_MIN + (uint64_t)item->size * WORK_PER_BYTE;
    conditions->memo = (struct br_value_memo){.arena = &conditions->arena};
    br_arena_init(&conditions->arena, ARENA_MAX);
    br_arena_init(&conditions->scratch, SCRATCH_MAX);
    condition_begin_messages(conditions, item->signal);
    int rc = item->signal == BR_PROFILES && br_item_has_references(item)
                 ? br_item_inline_references(item)
                 : 0;
    if (!rc && item->signal == BR_PROFILES)
        rc = br_dictionary_index(item, &conditions->arena, &conditions->view);
    br_groups_init(&conditions->groups, item);
    return rc;
}

void br_conditions_end(struct br_conditions *conditions)
{
    br_value_memo_release(&conditions->memo);
    br_arena_release(&conditions->arena);
    br_arena_release(&conditions->scratch);
    conditions->item = NULL;
}

void br_conditions_begin_record(struct br_conditions *conditions)
{
    if (conditions->scratch.used > SCRATCH_KEPT)
        br_arena_release(&conditions->scratch);
}

void br_statements_at_record(struct br_conditions *conditions, const struct br_visit *visit)
{
    bool traces = conditions->item->signal == BR_TRACES;
    br_conditions_begin_record(conditions);
    if (br_groups_at_item(&conditions->groups, visit->index))
        br_conditions_begin_group(conditions);
    br_message_set(&conditions->messages[traces ? BR_CONDITION_SPAN : BR_CONDITION_SAMPLE],
                   visit->body, visit->len);
    conditions->n_spans++;
}
