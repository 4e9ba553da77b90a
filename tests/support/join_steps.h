/* SPDX-License-Identifier: Apache-2.0 */
/* Steps for tests of the join: send one span or one sample, and read counters. */
#pragma once

#include "tests/support/join_rig.h"

/* Trace 7 and span 42, in hexadecimal, and the type of the samples. */
#define T7 "00000000000000000000000000000007"
#define S42 "000000000000002a"
#define CPU "samples:count"

/* Send a request that consists of one span (put_one_span), or of one sample of the type
 * samples:count (put_one_sample). */
void join_steps_send_span(struct join_rig *r, const char *service, uint64_t trace, uint64_t span,
                          const char *name);
void join_steps_send_sample(struct join_rig *r, const char *service, uint64_t trace, uint64_t span,
                            uint64_t value);

/* Checks the join's counters of samples of this type. The arguments are the expected values. */
void join_steps_check_counts(struct join_rig *r, const char *type, int joined, int late,
                             int unknown, int too_late, int unlinked);
