/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/undecided.h"

#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"

#define SLOTS_MIN 64u

static uint64_t undecided_hash(const struct join_undecided *undecided,
                               const struct join_undecided_span *span)
{
    return br_siphash(undecided->secret, span, offsetof(struct join_undecided_span, folds));
}

/* The slot of the span, or the free one where it belongs. */
static uint32_t *undecided_slot(const struct join_undecided *undecided,
                                const struct join_undecided_span *span)
{
    uint32_t i = (uint32_t)undecided_hash(undecided, span) & (undecided->n_slots - 1);
    while (undecided->slots[i] && memcmp(&undecided->spans[undecided->slots[i] - 1], span,
                                         offsetof(struct join_undecided_span, folds)) != 0)
        i = (i + 1) & (undecided->n_slots - 1);
    return &undecided->slots[i];
}

/* Twice the slots when three of four are taken. */
static int undecided_room(struct join_undecided *undecided)
{
    if (undecided->count < undecided->n_slots / 4 * 3)
        return 0;
    uint32_t n = undecided->n_slots ? 2 * undecided->n_slots : SLOTS_MIN;
    uint32_t *slots = br_calloc(n, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    if (!undecided->n_slots)
        br_random_bytes(undecided->secret, sizeof undecided->secret);
    br_free(undecided->slots);
    undecided->slots = slots;
    undecided->n_slots = n;
    for (uint32_t i = 0; i < undecided->count; i++)
        *undecided_slot(undecided, &undecided->spans[i]) = i + 1;
    return 0;
}

int join_undecided_add(struct join_undecided *undecided, uint32_t n_samples, uint32_t index,
                       const uint8_t *trace, const uint8_t *span, uint16_t type, double value)
{
    struct join_undecided_span undecided_span;
    if (!undecided->of && !(undecided->of = br_calloc(n_samples, sizeof *undecided->of)))
        return BR_ENOMEM;
    undecided->n_samples = n_samples;
    memset(&undecided_span, 0, sizeof undecided_span);
    if (trace)
        memcpy(undecided_span.trace, trace, sizeof undecided_span.trace);
    memcpy(undecided_span.span, span, sizeof undecided_span.span);
    undecided_span.has_trace = trace;
    undecided_span.type = type;
    if (undecided_room(undecided) ||
        br_grow(&undecided->spans, &undecided->cap, (size_t)undecided->count + 1,
                sizeof *undecided->spans, n_samples))
        return BR_ENOMEM;
    uint32_t *slot = undecided_slot(undecided, &undecided_span);
    if (!*slot) {
        undecided->spans[undecided->count] = undecided_span;
        *slot = ++undecided->count;
    }
    undecided->of[index] = *slot;
    undecided->spans[*slot - 1].samples++;
    undecided->spans[*slot - 1].value += value;
    return 0;
}

void join_undecided_release(struct join_undecided *undecided)
{
    br_free(undecided->of);
    br_free(undecided->spans);
    br_free(undecided->slots);
    *undecided = (struct join_undecided){0};
}
