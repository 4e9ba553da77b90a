/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/node_rig.h"

#include "tests/support/rig.h"
#include "tests/support/test.h"

void node_rig_begin(struct node_rig *rig, const struct br_component *component, const char *yaml)
{
    *rig = (struct node_rig){.h = fake_host_new()};
    br_arena_init(&rig->arena, 0);
    rig->node = rig_node(component, yaml, &rig->h->host, &rig->arena, &rig->drained);
}

void node_rig_start(struct node_rig *rig, const struct br_component *component, const char *yaml)
{
    node_rig_begin(rig, component, yaml);
    rig_node_start(&rig->node);
}

void node_rig_drain(struct node_rig *rig)
{
    fake_host_drain(rig->h, &rig->node);
    assert_true(rig->drained);
}

void node_rig_end(struct node_rig *rig)
{
    fake_host_end(rig->h, &rig->node, &rig->arena);
}
