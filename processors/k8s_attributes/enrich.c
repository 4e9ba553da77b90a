/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/k8s_attributes/enrich.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "wire/protobuf.h"

/* --- Finding the pod -------------------------------------------------------------------------- */

/* Returns the text of an attribute of the resource. Returns an empty text if the attribute is
 * absent or is not a text. */
static struct br_any enrich_text(const struct br_attributes *list, const char *key)
{
    const struct br_attribute *found = br_attributes_find(list, key, strlen(key));
    struct br_any any = found ? br_any_read(found->value) : (struct br_any){0};
    return any.type == BR_VALUE_STRING ? any : (struct br_any){0};
}

static bool enrich_is_address(struct br_any any)
{
    char text[64];
    struct in6_addr address;
    if (!any.len || any.len >= sizeof text)
        return false;
    memcpy(text, any.data, any.len);
    text[any.len] = '\0';
    return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

static void enrich_add_source(struct k8s_id *id, const struct br_attributes *list,
                              const struct k8s_source *source, const char *client)
{
    if (source->from == K8S_FROM_CONNECTION) {
        k8s_id_add(id, client, client ? strlen(client) : 0);
        return;
    }
    struct br_any any = enrich_text(list, source->name);
    if (strcmp(source->name, "host.name") == 0 && !enrich_is_address(any))
        any = (struct br_any){0};
    k8s_id_add(id, (const char *)any.data, any.len);
}

/* Makes the identifier by the first association whose sources all have values. Sets `*ret_ip` to
 * the address of the client if it is used. */
static void enrich_associate(const struct k8s_config *config, const struct br_attributes *list,
                             const char *client, struct k8s_id *id, const char **ret_ip)
{
    const struct k8s_association *association = config->pod_association.items;
    id->failed = true;
    for (size_t a = 0; a < config->pod_association.count && id->failed; a++) {
        const struct k8s_source *source = association[a].sources.items;
        *ret_ip = NULL;
        k8s_id_begin(id, (int)a);
        for (size_t i = 0; i < association[a].sources.count; i++) {
            enrich_add_source(id, list, &source[i], client);
            if (source[i].from == K8S_FROM_CONNECTION)
                *ret_ip = client;
        }
    }
    if (id->failed)
        *ret_ip = NULL;
}

/* Makes the identifier if no associations are configured: from an address in the attributes or from
 * the address of the client. */
static void enrich_by_address(const struct br_attributes *list, const char *client,
                              struct k8s_id *id, const char **ret_ip)
{
    static const char *const keys[] = {"k8s.pod.ip", "ip"};
    struct br_any any = {0};
    k8s_id_begin(id, -1);
    *ret_ip = NULL;
    for (size_t i = 0; i < BR_COUNT(keys) && !any.len; i++)
        any = enrich_text(list, keys[i]);
    if (!any.len && client) {
        *ret_ip = client;
        k8s_id_add(id, client, strlen(client));
        return;
    }
    if (!any.len)
        any = enrich_text(list, "host.name");
    if (!enrich_is_address(any))
        any = (struct br_any){0};
    k8s_id_add(id, (const char *)any.data, any.len);
}

/* --- Attributes ------------------------------------------------------------------------------- */

/* Sets an attribute, unless the resource already has the attribute with a value that is not
 * empty. */
static void enrich_set(struct br_attributes *list, const char *key, const char *text)
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

/* Returns the container that the resource names by name or by id. If the resource names no
 * container and the pod has only one, returns that one. */
static const struct k8s_container *enrich_container(const struct k8s_object *pod,
                                                    const struct br_attributes *list)
{
    struct br_any name = enrich_text(list, "k8s.container.name"),
                  id = enrich_text(list, "container.id");
    const struct br_any *wanted = name.len ? &name : &id;
    for (uint32_t i = 0; i < pod->n_containers && wanted->len; i++) {
        const struct k8s_container *container = &pod->containers[i];
        const char *text = k8s_object_text(pod, name.len ? container->name : container->id);
        if (br_bytes_equal(text, strlen(text), wanted->data, wanted->len))
            return container;
    }
    return !wanted->len && pod->n_containers == 1 ? pod->containers : NULL;
}

/* Returns false if the resource belongs to an earlier or later run of the container, whose id and
 * digest are unknown. */
static bool enrich_is_run(const struct k8s_container *container, const struct br_attributes *list)
{
    static const char key[] = "k8s.container.restart_count";
    const struct br_attribute *found = br_attributes_find(list, key, sizeof key - 1);
    struct br_any any = found ? br_any_read(found->value) : (struct br_any){0};
    char text[24];
    int64_t restarts = 0;
    if (!found)
        return true;
    if (any.type == BR_VALUE_INT)
        return (int64_t)any.number == container->restarts;
    (void)snprintf(text, sizeof text, "%.*s", (int)any.len, (const char *)any.data);
    return any.type == BR_VALUE_STRING && br_parse_int(text, 10, false, &restarts) &&
           restarts == container->restarts;
}

/* Sets container.image.repo_digests to a list with one text, unless the resource has the
 * attribute. */
static void enrich_set_digest(struct br_attributes *list, const char *digest)
{
    const char *key = k8s_metadata_names[K8S_CONTAINER_IMAGE_REPO_DIGESTS];
    struct br_value text;
    if (!*digest || br_attributes_find(list, key, strlen(key)))
        return;
    if (!br_value_string(digest, strlen(digest), list->arena, &text)) {
        list->no_memory = true;
        return;
    }
    size_t len = br_len_size(BR_LIST_VALUES, text.len), size = br_len_size(BR_VALUE_LIST, len);
    uint8_t *data = br_arena_alloc(list->arena, size), *elements = br_arena_alloc(list->arena, len);
    if (!data || !elements) {
        list->no_memory = true;
        return;
    }
    br_put_len(elements, BR_LIST_VALUES, text.data, text.len);
    br_put_len(data, BR_VALUE_LIST, elements, len);
    br_attributes_put(list, key, strlen(key), (struct br_value){data, size});
}

/* Sets service.instance.id to the namespace, the pod and the container.
 * Source: opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes */
static void enrich_set_instance(struct br_attributes *list, const struct k8s_object *pod,
                                const struct k8s_container *container)
{
    char *text =
        br_arena_printf(list->arena, "%s.%s.%s", k8s_object_text(pod, pod->namespace),
                        k8s_object_text(pod, pod->name), k8s_object_text(pod, container->name));
    if (!text)
        list->no_memory = true;
    enrich_set(list, k8s_metadata_names[K8S_SERVICE_INSTANCE_ID], text);
}

static void enrich_add_container(const bool *wants, struct br_attributes *list,
                                 const struct k8s_object *pod)
{
    const struct k8s_container *container = enrich_container(pod, list);
    if (!container)
        return;
    bool is_run = enrich_is_run(container, list);
    const struct {
        enum k8s_metadata number;
        uint32_t text;
    } values[] = {{K8S_CONTAINER_NAME, container->name},
                  {K8S_CONTAINER_IMAGE_NAME, container->image},
                  {K8S_CONTAINER_IMAGE_TAG, container->tag},
                  {K8S_SERVICE_VERSION, container->version},
                  {K8S_CONTAINER_ID, is_run ? container->id : 0}};
    for (size_t i = 0; i < BR_COUNT(values); i++)
        if (wants[values[i].number])
            enrich_set(list, k8s_metadata_names[values[i].number],
                       k8s_object_text(pod, values[i].text));
    if (wants[K8S_SERVICE_INSTANCE_ID] && container->restarts >= 0)
        enrich_set_instance(list, pod, container);
    if (wants[K8S_CONTAINER_IMAGE_REPO_DIGESTS] && is_run)
        enrich_set_digest(list, k8s_object_text(pod, container->digest));
}

/* Adds the first `count` attributes of an object, which may be NULL. */
static void enrich_add_first(struct br_attributes *list, const struct k8s_object *object,
                             uint32_t count)
{
    for (uint32_t i = 0; object && i < count; i++)
        enrich_set(list, k8s_object_text(object, object->attributes[i].key),
                   k8s_object_text(object, object->attributes[i].value));
}

static void enrich_add_all(struct br_attributes *list, const struct k8s_object *object)
{
    enrich_add_first(list, object, object ? object->n_attributes : 0);
}

/* Finds the object of a kind to which the resource belongs: through the object `from`, such as the
 * pod, or by an attribute of the resource. `from` may be NULL. */
static const struct k8s_object *enrich_parent(const struct k8s_table *table,
                                              const struct br_attributes *list,
                                              const struct k8s_object *from, enum k8s_kind kind)
{
    const char *key = from ? k8s_object_text(from, from->parents[kind]) : "";
    if (!table->config->reads[kind])
        return NULL;
    if (*key)
        return k8s_table_find(table, kind, key, strlen(key));
    struct br_any any = enrich_text(list, k8s_kinds[kind].key_attribute);
    return k8s_table_find(table, kind, any.data, any.len);
}

/* Adds the attributes of the pod. The name of its deployment in the ReplicaSet is more exact than
 * the one that was derived from the name of the ReplicaSet, and so is that of the CronJob in the
 * Job. */
static void enrich_add_pod(const struct k8s_table *table, struct br_attributes *list,
                           const struct k8s_object *pod)
{
    const bool *wants = table->config->extract.wants;
    const struct k8s_object *system = k8s_table_find(table, K8S_NAMESPACE, "kube-system", 11);
    const enum k8s_kind kinds[] = {K8S_REPLICASET, K8S_JOB};
    for (size_t i = 0; i < BR_COUNT(kinds); i++) {
        const char *key = k8s_object_text(pod, pod->parents[kinds[i]]);
        const struct k8s_object *owner = k8s_table_find(table, kinds[i], key, strlen(key));
        enrich_add_first(list, owner, owner ? owner->n_owner_attributes : 0);
    }
    enrich_add_all(list, pod);
    if (system && wants[K8S_CLUSTER_UID])
        enrich_set(list, k8s_metadata_names[K8S_CLUSTER_UID], k8s_object_text(system, system->uid));
    enrich_add_container(wants, list, pod);
}

/* Adds service.namespace for a resource whose namespace is known but whose pod is not. */
static void enrich_add_service_namespace(struct br_attributes *list)
{
    struct br_any any = enrich_text(list, k8s_metadata_names[K8S_NAMESPACE_NAME]);
    char *text = any.len ? br_arena_strndup(list->arena, (const char *)any.data, any.len) : NULL;
    if (any.len && !text)
        list->no_memory = true;
    enrich_set(list, k8s_metadata_names[K8S_SERVICE_NAMESPACE], text);
}

/* Adds the attributes of the pod, which may be NULL, and of the objects to which the resource
 * belongs. An attribute of an earlier object takes precedence over that of a later one. */
static void enrich_add(const struct k8s_table *table, struct br_attributes *list,
                       const struct k8s_object *pod)
{
    const struct k8s_object *parents[K8S_KINDS] = {NULL};
    static const enum k8s_kind order[] = {K8S_DEPLOYMENT, K8S_REPLICASET, K8S_STATEFULSET,
                                          K8S_DAEMONSET,  K8S_JOB,        K8S_CRONJOB};
    if (pod)
        enrich_add_pod(table, list, pod);
    enrich_add_all(list, enrich_parent(table, list, pod, K8S_NAMESPACE));
    if (table->config->extract.wants[K8S_SERVICE_NAMESPACE])
        enrich_add_service_namespace(list);
    enrich_add_all(list, enrich_parent(table, list, pod, K8S_NODE));
    for (enum k8s_kind kind = K8S_REPLICASET; kind < K8S_KINDS; kind++) {
        const struct k8s_object *from = pod;
        if (kind == K8S_DEPLOYMENT)
            from = parents[K8S_REPLICASET];
        else if (kind == K8S_CRONJOB)
            from = parents[K8S_JOB];
        parents[kind] = enrich_parent(table, list, from, kind);
    }
    for (size_t i = 0; i < BR_COUNT(order); i++)
        enrich_add_all(list, parents[order[i]]);
}

/* --- Resources -------------------------------------------------------------------------------- */

bool k8s_enrich(struct k8s_table *table, const struct k8s_config *config, const char *client,
                struct br_attributes *list)
{
    struct k8s_id id;
    const char *ip = NULL;
    if (config->pod_association.count)
        enrich_associate(config, list, client, &id, &ip);
    else
        enrich_by_address(list, client, &id, &ip);
    if (ip && (config->passthrough || config->extract.wants[K8S_POD_IP]))
        enrich_set(list, k8s_metadata_names[K8S_POD_IP], ip);
    if (!table)
        return false;
    k8s_table_lock(table);
    const struct k8s_object *pod = k8s_table_find_pod(table, &id);
    enrich_add(table, list, pod);
    k8s_table_unlock(table);
    return pod != NULL;
}
