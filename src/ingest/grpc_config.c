/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/grpc_config.h"

#define PING_TIME_MS 7200000u /* default of the keepalive time in grpc-go, in milliseconds */
#define PING_MIN_MS 300000u

static const struct br_option parameter_options[] = {
    BR_DURATION(struct br_grpc_keepalive_parameters, max_connection_idle, "0s",
                "close a connection after this time without a request; 0: never"),
    BR_DURATION(struct br_grpc_keepalive_parameters, max_connection_age, "0s",
                "ask a client to reconnect after this time, varied by 10%; 0: never"),
    BR_DURATION(struct br_grpc_keepalive_parameters, max_connection_age_grace, "0s",
                "time after max_connection_age at which the connection is closed, even with "
                "requests in progress; 0: never"),
    BR_DURATION(struct br_grpc_keepalive_parameters, time, "0s",
                "send a ping to a client that has sent no data for this time; 0: 2h"),
    BR_DURATION(struct br_grpc_keepalive_parameters, timeout, "0s",
                "close the connection if a ping is not answered within this time; 0: 20s"),
    BR_OPT_END,
};

static const struct br_option policy_options[] = {
    BR_DURATION(struct br_grpc_keepalive_policy, min_time, "0s",
                "shortest interval between pings of a client; a client that sends pings faster "
                "three times between two responses is disconnected; 0: 5m"),
    BR_BOOL(struct br_grpc_keepalive_policy, permit_without_stream, false,
            "true: min_time also applies while no request is in progress; false: the shortest "
            "interval is then 2h"),
    BR_OPT_END,
};

const struct br_option br_grpc_keepalive_options[] = {
    BR_PRESENT(struct br_grpc_keepalive, server_parameters, struct br_grpc_keepalive_parameters,
               parameter_options, "lifetime of connections, and pings to clients"),
    BR_PRESENT(struct br_grpc_keepalive, enforcement_policy, struct br_grpc_keepalive_policy,
               policy_options, "limits for pings from clients"),
    BR_OPT_END,
};

size_t br_grpc_max_message(const struct br_grpc_config *grpc)
{
    size_t mib = (size_t)grpc->max_recv_msg_size_mib;
    return mib ? mib << 20 : BR_BODY_MAX;
}

static uint64_t grpc_config_ms_or(uint64_t ns, uint64_t otherwise_ms)
{
    return ns ? ns / 1000000 : otherwise_ms;
}

struct br_server_config br_grpc_server(const struct br_grpc_config *grpc)
{
    static const struct br_grpc_keepalive_parameters no_parameters;
    static const struct br_grpc_keepalive_policy no_policy;
    const struct br_grpc_keepalive *keepalive = grpc->keepalive;
    const struct br_grpc_keepalive_parameters *k =
        keepalive && keepalive->server_parameters ? keepalive->server_parameters : &no_parameters;
    const struct br_grpc_keepalive_policy *policy =
        keepalive && keepalive->enforcement_policy ? keepalive->enforcement_policy : &no_policy;
    struct br_server_config server = {
        .endpoint = grpc->endpoint,
        .transport = grpc->transport,
        .tls = grpc->tls,
        .gate = {.auth = grpc->auth},
        .limits = {.max_concurrent_streams = (uint32_t)grpc->max_concurrent_streams,
                   .ping_min_ms = grpc_config_ms_or(policy->min_time, PING_MIN_MS),
                   .ping_without_stream = policy->permit_without_stream},
        .idle_timeout_ms = k->max_connection_idle / 1000000,
        .max_age_ms = k->max_connection_age / 1000000,
        .max_age_grace_ms = k->max_connection_age_grace / 1000000,
        .ping_time_ms = grpc_config_ms_or(k->time, PING_TIME_MS),
        .ping_timeout_ms = k->timeout / 1000000};
    br_connections_apply(&grpc->connections, &server);
    return server;
}
