/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and answers messages of the Connect protocol, unary: protobuf (`application/proto`) or its
 * JSON mapping
 * (`application/json`), the same both ways. Source: connectrpc.com/docs/protocol.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "extensions/query/query.h"

/* Decodes the body into the job's arena. NULL after query_job_fail: 415 for another content type,
 * 400 for what is no such message. */
void *query_connect_read(struct query_job *job, const ProtobufCMessageDescriptor *desc);

/* Answers with a message. */
void query_connect_answer(struct query_job *job, const ProtobufCMessage *message);

/* Answers as query_connect_answer, with the message's bytes. */
void query_connect_answer_bytes(struct query_job *job, const ProtobufCMessageDescriptor *desc,
                                const uint8_t *data, size_t len);
