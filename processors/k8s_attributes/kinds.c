/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/k8s_attributes/kinds.h"

#include <stddef.h>

/* The Collector names the attributes of pods, namespaces and nodes in the plural, and those of
 * workloads in the singular. */
#define PLURAL(name) .label = "k8s." name ".labels.", .annotation = "k8s." name ".annotations."
#define SINGULAR(name)                                                                             \
    .label = "k8s." name ".label.", .annotation = "k8s." name ".annotation.",                      \
    .key_attribute = "k8s." name ".uid", .namespaced = true

const struct k8s_kind_info k8s_kinds[K8S_KINDS] = {
    [K8S_POD] = {.owner = "Pod",
                 .plural = "pods",
                 .group = "/api/v1",
                 .key_attribute = "k8s.pod.uid",
                 .namespaced = true,
                 PLURAL("pod")},
    [K8S_NAMESPACE] = {.owner = "Namespace",
                       .plural = "namespaces",
                       .group = "/api/v1",
                       .key_attribute = "k8s.namespace.name",
                       .named = true,
                       PLURAL("namespace")},
    [K8S_NODE] = {.owner = "Node",
                  .plural = "nodes",
                  .group = "/api/v1",
                  .key_attribute = "k8s.node.name",
                  .named = true,
                  PLURAL("node")},
    [K8S_REPLICASET] = {.owner = "ReplicaSet",
                        .plural = "replicasets",
                        .group = "/apis/apps/v1",
                        SINGULAR("replicaset")},
    [K8S_DEPLOYMENT] = {.owner = "Deployment",
                        .plural = "deployments",
                        .group = "/apis/apps/v1",
                        SINGULAR("deployment")},
    [K8S_STATEFULSET] = {.owner = "StatefulSet",
                         .plural = "statefulsets",
                         .group = "/apis/apps/v1",
                         SINGULAR("statefulset")},
    [K8S_DAEMONSET] = {.owner = "DaemonSet",
                       .plural = "daemonsets",
                       .group = "/apis/apps/v1",
                       SINGULAR("daemonset")},
    [K8S_JOB] = {.owner = "Job", .plural = "jobs", .group = "/apis/batch/v1", SINGULAR("job")},
    [K8S_CRONJOB] = {.owner = "CronJob",
                     .plural = "cronjobs",
                     .group = "/apis/batch/v1",
                     SINGULAR("cronjob")},
};

const char *const k8s_kind_names[K8S_KINDS + 1] = {
    [K8S_POD] = "pod",
    [K8S_NAMESPACE] = "namespace",
    [K8S_NODE] = "node",
    [K8S_REPLICASET] = "replicaset",
    [K8S_DEPLOYMENT] = "deployment",
    [K8S_STATEFULSET] = "statefulset",
    [K8S_DAEMONSET] = "daemonset",
    [K8S_JOB] = "job",
    [K8S_CRONJOB] = "cronjob",
};
