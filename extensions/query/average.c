/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/selection.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

#define PROFILES_MAX (4u << 20)
#define SOURCES_MAX 1000000u

struct average_source {
    uint64_t n_profiles;
};

struct averaging {
    struct query_job *job;
    struct br_map *profiles; /* set of the distinct profiles, identified by source and time */
    struct br_map *sources;  /* map from source to struct average_source */
    /* number of profiles that a source must have to be selected; 0: all sources are selected */
    uint64_t divisor;
    int rc;
};

static bool average_on_series(const struct br_stored_series *series, void *arg)
{
    struct averaging *averaging = arg;
    uint64_t key = series->source;
    if (br_map_get(averaging->sources, &key, sizeof key))
        return query_job_may_continue(averaging->job);
    struct average_source *source = br_arena_calloc(&averaging->job->arena, 1, sizeof *source);
    averaging->rc = source ? br_map_put(averaging->sources, &key, sizeof key, source, NULL)
                           : br_arena_why(&averaging->job->arena);
    return !averaging->rc && query_job_may_continue(averaging->job);
}

static bool average_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct averaging *averaging = arg;
    const struct {
        uint64_t source, time_ns;
    } profile = {samples->series->source, samples->time_ns};
    struct average_source *source =
        br_map_get(averaging->sources, &profile.source, sizeof profile.source);
    if (source && !br_map_get(averaging->profiles, &profile, sizeof profile)) {
        source->n_profiles++;
        averaging->rc = br_map_put(averaging->profiles, &profile, sizeof profile, averaging, NULL);
    }
    return !averaging->rc && query_job_may_continue(averaging->job);
}

static bool average_selects(const struct br_stored_series *series, void *arg)
{
    const struct averaging *averaging = arg;
    uint64_t key = series->source;
    const struct average_source *source = br_map_get(averaging->sources, &key, sizeof key);
    return source && (!averaging->divisor || source->n_profiles == averaging->divisor);
}

static int average_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Returns a sorted list of the numbers of profiles that the sources have, each number once. */
static uint64_t *average_divisors(struct averaging *averaging, size_t *ret_count)
{
    size_t n_sources = br_map_count(averaging->sources), count = 0, len;
    uint64_t *list = br_arena_calloc(&averaging->job->arena, n_sources + 1, sizeof *list);
    const void *key;
    for (size_t i = 0; list && i < n_sources; i++) {
        const struct average_source *source = br_map_at(averaging->sources, i, &key, &len);
        list[i] = source->n_profiles;
    }
    if (list)
        qsort(list, n_sources, sizeof *list, average_compare);
    for (size_t i = 0; list && i < n_sources; i++)
        if (list[i] && (!count || list[count - 1] != list[i]))
            list[count++] = list[i];
    *ret_count = count;
    return list;
}

/* Prunes `flame` and `part` if the merged flame could have too many nodes. */
static int average_make_room(struct query_job *job, struct br_flame *flame, struct br_flame *part)
{
    struct br_flame *const both[] = {flame, part};
    int rc = 0;
    if (flame->n_nodes + part->n_nodes <= flame->max_nodes)
        return 0;
    for (size_t i = 0; i < 2 && !rc; i++) {
        uint32_t *map = NULL;
        if (both[i]->n_nodes > flame->max_nodes / 4)
            rc = br_flame_prune(both[i], flame->max_nodes / 4, &map);
        br_free(map);
    }
    job->store->note =
        "there are too many stacks for one query: the smallest are shown as \"other\"";
    return rc;
}

static int average_add(struct averaging *averaging, const struct br_sample_filter *filter,
                       struct br_flame *flame, struct br_err *err)
{
    struct br_sample_filter filtered = *filter;
    struct br_flame part;
    filtered.select_series = average_selects;
    filtered.select_arg = averaging;
    int rc = br_flame_init(&part, flame->max_nodes);
    if (rc)
        return rc;
    part.side = flame->side;
    rc = br_store_flame(averaging->job->store, &filtered, &part, err);
    if (!rc)
        rc = average_make_room(averaging->job, flame, &part);
    if (!rc)
        rc = br_flame_merge(flame, &part, true, averaging->divisor);
    br_flame_release(&part);
    return rc;
}

/* Counts the profiles of each process that has a series selected by the filter. Profiles are
 * counted even if they have no samples of the selected series. */
static int average_count(struct averaging *averaging, const struct br_sample_filter *filter,
                         struct br_err *err)
{
    struct br_store_query *store = averaging->job->store;
    const struct br_sample_filter all = {.from_ns = filter->from_ns,
                                         .until_ns = filter->until_ns,
                                         .type = filter->type,
                                         .spans_together = true,
                                         .select_series = average_selects,
                                         .select_arg = averaging};
    int rc = br_store_series(store, filter, average_on_series, averaging, err);
    if (!rc && !averaging->rc)
        rc = br_store_samples(store, &all, 1, average_on_samples, averaging, err);
    return rc ? rc : averaging->rc;
}

int query_average_flame(struct query_job *job, const struct br_sample_filter *filter,
                        struct br_flame *flame, struct br_err *err)
{
    struct averaging averaging = {
        .job = job, .profiles = br_map_new(PROFILES_MAX), .sources = br_map_new(SOURCES_MAX)};
    size_t n_divisors = 0;
    int rc = averaging.profiles && averaging.sources ? average_count(&averaging, filter, err)
                                                     : BR_ENOMEM;
    const uint64_t *divisors = rc ? NULL : average_divisors(&averaging, &n_divisors);
    if (!rc && !divisors)
        rc = br_arena_why(&job->arena);
    for (size_t i = 0; i < n_divisors && !rc && query_job_may_continue(job); i++) {
        averaging.divisor = divisors[i];
        rc = average_add(&averaging, filter, flame, err);
    }
    br_map_free(averaging.profiles, NULL);
    br_map_free(averaging.sources, NULL);
    return rc;
}
