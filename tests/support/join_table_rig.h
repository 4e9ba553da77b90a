/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions for tests of the join's table. They insert and look up spans and samples one at a time.
 * Numbers identify the spans. A suite runs its tests twice: with tables of one thread, and with
 * tables that threads share.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "processors/join/table/table.h"

#define WINDOW_MS 120000u
#define NOW 5000000u
#define MIB (1u << 20)

/* The fields of a span that was found, and the number of spans found (`n`). */
struct seen {
    unsigned n;
    char name[300], service[300], attributes[300];
    uint8_t trace[16], id[8], parent[8];
    bool has_trace, has_parent;
    uint64_t start, end;
    uint8_t kind, status;
};

struct ids {
    uint8_t trace[16], span[8];
};

/* If true, new tables can be shared by several threads. */
extern bool table_rig_shared;

/* Selects a variant of a suite (RUN_VARIANTS): tables of one thread, or shared tables. Returns its
 * name, or NULL after the last variant. */
const char *table_rig_way(unsigned way);

struct join_table *table_rig_new(size_t bytes);

/* Makes ids from numbers. Different numbers give different ids. Span 0 has the id 0. */
struct ids table_rig_ids(uint64_t trace, uint64_t span);

/* Returns a span of the service `shop` that has only ids and a name. The span refers to both
 * arguments, which must stay valid. */
struct join_span table_rig_span(const struct ids *i, const char *name);

void table_rig_enter(struct join_table *t, uint64_t trace, uint64_t span, const char *name,
                     uint64_t now, struct join_tally *tally);

/* Callback for a span that was found. Copies its fields to `arg`, a struct seen. */
void table_rig_on_found(void *arg, const struct join_span *span);

/* Add one sample of 10 ns of CPU time. Its type is 1, or `type`. If `trace` is 0 or NULL, the
 * sample has a span id but no trace id. `seen` may be NULL. */
enum join_result table_rig_sample(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                                  struct seen *seen, struct join_tally *tally);
enum join_result table_rig_sample_of_type(struct join_table *t, const uint8_t *trace,
                                          const uint8_t *span, uint16_t type, uint64_t now,
                                          struct seen *seen, struct join_tally *tally);

/* Looks up a span as for a sample, but does not add a sample. */
enum join_result table_rig_look(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                                struct seen *seen);

/* Returns the sum of an array with an element for each of the JOIN_TYPES types. */
uint64_t table_rig_sum(const uint64_t *by_type);

struct join_stats table_rig_stats(struct join_table *t, uint64_t now);
