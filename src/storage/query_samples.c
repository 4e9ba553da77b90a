/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/index.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sum.h"
#include "storage/blocks.h"
#include "storage/chunks.h"
#include "storage/samples.h"
#include "storage/stacks.h"
#include "storage/tree.h"
#include "storage/view.h"

#define CHUNKS_MAX (64u << 20)
#define GROUPS_MAX (16u << 20)

/* A chunk that may contain selected samples, or a sum of chunks. For a sum, `whole` is true, and
 * there are no samples. */
struct chunk {
    struct br_store_view *view;
    const struct br_stored_series *series;
    /* all samples of the chunk are in the range, and the filter does not select by span */
    bool whole;
    uint64_t n_samples;
    int64_t min_time, max_time;
    const uint8_t *totals, *samples; /* compressed totals and samples of the chunk */
    size_t totals_len, samples_len;
};

/* Identifies a row to read: a row of the table `sums`, which covers the chunks from `first` to
 * `last` of a series, or a row of the table `chunks`. */
struct part {
    bool is_sum;
    int64_t id, first, last;
};

struct samples_query {
    struct br_store_query *query;
    const struct br_sample_filter *filter;
    struct br_err *err;
    struct br_store_matching matching;
    uint64_t *span_ids; /* sorted copy of the filter's span ids */
    const uint8_t (**trace_ids)[16];
    int64_t from, until;
    struct part *list;
    uint32_t n_list, cap_list;
    struct br_pack plain[2]; /* decompressed blobs of the current chunk: totals and samples */
    /* scratch memory for br_samples_read; NULL until the memory is needed */
    uint32_t *node_of;
    struct br_store_callsite call_site;
    /* `on_chunk` is called for each chunk of a view, and `on_view` after the last chunk of a
     * view. */
    int (*on_chunk)(struct samples_query *samples, const struct chunk *chunk);
    int (*on_view)(struct samples_query *samples, struct br_store_view *view);
    /* Returns true if a sum may be read instead of its chunks. The samples of the sum are
     * between `min_time` and `max_time`, which are in the range. NULL: sums are not used. */
    bool (*accepts_sum)(const struct samples_query *samples, int64_t min_time, int64_t max_time);
    /* Called instead of `on_chunk` for the samples of a series in a chunk, a sum or a view, if all
     * are in the range and accepts_sum allows it. The sum of their values is `value`, and their
     * earliest time is `min_time`. NULL: not used. */
    int (*on_value)(struct samples_query *samples, const struct br_stored_series *series,
                    int64_t min_time, uint64_t n_samples, int64_t value);
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
    br_free(samples->node_of);
    br_store_callsite_release(&samples->call_site);
}

static bool samples_query_has_ids(const struct samples_query *samples)
{
    return samples->filter->n_span_ids || samples->filter->n_trace_ids;
}

/* Returns true if the filter selects the samples of a span. */
static bool samples_query_selects(const struct samples_query *samples, const uint8_t *trace_id,
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
    if (!rc)
        return 0;
    return br_err_set(samples->err, rc, "%s", *why->text ? why->text : br_strerror(rc));
}

/* Passes the value of a chunk or a sum to `on_value`, and sets `*ret_done` to true. Sets it to
 * false if the chunk or sum itself must be read. */
static int samples_query_use_value(struct samples_query *samples, struct br_store_view *view,
                                   const struct part *part, bool *ret_done)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    int rc = 0;
    *ret_done = false;
    if (!samples->on_value || sql->version < BR_SQL_FACTS || samples_query_has_ids(samples))
        return 0;
    sqlite3_stmt *statement =
        br_sql_statement(sql, part->is_sum ? BR_SQL_SUM_VALUE : BR_SQL_CHUNK_VALUE);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, part->id);
    if (!br_sql_row(sql, statement, &rc, &why))
        return samples_query_failed(samples, view, rc, &why);
    uint64_t series = (uint64_t)sqlite3_column_int64(statement, 0);
    int64_t min_time = sqlite3_column_int64(statement, 1);
    int64_t max_time = sqlite3_column_int64(statement, 2);
    uint64_t n_samples = (uint64_t)sqlite3_column_int64(statement, 3);
    int64_t value = sqlite3_column_int64(statement, 4);
    (void)sqlite3_reset(statement);
    bool selected = series < samples->matching.n_series && samples->matching.series[series];
    bool in_range = min_time >= samples->from && max_time < samples->until;
    if (!selected || !in_range || !samples->accepts_sum(samples, min_time, max_time))
        return 0;
    *ret_done = true;
    return samples->on_value(samples, samples->matching.series[series], min_time, n_samples, value);
}

/* Reads a chunk or a sum, and passes it to `on_chunk`. A sum has the same columns as a chunk,
 * except for the samples. */
static int samples_query_read_part(struct samples_query *samples, struct br_store_view *view,
                                   const struct part *part)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    bool done;
    int rc = samples_query_use_value(samples, view, part, &done);
    if (rc || done)
        return rc;
    sqlite3_stmt *statement = br_sql_statement(sql, part->is_sum ? BR_SQL_SUM : BR_SQL_CHUNK);
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
        /* Read the samples only if they are needed, because SQLite stores a large value in
         * separate pages, and reads them when the value is accessed. */
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
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_CHUNKS_OF_ID);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, id);
    while (!rc && br_sql_row(sql, statement, &sql_rc, &why))
        rc = samples_query_list_chunk(samples, sqlite3_column_int64(statement, 0));
    return rc ? rc : samples_query_failed(samples, view, sql_rc, &why);
}

/* Lists the widest sums that `accepts_sum` allows. A row of a sum precedes the rows of the
 * smaller sums that are part of it, and these smaller sums are skipped. */
static int samples_query_find_sums(struct samples_query *samples, struct br_store_view *view,
                                   uint32_t series)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    int rc = 0, sql_rc = 0;
    int64_t covered = 0;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_SUMS_OF_SERIES);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, series);
    while (!rc && br_sql_row(sql, statement, &sql_rc, &why)) {
        struct part part = {true, sqlite3_column_int64(statement, 0),
                            sqlite3_column_int64(statement, 1), sqlite3_column_int64(statement, 2)};
        int64_t min_time = sqlite3_column_int64(statement, 3);
        int64_t max_time = sqlite3_column_int64(statement, 4);
        if (part.first <= covered || min_time < samples->from || max_time >= samples->until ||
            !samples->accepts_sum(samples, min_time, max_time))
            continue;
        covered = part.last;
        rc = samples_query_list(samples, part);
    }
    if (statement)
        (void)sqlite3_reset(statement);
    return rc ? rc : samples_query_failed(samples, view, sql_rc, &why);
}

/* Returns true if the chunk `number` is covered by one of `n_sums` sums, which begin at index
 * `at` of the list. The sums are sorted by chunk number. */
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
    if (samples->accepts_sum && sql->version >= BR_SQL_SUMS)
        rc = samples_query_find_sums(samples, view, series);
    uint32_t n_sums = samples->n_list - at;
    sqlite3_stmt *statement = rc ? NULL : br_sql_statement(sql, BR_SQL_CHUNKS_OF_SERIES);
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

/* Passes the totals of a series in a view to `on_value`, or finds that none of the series' samples
 * are in the range. In both cases, sets `*ret_done` to true. */
static int samples_query_use_total(struct samples_query *samples, struct br_store_view *view,
                                   uint32_t series, bool *ret_done)
{
    struct br_sql *sql = &view->reader->sql;
    struct br_err why = {.code = 0};
    int rc = 0;
    *ret_done = false;
    if (!samples->on_value || sql->version < BR_SQL_FACTS)
        return 0;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_SERIES_TOTAL);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, series);
    if (!br_sql_row(sql, statement, &rc, &why))
        return samples_query_failed(samples, view, rc, &why);
    int64_t min_time = sqlite3_column_int64(statement, 0);
    int64_t max_time = sqlite3_column_int64(statement, 1);
    uint64_t n_samples = (uint64_t)sqlite3_column_int64(statement, 2);
    int64_t value = sqlite3_column_int64(statement, 3);
    (void)sqlite3_reset(statement);
    *ret_done = max_time < samples->from || min_time >= samples->until;
    if (*ret_done || min_time < samples->from || max_time >= samples->until ||
        !samples->accepts_sum(samples, min_time, max_time))
        return 0;
    *ret_done = true;
    return samples->on_value(samples, samples->matching.series[series], min_time, n_samples, value);
}

static int samples_query_find_in_series(struct samples_query *samples, struct br_store_view *view,
                                        uint32_t series)
{
    bool done;
    int rc = samples_query_use_total(samples, view, series, &done);
    return rc || done ? rc : samples_query_find_series(samples, view, series);
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
                rc = samples_query_find_in_series(samples, view, i);
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
        if (!br_store_query_may_continue(samples->query))
            break;
        if (!i || samples_query_compare_parts(&samples->list[i - 1], &samples->list[i]))
            rc = samples_query_read_part(samples, view, &samples->list[i]);
    }
    return rc || view->failed || !samples->on_view ? rc : samples->on_view(samples, view);
}

static int samples_query_run(struct samples_query *samples)
{
    struct br_store_query_state *state = br_store_query_state_of(samples->query);
    int rc = 0;
    for (uint32_t i = 0; i < state->n_views && !rc; i++) {
        struct br_store_view *view = &state->views[i];
        samples->n_list = 0;
        if (!samples_query_touches(samples, &view->totals) ||
            !br_store_view_open(samples->query, view, &rc, samples->err))
            continue;
        rc = samples_query_view(samples, view);
        br_store_view_close(view);
    }
    return rc;
}

/* State while a chunk is read. If `total` is set, `total` is called for the chunk's totals;
 * otherwise `fn` is called for the selected samples. */
struct chunk_reader {
    struct samples_query *samples;
    const struct chunk *chunk;
    br_sample_total_fn *total;
    br_sample_fn *fn;
};

static bool samples_query_selects_node(const struct samples_query *samples, uint32_t node)
{
    return !samples->call_site.n_names || br_store_callsite_has(&samples->call_site, node);
}

static bool chunk_reader_on_span(void *arg, const uint8_t *trace_id, uint64_t span_id)
{
    struct chunk_reader *reader = arg;
    return samples_query_selects(reader->samples, trace_id, span_id);
}

static bool chunk_reader_on_sample(void *arg, const struct br_sample_read *sample)
{
    struct chunk_reader *reader = arg;
    struct samples_query *samples = reader->samples;
    if (sample->time_ns < samples->from || sample->time_ns >= samples->until ||
        !samples_query_selects_node(samples, sample->node))
        return true;
    return reader->fn(reader, sample);
}

static bool chunk_reader_on_total(void *arg, uint32_t node, int64_t value)
{
    struct chunk_reader *reader = arg;
    return !samples_query_selects_node(reader->samples, node) || reader->total(reader, node, value);
}

static int chunk_reader_run(struct chunk_reader *reader)
{
    struct samples_query *samples = reader->samples;
    struct br_store_query_state *state = br_store_query_state_of(samples->query);
    const struct chunk *chunk = reader->chunk;
    struct br_err why = {.code = 0};
    int rc =
        br_pack_decompress(&state->codec, chunk->totals, chunk->totals_len, &samples->plain[0]);
    if (!rc && !reader->total)
        rc = br_pack_decompress(&state->codec, chunk->samples, chunk->samples_len,
                                &samples->plain[1]);
    if (!rc && samples->call_site.n_names) {
        rc = br_store_callsite_load(&samples->call_site, samples->query, chunk->view,
                                    samples->plain[0].data, samples->plain[0].len, samples->err);
        if (rc || chunk->view->failed)
            return rc;
    }
    if (!rc && !reader->total && !samples->node_of) {
        samples->node_of = br_calloc(BR_CHUNK_SAMPLES, sizeof *samples->node_of);
        rc = samples->node_of ? 0 : BR_ENOMEM;
    }
    bool good = rc == 0;
    if (good && reader->total)
        good = br_sample_totals_read(samples->plain[0].data, samples->plain[0].len,
                                     chunk_reader_on_total, reader);
    else if (good)
        good = br_samples_read(samples->plain[1].data, samples->plain[1].len,
                               samples->plain[0].data, samples->plain[0].len, samples->node_of,
                               samples_query_has_ids(samples) ? chunk_reader_on_span : NULL,
                               chunk_reader_on_sample, reader);
    if (!good && rc != BR_ENOMEM)
        rc = br_err_set(&why, BR_EPROTO, "a chunk of samples is damaged");
    return samples_query_failed(samples, chunk->view, rc, &why);
}

/* --- Flame graphs ---------------------------------------------------------------------------- */

#define FLAME_QUERY_BLOCK 1024

struct flame_query_node {
    int64_t sum;
    uint32_t in_flame;
};

struct flame_query {
    /* first member, so that a pointer to `reader` is also a pointer to the flame_query */
    struct chunk_reader reader;
    struct br_flame *flame;
    const struct br_store_view *view;
    /* blocks of entries, by node number; NULL: no node of the block has a sum */
    struct flame_query_node **blocks;
    struct br_store_node_set set; /* nodes that have a sum, and the ancestors of these nodes */
    uint32_t cap_blocks, cap_words;
    /* index of each function's name in the flame, plus 1, by function number; 0: not looked up
     * yet */
    uint32_t *names;
    uint32_t cap_names;
    bool no_memory;
};

/* Returns the entry of a node whose block is allocated. */
static struct flame_query_node *flame_query_at(const struct flame_query *flame_query, uint32_t node)
{
    return &flame_query->blocks[node / FLAME_QUERY_BLOCK][node % FLAME_QUERY_BLOCK];
}

/* Allocates the block that contains a node's entry. Does not allocate the blocks of the node's
 * ancestors. */
static bool flame_query_make_block(struct flame_query *flame_query, uint32_t node)
{
    uint32_t before = flame_query->cap_blocks, block = node / FLAME_QUERY_BLOCK;
    if (block < before && flame_query->blocks[block])
        return true;
    if (br_grow(&flame_query->blocks, &flame_query->cap_blocks, (size_t)block + 1,
                sizeof *flame_query->blocks, BR_STACK_NODES_MAX / FLAME_QUERY_BLOCK + 1u))
        return false;
    for (uint32_t i = before; i < flame_query->cap_blocks; i++)
        flame_query->blocks[i] = NULL;
    flame_query->blocks[block] = br_calloc(FLAME_QUERY_BLOCK, sizeof **flame_query->blocks);
    if (!flame_query->blocks[block])
        return false;
    br_store_query_count_bytes(flame_query->reader.samples->query,
                               FLAME_QUERY_BLOCK * (int64_t)sizeof **flame_query->blocks);
    return true;
}

static bool flame_query_grow_set(struct flame_query *flame_query, uint32_t n_words)
{
    uint32_t before = flame_query->cap_words;
    if (n_words > before) {
        if (br_grow(&flame_query->set.words, &flame_query->cap_words, n_words,
                    sizeof *flame_query->set.words, BR_STACK_NODES_MAX / 64 + 1u))
            return false;
        memset(flame_query->set.words + before, 0,
               (size_t)(flame_query->cap_words - before) * sizeof *flame_query->set.words);
    }
    flame_query->set.n_words = n_words;
    return true;
}

static bool flame_query_add(struct flame_query *flame_query, uint32_t node, int64_t value)
{
    uint32_t word = node / 64;
    if (!flame_query_make_block(flame_query, node) ||
        (word >= flame_query->set.n_words && !flame_query_grow_set(flame_query, word + 1))) {
        flame_query->no_memory = true;
        return false;
    }
    int64_t *sum = &flame_query_at(flame_query, node)->sum;
    *sum = br_sum(*sum, value);
    flame_query->set.words[word] |= UINT64_C(1) << node % 64;
    return true;
}

static void flame_query_release(struct flame_query *flame_query)
{
    for (uint32_t i = 0; i < flame_query->cap_blocks; i++) {
        if (flame_query->blocks[i])
            br_store_query_count_bytes(flame_query->reader.samples->query,
                                       -FLAME_QUERY_BLOCK * (int64_t)sizeof **flame_query->blocks);
        br_free(flame_query->blocks[i]);
    }
    br_free(flame_query->blocks);
    br_free(flame_query->set.words);
    br_free(flame_query->names);
}

static bool flame_query_on_total(void *arg, uint32_t node, int64_t value)
{
    return flame_query_add(arg, node, value);
}

static bool flame_query_on_sample(void *arg, const struct br_sample_read *sample)
{
    return flame_query_add(arg, sample->node, sample->value);
}

/* Removes the node with the lowest number from the set, and stores the number in `*ret`. Returns
 * false if the set is empty. `*at` must be 0 before the first call. */
static bool flame_query_pop(struct flame_query *flame_query, uint32_t *at, uint32_t *ret)
{
    struct br_store_node_set *set = &flame_query->set;
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

static void flame_query_clear(struct flame_query *flame_query)
{
    uint32_t at = 0, node;
    while (flame_query_pop(flame_query, &at, &node))
        if (flame_query->blocks[node / FLAME_QUERY_BLOCK])
            flame_query_at(flame_query, node)->sum = 0;
}

/* Removes the nodes whose sum is 0 from the set. */
static void flame_query_drop_zeros(struct flame_query *flame_query)
{
    struct br_store_node_set *set = &flame_query->set;
    for (uint32_t word = 0; word < set->n_words; word++)
        for (uint64_t left = set->words[word]; left; left &= left - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(left);
            if (!flame_query_at(flame_query, 64 * word + bit)->sum)
                set->words[word] &= ~(UINT64_C(1) << bit);
        }
}

static int flame_query_on_chunk(struct samples_query *samples, const struct chunk *chunk)
{
    struct flame_query *flame_query = samples->arg;
    if (flame_query->view != chunk->view)
        flame_query_clear(flame_query);
    flame_query->view = chunk->view;
    flame_query->reader = (struct chunk_reader){
        samples, chunk, chunk->whole ? flame_query_on_total : NULL, flame_query_on_sample};
    int rc = chunk_reader_run(&flame_query->reader);
    return flame_query->no_memory ? samples_query_no_memory(samples) : rc;
}

/* Stores in `*ret` the index of a function's name in the flame, plus 1. */
static int flame_query_name(struct flame_query *flame_query, const struct br_store_tree *tree,
                            uint32_t function, uint32_t *ret)
{
    uint32_t before = flame_query->cap_names;
    int rc = 0;
    if (!flame_query->names || function >= before) {
        rc = br_grow(&flame_query->names, &flame_query->cap_names, (size_t)function + 1,
                     sizeof *flame_query->names, BR_FUNCTIONS_MAX);
        if (rc)
            return BR_ENOMEM;
        memset(flame_query->names + before, 0,
               (size_t)(flame_query->cap_names - before) * sizeof *flame_query->names);
    }
    uint32_t *name = &flame_query->names[function];
    if (!*name) {
        rc = br_flame_name(flame_query->flame, br_store_tree_name(tree, function),
                           br_store_tree_file(tree, function), name);
        *name = rc ? 0 : *name + 1;
    }
    *ret = *name;
    return rc;
}

/* Finds or adds the node of the flame graph that corresponds to a node of the tree. The flame graph
 * must already contain the parent of this node. */
static int flame_query_place(struct flame_query *flame_query, const struct br_store_tree *tree,
                             uint32_t number)
{
    uint32_t parent, function, name;
    br_store_tree_node(tree, number, &parent, &function);
    int rc = flame_query_name(flame_query, tree, function, &name);
    if (rc)
        return rc;
    uint32_t above = parent ? flame_query_at(flame_query, parent)->in_flame : 0;
    return br_flame_child(flame_query->flame, above, name - 1,
                          &flame_query_at(flame_query, number)->in_flame);
}

/* Merges the smallest stacks of a flame that is full. */
static int flame_query_make_room(struct flame_query *flame_query)
{
    uint32_t *map, n_nodes = flame_query->flame->n_nodes;
    int rc = br_flame_prune(flame_query->flame, flame_query->flame->max_nodes / 4, &map);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < flame_query->cap_blocks; i++) {
        struct flame_query_node *block = flame_query->blocks[i];
        for (uint32_t k = 0; block && k < FLAME_QUERY_BLOCK; k++)
            block[k].in_flame = block[k].in_flame < n_nodes ? map[block[k].in_flame] : 0;
    }
    if (flame_query->names)
        memset(flame_query->names, 0, flame_query->cap_names * sizeof *flame_query->names);
    br_free(map);
    flame_query->reader.samples->query->note =
        "there are too many stacks for one query: the smallest are shown as \"other\"";
    return 0;
}

static int flame_query_graft_node(struct flame_query *flame_query, const struct br_store_tree *tree,
                                  uint32_t number)
{
    if (!flame_query_make_block(flame_query, number))
        return BR_ENOMEM;
    struct flame_query_node *node = flame_query_at(flame_query, number);
    int rc = number ? flame_query_place(flame_query, tree, number) : 0;
    if (rc == BR_EFULL) {
        rc = flame_query_make_room(flame_query);
        rc = rc ? rc : flame_query_place(flame_query, tree, number);
    }
    if (!rc && node->sum)
        br_flame_add(flame_query->flame, number ? node->in_flame : 0, node->sum);
    node->sum = 0;
    return rc;
}

static int flame_query_graft(struct flame_query *flame_query, const struct br_store_tree *tree)
{
    uint32_t at = 0, node;
    int rc = 0;
    if (flame_query->names)
        memset(flame_query->names, 0, flame_query->cap_names * sizeof *flame_query->names);
    while (!rc && flame_query_pop(flame_query, &at, &node))
        rc = flame_query_graft_node(flame_query, tree, node);
    return rc;
}

static int flame_query_on_view(struct samples_query *samples, struct br_store_view *view)
{
    struct flame_query *flame_query = samples->arg;
    bool whole;
    if (flame_query->view != view || !flame_query->set.n_words)
        return 0;
    flame_query_drop_zeros(flame_query);
    int rc = br_store_tree_load(samples->query, view, &flame_query->set, &whole, samples->err);
    if (rc || !whole)
        return rc;
    rc = flame_query_graft(flame_query, view->reader->tree);
    return rc ? br_err_set(samples->err, rc, "%s", br_strerror(rc)) : 0;
}

static bool flame_query_accepts_sum(const struct samples_query *samples, int64_t min_time,
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
    struct flame_query flame_query = {.flame = flame};
    struct samples_query samples = {.on_chunk = flame_query_on_chunk,
                                    .on_view = flame_query_on_view,
                                    .accepts_sum = flame_query_accepts_sum,
                                    .arg = &flame_query};
    int rc = samples_query_init(&samples, query, filter, err);
    if (!rc)
        rc = samples_query_run(&samples);
    flame_query_release(&flame_query);
    samples_query_release(&samples);
    return rc;
}

/* --- Sums ------------------------------------------------------------------------------------ */

struct sum_query {
    /* first member, so that a pointer to `reader` is also a pointer to the sum_query */
    struct chunk_reader reader;
    uint64_t from_ns, step_ns;
    int64_t total; /* sum of the totals of the current chunk */
    struct br_stored_samples *groups;
    uint64_t *steps; /* steps[i] is the time step of groups[i] */
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

static uint64_t sum_query_hash(const struct sum_query *sum_query, const struct group_key *key)
{
    return br_index_hash(&sum_query->index, key, sizeof *key);
}

static bool sum_query_is(const void *entries, uint32_t place, const void *wanted)
{
    const struct sum_query *sum_query = entries;
    const struct group_key *key = wanted;
    const struct br_stored_samples *group = &sum_query->groups[place];
    return group->series == key->series && group->span_id == key->span_id &&
           sum_query->steps[place] == key->step && memcmp(group->trace_id, key->trace_id, 16) == 0;
}

static uint64_t sum_query_rehash(const void *entries, uint32_t place)
{
    const struct sum_query *sum_query = entries;
    const struct br_stored_samples *group = &sum_query->groups[place];
    struct group_key key = {
        .series = group->series, .step = sum_query->steps[place], .span_id = group->span_id};
    memcpy(key.trace_id, group->trace_id, 16);
    return sum_query_hash(sum_query, &key);
}

static struct br_stored_samples *sum_query_group(struct sum_query *sum_query,
                                                 const struct group_key *key)
{
    uint64_t hash = sum_query_hash(sum_query, key);
    uint32_t place = br_index_find(&sum_query->index, hash, sum_query_is, sum_query, key);
    if (place != BR_INDEX_NONE)
        return &sum_query->groups[place];
    uint32_t before = sum_query->cap_groups;
    size_t need = (size_t)sum_query->n_groups + 1;
    if (br_grow(&sum_query->groups, &sum_query->cap_groups, need, sizeof *sum_query->groups,
                GROUPS_MAX) ||
        br_grow(&sum_query->steps, &sum_query->cap_steps, need, sizeof *sum_query->steps,
                GROUPS_MAX))
        return NULL;
    br_store_query_count_bytes(sum_query->reader.samples->query,
                               (int64_t)(sum_query->cap_groups - before) *
                                   (int64_t)(sizeof *sum_query->groups + 24));
    struct br_stored_samples *group = &sum_query->groups[sum_query->n_groups];
    *group = (struct br_stored_samples){
        .series = key->series, .span_id = key->span_id, .time_ns = UINT64_MAX};
    memcpy(group->trace_id, key->trace_id, 16);
    sum_query->steps[sum_query->n_groups] = key->step;
    if (br_index_add(&sum_query->index, hash, sum_query->n_groups, sum_query_rehash, sum_query))
        return NULL;
    sum_query->n_groups++;
    return group;
}

static uint64_t sum_query_step(const struct sum_query *sum_query, int64_t time_ns)
{
    uint64_t time = time_ns > 0 ? (uint64_t)time_ns : 0;
    uint64_t from = sum_query->from_ns;
    return sum_query->step_ns && time > from ? (time - from) / sum_query->step_ns : 0;
}

static bool sum_query_add(struct sum_query *sum_query, const struct group_key *key, int64_t time_ns,
                          uint64_t count, int64_t value)
{
    struct br_stored_samples *group = sum_query_group(sum_query, key);
    uint64_t time = time_ns > 0 ? (uint64_t)time_ns : 0;
    if (!group) {
        sum_query->rc = BR_ENOMEM;
        return false;
    }
    group->count += count;
    group->value = br_sum(group->value, value);
    group->time_ns = time < group->time_ns ? time : group->time_ns;
    return true;
}

/* Passes a sum to the caller's function. If series->per_sample is known, derives the count from
 * the value. */
static bool sum_query_call(const struct sum_query *sum_query, struct br_stored_samples *samples)
{
    uint64_t each = samples->series->per_sample;
    uint64_t value = samples->value < 0 ? -(uint64_t)samples->value : (uint64_t)samples->value;
    if (each) {
        samples->count = value / each + (value % each >= each - each / 2);
        samples->count += value && !samples->count;
    }
    return sum_query->fn(samples, sum_query->arg);
}

/* Passes a single sample to the caller's function. Always returns true: the reader of the chunk
 * would report false as damage. */
static bool sum_query_hand_out(struct sum_query *sum_query, const struct br_sample_read *sample)
{
    struct br_stored_samples one = {.series = sum_query->reader.chunk->series,
                                    .span_id = sample->span_id,
                                    .time_ns = sample->time_ns > 0 ? (uint64_t)sample->time_ns : 0,
                                    .count = 1,
                                    .value = sample->value};
    if (sample->trace_id)
        memcpy(one.trace_id, sample->trace_id, 16);
    sum_query->stopped = sum_query->stopped || !sum_query_call(sum_query, &one);
    return true;
}

static bool sum_query_on_sample(void *arg, const struct br_sample_read *sample)
{
    struct sum_query *sum_query = arg;
    if (sum_query->reader.samples->filter->each)
        return sum_query_hand_out(sum_query, sample);
    struct group_key key = {.series = sum_query->reader.chunk->series,
                            .step = sum_query_step(sum_query, sample->time_ns)};
    if (!sum_query->reader.samples->filter->spans_together) {
        key.span_id = sample->span_id;
        if (sample->trace_id)
            memcpy(key.trace_id, sample->trace_id, 16);
    }
    return sum_query_add(sum_query, &key, sample->time_ns, 1, sample->value);
}

static bool sum_query_on_total(void *arg, uint32_t node, int64_t value)
{
    struct sum_query *sum_query = arg;
    (void)node;
    sum_query->total = br_sum(sum_query->total, value);
    return true;
}

static bool sum_query_accepts_sum(const struct samples_query *samples, int64_t min_time,
                                  int64_t max_time)
{
    const struct sum_query *sum_query = samples->arg;
    return samples->filter->spans_together && !samples->filter->n_call_site &&
           sum_query_step(sum_query, min_time) == sum_query_step(sum_query, max_time);
}

static int sum_query_on_chunk(struct samples_query *samples, const struct chunk *chunk)
{
    struct sum_query *sum_query = samples->arg;
    struct chunk read = *chunk;
    if (sum_query->stopped)
        return 0;
    sum_query->reader.samples = samples;
    bool together =
        chunk->whole && sum_query_accepts_sum(samples, chunk->min_time, chunk->max_time);
    if (chunk->whole && !together) {
        /* The statement still refers to the row of the chunk. */
        sqlite3_stmt *statement = chunk->view->reader->sql.statements[BR_SQL_CHUNK];
        read.totals = sqlite3_column_blob(statement, 4);
        read.totals_len = (size_t)sqlite3_column_bytes(statement, 4);
        read.samples = sqlite3_column_blob(statement, 5);
        read.samples_len = (size_t)sqlite3_column_bytes(statement, 5);
    }
    sum_query->reader = (struct chunk_reader){samples, &read, together ? sum_query_on_total : NULL,
                                              sum_query_on_sample};
    sum_query->total = 0;
    int rc = chunk_reader_run(&sum_query->reader);
    if (!rc && together && !chunk->view->failed) {
        struct group_key key = {.series = chunk->series,
                                .step = sum_query_step(sum_query, chunk->min_time)};
        (void)sum_query_add(sum_query, &key, chunk->min_time, chunk->n_samples, sum_query->total);
    }
    return sum_query->rc ? samples_query_no_memory(samples) : rc;
}

static int sum_query_on_value(struct samples_query *samples, const struct br_stored_series *series,
                              int64_t min_time, uint64_t n_samples, int64_t value)
{
    struct sum_query *sum_query = samples->arg;
    struct group_key key = {.series = series, .step = sum_query_step(sum_query, min_time)};
    sum_query->reader.samples = samples;
    return sum_query_add(sum_query, &key, min_time, n_samples, value)
               ? 0
               : samples_query_no_memory(samples);
}

int br_store_samples(struct br_store_query *query, const struct br_sample_filter *filter,
                     uint64_t step_ns, br_samples_fn *fn, void *arg, struct br_err *err)
{
    struct sum_query sum_query = {
        .from_ns = filter->from_ns, .step_ns = step_ns, .fn = fn, .arg = arg};
    struct samples_query samples = {.on_chunk = sum_query_on_chunk,
                                    .on_value = sum_query_on_value,
                                    .accepts_sum = sum_query_accepts_sum,
                                    .arg = &sum_query};
    br_index_init(&sum_query.index, GROUPS_MAX, BR_HOLDER_STORE);
    br_random_bytes(sum_query.index.secret, sizeof sum_query.index.secret);
    int rc = samples_query_init(&samples, query, filter, err);
    if (!rc)
        rc = samples_query_run(&samples);
    for (uint32_t i = 0; i < sum_query.n_groups && !rc; i++)
        if (!sum_query_call(&sum_query, &sum_query.groups[i]))
            break;
    br_store_query_count_bytes(query,
                               -(int64_t)(sum_query.cap_groups * (sizeof *sum_query.groups + 24)));
    br_free(sum_query.groups);
    br_free(sum_query.steps);
    br_index_release(&sum_query.index);
    samples_query_release(&samples);
    return rc;
}

/* --- Series ---------------------------------------------------------------------------------- */

struct series_query {
    struct br_map *out; /* set of the hashes of series that were already passed to `fn` */
    br_series_fn *fn;
    void *arg;
    bool stopped;
};

static int series_query_view(struct samples_query *samples, struct series_query *series_query,
                             struct br_store_view *view)
{
    int rc = br_store_matching_read(&samples->matching, view);
    for (uint32_t i = 0; i < samples->matching.n_series && !rc && !series_query->stopped; i++) {
        const struct br_stored_series *series = samples->matching.series[i];
        if (!series || view->failed ||
            br_map_get(series_query->out, &series->hash, sizeof series->hash))
            continue;
        samples->n_list = 0;
        rc = samples_query_find_series(samples, view, i);
        if (rc || !samples->n_list)
            continue;
        if (br_map_put(series_query->out, &series->hash, sizeof series->hash, series_query, NULL))
            return samples_query_no_memory(samples);
        series_query->stopped = !series_query->fn(series, series_query->arg);
    }
    return rc;
}

int br_store_series(struct br_store_query *query, const struct br_sample_filter *filter,
                    br_series_fn *fn, void *arg, struct br_err *err)
{
    struct series_query series_query = {.out = br_map_new(GROUPS_MAX), .fn = fn, .arg = arg};
    struct samples_query samples = {.arg = &series_query};
    struct br_store_query_state *state = br_store_query_state_of(query);
    int rc = samples_query_init(&samples, query, filter, err);
    if (!rc && !series_query.out)
        rc = samples_query_no_memory(&samples);
    for (uint32_t i = 0; i < state->n_views && !rc && !series_query.stopped; i++) {
        struct br_store_view *view = &state->views[i];
        if (!samples_query_touches(&samples, &view->totals) ||
            !br_store_view_open(query, view, &rc, err))
            continue;
        rc = series_query_view(&samples, &series_query, view);
        br_store_view_close(view);
    }
    samples_query_release(&samples);
    br_map_free(series_query.out, NULL);
    return rc;
}
