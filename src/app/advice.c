/* SPDX-License-Identifier: Apache-2.0 */
#include "app/advice.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "config/parts.h"

static bool advice_is(const struct br_instance *instance, const char *name)
{
    return instance->component && strcmp(instance->component->name, name) == 0;
}

/* The lists of the tree have the order of those in `pipeline`. */
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
                     "%s stands behind %s, which takes data that it cannot refuse; put it first",
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

/* A scheme decides; only gRPC has endpoints without one, and then TLS is the default. */
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
                     "TLS is on, as the endpoint has no scheme; for a plaintext server write "
                     "\"tls: {insecure: true}\"");
}

void br_advice(const struct br_config *config, struct br_errs *errs)
{
    static const char *const keys[] = {"endpoint", "traces_endpoint", "profiles_endpoint"};
    for (size_t i = 0; i < config->n_pipelines; i++)
        advice_limiter(config, i, errs);
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        bool exports =
            instance->used && instance->component && instance->component->kind == BR_EXPORTER;
        for (size_t k = 0; exports && k < sizeof keys / sizeof *keys; k++)
            advice_endpoint(instance, br_yaml_get(instance->node, keys[k]), errs);
    }
}
