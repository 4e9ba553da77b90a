/* SPDX-License-Identifier: Apache-2.0 */
#include "app/metadata.h"

#include "config/parts.h"
#include "pipeline/exporter.h"

/* A key that an instance reads; NULL: it reads none. */
static const char *metadata_key_of(const struct br_instance *instance)
{
    const struct br_component *component = instance->component;
    if (!component || !instance->config)
        return NULL; /* left out by --skip-unsupported */
    const struct br_strings *keys =
        component->metadata_keys ? component->metadata_keys(instance->config) : NULL;
    if (keys && keys->count)
        return keys->items[0];
    if (!component->exporter_wrapped)
        return NULL;
    const struct br_exporter_config *common =
        (const void *)((const char *)instance->config + component->common_at);
    const struct br_queue_batch_config *batch = common->sending_queue.batch;
    return batch && batch->partition.metadata_keys.count ? batch->partition.metadata_keys.items[0]
                                                         : NULL;
}

/* The first of a pipeline's processors and exporters that reads metadata; NULL: none does. */
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

void br_metadata_check(const struct br_config *config, struct br_errs *errs)
{
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        const struct br_component *component = instance->component;
        if (instance->used && component && instance->config && component->kind == BR_RECEIVER &&
            component->keeps_metadata && !component->keeps_metadata(instance->config))
            metadata_check_receiver(config, instance, errs);
    }
}
