/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes TraceQL queries, which run against a trace of three spans. See
 * tests/support/traceql_fuzz.h. */
#include "otlp/fields.h"
#include "tests/support/traceql_fuzz.h"
#include "tests/support/wire.h"

#define MS 1000000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct br_stored_span rows[] = {
    {.span_id = 1,
     .start_ns = 1000 * MS,
     .duration_ns = 1000 * MS,
     .service = "shop",
     .name = "GET",
     .kind = 2,
     .status = 1},
    {.span_id = 2,
     .parent_id = 1,
     .start_ns = 1100 * MS,
     .duration_ns = 600 * MS,
     .service = "shop",
     .name = "charge",
     .kind = 3,
     .status = 2},
    {.span_id = 3,
     .parent_id = 2,
     .start_ns = 1200 * MS,
     .duration_ns = 100 * MS,
     .service = "pay",
     .name = "query",
     .kind = 2},
};

int br_store_trace(struct br_store_query *query, const uint8_t id[16], br_span_fn *fn, void *arg,
                   struct br_err *err)
{
    (void)query;
    (void)id;
    (void)err;
    for (size_t i = 0; i < BR_COUNT(rows); i++)
        (void)fn(&rows[i], arg);
    return 0;
}

/* Every span has {a: 1, b: "x"} and an event. */
int br_store_span_bytes(struct br_store_query *query, const struct br_stored_span *span,
                        struct br_span_bytes *ret, struct br_err *err)
{
    static const uint8_t bytes[] = "\x4a\x07\x0a\x01"
                                   "a\x12\x02\x18\x01"
                                   "\x4a\x08\x0a\x01"
                                   "b\x12\x03\x0a\x01"
                                   "x"
                                   "\x5a\x05\x12\x03"
                                   "evt";
    (void)query;
    (void)span;
    (void)err;
    *ret = (struct br_span_bytes){.span = bytes, .span_len = sizeof bytes - 1};
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    traceql_fuzz(data, size);
    return 0;
}
