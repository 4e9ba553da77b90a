/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of the store: its lock, its size and age limits, damaged files, and its state after
 * a process was killed or the disk was full.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "storage/blocks.h"
#include "storage/internal.h"
#include "storage/slice.h"
#include "tests/support/items.h"
#include "tests/support/store_rig.h"
#include "tests/support/test.h"

static int setup(void **state)
{
    struct store_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    store_rig_init(rig, 0);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    store_rig_release(*state);
    free(*state);
    return 0;
}

static int write_spans(struct store_rig *rig, uint64_t first, uint32_t count)
{
    return store_rig_items(rig, BR_TRACES, first, count);
}

static void must_write(struct store_rig *rig, uint64_t first, uint32_t count)
{
    if (write_spans(rig, first, count))
        fail_msg("%s", rig->err.text);
}

/* Returns the sum of the values of all samples. The value of sample n is n. */
static int64_t read_sum(struct store_rig *rig)
{
    struct br_sample_filter all = {.n_matchers = 0};
    struct br_store_query *query = store_rig_ask(rig);
    struct br_flame flame;
    assert_int_equal(br_flame_init(&flame, 1u << 20), 0);
    assert_int_equal(br_store_flame(query, &all, &flame, &rig->err), 0);
    assert_null(query->cut);
    store_rig_answered(rig);
    br_flame_total(&flame);
    int64_t sum = flame.nodes[0].total[0];
    br_flame_release(&flame);
    return sum;
}

/* Returns the sum of the samples from `from` up to, but not including, `until`. */
static int64_t sum_of(uint64_t from, uint64_t until)
{
    return (int64_t)((until * (until - 1) - from * (from - 1)) / 2);
}

/* --- Names ----------------------------------------------------------------------------------- */

/* Writes one span for each of `count` names. The names contain consecutive numbers, beginning with
 * `first`. */
static void must_write_names(struct store_rig *rig, uint32_t first, uint32_t count)
{
    const uint8_t id[16] = {1};
    struct wire w = {0};
    size_t resource = wire_open(&w, 1), scope = wire_open(&w, 2);
    for (uint32_t i = first; i < first + count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%u", i);
        size_t span = wire_open(&w, 2);
        wire_len(&w, 1, id, 16);
        wire_len(&w, 2, id, 8);
        wire_str(&w, 5, name);
        wire_i64(&w, 7, 1767225600000000000u);
        wire_i64(&w, 8, 1767225600000000001u);
        wire_close(&w, span);
    }
    wire_close(&w, scope);
    wire_close(&w, resource);
    if (store_rig_write(rig, BR_TRACES, &w))
        fail_msg("%s", rig->err.text);
    wire_free(&w);
}

/* A partition that already has a quarter of the maximum number of names is not reopened. If the
 * names of a write do not fit into the open partition, the write goes to the next one. */
static void test_the_number_of_names_is_limited(void **state)
{
    struct store_rig *rig = *state;
    const uint32_t few = BR_OPERATIONS_MAX / 4 - 2, many = BR_OPERATIONS_MAX - 10;
    must_write_names(rig, 0, few);
    assert_int_equal(store_rig_usage(rig).n_partitions, 1);
    must_write_names(rig, few, many);
    assert_int_equal(store_rig_usage(rig).n_partitions, 2);
    for (uint32_t i = 0; i < 3; i++) {
        must_write_names(rig, few + many + i, 1);
        assert_int_equal(store_rig_usage(rig).n_partitions, 3);
    }
    assert_int_equal(store_rig_usage(rig).n_spans, few + many + 3);
    assert_int_equal(store_rig_usage(rig).n_damaged, 0);
}

/* --- Slices ---------------------------------------------------------------------------------- */

static bool is_stopped_now(void *arg)
{
    unsigned *looks_left = arg;
    return *looks_left == 0 || --*looks_left == 0;
}

static int read_slice(struct store_rig *rig, unsigned *looks_left, size_t *ret_bytes)
{
    static char data[65536];
    struct br_slice_reader *slice;
    size_t n = 1;
    int rc = br_slice_begin_store(rig->store, 0, UINT64_MAX, &slice, &rig->err);
    assert_int_equal(rc, 0);
    br_slice_stop_when(slice, is_stopped_now, looks_left);
    for (*ret_bytes = 0; !rc && n; *ret_bytes += n)
        rc = br_slice_read(slice, data, sizeof data, &n, &rig->err);
    br_slice_end(slice);
    return rc;
}

static bool is_scratch(const struct dirent *entry)
{
    return strncmp(entry->d_name, BR_SLICE_SCRATCH, strlen(BR_SLICE_SCRATCH)) == 0;
}

/* If reading a slice is stopped in the middle of a partition, the slice does not contain any data
 * of this partition. */
static void test_slice_stops(void **state)
{
    struct store_rig *rig = *state;
    struct dirent *entry;
    unsigned always = UINT_MAX, looks;
    size_t bytes;
    must_write(rig, 0, 20000);
    assert_int_equal(read_slice(rig, &always, &bytes), 0);
    assert_true(bytes > 65536);
    looks = UINT_MAX - always;
    assert_true(looks >= 2); /* the stop is checked at the beginning and again during the work */
    for (unsigned countdown = 1; countdown <= looks; countdown++) {
        unsigned counted = countdown;
        assert_int_equal(read_slice(rig, &counted, &bytes), BR_ETIMEOUT);
        assert_int_equal(bytes, 0);
    }
    DIR *dir = opendir(rig->directory);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        assert_false(is_scratch(entry));
    (void)closedir(dir);
    must_write(rig, 20000, 10);
}

/* --- The lock of the directory --------------------------------------------------------------- */

static void test_the_directory_is_locked(void **state)
{
    struct store_rig *rig = *state;
    char wanted[64];
    struct br_store *other = br_store_get(&rig->host, "other");
    (void)snprintf(wanted, sizeof wanted, "is in use by process %ld", (long)getpid());
    assert_int_equal(br_store_open(other, &rig->config, &rig->log, &rig->err), BR_EINVAL);
    assert_non_null(strstr(rig->err.text, wanted));
    br_store_put(&rig->host, other);
    /* A second attempt to open the same store does not close it. */
    assert_int_equal(br_store_open(rig->store, &rig->config, &rig->log, &rig->err), 0);
    must_write(rig, 0, 10);
}

/* --- Retention ------------------------------------------------------------------------------- */

/* The size of the database log of a sealed partition is not added to the size of the partition. */
static void test_usage_in_bytes(void **state)
{
    struct store_rig *rig = *state;
    struct wire w = {0};
    char path[512];
    uint64_t bytes = 0;
    rig->config.partition_rows = 100;
    assert_int_equal(store_rig_reopen(rig), 0);
    for (uint64_t first = 0; first < 400; first += 100) {
        items_traces(&w, first, 100, 2);
        assert_int_equal(store_rig_write(rig, BR_TRACES, &w), 0);
    }
    assert_int_equal(br_store_write(rig->store, NULL, 0, &rig->err), 0);
    wire_free(&w);
    for (unsigned i = 1; i <= 4; i++) {
        struct stat info;
        (void)snprintf(path, sizeof path, "%s/partition-%08x.db", rig->directory, i);
        assert_int_equal(stat(path, &info), 0);
        bytes += (uint64_t)info.st_size;
    }
    assert_int_equal(store_rig_usage(rig).bytes, bytes);
}

static void test_max_bytes(void **state)
{
    struct store_rig *rig = *state;
    uint8_t *seen = calloc(1, 200000);
    rig->config.max_bytes = 1 << 20;
    assert_int_equal(store_rig_reopen(rig), 0);
    uint64_t n = 0;
    for (; n < 200000; n += 2000) {
        must_write(rig, n, 2000);
        assert_true(store_rig_usage(rig).bytes <= rig->config.max_bytes);
    }
    struct br_store_usage usage = store_rig_usage(rig);
    assert_true(usage.n_spans < n);
    assert_int_equal(store_rig_files(rig, ".db"), usage.n_partitions);
    /* Only the newest spans remain, and there are no gaps between them. */
    store_rig_read(rig, seen);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(seen[i], i >= n - usage.n_spans);
    free(seen);
}

/* Sets the times of partition `number` to `hours` hours before the current time of the clock. */
static void write_hours_ago(struct store_rig *rig, unsigned number, int hours)
{
    char path[128], statement[128];
    struct timespec now;
    sqlite3 *db;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
    (void)snprintf(path, sizeof path, "%s/partition-%08x.db", rig->directory, number);
    (void)snprintf(statement, sizeof statement, "UPDATE totals SET written_ns = %lld",
                   ((long long)now.tv_sec - 3600LL * hours) * 1000000000);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, statement, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Writes three partitions of 100 spans each, whose ages in hours are `hours`. Returns the number of
 * spans that remain if the retention is one day. */
static uint64_t n_spans_kept(struct store_rig *rig, const int hours[3])
{
    rig->config.partition_rows = 100;
    assert_int_equal(store_rig_reopen(rig), 0);
    for (unsigned i = 0; i < 3; i++)
        must_write(rig, 100 * i, 100);
    assert_int_equal(store_rig_files(rig, ".db"), 3);
    store_rig_close(rig);
    for (unsigned i = 0; i < 3; i++)
        write_hours_ago(rig, i + 1, hours[i]);
    rig->config.max_age_ns = 24 * 3600 * UINT64_C(1000000000);
    assert_int_equal(store_rig_reopen(rig), 0);
    assert_int_equal(br_store_write(rig->store, NULL, 0, &rig->err), 0);
    return store_rig_usage(rig).n_spans;
}

static void test_old_partitions_are_deleted(void **state)
{
    assert_int_equal(n_spans_kept(*state, (const int[]){30, 25, 1}), 100);
}

/* All data is two days old. Either the clock is two days ahead, or the process was stopped for two
 * days. The store cannot distinguish these cases, and keeps the data. */
static void test_a_clock_ahead_removes_nothing(void **state)
{
    assert_int_equal(n_spans_kept(*state, (const int[]){60, 50, 48}), 300);
}

/* All data is two days old. Data that is one day older than the newest data is deleted
 * nevertheless. */
static void test_a_clock_ahead_removes_the_oldest(void **state)
{
    assert_int_equal(n_spans_kept(*state, (const int[]){80, 50, 48}), 200);
}

/* The clock of the machine starts in 1970, before the times of the data. */
static void test_a_clock_behind_removes_nothing(void **state)
{
    assert_int_equal(n_spans_kept(*state, (const int[]){-490000, -490000, -490000}), 300);
}

static void test_max_age(void **state)
{
    struct store_rig *rig = *state;
    must_write(rig, 0, 100);
    assert_int_equal(store_rig_usage(rig).n_spans, 100);
    rig->config.max_age_ns = 1;
    rig->config.partition_age_ns = 1;
    assert_int_equal(store_rig_reopen(rig), 0);
    assert_int_equal(br_store_write(rig->store, NULL, 0, &rig->err), 0);
    assert_int_equal(store_rig_usage(rig).n_spans, 0);
    assert_int_equal(store_rig_files(rig, ".db"), 0);
    /* If a partition is deleted during a query, the query continues to read it. */
    rig->config.max_age_ns = 0;
    assert_int_equal(store_rig_reopen(rig), 0);
    must_write(rig, 0, 100);
    uint8_t seen[100] = {0};
    struct br_span_filter all = {.order = BR_SPANS_NEWEST};
    struct br_store_query *query = store_rig_ask(rig);
    assert_int_equal(br_store_spans(query, &all, store_rig_count, seen, &rig->err), 0);
    rig->config.max_bytes = 1;
    br_store_put(&rig->host, NULL);
    must_write(rig, 100, 100);
    assert_int_equal(br_store_spans(query, &all, store_rig_count, seen, &rig->err), 0);
    for (size_t i = 0; i < BR_COUNT(seen); i++)
        assert_int_equal(seen[i], 2);
    store_rig_answered(rig);
}

/* --- Damage ---------------------------------------------------------------------------------- */

static void damage(const struct store_rig *rig, const char *name, off_t at)
{
    char path[256], noise[4096];
    store_rig_path(rig, name, path);
    memset(noise, 0xa5, sizeof noise);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, noise, sizeof noise, at), (ssize_t)sizeof noise);
    (void)close(fd);
}

/* In turn, each page of a partition is damaged, one page at a time. The other two partitions are
 * still read, and the results are correct. */
static void test_damaged_spans(void **state)
{
    struct store_rig *rig = *state;
    unsigned n_noticed = 0;
    for (off_t at = 0; at < 20; at++) {
        uint8_t seen[3000] = {0};
        rig->config.partition_rows = 1000;
        store_rig_release(rig);
        store_rig_init(rig, 1000);
        for (uint64_t n = 0; n < 3000; n += 500)
            must_write(rig, n, 500);
        assert_int_equal(store_rig_usage(rig).n_partitions, 3);
        br_store_put(&rig->host, rig->store);
        damage(rig, "partition-00000002.db", at * 8192);
        rig->store = br_store_get(&rig->host, "store");
        assert_int_equal(br_store_open(rig->store, &rig->config, &rig->log, &rig->err), 0);
        store_rig_read(rig, seen);
        for (size_t i = 0; i < 3000; i++)
            if (i < 1000 || i >= 2000)
                assert_int_equal(seen[i], 1);
            else
                assert_true(seen[i] <= 1);
        n_noticed += store_rig_usage(rig).n_damaged != 0;
        assert_int_equal(store_rig_usage(rig).n_damaged, store_rig_files(rig, ".db.damaged"));
        /* The store still accepts writes. */
        must_write(rig, 3000, 100);
    }
    assert_true(n_noticed > 2);
}

static void copy_file(const char *from, const char *into)
{
    static char data[4 << 20];
    int fd = open(from, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t len = read(fd, data, sizeof data);
    assert_true(len > 0 && (size_t)len < sizeof data);
    (void)close(fd);
    fd = open(into, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, (size_t)len), len);
    (void)close(fd);
}

/* Like test_damaged, for a partition of samples, which contains sums of chunks. The result
 * contains either all of its samples or none. */
static void test_damaged_samples(void **state)
{
    struct store_rig *rig = *state;
    char path[256], kept[256], damaged[256];
    uint64_t n = 0, begins[4] = {0};
    unsigned n_noticed = 0;
    struct stat info;
    rig->config.partition_rows = 200;
    assert_int_equal(store_rig_reopen(rig), 0);
    while (store_rig_usage(rig).n_partitions < 4) {
        begins[store_rig_usage(rig).n_partitions] = n;
        assert_int_equal(store_rig_items(rig, BR_PROFILES, n, 20), 0);
        n += 20;
    }
    br_store_put(&rig->host, rig->store);
    store_rig_path(rig, "partition-00000002.db", path);
    store_rig_path(rig, "partition-00000002.db.damaged", damaged);
    store_rig_path(rig, "kept", kept);
    copy_file(path, kept);
    assert_int_equal(stat(kept, &info), 0);
    for (off_t at = 0; at < info.st_size; at += 8192) {
        copy_file(kept, path);
        damage(rig, "partition-00000002.db", at);
        rig->store = br_store_get(&rig->host, "store");
        assert_int_equal(br_store_open(rig->store, &rig->config, &rig->log, &rig->err), 0);
        int64_t all = sum_of(0, n), sum = read_sum(rig);
        bool noticed = store_rig_usage(rig).n_damaged != 0;
        assert_int_equal(sum, all - (noticed ? sum_of(begins[1], begins[2]) : 0));
        n_noticed += noticed;
        br_store_put(&rig->host, rig->store);
        (void)unlink(damaged);
    }
    assert_true(n_noticed > 2);
    rig->store = br_store_get(&rig->host, "store");
}

/* --- Killed processes and full disks --------------------------------------------------------- */

/* Writes data in a child process, which reports each acknowledged write. Kills the child some time
 * after `after_writes` acknowledged writes. */
static uint64_t write_until_killed(struct store_rig *rig, enum br_signal signal, uint64_t first,
                                   unsigned after_writes, long after_us)
{
    int ends[2];
    uint64_t acknowledged = first, number;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        (void)close(ends[0]);
        rig->store = br_store_get(&rig->host, "child");
        if (br_store_open(rig->store, &rig->config, &rig->log, &rig->err))
            _exit(1);
        for (uint64_t n = first;; n += 50)
            if (store_rig_items(rig, signal, n, 50) ||
                write(ends[1], &(uint64_t){n + 50}, sizeof n) != sizeof n)
                _exit(2);
    }
    (void)close(ends[1]);
    /* The child may be killed at any point of its work. */
    for (unsigned i = 0; i < after_writes; i++) {
        assert_int_equal(read(ends[0], &number, sizeof number), sizeof number);
        acknowledged = number;
    }
    struct timespec pause = {.tv_nsec = after_us * 1000};
    (void)nanosleep(&pause, NULL);
    assert_int_equal(kill(child, SIGKILL), 0);
    while (read(ends[0], &number, sizeof number) == sizeof number)
        acknowledged = number;
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return acknowledged;
}

/* Every acknowledged write is stored exactly once. A write without acknowledgement is stored
 * completely or not at all. */
static void test_killed_process(void **state)
{
    struct store_rig *rig = *state;
    uint64_t next = 0;
    br_store_put(&rig->host, rig->store);
    rig->config.partition_rows = 2000;
    for (long round = 0; round < 12; round++) {
        uint64_t acknowledged = write_until_killed(rig, BR_TRACES, next, 1, 500 + 1700 * round);
        rig->store = br_store_get(&rig->host, "store");
        if (br_store_open(rig->store, &rig->config, &rig->log, &rig->err))
            fail_msg("%s", rig->err.text);
        struct br_store_usage usage = store_rig_usage(rig);
        assert_int_equal(usage.n_damaged, 0);
        uint8_t *seen = calloc(1, acknowledged + 100);
        store_rig_read(rig, seen);
        for (uint64_t i = 0; i < acknowledged; i++)
            assert_int_equal(seen[i], 1);
        for (uint64_t i = 1; i < 50; i++)
            assert_int_equal(seen[acknowledged + i], seen[acknowledged]);
        next = acknowledged + (seen[acknowledged] ? 50 : 0);
        assert_int_equal(usage.n_spans, next);
        free(seen);
        br_store_put(&rig->host, rig->store);
    }
    rig->store = br_store_get(&rig->host, "store");
}

/* Like test_killed_process, for samples. The child is killed at about the 64th write, when chunks
 * are summed. */
static void test_killed_process_with_samples(void **state)
{
    struct store_rig *rig = *state;
    uint64_t next = 0;
    br_store_put(&rig->host, rig->store);
    for (unsigned round = 0; round < 6; round++) {
        uint64_t acknowledged =
            write_until_killed(rig, BR_PROFILES, next, 61 + round, 100 + 300 * (long)round);
        rig->store = br_store_get(&rig->host, "store");
        if (br_store_open(rig->store, &rig->config, &rig->log, &rig->err))
            fail_msg("%s", rig->err.text);
        struct br_store_usage usage = store_rig_usage(rig);
        assert_int_equal(usage.n_damaged, 0);
        next = usage.n_samples;
        assert_true(next == acknowledged || next == acknowledged + 50);
        assert_int_equal(read_sum(rig), sum_of(0, next));
        br_store_put(&rig->host, rig->store);
    }
    rig->store = br_store_get(&rig->host, "store");
}

/* While files cannot grow (RLIMIT_FSIZE), no data is lost and no write is stored in part. Once
 * they can grow, writes succeed again. */
static void test_full_disk(void **state)
{
    struct store_rig *rig = *state;
    struct rlimit before, limit;
    uint8_t *seen = calloc(1, 100000);
    uint64_t n = 0;
    (void)signal(SIGXFSZ, SIG_IGN);
    must_write(rig, 0, 500);
    n = 500;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){400 << 10, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    /* SQLite distinguishes a full disk from a failed write. RLIMIT_FSIZE causes failed writes.
     * Once the store stops using a log, its space can be used again, until the database itself
     * is full. */
    for (int refused = 0; refused < 5 && n < 90000;) {
        int rc = write_spans(rig, n, 500);
        assert_true(rc == 0 || rc == BR_EFULL || rc == BR_EIO);
        refused = rc ? refused + 1 : 0;
        n += rc ? 0 : 500;
    }
    assert_true(n < 90000);
    store_rig_read(rig, seen);
    for (uint64_t i = 0; i < n + 500; i++)
        assert_int_equal(seen[i], i < n);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    must_write(rig, n, 500);
    n += 500;
    memset(seen, 0, 100000);
    store_rig_read(rig, seen);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(store_rig_usage(rig).n_damaged, 0);
    free(seen);
}

/* Like test_full_disk, for samples and their sums. */
static void test_full_disk_with_samples(void **state)
{
    struct store_rig *rig = *state;
    struct rlimit before, limit;
    uint64_t n = 0;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){400 << 10, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int refused = 0; refused < 5 && n < 900000;) {
        int rc = store_rig_items(rig, BR_PROFILES, n, 100);
        assert_true(rc == 0 || rc == BR_EFULL || rc == BR_EIO);
        refused = rc ? refused + 1 : 0;
        n += rc ? 0 : 100;
    }
    assert_true(n > 6400 && n < 900000);
    assert_int_equal(read_sum(rig), sum_of(0, n));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (unsigned i = 0; i < 70; i++, n += 100)
        assert_int_equal(store_rig_items(rig, BR_PROFILES, n, 100), 0);
    assert_int_equal(read_sum(rig), sum_of(0, n));
    assert_int_equal(store_rig_usage(rig).n_damaged, 0);
}

/* --- Limits of a query ----------------------------------------------------------------------- */

static bool count_spans(const struct br_stored_span *span, void *arg)
{
    (void)span;
    ++*(size_t *)arg;
    return true;
}

static void test_limits_of_a_query(void **state)
{
    struct store_rig *rig = *state;
    struct br_span_filter all = {.order = BR_SPANS_NEWEST};
    size_t count = 0;
    for (uint64_t n = 0; n < 20000; n += 1000)
        must_write(rig, n, 1000);
    struct br_store_query *query = store_rig_ask(rig);
    query->deadline_ms = 1; /* passed long ago */
    assert_int_equal(br_store_spans(query, &all, count_spans, &count, &rig->err), 0);
    assert_string_equal(query->cut, "it takes too long");
    assert_int_equal(count, 0);
    store_rig_answered(rig);
    query = store_rig_ask(rig);
    query->max_bytes = 10000;
    assert_int_equal(br_store_spans(query, &all, count_spans, &count, &rig->err), 0);
    assert_string_equal(query->cut, "it takes too much memory");
    assert_true(count < 20000);
    store_rig_answered(rig);
}

SUITE(store_life)
{
    const struct CMUnitTest tests[] = {TEST(test_the_number_of_names_is_limited),
                                       TEST(test_slice_stops),
                                       TEST(test_the_directory_is_locked),
                                       TEST(test_usage_in_bytes),
                                       TEST(test_max_bytes),
                                       TEST(test_max_age),
                                       TEST(test_old_partitions_are_deleted),
                                       TEST(test_a_clock_ahead_removes_nothing),
                                       TEST(test_a_clock_ahead_removes_the_oldest),
                                       TEST(test_a_clock_behind_removes_nothing),
                                       TEST(test_damaged_spans),
                                       TEST(test_damaged_samples),
                                       TEST(test_killed_process),
                                       TEST(test_killed_process_with_samples),
                                       TEST(test_full_disk),
                                       TEST(test_full_disk_with_samples),
                                       TEST(test_limits_of_a_query)};
    return RUN(tests, NULL, NULL);
}
