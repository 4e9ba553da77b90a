/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/memory.h"
#include "tests/support/fake_root.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_memory_limiter_processor;

#define MIB (1u << 20)
#define TRACES                                                                                     \
    "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"a\"},{\"name\":\"b\"}]}]}]}"
#define LABELS "processor=\"memory_limiter\""

static double metric(struct rig *r, const char *what)
{
    char name[96];
    (void)snprintf(name, sizeof name, "otelcol_processor_memory_limiter_%s", what);
    return rig_metric(r, name, LABELS);
}

/* The limit is 10 MiB and the spike limit is 4 MiB, so the soft limit is 6 MiB. The test uses
 * memory up to each of these limits. */
static void levels_of_use(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_memory_limiter_processor,
                            "{check_interval: 1s, limit_mib: 10, spike_limit_mib: 4}");
    size_t before = br_mem_live();
    /* the memory of the test itself is small enough to be ignored below */
    assert_true(before < MIB);
    assert_int_equal(br_memory_soft(&r->memory), 6 * MIB);
    assert_int_equal(br_memory_hard(&r->memory), 10 * MIB);
    assert_false(br_host_over_limit(&r->host));
    assert_string_equal(rig_run(r, BR_TRACES, TRACES), TRACES);

    struct br_buf *held = br_buf_new(r->pool, 7 * MIB);
    assert_true(br_host_over_limit(&r->host)); /* receivers reject new requests */
    /* requests that have already been received are not rejected */
    assert_string_equal(rig_run(r, BR_TRACES, TRACES), TRACES);
    assert_int_equal(metric(r, "accepted_spans"), 4);
    assert_int_equal(metric(r, "refused_spans"), 0);

    void *more = br_malloc(4 * MIB); /* memory of any category counts */
    assert_string_equal(rig_run(r, BR_TRACES, TRACES), "");
    assert_int_equal(r->outcome.verdict, BR_RETRY);
    assert_int_equal(r->outcome.status, BR_STATUS_UNAVAILABLE);
    assert_true(r->outcome.delay_ms > 0);
    assert_int_equal(metric(r, "refused_spans"), 2);
    assert_int_equal(metric(r, "accepted_profile_samples"), 0);
    assert_int_equal(metric(r, "refused_profile_samples"), 0);

    br_free(more);
    br_buf_unref(held);
    assert_false(br_host_over_limit(&r->host));
    assert_string_equal(rig_run(r, BR_TRACES, TRACES), TRACES);
    rig_free(r);
}

static void profiles(void **state)
{
    (void)state;
    static const char in[] =
        "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":["
        "{\"values\":[\"1\"]},{\"values\":[\"1\"]},{\"values\":[\"1\"]}]}]}]}],"
        "\"dictionary\":{\"stringTable\":[\"\"]}}";
    struct rig *r = rig_new(&br_memory_limiter_processor, "{check_interval: 1s, limit_mib: 10}");
    assert_string_equal(rig_run(r, BR_PROFILES, in), in);
    assert_int_equal(metric(r, "accepted_profile_samples"), 3);
    struct br_buf *held = br_buf_new(r->pool, 11 * MIB);
    assert_string_equal(rig_run(r, BR_PROFILES, in), "");
    assert_int_equal(metric(r, "refused_profile_samples"), 3);
    br_buf_unref(held);
    rig_free(r);
}

static void defaults(void **state)
{
    (void)state;
    uint64_t total;
    assert_true(br_memory_total("", &total));
    struct rig *r = rig_new(&br_memory_limiter_processor, "{check_interval: 1s, limit_mib: 10}");
    assert_int_equal(br_memory_soft(&r->memory), 8 * MIB); /* minus a fifth */
    rig_free(r);
    r = rig_new(&br_memory_limiter_processor,
                "{check_interval: 1s, limit_percentage: 50, spike_limit_percentage: 30}");
    assert_in_range(br_memory_soft(&r->memory), total / 5 - 100, total / 5 + 100);
    rig_free(r);
    r = rig_new(&br_memory_limiter_processor,
                "{check_interval: 1s, limit_percentage: 50, limit_mib: 10}");
    assert_int_equal(br_memory_soft(&r->memory), 8 * MIB);
    rig_free(r);
}

/* If there are several limiters, the smallest limit counts, in any order of their start. */
static void the_smallest_limit_counts(void **state)
{
    (void)state;
    for (int small_first = 0; small_first < 2; small_first++) {
        struct rig *r = rig_new(&br_memory_limiter_processor,
                                small_first ? "{check_interval: 1s, limit_mib: 10}"
                                            : "{check_interval: 1s, limit_mib: 20}");
        const struct br_component *c = &br_memory_limiter_processor;
        struct br_node other = r->node;
        struct rig *donor = rig_new(c, small_first ? "{check_interval: 1s, limit_mib: 20}"
                                                   : "{check_interval: 1s, limit_mib: 10}");
        other.config = donor->node.config;
        other.state = calloc(1, c->state_size);
        assert_int_equal(c->create(&other, NULL), 0);
        assert_int_equal(c->start(&other, NULL), 0);
        assert_int_equal(br_memory_soft(&r->memory), 8 * MIB);
        c->destroy(&other);
        free(other.state);
        rig_free(donor);
        rig_free(r);
    }
}

/* The limit applies to the process: a request may use all of it, for any number of workers. */
static void the_limit_applies_to_the_process(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_memory_limiter_processor, "{check_interval: 1s, limit_mib: 80}");
    const struct br_component *c = &br_memory_limiter_processor;
    c->destroy(&r->node);
    r->host.n_workers = 4;
    assert_int_equal(c->start(&r->node, NULL), 0);
    assert_int_equal(br_memory_hard(&r->memory), 80 * MIB);
    assert_true(br_pool_fits(r->pool, 64 * MIB));
    assert_true(br_memory_largest(&r->memory) > 64 * MIB);
    rig_free(r);
}

static void wrong_configs(void **state)
{
    static const char *const configs[][2] = {
        {"{limit_mib: 10}", "x::check_interval: must be greater than zero"},
        {"{check_interval: 0s, limit_mib: 10}",
         "test.yaml:1:18: x::check_interval: must be greater"},
        {"{check_interval: 1s}", "x: limit_mib or limit_percentage must be greater than zero"},
        {"{check_interval: 1s, limit_mib: 10, spike_limit_mib: 10}",
         "x::spike_limit_mib: must be smaller than limit_mib"},
        {"{check_interval: 1s, limit_percentage: 10, spike_limit_percentage: 20}",
         "x::spike_limit_percentage: must be smaller than limit_percentage"},
        {"{check_interval: 1s, limit_percentage: 101}", "from 0 to 100"},
        {"{check_interval: 1s, limit_mib: 1, min_gc_interval_when_soft_limited: 10s}",
         "warning: test.yaml:1:36: x::min_gc_interval_when_soft_limited: is read and has no "
         "effect"},
    };
    (void)state;
    rig_expect_errors_in(&br_memory_limiter_processor, configs, BR_COUNT(configs));
    assert_string_equal(rig_errors(&br_memory_limiter_processor,
                                   "{check_interval: 1s, limit_mib: 4000, spike_limit_mib: 800}"),
                        "");
}

/* --- The amount of memory, from files in Linux's format (proc(5), cgroups(7)) ----------------- */

static uint64_t total(const struct fake_root *root)
{
    uint64_t v = 0;
    return br_memory_total(root->path, &v) ? v : 0;
}

static void total_of_memory(void **state)
{
    (void)state;
    struct fake_root root = fake_root_new();
    assert_int_equal(total(&root), 0);
    fake_root_put(&root, "/proc/meminfo", "MemTotal:        2048 kB\nMemFree:           10 kB\n");
    assert_int_equal(total(&root), 2 * MIB);
    fake_root_put(&root, "/proc/self/cgroup", "0::/\n");
    assert_int_equal(total(&root), 2 * MIB);
    /* in a container with a cgroup namespace */
    fake_root_put(&root, "/sys/fs/cgroup/memory.max", "1000000\n");
    assert_int_equal(total(&root), 1000000);
    fake_root_put(&root, "/sys/fs/cgroup/memory.max", "max\n");
    assert_int_equal(total(&root), 2 * MIB);
    /* the limit is higher than the machine's memory */
    fake_root_put(&root, "/sys/fs/cgroup/memory.max", "90000000\n");
    assert_int_equal(total(&root), 2 * MIB);
    fake_root_put(&root, "/proc/self/cgroup", "0::/a.slice/b.service\n");
    fake_root_put(&root, "/sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
    /* the parent's limit counts, too */
    fake_root_put(&root, "/sys/fs/cgroup/a.slice/memory.max", "700000\n");
    assert_int_equal(total(&root), 700000);
    fake_root_put(&root, "/sys/fs/cgroup/a.slice/b.service/memory.max", "600000\n");
    assert_int_equal(total(&root), 600000);
    fake_root_put(&root, "/proc/self/cgroup", "12:cpu,cpuacct:/x\n7:memory:/docker/abc\n0::/\n");
    assert_int_equal(total(&root), 2 * MIB);
    fake_root_put(&root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(total(&root), 2 * MIB);
    /* the path of the group in its own namespace */
    fake_root_put(&root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
    assert_int_equal(total(&root), 500000);
    fake_root_put(&root, "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "400000\n");
    assert_int_equal(total(&root), 400000);
    fake_root_free(&root);
}

SUITE(memory_limiter)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_of_use),
        cmocka_unit_test(profiles),
        cmocka_unit_test(defaults),
        cmocka_unit_test(the_smallest_limit_counts),
        cmocka_unit_test(the_limit_applies_to_the_process),
        cmocka_unit_test(wrong_configs),
        cmocka_unit_test(total_of_memory),
    };
    return RUN(tests, NULL, NULL);
}
