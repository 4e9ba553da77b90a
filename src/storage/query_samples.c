/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/index.h"
#include "base/map.h"
#include "base/mem.h"
#include "storage/blocks.h"
#include "storage/matching.h"
#include "storage/samples.h"
#include "storage/stacks.h"
#include "storage/tree.h"

#define CHUNKS_MAX (64u << 20)
#define GROUPS_MAX (16u << 20)

/* A chunk that may have samples of what is asked for. */
struct chunk {
    struct br_store_view *view;
    const struct br_stored_series *series;
    bool whole; /* all its samples are in the range, and none is asked for by its span */
    uint32_t n_samples;
    int64_t min_time, max_time;
    const uint8_t *totals, *samples; /* as they are in the database */
    size_t totals_len, samples_len;
};

struct samples_query {
    struct br_store_query *query;
    const struct br_sample_filter *filter;
    struct br_err *err;
    struct br_store_matching matching;
    uint64_t *span_ids; /* sorted */
    const uint8_t (**trace_ids)[16];
    int64_t from, until;
    int64_t *list; /* chunks found by id */
    uint32_t n_list, cap_list;
    struct br_pack plain[2]; /* totals and samples */
    /* Called for each chunk of a view, and when the view is done. */
    int (*on_chunk)(struct samples_query *samples, const struct chunk *chunk);
    int (*on_view)(struct samples_query *samples, struct br_store_view *view);
    void *arg;
};

static int samples_query_no_memory(struct samples_query *samples)
{
    return br_err_set(samples->err, BR_ENOMEM, "out of memory");
}

/* --- The filter ------------------------------------------------------------------------------ */

static int samples_query_compare_spans(const void *left, const void *right)
{
    uint64_t first = *(const uint64_t *)left, second = *(const uint64_t *)right;
    return (first > second) - (first < second);
}

static int samples_query_compare_traces(const void *left, const void *right)
{
    const uint8_t(*const *first)[16] = left, (*const *second)[16] = right;
    return memcmp(**first, **second, 16);
}

static int samples_query_init(struct samples_query *samples, struct br_store_query *query,
                              const struct br_sample_filter *filter, struct br_err *err)
{
    samples->query = query;
    samples->filter = filter;
    samples->err = err;
    samples->from = br_sql_time(filter->from_ns);
    samples->until = filter->until_ns ? br_sql_time(filter->until_ns) : INT64_MAX;
    int rc = br_store_matching_init(&samples->matching, query, filter, err);
    if (rc)
        return rc;
    samples->span_ids = br_calloc(filter->n_span_ids + 1, sizeof *samples->span_ids);
    samples->trace_ids = br_calloc(filter->n_trace_ids + 1, sizeof *samples->trace_ids);
    if (!samples->span_ids || !samples->trace_ids)
        return samples_query_no_memory(samples);
    for (size_t i = 0; i < filter->n_span_ids; i++)
        samples->span_ids[i] = filter->span_ids[i];
    for (size_t i = 0; i < filter->n_trace_ids; i++)
        samples->trace_ids[i] = &filter->trace_ids[i];
    qsort(samples->span_ids, filter->n_span_ids, sizeof *samples->span_ids,
          samples_query_compare_spans);
    qsort(samples->trace_ids, filter->n_trace_ids, sizeof *samples->trace_ids,
          samples_query_compare_traces);
    return 0;
}

static void samples_query_release(struct samples_query *samples)
{
    br_store_matching_release(&samples->matching);
    br_free(samples->span_ids);
    br_free(samples->trace_ids);
    br_free(samples->list);
    br_pack_release(&samples->plain[0]);
    br_pack_release(&samples->plain[1]);
}

static bool samples_query_has_ids(const struct samples_query *samples)
{
    return samples->filter->n_span_ids || samples->filter->n_trace_ids;
}

/* Whether the samples of a span are asked for. */
static bool samples_query_wants(const struct samples_query *samples, const uint8_t *trace_id,
                                uint64_t span_id)
{
    const struct br_sample_filter *filter = samples->filter;
    const uint8_t(*trace)[16] = (const uint8_t(*)[16])(const void *)trace_id;
    if (filter->n_span_ids && !bsearch(&span_id, samples->span_ids, filter->n_span_ids,
                                       sizeof span_id, samples_query_compare_spans))
        return false;
    return !filter->n_trace_ids ||
           (trace_id && bsearch(&trace, samples->trace_ids, filter->n_trace_ids,
                                sizeof *samples->trace_ids, samples_query_compare_traces));
}

/* --- Chunks ---------------------------------------------------------------------------------- */

static int samples_query_failed(struct samples_query *samples, struct br_store_view *view, int rc,
                                struct br_err *why)
{
    rc = rc ? br_store_view_failed(samples->query, view, rc, why) : 0;
    return rc ? br_err_set(samples->err, rc, "%s", *why->text ? why->text : br_strerror(rc)) : 0;
}

static int samples_query_read_chunk(struct samples_query *samples, struct br_store_view *view,
                                    int64_t number)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    int rc = 0;
    sqlite3_stmt *statement = br_sql_take(sql, BR_SQL_CHUNK);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, number);
    if (!br_sql_row(sql, statement, &rc, &why))
        return samples_query_failed(samples, view, rc, &why);
    uint64_t series = (uint64_t)sqlite3_column_int64(statement, 0);
    struct chunk chunk = {.view = view,
                          .min_time = sqlite3_column_int64(statement, 1),
                          .max_time = sqlite3_column_int64(statement, 2),
                          .n_samples = (uint32_t)sqlite3_column_int64(statement, 3)};
    if (series < samples->matching.n_series)
        chunk.series = samples->matching.series[series];
    if (chunk.series && chunk.max_time >= samples->from && chunk.min_time < samples->until) {
        chunk.whole = chunk.min_time >= samples->from && chunk.max_time < samples->until &&
                      !samples_query_has_ids(samples);
        chunk.totals = sqlite3_column_blob(statement, 4);
        chunk.totals_len = (size_t)sqlite3_column_bytes(statement, 4);
        /* What is in pages of its own is read when it is asked for. */
        if (!chunk.whole) {
            chunk.samples = sqlite3_column_blob(statement, 5);
            chunk.samples_len = (size_t)sqlite3_column_bytes(statement, 5);
        }
        rc = samples->on_chunk(samples, &chunk);
    }
    (void)sqlite3_reset(statement);
    return rc;
}

static int samples_query_list(struct samples_query *samples, int64_t chunk)
{
    if (samples->n_list < samples->cap_list ||
        !br_grow(&samples->list, &samples->cap_list, (size_t)samples->n_list + 1,
                 sizeof *samples->list, CHUNKS_MAX)) {
        samples->list[samples->n_list++] = chunk;
        return 0;
    }
    return samples_query_no_memory(samples);
}

static int samples_query_find_id(struct samples_query *samples, struct br_store_view *view,
                                 int64_t id)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    int rc = 0, sql_rc = 0;
    sqlite3_stmt *statement = br_sql_take(sql, BR_SQL_CHUNKS_OF_ID);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, id);
    while (!rc && br_sql_row(sql, statement, &sql_rc, &why))
        rc = samples_query_list(samples, sqlite3_column_int64(statement, 0));
    return rc ? rc : samples_query_failed(samples, view, sql_rc, &why);
}

static int samples_query_find_series(struct samples_query *samples, struct br_store_view *view,
                                     uint32_t series)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    int rc = 0, sql_rc = 0;
    sqlite3_stmt *statement = br_sql_take(sql, BR_SQL_CHUNKS_OF_SERIES);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, series);
        (void)sqlite3_bind_int64(statement, 2, samples->from);
        (void)sqlite3_bind_int64(statement, 3, samples->until);
    }
    while (!rc && br_sql_row(sql, statement, &sql_rc, &why))
        rc = samples_query_list(samples, sqlite3_column_int64(statement, 0));
    return rc ? rc : samples_query_failed(samples, view, sql_rc, &why);
}

static int samples_query_compare_chunks(const void *left, const void *right)
{
    int64_t first = *(const int64_t *)left, second = *(const int64_t *)right;
    return (first > second) - (first < second);
}

static int samples_query_find(struct samples_query *samples, struct br_store_view *view)
{
    const struct br_sample_filter *filter = samples->filter;
    int rc = 0;
    samples->n_list = 0;
    if (filter->n_span_ids)
        for (size_t i = 0; i < filter->n_span_ids && !rc && !view->failed; i++)
            rc = samples_query_find_id(samples, view, (int64_t)samples->span_ids[i]);
    else if (filter->n_trace_ids)
        for (size_t i = 0; i < filter->n_trace_ids && !rc && !view->failed; i++)
            rc = samples_query_find_id(
                samples, view, br_blocks_trace_hash(view->totals.secret, *samples->trace_ids[i]));
    else
        for (uint32_t i = 0; i < samples->matching.n_series && !rc && !view->failed; i++)
            if (samples->matching.series[i])
                rc = samples_query_find_series(samples, view, i);
    if (!rc && samples->n_list)
        qsort(samples->list, samples->n_list, sizeof *samples->list, samples_query_compare_chunks);
    return rc;
}

static bool samples_query_touches(const struct samples_query *samples,
                                  const struct br_store_totals *totals)
{
    return totals->sample_from <= totals->sample_until && totals->sample_until >= samples->from &&
           totals->sample_from < samples->until;
}

static int samples_query_view(struct samples_query *samples, struct br_store_view *view)
{
    int rc = br_store_matching_read(&samples->matching, view);
    if (!rc && !view->failed)
        rc = samples_query_find(samples, view);
    for (uint32_t i = 0; i < samples->n_list && !rc && !view->failed; i++) {
        if (!br_store_query_goes_on(samples->query))
            break;
        if (!i || samples->list[i] != samples->list[i - 1])
            rc = samples_query_read_chunk(samples, view, samples->list[i]);
    }
    return rc || view->failed || !samples->on_view ? rc : samples->on_view(samples, view);
}

static int samples_query_run(struct samples_query *samples)
{
    struct br_store_reading *reading = br_store_reading_of(samples->query);
    int rc = 0;
    for (uint32_t i = 0; i < reading->n_views && !rc; i++) {
        struct br_store_view *view = &reading->views[i];
        samples->n_list = 0;
        if (samples_query_touches(samples, &view->totals) &&
            br_store_view_open(samples->query, view, &rc, samples->err))
            rc = samples_query_view(samples, view);
    }
    return rc;
}

/* Reads the samples of a chunk that are asked for; or what it adds up to, where `total` is set and
 * that will do. */
struct chunk_reader {
    struct samples_query *samples;
    const struct chunk *chunk;
    br_sample_total_fn *total;
    br_sample_fn *fn;
};

static bool chunk_reader_on_span(void *arg, const uint8_t *trace_id, uint64_t span_id)
{
    struct chunk_reader *reader = arg;
    return samples_query_wants(reader->samples, trace_id, span_id);
}

static bool chunk_reader_on_sample(void *arg, const struct br_sample_read *sample)
{
    struct chunk_reader *reader = arg;
    return sample->time_ns < reader->samples->from || sample->time_ns >= reader->samples->until ||
           reader->fn(reader, sample);
}

static int chunk_reader_run(struct chunk_reader *reader)
{
    struct samples_query *samples = reader->samples;
    struct br_store_reading *reading = br_store_reading_of(samples->query);
    const struct chunk *chunk = reader->chunk;
    struct br_err why = {.code = 0};
    int rc = br_unsqueeze(&reading->squeezer, chunk->totals, chunk->totals_len, &samples->plain[0]);
    if (!rc && !reader->total)
        rc = br_unsqueeze(&reading->squeezer, chunk->samples, chunk->samples_len,
                          &samples->plain[1]);
    bool good = rc == 0;
    if (good && reader->total)
        good = br_sample_totals_read(samples->plain[0].data, samples->plain[0].len, reader->total,
                                     reader);
    else if (good)
        good = br_samples_read(samples->plain[1].data, samples->plain[1].len,
                               samples->plain[0].data, samples->plain[0].len,
                               samples_query_has_ids(samples) ? chunk_reader_on_span : NULL,
                               chunk_reader_on_sample, reader);
    if (!good && rc != BR_ENOMEM)
        rc = br_err_set(&why, BR_EPROTO, "a chunk of samples is damaged");
    return samples_query_failed(samples, chunk->view, rc, &why);
}

/* --- Flame graphs ---------------------------------------------------------------------------- */

struct flaming {
    struct chunk_reader reader; /* first */
    struct br_flame *flame;
    const struct br_store_view *view;
    int64_t *sums; /* by node of the view */
    uint32_t n_sums, cap_sums;
    bool no_memory;
};

static bool flaming_add(struct flaming *flaming, uint32_t node, int64_t value)
{
    if (node >= flaming->n_sums) {
        if (br_grow(&flaming->sums, &flaming->cap_sums, (size_t)node + 1, sizeof *flaming->sums,
                    BR_STACK_NODES_MAX + 1u)) {
            flaming->no_memory = true;
            return false;
        }
        memset(flaming->sums + flaming->n_sums, 0,
               (size_t)(flaming->cap_sums - flaming->n_sums) * sizeof *flaming->sums);
        flaming->n_sums = flaming->cap_sums;
    }
    if (__builtin_add_overflow(flaming->sums[node], value, &flaming->sums[node]))
        flaming->sums[node] = value < 0 ? INT64_MIN : INT64_MAX;
    return true;
}

static bool flaming_on_total(void *arg, uint32_t node, int64_t value)
{
    return flaming_add(arg, node, value);
}

static bool flaming_on_sample(void *arg, const struct br_sample_read *sample)
{
    return flaming_add(arg, sample->node, sample->value);
}

static int flaming_on_chunk(struct samples_query *samples, const struct chunk *chunk)
{
    struct flaming *flaming = samples->arg;
    if (flaming->view != chunk->view && flaming->n_sums)
        memset(flaming->sums, 0, flaming->n_sums * sizeof *flaming->sums);
    flaming->view = chunk->view;
    flaming->reader = (struct chunk_reader){samples, chunk, chunk->whole ? flaming_on_total : NULL,
                                            flaming_on_sample};
    int rc = chunk_reader_run(&flaming->reader);
    return flaming->no_memory ? samples_query_no_memory(samples) : rc;
}

/* Makes the flame's nodes of those that have a sum, and of what is above them. */
static int flaming_graft(struct flaming *flaming, const struct br_store_tree *tree,
                         uint32_t *flame_nodes, uint32_t *names)
{
    uint32_t count = flaming->n_sums < tree->n_nodes ? flaming->n_sums : tree->n_nodes;
    int rc = 0;
    for (uint32_t i = count; i-- > 1;)
        if (flaming->sums[i] || flame_nodes[i])
            flame_nodes[tree->parents[i]] = flame_nodes[i] = 1;
    if (count && flaming->sums[0])
        br_flame_add(flaming->flame, 0, flaming->sums[0]);
    flame_nodes[0] = 0;
    for (uint32_t i = 1; i < count && !rc; i++) {
        uint32_t function = tree->functions[i];
        if (!flame_nodes[i])
            continue;
        if (!names[function]) {
            rc = br_flame_name(flaming->flame, br_store_tree_name(tree, function),
                               br_store_tree_file(tree, function), &names[function]);
            names[function] += !rc;
        }
        if (!rc)
            rc = br_flame_child(flaming->flame, flame_nodes[tree->parents[i]], names[function] - 1,
                                &flame_nodes[i]);
        if (!rc && flaming->sums[i])
            br_flame_add(flaming->flame, flame_nodes[i], flaming->sums[i]);
    }
    return rc;
}

static int flaming_on_view(struct samples_query *samples, struct br_store_view *view)
{
    struct flaming *flaming = samples->arg;
    bool any = false;
    for (uint32_t i = 0; flaming->view == view && i < flaming->n_sums && !any; i++)
        any = flaming->sums[i] != 0;
    int rc = any ? br_store_tree_load(samples->query, view, samples->err) : 0;
    const struct br_store_tree *tree = view->reader->tree;
    if (rc || !any || !tree)
        return rc;
    uint32_t *flame_nodes = br_calloc((size_t)tree->n_nodes + 1, sizeof *flame_nodes);
    uint32_t *names = br_calloc((size_t)tree->n_functions + 1, sizeof *names);
    rc = flame_nodes && names ? flaming_graft(flaming, tree, flame_nodes, names) : BR_ENOMEM;
    br_free(flame_nodes);
    br_free(names);
    memset(flaming->sums, 0, flaming->n_sums * sizeof *flaming->sums);
    if (rc == BR_EFULL)
        samples->query->cut = "the flame graph has too many nodes";
    return rc ? br_err_set(samples->err, rc, "%s", br_strerror(rc)) : 0;
}

int br_store_flame(struct br_store_query *query, const struct br_sample_filter *filter,
                   struct br_flame *flame, struct br_err *err)
{
    struct flaming flaming = {.flame = flame};
    struct samples_query samples = {
        .on_chunk = flaming_on_chunk, .on_view = flaming_on_view, .arg = &flaming};
    int rc = samples_query_init(&samples, query, filter, err);
    if (!rc)
        rc = samples_query_run(&samples);
    br_free(flaming.sums);
    samples_query_release(&samples);
    return rc;
}

/* --- Sums ------------------------------------------------------------------------------------ */

struct summing {
    struct chunk_reader reader; /* first */
    uint64_t step_ns;
    struct br_stored_samples *groups;
    uint64_t *steps; /* of each group */
    uint32_t n_groups, cap_groups, cap_steps;
    struct br_index index;
    int rc;
};

struct group_key {
    const struct br_stored_series *series;
    uint64_t step, span_id;
    uint8_t trace_id[16];
};

static uint64_t summing_hash(const struct summing *summing, const struct group_key *key)
{
    return br_index_hash(&summing->index, key, sizeof *key);
}

static bool summing_is(const void *entries, uint32_t place, const void *wanted)
{
    const struct summing *summing = entries;
    const struct group_key *key = wanted;
    const struct br_stored_samples *group = &summing->groups[place];
    return group->series == key->series && group->span_id == key->span_id &&
           summing->steps[place] == key->step && memcmp(group->trace_id, key->trace_id, 16) == 0;
}

static uint64_t summing_rehash(const void *entries, uint32_t place)
{
    const struct summing *summing = entries;
    const struct br_stored_samples *group = &summing->groups[place];
    struct group_key key = {
        .series = group->series, .step = summing->steps[place], .span_id = group->span_id};
    memcpy(key.trace_id, group->trace_id, 16);
    return summing_hash(summing, &key);
}

static struct br_stored_samples *summing_group(struct summing *summing, const struct group_key *key)
{
    uint64_t hash = summing_hash(summing, key);
    uint32_t place = br_index_find(&summing->index, hash, summing_is, summing, key);
    if (place != BR_INDEX_NONE)
        return &summing->groups[place];
    uint32_t before = summing->cap_groups;
    size_t need = (size_t)summing->n_groups + 1;
    if (br_grow(&summing->groups, &summing->cap_groups, need, sizeof *summing->groups,
                GROUPS_MAX) ||
        br_grow(&summing->steps, &summing->cap_steps, need, sizeof *summing->steps, GROUPS_MAX))
        return NULL;
    br_store_query_hold(summing->reader.samples->query,
                        (int64_t)(summing->cap_groups - before) *
                            (int64_t)(sizeof *summing->groups + 24));
    struct br_stored_samples *group = &summing->groups[summing->n_groups];
    *group = (struct br_stored_samples){
        .series = key->series, .span_id = key->span_id, .time_ns = UINT64_MAX};
    memcpy(group->trace_id, key->trace_id, 16);
    summing->steps[summing->n_groups] = key->step;
    if (br_index_add(&summing->index, hash, summing->n_groups, summing_rehash, summing))
        return NULL;
    summing->n_groups++;
    return group;
}

static uint64_t summing_step(const struct summing *summing, int64_t time_ns)
{
    uint64_t time = time_ns > 0 ? (uint64_t)time_ns : 0;
    uint64_t from = summing->reader.samples->filter->from_ns;
    return summing->step_ns && time > from ? (time - from) / summing->step_ns : 0;
}

static bool summing_add(struct summing *summing, const struct group_key *key, int64_t time_ns,
                        uint64_t count, int64_t value)
{
    struct br_stored_samples *group = summing_group(summing, key);
    uint64_t time = time_ns > 0 ? (uint64_t)time_ns : 0;
    if (!group) {
        summing->rc = BR_ENOMEM;
        return false;
    }
    group->count += count;
    if (__builtin_add_overflow(group->value, value, &group->value))
        group->value = value < 0 ? INT64_MIN : INT64_MAX;
    group->time_ns = time < group->time_ns ? time : group->time_ns;
    return true;
}

static bool summing_on_sample(void *arg, const struct br_sample_read *sample)
{
    struct summing *summing = arg;
    struct group_key key = {.series = summing->reader.chunk->series,
                            .step = summing_step(summing, sample->time_ns)};
    if (!summing->reader.samples->filter->spans_together) {
        key.span_id = sample->span_id;
        if (sample->trace_id)
            memcpy(key.trace_id, sample->trace_id, 16);
    }
    return summing_add(summing, &key, sample->time_ns, 1, sample->value);
}

static bool summing_on_total(void *arg, uint32_t node, int64_t value)
{
    struct summing *summing = arg;
    const struct chunk *chunk = summing->reader.chunk;
    struct group_key key = {.series = chunk->series,
                            .step = summing_step(summing, chunk->min_time)};
    (void)node;
    return summing_add(summing, &key, chunk->min_time, 0, value);
}

static int summing_on_chunk(struct samples_query *samples, const struct chunk *chunk)
{
    struct summing *summing = samples->arg;
    struct chunk read = *chunk;
    summing->reader.samples = samples;
    bool together =
        samples->filter->spans_together && chunk->whole &&
        summing_step(summing, chunk->min_time) == summing_step(summing, chunk->max_time);
    if (chunk->whole && !together) {
        /* The row is still at hand. */
        sqlite3_stmt *statement = chunk->view->reader->sql.statements[BR_SQL_CHUNK];
        read.totals = sqlite3_column_blob(statement, 4);
        read.totals_len = (size_t)sqlite3_column_bytes(statement, 4);
        read.samples = sqlite3_column_blob(statement, 5);
        read.samples_len = (size_t)sqlite3_column_bytes(statement, 5);
    }
    summing->reader = (struct chunk_reader){samples, &read, together ? summing_on_total : NULL,
                                            summing_on_sample};
    int rc = chunk_reader_run(&summing->reader);
    if (!rc && together && !chunk->view->failed) {
        struct group_key key = {.series = chunk->series,
                                .step = summing_step(summing, chunk->min_time)};
        (void)summing_add(summing, &key, chunk->min_time, chunk->n_samples, 0);
    }
    return summing->rc ? samples_query_no_memory(samples) : rc;
}

int br_store_samples(struct br_store_query *query, const struct br_sample_filter *filter,
                     uint64_t step_ns, br_samples_fn *fn, void *arg, struct br_err *err)
{
    struct summing summing = {.step_ns = step_ns};
    struct samples_query samples = {.on_chunk = summing_on_chunk, .arg = &summing};
    br_index_init(&summing.index, GROUPS_MAX, BR_HOLDER_STORE);
    br_random_bytes(summing.index.secret, sizeof summing.index.secret);
    int rc = samples_query_init(&samples, query, filter, err);
    if (!rc)
        rc = samples_query_run(&samples);
    for (uint32_t i = 0; i < summing.n_groups && !rc; i++)
        if (!fn(&summing.groups[i], arg))
            break;
    br_store_query_hold(query, -(int64_t)(summing.cap_groups * (sizeof *summing.groups + 24)));
    br_free(summing.groups);
    br_free(summing.steps);
    br_index_release(&summing.index);
    samples_query_release(&samples);
    return rc;
}

/* --- Series ---------------------------------------------------------------------------------- */

struct listing {
    struct br_map *out; /* hashes of those that were handed out */
    br_series_fn *fn;
    void *arg;
    bool stopped;
};

static int listing_view(struct samples_query *samples, struct listing *listing,
                        struct br_store_view *view)
{
    int rc = br_store_matching_read(&samples->matching, view);
    for (uint32_t i = 0; i < samples->matching.n_series && !rc && !listing->stopped; i++) {
        const struct br_stored_series *series = samples->matching.series[i];
        if (!series || view->failed || br_map_get(listing->out, &series->hash, sizeof series->hash))
            continue;
        samples->n_list = 0;
        rc = samples_query_find_series(samples, view, i);
        if (rc || !samples->n_list)
            continue;
        if (br_map_put(listing->out, &series->hash, sizeof series->hash, listing, NULL))
            return samples_query_no_memory(samples);
        listing->stopped = !listing->fn(series, listing->arg);
    }
    return rc;
}

int br_store_series(struct br_store_query *query, const struct br_sample_filter *filter,
                    br_series_fn *fn, void *arg, struct br_err *err)
{
    struct listing listing = {.out = br_map_new(GROUPS_MAX), .fn = fn, .arg = arg};
    struct samples_query samples = {.arg = &listing};
    struct br_store_reading *reading = br_store_reading_of(query);
    int rc = samples_query_init(&samples, query, filter, err);
    if (!rc && !listing.out)
        rc = samples_query_no_memory(&samples);
    for (uint32_t i = 0; i < reading->n_views && !rc && !listing.stopped; i++) {
        struct br_store_view *view = &reading->views[i];
        if (samples_query_touches(&samples, &view->totals) &&
            br_store_view_open(query, view, &rc, err))
            rc = listing_view(&samples, &listing, view);
    }
    samples_query_release(&samples);
    br_map_free(listing.out, NULL);
    return rc;
}
