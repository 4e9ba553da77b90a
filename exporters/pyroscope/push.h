/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends requests to push.v1.PusherService/Push of one Pyroscope, over Connect (unary, protobuf).
 *
 * A request is an item whose parts are its `series` fields, one profile each (pyroscope_part_*). It
 * is sent, and sent again, like any item; what it holds shrinks on the way:
 * - Servers since 2.0 store what they can of a request that they refuse, and name the ids of the
 *   rest in their message. What is not named was stored, and is not sent again. Profiles that they
 *   could not read are in their list of errors without a name. As many profiles, the largest of
 *   those without a name, are dropped for the reason "profile_rejected".
 * - A request that is refused for good is halved until the profile at fault stands alone. That one
 *   is dropped for the reason "profile_rejected". br_retry bounds how often a request is halved.
 */
#pragma once

#include "pipeline/exporter.h"
#include "wire/compression.h"

#define PYROSCOPE_ID_LEN 32 /* hex digits; the last bytes of a part */

struct pyroscope_push_config {
    const char *endpoint; /* URL; the API's path is added to its own */
    const struct br_tls_config *tls;
    const struct br_headers *headers;
    struct br_secret authorization; /* NULL: none */
    const char *tenant;             /* NULL: none */
    const char *tenant_metadata;    /* client metadata that says the tenant, first; NULL: none */
    bool gzip;
    uint64_t timeout_ms, idle_timeout_ms;
    unsigned max_connections;
    const struct br_retry_config *retry;
};

struct pyroscope_push;

/* Copies the config, but not what it points to. Returns NULL when there is no memory. */
struct pyroscope_push *pyroscope_push_new(struct br_node *node,
                                          const struct pyroscope_push_config *config);

/* Opens the client. As br_host_ops.connect. */
int pyroscope_push_start(struct pyroscope_push *push, struct br_err *err);

struct br_consumer *pyroscope_push_input(struct pyroscope_push *push);

/* Finishes what is under way, by the host's turns. Accepts NULL. */
void pyroscope_push_free(struct pyroscope_push *push);

/* Makes a RawProfileSeries of encoded labels and a pprof, as a part that counts for n_items. The
 * caller owns `ret->buf`. Returns 0 or BR_ENOMEM. */
int pyroscope_part_make(struct br_pool *pool, const uint8_t *labels, size_t labels_len,
                        const struct br_buf *pprof, uint32_t n_items, struct br_part *ret);
