/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a profiles request as text that does not depend on the encoding of the request. An
 * independent reader of the same profile can produce the same text, such as:
 *
 *     jfr_event=itimer
 *     # process_cpu cpu nanoseconds cpu nanoseconds
 *     Thread.run:829;Main.main:3|profile_id=00000000000004d2,span_name=GET@1700000000 10000000
 *
 * Each profile is a block. The head of a block consists of `__name__`, the sample type and the
 * period type. The blocks are sorted. A line of a block contains a stack (leaf first), the sorted
 * labels, the time, and the sum of all values with the same stack, labels and time. The lines are
 * sorted, too. A link must name the same span as the label profile_id. If not, the line reports it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Appends the text of an encoded request; aborts when it cannot be unpacked. */
void profile_view(const uint8_t *data, size_t len, struct br_str *out);
