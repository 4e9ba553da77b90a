/* SPDX-License-Identifier: Apache-2.0 */
/* Tests components of the Collector that Braid has under another name, that change no data, or
 * that Braid does not support. */
#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/foreign.h"
#include "tests/support/test.h"

static const char *no_env(const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return NULL;
}

/* Reads `text` with the real registry. Appends the errors and then the warnings to `ret`. */
static struct br_config *load(const char *text, struct br_str *ret)
{
    char *uri = malloc(strlen(text) + 6), line[1200];
    assert_non_null(uri);
    (void)sprintf(uri, "yaml:%s", text);
    const char *uris[] = {uri};
    struct br_config_sources sources = {.uris = uris, .n_uris = 1, .getenv = no_env};
    struct br_config *config = NULL;
    struct br_errs errs = {0};
    int rc = br_config_load(&sources, br_components, &config, &errs);
    br_str_add(ret, "", 0);
    for (size_t i = 0; i < errs.n_errors; i++)
        br_str_printf(ret, "%s\n", br_err_format(&errs.errors[i], line, sizeof line));
    for (size_t i = 0; i < errs.n_warnings; i++)
        br_str_printf(ret, "warning: %s\n", br_err_format(&errs.warnings[i], line, sizeof line));
    assert_int_equal(rc == 0, config != NULL);
    br_errs_release(&errs);
    free(uri);
    return config;
}

static void test_accepted(void **state)
{
    (void)state;
    struct br_str messages = {0};
    struct br_config *config =
        load("receivers:\n"
             "  nop:\n"
             "  otlp:\n"
             "    protocols:\n"
             "      grpc:\n"
             "        keepalive:\n"
             "          enabled: true\n"
             "          server_parameters: {enabled: true, max_connection_age: 1m}\n"
             "          enforcement_policy: {enabled: false, min_time: 1m}\n"
             "      http: {enabled: false}\n"
             "exporters:\n"
             "  logging: {logLevel: debug, verbosity: detailed}\n"
             "  otlp:\n"
             "    endpoint: a:1\n"
             "    sending_queue: {batch: {enabled: false, min_size: 5}}\n"
             "extensions:\n"
             "  pprof: {endpoint: 'localhost:1777'}\n"
             "  zpages:\n"
             "  opamp: {server: {ws: {endpoint: 'wss://a'}}}\n"
             "  healthcheckv2:\n"
             "service:\n"
             "  extensions: [pprof, zpages, opamp, healthcheckv2]\n"
             "  pipelines:\n"
             "    traces: {receivers: [nop, otlp], exporters: [logging, otlp]}\n",
             &messages);
    assert_string_equal(
        messages.data, "warning: yaml:2:7: receivers::nop: receives nothing\n"
                       "warning: yaml:12:3: exporters::logging: is read as the exporter \"debug\"\n"
                       "warning: yaml:12:13: exporters::logging::logLevel: is read and has no "
                       "effect: set verbosity instead\n"
                       "warning: yaml:17:3: extensions::pprof: is read and has no effect: it shows "
                       "Go's own profiles; the receiver pprof is a different component\n"
                       "warning: yaml:18:3: extensions::zpages: is read and has no effect: it "
                       "shows pages about the Collector; Braid has /metrics\n"
                       "warning: yaml:19:3: extensions::opamp: is read and has no effect: it "
                       "reports to a management server, and Braid does not\n"
                       "warning: yaml:20:3: extensions::healthcheckv2: is read as the extension "
                       "\"health_check\"\n");
    assert_non_null(config);
    assert_int_equal(config->n_extensions, 1);
    assert_string_equal(config->extensions[0]->component->name, "health_check");
    br_config_free(config);
    br_str_release(&messages);
}

/* Keys of the Collector 0.165. Keys without a value are ignored. Keys that tune Go, or a method
 * that Braid does not support, are reported. The others take effect. */
static void test_newest_keys(void **state)
{
    (void)state;
    struct br_str messages = {0};
    struct br_config *config = load(
        "receivers:\n"
        "  otlp:\n"
        "    protocols:\n"
        "      grpc: {middlewares: [], auth: }\n"
        "      http: {middlewares: [], keepalive: {idle_timeout: 30s}, dialer: {timeout: 1s}}\n"
        "processors:\n"
        "  memory_limiter: {check_interval: 1s, limit_mib: 9, garbage_collector: {enabled: "
        "false}}\n"
        "  queue_batch: {batch: {partition: {idle_timeout: 1m}}}\n"
        "exporters:\n"
        "  otlp_http:\n"
        "    endpoint: http://a\n"
        "    middlewares: []\n"
        "    dialer_middleware:\n"
        "    keepalive: {idle_conn_timeout: 30s, max_idle_conns: 5}\n"
        "    disable_keep_alives: true\n"
        "service:\n"
        "  pipelines:\n"
        "    traces: {receivers: [otlp], processors: [memory_limiter, queue_batch], exporters: "
        "[otlp_http]}\n",
        &messages);
    assert_string_equal(
        messages.data,
        "warning: yaml:5:63: receivers::otlp::protocols::http::dialer: is read and has no effect: "
        "only clients open connections, so a server does not use this key\n"
        "warning: yaml:7:54: processors::memory_limiter::garbage_collector: is read and has no "
        "effect: Braid has no garbage collector\n"
        "warning: yaml:8:37: processors::queue_batch::batch::partition::idle_timeout: is read and "
        "has no effect: an idle partition is removed only when a new partition needs its place\n"
        "warning: yaml:14:41: exporters::otlp_http::keepalive::max_idle_conns: is read and has no "
        "effect: unused connections count towards max_conns_per_host, which limits them\n"
        "warning: yaml:15:5: exporters::otlp_http::disable_keep_alives: is an older spelling; "
        "write keepalive::enabled with the opposite value\n");
    assert_non_null(config);
    br_config_free(config);
    br_str_release(&messages);
    assert_null(load("receivers: {nop: }\n"
                     "exporters: {otlp: {endpoint: 'a:1', middlewares: [{id: b}], "
                     "dialer_middleware: {id: c}}}\n"
                     "service: {pipelines: {traces: {receivers: [nop], exporters: [otlp]}}}\n",
                     &messages));
    assert_non_null(
        strstr(messages.data, "exporters::otlp: \"middlewares\": Braid has no middlewares"));
    assert_non_null(
        strstr(messages.data, "exporters::otlp: \"dialer_middleware\": Braid has no middlewares"));
    br_str_release(&messages);
}

static void test_unsupported(void **state)
{
    (void)state;
    struct br_str messages = {0};
    assert_null(load("receivers: {otlp: {protocols: {grpc: {auth: {authenticator: oidc}}}}}\n"
                     "processors: {geoip: }\n"
                     "exporters: {otlp: {endpoint: 'a:1', auth: {authenticator: sigv4auth/b}}}\n"
                     "service:\n"
                     "  pipelines:\n"
                     "    traces: {receivers: [otlp], processors: [geoip], exporters: [otlp]}\n",
                     &messages));
    assert_string_equal(
        messages.data,
        "yaml:1:61: receivers::otlp::protocols::grpc::auth::authenticator: Braid does not have "
        "the authenticator \"oidc\"\n"
        "yaml:2:14: processors: \"geoip\": Braid does not support this processor, which adds the "
        "geographic location of IP addresses. The backend, or a Collector in front of Braid, can "
        "add the location.\n"
        "yaml:3:59: exporters::otlp::auth::authenticator: Braid does not have the authenticator "
        "\"sigv4auth/b\"\n");
    br_str_release(&messages);
}

/* A misspelt name of a component that only the Collector has must not be corrected to another
 * one. */
static void test_misspelt(void **state)
{
    (void)state;
    struct br_str messages = {0};
    assert_null(load("receivers: {nop: , skywalkin: }\n"
                     "processors: {geoipp: , resorce: }\n"
                     "exporters: {nop: }\n"
                     "service: {pipelines: {traces: {receivers: [nop], exporters: [nop]}}}\n",
                     &messages));
    assert_string_equal(messages.data,
                        "yaml:1:20: receivers: unknown receiver \"skywalkin\"; did you mean "
                        "\"skywalking\"? Braid does not support it: it receives spans from "
                        "SkyWalking's agents\n"
                        "yaml:2:14: processors: unknown processor \"geoipp\"; did you mean "
                        "\"geoip\"? Braid does not support it: it adds the geographic location of "
                        "IP addresses\n"
                        "yaml:2:24: processors: unknown processor \"resorce\"; did you mean "
                        "\"resource\"? \"braid components\" lists all\n"
                        "warning: yaml:1:18: receivers::nop: receives nothing\n");
    br_str_release(&messages);
}

static void test_unsupported_without_a_value(void **state)
{
    (void)state;
    struct br_str messages = {0};
    struct br_config *config =
        load("receivers: {otlp: {protocols: {http: {endpoint: 'localhost:0', auth: }}}}\n"
             "exporters: {otlp: {endpoint: 'a:1', auth: null, sending_queue: {storage: }}}\n"
             "service: {pipelines: {traces: {receivers: [otlp], exporters: [otlp]}}}\n",
             &messages);
    assert_non_null(config);
    assert_string_equal(messages.data ? messages.data : "", "");
    br_config_free(config);
    br_str_release(&messages);
}

/* Numbers are written without an exponent. */
static void test_range(void **state)
{
    (void)state;
    struct br_str messages = {0};
    assert_null(load("receivers: {nop: }\n"
                     "exporters: {otlp: {endpoint: 'a:1', sending_queue: {queue_size: 0}}}\n"
                     "service: {pipelines: {traces: {receivers: [nop], exporters: [otlp]}}}\n",
                     &messages));
    assert_string_equal(messages.data,
                        "yaml:2:65: exporters::otlp::sending_queue::queue_size: must be a whole "
                        "number from 1 to 9007199254740992, got \"0\"\n"
                        "warning: yaml:1:18: receivers::nop: receives nothing\n");
    br_str_release(&messages);
}

/* A row in the table of foreign components must not hide a component of the registry. */
static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; br_components[i]; i++) {
        const struct br_component *c = br_components[i];
        if (br_foreign_find(c->kind, c->name) || (c->alias && br_foreign_find(c->kind, c->alias)))
            fail_msg("config/foreign.c: remove the row of the %s `%s`, which Braid has",
                     br_kind_name(c->kind), c->name);
    }
    assert_non_null(
        br_component_find(br_components, BR_EXPORTER, br_foreign_find(BR_EXPORTER, "logging")->as));
    assert_non_null(br_component_find(br_components, BR_EXTENSION,
                                      br_foreign_find(BR_EXTENSION, "health_check_v2")->as));
}

/* Names of components of the Collector 0.165 and of Jaeger, also in their older spellings. */
static void test_names(void **state)
{
    (void)state;
    static const struct {
        enum br_kind kind;
        const char *name;
        bool known;
    } rows[] = {
        {BR_RECEIVER, "otlp", true},
        {BR_RECEIVER, "postgresql", true},
        {BR_RECEIVER, "kafka_metrics", true},
        {BR_RECEIVER, "kafkametrics", true},
        {BR_RECEIVER, "awscontainerinsightreceiver", true},
        {BR_RECEIVER, "postgres", false},
        {BR_RECEIVER, "kafkametrics_", true},
        {BR_RECEIVER, "kafkametricss", false},
        {BR_PROCESSOR, "adaptive_sampling", true},
        {BR_PROCESSOR, "batsh", false},
        {BR_PROCESSOR, "awsemf", false},
        {BR_EXPORTER, "awsemf", true},
        {BR_EXPORTER, "", false},
        {BR_CONNECTOR, "signal_to_metrics", true},
        {BR_EXTENSION, "k8s_leader_elector", true},
        {BR_EXTENSION, "jaeger_storage", true},
        {BR_EXTENSION, "otlp_encoding", true},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++)
        if (br_foreign_is_collectors(rows[i].kind, rows[i].name) != rows[i].known)
            fail_msg("%s \"%s\"", br_kind_name(rows[i].kind), rows[i].name);
}

SUITE(foreign)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),    cmocka_unit_test(test_newest_keys),
        cmocka_unit_test(test_unsupported), cmocka_unit_test(test_unsupported_without_a_value),
        cmocka_unit_test(test_misspelt),    cmocka_unit_test(test_range),
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_names),
    };
    return RUN(tests, NULL, NULL);
}
