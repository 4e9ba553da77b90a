/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the partial_success of an Export...ServiceResponse: rejected_spans or rejected_profiles =
 * 1, error_message = 2. Source: opentelemetry-proto 1.11, collector/{trace,profiles}/, and
 * protobuf's "ProtoJSON Format".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"
#include "core/outcome.h"

/* Reads an encoded response, and sets `n_rejected` and the text of the outcome if the response
 * contains them. */
void otlp_partial_read(const uint8_t *data, size_t len, struct br_outcome *outcome);

/* Reads a response in JSON, and sets `n_rejected` and the text of the outcome if the response
 * contains them. Each field may have its JSON name or its protobuf name. Numbers may be strings,
 * and may have an exponent or a fraction of zeros. Invalid characters in strings (bytes that are
 * not UTF-8, unpaired surrogates, control characters) are replaced. Returns false if the JSON
 * cannot be read even so. */
bool otlp_partial_read_json(const uint8_t *text, size_t len, enum br_signal signal,
                            struct br_outcome *outcome);

/* Converts n_rejected from profiles (ExportProfilesPartialSuccess.rejected_profiles) to samples,
 * in proportion to the item's profiles and samples. */
void otlp_partial_to_samples(const struct br_item *item, struct br_outcome *outcome);
