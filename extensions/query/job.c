/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs queries. The request is copied, because the client may disconnect while a thread reads the
 * request. A thread makes the whole response and compresses it, and the event loop then sends the
 * response.
 */
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "extensions/query/query.h"

#define HEAD_ARENA_MAX (4u * BR_REQUEST_HEAD_MAX)

static uint64_t job_mono_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool query_job_is_stopped(const struct query_job *job)
{
    return br_task_is_cancelled(&job->task) || job_mono_ms() >= job->deadline_ms;
}

/* --- Copying the request --------------------------------------------------------------------- */

static int job_copy_decoded(struct query_job *job, const char *text, size_t len, bool plus,
                            const char **ret, size_t *ret_len)
{
    char *copy = br_arena_alloc(&job->head, len + 1);
    if (!copy)
        return BR_ENOMEM;
    long n = br_percent_decode(text, len, plus, copy);
    if (n < 0)
        return BR_EINVAL;
    copy[n] = '\0';
    *ret = copy;
    *ret_len = (size_t)n;
    return 0;
}

static int job_copy_param(struct query_job *job, const char *text, size_t len,
                          struct query_param *ret)
{
    const char *equals = memchr(text, '=', len);
    size_t name_len = equals ? (size_t)(equals - text) : len, ignored;
    const char *value = equals ? equals + 1 : text + len;
    int rc = job_copy_decoded(job, text, name_len, true, &ret->name, &ignored);
    return rc ? rc
              : job_copy_decoded(job, value, (size_t)(text + len - value), true, &ret->value,
                                 &ret->len);
}

static int job_copy_params(struct query_job *job, const char *query)
{
    size_t count = 0;
    for (const char *p = query; *p; p += strcspn(p, "&"), p += *p == '&')
        count++;
    if (count > QUERY_PARAMS_MAX)
        return BR_EINVAL;
    struct query_param *params = br_arena_calloc(&job->head, count + 1, sizeof *params);
    if (!params)
        return BR_ENOMEM;
    job->params = params;
    for (const char *p = query; *p;) {
        size_t len = strcspn(p, "&");
        int rc = len ? job_copy_param(job, p, len, &params[job->n_params]) : 0;
        if (rc)
            return rc;
        job->n_params += len > 0;
        p += len + (p[len] == '&');
    }
    return 0;
}

static const char *job_copy_header(struct query_job *job, const struct br_request *request,
                                   const char *name)
{
    const char *value = br_request_header(request, name);
    return value ? br_arena_strndup(&job->head, value, strlen(value)) : "";
}

static int query_job_copy_request(struct query_job *job, const struct br_request *request,
                                  const struct query_part *parts, size_t n_parts)
{
    size_t ignored;
    job->method = strcmp(request->method, "POST") == 0 ? "POST" : "GET";
    job->head_only = strcmp(request->method, "HEAD") == 0;
    job->path = br_arena_strndup(&job->head, request->path, strlen(request->path));
    job->accept = job_copy_header(job, request, "accept");
    job->content_type = job_copy_header(job, request, "content-type");
    job->accept_encoding = job_copy_header(job, request, "accept-encoding");
    job->if_none_match = job_copy_header(job, request, "if-none-match");
    if (!job->path || !job->accept || !job->content_type || !job->accept_encoding ||
        !job->if_none_match)
        return BR_ENOMEM;
    for (; job->n_parts < n_parts; job->n_parts++) {
        const struct query_part *part = &parts[job->n_parts];
        int rc = job_copy_decoded(job, request->path + part->at, part->len, false,
                                  &job->parts[job->n_parts], &ignored);
        if (rc)
            return rc;
    }
    return job_copy_params(job, request->query);
}

/* Returns true if the client accepts gzip (RFC 9110 section 12.5.3). Accept-Encoding must name
 * gzip, and not with q=0. */
static bool job_accepts_gzip(const struct br_request *request)
{
    const char *value = br_request_header(request, "accept-encoding");
    const char *found = value ? strcasestr(value, "gzip") : NULL;
    if (!found)
        return false;
    found += strlen("gzip");
    found += strspn(found, " \t");
    if (*found != ';')
        return true;
    found += 1 + strspn(found + 1, " \t");
    return !br_text_starts_nocase(found, "q=0") ||
           strspn(found + 3, ".0") < strcspn(found + 3, ", \t");
}

/* --- Running a call -------------------------------------------------------------------------- */

static void job_count(const struct query_job *job, int change)
{
    struct query *query = job->query;
    *(query_is_tail(job->route) ? &query->n_tails : &query->n_jobs) += (unsigned)change;
    if (job->route->download)
        query->n_downloads += (unsigned)change;
}

/* Frees the memory that one call of the route's function used, except the packed response.
 * Called in the thread that ran the call, because the store may be closed before the loop
 * handles the end of the call. */
static void job_end_call(struct query_job *job)
{
    if (job->store)
        br_store_query_end(job->store);
    job->store = NULL;
    br_str_release(&job->out);
    br_arena_release(&job->arena);
}

static void query_job_free(struct query_job *job)
{
    if (job->query) {
        br_host_timer_stop(job->query->node->host, &job->timer);
        job_count(job, -1);
    }
    if (job->state)
        job->release(job->state);
    if (job->request)
        job->request->user = NULL;
    br_list_remove(&job->link);
    br_buf_unref(job->packed);
    br_buf_unref(job->body_buf);
    br_task_release(&job->task);
    br_arena_release(&job->head);
    br_free(job);
}

/* Decompresses the body of a POST. */
static int job_read_body(struct query_job *job, struct br_err *err)
{
    struct br_codec *codec;
    struct br_buf *plain = NULL;
    if (!job->body_buf)
        return 0;
    job->body = job->body_buf->data;
    job->body_len = job->body_buf->len;
    if (job->encoding == BR_ENCODING_NONE)
        return 0;
    codec = br_codec_new();
    int rc = codec ? br_decompress(codec, job->encoding, job->body, job->body_len, QUERY_BODY_MAX,
                                   job->task.host.pool, &plain, err)
                   : BR_ENOMEM;
    br_codec_free(codec);
    uint8_t *copy = rc ? NULL : br_arena_alloc(&job->arena, plain->len + 1);
    if (!rc && !copy)
        rc = BR_ENOMEM;
    if (copy) {
        memcpy(copy, plain->data, plain->len);
        job->body = copy;
        job->body_len = plain->len;
    }
    br_buf_unref(plain);
    return rc;
}

static int job_begin_store(struct query_job *job, struct br_err *err)
{
    if (job->route->no_store || job->route->on_loop)
        return 0;
    job->store_query = (struct br_store_query){.store = job->query->store,
                                               .arena = &job->arena,
                                               .deadline_ms = job->deadline_ms,
                                               .max_bytes = (size_t)job->config->max_query_memory};
    int rc = br_store_query_begin(&job->store_query, err);
    if (!rc)
        job->store = &job->store_query;
    return rc;
}

int query_job_restart_store(struct query_job *job, struct br_err *err)
{
    br_store_query_end(job->store);
    job->store = NULL;
    br_arena_release(&job->arena);
    br_arena_init(&job->arena, (size_t)job->config->max_query_memory);
    return job_begin_store(job, err);
}

static void job_handle(struct query_job *job)
{
    struct br_err err = {0};
    int rc = job_read_body(job, &err);
    if (!rc)
        rc = job_begin_store(job, &err);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else if (query_job_is_stopped(job))
        query_job_fail(job, 504, "the query waited longer than query_timeout");
    else
        job->route->handle(job);
    if (br_store_query_remark(&job->store_query) && job->status == 200 && !job->route->stream)
        query_job_header(job, "braid-cut", br_store_query_remark(&job->store_query));
}

/* Moves the response into a buffer that the loop can send. */
static int job_pack(struct query_job *job)
{
    bool gzip = job->accepts_gzip && !job->is_packed && !job->route->stream &&
                job->out.len >= QUERY_GZIP_MIN;
    struct br_pool *pool = job->task.host.pool;
    struct br_rope rope = {0};
    int rc = BR_ENOMEM;
    if (job->out.len == 0) { /* an empty response is valid: it is an empty protobuf message */
        job->packed = job->route->stream ? NULL : br_buf_new_exact(pool, 1);
        return job->packed || job->route->stream ? 0 : BR_ENOMEM;
    }
    if (gzip) {
        struct br_codec *codec = br_codec_new();
        if (codec && br_rope_add(&rope, NULL, job->out.data, job->out.len) == 0)
            rc = br_compress(codec, BR_ENCODING_GZIP, 1, &rope, 0, pool, &job->packed);
        br_rope_release(&rope);
        br_codec_free(codec);
        if (!rc)
            query_job_header(job, "content-encoding", "gzip");
        return rc;
    }
    job->packed = br_buf_new_exact(pool, job->out.len);
    return job->packed ? br_buf_append(&job->packed, job->out.data, job->out.len, job->out.len)
                       : BR_ENOMEM;
}

/* Packs an error response; if that fails too, query_job_reply responds with 503. */
static void job_pack_failed(struct query_job *job)
{
    job->packed = br_buf_unref(job->packed);
    br_str_release(&job->out);
    query_job_fail_rc(job, BR_ENOMEM, NULL);
    if (job->out.failed || job_pack(job))
        job->packed = br_buf_unref(job->packed);
}

static void job_run(struct query_job *job)
{
    br_mem_scope_begin(&job->task.scope, (size_t)job->config->max_query_memory,
                       job->query->node->host->memory);
    br_arena_init(&job->arena, (size_t)job->config->max_query_memory);
    job->out = (struct br_str){.max = (size_t)job->config->max_query_memory};
    job->n_headers = 0;
    job_handle(job);
    if (job->out.failed || job_pack(job))
        job_pack_failed(job);
    job_end_call(job);
    br_mem_scope_end(&job->task.scope);
}

static void job_on_run(struct br_task *task)
{
    job_run(br_container_of(task, struct query_job, task));
}

static void job_start_call(struct query_job *job);

static void job_on_timer(struct br_timer *timer)
{
    struct query_job *job = br_container_of(timer, struct query_job, timer);
    job_start_call(job);
}

/* Schedules the next call of a stream. Frees the job if the call was the last call. */
static void job_schedule_next(struct query_job *job)
{
    struct query *query = job->query;
    job->n_calls++;
    if (!job->request || !job->again_ms || query->node->host->draining ||
        !br_host_timer(query->node->host, &job->timer, job->again_ms, job_on_timer)) {
        query_job_end_stream(job);
        query_job_free(job);
    }
}

static void query_job_on_done(struct br_task *task)
{
    struct query_job *job = br_container_of(task, struct query_job, task);
    job->running = false;
    if (job->packed && job->query) {
        br_buf_adopt(job->packed, job->query->responses);
        br_buf_hold(job->packed, BR_HOLDER_ANSWERS);
    }
    if (job->query && job->request)
        query_job_reply(job);
    if (job->query && job->route->stream && job->request) {
        job_schedule_next(job);
        return;
    }
    query_job_free(job);
}

/* Starts a call: in a thread for slow work, or immediately on the loop. */
static void job_start_call(struct query_job *job)
{
    struct query *query = job->query;
    uint64_t generation = job->route->stream ? br_store_generation(query->store) : 0;
    uint64_t now_ms = br_host_mono_ms(query->node->host);
    /* the client had no room for the previous piece of the response, so that piece is sent first */
    if (job->packed) {
        query_job_reply(job);
        job_schedule_next(job);
        return;
    }
    if (job->n_calls && generation == job->generation && !job->route->download) {
        bool is_idle = now_ms - job->idle_since_ms >= QUERY_KEEPALIVE_MS;
        if (is_idle)
            job->idle_since_ms = now_ms;
        if (is_idle && !query_job_send_keepalive(job))
            job->again_ms = 0;
        job_schedule_next(job);
        return;
    }
    job->generation = generation;
    job->idle_since_ms = now_ms;
    job->again_ms = 0;
    job->status = 200;
    job->type = "application/json";
    job->now_ns = br_host_unix_ns(query->node->host);
    job->deadline_ms = job_mono_ms() + job->config->query_timeout / 1000000;
    if (job->route->on_loop) {
        job_run(job);
        query_job_on_done(&job->task);
        return;
    }
    job->running = true;
    br_task_start(&job->task);
}

struct query_job *query_job_new(struct query *query, struct br_request *request,
                                const struct query_route *route, const struct query_part *parts,
                                size_t n_parts, int *ret_rc)
{
    struct query_job *job = br_calloc(1, sizeof *job);
    *ret_rc = BR_ENOMEM;
    if (!job)
        return NULL;
    *job = (struct query_job){.query = query,
                              .route = route,
                              .config = query->node->config,
                              .accepts_gzip = !request->grpc && job_accepts_gzip(request)};
    br_task_init(&job->task, query->node->host, job_on_run, query_job_on_done);
    job->task.work.kind = BR_WORK_SLOW;
    br_list_append(&query->jobs, &job->link);
    job_count(job, 1);
    br_arena_init(&job->head, HEAD_ARENA_MAX);
    int rc = br_task_add_pool(&job->task, NULL);
    if (!rc)
        rc = query_job_copy_request(job, request, parts, n_parts);
    if (rc) {
        query_job_free(job);
        *ret_rc = rc;
        return NULL;
    }
    job->request = request;
    request->user = job;
    return job;
}

/* Reads the content coding of the body. Returns false if the coding is not supported. */
static bool job_read_encoding(struct query_job *job, const struct br_request *request)
{
    if (!request->grpc)
        return br_http_encoding(&job->config->http, request, &job->encoding);
    const char *name = br_request_header(request, "grpc-encoding");
    job->encoding = BR_ENCODING_NONE;
    return !request->grpc_compressed ||
           (name && br_encoding_parse(name, strlen(name), &job->encoding));
}

void query_job_start(struct query_job *job)
{
    struct br_request *request = job->request;
    struct query *query = job->query;
    const char *why = NULL;
    unsigned status = 0;
    if (request->body_error == BR_BODY_TOO_BIG) {
        status = 400;
        why = "the body is longer than 1 MiB";
    } else if (request->body_error == BR_BODY_MALFORMED) {
        status = 400;
        why = "the body is not a single gRPC message";
    } else if (request->body_error) {
        status = 503;
        why = "out of memory";
    } else if (!job_read_encoding(job, request)) {
        status = 415;
        why = "this Content-Encoding is not supported";
    } else if (!job->route->on_loop && !job->route->no_store && !br_store_is_open(query->store)) {
        status = 503;
        why = "the store is not open";
    }
    if (status) {
        job->request = NULL;
        request->user = NULL;
        query_respond_error(query, request, status, job->route->errors, why);
        query_job_free(job);
        return;
    }
    job->body_buf = request->body ? br_buf_ref(request->body) : NULL;
    job_start_call(job);
}

void query_job_gone(struct query_job *job)
{
    job->request->user = NULL;
    job->request = NULL;
    if (job->running)
        br_task_cancel(&job->task);
    else
        query_job_free(job);
}

size_t query_jobs_on(const struct query *query, const struct br_conn *conn)
{
    size_t n = query_sending_on(query, conn);
    for (const struct br_list *list = query->jobs.next; list != &query->jobs; list = list->next) {
        const struct query_job *job = br_container_of(list, struct query_job, link);
        n += job->request && job->request->conn == conn;
    }
    return n;
}

/* Ends the first stream for which `fn` returns true. Skips streams that a thread is running.
 * Returns true if a stream was ended. */
static bool jobs_end_first(struct query *query, bool (*fn)(const struct query_job *job))
{
    for (struct br_list *list = query->jobs.next; list != &query->jobs; list = list->next) {
        struct query_job *job = br_container_of(list, struct query_job, link);
        if (!job->route->stream || job->running || !job->started || !fn(job))
            continue;
        query_job_end_stream(job);
        query_job_free(job);
        return true;
    }
    return false;
}

static bool job_is_tail(const struct query_job *job)
{
    return query_is_tail(job->route);
}

bool query_jobs_end_tail(struct query *query)
{
    return jobs_end_first(query, job_is_tail);
}

static bool job_is_read_slowly(const struct query_job *job)
{
    uint64_t ms = br_host_mono_ms(job->query->node->host) - job->started_ms;
    return job->route->download && job->packed && ms >= QUERY_DOWNLOAD_MIN_MS &&
           job->sent / ms * 1000 < QUERY_DOWNLOAD_RATE;
}

bool query_jobs_end_download(struct query *query)
{
    return jobs_end_first(query, job_is_read_slowly);
}

static bool job_is_stream(const struct query_job *job)
{
    return job->route->stream;
}

void query_jobs_end_streams(struct query *query)
{
    while (jobs_end_first(query, job_is_stream))
        ;
}

/* Waits for running jobs, because these jobs read memory that is freed after this function. The
 * `done` callback of a running job finds that job->query is NULL. */
void query_jobs_release(struct query *query)
{
    struct br_list *list;
    while ((list = br_list_shift(&query->jobs))) {
        struct query_job *job = br_container_of(list, struct query_job, link);
        if (!job->running) {
            query_job_free(job);
            continue;
        }
        br_task_stop(&job->task);
        if (job->request)
            job->request->user = NULL;
        job->request = NULL;
        job_count(job, -1);
        job->query = NULL;
    }
}
