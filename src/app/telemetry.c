/* SPDX-License-Identifier: Apache-2.0 */
#include "app/telemetry.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/memory.h"
#include "net/server.h"

static const struct br_log log_telemetry = {"telemetry"};

struct br_telemetry {
    struct br_handler service;
    struct br_host *host;
    struct br_hosts hosts;
    struct br_server *server;
    br_snapshot_fn *snapshot;
    void *arg;
    uint64_t started_ms;
    struct br_list scrapes; /* of scrape */
};

/* A request that waits for its snapshot. */
struct scrape {
    struct br_list link;
    struct br_telemetry *telemetry; /* NULL once it was freed */
    struct br_request *request;     /* NULL once the client went away */
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

/* The memory budget: what holds how much, which adds up to what its marks are compared with. */
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

/* The process's own figures, under the Collector's names. */
static void telemetry_add_process(struct br_telemetry *telemetry, struct br_metrics *metrics)
{
    *br_metric(metrics, BR_COUNTER, "otelcol_process_cpu_seconds", "") =
        (double)br_host_cpu_ns(telemetry->host) / 1e9;
    *br_metric(metrics, BR_GAUGE, "otelcol_process_memory_rss", "") = (double)br_memory_resident();
    *br_metric(metrics, BR_COUNTER, "braid_log_dropped_lines", "") = (double)br_log_dropped();
    *br_metric(metrics, BR_COUNTER, "otelcol_process_uptime", "") =
        (double)(br_host_mono_ms(telemetry->host) - telemetry->started_ms) / 1000.0;
}

static void telemetry_on_snapshot(struct br_metrics *sum, void *arg)
{
    struct scrape *scrape = arg;
    br_list_remove(&scrape->link);
    if (scrape->request && scrape->telemetry && sum) {
        struct br_str text = {0};
        telemetry_add_process(scrape->telemetry, sum);
        telemetry_add_memory(scrape->telemetry, sum);
        br_metrics_print(sum, &text);
        if (text.failed || !text.data)
            br_request_reply_text(scrape->request, 500, "out of memory\n");
        else
            br_request_reply(scrape->request,
                             &(struct br_response){.status = 200,
                                                   .content_type = "text/plain; version=0.0.4",
                                                   .text = text.data,
                                                   .text_len = text.len});
        br_str_release(&text);
    } else if (scrape->request && scrape->telemetry) {
        br_request_reply_text(scrape->request, 500, "out of memory\n");
    }
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
        br_request_reply_text(request, 404, "see /metrics\n");
    else if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
        br_request_reply_text(request, 405, "GET only\n");
}

static void telemetry_body(struct br_handler *self, struct br_request *request)
{
    struct br_telemetry *telemetry = br_container_of(self, struct br_telemetry, service);
    struct scrape *scrape = br_calloc(1, sizeof *scrape);
    if (request->body_error || !scrape) {
        br_free(scrape);
        br_request_reply_text(request, request->body_error ? 413 : 500, "no body is wanted\n");
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

int br_telemetry_new(struct br_host *host, const struct br_hosts *hosts, br_snapshot_fn *snapshot,
                     void *arg, struct br_telemetry **ret, struct br_err *err)
{
    struct br_telemetry *telemetry = br_calloc(1, sizeof *telemetry);
    if (!telemetry)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    telemetry->service = (struct br_handler){telemetry_begin, telemetry_body, telemetry_gone};
    telemetry->host = host;
    telemetry->hosts = *hosts;
    telemetry->snapshot = snapshot;
    telemetry->arg = arg;
    telemetry->started_ms = br_host_mono_ms(host);
    br_list_init(&telemetry->scrapes);
    struct br_server_config config = {.name = "telemetry metrics",
                                      .what = "metrics",
                                      .endpoint = hosts->endpoint,
                                      .idle_timeout_ms = 120000,
                                      .log = &log_telemetry};
    int rc = host->ops->serve(host, &config, &telemetry->service, &telemetry->server, err);
    if (rc) {
        br_err_prefix(err, "service::telemetry::metrics: ");
        br_free(telemetry);
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
    br_free(telemetry);
}
