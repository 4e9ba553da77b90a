/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of objects of the Kubernetes API that the processor can read. Pods are always read, and
 * the other kinds only if the config needs them.
 */
#pragma once

#include <stdbool.h>

enum k8s_kind {
    K8S_POD,
    K8S_NAMESPACE,
    K8S_NODE,
    K8S_REPLICASET,
    K8S_DEPLOYMENT,
    K8S_STATEFULSET,
    K8S_DAEMONSET,
    K8S_JOB,
    K8S_CRONJOB,
    K8S_KINDS
};

struct k8s_kind_info {
    const char *owner;      /* name of the kind in owner references, such as ReplicaSet */
    const char *plural;     /* name of the kind in the paths of requests */
    const char *group;      /* first part of the paths of requests */
    const char *label;      /* prefix of the default names of attributes from labels */
    const char *annotation; /* prefix of the default names of attributes from annotations */
    /* attribute of a resource that contains the key of the resource's object of this kind */
    const char *key_attribute;
    bool namespaced; /* objects of this kind belong to a namespace */
    bool named;      /* the key of an object is its name; otherwise the key is its uid */
};

extern const struct k8s_kind_info k8s_kinds[K8S_KINDS];

/* The values of the option `from`, in the order of enum k8s_kind, ended by NULL. */
extern const char *const k8s_kind_names[K8S_KINDS + 1];
