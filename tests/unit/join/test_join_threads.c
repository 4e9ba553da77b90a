/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that use one table in all ways at once. ThreadSanitizer finds races in this test. Run in
 * any other way it finds lost updates: each sample is counted once, and records that are found are
 * complete.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "processors/join/table/table.h"
#include "tests/support/fake_sink.h"
#include "tests/support/join_enter.h"
#include "tests/support/test.h"
#include "wire/protobuf.h"

#define THREADS 4
#define STEPS 30000
#define IDS 8000
#define WINDOW_MS 2000
#define FAMILY 256u
#define SERVICE 77

struct shared {
    struct join_table *table;
    atomic_uint_least64_t clock_ms;
    pthread_barrier_t begin;
};

struct thread {
    pthread_t id;
    struct shared *shared;
    uint64_t seed;
    struct join_tally tally;
    uint64_t n_samples, n_found, n_too_late, n_broken, n_spans;
    uint64_t last_span;
};

/* A span's name contains its id, so that a torn or wrong record is noticed. */
static void name_of(uint64_t id, char *out)
{
    (void)snprintf(out, 40, "%0*llu", (int)(8 + id % 24), (unsigned long long)id);
}

static void on_found(void *arg, const struct join_span *span)
{
    struct thread *t = arg;
    char name[40];
    uint64_t id;
    memcpy(&id, span->span_id, 8);
    name_of(id, name);
    bool named = span->name_len == strlen(name) && memcmp(span->name, name, span->name_len) == 0;
    bool served = span->service_len == 4 && memcmp(span->service, "shop", 4) == 0;
    t->n_broken += id != t->last_span || span->start_ns != id || !named || !served;
}

static void enter_some(struct thread *t, uint64_t now)
{
    enum { N = 40 };
    struct join_span spans[N];
    uint8_t ids[N][8], parents[N][8], trace[16] = {1};
    char names[N][40];
    struct join_identity wheres[N];
    unsigned n = (unsigned)(fake_random(&t->seed) % N);
    for (unsigned i = 0; i < n; i++) {
        uint64_t id = 1 + fake_random(&t->seed) % IDS, parent = id / 2;
        memcpy(ids[i], &id, 8);
        memcpy(parents[i], &parent, 8);
        name_of(id, names[i]);
        wheres[i] =
            (struct join_identity){.hashes[JOIN_PROCESS] = 42, .hashes[JOIN_HOST] = (uint32_t)id};
        spans[i] = (struct join_span){.trace_id = trace,
                                      .span_id = ids[i],
                                      .parent_id = parents[i],
                                      .start_ns = id,
                                      .name = (const uint8_t *)names[i],
                                      .name_len = strlen(names[i]),
                                      .service = (const uint8_t *)"shop",
                                      .service_len = 4,
                                      .thread = 1 + (uint32_t)(id % 3)};
    }
    enter_spans(t->shared->table, spans, n, SERVICE, wheres, now, &t->tally);
    t->n_spans += n;
}

static void sample_some(struct thread *t, uint64_t now)
{
    uint8_t trace[16] = {1}, span[8];
    for (unsigned n = (unsigned)(fake_random(&t->seed) % 20); n > 0; n--) {
        uint64_t id = 1 + fake_random(&t->seed) % (IDS + 1000);
        memcpy(span, &id, 8);
        struct join_sample s = {.trace_id = id % 3 ? trace : NULL,
                                .span_id = span,
                                .measure = (enum join_measure)(id % JOIN_MEASURES),
                                .time_ns = 1,
                                .count = 1,
                                .value = 1,
                                .function = (uint32_t)(id % 50),
                                .type = (uint16_t)(fake_random(&t->seed) % JOIN_TYPES)};
        t->last_span = id;
        enum join_result r =
            join_table_sample(t->shared->table, &s, true, now, on_found, t, &t->tally);
        t->n_samples++;
        t->n_found += r == JOIN_FOUND;
        t->n_too_late += r == JOIN_TOO_LATE;
    }
}

/* Spans that are found through another span or through a thread are complete, too. */
static void find_related(struct thread *t, uint64_t random, const uint8_t *trace,
                         const uint8_t *span)
{
    struct join_table *table = t->shared->table;
    static _Thread_local union {
        struct join_relative family[FAMILY];
        struct join_neighbour near[JOIN_NEIGHBOURS_MAX];
    } u;
    unsigned n;
    struct join_search more;
    if (random % 3 == 0) {
        n = join_table_family(table, trace, (const uint8_t *)"shop", 4, SERVICE, u.family, FAMILY,
                              &more);
        for (unsigned i = 0; i < n; i++)
            t->n_broken += u.family[i].span_id != u.family[i].start_ns ||
                           u.family[i].thread !=
                               join_table_hash_int(table, (int64_t)(1 + u.family[i].span_id % 3));
    } else if (random % 3 == 1) {
        const struct join_threads threads = {
            JOIN_BY_THREAD_ID, join_table_hash_int(table, 1 + (int64_t)(random / 3 % 3)), 42};
        n = join_table_neighbours(table, &threads, 0, 0, u.near, &more);
        for (unsigned i = 0; i < n; i++)
            t->n_broken += u.near[i].span_id != u.near[i].start_ns ||
                           u.near[i].places[0] != u.near[i].span_id ||
                           u.near[i].span_id % 3 != random / 3 % 3;
    } else {
        const struct join_sample s = {.trace_id = trace, .span_id = span, .count = 1};
        const struct join_deferred deferred = {.n_times = 2, .value = br_load64(span)};
        struct join_deferred_cursor cursor = {0};
        join_table_defer(table, &s, &deferred, (const uint64_t[]){1, 2}, NULL, 1, &t->tally);
        while (join_table_next_deferred(table, trace, span, &cursor))
            t->n_broken += cursor.deferred.value != br_load64(span) || cursor.times[1] != 2;
    }
}

/* Defers timestamps of five threads. One of them belongs to a span that has arrived and is
 * evicted before the other. */
static void defer_for_thread(struct thread *t, uint64_t random, uint64_t now)
{
    struct join_table *table = t->shared->table;
    const uint64_t id = 1ull << 62 | random % 5, times[] = {3, 4}, values[] = {id, id + 1},
                   spans[] = {1, 0};
    const uint8_t trace[16] = {2};
    const uint8_t *span = (const uint8_t *)&id;
    const struct join_sample s = {.trace_id = trace, .span_id = span, .count = 1};
    const struct join_deferred deferred = {
        .of_thread = true, .has_value = true, .n_times = 2, .n_values = 2};
    struct join_deferred_cursor cursor = {0};
    join_table_defer(table, &s, &deferred, times, values, now, &t->tally);
    for (unsigned i = 0; i < 20 && join_table_next_deferred(table, trace, span, &cursor); i++) {
        uint32_t last = cursor.deferred.n_times - 1;
        bool first_broken = last && (cursor.times[0] != 3 || cursor.values[0] != id);
        bool last_broken = cursor.times[last] != 4 || cursor.values[last] != id + 1;
        t->n_broken += last > 1 || cursor.deferred.n_values != cursor.deferred.n_times ||
                       first_broken || last_broken;
        if (last == 1)
            join_table_mark_assigned(table, span, &cursor, spans);
    }
    (void)join_table_evicted_after(table, span, 3);
    (void)join_table_lost_below(table, span);
}

static void use_names(struct thread *t, uint64_t random, const char *text, size_t len)
{
    struct join_table *table = t->shared->table;
    size_t n;
    uint32_t number = join_table_function(table, (const uint8_t *)text, len);
    const char *name = join_table_function_name(table, number, &n);
    t->n_broken += n != len || memcmp(name, text, n) != 0;
    (void)join_table_series(table, text, len, 20);
    (void)join_table_value(table, random % 16, text, len, 50);
}

static void do_random_operation(struct thread *t, uint64_t now)
{
    struct join_table *table = t->shared->table;
    struct join_totals f;
    struct join_top top[JOIN_TOP_MAX];
    struct join_stats stats;
    uint8_t trace[16] = {1}, span[8];
    uint64_t random = fake_random(&t->seed), id = 1 + random % IDS;
    char text[32];
    int len = snprintf(text, sizeof text, "type-%llu", (unsigned long long)(random % 100));
    memcpy(span, &id, 8);
    switch (random >> 32 & 15) {
    case 0:
        join_table_expire(table, now, &t->tally);
        break;
    case 1:
        join_table_stats(table, now, &stats);
        t->n_broken += stats.bytes > stats.max_bytes || stats.spans + stats.pending > 100000;
        break;
    case 2:
        join_table_profiled(table, random % 50, now);
        break;
    case 3:
        (void)join_table_is_profiled(table, random % 50, now);
        break;
    case 4: {
        uint16_t type = join_table_type(table, text, (size_t)len);
        const char *name = join_table_type_name(table, type);
        t->n_broken += strcmp(name, text) != 0 && strcmp(name, "other") != 0;
        break;
    }
    case 5:
        use_names(t, random, text, (size_t)len);
        break;
    case 6:
    case 7:
    case 8:
        find_related(t, random, trace, span);
        break;
    case 9:
        defer_for_thread(t, random, now);
        break;
    default:
        if (join_table_totals(table, trace, span, &f, top)) {
            t->n_broken += !f.types[0].used || f.n_top > 8;
            for (unsigned i = 0; i < f.n_top; i++)
                t->n_broken += top[i].function != id % 50 || top[i].value == 0;
        }
    }
}

static void *work(void *arg)
{
    struct thread *t = arg;
    pthread_barrier_wait(&t->shared->begin);
    for (unsigned i = 0; i < STEPS; i++) {
        /* Each thread uses a time that is slightly late, as loops do. */
        uint64_t now =
            atomic_fetch_add(&t->shared->clock_ms, i % 8 == 0) - fake_random(&t->seed) % 150;
        switch (fake_random(&t->seed) % 3) {
        case 0:
            enter_some(t, now);
            break;
        case 1:
            sample_some(t, now);
            break;
        default:
            do_random_operation(t, now);
        }
    }
    return NULL;
}

static uint64_t sum(const uint64_t *by_type)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < JOIN_TYPES; i++)
        n += by_type[i];
    return n;
}

static void no_update_is_lost(void **state)
{
    (void)state;
    struct shared shared = {.table = join_table_new(JOIN_BYTES_MIN, WINDOW_MS, 8, true, true)};
    struct thread threads[THREADS];
    assert_non_null(shared.table);
    atomic_init(&shared.clock_ms, 1000000);
    assert_int_equal(pthread_barrier_init(&shared.begin, NULL, THREADS), 0);
    memset(threads, 0, sizeof threads);
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i].shared = &shared;
        threads[i].seed = i + 1;
        assert_int_equal(pthread_create(&threads[i].id, NULL, work, &threads[i]), 0);
    }
    struct join_tally last = {0};
    uint64_t samples = 0, ended = 0, late = 0, found = 0, broken = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i].id, NULL), 0);
        const struct thread *t = &threads[i];
        samples += t->n_samples;
        found += t->n_found;
        late += sum(t->tally.late);
        broken += t->n_broken;
        ended += t->n_found + t->n_too_late + sum(t->tally.late) + sum(t->tally.unknown);
    }
    join_table_expire(shared.table, atomic_load(&shared.clock_ms) + 10 * WINDOW_MS, &last);
    ended += sum(last.unknown);
    struct join_stats stats;
    join_table_stats(shared.table, 0, &stats);
    assert_int_equal(stats.spans + stats.pending + stats.bytes, 0);
    assert_int_equal(broken, 0);
    assert_true(found > 0 && late > 0);
    assert_int_equal(ended, samples);
    (void)pthread_barrier_destroy(&shared.begin);
    join_table_free(shared.table);
}

/* --- Families -------------------------------------------------------------------------------- */

#define TRACES 20000
#define EACH 8 /* spans of each thread in a trace */

struct relatives {
    pthread_t id;
    struct join_table *table;
    atomic_uint *arrived; /* number of threads that have reached each trace */
    uint64_t number;
};

/* Both threads enter spans of the same trace and service at the same time, trace by trace. */
static void *enter_families(void *arg)
{
    const struct relatives *r = arg;
    struct join_span spans[EACH];
    uint8_t ids[EACH][8], trace[16] = {0};
    struct join_tally tally = {0};
    for (uint64_t n = 0; n < TRACES; n++) {
        memcpy(trace, &(uint64_t){n + 1}, 8);
        for (unsigned i = 0; i < EACH; i++) {
            uint64_t id = 1 + (n * 2 + r->number) * EACH + i;
            memcpy(ids[i], &id, 8);
            spans[i] = (struct join_span){.trace_id = trace,
                                          .span_id = ids[i],
                                          .service = (const uint8_t *)"shop",
                                          .service_len = 4};
        }
        (void)atomic_fetch_add(r->arrived, 1);
        while (atomic_load(r->arrived) < 2 * (n + 1))
            sched_yield();
        enter_spans(r->table, spans, EACH, SERVICE, NULL, 1, &tally);
    }
    return NULL;
}

static void families_are_complete_with_several_writers(void **state)
{
    (void)state;
    struct join_table *table = join_table_new(128 << 20, WINDOW_MS, 0, false, true);
    atomic_uint arrived = 0;
    struct relatives threads[2];
    unsigned n_missing = 0;
    assert_non_null(table);
    for (uint64_t i = 0; i < 2; i++) {
        threads[i] = (struct relatives){.table = table, .arrived = &arrived, .number = i};
        assert_int_equal(pthread_create(&threads[i].id, NULL, enter_families, &threads[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i].id, NULL), 0);
    for (uint64_t n = 0; n < TRACES; n++) {
        struct join_relative family[FAMILY];
        uint8_t trace[16] = {0};
        struct join_search more;
        memcpy(trace, &(uint64_t){n + 1}, 8);
        n_missing += 2 * EACH - join_table_family(table, trace, (const uint8_t *)"shop", 4, SERVICE,
                                                  family, FAMILY, &more);
    }
    assert_int_equal(n_missing, 0);
    join_table_free(table);
}

SUITE(join_threads)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_update_is_lost),
        cmocka_unit_test(families_are_complete_with_several_writers),
    };
    return RUN(tests, NULL, NULL);
}
