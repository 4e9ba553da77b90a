/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends requests to push.v1.PusherService/Push of one Pyroscope server, over Connect (unary,
 * protobuf).
 *
 * Each request contains one profile: it is an item with one part, a `series` field
 * (pyroscope_part_make). Pyroscope stores the profiles of a request one by one, and its error does
 * not name those that it has stored (2.x: Connect returns only the innermost error). A retry of a
 * request with several profiles would store some of them twice.
 *
 * A profile that the server rejects is dropped with the reason "profile_rejected".
 */
#pragma once

#include "net/client.h"
#include "pipeline/exporter.h"
#include "wire/compression.h"

#define PYROSCOPE_ID_LEN 32 /* hex digits; at the end of a part */

struct pyroscope_push_config {
    const char *endpoint; /* URL; the API's path is appended to its path */
    const struct br_tls_config *tls;
    const char *proxy_url; /* NULL: from the environment */
    const struct br_headers *headers;
    struct br_secret authorization; /* NULL: none */
    const char *tenant;             /* NULL: none */
    /* client metadata with the tenant, preferred to `tenant`; NULL: none */
    const char *tenant_metadata;
    bool gzip;
    uint64_t timeout_ms;
    struct br_client_keepalive keepalive;
    unsigned max_connections;
    const struct br_retry_config *retry;
};

struct pyroscope_push;

/* Copies the config, but not the data that it points to. Returns NULL if memory is short. */
struct pyroscope_push *pyroscope_push_new(struct br_node *node,
                                          const struct pyroscope_push_config *config);

/* Opens the client. Returns the errors of br_host_ops.connect. */
int pyroscope_push_start(struct pyroscope_push *push, struct br_err *err);

struct br_consumer *pyroscope_push_input(struct pyroscope_push *push);

/* Finishes all pending requests and runs loop turns of the host. Accepts NULL. */
void pyroscope_push_free(struct pyroscope_push *push);

/* Makes a RawProfileSeries of encoded labels and a pprof, as a part with `n_records` samples. The
 * caller owns `ret->buf`. Returns 0 or BR_ENOMEM. */
int pyroscope_part_make(struct br_pool *pool, const uint8_t *labels, size_t labels_len,
                        const struct br_buf *pprof, uint32_t n_records, struct br_part *ret);
