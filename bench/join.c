/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What entering spans into the join's table costs: different spans without end, 200 at a time, into
 * a table that is full, and then looking them up as samples do. Prints the best round's
 * nanoseconds.
 *
 *     join [MEBIBYTES [ROUNDS [shared]]]
 */
#include <string.h>

#include "bench/bench.h"
#include "processors/join/table.h"

#define CHUNK 200u
#define SPANS 1000000u

/* Ids look random, as an SDK's do; a trace has 16 spans. */
static void make_ids(uint64_t n, uint8_t trace_id[16], uint8_t span_id[8])
{
    uint64_t span = (n + 1) * 0x9e3779b97f4a7c15u;
    uint64_t trace[2] = {(n / 16 + 1) * 0xd6e8feb86659fd93u, n / 16};
    span ^= span >> 31;
    memcpy(trace_id, trace, 16);
    memcpy(span_id, &span, 8);
}

static void on_found(void *arg, const struct join_span *span)
{
    (void)span;
    ++*(uint64_t *)arg;
}

int main(int argc, char **argv)
{
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 8;
    struct join_table *t = join_table_new(mib << 20, 120000, 0, false, argc > 3);
    static uint8_t traces[CHUNK][16], spans[CHUNK][8];
    static struct br_span found_by_walk[CHUNK];
    static struct join_entry entries[CHUNK];
    const struct join_origin origin = {
        .service = (const uint8_t *)"checkout", .service_len = 8, .service_hash = 77};
    struct join_tally tally = {0};
    uint64_t n = 0, found = 0;
    double best = 1e30, best_lookup = 1e30;
    if (!t)
        return 1;
    for (unsigned r = 0; r < rounds; r++) {
        double start = cpu_ns();
        for (unsigned i = 0; i < SPANS; i += CHUNK) {
            for (unsigned k = 0; k < CHUNK; k++) {
                make_ids(n++, traces[k], spans[k]);
                found_by_walk[k] =
                    (struct br_span){.trace_id = traces[k],
                                     .span_id = spans[k],
                                     .start_ns = n,
                                     .end_ns = n + 1000,
                                     .name = (const uint8_t *)"GET /api/v1/orders/{id}",
                                     .name_len = 23};
                entries[k] = (struct join_entry){.span = &found_by_walk[k], .origin = &origin};
            }
            join_table_enter(t, entries, CHUNK, 1000, &tally);
        }
        double took = cpu_ns() - start;
        best = took < best ? took : best;
        start = cpu_ns();
        for (unsigned i = 0; i < SPANS / 10; i++) {
            uint8_t trace_id[16], span_id[8];
            make_ids(n - 1 - (uint64_t)i * 3, trace_id, span_id);
            struct join_sample s = {.trace_id = trace_id, .span_id = span_id, .count = 1};
            (void)join_table_sample(t, &s, false, 1000, on_found, &found, &tally);
        }
        took = cpu_ns() - start;
        best_lookup = took < best_lookup ? took : best_lookup;
    }
    (void)printf("%.1f ns a span entered, %.1f ns a sample looked up, %.1f %% found\n",
                 best / SPANS, best_lookup / (SPANS / 10),
                 100.0 * (double)found / (rounds * (double)(SPANS / 10)));
    join_table_free(t);
    return 0;
}
