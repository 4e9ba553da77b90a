/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of a span in the join's table: different spans, 200 at a time, are inserted
 * into a full table. Then measures lookups, as for samples. Prints the best round's nanoseconds.
 *
 *     join [MEBIBYTES [ROUNDS [shared]]]
 */
#include <string.h>

#include "bench/bench.h"
#include "processors/join/table/table.h"

#define CHUNK 200u
#define SPANS 1000000u
#define LOOKUPS 100000u

/* Ids look random, as an SDK's do; a trace has 16 spans. */
static struct br_span_head ids_of(uint64_t n)
{
    uint64_t trace[2] = {(n / 16 + 1) * 0xd6e8feb86659fd93u, n / 16 + 1};
    struct br_span_head head = {
        .span_id = (n + 1) * 0x9e3779b97f4a7c15u, .start_ns = n, .end_ns = n + 1000};
    head.span_id ^= head.span_id >> 31;
    memcpy(head.trace_id, trace, 16);
    return head;
}

static void on_found(void *arg, const struct join_span *span)
{
    (void)span;
    ++*(uint64_t *)arg;
}

struct bench {
    struct join_table *table;
    uint64_t n, found;
    struct join_tally tally;
};

/* Returns nanoseconds per span; the time for making ids is not included. */
static double enter(struct bench *b)
{
    /* the span name is followed by other bytes, as in a span message */
    static const uint8_t body[64] = "GET /api/v1/orders/{id}";
    static struct br_span spans[CHUNK];
    static const struct join_origin origin = {
        .service = (const uint8_t *)"checkout", .service_len = 8, .service_hash = 77};
    static const struct join_entries entries = {.spans = spans, .count = CHUNK, .origins = &origin};
    double took = 0;
    for (unsigned i = 0; i < SPANS; i += CHUNK) {
        for (unsigned k = 0; k < CHUNK; k++)
            spans[k] = (struct br_span){.head = ids_of(b->n++),
                                        .body = body,
                                        .body_len = sizeof body,
                                        .name = body,
                                        .name_len = 23};
        double start = cpu_ns();
        (void)join_table_enter(b->table, &entries, 1000, &b->tally);
        took += cpu_ns() - start;
    }
    return took / SPANS;
}

/* Returns the nanoseconds that lookups for `n` samples of different spans take. The time for making
 * ids is not included. */
static double look_up(struct bench *b, unsigned n)
{
    static struct br_span_head heads[LOOKUPS];
    for (unsigned i = 0; i < n; i++)
        heads[i] = ids_of(b->n - 1 - (uint64_t)i * 3);
    double start = cpu_ns();
    for (unsigned i = 0; i < n; i++) {
        const struct join_sample s = {.trace_id = heads[i].trace_id,
                                      .span_id = (const uint8_t *)&heads[i].span_id,
                                      .count = 1};
        (void)join_table_sample(b->table, &s, false, 1000, on_found, &b->found, &b->tally);
    }
    return cpu_ns() - start;
}

/* Inserts spans until the oldest spans are evicted. Pages are allocated in advance, as in the
 * join. */
static void fill(struct bench *b)
{
    struct join_pages pages;
    while (!b->tally.evicted) {
        (void)enter(b);
        while (join_table_pages_begin(b->table, &pages)) {
            join_table_pages_make(&pages);
            join_table_pages_end(b->table);
        }
    }
}

static void keep_least(double *least, double v)
{
    *least = v < *least ? v : *least;
}

int main(int argc, char **argv)
{
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 8;
    struct bench b = {.table = join_table_new(mib << 20, 120000, 0, false, argc > 3)};
    double entered = 1e30, lookup = 1e30;
    if (!b.table)
        return 1;
    fill(&b);
    for (unsigned r = 0; r < rounds; r++) {
        keep_least(&entered, enter(&b));
        keep_least(&lookup, look_up(&b, LOOKUPS));
    }
    (void)printf("%.1f ns a span entered, %.1f ns a sample looked up, %.1f %% found\n", entered,
                 lookup / LOOKUPS, 100.0 * (double)b.found / (rounds * (double)LOOKUPS));
    join_table_free(b.table);
    return 0;
}
