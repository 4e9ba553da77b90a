/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/request.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"

#define LARGE (1u << 20)

const char *br_request_header(const struct br_request *request, const char *name)
{
    for (size_t i = 0; i < request->n_headers; i++)
        if (strcmp(request->headers[i].name, name) == 0)
            return request->headers[i].value;
    return NULL;
}

void br_request_body_fail(struct br_request *request, enum br_body_error error)
{
    if (request->body_error)
        return;
    request->body_error = error;
    request->body = br_buf_unref(request->body);
}

/* Returns the buffer size for a body of which `need` bytes were received. The buffer has room for
 * `need` more bytes or, if `need` is LARGE or more, for `need` / 4 more bytes. If the pool has an
 * unused buffer of `expected` bytes, the result is `expected`. */
static size_t request_size_for(const struct br_request *request, size_t need, size_t expected)
{
    size_t want = need + (need < LARGE ? need : need / 4);
    if (expected > need && expected <= LARGE && br_pool_has(request->pool, expected))
        return expected;
    if (expected > need && want > expected)
        want = expected;
    return want > request->max_body ? request->max_body : want;
}

/* Enlarges the body's buffer to at least `need` bytes, within the memory limit. */
static int request_body_reserve(struct br_request *request, size_t need, size_t expected)
{
    size_t cap = request->body ? request->body->cap : 0,
           want = request_size_for(request, need, expected);
    if (need <= cap)
        return 0;
    if (!request->body && expected <= need)
        want = need;
    if (want > need && !br_pool_fits(request->pool, br_buf_room(want) - cap))
        want = need;
    if (want == need && !br_pool_fits(request->pool, br_buf_room(want) - cap))
        return BR_ENOMEM;
    if (!request->body)
        request->body = br_buf_new(request->pool, want);
    else if (br_buf_reserve(&request->body, want))
        return br_buf_reserve(&request->body, need);
    return request->body ? 0 : BR_ENOMEM;
}

void br_request_body_add(struct br_request *request, const uint8_t *data, size_t len,
                         size_t expected)
{
    size_t have = request->body ? request->body->len : 0;
    if (request->body_error || len == 0)
        return;
    if (len > request->max_body || have > request->max_body - len) {
        br_request_body_fail(request, BR_BODY_TOO_BIG);
        return;
    }
    size_t need = have + len;
    int rc = request_body_reserve(request, need, expected);
    if (!rc)
        rc = br_buf_append(&request->body, data, len, need);
    if (rc) {
        request->body_wanted = br_buf_room(expected > need ? expected : need);
        br_request_body_fail(request, BR_BODY_NO_MEMORY);
    }
}

void br_request_reply(struct br_request *request, const struct br_response *response)
{
    assert(!request->replied);
    request->replied = true;
    request->streaming = response->stream;
    request->reply(request, response);
}

bool br_request_write(struct br_request *request, const void *data, size_t len, size_t max)
{
    assert(request->streaming);
    return len == 0 || request->write(request, data, len, max);
}

static void request_end(struct br_request *request, bool whole)
{
    assert(request->streaming);
    request->streaming = false;
    request->end(request, whole);
}

void br_request_end(struct br_request *request)
{
    request_end(request, true);
}

void br_request_break(struct br_request *request)
{
    request_end(request, false);
}

void br_request_reply_text(struct br_request *request, unsigned status, const char *text)
{
    br_request_reply(request, &(struct br_response){.status = status,
                                                    .content_type = "text/plain; charset=utf-8",
                                                    .text = text});
}

const char *br_http_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } known[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].status == status)
            return known[i].reason;
    return "";
}
