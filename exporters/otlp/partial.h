/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what an Export...ServiceResponse says of a request that was taken in part: partial_success
 * { rejected_spans or rejected_profiles = 1, error_message = 2 }. Source: opentelemetry-proto 1.11,
 * collector/{trace,profiles}/; for JSON protobuf's "ProtoJSON Format".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"
#include "core/outcome.h"

/* Sets n_rejected and text of the outcome where the message has them. */
void otlp_partial_read(const uint8_t *data, size_t len, struct br_outcome *outcome);

/* The same of JSON: fields by either of their names, numbers as numbers or as strings, with a
 * fraction of zeros or an exponent. What is no text in strings (bytes that are not UTF-8, halves of
 * surrogate pairs, control characters) is replaced. False when it cannot be read nevertheless. */
bool otlp_partial_read_json(const uint8_t *text, size_t len, enum br_signal signal,
                            struct br_outcome *outcome);

/* Makes n_rejected, which is of profiles (ExportProfilesPartialSuccess.rejected_profiles), one of
 * the item's samples: the share of them that these profiles have of its own. */
void otlp_partial_to_samples(const struct br_item *item, struct br_outcome *outcome);
