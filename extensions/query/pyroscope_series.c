/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's methods about series: Series, SelectSeries and SelectHeatmap. A point or slot covers
 * the step that ends with its time. Source: grafana/pyroscope pkg/model/timeseries
 * and pkg/model/heatmap.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "extensions/query/connect.h"
#include "extensions/query/names.h"
#include "extensions/query/pyroscope.h"
#include "querier/v1/querier.pb-c.h"

#define MESSAGE(name) Querier__V1__##name
#define SETS_MAX 100000 /* series of one answer */
#define STEPS_MAX 11000 /* of a series; Prometheus' limit, too */
#define MS UINT64_C(1000000)
#define EXEMPLARS(type) QUERIER__V1__EXEMPLAR_TYPE__EXEMPLAR_TYPE_##type
#define HEATMAP(type) QUERIER__V1__HEATMAP_QUERY_TYPE__HEATMAP_QUERY_TYPE_##type

/* --- Label sets ------------------------------------------------------------------------------- */

/* Label sets, each once, in the order in which they came. */
struct pyroscope_sets {
    struct query_job *job;
    struct br_map *map; /* by names and values, of pyroscope_set */
    char *const *only;  /* these labels; none: all */
    size_t n_only;
    bool grouping; /* none: no label at all */
    uint64_t from_ns, step_ns;
    size_t n_steps;
    bool averages;                /* else sums */
    bool heatmap;                 /* sets have slots; else sums */
    bool profiles;                /* exemplars are profiles; else spans */
    struct pyroscope_sets *every; /* all labels of a series, for exemplars; NULL: none are wanted */
    int rc;
};

/* A span, as its samples in a step were added up, or a profile. */
struct pyroscope_exemplar {
    const struct pyroscope_set *labels; /* NULL: none */
    uint64_t series_hash, time_ns, span_id;
    uint8_t trace_id[16];
    int64_t value;
};

struct pyroscope_set {
    Push__V1__LabelPair **pairs;
    size_t n_pairs;
    double *sums;                         /* by step; NAN: there was nothing */
    uint64_t *counts;                     /* profiles of each step; NULL: not asked for */
    struct pyroscope_exemplar *exemplars; /* of each step the largest; NULL: not asked for */
    struct pyroscope_slot **slots;        /* of a heatmap, by step; NULL: not asked for */
    uint64_t n_points;                    /* of a heatmap */
    double total;
    const char *key;
};

static bool pyroscope_sets_has(const struct pyroscope_sets *sets, const char *name)
{
    if (!name || !sets->n_only)
        return name && !sets->grouping;
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
    if (sets->averages)
        set->counts = br_arena_calloc(arena, sets->n_steps + 1, sizeof *set->counts);
    if (sets->every && !sets->heatmap)
        set->exemplars = br_arena_calloc(arena, sets->n_steps + 1, sizeof *set->exemplars);
    if (!pairs || !set->pairs || !set->sums || (sets->averages && !set->counts) ||
        (sets->every && !sets->heatmap && !set->exemplars))
        return br_arena_why(arena);
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

/* The set of a series; NULL with sets->rc. */
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
    return pyroscope_sets_find(sets, series) && query_pick_goes_on(sets->job);
}

void query_pyroscope_series(struct query_job *job)
{
    const MESSAGE(SeriesRequest) *request =
        query_connect_read(job, &querier__v1__series_request__descriptor);
    MESSAGE(SeriesResponse) answer = QUERIER__V1__SERIES_RESPONSE__INIT;
    struct query_pick range = {0};
    struct pyroscope_sets sets = {.job = job};
    struct br_err err = {0};
    if (!request || !query_pyroscope_range(job, request->start, request->end, &range))
        return;
    sets.only = request->label_names;
    sets.n_only = request->n_label_names;
    sets.map = br_map_new(SETS_MAX);
    const struct query_names_ask ask = {.from_ns = range.from_ns,
                                        .until_ns = range.until_ns,
                                        .selectors = request->matchers,
                                        .n_selectors = request->n_matchers};
    int rc = sets.map ? query_names_each_series(job, &ask, pyroscope_sets_on_series, &sets, &err)
                      : BR_ENOMEM;
    size_t count = rc || sets.rc ? 0 : br_map_count(sets.map), len;
    const void *key;
    MESSAGE(Labels) *labels = br_arena_calloc(&job->arena, count + 1, sizeof *labels);
    answer.labels_set = br_arena_calloc(&job->arena, count + 1, sizeof(void *));
    if (!rc)
        rc = sets.rc;
    if (!rc && (!labels || !answer.labels_set))
        rc = br_arena_why(&job->arena);
    for (size_t i = 0; i < count && !rc; i++) {
        const struct pyroscope_set *set = br_map_at(sets.map, i, &key, &len);
        querier__v1__labels__init(&labels[i]);
        labels[i].labels = set->pairs;
        labels[i].n_labels = set->n_pairs;
        answer.labels_set[answer.n_labels_set++] = &labels[i];
    }
    br_map_free(sets.map, NULL);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        query_connect_answer(job, &answer.base);
}

/* --- Exemplars -------------------------------------------------------------------------------- */

/* Keeps the span or profile if it is larger than the one before it. False with sets->rc. */
static bool pyroscope_exemplar_keep(struct pyroscope_sets *sets,
                                    const struct br_stored_samples *samples,
                                    struct pyroscope_exemplar *exemplar)
{
    if ((!samples->span_id && !sets->profiles) ||
        (exemplar->labels && exemplar->value >= samples->value))
        return true;
    const struct pyroscope_set *labels = pyroscope_sets_find(sets->every, samples->series);
    if (!labels) {
        sets->rc = sets->every->rc;
        return false;
    }
    *exemplar = (struct pyroscope_exemplar){.labels = labels,
                                            .series_hash = samples->series->hash,
                                            .time_ns = samples->time_ns,
                                            .span_id = samples->span_id,
                                            .value = samples->value};
    memcpy(exemplar->trace_id, samples->trace_id, sizeof exemplar->trace_id);
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
    const struct query_profile profile = {exemplar->series_hash, exemplar->time_ns};
    char text[QUERY_PROFILE_ID];
    query_pick_print_profile(&profile, text);
    return br_arena_strndup(arena, text, sizeof text - 1);
}

/* Makes a message: with the labels of the series that are not those of the set. */
static int pyroscope_exemplar_make(const struct pyroscope_sets *sets,
                                   const struct pyroscope_exemplar *exemplar,
                                   MESSAGE(Exemplar) * *ret)
{
    struct br_arena *arena = &sets->job->arena;
    const struct pyroscope_set *labels = exemplar->labels;
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
    made->labels = br_arena_calloc(arena, labels->n_pairs + 1, sizeof *made->labels);
    if (!made->profile_id || !made->span_id || !made->trace_id || !made->labels)
        return br_arena_why(arena);
    for (size_t i = 0; i < labels->n_pairs; i++)
        if (!pyroscope_sets_has(sets, labels->pairs[i]->name))
            made->labels[made->n_labels++] = labels->pairs[i];
    *ret = made;
    return 0;
}

/* --- Time series ------------------------------------------------------------------------------ */

/* The number of a step; n_steps or more: outside. */
static size_t pyroscope_sets_step(const struct pyroscope_sets *sets,
                                  const struct br_stored_samples *samples)
{
    return samples->time_ns < sets->from_ns
               ? sets->n_steps
               : (size_t)((samples->time_ns - sets->from_ns) / sets->step_ns);
}

static bool pyroscope_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct pyroscope_sets *sets = arg;
    struct pyroscope_set *set = pyroscope_sets_find(sets, samples->series);
    if (!set)
        return false;
    size_t step = pyroscope_sets_step(sets, samples);
    if (step < sets->n_steps) {
        double before = isnan(set->sums[step]) ? 0 : set->sums[step];
        set->sums[step] = before + (double)samples->value;
        set->total += (double)samples->value;
        if (set->counts)
            set->counts[step]++;
        if (set->exemplars && !pyroscope_exemplar_keep(sets, samples, &set->exemplars[step]))
            return false;
    }
    return query_pick_goes_on(sets->job);
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
        if (!set->exemplars || !set->exemplars[i].labels)
            continue;
        points[i].exemplars = br_arena_calloc(arena, 1, sizeof *points[i].exemplars);
        points[i].n_exemplars = 1;
        rc = points[i].exemplars
                 ? pyroscope_exemplar_make(sets, &set->exemplars[i], points[i].exemplars)
                 : br_arena_why(arena);
    }
    return rc;
}

/* The sets in the order of `compare`, at most `limit` of them (0: all). NULL without memory. */
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

static void pyroscope_answer_series(struct pyroscope_sets *sets, int64_t start_ms, int64_t limit)
{
    MESSAGE(SelectSeriesResponse) answer = QUERIER__V1__SELECT_SERIES_RESPONSE__INIT;
    struct query_job *job = sets->job;
    size_t count = 0;
    struct pyroscope_set **list = pyroscope_sets_list(sets, pyroscope_compare_sets, limit, &count);
    MESSAGE(Series) *series = br_arena_calloc(&job->arena, count + 1, sizeof *series);
    answer.series = br_arena_calloc(&job->arena, count + 1, sizeof(void *));
    int rc = list && series && answer.series ? 0 : br_arena_why(&job->arena);
    for (size_t i = 0; i < count && !rc; i++) {
        rc = pyroscope_set_points(sets, list[i], start_ms, &series[i]);
        answer.series[answer.n_series++] = &series[i];
    }
    if (rc)
        query_job_fail_rc(job, rc, NULL);
    else
        query_connect_answer(job, &answer.base);
}

/* Sets the steps: each ends with its own time, the first one with the start. Returns false after
 * query_job_fail (400). */
static bool pyroscope_sets_steps(struct pyroscope_sets *sets, double step, int64_t start,
                                 int64_t end, struct query_pick *pick)
{
    double step_ms = floor(step * 1000);
    struct query_job *job = sets->job;
    if (!(step_ms >= 1) || step_ms > 1e12)
        query_job_fail(job, 400, "step must be seconds, more than 0");
    else if (!start || !end)
        query_job_fail(job, 400, "start and end must be set");
    else if ((double)(end - start) / step_ms > STEPS_MAX)
        query_job_fail(job, 400, "more than %d steps; ask for a longer step", STEPS_MAX);
    else {
        sets->step_ns = (uint64_t)step_ms * MS;
        sets->n_steps = (size_t)((uint64_t)(end - start) * MS / sets->step_ns) + 1;
        sets->from_ns =
            pick->from_ns + 1 - (sets->step_ns < pick->from_ns ? sets->step_ns : pick->from_ns);
        pick->from_ns = sets->from_ns;
        pick->until_ns -= MS - 1; /* to the end itself */
        return true;
    }
    return false;
}

void query_pyroscope_select_series(struct query_job *job)
{
    const MESSAGE(SelectSeriesRequest) *request =
        query_connect_read(job, &querier__v1__select_series_request__descriptor);
    struct query_pick pick = {0};
    struct pyroscope_sets every = {.job = job}, sets = {.job = job, .grouping = true};
    struct br_err err = {0};
    if (request && request->stack_trace_selector && request->stack_trace_selector->n_call_site) {
        query_job_fail(job, 501, "stack_trace_selector is not supported for series");
        return;
    }
    if (!request ||
        !query_pyroscope_pick(job, request->profile_typeid, request->label_selector, request->start,
                              request->end, &pick) ||
        !pyroscope_sets_steps(&sets, request->step, request->start, request->end, &pick))
        return;
    sets.only = request->group_by;
    sets.n_only = request->n_group_by;
    sets.averages = request->aggregation ==
                    QUERIER__V1__TIME_SERIES_AGGREGATION_TYPE__TIME_SERIES_AGGREGATION_TYPE_AVERAGE;
    sets.profiles = request->exemplar_type == EXEMPLARS(INDIVIDUAL);
    bool spans = request->exemplar_type == EXEMPLARS(SPAN) && !sets.averages;
    if (sets.profiles || spans)
        sets.every = &every;
    pick.spans_together = !spans;
    sets.map = br_map_new(SETS_MAX);
    every.map = br_map_new(SETS_MAX);
    /* Samples of one time are of one profile. */
    uint64_t step_ns = sets.averages || sets.profiles ? 1 : sets.step_ns;
    int rc = sets.map && every.map
                 ? query_pick_samples(job, &pick, step_ns, pyroscope_on_samples, &sets, &err)
                 : BR_ENOMEM;
    if (!rc)
        rc = sets.rc;
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        pyroscope_answer_series(&sets, request->start, request->limit);
    br_map_free(sets.map, NULL);
    br_map_free(every.map, NULL);
}

/* --- Heatmaps --------------------------------------------------------------------------------- */

#define HEATMAP_ROWS 20 /* as Pyroscope's */

/* A column of a heatmap. */
struct pyroscope_slot {
    int32_t counts[HEATMAP_ROWS];
    struct pyroscope_exemplar exemplars[HEATMAP_ROWS];
};

struct pyroscope_heatmap {
    struct pyroscope_sets sets;
    int64_t least, most;
    bool any, with_exemplars;
    double lower[HEATMAP_ROWS]; /* of each row */
};

static bool pyroscope_heatmap_on_range(const struct br_stored_samples *samples, void *arg)
{
    struct pyroscope_heatmap *heatmap = arg;
    if ((samples->span_id || heatmap->sets.profiles) &&
        pyroscope_sets_step(&heatmap->sets, samples) < heatmap->sets.n_steps) {
        if (!heatmap->any || samples->value < heatmap->least)
            heatmap->least = samples->value;
        if (!heatmap->any || samples->value > heatmap->most)
            heatmap->most = samples->value;
        heatmap->any = true;
    }
    return query_pick_goes_on(heatmap->sets.job);
}

/* Rows of equal height from the least value to the most, in whole numbers. */
static void pyroscope_heatmap_rows(struct pyroscope_heatmap *heatmap)
{
    if (heatmap->most < 0)
        heatmap->most = 0;
    if (heatmap->most == heatmap->least)
        heatmap->most++;
    double height = ((double)heatmap->most - (double)heatmap->least) / HEATMAP_ROWS;
    for (int row = 0; row < HEATMAP_ROWS; row++)
        heatmap->lower[row] = (double)heatmap->least + floor(row * height);
}

static int pyroscope_heatmap_row(const struct pyroscope_heatmap *heatmap, int64_t value)
{
    int row = HEATMAP_ROWS - 1;
    while (row > 0 && (double)value < heatmap->lower[row])
        row--;
    return row;
}

/* Counts a span in its cell. Returns 0, BR_EFULL or BR_ENOMEM. */
static int pyroscope_heatmap_count(struct pyroscope_heatmap *heatmap, struct pyroscope_set *set,
                                   const struct br_stored_samples *samples, size_t step)
{
    struct br_arena *arena = &heatmap->sets.job->arena;
    int row = pyroscope_heatmap_row(heatmap, samples->value);
    if (!set->slots)
        set->slots = br_arena_calloc(arena, heatmap->sets.n_steps, sizeof(void *));
    if (set->slots && !set->slots[step])
        set->slots[step] = br_arena_calloc(arena, 1, sizeof **set->slots);
    if (!set->slots || !set->slots[step])
        return br_arena_why(arena);
    set->slots[step]->counts[row]++;
    set->n_points++;
    return !heatmap->with_exemplars || pyroscope_exemplar_keep(&heatmap->sets, samples,
                                                               &set->slots[step]->exemplars[row])
               ? 0
               : heatmap->sets.rc;
}

static bool pyroscope_heatmap_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct pyroscope_heatmap *heatmap = arg;
    struct pyroscope_sets *sets = &heatmap->sets;
    size_t step = pyroscope_sets_step(sets, samples);
    if ((samples->span_id || sets->profiles) && step < sets->n_steps) {
        struct pyroscope_set *set = pyroscope_sets_find(sets, samples->series);
        if (set)
            sets->rc = pyroscope_heatmap_count(heatmap, set, samples, step);
    }
    return !sets->rc && query_pick_goes_on(sets->job);
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
        if (slot->exemplars[row].labels)
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

static void pyroscope_answer_heatmap(struct pyroscope_heatmap *heatmap, int64_t start_ms,
                                     int64_t limit)
{
    MESSAGE(SelectHeatmapResponse) answer = QUERIER__V1__SELECT_HEATMAP_RESPONSE__INIT;
    struct query_job *job = heatmap->sets.job;
    size_t count = 0;
    struct pyroscope_set **list =
        pyroscope_sets_list(&heatmap->sets, pyroscope_heatmap_compare, limit, &count);
    MESSAGE(HeatmapSeries) *series = br_arena_calloc(&job->arena, count + 1, sizeof *series);
    answer.series = br_arena_calloc(&job->arena, count + 1, sizeof(void *));
    int rc = list && series && answer.series ? 0 : br_arena_why(&job->arena);
    for (size_t i = 0; i < count && !rc; i++) {
        rc = pyroscope_heatmap_series(heatmap, list[i], start_ms, &series[i]);
        answer.series[answer.n_series++] = &series[i];
    }
    if (rc)
        query_job_fail_rc(job, rc, NULL);
    else
        query_connect_answer(job, &answer.base);
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
        query_job_fail(job, 400, "exemplar_type must be that of query_type");
    else if (request->limit < 0)
        query_job_fail(job, 400, "limit must not be negative");
    else
        return true;
    return false;
}

/* Spans or profiles by time and by value. The range of values is found in a first pass, so that
 * memory grows with steps and series, not with spans. */
void query_pyroscope_select_heatmap(struct query_job *job)
{
    const MESSAGE(SelectHeatmapRequest) *request =
        query_connect_read(job, &querier__v1__select_heatmap_request__descriptor);
    struct query_pick pick = {0};
    struct pyroscope_sets every = {.job = job};
    struct pyroscope_heatmap heatmap = {
        .sets = {.job = job, .grouping = true, .heatmap = true, .every = &every}};
    struct pyroscope_sets *sets = &heatmap.sets;
    struct br_err err = {0};
    if (!request || !pyroscope_read_heatmap(job, request) ||
        !query_pyroscope_pick(job, request->profile_typeid, request->label_selector, request->start,
                              request->end, &pick) ||
        !pyroscope_sets_steps(sets, request->step, request->start, request->end, &pick))
        return;
    heatmap.with_exemplars = request->exemplar_type == EXEMPLARS(SPAN) ||
                             request->exemplar_type == EXEMPLARS(INDIVIDUAL);
    sets->profiles = request->query_type == HEATMAP(INDIVIDUAL);
    pick.spans_together = sets->profiles;
    uint64_t step_ns = sets->profiles ? 1 : sets->step_ns;
    sets->only = request->group_by;
    sets->n_only = request->n_group_by;
    sets->map = br_map_new(SETS_MAX);
    every.map = br_map_new(SETS_MAX);
    int rc = sets->map && every.map ? query_pick_samples(job, &pick, step_ns,
                                                         pyroscope_heatmap_on_range, &heatmap, &err)
                                    : BR_ENOMEM;
    pyroscope_heatmap_rows(&heatmap);
    if (!rc)
        rc = query_pick_samples(job, &pick, step_ns, pyroscope_heatmap_on_samples, &heatmap, &err);
    if (!rc)
        rc = sets->rc;
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        pyroscope_answer_heatmap(&heatmap, request->start, request->limit);
    br_map_free(sets->map, NULL);
    br_map_free(every.map, NULL);
}
