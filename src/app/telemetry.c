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

static void add_held(struct br_metrics *m, const char *holder, size_t bytes)
{
    struct br_str labels = {.max = 64};
    br_label(&labels, "holder", holder);
    *br_metric(m, BR_GAUGE, "braid_memory_bytes", labels.data ? labels.data : "") = (double)bytes;
    br_str_release(&labels);
}

static void add_mark(struct br_metrics *m, const char *mark, size_t bytes)
{
    struct br_str labels = {.max = 64};
    br_label(&labels, "mark", mark);
    if (bytes != SIZE_MAX)
        *br_metric(m, BR_GAUGE, "braid_memory_limit_bytes", labels.data ? labels.data : "") =
            (double)bytes;
    br_str_release(&labels);
}

/* The memory budget: what holds how much, which adds up to what its marks are compared with. */
static void add_memory(struct br_telemetry *t, struct br_metrics *m)
{
    struct br_memory *memory = t->host->memory;
    if (!memory)
        return;
    br_memory_look(memory);
    for (int i = 0; i < BR_HOLDERS; i++)
        add_held(m, br_holder_name((enum br_holder)i), br_mem_held((enum br_holder)i));
    add_held(m, "overhead", br_memory_overhead(memory));
    add_mark(m, "soft", br_memory_soft(memory));
    add_mark(m, "intake", br_memory_intake(memory));
    add_mark(m, "hard", br_memory_hard(memory));
}

/* The process's own figures, under the Collector's names. */
static void add_process(struct br_telemetry *t, struct br_metrics *m)
{
    *br_metric(m, BR_COUNTER, "otelcol_process_cpu_seconds", "") =
        (double)br_host_cpu_ns(t->host) / 1e9;
    *br_metric(m, BR_GAUGE, "otelcol_process_memory_rss", "") =
        (double)br_memory_resident();
    *br_metric(m, BR_COUNTER, "braid_log_dropped_lines", "") = (double)br_log_dropped();
    *br_metric(m, BR_COUNTER, "otelcol_process_uptime", "") =
        (double)(br_host_mono_ms(t->host) - t->started_ms) / 1000.0;
}

static void on_snapshot(struct br_metrics *sum, void *arg)
{
    struct scrape *s = arg;
    br_list_remove(&s->link);
    if (s->request && s->telemetry && sum) {
        struct br_str text = {0};
        add_process(s->telemetry, sum);
        add_memory(s->telemetry, sum);
        br_metrics_print(sum, &text);
        if (text.failed || !text.data)
            br_request_reply_text(s->request, 500, "out of memory\n");
        else
            br_request_reply(s->request,
                             &(struct br_response){.status = 200,
                                                   .content_type = "text/plain; version=0.0.4",
                                                   .text = text.data,
                                                   .text_len = text.len});
        br_str_release(&text);
    } else if (s->request && s->telemetry) {
        br_request_reply_text(s->request, 500, "out of memory\n");
    }
    br_metrics_free(sum);
    br_free(s);
}

static void begin(struct br_handler *self, struct br_request *r)
{
    const struct br_telemetry *t = br_container_of(self, struct br_telemetry, service);
    r->max_body = 0;
    if (!br_hosts_allow(&t->hosts, r))
        br_request_reply_text(r, 403, BR_HOSTS_REFUSAL "\n");
    else if (strcmp(r->path, "/metrics") != 0)
        br_request_reply_text(r, 404, "see /metrics\n");
    else if (strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0)
        br_request_reply_text(r, 405, "GET only\n");
}

static void body(struct br_handler *self, struct br_request *r)
{
    struct br_telemetry *t = br_container_of(self, struct br_telemetry, service);
    struct scrape *s = br_calloc(1, sizeof *s);
    if (r->body_error || !s) {
        br_free(s);
        br_request_reply_text(r, r->body_error ? 413 : 500, "no body is wanted\n");
        return;
    }
    s->telemetry = t;
    s->request = r;
    r->user = s;
    br_list_append(&t->scrapes, &s->link);
    t->snapshot(t->arg, on_snapshot, s);
}

static void gone(struct br_handler *self, struct br_request *r)
{
    (void)self;
    struct scrape *s = r->user;
    if (s)
        s->request = NULL;
}

int br_telemetry_new(struct br_host *host, const struct br_hosts *hosts, br_snapshot_fn *snapshot,
                     void *arg, struct br_telemetry **ret, struct br_err *err)
{
    struct br_telemetry *t = br_calloc(1, sizeof *t);
    if (!t)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    t->service = (struct br_handler){begin, body, gone};
    t->host = host;
    t->hosts = *hosts;
    t->snapshot = snapshot;
    t->arg = arg;
    t->started_ms = br_host_mono_ms(host);
    br_list_init(&t->scrapes);
    struct br_server_config config = {.name = "telemetry metrics",
                                      .what = "metrics",
                                      .endpoint = hosts->endpoint,
                                      .idle_timeout_ms = 120000,
                                      .log = &log_telemetry};
    int rc = host->ops->serve(host, &config, &t->service, &t->server, err);
    if (rc) {
        br_err_prefix(err, "service::telemetry::metrics: ");
        br_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void br_telemetry_free(struct br_telemetry *t)
{
    if (!t)
        return;
    for (struct br_list *l = t->scrapes.next; l != &t->scrapes; l = l->next)
        br_container_of(l, struct scrape, link)->telemetry = NULL;
    br_list_remove(&t->scrapes);
    br_server_free(t->server);
    br_free(t);
}
