/* SPDX-License-Identifier: Apache-2.0 */
/* Records, queues, the limit of the size, threads, and the directory of the write-ahead log. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/wal_bed.h"

/* --- Records --------------------------------------------------------------------------------- */

static void records_survive_a_restart_in_order(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    assert_int_equal(bed_append(&bed, "two", false), 0);
    assert_int_equal(bed_append(&bed, "three", true), 0);
    /* The caller keeps the first record in memory, so it is not read. The third record is read from
     * the log, because the second record must be read before it. */
    bed_expect(&bed, "two");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    assert_int_equal(br_wal_queue_total(bed.queue).n_records[1], 9);
    assert_int_equal(br_wal_queue_total(bed.queue).bytes[1], 3 * 5 + 3 + 3 + 5);
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    assert_int_equal(br_wal_stats(bed.wal).n_restored, 3);
    bed_expect(&bed, "one");
    bed_expect(&bed, "two");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    bed_end(&bed);
}

static void held_records_are_read_only_after_a_restart(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_false(br_wal_queue_has_unread(bed.queue));
    assert_int_equal(bed_append(&bed, "one", false), 0);
    assert_true(br_wal_queue_has_unread(bed.queue));
    assert_int_equal(bed_append_held(&bed, "two", NOT_DELIVERED), 2);
    assert_int_equal(bed_append(&bed, "three", false), 0);
    assert_int_equal(bed_append_held(&bed, "four", NOT_DELIVERED), 4);
    bed_expect(&bed, "one");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    br_wal_done(bed.queue, 4, 1, 3, 9);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    bed_restart(&bed);
    bed_expect(&bed, "one");
    bed_expect(&bed, "two");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    bed_end(&bed);
}

static void done_records_do_not_come_back(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    for (int i = 0; i < 5; i++)
        assert_int_equal(bed_append(&bed, (const char *[]){"a", "b", "c", "d", "e"}[i], true), 0);
    br_wal_done(bed.queue, 2, 1, 3, 6);
    br_wal_done(bed.queue, 4, 1, 3, 6);
    assert_true(br_wal_has_unwritten(bed.wal));
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    assert_false(br_wal_has_unwritten(bed.wal));
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    bed_expect(&bed, "a");
    bed_expect(&bed, "c");
    bed_expect(&bed, "e");
    bed_expect_none(&bed);
    br_wal_done(bed.queue, 1, 1, 3, 6);
    br_wal_done(bed.queue, 3, 1, 3, 6);
    br_wal_done(bed.queue, 5, 1, 3, 6);
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 0);
    assert_int_equal(br_wal_queue_total(bed.queue).bytes[1], 0);
    assert_int_equal(br_wal_stats(bed.wal).n_segments, 1); /* the old segment is deleted */
    bed_restart(&bed);
    bed_expect_none(&bed);
    uint64_t number;
    assert_int_equal(bed_append_to(&bed, bed.queue, "f", 1, true, &number), 0);
    assert_int_equal(number, 6); /* numbers of earlier records are not used again */
    bed_end(&bed);
}

static void queues_are_independent(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    struct br_wal_queue *other = br_wal_queue(bed.wal, "otlp/2");
    assert_int_equal(bed_append(&bed, "one", false), 0);
    assert_int_equal(bed_append_to(&bed, other, "uno", 3, false, NULL), 0);
    assert_int_equal(bed_append(&bed, "two", false), 0);
    br_wal_done(other, 1, 1, 3, 8);
    bed_restart(&bed);
    other = br_wal_queue(bed.wal, "otlp/2");
    assert_int_equal(other->n_unread, 0);
    assert_int_equal(bed.queue->n_unread, 2);
    bed_expect(&bed, "one");
    bed_expect(&bed, "two");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* The disk is full, and only the file `reserve` has room. When all records have been delivered, the
 * old segment is deleted. */
static void a_full_disk_has_room_when_all_records_are_done(void **state)
{
    (void)state;
    struct bed bed;
    char path[400];
    bed_begin(&bed, BR_WAL_ALWAYS);
    (void)snprintf(path, sizeof path, "%s/00000001.wal", bed.directory);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    assert_int_equal(bed_append(&bed, "two", true), 0);
    br_wal_done(bed.queue, 1, 1, 3, 8);
    for (int i = 0; i < 2; i++) {
        disk.first = disk.n_calls + 1;
        disk.count = 1;
        disk.error = ENOSPC;
        assert_int_equal(bed_append(&bed, "three", true), BR_EFULL);
        disk.first = 0;
        assert_int_equal(access(path, F_OK), i ? -1 : 0);
        br_wal_done(bed.queue, 2, 1, 3, 8);
    }
    assert_int_equal(bed_append(&bed, "four", true), 0);
    assert_int_equal(br_wal_stats(bed.wal).n_segments, 1);
    bed_restart(&bed);
    bed_expect(&bed, "four");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* --- Segments and limits ---------------------------------------------------------------------- */

static void segments_are_deleted_once_all_queues_have_passed(void **state)
{
    (void)state;
    struct bed bed;
    static char big[60000];
    memset(big, 'x', sizeof big);
    bed_begin(&bed, BR_WAL_ALWAYS);
    bed.config.segment_size = 100000;
    br_wal_close(bed.wal);
    bed_open(&bed);
    struct br_wal_queue *other = br_wal_queue(bed.wal, "slow");
    assert_int_equal(bed_append_to(&bed, other, "s", 1, true, NULL), 0);
    for (uint64_t n = 1; n <= 8; n++) {
        assert_int_equal(bed_append_to(&bed, bed.queue, big, sizeof big, true, NULL), 0);
        br_wal_done(bed.queue, n, 1, 3, sizeof big + 5);
    }
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    assert_true(br_wal_stats(bed.wal).n_segments >= 4);
    br_wal_done(other, 1, 1, 3, 6);
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    assert_int_equal(br_wal_stats(bed.wal).n_segments, 1);
    bed_end(&bed);
}

static void a_full_log_refuses_and_accepts_again(void **state)
{
    (void)state;
    struct bed bed;
    static char big[60000];
    memset(big, 'x', sizeof big);
    bed_begin(&bed, BR_WAL_ALWAYS);
    uint64_t number = 0, n = 0;
    int rc;
    while ((rc = bed_append_to(&bed, bed.queue, big, sizeof big, true, &number)) == 0)
        n = number;
    assert_int_equal(rc, BR_EFULL);
    assert_true(n >= 14 && n <= 17); /* 1 MiB */
    assert_true(br_wal_stats(bed.wal).bytes <= 1 << 20);
    assert_false(br_wal_stats(bed.wal).failing);
    for (uint64_t i = 1; i <= n; i++)
        br_wal_done(bed.queue, i, 1, 3, sizeof big + 5);
    assert_int_equal(bed_append_to(&bed, bed.queue, big, sizeof big, true, &number), 0);
    bed_end(&bed);
}

static void drop_oldest_makes_room(void **state)
{
    (void)state;
    struct bed bed;
    static char big[60000];
    memset(big, 'x', sizeof big);
    bed_begin(&bed, BR_WAL_ALWAYS);
    br_wal_close(bed.wal);
    bed.config.drop_oldest = true;
    bed_open(&bed);
    for (int i = 0; i < 40; i++)
        assert_int_equal(bed_append_to(&bed, bed.queue, big, sizeof big, false, NULL), 0);
    struct br_wal_stats stats = br_wal_stats(bed.wal);
    struct br_wal_total total = br_wal_queue_total(bed.queue);
    assert_true(stats.bytes <= 1 << 20);
    assert_int_equal(stats.n_dropped[1] + total.n_records[1], 40 * 3);
    assert_int_equal(bed.queue->n_unread, total.n_requests[1]);
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], total.n_requests[1]);
    bed_end(&bed);
}

/* --- Threads ---------------------------------------------------------------------------------- */

#define THREADS 8
#define PER_THREAD 50

static void *thread_append(void *arg)
{
    struct bed *bed = arg;
    for (int i = 0; i < PER_THREAD; i++)
        if (bed_append(bed, "x", false))
            return "an append has failed";
    return NULL;
}

static void threads_share_syncs(void **state)
{
    (void)state;
    struct bed bed;
    pthread_t threads[THREADS];
    bed_begin(&bed, BR_WAL_ALWAYS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_append, &bed), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    assert_int_equal(bed.queue->n_unread, THREADS * PER_THREAD);
    assert_true(br_wal_stats(bed.wal).n_syncs <= THREADS * PER_THREAD);
    bed_restart(&bed);
    assert_int_equal(bed.queue->n_unread, THREADS * PER_THREAD);
    bed_end(&bed);
}

/* --- The directory ---------------------------------------------------------------------------- */

static void one_process_uses_a_directory(void **state)
{
    (void)state;
    struct bed bed;
    struct br_wal *second = NULL;
    struct br_err err = {0};
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_int_equal(br_wal_open(&bed.config, &second, &err), BR_EINVAL);
    assert_non_null(strstr(err.text, "another process uses"));
    bed_end(&bed);
}

static void links_are_refused(void **state)
{
    (void)state;
    struct bed bed;
    struct br_wal *wal = NULL;
    struct br_err err = {0};
    char link[320];
    bed_begin(&bed, BR_WAL_ALWAYS);
    (void)snprintf(link, sizeof link, "%s/link", bed.root.path);
    assert_int_equal(symlink(bed.directory, link), 0);
    struct br_wal_config config = bed.config;
    config.directory = link;
    assert_int_equal(br_wal_open(&config, &wal, &err), BR_EINVAL);
    assert_int_equal(br_wal_check(&config, &err), BR_EINVAL);
    bed_end(&bed);
}

static void only_the_owner_can_read(void **state)
{
    (void)state;
    struct bed bed;
    struct stat st;
    char path[400];
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    assert_int_equal(stat(bed.directory, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    (void)snprintf(path, sizeof path, "%s/00000001.wal", bed.directory);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    bed_end(&bed);
}

static void ranges_merge(void **state)
{
    (void)state;
    struct br_ranges ranges = {0};
    assert_int_equal(br_ranges_add(&ranges, 5, 6), 0);
    assert_int_equal(br_ranges_add(&ranges, 1, 2), 0);
    assert_int_equal(br_ranges_add(&ranges, 9, 9), 0);
    assert_int_equal(ranges.count, 3);
    assert_int_equal(br_ranges_add(&ranges, 3, 3), 0);
    assert_int_equal(ranges.count, 3);
    assert_true(br_ranges_cover(&ranges, 1, 3));
    assert_false(br_ranges_cover(&ranges, 1, 4));
    assert_int_equal(br_ranges_add(&ranges, 2, 8), 0);
    assert_int_equal(ranges.count, 1);
    assert_true(br_ranges_cover(&ranges, 1, 9));
    assert_false(br_ranges_contain(&ranges, 0));
    assert_false(br_ranges_contain(&ranges, 10));
    assert_int_equal(br_ranges_add(&ranges, UINT64_MAX, UINT64_MAX), 0);
    assert_true(br_ranges_contain(&ranges, UINT64_MAX));
    struct br_range first = br_ranges_shift(&ranges);
    assert_int_equal(first.first, 1);
    assert_int_equal(first.last, 9);
    assert_int_equal(ranges.count, 1);
    br_ranges_release(&ranges);
}

SUITE(wal)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_survive_a_restart_in_order),
        cmocka_unit_test(held_records_are_read_only_after_a_restart),
        cmocka_unit_test(done_records_do_not_come_back),
        cmocka_unit_test(queues_are_independent),
        cmocka_unit_test(a_full_disk_has_room_when_all_records_are_done),
        cmocka_unit_test(segments_are_deleted_once_all_queues_have_passed),
        cmocka_unit_test(a_full_log_refuses_and_accepts_again),
        cmocka_unit_test(drop_oldest_makes_room),
        cmocka_unit_test(threads_share_syncs),
        cmocka_unit_test(one_process_uses_a_directory),
        cmocka_unit_test(links_are_refused),
        cmocka_unit_test(only_the_owner_can_read),
        cmocka_unit_test(ranges_merge),
    };
    return RUN(tests, NULL, NULL);
}
