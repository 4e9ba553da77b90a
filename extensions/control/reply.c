/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"
#include "extensions/control/control.h"

#define HEADERS_MAX 2

void control_reply(struct br_request *request, unsigned status, const struct br_header *header,
                   const struct br_str *json)
{
    struct br_header headers[HEADERS_MAX] = {{"cache-control", "no-store"}};
    struct br_response reply = {.status = status,
                                .content_type = "application/json",
                                .headers = headers,
                                .n_headers = 1,
                                .text = json->data,
                                .text_len = json->len};
    if (header)
        headers[reply.n_headers++] = *header;
    if (json->failed || !json->data) {
        reply.status = 503;
        reply.text = "{\"error\":{\"status\":503,\"message\":\"out of memory\"}}\n";
        reply.text_len = 0;
        reply.n_headers = 1;
    }
    br_request_reply(request, &reply);
}

void control_reply_error(struct br_request *request, unsigned status,
                         const struct br_header *header, const char *field, const char *fmt, ...)
{
    struct br_str json = {0};
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    br_str_printf(&json, "{\"error\":{\"status\":%u,", status);
    if (field && field[0]) {
        br_str_puts(&json, "\"field\":");
        br_str_json(&json, field, strlen(field));
        br_str_putc(&json, ',');
    }
    br_str_puts(&json, "\"message\":");
    br_str_json(&json, text, strlen(text));
    br_str_puts(&json, "}}\n");
    control_reply(request, status, header, &json);
    br_str_release(&json);
}

/* --- JSON ------------------------------------------------------------------------------------ */

/* Appends an id without quotes. */
static void reply_put_id(struct br_str *out, uint64_t id)
{
    br_str_printf(out, "%016" PRIx64, id);
}

bool control_parse_id(const char *text, uint64_t *ret)
{
    uint8_t bytes[CONTROL_ID_LEN / 2];
    uint64_t id = 0;
    if (strlen(text) != CONTROL_ID_LEN ||
        br_hex_decode(text, CONTROL_ID_LEN, bytes, sizeof bytes) != sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        id = id << 8 | bytes[i];
    *ret = id;
    return id != 0;
}

static void control_reply_put_text(struct br_str *out, const char *name, const char *value)
{
    br_str_printf(out, ",\"%s\":", name);
    br_str_json(out, value, strlen(value));
}

/* Appends a duration in the format of the configuration and of requests. */
static void control_reply_put_duration(struct br_str *out, const char *name, uint64_t ns)
{
    br_str_printf(out, ",\"%s\":\"", name);
    if (ns % 1000000000 == 0)
        br_str_printf(out, "%" PRIu64 "s\"", ns / 1000000000);
    else if (ns % 1000000 == 0)
        br_str_printf(out, "%" PRIu64 "ms\"", ns / 1000000);
    else
        br_str_printf(out, "%" PRIu64 "ns\"", ns);
}

/* Appends a time in the format of RFC 3339, in UTC. */
static void control_reply_put_time(struct br_str *out, const char *name, uint64_t unix_ns)
{
    char text[BR_RFC3339_SIZE];
    br_str_printf(out, ",\"%s\":\"%s\"", name, br_rfc3339(unix_ns, 3, text));
}

void control_put_override(struct br_str *out, const struct control_override *override,
                          uint64_t now_ms)
{
    const struct br_override *base = &override->base;
    uint64_t left_ms = base->until_ms > now_ms ? base->until_ms - now_ms : 0;
    br_str_puts(out, "{\"id\":\"");
    reply_put_id(out, base->id);
    br_str_putc(out, '"');
    control_reply_put_text(out, "service", base->service);
    if (base->target)
        control_reply_put_text(out, "target", base->target);
    for (size_t i = 0; i < base->n_types; i++) {
        br_str_puts(out, i ? "," : ",\"profile_types\":[");
        br_str_json(out, base->types[i], strlen(base->types[i]));
    }
    if (base->n_types)
        br_str_putc(out, ']');
    if (base->interval_ms)
        control_reply_put_duration(out, "interval", base->interval_ms * 1000000);
    if (base->sampling_percentage > 0)
        br_str_printf(out, ",\"sampling_percentage\":%.10g", base->sampling_percentage);
    if (base->slow_threshold_ns)
        control_reply_put_duration(out, "slow_threshold", base->slow_threshold_ns);
    control_reply_put_duration(out, "duration", override->duration_ms * 1000000);
    control_reply_put_time(out, "since", override->since_ns);
    control_reply_put_time(out, "until", override->until_ns);
    br_str_printf(out, ",\"seconds_left\":%" PRIu64 "}", (left_ms + 999) / 1000);
}

void control_put_collected(struct br_str *out, const struct br_collected *collected)
{
    br_str_puts(out, "{\"component\":");
    br_str_json(out, collected->component, strlen(collected->component));
    control_reply_put_text(out, "profile_type", collected->type);
    if (collected->service && collected->service[0])
        control_reply_put_text(out, "service", collected->service);
    if (collected->target && collected->target[0])
        control_reply_put_text(out, "target", collected->target);
    if (collected->interval_ms)
        control_reply_put_duration(out, "interval", collected->interval_ms * 1000000);
    if (collected->state && collected->state[0])
        control_reply_put_text(out, "state", collected->state);
    if (collected->override) {
        br_str_puts(out, ",\"because\":\"override\",\"override\":\"");
        reply_put_id(out, collected->override);
        br_str_puts(out, "\"}");
    } else {
        br_str_puts(out, ",\"because\":\"config\"}");
    }
}
