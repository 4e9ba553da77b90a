/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service::telemetry: the Collector's tables, of which Braid follows the level, the encoding and
 * where Prometheus may ask.
 */
#include "app/service_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/parts.h"
#include "net/hosts.h"

#define WORKERS_MAX 256

struct prometheus {
    const char *host;
    int64_t port;
};

struct exporter {
    struct prometheus *prometheus;
};

struct pull {
    struct exporter *exporter;
};

struct metric_reader {
    struct pull *pull;
};

enum { LEVEL_NONE };

struct metrics {
    int level;
    const char *address;
    struct br_structs readers;
    struct br_strings allowed_hosts;
};

struct logs {
    const char *level;
    int encoding;
};

struct telemetry {
    struct metrics metrics;
    struct logs logs;
    const struct br_yaml *traces, *resource;
};

static const char *const levels[] = {"none", "basic", "normal", "detailed", NULL};
static const char *const encodings[] = {"console", "json", NULL};

static const struct br_option prometheus_options[] = {
    BR_STRING(struct prometheus, host, "localhost", "where Prometheus asks"),
    BR_INT(struct prometheus, port, 8888, 0, 65535, "and the port"),
    BR_IGNORED("with_resource_constant_labels", "Braid has no resource labels"),
    BR_IGNORED("without_scope_info", "Braid has no scopes"),
    BR_IGNORED("without_type_suffix", "names are fixed"),
    BR_IGNORED("without_units", "names are fixed"),
    BR_IGNORED("translation_strategy", "names are fixed"),
    BR_OPT_END,
};

static const struct br_option exporter_options[] = {
    BR_PRESENT(struct exporter, prometheus, struct prometheus, prometheus_options,
               "Prometheus text over HTTP"),
    BR_OPT_END,
};

static const struct br_option pull_options[] = {
    BR_PRESENT(struct pull, exporter, struct exporter, exporter_options, "how it is asked for"),
    BR_IGNORED("producers", "Braid has one"),
    BR_IGNORED("cardinality_limits", "the number of metrics is bounded"),
    BR_OPT_END,
};

static const struct br_option reader_options[] = {
    BR_PRESENT(struct metric_reader, pull, struct pull, pull_options, "asked for by others"),
    BR_IGNORED("periodic", "Braid does not send its metrics"),
    BR_OPT_END,
};

static const struct br_option metrics_options[] = {
    BR_ENUM(struct metrics, level, "normal", levels, "none switches the endpoint off"),
    BR_STRING(struct metrics, address, NULL, "the older spelling of a Prometheus reader"),
    BR_LIST(struct metrics, readers, struct metric_reader, reader_options, "pull readers"),
    BR_STRINGS(struct metrics, allowed_hosts, BR_HOSTS_HELP),
    BR_IGNORED("views", "Braid has no views"),
    BR_OPT_END,
};

static const struct br_option logs_options[] = {
    BR_STRING(struct logs, level, "info", "error, warn, info, debug or trace"),
    BR_ENUM(struct logs, encoding, "console", encodings, "text or JSON lines"),
    BR_IGNORED("development", "there is one mode"),
    BR_IGNORED("disable_caller", "lines name no caller"),
    BR_IGNORED("disable_stacktrace", "lines have no stack trace"),
    BR_IGNORED("sampling", "repeats are always held back"),
    BR_IGNORED("output_paths", "logs go to stderr"),
    BR_IGNORED("error_output_paths", "logs go to stderr"),
    BR_IGNORED("initial_fields", "lines have fixed fields"),
    BR_IGNORED("processors", "logs go to stderr"),
    BR_OPT_END,
};

static const struct br_option telemetry_options[] = {
    BR_STRUCT(struct telemetry, metrics, metrics_options, "Braid's own metrics"),
    BR_STRUCT(struct telemetry, logs, logs_options, "Braid's own logs"),
    BR_VALUE(struct telemetry, traces, "no effect"),
    BR_VALUE(struct telemetry, resource, "no effect"),
    BR_OPT_END,
};

static const char *const metrics_path = "service::telemetry::metrics";

static const struct prometheus *service_config_reader_prometheus(const struct metric_reader *reader)
{
    return reader->pull && reader->pull->exporter ? reader->pull->exporter->prometheus : NULL;
}

/* The first reader that Prometheus can ask; NULL when there is none. */
static const struct prometheus *service_config_pick_reader(const struct metrics *metrics,
                                                           const struct br_yaml *node,
                                                           struct br_errs *errs)
{
    const struct metric_reader *readers = metrics->readers.items;
    const struct prometheus *picked = NULL;
    for (size_t i = 0; i < metrics->readers.count; i++) {
        const struct prometheus *p = service_config_reader_prometheus(&readers[i]);
        if (p && picked)
            br_errs_warn(errs, node->items[i], "service::telemetry::metrics::readers",
                         "only the first Prometheus reader has an effect");
        picked = picked ? picked : p;
    }
    return picked;
}

static int service_config_read_address(const struct br_yaml *node, const char *address,
                                       struct br_errs *errs)
{
    char host[256], shown[BR_SHOWN_SIZE];
    unsigned port;
    if (br_endpoint_parse(address, host, &port))
        return 0;
    return br_errs_add(errs, node, "service::telemetry::metrics::address",
                       "must be host:port, such as \"localhost:8888\", got %s",
                       br_text_show(address, shown));
}

static int service_config_read_endpoint(const struct metrics *metrics, const struct br_yaml *node,
                                        const char **ret, struct br_arena *arena,
                                        struct br_errs *errs)
{
    const struct br_yaml *readers = br_yaml_get(node, "readers");
    const struct br_yaml *address = br_yaml_get(node, "address");
    if (metrics->address && service_config_read_address(address, metrics->address, errs))
        return BR_EINVAL;
    *ret = NULL;
    if (metrics->level == LEVEL_NONE)
        return 0;
    if (!readers || readers->type != BR_YAML_SEQ) {
        *ret = metrics->address ? metrics->address : "localhost:8888";
        return 0;
    }
    if (metrics->address)
        br_errs_warn(errs, address, metrics_path, "\"address\" has no effect beside \"readers\"");
    const struct prometheus *p = service_config_pick_reader(metrics, readers, errs);
    if (!p)
        return 0;
    bool v6 = strchr(p->host, ':') && p->host[0] != '[';
    *ret = br_arena_printf(arena, "%s%s%s:%u", v6 ? "[" : "", p->host, v6 ? "]" : "",
                           (unsigned)p->port);
    return *ret ? 0 : br_errs_no_memory(errs);
}

static void service_config_warn_unless_empty(const struct br_yaml *node, const char *path,
                                             struct br_errs *errs)
{
    if (node && (node->type == BR_YAML_SCALAR || node->count))
        br_errs_warn(errs, node, path, "is read and has no effect");
}

static int service_config_read_log_level(const struct br_yaml *node, const char *level,
                                         enum br_log_level *ret, struct br_errs *errs)
{
    char shown[BR_SHOWN_SIZE];
    if (br_log_parse_level(level, ret))
        return 0;
    return br_errs_add(
        errs, br_yaml_get(br_yaml_get(node, "logs"), "level"), "service::telemetry::logs::level",
        "must be one of error, warn, info, debug, trace, got %s", br_text_show(level, shown));
}

int br_telemetry_read(const struct br_yaml *node, struct br_telemetry_config *ret,
                      struct br_arena *arena, struct br_errs *errs)
{
    struct telemetry telemetry;
    int rc =
        br_options_read(telemetry_options, node, "service::telemetry", &telemetry, arena, errs);
    if (rc)
        return rc;
    service_config_warn_unless_empty(telemetry.traces, "service::telemetry::traces", errs);
    service_config_warn_unless_empty(telemetry.resource, "service::telemetry::resource", errs);
    size_t before = errs->n_errors;
    br_hosts_check(&telemetry.metrics.allowed_hosts, br_yaml_get(node, "metrics"), metrics_path,
                   errs);
    ret->metrics_hosts = telemetry.metrics.allowed_hosts;
    ret->log_json = telemetry.logs.encoding == 1;
    rc = service_config_read_log_level(node, telemetry.logs.level, &ret->log_level, errs);
    int endpoint = service_config_read_endpoint(&telemetry.metrics, br_yaml_get(node, "metrics"),
                                                &ret->metrics_endpoint, arena, errs);
    if (errs->n_errors > before)
        rc = rc ? rc : BR_EINVAL;
    return endpoint ? endpoint : rc;
}

int br_workers_read(const struct br_yaml *node, unsigned *ret, struct br_errs *errs)
{
    char shown[BR_SHOWN_SIZE];
    *ret = 1;
    if (!node || node->type == BR_YAML_NULL)
        return 0;
    if (node->type == BR_YAML_SCALAR && strcmp(node->text, "auto") == 0) {
        *ret = 0;
        return 0;
    }
    if (node->type == BR_YAML_SCALAR && (!node->quoted || node->expanded) && node->len <= 3 &&
        node->text[strspn(node->text, "0123456789")] == '\0' && node->text[0] != '0') {
        unsigned long v = strtoul(node->text, NULL, 10);
        if (v >= 1 && v <= WORKERS_MAX) {
            *ret = (unsigned)v;
            return 0;
        }
    }
    return br_errs_add(errs, node, "service::workers",
                       "must be a whole number from 1 to %d, or auto, got %s", WORKERS_MAX,
                       br_yaml_show(node, shown));
}
