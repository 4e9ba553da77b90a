/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One receiver of profiles on a fake host, in front of a consumer that records the items as text
 * and finishes them as the test chooses. It is a fixture of cmocka.
 */
#pragma once

#include "base/str.h"
#include "pipeline/component.h"
#include "tests/support/fake_host.h"

struct receiver_rig {
    struct fake_host *h;
    struct br_arena arena; /* memory of the config */
    struct br_node node;
    struct br_consumer sink;
    struct br_outcome outcome; /* the result with which items are finished */
    bool hold;                 /* true: items are kept unfinished, one at a time */
    bool quiet;                /* true: the items are not recorded */
    bool drained;
    struct br_item *held;
    unsigned n;          /* items received */
    struct br_str text;  /* profile_text of all items */
    struct br_str bytes; /* bytes of the last item */
};

/* Creates and starts the receiver. Fails the test unless both succeed. */
void receiver_rig_start(struct receiver_rig *r, const struct br_component *c, const char *yaml);

/* As above, for tests that run out of memory: returns false after destroying the parts made so
 * far. */
bool receiver_rig_try(struct receiver_rig *r, const struct br_component *c, const char *yaml);

/* Tries a config on a new fake host. Fails the test unless it is rejected with this error. */
void receiver_rig_refused(const struct br_component *c, const char *yaml, const char *error);

/* Finishes a held item. */
void receiver_rig_finish(struct receiver_rig *r);

/* Starts draining, and runs the loop; r->drained is the result. */
void receiver_rig_drain(struct receiver_rig *r);

/* Destroys the receiver and checks that nothing is leaked and the ledger balances. */
void receiver_rig_end(struct receiver_rig *r);

/* A teardown of tests: drains, ends and frees the rig in *state. */
int receiver_rig_teardown(void **state);

/* Fails the test unless the text recorded so far is `text`; then clears it. */
void receiver_rig_expect(struct receiver_rig *r, const char *text);

/* As above for a part of the text, which is not cleared. */
void receiver_rig_expect_in(struct receiver_rig *r, const char *text);

/* Returns true if the bytes of the last item contain it: for fields that profile_text does not
 * show. */
bool receiver_rig_has_bytes(const struct receiver_rig *r, const char *text);
