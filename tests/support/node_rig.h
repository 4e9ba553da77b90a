/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node of one component on a fake host. The node is not connected to other nodes, unless the test
 * does so.
 */
#pragma once

#include "base/arena.h"
#include "pipeline/component.h"
#include "tests/support/fake_host.h"

struct node_rig {
    struct fake_host *h;
    struct br_arena arena; /* memory of the config */
    struct br_node node;
    bool drained;
};

/* Makes a host, and a node with the YAML as its config. Does not create or start the component of
 * the node. Fails the test if the config is rejected. */
void node_rig_begin(struct node_rig *rig, const struct br_component *component, const char *yaml);

/* Calls node_rig_begin, and creates and starts the component. Fails the test unless all of this
 * succeeds. */
void node_rig_start(struct node_rig *rig, const struct br_component *component, const char *yaml);

/* Drains the node. Fails the test unless it reports that it has drained. */
void node_rig_drain(struct node_rig *rig);

/* Destroys the node and frees the host, as fake_host_end does. */
void node_rig_end(struct node_rig *rig);
