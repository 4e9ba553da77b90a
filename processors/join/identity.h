/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a span or a sample ran, as far as attributes say: thread, process, and what the process is
 * one of. Each is a hash of its text (numbers are their decimal digits) with the table's secret; 0:
 * not said. Source: opentelemetry.io/docs/specs/semconv/registry/attributes (thread, process, host,
 * container, service).
 */
#pragma once

#include "processors/join/texts.h"

/* Which of them an attribute's key says; JOIN_WHERES: none. */
enum join_where join_where_of(const void *key, size_t len);

/* The hash of an AnyValue that is a text or an integer; 0 when it is neither, or empty. `texts`
 * resolves references; NULL: there are none. */
uint32_t join_where_hash(const struct join_table *t, const uint8_t *any, size_t len,
                         struct join_texts *texts);

/* Notes what the attributes (KeyValues, field `field`) between `p` and `end` say. */
void join_identity_read(const struct join_table *t, const uint8_t *p, const uint8_t *end,
                        uint32_t field, struct join_texts *texts, struct join_identity *ret);

/* False when both say on which thread, and it is not the same; ids count before names. */
static inline bool join_same_thread(uint32_t a_id, uint32_t a_name, uint32_t b_id, uint32_t b_name)
{
    if (a_id && b_id)
        return a_id == b_id;
    return !a_name || !b_name || a_name == b_name;
}
