/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tests/support/test.h"
#include "wire/request.h"

/* What is alive in large blocks; resizing one moves it, as the kernel does, without a second copy.
 */
static struct {
    size_t live, peak;
} large;

#define HEADER 16u

static void note(size_t gone, size_t come)
{
    large.live += come - gone;
    large.peak = large.live > large.peak ? large.live : large.peak;
}

static void *take(size_t size)
{
    size_t *p = malloc(size + HEADER);
    if (!p)
        return NULL;
    *p = size;
    note(0, size);
    return p + HEADER / sizeof *p;
}

static void *resize(void *old, size_t size)
{
    if (!old)
        return take(size);
    size_t *p = (size_t *)old - HEADER / sizeof *p, before = *p;
    p = realloc(p, size + HEADER);
    if (!p)
        return NULL;
    *p = size;
    note(before, size);
    return p + HEADER / sizeof *p;
}

static void release(void *old)
{
    size_t *p = (size_t *)old - HEADER / sizeof *p;
    note(*p, 0);
    free(p);
}

static size_t size_of(const void *block)
{
    return *((const size_t *)block - HEADER / sizeof(size_t));
}

static const struct br_mem_hooks hooks = {take, resize, release, size_of};

#define MIB ((size_t)1 << 20)

/* At no time more than what came, a quarter and a class of buffers; whatever was promised. */
static void check(size_t total, size_t piece, size_t expected)
{
    uint8_t *bytes = malloc(piece);
    for (size_t i = 0; i < piece; i++)
        bytes[i] = (uint8_t)i;
    br_mem_set_hooks(&hooks);
    struct br_pool *pool = br_pool_new(0);
    struct br_request r = {.pool = pool, .max_body = 64 * MIB};
    large.peak = large.live;
    for (size_t at = 0; at < total; at += piece) {
        br_request_body_add(&r, bytes, piece, expected);
        assert_int_equal(r.body_error, BR_BODY_OK);
        size_t came = at + piece, most = came < MIB ? 4 * came + 4096 : came + came / 2 + MIB;
        if (large.peak > most)
            fail_msg("%zu bytes of %zu: %zu", came, total, large.peak);
    }
    assert_int_equal(r.body->len, total);
    for (size_t at = 0; at < total; at += piece)
        assert_memory_equal(r.body->data + at, bytes, piece);
    r.body = br_buf_unref(r.body);
    br_pool_free(pool);
    assert_int_equal(large.live, 0);
    br_mem_set_hooks(NULL);
    free(bytes);
}

static void bodies_get_memory_as_they_come(void **state)
{
    static const size_t pieces[] = {16384, 65536, 262144, 1 << 20};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(pieces); i++) {
        check(32 * MIB, pieces[i], 32 * MIB); /* as was said */
        check(32 * MIB, pieces[i], 0);        /* nothing was said */
        check(4 * MIB, pieces[i], 60 * MIB);  /* a promise */
    }
    check(1000, 1, 60 * MIB);
    check(1000, 1, 0);
}

static void bodies_over_their_maximum_hold_nothing(void **state)
{
    (void)state;
    struct br_pool *pool = br_pool_new(0);
    struct br_request r = {.pool = pool, .max_body = 10};
    br_request_body_add(&r, (const uint8_t *)"0123456789", 10, 0);
    assert_int_equal(r.body->len, 10);
    br_request_body_add(&r, (const uint8_t *)"x", 1, 0);
    assert_int_equal(r.body_error, BR_BODY_TOO_BIG);
    assert_null(r.body);
    br_pool_free(pool);
}

/* Memory is taken before the bytes are: what the budget has no room for is not kept. */
static void bodies_get_what_the_memory_budget_has(void **state)
{
    (void)state;
    static uint8_t bytes[64 << 10];
    struct br_memory memory = {0};
    struct br_pool *pool = br_pool_new(0);
    struct br_request r = {.pool = pool, .max_body = 64 * MIB};
    br_pool_set_memory(pool, &memory);
    br_memory_limit(&memory, 0, br_mem_live() + 8 * MIB);
    size_t room = br_memory_intake(&memory) - br_mem_live(), taken = 0;
    while (r.body_error == BR_BODY_OK) {
        br_request_body_add(&r, bytes, sizeof bytes, 60 * MIB);
        taken += r.body ? sizeof bytes : 0;
        assert_true(br_mem_live() <= br_memory_intake(&memory));
    }
    assert_int_equal(r.body_error, BR_BODY_NO_MEMORY);
    assert_null(r.body);
    assert_in_range(taken, room / 2, room);
    br_pool_free(pool);
}

SUITE(request)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_get_memory_as_they_come),
        cmocka_unit_test(bodies_over_their_maximum_hold_nothing),
        cmocka_unit_test(bodies_get_what_the_memory_budget_has),
    };
    return RUN(tests, NULL, NULL);
}
