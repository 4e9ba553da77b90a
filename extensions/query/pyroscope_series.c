/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's methods that return series: Series, SelectSeries and SelectHeatmap. Each point of a
 * series, and each slot of a heatmap, has the time at which its step ends. Source:
 * grafana/pyroscope pkg/model/timeseries and pkg/model/heatmap.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/lexer.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/names.h"
#include "extensions/query/pyroscope.h"
#include "querier/v1/querier.pb-c.h"

#define MESSAGE(name) Querier__V1__##name
#define SETS_MAX 100000 /* maximum number of series in one response */
#define STEPS_MAX 11000 /* maximum number of steps of a series, as in Prometheus */
#define PROFILES_MAX (4u << 20)
#define MS UINT64_C(1000000)
#define EXEMPLARS(type) QUERIER__V1__EXEMPLAR_TYPE__EXEMPLAR_TYPE_##type
#define HEATMAP(type) QUERIER__V1__HEATMAP_QUERY_TYPE__HEATMAP_QUERY_TYPE_##type

/* --- Label sets ------------------------------------------------------------------------------ */

/* Distinct label sets, in the order in which they were found. Each set becomes one series of the
 * response. */
struct pyroscope_sets {
    struct query_job *job;
    struct br_map *map; /* map to struct pyroscope_set, by label names and values */
    /* names of the labels by which series are grouped; if the list is empty, `grouping` decides */
    char *const *only;
    size_t n_only;
    bool plain; /* true: label names that need quotes in a selector are omitted */
    /* used only if `only` is empty. true: all series are merged into one without labels; false:
     * series keep all their labels */
    bool grouping;
    uint64_t from_ns, step_ns;
    size_t n_steps;
    bool averages; /* true: values are averages; false: values are sums */
    bool heatmap;  /* true: the sets contain heatmap slots; false: the sets contain sums */
    bool profiles; /* true: exemplars are profiles; false: exemplars are spans */
    /* sets with all labels, which provide the labels of exemplars; NULL: the response has no
     * exemplars */
    struct pyroscope_sets *every;
    struct br_map
        /* map to struct pyroscope_profile, by set, source and time; NULL: samples are not summed
         * per profile */
        *map_profiles;
    int rc;
};

/* An exemplar: a span with the sum of its samples in one step, or a profile. */
struct pyroscope_exemplar {
    /* labels of the exemplar's series; for a profile with several series, the labels that these
     * series share; NULL: no exemplar */
    Push__V1__LabelPair **pairs;
    size_t n_pairs;
    uint64_t source, time_ns, span_id;
    uint8_t trace_id[16];
    int64_t value;
};

/* The samples of one profile that belong to one set. A profile may have several series, because its
 * samples have labels. */
struct pyroscope_profile {
    struct pyroscope_set *set;
    /* set in sets->every with the labels of the profile's first series */
    const struct pyroscope_set *labels;
    /* true: exemplar.pairs is an array of this profile, so its elements may be changed */
    bool shared;
    struct pyroscope_exemplar exemplar;
};

struct pyroscope_set {
    Push__V1__LabelPair **pairs;
    size_t n_pairs;
    /* sum of the samples in each step; NAN: the step has no samples */
    double *sums;
    /* number of profiles in each step; NULL: profiles are not counted */
    uint64_t *counts;
    /* exemplar with the largest value in each step; NULL: the response has no exemplars */
    struct pyroscope_exemplar *exemplars;
    /* slots of a heatmap, by step; an entry is NULL if its step has no values */
    struct pyroscope_slot **slots;
    uint64_t n_points; /* number of values that were counted in a heatmap */
    double total;
    const char *key;
};

static bool pyroscope_sets_has(const struct pyroscope_sets *sets, const char *name)
{
    if (!name || (sets->plain && !br_is_identifier(name, strlen(name))))
        return false;
    if (!sets->n_only)
        return !sets->grouping;
    for (size_t i = 0; i < sets->n_only; i++)
        if (!strcmp(sets->only[i], name))
            return true;
    return false;
}

static int pyroscope_set_fill(struct pyroscope_sets *sets, const struct br_stored_series *series,
                              struct pyroscope_set *set)
{
    struct br_arena *arena = &sets->job->arena;
    Push__V1__LabelPair *pairs = br_arena_calloc(arena, series->n_labels + 1, sizeof *pairs);
    struct br_series_label label;
    set->pairs = br_arena_calloc(arena, series->n_labels + 1, sizeof *set->pairs);
    size_t n_sums = sets->heatmap ? 0 : sets->n_steps;
    set->sums = br_arena_calloc(arena, n_sums + 1, sizeof *set->sums);
    if (!pairs || !set->pairs || !set->sums)
        return br_arena_why(arena);
    if (sets->averages) {
        set->counts = br_arena_calloc(arena, sets->n_steps + 1, sizeof *set->counts);
        if (!set->counts)
            return br_arena_why(arena);
    }
    if (sets->every && !sets->heatmap) {
        set->exemplars = br_arena_calloc(arena, sets->n_steps + 1, sizeof *set->exemplars);
        if (!set->exemplars)
            return br_arena_why(arena);
    }
    for (size_t i = 0; i < n_sums; i++)
        set->sums[i] = (double)NAN;
    for (size_t i = 0; query_names_label(series, i, &label); i++) {
        if (!pyroscope_sets_has(sets, label.name))
            continue;
        push__v1__label_pair__init(&pairs[set->n_pairs]);
        pairs[set->n_pairs].name = br_arena_strndup(arena, label.name, strlen(label.name));
        pairs[set->n_pairs].value = br_arena_strndup(arena, label.value, strlen(label.value));
        if (!pairs[set->n_pairs].name || !pairs[set->n_pairs].value)
            return br_arena_why(arena);
        set->pairs[set->n_pairs] = &pairs[set->n_pairs];
        set->n_pairs++;
    }
    return 0;
}

/* Finds or adds the set for the labels of a series. On failure returns NULL and sets sets->rc. */
static struct pyroscope_set *pyroscope_sets_find(struct pyroscope_sets *sets,
                                                 const struct br_stored_series *series)
{
    struct br_str key = {0};
    struct br_series_label label;
    for (size_t i = 0; query_names_label(series, i, &label); i++)
        if (pyroscope_sets_has(sets, label.name)) {
            br_str_json(&key, label.name, strlen(label.name));
            br_str_json(&key, label.value, strlen(label.value));
        }
    br_str_puts(&key, "");
    struct pyroscope_set *set = key.failed ? NULL : br_map_get(sets->map, key.data, key.len);
    if (!set && !key.failed) {
        set = br_arena_calloc(&sets->job->arena, 1, sizeof *set);
        sets->rc = set ? pyroscope_set_fill(sets, series, set) : br_arena_why(&sets->job->arena);
        if (!sets->rc)
            sets->rc = br_map_put(sets->map, key.data, key.len, set, NULL);
        if (!sets->rc)
            set->key = br_arena_strndup(&sets->job->arena, key.data, key.len);
        if (!sets->rc && !set->key)
            sets->rc = br_arena_why(&sets->job->arena);
    } else if (!set) {
        sets->rc = BR_ENOMEM;
    }
    br_str_release(&key);
    return sets->rc ? NULL : set;
}

static bool pyroscope_sets_on_series(const struct br_stored_series *series, void *arg)
{
    struct pyroscope_sets *sets = arg;
    return pyroscope_sets_find(sets, series) && query_job_may_continue(sets->job);
}

void query_pyroscope_series(struct query_job *job)
{
    const MESSAGE(SeriesRequest) *request =
        query_connect_read(job, &querier__v1__series_request__descriptor);
    MESSAGE(SeriesResponse) response = QUERIER__V1__SERIES_RESPONSE__INIT;
    struct query_selection range = {0};
    struct pyroscope_sets sets = {.job = job};
    struct br_err err = {0};
    if (!request || !query_pyroscope_range(job, request->start, request->end, &range))
        return;
    sets.only = request->label_names;
    sets.n_only = request->n_label_names;
    sets.plain = query_pyroscope_plain_labels_only(job);
    sets.map = br_map_new(SETS_MAX);
    const struct query_names_params params = {.from_ns = range.from_ns,
                                              .until_ns = range.until_ns,
                                              .selectors = request->matchers,
                                              .n_selectors = request->n_matchers};
    int rc = sets.map ? query_names_each_series(job, &params, pyroscope_sets_on_series, &sets, &err)
                      : BR_ENOMEM;
    size_t count = rc || sets.rc ? 0 : br_map_count(sets.map), len;
    const void *key;
    MESSAGE(Labels) *labels = br_arena_calloc(&job->arena, count + 1, sizeof *labels);
    response.labels_set = br_arena_calloc(&job->arena, count + 1, sizeof(void *));
    if (!rc)
        rc = sets.rc;
    if (!rc && (!labels || !response.labels_set))
        rc = br_arena_why(&job->arena);
    for (size_t i = 0; i < count && !rc; i++) {
        const struct pyroscope_set *set = br_map_at(sets.map, i, &key, &len);
        querier__v1__labels__init(&labels[i]);
        labels[i].labels = set->pairs;
        labels[i].n_labels = set->n_pairs;
        response.labels_set[response.n_labels_set++] = &labels[i];
    }
    br_map_free(sets.map, NULL);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        query_connect_respond(job, &response.base);
}

/* --- Exemplars ------------------------------------------------------------------------------- */

/* Replaces the exemplar `kept` with `exemplar` if `kept` is empty or has a smaller value. */
static void pyroscope_exemplar_keep(const struct pyroscope_exemplar *exemplar,
                                    struct pyroscope_exemplar *kept)
{
    if (!kept->pairs || kept->value < exemplar->value)
        *kept = *exemplar;
}

/* Makes an exemplar from samples. The exemplar has the labels of the samples' series. On failure
 * returns false and sets sets->rc. */
static bool pyroscope_exemplar_of(struct pyroscope_sets *sets,
                                  const struct br_stored_samples *samples,
                                  struct pyroscope_exemplar *ret)
{
    const struct pyroscope_set *labels = pyroscope_sets_find(sets->every, samples->series);
    if (!labels) {
        sets->rc = sets->every->rc;
        return false;
    }
    *ret = (struct pyroscope_exemplar){.pairs = labels->pairs,
                                       .n_pairs = labels->n_pairs,
                                       .source = samples->series->source,
                                       .time_ns = samples->time_ns,
                                       .span_id = samples->span_id,
                                       .value = samples->value};
    memcpy(ret->trace_id, samples->trace_id, sizeof ret->trace_id);
    return true;
}

/* Replaces `kept` with an exemplar for the span that `samples` refer to, if `kept` is empty or has
 * a smaller value. On failure returns false and sets sets->rc. */
static bool pyroscope_exemplar_keep_span(struct pyroscope_sets *sets,
                                         const struct br_stored_samples *samples,
                                         struct pyroscope_exemplar *kept)
{
    struct pyroscope_exemplar exemplar;
    if (!samples->span_id || (kept->pairs && kept->value >= samples->value))
        return true;
    if (!pyroscope_exemplar_of(sets, samples, &exemplar))
        return false;
    *kept = exemplar;
    return true;
}

static char *pyroscope_exemplar_id(struct br_arena *arena, const void *id, size_t len)
{
    struct br_str text = {0};
    br_str_hex(&text, id, len);
    char *ret = text.failed ? NULL : br_arena_strndup(arena, text.data, text.len);
    br_str_release(&text);
    return ret;
}

static char *pyroscope_exemplar_profile(struct br_arena *arena,
                                        const struct pyroscope_exemplar *exemplar)
{
    const struct query_profile profile = {exemplar->source, exemplar->time_ns};
    char text[QUERY_PROFILE_ID];
    query_profile_print(&profile, text);
    return br_arena_strndup(arena, text, sizeof text - 1);
}

/* Makes the message of an exemplar. The message has the labels of the exemplar's series that the
 * set does not have. */
static int pyroscope_exemplar_make(const struct pyroscope_sets *sets,
                                   const struct pyroscope_exemplar *exemplar,
                                   MESSAGE(Exemplar) * *ret)
{
    struct br_arena *arena = &sets->job->arena;
    static const uint8_t no_trace[16];
    MESSAGE(Exemplar) *made = br_arena_calloc(arena, 1, sizeof *made);
    if (!made)
        return br_arena_why(arena);
    querier__v1__exemplar__init(made);
    made->timestamp = (int64_t)(exemplar->time_ns / MS);
    made->value = exemplar->value;
    if (sets->profiles)
        made->profile_id = pyroscope_exemplar_profile(arena, exemplar);
    else
        made->span_id = pyroscope_exemplar_id(arena, &exemplar->span_id, sizeof exemplar->span_id);
    if (memcmp(exemplar->trace_id, no_trace, sizeof no_trace) != 0)
        made->trace_id = pyroscope_exemplar_id(arena, exemplar->trace_id, sizeof no_trace);
    made->labels = br_arena_calloc(arena, exemplar->n_pairs + 1, sizeof *made->labels);
    if (!made->profile_id || !made->span_id || !made->trace_id || !made->labels)
        return br_arena_why(arena);
    for (size_t i = 0; i < exemplar->n_pairs; i++)
        if (!pyroscope_sets_has(sets, exemplar->pairs[i]->name))
            made->labels[made->n_labels++] = exemplar->pairs[i];
    *ret = made;
    return 0;
}

/* --- Profiles -------------------------------------------------------------------------------- */

static bool pyroscope_set_has_pair(const struct pyroscope_set *set, const Push__V1__LabelPair *pair)
{
    for (size_t i = 0; i < set->n_pairs; i++)
        if (!strcmp(set->pairs[i]->name, pair->name) && !strcmp(set->pairs[i]->value, pair->value))
            return true;
    return false;
}

/* Removes from a profile's exemplar the labels that another series of the profile does not have. */
static int pyroscope_profile_share(struct pyroscope_sets *sets, struct pyroscope_profile *profile,
                                   const struct pyroscope_set *labels)
{
    struct pyroscope_exemplar *exemplar = &profile->exemplar;
    size_t n_shared = 0;
    if (profile->labels == labels)
        return 0;
    if (!profile->shared) {
        Push__V1__LabelPair **pairs =
            br_arena_calloc(&sets->job->arena, exemplar->n_pairs + 1, sizeof *pairs);
        if (!pairs)
            return br_arena_why(&sets->job->arena);
        memcpy(pairs, exemplar->pairs, exemplar->n_pairs * sizeof *pairs);
        exemplar->pairs = pairs;
        profile->shared = true;
    }
    for (size_t i = 0; i < exemplar->n_pairs; i++)
        if (pyroscope_set_has_pair(labels, exemplar->pairs[i]))
            exemplar->pairs[n_shared++] = exemplar->pairs[i];
    exemplar->n_pairs = n_shared;
    return 0;
}

static struct pyroscope_profile *pyroscope_profile_new(struct pyroscope_sets *sets,
                                                       struct pyroscope_set *set,
                                                       const struct br_stored_samples *samples)
{
    struct br_arena *arena = &sets->job->arena;
    struct pyroscope_profile *profile = br_arena_calloc(arena, 1, sizeof *profile);
    if (!profile)
        sets->rc = br_arena_why(arena);
    else if (sets->every && pyroscope_exemplar_of(sets, samples, &profile->exemplar))
        profile->labels = pyroscope_sets_find(sets->every, samples->series);
    if (sets->rc)
        return NULL;
    profile->set = set;
    profile->exemplar.time_ns = samples->time_ns;
    profile->exemplar.value = 0;
    return profile;
}

/* Adds samples to the profile that contains them. The store passes the sum of the samples of
 * each series and time. */
static bool pyroscope_on_profile(const struct br_stored_samples *samples, void *arg)
{
    struct pyroscope_sets *sets = arg;
    struct pyroscope_set *set = pyroscope_sets_find(sets, samples->series);
    const struct {
        const struct pyroscope_set *set;
        uint64_t source, time_ns;
    } key = {set, samples->series->source, samples->time_ns};
    if (!set)
        return false;
    struct pyroscope_profile *profile = br_map_get(sets->map_profiles, &key, sizeof key);
    if (profile && sets->every) {
        const struct pyroscope_set *labels = pyroscope_sets_find(sets->every, samples->series);
        sets->rc = labels ? pyroscope_profile_share(sets, profile, labels) : sets->every->rc;
    } else if (!profile) {
        profile = pyroscope_profile_new(sets, set, samples);
        if (profile)
            sets->rc = br_map_put(sets->map_profiles, &key, sizeof key, profile, NULL);
    }
    if (sets->rc)
        return false;
    profile->exemplar.value = br_sum(profile->exemplar.value, samples->value);
    return query_job_may_continue(sets->job);
}

/* --- Time series ----------------------------------------------------------------------------- */

/* Returns the index of the step that contains a time. The result is at least n_steps if the time
 * is out of range. */
static size_t pyroscope_sets_step(const struct pyroscope_sets *sets, uint64_t time_ns)
{
    return time_ns < sets->from_ns ? sets->n_steps
                                   : (size_t)((time_ns - sets->from_ns) / sets->step_ns);
}

static void pyroscope_set_add(struct pyroscope_set *set, size_t step, int64_t value)
{
    set->sums[step] = (isnan(set->sums[step]) ? 0 : set->sums[step]) + (double)value;
    set->total += (double)value;
    if (set->counts)
        set->counts[step]++;
}

static bool pyroscope_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct pyroscope_sets *sets = arg;
    struct pyroscope_set *set = pyroscope_sets_find(sets, samples->series);
    if (!set)
        return false;
    size_t step = pyroscope_sets_step(sets, samples->time_ns);
    if (step < sets->n_steps) {
        pyroscope_set_add(set, step, samples->value);
        if (set->exemplars && !pyroscope_exemplar_keep_span(sets, samples, &set->exemplars[step]))
            return false;
    }
    return query_job_may_continue(sets->job);
}

static void pyroscope_add_profiles_to_sets(struct pyroscope_sets *sets)
{
    size_t count = br_map_count(sets->map_profiles), len;
    const void *key;
    for (size_t i = 0; i < count; i++) {
        const struct pyroscope_profile *profile = br_map_at(sets->map_profiles, i, &key, &len);
        size_t step = pyroscope_sets_step(sets, profile->exemplar.time_ns);
        if (step >= sets->n_steps)
            continue;
        pyroscope_set_add(profile->set, step, profile->exemplar.value);
        if (profile->set->exemplars)
            pyroscope_exemplar_keep(&profile->exemplar, &profile->set->exemplars[step]);
    }
}

static int pyroscope_compare_sets(const void *left, const void *right)
{
    const struct pyroscope_set *a = *(const struct pyroscope_set *const *)left;
    const struct pyroscope_set *b = *(const struct pyroscope_set *const *)right;
    if (a->total > b->total || a->total < b->total)
        return a->total > b->total ? -1 : 1;
    return strcmp(a->key, b->key);
}

static int pyroscope_set_points(struct pyroscope_sets *sets, const struct pyroscope_set *set,
                                int64_t start_ms, MESSAGE(Series) * ret)
{
    struct br_arena *arena = &sets->job->arena;
    MESSAGE(Point) *points = br_arena_calloc(arena, sets->n_steps + 1, sizeof *points);
    querier__v1__series__init(ret);
    ret->labels = set->pairs;
    ret->n_labels = set->n_pairs;
    ret->points = br_arena_calloc(arena, sets->n_steps + 1, sizeof(void *));
    if (!points || !ret->points)
        return br_arena_why(arena);
    int rc = 0;
    for (size_t i = 0; i < sets->n_steps && !rc; i++) {
        if (isnan(set->sums[i]))
            continue;
        querier__v1__point__init(&points[i]);
        points[i].value = set->counts ? set->sums[i] / (double)set->counts[i] : set->sums[i];
        points[i].timestamp = start_ms + (int64_t)(i * (sets->step_ns / MS));
        ret->points[ret->n_points++] = &points[i];
        if (!set->exemplars || !set->exemplars[i].pairs)
            continue;
        points[i].exemplars = br_arena_calloc(arena, 1, sizeof *points[i].exemplars);
        points[i].n_exemplars = 1;
        rc = points[i].exemplars
                 ? pyroscope_exemplar_make(sets, &set->exemplars[i], points[i].exemplars)
                 : br_arena_why(arena);
    }
    return rc;
}

/* Lists at most `limit` sets (0: all sets) in the order of `compare`. Returns NULL if memory runs
 * out. */
static struct pyroscope_set **pyroscope_sets_list(const struct pyroscope_sets *sets,
                                                  int (*compare)(const void *, const void *),
                                                  int64_t limit, size_t *ret_count)
{
    size_t count = br_map_count(sets->map), len;
    const void *key;
    struct pyroscope_set **list = br_arena_calloc(&sets->job->arena, count + 1, sizeof *list);
    if (!list)
        return NULL;
    for (size_t i = 0; i < count; i++)
        list[i] = br_map_at(sets->map, i, &key, &len);
    qsort(list, count, sizeof *list, compare);
    *ret_count = limit > 0 && (uint64_t)limit < count ? (size_t)limit : count;
    return list;
}

static void pyroscope_respond_series(struct pyroscope_sets *sets, int64_t start_ms, int64_t limit)
{
    MESSAGE(SelectSeriesResponse) response = QUERIER__V1__SELECT_SERIES_RESPONSE__INIT;
    struct query_job *job = sets->job;
    size_t count = 0;
    struct pyroscope_set **list = pyroscope_sets_list(sets, pyroscope_compare_sets, limit, &count);
    MESSAGE(Series) *series = br_arena_calloc(&job->arena, count + 1, sizeof *series);
    response.series = br_arena_calloc(&job->arena, count + 1, sizeof(void *));
    int rc = list && series && response.series ? 0 : br_arena_why(&job->arena);
    for (size_t i = 0; i < count && !rc; i++) {
        rc = pyroscope_set_points(sets, list[i], start_ms, &series[i]);
        response.series[response.n_series++] = &series[i];
    }
    if (rc)
        query_job_fail_rc(job, rc, NULL);
    else
        query_connect_respond(job, &response.base);
}

/* Sets the time steps. The timestamp of a step is its end, and the first step ends at the start
 * of the range. After an error, calls query_job_fail (400) and returns false. */
static bool pyroscope_sets_steps(struct pyroscope_sets *sets, double step, int64_t start,
                                 int64_t end, struct query_selection *selection)
{
    double step_ms = floor(step * 1000);
    struct query_job *job = sets->job;
    if (!(step_ms >= 1) || step_ms > 1e12)
        query_job_fail(job, 400, "step must be a number of seconds greater than 0");
    else if (!start || !end)
        query_job_fail(job, 400, "start and end must be set");
    else if ((double)(end - start) / step_ms > STEPS_MAX)
        query_job_fail(job, 400, "more than %d steps; use a longer step", STEPS_MAX);
    else {
        sets->step_ns = (uint64_t)step_ms * MS;
        sets->n_steps = (size_t)((uint64_t)(end - start) * MS / sets->step_ns) + 1;
        sets->from_ns = selection->from_ns + 1 -
                        (sets->step_ns < selection->from_ns ? sets->step_ns : selection->from_ns);
        selection->from_ns = sets->from_ns;
        /* the range includes the end itself, but not the rest of the millisecond that begins at the
         * end */
        selection->until_ns -= MS - 1;
        return true;
    }
    return false;
}

void query_pyroscope_select_series(struct query_job *job)
{
    const MESSAGE(SelectSeriesRequest) *request =
        query_connect_read(job, &querier__v1__select_series_request__descriptor);
    struct query_selection selection = {0};
    struct pyroscope_sets every = {.job = job}, sets = {.job = job, .grouping = true};
    struct br_err err = {0};
    if (!request ||
        !query_pyroscope_select(job, request->profile_typeid, request->label_selector,
                                request->start, request->end, &selection) ||
        !query_pyroscope_stacks(job, request->stack_trace_selector, &selection) ||
        !pyroscope_sets_steps(&sets, request->step, request->start, request->end, &selection))
        return;
    sets.only = request->group_by;
    sets.n_only = request->n_group_by;
    sets.averages = request->aggregation ==
                    QUERIER__V1__TIME_SERIES_AGGREGATION_TYPE__TIME_SERIES_AGGREGATION_TYPE_AVERAGE;
    sets.profiles = request->exemplar_type == EXEMPLARS(INDIVIDUAL);
    bool spans = request->exemplar_type == EXEMPLARS(SPAN) && !sets.averages;
    if (sets.profiles || spans)
        sets.every = &every;
    selection.spans_together = !spans;
    bool by_profile = sets.averages || sets.profiles;
    sets.map = br_map_new(SETS_MAX);
    every.map = br_map_new(SETS_MAX);
    if (by_profile)
        sets.map_profiles = br_map_new(PROFILES_MAX);
    int rc = BR_ENOMEM;
    if (sets.map && every.map && (sets.map_profiles || !by_profile))
        rc = query_selection_samples(job, &selection, by_profile ? 1 : sets.step_ns,
                                     by_profile ? pyroscope_on_profile : pyroscope_on_samples,
                                     &sets, &err);
    rc = rc ? rc : sets.rc;
    if (!rc && by_profile)
        pyroscope_add_profiles_to_sets(&sets);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        pyroscope_respond_series(&sets, request->start, request->limit);
    br_map_free(sets.map, NULL);
    br_map_free(every.map, NULL);
    br_map_free(sets.map_profiles, NULL);
}

/* --- Heatmaps -------------------------------------------------------------------------------- */

#define HEATMAP_ROWS 20 /* number of rows of a heatmap, as in Pyroscope */

/* The cells of a heatmap for one time step, one for each row. */
struct pyroscope_slot {
    int32_t counts[HEATMAP_ROWS];
    struct pyroscope_exemplar exemplars[HEATMAP_ROWS];
};

struct pyroscope_heatmap {
    struct pyroscope_sets sets;
    int64_t min, max;
    bool any, with_exemplars;
    double lower[HEATMAP_ROWS]; /* lowest value of each row */
};

static void pyroscope_heatmap_widen(struct pyroscope_heatmap *heatmap, uint64_t time_ns,
                                    int64_t value)
{
    if (pyroscope_sets_step(&heatmap->sets, time_ns) >= heatmap->sets.n_steps)
        return;
    if (!heatmap->any || value < heatmap->min)
        heatmap->min = value;
    if (!heatmap->any || value > heatmap->max)
        heatmap->max = value;
    heatmap->any = true;
}

static bool pyroscope_heatmap_on_range(const struct br_stored_samples *samples, void *arg)
{
    struct pyroscope_heatmap *heatmap = arg;
    if (samples->span_id)
        pyroscope_heatmap_widen(heatmap, samples->time_ns, samples->value);
    return query_job_may_continue(heatmap->sets.job);
}

/* Divides the range of values into HEATMAP_ROWS rows of equal height. The lower bounds of the
 * rows are rounded down to whole numbers. */
static void pyroscope_heatmap_rows(struct pyroscope_heatmap *heatmap)
{
    if (heatmap->max < 0)
        heatmap->max = 0;
    if (heatmap->max == heatmap->min)
        heatmap->max++;
    double height = ((double)heatmap->max - (double)heatmap->min) / HEATMAP_ROWS;
    for (int row = 0; row < HEATMAP_ROWS; row++)
        heatmap->lower[row] = (double)heatmap->min + floor(row * height);
}

static int pyroscope_heatmap_row(const struct pyroscope_heatmap *heatmap, int64_t value)
{
    int row = HEATMAP_ROWS - 1;
    while (row > 0 && (double)value < heatmap->lower[row])
        row--;
    return row;
}

/* Counts a value in its cell of the heatmap, and returns the exemplar of the cell. On failure
 * returns NULL and sets sets->rc. */
static struct pyroscope_exemplar *pyroscope_heatmap_count(struct pyroscope_heatmap *heatmap,
                                                          struct pyroscope_set *set, int64_t value,
                                                          size_t step)
{
    struct br_arena *arena = &heatmap->sets.job->arena;
    int row = pyroscope_heatmap_row(heatmap, value);
    if (!set->slots)
        set->slots = br_arena_calloc(arena, heatmap->sets.n_steps, sizeof(void *));
    if (set->slots && !set->slots[step])
        set->slots[step] = br_arena_calloc(arena, 1, sizeof **set->slots);
    if (!set->slots || !set->slots[step]) {
        heatmap->sets.rc = br_arena_why(arena);
        return NULL;
    }
    set->slots[step]->counts[row]++;
    set->n_points++;
    return &set->slots[step]->exemplars[row];
}

static bool pyroscope_heatmap_on_span(const struct br_stored_samples *samples, void *arg)
{
    struct pyroscope_heatmap *heatmap = arg;
    struct pyroscope_sets *sets = &heatmap->sets;
    size_t step = pyroscope_sets_step(sets, samples->time_ns);
    if (samples->span_id && step < sets->n_steps) {
        struct pyroscope_set *set = pyroscope_sets_find(sets, samples->series);
        struct pyroscope_exemplar *exemplar =
            set ? pyroscope_heatmap_count(heatmap, set, samples->value, step) : NULL;
        if (exemplar && heatmap->with_exemplars)
            (void)pyroscope_exemplar_keep_span(sets, samples, exemplar);
    }
    return !sets->rc && query_job_may_continue(sets->job);
}

/* Reads the spans for a heatmap in two passes. The first pass finds the range of values, so
 * memory grows with the number of steps and series, not with the number of spans. */
static int pyroscope_heatmap_read_spans(struct pyroscope_heatmap *heatmap,
                                        struct query_selection *selection, struct br_err *err)
{
    struct pyroscope_sets *sets = &heatmap->sets;
    int rc = query_selection_samples(sets->job, selection, sets->step_ns,
                                     pyroscope_heatmap_on_range, heatmap, err);
    pyroscope_heatmap_rows(heatmap);
    return rc ? rc
              : query_selection_samples(sets->job, selection, sets->step_ns,
                                        pyroscope_heatmap_on_span, heatmap, err);
}

static int pyroscope_heatmap_read_profiles(struct pyroscope_heatmap *heatmap,
                                           struct query_selection *selection, struct br_err *err)
{
    struct pyroscope_sets *sets = &heatmap->sets;
    const void *key;
    size_t len;
    sets->map_profiles = br_map_new(PROFILES_MAX);
    selection->spans_together = true;
    int rc = sets->map_profiles
                 ? query_selection_samples(sets->job, selection, 1, pyroscope_on_profile, sets, err)
                 : BR_ENOMEM;
    size_t count = rc || sets->rc ? 0 : br_map_count(sets->map_profiles);
    for (size_t i = 0; i < count; i++) {
        const struct pyroscope_profile *profile = br_map_at(sets->map_profiles, i, &key, &len);
        pyroscope_heatmap_widen(heatmap, profile->exemplar.time_ns, profile->exemplar.value);
    }
    pyroscope_heatmap_rows(heatmap);
    for (size_t i = 0; i < count && !sets->rc; i++) {
        const struct pyroscope_profile *profile = br_map_at(sets->map_profiles, i, &key, &len);
        size_t step = pyroscope_sets_step(sets, profile->exemplar.time_ns);
        struct pyroscope_exemplar *exemplar =
            step < sets->n_steps
                ? pyroscope_heatmap_count(heatmap, profile->set, profile->exemplar.value, step)
                : NULL;
        if (exemplar && heatmap->with_exemplars)
            pyroscope_exemplar_keep(&profile->exemplar, exemplar);
    }
    br_map_free(sets->map_profiles, NULL);
    return rc;
}

static int pyroscope_heatmap_compare(const void *left, const void *right)
{
    const struct pyroscope_set *a = *(const struct pyroscope_set *const *)left;
    const struct pyroscope_set *b = *(const struct pyroscope_set *const *)right;
    if (a->n_points != b->n_points)
        return a->n_points > b->n_points ? -1 : 1;
    return strcmp(a->key, b->key);
}

static int pyroscope_heatmap_slot(struct pyroscope_heatmap *heatmap, struct pyroscope_slot *slot,
                                  MESSAGE(HeatmapSlot) * ret)
{
    struct br_arena *arena = &heatmap->sets.job->arena;
    int rc = 0;
    querier__v1__heatmap_slot__init(ret);
    ret->y_min = heatmap->lower;
    ret->n_y_min = HEATMAP_ROWS;
    ret->counts = slot->counts;
    ret->n_counts = HEATMAP_ROWS;
    ret->exemplars = br_arena_calloc(arena, HEATMAP_ROWS, sizeof *ret->exemplars);
    if (!ret->exemplars)
        return br_arena_why(arena);
    for (int row = 0; row < HEATMAP_ROWS && !rc; row++)
        if (slot->exemplars[row].pairs)
            rc = pyroscope_exemplar_make(&heatmap->sets, &slot->exemplars[row],
                                         &ret->exemplars[ret->n_exemplars++]);
    return rc;
}

static int pyroscope_heatmap_series(struct pyroscope_heatmap *heatmap,
                                    const struct pyroscope_set *set, int64_t start_ms,
                                    MESSAGE(HeatmapSeries) * ret)
{
    const struct pyroscope_sets *sets = &heatmap->sets;
    struct br_arena *arena = &sets->job->arena;
    int rc = 0;
    querier__v1__heatmap_series__init(ret);
    ret->labels = set->pairs;
    ret->n_labels = set->n_pairs;
    ret->slots = br_arena_calloc(arena, sets->n_steps, sizeof *ret->slots);
    if (!ret->slots)
        return br_arena_why(arena);
    for (size_t i = 0; i < sets->n_steps && !rc; i++) {
        if (!set->slots[i])
            continue;
        MESSAGE(HeatmapSlot) *slot = br_arena_calloc(arena, 1, sizeof *slot);
        rc = slot ? pyroscope_heatmap_slot(heatmap, set->slots[i], slot) : br_arena_why(arena);
        if (rc)
            break;
        slot->timestamp = start_ms + (int64_t)(i * (sets->step_ns / MS));
        ret->slots[ret->n_slots++] = slot;
    }
    return rc;
}

static void pyroscope_respond_heatmap(struct pyroscope_heatmap *heatmap, int64_t start_ms,
                                      int64_t limit)
{
    MESSAGE(SelectHeatmapResponse) response = QUERIER__V1__SELECT_HEATMAP_RESPONSE__INIT;
    struct query_job *job = heatmap->sets.job;
    size_t count = 0;
    struct pyroscope_set **list =
        pyroscope_sets_list(&heatmap->sets, pyroscope_heatmap_compare, limit, &count);
    MESSAGE(HeatmapSeries) *series = br_arena_calloc(&job->arena, count + 1, sizeof *series);
    response.series = br_arena_calloc(&job->arena, count + 1, sizeof(void *));
    int rc = list && series && response.series ? 0 : br_arena_why(&job->arena);
    for (size_t i = 0; i < count && !rc; i++) {
        rc = pyroscope_heatmap_series(heatmap, list[i], start_ms, &series[i]);
        response.series[response.n_series++] = &series[i];
    }
    if (rc)
        query_job_fail_rc(job, rc, NULL);
    else
        query_connect_respond(job, &response.base);
}

static bool pyroscope_read_heatmap(struct query_job *job,
                                   const MESSAGE(SelectHeatmapRequest) * request)
{
    bool profiles = request->query_type == HEATMAP(INDIVIDUAL);
    if (!profiles && request->query_type != HEATMAP(SPAN))
        query_job_fail(
            job, 400,
            "query_type must be HEATMAP_QUERY_TYPE_INDIVIDUAL or HEATMAP_QUERY_TYPE_SPAN");
    else if (request->exemplar_type == (profiles ? EXEMPLARS(SPAN) : EXEMPLARS(INDIVIDUAL)))
        query_job_fail(job, 400, "exemplar_type must match query_type");
    else if (request->limit < 0)
        query_job_fail(job, 400, "limit must not be negative");
    else
        return true;
    return false;
}

/* Responds with a heatmap of spans or profiles by time and value. */
void query_pyroscope_select_heatmap(struct query_job *job)
{
    const MESSAGE(SelectHeatmapRequest) *request =
        query_connect_read(job, &querier__v1__select_heatmap_request__descriptor);
    struct query_selection selection = {0};
    struct pyroscope_sets every = {.job = job};
    struct pyroscope_heatmap heatmap = {
        .sets = {.job = job, .grouping = true, .heatmap = true, .every = &every}};
    struct pyroscope_sets *sets = &heatmap.sets;
    struct br_err err = {0};
    if (!request || !pyroscope_read_heatmap(job, request) ||
        !query_pyroscope_select(job, request->profile_typeid, request->label_selector,
                                request->start, request->end, &selection) ||
        !pyroscope_sets_steps(sets, request->step, request->start, request->end, &selection))
        return;
    heatmap.with_exemplars = request->exemplar_type == EXEMPLARS(SPAN) ||
                             request->exemplar_type == EXEMPLARS(INDIVIDUAL);
    sets->profiles = request->query_type == HEATMAP(INDIVIDUAL);
    sets->only = request->group_by;
    sets->n_only = request->n_group_by;
    sets->map = br_map_new(SETS_MAX);
    every.map = br_map_new(SETS_MAX);
    int rc = BR_ENOMEM;
    if (sets->map && every.map)
        rc = sets->profiles ? pyroscope_heatmap_read_profiles(&heatmap, &selection, &err)
                            : pyroscope_heatmap_read_spans(&heatmap, &selection, &err);
    if (!rc)
        rc = sets->rc;
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        pyroscope_respond_heatmap(&heatmap, request->start, request->limit);
    br_map_free(sets->map, NULL);
    br_map_free(every.map, NULL);
}
