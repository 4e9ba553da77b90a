/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP server that belongs to a node and runs as long as the node. The node provides the
 * functions that answer requests.
 */
#pragma once

#include "net/hosts.h"
#include "net/server.h"
#include "pipeline/component.h"

struct br_http_service {
    /* functions that answer requests; set by the node before br_http_service_listen */
    struct br_handler handler;
    struct br_hosts hosts;    /* decides which Host headers are accepted */
    struct br_server *server; /* the server; NULL until br_http_service_listen succeeds */
    char name[160];           /* name of the listener: "extension/query http" */
    struct br_node *node;     /* node that is being drained; NULL: the node is not being drained */
    /* `stopping`: the server must stop; `stopped`: the server has stopped */
    bool stopping, stopped;
};

/* Starts to listen for `node`. `what`, for example "http", is part of log lines and of the
 * listener's name. `allowed` is the list allowed_hosts from the config. It may be NULL, and is
 * borrowed until the service is released. Sets the fields name, what and log of `config`. Returns 0
 * or an error of br_host_ops.serve. */
int br_http_service_listen(struct br_http_service *service, struct br_node *node, const char *what,
                           const struct br_strings *allowed, struct br_server_config *config,
                           struct br_err *err);

/* Stops the server, and calls br_node_drained when all requests have ended. Can be called
 * again. */
void br_http_service_drain(struct br_http_service *service, struct br_node *node);

/* Closes the remaining connections. Accepts a zeroed service. */
void br_http_service_release(struct br_http_service *service);
