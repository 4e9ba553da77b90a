/* SPDX-License-Identifier: Apache-2.0 */
#include "app/metadata.h"

#include <strings.h>

#include "config/parts.h"
#include "pipeline/exporter.h"

static const struct br_strings no_keys;

static const struct br_strings *metadata_partition_keys(const struct br_instance *instance)
{
    if (!instance->component->exporter_wrapped)
        return &no_keys;
    const struct br_exporter_config *common =
        (const void *)((const char *)instance->config + instance->component->common_at);
    const struct br_queue_batch_config *batch = common->sending_queue.batch;
    return batch ? &batch->partition.metadata_keys : &no_keys;
}

/* Returns the metadata keys that an instance uses. */
static const struct br_strings *metadata_keys_of(const struct br_instance *instance)
{
    const struct br_component *component = instance->component;
    if (!component || !instance->config)
        return &no_keys; /* --skip-unsupported has removed the component */
    const struct br_strings *keys =
        component->metadata_keys ? component->metadata_keys(instance->config) : NULL;
    return keys && keys->count ? keys : metadata_partition_keys(instance);
}

/* Returns one of the metadata keys that an instance uses, or NULL if it uses none. */
static const char *metadata_key_of(const struct br_instance *instance)
{
    const struct br_strings *keys = metadata_keys_of(instance);
    return keys->count ? keys->items[0] : NULL;
}

/* Returns the first processor or exporter of a pipeline that uses metadata, or NULL. */
static const struct br_instance *metadata_reader_of(const struct br_pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->n_processors; i++)
        if (metadata_key_of(pipeline->processors[i]))
            return pipeline->processors[i];
    for (size_t i = 0; i < pipeline->n_exporters; i++)
        if (metadata_key_of(pipeline->exporters[i]))
            return pipeline->exporters[i];
    return NULL;
}

static bool metadata_has(const struct br_pipeline *pipeline, const struct br_instance *receiver)
{
    for (size_t i = 0; i < pipeline->n_receivers; i++)
        if (pipeline->receivers[i] == receiver)
            return true;
    return false;
}

static void metadata_check_receiver(const struct br_config *config,
                                    const struct br_instance *receiver, struct br_errs *errs)
{
    const struct br_instance *reader = NULL;
    for (size_t i = 0; i < config->n_pipelines && !reader; i++)
        if (metadata_has(&config->pipelines[i], receiver))
            reader = metadata_reader_of(&config->pipelines[i]);
    if (!reader)
        return;
    char path[192];
    br_errs_warn(errs, receiver->node,
                 br_path_join(path, br_kind_section(BR_RECEIVER), receiver->id),
                 "%s %s reads the client metadata \"%s\", which is kept only with "
                 "include_metadata: true on each protocol",
                 br_kind_name(reader->component->kind), reader->id, metadata_key_of(reader));
}

static bool metadata_names(const struct br_strings *keys, const char *key)
{
    for (size_t i = 0; i < keys->count; i++)
        if (strcasecmp(keys->items[i], key) == 0)
            return true;
    return false;
}

/* Returns a metadata key that `reader` uses and `gatherer` does not keep, or NULL. */
static const char *metadata_lost(const struct br_instance *gatherer,
                                 const struct br_instance *reader)
{
    const struct br_strings *keys = metadata_keys_of(reader);
    for (size_t i = 0; i < keys->count; i++)
        if (!metadata_names(metadata_keys_of(gatherer), keys->items[i]))
            return keys->items[i];
    return NULL;
}

/* Returns the first component after `gatherer` in a pipeline that uses a metadata key that
 * `gatherer` does not keep, or NULL. */
static const struct br_instance *metadata_loser_of(const struct br_pipeline *pipeline,
                                                   const struct br_instance *gatherer)
{
    bool behind = false;
    for (size_t i = 0; i < pipeline->n_processors; i++) {
        if (behind && metadata_lost(gatherer, pipeline->processors[i]))
            return pipeline->processors[i];
        behind = behind || pipeline->processors[i] == gatherer;
    }
    for (size_t i = 0; i < pipeline->n_exporters && behind; i++)
        if (metadata_lost(gatherer, pipeline->exporters[i]))
            return pipeline->exporters[i];
    return NULL;
}

/* Warns of a processor that merges requests and loses metadata: a merged request keeps only the
 * metadata that all its clients have in common. */
static void metadata_check_gatherer(const struct br_config *config,
                                    const struct br_instance *gatherer, struct br_errs *errs)
{
    const struct br_instance *reader = NULL;
    for (size_t i = 0; i < config->n_pipelines && !reader; i++)
        reader = metadata_loser_of(&config->pipelines[i], gatherer);
    if (!reader)
        return;
    char path[192];
    br_errs_warn(
        errs, gatherer->node, br_path_join(path, br_kind_section(BR_PROCESSOR), gatherer->id),
        "%s %s reads the client metadata \"%s\", which is lost here because requests of several "
        "clients are merged; add it to metadata_keys",
        br_kind_name(reader->component->kind), reader->id, metadata_lost(gatherer, reader));
}

void br_metadata_check(const struct br_config *config, struct br_errs *errs)
{
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        const struct br_component *component = instance->component;
        if (!instance->used || !component || !instance->config)
            continue;
        if (component->kind == BR_RECEIVER && component->keeps_metadata &&
            !component->keeps_metadata(instance->config))
            metadata_check_receiver(config, instance, errs);
        if (component->request_records)
            metadata_check_gatherer(config, instance, errs);
    }
}
