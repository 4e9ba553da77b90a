/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

#define RETRY_INFO_URL "type.googleapis.com/google.rpc.RetryInfo"

bool br_grpc_is(const struct br_request *request)
{
    const char *type = br_request_header(request, "content-type");
    return type && request->http2 && br_text_starts_nocase(type, "application/grpc") &&
           type[16] != '-';
}

void br_grpc_prefix(uint8_t out[BR_GRPC_PREFIX], bool compressed, uint32_t len)
{
    out[0] = compressed;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

void br_grpc_encode_message(struct br_str *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c > 0x7e || *c == '%')
            br_str_printf(out, "%%%02X", *c);
        else
            br_str_putc(out, (char)*c);
    }
}

void br_grpc_decode_message(const char *text, size_t len, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < size; i++) {
        uint8_t byte;
        if (text[i] == '%' && len - i > 2 && br_hex_decode(text + i + 1, 2, &byte, 1) == 1) {
            out[n++] = (char)byte;
            i += 2;
        } else {
            out[n++] = text[i];
        }
    }
    out[n] = '\0';
}

void br_grpc_timeout(uint64_t timeout_ms, char *out)
{
    if (timeout_ms < 100000000)
        (void)snprintf(out, 16, "%um", (unsigned)timeout_ms);
    else if (timeout_ms / 1000 < 100000000)
        (void)snprintf(out, 16, "%uS", (unsigned)(timeout_ms / 1000));
    else
        (void)snprintf(out, 16, "99999999H");
}

uint8_t *br_status_encode(int code, const char *message, uint32_t delay_ms, struct br_arena *arena,
                          size_t *ret_len)
{
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *details[] = {&any};
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    size_t valid = br_utf8_valid((const uint8_t *)message, strlen(message));
    if (message[valid] && !(message = br_arena_strndup(arena, message, valid)))
        return NULL;
    status.code = code;
    status.message = (char *)(uintptr_t)message;
    if (delay_ms > 0) {
        delay.seconds = delay_ms / 1000;
        delay.nanos = (int32_t)(delay_ms % 1000) * 1000000;
        retry.retry_delay = &delay;
        any.type_url = (char *)(uintptr_t)RETRY_INFO_URL;
        any.value.len = google__rpc__retry_info__get_packed_size(&retry);
        any.value.data = br_arena_alloc(arena, any.value.len);
        if (!any.value.data)
            return NULL;
        google__rpc__retry_info__pack(&retry, any.value.data);
        status.n_details = 1;
        status.details = details;
    }
    size_t len = google__rpc__status__get_packed_size(&status);
    uint8_t *out = br_arena_alloc(arena, len);
    if (out)
        *ret_len = google__rpc__status__pack(&status, out);
    return out;
}

static int64_t grpc_retry_delay(const Google__Protobuf__Any *any, ProtobufCAllocator *allocator)
{
    int64_t delay_ms = -1;
    if (!any->type_url || strcmp(any->type_url, RETRY_INFO_URL) != 0)
        return delay_ms;
    Google__Rpc__RetryInfo *retry =
        google__rpc__retry_info__unpack(allocator, any->value.len, any->value.data);
    if (!retry)
        return delay_ms;
    delay_ms = 0;
    const Google__Protobuf__Duration *d = retry->retry_delay;
    if (d && d->seconds >= 0 && d->seconds < 86400 * 365 && d->nanos >= 0)
        delay_ms = d->seconds * 1000 + d->nanos / 1000000;
    return delay_ms;
}

bool br_status_decode(const uint8_t *data, size_t len, int *ret_code, char *message, size_t size,
                      int64_t *ret_delay_ms)
{
    struct br_arena arena;
    br_arena_init(&arena, 65536);
    Google__Rpc__Status *status = google__rpc__status__unpack(br_arena_pb(&arena), len, data);
    if (status) {
        *ret_code = status->code;
        if (message && size)
            (void)snprintf(message, size, "%s", status->message);
        *ret_delay_ms = -1;
        for (size_t i = 0; i < status->n_details && *ret_delay_ms < 0; i++)
            *ret_delay_ms = grpc_retry_delay(status->details[i], br_arena_pb(&arena));
    }
    br_arena_release(&arena);
    return status != NULL;
}
