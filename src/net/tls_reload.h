/* SPDX-License-Identifier: Apache-2.0 */
/* Reloads the files of a TLS context in a thread, at each interval of its config. */
#pragma once

#include "base/log.h"
#include "core/host.h"
#include "net/tls.h"

struct br_tls_reload;

/* Begins for a context that stays until br_tls_reload_stop. Failures are logged to `log`. Returns 0
 * with NULL in `*ret` for a context that is never reloaded, or without files (`ctx` NULL); or
 * BR_ENOMEM. */
int br_tls_reload_start(struct br_host *host, struct br_tls_context *ctx, const struct br_log *log,
                        struct br_tls_reload **ret);

/* Ends it; waits where a thread has the context. Accepts NULL. */
void br_tls_reload_stop(struct br_tls_reload *reload);
