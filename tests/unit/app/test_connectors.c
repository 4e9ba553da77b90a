/* SPDX-License-Identifier: Apache-2.0 */
/* How pipelines are connected by connectors: which configurations are rejected. */
#include "app/config.h"
#include "base/mem.h"
#include "tests/support/test.h"

#define HEAD                                                                                       \
    "receivers: {nop: }\nprocessors: {batch: , filter/a: {error_mode: ignore}}\n"                  \
    "exporters: {nop: }\n"

/* Loads a configuration. Returns the first error, or "" if there is none. */
static const char *load(const char *yaml)
{
    static char text[1024];
    char uri[4096];
    const char *uris[] = {uri};
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    struct br_config_sources sources = {.uris = uris, .n_uris = 1};
    (void)snprintf(uri, sizeof uri, "yaml:%s", yaml);
    int rc = br_config_load(&sources, br_components, &config, &errs);
    text[0] = '\0';
    if (rc)
        (void)snprintf(text, sizeof text, "%s: %s", errs.errors[0].path, errs.errors[0].text);
    br_errs_release(&errs);
    br_config_free(config);
    return text;
}

static void connected_pipelines_load(void **state)
{
    (void)state;
    assert_string_equal(load(HEAD "connectors: {forward: }\nservice:\n  pipelines:\n"
                                  "    traces/a: {receivers: [nop], exporters: [forward]}\n"
                                  "    traces/b: {receivers: [forward], exporters: [nop]}\n"
                                  "    profiles/a: {receivers: [nop], exporters: [forward]}\n"
                                  "    profiles/b: {receivers: [forward], exporters: [nop]}\n"),
                        "");
}

static void a_connector_needs_both_ends(void **state)
{
    (void)state;
    assert_non_null(strstr(load(HEAD "connectors: {forward: }\nservice:\n  pipelines:\n"
                                     "    traces: {receivers: [nop], exporters: [forward]}\n"),
                           "connectors::forward: is an exporter of a traces pipeline, but not a "
                           "receiver of any traces pipeline"));
    assert_non_null(strstr(load(HEAD "connectors: {forward: }\nservice:\n  pipelines:\n"
                                     "    traces: {receivers: [forward], exporters: [nop]}\n"),
                           "connectors::forward: is a receiver of a traces pipeline, but not an "
                           "exporter of any traces pipeline"));
}

/* A connector does not translate one signal to another. */
static void both_ends_have_the_same_signal(void **state)
{
    (void)state;
    assert_non_null(strstr(load(HEAD "connectors: {forward: }\nservice:\n  pipelines:\n"
                                     "    traces: {receivers: [nop], exporters: [forward]}\n"
                                     "    profiles: {receivers: [forward], exporters: [nop]}\n"),
                           "connectors::forward: is an exporter of a traces pipeline, but not a "
                           "receiver of any traces pipeline"));
}

/* The text has the form of the Collector's error (service/internal/graph, cycleErr). */
static void a_cycle_is_described(void **state)
{
    (void)state;
    assert_string_equal(
        load(HEAD "connectors: {forward: , forward/b: }\nservice:\n  pipelines:\n"
                  "    traces/in: {receivers: [nop], exporters: [forward/b]}\n"
                  "    traces/a: {receivers: [forward/b], processors: [batch, filter/a], "
                  "exporters: [nop, forward]}\n"
                  "    traces/b: {receivers: [forward], exporters: [forward/b]}\n"),
        "service::pipelines: cycle detected: connector \"forward/b\" (traces to traces) -> "
        "processor \"batch\" in pipeline \"traces/a\" -> processor \"filter/a\" in pipeline "
        "\"traces/a\" -> connector \"forward\" (traces to traces) -> connector \"forward/b\" "
        "(traces to traces)");
}

static void a_connector_to_its_own_pipeline_is_a_cycle(void **state)
{
    (void)state;
    assert_string_equal(
        load(HEAD "connectors: {forward: }\nservice:\n  pipelines:\n"
                  "    traces: {receivers: [nop, forward], exporters: [forward]}\n"),
        "service::pipelines: cycle detected: connector \"forward\" (traces to traces) -> connector "
        "\"forward\" (traces to traces)");
}

/* Many paths lead from the first to the last pipeline, but there is no cycle. */
static void pipelines_may_split_and_join(void **state)
{
    (void)state;
    assert_string_equal(
        load(HEAD "connectors: {forward/1: , forward/2: , forward/3: }\nservice:\n  pipelines:\n"
                  "    traces/a: {receivers: [nop], exporters: [forward/1, forward/2]}\n"
                  "    traces/b: {receivers: [forward/1], exporters: [forward/3]}\n"
                  "    traces/c: {receivers: [forward/2], exporters: [forward/3]}\n"
                  "    traces/d: {receivers: [forward/3], exporters: [nop]}\n"
                  "    traces/e: {receivers: [forward/3, forward/1], exporters: [nop]}\n"),
        "");
}

SUITE(connectors)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connected_pipelines_load),
        cmocka_unit_test(a_connector_needs_both_ends),
        cmocka_unit_test(both_ends_have_the_same_signal),
        cmocka_unit_test(a_cycle_is_described),
        cmocka_unit_test(a_connector_to_its_own_pipeline_is_a_cycle),
        cmocka_unit_test(pipelines_may_split_and_join),
    };
    return RUN(tests, NULL, NULL);
}
