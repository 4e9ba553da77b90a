/* SPDX-License-Identifier: Apache-2.0 */
/* A fixture with one server on the loop of a net_rig. Raw sockets send requests to the server. */
#pragma once

#include "tests/support/net_rig.h"
#include "tests/support/test.h"

#define GET "GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n"
#define POST(n) "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: " #n "\r\n\r\n"
#define OK "HTTP/1.1 200 OK\r\n"

struct fixture {
    struct net_rig *rig;
    struct net_service service;
    struct br_server *server;
};

/* Starts the server on the net_rig in `*state`. If `config` is NULL, the server has the default
 * settings. */
void net_served_open(struct fixture *f, void **state, const struct br_server_config *config);

/* Returns a raw socket that is connected to the server. */
struct net_peer *net_served_dial(struct fixture *f);

/* Frees the server and checks that no connection is left. */
void net_served_finish(struct fixture *f);
