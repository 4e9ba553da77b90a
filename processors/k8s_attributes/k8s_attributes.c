/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k8s_attributes processor adds the attributes of pods to resources. The pod of a resource is
 * found by attributes of the resource or by the address of the client.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "attribute/attributes.h"
#include "base/mem.h"
#include "core/authenticator.h"
#include "core/shared.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/fields.h"
#include "processors/k8s_attributes/watch.h"

#define SCRATCH_MAX (256u << 20)
/* delay in milliseconds after which the senders of refused items are asked to retry */
#define RETRY_MS 1000

struct state {
    /* shared by the nodes of all workers; NULL: the option `passthrough` is set */
    struct k8s_table *table;
    struct k8s_watch *watch;   /* watches the Kubernetes API; NULL: another node watches the API */
    struct br_attributes list; /* attributes of the current Resource */
    struct br_arena scratch;   /* memory for the current item */
    /* metrics: number of resources whose pod was found, and of resources whose pod was not found */
    double *found, *missing;
};

/* --- Finding the pod -------------------------------------------------------------------------- */

/* Returns the text of an attribute of the resource. Returns an empty text if the attribute is
 * absent or is not a text. */
static struct br_any k8s_attributes_text(const struct br_attributes *list, const char *key)
{
    const struct br_attribute *found = br_attributes_find(list, key, strlen(key));
    struct br_any any = found ? br_any_read(found->value) : (struct br_any){0};
    return any.type == BR_VALUE_STRING ? any : (struct br_any){0};
}

static bool k8s_attributes_is_address(struct br_any any)
{
    char text[64];
    struct in6_addr address;
    if (!any.len || any.len >= sizeof text)
        return false;
    memcpy(text, any.data, any.len);
    text[any.len] = '\0';
    return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

static void k8s_attributes_add_source(struct k8s_id *id, const struct br_attributes *list,
                                      const struct k8s_source *source, const char *client)
{
    if (source->from == K8S_FROM_CONNECTION) {
        k8s_id_add(id, client, client ? strlen(client) : 0);
        return;
    }
    struct br_any any = k8s_attributes_text(list, source->name);
    if (strcmp(source->name, "host.name") == 0 && !k8s_attributes_is_address(any))
        any = (struct br_any){0};
    k8s_id_add(id, (const char *)any.data, any.len);
}

/* Makes the identifier by the first association whose sources all have values. Sets `*ret_ip` to
 * the address of the client if it is used. */
static void k8s_attributes_associate(const struct k8s_config *config,
                                     const struct br_attributes *list, const char *client,
                                     struct k8s_id *id, const char **ret_ip)
{
    const struct k8s_association *association = config->pod_association.items;
    id->failed = true;
    for (size_t a = 0; a < config->pod_association.count && id->failed; a++) {
        const struct k8s_source *source = association[a].sources.items;
        *ret_ip = NULL;
        k8s_id_begin(id, (int)a);
        for (size_t i = 0; i < association[a].sources.count; i++) {
            k8s_attributes_add_source(id, list, &source[i], client);
            if (source[i].from == K8S_FROM_CONNECTION)
                *ret_ip = client;
        }
    }
    if (id->failed)
        *ret_ip = NULL;
}

/* Makes the identifier if no associations are configured: from an address in the attributes or from
 * the address of the client. */
static void k8s_attributes_by_address(const struct br_attributes *list, const char *client,
                                      struct k8s_id *id, const char **ret_ip)
{
    static const char *const keys[] = {"k8s.pod.ip", "ip"};
    struct br_any any = {0};
    k8s_id_begin(id, -1);
    *ret_ip = NULL;
    for (size_t i = 0; i < BR_COUNT(keys) && !any.len; i++)
        any = k8s_attributes_text(list, keys[i]);
    if (!any.len && client) {
        *ret_ip = client;
        k8s_id_add(id, client, strlen(client));
        return;
    }
    if (!any.len)
        any = k8s_attributes_text(list, "host.name");
    if (!k8s_attributes_is_address(any))
        any = (struct br_any){0};
    k8s_id_add(id, (const char *)any.data, any.len);
}

/* --- Attributes ------------------------------------------------------------------------------- */

/* Sets an attribute, unless the resource already has the attribute with a value that is not
 * empty. */
static void k8s_attributes_set(struct br_attributes *list, const char *key, const char *text)
{
    const struct br_attribute *found = br_attributes_find(list, key, strlen(key));
    struct br_any any = found ? br_any_read(found->value) : (struct br_any){0};
    bool empty = any.type == BR_VALUE_EMPTY || (any.type == BR_VALUE_STRING && !any.len);
    struct br_value value;
    if (!text || !*text || !empty)
        return;
    size_t len = strlen(key);
    char *copy = br_arena_strndup(list->arena, key, len);
    if (copy && br_value_string(text, strlen(text), list->arena, &value))
        br_attributes_put(list, copy, len, value);
    else
        list->no_memory = true;
}

struct adding {
    const struct k8s_config *config;
    struct br_attributes *list;
};

/* Returns the container that the resource names by name or by id. If the resource names no
 * container and the pod has only one, returns that one. */
static const struct k8s_container *k8s_attributes_container(const struct k8s_pod *pod,
                                                            const struct br_attributes *list)
{
    struct br_any name = k8s_attributes_text(list, "k8s.container.name"),
                  id = k8s_attributes_text(list, "container.id");
    const struct br_any *wanted = name.len ? &name : &id;
    for (uint32_t i = 0; i < pod->n_containers && wanted->len; i++) {
        const struct k8s_container *container = &pod->containers[i];
        const char *text = k8s_pod_text(pod, name.len ? container->name : container->id);
        if (strlen(text) == wanted->len && memcmp(text, wanted->data, wanted->len) == 0)
            return container;
    }
    return !wanted->len && pod->n_containers == 1 ? pod->containers : NULL;
}

static void k8s_attributes_add(void *arg, const struct k8s_pod *pod)
{
    const struct adding *adding = arg;
    const bool *wants = adding->config->extract.wants;
    for (uint32_t i = 0; i < pod->n_attributes; i++)
        k8s_attributes_set(adding->list, k8s_pod_text(pod, pod->attributes[i].key),
                           k8s_pod_text(pod, pod->attributes[i].value));
    const struct k8s_container *container = k8s_attributes_container(pod, adding->list);
    if (!container)
        return;
    const struct {
        enum k8s_metadata number;
        uint32_t text;
    } values[] = {{K8S_CONTAINER_NAME, container->name},
                  {K8S_CONTAINER_ID, container->id},
                  {K8S_CONTAINER_IMAGE_NAME, container->image},
                  {K8S_CONTAINER_IMAGE_TAG, container->tag}};
    for (size_t i = 0; i < BR_COUNT(values); i++)
        if (wants[values[i].number])
            k8s_attributes_set(adding->list, k8s_metadata_names[values[i].number],
                               k8s_pod_text(pod, values[i].text));
}

/* --- Items ------------------------------------------------------------------------------------ */

/* Adds the attributes to the list. */
static void k8s_attributes_enrich(struct br_node *node, const char *client)
{
    struct state *state = node->state;
    const struct k8s_config *config = node->config;
    struct adding adding = {config, &state->list};
    struct k8s_id id;
    const char *ip = NULL;
    if (config->pod_association.count)
        k8s_attributes_associate(config, &state->list, client, &id, &ip);
    else
        k8s_attributes_by_address(&state->list, client, &id, &ip);
    if (ip && (config->passthrough || config->extract.wants[K8S_POD_IP]))
        k8s_attributes_set(&state->list, "k8s.pod.ip", ip);
    if (!state->table)
        return;
    bool found = !id.failed && k8s_table_find(state->table, &id, k8s_attributes_add, &adding);
    *(found ? state->found : state->missing) += 1;
}

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
    k8s_attributes_enrich(node, client);
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

static void k8s_attributes_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct k8s_config *config = node->config;
    const char *client = br_item_metadata(item, BR_ADDRESS_KEY);
    struct br_mem_scope scope;
    int rc = 0;
    if (config->wait_for_metadata && state->table && !atomic_load(&state->table->is_complete)) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS,
                      "k8s_attributes: the pods have not been listed");
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
    return k8s_table_new(arg);
}

static void k8s_attributes_free_table(void *table)
{
    k8s_table_free(table);
}

static void k8s_attributes_destroy(struct br_node *node)
{
    struct state *state = node->state;
    k8s_watch_free(state->watch);
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
    state->table = br_shared_get(node->host, name, k8s_attributes_make_table, config);
    return state->table ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int k8s_attributes_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    if (node->host->checking || !state->table || atomic_exchange(&state->table->is_watched, true))
        return 0;
    return k8s_watch_new(node, node->config, state->table, &state->watch, err);
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
