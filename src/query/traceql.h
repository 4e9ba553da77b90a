/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TraceQL, as Grafana's Tempo has it (grafana.com/docs/tempo/latest/traceql): a query is parsed
 * once and then asked of spans and traces of the store.
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
 * `&&` and `||` bind alike and to the left, in spansets and in expressions, as Tempo's grammar has
 * it; structural operators bind tighter. Blanks, newlines and comments (from `#` to the end of the
 * line) mean nothing. A comparison of values of different types is false, also with `!=`; numbers
 * and durations are of one type. A regular expression has to match all of the text.
 *
 * `!>>` and its like find spans of the right side without such a relative on the left; `&>>` and
 * its like find the spans of both sides that are related. The spans that a query finds are one set
 * for each trace, until by() makes one for each value and coalesce() one again.
 *
 * nestedSetLeft and nestedSetRight number the trace's tree depth first, from 1; nestedSetParent
 * is the left number of the parent, -1 for a root. Spans whose parent is not there have 0.
 *
 * Not supported, and refused by name: parent., pipelines in brackets and arithmetic on metrics.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attribute/regex.h"
#include "base/arena.h"
#include "base/err.h"
#include "storage/store.h"

#define BR_TRACEQL_LENGTH_MAX (64u << 10) /* bytes of a query */
#define BR_TRACEQL_DEPTH_MAX 64           /* brackets and operators inside each other */
#define BR_TRACEQL_NODES_MAX 4096         /* operators and operands */
#define BR_TRACEQL_ATTRIBUTES_MAX 64      /* different ones */
#define BR_TRACEQL_PATTERNS_MAX 16        /* regular expressions */
#define BR_TRACEQL_PATTERN_MAX 1024       /* bytes of one */
#define BR_TRACEQL_STAGES_MAX 16
#define BR_TRACEQL_BY_MAX 8
#define BR_TRACEQL_QUANTILES_MAX 8
#define BR_TRACEQL_AFTER_MAX 8 /* topk(), bottomk() and comparisons of a metric */

/* --- The query -------------------------------------------------------------------------------- */

enum br_traceql_type {
    BR_TRACEQL_NIL, /* there is no value */
    BR_TRACEQL_BOOL,
    BR_TRACEQL_INT,
    BR_TRACEQL_FLOAT,
    BR_TRACEQL_DURATION, /* ns, in `integer` */
    BR_TRACEQL_STRING,
    BR_TRACEQL_STATUS, /* Status.StatusCode, in `integer` */
    BR_TRACEQL_KIND,   /* Span.SpanKind, in `integer` */
    BR_TRACEQL_LIST,   /* of the others: of events, of links, of an array */
    BR_TRACEQL_ANY,    /* of an expression: not known before a span is there */
};

struct br_traceql_value {
    enum br_traceql_type type;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            const char *text; /* not terminated */
            size_t len;
        };
        struct {
            const struct br_traceql_value *items;
            size_t n_items;
        };
    };
};

enum br_traceql_scope {
    BR_TRACEQL_UNSCOPED, /* of the span, else of the resource */
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
    BR_TRACEQL_STATUS_MESSAGE, /* from here on of the span's bytes */
    BR_TRACEQL_EVENT_NAME,
    BR_TRACEQL_EVENT_TIME, /* since the span's start */
    BR_TRACEQL_LINK_TRACE_ID,
    BR_TRACEQL_LINK_SPAN_ID,
    BR_TRACEQL_SCOPE_NAME,
    BR_TRACEQL_SCOPE_VERSION,
    BR_TRACEQL_CHILD_COUNT, /* from here on of the whole trace */
    BR_TRACEQL_NESTED_SET_LEFT,
    BR_TRACEQL_NESTED_SET_RIGHT,
    BR_TRACEQL_TRACE_DURATION,
    BR_TRACEQL_ROOT_NAME,
    BR_TRACEQL_ROOT_SERVICE,
};

/* Each attribute that a query names, once. */
struct br_traceql_attribute {
    enum br_traceql_scope scope;
    enum br_traceql_intrinsic intrinsic;
    const char *name;  /* "http.status_code"; of an intrinsic as answers have it */
    const char *label; /* with its scope: "span.http.status_code" */
    size_t name_len;
    bool shown; /* a search's answer has it */
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
    BR_TRACEQL_NOT,       /* of `left` */
    BR_TRACEQL_NEGATE,    /* of `left` */
    BR_TRACEQL_VALUE,     /* `value` */
    BR_TRACEQL_ATTRIBUTE, /* number `attribute` */
};

/* A regular expression, and what it was matched with: spans have few names and many repeat. */
struct br_traceql_pattern {
    pcre2_code *code;
    struct br_map *known; /* text -> whether it matches (NULL: no entry yet); see traceql_ask.c */
};

struct br_traceql_expr {
    enum br_traceql_op op;
    const struct br_traceql_expr *left, *right;
    struct br_traceql_value value;
    uint32_t attribute;
    struct br_traceql_pattern *pattern; /* MATCHES, MATCHES_NOT; of the query */
    enum br_traceql_type type;          /* of what it gives */
};

enum br_traceql_relation {
    BR_TRACEQL_FILTER, /* `expr`; NULL: every span */
    BR_TRACEQL_BOTH,
    BR_TRACEQL_EITHER,
    BR_TRACEQL_CHILD,      /* those of `right` whose parent is in `left` */
    BR_TRACEQL_DESCENDANT, /* ... that have an ancestor in `left` */
    BR_TRACEQL_PARENT,     /* ... that have a child in `left` */
    BR_TRACEQL_ANCESTOR,   /* ... that have a descendant in `left` */
    BR_TRACEQL_SIBLING,    /* ... that have a sibling in `left` */
};

struct br_traceql_spanset {
    enum br_traceql_relation relation;
    bool negated; /* a structural relation: those of `right` that have no such relative */
    bool unites;  /* a structural relation: both relatives */
    const struct br_traceql_spanset *left, *right;
    const struct br_traceql_expr *expr;
};

enum br_traceql_aggregate {
    BR_TRACEQL_COUNT,
    BR_TRACEQL_MIN,
    BR_TRACEQL_MAX,
    BR_TRACEQL_AVG,
    BR_TRACEQL_SUM,
    BR_TRACEQL_RATE,       /* metrics alone */
    BR_TRACEQL_QUANTILE,   /* metrics alone */
    BR_TRACEQL_HISTOGRAM,  /* metrics alone */
    BR_TRACEQL_COMPARISON, /* metrics alone: compare(), query/traceql_compare.h */
};

enum br_traceql_stage_kind {
    BR_TRACEQL_STAGE_AGGREGATE, /* compared with a value */
    BR_TRACEQL_STAGE_FILTER,
    BR_TRACEQL_STAGE_BY,
    BR_TRACEQL_STAGE_COALESCE,
};

struct br_traceql_stage {
    enum br_traceql_stage_kind kind;
    const char *text; /* of AGGREGATE and BY, as answers name what a set has by them */
    /* The condition of a filter, the argument of by(), or that of an aggregate (NULL for count). */
    const struct br_traceql_expr *expr;
    enum br_traceql_aggregate aggregate;
    enum br_traceql_op compare;
    struct br_traceql_value value;
};

enum br_traceql_after_kind { BR_TRACEQL_TOPK, BR_TRACEQL_BOTTOMK, BR_TRACEQL_COMPARE };

/* A stage after a metric: it selects from the metric's lines at each step. */
struct br_traceql_after {
    enum br_traceql_after_kind kind;
    uint32_t count;             /* of the first two: lines that are left at each step */
    enum br_traceql_op compare; /* of the third */
    double value;
};

struct br_traceql_metric {
    enum br_traceql_aggregate aggregate;
    struct br_traceql_after after[BR_TRACEQL_AFTER_MAX];
    size_t n_after;
    const char *name;   /* "rate" */
    uint32_t attribute; /* what is aggregated; of RATE and COUNT nothing */
    uint32_t by[BR_TRACEQL_BY_MAX];
    size_t n_by;
    double quantiles[BR_TRACEQL_QUANTILES_MAX];
    size_t n_quantiles;
    /* compare(): the selected spans (those that start in (from, until]; 0: any), and the number of
     * values per attribute in the answer. */
    const struct br_traceql_expr *selection; /* NULL: all */
    uint64_t from_ns, until_ns;
    uint32_t top;
};

struct br_traceql {
    struct br_arena *arena; /* borrowed */
    struct br_traceql_attribute attributes[BR_TRACEQL_ATTRIBUTES_MAX];
    size_t n_attributes;
    const struct br_traceql_spanset *spansets;
    struct br_traceql_stage stages[BR_TRACEQL_STAGES_MAX];
    size_t n_stages;
    const struct br_traceql_metric *metric; /* NULL: a search */
    int32_t exemplars;                      /* with(exemplars=...); -1: not set */
    bool needs_trace;  /* a span cannot be judged without the others of its trace */
    bool needs_bytes;  /* ... nor by its row alone */
    bool needs_nested; /* nestedSetLeft or nestedSetRight, or nestedSetParent beside them */
    struct br_regex regex;
    struct br_regex_time time;
    struct br_traceql_pattern patterns[BR_TRACEQL_PATTERNS_MAX];
    size_t n_patterns;
};

/* Parses a query into `ret`, whose parts live in `arena`; to be released, also after a failure.
 * Returns 0; BR_EINVAL when it is none, BR_EUNSUPPORTED when it has what Tempo has and this has
 * not: the sentence begins with line:col, which are in `err`, too; BR_ENOMEM. */
int br_traceql_parse(struct br_traceql *ret, const char *text, size_t len, struct br_arena *arena,
                     struct br_err *err);
void br_traceql_release(struct br_traceql *query); /* accepts a zeroed one */

/* Adds an attribute to those whose values are read, as select() does: `text` is as a query has it,
 * "span.http.method". `*ret` is its index. Returns as br_traceql_parse. */
int br_traceql_select(struct br_traceql *query, const char *text, size_t len, uint32_t *ret,
                      struct br_err *err);

/* Sets, in a filter that is otherwise the caller's, what the store can use to leave out spans that
 * no trace is found by: each trace that the query finds has a span that the filter lets through;
 * and where query->needs_trace is false, each span. Needles live in the query's arena. Returns 0 or
 * BR_ENOMEM. */
int br_traceql_filter(const struct br_traceql *query, struct br_span_filter *ret);

/* --- Asking it -------------------------------------------------------------------------------- */

#define BR_TRACEQL_NO_PARENT UINT32_MAX

struct br_traceql_span {
    const struct br_stored_span *row;
    struct br_traceql_value *values; /* of the query's attributes; NULL: not read yet */
    uint32_t parent;                 /* index; BR_TRACEQL_NO_PARENT: not in the trace */
    uint32_t n_children;
    bool in; /* the query finds it */
};

/* The result of a stage for a set of spans: "count()" and its value. */
struct br_traceql_label {
    const char *name;
    struct br_traceql_value value;
    const struct br_traceql_label *before; /* of an earlier stage; NULL: none */
};

/* Spans that a query finds together. */
struct br_traceql_set {
    uint32_t *spans; /* their numbers in the trace, rising */
    uint32_t n_spans;
    const struct br_traceql_label *labels; /* the last one */
};

/* A trace as far as the store has it. */
struct br_traceql_trace {
    struct br_traceql_set *sets; /* of br_traceql_ask_trace */
    uint32_t n_sets;
    uint32_t (*nested)[2]; /* nestedSetLeft and nestedSetRight of each span; NULL: not made */
    struct br_traceql_span *spans; /* in the order of their starts */
    uint32_t n_spans, cap_spans;
    const struct br_stored_span *root; /* the first without a parent; NULL: none is here */
    uint64_t start_ns, end_ns;
    bool is_partial; /* it has more spans */
};

/* Reads a trace into `ret`, in the store's arena: at most `max_spans` of it (0: any number).
 * Returns 0, BR_EIO or BR_ENOMEM. */
int br_traceql_trace_read(struct br_traceql_trace *ret, struct br_store_query *store,
                          const uint8_t trace_id[16], uint32_t max_spans, struct br_err *err);

/* Says of each span of a trace whether the query finds it (span->in), and whether any is, and sets
 * the trace's sets, in the store's arena. Returns
 * 0; BR_ETOOBIG when a regular expression takes too long; BR_EIO; BR_ENOMEM. */
int br_traceql_ask_trace(struct br_traceql *query, struct br_store_query *store,
                         struct br_traceql_trace *trace, bool *ret_any, struct br_err *err);

/* Asks a query of a span alone, one that does not need the trace. */
int br_traceql_ask_span(struct br_traceql *query, struct br_store_query *store,
                        struct br_traceql_span *span, bool *ret, struct br_err *err);

/* Says whether an expression of the query (NULL: true) holds for a span of a trace. As
 * br_traceql_ask_span. */
int br_traceql_holds(struct br_traceql *query, struct br_store_query *store,
                     struct br_traceql_trace *trace, struct br_traceql_span *span,
                     const struct br_traceql_expr *expr, bool *ret, struct br_err *err);

/* Reads the values of all attributes that the query names, where that was not done. `trace` may be
 * NULL for a query that does not need it. Values live in the store's arena. As br_traceql_ask_span.
 */
int br_traceql_read_span(const struct br_traceql *query, struct br_store_query *store,
                         struct br_traceql_span *span, const struct br_traceql_trace *trace,
                         struct br_err *err);
