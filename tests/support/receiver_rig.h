/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One receiver of profiles on a fake host, in front of a consumer that writes down what comes and
 * ends it as the test says. A fixture of cmocka is one of these.
 */
#pragma once

#include "base/str.h"
#include "pipeline/component.h"
#include "tests/support/fake_host.h"

struct receiver_rig {
    struct fake_host *h;
    struct br_arena arena; /* of the config */
    struct br_node node;
    struct br_consumer sink;
    struct br_outcome outcome; /* what items end with */
    bool hold;                 /* items are not ended but kept, one at a time */
    bool quiet;                /* nothing is written down */
    bool drained;
    struct br_item *held;
    unsigned n;          /* items that came */
    struct br_str text;  /* profile_text of all of them */
    struct br_str bytes; /* of the last one */
};

/* Creates and starts it; the test fails unless both succeed. */
void receiver_rig_start(struct receiver_rig *r, const struct br_component *c, const char *yaml);

/* The same, where memory may be short: returns false, and has destroyed what there was. */
bool receiver_rig_try(struct receiver_rig *r, const struct br_component *c, const char *yaml);

/* Tries it, on a fake host of its own: the test fails unless it is refused with this error. */
void receiver_rig_refused(const struct br_component *c, const char *yaml, const char *error);

/* Ends a held item. */
void receiver_rig_finish(struct receiver_rig *r);

/* Asks it to drain, and turns; r->drained says whether it is. */
void receiver_rig_drain(struct receiver_rig *r);

/* Destroys it and checks that nothing is left and the ledger closes. */
void receiver_rig_end(struct receiver_rig *r);

/* A teardown of tests: drains, ends and frees the rig in *state. */
int receiver_rig_teardown(void **state);

/* The test fails unless what came so far is `text`, which is then forgotten. */
void receiver_rig_expect(struct receiver_rig *r, const char *text);

/* The same for a part of it; nothing is forgotten. */
void receiver_rig_expect_in(struct receiver_rig *r, const char *text);

/* True when the bytes of the last item contain it: for what profile_text does not show. */
bool receiver_rig_has_bytes(const struct receiver_rig *r, const char *text);
