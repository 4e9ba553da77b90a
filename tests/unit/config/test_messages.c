/* SPDX-License-Identifier: Apache-2.0 */
/* Common mistakes, each with the line that reports it: place, path, problem, and what would be
 * right. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/support/test.h"

#define RECEIVERS "receivers: {otlp: {protocols: {grpc: {endpoint: 'localhost:1'}}}}\n"
#define SERVICE "service: {pipelines: {traces: {receivers: [otlp], exporters: [otlp]}}}\n"
#define WITH(processors)                                                                           \
    "service: {pipelines: {traces: {receivers: [otlp], processors: [" processors                   \
    "], exporters: [otlp]}}}\n"
/* The tested line is line 4. */
#define EXPORTER(line) RECEIVERS "exporters:\n  otlp:\n    " line "\n    endpoint: a:1\n" SERVICE
#define PROCESSORS(section, list)                                                                  \
    RECEIVERS "processors: {" section "}\nexporters: {otlp: {endpoint: 'a:1'}}\n" WITH(list)

static const struct {
    const char *name, *text, *said;
} cases[] = {
    /* Templates of Helm */
    {"in a value", EXPORTER("timeout: {{ .Values.timeout }}"),
     "yaml:4:14: the template \"{{ .Values.timeout }}\" was not rendered; render the file first, "
     "as "
     "\"helm "
     "template\" does\n"},
    {"in a map", EXPORTER("headers: {X: {{ .Values.token }}}"),
     "yaml:4:18: the template \"{{ .Values.token }}\" was not rendered; render the file first, as "
     "\"helm "
     "template\" does\n"},
    {"in quotes", EXPORTER("authority: \"{{ .Release.Name }}:1\""),
     "yaml:4:16: the template \"{{ .Release.Name }}\" was not rendered; render the file first, as "
     "\"helm "
     "template\" does\n"},
    {"a condition",
     EXPORTER("timeout: 5s\n{{- if .Values.gzip }}\n    compression: gzip\n{{- end }}"),
     "yaml:5:1: the template \"{{- if .Values.gzip }}\" was not rendered; render the file first, "
     "as "
     "\"helm "
     "template\" does\n"},
    {"a block", EXPORTER("timeout: 5s\n{{ toYaml .Values.more | indent 4 }}"),
     "yaml:5:1: the template \"{{ toYaml .Values.more | indent 4 }}\" was not rendered; render the "
     "file first, as \"helm template\" does\n"},
    {"other braces are text", EXPORTER("authority: '{{a}}'"), ""},

    /* Texts that need quotes */
    {"@", EXPORTER("authority: @a"), "yaml:4:16: a text that starts with @ needs quotes\n"},
    {"`", EXPORTER("authority: `a`"), "yaml:4:16: a text that starts with ` needs quotes\n"},
    {"%", EXPORTER("authority: %a"), "yaml:4:16: a text that starts with % needs quotes\n"},
    {"*", EXPORTER("authority: *.a"),
     "yaml:4:16: a text that starts with * needs quotes; without them * names an anchor\n"},
    {"* in a list", EXPORTER("headers: {X: *}"),
     "yaml:4:18: a text that starts with * needs quotes; without them * names an anchor\n"},
    {"* and letters", EXPORTER("authority: *a"),
     "yaml:4:16: the alias \"a\" has no anchor above it; a text that starts with * needs quotes\n"},
    {"&", EXPORTER("authority: &"),
     "yaml:4:16: a text that starts with & needs quotes; without them & makes an anchor\n"},
    {":", EXPORTER("authority: a: b"),
     "yaml:4:17: a text with a colon before a blank, or at its end, needs quotes\n"},
    {": at the end", EXPORTER("authority: ab:"),
     "yaml:4:18: a text with a colon before a blank, or at its end, needs quotes\n"},
    {"a colon inside is text", EXPORTER("authority: a:b"), ""},
    {"a double quote",
     EXPORTER("authority: \xe2\x80\x9c"
              "a\xe2\x80\x9d"),
     "yaml:4:16: a typographic quote (\xe2\x80\x9c) is not a quote in YAML; use \" or '\n"},
    {"a single quote",
     EXPORTER("headers: {X: \xe2\x80\x98"
              "a\xe2\x80\x99}"),
     "yaml:4:18: a typographic quote (\xe2\x80\x98) is not a quote in YAML; use \" or '\n"},
    {"a quote of a key",
     EXPORTER("\xe2\x80\x9c"
              "authority\xe2\x80\x9d: a"),
     "yaml:4:5: a typographic quote (\xe2\x80\x9c) is not a quote in YAML; use \" or '\n"},
    {"a quote and a colon",
     EXPORTER("authority: \xe2\x80\x9c"
              "a: b\xe2\x80\x9d"),
     "yaml:4:16: a typographic quote (\xe2\x80\x9c) is not a quote in YAML; use \" or '\n"},
    {"an apostrophe inside is text", EXPORTER("authority: it\xe2\x80\x99s"), ""},

    /* Variables */
    {"$TOKEN", EXPORTER("headers: {X: $TOKEN}"),
     "warning: yaml:4:18: exporters::otlp::headers::X: $TOKEN is text; write ${env:TOKEN} for the "
     "variable, or $$TOKEN for the "
     "text\n"},
    {"$TOKEN in a text", EXPORTER("headers: {X: Bearer $MY_TOKEN2}"),
     "warning: yaml:4:18: exporters::otlp::headers::X: $MY_TOKEN2 is text; write ${env:MY_TOKEN2} "
     "for the variable, or "
     "$$MY_TOKEN2 for the text\n"},
    {"$$TOKEN, $1 and $a are text", EXPORTER("headers: {X: $$TOKEN $1 $a $}"), ""},

    /* Components */
    {"neither defined nor known", PROCESSORS("", "nosuch"),
     "yaml:4:64: service::pipelines::traces::processors: processor \"nosuch\" is neither defined "
     "under "
     "processors nor known; \"braid components\" lists all\n"},
    {"known", PROCESSORS("", "resource/a"),
     "yaml:4:64: service::pipelines::traces::processors: processor \"resource/a\" is not defined "
     "under "
     "processors; add \"resource/a:\" there\n"},
    {"the Collector's", PROCESSORS("", "geoip"),
     "yaml:4:64: service::pipelines::traces::processors: processor \"geoip\" is not "
     "defined "
     "under processors, and Braid does not support this processor, which adds the geographic "
     "location of "
     "IP addresses\n"},
    {"an exporter among processors", PROCESSORS("", "otlp"),
     "yaml:4:64: service::pipelines::traces::processors: \"otlp\" is an exporter, defined in line "
     "3, "
     "and not a processor; name it under exporters\n"},
    {"an exporter that is not defined", PROCESSORS("", "debug"),
     "yaml:4:64: service::pipelines::traces::processors: processor \"debug\" is not defined under "
     "processors; it is an exporter: name it under exporters\n"},
    {"an exporter in the section", PROCESSORS("debug: ", "debug"),
     "yaml:2:14: processors: unknown processor \"debug\"; it is an exporter: define it under "
     "exporters\n"},

    /* Keys */
    {"insecure", EXPORTER("insecure: true"),
     "yaml:4:5: exporters::otlp: \"insecure\" belongs under tls: write tls: {insecure: ...}\n"},
    {"ca_file", EXPORTER("ca_file: a.pem"),
     "yaml:4:5: exporters::otlp: \"ca_file\" belongs under tls: write tls: {ca_file: ...}\n"},
    {"queue_size", EXPORTER("queue_size: 7"),
     "yaml:4:5: exporters::otlp: \"queue_size\" belongs under sending_queue: write sending_queue: "
     "{queue_size: ...}\n"},
    {"queued_retry", EXPORTER("queued_retry: {}"),
     "yaml:4:5: exporters::otlp: \"queued_retry\": the Collector has removed it: use sending_queue "
     "and retry_on_failure\n"},
    {"the processor queued_retry", PROCESSORS("queued_retry: ", "queued_retry"),
     "yaml:2:14: processors: \"queued_retry\": Braid does not support this processor, which queued "
     "and retried requests, and which the Collector has removed. Use sending_queue and "
     "retry_on_failure of the exporters.\n"},
    {"ballast_size_mib",
     PROCESSORS("memory_limiter: {check_interval: 1s, limit_mib: 9, ballast_size_mib: 1}",
                "memory_limiter"),
     "yaml:2:65: processors::memory_limiter: \"ballast_size_mib\": the Collector has removed it, "
     "and "
     "Braid needs no ballast: remove the key\n"},

    /* Settings that contradict each other */
    {"memory_limiter behind batch",
     PROCESSORS("batch: , memory_limiter: {check_interval: 1s, limit_mib: 9}",
                "batch, memory_limiter"),
     "warning: yaml:4:71: service::pipelines::traces::processors: memory_limiter is after batch, "
     "which accepts data before the limit is checked; put it first\n"},
    {"memory_limiter first",
     PROCESSORS("batch: , memory_limiter: {check_interval: 1s, limit_mib: 9}",
                "memory_limiter, batch"),
     ""},
    {"plaintext against TLS",
     RECEIVERS "exporters: {otlp: {endpoint: 'https://a:1', tls: {insecure: true}}}\n" SERVICE,
     "warning: yaml:2:61: exporters::otlp::tls: \"insecure: true\" has no effect, because the "
     "endpoint "
     "begins with https://; write http:// for plaintext\n"},
    {"TLS against plaintext",
     RECEIVERS
     "exporters: {otlp: {endpoint: 'http://a:1', tls: {server_name_override: b}}}\n" SERVICE,
     "warning: yaml:2:49: exporters::otlp::tls: \"tls\" has no effect, because the endpoint begins "
     "with http://, which is plaintext; write https:// for TLS\n"},
    {"TLS by default", RECEIVERS "exporters: {otlp: {endpoint: 'localhost:2'}}\n" SERVICE,
     "warning: yaml:2:30: exporters::otlp::endpoint: TLS is enabled, because the endpoint has no "
     "scheme; for a plaintext server write \"tls: {insecure: true}\"\n"},
    {"no contradiction",
     RECEIVERS "exporters: {otlp: {endpoint: 'http://a:1', tls: {insecure: true}}}\n" SERVICE, ""},

    /* Exporters that send to the receiver of their pipeline */
    {"own gRPC receiver",
     "receivers: {otlp: {protocols: {grpc: {endpoint: '0.0.0.0:4317'}}}}\n"
     "exporters: {otlp: {endpoint: 'localhost:4317', tls: {insecure: true}}}\n" SERVICE,
     "warning: yaml:2:30: exporters::otlp::endpoint: localhost:4317 is the address of the receiver "
     "otlp of the same pipeline: all data would be received and sent again without end\n"},
    {"own HTTP receiver by default",
     "receivers: {otlp: {protocols: {http: }}}\n"
     "exporters: {otlphttp: {endpoint: 'http://127.0.0.1:4318'}}\n"
     "service: {pipelines: {traces: {receivers: [otlp], exporters: [otlphttp]}}}\n",
     "warning: yaml:2:34: exporters::otlphttp::endpoint: http://127.0.0.1:4318 is the address of "
     "the receiver otlp of the same pipeline: all data would be received and sent again without "
     "end\n"},
    {"another port, another host",
     "receivers: {otlp: {protocols: {grpc: , http: }}}\n"
     "exporters: {otlp: {endpoint: 'localhost:5317', tls: {insecure: true}}, otlp/b: {endpoint: "
     "'tempo:4317'}}\n"
     "service: {pipelines: {traces: {receivers: [otlp], exporters: [otlp, otlp/b]}}}\n",
     ""},
};

static const char *no_env(const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return NULL;
}

static void test_messages(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_str uri = {0}, said = {0};
        char line[1200];
        br_str_printf(&uri, "yaml:%s", cases[i].text);
        const char *uris[] = {uri.data};
        struct br_config_sources sources = {.uris = uris, .n_uris = 1, .getenv = no_env};
        struct br_config *config = NULL;
        struct br_errs errs = {0};
        (void)br_config_load(&sources, br_components, &config, &errs);
        br_str_add(&said, "", 0);
        for (size_t k = 0; k < errs.n_errors; k++)
            br_str_printf(&said, "%s\n", br_err_format(&errs.errors[k], line, sizeof line));
        for (size_t k = 0; k < errs.n_warnings; k++)
            br_str_printf(&said, "warning: %s\n",
                          br_err_format(&errs.warnings[k], line, sizeof line));
        if (strcmp(said.data, cases[i].said) != 0) {
            print_error("%s:\n%s--- got\n%s", cases[i].name, cases[i].said, said.data);
            wrong++;
        }
        br_config_free(config);
        br_errs_release(&errs);
        br_str_release(&uri);
        br_str_release(&said);
    }
    assert_int_equal(wrong, 0);
}

/* Advice is about exporters that a pipeline uses, not about an endpoint that nothing connects to.
 */
static void test_no_advice_about_unused_exporters(void **state)
{
    static const char text[] =
        "yaml:" RECEIVERS "exporters: {debug: , otlp: {endpoint: 'localhost:2'}}\n"
        "service: {pipelines: {traces: {receivers: [otlp], exporters: "
        "[debug]}}}\n";
    const char *uris[] = {text};
    struct br_config_sources sources = {.uris = uris, .n_uris = 1, .getenv = no_env};
    struct br_config *config = NULL;
    struct br_errs errs = {0};
    (void)state;
    assert_int_equal(br_config_load(&sources, br_components, &config, &errs), 0);
    for (size_t i = 0; i < errs.n_warnings; i++)
        assert_null(strstr(errs.warnings[i].text, "TLS is enabled"));
    br_config_free(config);
    br_errs_release(&errs);
}

/* A pipeline with an unknown key has its lists checked all the same, so that one run reports all.
 */
static void test_all_errors_of_a_pipeline(void **state)
{
    static const char text[] = "yaml:" RECEIVERS "exporters: {otlp: {endpoint: 'http://a:1'}}\n"
                               "service: {pipelines: {traces: {receivers: [nowhere], exporters: "
                               "[otlp], sinks: [otlp]}}}\n";
    const char *uris[] = {text};
    struct br_config_sources sources = {.uris = uris, .n_uris = 1, .getenv = no_env};
    struct br_config *config = NULL;
    struct br_errs errs = {0};
    bool key = false, receiver = false;
    (void)state;
    assert_int_equal(br_config_load(&sources, br_components, &config, &errs), BR_EINVAL);
    for (size_t i = 0; i < errs.n_errors; i++) {
        key = key || strstr(errs.errors[i].text, "sinks") != NULL;
        receiver = receiver || strstr(errs.errors[i].text, "nowhere") != NULL;
    }
    assert_true(key && receiver);
    br_config_free(config);
    br_errs_release(&errs);
}

/* A file of 1 MiB is read, a byte more is an error. */
static void test_size_of_a_file(void **state)
{
    static const char config_text[] =
        RECEIVERS "exporters: {otlp: {endpoint: 'http://a:1'}}\n" SERVICE;
    char uri[64] = "file:/tmp/braid-config-XXXXXX";
    const char *uris[] = {uri};
    (void)state;
    int fd = mkstemp(uri + strlen("file:"));
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    (void)fputs(config_text, file);
    for (size_t at = sizeof config_text - 1; at < 1u << 20; at++)
        (void)fputc(at % 100 ? '#' : '\n', file);
    for (int more = 0; more < 2; more++) {
        struct br_config_sources sources = {.uris = uris, .n_uris = 1, .getenv = no_env};
        struct br_config *config = NULL;
        struct br_errs errs = {0};
        assert_int_equal(fflush(file), 0);
        assert_int_equal(br_config_load(&sources, br_components, &config, &errs) != 0, more);
        if (more)
            assert_non_null(strstr(errs.errors[0].text, "larger than 1 MiB"));
        br_config_free(config);
        br_errs_release(&errs);
        (void)fputc('#', file);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(unlink(uri + strlen("file:")), 0);
}

SUITE(messages)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_no_advice_about_unused_exporters),
        cmocka_unit_test(test_all_errors_of_a_pipeline), cmocka_unit_test(test_size_of_a_file)};
    return RUN(tests, NULL, NULL);
}
