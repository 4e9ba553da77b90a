/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "tests/support/fake_sink.h"
#include "tests/support/test.h"

/* Key 00..0f, input 00, 01, ... The expected values are from a second implementation, in Python.
 * It gives e545be4961ca29a1 for 15 bytes with two and four rounds, as in appendix A of the
 * paper. */
static void siphash_with_one_and_three_rounds(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        uint64_t hash;
    } cases[] = {
        {0, 0xabac0158050fc4dc},  {1, 0xc9f49bf37d57ca93},  {7, 0xd3927d989bb11140},
        {8, 0x369095118d299a8e},  {15, 0xd320d86d2a519956}, {16, 0xcc4fdd1a7d908b66},
        {63, 0x9d199062b7bbb3a8},
    };
    uint8_t key[16], in[64];
    for (int i = 0; i < 16; i++)
        key[i] = (uint8_t)i;
    for (int i = 0; i < 64; i++)
        in[i] = (uint8_t)i;
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        assert_true(br_siphash(key, in, cases[i].len) == cases[i].hash);
}

static void added_keys_are_found(void **state)
{
    (void)state;
    struct br_map *m = br_map_new(100);
    int a = 1, b = 2;
    void *old = &a;
    assert_null(br_map_get(m, "k", 1));
    assert_null(br_map_remove(m, "k", 1));
    assert_int_equal(br_map_put(m, "k", 1, &a, &old), 0);
    assert_null(old);
    assert_int_equal(br_map_put(m, "k", 1, &b, &old), 0);
    assert_ptr_equal(old, &a);
    assert_ptr_equal(br_map_get(m, "k", 1), &b);
    assert_int_equal(br_map_count(m), 1);
    /* The length and zero bytes are significant. The empty key is valid. */
    assert_null(br_map_get(m, "k\0", 2));
    assert_int_equal(br_map_put(m, "k\0", 2, &a, NULL), 0);
    assert_int_equal(br_map_put(m, "", 0, &a, NULL), 0);
    assert_ptr_equal(br_map_get(m, "", 0), &a);
    assert_ptr_equal(br_map_get(m, "k", 1), &b);
    assert_int_equal(br_map_count(m), 3);
    assert_ptr_equal(br_map_remove(m, "k", 1), &b);
    assert_null(br_map_get(m, "k", 1));
    assert_int_equal(br_map_count(m), 2);
    br_map_free(m, NULL);
    br_map_free(NULL, NULL);
}

static void keys_are_copied(void **state)
{
    (void)state;
    struct br_map *m = br_map_new(10);
    char key[] = "abc";
    int v;
    assert_int_equal(br_map_put(m, key, 3, &v, NULL), 0);
    key[0] = 'x';
    assert_ptr_equal(br_map_get(m, "abc", 3), &v);
    assert_null(br_map_get(m, key, 3));
    br_map_free(m, NULL);
}

static void a_full_map_rejects_new_keys(void **state)
{
    (void)state;
    for (size_t max = 0; max < 40; max++) {
        struct br_map *m = br_map_new(max);
        int v, w;
        for (size_t i = 0; i < max; i++)
            assert_int_equal(br_map_put(m, &i, sizeof i, &v, NULL), 0);
        size_t k = 0;
        assert_int_equal(br_map_put(m, "more", 4, &v, NULL), BR_EFULL);
        assert_null(br_map_get(m, "more", 4));
        if (max) {
            assert_int_equal(br_map_put(m, &k, sizeof k, &w, NULL), 0); /* an existing key */
            assert_ptr_equal(br_map_remove(m, &k, sizeof k), &w);
            assert_int_equal(br_map_put(m, "more", 4, &v, NULL), 0);
        }
        br_map_free(m, NULL);
    }
}

static void iteration_is_in_order_of_insertion(void **state)
{
    (void)state;
    struct br_map *m = br_map_new(1000);
    static int values[1000];
    for (size_t i = 0; i < 1000; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "%zu", i * 7919);
        assert_int_equal(br_map_put(m, key, (size_t)n, &values[i], NULL), 0);
    }
    for (size_t i = 0; i < 1000; i++) {
        const void *key;
        size_t len;
        char want[16];
        int n = snprintf(want, sizeof want, "%zu", i * 7919);
        assert_ptr_equal(br_map_at(m, i, &key, &len), &values[i]);
        assert_int_equal(len, n);
        assert_memory_equal(key, want, len);
    }
    assert_null(br_map_at(m, 1000, NULL, NULL));
    br_map_free(m, NULL);
}

static unsigned n_released;

static void count_release(void *value)
{
    n_released += *(unsigned *)value;
}

static void freeing_passes_every_value_to_the_callback(void **state)
{
    (void)state;
    struct br_map *m = br_map_new(10);
    unsigned one = 1, ten = 10;
    br_map_put(m, "a", 1, &one, NULL);
    br_map_put(m, "b", 1, &ten, NULL);
    n_released = 0;
    br_map_free(m, count_release);
    assert_int_equal(n_released, 11);
}

/* Compares the map with a plain array: puts, gets and removals in any order. */
static void random_operations_match_an_array(void **state)
{
    (void)state;
    enum { KEYS = 300, STEPS = 200000 };
    static void *model[KEYS];
    static char values[KEYS];
    struct br_map *m = br_map_new(KEYS);
    uint64_t seed = 42;
    size_t count = 0;
    memset(model, 0, sizeof model);
    for (int i = 0; i < STEPS; i++) {
        uint64_t r = fake_random(&seed);
        uint32_t key = (uint32_t)(r % KEYS);
        void *value = &values[(r >> 20) % KEYS], *old = NULL;
        switch (r >> 60) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
            assert_int_equal(br_map_put(m, &key, sizeof key, value, &old), 0);
            assert_ptr_equal(old, model[key]);
            count += !model[key];
            model[key] = value;
            break;
        case 6:
        case 7:
        case 8:
        case 9:
        case 10:
        case 11:
            assert_ptr_equal(br_map_remove(m, &key, sizeof key), model[key]);
            count -= model[key] != NULL;
            model[key] = NULL;
            break;
        default:
            assert_ptr_equal(br_map_get(m, &key, sizeof key), model[key]);
        }
        assert_int_equal(br_map_count(m), count);
    }
    for (uint32_t key = 0; key < KEYS; key++)
        assert_ptr_equal(br_map_get(m, &key, sizeof key), model[key]);
    br_map_free(m, NULL);
}

static void random_bytes_differ(void **state)
{
    (void)state;
    uint8_t a[32] = {0}, b[32] = {0}, zero[32] = {0};
    br_random_bytes(a, sizeof a);
    br_random_bytes(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a, zero, sizeof a);
    br_random_bytes(a, 0);
}

SUITE(map)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siphash_with_one_and_three_rounds),
        cmocka_unit_test(added_keys_are_found),
        cmocka_unit_test(keys_are_copied),
        cmocka_unit_test(a_full_map_rejects_new_keys),
        cmocka_unit_test(iteration_is_in_order_of_insertion),
        cmocka_unit_test(freeing_passes_every_value_to_the_callback),
        cmocka_unit_test(random_operations_match_an_array),
        cmocka_unit_test(random_bytes_differ),
    };
    return RUN(tests, NULL, NULL);
}
