/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a table of objects equal to the Kubernetes API. For each kind of objects that the config
 * needs, lists all objects, page by page, and then watches for changes. A watch request ends after
 * some seconds, and the next one continues where it ended. The kinds are read independently, so an
 * error for one kind does not delay the others.
 * Source: kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes" and
 * "Retrieving large results sets in chunks".
 *
 * | state    | answer                   | next state | effect                                   |
 * |----------|--------------------------|------------|------------------------------------------|
 * | listing  | a page, others remain    | listing    | its objects are added                    |
 * | listing  | the last page            | watching   | objects that were not listed are deleted |
 * | watching | events                   | watching   | objects are added, replaced or deleted   |
 * | any      | the version is too old   | listing    | -                                        |
 * | any      | another error            | same       | the request is repeated after a delay    |
 */
#pragma once

#include "net/client.h"
#include "pipeline/component.h"
#include "processors/k8s_attributes/table.h"

struct k8s_watches;

/* Starts to list and watch the objects that `config` needs for `table`. All arguments are borrowed
 * until k8s_watches_free. Returns 0, or BR_EINVAL, BR_EIO or BR_ENOMEM with a message in `err`. */
int k8s_watches_new(struct br_node *node, const struct k8s_config *config, struct k8s_table *table,
                    struct k8s_watches **ret, struct br_err *err);

/* Ends all watches. May wait for a thread. Accepts NULL. */
void k8s_watches_free(struct k8s_watches *set);
