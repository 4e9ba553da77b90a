/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join's table in a test: spans and samples by number, inserted and looked up one at a time. A
 * program runs its tests for tables of one thread and for shared ones.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "processors/join/table/table.h"

#define WINDOW_MS 120000u
#define NOW 5000000u
#define MIB (1u << 20)

/* The fields of a span that a test sets, and those it sees of a span that was found. */
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

/* Whether tables are made for many threads. */
extern bool table_rig_shared;

/* Selects variant 0, 1 ... of a program's tests, and returns its name; NULL after the last. */
const char *table_rig_way(unsigned way);

struct join_table *table_rig_new(size_t bytes);

/* Make ids from numbers: different numbers give different ids; span 0 has the id 0. */
struct ids table_rig_ids(uint64_t trace, uint64_t span);

/* Returns a span of the service shop, with nothing but a name. Borrows both arguments while it
 * lives. */
struct join_span table_rig_span(const struct ids *i, const char *name);

void table_rig_enter(struct join_table *t, uint64_t trace, uint64_t span, const char *name,
                     uint64_t now, struct join_tally *tally);

/* Stores the span that was found in `arg`, a struct seen. */
void table_rig_on_found(void *arg, const struct join_span *span);

/* Adds one sample of 10 ns of CPU time, of type 1 unless given. `trace` 0 or NULL: the sample
 * has a span id alone. `seen` may be NULL. */
enum join_result table_rig_sample(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                                  struct seen *seen, struct join_tally *tally);
enum join_result table_rig_sample_of_type(struct join_table *t, const uint8_t *trace,
                                          const uint8_t *span, uint16_t type, uint64_t now,
                                          struct seen *seen, struct join_tally *tally);

/* As for a sample, but only a lookup. */
enum join_result table_rig_look(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                                struct seen *seen);

/* Sum over all JOIN_TYPES. */
uint64_t table_rig_sum(const uint64_t *by_type);

struct join_stats table_rig_stats(struct join_table *t, uint64_t now);
