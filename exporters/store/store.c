/* SPDX-License-Identifier: Apache-2.0 */
/* The store exporter: spans and samples go to the embedded store, in a folder of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "exporters/store/size.h"
#include "pipeline/exporter.h"
#include "storage/store.h"

#define RETRY_MS 1000
#define LOOK_MS 10000             /* how often what is too old is looked for */
#define WAITING_BYTES (64u << 20) /* of items that wait for the disk, of one worker */
#define WRITE_ITEMS 256u          /* in one transaction */

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
    uint64_t max_bytes; /* made of retention.max_bytes */
};

enum { NORMAL, FULL };

/* One write, which a thread makes. It outlives its node where that does not wait for it. */
struct writing {
    struct br_work work;
    struct state *state; /* NULL: the node is gone */
    struct br_store *store;
    const struct br_item *items[WRITE_ITEMS];
    size_t n_items;
    int rc;
    struct br_err err;
    struct br_store_usage usage; /* after it */
};

struct state {
    struct br_node *node;
    struct br_store *store;
    struct br_list waiting; /* items; waiting_bytes of them */
    struct br_list taken;   /* items of the write under way */
    size_t waiting_bytes;
    bool busy;
    size_t alone; /* items that are written one by one, to find the one at fault */
    struct writing *writing;
    struct br_timer timer;
    struct br_log_limit limit, shortened_limit;
    double *bytes, *partitions, *damaged, *unread, *spans, *samples, *commits, *shortened;
};

static const char *const syncs[] = {"normal", "full", NULL};

static const struct br_option retention_options[] = {
    BR_STRING(struct retention, max_bytes, "2GiB",
              "of the folder; above it the oldest partition is removed"),
    BR_DURATION(struct retention, max_age, "24h", "of what is kept; 0: any"),
    BR_OPT_END,
};

static const struct br_option partition_options[] = {
    BR_INT(struct partition, rows, 500000, 1000, 1e9,
           "spans, and samples divided by ten, of one partition"),
    BR_DURATION(struct partition, age, "1h", "after which the next partition begins"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRING(struct config, directory, NULL,
              "the folder; default: `$XDG_DATA_HOME/braid` or `~/.local/share/braid`"),
    BR_STRUCT(struct config, retention, retention_options, "how much is kept"),
    BR_STRUCT(struct config, partition, partition_options, "how much one database holds"),
    BR_ENUM(struct config, sync, "normal", syncs,
            "`full`: to the disk at each commit; `normal`: a power cut may lose the last seconds"),
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

/* The folder where the config names none. False where the environment names no home. */
static bool store_exporter_directory(const struct config *config, char *out, size_t size)
{
    if (!config->directory || !*config->directory)
        return br_store_default_directory(out, size);
    int len = snprintf(out, size, "%s", config->directory);
    return len > 0 && (size_t)len < size;
}

/* --- Metrics --------------------------------------------------------------------------------- */

/* The store is one for all workers; so that a scrape counts it once, the first of them shows it. */
static void store_exporter_show(struct state *state)
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
            "requests refer to more labels, names or frames than the store keeps of their size: "
            "some were left out (braid_store_shortened_items)");
    *state->shortened = (double)usage->n_shortened;
}

static int store_exporter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    state->node = node;
    br_list_init(&state->waiting);
    br_list_init(&state->taken);
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
    state->writing->state = state;
    state->writing->store = state->store;
    return 0;
}

/* --- Writing --------------------------------------------------------------------------------- */

static void store_exporter_begin(struct state *state);

static void store_exporter_on_run(struct br_work *work)
{
    struct writing *writing = br_container_of(work, struct writing, work);
    writing->err = (struct br_err){.code = 0};
    writing->rc = br_store_write(writing->store, writing->items, writing->n_items, &writing->err);
    /* Here, because the store's lock is held while old partitions are removed. */
    br_store_usage(writing->store, &writing->usage);
    br_mem_flush();
}

/* The data stays with its sender, who tries again: a full disk may be emptied. */
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
    while ((link = br_list_shift(&state->taken))) {
        struct br_item *item = br_container_of(link, struct br_item, link);
        if (state->writing->rc)
            store_exporter_fail(state, item);
        else
            br_item_done(item);
    }
}

/* One item of several may be at fault: they go back, each to be written alone. */
static bool store_exporter_divides(struct state *state)
{
    if (state->writing->rc != BR_EINVAL || state->writing->n_items < 2)
        return false;
    state->alone = state->writing->n_items;
    while (!br_list_empty(&state->taken)) {
        struct br_list *link = state->taken.prev;
        br_list_remove(link);
        br_list_append(state->waiting.next, link); /* before the first */
        state->waiting_bytes += br_container_of(link, struct br_item, link)->size;
    }
    return true;
}

static void store_exporter_on_ran(struct br_work *work)
{
    struct writing *writing = br_container_of(work, struct writing, work);
    struct state *state = writing->state;
    if (!state) {
        br_free(writing);
        return;
    }
    state->busy = false;
    *state->commits += writing->rc == 0 && writing->n_items;
    if (!store_exporter_divides(state))
        store_exporter_finish(state);
    store_exporter_show(state);
    if (!br_list_empty(&state->waiting))
        store_exporter_begin(state);
    else if (state->node->draining && !state->node->drained)
        br_node_drained(state->node);
}

/* Writes what waits, in one transaction. */
static void store_exporter_begin(struct state *state)
{
    struct writing *writing = state->writing;
    size_t most = state->alone ? 1 : WRITE_ITEMS;
    struct br_list *link;
    state->alone -= state->alone > 0;
    for (writing->n_items = 0;
         writing->n_items < most && (link = br_list_shift(&state->waiting));) {
        struct br_item *item = br_container_of(link, struct br_item, link);
        br_list_append(&state->taken, link);
        writing->items[writing->n_items++] = item;
        state->waiting_bytes -= item->size;
    }
    state->busy = true;
    writing->work = (struct br_work){
        .run = store_exporter_on_run, .done = store_exporter_on_ran, .kind = BR_WORK_DISK};
    br_host_work(state->node->host, &writing->work);
}

static void store_exporter_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    if (state->waiting_bytes + item->size > WAITING_BYTES && state->busy) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS,
                      "store: too much waits for the disk already");
        return;
    }
    state->waiting_bytes += item->size;
    br_list_append(&state->waiting, &item->link);
    if (!state->busy)
        store_exporter_begin(state);
}

/* --- Life ------------------------------------------------------------------------------------ */

/* Nothing is written: what is too old goes. */
static void store_exporter_on_timer(struct br_timer *timer)
{
    struct state *state = br_container_of(timer, struct state, timer);
    (void)br_host_timer(state->node->host, timer, LOOK_MS, store_exporter_on_timer);
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
                          "exporters::%s::directory must be set where there is no $HOME", node->id);
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
    store_exporter_show(state);
    if (!node->host->worker)
        (void)br_host_timer(node->host, &state->timer, LOOK_MS, store_exporter_on_timer);
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

/* Keeps what a thread has written, and gives back what it has not begun. */
static void store_exporter_leave(struct state *state)
{
    struct writing *writing = state->writing;
    br_host_work_leave(state->node->host, &writing->work);
    br_host_work_wait(state->node->host, &writing->work);
    if (!writing->work.left)
        store_exporter_finish(state);
    writing->state = NULL;
}

static void store_exporter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    if (!state->node)
        return;
    br_host_timer_stop(node->host, &state->timer);
    if (state->busy)
        store_exporter_leave(state);
    else
        br_free(state->writing);
    store_exporter_give_back(&state->taken);
    store_exporter_give_back(&state->waiting);
    br_store_put(node->host, state->store);
}

extern const struct br_component br_store_exporter;
const struct br_component br_store_exporter = {
    .name = "store",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "alpha",
    .help = "spans and samples in a folder of this machine, for the extension query",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
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
