/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pods with their attributes, and the table in which all workers find them. One node watches
 * the Kubernetes API and changes the table; all nodes with the same id read it.
 */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "attribute/regex.h"
#include "base/map.h"
#include "base/str.h"
#include "processors/k8s_attributes/config.h"

#define K8S_PODS_MAX (1u << 18)  /* largest number of pods; further pods are ignored */
#define K8S_CONTAINERS_MAX 64u   /* largest number of containers of a pod; others are ignored */
#define K8S_ATTRIBUTES_MAX 256u  /* largest number of attributes of a pod; others are ignored */
#define K8S_TEXTS_MAX (1u << 20) /* largest size of all texts of a pod, in bytes */
#define K8S_ID_SIZE 1024         /* size of the largest identifier of a pod, in bytes */

/* Texts of a pod are offsets in its `texts`; offset 0 is the empty text. */
struct k8s_container {
    uint32_t name, image, tag, id;
};

struct k8s_attribute {
    uint32_t key, value;
};

/* A pod in one block of memory. */
struct k8s_pod {
    uint32_t uid, name, namespace, ip, start_time;
    bool host_network, ignored;
    uint64_t deleted_ms; /* time of the deletion; 0: the pod exists */
    uint64_t list;       /* number of the list that contained the pod last */
    uint32_t n_attributes, n_containers, n_texts;
    struct k8s_attribute *attributes;
    struct k8s_container *containers;
    char *texts;
};

static inline const char *k8s_pod_text(const struct k8s_pod *pod, uint32_t offset)
{
    return pod->texts + offset;
}

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

/* The rules by which pods are read: the config with its compiled expressions. Used by one thread at
 * a time. */
struct k8s_rules {
    const struct k8s_config *config;
    struct br_regex regex;
    pcre2_code **labels, **annotations; /* by field; NULL elements: the field has a key */
    pcre2_code **excluded;
    size_t n_excluded;
    pcre2_code *otel;
};

/* Compiles the expressions of a zeroed struct. Returns 0, or BR_EINVAL or BR_ENOMEM.
 * k8s_rules_release must be called after a failure as well. */
int k8s_rules_init(struct k8s_rules *rules, const struct k8s_config *config);
void k8s_rules_release(struct k8s_rules *rules);

/* Makes a pod from an object of the Kubernetes API. Returns NULL if memory is short or the object
 * has no uid. The caller owns the pod and frees it with br_free. */
struct k8s_pod *k8s_pod_read(const struct k8s_rules *rules, const json_t *object);

struct k8s_table {
    pthread_mutex_t lock;
    const struct k8s_config *config;
    struct br_map *pods;     /* pods by uid */
    struct br_map *ids;      /* pods by identifier */
    atomic_bool is_watched;  /* a node watches the API for this table */
    atomic_bool is_complete; /* all pods have been listed */
};

/* Returns a table whose config is borrowed until its end, or NULL if memory is short. */
struct k8s_table *k8s_table_new(const struct k8s_config *config);
void k8s_table_free(struct k8s_table *table);

/* Adds a pod, of which it takes ownership, or replaces the pod of the same uid. */
void k8s_table_put(struct k8s_table *table, struct k8s_pod *pod);

/* Marks a pod as deleted. */
void k8s_table_delete(struct k8s_table *table, const char *uid, uint64_t now_ms);

/* Marks the pods as deleted that list number `list` did not contain. */
void k8s_table_delete_others(struct k8s_table *table, uint64_t list, uint64_t now_ms);

/* Frees the pods that were deleted before `before_ms`. */
void k8s_table_sweep(struct k8s_table *table, uint64_t before_ms);

/* Calls `fn` with the pod of an identifier, under the table's lock. Returns false if there is none
 * or it is ignored. */
bool k8s_table_find(struct k8s_table *table, const struct k8s_id *id,
                    void (*fn)(void *arg, const struct k8s_pod *pod), void *arg);
size_t k8s_table_count(struct k8s_table *table);
