/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cache.h"

#include "tests/support/test.h"

struct known {
    uint32_t key; /* 0: empty */
    uint32_t value;
};

static bool known_is(const void *entry, const void *key)
{
    return ((const struct known *)entry)->key == *(const uint32_t *)key;
}

static uint64_t hash_of(const struct br_cache *cache, uint32_t key)
{
    return br_cache_hash(cache, &key, sizeof key);
}

static struct known *find(const struct br_cache *cache, uint32_t key)
{
    return br_cache_find(cache, hash_of(cache, key), known_is, &key);
}

/* Returns the evicted key. */
static uint32_t put(const struct br_cache *cache, uint64_t hash, uint32_t key)
{
    struct known *known = br_cache_take(cache, hash);
    uint32_t gone = known->key;
    *known = (struct known){key, ~key};
    return gone;
}

static void the_newest_entry_of_a_hash_is_kept(void **state)
{
    (void)state;
    struct known entries[8] = {{0}};
    struct br_cache cache;
    br_cache_init(&cache, entries, sizeof *entries, 8, 1);
    assert_null(find(&cache, 1));
    assert_int_equal(put(&cache, hash_of(&cache, 1), 1), 0);
    assert_int_equal(find(&cache, 1)->value, ~1u);
    assert_int_equal(put(&cache, hash_of(&cache, 1), 2), 1);
    assert_null(find(&cache, 1));
}

static void the_least_recently_used_entry_is_evicted(void **state)
{
    (void)state;
    static const uint32_t keys[] = {1, 2, 3};
    struct known entries[8] = {{0}};
    struct br_cache cache;
    br_cache_init(&cache, entries, sizeof *entries, 4, 2);
    assert_int_equal(put(&cache, 0, 1), 0);
    assert_int_equal(put(&cache, 0, 2), 0);
    struct known *known = br_cache_find(&cache, 0, known_is, &keys[0]);
    assert_int_equal(known->value, ~1u);
    assert_int_equal(put(&cache, 0, 3), 2);
    assert_non_null(br_cache_find(&cache, 0, known_is, &keys[0]));
    assert_null(br_cache_find(&cache, 0, known_is, &keys[1]));
    assert_non_null(br_cache_find(&cache, 0, known_is, &keys[2]));
    assert_int_equal(put(&cache, 0, 4), 1);
    /* other sets, including the last one, are unchanged */
    assert_null(br_cache_find(&cache, UINT64_MAX, known_is, &keys[2]));
    assert_int_equal(put(&cache, UINT64_MAX, 5), 0);
    assert_int_equal(entries[6].key, 5);
}

/* Every entry of the cache can be used, and it has no further memory: a thousand keys are put into
 * seven sets of two entries. */
static void every_entry_can_be_used(void **state)
{
    (void)state;
    struct known entries[16] = {{0}};
    struct br_cache cache;
    br_cache_init(&cache, entries + 1, sizeof *entries, 7, 2);
    for (uint32_t key = 1; key <= 1000; key++) {
        put(&cache, hash_of(&cache, key), key);
        assert_int_equal(find(&cache, key)->value, ~key);
    }
    for (size_t i = 1; i < 15; i++)
        assert_true(entries[i].key != 0);
    assert_int_equal(entries[0].key, 0);
    assert_int_equal(entries[15].key, 0);
}

static void secrets_differ(void **state)
{
    (void)state;
    struct known entries[2] = {{0}};
    struct br_cache one, other;
    br_cache_init(&one, entries, sizeof *entries, 1, 1);
    br_cache_init(&other, entries, sizeof *entries, 1, 1);
    assert_true(hash_of(&one, 1) != hash_of(&other, 1));
}

SUITE(cache)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_entry_of_a_hash_is_kept),
        cmocka_unit_test(the_least_recently_used_entry_is_evicted),
        cmocka_unit_test(every_entry_can_be_used),
        cmocka_unit_test(secrets_differ),
    };
    return RUN(tests, NULL, NULL);
}
