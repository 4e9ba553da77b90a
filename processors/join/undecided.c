/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/annotations.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define KEY_SIZE offsetof(struct join_undecided_span, folds)

static uint64_t undecided_hash(const void *entries, uint32_t place)
{
    const struct join_undecided *undecided = entries;
    return br_index_hash(&undecided->index, &undecided->spans[place], KEY_SIZE);
}

static bool undecided_is_span(const void *entries, uint32_t place, const void *key)
{
    return memcmp((const struct join_undecided_span *)entries + place, key, KEY_SIZE) == 0;
}

/* Finds a span in the list, or adds it if the list does not contain it. */
static int undecided_enter(struct join_undecided *undecided, const struct join_undecided_span *span,
                           uint32_t *ret)
{
    uint64_t hash = br_index_hash(&undecided->index, span, KEY_SIZE);
    *ret = br_index_find(&undecided->index, hash, undecided_is_span, undecided->spans, span);
    if (*ret != BR_INDEX_NONE)
        return 0;
    if (br_grow(&undecided->spans, &undecided->cap, (size_t)undecided->count + 1, sizeof *span,
                undecided->n_samples) ||
        br_index_add(&undecided->index, hash, undecided->count, undecided_hash, undecided))
        return BR_ENOMEM;
    *ret = undecided->count++;
    undecided->spans[*ret] = *span;
    return 0;
}

static int undecided_prepare(struct join_undecided *undecided, uint32_t n_samples)
{
    undecided->of = br_calloc(n_samples, sizeof *undecided->of);
    if (!undecided->of)
        return BR_ENOMEM;
    undecided->n_samples = n_samples;
    br_index_init(&undecided->index, n_samples, BR_HOLDER_ITEMS);
    return 0;
}

int join_undecided_add(struct join_undecided *undecided, uint32_t n_samples, uint32_t index,
                       const uint8_t *trace, const uint8_t *span, uint16_t type, double value)
{
    struct join_undecided_span undecided_span;
    uint32_t place;
    if (!undecided->of && undecided_prepare(undecided, n_samples))
        return BR_ENOMEM;
    memset(&undecided_span, 0, sizeof undecided_span);
    if (trace)
        memcpy(undecided_span.trace, trace, sizeof undecided_span.trace);
    memcpy(undecided_span.span, span, sizeof undecided_span.span);
    undecided_span.has_trace = trace;
    undecided_span.type = type;
    if (undecided_enter(undecided, &undecided_span, &place))
        return BR_ENOMEM;
    undecided->of[index] = place + 1;
    undecided->spans[place].samples++;
    undecided->spans[place].value += value;
    return 0;
}

void join_undecided_release(struct join_undecided *undecided)
{
    br_free(undecided->of);
    br_free(undecided->spans);
    br_index_release(&undecided->index);
    *undecided = (struct join_undecided){0};
}
