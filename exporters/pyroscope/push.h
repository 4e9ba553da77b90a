/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends requests to push.v1.PusherService/Push of one Pyroscope, over Connect (unary, protobuf).
 *
 * A request is an item with one part, a `series` field with one profile (pyroscope_part_make).
 * Pyroscope stores the profiles of a request one by one, and its error does not name those that it
 * has stored (2.x: Connect sends the innermost error alone). If a request had several, those
 * that were stored would be stored again. A profile that is refused for good is dropped for the
 * reason "profile_rejected".
 */
#pragma once

#include "net/client.h"
#include "pipeline/exporter.h"
#include "wire/compression.h"

#define PYROSCOPE_ID_LEN 32 /* hex digits; the last bytes of a part */

struct pyroscope_push_config {
    const char *endpoint; /* URL; the API's path is added to its own */
    const struct br_tls_config *tls;
    const char *proxy_url; /* NULL: the environment's */
    const struct br_headers *headers;
    struct br_secret authorization; /* NULL: none */
    const char *tenant;             /* NULL: none */
    const char *tenant_metadata;    /* client metadata that says the tenant, first; NULL: none */
    bool gzip;
    uint64_t timeout_ms;
    struct br_client_keepalive keepalive;
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
