/* SPDX-License-Identifier: Apache-2.0 */
/* The store exporter: writes spans and samples to the embedded store, in a local directory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/task.h"
#include "exporters/store/size.h"
#include "pipeline/exporter.h"
#include "storage/store.h"

#define RETRY_MS 1000
#define CLEAN_MS 10000 /* milliseconds between removals of old data */
/* largest total size, in bytes, of the items queued in one worker */
#define WAITING_BYTES (64u << 20)
#define WRITE_ITEMS 256u /* largest number of items in one transaction */

struct retention {
    const char *max_bytes;
    uint64_t max_age;
};

struct partition {
    int64_t rows;
    uint64_t age;
};

struct config {
    const char *directory;
    struct retention retention;
    struct partition partition;
    int sync;
    struct br_exporter_config common;
    uint64_t max_bytes; /* value of retention.max_bytes */
};

enum { NORMAL, FULL };

/* A write of queued items, which runs in a thread. The task's `done` callback frees the struct,
 * possibly after the node is destroyed. */
struct writing {
    struct br_task task;
    struct state *state; /* state of the node; it may already be freed if the task was cancelled */
    struct br_store *store;
    const struct br_item *items[WRITE_ITEMS];
    size_t n_items;
    int rc;
    struct br_err err;
    struct br_store_usage usage; /* usage of the store after the write */
};

struct state {
    struct br_node *node;
    struct br_store *store;
    struct br_list waiting; /* queued items, which contain `waiting_bytes` bytes */
    struct br_list current; /* items of the current write */
    size_t waiting_bytes;
    bool busy;
    /* number of queued items that are written one by one, to find an invalid item */
    size_t n_single;
    struct writing *writing;
    struct br_timer timer;
    struct br_log_limit limit, shortened_limit;
    double *bytes, *partitions, *damaged, *unread, *spans, *samples, *commits, *shortened;
};

static const char *const syncs[] = {"normal", "full", NULL};

static const struct br_option retention_options[] = {
    BR_STRING(
        struct retention, max_bytes, "2GiB",
        "largest size of the directory; when it is exceeded, the oldest partition is removed"),
    BR_DURATION(struct retention, max_age, "24h",
                "remove data that is older than this duration; 0: never"),
    BR_OPT_END,
};

static const struct br_option partition_options[] = {
    BR_INT(struct partition, rows, 500000, 1000, 1e9,
           "largest number of rows in a partition; a span is one row, ten samples are one row"),
    BR_DURATION(struct partition, age, "1h", "age of a partition at which the next one is started"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRING(
        struct config, directory, NULL,
        "directory of the stored data; default: `$XDG_DATA_HOME/braid` or `~/.local/share/braid`"),
    BR_STRUCT(struct config, retention, retention_options, "limits at which old data is removed"),
    BR_STRUCT(struct config, partition, partition_options,
              "limits of one partition, which is one database file"),
    BR_ENUM(struct config, sync, "normal", syncs,
            "`full`: sync to disk at each commit; `normal`: a power failure may lose the data of "
            "the last seconds"),
    BR_EXPORTER_OPTIONS_OFF(struct config, common),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static int store_exporter_check(void *config, const struct br_yaml *node, const char *path,
                                struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    size_t before = errs->n_errors;
    (void)arena;
    (void)br_exporter_check(&settings->common, node, path, errs);
    if (!store_size_parse(settings->retention.max_bytes, &settings->max_bytes))
        br_errs_add_key(errs, node, path, "retention",
                        "::max_bytes must be a size of at least 1MiB, such as 500MiB or 2GiB, "
                        "got \"%s\"",
                        settings->retention.max_bytes);
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* Writes the configured or the default directory to `out`. Returns false if the environment has
 * no home directory. */
static bool store_exporter_directory(const struct config *config, char *out, size_t size)
{
    if (!config->directory || !*config->directory)
        return br_store_default_directory(out, size);
    int len = snprintf(out, size, "%s", config->directory);
    return len > 0 && (size_t)len < size;
}

/* --- Metrics --------------------------------------------------------------------------------- */

/* Sets the metrics of the store. All workers share one store, so only the first worker sets the
 * metrics. */
static void store_exporter_set_metrics(struct state *state)
{
    const struct br_store_usage *usage = &state->writing->usage;
    if (state->node->host->worker)
        return;
    *state->bytes = (double)usage->bytes;
    *state->partitions = (double)usage->n_partitions;
    *state->damaged = (double)usage->n_damaged;
    *state->unread = (double)usage->n_unread;
    *state->spans = (double)usage->n_spans;
    *state->samples = (double)usage->n_samples;
    if (usage->n_shortened > (uint64_t)*state->shortened)
        br_node_warn(
            state->node, &state->shortened_limit,
            "requests have more labels, names or frames than the store keeps for their size: "
            "some were dropped (braid_store_shortened_items)");
    *state->shortened = (double)usage->n_shortened;
}

static br_task_fn store_exporter_on_run, store_exporter_on_done;

static int store_exporter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    state->node = node;
    br_list_init(&state->waiting);
    br_list_init(&state->current);
    state->bytes = br_node_metric(node, BR_GAUGE, "braid_store_bytes", NULL, NULL);
    state->partitions = br_node_metric(node, BR_GAUGE, "braid_store_partitions", NULL, NULL);
    state->damaged = br_node_metric(node, BR_GAUGE, "braid_store_damaged_partitions", NULL, NULL);
    state->unread = br_node_metric(node, BR_GAUGE, "braid_store_unread_partitions", NULL, NULL);
    state->spans = br_node_metric(node, BR_GAUGE, "braid_store_spans", NULL, NULL);
    state->samples = br_node_metric(node, BR_GAUGE, "braid_store_samples", NULL, NULL);
    state->shortened = br_node_metric(node, BR_COUNTER, "braid_store_shortened_items", NULL, NULL);
    state->commits = br_node_metric(node, BR_COUNTER, "braid_store_commits", NULL, NULL);
    state->writing = br_calloc(1, sizeof *state->writing);
    state->store = br_store_get(node->host, node->id);
    if (!state->writing || !state->store)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    br_task_init(&state->writing->task, node->host, store_exporter_on_run, store_exporter_on_done);
    state->writing->task.work.kind = BR_WORK_DISK;
    state->writing->state = state;
    state->writing->store = state->store;
    return 0;
}

/* --- Writing --------------------------------------------------------------------------------- */

static void store_exporter_begin(struct state *state);

static void store_exporter_on_run(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    writing->err = (struct br_err){.code = 0};
    writing->rc = br_store_write(writing->store, writing->items, writing->n_items, &writing->err);
    /* the usage is read in this thread, because the store's lock is held while old partitions
     * are removed */
    br_store_usage(writing->store, &writing->usage);
}

/* Finishes an item that could not be written. The client is asked to retry, because a full disk
 * may have free space by then. */
static void store_exporter_fail(struct state *state, struct br_item *item)
{
    const struct writing *writing = state->writing;
    if (writing->rc == BR_EINVAL || writing->rc == BR_ETOOBIG) {
        struct br_outcome outcome = br_outcome_reject(
            BR_STATUS_INVALID_ARGUMENT, "store: cannot be stored: %s", writing->err.text);
        br_item_finish(item, &outcome);
        return;
    }
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, RETRY_MS,
                                                 "store: cannot write: %s", writing->err.text);
    br_node_warn(state->node, &state->limit, "%s", outcome.text);
    br_item_finish(item, &outcome);
}

static void store_exporter_finish(struct state *state)
{
    struct br_list *link;
    while ((link = br_list_shift(&state->current))) {
        struct br_item *item = br_container_of(link, struct br_item, link);
        if (state->writing->rc)
            store_exporter_fail(state, item);
        else
            br_item_done(item);
    }
}

/* If one of several items in a write is invalid, queues the items of the write again, to be
 * written one by one. Returns true if the items were queued. */
static bool store_exporter_requeue(struct state *state)
{
    if (state->writing->rc != BR_EINVAL || state->writing->n_items < 2)
        return false;
    state->n_single = state->writing->n_items;
    while (!br_list_empty(&state->current)) {
        struct br_list *link = state->current.prev;
        br_list_remove(link);
        /* inserts the item in front of the first queued item */
        br_list_append(state->waiting.next, link);
        state->waiting_bytes += br_container_of(link, struct br_item, link)->size;
    }
    return true;
}

static void store_exporter_on_done(struct br_task *task)
{
    struct writing *writing = br_container_of(task, struct writing, task);
    struct state *state = writing->state;
    if (br_task_is_cancelled(task)) {
        br_free(writing);
        return;
    }
    state->busy = false;
    *state->commits += writing->rc == 0 && writing->n_items;
    if (!store_exporter_requeue(state))
        store_exporter_finish(state);
    store_exporter_set_metrics(state);
    if (!br_list_empty(&state->waiting))
        store_exporter_begin(state);
    else if (state->node->draining && !state->node->drained)
        br_node_drained(state->node);
}

/* Writes queued items in one transaction. */
static void store_exporter_begin(struct state *state)
{
    struct writing *writing = state->writing;
    size_t most = state->n_single ? 1 : WRITE_ITEMS;
    struct br_list *link;
    state->n_single -= state->n_single > 0;
    for (writing->n_items = 0;
         writing->n_items < most && (link = br_list_shift(&state->waiting));) {
        struct br_item *item = br_container_of(link, struct br_item, link);
        br_list_append(&state->current, link);
        writing->items[writing->n_items++] = item;
        state->waiting_bytes -= item->size;
    }
    state->busy = true;
    br_task_start(&writing->task);
}

static void store_exporter_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    if (state->waiting_bytes + item->size > WAITING_BYTES && state->busy) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS,
                      "store: too many bytes are queued for the disk");
        return;
    }
    state->waiting_bytes += item->size;
    br_list_append(&state->waiting, &item->link);
    if (!state->busy)
        store_exporter_begin(state);
}

/* --- Life ------------------------------------------------------------------------------------ */

/* Starts a write without items, which removes old data even if no items arrive. */
static void store_exporter_on_timer(struct br_timer *timer)
{
    struct state *state = br_container_of(timer, struct state, timer);
    (void)br_host_timer(state->node->host, timer, CLEAN_MS, store_exporter_on_timer);
    if (!state->busy)
        store_exporter_begin(state);
}

static int store_exporter_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    char directory[3072];
    if (!store_exporter_directory(config, directory, sizeof directory))
        return br_err_set(err, BR_EINVAL,
                          "exporters::%s::directory must be set if $HOME is not set", node->id);
    if (node->host->checking)
        return 0;
    struct br_store_config store_config = {
        .directory = directory,
        .max_bytes = config->max_bytes,
        .max_age_ns = config->retention.max_age,
        .partition_rows = (uint64_t)config->partition.rows,
        .partition_age_ns = config->partition.age,
        .sync_full = config->sync == FULL,
    };
    int rc = br_store_open(state->store, &store_config, &node->log, err);
    if (rc) {
        br_err_prefix(err, "exporters::%s: ", node->id);
        return rc;
    }
    br_store_usage(state->store, &state->writing->usage);
    store_exporter_set_metrics(state);
    if (!node->host->worker)
        (void)br_host_timer(node->host, &state->timer, CLEAN_MS, store_exporter_on_timer);
    return 0;
}

static void store_exporter_drain(struct br_node *node)
{
    struct state *state = node->state;
    br_host_timer_stop(node->host, &state->timer);
    if (!state->busy)
        br_node_drained(node);
}

static void store_exporter_give_back(struct br_list *list)
{
    struct br_list *link;
    while ((link = br_list_shift(list)))
        br_item_retry(br_container_of(link, struct br_item, link), BR_STATUS_UNAVAILABLE, 0,
                      "shutting down");
}

/* Finishes the items that a thread has written; the caller returns the other items to their
 * senders. */
static void store_exporter_stop(struct state *state)
{
    struct writing *writing = state->writing;
    br_task_stop(&writing->task);
    if (writing->task.ran)
        store_exporter_finish(state);
}

static void store_exporter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    if (!state->node)
        return;
    br_host_timer_stop(node->host, &state->timer);
    if (state->busy)
        store_exporter_stop(state);
    else
        br_free(state->writing);
    store_exporter_give_back(&state->current);
    store_exporter_give_back(&state->waiting);
    br_store_put(node->host, state->store);
}

extern const struct br_component br_store_exporter;
const struct br_component br_store_exporter = {
    .name = "store",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "alpha",
    .help = "writes spans and samples to a local directory, for the query extension",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .owns_files = true,
    .exporter_wrapped = true,
    .common_at = offsetof(struct config, common),
    .resolves = true,
    .check = store_exporter_check,
    .create = store_exporter_create,
    .start = store_exporter_start,
    .consume = store_exporter_consume,
    .drain = store_exporter_drain,
    .destroy = store_exporter_destroy,
};
