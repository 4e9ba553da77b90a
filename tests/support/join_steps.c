/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/join_steps.h"

#include "tests/support/test.h"

void join_steps_send_span(struct join_rig *r, const char *service, uint64_t trace, uint64_t span,
                          const char *name)
{
    struct wire w = {0};
    put_one_span(&w, service, trace, span, name);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

void join_steps_send_sample(struct join_rig *r, const char *service, uint64_t trace, uint64_t span,
                            uint64_t value)
{
    struct wire w = {0};
    put_one_sample(&w, service, trace, span, value);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
}

void join_steps_check_counts(struct join_rig *r, const char *type, int joined, int late,
                             int unknown, int too_late, int unlinked)
{
    assert_int_equal((int)join_rig_count(r, "samples_joined", type), joined);
    assert_int_equal((int)join_rig_count(r, "samples_joined_late", type), late);
    assert_int_equal((int)join_rig_count(r, "samples_unknown_span", type), unknown);
    assert_int_equal((int)join_rig_count(r, "samples_too_late", type), too_late);
    assert_int_equal((int)join_rig_count(r, "samples_unlinked", type), unlinked);
}
