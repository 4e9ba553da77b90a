/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/pyroscope.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "otlp/json/json.h"

#define PROTO "application/proto"
#define JSON "application/json"
#define DEPTH_MAX 16

static bool connect_is_type(const struct query_job *job, const char *type)
{
    size_t len = strcspn(job->content_type, "; \t");
    return br_bytes_are_nocase(job->content_type, len, type);
}

static int connect_decode_json(struct query_job *job, const ProtobufCMessageDescriptor *desc,
                               const uint8_t **ret, size_t *ret_len, struct br_err *err)
{
    struct br_buf *made = NULL;
    const char *text = job->body_len ? (const char *)job->body : "{}";
    int rc = br_json_decode(desc, text, job->body_len ? job->body_len : 2, DEPTH_MAX,
                            2 * QUERY_BODY_MAX, job->task.host.pool, &made, err);
    if (rc)
        return rc;
    uint8_t *copy = br_arena_alloc(&job->arena, made->len + 1);
    if (copy) {
        memcpy(copy, made->data, made->len);
        *ret = copy;
        *ret_len = made->len;
    }
    br_buf_unref(made);
    return copy ? 0 : br_arena_why(&job->arena);
}

void *query_connect_read(struct query_job *job, const ProtobufCMessageDescriptor *desc)
{
    const uint8_t *data = job->body;
    size_t len = job->body_len;
    struct br_err err = {0};
    int rc = 0;
    if (connect_is_type(job, JSON)) {
        rc = connect_decode_json(job, desc, &data, &len, &err);
    } else if (!connect_is_type(job, PROTO)) {
        query_job_header(job, "accept-post", PROTO ", " JSON);
        query_job_fail(job, 415, "Content-Type must be " PROTO " or " JSON);
        return NULL;
    }
    void *message =
        rc ? NULL : protobuf_c_message_unpack(desc, br_arena_pb(&job->arena), len, data);
    if (message)
        return message;
    if (rc || job->arena.full)
        query_job_fail_rc(job, rc ? rc : BR_EFULL, &err);
    else
        query_job_fail(job, 400, "the body is not a valid %s", desc->name);
    return NULL;
}

void query_connect_respond_bytes(struct query_job *job, const ProtobufCMessageDescriptor *desc,
                                 const uint8_t *data, size_t len)
{
    int rc = 0;
    if (connect_is_type(job, JSON)) {
        rc = br_json_encode(desc, data, len, &job->out);
    } else {
        job->type = PROTO;
        br_str_add(&job->out, data, len);
    }
    if (rc)
        query_job_fail_rc(job, rc, NULL);
}

void query_connect_respond(struct query_job *job, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *data = br_arena_alloc(&job->arena, size + 1);
    if (!data) {
        query_job_fail_rc(job, br_arena_why(&job->arena), NULL);
        return;
    }
    size_t len = protobuf_c_message_pack(message, data);
    query_connect_respond_bytes(job, message->descriptor, data, len);
}
