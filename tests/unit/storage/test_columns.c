/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/blocks.h"

#include "tests/support/test.h"

static struct br_columns made, found;

/* Makes a block whose columns have the extreme values. */
static void make_block(uint32_t count, uint32_t lowest, uint64_t spread)
{
    made.n_spans = count;
    for (uint32_t i = 0; i < count; i++) {
        made.operation[i] = lowest + (i % 2 ? 0 : i);
        made.start_ns[i] = UINT64_C(1767225600000000000) + i * spread;
        /* some spans end before they start */
        made.end_ns[i] = i % 7 == 3 ? made.start_ns[i] - i : made.start_ns[i] + i * spread;
        made.status[i] = (uint8_t)(i % (BR_COLUMNS_STATUS_MAX + 1));
        made.root[i] = i % 3 == 0;
    }
}

static void check_block(void)
{
    assert_int_equal(found.n_spans, made.n_spans);
    for (uint32_t i = 0; i < made.n_spans; i++) {
        assert_int_equal(found.operation[i], made.operation[i]);
        assert_int_equal(found.start_ns[i], made.start_ns[i]);
        assert_int_equal(found.end_ns[i], made.end_ns[i]);
        assert_int_equal(found.status[i], made.status[i]);
        assert_int_equal(found.root[i], made.root[i]);
    }
}

/* Facts of every width are read as they were written. */
static void facts_keep_their_values(void **state)
{
    static const uint64_t spreads[] = {0, 1, 1000, 1000000, UINT64_C(1) << 40};
    struct br_pack pack = {.data = NULL};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(spreads); i++)
        for (uint32_t count = 1; count <= BR_BLOCK_SPANS; count += 73) {
            make_block(count, i % 2 ? BR_OPERATIONS_MAX - count : 0, spreads[i]);
            br_pack_clear(&pack);
            br_columns_write_facts(&made, &pack);
            assert_false(pack.failed);
            assert_true(br_columns_read_facts(&found, pack.data, pack.len));
            check_block();
        }
    br_pack_release(&pack);
}

/* Facts that end early are rejected. With any byte changed, the numbers stay within their limits.
 */
static void damaged_facts_are_within_the_limits(void **state)
{
    struct br_pack pack = {.data = NULL};
    (void)state;
    make_block(40, 300, 1000);
    br_columns_write_facts(&made, &pack);
    for (size_t len = 0; len < pack.len; len++)
        assert_false(br_columns_read_facts(&found, pack.data, len));
    for (size_t at = 0; at < pack.len; at++)
        for (unsigned value = 0; value < 256; value++) {
            uint8_t before = pack.data[at];
            pack.data[at] = (uint8_t)value;
            if (br_columns_read_facts(&found, pack.data, pack.len)) {
                assert_true(found.n_spans <= BR_BLOCK_SPANS);
                for (uint32_t i = 0; i < found.n_spans; i++)
                    assert_true(found.operation[i] <= BR_OPERATIONS_MAX);
            }
            pack.data[at] = before;
        }
    br_pack_release(&pack);
}

/* Queries allocate memory by the number of an operation. */
static void operations_above_the_limit_are_rejected(void **state)
{
    struct br_pack pack = {.data = NULL};
    (void)state;
    make_block(2, BR_OPERATIONS_MAX, 1);
    br_columns_write_facts(&made, &pack);
    assert_true(br_columns_read_facts(&found, pack.data, pack.len));
    for (uint32_t i = 0; i < 2; i++) {
        made.operation[i] = BR_OPERATIONS_MAX + 1;
        br_pack_clear(&pack);
        br_columns_write_facts(&made, &pack);
        assert_false(br_columns_read_facts(&found, pack.data, pack.len));
        made.operation[i] = 1;
    }
    br_pack_release(&pack);
}

SUITE(columns)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_keep_their_values),
        cmocka_unit_test(damaged_facts_are_within_the_limits),
        cmocka_unit_test(operations_above_the_limit_are_rejected),
    };
    return RUN(tests, NULL, NULL);
}
