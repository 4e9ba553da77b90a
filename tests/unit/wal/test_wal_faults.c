/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that fail, and a process that is killed, at every call of the write-ahead log. */
#include <errno.h>
#include <limits.h>

#include "tests/support/wal_bed.h"

/* --- Faults of every call --------------------------------------------------------------------- */

#define FAULT_RECORDS 12

struct fault_result {
    unsigned stored, done; /* sets of record numbers, with a bit for each number */
};

/* Appends records one by one, and marks every third record that was stored as done. */
static struct fault_result fault_scenario(struct bed *bed)
{
    struct fault_result result = {0};
    static char text[30000];
    memset(text, '.', sizeof text);
    for (unsigned i = 0; i < FAULT_RECORDS; i++) {
        uint64_t number;
        text[0] = (char)('a' + i);
        int rc = bed_append_to(bed, bed->queue, text, sizeof text, true, &number);
        assert_true(rc == 0 || rc == BR_EIO || rc == BR_EFULL);
        if (rc)
            continue;
        result.stored |= 1u << i;
        if (i % 3 == 0) {
            br_wal_done(bed->queue, number, 1, 3, sizeof text + 5);
            (void)br_wal_sync(bed->wal, true, NULL);
            result.done |= 1u << i;
        }
    }
    return result;
}

static unsigned fault_read(struct bed *bed)
{
    static char text[30001];
    struct br_wal_found found;
    unsigned set = 0;
    while (bed_read_from(bed->queue, &found, text, sizeof text)) {
        unsigned i = (unsigned)text[0] - 'a';
        if (text[0] == 'z')
            continue;
        assert_true(i < FAULT_RECORDS);
        assert_int_equal(set & 1u << i, 0);
        set |= 1u << i;
    }
    return set;
}

/* Opens a log with small segments, so that the scenario needs several segments. */
static void fault_begin(struct bed *bed, enum br_wal_sync_mode sync)
{
    bed_begin(bed, sync);
    br_wal_close(bed->wal);
    bed->config.segment_size = 100000;
    bed_open(bed);
    disk.n_calls = 0;
}

static void fault_run(enum br_wal_sync_mode sync, unsigned first, unsigned count, int error,
                      bool *ret_reached)
{
    struct bed bed;
    fault_begin(&bed, sync);
    disk.first = first;
    disk.count = count;
    disk.error = error;
    struct fault_result result = fault_scenario(&bed);
    *ret_reached = disk.n_calls >= first;
    disk.first = 0;
    if (!error && (result.stored != (1u << FAULT_RECORDS) - 1))
        fail_msg("a short write (call %u) is not an error", first);
    /* it heals */
    assert_int_equal(bed_append(&bed, "z", true), 0);
    assert_false(br_wal_stats(bed.wal).failing);
    assert_int_equal(br_wal_sync(bed.wal, true, NULL), 0);
    bed_restart(&bed);
    unsigned back = fault_read(&bed);
    unsigned expected = result.stored & ~result.done;
    if (back != expected)
        fail_msg("call %u+%u, errno %d: %x came back, not %x", first, count, error, back, expected);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
    bed_end(&bed);
}

static void every_failing_call_loses_nothing(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, 0};
    static const unsigned counts[] = {1, 2, 5};
    static const enum br_wal_sync_mode modes[] = {BR_WAL_ALWAYS, BR_WAL_INTERVAL};
    for (size_t m = 0; m < 2; m++) {
        for (size_t e = 0; e < 3; e++) {
            for (size_t c = 0; c < 3; c++) {
                bool reached = true;
                for (unsigned n = 1; reached; n++)
                    fault_run(modes[m], n, counts[c], errors[e], &reached);
            }
        }
    }
}

/* --- The process is killed at every call ------------------------------------------------------ */

/* Simulates a crash: from call number `first` on, all calls that change files fail. Then the log is
 * opened again. If `torn`, the first failing write has written half of its data. */
static bool crash_run(enum br_wal_sync_mode sync, unsigned first, bool torn)
{
    struct bed bed;
    fault_begin(&bed, sync);
    disk.first = first;
    disk.count = UINT_MAX - first;
    disk.error = EIO;
    disk.torn = torn;
    struct fault_result result = fault_scenario(&bed);
    bool reached = disk.n_calls >= first;
    disk.torn = false;
    bed_restart(&bed);
    unsigned back = fault_read(&bed), expected = result.stored & ~result.done;
    unsigned more = back & ~expected;
    if ((back & expected) != expected)
        fail_msg("call %u: %x came back, not %x", first, back, expected);
    /* in addition, at most two records may be read: the record that was being written at the crash,
     * and the record whose mark was being written */
    if (__builtin_popcount(more & ~result.stored) > 1 || __builtin_popcount(more & result.done) > 1)
        fail_msg("call %u: %x came back in addition", first, more);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
    bed_end(&bed);
    return reached;
}

static void killed_at_every_call(void **state)
{
    (void)state;
    for (int torn = 0; torn < 2; torn++) {
        for (unsigned n = 1; crash_run(BR_WAL_ALWAYS, n, torn); n++)
            ;
        for (unsigned n = 1; crash_run(BR_WAL_OFF, n, torn); n++)
            ;
    }
}

SUITE(wal_faults)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_call_loses_nothing),
        cmocka_unit_test(killed_at_every_call),
    };
    return RUN(tests, NULL, NULL);
}
