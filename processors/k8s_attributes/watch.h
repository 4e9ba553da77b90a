/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a table of pods equal to the Kubernetes API: lists all pods, page by page, and then watches
 * for changes. A watch request ends after some seconds, and the next one continues where it ended.
 * Source: kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes" and
 * "Retrieving large results sets in chunks".
 *
 * | state    | answer                   | next state | effect                               |
 * |----------|--------------------------|------------|--------------------------------------|
 * | listing  | a page, others remain    | listing    | its pods are added                   |
 * | listing  | the last page            | watching   | pods that were not listed are deleted |
 * | watching | events                   | watching   | pods are added, replaced or deleted  |
 * | watching | the version is too old   | listing    | -                                    |
 * | any      | another error            | same       | the request is repeated after a delay |
 */
#pragma once

#include "net/client.h"
#include "pipeline/component.h"
#include "processors/k8s_attributes/pods.h"

struct k8s_watch;

/* Starts to list and watch pods for `table`. All arguments are borrowed until k8s_watch_free.
 * Returns 0, or BR_EINVAL, BR_EIO or BR_ENOMEM with a message in `err`. */
int k8s_watch_new(struct br_node *node, const struct k8s_config *config, struct k8s_table *table,
                  struct k8s_watch **ret, struct br_err *err);

/* Ends the watch. May wait for a thread. Accepts NULL. */
void k8s_watch_free(struct k8s_watch *watch);
