/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged files of the write-ahead log, and records that end the process. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/wal_bed.h"

#define DAMAGE_RECORDS 6

static void damage_text(int i, char out[64])
{
    (void)snprintf(out, 64, "record number %d with some data", i);
}

/* Reads all records. Returns the set of their numbers, with a bit for each number. */
static unsigned damage_read(struct bed *bed)
{
    struct br_wal_found found;
    char got[256], expected[64];
    unsigned set = 0;
    while (bed_read_from(bed->queue, &found, got, sizeof got)) {
        assert_true(found.number >= 1 && found.number <= DAMAGE_RECORDS);
        damage_text((int)found.number, expected);
        assert_string_equal(got, expected);
        assert_int_equal(set & 1u << found.number, 0);
        set |= 1u << found.number;
    }
    return set;
}

static size_t damage_file(const struct bed *bed, char *path, size_t size, uint8_t *ret_data,
                          size_t cap)
{
    (void)snprintf(path, size, "%s/00000001.wal", bed->directory);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, ret_data, cap);
    close(fd);
    assert_true(n > 0 && (size_t)n < cap);
    return (size_t)n;
}

static void damage_put(const char *path, const uint8_t *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    close(fd);
}

static unsigned count_files(const char *directory, const char *name)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    DIR *dir = opendir(path);
    unsigned n = 0;
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n > 2 ? n - 2 : 0;
}

/* Removes all files of a directory. */
static void remove_files(const char *directory)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
}

static void damage_clear(const struct bed *bed)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/quarantine", bed->directory);
    remove_files(path);
    remove_files(bed->directory);
}

/* If a byte of a file is changed, at most the frame that contains it becomes unreadable. The
 * damaged frame is not removed from the file. */
static void change_bytes(enum br_wal_sync_mode sync, size_t step)
{
    struct bed bed;
    static uint8_t data[65536];
    char path[400], text[64];
    bed_begin(&bed, sync);
    for (int i = 1; i <= DAMAGE_RECORDS; i++) {
        damage_text(i, text);
        assert_int_equal(bed_append(&bed, text, true), 0);
    }
    br_wal_close(bed.wal);
    size_t len = damage_file(&bed, path, sizeof path, data, sizeof data);
    unsigned all = (2u << DAMAGE_RECORDS) - 2;
    for (size_t at = WAL_SEGMENT_HEADER; at < len; at += step) {
        damage_clear(&bed);
        data[at] ^= 0x40;
        damage_put(path, data, len);
        data[at] ^= 0x40;
        bed_open(&bed);
        unsigned missing = all & ~damage_read(&bed);
        assert_true((missing & (missing - 1)) == 0);
        assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 1);
        assert_int_equal(count_files(bed.directory, "quarantine"), 1);
        assert_int_equal(bed.queue->n_unread, 0);
        uint64_t number;
        assert_int_equal(bed_append_to(&bed, bed.queue, "new", 3, true, &number), 0);
        assert_true(number >= DAMAGE_RECORDS);
        br_wal_close(bed.wal);
    }
    damage_clear(&bed);
    bed_open(&bed);
    bed_end(&bed);
}

static void every_changed_byte_costs_one_record_at_most(void **state)
{
    (void)state;
    change_bytes(BR_WAL_INTERVAL, 1);
}

/* With `sync: always`, the log writes groups of records, each of which ends with padding. Most
 * changes of the padding have no effect. */
static void changed_bytes_in_padded_groups_cost_one_record_at_most(void **state)
{
    (void)state;
    change_bytes(BR_WAL_ALWAYS, 23);
}

/* Groups of records that are synced before their answers begin at multiples of WAL_BLOCK. */
static void synced_groups_are_aligned(void **state)
{
    (void)state;
    struct bed bed;
    static char big[100000], got[sizeof big + 1];
    struct br_wal_found found;
    memset(big, 'x', sizeof big);
    bed_begin(&bed, BR_WAL_ALWAYS);
    for (size_t len = 1; len < sizeof big; len = len * 3 + 1) {
        assert_int_equal(bed_append_to(&bed, bed.queue, big, len, false, NULL), 0);
        assert_int_equal(bed.wal->at % WAL_BLOCK, 0);
        assert_int_equal(br_wal_stats(bed.wal).bytes, bed.wal->at);
        /* if only marks are written, the page cache is used */
        br_wal_done(bed.queue, 1000, 1, 0, 0);
        assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
        assert_int_equal(bed.wal->at % WAL_BLOCK, 0);
    }
    bed_restart(&bed);
    for (size_t len = 1; len < sizeof big; len = len * 3 + 1) {
        assert_true(bed_read_from(bed.queue, &found, got, sizeof got));
        assert_int_equal(found.data_len, len);
        assert_memory_equal(got, big, len);
    }
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
    bed_end(&bed);
}

/* A file system may refuse direct writes when the file is opened, or at the first write. In both
 * cases, the log writes to the page cache instead. */
static void without_direct_writes_the_page_cache_is_used(void **state)
{
    (void)state;
    for (int at_open = 0; at_open < 2; at_open++) {
        struct bed bed;
        bed_begin(&bed, BR_WAL_ALWAYS);
        disk.refuses_direct = !at_open;
        disk.refuses_direct_open = at_open;
        for (int i = 0; i < 3; i++)
            assert_int_equal(bed_append(&bed, (const char *[]){"a", "b", "c"}[i], false), 0);
        assert_int_equal(bed.wal->direct_fd, -1);
        disk.refuses_direct = disk.refuses_direct_open = false;
        bed_restart(&bed);
        bed_expect(&bed, "a");
        bed_expect(&bed, "b");
        bed_expect(&bed, "c");
        bed_expect_none(&bed);
        assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
        bed_end(&bed);
    }
}

/* A segment of a newer format is refused. A damaged header does not cause the loss of records. */
static void headers_are_checked(void **state)
{
    (void)state;
    struct bed bed;
    struct br_wal *wal = NULL;
    struct br_err err = {0};
    static uint8_t data[65536];
    char path[400], text[64];
    bed_begin(&bed, BR_WAL_ALWAYS);
    damage_text(1, text);
    assert_int_equal(bed_append(&bed, text, true), 0);
    br_wal_close(bed.wal);
    size_t len = damage_file(&bed, path, sizeof path, data, sizeof data);
    data[WAL_VERSION_AT]++;
    damage_put(path, data, len);
    assert_int_equal(br_wal_open(&bed.config, &wal, &err), BR_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "has version 3 of the format"));
    data[WAL_VERSION_AT] = WAL_VERSION_LEAST;
    damage_put(path, data, len);
    bed_open(&bed);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
    bed_kill(&bed);
    data[0] ^= 1;
    damage_put(path, data, len);
    bed_open(&bed);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 1);
    assert_int_equal(damage_read(&bed), 1u << 1);
    bed_end(&bed);
}

/* If a segment is cut at any offset, all records that are complete before it can be read. */
static void every_cut_keeps_the_records_before_it(void **state)
{
    (void)state;
    struct bed bed;
    static uint8_t data[8192];
    char path[400], text[64];
    size_t ends[DAMAGE_RECORDS + 1], n_ends = 0;
    bed_begin(&bed, BR_WAL_INTERVAL);
    for (int i = 1; i <= DAMAGE_RECORDS; i++) {
        damage_text(i, text);
        assert_int_equal(bed_append(&bed, text, true), 0);
        ends[n_ends++] = bed.wal->at;
    }
    br_wal_close(bed.wal);
    size_t len = damage_file(&bed, path, sizeof path, data, sizeof data);
    for (size_t cut = WAL_SEGMENT_HEADER; cut <= len; cut++) {
        unsigned expected = 0;
        for (size_t i = 0; i < n_ends; i++)
            expected |= ends[i] <= cut ? 2u << i : 0;
        damage_clear(&bed);
        damage_put(path, data, cut);
        bed_open(&bed);
        assert_int_equal(damage_read(&bed), expected);
        assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
        br_wal_close(bed.wal);
    }
    damage_clear(&bed);
    bed_open(&bed);
    bed_end(&bed);
}

/* --- Records that end the process ------------------------------------------------------------- */

/* Restarts the log while record `number` is being processed, as if the record had ended the
 * process. */
static void die_with(struct bed *bed, uint64_t number)
{
    br_wal_process(bed->queue, 5, number);
    bed_restart(bed);
}

static void the_third_death_quarantines_the_record(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    assert_int_equal(bed_append(&bed, "two", true), 0);
    assert_int_equal(bed_append(&bed, "three", true), 0);
    die_with(&bed, 2);
    die_with(&bed, 2);
    die_with(&bed, 1);
    assert_int_equal(bed.queue->n_unread, 3);
    br_wal_process(bed.queue, 5, 2);
    /* the call with 0 ends the processing of the record, so the record does not count as
     * interrupted */
    br_wal_process(bed.queue, 5, 0);
    bed_restart(&bed);
    assert_int_equal(bed.queue->n_unread, 3);
    die_with(&bed, 2);
    assert_int_equal(bed.queue->n_unread, 2);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 1);
    assert_int_equal(count_files(bed.directory, "quarantine"), 1);
    bed_expect(&bed, "one");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    bed_end(&bed);
}

SUITE(wal_damage)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_changed_byte_costs_one_record_at_most),
        cmocka_unit_test(changed_bytes_in_padded_groups_cost_one_record_at_most),
        cmocka_unit_test(synced_groups_are_aligned),
        cmocka_unit_test(without_direct_writes_the_page_cache_is_used),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(every_cut_keeps_the_records_before_it),
        cmocka_unit_test(the_third_death_quarantines_the_record),
    };
    return RUN(tests, NULL, NULL);
}
