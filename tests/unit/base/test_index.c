/* SPDX-License-Identifier: Apache-2.0 */
#include "base/index.h"

#include "base/err.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"

#define NUMBERS_MAX 5000u

struct numbers {
    struct br_index index;
    uint64_t values[NUMBERS_MAX];
    uint32_t count;
    bool same_hash; /* all entries have the same hash */
};

static uint64_t numbers_hash_of(const struct numbers *numbers, uint64_t value)
{
    return numbers->same_hash ? UINT64_MAX : br_index_hash(&numbers->index, &value, sizeof value);
}

static uint64_t numbers_hash(const void *entries, uint32_t place)
{
    const struct numbers *numbers = entries;
    return numbers_hash_of(numbers, numbers->values[place]);
}

static bool numbers_equal(const void *entries, uint32_t place, const void *key)
{
    const struct numbers *numbers = entries;
    assert_true(place < numbers->count);
    return numbers->values[place] == *(const uint64_t *)key;
}

static uint32_t numbers_find(const struct numbers *numbers, uint64_t value)
{
    return br_index_find(&numbers->index, numbers_hash_of(numbers, value), numbers_equal, numbers,
                         &value);
}

static int numbers_add(struct numbers *numbers, uint64_t value)
{
    int rc = br_index_add(&numbers->index, numbers_hash_of(numbers, value), numbers->count,
                          numbers_hash, numbers);
    if (!rc)
        numbers->values[numbers->count++] = value;
    return rc;
}

static struct numbers *numbers_new(uint32_t max)
{
    struct numbers *numbers = calloc(1, sizeof *numbers);
    br_index_init(&numbers->index, max, BR_HOLDER_REQUESTS);
    return numbers;
}

static void numbers_free(struct numbers *numbers)
{
    br_index_release(&numbers->index);
    free(numbers);
}

static void added_entries_are_found_by_their_index(void **state)
{
    (void)state;
    struct numbers *numbers = numbers_new(UINT32_MAX);
    assert_int_equal(numbers_find(numbers, 0), BR_INDEX_NONE);
    for (uint32_t i = 0; i < NUMBERS_MAX; i++) {
        assert_int_equal(numbers_find(numbers, 3 * i), BR_INDEX_NONE);
        assert_int_equal(numbers_add(numbers, 3 * i), 0);
        assert_true((size_t)numbers->count * 3 <= numbers->index.n_slots * 2);
    }
    for (uint32_t i = 0; i < NUMBERS_MAX; i++) {
        assert_int_equal(numbers_find(numbers, 3 * i), i);
        assert_int_equal(numbers_find(numbers, 3 * i + 1), BR_INDEX_NONE);
    }
    /* For 5,000 entries, the capacity of 42 is doubled seven times. The number of slots is 1.5
     * times the capacity, plus 2. */
    assert_int_equal(br_index_bytes(&numbers->index), br_index_bytes_for(42 << 7));
    assert_int_equal(br_index_bytes_for(42 << 7), 4 * (5376 + 2688 + 2));
    numbers_free(numbers);
}

static void equal_hashes_are_distinguished_past_the_last_slot(void **state)
{
    (void)state;
    struct numbers *numbers = numbers_new(100);
    numbers->same_hash = true;
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(numbers_add(numbers, i), 0);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(numbers_find(numbers, i), i);
    assert_int_equal(numbers_find(numbers, 100), BR_INDEX_NONE);
    numbers_free(numbers);
}

static void the_number_of_entries_is_limited(void **state)
{
    (void)state;
    struct numbers *numbers = numbers_new(50);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(numbers_add(numbers, i), 0);
    assert_int_equal(numbers_add(numbers, 50), BR_EFULL);
    assert_int_equal(br_index_bytes(&numbers->index), br_index_bytes_for(50));
    assert_int_equal(numbers_find(numbers, 49), 49);
    assert_int_equal(numbers_find(numbers, 50), BR_INDEX_NONE);
    numbers_free(numbers);
}

static void reserved_slots_are_enough(void **state)
{
    (void)state;
    struct numbers *numbers = numbers_new(1000);
    assert_int_equal(br_index_reserve(&numbers->index, 1001), BR_EFULL);
    assert_int_equal(br_index_reserve(&numbers->index, 1000), 0);
    const uint32_t *slots = numbers->index.slots;
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(numbers_add(numbers, i), 0);
    assert_ptr_equal(numbers->index.slots, slots);
    assert_int_equal(br_index_bytes(&numbers->index), br_index_bytes_for(1000));
    numbers_free(numbers);
}

static void slots_count_in_their_memory_category(void **state)
{
    (void)state;
    size_t before = br_mem_held(BR_HOLDER_REQUESTS), live = br_mem_live();
    struct numbers *numbers = numbers_new(1000);
    assert_int_equal(br_mem_held(BR_HOLDER_REQUESTS), before);
    assert_int_equal(numbers_add(numbers, 1), 0);
    assert_true(br_mem_held(BR_HOLDER_REQUESTS) - before >= br_index_bytes(&numbers->index));
    br_index_release(&numbers->index);
    assert_int_equal(br_mem_held(BR_HOLDER_REQUESTS), before);
    assert_int_equal(br_mem_live(), live);
    numbers->count = 0;
    assert_int_equal(numbers_find(numbers, 1), BR_INDEX_NONE);
    assert_int_equal(numbers_add(numbers, 2), 0);
    assert_int_equal(numbers_find(numbers, 2), 0);
    numbers_free(numbers);
}

static void numbers_without_memory(void *arg)
{
    (void)arg;
    struct numbers *numbers = numbers_new(1000);
    uint32_t failures = 0;
    fault_start();
    for (uint32_t i = 0; i < 200; i++)
        if (numbers_add(numbers, i)) {
            failures++;
            assert_true(fault_failed());
        }
    fault_stop();
    assert_int_equal(numbers->count, 200 - failures);
    for (uint32_t i = 0; i < numbers->count; i++)
        assert_int_equal(numbers_find(numbers, numbers->values[i]), i);
    numbers_free(numbers);
}

static void without_memory_the_index_is_unchanged(void **state)
{
    (void)state;
    fault_each("index", numbers_without_memory, NULL);
}

SUITE(index)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_entries_are_found_by_their_index),
        cmocka_unit_test(equal_hashes_are_distinguished_past_the_last_slot),
        cmocka_unit_test(the_number_of_entries_is_limited),
        cmocka_unit_test(reserved_slots_are_enough),
        cmocka_unit_test(slots_count_in_their_memory_category),
        cmocka_unit_test(without_memory_the_index_is_unchanged),
    };
    return RUN(tests, NULL, NULL);
}
