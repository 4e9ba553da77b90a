/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consistent probability sampling by trace id. The last 56 bits of an id are its randomness, a
 * probability is a threshold between 0 and 2^56, and a trace is sampled where its randomness is not
 * below the threshold. So whoever asks with the same probability, on whatever instance, gets the
 * same answer, and what passes at a lower one passes at every higher one too. Source:
 * opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling; the rounding is that of
 * the Collector's probabilistic_sampler.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_THRESHOLD_ALWAYS UINT64_C(0)
#define BR_THRESHOLD_NEVER (UINT64_C(1) << 56)
#define BR_THRESHOLD_DIGITS 14   /* hex digits of a threshold */
#define BR_THRESHOLD_PRECISION 4 /* of them, those that count by default */

/* Returns true where the id is not all zeros, which is none. */
bool br_trace_id_valid(const uint8_t trace_id[16]);

/* Returns the last 56 bits. */
uint64_t br_trace_randomness(const uint8_t trace_id[16]);

/* Returns the threshold of a probability, rounded to `precision` hex digits (1 to 14) behind those
 * at its start that are all 0 or all f. At most 2^-56 and 1; NEVER below, ALWAYS above, NEVER for
 * NaN. */
uint64_t br_threshold(double probability, unsigned precision);

/* Returns the threshold of a percentage, which counts in single precision, as it does in the
 * Collector's configuration. Above 0 it is never NEVER. */
uint64_t br_percentage_threshold(double percentage, unsigned precision);

/* Says whether a trace is among the sampled `percentage` per cent: what probabilistic_sampler says,
 * with its default precision, in the modes proportional and equalizing, of a span without
 * tracestate. */
bool br_trace_sampled(const uint8_t trace_id[16], double percentage);

/* Reads a trace id out of a label's text: hex of any case with white space around it; short ones
 * are padded with zeros on the left, long ones may have zeros there. False when it is none, or
 * zero. */
bool br_trace_id_parse(const void *text, size_t len, uint8_t ret[16]);
