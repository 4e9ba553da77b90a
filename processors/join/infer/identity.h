/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads from attributes where a span or a sample ran: thread, process, service, and the places
 * host, container, pod and instance. Each is a hash of its text (of a number, its decimal digits)
 * with the table's secret; 0: not said. Source:
 * opentelemetry.io/docs/specs/semconv/registry/attributes (thread, process, host, container, k8s,
 * service).
 */
#pragma once

#include "processors/join/table/table.h"

struct join_texts;

/* Returns which of them an attribute's key names; JOIN_WHERES: none. */
enum join_where join_where_of(const void *key, size_t len);

/* Returns the hash of an AnyValue that is a text or an integer, of an attribute whose key says
 * `where`; 0 when it is neither, or empty. `texts` resolves references; NULL: there are none. The
 * language of an SDK (JOIN_RUNTIME) gives 0 where thread ids are the system's. Source: semantic
 * conventions, thread.id is that of the runtime where this has its own. */
uint32_t join_where_value(const struct join_table *table, enum join_where where, const uint8_t *any,
                          size_t len, struct join_texts *texts);

/* Notes what the attributes of the Resource between `p` and `end` say. */
void join_identity_read(const struct join_table *table, const uint8_t *p, const uint8_t *end,
                        struct join_texts *texts, struct join_identity *ret);

/* Returns false when both say on which thread, and it is not the same. Names count before ids: the
 * ids of one may be the runtime's and those of the other the system's. */
static inline bool join_same_thread(uint32_t a_id, uint32_t a_name, uint32_t b_id, uint32_t b_name)
{
    if (a_name && b_name)
        return a_name == b_name;
    return !a_id || !b_id || a_id == b_id;
}

/* The identity of the service that a Resource describes: hashes with and without its instance (0:
 * the resource names none), and its name. References are resolved by `texts`, which may be NULL. */
struct join_service {
    uint64_t service, instance;
    const uint8_t *name;
    size_t name_len;
};
struct join_service join_service_of(const struct br_part *part, struct join_texts *texts);

/* Returns the length of what is kept of a name: JOIN_VALUE_MAX bytes, cut between characters. */
size_t join_cut(const uint8_t *text, size_t len);
