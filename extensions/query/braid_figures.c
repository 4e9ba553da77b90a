/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/braid.h"

#define NO_ROW UINT32_MAX

/* --- Types ----------------------------------------------------------------------------------- */

size_t query_braid_type(struct query_job *job, struct query_braid_types *types, const char *id)
{
    for (size_t i = 0; i < types->count; i++)
        if (!strcmp(types->ids[i], id))
            return i;
    const char *copy =
        types->count < BRAID_TYPES_MAX ? br_arena_strndup(&job->arena, id, strlen(id)) : NULL;
    if (!copy)
        return BRAID_TYPES_MAX;
    types->ids[types->count] = copy;
    return types->count++;
}

bool query_braid_is_cpu(const char *type_id)
{
    const char *suffix = strchr(type_id, ':');
    return suffix && br_text_starts(suffix, ":cpu:nanoseconds:");
}

static bool figures_is_wall(const char *type_id)
{
    const char *suffix = strchr(type_id, ':');
    return suffix && br_text_starts(suffix, ":wall:nanoseconds:");
}

static unsigned figures_rank(const char *type_id)
{
    if (query_braid_is_cpu(type_id))
        return 2;
    return figures_is_wall(type_id) ? 1 : 0;
}

size_t query_braid_main_type(const struct query_braid_types *types,
                             const struct query_braid_figures *figures)
{
    const struct query_braid_sum *sums = figures->types;
    size_t best = BRAID_TYPES_MAX;
    for (size_t i = 0; i < figures->n_types; i++) {
        if (!sums[i].samples)
            continue;
        unsigned rank = figures_rank(types->ids[i]);
        unsigned best_rank = best < BRAID_TYPES_MAX ? figures_rank(types->ids[best]) : 0;
        if (best == BRAID_TYPES_MAX || rank > best_rank ||
            (rank == best_rank && sums[i].samples > sums[best].samples))
            best = i;
    }
    return best;
}

/* --- Figures --------------------------------------------------------------------------------- */

int query_braid_add(struct query_job *job, struct query_braid_figures *figures, size_t type,
                    uint64_t samples, int64_t value)
{
    if (type == BRAID_TYPES_MAX) {
        query_job_note(job, "there are more profile types than one response can list");
        return 0;
    }
    if (type >= figures->n_types) {
        size_t n_types = (type | 3) + 1;
        struct query_braid_sum *grown = br_arena_calloc(&job->arena, n_types, sizeof *grown);
        if (!grown)
            return br_arena_why(&job->arena);
        if (figures->n_types)
            memcpy(grown, figures->types, figures->n_types * sizeof *grown);
        figures->types = grown;
        figures->n_types = n_types;
    }
    figures->types[type].samples += samples;
    figures->types[type].value = br_sum(figures->types[type].value, value);
    return 0;
}

static int64_t figures_cpu(const struct query_braid_types *types,
                           const struct query_braid_figures *figures)
{
    int64_t sum = 0;
    for (size_t i = 0; i < figures->n_types && i < types->count; i++)
        if (query_braid_is_cpu(types->ids[i]))
            sum = br_sum(sum, figures->types[i].value);
    return sum;
}

/* Returns the number of samples of one profile type. The counts of other types are not added,
 * because each sample has a value for every type of its profile. */
static uint64_t figures_samples(const struct query_braid_types *types,
                                const struct query_braid_figures *figures)
{
    size_t main_type = query_braid_main_type(types, figures);
    return main_type < BRAID_TYPES_MAX ? figures->types[main_type].samples : 0;
}

void query_braid_put_figures(struct br_str *out, const struct query_braid_types *types,
                             const struct query_braid_figures *figures)
{
    bool more = false;
    br_str_printf(out, "{\"samples\":%" PRIu64 ",\"cpu_ns\":%" PRId64 ",\"types\":{",
                  figures_samples(types, figures), figures_cpu(types, figures));
    for (size_t i = 0; i < figures->n_types && i < types->count; i++) {
        if (!figures->types[i].samples)
            continue;
        if (more)
            br_str_putc(out, ',');
        br_str_json(out, types->ids[i], strlen(types->ids[i]));
        br_str_printf(out, ":{\"samples\":%" PRIu64 ",\"value\":%" PRId64 "}",
                      figures->types[i].samples, figures->types[i].value);
        more = true;
    }
    br_str_putc(out, '}');
}

/* --- Rows ------------------------------------------------------------------------------------ */

bool query_braid_rows_add(const struct br_stored_span *span, void *arg)
{
    struct query_braid_rows *rows = arg;
    if (rows->count == rows->max) {
        query_job_note(rows->job, "there are more spans than one query reads");
        return false;
    }
    rows->rc =
        br_grow(&rows->rows, &rows->cap, rows->count + 1, sizeof *rows->rows, (size_t)rows->max);
    if (rows->rc)
        return false;
    rows->rows[rows->count++] = (struct query_braid_row){
        .span = *span, .first_child = NO_ROW, .next = NO_ROW, .parent = NO_ROW};
    return query_job_may_continue(rows->job);
}

void query_braid_rows_release(struct query_braid_rows *rows)
{
    br_free(rows->rows);
    br_map_free(rows->by_id, NULL);
    rows->rows = NULL;
    rows->by_id = NULL;
}

struct query_braid_row *query_braid_find(const struct query_braid_rows *rows, uint64_t span_id)
{
    return rows->by_id ? br_map_get(rows->by_id, &span_id, sizeof span_id) : NULL;
}

/* Makes a map from span id to row. If several rows have the same span id, the map contains the
 * first of them. */
static int figures_index(const struct query_braid_rows *rows, struct br_map **ret)
{
    struct br_map *map = br_map_new(rows->count + 1);
    int rc = map ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < rows->count && !rc; i++) {
        const uint64_t *id = &rows->rows[i].span.span_id;
        if (!br_map_get(map, id, sizeof *id))
            rc = br_map_put(map, id, sizeof *id, &rows->rows[i], NULL);
    }
    if (rc)
        br_map_free(map, NULL);
    else
        *ret = map;
    return rc;
}

static void figures_link(struct query_braid_rows *rows)
{
    for (size_t i = rows->count; i-- > 0;) {
        struct query_braid_row *row = &rows->rows[i];
        uint64_t id = row->span.parent_id;
        struct query_braid_row *parent = id ? query_braid_find(rows, id) : NULL;
        if (!parent || parent == row)
            continue;
        row->parent = (uint32_t)(parent - rows->rows);
        row->next = parent->first_child;
        parent->first_child = (uint32_t)i;
    }
}

int query_braid_read_trace(struct query_braid_rows *rows, const uint8_t trace_id[16],
                           struct br_err *err)
{
    rows->max = rows->max ? rows->max : BRAID_TRACE_SPANS_MAX;
    int rc = br_store_trace(rows->job->store, trace_id, query_braid_rows_add, rows, err);
    if (!rc)
        rc = rows->rc;
    if (!rc)
        rc = figures_index(rows, &rows->by_id);
    if (!rc)
        figures_link(rows);
    return rc;
}

static bool figures_is_local(const struct query_braid_rows *rows,
                             const struct query_braid_row *child)
{
    return child->parent != NO_ROW &&
           !strcmp(child->span.service, rows->rows[child->parent].span.service);
}

/* Returns the row `at`, or the next of its siblings that may be visited. */
static uint32_t figures_sibling(const struct query_braid_rows *rows, uint32_t root, uint32_t at,
                                bool local)
{
    /* `root` is among the siblings if the span is its own ancestor */
    while (at != NO_ROW && (at == root || (local && !figures_is_local(rows, &rows->rows[at]))))
        at = rows->rows[at].next;
    return at;
}

const struct query_braid_row *query_braid_next(const struct query_braid_rows *rows,
                                               const struct query_braid_row *root,
                                               const struct query_braid_row *row, bool local)
{
    uint32_t top = (uint32_t)(root - rows->rows), at = (uint32_t)(row - rows->rows);
    uint32_t next = figures_sibling(rows, top, row->first_child, local);
    for (; next == NO_ROW && at != top; at = rows->rows[at].parent)
        next = figures_sibling(rows, top, rows->rows[at].next, local);
    return next == NO_ROW ? NULL : &rows->rows[next];
}

int query_braid_select_subtree(const struct query_braid_rows *rows,
                               const struct query_braid_row *root,
                               struct query_selection *selection)
{
    int rc = 0;
    for (const struct query_braid_row *row = root; row && !rc;
         row = query_braid_next(rows, root, row, true))
        rc = query_selection_add_span(rows->job, selection, row->span.span_id);
    return rc;
}

/* --- Sums ------------------------------------------------------------------------------------ */

struct figures_adder {
    struct query_braid_rows *rows;
    const struct br_map *by_id;
};

static bool figures_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct figures_adder *adder = arg;
    struct query_braid_rows *rows = adder->rows;
    uint64_t id = samples->span_id;
    struct query_braid_row *row = id ? br_map_get(adder->by_id, &id, sizeof id) : NULL;
    if (row)
        rows->rc = query_braid_add(rows->job, &row->self,
                                   query_braid_type(rows->job, &rows->types, samples->series->type),
                                   samples->count, samples->value);
    return !rows->rc && query_job_may_continue(rows->job);
}

int query_braid_sum_rows(struct query_braid_rows *rows, struct br_err *err)
{
    struct figures_adder adder = {.rows = rows};
    struct br_map *temporary = NULL;
    if (!rows->count)
        return 0;
    uint64_t *ids = br_arena_calloc(&rows->job->arena, rows->count, sizeof *ids);
    if (!ids)
        return br_arena_why(&rows->job->arena);
    for (size_t i = 0; i < rows->count; i++)
        ids[i] = rows->rows[i].span.span_id;
    int rc = rows->by_id ? 0 : figures_index(rows, &temporary);
    if (rc)
        return rc;
    adder.by_id = rows->by_id ? rows->by_id : temporary;
    struct br_sample_filter filter = {.span_ids = ids, .n_span_ids = rows->count};
    rc = br_store_samples(rows->job->store, &filter, 0, figures_on_samples, &adder, err);
    br_map_free(temporary, NULL);
    return rc ? rc : rows->rc;
}

static int figures_add_all(struct query_braid_rows *rows, struct query_braid_figures *to,
                           const struct query_braid_figures *from)
{
    int rc = 0;
    for (size_t i = 0; i < from->n_types && !rc; i++)
        if (from->types[i].samples)
            rc = query_braid_add(rows->job, to, i, from->types[i].samples, from->types[i].value);
    return rc;
}

/* Orders the rows so that children follow their parents, and adds up the figures from the last
 * row to the first. Each local subtree starts at a row whose parent is in another service or
 * missing. */
int query_braid_sum_subtrees(struct query_braid_rows *rows)
{
    int rc = 0;
    uint32_t *order = br_arena_calloc(&rows->job->arena, rows->count + 1, sizeof *order);
    size_t count = 0, at = 0;
    if (!order)
        return br_arena_why(&rows->job->arena);
    for (uint32_t root = 0; root < rows->count; root++) {
        if (figures_is_local(rows, &rows->rows[root]))
            continue;
        order[count++] = root;
        for (; at < count; at++)
            for (uint32_t i = rows->rows[order[at]].first_child; i != NO_ROW;
                 i = rows->rows[i].next)
                if (figures_is_local(rows, &rows->rows[i]))
                    order[count++] = i;
    }
    for (size_t i = count; i-- > 0 && !rc;) {
        struct query_braid_row *row = &rows->rows[order[i]];
        rc = figures_add_all(rows, &row->subtree, &row->self);
        if (!rc && figures_is_local(rows, row))
            rc = figures_add_all(rows, &rows->rows[row->parent].subtree, &row->subtree);
    }
    return rc;
}
