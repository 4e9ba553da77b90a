/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how long requests of a durable queue wait for their delivery before they are written. A
 * request that is delivered within this time needs no write at all.
 *
 * The wait is useful only if the destination usually answers in time. If there is more than one
 * late request for BR_EARLY_SHARE requests in time, requests are written at once during a pause.
 * Each further pause is twice as long, up to BR_EARLY_PAUSE_MAX_MS.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BR_EARLY_SHARE 8u
#define BR_EARLY_PAUSE_FIRST_MS 1000u
#define BR_EARLY_PAUSE_MAX_MS 64000u
/* number of requests after which a pause has its first length again */
#define BR_EARLY_WINDOW 1024u

/* The state of the decision. Set `wait_ms`, and zero the other fields. */
struct br_early {
    uint64_t wait_ms; /* longest wait for a delivery in milliseconds */
    uint64_t pause_ms, paused_until_ms;
    uint32_t n_in_time, n_late; /* since the last pause, or since half of them were forgotten */
};

/* Returns the time in monotonic milliseconds at which a request that has just arrived is written.
 * During a pause, this is `now_ms`. */
uint64_t br_early_until(const struct br_early *early, uint64_t now_ms);

/* Notes that a request was delivered before br_early_until, or that it was not. */
void br_early_note(struct br_early *early, bool in_time, uint64_t now_ms);
