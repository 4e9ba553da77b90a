/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"
#include "tests/support/test.h"

#define COUNT 257

/* Yields each number below COUNT once, in an order that is not sorted: 100 and 257 are coprime. */
static int64_t scattered(size_t i)
{
    return (int64_t)(i * 100 % COUNT);
}

static void entries_are_removed_in_ascending_order(void **state)
{
    (void)state;
    int64_t heap[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        heap[i] = scattered(i);
        br_heap_rise(br_heap_least, heap, i, NULL);
    }
    for (size_t count = COUNT; count-- > 0;) {
        assert_int_equal(heap[0], COUNT - 1 - (int64_t)count);
        heap[0] = heap[count];
        br_heap_sink(br_heap_least, heap, count, 0, NULL);
    }
}

struct entry {
    int key;
    size_t *place;
};

static bool is_greater(const void *a, const void *b, const void *arg)
{
    const int *sign = arg;
    return *sign * ((const struct entry *)a)->key > *sign * ((const struct entry *)b)->key;
}

static void on_moved(void *entry, size_t place)
{
    *((struct entry *)entry)->place = place;
}

static void a_kind_decides_the_order_and_follows_its_entries(void **state)
{
    (void)state;
    const struct br_heap_kind kind = {sizeof(struct entry), is_greater, on_moved};
    int sign = 1;
    size_t places[COUNT];
    struct entry heap[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        heap[i] = (struct entry){(int)scattered(i), &places[i]};
    for (size_t i = COUNT; i-- > 0;)
        br_heap_sink(kind, heap, COUNT, i, &sign);
    assert_int_equal(heap[0].key, COUNT - 1);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(heap[places[i]].key, scattered(i));
    for (size_t i = 1; i < COUNT; i++)
        assert_true(heap[(i - 1) / 2].key > heap[i].key);
}

SUITE(heap)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_removed_in_ascending_order),
        cmocka_unit_test(a_kind_decides_the_order_and_follows_its_entries),
    };
    return RUN(tests, NULL, NULL);
}
