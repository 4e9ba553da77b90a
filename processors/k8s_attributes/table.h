/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table in which all workers find pods and the objects to which pods belong. One node watches
 * the Kubernetes API and changes the table; all nodes with the same id read it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "processors/k8s_attributes/object.h"

#define K8S_OBJECTS_MAX (1u << 18) /* largest number of objects of a kind; others are ignored */
#define K8S_ID_SIZE 1024           /* size of the largest identifier of a pod, in bytes */

/* Identifies a pod: the values of the sources of an association, or an IP address. */
struct k8s_id {
    char bytes[K8S_ID_SIZE];
    size_t len;
    bool failed; /* the identifier is too long, or a value is missing */
};

/* Begins the identifier for association number `association`; -1: for an IP address. */
void k8s_id_begin(struct k8s_id *id, int association);
/* Appends a value. NULL and "" mean that the value is missing. */
void k8s_id_add(struct k8s_id *id, const char *value, size_t len);

struct k8s_table {
    pthread_mutex_t lock;
    const struct k8s_config *config;
    size_t max_bytes;                  /* largest size of the objects and identifiers together */
    size_t bytes;                      /* size of the objects and identifiers together */
    struct br_map *objects[K8S_KINDS]; /* objects by key; NULL: the kind is not read */
    struct br_map *ids;                /* pods by identifier */
    int id_rc;               /* 0, or the error with which an identifier could not be added */
    atomic_bool is_watched;  /* a node watches the API for this table */
    uint64_t list;           /* number of the newest list; only the watching node uses it */
    atomic_bool is_complete; /* all objects have been listed */
};

/* Returns a table of at most `max_bytes` bytes, or NULL if memory is short. `config` is borrowed
 * until k8s_table_free. */
struct k8s_table *k8s_table_new(const struct k8s_config *config, size_t max_bytes);
void k8s_table_free(struct k8s_table *table);

/* Adds an object, which it takes, or replaces the object with the same kind and key. Returns 0, or
 * BR_EFULL (the table is full) or BR_ENOMEM. After an error, the table contains no object with this
 * kind and key. */
int k8s_table_put(struct k8s_table *table, struct k8s_object *object);

/* Marks the object that has the kind, key and uid of `object` as deleted. */
void k8s_table_delete(struct k8s_table *table, const struct k8s_object *object, uint64_t now_ms);

/* Marks the objects of `kind` as deleted that list number `list` did not contain. */
void k8s_table_delete_others(struct k8s_table *table, enum k8s_kind kind, uint64_t list,
                             uint64_t now_ms);

/* Frees the objects of `kind` that were deleted before `before_ms`. */
void k8s_table_sweep(struct k8s_table *table, enum k8s_kind kind, uint64_t before_ms);

/* Returns the number of objects of `kind`. */
size_t k8s_table_count(struct k8s_table *table, enum k8s_kind kind);

/* k8s_table_find_pod and k8s_table_find must be called between k8s_table_lock and
 * k8s_table_unlock. Their results are valid until k8s_table_unlock. */
void k8s_table_lock(struct k8s_table *table);
void k8s_table_unlock(struct k8s_table *table);

/* Returns the pod of an identifier. Returns NULL if there is none or the pod is ignored. */
const struct k8s_object *k8s_table_find_pod(const struct k8s_table *table, const struct k8s_id *id);

/* Returns the object of a kind with this key, or NULL. */
const struct k8s_object *k8s_table_find(const struct k8s_table *table, enum k8s_kind kind,
                                        const void *key, size_t len);
