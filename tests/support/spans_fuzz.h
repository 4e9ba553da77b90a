/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the conversions of Zipkin's and Jaeger's spans. Spans that a conversion accepts must pass
 * the walk, with as many records as were built. This is used by the fuzz targets, and by the unit
 * test that replays their corpora. Aborts if a property does not hold.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/host.h"
#include "otlp/walk/walk.h"
#include "receivers/jaeger/jaeger.h"
#include "receivers/zipkin/zipkin.h"

#define SPANS_FUZZ_MAX (4u << 20)

static inline void spans_fuzz_require(bool ok)
{
    if (!ok)
        abort();
}

/* Takes the request from the builder and walks over it. The walk must accept the request, unless it
 * exceeds a limit of the walk. */
static inline void spans_fuzz_check(struct br_host *host, struct br_spans *spans, int rc)
{
    const struct br_walk_options options = {.utf8 = BR_UTF8_PASS};
    uint32_t repaired, n_records = spans->n_records;
    struct br_buf *made = NULL;
    if (!rc)
        rc = br_spans_take(spans, &made);
    spans_fuzz_require(rc == 0 || rc == BR_EINVAL || rc == BR_EFULL);
    br_spans_release(spans);
    if (rc)
        return;
    struct br_item *item = br_item_new(host, BR_TRACES);
    spans_fuzz_require(item != NULL);
    rc = br_walk(item, made, made->data, made->len, &options, &repaired, NULL);
    spans_fuzz_require(rc == 0 || rc == BR_ETOOBIG);
    spans_fuzz_require(rc || item->n_records == n_records);
    br_item_free(item);
    br_buf_unref(made);
}

/* The first byte of the input selects options. Its lowest bit is the option parse_string_tags. */
static inline void spans_fuzz_zipkin(int (*read)(struct zipkin_reading *reading,
                                                 const uint8_t *data, size_t len),
                                     const uint8_t *data, size_t size)
{
    static const struct br_host_ops ops = {0};
    if (size == 0)
        return;
    struct br_host host = {.ops = &ops, .pool = br_pool_new(0)};
    struct br_reading reading = {.now_ns = 1};
    struct zipkin_reading state = {.reading = &reading, .parse_string_tags = data[0] & 1};
    spans_fuzz_require(host.pool != NULL);
    br_spans_init(&state.spans, host.pool, SPANS_FUZZ_MAX);
    br_arena_init(&state.scratch, SPANS_FUZZ_MAX);
    spans_fuzz_check(&host, &state.spans, read(&state, data + 1, size - 1));
    br_tags_release(&state.tags);
    br_tags_release(&state.resource);
    br_tags_release(&state.more);
    br_arena_release(&state.scratch);
    br_pool_free(host.pool);
}

enum spans_fuzz_jaeger { SPANS_FUZZ_PROTO, SPANS_FUZZ_COMPACT, SPANS_FUZZ_BINARY };

static inline int spans_fuzz_read_jaeger(struct jaeger_reading *state,
                                         enum spans_fuzz_jaeger format, const uint8_t *data,
                                         size_t size)
{
    struct br_thrift thrift;
    if (format == SPANS_FUZZ_PROTO)
        return jaeger_read_proto(state, data, size);
    br_thrift_init(&thrift, format == SPANS_FUZZ_COMPACT ? BR_THRIFT_COMPACT : BR_THRIFT_BINARY,
                   data + 1, size - 1, &state->reading->err);
    return data[0] & 1 ? jaeger_read_call(state, &thrift) : jaeger_read_batch(state, &thrift);
}

/* For Thrift, the first byte selects the kind of input: a call if its lowest bit is set, otherwise
 * a batch. */
static inline void spans_fuzz_jaeger(enum spans_fuzz_jaeger format, const uint8_t *data,
                                     size_t size)
{
    static const struct br_host_ops ops = {0};
    if (size == 0)
        return;
    struct br_host host = {.ops = &ops, .pool = br_pool_new(0)};
    struct br_reading reading = {.now_ns = 1};
    struct jaeger_reading state = {.reading = &reading, .takes_scope = format == SPANS_FUZZ_PROTO};
    spans_fuzz_require(host.pool != NULL);
    br_spans_init(&state.spans, host.pool, SPANS_FUZZ_MAX);
    br_arena_init(&state.scratch, SPANS_FUZZ_MAX);
    int rc = spans_fuzz_read_jaeger(&state, format, data, size);
    spans_fuzz_check(&host, &state.spans, rc);
    spans_fuzz_require(rc || state.n_read >= state.n_invalid);
    br_tags_release(&state.tags);
    br_tags_release(&state.fields);
    br_tags_release(&state.process);
    br_free(state.references);
    br_arena_release(&state.scratch);
    br_pool_free(host.pool);
}
