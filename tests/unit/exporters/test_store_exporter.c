/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the store exporter: which results the senders get, and at which time. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "exporters/store/size.h"
#include "storage/store.h"
#include "tests/support/fake_host.h"
#include "tests/support/items.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_store_exporter;

static char directory[64], yaml[128];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/test_store_exporter.XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    (void)snprintf(yaml, sizeof yaml, "{directory: %s/deep/er}", directory);
    return 0;
}

static int teardown(void **state)
{
    char command[96];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: rejected */
    } cases[] = {{"2GiB", UINT64_C(2) << 30},
                 {"500MB", 500000000},
                 {"1048576", 1048576},
                 {"1 mib", 1048576},
                 {"3tb", UINT64_C(3000000000000)},
                 {"1048575", 0},
                 {"1KiB", 0},
                 {"", 0},
                 {"GiB", 0},
                 {"-1GiB", 0},
                 {"2GiBs", 0},
                 {"1.5GiB", 0},
                 {"99999999999999999999", 0},
                 {"9999999999TiB", 0}};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        uint64_t bytes = 0;
        assert_int_equal(store_size_parse(cases[i].text, &bytes), cases[i].bytes != 0);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void test_config(void **state)
{
    (void)state;
    assert_string_equal(rig_errors(&br_store_exporter, "{}"), "");
    assert_non_null(strstr(rig_errors(&br_store_exporter, "{retention: {max_bytes: many}}"),
                           "must be a size of at least 1MiB"));
}

/* A directory that cannot be created is a startup error. */
static void test_no_directory(void **state)
{
    (void)state;
    assert_non_null(strstr(rig_start_error(&br_store_exporter, "{directory: /dev/null/a}"),
                           "cannot create /dev/null/a"));
}

static void test_written(void **state)
{
    struct wire w = {0};
    struct stat info;
    char path[128];
    (void)state;
    struct rig *r = rig_new(&br_store_exporter, yaml);
    items_traces(&w, 0, 100, 2);
    rig_send(r, rig_item_of(r, BR_TRACES, &w));
    assert_int_equal(r->outcome.verdict, BR_DONE);
    items_profiles(&w, 0, 60, 2);
    rig_send(r, rig_item_of(r, BR_PROFILES, &w));
    assert_int_equal(r->outcome.verdict, BR_DONE);
    /* Stored data is accessible to the owner only. */
    (void)snprintf(path, sizeof path, "%s/deep/er/partition-00000001.db", directory);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    (void)snprintf(path, sizeof path, "%s/deep", directory);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    rig_free(r);
}

/* On a full disk the sender is asked to retry, and the retry is accepted once there is space. */
static void test_full(void **state)
{
    struct wire w = {0};
    struct rlimit before, limit;
    (void)state;
    struct rig *r = rig_new(&br_store_exporter, yaml);
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    items_traces(&w, 0, 100, 1);
    rig_send(r, rig_item_of(r, BR_TRACES, &w));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(r->outcome.verdict, BR_RETRY);
    assert_true(r->outcome.delay_ms > 0);
    assert_non_null(strstr(r->outcome.text, "store: cannot write: "));
    items_traces(&w, 0, 100, 1);
    rig_send(r, rig_item_of(r, BR_TRACES, &w));
    assert_int_equal(r->outcome.verdict, BR_DONE);
    rig_free(r);
}

struct ended {
    unsigned n_done, n_retry, n_others;
};

static void on_done(struct br_item *item, void *arg)
{
    struct ended *ended = arg;
    ended->n_done += item->outcome.verdict == BR_DONE;
    ended->n_retry += item->outcome.verdict == BR_RETRY;
    ended->n_others += item->outcome.verdict == BR_REJECT;
}

static void consume(struct fake_host *h, struct br_node *node, uint64_t first, struct ended *ended)
{
    struct br_item *item = items_new(&h->host, BR_TRACES, first, 10);
    assert_non_null(item);
    item->done = on_done;
    item->done_arg = ended;
    br_store_exporter.consume(node, item);
    (void)br_host_iterate(&h->host);
}

/* Items finish only after a thread has written them. Items that arrive during a write are written
 * next. */
static void test_thread(void **state)
{
    struct fake_host *h = fake_host_new();
    struct br_arena arena = {0};
    struct ended ended = {0};
    bool drained = false;
    (void)state;
    h->threads = true;
    struct br_node node = rig_node(&br_store_exporter, yaml, &h->host, &arena, &drained);
    rig_node_start(&node);
    for (uint64_t i = 0; i < 5; i++)
        consume(h, &node, 10 * i, &ended);
    assert_int_equal(ended.n_done, 0);
    assert_int_equal(h->n_works, 1);
    (void)fake_host_work(h);
    (void)br_host_iterate(&h->host);
    assert_int_equal(ended.n_done, 1);
    assert_int_equal(h->n_works, 1);
    node.draining = true;
    br_store_exporter.drain(&node);
    assert_false(drained);
    (void)fake_host_work(h);
    (void)br_host_iterate(&h->host);
    assert_int_equal(ended.n_done, 5);
    assert_true(drained);
    br_store_exporter.destroy(&node);
    br_free(node.state);
    br_arena_release(&arena);
    fake_host_free(h);
}

/* Items of a write that has not begun are returned when the node is destroyed. */
static void test_cancelled(void **state)
{
    struct fake_host *h = fake_host_new();
    struct br_arena arena = {0};
    struct ended ended = {0};
    (void)state;
    h->threads = true;
    struct br_node node = rig_node(&br_store_exporter, yaml, &h->host, &arena, NULL);
    rig_node_start(&node);
    for (uint64_t i = 0; i < 3; i++)
        consume(h, &node, 10 * i, &ended);
    br_store_exporter.destroy(&node);
    br_free(node.state);
    (void)br_host_iterate(&h->host);
    assert_int_equal(ended.n_retry, 3);
    (void)fake_host_work(h); /* `done` is called although the node was destroyed */
    (void)br_host_iterate(&h->host);
    assert_int_equal(ended.n_done + ended.n_others, 0);
    br_arena_release(&arena);
    fake_host_free(h);
}

SUITE(store_exporter)
{
    const struct CMUnitTest tests[] = {
        TEST(test_sizes), TEST(test_config), TEST(test_no_directory), TEST(test_written),
        TEST(test_full),  TEST(test_thread), TEST(test_cancelled)};
    return RUN(tests, NULL, NULL);
}
