/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "net/client.h"
#include "receivers/jaeger/jaeger.h"

static const struct br_option grpc_options[] = {
    BR_GRPC_ROWS("localhost:14250"),
    BR_OPT_END,
};

static const struct br_option http_options[] = {
    BR_HTTP_ROWS_KEEPING("localhost:14268", false),
    BR_OPT_END,
};

/* Option rows for a struct jaeger_udp_config. `listens` is the default endpoint. */
#define UDP_ROWS(listens)                                                                          \
    BR_STRING(struct jaeger_udp_config, endpoint, listens, "host:port at which packets arrive"),   \
        BR_INT(struct jaeger_udp_config, queue_size, 1000, 1, 1000000,                             \
               "largest number of packets whose spans are in the pipeline; further packets are "   \
               "dropped"),                                                                         \
        BR_INT(struct jaeger_udp_config, max_packet_size, 65000, 1, BR_UDP_PACKET_MAX,             \
               "largest packet in bytes; larger packets are dropped"),                             \
        BR_INT(struct jaeger_udp_config, socket_buffer_size, 0, 0, 1 << 30,                        \
               "size of the system's buffer for packets that were not read yet, in bytes; 0: the " \
               "system's default"),                                                                \
        BR_IGNORED("workers", "one worker reads the packets of a socket")

static const struct br_option compact_options[] = {
    UDP_ROWS("localhost:6831"),
    BR_OPT_END,
};

static const struct br_option binary_options[] = {
    UDP_ROWS("localhost:6832"),
    BR_OPT_END,
};

static const struct br_option protocol_options[] = {
    BR_PRESENT(struct jaeger_protocols, grpc, struct br_grpc_config, grpc_options,
               "server for gRPC; if absent, the protocol is not used"),
    BR_PRESENT(struct jaeger_protocols, thrift_http, struct br_http_config, http_options,
               "server for Thrift over HTTP; if absent, the protocol is not used"),
    BR_PRESENT(struct jaeger_protocols, thrift_compact, struct jaeger_udp_config, compact_options,
               "socket for packets of the compact protocol; if absent, the protocol is not used"),
    BR_PRESENT(struct jaeger_protocols, thrift_binary, struct jaeger_udp_config, binary_options,
               "socket for packets of the binary protocol; if absent, the protocol is not used"),
    BR_OPT_END,
};

const struct br_option jaeger_options[] = {
    BR_STRUCT(struct jaeger_config, protocols, protocol_options, "protocols to listen for"),
    BR_OPT_END,
};

/* Checks an endpoint, unless the protocol is absent (`endpoint` is NULL). */
static void jaeger_config_check(const char *protocol, const char *endpoint, const char *transport,
                                const struct br_yaml *protocols, const char *path,
                                struct br_errs *errs)
{
    char at[256];
    if (!endpoint)
        return;
    (void)snprintf(at, sizeof at, "%s::protocols::%s", path, protocol);
    br_endpoint_check(endpoint, transport, br_yaml_get(protocols, protocol), at, errs);
}

int jaeger_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    const struct jaeger_protocols *p = &((const struct jaeger_config *)config)->protocols;
    const struct br_yaml *protocols = br_yaml_get(node, "protocols");
    size_t before = errs->n_errors;
    (void)arena;
    if (!p->grpc && !p->thrift_http && !p->thrift_compact && !p->thrift_binary)
        return br_errs_add_key(errs, node, path, "protocols",
                               "must name grpc, thrift_http, thrift_compact or thrift_binary, as "
                               "\"protocols: {grpc: {}}\"");
    jaeger_config_check("grpc", p->grpc ? p->grpc->endpoint : NULL,
                        p->grpc ? p->grpc->transport : NULL, protocols, path, errs);
    jaeger_config_check("thrift_http", p->thrift_http ? p->thrift_http->endpoint : NULL,
                        p->thrift_http ? p->thrift_http->transport : NULL, protocols, path, errs);
    jaeger_config_check("thrift_compact", p->thrift_compact ? p->thrift_compact->endpoint : NULL,
                        "tcp", protocols, path, errs);
    jaeger_config_check("thrift_binary", p->thrift_binary ? p->thrift_binary->endpoint : NULL,
                        "tcp", protocols, path, errs);
    return errs->n_errors > before ? BR_EINVAL : 0;
}
