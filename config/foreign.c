/* SPDX-License-Identifier: Apache-2.0 */
#include "config/foreign.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"

#define LACKS(what, name_, alias_, purpose_, advice_)                                              \
    {                                                                                              \
        .kind = BR_##what, .name = (name_), .alias = (alias_), .support = BR_FOREIGN_LACKING,      \
        .purpose = (purpose_), .advice = (advice_)                                                 \
    }
#define SAME(what, name_, alias_, as_)                                                             \
    {                                                                                              \
        .kind = BR_##what, .name = (name_), .alias = (alias_), .support = BR_FOREIGN_SAME,         \
        .as = (as_)                                                                                \
    }
#define IDLE(what, name_, alias_, purpose_)                                                        \
    {                                                                                              \
        .kind = BR_##what, .name = (name_), .alias = (alias_), .support = BR_FOREIGN_IDLE,         \
        .purpose = (purpose_)                                                                      \
    }

/* Texts of advice to users. Each text is used in several rows of the tables. */
#define SEND_OTLP "Let the clients send OTLP, or translate with a Collector in front of Braid."
#define BY_COLLECTOR                                                                               \
    "A Collector behind Braid can do that: send the data to it with the otlp exporter."
#define NO_SPANS "It produces neither spans nor profiles."
#define BY_HEADERS "Set the headers that it adds as the exporter's headers."
#define GUARD                                                                                      \
    "Use bearertokenauth or basicauth, ask for client certificates (tls: client_ca_file), or put " \
    "a proxy in front."
#define METRICS_OF                                                                                 \
    "Send a copy of the spans to a Collector that computes the metrics, with an additional otlp "  \
    "exporter."

static const struct br_foreign rows[] = {
    /* Receivers of spans or profiles that Braid does not have. */
    LACKS(RECEIVER, "awsxray", NULL, "receives spans from X-Ray's SDKs", SEND_OTLP),
    LACKS(RECEIVER, "datadog", NULL, "receives spans from Datadog's tracers", SEND_OTLP),
    LACKS(RECEIVER, "faro", NULL, "receives spans from Grafana's Faro SDK", SEND_OTLP),
    LACKS(RECEIVER, "googlecloudpubsub", "google_cloud_pubsub", "reads requests from Pub/Sub",
          SEND_OTLP),
    LACKS(RECEIVER, "opencensus", NULL, "receives spans from OpenCensus' agents", SEND_OTLP),
    LACKS(RECEIVER, "otelarrow", "otel_arrow", "receives OTLP and OTel Arrow", SEND_OTLP),
    LACKS(RECEIVER, "otlpjsonfile", "otlp_json_file", "reads OTLP as JSON from files", SEND_OTLP),
    LACKS(RECEIVER, "profiling", NULL, "profiles the host with eBPF",
          "Run the profiler as a separate program that sends OTLP to Braid."),
    LACKS(RECEIVER, "sapm", NULL, "receives spans from SignalFx' agents", SEND_OTLP),
    LACKS(RECEIVER, "skywalking", NULL, "receives spans from SkyWalking's agents", SEND_OTLP),
    LACKS(RECEIVER, "solace", NULL, "receives spans from Solace's broker", SEND_OTLP),
    /* Common receivers of metrics and logs, which Braid does not receive. */
    LACKS(RECEIVER, "docker_stats", NULL, "reads metrics of containers", NO_SPANS),
    LACKS(RECEIVER, "filelog", "file_log", "reads logs from files", NO_SPANS),
    LACKS(RECEIVER, "fluentforward", "fluent_forward", "receives logs from Fluentd", NO_SPANS),
    LACKS(RECEIVER, "hostmetrics", "host_metrics", "reads metrics of the host", NO_SPANS),
    LACKS(RECEIVER, "journald", NULL, "reads logs from journald", NO_SPANS),
    LACKS(RECEIVER, "k8s_cluster", NULL, "reads metrics of the cluster", NO_SPANS),
    LACKS(RECEIVER, "k8s_events", NULL, "reads the cluster's events", NO_SPANS),
    LACKS(RECEIVER, "k8sobjects", "k8s_objects", "reads objects of the cluster", NO_SPANS),
    LACKS(RECEIVER, "kubeletstats", "kubelet_stats", "reads metrics from the kubelet", NO_SPANS),
    LACKS(RECEIVER, "prometheus", NULL, "scrapes metrics", NO_SPANS),
    LACKS(RECEIVER, "receiver_creator", NULL, "starts receivers for targets that an observer finds",
          NO_SPANS),
    LACKS(RECEIVER, "signalfx", NULL, "receives metrics and logs from SignalFx' agents", NO_SPANS),
    LACKS(RECEIVER, "statsd", NULL, "receives StatsD metrics", NO_SPANS),
    LACKS(RECEIVER, "syslog", NULL, "receives syslog messages", NO_SPANS),
    /* Processors. */
    LACKS(PROCESSOR, "cumulativetodelta", "cumulative_to_delta", "changes metrics only", NULL),
    LACKS(PROCESSOR, "deltatocumulative", "delta_to_cumulative", "changes metrics only", NULL),
    LACKS(PROCESSOR, "geoip", "geo_ip", "adds the geographic location of IP addresses",
          "The backend, or a Collector in front of Braid, can add the location."),
    LACKS(PROCESSOR, "groupbytrace", "group_by_trace",
          "gathers the spans of a trace in one request",
          "No component of Braid needs a whole trace in one request."),
    LACKS(PROCESSOR, "metricstransform", "metrics_transform", "changes metrics only", NULL),
    LACKS(PROCESSOR, "queued_retry", NULL,
          "queued and retried requests, and which the Collector has removed",
          "Use sending_queue and retry_on_failure of the exporters."),
    LACKS(PROCESSOR, "remotetap", "remote_tap", "copies requests to a WebSocket",
          "The debug exporter can print requests."),
    LACKS(PROCESSOR, "routing", NULL, "chooses exporters by attributes", BY_COLLECTOR),
    LACKS(PROCESSOR, "schema", NULL, "translates between versions of semantic conventions",
          "A Collector in front of Braid can translate the data."),
    LACKS(PROCESSOR, "servicegraph", "service_graph", "computes metrics from spans", METRICS_OF),
    LACKS(PROCESSOR, "spanmetrics", "span_metrics", "computes metrics from spans", METRICS_OF),
    /* Exporters. */
    LACKS(EXPORTER, "awss3", "aws_s3", "stores requests in S3", BY_COLLECTOR),
    LACKS(EXPORTER, "awsxray", NULL, "sends spans to X-Ray", BY_COLLECTOR),
    LACKS(EXPORTER, "azuremonitor", "azure_monitor", "sends spans to Azure Monitor", BY_COLLECTOR),
    LACKS(EXPORTER, "clickhouse", NULL, "stores spans in ClickHouse", BY_COLLECTOR),
    LACKS(EXPORTER, "coralogix", NULL, "sends data to Coralogix",
          "Coralogix accepts OTLP: use the otlp exporter with its endpoint and key."),
    LACKS(EXPORTER, "datadog", NULL, "sends spans to Datadog", BY_COLLECTOR),
    LACKS(EXPORTER, "dataset", NULL, "sends spans to DataSet", BY_COLLECTOR),
    LACKS(EXPORTER, "elasticsearch", NULL, "stores spans in Elasticsearch",
          "Elastic's APM server accepts OTLP: use the otlp exporter with its endpoint."),
    LACKS(EXPORTER, "googlecloud", "google_cloud", "sends spans to Cloud Trace", BY_COLLECTOR),
    LACKS(EXPORTER, "jaeger", NULL, "sends spans to Jaeger",
          "Jaeger accepts OTLP since version 1.35: use the otlp exporter with port 4317."),
    LACKS(EXPORTER, "logzio", NULL, "sends spans to Logz.io", BY_COLLECTOR),
    LACKS(EXPORTER, "loki", NULL, "sends logs to Loki", NULL),
    LACKS(EXPORTER, "opensearch", NULL, "stores spans in OpenSearch", BY_COLLECTOR),
    LACKS(EXPORTER, "otelarrow", "otel_arrow", "sends OTel Arrow",
          "The server of such an exporter also accepts OTLP: use the otlp exporter with the same "
          "endpoint."),
    LACKS(EXPORTER, "prometheus", NULL, "serves metrics to Prometheus", NULL),
    LACKS(EXPORTER, "prometheusremotewrite", "prometheus_remote_write", "sends metrics", NULL),
    LACKS(EXPORTER, "pulsar", NULL, "writes requests to Pulsar topics", BY_COLLECTOR),
    LACKS(EXPORTER, "sapm", NULL, "sends spans to Splunk",
          "Splunk accepts OTLP over HTTP: use the otlphttp exporter with its endpoint and token."),
    LACKS(EXPORTER, "sentry", NULL, "sends spans to Sentry", BY_COLLECTOR),
    LACKS(EXPORTER, "signalfx", NULL, "sends metrics, and correlates them with spans", NULL),
    LACKS(EXPORTER, "splunk_hec", NULL, "sends spans to Splunk", BY_COLLECTOR),
    LACKS(EXPORTER, "sumologic", NULL, "sends data to Sumo Logic",
          "Sumo Logic accepts OTLP over HTTP: use the otlphttp exporter with its endpoint."),
    LACKS(EXPORTER, "tencentcloud_logservice", NULL, "sends logs", NULL),
    LACKS(EXPORTER, "zipkin", NULL, "sends spans to Zipkin", BY_COLLECTOR),
    SAME(EXPORTER, "logging", NULL, "debug"),
    /* Connectors. */
    LACKS(CONNECTOR, "count", NULL, "computes metrics of the number of records", METRICS_OF),
    LACKS(CONNECTOR, "datadog", NULL, "computes Datadog's statistics of spans", METRICS_OF),
    LACKS(CONNECTOR, "exceptions", NULL, "derives metrics and logs from exceptions", METRICS_OF),
    LACKS(CONNECTOR, "grafanacloud", NULL, "computes metrics from spans", METRICS_OF),
    LACKS(CONNECTOR, "roundrobin", "round_robin", "distributes requests over pipelines",
          "Braid can run one pipeline on several cores: set service::workers."),
    LACKS(CONNECTOR, "servicegraph", "service_graph", "computes metrics of calls between services",
          METRICS_OF),
    LACKS(CONNECTOR, "signaltometrics", "signal_to_metrics", "computes metrics from spans",
          METRICS_OF),
    LACKS(CONNECTOR, "sum", NULL, "computes sums of attributes as metrics", METRICS_OF),
    /* Extensions. */
    LACKS(EXTENSION, "asapclient", "asap_client", "signs requests", BY_HEADERS),
    LACKS(EXTENSION, "azureauth", "azure_auth", "gets tokens for Azure", BY_COLLECTOR),
    LACKS(EXTENSION, "db_storage", NULL, "keeps queues in a database",
          "file_storage keeps them in files."),
    LACKS(EXTENSION, "docker_observer", NULL, "finds targets for receivers", NULL),
    LACKS(EXTENSION, "googleclientauth", "google_client_auth", "gets tokens for Google's APIs",
          BY_COLLECTOR),
    LACKS(EXTENSION, "host_observer", NULL, "finds targets for receivers", NULL),
    LACKS(EXTENSION, "http_forwarder", NULL, "forwards HTTP requests", NULL),
    LACKS(EXTENSION, "jaegerremotesampling", "jaeger_remote_sampling",
          "configures the sampling of Jaeger's SDKs", "Run a separate server for that."),
    LACKS(EXTENSION, "k8s_observer", NULL, "finds targets for receivers", NULL),
    LACKS(EXTENSION, "oidc", NULL, "checks tokens of clients", GUARD),
    LACKS(EXTENSION, "redis_storage", NULL, "keeps queues in Redis",
          "file_storage keeps them in files."),
    LACKS(EXTENSION, "sigv4auth", "sigv4_auth", "signs requests for AWS", BY_COLLECTOR),
    IDLE(EXTENSION, "cgroupruntime", "cgroup_runtime", "it tunes Go's runtime"),
    IDLE(EXTENSION, "memory_ballast", NULL, "it tunes Go's garbage collector"),
    IDLE(EXTENSION, "opamp", NULL, "it reports to a management server, and Braid does not"),
    IDLE(EXTENSION, "pprof", NULL,
         "it shows Go's own profiles; the receiver pprof is a different component"),
    IDLE(EXTENSION, "zpages", NULL, "it shows pages about the Collector; Braid has /metrics"),
    SAME(EXTENSION, "healthcheckv2", "health_check_v2", "health_check"),
};

const struct br_foreign *br_foreign_find(enum br_kind kind, const char *name)
{
    for (size_t i = 0; i < BR_COUNT(rows); i++)
        if (rows[i].kind == kind && (strcmp(rows[i].name, name) == 0 ||
                                     (rows[i].alias && strcmp(rows[i].alias, name) == 0)))
            return &rows[i];
    return NULL;
}

const char *br_foreign_nearest(enum br_kind kind, const char *name, const char *known)
{
    const char *names[2 * BR_COUNT(rows) + 1];
    size_t n = 0;
    if (known)
        names[n++] = known;
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        if (rows[i].kind != kind)
            continue;
        names[n++] = rows[i].name;
        if (rows[i].alias)
            names[n++] = rows[i].alias;
    }
    return br_str_nearest(name, names, n);
}

bool br_foreign_is_harmless(const char *type)
{
    static const char *const names[] = {
        "batch",
        "cumulative_to_delta",
        "cumulativetodelta",
        "delta_to_cumulative",
        "deltatocumulative",
        "geo_ip",
        "geoip",
        "group_by_attrs",
        "group_by_trace",
        "groupbyattrs",
        "groupbytrace",
        "k8s_attributes",
        "k8sattributes",
        "memory_limiter",
        "metrics_transform",
        "metricstransform",
        "queue_batch",
        "queued_retry",
        "remote_tap",
        "remotetap",
        "resource_detection",
        "resourcedetection",
        "schema",
        "service_graph",
        "servicegraph",
        "span_metrics",
        "spanmetrics",
    };
    for (size_t i = 0; i < BR_COUNT(names); i++)
        if (strcmp(names[i], type) == 0)
            return true;
    return false;
}

#define OF_OTHERS "it selects logs or metrics, which Braid does not process"

static const struct {
    const char *section, *key, *text;
} keys[] = {
    {"receivers", "middlewares", "Braid has no middlewares"},
    {"extensions", "middlewares", "Braid has no middlewares"},
    {"exporters", "middlewares", "Braid has no middlewares"},
    {"exporters", "dialer_middleware", "Braid has no middlewares"},
    {"processors", "log_bodies", OF_OTHERS},
    {"processors", "log_severity_number", OF_OTHERS},
    {"processors", "log_severity_texts", OF_OTHERS},
    {"processors", "metric_names", OF_OTHERS},
    {"processors", "storage",
     "a processor has no queue on disk; use sending_queue::storage of the exporters"},
    {"exporters", "k8s",
     "use dns with the name of a headless Service, whose addresses are those of its pods"},
    {"exporters", "aws_cloud_map", "use dns with the name of the service"},
    {"exporters", "routing_attributes", "records are routed by trace or by service"},
    {"exporters", "queued_retry",
     "the Collector has removed it: use sending_queue and retry_on_failure"},
    {"exporters", "per_rpc_auth",
     "the Collector has removed it: use auth with an extension such as bearertokenauth"},
    {"processors", "ballast_size_mib",
     "the Collector has removed it, and Braid needs no ballast: remove the key"},
    {"exporters", "batcher", "batches are made by the processor batch, or by sending_queue::batch"},
};

const char *br_foreign_key(const char *path, const char *key)
{
    for (size_t i = 0; i < BR_COUNT(keys); i++) {
        size_t len = strlen(keys[i].section);
        if (strcmp(keys[i].key, key) == 0 && strncmp(path, keys[i].section, len) == 0 &&
            br_text_starts(path + len, "::"))
            return keys[i].text;
    }
    return NULL;
}

bool br_foreign_value(const char *path, const char *key, const char *value)
{
    static const struct {
        const char *section, *key, *value;
    } values[] = {
        {"processors", "auth_type", "kubeConfig"},
        {"processors", "auth_type", "tls"},
    };
    for (size_t i = 0; i < BR_COUNT(values); i++)
        if (br_text_starts(path, values[i].section) && strcmp(values[i].key, key) == 0 &&
            strcmp(values[i].value, value) == 0)
            return true;
    return false;
}
