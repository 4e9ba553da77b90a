/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads from attributes where a span or a sample ran: its thread, process and service, and the
 * places (host, container, pod and instance). Each is stored as the hash of its text with the
 * table's secret; a number is hashed as its decimal digits. The hash 0 means that the attribute is
 * absent.
 *
 * Source: opentelemetry.io/docs/specs/semconv/registry/attributes (thread, process, host,
 * container, k8s, service).
 */
#pragma once

#include "processors/join/table/table.h"

struct join_texts;

/* Returns the meaning of an attribute's key for enum join_where, or JOIN_WHERES if the key has
 * none of these meanings. */
enum join_where join_where_of(const void *key, size_t len);

/* Returns the hash of an AnyValue that is a text or an integer. Returns 0 if the value has
 * another type or is empty. `where` is the meaning of the attribute's key. `texts` resolves
 * references to strings; it may be NULL without references. For JOIN_RUNTIME, whose value is an
 * SDK's language, returns 0 if the thread ids of that language are the operating system's.
 * Source: semantic conventions, thread.id. */
uint32_t join_where_value(const struct join_table *table, enum join_where where, const uint8_t *any,
                          size_t len, struct join_texts *texts);

/* Reads the attributes of the Resource between `p` and `end` and stores their hashes in `*ret`. */
void join_identity_read(const struct join_table *table, const uint8_t *p, const uint8_t *end,
                        struct join_texts *texts, struct join_identity *ret);

/* Returns false if both sides name a thread and the threads differ. Names take precedence over
 * ids, because one side may report ids of the runtime and the other side ids of the operating
 * system. */
static inline bool join_same_thread(uint32_t a_id, uint32_t a_name, uint32_t b_id, uint32_t b_name)
{
    if (a_name && b_name)
        return a_name == b_name;
    return !a_id || !b_id || a_id == b_id;
}

/* The service that a Resource describes: a hash without and a hash with its instance (0:
 * absent), and its name. `texts` resolves references to strings; it may be NULL. */
struct join_service {
    uint64_t service, instance;
    const uint8_t *name;
    size_t name_len;
};
struct join_service join_service_of(const struct br_part *part, struct join_texts *texts);

/* Returns how many bytes of a name are stored: at most JOIN_VALUE_MAX, without splitting a
 * character. */
size_t join_cut(const uint8_t *text, size_t len);
