/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store in a folder of its own, for tests: what is written to it and asked of it in one line.
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
    struct br_err err; /* of the last call that failed */
    char directory[64];
    char note[256];        /* that the last store_rig_read had; "": none */
    struct br_arena arena; /* of the query */
    struct br_store_query query;
};

/* Makes a folder and opens a store in it, with partitions of `rows`; 0: no bound. */
void store_rig_init(struct store_rig *rig, uint64_t rows);

/* Closes the store, until store_rig_reopen. */
void store_rig_close(struct store_rig *rig);

/* Closes the store and opens it again. Returns what br_store_open does. */
int store_rig_reopen(struct store_rig *rig);

/* Closes it, and removes the folder. */
void store_rig_release(struct store_rig *rig);

/* An item walked out of a request, which it clears. */
struct br_item *store_rig_item(struct store_rig *rig, enum br_signal signal, struct wire *request);

/* Writes one request, which it clears. Returns what br_store_write does. */
int store_rig_write(struct store_rig *rig, enum br_signal signal, struct wire *request);

/* Begins a query without bounds; and ends it. */
struct br_store_query *store_rig_ask(struct store_rig *rig);
void store_rig_answered(struct store_rig *rig);

/* Files in the folder whose names end so. */
unsigned store_rig_files(const struct store_rig *rig, const char *suffix);

/* Writes `count` spans, or samples, of the items from number `first` on. Returns what
 * br_store_write does. */
int store_rig_items(struct store_rig *rig, enum br_signal signal, uint64_t first, uint32_t count);

/* Counts in `seen` how often each span is there, by its number, in a query that is not cut. */
void store_rig_read(struct store_rig *rig, uint8_t *seen);

/* A br_span_fn that does: `seen` is its argument. */
bool store_rig_count(const struct br_stored_span *span, void *seen);

struct br_store_usage store_rig_usage(struct store_rig *rig);

/* The path of a file in the folder. */
void store_rig_path(const struct store_rig *rig, const char *name, char ret[256]);
