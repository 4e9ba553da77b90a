/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads requests and writes responses of the Connect protocol, unary calls only. Both are protobuf
 * (`application/proto`) or both are its JSON mapping (`application/json`). Source:
 * connectrpc.com/docs/protocol.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "extensions/query/query.h"

/* Decodes the body into the job's arena. Returns NULL after query_job_fail: 415 for another
 * content type, 400 for a malformed message. */
void *query_connect_read(struct query_job *job, const ProtobufCMessageDescriptor *desc);

/* Responds with a message. */
void query_connect_respond(struct query_job *job, const ProtobufCMessage *message);

/* Responds with the encoded bytes of a message. */
void query_connect_respond_bytes(struct query_job *job, const ProtobufCMessageDescriptor *desc,
                                 const uint8_t *data, size_t len);
