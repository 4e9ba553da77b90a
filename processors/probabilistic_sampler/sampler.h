/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides about one span or one sample, by the arithmetic of the Collector's
 * probabilisticsamplerprocessor (v0.155).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/tracestate.h"

enum sampler_mode { SAMPLER_HASH_SEED, SAMPLER_PROPORTIONAL, SAMPLER_EQUALIZING };

/* The rule that decided; the names are those of the metric's label `policy`. */
enum sampler_policy {
    SAMPLER_TRACE_ID_HASH,
    SAMPLER_TRACE_ID_W3C,
    SAMPLER_RANDOMNESS,
    SAMPLER_PRIORITY,
    SAMPLER_MISSING,
    SAMPLER_PROFILE_ID,
    SAMPLER_UNLINKED,
    SAMPLER_POLICIES,
};

struct sampler {
    enum sampler_mode mode;
    uint32_t seed;
    unsigned precision;
    uint64_t threshold; /* BR_THRESHOLD_NEVER: nothing is sampled */
    double ratio;       /* PROPORTIONAL */
    bool fail_closed;
};

/* Prepares a sampler; `percentage` is not negative. */
void sampler_init(struct sampler *sampler, enum sampler_mode mode, double percentage, uint32_t seed,
                  unsigned precision, bool fail_closed);

enum sampler_priority { SAMPLER_PRIORITY_NONE, SAMPLER_PRIORITY_KEEP, SAMPLER_PRIORITY_DROP };

struct sampler_span {
    const uint8_t *trace_id; /* 16 bytes; NULL or zeros: none */
    const uint8_t *tracestate;
    size_t tracestate_len;
    enum sampler_priority priority; /* of the attribute sampling.priority */
};

struct sampler_verdict {
    enum sampler_policy policy;
    bool sampled;
    bool rewrite; /* the tracestate is now the one in `state` */
    struct br_tracestate state;
};

void sampler_span(const struct sampler *sampler, const struct sampler_span *span,
                  struct sampler_verdict *ret);

/* Gives the decision about what has an id of 16 bytes and no tracestate. */
bool sampler_id(const struct sampler *sampler, const uint8_t id[16]);
