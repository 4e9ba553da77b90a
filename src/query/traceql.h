/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements TraceQL, the query language of Grafana's Tempo
 * (grafana.com/docs/tempo/latest/traceql). A query is parsed once and then evaluated for spans and
 * traces of the store.
 *
 *     query     := spansets ("|" stage)* ("|" metric)? ("with" "(" hints ")")?
 *     spansets  := spansets op spansets | "(" spansets ")" | "{" [expression] "}"
 *     op        := "&&" | "||" | ["!" | "&"] (">" | ">>" | "<" | "<<" | "~")
 *     stage     := "{" [expression] "}" | "select(" attributes ")" | aggregate comparison value
 *                | "by(" expression ")" | "coalesce()"
 *     aggregate := "count()" | ("min" | "max" | "avg" | "sum") "(" expression ")"
 *     metric    := ("rate()" | "count_over_time()" | "min_over_time(" attribute ")" | ...)
 *                  ["by(" attributes ")"] after*
 *                | "compare(" "{" [expression] "}" ["," top ["," start "," end]] ")"
 *     after     := "|" ("topk(" number ")" | "bottomk(" number ")") | comparison value
 *
 * As in Tempo's grammar, `&&` and `||` have the same precedence and are left-associative, in
 * spansets and in expressions. Structural operators, such as `>>`, have a higher precedence than
 * `&&` and `||`. Spaces, newlines and comments (from `#` to the end of the line) are ignored.
 *
 * A comparison of values of different types is false, also with `!=`; numbers and durations count
 * as one type. A regular expression must match the whole text.
 *
 * `!>>` and similar operators find spans of the right operand that do not have the relation to any
 * span of the left operand. `&>>` and similar operators find the spans of both operands that have
 * the relation. The spans of a trace that a query finds form one set. by() splits the set by value,
 * and coalesce() merges the resulting sets again.
 *
 * nestedSetLeft and nestedSetRight number the trace's tree depth first, from 1. nestedSetParent is
 * the left number of the parent, and -1 for a root. Spans whose parent is missing have the number
 * 0.
 *
 * The scope `parent.`, pipelines in brackets, and arithmetic on metrics are not supported, and are
 * rejected with a specific error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attribute/regex.h"
#include "base/arena.h"
#include "base/err.h"
#include "storage/store.h"

#define BR_TRACEQL_LENGTH_MAX (64u << 10) /* maximum number of bytes of a query */
#define BR_TRACEQL_DEPTH_MAX 64      /* maximum number of levels of nested brackets and operators */
#define BR_TRACEQL_NODES_MAX 4096    /* maximum number of operators and operands of a query */
#define BR_TRACEQL_ATTRIBUTES_MAX 64 /* maximum number of different attributes of a query */
#define BR_TRACEQL_PATTERNS_MAX 16   /* maximum number of regular expressions of a query */
#define BR_TRACEQL_PATTERN_MAX 1024  /* maximum number of bytes of a regular expression */
#define BR_TRACEQL_STAGES_MAX 16
#define BR_TRACEQL_BY_MAX 8
#define BR_TRACEQL_QUANTILES_MAX 8
/* maximum number of functions topk() and bottomk(), and comparisons, that may follow a metric */
#define BR_TRACEQL_AFTER_MAX 8

/* --- The query -------------------------------------------------------------------------------- */

enum br_traceql_type {
    BR_TRACEQL_NIL, /* no value */
    BR_TRACEQL_BOOL,
    BR_TRACEQL_INT,
    BR_TRACEQL_FLOAT,
    BR_TRACEQL_DURATION, /* duration in nanoseconds, in `integer` */
    BR_TRACEQL_STRING,
    BR_TRACEQL_STATUS, /* value of Status.StatusCode, in `integer` */
    BR_TRACEQL_KIND,   /* value of Span.SpanKind, in `integer` */
    /* list of values of the types before BR_TRACEQL_LIST; the values are from events, links or an
     * array */
    BR_TRACEQL_LIST,
    /* type of an expression that is known only when the expression is evaluated */
    BR_TRACEQL_ANY,
};

struct br_traceql_value {
    enum br_traceql_type type;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            const char *text; /* text of the value, `len` bytes, not NUL-terminated */
            size_t len;
        };
        struct {
            const struct br_traceql_value *items;
            size_t n_items;
        };
    };
};

enum br_traceql_scope {
    /* attribute of the span or, if the span does not have it, of the resource */
    BR_TRACEQL_UNSCOPED,
    BR_TRACEQL_SPAN,
    BR_TRACEQL_RESOURCE,
    BR_TRACEQL_EVENT,
    BR_TRACEQL_LINK,
    BR_TRACEQL_INSTRUMENTATION,
    BR_TRACEQL_INTRINSIC,
};

enum br_traceql_intrinsic {
    BR_TRACEQL_SPAN_DURATION,
    BR_TRACEQL_SPAN_NAME,
    BR_TRACEQL_SPAN_STATUS,
    BR_TRACEQL_SPAN_KIND,
    BR_TRACEQL_SPAN_ID,
    BR_TRACEQL_SPAN_PARENT_ID,
    BR_TRACEQL_TRACE_ID,
    BR_TRACEQL_NESTED_SET_PARENT,
    /* the intrinsics from here to BR_TRACEQL_SCOPE_VERSION are read from the OTLP bytes of the
     * span */
    BR_TRACEQL_STATUS_MESSAGE,
    BR_TRACEQL_EVENT_NAME,
    BR_TRACEQL_EVENT_TIME, /* time between the span's start and the event */
    BR_TRACEQL_LINK_TRACE_ID,
    BR_TRACEQL_LINK_SPAN_ID,
    BR_TRACEQL_SCOPE_NAME,
    BR_TRACEQL_SCOPE_VERSION,
    BR_TRACEQL_CHILD_COUNT, /* this intrinsic and those after it depend on the whole trace */
    BR_TRACEQL_NESTED_SET_LEFT,
    BR_TRACEQL_NESTED_SET_RIGHT,
    BR_TRACEQL_TRACE_DURATION,
    BR_TRACEQL_ROOT_NAME,
    BR_TRACEQL_ROOT_SERVICE,
};

/* An attribute named in a query. The query lists each attribute once. */
struct br_traceql_attribute {
    enum br_traceql_scope scope;
    enum br_traceql_intrinsic intrinsic;
    /* name without the scope, such as "http.status_code"; for an intrinsic: its name in
     * responses */
    const char *name;
    const char *label; /* name with the scope, such as "span.http.status_code" */
    size_t name_len;
    bool shown; /* the responses of a search contain the attribute */
};

enum br_traceql_op {
    BR_TRACEQL_AND,
    BR_TRACEQL_OR,
    BR_TRACEQL_EQUAL,
    BR_TRACEQL_NOT_EQUAL,
    BR_TRACEQL_LESS,
    BR_TRACEQL_LESS_EQUAL,
    BR_TRACEQL_GREATER,
    BR_TRACEQL_GREATER_EQUAL,
    BR_TRACEQL_MATCHES,
    BR_TRACEQL_MATCHES_NOT,
    BR_TRACEQL_ADD,
    BR_TRACEQL_SUBTRACT,
    BR_TRACEQL_MULTIPLY,
    BR_TRACEQL_DIVIDE,
    BR_TRACEQL_MODULO,
    BR_TRACEQL_POWER,
    BR_TRACEQL_NOT,       /* unary operator, whose operand is in `left` */
    BR_TRACEQL_NEGATE,    /* unary operator, whose operand is in `left` */
    BR_TRACEQL_VALUE,     /* a constant, in `value` */
    BR_TRACEQL_ATTRIBUTE, /* an attribute, whose index is in `attribute` */
};

/* A compiled regular expression with a cache of its results. The cache is effective because many
 * spans have equal names. */
struct br_traceql_pattern {
    pcre2_code *code;
    /* cache: map from a text to its result (traceql_eval.c); NULL: the cache is empty */
    struct br_map *known;
};

struct br_traceql_expr {
    enum br_traceql_op op;
    const struct br_traceql_expr *left, *right;
    struct br_traceql_value value;
    uint32_t attribute;
    /* for MATCHES and MATCHES_NOT: the regular expression, which belongs to the query */
    struct br_traceql_pattern *pattern;
    enum br_traceql_type type; /* type of the expression's result */
};

enum br_traceql_relation {
    BR_TRACEQL_FILTER, /* spans that match `expr`; every span if `expr` is NULL */
    BR_TRACEQL_BOTH,
    BR_TRACEQL_EITHER,
    BR_TRACEQL_CHILD,      /* spans in `right` whose parent is in `left` */
    BR_TRACEQL_DESCENDANT, /* spans in `right` that have an ancestor in `left` */
    BR_TRACEQL_PARENT,     /* spans in `right` that have a child in `left` */
    BR_TRACEQL_ANCESTOR,   /* spans in `right` that have a descendant in `left` */
    BR_TRACEQL_SIBLING,    /* spans in `right` that have a sibling in `left` */
};

struct br_traceql_spanset {
    enum br_traceql_relation relation;
    /* for a structural relation: finds the spans in `right` that do not have the relation to
     * `left` */
    bool negated;
    /* for a structural relation: finds the spans in `left` and in `right` that have the relation */
    bool unites;
    const struct br_traceql_spanset *left, *right;
    const struct br_traceql_expr *expr;
};

enum br_traceql_aggregate {
    BR_TRACEQL_COUNT,
    BR_TRACEQL_MIN,
    BR_TRACEQL_MAX,
    BR_TRACEQL_AVG,
    BR_TRACEQL_SUM,
    BR_TRACEQL_RATE,       /* rate(), which is valid only as a metric */
    BR_TRACEQL_QUANTILE,   /* quantile_over_time(), which is valid only as a metric */
    BR_TRACEQL_HISTOGRAM,  /* histogram_over_time(), which is valid only as a metric */
    BR_TRACEQL_COMPARISON, /* compare(), which is valid only as a metric; see traceql_metric.h */
};

enum br_traceql_stage_kind {
    BR_TRACEQL_STAGE_AGGREGATE, /* stage that compares an aggregate with a value */
    BR_TRACEQL_STAGE_FILTER,
    BR_TRACEQL_STAGE_BY,
    BR_TRACEQL_STAGE_COALESCE,
};

struct br_traceql_stage {
    enum br_traceql_stage_kind kind;
    const char *text; /* for AGGREGATE and BY: name of the stage's result in responses */
    /* The condition of a filter, or the argument of by() or of an aggregate (NULL for count()). */
    const struct br_traceql_expr *expr;
    enum br_traceql_aggregate aggregate;
    enum br_traceql_op compare;
    struct br_traceql_value value;
};

enum br_traceql_after_kind { BR_TRACEQL_TOPK, BR_TRACEQL_BOTTOMK, BR_TRACEQL_COMPARE };

/* A function or comparison after a metric. At each time step, it keeps only some of the lines of
 * the response (struct br_traceql_line in traceql_metric.h). */
struct br_traceql_after {
    enum br_traceql_after_kind kind;
    uint32_t count;             /* for TOPK and BOTTOMK: number of lines kept at each step */
    enum br_traceql_op compare; /* for COMPARE: the comparison operator */
    double value;
};

struct br_traceql_metric {
    enum br_traceql_aggregate aggregate;
    struct br_traceql_after after[BR_TRACEQL_AFTER_MAX];
    size_t n_after;
    const char *name;   /* name of the metric's function, such as "rate" */
    uint32_t attribute; /* index of the aggregated attribute; not used by RATE and COUNT */
    uint32_t by[BR_TRACEQL_BY_MAX];
    size_t n_by;
    double quantiles[BR_TRACEQL_QUANTILES_MAX];
    size_t n_quantiles;
    /* For compare() only: `selection` is the condition for selected spans, and only spans that
     * start in (from_ns, until_ns] are selected (0: no limit). `top` is the number of values per
     * attribute in the response. */
    const struct br_traceql_expr *selection; /* NULL: all spans are selected */
    uint64_t from_ns, until_ns;
    uint32_t top;
};

struct br_traceql {
    /* arena for the query's data, owned by the caller of br_traceql_parse */
    struct br_arena *arena;
    struct br_traceql_attribute attributes[BR_TRACEQL_ATTRIBUTES_MAX];
    size_t n_attributes;
    const struct br_traceql_spanset *spansets;
    struct br_traceql_stage stages[BR_TRACEQL_STAGES_MAX];
    size_t n_stages;
    const struct br_traceql_metric *metric; /* the query's metric; NULL: the query is a search */
    /* number of exemplars in the hint with(exemplars=...); -1: the query has no such hint */
    int32_t exemplars;
    bool needs_trace; /* evaluating a span requires its whole trace */
    /* evaluating a span requires its OTLP bytes, not only its struct br_stored_span */
    bool needs_bytes;
    bool needs_nested; /* the query uses nestedSetLeft or nestedSetRight */
    struct br_regex regex;
    struct br_regex_time time;
    struct br_traceql_pattern patterns[BR_TRACEQL_PATTERNS_MAX];
    size_t n_patterns;
};

/* Parses a query into `ret`, with memory from `arena`. The caller must release `ret`, even after
 * a failure.
 *
 * Returns 0 or:
 * - BR_EINVAL: the query is not valid.
 * - BR_EUNSUPPORTED: the query uses a feature of Tempo that is not supported.
 * - BR_ENOMEM.
 *
 * The error message begins with line:col, and `err` contains both numbers as well. */
int br_traceql_parse(struct br_traceql *ret, const char *text, size_t len, struct br_arena *arena,
                     struct br_err *err);
/* Frees the regular expressions of a query and their caches. Accepts a zeroed query. */
void br_traceql_release(struct br_traceql *query);

/* Adds an attribute whose values are read from each span, as the stage select() does. `text` is
 * written as in a query: "span.http.method". Stores the attribute's index in `*ret`. Returns the
 * same errors as br_traceql_parse. */
int br_traceql_select(struct br_traceql *query, const char *text, size_t len, uint32_t *ret,
                      struct br_err *err);

/* Sets conditions in the filter `ret` that let the store skip spans. The caller sets the other
 * fields of the filter. Each trace found by the query has at least one span that passes the filter.
 * If query->needs_trace is false, each span found by the query passes the filter. `ret->needles` is
 * allocated in the query's arena. Returns 0 or BR_ENOMEM. */
int br_traceql_filter(const struct br_traceql *query, struct br_span_filter *ret);

/* --- Evaluation ------------------------------------------------------------------------------- */

#define BR_TRACEQL_NO_PARENT UINT32_MAX

struct br_traceql_span {
    const struct br_stored_span *row;
    /* values of the query's attributes for this span; NULL: the values have not been read yet */
    struct br_traceql_value *values;
    /* index in the trace of the parent span; BR_TRACEQL_NO_PARENT: the trace does not contain
     * the parent */
    uint32_t parent;
    uint32_t n_children;
    bool in; /* true: the query finds this span */
};

/* The result of a stage for a set of spans, such as "count()" with its value. */
struct br_traceql_label {
    const char *name;
    struct br_traceql_value value;
    /* result of the nearest earlier stage that has a result; NULL: no earlier stage has a result */
    const struct br_traceql_label *before;
};

/* A set of spans that a query finds. */
struct br_traceql_set {
    uint32_t *spans; /* ascending indices of the set's spans in the trace */
    uint32_t n_spans;
    /* result of the last stage that has a result; NULL: no stage has a result */
    const struct br_traceql_label *labels;
};

/* The spans of a trace that are in the store. */
struct br_traceql_trace {
    struct br_traceql_set *sets; /* sets of spans that br_traceql_match_trace found */
    uint32_t n_sets;
    uint32_t (*nested)[2]; /* nestedSetLeft and nestedSetRight of each span; NULL: not computed */
    struct br_traceql_span *spans; /* spans of the trace, sorted by start time */
    uint32_t n_spans, cap_spans;
    /* first span without a parent; NULL: the store contains no such span */
    const struct br_stored_span *root;
    uint64_t start_ns, end_ns;
    bool is_partial; /* true: the trace has more spans than were read */
};

/* Reads a trace into `ret`, with memory from the store's arena. Reads at most `max_spans` spans
 * (0: no limit). Returns 0, BR_EIO or BR_ENOMEM. */
int br_traceql_trace_read(struct br_traceql_trace *ret, struct br_store_query *store,
                          const uint8_t trace_id[16], uint32_t max_spans, struct br_err *err);

/* Evaluates a query for a trace. Sets `in` of each span that the query finds, and `*ret_any` if
 * there is such a span. Stores the trace's sets, which are allocated in the store's arena.
 * Returns 0, BR_ETOOBIG if a regular expression takes too long, BR_EIO or BR_ENOMEM. */
int br_traceql_match_trace(struct br_traceql *query, struct br_store_query *store,
                           struct br_traceql_trace *trace, bool *ret_any, struct br_err *err);

/* Evaluates a query for a single span. query->needs_trace must be false. Returns the same errors
 * as br_traceql_match_trace. */
int br_traceql_match_span(struct br_traceql *query, struct br_store_query *store,
                          struct br_traceql_span *span, bool *ret, struct br_err *err);

/* Evaluates an expression of the query for a span of a trace. The result is true if `expr` is
 * NULL. Returns the same errors as br_traceql_match_trace. */
int br_traceql_holds(struct br_traceql *query, struct br_store_query *store,
                     struct br_traceql_trace *trace, struct br_traceql_span *span,
                     const struct br_traceql_expr *expr, bool *ret, struct br_err *err);

/* Reads the values of all attributes in the query, unless they have been read already. `trace`
 * may be NULL if query->needs_trace is false. The values are allocated in the store's arena.
 * Returns the same errors as br_traceql_match_trace. */
int br_traceql_read_span(const struct br_traceql *query, struct br_store_query *store,
                         struct br_traceql_span *span, const struct br_traceql_trace *trace,
                         struct br_err *err);
