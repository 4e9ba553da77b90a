/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node of one component on a fake host, with no neighbours except those that the test adds.
 */
#pragma once

#include "base/arena.h"
#include "pipeline/component.h"
#include "tests/support/fake_host.h"

struct node_rig {
    struct fake_host *h;
    struct br_arena arena; /* holds the config */
    struct br_node node;
    bool drained;
};

/* Makes the host, and the node with the YAML as its config, neither created nor started. Fails
 * the test if the config is rejected. */
void node_rig_begin(struct node_rig *rig, const struct br_component *component, const char *yaml);

/* Begins, creates and starts the node. Fails the test unless all succeed. */
void node_rig_start(struct node_rig *rig, const struct br_component *component, const char *yaml);

/* Drains the node. Fails the test unless it reports that it has drained. */
void node_rig_drain(struct node_rig *rig);

/* Ends everything, as fake_host_end. */
void node_rig_end(struct node_rig *rig);
