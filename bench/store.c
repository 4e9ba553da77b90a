/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the store: speed of writing spans and samples, disk space, and time of queries.
 * bench/store DIRECTORY [SPANS [SAMPLES]]; by default a million and ten million, of one hour.
 *
 * 50 services of very different sizes; 20 operations each; ten spans a trace, each about 300 bytes
 * as OTLP with six attributes, of which two are different in every span. A profile has 1000 samples
 * of one service in 10 s, over that service's 2000 stacks, with ten samples a span.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/host.h"
#include "otlp/walk/walk.h"
#include "storage/store.h"
#include "tests/support/wire.h"

#define BEGAN UINT64_C(1767225600000000000)
#define SECOND UINT64_C(1000000000)
#define HOUR (3600 * SECOND)
#define SERVICES 50u
#define OPERATIONS 20u
#define STACKS 2000u
#define FUNCTIONS 600u
#define REQUEST_SPANS 8000u
#define PROFILE_SAMPLES 1000u
#define PROFILES_A_WRITE 16u

struct bench {
    struct br_host host;
    struct br_store *store;
    uint64_t random, n_spans, n_samples;
    bool names; /* the samples have the label span.name, which the join processor adds */
};

static uint64_t bench_random(struct bench *bench)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return bench->random;
}

static double bench_seconds(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void bench_fail(const char *what)
{
    fprintf(stderr, "bench/store: %s\n", what);
    exit(1);
}

/* Returns the number of a random service. Services with lower numbers are more frequent. */
static unsigned bench_service(struct bench *bench)
{
    unsigned range = 1u << bench_random(bench) % 7;
    return (unsigned)(bench_random(bench) % range) % SERVICES;
}

/* Returns the id for a number. The same number always has the same id. */
static uint64_t bench_id(uint64_t number)
{
    uint64_t id = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
    id ^= id >> 29;
    return id * UINT64_C(0xBF58476D1CE4E5B9);
}

static void bench_put_trace(struct wire *w, uint64_t trace)
{
    uint64_t id[2] = {bench_id(trace), bench_id(trace ^ UINT64_C(1) << 60)};
    wire_len(w, 1, id, 16);
}

static void bench_put_resource(struct wire *w, unsigned service)
{
    char name[32];
    (void)snprintf(name, sizeof name, "service-%u", service);
    size_t at = wire_open(w, 1);
    wire_attribute(w, 1, "service.name", name);
    wire_attribute(w, 1, "service.version", "1.2.3");
    wire_attribute(w, 1, "deployment.environment.name", "production");
    wire_attribute(w, 1, "host.name", "node-17.eu-west-1.example.com");
    wire_close(w, at);
}

static void bench_put_span(struct bench *bench, struct wire *w, uint64_t number, uint64_t start)
{
    char text[64];
    uint64_t id = bench_id(number), parent = bench_id(number - 1);
    uint64_t duration =
        1000000 + bench_random(bench) % 1000000 * (bench_random(bench) % 100 ? 50 : 5000);
    size_t at = wire_open(w, 2);
    bench_put_trace(w, number / 10);
    wire_len(w, 2, &id, 8);
    if (number % 10)
        wire_len(w, 4, &parent, 8);
    (void)snprintf(text, sizeof text, "GET /api/v1/resource-%llu/{id}",
                   (unsigned long long)(bench_random(bench) % OPERATIONS));
    wire_str(w, 5, text);
    wire_varint(w, 6, 2);
    wire_i64(w, 7, start);
    wire_i64(w, 8, start + duration);
    wire_attribute(w, 9, "http.request.method", "GET");
    wire_attribute(w, 9, "http.route", text);
    (void)snprintf(text, sizeof text, "/api/v1/resource/%016llx",
                   (unsigned long long)bench_random(bench));
    wire_attribute(w, 9, "url.path", text);
    wire_attribute(w, 9, "server.address", "shop.example.com");
    wire_attribute(w, 9, "user_agent.original", "Mozilla/5.0 (X11; Linux x86_64) shop-client/3.4");
    (void)snprintf(text, sizeof text, "%u", (unsigned)(bench_random(bench) % 100000));
    wire_attribute(w, 9, "user.id", text);
    wire_close(w, at);
}

static struct br_item *bench_item(struct bench *bench, enum br_signal signal, struct wire *w)
{
    struct br_walk_options options = {0};
    struct br_err err = {0};
    uint32_t repaired;
    struct br_buf *buf = br_buf_new(bench->host.pool, w->len);
    struct br_item *item = br_item_new(&bench->host, signal);
    if (!buf || !item)
        bench_fail("out of memory");
    memcpy(buf->data, w->data, w->len);
    buf->len = (uint32_t)w->len;
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err))
        bench_fail(err.text);
    br_buf_unref(buf);
    wire_clear(w);
    return item;
}

/* The ten spans of a trace are consecutive and of one service; a request has traces of several
 * services. */
static struct br_item *bench_spans(struct bench *bench, struct wire *w, uint64_t first,
                                   uint64_t count)
{
    for (uint64_t i = 0; i < count; i += 10) {
        uint64_t start = BEGAN + (first + i) * (HOUR / bench->n_spans);
        size_t part = wire_open(w, 1);
        bench_put_resource(w, bench_service(bench));
        size_t scope = wire_open(w, 2);
        for (uint64_t k = i; k < i + 10 && k < count; k++)
            bench_put_span(bench, w, first + k,
                           start + (k - i) * 1000 + bench_random(bench) % 1000);
        wire_close(w, scope);
        wire_close(w, part);
    }
    return bench_item(bench, BR_TRACES, w);
}

static void bench_put_dictionary(struct bench *bench, struct wire *w, unsigned service,
                                 uint64_t first, uint64_t span_first)
{
    static const char *const texts[] = {"", "cpu", "nanoseconds"};
    char name[96];
    uint64_t before = bench->random;
    size_t dictionary = wire_open(w, 2);
    for (uint32_t table = 1; table <= 7; table++)
        if (table != 5)
            wire_len(w, table, NULL, 0);
    for (size_t i = 0; i < 3; i++)
        wire_str(w, 5, texts[i]);
    for (unsigned f = 0; f < FUNCTIONS; f++) {
        (void)snprintf(name, sizeof name,
                       "github.com/example/service%u/internal/module%u.(*T).call%u", service,
                       f / 20, f);
        wire_str(w, 5, name);
        size_t at = wire_open(w, 3);
        wire_varint(w, 1, 3 + f);
        wire_close(w, at);
        at = wire_open(w, 2);
        size_t line = wire_open(w, 3);
        wire_varint(w, 1, 1 + f);
        wire_close(w, line);
        wire_close(w, at);
    }
    wire_str(w, 5, "span.name"); /* string 3 + FUNCTIONS */
    /* the random sequence is restarted, so that the stacks of a service are always the same */
    bench->random = 88172645463325252 + service;
    for (unsigned s = 0; s < STACKS; s++) {
        size_t at = wire_open(w, 7), list = wire_open(w, 1);
        unsigned depth = 8 + (unsigned)(bench_random(bench) % 20);
        for (unsigned d = depth; d > 0; d--)
            wire_number(w, 1 + (d * 7 + (d > 6 ? (unsigned)(bench_random(bench) % 3) : 0) * 31) %
                                   FUNCTIONS);
        wire_close(w, list);
        wire_close(w, at);
    }
    bench->random = before;
    for (unsigned i = 0; bench->names && i < OPERATIONS; i++) {
        (void)snprintf(name, sizeof name, "GET /api/v1/resource-%u/{id}", i);
        size_t at = wire_open(w, 6);
        wire_varint(w, 1, 3 + FUNCTIONS);
        size_t value = wire_open(w, 2);
        wire_str(w, 1, name);
        wire_close(w, value);
        wire_close(w, at);
    }
    for (uint64_t i = 0; i < PROFILE_SAMPLES / 10; i++) {
        uint64_t number = span_first + i, id = bench_id(number);
        size_t at = wire_open(w, 4);
        bench_put_trace(w, number / 10);
        wire_len(w, 2, &id, 8);
        wire_close(w, at);
    }
    (void)first;
    wire_close(w, dictionary);
}

/* Makes one service's profile of ten seconds. */
static struct br_item *bench_profile(struct bench *bench, struct wire *w, uint64_t first)
{
    unsigned service = bench_service(bench);
    uint64_t start = BEGAN + first * (HOUR / bench->n_samples);
    uint64_t span_first = bench->n_spans ? first / 10 % bench->n_spans : 0;
    bench_put_dictionary(bench, w, service, first, span_first);
    size_t part = wire_open(w, 1);
    bench_put_resource(w, service);
    size_t scope = wire_open(w, 2), profile = wire_open(w, 2), at;
    for (uint32_t field = 1; field <= 5; field += 4) {
        at = wire_open(w, field);
        wire_varint(w, 1, 1);
        wire_varint(w, 2, 2);
        wire_close(w, at);
    }
    wire_i64(w, 3, start);
    wire_varint(w, 6, 10000000);
    for (unsigned i = 0; i < PROFILE_SAMPLES; i++) {
        at = wire_open(w, 2);
        wire_varint(w, 1, 1 + bench_random(bench) % (1 + bench_random(bench) % STACKS));
        if (bench->names) {
            size_t attributes = wire_open(w, 2);
            wire_number(w, 1 + i / 10 % OPERATIONS);
            wire_close(w, attributes);
        }
        wire_varint(w, 3, 1 + i / 10);
        size_t values = wire_open(w, 4);
        wire_number(w, 10000000);
        wire_close(w, values);
        size_t times = wire_open(w, 5);
        uint64_t time = start + i * (10 * SECOND / PROFILE_SAMPLES) + bench_random(bench) % 100000;
        wire_raw(w, &time, 8);
        wire_close(w, times);
        wire_close(w, at);
    }
    wire_close(w, profile);
    wire_close(w, scope);
    wire_close(w, part);
    return bench_item(bench, BR_PROFILES, w);
}

static void bench_write(struct bench *bench, struct br_item **items, size_t count, double *cpu)
{
    struct br_err err = {0};
    const struct br_item *list[PROFILES_A_WRITE];
    double began = bench_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < count; i++)
        list[i] = items[i];
    if (br_store_write(bench->store, list, count, &err))
        bench_fail(err.text);
    *cpu += bench_seconds(CLOCK_THREAD_CPUTIME_ID) - began;
    for (size_t i = 0; i < count; i++)
        br_item_free(items[i]);
}

static uint64_t bench_bytes(struct bench *bench)
{
    struct br_store_usage usage;
    br_store_usage(bench->store, &usage);
    return usage.bytes;
}

static void bench_fill(struct bench *bench)
{
    struct br_item *items[PROFILES_A_WRITE];
    struct wire w = {0};
    double cpu = 0, began = bench_seconds(CLOCK_MONOTONIC), making = 0, before;
    for (uint64_t first = 0; first < bench->n_spans; first += REQUEST_SPANS) {
        uint64_t left = bench->n_spans - first;
        before = bench_seconds(CLOCK_MONOTONIC);
        items[0] = bench_spans(bench, &w, first, left < REQUEST_SPANS ? left : REQUEST_SPANS);
        making += bench_seconds(CLOCK_MONOTONIC) - before;
        bench_write(bench, items, 1, &cpu);
    }
    double wall = bench_seconds(CLOCK_MONOTONIC) - began - making;
    uint64_t bytes = bench_bytes(bench);
    if (bench->n_spans)
        printf("spans    %10.0f /s of wall, %10.0f /s of CPU, %6.1f bytes each\n",
               (double)bench->n_spans / wall, (double)bench->n_spans / cpu,
               (double)bytes / (double)bench->n_spans);
    cpu = making = 0;
    began = bench_seconds(CLOCK_MONOTONIC);
    for (uint64_t first = 0; first < bench->n_samples;) {
        size_t count = 0;
        before = bench_seconds(CLOCK_MONOTONIC);
        for (; count < PROFILES_A_WRITE && first < bench->n_samples; first += PROFILE_SAMPLES)
            items[count++] = bench_profile(bench, &w, first);
        making += bench_seconds(CLOCK_MONOTONIC) - before;
        bench_write(bench, items, count, &cpu);
    }
    wall = bench_seconds(CLOCK_MONOTONIC) - began - making;
    if (bench->n_samples)
        printf("samples  %10.0f /s of wall, %10.0f /s of CPU, %6.1f bytes each\n",
               (double)bench->n_samples / wall, (double)bench->n_samples / cpu,
               (double)(bench_bytes(bench) - bytes) / (double)bench->n_samples);
    wire_free(&w);
}

/* --- Queries --------------------------------------------------------------------------------- */

static bool bench_on_span(const struct br_stored_span *span, void *arg)
{
    (void)span;
    ++*(uint64_t *)arg;
    return true;
}

static bool bench_on_facts(const struct br_span_facts *facts, void *arg)
{
    for (uint32_t i = 0; i < facts->count; i++)
        *(uint64_t *)arg += facts->duration_ns[i] > 0;
    return true;
}

static bool bench_on_name(const char *name, uint64_t count, void *arg)
{
    (void)name;
    (void)count;
    ++*(uint64_t *)arg;
    return true;
}

static bool bench_on_samples(const struct br_stored_samples *samples, void *arg)
{
    *(uint64_t *)arg += samples->count;
    return true;
}

enum question {
    TRACE,
    SLOWEST,
    NEWEST,
    SERVICES_OF_HOUR,
    SPAN_FACTS,
    SPAN_FLAME,
    SERVICE_FLAME,
    TIMELINE,
    QUESTIONS
};

static uint64_t bench_ask_flame(struct bench *bench, struct br_store_query *query,
                                const struct br_sample_filter *filter)
{
    struct br_flame flame;
    (void)bench;
    if (br_flame_init(&flame, 1u << 20) || br_store_flame(query, filter, &flame, NULL))
        bench_fail("no flame graph");
    br_flame_total(&flame);
    uint64_t count = flame.n_nodes - 1;
    br_flame_release(&flame);
    return count;
}

static uint64_t bench_ask(struct bench *bench, enum question question, struct br_store_query *query)
{
    uint64_t number = bench->n_spans ? bench_random(bench) % bench->n_spans : 0, count = 0;
    uint64_t id[2] = {bench_id(number / 10), bench_id(number / 10 ^ UINT64_C(1) << 60)};
    uint64_t span = bench_id(number % (bench->n_samples / 10 + 1));
    uint64_t from = BEGAN + bench_random(bench) % (HOUR / 4 * 3);
    char service[32];
    (void)snprintf(service, sizeof service, "service-%u",
                   question == SERVICE_FLAME || question == TIMELINE ? 0 : bench_service(bench));
    struct br_matcher matcher = {"service_name", service, BR_MATCH_EQUAL};
    struct br_span_filter filter = {.from_ns = from,
                                    .until_ns = from + HOUR / 4,
                                    .service = service,
                                    .limit = 50,
                                    .order =
                                        question == SLOWEST ? BR_SPANS_SLOWEST : BR_SPANS_NEWEST};
    struct br_sample_filter samples = {.n_matchers = 0};
    switch (question) {
    case TRACE:
        (void)br_store_trace(query, (const uint8_t *)id, bench_on_span, &count, NULL);
        break;
    case SLOWEST:
    case NEWEST:
        (void)br_store_spans(query, &filter, bench_on_span, &count, NULL);
        break;
    case SERVICES_OF_HOUR:
        (void)br_store_services(query, 0, 0, bench_on_name, &count, NULL);
        break;
    case SPAN_FACTS:
        (void)br_store_span_facts(query, 0, UINT64_MAX, false, bench_on_facts, &count, NULL);
        break;
    case SPAN_FLAME:
        samples.span_ids = &span;
        samples.n_span_ids = 1;
        return bench_ask_flame(bench, query, &samples);
    case SERVICE_FLAME:
    case TIMELINE:
        samples.matchers = &matcher;
        samples.n_matchers = 1;
        if (question == SERVICE_FLAME)
            return bench_ask_flame(bench, query, &samples);
        samples.spans_together = true;
        (void)br_store_samples(query, &samples, 15 * SECOND, bench_on_samples, &count, NULL);
        break;
    default:
        break;
    }
    return count;
}

static int bench_compare(const void *left, const void *right)
{
    double first = *(const double *)left, second = *(const double *)right;
    return (first > second) - (first < second);
}

static void bench_queries(struct bench *bench)
{
    static const struct {
        const char *name;
        double goal_ms;
        unsigned rounds;
    } questions[QUESTIONS] = {
        [TRACE] = {"a trace by its id", 5, 2000},
        [SLOWEST] = {"50 slowest of a service in 15 min", 20, 300},
        [NEWEST] = {"50 newest of a service in 15 min", 20, 300},
        [SERVICES_OF_HOUR] = {"services", 0, 20},
        [SPAN_FACTS] = {"operation, start and duration of all spans", 0, 20},
        [SPAN_FLAME] = {"flame graph of a span", 20, 500},
        [SERVICE_FLAME] = {"flame graph of the largest service, an hour", 300, 20},
        [TIMELINE] = {"its samples by 15 s", 0, 20}};
    static double times[2000];
    for (int i = 0; i < QUESTIONS; i++) {
        uint64_t found = 0;
        for (unsigned round = 0; round < questions[i].rounds; round++) {
            struct br_arena arena;
            struct br_store_query query = {.store = bench->store, .arena = &arena};
            br_arena_init(&arena, 1u << 30);
            double began = bench_seconds(CLOCK_THREAD_CPUTIME_ID);
            if (br_store_query_begin(&query, NULL))
                bench_fail("no query");
            found += bench_ask(bench, (enum question)i, &query);
            br_store_query_end(&query);
            times[round] = 1000 * (bench_seconds(CLOCK_THREAD_CPUTIME_ID) - began);
            br_arena_release(&arena);
        }
        unsigned rounds = questions[i].rounds;
        qsort(times, rounds, sizeof *times, bench_compare);
        printf("%-45s median %8.2f ms, p99 %8.2f ms (goal %3.0f), %.1f found\n", questions[i].name,
               times[rounds / 2], times[rounds * 99 / 100], questions[i].goal_ms,
               (double)found / rounds);
    }
}

int main(int argc, char **argv)
{
    static const struct br_host_ops ops = {0};
    static struct bench bench = {.random = 88172645463325252};
    struct br_err err = {0};
    if (argc < 2)
        bench_fail("say a folder: bench/store FOLDER [SPANS [SAMPLES]]");
    bench.n_spans = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    bench.n_samples = argc > 3 ? strtoull(argv[3], NULL, 10) : 10000000;
    bench.names = getenv("SPAN_NAMES") != NULL;
    struct br_store_config config = {
        .directory = argv[1], .partition_rows = 500000, .sync_full = getenv("SYNC_FULL") != NULL};
    if (br_host_init(&bench.host, &ops, br_pool_new(64 << 20)))
        bench_fail("out of memory");
    bench.store = br_store_get(&bench.host, "bench");
    if (!bench.store || br_store_open(bench.store, &config, NULL, &err))
        bench_fail(err.text);
    if (bench_bytes(&bench) == 0)
        bench_fill(&bench);
    bench_queries(&bench);
    br_store_put(&bench.host, bench.store);
    br_host_release(&bench.host);
    br_pool_free(bench.host.pool);
    return 0;
}
