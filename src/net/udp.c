/* SPDX-License-Identifier: Apache-2.0 */
#include "net/udp.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/hosts.h"
#include "net/server_internal.h"

/* Largest number of packets, and of bytes, that are read before other sockets are served. */
#define PACKETS_PER_EVENT 64
#define BYTES_PER_EVENT (1u << 20)

struct net_udp {
    struct br_udp base;
    struct br_list link; /* link in br_net.udps */
    struct br_loop *loop;
    uv_poll_t poll;
    int fd;
    unsigned generation; /* br_host.generation when the socket was opened */
    size_t packet_max;
    br_udp_fn *fn;
    void *arg;
    /* total number of packets that the system had dropped when the last packet was read */
    uint32_t n_lost;
    /* n_lost is valid; false until the first packet if the socket is a duplicate */
    bool knows_lost;
    const struct br_log *log;
    struct br_log_limit log_limit;
    char name[160], endpoint[300];
};

int br_udp_open(struct br_host *host, const struct br_udp_config *config, br_udp_fn *fn, void *arg,
                struct br_udp **ret, struct br_err *err)
{
    return host->ops->receive(host, config, fn, arg, ret, err);
}

/* --- Packets ---------------------------------------------------------------------------------- */

/* Returns the number of packets that the system has dropped since the last packet. The system adds
 * its count, which wraps, to each packet (SO_RXQ_OVFL, socket(7)). */
static uint32_t udp_count_lost(struct net_udp *udp, struct msghdr *message)
{
    uint32_t total = udp->n_lost, before = udp->n_lost;
    bool knew = udp->knows_lost;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SO_RXQ_OVFL)
            memcpy(&total, CMSG_DATA(part), sizeof total);
    udp->n_lost = total;
    udp->knows_lost = true;
    return knew ? total - before : 0;
}

/* Reads a packet and passes it on. Returns its size, or -1 if there is no packet. */
static ssize_t udp_read_one(struct net_udp *udp)
{
    union {
        struct cmsghdr head; /* for the alignment */
        char bytes[CMSG_SPACE(sizeof(uint32_t))];
    } control;
    struct iovec where = {udp->loop->read_buffer, udp->packet_max};
    struct msghdr message = {.msg_iov = &where,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t len = recvmsg(udp->fd, &message, MSG_DONTWAIT | MSG_TRUNC);
    if (len < 0)
        return len;
    bool whole = (size_t)len <= udp->packet_max;
    udp->fn(udp->arg, &(struct br_udp_packet){.data = whole ? udp->loop->read_buffer : NULL,
                                              .len = (size_t)len,
                                              .n_lost = udp_count_lost(udp, &message)});
    return len;
}

static void udp_on_readable(uv_poll_t *poll_handle, int status, int events)
{
    struct net_udp *udp = poll_handle->data;
    size_t bytes = 0;
    (void)events;
    for (int i = 0; i < PACKETS_PER_EVENT && bytes < BYTES_PER_EVENT && status == 0; i++) {
        ssize_t len = udp_read_one(udp);
        if (len < 0) {
            if (errno != EAGAIN && errno != EINTR)
                br_log_limited(udp->log, BR_LOG_WARN, &udp->log_limit,
                               br_host_mono_ms(&udp->loop->host), BR_LOG_EVERY_MS,
                               "cannot read packets: %s", strerror(errno));
            return;
        }
        bytes += (size_t)len;
    }
}

/* --- Sockets ---------------------------------------------------------------------------------- */

static bool udp_is_same(const struct net_udp *udp, const char *name, const char *endpoint)
{
    return strcmp(udp->name, name) == 0 && strcmp(udp->endpoint, endpoint) == 0;
}

/* Returns a duplicate of a socket of a component that a reload replaces, or -1. The socket has the
 * same name and endpoint or, if `addr` is not NULL, is bound to this address. */
static int udp_reuse(struct net_udp *udp, const struct sockaddr *addr, socklen_t len)
{
    struct br_net *net = udp->loop->net;
    for (struct br_list *link = net->udps.next; link != &net->udps; link = link->next) {
        const struct net_udp *before = br_container_of(link, struct net_udp, link);
        if (before->generation != udp->generation &&
            (addr ? br_net_is_bound(before->fd, addr, len)
                  : udp_is_same(before, udp->name, udp->endpoint)))
            return fcntl(before->fd, F_DUPFD_CLOEXEC, 0);
    }
    for (unsigned i = 0; i < net->n_kept_udps; i++) {
        const struct br_kept_socket *kept = &net->kept_udps[i];
        int fd = kept->fd;
        if (addr ? br_net_is_bound(fd, addr, len) : udp_is_same(udp, kept->name, kept->endpoint)) {
            net->kept_udps[i] = net->kept_udps[--net->n_kept_udps];
            return fd;
        }
    }
    return -1;
}

static int udp_bind(void *arg, const struct addrinfo *ai)
{
    struct net_udp *udp = arg;
    udp->fd = udp_reuse(udp, ai->ai_addr, ai->ai_addrlen);
    if (udp->fd >= 0)
        return 0;
    udp->fd = br_net_bind(SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, ai->ai_addr, ai->ai_addrlen);
    udp->knows_lost = udp->fd >= 0;
    return udp->fd >= 0 ? 0 : errno;
}

static void udp_set_options(const struct net_udp *udp, size_t buffer_size)
{
    int one = 1, size = (int)buffer_size, got = 0;
    socklen_t len = sizeof got;
    setsockopt(udp->fd, SOL_SOCKET, SO_RXQ_OVFL, &one, sizeof one);
    if (!buffer_size)
        return;
    setsockopt(udp->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    /* Linux doubles the value, and silently limits it to net.core.rmem_max (socket(7)). */
    if (getsockopt(udp->fd, SOL_SOCKET, SO_RCVBUF, &got, &len) == 0 && got / 2 < size)
        br_warn(udp->log, "the system limits socket_buffer_size to %d bytes (net.core.rmem_max)",
                got / 2);
}

/* Warns if other machines can send packets. */
static void udp_warn_if_open(const struct br_udp_config *config)
{
    if (!br_endpoint_is_loopback(config->endpoint))
        br_warn(config->log,
                "%s: other machines can send packets to %s, which cannot be authenticated; use "
                "localhost, or allow only known senders in a firewall",
                config->what, config->endpoint);
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static void udp_on_closed(uv_handle_t *handle)
{
    struct net_udp *udp = handle->data;
    close(udp->fd);
    br_free(udp);
}

/* Keeps a duplicate of the socket for the component that replaces this one. */
static void udp_keep(const struct net_udp *udp)
{
    struct br_net *net = udp->loop->net;
    int fd = net->keeps_sockets && net->n_kept_udps < BR_KEPT_UDPS_MAX
                 ? fcntl(udp->fd, F_DUPFD_CLOEXEC, 0)
                 : -1;
    if (fd < 0)
        return;
    struct br_kept_socket *kept = &net->kept_udps[net->n_kept_udps++];
    kept->fd = fd;
    memcpy(kept->name, udp->name, sizeof kept->name);
    memcpy(kept->endpoint, udp->endpoint, sizeof kept->endpoint);
}

static void udp_close(struct br_udp *base)
{
    struct net_udp *udp = br_container_of(base, struct net_udp, base);
    udp_keep(udp);
    br_list_remove(&udp->link);
    uv_poll_stop(&udp->poll);
    uv_close((uv_handle_t *)&udp->poll, udp_on_closed);
}

static const struct br_udp_ops udp_ops = {udp_close};

int br_net_receive(struct br_host *host, const struct br_udp_config *config, br_udp_fn *fn,
                   void *arg, struct br_udp **ret, struct br_err *err)
{
    struct br_loop *loop = br_loop_of(host);
    struct net_udp *udp = br_calloc(1, sizeof *udp);
    if (!udp)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    *udp = (struct net_udp){.base.ops = &udp_ops,
                            .loop = loop,
                            .generation = host->generation,
                            .packet_max = config->packet_max,
                            .fn = fn,
                            .arg = arg,
                            .log = config->log};
    (void)snprintf(udp->name, sizeof udp->name, "%s", config->name);
    (void)snprintf(udp->endpoint, sizeof udp->endpoint, "%s", config->endpoint);
    int rc = 0;
    udp->fd = udp_reuse(udp, NULL, 0);
    if (udp->fd < 0)
        rc = br_net_try_addresses(config->endpoint, "receive packets at", udp_bind, udp, err);
    if (!rc && br_watchers_poll(loop, &udp->poll, udp->fd, UV_READABLE, udp_on_readable)) {
        close(udp->fd);
        rc = br_err_set(err, BR_EIO, "cannot watch the socket of %s", config->endpoint);
    }
    if (rc) {
        br_free(udp);
        return rc;
    }
    udp_set_options(udp, config->buffer_size);
    udp_warn_if_open(config);
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    char shown[80] = "";
    if (getsockname(udp->fd, (struct sockaddr *)&addr, &len) == 0)
        br_net_peer_name(&addr, shown, sizeof shown);
    udp->poll.data = udp;
    br_list_append(&loop->net->udps, &udp->link);
    br_info(config->log, "%s listening on %s (UDP)", config->what, shown);
    *ret = &udp->base;
    return 0;
}
