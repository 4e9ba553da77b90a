/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a small file that contains secrets, and reads the file again whenever it has changed. A
 * thread of the pool checks the file every second. If the file can no longer be read, the last
 * contents stay valid and a warning is logged.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/log.h"
#include "core/host.h"

#define BR_WATCHED_SIZE_MAX (1u << 20) /* largest size of the file, in bytes */
#define BR_WATCHED_MS 1000             /* interval of checking the file, in milliseconds */

struct br_watched_config {
    const char *path;
    const struct br_log *log;
    /* true: if the first read fails, br_watched_new succeeds and the read is repeated every
     * second */
    bool may_be_missing;
    /* Receives the contents of the file, which are NUL-terminated and valid until this function
     * returns. Called before br_watched_new returns, and later in the worker. */
    void (*on_text)(void *arg, const char *text, size_t len);
    void *arg;
};

struct br_watched;

/* Reads the file and starts to watch it. The strings of `config` are borrowed until
 * br_watched_free. Returns 0, or BR_EIO or BR_ENOMEM with a message in `err`. */
int br_watched_new(struct br_host *host, const struct br_watched_config *config,
                   struct br_watched **ret, struct br_err *err);

/* Stops watching. May wait for a thread that is reading the file. Accepts NULL. */
void br_watched_free(struct br_watched *watched);
