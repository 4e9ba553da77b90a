/* SPDX-License-Identifier: Apache-2.0 */
#include "support/net_served.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void open_with(struct fixture *f, void **state, const struct br_server_config *config)
{
    f->rig = *state;
    net_service_init(&f->service);
    f->server = net_serve(f->rig, &f->service, config);
}

struct net_peer *dial(struct fixture *f)
{
    return net_dial(br_server_port(f->server));
}

void finish(struct fixture *f)
{
    br_server_free(f->server);
    assert_int_equal(net_connections(f->rig), 0);
}
