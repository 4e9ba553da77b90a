/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "otlp/walk/walk.h"
#include "receivers/otlp/otlp.h"

static const struct br_option grpc_options[] = {
    BR_GRPC_ROWS("localhost:4317"),
    BR_OPT_END,
};

static const struct br_option http_options[] = {
    BR_HTTP_ROWS_KEEPING("localhost:4318", false),
    BR_STRING(struct otlp_http, traces_url_path, "/v1/traces", "URL path of requests with traces"),
    BR_STRING(struct otlp_http, profiles_url_path, "/v1development/profiles",
              "URL path of requests with profiles"),
    BR_IGNORED("metrics_url_path", "metrics are not supported"),
    BR_IGNORED("logs_url_path", "logs are not supported"),
    BR_OPT_END,
};

static const struct br_option protocol_options[] = {
    BR_PRESENT(struct otlp_protocols, grpc, struct br_grpc_config, grpc_options,
               "server for gRPC; absent: no gRPC server"),
    BR_PRESENT(struct otlp_protocols, http, struct otlp_http, http_options,
               "server for HTTP; absent: no HTTP server"),
    BR_OPT_END,
};

static const char *const utf8_policies[] = {"repair", "reject", "pass", NULL};

const struct br_option otlp_options[] = {
    BR_STRUCT(struct otlp_config, protocols, protocol_options, "protocols to listen for"),
    BR_ENUM(struct otlp_config, invalid_utf8, "repair", utf8_policies,
            "strings with invalid UTF-8: repair them with U+FFFD, reject the request, or pass them "
            "on unchanged"),
    BR_INT(struct otlp_config, max_depth, BR_WALK_DEPTH, 8, BR_WALK_DEPTH_MAX,
           "largest depth of nested messages in a request"),
    BR_OPT_END,
};

static void otlp_config_check_paths(const struct otlp_http *http, const struct br_yaml *node,
                                    const char *path, struct br_errs *errs)
{
    const char *const paths[2][2] = {{"traces_url_path", http->traces_url_path},
                                     {"profiles_url_path", http->profiles_url_path}};
    for (int i = 0; i < 2; i++)
        if (paths[i][1][0] != '/')
            br_errs_add_key(errs, node, path, paths[i][0],
                            "must start with a slash, as \"/v1/traces\", got \"%s\"", paths[i][1]);
}

int otlp_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
               struct br_errs *errs)
{
    struct otlp_config *otlp_config = config;
    const struct br_yaml *protocols = br_yaml_get(node, "protocols");
    size_t before = errs->n_errors;
    char at[256];
    (void)arena;
    if (!otlp_config->protocols.grpc && !otlp_config->protocols.http)
        return br_errs_add_key(
            errs, node, path, "protocols",
            "must name grpc, http or both, as \"protocols: {grpc: {}, http: {}}\"");
    if (otlp_config->protocols.grpc) {
        (void)snprintf(at, sizeof at, "%s::protocols::grpc", path);
        br_endpoint_check(otlp_config->protocols.grpc->endpoint,
                          otlp_config->protocols.grpc->transport, br_yaml_get(protocols, "grpc"),
                          at, errs);
    }
    if (otlp_config->protocols.http) {
        const struct br_http_config *http = &otlp_config->protocols.http->server;
        (void)snprintf(at, sizeof at, "%s::protocols::http", path);
        br_endpoint_check(http->endpoint, http->transport, br_yaml_get(protocols, "http"), at,
                          errs);
        otlp_config_check_paths(otlp_config->protocols.http, br_yaml_get(protocols, "http"), at,
                                errs);
    }
    return errs->n_errors > before ? BR_EINVAL : 0;
}
