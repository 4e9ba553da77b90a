/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "receivers/pyroscope/pyroscope.h"

static const struct br_option http_options[] = {
    BR_HTTP_ROWS("localhost:4040"),
    BR_OPT_END,
};

static const struct br_option protocol_options[] = {
    BR_STRUCT(struct pyroscope_protocols, http, http_options,
              "server for HTTP/1.1, HTTP/2 and gRPC on one port"),
    BR_OPT_END,
};

const struct br_option pyroscope_options[] = {
    BR_STRUCT(struct pyroscope_config, protocols, protocol_options, "protocols to listen for"),
    BR_STRING(struct pyroscope_config, tenant_header, "X-Scope-OrgID",
              "name of the request header that contains the tenant, which is kept as client "
              "metadata `x-scope-orgid`"),
    BR_OPT_END,
};

int pyroscope_check(void *config, const struct br_yaml *node, const char *path,
                    struct br_arena *arena, struct br_errs *errs)
{
    const struct pyroscope_config *pyroscope_config = config;
    const struct br_http_config *http = &pyroscope_config->protocols.http;
    size_t before = errs->n_errors;
    const struct br_yaml *at = br_yaml_get(br_yaml_get(node, "protocols"), "http");
    char where[256];
    (void)arena;
    (void)snprintf(where, sizeof where, "%s::protocols::http", path);
    br_endpoint_check(http->endpoint, http->transport, at ? at : node, where, errs);
    if (!pyroscope_config->tenant_header[0])
        br_errs_add_key(errs, node, path, "tenant_header",
                        "must be the name of a header, such as X-Scope-OrgID");
    return errs->n_errors > before ? BR_EINVAL : 0;
}
