/* SPDX-License-Identifier: Apache-2.0 */
#include "net/gate.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "core/outcome.h"
#include "wire/grpc.h"

#define CHALLENGE_SIZE 192
#define PARAM_MAX 4096 /* maximum length, in bytes, of credentials in a query parameter */
#define DETAILS_ARENA_MAX 4096

static const char *const reasons[BR_GATE_REASONS] = {
    [BR_GATE_MISSING] = "missing", [BR_GATE_INVALID] = "invalid", [BR_GATE_LIMITED] = "limited"};

static const char *const texts[BR_GATE_REASONS] = {
    [BR_GATE_MISSING] = "the request has no credentials",
    [BR_GATE_INVALID] = "the credentials are not valid",
    [BR_GATE_LIMITED] = "too many requests with invalid credentials"};

static void gate_refuse_grpc(struct br_request *request, enum br_gate_reason reason)
{
    bool limited = reason == BR_GATE_LIMITED;
    unsigned status = limited ? BR_STATUS_RESOURCE_EXHAUSTED : BR_STATUS_UNAUTHENTICATED;
    struct br_arena arena;
    struct br_response reply = {.grpc_status = status, .grpc_message = texts[reason]};
    br_arena_init(&arena, DETAILS_ARENA_MAX);
    if (limited)
        reply.grpc_details = br_status_encode((int)status, texts[reason], BR_FAILURES_FORGIVE_MS,
                                              &arena, &reply.grpc_details_len);
    request->grpc = true;
    br_request_reply(request, &reply);
    br_arena_release(&arena);
}

/* Writes the value of WWW-Authenticate (RFC 9110 section 11.6.1). A page that fetches data must
 * not make the browser ask for a password. For requests of such pages, the scheme begins with
 * "X-", so that browsers do not know the scheme. */
static void gate_challenge(const struct br_gate *gate, const struct br_authenticator *authenticator,
                           const struct br_request *request, char out[CHALLENGE_SIZE])
{
    const char *scheme =
        authenticator && authenticator->scheme[0] ? authenticator->scheme : "Bearer";
    bool fetched = gate->config.credential && br_request_header(request, "sec-fetch-mode");
    (void)snprintf(out, CHALLENGE_SIZE, "%s%.100s realm=\"braid\"%s", fetched ? "X-" : "", scheme,
                   authenticator && authenticator->has_names ? ", charset=\"UTF-8\"" : "");
}

static void gate_refuse_http(const struct br_gate *gate,
                             const struct br_authenticator *authenticator,
                             struct br_request *request, enum br_gate_reason reason)
{
    char challenge[CHALLENGE_SIZE], text[128];
    bool limited = reason == BR_GATE_LIMITED;
    gate_challenge(gate, authenticator, request, challenge);
    struct br_header header = {"www-authenticate", challenge};
    if (limited)
        header = (struct br_header){"retry-after", "1"};
    (void)snprintf(text, sizeof text, "%s\n", texts[reason]);
    br_request_reply(request, &(struct br_response){.status = limited ? 429 : 401,
                                                    .content_type = "text/plain; charset=utf-8",
                                                    .headers = &header,
                                                    .n_headers = 1,
                                                    .text = text});
}

static void gate_refuse(struct br_gate *gate, const struct br_authenticator *authenticator,
                        struct br_request *request, enum br_gate_reason reason)
{
    *gate->refused[reason] += 1;
    br_log_limited(gate->log, BR_LOG_WARN, &gate->log_limits[reason], br_host_mono_ms(gate->host),
                   BR_LOG_EVERY_MS, "%s: rejected a request from %s: %s", gate->what, request->peer,
                   authenticator ? texts[reason] : "the authenticator is not running");
    request->max_body = 0;
    if (br_grpc_is(request))
        gate_refuse_grpc(request, reason);
    else
        gate_refuse_http(gate, authenticator, request, reason);
}

/* Returns true if the credentials are valid. Returns false and sets `*ret_reason` if the
 * credentials are not valid. Invalid credentials of a session are not counted as a failure,
 * because they were valid before and are not a guess. */
static bool gate_check(struct br_gate *gate, struct br_authenticator *authenticator,
                       struct br_request *request, const char *value, bool from_session,
                       enum br_gate_reason *ret_reason)
{
    uint64_t now_ms = br_host_mono_ms(gate->host);
    enum br_auth_verdict verdict =
        authenticator->check(authenticator, value, false, &request->auth);
    if (verdict == BR_AUTH_ALLOWED)
        return true;
    *ret_reason = from_session && verdict == BR_AUTH_DENIED ? BR_GATE_MISSING : BR_GATE_LIMITED;
    if (*ret_reason == BR_GATE_MISSING)
        return false;
    if (br_failures_limited(&gate->failures, request->peer, now_ms))
        return false;
    if (verdict == BR_AUTH_COSTLY)
        verdict = authenticator->check(authenticator, value, true, &request->auth);
    if (verdict == BR_AUTH_ALLOWED || verdict == BR_AUTH_COSTLY)
        return verdict == BR_AUTH_ALLOWED;
    *ret_reason = BR_GATE_INVALID;
    br_failures_add(&gate->failures, request->peer, now_ms);
    return false;
}

/* Returns the decoded value of the query parameter that contains the credentials, or NULL. */
static const char *gate_find_param(const struct br_gate *gate,
                                   const struct br_authenticator *authenticator,
                                   const struct br_request *request, char out[PARAM_MAX + 1])
{
    const struct br_strings *names = &gate->config.auth->request_params;
    size_t name_len = strlen(authenticator->header), i = 0;
    while (i < names->count && strcasecmp(names->items[i], authenticator->header) != 0)
        i++;
    if (i == names->count)
        return NULL;
    for (const char *pair = request->query; *pair; pair += *pair == '&') {
        size_t len = strcspn(pair, "&");
        if (len > name_len && len - name_len <= PARAM_MAX && pair[name_len] == '=' &&
            strncmp(pair, names->items[i], name_len) == 0) {
            long n = br_percent_decode(pair + name_len + 1, len - name_len - 1, true, out);
            if (n < 0 || memchr(out, 0, (size_t)n))
                return NULL;
            out[n] = '\0';
            return out;
        }
        pair += len;
    }
    return NULL;
}

static void gate_begin(struct br_handler *self, struct br_request *request)
{
    struct br_gate *gate = br_container_of(self, struct br_gate, handler);
    struct br_authenticator *authenticator =
        br_authenticator_find(gate->host, gate->config.auth->authenticator);
    enum br_gate_reason reason = BR_GATE_MISSING;
    request->service = gate->inner;
    if (gate->config.is_public && gate->config.is_public(gate->inner, request)) {
        gate->inner->begin(gate->inner, request);
        return;
    }
    char param[PARAM_MAX + 1];
    const char *value = authenticator ? br_request_header(request, authenticator->header) : NULL;
    if (authenticator && !value)
        value = gate_find_param(gate, authenticator, request, param);
    bool from_session = authenticator && !value && gate->config.credential;
    if (from_session)
        value = gate->config.credential(gate->inner, request);
    if (value && gate_check(gate, authenticator, request, value, from_session, &reason))
        gate->inner->begin(gate->inner, request);
    else
        gate_refuse(gate, authenticator, request, reason);
}

int br_gate_init(struct br_gate *gate, struct br_host *host, const struct br_gate_config *config,
                 struct br_handler *inner, const char *name, const char *what,
                 const struct br_log *log)
{
    *gate = (struct br_gate){.handler = {.begin = gate_begin, .long_target = inner->long_target},
                             .inner = inner,
                             .host = host,
                             .config = *config,
                             .log = log,
                             .what = what};
    for (int i = 0; i < BR_GATE_REASONS; i++) {
        struct br_str labels = {.max = 1024};
        br_label(&labels, "server", name);
        br_label(&labels, "reason", reasons[i]);
        gate->refused[i] = br_metric(host->metrics, BR_COUNTER, "braid_auth_rejected",
                                     labels.data ? labels.data : "");
        br_str_release(&labels);
    }
    return br_failures_init(&gate->failures);
}

void br_gate_release(struct br_gate *gate)
{
    br_failures_release(&gate->failures);
}
