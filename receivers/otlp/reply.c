/* SPDX-License-Identifier: Apache-2.0 */
/* Answers, by opentelemetry-proto docs/specification.md 1.11: "OTLP/gRPC" and "OTLP/HTTP Response". */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "receivers/otlp/otlp.h"
#include "wire/grpc.h"
#include "wire/protobuf.h"

#define RETRY_DELAY_MS 1000
#define HEADERS_MAX 16
#define ALWAYS_ALLOWED "content-type, content-encoding"

/* True when the origin matches one with at most one `*`, as the Collector's. */
static bool origin_matches(const char *pattern, const char *origin)
{
    const char *star = strchr(pattern, '*');
    if (!star)
        return strcasecmp(pattern, origin) == 0;
    size_t before = (size_t)(star - pattern), after = strlen(star + 1), n = strlen(origin);
    return n >= before + after && strncasecmp(pattern, origin, before) == 0 &&
           strcasecmp(star + 1, origin + n - after) == 0;
}

static const char *allowed_origin(const struct br_request *r, const struct otlp_http *http)
{
    const char *origin = http && http->cors ? br_request_header(r, "origin") : NULL;
    for (size_t i = 0; origin && i < http->cors->allowed_origins.n; i++)
        if (origin_matches(http->cors->allowed_origins.v[i], origin))
            return origin;
    return NULL;
}

static void join(struct br_str *out, const struct br_strings *list)
{
    for (size_t i = 0; i < list->n; i++)
        br_str_printf(out, "%s%s", out->len ? ", " : "", list->v[i]);
}

bool otlp_preflight(struct br_request *r, const struct otlp_http *http)
{
    if (!http->cors || strcmp(r->method, "OPTIONS") != 0 ||
        !br_request_header(r, "access-control-request-method"))
        return false;
    const char *origin = allowed_origin(r, http);
    const char *asked = br_request_header(r, "access-control-request-headers");
    struct br_str headers = {.max = 4096};
    char age[24];
    struct br_header h[6];
    size_t n = 0;
    h[n++] = (struct br_header){"vary", "origin, access-control-request-headers"};
    if (origin) {
        bool any = false;
        for (size_t i = 0; i < http->cors->allowed_headers.n; i++)
            any = any || strcmp(http->cors->allowed_headers.v[i], "*") == 0;
        br_str_puts(&headers, ALWAYS_ALLOWED); /* OTLP/JSON cannot do without */
        join(&headers, &http->cors->allowed_headers);
        h[n++] = (struct br_header){"access-control-allow-origin", origin};
        h[n++] = (struct br_header){"access-control-allow-methods", "POST"};
        h[n++] = (struct br_header){"access-control-allow-headers",
                                    any && asked   ? asked
                                    : headers.data ? headers.data
                                                   : ALWAYS_ALLOWED};
        (void)snprintf(age, sizeof age, "%lld", (long long)http->cors->max_age);
        if (http->cors->max_age)
            h[n++] = (struct br_header){"access-control-max-age", age};
    }
    br_request_reply(r, &(struct br_response){.status = 204, .headers = h, .n_headers = n});
    br_str_release(&headers);
    return true;
}

/* An Export...ServiceResponse with partial_success, or nothing where all went well. */
static size_t encode_partial(const struct br_outcome *o, uint8_t *out)
{
    uint8_t inner[16 + sizeof o->text], *p = inner;
    if (!o->n_rejected && !o->text[0])
        return 0;
    if (o->n_rejected) {
        p = br_put_varint(p, BR_TAG(1, BR_WIRE_VARINT));
        p = br_put_varint(p, o->n_rejected);
    }
    if (o->text[0])
        p = br_put_len(p, 2, o->text, strlen(o->text));
    return (size_t)(br_put_len(out, 1, inner, (size_t)(p - inner)) - out);
}

static void encode_partial_json(const struct br_outcome *o, enum br_signal signal,
                                struct br_str *out)
{
    if (!o->n_rejected && !o->text[0]) {
        br_str_puts(out, "{}");
        return;
    }
    br_str_puts(out, "{\"partialSuccess\":{");
    if (o->n_rejected)
        br_str_printf(out, "\"rejected%s\":\"%u\"%s", signal == BR_TRACES ? "Spans" : "Profiles",
                      o->n_rejected, o->text[0] ? "," : "");
    if (o->text[0]) {
        br_str_puts(out, "\"errorMessage\":");
        br_str_json(out, o->text, strlen(o->text));
    }
    br_str_puts(out, "}}");
}

static void reply_grpc(struct br_request *r, const struct br_outcome *o, uint32_t delay_ms)
{
    struct br_arena arena;
    uint8_t partial[64 + sizeof o->text];
    struct br_response reply = {.grpc_status = br_outcome_grpc(o)};
    br_arena_init(&arena, 65536);
    if (o->verdict == BR_DONE) {
        reply.text_len = encode_partial(o, partial);
        reply.text = reply.text_len ? (const char *)partial : NULL;
    } else {
        reply.grpc_message = o->text;
        reply.grpc_details = br_status_encode((int)reply.grpc_status, o->text, delay_ms, &arena,
                                              &reply.grpc_details_len);
    }
    br_request_reply(r, &reply);
    br_arena_release(&arena);
}

static size_t add_headers(struct br_header *h, size_t n, const struct br_request *r,
                          const struct otlp_http *http, struct br_str *exposed)
{
    const char *origin = allowed_origin(r, http);
    if (origin) {
        h[n++] = (struct br_header){"access-control-allow-origin", origin};
        h[n++] = (struct br_header){"vary", "origin"};
        join(exposed, &http->cors->exposed_headers);
        if (exposed->len)
            h[n++] = (struct br_header){"access-control-expose-headers", exposed->data};
    }
    for (size_t i = 0; http && i < http->response_headers.n && n < HEADERS_MAX; i++)
        h[n++] = (struct br_header){http->response_headers.names[i],
                                    http->response_headers.values[i].text};
    return n;
}

static void reply_http(struct br_request *r, enum br_signal signal, bool json, unsigned code,
                       const struct br_outcome *o, uint32_t delay_ms, const struct otlp_http *http)
{
    struct br_arena arena;
    struct br_str text = {.max = 65536}, exposed = {.max = 4096};
    uint8_t partial[64 + sizeof o->text];
    char seconds[16];
    struct br_header h[HEADERS_MAX + 5];
    size_t n = 0;
    struct br_response reply = {.status = code,
                                .content_type =
                                    json ? "application/json" : "application/x-protobuf"};
    br_arena_init(&arena, 65536);
    if (delay_ms) {
        (void)snprintf(seconds, sizeof seconds, "%u", (delay_ms + 999) / 1000);
        h[n++] = (struct br_header){"retry-after", seconds};
    }
    if (code == 405)
        h[n++] = (struct br_header){"allow", "POST"};
    n = add_headers(h, n, r, http, &exposed);
    if (o->verdict == BR_DONE && json) {
        encode_partial_json(o, signal, &text);
    } else if (o->verdict == BR_DONE) {
        reply.text_len = encode_partial(o, partial);
        reply.text = reply.text_len ? (const char *)partial : NULL;
    } else if (json) {
        br_str_printf(&text, "{\"code\":%d,\"message\":", (int)br_outcome_grpc(o));
        br_str_json(&text, o->text, strlen(o->text));
        br_str_putc(&text, '}');
    } else {
        reply.text = (const char *)br_status_encode((int)br_outcome_grpc(o), o->text, delay_ms,
                                                    &arena, &reply.text_len);
    }
    if (json && text.data) {
        reply.text = text.data;
        reply.text_len = text.len;
    }
    reply.headers = h;
    reply.n_headers = n;
    reply.close = http && !http->keep_alives_enabled;
    br_request_reply(r, &reply);
    br_str_release(&text);
    br_str_release(&exposed);
    br_arena_release(&arena);
}

void otlp_reply(struct br_request *r, enum br_signal signal, enum otlp_format format,
                const struct br_outcome *o, const struct otlp_http *http)
{
    uint32_t delay_ms = 0;
    if (o->verdict == BR_RETRY)
        delay_ms = o->delay_ms ? o->delay_ms : RETRY_DELAY_MS;
    if (format == OTLP_GRPC)
        reply_grpc(r, o, delay_ms);
    else
        reply_http(r, signal, format == OTLP_JSON, br_outcome_http(o), o, delay_ms, http);
}

void otlp_refuse(struct br_request *r, unsigned code, enum otlp_format format, const char *why,
                 const struct otlp_http *http)
{
    struct br_outcome o = br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "%s", why);
    reply_http(r, BR_TRACES, format == OTLP_JSON, code, &o, 0, http);
}
