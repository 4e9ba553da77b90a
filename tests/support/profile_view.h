/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profiles request as text that does not depend on its encoding, so that an independent reader of
 * the same profile can produce the same text.
 *
 *     jfr_event=itimer
 *     # process_cpu cpu nanoseconds cpu nanoseconds
 *     java/lang/Thread.run:829;Main.main:3|profile_id=00000000000004d2,span_name=GET@1700000000
 * 10000000
 *
 * Each profile is a block: `__name__`, sample type, period type; blocks are sorted. A block has a
 * sorted line for each stack (leaf first), set of labels (sorted) and time with the sum of its
 * values. A link must name the same span as the label profile_id; otherwise the line reports it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Appends the text of an encoded request; aborts when it cannot be unpacked. */
void profile_view(const uint8_t *data, size_t len, struct br_str *out);
