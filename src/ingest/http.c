/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "net/hosts.h"
#include "wire/grpc.h"

#define RETRY_DELAY_MS 1000
#define HEADERS_MAX 16
#define ALWAYS_ALLOWED "content-type, content-encoding"

/* --- Config ----------------------------------------------------------------------------------- */

const struct br_option br_cors_options[] = {
    BR_STRINGS(struct br_cors, allowed_origins,
               "origins of the web pages that may send requests; * is a wildcard"),
    BR_STRINGS(struct br_cors, allowed_headers, "request headers that a page may set; *: any"),
    BR_STRINGS(struct br_cors, exposed_headers, "response headers that a page may read"),
    BR_INT(struct br_cors, max_age, 0, 0, 86400,
           "time in seconds for which browsers may cache a preflight response"),
    BR_OPT_END,
};

const struct br_option br_http_keepalive_options[] = {
    BR_BOOL(struct br_http_keepalive, enabled, true, "allow several requests on one connection"),
    BR_DURATION(struct br_http_keepalive, idle_timeout, "1m",
                "close a connection that has been idle for this time; 0: never"),
    BR_OPT_END,
};

void br_endpoint_check(const char *endpoint, const char *transport, const struct br_yaml *node,
                       const char *path, struct br_errs *errs)
{
    char host[256];
    unsigned port;
    if (strcmp(transport, "tcp") != 0 && strcmp(transport, "tcp4") != 0 &&
        strcmp(transport, "tcp6") != 0 && strcmp(transport, "unix") != 0)
        br_errs_add_key(errs, node, path, "transport", "must be tcp or unix, got \"%s\"",
                        transport);
    else if (strcmp(transport, "unix") != 0 && !br_endpoint_parse(endpoint, host, &port))
        br_errs_add_key(
            errs, node, path, "endpoint",
            "must be host:port with a port from 0 to 65535, such as localhost:4317, got \"%s\"",
            endpoint);
}

size_t br_http_max_body(const struct br_http_config *http)
{
    return http->max_request_body_size ? (size_t)http->max_request_body_size : BR_BODY_MAX;
}

void br_connections_apply(const struct br_connections *connections, struct br_server_config *server)
{
    server->max_connections = (unsigned)connections->max;
    server->max_connections_per_address = (unsigned)connections->max_per_address;
    server->min_body_rate = connections->min_body_rate ? connections->min_body_rate : -1;
    server->first_request_timeout_ms = connections->first_request_timeout / 1000000;
}

bool br_http_is_preflight(const struct br_request *request)
{
    return strcmp(request->method, "OPTIONS") == 0 && br_request_header(request, "origin") &&
           br_request_header(request, "access-control-request-method");
}

/* Browsers do not send credentials with a CORS preflight (Fetch, "CORS-preflight fetch"). */
static bool ingest_http_is_public(struct br_handler *handler, const struct br_request *request)
{
    (void)handler;
    return br_http_is_preflight(request);
}

struct br_server_config br_http_server(const struct br_http_config *http)
{
    uint64_t timeout = http->read_timeout;
    if (http->read_header_timeout && (!timeout || http->read_header_timeout < timeout))
        timeout = http->read_header_timeout;
    struct br_server_config server = {.endpoint = http->endpoint,
                                      .transport = http->transport,
                                      .tls = http->tls,
                                      .gate = {.auth = http->auth},
                                      .idle_timeout_ms = http->keepalive.idle_timeout / 1000000,
                                      .request_timeout_ms = timeout / 1000000};
    if (http->cors)
        server.gate.is_public = ingest_http_is_public;
    br_connections_apply(&http->connections, &server);
    return server;
}

static bool ingest_http_encoding_allowed(const struct br_http_config *http, const char *name)
{
    for (size_t i = 0; i < http->compression_algorithms.count; i++)
        if (strcasecmp(http->compression_algorithms.items[i], name) == 0)
            return true;
    return http->compression_algorithms.count == 0;
}

bool br_http_encoding(const struct br_http_config *http, const struct br_request *request,
                      enum br_encoding *ret)
{
    const char *name = br_request_header(request, "content-encoding");
    *ret = BR_ENCODING_NONE;
    return !name ||
           (br_encoding_parse(name, strlen(name), ret) && ingest_http_encoding_allowed(http, name));
}

/* --- Other origins ---------------------------------------------------------------------------- */

/* Returns true if the origin matches a pattern with at most one `*`, as in the Collector. */
static bool ingest_http_origin_matches(const char *pattern, const char *origin)
{
    const char *star = strchr(pattern, '*');
    if (!star)
        return strcasecmp(pattern, origin) == 0;
    size_t before = (size_t)(star - pattern), after = strlen(star + 1), n = strlen(origin);
    return n >= before + after && strncasecmp(pattern, origin, before) == 0 &&
           strcasecmp(star + 1, origin + n - after) == 0;
}

static const char *ingest_http_allowed_origin(const struct br_request *request,
                                              const struct br_http_config *http)
{
    const char *origin = http && http->cors ? br_request_header(request, "origin") : NULL;
    for (size_t i = 0; origin && i < http->cors->allowed_origins.count; i++)
        if (ingest_http_origin_matches(http->cors->allowed_origins.items[i], origin))
            return origin;
    return NULL;
}

static void ingest_http_join(struct br_str *out, const struct br_strings *list)
{
    for (size_t i = 0; i < list->count; i++)
        br_str_printf(out, "%s%s", out->len ? ", " : "", list->items[i]);
}

/* Returns true if this server has sent the page: the origin consists of a scheme and the request's
 * Host. */
static bool ingest_http_is_own_origin(const struct br_hosts *hosts,
                                      const struct br_request *request, const char *origin)
{
    const char *host =
        request->scheme_host[0] ? request->scheme_host : br_request_header(request, "host");
    const char *colon = strstr(origin, "://");
    return host && colon && strcasecmp(colon + 3, host) == 0 && br_hosts_allow(hosts, request);
}

/* Returns true if a page of another site embeds the requested resource, for example as an image.
 * Browsers request embedded resources without an Origin header. Instead, they send Sec-Fetch-Site,
 * and a Sec-Fetch-Mode other than navigate (w3.org/TR/fetch-metadata). */
static bool ingest_http_is_embedded(const struct br_request *request)
{
    const char *site = br_request_header(request, "sec-fetch-site");
    const char *mode = br_request_header(request, "sec-fetch-mode");
    return site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0 &&
           !(mode && strcmp(mode, "navigate") == 0);
}

static bool ingest_http_is_foreign(const struct br_http_config *http,
                                   const struct br_strings *allowed_hosts,
                                   const struct br_request *request)
{
    const struct br_hosts hosts = {http->endpoint, http->transport, allowed_hosts};
    const char *origin = br_request_header(request, "origin");
    if (!origin)
        return ingest_http_is_embedded(request);
    return !ingest_http_is_own_origin(&hosts, request, origin) &&
           !ingest_http_allowed_origin(request, http);
}

static bool ingest_http_preflight(const struct br_http_config *http, struct br_request *request)
{
    if (!http->cors || strcmp(request->method, "OPTIONS") != 0 ||
        !br_request_header(request, "access-control-request-method"))
        return false;
    const char *origin = ingest_http_allowed_origin(request, http);
    const char *asked = br_request_header(request, "access-control-request-headers");
    struct br_str headers = {.max = 4096};
    char age[24];
    struct br_header h[7];
    size_t n = 0;
    h[n++] = (struct br_header){"vary", "origin, access-control-request-headers"};
    if (origin) {
        bool any = false;
        for (size_t i = 0; i < http->cors->allowed_headers.count; i++)
            any = any || strcmp(http->cors->allowed_headers.items[i], "*") == 0;
        /* web pages that send OTLP/JSON need these headers, so they are always allowed */
        br_str_puts(&headers, ALWAYS_ALLOWED);
        ingest_http_join(&headers, &http->cors->allowed_headers);
        h[n++] = (struct br_header){"access-control-allow-origin", origin};
        h[n++] = (struct br_header){"access-control-allow-credentials", "true"};
        h[n++] = (struct br_header){"access-control-allow-methods", "POST"};
        const char *allowed = headers.data ? headers.data : ALWAYS_ALLOWED;
        if (any && asked)
            allowed = asked;
        h[n++] = (struct br_header){"access-control-allow-headers", allowed};
        (void)snprintf(age, sizeof age, "%lld", (long long)http->cors->max_age);
        if (http->cors->max_age)
            h[n++] = (struct br_header){"access-control-max-age", age};
    }
    br_request_reply(request, &(struct br_response){.status = 204, .headers = h, .n_headers = n});
    br_str_release(&headers);
    return true;
}

bool br_http_answer_page(const struct br_http_config *http, const struct br_strings *allowed_hosts,
                         struct br_request *request)
{
    static const char text[] =
        "requests from this Origin are not allowed; add it to cors::allowed_origins\n";
    if (ingest_http_preflight(http, request))
        return true;
    if (!ingest_http_is_foreign(http, allowed_hosts, request))
        return false;
    br_http_reply(http, request,
                  &(struct br_http_answer){.status = 403,
                                           .type = "text/plain; charset=utf-8",
                                           .data = text,
                                           .len = sizeof text - 1});
    return true;
}

/* --- Answers ---------------------------------------------------------------------------------- */

uint32_t br_retry_delay_ms(const struct br_outcome *outcome)
{
    if (outcome->verdict != BR_RETRY)
        return 0;
    return outcome->delay_ms ? outcome->delay_ms : RETRY_DELAY_MS;
}

static size_t ingest_http_add_headers(struct br_header *header, size_t count,
                                      const struct br_request *request,
                                      const struct br_http_config *http, struct br_str *exposed)
{
    const char *origin = ingest_http_allowed_origin(request, http);
    if (origin) {
        header[count++] = (struct br_header){"access-control-allow-origin", origin};
        header[count++] = (struct br_header){"access-control-allow-credentials", "true"};
        header[count++] = (struct br_header){"vary", "origin"};
        ingest_http_join(exposed, &http->cors->exposed_headers);
        if (exposed->len)
            header[count++] = (struct br_header){"access-control-expose-headers", exposed->data};
    }
    for (size_t i = 0; http && i < http->response_headers.count && count < HEADERS_MAX; i++)
        header[count++] = (struct br_header){http->response_headers.names[i],
                                             http->response_headers.values[i].text};
    return count;
}

void br_http_reply(const struct br_http_config *http, struct br_request *request,
                   const struct br_http_answer *answer)
{
    struct br_str exposed = {.max = 4096};
    char seconds[16];
    struct br_header h[HEADERS_MAX + BR_HTTP_ANSWER_HEADERS + 8];
    size_t n = 0;
    for (size_t i = 0; i < answer->n_headers && i < BR_HTTP_ANSWER_HEADERS; i++)
        h[n++] = answer->headers[i];
    if (answer->delay_ms) {
        (void)snprintf(seconds, sizeof seconds, "%u", (answer->delay_ms - 1) / 1000 + 1);
        h[n++] = (struct br_header){"retry-after", seconds};
    }
    if (answer->apart) {
        h[n++] = (struct br_header){"x-content-type-options", "nosniff"};
        h[n++] = (struct br_header){"cross-origin-resource-policy", "same-origin"};
    }
    if (answer->status == 405)
        h[n++] = (struct br_header){"allow", answer->allow ? answer->allow : "POST"};
    n = ingest_http_add_headers(h, n, request, http, &exposed);
    br_request_reply(request, &(struct br_response){.status = answer->status,
                                                    .content_type = answer->type,
                                                    .headers = h,
                                                    .n_headers = n,
                                                    .body = answer->body,
                                                    .text = answer->len ? answer->data : NULL,
                                                    .text_len = answer->len,
                                                    .stream = answer->stream,
                                                    .close = http && !http->keepalive.enabled});
    br_str_release(&exposed);
}

/* --- gRPC ------------------------------------------------------------------------------------- */

void br_grpc_refuse(struct br_request *request, enum br_status status, const char *why)
{
    static const struct br_header accept = {"grpc-accept-encoding", "identity,gzip,zstd,snappy"};
    request->grpc = true;
    br_request_reply(request, &(struct br_response){.grpc_status = status,
                                                    .grpc_message = why,
                                                    .headers = &accept,
                                                    .n_headers = 1});
}

bool br_grpc_begin(struct br_request *request, enum br_encoding *ret)
{
    const char *name = br_request_header(request, "grpc-encoding");
    *ret = BR_ENCODING_NONE;
    request->grpc = true;
    if (strcmp(request->method, "POST") != 0) {
        br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED, "gRPC requests must use POST");
        return false;
    }
    if (name && (!br_encoding_parse(name, strlen(name), ret) || *ret == BR_ENCODING_DEFLATE)) {
        br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED,
                       "grpc-encoding must be gzip, zstd or snappy");
        return false;
    }
    return true;
}

void br_grpc_reply(struct br_request *request, const struct br_outcome *outcome,
                   const void *message, size_t len)
{
    struct br_arena arena;
    struct br_response reply = {.grpc_status = br_outcome_grpc(outcome)};
    br_arena_init(&arena, 65536);
    if (outcome->verdict == BR_DONE) {
        reply.text_len = len;
        reply.text = len ? message : NULL;
    } else {
        reply.grpc_message = outcome->text;
        reply.grpc_details =
            br_status_encode((int)reply.grpc_status, outcome->text, br_retry_delay_ms(outcome),
                             &arena, &reply.grpc_details_len);
    }
    br_request_reply(request, &reply);
    br_arena_release(&arena);
}
