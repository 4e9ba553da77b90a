/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives UDP packets at one endpoint. A socket belongs to the worker that opened it.
 *
 * While a reload replaces the component that has a socket, the new component gets a duplicate of
 * the socket, so that no packet is lost in between (br_net_keep_sockets).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "core/host.h"

#define BR_UDP_PACKET_MAX 65535 /* largest packet that UDP can transfer, in bytes */

struct br_udp_config {
    const char *name; /* name of the socket, such as "receiver/jaeger thrift_compact" */
    const char *what; /* name for the endpoint in log messages, such as "thrift_compact" */
    /* address at which packets are received, such as "localhost:6831"; port 0 selects a free
     * port */
    const char *endpoint;
    size_t packet_max; /* largest packet that is received, in bytes */
    /* size of the system's buffer for packets that were not read yet, in bytes (SO_RCVBUF); 0: the
     * system's default */
    size_t buffer_size;
    const struct br_log *log;
};

struct br_udp_packet {
    /* bytes of the packet, borrowed until the br_udp_fn returns; NULL: the packet was larger than
     * packet_max */
    const uint8_t *data;
    size_t len;
    uint32_t n_lost; /* number of packets that the system has dropped since the previous packet */
};

/* Called for each packet, in the worker. Must not close the socket. */
typedef void br_udp_fn(void *arg, const struct br_udp_packet *packet);

/* The operations of a socket. Tests provide their own implementation. */
struct br_udp;
struct br_udp_ops {
    void (*close)(struct br_udp *udp);
};

struct br_udp {
    const struct br_udp_ops *ops;
};

/* Opens a socket. `config` is borrowed until return, and its log until the socket is closed.
 * Returns 0, or BR_EINVAL, BR_EIO or BR_ENOMEM with a message in `err`. */
int br_udp_open(struct br_host *host, const struct br_udp_config *config, br_udp_fn *fn, void *arg,
                struct br_udp **ret, struct br_err *err);

/* Closes the socket. Packets that were not read are lost, unless the socket is kept. Accepts NULL.
 */
static inline void br_udp_close(struct br_udp *udp)
{
    if (udp)
        udp->ops->close(udp);
}

/* Checks whether a socket with this config could be opened here, as br_server_check does for a
 * server (server_check.c). A port that is in use sets `ret->taken` and is not an error. Returns 0,
 * or BR_EINVAL or BR_EIO with a message in `err`. */
struct br_server_place;
int br_udp_check(const struct br_udp_config *config, struct br_server_place *ret,
                 struct br_err *err);

/* Implements br_host_ops.receive for loops. Returns as br_udp_open does. */
int br_net_receive(struct br_host *host, const struct br_udp_config *config, br_udp_fn *fn,
                   void *arg, struct br_udp **ret, struct br_err *err);
