/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types and functions that the files of the query extension share. It is an HTTP server that
 * answers questions about what the store keeps. query.c has the config, the listener and who may
 * ask, route.c finds the route of a path, job.c runs it. Each API has a file and a table of routes.
 *
 * A query never runs on a worker's loop. Its handler runs in a thread of the pool, in a scope
 * (base/mem.h) of `max_query_memory` bytes out of the process's budget: body, parameters, what the
 * store returns, the answer and its compression. br_malloc fails there when the scope or the budget
 * is full, and query_job_fail_rc says which. A query that was not answered within `query_timeout`
 * from its head on is cut; a client that goes away stops it.
 *
 * To add an API: a table of routes that ends with a zeroed one, named in query_tables (route.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/str.h"
#include "core/masked.h"
#include "core/task.h"
#include "ingest/http.h"
#include "net/hosts.h"
#include "pipeline/component.h"
#include "storage/store.h"

#define QUERY_BODY_MAX (1u << 20) /* of a POST, also after decompression */
#define QUERY_PARTS_MAX 4         /* `*` in a route's path */
#define QUERY_PARAMS_MAX 256      /* parameters of a request */
#define QUERY_HEADERS_MAX BR_HTTP_ANSWER_HEADERS
#define QUERY_GZIP_MIN 1024         /* bytes of an answer that is worth compressing */
#define QUERY_JOBS_MAX 1024         /* the most that max_concurrent can be */
#define QUERY_CONNECTION_SHARE 2    /* the part of max_concurrent that one connection has */
#define QUERY_PIECES_MAX (1u << 20) /* bytes of a stream that a client has not read */
#define QUERY_QUIET_MS 15000        /* after which a stream says that it is alive */
#define QUERY_UNREAD_MS 20          /* until a download looks again whether it was read */
#define QUERY_DOWNLOADS_MAX 1       /* of a worker, at a time */
#define QUERY_DOWNLOAD_RATE 65536   /* bytes a second; one that is read more slowly */
#define QUERY_DOWNLOAD_MIN_MS 10000 /* after this time makes room for another */

struct query_config {
    struct br_http_config http; /* first */
    struct br_strings allowed_hosts;
    const char *store;
    uint64_t query_timeout;
    int64_t max_query_memory, max_concurrent;
};

struct query {
    struct br_handler service; /* first */
    struct br_node *node;
    struct br_hosts hosts;
    struct br_store *store;
    struct br_masked *masked;
    struct br_server *server;
    struct br_list jobs; /* of struct query_job */
    unsigned n_jobs;     /* of them, those that are not tails */
    unsigned n_tails, n_downloads;
    struct br_pool *answers; /* the buffers of `sending` */
    struct br_list sending;  /* of struct query_sending: answers that are on their way */
    unsigned n_sending;      /* of them, those that were not cut off */
    size_t sending_bytes;
    double *requests, *refused, *cut, *cut_off;
    uint64_t started_ns; /* Unix */
    char name[160];
};

struct query_job;

enum query_method { QUERY_GET = 1, QUERY_POST = 2 }; /* a GET is also a HEAD */

/* How an error reads. */
enum query_errors {
    QUERY_TEXT,    /* text/plain, the sentence alone: Tempo's */
    QUERY_JSON,    /* {"error":"..."}: Braid's own */
    QUERY_CONNECT, /* {"code":"invalid_argument","message":"..."}: the Connect protocol's */
    QUERY_GRPC, /* a status and its message: the route is one of gRPC, body and answer a message */
};

/* One path. A segment `*` stands for any one segment, and `**` at the end for all the rest; what
 * they stand for is decoded in job->parts. */
struct query_route {
    unsigned methods; /* of enum query_method */
    const char *path;
    void (*handle)(struct query_job *job);
    enum query_errors errors;
    bool at_once;  /* constant answers: `handle` runs on the loop, without a store, and is short */
    bool no_store; /* runs in a thread, and job->store is not begun */
    /* The answer is a stream: `handle` is called again and again, `again_ms` after each end, and
     * what it appended to `out` is a piece. It is not called while nothing was written to the
     * store. `turn` counts its calls; status and headers are those of the first. */
    bool stream;
    /* A stream that is not about what comes: it is called at once, and with each piece waits for
     * the client to read. One that fails after its head, or that the server's end stops, ends as a
     * broken transfer. Of these a worker has QUERY_DOWNLOADS_MAX at a time. */
    bool download;
};

/* Returns true for a stream that waits for new data: tails are counted separately. */
static inline bool query_is_tail(const struct query_route *route)
{
    return route->stream && !route->download;
}

struct query_param {
    const char *name, *value; /* decoded, terminated */
    size_t len;               /* of the value */
};

/* One request on its way. In `handle` everything below `--- of the handler` belongs to it. */
struct query_job {
    struct br_task task;
    struct br_list link; /* query->jobs */
    struct query *query;
    struct br_request *request; /* NULL: the client went away. The loop's alone */
    struct br_buf *packed;      /* the answer as it is sent; made in the task's pool */
    struct br_buf *body_held;
    struct br_arena head; /* what the request said: lives as long as the job */
    struct br_timer timer;
    uint64_t deadline_ms;          /* CLOCK_MONOTONIC */
    uint64_t generation, quiet_ms; /* of a stream: what it has seen of the store; since when */
    uint64_t started_ms, sent;     /* of a stream: when its head was sent; bytes of its pieces */
    bool begun, started;           /* a thread has it; the stream has its head */
    bool head_only, wants_gzip;
    enum br_encoding encoding; /* of the body */

    /* --- of the handler --- */
    const struct query_route *route;
    const struct query_config *config;
    const char *method;
    const char *path;
    const char *parts[QUERY_PARTS_MAX]; /* what stands for each `*` of the route */
    size_t n_parts;
    const struct query_param *params; /* in the order of the query */
    size_t n_params;
    const char *accept, *content_type; /* "" where the request does not say */
    const char *accept_encoding, *if_none_match;
    const uint8_t *body; /* of a POST, decompressed */
    size_t body_len;
    uint64_t now_ns;              /* when the request came; of a stream, when it was called */
    struct br_arena arena;        /* for anything; empty at each call, bounded by the scope */
    struct br_store_query *store; /* begun, in `arena`; NULL for no_store and at_once */
    uint64_t turn;                /* of a stream: calls before this one */
    uint64_t cursor[8];           /* of a stream: the handler's own between calls, 0 at first */
    void *kept;                   /* of a stream: the same, */
    void (*release)(void *kept);  /* and how it is freed with the job, in the loop */
    unsigned again_ms;            /* of a stream: until the next call; 0: the stream ends */
    /* The answer. */
    unsigned status;  /* 200 unless it is set */
    const char *type; /* "application/json" unless it is set; constant */
    bool is_packed;   /* `out` has the coding that a header names, and is sent as it is */
    struct br_str out;
    struct br_header headers[QUERY_HEADERS_MAX]; /* of query_job_header */
    size_t n_headers;
    struct br_store_query begun_store;
};

/* --- For handlers (params.c, reply.c) --------------------------------------------------------- */

/* Returns the first parameter of the name, or NULL. */
const char *query_job_param(const struct query_job *job, const char *name);

/* Reads a parameter that is a whole number from 0 to `max`; `otherwise` where it is not there or
 * empty. False after query_job_fail (400). */
bool query_job_number(struct query_job *job, const char *name, uint64_t otherwise, uint64_t max,
                      uint64_t *ret);

/* Reads a point in time, as Unix nanoseconds: Unix s, ms, us or ns, told apart by their size (a
 * fraction of seconds is taken), RFC 3339, or `now`, `now-1h`. `otherwise` where it is not there or
 * empty. False after query_job_fail (400). */
bool query_job_time(struct query_job *job, const char *name, uint64_t otherwise, uint64_t *ret);

/* Returns true when the client is gone, or time is up: then the handler ends soon, with what it
 * has. Cheap. */
bool query_job_is_stopped(const struct query_job *job);

/* Answers with an error, instead of anything that is in `out`. A 404 of a query that was cut is a
 * 503: nobody knows. */
void query_job_fail(struct query_job *job, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails the job by a code: BR_EINVAL and BR_EUNSUPPORTED 400, BR_ENOTFOUND 404, BR_ETIMEOUT 504;
 * where memory was short, 422 when the query needs more than max_query_memory and 503 when the
 * process has too little now; others 500. */
void query_job_fail_rc(struct query_job *job, int rc, const struct br_err *err);

/* Begins the store's query anew, within the same time: what it gave is gone, and so is all that is
 * in `arena`. For handlers that go through more than they may hold. Returns 0 or as
 * br_store_query_begin; after a failure there is no store. */
int query_job_restart_store(struct query_job *job, struct br_err *err);

/* Adds a header to the answer; `name` is constant, in lower case, the value is copied.
 * An answer with more than QUERY_HEADERS_MAX of them, or without memory for one, fails. */
void query_job_header(struct query_job *job, const char *name, const char *value);

/* --- The extension's own ---------------------------------------------------------------------- */

/* The route of a path, and what stands for its `*` in `ret_parts` (not decoded, by offset and
 * length in `path`). NULL when there is none; `*ret_methods` is 0 then unless the path has routes
 * for other methods. */
struct query_part {
    size_t at, len;
};
const struct query_route *query_route_find(const char *path, unsigned method,
                                           struct query_part ret_parts[QUERY_PARTS_MAX],
                                           size_t *ret_n_parts, unsigned *ret_methods);

/* Makes a job of a request whose head has come. NULL, and nothing is answered, without memory or
 * with BR_EINVAL in `*ret_rc` for a query with a broken escape or too many parameters. */
struct query_job *query_job_new(struct query *query, struct br_request *request,
                                const struct query_route *route, const struct query_part *parts,
                                size_t n_parts, int *ret_rc);

/* Runs the job, whose body is complete. */
void query_job_start(struct query_job *job);

/* Notes that the client went away. */
void query_job_gone(struct query_job *job);

/* Returns how many places (jobs and answers on their way) a connection has taken. */
size_t query_jobs_on(const struct query *query, const struct br_conn *conn);

/* Ends the tail that has been open for the longest, or a download that is read too slowly. Returns
 * whether it found one. */
bool query_jobs_end_tail(struct query *query);
bool query_jobs_end_download(struct query *query);

/* Ends those that stream: nothing else would end them. */
void query_jobs_end_streams(struct query *query);

/* Waits for those that run, and frees all. */
void query_jobs_release(struct query *query);

/* --- Answers on their way (sending.c) ----------------------------------------------------------
 */

/* Begins to watch answers, whose buffers query->answers adopts. Returns 0 or BR_ENOMEM. */
int query_sending_init(struct query *query);

/* When the server's connections are gone. */
void query_sending_release(struct query *query);

/* Counts an answer, which is about to be sent on `conn`, until its buffer has left. False if
 * the answers' share of the memory is used up, or without memory. */
bool query_sending_add(struct query *query, const struct br_buf *buf, struct br_conn *conn);

/* Cuts off the client that has been reading an answer for the longest. False when nobody has for
 * more than a second. */
bool query_sending_make_room(struct query *query);

/* Returns how many answers are on their way on a connection. */
size_t query_sending_on(const struct query *query, const struct br_conn *conn);

/* --- Replies (reply.c) --------------------------------------------------------------------------
 */

/* Answers a request that has no job. */
void query_answer_error(struct query *query, struct br_request *request, unsigned status,
                        enum query_errors errors, const char *text);

/* Sends the answer of a job, or the next piece of its stream. In the loop. */
void query_job_reply(struct query_job *job);

/* Sends a comment of an event stream. False when the client has not read what it was sent. */
bool query_job_send_quiet(struct query_job *job);

/* Ends a stream that has begun, a download that is not whole as a broken one; nothing otherwise. */
void query_job_end_stream(struct query_job *job);
