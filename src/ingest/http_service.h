/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server of a node, from the start of the node to its end. The node has the functions that
 * answer requests.
 */
#pragma once

#include "net/hosts.h"
#include "net/server.h"
#include "pipeline/component.h"

struct br_http_service {
    struct br_handler handler; /* set by the node before br_http_service_listen */
    struct br_hosts hosts;     /* the Host headers to accept */
    struct br_server *server;  /* NULL until br_http_service_listen succeeds */
    char name[160];            /* name of the listener: "extension/query http" */
};

/* Starts to listen for `node`. `what` ("http") is used in log lines and in the listener's name.
 * `allowed` is the setting allowed_hosts, borrowed until the service is released; NULL: there is
 * none. Sets name, what and log of `config`. Returns the errors of br_host_ops.serve. */
int br_http_service_listen(struct br_http_service *service, struct br_node *node, const char *what,
                           const struct br_strings *allowed, struct br_server_config *config,
                           struct br_err *err);

/* Stops the server, and calls br_node_drained when all requests have ended. */
void br_http_service_drain(struct br_http_service *service, struct br_node *node);

/* Closes the remaining connections. Accepts a zeroed service. */
void br_http_service_release(struct br_http_service *service);
