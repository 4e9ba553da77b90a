/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/k8s_attributes/table.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define ENTRY_SIZE 64 /* size of an entry of a map without its key, in bytes, as it is counted */

/* --- Identifiers ------------------------------------------------------------------------------ */

void k8s_id_begin(struct k8s_id *id, int association)
{
    id->failed = false;
    id->len = (size_t)snprintf(id->bytes, sizeof id->bytes, "%d", association);
}

void k8s_id_add(struct k8s_id *id, const char *value, size_t len)
{
    if (!value || !len || id->len + 1 + len > sizeof id->bytes) {
        id->failed = true;
        return;
    }
    id->bytes[id->len++] = '\0'; /* separates the values, which cannot contain it */
    memcpy(id->bytes + id->len, value, len);
    id->len += len;
}

static const char *table_source_value(const struct k8s_object *pod, const struct k8s_source *source,
                                      uint32_t container)
{
    const char *name = source->name;
    if (source->from == K8S_FROM_CONNECTION)
        return pod->host_network ? "" : k8s_object_text(pod, pod->ip);
    if (strcmp(name, "k8s.namespace.name") == 0)
        return k8s_object_text(pod, pod->namespace);
    if (strcmp(name, "k8s.pod.name") == 0)
        return k8s_object_text(pod, pod->name);
    if (strcmp(name, "k8s.pod.uid") == 0)
        return k8s_object_text(pod, pod->uid);
    if (strcmp(name, "k8s.pod.ip") == 0 || strcmp(name, "host.name") == 0)
        return k8s_object_text(pod, pod->ip);
    if (strcmp(name, "container.id") == 0)
        return container < pod->n_containers ? k8s_object_text(pod, pod->containers[container].id)
                                             : "";
    return k8s_object_attribute(pod, name);
}

static bool table_names_container(const struct k8s_association *association)
{
    const struct k8s_source *source = association->sources.items;
    for (size_t i = 0; i < association->sources.count; i++)
        if (source[i].from == K8S_FROM_RESOURCE_ATTRIBUTE &&
            strcmp(source[i].name, "container.id") == 0)
            return true;
    return false;
}

typedef void table_id_fn(struct k8s_table *table, struct k8s_object *pod, const struct k8s_id *id);

/* Calls `fn` with each identifier of the pod. */
static void table_each_id(struct k8s_table *table, struct k8s_object *pod, table_id_fn *fn)
{
    const struct k8s_association *association = table->config->pod_association.items;
    struct k8s_id id;
    for (size_t a = 0; a < table->config->pod_association.count; a++) {
        const struct k8s_source *source = association[a].sources.items;
        uint32_t n = table_names_container(&association[a]) ? pod->n_containers : 1;
        for (uint32_t c = 0; c < n; c++) {
            k8s_id_begin(&id, (int)a);
            for (size_t i = 0; i < association[a].sources.count; i++) {
                const char *value = table_source_value(pod, &source[i], c);
                k8s_id_add(&id, value, value ? strlen(value) : 0);
            }
            if (!id.failed)
                fn(table, pod, &id);
        }
    }
    if (table->config->pod_association.count || pod->host_network)
        return;
    const char *ip = k8s_object_text(pod, pod->ip);
    k8s_id_begin(&id, -1);
    k8s_id_add(&id, ip, strlen(ip));
    if (!id.failed)
        fn(table, pod, &id);
}

/* --- The table -------------------------------------------------------------------------------- */

struct k8s_table *k8s_table_new(const struct k8s_config *config, size_t max_bytes)
{
    struct k8s_table *table = br_calloc(1, sizeof *table);
    if (!table)
        return NULL;
    (void)pthread_mutex_init(&table->lock, NULL);
    table->config = config;
    table->max_bytes = max_bytes;
    table->ids = br_map_new((size_t)4 * K8S_OBJECTS_MAX);
    bool complete = table->ids != NULL;
    for (unsigned kind = 0; kind < K8S_KINDS && complete; kind++) {
        if (config->reads[kind])
            table->objects[kind] = br_map_new(K8S_OBJECTS_MAX);
        complete = table->objects[kind] || !config->reads[kind];
    }
    if (complete)
        return table;
    k8s_table_free(table);
    return NULL;
}

void k8s_table_free(struct k8s_table *table)
{
    if (!table)
        return;
    br_map_free(table->ids, NULL);
    for (unsigned kind = 0; kind < K8S_KINDS; kind++)
        br_map_free(table->objects[kind], br_free);
    (void)pthread_mutex_destroy(&table->lock);
    br_free(table);
}

void k8s_table_lock(struct k8s_table *table)
{
    (void)pthread_mutex_lock(&table->lock);
}

void k8s_table_unlock(struct k8s_table *table)
{
    (void)pthread_mutex_unlock(&table->lock);
}

/* Adds an identifier of a pod. If another pod has the same identifier, such as a reused IP address,
 * the identifier refers to the pod that was started later. */
static void table_add_id(struct k8s_table *table, struct k8s_object *pod, const struct k8s_id *id)
{
    const struct k8s_object *other = br_map_get(table->ids, id->bytes, id->len);
    bool older = other && other != pod && !other->deleted_ms &&
                 strcmp(k8s_object_text(pod, pod->start_time),
                        k8s_object_text(other, other->start_time)) < 0;
    if (older)
        return;
    int rc = br_map_put(table->ids, id->bytes, id->len, pod, NULL);
    if (rc)
        table->id_rc = rc;
    else if (!other)
        table->bytes += id->len + ENTRY_SIZE;
}

static void table_remove_id(struct k8s_table *table, struct k8s_object *pod,
                            const struct k8s_id *id)
{
    if (br_map_get(table->ids, id->bytes, id->len) != pod)
        return;
    (void)br_map_remove(table->ids, id->bytes, id->len);
    table->bytes -= id->len + ENTRY_SIZE;
}

static struct k8s_object *table_get(const struct k8s_table *table, const struct k8s_object *object)
{
    const char *key = k8s_object_text(object, object->key);
    return br_map_get(table->objects[object->kind], key, strlen(key));
}

/* Removes an object. The caller holds the lock. */
static void table_remove(struct k8s_table *table, struct k8s_object *object)
{
    const char *key = k8s_object_text(object, object->key);
    if (object->kind == K8S_POD)
        table_each_id(table, object, table_remove_id);
    (void)br_map_remove(table->objects[object->kind], key, strlen(key));
    table->bytes -= object->size + ENTRY_SIZE;
    br_free(object);
}

int k8s_table_put(struct k8s_table *table, struct k8s_object *object)
{
    const char *key = k8s_object_text(object, object->key);
    k8s_table_lock(table);
    struct k8s_object *old = table_get(table, object);
    if (old)
        table_remove(table, old);
    int rc = br_map_put(table->objects[object->kind], key, strlen(key), object, NULL);
    if (rc) {
        br_free(object);
        k8s_table_unlock(table);
        return rc;
    }
    table->bytes += object->size + ENTRY_SIZE;
    table->id_rc = 0;
    if (object->kind == K8S_POD)
        table_each_id(table, object, table_add_id);
    rc = table->id_rc;
    if (!rc && table->bytes > table->max_bytes)
        rc = BR_EFULL;
    if (rc)
        table_remove(table, object);
    k8s_table_unlock(table);
    return rc;
}

void k8s_table_delete(struct k8s_table *table, const struct k8s_object *object, uint64_t now_ms)
{
    k8s_table_lock(table);
    struct k8s_object *known = table_get(table, object);
    if (known && !known->deleted_ms &&
        strcmp(k8s_object_text(known, known->uid), k8s_object_text(object, object->uid)) == 0)
        known->deleted_ms = now_ms;
    k8s_table_unlock(table);
}

void k8s_table_delete_others(struct k8s_table *table, enum k8s_kind kind, uint64_t list,
                             uint64_t now_ms)
{
    const void *key;
    size_t len;
    k8s_table_lock(table);
    for (size_t i = 0; i < br_map_count(table->objects[kind]); i++) {
        struct k8s_object *object = br_map_at(table->objects[kind], i, &key, &len);
        if (object->list != list && !object->deleted_ms)
            object->deleted_ms = now_ms;
    }
    k8s_table_unlock(table);
}

void k8s_table_sweep(struct k8s_table *table, enum k8s_kind kind, uint64_t before_ms)
{
    const struct br_map *objects = table->objects[kind];
    const void *key;
    size_t len;
    k8s_table_lock(table);
    for (size_t i = br_map_count(objects); i-- > 0;) {
        struct k8s_object *object =
            i < br_map_count(objects) ? br_map_at(objects, i, &key, &len) : NULL;
        if (object && object->deleted_ms && object->deleted_ms < before_ms)
            table_remove(table, object);
    }
    k8s_table_unlock(table);
}

size_t k8s_table_count(struct k8s_table *table, enum k8s_kind kind)
{
    k8s_table_lock(table);
    size_t count = br_map_count(table->objects[kind]);
    k8s_table_unlock(table);
    return count;
}

const struct k8s_object *k8s_table_find_pod(const struct k8s_table *table, const struct k8s_id *id)
{
    const struct k8s_object *pod = id->failed ? NULL : br_map_get(table->ids, id->bytes, id->len);
    return pod && !pod->ignored ? pod : NULL;
}

const struct k8s_object *k8s_table_find(const struct k8s_table *table, enum k8s_kind kind,
                                        const void *key, size_t len)
{
    return table->objects[kind] && len ? br_map_get(table->objects[kind], key, len) : NULL;
}
