/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of the Kubernetes API, reduced to the attributes that they give to resources and the
 * values by which they are found.
 *
 * A pod belongs to a namespace, a node and a workload. The table (table.h) finds these objects by
 * the keys in the pod. A Deployment is found through the pod's ReplicaSet, and a CronJob through
 * the pod's Job, because pods do not refer to them.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "attribute/regex.h"
#include "processors/k8s_attributes/config.h"

#define K8S_CONTAINERS_MAX 64u /* largest number of containers of a pod; others are ignored */
#define K8S_ATTRIBUTES_MAX                                                                         \
    256u                         /* largest number of attributes of an object; others are ignored  \
                                  */
#define K8S_TEXTS_MAX (1u << 20) /* largest size of all texts of an object, in bytes */

/* A container of a pod. Texts are offsets in the `texts` of the object; offset 0 is the empty
 * text. */
struct k8s_container {
    uint32_t name, image, tag, id;
    uint32_t version; /* tag and digest of the image, for service.version */
    uint32_t digest;  /* image with its digest, for container.image.repo_digests */
    int64_t restarts; /* number of restarts before the container with this id; -1: unknown */
};

struct k8s_attribute {
    uint32_t key, value;
};

/* An object in one block of memory. */
struct k8s_object {
    enum k8s_kind kind;
    uint32_t key; /* identifies the object among those of its kind (k8s_kind_info.named) */
    uint32_t uid, name, namespace;
    /* keys of the objects to which this object belongs, by kind; 0: none is known */
    uint32_t parents[K8S_KINDS];
    uint32_t ip, start_time;    /* of a pod */
    bool host_network, ignored; /* of a pod */
    uint64_t deleted_ms;        /* time of the deletion; 0: the object exists */
    uint64_t list;              /* number of the list that contained the object last */
    size_t size;                /* size of the block in bytes */
    uint32_t n_attributes, n_containers, n_texts;
    /* number of attributes at the begin that describe the owner of a ReplicaSet or Job */
    uint32_t n_owner_attributes;
    struct k8s_attribute *attributes;
    struct k8s_container *containers;
    char *texts;
};

static inline const char *k8s_object_text(const struct k8s_object *object, uint32_t offset)
{
    return object->texts + offset;
}

/* Returns the value of an attribute of the object; NULL: the object does not have it. */
const char *k8s_object_attribute(const struct k8s_object *object, const char *key);

/* The rules by which objects of one kind are read: the config with its compiled expressions. Used
 * by one thread at a time. */
struct k8s_rules {
    const struct k8s_config *config;
    enum k8s_kind kind;
    struct br_regex regex;
    pcre2_code **labels, **annotations; /* by field; NULL elements: the field has a key */
    pcre2_code **excluded;
    size_t n_excluded;
    pcre2_code *otel;
};

/* Compiles the expressions for objects of `kind`. `rules` is zeroed; `config` is borrowed until
 * k8s_rules_release. Returns 0, or BR_EINVAL or BR_ENOMEM. k8s_rules_release must be called after a
 * failure as well. */
int k8s_rules_init(struct k8s_rules *rules, const struct k8s_config *config, enum k8s_kind kind);
void k8s_rules_release(struct k8s_rules *rules);

/* Makes an object from the JSON of the Kubernetes API. `deleted`: the object gets only the texts
 * that identify it. The caller owns `*ret` and frees it with br_free. Returns 0, BR_EINVAL if the
 * JSON has no uid and name or the texts are longer than K8S_TEXTS_MAX, or BR_ENOMEM; after an
 * error, `*ret` is NULL. */
int k8s_object_read(const struct k8s_rules *rules, const json_t *json, bool deleted,
                    struct k8s_object **ret);
