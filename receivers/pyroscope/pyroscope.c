/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pyroscope/pyroscope.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

/* Answers a request for an unknown path in the format of Pyroscope's router, with a more
 * detailed message. */
static void pyroscope_receiver_refuse(struct br_ingest_listener *listener,
                                      struct br_request *request)
{
    char why[BR_INGEST_UNKNOWN_MAX];
    struct br_str text = {.max = 4096};
    br_ingest_log_unknown(listener->ingest, request,
                          "profiles go to /push.v1.PusherService/Push or /ingest, as OTLP to "
                          "/v1development/profiles",
                          why);
    br_str_puts(&text, "{\"code\":5,\"message\":");
    br_str_json(&text, why, strlen(why));
    br_str_puts(&text, ",\"details\":[]}");
    br_http_reply(
        listener->http, request,
        &(struct br_http_answer){
            .status = 404, .type = "application/json", .data = text.data, .len = text.len});
    br_str_release(&text);
}

static bool pyroscope_receiver_begin_ready(struct pyroscope *pyroscope, struct br_request *request)
{
    if (strcmp(request->path, "/ready") != 0)
        return false;
    if (br_node_is_shutting_down(pyroscope->ingest.node))
        br_request_reply_text(request, 503, "shutting down\n");
    else
        br_request_reply_text(request, 200, "ready\n");
    return true;
}

static void pyroscope_receiver_begin(struct br_handler *self, struct br_request *request)
{
    struct br_ingest_listener *ingest_listener =
        br_container_of(self, struct br_ingest_listener, service.handler);
    struct pyroscope *p = br_container_of(ingest_listener, struct pyroscope, listener);
    if (pyroscope_begin_push(p, request))
        return;
    if (br_grpc_is(request)) {
        if (!br_otlp_begin_grpc(&p->otlp, ingest_listener, &p->grpc, request))
            br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED, "unknown service or method");
        return;
    }
    if (!pyroscope_begin_ingest(p, request) &&
        !br_otlp_begin_http(&p->otlp, ingest_listener, &p->http, request) &&
        !pyroscope_receiver_begin_ready(p, request))
        pyroscope_receiver_refuse(ingest_listener, request);
}

static int pyroscope_receiver_create(struct br_node *node, struct br_err *err)
{
    struct pyroscope *p = node->state;
    const struct pyroscope_config *config = node->config;
    int rc = br_ingest_init(&p->ingest, node, err);
    if (rc)
        return rc;
    p->ingest.tenant_header = config->tenant_header;
    p->otlp = (struct br_otlp_handler){.max_depth = BR_WALK_DEPTH,
                                       .utf8 = BR_UTF8_REPAIR,
                                       .signals = BR_SIGNAL_BIT(BR_PROFILES),
                                       .paths[BR_PROFILES] = "/v1development/profiles",
                                       .more_types = true};
    br_otlp_handler_init(&p->otlp, node);
    p->listener.service.handler.begin = pyroscope_receiver_begin;
    p->listener.http = &config->protocols.http;
    p->listener.max_body = br_http_max_body(&config->protocols.http);
    br_meter_init(&p->http, node, "http", BR_SIGNAL_BIT(BR_PROFILES));
    br_meter_init(&p->grpc, node, "grpc", BR_SIGNAL_BIT(BR_PROFILES));
    return 0;
}

static int pyroscope_receiver_start(struct br_node *node, struct br_err *err)
{
    struct pyroscope *p = node->state;
    struct br_server_config config = br_http_server(p->listener.http);
    return br_ingest_listen(&p->ingest, &p->listener, "http", &config, err);
}

static void pyroscope_receiver_drain(struct br_node *node)
{
    struct pyroscope *p = node->state;
    br_ingest_drain(&p->ingest);
}

static void pyroscope_receiver_destroy(struct br_node *node)
{
    struct pyroscope *p = node->state;
    br_ingest_release(&p->ingest);
}

extern const struct br_component br_pyroscope_receiver;
const struct br_component br_pyroscope_receiver = {
    .name = "pyroscope",
    .kind = BR_RECEIVER,
    .signals = BR_SIGNAL_BIT(BR_PROFILES),
    .stability = "alpha",
    .help = "receives profiles by Pyroscope's /ingest and push API, and by OTLP, on one port",
    .options = pyroscope_options,
    .config_size = sizeof(struct pyroscope_config),
    .state_size = sizeof(struct pyroscope),
    .check = pyroscope_check,
    .create = pyroscope_receiver_create,
    .start = pyroscope_receiver_start,
    .drain = pyroscope_receiver_drain,
    .destroy = pyroscope_receiver_destroy,
};
