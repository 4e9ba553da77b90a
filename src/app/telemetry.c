/* SPDX-License-Identifier: Apache-2.0 */
#include "app/telemetry.h"

#include <stdio.h>
#include <string.h>

#include "app/config.h"
#include "base/mem.h"
#include "base/memory.h"
#include "net/server.h"
#include "wire/compression.h"
#include "wire/request.h"

static const struct br_log log_telemetry = {"telemetry"};

struct br_telemetry {
    struct br_handler service;
    struct br_host *host;
    struct br_hosts hosts;
    struct br_server *server;
    br_snapshot_fn *snapshot;
    void *arg;
    struct br_codec *codec;
    struct br_str target; /* labels of target_info, in Prometheus text format */
    bool suffixes;        /* the names of metrics have suffixes */
    bool detailed;        /* the metrics level is `detailed` */
    uint64_t started_ms;
    struct br_list scrapes; /* list of struct scrape: requests that have not been answered yet */
};

/* A request for metrics that waits for the snapshot of all workers. */
struct scrape {
    struct br_list link;
    struct br_telemetry *telemetry; /* NULL after br_telemetry_free */
    struct br_request *request;     /* NULL after the client disconnected */
};

static void telemetry_add_held(struct br_metrics *metrics, const char *holder, size_t bytes)
{
    struct br_str labels = {.max = 64};
    br_label(&labels, "holder", holder);
    *br_metric(metrics, BR_GAUGE, "braid_memory_bytes", labels.data ? labels.data : "") =
        (double)bytes;
    br_str_release(&labels);
}

static void telemetry_add_mark(struct br_metrics *metrics, const char *mark, size_t bytes)
{
    struct br_str labels = {.max = 64};
    br_label(&labels, "mark", mark);
    if (bytes != SIZE_MAX)
        *br_metric(metrics, BR_GAUGE, "braid_memory_limit_bytes", labels.data ? labels.data : "") =
            (double)bytes;
    br_str_release(&labels);
}

/* Adds the memory in use by category, including the overhead, and the memory limits. The limits
 * apply to the sum of all categories. */
static void telemetry_add_memory(struct br_telemetry *telemetry, struct br_metrics *metrics)
{
    struct br_memory *memory = telemetry->host->memory;
    if (!memory)
        return;
    br_memory_look(memory);
    for (int i = 0; i < BR_HOLDERS; i++)
        telemetry_add_held(metrics, br_holder_name((enum br_holder)i),
                           br_mem_held((enum br_holder)i));
    telemetry_add_held(metrics, "overhead", br_memory_overhead(memory));
    telemetry_add_mark(metrics, "soft", br_memory_soft(memory));
    telemetry_add_mark(metrics, "intake", br_memory_intake(memory));
    telemetry_add_mark(metrics, "hard", br_memory_hard(memory));
}

/* Adds the metrics of the process, most of them under the Collector's names. */
static void telemetry_add_process(struct br_telemetry *telemetry, struct br_metrics *metrics)
{
    *br_metric(metrics, BR_COUNTER, "otelcol_process_cpu_seconds", "") =
        (double)br_host_cpu_ns(telemetry->host) / 1e9;
    *br_metric(metrics, BR_GAUGE,
               telemetry->suffixes ? "otelcol_process_memory_rss_bytes"
                                   : "otelcol_process_memory_rss",
               "") = (double)br_memory_resident();
    *br_metric(metrics, BR_COUNTER, "braid_log_dropped_lines", "") = (double)br_log_dropped();
    *br_metric(metrics, BR_COUNTER,
               telemetry->suffixes ? "otelcol_process_uptime_seconds" : "otelcol_process_uptime",
               "") = (double)(br_host_mono_ms(telemetry->host) - telemetry->started_ms) / 1000.0;
}

/* Returns the format of the response. OpenMetrics is chosen if the client, for example Prometheus,
 * accepts OpenMetrics with at least the same quality value as plain text. OpenMetrics requires
 * suffixes in the names of counters, so without suffixes it is chosen only if it is needed for
 * exemplars. */
static enum br_metrics_format telemetry_choose_format(const struct br_telemetry *telemetry,
                                                      const struct br_request *request,
                                                      bool exemplars)
{
    const char *accept = br_request_header(request, "accept");
    double best = br_accept_quality(accept, "application/openmetrics-text");
    bool wanted = best > 0 && best >= br_accept_quality(accept, "text/plain");
    if (telemetry->suffixes)
        return wanted ? BR_METRICS_OPENMETRICS : BR_METRICS_TEXT;
    return wanted && exemplars ? BR_METRICS_OPENMETRICS_PLAIN : BR_METRICS_PLAIN;
}

static void telemetry_print(struct br_telemetry *telemetry, struct br_metrics *sum,
                            enum br_metrics_format format, struct br_str *text)
{
    telemetry_add_process(telemetry, sum);
    telemetry_add_memory(telemetry, sum);
    br_metrics_print(sum, format, br_metric_help,
                     telemetry->detailed ? NULL : br_metric_is_detailed, text);
    br_metrics_print_target(telemetry->target.data, format, text);
    if (br_metrics_is_openmetrics(format))
        br_str_puts(text, "# EOF\n");
}

/* Returns the compressed text, or NULL if memory runs out; the response is then sent
 * uncompressed. */
static struct br_buf *telemetry_gzip(struct br_telemetry *telemetry, struct br_request *request,
                                     const struct br_str *text)
{
    struct br_rope rope = {0};
    struct br_buf *plain = br_buf_new(request->pool, text->len), *packed = NULL;
    if (plain && br_buf_append(&plain, text->data, text->len, BR_BUF_MAX) == 0 &&
        br_rope_add(&rope, plain, plain->data, plain->len) == 0 &&
        br_compress(telemetry->codec, BR_ENCODING_GZIP, 0, &rope, 0, request->pool, &packed) != 0)
        packed = NULL;
    br_rope_release(&rope);
    br_buf_unref(plain);
    return packed;
}

static void telemetry_reply(struct br_telemetry *telemetry, struct br_request *request,
                            enum br_metrics_format format, const struct br_str *text)
{
    static const struct br_header headers[] = {{"vary", "accept, accept-encoding"},
                                               {"content-encoding", "gzip"}};
    struct br_response response = {.status = 200,
                                   .content_type =
                                       br_metrics_is_openmetrics(format)
                                           ? "application/openmetrics-text; version=1.0.0; "
                                             "charset=utf-8"
                                           : "text/plain; version=0.0.4; charset=utf-8",
                                   .headers = headers,
                                   .n_headers = 1};
    bool gzip = br_accept_quality(br_request_header(request, "accept-encoding"), "gzip") > 0;
    struct br_buf *packed = gzip ? telemetry_gzip(telemetry, request, text) : NULL;
    response.body = packed;
    response.n_headers += packed != NULL;
    response.text = packed ? NULL : text->data;
    response.text_len = packed ? 0 : text->len;
    br_request_reply(request, &response);
    br_buf_unref(packed);
}

static void telemetry_on_snapshot(struct br_metrics *sum, void *arg)
{
    struct scrape *scrape = arg;
    struct br_telemetry *telemetry = scrape->telemetry;
    struct br_str text = {0};
    br_list_remove(&scrape->link);
    if (scrape->request && telemetry) {
        enum br_metrics_format format = telemetry_choose_format(
            telemetry, scrape->request, sum && br_metrics_have_exemplars(sum));
        if (sum)
            telemetry_print(telemetry, sum, format, &text);
        if (text.failed || !text.data)
            br_request_reply_text(scrape->request, 500, "out of memory\n");
        else
            telemetry_reply(telemetry, scrape->request, format, &text);
    }
    br_str_release(&text);
    br_metrics_free(sum);
    br_free(scrape);
}

static void telemetry_begin(struct br_handler *self, struct br_request *request)
{
    const struct br_telemetry *telemetry = br_container_of(self, struct br_telemetry, service);
    request->max_body = 0;
    if (!br_hosts_allow(&telemetry->hosts, request))
        br_request_reply_text(request, 403, BR_HOSTS_REFUSAL "\n");
    else if (strcmp(request->path, "/metrics") != 0)
        br_request_reply_text(request, 404, "metrics are at /metrics\n");
    else if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
        br_request_reply_text(request, 405, "GET only\n");
}

static void telemetry_body(struct br_handler *self, struct br_request *request)
{
    struct br_telemetry *telemetry = br_container_of(self, struct br_telemetry, service);
    struct scrape *scrape = br_calloc(1, sizeof *scrape);
    if (request->body_error || !scrape) {
        br_free(scrape);
        br_request_reply_text(request, request->body_error ? 413 : 500,
                              "the request must not have a body\n");
        return;
    }
    scrape->telemetry = telemetry;
    scrape->request = request;
    request->user = scrape;
    br_list_append(&telemetry->scrapes, &scrape->link);
    telemetry->snapshot(telemetry->arg, telemetry_on_snapshot, scrape);
}

static void telemetry_gone(struct br_handler *self, struct br_request *request)
{
    (void)self;
    struct scrape *scrape = request->user;
    if (scrape)
        scrape->request = NULL;
}

/* Writes a random UUID (version 4), which distinguishes instances of the same name on one
 * machine. */
static void telemetry_instance(struct br_host *host, char out[37])
{
    unsigned words[8];
    for (size_t i = 0; i < 8; i++)
        words[i] = (unsigned)(br_host_random(host) * 65536) & 0xffff;
    (void)snprintf(out, 37, "%04x%04x-%04x-%04x-%04x-%04x%04x%04x", words[0], words[1], words[2],
                   0x4000 | (words[3] & 0xfff), 0x8000 | (words[4] & 0x3fff), words[5], words[6],
                   words[7]);
}

/* Appends the labels of `config` from index `*next` up to but excluding the name `up_to`. The
 * labels are sorted by name. If `up_to` is NULL, appends all remaining labels. */
static void telemetry_put_labels(struct br_telemetry *telemetry,
                                 const struct br_telemetry_config *config, size_t *next,
                                 const char *up_to)
{
    for (; *next < config->n_target; ++*next) {
        const struct br_target_label *label = &config->target[*next];
        if (up_to && strcmp(label->name, up_to) >= 0)
            return;
        if (label->value)
            br_label(&telemetry->target, label->name, label->value);
    }
}

/* Creates the labels of target_info from Braid's defaults and the attributes in the configuration.
 * An attribute overrides the default of the same name. */
static bool telemetry_make_target(struct br_telemetry *telemetry,
                                  const struct br_telemetry_config *config)
{
    char instance[37];
    size_t next = 0;
    telemetry_instance(telemetry->host, instance);
    const struct br_target_label own[] = {{"service_instance_id", instance},
                                          {"service_name", "braid"},
                                          {"service_version", BR_VERSION}};
    br_str_add(&telemetry->target, "", 0);
    for (size_t i = 0; i < BR_COUNT(own); i++) {
        telemetry_put_labels(telemetry, config, &next, own[i].name);
        if (next == config->n_target || strcmp(config->target[next].name, own[i].name) != 0)
            br_label(&telemetry->target, own[i].name, own[i].value);
    }
    telemetry_put_labels(telemetry, config, &next, NULL);
    telemetry->codec = br_codec_new();
    return telemetry->codec && !telemetry->target.failed;
}

int br_telemetry_new(struct br_host *host, const struct br_hosts *hosts,
                     const struct br_telemetry_config *config, br_snapshot_fn *snapshot, void *arg,
                     struct br_telemetry **ret, struct br_err *err)
{
    struct br_telemetry *telemetry = br_calloc(1, sizeof *telemetry);
    if (!telemetry)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    telemetry->service = (struct br_handler){
        .begin = telemetry_begin, .body = telemetry_body, .gone = telemetry_gone};
    telemetry->host = host;
    telemetry->hosts = *hosts;
    telemetry->suffixes = config->metrics_suffixes;
    telemetry->detailed = config->metrics_detailed;
    telemetry->snapshot = snapshot;
    telemetry->arg = arg;
    telemetry->started_ms = br_host_mono_ms(host);
    br_list_init(&telemetry->scrapes);
    struct br_server_config server = {.name = "telemetry metrics",
                                      .what = "metrics",
                                      .endpoint = hosts->endpoint,
                                      .gate = {.auth = config->metrics_auth},
                                      .idle_timeout_ms = 120000,
                                      .log = &log_telemetry};
    int rc = telemetry_make_target(telemetry, config)
                 ? host->ops->serve(host, &server, &telemetry->service, &telemetry->server, err)
                 : br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc) {
        br_err_prefix(err, "service::telemetry::metrics: ");
        br_telemetry_free(telemetry);
        return rc;
    }
    *ret = telemetry;
    return 0;
}

void br_telemetry_free(struct br_telemetry *telemetry)
{
    if (!telemetry)
        return;
    for (struct br_list *list = telemetry->scrapes.next; list != &telemetry->scrapes;
         list = list->next)
        br_container_of(list, struct scrape, link)->telemetry = NULL;
    br_list_remove(&telemetry->scrapes);
    br_server_free(telemetry->server);
    br_codec_free(telemetry->codec);
    br_str_release(&telemetry->target);
    br_free(telemetry);
}
