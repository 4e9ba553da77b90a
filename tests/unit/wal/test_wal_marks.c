/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of delivered records that are not in a segment. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/wal_bed.h"

static void marks_survive_the_process(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    for (int i = 0; i < 5; i++)
        assert_int_equal(bed_append(&bed, (const char *[]){"a", "b", "c", "d", "e"}[i], true), 0);
    br_wal_done(bed.queue, 2, 1, 3, 6);
    br_wal_done(bed.queue, 5, 1, 3, 6);
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    bed_restart(&bed); /* at the first restart, the marks were written to a segment */
    bed_expect(&bed, "a");
    bed_expect(&bed, "c");
    bed_expect(&bed, "d");
    bed_expect_none(&bed);
    uint64_t number;
    assert_int_equal(bed_append_to(&bed, bed.queue, "f", 1, true, &number), 0);
    assert_int_equal(number, 6);
    bed_end(&bed);
}

static void records_delivered_while_being_written_do_not_come_back(void **state)
{
    (void)state;
    for (enum delivery when = DELIVERED_BEFORE; when <= DELIVERED_AFTER; when++) {
        struct bed bed;
        bed_begin(&bed, BR_WAL_ALWAYS);
        (void)bed_append_held(&bed, "x", when);
        /* this append also writes the mark of the first record */
        assert_int_equal(bed_append(&bed, "two", true), 0);
        (void)bed_append_held(&bed, "x", when);
        bed_restart(&bed);
        assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 1);
        bed_expect(&bed, "two");
        bed_expect_none(&bed);
        bed_end(&bed);
    }
}

/* The file has a limited number of places for marks. The places of old marks are reused. */
static void any_number_of_marks_can_be_set(void **state)
{
    (void)state;
    struct bed bed;
    uint64_t numbers[3] = {0};
    bed_begin(&bed, BR_WAL_OFF);
    bed.config.max_size = 64 << 20;
    br_wal_close(bed.wal);
    bed_open(&bed);
    for (int i = 0; i < 30000; i++) {
        assert_int_equal(bed_append_to(&bed, bed.queue, "x", 1, true, &numbers[i % 3]), 0);
        if (i % 3 == 2) {
            br_wal_done(bed.queue, numbers[0], 1, 3, 6);
            br_wal_done(bed.queue, numbers[2], 1, 3, 6);
        }
    }
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 10000);
    bed_end(&bed);
}

/* Damages the mark of record 1 in the file by changing the byte at offset `at`, and restarts.
 * Record 2 has a mark, too. */
static void bed_damage_mark(struct bed *bed, long at, uint8_t mask)
{
    char path[400];
    uint8_t byte;
    (void)snprintf(path, sizeof path, "%s/marks", bed->directory);
    bed_kill(bed);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fread(&byte, 1, 1, file), 1);
    byte ^= mask;
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    bed_open(bed);
}

static void damaged_marks_are_ignored(void **state)
{
    (void)state;
    for (long at = 0; at < 24; at++) {
        struct bed bed;
        bed_begin(&bed, BR_WAL_ALWAYS);
        assert_int_equal(bed_append(&bed, "one", true), 0);
        assert_int_equal(bed_append(&bed, "two", true), 0);
        br_wal_done(bed.queue, 1, 1, 3, 8);
        br_wal_done(bed.queue, 2, 1, 3, 8);
        bed_damage_mark(&bed, at, 0x10);
        assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 1);
        bed_expect(&bed, "one");
        bed_expect_none(&bed);
        bed_end(&bed);
    }
}

/* A segment can lose its last records in a power failure while the file `marks` keeps their marks.
 * Their numbers must not be used again. */
static void marks_of_lost_records_do_not_affect_new_records(void **state)
{
    (void)state;
    struct bed bed;
    char path[400];
    uint64_t number;
    bed_begin(&bed, BR_WAL_OFF);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    (void)snprintf(path, sizeof path, "%s/00000001.wal", bed.directory);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(bed_append(&bed, "two", true), 0);
    br_wal_done(bed.queue, 2, 1, 3, 8);
    bed_kill(&bed);
    assert_int_equal(truncate(path, st.st_size), 0);
    bed_open(&bed);
    bed_expect(&bed, "one");
    bed_expect_none(&bed);
    assert_int_equal(bed_append_to(&bed, bed.queue, "three", 5, true, &number), 0);
    assert_int_equal(number, 3);
    bed_restart(&bed);
    bed_expect(&bed, "one");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* If no segment contains a queue, its marks must not affect a later queue of the same name. */
static void marks_without_a_queue_are_removed(void **state)
{
    (void)state;
    struct bed bed;
    char path[400];
    bed_begin(&bed, BR_WAL_OFF);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    br_wal_done(bed.queue, 1, 1, 3, 8);
    bed_kill(&bed);
    (void)snprintf(path, sizeof path, "%s/00000001.wal", bed.directory);
    assert_int_equal(unlink(path), 0);
    bed_open(&bed);
    assert_int_equal(bed_append(&bed, "new", true), 0);
    bed_restart(&bed);
    bed_expect(&bed, "new");
    bed_expect_none(&bed);
    bed_end(&bed);
}

SUITE(wal_marks)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_survive_the_process),
        cmocka_unit_test(records_delivered_while_being_written_do_not_come_back),
        cmocka_unit_test(any_number_of_marks_can_be_set),
        cmocka_unit_test(damaged_marks_are_ignored),
        cmocka_unit_test(marks_of_lost_records_do_not_affect_new_records),
        cmocka_unit_test(marks_without_a_queue_are_removed),
    };
    return RUN(tests, NULL, NULL);
}
