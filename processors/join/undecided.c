/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/undecided.h"

#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"

#define SLOTS_MIN 64u

static uint64_t undecided_hash(const struct join_undecided *u, const struct join_undecided_span *s)
{
    return br_siphash(u->secret, s, offsetof(struct join_undecided_span, folds));
}

/* The slot of the span, or the free one where it belongs. */
static uint32_t *undecided_slot(const struct join_undecided *u, const struct join_undecided_span *s)
{
    uint32_t i = (uint32_t)undecided_hash(u, s) & (u->n_slots - 1);
    while (u->slots[i] &&
           memcmp(&u->spans[u->slots[i] - 1], s, offsetof(struct join_undecided_span, folds)) != 0)
        i = (i + 1) & (u->n_slots - 1);
    return &u->slots[i];
}

/* Twice the slots when three of four are taken. */
static int undecided_room(struct join_undecided *u)
{
    if (u->n < u->n_slots / 4 * 3)
        return 0;
    uint32_t n = u->n_slots ? 2 * u->n_slots : SLOTS_MIN;
    uint32_t *slots = br_calloc(n, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    if (!u->n_slots)
        br_random_bytes(u->secret, sizeof u->secret);
    br_free(u->slots);
    u->slots = slots;
    u->n_slots = n;
    for (uint32_t i = 0; i < u->n; i++)
        *undecided_slot(u, &u->spans[i]) = i + 1;
    return 0;
}

int join_undecided_add(struct join_undecided *u, uint32_t n_samples, uint32_t index,
                       const uint8_t *trace, const uint8_t *span, uint16_t type, double value)
{
    struct join_undecided_span s;
    if (!u->of && !(u->of = br_calloc(n_samples, sizeof *u->of)))
        return BR_ENOMEM;
    u->n_samples = n_samples;
    memset(&s, 0, sizeof s);
    if (trace)
        memcpy(s.trace, trace, sizeof s.trace);
    memcpy(s.span, span, sizeof s.span);
    s.has_trace = trace;
    s.type = type;
    if (undecided_room(u) ||
        br_grow(&u->spans, &u->cap, (size_t)u->n + 1, sizeof *u->spans, n_samples))
        return BR_ENOMEM;
    uint32_t *slot = undecided_slot(u, &s);
    if (!*slot) {
        u->spans[u->n] = s;
        *slot = ++u->n;
    }
    u->of[index] = *slot;
    u->spans[*slot - 1].samples++;
    u->spans[*slot - 1].value += value;
    return 0;
}

void join_undecided_release(struct join_undecided *u)
{
    br_free(u->of);
    br_free(u->spans);
    br_free(u->slots);
    *u = (struct join_undecided){0};
}
