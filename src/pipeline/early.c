/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/early.h"

uint64_t br_early_until(const struct br_early *early, uint64_t now_ms)
{
    return now_ms < early->paused_until_ms ? now_ms : now_ms + early->wait_ms;
}

static void early_pause(struct br_early *early, uint64_t now_ms)
{
    uint64_t longer_ms = early->pause_ms ? 2 * early->pause_ms : BR_EARLY_PAUSE_FIRST_MS;
    early->pause_ms = longer_ms < BR_EARLY_PAUSE_MAX_MS ? longer_ms : BR_EARLY_PAUSE_MAX_MS;
    early->paused_until_ms = now_ms + early->pause_ms;
    early->n_in_time = early->n_late = 0;
}

void br_early_note(struct br_early *early, bool in_time, uint64_t now_ms)
{
    if (now_ms < early->paused_until_ms)
        return; /* the request arrived before the pause, so its result no longer counts */
    early->n_in_time += in_time;
    early->n_late += !in_time;
    if (!in_time && early->n_late * BR_EARLY_SHARE > early->n_in_time) {
        early_pause(early, now_ms);
    } else if (early->n_in_time >= BR_EARLY_WINDOW) {
        early->pause_ms = 0;
        early->n_in_time /= 2;
        early->n_late /= 2;
    }
}
