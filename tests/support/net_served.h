/* SPDX-License-Identifier: Apache-2.0 */
/* One server for a test, on a rig's loop, and the requests that raw peers send to it. */
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

/* Starts the server on the rig in `state`, with a config or NULL. */
void net_served_open(struct fixture *f, void **state, const struct br_server_config *config);

/* Returns a connected peer of the server. */
struct net_peer *net_served_dial(struct fixture *f);

/* Frees the server and checks that no connection is left. */
void net_served_finish(struct fixture *f);
