/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file_storage extension: a write-ahead log in a directory, for the exporters whose
 * `sending_queue::storage` names it. docs/decisions/durable-queue.md describes the log.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/task.h"
#include "pipeline/component.h"
#include "pipeline/storage.h"

#define NS_PER_MS 1000000u
#define CHECK_MS 1000
#define SEGMENT_MAX (64u << 20)
/* minimum number of segments that fit into max_size: a segment has at most max_size /
 * SEGMENTS_LEAST bytes */
#define SEGMENTS_LEAST 4u
#define MODE_MAX 0777

struct config {
    const char *directory, *directory_permissions;
    bool create_directory, fsync;
    int sync, overflow;
    uint64_t sync_interval, write_after, max_age;
    int64_t max_size;
    mode_t mode; /* parsed from directory_permissions */
};

static const char *const syncs[] = {"always", "interval", "off", NULL};
static const char *const overflows[] = {"refuse", "drop_oldest", NULL};

static const struct br_option options[] = {
    BR_STRING(struct config, directory, "/var/lib/otelcol/file_storage",
              "directory of the log, which only one process may use"),
    BR_BOOL(struct config, create_directory, false, "create the directory if it does not exist"),
    BR_STRING(struct config, directory_permissions, "0700",
              "mode of the directory if Braid creates it"),
    BR_ENUM(struct config, sync, "always", syncs,
            "when data is synced to the disk: `always`: before each answer; `interval`: every "
            "`sync_interval`, so a power failure may lose the data since the last sync; `off`: "
            "when the operating system decides to write it"),
    BR_DURATION(struct config, sync_interval, "1s", "interval of `sync: interval`"),
    BR_BOOL(struct config, fsync, true, "false has the effect of `sync: off`"),
    BR_INT(struct config, max_size, 10737418240.0, 4194304, 9007199254740992.0,
           "largest size of the log in bytes"),
    BR_ENUM(struct config, overflow, "refuse", overflows,
            "what happens at max_size: `refuse`: new requests are refused, and their senders "
            "should retry; `drop_oldest`: the oldest requests are dropped"),
    BR_DURATION(struct config, write_after, "20ms",
                "a request that the backend accepts within this time is answered and not written; "
                "0: each request is written before its answer"),
    BR_DURATION(struct config, max_age, "0s",
                "age at which a request that could not be delivered is dropped; 0: never"),
    BR_IGNORED("timeout", "the lock of the directory is taken at once, or the start fails"),
    BR_IGNORED("compaction", "segments are deleted when all of their requests are delivered"),
    BR_IGNORED("recreate", "damaged data is moved to `quarantine`, and the rest is used"),
    BR_OPT_END,
};

/* A sync of the log, which runs in a thread. The task's `done` callback frees the struct if the
 * node was destroyed. */
struct syncing {
    struct br_task task;
    struct state *state; /* NULL: the node was destroyed */
    struct br_wal *wal;
    bool running;
};

struct state {
    struct br_node *node;
    struct br_storage *storage;
    struct syncing *syncing;
    struct br_timer check, sync;
    bool checked;
    uint64_t n_dropped[BR_SIGNALS];
    double *bytes, *segments, *restored, *syncs, *errors, *corrupt, *failing;
    double *dropped[BR_SIGNALS];
};

/* --- Metrics ---------------------------------------------------------------------------------- */

static void file_storage_make_metrics(struct state *state)
{
    struct br_node *node = state->node;
    state->bytes = br_node_metric(node, BR_GAUGE, "braid_storage_size_bytes", NULL, NULL);
    state->segments = br_node_metric(node, BR_GAUGE, "braid_storage_segments", NULL, NULL);
    state->failing = br_node_metric(node, BR_GAUGE, "braid_storage_failing", NULL, NULL);
    state->restored =
        br_node_metric(node, BR_COUNTER, "braid_storage_restored_requests", NULL, NULL);
    state->syncs = br_node_metric(node, BR_COUNTER, "braid_storage_syncs", NULL, NULL);
    state->errors = br_node_metric(node, BR_COUNTER, "braid_storage_errors", NULL, NULL);
    state->corrupt = br_node_metric(node, BR_COUNTER, "braid_storage_corrupt", NULL, NULL);
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        state->dropped[s] = br_node_metric(node, BR_COUNTER, "braid_storage_dropped_records",
                                           "signal", br_signal_name(s));
}

static void file_storage_show(struct state *state)
{
    struct br_wal_stats stats = br_wal_stats(br_storage_wal(state->storage));
    *state->bytes = (double)stats.bytes;
    *state->segments = (double)stats.n_segments;
    *state->failing = stats.failing;
    *state->restored = (double)stats.n_restored;
    *state->syncs = (double)stats.n_syncs;
    *state->errors = (double)stats.n_errors;
    *state->corrupt = (double)stats.n_corrupt;
    for (int s = 0; s < BR_SIGNALS; s++) {
        uint64_t more = stats.n_dropped[s] - state->n_dropped[s];
        *state->dropped[s] = (double)stats.n_dropped[s];
        state->n_dropped[s] = stats.n_dropped[s];
        if (more)
            br_error(&state->node->log, "dropped %llu %s (max_size, overflow: drop_oldest)",
                     (unsigned long long)more, br_signal_records((enum br_signal)s));
    }
}

static void file_storage_on_check(struct br_timer *timer)
{
    struct state *state = br_container_of(timer, struct state, check);
    (void)br_host_timer(state->node->host, timer, CHECK_MS, file_storage_on_check);
    file_storage_show(state);
    if (!state->checked)
        br_wal_warn_unused(br_storage_wal(state->storage));
    state->checked = true;
}

/* --- Syncing ---------------------------------------------------------------------------------- */

static void syncing_run(struct br_task *task)
{
    struct syncing *syncing = br_container_of(task, struct syncing, task);
    (void)br_wal_sync(syncing->wal, true, NULL); /* the log itself reports failures */
}

static void syncing_on_done(struct br_task *task)
{
    struct syncing *syncing = br_container_of(task, struct syncing, task);
    syncing->running = false;
    if (!syncing->state)
        br_free(syncing);
}

static void file_storage_on_sync(struct br_timer *timer)
{
    struct state *state = br_container_of(timer, struct state, sync);
    const struct config *config = state->node->config;
    (void)br_host_timer(state->node->host, timer, config->sync_interval / NS_PER_MS,
                        file_storage_on_sync);
    if (state->syncing->running)
        return;
    state->syncing->running = true;
    br_task_start(&state->syncing->task);
}

static bool file_storage_start_syncing(struct state *state)
{
    struct br_host *host = state->node->host;
    const struct config *config = state->node->config;
    struct syncing *syncing = state->syncing = br_calloc(1, sizeof *syncing);
    if (!syncing)
        return false;
    syncing->state = state;
    syncing->wal = br_storage_wal(state->storage);
    br_task_init(&syncing->task, host, syncing_run, syncing_on_done);
    syncing->task.work.kind = BR_WORK_DISK;
    return br_host_timer(host, &state->sync, config->sync_interval / NS_PER_MS,
                         file_storage_on_sync);
}

/* --- Component -------------------------------------------------------------------------------- */

static int file_storage_check(void *config, const struct br_yaml *node, const char *path,
                              struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    char *end = NULL;
    unsigned long mode = strtoul(settings->directory_permissions, &end, 8);
    (void)arena;
    if (!*settings->directory_permissions || *end || mode > MODE_MAX)
        return br_errs_add_key(errs, node, path, "directory_permissions",
                               "must be an octal mode such as \"0700\", got \"%s\"",
                               settings->directory_permissions);
    settings->mode = (mode_t)mode;
    if (settings->sync_interval < NS_PER_MS)
        return br_errs_add_key(errs, node, path, "sync_interval", "must be at least 1ms");
    if (!*settings->directory)
        return br_errs_add_key(errs, node, path, "directory", "must not be empty");
    return 0;
}

static struct br_storage_config file_storage_config(const struct br_node *node)
{
    const struct config *config = node->config;
    uint64_t max_size = (uint64_t)config->max_size, share = max_size / SEGMENTS_LEAST;
    return (struct br_storage_config){
        .wal = {.directory = config->directory,
                .create_directory = config->create_directory,
                .directory_mode = config->mode,
                .max_size = max_size,
                .segment_size = share < SEGMENT_MAX ? share : SEGMENT_MAX,
                .sync = config->fsync ? (enum br_wal_sync_mode)config->sync : BR_WAL_OFF,
                .drop_oldest = config->overflow == 1,
                .log = node->log},
        .max_age_ms = config->max_age / NS_PER_MS,
        .write_after_ms = config->write_after / NS_PER_MS};
}

static int file_storage_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    state->storage = br_storage_get(node->host, node->id);
    if (!state->storage)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    state->node = node;
    return 0;
}

static int file_storage_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct br_storage_config config = file_storage_config(node);
    if (node->host->checking)
        return br_wal_check(&config.wal, err);
    int rc = br_storage_open(state->storage, &config, err);
    if (rc || node->host->worker)
        return rc;
    file_storage_make_metrics(state);
    if (!br_host_timer(node->host, &state->check, 0, file_storage_on_check) ||
        (config.wal.sync == BR_WAL_INTERVAL && !file_storage_start_syncing(state)))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}

static void file_storage_destroy(struct br_node *node)
{
    struct state *state = node->state;
    struct syncing *syncing = state->syncing;
    if (!state->node)
        return;
    br_host_timer_stop(node->host, &state->check);
    br_host_timer_stop(node->host, &state->sync);
    if (syncing && syncing->running) {
        br_task_stop(&syncing->task);
        syncing->state = NULL;
    } else {
        br_free(syncing);
    }
    br_storage_put(node->host, state->storage);
}

extern const struct br_component br_file_storage_extension;
const struct br_component br_file_storage_extension = {
    .name = "file_storage",
    .kind = BR_EXTENSION,
    .stability = "alpha",
    .help = "stores the sending queues of exporters on disk",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .owns_files = true,
    .check = file_storage_check,
    .create = file_storage_create,
    .start = file_storage_start,
    .destroy = file_storage_destroy,
};
