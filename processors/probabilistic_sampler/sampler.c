/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/probabilistic_sampler/sampler.h"

#include "otlp/trace_id.h"

/* The decision uses 14 bits of the hash, which become the highest 14 bits of the 56-bit
 * randomness. */
#define BUCKETS 0x4000u
#define BUCKETS_SHIFT 42

/* a randomness that passes every threshold except BR_THRESHOLD_NEVER */
#define RANDOMNESS_ALL (BR_THRESHOLD_NEVER - 1)

void sampler_init(struct sampler *sampler, enum sampler_mode mode, double percentage, uint32_t seed,
                  unsigned precision, bool fail_closed)
{
    float percent = percentage > 100 ? 100 : (float)percentage;
    *sampler = (struct sampler){
        .mode = mode, .seed = seed, .precision = precision, .fail_closed = fail_closed};
    if (mode == SAMPLER_HASH_SEED) {
        /* The number is computed in single precision and rounded toward zero, as in the
         * Collector; any other rounding would change decisions. */
        uint32_t accepted = (uint32_t)(percent * (BUCKETS / 100.0f));
        sampler->threshold =
            accepted ? (uint64_t)(BUCKETS - accepted) << BUCKETS_SHIFT : BR_THRESHOLD_NEVER;
        return;
    }
    sampler->threshold = br_percentage_threshold(percent, precision);
    sampler->ratio = (double)percent / 100;
    if (sampler->ratio > 0 && sampler->ratio < 0x1p-56)
        sampler->ratio = 0x1p-56;
}

/* Returns the FNV-1a hash of the seed (little endian) and the id. */
static uint32_t sampler_hash(uint32_t seed, const uint8_t id[16])
{
    uint32_t h = 2166136261u;
    for (int i = 0; i < 4; i++)
        h = (h ^ (seed >> 8 * i & 0xff)) * 16777619u;
    for (int i = 0; i < 16; i++)
        h = (h ^ id[i]) * 16777619u;
    return h;
}

/* Returns a randomness value for the hash. The first 14 bits of the randomness lead to the same
 * decision as the hash itself. The other bits are derived from the rest of the hash. */
static uint64_t sampler_hash_randomness(uint32_t seed, const uint8_t id[16])
{
    uint64_t h = sampler_hash(seed, id), bucket = h & (BUCKETS - 1), rest = h >> 18;
    return (BUCKETS - 1 - bucket) << BUCKETS_SHIFT | (rest ^ rest << 10) << 14 | bucket;
}

/* The values that determine the decision about a span. */
struct draw {
    uint64_t randomness;
    enum sampler_policy policy;
    /* the randomness is missing or contradicts the tracestate; the option fail_closed then
     * determines the decision */
    bool error;
    bool carries; /* the new threshold may be written to the tracestate */
};

static struct draw sampler_draw_by_hash(const struct sampler *sampler, const uint8_t *id,
                                        bool readable, struct br_tracestate *state)
{
    struct draw draw = {RANDOMNESS_ALL, SAMPLER_MISSING, true, false};
    if (id) {
        draw.randomness = sampler_hash_randomness(sampler->seed, id);
        draw.policy = SAMPLER_TRACE_ID_HASH;
    }
    /* A span that uses W3C consistent sampling cannot be sampled by hash. */
    if (!readable || state->rv.len || state->th.len)
        return draw;
    br_tracestate_set_randomness(state, draw.randomness);
    draw.error = false;
    draw.carries = true;
    return draw;
}

static struct draw sampler_draw_by_standard(const uint8_t *id, bool readable,
                                            const struct br_tracestate *state)
{
    struct draw draw = {RANDOMNESS_ALL, SAMPLER_MISSING, !readable, readable};
    if (readable && state->rv.len) {
        draw.randomness = state->randomness;
        draw.policy = SAMPLER_RANDOMNESS;
    } else if (readable && id) {
        draw.randomness = br_trace_randomness(id);
        draw.policy = SAMPLER_TRACE_ID_W3C;
    }
    return draw;
}

static struct draw sampler_draw(const struct sampler *sampler, const struct sampler_span *span,
                                struct br_tracestate *state)
{
    const uint8_t *id = span->trace_id && br_trace_id_valid(span->trace_id) ? span->trace_id : NULL;
    bool readable = br_tracestate_read(state, span->tracestate, span->tracestate_len);
    if (sampler->threshold == BR_THRESHOLD_NEVER)
        return (struct draw){RANDOMNESS_ALL, SAMPLER_PRIORITY, !readable, readable};
    return sampler->mode == SAMPLER_HASH_SEED ? sampler_draw_by_hash(sampler, id, readable, state)
                                              : sampler_draw_by_standard(id, readable, state);
}

/* Removes the threshold from the tracestate if it is inconsistent: the span's randomness is below
 * it, so the span could not have been sampled with it. */
static void sampler_check_consistency(struct draw *draw, struct br_tracestate *state)
{
    if (draw->error)
        return;
    draw->error = draw->policy == SAMPLER_MISSING;
    if (!draw->error && draw->carries && state->th.len && state->threshold > draw->randomness) {
        br_tracestate_clear_threshold(state);
        draw->error = true;
    }
}

static uint64_t sampler_decide(const struct sampler *sampler, const struct br_tracestate *state)
{
    if (sampler->threshold == BR_THRESHOLD_NEVER || sampler->mode == SAMPLER_HASH_SEED ||
        !state->th.len)
        return sampler->threshold;
    if (sampler->mode == SAMPLER_EQUALIZING)
        return state->threshold > sampler->threshold ? state->threshold : sampler->threshold;
    double incoming = (double)(BR_THRESHOLD_NEVER - state->threshold) * 0x1p-56;
    return br_threshold(incoming * sampler->ratio, sampler->precision);
}

void sampler_span(const struct sampler *sampler, const struct sampler_span *span,
                  struct sampler_verdict *ret)
{
    struct draw draw = sampler_draw(sampler, span, &ret->state);
    sampler_check_consistency(&draw, &ret->state);
    uint64_t threshold = sampler->fail_closed ? BR_THRESHOLD_NEVER : BR_THRESHOLD_ALWAYS;
    if (!draw.error)
        threshold = sampler_decide(sampler, &ret->state);
    ret->policy = draw.policy;
    if (span->priority != SAMPLER_PRIORITY_NONE) {
        threshold =
            span->priority == SAMPLER_PRIORITY_KEEP ? BR_THRESHOLD_ALWAYS : BR_THRESHOLD_NEVER;
        ret->policy = SAMPLER_PRIORITY;
    }
    ret->sampled = threshold <= draw.randomness;
    ret->rewrite = ret->sampled && draw.carries;
    /* The threshold of an earlier sampler is kept if that sampler's probability was lower. */
    if (ret->rewrite && (!ret->state.th.len || ret->state.threshold <= threshold))
        br_tracestate_set_threshold(&ret->state, threshold);
}

bool sampler_id(const struct sampler *sampler, const uint8_t id[16])
{
    uint64_t randomness = sampler->mode == SAMPLER_HASH_SEED
                              ? sampler_hash_randomness(sampler->seed, id)
                              : br_trace_randomness(id);
    return sampler->threshold <= randomness;
}
