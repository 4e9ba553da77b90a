/* SPDX-License-Identifier: Apache-2.0 */
/* One thread writes while other threads run queries. Each query sees only complete writes, and
 * never fewer writes than the previous query. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/items.h"
#include "tests/support/store_rig.h"
#include "tests/support/test.h"

#define WRITES 60
#define SPANS 50u
#define READERS 3

struct shared {
    struct store_rig rig;
    /* number of writes that were acknowledged, and of writes that were begun */
    _Atomic uint64_t n_written, n_begun;
    _Atomic bool failed, over;
    bool expires; /* true: partitions are deleted while queries read them */
};

static bool count_span(const struct br_stored_span *span, void *arg)
{
    (void)span;
    ++*(uint64_t *)arg;
    return true;
}

/* Runs a query. Returns false if its result is not that of a number of complete writes. */
static bool query_all(struct shared *shared, uint64_t *last)
{
    struct br_arena arena;
    struct br_err err = {0};
    struct br_store_query query = {.store = shared->rig.store, .arena = &arena};
    struct br_span_filter all = {.order = BR_SPANS_SLOWEST};
    uint64_t count = 0, n_before = atomic_load(&shared->n_written);
    br_arena_init(&arena, 1u << 28);
    bool good = br_store_query_begin(&query, &err) == 0;
    good = good && br_store_spans(&query, &all, count_span, &count, &err) == 0 && !query.cut;
    br_store_query_end(&query);
    br_arena_release(&arena);
    uint64_t n_after = atomic_load(&shared->n_begun);
    if (!good || count % SPANS || count > n_after * SPANS)
        return false;
    if (!shared->expires && (count < n_before * SPANS || count < *last))
        return false;
    *last = count;
    return true;
}

static void *read_repeatedly(void *arg)
{
    struct shared *shared = arg;
    uint64_t last = 0;
    do
        if (!query_all(shared, &last))
            atomic_store(&shared->failed, true);
    while (!atomic_load(&shared->over) && !atomic_load(&shared->failed));
    return NULL;
}

static void run(uint64_t rows, uint64_t max_bytes)
{
    struct shared *shared = calloc(1, sizeof *shared);
    pthread_t readers[READERS];
    struct wire w = {0};
    assert_non_null(shared);
    store_rig_init(&shared->rig, rows);
    shared->expires = max_bytes != 0;
    shared->rig.config.max_bytes = max_bytes;
    assert_int_equal(store_rig_reopen(&shared->rig), 0);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_repeatedly, shared), 0);
    for (uint64_t i = 0; i < WRITES && !atomic_load(&shared->failed); i++) {
        items_traces(&w, i * SPANS, SPANS, 1);
        atomic_fetch_add(&shared->n_begun, 1);
        if (store_rig_write(&shared->rig, BR_TRACES, &w))
            fail_msg("%s", shared->rig.err.text);
        atomic_fetch_add(&shared->n_written, 1);
    }
    atomic_store(&shared->over, true);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_false(atomic_load(&shared->failed));
    store_rig_release(&shared->rig);
    wire_free(&w);
    free(shared);
}

static void test_reads_during_writes(void **state)
{
    (void)state;
    run(500, 0);
}

static void test_partitions_deleted_while_read(void **state)
{
    (void)state;
    run(100, 2 << 20);
}

SUITE(store_threads)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads_during_writes),
                                       cmocka_unit_test(test_partitions_deleted_while_read)};
    return RUN(tests, NULL, NULL);
}
