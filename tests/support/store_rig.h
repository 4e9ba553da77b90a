/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store in a temporary directory, with one-line functions for writing and querying.
 */
#pragma once

#include "core/host.h"
#include "storage/store.h"
#include "tests/support/wire.h"

struct store_rig {
    struct br_host host;
    struct br_store *store;
    struct br_store_config config;
    struct br_log log;
    struct br_err err; /* error of the last call that failed */
    char directory[64];
    /* warning of the last store_rig_read about data that could not be read; "": none */
    char note[256];
    struct br_arena arena; /* memory of the query */
    struct br_store_query query;
};

/* Makes a directory and opens a store in it, with partitions of `rows` rows; 0: unlimited. */
void store_rig_init(struct store_rig *rig, uint64_t rows);

/* Closes the store. It can be opened again with store_rig_reopen. */
void store_rig_close(struct store_rig *rig);

/* Closes the store and opens it again. Returns the result of br_store_open. */
int store_rig_reopen(struct store_rig *rig);

/* Closes the store, and removes the directory. */
void store_rig_release(struct store_rig *rig);

/* Returns an item that is parsed from the request. Clears `*request`. */
struct br_item *store_rig_item(struct store_rig *rig, enum br_signal signal, struct wire *request);

/* Writes one request to the store. Clears `*request`. Returns the result of br_store_write. */
int store_rig_write(struct store_rig *rig, enum br_signal signal, struct wire *request);

/* store_rig_ask begins a query without limits, and store_rig_answered ends it. */
struct br_store_query *store_rig_ask(struct store_rig *rig);
void store_rig_answered(struct store_rig *rig);

/* Returns the number of files in the directory with this suffix. */
unsigned store_rig_files(const struct store_rig *rig, const char *suffix);

/* Writes `count` spans or samples of items.h, beginning with number `first`. Returns the result of
 * br_store_write. */
int store_rig_items(struct store_rig *rig, enum br_signal signal, uint64_t first, uint32_t count);

/* Runs a query for all spans, which must not be truncated. Increments seen[n] for each span with
 * number n. */
void store_rig_read(struct store_rig *rig, uint8_t *seen);

/* Callback of a query (br_span_fn). Increments the element of `seen` for this span. */
bool store_rig_count(const struct br_stored_span *span, void *seen);

struct br_store_usage store_rig_usage(struct store_rig *rig);

/* Writes the path of a file in the directory to `ret`. */
void store_rig_path(const struct store_rig *rig, const char *name, char ret[256]);
