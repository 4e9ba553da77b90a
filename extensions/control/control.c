/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control extension: an HTTP API that says what is profiled and why, and asks for more of it for
 * a while. Whoever can reach it can make programs be profiled, so it is on loopback unless the
 * config insists, and every request has to show the token before anything else of it is looked at.
 */
#include "extensions/control/control.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "ingest/http.h"
#include "wire/multipart.h"

#define IDLE_MS 60000
#define LOG_EVERY_MS 60000
#define QUERY_ARENA_MAX BR_REQUEST_HEAD_MAX

static const struct br_option options[] = {
    BR_STRING(struct control_config, endpoint, "localhost:13134", "host:port to listen on"),
    BR_STRING(struct control_config, transport, "tcp", "tcp, or unix (endpoint is then a path)"),
    BR_PRESENT(struct control_config, tls, struct br_tls_config, br_tls_server_options,
               "TLS; absent: plaintext"),
    BR_SECRET(struct control_config, token,
              "what requests have to show as Authorization: Bearer; required, 16 characters or more"),
    BR_BOOL(struct control_config, allow_remote, false,
            "listen on an address that is not loopback"),
    BR_STRINGS(struct control_config, allowed_hosts, BR_HOSTS_HELP),
    BR_INT(struct control_config, max_rules, 16, 1, BR_OVERRIDES_MAX, "rules that hold at a time"),
    BR_DURATION(struct control_config, max_duration, "1h", "longest duration of a rule"),
    BR_OPT_END,
};

/* --- Config ----------------------------------------------------------------------------------- */

/* RFC 6750: what a Bearer token may consist of. */
static bool is_token(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    const struct control_config *c = config;
    size_t before = errs->n_errors;
    (void)arena;
    br_endpoint_check(c->endpoint, c->transport, node, path, errs);
    br_hosts_check(&c->allowed_hosts, node, path, errs);
    if (!c->token.text || strlen(c->token.text) < CONTROL_TOKEN_MIN)
        br_errs_add_key(
            errs, node, path, "token",
            "must be set, to 16 characters or more, such as ${env:BRAID_CONTROL_TOKEN}");
    else if (!is_token(c->token.text))
        br_errs_add_key(errs, node, path, "token", "must be printable ASCII without blanks");
    if (strcmp(c->transport, "unix") != 0 && !c->allow_remote && !br_endpoint_is_loopback(c->endpoint))
        br_errs_add_key(
            errs, node, path, "endpoint",
            "is not a loopback address; say allow_remote: true if others are to reach it");
    if (c->allow_remote && !c->tls && strcmp(c->transport, "unix") != 0 &&
        !br_endpoint_is_loopback(c->endpoint)) {
        char where[256];
        (void)snprintf(where, sizeof where, "%s::allow_remote", path);
        br_errs_warn(errs, br_yaml_get(node, "allow_remote"), where,
                     "the token goes over the network in the clear: set tls");
    }
    if (c->max_duration < 1000000000 || c->max_duration > 24 * 3600000000000ull)
        br_errs_add_key(errs, node, path, "max_duration", "must be from 1s to 24h");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* --- Who may ask ------------------------------------------------------------------------------ */

/* Takes as long for a wrong token as for the right one, whatever part of it is right: the time goes
 * by the length of what was shown. */
static bool is_secret(const char *shown, const char *secret)
{
    size_t len = strlen(secret), shown_len = strlen(shown);
    volatile unsigned char differ = shown_len != len;
    for (size_t i = 0; i < shown_len; i++)
        differ = (unsigned char)(differ | (shown[i] ^ secret[i % len]));
    return differ == 0;
}

static bool is_allowed(const struct control *c, const struct br_request *r)
{
    const struct control_config *config = c->node->config;
    const char *value = br_request_header(r, "authorization");
    if (!value || strncasecmp(value, "Bearer ", 7) != 0)
        return false;
    value += 7;
    return is_secret(value + strspn(value, " "), config->token.text);
}

/* One more failure; false when there were too many of late. */
static bool may_fail(struct control *c)
{
    uint64_t now = br_host_mono_ms(c->node->host);
    uint64_t forgiven = (now - c->forgiven_ms) / CONTROL_FORGIVE_MS;
    c->forgiven_ms += forgiven * CONTROL_FORGIVE_MS;
    c->failures -= forgiven < c->failures ? (unsigned)forgiven : c->failures;
    if (c->failures == CONTROL_FAILURES_MAX)
        return false;
    if (c->failures++ == 0)
        c->forgiven_ms = now;
    return true;
}

/* Comes after the comparison: on loopback all clients have one address, and if the right token were not
 * looked at while others fail, any program on this machine could lock its owner out. Guessing is kept
 * hopeless by the token's length; what the limit keeps small is what guesses cost, and it shows them. */
static void refuse(struct control *c, struct br_request *r)
{
    uint64_t held;
    *c->refused += 1;
    if (br_log_allow(&c->log_limit, br_host_mono_ms(c->node->host), LOG_EVERY_MS, &held))
        br_warn(&c->node->log, "a request from %s did not have the token (%llu such before)",
                r->peer, (unsigned long long)held);
    if (may_fail(c)) {
        control_reply_error(r, 401, &(struct br_header){"www-authenticate", "Bearer"}, NULL,
                            "Authorization: Bearer with the token is wanted");
        return;
    }
    *c->throttled += 1;
    control_reply_error(r, 429, &(struct br_header){"retry-after", "1"}, NULL,
                        "too many requests without the token; one that has it is answered");
}

/* --- What is asked ---------------------------------------------------------------------------- */

enum method { GET, POST, DELETE, OTHER };

static enum method method_of(const struct br_request *r)
{
    return strcmp(r->method, "GET") == 0      ? GET
           : strcmp(r->method, "POST") == 0   ? POST
           : strcmp(r->method, "DELETE") == 0 ? DELETE
                                              : OTHER;
}

/* The id in the path, 0 where it is the list; false when it is neither. */
static bool read_path(const char *path, uint64_t *ret_id)
{
    size_t len = sizeof CONTROL_PATH - 1;
    *ret_id = 0;
    if (strncmp(path, CONTROL_PATH, len) != 0)
        return false;
    return path[len] == '\0' || (path[len] == '/' && control_parse_id(path + len + 1, ret_id));
}

static bool is_json(const struct br_request *r)
{
    const char *type = br_request_header(r, "content-type");
    return type && strcspn(type, "; \t") == 16 && strncasecmp(type, "application/json", 16) == 0;
}

/* Refuses what needs no look at the body. */
static void begin(struct br_handler *self, struct br_request *r)
{
    struct control *c = br_container_of(self, struct control, service);
    enum method method = method_of(r);
    uint64_t id;
    r->user = NULL;
    r->max_body = method == POST ? CONTROL_BODY_MAX : 0;
    if (!br_hosts_allow(&c->hosts, r))
        control_reply_error(r, 403, NULL, NULL, BR_HOSTS_REFUSAL);
    else if (!is_allowed(c, r))
        refuse(c, r);
    else if (!read_path(r->path, &id))
        control_reply_error(r, 404, NULL, NULL, "see %s", CONTROL_PATH);
    else if (id ? method != GET && method != DELETE : method == OTHER)
        control_reply_error(r, 405,
                            &(struct br_header){"allow", id ? "GET, DELETE" : "GET, POST, DELETE"},
                            NULL, "there is no such method here");
    else if (method == POST && !is_json(r))
        control_reply_error(r, 415, NULL, NULL, "Content-Type must be application/json");
    else if (c->node->host->draining)
        control_reply_error(r, 503, NULL, NULL, "shutting down");
}

static void get_rule(struct control *c, struct br_request *r, uint64_t id)
{
    const struct control_override *rule = control_overrides_find(&c->rules, id);
    struct br_str json = {0};
    if (!rule) {
        control_reply_error(r, 404, NULL, NULL, "there is no such rule; it may have ended");
        return;
    }
    control_put_override(&json, rule, br_host_mono_ms(c->node->host));
    br_str_putc(&json, '\n');
    control_reply(r, 200, NULL, &json);
    br_str_release(&json);
}

static void post(struct control *c, struct br_request *r)
{
    const struct control_config *config = c->node->config;
    struct control_override *rule = NULL;
    struct br_err err = {0};
    int rc = r->body ? control_read((const char *)r->body->data, r->body->len,
                                    config->max_duration, &rule, &err)
                     : br_err_set(&err, BR_EINVAL, "the body must be a JSON object");
    if (rc == 0)
        control_call_add(c, r, rule);
    else
        control_reply_error(r, rc == BR_ENOMEM ? 503 : 400, NULL, err.path, "%s", err.text);
}

/* What a query may say, which is little: a filter that is overlooked would end all rules. */
static int read_query(const struct br_request *r, uint64_t id, struct br_arena *arena,
                      const char **ret_service, struct br_err *err)
{
    struct br_query_param params[] = {{.name = "service"}};
    size_t n = method_of(r) == DELETE && !id ? BR_COUNT(params) : 0;
    int rc = br_query_read(r->query, params, n, arena, err);
    *ret_service = params[0].value;
    return rc;
}

static void take(struct control *c, struct br_request *r, uint64_t id, const char *service)
{
    if (method_of(r) == POST)
        post(c, r);
    else if (method_of(r) == DELETE)
        control_call_end(c, r, id, service);
    else if (id)
        get_rule(c, r, id);
    else
        control_call_list(c, r);
}

static void body(struct br_handler *self, struct br_request *r)
{
    struct control *c = br_container_of(self, struct control, service);
    struct br_arena arena;
    struct br_err err = {0};
    const char *service;
    uint64_t id = 0;
    (void)read_path(r->path, &id);
    br_arena_init(&arena, QUERY_ARENA_MAX);
    int rc = read_query(r, id, &arena, &service, &err);
    if (r->body_error == BR_BODY_TOO_BIG)
        control_reply_error(r, 413, NULL, NULL, "the body may have %zu bytes", r->max_body);
    else if (r->body_error || rc == BR_ENOMEM)
        control_reply_error(r, 503, NULL, NULL, "out of memory");
    else if (rc)
        control_reply_error(r, 400, NULL, err.path, "%s", err.text);
    else
        take(c, r, id, service);
    br_arena_release(&arena);
}

static void gone(struct br_handler *self, struct br_request *r)
{
    (void)self;
    control_call_gone(r);
}

/* --- Life ------------------------------------------------------------------------------------- */

static int create(struct br_node *node, struct br_err *err)
{
    struct control *c = node->state;
    c->node = node;
    const struct control_config *config = node->config;
    c->service = (struct br_handler){begin, body, gone};
    c->hosts = (struct br_hosts){config->endpoint, config->transport, &config->allowed_hosts};
    c->refused = br_node_metric(node, BR_COUNTER, "braid_control_unauthorized", NULL, NULL);
    c->throttled = br_node_metric(node, BR_COUNTER, "braid_control_throttled", NULL, NULL);
    br_list_init(&c->calls);
    if (control_overrides_init(&c->rules, node))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}

static int start(struct br_node *node, struct br_err *err)
{
    struct control *c = node->state;
    const struct control_config *config = node->config;
    (void)snprintf(c->name, sizeof c->name, "extension/%.120s http", node->id);
    const struct br_server_config server = {.name = c->name,
                                            .what = "http",
                                            .endpoint = config->endpoint,
                                            .transport = config->transport,
                                            .tls = config->tls,
                                            .idle_timeout_ms = IDLE_MS,
                                            .log = &node->log};
    return node->host->ops->serve(node->host, &server, &c->service, &c->server, err);
}

static void on_stopped(void *arg)
{
    br_node_drained(arg);
}

static void drain(struct br_node *node)
{
    struct control *c = node->state;
    if (c->server)
        br_server_stop(c->server, on_stopped, node);
    else
        br_node_drained(node);
}

static void destroy(struct br_node *node)
{
    struct control *c = node->state;
    br_server_free(c->server);
    control_calls_release(c);
    control_overrides_release(&c->rules);
}

extern const struct br_component br_control_extension;
const struct br_component br_control_extension = {
    .name = "control",
    .kind = BR_EXTENSION,
    .stability = "alpha",
    .help = "says what is profiled and why, and profiles more for a while",
    .options = options,
    .config_size = sizeof(struct control_config),
    .state_size = sizeof(struct control),
    .check = check,
    .create = create,
    .start = start,
    .drain = drain,
    .destroy = destroy,
};
