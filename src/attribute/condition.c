/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/condition.h"

#include <math.h>
#include <string.h>

#include "attribute/attributes.h"
#include "attribute/value.h"
#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/scan.h"

#define ARENA_MAX (64u << 20)
#define SHORT 64 /* largest value, in bytes, whose results are not kept */
/* takes the place of a value's length in keys of the memo if the value is a number */
#define OF_NUMBER ((uintptr_t)-1)

enum { RESOURCE_ATTRIBUTES = 1, SCOPE_NAME = 1, SCOPE_VERSION = 2, SCOPE_ATTRIBUTES = 3 };
enum {
    SPAN_TRACE_ID = 1,
    SPAN_ID = 2,
    SPAN_TRACE_STATE = 3,
    SPAN_PARENT_ID = 4,
    SPAN_NAME = 5,
    SPAN_KIND = 6,
    SPAN_START = 7,
    SPAN_END = 8,
    SPAN_ATTRIBUTES = 9,
    SPAN_STATUS = 15,
};
enum { STATUS_MESSAGE = 2, STATUS_CODE = 3 };
enum { PROFILE_TYPE = 1, PROFILE_DURATION = 4, PROFILE_PERIOD = 6 };
enum { TYPE_NAME = 1, TYPE_UNIT = 2 };

/* --- Fields ---------------------------------------------------------------------------------- */

/* Returns the last field with the number `number`. If the message has no such field, the `wire`
 * of the result is 255. */
static struct br_field condition_scan(const uint8_t *p, size_t len, uint32_t number)
{
    struct br_field found = {.wire = (enum br_wire)255}, f;
    br_steps_add(len);
    for (const uint8_t *end = len ? p + len : p; p < end && (p = br_scan(p, end, &f));)
        if (f.number == number)
            found = f;
    return found;
}

static struct br_any condition_text(const uint8_t *p, size_t len, uint32_t number)
{
    struct br_field field = condition_scan(p, len, number);
    struct br_any text = {.type = BR_VALUE_STRING, .data = (const uint8_t *)""};
    if (field.wire == BR_WIRE_LEN) {
        text.data = field.data;
        text.len = (size_t)field.value;
    }
    return text;
}

static struct br_any condition_number(const uint8_t *p, size_t len, uint32_t number)
{
    struct br_field field = condition_scan(p, len, number);
    bool found = field.wire == BR_WIRE_VARINT || field.wire == BR_WIRE_I64;
    return (struct br_any){.type = BR_VALUE_INT, .number = found ? field.value : 0};
}

/* Returns an id as hex text, cut to the size of the longest valid id. */
static struct br_any condition_hex(struct br_conditions *conditions, const uint8_t *p, size_t len,
                                   uint32_t number)
{
    static const uint8_t none[16];
    struct br_any id = condition_text(p, len, number);
    char *out = conditions->hex[conditions->n_hex++ & 1];
    if (!id.len) {
        id.data = none;
        id.len = number == SPAN_TRACE_ID ? 16 : 8;
    }
    size_t n = id.len < sizeof conditions->hex[0] / 2 ? id.len : sizeof conditions->hex[0] / 2;
    br_hex_encode(id.data, n, out);
    return (struct br_any){.type = BR_VALUE_STRING, .data = (const uint8_t *)out, .len = 2 * n};
}

static struct br_any condition_word(const char *text)
{
    return (struct br_any){
        .type = BR_VALUE_STRING, .data = (const uint8_t *)text, .len = strlen(text)};
}

static struct br_any condition_kind(const uint8_t *p, size_t len, bool old)
{
    static const char *const names[][2] = {
        {"Unspecified", "SPAN_KIND_UNSPECIFIED"}, {"Internal", "SPAN_KIND_INTERNAL"},
        {"Server", "SPAN_KIND_SERVER"},           {"Client", "SPAN_KIND_CLIENT"},
        {"Producer", "SPAN_KIND_PRODUCER"},       {"Consumer", "SPAN_KIND_CONSUMER"},
    };
    uint64_t kind = condition_number(p, len, SPAN_KIND).number;
    return condition_word(kind < BR_COUNT(names) ? names[kind][old] : "");
}

static struct br_any condition_type(struct br_conditions *conditions, uint32_t field)
{
    struct br_any type =
        condition_text(conditions->groups.body, conditions->groups.body_len, PROFILE_TYPE);
    uint64_t index = condition_number(type.data, type.len, field).number;
    struct br_entry name = br_dictionary_string(&conditions->view, (uint32_t)index);
    return (struct br_any){.type = BR_VALUE_STRING,
                           .data = name.data ? name.data : (const uint8_t *)"",
                           .len = name.len};
}

/* --- Attributes ------------------------------------------------------------------------------ */

static void condition_check(struct br_conditions *conditions, const struct br_attributes *list,
                            bool ok)
{
    if (!ok)
        conditions->rc = list->too_many ? BR_EFULL : BR_ENOMEM;
}

static struct br_attributes *condition_own(struct br_conditions *conditions)
{
    const struct br_visit *visit = conditions->visit;
    if (conditions->own_read)
        return &conditions->own;
    conditions->own_read = true;
    if (conditions->item->signal == BR_TRACES) {
        condition_check(
            conditions, &conditions->own,
            br_attributes_read(&conditions->own, SPAN_ATTRIBUTES, visit->body, visit->len));
        return &conditions->own;
    }
    br_attributes_clear(&conditions->own);
    condition_check(conditions, &conditions->own,
                    br_sample_attributes_add(&conditions->own, &conditions->view,
                                             BR_SAMPLE_ATTRIBUTES, visit->body, visit->len));
    return &conditions->own;
}

static struct br_attributes *condition_resource(struct br_conditions *conditions)
{
    size_t len;
    const uint8_t *data = br_part_resource(&conditions->item->parts[conditions->part], &len);
    if (!conditions->resource_read)
        condition_check(conditions, &conditions->resource,
                        br_attributes_read(&conditions->resource, RESOURCE_ATTRIBUTES, data, len));
    conditions->resource_read = true;
    return &conditions->resource;
}

static struct br_attributes *condition_scope(struct br_conditions *conditions)
{
    if (!conditions->scope_read)
        condition_check(conditions, &conditions->scope,
                        br_attributes_read(&conditions->scope, SCOPE_ATTRIBUTES,
                                           conditions->groups.scope, conditions->groups.scope_len));
    conditions->scope_read = true;
    return &conditions->scope;
}

static struct br_attributes *condition_profile(struct br_conditions *conditions)
{
    if (conditions->profile_read)
        return &conditions->profile;
    conditions->profile_read = true;
    br_attributes_clear(&conditions->profile);
    condition_check(conditions, &conditions->profile,
                    br_sample_attributes_add(&conditions->profile, &conditions->view,
                                             BR_PROFILE_ATTRIBUTES, conditions->groups.body,
                                             conditions->groups.body_len));
    return &conditions->profile;
}

static const struct br_attributes *condition_list(struct br_conditions *conditions,
                                                  enum br_condition_field field)
{
    if (field == CONDITION_RESOURCE_ATTRIBUTE)
        return condition_resource(conditions);
    if (field == CONDITION_SCOPE_ATTRIBUTE)
        return condition_scope(conditions);
    return field == CONDITION_PROFILE_ATTRIBUTE ? condition_profile(conditions)
                                                : condition_own(conditions);
}

static struct br_any condition_attribute(struct br_conditions *conditions,
                                         const struct br_condition_operand *operand)
{
    const struct br_attributes *list = condition_list(conditions, operand->field);
    const struct br_attribute *found =
        conditions->rc ? NULL : br_attributes_find(list, operand->key, operand->key_len);
    return found ? br_any_read(found->value) : (struct br_any){.type = BR_VALUE_EMPTY};
}

static struct br_any condition_of_group(struct br_conditions *conditions,
                                        enum br_condition_field field)
{
    const struct br_groups *groups = &conditions->groups;
    switch (field) {
    case CONDITION_SCOPE_NAME:
        return condition_text(groups->scope, groups->scope_len, SCOPE_NAME);
    case CONDITION_SCOPE_VERSION:
        return condition_text(groups->scope, groups->scope_len, SCOPE_VERSION);
    case CONDITION_TYPE:
        return condition_type(conditions, TYPE_NAME);
    case CONDITION_UNIT:
        return condition_type(conditions, TYPE_UNIT);
    case CONDITION_DURATION:
        return condition_number(groups->body, groups->body_len, PROFILE_DURATION);
    default:
        return condition_number(groups->body, groups->body_len, PROFILE_PERIOD);
    }
}

static struct br_any condition_of_status(const uint8_t *p, size_t len, bool code)
{
    struct br_any status = condition_text(p, len, SPAN_STATUS);
    return code ? condition_number(status.data, status.len, STATUS_CODE)
                : condition_text(status.data, status.len, STATUS_MESSAGE);
}

/* Returns the value of a member of the trace state. If the member is absent, returns "", as the
 * Collector does. */
static struct br_any condition_member(const uint8_t *p, size_t len,
                                      const struct br_condition_operand *operand)
{
    struct br_any state = condition_text(p, len, SPAN_TRACE_STATE), found = condition_word("");
    const uint8_t *at = state.data, *end = at + state.len;
    while (at < end) {
        const uint8_t *comma = memchr(at, ',', (size_t)(end - at));
        const uint8_t *stop = comma ? comma : end;
        while (at < stop && (*at == ' ' || *at == '\t'))
            at++;
        size_t n = (size_t)(stop - at);
        if (n > operand->key_len && at[operand->key_len] == '=' &&
            memcmp(at, operand->key, operand->key_len) == 0) {
            while (n && (at[n - 1] == ' ' || at[n - 1] == '\t'))
                n--;
            found.data = at + operand->key_len + 1;
            found.len = n - operand->key_len - 1;
            return found;
        }
        at = comma ? comma + 1 : end;
    }
    return found;
}

static struct br_any condition_read(struct br_conditions *conditions,
                                    const struct br_condition_operand *operand)
{
    const uint8_t *p = conditions->visit->body;
    size_t len = conditions->visit->len;
    switch (operand->field) {
    case CONDITION_LITERAL:
        return operand->literal;
    case CONDITION_ATTRIBUTE:
    case CONDITION_RESOURCE_ATTRIBUTE:
    case CONDITION_SCOPE_ATTRIBUTE:
    case CONDITION_PROFILE_ATTRIBUTE:
        return condition_attribute(conditions, operand);
    case CONDITION_NAME:
        return condition_text(p, len, SPAN_NAME);
    case CONDITION_KIND:
        return condition_number(p, len, SPAN_KIND);
    case CONDITION_KIND_STRING:
    case CONDITION_KIND_OLD_STRING:
        return condition_kind(p, len, operand->field == CONDITION_KIND_OLD_STRING);
    case CONDITION_STATUS_CODE:
    case CONDITION_STATUS_MESSAGE:
        return condition_of_status(p, len, operand->field == CONDITION_STATUS_CODE);
    case CONDITION_START:
        return condition_number(p, len, SPAN_START);
    case CONDITION_END:
        return condition_number(p, len, SPAN_END);
    case CONDITION_TRACE_STATE:
        return condition_text(p, len, SPAN_TRACE_STATE);
    case CONDITION_TRACE_STATE_KEY:
        return condition_member(p, len, operand);
    case CONDITION_TRACE_ID:
        return condition_hex(conditions, p, len, SPAN_TRACE_ID);
    case CONDITION_SPAN_ID:
        return condition_hex(conditions, p, len, SPAN_ID);
    case CONDITION_PARENT_ID:
        return condition_hex(conditions, p, len, SPAN_PARENT_ID);
    default:
        return condition_of_group(conditions, operand->field);
    }
}

/* Returns the number of the group, scope or resource to which an operand belongs, or 0 if the
 * operand belongs to the span or sample. */
static uint64_t condition_place(const struct br_conditions *conditions,
                                const struct br_condition_operand *operand)
{
    switch (operand->field) {
    case CONDITION_RESOURCE_ATTRIBUTE:
        return conditions->n_resources;
    case CONDITION_SCOPE_ATTRIBUTE:
    case CONDITION_SCOPE_NAME:
    case CONDITION_SCOPE_VERSION:
        return conditions->n_scopes;
    case CONDITION_PROFILE_ATTRIBUTE:
    case CONDITION_TYPE:
    case CONDITION_UNIT:
    case CONDITION_DURATION:
    case CONDITION_PERIOD:
        return conditions->n_groups;
    default:
        return 0;
    }
}

/* Returns the value of an operand. A value that belongs to a group, a scope or a resource is
 * read once for all its spans or samples. */
static struct br_any condition_value(struct br_conditions *conditions,
                                     struct br_condition_operand *operand)
{
    uint64_t place = condition_place(conditions, operand);
    if (!place)
        return condition_read(conditions, operand);
    if (operand->known_in != place) {
        operand->known = condition_read(conditions, operand);
        operand->known_in = place;
    }
    return operand->known;
}

/* --- Results --------------------------------------------------------------------------------- */

/* Returns true if several spans or samples may have the same value in memory. The values inside
 * a span are not shared. */
static bool condition_is_shared(const struct br_conditions *conditions,
                                const struct br_condition_operand *operand)
{
    return conditions->item->signal == BR_PROFILES || operand->field == CONDITION_LITERAL ||
           condition_place(conditions, operand) != 0;
}

/* Returns the result that condition_keep stored for `key` in this item, or 0 if no result is
 * stored. */
static uintptr_t condition_known(const struct br_conditions *conditions, const uintptr_t key[3])
{
    const struct br_map *known = conditions->memo.known;
    return known ? (uintptr_t)br_map_get(known, key, 3 * sizeof *key) : 0;
}

static void condition_keep(struct br_conditions *conditions, const uintptr_t key[3],
                           uintptr_t result)
{
    struct br_value_memo *memo = &conditions->memo;
    if ((!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX))) ||
        br_map_put(memo->known, key, 3 * sizeof *key, (void *)result, NULL) == BR_ENOMEM)
        conditions->rc = BR_ENOMEM;
}

/* --- Comparing ------------------------------------------------------------------------------- */

static double condition_double(const struct br_any *any)
{
    double v;
    if (any->type == BR_VALUE_INT)
        return (double)(int64_t)any->number;
    memcpy(&v, &any->number, sizeof v);
    return v;
}

/* Bits of a set of results that the comparison of two values may have. */
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

static enum order condition_order(const struct br_any *any, const struct br_any *other)
{
    bool number_a = any->type == BR_VALUE_INT || any->type == BR_VALUE_DOUBLE;
    bool number_b = other->type == BR_VALUE_INT || other->type == BR_VALUE_DOUBLE;
    if (any->type == BR_VALUE_INT && other->type == BR_VALUE_INT) {
        int64_t x = (int64_t)any->number, y = (int64_t)other->number;
        return condition_order_of(x<y, x> y);
    }
    if (number_a && number_b) {
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
    return condition_order_bytes(any, other);
}

/* Compares two values. Stores the result if the values are long, because many samples may have
 * the same two values. */
static enum order condition_order_known(struct br_conditions *conditions,
                                        const struct br_condition *node, const struct br_any *any,
                                        const struct br_any *other)
{
    const uintptr_t key[3] = {(uintptr_t)node, (uintptr_t)any->data, (uintptr_t)other->data};
    if (any->len <= SHORT || other->len <= SHORT || !condition_is_shared(conditions, &node->left) ||
        !condition_is_shared(conditions, &node->right))
        return condition_order(any, other);
    uintptr_t known = condition_known(conditions, key);
    if (!known) {
        known = condition_order(any, other);
        condition_keep(conditions, key, known);
    }
    return (enum order)known;
}

static bool condition_compare(struct br_conditions *conditions, struct br_condition *node)
{
    struct br_any any = condition_value(conditions, &node->left),
                  b = condition_value(conditions, &node->right);
    unsigned order = condition_order_known(conditions, node, &any, &b);
    switch (node->op) {
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

/* Finds the text in which IsMatch searches. Returns false if the value has no text. */
static bool condition_match_text(struct br_conditions *conditions, const struct br_any *any,
                                 struct br_str *out)
{
    if (any->type == BR_VALUE_EMPTY)
        return false;
    br_str_add(out, "", 0);
    if (any->type == BR_VALUE_STRING)
        br_str_add(out, any->data, any->len);
    else if (any->type == BR_VALUE_DOUBLE)
        br_value_text_plain(out, condition_double(any));
    else if (any->type == BR_VALUE_BYTES)
        br_str_hex(out, any->data, any->len);
    else
        br_value_text(out, any, &conditions->arena);
    if (out->failed)
        conditions->rc = BR_ENOMEM;
    return !out->failed;
}

static bool condition_match_now(struct br_conditions *conditions, const struct br_condition *node,
                                const struct br_any *any)
{
    struct br_str text = {.max = BR_BUF_MAX};
    int rc = 0;
    if (any->type == BR_VALUE_STRING)
        rc = br_regex_match(&conditions->regex, node->pattern,
                            any->len ? (const char *)any->data : "", any->len);
    else if (condition_match_text(conditions, any, &text))
        rc = br_regex_match(&conditions->regex, node->pattern, text.data, text.len);
    br_str_release(&text);
    conditions->n_gave_up += rc == BR_EFULL;
    if (rc == BR_ENOMEM)
        conditions->rc = rc;
    return rc > 0;
}

/* Evaluates IsMatch. Stores the result, because many samples or profiles may have the same
 * value, and formatting a double is slow. */
static bool condition_match_known(struct br_conditions *conditions, struct br_condition *node)
{
    enum { NO = 1, YES };
    struct br_any any = condition_value(conditions, &node->left);
    bool number = any.type == BR_VALUE_DOUBLE;
    const uintptr_t key[3] = {(uintptr_t)node, number ? (uintptr_t)any.number : (uintptr_t)any.data,
                              number ? OF_NUMBER : any.len};
    if ((!number && any.len <= SHORT) || !condition_is_shared(conditions, &node->left))
        return condition_match_now(conditions, node, &any);
    uintptr_t known = condition_known(conditions, key);
    if (!known) {
        known = condition_match_now(conditions, node, &any) ? YES : NO;
        condition_keep(conditions, key, known);
    }
    return known == YES;
}

static bool condition_match(struct br_conditions *conditions, struct br_condition *node)
{
    uint64_t place = condition_place(conditions, &node->left);
    if (!place || node->left.known_in != place)
        node->matched = condition_match_known(conditions, node);
    return node->matched;
}

/* Evaluates a node. The depth of the recursion is the depth of the parentheses and `not`
 * operators, which condition_parse.c limits. */
static bool condition_holds(struct br_conditions *conditions, struct br_condition *node)
{
    switch (node->op) {
    case CONDITION_OR:
    case CONDITION_AND:
        for (struct br_condition *i = node->first; i && !conditions->rc; i = i->next)
            if (condition_holds(conditions, i) == (node->op == CONDITION_OR))
                return node->op == CONDITION_OR;
        return node->op == CONDITION_AND;
    case CONDITION_NOT:
        return !condition_holds(conditions, node->first);
    case CONDITION_CONSTANT:
        return node->constant;
    case CONDITION_MATCH:
        return condition_match(conditions, node);
    case CONDITION_ROOT:
        return condition_text(conditions->visit->body, conditions->visit->len, SPAN_PARENT_ID)
                   .len == 0;
    default:
        return condition_compare(conditions, node);
    }
}

/* Begins a group. If the last group has the same scope, keeps the values that were read from the
 * scope. Many profiles may have the same scope. */
static void condition_begin_group(struct br_conditions *conditions)
{
    const struct br_groups *groups = &conditions->groups;
    bool same_part = conditions->part == groups->part;
    bool same_scope = conditions->scope_at && conditions->scope_at == groups->scope;
    conditions->resource_read = conditions->resource_read && same_part;
    conditions->scope_read = conditions->scope_read && same_scope;
    conditions->profile_read = false;
    conditions->n_resources += !same_part;
    conditions->n_scopes += !same_scope;
    conditions->n_groups++;
    conditions->part = groups->part;
    conditions->scope_at = groups->scope;
}

int br_conditions_hold(struct br_conditions *conditions, const struct br_visit *visit)
{
    bool holds = false;
    if (br_groups_at_item(&conditions->groups, visit->index))
        condition_begin_group(conditions);
    conditions->visit = visit;
    conditions->own_read = false;
    for (uint32_t i = 0; i < conditions->count && !holds && !conditions->rc; i++)
        holds = condition_holds(conditions, conditions->items[i]);
    return conditions->rc ? conditions->rc : holds;
}

/* --- Preparation for an item, and its groups ------------------------------------------------- */

int br_conditions_ready(struct br_conditions *conditions, struct br_regex_time *time)
{
    int rc = br_regex_ready(&conditions->regex);
    if (!rc)
        br_regex_bound(&conditions->regex, time);
    return rc;
}

int br_conditions_begin(struct br_conditions *conditions, struct br_item *item)
{
    struct br_attributes *const lists[] = {&conditions->own, &conditions->resource,
                                           &conditions->scope, &conditions->profile};
    conditions->item = item;
    conditions->rc = 0;
    conditions->part = UINT32_MAX;
    conditions->scope_at = NULL;
    conditions->n_groups++;
    conditions->n_scopes++;
    conditions->n_resources++;
    conditions->own_read = conditions->resource_read = conditions->scope_read =
        conditions->profile_read = false;
    conditions->memo = (struct br_value_memo){.arena = &conditions->arena};
    br_arena_init(&conditions->arena, ARENA_MAX);
    for (size_t i = 0; i < BR_COUNT(lists); i++) {
        lists[i]->arena = &conditions->arena;
        lists[i]->memo = &conditions->memo;
    }
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
    conditions->item = NULL;
}
