/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k8s_attributes processor adds the attributes of pods, and of the objects to which the pods
 * belong, to resources. The pod of a resource is found by attributes of the resource or by the
 * address of the client.
 */
#include <stdio.h>

#include "attribute/attributes.h"
#include "base/mem.h"
#include "base/memory.h"
#include "core/authenticator.h"
#include "core/shared.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/fields.h"
#include "processors/k8s_attributes/enrich.h"
#include "processors/k8s_attributes/watch.h"

#define SCRATCH_MAX (256u << 20)
/* The table of objects uses at most the memory limit of the process divided by this number. */
#define TABLE_SHARE 4
/* delay in milliseconds after which the senders of refused items are asked to retry */
#define RETRY_MS 1000

struct state {
    /* shared by the nodes of all workers; NULL: the option `passthrough` is set */
    struct k8s_table *table;
    /* watches the Kubernetes API; NULL: another node watches the API */
    struct k8s_watches *watches;
    struct br_attributes list; /* attributes of the current Resource */
    struct br_arena scratch;   /* memory for the current item */
    /* metrics: number of resources whose pod was found, and of resources whose pod was not found */
    double *found, *missing;
    struct br_log_limit limit;
};

/* --- Items ------------------------------------------------------------------------------------ */

static int k8s_attributes_change(struct br_node *node, struct br_item *item, uint32_t index,
                                 const char *client)
{
    struct state *state = node->state;
    struct br_attributes *list = &state->list;
    size_t len;
    const uint8_t *data = br_part_resource(&item->parts[index], &len);
    if (item->signal == BR_PROFILES &&
        br_attributes_have_references(data, len, BR_RESOURCE_ATTRIBUTES)) {
        int rc = br_item_inline_references(item);
        if (rc)
            return rc;
        data = br_part_resource(&item->parts[index], &len);
    }
    if (!br_attributes_read(list, BR_RESOURCE_ATTRIBUTES, data, len))
        return list->too_many ? BR_EFULL : BR_ENOMEM;
    bool found = k8s_enrich(state->table, node->config, client, list);
    if (state->table)
        *(found ? state->found : state->missing) += 1;
    if (list->too_many || list->no_memory)
        return list->too_many ? BR_EFULL : br_arena_why(&state->scratch);
    if (!br_attributes_changed(list))
        return 0;
    size_t size = br_attributes_size(list);
    struct br_buf *buf = size > BR_BUF_MAX ? NULL : br_buf_new(node->host->pool, size);
    if (!buf)
        return size > BR_BUF_MAX ? BR_EFULL : BR_ENOMEM;
    buf->len = (uint32_t)(br_attributes_write(list, buf->data) - buf->data);
    br_item_set_resource(item, &item->parts[index], buf, buf->data, buf->len);
    br_buf_unref(buf);
    br_arena_release(&state->scratch);
    return 0;
}

/* Watches the API if no node does so. A reload can destroy the node that did. */
static void k8s_attributes_watch(struct br_node *node)
{
    struct state *state = node->state;
    struct br_err err = {0};
    if (!state->table || node->host->checking || atomic_exchange(&state->table->is_watched, true))
        return;
    if (k8s_watches_new(node, node->config, state->table, &state->watches, &err)) {
        atomic_store(&state->table->is_watched, false);
        br_node_warn(node, &state->limit, "cannot watch the Kubernetes API: %s", err.text);
    }
}

static void k8s_attributes_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct k8s_config *config = node->config;
    const char *client = br_item_metadata(item, BR_ADDRESS_KEY);
    struct br_mem_scope scope;
    int rc = 0;
    if (state->table && !atomic_load(&state->table->is_watched))
        k8s_attributes_watch(node);
    if (config->wait_for_metadata && state->table && !atomic_load(&state->table->is_complete)) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS,
                      "k8s_attributes: the objects of the cluster have not been listed");
        return;
    }
    br_item_edit_begin(&scope, item);
    for (uint32_t i = 0; i < item->n_parts && !rc; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = k8s_attributes_change(node, item, i, client);
    br_arena_release(&state->scratch);
    rc = br_item_edit_end(&scope, rc);
    if (rc == BR_EFULL || rc == BR_EINVAL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "k8s_attributes: a resource has too many attributes, or the result is too "
                       "large");
    else if (rc)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS, "k8s_attributes: out of memory");
    else
        br_node_forward(node, item);
}

/* --- Life ------------------------------------------------------------------------------------- */

static void *k8s_attributes_make_table(const void *arg)
{
    const struct br_node *node = arg;
    size_t hard = node->host->memory ? br_memory_hard(node->host->memory) : SIZE_MAX;
    return k8s_table_new(node->config, hard / TABLE_SHARE);
}

static void k8s_attributes_free_table(void *table)
{
    k8s_table_free(table);
}

static void k8s_attributes_destroy(struct br_node *node)
{
    struct state *state = node->state;
    if (state->watches) {
        k8s_watches_free(state->watches);
        atomic_store(&state->table->is_watched, false);
    }
    if (state->table)
        br_shared_put(node->host, state->table, k8s_attributes_free_table);
    br_attributes_release(&state->list);
    br_arena_release(&state->scratch);
}

static int k8s_attributes_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct k8s_config *config = node->config;
    char name[256];
    br_arena_init(&state->scratch, SCRATCH_MAX);
    state->list.arena = &state->scratch;
    state->found =
        br_node_metric(node, BR_COUNTER, "braid_k8s_attributes_resources", "pod", "found");
    state->missing =
        br_node_metric(node, BR_COUNTER, "braid_k8s_attributes_resources", "pod", "missing");
    if (config->passthrough)
        return 0;
    /* the generation makes a reload use a new table, because the node that watches the API for this
     * one is destroyed */
    (void)snprintf(name, sizeof name, "k8s_attributes %u %s", node->host->generation, node->id);
    state->table = br_shared_get(node->host, name, k8s_attributes_make_table, node);
    return state->table ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int k8s_attributes_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    if (node->host->checking || !state->table || atomic_exchange(&state->table->is_watched, true))
        return 0;
    return k8s_watches_new(node, node->config, state->table, &state->watches, err);
}

static const struct br_strings *k8s_attributes_metadata_keys(const void *config)
{
    return &((const struct k8s_config *)config)->metadata_keys;
}

extern const struct br_component br_k8s_attributes_processor;
const struct br_component br_k8s_attributes_processor = {
    .name = "k8s_attributes",
    .alias = "k8sattributes",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "alpha",
    .help = "adds attributes of Kubernetes pods to resources",
    .options = k8s_options,
    .config_size = sizeof(struct k8s_config),
    .state_size = sizeof(struct state),
    .metadata_keys = k8s_attributes_metadata_keys,
    .check = k8s_config_check,
    .create = k8s_attributes_create,
    .start = k8s_attributes_start,
    .consume = k8s_attributes_consume,
    .destroy = k8s_attributes_destroy,
};
