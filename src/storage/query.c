/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "storage/view.h"

/* number of virtual machine steps of SQLite between two checks of the query's limits */
#define STEPS_BETWEEN_LOOKS 2000

static uint64_t query_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool br_store_query_may_continue(struct br_store_query *query)
{
    const struct br_store_query_state *state = br_store_query_state_of(query);
    if (query->cut)
        return false;
    if (query->max_bytes && state->held_bytes + query->arena->used > query->max_bytes)
        query->cut = "it takes too much memory";
    else if (query->deadline_ms && query_now_ms() >= query->deadline_ms)
        query->cut = "it takes too long";
    return !query->cut;
}

void br_store_query_count_bytes(struct br_store_query *query, int64_t bytes)
{
    br_store_query_state_of(query)->held_bytes += (size_t)bytes;
}

static int query_on_steps(void *arg)
{
    return !br_store_query_may_continue(arg);
}

/* --- Partitions ------------------------------------------------------------------------------ */

/* Reports an unreadable partition in query->note, unless the query has a note already. */
static void query_note_unread(struct br_store_query *query, const struct br_store_view *view,
                              const char *why)
{
    static const char unknown[] = "a part of the data could not be read";
    char text[640];
    if (query->note && !strncmp(query->note, unknown, sizeof unknown - 1))
        return;
    (void)snprintf(text, sizeof text, "a part of the data could not be read (partition %08x: %s)",
                   view->partition->number, why);
    const char *note = br_arena_strndup(query->arena, text, strlen(text));
    query->note = note ? note : unknown;
}

static void query_release_reader(struct br_store_query *query, struct br_store_view *view)
{
    if (!view->reader)
        return;
    struct br_sql *sql = &view->reader->sql;
    sqlite3_progress_handler(sql->db, 0, NULL, NULL);
    for (int i = 0; i < BR_SQL_STATEMENTS; i++)
        (void)sqlite3_reset(sql->statements[i]);
    (void)br_sql_run(sql, br_sql_statement(sql, BR_SQL_ROLLBACK), NULL);
    br_store_reader_release(query->store, view->partition, view->reader);
    view->reader = NULL;
}

int br_store_view_failed(struct br_store_query *query, struct br_store_view *view, int code,
                         struct br_err *err)
{
    const char *why = err && *err->text ? err->text : "it cannot be read";
    bool gone = br_store_partition_is_gone(query->store, view->partition);
    if (code == BR_ETIMEOUT)
        return 0; /* query->cut is set: the progress handler sets it when it interrupts SQLite */
    if (code == BR_ENOMEM)
        return code;
    if (code == BR_ENOTFOUND && !gone)
        br_store_partition_drop_lost(query->store, view->partition);
    view->failed = true;
    if (code == BR_EPROTO)
        (void)br_store_partition_check_damage(query->store, view->partition, why);
    if (code != BR_ENOTFOUND || !br_store_partition_is_expired(query->store, view->partition))
        query_note_unread(query, view, gone ? "it was removed meanwhile" : why);
    return 0;
}

/* Closes readers that the query does not need at the moment, until the number of readers in use
 * is below its limit. */
static void query_close_unused(struct br_store_query *query)
{
    struct br_store_query_state *state = br_store_query_state_of(query);
    for (uint32_t i = 0; i < state->n_views && br_store_readers_full(query->store); i++)
        if (!state->views[i].uses)
            query_release_reader(query, &state->views[i]);
}

static int query_open_reader(struct br_store_query *query, struct br_store_view *view,
                             struct br_err *err)
{
    query_close_unused(query);
    int rc = br_store_reader_acquire(query->store, view->partition, &view->reader, err);
    if (rc)
        return rc;
    struct br_sql *sql = &view->reader->sql;
    br_sql_restore_index(sql);
    sqlite3_progress_handler(sql->db, STEPS_BETWEEN_LOOKS, query_on_steps, query);
    rc = br_sql_run(sql, br_sql_statement(sql, BR_SQL_BEGIN_READ), err);
    if (!rc)
        rc = br_store_totals_read(sql, &view->totals, err);
    return rc;
}

bool br_store_view_open(struct br_store_query *query, struct br_store_view *view, int *rc,
                        struct br_err *err)
{
    struct br_err why = {0};
    *rc = 0;
    if (view->unread)
        query_note_unread(query, view, view->unread);
    if (view->failed || !br_store_query_may_continue(query))
        return false;
    if (view->reader) {
        view->uses++;
        return true;
    }
    int code = query_open_reader(query, view, &why);
    if (!code) {
        view->uses++;
        return true;
    }
    query_release_reader(query, view);
    *rc = br_store_view_failed(query, view, code, &why);
    if (*rc && err)
        *err = why;
    return false;
}

void br_store_view_close(struct br_store_view *view)
{
    view->uses--;
}

int br_store_view_blob(struct br_store_query *query, sqlite3_stmt *statement, int column,
                       struct br_err *err)
{
    struct br_store_query_state *state = br_store_query_state_of(query);
    const void *data = sqlite3_column_blob(statement, column);
    size_t len = (size_t)sqlite3_column_bytes(statement, column), before = state->plain.cap;
    int rc = br_pack_decompress(&state->codec, data, len, &state->plain);
    br_store_query_count_bytes(query, (int64_t)(state->plain.cap - before));
    if (rc == BR_EIO)
        return br_err_set(err, BR_EPROTO, "a blob is damaged");
    return rc ? br_err_set(err, rc, "out of memory") : 0;
}

const char *br_store_view_text(struct br_store_query *query, sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    const char *copy = br_arena_strndup(query->arena, text ? text : "",
                                        (size_t)sqlite3_column_bytes(statement, column));
    if (!copy)
        query->cut = "it takes too much memory";
    return copy;
}

/* --- Beginning and ending -------------------------------------------------------------------- */

static int query_list_views(struct br_store_query *query, struct br_store_query_state *state)
{
    struct br_store *store = query->store;
    (void)pthread_mutex_lock(&store->lock);
    state->views = br_calloc(store->n_partitions + 1, sizeof *state->views);
    for (struct br_list *link = store->partitions.next; state->views && link != &store->partitions;
         link = link->next) {
        struct br_store_view *view = &state->views[state->n_views++];
        view->partition = br_container_of(link, struct br_store_partition, link);
        view->partition->refs++;
        view->totals = view->partition->totals;
        if (view->partition->state == BR_PARTITION_DAMAGED)
            view->unread = "it is damaged";
        else if (view->partition->state == BR_PARTITION_UNREAD)
            view->unread = "it cannot be read";
        view->failed = view->unread;
    }
    (void)pthread_mutex_unlock(&store->lock);
    return state->views ? 0 : BR_ENOMEM;
}

int br_store_query_begin(struct br_store_query *query, struct br_err *err)
{
    query->cut = query->note = NULL;
    query->impl = NULL;
    if (!query->store || !br_store_is_open(query->store))
        return br_err_set(err, BR_EINVAL, "the store is not open");
    struct br_store_query_state *state = br_calloc(1, sizeof *state);
    if (!state || query_list_views(query, state)) {
        br_free(state);
        return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    query->impl = state;
    return 0;
}

static void query_release_view(struct br_store_query *query, struct br_store_view *view)
{
    br_free(view->services);
    br_free(view->names);
    query_release_reader(query, view);
    br_store_partition_put(query->store, view->partition);
}

void br_store_query_end(struct br_store_query *query)
{
    struct br_store_query_state *state = query->impl;
    if (!state)
        return;
    for (uint32_t i = 0; i < state->n_views; i++)
        query_release_view(query, &state->views[i]);
    for (int i = 0; i < BR_STORE_BODIES; i++) {
        br_pack_release(&state->bodies[i].plain);
        br_free(state->bodies[i].heads);
    }
    br_pack_release(&state->plain);
    br_pack_codec_release(&state->codec);
    br_free(state->views);
    br_free(state);
    query->impl = NULL;
}
