/* SPDX-License-Identifier: Apache-2.0 */
/* Spans for the join's table, without a request that they came in. */
#pragma once

#include <assert.h>
#include <string.h>

#include "core/item.h"
#include "processors/join/table/table.h"

#define ENTER_MAX 64u

/* Enters spans as they shall be found; `where` of each, or NULL for none. */
static inline void enter_spans(struct join_table *t, const struct join_span *spans, size_t n,
                               uint64_t service_hash, const struct join_identity *where,
                               uint64_t now, struct join_tally *tally)
{
    struct br_span found[ENTER_MAX];
    struct join_origin origins[ENTER_MAX];
    struct join_entry entries[ENTER_MAX];
    assert(n <= ENTER_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct join_span *s = &spans[i];
        found[i] = (struct br_span){.head = {.start_ns = s->start_ns, .end_ns = s->end_ns},
                                    .name = s->name,
                                    .name_len = (uint32_t)s->name_len,
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
        entries[i] = (struct join_entry){.span = &found[i],
                                         .origin = &origins[i],
                                         .thread = s->thread,
                                         .thread_name = s->thread_name,
                                         .attributes = s->attributes,
                                         .attributes_len = s->attributes_len};
    }
    join_table_enter(t, entries, n, now, tally);
}
