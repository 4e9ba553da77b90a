/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/storage.h"

#include <stdio.h>

#include "base/mem.h"
#include "core/shared.h"

struct br_storage {
    struct br_wal *wal; /* NULL: not open */
    uint64_t max_age_ms, write_after_ms;
};

static void *storage_make(const void *arg)
{
    (void)arg;
    return br_calloc(1, sizeof(struct br_storage));
}

static void storage_release(void *thing)
{
    struct br_storage *storage = thing;
    br_wal_close(storage->wal);
    br_free(storage);
}

struct br_storage *br_storage_get(struct br_host *host, const char *id)
{
    char name[256];
    (void)snprintf(name, sizeof name, "storage/%s", id);
    return br_shared_get(host, name, storage_make, NULL);
}

void br_storage_put(struct br_host *host, struct br_storage *storage)
{
    if (storage)
        br_shared_put(host, storage, storage_release);
}

int br_storage_open(struct br_storage *storage, const struct br_storage_config *config,
                    struct br_err *err)
{
    storage->max_age_ms = config->max_age_ms;
    storage->write_after_ms = config->write_after_ms;
    return storage->wal ? 0 : br_wal_open(&config->wal, &storage->wal, err);
}

struct br_wal *br_storage_wal(const struct br_storage *storage)
{
    return storage->wal;
}

uint64_t br_storage_max_age_ms(const struct br_storage *storage)
{
    return storage->max_age_ms;
}

uint64_t br_storage_write_after_ms(const struct br_storage *storage)
{
    return storage->write_after_ms;
}
