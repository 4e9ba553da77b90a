/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/http_service.h"

#include <stdio.h>

int br_http_service_listen(struct br_http_service *service, struct br_node *node, const char *what,
                           const struct br_strings *allowed, struct br_server_config *config,
                           struct br_err *err)
{
    (void)snprintf(service->name, sizeof service->name, "%s/%.120s %s",
                   br_kind_name(node->component->kind), node->id, what);
    service->hosts = (struct br_hosts){config->endpoint, config->transport, allowed};
    config->name = service->name;
    config->what = what;
    config->log = &node->log;
    return node->host->ops->serve(node->host, config, &service->handler, &service->server, err);
}

static void http_service_on_stopped(void *arg)
{
    struct br_http_service *service = arg;
    service->stopped = true;
    br_node_drained(service->node);
}

void br_http_service_drain(struct br_http_service *service, struct br_node *node)
{
    service->node = node;
    if (!service->server || service->stopped)
        br_node_drained(node);
    else if (!service->stopping)
        br_server_stop(service->server, http_service_on_stopped, service);
    service->stopping = true;
}

void br_http_service_release(struct br_http_service *service)
{
    br_server_free(service->server);
    service->server = NULL;
}
