/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responds with profiles: of a span, its local subtree or its trace, or of series selected in a
 * time range. Also responds with the functions of a profile, and with the difference of two
 * profiles.
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
/* samples of the service are searched from this number of nanoseconds before a span until this
 * number of nanoseconds after it */
#define AROUND_NS (60 * BRAID_SECOND_NS)
#define NESTED_MAX                                                                                 \
    8192 /* maximum number of bytes of a selection that is passed as one parameter                 \
          */
#define NESTED_PARAMS_MAX 32
#define WHY_MAX 400

/* --- Selections ------------------------------------------------------------------------------ */

enum profile_scope { SCOPE_SELF, SCOPE_SUBTREE, SCOPE_TRACE };

/* A request for a profile, and the data found for the request. */
struct profile_request {
    struct query_selection selection;
    bool of_span;
    enum profile_scope scope;
    const char *service; /* only with SCOPE_TRACE: selects the spans of this service; or NULL */
    uint64_t span_id;
    uint8_t trace_id[16];
    const char *type; /* profile type in the request; NULL: the request has no profile type */
    struct br_stored_span span;
    bool found; /* true: the store contains the span */
    /* topmost ancestor of the span that is reached through spans of the same service; its
     * span_id is 0 if the span itself is the topmost */
    struct br_stored_span root;
    /* span whose samples explain why the requested span has none; NULL: no span explains why
     * there are no samples */
    const struct br_stored_span *why;
    struct query_braid_types types;
    struct query_braid_figures sums;
    size_t chosen; /* index of the profile type that is shown; BRAID_TYPES_MAX: none */
};

static bool profile_read_scope(struct query_job *job, struct profile_request *request)
{
    static const char *const names[] = {"self", "subtree", "trace"};
    const char *text = query_job_param(job, "scope");
    for (unsigned i = 0; i < BR_COUNT(names); i++)
        if (!strcmp(text && *text ? text : "self", names[i])) {
            request->scope = (enum profile_scope)i;
            return true;
        }
    query_job_fail(job, 400, "invalid scope: must be self, subtree or trace, got \"%.40s\"", text);
    return false;
}

static bool profile_read_ids(struct query_job *job, const char *trace, const char *span,
                             struct profile_request *request)
{
    const char *service = query_job_param(job, "service");
    request->of_span = true;
    if (!profile_read_scope(job, request))
        return false;
    request->service = service && *service ? service : NULL;
    if (request->service && request->scope != SCOPE_TRACE) {
        query_job_fail(job, 400, "service is only possible with scope=trace");
        return false;
    }
    /* the span id may be empty if the whole trace is requested */
    bool whole = request->scope == SCOPE_TRACE && !*span;
    if (!br_id_parse(trace, strlen(trace), request->trace_id, sizeof request->trace_id))
        query_job_fail(job, 400, "invalid trace id: must be 32 hex digits or base64");
    else if (!whole && !br_span_id_parse(span, strlen(span), &request->span_id))
        query_job_fail(job, 400, "invalid span id: must be 16 hex digits or base64");
    else
        return true;
    return false;
}

/* Returns the topmost ancestor of a row that is reached through rows of the same service.
 * Returns the row itself if its parent belongs to another service or is missing. */
static const struct query_braid_row *profile_local_root(const struct query_braid_rows *rows,
                                                        const struct query_braid_row *row)
{
    size_t left = rows->count;
    while (row->parent != UINT32_MAX && left-- > 0 &&
           !strcmp(rows->rows[row->parent].span.service, row->span.service))
        row = &rows->rows[row->parent];
    return row;
}

/* Selects the spans of the service. An empty list of span ids would select the whole trace. */
static int profile_select_service(struct query_job *job, const struct query_braid_rows *rows,
                                  struct profile_request *request, struct br_err *err)
{
    int rc = 0;
    bool found = false;
    for (size_t i = 0; !rc && i < rows->count; i++) {
        const struct br_stored_span *span = &rows->rows[i].span;
        if (strcmp(span->service, request->service) != 0)
            continue;
        found = true;
        rc = query_selection_add_span(job, &request->selection, span->span_id);
    }
    if (!rc && !found)
        return br_err_set(err, BR_EINVAL, "no span of the trace is of service \"%.100s\"",
                          request->service);
    return rc;
}

/* Reads the span's trace, and selects the span ids within the scope. */
static int profile_select_span(struct query_job *job, struct profile_request *request,
                               struct br_err *err)
{
    struct query_braid_rows rows = {.job = job};
    int rc = query_braid_read_trace(&rows, request->trace_id, err);
    const struct query_braid_row *row = rc ? NULL : query_braid_find(&rows, request->span_id);
    request->found = row != NULL;
    if (row)
        request->span = row->span;
    if (row && profile_local_root(&rows, row) != row)
        request->root = profile_local_root(&rows, row)->span;
    if (!rc)
        rc = query_selection_add_trace(job, &request->selection, request->trace_id);
    if (!rc && request->service)
        rc = profile_select_service(job, &rows, request, err);
    else if (!rc && request->scope == SCOPE_SUBTREE && row)
        rc = query_braid_select_subtree(&rows, row, &request->selection);
    else if (!rc && request->scope != SCOPE_TRACE)
        rc = query_selection_add_span(job, &request->selection, request->span_id);
    query_braid_rows_release(&rows);
    return rc;
}

static bool profile_read_selection(struct query_job *job, struct profile_request *request)
{
    const char *text = query_job_param(job, "query"), *trace = query_job_param(job, "trace");
    const char *span = query_job_param(job, "span");
    struct br_err err = {0};
    int rc;
    if (trace && *trace) {
        if (!profile_read_ids(job, trace, span ? span : "", request))
            return false;
        rc = profile_select_span(job, request, &err);
    } else if (!text) {
        query_job_fail(job, 400,
                       "missing parameter: set query (a label selector), or trace and span");
        return false;
    } else {
        if (!query_braid_range(job, &request->selection.from_ns, &request->selection.until_ns))
            return false;
        rc = query_selection_add_query(job, &request->selection, text, strlen(text), &err);
        if (!rc && request->selection.type.id)
            request->type = request->selection.type.id;
    }
    if (rc)
        query_job_fail_rc(job, rc, &err);
    return !rc;
}

/* --- Types ----------------------------------------------------------------------------------- */

struct profile_adder {
    struct query_job *job;
    struct profile_request *request;
    int rc;
};

static bool profile_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct profile_adder *adder = arg;
    adder->rc =
        query_braid_add(adder->job, &adder->request->sums,
                        query_braid_type(adder->job, &adder->request->types, samples->series->type),
                        samples->count, samples->value);
    return !adder->rc && query_job_may_continue(adder->job);
}

/* Returns the index of the profile type in the request. A type id of three parts matches the
 * first type that begins with these parts. */
static size_t profile_find_type(const struct profile_request *request)
{
    size_t len = strlen(request->selection.type.id);
    for (size_t i = 0; i < request->types.count; i++)
        if (!strncmp(request->types.ids[i], request->selection.type.id, len) &&
            (request->types.ids[i][len] == '\0' ||
             (!request->selection.type.whole && request->types.ids[i][len] == ':')))
            return i;
    return BRAID_TYPES_MAX;
}

/* Lists the profile types of the samples, and chooses the type to show. */
static int profile_choose(struct query_job *job, struct profile_request *request,
                          struct br_err *err)
{
    struct profile_adder adder = {.job = job, .request = request};
    const char *type = query_job_param(job, "type");
    struct query_selection all = request->selection;
    int rc = 0;
    if (type && *type) {
        rc = query_selection_set_type(job, &request->selection, type, strlen(type), err);
        request->type = type;
    }
    all.type = (struct br_profile_type){0};
    if (!rc)
        rc = query_selection_samples(job, &all, 0, profile_on_samples, &adder, err);
    if (!rc)
        rc = adder.rc;
    if (rc)
        return rc;
    request->chosen = request->type ? profile_find_type(request)
                                    : query_braid_main_type(&request->types, &request->sums);
    if (request->chosen == BRAID_TYPES_MAX)
        return 0;
    const char *id = request->types.ids[request->chosen];
    return query_selection_set_type(job, &request->selection, id, strlen(id), err);
}

static struct query_braid_sum profile_sum(const struct profile_request *request, size_t type)
{
    return type < request->sums.n_types ? request->sums.types[type] : (struct query_braid_sum){0};
}

static void profile_put_types(struct query_job *job, const struct profile_request *request)
{
    struct br_str *out = &job->out;
    bool more = false;
    br_str_puts(out, "{\"types\":[");
    for (size_t i = 0; i < request->types.count; i++) {
        struct br_profile_type type;
        struct query_braid_sum sum = profile_sum(request, i);
        const char *id = request->types.ids[i];
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

static void profile_put_type(struct query_job *job, char before,
                             const struct query_selection *selection)
{
    query_put_text(&job->out, before, "type", selection->type.id ? selection->type.id : "");
    query_put_text(&job->out, ',', "unit", selection->type.id ? selection->type.unit : "");
    query_put_average(job, selection);
}

/* --- Reasons for an empty result ------------------------------------------------------------- */

/* Numbers of samples of a service near the time of a span: all, those that name a span, and those
 * that name the topmost span. */
struct profile_near {
    struct query_job *job;
    uint64_t samples, with_span, of_root;
    /* greatest common divisor of the CPU times of the samples; 0: there are no samples of CPU
     * time */
    uint64_t period_ns;
};

static uint64_t profile_common_divisor(uint64_t larger, uint64_t smaller)
{
    while (smaller) {
        uint64_t remainder = larger % smaller;
        larger = smaller;
        smaller = remainder;
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
    return query_job_may_continue(near->job);
}

static bool profile_on_root(const struct br_stored_samples *samples, void *arg)
{
    struct profile_near *near = arg;
    near->of_root += samples->count;
    return query_job_may_continue(near->job);
}

/* Counts the samples of request->root, the topmost span of the service. */
static int profile_count_root(struct query_job *job, const struct profile_request *request,
                              struct profile_near *near, struct br_err *err)
{
    struct query_selection selection = {0};
    if (!request->root.span_id)
        return 0;
    int rc = query_selection_add_trace(job, &selection, request->trace_id);
    if (!rc)
        rc = query_selection_add_span(job, &selection, request->root.span_id);
    return rc ? rc : query_selection_samples(job, &selection, 0, profile_on_root, near, err);
}

static int profile_count_near(struct query_job *job, const struct br_stored_span *span,
                              struct profile_near *near, struct br_err *err)
{
    struct query_selection selection = {0};
    const struct br_matcher service = {"service_name", span->service, BR_MATCH_EQUAL};
    selection.from_ns = span->start_ns > AROUND_NS ? span->start_ns - AROUND_NS : 0;
    selection.until_ns = span->start_ns + span->duration_ns + AROUND_NS;
    int rc = query_selection_add_matcher(job, &selection, &service, err);
    return rc ? rc : query_selection_samples(job, &selection, 0, profile_on_near, near, err);
}

/* Formats a duration for people, with a unit and about three digits. */
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

/* Smallest common divisor of CPU times, in nanoseconds, that is considered a sampling interval.
 * If the divisor is smaller, the CPU times were measured, not sampled. */
#define PERIOD_MIN_NS 100000

static void profile_explain(const struct profile_request *request, const struct profile_near *near,
                            char why[WHY_MAX])
{
    const struct br_stored_span *span = &request->span;
    char lasted[32], interval[32];
    uint64_t interval_ns = near->period_ns >= PERIOD_MIN_NS ? near->period_ns : 0;
    (void)profile_time(lasted, span->duration_ns);
    (void)profile_time(interval, interval_ns);
    if (!near->samples)
        (void)snprintf(
            why, WHY_MAX,
            "no samples: no profile of %.60s arrived within a minute of this span; is its "
            "profiler on, and does it send to Braid?",
            span->service);
    else if (!near->with_span)
        (void)snprintf(
            why, WHY_MAX,
            "profiles of %.60s have no span ids: make its profiler set the labels "
            "span_id and trace_id (as an SDK's span profiles do), or enable `infer` of the "
            "processor join",
            span->service);
    else if (interval_ns && span->duration_ns < 2 * interval_ns)
        (void)snprintf(why, WHY_MAX, "no samples: this span lasted %s, one sampling interval is %s",
                       lasted, interval);
    else if (near->of_root)
        (void)snprintf(
            why, WHY_MAX,
            "no samples name this span, but %" PRIu64
            " name \"%.60s\", the first span of %.60s in this request: this span waited, "
            "or the profiler labels only first spans (see docs/using/recipes.md)",
            near->of_root, request->root.name, span->service);
    else
        (void)snprintf(why, WHY_MAX,
                       "no samples: this span lasted %s without being sampled: it waited, "
                       "or other spans worked for it",
                       lasted);
}

/* Stores in `*ret` a text that explains why the result is empty, or NULL if there are samples.
 * Returns 0 or an error code. */
static int profile_why_empty(struct query_job *job, struct profile_request *request,
                             char why[WHY_MAX], const char **ret, struct br_err *err)
{
    struct profile_near near = {.job = job};
    *ret = NULL;
    if (profile_sum(request, request->chosen).samples)
        return 0;
    *ret = why;
    if (request->type && request->types.count) {
        (void)snprintf(why, WHY_MAX, "no samples of this type, but of %.100s",
                       request->types.ids[0]);
        return 0;
    }
    if (!request->of_span) {
        (void)snprintf(why, WHY_MAX,
                       "no samples: no profile that matches the selector arrived in this "
                       "range of time");
        return 0;
    }
    if (!request->span_id) {
        (void)snprintf(why, WHY_MAX, "no samples of this trace");
        return 0;
    }
    if (!request->found) {
        (void)snprintf(why, WHY_MAX,
                       "no samples, and this span is not stored: it has not arrived yet, "
                       "or was deleted because of its age");
        return 0;
    }
    int rc = profile_count_near(job, &request->span, &near, err);
    if (!rc)
        rc = profile_count_root(job, request, &near, err);
    if (rc)
        return rc;
    profile_explain(request, &near, why);
    request->why = near.of_root ? &request->root : NULL;
    return 0;
}

/* --- Responses ------------------------------------------------------------------------------- */

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

static int profile_respond(struct query_job *job, struct profile_request *request,
                           struct br_err *err)
{
    char why[WHY_MAX];
    const char *why_empty;
    struct br_flame flame;
    uint64_t max_nodes;
    if (!query_job_number(job, "max_nodes", QUERY_BRAID_NODES_MAX, QUERY_FLAMEBEARER_NODES_TOP,
                          &max_nodes))
        return BR_EINVAL;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc && request->chosen < BRAID_TYPES_MAX)
        rc = query_selection_flame(job, &request->selection, &flame, err);
    profile_put_types(job, request);
    profile_put_type(job, ',', &request->selection);
    if (!rc)
        rc = profile_put_flame(job, &flame, false, max_nodes);
    br_flame_release(&flame);
    if (!rc)
        rc = profile_why_empty(job, request, why, &why_empty, err);
    if (rc)
        return rc;
    br_str_printf(&job->out, ",\"samples\":%" PRIu64,
                  profile_sum(request, request->chosen).samples);
    if (why_empty)
        query_put_text(&job->out, ',', "why_empty", why_empty);
    else
        br_str_puts(&job->out, ",\"why_empty\":null");
    if (request->why)
        query_braid_put_span(&job->out, ',', "why_span", request->why->span_id);
    else
        br_str_puts(&job->out, ",\"why_span\":null");
    return 0;
}

static void profile_respond_any(struct query_job *job, struct profile_request *request)
{
    const char *format = query_job_param(job, "format");
    bool bars = !format || !*format || !strcmp(format, "flamebearer");
    struct br_err err = {0};
    if (!bars && !query_is_file_format(format)) {
        query_respond_file(job, &request->selection, format);
        return;
    }
    int rc = profile_choose(job, request, &err);
    if (rc) {
        query_job_fail_rc(job, rc, &err);
        return;
    }
    if (!bars && request->chosen == BRAID_TYPES_MAX) {
        query_job_fail(job, 404, "no samples match; a file needs at least one");
        return;
    }
    if (!bars) {
        query_respond_file(job, &request->selection, format);
        return;
    }
    rc = profile_respond(job, request, &err);
    if (job->status == 200)
        query_braid_end(job, rc, &err);
}

void query_braid_span_profile(struct query_job *job)
{
    struct profile_request request = {.chosen = BRAID_TYPES_MAX};
    struct br_err err = {0};
    if (!profile_read_ids(job, job->parts[0], job->parts[1], &request))
        return;
    int rc = profile_select_span(job, &request, &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        profile_respond_any(job, &request);
}

void query_braid_profile(struct query_job *job)
{
    struct profile_request request = {.chosen = BRAID_TYPES_MAX};
    if (profile_read_selection(job, &request))
        profile_respond_any(job, &request);
}

void query_braid_top(struct query_job *job)
{
    struct profile_request request = {.chosen = BRAID_TYPES_MAX};
    const char *sort = query_job_param(job, "sort");
    struct br_err err = {0};
    uint64_t limit;
    bool by_total = sort && !strcmp(sort, "total");
    if (sort && *sort && !by_total && strcmp(sort, "self") != 0) {
        query_job_fail(job, 400, "invalid sort: must be self or total, got \"%.40s\"", sort);
        return;
    }
    if (!query_job_number(job, "limit", LIMIT_DEFAULT, LIMIT_MAX, &limit) ||
        !profile_read_selection(job, &request))
        return;
    int rc = profile_choose(job, &request, &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        query_respond_functions(job, &request.selection, (uint32_t)(limit ? limit : LIMIT_DEFAULT),
                                by_total ? BR_FUNCTIONS_BY_TOTAL : BR_FUNCTIONS_BY_SELF);
}

/* --- Differences ----------------------------------------------------------------------------- */

/* Decodes the percent escapes of a text in place. Returns false for a malformed escape or a NUL
 * byte. */
static bool profile_decode(char *text)
{
    long n = br_percent_decode(text, strlen(text), true, text);
    if (n < 0 || memchr(text, '\0', (size_t)n))
        return false;
    text[n] = '\0';
    return true;
}

/* Reads the parameters in a query string that is the value of the parameter `name`. */
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
            query_job_fail(job, 400, "%s has a malformed escape or too many parameters", name);
            return false;
        }
        params[count++] = (struct query_param){part, value, strlen(value)};
    }
    *ret_n = count;
    return true;
}

static bool profile_read_side(struct query_job *job, const char *name,
                              struct profile_request *request)
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
    bool ok = profile_read_selection(job, request);
    job->params = outer;
    job->n_params = n_outer;
    return ok;
}

static int profile_diff_sides(struct query_job *job,
                              struct profile_request requests[BR_FLAME_SIDES],
                              struct br_flame *flame, struct br_err *err)
{
    int rc = profile_choose(job, &requests[0], err);
    if (!rc)
        rc = profile_choose(job, &requests[1], err);
    if (rc)
        return rc;
    /* In a difference of two profiles, a profile without samples, or one requested without a type,
     * is shown with the type of the other profile. */
    unsigned main_side = requests[0].chosen == BRAID_TYPES_MAX || requests[1].type;
    const struct br_profile_type *type = &requests[main_side].selection.type;
    for (unsigned side = 0; side < BR_FLAME_SIDES && !rc && type->id; side++) {
        requests[side].selection.type = *type;
        requests[side].chosen = profile_find_type(&requests[side]);
        flame->side = side;
        rc = query_selection_flame(job, &requests[side].selection, flame, err);
    }
    return rc;
}

void query_braid_diff(struct query_job *job)
{
    static const char *const names[BR_FLAME_SIDES] = {"left", "right"};
    struct profile_request requests[BR_FLAME_SIDES] = {{.chosen = BRAID_TYPES_MAX},
                                                       {.chosen = BRAID_TYPES_MAX}};
    struct br_flame flame;
    struct br_err err = {0};
    uint64_t max_nodes;
    if (!query_job_number(job, "max_nodes", QUERY_BRAID_NODES_MAX, QUERY_FLAMEBEARER_NODES_TOP,
                          &max_nodes) ||
        !profile_read_side(job, names[0], &requests[0]) ||
        !profile_read_side(job, names[1], &requests[1]))
        return;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = profile_diff_sides(job, requests, &flame, &err);
    profile_put_type(job, '{', &requests[0].selection);
    if (!rc)
        rc = profile_put_flame(job, &flame, true, max_nodes);
    for (unsigned side = 0; side < BR_FLAME_SIDES && !rc; side++)
        br_str_printf(&job->out, ",\"%s\":{\"total\":%" PRId64 ",\"samples\":%" PRIu64 "}",
                      names[side], flame.nodes[0].total[side],
                      profile_sum(&requests[side], requests[side].chosen).samples);
    br_flame_release(&flame);
    query_braid_end(job, rc, &err);
}
