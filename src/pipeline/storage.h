/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write-ahead log of a file_storage extension. All workers and exporters of a service share it.
 * The extension opens the log, and durable queues write to it.
 */
#pragma once

#include "core/host.h"
#include "wal/wal.h"

struct br_storage;

struct br_storage_config {
    struct br_wal_config wal;
    /* age in milliseconds at which an undelivered request is dropped; 0: never */
    uint64_t max_age_ms;
    /* time in milliseconds that a request waits for its delivery before it is written to the log;
     * 0: every request is written */
    uint64_t write_after_ms;
};

/* Returns the storage of the extension with the given id, and adds a reference. Creates the storage
 * if it does not exist yet. Returns NULL if memory is short. */
struct br_storage *br_storage_get(struct br_host *host, const char *id);

/* Releases a reference. Releasing the last reference closes the log. Accepts NULL. */
void br_storage_put(struct br_host *host, struct br_storage *storage);

/* Opens the log. Does nothing if the log is already open. Returns 0, or a negative error code and a
 * message in `err`. */
int br_storage_open(struct br_storage *storage, const struct br_storage_config *config,
                    struct br_err *err);

/* Returns the log, or NULL if the log is not open. */
struct br_wal *br_storage_wal(const struct br_storage *storage);

/* Returns br_storage_config.max_age_ms of the opened log. */
uint64_t br_storage_max_age_ms(const struct br_storage *storage);

/* Returns br_storage_config.write_after_ms of the opened log. */
uint64_t br_storage_write_after_ms(const struct br_storage *storage);
