/* SPDX-License-Identifier: Apache-2.0 */
/* The processors batch and queue_batch, for both signals. src/pipeline/batch.c contains the
 * batcher that both use. */
#include <stdio.h>

#include "base/mem.h"
#include "config/parts.h"
#include "pipeline/batch.h"
#include "pipeline/exporter.h"

struct config {
    uint64_t timeout;
    int64_t send_batch_size, send_batch_max_size, metadata_cardinality_limit;
    struct br_strings metadata_keys;
    int acknowledge;
};

struct state {
    struct br_node *node;
    /* receives the batches of the batchers, and forwards them to the next component */
    struct br_consumer output;
    /* batchers by partition; NULL: requests are forwarded unchanged */
    struct br_partitions *batchers;
    double *cardinality; /* metric of the number of batchers; NULL for queue_batch */
};

static const char *const acknowledge[] = {"early", "late", NULL};

static const struct br_option options[] = {
    BR_DURATION(struct config, timeout, "200ms",
                "a batch of any size is sent after this time; 0: each request is sent immediately"),
    BR_INT(
        struct config, send_batch_size, 8192, 0, 4294967295.0,
        "number of spans or samples at which a batch is sent; 0: each request is sent immediately"),
    BR_INT(struct config, send_batch_max_size, 0, 0, 4294967295.0,
           "a batch with more spans or samples than this number is divided; 0: never"),
    BR_STRINGS(struct config, metadata_keys,
               "keys of client metadata; requests with different values go into separate batches, "
               "which retain these values"),
    BR_INT(struct config, metadata_cardinality_limit, 1000, 1, 100000,
           "largest number of combinations of metadata values that have a batch at the same time"),
    BR_ENUM(struct config, acknowledge, "early", acknowledge,
            "early: answer a client when its data is in a batch; late: answer it when the batch "
            "has been delivered"),
    BR_OPT_END,
};

static int batch_processor_check(void *config, const struct br_yaml *node, const char *path,
                                 struct br_arena *arena, struct br_errs *errs)
{
    const struct config *settings = config;
    (void)arena;
    if (!settings->send_batch_max_size ||
        settings->send_batch_max_size >= settings->send_batch_size)
        return 0;
    return br_errs_add_key(errs, node, path, "send_batch_max_size",
                           "must be 0 or at least send_batch_size (%lld), got %lld",
                           (long long)settings->send_batch_size,
                           (long long)settings->send_batch_max_size);
}

static void batch_processor_output(struct br_consumer *self, struct br_item *item)
{
    struct state *state = br_container_of(self, struct state, output);
    br_node_forward(state->node, item);
}

static int batch_processor_init(struct br_node *node, const struct br_partition_config *config,
                                struct br_err *err)
{
    struct state *state = node->state;
    state->node = node;
    state->output.consume = batch_processor_output;
    state->batchers = br_partitions_new(node, config, &state->output);
    return state->batchers ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int batch_processor_create(struct br_node *node, struct br_err *err)
{
    static const struct br_batch_metrics metrics = {
        .sizes = "otelcol_processor_batch_batch_send_size",
        .sizes_bytes = "otelcol_processor_batch_batch_send_size_bytes",
        .by_size = "otelcol_processor_batch_batch_size_trigger_send",
        .by_timeout = "otelcol_processor_batch_timeout_trigger_send"};
    const struct config *settings = node->config;
    struct br_partition_config config = {
        .batch = {.timeout_ms = settings->timeout / 1000000,
                  .min_size = (size_t)settings->send_batch_size,
                  .max_size = (size_t)settings->send_batch_max_size,
                  .late = settings->acknowledge == 1,
                  .again = true},
        .keys = &settings->metadata_keys,
        .limit = (size_t)settings->metadata_cardinality_limit};
    config.batch.metrics = &metrics;
    ((struct state *)node->state)->cardinality =
        br_node_metric(node, BR_GAUGE, "otelcol_processor_batch_metadata_cardinality", NULL, NULL);
    if (settings->timeout && !config.batch.timeout_ms)
        config.batch.timeout_ms = 1;
    return batch_processor_init(node, &config, err);
}

static void batch_processor_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    if (!state->batchers) {
        br_node_forward(node, item);
        return;
    }
    br_partitions_add(state->batchers, item);
    if (node->draining)
        br_partitions_flush(state->batchers);
    if (state->cardinality)
        *state->cardinality = (double)br_partitions_count(state->batchers);
}

static void batch_processor_on_end(void *arg)
{
    struct state *state = arg;
    if (state->node->draining && br_partitions_idle(state->batchers))
        br_node_drained(state->node);
}

static void batch_processor_drain(struct br_node *node)
{
    struct state *state = node->state;
    if (!state->batchers) {
        br_node_drained(node);
        return;
    }
    br_partitions_on_end(state->batchers, batch_processor_on_end, state);
    br_partitions_flush(state->batchers);
    batch_processor_on_end(state);
}

static void batch_processor_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_partitions_free(state->batchers);
}

/* Returns how many records the processor may gather into one request. */
static uint64_t batch_processor_request_records(const void *config)
{
    const struct config *settings = config;
    return (uint64_t)(settings->send_batch_max_size ? settings->send_batch_max_size
                                                    : settings->send_batch_size);
}

static const struct br_strings *batch_processor_metadata_keys(const void *config)
{
    return &((const struct config *)config)->metadata_keys;
}

extern const struct br_component br_batch_processor;
const struct br_component br_batch_processor = {
    .name = "batch",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "combines requests into larger ones; merges the dictionaries of profiles",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .metadata_keys = batch_processor_metadata_keys,
    .request_records = batch_processor_request_records,
    .check = batch_processor_check,
    .create = batch_processor_create,
    .consume = batch_processor_consume,
    .drain = batch_processor_drain,
    .destroy = batch_processor_destroy,
};

/* --- queue_batch ------------------------------------------------------------------------------ */

static const char *const sizers[] = {"requests", "items", "bytes", NULL};

/* In the Collector, queue_batch is the queue of its exporters. Braid's processor has no queue;
 * the batcher itself limits the data that it holds. */
static const struct br_option queue_options[] = {
    BR_PRESENT(struct br_queue_config, batch, struct br_queue_batch_config, br_queue_batch_options,
               "conditions for sending a batch; if absent, their defaults apply; with `enabled: "
               "false`, requests pass unchanged"),
    BR_ENUM(struct br_queue_config, sizer, "requests", sizers,
            "bytes: unit of min_size and max_size if `batch` has no `sizer`; other values have no "
            "effect"),
    BR_BOOL(struct br_queue_config, wait_for_result, false,
            "false: answer a client when its data is in a batch; true: answer it when the batch "
            "has been delivered"),
    BR_IGNORED("queue_size", "the batcher has fixed limits instead of a queue"),
    BR_IGNORED("num_consumers", "at most 16 batches are sent concurrently"),
    BR_IGNORED("block_on_overflow",
               "when the batcher is full, requests are rejected and clients retry"),
    BR_OPT_END,
};

static int batch_processor_check_queue(void *config, const struct br_yaml *node, const char *path,
                                       struct br_arena *arena, struct br_errs *errs)
{
    struct br_queue_config *settings = config;
    if (!settings->batch && !br_yaml_get(node, "batch")) {
        settings->batch = br_arena_calloc(arena, 1, sizeof *settings->batch);
        if (!settings->batch)
            return br_errs_no_memory(errs);
        int rc = br_options_read(br_queue_batch_options, NULL, path, settings->batch, arena, errs);
        if (rc)
            return rc;
    }
    return br_queue_batch_check(settings, node, path, errs);
}

static int batch_processor_create_queue(struct br_node *node, struct br_err *err)
{
    const struct br_queue_config *settings = node->config;
    if (!settings->batch)
        return 0;
    static const struct br_batch_metrics metrics = {
        .sizes = "otelcol_processor_queuebatch_batch_send_size",
        .sizes_bytes = "otelcol_processor_queuebatch_batch_send_size_bytes"};
    struct br_partition_config config = br_queue_partitions(settings);
    config.batch.again = true;
    config.batch.metrics = &metrics;
    return batch_processor_init(node, &config, err);
}

static uint64_t batch_processor_queue_items(const void *config)
{
    const struct br_queue_batch_config *batch = ((const struct br_queue_config *)config)->batch;
    if (!batch || batch->sizer)
        /* 0 if no records are gathered, or if the batch size is configured in bytes */
        return 0;
    return (uint64_t)(batch->max_size ? batch->max_size : batch->min_size);
}

static const struct br_strings *batch_processor_queue_metadata_keys(const void *config)
{
    static const struct br_strings none;
    const struct br_queue_batch_config *batch = ((const struct br_queue_config *)config)->batch;
    return batch ? &batch->partition.metadata_keys : &none;
}

extern const struct br_component br_queue_batch_processor;
const struct br_component br_queue_batch_processor = {
    .name = "queue_batch",
    .alias = "queuebatch",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "combines requests as batch does, with the keys of an exporter's queue",
    .options = queue_options,
    .config_size = sizeof(struct br_queue_config),
    .state_size = sizeof(struct state),
    .metadata_keys = batch_processor_queue_metadata_keys,
    .request_records = batch_processor_queue_items,
    .check = batch_processor_check_queue,
    .create = batch_processor_create_queue,
    .consume = batch_processor_consume,
    .drain = batch_processor_drain,
    .destroy = batch_processor_destroy,
};
