/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join's table under a test: spans and samples by number, entered and looked for one at a time.
 * A program runs its tests twice, with tables of one thread and with shared ones.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "processors/join/table.h"

#define WINDOW_MS 120000u
#define NOW 5000000u
#define MIB (1u << 20)

/* What a test says of a span, and what it sees of one that was found. */
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
extern bool shared;

struct join_table *make(size_t bytes);

/* Ids out of numbers: different for different ones; span 0 has the id 0. */
struct ids ids(uint64_t trace, uint64_t span);

/* A span of the service shop, with nothing but a name. Borrows both for as long as it lives. */
struct join_span span_of(const struct ids *i, const char *name);

void enter(struct join_table *t, uint64_t trace, uint64_t span, const char *name, uint64_t now,
           struct join_tally *tally);

/* Writes what was found into the struct seen that `arg` is. */
void on_found(void *arg, const struct join_span *span);

/* One sample of 10 ns of CPU time; of type 1, unless it says. `trace` 0 or NULL: of a span id
 * alone. `seen` may be NULL. */
enum join_result sample(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                        struct seen *seen, struct join_tally *tally);
enum join_result sample_of_type(struct join_table *t, const uint8_t *trace, const uint8_t *span,
                                uint16_t type, uint64_t now, struct seen *seen,
                                struct join_tally *tally);

/* As a sample, but only looked up. */
enum join_result look(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                      struct seen *seen);

/* Of all JOIN_TYPES. */
uint64_t sum(const uint64_t *by_type);

struct join_stats stats(struct join_table *t, uint64_t now);
