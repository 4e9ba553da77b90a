/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates queries: decides whether a query finds a span, and which spans of a trace it finds. */
#include <math.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/sum.h"
#include "query/traceql_internal.h"

/* Limits of the cache of regular expression results. KNOWN_MAX is the number of texts, for all
 * patterns of a query together. KNOWN_LEN_MAX is the length of a text in bytes. The cache uses at
 * most about 16 MiB. */
#define KNOWN_MAX 65536
#define KNOWN_LEN_MAX 128

struct evaluation {
    struct br_traceql *query;
    struct br_store_query *store;
    /* trace that contains the span; NULL: the query is evaluated for a single span */
    struct br_traceql_trace *trace;
    struct br_err *err;
    int rc; /* first error of the evaluation; 0: no error so far */
};

/* --- Comparisons ------------------------------------------------------------------------------ */

static bool traceql_eval_is_number(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_INT || value->type == BR_TRACEQL_FLOAT ||
           value->type == BR_TRACEQL_DURATION;
}

static double traceql_eval_real(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_FLOAT ? value->real : (double)value->integer;
}

/* Returns -1, 0 or 1 if `left` is less than, equal to or greater than `right`. Returns 2 if one
 * of the values is NaN, which has no order. */
static int traceql_eval_order(const struct br_traceql_value *left,
                              const struct br_traceql_value *right)
{
    if (left->type == BR_TRACEQL_STRING) {
        size_t len = left->len < right->len ? left->len : right->len;
        int order = len ? memcmp(left->text, right->text, len) : 0;
        if (order)
            return order < 0 ? -1 : 1;
        return left->len < right->len ? -1 : left->len > right->len;
    }
    if (left->type == BR_TRACEQL_BOOL)
        return (int)left->boolean - (int)right->boolean;
    if (left->type != BR_TRACEQL_FLOAT && right->type != BR_TRACEQL_FLOAT)
        return left->integer < right->integer ? -1 : left->integer > right->integer;
    double one = traceql_eval_real(left), other = traceql_eval_real(right);
    if (isnan(one) || isnan(other))
        return 2;
    return one < other ? -1 : one > other;
}

static bool traceql_eval_holds(enum br_traceql_op op, int order)
{
    switch (op) {
    case BR_TRACEQL_EQUAL:
        return order == 0;
    case BR_TRACEQL_NOT_EQUAL:
        return order != 0;
    case BR_TRACEQL_LESS:
        return order == -1;
    case BR_TRACEQL_LESS_EQUAL:
        return order == -1 || order == 0;
    case BR_TRACEQL_GREATER:
        return order == 1;
    default:
        return order == 1 || order == 0;
    }
}

/* Compares two values that are not lists. Values of different types are neither equal nor
 * unequal. NIL equals NIL. */
static bool traceql_eval_compare(enum br_traceql_op op, const struct br_traceql_value *left,
                                 const struct br_traceql_value *right)
{
    bool numbers = traceql_eval_is_number(left) && traceql_eval_is_number(right);
    if (left->type != right->type && !numbers)
        return false;
    if (left->type == BR_TRACEQL_NIL)
        return op == BR_TRACEQL_EQUAL;
    return traceql_eval_holds(op, traceql_eval_order(left, right));
}

/* Matches a text in the same way as br_regex_match. Caches the results of texts up to
 * KNOWN_LEN_MAX bytes, until the cache contains KNOWN_MAX texts. */
static int traceql_eval_match(const struct br_traceql *query, struct br_traceql_pattern *pattern,
                              const struct br_traceql_value *value)
{
    static char yes, no;
    const void *known = pattern->known && value->len <= KNOWN_LEN_MAX
                            ? br_map_get(pattern->known, value->text, value->len)
                            : NULL;
    if (known)
        return known == &yes;
    int rc = br_regex_match(&query->regex, pattern->code, value->text, value->len);
    if (!pattern->known)
        pattern->known = br_map_new(KNOWN_MAX / query->n_patterns);
    if (rc >= 0 && pattern->known && value->len <= KNOWN_LEN_MAX)
        (void)br_map_put(pattern->known, value->text, value->len, rc ? &yes : &no, NULL);
    return rc;
}

static bool traceql_eval_matches(struct evaluation *eval, const struct br_traceql_expr *expr,
                                 const struct br_traceql_value *value)
{
    if (value->type != BR_TRACEQL_STRING || eval->rc)
        return false;
    int rc = traceql_eval_match(eval->query, expr->pattern, value);
    if (rc < 0)
        eval->rc = rc == BR_EFULL
                       ? br_err_set(eval->err, BR_ETOOBIG, "a regular expression takes too long")
                       : br_err_set(eval->err, rc, "out of memory");
    return rc >= 0 && (rc == 1) == (expr->op == BR_TRACEQL_MATCHES);
}

static bool traceql_eval_pair(struct evaluation *eval, const struct br_traceql_expr *expr,
                              const struct br_traceql_value *left,
                              const struct br_traceql_value *right)
{
    if (expr->op == BR_TRACEQL_MATCHES || expr->op == BR_TRACEQL_MATCHES_NOT)
        return traceql_eval_matches(eval, expr, left);
    return traceql_eval_compare(expr->op, left, right);
}

/* Compares two values that may be lists. The comparison is true if it holds for at least one
 * element of a list. With `!=` and `!~` the comparison must hold for all elements. */
static bool traceql_eval_lists(struct evaluation *eval, const struct br_traceql_expr *expr,
                               const struct br_traceql_value *left,
                               const struct br_traceql_value *right)
{
    bool all = expr->op == BR_TRACEQL_NOT_EQUAL || expr->op == BR_TRACEQL_MATCHES_NOT;
    if (left->type == BR_TRACEQL_NIL || right->type == BR_TRACEQL_NIL) {
        bool with_nil = expr->right->op == BR_TRACEQL_VALUE && right->type == BR_TRACEQL_NIL;
        bool both = left->type == right->type;
        return with_nil && expr->op == (both ? BR_TRACEQL_EQUAL : BR_TRACEQL_NOT_EQUAL);
    }
    if (left->type != BR_TRACEQL_LIST && right->type != BR_TRACEQL_LIST)
        return traceql_eval_pair(eval, expr, left, right);
    const struct br_traceql_value *list = left->type == BR_TRACEQL_LIST ? left : right;
    for (size_t i = 0; i < list->n_items; i++) {
        bool holds = traceql_eval_pair(eval, expr, list == left ? &list->items[i] : left,
                                       list == left ? right : &list->items[i]);
        if (holds != all)
            return holds;
    }
    return all;
}

/* --- Expressions ------------------------------------------------------------------------------ */

static struct br_traceql_value traceql_eval_expr(struct evaluation *eval,
                                                 const struct br_traceql_expr *expr,
                                                 const struct br_traceql_span *span);

static struct br_traceql_value traceql_eval_boolean(bool boolean)
{
    return (struct br_traceql_value){.type = BR_TRACEQL_BOOL, .boolean = boolean};
}

static bool traceql_eval_is_true(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_BOOL && value->boolean;
}

static double traceql_eval_calculate(enum br_traceql_op op, double left, double right)
{
    switch (op) {
    case BR_TRACEQL_ADD:
        return left + right;
    case BR_TRACEQL_SUBTRACT:
        return left - right;
    case BR_TRACEQL_MULTIPLY:
        return left * right;
    case BR_TRACEQL_DIVIDE:
        return left / right;
    case BR_TRACEQL_MODULO:
        return fmod(left, right);
    default:
        return pow(left, right);
    }
}

static struct br_traceql_value traceql_eval_arithmetic(enum br_traceql_op op,
                                                       const struct br_traceql_value *left,
                                                       const struct br_traceql_value *right)
{
    if (!traceql_eval_is_number(left) || !traceql_eval_is_number(right))
        return (struct br_traceql_value){0};
    double one = traceql_eval_real(left), other = traceql_eval_real(right);
    return (struct br_traceql_value){.type = BR_TRACEQL_FLOAT,
                                     .real = traceql_eval_calculate(op, one, other)};
}

static struct br_traceql_value traceql_eval_unary(struct evaluation *eval,
                                                  const struct br_traceql_expr *expr,
                                                  const struct br_traceql_span *span)
{
    struct br_traceql_value value = traceql_eval_expr(eval, expr->left, span);
    if (expr->op == BR_TRACEQL_NOT)
        return value.type == BR_TRACEQL_BOOL ? traceql_eval_boolean(!value.boolean)
                                             : (struct br_traceql_value){0};
    if (value.type == BR_TRACEQL_FLOAT)
        value.real = -value.real;
    else if (traceql_eval_is_number(&value))
        value.integer = value.integer == INT64_MIN ? INT64_MAX : -value.integer;
    else
        value = (struct br_traceql_value){0};
    return value;
}

static struct br_traceql_value traceql_eval_logic(struct evaluation *eval,
                                                  const struct br_traceql_expr *expr,
                                                  const struct br_traceql_span *span)
{
    const struct br_traceql_value left = traceql_eval_expr(eval, expr->left, span);
    bool holds = traceql_eval_is_true(&left);
    if (holds != (expr->op == BR_TRACEQL_OR)) {
        const struct br_traceql_value right = traceql_eval_expr(eval, expr->right, span);
        holds = traceql_eval_is_true(&right);
    }
    return traceql_eval_boolean(holds);
}

/* Evaluates an expression for a span. The recursion depth is limited by the parser. */
static struct br_traceql_value traceql_eval_expr(struct evaluation *eval,
                                                 const struct br_traceql_expr *expr,
                                                 const struct br_traceql_span *span)
{
    if (expr->op == BR_TRACEQL_VALUE)
        return expr->value;
    if (expr->op == BR_TRACEQL_ATTRIBUTE)
        return span->values[expr->attribute];
    if (expr->op == BR_TRACEQL_NOT || expr->op == BR_TRACEQL_NEGATE)
        return traceql_eval_unary(eval, expr, span);
    if (expr->op <= BR_TRACEQL_OR)
        return traceql_eval_logic(eval, expr, span);
    const struct br_traceql_value left = traceql_eval_expr(eval, expr->left, span);
    const struct br_traceql_value right = traceql_eval_expr(eval, expr->right, span);
    if (expr->op >= BR_TRACEQL_ADD)
        return traceql_eval_arithmetic(expr->op, &left, &right);
    return traceql_eval_boolean(traceql_eval_lists(eval, expr, &left, &right));
}

static bool traceql_eval_filter(struct evaluation *eval, const struct br_traceql_expr *expr,
                                struct br_traceql_span *span)
{
    if (eval->rc)
        return false;
    if (!expr)
        return true;
    eval->rc = br_traceql_read_span(eval->query, eval->store, span, eval->trace, eval->err);
    if (eval->rc)
        return false;
    const struct br_traceql_value value = traceql_eval_expr(eval, expr, span);
    return traceql_eval_is_true(&value);
}

/* --- Spansets --------------------------------------------------------------------------------- */

static bool *traceql_eval_set(struct evaluation *eval)
{
    bool *set = br_arena_calloc(eval->store->arena, eval->trace->n_spans + 1, sizeof *set);
    if (!set && !eval->rc)
        eval->rc = br_err_set(eval->err, BR_ENOMEM, "out of memory");
    return set;
}

static bool traceql_eval_any(const struct evaluation *eval, const bool *set)
{
    return memchr(set, true, eval->trace->n_spans) != NULL;
}

/* Sets below[i] if an ancestor of span i is in `set`. If the parents in an invalid trace form a
 * cycle, the walk to the ancestors ends after as many steps as there are spans. */
static bool *traceql_eval_below(struct evaluation *eval, const bool *set)
{
    const struct br_traceql_trace *trace = eval->trace;
    bool *below = traceql_eval_set(eval), *known = traceql_eval_set(eval);
    if (!below || !known)
        return NULL;
    for (uint32_t i = 0; i < trace->n_spans; i++) {
        uint32_t at = i, steps = 0;
        while (!known[at] && trace->spans[at].parent != BR_TRACEQL_NO_PARENT &&
               !set[trace->spans[at].parent] && steps++ < trace->n_spans)
            at = trace->spans[at].parent;
        uint32_t parent = trace->spans[at].parent;
        bool found = known[at] ? below[at] : parent != BR_TRACEQL_NO_PARENT && set[parent];
        for (uint32_t on_way = i; !known[on_way]; on_way = trace->spans[on_way].parent) {
            below[on_way] = found;
            known[on_way] = true;
            if (on_way == at || trace->spans[on_way].parent == BR_TRACEQL_NO_PARENT)
                break;
        }
    }
    return below;
}

/* Sets above[i] if a descendant of span i is in `set`. The walk from a span to its ancestors
 * stops at the first ancestor that is already set. */
static bool *traceql_eval_above(struct evaluation *eval, const bool *set)
{
    const struct br_traceql_trace *trace = eval->trace;
    bool *above = traceql_eval_set(eval);
    for (uint32_t i = 0; above && i < trace->n_spans; i++) {
        uint32_t at = set[i] ? trace->spans[i].parent : BR_TRACEQL_NO_PARENT;
        for (; at != BR_TRACEQL_NO_PARENT && !above[at]; at = trace->spans[at].parent)
            above[at] = true;
    }
    return above;
}

/* Sets beside[i] if another child of the parent of span i is in `set`. */
static bool *traceql_eval_beside(struct evaluation *eval, const bool *set)
{
    const struct br_traceql_trace *trace = eval->trace;
    bool *beside = traceql_eval_set(eval);
    uint32_t *counts = br_arena_calloc(eval->store->arena, trace->n_spans + 1, sizeof *counts);
    if (!counts && !eval->rc)
        eval->rc = br_err_set(eval->err, BR_ENOMEM, "out of memory");
    if (!beside || !counts)
        return NULL;
    for (uint32_t i = 0; i < trace->n_spans; i++)
        if (set[i] && trace->spans[i].parent != BR_TRACEQL_NO_PARENT)
            counts[trace->spans[i].parent]++;
    for (uint32_t i = 0; i < trace->n_spans; i++)
        if (trace->spans[i].parent != BR_TRACEQL_NO_PARENT)
            beside[i] = counts[trace->spans[i].parent] > set[i];
    return beside;
}

static bool *traceql_eval_next_to(struct evaluation *eval, const bool *set, bool children)
{
    const struct br_traceql_trace *trace = eval->trace;
    bool *next = traceql_eval_set(eval);
    for (uint32_t i = 0; next && i < trace->n_spans; i++) {
        uint32_t parent = trace->spans[i].parent;
        if (parent == BR_TRACEQL_NO_PARENT)
            continue;
        if (children)
            next[i] = set[parent];
        else if (set[i])
            next[parent] = true;
    }
    return next;
}

static bool *traceql_eval_related(struct evaluation *eval, enum br_traceql_relation relation,
                                  const bool *set)
{
    switch (relation) {
    case BR_TRACEQL_CHILD:
        return traceql_eval_next_to(eval, set, true);
    case BR_TRACEQL_PARENT:
        return traceql_eval_next_to(eval, set, false);
    case BR_TRACEQL_DESCENDANT:
        return traceql_eval_below(eval, set);
    case BR_TRACEQL_ANCESTOR:
        return traceql_eval_above(eval, set);
    default:
        return traceql_eval_beside(eval, set);
    }
}

static enum br_traceql_relation traceql_eval_inverse(enum br_traceql_relation relation)
{
    switch (relation) {
    case BR_TRACEQL_CHILD:
        return BR_TRACEQL_PARENT;
    case BR_TRACEQL_PARENT:
        return BR_TRACEQL_CHILD;
    case BR_TRACEQL_DESCENDANT:
        return BR_TRACEQL_ANCESTOR;
    case BR_TRACEQL_ANCESTOR:
        return BR_TRACEQL_DESCENDANT;
    default:
        return relation;
    }
}

/* Returns an array that is true for the spans that a spanset finds, or NULL after an error. */
static bool *traceql_eval_spanset(struct evaluation *eval, const struct br_traceql_spanset *spanset)
{
    uint32_t n_spans = eval->trace->n_spans;
    if (spanset->relation == BR_TRACEQL_FILTER) {
        bool *set = traceql_eval_set(eval);
        for (uint32_t i = 0; set && i < n_spans; i++)
            set[i] = traceql_eval_filter(eval, spanset->expr, &eval->trace->spans[i]);
        return eval->rc ? NULL : set;
    }
    bool *left = traceql_eval_spanset(eval, spanset->left);
    bool *right = left ? traceql_eval_spanset(eval, spanset->right) : NULL;
    if (!right)
        return NULL;
    if (spanset->relation <= BR_TRACEQL_EITHER) {
        bool none = spanset->relation == BR_TRACEQL_BOTH &&
                    (!traceql_eval_any(eval, left) || !traceql_eval_any(eval, right));
        for (uint32_t i = 0; i < n_spans; i++)
            right[i] = !none && (left[i] || right[i]);
        return right;
    }
    const bool *related = traceql_eval_related(eval, spanset->relation, left);
    const bool *relatives =
        related && spanset->unites
            ? traceql_eval_related(eval, traceql_eval_inverse(spanset->relation), right)
            : NULL;
    if (!related || (spanset->unites && !relatives))
        return NULL;
    for (uint32_t i = 0; i < n_spans; i++)
        right[i] =
            (right[i] && related[i] != spanset->negated) || (relatives && left[i] && relatives[i]);
    return right;
}

/* --- Sets ------------------------------------------------------------------------------------- */

static void *traceql_eval_alloc(struct evaluation *eval, size_t count, size_t size)
{
    void *items = br_arena_calloc(eval->store->arena, count + 1, size);
    if (!items && !eval->rc)
        eval->rc = br_err_set(eval->err, BR_ENOMEM, "out of memory");
    return items;
}

/* Makes one set of all spans i for which in[i] is true. Makes no set if in[i] is false for all
 * spans. */
static void traceql_eval_begin_sets(struct evaluation *eval, const bool *in)
{
    struct br_traceql_trace *trace = eval->trace;
    trace->n_sets = 0;
    trace->sets = traceql_eval_alloc(eval, 1, sizeof *trace->sets);
    uint32_t *spans = trace->sets ? traceql_eval_alloc(eval, trace->n_spans, sizeof *spans) : NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; spans && i < trace->n_spans; i++)
        if (in[i])
            spans[n++] = i;
    if (n)
        trace->sets[trace->n_sets++] = (struct br_traceql_set){.spans = spans, .n_spans = n};
}

static struct br_traceql_value traceql_eval_of(struct evaluation *eval,
                                               const struct br_traceql_expr *expr, uint32_t index)
{
    struct br_traceql_span *span = &eval->trace->spans[index];
    if (!eval->rc)
        eval->rc = br_traceql_read_span(eval->query, eval->store, span, eval->trace, eval->err);
    return eval->rc ? (struct br_traceql_value){0} : traceql_eval_expr(eval, expr, span);
}

static void traceql_eval_label(struct evaluation *eval, struct br_traceql_set *set,
                               const char *name, struct br_traceql_value value)
{
    struct br_traceql_label *label = traceql_eval_alloc(eval, 1, sizeof *label);
    if (!label)
        return;
    *label = (struct br_traceql_label){.name = name, .value = value, .before = set->labels};
    set->labels = label;
}

void br_traceql_value_key(struct br_str *key, const struct br_traceql_value *value)
{
    br_str_putc(key, (char)('a' + (int)value->type));
    if (value->type == BR_TRACEQL_STRING) {
        br_str_add(key, &value->len, sizeof value->len);
        br_str_add(key, value->text, value->len);
    } else if (value->type == BR_TRACEQL_BOOL) {
        br_str_putc(key, value->boolean ? '1' : '0');
    } else if (value->type == BR_TRACEQL_LIST) {
        br_str_add(key, &value->n_items, sizeof value->n_items);
        for (size_t i = 0; i < value->n_items; i++)
            /* not a deep recursion: the elements of a list are not lists */
            br_traceql_value_key(key, &value->items[i]);
    } else if (value->type != BR_TRACEQL_NIL) {
        /* for FLOAT, `integer` has the bits of `real` */
        br_str_add(key, &value->integer, sizeof value->integer);
    }
}

/* --- Stages ----------------------------------------------------------------------------------- */

/* Adds `value` to `sum` if both have the same type. As in Tempo, the sum keeps the type of the
 * first value, and values of other types are ignored. */
static void traceql_eval_sum(struct br_traceql_value *sum, const struct br_traceql_value *value)
{
    if (sum->type != value->type)
        return;
    if (sum->type == BR_TRACEQL_FLOAT)
        sum->real += value->real;
    else
        sum->integer = br_sum(sum->integer, value->integer);
}

static struct br_traceql_value traceql_eval_average(struct br_traceql_value sum, uint32_t count)
{
    if (sum.type == BR_TRACEQL_DURATION)
        sum.integer /= count;
    else
        sum = (struct br_traceql_value){.type = BR_TRACEQL_FLOAT,
                                        .real = traceql_eval_real(&sum) / count};
    return sum;
}

/* Returns the result of an aggregate for a set: the number of its spans, or the minimum,
 * maximum, average or sum of an expression. Returns NIL unless the expression is a number for at
 * least one span. */
static struct br_traceql_value traceql_eval_aggregate(struct evaluation *eval,
                                                      const struct br_traceql_stage *stage,
                                                      const struct br_traceql_set *set)
{
    struct br_traceql_value result = {0};
    uint32_t count = 0;
    if (stage->aggregate == BR_TRACEQL_COUNT)
        return (struct br_traceql_value){.type = BR_TRACEQL_INT, .integer = set->n_spans};
    for (uint32_t i = 0; i < set->n_spans && !eval->rc; i++) {
        const struct br_traceql_value value = traceql_eval_of(eval, stage->expr, set->spans[i]);
        if (!traceql_eval_is_number(&value))
            continue;
        int order = count ? traceql_eval_order(&value, &result) : 0;
        if (!count++)
            result = value;
        else if (stage->aggregate == BR_TRACEQL_MIN)
            result = order == -1 ? value : result;
        else if (stage->aggregate == BR_TRACEQL_MAX)
            result = order == 1 ? value : result;
        else
            traceql_eval_sum(&result, &value);
    }
    return stage->aggregate == BR_TRACEQL_AVG && count ? traceql_eval_average(result, count)
                                                       : result;
}

/* Applies a stage of the query to a set of spans. Returns false if no spans of the set are left. */
static bool traceql_eval_narrow(struct evaluation *eval, const struct br_traceql_stage *stage,
                                struct br_traceql_set *set)
{
    uint32_t n = 0;
    if (stage->kind == BR_TRACEQL_STAGE_AGGREGATE) {
        const struct br_traceql_value value = traceql_eval_aggregate(eval, stage, set);
        if (!traceql_eval_compare(stage->compare, &value, &stage->value))
            return false;
        traceql_eval_label(eval, set, stage->text, value);
        return true;
    }
    for (uint32_t i = 0; i < set->n_spans; i++)
        if (traceql_eval_filter(eval, stage->expr, &eval->trace->spans[set->spans[i]]))
            set->spans[n++] = set->spans[i];
    set->n_spans = n;
    return n > 0;
}

/* Returns the set of spans for which the by() expression has this value, and creates the set if
 * the value is new. The caller first counts the spans of each set and then stores the indices of
 * the spans. */
static struct br_traceql_set *traceql_eval_group(struct evaluation *eval, struct br_map *groups,
                                                 const struct br_traceql_value *value)
{
    struct br_str key = {.max = 1 << 20};
    br_traceql_value_key(&key, value);
    struct br_traceql_set *group = key.failed ? NULL : br_map_get(groups, key.data, key.len);
    if (!group && !key.failed) {
        group = traceql_eval_alloc(eval, 1, sizeof *group);
        if (group && br_map_put(groups, key.data, key.len, group, NULL))
            group = NULL;
    }
    br_str_release(&key);
    if (!group && !eval->rc)
        eval->rc = br_err_set(eval->err, BR_ENOMEM, "out of memory");
    return group;
}

/* Splits a set by the value of an expression and appends the resulting sets to `trace->sets`. */
static void traceql_eval_split(struct evaluation *eval, const struct br_traceql_stage *stage,
                               const struct br_traceql_set *set)
{
    struct br_traceql_trace *trace = eval->trace;
    struct br_map *groups = br_map_new(set->n_spans);
    struct br_traceql_set **of = traceql_eval_alloc(eval, set->n_spans, sizeof(void *));
    uint32_t *spans = traceql_eval_alloc(eval, set->n_spans, sizeof *spans);
    const void *key;
    size_t len;
    if (!groups && !eval->rc)
        eval->rc = br_err_set(eval->err, BR_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < set->n_spans && !eval->rc; i++) {
        const struct br_traceql_value value = traceql_eval_of(eval, stage->expr, set->spans[i]);
        of[i] = eval->rc ? NULL : traceql_eval_group(eval, groups, &value);
        if (of[i] && !of[i]->n_spans++) {
            of[i]->labels = set->labels;
            traceql_eval_label(eval, of[i], stage->text, value);
        }
    }
    for (size_t i = 0; !eval->rc && i < br_map_count(groups); i++) {
        struct br_traceql_set *group = br_map_at(groups, i, &key, &len);
        group->spans = spans;
        spans += group->n_spans;
        group->n_spans = 0;
    }
    for (uint32_t i = 0; i < set->n_spans && !eval->rc; i++)
        of[i]->spans[of[i]->n_spans++] = set->spans[i];
    for (size_t i = 0; !eval->rc && i < br_map_count(groups); i++)
        trace->sets[trace->n_sets++] =
            *(const struct br_traceql_set *)br_map_at(groups, i, &key, &len);
    br_map_free(groups, NULL);
}

static void traceql_eval_by(struct evaluation *eval, const struct br_traceql_stage *stage)
{
    struct br_traceql_trace *trace = eval->trace;
    const struct br_traceql_set *sets = trace->sets;
    uint32_t n_sets = trace->n_sets, n_spans = 0;
    for (uint32_t i = 0; i < n_sets; i++)
        n_spans += sets[i].n_spans;
    trace->sets = traceql_eval_alloc(eval, n_spans, sizeof *trace->sets);
    trace->n_sets = 0;
    for (uint32_t i = 0; i < n_sets && !eval->rc; i++)
        traceql_eval_split(eval, stage, &sets[i]);
}

static void traceql_eval_coalesce(struct evaluation *eval)
{
    struct br_traceql_trace *trace = eval->trace;
    bool *in = traceql_eval_set(eval);
    for (uint32_t i = 0; in && i < trace->n_sets; i++)
        for (uint32_t k = 0; k < trace->sets[i].n_spans; k++)
            in[trace->sets[i].spans[k]] = true;
    if (in)
        traceql_eval_begin_sets(eval, in);
}

static void traceql_eval_stage(struct evaluation *eval, const struct br_traceql_stage *stage)
{
    struct br_traceql_trace *trace = eval->trace;
    uint32_t n = 0;
    if (stage->kind == BR_TRACEQL_STAGE_BY) {
        traceql_eval_by(eval, stage);
        return;
    }
    if (stage->kind == BR_TRACEQL_STAGE_COALESCE) {
        traceql_eval_coalesce(eval);
        return;
    }
    for (uint32_t i = 0; i < trace->n_sets && !eval->rc; i++)
        if (traceql_eval_narrow(eval, stage, &trace->sets[i]))
            trace->sets[n++] = trace->sets[i];
    trace->n_sets = n;
}

int br_traceql_match_trace(struct br_traceql *query, struct br_store_query *store,
                           struct br_traceql_trace *trace, bool *ret_any, struct br_err *err)
{
    struct evaluation eval = {.query = query, .store = store, .trace = trace, .err = err};
    if (query->needs_nested && !trace->nested && br_traceql_trace_nest(trace, store->arena))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    const bool *in = traceql_eval_spanset(&eval, query->spansets);
    if (in)
        traceql_eval_begin_sets(&eval, in);
    for (size_t i = 0; !eval.rc && trace->n_sets && i < query->n_stages; i++)
        traceql_eval_stage(&eval, &query->stages[i]);
    if (eval.rc)
        return eval.rc;
    *ret_any = trace->n_sets > 0;
    for (uint32_t i = 0; i < trace->n_spans; i++)
        trace->spans[i].in = false;
    for (uint32_t i = 0; i < trace->n_sets; i++)
        for (uint32_t k = 0; k < trace->sets[i].n_spans; k++)
            trace->spans[trace->sets[i].spans[k]].in = true;
    return 0;
}

int br_traceql_match_span(struct br_traceql *query, struct br_store_query *store,
                          struct br_traceql_span *span, bool *ret, struct br_err *err)
{
    struct evaluation eval = {.query = query, .store = store, .err = err};
    bool holds = traceql_eval_filter(&eval, query->spansets->expr, span);
    if (!eval.rc)
        *ret = holds;
    return eval.rc;
}

int br_traceql_holds(struct br_traceql *query, struct br_store_query *store,
                     struct br_traceql_trace *trace, struct br_traceql_span *span,
                     const struct br_traceql_expr *expr, bool *ret, struct br_err *err)
{
    struct evaluation eval = {.query = query, .store = store, .trace = trace, .err = err};
    *ret = traceql_eval_filter(&eval, expr, span);
    return eval.rc;
}
