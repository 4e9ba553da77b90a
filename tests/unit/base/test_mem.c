/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/mem.h"
#include "base/sanitize.h"
#include "tests/support/test.h"

static void *refuse_alloc(size_t size)
{
    (void)size;
    return NULL;
}

static void *refuse_resize(void *p, size_t size)
{
    (void)p;
    (void)size;
    return NULL;
}

static const struct br_mem_hooks refuse = {refuse_alloc, refuse_resize, free, NULL};

static void sizes_of_zero_give_unique_pointers(void **state)
{
    (void)state;
    void *a = br_malloc(0), *b = br_calloc(0, 8), *c = br_realloc(NULL, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_true(a != b && b != c && a != c);
    br_free(a);
    br_free(b);
    br_free(c);
    br_free(NULL);
}

static void calloc_clears_and_rejects_overflow(void **state)
{
    (void)state;
    unsigned char *p = br_calloc(3, 5);
    for (int i = 0; i < 15; i++)
        assert_int_equal(p[i], 0);
    br_free(p);
    assert_null(br_calloc(SIZE_MAX / 2, 3));
}

static void copies_are_terminated(void **state)
{
    (void)state;
    char *a = br_strdup("abc"), *b = br_strndup("abcdef", 2), *c = br_strndup(NULL, 0);
    assert_string_equal(a, "abc");
    assert_string_equal(b, "ab");
    assert_string_equal(c, "");
    br_free(a);
    br_free(b);
    br_free(c);
}

static void hooks_replace_the_allocator(void **state)
{
    (void)state;
    br_mem_set_hooks(&refuse);
    void *a = br_malloc(1), *b = br_calloc(1, 1), *c = br_realloc(NULL, 1), *d = br_strdup("x");
    br_mem_set_hooks(NULL);
    assert_null(a);
    assert_null(b);
    assert_null(c);
    assert_null(d);
}

static void sums_and_products_report_overflow(void **state)
{
    (void)state;
    size_t r = 7;
    assert_true(br_size_add(SIZE_MAX - 1, 1, &r));
    assert_true(r == SIZE_MAX);
    r = 7;
    assert_false(br_size_add(SIZE_MAX, 1, &r));
    assert_true(r == 7);
    assert_true(br_size_mul(1u << 20, 1u << 20, &r));
    assert_true(r == (size_t)1 << 40);
    r = 7;
    assert_false(br_size_mul(SIZE_MAX / 2 + 1, 2, &r));
    assert_true(r == 7);
}

static void arrays_grow_up_to_their_maximum(void **state)
{
    (void)state;
    uint16_t *v = NULL;
    uint32_t cap = 0;
    for (uint32_t n = 1; n <= 1000; n++) {
        assert_int_equal(br_grow(&v, &cap, n, sizeof *v, 1000), 0);
        assert_in_range(cap, n, 1000);
        v[n - 1] = (uint16_t)n;
    }
    uint16_t *before = v;
    assert_int_equal(br_grow(&v, &cap, 1001, sizeof *v, 1000), BR_EFULL);
    assert_int_equal(br_grow(&v, &cap, 5, sizeof *v, 1000), 0);
    br_mem_set_hooks(&refuse);
    int rc = br_grow(&v, &cap, 1001, sizeof *v, 5000);
    br_mem_set_hooks(NULL);
    assert_int_equal(rc, BR_ENOMEM);
    assert_ptr_equal(v, before);
    assert_int_equal(cap, 1000);
    for (uint32_t n = 1; n <= 1000; n++)
        assert_int_equal(v[n - 1], n);
    br_free(v);
}

static void arrays_grow_by_a_share_of_their_size(void **state)
{
    (void)state;
    uint8_t *v = NULL;
    uint32_t cap = 0, grown = 0, last = 0;
    for (uint32_t n = 1; n <= 1u << 20; n++) {
        assert_int_equal(br_grow(&v, &cap, n, 1, SIZE_MAX), 0);
        grown += cap != last;
        last = cap;
    }
    assert_true(
        grown <
        /* the size grows by half each time, and the logarithm of 2^20 / 8 to the base 1.5 is 29 */
        64);
    br_free(v);
}

static void sizes_of_arrays_do_not_overflow(void **state)
{
    (void)state;
    uint8_t *v = NULL;
    uint32_t cap = 0;
    assert_int_equal(br_grow(&v, &cap, (size_t)UINT32_MAX + 1, 1, SIZE_MAX), BR_EFULL);
    assert_int_equal(br_grow(&v, &cap, UINT32_MAX, SIZE_MAX / 2, SIZE_MAX), BR_ENOMEM);
    assert_null(v);
    assert_int_equal(cap, 0);
}

/* A block in the C library's heap would be copied when it grows. In this test, the heap has a free
 * range of this size below a block in use. */
static void mapped_blocks_keep_content_and_are_counted_by_pages(void **state)
{
    (void)state;
    enum { KEPT = 64, MIB = 1 << 20, ROOM = 100000 };
    void *room[KEPT];
    for (int i = 0; i < KEPT; i++)
        room[i] = br_malloc(ROOM);
    for (int i = 0; i < KEPT - 1; i++)
        br_free(room[i]);
    size_t live = br_mem_live();
    unsigned char *p = br_map(MIB);
    assert_non_null(p);
    assert_in_range(br_mem_live() - live, MIB, MIB + 65536);
    bool pages = (uintptr_t)p % 4096 == 0;
    memset(p, 7, MIB);
    p = br_remap(p, MIB, 3 * MIB);
    assert_non_null(p);
    assert_in_range(br_mem_live() - live, 3 * MIB, 3 * MIB + 65536);
    p[3 * MIB - 1] = 9;
    p = br_remap(p, 3 * MIB, MIB / 2);
    assert_non_null(p);
    assert_int_equal(p[0], 7);
    assert_int_equal(p[MIB / 2 - 1], 7);
    br_unmap(p, MIB / 2);
    assert_int_equal(br_mem_live(), live);
    br_free(room[KEPT - 1]);
#if !BR_SANITIZED
    assert_true(pages);
#else
    (void)pages;
#endif
}

static void mapped_blocks_use_hooks_and_scopes(void **state)
{
    (void)state;
    br_mem_set_hooks(&refuse);
    void *refused = br_map(1 << 20);
    br_mem_set_hooks(NULL);
    assert_null(refused);

    struct br_mem_scope scope;
    br_mem_scope_begin(&scope, 3u << 20, NULL);
    void *p = br_map(2u << 20);
    assert_non_null(p);
    assert_null(br_map(2u << 20));
    assert_null(br_remap(p, 2u << 20, 4u << 20));
    br_unmap(p, 2u << 20);
    p = br_map(2u << 20);
    assert_non_null(p);
    br_unmap(p, 2u << 20);
    br_mem_scope_end(&scope);
}

static void container_of_returns_the_container(void **state)
{
    (void)state;
    struct thing {
        int a;
        char b;
        double c;
    } t;
    assert_ptr_equal(br_container_of(&t.c, struct thing, c), &t);
    assert_int_equal(BR_COUNT(((int[7]){0})), 7);
}

SUITE(mem)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_zero_give_unique_pointers),
        cmocka_unit_test(calloc_clears_and_rejects_overflow),
        cmocka_unit_test(copies_are_terminated),
        cmocka_unit_test(hooks_replace_the_allocator),
        cmocka_unit_test(sums_and_products_report_overflow),
        cmocka_unit_test(arrays_grow_up_to_their_maximum),
        cmocka_unit_test(arrays_grow_by_a_share_of_their_size),
        cmocka_unit_test(sizes_of_arrays_do_not_overflow),
        cmocka_unit_test(mapped_blocks_keep_content_and_are_counted_by_pages),
        cmocka_unit_test(mapped_blocks_use_hooks_and_scopes),
        cmocka_unit_test(container_of_returns_the_container),
    };
    return RUN(tests, NULL, NULL);
}
