/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements consistent probability sampling by trace id. The last 56 bits of an id are its
 * randomness, and a probability is expressed as a threshold between 0 and 2^56. A trace is sampled
 * if its randomness is at least the threshold. Every instance with the same probability therefore
 * selects the same traces, and a trace that is selected at a low probability is also selected at
 * every higher probability.
 *
 * Source: opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling. Thresholds are
 * rounded as in the Collector's probabilistic_sampler.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_THRESHOLD_ALWAYS UINT64_C(0)
#define BR_THRESHOLD_NEVER (UINT64_C(1) << 56)
#define BR_THRESHOLD_DIGITS 14   /* maximum number of hex digits of a threshold */
#define BR_THRESHOLD_PRECISION 4 /* default number of significant hex digits of a threshold */

/* Returns true if the id is valid: not all zeros. */
bool br_trace_id_valid(const uint8_t trace_id[16]);

/* Returns the randomness of a trace id: its last 56 bits. */
uint64_t br_trace_randomness(const uint8_t trace_id[16]);

/* Returns the threshold of a probability, rounded to `precision` significant hex digits (1 to
 * 14). Leading digits that are all 0 or all f are not significant. Returns BR_THRESHOLD_ALWAYS
 * for a probability of 1 or more. Returns BR_THRESHOLD_NEVER for a probability below 2^-56 and
 * for NaN. */
uint64_t br_threshold(double probability, unsigned precision);

/* Returns the threshold of a percentage. The percentage is rounded to single precision, as in
 * the Collector's configuration. For a percentage above 0 the result is never
 * BR_THRESHOLD_NEVER. */
uint64_t br_percentage_threshold(double percentage, unsigned precision);

/* Returns true if a trace is among the sampled `percentage` per cent. The result equals that of
 * the Collector's probabilistic_sampler for a span without tracestate, with the default
 * precision, in the modes "proportional" and "equalizing". */
bool br_trace_sampled(const uint8_t trace_id[16], double percentage);

/* Parses a trace id from the text of a label: hex digits in either case, with optional white
 * space around them. Short ids are padded with zeros on the left; extra zeros on the left of a
 * long id are ignored. Returns false if the text is not an id, or if the id is all zeros. */
bool br_trace_id_parse(const void *text, size_t len, uint8_t ret[16]);
