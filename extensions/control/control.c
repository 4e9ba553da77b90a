/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control extension: an HTTP API that lists the active profiling, and increases profiling for a
 * limited time. Anyone with access can have programs profiled. Therefore the extension listens on
 * loopback unless the configuration allows remote access, and the token is checked before the rest
 * of a request.
 */
#include "extensions/control/control.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/secret.h"
#include "ingest/http.h"
#include "wire/multipart.h"

#define IDLE_MS 60000
#define QUERY_ARENA_MAX BR_REQUEST_HEAD_MAX

static const struct br_option options[] = {
    BR_LISTEN_ROWS(struct control_config, "localhost:13134"),
    BR_AUTH_SERVER_ROW(struct control_config),
    BR_SECRET(struct control_config, token,
              "secret that requests must send as Authorization: Bearer, 16 characters or more; "
              "required without `auth`"),
    BR_BOOL(struct control_config, allow_remote, false,
            "permit an endpoint that is not a loopback address"),
    BR_STRINGS(struct control_config, allowed_hosts, BR_HOSTS_HELP),
    BR_INT(struct control_config, max_overrides, 16, 1, BR_OVERRIDES_MAX,
           "largest number of overrides that are active at the same time"),
    BR_DURATION(struct control_config, max_duration, "1h", "longest duration of an override"),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

/* Returns true if all characters are allowed in a Bearer token (RFC 6750). */
static bool control_is_token(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static void control_check_token(const struct control_config *config, const struct br_yaml *node,
                                const char *path, struct br_errs *errs)
{
    const char *token = config->token.text;
    if (br_auth_name(config->auth) && token)
        br_errs_add_key(errs, node, path, "token", "must not be set together with auth");
    else if (!br_auth_name(config->auth) && (!token || strlen(token) < CONTROL_TOKEN_MIN))
        br_errs_add_key(errs, node, path, "token",
                        "must be set, to 16 characters or more, such as "
                        "${env:BRAID_CONTROL_TOKEN}, unless auth is set");
    else if (token && !control_is_token(token))
        br_errs_add_key(errs, node, path, "token", "must be printable ASCII without spaces");
}

static int control_check(void *config, const struct br_yaml *node, const char *path,
                         struct br_arena *arena, struct br_errs *errs)
{
    const struct control_config *control_config = config;
    size_t before = errs->n_errors;
    (void)arena;
    br_endpoint_check(control_config->endpoint, control_config->transport, node, path, errs);
    br_hosts_check(&control_config->allowed_hosts, node, path, errs);
    control_check_token(control_config, node, path, errs);
    if (strcmp(control_config->transport, "unix") != 0 && !control_config->allow_remote &&
        !br_endpoint_is_loopback(control_config->endpoint))
        br_errs_add_key(errs, node, path, "endpoint",
                        "is not a loopback address; set allow_remote: true to allow remote access");
    if (control_config->allow_remote && !control_config->tls &&
        strcmp(control_config->transport, "unix") != 0 &&
        !br_endpoint_is_loopback(control_config->endpoint)) {
        char where[256];
        (void)snprintf(where, sizeof where, "%s::allow_remote", path);
        br_errs_warn(errs, br_yaml_get(node, "allow_remote"), where,
                     "the token is sent over the network unencrypted: set tls");
    }
    if (control_config->max_duration < 1000000000 ||
        control_config->max_duration > 24 * 3600000000000ull)
        br_errs_add_key(errs, node, path, "max_duration", "must be from 1s to 24h");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* --- Access ---------------------------------------------------------------------------------- */

static bool control_is_allowed(const struct control *control, const struct br_request *request)
{
    const struct control_config *config = control->node->config;
    const char *value = br_request_header(request, "authorization");
    if (!config->token.text)
        return true; /* the server's gate has already checked the request */
    if (!value || !br_text_starts_nocase(value, "Bearer "))
        return false;
    value += 7;
    return br_secret_equal(value + strspn(value, " "), config->token.text);
}

/* Counts a request without the right token. Returns false if there were too many requests
 * without the right token recently. */
static bool control_allow_failure(struct control *control)
{
    uint64_t now = br_host_mono_ms(control->node->host);
    uint64_t forgiven = (now - control->forgiven_ms) / CONTROL_FORGIVE_MS;
    control->forgiven_ms += forgiven * CONTROL_FORGIVE_MS;
    control->failures -= forgiven < control->failures ? (unsigned)forgiven : control->failures;
    if (control->failures == CONTROL_FAILURES_MAX)
        return false;
    if (control->failures++ == 0)
        control->forgiven_ms = now;
    return true;
}

/* Rejects a request without the right token. The number of requests without the right token is
 * limited only after the token was compared. On loopback all clients share one address, so a
 * limit before the comparison would let any local program lock out the owner. The length of the
 * token prevents guessing; the limit only bounds the cost of guesses and makes guesses visible. */
static void control_reject(struct control *control, struct br_request *request)
{
    *control->refused += 1;
    br_node_warn(control->node, &control->log_limit, "a request from %s did not have the token",
                 request->peer);
    if (control_allow_failure(control)) {
        control_reply_error(request, 401, &(struct br_header){"www-authenticate", "Bearer"}, NULL,
                            "missing or invalid \"Authorization: Bearer\" header");
        return;
    }
    *control->throttled += 1;
    control_reply_error(
        request, 429, &(struct br_header){"retry-after", "1"}, NULL,
        "too many requests without the token; requests with the token are still answered");
}

/* --- Requests -------------------------------------------------------------------------------- */

enum method { GET, POST, DELETE, OTHER };

static enum method control_method_of(const struct br_request *request)
{
    if (strcmp(request->method, "GET") == 0)
        return GET;
    if (strcmp(request->method, "POST") == 0)
        return POST;
    return strcmp(request->method, "DELETE") == 0 ? DELETE : OTHER;
}

/* Reads the id in the path of an override, or stores 0 for the path of the list. Returns false
 * for any path that is not of an override or of the list. */
static bool control_read_path(const char *path, uint64_t *ret_id)
{
    size_t len = sizeof CONTROL_PATH - 1;
    *ret_id = 0;
    if (!br_text_starts(path, CONTROL_PATH))
        return false;
    return path[len] == '\0' || (path[len] == '/' && control_parse_id(path + len + 1, ret_id));
}

static bool control_is_json(const struct br_request *request)
{
    const char *type = br_request_header(request, "content-type");
    return type && br_bytes_are_nocase(type, strcspn(type, "; \t"), "application/json");
}

/* Rejects requests that are invalid regardless of their body. */
static void control_begin(struct br_handler *self, struct br_request *request)
{
    struct control *control = br_container_of(self, struct control, service.handler);
    enum method method = control_method_of(request);
    uint64_t id;
    request->user = NULL;
    bool reload = strcmp(request->path, CONTROL_RELOAD_PATH) == 0;
    request->max_body = method == POST && !reload ? CONTROL_BODY_MAX : 0;
    if (!br_hosts_allow(&control->service.hosts, request))
        control_reply_error(request, 403, NULL, NULL, BR_HOSTS_REFUSAL);
    else if (!control_is_allowed(control, request))
        control_reject(control, request);
    else if (reload && method != POST)
        control_reply_error(request, 405, &(struct br_header){"allow", "POST"}, NULL,
                            "this path does not support the method");
    else if (reload && control->node->host->draining)
        control_reply_error(request, 503, NULL, NULL, "shutting down");
    else if (reload)
        return;
    else if (!control_read_path(request->path, &id))
        control_reply_error(request, 404, NULL, NULL, "the API is at %s", CONTROL_PATH);
    else if (id ? method != GET && method != DELETE : method == OTHER)
        control_reply_error(request, 405,
                            &(struct br_header){"allow", id ? "GET, DELETE" : "GET, POST, DELETE"},
                            NULL, "this path does not support the method");
    else if (method == POST && !control_is_json(request))
        control_reply_error(request, 415, NULL, NULL, "Content-Type must be application/json");
    else if (control->node->host->draining)
        control_reply_error(request, 503, NULL, NULL, "shutting down");
}

static void control_get_override(struct control *control, struct br_request *request, uint64_t id)
{
    const struct control_override *override = control_overrides_find(&control->overrides, id);
    struct br_str json = {0};
    if (!override) {
        control_reply_error(request, 404, NULL, NULL, "no override has this id; it may have ended");
        return;
    }
    control_put_override(&json, override, br_host_mono_ms(control->node->host));
    br_str_putc(&json, '\n');
    control_reply(request, 200, NULL, &json);
    br_str_release(&json);
}

static void control_post(struct control *control, struct br_request *request)
{
    const struct control_config *config = control->node->config;
    struct control_override *override = NULL;
    struct br_err err = {0};
    int rc = request->body ? control_read((const char *)request->body->data, request->body->len,
                                          config->max_duration, &override, &err)
                           : br_err_set(&err, BR_EINVAL, "the body must be a JSON object");
    if (rc == 0)
        control_call_add(control, request, override);
    else
        control_reply_error(request, rc == BR_ENOMEM ? 503 : 400, NULL, err.path, "%s", err.text);
}

/* Reads the query parameters. Unknown parameters are rejected: with a misspelt filter, the
 * request would end all overrides. */
static int control_read_query(const struct br_request *request, uint64_t id, struct br_arena *arena,
                              const char **ret_service, struct br_err *err)
{
    struct br_query_param params[] = {{.name = "service"}};
    size_t n = control_method_of(request) == DELETE && !id ? BR_COUNT(params) : 0;
    int rc = br_query_read(request->query, params, n, arena, err);
    *ret_service = params[0].value;
    return rc;
}

static void control_dispatch(struct control *control, struct br_request *request, uint64_t id,
                             const char *service)
{
    if (control_method_of(request) == POST)
        control_post(control, request);
    else if (control_method_of(request) == DELETE)
        control_call_end(control, request, id, service);
    else if (id)
        control_get_override(control, request, id);
    else
        control_call_list(control, request);
}

static void control_body(struct br_handler *self, struct br_request *request)
{
    struct control *control = br_container_of(self, struct control, service.handler);
    struct br_arena arena;
    struct br_err err = {0};
    const char *service;
    uint64_t id = 0;
    if (strcmp(request->path, CONTROL_RELOAD_PATH) == 0 && !request->body_error) {
        control_reload(control, request);
        return;
    }
    (void)control_read_path(request->path, &id);
    br_arena_init(&arena, QUERY_ARENA_MAX);
    int rc = control_read_query(request, id, &arena, &service, &err);
    if (request->body_error == BR_BODY_TOO_BIG)
        control_reply_error(request, 413, NULL, NULL, "the body exceeds %zu bytes",
                            request->max_body);
    else if (request->body_error || rc == BR_ENOMEM)
        control_reply_error(request, 503, NULL, NULL, "out of memory");
    else if (rc)
        control_reply_error(request, 400, NULL, err.path, "%s", err.text);
    else
        control_dispatch(control, request, id, service);
    br_arena_release(&arena);
}

static void control_gone(struct br_handler *self, struct br_request *request)
{
    struct control *control = br_container_of(self, struct control, service.handler);
    if (!control_reload_gone(control, request))
        control_call_gone(request);
}

/* --- Component ------------------------------------------------------------------------------- */

static int control_create(struct br_node *node, struct br_err *err)
{
    struct control *control = node->state;
    control->node = node;
    control->service.handler =
        (struct br_handler){.begin = control_begin, .body = control_body, .gone = control_gone};
    control->refused = br_node_metric(node, BR_COUNTER, "braid_control_unauthorized", NULL, NULL);
    control->throttled = br_node_metric(node, BR_COUNTER, "braid_control_throttled", NULL, NULL);
    br_list_init(&control->calls);
    br_list_init(&control->reloads);
    if (control_overrides_init(&control->overrides, node))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}

static int control_start(struct br_node *node, struct br_err *err)
{
    struct control *control = node->state;
    const struct control_config *config = node->config;
    struct br_server_config server = {.endpoint = config->endpoint,
                                      .transport = config->transport,
                                      .tls = config->tls,
                                      .gate = {.auth = config->auth},
                                      .guarded = true,
                                      .idle_timeout_ms = IDLE_MS};
    return br_http_service_listen(&control->service, node, "http", &config->allowed_hosts, &server,
                                  err);
}

static void control_drain(struct br_node *node)
{
    struct control *control = node->state;
    br_http_service_drain(&control->service, node);
}

static void control_destroy(struct br_node *node)
{
    struct control *control = node->state;
    br_http_service_release(&control->service);
    control_calls_release(control);
    control_reloads_release(control);
    control_overrides_release(&control->overrides);
}

extern const struct br_component br_control_extension;
const struct br_component br_control_extension = {
    .name = "control",
    .kind = BR_EXTENSION,
    .stability = "alpha",
    .help = "shows what is profiled, and increases the profiling of a service for a limited time",
    .options = options,
    .config_size = sizeof(struct control_config),
    .state_size = sizeof(struct control),
    .check = control_check,
    .create = control_create,
    .start = control_start,
    .drain = control_drain,
    .destroy = control_destroy,
};
