/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/index.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sum.h"
#include "storage/blocks.h"
#include "storage/callsite.h"
#include "storage/matching.h"
#include "storage/samples.h"
#include "storage/stacks.h"
#include "storage/tree.h"

#define CHUNKS_MAX (64u << 20)
#define GROUPS_MAX (16u << 20)

/* A chunk that may have samples of what is asked for; or a sum of chunks, which is whole and has
 * totals alone. */
struct chunk {
    struct br_store_view *view;
    const struct br_stored_series *series;
    bool whole; /* all its samples are in the range, and none is asked for by its span */
    uint64_t n_samples;
    int64_t min_time, max_time;
    const uint8_t *totals, *samples; /* as they are in the database */
    size_t totals_len, samples_len;
};

/* What is to be read: a row of `sums` that stands for the chunks from `first` to `last` of a
 * series, or of `chunks`. */
struct part {
    bool is_sum;
    int64_t id, first, last;
};

struct samples_query {
    struct br_store_query *query;
    const struct br_sample_filter *filter;
    struct br_err *err;
    struct br_store_matching matching;
    uint64_t *span_ids; /* sorted */
    const uint8_t (**trace_ids)[16];
    int64_t from, until;
    struct part *list;
    uint32_t n_list, cap_list;
    struct br_pack plain[2]; /* totals and samples */
    struct br_store_callsite call_site;
    /* Called for each chunk of a view, and when the view is done. */
    int (*on_chunk)(struct samples_query *samples, const struct chunk *chunk);
    int (*on_view)(struct samples_query *samples, struct br_store_view *view);
    /* Whether a sum of chunks that lie in the range, between these times, will do; NULL: none. */
    bool (*takes_sum)(const struct samples_query *samples, int64_t min_time, int64_t max_time);
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
    samples->call_site.names = filter->call_site;
    samples->call_site.n_names = filter->n_call_site;
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
    br_store_callsite_release(&samples->call_site);
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

/* The columns of both rows are the same, but that a sum has no samples. */
static int samples_query_read_part(struct samples_query *samples, struct br_store_view *view,
                                   const struct part *part)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    int rc = 0;
    sqlite3_stmt *statement = br_sql_take(sql, part->is_sum ? BR_SQL_SUM : BR_SQL_CHUNK);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, part->id);
    if (!br_sql_row(sql, statement, &rc, &why))
        return samples_query_failed(samples, view, rc, &why);
    uint64_t series = (uint64_t)sqlite3_column_int64(statement, 0);
    struct chunk chunk = {.view = view,
                          .min_time = sqlite3_column_int64(statement, 1),
                          .max_time = sqlite3_column_int64(statement, 2),
                          .n_samples = (uint64_t)sqlite3_column_int64(statement, 3)};
    if (series < samples->matching.n_series)
        chunk.series = samples->matching.series[series];
    if (chunk.series && chunk.max_time >= samples->from && chunk.min_time < samples->until) {
        chunk.whole = chunk.min_time >= samples->from && chunk.max_time < samples->until &&
                      !samples_query_has_ids(samples);
        chunk.totals = sqlite3_column_blob(statement, 4);
        chunk.totals_len = (size_t)sqlite3_column_bytes(statement, 4);
        /* What is in pages of its own is read when it is asked for. */
        if (!chunk.whole && !part->is_sum) {
            chunk.samples = sqlite3_column_blob(statement, 5);
            chunk.samples_len = (size_t)sqlite3_column_bytes(statement, 5);
        }
        rc = samples->on_chunk(samples, &chunk);
    }
    (void)sqlite3_reset(statement);
    return rc;
}

static int samples_query_list(struct samples_query *samples, struct part part)
{
    if (samples->n_list < samples->cap_list ||
        !br_grow(&samples->list, &samples->cap_list, (size_t)samples->n_list + 1,
                 sizeof *samples->list, CHUNKS_MAX)) {
        samples->list[samples->n_list++] = part;
        return 0;
    }
    return samples_query_no_memory(samples);
}

static int samples_query_list_chunk(struct samples_query *samples, int64_t number)
{
    return samples_query_list(samples, (struct part){false, number, number, number});
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
        rc = samples_query_list_chunk(samples, sqlite3_column_int64(statement, 0));
    return rc ? rc : samples_query_failed(samples, view, sql_rc, &why);
}

/* Finds the widest sums that will do: what they are made of comes after them. */
static int samples_query_find_sums(struct samples_query *samples, struct br_store_view *view,
                                   uint32_t series)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    int rc = 0, sql_rc = 0;
    int64_t covered = 0;
    sqlite3_stmt *statement = br_sql_take(sql, BR_SQL_SUMS_OF_SERIES);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, series);
    while (!rc && br_sql_row(sql, statement, &sql_rc, &why)) {
        struct part part = {true, sqlite3_column_int64(statement, 0),
                            sqlite3_column_int64(statement, 1), sqlite3_column_int64(statement, 2)};
        int64_t min_time = sqlite3_column_int64(statement, 3);
        int64_t max_time = sqlite3_column_int64(statement, 4);
        if (part.first <= covered || min_time < samples->from || max_time >= samples->until ||
            !samples->takes_sum(samples, min_time, max_time))
            continue;
        covered = part.last;
        rc = samples_query_list(samples, part);
    }
    if (statement)
        (void)sqlite3_reset(statement);
    return rc ? rc : samples_query_failed(samples, view, sql_rc, &why);
}

/* Whether one of the sums in the list from `at` on, which are in order, stands for the chunk. */
static bool samples_query_is_in_sum(const struct samples_query *samples, uint32_t at,
                                    uint32_t n_sums, int64_t number)
{
    uint32_t low = at, high = at + n_sums;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (samples->list[middle].last < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < at + n_sums && samples->list[low].first <= number;
}

static int samples_query_find_series(struct samples_query *samples, struct br_store_view *view,
                                     uint32_t series)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    uint32_t at = samples->n_list;
    int rc = 0, sql_rc = 0;
    if (samples->takes_sum && sql->version >= BR_SQL_SUMS)
        rc = samples_query_find_sums(samples, view, series);
    uint32_t n_sums = samples->n_list - at;
    sqlite3_stmt *statement = rc ? NULL : br_sql_take(sql, BR_SQL_CHUNKS_OF_SERIES);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, series);
        (void)sqlite3_bind_int64(statement, 2, samples->from);
        (void)sqlite3_bind_int64(statement, 3, samples->until);
    }
    while (!rc && br_sql_row(sql, statement, &sql_rc, &why)) {
        int64_t number = sqlite3_column_int64(statement, 0);
        if (!samples_query_is_in_sum(samples, at, n_sums, number))
            rc = samples_query_list_chunk(samples, number);
    }
    return rc ? rc : samples_query_failed(samples, view, sql_rc, &why);
}

static int samples_query_compare_parts(const void *left, const void *right)
{
    const struct part *first = left, *second = right;
    if (first->is_sum != second->is_sum)
        return first->is_sum ? -1 : 1;
    return (first->id > second->id) - (first->id < second->id);
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
        qsort(samples->list, samples->n_list, sizeof *samples->list, samples_query_compare_parts);
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
        if (!i || samples_query_compare_parts(&samples->list[i - 1], &samples->list[i]))
            rc = samples_query_read_part(samples, view, &samples->list[i]);
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
        if (!samples_query_touches(samples, &view->totals) ||
            !br_store_view_open(samples->query, view, &rc, samples->err))
            continue;
        rc = samples_query_view(samples, view);
        br_store_view_rest(view);
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

static bool samples_query_takes_node(const struct samples_query *samples, uint32_t node)
{
    return !samples->call_site.n_names || br_store_callsite_has(&samples->call_site, node);
}

static bool chunk_reader_on_span(void *arg, const uint8_t *trace_id, uint64_t span_id)
{
    struct chunk_reader *reader = arg;
    return samples_query_wants(reader->samples, trace_id, span_id);
}

static bool chunk_reader_on_sample(void *arg, const struct br_sample_read *sample)
{
    struct chunk_reader *reader = arg;
    struct samples_query *samples = reader->samples;
    if (sample->time_ns < samples->from || sample->time_ns >= samples->until ||
        !samples_query_takes_node(samples, sample->node))
        return true;
    return reader->fn(reader, sample);
}

static bool chunk_reader_on_total(void *arg, uint32_t node, int64_t value)
{
    struct chunk_reader *reader = arg;
    return !samples_query_takes_node(reader->samples, node) || reader->total(reader, node, value);
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
    if (!rc && samples->call_site.n_names) {
        rc = br_store_callsite_learn(&samples->call_site, samples->query, chunk->view,
                                     samples->plain[0].data, samples->plain[0].len, samples->err);
        if (rc || chunk->view->failed)
            return rc;
    }
    bool good = rc == 0;
    if (good && reader->total)
        good = br_sample_totals_read(samples->plain[0].data, samples->plain[0].len,
                                     chunk_reader_on_total, reader);
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

#define FLAMING_BLOCK 1024

struct flaming_node {
    int64_t sum;
    uint32_t in_flame;
};

struct flaming {
    struct chunk_reader reader; /* first */
    struct br_flame *flame;
    const struct br_store_view *view;
    struct flaming_node **blocks; /* by node of the view; NULL: none of the block has a sum */
    struct br_store_node_set set; /* of those that have a sum, and of what is above them */
    uint32_t cap_blocks, cap_words;
    uint32_t *names; /* by function: its name in the flame + 1; 0: not known yet */
    uint32_t cap_names;
    bool no_memory;
};

/* Returns what a node has, in a block that is there. */
static struct flaming_node *flaming_at(const struct flaming *flaming, uint32_t node)
{
    return &flaming->blocks[node / FLAMING_BLOCK][node % FLAMING_BLOCK];
}

/* Makes the block of a node. Its parents need not have one yet. */
static bool flaming_make(struct flaming *flaming, uint32_t node)
{
    uint32_t before = flaming->cap_blocks, block = node / FLAMING_BLOCK;
    if (block < before && flaming->blocks[block])
        return true;
    if (br_grow(&flaming->blocks, &flaming->cap_blocks, (size_t)block + 1, sizeof *flaming->blocks,
                BR_STACK_NODES_MAX / FLAMING_BLOCK + 1u))
        return false;
    for (uint32_t i = before; i < flaming->cap_blocks; i++)
        flaming->blocks[i] = NULL;
    flaming->blocks[block] = br_calloc(FLAMING_BLOCK, sizeof **flaming->blocks);
    if (!flaming->blocks[block])
        return false;
    br_store_query_hold(flaming->reader.samples->query,
                        FLAMING_BLOCK * (int64_t)sizeof **flaming->blocks);
    return true;
}

static bool flaming_grow_set(struct flaming *flaming, uint32_t n_words)
{
    uint32_t before = flaming->cap_words;
    if (n_words > before) {
        if (br_grow(&flaming->set.words, &flaming->cap_words, n_words, sizeof *flaming->set.words,
                    BR_STACK_NODES_MAX / 64 + 1u))
            return false;
        memset(flaming->set.words + before, 0,
               (size_t)(flaming->cap_words - before) * sizeof *flaming->set.words);
    }
    flaming->set.n_words = n_words;
    return true;
}

static bool flaming_add(struct flaming *flaming, uint32_t node, int64_t value)
{
    uint32_t word = node / 64;
    if (!flaming_make(flaming, node) ||
        (word >= flaming->set.n_words && !flaming_grow_set(flaming, word + 1))) {
        flaming->no_memory = true;
        return false;
    }
    int64_t *sum = &flaming_at(flaming, node)->sum;
    *sum = br_sum(*sum, value);
    flaming->set.words[word] |= UINT64_C(1) << node % 64;
    return true;
}

static void flaming_release(struct flaming *flaming)
{
    for (uint32_t i = 0; i < flaming->cap_blocks; i++) {
        if (flaming->blocks[i])
            br_store_query_hold(flaming->reader.samples->query,
                                -FLAMING_BLOCK * (int64_t)sizeof **flaming->blocks);
        br_free(flaming->blocks[i]);
    }
    br_free(flaming->blocks);
    br_free(flaming->set.words);
    br_free(flaming->names);
}

static bool flaming_on_total(void *arg, uint32_t node, int64_t value)
{
    return flaming_add(arg, node, value);
}

static bool flaming_on_sample(void *arg, const struct br_sample_read *sample)
{
    return flaming_add(arg, sample->node, sample->value);
}

/* Takes a node out of the set, the lowest first. False when it is empty; `*at` is 0 at first. */
static bool flaming_take(struct flaming *flaming, uint32_t *at, uint32_t *ret)
{
    struct br_store_node_set *set = &flaming->set;
    while (*at < set->n_words && !set->words[*at])
        ++*at;
    if (*at == set->n_words) {
        set->n_words = 0;
        return false;
    }
    *ret = 64 * *at + (uint32_t)__builtin_ctzll(set->words[*at]);
    set->words[*at] &= set->words[*at] - 1;
    return true;
}

static void flaming_forget(struct flaming *flaming)
{
    uint32_t at = 0, node;
    while (flaming_take(flaming, &at, &node))
        if (flaming->blocks[node / FLAMING_BLOCK])
            flaming_at(flaming, node)->sum = 0;
}

/* Drops nodes that add up to nothing, whether they were added up here or before. */
static void flaming_drop_zeros(struct flaming *flaming)
{
    struct br_store_node_set *set = &flaming->set;
    for (uint32_t word = 0; word < set->n_words; word++)
        for (uint64_t left = set->words[word]; left; left &= left - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(left);
            if (!flaming_at(flaming, 64 * word + bit)->sum)
                set->words[word] &= ~(UINT64_C(1) << bit);
        }
}

static int flaming_on_chunk(struct samples_query *samples, const struct chunk *chunk)
{
    struct flaming *flaming = samples->arg;
    if (flaming->view != chunk->view)
        flaming_forget(flaming);
    flaming->view = chunk->view;
    flaming->reader = (struct chunk_reader){samples, chunk, chunk->whole ? flaming_on_total : NULL,
                                            flaming_on_sample};
    int rc = chunk_reader_run(&flaming->reader);
    return flaming->no_memory ? samples_query_no_memory(samples) : rc;
}

/* The flame's name of a function, + 1. */
static int flaming_name(struct flaming *flaming, const struct br_store_tree *tree,
                        uint32_t function, uint32_t *ret)
{
    uint32_t before = flaming->cap_names;
    int rc = 0;
    if (function >= before) {
        rc = br_grow(&flaming->names, &flaming->cap_names, (size_t)function + 1,
                     sizeof *flaming->names, BR_FUNCTIONS_MAX);
        if (rc)
            return BR_ENOMEM;
        memset(flaming->names + before, 0,
               (size_t)(flaming->cap_names - before) * sizeof *flaming->names);
    }
    uint32_t *name = &flaming->names[function];
    if (!*name) {
        rc = br_flame_name(flaming->flame, br_store_tree_name(tree, function),
                           br_store_tree_file(tree, function), name);
        *name = rc ? 0 : *name + 1;
    }
    *ret = *name;
    return rc;
}

/* Gives a node of the tree, whose parent has one, its node in the flame. */
static int flaming_place(struct flaming *flaming, const struct br_store_tree *tree, uint32_t number)
{
    uint32_t parent, function, name;
    br_store_tree_node(tree, number, &parent, &function);
    int rc = flaming_name(flaming, tree, function, &name);
    return rc ? rc
              : br_flame_child(flaming->flame, parent ? flaming_at(flaming, parent)->in_flame : 0,
                               name - 1, &flaming_at(flaming, number)->in_flame);
}

/* Folds the smallest stacks of a flame that is full. */
static int flaming_make_room(struct flaming *flaming)
{
    uint32_t *map, n_nodes = flaming->flame->n_nodes;
    int rc = br_flame_prune(flaming->flame, flaming->flame->max_nodes / 4, &map);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < flaming->cap_blocks; i++) {
        struct flaming_node *block = flaming->blocks[i];
        for (uint32_t k = 0; block && k < FLAMING_BLOCK; k++)
            block[k].in_flame = block[k].in_flame < n_nodes ? map[block[k].in_flame] : 0;
    }
    if (flaming->names)
        memset(flaming->names, 0, flaming->cap_names * sizeof *flaming->names);
    br_free(map);
    flaming->reader.samples->query->note =
        "there are more stacks than one query adds up: the smallest are shown as \"other\"";
    return 0;
}

static int flaming_graft_node(struct flaming *flaming, const struct br_store_tree *tree,
                              uint32_t number)
{
    if (!flaming_make(flaming, number))
        return BR_ENOMEM;
    struct flaming_node *node = flaming_at(flaming, number);
    int rc = number ? flaming_place(flaming, tree, number) : 0;
    if (rc == BR_EFULL) {
        rc = flaming_make_room(flaming);
        rc = rc ? rc : flaming_place(flaming, tree, number);
    }
    if (!rc && node->sum)
        br_flame_add(flaming->flame, number ? node->in_flame : 0, node->sum);
    node->sum = 0;
    return rc;
}

static int flaming_graft(struct flaming *flaming, const struct br_store_tree *tree)
{
    uint32_t at = 0, node;
    int rc = 0;
    if (flaming->names)
        memset(flaming->names, 0, flaming->cap_names * sizeof *flaming->names);
    while (!rc && flaming_take(flaming, &at, &node))
        rc = flaming_graft_node(flaming, tree, node);
    return rc;
}

static int flaming_on_view(struct samples_query *samples, struct br_store_view *view)
{
    struct flaming *flaming = samples->arg;
    bool whole;
    if (flaming->view != view || !flaming->set.n_words)
        return 0;
    flaming_drop_zeros(flaming);
    int rc = br_store_tree_load(samples->query, view, &flaming->set, &whole, samples->err);
    if (rc || !whole)
        return rc;
    rc = flaming_graft(flaming, view->reader->tree);
    return rc ? br_err_set(samples->err, rc, "%s", br_strerror(rc)) : 0;
}

static bool flaming_takes_sum(const struct samples_query *samples, int64_t min_time,
                              int64_t max_time)
{
    (void)samples;
    (void)min_time;
    (void)max_time;
    return true;
}

int br_store_flame(struct br_store_query *query, const struct br_sample_filter *filter,
                   struct br_flame *flame, struct br_err *err)
{
    struct flaming flaming = {.flame = flame};
    struct samples_query samples = {.on_chunk = flaming_on_chunk,
                                    .on_view = flaming_on_view,
                                    .takes_sum = flaming_takes_sum,
                                    .arg = &flaming};
    int rc = samples_query_init(&samples, query, filter, err);
    if (!rc)
        rc = samples_query_run(&samples);
    flaming_release(&flaming);
    samples_query_release(&samples);
    return rc;
}

/* --- Sums ------------------------------------------------------------------------------------ */

struct summing {
    struct chunk_reader reader; /* first */
    uint64_t from_ns, step_ns;
    struct br_stored_samples *groups;
    uint64_t *steps; /* of each group */
    uint32_t n_groups, cap_groups, cap_steps;
    struct br_index index;
    br_samples_fn *fn;
    void *arg;
    bool stopped;
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
    uint64_t from = summing->from_ns;
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
    group->value = br_sum(group->value, value);
    group->time_ns = time < group->time_ns ? time : group->time_ns;
    return true;
}

/* Hands out sums of samples, counted by their value if that is known. */
static bool summing_call(const struct summing *summing, struct br_stored_samples *samples)
{
    uint64_t each = samples->series->per_sample;
    uint64_t value = samples->value < 0 ? -(uint64_t)samples->value : (uint64_t)samples->value;
    if (each) {
        samples->count = value / each + (value % each >= each - each / 2);
        samples->count += value && !samples->count;
    }
    return summing->fn(samples, summing->arg);
}

/* Returns true, for the chunk is read on: false would call it damaged. */
static bool summing_hand_out(struct summing *summing, const struct br_sample_read *sample)
{
    struct br_stored_samples one = {.series = summing->reader.chunk->series,
                                    .span_id = sample->span_id,
                                    .time_ns = sample->time_ns > 0 ? (uint64_t)sample->time_ns : 0,
                                    .count = 1,
                                    .value = sample->value};
    if (sample->trace_id)
        memcpy(one.trace_id, sample->trace_id, 16);
    summing->stopped = summing->stopped || !summing_call(summing, &one);
    return true;
}

static bool summing_on_sample(void *arg, const struct br_sample_read *sample)
{
    struct summing *summing = arg;
    if (summing->reader.samples->filter->each)
        return summing_hand_out(summing, sample);
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

static bool summing_takes_sum(const struct samples_query *samples, int64_t min_time,
                              int64_t max_time)
{
    const struct summing *summing = samples->arg;
    return samples->filter->spans_together && !samples->filter->n_call_site &&
           summing_step(summing, min_time) == summing_step(summing, max_time);
}

static int summing_on_chunk(struct samples_query *samples, const struct chunk *chunk)
{
    struct summing *summing = samples->arg;
    struct chunk read = *chunk;
    if (summing->stopped)
        return 0;
    summing->reader.samples = samples;
    bool together = chunk->whole && summing_takes_sum(samples, chunk->min_time, chunk->max_time);
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
    struct summing summing = {.from_ns = filter->from_ns, .step_ns = step_ns, .fn = fn, .arg = arg};
    struct samples_query samples = {
        .on_chunk = summing_on_chunk, .takes_sum = summing_takes_sum, .arg = &summing};
    br_index_init(&summing.index, GROUPS_MAX, BR_HOLDER_STORE);
    br_random_bytes(summing.index.secret, sizeof summing.index.secret);
    int rc = samples_query_init(&samples, query, filter, err);
    if (!rc)
        rc = samples_query_run(&samples);
    for (uint32_t i = 0; i < summing.n_groups && !rc; i++)
        if (!summing_call(&summing, &summing.groups[i]))
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
        if (!samples_query_touches(&samples, &view->totals) ||
            !br_store_view_open(query, view, &rc, err))
            continue;
        rc = listing_view(&samples, &listing, view);
        br_store_view_rest(view);
    }
    samples_query_release(&samples);
    br_map_free(listing.out, NULL);
    return rc;
}
