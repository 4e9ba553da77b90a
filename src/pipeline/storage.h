/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write-ahead log of a file_storage extension, which all workers and exporters of a service
 * share. The extension opens it; durable queues write to it.
 */
#pragma once

#include "core/host.h"
#include "wal/wal.h"

struct br_storage;

struct br_storage_config {
    struct br_wal_config wal;
    uint64_t max_age_ms; /* milliseconds after which a request is given up; 0: never */
    /* milliseconds for which a request waits for its delivery before it is written; 0: each request
     * is written */
    uint64_t write_after_ms;
};

/* Returns the storage of the extension with that id, and a reference to it. Returns NULL without
 * memory. */
struct br_storage *br_storage_get(struct br_host *host, const char *id);

/* Releases a reference; the last one closes the log. Accepts NULL. */
void br_storage_put(struct br_host *host, struct br_storage *storage);

/* Opens the log. Has no effect if it is open. Returns 0, or a negative code and a sentence in
 * `err`. */
int br_storage_open(struct br_storage *storage, const struct br_storage_config *config,
                    struct br_err *err);

/* Returns the log, or NULL if it is not open. */
struct br_wal *br_storage_wal(const struct br_storage *storage);

/* Returns milliseconds after which a request is given up; 0: never. */
uint64_t br_storage_max_age_ms(const struct br_storage *storage);

/* Returns milliseconds for which a request waits for its delivery before it is written; 0: each
 * request is written. */
uint64_t br_storage_write_after_ms(const struct br_storage *storage);
