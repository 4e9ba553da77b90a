/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles of a span, its local subtree or trace, or of a selection of series over a range of time;
 * functions of one, and the difference of two.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "extensions/query/braid.h"
#include "query/id.h"

#define LIMIT_DEFAULT 20
#define LIMIT_MAX 10000
#define AROUND_NS                                                                                  \
    (60 * BRAID_SECOND_NS) /* of a span, where its service's samples are looked for                \
                            */
#define NESTED_MAX 8192    /* bytes of a selection inside a query */
#define NESTED_PARAMS_MAX 32
#define WHY_MAX 400

/* --- Selections ------------------------------------------------------------------------------- */

enum profile_scope { SCOPE_SELF, SCOPE_SUBTREE, SCOPE_TRACE };

/* What is asked for, and what was found there. */
struct profile_ask {
    struct query_pick pick;
    bool of_span;
    enum profile_scope scope;
    uint64_t span_id;
    uint8_t trace_id[16];
    const char *type; /* NULL: none is asked for */
    struct br_stored_span span;
    bool found;                 /* the span is stored */
    struct br_stored_span root; /* the first span of its service above it; span_id 0: itself */
    const struct br_stored_span *why; /* whose samples explain why it has none; NULL: nobody's */
    struct query_braid_types types;
    struct query_braid_figures sums;
    size_t chosen; /* type; BRAID_TYPES_MAX: none */
};

static bool profile_read_scope(struct query_job *job, struct profile_ask *ask)
{
    static const char *const names[] = {"self", "subtree", "trace"};
    const char *text = query_job_param(job, "scope");
    for (unsigned i = 0; i < BR_COUNT(names); i++)
        if (!strcmp(text && *text ? text : "self", names[i])) {
            ask->scope = (enum profile_scope)i;
            return true;
        }
    query_job_fail(job, 400, "invalid scope: must be self, subtree or trace, got \"%.40s\"", text);
    return false;
}

static bool profile_read_ids(struct query_job *job, const char *trace, const char *span,
                             struct profile_ask *ask)
{
    ask->of_span = true;
    if (!profile_read_scope(job, ask))
        return false;
    bool whole = ask->scope == SCOPE_TRACE && !*span; /* whichever span */
    if (!br_id_parse(trace, strlen(trace), ask->trace_id, sizeof ask->trace_id))
        query_job_fail(job, 400, "invalid trace id: must be 32 hex digits, or base64");
    else if (!whole && !br_span_id_parse(span, strlen(span), &ask->span_id))
        query_job_fail(job, 400, "invalid span id: must be 16 hex digits, or base64");
    else
        return true;
    return false;
}

/* The first span above a row that is of its service without a gap. */
static const struct query_braid_row *profile_local_root(const struct query_braid_rows *rows,
                                                        const struct query_braid_row *row)
{
    size_t left = rows->count;
    while (row->parent != UINT32_MAX && left-- > 0 &&
           !strcmp(rows->rows[row->parent].span.service, row->span.service))
        row = &rows->rows[row->parent];
    return row;
}

/* The span's trace, and of it the ids that the scope takes in. */
static int profile_pick_span(struct query_job *job, struct profile_ask *ask, struct br_err *err)
{
    struct query_braid_rows rows = {.job = job};
    int rc = query_braid_read_trace(&rows, ask->trace_id, err);
    const struct query_braid_row *row = rc ? NULL : query_braid_find(&rows, ask->span_id);
    ask->found = row != NULL;
    if (row)
        ask->span = row->span;
    if (row && profile_local_root(&rows, row) != row)
        ask->root = profile_local_root(&rows, row)->span;
    if (!rc)
        rc = query_pick_add_trace(job, &ask->pick, ask->trace_id);
    if (!rc && ask->scope == SCOPE_SUBTREE && row)
        rc = query_braid_pick_subtree(&rows, row, &ask->pick);
    else if (!rc && ask->scope != SCOPE_TRACE)
        rc = query_pick_add_span(job, &ask->pick, ask->span_id);
    query_braid_rows_release(&rows);
    return rc;
}

static bool profile_read_selection(struct query_job *job, struct profile_ask *ask)
{
    const char *text = query_job_param(job, "query"), *trace = query_job_param(job, "trace");
    const char *span = query_job_param(job, "span");
    struct br_err err = {0};
    int rc;
    if (trace && *trace) {
        if (!profile_read_ids(job, trace, span ? span : "", ask))
            return false;
        rc = profile_pick_span(job, ask, &err);
    } else if (!text) {
        query_job_fail(job, 400, "query (a label selector), or trace and span, must be there");
        return false;
    } else {
        if (!query_braid_range(job, &ask->pick.from_ns, &ask->pick.until_ns))
            return false;
        rc = query_pick_add_query(job, &ask->pick, text, strlen(text), &err);
        if (!rc && ask->pick.type.id)
            ask->type = ask->pick.type.id;
    }
    if (rc)
        query_job_fail_rc(job, rc, &err);
    return !rc;
}

/* --- Types ------------------------------------------------------------------------------------ */

struct profile_adder {
    struct query_job *job;
    struct profile_ask *ask;
    int rc;
};

static bool profile_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct profile_adder *adder = arg;
    adder->rc =
        query_braid_add(adder->job, &adder->ask->sums,
                        query_braid_type(adder->job, &adder->ask->types, samples->series->type),
                        samples->count, samples->value);
    return !adder->rc && query_pick_goes_on(adder->job);
}

/* An id of three parts stands for the first of its types. */
static size_t profile_find_type(const struct profile_ask *ask)
{
    size_t len = strlen(ask->pick.type.id);
    for (size_t i = 0; i < ask->types.count; i++)
        if (!strncmp(ask->types.ids[i], ask->pick.type.id, len) &&
            (ask->types.ids[i][len] == '\0' ||
             (!ask->pick.type.whole && ask->types.ids[i][len] == ':')))
            return i;
    return BRAID_TYPES_MAX;
}

/* Lists the types of the samples, and chooses the one that is shown. */
static int profile_choose(struct query_job *job, struct profile_ask *ask, struct br_err *err)
{
    struct profile_adder adder = {.job = job, .ask = ask};
    const char *type = query_job_param(job, "type");
    struct query_pick all = ask->pick;
    int rc = 0;
    if (type && *type) {
        rc = query_pick_set_type(job, &ask->pick, type, strlen(type), err);
        ask->type = type;
    }
    all.type = (struct br_profile_type){0};
    if (!rc)
        rc = query_pick_samples(job, &all, 0, profile_on_samples, &adder, err);
    if (!rc)
        rc = adder.rc;
    if (rc)
        return rc;
    ask->chosen =
        ask->type ? profile_find_type(ask) : query_braid_main_type(&ask->types, &ask->sums);
    if (ask->chosen == BRAID_TYPES_MAX)
        return 0;
    const char *id = ask->types.ids[ask->chosen];
    return query_pick_set_type(job, &ask->pick, id, strlen(id), err);
}

static struct query_braid_sum profile_sum(const struct profile_ask *ask, size_t type)
{
    return type < ask->sums.n_types ? ask->sums.types[type] : (struct query_braid_sum){0};
}

static void profile_put_types(struct query_job *job, const struct profile_ask *ask)
{
    struct br_str *out = &job->out;
    bool more = false;
    br_str_puts(out, "{\"types\":[");
    for (size_t i = 0; i < ask->types.count; i++) {
        struct br_profile_type type;
        struct query_braid_sum sum = profile_sum(ask, i);
        const char *id = ask->types.ids[i];
        if (!sum.samples || br_profile_type_parse(id, strlen(id), &job->arena, &type, NULL))
            continue;
        if (more)
            br_str_putc(out, ',');
        query_put_text(out, '{', "id", id);
        query_put_text(out, ',', "name", type.type);
        query_put_text(out, ',', "unit", type.unit);
        br_str_printf(out, ",\"samples\":%" PRIu64, sum.samples);
        if (br_profile_type_is_gauge(&type))
            br_str_puts(out, ",\"total\":null}");
        else
            br_str_printf(out, ",\"total\":%" PRId64 "}", sum.value);
        more = true;
    }
    br_str_putc(out, ']');
}

static void profile_put_type(struct query_job *job, char before, const struct query_pick *pick)
{
    query_put_text(&job->out, before, "type", pick->type.id ? pick->type.id : "");
    query_put_text(&job->out, ',', "unit", pick->type.id ? pick->type.unit : "");
    query_put_average(job, pick);
}

/* --- Why there is nothing --------------------------------------------------------------------- */

/* Samples of a service around a span. */
struct profile_near {
    struct query_job *job;
    uint64_t samples, with_span, of_root;
    uint64_t period_ns; /* greatest common divisor of all CPU times; 0: without CPU samples */
};

static uint64_t profile_common_divisor(uint64_t larger, uint64_t smaller)
{
    while (smaller) {
        uint64_t rest = larger % smaller;
        larger = smaller;
        smaller = rest;
    }
    return larger;
}

static bool profile_on_near(const struct br_stored_samples *samples, void *arg)
{
    struct profile_near *near = arg;
    near->samples += samples->count;
    if (samples->span_id)
        near->with_span += samples->count;
    if (query_braid_is_cpu(samples->series->type) && samples->value > 0)
        near->period_ns = profile_common_divisor(near->period_ns, (uint64_t)samples->value);
    return query_pick_goes_on(near->job);
}

static bool profile_on_root(const struct br_stored_samples *samples, void *arg)
{
    struct profile_near *near = arg;
    near->of_root += samples->count;
    return query_pick_goes_on(near->job);
}

/* Counts the samples that name the first span of the service in the request. */
static int profile_look_at_root(struct query_job *job, const struct profile_ask *ask,
                                struct profile_near *near, struct br_err *err)
{
    struct query_pick pick = {0};
    if (!ask->root.span_id)
        return 0;
    int rc = query_pick_add_trace(job, &pick, ask->trace_id);
    if (!rc)
        rc = query_pick_add_span(job, &pick, ask->root.span_id);
    return rc ? rc : query_pick_samples(job, &pick, 0, profile_on_root, near, err);
}

static int profile_look_near(struct query_job *job, const struct br_stored_span *span,
                             struct profile_near *near, struct br_err *err)
{
    struct query_pick pick = {0};
    const struct br_matcher service = {"service_name", span->service, BR_MATCH_EQUAL};
    pick.from_ns = span->start_ns > AROUND_NS ? span->start_ns - AROUND_NS : 0;
    pick.until_ns = span->start_ns + span->duration_ns + AROUND_NS;
    int rc = query_pick_add_matcher(job, &pick, &service, err);
    return rc ? rc : query_pick_samples(job, &pick, 0, profile_on_near, near, err);
}

/* A time for people: three digits or so. */
static const char *profile_time(char text[32], uint64_t ns)
{
    static const struct {
        uint64_t ns;
        const char *name;
    } units[] = {{BRAID_SECOND_NS, "s"}, {1000000, "ms"}, {1000, "\u00b5s"}, {1, "ns"}};
    size_t i = 0;
    while (i < BR_COUNT(units) - 1 && ns < units[i].ns)
        i++;
    double value = (double)ns / (double)units[i].ns;
    (void)snprintf(text, 32, value < 10 ? "%.3g %s" : "%.0f %s", value, units[i].name);
    return text;
}

/* Below it no common divisor is a sampling interval: values were measured, not counted. */
#define PERIOD_MIN_NS 100000

static void profile_explain(const struct profile_ask *ask, const struct profile_near *near,
                            char why[WHY_MAX])
{
    const struct br_stored_span *span = &ask->span;
    char lasted[32], interval[32];
    uint64_t interval_ns = near->period_ns >= PERIOD_MIN_NS ? near->period_ns : 0;
    (void)profile_time(lasted, span->duration_ns);
    (void)profile_time(interval, interval_ns);
    if (!near->samples)
        (void)snprintf(why, WHY_MAX,
                       "no samples: no profile of %.60s came within a minute of this span; is its "
                       "profiler on, and does it send to Braid?",
                       span->service);
    else if (!near->with_span)
        (void)snprintf(why, WHY_MAX,
                       "profiles of %.60s come without span ids: let its profiler set the labels "
                       "span_id and trace_id (an SDK's span profiles do), or turn `infer` of the "
                       "processor join on",
                       span->service);
    else if (interval_ns && span->duration_ns < 2 * interval_ns)
        (void)snprintf(why, WHY_MAX, "no samples: this span lasted %s, one sampling interval is %s",
                       lasted, interval);
    else if (near->of_root)
        (void)snprintf(
            why, WHY_MAX,
            "no samples name this span, and %" PRIu64
            " name \"%.60s\", the first span of %.60s in this request: this span waited, "
            "or the profiler labels first spans only (see docs/using/recipes.md)",
            near->of_root, ask->root.name, span->service);
    else
        (void)snprintf(why, WHY_MAX,
                       "no samples: this span lasted %s, and nothing of it was sampled: it waited, "
                       "or other spans worked for it",
                       lasted);
}

/* The sentence, or NULL where there are samples. */
static int profile_why_empty(struct query_job *job, struct profile_ask *ask, char why[WHY_MAX],
                             const char **ret, struct br_err *err)
{
    struct profile_near near = {.job = job};
    *ret = NULL;
    if (profile_sum(ask, ask->chosen).samples)
        return 0;
    *ret = why;
    if (ask->type && ask->types.count) {
        (void)snprintf(why, WHY_MAX, "no samples of this type; there are some of %.100s",
                       ask->types.ids[0]);
        return 0;
    }
    if (!ask->of_span) {
        (void)snprintf(why, WHY_MAX,
                       "no samples: nothing that the selector matches came in this "
                       "range of time");
        return 0;
    }
    if (!ask->span_id) {
        (void)snprintf(why, WHY_MAX, "no samples of this trace");
        return 0;
    }
    if (!ask->found) {
        (void)snprintf(why, WHY_MAX,
                       "no samples, and this span is not stored: it has not come yet, "
                       "or is older than what is kept");
        return 0;
    }
    int rc = profile_look_near(job, &ask->span, &near, err);
    if (!rc)
        rc = profile_look_at_root(job, ask, &near, err);
    if (rc)
        return rc;
    profile_explain(ask, &near, why);
    ask->why = near.of_root ? &ask->root : NULL;
    return 0;
}

/* --- Answers ---------------------------------------------------------------------------------- */

static int profile_put_flame(struct query_job *job, struct br_flame *flame, bool diff,
                             uint64_t max_nodes)
{
    struct br_flamebearer flamebearer;
    br_flame_total(flame);
    int rc = br_flamebearer_make(flame, (uint32_t)max_nodes, diff, &job->arena, &flamebearer);
    if (rc)
        return rc;
    br_str_puts(&job->out, ",\"flamebearer\":");
    br_flamebearer_json(&job->out, &flamebearer, true);
    return 0;
}

static int profile_answer(struct query_job *job, struct profile_ask *ask, struct br_err *err)
{
    char why[WHY_MAX];
    const char *why_empty;
    struct br_flame flame;
    uint64_t max_nodes;
    if (!query_job_number(job, "max_nodes", QUERY_BRAID_NODES_MAX, QUERY_FLAMEBEARER_NODES_TOP,
                          &max_nodes))
        return BR_EINVAL;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc && ask->chosen < BRAID_TYPES_MAX)
        rc = query_pick_flame(job, &ask->pick, &flame, err);
    profile_put_types(job, ask);
    profile_put_type(job, ',', &ask->pick);
    if (!rc)
        rc = profile_put_flame(job, &flame, false, max_nodes);
    br_flame_release(&flame);
    if (!rc)
        rc = profile_why_empty(job, ask, why, &why_empty, err);
    if (rc)
        return rc;
    br_str_printf(&job->out, ",\"samples\":%" PRIu64, profile_sum(ask, ask->chosen).samples);
    if (why_empty)
        query_put_text(&job->out, ',', "why_empty", why_empty);
    else
        br_str_puts(&job->out, ",\"why_empty\":null");
    if (ask->why)
        query_braid_put_span(&job->out, ',', "why_span", ask->why->span_id);
    else
        br_str_puts(&job->out, ",\"why_span\":null");
    return 0;
}

static void profile_answer_any(struct query_job *job, struct profile_ask *ask)
{
    const char *format = query_job_param(job, "format");
    bool bars = !format || !*format || !strcmp(format, "flamebearer");
    struct br_err err = {0};
    if (!bars && !query_is_file_format(format)) {
        query_answer_file(job, &ask->pick, format);
        return;
    }
    int rc = profile_choose(job, ask, &err);
    if (rc) {
        query_job_fail_rc(job, rc, &err);
        return;
    }
    if (!bars && ask->chosen == BRAID_TYPES_MAX) {
        query_job_fail(job, 404, "there are no samples to make a file of");
        return;
    }
    if (!bars) {
        query_answer_file(job, &ask->pick, format);
        return;
    }
    rc = profile_answer(job, ask, &err);
    if (job->status == 200)
        query_braid_end(job, rc, &err);
}

void query_braid_span_profile(struct query_job *job)
{
    struct profile_ask ask = {.chosen = BRAID_TYPES_MAX};
    struct br_err err = {0};
    if (!profile_read_ids(job, job->parts[0], job->parts[1], &ask))
        return;
    int rc = profile_pick_span(job, &ask, &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        profile_answer_any(job, &ask);
}

void query_braid_profile(struct query_job *job)
{
    struct profile_ask ask = {.chosen = BRAID_TYPES_MAX};
    if (profile_read_selection(job, &ask))
        profile_answer_any(job, &ask);
}

void query_braid_top(struct query_job *job)
{
    struct profile_ask ask = {.chosen = BRAID_TYPES_MAX};
    const char *sort = query_job_param(job, "sort");
    struct br_err err = {0};
    uint64_t limit;
    bool by_total = sort && !strcmp(sort, "total");
    if (sort && *sort && !by_total && strcmp(sort, "self") != 0) {
        query_job_fail(job, 400, "invalid sort: must be self or total, got \"%.40s\"", sort);
        return;
    }
    if (!query_job_number(job, "limit", LIMIT_DEFAULT, LIMIT_MAX, &limit) ||
        !profile_read_selection(job, &ask))
        return;
    int rc = profile_choose(job, &ask, &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        query_answer_functions(job, &ask.pick, (uint32_t)(limit ? limit : LIMIT_DEFAULT),
                               by_total ? BR_FUNCTIONS_BY_TOTAL : BR_FUNCTIONS_BY_SELF);
}

/* --- Differences ------------------------------------------------------------------------------ */

/* In place; false for a broken escape or a zero byte. */
static bool profile_decode(char *text)
{
    long n = br_percent_decode(text, strlen(text), true, text);
    if (n < 0 || memchr(text, '\0', (size_t)n))
        return false;
    text[n] = '\0';
    return true;
}

/* The parameters of a query string that is itself a parameter. */
static bool profile_read_nested(struct query_job *job, const char *name,
                                struct query_param params[NESTED_PARAMS_MAX], size_t *ret_n)
{
    const char *text = query_job_param(job, name);
    size_t len = text ? strlen(text) : 0, count = 0;
    char *copy = len && len <= NESTED_MAX ? br_arena_strndup(&job->arena, text, len) : NULL;
    if (!copy) {
        query_job_fail(job, 400,
                       "%s must be a query string of `profile`, percent-encoded, of at "
                       "most %d bytes",
                       name, NESTED_MAX);
        return false;
    }
    for (char *part; (part = strsep(&copy, "&"));) {
        char *value = strchr(part, '=');
        if (!value)
            continue;
        *value++ = '\0';
        if (count == NESTED_PARAMS_MAX || !profile_decode(part) || !profile_decode(value)) {
            query_job_fail(job, 400, "%s has a broken escape, or too many parameters", name);
            return false;
        }
        params[count++] = (struct query_param){part, value, strlen(value)};
    }
    *ret_n = count;
    return true;
}

static bool profile_read_side(struct query_job *job, const char *name, struct profile_ask *ask)
{
    const struct query_param *outer = job->params;
    size_t n_outer = job->n_params;
    struct query_param *params = br_arena_calloc(&job->arena, NESTED_PARAMS_MAX, sizeof *params);
    if (!params) {
        query_job_fail_rc(job, br_arena_why(&job->arena), NULL);
        return false;
    }
    if (!profile_read_nested(job, name, params, &job->n_params))
        return false;
    job->params = params;
    bool ok = profile_read_selection(job, ask);
    job->params = outer;
    job->n_params = n_outer;
    return ok;
}

static int profile_diff_sides(struct query_job *job, struct profile_ask asks[BR_FLAME_SIDES],
                              struct br_flame *flame, struct br_err *err)
{
    int rc = profile_choose(job, &asks[0], err);
    if (!rc)
        rc = profile_choose(job, &asks[1], err);
    if (rc)
        return rc;
    /* a side that has nothing, or was not asked for a type, goes by the other */
    unsigned main_side = asks[0].chosen == BRAID_TYPES_MAX || asks[1].type;
    const struct br_profile_type *type = &asks[main_side].pick.type;
    for (unsigned side = 0; side < BR_FLAME_SIDES && !rc && type->id; side++) {
        asks[side].pick.type = *type;
        asks[side].chosen = profile_find_type(&asks[side]);
        flame->side = side;
        rc = query_pick_flame(job, &asks[side].pick, flame, err);
    }
    return rc;
}

void query_braid_diff(struct query_job *job)
{
    static const char *const names[BR_FLAME_SIDES] = {"left", "right"};
    struct profile_ask asks[BR_FLAME_SIDES] = {{.chosen = BRAID_TYPES_MAX},
                                               {.chosen = BRAID_TYPES_MAX}};
    struct br_flame flame;
    struct br_err err = {0};
    uint64_t max_nodes;
    if (!query_job_number(job, "max_nodes", QUERY_BRAID_NODES_MAX, QUERY_FLAMEBEARER_NODES_TOP,
                          &max_nodes) ||
        !profile_read_side(job, names[0], &asks[0]) || !profile_read_side(job, names[1], &asks[1]))
        return;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = profile_diff_sides(job, asks, &flame, &err);
    profile_put_type(job, '{', &asks[0].pick);
    if (!rc)
        rc = profile_put_flame(job, &flame, true, max_nodes);
    for (unsigned side = 0; side < BR_FLAME_SIDES && !rc; side++)
        br_str_printf(&job->out, ",\"%s\":{\"total\":%" PRId64 ",\"samples\":%" PRIu64 "}",
                      names[side], flame.nodes[0].total[side],
                      profile_sum(&asks[side], asks[side].chosen).samples);
    br_flame_release(&flame);
    query_braid_end(job, rc, &err);
}
