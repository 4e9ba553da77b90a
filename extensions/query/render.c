/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's older query API (`/pyroscope/render` and related paths), and queries by application
 * name (`/api/v1/query`, `/api/v1/profile`). A query is `<type>{<selector>}` or
 * `<application>{<selector>}`; `topk(10, <query>)` returns functions. Source: grafana/pyroscope
 * pkg/querier/http.go, pkg/og/structs/flamebearer.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/map.h"
#include "base/mem.h"
#include "extensions/query/names.h"
#include "extensions/query/profile_answer.h"
#include "query/flame_output.h"

#define HOUR_NS UINT64_C(3600000000000)
#define SECOND_NS UINT64_C(1000000000)
#define STEP_MIN_S 15
#define GROUPS_MAX 10000 /* maximum number of groups in one response */
#define STEPS_AIM 1500
#define TOP_MAX 10000

/* --- The request ----------------------------------------------------------------------------- */

/* Names of the parameters that contain a query and its time range. The two profiles of a difference
 * have parameters with different names. */
struct render_names {
    const char *query, *from, *until;
};

static bool render_read_range(struct query_job *job, const struct render_names *names,
                              struct query_selection *selection)
{
    uint64_t hour_ago = job->now_ns > HOUR_NS ? job->now_ns - HOUR_NS : 0;
    if (!query_job_time(job, names->from, hour_ago, &selection->from_ns) ||
        !query_job_time(job, names->until, job->now_ns, &selection->until_ns))
        return false;
    if (selection->until_ns < selection->from_ns) {
        query_job_fail(job, 400, "invalid %s: must not be before %s", names->until, names->from);
        return false;
    }
    selection->until_ns += 1; /* the parameter `until` is inclusive, and until_ns is exclusive */
    return true;
}

static bool render_read(struct query_job *job, const struct render_names *names,
                        struct query_selection *selection)
{
    struct br_err err = {0};
    const char *text = query_job_param(job, names->query);
    if (!text || !*text) {
        query_job_fail(job, 400, "missing parameter: set %s to <profile type>{<label selector>}",
                       names->query);
        return false;
    }
    if (!render_read_range(job, names, selection))
        return false;
    int rc = query_selection_add_query(job, selection, text, strlen(text), &err);
    if (!rc && !selection->type.id)
        rc = br_err_set(&err, BR_EINVAL, "%s has no profile type in front of its selector",
                        names->query);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    return !rc;
}

/* Reads the maximum number of nodes of a flame graph from the request; 0 means the default. */
static bool render_max_nodes(struct query_job *job, uint32_t *ret)
{
    uint64_t nodes = 0, other = 0;
    if (!query_job_number(job, "max-nodes", 0, QUERY_FLAMEBEARER_NODES_TOP, &nodes) ||
        !query_job_number(job, "maxNodes", 0, QUERY_FLAMEBEARER_NODES_TOP, &other))
        return false;
    nodes = nodes ? nodes : other;
    *ret = nodes ? (uint32_t)nodes : QUERY_FLAMEBEARER_NODES_MAX;
    return true;
}

/* --- Timelines ------------------------------------------------------------------------------- */

/* The values of one group of series over time. */
struct render_line {
    const char *group;
    double *values;
    /* number of profiles for each value, if values are averages; NULL: values are sums */
    uint64_t *profiles;
};

struct render_lines {
    struct query_job *job;
    uint64_t from_ns, step_ns;
    size_t n_values;
    /* name of the label by which series are grouped; NULL: all series are in one group */
    const char *group_by;
    bool averages;
    struct br_map *map; /* map from group name to struct render_line */
    int rc;
};

static struct render_line *render_line_new(struct render_lines *lines, const char *group)
{
    struct br_arena *arena = &lines->job->arena;
    struct render_line *line = br_arena_calloc(arena, 1, sizeof *line);
    if (line) {
        line->group = br_arena_strndup(arena, group, strlen(group));
        line->values = br_arena_calloc(arena, lines->n_values, sizeof *line->values);
        if (lines->averages)
            line->profiles = br_arena_calloc(arena, lines->n_values, sizeof *line->profiles);
    }
    if (!line || !line->group || !line->values || (lines->averages && !line->profiles))
        lines->rc = br_arena_why(arena);
    else
        lines->rc = br_map_put(lines->map, line->group, strlen(group), line, NULL);
    return lines->rc ? NULL : line;
}

/* Finds or adds the line for the group of a series. The group is "*" if the series does not have
 * the label lines->group_by. On failure returns NULL and sets lines->rc. */
static struct render_line *render_find_line(struct render_lines *lines,
                                            const struct br_stored_series *series)
{
    struct br_series_label label;
    const char *group = "*";
    for (size_t i = 0; lines->group_by && query_names_label(series, i, &label); i++)
        if (label.name && !strcmp(label.name, lines->group_by))
            group = label.value;
    struct render_line *line = br_map_get(lines->map, group, strlen(group));
    return line ? line : render_line_new(lines, group);
}

static bool render_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct render_lines *lines = arg;
    uint64_t at = samples->time_ns < lines->from_ns
                      ? 0
                      : (samples->time_ns - lines->from_ns) / lines->step_ns;
    struct render_line *line = render_find_line(lines, samples->series);
    if (!line)
        return false;
    if (at < lines->n_values) {
        line->values[at] += (double)samples->value;
        if (line->profiles)
            line->profiles[at]++;
    }
    return query_job_may_continue(lines->job);
}

/* Appends the timeline of a group. If `line` is NULL, all values are 0. */
static void render_put_line(const struct render_lines *lines, const struct render_line *line)
{
    struct br_str *out = &lines->job->out;
    br_str_printf(out, "{\"startTime\":%" PRIu64 ",\"samples\":[", lines->from_ns / SECOND_NS);
    for (size_t i = 0; i < lines->n_values; i++) {
        double value = line ? line->values[i] : 0;
        if (line && line->profiles && line->profiles[i])
            value /= (double)line->profiles[i];
        br_str_printf(out, i ? ",%.0f" : "%.0f", trunc(value));
    }
    br_str_printf(out, "],\"durationDelta\":%" PRIu64 ",\"watermarks\":null}",
                  lines->step_ns / SECOND_NS);
}

/* Appends a main timeline, and then the timelines of the groups. If there is one group, the main
 * timeline has its values. If there are several groups, all values of the main timeline are 0,
 * as in Pyroscope. */
static void render_put_lines(const struct render_lines *lines)
{
    struct br_str *out = &lines->job->out;
    size_t count = br_map_count(lines->map), len;
    const void *key;
    br_str_puts(out, ",\"timeline\":");
    render_put_line(lines, count == 1 ? br_map_at(lines->map, 0, &key, &len) : NULL);
    if (!lines->group_by) {
        br_str_puts(out, ",\"groups\":null");
        return;
    }
    br_str_puts(out, ",\"groups\":{");
    for (size_t i = 0; i < count; i++) {
        const struct render_line *line = br_map_at(lines->map, i, &key, &len);
        if (i)
            br_str_putc(out, ',');
        br_str_json(out, line->group, strlen(line->group));
        br_str_putc(out, ':');
        render_put_line(lines, line);
    }
    br_str_putc(out, '}');
}

static int render_put_timeline(struct query_job *job, const struct query_selection *selection,
                               struct br_err *err)
{
    const char *group_by = query_job_param(job, "groupBy");
    const char *aggregation = query_job_param(job, "aggregation");
    uint64_t seconds = (selection->until_ns - selection->from_ns) / SECOND_NS;
    uint64_t step_s = (seconds + STEPS_AIM - 1) / STEPS_AIM;
    struct render_lines lines = {.job = job};
    step_s = step_s < STEP_MIN_S ? STEP_MIN_S : step_s;
    lines.step_ns = step_s * SECOND_NS;
    lines.from_ns = selection->from_ns / lines.step_ns * lines.step_ns;
    lines.n_values = (size_t)((selection->until_ns - lines.from_ns) / lines.step_ns) + 1;
    lines.group_by = group_by && *group_by ? group_by : NULL;
    lines.averages = aggregation && !strcmp(aggregation, "avg");
    lines.map = br_map_new(GROUPS_MAX);
    if (!lines.map)
        return BR_ENOMEM;
    struct query_selection aligned = *selection;
    aligned.from_ns = lines.from_ns;
    aligned.spans_together = true;
    /* for averages, one step per profile: all samples of a profile have the same time */
    uint64_t step_ns = lines.averages ? 1 : lines.step_ns;
    int rc = query_selection_samples(job, &aligned, step_ns, render_on_samples, &lines, err);
    rc = rc ? rc : lines.rc;
    if (!rc)
        render_put_lines(&lines);
    br_map_free(lines.map, NULL);
    return rc;
}

/* --- Render ---------------------------------------------------------------------------------- */

static void render_put_metadata(struct query_job *job, const struct br_profile_type *type,
                                const char *format)
{
    uint32_t rate;
    const char *units = br_profile_type_units(type, &rate);
    br_str_printf(&job->out, ",\"metadata\":{\"format\":\"%s\",\"spyName\":\"\",\"sampleRate\":%u,",
                  format, rate);
    br_str_puts(&job->out, "\"units\":");
    br_str_json(&job->out, units, strlen(units));
    br_str_puts(&job->out, ",\"name\":");
    br_str_json(&job->out, type->type, strlen(type->type));
    br_str_putc(&job->out, '}');
}

static int render_put_flamebearer(struct query_job *job, struct br_flame *flame, bool diff,
                                  uint32_t max_nodes)
{
    struct br_flamebearer flamebearer;
    br_flame_total(flame);
    int rc = br_flamebearer_make(flame, max_nodes, diff, &job->arena, &flamebearer);
    if (rc)
        return rc;
    br_str_puts(&job->out, "{\"version\":1,\"flamebearer\":");
    br_flamebearer_json(&job->out, &flamebearer, false);
    if (diff)
        br_str_printf(&job->out, ",\"leftTicks\":%" PRId64 ",\"rightTicks\":%" PRId64,
                      flamebearer.ticks[0], flamebearer.ticks[1]);
    return 0;
}

static void render_respond(struct query_job *job, const struct query_selection *selection)
{
    struct br_flame flame;
    struct br_err err = {0};
    uint32_t max_nodes;
    if (!render_max_nodes(job, &max_nodes))
        return;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = query_selection_flame_by_name(job, selection, &flame, &err);
    if (!rc)
        rc = render_put_flamebearer(job, &flame, false, max_nodes);
    br_flame_release(&flame);
    if (!rc) {
        render_put_metadata(job, &selection->type, "single");
        rc = render_put_timeline(job, selection, &err);
    }
    br_str_puts(&job->out, ",\"heatmap\":null}");
    if (rc)
        query_job_fail_rc(job, rc, &err);
}

static bool render_is_json(struct query_job *job)
{
    const char *format = query_job_param(job, "format");
    if (!format || !*format || !strcmp(format, "json"))
        return true;
    query_job_fail(job, 400, "invalid format: only json is supported");
    return false;
}

static void render_single(struct query_job *job)
{
    static const struct render_names names = {"query", "from", "until"};
    struct query_selection selection = {0};
    if (render_is_json(job) && render_read(job, &names, &selection))
        render_respond(job, &selection);
}

static void render_diff(struct query_job *job)
{
    static const struct render_names names[BR_FLAME_SIDES] = {
        {"leftQuery", "leftFrom", "leftUntil"}, {"rightQuery", "rightFrom", "rightUntil"}};
    struct query_selection selections[BR_FLAME_SIDES] = {{0}};
    struct br_flame flame;
    struct br_err err = {0};
    uint32_t max_nodes;
    if (!render_is_json(job) || !render_read(job, &names[0], &selections[0]) ||
        !render_read(job, &names[1], &selections[1]) || !render_max_nodes(job, &max_nodes))
        return;
    if (strcmp(selections[0].type.id, selections[1].type.id) != 0) {
        query_job_fail(job, 400, "leftQuery and rightQuery must have the same profile type");
        return;
    }
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    for (unsigned side = 0; side < BR_FLAME_SIDES && !rc; side++) {
        flame.side = side;
        rc = query_selection_flame_by_name(job, &selections[side], &flame, &err);
    }
    if (!rc)
        rc = render_put_flamebearer(job, &flame, true, max_nodes);
    br_flame_release(&flame);
    render_put_metadata(job, &selections[0].type, "double");
    br_str_puts(&job->out, ",\"timeline\":null,\"groups\":null,\"heatmap\":null}");
    if (rc)
        query_job_fail_rc(job, rc, &err);
}

/* --- Labels ---------------------------------------------------------------------------------- */

static void render_names_of(struct query_job *job, enum query_names_of of, const char *label)
{
    static const struct render_names names = {NULL, "from", "until"};
    struct query_selection selection = {0};
    struct br_err err = {0};
    char **list;
    size_t count;
    if (!render_read_range(job, &names, &selection))
        return;
    const struct query_names_params params = {
        .of = of, .label = label, .from_ns = selection.from_ns, .until_ns = selection.until_ns};
    int rc = query_names_gather(job, &params, &list, &count, &err);
    if (rc) {
        query_job_fail_rc(job, rc, &err);
        return;
    }
    br_str_putc(&job->out, '[');
    for (size_t i = 0; i < count; i++) {
        if (i)
            br_str_putc(&job->out, ',');
        br_str_json(&job->out, list[i], strlen(list[i]));
    }
    br_str_putc(&job->out, ']');
}

static void render_label_names(struct query_job *job)
{
    render_names_of(job, QUERY_LABEL_NAMES, NULL);
}

static void render_label_values(struct query_job *job)
{
    const char *label = query_job_param(job, "label");
    if (label && !strcmp(label, "__name__"))
        /* for __name__, the response contains the profile types, as in Pyroscope */
        render_names_of(job, QUERY_TYPES, NULL);
    else if (label && *label)
        render_names_of(job, QUERY_LABEL_VALUES, label);
    else
        query_job_fail(job, 400, "missing parameter: set label to the label whose values to list");
}

/* --- Applications ---------------------------------------------------------------------------- */

/* Parses `topk(10, <query>)`. Returns the inner query, or NULL if the text is not a topk().
 * After an error, calls query_job_fail and returns "". */
static const char *render_topk(struct query_job *job, const char *text, uint64_t *ret_limit)
{
    text += strspn(text, " \t\r\n");
    if (!br_text_starts_nocase(text, "topk") || text[4 + strspn(text + 4, " ")] != '(')
        return NULL;
    text += 4 + strspn(text + 4, " ") + 1;
    const char *end = text + strspn(text, " \t\r\n");
    bool valid = br_decimal_read(&end, end + strlen(end), TOP_MAX, ret_limit) && *ret_limit;
    end += strspn(end, " \t\r\n");
    const char *close = strrchr(end, ')');
    if (!valid || *end != ',' || !close || close[1 + strspn(close + 1, " \t\r\n")]) {
        query_job_fail(job, 400, "invalid topk: must be topk(<1 to %d>, <query>)", TOP_MAX);
        return "";
    }
    end++;
    end += strspn(end, " \t\r\n");
    const char *copy = br_arena_strndup(&job->arena, end, (size_t)(close - end));
    if (!copy)
        query_job_fail_rc(job, br_arena_why(&job->arena), NULL);
    return copy ? copy : "";
}

/* Returns true if a query is a function call such as `sum(shop.cpu)`, which is not supported.
 * Without this check, the call would be read as the name of an application, and the result would be
 * empty. */
static bool render_is_call(const char *text)
{
    text += strspn(text, " \t\r\n");
    size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    size_t head = strcspn(text, "{");
    return name && name < head && text[name] == '(';
}

static void render_query(struct query_job *job)
{
    static const struct render_names names = {"query", "from", "until"};
    const char *text = query_job_param(job, "query");
    struct query_selection selection = {0};
    struct br_err err = {0};
    uint64_t limit = 0;
    const char *inner = text ? render_topk(job, text, &limit) : NULL;
    if (!inner && text && render_is_call(text)) {
        query_job_fail(job, 400,
                       "1:1: the only function is topk(<1 to %d>, <query>), got \"%.40s\"", TOP_MAX,
                       text);
        return;
    }
    if (!inner) {
        render_single(job);
        return;
    }
    if (!*inner || !render_read_range(job, &names, &selection))
        return;
    int rc = query_selection_add_query(job, &selection, inner, strlen(inner), &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        query_respond_functions(job, &selection, (uint32_t)limit, BR_FUNCTIONS_BY_SELF);
}

/* Adds the span and trace ids in the parameters `span_id` and `trace_id`, which older
 * documentation uses. */
static int render_add_ids(struct query_job *job, struct query_selection *selection,
                          struct br_err *err)
{
    const char *span = query_job_param(job, "span_id"), *trace = query_job_param(job, "trace_id");
    int rc = 0;
    if (span && *span)
        rc = query_selection_add_span_text(job, selection, span, strlen(span), err);
    if (!rc && trace && *trace)
        rc = query_selection_add_trace_text(job, selection, trace, strlen(trace), err);
    return rc;
}

static void render_profile(struct query_job *job)
{
    static const struct render_names names = {"app", "from", "until"};
    const char *format = query_job_param(job, "format"), *type = query_job_param(job, "type");
    struct query_selection selection = {0};
    struct br_err err = {0};
    if (!render_read(job, &names, &selection))
        return;
    int rc = render_add_ids(job, &selection, &err);
    if (!rc && type && *type)
        rc = query_selection_set_type(job, &selection, type, strlen(type), &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else if (!format || !*format || !strcmp(format, "flamegraph") || !strcmp(format, "json"))
        render_respond(job, &selection);
    else if (!query_is_file_format(format))
        query_job_fail(job, 400,
                       "invalid format: must be flamegraph, json, pprof, speedscope, folded or "
                       "tree, got \"%.40s\"",
                       format);
    else
        query_respond_file(job, &selection, format);
}

#define GET(where, function)                                                                       \
    {                                                                                              \
        .methods = QUERY_GET, .path = (where), .handle = (function), .errors = QUERY_CONNECT       \
    }

const struct query_route query_render_routes[] = {
    GET("/pyroscope/render", render_single),
    GET("/pyroscope/render-diff", render_diff),
    GET("/pyroscope/label-names", render_label_names),
    GET("/pyroscope/label-values", render_label_values),
    GET("/api/v1/query", render_query),
    GET("/api/v1/profile", render_profile),
    {0},
};
