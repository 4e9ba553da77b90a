/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files of the control extension, an HTTP API with JSON:
 *
 * - control.c: the component and the routes
 * - read.c: parses the body of a request
 * - overrides.c: the active overrides
 * - reload.c: reloads the configuration
 * - call.c: sends a request to all workers and collects the results
 * - reply.c: writes responses
 *
 * Only the first worker accesses the list of overrides. The components of each worker hold copies
 * of the overrides that apply to them (pipeline/override.h), and remove the copies themselves when
 * these expire.
 */
#pragma once

#include "base/list.h"
#include "ingest/http_service.h"
#include "pipeline/broadcast.h"
#include "pipeline/override.h"

#define CONTROL_PATH "/v1/profiling"
#define CONTROL_RELOAD_PATH "/-/reload"
#define CONTROL_BODY_MAX 8192
/* maximum number of requests in progress; a further request is answered with 503 */
#define CONTROL_CALLS_MAX 64
/* maximum number of rows in one response; a response reports whether rows are missing */
#define CONTROL_ROWS_MAX 4096
#define CONTROL_ID_LEN 16
#define CONTROL_TOKEN_MIN 16
/* number of recent requests without the right token above which further ones are answered with
 * 429 instead of 401 */
#define CONTROL_FAILURES_MAX 10
/* interval in milliseconds, after each of which one more request without the right token is
 * answered with 401 */
#define CONTROL_FORGIVE_MS 1000

struct control_config {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    struct br_auth_config *auth;
    struct br_secret token;
    bool allow_remote;
    struct br_strings allowed_hosts;
    int64_t max_overrides;
    uint64_t max_duration;
};

/* --- Overrides (overrides.c) ----------------------------------------------------------------- */

struct control_override {
    struct br_list link;
    struct br_override base; /* settings of the override; their strings are in `arena` */
    struct br_arena arena;
    uint64_t duration_ms; /* duration of the override in milliseconds, greater than 0 */
    /* start and end of the override, in Unix nanoseconds; used only for display */
    uint64_t since_ns, until_ns;
};

struct control_overrides {
    struct br_node *node;
    struct br_list list;
    /* number of overrides, including those that are still being sent to the workers */
    size_t count;
    struct br_timer end;
};

/* Frees an override. Accepts NULL. */
void control_override_free(struct control_override *override);

/* Initializes an empty list and its timer. Returns 0 or BR_ENOMEM. */
int control_overrides_init(struct control_overrides *overrides, struct br_node *node);
/* Frees the list and its overrides. Does nothing if the list is zeroed. */
void control_overrides_release(struct control_overrides *overrides);

/* Sets the id and the times of an override. The override counts towards the maximum until it
 * ends or control_overrides_discard is called. Returns 0. If there are too many overrides,
 * returns BR_EFULL and stores in `*ret_wait_s` the seconds until the next override ends. */
int control_overrides_admit(struct control_overrides *overrides, struct control_override *override,
                            uint64_t *ret_wait_s);

/* control_overrides_add adds an admitted override to the list, which then owns the override.
 * control_overrides_discard frees an admitted override instead. */
void control_overrides_add(struct control_overrides *overrides, struct control_override *override);
void control_overrides_discard(struct control_overrides *overrides,
                               struct control_override *override);

/* Returns the active override with this id, or NULL. */
struct control_override *control_overrides_find(struct control_overrides *overrides, uint64_t id);

/* Lists the ids of the active overrides that have the id `id` (0: any id) and the service
 * `service` (NULL: any service). Returns the number of ids. */
size_t control_overrides_match(struct control_overrides *overrides, uint64_t id,
                               const char *service, uint64_t ret[BR_OVERRIDES_MAX]);

/* Removes and frees the override with this id. Does nothing if the override has already ended. */
void control_overrides_end(struct control_overrides *overrides, uint64_t id);

/* --- Bodies (read.c) ------------------------------------------------------------------------- */

/* Parses an override from JSON. Returns 0, BR_ENOMEM, or BR_EINVAL with a message and with the
 * name of the invalid field in err->path. */
int control_read(const char *text, size_t len, uint64_t max_duration_ns,
                 struct control_override **ret, struct br_err *err);

/* --- Calls (call.c) -------------------------------------------------------------------------- */

struct control {
    struct br_http_service service;
    struct br_node *node;
    struct control_overrides overrides;
    struct br_list calls;
    struct br_list reloads; /* requests that wait for the end of a reload */
    size_t n_calls;         /* length of both lists together */
    struct br_log_limit log_limit;
    double *refused; /* metric: number of requests without the right token */
    /* metric: number of requests without the right token that were answered with 429 */
    double *throttled;
    /* number of recent requests without the right token; decreases by one every
     * CONTROL_FORGIVE_MS */
    unsigned failures;
    /* time up to which `failures` has been decreased, in milliseconds of the monotonic clock */
    uint64_t forgiven_ms;
};

/* The control_call functions send a request to all workers, and respond to the client when the
 * workers are done. control_call_add adds `override` and takes ownership of it. control_call_end
 * ends the overrides that have the given id and service. control_call_list lists the active
 * profiling. */
void control_call_add(struct control *control, struct br_request *request,
                      struct control_override *override);
void control_call_end(struct control *control, struct br_request *request, uint64_t id,
                      const char *service);
void control_call_list(struct control *control, struct br_request *request);

/* Must be called when the client of a request has disconnected. */
void control_call_gone(struct br_request *request);

/* Frees the calls that are in progress. Called when the extension is destroyed. */
void control_calls_release(struct control *control);

/* --- Reload (reload.c) ----------------------------------------------------------------------- */

/* Reloads the configuration of the process, and responds to the client when that has ended. */
void control_reload(struct control *control, struct br_request *request);

/* Must be called when the client of a request has disconnected. Returns false if the request does
 * not wait for a reload. */
bool control_reload_gone(struct control *control, const struct br_request *request);

/* Frees the requests that wait. Called when the extension is destroyed. */
void control_reloads_release(struct control *control);

/* --- Responses (reply.c) --------------------------------------------------------------------- */

/* Responds with the text `json`, or with 503 if json->failed is set. `header` may be NULL. */
void control_reply(struct br_request *request, unsigned status, const struct br_header *header,
                   const struct br_str *json);
/* Responds with an error. `field` names the invalid field of the request; it may be NULL or
 * empty. */
void control_reply_error(struct br_request *request, unsigned status,
                         const struct br_header *header, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Parses an id of CONTROL_ID_LEN hex digits. Returns false for any other text, and for the id 0. */
bool control_parse_id(const char *text, uint64_t *ret);

/* control_put_override appends an override as a JSON object. control_put_collected appends the
 * profiling of one target as a JSON object. */
void control_put_override(struct br_str *out, const struct control_override *override,
                          uint64_t now_ms);
void control_put_collected(struct br_str *out, const struct br_collected *collected);
