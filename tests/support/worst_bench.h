/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a "reader" with worst-case requests, which are as expensive as possible. A reader is an
 * exporter, or a processor before a destination that accepts everything. */
#pragma once

#include <time.h>

#include "base/mem.h"
#include "base/steps.h"
#include "tests/support/fake_host.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

/* Steps per byte that the transform processor may take. A statement can copy a long value to each
 * record. If a request needs more work than the limit of the processor, it is rejected. The limit
 * is 128 for each byte plus 8 Mi. For a request of 128 KiB, this is 192 for each byte. The factor 4
 * is necessary because several functions count the same bytes. */
#define TRANSFORM_STEPS (4 * 192)

/* A processor or an exporter, and its config. */
struct worst_reader {
    const char *name;
    const struct br_component *component;
    const char *yaml;
};

/* A node of a reader, and the destination after it, which accepts everything. */
struct worst_bench {
    struct fake_host *h; /* the fake host, which all readers share */
    struct br_arena arena;
    struct br_node node;
    struct br_consumer sink;
    bool drained;
};

static void worst_sink(struct br_consumer *self, struct br_item *item)
{
    (void)self;
    br_item_done(item);
}

static struct worst_bench *worst_bench_new(struct fake_host *h, const struct worst_reader *reader)
{
    struct worst_bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->h = h;
    b->sink.consume = worst_sink;
    b->node = rig_node(reader->component, reader->yaml, &b->h->host, &b->arena, &b->drained);
    b->node.next[BR_TRACES] = b->node.next[BR_PROFILES] = &b->sink;
    rig_node_start(&b->node);
    return b;
}

static void worst_bench_free(struct worst_bench *b)
{
    if (b->node.component->drain)
        fake_host_drain(b->h, &b->node);
    fake_host_advance(b->h, 1000);
    b->node.component->destroy(&b->node);
    fake_host_iterate(b->h);
    br_free(b->node.state);
    br_arena_release(&b->arena);
    free(b);
}

static void worst_ended(struct br_item *item, void *arg)
{
    *(enum br_verdict *)arg = item->outcome.verdict;
}

static uint64_t worst_cpu_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Sends the item through the reader, and takes ownership of it. Returns the microseconds of CPU
 * time if `times`, otherwise the number of steps. Sets `*ret_verdict` when the item ends. */
static uint64_t worst_send(struct fake_host *h, const struct worst_reader *reader,
                           struct br_item *item, bool times, enum br_verdict *ret_verdict)
{
    struct worst_bench *b = worst_bench_new(h, reader);
    item->done = worst_ended;
    item->done_arg = ret_verdict;
    br_item_received(item);
    uint64_t before = times ? worst_cpu_us() : br_steps();
    b->node.component->consume(&b->node, item);
    fake_host_iterate(b->h);
    uint64_t taken = (times ? worst_cpu_us() : br_steps()) - before;
    worst_bench_free(b);
    return taken;
}
