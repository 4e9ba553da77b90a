/* SPDX-License-Identifier: Apache-2.0 */
#include "app/config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "app/authenticators.h"
#include "base/bytes.h"
#include "config/parts.h"
#include "pipeline/exporter.h"

/* --- Client metadata -------------------------------------------------------------------------- */

#define BLOCK_PATHS_MAX 65536u /* limit in bytes for the paths of an exporter's settings */

static const struct br_strings no_keys;

static const struct br_strings *advice_partition_keys(const struct br_instance *instance)
{
    if (!instance->component->exporter_wrapped)
        return &no_keys;
    const struct br_exporter_config *common =
        (const void *)((const char *)instance->config + instance->component->common_at);
    const struct br_queue_batch_config *batch = common->sending_queue.batch;
    return batch ? &batch->partition.metadata_keys : &no_keys;
}

/* Returns the metadata keys that the authenticator of an exporter uses. */
static const struct br_strings *advice_auth_keys(const struct br_config *config,
                                                 const struct br_instance *exporter)
{
    struct br_arena arena;
    br_arena_init(&arena, BLOCK_PATHS_MAX);
    const struct br_instance *authenticator = br_authenticators_of(config, exporter, &arena);
    br_arena_release(&arena);
    return authenticator && authenticator->component && authenticator->component->metadata_keys &&
                   authenticator->config
               ? authenticator->component->metadata_keys(authenticator->config)
               : &no_keys;
}

/* Returns the client metadata keys that an instance uses. */
static const struct br_strings *advice_keys_of(const struct br_config *config,
                                               const struct br_instance *instance)
{
    const struct br_component *component = instance->component;
    if (!component || !instance->config)
        return &no_keys; /* a Collector component that changes no data uses no metadata */
    const struct br_strings *keys =
        component->metadata_keys ? component->metadata_keys(instance->config) : NULL;
    if (!keys || !keys->count)
        keys = advice_partition_keys(instance);
    return component->kind == BR_EXPORTER && !keys->count ? advice_auth_keys(config, instance)
                                                          : keys;
}

/* Returns a client header that an instance uses, or NULL if there is none. Addresses of clients and
 * attributes of authenticated clients are not considered, because receivers always keep them. */
static const char *advice_key_of(const struct br_config *config, const struct br_instance *instance)
{
    const struct br_strings *keys = advice_keys_of(config, instance);
    for (size_t i = 0; i < keys->count; i++)
        if (strncasecmp(keys->items[i], BR_AUTH_KEY, strlen(BR_AUTH_KEY)) != 0 &&
            strcasecmp(keys->items[i], BR_ADDRESS_KEY) != 0)
            return keys->items[i];
    return NULL;
}

/* Returns the first processor or exporter in a pipeline that uses client headers, or NULL if there
 * is none. */
static const struct br_instance *advice_reader_of(const struct br_config *config,
                                                  const struct br_pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->n_processors; i++)
        if (advice_key_of(config, pipeline->processors[i]))
            return pipeline->processors[i];
    for (size_t i = 0; i < pipeline->n_exporters; i++)
        if (advice_key_of(config, pipeline->exporters[i]))
            return pipeline->exporters[i];
    return NULL;
}

static bool advice_receives(const struct br_pipeline *pipeline, const struct br_instance *receiver)
{
    for (size_t i = 0; i < pipeline->n_receivers; i++)
        if (pipeline->receivers[i] == receiver)
            return true;
    return false;
}

static void advice_receiver(const struct br_config *config, const struct br_instance *receiver,
                            struct br_errs *errs)
{
    const struct br_instance *reader = NULL;
    for (size_t i = 0; i < config->n_pipelines && !reader; i++)
        if (advice_receives(&config->pipelines[i], receiver))
            reader = advice_reader_of(config, &config->pipelines[i]);
    if (!reader)
        return;
    char path[192];
    br_errs_warn(errs, receiver->node,
                 br_path_join(path, br_kind_section(BR_RECEIVER), receiver->id),
                 "%s %s reads the client metadata \"%s\", which is kept only with "
                 "include_metadata: true on each protocol",
                 br_kind_name(reader->component->kind), reader->id, advice_key_of(config, reader));
}

static bool advice_names(const struct br_strings *keys, const char *key)
{
    for (size_t i = 0; i < keys->count; i++)
        if (strcasecmp(keys->items[i], key) == 0)
            return true;
    return false;
}

/* Returns a metadata key that `reader` uses and `gatherer` does not keep, or NULL. */
static const char *advice_lost_key(const struct br_config *config,
                                   const struct br_instance *gatherer,
                                   const struct br_instance *reader)
{
    const struct br_strings *keys = advice_keys_of(config, reader);
    for (size_t i = 0; i < keys->count; i++)
        if (!advice_names(advice_keys_of(config, gatherer), keys->items[i]))
            return keys->items[i];
    return NULL;
}

/* Searches the components after `gatherer` in a pipeline. Returns the first component that uses a
 * metadata key which `gatherer` does not keep, or NULL. */
static const struct br_instance *advice_loser_of(const struct br_config *config,
                                                 const struct br_pipeline *pipeline,
                                                 const struct br_instance *gatherer)
{
    bool behind = false;
    for (size_t i = 0; i < pipeline->n_processors; i++) {
        if (behind && advice_lost_key(config, gatherer, pipeline->processors[i]))
            return pipeline->processors[i];
        behind = behind || pipeline->processors[i] == gatherer;
    }
    for (size_t i = 0; i < pipeline->n_exporters && behind; i++)
        if (advice_lost_key(config, gatherer, pipeline->exporters[i]))
            return pipeline->exporters[i];
    return NULL;
}

/* Warns if `gatherer`, a processor that merges requests, loses metadata that a later component
 * uses. A merged request keeps only the metadata that all its clients have in common. */
static void advice_gatherer(const struct br_config *config, const struct br_instance *gatherer,
                            struct br_errs *errs)
{
    const struct br_instance *reader = NULL;
    for (size_t i = 0; i < config->n_pipelines && !reader; i++)
        reader = advice_loser_of(config, &config->pipelines[i], gatherer);
    if (!reader)
        return;
    char path[192];
    br_errs_warn(
        errs, gatherer->node, br_path_join(path, br_kind_section(BR_PROCESSOR), gatherer->id),
        "%s %s reads the client metadata \"%s\", which is lost here because requests of several "
        "clients are merged; add it to metadata_keys",
        br_kind_name(reader->component->kind), reader->id,
        advice_lost_key(config, gatherer, reader));
}

/* Warns of each receiver without include_metadata if a later processor or exporter uses client
 * metadata. As in the Collector, the later component then receives no metadata. Also warns of each
 * processor that merges requests of several clients if a later component uses a key that the
 * processor's metadata_keys do not contain. */
static void advice_metadata(const struct br_config *config, struct br_errs *errs)
{
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        const struct br_component *component = instance->component;
        if (!instance->used || !component || !instance->config)
            continue;
        if (component->kind == BR_RECEIVER && component->keeps_metadata &&
            !component->keeps_metadata(instance->config))
            advice_receiver(config, instance, errs);
        if (component->request_records)
            advice_gatherer(config, instance, errs);
    }
}

/* --- Order of processors, and TLS ------------------------------------------------------------- */

static bool advice_is(const struct br_instance *instance, const char *name)
{
    return instance->component && strcmp(instance->component->name, name) == 0;
}

/* Warns if a memory_limiter is not the first processor of a pipeline. A processor has the same
 * index in the pipeline and in the pipeline's list in the tree. */
static void advice_limiter(const struct br_config *config, size_t index, struct br_errs *errs)
{
    const struct br_pipeline *pipeline = &config->pipelines[index];
    const struct br_yaml *map = br_yaml_get(br_yaml_get(config->tree, "service"), "pipelines");
    const struct br_yaml *list =
        map && index < map->count ? br_yaml_get(map->items[index], "processors") : NULL;
    for (size_t i = 1; i < pipeline->n_processors; i++) {
        if (!advice_is(pipeline->processors[i], "memory_limiter") ||
            advice_is(pipeline->processors[0], "memory_limiter"))
            continue;
        char path[192];
        const char *at = list && list->type == BR_YAML_SEQ && i < list->count ? "" : NULL;
        (void)snprintf(path, sizeof path, "service::pipelines::%.100s::processors", pipeline->id);
        br_errs_warn(errs, at ? list->items[i] : list, path,
                     "%s is after %s, which accepts data before the limit is checked; put it first",
                     pipeline->processors[i]->id, pipeline->processors[0]->id);
    }
}

static bool advice_starts(const struct br_yaml *node, const char *prefix)
{
    return node && node->type == BR_YAML_SCALAR && br_text_starts(node->text, prefix);
}

static bool advice_is_true(const struct br_yaml *node)
{
    return node && node->type == BR_YAML_SCALAR && br_yaml_look(node->text) == BR_LOOK_BOOL &&
           (node->text[0] == 't' || node->text[0] == 'T');
}

static bool advice_is_loopback(const struct br_yaml *node)
{
    return advice_starts(node, "localhost:") || advice_starts(node, "127.") ||
           advice_starts(node, "[::1]:");
}

/* Warns if `tls` contradicts the scheme of an endpoint. Also warns of a gRPC endpoint on loopback
 * with neither a scheme nor `tls`, because such an endpoint uses TLS by default. */
static void advice_endpoint(const struct br_instance *instance, const struct br_yaml *endpoint,
                            struct br_errs *errs)
{
    const struct br_yaml *tls = br_yaml_get(instance->node, "tls");
    const struct br_yaml *insecure = br_yaml_get(tls, "insecure");
    bool off = advice_is_true(insecure), grpc = advice_is(instance, "otlp");
    char path[192];
    (void)snprintf(path, sizeof path, "exporters::%.100s::%s", instance->id,
                   tls && tls->count ? "tls" : "endpoint");
    if (advice_starts(endpoint, "https://") && off)
        br_errs_warn(errs, insecure, path,
                     "\"insecure: true\" has no effect, because the endpoint begins with https://; "
                     "write http:// for plaintext");
    else if (advice_starts(endpoint, "http://") && tls && tls->count && !off)
        br_errs_warn(errs, tls, path,
                     "\"tls\" has no effect, because the endpoint begins with http://, which is "
                     "plaintext; write https:// for TLS");
    else if (grpc && advice_is_loopback(endpoint) && (!tls || tls->type == BR_YAML_NULL))
        br_errs_warn(errs, endpoint, path,
                     "TLS is enabled, because the endpoint has no scheme; for a plaintext server "
                     "write \"tls: {insecure: true}\"");
}

/* --- Exporters that send to their own receiver ------------------------------------------------ */

/* Splits "scheme://host:port/path" into host and port. Returns false if the port is missing. */
static bool advice_split_endpoint(const char *endpoint, char host[256], unsigned *ret_port)
{
    const char *scheme = strstr(endpoint, "://");
    const char *start = scheme ? scheme + 3 : endpoint;
    char address[300];
    (void)snprintf(address, sizeof address, "%.*s", (int)strcspn(start, "/"), start);
    return br_endpoint_parse(address, host, ret_port);
}

/* Returns true if a connection to the host `to` reaches a server that listens on the host `on`. */
static bool advice_host_reaches(const char *to, const char *on)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "::1", "[::1]"};
    static const char *const any[] = {"", "0.0.0.0", "::", "[::]"};
    bool to_local = false, on_local = false;
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        to_local = to_local || strcmp(to, local[i]) == 0;
        on_local = on_local || strcmp(on, local[i]) == 0 || strcmp(on, any[i]) == 0;
    }
    return (to_local && on_local) || strcmp(to, on) == 0;
}

static bool advice_reaches(const char *endpoint, const struct br_instance *receiver)
{
    static const char *const keys[][3] = {{"otlp", "grpc", "localhost:4317"},
                                          {"otlp", "http", "localhost:4318"},
                                          {"pyroscope", "http", "localhost:4040"}};
    const struct br_yaml *protocols = br_yaml_get(receiver->node, "protocols");
    char to[256], on[256];
    unsigned to_port, on_port;
    if (!protocols || !advice_split_endpoint(endpoint, to, &to_port))
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool has_protocols = advice_is(receiver, keys[i][0]) && protocols->type == BR_YAML_MAP;
        if (!has_protocols || br_yaml_index(protocols, keys[i][1]) == protocols->count)
            continue;
        const struct br_yaml *own = br_yaml_get(br_yaml_get(protocols, keys[i][1]), "endpoint");
        const char *listens = own && own->type == BR_YAML_SCALAR ? own->text : keys[i][2];
        if (advice_split_endpoint(listens, on, &on_port) && to_port == on_port &&
            advice_host_reaches(to, on))
            return true;
    }
    return false;
}

/* Warns if an exporter of a pipeline sends to a receiver of the same pipeline. */
static void advice_loop(const struct br_pipeline *pipeline, const struct br_instance *exporter,
                        const char *key, struct br_errs *errs)
{
    const struct br_yaml *endpoint = br_yaml_get(exporter->node, key);
    char path[192];
    if (!endpoint || endpoint->type != BR_YAML_SCALAR)
        return;
    (void)snprintf(path, sizeof path, "exporters::%.100s::%s", exporter->id, key);
    for (size_t i = 0; i < pipeline->n_receivers; i++)
        if (pipeline->receivers[i]->component &&
            advice_reaches(endpoint->text, pipeline->receivers[i]))
            br_errs_warn(
                errs, endpoint, path,
                "%s is the address of the receiver %s of the same pipeline: all data would "
                "be received and sent again without end",
                endpoint->text, pipeline->receivers[i]->id);
}

/* --- Durable queues --------------------------------------------------------------------------- */

/* Returns the key of the setting that makes a processor answer requests before it forwards them,
 * or NULL if the processor forwards them first. */
static const char *advice_answers_early(const struct br_instance *processor)
{
    static const char *const holds[] = {"hold", "profile_hold"};
    const struct br_yaml *late = br_yaml_get(processor->node, "acknowledge");
    uint64_t ns = 0;
    if (advice_is(processor, "batch"))
        return advice_starts(late, "late") ? NULL : "acknowledge";
    if (advice_is(processor, "queue_batch"))
        return advice_is_true(br_yaml_get(processor->node, "wait_for_result")) ? NULL
                                                                               : "wait_for_result";
    if (advice_is(processor, "tail_sampling"))
        return "decision_wait";
    for (size_t i = 0; advice_is(processor, "join") && i < 2; i++) {
        const struct br_yaml *hold = br_yaml_get(processor->node, holds[i]);
        if (hold && hold->type == BR_YAML_SCALAR && br_duration_parse(hold->text, &ns) && ns)
            return holds[i];
    }
    return NULL;
}

/* Returns true if every receiver of the pipeline keeps its requests unanswered until they are
 * delivered. No processor then answers them earlier. */
static bool advice_receivers_wait(const struct br_pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->n_receivers; i++) {
        const struct br_instance *receiver = pipeline->receivers[i];
        const struct br_yaml *marking = br_yaml_get(receiver->node, "message_marking");
        const struct br_yaml *after = br_yaml_get(marking, "after");
        if (!advice_is(receiver, "kafka") || (after && !advice_is_true(after)))
            return false;
    }
    return pipeline->n_receivers > 0;
}

/* Returns true if the requests that leave a processor are not answered until they are delivered. */
static bool advice_answers_late(const struct br_instance *processor)
{
    const struct br_yaml *enabled = br_yaml_get(br_yaml_get(processor->node, "batch"), "enabled");
    bool batches = advice_is(processor, "batch") ||
                   (advice_is(processor, "queue_batch") && (!enabled || advice_is_true(enabled)));
    return batches && !advice_answers_early(processor);
}

/* Warns of each processor that answers requests before the durable queue of `exporter` has stored
 * them. */
static void advice_durable(const struct br_pipeline *pipeline, const struct br_instance *exporter,
                           struct br_errs *errs)
{
    if (!br_yaml_get(br_yaml_get(exporter->node, "sending_queue"), "storage") ||
        advice_receivers_wait(pipeline))
        return;
    for (size_t i = 0; i < pipeline->n_processors; i++) {
        const struct br_instance *processor = pipeline->processors[i];
        if (advice_answers_late(processor))
            return;
        const char *key = advice_answers_early(processor);
        char path[192];
        if (!key)
            continue;
        (void)snprintf(path, sizeof path, "processors::%.100s", processor->id);
        bool joins = advice_is(processor, "join"), samples = advice_is(processor, "tail_sampling");
        const char *what =
            joins || samples ? "holds requests and answers them" : "answers requests";
        const char *before_key = "use sending_queue::batch of the exporter instead, or change `";
        const char *after_key = "`";
        if (joins || samples) {
            before_key = joins ? "to prevent this, set " : "to lose fewer, shorten ";
            after_key = joins ? " to 0s" : "";
        }
        br_errs_warn(
            errs, processor->node, path,
            "%s %s before %s has stored them; if the process is killed, these requests are "
            "lost; %s%s%s",
            processor->id, what, exporter->id, before_key, key, after_key);
    }
}

/* Warns of exporters after a failover connector that answer requests before these are delivered:
 * the connector does not learn of failures. */
static void advice_failover(const struct br_pipeline *pipeline, const struct br_instance *exporter,
                            struct br_errs *errs)
{
    const struct br_exporter_config *common =
        exporter->component && exporter->component->exporter_wrapped && exporter->config
            ? (const void *)((const char *)exporter->config + exporter->component->common_at)
            : NULL;
    char path[192];
    if (!common || !common->sending_queue.enabled || common->sending_queue.wait_for_result)
        return;
    for (size_t i = 0; i < pipeline->n_receivers; i++)
        if (advice_is(pipeline->receivers[i], "failover"))
            br_errs_warn(errs, exporter->node,
                         br_path_join(path, br_kind_section(BR_EXPORTER), exporter->id),
                         "answers requests when they are in its sending_queue, so that %s does not "
                         "learn of failures; set sending_queue::enabled to false, unless this is "
                         "the last level",
                         pipeline->receivers[i]->id);
}

void br_advice(const struct br_config *config, struct br_errs *errs)
{
    static const char *const keys[] = {"endpoint", "traces_endpoint", "profiles_endpoint"};
    advice_metadata(config, errs);
    for (size_t i = 0; i < config->n_pipelines; i++) {
        const struct br_pipeline *pipeline = &config->pipelines[i];
        advice_limiter(config, i, errs);
        for (size_t k = 0; k < pipeline->n_exporters; k++)
            advice_durable(pipeline, pipeline->exporters[k], errs);
        for (size_t k = 0; k < pipeline->n_exporters; k++)
            advice_failover(pipeline, pipeline->exporters[k], errs);
        for (size_t k = 0; k < pipeline->n_exporters; k++)
            for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
                advice_loop(pipeline, pipeline->exporters[k], keys[n], errs);
    }
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        bool exports =
            instance->used && instance->component && instance->component->kind == BR_EXPORTER;
        for (size_t k = 0; exports && k < sizeof keys / sizeof *keys; k++)
            advice_endpoint(instance, br_yaml_get(instance->node, keys[k]), errs);
    }
}
