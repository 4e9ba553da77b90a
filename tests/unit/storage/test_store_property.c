/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes random spans and samples to several partitions. The totals of a service, an operation, a
 * span, a subtree and a trace must be the same for every kind of query. The generator computes the
 * expected totals. One run uses a few large writes. The other uses so many small writes to one
 * partition that queries read sums of three widths.
 */
#include <sqlite3.h>

#include "base/map.h"
#include "storage/blocks.h"
#include "storage/pack.h"
#include "storage/store.h"
#include "tests/support/store_rig.h"
#include "tests/support/test.h"

#define BEGAN UINT64_C(1767225600000000000)
#define SECOND UINT64_C(1000000000)
#define SERVICES 3
#define OPERATIONS 5
#define FUNCTIONS 600 /* number of functions; a pack of the store cannot contain all of them */
#define STACKS 400
#define DEPTH 6
#define TYPES 2
#define PERIOD 10 /* period of the first sample type; the second type does not have a period */

struct made_span {
    uint64_t id, parent, trace; /* 0: none */
    unsigned service, operation;
    uint64_t start_ns, end_ns;
    bool written;
};

struct made_sample {
    uint64_t span, trace; /* 0: none */
    unsigned service, type, stack;
    uint64_t time_ns;
    int64_t value;
};

struct world {
    struct store_rig rig;
    uint64_t random;
    struct made_span spans[2000];
    size_t n_spans;
    struct made_sample samples[12000];
    size_t n_samples;
    unsigned n_functions, n_stacks;
    unsigned stacks[STACKS][DEPTH]; /* functions of each stack, root first; FUNCTIONS: unused */
    size_t max_samples, write_max;  /* maximum number of samples in total, and in one write */
};

static unsigned below(struct world *world, unsigned n)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return (unsigned)(world->random >> 33) % n;
}

/* --- The generated data ---------------------------------------------------------------------- */

static void make_spans(struct world *world)
{
    while (world->n_spans + 12 < BR_COUNT(world->spans)) {
        size_t first = world->n_spans, n = 1 + below(world, 12);
        uint64_t trace = 1 + first;
        for (size_t i = 0; i < n; i++) {
            struct made_span *span = &world->spans[world->n_spans++];
            *span = (struct made_span){.id = world->n_spans,
                                       .trace = trace,
                                       .service = below(world, SERVICES),
                                       .operation = below(world, OPERATIONS),
                                       .start_ns = BEGAN + below(world, 3600) * SECOND};
            if (i)
                span->parent = world->spans[first + below(world, (unsigned)i)].id;
            span->end_ns = span->start_ns + below(world, 1000000);
        }
    }
}

static void make_stacks(struct world *world)
{
    for (unsigned s = 0; s < world->n_stacks; s++) {
        unsigned depth = 1 + below(world, DEPTH);
        for (unsigned d = 0; d < DEPTH; d++)
            world->stacks[s][d] = d < depth ? below(world, world->n_functions) : FUNCTIONS;
    }
}

static void make_samples(struct world *world)
{
    for (; world->n_samples < world->max_samples; world->n_samples++) {
        struct made_sample *sample = &world->samples[world->n_samples];
        const struct made_span *span = &world->spans[below(world, (unsigned)world->n_spans)];
        bool linked = below(world, 5) != 0;
        *sample = (struct made_sample){.span = linked ? span->id : 0,
                                       .trace = linked ? span->trace : 0,
                                       .service = linked ? span->service : below(world, SERVICES),
                                       .type = below(world, TYPES),
                                       .stack = below(world, world->n_stacks),
                                       .time_ns = BEGAN + below(world, 3600) * SECOND +
                                                  below(world, 1000000000),
                                       .value = 1 + (int64_t)below(world, 1000)};
        if (sample->type == 0)
            sample->value *= PERIOD;
    }
}

/* --- Requests -------------------------------------------------------------------------------- */

static void put_ids(struct wire *w, uint32_t trace_field, uint64_t trace, uint64_t span)
{
    uint8_t id[16] = {7};
    memcpy(id + 8, &trace, 8);
    wire_len(w, trace_field, id, 16);
    wire_len(w, trace_field + 1, &span, 8);
}

static void put_resource(struct wire *w, unsigned service)
{
    char name[32];
    (void)snprintf(name, sizeof name, "service-%u", service);
    size_t resource = wire_open(w, 1);
    wire_attribute(w, 1, "service.name", name);
    wire_close(w, resource);
}

static void put_spans(struct world *world, struct wire *w, unsigned service, size_t from, size_t to)
{
    size_t part = wire_open(w, 1);
    put_resource(w, service);
    size_t scope = wire_open(w, 2);
    for (size_t i = from; i < to; i++) {
        const struct made_span *span = &world->spans[i];
        char name[32];
        if (span->service != service)
            continue;
        (void)snprintf(name, sizeof name, "operation-%u", span->operation);
        size_t at = wire_open(w, 2);
        put_ids(w, 1, span->trace, span->id);
        if (span->parent)
            wire_len(w, 4, &span->parent, 8);
        wire_str(w, 5, name);
        wire_i64(w, 7, span->start_ns);
        wire_i64(w, 8, span->end_ns);
        wire_close(w, at);
    }
    wire_close(w, scope);
    wire_close(w, part);
}

/* Writes the dictionary of samples `from` to `to` - 1. Strings 1 to 4 are types and units, and the
 * names of the functions follow. Link 0 is empty, and each sample has a separate link. */
static void put_dictionary(struct world *world, struct wire *w, size_t from, size_t to)
{
    static const char *const texts[] = {"", "cpu", "nanoseconds", "alloc_space", "bytes"};
    char name[32];
    size_t dictionary = wire_open(w, 2);
    wire_len(w, 1, NULL, 0);
    wire_len(w, 2, NULL, 0);
    wire_len(w, 3, NULL, 0);
    wire_len(w, 4, NULL, 0);
    wire_len(w, 6, NULL, 0);
    wire_len(w, 7, NULL, 0);
    for (size_t i = 0; i < BR_COUNT(texts); i++)
        wire_str(w, 5, texts[i]);
    for (unsigned f = 0; f < world->n_functions; f++) {
        (void)snprintf(name, sizeof name, "function-%u", f);
        wire_str(w, 5, name);
        size_t at = wire_open(w, 3);
        wire_varint(w, 1, BR_COUNT(texts) + f);
        wire_close(w, at);
        at = wire_open(w, 2);
        size_t line = wire_open(w, 3);
        wire_varint(w, 1, 1 + f);
        wire_close(w, line);
        wire_close(w, at);
    }
    for (unsigned s = 0; s < world->n_stacks; s++) {
        size_t at = wire_open(w, 7), list = wire_open(w, 1);
        for (unsigned d = DEPTH; d-- > 0;) /* the leaf first */
            if (world->stacks[s][d] < FUNCTIONS)
                wire_number(w, 1 + world->stacks[s][d]);
        wire_close(w, list);
        wire_close(w, at);
    }
    for (size_t i = from; i < to; i++) {
        size_t at = wire_open(w, 4);
        if (world->samples[i].span)
            put_ids(w, 1, world->samples[i].trace, world->samples[i].span);
        wire_close(w, at);
    }
    wire_close(w, dictionary);
}

static void put_value_type(struct wire *w, uint32_t field, unsigned type)
{
    size_t at = wire_open(w, field);
    wire_varint(w, 1, 1 + 2 * type);
    wire_varint(w, 2, 2 + 2 * type);
    wire_close(w, at);
}

static void put_profile(struct world *world, struct wire *w, unsigned service, unsigned type,
                        size_t from, size_t to)
{
    size_t part = wire_open(w, 1);
    put_resource(w, service);
    size_t scope = wire_open(w, 2), profile = wire_open(w, 2);
    put_value_type(w, 1, type);
    put_value_type(w, 5, type);
    wire_i64(w, 3, BEGAN);
    wire_varint(w, 6, type == 0 ? PERIOD : 0);
    for (size_t i = from; i < to; i++) {
        const struct made_sample *sample = &world->samples[i];
        if (sample->service != service || sample->type != type)
            continue;
        size_t at = wire_open(w, 2);
        wire_varint(w, 1, 1 + sample->stack);
        wire_varint(w, 3, 1 + i - from);
        wire_varint(w, 4, (uint64_t)sample->value);
        wire_i64(w, 5, sample->time_ns);
        wire_close(w, at);
    }
    wire_close(w, profile);
    wire_close(w, scope);
    wire_close(w, part);
}

static void must_write(struct world *world, enum br_signal signal, struct wire *w)
{
    if (store_rig_write(&world->rig, signal, w))
        fail_msg("%s", world->rig.err.text);
}

/* Writes requests of random sizes, of spans and samples alternately. Some samples precede their
 * spans. */
static void write_all(struct world *world)
{
    struct wire w = {0};
    size_t span = 0, sample = 0;
    while (span < world->n_spans || sample < world->n_samples) {
        if (below(world, 2) && span < world->n_spans) {
            size_t to = span + 1 + below(world, 60);
            to = to < world->n_spans ? to : world->n_spans;
            for (unsigned s = 0; s < SERVICES; s++)
                put_spans(world, &w, s, span, to);
            must_write(world, BR_TRACES, &w);
            span = to;
        } else if (sample < world->n_samples) {
            size_t to = sample + 1 + below(world, (unsigned)world->write_max);
            to = to < world->n_samples ? to : world->n_samples;
            put_dictionary(world, &w, sample, to);
            for (unsigned s = 0; s < SERVICES; s++)
                for (unsigned t = 0; t < TYPES; t++)
                    put_profile(world, &w, s, t, sample, to);
            must_write(world, BR_PROFILES, &w);
            sample = to;
        }
    }
    wire_free(&w);
}

static struct world *make_world(uint64_t rows)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->random = 0x2545f4914f6cdd1d;
    store_rig_init(&world->rig, rows);
    return world;
}

static void fill_world(struct world *world)
{
    make_spans(world);
    make_stacks(world);
    make_samples(world);
    write_all(world);
}

static int setup(void **state)
{
    struct world *world = make_world(700);
    world->n_functions = FUNCTIONS;
    world->n_stacks = STACKS;
    world->max_samples = BR_COUNT(world->samples);
    world->write_max = 400;
    fill_world(world);
    *state = world;
    return 0;
}

/* A write of n samples creates a chunk for each of their two or three series. */
static int setup_small_writes(void **state)
{
    struct world *world = make_world(0);
    world->n_functions = 12;
    world->n_stacks = 40;
    world->max_samples = 6500;
    world->write_max = 6;
    fill_world(world);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    store_rig_release(&world->rig);
    free(world);
    return 0;
}

/* --- Queries --------------------------------------------------------------------------------- */

static const char *const types[TYPES] = {"process_cpu:cpu:nanoseconds:cpu:nanoseconds",
                                         "memory:alloc_space:bytes:alloc_space:bytes"};

/* Selects the samples that a query should return. */
struct selection {
    int service, type;     /* -1: any */
    const uint64_t *spans; /* NULL: any span */
    size_t n_spans;
    uint64_t trace; /* 0: any */
    uint64_t from_ns, until_ns;
    bool twice;           /* if true, each sample was written twice */
    const unsigned *site; /* a stack must begin with these functions; NULL: any stack */
    size_t n_site;
};

static bool selects(const struct world *world, const struct selection *selection,
                    const struct made_sample *sample)
{
    for (size_t i = 0; i < selection->n_site; i++)
        if (i == DEPTH || world->stacks[sample->stack][i] != selection->site[i])
            return false;
    bool span = !selection->spans;
    for (size_t i = 0; i < selection->n_spans && !span; i++)
        span = sample->span == selection->spans[i];
    bool service = selection->service < 0 || sample->service == (unsigned)selection->service;
    bool type = selection->type < 0 || sample->type == (unsigned)selection->type;
    bool trace = !selection->trace || sample->trace == selection->trace;
    bool time = sample->time_ns >= selection->from_ns &&
                (!selection->until_ns || sample->time_ns < selection->until_ns);
    return span && service && type && trace && time;
}

struct sums {
    int64_t value;
    uint64_t count;
};

static bool on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct sums *sums = arg;
    sums->value += samples->value;
    sums->count += samples->count;
    return true;
}

/* Checks the value of each stack by the path of its frames. */
static void check_stacks(struct world *world, const struct selection *selection,
                         const struct br_flame *flame)
{
    int64_t *expected = calloc(flame->n_nodes, sizeof *expected);
    for (size_t i = 0; i < world->n_samples; i++) {
        const struct made_sample *sample = &world->samples[i];
        uint32_t node = 0;
        if (!selects(world, selection, sample))
            continue;
        for (unsigned d = 0; d < DEPTH && world->stacks[sample->stack][d] < FUNCTIONS; d++) {
            char name[32];
            (void)snprintf(name, sizeof name, "function-%u", world->stacks[sample->stack][d]);
            uint32_t child = flame->nodes[node].first_child;
            while (child && strcmp(flame->names[flame->nodes[child].name], name) != 0)
                child = flame->nodes[child].next;
            assert_int_not_equal(child, 0);
            node = child;
        }
        expected[node] += sample->value;
    }
    for (uint32_t i = 0; i < flame->n_nodes; i++)
        assert_int_equal(flame->nodes[i].self[0], expected[i]);
    free(expected);
}

static void check(struct world *world, const struct selection *selection)
{
    struct sums expected = {0, 0}, sums = {0, 0};
    char service[32];
    uint8_t trace_id[1][16] = {{7}};
    struct br_matcher matcher = {"service_name", service, BR_MATCH_EQUAL};
    (void)snprintf(service, sizeof service, "service-%d", selection->service);
    memcpy(trace_id[0] + 8, &selection->trace, 8);
    struct br_sample_filter filter = {.from_ns = selection->from_ns,
                                      .until_ns = selection->until_ns,
                                      .type = selection->type < 0 ? NULL : types[selection->type],
                                      .matchers = &matcher,
                                      .n_matchers = selection->service >= 0,
                                      .span_ids = selection->spans,
                                      .n_span_ids = selection->n_spans,
                                      .trace_ids = (const uint8_t(*)[16])(const void *)trace_id,
                                      .n_trace_ids = selection->trace != 0};
    char names[DEPTH + 1][32];
    const char *site[DEPTH + 1];
    for (size_t i = 0; i < selection->n_site; i++) {
        (void)snprintf(names[i], sizeof names[i], "function-%u", selection->site[i]);
        site[i] = names[i];
    }
    filter.call_site = site;
    filter.n_call_site = selection->n_site;
    for (size_t i = 0; i < world->n_samples; i++) {
        if (!selects(world, selection, &world->samples[i]))
            continue;
        expected.value += world->samples[i].value;
        if (world->samples[i].type == 0)
            expected.count += (uint64_t)world->samples[i].value / PERIOD;
        else
            expected.count += selection->twice ? 2 : 1;
    }
    struct store_rig *rig = &world->rig;
    struct br_store_query *query = store_rig_ask(rig);
    struct br_flame flame;
    query->max_bytes = 64 << 20; /* in bytes; sequential queries need far less */
    assert_int_equal(br_flame_init(&flame, 100000), 0);
    assert_int_equal(br_store_flame(query, &filter, &flame, &rig->err), 0);
    br_flame_total(&flame);
    assert_int_equal(flame.nodes[0].total[0], expected.value);
    check_stacks(world, selection, &flame);
    br_flame_release(&flame);
    static const uint64_t steps[] = {0, SECOND, 60 * SECOND, 4000 * SECOND};
    for (size_t i = 0; i < 2 * BR_COUNT(steps); i++) {
        sums = (struct sums){0, 0};
        filter.spans_together = i % 2;
        assert_int_equal(
            br_store_samples(query, &filter, steps[i / 2], on_samples, &sums, &rig->err), 0);
        assert_int_equal(sums.value, expected.value);
        assert_int_equal(sums.count, expected.count);
    }
    assert_null(query->cut);
    store_rig_answered(rig);
}

static void test_services(void **state)
{
    struct world *world = *state;
    for (int service = -1; service < SERVICES; service++)
        for (int type = 0; type < TYPES; type++) {
            struct selection selection = {.service = service, .type = type};
            check(world, &selection);
            for (int i = 0; i < 5; i++) {
                selection.from_ns = BEGAN + below(world, 3600) * SECOND + below(world, 1000);
                selection.until_ns = selection.from_ns + below(world, 2000) * SECOND;
                check(world, &selection);
            }
        }
}

struct ids {
    uint64_t ids[4096];
    size_t count;
};

static bool on_span(const struct br_stored_span *span, void *arg)
{
    struct ids *ids = arg;
    assert_true(ids->count < BR_COUNT(ids->ids));
    ids->ids[ids->count++] = span->span_id;
    return true;
}

/* The store lists exactly the operations that the generator made. */
static void test_operations(void **state)
{
    struct world *world = *state;
    for (unsigned i = 0; i < SERVICES * OPERATIONS; i++) {
        struct ids ids = {.count = 0};
        char service[32], name[32];
        size_t expected = 0;
        (void)snprintf(service, sizeof service, "service-%u", i % SERVICES);
        (void)snprintf(name, sizeof name, "operation-%u", i / SERVICES);
        for (size_t k = 0; k < world->n_spans; k++)
            expected += world->spans[k].service == i % SERVICES &&
                        world->spans[k].operation == i / SERVICES;
        struct br_span_filter filter = {.service = service, .name = name};
        struct br_store_query *query = store_rig_ask(&world->rig);
        assert_int_equal(br_store_spans(query, &filter, on_span, &ids, &world->rig.err), 0);
        store_rig_answered(&world->rig);
        assert_int_equal(ids.count, expected);
        struct selection selection = {
            .service = -1, .type = 0, .spans = ids.ids, .n_spans = ids.count};
        check(world, &selection);
    }
}

/* Appends the span and all of its descendants to `ids`. */
static void subtree(const struct world *world, uint64_t id, struct ids *ids)
{
    ids->ids[ids->count++] = id;
    for (size_t i = 0; i < world->n_spans; i++)
        if (world->spans[i].parent == id)
            subtree(world, world->spans[i].id, ids);
}

static void test_subtrees(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 60; i++) {
        const struct made_span *span = &world->spans[below(world, (unsigned)world->n_spans)];
        struct ids below_it = {.count = 0}, of_trace = {.count = 0};
        struct selection selection = {
            .service = -1, .type = i % TYPES, .spans = &span->id, .n_spans = 1};
        check(world, &selection);
        subtree(world, span->id, &below_it);
        selection.spans = below_it.ids;
        selection.n_spans = below_it.count;
        check(world, &selection);
        selection.trace = span->trace;
        check(world, &selection);
        /* Selects the whole trace: once by its id, and once by the spans that the store lists for
         * it. */
        selection.spans = NULL;
        selection.n_spans = 0;
        check(world, &selection);
        uint8_t trace_id[16] = {7};
        memcpy(trace_id + 8, &span->trace, 8);
        struct br_store_query *query = store_rig_ask(&world->rig);
        assert_int_equal(br_store_trace(query, trace_id, on_span, &of_trace, &world->rig.err), 0);
        store_rig_answered(&world->rig);
        selection.trace = 0;
        selection.spans = of_trace.ids;
        selection.n_spans = of_trace.count;
        check(world, &selection);
    }
}

static bool on_series(const struct br_stored_series *series, void *arg)
{
    unsigned *count = arg;
    bool service = false;
    for (size_t i = 0; i < series->n_labels; i++) {
        assert_true(i == 0 || strcmp(series->labels[i - 1].name, series->labels[i].name) < 0);
        service = service || !strcmp(series->labels[i].name, "service_name");
    }
    assert_true(service);
    assert_true(!strcmp(series->type, types[0]) || !strcmp(series->type, types[1]));
    ++*count;
    return true;
}

static void test_series(void **state)
{
    struct world *world = *state;
    struct br_store_query *query = store_rig_ask(&world->rig);
    unsigned count = 0;
    struct br_sample_filter filter = {.n_matchers = 0};
    assert_int_equal(br_store_series(query, &filter, on_series, &count, &world->rig.err), 0);
    assert_int_equal(count, SERVICES * TYPES);
    struct br_matcher matchers[] = {{"service_name", "service-[01]", BR_MATCH_REGEX},
                                    {"service_name", "service-1", BR_MATCH_NOT_EQUAL}};
    filter = (struct br_sample_filter){.matchers = matchers, .n_matchers = 2, .type = types[1]};
    count = 0;
    assert_int_equal(br_store_series(query, &filter, on_series, &count, &world->rig.err), 0);
    assert_int_equal(count, 1);
    matchers[0].value = "service-"; /* a matcher compares whole values */
    count = 0;
    assert_int_equal(br_store_series(query, &filter, on_series, &count, &world->rig.err), 0);
    assert_int_equal(count, 0);
    store_rig_answered(&world->rig);
}

struct order {
    struct made_span *spans;
    size_t count;
    enum br_span_order by;
};

static uint64_t rank_of(const struct made_span *span, enum br_span_order by)
{
    return by == BR_SPANS_SLOWEST ? span->end_ns - span->start_ns : span->start_ns;
}

static int compare_slowest(const void *left, const void *right)
{
    uint64_t first = rank_of(left, BR_SPANS_SLOWEST), second = rank_of(right, BR_SPANS_SLOWEST);
    return (first < second) - (first > second);
}

static int compare_newest(const void *left, const void *right)
{
    uint64_t first = rank_of(left, BR_SPANS_NEWEST), second = rank_of(right, BR_SPANS_NEWEST);
    return (first < second) - (first > second);
}

static bool on_ordered(const struct br_stored_span *span, void *arg)
{
    struct order *order = arg;
    uint64_t rank = order->by == BR_SPANS_SLOWEST ? span->duration_ns : span->start_ns;
    assert_int_equal(rank, rank_of(&order->spans[order->count++], order->by));
    return true;
}

/* A limited result contains the first spans of the list of all spans in the requested order. */
static void test_orders(void **state)
{
    static const uint32_t limits[] = {1, 2, 7, 50, 300, 5000};
    struct world *world = *state;
    struct made_span *spans = calloc(world->n_spans, sizeof *spans);
    for (unsigned round = 0; round < 120; round++) {
        struct order order = {spans, 0, round % 2 ? BR_SPANS_SLOWEST : BR_SPANS_NEWEST};
        unsigned of_service = below(world, SERVICES), of_name = below(world, OPERATIONS);
        char service[32], name[32];
        (void)snprintf(service, sizeof service, "service-%u", of_service);
        (void)snprintf(name, sizeof name, "operation-%u", of_name);
        struct br_span_filter filter = {.order = order.by,
                                        .from_ns = BEGAN + below(world, 1800) * SECOND,
                                        .limit = limits[round / 2 % BR_COUNT(limits)],
                                        .service = round % 5 < 3 ? service : NULL,
                                        .name = round % 5 > 1 && round % 5 < 4 ? name : NULL};
        filter.until_ns = filter.from_ns + below(world, 3600) * SECOND + 1;
        size_t count = 0;
        for (size_t i = 0; i < world->n_spans; i++) {
            const struct made_span *span = &world->spans[i];
            bool in_range = span->start_ns >= filter.from_ns && span->start_ns < filter.until_ns;
            bool service_matches = !filter.service || span->service == of_service;
            bool name_matches = !filter.name || span->operation == of_name;
            if (in_range && service_matches && name_matches)
                spans[count++] = *span;
        }
        qsort(spans, count, sizeof *spans, round % 2 ? compare_slowest : compare_newest);
        struct br_store_query *query = store_rig_ask(&world->rig);
        assert_int_equal(br_store_spans(query, &filter, on_ordered, &order, &world->rig.err), 0);
        store_rig_answered(&world->rig);
        assert_int_equal(order.count, count < filter.limit ? count : filter.limit);
    }
    free(spans);
}

/* --- Content of the directory ---------------------------------------------------------------- */

static int64_t number_in(const struct store_rig *rig, unsigned partition, const char *text)
{
    char path[256];
    sqlite3 *database;
    sqlite3_stmt *statement;
    (void)snprintf(path, sizeof path, "%s/partition-%08x.db", rig->directory, partition);
    assert_int_equal(sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(database, text, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(database));
    int64_t number = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
    return number;
}

/* A sum combines up to 64, 512 or 4096 chunks of all series. The store has made sums of each of
 * these widths. */
static void test_sums_of_each_width_exist(void **state)
{
    struct world *world = *state;
    assert_true(number_in(&world->rig, 1, "SELECT max(id) FROM chunks") > 4096);
    for (int64_t from = 0, width = 64; width <= 4096; from = width, width *= 8) {
        char text[160];
        (void)snprintf(text, sizeof text,
                       "SELECT count(*) FROM sums WHERE last - first BETWEEN %lld AND %lld",
                       (long long)from, (long long)width - 1);
        assert_true(number_in(&world->rig, 1, text) > 0);
    }
    /* The totals of each sum are equal to those of its chunks. */
    assert_int_equal(number_in(&world->rig, 1,
                               "SELECT count(*) FROM sums s WHERE (n_samples, value) != (SELECT"
                               " sum(n_samples), sum(value) FROM chunks c WHERE"
                               " c.series = s.series AND c.id BETWEEN s.first AND s.last)"),
                     0);
    assert_int_equal(
        number_in(&world->rig, 1,
                  "SELECT count(*) FROM series s LEFT JOIN series_totals t ON t.series = s.id"
                  " WHERE (t.min_time, t.max_time, t.n_samples, t.value) IS NOT (SELECT"
                  " min(min_time), max(max_time), sum(n_samples), sum(value) FROM chunks c WHERE"
                  " c.series = s.id)"),
        0);
}

static void put_pack(sqlite3 *database, const char *table, int64_t first, const uint8_t *data,
                     size_t len)
{
    char text[128];
    struct br_pack_codec codec = {.compressor = NULL};
    struct br_pack plain = {.data = NULL}, packed = {.data = NULL};
    sqlite3_stmt *statement;
    (void)snprintf(text, sizeof text, "INSERT INTO %s VALUES(?, 0, ?)", table);
    br_pack_bytes(&plain, data, len);
    assert_true(br_pack_compress(&codec, 1, &plain, &packed));
    assert_int_equal(sqlite3_prepare_v2(database, text, -1, &statement, NULL), SQLITE_OK);
    (void)sqlite3_bind_int64(statement, 1, first);
    (void)sqlite3_bind_blob64(statement, 2, packed.data, packed.len, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(statement), SQLITE_DONE);
    (void)sqlite3_finalize(statement);
    br_pack_release(&plain);
    br_pack_release(&packed);
    br_pack_codec_release(&codec);
}

/* Rewrites a table as two packs, the second of which begins at `split`. A row consists of two
 * numbers. If `texts`, these numbers are the lengths of two texts, which follow the numbers. */
static void pack_again(sqlite3 *database, const char *table, int64_t split, bool texts)
{
    char text[128];
    struct br_pack_codec codec = {.compressor = NULL};
    struct br_pack all = {.data = NULL}, plain = {.data = NULL};
    sqlite3_stmt *statement;
    (void)snprintf(text, sizeof text, "SELECT data FROM %s ORDER BY first", table);
    assert_int_equal(sqlite3_prepare_v2(database, text, -1, &statement, NULL), SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        assert_int_equal(br_pack_decompress(&codec, sqlite3_column_blob(statement, 0),
                                            (size_t)sqlite3_column_bytes(statement, 0), &plain),
                         0);
        br_pack_bytes(&all, plain.data, plain.len);
    }
    (void)sqlite3_finalize(statement);
    (void)snprintf(text, sizeof text, "DELETE FROM %s", table);
    assert_int_equal(sqlite3_exec(database, text, NULL, NULL, NULL), SQLITE_OK);
    struct br_unpack at = {.p = all.data, .end = all.data + all.len};
    for (int64_t i = 0; i < split; i++) {
        uint64_t first = br_unpack_varint(&at), second = br_unpack_varint(&at);
        (void)br_unpack_bytes(&at, texts ? (size_t)(first + second) : 0);
    }
    assert_false(at.failed);
    put_pack(database, table, 0, all.data, (size_t)(at.p - all.data));
    put_pack(database, table, split, at.p, (size_t)(at.end - at.p));
    br_pack_release(&all);
    br_pack_release(&plain);
    br_pack_codec_release(&codec);
}

/* Appends the columns of a block as version 2 of the format had them. */
static void put_old_columns(const struct br_columns *columns, struct br_pack *into)
{
    uint32_t count = columns->n_spans;
    uint64_t before = 0;
    br_pack_varint(into, count);
    br_pack_varint(into, columns->n_traces);
    br_pack_bytes(into, columns->traces, 16 * (size_t)columns->n_traces);
    br_pack_bytes(into, columns->span_id, 8 * (size_t)count);
    br_pack_bytes(into, columns->parent_id, 8 * (size_t)count);
    br_pack_bytes(into, columns->kind, count);
    br_pack_bytes(into, columns->status, count);
    for (uint32_t i = 0; i < count; i++)
        br_pack_varint(into, columns->trace[i]);
    for (uint32_t i = 0; i < count; i++)
        br_pack_varint(into, columns->operation[i]);
    for (uint32_t i = 0; i < count; before = columns->start_ns[i++])
        br_pack_signed(into, (int64_t)(columns->start_ns[i] - before));
    for (uint32_t i = 0; i < count; i++)
        br_pack_signed(into, (int64_t)(columns->end_ns[i] - columns->start_ns[i]));
}

/* Moves the facts of all blocks into the columns. */
static void move_facts(sqlite3 *database)
{
    struct br_pack_codec codec = {.compressor = NULL};
    struct br_pack plain = {.data = NULL}, packed = {.data = NULL};
    struct br_columns *columns = calloc(1, sizeof *columns);
    sqlite3_stmt *read, *update;
    assert_int_equal(sqlite3_prepare_v2(database,
                                        "SELECT c.block, c.data, f.data FROM columns c JOIN facts f"
                                        " ON f.block = c.block",
                                        -1, &read, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(database, "UPDATE columns SET data = ? WHERE block = ?", -1,
                                        &update, NULL),
                     SQLITE_OK);
    while (sqlite3_step(read) == SQLITE_ROW) {
        assert_int_equal(br_pack_decompress(&codec, sqlite3_column_blob(read, 1),
                                            (size_t)sqlite3_column_bytes(read, 1), &plain),
                         0);
        assert_true(br_columns_read(columns, plain.data, plain.len, false));
        assert_true(br_columns_read_facts(columns, sqlite3_column_blob(read, 2),
                                          (size_t)sqlite3_column_bytes(read, 2)));
        br_pack_clear(&plain);
        br_pack_clear(&packed);
        put_old_columns(columns, &plain);
        assert_true(br_pack_compress(&codec, 1, &plain, &packed));
        (void)sqlite3_bind_blob64(update, 1, packed.data, packed.len, SQLITE_STATIC);
        (void)sqlite3_bind_int64(update, 2, sqlite3_column_int64(read, 0));
        assert_int_equal(sqlite3_step(update), SQLITE_DONE);
        (void)sqlite3_reset(update);
    }
    (void)sqlite3_finalize(read);
    (void)sqlite3_finalize(update);
    free(columns);
    br_pack_release(&plain);
    br_pack_release(&packed);
    br_pack_codec_release(&codec);
}

/* Removes the tables and columns of version 3. */
static void drop_values(sqlite3 *database)
{
    static const char text[] =
        "DROP TABLE facts; DROP TABLE series_totals;"
        "DROP INDEX chunks_series; DROP INDEX sums_series;"
        "ALTER TABLE chunks RENAME TO new_chunks; ALTER TABLE sums RENAME TO new_sums;"
        "CREATE TABLE chunks(id INTEGER PRIMARY KEY, series INT NOT NULL, min_time INT NOT NULL,"
        " max_time INT NOT NULL, n_samples INT NOT NULL, totals BLOB NOT NULL,"
        " samples BLOB NOT NULL) STRICT;"
        "CREATE INDEX chunks_series ON chunks(series, max_time, min_time);"
        "CREATE TABLE sums(id INTEGER PRIMARY KEY, series INT NOT NULL, first INT NOT NULL,"
        " last INT NOT NULL, min_time INT NOT NULL, max_time INT NOT NULL, n_samples INT NOT NULL,"
        " totals BLOB NOT NULL) STRICT;"
        "CREATE INDEX sums_series ON sums(series, first, last, min_time, max_time);"
        "INSERT INTO chunks SELECT id, series, min_time, max_time, n_samples, totals, samples"
        " FROM new_chunks; INSERT INTO sums SELECT id, series, first, last, min_time, max_time,"
        " n_samples, totals FROM new_sums; DROP TABLE new_chunks; DROP TABLE new_sums;";
    assert_int_equal(sqlite3_exec(database, text, NULL, NULL, NULL), SQLITE_OK);
}

/* Converts a partition to the format of an older version. Version 2 has the facts of spans in the
 * columns. Version 1 also lacks sums, and its packs of stacks have any size and begin where a
 * transaction began. */
static void make_old(const struct world *world, unsigned partition, int version)
{
    sqlite3 *database;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/partition-%08x.db", world->rig.directory, partition);
    assert_int_equal(sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    move_facts(database);
    if (version == 1) {
        pack_again(database, "functions", 307, true);
        pack_again(database, "nodes", 777, false);
    }
    drop_values(database);
    assert_int_equal(sqlite3_exec(database,
                                  version == 1 ? "DROP TABLE sums; PRAGMA user_version = 1"
                                               : "PRAGMA user_version = 2",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

/* Partitions of versions 1 and 2 are read without conversion, also next to new ones. New spans are
 * not written to them. */
static void test_older_partitions(void **state)
{
    struct world *world = *state;
    struct br_store_usage before, after;
    br_store_usage(world->rig.store, &before);
    br_store_put(&world->rig.host, world->rig.store);
    unsigned last = (unsigned)before.n_partitions, n_old[3] = {0};
    for (unsigned i = 1; i <= last; i++) {
        int version = number_in(&world->rig, i, "SELECT max(first) FROM nodes") > 0 ? 1 : 2;
        version = i % 3 == 2 ? 2 : version;
        if (i != 3)
            make_old(world, i, version);
        n_old[version] += i != 3;
    }
    assert_true(n_old[1] > 0);
    world->rig.store = br_store_get(&world->rig.host, "store");
    if (br_store_open(world->rig.store, &world->rig.config, &world->rig.log, &world->rig.err))
        fail_msg("%s", world->rig.err.text);
    assert_true(number_in(&world->rig, last, "PRAGMA user_version") < 3);
    test_services(state);
    test_subtrees(state);
    struct wire w = {0};
    put_spans(world, &w, 0, 0, 1);
    must_write(world, BR_TRACES, &w);
    wire_free(&w);
    br_store_usage(world->rig.store, &after);
    assert_int_equal(after.n_samples, before.n_samples);
    assert_int_equal(after.n_partitions, before.n_partitions + 1);
    assert_int_equal(after.n_damaged, 0);
}

/* Call sites of each length select stacks; one of the call sites does not match any stack. */
static void test_call_sites(void **state)
{
    struct world *world = *state;
    for (unsigned round = 0; round < 24; round++) {
        const unsigned *stack = world->stacks[below(world, world->n_stacks)];
        unsigned site[DEPTH + 1] = {0};
        struct selection selection = {.service = -1, .type = (int)(round % TYPES), .site = site};
        for (selection.n_site = 0; selection.n_site < round / TYPES % DEPTH + 1;
             selection.n_site++) {
            if (stack[selection.n_site] == FUNCTIONS)
                break;
            site[selection.n_site] = stack[selection.n_site];
        }
        if (round % 3 == 1)
            selection.from_ns = BEGAN + below(world, 3600) * SECOND;
        if (round % 5 == 4)
            site[selection.n_site++] = FUNCTIONS + 1;
        check(world, &selection);
    }
}

/* The results are the same after the store has been closed and opened again. */
static void test_reopened(void **state)
{
    struct world *world = *state;
    assert_int_equal(store_rig_reopen(&world->rig), 0);
    struct br_store_usage usage;
    br_store_usage(world->rig.store, &usage);
    assert_int_equal(usage.n_samples, world->n_samples);
    assert_int_equal(usage.n_spans, world->n_spans);
    assert_true(usage.n_partitions > 3);
    test_subtrees(state);
}

/* The store continues to write to the open partition, although the sums can no longer include the
 * samples that were written before. The same data is written again, so that all values double. */
static void test_writes_continue_after_reopening(void **state)
{
    struct world *world = *state;
    struct br_store_usage usage;
    assert_int_equal(store_rig_reopen(&world->rig), 0);
    write_all(world);
    br_store_usage(world->rig.store, &usage);
    assert_int_equal(usage.n_samples, 2 * world->n_samples);
    for (size_t i = 0; i < world->n_samples; i++)
        world->samples[i].value *= 2;
    for (int service = -1; service < SERVICES; service++)
        for (int type = 0; type < TYPES; type++)
            for (int round = 0; round < 4; round++) {
                struct selection selection = {.service = service, .type = type, .twice = true};
                if (round)
                    selection.from_ns = BEGAN + below(world, 3600) * SECOND;
                if (round > 1)
                    selection.until_ns = selection.from_ns + below(world, 2000) * SECOND + 1;
                check(world, &selection);
            }
}

SUITE(store_property)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_services), cmocka_unit_test(test_operations),
        cmocka_unit_test(test_orders),   cmocka_unit_test(test_subtrees),
        cmocka_unit_test(test_series),   cmocka_unit_test(test_call_sites),
        cmocka_unit_test(test_reopened), cmocka_unit_test(test_older_partitions)};
    return RUN(tests, setup, teardown);
}

SUITE(store_small_writes)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_each_width_exist), cmocka_unit_test(test_services),
        cmocka_unit_test(test_subtrees), cmocka_unit_test(test_call_sites),
        cmocka_unit_test(test_writes_continue_after_reopening)};
    return RUN(tests, setup_small_writes, teardown);
}
