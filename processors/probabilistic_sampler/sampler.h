/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides about one span or one sample with the same arithmetic as the Collector's
 * probabilisticsamplerprocessor (v0.155).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/tracestate.h"

enum sampler_mode { SAMPLER_HASH_SEED, SAMPLER_PROPORTIONAL, SAMPLER_EQUALIZING };

/* The rule that made the decision; the names are the values of the metric label `policy`. */
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
    /* records whose randomness is below this threshold are dropped; BR_THRESHOLD_NEVER: all
     * records are dropped */
    uint64_t threshold;
    double ratio; /* share of records to keep, 0 to 1, for mode PROPORTIONAL */
    bool fail_closed;
};

/* Initializes a sampler. `percentage` must not be negative. */
void sampler_init(struct sampler *sampler, enum sampler_mode mode, double percentage, uint32_t seed,
                  unsigned precision, bool fail_closed);

enum sampler_priority { SAMPLER_PRIORITY_NONE, SAMPLER_PRIORITY_KEEP, SAMPLER_PRIORITY_DROP };

struct sampler_span {
    /* 16 bytes; NULL or all zeros: the record does not belong to a trace */
    const uint8_t *trace_id;
    const uint8_t *tracestate;
    size_t tracestate_len;
    enum sampler_priority priority; /* value of the attribute sampling.priority */
};

struct sampler_verdict {
    enum sampler_policy policy;
    bool sampled;
    bool rewrite; /* the tracestate of the span must be replaced by `state` */
    struct br_tracestate state;
};

void sampler_span(const struct sampler *sampler, const struct sampler_span *span,
                  struct sampler_verdict *ret);

/* Returns true if the sampler keeps a record that has this 16-byte trace id and no tracestate. */
bool sampler_id(const struct sampler *sampler, const uint8_t id[16]);
