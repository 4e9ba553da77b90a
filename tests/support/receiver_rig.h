/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a receiver of profiles on a fake host. A consumer after it records the items as text, and
 * finishes them as the test chooses. The state of a cmocka test (`*state`) can be a struct
 * receiver_rig.
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
    struct br_outcome outcome; /* the result with which the consumer finishes items */
    /* true: the consumer keeps an item unfinished; it accepts only one item at a time */
    bool hold;
    bool quiet; /* true: the consumer does not record the items */
    bool drained;
    struct br_item *held;
    unsigned n;          /* items received */
    struct br_str text;  /* all items as text (profile_text) */
    struct br_str bytes; /* bytes of the last item */
};

/* Creates and starts the receiver. Fails the test unless both succeed. */
void receiver_rig_start(struct receiver_rig *r, const struct br_component *c, const char *yaml);

/* Does the same as receiver_rig_start, for tests in which memory runs out. If this fails, destroys
 * everything that was made and returns false. */
bool receiver_rig_try(struct receiver_rig *r, const struct br_component *c, const char *yaml);

/* Tries a config on a new fake host. Fails the test unless it is rejected with this error. */
void receiver_rig_refused(const struct br_component *c, const char *yaml, const char *error);

/* Finishes the item that the consumer holds. */
void receiver_rig_finish(struct receiver_rig *r);

/* Starts to drain the receiver, and runs the loop. Then r->drained is true if the receiver has
 * drained. */
void receiver_rig_drain(struct receiver_rig *r);

/* Destroys the receiver and checks that nothing is leaked and the ledger balances. */
void receiver_rig_end(struct receiver_rig *r);

/* Teardown of a test (cmocka): drains and destroys the receiver of the rig in `*state`, and frees
 * the rig. */
int receiver_rig_teardown(void **state);

/* Fails the test unless the text recorded so far is `text`. Then clears the recorded text. */
void receiver_rig_expect(struct receiver_rig *r, const char *text);

/* Fails the test unless the text recorded so far contains `text`. Does not clear the recorded
 * text. */
void receiver_rig_expect_in(struct receiver_rig *r, const char *text);

/* Returns true if the bytes of the last item contain the text. For fields that are not in the
 * recorded text. */
bool receiver_rig_has_bytes(const struct receiver_rig *r, const char *text);
