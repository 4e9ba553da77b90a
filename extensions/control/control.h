/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types and functions that the files of the control extension share. The API is HTTP with JSON.
 * control.c creates and starts the extension and knows the paths, read.c makes an override of a
 * request's body, overrides.c keeps the overrides in force, call.c carries a request to all workers
 * and the answers back, reply.c writes the answers.
 *
 * The list of overrides is the first worker's alone. Each worker's components hold copies of what
 * they obey (pipeline/override.h) and end them by themselves.
 */
#pragma once

#include "base/list.h"
#include "net/hosts.h"
#include "net/server.h"
#include "pipeline/broadcast.h"
#include "pipeline/component.h"
#include "pipeline/override.h"

#define CONTROL_PATH "/v1/profiling"
#define CONTROL_BODY_MAX 8192
#define CONTROL_CALLS_MAX 64  /* requests under way; further ones are told to come again */
#define CONTROL_ROWS_MAX 4096 /* of one answer; it says when there were more */
#define CONTROL_ID_LEN 16
#define CONTROL_TOKEN_MIN 16
#define CONTROL_FAILURES_MAX 10 /* requests without the token at once ... */
#define CONTROL_FORGIVE_MS 1000 /* ... and one more after each of these */

struct control_config {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    struct br_secret token;
    bool allow_remote;
    struct br_strings allowed_hosts;
    int64_t max_overrides;
    uint64_t max_duration;
};

/* --- Overrides (overrides.c) ------------------------------------------------------------------ */

struct control_override {
    struct br_list link;
    struct br_override base; /* its texts are in the arena */
    struct br_arena arena;
    uint64_t duration_ms;        /* not 0 */
    uint64_t since_ns, until_ns; /* unix, for people */
};

struct control_overrides {
    struct br_node *node;
    struct br_list list;
    size_t count; /* with those that are on their way to the workers */
    struct br_timer end;
};

void control_override_free(struct control_override *override); /* accepts NULL */

/* Returns 0 or BR_ENOMEM. */
int control_overrides_init(struct control_overrides *rs, struct br_node *node);
void control_overrides_release(struct control_overrides *rs); /* accepts a zeroed one */

/* Gives an override its id and its times. It counts from here to control_overrides_forget or its
 * end. Returns 0, or BR_EFULL with the seconds until an override ends in `*ret_wait_s`. */
int control_overrides_admit(struct control_overrides *rs, struct control_override *override,
                            uint64_t *ret_wait_s);

/* Puts an admitted override, which it takes, into the list, or frees it instead. */
void control_overrides_add(struct control_overrides *rs, struct control_override *override);
void control_overrides_forget(struct control_overrides *rs, struct control_override *override);

/* Returns the override that holds with this id, or NULL. */
struct control_override *control_overrides_find(struct control_overrides *rs, uint64_t id);

/* Lists the ids of the overrides that hold: of override `id` (0: all), of `service` (NULL:
 * whatever it is for). Returns how many. */
size_t control_overrides_match(struct control_overrides *rs, uint64_t id, const char *service,
                               uint64_t ret[BR_OVERRIDES_MAX]);

/* Takes an override out of the list; nothing when it has ended. */
void control_overrides_end(struct control_overrides *rs, uint64_t id);

/* --- Bodies (read.c) -------------------------------------------------------------------------- */

/* Reads an override from JSON. Returns 0, BR_ENOMEM, or BR_EINVAL with the field in err->path and
 * a sentence. */
int control_read(const char *text, size_t len, uint64_t max_duration_ns,
                 struct control_override **ret, struct br_err *err);

/* --- Calls (call.c) --------------------------------------------------------------------------- */

struct control {
    struct br_handler service;
    struct br_node *node;
    struct br_server *server;
    struct br_hosts hosts;
    struct control_overrides overrides;
    struct br_list calls;
    size_t n_calls;
    struct br_log_limit log_limit;
    double *refused;      /* requests without the right token ... */
    double *throttled;    /* ... and those of them that came too fast */
    unsigned failures;    /* that are not forgiven yet; one is each CONTROL_FORGIVE_MS */
    uint64_t forgiven_ms; /* up to here */
    char name[192];
};

/* Carry a request to the workers, and answer it. The first takes the override. */
void control_call_add(struct control *control, struct br_request *request,
                      struct control_override *override);
void control_call_end(struct control *control, struct br_request *request, uint64_t id,
                      const char *service);
void control_call_list(struct control *control, struct br_request *request);
void control_call_gone(struct br_request *request);
void control_calls_release(struct control *control);

/* --- Answers (reply.c) ------------------------------------------------------------------------ */

void control_reply(struct br_request *request, unsigned status, const struct br_header *header,
                   const struct br_str *json);
/* Answers with an error. `field` says what of the request is wrong; it may be NULL or empty. */
void control_reply_error(struct br_request *request, unsigned status,
                         const struct br_header *header, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

bool control_parse_id(const char *text, uint64_t *ret);
void control_put_override(struct br_str *out, const struct control_override *override,
                          uint64_t now_ms);
void control_put_collected(struct br_str *out, const struct br_collected *collected);
