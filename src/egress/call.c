/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/call.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

void br_calls_init(struct br_calls *calls, struct br_node *node, uint64_t timeout_ms,
                   struct br_outcome (*read)(const struct br_call *call))
{
    *calls = (struct br_calls){.node = node, .timeout_ms = timeout_ms, .read = read};
    br_list_init(&calls->list);
}

/* Leaves what is done for the call. */
static void call_stop(struct br_call *c)
{
    if (c->job)
        br_packing_job_leave(c->job);
    else
        br_client_cancel(c->client, &c->exchange);
    c->job = NULL;
}

/* Finishes the item and frees the call. */
static void call_end(struct br_call *c, const struct br_outcome *outcome)
{
    struct br_item *item = c->item;
    br_host_timer_stop(c->calls->node->host, &c->timer);
    br_list_remove(&c->link);
    br_rope_release(&c->exchange.body);
    br_free(c);
    br_item_finish(item, outcome);
}

void br_calls_release(struct br_calls *calls)
{
    while (calls->node && !br_list_empty(&calls->list)) {
        struct br_call *c = br_container_of(calls->list.next, struct br_call, link);
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
        call_stop(c);
        call_end(c, &o);
    }
}

struct br_call *br_call_new(struct br_calls *calls, struct br_item *item, struct br_client *client)
{
    struct br_call *c = br_calloc(1, sizeof *c);
    if (!c) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return NULL;
    }
    c->calls = calls;
    c->item = item;
    c->client = client;
    br_list_append(&calls->list, &c->link);
    return c;
}

void br_call_fail(struct br_call *c, int rc)
{
    struct br_outcome o =
        rc == BR_ENOMEM
            ? br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory")
            : br_outcome_reject(BR_STATUS_INTERNAL, "cannot be encoded: %s", br_strerror(rc));
    call_end(c, &o);
}

static void on_done(struct br_exchange *x)
{
    struct br_call *c = x->user;
    if (x->error)
        br_client_want(c->client);
    struct br_outcome o = x->error ? br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "%s", x->error_text)
                                   : c->calls->read(c);
    call_end(c, &o);
}

static void on_timeout(struct br_timer *t)
{
    struct br_call *c = br_container_of(t, struct br_call, timer);
    struct br_outcome o =
        br_outcome_retry(BR_STATUS_DEADLINE_EXCEEDED, 0, "%s in %llu ms",
                         c->job ? "the request could not be compressed" : "no answer",
                         (unsigned long long)c->calls->timeout_ms);
    call_stop(c);
    br_client_want(c->client);
    call_end(c, &o);
}

static void call_begin(struct br_call *c)
{
    struct br_host *host = c->calls->node->host;
    uint64_t timeout_ms = c->calls->timeout_ms;
    if (c->until_ms || !timeout_ms)
        return;
    c->until_ms = br_host_mono_ms(host) + timeout_ms;
    (void)br_host_timer(host, &c->timer, timeout_ms, on_timeout);
}

/* What is left of the time limit; 0: there is none. */
static uint64_t call_left_ms(const struct br_call *c)
{
    uint64_t now = br_host_mono_ms(c->calls->node->host);
    if (!c->until_ms)
        return 0;
    return c->until_ms > now ? c->until_ms - now : 1;
}

void br_call_send(struct br_call *c)
{
    call_begin(c);
    c->exchange.timeout_ms = call_left_ms(c);
    c->exchange.on_done = on_done;
    c->exchange.user = c;
    br_client_send(c->client, &c->exchange);
}

/* The body is written, or could not be. */
static void call_go(struct br_call *c, int rc)
{
    if (rc)
        br_call_fail(c, rc);
    else
        br_call_send(c);
}

static void on_packed(void *arg, int rc, struct br_rope *body)
{
    struct br_call *c = arg;
    c->job = NULL;
    c->exchange.body = *body;
    call_go(c, rc);
}

void br_call_pack(struct br_call *c, const struct br_packing *packing, struct br_codec *codec)
{
    struct br_host *host = c->calls->node->host;
    struct br_rope *body = &c->exchange.body;
    enum br_signal signal = c->item->signal;
    if (body->len <= BR_PACKING_NOW || !br_packing_any(packing)) {
        int rc = br_packing_write(packing, signal, codec, host->pool, body);
        call_go(c, rc);
        return;
    }
    c->job = br_packing_job_new(host, packing, signal, body, on_packed, c);
    if (!c->job) {
        br_call_fail(c, BR_ENOMEM);
        return;
    }
    call_begin(c);
    br_packing_job_start(c->job);
}

uint32_t br_call_delay(int64_t delay_ms)
{
    return delay_ms <= 0 ? 0 : delay_ms < UINT32_MAX ? (uint32_t)delay_ms : UINT32_MAX;
}

/* True when a word of the list stands in the text, from the beginning of a word on. */
static bool says(const char *text, const char *const *words)
{
    for (; *words; words++) {
        size_t len = strlen(*words);
        for (const char *at = text; *at; at++)
            if ((at == text || !isalpha((unsigned char)at[-1])) && !strncasecmp(at, *words, len))
                return true;
    }
    return false;
}

bool br_call_says_too_large(const char *sentence)
{
    static const char *const what[] = {"message", "request", "payload",    "body",
                                       "content", "entity",  "decompress", NULL};
    static const char *const size[] = {"larger than",  "too large",       "too big",
                                       "exceeds max",  "exceeds the max", "maximum size",
                                       "message size", "to more than",    NULL};
    static const char *const pace[] = {"rate", "quota", "memory", "too many", "per second", NULL};
    return says(sentence, what) && says(sentence, size) && !says(sentence, pace);
}

struct br_outcome br_call_refusal(const struct br_exchange *x, const char *message)
{
    int64_t delay_ms = x->retry_after_s < INT64_MAX / 1000 ? x->retry_after_s * 1000 : INT64_MAX;
    unsigned status = x->http_status;
    switch (status) {
    case 429:
    case 502:
    case 503:
    case 504:
        return br_outcome_retry(BR_STATUS_UNAVAILABLE, br_call_delay(delay_ms), "HTTP %u %s",
                                status, message);
    case 413:
        return br_outcome_reject(BR_STATUS_RESOURCE_EXHAUSTED, "HTTP 413 %s", message);
    case 401:
        return br_outcome_reject(BR_STATUS_UNAUTHENTICATED, "HTTP 401 %s", message);
    case 403:
        return br_outcome_reject(BR_STATUS_PERMISSION_DENIED, "HTTP 403 %s", message);
    case 404:
        return br_outcome_reject(BR_STATUS_UNIMPLEMENTED, "HTTP 404 %s", message);
    case 400: /* what Collectors say to a body that is too large when decompressed */
        return br_outcome_reject(br_call_says_too_large(message) ? BR_STATUS_RESOURCE_EXHAUSTED
                                                                 : BR_STATUS_INVALID_ARGUMENT,
                                 "HTTP 400 %s", message);
    default:
        return br_outcome_reject(BR_STATUS_UNKNOWN, "HTTP %u %s", status, message);
    }
}

bool br_call_headers_init(struct br_call_headers *h, const struct br_headers *from)
{
    size_t bytes = 1, at = 0;
    *h = (struct br_call_headers){.n = 0};
    for (size_t i = 0; i < from->n; i++)
        bytes += strlen(from->names[i]) + 1;
    h->names = br_malloc(bytes);
    if (!h->names)
        return false;
    for (size_t i = 0; i < from->n; i++) {
        h->v[h->n++] = (struct br_header){h->names + at, from->values[i].text};
        for (const char *c = from->names[i]; *c; c++)
            h->names[at++] = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
        h->names[at++] = '\0';
    }
    return true;
}

void br_call_headers_release(struct br_call_headers *h)
{
    br_free(h->names);
    *h = (struct br_call_headers){.n = 0};
}
