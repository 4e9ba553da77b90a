/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads text formats; protobuf-c reads the results back. Expected values are from the tests of
 * grafana/pyroscope (pkg/og/convert, pkg/og/structs/transporttrie, pkg/og/storage/tree), whose
 * numbers are in units of its period. Other values are multiples of 1e9 / rate, or the totals that
 * py-spy printed for its files.
 */
#include "base/mem.h"
#include "base/str.h"
#include "core/host.h"
#include "profile/profile.h"
#include "tests/support/corpus.h"
#include "tests/support/fault.h"
#include "tests/support/file.h"
#include "tests/support/mem_meter.h"
#include "tests/support/profile_text.h"
#include "tests/support/test.h"

static struct br_host host;

static int setup(void **state)
{
    static const struct br_host_ops ops = {0};
    (void)state;
    return br_host_init(&host, &ops, br_pool_new(1 << 20));
}

static int teardown(void **state)
{
    (void)state;
    br_host_release(&host);
    br_pool_free(host.pool);
    return 0;
}

/* --- Reading and comparing -------------------------------------------------------------------- */

static char *read_text(br_profile_read_fn *read, const struct br_profile_source *s, int *ret_rc)
{
    struct br_build *b = br_build_new(&host, 16 << 20);
    struct br_arena arena = {0};
    struct br_err err = {0};
    char *text = NULL;
    assert_non_null(b);
    *ret_rc = read(b, s, &arena, &err);
    if (*ret_rc == 0) {
        struct br_item *item = br_item_new(&host, BR_PROFILES);
        assert_non_null(item);
        assert_int_equal(br_build_take(b, item), 0);
        text = profile_text(item);
        br_item_free(item);
    } else {
        assert_int_equal(err.code, *ret_rc);
        text = strdup(err.text);
    }
    assert_non_null(text);
    br_arena_release(&arena);
    br_build_free(b);
    return text;
}

/* Asserts that the result of reading, or the error message, is `want`. */
static void reads(br_profile_read_fn *read, struct br_profile_source s, const void *data,
                  size_t len, const char *want)
{
    int rc;
    s.data = data;
    s.len = len;
    char *text = read_text(read, &s, &rc);
    assert_string_equal(text, want);
    free(text);
}

static void reads_text(br_profile_read_fn *read, struct br_profile_source s, const char *data,
                       const char *want)
{
    reads(read, s, data, strlen(data), want);
}

static void rejects(br_profile_read_fn *read, const void *data, size_t len, const char *want)
{
    struct br_profile_source s = {.data = data, .len = len};
    int rc;
    char *text = read_text(read, &s, &rc);
    assert_int_equal(rc, BR_EINVAL);
    assert_string_equal(text, want);
    free(text);
}

#define CPU(ns) "profile cpu nanoseconds period cpu nanoseconds " ns " time 0 duration 0\n"
#define HEAD "resource\nscope\n"

static const struct br_profile_source plain;

/* --- Folded text and lines -------------------------------------------------------------------- */

static void test_folded(void **state)
{
    struct br_profile_source s = {0};
    (void)state;
    /* from parser_test.go; a count stands for 10 ms, because the sample rate is 100 Hz */
    reads_text(br_folded_read, s, "foo;bar 10\nfoo;baz 20\n",
               HEAD CPU("10000000") "foo;bar 100000000\nfoo;baz 200000000\n");
    s = (struct br_profile_source){.sample_rate = 99, .start_ns = 5, .end_ns = 12};
    reads_text(br_folded_read, s, "a 2",
               HEAD "profile cpu nanoseconds period cpu nanoseconds 10101010 time 5 duration 7\n"
                    "a 20202020\n");
    s.end_ns = 4; /* the end is before the start, so the duration is 0 */
    s.type = "wall";
    reads_text(br_folded_read, s, "a 2",
               HEAD "profile wall nanoseconds period cpu nanoseconds 10101010 time 5 duration 0\n"
                    "a 20202020\n");
    s = (struct br_profile_source){.type = "alloc_space", .sample_rate = 99};
    reads_text(br_folded_read, s, "a 2", HEAD "profile alloc_space bytes time 0 duration 0\na 2\n");
    s.type = "inuse_objects";
    reads_text(br_folded_read, s, "a 2",
               HEAD "profile inuse_objects count time 0 duration 0\na 2\n");
    s.type = "delay";
    reads_text(br_folded_read, s, "a 2", HEAD "profile delay nanoseconds time 0 duration 0\na 2\n");
    s = (struct br_profile_source){.units = "nanoseconds"};
    reads_text(br_folded_read, s, "a 2", HEAD CPU("10000000") "a 2\n");
    s = (struct br_profile_source){.type = "samples", .units = "count", .sample_rate = 99};
    reads_text(br_folded_read, s, "a 2", HEAD "profile samples count time 0 duration 0\na 2\n");
}

static void test_folded_lines(void **state)
{
    (void)state;
    /* equal stacks are merged; empty lines and lines without a space are skipped */
    reads_text(br_folded_read, plain, "a;b 1\r\n\r\n\na 1\na;b 2\r\nnothing\na;c 0\n",
               HEAD CPU("10000000") "a 10000000\na;b 30000000\n");
    /* Values may have fractions. They are rounded so that the sum of all values stays correct. In
     * nanoseconds, they are exact. */
    reads_text(br_folded_read, plain, "a 12.5\nb 0.25\nc 0.25\nd 0.\n",
               HEAD CPU("10000000") "a 125000000\nb 2500000\nc 2500000\n");
    reads_text(br_folded_read, (struct br_profile_source){.type = "samples", .units = "samples"},
               "a 12.5\nb 0.25\nc 0.25\nd 1.999999999\ne 0.000000001\n",
               HEAD "profile samples samples time 0 duration 0\na 12\nc 1\nd 1\ne 1\n");
    /* frames with spaces, as in the output of py-spy */
    reads_text(br_folded_read, plain, "<module> (b.py:7);f (b.py:3) 14\n",
               HEAD CPU("10000000") "<module> (b.py:7);f (b.py:3) 140000000\n");
    /* a semicolon ends a frame, as in Tree.Insert */
    reads_text(br_folded_read, plain, "a; 1\na 1\na;;b 1\n;c 1\n 1\n",
               HEAD CPU("10000000") " 10000000\n;c 10000000\na 20000000\na;;b 10000000\n");
    reads_text(br_folded_read, plain, "a +3", HEAD CPU("10000000") "a 30000000\n");
    reads_text(br_folded_read, plain, "\xff;b 1", HEAD CPU("10000000") "\xef\xbf\xbd;b 10000000\n");
    /* empty profiles */
    reads_text(br_folded_read, plain, "", "");
    reads_text(br_folded_read, plain, "\n\n", "");
    reads_text(br_folded_read, plain, "a;b 0\n", "");
}

static void rejects_folded(const char *text, const char *want)
{
    rejects(br_folded_read, text, strlen(text), want);
}

static void test_folded_refused(void **state)
{
    static const char why[] = "line 2: no number of samples after the last space";
    (void)state;
    rejects_folded("a 1\na b\n", why);
    rejects_folded("a 1\na 1 \n", why);
    rejects_folded("a 1\na 1.5.2\n", why);
    rejects_folded("a 1\na .5\n", why);
    rejects_folded("a 1\na 1.5e3\n", why);
    rejects_folded("a 1\na -\n", why);
    rejects_folded("a 1\na 9223372036854775808\n", why);
    rejects_folded("a 1\na -9223372036854775809\n", why);
    rejects_folded("a -1\n", "line 1: a negative number");
    rejects_folded("a -9223372036854775808\n", "line 1: a negative number");
    rejects_folded("a 922337203686\n", "line 1: a number too large for its unit");
    rejects_folded("a 922337203685\na 1\n", "line 2: the sum of the values is too large");
    struct br_profile_source s = {.type = "alloc_objects"};
    reads_text(br_folded_read, s, "a 9223372036854775807",
               HEAD "profile alloc_objects count time 0 duration 0\na 9223372036854775807\n");
}

static void test_lines(void **state)
{
    (void)state;
    reads_text(br_lines_read, plain, "foo;bar\nfoo;baz\nfoo;bar\r\n\nfoo bar 7",
               HEAD CPU("10000000") "foo bar 7 10000000\nfoo;bar 20000000\nfoo;baz 10000000\n");
    reads_text(br_lines_read, plain, "\n\r\n", "");
}

static void test_pyroscope(void **state)
{
    struct br_arena arena = {0};
    struct br_addition resource = {0};
    struct br_profile_source s = {.from_pyroscope = true, .resource = &resource};
    (void)state;
    assert_int_equal(br_add_string(&arena, &resource, 1, "service.name", "shop", 4), 0);
#define SHOP "resource service.name=shop\nscope pyroscope.name="
    reads_text(br_folded_read, s, "a 1", SHOP "process_cpu\n" CPU("10000000") "a 10000000\n");
    s.type = "alloc_space";
    reads_text(br_folded_read, s, "a 1",
               SHOP "memory\nprofile alloc_space bytes time 0 duration 0\na 1\n");
    s.type = "delay";
    reads_text(br_folded_read, s, "a 1",
               SHOP "mutex\nprofile delay nanoseconds time 0 duration 0\na 1\n");
    s.pyroscope_name = "block";
    reads_text(br_folded_read, s, "a 1",
               SHOP "block\nprofile delay nanoseconds time 0 duration 0\na 1\n");
    br_arena_release(&arena);
}

/* --- Tries and trees -------------------------------------------------------------------------- */

#define BYTES(text) text, sizeof(text) - 1

static void test_trie(void **state)
{
    (void)state;
    /* TestTrieSerialize: stacks abc with value 1 and abd with value 2 */
    reads(br_trie_read, plain,
          BYTES("\x00\x00\x01\x02"
                "ab\x00\x02\x01"
                "c\x01\x00\x01"
                "d\x02\x00"),
          HEAD CPU("10000000") "abc 10000000\nabd 20000000\n");
    /* a frame's name may begin in the name of a parent node and end in that of its child */
    reads(br_trie_read, plain,
          BYTES("\x00\x00\x02\x08main;foo\x03\x02\x04;bar\x05\x00\x04"
                "d;ab\x07\x00\x03zoo\x80\x01\x00"),
          HEAD CPU("10000000") "main;foo 30000000\nmain;foo;bar 50000000\n"
                               "main;food;ab 70000000\nzoo 1280000000\n");
    /* an old client may send two tries */
    reads(br_trie_read, plain,
          BYTES("\x00\x00\x01\x01"
                "a\x01\x00"
                "\x00\x00\x01\x01"
                "a\x02\x00"),
          HEAD CPU("10000000") "a 30000000\n");
    reads(br_trie_read, plain, "", 0, "");
    reads(br_trie_read, plain, BYTES("\x00\x00\x00"), "");
}

static void test_trie_refused(void **state)
{
    (void)state;
#define HUGE_NUMBER "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    rejects(br_trie_read, BYTES(HUGE_NUMBER), "not a trie: truncated name at byte 0");
    rejects(br_trie_read,
            BYTES("\x02"
                  "a"),
            "not a trie: truncated name at byte 0");
    rejects(br_trie_read, BYTES("\x00\x01"), "not a trie: truncated number at byte 0");
    rejects(br_trie_read, BYTES("\x00" HUGE_NUMBER "\x00"),
            "not a trie: a value is too large at byte 0");
    rejects(br_trie_read, BYTES("\x00\x00\x81\x7d"),
            "not a trie: more children than there are bytes at byte 0");
    rejects(br_trie_read,
            BYTES("\x00\x00\x02\x01"
                  "a\x01\x00"
                  "\x01"
                  "a\x01\x00"),
            "not a trie: siblings begin with the same byte at byte 11");
    rejects(br_trie_read, BYTES("\x00\x00\x01\x00\x01\x00"),
            "not a trie: a node has no name at byte 6");
    rejects(br_trie_read,
            BYTES("\x00\x00\x02\x01"
                  "a\x01\x00"
                  "\x02"
                  "a"),
            "not a trie: truncated name at byte 7");
    rejects(br_trie_read,
            BYTES("\x00\x00\x02\x01"
                  "a\x01\x01"
                  "\x01"
                  "b\x01\x00"),
            "not a trie: truncated: children are missing at byte 11");
    rejects(br_trie_read,
            BYTES("\x01"
                  "a\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00"),
            "a number too large for its unit");
}

static void test_tree(void **state)
{
    (void)state;
    /* TestDeserializeNoDict */
    reads(br_tree_read, plain,
          BYTES("\x00\x00\x01\x01"
                "a\x00\x02\x01"
                "b\x01\x00\x01"
                "c\x02\x00"),
          HEAD CPU("10000000") "a;b 10000000\na;c 20000000\n");
    /* siblings with the same name are merged; a name may contain a semicolon; the root's value
     * is ignored; bytes after the tree are not read */
    reads(br_tree_read, plain,
          BYTES("\x03top\x09\x03\x01"
                "a\x01\x00\x01"
                "a\x02\x00\x03"
                "b;c\x04\x00"
                "\xff"),
          HEAD CPU("10000000") "a 30000000\nb;c 40000000\n");
    reads(br_tree_read, plain, "", 0, "");
    rejects(br_tree_read, BYTES(HUGE_NUMBER), "not a tree: truncated name at byte 0");
    rejects(br_tree_read, BYTES("\x00\x00\x81\x7d"),
            "not a tree: more children than there are bytes at byte 0");
}

/* --- perf script ------------------------------------------------------------------------------ */

/* Output of perf 6.1 in which samples of two events alternate. Some samples have a thread id, some
 * have a CPU. One process name has a blank. One frame is a C++ function, and one frame does not
 * have a name. One sample does not have frames, and one sample is a single line. */
#define PERF                                                                                       \
    "# captured on    : now\n\n"                                                                   \
    "node 23885 17174.794111:   10101010 cpu-clock: \n"                                            \
    "\t           8f0cf leaf+0x3f (/usr/lib/libc.so.6)\n"                                          \
    "\t           16cc8 ns::f(int, char) const+0x685 (/usr/bin/a b)\n"                             \
    "\t           16cd0 [unknown] (/usr/bin/node)\n\n"                                             \
    "Web Content 7 1/12 [003] 17174.894111:  250000 cycles:u: \r\n"                                \
    "\t 16cd0 main (inlined)\r\n\r\n"                                                              \
    "node 23885 17174.994111111:   10101010 cpu-clock:pppH: \n\n"                                  \
    "swapper     0 [000] 17175.000000:          1 cycles:u:  ffffffff81 idle+0x1 ([kernel])\n"

static void test_perf_script(void **state)
{
    (void)state;
    struct br_profile_source s = {.start_ns = 1, .end_ns = 20000000000};
    reads_text(br_perf_script_read, s, PERF,
               "resource\n"
               "scope pyroscope.metric=process_cpu\n"
               "profile cpu nanoseconds period cpu nanoseconds 10101010 time 19794111000 "
               "duration 205889000\n"
               " 10101010 {thread.name=node thread.id=23885 profile.time=estimated}\n"
               "[unknown];ns::f(int, char) const;leaf 10101010 {thread.name=node thread.id=23885 "
               "profile.time=estimated}\n"
               "scope\n"
               "profile cycles:u count time 19794111000 duration 205889000\n"
               "idle 1 {thread.name=swapper thread.id=0 profile.time=estimated}\n"
               "main 250000 {thread.name=Web Content 7 thread.id=12 process.pid=1 "
               "profile.time=estimated}\n");
    reads_text(br_perf_script_read, s, "", "");
    reads_text(br_perf_script_read, s, "# nothing\n\n", "");
}

/* Paths with blanks and brackets, unknown processes, and lines of source code. */
static void test_perf_script_variants(void **state)
{
    (void)state;
    struct br_profile_source s = {.start_ns = 1, .end_ns = 20000000000};
    reads_text(br_perf_script_read, s,
               "app  2500/2510 [000] 10.000001: 250 cycles:\n"
               "\t7fbc work (/opt/app/bin/server (deleted))\n"
               "\t7fbd System.Text.Json.Parse (/memfd:doublemapper (deleted))\n"
               "\t7fc0 run (/home/u/Program Files (x86)/Game/game.exe)\n"
               "\t7fc1 operator()(int) (/usr/lib/x.so)\n"
               "\t7fc2 odd() (/tmp/a)b)\n\n"
               ":-1    -1/-1    [001] 11.000001: 250 cycles:\n"
               "\t7f9 idle ([kernel.kallsyms])\n\n",
               HEAD
               "profile cycles count time 19000000000 duration 1000000000\n"
               "idle 250 {thread.name=:-1 thread.id=-1 process.pid=-1 profile.time=estimated}\n"
               "odd();operator()(int);run;System.Text.Json.Parse;work 250 {thread.name=app "
               "thread.id=2510 process.pid=2500 profile.time=estimated}\n");
}

static void test_perf_script_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"main;work 3\n", "node 1 cycles\n", "1 1\n", "a b c d: e\n",
                                      "\t 8f0cf leaf (x)\n"};
    struct br_profile_source s = {.end_ns = 1};
    for (size_t i = 0; i < BR_COUNT(bad); i++)
        reads_text(br_perf_script_read, s, bad[i],
                   "line 1: neither a sample nor a frame in the format of perf script");
    reads_text(br_perf_script_read, s, "a 1 1.0: 1 c:\n\tnothing\n",
               "line 2: neither a sample nor a frame in the format of perf script");
    char text[4096] = "";
    for (unsigned i = 0; i < 65; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "a 1 1.0: 1 c%u:\n\n", i);
    reads_text(br_perf_script_read, s, text,
               "line 129: more than 64 events, or frames in a sample");
}

static void perf_without_memory(void *arg)
{
    (void)arg;
    struct br_arena arena = {0};
    struct br_err err = {0};
    struct br_profile_source s = {.data = (const uint8_t *)PERF, .len = sizeof PERF - 1};
    fault_start();
    struct br_build *b = br_build_new(&host, 1 << 20);
    int rc = b ? br_perf_script_read(b, &s, &arena, &err) : BR_ENOMEM;
    fault_stop();
    assert_true(rc == (fault_failed() ? BR_ENOMEM : 0) || rc == 0);
    br_arena_release(&arena);
    br_build_free(b);
}

static void test_perf_script_without_memory(void **state)
{
    (void)state;
    fault_each("perf script", perf_without_memory, NULL);
}

/* --- .cpuprofile ------------------------------------------------------------------------------ */

#define V8_NODES                                                                                   \
    "\"nodes\":[{\"id\":1,\"callFrame\":{\"functionName\":\"(root)\"},\"children\":[2,5]},"        \
    "{\"id\":2,\"callFrame\":{\"functionName\":\"w\\u006frk\",\"url\":\"file:///a.js\","           \
    "\"lineNumber\":1,\"columnNumber\":13},\"hitCount\":1,\"children\":[3]},"                      \
    "{\"id\":3,\"callFrame\":{\"functionName\":\"\",\"lineNumber\":-1}},"                          \
    "{\"id\":5,\"callFrame\":{\"functionName\":\"(idle)\"}}]"
#define V8_TIMES                                                                                   \
    "\"samples\":[2,3,5,2],\"timeDeltas\":[5,100,200,-50],\"startTime\":1000,\"endTime\":1300"

/* The profile has 100 us of `work` and 200 us of the function that it calls. The time of waiting is
 * 0, because the timestamps go back. Then there are 45 us of `work`. The file's clock counts from
 * the start of the machine, so the last timestamp is set to the end of the source. */
static void test_cpuprofile(void **state)
{
    (void)state;
    static const char want[] =
        "resource\n"
        "scope pyroscope.metric=wall\n"
        "profile wall nanoseconds period wall nanoseconds 100000 time 700000 "
        "duration 300000\n"
        "(idle) 0 {profile.time=estimated}\n"
        "work 100000 {profile.time=estimated}\n"
        "work 45000 {profile.time=estimated}\n"
        "work;(anonymous) 200000 {profile.time=estimated}\n";
    struct br_profile_source s = {.start_ns = 1, .end_ns = 1000000};
    reads_text(br_cpuprofile_read, s, "{" V8_NODES "," V8_TIMES "}", want);
    reads_text(br_cpuprofile_read, s, "{" V8_TIMES "," V8_NODES "}", want);
    reads_text(br_cpuprofile_read, s, "{" V8_NODES ",\"startTime\":1}", "");
}

static void test_cpuprofile_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "not a .cpuprofile: nodes is missing"},
        {"{" V8_NODES "}", "not a .cpuprofile: startTime is missing"},
        {"{\"nodes\":[{}]}", "not a .cpuprofile: a node has no id"},
        {"{\"nodes\":[{\"id\":1.5}]}", "not a .cpuprofile: a node has no id"},
        {"{\"nodes\":[{\"id\":1},{\"id\":1}]}", "not a .cpuprofile: two nodes have the same id"},
        {"{\"nodes\":[{\"id\":99999}]}", "not a .cpuprofile: node ids are not consecutive numbers"},
        {"{\"nodes\":[{\"id\":1,\"children\":[2]}]}",
         "not a .cpuprofile: a reference to an unknown node"},
        {"{\"nodes\":[{\"id\":1,\"children\":[3]},{\"id\":2,\"children\":[3]},{\"id\":3}]}",
         "not a .cpuprofile: a node has two parents"},
        {"{\"nodes\":[{\"id\":1,\"children\":[2]},{\"id\":2,\"children\":[1]}],\"startTime\":0,"
         "\"samples\":[1],\"timeDeltas\":[1]}",
         "not a .cpuprofile: a node is its own ancestor"},
        {"{" V8_NODES ",\"startTime\":0,\"samples\":[2],\"timeDeltas\":[]}",
         "not a .cpuprofile: samples and timeDeltas differ in length"},
        {"{" V8_NODES ",\"startTime\":0,\"samples\":[4],\"timeDeltas\":[1]}",
         "not a .cpuprofile: a reference to an unknown node"},
        {"{" V8_NODES ",\"startTime\":0,\"samples\":[2],\"timeDeltas\":[1e300]}",
         "not a .cpuprofile: a time is not a number of microseconds"},
    };
    struct br_profile_source s = {.end_ns = 1};
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        reads_text(br_cpuprofile_read, s, cases[i][0], cases[i][1]);
}

static void cpuprofile_without_memory(void *arg)
{
    static const char text[] = "{" V8_NODES "," V8_TIMES "}";
    (void)arg;
    struct br_arena arena = {0};
    struct br_err err = {0};
    struct br_profile_source s = {.data = (const uint8_t *)text, .len = sizeof text - 1};
    fault_start();
    struct br_build *b = br_build_new(&host, 1 << 20);
    int rc = b ? br_cpuprofile_read(b, &s, &arena, &err) : BR_ENOMEM;
    fault_stop();
    assert_true(rc == 0 || (rc == BR_ENOMEM && fault_failed()));
    br_arena_release(&arena);
    br_build_free(b);
}

static void test_cpuprofile_without_memory(void **state)
{
    (void)state;
    fault_each(".cpuprofile", cpuprofile_without_memory, NULL);
}

/* --- Firefox profiles ------------------------------------------------------------------------- */

#define FF_META                                                                                    \
    "\"meta\":{\"startTime\":1700000000000.5,\"interval\":2,\"sampleUnits\":{\"time\":\"ms\","     \
    "\"threadCPUDelta\":\"\\u00b5s\"}}"
#define FF_STRINGS "[\"work\",\"l\\u0065af\",\"a.js\",\"0x1a2b\",\"libc.so.6\"]"
#define FF_THREAD "\"name\":\"main\",\"tid\":\"11.1\",\"pid\":\"7\""
/* Stack 0 is `work`. Stack 1 adds the function that `work` calls. Stack 2 adds an address, called
 * by this function. One sample has no stack, and two samples have a weight other than 1. */
#define FF_STACK "\"stack\":[1,null,2,0]"
#define FF_TIME "\"time\":[1,3,5,7]"
#define FF_CPU "\"weight\":[1,1,3,0],\"threadCPUDelta\":[900,10,2000,50]"
#define FF_FRAMES "\"frameTable\":{\"func\":[0,1,2],\"line\":[4,null,null],\"column\":[9]}"

#define FF_TABLES                                                                                  \
    "\"stringArray\":[\"a\"],\"funcTable\":{\"name\":[0]},\"frameTable\":{\"func\":[0]},"          \
    "\"stackTable\":{\"frame\":[0],\"prefix\":[null]}"

#define FF_HEAD(metric, type, period)                                                              \
    "scope pyroscope.metric=" metric "\nprofile " type " nanoseconds period " period               \
    " nanoseconds 2000000 time 1700000000001500000 duration 6000000\n"
#define FF_OF " {thread.name=main thread.id=11 process.pid=7}\n"

/* The CPU time of the first sample was spent before the profile, so it is not counted. */
static const char firefox[] = "resource\n" FF_HEAD(
    "wall", "wall", "wall") "work;leaf 2000000" FF_OF
                            "work;leaf; 6000000" FF_OF FF_HEAD("process_cpu", "cpu",
                                                               "cpu") "work 50000" FF_OF
                                                                      "work;leaf; 2000000" FF_OF;

/* In version 48 of the format, each thread has separate tables. In version 56, the threads share
 * the strings, and in version 60, all tables. In version 66 the prefix is relative to the stack,
 * and version 75 has flags for missing values. */
static void test_gecko(void **state)
{
    (void)state;
    reads_text(br_gecko_read, plain,
               "{" FF_META ",\"threads\":[{" FF_THREAD ",\"stringArray\":" FF_STRINGS
               ",\"samples\":{" FF_STACK "," FF_TIME "," FF_CPU ",\"weightType\":\"samples\"},"
               "\"stackTable\":{\"frame\":[0,1,2],\"prefix\":[null,0,1],\"length\":3}," FF_FRAMES
               ",\"funcTable\":{\"name\":[0,1,3],\"resource\":[-1,-1,0],"
               "\"fileName\":[2,null,null],\"lineNumber\":[3,null,null]},"
               "\"resourceTable\":{\"name\":[4],\"type\":[1],\"lib\":[0]}}]}",
               firefox);
    reads_text(
        br_gecko_read, plain,
        "{\"threads\":[{\"samples\":{" FF_STACK ",\"timeDeltas\":[1,2,2,2]," FF_CPU "}," FF_THREAD
        "}],\"shared\":{\"stackTable\":{\"prefixOffset\":[0,1,1],\"frame\":[0,1,2]}," FF_FRAMES
        ",\"funcTable\":{\"name\":[0,1,3],\"flags\":[24,0,4],\"source\":[0,0,0],"
        "\"resource\":[0,0,0],\"lineNumber\":[3,0,0]},\"sources\":{\"filename\":[2]},"
        "\"resourceTable\":{\"name\":[4],\"type\":[1]},\"stringArray\":" FF_STRINGS "}," FF_META
        "}",
        firefox);
    reads_text(br_gecko_read, plain,
               "{" FF_META ",\"shared\":{\"stringArray\":" FF_STRINGS
               ",\"sources\":{\"filename\":[2]}},\"threads\":[{" FF_THREAD ",\"samples\":{" FF_STACK
               "," FF_TIME "," FF_CPU "},\"stackTable\":{\"frame\":[0,1,2],"
               "\"prefix\":[null,0,1]}," FF_FRAMES ",\"funcTable\":{\"name\":[0,1,3],"
               "\"source\":[0,null,null]}},{\"name\":\"idle\",\"samples\":{\"stack\":[]}}]}",
               firefox);
    /* invalid numbers */
    reads_text(br_gecko_read, plain,
               "{\"meta\":{\"startTime\":1e12},\"threads\":[{" FF_TABLES
               ",\"tid\":\"a1\",\"pid\":\"1b\""
               ",\"samples\":{\"stack\":[0],\"time\":[0]}}]}",
               "resource\nscope pyroscope.metric=wall\nprofile wall nanoseconds period wall "
               "nanoseconds 1000000 time 1000000000000000000 duration 0\na 1000000\n");
    reads_text(br_gecko_read, plain, "{\"meta\":{},\"threads\":[]}", "");
    reads_text(br_gecko_read, plain, "{\"meta\":{},\"threads\":[\"{}\",{}]}", "");
}

/* In Gecko's native format, tables consist of rows, and a schema names their columns. Each process
 * has a separate clock. */
static void test_gecko_rows(void **state)
{
    (void)state;
#define FF_ROWS(tid)                                                                               \
    "\"threads\":[{\"name\":\"main\",\"tid\":" tid ",\"pid\":7,"                                   \
    "\"stringTable\":[\"work (a.js:3:1)\",\"leaf (in libc.so.6)\",\"0x1a2b\",\"f(int)\"],"         \
    "\"samples\":{\"schema\":{\"stack\":0,\"time\":1,\"eventDelay\":2,\"threadCPUDelta\":3},"      \
    "\"data\":[[1,1,0,900],[null,3],[2,5,0,2000]]},"                                               \
    "\"frameTable\":{\"schema\":{\"location\":0,\"line\":4},\"data\":[[0,false,0,null,4],[1],"     \
    "[2],[3]]},\"stackTable\":{\"schema\":{\"frame\":1,\"prefix\":0},"                             \
    "\"data\":[[null,0],[0,1],[1,3]]}}]"
    reads_text(br_gecko_read, plain,
               "{" FF_META "," FF_ROWS("11") ",\"processes\":[{\"meta\":{\"startTime\":"
                                             "1700000000001.25}," FF_ROWS("12") "}]}",
               "resource\nscope pyroscope.metric=wall\n"
               "profile wall nanoseconds period wall nanoseconds 2000000 time 1700000000001500000 "
               "duration 4750000\n"
               "work;leaf 2000000 {thread.name=main thread.id=11 process.pid=7}\n"
               "work;leaf 2000000 {thread.name=main thread.id=12 process.pid=7}\n"
               "work;leaf;f(int) 2000000 {thread.name=main thread.id=11 process.pid=7}\n"
               "work;leaf;f(int) 2000000 {thread.name=main thread.id=12 process.pid=7}\n"
               "scope pyroscope.metric=process_cpu\n"
               "profile cpu nanoseconds period cpu nanoseconds 2000000 time 1700000000001500000 "
               "duration 4750000\n"
               "work;leaf;f(int) 2000000 {thread.name=main thread.id=11 process.pid=7}\n"
               "work;leaf;f(int) 2000000 {thread.name=main thread.id=12 process.pid=7}\n");
}

#define FF_ONE(samples)                                                                            \
    "{\"meta\":{},\"threads\":[{" FF_TABLES ",\"samples\":{\"stack\":[0]," samples "}}]}"

/* Tests the types of weights, and a clock that starts with the machine. The interval is one
 * millisecond if the upload does not contain a sample rate. */
static void test_gecko_weights(void **state)
{
    (void)state;
    struct br_profile_source s = {.end_ns = 5000000};
    reads_text(br_gecko_read, s,
               FF_ONE("\"time\":[2],\"weight\":[0.5],\"weightType\":\"tracing-ms\""),
               "resource\nscope pyroscope.metric=wall\nprofile wall nanoseconds period wall "
               "nanoseconds 1000000 time 5000000 duration 0\na 500000 {profile.time=estimated}\n");
    reads_text(br_gecko_read, s, FF_ONE("\"time\":[2],\"weight\":[512],\"weightType\":\"bytes\""),
               "resource\nscope pyroscope.metric=memory\nprofile samples bytes time 5000000 "
               "duration 0\na 512 {profile.time=estimated}\n");
    s.sample_rate = 100;
    reads_text(
        br_gecko_read, s, FF_ONE("\"time\":[2],\"weight\":null"),
        "resource\nscope pyroscope.metric=wall\nprofile wall nanoseconds period wall "
        "nanoseconds 10000000 time 5000000 duration 0\na 10000000 {profile.time=estimated}\n");
    /* a sample that was taken before the start of the process, at the time -2 */
    reads_text(br_gecko_read, s,
               "{\"meta\":{\"startTime\":1700000000000},\"threads\":[{" FF_TABLES
               ",\"samples\":{\"stack\":[0,0],\"time\":[-2,1]}}]}",
               "resource\nscope pyroscope.metric=wall\nprofile wall nanoseconds period wall "
               "nanoseconds 10000000 time 1699999999998000000 duration 3000000\na 10000000\n"
               "a 10000000\n");
}

static void test_gecko_refused(void **state)
{
    (void)state;
#define FF "not a Firefox profile: "
    static const char *const cases[][2] = {
        {"{}", FF "\"meta\" or \"threads\" is missing"},
        {"{\"meta\":{}}", FF "\"meta\" or \"threads\" is missing"},
        {"{\"meta\":{},\"threads\":[]", "not JSON: missing comma at byte 23"},
        {FF_ONE("\"weight\":[1]"), FF "a sample has no time"},
        {FF_ONE("\"time\":[\"1\"]"), FF "a sample has no time"},
        {FF_ONE("\"time\":[1e300]"), FF "a time is not a number of milliseconds"},
        {FF_ONE("\"time\":[1],\"weight\":[-1]"), FF "a negative weight"},
        {FF_ONE("\"time\":[1],\"weight\":[\"1\"]"), FF "a weight is not a number"},
        {FF_ONE("\"time\":[1],\"weight\":[1e300]"), FF "a weight is too large"},
        {"{\"meta\":{},\"threads\":[{" FF_TABLES ",\"samples\":{\"stack\":[1],\"time\":[1]}}]}",
         FF "a sample refers to an unknown stack"},
        {"{\"meta\":{},\"threads\":[{\"stackTable\":{\"frame\":[0]},\"samples\":{}}]}",
         FF "a stack refers to an unknown frame"},
        {"{\"meta\":{},\"threads\":[{\"stackTable\":{},\"frameTable\":{\"func\":[0]},"
         "\"samples\":{}}]}",
         FF "a frame refers to an unknown function"},
        {"{\"meta\":{},\"threads\":[{\"stackTable\":{},\"funcTable\":{\"name\":[0]},"
         "\"samples\":{}}]}",
         FF "a function has no name"},
        {"{\"meta\":{},\"shared\":{\"stringArray\":[\"a\"],\"funcTable\":{\"name\":[0]},"
         "\"frameTable\":{\"func\":[0]},\"stackTable\":{\"frame\":[0,0],\"prefix\":[null,1]}},"
         "\"threads\":[]}",
         FF "a stack whose prefix is not an earlier stack"},
        {"{\"meta\":{},\"shared\":{\"stringArray\":[\"a\"],\"funcTable\":{\"name\":[0]},"
         "\"frameTable\":{\"func\":[0]},\"stackTable\":{\"frame\":[0,0],\"prefixOffset\":[0,2]}},"
         "\"threads\":[]}",
         FF "a stack whose prefix is not an earlier stack"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        rejects(br_gecko_read, cases[i][0], strlen(cases[i][0]), cases[i][1]);
}

static void gecko_without_memory(void *arg)
{
    const char *text = arg;
    struct br_arena arena = {0};
    struct br_err err = {0};
    struct br_profile_source s = {.data = (const uint8_t *)text, .len = strlen(text)};
    fault_start();
    struct br_build *b = br_build_new(&host, 1 << 20);
    int rc = b ? br_gecko_read(b, &s, &arena, &err) : BR_ENOMEM;
    fault_stop();
    assert_true(rc == 0 || (rc == BR_ENOMEM && fault_failed()));
    br_arena_release(&arena);
    br_build_free(b);
}

static void test_gecko_without_memory(void **state)
{
    static char rows[] = "{" FF_META "," FF_ROWS("11") "}";
    static char columns[] = FF_ONE("\"time\":[2],\"weight\":[512]");
    (void)state;
    fault_each("Gecko's rows", gecko_without_memory, rows);
    fault_each("Firefox profile", gecko_without_memory, columns);
}

/* --- speedscope ------------------------------------------------------------------------------- */

#define SCHEMA "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
#define FRAMES                                                                                     \
    "\"shared\":{\"frames\":[{\"name\":\"a\"},{\"name\":\"b\"},{\"name\":\"c\"},{\"name\":\"d\"}]" \
    "},"
#define SAMPLED(name, unit)                                                                        \
    "{\"type\":\"sampled\",\"name\":\"" name "\",\"unit\":\"" unit "\",\"startValue\":0,"          \
    "\"endValue\":14,\"samples\":[[0,1,2],[0,1,2],[0,1,3],[0,1,2],[0,1]],\"weights\":[1,1,4,3,5]}"
#define EVENTED(unit, events)                                                                      \
    SCHEMA FRAMES "\"profiles\":[{\"type\":\"evented\",\"name\":\"simple.txt\",\"unit\":\"" unit   \
                  "\",\"startValue\":0,\"endValue\":14,\"events\":[" events "]}]}"
#define OPEN(frame, at) "{\"type\":\"O\",\"frame\":" #frame ",\"at\":" #at "},"
#define CLOSE(frame, at) "{\"type\":\"C\",\"frame\":" #frame ",\"at\":" #at "}"

/* The events of testdata/simple.speedscope.json. */
#define SIMPLE                                                                                     \
    OPEN(0, 0)                                                                                     \
    OPEN(1, 0)                                                                                     \
    OPEN(2, 0)                                                                                     \
    CLOSE(2, 2)                                                                                    \
    "," OPEN(3, 2) CLOSE(3, 6) "," OPEN(2, 6) CLOSE(2, 9) "," CLOSE(1, 14) "," CLOSE(0, 14)

static void test_speedscope(void **state)
{
    struct br_profile_source s = {.from_pyroscope = true, .pyroscope_name = "process_cpu"};
    (void)state;
    /* speedscope_test.go: the stacks have 500, 500 and 400 units. The profile does not have a unit,
     * so a unit is 100 us. */
    reads_text(br_speedscope_read, s, EVENTED("none", SIMPLE),
               "resource profile_name=simple.txt\nscope pyroscope.name=process_cpu\n" CPU(
                   "10000000") "a;b 50000000\na;b;c 50000000\na;b;d 40000000\n");
    /* two profiles in seconds become one profile of wall time; 500 units of 10 ms */
#define WALL(name)                                                                                 \
    "resource profile_name=" name "\nscope pyroscope.name=wall\n"                                  \
    "profile wall nanoseconds period cpu nanoseconds 10000000 time 0 duration 0\n"                 \
    "a;b 5000000000\na;b;c 5000000000\na;b;d 4000000000\n"
#define CPU_OF(name)                                                                               \
    "resource profile_name=" name "\nscope\n" CPU("10000000") "a;b 5000000000\na;b;c 5000000000\n" \
                                                              "a;b;d 4000000000\n"
    /* the type is part of the upload's name, which is not used if there are several profiles */
    s.type = "cpu";
    reads_text(br_speedscope_read, s,
               SCHEMA FRAMES
               "\"profiles\":[" SAMPLED("one", "seconds") "," SAMPLED("two", "seconds") "]}",
               WALL("one") WALL("two"));
    /* Several threads are a sign of wall time only in uploads from Pyroscope. */
    reads_text(br_speedscope_read, plain,
               SCHEMA FRAMES
               "\"profiles\":[" SAMPLED("one", "seconds") "," SAMPLED("two", "seconds") "]}",
               CPU_OF("one") CPU_OF("two"));
    /* three profiles with the same name are merged into one */
    reads_text(br_speedscope_read, s,
               SCHEMA FRAMES "\"profiles\":[" SAMPLED("one", "seconds") "," SAMPLED(
                   "one", "seconds") "," SAMPLED("one", "seconds") "]}",
               "resource profile_name=one\nscope pyroscope.name=process_cpu\n" CPU(
                   "10000000") "a;b 15000000000\na;b;c 15000000000\na;b;d 12000000000\n");
    /* two profiles in bytes: memory:samples:bytes:: in ingest_speedscope_test.go */
#define BYTES_OF(name)                                                                             \
    "resource profile_name=" name "\nscope pyroscope.name=memory\n"                                \
    "profile samples bytes time 0 duration 0\na;b 5\na;b;c 5\na;b;d 4\n"
    reads_text(br_speedscope_read, s,
               SCHEMA FRAMES
               "\"profiles\":[" SAMPLED("one", "bytes") "," SAMPLED("two", "bytes") "]}",
               BYTES_OF("one") BYTES_OF("two"));
    reads_text(br_speedscope_read, s, SCHEMA FRAMES "\"profiles\":[" SAMPLED("one", "bytes") "]}",
               BYTES_OF("one"));
}

static void test_speedscope_units(void **state)
{
    struct br_profile_source s = {.sample_rate = 50};
    (void)state;
#define ONE(unit)                                                                                  \
    SCHEMA FRAMES "\"profiles\":[{\"type\":\"sampled\",\"unit\":\"" unit                           \
                  "\",\"samples\":[[0],[1]],\"weights\":[2.5,1e1]}]}"
    /* units of time are converted; without a unit, numbers are samples */
    reads_text(br_speedscope_read, s, ONE("nanoseconds"), HEAD CPU("20000000") "a 3\nb 10\n");
    reads_text(br_speedscope_read, s, ONE("microseconds"),
               HEAD CPU("20000000") "a 2500\nb 10000\n");
    reads_text(br_speedscope_read, s, ONE("milliseconds"),
               HEAD CPU("20000000") "a 2500000\nb 10000000\n");
    reads_text(br_speedscope_read, s, ONE("seconds"),
               HEAD CPU("20000000") "a 2500000000\nb 10000000000\n");
    reads_text(br_speedscope_read, s, ONE("none"),
               HEAD CPU("20000000") "a 50000000\nb 200000000\n");
    reads_text(br_speedscope_read, s, ONE("bytes"),
               HEAD "profile samples bytes time 0 duration 0\na 3\nb 10\n");
    s.type = "alloc_objects";
    reads_text(br_speedscope_read, s, ONE("none"),
               HEAD "profile alloc_objects count time 0 duration 0\na 3\nb 10\n");
    s.type = "inuse_space";
    reads_text(br_speedscope_read, s, ONE("bytes"),
               HEAD "profile inuse_space bytes time 0 duration 0\na 3\nb 10\n");
    /* the time between the opening of the first and of the second frame is counted for the first
     * frame */
    s = plain;
    reads_text(br_speedscope_read, s, EVENTED("seconds", OPEN(0, 0) OPEN(1, 3) CLOSE(1, 4)),
               "resource profile_name=simple.txt\nscope\n" CPU(
                   "10000000") "a 3000000000\na;b 1000000000\n");
    reads_text(br_speedscope_read, s, SCHEMA "\"profiles\":[]}", "");
    reads_text(br_speedscope_read, s, SCHEMA "\"shared\":{}}", "");
}

/* The name of the profile replaces the upload's label profile_name. */
static void test_speedscope_label(void **state)
{
    struct br_arena arena = {0};
    struct br_addition resource = {0};
    struct br_profile_source s = {.resource = &resource};
    (void)state;
    assert_int_equal(br_add_string(&arena, &resource, 1, "profile_name", "x", 1), 0);
    assert_int_equal(br_add_string(&arena, &resource, 1, "env", "y", 1), 0);
    reads_text(br_speedscope_read, s,
               SCHEMA "\"shared\":{\"frames\":[{\"name\":\"\\u00e9\"}]},\"profiles\":[{\"type\":"
                      "\"sampled\",\"name\":\"a\\\"b\",\"unit\":\"none\",\"samples\":[[0]],"
                      "\"weights\":[1]}]}",
               "resource env=y profile_name=a\"b\nscope\n" CPU("10000000") "\xc3\xa9 10000000\n");
    br_arena_release(&arena);
}

static void rejects_speedscope(const char *text, const char *want)
{
    rejects(br_speedscope_read, text, strlen(text), want);
}

static void test_speedscope_refused(void **state)
{
#define BAD "not a speedscope file: "
#define PROFILE(members) SCHEMA FRAMES "\"profiles\":[{\"unit\":\"none\"," members "}]}"
    (void)state;
    rejects_speedscope("", "not JSON: unexpected end of text at byte 0");
    rejects_speedscope("[[[[\"\"", "not JSON: missing comma at byte 6");
    rejects_speedscope("{}", BAD "unknown schema");
    rejects_speedscope("[]", BAD "unknown schema");
    rejects_speedscope("{\"$schema\":\"x\"}", BAD "unknown schema");
    rejects_speedscope(SCHEMA "\"profiles\":[1]}", BAD "an unknown unit");
    rejects_speedscope(SCHEMA "\"profiles\":[" SAMPLED("x", "parsecs") "]}", BAD "an unknown unit");
    rejects_speedscope(PROFILE("\"type\":\"odd\""), BAD "a profile is neither evented nor sampled");
    rejects_speedscope(PROFILE("\"type\":\"sampled\",\"samples\":[[0]],\"weights\":[]"),
                       BAD "samples and weights differ in length");
    rejects_speedscope(PROFILE("\"type\":\"sampled\",\"samples\":[[4]],\"weights\":[1]"),
                       BAD "a sample refers to an unknown frame");
    rejects_speedscope(PROFILE("\"type\":\"sampled\",\"samples\":[[0.5]],\"weights\":[1]"),
                       BAD "a sample refers to an unknown frame");
    rejects_speedscope(PROFILE("\"type\":\"sampled\",\"samples\":[0],\"weights\":[1]"),
                       BAD "a sample is not an array");
    rejects_speedscope(PROFILE("\"type\":\"sampled\",\"samples\":[[0]],\"weights\":[\"1\"]"),
                       BAD "a weight is not a number");
    rejects_speedscope(PROFILE("\"type\":\"sampled\",\"samples\":[[0]],\"weights\":[-1]"),
                       BAD "a negative weight");
    rejects_speedscope(PROFILE("\"type\":\"sampled\",\"samples\":[[0]],\"weights\":[1e12]"),
                       BAD "a weight too large for its unit");
    rejects_speedscope(
        PROFILE("\"type\":\"sampled\",\"samples\":[[0],[0]],\"weights\":[9e11,9e11]"),
        "the sum of the values is too large");
    rejects_speedscope(EVENTED("none", OPEN(0, 3) CLOSE(0, 2)), BAD "events out of order");
    rejects_speedscope(EVENTED("none", OPEN(9, 3) CLOSE(9, 4)),
                       BAD "an event refers to an unknown frame");
    rejects_speedscope(EVENTED("none", CLOSE(0, 2)),
                       BAD "a frame is closed that was not the last one opened");
    rejects_speedscope(EVENTED("none", OPEN(0, 0) OPEN(1, 0) CLOSE(0, 2)),
                       BAD "a frame is closed that was not the last one opened");
    rejects_speedscope(EVENTED("none", "{\"type\":\"X\",\"frame\":0,\"at\":0}"),
                       BAD "an event neither opens nor closes a frame");
}

/* Values that are not read take no memory, even if a few compressed bytes contain many of them. */
static void test_speedscope_values(void **state)
{
    static const char start[] = SCHEMA "\"x\":[1";
    const size_t n = 9000000, at = sizeof start - 1, len = at + 2 * n + 2;
    char *text = malloc(len);
    struct br_profile_source s = {.data = (uint8_t *)text, .len = len};
    struct br_arena scratch = {0};
    struct br_build *b = br_build_new(&host, 1 << 20);
    (void)state;
    assert_non_null(text);
    assert_non_null(b);
    memcpy(text, start, at);
    for (size_t i = 0; i < n; i++)
        memcpy(text + at + 2 * i, ",1", 2);
    memcpy(text + len - 2, "]}", 2);
    mem_meter = (struct mem_meter){0};
    br_mem_set_hooks(&mem_meter_hooks);
    int rc = br_speedscope_read(b, &s, &scratch, NULL);
    br_mem_set_hooks(NULL);
    assert_int_equal(rc, 0);
    assert_int_equal(mem_meter.live, 0);
    assert_true(mem_meter.peak < 4096);
    br_build_free(b);
    free(text);
}

/* --- Real files, limits, and lack of memory --------------------------------------------------- */

/* One second of py-spy at 50 Hz. Both files have 49 samples of 20 ms each. py-spy printed this
 * number. */
static void test_py_spy(void **state)
{
    size_t len = 0;
    char *data = file_read(BR_TEST_CORPUS "/folded/py-spy", &len);
    assert_non_null(data);
    struct br_profile_source s = {.sample_rate = 50};
    (void)state;
    reads(br_folded_read, s, data, len,
          HEAD CPU("20000000") "<module> (burn.py:7);work (burn.py:6);leaf (burn.py:3) 280000000\n"
                               "<module> (burn.py:7);work (burn.py:6);leaf (burn.py:3);"
                               "leaf.<locals>.<genexpr> (burn.py:3) 700000000\n");
    free(data);
    data = file_read(BR_TEST_CORPUS "/speedscope/py-spy.json", &len);
    assert_non_null(data);
    /* of its 49 samples, 12 have the stack [3,2,1], and 37 have [3,2,1,0] */
    reads(br_speedscope_read, s, data, len,
          "resource profile_name=Thread 27497 \"MainThread\"\nscope\n" CPU(
              "20000000") "<module>;work;leaf "
                          "240000000\n<module>;work;leaf;leaf.<locals>.<genexpr> 740000000\n");
    free(data);
}

/* A stack of 100,000 frames and 1,000,000 names are read without recursion or quadratic time. */
static void test_large(void **state)
{
    struct br_str s = {0};
    int rc;
    (void)state;
    for (unsigned i = 0; i < 100000; i++)
        br_str_puts(&s, "f;");
    br_str_puts(&s, " 1\n");
    for (unsigned i = 0; i < 200000; i++)
        br_str_printf(&s, "main;f%u 1\n", i % 1000);
    assert_false(s.failed);
    struct br_profile_source source = {.data = (uint8_t *)s.data, .len = s.len};
    char *text = read_text(br_folded_read, &source, &rc);
    assert_int_equal(rc, 0);
    assert_non_null(strstr(text, "\nmain;f999 2000000000\n"));
    free(text);
    /* The limit is one frame for each 40 bytes of the allowed memory, which is four times the
     * 2,097,155 bytes of the body plus 1,048,576. */
    br_str_clear(&s);
    for (unsigned i = 0; i < 1 << 21; i++)
        br_str_printf(&s, ";");
    br_str_puts(&s, " 1\n");
    assert_false(s.failed);
    source = (struct br_profile_source){.data = (uint8_t *)s.data, .len = s.len};
    text = read_text(br_folded_read, &source, &rc);
    assert_int_equal(rc, BR_EFULL);
    assert_string_equal(text, "more than 235929 frames");
    free(text);
    br_str_release(&s);
    /* the stack has more levels than the trie format supports */
    struct br_str trie = {0};
    for (unsigned i = 0; i < 70000; i++)
        br_str_add(&trie,
                   i ? "\x01"
                       "a\x00\x01"
                     : "\x00\x00\x01",
                   i ? 4 : 3);
    br_str_add(&trie,
               "\x01"
               "a\x01\x00",
               4);
    source = (struct br_profile_source){.data = (uint8_t *)trie.data, .len = trie.len};
    text = read_text(br_trie_read, &source, &rc);
    assert_int_equal(rc, BR_EINVAL);
    assert_non_null(strstr(text, "too many levels"));
    free(text);
    br_str_release(&trie);
}

struct plan {
    br_profile_read_fn *read;
    const void *data;
    size_t len;
};

static void no_memory(void *arg)
{
    const struct plan *p = arg;
    struct br_profile_source s = {.data = p->data, .len = p->len, .from_pyroscope = true};
    struct br_arena arena = {0};
    struct br_err err = {0};
    fault_start();
    struct br_build *b = br_build_new(&host, 1 << 20);
    int rc = b ? p->read(b, &s, &arena, &err) : BR_ENOMEM;
    fault_stop();
    if (b && rc == 0)
        rc = br_build_rc(b);
    assert_int_equal(rc, fault_failed() ? BR_ENOMEM : 0);
    br_build_free(b);
    br_arena_release(&arena);
    br_pool_trim(host.pool);
}

static void test_no_memory(void **state)
{
    static const char text[] = "a;b;c 1\na;b 2\nd;e 3\n";
    static const char trie[] = "\x00\x00\x01\x02"
                               "ab\x00\x02\x01"
                               "c\x01\x00\x01"
                               "d\x02\x00";
    static const char scope[] = EVENTED("none", SIMPLE);
    static const char escaped[] = SCHEMA
        "\"shared\":{\"frames\":[{\"name\":\"\\u00e9\",\"file\":\"a\\\\b\"}]},\"profiles\":[{"
        "\"type\":\"sampled\",\"name\":\"a\\\"b\",\"unit\":\"none\",\"samples\":[[0]],"
        "\"weights\":[1]}]}";
    struct plan plans[] = {
        {br_folded_read, text, sizeof text - 1},
        {br_lines_read, text, sizeof text - 1},
        {br_trie_read, trie, sizeof trie - 1},
        {br_tree_read, trie, sizeof trie - 1},
        {br_speedscope_read, scope, sizeof scope - 1},
        {br_speedscope_read, escaped, sizeof escaped - 1},
    };
    (void)state;
    br_pool_trim(host.pool); /* buffers kept by earlier tests */
    for (size_t i = 0; i < BR_COUNT(plans); i++)
        fault_each("text profiles", no_memory, &plans[i]);
}

static void replay(const uint8_t *data, size_t len)
{
    br_profile_read_fn *const readers[] = {br_folded_read, br_lines_read, br_trie_read,
                                           br_tree_read, br_speedscope_read};
    struct br_profile_source s = {.data = data, .len = len, .from_pyroscope = true};
    for (size_t i = 0; i < BR_COUNT(readers); i++) {
        int rc;
        free(read_text(readers[i], &s, &rc));
        assert_true(rc == 0 || rc == BR_EINVAL);
    }
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(corpus_replay("folded", replay) >= 4);
    assert_true(corpus_replay("trie", replay) >= 5);
    assert_true(corpus_replay("speedscope", replay) >= 3);
}

SUITE(text_profiles)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folded),
        cmocka_unit_test(test_folded_lines),
        cmocka_unit_test(test_folded_refused),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_pyroscope),
        cmocka_unit_test(test_trie),
        cmocka_unit_test(test_trie_refused),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_perf_script),
        cmocka_unit_test(test_perf_script_variants),
        cmocka_unit_test(test_perf_script_refused),
        cmocka_unit_test(test_perf_script_without_memory),
        cmocka_unit_test(test_cpuprofile),
        cmocka_unit_test(test_cpuprofile_refused),
        cmocka_unit_test(test_cpuprofile_without_memory),
        cmocka_unit_test(test_gecko),
        cmocka_unit_test(test_gecko_rows),
        cmocka_unit_test(test_gecko_weights),
        cmocka_unit_test(test_gecko_refused),
        cmocka_unit_test(test_gecko_without_memory),
        cmocka_unit_test(test_speedscope),
        cmocka_unit_test(test_speedscope_units),
        cmocka_unit_test(test_speedscope_label),
        cmocka_unit_test(test_speedscope_refused),
        cmocka_unit_test(test_speedscope_values),
        cmocka_unit_test(test_py_spy),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_corpus),
    };
    return RUN(tests, setup, teardown);
}
