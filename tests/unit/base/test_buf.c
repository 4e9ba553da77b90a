/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "tests/support/test.h"

static int setup(void **state)
{
    *state = br_pool_new(1u << 20);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    assert_int_equal(br_pool_live(*state), 0);
    br_pool_free(*state);
    return 0;
}

static void buffers_have_the_requested_capacity(void **state)
{
    for (size_t cap = 0; cap < 5000; cap++) {
        struct br_buf *b = br_buf_new(*state, cap);
        assert_true(b->cap >= cap);
        assert_int_equal(b->len, 0);
        assert_int_equal(b->refs, 1);
        if (cap > 256) /* four size classes per power of two */
            assert_true(b->cap <= cap + cap / 4);
        memset(b->data, 0xaa, b->cap + BR_BUF_SLACK);
        assert_int_equal(br_pool_live(*state), b->cap);
        br_buf_unref(b);
    }
    for (unsigned log2 = 8; log2 <= 28; log2++) {
        for (int d = -1; d <= 1; d++) {
            size_t cap = ((size_t)1 << log2) + (size_t)d;
            struct br_buf *b = br_buf_new(*state, cap);
            if (cap > BR_BUF_MAX) {
                assert_null(b);
                continue;
            }
            assert_true(b->cap >= cap && b->cap <= cap + cap / 4 + 1);
            b->data[b->cap - 1] = 1;
            br_buf_unref(b);
        }
    }
    assert_null(br_buf_new(*state, SIZE_MAX));
}

static void a_large_buffer_may_be_exact(void **state)
{
    size_t cap = BR_MEM_MAPPED + 77;
    struct br_buf *b = br_buf_new_exact(*state, cap);
    assert_int_equal(b->cap, cap);
    assert_int_equal(br_pool_live(*state), cap);
    memset(b->data, 0xaa, cap + BR_BUF_SLACK);
    br_buf_unref(b);
    assert_int_equal(br_pool_live(*state), 0);
    assert_int_equal(br_pool_idle(*state), 0);
    b = br_buf_new_exact(*state, cap);
    b->len = (uint32_t)cap;
    assert_int_equal(br_buf_append(&b, "x", 1, BR_BUF_MAX), 0);
    assert_true(b->cap > cap && b->data[cap] == 'x');
    br_buf_unref(b);
    b = br_buf_new_exact(*state, 100); /* the sizes of small buffers are rounded up */
    assert_int_equal(b->cap, br_buf_room(100));
    br_buf_unref(b);
    assert_null(br_buf_new_exact(*state, SIZE_MAX));
}

/* A buffer that grows reuses an unused large buffer. Otherwise the pool would fill with buffers
 * that are never requested. */
static void grown_buffers_are_reused(void **state)
{
    (void)state;
    static uint8_t bytes[16384];
    struct br_pool *pool = br_pool_new(64u << 20);
    size_t idle = 0;
    for (int round = 0; round < 20; round++) {
        struct br_buf *b = br_buf_new(pool, sizeof bytes);
        while (b->len < 45 * sizeof bytes) {
            memset(bytes, (int)(b->len / sizeof bytes), sizeof bytes);
            assert_int_equal(br_buf_append(&b, bytes, sizeof bytes, BR_BUF_MAX), 0);
        }
        for (uint32_t i = 0; i < b->len; i += (uint32_t)sizeof bytes)
            assert_int_equal(b->data[i + 1], i / sizeof bytes);
        br_buf_unref(b);
        if (round == 1)
            idle = br_pool_idle(pool);
    }
    assert_true(idle > 0);
    assert_int_equal(br_pool_idle(pool), idle);
    br_pool_free(pool);
}

static void buffers_live_as_long_as_their_references(void **state)
{
    struct br_buf *b = br_buf_new(*state, 100);
    assert_ptr_equal(br_buf_ref(b), b);
    assert_null(br_buf_unref(b));
    assert_true(br_pool_live(*state) > 0);
    assert_null(br_buf_unref(b));
    assert_int_equal(br_pool_live(*state), 0);
    assert_null(br_buf_unref(NULL));
}

static size_t n_alive;

static void *counting_alloc(size_t size)
{
    n_alive++;
    return malloc(size);
}

static void counting_free(void *p)
{
    n_alive--;
    free(p);
}

static const struct br_mem_hooks counting = {counting_alloc, realloc, counting_free, NULL};

static void a_pool_keeps_at_most_its_maximum(void **state)
{
    (void)state;
    br_mem_set_hooks(&counting);
    n_alive = 0;
    struct br_pool *pool = br_pool_new(3 * 1024);
    struct br_buf *v[8];
    for (int i = 0; i < 8; i++)
        v[i] = br_buf_new(pool, 1024);
    assert_int_equal(n_alive, 9);
    for (int i = 0; i < 8; i++)
        br_buf_unref(v[i]);
    /* one block of the pool itself, and three idle buffers of 1,024 bytes */
    assert_int_equal(n_alive, 1 + 3);
    for (int i = 0; i < 3; i++)
        v[i] = br_buf_new(pool, 1000);
    assert_int_equal(n_alive, 1 + 3); /* the idle buffers are reused */
    for (int i = 0; i < 3; i++)
        br_buf_unref(v[i]);
    br_pool_trim(pool);
    assert_int_equal(n_alive, 1);
    br_pool_free(pool);
    br_pool_free(NULL);
    br_mem_set_hooks(NULL);
    assert_int_equal(n_alive, 0);
}

static void a_reused_buffer_is_like_a_new_one(void **state)
{
    struct br_buf *b = br_buf_new(*state, 500);
    assert_int_equal(br_buf_append(&b, "abc", 3, 500), 0);
    br_buf_unref(b);
    b = br_buf_new(*state, 500);
    assert_int_equal(b->len, 0);
    assert_int_equal(b->refs, 1);
    br_buf_unref(b);
}

static void appending_grows_up_to_the_maximum(void **state)
{
    struct br_buf *b = br_buf_new(*state, 1);
    for (int i = 0; i < 1000; i++) {
        char c = (char)i;
        assert_int_equal(br_buf_append(&b, &c, 1, 1000), 0);
    }
    assert_int_equal(br_buf_append(&b, "x", 1, 1000), BR_EFULL);
    assert_int_equal(br_buf_append(&b, NULL, 0, 1000), 0);
    assert_int_equal(b->len, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal((char)b->data[i], (char)i);
    assert_int_equal(br_pool_live(*state), b->cap); /* the smaller buffers were freed */
    br_buf_unref(b);
}

static void *no_alloc(size_t size)
{
    (void)size;
    return NULL;
}

static const struct br_mem_hooks nothing = {no_alloc, realloc, free, NULL};

static void a_buffer_that_cannot_grow_is_unchanged(void **state)
{
    struct br_buf *b = br_buf_new(*state, 256), *before = b;
    memset(b->data, 'x', 256);
    b->len = 256;
    br_mem_set_hooks(&nothing);
    int append = br_buf_append(&b, "y", 1, 10000), reserve = br_buf_reserve(&b, 10000);
    br_mem_set_hooks(NULL);
    assert_int_equal(append, BR_ENOMEM);
    assert_int_equal(reserve, BR_ENOMEM);
    assert_ptr_equal(b, before);
    assert_int_equal(b->len, 256);
    assert_int_equal(br_buf_reserve(&b, BR_BUF_MAX + 1ul), BR_ENOMEM);
    br_buf_unref(b);
}

/* --- Ropes ------------------------------------------------------------------------------------ */

static struct br_buf *text_buf(struct br_pool *pool, const char *text)
{
    struct br_buf *b = br_buf_new(pool, strlen(text));
    memcpy(b->data, text, strlen(text));
    b->len = (uint32_t)strlen(text);
    return b;
}

static void assert_rope(const struct br_rope *r, const char *want)
{
    char text[256];
    size_t n = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        assert_true(r->slices[i].len > 0);
        memcpy(text + n, r->slices[i].data, r->slices[i].len);
        n += r->slices[i].len;
    }
    text[n] = '\0';
    assert_int_equal(n, r->len);
    assert_string_equal(text, want);
}

static void adjacent_slices_are_merged(void **state)
{
    struct br_rope r = {0};
    struct br_buf *a = text_buf(*state, "abcdef"), *b = text_buf(*state, "123");
    assert_int_equal(br_rope_add(&r, a, a->data, 2), 0);
    assert_int_equal(br_rope_add(&r, a, a->data + 2, 2), 0);
    assert_int_equal(br_rope_add(&r, a, a->data + 2, 0), 0);
    assert_int_equal(r.count, 1);
    assert_int_equal(a->refs, 2);
    assert_int_equal(br_rope_add(&r, a, a->data + 5, 1), 0); /* not adjacent */
    assert_int_equal(r.count, 2);
    assert_int_equal(br_rope_add(&r, b, b->data, 3), 0);
    assert_int_equal(br_rope_add(&r, NULL, "!", 1), 0);
    assert_int_equal(r.count, 4);
    assert_rope(&r, "abcdf123!");
    br_buf_unref(a);
    br_buf_unref(b);
    assert_rope(&r, "abcdf123!");
    br_rope_release(&r);
    assert_int_equal(r.count, 0);
    br_rope_release(&r);
}

static void dropping_frees_bytes_and_buffers(void **state)
{
    for (size_t first = 0; first <= 10; first++) {
        for (size_t second = 0; second <= 10; second++) {
            struct br_rope r = {0};
            struct br_buf *a = text_buf(*state, "abcd"), *b = text_buf(*state, "efg");
            br_rope_add(&r, a, a->data, 4);
            br_rope_add(&r, b, b->data, 3);
            br_rope_add(&r, NULL, "h", 1);
            br_buf_unref(a);
            br_buf_unref(b);
            br_rope_drop(&r, first);
            br_rope_drop(&r, second);
            size_t gone = (first < 8 ? first : 8);
            gone += second < 8 - gone ? second : 8 - gone;
            assert_rope(&r, &"abcdefgh"[gone]);
            br_rope_add(&r, NULL, "i", 1);
            assert_int_equal(r.len, 9 - gone);
            br_rope_release(&r);
        }
    }
}

static void ropes_are_appended_to_ropes(void **state)
{
    struct br_rope r = {0}, s = {0};
    struct br_buf *a = text_buf(*state, "abc");
    br_rope_add(&r, NULL, "x", 1);
    br_rope_add(&s, a, a->data, 3);
    br_rope_add(&s, NULL, "y", 1);
    br_buf_unref(a);
    assert_int_equal(br_rope_cat(&r, &s), 0);
    assert_rope(&r, "xabcy");
    assert_rope(&s, "abcy");
    br_rope_release(&s);
    assert_rope(&r, "xabcy");
    br_rope_release(&r);
}

static void a_flat_rope_shares_its_buffer_if_possible(void **state)
{
    struct br_rope r = {0};
    const uint8_t *data;
    struct br_buf *a = text_buf(*state, "abc");
    br_rope_add(&r, a, a->data + 1, 2);
    struct br_buf *flat = br_rope_flat(&r, *state, &data);
    assert_ptr_equal(flat, a);
    assert_ptr_equal(data, a->data + 1);
    br_buf_unref(flat);
    br_rope_add(&r, NULL, "z", 1);
    flat = br_rope_flat(&r, *state, &data);
    assert_ptr_not_equal(flat, a);
    assert_memory_equal(data, "bcz", 3);
    br_buf_unref(flat);
    br_rope_release(&r);
    flat = br_rope_flat(&r, *state, &data); /* empty */
    assert_non_null(flat);
    br_buf_unref(flat);
    br_buf_unref(a);
}

/* The system needs milliseconds to free a large buffer, so at most 1 MiB is freed at a time. The
 * test measures the whole process, whose memory may vary a little. */
static void a_large_buffer_is_freed_in_slices(void **state)
{
    const size_t mib = 1u << 20, size = 40 * mib;
    struct br_pool *pool = *state;
    br_pool_linger(pool);
    struct br_buf *b = br_buf_new_exact(pool, size);
    memset(b->data, 0xaa, size);
    size_t kept = br_mem_held(BR_HOLDER_POOL), before = br_memory_resident(), n = 0;
    br_buf_unref(b);
    assert_int_equal(br_pool_live(pool), 0);
    assert_int_equal(br_mem_held(BR_HOLDER_POOL), kept + size);
    for (bool more = true; more; n++) {
        size_t had = br_memory_resident();
        more = br_pool_release_some(pool);
        assert_true(br_memory_resident() + 2 * mib > had);
    }
    assert_in_range(n, size / mib, size / (mib / 2));
    assert_int_equal(br_mem_held(BR_HOLDER_POOL), kept);
    assert_true(br_memory_resident() + 25 * mib < before); /* a sanitizer keeps the last slice */
    assert_false(br_pool_release_some(pool));
}

static void large_buffers_are_freed_when_memory_is_needed(void **state)
{
    struct br_pool *pool = *state;
    struct br_memory memory = {0};
    br_memory_limit(&memory, 24u << 20, 24u << 20);
    br_pool_linger(pool);
    br_pool_set_memory(pool, &memory);
    br_buf_unref(br_buf_new_exact(pool, 16u << 20));
    assert_false(br_memory_fits(&memory, 10u << 20));
    assert_true(br_pool_fits(pool, 10u << 20));
    assert_false(br_pool_release_some(pool));
    br_pool_set_memory(pool, NULL);
}

#define NEW(pool, size) br_block_new(pool, BR_HOLDER_CONNECTIONS, size)
#define RESIZE(pool, block, size) br_block_resize(pool, BR_HOLDER_CONNECTIONS, block, size)
#define FREE(pool, block) br_block_free(pool, BR_HOLDER_CONNECTIONS, block)

static void freed_blocks_are_kept_for_their_size(void **state)
{
    struct br_pool *pool = *state;
    size_t held = br_mem_held(BR_HOLDER_CONNECTIONS), idle = br_mem_held(BR_HOLDER_POOL);
    for (size_t size = 0; size <= 3000; size += 1 + size / 9) {
        uint8_t *block = NEW(pool, size), *next;
        assert_true((uintptr_t)block % 16 == 0);
        memset(block, 0xaa, size);
        assert_true(br_mem_held(BR_HOLDER_CONNECTIONS) >= held + size);
        FREE(pool, block);
        assert_int_equal(br_mem_held(BR_HOLDER_CONNECTIONS), held);
        next = NEW(pool, size);
        if (size <= 1024)
            assert_ptr_equal(next, block);
        FREE(pool, next);
    }
    assert_true(br_mem_held(BR_HOLDER_POOL) > idle);
    br_pool_trim(pool);
    assert_int_equal(br_mem_held(BR_HOLDER_POOL), idle);
    FREE(pool, NULL);
}

static void a_block_keeps_its_content_when_it_grows(void **state)
{
    struct br_pool *pool = *state;
    uint8_t *block = NULL;
    for (size_t size = 1; size < 5000; size += 13) {
        block = RESIZE(pool, block, size);
        block[size - 1] = (uint8_t)size;
        for (size_t before = 1; before <= size; before += 13)
            assert_int_equal(block[before - 1], (uint8_t)before);
    }
    uint8_t *smaller = RESIZE(pool, block, 7);
    assert_ptr_equal(smaller, block);
    for (size_t less = 0; less < 16; less++)
        assert_null(RESIZE(pool, block, SIZE_MAX - less));
    FREE(pool, block);
}

static void the_number_of_kept_blocks_is_limited(void **state)
{
    struct br_pool *pool = *state;
    enum { MANY = 1000, SIZE = 1000 };
    static void *blocks[MANY];
    size_t idle = br_mem_held(BR_HOLDER_POOL);
    for (unsigned i = 0; i < MANY; i++)
        blocks[i] = NEW(pool, SIZE);
    for (unsigned i = 0; i < MANY; i++)
        FREE(pool, blocks[i]);
    size_t kept = br_mem_held(BR_HOLDER_POOL) - idle;
    assert_true(kept <= 256 << 10 && kept > 250 << 10);
    struct br_pool *none = br_pool_new(0);
    FREE(none, NEW(none, SIZE));
    assert_int_equal(br_mem_held(BR_HOLDER_POOL) - idle, kept);
    br_pool_free(none);
}

static void on_last(const struct br_buf *buf, void *arg)
{
    const struct br_buf **seen = arg;
    assert_null(*seen);
    *seen = buf;
}

static void a_watched_pool_reports_and_hands_over_buffers(void **state)
{
    const struct br_buf *seen = NULL;
    struct br_pool *watched = br_pool_new(0), *heir = br_pool_new(1 << 20);
    (void)state;
    br_pool_watch(watched, heir, on_last, &seen);
    struct br_buf *buf = br_buf_new(watched, 1000), *other = br_buf_ref(buf);
    assert_null(br_buf_unref(other));
    assert_null(seen);
    assert_int_equal(br_pool_live(watched), br_buf_room(1000));
    (void)br_buf_unref(buf);
    assert_ptr_equal(seen, buf);
    assert_int_equal(br_pool_live(watched), 0);
    assert_int_equal(br_pool_idle(heir), br_buf_room(1000));
    seen = NULL;
    buf = br_buf_new(watched, 1000);
    (void)br_buf_discard(buf);
    assert_ptr_equal(seen, buf);
    br_pool_free(watched);
    br_pool_free(heir);
}

SUITE(buf)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_watched_pool_reports_and_hands_over_buffers),
        TEST(buffers_have_the_requested_capacity),
        TEST(a_large_buffer_may_be_exact),
        TEST(grown_buffers_are_reused),
        TEST(buffers_live_as_long_as_their_references),
        TEST(a_pool_keeps_at_most_its_maximum),
        TEST(a_reused_buffer_is_like_a_new_one),
        TEST(appending_grows_up_to_the_maximum),
        TEST(a_buffer_that_cannot_grow_is_unchanged),
        TEST(adjacent_slices_are_merged),
        TEST(dropping_frees_bytes_and_buffers),
        TEST(ropes_are_appended_to_ropes),
        TEST(a_flat_rope_shares_its_buffer_if_possible),
        TEST(a_large_buffer_is_freed_in_slices),
        TEST(large_buffers_are_freed_when_memory_is_needed),
        TEST(freed_blocks_are_kept_for_their_size),
        TEST(a_block_keeps_its_content_when_it_grows),
        TEST(the_number_of_kept_blocks_is_limited),
    };
    return RUN(tests, NULL, NULL);
}
