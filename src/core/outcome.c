/* SPDX-License-Identifier: Apache-2.0 */
#include "core/outcome.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    unsigned http;
    bool retryable;
} statuses[] = {
    [BR_STATUS_OK] = {"OK", 200, false},
    [BR_STATUS_CANCELLED] = {"CANCELLED", 499, true},
    [BR_STATUS_UNKNOWN] = {"UNKNOWN", 500, false},
    [BR_STATUS_INVALID_ARGUMENT] = {"INVALID_ARGUMENT", 400, false},
    [BR_STATUS_DEADLINE_EXCEEDED] = {"DEADLINE_EXCEEDED", 504, true},
    [BR_STATUS_NOT_FOUND] = {"NOT_FOUND", 404, false},
    [BR_STATUS_ALREADY_EXISTS] = {"ALREADY_EXISTS", 409, false},
    [BR_STATUS_PERMISSION_DENIED] = {"PERMISSION_DENIED", 403, false},
    [BR_STATUS_RESOURCE_EXHAUSTED] = {"RESOURCE_EXHAUSTED", 413, false},
    [BR_STATUS_FAILED_PRECONDITION] = {"FAILED_PRECONDITION", 400, false},
    [BR_STATUS_ABORTED] = {"ABORTED", 409, true},
    [BR_STATUS_OUT_OF_RANGE] = {"OUT_OF_RANGE", 400, true},
    [BR_STATUS_UNIMPLEMENTED] = {"UNIMPLEMENTED", 404, false},
    [BR_STATUS_INTERNAL] = {"INTERNAL", 500, false},
    [BR_STATUS_UNAVAILABLE] = {"UNAVAILABLE", 503, true},
    [BR_STATUS_DATA_LOSS] = {"DATA_LOSS", 500, true},
    [BR_STATUS_UNAUTHENTICATED] = {"UNAUTHENTICATED", 401, false},
};

static bool outcome_known(enum br_status status)
{
    return (unsigned)status < sizeof statuses / sizeof statuses[0];
}

struct br_outcome br_outcome_retry(enum br_status status, uint32_t delay_ms, const char *fmt, ...)
{
    struct br_outcome outcome = {.verdict = BR_RETRY, .status = status, .delay_ms = delay_ms};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(outcome.text, sizeof outcome.text, fmt, ap);
    va_end(ap);
    return outcome;
}

struct br_outcome br_outcome_reject(enum br_status status, const char *fmt, ...)
{
    struct br_outcome outcome = {.verdict = BR_REJECT, .status = status};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(outcome.text, sizeof outcome.text, fmt, ap);
    va_end(ap);
    return outcome;
}

void br_outcome_fold(struct br_outcome *into, const struct br_outcome *child)
{
    uint32_t rejected = into->n_rejected + child->n_rejected;
    if (rejected < into->n_rejected)
        rejected = UINT32_MAX;
    uint32_t delay_ms = into->delay_ms > child->delay_ms ? into->delay_ms : child->delay_ms;
    if (child->verdict > into->verdict || (!into->text[0] && child->verdict == into->verdict))
        *into = *child;
    into->n_rejected = rejected;
    into->delay_ms = delay_ms;
}

enum br_status br_outcome_grpc(const struct br_outcome *outcome)
{
    if (outcome->verdict == BR_DONE)
        return BR_STATUS_OK;
    if (outcome->verdict == BR_RETRY)
        return outcome->status == BR_STATUS_RESOURCE_EXHAUSTED ? BR_STATUS_RESOURCE_EXHAUSTED
                                                               : BR_STATUS_UNAVAILABLE;
    return outcome->status == BR_STATUS_OK ? BR_STATUS_INTERNAL : outcome->status;
}

unsigned br_outcome_http(const struct br_outcome *outcome)
{
    if (outcome->verdict == BR_DONE)
        return 200;
    if (outcome->verdict == BR_RETRY)
        return outcome->status == BR_STATUS_RESOURCE_EXHAUSTED ? 429 : 503;
    unsigned http = outcome_known(outcome->status) ? statuses[outcome->status].http : 500;
    /* A rejection must not use 502, 503 or 504, because clients send a request again after these
     * codes. */
    return http == 200 || http > 500 ? 500 : http;
}

bool br_status_retryable(enum br_status status, bool has_retry_info)
{
    if (status == BR_STATUS_RESOURCE_EXHAUSTED)
        return has_retry_info;
    return outcome_known(status) && statuses[status].retryable;
}

const char *br_status_name(enum br_status status)
{
    return outcome_known(status) ? statuses[status].name : "UNKNOWN";
}
