/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "google/rpc/status.pb-c.h"
#include "tests/support/test.h"

static void allocations_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    struct br_arena a;
    br_arena_init(&a, 0);
    uint8_t *last = NULL;
    for (size_t size = 1; size < 3000; size += 7) {
        uint8_t *p = br_arena_alloc(&a, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        memset(p, (int)size, size);
        assert_true(!last || last[0] == (uint8_t)(size - 7));
        last = p;
    }
    br_arena_release(&a);
    assert_null(a.blocks);
}

static void a_maximum_is_respected(void **state)
{
    (void)state;
    struct br_arena a;
    br_arena_init(&a, 10000);
    size_t got = 0;
    while (br_arena_alloc(&a, 100))
        got += 100;
    /* An allocation takes 112 bytes. At the end of each of the two blocks, less than 112 bytes are
     * unused. */
    assert_in_range(got, (10000 / 112 - 2) * 100, 10000);
    assert_true(a.used <= 10000);
    assert_null(br_arena_alloc(&a, 5000));
    assert_true(a.full);
    br_arena_release(&a);
    assert_false(a.full);
    /* the arena can be used again, with the same maximum */
    assert_non_null(br_arena_alloc(&a, 9000));
    assert_false(a.full);
    assert_null(br_arena_alloc(&a, 9000));
    br_arena_release(&a);
}

/* The arena allocates small blocks itself. Large ones are buffers of the pool, which reuses
 * them. */
static void large_blocks_come_from_the_pool(void **state)
{
    (void)state;
    struct br_pool *pool = br_pool_new(4u << 20);
    size_t held = br_mem_held(BR_HOLDER_ITEMS), idle = 0;
    for (int round = 0; round < 2; round++) {
        struct br_arena a = {.pool = pool, .holder = BR_HOLDER_ITEMS};
        assert_non_null(br_arena_alloc(&a, 100));
        assert_int_equal(br_pool_live(pool), 0);
        uint8_t *large = br_arena_alloc(&a, 1u << 20);
        assert_non_null(large);
        assert_int_equal((uintptr_t)large % _Alignof(max_align_t), 0);
        memset(large, 1, 1u << 20);
        assert_true(br_arena_has(&a, large + 1000));
        assert_true(br_pool_live(pool) >= 1u << 20);
        assert_true(br_mem_held(BR_HOLDER_ITEMS) >= held + (1u << 20));
        br_arena_release(&a);
        assert_int_equal(br_pool_live(pool), 0);
        assert_int_equal(br_mem_held(BR_HOLDER_ITEMS), held);
        idle = round ? idle : br_pool_idle(pool);
        assert_true(idle >= 1u << 20);
        assert_int_equal(br_pool_idle(pool), idle); /* the same buffer is reused */
    }
    br_pool_free(pool);
}

static void a_zeroed_arena_is_valid(void **state)
{
    (void)state;
    struct br_arena a = {0};
    assert_non_null(br_arena_alloc(&a, 15u << 20));
    assert_null(br_arena_alloc(&a, 2u << 20)); /* the maximum of 16 MiB is reached */
    br_arena_release(&a);
    br_arena_release(&a);
}

static void sizes_do_not_overflow(void **state)
{
    (void)state;
    struct br_arena a = {0};
    assert_null(br_arena_alloc(&a, SIZE_MAX));
    assert_null(br_arena_alloc(&a, SIZE_MAX - 8));
    assert_null(br_arena_calloc(&a, SIZE_MAX / 2, 3));
    assert_null(br_arena_strndup(&a, "x", SIZE_MAX));
    br_arena_release(&a);
}

static void text_is_copied_and_printed(void **state)
{
    (void)state;
    struct br_arena a = {0};
    int *v = br_arena_calloc(&a, 10, sizeof *v);
    for (int i = 0; i < 10; i++)
        assert_int_equal(v[i], 0);
    assert_string_equal(br_arena_strndup(&a, "abcdef", 3), "abc");
    assert_string_equal(br_arena_strndup(&a, NULL, 0), "");
    assert_string_equal(br_arena_printf(&a, "%s-%d", "x", 42), "x-42");
    br_arena_release(&a);
}

static void *no_alloc(size_t size)
{
    (void)size;
    return NULL;
}

static const struct br_mem_hooks nothing = {no_alloc, realloc, free, NULL};

static void without_memory_allocations_fail(void **state)
{
    (void)state;
    struct br_arena a = {0};
    br_mem_set_hooks(&nothing);
    void *p = br_arena_alloc(&a, 1);
    char *q = br_arena_printf(&a, "x");
    br_mem_set_hooks(NULL);
    assert_null(p);
    assert_null(q);
    assert_int_equal(a.used, 0);
    br_arena_release(&a);
}

static void messages_are_unpacked_completely_or_not_at_all(void **state)
{
    (void)state;
    /* google.rpc.Status{code: 3, message: "abc"} */
    static const uint8_t bytes[] = {0x08, 3, 0x12, 3, 'a', 'b', 'c'};
    struct br_arena a;
    br_arena_init(&a, 0);
    Google__Rpc__Status *s = google__rpc__status__unpack(br_arena_pb(&a), sizeof bytes, bytes);
    assert_non_null(s);
    assert_int_equal(s->code, 3);
    assert_string_equal(s->message, "abc");
    br_arena_release(&a);
    br_arena_init(&a, 32);
    assert_null(google__rpc__status__unpack(br_arena_pb(&a), sizeof bytes, bytes));
    br_arena_release(&a);
}

SUITE(arena)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_and_do_not_overlap),
        cmocka_unit_test(a_maximum_is_respected),
        cmocka_unit_test(large_blocks_come_from_the_pool),
        cmocka_unit_test(a_zeroed_arena_is_valid),
        cmocka_unit_test(sizes_do_not_overflow),
        cmocka_unit_test(text_is_copied_and_printed),
        cmocka_unit_test(without_memory_allocations_fail),
        cmocka_unit_test(messages_are_unpacked_completely_or_not_at_all),
    };
    return RUN(tests, NULL, NULL);
}
