/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a profiles item as text, with which a test can compare. Reads the item with protobuf-c,
 * which does not share code with Braid's encoder. The text has a line for each Resource, scope,
 * profile and sample:
 *
 *   resource service.name=shop          attributes in order
 *   scope pyroscope.name=process_cpu
 *   profile cpu nanoseconds period cpu nanoseconds 10000000 time 1 duration 2
 *   a;b 10 {thread=1}                   root first, sorted; function names only
 */
#pragma once

#include "core/item.h"

/* Returns the item as text. The caller frees it with free(). Aborts if the item cannot be
 * decoded. */
char *profile_text(const struct br_item *item);
