/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads from attributes where a span or a sample ran: its thread, process and service, and its
 * places (host, container, pod and instance). The value of each attribute is stored as a hash of
 * its text, which depends on the table's secret. A number is hashed as its decimal digits. The hash
 * 0 means that the attribute is absent.
 *
 * Source: opentelemetry.io/docs/specs/semconv/registry/attributes (thread, process, host,
 * container, k8s, service).
 */
#pragma once

#include "processors/join/table/table.h"

struct join_texts;

/* Returns the value of enum join_where that an attribute's key stands for, or JOIN_WHERES if the
 * key does not stand for any. */
enum join_where join_where_of(const void *key, size_t len);

/* Returns the hash of an AnyValue that is a text or an integer. Returns 0 if the value has
 * another type or is empty. `where` is the meaning of the attribute's key. `texts` resolves
 * references to strings; it may be NULL if there are none. The value of JOIN_RUNTIME is the
 * language of an SDK. For JOIN_RUNTIME, the result is 0 if thread ids in that language are those
 * of the operating system. Source: semantic conventions, thread.id. */
uint32_t join_where_value(const struct join_table *table, enum join_where where, const uint8_t *any,
                          size_t len, struct join_texts *texts);

/* Reads the attributes of the Resource between `p` and `end` and stores their hashes in `*ret`. */
void join_identity_read(const struct join_table *table, const uint8_t *p, const uint8_t *end,
                        struct join_texts *texts, struct join_identity *ret);

/* Returns false if both sides (`a` and `b`) name a thread and the two threads differ. Thread
 * names take precedence over ids, because one side may report ids of the runtime and the other
 * side ids of the operating system. */
static inline bool join_same_thread(uint32_t a_id, uint32_t a_name, uint32_t b_id, uint32_t b_name)
{
    if (a_name && b_name)
        return a_name == b_name;
    return !a_id || !b_id || a_id == b_id;
}

/* The service that a Resource describes: its name, a hash of the service without its instance,
 * and a hash that includes the instance (0: the Resource contains no instance). `texts` resolves
 * references to strings; it may be NULL. */
struct join_service {
    uint64_t service, instance;
    const uint8_t *name;
    size_t name_len;
};
struct join_service join_service_of(const struct br_part *part, struct join_texts *texts);

/* Returns how many bytes of a name are stored: at most JOIN_VALUE_MAX, without splitting a UTF-8
 * character. */
size_t join_cut(const uint8_t *text, size_t len);
