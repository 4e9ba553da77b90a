/* SPDX-License-Identifier: Apache-2.0 */
/* Derives from a query the conditions that the store can evaluate. */
#include <string.h>

#include "query/traceql_internal.h"

#define NEEDLES_MAX 16

struct needles {
    const struct br_traceql *query;
    struct br_span_needle items[NEEDLES_MAX];
    size_t n_items;
};

/* Returns the text of a value, as the store compares it. Returns NULL if the value cannot be
 * compared as text. */
static const char *traceql_filter_text(const struct br_traceql_value *value)
{
    switch (value->type) {
    case BR_TRACEQL_STRING:
        return memchr(value->text, '\0', value->len) ? NULL : value->text;
    case BR_TRACEQL_BOOL:
        return value->boolean ? "true" : "false";
    default:
        return NULL;
    }
}

static void traceql_filter_needle(struct needles *needles,
                                  const struct br_traceql_attribute *attribute,
                                  const struct br_traceql_value *value)
{
    const char *text = traceql_filter_text(value);
    bool resource = attribute->scope == BR_TRACEQL_RESOURCE;
    if (!text || (!resource && attribute->scope != BR_TRACEQL_SPAN) ||
        needles->n_items == NEEDLES_MAX)
        return;
    needles->items[needles->n_items++] =
        (struct br_span_needle){.key = attribute->name, .value = text, .resource = resource};
}

static void traceql_filter_duration(enum br_traceql_op op, const struct br_traceql_value *value,
                                    struct br_span_filter *filter)
{
    if (value->type != BR_TRACEQL_DURATION && value->type != BR_TRACEQL_INT)
        return;
    if (value->integer < 0 || value->integer > INT64_MAX - 1)
        return;
    uint64_t ns = (uint64_t)value->integer, least = 0, most = UINT64_MAX;
    if (op == BR_TRACEQL_GREATER || op == BR_TRACEQL_GREATER_EQUAL || op == BR_TRACEQL_EQUAL)
        least = ns + (op == BR_TRACEQL_GREATER);
    if (op == BR_TRACEQL_LESS_EQUAL || op == BR_TRACEQL_EQUAL || (op == BR_TRACEQL_LESS && ns > 0))
        most = ns - (op == BR_TRACEQL_LESS);
    if (least > filter->min_duration_ns)
        filter->min_duration_ns = least;
    if (most > 0 && most != UINT64_MAX &&
        (!filter->max_duration_ns || most < filter->max_duration_ns))
        /* leave a maximum of 0 to the evaluation of the query, because 0 means "no limit" in the
         * filter */
        filter->max_duration_ns = most;
}

/* Returns true if only roots pass the comparison of nestedSetParent with `value`.
 * nestedSetParent is -1 for a root. */
static bool traceql_filter_selects_roots(enum br_traceql_op op, int64_t value)
{
    switch (op) {
    case BR_TRACEQL_EQUAL:
        return value == -1;
    case BR_TRACEQL_LESS:
        return value <= 1;
    case BR_TRACEQL_LESS_EQUAL:
        return value < 1;
    default:
        return false;
    }
}

static void traceql_filter_intrinsic(enum br_traceql_intrinsic intrinsic, enum br_traceql_op op,
                                     const struct br_traceql_value *value,
                                     struct br_span_filter *filter)
{
    bool equal = op == BR_TRACEQL_EQUAL;
    if (intrinsic == BR_TRACEQL_SPAN_DURATION)
        traceql_filter_duration(op, value, filter);
    else if (intrinsic == BR_TRACEQL_SPAN_NAME && equal && value->type == BR_TRACEQL_STRING &&
             value->len && !memchr(value->text, '\0', value->len))
        filter->name = value->text;
    else if (intrinsic == BR_TRACEQL_SPAN_STATUS && equal && value->integer == 2)
        filter->failed = true;
    else if (intrinsic == BR_TRACEQL_NESTED_SET_PARENT && value->type == BR_TRACEQL_INT &&
             traceql_filter_selects_roots(op, value->integer))
        filter->roots = true;
}

static void traceql_filter_compare(struct needles *needles, const struct br_traceql_expr *expr,
                                   struct br_span_filter *filter)
{
    const struct br_traceql_expr *left = expr->left, *right = expr->right;
    struct br_traceql_value value = right->value;
    if (right->op == BR_TRACEQL_NEGATE && right->left->op == BR_TRACEQL_VALUE &&
        right->left->type == BR_TRACEQL_INT) {
        value = right->left->value;
        value.integer = -value.integer;
    } else if (right->op != BR_TRACEQL_VALUE) {
        return;
    }
    if (left->op != BR_TRACEQL_ATTRIBUTE)
        return;
    const struct br_traceql_attribute *attribute = &needles->query->attributes[left->attribute];
    if (attribute->scope == BR_TRACEQL_INTRINSIC) {
        traceql_filter_intrinsic(attribute->intrinsic, expr->op, &value, filter);
    } else if (expr->op == BR_TRACEQL_EQUAL) {
        if (attribute->scope == BR_TRACEQL_RESOURCE && value.type == BR_TRACEQL_STRING &&
            value.len && strcmp(attribute->name, "service.name") == 0 &&
            !memchr(value.text, '\0', value.len))
            filter->service = value.text;
        else
            traceql_filter_needle(needles, attribute, &value);
    }
}

/* Adds the conditions of an expression to the filter: the comparisons that are combined by &&. */
static void traceql_filter_expr(struct needles *needles, const struct br_traceql_expr *expr,
                                struct br_span_filter *filter)
{
    for (; expr && expr->op == BR_TRACEQL_AND; expr = expr->left)
        traceql_filter_expr(needles, expr->right, filter);
    if (expr && expr->op >= BR_TRACEQL_EQUAL && expr->op <= BR_TRACEQL_GREATER_EQUAL)
        traceql_filter_compare(needles, expr, filter);
}

/* Estimates how many spans an expression excludes; a larger result means that more spans are
 * excluded. Slow or failed spans are rarer than the spans of one service or one operation. */
static int traceql_filter_selectivity(const struct br_traceql *query,
                                      const struct br_traceql_expr *expr)
{
    struct br_span_filter filter = {0};
    struct needles needles = {.query = query};
    traceql_filter_expr(&needles, expr, &filter);
    return (filter.service != NULL) + (filter.name != NULL) + 2 * filter.failed +
           2 * (filter.min_duration_ns > 0) + (needles.n_items > 0);
}

/* Chooses a condition that at least one span of every matching trace must fulfil: the expression of
 * one of the query's filters. If several filters must match, returns the filter that excludes the
 * most spans. Returns NULL if no filter must match. */
static const struct br_traceql_expr *traceql_filter_choose(const struct br_traceql *query,
                                                           const struct br_traceql_spanset *spanset)
{
    if (spanset->relation == BR_TRACEQL_FILTER)
        return spanset->expr;
    if (spanset->relation == BR_TRACEQL_EITHER)
        return NULL;
    if (spanset->negated)
        return traceql_filter_choose(query, spanset->right);
    const struct br_traceql_expr *left = traceql_filter_choose(query, spanset->left),
                                 *right = traceql_filter_choose(query, spanset->right);
    return traceql_filter_selectivity(query, left) >= traceql_filter_selectivity(query, right)
               ? left
               : right;
}

int br_traceql_filter(const struct br_traceql *query, struct br_span_filter *ret)
{
    struct needles needles = {.query = query};
    const struct br_traceql_expr *expr = traceql_filter_choose(query, query->spansets);
    traceql_filter_expr(&needles, expr, ret);
    if (needles.n_items == 0)
        return 0;
    struct br_span_needle *items = br_arena_calloc(query->arena, needles.n_items, sizeof *items);
    if (!items)
        return BR_ENOMEM;
    memcpy(items, needles.items, needles.n_items * sizeof *items);
    ret->needles = items;
    ret->n_needles = needles.n_items;
    return 0;
}
