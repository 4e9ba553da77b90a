/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how long a request in a durable queue waits for its delivery before it is written to
 * disk. A request that is delivered within this time is never written.
 *
 * The wait is useful only if the destination usually answers in time. If more than one request is
 * late for every BR_EARLY_SHARE requests in time, the wait is suspended for a pause, and all
 * requests are written at once. Each further pause is twice as long, up to BR_EARLY_PAUSE_MAX_MS.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BR_EARLY_SHARE 8u
#define BR_EARLY_PAUSE_FIRST_MS 1000u
#define BR_EARLY_PAUSE_MAX_MS 64000u
/* number of requests in time after which the next pause is BR_EARLY_PAUSE_FIRST_MS long again */
#define BR_EARLY_WINDOW 1024u

/* Statistics of recent requests. The caller sets `wait_ms` and zeroes the other fields. */
struct br_early {
    /* time in milliseconds that a request waits for its delivery; 0: requests do not wait */
    uint64_t wait_ms;
    uint64_t pause_ms, paused_until_ms;
    /* Numbers of requests delivered in time and late since the last pause. Both numbers are halved
     * when n_in_time reaches BR_EARLY_WINDOW. */
    uint32_t n_in_time, n_late;
};

/* Returns the time at which a request that arrives now must be written, in monotonic milliseconds.
 * During a pause, this is `now_ms`. */
uint64_t br_early_until(const struct br_early *early, uint64_t now_ms);

/* Records whether a request was delivered before the time that br_early_until has returned for
 * it. */
void br_early_note(struct br_early *early, bool in_time, uint64_t now_ms);
