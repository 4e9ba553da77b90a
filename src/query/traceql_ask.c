/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a query finds a span, and which spans of a trace. */
#include <math.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/sum.h"
#include "query/traceql_internal.h"

/* Remembered texts of all patterns of a query, and the length of each: at most some 16 MiB. */
#define KNOWN_MAX 65536
#define KNOWN_LEN_MAX 128

struct asking {
    struct br_traceql *query;
    struct br_store_query *store;
    struct br_traceql_trace *trace; /* NULL: a span alone */
    struct br_err *err;
    int rc; /* the first failure */
};

/* --- Comparisons ------------------------------------------------------------------------------ */

static bool traceql_ask_is_number(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_INT || value->type == BR_TRACEQL_FLOAT ||
           value->type == BR_TRACEQL_DURATION;
}

static double traceql_ask_real(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_FLOAT ? value->real : (double)value->integer;
}

/* -1, 0, 1; 2 where there is no order: NaN. */
static int traceql_ask_order(const struct br_traceql_value *left,
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
    double one = traceql_ask_real(left), other = traceql_ask_real(right);
    if (isnan(one) || isnan(other))
        return 2;
    return one < other ? -1 : one > other;
}

static bool traceql_ask_holds(enum br_traceql_op op, int order)
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

/* Compares two values that are no lists. Different types are neither equal nor unequal, but that
 * nothing is there can be asked. */
static bool traceql_ask_compare(enum br_traceql_op op, const struct br_traceql_value *left,
                                const struct br_traceql_value *right)
{
    bool numbers = traceql_ask_is_number(left) && traceql_ask_is_number(right);
    if (left->type != right->type && !numbers)
        return false;
    if (left->type == BR_TRACEQL_NIL)
        return op == BR_TRACEQL_EQUAL;
    return traceql_ask_holds(op, traceql_ask_order(left, right));
}

/* As br_regex_match, but once for each text, up to a number of texts that are not long. */
static int traceql_ask_match(const struct br_traceql *query, struct br_traceql_pattern *pattern,
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

static bool traceql_ask_matches(struct asking *asking, const struct br_traceql_expr *expr,
                                const struct br_traceql_value *value)
{
    if (value->type != BR_TRACEQL_STRING || asking->rc)
        return false;
    int rc = traceql_ask_match(asking->query, expr->pattern, value);
    if (rc < 0)
        asking->rc = rc == BR_EFULL ? br_err_set(asking->err, BR_ETOOBIG,
                                                 "a regular expression takes too long")
                                    : br_err_set(asking->err, rc, "out of memory");
    return rc >= 0 && (rc == 1) == (expr->op == BR_TRACEQL_MATCHES);
}

static bool traceql_ask_pair(struct asking *asking, const struct br_traceql_expr *expr,
                             const struct br_traceql_value *left,
                             const struct br_traceql_value *right)
{
    if (expr->op == BR_TRACEQL_MATCHES || expr->op == BR_TRACEQL_MATCHES_NOT)
        return traceql_ask_matches(asking, expr, left);
    return traceql_ask_compare(expr->op, left, right);
}

/* One value of a list has to match, and with `!=` and `!~` all of them. */
static bool traceql_ask_each(struct asking *asking, const struct br_traceql_expr *expr,
                             const struct br_traceql_value *left,
                             const struct br_traceql_value *right)
{
    bool all = expr->op == BR_TRACEQL_NOT_EQUAL || expr->op == BR_TRACEQL_MATCHES_NOT;
    const struct br_traceql_value *list = left->type == BR_TRACEQL_LIST    ? left
                                          : right->type == BR_TRACEQL_LIST ? right
                                                                           : NULL;
    if (left->type == BR_TRACEQL_NIL || right->type == BR_TRACEQL_NIL) {
        bool both = left->type == right->type;
        return expr->right->op == BR_TRACEQL_VALUE && right->type == BR_TRACEQL_NIL &&
               (expr->op == BR_TRACEQL_EQUAL ? both : expr->op == BR_TRACEQL_NOT_EQUAL && !both);
    }
    if (!list)
        return traceql_ask_pair(asking, expr, left, right);
    for (size_t i = 0; i < list->n_items; i++) {
        bool holds = traceql_ask_pair(asking, expr, list == left ? &list->items[i] : left,
                                      list == left ? right : &list->items[i]);
        if (holds != all)
            return holds;
    }
    return all;
}

/* --- Expressions ------------------------------------------------------------------------------ */

static struct br_traceql_value traceql_ask_expr(struct asking *asking,
                                                const struct br_traceql_expr *expr,
                                                const struct br_traceql_span *span);

static struct br_traceql_value traceql_ask_boolean(bool boolean)
{
    return (struct br_traceql_value){.type = BR_TRACEQL_BOOL, .boolean = boolean};
}

static bool traceql_ask_is_true(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_BOOL && value->boolean;
}

static struct br_traceql_value traceql_ask_arithmetic(enum br_traceql_op op,
                                                      const struct br_traceql_value *left,
                                                      const struct br_traceql_value *right)
{
    if (!traceql_ask_is_number(left) || !traceql_ask_is_number(right))
        return (struct br_traceql_value){0};
    double one = traceql_ask_real(left), other = traceql_ask_real(right);
    double real = op == BR_TRACEQL_ADD        ? one + other
                  : op == BR_TRACEQL_SUBTRACT ? one - other
                  : op == BR_TRACEQL_MULTIPLY ? one * other
                  : op == BR_TRACEQL_DIVIDE   ? one / other
                  : op == BR_TRACEQL_MODULO   ? fmod(one, other)
                                              : pow(one, other);
    return (struct br_traceql_value){.type = BR_TRACEQL_FLOAT, .real = real};
}

static struct br_traceql_value traceql_ask_unary(struct asking *asking,
                                                 const struct br_traceql_expr *expr,
                                                 const struct br_traceql_span *span)
{
    struct br_traceql_value value = traceql_ask_expr(asking, expr->left, span);
    if (expr->op == BR_TRACEQL_NOT)
        return value.type == BR_TRACEQL_BOOL ? traceql_ask_boolean(!value.boolean)
                                             : (struct br_traceql_value){0};
    if (value.type == BR_TRACEQL_FLOAT)
        value.real = -value.real;
    else if (traceql_ask_is_number(&value))
        value.integer = value.integer == INT64_MIN ? INT64_MAX : -value.integer;
    else
        value = (struct br_traceql_value){0};
    return value;
}

static struct br_traceql_value traceql_ask_logic(struct asking *asking,
                                                 const struct br_traceql_expr *expr,
                                                 const struct br_traceql_span *span)
{
    const struct br_traceql_value left = traceql_ask_expr(asking, expr->left, span);
    bool holds = traceql_ask_is_true(&left);
    if (holds != (expr->op == BR_TRACEQL_OR)) {
        const struct br_traceql_value right = traceql_ask_expr(asking, expr->right, span);
        holds = traceql_ask_is_true(&right);
    }
    return traceql_ask_boolean(holds);
}

/* Nests no deeper than the parser let it. */
static struct br_traceql_value traceql_ask_expr(struct asking *asking,
                                                const struct br_traceql_expr *expr,
                                                const struct br_traceql_span *span)
{
    if (expr->op == BR_TRACEQL_VALUE)
        return expr->value;
    if (expr->op == BR_TRACEQL_ATTRIBUTE)
        return span->values[expr->attribute];
    if (expr->op == BR_TRACEQL_NOT || expr->op == BR_TRACEQL_NEGATE)
        return traceql_ask_unary(asking, expr, span);
    if (expr->op <= BR_TRACEQL_OR)
        return traceql_ask_logic(asking, expr, span);
    const struct br_traceql_value left = traceql_ask_expr(asking, expr->left, span);
    const struct br_traceql_value right = traceql_ask_expr(asking, expr->right, span);
    if (expr->op >= BR_TRACEQL_ADD)
        return traceql_ask_arithmetic(expr->op, &left, &right);
    return traceql_ask_boolean(traceql_ask_each(asking, expr, &left, &right));
}

static bool traceql_ask_filter(struct asking *asking, const struct br_traceql_expr *expr,
                               struct br_traceql_span *span)
{
    if (asking->rc)
        return false;
    if (!expr)
        return true;
    asking->rc =
        br_traceql_read_span(asking->query, asking->store, span, asking->trace, asking->err);
    if (asking->rc)
        return false;
    const struct br_traceql_value value = traceql_ask_expr(asking, expr, span);
    return traceql_ask_is_true(&value);
}

/* --- Spansets --------------------------------------------------------------------------------- */

static bool *traceql_ask_set(struct asking *asking)
{
    bool *set = br_arena_calloc(asking->store->arena, asking->trace->n_spans + 1, sizeof *set);
    if (!set && !asking->rc)
        asking->rc = br_err_set(asking->err, BR_ENOMEM, "out of memory");
    return set;
}

static bool traceql_ask_any(const struct asking *asking, const bool *set)
{
    return memchr(set, true, asking->trace->n_spans) != NULL;
}

/* below[i]: an ancestor of span i is in `set`. A circle of parents, which no honest trace has, is
 * gone through once. */
static bool *traceql_ask_below(struct asking *asking, const bool *set)
{
    const struct br_traceql_trace *trace = asking->trace;
    bool *below = traceql_ask_set(asking), *known = traceql_ask_set(asking);
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

/* above[i]: a descendant of span i is in `set`. Each way up ends where another has been. */
static bool *traceql_ask_above(struct asking *asking, const bool *set)
{
    const struct br_traceql_trace *trace = asking->trace;
    bool *above = traceql_ask_set(asking);
    for (uint32_t i = 0; above && i < trace->n_spans; i++) {
        uint32_t at = set[i] ? trace->spans[i].parent : BR_TRACEQL_NO_PARENT;
        for (; at != BR_TRACEQL_NO_PARENT && !above[at]; at = trace->spans[at].parent)
            above[at] = true;
    }
    return above;
}

/* beside[i]: another child of the parent of span i is in `set`. */
static bool *traceql_ask_beside(struct asking *asking, const bool *set)
{
    const struct br_traceql_trace *trace = asking->trace;
    bool *beside = traceql_ask_set(asking);
    uint32_t *counts = br_arena_calloc(asking->store->arena, trace->n_spans + 1, sizeof *counts);
    if (!counts && !asking->rc)
        asking->rc = br_err_set(asking->err, BR_ENOMEM, "out of memory");
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

static bool *traceql_ask_next_to(struct asking *asking, const bool *set, bool children)
{
    const struct br_traceql_trace *trace = asking->trace;
    bool *next = traceql_ask_set(asking);
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

static bool *traceql_ask_related(struct asking *asking, enum br_traceql_relation relation,
                                 const bool *set)
{
    switch (relation) {
    case BR_TRACEQL_CHILD:
        return traceql_ask_next_to(asking, set, true);
    case BR_TRACEQL_PARENT:
        return traceql_ask_next_to(asking, set, false);
    case BR_TRACEQL_DESCENDANT:
        return traceql_ask_below(asking, set);
    case BR_TRACEQL_ANCESTOR:
        return traceql_ask_above(asking, set);
    default:
        return traceql_ask_beside(asking, set);
    }
}

static enum br_traceql_relation traceql_ask_inverse(enum br_traceql_relation relation)
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

/* The spans that a spanset finds; NULL after a failure. */
static bool *traceql_ask_spanset(struct asking *asking, const struct br_traceql_spanset *spanset)
{
    uint32_t n_spans = asking->trace->n_spans;
    if (spanset->relation == BR_TRACEQL_FILTER) {
        bool *set = traceql_ask_set(asking);
        for (uint32_t i = 0; set && i < n_spans; i++)
            set[i] = traceql_ask_filter(asking, spanset->expr, &asking->trace->spans[i]);
        return asking->rc ? NULL : set;
    }
    bool *left = traceql_ask_spanset(asking, spanset->left);
    bool *right = left ? traceql_ask_spanset(asking, spanset->right) : NULL;
    if (!right)
        return NULL;
    if (spanset->relation <= BR_TRACEQL_EITHER) {
        bool none = spanset->relation == BR_TRACEQL_BOTH &&
                    (!traceql_ask_any(asking, left) || !traceql_ask_any(asking, right));
        for (uint32_t i = 0; i < n_spans; i++)
            right[i] = !none && (left[i] || right[i]);
        return right;
    }
    const bool *related = traceql_ask_related(asking, spanset->relation, left);
    const bool *relatives =
        related && spanset->unites
            ? traceql_ask_related(asking, traceql_ask_inverse(spanset->relation), right)
            : NULL;
    if (!related || (spanset->unites && !relatives))
        return NULL;
    for (uint32_t i = 0; i < n_spans; i++)
        right[i] =
            (right[i] && related[i] != spanset->negated) || (relatives && left[i] && relatives[i]);
    return right;
}

/* --- Sets ------------------------------------------------------------------------------------- */

static void *traceql_ask_alloc(struct asking *asking, size_t count, size_t size)
{
    void *items = br_arena_calloc(asking->store->arena, count + 1, size);
    if (!items && !asking->rc)
        asking->rc = br_err_set(asking->err, BR_ENOMEM, "out of memory");
    return items;
}

/* Makes one set of the spans in `in`; if there are none, no set. */
static void traceql_ask_begin_sets(struct asking *asking, const bool *in)
{
    struct br_traceql_trace *trace = asking->trace;
    trace->n_sets = 0;
    trace->sets = traceql_ask_alloc(asking, 1, sizeof *trace->sets);
    uint32_t *spans = trace->sets ? traceql_ask_alloc(asking, trace->n_spans, sizeof *spans) : NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; spans && i < trace->n_spans; i++)
        if (in[i])
            spans[n++] = i;
    if (n)
        trace->sets[trace->n_sets++] = (struct br_traceql_set){.spans = spans, .n_spans = n};
}

static struct br_traceql_value traceql_ask_of(struct asking *asking,
                                              const struct br_traceql_expr *expr, uint32_t index)
{
    struct br_traceql_span *span = &asking->trace->spans[index];
    if (!asking->rc)
        asking->rc =
            br_traceql_read_span(asking->query, asking->store, span, asking->trace, asking->err);
    return asking->rc ? (struct br_traceql_value){0} : traceql_ask_expr(asking, expr, span);
}

static void traceql_ask_label(struct asking *asking, struct br_traceql_set *set, const char *name,
                              struct br_traceql_value value)
{
    struct br_traceql_label *label = traceql_ask_alloc(asking, 1, sizeof *label);
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
            br_traceql_value_key(key, &value->items[i]); /* not a list: lists are flat */
    } else if (value->type != BR_TRACEQL_NIL) {
        br_str_add(key, &value->integer, sizeof value->integer); /* or the bits of the double */
    }
}

/* --- Stages ----------------------------------------------------------------------------------- */

/* Sums of one type stay of that type, as Tempo's; values of another than the first do not count. */
static void traceql_ask_sum(struct br_traceql_value *sum, const struct br_traceql_value *value)
{
    if (sum->type != value->type)
        return;
    if (sum->type == BR_TRACEQL_FLOAT)
        sum->real += value->real;
    else
        sum->integer = br_sum(sum->integer, value->integer);
}

static struct br_traceql_value traceql_ask_average(struct br_traceql_value sum, uint32_t count)
{
    if (sum.type == BR_TRACEQL_DURATION)
        sum.integer /= count;
    else
        sum = (struct br_traceql_value){.type = BR_TRACEQL_FLOAT,
                                        .real = traceql_ask_real(&sum) / count};
    return sum;
}

/* The number of spans in the set; or min, max, avg or sum of a number, NIL where none has it. */
static struct br_traceql_value traceql_ask_aggregate(struct asking *asking,
                                                     const struct br_traceql_stage *stage,
                                                     const struct br_traceql_set *set)
{
    struct br_traceql_value result = {0};
    uint32_t count = 0;
    if (stage->aggregate == BR_TRACEQL_COUNT)
        return (struct br_traceql_value){.type = BR_TRACEQL_INT, .integer = set->n_spans};
    for (uint32_t i = 0; i < set->n_spans && !asking->rc; i++) {
        const struct br_traceql_value value = traceql_ask_of(asking, stage->expr, set->spans[i]);
        if (!traceql_ask_is_number(&value))
            continue;
        int order = count ? traceql_ask_order(&value, &result) : 0;
        if (!count++)
            result = value;
        else if (stage->aggregate == BR_TRACEQL_MIN)
            result = order == -1 ? value : result;
        else if (stage->aggregate == BR_TRACEQL_MAX)
            result = order == 1 ? value : result;
        else
            traceql_ask_sum(&result, &value);
    }
    return stage->aggregate == BR_TRACEQL_AVG && count ? traceql_ask_average(result, count)
                                                       : result;
}

/* Whether something of the set is left. */
static bool traceql_ask_narrow(struct asking *asking, const struct br_traceql_stage *stage,
                               struct br_traceql_set *set)
{
    uint32_t n = 0;
    if (stage->kind == BR_TRACEQL_STAGE_AGGREGATE) {
        const struct br_traceql_value value = traceql_ask_aggregate(asking, stage, set);
        if (!traceql_ask_compare(stage->compare, &value, &stage->value))
            return false;
        traceql_ask_label(asking, set, stage->text, value);
        return true;
    }
    for (uint32_t i = 0; i < set->n_spans; i++)
        if (traceql_ask_filter(asking, stage->expr, &asking->trace->spans[set->spans[i]]))
            set->spans[n++] = set->spans[i];
    set->n_spans = n;
    return n > 0;
}

/* The group of a value, made where it is new: spans are counted first, and then put. */
static struct br_traceql_set *traceql_ask_group(struct asking *asking, struct br_map *groups,
                                                const struct br_traceql_value *value)
{
    struct br_str key = {.max = 1 << 20};
    br_traceql_value_key(&key, value);
    struct br_traceql_set *group = key.failed ? NULL : br_map_get(groups, key.data, key.len);
    if (!group && !key.failed) {
        group = traceql_ask_alloc(asking, 1, sizeof *group);
        if (group && br_map_put(groups, key.data, key.len, group, NULL))
            group = NULL;
    }
    br_str_release(&key);
    if (!group && !asking->rc)
        asking->rc = br_err_set(asking->err, BR_ENOMEM, "out of memory");
    return group;
}

/* Puts the spans of a set into the sets of its groups, behind those that are in `trace->sets`. */
static void traceql_ask_split(struct asking *asking, const struct br_traceql_stage *stage,
                              const struct br_traceql_set *set)
{
    struct br_traceql_trace *trace = asking->trace;
    struct br_map *groups = br_map_new(set->n_spans);
    struct br_traceql_set **of = traceql_ask_alloc(asking, set->n_spans, sizeof(void *));
    uint32_t *spans = traceql_ask_alloc(asking, set->n_spans, sizeof *spans);
    const void *key;
    size_t len;
    if (!groups && !asking->rc)
        asking->rc = br_err_set(asking->err, BR_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < set->n_spans && !asking->rc; i++) {
        const struct br_traceql_value value = traceql_ask_of(asking, stage->expr, set->spans[i]);
        of[i] = asking->rc ? NULL : traceql_ask_group(asking, groups, &value);
        if (of[i] && !of[i]->n_spans++) {
            of[i]->labels = set->labels;
            traceql_ask_label(asking, of[i], stage->text, value);
        }
    }
    for (size_t i = 0; !asking->rc && i < br_map_count(groups); i++) {
        struct br_traceql_set *group = br_map_at(groups, i, &key, &len);
        group->spans = spans;
        spans += group->n_spans;
        group->n_spans = 0;
    }
    for (uint32_t i = 0; i < set->n_spans && !asking->rc; i++)
        of[i]->spans[of[i]->n_spans++] = set->spans[i];
    for (size_t i = 0; !asking->rc && i < br_map_count(groups); i++)
        trace->sets[trace->n_sets++] =
            *(const struct br_traceql_set *)br_map_at(groups, i, &key, &len);
    br_map_free(groups, NULL);
}

static void traceql_ask_by(struct asking *asking, const struct br_traceql_stage *stage)
{
    struct br_traceql_trace *trace = asking->trace;
    const struct br_traceql_set *sets = trace->sets;
    uint32_t n_sets = trace->n_sets, n_spans = 0;
    for (uint32_t i = 0; i < n_sets; i++)
        n_spans += sets[i].n_spans;
    trace->sets = traceql_ask_alloc(asking, n_spans, sizeof *trace->sets);
    trace->n_sets = 0;
    for (uint32_t i = 0; i < n_sets && !asking->rc; i++)
        traceql_ask_split(asking, stage, &sets[i]);
}

static void traceql_ask_coalesce(struct asking *asking)
{
    struct br_traceql_trace *trace = asking->trace;
    bool *in = traceql_ask_set(asking);
    for (uint32_t i = 0; in && i < trace->n_sets; i++)
        for (uint32_t k = 0; k < trace->sets[i].n_spans; k++)
            in[trace->sets[i].spans[k]] = true;
    if (in)
        traceql_ask_begin_sets(asking, in);
}

static void traceql_ask_stage(struct asking *asking, const struct br_traceql_stage *stage)
{
    struct br_traceql_trace *trace = asking->trace;
    uint32_t n = 0;
    if (stage->kind == BR_TRACEQL_STAGE_BY) {
        traceql_ask_by(asking, stage);
        return;
    }
    if (stage->kind == BR_TRACEQL_STAGE_COALESCE) {
        traceql_ask_coalesce(asking);
        return;
    }
    for (uint32_t i = 0; i < trace->n_sets && !asking->rc; i++)
        if (traceql_ask_narrow(asking, stage, &trace->sets[i]))
            trace->sets[n++] = trace->sets[i];
    trace->n_sets = n;
}

int br_traceql_ask_trace(struct br_traceql *query, struct br_store_query *store,
                         struct br_traceql_trace *trace, bool *ret_any, struct br_err *err)
{
    struct asking asking = {.query = query, .store = store, .trace = trace, .err = err};
    if (query->needs_nested && !trace->nested && br_traceql_trace_nest(trace, store->arena))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    const bool *in = traceql_ask_spanset(&asking, query->spansets);
    if (in)
        traceql_ask_begin_sets(&asking, in);
    for (size_t i = 0; !asking.rc && trace->n_sets && i < query->n_stages; i++)
        traceql_ask_stage(&asking, &query->stages[i]);
    if (asking.rc)
        return asking.rc;
    *ret_any = trace->n_sets > 0;
    for (uint32_t i = 0; i < trace->n_spans; i++)
        trace->spans[i].in = false;
    for (uint32_t i = 0; i < trace->n_sets; i++)
        for (uint32_t k = 0; k < trace->sets[i].n_spans; k++)
            trace->spans[trace->sets[i].spans[k]].in = true;
    return 0;
}

int br_traceql_ask_span(struct br_traceql *query, struct br_store_query *store,
                        struct br_traceql_span *span, bool *ret, struct br_err *err)
{
    struct asking asking = {.query = query, .store = store, .err = err};
    bool holds = traceql_ask_filter(&asking, query->spansets->expr, span);
    if (!asking.rc)
        *ret = holds;
    return asking.rc;
}

int br_traceql_holds(struct br_traceql *query, struct br_store_query *store,
                     struct br_traceql_trace *trace, struct br_traceql_span *span,
                     const struct br_traceql_expr *expr, bool *ret, struct br_err *err)
{
    struct asking asking = {.query = query, .store = store, .trace = trace, .err = err};
    *ret = traceql_ask_filter(&asking, expr, span);
    return asking.rc;
}
