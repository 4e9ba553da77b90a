/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/otlp/otlp.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "ingest/otlp.h"

struct otlp {
    struct br_ingest ingest;
    struct br_otlp_handler service;
    struct br_ingest_listener grpc, http;
    struct br_meter grpc_meter, http_meter;
};

/* Builds and logs a message that the path is unknown. Clients of a Collector may also send
 * metrics and logs, which Braid does not receive. */
static void otlp_receiver_report_unknown(const struct br_ingest_listener *listener,
                                         const struct br_request *request, const char *traces,
                                         const char *profiles, char why[BR_INGEST_UNKNOWN_MAX])
{
    char paths[192];
    (void)snprintf(paths, sizeof paths, "traces go to %.80s, profiles to %.80s", traces, profiles);
    br_ingest_log_unknown(listener->ingest, request, paths, why);
}

/* Builds and logs a message for a client that uses the wrong protocol. The default protocol
 * differs between SDKs, and users often change only the port. */
static void otlp_receiver_report_wrong_protocol(const struct br_ingest_listener *listener,
                                                const struct br_request *request, const char *here,
                                                const char *there, const char *endpoint, char *why,
                                                size_t size)
{
    int len = snprintf(why, size, "this port accepts OTLP over %s", here);
    if (endpoint)
        (void)snprintf(why + len, size - (size_t)len, "; send OTLP over %s to %.120s", there,
                       endpoint);
    br_ingest_log_refused(listener->ingest, request, BR_STATUS_UNIMPLEMENTED, why);
}

static void otlp_receiver_begin_grpc(struct br_handler *self, struct br_request *request)
{
    struct br_ingest_listener *listener =
        br_container_of(self, struct br_ingest_listener, service.handler);
    struct otlp *otlp = br_container_of(listener, struct otlp, grpc);
    char why[BR_INGEST_UNKNOWN_MAX];
    if (!br_grpc_is(request)) {
        const struct otlp_config *config = listener->ingest->node->config;
        const struct otlp_http *http = config->protocols.http;
        otlp_receiver_report_wrong_protocol(listener, request, "gRPC", "HTTP",
                                            http ? http->server.endpoint : NULL, why, sizeof why);
        br_request_reply_text(request, 415, why);
    } else if (strcmp(request->method, "POST") != 0)
        br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED, "gRPC requests must use POST");
    else if (!br_otlp_begin_grpc(&otlp->service, listener, &otlp->grpc_meter, request)) {
        otlp_receiver_report_unknown(
            listener, request, "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export", why);
        br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED, why);
    }
}

static void otlp_receiver_begin_http(struct br_handler *self, struct br_request *request)
{
    struct br_ingest_listener *listener =
        br_container_of(self, struct br_ingest_listener, service.handler);
    struct otlp *otlp = br_container_of(listener, struct otlp, http);
    if (br_grpc_is(request)) {
        const struct otlp_config *config = listener->ingest->node->config;
        const struct br_grpc_config *grpc = config->protocols.grpc;
        char why[BR_INGEST_UNKNOWN_MAX];
        otlp_receiver_report_wrong_protocol(listener, request, "HTTP", "gRPC",
                                            grpc ? grpc->endpoint : NULL, why, sizeof why);
        br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED, why);
        return;
    }
    if (br_otlp_begin_http(&otlp->service, listener, &otlp->http_meter, request))
        return;
    char why[BR_INGEST_UNKNOWN_MAX];
    otlp_receiver_report_unknown(listener, request, otlp->service.paths[BR_TRACES],
                                 otlp->service.paths[BR_PROFILES], why);
    br_otlp_refuse(request, 404, why, listener->http);
}

static int otlp_receiver_create(struct br_node *node, struct br_err *err)
{
    struct otlp *otlp = node->state;
    const struct otlp_config *config = node->config;
    const struct br_grpc_config *grpc = config->protocols.grpc;
    const struct otlp_http *http = config->protocols.http;
    int rc = br_ingest_init(&otlp->ingest, node, err);
    if (rc)
        return rc;
    otlp->service = (struct br_otlp_handler){.max_depth = (unsigned)config->max_depth,
                                             .utf8 = (enum br_utf8_policy)config->invalid_utf8,
                                             .signals = BR_BOTH_SIGNALS};
    br_otlp_handler_init(&otlp->service, node);
    if (grpc) {
        otlp->grpc.service.handler.begin = otlp_receiver_begin_grpc;
        otlp->grpc.drops_metadata = !grpc->include_metadata;
        otlp->grpc.max_body = br_grpc_max_message(grpc);
        br_meter_init(&otlp->grpc_meter, node, "grpc", BR_BOTH_SIGNALS);
    }
    if (http) {
        otlp->service.paths[BR_TRACES] = http->traces_url_path;
        otlp->service.paths[BR_PROFILES] = http->profiles_url_path;
        otlp->http.service.handler.begin = otlp_receiver_begin_http;
        otlp->http.http = &http->server;
        otlp->http.drops_metadata = !http->server.include_metadata;
        otlp->http.max_body = br_http_max_body(&http->server);
        br_meter_init(&otlp->http_meter, node, "http", BR_BOTH_SIGNALS);
    }
    return 0;
}

static int otlp_receiver_start(struct br_node *node, struct br_err *err)
{
    struct otlp *otlp = node->state;
    const struct otlp_config *otlp_config = node->config;
    const struct br_grpc_config *grpc = otlp_config->protocols.grpc;
    int rc = 0;
    if (grpc) {
        struct br_server_config config = br_grpc_server(grpc);
        rc = br_ingest_listen(&otlp->ingest, &otlp->grpc, "grpc", &config, err);
    }
    if (otlp_config->protocols.http && !rc) {
        struct br_server_config config = br_http_server(&otlp_config->protocols.http->server);
        rc = br_ingest_listen(&otlp->ingest, &otlp->http, "http", &config, err);
    }
    return rc;
}

static bool otlp_receiver_keeps_metadata(const void *config)
{
    const struct otlp_protocols *protocols = &((const struct otlp_config *)config)->protocols;
    return (!protocols->grpc || protocols->grpc->include_metadata) &&
           (!protocols->http || protocols->http->server.include_metadata);
}

static void otlp_receiver_drain(struct br_node *node)
{
    struct otlp *otlp = node->state;
    br_ingest_drain(&otlp->ingest);
}

static void otlp_receiver_destroy(struct br_node *node)
{
    struct otlp *otlp = node->state;
    br_ingest_release(&otlp->ingest);
}

extern const struct br_component br_otlp_receiver;
const struct br_component br_otlp_receiver = {
    .name = "otlp",
    .kind = BR_RECEIVER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "receives OTLP over gRPC and HTTP",
    .options = otlp_options,
    .config_size = sizeof(struct otlp_config),
    .state_size = sizeof(struct otlp),
    .keeps_metadata = otlp_receiver_keeps_metadata,
    .check = otlp_check,
    .create = otlp_receiver_create,
    .start = otlp_receiver_start,
    .drain = otlp_receiver_drain,
    .destroy = otlp_receiver_destroy,
};
