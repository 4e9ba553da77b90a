/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An outcome is the result of an item. It is converted to a gRPC status and an HTTP status code.
 * Source: opentelemetry-proto docs/specification.md (1.11), "Failures" and "OTLP/HTTP Response".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum br_verdict {
    BR_DONE,   /* the next component has accepted the item, or the item was delivered */
    BR_RETRY,  /* temporarily refused: the same request can be sent again after the delay */
    BR_REJECT, /* permanently rejected: the same request would be rejected again */
};

/* gRPC status codes (grpc/doc/statuscodes.md). */
enum br_status {
    BR_STATUS_OK = 0,
    BR_STATUS_CANCELLED = 1,
    BR_STATUS_UNKNOWN = 2,
    BR_STATUS_INVALID_ARGUMENT = 3,
    BR_STATUS_DEADLINE_EXCEEDED = 4,
    BR_STATUS_NOT_FOUND = 5,
    BR_STATUS_ALREADY_EXISTS = 6,
    BR_STATUS_PERMISSION_DENIED = 7,
    BR_STATUS_RESOURCE_EXHAUSTED = 8,
    BR_STATUS_FAILED_PRECONDITION = 9,
    BR_STATUS_ABORTED = 10,
    BR_STATUS_OUT_OF_RANGE = 11,
    BR_STATUS_UNIMPLEMENTED = 12,
    BR_STATUS_INTERNAL = 13,
    BR_STATUS_UNAVAILABLE = 14,
    BR_STATUS_DATA_LOSS = 15,
    BR_STATUS_UNAUTHENTICATED = 16,
};

struct br_outcome {
    enum br_verdict verdict;
    enum br_status status; /* the cause of the verdict; BR_STATUS_OK with BR_DONE */
    /* BR_RETRY: delay before the next try in milliseconds; 0: the destination has not specified
     * a delay */
    uint32_t delay_ms;
    uint32_t n_rejected; /* BR_DONE: number of records that the destination rejected */
    char text[192];      /* reason for the verdict, one sentence for users; may be empty */
};

#define BR_OUTCOME_DONE ((struct br_outcome){.verdict = BR_DONE})

/* br_outcome_retry and br_outcome_reject return an outcome with BR_RETRY or BR_REJECT and a
 * printf-style sentence. */
struct br_outcome br_outcome_retry(enum br_status status, uint32_t delay_ms, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct br_outcome br_outcome_reject(enum br_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Merges the outcome of a child into that of its parent. The parent gets the worse verdict with
 * its sentence, the sum of the rejected counts, and the longer delay. */
void br_outcome_fold(struct br_outcome *into, const struct br_outcome *child);

/* Returns the gRPC status for a client: OK for BR_DONE. For BR_RETRY the result is
 * RESOURCE_EXHAUSTED if `status` is RESOURCE_EXHAUSTED (a backend asked to slow down), otherwise
 * UNAVAILABLE. For BR_REJECT the result is `status`, or INTERNAL if `status` is OK. */
enum br_status br_outcome_grpc(const struct br_outcome *outcome);

/* Returns the HTTP code for a client: 200 for BR_DONE. For BR_RETRY the code is 429 if `status`
 * is RESOURCE_EXHAUSTED, otherwise 503. For BR_REJECT the code depends on `status` (400, 401,
 * 403, 404, 409, 413, 499, 500). */
unsigned br_outcome_http(const struct br_outcome *outcome);

/* Returns true if a client may send a request again after a response with this status.
 * RESOURCE_EXHAUSTED is retryable only with a RetryInfo. */
bool br_status_retryable(enum br_status status, bool has_retry_info);

/* Returns the name of a status, such as "UNAVAILABLE"; "UNKNOWN" for unknown numbers. */
const char *br_status_name(enum br_status status);
