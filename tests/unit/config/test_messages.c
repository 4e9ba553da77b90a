/* SPDX-License-Identifier: Apache-2.0 */
/* Common mistakes, each with the line that reports it: place, path, problem, and the correction. */
#include "app/config.h"
#include "app/registry.h"
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
    {"the Collector's", PROCESSORS("", "k8sattributes"),
     "yaml:4:64: service::pipelines::traces::processors: processor \"k8sattributes\" is not "
     "defined "
     "under processors, and Braid has no such processor; it adds k8s.* attributes to resources by "
     "asking the Kubernetes API\n"},
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
     "yaml:2:14: processors: \"queued_retry\": Braid has no such processor; it held requests until "
     "the exporter took them, and the Collector has removed it. Exporters have sending_queue and "
     "retry_on_failure.\n"},
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
     "warning: yaml:4:71: service::pipelines::traces::processors: memory_limiter stands behind "
     "batch, "
     "which takes data that it cannot refuse; put it first\n"},
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
     "warning: yaml:2:30: exporters::otlp::endpoint: TLS is on, as the endpoint has no scheme; for "
     "a "
     "plaintext server write \"tls: {insecure: true}\"\n"},
    {"no contradiction",
     RECEIVERS "exporters: {otlp: {endpoint: 'http://a:1', tls: {insecure: true}}}\n" SERVICE, ""},
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

SUITE(messages)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_messages)};
    return RUN(tests, NULL, NULL);
}
