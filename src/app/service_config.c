/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads service::telemetry. The option tables contain the keys of the Collector. Options that have
 * no effect in Braid are marked with BR_IGNORED.
 */
#include "app/config.h"

#include <string.h>

#include "base/lexer.h"
#include "base/mem.h"
#include "config/option.h"
#include "config/parts.h"
#include "core/authenticator.h"
#include "net/hosts.h"

#define WORKERS_MAX 256
#define DETECTORS "Braid has no detectors; write the attributes as keys and values of `resource`"

struct prometheus {
    const char *host;
    int64_t port;
    bool without_type_suffix, without_units;
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

enum { LEVEL_NONE, LEVEL_DETAILED = 3 };

struct metrics {
    int level;
    const char *address;
    struct br_structs readers;
    struct br_strings allowed_hosts;
    struct br_auth_config *auth;
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
    BR_STRING(struct prometheus, host, "localhost",
              "host name or address at which the metrics endpoint listens"),
    BR_INT(struct prometheus, port, 8888, 0, 65535, "port at which the metrics endpoint listens"),
    BR_IGNORED("with_resource_constant_labels", "Braid's metrics have no resource labels"),
    BR_IGNORED("without_scope_info", "Braid's metrics have no scopes"),
    BR_BOOL(struct prometheus, without_type_suffix, true,
            "`false`: names of counters end in `_total`"),
    BR_BOOL(struct prometheus, without_units, true,
            "`false`: names of counters end in `_total`, and other names end in their unit; "
            "if this key or without_type_suffix is `false`, both are `false`"),
    BR_IGNORED("translation_strategy", "`without_type_suffix` selects the form of names"),
    BR_OPT_END,
};

static const struct br_option exporter_options[] = {
    BR_PRESENT(struct exporter, prometheus, struct prometheus, prometheus_options,
               "endpoint that serves metrics in the text format of Prometheus"),
    BR_OPT_END,
};

static const struct br_option pull_options[] = {
    BR_PRESENT(struct pull, exporter, struct exporter, exporter_options, "format of the metrics"),
    BR_IGNORED("producers", "Braid has only one producer of metrics"),
    BR_IGNORED("cardinality_limits", "Braid limits the number of its metrics"),
    BR_OPT_END,
};

static const struct br_option reader_options[] = {
    BR_PRESENT(struct metric_reader, pull, struct pull, pull_options,
               "an endpoint that Prometheus scrapes"),
    BR_IGNORED("periodic", "Braid does not send its metrics to a server"),
    BR_IGNORED("producers", "Braid has only one producer of metrics"),
    BR_OPT_END,
};

static const struct br_option metrics_options[] = {
    BR_ENUM(struct metrics, level, "normal", levels,
            "`none` disables the metrics endpoint, `detailed` adds the sizes of requests"),
    BR_STRING(
        struct metrics, address, NULL,
        "`HOST:PORT` at which the metrics endpoint listens; older option, replaced by `readers`"),
    BR_LIST(struct metrics, readers, struct metric_reader, reader_options,
            "list of readers; the first one with `pull` configures the metrics endpoint"),
    BR_STRINGS(struct metrics, allowed_hosts, BR_HOSTS_HELP),
    BR_AUTH_SERVER_ROW(struct metrics),
    BR_IGNORED("views", "Braid has no views of metrics"),
    BR_OPT_END,
};

static const struct br_option logs_options[] = {
    BR_STRING(struct logs, level, "info",
              "lowest severity to log: error, warn, info, debug or trace"),
    BR_ENUM(struct logs, encoding, "console", encodings,
            "format of log lines on stderr: text or JSON"),
    BR_IGNORED("development", "Braid has no development mode"),
    BR_IGNORED("disable_caller", "log lines do not contain the caller"),
    BR_IGNORED("disable_stacktrace", "log lines have no stack trace"),
    BR_IGNORED("disable_zap_resource", "log lines do not repeat the resource"),
    BR_IGNORED("sampling", "the rate of repeated log lines is always limited"),
    BR_IGNORED("output_paths", "logs go to stderr"),
    BR_IGNORED("error_output_paths", "logs go to stderr"),
    BR_IGNORED("initial_fields", "log lines have fixed fields"),
    BR_IGNORED("processors", "logs go to stderr"),
    BR_OPT_END,
};

const struct br_option br_telemetry_options[] = {
    BR_STRUCT(struct telemetry, metrics, metrics_options,
              "metrics that Braid reports about itself"),
    BR_STRUCT(struct telemetry, logs, logs_options, "log of the Braid process"),
    BR_VALUE(struct telemetry, traces, "has no effect"),
    BR_VALUE(struct telemetry, resource,
             "attributes that describe the process, reported in the metric `target_info`"),
    BR_OPT_END,
};

static const char *const metrics_path = "service::telemetry::metrics";
static const char *const resource_path = "service::telemetry::resource";

static const struct prometheus *service_config_reader_prometheus(const struct metric_reader *reader)
{
    return reader->pull && reader->pull->exporter ? reader->pull->exporter->prometheus : NULL;
}

/* Returns the first reader with a Prometheus endpoint, or NULL. */
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
                                        struct br_telemetry_config *ret, struct br_arena *arena,
                                        struct br_errs *errs)
{
    const struct br_yaml *readers = br_yaml_get(node, "readers");
    const struct br_yaml *address = br_yaml_get(node, "address");
    if (metrics->address && service_config_read_address(address, metrics->address, errs))
        return BR_EINVAL;
    ret->metrics_endpoint = NULL;
    ret->metrics_suffixes = false;
    ret->metrics_detailed = metrics->level == LEVEL_DETAILED;
    if (metrics->level == LEVEL_NONE)
        return 0;
    if (!readers || readers->type != BR_YAML_SEQ) {
        ret->metrics_endpoint = metrics->address ? metrics->address : "localhost:8888";
        return 0;
    }
    if (metrics->address)
        br_errs_warn(errs, address, metrics_path,
                     "\"address\" has no effect together with \"readers\"");
    const struct prometheus *p = service_config_pick_reader(metrics, readers, errs);
    if (!p)
        return 0;
    bool v6 = strchr(p->host, ':') && p->host[0] != '[';
    ret->metrics_endpoint = br_arena_printf(arena, "%s%s%s:%u", v6 ? "[" : "", p->host,
                                            v6 ? "]" : "", (unsigned)p->port);
    /* As in the Prometheus reader of otelconf, suffixes are omitted only if both options of the
     * reader are set. */
    ret->metrics_suffixes = !p->without_type_suffix || !p->without_units;
    return ret->metrics_endpoint ? 0 : br_errs_no_memory(errs);
}

static void service_config_warn_unless_empty(const struct br_yaml *node, const char *path,
                                             const char *why, struct br_errs *errs)
{
    if (node && (node->type == BR_YAML_SCALAR || node->count))
        br_errs_warn(errs, node, path, "is read and has no effect: %s", why);
}

/* --- service::telemetry::resource ------------------------------------------------------------ */

/* Returns the label name of an attribute. As in the Collector's Prometheus reader, underscores
 * replace the characters that are invalid in a label. */
static char *service_config_label_name(const char *name, struct br_arena *arena)
{
    char *label = br_arena_strndup(arena, name, strlen(name));
    for (char *p = label; p && *p; p++)
        if (!br_is_word(*p) || (p == label && br_is_digit(*p)))
            *p = '_';
    return label;
}

/* Adds a label of target_info, or replaces an earlier label of the same name. */
static int service_config_set_target(struct br_telemetry_config *config, const char *name,
                                     const char *value, struct br_arena *arena)
{
    size_t at = 0;
    const char *label = service_config_label_name(name, arena);
    if (!label)
        return BR_ENOMEM;
    while (at < config->n_target && strcmp(config->target[at].name, label) < 0)
        at++;
    if (at == config->n_target || strcmp(config->target[at].name, label) != 0) {
        memmove(config->target + at + 1, config->target + at,
                (config->n_target - at) * sizeof *config->target);
        config->n_target++;
    }
    config->target[at] = (struct br_target_label){label, value};
    return 0;
}

static int service_config_read_attribute(struct br_telemetry_config *config,
                                         const struct br_yaml *name, const struct br_yaml *value,
                                         struct br_arena *arena, struct br_errs *errs)
{
    if (!name || name->type != BR_YAML_SCALAR || !name->len)
        return br_errs_add(errs, name ? name : value, resource_path,
                           "the name of an attribute is missing");
    if (!value || (value->type != BR_YAML_SCALAR && value->type != BR_YAML_NULL))
        return br_errs_add(errs, value ? value : name, resource_path,
                           "%s: the value of an attribute must be text or null", name->text);
    const char *text = value->type == BR_YAML_SCALAR ? value->text : NULL;
    return service_config_set_target(config, name->text, text, arena) ? br_errs_no_memory(errs) : 0;
}

/* Returns the reason why a key of `resource` has no effect, or NULL if the key is an attribute. */
static const char *service_config_resource_key(const char *key)
{
    static const struct {
        const char *key, *why;
    } rows[] = {
        {"schema_url", "Braid's resource has no schema"},
        {"detectors", DETECTORS},
        {"detection/development", DETECTORS},
        {"attributes_list", "write its pairs as keys and values of `resource`"},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++)
        if (strcmp(rows[i].key, key) == 0)
            return rows[i].why;
    return NULL;
}

/* Reads the attributes of `resource`. The keys of `resource` are attributes, except "attributes",
 * which may be a list of names and values, as in the configuration of OpenTelemetry SDKs. */
static int service_config_read_resource(const struct br_yaml *node,
                                        struct br_telemetry_config *config, struct br_arena *arena,
                                        struct br_errs *errs)
{
    const struct br_yaml *list = br_yaml_get(node, "attributes");
    bool listed = list && list->type == BR_YAML_SEQ;
    size_t most = (node ? node->count : 0) + (listed ? list->count : 0);
    int rc = 0;
    if (node && node->type != BR_YAML_NULL && node->type != BR_YAML_MAP)
        return br_errs_add(errs, node, resource_path, "must be a map");
    config->target = br_arena_calloc(arena, most + 1, sizeof *config->target);
    if (!config->target)
        return br_errs_no_memory(errs);
    for (size_t i = 0; node && i < node->count && rc != BR_ENOMEM; i++) {
        char at[192];
        const char *key = node->keys[i]->text, *why = service_config_resource_key(key);
        if (why)
            service_config_warn_unless_empty(node->items[i], br_path_join(at, resource_path, key),
                                             why, errs);
        if (why || node->items[i] == list)
            continue;
        int one = service_config_read_attribute(config, node->keys[i], node->items[i], arena, errs);
        rc = one ? one : rc;
    }
    for (size_t i = 0; listed && i < list->count && rc != BR_ENOMEM; i++) {
        int one = service_config_read_attribute(config, br_yaml_get(list->items[i], "name"),
                                                br_yaml_get(list->items[i], "value"), arena, errs);
        rc = one ? one : rc;
    }
    return rc;
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
        br_options_read(br_telemetry_options, node, "service::telemetry", &telemetry, arena, errs);
    if (rc)
        return rc;
    service_config_warn_unless_empty(telemetry.traces, "service::telemetry::traces",
                                     "Braid does not trace itself", errs);
    size_t before = errs->n_errors;
    int resource = service_config_read_resource(telemetry.resource, ret, arena, errs);
    if (resource == BR_ENOMEM)
        return resource;
    br_hosts_check(&telemetry.metrics.allowed_hosts, br_yaml_get(node, "metrics"), metrics_path,
                   errs);
    ret->metrics_hosts = telemetry.metrics.allowed_hosts;
    ret->metrics_auth = telemetry.metrics.auth;
    ret->log_json = telemetry.logs.encoding == 1;
    rc = service_config_read_log_level(node, telemetry.logs.level, &ret->log_level, errs);
    int endpoint = service_config_read_endpoint(&telemetry.metrics, br_yaml_get(node, "metrics"),
                                                ret, arena, errs);
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
    bool plain = node->type == BR_YAML_SCALAR && (!node->quoted || node->expanded);
    uint64_t v;
    if (plain && node->text[0] != '0' && br_decimal_parse(node->text, node->len, WORKERS_MAX, &v)) {
        *ret = (unsigned)v;
        return 0;
    }
    return br_errs_add(errs, node, "service::workers",
                       "must be a whole number from 1 to %d, or auto, got %s", WORKERS_MAX,
                       br_yaml_show(node, shown));
}

/* If the file has no readers, the endpoint is printed as `address`. */
struct br_yaml *br_telemetry_effective(const struct br_yaml *node,
                                       const struct br_telemetry_config *config,
                                       struct br_arena *arena)
{
    struct telemetry telemetry;
    struct br_errs errs = {0};
    int rc =
        br_options_read(br_telemetry_options, node, "service::telemetry", &telemetry, arena, &errs);
    br_errs_release(&errs);
    if (rc)
        return NULL;
    if (!br_yaml_get(br_yaml_get(node, "metrics"), "readers") && config->metrics_endpoint)
        telemetry.metrics.address = config->metrics_endpoint;
    return br_options_effective(br_telemetry_options, &telemetry, node, arena);
}
