/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server of a node. The server runs from the start of the node to its end. The node
 * provides the functions that answer requests.
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
    struct br_node *node;     /* node that is being drained; NULL before */
    bool stopping, stopped;   /* the server was told to stop, and has stopped */
};

/* Starts to listen for `node`. `what` ("http") is used in log lines and in the listener's name.
 * `allowed` is the setting allowed_hosts, borrowed until the service is released; it may be
 * NULL. Sets the fields name, what and log of `config`. Returns 0 or an error of
 * br_host_ops.serve. */
int br_http_service_listen(struct br_http_service *service, struct br_node *node, const char *what,
                           const struct br_strings *allowed, struct br_server_config *config,
                           struct br_err *err);

/* Stops the server, and calls br_node_drained when all requests have ended. Can be called
 * again. */
void br_http_service_drain(struct br_http_service *service, struct br_node *node);

/* Closes the remaining connections. Accepts a service that is all zero. */
void br_http_service_release(struct br_http_service *service);
