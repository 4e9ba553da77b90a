/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/chunks.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/sum.h"

#define LEVEL 1 /* zstd compression level */

/* Largest number of parts (chunks, and sums of the level below) in a window, a range of consecutive
 * chunks (chunks.h). A series with few parts is not merged, and its parts move to the next level. A
 * window may therefore contain all parts of all windows on lower levels. */
#define PARTS_MAX (BR_SUMS_CHUNKS * BR_SUMS_WINDOWS * BR_SUMS_WINDOWS)

struct br_sums {
    struct br_sql *sql;
    struct br_pack_codec *codec;
    int64_t last_sum;
    struct sums_window {
        struct br_sums_part *parts;
        uint32_t n_parts, cap_parts, n_windows;
    } windows[BR_SUMS_LEVELS];
    struct br_pack plain, compressed;
};

static int sums_no_memory(struct br_err *err)
{
    return br_err_set(err, BR_ENOMEM, "out of memory");
}

/* --- A sum ----------------------------------------------------------------------------------- */

static int sums_add_part(struct br_sums *sums, const struct br_sums_part *part,
                         struct br_sample_packer *packer, struct br_err *err)
{
    int rc = 0, blob = 4; /* column 4 contains the totals both for chunks and for sums */
    sqlite3_stmt *statement = br_sql_statement(sums->sql, part->is_sum ? BR_SQL_SUM : BR_SQL_CHUNK);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, part->id);
    if (!br_sql_row(sums->sql, statement, &rc, err))
        return rc ? rc : br_err_set(err, BR_EPROTO, "a chunk of samples is missing");
    rc = br_pack_decompress(sums->codec, sqlite3_column_blob(statement, blob),
                            (size_t)sqlite3_column_bytes(statement, blob), &sums->plain);
    (void)sqlite3_reset(statement);
    if (!rc &&
        !br_sample_totals_read(sums->plain.data, sums->plain.len, br_sample_packer_add, packer))
        rc = BR_EPROTO;
    if (rc == BR_ENOMEM)
        return sums_no_memory(err);
    return rc ? br_err_set(err, BR_EPROTO, "a chunk of samples is damaged") : 0;
}

static int sums_insert(struct br_sums *sums, const struct br_sums_part *sum,
                       const struct br_pack *totals, struct br_err *err)
{
    const int64_t row[] = {sum->id,
                           sum->series,
                           sum->first,
                           sum->last,
                           sum->min_time,
                           sum->max_time,
                           (int64_t)sum->n_samples,
                           sum->value};
    br_pack_clear(&sums->compressed);
    if (!br_pack_compress(sums->codec, LEVEL, totals, &sums->compressed))
        return sums_no_memory(err);
    sqlite3_stmt *statement = br_sql_statement(sums->sql, BR_SQL_SUM_ADD);
    for (int i = 0; statement && i < (int)BR_COUNT(row); i++)
        (void)sqlite3_bind_int64(statement, i + 1, row[i]);
    if (statement)
        (void)sqlite3_bind_blob64(statement, BR_COUNT(row) + 1, sums->compressed.data,
                                  sums->compressed.len, SQLITE_STATIC);
    return br_sql_run(sums->sql, statement, err);
}

/* Merges several chunks or sums of a series into one sum. */
static int sums_merge(struct br_sums *sums, const struct br_sums_part *parts, uint32_t count,
                      struct br_sample_packer *packer, struct br_sums_part *ret, struct br_err *err)
{
    struct br_sums_part sum = parts[0];
    int rc = 0;
    sum.is_sum = true;
    sum.id = ++sums->last_sum;
    sum.last = parts[count - 1].last;
    for (uint32_t i = 0; i < count && !rc; i++) {
        sum.min_time = parts[i].min_time < sum.min_time ? parts[i].min_time : sum.min_time;
        sum.max_time = parts[i].max_time > sum.max_time ? parts[i].max_time : sum.max_time;
        sum.n_samples += i ? parts[i].n_samples : 0;
        sum.value = i ? br_sum(sum.value, parts[i].value) : sum.value;
        rc = sums_add_part(sums, &parts[i], packer, err);
    }
    if (!br_sample_packer_sum(packer) && !rc)
        rc = sums_no_memory(err);
    if (!rc)
        rc = sums_insert(sums, &sum, &packer->totals, err);
    if (!rc)
        *ret = sum;
    return rc;
}

/* --- Windows --------------------------------------------------------------------------------- */

static int sums_compare(const void *left, const void *right)
{
    const struct br_sums_part *first = left, *second = right;
    if (first->series != second->series)
        return first->series < second->series ? -1 : 1;
    return (first->first > second->first) - (first->first < second->first);
}

static int sums_put(struct sums_window *window, const struct br_sums_part *part, struct br_err *err)
{
    uint32_t before = window->cap_parts;
    if (br_grow(&window->parts, &window->cap_parts, (size_t)window->n_parts + 1,
                sizeof *window->parts, PARTS_MAX))
        return sums_no_memory(err);
    br_mem_hold(BR_HOLDER_STORE,
                (int64_t)(window->cap_parts - before) * (int64_t)sizeof *window->parts);
    window->parts[window->n_parts++] = *part;
    return 0;
}

/* Completes a window, a range of consecutive chunks (chunks.h): merges the parts (chunks, or sums
 * of the level below) of each series into one part of the next level. If a series has fewer than
 * BR_SUMS_LEAST parts, its parts move to the next level unmerged. */
static int sums_close(struct br_sums *sums, uint32_t level, struct br_sample_packer *packer,
                      struct br_err *err)
{
    struct sums_window *window = &sums->windows[level];
    struct sums_window *above = level + 1 < BR_SUMS_LEVELS ? window + 1 : NULL;
    uint32_t count = window->n_parts;
    int rc = 0;
    qsort(window->parts, count, sizeof *window->parts, sums_compare);
    for (uint32_t i = 0, next; i < count && !rc; i = next) {
        struct br_sums_part sum, *parts = &window->parts[i];
        uint32_t n_parts;
        for (next = i + 1; next < count && window->parts[next].series == parts->series; next++) {
        }
        n_parts = next - i;
        if (n_parts >= BR_SUMS_LEAST) {
            rc = sums_merge(sums, parts, n_parts, packer, &sum, err);
            parts = &sum;
            n_parts = 1;
        }
        for (uint32_t k = 0; above && k < n_parts && !rc; k++)
            rc = sums_put(above, &parts[k], err);
    }
    window->n_parts = window->n_windows = 0;
    if (above)
        above->n_windows++;
    return rc;
}

int br_sums_add(struct br_sums *sums, const struct br_sums_part *chunk,
                struct br_sample_packer *packer, struct br_err *err)
{
    int rc = sums_put(&sums->windows[0], chunk, err);
    if (!rc && sums->windows[0].n_parts >= BR_SUMS_CHUNKS)
        rc = sums_close(sums, 0, packer, err);
    for (uint32_t level = 1; level < BR_SUMS_LEVELS && !rc; level++)
        if (sums->windows[level].n_windows >= BR_SUMS_WINDOWS)
            rc = sums_close(sums, level, packer, err);
    return rc;
}

/* --- Loading and freeing --------------------------------------------------------------------- */

int br_sums_load(struct br_sums *sums, struct br_err *err)
{
    int rc = 0;
    for (uint32_t level = 0; level < BR_SUMS_LEVELS; level++)
        sums->windows[level].n_parts = sums->windows[level].n_windows = 0;
    sums->last_sum = 0;
    sqlite3_stmt *statement = br_sql_statement(sums->sql, BR_SQL_SUM_LAST);
    if (br_sql_row(sums->sql, statement, &rc, err)) {
        sums->last_sum = sqlite3_column_int64(statement, 0);
        (void)sqlite3_reset(statement);
    }
    return rc;
}

struct br_sums *br_sums_new(struct br_sql *sql, struct br_pack_codec *codec)
{
    struct br_sums *sums = br_calloc(1, sizeof *sums);
    if (!sums)
        return NULL;
    sums->sql = sql;
    sums->codec = codec;
    return sums;
}

void br_sums_free(struct br_sums *sums)
{
    if (!sums)
        return;
    for (uint32_t level = 0; level < BR_SUMS_LEVELS; level++) {
        struct sums_window *window = &sums->windows[level];
        br_mem_hold(BR_HOLDER_STORE, -(int64_t)(window->cap_parts * sizeof *window->parts));
        br_free(window->parts);
    }
    br_pack_release(&sums->plain);
    br_pack_release(&sums->compressed);
    br_free(sums);
}
