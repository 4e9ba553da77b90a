/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves OTLP on a receiver's listeners, by opentelemetry-proto docs/specification.md 1.11. Asked
 * about a request in `begin`, it says whether the request is its own, and then does the rest.
 */
#pragma once

#include "ingest/upload.h"
#include "otlp/walk/walk.h"

struct br_otlp_handler {
    unsigned max_depth; /* br_walk_options */
    enum br_utf8_policy utf8;
    unsigned signals;              /* BR_SIGNAL_BIT of those that gRPC methods are there for */
    const char *paths[BR_SIGNALS]; /* HTTP; NULL: not served */
    bool more_types;               /* application/protobuf is taken as well */
    const struct br_node *node;
    double *repaired, *corrected;
    uint64_t noted[256]; /* hashes of addresses whose requests held nothing */
    unsigned n_noted;
};

/* Makes the metrics of `node`. The caller sets the fields down to more_types. */
void br_otlp_handler_init(struct br_otlp_handler *handler, struct br_node *node);

/* Begins a gRPC call (br_grpc_is) that came by the listener, or an HTTP request. False, with
 * nothing done, when its path is none of OTLP's; true: the request is taken care of. */
bool br_otlp_begin_grpc(struct br_otlp_handler *handler, struct br_ingest_listener *listener,
                        struct br_meter *meter, struct br_request *request);
bool br_otlp_begin_http(struct br_otlp_handler *handler, struct br_ingest_listener *listener,
                        struct br_meter *meter, struct br_request *request);

/* Answers a request with an item's outcome; `http` is NULL for gRPC. */
void br_otlp_reply(struct br_request *request, enum br_signal signal, enum br_upload_format format,
                   const struct br_outcome *outcome, const struct br_http_config *http);

/* Refuses what is no export request with an HTTP code, and says why, in the type that it came in.
 */
void br_otlp_refuse(struct br_request *request, unsigned code, const char *why,
                    const struct br_http_config *http);
