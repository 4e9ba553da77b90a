/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the counters and the scopes of base/mem.h, and the memory budget. */
#include <pthread.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/memory.h"
#include "base/sanitize.h"
#include "tests/support/test.h"

#define KIB 1024u
#define MIB (1u << 20)

/* The most bytes that the C library adds to a block: its header, and rounding up to 16 bytes, or
 * to a page if the block is mapped separately. */
#define ROUNDING 64u
#define PAGE 4096u

static void blocks_are_counted_until_they_are_freed(void **state)
{
    (void)state;
    size_t before = br_mem_live();
    char *small = br_malloc(1000), *large = br_malloc(3 * MIB);
    size_t held = br_mem_live() - before;
    assert_in_range(held, 1000 + 3 * MIB, 1000 + 3 * MIB + ROUNDING + PAGE);
    small = br_realloc(small, 100 * KIB);
    held = br_mem_live() - before;
    assert_in_range(held, 100 * KIB + 3 * MIB, 100 * KIB + 3 * MIB + ROUNDING + PAGE);
    br_free(small);
    br_free(large);
    assert_int_equal(br_mem_live(), before);
}

static void *allocate_there(void *arg)
{
    *(void **)arg = br_malloc(MIB);
    br_mem_flush();
    return NULL;
}

/* If one thread allocates memory and another thread frees it, the count is correct. */
static void threads_share_the_count(void **state)
{
    (void)state;
    size_t before = br_mem_live();
    pthread_t thread;
    void *block = NULL;
    assert_int_equal(pthread_create(&thread, NULL, allocate_there, &block), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(br_mem_live() - before, MIB, MIB + ROUNDING + PAGE);
    br_free(block);
    assert_int_equal(br_mem_live(), before);
}

#if !BR_SANITIZED /* sanitizers replace the allocator */
#define BLOCKS 60u
#define BLOCK (60 * KIB)

/* Fills a heap, and frees everything except a small block behind the enlisted one. */
static void *use_a_heap(void *arg)
{
    void *blocks[BLOCKS];
    pthread_barrier_t *turns = arg;
    br_mem_enlist();
    br_mem_enlist();
    void *kept = br_malloc(100);
    for (int turn = 0; turn < 3; turn++) {
        (void)pthread_barrier_wait(turns);
        for (size_t i = 0; i < BLOCKS; i++)
            memset(blocks[i] = br_malloc(BLOCK), 1, BLOCK);
        for (size_t i = 0; i < BLOCKS; i++)
            br_free(blocks[i]);
        (void)pthread_barrier_wait(turns);
    }
    br_free(kept);
    return NULL;
}

static void heaps_of_other_threads_are_trimmed_to_their_end(void **state)
{
    (void)state;
    pthread_t thread;
    pthread_barrier_t turns;
    br_mem_tune(0);
    assert_int_equal(pthread_barrier_init(&turns, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, use_a_heap, &turns), 0);
    for (int i = 0; i < 3; i++) {
        br_mem_trim();
        size_t before = br_memory_resident();
        (void)pthread_barrier_wait(&turns);
        (void)pthread_barrier_wait(&turns);
        assert_in_range(br_memory_resident(), before + BLOCKS * BLOCK / 2, SIZE_MAX);
        br_mem_trim();
        assert_in_range(br_memory_resident(), 0, before + BLOCKS * BLOCK / 8);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_barrier_destroy(&turns);
}
#endif

static size_t sum_of_holders(void)
{
    size_t sum = 0;
    for (int i = 0; i < BR_HOLDERS; i++)
        sum += br_mem_held((enum br_holder)i);
    return sum;
}

/* A buffer moves between memory categories and to the pool. The sum of the categories equals the
 * total. */
static void memory_categories_add_up(void **state)
{
    (void)state;
    struct br_pool *pool = br_pool_new(MIB);
    struct br_arena arena;
    size_t queues = br_mem_held(BR_HOLDER_QUEUES), items = br_mem_held(BR_HOLDER_ITEMS);
    size_t requests = br_mem_held(BR_HOLDER_REQUESTS), unused = br_mem_held(BR_HOLDER_POOL);
    struct br_buf *buf = br_buf_new(pool, 100 * KIB);
    size_t cap = buf->cap;
    assert_int_equal(br_mem_held(BR_HOLDER_REQUESTS) - requests, cap);
    br_buf_hold(buf, BR_HOLDER_QUEUES);
    assert_int_equal(br_mem_held(BR_HOLDER_REQUESTS), requests);
    assert_int_equal(br_mem_held(BR_HOLDER_QUEUES) - queues, cap);
    assert_int_equal(sum_of_holders(), br_mem_live());
    br_buf_unref(buf);
    assert_int_equal(br_mem_held(BR_HOLDER_QUEUES), queues);
    assert_int_equal(br_mem_held(BR_HOLDER_POOL) - unused, cap);

    br_arena_init(&arena, 0);
    arena.holder = BR_HOLDER_ITEMS;
    assert_non_null(br_arena_alloc(&arena, 10000));
    assert_int_equal(br_mem_held(BR_HOLDER_ITEMS) - items, arena.used);
    assert_int_equal(sum_of_holders(), br_mem_live());
    br_arena_release(&arena);
    assert_int_equal(br_mem_held(BR_HOLDER_ITEMS), items);
    br_pool_free(pool);
    assert_int_equal(br_mem_held(BR_HOLDER_POOL), unused);
}

/* --- Scopes ----------------------------------------------------------------------------------- */

static void a_scope_has_a_maximum(void **state)
{
    (void)state;
    struct br_mem_scope scope;
    void *from_before = br_malloc(50 * KIB);
    br_mem_scope_begin(&scope, 100 * KIB, NULL);
    void *a = br_malloc(60 * KIB);
    assert_non_null(a);
    assert_false(scope.full);
    assert_null(br_malloc(60 * KIB));
    assert_null(br_realloc(a, 110 * KIB)); /* the old block is unchanged */
    assert_true(scope.full);
    assert_false(scope.refused);
    br_free(a);
    a = br_malloc(90 * KIB);
    assert_non_null(a);
    br_free(from_before); /* leaves more room in the scope */
    void *b = br_malloc(40 * KIB);
    assert_non_null(b);
    br_mem_scope_end(&scope);
    assert_in_range(scope.used, 80 * KIB, 80 * KIB + 2 * ROUNDING);
    void *after = br_malloc(200 * KIB); /* no limit outside the scope */
    assert_non_null(after);
    br_free(after);
    br_free(a);
    br_free(b);
}

static void a_scope_counts_in_the_enclosing_scope(void **state)
{
    (void)state;
    struct br_mem_scope outer, inner;
    br_mem_scope_begin(&outer, MIB, NULL);
    void *a = br_malloc(100 * KIB);
    br_mem_scope_begin(&inner, 50 * KIB, NULL);
    void *b = br_malloc(40 * KIB);
    assert_null(br_malloc(40 * KIB));
    br_mem_scope_end(&inner);
    br_mem_scope_end(&outer);
    assert_in_range(outer.used, 140 * KIB, 140 * KIB + 2 * ROUNDING);
    assert_true(outer.full);
    br_free(a);
    br_free(b);
}

/* A scope with the largest maximum never reaches it. */
static void a_scope_may_have_the_largest_maximum(void **state)
{
    (void)state;
    static const size_t largest[] = {SIZE_MAX, SIZE_MAX - 1, (size_t)INT64_MAX + 1, INT64_MAX};
    for (size_t i = 0; i < BR_COUNT(largest); i++) {
        struct br_mem_scope scope, inner;
        void *from_before = br_malloc(50 * KIB);
        br_mem_scope_begin(&scope, largest[i], NULL);
        void *a = br_malloc(KIB);
        assert_non_null(a);
        assert_true(br_mem_scope_take(KIB));
        br_mem_scope_begin(&inner, largest[i], NULL);
        void *b = br_malloc(KIB);
        assert_non_null(b);
        br_mem_scope_end(&inner);
        br_mem_scope_give(KIB);
        br_free(from_before); /* now less memory is used than at the start of the scope */
        void *c = br_malloc(KIB);
        assert_non_null(c);
        br_mem_scope_end(&scope);
        assert_false(scope.full);
        br_free(a);
        br_free(b);
        br_free(c);
    }
}

/* A buffer from the pool counts in a scope like an allocated one. */
static void buffers_from_the_pool_count_in_a_scope(void **state)
{
    (void)state;
    struct br_pool *pool = br_pool_new(MIB);
    struct br_mem_scope scope;
    for (int again = 0; again < 2; again++) {
        br_mem_scope_begin(&scope, 150 * KIB, NULL);
        struct br_buf *buf = br_buf_new(pool, 100 * KIB);
        assert_non_null(buf);
        assert_null(br_buf_new(pool, 100 * KIB));
        br_mem_scope_end(&scope);
        br_buf_unref(buf);
    }
    br_pool_free(pool);
}

/* --- The budget ------------------------------------------------------------------------------- */

static size_t resident_bytes;

static size_t resident(void)
{
    return resident_bytes;
}

static void marks(void **state)
{
    (void)state;
    struct br_memory m = {0};
    assert_true(br_memory_fits(&m, SIZE_MAX)); /* no limit */
    assert_int_equal(br_memory_largest(&m), SIZE_MAX);
    br_memory_limit(&m, 60 * MIB, 80 * MIB);
    assert_int_equal(br_memory_soft(&m), 60 * MIB);
    assert_int_equal(br_memory_hard(&m), 80 * MIB);
    /* an eighth of the memory is reserved for sending */
    assert_int_equal(br_memory_intake(&m), 70 * MIB);
    br_memory_limit(&m, 70 * MIB, 90 * MIB); /* br_memory_limit never raises a limit */
    assert_int_equal(br_memory_soft(&m), 60 * MIB);
    assert_int_equal(br_memory_hard(&m), 80 * MIB);
    size_t used = br_memory_used(&m);
    assert_int_equal(used, br_mem_live());
    assert_true(br_memory_fits(&m, 70 * MIB - used));
    assert_false(br_memory_fits(&m, 70 * MIB - used + 1));
    assert_int_equal(br_memory_largest(&m), 70 * MIB - used);
}

/* Overhead is resident memory that is not counted. It is measured again when the count has changed
 * by 1/64 of the limit. */
static void overhead_is_resident_memory_that_is_not_counted(void **state)
{
    (void)state;
    struct br_memory m = {.resident = resident};
    size_t live = br_mem_live();
    resident_bytes = live + 5 * MIB;
    br_memory_limit(&m, 48 * MIB, 64 * MIB);
    assert_int_equal(br_memory_used(&m), live + 5 * MIB);
    void *little = br_malloc(512 * KIB);
    resident_bytes = live + 20 * MIB;
    assert_int_equal(br_memory_used(&m), br_mem_live() + 5 * MIB); /* not measured yet */
    void *more = br_malloc(MIB);
    assert_int_equal(br_memory_used(&m), resident_bytes);
    resident_bytes = 0; /* counted memory also counts if it was never written to */
    br_memory_look(&m);
    assert_int_equal(br_memory_used(&m), br_mem_live());
    br_free(little);
    br_free(more);
}

/* After a refusal, the memory that is never freed is measured again. This does not happen while
 * other requests hold memory, because that memory will be freed. */
static void the_largest_request_depends_on_the_idle_process(void **state)
{
    (void)state;
    struct br_memory m = {.resident = resident};
    size_t live = br_mem_live();
    resident_bytes = live + 5 * MIB;
    br_memory_limit(&m, 48 * MIB, 64 * MIB); /* 56 MiB may be used to read requests */
    assert_int_equal(br_memory_largest(&m), 51 * MIB - live);
    struct br_pool *pool = br_pool_new(0);
    struct br_buf *other = br_buf_new(pool, 8 * MIB);
    resident_bytes = br_mem_live() + 20 * MIB;
    br_memory_settle(&m, 0);
    assert_int_equal(br_memory_largest(&m), 51 * MIB - live);
    br_memory_settle(&m, 8 * MIB); /* this memory is held by the request itself */
    size_t idle_bytes = br_mem_live() - other->cap;
    assert_int_equal(br_memory_largest(&m), 36 * MIB - idle_bytes);
    br_buf_unref(other);
    resident_bytes = br_mem_live() + 6 * MIB;
    br_memory_settle(&m, 0);
    assert_int_equal(br_memory_largest(&m), 50 * MIB - br_mem_live());
    assert_int_equal(br_memory_trims(&m), 3);
    br_pool_free(pool);
}

/* A request is first refused because of its maximum size, and then fails because others hold
 * memory. A retry can then succeed. The opposite order is tested, too. */
static void the_last_refusal_counts(void **state)
{
    (void)state;
    struct br_memory m = {0};
    struct br_mem_scope scope, inner;
    br_memory_limit(&m, 8 * MIB, br_mem_live() + 16 * MIB);
    br_mem_scope_begin(&scope, 100 * MIB, &m);
    assert_null(br_malloc(101 * MIB));
    assert_true(scope.full);
    br_mem_scope_begin(&inner, 100 * MIB, NULL);
    assert_null(br_malloc(15 * MIB));
    br_mem_scope_end(&inner);
    assert_true(scope.refused && !scope.full);
    assert_null(br_malloc(101 * MIB));
    assert_true(scope.full && !scope.refused);
    br_mem_scope_end(&scope);
}

/* The unused buffers of all workers together take at most a sixteenth of the limit. */
static void pools_share_the_limit_of_unused_buffers(void **state)
{
    (void)state;
    struct br_memory m = {0};
    struct br_pool *pools[8];
    br_memory_limit(&m, 0, 64 * MIB);
    for (size_t i = 0; i < BR_COUNT(pools); i++) {
        pools[i] = br_pool_new(24 * MIB);
        assert_non_null(pools[i]);
        br_pool_set_memory(pools[i], &m);
    }
    size_t idle = 0;
    for (size_t i = 0; i < BR_COUNT(pools); i++) {
        struct br_buf *bufs[40];
        for (size_t k = 0; k < BR_COUNT(bufs); k++)
            assert_non_null(bufs[k] = br_buf_new(pools[i], 64 * KIB));
        for (size_t k = 0; k < BR_COUNT(bufs); k++)
            br_buf_unref(bufs[k]);
        idle += br_pool_idle(pools[i]);
    }
    assert_in_range(idle, 3 * MIB, 4 * MIB);
    for (size_t i = 0; i < BR_COUNT(pools); i++)
        br_pool_free(pools[i]);
}

static void the_resident_set_can_be_read(void **state)
{
    (void)state;
    assert_true(br_memory_resident() > br_mem_live());
    assert_int_equal(br_memory_resident() % PAGE, 0);
}

/* Unused buffers are freed before a request is refused. */
static void unused_buffers_are_freed_first(void **state)
{
    (void)state;
    struct br_memory m = {0};
    struct br_pool *pool = br_pool_new(8 * MIB);
    br_pool_set_memory(pool, &m);
    br_memory_limit(&m, br_mem_live() + 8 * MIB, br_mem_live() + 64 * MIB);
    br_buf_unref(br_buf_new(pool, 4 * MIB)); /* kept, because it is a sixteenth of the limit */
    assert_true(br_mem_held(BR_HOLDER_POOL) >= 4 * MIB);
    size_t room = br_memory_intake(&m) - br_mem_live();
    assert_true(br_pool_fits(pool, room));
    assert_true(br_mem_held(BR_HOLDER_POOL) >= 4 * MIB);
    assert_true(br_pool_fits(pool, room + 2 * MIB));
    assert_int_equal(br_mem_held(BR_HOLDER_POOL), 0);
    assert_false(br_pool_fits(pool, room + 8 * MIB));
    br_buf_unref(br_buf_new(pool, 6 * MIB)); /* not kept, because it is more than a sixteenth */
    assert_int_equal(br_mem_held(BR_HOLDER_POOL), 0);
    br_pool_free(pool);
}

/* The scope would allow the allocation, but the process has no room for it. */
static void a_scope_respects_the_budget(void **state)
{
    (void)state;
    struct br_memory m = {0};
    struct br_mem_scope scope;
    br_memory_limit(&m, 8 * MIB, br_mem_live() + 16 * MIB);
    br_mem_scope_begin(&scope, 100 * MIB, &m);
    assert_null(br_malloc(15 * MIB));
    br_mem_scope_end(&scope);
    assert_true(scope.refused);
    assert_false(scope.full);
    void *p = br_malloc(15 * MIB); /* allocations outside a scope are not refused */
    assert_non_null(p);
    br_free(p);
}

SUITE(memory)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_counted_until_they_are_freed),
        cmocka_unit_test(threads_share_the_count),
#if !BR_SANITIZED
        cmocka_unit_test(heaps_of_other_threads_are_trimmed_to_their_end),
#endif
        cmocka_unit_test(memory_categories_add_up),
        cmocka_unit_test(a_scope_has_a_maximum),
        cmocka_unit_test(a_scope_counts_in_the_enclosing_scope),
        cmocka_unit_test(a_scope_may_have_the_largest_maximum),
        cmocka_unit_test(buffers_from_the_pool_count_in_a_scope),
        cmocka_unit_test(marks),
        cmocka_unit_test(the_largest_request_depends_on_the_idle_process),
        cmocka_unit_test(pools_share_the_limit_of_unused_buffers),
        cmocka_unit_test(the_last_refusal_counts),
        cmocka_unit_test(overhead_is_resident_memory_that_is_not_counted),
        cmocka_unit_test(the_resident_set_can_be_read),
        cmocka_unit_test(unused_buffers_are_freed_first),
        cmocka_unit_test(a_scope_respects_the_budget),
    };
    return RUN(tests, NULL, NULL);
}
