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
    char note[256];        /* error of the last store_rig_read; "": none */
    struct br_arena arena; /* of the query */
    struct br_store_query query;
};

/* Makes a directory and opens a store in it, with partitions of `rows` rows; 0: unlimited. */
void store_rig_init(struct store_rig *rig, uint64_t rows);

/* Closes the store, until store_rig_reopen. */
void store_rig_close(struct store_rig *rig);

/* Closes the store and opens it again. Returns the result of br_store_open. */
int store_rig_reopen(struct store_rig *rig);

/* Closes the store, and removes the directory. */
void store_rig_release(struct store_rig *rig);

/* Returns an item parsed from a request, which it clears. */
struct br_item *store_rig_item(struct store_rig *rig, enum br_signal signal, struct wire *request);

/* Writes one request, which it clears. Returns the result of br_store_write. */
int store_rig_write(struct store_rig *rig, enum br_signal signal, struct wire *request);

/* Begin a query without bounds; and end it. */
struct br_store_query *store_rig_ask(struct store_rig *rig);
void store_rig_answered(struct store_rig *rig);

/* Returns the number of files in the directory with this suffix. */
unsigned store_rig_files(const struct store_rig *rig, const char *suffix);

/* Writes `count` spans, or samples, from number `first` on. Returns the result of
 * br_store_write. */
int store_rig_items(struct store_rig *rig, enum br_signal signal, uint64_t first, uint32_t count);

/* Counts in `seen` how often each span occurs, by its number, in a query that is not truncated. */
void store_rig_read(struct store_rig *rig, uint8_t *seen);

/* A br_span_fn that counts: its argument is `seen`. */
bool store_rig_count(const struct br_stored_span *span, void *seen);

struct br_store_usage store_rig_usage(struct store_rig *rig);

/* Returns the path of a file in the directory. */
void store_rig_path(const struct store_rig *rig, const char *name, char ret[256]);
