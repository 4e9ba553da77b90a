/* SPDX-License-Identifier: Apache-2.0 */
/* Inserts spans into the join's table without a request that contains them. */
#pragma once

#include <assert.h>
#include <string.h>

#include "core/item.h"
#include "otlp/fields.h"
#include "processors/join/table/table.h"
#include "wire/protobuf.h"

#define ENTER_MAX 64u

/* Writes an AnyValue of a thread's number; returns its length. */
static inline uint32_t enter_thread(uint8_t *p, uint32_t number)
{
    p[0] = BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT);
    return (uint32_t)(br_put_varint(p + 1, number) - p);
}

/* Inserts spans of one service. The thread of a span is a number and is looked up by its hash
 * (join_table_hash_int). If `where` is not NULL, it is an array with the identity of each span. */
static inline void enter_spans(struct join_table *t, const struct join_span *spans, size_t n,
                               uint64_t service_hash, const struct join_identity *where,
                               uint64_t now, struct join_tally *tally)
{
    struct br_span found[ENTER_MAX];
    struct join_origin origins[ENTER_MAX];
    struct join_attributes attributes[ENTER_MAX];
    uint8_t threads[ENTER_MAX][1 + BR_VARINT_MAX];
    assert(n <= ENTER_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct join_span *s = &spans[i];
        found[i] = (struct br_span){.head = {.start_ns = s->start_ns, .end_ns = s->end_ns},
                                    .name = s->name,
                                    .name_len = (uint32_t)s->name_len,
                                    .part = (uint32_t)i,
                                    .kind = s->kind,
                                    .status = s->status};
        memcpy(&found[i].head.span_id, s->span_id, 8);
        if (s->trace_id)
            memcpy(found[i].head.trace_id, s->trace_id, 16);
        if (s->parent_id)
            memcpy(&found[i].head.parent_id, s->parent_id, 8);
        origins[i] = (struct join_origin){.service = s->service,
                                          .service_len = s->service_len,
                                          .service_hash = service_hash,
                                          .where = where ? &where[i] : NULL};
        attributes[i] = (struct join_attributes){s->attributes, s->attributes_len};
        if (s->thread) {
            found[i].thread_id = threads[i];
            found[i].thread_id_len = enter_thread(threads[i], s->thread);
        }
    }
    const struct join_entries entries = {
        .spans = found, .count = n, .origins = origins, .attributes = attributes};
    (void)join_table_enter(t, &entries, now, tally);
}
