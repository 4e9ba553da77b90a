/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tests/support/test.h"
#include "wire/request.h"

/* Counts the memory of large blocks, in bytes. When a large block is resized, the old and the new
 * block do not exist at the same time, as with mremap. */
static struct {
    size_t live, peak;
} large;

#define HEADER 16u

static void account(size_t released, size_t allocated)
{
    large.live += allocated - released;
    large.peak = large.live > large.peak ? large.live : large.peak;
}

static void *allocate(size_t size)
{
    size_t *p = malloc(size + HEADER);
    if (!p)
        return NULL;
    *p = size;
    account(0, size);
    return p + HEADER / sizeof *p;
}

static void *resize(void *old, size_t size)
{
    if (!old)
        return allocate(size);
    size_t *p = (size_t *)old - HEADER / sizeof *p, before = *p;
    p = realloc(p, size + HEADER);
    if (!p)
        return NULL;
    *p = size;
    account(before, size);
    return p + HEADER / sizeof *p;
}

static void release(void *old)
{
    size_t *p = (size_t *)old - HEADER / sizeof *p;
    account(*p, 0);
    free(p);
}

static size_t size_of(const void *block)
{
    return *((const size_t *)block - HEADER / sizeof(size_t));
}

static const struct br_mem_hooks hooks = {allocate, resize, release, size_of};

#define MIB ((size_t)1 << 20)

/* Sends a body of `total` bytes in pieces, with `expected` as the stated length. Checks that memory
 * never exceeds 1.5 times the received bytes plus 1 MiB, or, below 1 MiB, four times the received
 * bytes plus 4 KiB. */
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

static void bodies_get_memory_as_they_arrive(void **state)
{
    static const size_t pieces[] = {16384, 65536, 262144, 1 << 20};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(pieces); i++) {
        check(32 * MIB, pieces[i], 32 * MIB); /* the stated length is right */
        check(32 * MIB, pieces[i], 0);        /* the length is not stated */
        check(4 * MIB, pieces[i], 60 * MIB);  /* the stated length is too large */
    }
    check(1000, 1, 60 * MIB);
    check(1000, 1, 0);
}

static void bodies_over_their_maximum_are_freed(void **state)
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

/* Memory for a body is reserved before its bytes are stored. Bytes above the budget are
 * discarded. */
static void bodies_stay_within_the_memory_budget(void **state)
{
    (void)state;
    static uint8_t bytes[64 << 10];
    struct br_memory memory = {0};
    struct br_pool *pool = br_pool_new(0);
    struct br_request r = {.pool = pool, .max_body = 64 * MIB};
    br_pool_set_memory(pool, &memory);
    br_memory_limit(&memory, 0, br_mem_live() + 8 * MIB);
    size_t room = br_memory_intake(&memory) - br_mem_live(), accepted = 0;
    while (r.body_error == BR_BODY_OK) {
        br_request_body_add(&r, bytes, sizeof bytes, 60 * MIB);
        accepted += r.body ? sizeof bytes : 0;
        assert_true(br_mem_live() <= br_memory_intake(&memory));
    }
    assert_int_equal(r.body_error, BR_BODY_NO_MEMORY);
    assert_null(r.body);
    assert_in_range(accepted, room / 2, room);
    br_pool_free(pool);
}

SUITE(request)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_get_memory_as_they_arrive),
        cmocka_unit_test(bodies_over_their_maximum_are_freed),
        cmocka_unit_test(bodies_stay_within_the_memory_budget),
    };
    return RUN(tests, NULL, NULL);
}
