/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's query API: querier.v1.QuerierService over Connect (proto/querier/v1/querier.proto),
 * as Grafana's Pyroscope data source uses it. A range consists of two Unix times in milliseconds,
 * both inclusive; without a range all data is used. Source: grafana/pyroscope pkg/querier,
 * pkg/model/timeseries.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/names.h"
#include "extensions/query/profile_answer.h"
#include "extensions/query/pyroscope.h"
#include "extensions/query/selection.h"
#include "pprof/profile.pb-c.h"
#include "querier/v1/querier.pb-c.h"
#include "query/flame_output.h"
#include "settings/v1/setting.pb-c.h"
#include "wire/protobuf.h"

#define MESSAGE(name) Querier__V1__##name
#define MS UINT64_C(1000000)
#define KEEP_LOCATIONS_MAX 128

bool query_pyroscope_plain_labels_only(const struct query_job *job)
{
    return !strcasestr(job->accept, "allow-utf8-labelnames=true");
}

/* --- Ranges and ids -------------------------------------------------------------------------- */

bool query_pyroscope_range(struct query_job *job, int64_t start, int64_t end,
                           struct query_selection *selection)
{
    const int64_t max = INT64_MAX / (int64_t)MS - 1;
    if (start < 0 || end < 0 || start > max || end > max) {
        query_job_fail(job, 400, "invalid time range: start and end are Unix milliseconds");
        return false;
    }
    if (end && start > end) {
        query_job_fail(job, 400, "invalid time range: start is after end");
        return false;
    }
    selection->as_pyroscope = true;
    selection->from_ns = (uint64_t)start * MS;
    selection->until_ns = end ? ((uint64_t)end + 1) * MS : 0;
    return true;
}

static int pyroscope_add_profiles(struct query_job *job, struct query_selection *selection,
                                  char *const *ids, size_t count, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++)
        rc = query_selection_add_profile_text(job, selection, ids[i], strlen(ids[i]), err);
    return rc;
}

static int pyroscope_add_ids(struct query_job *job, struct query_selection *selection, bool traces,
                             char *const *ids, size_t count, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++)
        rc = traces ? query_selection_add_trace_text(job, selection, ids[i], strlen(ids[i]), err)
                    : query_selection_add_span_text(job, selection, ids[i], strlen(ids[i]), err);
    return rc;
}

bool query_pyroscope_select(struct query_job *job, const char *type, const char *selector,
                            int64_t start, int64_t end, struct query_selection *selection)
{
    struct br_err err = {0};
    if (!query_pyroscope_range(job, start, end, selection))
        return false;
    int rc = query_selection_set_type(job, selection, type, strlen(type), &err);
    if (!rc)
        rc = query_selection_add_selector(job, selection, selector, strlen(selector), &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    return !rc;
}

bool query_pyroscope_stacks(struct query_job *job, const MESSAGE(StackTraceSelector) * selector,
                            struct query_selection *selection)
{
    size_t count = selector && !selector->go_pgo ? selector->n_call_site : 0;
    const char **names = br_arena_calloc(&job->arena, count + 1, sizeof *names);
    if (count > BR_CALL_SITE_MAX)
        query_job_fail(job, 400, "stack_trace_selector.call_site has more than %d functions",
                       BR_CALL_SITE_MAX);
    else if (selector && selector->go_pgo && selector->go_pgo->keep_locations > KEEP_LOCATIONS_MAX)
        query_job_fail(job, 400, "go_pgo.keep_locations must be at most %d", KEEP_LOCATIONS_MAX);
    else if (!names)
        query_job_fail_rc(job, br_arena_why(&job->arena), NULL);
    else {
        for (size_t i = 0; i < count; i++)
            names[i] = selector->call_site[i]->name;
        selection->call_site = names;
        selection->n_call_site = count;
        return true;
    }
    return false;
}

/* --- Names ----------------------------------------------------------------------------------- */

/* Lists the names that `params` selects in a time range. After an error, calls query_job_fail
 * and returns false. */
static bool pyroscope_gather(struct query_job *job, struct query_names_params *params,
                             int64_t start, int64_t end, char ***ret, size_t *ret_n)
{
    struct query_selection range = {0};
    struct br_err err = {0};
    if (!query_pyroscope_range(job, start, end, &range))
        return false;
    params->from_ns = range.from_ns;
    params->until_ns = range.until_ns;
    int rc = query_names_gather(job, params, ret, ret_n, &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    return !rc;
}

static void pyroscope_profile_types(struct query_job *job)
{
    const MESSAGE(ProfileTypesRequest) *request =
        query_connect_read(job, &querier__v1__profile_types_request__descriptor);
    MESSAGE(ProfileTypesResponse) response = QUERIER__V1__PROFILE_TYPES_RESPONSE__INIT;
    struct query_names_params params = {.of = QUERY_TYPES};
    char **ids;
    size_t count;
    if (!request || !pyroscope_gather(job, &params, request->start, request->end, &ids, &count))
        return;
    MESSAGE(ProfileType) *types = br_arena_calloc(&job->arena, count + 1, sizeof *types);
    response.profile_types = br_arena_calloc(&job->arena, count + 1, sizeof(void *));
    if (!types || !response.profile_types) {
        query_job_fail_rc(job, br_arena_why(&job->arena), NULL);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        struct br_profile_type type;
        if (br_profile_type_parse(ids[i], strlen(ids[i]), &job->arena, &type, NULL))
            continue;
        querier__v1__profile_type__init(&types[i]);
        types[i].id = ids[i];
        types[i].name = (char *)type.name;
        types[i].sample_type = (char *)type.type;
        types[i].sample_unit = (char *)type.unit;
        types[i].period_type = (char *)type.period_type;
        types[i].period_unit = (char *)type.period_unit;
        response.profile_types[response.n_profile_types++] = &types[i];
    }
    query_connect_respond(job, &response.base);
}

static void pyroscope_respond_names(struct query_job *job, char **list, size_t count)
{
    MESSAGE(LabelNamesResponse) response = QUERIER__V1__LABEL_NAMES_RESPONSE__INIT;
    response.names = list;
    response.n_names = count;
    query_connect_respond(job, &response.base);
}

static void pyroscope_label_names(struct query_job *job)
{
    const MESSAGE(LabelNamesRequest) *request =
        query_connect_read(job, &querier__v1__label_names_request__descriptor);
    struct query_names_params params = {.of = QUERY_LABEL_NAMES};
    char **list;
    size_t count;
    if (!request)
        return;
    params.plain_only = query_pyroscope_plain_labels_only(job);
    params.selectors = request->matchers;
    params.n_selectors = request->n_matchers;
    if (pyroscope_gather(job, &params, request->start, request->end, &list, &count))
        pyroscope_respond_names(job, list, count);
}

static void pyroscope_label_values(struct query_job *job)
{
    const MESSAGE(LabelValuesRequest) *request =
        query_connect_read(job, &querier__v1__label_values_request__descriptor);
    struct query_names_params params = {.of = QUERY_LABEL_VALUES};
    char **list;
    size_t count;
    if (!request)
        return;
    if (!*request->name) {
        query_job_fail(job, 400, "missing parameter: set name to the label whose values to list");
        return;
    }
    params.label = request->name;
    params.selectors = request->matchers;
    params.n_selectors = request->n_matchers;
    if (pyroscope_gather(job, &params, request->start, request->end, &list, &count))
        pyroscope_respond_names(job, list, count);
}

/* --- Flame graphs ---------------------------------------------------------------------------- */

/* Determines the maximum number of nodes of a flame graph. After an error, calls query_job_fail
 * and returns false. */
static bool pyroscope_max_nodes(struct query_job *job, int64_t nodes_param, uint32_t *ret)
{
    if (nodes_param > QUERY_FLAMEBEARER_NODES_TOP) {
        query_job_fail(job, 400, "max nodes limit %" PRId64 " is greater than allowed %d",
                       nodes_param, QUERY_FLAMEBEARER_NODES_TOP);
        return false;
    }
    *ret = nodes_param > 0 ? (uint32_t)nodes_param : QUERY_FLAMEBEARER_NODES_MAX;
    return true;
}

/* Adds the selected stacks to an empty flame, which is then encoded as a pprof file. Functions with
 * equal names and different files remain separate. Profiles for Go's PGO (profile-guided
 * optimization) contain only the innermost frames. */
static int pyroscope_add_pprof(struct query_job *job, const struct query_selection *selection,
                               const MESSAGE(StackTraceSelector) * stacks, struct br_flame *flame,
                               struct br_err *err)
{
    struct br_flame whole;
    if (!stacks || !stacks->go_pgo || !stacks->go_pgo->keep_locations)
        return query_selection_flame(job, selection, flame, err);
    int rc = br_flame_init(&whole, QUERY_FLAME_NODES_MAX);
    if (rc)
        return rc;
    rc = query_selection_flame(job, selection, &whole, err);
    if (!rc)
        rc = br_flame_keep_innermost(flame, &whole, stacks->go_pgo->keep_locations);
    br_flame_release(&whole);
    return rc;
}

/* Converts the flame graph's rows of bars to messages in the arena. Returns NULL if memory runs
 * out. */
static MESSAGE(Level) *
    *pyroscope_levels(struct query_job *job, const struct br_flamebearer *flamebearer)
{
    MESSAGE(Level) *levels =
        br_arena_calloc(&job->arena, flamebearer->n_levels + 1u, sizeof *levels);
    MESSAGE(Level) **list = br_arena_calloc(&job->arena, flamebearer->n_levels + 1u, sizeof *list);
    if (!levels || !list)
        return NULL;
    for (uint32_t i = 0; i < flamebearer->n_levels; i++) {
        querier__v1__level__init(&levels[i]);
        levels[i].values = flamebearer->levels[i].values;
        levels[i].n_values = flamebearer->levels[i].n_values;
        list[i] = &levels[i];
    }
    return list;
}

static int pyroscope_flame_graph(struct query_job *job, struct br_flame *flame, uint32_t max_nodes,
                                 MESSAGE(FlameGraph) * ret)
{
    struct br_flamebearer flamebearer;
    br_flame_total(flame);
    int rc = br_flamebearer_make(flame, max_nodes, false, &job->arena, &flamebearer);
    if (rc)
        return rc;
    querier__v1__flame_graph__init(ret);
    ret->names = (char **)flamebearer.names;
    ret->n_names = flamebearer.n_names;
    ret->levels = pyroscope_levels(job, &flamebearer);
    ret->n_levels = flamebearer.n_levels;
    ret->total = flamebearer.ticks[0];
    ret->max_self = flamebearer.max_self;
    return ret->levels ? 0 : br_arena_why(&job->arena);
}

/* Encodes a flame as pprof in the arena. Uses job->out as a buffer, and clears it. */
static int pyroscope_pprof(struct query_job *job, const struct query_selection *selection,
                           const struct br_flame *flame, const uint8_t **ret, size_t *ret_len)
{
    uint64_t until_ns = selection->until_ns ? selection->until_ns - MS : job->now_ns;
    int rc = query_put_pprof(job, selection, until_ns, flame);
    uint8_t *copy = rc ? NULL : br_arena_alloc(&job->arena, job->out.len + 1);
    if (!rc && !copy)
        rc = br_arena_why(&job->arena);
    if (!rc) {
        memcpy(copy, job->out.data, job->out.len);
        *ret = copy;
        *ret_len = job->out.len;
    }
    br_str_clear(&job->out);
    return rc;
}

/* Responds with a SelectMergeStacktracesResponse in which the field `pprof` is set. */
static int pyroscope_respond_pprof(struct query_job *job, const struct query_selection *selection,
                                   const struct br_flame *flame)
{
    const uint8_t *pprof;
    size_t len;
    int rc = pyroscope_pprof(job, selection, flame, &pprof, &len);
    if (rc)
        return rc;
    size_t inner = br_len_size(1, len), outer = br_len_size(5, inner);
    uint8_t *data = br_arena_alloc(&job->arena, outer);
    if (!data)
        return br_arena_why(&job->arena);
    uint8_t *end = br_put_varint(data, BR_TAG(5, BR_WIRE_LEN));
    end = br_put_varint(end, inner);
    (void)br_put_len(end, 1, pprof, len);
    query_connect_respond_bytes(job, &querier__v1__select_merge_stacktraces_response__descriptor,
                                data, outer);
    return 0;
}

static int pyroscope_respond_tree(struct query_job *job, struct br_flame *flame, uint32_t max_nodes)
{
    MESSAGE(SelectMergeStacktracesResponse)
    response = QUERIER__V1__SELECT_MERGE_STACKTRACES_RESPONSE__INIT;
    struct br_str tree = {0};
    uint32_t *map = NULL;
    int rc = flame->n_nodes > max_nodes ? br_flame_prune(flame, max_nodes, &map) : 0;
    br_free(map);
    br_flame_total(flame);
    if (!rc)
        rc = br_flame_tree_write(&tree, flame);
    response.tree.data = (uint8_t *)tree.data;
    response.tree.len = tree.len;
    if (!rc)
        query_connect_respond(job, &response.base);
    br_str_release(&tree);
    return rc;
}

static int pyroscope_respond_bars(struct query_job *job, struct br_flame *flame, uint32_t max_nodes)
{
    MESSAGE(SelectMergeStacktracesResponse)
    response = QUERIER__V1__SELECT_MERGE_STACKTRACES_RESPONSE__INIT;
    MESSAGE(FlameGraph) graph;
    int rc = pyroscope_flame_graph(job, flame, max_nodes, &graph);
    response.flamegraph = &graph;
    if (!rc)
        query_connect_respond(job, &response.base);
    return rc;
}

/* Responds to SelectMergeStacktraces and SelectMergeSpanProfile, whose responses have the same
 * fields. */
static void pyroscope_respond_flame(struct query_job *job, const struct query_selection *selection,
                                    const MESSAGE(StackTraceSelector) * stacks, int64_t max_nodes,
                                    MESSAGE(ProfileFormat) format)
{
    bool pprof = format == QUERIER__V1__PROFILE_FORMAT__PROFILE_FORMAT_PPROF;
    struct br_flame flame;
    struct br_err err = {0};
    uint32_t nodes;
    if (format == QUERIER__V1__PROFILE_FORMAT__PROFILE_FORMAT_DOT) {
        query_job_fail(job, 501, "format: DOT is not supported");
        return;
    }
    if (!pyroscope_max_nodes(job, max_nodes, &nodes))
        return;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = pprof ? pyroscope_add_pprof(job, selection, stacks, &flame, &err)
                   : query_selection_flame_by_name(job, selection, &flame, &err);
    if (!rc && pprof)
        rc = pyroscope_respond_pprof(job, selection, &flame);
    else if (!rc && format == QUERIER__V1__PROFILE_FORMAT__PROFILE_FORMAT_TREE)
        rc = pyroscope_respond_tree(job, &flame, nodes);
    else if (!rc)
        rc = pyroscope_respond_bars(job, &flame, nodes);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    br_flame_release(&flame);
}

static bool pyroscope_read_stacktraces(struct query_job *job,
                                       const MESSAGE(SelectMergeStacktracesRequest) * request,
                                       struct query_selection *selection)
{
    struct br_err err = {0};
    if (!query_pyroscope_select(job, request->profile_typeid, request->label_selector,
                                request->start, request->end, selection) ||
        !query_pyroscope_stacks(job, request->stack_trace_selector, selection))
        return false;
    int rc = pyroscope_add_ids(job, selection, true, request->trace_id_selector,
                               request->n_trace_id_selector, &err);
    if (!rc)
        rc = pyroscope_add_ids(job, selection, false, request->span_selector,
                               request->n_span_selector, &err);
    if (!rc)
        rc = pyroscope_add_profiles(job, selection, request->profile_id_selector,
                                    request->n_profile_id_selector, &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    return !rc;
}

static void pyroscope_select_stacktraces(struct query_job *job)
{
    const MESSAGE(SelectMergeStacktracesRequest) *request =
        query_connect_read(job, &querier__v1__select_merge_stacktraces_request__descriptor);
    struct query_selection selection = {0};
    if (request && pyroscope_read_stacktraces(job, request, &selection))
        pyroscope_respond_flame(job, &selection, request->stack_trace_selector, request->max_nodes,
                                request->format);
}

static void pyroscope_select_span(struct query_job *job)
{
    const MESSAGE(SelectMergeSpanProfileRequest) *request =
        query_connect_read(job, &querier__v1__select_merge_span_profile_request__descriptor);
    struct query_selection selection = {0};
    struct br_err err = {0};
    if (!request || !query_pyroscope_select(job, request->profile_typeid, request->label_selector,
                                            request->start, request->end, &selection))
        return;
    int rc = pyroscope_add_ids(job, &selection, false, request->span_selector,
                               request->n_span_selector, &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        pyroscope_respond_flame(job, &selection, NULL, request->max_nodes, request->format);
}

static void pyroscope_select_profile(struct query_job *job)
{
    const MESSAGE(SelectMergeProfileRequest) *request =
        query_connect_read(job, &querier__v1__select_merge_profile_request__descriptor);
    struct query_selection selection = {0};
    struct br_flame flame;
    struct br_err err = {0};
    const uint8_t *pprof;
    size_t len;
    if (!request ||
        !query_pyroscope_select(job, request->profile_typeid, request->label_selector,
                                request->start, request->end, &selection) ||
        !query_pyroscope_stacks(job, request->stack_trace_selector, &selection))
        return;
    int rc = pyroscope_add_ids(job, &selection, true, request->trace_id_selector,
                               request->n_trace_id_selector, &err);
    if (!rc)
        rc = pyroscope_add_profiles(job, &selection, request->profile_id_selector,
                                    request->n_profile_id_selector, &err);
    if (!rc)
        rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (rc) {
        query_job_fail_rc(job, rc, &err);
        return;
    }
    rc = pyroscope_add_pprof(job, &selection, request->stack_trace_selector, &flame, &err);
    if (!rc)
        rc = pyroscope_pprof(job, &selection, &flame, &pprof, &len);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        query_connect_respond_bytes(job, &perftools__profiles__profile__descriptor, pprof, len);
    br_flame_release(&flame);
}

/* --- Differences ----------------------------------------------------------------------------- */

static int pyroscope_diff_graph(struct query_job *job, struct br_flame *flame, uint32_t max_nodes,
                                MESSAGE(FlameGraphDiff) * ret)
{
    struct br_flamebearer flamebearer;
    br_flame_total(flame);
    int rc = br_flamebearer_make(flame, max_nodes, true, &job->arena, &flamebearer);
    if (rc)
        return rc;
    ret->names = (char **)flamebearer.names;
    ret->n_names = flamebearer.n_names;
    ret->levels = pyroscope_levels(job, &flamebearer);
    ret->n_levels = flamebearer.n_levels;
    ret->total = br_sum(flamebearer.ticks[0], flamebearer.ticks[1]);
    ret->max_self = flamebearer.max_self;
    ret->leftticks = flamebearer.ticks[0];
    ret->rightticks = flamebearer.ticks[1];
    return ret->levels ? 0 : br_arena_why(&job->arena);
}

static void pyroscope_respond_diff(struct query_job *job,
                                   const struct query_selection selections[BR_FLAME_SIDES],
                                   uint32_t max_nodes)
{
    MESSAGE(DiffResponse) response = QUERIER__V1__DIFF_RESPONSE__INIT;
    MESSAGE(FlameGraphDiff) graph = QUERIER__V1__FLAME_GRAPH_DIFF__INIT;
    struct br_flame flame;
    struct br_err err = {0};
    response.flamegraph = &graph;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = query_selection_flame_by_name(job, &selections[0], &flame, &err);
    flame.side = 1;
    if (!rc)
        rc = query_selection_flame_by_name(job, &selections[1], &flame, &err);
    if (!rc)
        rc = pyroscope_diff_graph(job, &flame, max_nodes, &graph);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        query_connect_respond(job, &response.base);
    br_flame_release(&flame);
}

static void pyroscope_diff(struct query_job *job)
{
    const MESSAGE(DiffRequest) *request =
        query_connect_read(job, &querier__v1__diff_request__descriptor);
    struct query_selection selections[BR_FLAME_SIDES] = {{0}};
    uint32_t nodes;
    if (!request)
        return;
    if (!request->left || !request->right) {
        query_job_fail(job, 400, "left and right must be set");
        return;
    }
    int64_t nodes_param = request->left->max_nodes > request->right->max_nodes
                              ? request->left->max_nodes
                              : request->right->max_nodes;
    if (!pyroscope_read_stacktraces(job, request->left, &selections[0]) ||
        !pyroscope_read_stacktraces(job, request->right, &selections[1]) ||
        !pyroscope_max_nodes(job, nodes_param, &nodes))
        return;
    pyroscope_respond_diff(job, selections, nodes);
}

/* --- Statistics ------------------------------------------------------------------------------ */

static void pyroscope_stats(struct query_job *job)
{
    MESSAGE(GetProfileStatsResponse) response = QUERIER__V1__GET_PROFILE_STATS_RESPONSE__INIT;
    struct br_store_usage usage;
    if (!query_connect_read(job, &querier__v1__get_profile_stats_request__descriptor))
        return;
    br_store_usage(job->query->store, &usage);
    response.data_ingested = usage.n_samples > 0;
    response.oldest_profile_time = (int64_t)(usage.samples.oldest_ns / MS);
    response.newest_profile_time = (int64_t)(usage.samples.newest_ns / MS);
    query_connect_respond(job, &response.base);
}

/* --- Routes ---------------------------------------------------------------------------------- */

static void pyroscope_analyze(struct query_job *job)
{
    const MESSAGE(AnalyzeQueryResponse) response = QUERIER__V1__ANALYZE_QUERY_RESPONSE__INIT;
    if (query_connect_read(job, &querier__v1__analyze_query_request__descriptor))
        query_connect_respond(job, &response.base);
}

static void pyroscope_settings(struct query_job *job)
{
    const Settings__V1__GetSettingsResponse response = SETTINGS__V1__GET_SETTINGS_RESPONSE__INIT;
    if (query_connect_read(job, &settings__v1__get_settings_request__descriptor))
        query_connect_respond(job, &response.base);
}

#define METHOD(name, function)                                                                     \
    {                                                                                              \
        .methods = QUERY_POST, .path = "/querier.v1.QuerierService/" name, .handle = (function),   \
        .errors = QUERY_CONNECT                                                                    \
    }

static void pyroscope_unimplemented(struct query_job *job)
{
    query_job_fail(job, 501, "%.64s is not supported", job->parts[0]);
}

const struct query_route query_pyroscope_routes[] = {
    METHOD("ProfileTypes", pyroscope_profile_types),
    METHOD("LabelNames", pyroscope_label_names),
    METHOD("LabelValues", pyroscope_label_values),
    METHOD("Series", query_pyroscope_series),
    METHOD("SelectSeries", query_pyroscope_select_series),
    METHOD("SelectHeatmap", query_pyroscope_select_heatmap),
    METHOD("SelectMergeStacktraces", pyroscope_select_stacktraces),
    METHOD("SelectMergeSpanProfile", pyroscope_select_span),
    METHOD("SelectMergeProfile", pyroscope_select_profile),
    METHOD("Diff", pyroscope_diff),
    METHOD("GetProfileStats", pyroscope_stats),
    METHOD("AnalyzeQuery", pyroscope_analyze),
    METHOD("*", pyroscope_unimplemented),
    {.methods = QUERY_POST,
     .path = "/settings.v1.SettingsService/Get",
     .handle = pyroscope_settings,
     .errors = QUERY_CONNECT},
    {0},
};
