/* SPDX-License-Identifier: Apache-2.0 */
/* Sends responses and errors in the format of each query API. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/query/query.h"

#define SENTENCE_MAX 640

/* --- Errors ---------------------------------------------------------------------------------- */

/* Returns the Connect error code for an HTTP status (connectrpc.com/docs/protocol, "Error
 * codes"). */
static const char *reply_connect_code(unsigned status)
{
    switch (status) {
    case 400:
    case 415:
        return "invalid_argument";
    case 403:
        return "permission_denied";
    case 404:
        return "not_found";
    case 422:
        return "resource_exhausted";
    case 501:
        return "unimplemented";
    case 503:
        return "unavailable";
    case 504:
        return "deadline_exceeded";
    default:
        return "internal";
    }
}

/* Returns the gRPC status for an HTTP status. */
static enum br_status reply_grpc_status(unsigned status)
{
    switch (status) {
    case 200:
        return BR_STATUS_OK;
    case 400:
    case 415:
        return BR_STATUS_INVALID_ARGUMENT;
    case 403:
        return BR_STATUS_PERMISSION_DENIED;
    case 404:
        return BR_STATUS_NOT_FOUND;
    case 422:
        return BR_STATUS_RESOURCE_EXHAUSTED;
    case 501:
        return BR_STATUS_UNIMPLEMENTED;
    case 503:
        return BR_STATUS_UNAVAILABLE;
    case 504:
        return BR_STATUS_DEADLINE_EXCEEDED;
    default:
        return BR_STATUS_INTERNAL;
    }
}

/* Writes an error in the given format, and returns its content type. */
static const char *reply_put_error(struct br_str *out, enum query_errors errors, unsigned status,
                                   const char *text)
{
    if (errors == QUERY_TEXT || errors == QUERY_GRPC) {
        br_str_puts(out, text);
        br_str_puts(out, errors == QUERY_TEXT ? "\n" : "");
        return "text/plain; charset=utf-8";
    }
    if (errors == QUERY_CONNECT)
        br_str_printf(out, "{\"code\":\"%s\",\"message\":", reply_connect_code(status));
    else
        br_str_puts(out, "{\"error\":");
    br_str_json(out, text, strlen(text));
    br_str_putc(out, '}');
    return "application/json";
}

void query_respond_error(struct query *query, struct br_request *request, unsigned status,
                         enum query_errors errors, const char *text)
{
    const struct query_config *config = query->node->config;
    struct br_str out = {.max = SENTENCE_MAX};
    *query->refused += 1;
    if (errors == QUERY_GRPC) {
        br_grpc_refuse(request, reply_grpc_status(status), text);
        return;
    }
    const char *type = reply_put_error(&out, errors, status, text);
    br_http_reply(&config->http, request,
                  &(struct br_http_answer){.status = status,
                                           .delay_ms = status == 503 ? 1000 : 0,
                                           .type = type,
                                           .data = out.data,
                                           .len = out.failed ? 0 : out.len,
                                           .apart = true});
    br_str_release(&out);
}

/* Sets the error response. If the result of the query is incomplete, the status is 503 instead of
 * 404, because the missing data may exist. */
static void reply_set_error(struct query_job *job, unsigned status, const char *text)
{
    bool unknown = status == 404 && br_store_query_remark(&job->store_query);
    br_str_clear(&job->out);
    job->n_headers = 0;
    job->again_ms = 0;
    job->is_packed = false;
    job->status = unknown ? 503 : status;
    job->type = reply_put_error(&job->out, job->route->errors, job->status,
                                unknown ? br_store_query_remark(&job->store_query) : text);
    if (job->status == 503)
        query_job_header(job, "retry-after", "1");
}

void query_job_note(struct query_job *job, const char *text)
{
    if (!job->store->note)
        job->store->note = text;
}

void query_job_fail(struct query_job *job, unsigned status, const char *fmt, ...)
{
    char text[SENTENCE_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    reply_set_error(job, status, text);
}

void query_job_fail_rc(struct query_job *job, int rc, const struct br_err *err)
{
    const char *text = err && err->text[0] ? err->text : br_strerror(rc);
    bool short_of = rc == BR_ENOMEM || rc == BR_EFULL;
    if (short_of && (job->task.scope.full || job->arena.full || job->out.failed))
        query_job_fail(job, 422,
                       "the query needs more than %lld bytes of memory (max_query_memory); use "
                       "a shorter time range or a smaller limit",
                       (long long)job->config->max_query_memory);
    else if (short_of)
        reply_set_error(job, 503, text);
    else if (rc == BR_EINVAL || rc == BR_EUNSUPPORTED || rc == BR_ETOOBIG)
        reply_set_error(job, 400, text);
    else if (rc == BR_ENOTFOUND)
        reply_set_error(job, 404, text);
    else if (rc == BR_ETIMEOUT)
        reply_set_error(job, 504, text);
    else
        reply_set_error(job, 500, text);
}

void query_job_header(struct query_job *job, const char *name, const char *value)
{
    const char *copy = br_arena_strndup(&job->head, value, strlen(value));
    if (copy && job->n_headers < QUERY_HEADERS_MAX)
        job->headers[job->n_headers++] = (struct br_header){name, copy};
    else
        job->out.failed = true;
}

/* --- Responses ------------------------------------------------------------------------------- */

static bool reply_piece(struct query_job *job, const void *data, size_t len)
{
    if (len == 0 || job->head_only)
        return true;
    if (!br_request_write(job->request, data, len, QUERY_PIECES_MAX))
        return false;
    job->sent += len;
    return true;
}

/* Responds to a gRPC call: with the message in the job's response, or with an error status. */
static void reply_grpc(struct query_job *job, struct br_request *request)
{
    char text[SENTENCE_MAX] = "out of memory";
    unsigned status = job->packed ? job->status : 503;
    if (job->packed && status != 200)
        (void)snprintf(text, sizeof text, "%.*s", (int)job->packed->len,
                       (const char *)job->packed->data);
    br_request_reply(request, &(struct br_response){.grpc_status = reply_grpc_status(status),
                                                    .grpc_message = status == 200 ? NULL : text,
                                                    .body = status == 200 ? job->packed : NULL});
}

/* Sends a complete response. The response of a stream is complete if its first call failed or
 * returned all data; sending it also ends the stream. */
static void reply_whole(struct query_job *job)
{
    struct br_request *request = job->request;
    const struct br_http_answer answer = {.status = job->packed || !job->type ? job->status : 503,
                                          .type = job->type,
                                          .headers = job->headers,
                                          .n_headers = job->n_headers,
                                          .body = job->packed,
                                          .apart = true};
    job->request = NULL;
    request->user = NULL;
    if (job->packed && !query_sending_add(job->query, job->packed, request->conn))
        query_respond_error(job->query, request, 503, job->route->errors,
                            "too many responses are waiting for their clients");
    else if (job->route->errors == QUERY_GRPC)
        reply_grpc(job, request);
    else
        br_http_reply(&job->config->http, request, &answer);
}

/* Logs the error of a stream. The client cannot receive the error, because the head with status
 * 200 has already been sent. */
static void reply_drop_error(struct query_job *job)
{
    if (job->packed)
        br_warn(&job->query->node->log, "%s ends early: %.*s", job->path, (int)job->packed->len,
                (const char *)job->packed->data);
    job->packed = br_buf_unref(job->packed);
}

void query_job_reply(struct query_job *job)
{
    if (br_store_query_remark(&job->store_query))
        *job->query->cut += 1;
    if (!job->route->stream || (!job->started && !job->again_ms)) {
        reply_whole(job);
        return;
    }
    if (!job->started) {
        const struct br_http_answer head = {.status = job->status,
                                            .type = job->type,
                                            .headers = job->headers,
                                            .n_headers = job->n_headers,
                                            .stream = true,
                                            .apart = true};
        job->started = true;
        job->started_ms = br_host_mono_ms(job->query->node->host);
        br_http_reply(&job->config->http, job->request, &head);
    }
    if (job->status != 200)
        reply_drop_error(job);
    if (job->packed && !reply_piece(job, job->packed->data, job->packed->len)) {
        job->again_ms = job->route->download ? QUERY_UNREAD_MS : 0;
        if (job->route->download)
            return;
    }
    job->packed = br_buf_unref(job->packed);
}

bool query_job_send_keepalive(struct query_job *job)
{
    static const char comment[] = ":\n\n";
    return reply_piece(job, comment, sizeof comment - 1);
}

void query_job_end_stream(struct query_job *job)
{
    struct br_request *request = job->request;
    if (!request || !job->started)
        return;
    job->request = NULL;
    request->user = NULL;
    if (job->route->download && (job->status != 200 || job->again_ms))
        br_request_break(request);
    else
        br_request_end(request);
}
