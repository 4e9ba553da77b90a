/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profiles item as text that a test can contain: unpacked by protobuf-c, which shares no code
 * with the encoder. One line each:
 *
 *   resource service.name=shop          attributes in order
 *   scope pyroscope.name=process_cpu
 *   profile cpu nanoseconds period cpu nanoseconds 10000000 time 1 duration 2
 *   a;b 10 {thread=1}                   root first, sorted; function names only
 */
#pragma once

#include "core/item.h"

/* Returns the text, which the caller frees (free). Aborts if the item cannot be decoded. */
char *profile_text(const struct br_item *item);
