/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/condition.h"

#include <string.h>

#include "attribute/condition_internal.h"
#include "attribute/sample.h"
#include "attribute/value_text.h"
#include "base/mem.h"
#include "base/str.h"
#include "otlp/scan.h"

#define ARENA_MAX (64u << 20)

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

/* The last field of that number; its wire is 255 when there is none. */
static struct br_field condition_scan(const uint8_t *p, size_t len, uint32_t number)
{
    struct br_field found = {.wire = (enum br_wire)255}, f;
    for (const uint8_t *end = len ? p + len : p; p < end && (p = br_scan(p, end, &f));)
        if (f.number == number)
            found = f;
    return found;
}

static struct br_any condition_text(const uint8_t *p, size_t len, uint32_t number)
{
    struct br_field f = condition_scan(p, len, number);
    struct br_any text = {.type = BR_VALUE_STRING, .data = (const uint8_t *)""};
    if (f.wire == BR_WIRE_LEN) {
        text.data = f.data;
        text.len = (size_t)f.value;
    }
    return text;
}

static struct br_any condition_number(const uint8_t *p, size_t len, uint32_t number)
{
    struct br_field f = condition_scan(p, len, number);
    bool found = f.wire == BR_WIRE_VARINT || f.wire == BR_WIRE_I64;
    return (struct br_any){.type = BR_VALUE_INT, .number = found ? f.value : 0};
}

/* An id in hex; longer ones than there are, are cut. */
static struct br_any condition_hex(struct br_conditions *c, const uint8_t *p, size_t len,
                                   uint32_t number)
{
    static const char digits[] = "0123456789abcdef";
    struct br_any id = condition_text(p, len, number);
    char *out = c->hex[c->n_hex++ & 1];
    size_t n = id.len < sizeof c->hex[0] / 2 ? id.len : sizeof c->hex[0] / 2;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[id.data[i] >> 4];
        out[2 * i + 1] = digits[id.data[i] & 15];
    }
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

static struct br_any condition_type(struct br_conditions *c, uint32_t field)
{
    struct br_any type = condition_text(c->groups.body, c->groups.body_len, PROFILE_TYPE);
    uint64_t index = condition_number(type.data, type.len, field).number;
    struct br_entry name = br_dictionary_string(&c->view, (uint32_t)index);
    return (struct br_any){.type = BR_VALUE_STRING,
                           .data = name.data ? name.data : (const uint8_t *)"",
                           .len = name.len};
}

/* --- Attributes ------------------------------------------------------------------------------ */

static void condition_check(struct br_conditions *c, const struct br_attributes *list, bool ok)
{
    if (!ok)
        c->rc = list->too_many ? BR_EFULL : BR_ENOMEM;
}

static struct br_attributes *condition_own(struct br_conditions *c)
{
    const struct br_visit *v = c->visit;
    if (c->own_read)
        return &c->own;
    c->own_read = true;
    if (c->item->signal == BR_TRACES) {
        condition_check(c, &c->own, br_attributes_read(&c->own, SPAN_ATTRIBUTES, v->body, v->len));
        return &c->own;
    }
    br_attributes_clear(&c->own);
    condition_check(
        c, &c->own,
        br_sample_attributes_add(&c->own, &c->view, BR_SAMPLE_ATTRIBUTES, v->body, v->len));
    return &c->own;
}

static struct br_attributes *condition_resource(struct br_conditions *c)
{
    size_t len;
    const uint8_t *data = br_part_resource(&c->item->parts[c->part], &len);
    if (!c->resource_read)
        condition_check(c, &c->resource,
                        br_attributes_read(&c->resource, RESOURCE_ATTRIBUTES, data, len));
    c->resource_read = true;
    return &c->resource;
}

static struct br_attributes *condition_scope(struct br_conditions *c)
{
    if (!c->scope_read)
        condition_check(
            c, &c->scope,
            br_attributes_read(&c->scope, SCOPE_ATTRIBUTES, c->groups.scope, c->groups.scope_len));
    c->scope_read = true;
    return &c->scope;
}

static struct br_attributes *condition_profile(struct br_conditions *c)
{
    if (c->profile_read)
        return &c->profile;
    c->profile_read = true;
    br_attributes_clear(&c->profile);
    condition_check(c, &c->profile,
                    br_sample_attributes_add(&c->profile, &c->view, BR_PROFILE_ATTRIBUTES,
                                             c->groups.body, c->groups.body_len));
    return &c->profile;
}

static struct br_any condition_attribute(struct br_conditions *c, const struct condition_operand *o)
{
    const struct br_attributes *list =
        o->field == CONDITION_RESOURCE_ATTRIBUTE  ? condition_resource(c)
        : o->field == CONDITION_SCOPE_ATTRIBUTE   ? condition_scope(c)
        : o->field == CONDITION_PROFILE_ATTRIBUTE ? condition_profile(c)
                                                  : condition_own(c);
    const struct br_attribute *found = c->rc ? NULL : br_attributes_find(list, o->key, o->key_len);
    return found ? br_any_read(found->value) : (struct br_any){.type = BR_VALUE_EMPTY};
}

static struct br_any condition_of_group(struct br_conditions *c, enum condition_field field)
{
    const struct br_groups *g = &c->groups;
    switch (field) {
    case CONDITION_SCOPE_NAME:
        return condition_text(g->scope, g->scope_len, SCOPE_NAME);
    case CONDITION_SCOPE_VERSION:
        return condition_text(g->scope, g->scope_len, SCOPE_VERSION);
    case CONDITION_TYPE:
        return condition_type(c, TYPE_NAME);
    case CONDITION_UNIT:
        return condition_type(c, TYPE_UNIT);
    case CONDITION_DURATION:
        return condition_number(g->body, g->body_len, PROFILE_DURATION);
    default:
        return condition_number(g->body, g->body_len, PROFILE_PERIOD);
    }
}

static struct br_any condition_of_status(const uint8_t *p, size_t len, bool code)
{
    struct br_any status = condition_text(p, len, SPAN_STATUS);
    return code ? condition_number(status.data, status.len, STATUS_CODE)
                : condition_text(status.data, status.len, STATUS_MESSAGE);
}

static struct br_any condition_value(struct br_conditions *c, const struct condition_operand *o)
{
    const uint8_t *p = c->visit->body;
    size_t len = c->visit->len;
    switch (o->field) {
    case CONDITION_LITERAL:
        return o->literal;
    case CONDITION_ATTRIBUTE:
    case CONDITION_RESOURCE_ATTRIBUTE:
    case CONDITION_SCOPE_ATTRIBUTE:
    case CONDITION_PROFILE_ATTRIBUTE:
        return condition_attribute(c, o);
    case CONDITION_NAME:
        return condition_text(p, len, SPAN_NAME);
    case CONDITION_KIND:
        return condition_number(p, len, SPAN_KIND);
    case CONDITION_KIND_STRING:
    case CONDITION_KIND_OLD_STRING:
        return condition_kind(p, len, o->field == CONDITION_KIND_OLD_STRING);
    case CONDITION_STATUS_CODE:
    case CONDITION_STATUS_MESSAGE:
        return condition_of_status(p, len, o->field == CONDITION_STATUS_CODE);
    case CONDITION_START:
        return condition_number(p, len, SPAN_START);
    case CONDITION_END:
        return condition_number(p, len, SPAN_END);
    case CONDITION_TRACE_STATE:
        return condition_text(p, len, SPAN_TRACE_STATE);
    case CONDITION_TRACE_ID:
        return condition_hex(c, p, len, SPAN_TRACE_ID);
    case CONDITION_SPAN_ID:
        return condition_hex(c, p, len, SPAN_ID);
    case CONDITION_PARENT_ID:
        return condition_hex(c, p, len, SPAN_PARENT_ID);
    default:
        return condition_of_group(c, o->field);
    }
}

/* --- Comparing ------------------------------------------------------------------------------- */

static double condition_double(const struct br_any *a)
{
    double v;
    if (a->type == BR_VALUE_INT)
        return (double)(int64_t)a->number;
    memcpy(&v, &a->number, sizeof v);
    return v;
}

/* How two values stand to each other. */
enum order { ORDER_LESS = 1, ORDER_EQUAL = 2, ORDER_GREATER = 4, ORDER_NONE = 8 };

static enum order condition_order_bytes(const struct br_any *a, const struct br_any *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int order = n ? memcmp(a->data, b->data, n) : 0;
    if (order == 0)
        return a->len == b->len ? ORDER_EQUAL : a->len < b->len ? ORDER_LESS : ORDER_GREATER;
    return order < 0 ? ORDER_LESS : ORDER_GREATER;
}

static enum order condition_order(const struct br_any *a, const struct br_any *b)
{
    bool number_a = a->type == BR_VALUE_INT || a->type == BR_VALUE_DOUBLE;
    bool number_b = b->type == BR_VALUE_INT || b->type == BR_VALUE_DOUBLE;
    if (a->type == BR_VALUE_INT && b->type == BR_VALUE_INT) {
        int64_t x = (int64_t)a->number, y = (int64_t)b->number;
        return x < y ? ORDER_LESS : x > y ? ORDER_GREATER : ORDER_EQUAL;
    }
    if (number_a && number_b) {
        double x = condition_double(a), y = condition_double(b);
        return x < y ? ORDER_LESS : x > y ? ORDER_GREATER : x <= y ? ORDER_EQUAL : ORDER_NONE;
    }
    if (a->type != b->type)
        return ORDER_NONE;
    if (a->type == BR_VALUE_EMPTY)
        return ORDER_EQUAL;
    if (a->type == BR_VALUE_BOOL)
        return a->number == b->number ? ORDER_EQUAL : a->number ? ORDER_GREATER : ORDER_LESS;
    return condition_order_bytes(a, b);
}

static bool condition_compare(struct br_conditions *c, const struct br_condition *node)
{
    struct br_any a = condition_value(c, &node->a), b = condition_value(c, &node->b);
    unsigned order = condition_order(&a, &b);
    bool nil = a.type == BR_VALUE_EMPTY || b.type == BR_VALUE_EMPTY;
    switch (node->op) {
    case CONDITION_EQ:
        return order == ORDER_EQUAL;
    case CONDITION_NE:
        return order != ORDER_EQUAL;
    case CONDITION_LT:
        return order == ORDER_LESS;
    case CONDITION_LE:
        return !nil && order & (ORDER_LESS | ORDER_EQUAL);
    case CONDITION_GT:
        return order == ORDER_GREATER;
    default:
        return !nil && order & (ORDER_GREATER | ORDER_EQUAL);
    }
}

/* What IsMatch looks into; false where there is nothing. */
static bool condition_match_text(struct br_conditions *c, const struct br_any *v,
                                 struct br_str *out)
{
    if (v->type == BR_VALUE_EMPTY)
        return false;
    br_str_add(out, "", 0);
    if (v->type == BR_VALUE_STRING)
        br_str_add(out, v->data, v->len);
    else if (v->type == BR_VALUE_DOUBLE)
        br_value_text_plain(out, condition_double(v));
    else if (v->type == BR_VALUE_BYTES)
        br_str_hex(out, v->data, v->len);
    else
        br_value_text(out, v, &c->arena);
    if (out->failed)
        c->rc = BR_ENOMEM;
    return !out->failed;
}

static bool condition_match(struct br_conditions *c, const struct br_condition *node)
{
    struct br_any v = condition_value(c, &node->a);
    struct br_str text = {.max = BR_BUF_MAX};
    int rc = 0;
    if (v.type == BR_VALUE_STRING)
        rc = br_regex_match(&c->regex, node->pattern, v.len ? (const char *)v.data : "", v.len);
    else if (condition_match_text(c, &v, &text))
        rc = br_regex_match(&c->regex, node->pattern, text.data, text.len);
    br_str_release(&text);
    c->n_gave_up += rc == BR_EFULL;
    if (rc == BR_ENOMEM)
        c->rc = rc;
    return rc > 0;
}

/* As deep as its parentheses (condition_parse.c). */
static bool condition_holds(struct br_conditions *c, const struct br_condition *node)
{
    switch (node->op) {
    case CONDITION_OR:
    case CONDITION_AND:
        for (const struct br_condition *i = node->first; i && !c->rc; i = i->next)
            if (condition_holds(c, i) == (node->op == CONDITION_OR))
                return node->op == CONDITION_OR;
        return node->op == CONDITION_AND;
    case CONDITION_NOT:
        return !condition_holds(c, node->first);
    case CONDITION_CONSTANT:
        return node->constant;
    case CONDITION_MATCH:
        return condition_match(c, node);
    case CONDITION_ROOT:
        return condition_text(c->visit->body, c->visit->len, SPAN_PARENT_ID).len == 0;
    default:
        return condition_compare(c, node);
    }
}

int br_conditions_hold(struct br_conditions *c, const struct br_visit *v)
{
    bool holds = false;
    if (br_groups_at_item(&c->groups, v->index)) {
        c->resource_read = c->resource_read && c->part == c->groups.part;
        c->part = c->groups.part;
        c->scope_read = c->profile_read = false;
    }
    c->visit = v;
    c->own_read = false;
    for (uint32_t i = 0; i < c->n && !holds && !c->rc; i++)
        holds = condition_holds(c, c->v[i]);
    return c->rc ? c->rc : holds;
}

/* --- One item after another ------------------------------------------------------------------ */

int br_conditions_ready(struct br_conditions *c, struct br_regex_time *time)
{
    int rc = br_regex_ready(&c->regex);
    if (!rc)
        br_regex_bound(&c->regex, time);
    return rc;
}

int br_conditions_begin(struct br_conditions *c, struct br_item *item)
{
    struct br_attributes *const lists[] = {&c->own, &c->resource, &c->scope, &c->profile};
    c->item = item;
    c->rc = 0;
    c->part = UINT32_MAX;
    c->own_read = c->resource_read = c->scope_read = c->profile_read = false;
    c->memo = (struct br_value_memo){.arena = &c->arena};
    br_arena_init(&c->arena, ARENA_MAX);
    for (size_t i = 0; i < BR_COUNT(lists); i++) {
        lists[i]->arena = &c->arena;
        lists[i]->memo = &c->memo;
    }
    int rc = item->signal == BR_PROFILES && br_item_has_references(item)
                 ? br_item_inline_references(item)
                 : 0;
    if (!rc && item->signal == BR_PROFILES)
        rc = br_dictionary_index(item, &c->arena, &c->view);
    br_groups_init(&c->groups, item);
    return rc;
}

void br_conditions_end(struct br_conditions *c)
{
    br_value_memo_release(&c->memo);
    br_arena_release(&c->arena);
    c->item = NULL;
}
