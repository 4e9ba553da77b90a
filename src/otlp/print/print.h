/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints items as text for people, in the manner of the Collector's debug exporter at `detailed`:
 * resources, scopes, spans with everything they have; of profiles every sample with its link and
 * its stack, leaf first. Control characters in names and values are escaped: the text may go to a
 * terminal.
 */
#pragma once

#include "base/str.h"
#include "core/item.h"

#define BR_PRINT_INDEX 2u /* what the index of a dictionary may take, in items */
#define BR_PRINT_INDEX_FREE (64u << 10)

/* Append the text of an item that a walk has accepted. What is over the maximum of `out`, which is
 * 256 bytes or more, is cut at a line, and a last line says so. Beside the text they take memory
 * for the index of a dictionary alone. Return 0, BR_EFULL where that would be too large, or
 * BR_ENOMEM. */
int br_print_traces(const struct br_item *item, struct br_str *out);
int br_print_profiles(const struct br_item *item, struct br_str *out);

/* Appends one line for each resource, scope, and span or profile, as the Collector's debug exporter
 * does at `normal`: name, ids, duration, attributes; of profiles their type and number of samples.
 */
int br_print_brief(const struct br_item *item, struct br_str *out);
