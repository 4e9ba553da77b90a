/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files of the query extension, an HTTP server for queries about stored
 * data. query.c contains the configuration, listener and access control, route.c finds the route of
 * a path, and job.c runs the route's handler. Each API has its own files and a table of routes.
 *
 * A query never runs on the loop of a worker. The handler of a query runs in a thread of the pool.
 * The memory of the query is limited by a scope (base/mem.h) of `max_query_memory` bytes within the
 * memory budget of the process. The scope covers the body, parameters, returned data, the response
 * and its compression. If the scope or the budget is full, br_malloc fails, and query_job_fail_rc
 * reports whether the scope or the budget is full. A query is cut short when `query_timeout` has
 * elapsed since its head arrived, and stops when its client disconnects.
 *
 * To add an API, write a table of routes whose last route is zeroed, and list it in query_tables
 * (route.c).
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
#include "extensions/query/session.h"
#include "ingest/http.h"
#include "ingest/http_service.h"
#include "storage/store.h"

/* maximum number of bytes of the body of a POST, before and after decompression */
#define QUERY_BODY_MAX (1u << 20)
#define QUERY_PARTS_MAX 4    /* maximum number of `*` segments in the path of a route */
#define QUERY_PARAMS_MAX 256 /* maximum number of parameters of a request */
#define QUERY_HEADERS_MAX BR_HTTP_ANSWER_HEADERS
#define QUERY_GZIP_MIN 1024 /* responses with fewer bytes are not compressed */
#define QUERY_JOBS_MAX 1024 /* largest value of the option max_concurrent */
/* each connection may run at most max_concurrent divided by QUERY_CONNECTION_SHARE queries */
#define QUERY_CONNECTION_SHARE 2
/* maximum number of bytes of a stream that are sent before the client has read them */
#define QUERY_PIECES_MAX (1u << 20)
/* milliseconds without data after which an event stream sends a comment */
#define QUERY_KEEPALIVE_MS 15000
/* milliseconds until a download checks again whether its client has read the previous piece */
#define QUERY_UNREAD_MS 20
#define QUERY_DOWNLOADS_MAX                                                                        \
    1 /* maximum number of downloads that a worker runs at the same time                           \
       */
/* bytes per second; a slower download may be ended to make room for a new one */
#define QUERY_DOWNLOAD_RATE 65536
/* milliseconds after which a slow download may be ended */
#define QUERY_DOWNLOAD_MIN_MS 10000

struct query_config {
    struct br_http_config http; /* must be the first member */
    struct br_strings allowed_hosts;
    const char *store;
    uint64_t query_timeout;
    int64_t max_query_memory, max_concurrent;
};

struct query {
    struct br_http_service service;
    struct br_node *node;
    struct br_store *store;
    struct br_masked *masked;
    struct query_sessions sessions;
    struct br_list jobs; /* list of struct query_job, one for each request in progress */
    unsigned n_jobs;     /* number of jobs that are not tails (query_is_tail) */
    unsigned n_tails, n_downloads;
    struct br_pool *responses; /* pool that owns the buffers of responses being sent */
    struct br_list sending;    /* list of struct query_sending, each a response being sent */
    /* number of responses in `sending` whose client has not been cut off */
    unsigned n_sending;
    size_t sending_bytes;
    double *requests, *refused, *cut, *cut_off;
    uint64_t started_ns; /* Unix time in nanoseconds at which the extension started */
};

struct query_job;

/* bits for the methods of a route; GET includes HEAD */
enum query_method { QUERY_GET = 1, QUERY_POST = 2 };

/* Format of an error response. */
enum query_errors {
    QUERY_TEXT, /* text/plain with the message only, as in Tempo */
    QUERY_JSON, /* {"error":"..."}, the format of Braid's own API */
    /* {"code":"invalid_argument","message":"..."}, the format of the Connect protocol */
    QUERY_CONNECT,
    /* a gRPC status and its message; the body and the response of the route are gRPC messages */
    QUERY_GRPC,
};

/* A path and its handler. In the path, `*` matches one segment, and `**` at the end matches all
 * remaining segments. job->parts contains the decoded matches. */
struct query_route {
    unsigned methods; /* methods of the route, as bits of enum query_method */
    const char *path;
    void (*handle)(struct query_job *job);
    enum query_errors errors;
    bool on_loop;  /* the handler is short and needs no store, so it runs on the loop */
    bool no_store; /* the handler runs in a thread, but job->store is NULL */
    /* The response is a stream. `handle` is called repeatedly, `again_ms` milliseconds after the
     * end of each call, and appends a piece to `out`. `handle` is not called while the store has
     * no new data. The first call sets the status and headers. */
    bool stream;
    /* The response is a stream of existing data. `handle` is called again immediately, as fast
     * as the client reads. If a later call fails, or the server stops, the connection is closed
     * before the end of the response. A worker runs at most QUERY_DOWNLOADS_MAX downloads. */
    bool download;
};

/* Returns true for a route whose stream waits for new data. Jobs of such routes (tails) are
 * counted separately. */
static inline bool query_is_tail(const struct query_route *route)
{
    return route->stream && !route->download;
}

struct query_param {
    const char *name, *value; /* name and value of the parameter, decoded and NUL-terminated */
    size_t len;               /* length of `value` in bytes */
};

/* A request being processed. While `handle` runs, the fields below "used by the handler" belong
 * to the handler. */
struct query_job {
    struct br_task task;
    struct br_list link; /* link in query->jobs */
    struct query *query;
    /* the client's request, used only on the loop; NULL: the client disconnected */
    struct br_request *request;
    struct br_buf *packed; /* the response to be sent, allocated in the task's pool */
    struct br_buf *body_buf;
    struct br_arena head; /* arena of the copied request; valid as long as the job */
    struct br_timer timer;
    /* time at which the query is cut short, in milliseconds of CLOCK_MONOTONIC */
    uint64_t deadline_ms;
    /* for a stream: generation of the store at the last call, and the time when something was
     * last sent, in milliseconds of the monotonic clock */
    uint64_t generation, idle_since_ms;
    /* for a stream: time when its head was sent, in milliseconds of the monotonic clock, and the
     * number of bytes of its pieces */
    uint64_t started_ms, sent;
    /* `running`: a thread runs the job; `started`: the head of the stream was sent */
    bool running, started;
    bool head_only, accepts_gzip;
    enum br_encoding encoding; /* content coding of the request body */

    /* --- used by the handler --- */
    const struct query_route *route;
    const struct query_config *config;
    const char *method;
    const char *path;
    const char *parts[QUERY_PARTS_MAX]; /* decoded match of each `*` in the route */
    size_t n_parts;
    const struct query_param *params; /* parameters in the order of the query string */
    size_t n_params;
    const char *accept, *content_type; /* values of request headers; "" if the header is missing */
    const char *accept_encoding, *if_none_match;
    const uint8_t *body; /* body of a POST, decompressed */
    size_t body_len;
    /* Unix time of the request in nanoseconds; for a stream, time of the current call of
     * `handle` */
    uint64_t now_ns;
    /* arena for temporary data, empty at the beginning of each call; limited by task.scope */
    struct br_arena arena;
    /* an open query of the store, whose data is in `arena`; NULL if the route has no_store or
     * on_loop */
    struct br_store_query *store;
    uint64_t n_calls; /* for a stream: number of calls before this one */
    /* for a stream: numbers that the handler keeps between calls; 0 at first */
    uint64_t cursor[8];
    /* for a stream: pointer that the handler keeps between calls; NULL at first */
    void *state;
    void (*release)(void *state); /* frees `state`; called on the loop when the job is freed */
    /* for a stream: milliseconds before the next call; 0: the stream ends */
    unsigned again_ms;
    /* The response. */
    unsigned status;  /* HTTP status; 200 by default */
    const char *type; /* content type, a constant; "application/json" by default */
    bool is_packed;   /* `out` is already compressed, with the coding named in a header, and is sent
                         unchanged */
    struct br_str out;
    /* headers of the response, set by query_job_header */
    struct br_header headers[QUERY_HEADERS_MAX];
    size_t n_headers;
    struct br_store_query store_query;
};

/* --- Functions for handlers (params.c, reply.c) ----------------------------------------------- */

/* Returns the value of the first parameter with this name, or NULL. */
const char *query_job_param(const struct query_job *job, const char *name);

/* Reads the parameter `name` as an integer from 0 to `max`. Uses `fallback` if the parameter is
 * missing or empty. On failure, calls query_job_fail with status 400 and returns false. */
bool query_job_number(struct query_job *job, const char *name, uint64_t fallback, uint64_t max,
                      uint64_t *ret);

/* Reads the parameter `name` as a time, in Unix nanoseconds. Accepts RFC 3339, `now`, `now-1h`,
 * and Unix times in s, ms, us or ns, which are distinguished by their size. Seconds may have a
 * fraction. Uses `fallback` if the parameter is missing or empty. On failure, calls
 * query_job_fail with status 400 and returns false. */
bool query_job_time(struct query_job *job, const char *name, uint64_t fallback, uint64_t *ret);

/* Returns true if the client has disconnected or the time of the query is up. The handler should
 * then end soon, with its partial result. The call is cheap. */
bool query_job_is_stopped(const struct query_job *job);

/* Sets the reason why the result is incomplete or differs from the request (br_store_query.note).
 * Keeps an earlier reason. `text` must be constant. */
void query_job_note(struct query_job *job, const char *text);

/* Makes the response an error and discards `out`. If the query was cut short, a 404 becomes a
 * 503, because the data may exist. */
void query_job_fail(struct query_job *job, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes the response an error for the code `rc`:
 *
 * - 400 for BR_EINVAL, BR_EUNSUPPORTED and BR_ETOOBIG
 * - 404 for BR_ENOTFOUND
 * - 504 for BR_ETIMEOUT
 * - 422 if the query exceeded max_query_memory
 * - 503 if the memory budget of the process is used up
 * - 500 otherwise */
void query_job_fail_rc(struct query_job *job, int rc, const struct br_err *err);

/* Restarts the store's query within the same time limit, and clears `arena`, so that earlier
 * results become invalid. A handler can thus process more data than fits in memory. Returns 0,
 * BR_EINVAL or BR_ENOMEM; on failure job->store is NULL. */
int query_job_restart_store(struct query_job *job, struct br_err *err);

/* Adds a header to the response. `name` is a constant in lower case; the value is copied. If
 * there are more than QUERY_HEADERS_MAX headers, or memory runs out, the response fails. */
void query_job_header(struct query_job *job, const char *name, const char *value);

/* --- Internal (route.c, job.c) --------------------------------------------------------------- */

/* Finds the route of a path. `ret_parts` receives the offset and length in `path` of each match
 * of `*`, before decoding. Returns NULL if no route matches. `*ret_methods` then contains the
 * methods of the routes with this path, or 0 if no route has the path. */
struct query_part {
    size_t at, len;
};
const struct query_route *query_route_find(const char *path, unsigned method,
                                           struct query_part ret_parts[QUERY_PARTS_MAX],
                                           size_t *ret_n_parts, unsigned *ret_methods);

/* Makes a job for a request whose head has arrived. On failure returns NULL without responding,
 * and sets `*ret_rc` to BR_ENOMEM, or to BR_EINVAL for a malformed escape or too many
 * parameters. */
struct query_job *query_job_new(struct query *query, struct br_request *request,
                                const struct query_route *route, const struct query_part *parts,
                                size_t n_parts, int *ret_rc);

/* Runs a job whose request body has arrived completely. */
void query_job_start(struct query_job *job);

/* Must be called when the client of a job has disconnected. */
void query_job_gone(struct query_job *job);

/* Returns the number of a connection's jobs, plus the number of its responses that are being
 * sent. */
size_t query_jobs_on(const struct query *query, const struct br_conn *conn);

/* query_jobs_end_tail ends the tail that has been open for the longest time.
 * query_jobs_end_download ends a download whose client reads too slowly. Both functions return
 * true if they ended a job. */
bool query_jobs_end_tail(struct query *query);
bool query_jobs_end_download(struct query *query);

/* Ends all streams. Called at a shutdown, because streams do not end by themselves. */
void query_jobs_end_streams(struct query *query);

/* Waits for running jobs, and frees all jobs. */
void query_jobs_release(struct query *query);

/* --- Accounting of the responses that are being sent (sending.c) ------------------------------ */

/* Creates query->responses, a pool that reports when one of its buffers is released. Returns 0
 * or BR_ENOMEM. */
int query_sending_init(struct query *query);

/* Releases the pool query->responses. Must be called after the connections of the server are
 * closed. */
void query_sending_release(struct query *query);

/* Counts the memory of a response that is about to be sent on `conn`, until its buffer is
 * released. Returns false if all responses together would hold too much memory, or if memory
 * runs out. */
bool query_sending_add(struct query *query, const struct br_buf *buf, struct br_conn *conn);

/* Closes the connection of the client that has been reading a response for the longest time.
 * Returns false if no client has been reading for more than a second. */
bool query_sending_make_room(struct query *query);

/* Returns how many responses are being sent on a connection. */
size_t query_sending_on(const struct query *query, const struct br_conn *conn);

/* --- Replies (reply.c) ----------------------------------------------------------------------- */

/* Responds with an error to a request that has no job. */
void query_respond_error(struct query *query, struct br_request *request, unsigned status,
                         enum query_errors errors, const char *text);

/* Sends the response of a job, or the next piece of its stream. Called on the loop. */
void query_job_reply(struct query_job *job);

/* Sends a comment on an event stream, so that the connection stays open. Returns false if the
 * client has not yet read earlier pieces. */
bool query_job_send_keepalive(struct query_job *job);

/* Ends a stream whose head was sent. Closes the connection if the stream is an incomplete
 * download. */
void query_job_end_stream(struct query_job *job);

/* --- Tables of routes ------------------------------------------------------------------------- */

/* The tables of routes, one for each API. Each table ends with a zeroed route. */

/* routes of Braid's own API (braid.c) */
extern const struct query_route query_braid_routes[];
extern const struct query_route query_page_routes[]; /* routes of the web page (page.c) */
/* routes of Pyroscope's query API (pyroscope.c) */
extern const struct query_route query_pyroscope_routes[];
/* routes of Pyroscope's older API (render.c) */
extern const struct query_route query_render_routes[];
/* routes of Tempo's HTTP API (tempo.c) */
extern const struct query_route query_tempo_routes[];
/* routes of Tempo's gRPC API (tempo_stream.c) */
extern const struct query_route query_tempo_stream_routes[];
