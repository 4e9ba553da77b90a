/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves OTLP on a receiver's listeners, as opentelemetry-proto docs/specification.md 1.11 defines.
 * A receiver's `begin` calls br_otlp_begin_grpc or br_otlp_begin_http for each request. These
 * functions return false for requests that are not OTLP, and handle all other requests completely.
 */
#pragma once

#include "ingest/upload.h"
#include "otlp/walk/walk.h"

struct br_otlp_handler {
    unsigned max_depth; /* maximum nesting depth of a message: br_walk_options.max_depth */
    enum br_utf8_policy utf8;
    unsigned signals; /* signals that are served over gRPC, as a bit set of BR_SIGNAL_BIT */
    /* HTTP path of each signal; NULL: the signal is not served over HTTP */
    const char *paths[BR_SIGNALS];
    /* true: large items are not cut into pieces (pieces.h). Set by receivers that need one result
     * for each item, because pieces can be rejected separately */
    bool whole;
    bool more_types; /* true: the content type application/protobuf is also accepted */
    const struct br_node *node;
    double *repaired, *corrected;
    /* hashes of the addresses of clients whose requests without records were already logged */
    uint64_t noted[256];
    unsigned n_noted;
};

/* Creates the metrics of `node`. The caller sets max_depth, utf8, signals, paths and more_types. */
void br_otlp_handler_init(struct br_otlp_handler *handler, struct br_node *node);

/* Reads a request of reading->signal and reading->format. reading->arg is a struct br_otlp_handler,
 * of which max_depth, utf8, whole and node are used. A br_read_fn. */
int br_otlp_read(struct br_reading *reading);

/* --- Functions for receivers that convert other formats to OTLP ------------------------------- */

/* Makes reading->item from br_reading_bytes, which is an OTLP request, and cuts the item into
 * pieces if it is large. max_depth, utf8, whole and node of the handler are used. Returns 0,
 * BR_EAGAIN if the request is too large to be walked at once, or an error of br_walk. */
int br_otlp_walk(struct br_reading *reading, const struct br_otlp_handler *handler);

/* Replaces invalid UTF-8 in the JSON text that br_reading_bytes returns. Returns 0 if the text was
 * changed. Returns BR_EINVAL if the text is already valid or would become too large. Returns
 * BR_ENOMEM if memory is short. */
int br_otlp_repair_text(struct br_reading *reading);

/* Counts the strings that were repaired during a successful reading. */
void br_otlp_count_repaired(struct br_otlp_handler *handler, const struct br_reading *reading);

/* --- Requests --------------------------------------------------------------------------------- */

/* Begins a gRPC call (br_grpc_is) or an HTTP request that arrived on the listener. If the path is
 * not an OTLP path, does nothing and returns false. Otherwise returns true, and the request has
 * been answered or will be answered. */
bool br_otlp_begin_grpc(struct br_otlp_handler *handler, struct br_ingest_listener *listener,
                        struct br_meter *meter, struct br_request *request);
bool br_otlp_begin_http(struct br_otlp_handler *handler, struct br_ingest_listener *listener,
                        struct br_meter *meter, struct br_request *request);

/* Answers a request with the outcome of its item. `http` is NULL for gRPC. */
void br_otlp_reply(struct br_request *request, enum br_signal signal, enum br_upload_format format,
                   const struct br_outcome *outcome, const struct br_http_config *http);

/* Answers an invalid export request with the HTTP status `code` and the reason `why`, in the
 * content type of the request. */
void br_otlp_refuse(struct br_request *request, unsigned code, const char *why,
                    const struct br_http_config *http);
