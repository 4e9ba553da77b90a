/* SPDX-License-Identifier: Apache-2.0 */
/* Pyroscope's query API: the methods about series, and functions shared with the methods about
 * stacks. */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "extensions/query/query.h"
#include "extensions/query/selection.h"
#include "querier/v1/querier.pb-c.h"

/* Sets the time range of `selection`. `start` and `end` are Unix milliseconds, both inclusive;
 * an `end` of 0 means no end. On failure, calls query_job_fail with status 400 and returns
 * false. */
bool query_pyroscope_range(struct query_job *job, int64_t start, int64_t end,
                           struct query_selection *selection);

/* Sets the profile type, label selector and time range of `selection`. On failure, calls
 * query_job_fail and returns false. */
bool query_pyroscope_select(struct query_job *job, const char *type, const char *selector,
                            int64_t start, int64_t end, struct query_selection *selection);

/* Sets the call site of `selection`. On failure, calls query_job_fail and returns false. The
 * status is 400 if there are too many functions, or if go_pgo.keep_locations is too large. */
bool query_pyroscope_stacks(struct query_job *job, const Querier__V1__StackTraceSelector *selector,
                            struct query_selection *selection);

/* Returns true if the response must omit label names that need quotes in a selector. Returns
 * false if the header Accept contains `allow-utf8-labelnames=true`. */
bool query_pyroscope_plain_labels_only(const struct query_job *job);

/* Handlers that pyroscope_series.c implements. */
void query_pyroscope_series(struct query_job *job);
void query_pyroscope_select_series(struct query_job *job);
void query_pyroscope_select_heatmap(struct query_job *job);

/* --- Connect ---------------------------------------------------------------------------------- */

/*
 * Reads requests and writes responses of the Connect protocol, for unary calls only. A request and
 * its response are both protobuf (`application/proto`), or both are the JSON mapping of protobuf
 * (`application/json`). Source: connectrpc.com/docs/protocol.
 */

/* Decodes the body into the job's arena. On failure, calls query_job_fail and returns NULL. The
 * status is 415 for another content type, and 400 for a malformed message. */
void *query_connect_read(struct query_job *job, const ProtobufCMessageDescriptor *desc);

/* Responds with a message. */
void query_connect_respond(struct query_job *job, const ProtobufCMessage *message);

/* Responds with the encoded bytes of a message. */
void query_connect_respond_bytes(struct query_job *job, const ProtobufCMessageDescriptor *desc,
                                 const uint8_t *data, size_t len);
