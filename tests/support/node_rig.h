/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node of one component on a fake host of its own, with nothing before or behind it but what the
 * test puts there.
 */
#pragma once

#include "base/arena.h"
#include "pipeline/component.h"
#include "tests/support/fake_host.h"

struct node_rig {
    struct fake_host *h;
    struct br_arena arena; /* the config is in it */
    struct br_node node;
    bool drained;
};

/* Makes the host, and the node with the YAML as its config, neither created nor started. The test
 * fails when the config is refused. */
void node_rig_begin(struct node_rig *rig, const struct br_component *component, const char *yaml);

/* Begins, creates and starts; the test fails unless all succeed. */
void node_rig_start(struct node_rig *rig, const struct br_component *component, const char *yaml);

/* Drains the node; the test fails unless it says that it has drained. */
void node_rig_drain(struct node_rig *rig);

/* Ends all of it, as fake_host_end. */
void node_rig_end(struct node_rig *rig);
