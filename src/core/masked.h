/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records what was taken out of the data or masked on its way, and by which rule: who redacts notes
 * it, who answers queries reads it. One table for all workers of a service, with a lock of its own
 * and a bound. It knows keys and what became of texts, never a text as it was.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/host.h"

#define BR_MASKED_MAX 1000     /* rows */
#define BR_MASKED_TEXT_MAX 200 /* bytes of each text of a row */
#define BR_MASKED_NODES_MAX 32 /* that are known to redact */

struct br_masked;

struct br_masked_row {
    const char *node;   /* id of the component */
    const char *rule;   /* as the config has it: "blocked_values: 4[0-9]{12}" */
    const char *place;  /* constant: "resource", "span", "event", "function" and the like */
    const char *key;    /* of the attribute, or "" */
    const char *became; /* the last; of a name, path or function all of them: a row each */
    uint64_t count, last_ns;
};

/* Returns a reference to the table of the host's service, or NULL when there is no memory. */
struct br_masked *br_masked_get(struct br_host *host);
void br_masked_put(struct br_host *host, struct br_masked *masked); /* accepts NULL */

/* Notes that somebody will ask. Without it nothing is noted but who redacts. */
void br_masked_watch(struct br_masked *masked);
bool br_masked_is_watched(const struct br_masked *masked);

/* Notes that the component `node` redacts. */
void br_masked_add_node(struct br_masked *masked, const char *node);

/* Texts of a note need no end; they are cut to BR_MASKED_TEXT_MAX. */
struct br_masked_text {
    const void *data;
    size_t len;
};

/* Counts one text that was masked or removed. Where there is no room it is counted as left out.
 */
void br_masked_note(struct br_masked *masked, const char *node, const char *rule, const char *place,
                    struct br_masked_text key, struct br_masked_text became, uint64_t now_ns);

/* Calls `fn` for each row, and `on_node` for each component that redacts, while nobody can note:
 * shortly. `fn` returns false to stop. Returns what was left out of the table. */
uint64_t br_masked_each(struct br_masked *masked,
                        bool (*fn)(const struct br_masked_row *row, void *arg),
                        void (*on_node)(const char *node, void *arg), void *arg);
