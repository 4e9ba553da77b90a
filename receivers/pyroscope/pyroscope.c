/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pyroscope/pyroscope.h"

#include <string.h>

#include "base/mem.h"

/* As Pyroscope's router answers. */
static const char not_found[] = "{\"code\":5,\"message\":\"Not Found\",\"details\":[]}";

static bool begin_ready(struct pyroscope *p, struct br_request *r)
{
    if (strcmp(r->path, "/ready") != 0)
        return false;
    if (p->ingest.node->draining)
        br_request_reply_text(r, 503, "shutting down\n");
    else
        br_request_reply_text(r, 200, "ready\n");
    return true;
}

static void begin(struct br_handler *self, struct br_request *r)
{
    struct br_ingest_listener *d = br_container_of(self, struct br_ingest_listener, service);
    struct pyroscope *p = br_container_of(d, struct pyroscope, listener);
    if (pyroscope_begin_push(p, r))
        return;
    if (br_grpc_is(r)) {
        if (!br_otlp_begin_grpc(&p->otlp, d, &p->grpc, r))
            br_grpc_refuse(r, BR_STATUS_UNIMPLEMENTED, "unknown service or method");
        return;
    }
    if (!pyroscope_begin_ingest(p, r) && !br_otlp_begin_http(&p->otlp, d, &p->http, r) &&
        !begin_ready(p, r))
        br_http_reply(d->http, r,
                      &(struct br_http_answer){.status = 404,
                                               .type = "application/json",
                                               .data = not_found,
                                               .len = sizeof not_found - 1});
}

static int pyroscope_create(struct br_node *node, struct br_err *err)
{
    struct pyroscope *p = node->state;
    const struct pyroscope_config *c = node->config;
    int rc = br_ingest_init(&p->ingest, node, err);
    if (rc)
        return rc;
    p->ingest.tenant_header = c->tenant_header;
    p->otlp = (struct br_otlp_handler){.max_depth = BR_WALK_DEPTH,
                                       .utf8 = BR_UTF8_REPAIR,
                                       .signals = BR_SIGNAL_BIT(BR_PROFILES),
                                       .paths[BR_PROFILES] = "/v1development/profiles",
                                       .more_types = true};
    br_otlp_handler_init(&p->otlp, node);
    p->listener.service.begin = begin;
    p->listener.http = &c->protocols.http;
    p->listener.max_body = br_http_max_body(&c->protocols.http);
    br_meter_init(&p->http, node, "http", BR_SIGNAL_BIT(BR_PROFILES));
    br_meter_init(&p->grpc, node, "grpc", BR_SIGNAL_BIT(BR_PROFILES));
    return 0;
}

static int pyroscope_start(struct br_node *node, struct br_err *err)
{
    struct pyroscope *p = node->state;
    struct br_server_config config = br_http_server(p->listener.http);
    return br_ingest_listen(&p->ingest, &p->listener, "http", &config, err);
}

static void pyroscope_drain(struct br_node *node)
{
    struct pyroscope *p = node->state;
    br_ingest_drain(&p->ingest);
}

static void pyroscope_destroy(struct br_node *node)
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
    .help = "Pyroscope's /ingest and push API, and OTLP profiles, on one port",
    .options = pyroscope_options,
    .config_size = sizeof(struct pyroscope_config),
    .state_size = sizeof(struct pyroscope),
    .check = pyroscope_check,
    .create = pyroscope_create,
    .start = pyroscope_start,
    .drain = pyroscope_drain,
    .destroy = pyroscope_destroy,
};
