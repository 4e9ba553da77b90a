/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/net_served.h"

#include "tests/support/test.h"

void net_served_open(struct fixture *f, void **state, const struct br_server_config *config)
{
    f->rig = *state;
    net_service_init(&f->service);
    f->server = net_serve(f->rig, &f->service, config);
}

struct net_peer *net_served_dial(struct fixture *f)
{
    return net_dial(br_server_port(f->server));
}

void net_served_finish(struct fixture *f)
{
    br_server_free(f->server);
    assert_int_equal(net_connections(f->rig), 0);
}
