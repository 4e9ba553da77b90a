/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the extension adaptive and pipeline/shed. The test controls the CPU time and the clock. The
 * expected steps and rates are those in extensions/adaptive/README.md.
 */
#include "base/mem.h"
#include "core/shed.h"
#include "extensions/adaptive/cpus.h"
#include "tests/support/fake_root.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/node_rig.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_adaptive_extension;
extern const struct br_component br_otlp_receiver;

#define MIB (1u << 20)
#define CPUS 2

static void begin(struct node_rig *f, const char *yaml)
{
    node_rig_begin(f, &br_adaptive_extension, yaml);
}

static void start(struct node_rig *f, const char *yaml)
{
    node_rig_start(f, &br_adaptive_extension, yaml);
    fake_host_iterate(f->h);
}

/* Uses the given percentage of the two CPUs for `seconds` seconds. Returns the step at the end. */
static unsigned use_cpus(struct node_rig *f, unsigned percentage, unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++) {
        f->h->cpu_ns += percentage * 10000000ull * CPUS;
        fake_host_advance(f->h, 1000);
    }
    return br_shed_step(&f->h->host);
}

static double gauge(struct node_rig *f, const char *name)
{
    return fake_host_metric(f->h, name, "extension=\"adaptive\"");
}

/* --- The CPU ---------------------------------------------------------------------------------- */

static void steps_rise_at_checks(void **state)
{
    struct node_rig f;
    (void)state;
    start(&f, "cpus: 2");
    assert_int_equal(use_cpus(&f, 79, 30), BR_SHED_NONE);
    assert_int_equal(use_cpus(&f, 80, 1), BR_SHED_HALF);
    assert_true(gauge(&f, "braid_adaptive_step") == 1);
    assert_true(gauge(&f, "braid_adaptive_cpu_percentage") == 80);
    assert_int_equal(use_cpus(&f, 100, 1), BR_SHED_MOST);
    assert_int_equal(use_cpus(&f, 100, 1), BR_SHED_PROFILES);
    assert_int_equal(use_cpus(&f, 100, 1), BR_SHED_TRACES);
    assert_int_equal(use_cpus(&f, 100, 9), BR_SHED_TRACES);
    node_rig_end(&f);
}

/* Between the two thresholds, the step neither rises nor falls. */
static void steps_stay_between_the_thresholds(void **state)
{
    struct node_rig f;
    (void)state;
    start(&f, "cpus: 2");
    assert_int_equal(use_cpus(&f, 70, 60), BR_SHED_NONE);
    assert_int_equal(use_cpus(&f, 90, 2), BR_SHED_MOST);
    assert_int_equal(use_cpus(&f, 79, 60), BR_SHED_MOST);
    assert_int_equal(use_cpus(&f, 60, 60), BR_SHED_MOST);
    node_rig_end(&f);
}

/* The step falls by one after 10 s below the threshold. The 10 s begin at a check. If the use rises
 * above the threshold, they begin again. */
static void steps_fall_slowly(void **state)
{
    struct node_rig f;
    (void)state;
    start(&f, "cpus: 2");
    assert_int_equal(use_cpus(&f, 90, 3), BR_SHED_PROFILES);
    assert_int_equal(use_cpus(&f, 59, 10), BR_SHED_PROFILES);
    assert_int_equal(use_cpus(&f, 59, 1), BR_SHED_MOST);
    assert_int_equal(use_cpus(&f, 10, 10), BR_SHED_MOST);
    assert_int_equal(use_cpus(&f, 61, 1), BR_SHED_MOST);
    assert_int_equal(use_cpus(&f, 10, 10), BR_SHED_MOST);
    assert_int_equal(use_cpus(&f, 10, 1), BR_SHED_HALF);
    assert_int_equal(use_cpus(&f, 10, 5), BR_SHED_HALF);
    assert_int_equal(use_cpus(&f, 85, 1), BR_SHED_MOST);
    assert_int_equal(use_cpus(&f, 0, 22), BR_SHED_NONE);
    assert_int_equal(use_cpus(&f, 0, 22), BR_SHED_NONE);
    assert_true(gauge(&f, "braid_adaptive_step") == 0);
    node_rig_end(&f);
}

static void options(void **state)
{
    struct node_rig f;
    (void)state;
    start(&f, "{cpus: 2, shed_traces: false, cpu_percentage: 30, resume_percentage: 5, "
              "recovery: 0s}");
    assert_int_equal(use_cpus(&f, 29, 3), BR_SHED_NONE);
    assert_int_equal(use_cpus(&f, 30, 9), BR_SHED_PROFILES);
    assert_int_equal(use_cpus(&f, 5, 9), BR_SHED_PROFILES);
    assert_int_equal(use_cpus(&f, 4, 2), BR_SHED_MOST);
    node_rig_end(&f);
    start(&f, "{cpus: 1, check_interval: 10s}"); /* 50 % of the two CPUs is 100 % of one CPU */
    assert_int_equal(use_cpus(&f, 50, 9), BR_SHED_NONE);
    assert_int_equal(use_cpus(&f, 50, 1), BR_SHED_HALF);
    node_rig_end(&f);
    start(&f, "{cpus: 2, cpu_percentage: 0, resume_percentage: 0}");
    assert_int_equal(use_cpus(&f, 100, 60), BR_SHED_NONE);
    node_rig_end(&f);
}

static void a_second_instance_is_an_error(void **state)
{
    struct node_rig f;
    struct br_node other;
    struct br_err err = {0};
    (void)state;
    start(&f, "cpus: 2");
    other = rig_node(&br_adaptive_extension, "cpus: 2", &f.h->host, &f.arena, NULL);
    assert_int_equal(other.component->create(&other, &err), 0);
    assert_int_equal(other.component->start(&other, &err), BR_EINVAL);
    assert_non_null(strstr(err.text, "only one adaptive extension"));
    other.component->destroy(&other);
    br_free(other.state);
    node_rig_end(&f);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* Sets the memory limit so that the live memory is the given percentage of it. */
static unsigned use_memory(struct node_rig *f, unsigned percentage)
{
    f->h->memory.soft = br_memory_used(&f->h->memory) * 100 / percentage;
    return br_shed_step(&f->h->host);
}

/* The step rises at 70, 80 and 90 % of the memory limit. It falls when the use is 5 points
 * lower. */
static void steps_follow_memory(void **state)
{
    static const struct {
        unsigned percentage, step;
    } levels[] = {{1, 0},  {69, 0}, {71, 1}, {79, 1}, {66, 1},  {64, 0}, {81, 2},  {76, 2}, {74, 1},
                  {91, 3}, {86, 3}, {84, 2}, {99, 3}, {120, 3}, {66, 1}, {120, 3}, {10, 0}};
    struct node_rig f;
    (void)state;
    start(&f, "cpus: 2");
    struct br_buf *held = br_buf_new(f.h->host.pool, 64 * MIB);
    assert_int_equal(br_shed_step(&f.h->host), BR_SHED_NONE); /* without a limit */
    for (size_t i = 0; i < BR_COUNT(levels); i++)
        if (use_memory(&f, levels[i].percentage) != levels[i].step)
            fail_msg("%zu: %u%% give step %u", i, levels[i].percentage, br_shed_step(&f.h->host));
    /* the higher step of CPU and memory applies */
    assert_int_equal(use_memory(&f, 71), BR_SHED_HALF);
    assert_int_equal(use_cpus(&f, 90, 3), BR_SHED_PROFILES);
    assert_int_equal(use_memory(&f, 10), BR_SHED_PROFILES);
    assert_int_equal(use_cpus(&f, 0, 33), BR_SHED_NONE);
    assert_int_equal(use_memory(&f, 81), BR_SHED_MOST);
    br_buf_unref(held);
    assert_int_equal(br_shed_step(&f.h->host), BR_SHED_NONE);
    node_rig_end(&f);
    start(&f, "{cpus: 2, memory_percentage: 0}");
    held = br_buf_new(f.h->host.pool, 64 * MIB);
    assert_int_equal(use_memory(&f, 99), BR_SHED_NONE);
    br_buf_unref(held);
    node_rig_end(&f);
}

/* --- Shares of dropped records ---------------------------------------------------------------- */

static void shares_of_each_step(void **state)
{
    static const struct {
        double dropped;
        bool profiles, traces; /* rejected */
    } steps[] = {{0, false, false},
                 {0.5, false, false},
                 {0.75, false, false},
                 {0, true, false},
                 {0, true, true}};
    struct node_rig f;
    (void)state;
    start(&f, "cpus: 2");
    for (unsigned step = 0; step < BR_COUNT(steps); step++) {
        br_shed_set(&f.h->host, step, 0);
        unsigned n = 0;
        for (int i = 0; i < 10000; i++) {
            n += br_shed_drops(&f.h->host, BR_PROFILES);
            assert_false(br_shed_drops(&f.h->host, BR_TRACES));
        }
        /* five standard deviations of 10,000 draws are at most 250 */
        assert_in_range(n + 1000, steps[step].dropped * 10000 + 750,
                        steps[step].dropped * 10000 + 1250);
        assert_true(steps[step].dropped > 0 || n == 0);
        assert_int_equal(br_shed_refuses(&f.h->host, BR_PROFILES), steps[step].profiles);
        assert_int_equal(br_shed_refuses(&f.h->host, BR_TRACES), steps[step].traces);
    }
    assert_true(
        fake_host_metric(f.h, "braid_shed_requests", "signal=\"profiles\",how=\"refused\"") == 2);
    assert_true(fake_host_metric(f.h, "braid_shed_requests", "signal=\"traces\",how=\"refused\"") ==
                1);
    node_rig_end(&f);
}

struct answers {
    unsigned n_ok, n_partial, n_refused;
};

/* Sends requests of three records each. */
static struct answers send(struct node_rig *f, enum br_signal signal, unsigned n)
{
    struct answers a = {0};
    struct wire w = {0};
    items_request(&w, signal, 1, 3, 1);
    for (unsigned i = 0; i < n; i++) {
        struct fake_request *r = fake_request_new(
            f->h, "http", signal == BR_TRACES ? "/v1/traces" : "/v1development/profiles");
        fake_request_header(r, "content-type", "application/x-protobuf");
        fake_request_send(r, w.data, w.len);
        fake_host_iterate(f->h);
        const struct fake_reply *reply = fake_request_reply(r);
        a.n_ok += reply->status == 200 && reply->body_len == 0;
        a.n_refused += reply->status == 503 && strstr(reply->headers, "retry-after: 5\n");
        /* ExportProfilesServiceResponse{partial_success{one profile rejected, error_message}} */
        a.n_partial += reply->status == 200 && reply->body_len > 6 && reply->body[0] == 0x0a &&
                       memcmp(reply->body + 2, "\x08\x01\x12", 3) == 0;
        fake_request_free(r);
    }
    wire_free(&w);
    return a;
}

static void receivers_drop_by_step(void **state)
{
    struct node_rig f;
    struct br_node receiver;
    struct fake_sink sink;
    (void)state;
    start(&f, "cpus: 2");
    receiver = rig_node(&br_otlp_receiver, "protocols: {http: }", &f.h->host, &f.arena, NULL);
    fake_sink_init(&sink, &f.h->host);
    receiver.next[BR_TRACES] = receiver.next[BR_PROFILES] = &sink.consumer;
    assert_int_equal(receiver.component->create(&receiver, NULL), 0);
    assert_int_equal(receiver.component->start(&receiver, NULL), 0);

    assert_int_equal(send(&f, BR_PROFILES, 20).n_ok, 20);
    use_cpus(&f, 90, 2);
    struct answers a = send(&f, BR_PROFILES, 100);
    assert_in_range(a.n_ok, 1, 99);
    assert_int_equal(a.n_partial, 100 - a.n_ok);
    assert_int_equal(sink.n_items, 20 + a.n_ok);
    assert_true(fake_host_dropped(f.h, BR_PROFILES, "shed") == 3.0 * a.n_partial);
    assert_true(fake_host_dropped(f.h, BR_PROFILES, NULL) == 3.0 * a.n_partial);
    assert_int_equal(send(&f, BR_TRACES, 5).n_ok, 5);
    use_cpus(&f, 90, 1);
    assert_int_equal(send(&f, BR_PROFILES, 5).n_refused, 5);
    assert_int_equal(send(&f, BR_TRACES, 5).n_ok, 5);
    use_cpus(&f, 90, 1);
    assert_int_equal(send(&f, BR_TRACES, 5).n_refused, 5);
    assert_true(fake_host_dropped(f.h, BR_TRACES, NULL) == 0);
    use_cpus(&f, 0, 44);
    assert_int_equal(send(&f, BR_PROFILES, 5).n_ok, 5);
    fake_host_check_ledger(f.h);

    receiver.component->destroy(&receiver);
    br_free(receiver.state);
    fake_sink_free(&sink);
    node_rig_end(&f);
}

/* --- Without memory --------------------------------------------------------------------------- */

static void scenario(void *arg)
{
    struct node_rig f;
    struct br_err err = {0};
    (void)arg;
    begin(&f, "cpus: 2");
    fault_start();
    int rc = f.node.component->create(&f.node, &err);
    if (!rc)
        rc = f.node.component->start(&f.node, &err);
    if (!rc) /* after the start, the extension does not allocate memory */
        assert_int_equal(use_cpus(&f, 90, 4), BR_SHED_TRACES);
    fault_stop();
    assert_true(rc == 0 || fault_failed());
    node_rig_end(&f);
}

static void without_memory(void **state)
{
    (void)state;
    fault_each("adaptive", scenario, NULL);
}

/* The extension is destroyed before its first step was sent to the workers. */
static void destroyed_at_once(void **state)
{
    struct node_rig f;
    (void)state;
    begin(&f, "cpus: 2");
    assert_int_equal(f.node.component->create(&f.node, NULL), 0);
    assert_int_equal(f.node.component->start(&f.node, NULL), 0);
    node_rig_end(&f);
    begin(&f, "cpus: 2");
    node_rig_end(&f);
}

/* --- The number of CPUs, from files in Linux's format (cgroups(7), kernel's cgroup-v2.rst) ---- */

static void number_of_cpus(void **state)
{
    (void)state;
    struct fake_root root = fake_root_new();
    assert_true(adaptive_quota(root.path) == 0);
    fake_root_put(&root, "/proc/self/cgroup", "0::/a.slice/b.service\n");
    assert_true(adaptive_quota(root.path) == 0);
    fake_root_put(&root, "/sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n");
    assert_true(adaptive_quota(root.path) == 0);
    fake_root_put(&root, "/sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n");
    assert_true(adaptive_quota(root.path) == 1.5);
    fake_root_put(&root, "/sys/fs/cgroup/a.slice/b.service/cpu.max", "25000 50000\n");
    assert_true(adaptive_quota(root.path) == 0.5);
    fake_root_put(&root, "/sys/fs/cgroup/a.slice/b.service/cpu.max", "400000 100000\n");
    assert_true(adaptive_quota(root.path) == 1.5);
    /* the file only has the first of its two fields */
    fake_root_put(&root, "/sys/fs/cgroup/a.slice/cpu.max", "150000\n");
    assert_true(adaptive_quota(root.path) == 4);
    fake_root_put(&root, "/proc/self/cgroup", "4:cpu,cpuacct:/x\n");
    assert_true(adaptive_quota(root.path) == 0);
    fake_root_free(&root);

    assert_true(adaptive_cpus(1, 0) == 1);
    assert_true(adaptive_cpus(1, 0.25) == 0.25);
    assert_true(adaptive_cpus(1, 4) == 1);
    assert_true(adaptive_cpus(100000, 0) < 100000); /* 100,000 is more CPUs than any machine has */
}

static void wrong_configs(void **state)
{
    static const char *const configs[][2] = {
        {"{resume_percentage: 80}", "x::resume_percentage: must be smaller than cpu_percentage"},
        {"{cpu_percentage: 50}", "x::resume_percentage: must be smaller than cpu_percentage"},
        {"{cpu_percentage: 101}", "x::cpu_percentage: must be"},
        {"{memory_percentage: 100}", "x::memory_percentage: must be"},
        {"{check_interval: 99ms}", "test.yaml:1:18: x::check_interval: must be 100ms or more"},
        {"{cpu_percentage: 0, memory_percentage: 0}",
         "x::cpu_percentage: or memory_percentage must be greater than zero"},
    };
    (void)state;
    rig_expect_errors_in(&br_adaptive_extension, configs, BR_COUNT(configs));
    assert_string_equal(rig_errors(&br_adaptive_extension, ""), "");
    assert_string_equal(rig_errors(&br_adaptive_extension, "cpu_percentage: 0"), "");
    assert_string_equal(rig_errors(&br_adaptive_extension, "memory_percentage: 0"), "");
}

SUITE(adaptive)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_rise_at_checks),
        cmocka_unit_test(steps_stay_between_the_thresholds),
        cmocka_unit_test(steps_fall_slowly),
        cmocka_unit_test(options),
        cmocka_unit_test(a_second_instance_is_an_error),
        cmocka_unit_test(steps_follow_memory),
        cmocka_unit_test(shares_of_each_step),
        cmocka_unit_test(receivers_drop_by_step),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(destroyed_at_once),
        cmocka_unit_test(number_of_cpus),
        cmocka_unit_test(wrong_configs),
    };
    return RUN(tests, NULL, NULL);
}
