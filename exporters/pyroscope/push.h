/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends requests to push.v1.PusherService/Push of one Pyroscope server, over Connect (unary,
 * protobuf).
 *
 * Each request contains one profile. The request is an item with one part, a `series` field
 * (pyroscope_part_make). Pyroscope stores the profiles of a request one by one, and its error does
 * not name the profiles that it has stored (2.x: Connect returns only the innermost error). A retry
 * of a request with several profiles would store some of them twice.
 *
 * A profile that the server rejects is dropped with the reason "profile_rejected".
 */
#pragma once

#include "net/client.h"
#include "pipeline/exporter.h"
#include "wire/compression.h"

#define PYROSCOPE_ID_LEN 32 /* number of hex digits in the id at the end of a part */

struct pyroscope_push_config {
    const char *endpoint; /* URL of the server; the API's path is appended to the URL's path */
    const struct br_tls_config *tls;
    const char *proxy_url; /* URL of a proxy; NULL: the proxy is read from the environment */
    const struct br_headers *headers;
    /* value of the Authorization header; NULL: the header is not sent */
    struct br_secret authorization;
    const char *tenant; /* tenant of all requests; NULL: requests have no tenant */
    /* name of the client metadata that contains the tenant, preferred to `tenant`; NULL: not
     * used */
    const char *tenant_metadata;
    bool gzip;
    uint64_t timeout_ms;
    struct br_client_keepalive keepalive;
    unsigned max_connections;
    const struct br_retry_config *retry;
};

struct pyroscope_push;

/* Creates a sender. Copies the config, but not the data that it points to. Returns NULL if
 * memory is short. */
struct pyroscope_push *pyroscope_push_new(struct br_node *node,
                                          const struct pyroscope_push_config *config);

/* Opens the client. Returns the errors of br_host_ops.connect. */
int pyroscope_push_start(struct pyroscope_push *push, struct br_err *err);

struct br_consumer *pyroscope_push_input(struct pyroscope_push *push);

/* Finishes all pending requests, runs loop iterations of the host, and frees the sender. Accepts
 * NULL. */
void pyroscope_push_free(struct pyroscope_push *push);

/* Makes a RawProfileSeries from encoded labels and a pprof. `*ret` is a part with `n_records`
 * samples; the caller owns `ret->buf`. Returns 0 or BR_ENOMEM. */
int pyroscope_part_make(struct br_pool *pool, const uint8_t *labels, size_t labels_len,
                        const struct br_buf *pprof, uint32_t n_records, struct br_part *ret);
