/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds the attributes of a pod, and of the objects to which it belongs, to a resource.
 *
 * If several objects give the same attribute, the first in this order counts: the resource, the
 * pod, its container, the namespace, the node, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job
 * and CronJob. If the pod is unknown, attributes of the resource name the other objects, such as
 * k8s.namespace.name.
 */
#pragma once

#include "attribute/attributes.h"
#include "processors/k8s_attributes/table.h"

/* Adds the attributes to the list. `table` is NULL if the option `passthrough` is set; then only
 * k8s.pod.ip is added. `client` is the address of the client, or NULL. Returns true if the pod was
 * found. If memory runs out, or the attributes become too many, sets list->no_memory or
 * list->too_many. */
bool k8s_enrich(struct k8s_table *table, const struct k8s_config *config, const char *client,
                struct br_attributes *list);
