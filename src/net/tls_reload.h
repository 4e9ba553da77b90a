/* SPDX-License-Identifier: Apache-2.0 */
/* Periodically reloads the files of a TLS context, in a thread of the pool. */
#pragma once

#include "base/log.h"
#include "core/host.h"
#include "net/tls.h"

struct br_tls_reload;

/* Starts to reload a context, which must exist until br_tls_reload_stop. Failures are logged to
 * `log`. Returns 0 or BR_ENOMEM. `*ret` is NULL if there is nothing to reload: `ctx` is NULL or
 * its config has no interval. */
int br_tls_reload_start(struct br_host *host, struct br_tls_context *ctx, const struct br_log *log,
                        struct br_tls_reload **ret);

/* Stops reloading, and waits for a reload in progress. Accepts NULL. */
void br_tls_reload_stop(struct br_tls_reload *reload);
