/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints items as text for people, like the Collector's debug exporter with `verbosity: detailed`.
 * The text contains resources, scopes, spans with all their fields, and every sample of a profile
 * with its link and its stack, leaf first. Control characters in names and values are escaped,
 * because the text may be printed on a terminal.
 */
#pragma once

#include "base/str.h"
#include "core/item.h"

/* Limit on the memory for the positions of the dictionary's entries: BR_PRINT_INDEX bytes for each
 * byte of the item, plus BR_PRINT_INDEX_FREE bytes. */
#define BR_PRINT_INDEX 2u
#define BR_PRINT_INDEX_FREE (64u << 10)

/* br_print_traces and br_print_profiles append the text of an item that br_walk has accepted. A
 * text that exceeds the limit of `out` (at least 256 bytes) is cut at the end of a line, and a last
 * line reports the truncation. For profiles, memory for the positions of the dictionary's entries
 * is also allocated. Both functions return 0, BR_EFULL if the positions would need too much memory,
 * or BR_ENOMEM. */
int br_print_traces(const struct br_item *item, struct br_str *out);
int br_print_profiles(const struct br_item *item, struct br_str *out);

/* Appends one line for each resource, scope, and span or profile, like the Collector's debug
 * exporter with `verbosity: normal`. A line contains the name, ids, duration and attributes. The
 * line of a profile also contains its type and number of samples. Returns the same errors as
 * br_print_traces. */
int br_print_brief(const struct br_item *item, struct br_str *out);
