/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of the texts that redaction has removed or masked, and of the rules that did this.
 * Components that redact add rows to the table, and queries read the table. All workers of a
 * service share one table, which has a lock and a limit. The table contains keys and the texts
 * after redaction, never the original text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/host.h"

#define BR_MASKED_MAX 1000     /* largest number of rows in the table */
#define BR_MASKED_TEXT_MAX 200 /* largest size of each text of a row, in bytes */
#define BR_MASKED_NODES_MAX 32 /* largest number of redacting components in the table */

struct br_masked;

struct br_masked_row {
    const char *node; /* id of the component */
    const char *rule; /* rule as in the config: "blocked_values: 4[0-9]{12}" */
    /* constant name of the place of the text, such as "resource", "span", "event" or "function" */
    const char *place;
    const char *key; /* key of the attribute, or "" for other texts */
    /* text after the last redaction; names, paths and functions have one row for each such text */
    const char *became;
    uint64_t count, last_ns;
};

/* Returns a reference to the table of the host's service, or NULL if memory is short. */
struct br_masked *br_masked_get(struct br_host *host);
/* Releases a reference to the table. Accepts NULL. */
void br_masked_put(struct br_host *host, struct br_masked *masked);

/* Enables the table because queries will read it. Until the first call, only br_masked_add_node has
 * an effect. */
void br_masked_watch(struct br_masked *masked);
bool br_masked_is_watched(const struct br_masked *masked);

/* Adds `node` to the list of components that redact. */
void br_masked_add_node(struct br_masked *masked, const char *node);

/* A text without a terminator. The table stores at most its first BR_MASKED_TEXT_MAX bytes. */
struct br_masked_text {
    const void *data;
    size_t len;
};

/* Counts one text that was masked or removed. If the table is full and the text needs a new row,
 * counts the text as omitted. */
void br_masked_note(struct br_masked *masked, const char *node, const char *rule, const char *place,
                    struct br_masked_text key, struct br_masked_text became, uint64_t now_ns);

/* Calls `fn` for each row, and `on_node` for each component that redacts. Both functions must be
 * quick, because the lock is held while they run. `fn` returns false to stop. Returns the number of
 * texts that were omitted because the table was full. */
uint64_t br_masked_each(struct br_masked *masked,
                        bool (*fn)(const struct br_masked_row *row, void *arg),
                        void (*on_node)(const char *node, void *arg), void *arg);
